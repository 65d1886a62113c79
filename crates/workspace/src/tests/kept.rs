//! Kept states: they come back, and they are given up.

use std::time::Duration;

use super::*;
use domain::Timestamp;
use domain::workspace::ForgetOrder;

/// Returns the order to make a clone again from its kept state.
pub(super) fn restored(kept: &Content, prepared: &Prepared) -> Restored {
    Restored {
        kept_commit: kept.kept_commit.clone(),
        head_commit: kept.head_commit.clone(),
        base_ref: prepared.base_ref.clone(),
        base_commit: prepared.base_commit.clone(),
    }
}

#[tokio::test]
async fn a_clone_that_was_deleted_by_hand_comes_back_from_what_was_kept() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    bed.git(&tree, &["checkout", "--quiet", "-b", "mine"]);
    bed.commit(&tree, "new.txt", "new");
    std::fs::write(tree.join("open.txt"), "in no commit").unwrap();
    std::fs::remove_file(tree.join("main.txt")).unwrap();
    let kept = bed.keep("one", &one).await;
    let (project, id) = ("shop".parse().unwrap(), "one".parse().unwrap());
    assert!(!bed.checkouts.places.is_gone(&project, &id));
    std::fs::remove_dir_all(&tree).unwrap();
    assert!(bed.checkouts.places.is_gone(&project, &id));
    // A file that a person put there is not removed.
    let theirs = tree.parent().unwrap().join("mine.txt");
    std::fs::write(&theirs, "mine").unwrap();
    let refused = bed.prepare_again("one", &one, &kept).await.unwrap_err();
    assert!(refused.needs_person() && refused.to_string().contains("other files"), "{refused}");
    assert!(theirs.exists());
    std::fs::remove_file(theirs).unwrap();
    assert_eq!(bed.prepare_again("one", &one, &kept).await.unwrap(), one);
    assert_eq!(std::fs::read_to_string(tree.join("open.txt")).unwrap(), "in no commit");
    assert!(!tree.join("main.txt").exists() && tree.join("new.txt").exists());
    assert_eq!(bed.git(&tree, &["symbolic-ref", "HEAD"]), "refs/heads/mine");
    let result = bed.git(&tree, &["rev-parse", "agents/one"]);
    assert_eq!(Some(result), kept.head_commit, "its work goes on");
    // A kept state that is gone, too, is named, and no empty clone takes its place.
    let unknown =
        Content { kept_commit: "0123456789012345678901234567890123456789".into(), ..kept };
    let refused = bed.prepare_again("two", &one, &unknown).await.unwrap_err();
    assert!(refused.needs_person() && refused.to_string().contains("keep.git"), "{refused}");
    assert!(!bed.tree("two").exists());
}

#[tokio::test]
async fn a_result_that_comes_back_under_another_name_is_there_at_once() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    bed.commit(&tree, "new.txt", "new");
    std::fs::write(tree.join("open.txt"), "in no commit").unwrap();
    let kept = bed.keep("one", &one).await;
    std::fs::remove_dir_all(&tree).unwrap();
    // A person has a branch of this name meanwhile.
    bed.git(&bed.source(), &["checkout", "--quiet", "-b", "agents/one"]);
    bed.commit(&bed.source(), "theirs.txt", "theirs");
    bed.git(&bed.source(), &["checkout", "--quiet", "main"]);
    let again = bed.prepare_again("one", &one, &kept).await.unwrap();
    assert_eq!(again.branch, "agents/one-2");
    let at = |name: &str| bed.git(&bed.keep_repository(), &["rev-parse", name]);
    assert_eq!(Some(at("refs/heads/agents/one-2")), kept.head_commit);
    assert_eq!(at("refs/heads/agents/one-2-uncommitted"), at("refs/heads/agents/one-uncommitted"));
}

#[tokio::test]
async fn a_kept_state_is_written_only_into_a_new_folder() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    std::fs::write(tree.join("open.txt"), "in no commit").unwrap();
    let kept = bed.keep("one", &one).await;
    let (project, id) = ("shop".parse().unwrap(), "one".parse().unwrap());
    let to = bed.folder.path().join("a/new/folder");
    let write = |to: PathBuf| {
        let (checkouts, kept) = (&bed.checkouts, &kept.kept_commit);
        let (project, id): (&ProjectId, &WorkspaceId) = (&project, &id);
        async move { checkouts.results.write_kept_to(project, id, kept, &to).await }
    };
    write(to.clone()).await.unwrap();
    assert_eq!(std::fs::read_to_string(to.join("open.txt")).unwrap(), "in no commit");
    assert!(!to.join(".git").exists());
    for bad in [to, PathBuf::from("relative"), bed.source().join("main.txt")] {
        let refused = write(bad).await.unwrap_err();
        assert!(refused.to_string().contains("new or an empty folder"), "{refused}");
    }
}

#[tokio::test]
async fn kept_states_that_are_given_up_go_after_14_days() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    bed.commit(&tree, "new.txt", "new");
    bed.git(&tree, &["tag", "-a", "-m", "an object", "v1"]);
    std::fs::write(tree.join("open.txt"), "in no commit").unwrap();
    bed.keep("one", &one).await;
    let refs = |pattern: &str| {
        let listed = bed.git(&bed.keep_repository(), &["for-each-ref", "--format=%(refname)"]);
        listed.lines().filter(|name| name.contains(pattern)).count()
    };
    let day = Duration::from_hours(24);
    let decided_at = Timestamp::from_millis(1_000_000);
    let order = ForgetOrder {
        id: "one".parse().unwrap(),
        project: "shop".parse().unwrap(),
        branch: one.branch.clone(),
        decided_at,
    };
    let n = refs("one");
    assert!(n >= 5, "base, branch, uncommitted, kept and tag: {n}");
    for _ in 0..2 {
        bed.checkouts.keep.forget(&order).await.unwrap();
        let expired = "refs/agent-coordinator/expired/1000000/one/";
        assert_eq!((refs(expired), refs("one")), (n, n));
    }
    assert_eq!(bed.checkouts.keep.expire(decided_at + 13 * day).await.unwrap(), 0);
    assert_eq!(refs("one"), n);
    assert_eq!(bed.checkouts.keep.expire(decided_at + 14 * day).await.unwrap(), n);
    assert_eq!((refs("one"), refs("source")), (0, 2));
    let fsck = bed.git(&bed.keep_repository(), &["fsck", "--no-dangling"]);
    assert_eq!(fsck, "");
}

#[tokio::test]
async fn a_project_that_cannot_be_read_holds_up_no_other_one() {
    let bed = Bed::new();
    let (one, _) = bed.prepare("one").await;
    bed.keep("one", &one).await;
    let decided_at = Timestamp::from_millis(1_000_000);
    let (id, project) = ("one".parse().unwrap(), "shop".parse().unwrap());
    let order = ForgetOrder { id, project, branch: one.branch, decided_at };
    bed.checkouts.keep.forget(&order).await.unwrap();
    // The order of the projects is that of the folder.
    for n in 0..20 {
        let folder = bed.folder.path().join(format!("workspaces/broken{n}"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("keep.git"), "not a folder").unwrap();
    }
    let error =
        bed.checkouts.keep.expire(decided_at + 14 * Duration::from_hours(24)).await.unwrap_err();
    let CheckoutError::Io { path, .. } = error else { panic!("{error:?}") };
    assert!(path.ends_with("keep.git"), "{}", path.display());
    let list = ["for-each-ref", "refs/agent-coordinator/expired/"];
    assert_eq!(bed.git(&bed.keep_repository(), &list), "");
}
