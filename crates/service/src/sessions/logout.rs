//! `logout`: an agent ends its session without a report.

use domain::launch::LaunchEvent;
use domain::notice::NoticeKind;
use domain::session::SessionEndReason;
use domain::{Launch, Notice, StopReason};

use super::Sessions;
use super::caller::fence;
use super::notices;
use crate::{Caller, ServiceError};

impl Sessions {
    /// Ends the session of `caller`. Its process has `run.linger` to end. If the agent has an open
    /// notice to stop, the launch ends because of that notice.
    pub async fn logout(&self, caller: &Caller) -> Result<&'static str, ServiceError> {
        let caller = caller.clone();
        let inputs = self.heard.inputs(&self.core);
        let guidance = self.core.guidance();
        self.core
            .write(move |tx| {
                let launch = fence(tx, &caller)?;
                let at = tx.now();
                let linger = inputs.settings.run.linger;
                let is_stop = |notice: &Notice| notice.action.kind() == NoticeKind::Stop;
                let event = if notices::open_of(tx, &launch.id)?.iter().any(is_stop) {
                    LaunchEvent::StopWanted { reason: StopReason::Noticed, at, exit_grace: linger }
                } else {
                    LaunchEvent::LoggedOut { at, linger }
                };
                notices::settle(tx, &launch)?;
                inputs.end_sessions(tx, &launch.id, SessionEndReason::LoggedOut)?;
                inputs.happen(tx, &Launch { n_notices: 0, ..launch }, &[event])?;
                Ok(guidance.logged_out())
            })
            .await
    }
}
