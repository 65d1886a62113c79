//! The ends of launches in words for people.

use super::{Outcome, StopReason, TimeLimit};
use crate::key::Purpose;
use crate::language::Language;

impl Outcome {
    /// Returns the outcome of a launch with this purpose as a mark: two or three words.
    pub const fn mark(&self, purpose: Purpose, language: Language) -> &'static str {
        let (english, japanese) = match (self, purpose) {
            (Self::Completed, Purpose::Chat) => ("Chat ended", "チャット終了"),
            (Self::Completed, _) => ("Done", "完了"),
            (Self::Blocked, _) => ("Blocked", "ブロック"),
            (Self::Failed, _) => ("Failed", "失敗"),
            (Self::Stopped(StopReason::Person), _) => ("Stopped by a person", "人が停止"),
            (Self::Stopped(_), _) => ("Stopped", "停止"),
            (Self::ExitedWithoutReport, _) => ("No report", "報告なし"),
            (Self::NeverAuthenticated, _) => ("Didn't authenticate", "認証なし"),
            (Self::StartFailed(_), _) => ("Didn't start", "起動失敗"),
            (Self::TimedOut(TimeLimit::Silence | TimeLimit::SessionIdle), _) => {
                ("Was silent too long", "無応答")
            }
            (Self::TimedOut(_), _) => ("Took too long", "時間超過"),
            (Self::Lost, _) => ("Lost", "消失"),
        };
        language.either(english, japanese)
    }

    /// Returns the mark with the reason of a stop or of a start that failed. The reason of the
    /// latter is English, so a Japanese text leaves it out; [`Outcome::reason_in_english`] has it.
    pub fn told(&self, purpose: Purpose, language: Language) -> String {
        let mark = self.mark(purpose, language);
        match self {
            Self::Stopped(StopReason::Person) => mark.to_owned(),
            Self::Stopped(reason) => format!("{mark}: {}", reason.told(language)),
            Self::StartFailed(reason) if language == Language::English => {
                format!("{mark}: {reason}")
            }
            _ => mark.to_owned(),
        }
    }

    /// Returns the reason of a start that failed, which exists in English only.
    pub fn reason_in_english(&self) -> Option<&str> {
        match self {
            Self::StartFailed(reason) => Some(reason),
            _ => None,
        }
    }
}

impl StopReason {
    /// Returns the reason in a few words.
    pub const fn told(self, language: Language) -> &'static str {
        let (english, japanese) = match self {
            Self::Reported => ("it reported", "報告済み"),
            Self::LoggedOut => ("it logged out", "ログアウト"),
            Self::Person => ("a person stopped it", "人が停止"),
            Self::StopAll => ("a person stopped everything", "すべて停止"),
            Self::Shutdown => ("shutdown", "シャットダウン"),
            Self::NoticeIgnored => ("it ignored a notice", "通知への応答なし"),
            Self::Noticed => ("a notice told it to stop", "通知による停止"),
            Self::ChatEnded => ("the chat ended", "チャット終了"),
            Self::ChatIdle => ("the chat was idle", "チャットの無操作"),
            Self::StartTimeout => ("it did not authenticate in time", "認証の時間切れ"),
            Self::SessionMaximum => ("its session was too old", "セッション時間の上限"),
            Self::RunMaximum => ("it ran for too long", "実行時間の上限"),
            Self::Silence => ("it was silent for too long", "無応答の上限"),
            Self::Unassigned => ("the bot was unassigned", "割り当て解除"),
            Self::Closed => ("the item was closed", "項目のクローズ"),
            Self::Gone => ("the item is gone", "項目の消失"),
            Self::Moved => ("the item was moved", "項目の移動"),
            Self::Paused => ("its work was paused", "作業の一時停止"),
            Self::Unknown => ("the server does not know it", "サーバーに記録なし"),
        };
        language.either(english, japanese)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_bad_and_the_words_of_bad_agree() {
        let all = [
            Outcome::Completed,
            Outcome::Blocked,
            Outcome::Failed,
            Outcome::Stopped(StopReason::Person),
            Outcome::ExitedWithoutReport,
            Outcome::NeverAuthenticated,
            Outcome::StartFailed(String::new()),
            Outcome::TimedOut(TimeLimit::Silence),
            Outcome::Lost,
        ];
        for outcome in all {
            assert_eq!(Outcome::BAD.contains(&outcome.as_str()), outcome.is_bad(), "{outcome}");
        }
    }

    #[test]
    fn an_outcome_is_told_with_its_reason_in_both_languages() {
        let told = |outcome: &Outcome, purpose| {
            let of = |language| outcome.told(purpose, language);
            [of(Language::English), of(Language::Japanese)]
        };
        let shutdown = Outcome::Stopped(StopReason::Shutdown);
        assert_eq!(told(&shutdown, Purpose::Task), ["Stopped: shutdown", "停止: シャットダウン"]);
        let person = Outcome::Stopped(StopReason::Person);
        assert_eq!(told(&person, Purpose::Task), ["Stopped by a person", "人が停止"]);
        assert_eq!(told(&Outcome::Completed, Purpose::Chat), ["Chat ended", "チャット終了"]);
        let failed = Outcome::StartFailed("no such file".to_owned());
        assert_eq!(told(&failed, Purpose::Task), ["Didn't start: no such file", "起動失敗"]);
        let silent = Outcome::TimedOut(TimeLimit::Silence);
        assert_eq!(told(&silent, Purpose::Task), ["Was silent too long", "無応答"]);
    }
}
