//! The texts about tasks that depend on a value.

use super::Words;
use crate::web::names::isolated;
use domain::check::CheckResult;
use domain::conversation::FreshReason;
use domain::{Language, Priority, TaskStatus};

impl Words {
    /// Returns the question before a result is discarded.
    pub(in crate::web) fn of_discard(&self, branch: &str, n_files: usize) -> String {
        let files = if n_files == 1 { "file" } else { "files" };
        match self.language {
            Language::English => format!(
                "Discard the result on {branch} ({n_files} changed {files})? It is hidden, and its \
                     files are removed when the task is closed. The commits are kept."
            ),
            Language::Japanese => format!(
                "{branch} の結果（変更ファイル {n_files} 件）を破棄しますか？ 非表示になり、タスクの\
                     終了後にファイルを削除します。コミットは保持されます。"
            ),
        }
    }

    /// Returns the note about a task that a person set in progress while it waits for others.
    pub(in crate::web) const fn starts_later(&self) -> &'static str {
        self.language.either(
            "Starts when the tasks it waits for are done",
            "依存タスクが完了すると開始します",
        )
    }

    /// Returns the note about a result that a person has not merged yet.
    pub(in crate::web) const fn result_waits(&self) -> &'static str {
        self.language.either("The result is not merged yet.", "結果はまだマージされていません。")
    }

    /// Returns the note about a new task, before its short id.
    pub(in crate::web) const fn task_created(&self) -> &'static str {
        self.language.either("Created", "作成しました:")
    }

    /// Returns why the next launch begins a new conversation.
    pub(in crate::web) fn of_fresh_start(&self, why: FreshReason) -> String {
        let clause = why.clause(self.language);
        self.language.choose(
            format!("The next launch begins afresh: {clause}"),
            format!("次の起動で新しく開始（{clause}）"),
        )
    }

    pub(in crate::web) const fn edit_description(&self) -> &'static str {
        self.language.either("Edit description", "説明を編集")
    }

    /// Returns why a task cannot be moved to a status.
    pub(in crate::web) fn of_unreachable(&self, from: TaskStatus, to: TaskStatus) -> String {
        let from = self.of_status(from);
        let to = self.of_status(to);
        match self.language {
            Language::English => format!("From “{from}”, a task can't be moved to “{to}”"),
            Language::Japanese => format!("「{from}」から「{to}」には移せません"),
        }
    }

    /// Returns what a person or an agent did, after the name, or what the daemon did.
    pub(in crate::web) fn of_move(
        &self,
        has_name: bool,
        from: Option<TaskStatus>,
        to: TaskStatus,
    ) -> String {
        let to = self.of_status(to);
        match (self.language, from.map(|from| self.of_status(from))) {
            (Language::English, from) => {
                let begin = if has_name { "moved it" } else { "Moved" };
                let from = from.map(|from| format!(" from {from}")).unwrap_or_default();
                format!("{begin}{from} to {to}")
            }
            (Language::Japanese, Some(from)) => format!("「{from}」から「{to}」に変更"),
            (Language::Japanese, None) => format!("「{to}」に変更"),
        }
    }

    /// Returns that the result was merged, after the name of who did that, if it is known.
    pub(in crate::web) fn of_merge(&self, has_name: bool, branch: &str) -> String {
        match self.language {
            Language::English if has_name => format!("merged the result into {branch}"),
            Language::English => format!("Result merged into {branch}"),
            Language::Japanese => format!("結果を {branch} にマージ"),
        }
    }

    pub(in crate::web) const fn of_made(&self, has_name: bool) -> &'static str {
        let english = if has_name { "created it" } else { "Created" };
        self.language.either(english, "作成")
    }

    /// Returns the text before the name of a forge item.
    pub(in crate::web) const fn made_from(&self) -> &'static str {
        self.language.either("Created from", "作成元:")
    }

    pub(in crate::web) const fn needed_by(&self) -> &'static str {
        self.language.either("Needed by", "後続タスク")
    }

    pub(in crate::web) const fn previous_task(&self) -> &'static str {
        self.language.either("Previous task", "前のタスク")
    }

    pub(in crate::web) const fn next_task(&self) -> &'static str {
        self.language.either("Next task", "次のタスク")
    }

    pub(in crate::web) const fn parent(&self) -> &'static str {
        self.language.either("Parent task", "親タスク")
    }

    /// Returns the value of a property without a value.
    pub(in crate::web) const fn nothing(&self) -> &'static str {
        self.language.either("None", "なし")
    }

    pub(in crate::web) const fn request(&self) -> &'static str {
        self.language.either("Pull request", "プルリクエスト")
    }

    /// Returns the line about a task that a person set to done.
    pub(in crate::web) fn of_done_by(&self, name: &str) -> String {
        match self.language {
            Language::English => format!("Done by hand, by {name}"),
            Language::Japanese => format!("{name} が手動で完了"),
        }
    }

    /// Returns the question whether the open subtasks of a task that is finished are cancelled.
    pub(in crate::web) const fn cancel_them(&self) -> &'static str {
        self.language.either("Cancel them?", "取り消しますか？")
    }

    /// Returns the button that cancels open subtasks and finishes their task.
    pub(in crate::web) const fn cancel_and_finish(&self) -> &'static str {
        self.language.either("Cancel them and finish", "取り消して完了")
    }

    /// Returns the note that another person saved what the reader writes.
    pub(in crate::web) fn of_saved_by(&self, name: &str) -> String {
        match self.language {
            Language::English => format!("{name} saved this while you were writing."),
            Language::Japanese => format!("編集中に {name} が保存しました。"),
        }
    }

    pub(in crate::web) const fn of_status(&self, status: TaskStatus) -> &'static str {
        status.name_in(self.language)
    }

    pub(in crate::web) const fn of_priority(&self, priority: Priority) -> &'static str {
        match priority {
            Priority::Low => self.low,
            Priority::Medium => self.medium,
            Priority::High => self.high,
            Priority::Urgent => self.urgent,
        }
    }

    pub(in crate::web) const fn of_check(&self, result: CheckResult) -> &'static str {
        match result {
            CheckResult::Running => self.check_running,
            CheckResult::Passed => self.check_passed,
            CheckResult::Failed => self.check_failed,
            CheckResult::NotRun => self.check_not_run,
        }
    }

    pub(in crate::web) fn of_open_tasks(&self, n: usize) -> String {
        match self.language {
            Language::English if n == 1 => "1 open task".to_owned(),
            Language::English => format!("{n} open tasks"),
            Language::Japanese => format!("未完了 {n} 件"),
        }
    }

    pub(in crate::web) fn of_parts_done(&self, n_done: usize, n: usize) -> String {
        match self.language {
            Language::English => format!("{n_done} of {n} subtasks done"),
            Language::Japanese => format!("サブタスク {n} 件中 {n_done} 件完了"),
        }
    }

    pub(in crate::web) fn of_running(&self, n: usize) -> String {
        match self.language {
            Language::English => format!("{n} running"),
            Language::Japanese => format!("{n} 件実行中"),
        }
    }

    pub(in crate::web) fn of_launches(&self, n: usize) -> String {
        match self.language {
            Language::English if n == 1 => "1 launch".to_owned(),
            Language::English => format!("{n} launches"),
            Language::Japanese => format!("起動 {n} 回"),
        }
    }

    pub(in crate::web) fn of_waits_for(&self, n: usize) -> String {
        match self.language {
            Language::English if n == 1 => "waits for 1 task".to_owned(),
            Language::English => format!("waits for {n} tasks"),
            Language::Japanese => format!("依存タスク {n} 件"),
        }
    }

    /// Returns the sentence of the note above a task that an agent works on.
    pub(in crate::web) fn of_works(&self, agent: &str) -> String {
        let agent = isolated(agent);
        match self.language {
            Language::English => format!("{agent} is working"),
            Language::Japanese => format!("{agent} が作業中"),
        }
    }
}
