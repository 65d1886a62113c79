//! `list_stop_requests`: lists the launches that a coordinator is to end.

use std::time::Duration;

use serde::Serialize;

use super::wait_for_work::StopRequest;
use super::{Effect, NoInput, ToolSpec};
use crate::envelope::NamedCoordinator;
use service::{Service, ServiceError};

pub(crate) struct ListStopRequests;

#[derive(Serialize)]
pub(crate) struct Output {
    success: bool,
    stop_requests: Vec<StopRequest>,
}

impl ToolSpec for ListStopRequests {
    const NAME: &'static str = "list_stop_requests";
    const TEXT: &'static str =
        "For coordinators: lists the coordinator's own launches that must stop.";
    const EFFECT: Effect = Effect::Reads;
    type Who = NamedCoordinator;
    type Input = NoInput;
    type Output = Output;

    async fn call(
        service: &Service,
        who: NamedCoordinator,
        _: NoInput,
    ) -> Result<Output, ServiceError> {
        let work = service.coordinators.wait_for_work(&who.0, None, Duration::ZERO).await?;
        Ok(Output { success: true, stop_requests: StopRequest::all(&work) })
    }
}
