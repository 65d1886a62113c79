//! `log`: the level, the form and the destination of the daemon's log.

use std::path::PathBuf;

use tracing_subscriber::EnvFilter;

use super::declaration::keys;
use super::kinds::{Kind, path, words};

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// One JSON object per line.
    Json,
    /// Text for people.
    Text,
}

keys! {
    /// The level, the form and the destination of the daemon's log.
    pub struct LogConfig in "log" {
        /// The least level of the lines, or filters by module, such as
        /// `info,agent_coordinator_supervisor=debug`.
        pub level: String = "info".to_owned(), level(), Now;

        /// The form of the lines. `json` is one object per line. `auto` is text on a terminal, and
        /// `json` otherwise.
        pub format: LogFormat = LogFormat::Auto, format(), AfterRestart;

        /// The file that lines are appended to. Without it, they go to standard error.
        pub file: Option<PathBuf> = None, path().or_none(), AfterRestart;
    }
}

impl LogConfig {
    /// Returns whether lines are JSON, given whether they would go to a terminal.
    pub fn is_json(&self, is_terminal: bool) -> bool {
        match self.format {
            LogFormat::Auto => !is_terminal || self.file.is_some(),
            LogFormat::Json => true,
            LogFormat::Text => false,
        }
    }
}

fn level() -> Kind<String> {
    Kind::parsed(
        "`error`, `warn`, `info`, `debug`, `trace`, `off`, or filters such as `info,agent_coordinator=debug`",
        |text| is_filter(text).then(|| text.to_owned()),
        Clone::clone,
    )
}

fn format() -> Kind<LogFormat> {
    words([("auto", LogFormat::Auto), ("json", LogFormat::Json), ("text", LogFormat::Text)])
}

/// Returns whether `text` is a valid filter. `EnvFilter` takes a bare word for a target: `inof`
/// would silently mean "everything of the target `inof`".
fn is_filter(text: &str) -> bool {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    let is_known = |part: &str| {
        part.contains(['=', '[', ':']) || LEVELS.contains(&part.to_ascii_lowercase().as_str())
    };
    EnvFilter::builder().parse(text).is_ok() && text.split(',').all(|part| is_known(part.trim()))
}
