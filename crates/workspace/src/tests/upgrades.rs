//! The upgrade of a project from version 0.1.0, which linked packs into the keep repository.

use std::fs::{File, hard_link, remove_file};
use std::os::unix::fs::MetadataExt as _;

use super::rights::chain;
use super::*;
use domain::attention::WaitingUpgrade;
use machine::sys::files;

/// The size of a sparse file that is larger than the free space.
const LARGE: u64 = 1 << 43;

/// Returns a pack of the folder.
pub(super) fn pack_in(packs: &Path) -> PathBuf {
    let is_pack = |name: &String| Path::new(name).extension().is_some_and(|it| it == "pack");
    let pack = super::objects::names_in(packs).into_iter().find(is_pack);
    packs.join(pack.unwrap())
}

#[tokio::test]
async fn a_project_without_room_for_its_copies_waits_as_it_is_and_the_others_go_on() {
    let bed = Bed::new();
    bed.prepare("one").await;
    let keep = bed.keep_repository();
    let large = keep.join("objects/pack/large");
    File::create(&large).unwrap().set_len(LARGE).unwrap();
    let probe = File::create(bed.folder.path().join("probe")).unwrap();
    if files::share(&File::open(&large).unwrap(), &probe).is_ok() {
        println!("skipped: copies need no room on this file system");
        return;
    }
    hard_link(&large, bed.folder.path().join("linked")).unwrap();
    remove_file(keep.join("mended")).unwrap();
    for id in ["two", "three"] {
        let refused = bed.checkouts.clones.prepare(&bed.order(id)).await.unwrap_err();
        assert!(!refused.needs_person(), "it goes on by itself");
        assert!(chain(&refused).contains(&format!("copies {LARGE} bytes")), "{refused}");
        let waiting = bed.checkouts.keep.list_waiting_upgrades().await;
        let [WaitingUpgrade { project, n_bytes, n_free }] = &waiting[..] else {
            panic!("one entry of the project: {waiting:?}");
        };
        assert_eq!((project.as_str(), *n_bytes), ("shop", LARGE));
        assert!(*n_free > 0 && *n_free < LARGE, "{n_free}");
        assert!(large.metadata().unwrap().nlink() == 2 && !keep.join("mended").exists());
    }
    let order = Order { project: "other".parse().unwrap(), ..bed.order("other") };
    bed.checkouts.clones.prepare(&order).await.unwrap();
    assert_eq!(bed.checkouts.keep.list_waiting_upgrades().await.len(), 1);

    // A smaller file stands for a larger disk.
    File::create(&large).unwrap().set_len(1).unwrap();
    bed.prepare("two").await;
    assert!(large.metadata().unwrap().nlink() == 1 && keep.join("mended").exists());
    assert!(bed.checkouts.keep.list_waiting_upgrades().await.is_empty());
}

#[tokio::test]
async fn a_damaged_pack_stays_as_it_is_and_is_named_to_a_person() {
    let bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    bed.commit(&tree, "one.txt", "one\n");
    bed.keep("one", &one).await;
    let keep = bed.keep_repository();
    let packs = keep.join("objects/pack");
    let pack = pack_in(&packs);
    let index = pack.with_extension("idx");
    let whole = std::fs::read(&pack).unwrap();
    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 0xff;
    let replace = |content: &[u8]| {
        remove_file(&pack).unwrap();
        std::fs::write(&pack, content).unwrap();
    };
    replace(&damaged);
    hard_link(&pack, bed.folder.path().join("linked")).unwrap();
    remove_file(keep.join("mended")).unwrap();
    let refused = bed.checkouts.clones.prepare(&bed.order("two")).await.unwrap_err();
    assert!(refused.needs_person() && refused.to_string().contains("is damaged"), "{refused}");
    assert!(refused.to_string().contains(pack.to_str().unwrap()), "{refused}");
    assert_eq!((pack.metadata().unwrap().nlink(), std::fs::read(&pack).unwrap()), (2, damaged));
    assert!(!packs.join(".new-copy").exists() && !keep.join("mended").exists());

    // A backup brings it back. Only one part of it is shared then.
    replace(&whole);
    hard_link(&index, bed.folder.path().join("linked-index")).unwrap();
    bed.prepare("two").await;
    assert!([&pack, &index].iter().all(|file| file.metadata().unwrap().nlink() == 1));
    assert!(!packs.join(".new-copy").exists() && keep.join("mended").exists());
    bed.git(&keep, &["fsck", "--no-dangling"]);
}

#[tokio::test]
async fn the_copies_of_a_killed_upgrade_are_removed_where_all_files_were_replaced() {
    let bed = Bed::new();
    bed.prepare("one").await;
    let keep = bed.keep_repository();
    // It had linked a file that only its user can change, and was about to remove the folder.
    let whole = keep.join("objects/pack/whole");
    let [beside, empty] =
        ["pack", "00"].map(|name| keep.join("objects").join(name).join(".new-copy"));
    for folder in [&beside, &empty] {
        std::fs::create_dir_all(folder).unwrap();
    }
    std::fs::write(&whole, "whole").unwrap();
    hard_link(&whole, beside.join("whole")).unwrap();
    let before = whole.metadata().unwrap().ino();
    remove_file(keep.join("mended")).unwrap();
    bed.prepare("two").await;
    assert!(keep.join("mended").exists() && !beside.exists() && !empty.exists());
    let found = whole.metadata().unwrap();
    assert_eq!((found.nlink(), found.ino()), (1, before), "it was not copied once more");
}
