//! Clones with the files of some folders only.

use super::*;

/// The files of the source in folders.
const FILES: [&str; 5] = ["a/x", "a/y", "b/other", "b/y", "c/d/z"];

impl Bed {
    fn with_folders() -> Self {
        let bed = Self::new();
        let source = bed.source();
        for name in FILES {
            std::fs::create_dir_all(source.join(name).parent().unwrap()).unwrap();
            std::fs::write(source.join(name), format!("{name}\n")).unwrap();
        }
        bed.git(&source, &["add", "."]);
        bed.git(&source, &["commit", "--quiet", "-m", "folders"]);
        bed
    }

    /// Makes a clone in which a hook calls git once for each list of arguments.
    async fn prepare_with_hook(
        &self,
        order: &Order,
        calls: &[&[&str]],
    ) -> Result<Prepared, CheckoutError> {
        let prepared = self.checkouts.clones.prepare_for_hook(order).await?;
        let tree = self.checkouts.places.directory(&order.project, &order.id, "");
        for call in calls {
            self.git(&tree, call);
        }
        self.checkouts.clones.note_hook_passed(order).await?;
        Ok(prepared)
    }

    /// Makes a clone in which a hook chooses folders.
    async fn prepare_part(&self, id: &str, paths: &[&str]) -> Result<Prepared, CheckoutError> {
        let set = [&["sparse-checkout", "set"][..], paths].concat();
        self.prepare_with_hook(&self.order(id), &[set.as_slice()]).await
    }

    /// Returns the names of the files of `FILES` that a clone has.
    fn present(&self, id: &str) -> Vec<&'static str> {
        let tree = self.tree(id);
        FILES.into_iter().filter(|name| tree.join(name).exists()).collect()
    }

    async fn uncommitted(&self, id: &str, prepared: &Prepared) -> String {
        let keep = Self::keep_order(id, prepared);
        let order = DiffOrder { keep, is_in_use: false, result: None, of: DiffKind::Uncommitted };
        String::from_utf8(self.checkouts.results.diff(&order).await.unwrap()).unwrap()
    }
}

#[tokio::test]
async fn a_clone_of_some_folders_takes_no_other_file_for_removed() {
    let bed = Bed::with_folders();
    let one = bed.prepare_part("one", &["a", "c/d/"]).await.unwrap();
    let tree = bed.tree("one");
    assert_eq!(bed.present("one"), ["a/x", "a/y", "c/d/z"]);
    assert!(tree.join("main.txt").exists());
    assert_eq!(bed.git(&tree, &["status", "--porcelain"]), "");
    assert_eq!(bed.keep("one", &one).await.n_uncommitted, 0);
    bed.commit(&tree, "a/x", "committed\n");
    // Inside, one is changed, one is new and one is removed; outside, one is changed, one is new.
    std::fs::write(tree.join("a/y"), "changed\n").unwrap();
    std::fs::write(tree.join("a/new"), "new\n").unwrap();
    std::fs::remove_file(tree.join("c/d/z")).unwrap();
    std::fs::create_dir(tree.join("b")).unwrap();
    std::fs::write(tree.join("b/y"), "outside\n").unwrap();
    std::fs::write(tree.join("b/new"), "new\n").unwrap();
    let kept = bed.keep("one", &one).await;
    assert_eq!((kept.n_commits, kept.n_files, kept.n_uncommitted), (1, 1, 5), "{kept:?}");
    assert!(kept.proof.is_some(), "{kept:?}");
    let diff = bed.uncommitted("one", &one).await;
    assert!(!diff.contains("b/other"), "{diff}");
    let order = MergeOrder { with_uncommitted: true, ..bed.merge_order("one", &one) };
    let merged = bed.checkouts.results.merge(&order).await.unwrap();
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
    let read = |name: &str| std::fs::read_to_string(bed.source().join(name)).unwrap_or_default();
    let found = ["a/x", "a/y", "b/other", "b/y", "b/new", "c/d/z"].map(read);
    assert_eq!(found, ["committed\n", "changed\n", "b/other\n", "outside\n", "new\n", ""]);
}

#[tokio::test]
async fn files_outside_of_the_folders_follow_the_commits_of_the_work() {
    let bed = Bed::with_folders();
    let source = bed.source();
    let one = bed.prepare_part("one", &["a"]).await.unwrap();
    let tree = bed.tree("one");
    bed.keep("one", &one).await;
    std::fs::write(source.join("b/other"), "changed by a person\n").unwrap();
    std::fs::remove_file(source.join("b/y")).unwrap();
    bed.git(&source, &["commit", "--quiet", "--all", "-m", "theirs"]);
    bed.git(&tree, &["fetch", "--quiet", source.to_str().unwrap(), "main"]);
    bed.git(&tree, &["merge", "--quiet", "FETCH_HEAD"]);
    let kept = bed.keep("one", &one).await;
    assert_eq!(kept.n_uncommitted, 0, "{}", bed.uncommitted("one", &one).await);
    assert_eq!(bed.present("one"), ["a/x", "a/y"]);
    // The agent may want all files.
    bed.git(&tree, &["sparse-checkout", "disable"]);
    let kept = bed.keep("one", &one).await;
    assert_eq!((kept.n_uncommitted, kept.left_out), (0, Vec::new()));
    assert!(tree.join("b/other").exists());
    // A file that takes the place of a folder is a change, and the folder is gone then.
    bed.git(&tree, &["sparse-checkout", "set", "a"]);
    std::fs::write(tree.join("b"), "a file\n").unwrap();
    let kept = bed.keep("one", &one).await;
    assert_eq!(kept.n_uncommitted, 2, "{}", bed.uncommitted("one", &one).await);
}

#[tokio::test]
async fn a_clone_of_some_folders_comes_back_with_these_folders() {
    let bed = Bed::with_folders();
    let one = bed.prepare_part("one", &["a"]).await.unwrap();
    let tree = bed.tree("one");
    bed.commit(&tree, "a/x", "committed\n");
    std::fs::remove_file(tree.join("a/y")).unwrap();
    std::fs::create_dir(tree.join("b")).unwrap();
    std::fs::write(tree.join("b/new"), "outside\n").unwrap();
    let kept = bed.keep("one", &one).await;
    let to = bed.folder.path().join("copy");
    let (project, id) = ("shop".parse().unwrap(), "one".parse().unwrap());
    bed.checkouts.results.write_kept_to(&project, &id, &kept.kept_commit, &to).await.unwrap();
    assert!(to.join("b/new").exists() && !to.join("b/other").exists());
    // A hook that chooses nothing changes nothing.
    let restores = Some(restored(&kept, &one));
    for (id, has_hook) in [("two", false), ("three", true)] {
        let order = Order { restores: restores.clone(), ..bed.order(id) };
        let again = if has_hook {
            bed.prepare_with_hook(&order, &[]).await.unwrap()
        } else {
            bed.checkouts.clones.prepare(&order).await.unwrap()
        };
        assert_eq!(bed.present(id), ["a/x"], "{id}");
        let tree = bed.tree(id);
        assert_eq!(std::fs::read_to_string(tree.join("b/new")).unwrap(), "outside\n");
        let status = bed.git(&tree, &["status", "--porcelain", "--untracked-files=all"]);
        assert_eq!(status, "D a/y\n?? b/new", "{id}");
        let kept = bed.keep(id, &again).await;
        assert_eq!((kept.n_commits, kept.n_uncommitted), (1, 2), "{id}");
    }
    // The state of a clone with all files comes back with all of them.
    let (four, _) = bed.prepare("four").await;
    let kept = bed.keep("four", &four).await;
    let restores = Some(restored(&kept, &four));
    let order = Order { restores, ..bed.order("five") };
    let five = bed.checkouts.clones.prepare(&order).await.unwrap();
    assert_eq!(bed.present("five"), FILES);
    assert_eq!(bed.keep("five", &five).await.n_uncommitted, 0);
}

#[tokio::test]
async fn a_hook_chooses_folders_and_no_patterns() {
    let bed = Bed::with_folders();
    bed.prepare_part("one", &["a", "gone"]).await.unwrap();
    assert_eq!(bed.present("one"), ["a/x", "a/y"]);
    let refused = bed.prepare_part("two", &["--no-cone", "*.txt", "y"]).await.unwrap_err();
    assert!(refused.needs_person(), "{refused}");
    assert!(refused.to_string().contains("sparse-checkout set FOLDER"), "{refused}");
    // The hook is mended. This one takes its choice back.
    let calls: [&[&str]; 2] = [&["sparse-checkout", "set", "a"], &["sparse-checkout", "disable"]];
    let two = bed.prepare_with_hook(&bed.order("two"), &calls).await.unwrap();
    assert_eq!(bed.present("two"), FILES);
    std::fs::remove_file(bed.tree("two").join("b/y")).unwrap();
    assert_eq!(bed.keep("two", &two).await.n_uncommitted, 1, "it is removed");
    // The project's directory is there, although it is in none of the folders.
    let order = Order { source: bed.source().join("b"), ..bed.order("three") };
    let made = bed.prepare_with_hook(&order, &[&["sparse-checkout", "set", "a"]]).await.unwrap();
    assert_eq!(made.subdirectory, "b");
    assert!(bed.tree("three").join("b").is_dir());
    assert_eq!(bed.keep("three", &made).await.n_uncommitted, 0);
}

#[tokio::test]
async fn a_file_that_a_killed_daemon_left_half_written_is_in_the_way_of_nothing() {
    let bed = Bed::new();
    bed.prepare("one").await;
    let remains = bed.folder.path().join("workspaces/shop/.new-index-0123");
    std::fs::write(&remains, "half").unwrap();
    let later = Bed { checkouts: Checkouts::new(bed.folder.path().join("workspaces")), ..bed };
    later.prepare("two").await;
    assert!(!remains.exists());
}

#[tokio::test]
async fn changes_of_files_that_commits_have_and_gitignore_names_are_seen() {
    let bed = Bed::with_folders();
    let source = bed.source();
    std::fs::write(source.join("b/data.log"), "before\n").unwrap();
    bed.git(&source, &["add", "--force", "b/data.log"]);
    bed.git(&source, &["commit", "--quiet", "-m", "a file that is ignored otherwise"]);
    let one = bed.prepare_part("one", &["a"]).await.unwrap();
    let tree = bed.tree("one");
    assert_eq!(bed.keep("one", &one).await.n_uncommitted, 0);
    std::fs::create_dir(tree.join("b")).unwrap();
    std::fs::write(tree.join("b/data.log"), "changed\n").unwrap();
    let kept = bed.keep("one", &one).await;
    assert_eq!((kept.n_uncommitted, kept.proof.is_some()), (1, true), "{kept:?}");
    assert!(bed.uncommitted("one", &one).await.contains("+changed"));
    // An agent commits one in a clone with all files.
    let (two, tree) = bed.prepare("two").await;
    std::fs::write(tree.join("own.log"), "own\n").unwrap();
    bed.git(&tree, &["add", "--force", "own.log"]);
    bed.git(&tree, &["commit", "--quiet", "-m", "own"]);
    let kept = bed.keep("two", &two).await;
    assert_eq!((kept.n_commits, kept.n_uncommitted), (1, 0), "{kept:?}");
    std::fs::write(tree.join("own.log"), "changed\n").unwrap();
    assert_eq!(bed.keep("two", &two).await.n_uncommitted, 1);
}
