//! The texts about the life of a launch.

use super::Words;
use crate::domain::launch::{ReportResult, StopReason, TimeLimit};
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

    /// Returns the text for the outcome of a launch, with its reason.
    pub(in crate::rest::web) fn of_outcome(&self, outcome: &Outcome) -> String {
        let (english, japanese) = match outcome {
            Outcome::Completed => ("Done", "完了"),
            Outcome::Blocked => ("Blocked", "ブロック"),
            Outcome::Failed => ("Failed", "失敗"),
            Outcome::Stopped(_) => ("Stopped", "停止"),
            Outcome::ExitedWithoutReport => ("No report", "報告なし"),
            Outcome::NeverAuthenticated => ("Not logged in", "未ログイン"),
            Outcome::StartFailed(_) => ("Didn't start", "起動失敗"),
            Outcome::TimedOut(_) => ("Took too long", "時間超過"),
            Outcome::Lost => ("Lost", "消失"),
        };
        let reason = match outcome {
            Outcome::Stopped(reason) => Some(self.of_stop_reason(*reason).to_owned()),
            Outcome::TimedOut(limit) => Some(self.of_time_limit(*limit).to_owned()),
            Outcome::StartFailed(reason) => Some(reason.clone()),
            _ => None,
        };
        let text = self.language.either(english, japanese);
        reason.map_or_else(|| text.to_owned(), |reason| format!("{text} ({reason})"))
    }

    /// Returns the text for the reason to end an agent.
    pub(in crate::rest::web) const fn of_stop_reason(&self, reason: StopReason) -> &'static str {
        let (english, japanese) = match reason {
            StopReason::Reported => ("it reported", "報告済み"),
            StopReason::LoggedOut => ("it logged out", "ログアウト"),
            StopReason::Person => ("a person stopped it", "人が停止"),
            StopReason::StopAll => ("a person stopped everything", "すべて停止"),
            StopReason::Shutdown => ("the daemon ended", "デーモンの終了"),
            StopReason::NoticeIgnored => ("it ignored a notice", "通知への応答なし"),
            StopReason::Noticed => ("a notice told it to stop", "通知による停止"),
            StopReason::ChatEnded => ("the chat ended", "チャット終了"),
            StopReason::ChatIdle => ("the chat was idle", "チャットの無操作"),
            StopReason::StartTimeout => ("it did not authenticate in time", "認証の時間切れ"),
            StopReason::SessionMaximum => ("its session was too old", "セッション時間の上限"),
            StopReason::RunMaximum => ("it ran for too long", "実行時間の上限"),
            StopReason::Silence => ("it was silent for too long", "無出力の上限"),
            StopReason::Unassigned => ("the bot was unassigned", "割り当て解除"),
            StopReason::Closed => ("the item was closed", "項目のクローズ"),
            StopReason::Gone => ("the item is gone", "項目の消失"),
            StopReason::Moved => ("the item was moved", "項目の移動"),
            StopReason::Paused => ("its work was paused", "作業の一時停止"),
            StopReason::Unknown => ("the server does not know it", "サーバーに記録なし"),
        };
        self.language.either(english, japanese)
    }

    const fn of_time_limit(&self, limit: TimeLimit) -> &'static str {
        let (english, japanese) = match limit {
            TimeLimit::SessionIdle => ("its session made no call", "セッションの無操作"),
            TimeLimit::SessionMaximum => ("its session was too old", "セッション時間の上限"),
            TimeLimit::RunMaximum => ("it ran for too long", "実行時間の上限"),
            TimeLimit::Check => ("the check ran for too long", "チェックの実行時間の上限"),
            TimeLimit::Silence => ("it was silent for too long", "無出力の上限"),
        };
        self.language.either(english, japanese)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Language;

    #[test]
    fn an_outcome_is_told_with_its_reason_in_both_languages() {
        let stopped = Outcome::Stopped(StopReason::Person);
        let text = |language| Words::of(language).of_outcome(&stopped);
        assert_eq!(text(Language::English), "Stopped (a person stopped it)");
        assert_eq!(text(Language::Japanese), "停止 (人が停止)");
    }
}
