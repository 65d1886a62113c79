//! The text of a file that people wrote. This module reads it within limits, finds lines and
//! columns, and hides secrets in it.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use domain::printable::is_unprintable;
use machine::sys::regular_file;

use super::tree::Span;

/// The size of the largest file that is read, in bytes. Usual files have a few KiB.
pub(super) const MAX_BYTES: u64 = 1024 * 1024;

/// The length of the longest reference to a variable that masking leaves readable, in bytes.
const MAX_REFERENCE: usize = 200;

/// A text and its origin.
#[derive(Debug, Clone)]
pub(super) struct Source {
    /// The name as the person gave it, for diagnostics.
    name: String,
    /// The folder at which relative paths in the text start; absolute.
    folder: PathBuf,
    /// The text without a byte order mark.
    text: String,
    /// The offsets at which the lines begin.
    lines: Vec<usize>,
}

/// The reason why a file can't be read as a text.
#[derive(Debug)]
pub(super) enum Unreadable {
    Io(io::Error),
    TooLarge,
    /// The file is not UTF-8 from this byte on. The source contains the text before it.
    NotText(Source, usize),
}

impl Source {
    /// Makes a source. `name` is for diagnostics; relative paths start at `folder`.
    pub fn new(name: impl Into<String>, folder: impl Into<PathBuf>, text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).to_owned();
        let lines =
            std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { name: name.into(), folder: folder.into(), text, lines }
    }

    /// Reads `path`. A relative one starts at `working_directory`.
    pub fn read(path: &Path, working_directory: &Path) -> Result<Self, Unreadable> {
        let full = working_directory.join(path);
        let mut bytes = Vec::new();
        regular_file::check_named(&full).map_err(Unreadable::Io)?;
        let file = std::fs::File::open(&full).map_err(Unreadable::Io)?;
        // One byte more than allowed tells a file that is too large from one that just fits. This
        // also works for a pipe that a shell passes on.
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(Unreadable::Io)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(Unreadable::TooLarge);
        }
        let name = path.display().to_string();
        let folder = full.parent().unwrap_or(working_directory);
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Self::new(name, folder, &text)),
            Err(error) => {
                let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let source = Self::new(name, folder, &String::from_utf8_lossy(valid));
                let at = source.text.len();
                Err(Unreadable::NotText(source, at))
            }
        }
    }

    /// Returns a source with only the top-level lines of these keys. It salvages a file that is not
    /// valid YAML, for a reader that needs only these keys.
    pub fn only_lines_of(&self, keys: &[&str]) -> Self {
        let is_of = |line: &str| {
            line.split_once(':').is_some_and(|(key, _)| keys.contains(&key.trim_end()))
        };
        let text: String = self.text.split_inclusive('\n').filter(|line| is_of(line)).collect();
        Self::new(self.name.clone(), self.folder.clone(), &text)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the line of a byte, from 1.
    pub fn line_of(&self, offset: usize) -> usize {
        self.lines.partition_point(|start| *start <= offset)
    }

    /// Returns the byte offset of a line and a column, both from 1. If there is no such place,
    /// returns the end of the line or of the text.
    pub fn offset_of(&self, line: usize, column: usize) -> usize {
        let Some(start) = line.checked_sub(1).and_then(|i| self.lines.get(i)) else {
            return self.text.len();
        };
        let text = self.text[*start..].lines().next().unwrap_or_default();
        start + text.char_indices().nth(column.saturating_sub(1)).map_or(text.len(), |(at, _)| at)
    }

    /// Returns the text for diagnostics. The bytes keep their places, but secrets and control
    /// characters are replaced.
    pub fn masked(&self, secrets: &[Span]) -> String {
        let mut text = self.text.clone().into_bytes();
        for span in secrets {
            mask(&self.text, span.clone(), &mut text);
        }
        for (at, c) in self.text.char_indices() {
            if is_unprintable(c) && !matches!(c, '\n' | '\r' | '\t') {
                text[at..at + c.len_utf8()].fill(b'?');
            }
        }
        String::from_utf8(text).expect("whole characters were replaced by ASCII")
    }

    /// Returns the parts to hide in a text that is not valid YAML, in which keys and values can't
    /// be told apart. For each key that looks like a secret's, that is the rest of its line. For
    /// each URL that may contain a secret, that is what follows the scheme.
    pub fn guess_secrets(&self) -> Vec<Span> {
        let mut secrets = Vec::new();
        let mut start = 0;
        for line in self.text.split_inclusive('\n') {
            if let Some((key, _)) = line.split_once(':')
                && is_secret_name(key)
            {
                let value = start + line.len() - line[key.len() + 1..].trim_start().len();
                secrets.push(value..value.max(start + line.trim_end().len()));
            } else if let Some(at) = line.to_ascii_lowercase().find("passkey") {
                secrets.push(start + at + "passkey".len()..start + line.trim_end().len());
            } else if let Some(at) = line.find("://").filter(|_| holds_credentials(line)) {
                secrets.push(start + at + "://".len()..start + line.trim_end().len());
            }
            start += line.len();
        }
        secrets
    }
}

/// Returns whether a value of this name should not be shown.
pub(super) fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_switch = name.ends_with("passkey_in_prompt");
    !is_switch
        && ["passkey", "password", "secret", "token", "key", "credential"]
            .iter()
            .any(|word| name.contains(word))
}

/// Returns whether a text is a URL that contains a user name, a password or parameters. Parameters
/// may contain a secret.
pub(super) fn holds_credentials(text: &str) -> bool {
    text.split_once("://").is_some_and(|(_, rest)| rest.contains(['@', '?']))
}

/// Replaces `span` by asterisks. References such as `${NAME}` stay, because they say where the
/// secret comes from.
fn mask(text: &str, span: Span, masked: &mut [u8]) {
    let mut at = span.start;
    while at < span.end {
        if let Some(reference) = reference_at(&text[at..span.end]) {
            at += reference;
            continue;
        }
        let length = text[at..].chars().next().map_or(1, char::len_utf8);
        if !matches!(text.as_bytes()[at], b'\n' | b'\r' | b'"' | b'\'') {
            masked[at..at + length].fill(b'*');
        }
        at += length;
    }
}

/// Returns the length of a `${NAME}` at the beginning of `text`. Text after a `:` in it is not part
/// of that.
fn reference_at(text: &str) -> Option<usize> {
    let name = text.strip_prefix("${")?;
    let length = name.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
    // A `$` without a closing brace may belong to the secret itself.
    let is_closed = name.bytes().take(MAX_REFERENCE).any(|b| b == b'}');
    match name.as_bytes().get(length) {
        Some(b'}') if length > 0 => Some(2 + length + 1),
        Some(b':') if length > 0 && is_closed => {
            Some(2 + length + 2).filter(|end| text.is_char_boundary(*end))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new("file", "/", text)
    }

    #[test]
    fn masking_keeps_places_and_references() {
        let text = "a: \"hush é ${NAME} ${X:-y}\" b\u{1b}[0m\n";
        let secret = 3..text.len() - 7;
        let masked = source(text).masked(std::slice::from_ref(&secret));
        assert_eq!(masked, "a: \"********${NAME}*${X:-**\" b?[0m\n");
        assert_eq!(masked.len(), text.len());
    }

    #[test]
    fn secrets_are_guessed_by_line() {
        let text = "passkey: abc\nAPI_KEY : \"d\nname: e\n{ a: { passkey: f } }\n\
                    url: x://u:g@h\nurl: x://h/?k=g\nurl: x://h\n";
        let source = source(text);
        assert_eq!(
            source.masked(&source.guess_secrets()),
            "passkey: ***\nAPI_KEY : \"*\nname: e\n{ a: { passkey*******\n\
             url: x://*****\nurl: x://******\nurl: x://h\n"
        );
    }

    #[test]
    fn an_offset_is_found_in_characters() {
        let source = source("日本\r\nab\n");
        assert_eq!(source.offset_of(1, 2), 3);
        assert_eq!(source.offset_of(1, 9), 6);
        assert_eq!(source.offset_of(2, 2), 9);
        assert_eq!(source.offset_of(7, 1), source.text().len());
    }
}
