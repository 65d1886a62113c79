//! Snapshots with the real git, of repositories that agents then destroy.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::tests::run_git;
use crate::{Checkouts, find_shared_tree};
use domain::{InstanceKey, Purpose};

/// A git repository of a person, and the snapshots of it.
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
        std::fs::create_dir(bed.top()).unwrap();
        bed.git(&["init", "--quiet", "--initial-branch=main"]);
        bed.put(".gitignore", "*.log\ntarget/\n");
        bed.commit("main.txt", "first\n");
        bed
    }

    fn top(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("source")
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.top().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn commit(&self, name: &str, content: &str) {
        self.put(name, content);
        self.git(&["add", "."]);
        self.git(&["commit", "--quiet", "-m", name]);
    }

    /// Runs git in the repository as a person or an agent would.
    #[track_caller]
    fn git(&self, arguments: &[&str]) -> String {
        self.git_in(&self.top(), arguments)
    }

    #[track_caller]
    fn git_in(&self, folder: &Path, arguments: &[&str]) -> String {
        run_git(self.folder.path(), folder, arguments)
    }

    fn order(&self, cause: SnapshotCause) -> SnapshotOrder {
        let (project, agent) = ("shop".parse().unwrap(), "dev".parse().unwrap());
        SnapshotOrder { project, agent, work_tree: self.top(), cause }
    }

    /// Takes a snapshot after the launch `id`, and returns its commit.
    async fn snapshot(&self, id: &str) -> Snapped {
        let order = self.order(SnapshotCause::End(id.parse().unwrap()));
        self.checkouts.snapshots.snapshot(&order, &self.policy).await.unwrap()
    }

    fn keep(&self) -> PathBuf {
        self.folder.path().join("workspaces/shop/keep.git")
    }

    /// Returns all objects that snapshots reach.
    fn reached(&self) -> BTreeSet<String> {
        let listed =
            self.git_in(&self.keep(), &["rev-list", "--objects", "--no-object-names", "--all"]);
        listed.lines().map(str::to_owned).collect()
    }
}

#[tokio::test]
async fn all_content_of_a_person_outlives_what_an_agent_does() {
    let bed = Bed::new();
    bed.git(&["checkout", "--quiet", "-b", "feature"]);
    bed.commit("feature.txt", "of a branch\n");
    bed.git(&["tag", "-a", "v1", "-m", "the first version"]);
    bed.commit("feature.txt", "amended away\n");
    bed.git(&["commit", "--quiet", "--amend", "-m", "another text"]);
    bed.git(&["checkout", "--quiet", "main"]);
    bed.put("main.txt", "stashed\n");
    bed.put("new.txt", "stashed, too\n");
    bed.git(&["stash", "push", "--quiet", "--include-untracked"]);
    bed.put("main.txt", "staged\n");
    bed.git(&["add", "main.txt"]);
    bed.put("main.txt", "uncommitted\n");
    bed.put("a b/untracked.txt", "untracked\n");
    bed.put("secret.log", "ignored\n");
    bed.put("target/built", "can be built again\n");
    bed.put("crlf.txt", "one\r\ntwo\r\n");
    bed.put(".gitattributes", "* text=auto\n");
    bed.put("run.sh", "#!/bin/sh\n");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(bed.top().join("run.sh"), mode).unwrap();
    std::os::unix::fs::symlink("main.txt", bed.top().join("link")).unwrap();
    let objects: Vec<String> = bed
        .git(&["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"])
        .lines()
        .map(str::to_owned)
        .collect();
    let key = InstanceKey::new("dev".parse().unwrap(), "shop".parse().unwrap(), Purpose::Task);
    let before = bed.order(SnapshotCause::Start(key));
    let taken = bed.checkouts.snapshots.snapshot(&before, &bed.policy).await.unwrap();
    assert_eq!(taken.left_out, Vec::<String>::new());
    let project = "shop".parse().unwrap();
    let launch = "lch_1".parse().unwrap();
    for _ in 0..2 {
        bed.checkouts.snapshots.name_snapshot(&project, &taken.commit, &launch).await.unwrap();
    }

    bed.git(&["stash", "clear"]);
    bed.git(&["reset", "--quiet", "--hard"]);
    bed.git(&["clean", "-fdxq"]);
    bed.git(&["branch", "-D", "feature"]);
    bed.git(&["tag", "-d", "v1"]);
    bed.git(&["reflog", "expire", "--expire=now", "--all"]);
    bed.git(&["gc", "--quiet", "--prune=now"]);
    bed.snapshot("lch_1").await;

    let reached = bed.reached();
    let lost: Vec<&String> = objects.iter().filter(|id| !reached.contains(*id)).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert_eq!(bed.git_in(&bed.keep(), &["fsck", "--no-dangling"]), "");
    let listed = bed.checkouts.snapshots.snapshots(&project).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|entry| (entry.launch.as_str(), entry.moment)).collect();
    assert!(listed.contains(&("lch_1", Moment::Before)), "{listed:?}");
    assert!(listed.contains(&("lch_1", Moment::After)), "{listed:?}");

    let to = bed.folder.path().join("restored");
    bed.checkouts.snapshots.restore_snapshot(&project, &launch, Moment::Before, &to).await.unwrap();
    let read = |name: &str| std::fs::read_to_string(to.join(name)).unwrap_or_default();
    assert_eq!(read("main.txt"), "uncommitted\n");
    assert_eq!(read("a b/untracked.txt"), "untracked\n");
    assert_eq!(read("secret.log"), "ignored\n");
    assert_eq!(read("crlf.txt"), "one\r\ntwo\r\n");
    assert!(!to.join("target").exists());
    assert_eq!(std::fs::read_link(to.join("link")).unwrap(), Path::new("main.txt"));
    assert_eq!(std::fs::metadata(to.join("run.sh")).unwrap().permissions().mode() & 0o111, 0o111);
    let again =
        bed.checkouts.snapshots.restore_snapshot(&project, &launch, Moment::Before, &to).await;
    assert!(again.unwrap_err().to_string().contains("is not a new or an empty folder"));
    let staged = bed.git_in(&bed.keep(), &["show", &format!("{}:git/staged", taken.commit)]);
    assert!(staged.ends_with("M main.txt"), "{staged}");
}

#[tokio::test]
async fn nothing_of_the_repository_runs_and_nothing_in_it_changes() {
    let bed = Bed::new();
    let mark = bed.folder.path().join("ran");
    let command = format!("sh -c 'echo ran >>{}; cat'", mark.display());
    bed.git(&["config", "filter.evil.clean", &command]);
    bed.git(&["config", "filter.evil.smudge", &command]);
    bed.git(&["config", "core.fsmonitor", &command]);
    bed.git(&["config", "core.hooksPath", "hooks"]);
    bed.put(".gitattributes", "* filter=evil diff=evil\n");
    bed.put("main.txt", "changed\n");
    let hook = format!("#!/bin/sh\necho ran >>{}\n", mark.display());
    for name in ["reference-transaction", "post-index-change", "pre-auto-gc", "post-commit"] {
        for folder in ["hooks", ".git/hooks"] {
            bed.put(&format!("{folder}/{name}"), &hook);
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(bed.top().join(folder).join(name), mode).unwrap();
        }
    }
    let digest = || super::super::walk::walk(&bed.top()).unwrap().digest;
    let before = digest();
    let taken = bed.snapshot("lch_1").await;
    assert_eq!(taken.left_out, Vec::<String>::new());
    assert_eq!(digest(), before, "the repository is as it was");
    assert!(!mark.exists(), "{}", std::fs::read_to_string(&mark).unwrap_or_default());
    let kept = bed.git_in(&bed.keep(), &["show", &format!("{}:worktree/main.txt", taken.commit)]);
    assert_eq!(kept, "changed");
}

#[tokio::test]
async fn odd_repositories_have_snapshots_of_all_that_can_be_read() {
    // Content that no snapshot has.
    let bed = Bed::new();
    let inner = bed.top().join("inner");
    std::fs::create_dir(&inner).unwrap();
    bed.git_in(&inner, &["init", "--quiet"]);
    bed.put("inner/file", "of another repository\n");
    let socket = std::os::unix::net::UnixListener::bind(bed.top().join("socket")).unwrap();
    let taken = bed.snapshot("lch_1").await;
    drop(socket);
    std::fs::remove_dir_all(&inner).unwrap();
    let mut left_out = taken.left_out;
    left_out.sort();
    assert_eq!(
        left_out,
        ["inner/.git: it is a repository inside the repository", "socket: it is a socket"]
    );

    // The work tree of another repository, which has a detached HEAD.
    let other = bed.folder.path().join("other");
    bed.git(&["worktree", "add", "--quiet", "--detach", other.to_str().unwrap()]);
    std::fs::write(other.join("main.txt"), "elsewhere\n").unwrap();
    bed.git_in(&other, &["commit", "--quiet", "-am", "detached"]);
    let head = bed.git_in(&other, &["rev-parse", "HEAD"]);
    let order = SnapshotOrder {
        work_tree: other.canonicalize().unwrap(),
        ..bed.order(SnapshotCause::End("lch_2".parse().unwrap()))
    };
    let taken = bed.checkouts.snapshots.snapshot(&order, &bed.policy).await.unwrap();
    assert_eq!(bed.git_in(&bed.keep(), &["rev-parse", &format!("{}^1", taken.commit)]), head);

    // A shallow clone, one without a commit, and one whose objects are gone.
    let source = format!("file://{}", bed.top().display());
    bed.commit("second.txt", "second\n");
    let shallow = bed.folder.path().join("shallow");
    bed.git_in(bed.folder.path(), &["clone", "--quiet", "--depth=1", &source, "shallow"]);
    let unborn = bed.folder.path().join("unborn");
    bed.git_in(bed.folder.path(), &["init", "--quiet", "unborn"]);
    let broken = bed.folder.path().join("broken");
    bed.git_in(bed.folder.path(), &["clone", "--quiet", &source, "broken"]);
    std::fs::remove_dir_all(broken.join(".git/objects/pack")).unwrap();
    for (project, folder) in [("shallow", shallow), ("unborn", unborn), ("broken", broken)] {
        std::fs::write(folder.join("mine.txt"), "mine\n").unwrap();
        let order = SnapshotOrder {
            project: project.parse().unwrap(),
            work_tree: folder.canonicalize().unwrap(),
            ..bed.order(SnapshotCause::End("lch_3".parse().unwrap()))
        };
        let taken = bed.checkouts.snapshots.snapshot(&order, &bed.policy).await.unwrap();
        assert_eq!(
            taken.left_out.is_empty(),
            project != "broken",
            "{project}: {:?}",
            taken.left_out
        );
        let keep = bed.folder.path().join(format!("workspaces/{project}/keep.git"));
        let kept = bed.git_in(&keep, &["show", &format!("{}:worktree/mine.txt", taken.commit)]);
        assert_eq!(kept, "mine", "{project}");
    }
}

#[tokio::test]
async fn a_second_snapshot_takes_only_what_is_new() {
    let bed = Bed::new();
    bed.snapshot("lch_1").await;
    let n_objects = || bed.reached().len();
    let first = n_objects();
    bed.snapshot("lch_2").await;
    assert_eq!(n_objects(), first + 1, "only the commit of the snapshot");
    bed.commit("other.txt", "other\n");
    bed.put("other.txt", "changed\n");
    let taken = bed.snapshot("lch_3").await;
    assert_eq!(taken.left_out, Vec::<String>::new());
    std::fs::remove_dir_all(bed.top()).unwrap();
    assert_eq!(bed.git_in(&bed.keep(), &["fsck", "--no-dangling"]), "");
    let gone = bed.order(SnapshotCause::End("lch_4".parse().unwrap()));
    let gone = bed.checkouts.snapshots.snapshot(&gone, &bed.policy).await;
    assert!(matches!(gone, Err(CheckoutError::Gone(_))), "{gone:?}");
}

#[tokio::test]
async fn what_git_refuses_in_ignored_folders_leaves_the_rest_in_the_snapshot() {
    let bed = Bed::new();
    std::fs::write(bed.top().join(".git/info/exclude"), "mine/\n").unwrap();
    bed.put(".gitignore", "*.log\ntarget/\ndata/\n");
    bed.put("mine/notes.txt", "excluded by the person");
    bed.put("secret.log", "ignored\n");
    bed.put("main.txt", "uncommitted\n");
    bed.put("data/nested/file.txt", "of a repository in an ignored folder");
    bed.git_in(&bed.top().join("data/nested"), &["init", "--quiet"]);
    let policy = KeepPolicy { ignored_max: 10, ..bed.policy.clone() };
    let order = bed.order(SnapshotCause::End("lch_1".parse().unwrap()));
    let taken = bed.checkouts.snapshots.snapshot(&order, &policy).await.unwrap();
    let mut left_out = taken.left_out;
    left_out.sort();
    assert_eq!(left_out.len(), 3, "{left_out:?}");
    assert!(left_out[0].starts_with("data/"), "{left_out:?}");
    assert!(left_out.iter().any(|entry| entry.starts_with("mine/: ignored")), "{left_out:?}");
    let kept = bed.git_in(&bed.keep(), &["ls-tree", "-r", "--name-only", &taken.commit]);
    assert!(kept.contains("main.txt") && kept.contains("secret.log"), "{kept}");
    assert!(!kept.contains("notes.txt"), "{kept}");
}

#[tokio::test]
async fn an_index_that_git_cannot_read_costs_the_staged_files_only() {
    let bed = Bed::new();
    bed.git(&["checkout", "--quiet", "-b", "feature"]);
    bed.commit("feature.txt", "of a branch\n");
    let commit = bed.git(&["rev-parse", "HEAD"]);
    bed.put("staged.txt", "staged\n");
    bed.git(&["add", "staged.txt"]);
    std::fs::write(bed.top().join(".git/index"), "garbage").unwrap();
    let taken = bed.snapshot("lch_1").await;
    assert!(taken.left_out[0].starts_with(".git/index: "), "{:?}", taken.left_out);
    assert!(bed.reached().contains(&commit));
}

#[tokio::test]
async fn a_damaged_repository_costs_no_file() {
    for damage in ["a HEAD without a ref", "no HEAD", "no objects", "a broken tree"] {
        let bed = Bed::new();
        bed.put("mine.txt", "mine\n");
        let git = bed.top().join(".git");
        // Git would take the repository around it.
        bed.git_in(bed.folder.path(), &["init", "--quiet"]);
        std::fs::write(bed.folder.path().join("outer.txt"), "outer\n").unwrap();
        bed.git_in(bed.folder.path(), &["add", "outer.txt"]);
        match damage {
            "a HEAD without a ref" => std::fs::write(git.join("HEAD"), "garbage\n").unwrap(),
            "no HEAD" => std::fs::remove_file(git.join("HEAD")).unwrap(),
            "no objects" => std::fs::remove_dir_all(git.join("objects")).unwrap(),
            _ => {
                let tree = bed.git(&["rev-parse", "HEAD^{tree}"]);
                let object = git.join("objects").join(&tree[..2]).join(&tree[2..]);
                std::fs::remove_file(&object).unwrap();
                std::fs::write(&object, "garbage").unwrap();
            }
        }
        assert_eq!(find_shared_tree(&bed.top()), Some(bed.top()), "{damage}");
        let taken = bed.snapshot("lch_1").await;
        let is_named = taken.left_out.iter().any(|entry| entry.starts_with(".git: "));
        assert!(is_named, "{damage}: {:?}", taken.left_out);
        let shown =
            |name: &str| bed.git_in(&bed.keep(), &["show", &format!("{}:{name}", taken.commit)]);
        assert_eq!(shown("worktree/mine.txt"), "mine", "{damage}");
        assert_eq!(shown("git/staged"), "", "{damage}");
    }
}

#[tokio::test]
async fn a_work_tree_that_contains_the_snapshots_is_taken_without_them() {
    for ignored in ["", "state/\n"] {
        let mut bed = Bed::new();
        bed.checkouts = Checkouts::new(bed.top().join("state/workspaces"));
        bed.put(".gitignore", format!("*.log\n{ignored}"));
        bed.put("a/untracked.txt", "untracked\n");
        bed.put("a/secret.log", "ignored\n");
        bed.put("state/other.txt", "of a person\n");
        let keep = bed.top().join("state/workspaces/shop/keep.git");
        for launch in ["lch_1", "lch_2"] {
            let taken = bed.snapshot(launch).await;
            let listed = ["ls-tree", "-r", "--name-only", &format!("{}:worktree", taken.commit)];
            let files = bed.git_in(&keep, &listed);
            for name in ["main.txt", "a/untracked.txt", "a/secret.log"] {
                assert!(files.lines().any(|file| file == name), "{name}: {files}");
            }
            assert_eq!(files.contains("state/other.txt"), ignored.is_empty(), "{files}");
            assert!(!files.contains("state/workspaces"), "{files}");
            let own = taken.left_out.iter().find(|entry| entry.starts_with("state"));
            assert!(own.is_some(), "{:?}", taken.left_out);
        }
    }
}
