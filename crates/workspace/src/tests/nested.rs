//! Repositories inside the repository of a workspace, and names that git refuses.

use std::collections::BTreeSet;

use super::super::nested::{Part, PartKind};
use super::*;

#[test]
fn commits_beyond_the_number_of_repositories_are_named_as_such() {
    let inner = Repository::bare("inner/.git".into());
    for (kind, path, n_unkept) in [
        (PartKind::WorkTree(Some(inner)), "inner", 1),
        (PartKind::Repository, ".git/modules/inner", 1),
        (PartKind::WorkTree(None), "inner", 0),
        (PartKind::Folder, "inner", 0),
    ] {
        let part = Part { path: path.into(), kind };
        let content = Content { left_out: vec![part.beyond_limit()], ..Content::default() };
        assert_eq!(content.unkept_commits().count(), n_unkept, "{part:?}");
    }
}

impl Bed {
    /// Makes a repository with one commit in a folder of its own.
    fn repository(&self, folder: &Path) -> PathBuf {
        std::fs::create_dir_all(folder).unwrap();
        self.git(folder, &["init", "--quiet", "--initial-branch=main"]);
        self.commit(folder, "first.txt", "first\n");
        folder.to_owned()
    }

    /// Makes a repository with a submodule `sub` the source, and returns that of the submodule.
    fn with_submodule(&self) -> PathBuf {
        let library = self.repository(&self.folder.path().join("library"));
        let url = library.to_str().unwrap();
        let add = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", url, "sub"];
        self.git(&self.source(), &add);
        self.git(&self.source(), &["commit", "--quiet", "-m", "submodule"]);
        library
    }

    /// Returns all objects of a repository, also those that nothing reaches.
    fn objects(&self, folder: &Path) -> BTreeSet<String> {
        let list = ["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"];
        self.git(folder, &list).lines().map(str::to_owned).collect()
    }

    /// Checks that the keep repository is sound, and returns what the kept commit reaches.
    fn reached(&self, kept: &Content) -> BTreeSet<String> {
        let keep = self.keep_repository();
        assert_eq!(self.git(&keep, &["fsck", "--no-dangling", "--strict"]), "");
        let list = ["rev-list", "--objects", "--no-object-names", &kept.kept_commit];
        self.git(&keep, &list).lines().map(str::to_owned).collect()
    }

    /// Removes the files of a workspace that were kept.
    async fn remove(&self, id: &str, prepared: &Prepared, kept: &Content) {
        let keep = Self::keep_order(id, prepared);
        let proof = kept.proof.clone().unwrap();
        let order = RemoveOrder { keep, proof, kept_commit: kept.kept_commit.clone() };
        let removal = self.checkouts.clones.remove(&order, &self.policy).await.unwrap();
        assert_eq!((removal, self.tree(id).exists()), (Removal::Removed, false));
    }
}

#[track_caller]
fn is_complete(kept: &Content) {
    assert_eq!((kept.left_out.as_slice(), kept.proof.is_some()), ([].as_slice(), true), "{kept:?}");
}

/// Returns all files and links below a folder with their content, beside those of repositories.
fn files_in(folder: &Path) -> BTreeSet<(PathBuf, Vec<u8>)> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap().flatten() {
            let path = entry.path();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && !path.join("HEAD").exists() {
                folders.push(path);
            } else if kind.is_symlink() {
                let to = std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes();
                found.insert((path.strip_prefix(folder).unwrap().to_owned(), to));
            } else if kind.is_file() {
                let content = std::fs::read(&path).unwrap();
                found.insert((path.strip_prefix(folder).unwrap().to_owned(), content));
            }
        }
    }
    found
}

#[tokio::test]
async fn repositories_inside_are_kept_whole_and_come_back() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    let lib = bed.repository(&tree.join("lib"));
    bed.commit(&lib, "amended.txt", "before the amend");
    std::fs::write(lib.join("amended.txt"), "after the amend").unwrap();
    bed.git(&lib, &["commit", "--quiet", "--all", "--amend", "-m", "amended"]);
    std::fs::write(lib.join("dropped.txt"), "in a dropped stash").unwrap();
    bed.git(&lib, &["stash", "push", "--quiet", "--include-untracked"]);
    bed.git(&lib, &["stash", "drop", "--quiet"]);
    bed.git(&lib, &["tag", "-a", "v1", "-m", "a version"]);
    bed.git(&lib, &["branch", "aside", "HEAD^"]);
    std::fs::write(lib.join("staged.txt"), "staged once").unwrap();
    bed.git(&lib, &["add", "staged.txt"]);
    std::fs::write(lib.join("staged.txt"), "overwritten\r\n").unwrap();
    std::fs::write(lib.join(".gitignore"), "*.o\ntarget/\n").unwrap();
    std::fs::write(lib.join("ignored.o"), "ignored").unwrap();
    std::fs::create_dir(lib.join("target")).unwrap();
    std::fs::write(lib.join("target/built"), "can be built again").unwrap();
    // Several levels deep, without a commit, and in a folder that is ignored.
    let deep = lib.join("a/deep");
    std::fs::create_dir_all(&deep).unwrap();
    bed.git(&deep, &["init", "--quiet"]);
    std::fs::write(deep.join("deep.txt"), "deep").unwrap();
    bed.repository(&tree.join("cache.log/tool"));
    std::fs::write(tree.join("cache.log/beside.txt"), "beside").unwrap();
    bed.repository(&tree.join("target/tool"));
    bed.commit(&tree, "work.txt", "work\n");

    for _ in 0..2 {
        let kept = bed.keep("one", &one).await;
        is_complete(&kept);
        assert_eq!((kept.n_commits, kept.n_uncommitted), (1, 0), "{kept:?}");
    }
    let kept = bed.keep("one", &one).await;
    let reached = bed.reached(&kept);
    let tag = bed.git(&lib, &["rev-parse", "v1"]);
    let lost: Vec<String> = bed.objects(&lib).difference(&reached).cloned().collect();
    assert_eq!(lost, std::slice::from_ref(&tag), "a tag is kept as text");
    let show = |name: &str| bed.git(&bed.keep_repository(), &["show", name]);
    let settings = show(&format!("{}:nested/0001/git/config", kept.kept_commit));
    assert!(settings.contains("repositoryformatversion"), "{settings}");
    let refs = show(&format!("{}:nested/0001/git/refs", kept.kept_commit));
    assert!(refs.contains("== logs/HEAD") && refs.contains("== refs/heads/aside"), "{refs}");

    let before = files_in(&tree);
    let state = |tree: &Path| {
        let lib = tree.join("lib");
        let refs = bed.git(&lib, &["for-each-ref"]);
        let head = bed.git(&lib, &["rev-parse", "--symbolic-full-name", "HEAD"]);
        [refs, head, bed.git(&lib, &["log", "--oneline", "--all"])]
    };
    let repository = state(&tree);
    bed.remove("one", &one, &kept).await;
    bed.prepare_again("one", &one, &kept).await.unwrap();
    let is_kept =
        |(path, _): &(PathBuf, Vec<u8>)| !path.components().any(|it| it.as_os_str() == "target");
    let expected: BTreeSet<_> = before.into_iter().filter(is_kept).collect();
    assert_eq!(files_in(&tree), expected);
    assert_eq!(state(&tree), repository);
    assert_eq!(bed.git(&lib, &["rev-parse", "v1"]), tag);
    assert!(bed.git(&lib, &["status", "--porcelain"]).contains("staged.txt"));
    bed.git(&lib, &["fsck", "--strict"]);
    // An agent goes on there.
    bed.commit(&lib, "later.txt", "later");
    let again = bed.keep("one", &one).await;
    is_complete(&again);
    assert!(bed.reached(&again).contains(&bed.git(&lib, &["rev-parse", "HEAD"])));
}

#[tokio::test]
async fn a_repository_in_the_place_of_a_link_comes_back_and_leads_nowhere() {
    let bed = Bed::new();
    let outside = bed.folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("first.txt"), "outside\n").unwrap();
    std::os::unix::fs::symlink(&outside, bed.source().join("lib")).unwrap();
    bed.git(&bed.source(), &["add", "lib"]);
    bed.commit(&bed.source(), "file", "a file\n");
    let (one, tree) = bed.prepare("one").await;
    for name in ["lib", "file"] {
        std::fs::remove_file(tree.join(name)).unwrap();
        bed.repository(&tree.join(name));
    }
    let kept = bed.keep("one", &one).await;
    is_complete(&kept);
    let before = files_in(&tree);
    bed.remove("one", &one, &kept).await;
    bed.prepare_again("one", &one, &kept).await.unwrap();
    assert_eq!(files_in(&tree), before);
    assert!(tree.join("lib").symlink_metadata().unwrap().is_dir());
    assert_eq!(files_in(&outside), BTreeSet::from([("first.txt".into(), b"outside\n".to_vec())]));
}

#[tokio::test]
async fn a_committed_file_that_cannot_be_read_is_named_and_the_rest_is_kept() {
    if rustix::process::geteuid().is_root() {
        eprintln!("skipped: root reads every file");
        return;
    }
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    bed.commit(&tree, "closed.txt", "closed\n");
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o0);
    std::fs::set_permissions(tree.join("closed.txt"), closed).unwrap();
    let kept = bed.keep("one", &one).await;
    assert!(kept.left_out.iter().any(|path| path.starts_with("closed.txt")), "{kept:?}");
}

#[tokio::test]
async fn names_that_git_refuses_are_kept_and_come_back() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    let put = |name: &str, content: &str| {
        std::fs::create_dir_all(tree.join(name).parent().unwrap()).unwrap();
        std::fs::write(tree.join(name), content).unwrap();
    };
    put("fake/.git/notes.txt", "not a repository");
    put("fake/.git/deep/.GIT/file", "deep");
    put("fake/beside.txt", "beside");
    put("dangling/.git", "gitdir: ../nowhere/at/all\n");
    put("dangling/beside.txt", "beside");
    put("text/.git", "only text");
    put("x/.GIT/file", "odd");
    put("y/.gIt", "a file");
    put("empty/.Git/.gitkeep", "");
    std::os::unix::fs::symlink("main.txt", tree.join(".gitmodules")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", tree.join("y/.GIT")).unwrap();
    let kept = bed.keep("one", &one).await;
    is_complete(&kept);
    assert_eq!(kept.n_uncommitted, 2, "the files beside the others are in no commit");
    let before = files_in(&tree);
    bed.remove("one", &one, &kept).await;
    bed.prepare_again("one", &one, &kept).await.unwrap();
    assert_eq!(files_in(&tree), before);
    let to = bed.folder.path().join("to");
    let (project, id) = ("shop".parse().unwrap(), "one".parse().unwrap());
    bed.checkouts.results.write_kept_to(&project, &id, &kept.kept_commit, &to).await.unwrap();
    let files = files_in(&to);
    assert!(
        before.iter().filter(|(path, _)| !path.starts_with(".git")).all(|it| files.contains(it))
    );
}

#[tokio::test]
async fn submodules_and_work_trees_of_an_agent_are_kept() {
    let bed = Bed::new();
    let library = bed.repository(&bed.folder.path().join("library"));
    let (one, tree) = bed.prepare("one").await;
    let url = library.to_str().unwrap();
    for name in ["sub", "gone"] {
        let add = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", url, name];
        bed.git(&tree, &add);
    }
    bed.git(&tree, &["commit", "--quiet", "-m", "submodules"]);
    bed.commit(&tree.join("sub"), "inner.txt", "in a submodule");
    bed.commit(&tree.join("gone"), "gone.txt", "in a submodule whose files are gone");
    let gone = bed.git(&tree.join("gone"), &["rev-parse", "HEAD"]);
    bed.git(&tree, &["submodule", "--quiet", "deinit", "--force", "gone"]);
    bed.git(&tree, &["worktree", "add", "--quiet", "-b", "side", "linked"]);
    bed.commit(&tree.join("linked"), "side.txt", "in a linked work tree");
    let kept = bed.keep("one", &one).await;
    is_complete(&kept);
    // The work went on in the linked work tree.
    assert_eq!((kept.n_commits, kept.n_uncommitted), (2, 1), "the submodule has a new commit");
    let reached = bed.reached(&kept);
    let inner = bed.git(&tree.join("sub"), &["rev-parse", "HEAD"]);
    let side = bed.git(&tree, &["rev-parse", "side"]);
    for commit in [&gone, &inner, &side] {
        assert!(reached.contains(commit), "{commit}");
    }
    bed.git(&tree, &["commit", "--quiet", "--all", "-m", "newer submodule"]);
    let kept = bed.keep("one", &one).await;
    is_complete(&kept);
    assert_eq!((kept.n_commits, kept.n_uncommitted), (2, 0));
    bed.remove("one", &one, &kept).await;
    bed.prepare_again("one", &one, &kept).await.unwrap();
    assert_eq!(bed.git(&tree.join("sub"), &["rev-parse", "HEAD"]), inner);
    assert_eq!(bed.git(&tree.join("linked"), &["rev-parse", "HEAD"]), side);
    assert_eq!(bed.git(&tree, &["status", "--porcelain"]), "?? linked/");
}

#[tokio::test]
async fn repositories_that_cannot_be_kept_are_named_and_their_files_are_kept() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    let outside = bed.repository(&bed.folder.path().join("outside"));
    for name in ["link", "fifo", "elsewhere", "broken", "borrowed", "other_ids"] {
        std::fs::create_dir(tree.join(name)).unwrap();
        std::fs::write(tree.join(name).join("file.txt"), name).unwrap();
    }
    std::os::unix::fs::symlink(outside.join(".git"), tree.join("link/.git")).unwrap();
    let made = Command::new("mkfifo").arg(tree.join("fifo/.git")).status().unwrap();
    assert!(made.success());
    let named = format!("gitdir: {}\n", outside.join(".git").display());
    std::fs::write(tree.join("elsewhere/.git"), named).unwrap();
    let broken = bed.repository(&tree.join("broken"));
    bed.commit(&broken, "only.txt", "only here");
    let blob = bed.git(&broken, &["rev-parse", "HEAD:only.txt"]);
    std::fs::write(broken.join("only.txt"), "no other file has that content").unwrap();
    let (folder, file) = blob.split_at(2);
    std::fs::remove_file(broken.join(".git/objects").join(folder).join(file)).unwrap();
    let shared = ["clone", "--quiet", "--shared", outside.to_str().unwrap(), "borrowed/inner"];
    bed.git(&tree, &shared);
    bed.git(&tree.join("other_ids"), &["init", "--quiet", "--object-format=sha256"]);
    let kept = bed.keep("one", &one).await;
    assert_eq!(kept.proof, None);
    let objects = outside.join(".git/objects");
    for expected in [
        "link/.git: it is a link, which is not followed".to_owned(),
        "fifo/.git: it is a special file".to_owned(),
        "elsewhere/.git: the repository that it names is not in the clone".to_owned(),
        "broken/.git: some of its objects are missing".to_owned(),
        format!(
            "borrowed/inner/.git: some of its objects are missing; it borrows those of `{}`",
            objects.display()
        ),
        "other_ids/.git: its ids are of another kind (sha256)".to_owned(),
    ] {
        assert!(kept.left_out.contains(&expected), "{expected} is not in {:?}", kept.left_out);
    }
    assert_eq!(kept.left_out.len(), 6, "{:?}", kept.left_out);
    let to = bed.folder.path().join("to");
    let (project, id) = ("shop".parse().unwrap(), "one".parse().unwrap());
    bed.checkouts.results.write_kept_to(&project, &id, &kept.kept_commit, &to).await.unwrap();
    for name in ["link", "elsewhere", "broken", "borrowed", "other_ids"] {
        assert_eq!(std::fs::read_to_string(to.join(name).join("file.txt")).unwrap(), name);
    }
    // The fault is over.
    for name in ["link", "fifo", "elsewhere", "broken", "borrowed", "other_ids"] {
        std::fs::remove_dir_all(tree.join(name)).unwrap();
    }
    is_complete(&bed.keep("one", &one).await);
}

#[tokio::test]
async fn a_clone_of_the_project_inside_changes_nothing_of_its_history() {
    let bed = Bed::new();
    bed.put("main.txt", "second\n");
    bed.git(&bed.source(), &["commit", "--quiet", "--all", "-m", "second"]);
    let (one, tree) = bed.prepare("one").await;
    let url = format!("file://{}", bed.source().display());
    bed.git(&tree, &["clone", "--quiet", "--depth=1", &url, "shallow"]);
    bed.commit(&tree.join("shallow"), "new.txt", "after a history that is cut");
    bed.git(&tree, &["clone", "--quiet", ".", "local"]);
    bed.commit(&tree.join("local"), "new.txt", "after a history that is whole");
    let kept = bed.keep("one", &one).await;
    is_complete(&kept);
    let keep = bed.keep_repository();
    assert!(!keep.join("shallow").exists());
    let base = one.base_commit.clone().unwrap();
    assert_eq!(bed.git(&keep, &["rev-list", "--count", &base]), "2");
    let reached = bed.reached(&kept);
    let commit = bed.git(&tree.join("local"), &["rev-parse", "HEAD"]);
    assert!(reached.contains(&commit));
    let commit = bed.git(&tree.join("shallow"), &["rev-parse", "HEAD"]);
    let log = bed.git(&tree.join("shallow"), &["log", "--format=%H %s"]);
    bed.remove("one", &one, &kept).await;
    bed.prepare_again("one", &one, &kept).await.unwrap();
    assert_eq!(bed.git(&tree.join("shallow"), &["rev-parse", "HEAD"]), commit);
    assert_eq!(bed.git(&tree.join("shallow"), &["log", "--format=%H %s"]), log);
}

#[tokio::test]
async fn a_repository_in_a_folder_with_files_of_the_work_hides_no_change() {
    let bed = Bed::new();
    std::fs::create_dir(bed.source().join("part")).unwrap();
    bed.put("part/file.txt", "before\n");
    bed.git(&bed.source(), &["add", "."]);
    bed.git(&bed.source(), &["commit", "--quiet", "-m", "part"]);
    let (one, tree) = bed.prepare("one").await;
    let part = tree.join("part");
    bed.git(&part, &["init", "--quiet"]);
    let kept = bed.keep("one", &one).await;
    is_complete(&kept);
    assert_eq!(kept.n_uncommitted, 0);
    std::fs::write(part.join("file.txt"), "behind\n").unwrap();
    let kept = bed.keep("one", &one).await;
    is_complete(&kept);
    assert_eq!(kept.n_uncommitted, 1);
    // The agent commits a folder before the daemon has seen it.
    std::fs::create_dir(tree.join("late")).unwrap();
    bed.commit(&tree, "late/file.txt", "late");
    bed.git(&tree.join("late"), &["init", "--quiet"]);
    let kept = bed.keep("one", &one).await;
    is_complete(&kept);
    assert_eq!(kept.n_uncommitted, 1, "{kept:?}");
}

#[tokio::test]
async fn a_submodule_without_its_files_is_no_change_and_comes_back() {
    let bed = Bed::new();
    bed.with_submodule();
    let (one, tree) = bed.prepare("one").await;
    assert!(tree.join("sub").is_dir() && !tree.join("sub/first.txt").exists());
    bed.commit(&tree, "work.txt", "work\n");
    let kept = bed.keep("one", &one).await;
    is_complete(&kept);
    assert_eq!((kept.n_commits, kept.n_uncommitted), (1, 0), "{kept:?}");
    bed.remove("one", &one, &kept).await;
    bed.prepare_again("one", &one, &kept).await.unwrap();
    assert_eq!(bed.git(&tree, &["status", "--porcelain"]), "");
    assert!(bed.git(&tree, &["ls-files", "--stage", "sub"]).starts_with("160000 "));
    let kept = bed.keep("one", &one).await;
    assert_eq!((kept.n_commits, kept.n_uncommitted), (1, 0), "{kept:?}");
    // The agent puts files in its place, which are in no commit.
    std::fs::write(tree.join("sub/file.txt"), "in the place of the submodule").unwrap();
    let kept = bed.keep("one", &one).await;
    is_complete(&kept);
    let file = format!("{}:worktree/sub/file.txt", kept.kept_commit);
    let content = bed.git(&bed.keep_repository(), &["cat-file", "-p", &file]);
    assert_eq!(content, "in the place of the submodule");
    // The agent removes it for good.
    std::fs::remove_file(tree.join("sub/file.txt")).unwrap();
    bed.git(&tree, &["rm", "--quiet", "-f", "sub"]);
    bed.git(&tree, &["commit", "--quiet", "-m", "without the submodule"]);
    let kept = bed.keep("one", &one).await;
    assert_eq!((kept.n_commits, kept.n_uncommitted), (2, 0), "{kept:?}");
}

#[tokio::test]
async fn nothing_of_a_repository_inside_runs() {
    let bed = Bed::new();
    bed.with_submodule();
    let mark = bed.folder.path().join("ran");
    let evil = bed.folder.path().join("evil");
    std::fs::write(&evil, format!("#!/bin/sh\ntouch {}\ncat\n", mark.display())).unwrap();
    std::fs::set_permissions(&evil, std::fs::Permissions::from_mode(0o755)).unwrap();
    let arm = |folder: &Path| {
        let hooks =
            bed.git(folder, &["rev-parse", "--path-format=absolute", "--git-path", "hooks"]);
        std::fs::create_dir_all(&hooks).unwrap();
        for hook in ["post-checkout", "post-index-change", "reference-transaction"] {
            std::fs::copy(&evil, Path::new(&hooks).join(hook)).unwrap();
        }
        for name in ["core.fsmonitor", "filter.evil.clean", "filter.evil.smudge", "core.pager"] {
            bed.git(folder, &["config", name, evil.to_str().unwrap()]);
        }
        std::fs::write(folder.join(".gitattributes"), "* filter=evil\n").unwrap();
        std::fs::write(folder.join("first.txt"), "changed\n").unwrap();
    };
    let (one, tree) = bed.prepare("one").await;
    let add = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init"];
    bed.git(&tree, &add);
    arm(&tree.join("sub"));
    arm(&bed.repository(&tree.join("lib")));
    // The agents of a shared project work in the submodules of the source, too.
    arm(&bed.source().join("sub"));
    let _ = std::fs::remove_file(&mark);
    let kept = bed.keep("one", &one).await;
    is_complete(&kept);
    bed.remove("one", &one, &kept).await;
    bed.prepare_again("one", &one, &kept).await.unwrap();
    let base = Some(domain::workspace::BASE_WORKING_TREE.to_owned());
    let made = bed.checkouts.clones.prepare(&Order { base, ..bed.order("two") }).await.unwrap();
    assert!(!mark.exists());
    assert_eq!(bed.git(&bed.tree("two"), &["status", "--porcelain"]), "");
    assert!(made.base_commit.is_some());
}

/// The kept state of a sparse clone with a repository `lib` and a linked work tree `linked`, as
/// the version before made it: it copied repositories that an agent had made inside.
const BEFORE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/workspaces/nested.bundle");

#[tokio::test]
async fn a_repository_inside_that_an_earlier_version_kept_comes_back() {
    let bed = Bed::new();
    let source = bed.folder.path().join("before");
    std::fs::create_dir(&source).unwrap();
    bed.git(&source, &["init", "--quiet", "--initial-branch=main"]);
    bed.git(&source, &["pull", "--quiet", BEFORE, "refs/agent-coordinator/source/heads/main"]);
    let order = |id: &str| Order { source: source.clone(), ..bed.order(id) };
    bed.checkouts.clones.prepare(&order("other")).await.unwrap();
    let keep = bed.keep_repository();
    let fetch = ["fetch", "--quiet", BEFORE, "refs/agent-coordinator/kept/*:refs/before/*"];
    bed.git(&keep, &fetch);
    let id = |name: &str| bed.git(&keep, &["rev-parse", "--verify", name]);
    let kept = id("refs/before/wsp_01a22b46c7a475ceb94fb492cba69275/1");
    let side = id("1431069bbc9b59e0631f929429909bcb2fc3243f^{commit}");
    let restores = Some(Restored {
        kept_commit: kept.clone(),
        head_commit: Some(side.clone()),
        base_ref: Some("refs/heads/main".to_owned()),
        base_commit: Some(bed.git(&source, &["rev-parse", "main"])),
    });
    let one = bed.checkouts.clones.prepare(&Order { restores, ..order("one") }).await.unwrap();
    let tree = bed.tree("one");
    let lib = tree.join("lib");
    let read = |name: &str| std::fs::read_to_string(tree.join(name)).unwrap();
    assert_eq!(bed.git(&lib, &["log", "--format=%s"]), "second inside\ninside");
    assert_eq!(bed.git(&lib, &["log", "--format=%s", "aside"]), "inside");
    assert_eq!(bed.git(&lib, &["cat-file", "-t", "v1"]), "tag");
    assert_eq!(bed.git(&lib, &["symbolic-ref", "HEAD"]), "refs/heads/main");
    assert_eq!(bed.git(&lib, &["status", "--porcelain"]), "?? open.txt");
    bed.git(&lib, &["fsck", "--strict"]);
    assert_eq!(bed.git(&tree.join("linked"), &["rev-parse", "HEAD"]), side);
    assert_eq!(bed.git(&tree.join("linked"), &["symbolic-ref", "HEAD"]), "refs/heads/side");
    assert_eq!(read("lib/open.txt") + &read("linked/side-open.txt"), "open\nopen\n");
    // It is sparse again.
    assert!(tree.join("a/one.txt").exists() && !tree.join("b").exists());
    assert_eq!(bed.git(&tree, &["status", "--porcelain"]), "?? lib/\n?? linked/");
    let to = bed.folder.path().join("to");
    let (project, id) = ("shop".parse().unwrap(), "one".parse().unwrap());
    bed.checkouts.results.write_kept_to(&project, &id, &kept, &to).await.unwrap();
    assert_eq!(std::fs::read_to_string(to.join("lib/second.txt")).unwrap(), "second\n");
    // The coordinator keeps the restored files again.
    let again = bed.keep("one", &one).await;
    is_complete(&again);
    assert_eq!(again.n_uncommitted, 0, "files outside the folders are not removed");
}
