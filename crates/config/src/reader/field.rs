//! One value of the file: its text, number, id, path or list.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use super::{Reader, clean, join, mapping, quotable};
use crate::interpolate::{interpolate, variables_of};
use crate::kinds;
use crate::report::Problem;
use crate::source::{holds_credentials, is_secret_name};
use crate::tree::{Node, Span, Value};
use domain::Secret;
use domain::nearest::nearest;

/// A name that a person chose as a key, and its place.
#[derive(Debug, Clone)]
pub struct Name {
    pub text: String,
    pub span: Span,
}

impl Name {
    /// Returns the name as an id. Notes why it is not one.
    pub fn id<T: FromStr<Err: Display>>(&self, reader: &Reader<'_>) -> Option<T> {
        self.text
            .parse()
            .map_err(|error: T::Err| reader.note(Problem::new(clean(&error), self.span.clone())))
            .ok()
    }
}

/// One value of the file with its name.
pub struct Field<'r, 'a> {
    pub(super) reader: &'r Reader<'a>,
    pub(super) path: String,
    pub(super) node: Node,
}

impl<'r, 'a> Field<'r, 'a> {
    pub fn span(&self) -> Span {
        self.node.span.clone()
    }

    pub fn reader(&self) -> &'r Reader<'a> {
        self.reader
    }

    pub fn path_in_file(&self) -> String {
        self.path.clone()
    }

    pub fn note(&self, problem: Problem) {
        self.reader.note(problem);
    }

    /// Notes that another value was expected here. The message repeats the text of the file unless
    /// it is a secret.
    pub fn expected(&self, what: &str) {
        self.reader.note(self.problem(what));
    }

    fn problem(&self, what: &str) -> Problem {
        let found = match &self.node.value {
            Value::Nothing => "nothing".to_owned(),
            Value::List(_) => "a list".to_owned(),
            Value::Mapping(_) => "a mapping".to_owned(),
            Value::Text(text) if is_secret_name(self.name()) || holds_credentials(text) => {
                "another text".to_owned()
            }
            Value::Text(text) => format!("`{}`", quotable(text)),
        };
        let message = format!("`{}` is not valid: expected {what}, found {found}", self.path);
        Problem::new(message, self.span()).label("here")
    }

    /// Returns the key alone, because a section called `tokenizer` has no secrets.
    fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }

    /// Returns exactly the text of the file. This is for prose, in which a `${…}` may be meant for
    /// another program.
    pub fn verbatim(&self) -> Option<String> {
        match &self.node.value {
            Value::Text(text) => Some(text.clone()),
            Value::Nothing | Value::List(_) | Value::Mapping(_) => {
                self.expected("a text");
                None
            }
        }
    }

    /// Returns the completed text, with variables and `~/` replaced.
    pub fn text(&self) -> Option<String> {
        self.complete(&self.verbatim()?)
    }

    /// Returns the completed text if it is not empty.
    pub fn word(&self) -> Option<String> {
        let text = self.text()?;
        if text.is_empty() {
            self.reader
                .note(Problem::new(format!("`{}` is empty", self.path), self.span()).label("here"));
            return None;
        }
        Some(text)
    }

    /// Returns `text` of this field with variables and `~/` replaced.
    pub fn complete(&self, text: &str) -> Option<String> {
        match interpolate(text, self.reader.environment) {
            Ok(text) if text.contains('\0') => {
                self.reader.note(Problem::new(
                    format!("`{}` contains a NUL character", self.path),
                    self.span(),
                ));
                None
            }
            Ok(text) => Some(text),
            Err(error) => {
                let message = format!("`{}`: {}", self.path, clean(&error));
                self.note(Problem {
                    help: error.help(),
                    ..Problem::new(message, self.span()).label("here")
                });
                None
            }
        }
    }

    /// Returns the completed text. Notes nothing if there is none.
    pub fn completed(&self) -> Option<String> {
        let Value::Text(text) = &self.node.value else { return None };
        interpolate(text, self.reader.environment).ok()
    }

    /// Returns the text as a secret, which no message will show.
    pub fn secret(&self) -> Option<Secret> {
        self.note_secret_variables();
        self.word().map(Secret::new)
    }

    /// Notes that the variables in this value are secret.
    pub fn note_secret_variables(&self) {
        if let Value::Text(text) = &self.node.value {
            self.reader.secret_variables.borrow_mut().extend(variables_of(text).map(str::to_owned));
        }
    }

    /// Returns the value of one of a few words.
    pub fn one_of<T: Copy>(&self, words: &[(&'static str, T)]) -> Option<T> {
        let what = kinds::one_of(words);
        let text = self.scalar(&what)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let problem = self.problem(&what);
            let written = self.verbatim().unwrap_or_default();
            self.reader.note(match nearest(&written, words.iter().map(|(word, _)| *word)) {
                Some(word) => problem.label(format!("did you mean `{word}`?")),
                None => problem,
            });
        }
        found
    }

    /// Returns the result of `parse` on the completed text. If there is none, notes that `what` was
    /// expected.
    pub fn parsed<T>(&self, what: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let parsed = parse(&self.scalar(what)?);
        if parsed.is_none() {
            self.expected(what);
        }
        parsed
    }

    fn scalar(&self, what: &str) -> Option<String> {
        let Value::Text(text) = &self.node.value else {
            self.expected(what);
            return None;
        };
        self.complete(text)
    }

    /// Returns the text as an id.
    pub fn id<T: FromStr>(&self) -> Option<T> {
        self.parsed(kinds::AN_ID, |text| text.parse().ok())
    }

    /// Returns a path. A relative one starts at the folder of the file.
    pub fn path(&self) -> Option<PathBuf> {
        // The components are joined again, so that `./x` does not leave a `.` in logs and answers.
        Some(self.reader.source.folder().join(self.word()?).components().collect())
    }

    /// Returns the items of a list, each as a field of its own.
    pub fn list(self) -> Option<Vec<Field<'r, 'a>>> {
        let Value::List(items) = self.node.value else {
            self.expected("a list");
            return None;
        };
        let Self { reader, path, .. } = self;
        let items = items.into_iter().enumerate();
        Some(items.map(|(i, node)| Field { reader, path: format!("{path}[{i}]"), node }).collect())
    }

    /// Returns the values of a mapping whose keys are names that people choose.
    pub fn named(self) -> Vec<(Name, Field<'r, 'a>)> {
        let Self { reader, path, node } = self;
        mapping(reader, &path, node)
            .into_iter()
            .map(|entry| {
                let name = Name { text: entry.key, span: entry.key_span };
                let path = join(&path, &quotable(&name.text));
                (name, Field { reader, path, node: entry.value })
            })
            .collect()
    }
}
