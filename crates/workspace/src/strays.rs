//! Ends the processes that an earlier daemon left behind when it was killed: those of git, and
//! those of hooks. They would go on to write into the repositories that this daemon changes.

use std::io;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::Instant;

use machine::sys::processes;
use runtime::clock;

/// The variable that is the same in all git processes of one root, and in no other process.
pub(super) const MARK: &str = "GIT_CONFIG_GLOBAL";
/// The variable that each process of a hook has. Its value begins with that of [`MARK`].
pub(super) const HOOK_MARK: &str = "AGENT_COORDINATOR_MERGE_HOOK";
/// The time that a process has to end by itself.
const GRACE: Duration = Duration::from_secs(1);
/// The time within which all processes are gone.
const LONGEST: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// Ends all processes with a variable whose value begins with `beginning`, and returns when they
/// are gone. They get a moment to end by themselves, because git removes its locks then. No call of
/// this process with such a value may be under way.
///
/// # Errors
/// The processes cannot be listed, or a killed one stays.
pub(super) async fn end(variable: &'static str, beginning: &str) -> io::Result<()> {
    let begin: Instant = clock::now();
    let mut signal = Some(Signal::TERM);
    loop {
        let found = tokio::task::spawn_blocking({
            let beginning = beginning.to_owned();
            move || signal_all(variable, &beginning, signal)
        });
        let n_found = found.await.map_err(io::Error::other)??;
        if n_found == 0 {
            return Ok(());
        }
        let now = clock::now();
        if now >= begin + LONGEST {
            let message = format!(
                "{n_found} processes of git or of a hook do not end although they were killed"
            );
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        if signal == Some(Signal::TERM) {
            tracing::warn!(n_found, "ended processes of git or of a hook that were left");
        }
        signal = (now >= begin + GRACE).then_some(Signal::KILL);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Sends a signal to all these processes, and returns their number.
fn signal_all(variable: &str, beginning: &str, signal: Option<Signal>) -> io::Result<usize> {
    let own = std::process::id().cast_signed();
    let is_stray = |process: &processes::Process| {
        !process.is_zombie
            && process.pid != own
            && processes::find_variable(process.pid, variable)
                .is_some_and(|value| value.starts_with(beginning))
    };
    let strays: Vec<_> = processes::list()?.into_iter().filter(is_stray).collect();
    if let Some(signal) = signal {
        for stray in &strays {
            processes::send(stray, signal);
        }
    }
    Ok(strays.len())
}
