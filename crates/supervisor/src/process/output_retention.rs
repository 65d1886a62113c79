//! Removes the folders of ended instances whose end the server has acknowledged, when they are old
//! or too large together. Blocking. [`domain::retention`] decides which folders are removed.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use tracing::warn;

use domain::retention::{PastOutput, Retention};
use domain::{LaunchId, Timestamp};
use machine::instance_dir;

/// The unit of `st_blocks`, in bytes.
const BLOCK: u64 = 512;

/// Removes ended folders below `state_dir` that the retention no longer keeps. Returns the number
/// of removed folders. It does not look at running instances.
///
/// # Errors
/// Returns an error if the folder of ended instances cannot be read. A single folder that cannot be
/// removed is logged and tried again the next time.
pub fn remove_old(state_dir: &Path, retention: &Retention, now: Timestamp) -> io::Result<u64> {
    let mut outputs = Vec::new();
    let entries = match fs::read_dir(instance_dir::ended(state_dir)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let Some(launch) =
            entry.file_name().to_str().and_then(|name| name.parse::<LaunchId>().ok())
        else {
            continue;
        };
        // The folder is gone already, or its age cannot be read.
        let Ok(output) = look(launch, &entry.path()) else {
            continue;
        };
        outputs.push(output);
    }
    let mut n_removed = 0;
    for launch in retention.outputs_that_go(outputs, now) {
        match fs::remove_dir_all(instance_dir::ended_instance(state_dir, &launch)) {
            Ok(()) => n_removed += 1,
            Err(error) => {
                warn!(launch_id = %launch, error = &error as &dyn std::error::Error, "could not remove an old output");
            }
        }
    }
    Ok(n_removed)
}

fn look(launch: LaunchId, dir: &Path) -> io::Result<PastOutput> {
    let mut size = 0;
    // The record of the end is the last file that is written in a folder.
    let mut ended_at = Timestamp::from_millis(0);
    for entry in fs::read_dir(dir)? {
        let file = entry?.metadata()?;
        // A sparse file takes less space than its length.
        size += file.len().min(file.blocks().saturating_mul(BLOCK));
        let written = file.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        ended_at = ended_at
            .max(Timestamp::from_millis(i64::try_from(written.as_millis()).unwrap_or(i64::MAX)));
    }
    Ok(PastOutput { launch, ended_at, size })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn old_folders_go_and_what_is_no_launch_stays() {
        let state = tempfile::tempdir().expect("a folder");
        let ended = instance_dir::ended(state.path());
        for name in ["lch_a", "lch_b", ".aside"] {
            fs::create_dir_all(ended.join(name)).expect("a folder");
            fs::write(ended.join(name).join("output.log"), "x").expect("a file");
        }
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("a time")
            .as_millis();
        let now = Timestamp::from_millis(i64::try_from(now).expect("a time"));
        let retention = Retention::default();
        assert_eq!(remove_old(state.path(), &retention, now).expect("no error"), 0);
        let soon = now + Duration::from_hours(1);
        let short = Retention { output: Duration::from_mins(1), ..retention };
        assert_eq!(remove_old(state.path(), &short, soon).expect("no error"), 2);
        assert!(!ended.join("lch_a").exists() && ended.join(".aside").exists());
        assert_eq!(remove_old(&state.path().join("none"), &short, soon).expect("no error"), 0);
    }
}
