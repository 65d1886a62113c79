//! Chooses the program that shims run.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

/// The file name of the program that is only a shim.
pub const SHIM_PROGRAM: &str = "agent-coordinator-shim";

/// The bits of a mode that let the group and others write.
const OTHERS_WRITE: u32 = 0o022;

/// Returns the program that shims of `program` run: the one beside it that is only a shim, or else
/// `program`, which can be a shim as well.
///
/// The answer may change while a daemon runs, because an upgrade may add, replace or remove both
/// files. For the same reason the chosen file may be of another version than the daemon. That is
/// safe: an order and the records can be read by other versions, and a daemon knows its shims by
/// their name and their arguments, not by their program (`tests/it/faults/versions.rs`).
pub fn program_of_shims(program: &Path) -> PathBuf {
    let beside = program.with_file_name(SHIM_PROGRAM);
    let is_usable = is_as_safe(&beside, program).unwrap_or_default()
        && rustix::fs::access(&beside, Access::EXEC_OK).is_ok();
    if is_usable { beside } else { program.to_owned() }
}

/// Returns whether each user who can change a file can change `program` as well. In a folder like
/// `/tmp`, any user can add a file or a link.
fn is_as_safe(file: &Path, program: &Path) -> io::Result<bool> {
    let file = fs::symlink_metadata(file)?;
    let program = fs::metadata(program)?;
    // With two groups, the same mode lets other users write.
    let allowed = if file.gid() == program.gid() { program.mode() } else { 0 };
    let more_writers = file.mode() & !allowed & OTHERS_WRITE;
    Ok(file.is_file() && file.uid() == program.uid() && more_writers == 0)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    fn write(path: &Path, mode: u32) {
        fs::write(path, "").unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_program_of_shims_is_the_one_beside_the_daemons() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("renamed");
        let beside = folder.path().join(SHIM_PROGRAM);
        write(&program, 0o755);
        assert_eq!(program_of_shims(&program), program);
        write(&beside, 0o755);
        assert_eq!(program_of_shims(&program), beside);
    }

    #[test]
    fn a_file_that_others_may_have_put_there_is_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("agent-coordinator");
        let beside = folder.path().join(SHIM_PROGRAM);
        write(&program, 0o755);
        for mode in [0o644, 0o775, 0o757] {
            write(&beside, mode);
            assert_eq!(program_of_shims(&program), program, "{mode:o}");
        }
        write(&program, 0o775);
        write(&beside, 0o775);
        assert_eq!(program_of_shims(&program), beside);
        // Only root can give a file away.
        if rustix::process::geteuid().is_root() {
            let own = program.metadata().unwrap();
            for (uid, gid) in [(own.uid(), 65534), (65534, own.gid())] {
                chown(&beside, Some(uid), Some(gid)).unwrap();
                assert_eq!(program_of_shims(&program), program, "{uid}:{gid}");
            }
        }
        fs::remove_file(&beside).unwrap();
        symlink(&program, &beside).unwrap();
        assert_eq!(program_of_shims(&program), program);
        // Without a program there is nothing to compare with.
        fs::remove_file(&program).unwrap();
        assert_eq!(program_of_shims(&program), program);
    }
}
