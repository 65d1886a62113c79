//! Tests of the upgrade of a project, without git.

use std::os::unix::fs::symlink;

use super::*;
use crate::Checkouts;

#[test]
fn an_upgrade_without_room_changes_nothing_and_names_the_bytes() {
    let objects = Path::new("/srv/shop/keep.git/objects");
    for n_free in [None, Some(1_234), Some(5_000)] {
        assert!(check_room(objects, 1_234, n_free).is_ok(), "{n_free:?}");
    }
    let refused = check_room(objects, 1_234, Some(1_233)).unwrap_err().to_string();
    assert!(refused.starts_with("`/srv/shop/keep.git/objects` has files"), "{refused}");
    assert!(refused.contains("copies 1234 bytes, but only 1233 are free"), "{refused}");
    assert!(check_room(objects, 0, Some(0)).is_ok());
}

/// Makes a folder of objects with a pack that has a second name. Returns the paths of both.
fn linked_pack(folder: &Path) -> [PathBuf; 2] {
    let objects = folder.join("objects");
    let pack = objects.join("pack/a.pack");
    std::fs::create_dir_all(objects.join("pack")).unwrap();
    std::fs::write(&pack, "content").unwrap();
    std::fs::hard_link(&pack, folder.join("linked")).unwrap();
    [objects, pack]
}

#[test]
fn the_copy_of_a_killed_attempt_takes_no_room_from_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let [objects, pack] = linked_pack(folder.path());
    let left = pack.with_file_name(".new-copy");
    for is_folder in [false, true] {
        let half = if is_folder { left.join("a.pack") } else { left.clone() };
        std::fs::create_dir_all(half.parent().unwrap()).unwrap();
        std::fs::write(&half, "half").unwrap();
        let n_free = || Some(if left.exists() { 0 } else { 7 });
        let shared = shared_files(&objects, None).unwrap();
        assert_eq!(shared, [(pack.clone(), 7)]);
        replace_shared(&objects, shared, n_free).unwrap();
        assert_eq!(std::fs::read_to_string(&pack).unwrap(), "content");
        assert!(pack.metadata().unwrap().nlink() == 1 && !left.exists());
        std::fs::hard_link(&pack, folder.path().join(format!("again-{is_folder}"))).unwrap();
    }
}

#[test]
fn only_copies_that_are_checked_have_the_other_part_of_their_pack_beside_them() {
    let folder = tempfile::tempdir().unwrap();
    let [_, pack] = linked_pack(folder.path());
    let index = pack.with_extension("idx");
    std::fs::write(&index, "index").unwrap();
    let copies = Copies::make(vec![(pack.clone(), 7)]).unwrap();
    let beside = Copies::copy_of(&index);
    assert!(Copies::copy_of(&pack).exists() && !beside.exists());
    assert_eq!(copies.complete_pack().unwrap().as_ref(), Some(&pack));
    assert!(beside.exists());
    copies.put_in_place().unwrap();
    drop(copies);
    assert!([&pack, &index].iter().all(|file| file.metadata().unwrap().nlink() == 1));
}

#[test]
fn an_upgrade_tells_how_much_it_has_copied() {
    let folder = tempfile::tempdir().unwrap();
    let checkouts = Checkouts::new(folder.path().to_owned());
    let project = "shop".parse().unwrap();
    let of = folder.path().join("shop");
    let progress = Progress { upgrading: &checkouts.keep.upgrading, project: &of };
    for (n_copied, text) in [(0, "0 B of 12 B"), (7, "7 B of 12 B")] {
        progress.tell(Copying { n_copied, n_all: 12 });
        let said = checkouts.keep.upgrade_progress(&project).unwrap();
        assert_eq!(said, format!("the upgrade has copied {text}"));
    }
    drop(progress);
    assert_eq!(checkouts.keep.upgrade_progress(&project), None, "it has ended");
    assert_eq!(checkouts.keep.upgrade_progress(&"other".parse().unwrap()), None);
}

#[test]
fn a_full_disk_refuses_only_copies_that_do_not_share_their_content() {
    let folder = tempfile::tempdir().unwrap();
    let [objects, pack] = linked_pack(folder.path());
    let probe = File::create(folder.path().join("probe")).unwrap();
    let is_shared = files::share(&File::open(&pack).unwrap(), &probe).is_ok();
    assert_eq!(can_share(&pack), is_shared);
    assert!(!new_copy(&pack).exists());
    // A link in the place of the copy is not followed.
    symlink(folder.path().join("linked"), new_copy(&pack)).unwrap();
    assert!(!can_share(&pack));
    assert_eq!(std::fs::read_to_string(folder.path().join("linked")).unwrap(), "content");
    let shared = shared_files(&objects, None).unwrap();
    assert_eq!(replace_shared(&objects, shared, || Some(0)).is_ok(), is_shared);
}
