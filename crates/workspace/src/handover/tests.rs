//! Tests of the handover of a project to the keeper, without git.

use super::*;
use crate::rights::{run_as, set_mode};

/// Returns the places of a project of root in a folder in which each user can make files.
fn open_project(folder: &Path) -> Place {
    let keep = folder.join("keep.git");
    std::fs::create_dir(&keep).unwrap();
    std::fs::write(keep.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    set_mode(&keep, 0o755).unwrap();
    set_mode(folder, 0o777).unwrap();
    Place::new(folder.to_owned(), folder.to_owned(), folder.to_owned())
}

#[test]
fn a_handover_that_cannot_begin_leaves_no_mark() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let place = open_project(folder.path());
    let mark = folder.path().join(HANDOVER);
    let keeper = Owner { uid: 2, gid: 2 };
    for has_begun in [false, true] {
        if has_begun {
            write_mark(&mark, keeper).unwrap();
        }
        // Like root where something prevents it, another user cannot give away what is root's.
        let other = Some(Owner { uid: 1, gid: 1 });
        let refused = run_as(other, || hand_over(&place, keeper)).unwrap_err();
        assert!(refused.needs_person() && refused.to_string().contains("HEAD"), "{refused}");
        assert_eq!(mark.exists(), has_begun);
    }
    hand_over(&place, keeper).unwrap();
    assert_eq!((place.keeper(), mark.exists()), (Some(Owner { uid: 2, gid: 0 }), false));
}

#[test]
fn a_handover_that_changed_no_owner_keeps_its_mark() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let place = open_project(folder.path());
    // The system calls succeed with this id, and change nothing.
    let no_user = Owner { uid: u32::MAX, gid: u32::MAX };
    let refused = hand_over(&place, no_user).unwrap_err();
    assert!(refused.needs_person() && refused.to_string().contains("stayed"), "{refused}");
    assert!(folder.path().join(HANDOVER).exists());
}
