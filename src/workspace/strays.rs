//! Ends the git processes that an earlier daemon left behind when it was killed. They would go on
//! to write into the repositories that this daemon changes.

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::Instant;

use crate::clock;
use crate::sys::processes;

/// The variable that is the same in all git processes of one root, and in no other process.
pub(super) const MARK: &str = "GIT_CONFIG_GLOBAL";
/// The time within which a killed process is gone.
const LONGEST: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// Kills all processes with this configuration, and returns when they are gone. No call of this
/// process may be under way.
///
/// # Errors
/// The processes cannot be listed, or a killed one stays.
pub(super) async fn end(config: &Path) -> io::Result<()> {
    let deadline: Instant = clock::now() + LONGEST;
    loop {
        let found = tokio::task::spawn_blocking({
            let config = config.to_string_lossy().into_owned();
            move || kill_all(&config)
        });
        let n_killed = found.await.map_err(io::Error::other)??;
        if n_killed == 0 {
            return Ok(());
        }
        if clock::now() >= deadline {
            let message = format!(
                "{n_killed} git processes of an earlier daemon do not end although they were killed"
            );
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        tracing::warn!(n_killed, "killed git processes of an earlier daemon");
        tokio::time::sleep(PAUSE).await;
    }
}

fn kill_all(config: &str) -> io::Result<usize> {
    let own = std::process::id().cast_signed();
    let is_stray = |process: &processes::Process| {
        !process.is_zombie
            && process.pid != own
            && processes::find_variable(process.pid, MARK).as_deref() == Some(config)
    };
    let strays: Vec<_> = processes::list()?.into_iter().filter(is_stray).collect();
    for stray in &strays {
        processes::send(stray, Signal::KILL);
    }
    Ok(strays.len())
}
