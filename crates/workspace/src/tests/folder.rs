//! Folders that are to become directories of projects.

use super::super::folder::of_rights;
use super::*;
use domain::workspace::{Folder, FolderRepository};

async fn repository(bed: &Bed, folder: &Path) -> FolderRepository {
    match bed.checkouts.clones.look_at(folder).await {
        Folder::InRepository(repository) => repository,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_folder_that_agents_cannot_work_in_is_told_apart() {
    let bed = Bed::new();
    let file = bed.source().join("main.txt");
    assert_eq!(bed.checkouts.clones.look_at(Path::new("source")).await, Folder::NotAbsolute);
    assert_eq!(bed.checkouts.clones.look_at(Path::new("")).await, Folder::NotAbsolute);
    assert_eq!(bed.checkouts.clones.look_at(Path::new("/proc/..")).await, Folder::Root);
    assert_eq!(bed.checkouts.clones.look_at(&file).await, Folder::NotAFolder);
    assert_eq!(bed.checkouts.clones.look_at(&file.join("below")).await, Folder::NotAFolder);
    let missing = bed.folder.path().join("missing");
    assert_eq!(bed.checkouts.clones.look_at(&missing).await, Folder::Missing);
    let long = Path::new("/").join("x".repeat(300));
    assert!(matches!(bed.checkouts.clones.look_at(&long).await, Folder::Failed(_)));
    let plain = bed.folder.path().join("plain");
    std::fs::create_dir(&plain).unwrap();
    assert_eq!(bed.checkouts.clones.look_at(&plain).await, Folder::Plain);
    assert_eq!(of_rights(false, true), Folder::Closed);
    assert_eq!(of_rights(true, false), Folder::ReadOnly);
    if rustix::process::geteuid().is_root() {
        eprintln!("skipped: root may enter and write everywhere");
        return;
    }
    std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o500)).unwrap();
    assert_eq!(bed.checkouts.clones.look_at(&plain).await, Folder::ReadOnly);
    std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(bed.checkouts.clones.look_at(&plain).await, Folder::Closed);
    assert_eq!(bed.checkouts.clones.look_at(&plain.join("below")).await, Folder::Closed);
}

#[tokio::test]
async fn a_repository_has_a_branch_and_is_clean_or_not() {
    let bed = Bed::new();
    let found = repository(&bed, &bed.source()).await;
    assert_eq!(found.branch.as_deref(), Some("main"));
    assert!(found.commit.is_some() && found.no_clones.is_none());
    assert_eq!(found.is_clean, Some(true));
    // A look at files that were only touched writes nothing into the repository.
    let index = bed.source().join(".git/index");
    let before = std::fs::read(&index).unwrap();
    let touched = std::fs::File::options().write(true).open(bed.source().join("main.txt"));
    touched.unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(repository(&bed, &bed.source()).await.is_clean, Some(true));
    assert!(std::fs::read(&index).unwrap() == before);
    // A folder of the repository, and ignored files.
    std::fs::create_dir(bed.source().join("target")).unwrap();
    bed.put("target/built", "x");
    assert_eq!(repository(&bed, &bed.source().join("target")).await.is_clean, Some(true));
    bed.put("new.txt", "x");
    assert_eq!(repository(&bed, &bed.source()).await.is_clean, Some(false));
    bed.git(&bed.source(), &["add", "new.txt"]);
    assert_eq!(repository(&bed, &bed.source()).await.is_clean, Some(false));
    bed.git(&bed.source(), &["commit", "--quiet", "-m", "second"]);
    assert_eq!(repository(&bed, &bed.source()).await.is_clean, Some(true));
    bed.put("main.txt", "changed\n");
    assert_eq!(repository(&bed, &bed.source()).await.is_clean, Some(false));
    bed.git(&bed.source(), &["checkout", "--quiet", "main.txt"]);
    bed.git(&bed.source(), &["checkout", "--quiet", "--detach"]);
    let detached = repository(&bed, &bed.source()).await;
    assert_eq!((detached.branch, detached.is_clean), (None, Some(true)));

    let empty = bed.folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    bed.git(&empty, &["init", "--quiet"]);
    let empty = repository(&bed, &empty).await;
    assert_eq!((empty.branch, empty.commit, empty.is_clean), (None, None, None));
}

#[tokio::test]
async fn nothing_that_a_repository_brings_along_runs() {
    let bed = Bed::new();
    let mark = bed.folder.path().join("ran");
    let runs = format!("touch {}; cat", mark.display());
    for key in ["filter.x.clean", "filter.x.smudge", "core.fsmonitor", "diff.external"] {
        bed.git(&bed.source(), &["config", key, &runs]);
    }
    bed.put(".gitattributes", "* filter=x\n");
    // The new text has the length of the old one, so git must read it.
    bed.put("main.txt", "ONE\ntwo\nthree\nfour\nfive\n");
    assert_eq!(repository(&bed, &bed.source()).await.is_clean, Some(false));
    assert!(!mark.exists());
}
