//! The texts about what is archived and deleted.

use super::Words;
use domain::Language;
use domain::removal::{Affected, AffectedKind};

impl Words {
    /// Returns the line of the dialog about things that a deletion takes along or touches.
    pub(in crate::web) fn of_affected(&self, affected: &Affected) -> String {
        let Affected { kind, count, names } = affected;
        let n_more = count.saturating_sub(names.len());
        let names = names.join(", ");
        match self.language {
            Language::English => {
                let noun = english(*kind, *count);
                let more = if n_more == 0 { String::new() } else { format!(" and {n_more} more") };
                let names = if names.is_empty() { names } else { format!(": {names}{more}") };
                format!("{count} {noun}{names}")
            }
            Language::Japanese => {
                let noun = japanese(*kind);
                let more =
                    if n_more == 0 { String::new() } else { format!(" ほか {n_more} 件") };
                let names = if names.is_empty() { names } else { format!(": {names}{more}") };
                format!("{noun} {count} 件{names}")
            }
        }
    }
}

const fn english(kind: AffectedKind, count: usize) -> &'static str {
    match (kind, count) {
        (AffectedKind::Tasks, 1) => "task",
        (AffectedKind::Tasks, _) => "tasks",
        (AffectedKind::Workspaces, 1) => "clone",
        (AffectedKind::Workspaces, _) => "clones",
        (AffectedKind::Assignments, 1) => "assignment",
        (AffectedKind::Assignments, _) => "assignments",
        (AffectedKind::Comments, 1) => "comment",
        (AffectedKind::Comments, _) => "comments",
        (AffectedKind::Messages, 1) => "chat message",
        (AffectedKind::Messages, _) => "chat messages",
        (AffectedKind::Launches, 1) => "launch with its output",
        (AffectedKind::Launches, _) => "launches with their output",
        (AffectedKind::KeptTasks, 1) => "task that is kept",
        (AffectedKind::KeptTasks, _) => "tasks that are kept",
    }
}

const fn japanese(kind: AffectedKind) -> &'static str {
    match kind {
        AffectedKind::Tasks => "タスク",
        AffectedKind::Workspaces => "作業用クローン",
        AffectedKind::Assignments => "割り当て",
        AffectedKind::Comments => "コメント",
        AffectedKind::Messages => "チャットのメッセージ",
        AffectedKind::Launches => "起動履歴と出力",
        AffectedKind::KeptTasks => "削除されないタスク",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_counts_and_names_in_both_languages() {
        let names = vec!["SHOP-1 a".to_owned(), "SHOP-2 b".to_owned()];
        let affected = Affected { kind: AffectedKind::Tasks, count: 3, names };
        let of = |language| Words::of(language).of_affected(&affected);
        assert_eq!(of(Language::English), "3 tasks: SHOP-1 a, SHOP-2 b and 1 more");
        assert_eq!(of(Language::Japanese), "タスク 3 件: SHOP-1 a, SHOP-2 b ほか 1 件");
    }
}
