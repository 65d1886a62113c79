//! Finds the folders that keep this user from looking at the state of a daemon of another user.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use machine::sys::user_names;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

/// A folder of another user that this user may not look into.
#[derive(Debug)]
pub(super) struct Barrier {
    folder: PathBuf,
    /// The name of the login of its owner, or else the id.
    owner: String,
}

impl Barrier {
    /// Returns the first folder on the way into `folder` that is closed to this user; `None` if the
    /// way is open, or if this user can open it. `access` is that to the last folder.
    fn find(folder: &Path, access: Access) -> Option<Self> {
        let mut way: Vec<&Path> = folder.ancestors().collect();
        way.reverse();
        for step in way {
            // The folder does not exist yet, which its open parent shows.
            let found = fs::metadata(step).ok()?;
            let wanted = if step == folder { access } else { Access::EXEC_OK };
            if accessat(CWD, step, wanted, AtFlags::EACCESS) != Err(Errno::ACCESS) {
                continue;
            }
            let uid = found.uid();
            return (uid != rustix::process::geteuid().as_raw()).then(|| Self {
                folder: step.to_owned(),
                owner: user_names::login_of(uid).unwrap_or_else(|| uid.to_string()),
            });
        }
        None
    }

    /// Returns the barrier on the way to a file or folder, without a look into it.
    pub(super) fn before(path: &Path) -> Option<Self> {
        Self::find(path.parent()?, Access::EXEC_OK)
    }

    /// Returns the barrier to the use of a folder as the daemon uses it.
    pub(super) fn to_use_of(folder: &Path) -> Option<Self> {
        Self::find(folder, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)
    }

    /// Returns the barrier to a list of what is in a folder.
    pub(super) fn to_list_of(folder: &Path) -> Option<Self> {
        Self::find(folder, Access::READ_OK | Access::EXEC_OK)
    }

    /// Returns what could not be done.
    pub(super) fn found(&self) -> String {
        format!("could not look: `{}` is closed to this user", self.folder.display())
    }

    /// Returns the remedy, which names the user who can look.
    pub(super) fn remedy(&self) -> String {
        format!("run `doctor` as `{}`, who owns that folder", self.owner)
    }
}
