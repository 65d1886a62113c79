//! `log`: what the daemon logs, how and where to.

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
    /// For people.
    Text,
}

/// What is logged, in which form, and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// A level, or directives of `tracing_subscriber::EnvFilter`; they are valid.
    pub level: String,
    /// See [`LogConfig::is_json`].
    pub format: LogFormat,
    /// Appended to; standard error without it.
    pub file: Option<PathBuf>,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Auto, file: None }
    }
}

impl LogConfig {
    /// Whether lines are JSON, given whether they would go to a terminal.
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

/// A bare word is a target for `EnvFilter`: `inof` would silently mean "everything of the target `inof`".
fn is_filter(text: &str) -> bool {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    let is_known = |part: &str| {
        part.contains(['=', '[', ':']) || LEVELS.contains(&part.to_ascii_lowercase().as_str())
    };
    EnvFilter::builder().parse(text).is_ok() && text.split(',').all(|part| is_known(part.trim()))
}
