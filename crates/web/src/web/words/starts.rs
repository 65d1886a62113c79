//! The texts of the buttons that end waits.

use super::Words;
use domain::waiting::WaitAction;

impl Words {
    /// Returns the text of the button for an action.
    pub(in crate::web) const fn of_wait_action(&self, action: WaitAction) -> &'static str {
        match action {
            WaitAction::Assign | WaitAction::AssignToProject => self.assign_agent,
            WaitAction::Activate => self.language.either("Activate", "有効にする"),
            WaitAction::Resume | WaitAction::ResumeAll => self.resume,
            WaitAction::TryNow | WaitAction::TryProvider => self.try_now,
            WaitAction::EditAgent => self.edit,
            WaitAction::RetryWorkspace => self.language.either("Show", "表示"),
            WaitAction::Merge => self.merge,
            WaitAction::EndChat => self.language.either("End chat", "チャットを終了"),
            WaitAction::ChangeLimits => self.language.either("Limits…", "上限…"),
        }
    }
}
