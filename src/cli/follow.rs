//! Commands that follow the daemon wait for its return while it is away, and say so on standard
//! error.

use std::io::{self, Write as _};
use std::time::Duration;

use super::error::CliError;
use super::output_closed;

/// The first and the longest pause between two attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The connection of a command that follows the daemon.
#[derive(Debug)]
pub(super) struct Following {
    was_connected: bool,
    is_away: bool,
    pause: Duration,
}

impl Following {
    pub(super) const fn new() -> Self {
        Self { was_connected: false, is_away: false, pause: FIRST_PAUSE }
    }

    /// Notes that the daemon answers.
    pub(super) fn connected(&mut self) {
        if std::mem::take(&mut self.is_away) {
            say("connected again");
        }
        self.was_connected = true;
        self.pause = FIRST_PAUSE;
    }

    /// Waits before the next attempt after the connection was lost, or could not be made.
    /// Cancel-safe.
    ///
    /// # Errors
    /// `error`, if it is not the absence of a daemon that was there; `Hushed`, if the reader of the
    /// output has gone meanwhile.
    pub(super) async fn lost(&mut self, error: CliError) -> Result<(), CliError> {
        if !error.is_absence() || !self.was_connected {
            return Err(error);
        }
        if !std::mem::replace(&mut self.is_away, true) {
            say("the daemon is away; waiting for it");
        }
        tokio::select! {
            () = tokio::time::sleep(self.pause) => {}
            () = output_closed() => return Err(CliError::Hushed),
        }
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

/// Prints a line about the command itself on standard error, which may be closed.
pub(super) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "agent-coordinator: {text}");
}
