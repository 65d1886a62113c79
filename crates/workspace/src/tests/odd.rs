//! Content that is hard to keep, and repositories that were damaged.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::SystemTime;

use super::*;

impl Bed {
    /// Returns the content of a file of the kept state.
    fn kept_bytes(&self, kept: &Content, name: &str) -> Vec<u8> {
        let name = format!("{}:worktree/{name}", kept.kept_commit);
        let output = Command::new("git")
            .args(["cat-file", "blob", &name])
            .current_dir(self.keep_repository())
            .env("HOME", self.folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{name}");
        output.stdout
    }

    /// Writes the kept state into a new folder and returns it.
    async fn written(&self, id: &str, kept: &Content) -> PathBuf {
        let to = self.folder.path().join("written");
        let (project, id) = ("shop".parse().unwrap(), id.parse().unwrap());
        self.checkouts.results.write_kept_to(&project, &id, &kept.kept_commit, &to).await.unwrap();
        to
    }
}

#[tokio::test]
async fn what_an_agent_does_to_its_repository_changes_no_other() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    let (two, other) = bed.prepare("two").await;
    bed.commit(&other, "other.txt", "other\n");
    std::fs::write(other.join("main.txt"), "changed\n").unwrap();
    bed.git(&other, &["stash", "push", "--quiet"]);
    bed.put("main.txt", "a person's change\n");
    bed.git(&bed.source(), &["stash", "push", "--quiet"]);
    bed.git(&bed.source(), &["branch", "aside"]);
    let state = |folder: &Path| {
        let refs = bed.git(folder, &["for-each-ref"]);
        [refs, bed.git(folder, &["stash", "list"]), bed.git(folder, &["config", "--list"])]
    };
    let before = [bed.source(), other.clone()].map(|folder| state(&folder));
    bed.commit(&tree, "work.txt", "work\n");
    bed.git(&tree, &["branch", "mine"]);
    for call in [
        &["branch", "--quiet", "-D", "mine"][..],
        &["stash", "clear"],
        &["config", "core.hooksPath", "/nowhere"],
        &["reflog", "expire", "--expire=now", "--all"],
        &["gc", "--quiet", "--prune=now"],
    ] {
        bed.git(&tree, call);
    }
    assert_eq!([bed.source(), other.clone()].map(|folder| state(&folder)), before);
    for (id, prepared) in [("one", &one), ("two", &two)] {
        let kept = bed.keep(id, prepared).await;
        assert_eq!((kept.n_commits, kept.proof.is_some()), (1, true), "{kept:?}");
    }
    for folder in [bed.source(), tree, other] {
        bed.git(&folder, &["fsck", "--strict"]);
    }
}

#[tokio::test]
async fn a_repository_in_the_middle_of_something_is_kept() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    bed.git(&tree, &["checkout", "--quiet", "-b", "theirs"]);
    bed.commit(&tree, "main.txt", "theirs\n");
    let theirs = bed.git(&tree, &["rev-parse", "HEAD"]);
    bed.git(&tree, &["checkout", "--quiet", "agents/one"]);
    bed.commit(&tree, "main.txt", "ours\n");
    let merge = Command::new("git").args(["merge", "theirs"]).current_dir(&tree).output().unwrap();
    assert!(!merge.status.success() && tree.join(".git/MERGE_HEAD").exists());
    for (name, content) in [("index", "garbage"), ("index.lock", ""), ("HEAD.lock", "")] {
        std::fs::write(tree.join(".git").join(name), content).unwrap();
    }
    let kept = bed.keep("one", &one).await;
    assert_eq!((kept.n_commits, kept.proof.is_some()), (1, true), "{kept:?}");
    let list = ["rev-list", &kept.kept_commit];
    assert!(bed.git(&bed.keep_repository(), &list).contains(&theirs));
    let half = String::from_utf8(bed.kept_bytes(&kept, "main.txt")).unwrap();
    assert!(half.contains("<<<<<<<"), "{half}");
    assert!(tree.join(".git/index.lock").exists(), "the agent is told by its own git");
}

#[tokio::test]
async fn files_of_all_names_come_back() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    let long: PathBuf = std::iter::repeat_n("x".repeat(200), 14).collect();
    let names: Vec<PathBuf> = [
        &b"new\nline"[..],
        b"invalid\xff\xfeutf-8",
        b":(exclude)main.txt",
        b"-rf",
        b"--all",
        b"git~1",
        b"Case",
        b"case",
        b"CASE/file",
        b"a\\b",
        b" ",
        b"*",
    ]
    .map(|name| PathBuf::from(OsStr::from_bytes(name)))
    .into_iter()
    .chain([long.join("file")])
    .collect();
    for (n, name) in names.iter().enumerate() {
        let path = tree.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("content {n}")).unwrap();
    }
    let kept = bed.keep("one", &one).await;
    assert_eq!((kept.left_out.as_slice(), kept.proof.is_some()), ([].as_slice(), true));
    let written = bed.written("one", &kept).await;
    for (n, name) in names.iter().enumerate() {
        let content = std::fs::read_to_string(written.join(name)).unwrap();
        assert_eq!(content, format!("content {n}"), "{name:?}");
    }
}

#[tokio::test]
async fn bytes_that_attributes_would_change_are_kept_as_they_are() {
    let bed = Bed::new();
    let attributes = "*.txt text=auto\n*.crlf text eol=crlf\n*.id ident\n*.lfs filter=lfs\n\
        *.utf text working-tree-encoding=UTF-16LE\n";
    bed.put(".gitattributes", attributes);
    bed.git(&bed.source(), &["add", "."]);
    bed.git(&bed.source(), &["commit", "--quiet", "-m", "attributes"]);
    let (one, tree) = bed.prepare("one").await;
    let files: [(&str, &[u8]); 5] = [
        ("mixed.txt", b"one\r\ntwo\nthree\r\n"),
        ("lines.crlf", b"one\ntwo\r\n"),
        ("named.id", b"$Id: mine $\n"),
        ("large.lfs", b"not a pointer\n"),
        ("wide.utf", b"\xff\xfea\0b\0\n\0"),
    ];
    for (name, content) in files {
        std::fs::write(tree.join(name), content).unwrap();
    }
    let kept = bed.keep("one", &one).await;
    assert!(kept.proof.is_some(), "{kept:?}");
    let written = bed.written("one", &kept).await;
    for (name, content) in files {
        assert_eq!(bed.kept_bytes(&kept, name), content, "{name}");
        assert_eq!(std::fs::read(written.join(name)).unwrap(), content, "{name}");
    }
}

#[tokio::test]
async fn changes_that_git_is_told_to_overlook_are_kept() {
    let bed = Bed::new();
    for name in ["assumed.txt", "skipped.txt", "dated.txt"] {
        bed.put(name, "before\n");
    }
    bed.git(&bed.source(), &["add", "."]);
    bed.git(&bed.source(), &["commit", "--quiet", "-m", "files"]);
    let (one, tree) = bed.prepare("one").await;
    bed.keep("one", &one).await;
    bed.git(&tree, &["update-index", "--assume-unchanged", "assumed.txt"]);
    bed.git(&tree, &["update-index", "--skip-worktree", "skipped.txt"]);
    let dated = tree.join("dated.txt");
    let time = dated.metadata().unwrap().modified().unwrap();
    for name in ["assumed.txt", "skipped.txt", "dated.txt"] {
        // The size stays the same.
        std::fs::write(tree.join(name), "behind\n").unwrap();
    }
    let file = std::fs::File::options().write(true).open(&dated).unwrap();
    file.set_modified(time).unwrap();
    let kept = bed.keep("one", &one).await;
    for name in ["assumed.txt", "skipped.txt", "dated.txt"] {
        assert_eq!(bed.kept_bytes(&kept, name), b"behind\n", "{name}");
    }
    assert_eq!((kept.n_uncommitted, time < SystemTime::now()), (3, true));
}

#[tokio::test]
async fn without_its_keep_repository_nothing_is_removed() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    bed.commit(&tree, "work.txt", "work\n");
    let kept = bed.keep("one", &one).await;
    let (project, id): (ProjectId, WorkspaceId) = ("shop".parse().unwrap(), "one".parse().unwrap());
    assert!(!bed.checkouts.places.is_removed(&project, &id));
    let keep = bed.keep_repository();
    let aside = bed.folder.path().join("aside");
    std::fs::rename(&keep, &aside).unwrap();
    let order = Bed::keep_order("one", &one);
    let proof = kept.proof.unwrap();
    let removal = RemoveOrder { keep: order.clone(), proof, kept_commit: kept.kept_commit };
    bed.checkouts.clones.remove(&removal, &bed.policy).await.unwrap_err();
    assert!(tree.join("work.txt").exists(), "its files are all that there is");
    // Nor with another repository in its place.
    bed.git(bed.folder.path(), &["init", "--quiet", "--bare", keep.to_str().unwrap()]);
    let refused = bed.checkouts.clones.remove(&removal, &bed.policy).await.unwrap_err();
    assert!(refused.needs_person() && refused.to_string().contains("keep.git"), "{refused}");
    assert!(tree.join("work.txt").exists());
    std::fs::remove_dir_all(&keep).unwrap();
    std::fs::write(tree.join("late.txt"), "late").unwrap();
    for garbage in [false, true] {
        if garbage {
            std::fs::write(&keep, "garbage").unwrap();
        }
        bed.checkouts.clones.keep(&order, &bed.policy).await.unwrap_err();
        bed.checkouts.clones.remove(&removal, &bed.policy).await.unwrap_err();
        assert!(tree.join("late.txt").exists() && tree.join("work.txt").exists());
    }
    std::fs::remove_file(&keep).unwrap();
    // Without the repository, a missing folder may be on a disk that is missing, too.
    let elsewhere = bed.folder.path().join("elsewhere");
    std::fs::rename(tree.parent().unwrap(), &elsewhere).unwrap();
    assert!(!bed.checkouts.places.is_removed(&project, &id));
    std::fs::rename(&aside, &keep).unwrap();
    assert!(bed.checkouts.places.is_removed(&project, &id));
    std::fs::rename(&elsewhere, tree.parent().unwrap()).unwrap();
    let kept = bed.keep("one", &one).await;
    assert_eq!((kept.n_commits, kept.proof.is_some()), (1, true), "{kept:?}");
    assert_eq!(bed.kept_bytes(&kept, "late.txt"), b"late");
}

#[tokio::test]
async fn pipes_and_paths_that_are_too_long_are_named_and_stay() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    let made = Command::new("mkfifo").arg(tree.join("pipe")).status().unwrap();
    assert!(made.success());
    // Each half of the path is short enough for the system, and the whole is not.
    let half: PathBuf = std::iter::repeat_n("x".repeat(200), 11).collect();
    for start in ["first", "second"] {
        std::fs::create_dir_all(tree.join(start).join(&half)).unwrap();
    }
    std::fs::write(tree.join("second").join(&half).join("file"), "deep").unwrap();
    let whole = tree.join("first").join(&half).join("second");
    std::fs::rename(tree.join("second"), whole).unwrap();
    std::fs::write(tree.join("kept.txt"), "kept").unwrap();
    let kept = bed.keep("one", &one).await;
    assert_eq!(kept.proof, None);
    for start in ["pipe: it is a special file", "first/xxx"] {
        let is_named = kept.left_out.iter().any(|entry| entry.starts_with(start));
        assert!(is_named, "{start} is not in {:?}", kept.left_out);
    }
    assert_eq!(bed.kept_bytes(&kept, "kept.txt"), b"kept");
}

#[tokio::test]
async fn clones_that_are_made_and_kept_at_once_are_whole() {
    let bed = Arc::new(Bed::new());
    let mut steps = tokio::task::JoinSet::new();
    for n in 0..12 {
        let bed = Arc::clone(&bed);
        steps.spawn(async move {
            let id = format!("at_once_{n}");
            let (prepared, tree) = bed.prepare(&id).await;
            bed.commit(&tree, "work.txt", &id);
            if n % 4 == 0 {
                bed.git(&bed.source(), &["gc", "--quiet", "--prune=now"]);
            }
            bed.keep(&id, &prepared).await
        });
    }
    while let Some(kept) = steps.join_next().await {
        let kept = kept.unwrap();
        assert_eq!((kept.n_commits, kept.proof.is_some()), (1, true), "{kept:?}");
    }
    assert_eq!(bed.git(&bed.keep_repository(), &["fsck", "--no-dangling"]), "");
}

#[tokio::test]
async fn git_refuses_to_prune_what_clones_may_borrow() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    let keep = bed.keep_repository();
    // Nothing of the keep repository reaches this file, and the clone does not write it again.
    let file = bed.folder.path().join("file");
    std::fs::write(&file, "borrowed").unwrap();
    let id = bed.git(&keep, &["hash-object", "-w", file.to_str().unwrap()]);
    bed.commit(&tree, "borrowed.txt", "borrowed");
    let of_clone = tree.join(".git/objects").join(&id[..2]).join(&id[2..]);
    assert!(!of_clone.exists(), "the clone borrows it");
    let call = |arguments: &[&str]| {
        let git = Command::new("git").args(arguments).current_dir(&keep).output().unwrap();
        (git.status.success(), String::from_utf8_lossy(&git.stderr).into_owned())
    };
    for arguments in [&["prune", "--expire=now"][..], &["repack", "-a", "-d"]] {
        let (is_done, message) = call(arguments);
        assert!(!is_done && message.contains("precious"), "{message}");
    }
    call(&["gc", "--quiet", "--prune=now"]);
    assert_eq!(bed.git(&tree, &["fsck", "--strict"]), "");
    let kept = bed.keep("one", &one).await;
    assert!(kept.proof.is_some(), "{kept:?}");
    // Without a clone, nothing borrows from it.
    let proof = kept.proof.clone().unwrap();
    let kept_commit = kept.kept_commit.clone();
    let order = RemoveOrder { keep: Bed::keep_order("one", &one), proof, kept_commit };
    bed.checkouts.clones.remove(&order, &bed.policy).await.unwrap();
    assert!(call(&["prune", "--expire=now"]).0);
    bed.prepare_again("one", &one, &kept).await.unwrap();
    assert_eq!(std::fs::read_to_string(tree.join("borrowed.txt")).unwrap(), "borrowed");
    assert!(!call(&["prune", "--expire=now"]).0, "there is a clone again");
}

#[tokio::test]
async fn git_may_prune_after_the_only_clone_went_unused() {
    let bed = Bed::new();
    bed.prepare("one").await;
    let (project, id) = ("shop".parse().unwrap(), "one".parse().unwrap());
    bed.checkouts.clones.remove_unused(&project, &id).await.unwrap();
    assert!(!bed.tree("one").exists());
    bed.git(&bed.keep_repository(), &["prune", "--expire=now"]);
}
