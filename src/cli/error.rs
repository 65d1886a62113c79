//! The errors of a command, and their exit codes.

use std::io::{self, IsTerminal as _, Write as _};

use hyper::StatusCode;

use config::ConfigError;
use domain::printable;
use runtime::http::Problem;
use runtime::telemetry::ErrorChain;

pub(super) const EXIT_FAILED: u8 = 1;
pub(super) const EXIT_USAGE: u8 = 2;
pub(super) const EXIT_NO_DAEMON: u8 = 69;
pub(super) const EXIT_CONFIGURATION: u8 = 78;

/// The reason why a command did not succeed.
#[derive(Debug)]
pub(super) enum CliError {
    /// The command was refused or failed.
    Failed(String),
    /// The daemon went away before it answered, or does not answer at present. The same request may
    /// succeed later.
    Lost(String),
    /// The command did what it was asked for, and a script learns the result from this exit code.
    Result(u8),
    /// The arguments make no sense.
    Usage(String),
    NoDaemon {
        /// The place where the daemon was expected.
        at: String,
    },
    Configuration(ConfigError),
    /// A report about a file, in several lines.
    File(String),
    /// The reader of the output has gone, so that there is nothing more to print.
    Hushed,
}

impl CliError {
    /// Returns whether the daemon is away, so that a command that follows it waits for its return.
    pub(super) const fn is_absence(&self) -> bool {
        matches!(self, Self::NoDaemon { .. } | Self::Lost(_))
    }

    pub(super) const fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) | Self::Lost(_) => EXIT_FAILED,
            Self::Result(code) => *code,
            Self::Usage(_) => EXIT_USAGE,
            Self::NoDaemon { .. } => EXIT_NO_DAEMON,
            Self::Configuration(_) | Self::File(_) => EXIT_CONFIGURATION,
            Self::Hushed => 0,
        }
    }

    /// Prints the error on standard error. It ignores a closed standard error.
    pub(super) fn print(&self) {
        let text = match self {
            Self::Failed(text) | Self::Lost(text) | Self::Usage(text) => {
                format!("agent-coordinator: {}", printable::lines(text))
            }
            Self::NoDaemon { at } => format!(
                "agent-coordinator: no daemon is running: no process listens on {at}\n\
                 Start one with `agent-coordinator run` (or `serve`, `supervise`), or name its configuration with --config.",
            ),
            Self::Configuration(error @ ConfigError::Unreadable { .. }) => {
                format!("agent-coordinator: {}", ErrorChain(error))
            }
            Self::Configuration(error) if io::stderr().is_terminal() => error.colored(),
            Self::Configuration(error) => error.to_string(),
            Self::File(report) => report.clone(),
            Self::Hushed | Self::Result(_) => return,
        };
        let _ = writeln!(io::stderr(), "{text}");
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Hushed,
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl From<Problem> for CliError {
    fn from(problem: Problem) -> Self {
        let text = match problem.hint {
            Some(hint) => format!("{} ({hint})", problem.detail),
            None => problem.detail,
        };
        if problem.status == StatusCode::SERVICE_UNAVAILABLE.as_u16() {
            Self::Lost(text)
        } else {
            Self::Failed(text)
        }
    }
}
