//! Prints answers: tables for people, JSON in snake_case for programs.

use std::io::{self, IsTerminal as _, Write as _};

use comfy_table::{ContentArrangement, Table, presets};
use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::Value;

use super::error::CliError;
use super::screen::{MIN_TABLE, Rows, Screen};
use domain::Timestamp;
use domain::printable;
use service::world::{SystemWorld, World};

/// In which form a command answers.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Form {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// The form in which a command prints a list.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct ListForm {
    /// Print all columns whole, also if lines become longer than the terminal
    #[arg(long, conflicts_with = "json")]
    pub(super) wide: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl ListForm {
    /// Prints a list, or `when_empty` if it is empty. On a terminal each row is one line.
    pub(super) fn print(self, rows: &Rows, when_empty: &str) -> Result<(), CliError> {
        let screen = Screen::of_output();
        if rows.is_empty() {
            return print_line(&screen.wrapped(when_empty));
        }
        print_line(&rows.text(if self.wide { Screen::default() } else { screen }))
    }
}

/// The zone in which a command prints times.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(super) struct Zone {
    /// Print times in UTC instead of local time
    #[arg(long)]
    pub(super) utc: bool,
}

impl Zone {
    /// Returns the time to the second in local time, or as RFC 3339 in UTC.
    pub(super) fn time(self, at: Timestamp) -> String {
        let moment = jiff::Timestamp::from_millisecond(at.as_millis());
        match moment {
            Ok(moment) if !self.utc => {
                moment.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
            }
            _ => at.to_string(),
        }
    }
}

/// Prints `answer` as JSON. The keys of the API are in camelCase. Here they are in snake_case, as
/// in the configuration.
pub(super) fn print_json(answer: &impl Serialize) -> Result<(), CliError> {
    let value =
        serde_json::to_value(answer).map_err(|error| CliError::Failed(error.to_string()))?;
    let text = serde_json::to_string_pretty(&snake_keys(value))
        .map_err(|error| CliError::Failed(error.to_string()))?;
    print_line(&printable::json(&text))
}

/// Prints `answer` as JSON on one line, for programs that read line by line.
pub(super) fn print_json_line(answer: &impl Serialize) -> Result<(), CliError> {
    let value =
        serde_json::to_value(answer).map_err(|error| CliError::Failed(error.to_string()))?;
    print_line(&printable::json(&snake_keys(value).to_string()))
}

/// Prints `text`. Control characters in it reach no terminal.
pub(super) fn print_line(text: &str) -> Result<(), CliError> {
    writeln!(io::stdout(), "{}", printable::lines(text))?;
    Ok(())
}

/// Prints `text` unchanged for a program. A terminal gets it without control characters.
pub(super) fn print_answer(text: &str) -> Result<(), CliError> {
    if io::stdout().is_terminal() {
        return print_line(text);
    }
    writeln!(io::stdout(), "{text}")?;
    Ok(())
}

fn snake_keys(value: Value) -> Value {
    match value {
        Value::Object(object) => Value::Object(
            object.into_iter().map(|(key, value)| (snake(&key), snake_keys(value))).collect(),
        ),
        Value::Array(array) => Value::Array(array.into_iter().map(snake_keys).collect()),
        other => other,
    }
}

fn snake(key: &str) -> String {
    key.chars().fold(String::with_capacity(key.len() + 4), |mut snake, letter| {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
        snake
    })
}

/// Returns a table without lines, as wide as the terminal allows. Its cells may have several lines.
pub(super) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    if let Some(width) = Screen::of_output().width {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(u16::try_from(width.max(MIN_TABLE)).unwrap_or(u16::MAX));
    }
    table.set_header(header.iter().copied());
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// Prints a table, or `when_empty` if the table is empty.
pub(super) fn print_table(table: &Table, when_empty: &str) -> Result<(), CliError> {
    if table.is_empty() { print_line(when_empty) } else { print_line(&lines(table)) }
}

/// Returns the table as text, without the blanks that fill its lines.
pub(super) fn lines(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Returns foreign text in a form that is safe for a terminal and for one line.
pub(super) fn plain(text: &str) -> String {
    printable::line(text).into_owned()
}

/// Returns the text of a value, or a dash for a cell without one.
pub(super) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Returns the present time.
pub(super) fn now() -> Timestamp {
    SystemWorld.now()
}

/// Returns the time since `moment`, roughly.
pub(super) fn ago(moment: Timestamp, now: Timestamp) -> String {
    let seconds = now.since(moment).as_secs();
    match seconds {
        0..=59 => format!("{seconds}s"),
        60..=3599 => format!("{}m", seconds / 60),
        3600..=86_399 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_printed_in_snake_case_and_values_as_they_are() {
        let value = serde_json::json!({ "launchId": "lchId", "list": [{ "aB": 1 }] });
        assert_eq!(
            snake_keys(value),
            serde_json::json!({ "launch_id": "lchId", "list": [{ "a_b": 1 }] })
        );
    }
}
