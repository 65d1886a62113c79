//! `log`: the level, the form and the destination of the daemon's log.

use std::path::PathBuf;

use tracing_subscriber::EnvFilter;

use super::reader::Section;

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

/// The level, the form and the destination of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// A level, or valid directives of `tracing_subscriber::EnvFilter`.
    pub level: String,
    /// The form; see [`LogConfig::is_json`].
    pub format: LogFormat,
    /// The file that lines are appended to; `None` means standard error.
    pub file: Option<PathBuf>,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Auto, file: None }
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

    pub(super) fn read(mut section: Section<'_, '_>) -> Self {
        let default = Self::default();
        let level = section.field("level").and_then(|field| {
            let what =
                "`error`, `warn`, `info`, `debug`, `trace`, `off`, or filters such as `info,agent_coordinator=debug`";
            field.parsed(what, |text| is_filter(text).then(|| text.to_owned()))
        });
        let words =
            [("auto", LogFormat::Auto), ("json", LogFormat::Json), ("text", LogFormat::Text)];
        Self {
            level: level.unwrap_or(default.level),
            format: section.one_of("format", default.format, &words),
            file: section.optional("file").and_then(|field| field.path()),
        }
    }
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
