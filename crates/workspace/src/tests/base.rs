//! The commit that work begins at.

use super::*;

impl Bed {
    async fn prepare_at(&self, id: &str, base: &str) -> Result<Prepared, CheckoutError> {
        let base = Some(base.to_owned());
        self.checkouts.clones.prepare(&Order { base, ..self.order(id) }).await
    }

    pub(super) fn head(&self, folder: &Path) -> String {
        self.git(folder, &["rev-parse", "HEAD"])
    }
}

#[tokio::test]
async fn work_begins_at_the_branch_the_tag_or_the_commit_that_is_named() {
    let bed = Bed::new();
    let source = bed.source();
    let first = bed.head(&source);
    bed.git(&source, &["branch", "release"]);
    bed.git(&source, &["tag", "-a", "-m", "one", "v1.0"]);
    bed.put("main.txt", "changed\n");
    bed.git(&source, &["commit", "--quiet", "--all", "-m", "second"]);
    let abbreviated = &first[..10];
    for (id, base, base_ref) in [
        ("one", "release", "refs/heads/release"),
        ("two", "v1.0", "refs/heads/main"),
        ("three", first.as_str(), "refs/heads/main"),
        ("four", abbreviated, "refs/heads/main"),
    ] {
        let made = bed.prepare_at(id, base).await.unwrap();
        assert_eq!(bed.head(&bed.tree(id)), first, "{base}");
        assert_eq!(made.base_commit.as_ref(), Some(&first), "{base}");
        assert_eq!(made.base_ref.as_deref(), Some(base_ref), "{base}");
    }
    for (id, base, expected) in
        [("five", "relaese", "did you mean `release`"), ("six", "0123456789", "no branch, tag")]
    {
        let refused = bed.prepare_at(id, base).await.unwrap_err();
        assert!(refused.needs_person() && refused.to_string().contains(expected), "{refused}");
        assert!(!bed.tree(id).exists());
    }
}

#[tokio::test]
async fn work_begins_at_the_files_of_the_directory_and_changes_none_of_them() {
    let bed = Bed::new();
    let source = bed.source();
    let first = bed.head(&source);
    assert_eq!(bed.prepare_at("clean", "working_tree").await.unwrap().base_commit, Some(first));
    bed.put("main.txt", "changed\r\n");
    bed.put("new.txt", "new\n");
    bed.put("secret.log", "ignored\n");
    bed.put("mine.txt", "also ignored\n");
    std::fs::write(source.join(".git/info/exclude"), "mine.txt\n").unwrap();
    bed.put("staged.txt", "staged\n");
    bed.git(&source, &["add", "staged.txt"]);
    let state = || bed.git(&source, &["status", "--porcelain", "--ignored"]);
    let before = state();
    let made = bed.prepare_at("one", "working_tree").await.unwrap();
    assert_eq!(state(), before);
    let tree = bed.tree("one");
    for name in ["main.txt", "new.txt", "staged.txt"] {
        let read = |folder: &Path| std::fs::read(folder.join(name)).unwrap();
        assert_eq!(read(&tree), read(&source), "{name}");
    }
    assert!(!tree.join("secret.log").exists() && !tree.join("mine.txt").exists());
    assert_eq!(bed.git(&tree, &["status", "--porcelain"]), "");
    assert_eq!(made.base_commit, Some(bed.head(&tree)));
    assert_eq!(made.base_ref.as_deref(), Some("refs/heads/main"));
}

#[tokio::test]
async fn work_begins_at_the_results_that_it_depends_on_if_they_fit() {
    let bed = Bed::new();
    let mut results = Vec::new();
    for (id, name) in [("one", "one.txt"), ("two", "two.txt"), ("three", "two.txt")] {
        let (made, tree) = bed.prepare(id).await;
        bed.commit(&tree, name, id);
        results.extend(bed.keep(id, &made).await.head_commit);
    }
    let main = bed.head(&bed.source());
    let of = |id: &str, all: &[&String]| {
        let dependencies = all.iter().map(|commit| (*commit).clone()).collect();
        Order { dependencies, ..bed.order(id) }
    };
    let [one, two, three] = results.as_slice() else { panic!("{results:?}") };
    let single = bed.checkouts.clones.prepare(&of("single", &[one])).await.unwrap();
    assert_eq!(single.base_commit.as_ref(), Some(one), "no commit is made for one result");
    let both = bed.checkouts.clones.prepare(&of("both", &[one, two])).await.unwrap();
    let tree = bed.tree("both");
    assert!(tree.join("one.txt").exists() && tree.join("two.txt").exists());
    assert_eq!(both.base_commit, Some(bed.head(&tree)), "the diff shows the own work only");
    let conflict = bed.checkouts.clones.prepare(&of("conflict", &[one, two, three])).await.unwrap();
    assert_eq!(conflict.base_commit, Some(main));
    let unknown = "0123456789012345678901234567890123456789".to_owned();
    let gone = bed.checkouts.clones.prepare(&of("gone", &[&unknown, one])).await.unwrap();
    assert_eq!(gone.base_commit.as_ref(), Some(one));
}

#[tokio::test]
async fn work_in_progress_does_not_contain_the_clones() {
    for ignored in ["", "state/\n"] {
        let mut bed = Bed::new();
        bed.checkouts = Checkouts::new(bed.source().join("state/workspaces"));
        bed.put(".gitignore", &format!("*.log\n{ignored}"));
        bed.put("new.txt", "new\n");
        for id in ["one", "two"] {
            bed.prepare_at(id, "working_tree").await.unwrap();
            let place = bed.checkouts.places.place(&"shop".parse().unwrap(), &id.parse().unwrap());
            let files = bed.git(&place.tree(), &["ls-tree", "-r", "--name-only", "HEAD"]);
            assert_eq!(files, ".gitignore\nmain.txt\nnew.txt", "{id}");
        }
    }
}

#[tokio::test]
async fn a_branch_makes_room_for_one_below_it() {
    let bed = Bed::new();
    for (n, branch) in ["topic", "topic/more", "topic"].into_iter().enumerate() {
        bed.git(&bed.source(), &["branch", branch]);
        bed.prepare_at(&format!("t{n}"), branch).await.unwrap();
        bed.git(&bed.source(), &["branch", "-D", "--quiet", branch]);
    }
}
