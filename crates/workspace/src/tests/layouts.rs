//! Repositories of a person that other tools, groups or root have a part in. These tests need root.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown, symlink};

use super::rights::{AGENT, PERSON, bed_of_root, chain, give, mode};
use super::*;

/// Makes a clone, keeps its work, and merges that. The owner of the repository gets the files.
async fn work_with(bed: &Bed) {
    let (one, tree) = bed.prepare("one").await;
    bed.commit(&tree, "one.txt", "one\n");
    bed.commit(&tree, "main.txt", "changed\n");
    let kept = bed.keep("one", &one).await;
    assert!(kept.proof.is_some(), "{:?}", kept.left_out);
    let merged = bed.checkouts.results.merge(&bed.merge_order("one", &one)).await.unwrap();
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
    check_merged(bed);
}

/// Checks that the person has the result in files of its own.
fn check_merged(bed: &Bed) {
    assert_eq!((bed.read("one.txt"), bed.read("main.txt")), ("one\n".into(), "changed\n".into()));
    for name in ["one.txt", "main.txt", ".git/refs/heads/main", ".git/index"] {
        assert_eq!(bed.source().join(name).metadata().unwrap().uid(), PERSON, "{name}");
    }
    // Otherwise this git of root would write the index.
    let status = ["-c", "safe.directory=*", "--no-optional-locks", "status", "--porcelain"];
    assert_eq!(bed.git(&bed.source(), &status), "", "no file is left behind");
}

/// Runs git as root in the repository of a person, as `sudo git` does.
fn sudo_git(bed: &Bed, arguments: &[&str]) {
    bed.git(&bed.source(), &[&["-c", "safe.directory=*"], arguments].concat());
}

/// Calls `change` with all that is below a folder, and with the folder. Follows no link.
fn each(path: &Path, change: &dyn Fn(&Path)) {
    change(path);
    if path.symlink_metadata().unwrap().is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            each(&entry.unwrap().path(), change);
        }
    }
}

/// The tool `repo` puts the parts of a repository into two folders elsewhere, and links to them.
#[tokio::test]
async fn a_checkout_of_the_tool_repo_is_cloned_and_gets_the_result() {
    let Some(bed) = bed_of_root() else { return };
    let git = bed.source().join(".git");
    let project = bed.folder.path().join(".repo/projects/source.git");
    let objects = bed.folder.path().join(".repo/project-objects/shop.git");
    for folder in [project.parent().unwrap(), &objects] {
        std::fs::create_dir_all(folder).unwrap();
    }
    std::fs::rename(&git, &project).unwrap();
    std::fs::rename(project.join("objects"), objects.join("objects")).unwrap();
    symlink("../../project-objects/shop.git/objects", project.join("objects")).unwrap();
    std::fs::create_dir(&git).unwrap();
    for own in ["HEAD", "index"] {
        std::fs::copy(project.join(own), git.join(own)).unwrap();
    }
    std::fs::write(project.join("packed-refs"), "").unwrap();
    let linked =
        ["config", "description", "hooks", "info", "logs", "objects", "packed-refs", "refs"];
    for name in linked {
        let target = Path::new("../../.repo/projects/source.git").join(name);
        symlink(target, git.join(name)).unwrap();
    }
    give(&bed.source(), PERSON);
    give(&bed.folder.path().join(".repo"), PERSON);
    work_with(&bed).await;
    for name in linked {
        assert!(git.join(name).symlink_metadata().unwrap().is_symlink(), "{name}");
    }
    each(&bed.folder.path().join(".repo"), &|path| {
        assert_eq!(path.symlink_metadata().unwrap().uid(), PERSON, "{}", path.display());
    });
}

#[tokio::test]
async fn a_repository_that_a_group_shares_stays_writable_for_the_group() {
    let Some(bed) = bed_of_root() else { return };
    let git = bed.source().join(".git");
    bed.git(&bed.source(), &["config", "core.sharedRepository", "group"]);
    bed.git(&bed.source(), &["update-ref", "refs/heads/other", "HEAD"]);
    give(&bed.source(), PERSON);
    each(&bed.source(), &|path| {
        let what = path.metadata().unwrap().permissions().mode() & 0o7777;
        mode(
            path,
            if path.is_dir() { what | 0o2070 } else { what | ((what >> 3) & 0o010) | 0o060 },
        );
    });
    // Another member of the group has written these. Its group is the one of the person.
    let of_other = |path: &Path| lchown(path, Some(AGENT), Some(PERSON)).unwrap();
    for part in ["objects", "refs", "logs"] {
        each(&git.join(part), &of_other);
    }
    work_with(&bed).await;
    let reference = git.join("refs/heads/main").metadata().unwrap();
    assert_eq!((reference.gid(), reference.mode() & 0o060), (PERSON, 0o060));
    each(&git.join("objects"), &|path| {
        let found = path.metadata().unwrap();
        assert_eq!(found.gid(), PERSON, "{}", path.display());
        assert!(!path.is_dir() || found.mode() & 0o070 == 0o070, "{}", path.display());
    });
}

#[tokio::test]
async fn a_clone_with_a_reference_borrows_what_its_owner_may_read() {
    let Some(bed) = bed_of_root() else { return };
    let folder = bed.folder.path();
    let reference = folder.join("reference.git");
    let path = reference.to_str().unwrap();
    bed.git(folder, &["clone", "--quiet", "--bare", "--no-hardlinks", "source", "reference.git"]);
    std::fs::remove_dir_all(bed.source()).unwrap();
    let from = format!("file://{path}");
    bed.git(folder, &["clone", "--quiet", "--reference", path, &from, "source"]);
    let alternates = bed.source().join(".git/objects/info/alternates");
    assert!(std::fs::read_to_string(alternates).unwrap().contains(path));
    give(&bed.source(), PERSON);
    give(&reference, AGENT);
    // The owner gets nothing by it that it cannot read itself.
    mode(&reference, 0o700);
    bed.checkouts.clones.prepare(&bed.order("one")).await.unwrap_err();
    mode(&reference, 0o755);
    work_with(&bed).await;
    each(&reference, &|path| {
        assert_eq!(path.metadata().unwrap().uid(), AGENT, "{}", path.display());
    });
}

#[tokio::test]
async fn a_tree_in_which_root_has_pulled_works_as_far_as_its_owner_can_write() {
    let Some(bed) = bed_of_root() else { return };
    give(&bed.source(), PERSON);
    // Git replaces the files that it changes. The pack has a name that no other one has.
    std::fs::remove_file(bed.source().join("main.txt")).unwrap();
    bed.put("main.txt", "pulled\n");
    sudo_git(&bed, &["commit", "--quiet", "--all", "-m", "pulled"]);
    sudo_git(&bed, &["repack", "-a", "-d", "--quiet"]);
    std::fs::write(bed.source().join(".git/FETCH_HEAD"), "").unwrap();
    for name in ["main.txt", ".git/index", ".git/refs/heads/main", ".git/FETCH_HEAD"] {
        assert_eq!(bed.source().join(name).metadata().unwrap().uid(), 0, "{name}");
    }
    work_with(&bed).await;

    let packs = bed.source().join(".git/objects/pack");
    lchown(&packs, Some(0), Some(0)).unwrap();
    let before = bed.git(&bed.source(), &["-c", "safe.directory=*", "rev-parse", "main"]);
    let (two, tree) = bed.prepare("two").await;
    bed.commit(&tree, "two.txt", "two\n");
    bed.keep("two", &two).await;
    let order = bed.merge_order("two", &two);
    let refused = bed.checkouts.results.merge(&order).await.unwrap_err();
    let said = chain(&refused);
    assert!(refused.needs_person() && said.contains("Permission denied"), "{said}");
    let remedy = format!("run `chown -R {PERSON} {}", bed.source().display());
    assert!(said.contains(&remedy), "{said}");
    let after = bed.git(&bed.source(), &["-c", "safe.directory=*", "rev-parse", "main"]);
    assert_eq!(after, before);
    check_merged(&bed);

    give(&bed.source().join(".git"), PERSON);
    let merged = bed.checkouts.results.merge(&order).await.unwrap();
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
    assert_eq!(bed.read("two.txt"), "two\n");
}
