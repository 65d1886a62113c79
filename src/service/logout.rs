//! `logout`: an agent ends its session without a report.

use crate::domain::launch::LaunchEvent;
use crate::domain::session::SessionEndReason;
use crate::store::{Change, Commit};

use super::{Caller, Service, ServiceError};

impl Service {
    /// Ends the session of `caller`; its process has `run.linger` to go.
    pub async fn logout(&self, caller: &Caller) -> Result<&'static str, ServiceError> {
        self.transact(|| async move {
            let now = self.now();
            let launch = self.store.launch(&caller.launch.id).await?.unwrap_or_else(|| caller.launch.clone());
            let event = LaunchEvent::LoggedOut { at: now, linger: self.settings.linger };
            let mut changes = self.changes_by(&launch, &event, now).await?;
            changes.retain(|change| !matches!(change, Change::Session(session) if session.id == caller.session.id));
            let ended = caller.session.clone().end(SessionEndReason::LoggedOut, now);
            changes.push(Change::Session(ended));
            Ok((Commit { expect: Vec::new(), changes }, self.guidance.logged_out()))
        })
        .await
    }
}
