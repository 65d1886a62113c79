//! The daemon's own log: the destination of lines, the filter, and the form of errors.
//!
//! JSON lines carry the fields of an event and of all spans around it at the top level, so `jq
//! 'select(.launch_id == "…")'` follows one launch. This module does not know the configuration:
//! its caller, `app`, passes the settings. The output of agents is logged by their shims, not
//! here.

pub mod counters;
mod lines;
mod log_file;
mod old_targets;
mod process_figures;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::{EnvFilter, LevelFilter, ParseError};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Registry, reload};

pub use lines::LineForm;
use lines::Lines;
use log_file::{LogFile, Reopen};

/// The target of audit lines. They are logged at every level.
const AUDIT: &str = "audit";
/// Targets whose level is not that of the other lines, unless the filter names them. The MCP library
/// logs an error for each agent that leaves without a word, and a warning with the contents of each
/// malformed call. The client of PostgreSQL logs the parameters of statements, which are texts of
/// people and agents.
const LEVELS: [(&str, &str); 3] = [("rmcp", "off"), (CLIENT_OF_POSTGRES, "info"), (AUDIT, "info")];
const CLIENT_OF_POSTGRES: &str = "tokio_postgres";

/// The reason why the log cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("log filter `{level}` is not valid")]
    Filter {
        level: String,
        #[source]
        source: ParseError,
    },
    #[error("could not open log file `{}`", .path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("logging is already set up")]
    Twice(#[source] TryInitError),
}

/// Keeps the log going. Dropping it writes the lines that are queued for a file.
#[derive(Debug)]
#[must_use = "dropping it ends the log file"]
pub struct TelemetryGuard {
    log: LogHandle,
    _worker: Option<WorkerGuard>,
}

impl TelemetryGuard {
    /// Returns the handle of the running log.
    pub fn log(&self) -> LogHandle {
        self.log.clone()
    }
}

/// A handle that changes the running log.
#[derive(Debug, Clone)]
pub struct LogHandle {
    filter: reload::Handle<EnvFilter, Registry>,
    reopen: Reopen,
}

impl LogHandle {
    /// Opens the log file again before the next line, because another program has moved it. Does
    /// nothing if the log goes to standard error.
    pub fn reopen_file(&self) {
        self.reopen.ask();
    }

    /// Sets the filter. `level` has the form that [`init`] takes.
    ///
    /// # Errors
    /// An invalid filter; the old one stays.
    pub fn set_level(&self, level: &str) -> Result<(), TelemetryError> {
        // This fails only once the log is gone, and then there is nothing to filter.
        let _ = self.filter.reload(filter(level)?);
        Ok(())
    }
}

/// Sets up logging for the whole process, once: to `file` (appended to) or to standard error.
///
/// `level` is a level or a list of `EnvFilter` directives.
///
/// # Errors
/// An invalid filter, a file that cannot be opened, a second call.
pub fn init(
    level: &str,
    form: LineForm,
    file: Option<&Path>,
) -> Result<TelemetryGuard, TelemetryError> {
    let (filter, handle) = reload::Layer::new(filter(level)?);
    let reopen = Reopen::default();
    let (subscriber, worker) = match file {
        None => {
            let lines: Box<dyn Layer<_> + Send + Sync> = Box::new(Lines::new(form, io::stderr));
            (lines, None)
        }
        Some(path) => {
            let file = LogFile::open(path, reopen.clone());
            let file =
                file.map_err(|source| TelemetryError::File { path: path.to_owned(), source })?;
            // A full queue waits for the disk instead of losing lines, because there are few lines
            // and each counts.
            let (writer, worker) = NonBlockingBuilder::default().lossy(false).finish(file);
            let lines: Box<dyn Layer<_> + Send + Sync> = Box::new(Lines::new(form, writer));
            (lines, Some(worker))
        }
    };
    tracing_subscriber::registry()
        .with(subscriber.with_filter(filter))
        .try_init()
        .map_err(TelemetryError::Twice)?;
    Ok(TelemetryGuard { log: LogHandle { filter: handle, reopen }, _worker: worker })
}

fn filter(level: &str) -> Result<EnvFilter, TelemetryError> {
    let parse = |text: &str| {
        EnvFilter::builder()
            .parse(text)
            .map_err(|source| TelemetryError::Filter { level: level.to_owned(), source })
    };
    let mut whole = old_targets::translated(level);
    let is_quiet = parse(&whole)?.max_level_hint().is_some_and(|most| most < LevelFilter::INFO);
    // A directive that names one of these targets decides about it.
    let is_named =
        |target: &str| level.split(',').any(|directive| directive.trim().starts_with(target));
    for (target, level) in LEVELS.iter().filter(|(target, _)| !is_named(target)) {
        // This is to show less, not more.
        if *target != CLIENT_OF_POSTGRES || !is_quiet {
            whole.extend([",", target, "=", level]);
        }
    }
    parse(&whole)
}

/// An error with its causes on one line: `could not start: working directory is not usable:
/// permission denied`.
pub struct ErrorChain<'a>(pub &'a (dyn std::error::Error + 'a));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut next = self.0.source();
        while let Some(cause) = next {
            write!(f, ": {cause}")?;
            next = cause.source();
        }
        Ok(())
    }
}

impl fmt::Debug for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_written_with_its_causes() {
        let source = io::Error::new(io::ErrorKind::PermissionDenied, "permission denied");
        let error = TelemetryError::File { path: PathBuf::from("/log"), source };
        assert_eq!(
            ErrorChain(&error).to_string(),
            "could not open log file `/log`: permission denied"
        );
    }

    #[test]
    fn what_was_logged_is_in_the_file_when_the_guard_is_gone() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("daemon.log");
        std::fs::write(&path, "{\"message\":\"from the last run\"}\n").expect("a file");
        let guard = init("info", LineForm::Json, Some(&path))
            .expect("nobody else sets up logging in this test");
        for i in 0..1_000 {
            tracing::info!(i, launch_id = "lch_of_this_test", "agent started");
        }
        tracing::debug!(launch_id = "lch_of_this_test", "too quiet to be heard");
        guard.log().set_level("debug").expect("a level");
        tracing::debug!(launch_id = "lch_of_later", "heard from now on");
        guard.log().set_level("a=b=c").expect_err("no level");
        tracing::debug!(launch_id = "lch_of_later", "still heard");
        drop(guard);
        let text = std::fs::read_to_string(&path).expect("the log");
        assert!(
            text.starts_with("{\"message\":\"from the last run\"}\n{\"timestamp\":"),
            "appended"
        );
        assert_eq!(text.lines().filter(|line| line.contains("lch_of_this_test")).count(), 1_000);
        assert_eq!(text.lines().filter(|line| line.contains("lch_of_later")).count(), 2);

        let twice = init("info", LineForm::Text, None).expect_err("once per process");
        assert!(matches!(twice, TelemetryError::Twice(_)));
        let elsewhere = folder.path().join("missing/daemon.log");
        let error = init("info", LineForm::Json, Some(&elsewhere)).expect_err("no such folder");
        assert!(matches!(error, TelemetryError::File { .. }));
    }

    #[test]
    fn a_filter_of_the_program_holds_for_all_its_crates() {
        use tracing_subscriber::layer::SubscriberExt as _;
        let is_heard = |level: &str| {
            let filter = filter(level).expect("a filter");
            let subscriber = tracing_subscriber::registry().with(filter);
            tracing::subscriber::with_default(subscriber, || {
                // The target is the name of this crate.
                tracing::enabled!(tracing::Level::DEBUG)
            })
        };
        assert!(is_heard("info,agent_coordinator=debug") && is_heard("debug"));
        assert!(!is_heard("info") && !is_heard("info,agent_coordinator_web=debug"));
        // This module was below the program before.
        assert!(is_heard("info,agent_coordinator::telemetry=debug"));
        assert!(!is_heard("info,agent_coordinator::http=debug"));
    }

    #[test]
    fn a_library_is_quiet_unless_it_is_asked() {
        let show = |level: &str| filter(level).expect("a filter").to_string();
        assert!(show("info").contains("rmcp=off"));
        assert!(show("info,agent_coordinator=debug").contains("rmcp=off"));
        assert!(show("error").contains("rmcp=off"));
        assert!(!show("info,rmcp=trace").contains("rmcp=off"));
        assert!(show("trace").contains("tokio_postgres=info"));
        assert!(!show("error").contains("tokio_postgres"));
        assert!(!show("info,tokio_postgres=trace").contains("tokio_postgres=info"));
        assert!(filter("info,a=b=c").is_err());
        assert!(
            show("error").contains("audit=info") && !show("error,audit=off").contains("audit=info")
        );
    }
}
