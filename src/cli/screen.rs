//! The width and the colours of the output, and tables and sentences that fit it.

use std::env;
use std::io::{self, IsTerminal as _};

use comfy_table::{ContentArrangement, Row, Table, presets};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::output::lines;
use domain::printable;

/// The terminal that a command prints to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Screen {
    /// The number of columns. `None` if the output is not a terminal; then nothing is cut.
    pub(super) width: Option<usize>,
    /// The number of lines of a terminal.
    pub(super) height: Option<usize>,
    pub(super) has_colors: bool,
}

/// The size of a terminal that does not know its own.
const USUAL_SIZE: (u16, u16) = (80, 24);
/// The width below which a table becomes a list: its columns would hold only a few characters.
pub(super) const MIN_TABLE: usize = 50;
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

impl Screen {
    /// Returns what standard output can show now. A terminal may change its size.
    pub(super) fn of_output() -> Self {
        let stdout = io::stdout();
        if !stdout.is_terminal() {
            return Self::default();
        }
        let size = rustix::termios::tcgetwinsize(&stdout).ok();
        let size = size.map(|size| (size.ws_col, size.ws_row));
        let (width, height) = size.filter(|(width, _)| *width > 0).unwrap_or(USUAL_SIZE);
        // https://no-color.org: any value but an empty one.
        let wants_none = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let has_none = env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        Self {
            width: Some(width.into()),
            height: Some(height.into()),
            has_colors: !wants_none && !has_none,
        }
    }

    /// Returns the text with its lines broken between words. Control characters are left out.
    pub(super) fn wrapped(self, text: &str) -> String {
        let text = printable::lines(text);
        let Some(width) = self.width else { return text.into_owned() };
        text.lines().map(|line| wrapped_line(line, width)).collect::<Vec<_>>().join("\n")
    }
}

/// The indent of the rest of a sentence.
const INDENT: &str = "  ";

fn wrapped_line(line: &str, width: usize) -> String {
    let width = width.max(INDENT.len() + 1);
    let mut wrapped = String::with_capacity(line.len());
    let indent = line.len() - line.trim_start_matches(' ').len();
    wrapped.push_str(&line[..indent.min(width / 2)]);
    let mut used = wrapped.len();
    let mut is_first = true;
    for word in line.split_whitespace() {
        let n = word.width();
        if !is_first && used + 1 + n > width {
            wrapped.push('\n');
            wrapped.push_str(INDENT);
            used = INDENT.len();
        } else if !is_first {
            wrapped.push(' ');
            used += 1;
        }
        is_first = false;
        for letter in word.chars() {
            let n = letter.width().unwrap_or(0);
            if used + n > width {
                wrapped.push('\n');
                wrapped.push_str(INDENT);
                used = INDENT.len();
            }
            wrapped.push(letter);
            used += n;
        }
    }
    wrapped
}

/// The look of a row of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Usual,
    /// Red on a terminal with colours.
    Bad,
}

/// The tables that have a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    Any,
    /// Only the tables that may be wider than the terminal have it.
    Wide,
}

/// Returns the text of the cell of an item.
type Cell<'a, T> = &'a dyn Fn(&T) -> String;
/// A column by its title.
pub(super) type Column<'a, T> = (&'static str, Cell<'a, T>);
/// A column that only some tables have.
pub(super) type WideColumn<'a, T> = (Width, &'static str, Cell<'a, T>);

/// A table whose rows are one line each. Cells that do not fit a terminal are cut.
pub(super) struct Rows {
    header: Vec<&'static str>,
    rows: Vec<(Tone, Vec<String>)>,
}

impl Rows {
    pub(super) fn new(header: &[&'static str]) -> Self {
        Self { header: header.to_vec(), rows: Vec::new() }
    }

    /// Returns a table with a row for each item.
    pub(super) fn of<T>(items: &[T], columns: &[Column<'_, T>]) -> Self {
        let mut rows = Self::new(&columns.iter().map(|(title, _)| *title).collect::<Vec<_>>());
        for item in items {
            rows.add_row(columns.iter().map(|(_, cell)| cell(item)));
        }
        rows
    }

    /// Returns a table with a row for each item. Only a wide one has all columns.
    pub(super) fn of_width<T>(items: &[T], is_wide: bool, columns: &[WideColumn<'_, T>]) -> Self {
        let columns = columns.iter().filter(|(width, ..)| is_wide || *width == Width::Any);
        let columns: Vec<Column<'_, T>> = columns.map(|(_, title, cell)| (*title, *cell)).collect();
        Self::of(items, &columns)
    }

    /// Returns the same table, whose rows have the tones of the items in their order.
    pub(super) fn toned(mut self, tones: impl IntoIterator<Item = Tone>) -> Self {
        for ((tone, _), new) in self.rows.iter_mut().zip(tones) {
            *tone = new;
        }
        self
    }

    pub(super) fn add(&mut self, tone: Tone, cells: impl IntoIterator<Item = String>) {
        let cells = cells.into_iter().map(|cell| printable::line(&cell).into_owned());
        self.rows.push((tone, cells.collect()));
    }

    pub(super) fn add_row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.add(Tone::Usual, cells);
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the lines of the table. On a narrow terminal, each row is a sentence without the
    /// empty cells.
    pub(super) fn text(&self, screen: Screen) -> String {
        let rows = match screen.width {
            Some(width) if width < MIN_TABLE => {
                let sentence = |(_, cells): &(Tone, Vec<String>)| {
                    let filled = cells.iter().map(String::as_str).filter(|cell| *cell != "-");
                    screen.wrapped(&filled.collect::<Vec<_>>().join(" "))
                };
                let first = self.header.first().map(|name| screen.wrapped(name));
                first.into_iter().chain(self.rows.iter().map(sentence)).collect()
            }
            width => self.cut(width),
        };
        let tones = std::iter::once(Tone::Usual).chain(self.rows.iter().map(|(tone, _)| *tone));
        let colored = |(row, tone): (String, Tone)| match tone {
            Tone::Bad if screen.has_colors => {
                row.lines().map(|line| format!("{RED}{line}{PLAIN}")).collect::<Vec<_>>().join("\n")
            }
            _ => row,
        };
        rows.into_iter().zip(tones).map(colored).collect::<Vec<_>>().join("\n")
    }

    /// Returns the header and the rows as one line each.
    fn cut(&self, width: Option<usize>) -> Vec<String> {
        let one_line = |cells: Vec<String>| {
            let mut row = Row::from(cells);
            row.max_height(1);
            row
        };
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_truncation_indicator("…");
        if let Some(width) = width {
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
        }
        table.set_header(one_line(self.header.iter().map(|&name| name.to_owned()).collect()));
        for (_, cells) in &self.rows {
            table.add_row(one_line(cells.clone()));
        }
        let last = self.header.len().saturating_sub(1);
        for (n, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, if n == last { 0 } else { 2 }));
        }
        lines(&table).lines().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(width: usize) -> Screen {
        Screen { width: Some(width), height: None, has_colors: true }
    }

    fn rows() -> Rows {
        let mut rows = Rows::new(&["AGENT", "TASK", "WHY"]);
        let why = "a long reason that no small terminal can show on one line, and one more word";
        rows.add(Tone::Usual, ["agt".to_owned(), "SHOP-12".to_owned(), why.to_owned()]);
        rows.add(Tone::Bad, ["agt_2".to_owned(), "-".to_owned(), "lost\u{1b}[2J".to_owned()]);
        rows
    }

    #[test]
    fn a_table_is_as_wide_as_the_terminal_at_most() {
        for width in [1, 2, 20, 49, 50, 80, 120, 400] {
            let text = rows().text(Screen { has_colors: false, ..screen(width) });
            for line in text.lines() {
                assert!(line.chars().count() <= width.max(3), "{width}: {line:?}");
            }
            assert!(!text.contains('\u{1b}'), "{text:?}");
        }
        let text = rows().text(screen(80));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("AGENT  TASK     WHY"), "{text}");
        assert!(lines[1].starts_with("agt    SHOP-12  a long reason") && lines[1].ends_with('…'));
        assert_eq!(lines[2], "\u{1b}[31magt_2  -        lost [2J\u{1b}[0m");
    }

    #[test]
    fn only_a_wide_table_has_all_columns() {
        let table = |is_wide| {
            let columns: &[WideColumn<'_, u8>] = &[
                (Width::Any, "N", &u8::to_string),
                (Width::Wide, "TWICE", &|n| (2 * n).to_string()),
                (Width::Any, "NEXT", &|n| (n + 1).to_string()),
            ];
            Rows::of_width(&[1, 20], is_wide, columns).text(Screen::default())
        };
        assert_eq!(table(false), "N   NEXT\n1   2\n20  21");
        assert_eq!(table(true), "N   TWICE  NEXT\n1   2      2\n20  40     21");
    }

    #[test]
    fn a_narrow_table_is_a_list_without_empty_cells() {
        let text = rows().text(Screen { has_colors: false, ..screen(20) });
        assert!(text.starts_with("AGENT\nagt SHOP-12 a long\n  reason that no\n"), "{text}");
        assert!(text.ends_with("\nagt_2 lost [2J"), "{text}");
    }

    #[test]
    fn without_a_terminal_nothing_is_cut() {
        let text = rows().text(Screen::default());
        assert!(text.contains("on one line, and one more word\n") && !text.contains('\u{1b}'));
        let long = "word ".repeat(100);
        assert_eq!(Screen::default().wrapped(long.trim_end()), long.trim_end());
    }

    #[test]
    fn a_sentence_is_broken_between_words() {
        let text = "  project: a sentence of some words\nnext-line-with-a-very-long-word";
        let expected =
            "  project: a\n  sentence of\n  some words\nnext-line-with\n  -a-very-long\n  -word";
        assert_eq!(screen(14).wrapped(text), expected);
    }
}
