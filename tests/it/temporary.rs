//! The folder for temporary files of a launch. It exists before the agent, belongs to it alone, and
//! disappears with the last of its processes.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use domain::{RunAs, Secret};
use supervisor::process::TemporaryConfig;

use crate::support::{Bed, skip, until};

/// The id of `nobody` on almost every system.
const USER: u32 = 65534;
const FILLS: &str = r#"run:mkdir -p "$TMPDIR/a/b" && echo x >"$TMPDIR/a/b/c" && ln -s / "$TMPDIR/a/root" && echo "$TMPDIR" >named.draft && mv named.draft named"#;

/// Returns the folders of launches below a base.
fn folders(base: &Path) -> Vec<PathBuf> {
    let below = |folder: &Path| {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let is_common = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("ac-");
    below(base).into_iter().filter(is_common).flat_map(|common| below(&common)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn temporary_files_of_a_launch_go_with_its_last_process() {
    let bed = Bed::new().await;
    let launch = bed.start(&[FILLS, "wait-for:go"]).await;
    let named = PathBuf::from(bed.written("named").trim());
    assert!(named.as_os_str().len() <= 60, "{}", named.display());
    assert_eq!(folders(&bed.config.state_dir), std::slice::from_ref(&named));
    let found = fs::metadata(&named).unwrap();
    assert_eq!((found.mode() & 0o7777, found.uid()), (0o700, rustix::process::geteuid().as_raw()));
    fs::write(bed.file("go"), "").unwrap();
    bed.until_ended(&launch);
    until("its temporary files are gone", || !named.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_the_command_names_is_the_only_one() {
    let bed = Bed::new().await;
    let mut request = bed.request(&["env:variables", "sleep:600"]);
    request.command.environment.push(("TMPDIR".to_owned(), Secret::new("/var/tmp")));
    bed.start_request(request).await;
    assert!(bed.written("variables").lines().any(|line| line == "TMPDIR=/var/tmp"));
    assert!(folders(&bed.config.state_dir).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_daemon_keeps_the_files_of_the_living_and_removes_those_of_the_dead() {
    let mut bed = Bed::new().await;
    let living = bed.start(&[FILLS, "sleep:600"]).await;
    let of_living = PathBuf::from(bed.written("named").trim());
    let dead = bed
        .start(&["run:echo $TMPDIR >of_dead.draft; mv of_dead.draft of_dead", "wait-for:go"])
        .await;
    let of_dead = PathBuf::from(bed.written("of_dead").trim());
    bed.leave().await;
    fs::write(bed.file("go"), "").unwrap();
    bed.until_shim_gone(&dead);
    // This folder was left by a launch whose folder in the state directory is gone.
    let of_nobody = of_dead.with_file_name("0123456789ab");
    fs::create_dir(&of_nobody).unwrap();
    assert!(of_dead.exists());
    bed.open().await;
    until("temporary files of the dead are gone", || !of_dead.exists() && !of_nobody.exists());
    assert!(of_living.join("a/b/c").exists());
    bed.stop(&living).await;
    bed.until_ended(&living);
    until("those of the last one, too", || !of_living.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn temporary_files_of_another_user_are_removed_as_that_user() {
    if !rustix::process::geteuid().is_root() {
        skip("only root starts agents as other users");
        return;
    }
    let (base, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::set_permissions(base.path(), Permissions::from_mode(0o711)).unwrap();
    let bases = vec![base.path().to_owned()];
    let bed =
        Bed::with(|config| config.temporary = TemporaryConfig { bases, is_for_others: true }).await;
    fs::write(outside.path().join("kept"), "x").unwrap();
    let script = format!(
        r#"mkdir -p "$TMPDIR/a/b/c"; ln -s {0} "$TMPDIR/a/link"; ln -s {0} "$TMPDIR/link"; chmod 0 "$TMPDIR/a/b"; : >"$TMPDIR/ready"; exec sleep 600"#,
        outside.path().display()
    );
    let mut request = bed.request_program("/bin/sh", &["-c", &script]);
    request.command.run_as =
        Some(RunAs { name: "nobody".to_owned(), uid: USER, gid: USER, groups: vec![USER] });
    request.command.working_directory = "/".into();
    let launch = bed.start_request(request).await;
    until("the agent has made its files", || {
        folders(base.path()).first().is_some_and(|folder| folder.join("ready").exists())
    });
    let folder = folders(base.path()).remove(0);
    let found = fs::metadata(&folder).unwrap();
    assert_eq!((found.mode() & 0o7777, found.uid(), found.gid()), (0o700, USER, USER));
    let common = fs::metadata(folder.parent().unwrap()).unwrap();
    assert_eq!((common.mode() & 0o7777, common.uid()), (0o711, 0));
    // This is a file of root in a folder of root. The agent's user can't remove it, so it stays.
    fs::create_dir(folder.join("roots")).unwrap();
    fs::write(folder.join("roots/file"), "x").unwrap();
    bed.stop(&launch).await;
    bed.until_ended(&launch);
    until("what is the user's is gone", || {
        !folder.join("a").exists() && !folder.join("link").exists()
    });
    assert!(folder.join("roots/file").exists() && outside.path().join("kept").exists());
}
