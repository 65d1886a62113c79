//! Signatures of merges in a source whose owner signs commits.

use super::hooks::write_hook;
use super::*;

/// A signing program that answers as GnuPG does.
const SIGNS: &str = "cat >/dev/null; echo \"[GNUPG:] SIG_CREATED \" >&2; \
                     echo -----BEGIN PGP SIGNATURE-----; echo; echo -----END PGP SIGNATURE-----";

impl Task {
    /// Lets the owner of the source sign with this script.
    fn signs_by(&self, script: &str) {
        let folder = self.bed.folder.path().join("programs");
        write_hook(&folder, "gpg", script);
        self.git(&["config", "commit.gpgsign", "true"]);
        self.git(&["config", "gpg.program", folder.join("gpg").to_str().unwrap()]);
    }
}

#[tokio::test]
async fn the_commits_of_a_merge_are_signed_as_the_owner_of_the_repository_would() {
    for style in STYLES {
        let task = Task::new().await;
        task.of_agent("more.txt", "more\n").await;
        let before = task.head();
        task.signs_by(SIGNS);
        assert_eq!(task.merged(style, Repeat::Once).await, task.head(), "{style:?}");
        assert!(task.has("work.txt") && task.has("more.txt"), "{style:?}");
        assert_eq!(task.git(&["status", "--porcelain"]), "", "{style:?}");
        let of_agent = task.bed.git(&task.tree, &["rev-list", "HEAD"]);
        let new = task.git(&["rev-list", "HEAD", "--not", &before]);
        let made: Vec<&str> = new.lines().filter(|commit| !of_agent.contains(*commit)).collect();
        let n_made = if style == MergeStyle::Rebase { 2 } else { 1 };
        assert_eq!(made.len(), n_made, "{style:?}: {made:?}");
        for commit in made {
            let text = task.git(&["cat-file", "commit", commit]);
            assert!(text.contains("\ngpgsig -----BEGIN"), "{style:?}: {text}");
        }
        task.changes_nothing(style, Repeat::Once).await;
    }
}

#[tokio::test]
async fn a_merge_that_cannot_be_signed_is_refused_in_the_words_of_git() {
    let task = Task::new().await;
    task.signs_by("cat >/dev/null; echo no secret key >&2; exit 2");
    let before = task.head();
    let order = task.order(MergeStyle::Merge, Repeat::Once);
    let refused = task.bed.checkouts.merge(&order).await.unwrap_err().to_string();
    assert!(refused.contains("`commit.gpgsign`") && refused.contains("no secret key"), "{refused}");
    assert_eq!((task.head(), task.has("work.txt")), (before, false));
}

#[tokio::test]
async fn the_commit_of_the_result_itself_is_not_signed_again() {
    let bed = Bed::new();
    let (prepared, tree) = bed.prepare("one").await;
    bed.commit(&tree, "work.txt", "work\n");
    let task = Task { bed, prepared, tree };
    task.keep().await;
    task.signs_by("exit 2");
    let commit = task.merged(MergeStyle::Merge, Repeat::Once).await;
    assert_eq!(commit, task.bed.head(&task.tree));
}
