//! The texts of the first steps: the folder of a project and the bundled agent.

use super::Words;
use crate::web::changes::short_commit;
use domain::workspace::{Folder, FolderRepository};

impl Words {
    /// Returns what a reader should know about a folder.
    pub(in crate::web) fn of_folder(&self, folder: &Folder) -> String {
        let (english, japanese) = match folder {
            Folder::NotAbsolute => return self.needs_path.to_owned(),
            Folder::InRepository(repository) => return self.of_repository(repository),
            Folder::Missing => (
                "There is no such folder on the machine of the daemon. Create it first.",
                "デーモンのマシンにこのフォルダーはありません。先に作成してください。",
            ),
            Folder::NotAFolder => (
                "This is a file. Enter the path of its folder.",
                "これはファイルです。フォルダーのパスを入力してください。",
            ),
            Folder::Root => (
                "An agent would work on the whole machine. Enter the folder of one project.",
                "エージェントがマシン全体で作業することになります。プロジェクトのフォルダーを指定してください。",
            ),
            Folder::Closed => (
                "The daemon cannot enter this folder. Change its permissions or choose another.",
                "デーモンのユーザーにはこのフォルダーに入る権限がありません。権限を変更するか、別のフォルダーを選択してください。",
            ),
            Folder::ReadOnly => (
                "The daemon cannot write to this folder. Change its permissions or choose another.",
                "デーモンのユーザーにはこのフォルダーに書き込む権限がありません。権限を変更するか、別のフォルダーを選択してください。",
            ),
            Folder::Plain => (
                "A folder without git. All agents work in it.",
                "git を使わないフォルダーです。すべてのエージェントがここで作業します。",
            ),
            Folder::Failed(_) => {
                ("This folder could not be checked.", "このフォルダーを確認できませんでした。")
            }
        };
        self.language.either(english, japanese).to_owned()
    }

    fn of_repository(&self, repository: &FolderRepository) -> String {
        let FolderRepository { branch, commit, is_clean, .. } = repository;
        let place = match (branch, commit) {
            (_, None) => self.language.either("no commit yet", "コミットなし").to_owned(),
            (Some(branch), _) => format!("{} {branch}", self.language.either("branch", "ブランチ")),
            (None, Some(commit)) => {
                format!("{} {}", self.language.either("commit", "コミット"), short_commit(commit))
            }
        };
        let state = is_clean.map(|is_clean| {
            if is_clean {
                self.language.either("clean", "変更なし")
            } else {
                self.language.either("with uncommitted changes", "未コミットの変更あり")
            }
        });
        let comma = self.language.either(", ", "、");
        let parts = ["git".to_owned(), place].into_iter().chain(state.map(str::to_owned));
        parts.collect::<Vec<_>>().join(comma)
    }

    pub(in crate::web) fn bundled_agent(&self) -> &'static str {
        self.language.either("Example agent", "サンプルエージェント")
    }

    pub(in crate::web) fn bundled_agent_hint(&self) -> &'static str {
        self.language.either(
            "writes a greeting into a file, needs no account",
            "ファイルにあいさつを書きます。アカウントは不要です",
        )
    }

    /// Returns the sentence about a CLI that is on this machine, but cannot be started as it is.
    pub(in crate::web) fn of_unfit_program(&self, ai_type: &str) -> String {
        let english = format!("Agents of the kind {ai_type} cannot start:");
        let japanese = format!("種類「{ai_type}」のエージェントは、まだ起動できません。");
        if self.is_english() { english } else { japanese }
    }

    pub(in crate::web) fn bundled(&self) -> &'static str {
        self.language.either("Bundled", "同梱")
    }

    pub(in crate::web) fn other_kind(&self) -> &'static str {
        self.language.either("Another kind", "その他の種別")
    }

    /// Returns the hint at a name that the page chooses if the reader leaves it empty.
    pub(in crate::web) fn name_hint(&self) -> &'static str {
        self.language.either(
            "Leave it empty to take the name of the folder.",
            "空欄ならフォルダー名を使います。",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::Language;

    #[test]
    fn a_repository_is_told_with_its_branch_and_its_state() {
        let repository = FolderRepository {
            branch: Some("main".to_owned()),
            commit: Some("0123456789".to_owned()),
            is_clean: Some(true),
            no_clones: None,
        };
        let english = |repository: &FolderRepository| {
            Words::of(Language::English).of_folder(&Folder::InRepository(repository.clone()))
        };
        assert_eq!(english(&repository), "git, branch main, clean");
        let changed =
            FolderRepository { branch: None, is_clean: Some(false), ..repository.clone() };
        assert_eq!(english(&changed), "git, commit 0123456789, with uncommitted changes");
        assert_eq!(english(&FolderRepository::default()), "git, no commit yet");
        let japanese = Words::of(Language::Japanese);
        let folder = Folder::InRepository(repository);
        assert_eq!(japanese.of_folder(&folder), "git、ブランチ main、変更なし");
    }
}
