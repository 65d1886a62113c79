//! A daemon of root, and repositories that other users can write. These tests need root.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown, symlink};
use std::os::unix::process::CommandExt as _;

use super::*;
use domain::RunAs;
use domain::plan::shared::{SnapshotCause, SnapshotOrder};
use domain::workspace::{CleanOrder, PublishOrder};

/// A user who owns the repository of a project, and one as whom agents run.
pub(super) const PERSON: u32 = 1;
pub(super) const AGENT: u32 = 65_534;
pub(super) const SECRET: &str = "only root may read this";

/// The settings of git that name a program.
pub(super) const PROGRAMS: [&str; 22] = [
    "core.alternateRefsCommand",
    "core.askPass",
    "core.editor",
    "core.fsmonitor",
    "core.gitProxy",
    "core.pager",
    "core.sshCommand",
    "credential.helper",
    "diff.external",
    "diff.mark.command",
    "diff.mark.textconv",
    "filter.mark.clean",
    "filter.mark.process",
    "filter.mark.smudge",
    "gpg.program",
    "gpg.ssh.program",
    "merge.mark.driver",
    "receive.procReceiveRefs",
    "remote.origin.uploadpack",
    "sequence.editor",
    "uploadpack.packObjectsHook",
    "hook.mark.command",
];

/// Returns a bed of root that other users can enter; `None` for an ordinary user.
pub(super) fn bed_of_root() -> Option<Bed> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root has other users");
        return None;
    }
    let bed = Bed::new();
    mode(bed.folder.path(), 0o711);
    std::fs::write(bed.folder.path().join("secret"), SECRET).unwrap();
    mode(&bed.folder.path().join("secret"), 0o600);
    Some(bed)
}

pub(super) fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Gives all below a path to a user.
pub(super) fn give(path: &Path, uid: u32) {
    lchown(path, Some(uid), Some(uid)).unwrap();
    if path.symlink_metadata().unwrap().is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path(), uid);
        }
    }
}

pub(super) fn agent() -> RunAs {
    RunAs { name: "nobody".to_owned(), uid: AGENT, gid: AGENT, groups: vec![AGENT] }
}

/// Returns whether the keep repository has an object with the content of the secret.
fn has_secret(bed: &Bed) -> bool {
    let keep = bed.keep_repository();
    keep.exists() && {
        let all = ["cat-file", "--batch-all-objects", "--batch", "--buffer"];
        run_git(bed.folder.path(), &keep, &all).contains(SECRET)
    }
}

pub(super) fn chain(error: &CheckoutError) -> String {
    runtime::telemetry::ErrorChain(error).to_string()
}

pub(super) fn snapshot_order(bed: &Bed) -> SnapshotOrder {
    SnapshotOrder {
        project: "shop".parse().unwrap(),
        work_tree: bed.source().canonicalize().unwrap(),
        agent: "dev".parse().unwrap(),
        cause: SnapshotCause::End("lch_1".parse().unwrap()),
    }
}

#[tokio::test]
async fn what_the_repository_of_a_person_brings_along_never_runs_as_root() {
    let Some(bed) = bed_of_root() else { return };
    let marks = bed.folder.path().join("marks");
    std::fs::create_dir(&marks).unwrap();
    mode(&marks, 0o777);
    let script = bed.folder.path().join("mark");
    let text = format!("#!/bin/sh\nid -u >{}/$(id -u)\ncat\n", marks.display());
    std::fs::write(&script, text).unwrap();
    mode(&script, 0o755);
    let script = script.to_str().unwrap();
    for key in PROGRAMS {
        bed.git(&bed.source(), &["config", key, script]);
    }
    bed.git(&bed.source(), &["config", "core.hooksPath", "hooks"]);
    std::fs::create_dir(bed.source().join("hooks")).unwrap();
    for hook in ["post-merge", "reference-transaction", "post-checkout", "post-index-change"] {
        std::fs::copy(script, bed.source().join("hooks").join(hook)).unwrap();
    }
    std::fs::write(bed.source().join(".git/info/attributes"), "* filter=mark diff=mark\n").unwrap();
    give(&bed.source(), PERSON);
    let (one, tree) = bed.prepare("one").await;
    bed.commit(&tree, "one.txt", "one\n");
    let kept = bed.keep("one", &one).await;
    let order = PublishOrder {
        id: "one".parse().unwrap(),
        project: "shop".parse().unwrap(),
        source: bed.source(),
        branch: "agents/one".to_owned(),
        commit: kept.head_commit.clone().unwrap(),
        last: None,
    };
    bed.checkouts.results.publish_branch(&order).await.unwrap();
    let merged = bed.checkouts.results.merge(&bed.merge_order("one", &one)).await.unwrap();
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
    bed.checkouts.clones.look_at(&bed.source()).await;
    bed.checkouts.snapshots.snapshot(&snapshot_order(&bed), &bed.policy).await.unwrap();
    let base = Order { base: Some("working_tree".to_owned()), ..bed.order("two") };
    bed.checkouts.clones.prepare(&base).await.unwrap();
    assert!(marks.join(PERSON.to_string()).exists(), "the filter of the person ran");
    assert!(!marks.join("0").exists(), "something ran as root");
    // The files that the merge made belong to the person, who can go on.
    for made in ["one.txt", ".git/refs/heads/main", ".git/refs/heads/agents/one", ".git/index"] {
        let found = bed.source().join(made).symlink_metadata();
        assert_eq!(found.map(|found| found.uid()).unwrap(), PERSON, "{made}");
    }
}

#[tokio::test]
async fn a_repository_that_leads_to_a_private_one_gives_nothing_of_it() {
    let Some(bed) = bed_of_root() else { return };
    let private = bed.folder.path().join("private");
    std::fs::create_dir(&private).unwrap();
    mode(&private, 0o700);
    bed.git(&private, &["init", "--quiet", "--initial-branch=main"]);
    std::fs::write(private.join("file"), SECRET).unwrap();
    bed.git(&private, &["add", "."]);
    bed.git(&private, &["commit", "--quiet", "-m", "private"]);
    let commit = bed.git(&private, &["rev-parse", "HEAD"]);
    let git = bed.source().join(".git");
    let aside = bed.folder.path().join("aside");
    let named = format!("gitdir: {}\n", private.join(".git").display());
    let ways: [(&str, &dyn Fn()); 4] = [
        ("a file", &|| std::fs::write(&git, &named).unwrap()),
        ("a link", &|| symlink(private.join(".git"), &git).unwrap()),
        ("alternates", &|| {
            run_git(
                bed.folder.path(),
                bed.folder.path(),
                &["clone", "--quiet", "aside", "source/x"],
            );
            std::fs::rename(bed.source().join("x/.git"), &git).unwrap();
            let objects = format!("{}\n", private.join(".git/objects").display());
            std::fs::write(git.join("objects/info/alternates"), objects).unwrap();
            std::fs::write(git.join("refs/heads/main"), format!("{commit}\n")).unwrap();
        }),
        ("packed refs", &|| {
            run_git(
                bed.folder.path(),
                bed.folder.path(),
                &["clone", "--quiet", "aside", "source/y"],
            );
            std::fs::rename(bed.source().join("y/.git"), &git).unwrap();
            let _ = std::fs::remove_file(git.join("packed-refs"));
            symlink(bed.folder.path().join("secret"), git.join("packed-refs")).unwrap();
            symlink(bed.folder.path().join("secret"), git.join("shallow")).unwrap();
        }),
    ];
    std::fs::rename(&git, &aside).unwrap();
    for (n, (way, make)) in ways.into_iter().enumerate() {
        make();
        give(&bed.source(), AGENT);
        let id = format!("way{n}");
        let refused = bed.checkouts.clones.prepare(&bed.order(&id)).await;
        let said = refused.as_ref().err().map(chain).unwrap_or_default();
        assert!(refused.is_err() && !said.contains(SECRET), "{way}: {refused:?}");
        let taken = bed.checkouts.snapshots.snapshot(&snapshot_order(&bed), &bed.policy).await;
        assert!(!format!("{taken:?}").contains(SECRET), "{way}");
        assert!(!has_secret(&bed), "{way}");
        if git.symlink_metadata().unwrap().is_dir() {
            std::fs::remove_dir_all(&git).unwrap();
        } else {
            std::fs::remove_file(&git).unwrap();
        }
    }
    let refs = std::fs::read_dir(private.join(".git/refs/heads")).unwrap().count();
    assert_eq!(refs, 1, "nothing was written there");
}

#[tokio::test]
async fn root_runs_no_git_in_a_repository_of_root_that_others_can_change() {
    let Some(bed) = bed_of_root() else { return };
    let config = bed.source().join(".git/config");
    for (path, what) in [(bed.source(), 0o777), (bed.source().join(".git"), 0o775), (config, 0o666)]
    {
        let before = path.metadata().unwrap().permissions();
        mode(&path, what);
        let refused = bed.checkouts.clones.prepare(&bed.order("one")).await.unwrap_err();
        let said = chain(&refused);
        assert!(refused.needs_person() && said.contains("chown -R USER"), "{said}");
        std::fs::set_permissions(&path, before).unwrap();
    }
    bed.prepare("one").await;
    lchown(bed.source().join(".git/config"), Some(AGENT), None).unwrap();
    let refused = bed.checkouts.clones.prepare(&bed.order("two")).await.unwrap_err();
    assert!(chain(&refused).contains(".git/config"), "{refused}");
    // A git directory of a third user is refused by name.
    give(&bed.source(), PERSON);
    lchown(bed.source().join(".git"), Some(AGENT), None).unwrap();
    let refused = bed.checkouts.clones.prepare(&bed.order("two")).await.unwrap_err();
    assert!(chain(&refused).contains("give both to one user"), "{}", chain(&refused));
}

/// Writes a tree in which `link` is a folder with `below` and a link to `target`, and returns its
/// id.
fn crafted_tree(bed: &Bed, tree: &Path, target: &Path, below: &str) -> String {
    let raw = |entries: &[(&str, &str, &str)]| {
        let mut bytes = Vec::new();
        for (mode, name, id) in entries {
            bytes.extend_from_slice(format!("{mode} {name}\0").as_bytes());
            let id = id.as_bytes().chunks(2);
            bytes.extend(
                id.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()),
            );
        }
        bytes
    };
    let write = |kind: &str, content: &[u8]| {
        let file = bed.folder.path().join("object");
        std::fs::write(&file, content).unwrap();
        let file = file.to_str().unwrap();
        bed.git(tree, &["hash-object", "-w", "--literally", "-t", kind, file])
    };
    let blob = write("blob", b"written through a link\n");
    let link = write("blob", target.to_str().unwrap().as_bytes());
    let folder = write("tree", &raw(&[("100644", below, &blob)]));
    write("tree", &raw(&[("40000", "link", &folder), ("120000", "link", &link)]))
}

#[tokio::test]
async fn a_tree_that_hides_a_path_is_neither_taken_from_a_clone_nor_checked_out() {
    let bed = Bed::new();
    let beside = bed.folder.path().join("beside");
    std::fs::create_dir(&beside).unwrap();
    let (one, tree) = bed.prepare("one").await;
    let crafted = crafted_tree(&bed, &tree, &beside, "file");
    let commit = bed.git(&tree, &["commit-tree", &crafted, "-p", "HEAD", "-m", "crafted"]);
    bed.git(&tree, &["update-ref", "refs/heads/agents/one", &commit]);
    let kept = bed.keep("one", &one).await;
    let named = kept.left_out.join("\n");
    assert!(named.contains(&crafted) && named.contains("two entries with the name"), "{named}");
    assert_eq!((kept.head_commit, kept.proof), (one.base_commit.clone(), None));
    let keep = bed.keep_repository();
    let mut known = Command::new("git");
    known.arg("--git-dir").arg(&keep).args(["cat-file", "-e", &crafted]);
    let known = known.stderr(std::process::Stdio::null()).status().unwrap();
    assert!(!known.success(), "the keep repository has no such tree");
    // The history of a source may have one, but no clone begins there.
    let crafted = crafted_tree(&bed, &bed.source(), &beside, "file");
    let commit = bed.git(&bed.source(), &["commit-tree", &crafted, "-p", "HEAD", "-m", "crafted"]);
    bed.git(&bed.source(), &["update-ref", "refs/heads/main", &commit]);
    let refused = bed.checkouts.clones.prepare(&bed.order("two")).await.unwrap_err();
    assert!(refused.needs_person() && chain(&refused).contains(&commit), "{refused}");
    assert_eq!(std::fs::read_dir(&beside).unwrap().count(), 0);
}

#[tokio::test]
async fn a_commit_with_more_files_than_a_disk_has_costs_little_and_is_named_once() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    let blob = bed.git(&tree, &["rev-parse", "HEAD:main.txt"]);
    let mut below = format!("100644 blob {blob}");
    for _ in 0..10 {
        let entries: Vec<String> = (0..10).map(|n| format!("{below}\tf{n}\n")).collect();
        let file = bed.folder.path().join("entries");
        std::fs::write(&file, entries.concat()).unwrap();
        let mut made = Command::new("git");
        made.arg("mktree").current_dir(&tree).stdin(std::fs::File::open(&file).unwrap());
        let made = made.output().unwrap();
        below = format!("040000 tree {}", String::from_utf8_lossy(&made.stdout).trim());
    }
    let top = below.rsplit(' ').next().unwrap();
    let commit = bed.git(&tree, &["commit-tree", top, "-p", "HEAD", "-m", "bomb"]);
    bed.git(&tree, &["update-ref", "refs/heads/agents/one", &commit]);
    let kept = bed.keep("one", &one).await;
    let named = kept.left_out.join("\n");
    assert!(named.contains("has more than 1000000 files"), "{named}");
    assert_eq!(kept.head_commit, one.base_commit);
    assert_eq!(named.matches("has more than").count(), 1, "{named}");
    // A clone does not begin there, either.
    bed.git(&bed.source(), &["fetch", "--quiet", tree.to_str().unwrap(), &commit]);
    bed.git(&bed.source(), &["update-ref", "refs/heads/main", &commit]);
    let refused = bed.checkouts.clones.prepare(&bed.order("two")).await.unwrap_err();
    assert!(refused.needs_person() && chain(&refused).contains(&commit), "{refused}");
}

/// Returns the commits of the work of an agent that no other user may see: all that was kept, and
/// the files that are in no commit.
async fn private_commits(bed: &Bed) -> [String; 2] {
    let (one, tree) = bed.prepare("one").await;
    std::fs::write(tree.join("private.txt"), SECRET).unwrap();
    let kept = bed.keep("one", &one).await;
    let uncommitted = bed.git(&bed.keep_repository(), &["rev-parse", "agents/one-uncommitted"]);
    [kept.kept_commit, uncommitted]
}

/// Writes another commit into the file of the object `id`, with which git takes it for existing.
fn forge_object(bed: &Bed, tree: &Path, id: &str, owner: u32) {
    give(tree, 0);
    let commit = bed.git(tree, &["commit-tree", "HEAD^{tree}", "-m", "other"]);
    let file = |id: &str| tree.join(".git/objects").join(&id[..2]).join(&id[2..]);
    std::fs::create_dir_all(file(id).parent().unwrap()).unwrap();
    std::fs::copy(file(&commit), file(id)).unwrap();
    give(tree, owner);
}

#[tokio::test]
async fn a_source_of_another_user_does_not_get_what_agents_left_by_naming_it() {
    let Some(bed) = bed_of_root() else { return };
    let private = private_commits(&bed).await;
    give(&bed.source(), PERSON);
    for (n, id) in private.iter().enumerate() {
        forge_object(&bed, &bed.source(), id, PERSON);
        let named = bed.source().join(format!(".git/refs/heads/x{n}"));
        std::fs::write(&named, format!("{id}\n")).unwrap();
        give(&named, PERSON);
        let refused = bed.checkouts.clones.prepare(&bed.order("two")).await.unwrap_err();
        assert!(chain(&refused).contains("lacks objects"), "{}", chain(&refused));
        let list = ["for-each-ref", "--format=%(refname)", "--contains", id];
        let reached = bed.git(&bed.keep_repository(), &list);
        assert!(!reached.contains("/source/"), "{reached}");
        std::fs::remove_file(named).unwrap();
    }
    let object = private.map(|id| format!(".git/objects/{}/{}", &id[..2], &id[2..]));
    for object in object {
        std::fs::remove_file(bed.source().join(object)).unwrap();
    }
    give(&bed.source(), 0);
    bed.commit(&bed.source(), "more.txt", "more\n");
    give(&bed.source(), PERSON);
    bed.prepare("two").await;
}

#[tokio::test]
async fn a_clone_of_another_user_does_not_get_what_agents_left_by_naming_it() {
    let Some(bed) = bed_of_root() else { return };
    let private = private_commits(&bed).await;
    for (n, id) in private.iter().enumerate() {
        for is_forged in [false, true] {
            let name = format!("two{n}{is_forged}");
            let order = Order { run_as: Some(agent()), ..bed.order(&name) };
            let two = bed.checkouts.clones.prepare(&order).await.unwrap();
            let tree = bed.tree(&name);
            let head = tree.join(format!(".git/refs/heads/agents/{name}"));
            std::fs::write(&head, format!("{id}\n")).unwrap();
            std::fs::write(tree.join(".git/ORIG_HEAD"), format!("{id}\n")).unwrap();
            let linked = tree.join(".git/worktrees/x");
            std::fs::create_dir_all(&linked).unwrap();
            std::fs::write(linked.join("HEAD"), format!("{id}\n")).unwrap();
            std::fs::write(linked.join("gitdir"), format!("{}\n", linked.display())).unwrap();
            if is_forged {
                forge_object(&bed, &bed.source(), id, 0);
                let objects = tree.join(".git/objects");
                let folder = objects.join(&id[..2]);
                std::fs::create_dir_all(&folder).unwrap();
                let forged = bed.source().join(".git/objects").join(&id[..2]).join(&id[2..]);
                std::fs::rename(forged, folder.join(&id[2..])).unwrap();
                give(&objects, AGENT);
            }
            let kept = bed.keep(&name, &two).await;
            let left_out = kept.left_out.join("\n");
            assert!(left_out.contains(id.as_str()), "{name}: {left_out}");
            assert_eq!(kept.head_commit, two.base_commit, "{name}");
            assert!(kept.others.is_empty(), "{name}: {:?}", kept.others);
            let reached = bed.git(&bed.keep_repository(), &["rev-list", &kept.kept_commit]);
            assert!(!private.iter().any(|id| reached.contains(id)), "{name}");
            std::fs::remove_dir_all(tree.parent().unwrap()).unwrap();
            let restores = Some(restored(&kept, &two));
            bed.checkouts.clones.prepare(&Order { restores, ..order }).await.unwrap();
            let lent = bed.keep_repository().parent().unwrap().join(format!("lent-{AGENT}/tips"));
            assert!(!std::fs::read_to_string(lent).unwrap().contains(id), "{name}");
        }
    }
}

#[tokio::test]
async fn a_pipe_of_a_clone_is_removed_and_the_rest_is_kept() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    std::fs::create_dir(tree.join("sub")).unwrap();
    for pipe in ["sub/.gitignore", "sub/.gitattributes"] {
        nix::unistd::mkfifo(&tree.join(pipe), nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    std::fs::write(tree.join("sub/work.txt"), "work\n").unwrap();
    let kept = bed.keep("one", &one).await;
    assert_eq!((kept.n_uncommitted, kept.left_out), (1, vec![]));
    assert!(kept.proof.is_some() && !tree.join("sub/.gitignore").exists());
}

#[tokio::test]
async fn attributes_of_a_result_change_no_protected_file() {
    let bed = Bed::new();
    std::fs::create_dir(bed.source().join("ci")).unwrap();
    bed.put("ci/check.sh", "exit +AD0- 1\n");
    bed.git(&bed.source(), &["add", "."]);
    bed.git(&bed.source(), &["commit", "--quiet", "-m", "a check"]);
    let (one, tree) = bed.prepare("one").await;
    std::fs::write(tree.join(".gitattributes"), "ci/** working-tree-encoding=UTF-7\n").unwrap();
    std::fs::create_dir(tree.join("sub")).unwrap();
    std::fs::write(tree.join("sub/.gitattributes"), "* text eol=crlf\n").unwrap();
    bed.commit(&tree, "sub/file.txt", "one\ntwo\n");
    bed.commit(&tree, ".gitattributes", "ci/** working-tree-encoding=UTF-7\n");
    bed.git(&tree, &["add", "sub"]);
    bed.git(&tree, &["commit", "--quiet", "--amend", "--no-edit"]);
    let kept = bed.keep("one", &one).await;
    let order = CleanOrder {
        id: "one".parse().unwrap(),
        project: "shop".parse().unwrap(),
        commit: kept.head_commit.clone(),
        base_commit: one.base_commit.clone(),
        agent: "dev".parse().unwrap(),
        protected: vec!["ci/**".to_owned()],
    };
    bed.checkouts.clones.prepare_clean(&order).await.unwrap();
    let fresh = bed.checkouts.places.clean_directory(&order, "");
    let read = |name: &str| std::fs::read_to_string(fresh.join(name)).unwrap();
    assert_eq!(read("ci/check.sh"), "exit +AD0- 1\n");
    assert_eq!(read("sub/file.txt"), "one\ntwo\n");
    assert_eq!(read(".gitattributes"), "ci/** working-tree-encoding=UTF-7\n");
    assert_eq!(read("sub/.gitattributes"), "* text eol=crlf\n");
    assert_eq!(Some(bed.git(&fresh, &["rev-parse", "HEAD"])), kept.head_commit);
    assert!(bed.checkouts.places.has_first_attributes(&order), "the output of the check says so");
    bed.checkouts.clones.remove_clean(&order.project, &order.id).await.unwrap();
}

#[tokio::test]
async fn a_pipe_in_a_repository_is_named_at_once() {
    let bed = Bed::new();
    let pipe = bed.source().join(".git/objects/pack/pack-x.idx");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let refused = bed.checkouts.clones.prepare(&bed.order("one")).await.unwrap_err();
    assert!(refused.needs_person() && chain(&refused).contains("pack-x.idx"), "{refused}");
    let taken = bed.checkouts.snapshots.snapshot(&snapshot_order(&bed), &bed.policy).await;
    assert!(chain(&taken.unwrap_err()).contains("pack-x.idx"));
}

#[tokio::test]
async fn snapshots_of_a_person_are_taken_with_the_rights_of_the_person() {
    let Some(bed) = bed_of_root() else { return };
    bed.put("work.txt", "in no commit\n");
    give(&bed.source(), AGENT);
    symlink(bed.folder.path().join("secret"), bed.source().join("link")).unwrap();
    std::fs::copy(bed.folder.path().join("secret"), bed.source().join("root.txt")).unwrap();
    mode(&bed.source().join("root.txt"), 0o600);
    let order = snapshot_order(&bed);
    let taken = bed.checkouts.snapshots.snapshot(&order, &bed.policy).await.unwrap();
    assert!(taken.left_out.join("\n").contains("root.txt"), "{:?}", taken.left_out);
    assert!(!has_secret(&bed));
    bed.put("work.txt", "changed\n");
    let again = bed.checkouts.snapshots.snapshot(&order, &bed.policy).await.unwrap();
    let keep = bed.keep_repository();
    let shown = |commit: &str| bed.git(&keep, &["show", &format!("{commit}:worktree/work.txt")]);
    assert_eq!(
        (shown(&taken.commit).as_str(), shown(&again.commit).as_str()),
        ("in no commit", "changed")
    );
    let left = std::fs::read_dir(keep.parent().unwrap()).unwrap().flatten();
    let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(".new-"));
    assert_eq!(left.count(), 0, "the repository of the person's user is removed");
    // Nothing shares an inode with what the agent can write.
    let packs = std::fs::read_dir(keep.join("objects/pack")).unwrap().flatten();
    assert!(packs.into_iter().all(|pack| pack.metadata().unwrap().nlink() == 1));
}

#[tokio::test]
async fn a_clone_of_another_user_is_made_kept_and_restored_as_that_user() {
    let Some(bed) = bed_of_root() else { return };
    let order = Order { run_as: Some(agent()), ..bed.order("one") };
    let one = bed.checkouts.clones.prepare(&order).await.unwrap();
    let tree = bed.tree("one");
    for made in ["main.txt", ".git/HEAD", ".git/config", ".git/objects/info/alternates"] {
        assert_eq!(tree.join(made).symlink_metadata().unwrap().uid(), AGENT, "{made}");
    }
    std::fs::write(tree.join("open.txt"), "open\n").unwrap();
    std::fs::remove_file(tree.join("main.txt")).unwrap();
    give(&tree.join("open.txt"), AGENT);
    let kept = bed.keep("one", &one).await;
    assert!(kept.proof.is_some(), "{:?}", kept.left_out);
    std::fs::remove_dir_all(tree.parent().unwrap()).unwrap();
    let restores = Some(restored(&kept, &one));
    bed.checkouts.clones.prepare(&Order { restores, ..order }).await.unwrap();
    assert_eq!(std::fs::read_to_string(tree.join("open.txt")).unwrap(), "open\n");
    assert!(!tree.join("main.txt").exists());
    assert_eq!(tree.join("open.txt").metadata().unwrap().uid(), AGENT);
    // A person's folder gets files of that person.
    let home = bed.folder.path().join("home");
    std::fs::create_dir(&home).unwrap();
    give(&home, PERSON);
    let project = "shop".parse().unwrap();
    let id = "one".parse().unwrap();
    let to = home.join("restored");
    let commit = &kept.kept_commit;
    bed.checkouts.results.write_kept_to(&project, &id, commit, &to).await.unwrap();
    assert_eq!(to.join("open.txt").metadata().unwrap().uid(), PERSON);
}

#[tokio::test]
async fn what_an_earlier_version_left_is_mended_once() {
    let Some(bed) = bed_of_root() else { return };
    let (one, tree) = bed.prepare("one").await;
    bed.commit(&tree, "one.txt", "one\n");
    let commit = bed.keep("one", &one).await.head_commit.unwrap();
    // That version linked packs, and wrote objects, refs and files as root.
    let keep = bed.keep_repository();
    let packs = keep.join("objects/pack");
    let pack = super::upgrades::pack_in(&packs);
    let linked = bed.folder.path().join("linked.pack");
    std::fs::hard_link(&pack, &linked).unwrap();
    let index = pack.with_extension("idx");
    std::fs::hard_link(&index, bed.folder.path().join("linked.idx")).unwrap();
    std::fs::remove_file(keep.join("mended")).unwrap();
    give(&bed.source(), PERSON);
    let secret = bed.source().join("only-root.txt");
    std::fs::write(&secret, SECRET).unwrap();
    mode(&secret, 0o600);
    let named_twice = bed.source().join("several.txt");
    std::fs::write(&named_twice, "two names\n").unwrap();
    std::fs::hard_link(&named_twice, bed.folder.path().join("other-name.txt")).unwrap();
    let left = ["main.txt", ".git/index", ".git/refs/heads", ".git/refs/heads/main"];
    for path in left {
        lchown(bed.source().join(path), Some(0), Some(0)).unwrap();
    }
    symlink(bed.folder.path().join("secret"), bed.source().join("link")).unwrap();

    let before = bed.checkouts.keep.list_upgrades();
    let n_bytes: u64 = [&pack, &index].map(|file| file.metadata().unwrap().len()).iter().sum();
    assert_eq!((before.len(), before[0].n_bytes, before[0].left.len()), (1, n_bytes, 0));

    let merged = bed.checkouts.results.merge(&bed.merge_order("one", &one)).await.unwrap();
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
    let after = bed.checkouts.keep.list_upgrades().pop().unwrap();
    let named: BTreeSet<&Path> = after.left.iter().map(Path::new).collect();
    let link = bed.source().join("link");
    assert_eq!(named, [&secret, &named_twice, &link].map(PathBuf::as_path).into());
    let owner = format!("{PERSON}:{PERSON}");
    assert_eq!((after.n_bytes, after.owner), (0, owner));
    for path in left {
        let found = bed.source().join(path).symlink_metadata().unwrap();
        assert_eq!(found.uid(), PERSON, "{path}");
    }
    for path in [&secret, &named_twice, &bed.folder.path().join("secret")] {
        assert_eq!(path.metadata().unwrap().uid(), 0, "{} stays root's", path.display());
    }
    assert!([&pack, &index].into_iter().all(|file| file.metadata().unwrap().nlink() == 1));
    std::fs::write(&linked, "overwritten").unwrap();
    bed.git(&keep, &["fsck", "--no-dangling"]);
    for step in [&["commit", "--quiet", "--allow-empty", "-m", "of the person"][..], &["gc"]] {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=Ann", "-c", "user.email=ann@example.invalid"]).args(step);
        git.current_dir(bed.source()).env("HOME", "/nonexistent").uid(PERSON).gid(PERSON);
        let ended = git.output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
    }
    let order = PublishOrder {
        id: "one".parse().unwrap(),
        project: "shop".parse().unwrap(),
        source: bed.source(),
        branch: "agents/one".to_owned(),
        commit: commit.clone(),
        last: None,
    };
    let published = bed.checkouts.results.publish_branch(&order).await.unwrap();
    assert_eq!((published.branch.as_str(), published.commit), ("agents/one", commit.clone()));
    let name = bed.source().join(".git/refs/heads/agents/one");
    assert_eq!(std::fs::read_to_string(&name).unwrap().trim_end(), commit);
    assert_eq!(name.metadata().unwrap().uid(), PERSON);
    let keep = Bed::keep_order("one", &one);
    let order = DiffOrder { keep, is_in_use: false, result: None, of: DiffKind::Stat };
    let diff = String::from_utf8(bed.checkouts.results.diff(&order).await.unwrap()).unwrap();
    assert!(diff.contains("one.txt | 1 +"), "{diff}");
    // It is done once: what root leaves later is a person's own matter.
    lchown(bed.source().join("main.txt"), Some(0), Some(0)).unwrap();
    bed.checkouts.clones.prepare(&bed.order("two")).await.unwrap();
    assert_eq!(bed.source().join("main.txt").metadata().unwrap().uid(), 0);
}
