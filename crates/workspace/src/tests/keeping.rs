//! What agents leave in their clones is kept before it goes.

use super::*;

#[tokio::test]
async fn nothing_that_an_agent_wrote_is_lost() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    let put = |name: &str, content: &str| std::fs::write(tree.join(name), content).unwrap();
    bed.commit(&tree, "amended.txt", "before the amend");
    put("amended.txt", "after the amend");
    bed.git(&tree, &["commit", "--quiet", "--all", "--amend", "-m", "amended"]);
    put("stashed.txt", "in the stash");
    bed.git(&tree, &["stash", "push", "--quiet", "--include-untracked"]);
    put("dropped.txt", "in a dropped stash");
    bed.git(&tree, &["stash", "push", "--quiet", "--include-untracked"]);
    bed.git(&tree, &["stash", "drop", "--quiet"]);
    bed.git(&tree, &["checkout", "--quiet", "--detach"]);
    bed.commit(&tree, "detached.txt", "on no branch");
    bed.git(&tree, &["checkout", "--quiet", "agents/one"]);
    put("staged.txt", "staged once");
    bed.git(&tree, &["add", "staged.txt"]);
    put("staged.txt", "overwritten");
    put("secret.log", "ignored");
    std::fs::create_dir_all(tree.join("target")).unwrap();
    put("target/built", "can be built again");
    std::os::unix::fs::symlink("/etc/hostname", tree.join("link")).unwrap();
    put("run.sh", "#!/bin/sh\n");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(tree.join("run.sh"), executable).unwrap();
    put("main.txt", "hidden change\r\n");
    bed.git(&tree, &["update-index", "--assume-unchanged", "main.txt"]);
    bed.git(&tree, &["reflog", "expire", "--expire=now", "--all"]);

    let kept = bed.keep("one", &one).await;
    assert_eq!(kept.left_out, Vec::<String>::new());
    let keep = bed.keep_repository();
    let list = ["rev-list", "--objects", "--no-object-names", &kept.kept_commit];
    let reached = bed.git(&keep, &list);
    for content in [
        "before the amend",
        "after the amend",
        "in the stash",
        "in a dropped stash",
        "staged once",
        "overwritten",
        "ignored",
        "hidden change\r\n",
        "on no branch",
    ] {
        let file = bed.folder.path().join("content");
        std::fs::write(&file, content).unwrap();
        let id = bed.git(bed.folder.path(), &["hash-object", file.to_str().unwrap()]);
        assert!(reached.contains(&id), "{content:?} is lost");
    }
    let fsck = bed.git(&keep, &["fsck", "--no-dangling", "--strict"]);
    assert_eq!(fsck, "");

    // A second workspace of the task has the same files again.
    bed.git(&tree, &["branch", "aside", "HEAD^"]);
    let kept = bed.keep("one", &one).await;
    let restores = Some(restored(&kept, &one));
    let order = Order { restores, branch: "agents/one".to_owned(), ..bed.order("again") };
    let made = bed.checkouts.clones.prepare(&order).await.unwrap();
    assert_eq!(made.base_commit, one.base_commit, "the diff shows all of the work");
    let again = bed.tree("again");
    let same = |name: &str| {
        let before = tree.join(name);
        let after = again.join(name);
        assert_eq!(std::fs::read(&before).unwrap(), std::fs::read(&after).unwrap(), "{name}");
        let modes = [before, after].map(|path| path.metadata().unwrap().permissions().mode());
        assert_eq!(modes[0], modes[1], "{name}");
    };
    ["amended.txt", "staged.txt", "secret.log", "main.txt", "run.sh"].into_iter().for_each(same);
    assert_eq!(std::fs::read_link(again.join("link")).unwrap(), Path::new("/etc/hostname"));
    assert!(!again.join("target").exists());
    for name in ["HEAD", "refs/heads/agents/one", "refs/heads/aside", "refs/stash"] {
        let of = |tree: &Path| bed.git(tree, &["rev-parse", "--symbolic-full-name", name, name]);
        assert_eq!(of(&again), of(&tree), "{name}");
    }
}

#[tokio::test]
async fn files_are_removed_only_if_they_are_those_that_were_kept() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    std::fs::write(tree.join("new.txt"), "new").unwrap();
    let kept = bed.keep("one", &one).await;
    let order = |kept: Content| RemoveOrder {
        keep: Bed::keep_order("one", &one),
        proof: kept.proof.unwrap_or_default(),
        kept_commit: kept.kept_commit,
    };
    std::fs::write(tree.join("late.txt"), "written after it was kept").unwrap();
    let removal = bed.checkouts.clones.remove(&order(kept), &bed.policy).await.unwrap();
    let Removal::KeptAgain(kept) = removal else { panic!("{removal:?}") };
    assert!(tree.join("late.txt").exists());
    let late = format!("{}:worktree/late.txt", kept.kept_commit);
    assert_eq!(
        bed.git(&bed.keep_repository(), &["cat-file", "-p", &late]),
        "written after it was kept"
    );
    // A removal that was killed had renamed the folder. The work on the task goes on.
    let trash = bed.keep_repository().with_file_name(".trash-one");
    std::fs::rename(tree.parent().unwrap(), &trash).unwrap();
    std::fs::write(trash.join("tree/late.txt"), "written later still").unwrap();
    let kept = bed.keep("one", &one).await;
    assert!(tree.join("late.txt").exists() && kept.proof.is_some());
    let removal = bed.checkouts.clones.remove(&order(kept.clone()), &bed.policy).await.unwrap();
    assert_eq!((removal, tree.exists()), (Removal::Removed, false));
    let again = bed.checkouts.clones.remove(&order(kept), &bed.policy).await.unwrap();
    assert_eq!(again, Removal::Removed, "a repeated removal ends in the same state");
}

#[tokio::test]
async fn what_cannot_be_kept_is_named_and_keeps_the_files_from_being_removed() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    std::fs::create_dir_all(tree.join("nested")).unwrap();
    std::os::unix::fs::symlink("/somewhere", tree.join("nested/.git")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(tree.join("socket")).unwrap();
    std::fs::write(tree.join("large.log"), vec![0; 2 << 20]).unwrap();
    std::fs::write(tree.join("kept.txt"), "kept").unwrap();
    let kept = bed.keep("one", &one).await;
    assert_eq!(kept.proof, None);
    for name in ["nested/.git", "socket", "large.log"] {
        let is_named = kept.left_out.iter().any(|entry| entry.starts_with(name));
        assert!(is_named, "{name} is not in {:?}", kept.left_out);
    }
    let file = format!("{}:worktree/kept.txt", kept.kept_commit);
    assert_eq!(bed.git(&bed.keep_repository(), &["cat-file", "-p", &file]), "kept");
}

#[tokio::test]
async fn ignored_folders_with_repositories_do_not_stop_the_keeping() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    // A folder that can be built again counts for nothing, even if it has files.
    std::fs::create_dir_all(tree.join("target/nested")).unwrap();
    bed.git(&tree.join("target/nested"), &["init", "--quiet"]);
    let _socket = std::os::unix::net::UnixListener::bind(tree.join("target/socket")).unwrap();
    let kept = bed.keep("one", &one).await;
    assert_eq!((kept.left_out.as_slice(), kept.proof.is_some()), ([].as_slice(), true));
    std::fs::create_dir_all(tree.join("vendor.log/nested")).unwrap();
    bed.git(&tree.join("vendor.log/nested"), &["init", "--quiet"]);
    std::fs::write(tree.join("other.log"), "kept").unwrap();
    let kept = bed.keep("one", &one).await;
    assert_eq!((kept.left_out.as_slice(), kept.proof.is_some()), ([].as_slice(), true));
    std::fs::remove_dir_all(tree.join("vendor.log/nested/.git")).unwrap();
    std::os::unix::fs::symlink("/somewhere", tree.join("vendor.log/nested/.git")).unwrap();
    let kept = bed.keep("one", &one).await;
    assert!(kept.left_out.iter().any(|entry| entry.starts_with("vendor.log")), "{kept:?}");
    assert_eq!(kept.proof, None);
    let file = format!("{}:worktree/other.log", kept.kept_commit);
    assert_eq!(bed.git(&bed.keep_repository(), &["cat-file", "-p", &file]), "kept");
}

#[tokio::test]
async fn the_branch_stays_as_last_taken_if_the_agent_removes_its_repository() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    bed.commit(&tree, "work.txt", "work\n");
    let before = bed.keep("one", &one).await;
    std::fs::remove_dir_all(tree.join(".git")).unwrap();
    let after = bed.keep("one", &one).await;
    assert_eq!((after.n_commits, &after.head_commit), (1, &before.head_commit));
    let branch = bed.git(&bed.keep_repository(), &["rev-parse", "agents/one"]);
    assert_eq!(Some(branch), before.head_commit);
    let file = format!("{}:worktree/work.txt", after.kept_commit);
    assert_eq!(bed.git(&bed.keep_repository(), &["cat-file", "-p", &file]), "work");
}

#[tokio::test]
async fn a_link_in_the_place_of_the_tree_or_of_its_repository_is_not_followed() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    let aside = bed.folder.path().join("aside");
    std::fs::rename(tree.join(".git"), &aside).unwrap();
    std::os::unix::fs::symlink(bed.source().join(".git"), tree.join(".git")).unwrap();
    let kept = bed.keep("one", &one).await;
    assert!(kept.left_out.iter().any(|entry| entry.starts_with(".git: ")), "{kept:?}");
    assert_eq!((kept.proof, kept.head_commit), (None, one.base_commit.clone()));
    std::fs::remove_dir_all(&tree).unwrap();
    std::os::unix::fs::symlink(bed.source(), &tree).unwrap();
    let order = Bed::keep_order("one", &one);
    let refused = bed.checkouts.clones.keep(&order, &bed.policy).await.unwrap_err();
    assert!(refused.needs_person() && refused.to_string().contains("link"), "{refused}");
}
