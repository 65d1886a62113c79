//! The folder of one agent instance: its layout, its file types, and functions to read them. It is
//! described only here, for the shim and the process table, which write it, and for the service and
//! the command line, which read output from it.
//!
//! It does not know the meaning of the facts: its callers decide whether to adopt, stop or report.
//!
//! | file | written by | content |
//! |---|---|---|
//! | `lock` | held by the shim for life | the shim's identity; free: no shim now or ever again |
//! | `spec.json` | daemon, before the spawn | launch, key, program, directory, start deadline; no secrets |
//! | `conversation.json` | daemon, before the spawn | its CLI's transcript, as it was then |
//! | `files/` | daemon (before the spawn), agent | files that its program needs, such as settings |
//! | `started.json` | shim | the agent's process |
//! | `stop.json` | daemon (shim: passed start deadline) | the reason for its end; the first reason wins |
//! | `authenticated` | daemon | marker for the start deadline |
//! | `condition.json` | shim | stopped by a signal, unkillable; only if it was in such a state |
//! | `exit.json` | shim | `exited`: the leader is gone, others live; `ended`: the tree is empty |
//! | `report.json` | daemon | the report that the agent left because its server was away |
//! | `output.log`, `.1` … | shim | the agent's output |
//! | `shim.log` | shim | its own errors, rarely |
//!
//! None of it is synced: after a power loss no agent lives anyway.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use self::record::Record as _;
use crate::sys::regular_file;
use domain::LaunchId;

pub mod clock;
pub mod lock;
pub mod order;
pub mod output_pages;
pub mod output_reader;
pub mod record;

pub use domain::instance::{MARK_VARIABLE, SHIM_COMM};
/// The current output file. Older parts have `.1`, `.2` … appended; `.1` is the youngest.
pub const OUTPUT_LOG: &str = "output.log";
/// The file with the shim's own errors.
pub const SHIM_LOG: &str = "shim.log";
/// The longest time between the last record of a shim and its end.
pub const LINGER: Duration = Duration::from_millis(250);
/// The number of digits in the name of a launch's folder for temporary files.
pub const TEMPORARY_DIGITS: usize = 12;
const FILES: &str = "files";
const AUTHENTICATED: &str = "authenticated";

/// Returns the name of a launch's folder for temporary files. It is short for any id, and the same
/// for each daemon. The agent leaves a report there that finds no server.
pub fn temporary_name(launch: &LaunchId) -> String {
    let digest = Sha256::digest(launch.as_str().as_bytes());
    let mut name = digest.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    name.truncate(TEMPORARY_DIGITS);
    name
}

/// Returns the folder that contains live and unacknowledged instances.
pub fn instances(state_dir: &Path) -> PathBuf {
    state_dir.join("instances")
}

/// Returns the folder to which instances move when the server has acknowledged their end.
pub fn ended(state_dir: &Path) -> PathBuf {
    state_dir.join("ended")
}

/// Returns the folder of an instance that is live or not yet acknowledged.
pub fn instance(state_dir: &Path, launch: &LaunchId) -> PathBuf {
    instances(state_dir).join(launch.as_str())
}

/// Returns the folder of an instance whose end the server has acknowledged.
pub fn ended_instance(state_dir: &Path, launch: &LaunchId) -> PathBuf {
    ended(state_dir).join(launch.as_str())
}

/// Finds the folder of `launch`, live or ended; `None` if it does not exist, or no longer exists.
pub fn find(state_dir: &Path, launch: &LaunchId) -> Option<PathBuf> {
    [instance(state_dir, launch), ended_instance(state_dir, launch)]
        .into_iter()
        .find(|dir| is_folder(dir))
}

/// Returns whether `path` itself is a folder, not a link to one.
fn is_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_dir())
}

/// Returns whether the tree of an instance is empty, so that nothing more is written into its
/// folder.
pub fn is_ended(dir: &Path) -> bool {
    matches!(record::read::<record::Exit>(dir), Ok(Some(exit)) if exit.state == record::ExitState::Ended)
}

/// Lists the existing output files of an instance, oldest first: read in this order, they are the
/// agent's output. Entries that are not regular files are left out.
pub fn output_files(dir: &Path) -> Vec<PathBuf> {
    let is_file = |path: &PathBuf| path.symlink_metadata().is_ok_and(|found| found.is_file());
    let rotated = (1..).map(|n| rotated_log(dir, n)).take_while(is_file);
    let mut files: Vec<PathBuf> = rotated.collect();
    files.reverse();
    files.extend(Some(dir.join(OUTPUT_LOG)).filter(is_file));
    files
}

/// Returns the path of `output.log.<n>`; a higher `n` is older.
pub fn rotated_log(dir: &Path, n: u32) -> PathBuf {
    dir.join(format!("{OUTPUT_LOG}.{n}"))
}

/// Returns the place of a launch's initial files, in the folder of its instance.
pub fn files(dir: &Path) -> PathBuf {
    dir.join(FILES)
}

/// Creates a folder that only its owner can enter.
pub fn create_private(dir: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(dir)
}

/// Cancels the start deadline. Repeating it changes nothing.
pub fn mark_authenticated(dir: &Path) -> io::Result<()> {
    // Another name of an existing file takes no space, so it can be made even on a full disk.
    if std::fs::hard_link(dir.join(record::Spec::FILE), dir.join(AUTHENTICATED)).is_ok() {
        return Ok(());
    }
    if is_marked_authenticated(dir) {
        return Ok(());
    }
    // Some file systems have no such names.
    regular_file::open_or_make(&dir.join(AUTHENTICATED)).map(drop)
}

/// Returns whether the marker exists. Any entry with this name counts: it is never opened.
pub fn is_marked_authenticated(dir: &Path) -> bool {
    dir.join(AUTHENTICATED).symlink_metadata().is_ok()
}

/// Returns the last `most` bytes of the current output file of the instance in `dir`, as text. A
/// line that began before them is cut off.
///
/// # Errors
/// Returns an error if there is no output, or if it cannot be read.
pub fn output_tail(dir: &Path, most: u64) -> std::io::Result<String> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut file = regular_file::open(&dir.join(OUTPUT_LOG))?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_files_are_listed_oldest_first() {
        let dir = tempfile::tempdir().unwrap();
        assert!(output_files(dir.path()).is_empty());
        for name in ["output.log", "output.log.1", "output.log.2", "output.log.4"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        let names: Vec<_> =
            output_files(dir.path()).iter().map(|p| p.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["output.log.2", "output.log.1", "output.log"]);
    }

    #[test]
    fn an_instance_is_found_live_and_ended() {
        let state = tempfile::tempdir().unwrap();
        let launch: LaunchId = "lch_1".parse().unwrap();
        assert_eq!(find(state.path(), &launch), None);
        std::fs::create_dir_all(ended_instance(state.path(), &launch)).unwrap();
        assert_eq!(find(state.path(), &launch), Some(ended_instance(state.path(), &launch)));
        std::fs::create_dir_all(instance(state.path(), &launch)).unwrap();
        assert_eq!(find(state.path(), &launch), Some(instance(state.path(), &launch)));
    }
}
