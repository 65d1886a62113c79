//! The state directory: it is made for its owner only, and refused if every user may write to it.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use machine::sys::regular_file;

const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Every user of the machine may write to the state directory.
#[derive(Debug, thiserror::Error)]
#[error(
    "every user of this machine may write to the state directory `{path}` (mode {mode:04o}) and replace its tokens and sockets; \
     see that nothing in it is another user's, then run: chmod 700 '{path}'",
    path = .path.display()
)]
pub struct OpenStateDir {
    path: PathBuf,
    mode: u32,
}

/// Checks the permissions of a state directory, which need not exist. Returns a warning if its
/// group may write to it.
///
/// # Errors
/// Returns an error if every user may write to it.
pub fn check_state_dir(path: &Path) -> Result<Option<String>, OpenStateDir> {
    // Other problems with it are reported when it is used.
    let Ok(found) = fs::metadata(path) else {
        return Ok(None);
    };
    let mode = found.permissions().mode() & 0o7777;
    if mode & OTHERS_WRITE != 0 {
        return Err(OpenStateDir { path: path.to_owned(), mode });
    }
    let path = path.display();
    Ok((mode & GROUP_WRITES != 0).then(|| {
        format!(
            "the group of the state directory `{path}` may write to it (mode {mode:04o}) and replace its tokens and sockets; \
             to leave it to its owner, run: chmod go-w '{path}'"
        )
    }))
}

/// Makes the state directory, for its owner only, with the folders above it.
///
/// # Errors
/// Returns an error if it cannot be made or written to, or if every user may write to it.
pub(super) fn create_state_dir(path: &Path) -> anyhow::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).with_context(|| {
        format!("could not create the state directory `{}`; set state_dir", path.display())
    })?;
    if let Some(warning) = check_state_dir(path)? {
        tracing::warn!("{warning}");
    }
    let probe = path.join(".writable");
    regular_file::make_anew(&probe).and_then(|_| fs::remove_file(&probe)).with_context(|| {
        format!("the state directory `{}` is not writable; set state_dir", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(mode: u32, expected: Result<Option<&str>, &str>) {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        let said = check_state_dir(folder.path()).map_err(|error| error.to_string());
        match expected {
            Ok(None) => assert_eq!(said, Ok(None), "{mode:o}"),
            Ok(Some(words)) => {
                assert!(said.as_ref().unwrap().as_ref().unwrap().contains(words), "{said:?}");
            }
            Err(words) => assert!(said.as_ref().unwrap_err().contains(words), "{said:?}"),
        }
        assert_eq!(create_state_dir(folder.path()).is_ok(), expected.is_ok(), "{mode:o}");
    }

    #[test]
    fn a_state_directory_that_everybody_may_write_to_is_refused() {
        for closed in [0o700, 0o711, 0o755] {
            check(closed, Ok(None));
        }
        check(0o775, Ok(Some("(mode 0775)")));
        check(0o777, Err("(mode 0777)"));
        check(0o702, Err("chmod 700 '/"));
        // Other users could still create entries of a sticky folder first.
        check(0o1777, Err("(mode 1777)"));
    }

    #[test]
    fn a_state_directory_is_made_for_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("above/state");
        assert!(matches!(check_state_dir(&path), Ok(None)));
        create_state_dir(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
