//! Merges after earlier merges, reverts and edits, and who they are by.

use super::*;
use domain::Timestamp;
use domain::workspace::Conflict;

mod hooks;
mod places;
mod signing;

/// A task whose agent has added a file, in a source whose branch has gone on.
struct Task {
    bed: Bed,
    prepared: Prepared,
    tree: PathBuf,
}

impl Task {
    async fn new() -> Self {
        let bed = Bed::new();
        let (prepared, tree) = bed.prepare("one").await;
        bed.commit(&tree, "work.txt", "work\n");
        let task = Self { bed, prepared, tree };
        task.keep().await;
        task.of_person("other.txt", "other\n");
        task
    }

    async fn keep(&self) {
        self.bed.keep("one", &self.prepared).await;
    }

    /// Commits a file in the source.
    fn of_person(&self, name: &str, content: &str) {
        self.bed.commit(&self.bed.source(), name, content);
    }

    async fn of_agent(&self, name: &str, content: &str) {
        self.bed.commit(&self.tree, name, content);
        self.keep().await;
    }

    fn git(&self, arguments: &[&str]) -> String {
        self.bed.git(&self.bed.source(), arguments)
    }

    fn head(&self) -> String {
        self.git(&["rev-parse", "HEAD"])
    }

    fn has(&self, name: &str) -> bool {
        self.bed.source().join(name).exists()
    }

    fn order(&self, style: MergeStyle, repeat: Repeat) -> MergeOrder {
        MergeOrder { style, repeat, ..self.bed.merge_order("one", &self.prepared) }
    }

    async fn merge(&self, style: MergeStyle, repeat: Repeat) -> Merged {
        self.bed.checkouts.results.merge(&self.order(style, repeat)).await.unwrap()
    }

    /// Merges what is to be merged, and returns the new commit.
    async fn merged(&self, style: MergeStyle, repeat: Repeat) -> String {
        match self.merge(style, repeat).await {
            Merged::Into { commit, .. } => commit,
            other => panic!("{style:?} {repeat:?}: {other:?}"),
        }
    }

    /// Returns the commit that undoes a merge into the branch.
    async fn revert_of(&self, merge: &str) -> Option<String> {
        let order = self.order(MergeStyle::Merge, Repeat::Once);
        let MergeOrder { id, project, branch, source, base_ref, .. } = order;
        let order = RevertOrder { id, project, branch, source, base_ref, merge: merge.to_owned() };
        let found = self.bed.checkouts.results.revert_of(&order).await.unwrap()?;
        assert_eq!(found.branch, self.git(&["branch", "--show-current"]));
        Some(found.by)
    }

    /// Checks that a merge changes nothing, because the branch has the result.
    async fn changes_nothing(&self, style: MergeStyle, repeat: Repeat) {
        let before = self.head();
        let merged = self.merge(style, repeat).await;
        assert!(matches!(merged, Merged::Already { .. }), "{style:?} {repeat:?}: {merged:?}");
        assert_eq!(self.head(), before);
    }
}

const STYLES: [MergeStyle; 3] = [MergeStyle::Merge, MergeStyle::Squash, MergeStyle::Rebase];

#[tokio::test]
async fn a_repeated_merge_changes_nothing_also_after_an_edit_of_the_same_lines() {
    for style in STYLES {
        let task = Task::new().await;
        task.merged(style, Repeat::Once).await;
        task.changes_nothing(style, Repeat::Once).await;
        task.of_person("work.txt", "edited\n");
        for again in STYLES {
            task.changes_nothing(again, Repeat::Once).await;
        }
        assert_eq!(task.bed.read("work.txt"), "edited\n");
    }
}

#[tokio::test]
async fn a_merge_that_changes_nothing_names_the_earlier_one() {
    for style in STYLES {
        let task = Task::new().await;
        let merge = task.merged(style, Repeat::Once).await;
        task.of_person("later.txt", "later\n");
        let again = task.merge(style, Repeat::Once).await;
        let branch = task.git(&["branch", "--show-current"]);
        let commit = task.head();
        assert_ne!(commit, merge);
        assert_eq!(again, Merged::Already { branch, commit, merge: Some(merge) }, "{style:?}");
    }
}

#[tokio::test]
async fn the_changes_of_a_result_are_without_those_that_it_merged_from_the_branch() {
    for style in STYLES {
        let task = Task::new().await;
        task.of_person("work.txt", "of a person\n");
        let merged = task.merge(style, Repeat::Once).await;
        assert!(matches!(merged, Merged::Conflict { .. }), "{merged:?}");
        let source = task.bed.source();
        let pull = ["pull", "--quiet", "--no-rebase", "--no-edit", "--strategy-option=ours"];
        let pull: Vec<&str> = pull.into_iter().chain([source.to_str().unwrap(), "main"]).collect();
        task.bed.git(&task.tree, &pull);
        let shown = async || {
            let kept = task.bed.keep("one", &task.prepared).await;
            let keep = Bed::keep_order("one", &task.prepared);
            let order = DiffOrder { keep, is_in_use: false, result: None, of: DiffKind::Stat };
            let diff =
                String::from_utf8(task.bed.checkouts.results.diff(&order).await.unwrap()).unwrap();
            ((kept.n_commits, kept.n_files, kept.n_additions, kept.n_deletions), diff)
        };
        let (counted, diff) = shown().await;
        assert_eq!(counted, (2, 1, 1, 1), "{style:?}");
        assert!(diff.contains("work.txt") && !diff.contains("other.txt"), "{style:?}: {diff}");
        // It is the same after the merge, also with a later one into the branch.
        task.merged(style, Repeat::Once).await;
        task.of_person("later.txt", "later\n");
        task.changes_nothing(style, Repeat::Once).await;
        assert_eq!(shown().await, (counted, diff), "{style:?}");
    }
}

#[tokio::test]
async fn the_diff_after_a_merge_by_hand_has_all_changes_until_there_are_newer_ones() {
    let task = Task::new().await;
    let clone = task.tree.to_str().unwrap();
    task.git(&["pull", "--quiet", "--no-rebase", "--no-edit", clone, "HEAD"]);
    let merged = task.bed.head(&task.tree);
    task.changes_nothing(MergeStyle::Merge, Repeat::Once).await;
    let shown = async |of| {
        let keep = Bed::keep_order("one", &task.prepared);
        let order = DiffOrder { keep, is_in_use: false, result: None, of };
        String::from_utf8(task.bed.checkouts.results.diff(&order).await.unwrap()).unwrap()
    };
    let all = shown(DiffKind::Committed).await;
    assert!(all.starts_with("diff --git a/work.txt "), "{all}");
    task.of_agent("more.txt", "more\n").await;
    let base = task.prepared.base_commit.clone().unwrap();
    let told = format!(
        "Changes since {merged}, which the project's branch has. The work began at {base}.\n"
    );
    for of in [DiffKind::Committed, DiffKind::Stat] {
        let newer = shown(of).await;
        assert!(newer.starts_with(&told) && newer.contains("more.txt"), "{newer}");
        assert!(!newer.contains("work.txt"), "{newer}");
    }
    // Git applies the text as it is.
    let patch = task.bed.folder.path().join("newer.patch");
    std::fs::write(&patch, shown(DiffKind::Committed).await).unwrap();
    task.git(&["apply", patch.to_str().unwrap()]);
    assert!(task.has("more.txt"));
}

#[tokio::test]
async fn newer_commits_fit_to_an_earlier_squash_of_the_same_lines() {
    for first in [MergeStyle::Squash, MergeStyle::Rebase] {
        for second in STYLES {
            let task = Task::new().await;
            task.merged(first, Repeat::Once).await;
            task.of_agent("work.txt", "better\n").await;
            let merged = task.merged(second, Repeat::Once).await;
            assert_eq!(task.bed.read("work.txt"), "better\n", "{first:?} {second:?}");
            let n_parents = task.git(&["show", "--no-patch", "--format=%p", &merged]);
            let expected = if second == MergeStyle::Merge { 2 } else { 1 };
            assert_eq!(n_parents.split(' ').count(), expected, "{first:?} {second:?}");
            task.changes_nothing(second, Repeat::Once).await;
        }
    }
}

#[tokio::test]
async fn a_squash_or_a_replay_that_was_reverted_is_made_again() {
    for style in [MergeStyle::Squash, MergeStyle::Rebase] {
        let task = Task::new().await;
        task.of_agent("more.txt", "more\n").await;
        task.merged(style, Repeat::Once).await;
        // One of the replayed commits is enough.
        task.git(&["revert", "--no-edit", "HEAD"]);
        assert!(!task.has("more.txt"));
        task.merged(style, Repeat::Once).await;
        assert!(task.has("more.txt") && task.has("work.txt"), "{style:?}");
        task.changes_nothing(style, Repeat::Once).await;
    }
}

#[tokio::test]
async fn a_plain_merge_that_was_reverted_is_merged_as_a_person_says() {
    let task = Task::new().await;
    let merge = task.merged(MergeStyle::Merge, Repeat::Once).await;
    task.git(&["revert", "--no-edit", "--mainline", "1", &merge]);
    let revert = task.head();
    let asked = Merged::Reverted { branch: "main".to_owned(), merge, revert: revert.clone() };
    assert_eq!(task.merge(MergeStyle::Merge, Repeat::Once).await, asked);
    assert_eq!(task.head(), revert);
    task.changes_nothing(MergeStyle::Merge, Repeat::OnlyNew).await;
    let again = task.merged(MergeStyle::Merge, Repeat::Again).await;
    assert!(task.has("work.txt"));
    let parents = task.git(&["show", "--no-patch", "--format=%P", &again]);
    assert_eq!(parents, revert);
    for style in STYLES {
        task.changes_nothing(style, Repeat::Once).await;
        task.changes_nothing(style, Repeat::Again).await;
    }
}

#[tokio::test]
async fn a_repair_after_a_revert_is_merged_alone_or_with_all_before() {
    for repeat in [Repeat::OnlyNew, Repeat::Again] {
        let task = Task::new().await;
        let merge = task.merged(MergeStyle::Merge, Repeat::Once).await;
        task.git(&["revert", "--no-edit", "--mainline", "1", &merge]);
        task.of_agent("repair.txt", "repair\n").await;
        let merged = task.merge(MergeStyle::Merge, Repeat::Once).await;
        assert!(matches!(merged, Merged::Reverted { .. }), "{merged:?}");
        task.merged(MergeStyle::Merge, repeat).await;
        assert!(task.has("repair.txt"));
        assert_eq!(task.has("work.txt"), repeat == Repeat::Again);
        // It is not asked about that revert any more.
        task.changes_nothing(MergeStyle::Merge, Repeat::Once).await;
        task.of_agent("more.txt", "more\n").await;
        task.merged(MergeStyle::Merge, Repeat::Once).await;
        assert_eq!(task.has("work.txt"), repeat == Repeat::Again);
    }
}

#[tokio::test]
async fn a_revert_counts_until_it_is_reverted_and_not_if_the_agent_knew_of_it() {
    let task = Task::new().await;
    let merge = task.merged(MergeStyle::Merge, Repeat::Once).await;
    task.git(&["revert", "--no-edit", "--mainline", "1", &merge]);
    task.git(&["revert", "--no-edit", "HEAD"]);
    task.changes_nothing(MergeStyle::Merge, Repeat::Once).await;
    // A commit of the result itself came by a fast-forward.
    let task = Task::new().await;
    task.git(&["reset", "--quiet", "--hard", "HEAD^"]);
    let commit = task.merged(MergeStyle::Merge, Repeat::Once).await;
    task.git(&["revert", "--no-edit", &commit]);
    let merged = task.merge(MergeStyle::Merge, Repeat::Once).await;
    assert!(matches!(merged, Merged::Reverted { .. }), "{merged:?}");
    let source = task.bed.source();
    task.bed.git(&task.tree, &["pull", "--quiet", source.to_str().unwrap(), "main"]);
    task.of_agent("work.txt", "better\n").await;
    task.merged(MergeStyle::Merge, Repeat::Once).await;
    assert_eq!(task.bed.read("work.txt"), "better\n");
}

#[tokio::test]
async fn a_revert_that_git_does_not_name_is_undone_on_request() {
    for style in STYLES {
        let task = Task::new().await;
        task.merged(style, Repeat::Once).await;
        task.git(&["rm", "--quiet", "work.txt"]);
        task.git(&["commit", "--quiet", "-m", "No, thank you"]);
        task.changes_nothing(style, Repeat::Once).await;
        task.merged(style, Repeat::Again).await;
        assert!(task.has("work.txt"), "{style:?}");
    }
}

#[tokio::test]
async fn a_merge_is_by_the_identity_of_the_repository() {
    let format = "--format=%an <%ae>|%cn <%ce>|%B";
    for style in STYLES {
        let task = Task::new().await;
        let robo = ["-c", "user.name=Robo", "-c", "user.email=robo@example.com"];
        std::fs::write(task.tree.join("more.txt"), "more\n").unwrap();
        task.bed.git(&task.tree, &["add", "more.txt"]);
        let author =
            ["commit", "--quiet", "--author=Robo <robo@example.com>", "-m", "cart: add it"];
        task.bed.git(&task.tree, &[&robo[..], &author].concat());
        task.keep().await;
        task.git(&["config", "user.name", "Bo Example"]);
        task.git(&["config", "user.email", "bo@example.org"]);
        let mut order = task.order(style, Repeat::Once);
        order.message.summary = Some("All done.\nSigned-off-by: Bo <bo@example.org>".to_owned());
        let merged = task.bed.checkouts.results.merge(&order).await.unwrap();
        assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
        let said = task.git(&["show", "--no-patch", format, "HEAD"]);
        let own = "Bo Example <bo@example.org>";
        if style == MergeStyle::Rebase {
            assert_eq!(said, format!("Robo <robo@example.com>|{own}|cart: add it"));
            continue;
        }
        let begin = format!("{own}|{own}|Merge SHOP-1: it\n\nAll done.\n    Signed-off-by: Bo");
        assert!(said.starts_with(&begin), "{said}");
        let subjects = said.contains("* work.txt\n* cart: add it\n");
        assert_eq!(subjects, style == MergeStyle::Squash, "{said}");
        let trailers = task.git(&["show", "--no-patch", "--format=%(trailers)", "HEAD"]);
        assert_eq!(
            trailers,
            "Task: SHOP-1\nMerged-by: Ann\nCo-authored-by: Robo <robo@example.com>"
        );
    }
    // Without an identity, it is by the person who merges.
    let task = Task::new().await;
    task.git(&["config", "user.name", ""]);
    task.merged(MergeStyle::Merge, Repeat::Once).await;
    let said = task.git(&["show", "--no-patch", format, "HEAD"]);
    let begin = "Ann <Ann@agent-coordinator.invalid>|agent-coordinator <daemon@";
    assert!(said.starts_with(begin) && !said.contains("Merged-by"), "{said}");
}

#[tokio::test]
async fn what_people_did_since_the_agent_merged_their_branch_stays() {
    for (style, repeat) in [
        (MergeStyle::Squash, Repeat::Once),
        (MergeStyle::Rebase, Repeat::Again),
        (MergeStyle::Merge, Repeat::Again),
    ] {
        let task = Task::new().await;
        let source = task.bed.source();
        let pull = ["pull", "--quiet", "--rebase", source.to_str().unwrap(), "main"];
        task.bed.git(&task.tree, &pull);
        task.keep().await;
        task.merged(MergeStyle::Squash, Repeat::Once).await;
        task.git(&["revert", "--no-edit", "HEAD"]);
        task.git(&["rm", "--quiet", "other.txt"]);
        task.git(&["commit", "--quiet", "-m", "not this one"]);
        task.merged(style, repeat).await;
        assert!(task.has("work.txt") && !task.has("other.txt"), "{style:?} {repeat:?}");
    }
}

#[tokio::test]
async fn only_the_newer_commits_follow_a_reverted_squash_on_request() {
    for style in STYLES {
        let task = Task::new().await;
        task.merged(MergeStyle::Squash, Repeat::Once).await;
        task.git(&["revert", "--no-edit", "HEAD"]);
        task.of_agent("repair.txt", "repair\n").await;
        if style == MergeStyle::Merge {
            let merged = task.merge(style, Repeat::Once).await;
            assert!(matches!(merged, Merged::Reverted { .. }), "{merged:?}");
        }
        task.merged(style, Repeat::OnlyNew).await;
        assert!(task.has("repair.txt") && !task.has("work.txt"), "{style:?}");
    }
}

#[tokio::test]
async fn a_merge_by_an_earlier_version_counts() {
    let task = Task::new().await;
    let merge = task.merged(MergeStyle::Merge, Repeat::Once).await;
    let notes = task.bed.keep_repository().join("refs/agent-coordinator/merged");
    std::fs::remove_dir_all(notes).unwrap();
    task.git(&["revert", "--no-edit", "--mainline", "1", &merge]);
    let order = MergeOrder { merged: Some(merge), ..task.order(MergeStyle::Merge, Repeat::Once) };
    let merged = task.bed.checkouts.results.merge(&order).await.unwrap();
    assert!(matches!(merged, Merged::Reverted { .. }), "{merged:?}");
}

#[tokio::test]
async fn no_program_of_the_repository_looks_at_the_signature_of_a_revert() {
    let task = Task::new().await;
    let merge = task.merged(MergeStyle::Squash, Repeat::Once).await;
    task.git(&["revert", "--no-edit", &merge]);
    let folder = task.bed.folder.path();
    let signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n";
    let raw =
        task.git(&["cat-file", "commit", "HEAD"]).replacen("\n\n", &format!("\n{signature}"), 1);
    std::fs::write(folder.join("signed"), raw + "\n").unwrap();
    let signed = folder.join("signed");
    let revert = task.git(&["hash-object", "-t", "commit", "-w", signed.to_str().unwrap()]);
    task.git(&["update-ref", "refs/heads/main", &revert]);
    let program = folder.join("program");
    let ran = folder.join("ran");
    std::fs::write(&program, format!("#!/bin/sh\necho >{}\n", ran.display())).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    task.git(&["config", "gpg.program", program.to_str().unwrap()]);
    task.git(&["config", "log.showSignature", "true"]);
    let found = task.revert_of(&merge).await;
    assert!(!ran.exists());
    assert_eq!(found, Some(revert));
    // The trap works.
    task.git(&["log", "-1"]);
    assert!(ran.exists());
}

#[tokio::test]
async fn the_revert_of_any_commit_that_a_merge_brought_is_found() {
    for (style, of_agent) in [(MergeStyle::Rebase, "^"), (MergeStyle::Merge, "^2")] {
        let task = Task::new().await;
        let of_person = task.head();
        task.of_agent("more.txt", "more\n").await;
        let merge = task.merged(style, Repeat::Once).await;
        task.git(&["revert", "--no-edit", &of_person]);
        assert_eq!(task.revert_of(&merge).await, None, "{style:?}");
        task.git(&["revert", "--no-edit", &format!("{merge}{of_agent}")]);
        let revert = task.head();
        task.of_person("later.txt", "later\n");
        assert_eq!(task.revert_of(&merge).await, Some(revert), "{style:?}");
    }
}

#[tokio::test]
async fn a_revert_is_looked_for_on_the_branch_that_got_the_result() {
    for style in STYLES {
        let task = Task::new().await;
        task.git(&["checkout", "--quiet", "-b", "release"]);
        let order = task.order(style, Repeat::Once);
        let order = MergeOrder { into: Some("release".to_owned()), ..order };
        let merged = task.bed.checkouts.results.merge(&order).await.unwrap();
        let Merged::Into { commit, .. } = merged else { panic!("{style:?}: {merged:?}") };
        assert_eq!(task.revert_of(&commit).await, None, "{style:?}");
        let mainline = ["revert", "--no-edit", "--mainline", "1", &commit];
        let plain = ["revert", "--no-edit", &commit];
        task.git(if style == MergeStyle::Merge { &mainline[..] } else { &plain[..] });
        assert_eq!(task.revert_of(&commit).await, Some(task.head()), "{style:?}");
    }
}

#[tokio::test]
async fn a_squash_with_more_has_the_result_and_an_unchanged_task_brings_nothing() {
    let task = Task::new().await;
    std::fs::write(task.tree.join("left.txt"), "left\n").unwrap();
    task.keep().await;
    let order = task.order(MergeStyle::Squash, Repeat::Once);
    let order = MergeOrder { with_uncommitted: true, ..order };
    let merged = task.bed.checkouts.results.merge(&order).await.unwrap();
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
    task.of_person("work.txt", "edited\n");
    task.changes_nothing(MergeStyle::Squash, Repeat::Once).await;
    // The branch went back to before the commit at which an idle agent began.
    let bed = Bed::new();
    bed.commit(&bed.source(), "bad.txt", "bad\n");
    let (one, _) = bed.prepare("one").await;
    assert!(bed.keep("one", &one).await.is_unchanged());
    bed.git(&bed.source(), &["reset", "--quiet", "--hard", "HEAD^"]);
    let order = MergeOrder { work: WorkKind::Nothing, ..bed.merge_order("one", &one) };
    let merged = bed.checkouts.results.merge(&order).await.unwrap();
    assert!(matches!(merged, Merged::Unchanged { .. }), "{merged:?}");
    assert!(!bed.source().join("bad.txt").exists());
}

#[tokio::test]
async fn files_in_no_commit_do_not_hide_that_the_branch_had_the_result() {
    for style in STYLES {
        let task = Task::new().await;
        std::fs::write(task.tree.join("left.txt"), "left\n").unwrap();
        task.keep().await;
        task.merged(style, Repeat::Once).await;
        task.changes_nothing(style, Repeat::Once).await;
    }
    // A person merged by hand.
    let task = Task::new().await;
    std::fs::write(task.tree.join("left.txt"), "left\n").unwrap();
    task.keep().await;
    let clone = task.tree.to_str().unwrap();
    task.git(&["pull", "--quiet", "--no-rebase", "--no-edit", clone, "HEAD"]);
    task.changes_nothing(MergeStyle::Merge, Repeat::Once).await;
    // `--again` asks for all changes, and the file has some of them.
    let again = task.merge(MergeStyle::Squash, Repeat::Again).await;
    assert!(matches!(again, Merged::Nothing), "{again:?}");
}

#[tokio::test]
async fn newer_commits_follow_the_squash_into_a_repository_without_commits() {
    let bed = Bed::new();
    let source = bed.source();
    std::fs::remove_dir_all(source.join(".git")).unwrap();
    bed.git(&source, &["init", "--quiet", "--initial-branch=main"]);
    let (one, tree) = bed.prepare("one").await;
    bed.commit(&tree, "one.txt", "one\n");
    bed.keep("one", &one).await;
    let order = MergeOrder { style: MergeStyle::Squash, ..bed.merge_order("one", &one) };
    for content in ["one\n", "two\n"] {
        if content == "two\n" {
            bed.commit(&tree, "one.txt", content);
            bed.keep("one", &one).await;
        }
        let merged = bed.checkouts.results.merge(&order).await.unwrap();
        assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
        let again = bed.checkouts.results.merge(&order).await.unwrap();
        assert!(matches!(again, Merged::Already { .. }), "{again:?}");
        assert_eq!(bed.read("one.txt"), content);
    }
}

#[tokio::test]
async fn a_lock_of_another_git_is_named_with_its_user_and_its_age() {
    let task = Task::new().await;
    let lock = task.bed.source().join(".git/index.lock");
    std::fs::write(&lock, "").unwrap();
    let before = task.head();
    let order = task.order(MergeStyle::Merge, Repeat::Once);
    let said = task.bed.checkouts.results.merge(&order).await.unwrap_err().to_string();
    assert!(said.contains("index.lock") && said.contains(" ago"), "{said}");
    assert_eq!(task.head(), before);
    std::fs::remove_file(lock).unwrap();
    task.merged(MergeStyle::Merge, Repeat::Once).await;
}

#[tokio::test]
async fn a_branch_that_is_locked_leaves_nothing_of_the_result() {
    for (name, style) in [("refs/heads/main.lock", MergeStyle::Merge), ("HEAD.lock", STYLES[1])] {
        let task = Task::new().await;
        task.of_agent("main.txt", "changed\n").await;
        let lock = task.bed.source().join(".git").join(name);
        std::fs::write(&lock, "").unwrap();
        task.bed.put("mine.txt", "in no commit");
        let before = task.head();
        let order = task.order(style, Repeat::Once);
        let said = task.bed.checkouts.results.merge(&order).await.unwrap_err().to_string();
        assert!(said.contains(name) && !said.contains("still there"), "{said}");
        assert_eq!(task.git(&["status", "--porcelain"]), "?? mine.txt");
        assert_eq!((task.head(), task.has("work.txt")), (before, false));
        std::fs::remove_file(lock).unwrap();
        task.merged(style, Repeat::Once).await;
        assert!(task.has("work.txt") && task.has("mine.txt"));
    }
}

#[tokio::test]
async fn a_conflict_of_a_reverted_result_is_not_one_that_a_merge_of_the_branch_resolves() {
    for (style, repeat) in [(MergeStyle::Merge, Repeat::Again), (MergeStyle::Squash, Repeat::Once)]
    {
        let task = Task::new().await;
        let merge = task.merged(MergeStyle::Merge, Repeat::Once).await;
        task.git(&["revert", "--no-edit", "--mainline", "1", &merge]);
        task.of_person("work.txt", "of a person\n");
        let before = task.head();
        let merged = task.merge(style, repeat).await;
        assert!(matches!(merged, Merged::Conflict { is_again: true, .. }), "{merged:?}");
        assert_eq!(task.head(), before);
    }
}

#[tokio::test]
async fn a_conflict_is_compared_anew_as_it_was_merged_and_only_if_the_branch_moved() {
    let task = Task::new().await;
    std::fs::write(task.tree.join("other.txt"), "in no commit\n").unwrap();
    task.keep().await;
    let order = task.order(MergeStyle::Merge, Repeat::Once);
    let order = MergeOrder { with_uncommitted: true, ..order };
    let (branch, commit, files) = match task.bed.checkouts.results.merge(&order).await.unwrap() {
        Merged::Conflict { branch, commit, files, .. } => (branch, commit, files),
        other => panic!("{other:?}"),
    };
    assert_eq!(files, ["other.txt"]);
    let conflict = Conflict {
        result: Some(task.bed.head(&task.tree)),
        branch,
        commit,
        files,
        at: Timestamp::from_millis(1),
        squash: false,
        rebase: false,
        with_uncommitted: true,
        is_asked: true,
    };
    let keep = Bed::keep_order("one", &task.prepared);
    let order = KeepOrder { conflict: Some(Box::new(conflict.clone())), ..keep };
    let source = task.bed.source();
    let clones = &task.bed.checkouts.clones;
    let anew = async || Box::pin(clones.compare_anew(&order, &source)).await.unwrap();
    assert_eq!(anew().await, Some(conflict.clone()));
    task.of_person("later.txt", "later\n");
    assert_eq!(anew().await, Some(Conflict { commit: task.head(), ..conflict }));
    task.of_person("other.txt", "in no commit\n");
    assert_eq!(anew().await, None);
}
