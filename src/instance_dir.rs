//! The folder of one agent instance: its layout, its file types, and how to read them. Described here once, for the shim and
//! the process table, which write it, and for the service and the command line, which read output from it.
//!
//! Knows nothing of what the facts mean: whether to adopt, stop or report is decided by its callers.
//!
//! | file | written by | content |
//! |---|---|---|
//! | `lock` | held by the shim for life | who the shim is; free: no shim now or ever again |
//! | `spec.json` | daemon, before the spawn | launch, key, program, directory, fuse; no secrets |
//! | `files/` | daemon, before the spawn; the agent | what its program takes from files only, such as settings |
//! | `started.json` | shim | the agent's process |
//! | `stop.json` | daemon (shim: burnt fuse) | why it is to end; the first reason wins |
//! | `authenticated` | daemon | marker for the fuse |
//! | `condition.json` | shim | stopped by a signal, unkillable; only where it was so |
//! | `exit.json` | shim | `ended` when the tree is empty; before that, `exited` at once if something of it outlives its leader |
//! | `output.log`, `.1` … | shim | what the agent printed |
//! | `shim.log` | shim | its own troubles, rarely |
//!
//! None of it is synced: after a power loss no agent lives anyway.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::record::Record as _;
use crate::domain::LaunchId;
use crate::sys::regular_file;

pub mod clock;
pub mod lock;
pub mod order;
pub mod output_reader;
pub mod record;

pub use crate::domain::instance::{MARK_VARIABLE, SHIM_COMM};
/// Current output; older parts have `.1`, `.2` … appended, `.1` being the youngest.
pub const OUTPUT_LOG: &str = "output.log";
/// The shim's own troubles.
pub const SHIM_LOG: &str = "shim.log";
/// Between the last word of a shim and its end, at most.
pub const LINGER: Duration = Duration::from_millis(250);
const FILES: &str = "files";
const AUTHENTICATED: &str = "authenticated";

/// Where the folders of live and unacknowledged instances are.
pub fn instances(state_dir: &Path) -> PathBuf {
    state_dir.join("instances")
}

/// Where folders go once the server has acknowledged the end.
pub fn ended(state_dir: &Path) -> PathBuf {
    state_dir.join("ended")
}

/// The folder of an instance that is live or not yet acknowledged.
pub fn instance(state_dir: &Path, launch: &LaunchId) -> PathBuf {
    instances(state_dir).join(launch.as_str())
}

/// The folder of an instance whose end the server has acknowledged.
pub fn ended_instance(state_dir: &Path, launch: &LaunchId) -> PathBuf {
    ended(state_dir).join(launch.as_str())
}

/// The folder of `launch`, live or ended; `None` where there is none (any more).
pub fn find(state_dir: &Path, launch: &LaunchId) -> Option<PathBuf> {
    [instance(state_dir, launch), ended_instance(state_dir, launch)]
        .into_iter()
        .find(|dir| is_folder(dir))
}

/// Returns whether `path` itself is a folder, not a link to one.
fn is_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_dir())
}

/// Whether nothing more will be written into an instance folder: its tree is empty.
pub fn is_ended(dir: &Path) -> bool {
    matches!(record::read::<record::Exit>(dir), Ok(Some(exit)) if exit.state == record::ExitState::Ended)
}

/// The existing output files of an instance, oldest first: read one after the other they are what the agent printed. What is no
/// regular file isn't one of them.
pub fn output_files(dir: &Path) -> Vec<PathBuf> {
    let is_file = |path: &PathBuf| path.symlink_metadata().is_ok_and(|found| found.is_file());
    let rotated = (1..).map(|n| rotated_log(dir, n)).take_while(is_file);
    let mut files: Vec<PathBuf> = rotated.collect();
    files.reverse();
    files.extend(Some(dir.join(OUTPUT_LOG)).filter(is_file));
    files
}

/// `output.log.<n>`; the higher `n`, the older.
pub fn rotated_log(dir: &Path, n: u32) -> PathBuf {
    dir.join(format!("{OUTPUT_LOG}.{n}"))
}

/// Where the files are that a launch begins with, in the folder of its instance.
pub fn files(dir: &Path) -> PathBuf {
    dir.join(FILES)
}

/// Creates a folder that only its owner can enter.
pub fn create_private(dir: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(dir)
}

/// Disarms the fuse. Repeating it changes nothing.
pub fn mark_authenticated(dir: &Path) -> io::Result<()> {
    // Another name of a file that is there takes no space, so that a full disk doesn't keep it from being set.
    if std::fs::hard_link(dir.join(record::Spec::FILE), dir.join(AUTHENTICATED)).is_ok() {
        return Ok(());
    }
    if is_marked_authenticated(dir) {
        return Ok(());
    }
    // On a file system without such names.
    regular_file::open_or_make(&dir.join(AUTHENTICATED)).map(drop)
}

/// Whatever has this name marks: it is never opened.
pub fn is_marked_authenticated(dir: &Path) -> bool {
    dir.join(AUTHENTICATED).symlink_metadata().is_ok()
}

/// The last `most` bytes of what the agent of the launch in `dir` printed, as text; what began before them is cut off.
///
/// # Errors
/// When there is no output, or it can't be read.
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
