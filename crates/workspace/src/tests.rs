//! Tests with the real git, on repositories in temporary folders.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use super::repository::Repository;
use super::*;
use domain::WorkspaceId;
use domain::workspace::{
    Content, HookRule, KeepOrder, MergeMessage, MergeStyle, Order, Prepared, RemoveOrder, Repeat,
    Restored, WorkKind,
};

mod base;
mod folder;
mod found;
mod hostile;
mod keeper;
mod keeping;
mod kept;
mod layouts;
mod limits;
mod merging;
mod nested;
mod odd;
mod rights;
mod sources;
mod sparse;
mod submodules;
mod upgrades;

use kept::restored;

/// Runs git in `folder` as a person with this home folder would.
#[track_caller]
pub(super) fn run_git(home: &Path, folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(folder)
        .env("HOME", home)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs([("GIT_AUTHOR_NAME", "Ann"), ("GIT_AUTHOR_EMAIL", "ann@example.invalid")])
        .envs([("GIT_COMMITTER_NAME", "Ann"), ("GIT_COMMITTER_EMAIL", "ann@example.invalid")])
        .output()
        .expect("git is installed");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {message}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A source with one commit, and the workspaces that begin from it.
struct Bed {
    folder: tempfile::TempDir,
    checkouts: Checkouts,
    policy: KeepPolicy,
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let checkouts = Checkouts::new(folder.path().join("workspaces"));
        let policy = KeepPolicy { ignored_max: 1 << 20, rebuildable: vec!["target".to_owned()] };
        let bed = Self { folder, checkouts, policy };
        bed.git(&bed.source(), &["init", "--quiet", "--initial-branch=main"]);
        bed.put("main.txt", "one\ntwo\nthree\nfour\nfive\n");
        bed.put(".gitignore", "*.log\ntarget/\n");
        bed.git(&bed.source(), &["add", "."]);
        bed.git(&bed.source(), &["commit", "--quiet", "-m", "first"]);
        bed
    }

    fn source(&self) -> PathBuf {
        let source = self.folder.path().join("source");
        std::fs::create_dir_all(&source).unwrap();
        source
    }

    fn put(&self, name: &str, content: &str) {
        std::fs::write(self.source().join(name), content).unwrap();
    }

    /// Runs git as a person or an agent would.
    #[track_caller]
    fn git(&self, folder: &Path, arguments: &[&str]) -> String {
        run_git(self.folder.path(), folder, arguments)
    }

    fn order(&self, id: &str) -> Order {
        Order {
            id: id.parse().unwrap(),
            project: "shop".parse().unwrap(),
            branch: format!("agents/{id}"),
            source: self.source(),
            agent: "dev".parse().unwrap(),
            base: None,
            submodules: false,
            lfs: false,
            dependencies: Vec::new(),
            begins_at: None,
            restores: None,
            forge: None,
            run_as: None,
        }
    }

    async fn prepare(&self, id: &str) -> (Prepared, PathBuf) {
        let order = self.order(id);
        let prepared = self.checkouts.clones.prepare(&order).await.unwrap();
        (prepared, self.tree(id))
    }

    fn tree(&self, id: &str) -> PathBuf {
        self.checkouts.places.directory(&"shop".parse().unwrap(), &id.parse().unwrap(), "")
    }

    fn keep_order(id: &str, prepared: &Prepared) -> KeepOrder {
        KeepOrder {
            id: id.parse().unwrap(),
            project: "shop".parse().unwrap(),
            branch: prepared.branch.clone(),
            base_ref: prepared.base_ref.clone(),
            base_commit: prepared.base_commit.clone(),
            agent: "dev".parse().unwrap(),
            launch: None,
            chosen: None,
            dropped: [].into(),
            conflict: None,
        }
    }

    async fn keep(&self, id: &str, prepared: &Prepared) -> Content {
        let order = Self::keep_order(id, prepared);
        self.checkouts.clones.keep(&order, &self.policy).await.unwrap()
    }

    /// Makes a clone again from its kept state.
    async fn prepare_again(
        &self,
        id: &str,
        prepared: &Prepared,
        kept: &Content,
    ) -> Result<Prepared, CheckoutError> {
        let restores = Some(restored(kept, prepared));
        self.checkouts.clones.prepare(&Order { restores, ..self.order(id) }).await
    }

    fn merge_order(&self, id: &str, prepared: &Prepared) -> MergeOrder {
        MergeOrder {
            result: None,
            id: id.parse().unwrap(),
            project: "shop".parse().unwrap(),
            branch: prepared.branch.clone(),
            source: self.source(),
            into: None,
            base_ref: prepared.base_ref.clone(),
            base_commit: prepared.base_commit.clone(),
            style: MergeStyle::Merge,
            repeat: Repeat::Once,
            with_uncommitted: false,
            work: WorkKind::Commits,
            expected_head: None,
            merged: None,
            last: None,
            offers_branch: true,
            hooks: HookRule::default(),
            author: Author::Named("Ann".to_owned()),
            message: MergeMessage {
                task: "SHOP-1".parse().unwrap(),
                title: "it".to_owned(),
                summary: None,
            },
        }
    }

    fn commit(&self, tree: &Path, name: &str, content: &str) {
        std::fs::write(tree.join(name), content).unwrap();
        self.git(tree, &["add", name]);
        self.git(tree, &["commit", "--quiet", "-m", name]);
    }

    fn keep_repository(&self) -> PathBuf {
        self.folder.path().join("workspaces/shop/keep.git")
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.source().join(name)).unwrap()
    }
}

#[tokio::test]
async fn two_tasks_work_apart_and_people_get_both_results() {
    let bed = Bed::new();
    let (one, first) = bed.prepare("one").await;
    let (two, second) = bed.prepare("two").await;
    assert_eq!(one.base_ref.as_deref(), Some("refs/heads/main"));
    assert_eq!(bed.git(&first, &["branch", "--show-current"]), "agents/one");
    bed.commit(&first, "first.txt", "1\n");
    bed.commit(&second, "second.txt", "2\n");
    assert!(!second.join("first.txt").exists() && !bed.source().join("first.txt").exists());
    let kept = bed.keep("one", &one).await;
    let other = bed.keep("two", &two).await;
    let found = (kept.n_commits, kept.n_files, kept.n_additions, kept.n_uncommitted);
    assert_eq!((found, kept.left_out.as_slice()), ((1, 1, 1, 0), [].as_slice()));
    assert!(kept.proof.is_some() && other.proof.is_some());
    let diff = DiffOrder {
        keep: Bed::keep_order("one", &one),
        is_in_use: false,
        result: None,
        of: DiffKind::Committed,
    };
    let diff = String::from_utf8(bed.checkouts.results.diff(&diff).await.unwrap()).unwrap();
    assert!(diff.contains("+++ b/first.txt") && diff.contains("+1"), "{diff}");

    let merged = bed.checkouts.results.merge(&bed.merge_order("one", &one)).await.unwrap();
    let main = "main".to_owned();
    assert_eq!(merged, Merged::Into { branch: main.clone(), commit: kept.head_commit.unwrap() });
    let merged = bed.checkouts.results.merge(&bed.merge_order("two", &two)).await.unwrap();
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
    assert_eq!((bed.read("first.txt"), bed.read("second.txt")), ("1\n".into(), "2\n".into()));
    assert_eq!(bed.git(&bed.source(), &["status", "--porcelain"]), "");
    let again = bed.checkouts.results.merge(&bed.merge_order("two", &two)).await.unwrap();
    assert!(matches!(again, Merged::Already { .. }), "{again:?}");
}

#[tokio::test]
async fn files_in_no_commit_are_not_taken_for_merged() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    std::fs::write(tree.join("open.txt"), "in no commit").unwrap();
    bed.keep("one", &one).await;
    let order = MergeOrder { work: WorkKind::OnlyFiles, ..bed.merge_order("one", &one) };
    assert_eq!(bed.checkouts.results.merge(&order).await.unwrap(), Merged::Nothing);
    let all = MergeOrder { with_uncommitted: true, ..order };
    let merged = bed.checkouts.results.merge(&all).await.unwrap();
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
    assert_eq!(bed.read("open.txt"), "in no commit");
    // The agent commits it later. The earlier state of it is not merged again.
    bed.commit(&tree, "open.txt", "committed");
    let kept = bed.keep("one", &one).await;
    assert_eq!(kept.n_uncommitted, 0);
    let uncommitted = DiffKind::Uncommitted;
    let keep = Bed::keep_order("one", &one);
    let diff = DiffOrder { keep, is_in_use: false, result: None, of: uncommitted };
    assert_eq!(bed.checkouts.results.diff(&diff).await.unwrap(), b"");
}

#[tokio::test]
async fn a_conflict_and_files_in_the_way_change_nothing() {
    let bed = Bed::new();
    let (one, first) = bed.prepare("one").await;
    let (two, second) = bed.prepare("two").await;
    bed.commit(&first, "main.txt", "ONE\ntwo\nthree\nfour\nfive\n");
    bed.commit(&second, "main.txt", "uno\ntwo\nthree\nfour\nfive\n");
    bed.keep("one", &one).await;
    bed.keep("two", &two).await;
    bed.put("main.txt", "a person is at work\n");
    let merged = bed.checkouts.results.merge(&bed.merge_order("one", &one)).await.unwrap();
    let Merged::InTheWay { message, result, .. } = merged else { panic!("{merged:?}") };
    assert!(message.contains("main.txt"), "{message}");
    let branch = result.map(|result| result.branch);
    assert_eq!(branch.as_deref(), Some("agents/one"), "people can merge the branch by hand");
    assert_eq!(bed.read("main.txt"), "a person is at work\n");
    bed.git(&bed.source(), &["checkout", "--quiet", "main.txt"]);
    let merged = bed.checkouts.results.merge(&bed.merge_order("one", &one)).await.unwrap();
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
    let before = bed.git(&bed.source(), &["rev-parse", "HEAD"]);
    let merged = bed.checkouts.results.merge(&bed.merge_order("two", &two)).await.unwrap();
    let main = before.clone();
    let files = vec!["main.txt".to_owned()];
    let Merged::Conflict { branch, commit, files: found, result, .. } = merged else {
        panic!("{merged:?}")
    };
    assert_eq!((branch.as_str(), commit, found), ("main", main, files));
    assert_eq!(result.map(|result| result.branch).as_deref(), Some("agents/two"));
    assert_eq!(bed.git(&bed.source(), &["rev-parse", "HEAD"]), before);
    let stale = MergeOrder { expected_head: Some(before), ..bed.merge_order("two", &two) };
    assert!(matches!(bed.checkouts.results.merge(&stale).await.unwrap(), Merged::Stale { .. }));
}

#[tokio::test]
async fn nothing_of_the_agents_repository_runs() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    bed.commit(&tree, "work.txt", "work\n");
    let mark = bed.folder.path().join("ran");
    let script = tree.join(".git/evil");
    std::fs::write(&script, format!("#!/bin/sh\ntouch {}\ncat\n", mark.display())).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let evil = script.to_str().unwrap();
    std::fs::create_dir_all(tree.join(".git/hooks")).unwrap();
    for hook in ["post-checkout", "pre-commit", "post-index-change", "reference-transaction"] {
        std::fs::copy(&script, tree.join(".git/hooks").join(hook)).unwrap();
    }
    for name in [
        "filter.evil.clean",
        "filter.evil.smudge",
        "diff.evil.textconv",
        "diff.evil.command",
        "core.fsmonitor",
        "core.pager",
        "core.sshCommand",
        "uploadpack.packObjectsHook",
        "gpg.program",
    ] {
        bed.git(&tree, &["config", name, evil]);
    }
    std::fs::write(tree.join(".gitattributes"), "* filter=evil diff=evil\n").unwrap();
    std::fs::write(tree.join("more.txt"), "more\n").unwrap();
    bed.keep("one", &one).await;
    let diff = DiffOrder {
        keep: Bed::keep_order("one", &one),
        result: None,
        is_in_use: true,
        of: DiffKind::Uncommitted,
    };
    bed.checkouts.results.diff(&diff).await.unwrap();
    bed.checkouts.results.merge(&bed.merge_order("one", &one)).await.unwrap();
    assert!(!mark.exists());
    assert_eq!(bed.read("work.txt"), "work\n");
}

#[tokio::test]
async fn sources_of_all_kinds_give_a_workspace() {
    let bed = Bed::new();
    // A folder below the top.
    std::fs::create_dir_all(bed.source().join("shop/web")).unwrap();
    bed.put("shop/web/page.txt", "page\n");
    bed.git(&bed.source(), &["add", "."]);
    bed.git(&bed.source(), &["commit", "--quiet", "-m", "page"]);
    let order = Order { source: bed.source().join("shop/web"), ..bed.order("below") };
    let prepared = bed.checkouts.clones.prepare(&order).await.unwrap();
    assert_eq!(prepared.subdirectory, "shop/web");
    // A HEAD that names a commit.
    bed.git(&bed.source(), &["checkout", "--quiet", "--detach", "HEAD~1"]);
    let (prepared, tree) = bed.prepare("detached").await;
    assert_eq!((prepared.base_ref, tree.join("shop").exists()), (None, false));
    // Histories that are cut.
    let copies = [("shallow", vec!["--depth=1"]), ("bare", vec!["--bare"])];
    for (name, options) in copies {
        let copy = bed.folder.path().join(name);
        let from = format!("file://{}", bed.source().display());
        let mut clone = vec!["clone", "--quiet"];
        clone.extend(options);
        clone.extend([from.as_str(), copy.to_str().unwrap()]);
        bed.git(bed.folder.path(), &clone);
        let project = name.parse().unwrap();
        let order = Order { source: copy, project, ..bed.order(name) };
        bed.checkouts.clones.prepare(&order).await.unwrap();
        let tree = bed.checkouts.places.directory(&order.project, &order.id, "");
        assert!(tree.join("main.txt").exists(), "{name}");
    }
    // No commit yet.
    let empty = bed.folder.path().join("empty");
    std::fs::create_dir_all(&empty).unwrap();
    bed.git(&empty, &["init", "--quiet", "--initial-branch=trunk"]);
    let project: ProjectId = "empty".parse().unwrap();
    let order = Order { source: empty, project: project.clone(), ..bed.order("unborn") };
    let prepared = bed.checkouts.clones.prepare(&order).await.unwrap();
    assert_eq!(prepared.base_commit, None);
    let tree = bed.checkouts.places.directory(&project, &order.id, "");
    bed.commit(&tree, "first.txt", "first\n");
    let keep = KeepOrder { project, ..Bed::keep_order("unborn", &prepared) };
    let kept = bed.checkouts.clones.keep(&keep, &bed.policy).await.unwrap();
    assert!(kept.head_commit.is_some() && kept.proof.is_some());
    assert_eq!((kept.n_commits, kept.n_files), (1, 1), "all commits are those of the work");
    // Its branch, which has no commit yet, gets the result.
    for style in [MergeStyle::Merge, MergeStyle::Squash] {
        let source = order.source.clone();
        let merge = bed.merge_order("unborn", &prepared);
        let merge = MergeOrder { project: order.project.clone(), source, style, ..merge };
        let merged = bed.checkouts.results.merge(&merge).await.unwrap();
        assert!(matches!(&merged, Merged::Into { branch, .. } if branch == "trunk"), "{merged:?}");
        assert_eq!(bed.git(&order.source, &["log", "--format=%P"]), "", "the first commit");
        assert_eq!(std::fs::read_to_string(order.source.join("first.txt")).unwrap(), "first\n");
        let again = bed.checkouts.results.merge(&merge).await.unwrap();
        assert!(matches!(again, Merged::Already { .. }), "{again:?}");
        bed.git(&order.source, &["update-ref", "-d", "HEAD"]);
        bed.git(&order.source, &["read-tree", "--empty"]);
        std::fs::remove_file(order.source.join("first.txt")).unwrap();
    }
    // No repository, and no folder.
    for (source, expected) in [
        (bed.folder.path().to_owned(), "is in no git repository"),
        (bed.folder.path().join("nowhere"), "does not exist"),
        (bed.source().join(".git"), "inside the `.git` folder"),
    ] {
        let order = Order { source, project: "none".parse().unwrap(), ..bed.order("none") };
        let refused = bed.checkouts.clones.prepare(&order).await.unwrap_err();
        assert!(refused.to_string().contains(expected), "{refused}");
    }
}

#[tokio::test]
async fn a_branch_of_a_person_is_not_taken_over() {
    let bed = Bed::new();
    bed.git(&bed.source(), &["branch", "agents/one"]);
    bed.git(&bed.source(), &["checkout", "--quiet", "agents/one"]);
    bed.commit(&bed.source(), "own.txt", "a person's\n");
    bed.git(&bed.source(), &["checkout", "--quiet", "main"]);
    let (prepared, _) = bed.prepare("one").await;
    assert_eq!(prepared.branch, "agents/one-2");
}

#[tokio::test]
async fn a_push_into_the_keep_repository_is_refused() {
    let bed = Bed::new();
    let (_, tree) = bed.prepare("one").await;
    let keep = bed.keep_repository();
    let pushed = Command::new("git")
        .args(["push", "--mirror"])
        .arg(&keep)
        .current_dir(&tree)
        .env("HOME", bed.folder.path())
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&pushed.stderr);
    assert!(!pushed.status.success() && message.contains("agent-coordinator"), "{message}");
}
