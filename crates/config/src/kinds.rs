//! The kinds of values: how each is read, checked, shown and described. A declaration of a key
//! names its kind, such as `durations(SECOND..=DAY)`.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use domain::Secret;

#[cfg(test)]
use super::declaration::{Applies, KeyDescription};
use super::reader::{Field, Section};
use super::report::Problem;
use super::units;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_mins(1);
pub(super) const HOUR: Duration = Duration::from_hours(1);
pub(super) const DAY: Duration = Duration::from_hours(24);
/// The length of a year in `humantime`.
pub(super) const YEAR: Duration = Duration::from_hours(8_766);

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;
pub(super) const TIB: u64 = 1 << 40;

/// The valid ids, as messages name them.
pub(super) const AN_ID: &str = "an id (1 to 64 of letters, digits, `.`, `_`, `-`)";

/// The presence of a key with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// The key may be missing, but it must have a value.
    Usual,
    /// A key without a value is valid and means the default.
    MayBeEmpty,
    /// The key must be in the file. Its default is only a substitute.
    Required,
}

type Read<T> = dyn Fn(Field<'_, '_>, &str) -> Option<T>;

/// A kind of values.
pub(super) struct Kind<T> {
    /// The valid values, as messages and documents name them.
    expected: String,
    /// Examples of them, which messages add.
    examples: &'static str,
    /// Reads a value. Notes a mistake with the text, which names the valid values.
    read: Box<Read<T>>,
    show: Box<dyn Fn(&T) -> String>,
    presence: Presence,
    /// True if values are never shown.
    is_secret: bool,
    /// The default as the documents write it, if that differs from the shown one.
    #[cfg_attr(not(test), allow(dead_code, reason = "tests write the documents"))]
    written: Option<&'static str>,
    /// The value in the example file, if that is not the default.
    #[cfg_attr(not(test), allow(dead_code, reason = "tests write the documents"))]
    example: Option<&'static str>,
}

impl<T: 'static> Kind<T> {
    pub fn new(
        expected: impl Into<String>,
        read: impl Fn(Field<'_, '_>, &str) -> Option<T> + 'static,
        show: impl Fn(&T) -> String + 'static,
    ) -> Self {
        Self {
            expected: expected.into(),
            examples: "",
            read: Box::new(read),
            show: Box::new(show),
            presence: Presence::Usual,
            is_secret: false,
            written: None,
            example: None,
        }
    }

    /// Returns the kind of texts from which `parse` makes a value.
    pub fn parsed(
        expected: impl Into<String>,
        parse: impl Fn(&str) -> Option<T> + 'static,
        show: impl Fn(&T) -> String + 'static,
    ) -> Self {
        Self::new(expected, move |field, what| field.parsed(what, &parse), show)
    }

    /// Adds examples of values to messages.
    fn such_as(self, examples: &'static str) -> Self {
        Self { examples, ..self }
    }

    /// Accepts a key without a value. It means the default.
    pub fn or_empty(self) -> Self {
        Self { presence: Presence::MayBeEmpty, ..self }
    }

    /// Demands that the file contains the key.
    pub fn required(self) -> Self {
        Self { presence: Presence::Required, ..self }
    }

    /// Writes the default as `text` into the documents.
    pub fn written_as(self, text: &'static str) -> Self {
        Self { written: Some(text), ..self }
    }

    /// Writes `text` into the example file, in place of the default.
    pub fn for_example(self, text: &'static str) -> Self {
        Self { example: Some(text), ..self }
    }

    /// Adds a check of valid values. It returns the reason why one is not valid.
    pub fn checked(self, check: impl Fn(&T) -> Result<(), String> + 'static) -> Self {
        let read = self.read;
        let read = move |field: Field<'_, '_>, what: &str| {
            let reader = field.reader();
            let span = field.span();
            let path = field.path_in_file();
            let value = read(field, what)?;
            let checked = check(&value).map_err(|problem| {
                let message = format!("`{path}` is not valid: {problem}");
                reader.note(Problem::new(message, span).label("here"));
            });
            checked.ok().map(|()| value)
        };
        Self { read: Box::new(read), ..self }
    }

    /// Accepts `word`, too, which means `value`. `wrap` and `unwrap` convert the other values.
    pub fn or_word<U: Clone + PartialEq + 'static>(
        self,
        word: &'static str,
        value: U,
        wrap: impl Fn(T) -> U + 'static,
        show: impl Fn(&U) -> String + 'static,
    ) -> Kind<U> {
        let separator = if self.expected.starts_with('`') { ", " } else { " or " };
        let expected = format!("`{word}`{separator}{}", self.expected);
        let read = self.read;
        let read = move |field: Field<'_, '_>, what: &str| {
            if field.completed().as_deref() == Some(word) {
                Some(value.clone())
            } else {
                read(field, what).map(&wrap)
            }
        };
        Kind { examples: self.examples, presence: self.presence, ..Kind::new(expected, read, show) }
    }

    /// Accepts `off`, too, which means `None`.
    pub fn or_off(mut self) -> Kind<Option<T>>
    where
        T: Clone + PartialEq,
    {
        let show_some = std::mem::replace(&mut self.show, Box::new(|_| String::new()));
        let show =
            move |value: &Option<T>| value.as_ref().map_or_else(|| "off".to_owned(), &show_some);
        self.or_word("off", None, Some, show)
    }

    /// Makes the value optional. The default is `None`.
    pub fn if_set(self) -> Kind<Option<T>> {
        let read = self.read;
        let show = self.show;
        Kind {
            examples: self.examples,
            is_secret: self.is_secret,
            written: self.written.or(Some("null")),
            ..Kind::new(
                self.expected,
                move |field, what| read(field, what).map(Some),
                move |value: &Option<T>| value.as_ref().map_or_else(|| "none".to_owned(), &show),
            )
        }
    }

    /// Makes the value optional like [`Kind::if_set`]. An empty value is `None`, too.
    pub fn or_none(self) -> Kind<Option<T>> {
        self.if_set().or_empty()
    }

    /// Converts the values. They are not shown.
    pub fn map<U: 'static>(self, convert: impl Fn(T) -> U + 'static) -> Kind<U> {
        let read = self.read;
        Kind {
            examples: self.examples,
            presence: self.presence,
            written: self.written,
            ..Kind::new(
                self.expected,
                move |field, what| read(field, what).map(&convert),
                |_| String::new(),
            )
        }
        .hidden()
    }

    /// Never shows the values.
    pub fn hidden(self) -> Self {
        Self { is_secret: true, ..self }
    }

    /// Reads the value of `key`. Returns `None` if it is missing or not valid.
    pub fn read(&self, section: &mut Section<'_, '_>, key: &'static str) -> Option<T> {
        let field = match self.presence {
            Presence::Usual => section.field(key),
            Presence::MayBeEmpty => section.optional(key),
            Presence::Required => section.required(key),
        };
        (self.read)(field?, &format!("{}{}", self.expected, self.examples))
    }

    /// Returns the value as people see it; `None` for a secret.
    pub fn show(&self, value: &T) -> Option<String> {
        (!self.is_secret).then(|| (self.show)(value))
    }

    /// Describes a key of this kind for the documents.
    #[cfg(test)]
    pub fn describe(
        self,
        key: &'static str,
        effect: &'static str,
        default: &T,
        applies: Applies,
    ) -> KeyDescription {
        KeyDescription {
            key,
            effect,
            default: self.written.map_or_else(|| (self.show)(default), str::to_owned),
            example: self.example,
            is_required: self.presence == Presence::Required,
            values: self.expected,
            applies,
        }
    }
}

pub(super) fn durations(range: RangeInclusive<Duration>) -> Kind<Duration> {
    let [least, most] = [range.start(), range.end()].map(|end| units::show_duration(*end));
    let parse = move |text: &str| units::parse_duration(text).filter(|value| range.contains(value));
    Kind::parsed(format!("a duration from {least} to {most}"), parse, |value| {
        units::show_duration(*value)
    })
    .such_as(", such as 10 (seconds), 10s, 1h 30m")
}

/// Sizes in bytes.
pub(super) fn sizes(range: RangeInclusive<u64>) -> Kind<u64> {
    let [least, most] = [range.start(), range.end()].map(|end| units::show_size(*end));
    let parse = move |text: &str| units::parse_size(text).filter(|value| range.contains(value));
    Kind::parsed(format!("a size from {least} to {most}"), parse, |value| units::show_size(*value))
        .such_as(", such as 65536 (bytes), 64 KiB, 10 MiB")
}

pub(super) fn numbers<T>(range: RangeInclusive<T>) -> Kind<T>
where
    T: FromStr + PartialOrd + Display + 'static,
{
    let expected = format!("a whole number from {} to {}", range.start(), range.end());
    let parse = move |text: &str| text.trim().parse().ok().filter(|number| range.contains(number));
    Kind::parsed(expected, parse, T::to_string)
}

/// One of a few words.
pub(super) fn words<T: Copy + PartialEq + 'static>(
    words: impl Into<Vec<(&'static str, T)>>,
) -> Kind<T> {
    let words = words.into();
    let names = words.clone();
    Kind::new(
        one_of(&words),
        move |field, _| field.one_of(&words),
        move |value| {
            let named = names.iter().find(|(_, each)| each == value);
            named.map_or("", |(name, _)| name).to_owned()
        },
    )
}

/// Returns the words as a message names them.
pub(super) fn one_of<T>(words: &[(&'static str, T)]) -> String {
    let names: Vec<&'static str> = words.iter().map(|(word, _)| *word).collect();
    match names.split_last() {
        Some((last, [])) => format!("`{last}`"),
        Some((last, others)) => format!("`{}` or `{last}`", others.join("`, `")),
        None => String::new(),
    }
}

/// `true` or `false`.
pub(super) fn truth() -> Kind<bool> {
    words([("true", true), ("false", false)])
}

/// `on` or `off`.
pub(super) fn switch() -> Kind<bool> {
    words([("on", true), ("off", false)])
}

/// A text that is not empty.
pub(super) fn text() -> Kind<String> {
    Kind::new("a text", |field, _| field.word(), Clone::clone)
}

/// The id of an agent, a project or a task.
pub(super) fn id<T: FromStr + Display + 'static>() -> Kind<T> {
    Kind::parsed(AN_ID, |text| text.parse().ok(), T::to_string)
}

/// A path. A relative one starts at the folder of the file.
pub(super) fn path() -> Kind<PathBuf> {
    Kind::new("a path", |field, _| field.path(), |path| path.display().to_string())
}

/// A text that is never shown.
pub(super) fn secret() -> Kind<Secret> {
    Kind::new("a text", |field, _| field.secret(), |_| String::new()).hidden()
}

/// A list of values.
pub(super) fn list<T, C>(item: Kind<T>) -> Kind<C>
where
    T: 'static,
    C: FromIterator<T> + 'static,
    for<'c> &'c C: IntoIterator<Item = &'c T>,
{
    let read = item.read;
    let show = item.show;
    let what = format!("{}{}", item.expected, item.examples);
    let kind = Kind::new(
        format!("a list; each item is {}", item.expected),
        move |field, _| {
            // All items are read, so that every mistake is noted.
            let items: Vec<_> = field.list()?.into_iter().map(|item| read(item, &what)).collect();
            items.into_iter().collect()
        },
        move |values: &C| {
            let values: Vec<_> = values.into_iter().map(&show).collect();
            if values.is_empty() { "none".to_owned() } else { values.join(", ") }
        },
    );
    kind.written_as("[]")
}
