//! The table's own parts of the state directory: the lock against a second coordinator, the
//! installation's id, the folders.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;
use sha2::{Digest as _, Sha256};

use super::OpenError;
use machine::instance_dir;
use machine::sys::regular_file::{self, MAX_SMALL};
use runtime::clock;

const LOCK: &str = "coordinator.lock";
const INSTALLATION_ID: &str = "installation_id";
/// The time to wait for the lock. A process that is being spawned holds a copy of every open file
/// until its exec, so a lock may outlive its daemon for that time.
const TIMEOUT: Duration = Duration::from_millis(300);

/// The state directory while this process owns it. Dropping it releases the directory.
pub struct StateDir {
    _lock: File,
    /// Distinguishes this installation's agents from those of another on the same host. It consists
    /// of a random id, made once, and the folder's place, so that a copy of the folder does not
    /// claim the original's agents.
    pub installation_id: String,
}

impl StateDir {
    /// Takes the state directory. Waits a moment for a predecessor that is just ending. Blocking.
    pub fn own(state_dir: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::StateDir { path: state_dir.to_owned(), source };
        let lock = take_lock(&state_dir.join(LOCK))?;
        for dir in [instance_dir::instances(state_dir), instance_dir::ended(state_dir)] {
            match instance_dir::create_private(&dir) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(failed(error));
                }
                _ => {}
            }
        }
        let place = state_dir.canonicalize().map_err(failed)?;
        let place = Sha256::digest(place.as_os_str().as_bytes());
        let place =
            place.iter().take(8).fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        let installation_id = format!("{}-{place}", installation_id(state_dir).map_err(failed)?);
        Ok(Self { _lock: lock, installation_id })
    }
}

/// The id cannot be read. Without it, the agents of this installation cannot be told from others.
#[derive(Debug, thiserror::Error)]
#[error("could not read `{}`", .path.display())]
struct UnusableId {
    path: PathBuf,
    source: io::Error,
}

#[allow(clippy::disallowed_methods, reason = "the start of the daemon waits for the lock")]
fn take_lock(path: &Path) -> Result<File, OpenError> {
    let failed = |source| OpenError::StateDir { path: path.to_owned(), source };
    let file = regular_file::open_or_make(path).map_err(failed)?;
    let give_up_at = clock::unpaused() + TIMEOUT;
    while let Err(error) = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK {
            return Err(failed(error.into()));
        }
        if clock::unpaused() >= give_up_at {
            let mut pid = String::new();
            file.take(MAX_SMALL).read_to_string(&mut pid).map_err(failed)?;
            return Err(OpenError::InUse { path: path.to_owned(), pid: pid.trim().to_owned() });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let noted = file
        .set_len(0)
        .and_then(|()| file.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0));
    noted.map(|()| file).map_err(failed)
}

fn installation_id(state_dir: &Path) -> io::Result<String> {
    let path = state_dir.join(INSTALLATION_ID);
    match regular_file::read_small_text(&path) {
        Ok(id) if !id.trim().is_empty() => return Ok(id.trim().to_owned()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            return Err(io::Error::new(error.kind(), UnusableId { path, source: error }));
        }
    }
    let id = uuid::Uuid::now_v7().to_string();
    let draft = state_dir.join(".installation_id");
    let mut file = regular_file::make_anew(&draft)?;
    writeln!(file, "{id}")?;
    std::fs::rename(draft, path)?;
    Ok(id)
}
