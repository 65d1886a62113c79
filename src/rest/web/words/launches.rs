//! The texts about the life of a launch.

use super::Words;
use crate::domain::launch::{ReportResult, StopReason};
use crate::domain::{FailureClass, Outcome, Purpose};

impl Words {
    /// Returns the text for the state of a launch.
    pub(in crate::rest::web) fn of_state<'a>(&'a self, state: &'a str) -> &'a str {
        match state {
            "starting" => self.starting,
            "running" => self.running,
            "stopping" => self.stopping,
            "ending" => self.ending,
            "ended" => self.ended,
            other => other,
        }
    }

    pub(in crate::rest::web) const fn of_purpose(&self, purpose: Purpose) -> &'static str {
        let (english, japanese) = match purpose {
            Purpose::Task => ("Task", "タスク"),
            Purpose::Chat => ("Chat", "チャット"),
            Purpose::Check => ("Check", "チェック"),
        };
        self.language.either(english, japanese)
    }

    /// Returns the text for the class of a failure.
    pub(in crate::rest::web) const fn of_failure(&self, class: FailureClass) -> &'static str {
        let (english, japanese) = match class {
            FailureClass::Auth => ("Not logged in", "未ログイン"),
            FailureClass::Quota => ("Usage limit", "利用上限"),
            FailureClass::Overload => ("Overloaded", "過負荷"),
            FailureClass::Config => ("Configuration", "設定の誤り"),
            FailureClass::Crash => ("Crashed", "異常終了"),
        };
        self.language.either(english, japanese)
    }

    /// Returns the text for the outcome of a launch with this purpose, with its reason.
    pub(in crate::rest::web) fn of_outcome(&self, outcome: &Outcome, purpose: Purpose) -> String {
        outcome.told(purpose, self.language)
    }

    /// Returns the text for the reason to end an agent.
    pub(in crate::rest::web) const fn of_stop_reason(&self, reason: StopReason) -> &'static str {
        reason.told(self.language)
    }

    /// Returns the text for the result that an agent reported.
    pub(in crate::rest::web) const fn of_report(&self, result: ReportResult) -> &'static str {
        let (english, japanese) = match result {
            ReportResult::Success => ("success", "成功"),
            ReportResult::Failed => ("failed", "失敗"),
            ReportResult::Blocked => ("blocked", "ブロック"),
        };
        self.language.either(english, japanese)
    }
}
