//! Limits on the length and the characters of texts that come from outside. They are the same for
//! every interface. Agents, people and files send such texts, and services check them with their
//! [`Limit`] before any write.
//!
//! Lengths are counted in characters (Unicode scalar values), as people count them. The limits are
//! far above what work needs. They are low enough that one call cannot fill the store or a model's
//! context. Ids have a grammar of their own ([`super::id`]), and tokens are only compared.

use std::borrow::Cow;
use std::fmt::Write as _;

use schemars::Schema;

use super::printable::is_reordering;
use super::refusal::Refusal;

/// The limit of one kind of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The name of the argument, field or key.
    name: &'static str,
    /// The greatest length, in characters.
    most: usize,
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// No control characters are allowed. The text is compared or looked up, so no character is
    /// dropped.
    Exact,
    /// The same for texts in tables and logs, but invisible characters that reorder text are
    /// dropped.
    Line,
    /// Line feeds and tabs are allowed. Other control characters, and characters that reorder text,
    /// are dropped. Quotations of agents from their terminals have many of them, and a report must
    /// not be refused for them.
    Lines,
}

/// The work of a task, in one line.
pub const TITLE: Limit = Limit::line("title", 500);
/// The name of an agent or project.
pub const NAME: Limit = Limit::line("name", 200);
/// The provider that an agent is started with.
pub const AI_TYPE: Limit = Limit::line("ai_type", 64);
/// A path. The kernel accepts no longer paths.
pub const WORKING_DIRECTORY: Limit = Limit::exact("working_directory", 4_096);
/// A passkey of any characters that can be typed. The shim looks for it in each line of output,
/// also in its longest escaped form.
pub const PASSKEY: Limit = Limit::exact("passkey", 1_000);
/// All that an agent needs to know of a task.
pub const DESCRIPTION: Limit = Limit::lines("description", 50_000);
/// The role of an agent.
pub const SYSTEM_PROMPT: Limit = Limit::lines("system_prompt", 50_000);
/// The reason why a task is blocked.
pub const REASON: Limit = Limit::lines("reason", 4_000);
/// A comment on a task.
pub const COMMENT: Limit = Limit::lines("text", 4_000);
/// The summary of the work of an agent.
pub const SUMMARY: Limit = Limit::lines("summary", 20_000);
/// The work that remains.
pub const NEXT_STEPS: Limit = Limit::lines("next_steps", 20_000);
/// The description of a failure. It is the name of older clients for a summary.
pub const ERROR_MESSAGE: Limit = Limit::lines("error_message", 20_000);
/// The progress of an agent.
pub const PROGRESS: Limit = Limit::lines("progress", 20_000);
/// The findings of an agent.
pub const FINDINGS: Limit = Limit::lines("findings", 20_000);
/// The name that an agent gives to a task while it creates it.
pub const LOCAL_ID: Limit = Limit::line("local_id", 64);
/// A chat message.
pub const CONTENT: Limit = Limit::lines("content", 20_000);
/// The mark of an earlier answer.
pub const SEEN: Limit = Limit::exact("seen", 64);

/// The longest tail of an agent's output that is kept, in bytes. A longer tail is not an error: its
/// beginning is dropped.
pub const MAX_OUTPUT_TAIL: usize = 64 * 1024;

impl Limit {
    const fn exact(name: &'static str, most: usize) -> Self {
        Self { name, most, form: Form::Exact }
    }

    const fn line(name: &'static str, most: usize) -> Self {
        Self { name, most, form: Form::Line }
    }

    const fn lines(name: &'static str, most: usize) -> Self {
        Self { name, most, form: Form::Lines }
    }

    /// Returns the greatest length, in characters.
    pub const fn most(&self) -> usize {
        self.most
    }

    /// Returns `text` in the form that is stored.
    ///
    /// # Errors
    /// Returns `TooLong`, or `NotOneLine` for a control character that is not allowed.
    pub fn take<'a>(&self, text: &'a str) -> Result<Cow<'a, str>, Refusal> {
        // Each character has at least one byte, so only a text with more bytes than the limit can
        // be too long.
        if text.len() > self.most {
            let length = text.chars().count();
            if length > self.most {
                return Err(Refusal::TooLong { text: self.name, length, limit: self.most });
            }
        }
        match (self.form, text.chars().position(char::is_control)) {
            (Form::Exact | Form::Line, Some(position)) => {
                Err(Refusal::NotOneLine { text: self.name, position: position + 1 })
            }
            (Form::Exact, None) => Ok(text.into()),
            (Form::Line | Form::Lines, _) => Ok(cleaned(text)),
        }
    }

    /// Does the same as [`Limit::take`] for an optional text.
    ///
    /// # Errors
    /// Returns the errors of [`Limit::take`].
    pub fn take_optional<'a>(
        &self,
        text: Option<&'a str>,
    ) -> Result<Option<Cow<'a, str>>, Refusal> {
        text.map(|text| self.take(text)).transpose()
    }

    /// Returns the new text in the form that is stored, or the old one if there is no new one.
    ///
    /// # Errors
    /// Returns the errors of [`Limit::take`].
    pub fn edit(&self, new: Option<&str>, old: String) -> Result<String, Refusal> {
        Ok(self.take_optional(new)?.map_or(old, Cow::into_owned))
    }

    /// Describes in a JSON schema which texts [`Limit::take`] takes.
    pub fn described(self) -> impl FnMut(&mut Schema) {
        move |schema| {
            schema.insert("maxLength".to_owned(), self.most.into());
            if self.form != Form::Lines {
                let control = class(char::is_control);
                schema.insert("pattern".to_owned(), format!("^[^{control}]*$").into());
            }
        }
    }

    /// Describes the same for a text that must not be blank.
    pub fn described_as_needed(self) -> impl FnMut(&mut Schema) {
        move |schema| {
            self.described()(schema);
            let pattern = match self.form {
                Form::Lines => format!("[^{}]", class(char::is_whitespace)),
                Form::Exact | Form::Line => {
                    let control = class(char::is_control);
                    let unseen = class(|c| c.is_control() || c.is_whitespace() || is_reordering(c));
                    format!("^[^{control}]*[^{unseen}][^{control}]*$")
                }
            };
            schema.insert("pattern".to_owned(), pattern.into());
        }
    }

    /// Describes the same for a path that must be absolute.
    pub fn described_as_absolute(self) -> impl FnMut(&mut Schema) {
        move |schema| {
            self.described()(schema);
            schema
                .insert("pattern".to_owned(), format!("^/[^{}]*$", class(char::is_control)).into());
        }
    }

    /// Returns as much of `text` as is stored. It is for texts that must be accepted in any form,
    /// such as the report of the end of a process.
    pub fn cut(&self, text: &str) -> String {
        cleaned(text).chars().take(self.most).collect()
    }
}

/// Returns `text` without characters that reorder text, and without control characters other than
/// line feeds and tabs.
pub fn cleaned(text: &str) -> Cow<'_, str> {
    let is_dropped = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || is_reordering(c);
    if text.contains(is_dropped) { text.replace(is_dropped, "").into() } else { text.into() }
}

/// Returns the characters that `is_in` accepts as the ranges of a character class (ECMA 262). All
/// of them are in the basic plane.
fn class(is_in: impl Fn(char) -> bool) -> String {
    let mut ranges: Vec<(char, char)> = Vec::new();
    for c in ('\0'..='\u{ffff}').filter(|c| is_in(*c)) {
        match ranges.last_mut() {
            Some((_, last)) if u32::from(*last) + 1 == u32::from(c) => *last = c,
            _ => ranges.push((c, c)),
        }
    }
    let mut class = String::new();
    for (first, last) in ranges {
        // Writing to a string cannot fail.
        let _ = write!(class, "\\u{:04X}-\\u{:04X}", u32::from(first), u32::from(last));
    }
    class
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_names_the_characters_that_are_refused() {
        assert_eq!(class(char::is_control), "\\u0000-\\u001F\\u007F-\\u009F");
        assert_eq!(class(is_reordering), "\\u2028-\\u202E\\u2066-\\u2069");
        for is_in in [char::is_control, char::is_whitespace, is_reordering] {
            assert!(('\u{10000}'..=char::MAX).all(|c| !is_in(c)));
        }
        let mut schema = schemars::json_schema!({ "type": "string" });
        TITLE.described_as_needed()(&mut schema);
        assert_eq!(schema.get("maxLength"), Some(&500.into()));
    }

    #[track_caller]
    fn check(limit: Limit, text: &str, expected: Result<&str, &str>) {
        let taken = limit.take(text).map_err(|refusal| refusal.to_string());
        assert_eq!(taken.as_deref(), expected.map_err(str::to_owned).as_ref().map(|text| *text));
    }

    #[test]
    fn a_text_is_measured_in_characters() {
        let longest = "語".repeat(500);
        check(TITLE, &longest, Ok(&longest));
        let expected = "`title` is 501 characters long, and at most 500 are taken";
        check(TITLE, &format!("{longest}x"), Err(expected));
        check(SUMMARY, "", Ok(""));
    }

    #[test]
    fn one_line_has_no_control_characters() {
        check(
            TITLE,
            "Login\npage",
            Err("`title` has a control character at position 6, and must be one line of text"),
        );
        check(
            NAME,
            "\u{1b}[31mAnn",
            Err("`name` has a control character at position 1, and must be one line of text"),
        );
        check(TITLE, "שלום \u{200f}עולם", Ok("שלום \u{200f}עולם"));
    }

    #[test]
    fn texts_lose_what_would_reorder_them_and_secrets_and_paths_lose_nothing() {
        check(TITLE, "Pay \u{202e}100\u{202c} to\u{2066} Ann\u{2069}", Ok("Pay 100 to Ann"));
        check(NAME, "a\u{2028}b", Ok("ab"));
        check(SUMMARY, "one\n\u{202e}owt", Ok("one\nowt"));
        check(PASSKEY, "a\u{202e}b", Ok("a\u{202e}b"));
        check(WORKING_DIRECTORY, "/a\u{202e}b", Ok("/a\u{202e}b"));
    }

    #[test]
    fn several_lines_lose_what_is_neither_text_nor_a_line_end_nor_a_tab() {
        check(SUMMARY, "one\r\n\ttwo\u{1b}[0m\0", Ok("one\n\ttwo[0m"));
        assert!(matches!(SUMMARY.take("one\n\ttwo"), Ok(Cow::Borrowed(_))));
        assert_eq!(REASON.cut(&"\u{7}x".repeat(5_000)), "x".repeat(4_000));
    }
}
