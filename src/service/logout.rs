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
            let (launch, expect) = self.fence(caller).await?;
            let event = LaunchEvent::LoggedOut { at: now, linger: self.settings.linger };
            let mut changes = self.changes_by(&launch, &event, now).await?;
            changes.retain(|change| !matches!(change, Change::Session(_)));
            for session in
                self.store.sessions_of(&launch.id).await?.into_iter().filter(|session| session.ended.is_none())
            {
                changes.push(Change::Session(session.end(SessionEndReason::LoggedOut, now)));
            }
            Ok((Commit { expect, changes }, self.guidance.logged_out()))
        })
        .await
    }
}
