//! Reads sections. Each key is read once. A mistake is noted and the default takes its place, so
//! that one run finds all mistakes.
//!
//! [`Section`] notes unknown and duplicate keys by itself. [`Field`] checks one value. Neither puts
//! a completed value into a message, because it may contain the value of a variable. Messages
//! repeat only the text of the file.

mod field;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use domain::nearest::nearest;
use domain::printable::is_unprintable;

use super::environment::Environment;
use super::interpolate::variables_of;
use super::report::{Problem, Report, Transcript};
use super::source::{Source, holds_credentials, is_secret_name};
use super::tree::{self, Entry, Node, Span, Value};
pub(super) use field::{Field, Name};

/// The longest text of the file that a message repeats, in characters.
const MAX_QUOTED: usize = 60;

/// The number of unknown keys of a section for which a nearest key is searched. A file with more is
/// probably another kind of file.
const MAX_NEAREST: usize = 100;

/// The keys of earlier versions by their paths, each with what to do.
const REMOVED: &[(&str, &str)] = &[
    (
        "retention.deleted",
        "delete this key: a deletion is final, and what is archived can come back",
    ),
    (
        "workspace.paths",
        "delete this key: the hook `after_create` of `workspace.hooks` may run \
         `git sparse-checkout set FOLDER`",
    ),
];

/// The place in the file that sets a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingPlace {
    /// The line, from 1.
    pub line: usize,
    /// The variables of the environment in the value.
    pub variables: Vec<String>,
}

/// The places of settings, by their paths.
pub type SettingPlaces = BTreeMap<String, SettingPlace>;

/// The state that all sections of one file share.
pub(super) struct Reader<'a> {
    source: &'a Source,
    environment: &'a Environment,
    problems: RefCell<Vec<Problem>>,
    /// All keys that were asked for, with their sections. They are the keys that can be configured.
    known: RefCell<BTreeSet<String>>,
    /// The variables in the values of secret settings.
    secret_variables: RefCell<BTreeSet<String>>,
    places: RefCell<SettingPlaces>,
}

impl<'a> Reader<'a> {
    pub fn new(source: &'a Source, environment: &'a Environment) -> Self {
        Self {
            source,
            environment,
            problems: RefCell::default(),
            known: RefCell::default(),
            secret_variables: RefCell::default(),
            places: RefCell::default(),
        }
    }

    /// Reads the whole file by `read`, which gets its top level. Returns the value, and the
    /// transcript that later reports may show.
    ///
    /// # Errors
    /// Returns the report of all noted problems. The value is then only a substitute.
    pub fn read<T>(
        &self,
        read: impl FnOnce(Section<'_, 'a>) -> T,
    ) -> Result<(T, Transcript), Report> {
        let (root, transcript) = self.parse()?;
        let value = read(Section::new(self, String::new(), Some(root)));
        let problems = self.problems.take();
        if problems.is_empty() { Ok((value, transcript)) } else { Err(transcript.report(problems)) }
    }

    /// Reads only the keys that `read` asks for. Problems elsewhere in the file are ignored.
    ///
    /// # Errors
    /// Fails if the file can't be parsed, or if one of these keys has a problem.
    pub fn peek<T>(&self, read: impl FnOnce(&mut Section<'_, 'a>) -> T) -> Result<T, Report> {
        let (root, transcript) = self.parse()?;
        let mut top = Section::new(self, String::new(), Some(root));
        self.problems.take();
        let value = read(&mut top);
        // The problems are taken before the section notes its unread keys.
        let problems = self.problems.take();
        if problems.is_empty() { Ok(value) } else { Err(transcript.report(problems)) }
    }

    fn parse(&self) -> Result<(Node, Transcript), Report> {
        let root = tree::parse(self.source).map_err(|error| {
            let problem = Problem { help: error.help, ..Problem::new(error.message, error.span) };
            Transcript::new(self.source, &self.source.guess_secrets()).report(vec![problem])
        })?;
        let mut secrets = Vec::new();
        find_secrets(&root, false, false, &mut secrets);
        let transcript = Transcript::new(self.source, &secrets);
        Ok((root, transcript))
    }

    pub fn note(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    pub fn source(&self) -> &'a Source {
        self.source
    }

    pub fn environment(&self) -> &'a Environment {
        self.environment
    }

    /// Returns the variables in the values of secret settings so far.
    pub fn secret_variables(&self) -> BTreeSet<String> {
        self.secret_variables.borrow().clone()
    }

    /// Returns the places of the keys that were read so far.
    pub fn places(&self) -> SettingPlaces {
        self.places.borrow().clone()
    }

    fn note_place(&self, path: &str, key: &Span, value: &Span) {
        let text = self.source.text().get(value.clone()).unwrap_or_default();
        let variables = variables_of(text).map(str::to_owned).collect();
        let place = SettingPlace { line: self.source.line_of(key.start), variables };
        self.places.borrow_mut().insert(path.to_owned(), place);
    }

    /// Returns the keys that were asked for, as `section.key`. `*` stands for a name that people
    /// choose.
    #[cfg(test)]
    pub fn known_keys(&self) -> BTreeSet<String> {
        self.known.borrow().clone()
    }
}

/// A mapping with fixed keys. Its drop notes the keys that were not asked for, so that no section
/// can forget to.
pub(super) struct Section<'r, 'a> {
    reader: &'r Reader<'a>,
    /// The path as messages name it: `session`, `ai_providers.claude`; empty at the top.
    path: String,
    /// The path with `*` for names that people choose.
    pattern: String,
    span: Option<Span>,
    /// True if the value is a mapping or is missing. If it is not, that is the only problem that is
    /// noted.
    is_mapping: bool,
    entries: Vec<Entry>,
    /// The keys that were asked for, with the places of their values.
    asked: BTreeMap<&'static str, Option<Span>>,
}

impl<'r, 'a> Section<'r, 'a> {
    fn new(reader: &'r Reader<'a>, path: String, node: Option<Node>) -> Self {
        let span = node.as_ref().map(|node| node.span.clone());
        let is_mapping = node
            .as_ref()
            .is_none_or(|node| matches!(node.value, Value::Mapping(_) | Value::Nothing));
        let entries = node.map_or_else(Vec::new, |node| mapping(reader, &path, node));
        Self {
            reader,
            pattern: path.clone(),
            path,
            span,
            is_mapping,
            entries,
            asked: BTreeMap::new(),
        }
    }

    pub fn reader(&self) -> &'r Reader<'a> {
        self.reader
    }

    /// Returns the path as messages name it.
    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn span(&self) -> Option<Span> {
        self.span.clone()
    }

    /// Returns the value of `key`, if it is there and not empty.
    pub fn field(&mut self, key: &'static str) -> Option<Field<'r, 'a>> {
        let path = join(&self.path, key);
        self.reader.known.borrow_mut().insert(join(&self.pattern, key));
        self.asked.entry(key).or_default();
        let at = self.entries.iter().position(|entry| entry.key == key)?;
        let entry = self.entries.swap_remove(at);
        self.asked.insert(key, Some(entry.value.span.clone()));
        self.reader.note_place(&path, &entry.key_span, &entry.value.span);
        if matches!(entry.value.value, Value::Nothing) {
            self.reader.note(
                Problem::new(format!("`{path}` has no value"), entry.key_span)
                    .help("remove the key to get the default"),
            );
            return None;
        }
        Some(Field { reader: self.reader, path, node: entry.value })
    }

    /// Returns the place of the value of a key that was read.
    pub fn span_of(&self, key: &str) -> Option<Span> {
        self.asked.get(key).cloned().flatten()
    }

    /// Notes that the value of a key does not fit the other settings.
    pub fn refuse(&self, key: &str, message: impl Into<String>, help: &str) {
        self.reader.note(Problem::new(message, self.span_of(key)).help(help));
    }

    /// Notes that the section has both of two keys that say the same.
    pub fn check_only_one(&self, [first, second]: [&str; 2]) {
        if self.span_of(first).is_some() && self.span_of(second).is_some() {
            let message = format!("`{}` has both `{first}` and `{second}`", self.path);
            self.refuse(first, message, "keep one of the two");
        }
    }

    /// Notes that the section does not have exactly one of two keys.
    pub fn check_exactly_one(&self, [first, second]: [&str; 2]) {
        self.check_only_one([first, second]);
        let has_none = self.span_of(first).is_none() && self.span_of(second).is_none();
        if has_none && self.is_mapping {
            let message = format!("`{}` has neither `{first}` nor `{second}`", self.path);
            let problem = Problem::new(message, self.span.clone());
            self.reader.note(problem.label("expected one of the two in here"));
        }
    }

    /// Notes that the value of the second key, `most`, is less than that of the first, `least`.
    pub fn check_order<T: PartialOrd>(&self, [low, high]: [&str; 2], least: &T, most: &T) {
        if most < least {
            let span = self.span_of(high).or_else(|| self.span_of(low));
            let [low, high] = [low, high].map(|key| join(&self.path, key));
            let problem = Problem::new(format!("`{high}` is shorter than `{low}`"), span);
            self.reader.note(problem.help(format!("raise `{high}` or lower `{low}`")));
        }
    }

    /// Returns the field like [`Section::field`], for a key whose default is "none". For such a key
    /// an empty value is valid.
    pub fn optional(&mut self, key: &'static str) -> Option<Field<'r, 'a>> {
        self.entries
            .retain(|entry| entry.key != key || !matches!(entry.value.value, Value::Nothing));
        self.field(key)
    }

    /// Returns the field like [`Section::field`], for a key without a default. Notes a missing key.
    pub fn required(&mut self, key: &'static str) -> Option<Field<'r, 'a>> {
        self.demand(key);
        self.field(key)
    }

    /// Returns whether the section contains a key that was not read yet.
    pub fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    /// Returns whether the value of a key that was not read yet is a mapping.
    pub fn has_mapping(&self, key: &str) -> bool {
        let is_mapping = |node: &Node| matches!(node.value, Value::Mapping(_));
        self.entries.iter().any(|entry| entry.key == key && is_mapping(&entry.value))
    }

    /// Notes that a key is missing.
    pub fn demand(&self, key: &str) {
        if self.is_mapping && !self.has(key) {
            let problem =
                Problem::new(format!("`{}` is missing", join(&self.path, key)), self.span.clone());
            self.reader.note(problem.label(format!("expected `{key}` in here")));
        }
    }

    /// Returns the items of a list that was not read yet.
    pub fn items_of(&self, key: &str) -> Vec<Field<'r, 'a>> {
        let path = join(&self.path, key);
        let node = self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value);
        let Some(node) = node.filter(|node| matches!(node.value, Value::List(_))) else {
            return Vec::new();
        };
        Field { reader: self.reader, path, node: node.clone() }.list().unwrap_or_default()
    }

    /// Returns a section below this one. It is empty if it is missing or has no keys.
    pub fn section(&mut self, key: &'static str) -> Section<'r, 'a> {
        let node = self.take(key);
        self.below(key, join(&self.path, key), node)
    }

    /// Returns a section below this one, or `None` if it is missing or has no keys.
    pub fn optional_section(&mut self, key: &'static str) -> Option<Section<'r, 'a>> {
        let node = self.take(key).filter(|node| !matches!(node.value, Value::Nothing))?;
        Some(self.below(key, join(&self.path, key), Some(node)))
    }

    /// Returns one section or a list of sections.
    pub fn sections(&mut self, key: &'static str) -> Vec<Section<'r, 'a>> {
        let path = join(&self.path, key);
        match self.take(key) {
            None | Some(Node { value: Value::Nothing, .. }) => Vec::new(),
            Some(Node { value: Value::List(items), .. }) => {
                let items = items.into_iter().enumerate();
                items.map(|(i, node)| self.below(key, format!("{path}[{i}]"), Some(node))).collect()
            }
            node => vec![self.below(key, path, node)],
        }
    }

    fn take(&mut self, key: &'static str) -> Option<Node> {
        self.asked.entry(key).or_default();
        self.entries
            .iter()
            .position(|entry| entry.key == key)
            .map(|at| self.entries.swap_remove(at).value)
    }

    fn below(&self, key: &str, path: String, node: Option<Node>) -> Section<'r, 'a> {
        let mut section = Self::new(self.reader, path, node);
        section.pattern = join(&self.pattern, key);
        section
    }

    /// Returns the sections of a mapping whose keys are names that people choose, in the order of
    /// the file.
    pub fn named_sections(&mut self, key: &'static str) -> Vec<(Name, Section<'r, 'a>)> {
        self.asked.entry(key).or_default();
        let Some(at) = self.entries.iter().position(|entry| entry.key == key) else {
            return Vec::new();
        };
        let path = join(&self.path, key);
        let pattern = join(&join(&self.pattern, key), "*");
        mapping(self.reader, &path, self.entries.swap_remove(at).value)
            .into_iter()
            .map(|entry| {
                let name = Name { text: entry.key, span: entry.key_span };
                let path = join(&path, &quotable(&name.text));
                self.reader.note_place(&path, &name.span, &(0..0));
                // The place is that of the key, because an empty section has no place of its own.
                let mut section = Self::new(self.reader, path, Some(entry.value));
                section.span = Some(name.span.clone());
                section.pattern.clone_from(&pattern);
                (name, section)
            })
            .collect()
    }

    pub fn one_of<T: Copy>(
        &mut self,
        key: &'static str,
        default: T,
        words: &[(&'static str, T)],
    ) -> T {
        self.field(key).and_then(|field| field.one_of(words)).unwrap_or(default)
    }
}

impl Drop for Section<'_, '_> {
    fn drop(&mut self) {
        for (i, entry) in self.entries.iter().enumerate() {
            let key = quotable(&entry.key);
            let removed = REMOVED.iter().find(|(removed, _)| *removed == join(&self.pattern, &key));
            if let Some((removed, instead)) = removed {
                let message = format!("`{removed}` was removed");
                let problem = Problem::new(message, entry.key_span.clone());
                self.reader.note(problem.help(*instead));
                continue;
            }
            let message = if self.path.is_empty() {
                format!("unknown key `{key}`")
            } else {
                format!("unknown key `{key}` in `{}`", self.path)
            };
            let problem = Problem::new(message, entry.key_span.clone());
            let known = if i < MAX_NEAREST {
                nearest(&entry.key, self.asked.keys().copied())
            } else {
                None
            };
            self.reader.note(if let Some(known) = known {
                problem.label(format!("did you mean `{known}`?"))
            } else {
                let known: Vec<_> = self.asked.keys().copied().collect();
                problem.help(format!("known here: {}", known.join(", ")))
            });
        }
    }
}

/// Returns the entries of a mapping, each key once. Notes duplicates and a value that is not a
/// mapping. An empty value is an empty mapping, because a section with all its keys commented out
/// looks like that.
fn mapping(reader: &Reader<'_>, path: &str, node: Node) -> Vec<Entry> {
    let whole = if path.is_empty() { "the file".to_owned() } else { format!("`{path}`") };
    let what = match node.value {
        Value::Nothing => return Vec::new(),
        Value::Mapping(entries) => {
            let mut first_lines = BTreeMap::new();
            return entries
                .into_iter()
                .filter(|entry| {
                    let line = reader.source.line_of(entry.key_span.start);
                    let Some(first) = first_lines.insert(entry.key.clone(), line) else {
                        return true;
                    };
                    first_lines.insert(entry.key.clone(), first);
                    let message = format!("duplicate key `{}` in {whole}", quotable(&entry.key));
                    reader.note(
                        Problem::new(message, entry.key_span.clone())
                            .label(format!("first given in line {first}")),
                    );
                    false
                })
                .collect();
        }
        Value::Text(_) => "a text",
        Value::List(_) => "a list",
    };
    let message =
        format!("{whole} is not valid: expected a mapping (`key: value` lines), found {what}");
    reader.note(Problem::new(message, node.span).label("here"));
    Vec::new()
}

/// Collects the places of all values that should not be shown:
///
/// - values below a key that looks like a secret's
/// - values in an agent's environment
/// - a passkey directly under its agent
/// - URLs with a password
///
/// `has_ids` says that the keys of the mapping are ids of projects or tasks. Such an id may be a word
/// that has a meaning as a key.
fn find_secrets(node: &Node, is_secret: bool, has_ids: bool, secrets: &mut Vec<Span>) {
    match &node.value {
        Value::Nothing => {}
        Value::Text(text) if is_secret || holds_credentials(text) => {
            secrets.push(node.span.clone());
        }
        Value::Text(_) => {}
        Value::List(items) => {
            for item in items {
                find_secrets(item, is_secret, false, secrets);
            }
        }
        Value::Mapping(entries) => {
            for Entry { key, value, .. } in entries {
                // The name of an agent may contain `key`, such as `monkey`. Therefore a key hides
                // only a single value, not a mapping.
                let is_mapping = matches!(value.value, Value::Mapping(_));
                let is_named_so = is_secret_name(key) && !is_mapping;
                let key = if has_ids && is_mapping { "" } else { key.as_str() };
                let is_secret =
                    is_secret || is_named_so || matches!(key, "environment" | "passkey");
                find_secrets(value, is_secret, matches!(key, "projects" | "tasks"), secrets);
                if let ("agents", Value::Mapping(agents)) = (key, &value.value) {
                    let direct =
                        agents.iter().filter(|agent| matches!(agent.value.value, Value::Text(_)));
                    secrets.extend(direct.map(|agent| agent.value.span.clone()));
                }
            }
        }
    }
}

/// Returns the path of a key in a section.
pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Returns `text` as a message may repeat it: short, on one line, without control characters.
fn quotable(text: &str) -> String {
    let mut quoted: String = text.chars().take(MAX_QUOTED).flat_map(shown).collect();
    if text.chars().nth(MAX_QUOTED).is_some() {
        quoted.push('…');
    }
    quoted
}

/// Returns a message without control characters. It may repeat a text of the file.
fn clean(message: &impl Display) -> String {
    message.to_string().chars().flat_map(shown).collect()
}

fn shown(c: char) -> impl Iterator<Item = char> {
    let (plain, escaped) =
        if is_unprintable(c) { (None, Some(c.escape_default())) } else { (Some(c), None) };
    plain.into_iter().chain(escaped.into_iter().flatten())
}
