//! `wait_for_work`: a remote coordinator waits for changes and gets all facts for its plan.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Effect, ToolSpec};
use crate::envelope::NamedCoordinator;
use domain::LaunchState;
use domain::launch::{LaunchFacts, StopReason};
use domain::{InstanceKey, LaunchId, Timestamp};
use service::{Service, ServiceError, Work};

pub(crate) struct WaitForWork;

/// The longest wait, in seconds. Clients and proxies between them give up after a minute.
const MAX_WAIT: u64 = 55;

#[derive(Deserialize, schemars::JsonSchema)]
pub(crate) struct Input {
    /// The longest wait for a change since `seen`, in seconds. Without it the answer comes at once.
    #[serde(default)]
    #[schemars(with = "u32", range(max = 55))]
    timeout_seconds: u64,
    /// The `seen` of the last answer. The call waits for a change since then. Without it the answer
    /// comes at once.
    #[serde(default)]
    #[schemars(with = "String")]
    seen: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct Output {
    success: bool,
    #[serde(flatten)]
    work: Work,
    stop_requests: Vec<StopRequest>,
}

/// A launch of the calling coordinator that is to be ended.
#[derive(Serialize)]
pub(super) struct StopRequest {
    launch_id: LaunchId,
    #[serde(flatten)]
    key: InstanceKey,
    reason: StopReason,
    /// The time that it may still take to end by itself, before its processes are ended.
    grace_seconds: u64,
}

impl StopRequest {
    pub(super) fn of(launch: &LaunchFacts, now: Timestamp) -> Option<Self> {
        let LaunchState::Stopping { reason, stop_at } = launch.state else {
            return None;
        };
        let launch_id = launch.id.clone();
        let key = launch.key.clone();
        Some(Self { launch_id, key, reason, grace_seconds: stop_at.since(now).as_secs() })
    }

    pub(super) fn all(work: &Work) -> Vec<Self> {
        work.view.launches.iter().filter_map(|launch| Self::of(launch, work.view.at)).collect()
    }
}

impl ToolSpec for WaitForWork {
    const NAME: &'static str = "wait_for_work";
    const TEXT: &'static str = "For coordinators: returns the agents that may start, the \
                                coordinator's own open launches, and those to stop. With `seen` \
                                and timeout_seconds, it waits until one of these may have \
                                changed.";
    const EFFECT: Effect = Effect::Reads;
    const WAITS: bool = true;
    type Who = NamedCoordinator;
    type Input = Input;
    type Output = Output;

    async fn call(
        service: &Service,
        who: NamedCoordinator,
        input: Input,
    ) -> Result<Output, ServiceError> {
        let progress = Duration::from_secs(input.timeout_seconds.min(MAX_WAIT));
        let work =
            service.coordinators.wait_for_work(&who.0, input.seen.as_deref(), progress).await?;
        Ok(Output { success: true, stop_requests: StopRequest::all(&work), work })
    }
}
