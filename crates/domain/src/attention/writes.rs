//! The entries about writes that a forge refuses. Each has the message of the last failure.

use super::{Attention, Cause, TaskInNeed};
use crate::forge::{ForgeItem, ItemKey, PendingWrite};
use crate::language::Language;
use crate::task::Task;

/// A write for an item of a forge, which the forge has refused. All later writes for the item wait
/// for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedWrite {
    pub key: ItemKey,
    pub title: String,
    /// The address of the item for people.
    pub url: String,
    pub write: PendingWrite,
    /// False if the last attempt failed otherwise, such as without an answer or for the token.
    pub is_refused: bool,
    /// The message of the last failure.
    pub error: Option<String>,
    /// The task of the item. There is none before the item is claimed.
    pub task: Option<TaskInNeed>,
}

/// Returns the entry of an item whose next write was refused. It exists since the task came to its
/// present status, which requested the write. A refused comment is given up soon and has none.
pub fn of_item(item: ForgeItem, task: Option<Task>) -> Option<Attention> {
    let is_told = |write: &&PendingWrite| {
        item.n_refusals > 0
            && match write {
                PendingWrite::Claim
                | PendingWrite::Label { .. }
                | PendingWrite::Push
                | PendingWrite::PullRequest => true,
                PendingWrite::Withdraw
                | PendingWrite::Comment { .. }
                | PendingWrite::Folder { .. } => false,
            }
    };
    let write = item.pending.first().filter(is_told)?.clone();
    let is_refused = item.is_refused();
    let since = Some(task.as_ref().map_or(item.created_at, |task| task.status_since));
    let ForgeItem { key, title, url, last_error: error, .. } = item;
    let task = task.map(TaskInNeed::from);
    let cause = Cause::Write(RefusedWrite { key, title, url, write, is_refused, error, task });
    Some(Attention { cause, since })
}

impl RefusedWrite {
    /// Returns the name of the object, with the write.
    pub(super) fn subject(&self) -> String {
        format!("{} {} {} {}", self.key.forge, self.key.host, self.key, self.write)
    }

    pub(super) fn text(&self, language: Language) -> String {
        let write = match self.write {
            PendingWrite::Push => language.either("the push of the result", "結果のプッシュ"),
            PendingWrite::PullRequest => language.either("the draft", "ドラフトの作成"),
            PendingWrite::Claim => language.either("the claim", "項目の取得"),
            _ => language.either("a label", "ラベルの変更"),
        };
        match language {
            Language::English => {
                let error = self.error.as_ref();
                let error = error.map_or_else(String::new, |error| format!(": {error}"));
                if self.is_refused {
                    return format!("{} refuses {write}{error}", self.key.host);
                }
                format!("{}: the last attempt at {write} failed{error}", self.key.host)
            }
            Language::Japanese if self.is_refused => {
                format!("{} が{write}を拒否しています", self.key.host)
            }
            Language::Japanese => {
                format!("{}: {write}の直近の試行が失敗しました", self.key.host)
            }
        }
    }

    pub(super) const fn remedy(&self, language: Language) -> &'static str {
        if !self.is_refused {
            return language.either(
                "it is tried again by itself; if the failure lasts, mend what the message names \
                 (`forge check`)",
                "自動的に再試行されます。失敗が続く場合は、メッセージの原因を直してください（`forge check`）",
            );
        }
        language.either(
            "mend the right (`forge check`) or the rule that the message names, then `refresh`",
            "権限（`forge check`）またはメッセージに示されたルールを直してから `refresh`",
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::attention::AttentionKind;
    use crate::forge::Setback;
    use crate::forge::labels::LabelState;
    use crate::time::Timestamp;

    const AT: Timestamp = Timestamp::from_millis(1_000);

    fn refused(write: PendingWrite, setback: Setback) -> Option<Attention> {
        let new = ForgeItem::new(
            "019aa".parse().unwrap(),
            "tsk".parse().unwrap(),
            ItemKey::example(),
            "agt".parse().unwrap(),
            "prj".parse().unwrap(),
            AT,
        );
        let item = ForgeItem { pending: vec![write], title: "Login".to_owned(), ..new };
        of_item(item.failed(setback, "no branches on Fridays".to_owned(), AT), None)
    }

    #[test]
    fn a_refused_write_that_fails_otherwise_then_is_not_called_refused() {
        let Some(Attention { cause: Cause::Write(entry), .. }) =
            refused(PendingWrite::Push, Setback::Refused)
        else {
            panic!("it has an entry");
        };
        let away = RefusedWrite {
            is_refused: false,
            error: Some("the token is not accepted (401): no".to_owned()),
            ..entry.clone()
        };
        assert_eq!(
            away.text(Language::English),
            "api.github.com: the last attempt at the push of the result failed: \
             the token is not accepted (401): no"
        );
        assert!(!away.text(Language::Japanese).contains("拒否"));
        assert_eq!(away.subject(), entry.subject(), "it is the same entry");
        for language in [Language::English, Language::Japanese] {
            assert_ne!(away.remedy(language), entry.remedy(language));
        }
    }

    #[test]
    fn a_refused_write_that_is_tried_for_long_needs_a_person_at_once() {
        let label = PendingWrite::Label { state: LabelState::Done };
        let writes = [PendingWrite::Push, PendingWrite::PullRequest, PendingWrite::Claim, label];
        let mut subjects = BTreeSet::new();
        for write in writes {
            assert_eq!(refused(write.clone(), Setback::Unanswered), None, "{write}");
            let entry = refused(write, Setback::Refused).unwrap();
            assert_eq!((entry.kind(), entry.since), (AttentionKind::Forge, Some(AT)));
            assert_eq!(entry.title(Language::English), "Login");
            let text = entry.text(Language::English);
            assert!(text.starts_with("api.github.com refuses "), "{text}");
            assert!(text.ends_with(": no branches on Fridays"), "{text}");
            assert_eq!(entry.detail_in_english().as_deref(), Some("no branches on Fridays"));
            assert!(entry.remedy(Language::English).unwrap().contains("`refresh`"));
            subjects.insert(entry.id());
        }
        assert_eq!(subjects.len(), 4, "a later write is another condition");
        let comment = PendingWrite::Comment { number: 1, text: String::new() };
        assert_eq!(refused(comment, Setback::Refused), None);
    }
}
