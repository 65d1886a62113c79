//! The texts about workspaces and about what became of a result.

use super::Words;
use domain::Language;
use domain::workspace::{WorkspaceMode, WorkspaceState};

impl Words {
    /// Returns the text for the state of a workspace.
    pub(in crate::web) const fn of_workspace_state(&self, state: WorkspaceState) -> &'static str {
        let (english, japanese) = match state {
            WorkspaceState::Wanted => ("Being prepared", "準備中"),
            WorkspaceState::Ready => ("Ready", "準備完了"),
            WorkspaceState::InUse => ("In use", "使用中"),
            WorkspaceState::Broken => return self.needs_attention,
            WorkspaceState::Removed => ("Files removed, commits kept", "ファイル削除済み"),
        };
        self.language.either(english, japanese)
    }

    /// Returns a sentence that says where the agents of a project work.
    pub(in crate::web) const fn of_workspace_mode(&self, mode: WorkspaceMode) -> &'static str {
        let (english, japanese) = match mode {
            WorkspaceMode::Shared => (
                "Shared: all agents work in the project's directory",
                "共有: すべてのエージェントがプロジェクトのディレクトリで作業します",
            ),
            WorkspaceMode::Clone => (
                "Clone: each task has its own clone, and you merge its result",
                "クローン: タスクごとに専用のクローンで作業し、結果は人がマージします",
            ),
        };
        self.language.either(english, japanese)
    }

    /// Returns the size of a result, before the name of its branch.
    pub(in crate::web) fn of_changes(&self, n_files: usize, n_commits: u32) -> String {
        match self.language {
            Language::English => {
                let files = ending(n_files == 1);
                let commits = ending(n_commits == 1);
                format!("{n_files} file{files}, {n_commits} commit{commits} on")
            }
            Language::Japanese => format!("{n_files} ファイル、{n_commits} コミット:"),
        }
    }

    /// Returns the text in place of that size while a person is to choose the result.
    pub(in crate::web) const fn branch_to_choose(&self) -> &'static str {
        self.language
            .either("A branch is to be chosen as the result", "結果にするブランチの選択が必要です")
    }

    /// Returns the button that lists the branches.
    pub(in crate::web) const fn choose_branch(&self) -> &'static str {
        self.language.either("Choose the branch", "ブランチを選択")
    }

    /// Returns how far a result is behind a branch, before the name of the branch.
    pub(in crate::web) fn of_behind(&self, n_commits: u64) -> String {
        match self.language {
            Language::English => format!("{n_commits} behind"),
            Language::Japanese => format!("{n_commits} コミット遅れ:"),
        }
    }

    pub(in crate::web) const fn git_is_slow(&self) -> &'static str {
        self.language.either(
            "Git did not answer within 5 seconds.",
            "5 秒以内に git の応答がありませんでした。",
        )
    }

    pub(in crate::web) fn of_more_lines(&self, n: usize) -> String {
        match self.language {
            Language::English => format!("Show more lines ({n})"),
            Language::Japanese => format!("続きを表示（{n} 行）"),
        }
    }

    pub(in crate::web) fn of_uncommitted(&self, n_files: u32) -> String {
        match self.language {
            Language::English => format!("{n_files} file{} in no commit", ending(n_files == 1)),
            Language::Japanese => format!("未コミット {n_files} 件"),
        }
    }

    pub(in crate::web) fn of_merge_into(&self, branch: &str) -> String {
        match self.language {
            Language::English => format!("Merge into {branch}"),
            Language::Japanese => format!("{branch} にマージ"),
        }
    }

    pub(in crate::web) fn of_id_again(&self, short_id: &str) -> String {
        match self.language {
            Language::English => format!("To confirm, type {short_id}:"),
            Language::Japanese => format!("確認のため {short_id} と入力:"),
        }
    }

    pub(in crate::web) fn of_merged_into(&self, branch: &str, commit: &str) -> String {
        match self.language {
            Language::English => format!("Merged into {branch} ({commit})."),
            Language::Japanese => format!("{branch} にマージしました（{commit}）。"),
        }
    }

    pub(in crate::web) fn of_merged_before(&self, branch: &str, merge: Option<&str>) -> String {
        match (self.language, merge) {
            (Language::English, None) => {
                format!("Nothing to merge: {branch} already has the result.")
            }
            (Language::English, Some(merge)) => {
                format!("Nothing to merge: {branch} got the result with {merge}.")
            }
            (Language::Japanese, None) => {
                format!("マージ不要: {branch} には結果が含まれています。")
            }
            (Language::Japanese, Some(merge)) => {
                format!("マージ不要: {branch} には {merge} で結果がマージされました。")
            }
        }
    }

    pub(in crate::web) fn of_merge_conflict(&self, branch: &str) -> String {
        match self.language {
            Language::English => format!("The result and {branch} change the same lines of:"),
            Language::Japanese => {
                format!("結果と {branch} が、次のファイルの同じ行を変更しています:")
            }
        }
    }

    pub(in crate::web) fn of_merge_reverted(
        &self,
        branch: &str,
        merge: &str,
        revert: &str,
    ) -> String {
        match self.language {
            Language::English => {
                format!("{branch} had the result by {merge}, and {revert} reverted that.")
            }
            Language::Japanese => {
                format!(
                    "{branch} の {merge} に結果が含まれていましたが、{revert} で取り消されました。"
                )
            }
        }
    }

    /// Returns since when a conflict is known.
    pub(in crate::web) fn of_conflict_commit(&self, branch: &str, commit: &str) -> String {
        match self.language {
            Language::English => format!(
                "As of {commit}. If {branch} has changed since, merge again to compare them anew."
            ),
            Language::Japanese => format!(
                "{commit} の時点です。{branch} がその後変わった場合は、もう一度マージすると比較し直します。"
            ),
        }
    }

    /// Returns the filter for results that wait for a person.
    pub(in crate::web) const fn to_merge(&self) -> &'static str {
        self.language.either("To merge", "マージ待ち")
    }

    /// Returns the mark of a result that was not merged because of a conflict.
    pub(in crate::web) const fn conflict(&self) -> &'static str {
        self.language.either("Conflict", "コンフリクト")
    }

    pub(in crate::web) const fn choose_result(&self) -> &'static str {
        self.language.either("Choose the result", "結果を選択")
    }

    /// Returns the heading of the branches with changes that the result lacks.
    pub(in crate::web) const fn beside_result(&self) -> &'static str {
        self.language.either("Beside the result", "結果に含まれない変更")
    }

    /// Returns the number of commits of a branch that the result lacks.
    pub(in crate::web) fn of_commits_more(&self, n_commits: u32) -> String {
        match self.language {
            Language::English => format!("{n_commits} commit{} more", ending(n_commits == 1)),
            Language::Japanese => format!("{n_commits} コミット先行"),
        }
    }

    pub(in crate::web) const fn take_as_result(&self) -> &'static str {
        self.language.either("Take as the result", "結果にする")
    }

    /// Returns the mark of a branch that a person does not need.
    pub(in crate::web) const fn not_needed(&self) -> &'static str {
        self.language.either("Not needed", "不要")
    }

    /// Returns the button that marks a branch as not needed.
    pub(in crate::web) const fn mark_not_needed(&self) -> &'static str {
        self.language.either("Drop", "不要にする")
    }

    /// Returns the button that takes this mark back.
    pub(in crate::web) const fn needed_after_all(&self) -> &'static str {
        self.language.either("Needed after all", "「不要」を取り消す")
    }

    pub(in crate::web) const fn not_decided(&self) -> &'static str {
        self.language.either("The result was not changed.", "結果を変更していません。")
    }

    pub(in crate::web) fn of_merge_in_the_way(&self, branch: &str) -> String {
        match self.language {
            Language::English => format!("{branch} was not changed, because files are in the way:"),
            Language::Japanese => {
                format!("妨げになるファイルがあるため、{branch} を変更していません:")
            }
        }
    }

    pub(in crate::web) fn of_merge_hooks(&self, branch: &str) -> String {
        match self.language {
            Language::English => {
                format!("{branch} was not changed yet, because the repository has these hooks:")
            }
            Language::Japanese => {
                format!("リポジトリに次のフックがあるため、{branch} はまだ変更していません:")
            }
        }
    }

    pub(in crate::web) const fn merge_hooks_hint(&self) -> &'static str {
        self.language.either(
            "A hook may run files of the result. Look at the changes before you run it.",
            "フックは結果のファイルを実行することがあります。実行する前に変更内容を確認してください。",
        )
    }

    pub(in crate::web) const fn merge_hooks_not_allowed(&self) -> &'static str {
        self.language.either(
            "They may run files of the result with the rights of the daemon, but agents run as other \
             users. So they do not run.",
            "フックは結果のファイルをデーモンの権限で実行することがあります。エージェントは別のユーザーで動作しているため、フックは実行しません。",
        )
    }

    pub(in crate::web) const fn merge_run_hooks(&self) -> &'static str {
        self.language.either("Merge and run the hooks", "フックを実行してマージ")
    }

    pub(in crate::web) const fn merge_no_hooks(&self) -> &'static str {
        self.language.either("Merge without hooks", "フックなしでマージ")
    }

    pub(in crate::web) const fn merge_no_hooks_always(&self) -> &'static str {
        self.language.either("Always merge without hooks", "今後もフックなしでマージ")
    }

    pub(in crate::web) const fn no_hooks_remembered(&self) -> &'static str {
        self.language.either(
            "Later merges in this project run no hooks either. The form of the project takes that \
             back.",
            "このプロジェクトの今後のマージでもフックは実行しません。プロジェクトの編集で元に戻せます。",
        )
    }

    /// Returns the label of the choice about hooks in the form of a project.
    pub(in crate::web) const fn hooks_at_merges(&self) -> &'static str {
        self.language.either("Repository hooks at merges", "マージ時のリポジトリのフック")
    }

    pub(in crate::web) const fn hooks_as_configured(&self) -> &'static str {
        self.language.either("As configured", "設定に従う")
    }

    pub(in crate::web) const fn hooks_never_run(&self) -> &'static str {
        self.language.either("Never run", "実行しない")
    }

    /// Returns the text about a hook that refused a merge, before its words and the files.
    pub(in crate::web) fn of_hook_refused(
        &self,
        branch: &str,
        hook: &str,
        has_changed: bool,
    ) -> String {
        match (self.language, has_changed) {
            (Language::English, false) => {
                format!("{branch} was not changed, because the hook {hook} refused the merge:")
            }
            (Language::English, true) => {
                format!("{branch} was not changed, because the hook {hook} changed files:")
            }
            (Language::Japanese, false) => {
                format!("フック {hook} がマージを拒否したため、{branch} を変更していません:")
            }
            (Language::Japanese, true) => {
                format!("フック {hook} がファイルを変更したため、{branch} を変更していません:")
            }
        }
    }

    /// Returns the hint about it. A commit that no branch has may have the changed files.
    pub(in crate::web) fn of_hook_refused_hint(&self, saved: Option<&str>) -> String {
        let hint =
            self.language.either("The files are as they were.", "ファイルは元の状態に戻しました。");
        match (self.language, saved) {
            (_, None) => hint.to_owned(),
            (Language::English, Some(commit)) => {
                format!("{hint} git show {commit} shows what the hook changed.")
            }
            (Language::Japanese, Some(commit)) => {
                format!("{hint} フックによる変更は git show {commit} で確認できます。")
            }
        }
    }

    pub(in crate::web) fn of_merge_dirty(&self, branch: &str) -> String {
        match self.language {
            Language::English => format!(
                "{branch} was not changed, because hooks run only if these files have no changes:"
            ),
            Language::Japanese => {
                format!(
                    "次のファイルに変更があるとフックを実行できないため、{branch} を変更していません:"
                )
            }
        }
    }

    pub(in crate::web) const fn merge_dirty_hint(&self) -> &'static str {
        self.language.either(
            "Commit or stash them, then merge again, or merge without hooks.",
            "コミットまたは退避してからもう一度マージするか、フックなしでマージしてください。",
        )
    }

    pub(in crate::web) fn of_other_branch(&self, wanted: &str) -> String {
        match self.language {
            Language::English => {
                format!("{wanted} there has other commits, or is checked out.")
            }
            Language::Japanese => {
                format!("{wanted} には別のコミットがあるか、チェックアウト中です。")
            }
        }
    }

    pub(in crate::web) fn of_result_branch(&self, branch: &str) -> String {
        match self.language {
            Language::English => {
                format!("The project's repository has the result as the branch {branch}.")
            }
            Language::Japanese => {
                format!("結果は、プロジェクトのリポジトリのブランチ {branch} にあります。")
            }
        }
    }
}

const fn ending(is_one: bool) -> &'static str {
    if is_one { "" } else { "s" }
}
