//! Signatures of merges in a source whose owner signs commits.

use super::hooks::write_hook;
use super::*;
use crate::tests::rights::{PERSON, give, mode};
use domain::workspace::HookWish;

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

    /// Lets the owner of the source sign with a new key of SSH. Returns false if the program that
    /// makes it is not installed.
    fn signs_by_key(&self, passphrase: &str) -> bool {
        let folder = self.bed.source().join(".git");
        let [key, signers] = ["key", "signers"].map(|name| folder.join(name));
        let mut make = Command::new("ssh-keygen");
        make.args(["-q", "-t", "ed25519", "-C", "ann", "-N", passphrase, "-f"]).arg(&key);
        let Ok(made) = make.status() else {
            println!("skipped: ssh-keygen is not installed");
            return false;
        };
        assert!(made.success());
        let public = std::fs::read_to_string(key.with_extension("pub")).unwrap();
        std::fs::write(&signers, format!("ann {public}")).unwrap();
        for (name, value) in [
            ("commit.gpgsign", "true"),
            ("gpg.format", "ssh"),
            ("user.signingkey", key.to_str().unwrap()),
            ("gpg.ssh.allowedSignersFile", signers.to_str().unwrap()),
        ] {
            self.git(&["config", name, value]);
        }
        true
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

/// Merges in a source whose owner signs with a real key, and has a hook.
async fn merge_with_key(owner: Option<u32>) {
    for style in STYLES {
        let task = Task::new().await;
        task.of_agent("more.txt", "more\n").await;
        let folder = task.bed.folder.path();
        std::fs::write(folder.join(".gitconfig"), "[safe]\n\tdirectory = *\n").unwrap();
        if !task.signs_by_key("") {
            return;
        }
        write_hook(&task.bed.source().join(".git/hooks"), "commit-msg", "exit 0");
        if let Some(owner) = owner {
            mode(folder, 0o711);
            give(&task.bed.source(), owner);
        }
        let hooks = HookRule { wish: HookWish::Run, ..HookRule::default() };
        let order = MergeOrder { hooks, ..task.order(style, Repeat::Once) };
        let merged = task.bed.checkouts.results.merge(&order).await.unwrap();
        assert!(matches!(merged, Merged::Into { .. }), "{style:?} {owner:?}: {merged:?}");
        let (n_made, good) = if style == MergeStyle::Rebase { ("-2", "G\nG") } else { ("-1", "G") };
        let signatures = task.git(&["log", "--first-parent", "--format=%G?", n_made]);
        assert_eq!(signatures, good, "{style:?} {owner:?}");
    }
}

#[tokio::test]
async fn a_real_key_signs_each_commit_of_a_merge() {
    Box::pin(merge_with_key(None)).await;
    if rustix::process::geteuid().is_root() {
        Box::pin(merge_with_key(Some(PERSON))).await;
    }
}

#[tokio::test]
async fn a_key_with_a_passphrase_refuses_the_merge() {
    let task = Task::new().await;
    if !task.signs_by_key("secret") {
        return;
    }
    let before = task.head();
    let order = task.order(MergeStyle::Squash, Repeat::Once);
    let refused = task.bed.checkouts.results.merge(&order).await.unwrap_err().to_string();
    assert!(refused.contains("`commit.gpgsign`"), "{refused}");
    assert_eq!((task.head(), task.has("work.txt")), (before, false));
}

#[tokio::test]
async fn a_merge_that_cannot_be_signed_is_refused_in_the_words_of_git() {
    let task = Task::new().await;
    task.signs_by("cat >/dev/null; echo no secret key >&2; exit 2");
    let before = task.head();
    let order = task.order(MergeStyle::Merge, Repeat::Once);
    let refused = task.bed.checkouts.results.merge(&order).await.unwrap_err().to_string();
    // Git before 2.40 does not repeat what the program said.
    let is_said = refused.contains("no secret key") || refused.ends_with("failed to sign the data");
    assert!(refused.contains("`commit.gpgsign`") && is_said, "{refused}");
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
