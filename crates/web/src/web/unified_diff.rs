//! Reads the unified diff that git prints, so that a page can show it file by file. It is pure, and
//! takes any text: lines that it does not know are left out.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// The note that follows a diff that was too long begins with this. No line of a diff does.
const CUT_NOTE: char = '…';

/// The files of a diff.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct UnifiedDiff {
    pub(super) files: Vec<FileDiff>,
    /// True if the rest was left out because the diff is too long.
    pub(super) is_cut: bool,
}

/// The changes of one file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FileDiff {
    /// The path after the change, or before it if the file is deleted.
    pub(super) path: String,
    /// The number of earlier files of the diff with the same path. Git shows a file that becomes a
    /// link as one that is deleted and another one that is new.
    pub(super) nth: usize,
    /// The path before the change, if it is another one.
    pub(super) old_path: Option<String>,
    pub(super) kind: ChangeKind,
    pub(super) is_binary: bool,
    /// The modes before and after the change, if it changes them.
    pub(super) modes: Option<(String, String)>,
    pub(super) n_additions: u32,
    pub(super) n_deletions: u32,
    pub(super) rows: Vec<Row>,
    /// The number of lines that are shown at first.
    pub(super) n_shown: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ChangeKind {
    #[default]
    Modified,
    New,
    Deleted,
    Renamed,
    Copied,
}

/// One line of a file's diff.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) kind: RowKind,
    /// The number of the line before the change.
    pub(super) old: Option<u32>,
    /// The number of the line after the change.
    pub(super) new: Option<u32>,
    pub(super) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowKind {
    /// The place of the lines that follow.
    Hunk,
    Context,
    Add,
    Delete,
    /// The line before has no newline at its end.
    NoNewline,
}

/// The lines of a hunk that are still to come, and the number of the next one on each side.
struct Hunk {
    old: u32,
    new: u32,
    n_old: u32,
    n_new: u32,
}

impl UnifiedDiff {
    pub(super) fn parse(text: &str) -> Self {
        let mut diff = Self::default();
        let mut hunk: Option<Hunk> = None;
        for line in text.split('\n') {
            if line.starts_with(CUT_NOTE) {
                diff.is_cut = true;
                break;
            }
            if let Some(rest) = line.strip_prefix("diff --git ")
                && hunk.as_ref().is_none_or(Hunk::is_complete)
            {
                hunk = None;
                let path = same_name(rest).unwrap_or_default();
                diff.files.push(FileDiff { path, ..FileDiff::default() });
                continue;
            }
            let Some(file) = diff.files.last_mut() else {
                continue;
            };
            match &mut hunk {
                Some(open) if !open.is_complete() => file.take_row(open, line),
                _ if line.starts_with("@@ ") => {
                    hunk = Hunk::parse(line);
                    file.rows.push(Row::note(RowKind::Hunk, line));
                }
                Some(_) if line.starts_with('\\') => {
                    file.rows.push(Row::note(RowKind::NoNewline, ""));
                }
                Some(_) => {}
                None => file.take_header(line),
            }
        }
        diff.count_paths();
        diff
    }

    fn count_paths(&mut self) {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for file in &mut self.files {
            let count = counts.entry(&file.path).or_default();
            file.nth = *count;
            *count += 1;
        }
    }
}

impl FileDiff {
    fn take_row(&mut self, hunk: &mut Hunk, line: &str) {
        let mut marks = line.chars();
        let mark = marks.next();
        let text = marks.as_str().to_owned();
        let row = match mark {
            Some('+') => {
                self.n_additions += 1;
                Row { kind: RowKind::Add, old: None, new: Some(hunk.take_new()), text }
            }
            Some('-') => {
                self.n_deletions += 1;
                Row { kind: RowKind::Delete, old: Some(hunk.take_old()), new: None, text }
            }
            Some(' ') => Row {
                kind: RowKind::Context,
                old: Some(hunk.take_old()),
                new: Some(hunk.take_new()),
                text,
            },
            Some('\\') => Row::note(RowKind::NoNewline, ""),
            // The diff was cut here.
            _ => return,
        };
        self.rows.push(row);
    }

    /// Takes a line between the first one of a file and its first hunk.
    fn take_header(&mut self, line: &str) {
        let Some((key, value)) =
            HEADERS.iter().find_map(|key| Some((*key, line.strip_prefix(key)?)))
        else {
            self.is_binary |= line.starts_with("Binary files ") || line == "GIT binary patch";
            return;
        };
        let mode = |value: &str| value.trim().to_owned();
        match key {
            "new file mode " => self.kind = ChangeKind::New,
            "deleted file mode " => self.kind = ChangeKind::Deleted,
            "old mode " => self.modes = Some((mode(value), String::new())),
            "new mode " => {
                if let Some((_, new)) = &mut self.modes {
                    *new = mode(value);
                }
            }
            "rename from " | "copy from " => self.old_path = Some(name(value).into_owned()),
            "rename to " => {
                self.kind = ChangeKind::Renamed;
                self.path = name(value).into_owned();
            }
            "copy to " => {
                self.kind = ChangeKind::Copied;
                self.path = name(value).into_owned();
            }
            _ => {
                if let Some(path) = without_side(&name(value)) {
                    self.path = path;
                }
            }
        }
    }
}

/// The beginnings of the lines that describe the change of a file.
const HEADERS: [&str; 10] = [
    "new file mode ",
    "deleted file mode ",
    "old mode ",
    "new mode ",
    "rename from ",
    "rename to ",
    "copy from ",
    "copy to ",
    "--- ",
    "+++ ",
];

impl Row {
    fn note(kind: RowKind, text: &str) -> Self {
        Self { kind, old: None, new: None, text: text.to_owned() }
    }

    pub(super) fn is_no_newline(&self) -> bool {
        self.kind == RowKind::NoNewline
    }
}

impl Hunk {
    /// Reads `@@ -41,9 +41,14 @@`. A count of one is left out.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ').skip(1);
        let (old, n_old) = range(words.next()?.strip_prefix('-')?)?;
        let (new, n_new) = range(words.next()?.strip_prefix('+')?)?;
        Some(Self { old, new, n_old, n_new })
    }

    const fn is_complete(&self) -> bool {
        self.n_old == 0 && self.n_new == 0
    }

    const fn take_old(&mut self) -> u32 {
        let number = self.old;
        self.old = number.saturating_add(1);
        self.n_old = self.n_old.saturating_sub(1);
        number
    }

    const fn take_new(&mut self) -> u32 {
        let number = self.new;
        self.new = number.saturating_add(1);
        self.n_new = self.n_new.saturating_sub(1);
        number
    }
}

/// Reads `41,9`, the first line and the number of lines.
fn range(text: &str) -> Option<(u32, u32)> {
    let (first, count) = text.split_once(',').unwrap_or((text, "1"));
    Some((first.parse().ok()?, count.parse().ok()?))
}

/// Returns the name from `a/NAME b/NAME`. Two different names cannot be told apart if they contain
/// spaces; other lines name them then.
fn same_name(both: &str) -> Option<String> {
    let middle = both.len() / 2;
    let (old, new) = both.split_at_checked(middle)?;
    let new = without_side(&name(new.strip_prefix(' ')?))?;
    (without_side(&name(old))? == new).then_some(new)
}

/// Returns a path without the `a/` or `b/` that git puts before it; `None` for a file that does not
/// exist on this side.
fn without_side(name: &str) -> Option<String> {
    let path = name.strip_prefix("a/").or_else(|| name.strip_prefix("b/"))?;
    Some(path.to_owned())
}

/// Returns a name as git means it. Git puts names with special characters in quotes, with C's
/// escapes and each other byte as an octal number.
fn name(written: &str) -> Cow<'_, str> {
    let written = written.strip_suffix('\t').unwrap_or(written);
    let quoted = written.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let Some(quoted) = quoted else {
        return Cow::Borrowed(written);
    };
    let mut bytes = Vec::with_capacity(quoted.len());
    let mut rest = quoted.bytes().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'a') => bytes.push(0x07),
            Some(b'b') => bytes.push(0x08),
            Some(b't') => bytes.push(b'\t'),
            Some(b'n') => bytes.push(b'\n'),
            Some(b'v') => bytes.push(0x0b),
            Some(b'f') => bytes.push(0x0c),
            Some(b'r') => bytes.push(b'\r'),
            Some(digit @ b'0'..=b'7') => {
                let mut value = u32::from(digit - b'0');
                for _ in 0..2 {
                    let Some(digit) = rest.next_if(|digit| matches!(digit, b'0'..=b'7')) else {
                        break;
                    };
                    value = value * 8 + u32::from(digit - b'0');
                }
                bytes.push(u8::try_from(value).unwrap_or(b'?'));
            }
            Some(other) => bytes.push(other),
            None => {}
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests;
