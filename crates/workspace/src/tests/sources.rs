//! Sources that change between two workspaces, and those that lack objects.

use super::*;

#[tokio::test]
async fn a_source_that_was_changed_by_force_leaves_the_workspaces_as_they_are() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    bed.commit(&tree, "work.txt", "work\n");
    // The history is replaced, and what it had is pruned. The default branch has another name.
    bed.put("main.txt", "another history\n");
    bed.git(&bed.source(), &["checkout", "--quiet", "--orphan", "trunk"]);
    bed.git(&bed.source(), &["commit", "--quiet", "--all", "-m", "new"]);
    bed.git(&bed.source(), &["branch", "--quiet", "-D", "main"]);
    bed.git(&bed.source(), &["reflog", "expire", "--expire=now", "--all"]);
    bed.git(&bed.source(), &["gc", "--quiet", "--prune=now"]);
    let (two, other) = bed.prepare("two").await;
    assert_eq!(two.base_ref.as_deref(), Some("refs/heads/trunk"));
    assert_eq!(std::fs::read_to_string(other.join("main.txt")).unwrap(), "another history\n");
    let kept = bed.keep("one", &one).await;
    assert_eq!((kept.n_commits, kept.proof.is_some()), (1, true));
    bed.git(&tree, &["fsck", "--strict"]);
    // An attempt that was repeated begins at the commit that was pinned.
    std::fs::remove_dir_all(tree.parent().unwrap()).unwrap();
    let (again, _) = bed.prepare("one").await;
    assert_eq!(again.base_commit, one.base_commit);
}

#[tokio::test]
async fn a_source_in_the_place_of_another_one_and_a_dirty_one_give_what_their_head_names() {
    let bed = Bed::new();
    let (one, _) = bed.prepare("one").await;
    std::fs::rename(bed.source(), bed.folder.path().join("moved")).unwrap();
    let refused = bed.checkouts.clones.prepare(&bed.order("gone")).await;
    assert!(refused.is_err(), "the source exists again as an empty folder");
    bed.git(&bed.source(), &["init", "--quiet", "--initial-branch=main"]);
    bed.put("other.txt", "committed\n");
    bed.git(&bed.source(), &["add", "."]);
    bed.git(&bed.source(), &["commit", "--quiet", "-m", "another repository"]);
    bed.put("other.txt", "changed\n");
    bed.put("untracked.txt", "untracked\n");
    let (_, tree) = bed.prepare("two").await;
    assert_eq!(std::fs::read_to_string(tree.join("other.txt")).unwrap(), "committed\n");
    assert!(!tree.join("untracked.txt").exists() && !tree.join("main.txt").exists());
    assert_eq!(bed.read("other.txt"), "changed\n");
    assert!(bed.keep("one", &one).await.proof.is_some());
}

#[tokio::test]
async fn a_partial_source_is_refused_with_the_reason_and_fetches_nothing() {
    let bed = Bed::new();
    bed.git(&bed.source(), &["config", "uploadpack.allowFilter", "true"]);
    let from = format!("file://{}", bed.source().display());
    let clone = ["clone", "--quiet", "--no-checkout", "--filter=blob:none", &from, "partial"];
    bed.git(bed.folder.path(), &clone);
    let order = Order { source: bed.folder.path().join("partial"), ..bed.order("one") };
    let refused = bed.checkouts.clones.prepare(&order).await.unwrap_err();
    let message = runtime::telemetry::ErrorChain(&refused).to_string();
    assert!(message.contains("partial clone"), "{message}");
    assert!(refused.needs_person());
}

#[tokio::test]
async fn what_a_killed_git_left_in_the_keep_repository_is_in_nobodys_way() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    let keep = bed.keep_repository();
    let remains = [
        "packed-refs.lock",
        "refs/heads/agents/one.lock",
        "objects/pack/tmp_pack_x",
        "objects/pack/tmp_idx_x",
    ];
    for name in remains {
        make_folder(keep.join(name).parent().unwrap()).unwrap();
        std::fs::write(keep.join(name), "half").unwrap();
    }
    std::fs::write(tree.parent().unwrap().join("index.lock"), "half").unwrap();
    std::fs::create_dir_all(keep.parent().unwrap().join(".q-one/objects")).unwrap();
    std::fs::write(tree.join(".git/index.lock"), "of the agent").unwrap();
    let next = Checkouts::new(bed.folder.path().join("workspaces"));
    let kept = next.clones.keep(&Bed::keep_order("one", &one), &bed.policy).await.unwrap();
    assert!(kept.proof.is_some(), "{kept:?}");
    assert!(remains.iter().all(|name| !keep.join(name).exists()));
    assert!(!keep.parent().unwrap().join(".q-one").exists());
    assert!(tree.join(".git/index.lock").exists(), "this one is the agent's");
    assert_eq!(bed.git(&keep, &["fsck", "--no-dangling"]), "");
}

#[tokio::test]
async fn folders_are_measured_after_each_step_and_named_by_size() {
    let bed = Bed::new();
    assert_eq!(bed.checkouts.disk.usage(), None);
    let (_, tree) = bed.prepare("one").await;
    bed.prepare("two").await;
    assert!(bed.checkouts.disk.has_room(1 << 40).await.unwrap());
    let before = bed.checkouts.disk.usage().unwrap();
    assert!(before.n_kept_bytes > 0 && before.n_kept_bytes < before.n_bytes);
    std::fs::write(tree.join("large"), vec![1; 4 << 20]).unwrap();
    let (project, one) = ("shop".parse().unwrap(), "one".parse().unwrap());
    bed.checkouts.disk.measure_changed(&project, &one).await.unwrap();
    let after = bed.checkouts.disk.usage().unwrap();
    assert!(after.n_bytes >= before.n_bytes + (4 << 20));
    let names: Vec<_> = after.largest.iter().map(|(id, _)| id.to_string()).collect();
    assert_eq!(names, ["one", "two"]);
    assert!(!bed.checkouts.disk.has_room(after.n_bytes).await.unwrap());
}

#[tokio::test]
async fn clones_and_the_source_are_not_in_each_other() {
    let mut bed = Bed::new();
    let folder = bed.folder.path().canonicalize().unwrap();
    let link = folder.join("link");
    let real = folder.join("real");
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let source = bed.source().canonicalize().unwrap();
    let inside = source.join("clones");
    for (root, expected) in
        [(&inside, [&inside, &source]), (&folder, [&source, &folder]), (&link, [&link, &real])]
    {
        let settings = HostSettings::new(root.clone());
        let settings = HostSettings { is_root_configured: true, ..settings };
        bed.checkouts = Checkouts::with_settings(settings);
        let refused = bed.checkouts.clones.check_source(&bed.source()).await.unwrap_err();
        assert!(refused.needs_person());
        let named = expected.map(|path| format!("`{}`", path.display()));
        let message = refused.to_string();
        assert!(named.iter().all(|path| message.contains(path)), "{message}");
        let refused = bed.checkouts.clones.prepare(&bed.order("one")).await.unwrap_err();
        assert_eq!(refused.to_string(), message);
    }
    // Without a setting, a folder of the state may be in the repository.
    bed.checkouts = Checkouts::new(inside);
    bed.checkouts.clones.prepare(&bed.order("one")).await.unwrap();
}

#[tokio::test]
async fn a_branch_that_is_being_rebased_is_in_use() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    bed.commit(&tree, "one.txt", "one");
    bed.keep("one", &one).await;
    let source = bed.source();
    bed.commit(&source, "second.txt", "second");
    let linked = bed.folder.path().join("linked");
    let stop = ["-c", "sequence.editor=sed -i 1ibreak", "rebase", "-i", "HEAD~1"];
    let merge =
        || async { bed.checkouts.results.merge(&bed.merge_order("one", &one)).await.unwrap() };
    for folder in [&source, &linked] {
        if *folder == linked {
            bed.git(&source, &["checkout", "--quiet", "-b", "other"]);
            bed.git(&source, &["worktree", "add", "--quiet", linked.to_str().unwrap(), "main"]);
        }
        let at = bed.git(&source, &["rev-parse", "main"]);
        bed.git(folder, &stop);
        let head = bed.git(folder, &["rev-parse", "HEAD"]);
        let refused = merge().await;
        let Merged::InTheWay { message, .. } = &refused else { panic!("{refused:?}") };
        assert!(message.contains("`main` is being rebased"), "{message}");
        assert_eq!(bed.git(&source, &["rev-parse", "main"]), at);
        assert_eq!(bed.git(folder, &["rev-parse", "HEAD"]), head);
        bed.git(folder, &["rebase", "--abort"]);
    }
    let merged = merge().await;
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
    assert!(linked.join("one.txt").exists());
}
