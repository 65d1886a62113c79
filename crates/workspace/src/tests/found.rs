//! Results that agents left on branches of their own.

use super::*;
use domain::workspace::Choice;

/// Returns the choice of a commit among the tips of a kept content.
fn choice(commit: &str, content: &Content) -> Choice {
    Choice { commit: commit.to_owned(), among: content.tips.clone() }
}

/// Returns the names and the numbers of commits of the tips beside the result.
fn others(content: &Content) -> Vec<(&str, u32)> {
    content.others.iter().map(|other| (other.name(), other.n_commits)).collect()
}

#[tokio::test]
async fn the_result_is_found_wherever_the_agent_left_it() {
    type Work = fn(&Bed, &Path) -> PathBuf;
    let ways: [(&str, Work); 6] = [
        ("in a linked work tree inside", |bed, tree| {
            bed.git(tree, &["worktree", "add", "--quiet", "-b", "wt", ".wt/x"]);
            tree.join(".wt/x")
        }),
        ("on a branch that stays", |bed, tree| {
            bed.git(tree, &["checkout", "--quiet", "-b", "feature"]);
            tree.to_owned()
        }),
        ("with a detached HEAD", |bed, tree| {
            bed.git(tree, &["checkout", "--quiet", "--detach"]);
            tree.to_owned()
        }),
        ("on a branch without history", |bed, tree| {
            bed.git(tree, &["checkout", "--quiet", "--orphan", "fresh"]);
            tree.to_owned()
        }),
        ("on a renamed branch", |bed, tree| {
            bed.git(tree, &["branch", "-m", "renamed"]);
            tree.to_owned()
        }),
        ("on the branch of the task", |_, tree| tree.to_owned()),
    ];
    for (n, (way, work)) in ways.into_iter().enumerate() {
        let bed = Bed::new();
        let id = format!("w{n}");
        let (made, tree) = bed.prepare(&id).await;
        let folder = work(&bed, &tree);
        bed.commit(&folder, "work.txt", "work\n");
        let head = bed.head(&folder);
        let kept = bed.keep(&id, &made).await;
        assert_eq!(kept.head_commit, Some(head.clone()), "{way}");
        let counts = (kept.n_commits, kept.n_files, kept.n_uncommitted, others(&kept).len());
        assert_eq!(counts, (1, 1, 0, 0), "{way}: {kept:?}");
        assert!(kept.proof.is_some() && !kept.is_undecided, "{way}: {kept:?}");
        if way == "on a branch without history" {
            let refused =
                bed.checkouts.results.merge(&bed.merge_order(&id, &made)).await.unwrap_err();
            assert!(refused.to_string().contains("no commit in common"), "{refused}");
        } else {
            let merged = bed.checkouts.results.merge(&bed.merge_order(&id, &made)).await.unwrap();
            assert_eq!(merged, Merged::Into { branch: "main".to_owned(), commit: head }, "{way}");
            assert_eq!(bed.read("work.txt"), "work\n");
        }
    }
}

#[tokio::test]
async fn a_branch_that_was_left_again_is_the_result_if_it_is_the_only_one() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    bed.git(&tree, &["checkout", "--quiet", "-b", "feature"]);
    bed.commit(&tree, "work.txt", "work\n");
    let head = bed.head(&tree);
    bed.git(&tree, &["checkout", "--quiet", "agents/one"]);
    std::fs::write(tree.join("left.txt"), "in no commit\n").unwrap();
    let kept = bed.keep("one", &one).await;
    assert_eq!((kept.head_commit.as_ref(), kept.n_commits), (Some(&head), 1));
    assert_eq!((kept.n_uncommitted, kept.n_changed), (1, 0));
    // The merge takes the file that is in no commit with the result.
    let order = MergeOrder { with_uncommitted: true, ..bed.merge_order("one", &one) };
    let merged = bed.checkouts.results.merge(&order).await.unwrap();
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
    assert_eq!(
        (bed.read("work.txt"), bed.read("left.txt")),
        ("work\n".into(), "in no commit\n".into())
    );
}

#[tokio::test]
async fn what_the_result_lacks_is_named_and_what_nobody_prefers_waits_for_a_choice() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    bed.commit(&tree, "one.txt", "one\n");
    let result = bed.head(&tree);
    bed.commit(&tree, "more.txt", "more\n");
    bed.git(&tree, &["branch", "backup"]);
    bed.git(&tree, &["reset", "--quiet", "--hard", "HEAD^"]);
    bed.git(&tree, &["checkout", "--quiet", "-b", "experiment", "HEAD^"]);
    bed.commit(&tree, "two.txt", "two\n");
    // The same change in another commit is nothing that the result lacks.
    bed.git(&tree, &["checkout", "--quiet", "-b", "same", "HEAD^"]);
    bed.git(&tree, &["cherry-pick", "--no-commit", &result]);
    bed.git(&tree, &["commit", "--quiet", "-m", "again"]);
    bed.git(&tree, &["commit", "--quiet", "--allow-empty", "-m", "no change"]);
    bed.git(&tree, &["checkout", "--quiet", "agents/one"]);
    let kept = bed.keep("one", &one).await;
    assert_eq!(kept.head_commit, Some(result));
    assert_eq!(others(&kept), [("backup", 1), ("experiment", 1)]);

    let (two, tree) = bed.prepare("two").await;
    for branch in ["x", "y"] {
        bed.git(&tree, &["checkout", "--quiet", "-b", branch, "agents/two"]);
        bed.commit(&tree, &format!("{branch}.txt"), "work\n");
    }
    let y = bed.head(&tree);
    bed.git(&tree, &["checkout", "--quiet", "agents/two"]);
    let kept = bed.keep("two", &two).await;
    assert!(kept.is_undecided);
    assert_eq!((kept.head_commit.as_ref(), kept.n_commits), (two.base_commit.as_ref(), 0));
    assert_eq!(others(&kept), [("x", 1), ("y", 1)]);
    let order = KeepOrder { chosen: Some(choice(&y, &kept)), ..Bed::keep_order("two", &two) };
    let kept = bed.checkouts.clones.keep(&order, &bed.policy).await.unwrap();
    assert_eq!((kept.head_commit.as_ref(), kept.is_undecided), (Some(&y), false));
    assert_eq!(others(&kept), [("x", 1)]);
    // The choice is taken back by name.
    let x = kept.other("x").unwrap().clone();
    let chosen = bed.checkouts.clones.choose_result(&order, x.clone(), kept).await.unwrap();
    assert_eq!((chosen.head_commit.as_ref(), chosen.n_commits), (Some(&x.commit), 1));
    assert_eq!(others(&chosen), [("y", 1)]);
    let y = chosen.other("y").unwrap().clone();
    let chosen = bed.checkouts.clones.choose_result(&order, y.clone(), chosen).await.unwrap();
    assert_eq!((chosen.head_commit.as_ref(), others(&chosen)), (Some(&y.commit), vec![("x", 1)]));
    // A branch that is not needed is never the result, until it has more commits.
    let dropped = [x.commit.clone()].into();
    let order = KeepOrder { chosen: None, dropped, ..order };
    let kept = bed.checkouts.clones.keep(&order, &bed.policy).await.unwrap();
    assert_eq!((kept.head_commit.as_ref(), kept.is_undecided), (Some(&y.commit), false));
    assert_eq!((others(&kept), kept.open_others().count()), (vec![("x", 1)], 0));
    // A later launch works elsewhere, so the choice is to be made once more.
    let order = KeepOrder { chosen: chosen.choice(), ..order };
    bed.commit(&tree, "z.txt", "work\n");
    let kept = bed.checkouts.clones.keep(&order, &bed.policy).await.unwrap();
    assert_eq!((kept.is_undecided, kept.chosen.as_ref()), (true, None));
    assert_eq!(others(&kept), [("agents/two", 1), ("x", 1), ("y", 1)]);
}

#[tokio::test]
async fn what_is_in_no_commit_comes_without_the_commits_that_it_was_left_beside() {
    let bed = Bed::new();
    for (n, (file, fits)) in [("left.txt", true), ("main.txt", false)].into_iter().enumerate() {
        let id = format!("t{n}");
        let (made, tree) = bed.prepare(&id).await;
        let branch = format!("agents/{id}");
        bed.commit(&tree, "main.txt", &format!("of the result {n}\n"));
        bed.git(&tree, &["checkout", "--quiet", "-b", "experiment", "HEAD^"]);
        bed.commit(&tree, "experiment.txt", "of no use\n");
        std::fs::write(tree.join(file), "in no commit\n").unwrap();
        let kept = bed.keep(&id, &made).await;
        assert_eq!(kept.head_commit.unwrap(), bed.git(&tree, &["rev-parse", &branch]), "{file}");
        assert_eq!(kept.n_uncommitted, 1, "{file}");
        let order = MergeOrder { with_uncommitted: true, ..bed.merge_order(&id, &made) };
        let merged = bed.checkouts.results.merge(&order).await;
        assert!(!bed.source().join("experiment.txt").exists(), "{file}");
        if fits {
            assert!(matches!(merged, Ok(Merged::Into { .. })), "{merged:?}");
            assert_eq!(bed.read("left.txt"), "in no commit\n");
        } else {
            assert!(merged.unwrap_err().to_string().contains("does not fit"), "{file}");
        }
    }
}

#[tokio::test]
async fn a_file_in_no_commit_beside_a_commit_without_changes_is_all_there_is_to_merge() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    bed.git(&tree, &["commit", "--quiet", "--allow-empty", "-m", "no change"]);
    std::fs::write(tree.join("left.txt"), "in no commit\n").unwrap();
    let kept = bed.keep("one", &one).await;
    assert_eq!((kept.n_commits, kept.n_files, kept.n_uncommitted), (1, 0, 1));
    assert!(kept.is_only_files(), "{kept:?}");
    bed.commit(&bed.source(), "other.txt", "other\n");
    let order = MergeOrder { work: WorkKind::OnlyFiles, ..bed.merge_order("one", &one) };
    assert_eq!(bed.checkouts.results.merge(&order).await.unwrap(), Merged::Nothing);
    let order = MergeOrder { with_uncommitted: true, ..order };
    let merged = bed.checkouts.results.merge(&order).await.unwrap();
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
    assert_eq!(bed.read("left.txt"), "in no commit\n");
}

#[tokio::test]
async fn what_is_in_no_commit_of_a_linked_work_tree_is_counted_named_and_merged() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    bed.git(&tree, &["worktree", "add", "--quiet", "-b", "wt", ".wt/x"]);
    let linked = tree.join(".wt/x");
    std::fs::write(linked.join("left.txt"), "in no commit\n").unwrap();
    let kept = bed.keep("one", &one).await;
    assert_eq!((kept.n_commits, kept.n_uncommitted, kept.n_changed), (0, 1, 0));
    assert!(kept.is_only_files() && !kept.is_unchanged(), "{kept:?}");
    // Beside a commit there, a file of the clone itself, and a second linked work tree.
    bed.commit(&linked, "work.txt", "work\n");
    bed.git(&tree, &["worktree", "add", "--quiet", "--detach", "second"]);
    std::fs::write(tree.join("second/main.txt"), "changed\n").unwrap();
    std::fs::write(tree.join("own.txt"), "of the clone\n").unwrap();
    let kept = bed.keep("one", &one).await;
    assert_eq!(kept.head_commit, Some(bed.head(&linked)));
    assert_eq!((kept.n_commits, kept.n_uncommitted, kept.n_changed), (1, 3, 0));
    let order = DiffOrder {
        keep: Bed::keep_order("one", &one),
        is_in_use: false,
        result: None,
        of: DiffKind::Uncommitted,
    };
    let diff = String::from_utf8(bed.checkouts.results.diff(&order).await.unwrap()).unwrap();
    for file in ["left.txt", "main.txt", "own.txt"] {
        assert!(diff.contains(&format!("+++ b/{file}")), "{file}: {diff}");
    }
    assert!(!diff.contains("work.txt"), "{diff}");
    let order = MergeOrder { with_uncommitted: true, ..bed.merge_order("one", &one) };
    let merged = bed.checkouts.results.merge(&order).await.unwrap();
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
    for (file, content) in [
        ("left.txt", "in no commit\n"),
        ("main.txt", "changed\n"),
        ("own.txt", "of the clone\n"),
        ("work.txt", "work\n"),
    ] {
        assert_eq!(bed.read(file), content, "{file}");
    }
    // Only the file of the clone itself is left.
    for (folder, name) in [(&linked, "left.txt"), (&tree.join("second"), "main.txt")] {
        bed.git(folder, &["add", name]);
        bed.git(folder, &["commit", "--quiet", "-m", name]);
    }
    let kept = bed.keep("one", &one).await;
    assert_eq!(kept.n_uncommitted, 1);
}

#[tokio::test]
async fn changes_of_two_work_trees_that_do_not_fit_together_are_all_counted() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    bed.git(&tree, &["worktree", "add", "--quiet", "-b", "wt", "linked"]);
    for folder in [&tree, &tree.join("linked")] {
        std::fs::write(folder.join("left.txt"), folder.to_str().unwrap()).unwrap();
    }
    let kept = bed.keep("one", &one).await;
    assert_eq!((kept.n_commits, kept.n_uncommitted), (0, 2));
    // The merge takes the changes of the clone itself.
    let order = MergeOrder { with_uncommitted: true, ..bed.merge_order("one", &one) };
    bed.checkouts.results.merge(&order).await.unwrap();
    assert_eq!(bed.read("left.txt"), tree.to_str().unwrap());
}

#[tokio::test]
async fn a_linked_work_tree_whose_folder_is_gone_is_not_checked_out() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    bed.commit(&tree, "one.txt", "one\n");
    bed.git(&tree, &["worktree", "add", "--quiet", "-b", "wt", "linked"]);
    bed.commit(&tree.join("linked"), "more.txt", "more\n");
    std::fs::remove_dir_all(tree.join("linked")).unwrap();
    let kept = bed.keep("one", &one).await;
    assert_eq!((kept.head_commit, kept.n_commits), (Some(bed.head(&tree)), 1));
}

#[tokio::test]
async fn a_clone_comes_back_as_it_was_left_with_its_result_elsewhere() {
    for way in ["feature", "detached"] {
        let bed = Bed::new();
        let (one, tree) = bed.prepare("one").await;
        bed.git(&tree, &["checkout", "--quiet", "-b", "feature"]);
        bed.commit(&tree, "work.txt", "work\n");
        bed.git(&tree, &["checkout", "--quiet", "agents/one"]);
        let kept = bed.keep("one", &one).await;
        let mut result = kept.head_commit.clone().unwrap();
        let mut restored = restored(&kept, &one);
        if way == "detached" {
            // Such as a commit that a person chose, and that no branch names.
            result = one.base_commit.clone().unwrap();
            bed.git(&tree, &["checkout", "--quiet", "--detach", "feature"]);
            bed.git(&tree, &["checkout", "--quiet", "-B", "agents/one"]);
            restored.kept_commit = bed.keep("one", &one).await.kept_commit;
            restored.head_commit = Some(result.clone());
        }
        std::fs::remove_dir_all(tree.parent().unwrap()).unwrap();
        let order = Order { restores: Some(restored), ..bed.order("one") };
        let again = bed.checkouts.clones.prepare(&order).await.unwrap();
        assert_eq!(bed.git(&tree, &["status", "--porcelain"]), "", "{way}");
        let all = bed.git(&tree, &["for-each-ref", "--format=%(objectname)"]);
        assert!(all.contains(&result), "{way}: {all}");
        let kept = bed.keep("one", &again).await;
        assert_eq!(kept.n_uncommitted, 0, "{way}");
    }
}

#[tokio::test]
async fn branches_of_the_source_are_no_result_of_the_agent() {
    for way in ["deleted", "rebased"] {
        let bed = Bed::new();
        let source = bed.source();
        bed.git(&source, &["checkout", "--quiet", "-b", "topic"]);
        bed.commit(&source, "topic.txt", "of a person\n");
        let topic = bed.head(&source);
        bed.git(&source, &["checkout", "--quiet", "main"]);
        let (one, tree) = bed.prepare("one").await;
        bed.git(&tree, &["checkout", "--quiet", "-b", "topic", &topic]);
        // What becomes of the branch in the source says nothing about the clone.
        if way == "deleted" {
            bed.git(&source, &["branch", "--quiet", "-D", "topic"]);
        } else {
            bed.commit(&source, "later.txt", "later\n");
            bed.git(&source, &["rebase", "--quiet", "main", "topic"]);
            assert_ne!(bed.head(&source), topic);
            bed.git(&source, &["checkout", "--quiet", "main"]);
        }
        for is_followed in [false, true] {
            if is_followed {
                // Another clone brings the branches as they are now.
                bed.prepare("two").await;
            }
            let kept = bed.keep("one", &one).await;
            let found = (kept.head_commit.as_ref(), kept.n_commits, others(&kept).len());
            assert_eq!(found, (one.base_commit.as_ref(), 0, 0), "{way}, {is_followed}");
        }
        bed.commit(&tree, "work.txt", "work\n");
        let kept = bed.keep("one", &one).await;
        let found = (kept.head_commit.clone(), others(&kept).len());
        assert_eq!(found, (Some(bed.head(&tree)), 0), "{way}");
    }
}

#[tokio::test]
async fn a_merged_result_comes_back_with_its_linked_work_tree_and_is_the_base() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    bed.git(&tree, &["worktree", "add", "--quiet", "-b", "wt", "linked"]);
    bed.commit(&tree.join("linked"), "work.txt", "work\n");
    bed.git(&tree, &["branch", "backup", "wt"]);
    bed.git(&tree, &["checkout", "--quiet", "backup"]);
    bed.commit(&tree, "more.txt", "more\n");
    bed.git(&tree, &["checkout", "--quiet", "agents/one"]);
    std::fs::write(tree.join("linked/left.txt"), "in no commit\n").unwrap();
    let kept = bed.keep("one", &one).await;
    let result = bed.head(&tree.join("linked"));
    assert_eq!(kept.head_commit, Some(result.clone()));
    assert_eq!(others(&kept), [("backup", 1)]);
    assert_eq!(kept.n_uncommitted, 1, "in the linked work tree");
    bed.checkouts.results.merge(&bed.merge_order("one", &one)).await.unwrap();
    std::fs::remove_dir_all(tree.parent().unwrap()).unwrap();
    let restores = Some(Restored { base_commit: None, ..restored(&kept, &one) });
    let again =
        bed.checkouts.clones.prepare(&Order { restores, ..bed.order("one") }).await.unwrap();
    assert_eq!(std::fs::read_to_string(tree.join("linked/left.txt")).unwrap(), "in no commit\n");
    let kept = bed.keep("one", &again).await;
    assert_eq!((kept.head_commit.as_ref(), kept.n_commits), (Some(&result), 0), "nothing is new");
    assert_eq!((kept.n_uncommitted, others(&kept).len()), (0, 0));
}

#[tokio::test]
async fn a_repeated_squash_or_rebase_writes_no_empty_commit() {
    for style in [MergeStyle::Squash, MergeStyle::Rebase] {
        let bed = Bed::new();
        let (one, tree) = bed.prepare("one").await;
        bed.commit(&tree, "one.txt", "one\n");
        bed.keep("one", &one).await;
        bed.commit(&bed.source(), "other.txt", "of a person\n");
        let order = MergeOrder { style, ..bed.merge_order("one", &one) };
        let merged = bed.checkouts.results.merge(&order).await.unwrap();
        assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
        let head = bed.head(&bed.source());
        for style in [style, MergeStyle::Squash, MergeStyle::Merge] {
            let order = MergeOrder { style, ..order.clone() };
            let again = bed.checkouts.results.merge(&order).await.unwrap();
            assert!(matches!(again, Merged::Already { .. }), "{style:?}: {again:?}");
            assert_eq!(bed.head(&bed.source()), head, "{style:?}");
        }
        // After a revert it is merged again.
        bed.git(&bed.source(), &["revert", "--no-edit", "HEAD"]);
        let again = bed.checkouts.results.merge(&order).await.unwrap();
        assert!(matches!(again, Merged::Into { .. }), "{style:?}: {again:?}");
        assert_eq!(bed.read("one.txt"), "one\n");
    }
}

#[tokio::test]
async fn a_branch_below_that_of_the_task_comes_back_as_a_commit() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    bed.git(&tree, &["branch", "other"]);
    bed.git(&tree, &["branch", "-m", "agents/one/fix"]);
    bed.commit(&tree, "work.txt", "work\n");
    let head = bed.head(&tree);
    let kept = bed.keep("one", &one).await;
    assert_eq!(kept.head_commit.as_ref(), Some(&head));
    std::fs::remove_dir_all(tree.parent().unwrap()).unwrap();
    bed.prepare_again("one", &one, &kept).await.unwrap();
    assert_eq!(
        (bed.head(&tree), bed.git(&tree, &["status", "--porcelain"])),
        (head, String::new())
    );
    assert_eq!(bed.git(&tree, &["rev-parse", "other"]), one.base_commit.unwrap());
}

#[tokio::test]
async fn a_clone_of_an_earlier_version_keeps_its_result_after_a_merge() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    bed.commit(&tree, "one.txt", "one\n");
    bed.git(&tree, &["checkout", "--quiet", "-b", "backup", "HEAD^"]);
    bed.commit(&tree, "old.txt", "an attempt\n");
    bed.git(&tree, &["checkout", "--quiet", "agents/one"]);
    let made = tree.parent().unwrap().join("made.json");
    let mut without: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&made).unwrap()).unwrap();
    assert!(without.as_object_mut().unwrap().remove("begun").is_some());
    std::fs::write(&made, without.to_string()).unwrap();
    let kept = bed.keep("one", &one).await;
    assert_eq!(kept.head_commit, Some(bed.head(&tree)));
    bed.checkouts.results.merge(&bed.merge_order("one", &one)).await.unwrap();
    bed.prepare("two").await;
    let kept = bed.keep("one", &one).await;
    assert_eq!(kept.head_commit, Some(bed.head(&tree)), "the source has it now");
    std::fs::remove_dir_all(tree.parent().unwrap()).unwrap();
    let again = bed.prepare_again("one", &one, &kept).await.unwrap();
    let kept = bed.keep("one", &again).await;
    assert_eq!((kept.head_commit, kept.n_commits), (Some(bed.head(&tree)), 1));
}

#[tokio::test]
async fn a_choice_that_contains_the_result_before_can_be_taken_back() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    bed.commit(&tree, "one.txt", "one\n");
    let result = bed.head(&tree);
    bed.git(&tree, &["checkout", "--quiet", "-b", "backup"]);
    bed.commit(&tree, "more.txt", "more\n");
    bed.git(&tree, &["checkout", "--quiet", "agents/one"]);
    let kept = bed.keep("one", &one).await;
    let order = Bed::keep_order("one", &one);
    let backup = kept.other("backup").unwrap().clone();
    let chosen = bed.checkouts.clones.choose_result(&order, backup.clone(), kept).await.unwrap();
    assert_eq!((chosen.n_commits, others(&chosen)), (2, vec![("agents/one", 0)]));
    let order = KeepOrder { chosen: chosen.choice(), ..order };
    let kept = bed.checkouts.clones.keep(&order, &bed.policy).await.unwrap();
    assert_eq!(kept.head_commit, Some(backup.commit.clone()));
    let former = kept.other("agents/one").unwrap().clone();
    let back = bed.checkouts.clones.choose_result(&order, former, kept).await.unwrap();
    assert_eq!((back.head_commit.as_ref(), others(&back)), (Some(&result), vec![("backup", 1)]));
}

#[tokio::test]
async fn a_branch_whose_changes_are_in_the_chosen_result_is_not_named_any_more() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    bed.commit(&tree, "one.txt", "one\n");
    bed.git(&tree, &["checkout", "--quiet", "-b", "backup"]);
    bed.commit(&tree, "more.txt", "more\n");
    for (branch, command) in [("merged", "merge"), ("picked", "cherry-pick")] {
        bed.git(&tree, &["checkout", "--quiet", "-b", branch, "agents/one"]);
        bed.commit(&tree, branch, "work\n");
        bed.git(&tree, &[command, "backup"]);
    }
    bed.git(&tree, &["checkout", "--quiet", "agents/one"]);
    let kept = bed.keep("one", &one).await;
    assert_eq!(others(&kept), [("backup", 1), ("merged", 2), ("picked", 2)]);
    for (taken, other) in [("merged", "picked"), ("picked", "merged")] {
        let order = Bed::keep_order("one", &one);
        let tip = kept.other(taken).unwrap().clone();
        let chosen = bed.checkouts.clones.choose_result(&order, tip, kept.clone()).await.unwrap();
        assert_eq!(others(&chosen), [(other, 1), ("agents/one", 0)], "{taken}");
        let order = KeepOrder { chosen: chosen.choice(), ..order };
        let again = bed.checkouts.clones.keep(&order, &bed.policy).await.unwrap();
        assert_eq!(others(&again), [("agents/one", 0), (other, 1)], "{taken}");
    }
}
