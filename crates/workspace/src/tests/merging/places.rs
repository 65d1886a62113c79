//! Each way to merge, for each place of the branch that gets the result, with and without hooks,
//! and each owner of its repository.

use std::os::unix::fs::MetadataExt as _;

use super::hooks::write_hook;
use super::*;
use crate::tests::rights::{PERSON, give, mode};
use domain::workspace::HookWish;

/// The ways to merge: the name, the style, and the number of parents of the new commit.
const WAYS: [(&str, MergeStyle, usize); 4] = [
    ("ff", MergeStyle::Merge, 1),
    ("merge", MergeStyle::Merge, 2),
    ("squash", MergeStyle::Squash, 1),
    ("rebase", MergeStyle::Rebase, 1),
];

/// The place in which the branch is checked out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    WorkTree,
    Linked,
    Nowhere,
    Bare,
}

async fn merge_in_each_way(at: At) {
    Box::pin(merge_as(at, None, HookWish::AsSet)).await;
    Box::pin(merge_as(at, None, HookWish::Run)).await;
    if rustix::process::geteuid().is_root() {
        Box::pin(merge_as(at, Some(PERSON), HookWish::Run)).await;
    }
}

/// Returns the hooks that judge a merge, each with a newline.
fn judges(way: &str, at: At) -> &'static str {
    match (way, at) {
        ("merge", At::WorkTree | At::Linked) => "pre-merge-commit\ncommit-msg\n",
        ("squash", At::WorkTree | At::Linked) => "pre-commit\ncommit-msg\n",
        ("merge" | "squash", At::Nowhere | At::Bare) => "commit-msg\n",
        _ => "",
    }
}

/// Merges one result into a branch for each way. Another user owns the repository, if one is given.
/// It has hooks if a person lets them run.
async fn merge_as(at: At, owner: Option<u32>, wish: HookWish) {
    let bed = Bed::new();
    std::fs::write(bed.folder.path().join(".gitconfig"), "[safe]\n\tdirectory = *\n").unwrap();
    mode(bed.folder.path(), 0o711);
    let work = bed.source();
    let [linked, bare] = ["linked", "bare.git"].map(|name| bed.folder.path().join(name));
    let begin = bed.head(&work);
    for (way, ..) in WAYS {
        bed.git(&work, &["checkout", "--quiet", "-b", way, "main"]);
        if way != "ff" {
            bed.commit(&work, "other.txt", "other\n");
        }
    }
    bed.git(&work, &["checkout", "--quiet", "main"]);
    bed.git(&work, &["worktree", "add", "--quiet", "--detach", linked.to_str().unwrap()]);
    bed.git(&work, &["clone", "--quiet", "--bare", ".", bare.to_str().unwrap()]);
    let source = if at == At::Bare { &bare } else { &work };
    let common = if at == At::Bare { bare.clone() } else { work.join(".git") };
    if wish == HookWish::Run {
        for name in ["pre-merge-commit", "pre-commit", "commit-msg"] {
            let note = format!("echo {name} >>\"$(git rev-parse --git-common-dir)/judged\"");
            write_hook(&common.join("hooks"), name, &note);
        }
    }
    let place = match at {
        At::WorkTree => Some(&work),
        At::Linked => Some(&linked),
        At::Nowhere | At::Bare => None,
    };
    let settle = || {
        for folder in [&work, &linked, &bare] {
            if let Some(owner) = owner {
                give(folder, owner);
            }
        }
    };
    settle();
    let order = Order { source: source.clone(), ..bed.order("one") };
    let prepared = bed.checkouts.clones.prepare(&order).await.unwrap();
    bed.commit(&bed.tree("one"), "work.txt", "work\n");
    let result = bed.keep("one", &prepared).await.head_commit.unwrap();
    for (way, style, n_parents) in WAYS {
        let said = format!("{at:?} {way} {owner:?} {wish:?}");
        if let Some(place) = place {
            bed.git(place, &["checkout", "--quiet", way]);
            settle();
        }
        let tip = || bed.git(source, &["rev-parse", way]);
        let before = tip();
        let into = Some(way.to_owned());
        let order = bed.merge_order("one", &prepared);
        let hooks = HookRule { wish, ..HookRule::default() };
        let order = MergeOrder { style, source: source.clone(), into, hooks, ..order };
        let merged = bed.checkouts.results.merge(&order).await.unwrap();
        let Merged::Into { branch, commit } = merged else { panic!("{said}: {merged:?}") };
        assert_eq!((branch.as_str(), &tip()), (way, &commit), "{said}");
        assert_eq!(commit == result, way == "ff", "{said}");
        let parents = bed.git(source, &["show", "--no-patch", "--format=%P", &commit]);
        assert_eq!(parents.split(' ').count(), n_parents, "{said}");
        let names = bed.git(source, &["ls-tree", "--name-only", &commit]);
        let other = if way == "ff" { "" } else { "other.txt\n" };
        assert_eq!(names, format!(".gitignore\nmain.txt\n{other}work.txt"), "{said}");
        if let Some(place) = place {
            let status = ["--no-optional-locks", "status", "--porcelain"];
            assert_eq!(bed.git(place, &status), "", "{said}");
            assert_eq!(bed.git(place, &["rev-parse", "ORIG_HEAD"]), before, "{said}");
            let found = place.join("work.txt").metadata().unwrap().uid();
            assert_eq!(found, owner.unwrap_or(found), "{said}");
        }
        let again = bed.checkouts.results.merge(&order).await.unwrap();
        assert!(matches!(again, Merged::Already { .. }), "{said}: {again:?}");
        let judged = std::fs::read_to_string(common.join("judged")).unwrap_or_default();
        let _ = std::fs::remove_file(common.join("judged"));
        assert_eq!(judged, if wish == HookWish::Run { judges(way, at) } else { "" }, "{said}");
        assert_eq!((tip(), bed.git(source, &["rev-parse", "main"])), (commit, begin.clone()));
    }
}

#[tokio::test]
async fn a_branch_in_the_work_tree_gets_a_result_in_each_way() {
    merge_in_each_way(At::WorkTree).await;
}

#[tokio::test]
async fn a_branch_in_a_linked_work_tree_gets_a_result_in_each_way() {
    merge_in_each_way(At::Linked).await;
}

#[tokio::test]
async fn a_branch_that_is_not_checked_out_gets_a_result_in_each_way() {
    merge_in_each_way(At::Nowhere).await;
}

#[tokio::test]
async fn a_branch_of_a_bare_repository_gets_a_result_in_each_way() {
    merge_in_each_way(At::Bare).await;
}
