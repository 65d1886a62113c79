//! Submodules and files of LFS in new workspaces.

use super::rights::{PERSON, agent, bed_of_root, chain, give, mode};
use super::*;
use domain::Secret;
use domain::workspace::{ForgeBase, Remote};

impl Bed {
    /// Makes a repository in the folder of the test, with one file.
    pub(super) fn library(&self, name: &str, file: &str) -> PathBuf {
        let folder = self.folder.path().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        self.git(&folder, &["init", "--quiet", "--initial-branch=main"]);
        self.commit(&folder, file, name);
        folder
    }

    /// Adds a submodule to a repository. Its address is written as it is.
    pub(super) fn add_submodule(&self, to: &Path, from: &Path, path: &str, address: &str) {
        let from = from.to_str().unwrap();
        let add = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add"];
        self.git(to, &[&add[..], &["--name", path, from, path]].concat());
        let key = format!("submodule.{path}.url");
        self.git(to, &["config", "--file", ".gitmodules", &key, address]);
        self.git(to, &["add", ".gitmodules"]);
        self.git(to, &["commit", "--quiet", "-m", path]);
    }

    /// Removes what the source itself has of its submodules.
    fn forget_submodules(&self) {
        self.git(&self.source(), &["submodule", "--quiet", "deinit", "--force", "--all"]);
        std::fs::remove_dir_all(self.source().join(".git/modules")).unwrap();
    }

    async fn prepare_with(&self, id: &str) -> Result<Prepared, CheckoutError> {
        let order = Order { submodules: true, ..self.order(id) };
        self.checkouts.clones.prepare(&order).await
    }
}

#[tokio::test]
async fn new_clones_have_the_files_of_submodules_and_of_those_in_them() {
    let bed = Bed::new();
    let inner = bed.library("inner", "inner.txt");
    let outer = bed.library("outer", "outer.txt");
    bed.add_submodule(&outer, &inner, "deep/inner", "../inner");
    bed.add_submodule(&bed.source(), &outer, "lib/outer", outer.to_str().unwrap());
    for has_modules in [true, false] {
        if !has_modules {
            bed.forget_submodules();
        }
        let id = format!("one_{has_modules}");
        let one = bed.prepare_with(&id).await.unwrap();
        let tree = bed.tree(&id);
        assert_eq!(bed.git(&tree, &["status", "--porcelain"]), "");
        let sub = tree.join("lib/outer");
        assert_eq!(std::fs::read_to_string(sub.join("outer.txt")).unwrap(), "outer");
        let inner = sub.join("deep/inner");
        assert_eq!(std::fs::read_to_string(inner.join("inner.txt")).unwrap(), "inner");
        let status = bed.git(&tree, &["submodule", "status", "--recursive"]);
        assert!(status.lines().count() == 2 && !status.contains('-'), "{status}");
        // The agent works in it.
        bed.commit(&sub, "new.txt", "in a submodule");
        bed.git(&tree, &["commit", "--quiet", "--all", "-m", "newer"]);
        let kept = bed.keep(&id, &one).await;
        let found = (kept.left_out.as_slice(), kept.proof.is_some(), kept.n_uncommitted);
        assert_eq!(found, ([].as_slice(), true, 0), "{kept:?}");
        let keep = Bed::keep_order(&id, &one);
        let (proof, kept_commit) = (kept.proof.clone().unwrap(), kept.kept_commit.clone());
        let order = RemoveOrder { keep, proof, kept_commit };
        let removal = bed.checkouts.clones.remove(&order, &bed.policy).await.unwrap();
        assert_eq!(removal, Removal::Removed);
        let restores = Some(restored(&kept, &one));
        let order = Order { restores, submodules: true, ..bed.order(&id) };
        bed.checkouts.clones.prepare(&order).await.unwrap();
        assert_eq!(std::fs::read_to_string(sub.join("new.txt")).unwrap(), "in a submodule");
        assert_eq!(std::fs::read_to_string(inner.join("inner.txt")).unwrap(), "inner");
        assert_eq!(bed.git(&tree, &["status", "--porcelain"]), "");
    }
    let (_, tree) = bed.prepare("without").await;
    assert!(tree.join("lib/outer").is_dir() && !tree.join("lib/outer/.git").exists());
}

#[tokio::test]
async fn submodules_from_elsewhere_are_refused_with_the_reason() {
    let bed = Bed::new();
    let library = bed.library("library", "file.txt");
    bed.add_submodule(&bed.source(), &library, "lib", "../library");
    bed.forget_submodules();
    let far = tempfile::tempdir().unwrap();
    let elsewhere = far.path().join("elsewhere");
    bed.git(far.path(), &["init", "--quiet", elsewhere.to_str().unwrap()]);
    let own = bed.folder.path().join("workspaces/shop/keep.git");
    for (n, (address, expected)) in [
        (elsewhere.to_str().unwrap(), "it is not in `"),
        ("https://evil.example/lib.git", "the project's repository has no host"),
        ("ext::sh -c 'touch ran'", "only addresses of HTTPS"),
        ("--upload-pack=touch ran", "it is no address"),
        ("../missing", "there is no such folder"),
        ("../source", "does not have its commit"),
        (own.to_str().unwrap(), "the coordinator keeps its work there"),
    ]
    .into_iter()
    .enumerate()
    {
        bed.git(&bed.source(), &["config", "--file", ".gitmodules", "submodule.lib.url", address]);
        bed.git(&bed.source(), &["commit", "--quiet", "--all", "-m", address]);
        let refused = bed.prepare_with(&format!("one_{n}")).await.unwrap_err();
        let shown = chain(&refused);
        assert!(shown.starts_with("submodule `lib`: ") && shown.contains(expected), "{shown}");
        assert!(!refused.needs_person(), "it is tried again");
        assert!(!bed.tree(&format!("one_{n}")).exists());
    }
    let upstream = ["config", "remote.origin.url", "https://git.example/acme/shop.git"];
    bed.git(&bed.source(), &upstream);
    let url = "https://ann:secret@evil.example/lib.git";
    bed.git(&bed.source(), &["config", "--file", ".gitmodules", "submodule.lib.url", url]);
    bed.git(&bed.source(), &["commit", "--quiet", "--all", "-m", "another host"]);
    let shown = chain(&bed.prepare_with("host").await.unwrap_err());
    assert!(shown.contains("the project's own host is `git.example`"), "{shown}");
    assert!(!shown.contains("secret"), "{shown}");
    // A name that leads out of the folder of submodules.
    let modules = "[submodule \"../../evil\"]\n\tpath = lib\n\turl = ../library\n";
    bed.put(".gitmodules", modules);
    bed.git(&bed.source(), &["commit", "--quiet", "--all", "-m", "an evil name"]);
    let shown = chain(&bed.prepare_with("name").await.unwrap_err());
    assert!(shown.contains("a name that leads elsewhere"), "{shown}");
    // The fault is over.
    bed.git(&bed.source(), &["config", "--unset", "remote.origin.url"]);
    bed.put(".gitmodules", "[submodule \"lib\"]\n\tpath = lib\n\turl = ../library\n");
    bed.git(&bed.source(), &["commit", "--quiet", "--all", "-m", "as before"]);
    for id in ["one_0", "over"] {
        bed.prepare_with(id).await.unwrap();
        assert!(bed.tree(id).join("lib/file.txt").exists());
    }
}

#[tokio::test]
async fn an_agent_gets_no_submodule_that_its_user_may_not_read() {
    let Some(bed) = bed_of_root() else { return };
    let library = bed.library("library", "file.txt");
    bed.add_submodule(&bed.source(), &library, "lib", "../library");
    bed.forget_submodules();
    for of_person in [bed.source(), library.clone()] {
        give(&of_person, PERSON);
    }
    mode(&library, 0o700);
    let order = Order { submodules: true, run_as: Some(agent()), ..bed.order("one") };
    let refused = bed.checkouts.clones.prepare(&order).await.unwrap_err();
    let shown = chain(&refused);
    assert!(shown.contains("the user of the agent may not read it"), "{shown}");
    assert!(!bed.tree("one").exists());
    mode(&library, 0o755);
    bed.checkouts.clones.prepare(&order).await.unwrap();
    assert!(bed.tree("one").join("lib/file.txt").exists());
}

#[tokio::test]
async fn submodules_at_a_forge_are_fetched_from_its_host_only() {
    let bed = Bed::new();
    let library = bed.library("library", "file.txt");
    bed.add_submodule(&bed.source(), &library, "lib", "https://evil.example/lib.git");
    bed.prepare("local").await;
    let commit = bed.git(&bed.source(), &["rev-parse", "HEAD"]);
    let upstream = "https://git.example/acme/shop.git".to_owned();
    let forge = Some(ForgeBase {
        target: "main".to_owned(),
        commit: commit.clone(),
        upstream: upstream.clone(),
        is_of_fork: false,
    });
    let order = Order { forge, submodules: true, ..bed.order("item") };
    let refused = chain(&bed.checkouts.clones.prepare(&order).await.unwrap_err());
    assert!(refused.starts_with("submodule `lib`: its commit"), "{refused}");
    // The fetch from the forge notes why.
    let remote = Remote { url: upstream, user: "git", token: Secret::new("hunter2") };
    let project: ProjectId = "shop".parse().unwrap();
    bed.checkouts.remotes.note_submodules(&project, &commit, &remote).await.unwrap();
    let refused = chain(&bed.checkouts.clones.prepare(&order).await.unwrap_err());
    assert!(refused.contains("the project's own host is `git.example`"), "{refused}");
}

/// Returns whether git-lfs is installed here.
fn has_lfs() -> bool {
    let found = Command::new("git").args(["lfs", "version"]).output();
    let is_there = found.is_ok_and(|output| output.status.success());
    if !is_there {
        eprintln!("git-lfs is not installed: the part of this test with files of LFS was left out");
    }
    is_there
}

/// A pointer of LFS.
fn pointer(content: &[u8]) -> (String, String) {
    use sha2::Digest as _;
    let mut id = String::new();
    for byte in &sha2::Sha256::digest(content) {
        let _ = std::fmt::Write::write_fmt(&mut id, format_args!("{byte:02x}"));
    }
    let version = "version https://git-lfs.github.com/spec/v1";
    (format!("{version}\noid sha256:{id}\nsize {}\n", content.len()), id)
}

impl Bed {
    /// Commits pointers in the source, whose repository has the files of two of them.
    fn with_lfs(&self) {
        self.put(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
        for (name, content) in [("one.bin", "one"), ("two.bin", "two"), ("three.bin", "three")] {
            let (text, id) = pointer(content.as_bytes());
            self.put(name, &text);
            let store = format!(".git/lfs/objects/{}/{}", &id[..2], &id[2..4]);
            std::fs::create_dir_all(self.source().join(&store)).unwrap();
            match name {
                "one.bin" => self.put(&format!("{store}/{id}"), content),
                "two.bin" => self.put(&format!("{store}/{id}"), "damaged"),
                _ => {}
            }
        }
        self.git(&self.source(), &["add", "."]);
        self.git(&self.source(), &["commit", "--quiet", "-m", "files of LFS"]);
    }
}

#[tokio::test]
async fn a_file_of_lfs_is_no_change_if_it_is_the_one_of_its_pointer() {
    let bed = Bed::new();
    bed.with_lfs();
    let (one, tree) = bed.prepare("one").await;
    let (text, id) = pointer(b"one");
    assert_eq!(std::fs::read_to_string(tree.join("one.bin")).unwrap(), text);
    // The agent gets a file, and makes a new one.
    std::fs::write(tree.join("one.bin"), "one").unwrap();
    let store = tree.join(format!(".git/lfs/objects/{}/{}", &id[..2], &id[2..4]));
    std::fs::create_dir_all(&store).unwrap();
    std::fs::write(store.join(&id), "one").unwrap();
    let old = tree.join(".git/lfs/objects/aa/bb");
    std::fs::create_dir_all(&old).unwrap();
    std::fs::write(old.join("aabb"), "an earlier version, which only this folder has").unwrap();
    let kept = bed.keep("one", &one).await;
    let found = (kept.left_out.as_slice(), kept.proof.is_some(), kept.n_uncommitted);
    assert_eq!(found, ([].as_slice(), true, 0), "{kept:?}");
    std::fs::write(tree.join("one.bin"), "ONE").unwrap();
    let kept = bed.keep("one", &one).await;
    assert_eq!(kept.n_uncommitted, 1, "another content of the same size is a change");
    let keep = Bed::keep_order("one", &one);
    let (proof, kept_commit) = (kept.proof.clone().unwrap(), kept.kept_commit.clone());
    let order = RemoveOrder { keep, proof, kept_commit };
    bed.checkouts.clones.remove(&order, &bed.policy).await.unwrap();
    bed.prepare_again("one", &one, &kept).await.unwrap();
    assert_eq!(std::fs::read_to_string(tree.join("one.bin")).unwrap(), "ONE");
    assert!(old.join("aabb").exists() && store.join(&id).exists());
}

#[tokio::test]
async fn new_clones_have_the_files_of_lfs_that_the_source_has() {
    let bed = Bed::new();
    bed.with_lfs();
    bed.put(".lfsconfig", "[lfs]\n\turl = https://evil.example/\n");
    bed.git(&bed.source(), &["add", "."]);
    bed.git(&bed.source(), &["commit", "--quiet", "-m", "an address"]);
    let order = Order { lfs: true, ..bed.order("one") };
    let one = bed.checkouts.clones.prepare(&order).await.unwrap();
    let tree = bed.tree("one");
    let read = |name: &str| std::fs::read_to_string(tree.join(name)).unwrap();
    let is_there = has_lfs();
    let expected = if is_there { "one".to_owned() } else { pointer(b"one").0 };
    assert_eq!(read("one.bin"), expected);
    assert_eq!(read("two.bin"), pointer(b"two").0, "a damaged file is not used");
    assert_eq!(read("three.bin"), pointer(b"three").0, "a file that lacks is no failure");
    let kept = bed.keep("one", &one).await;
    assert_eq!((kept.n_uncommitted, kept.proof.is_some()), (0, true), "{kept:?}");
    if !is_there {
        return;
    }
    let url = bed.git(&tree, &["config", "lfs.url"]);
    assert_eq!(url, format!("file://{}", bed.source().display()));
    assert_eq!(bed.git(&tree, &["status", "--porcelain"]), "");
    // The agent's own submodule is a pointer in its commit.
    bed.commit(&tree, "four.bin", "four");
    assert_eq!(bed.git(&tree, &["show", "HEAD:four.bin"]), pointer(b"four").0.trim());
    let kept = bed.keep("one", &one).await;
    assert_eq!((kept.n_commits, kept.n_uncommitted), (1, 0), "{kept:?}");
    // Work that comes back has the same settings, and its files are no changes.
    let keep = Bed::keep_order("one", &one);
    let (proof, kept_commit) = (kept.proof.clone().unwrap(), kept.kept_commit.clone());
    let remove = RemoveOrder { keep, proof, kept_commit };
    bed.checkouts.clones.remove(&remove, &bed.policy).await.unwrap();
    let again = Order { restores: Some(restored(&kept, &one)), ..order };
    bed.checkouts.clones.prepare(&again).await.unwrap();
    assert_eq!((read("one.bin"), read("four.bin")), ("one".into(), "four".into()));
    assert_eq!(bed.git(&tree, &["config", "filter.lfs.required"]), "true");
    assert_eq!(bed.git(&tree, &["status", "--porcelain"]), "");
}
