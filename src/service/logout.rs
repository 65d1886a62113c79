//! `logout`: an agent ends its session without a report.

use crate::domain::launch::LaunchEvent;
use crate::domain::notice::NoticeKind;
use crate::domain::session::SessionEndReason;
use crate::domain::{Launch, StopReason};
use crate::store::{Change, Commit};

use super::{Caller, Service, ServiceError};

impl Service {
    /// Ends the session of `caller`; its process has `run.linger` to go. Who was told to stop has done so.
    pub async fn logout(&self, caller: &Caller) -> Result<&'static str, ServiceError> {
        self.transact(|| async move {
            let now = self.now();
            let (launch, mut expect) = self.fence(caller).await?;
            let was_told_to = |kind| async move {
                let open = self.open_notices_of(&caller.launch.id).await?;
                Ok::<_, ServiceError>(open.iter().any(|notice| notice.action.kind() == kind))
            };
            let linger = self.settings().linger;
            let event = if launch.n_notices > 0 && was_told_to(NoticeKind::Stop).await? {
                LaunchEvent::StopWanted { reason: StopReason::Noticed, at: now, patience: linger }
            } else {
                LaunchEvent::LoggedOut { at: now, linger }
            };
            let settled = self.settle_notices(&launch).await?;
            let launch = Launch { n_notices: 0, ..launch };
            let Commit { expect: of_launch, mut changes } =
                self.commit_by(&launch, &event, now).await?;
            expect.extend(of_launch);
            changes.retain(|change| !matches!(change, Change::Session(_)));
            changes.extend(settled);
            for session in self
                .store
                .sessions_of(&launch.id)
                .await?
                .into_iter()
                .filter(|session| session.ended.is_none())
            {
                changes.push(Change::Session(session.end(SessionEndReason::LoggedOut, now)));
            }
            Ok((Commit { expect, changes }, self.guidance().logged_out()))
        })
        .await
    }
}
