//! Reads the output of an instance in pages of whole lines: the last ones, those before a place,
//! and those after it. The cost of a page does not depend on the length of the output.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::str::FromStr;
use std::time::UNIX_EPOCH;

use super::{OUTPUT_LOG, rotated_log};
use crate::sys::regular_file;

/// The number of bytes of a page.
const MAX_BYTES: usize = 1024 * 1024;
/// The number of bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// A place between two lines of the output. It stays valid while the files are rotated, until its
/// file is removed. A later file is another one, also if it has the same number on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputPlace {
    file: FileMark,
    offset: u64,
}

/// The mark of a file, which no later file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileMark {
    /// The number of the file on its disk, which a later file may get again.
    inode: u64,
    /// The time of its creation in nanoseconds; 0 if the file system does not tell.
    born: u64,
}

impl FileMark {
    fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let born = metadata.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let born = born.and_then(|born| u64::try_from(born.as_nanos()).ok()).unwrap_or(0);
        Ok(Self { inode: metadata.ino(), born })
    }
}

impl fmt::Display for OutputPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}-{}", self.file.inode, self.file.born, self.offset)
    }
}

/// A text that is not an [`OutputPlace`].
#[derive(Debug, thiserror::Error)]
#[error("expected a place in the output, as the answer before has it")]
pub struct NotAPlace;

impl FromStr for OutputPlace {
    type Err = NotAPlace;

    fn from_str(text: &str) -> Result<Self, NotAPlace> {
        let (file, offset) = text.split_once('-').ok_or(NotAPlace)?;
        let (inode, born) = file.split_once('.').ok_or(NotAPlace)?;
        let number = |text: &str| text.parse().map_err(|_| NotAPlace);
        let file = FileMark { inode: number(inode)?, born: number(born)? };
        Ok(Self { file, offset: number(offset)? })
    }
}

/// Successive lines of the output.
#[derive(Debug, Default)]
pub struct OutputPage {
    /// The lines without their ends. Bytes that are not UTF-8 are replaced.
    pub lines: Vec<String>,
    /// The place before the first line; `None` if no kept line is before it.
    pub start: Option<OutputPlace>,
    /// The place after the last line; `None` if there is no output yet.
    pub end: Option<OutputPlace>,
}

/// A file of the output.
struct Part {
    mark: FileMark,
    file: File,
}

impl Part {
    fn place(&self, offset: u64) -> OutputPlace {
        OutputPlace { file: self.mark, offset }
    }

    /// Returns the bytes between two offsets. Fewer are returned if the file is shorter.
    fn read(&self, from: u64, to: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(to.saturating_sub(from)).unwrap_or(MAX_BYTES)];
        let mut n_read = 0;
        while n_read < bytes.len() {
            match self.file.read_at(&mut bytes[n_read..], from + n_read as u64)? {
                0 => break,
                n => n_read += n,
            }
        }
        bytes.truncate(n_read);
        Ok(bytes)
    }
}

/// Returns the last lines before `place`, or the last lines of all, at most `n_lines`.
///
/// # Errors
/// A folder or a file that cannot be read.
pub fn before(dir: &Path, place: Option<OutputPlace>, n_lines: usize) -> io::Result<OutputPage> {
    let parts = parts(dir)?;
    let (first, mut end) = match place {
        None => (0, None),
        Some(place) => match parts.iter().position(|part| part.mark == place.file) {
            Some(at) => (at, Some(place.offset)),
            // The lines before it are no longer kept.
            None => return Ok(OutputPage { end: Some(place), ..OutputPage::default() }),
        },
    };
    let mut page = OutputPage { end: place, ..OutputPage::default() };
    let mut lines = VecDeque::new();
    let mut room = MAX_BYTES;
    for (at, part) in parts.iter().enumerate().skip(first) {
        let length = part.file.metadata()?.len();
        let to = end.take().map_or(length, |end| end.min(length));
        let (found, from, until) = last_lines(part, to, n_lines - lines.len(), room)?;
        page.end = page.end.or(Some(part.place(until)));
        room = room.saturating_sub(found.iter().map(String::len).sum());
        for line in found.into_iter().rev() {
            lines.push_front(line);
        }
        let is_oldest = at + 1 == parts.len();
        page.start = (from > 0 || !is_oldest).then(|| part.place(from));
        if from > 0 || lines.len() >= n_lines || room == 0 {
            break;
        }
    }
    page.lines = lines.into();
    Ok(page)
}

/// Returns the last whole lines of a file before `to`, with the offsets of their start and end.
fn last_lines(
    part: &Part,
    to: u64,
    n_lines: usize,
    room: usize,
) -> io::Result<(Vec<String>, u64, u64)> {
    let mut from = to;
    let mut bytes = Vec::new();
    let mut n_ends = 0;
    // The line end before the first line is needed as well.
    while from > 0 && n_ends <= n_lines && bytes.len() < room.max(CHUNK) {
        let start = from.saturating_sub(CHUNK as u64);
        let mut piece = part.read(start, from)?;
        if piece.is_empty() {
            break;
        }
        n_ends += piece.split(|&byte| byte == b'\n').count() - 1;
        piece.append(&mut bytes);
        bytes = piece;
        from = start;
    }
    // The last line has no end yet, and the first one may have begun earlier.
    let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let is_line_start = |at: usize| at == 0 || bytes[at - 1] == b'\n';
    let mut starts: Vec<usize> = (0..end).filter(|&at| is_line_start(at)).collect();
    // A line without a visible beginning is kept if it is the only one, so that each page goes on.
    if from > 0 && starts.len() > 1 {
        starts.remove(0);
    }
    let starts = &starts[starts.len().saturating_sub(n_lines)..];
    let begin = starts.first().copied().unwrap_or(if from == 0 { 0 } else { end });
    Ok((lines_of(&bytes[begin..end]), from + begin as u64, from + end as u64))
}

/// Returns the next lines after `place`, or from the beginning of the kept output. `start` is not
/// determined.
///
/// # Errors
/// A folder or a file that cannot be read.
pub fn after(dir: &Path, place: Option<OutputPlace>) -> io::Result<OutputPage> {
    let parts = parts(dir)?;
    let known = place.and_then(|place| {
        Some((parts.iter().position(|part| part.mark == place.file)?, place.offset))
    });
    let (first, mut from) = known.unwrap_or((parts.len().saturating_sub(1), 0));
    let mut page = OutputPage { end: place, ..OutputPage::default() };
    let mut room = MAX_BYTES;
    for part in parts.iter().take(first + 1).rev() {
        let bytes = part.read(from, from + room as u64)?;
        let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        page.lines.extend(lines_of(&bytes[..end]));
        page.end = Some(part.place(from + end as u64));
        room = room.saturating_sub(bytes.len());
        if room == 0 {
            break;
        }
        from = 0;
    }
    Ok(page)
}

fn lines_of(bytes: &[u8]) -> Vec<String> {
    let Some(bytes) = bytes.strip_suffix(b"\n") else { return Vec::new() };
    let lines = bytes.split(|&byte| byte == b'\n');
    lines.map(|line| String::from_utf8_lossy(line).trim_end_matches('\r').to_owned()).collect()
}

/// Returns the files of the output, the newest first. A rotation at the same time may hide the
/// oldest one.
fn parts(dir: &Path) -> io::Result<Vec<Part>> {
    let mut parts: Vec<Part> = Vec::new();
    let mut is_gap = false;
    for n in 0.. {
        let path = if n == 0 { dir.join(OUTPUT_LOG) } else { rotated_log(dir, n) };
        let file = match regular_file::open(&path) {
            Ok(file) => file,
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) =>
            {
                // Between two steps of a rotation one number is free.
                if is_gap {
                    break;
                }
                is_gap = true;
                continue;
            }
            Err(error) => return Err(error),
        };
        is_gap = false;
        let mark = FileMark::of(&file)?;
        if parts.iter().all(|part| part.mark != mark) {
            parts.push(Part { mark, file });
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Returns a folder with 25 lines in three files; the last line has no end.
    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let text = |from: usize, to: usize| -> String {
            (from..to).flat_map(|n| ["line ".to_owned(), n.to_string(), "\n".to_owned()]).collect()
        };
        fs::write(rotated_log(dir.path(), 2), text(0, 10)).unwrap();
        fs::write(rotated_log(dir.path(), 1), text(10, 20)).unwrap();
        fs::write(dir.path().join(OUTPUT_LOG), text(20, 25) + "unfinished").unwrap();
        dir
    }

    fn numbers(page: &OutputPage) -> Vec<usize> {
        page.lines.iter().map(|line| line.strip_prefix("line ").unwrap().parse().unwrap()).collect()
    }

    #[test]
    fn pages_from_the_end_to_the_beginning_have_each_line_once() {
        let dir = folder();
        for n_lines in [1, 3, 5, 7, 10, 24, 25, 26, 100] {
            let mut page = before(dir.path(), None, n_lines).unwrap();
            let mut seen = numbers(&page);
            while let Some(start) = page.start {
                let place = start.to_string().parse().unwrap();
                page = before(dir.path(), Some(place), n_lines).unwrap();
                assert!(page.lines.len() <= n_lines && !page.lines.is_empty(), "{page:?}");
                seen.splice(0..0, numbers(&page));
            }
            assert_eq!(seen, (0..25).collect::<Vec<_>>(), "{n_lines} a page");
        }
    }

    #[test]
    fn a_follower_sees_each_line_once_also_after_a_rotation() {
        let dir = folder();
        let page = before(dir.path(), None, 2).unwrap();
        assert_eq!(numbers(&page), [23, 24]);
        assert!(after(dir.path(), page.end).unwrap().lines.is_empty());
        let current = dir.path().join(OUTPUT_LOG);
        let text = fs::read_to_string(&current).unwrap();
        fs::write(&current, text.replace("unfinished", "line 25\n")).unwrap();
        fs::rename(rotated_log(dir.path(), 1), rotated_log(dir.path(), 2)).unwrap();
        fs::rename(&current, rotated_log(dir.path(), 1)).unwrap();
        fs::write(&current, "line 26\nline").unwrap();
        let next = after(dir.path(), page.end).unwrap();
        assert_eq!(numbers(&next), [25, 26]);
        assert!(after(dir.path(), next.end).unwrap().lines.is_empty());
        // A place in a file that is gone leads to the oldest kept line, and has none before it.
        let file = FileMark { inode: u64::MAX, born: 1 };
        let gone = Some(OutputPlace { file, offset: 3 });
        assert_eq!(numbers(&after(dir.path(), gone).unwrap())[0], 10);
        assert!(before(dir.path(), gone, 9).unwrap().lines.is_empty());
    }

    #[test]
    fn a_place_in_a_file_that_is_gone_does_not_lead_into_a_later_one_with_its_number() {
        let dir = folder();
        let end = before(dir.path(), None, 2).unwrap().end.unwrap();
        let earlier = FileMark { born: end.file.born + 1, ..end.file };
        let gone = Some(OutputPlace { file: earlier, ..end });
        assert_eq!(numbers(&after(dir.path(), gone).unwrap())[0], 0, "it starts again");
        assert!(before(dir.path(), gone, 9).unwrap().lines.is_empty());
    }

    #[test]
    fn an_output_that_is_missing_or_long_is_read_in_parts() {
        let dir = tempfile::tempdir().unwrap();
        let none = before(dir.path(), None, 9).unwrap();
        assert!(none.lines.is_empty() && none.start.is_none() && none.end.is_none());
        let line = "x".repeat(64 * 1024);
        fs::write(dir.path().join(OUTPUT_LOG), format!("{line}\n").repeat(40)).unwrap();
        let page = before(dir.path(), None, 100).unwrap();
        assert!((10..20).contains(&page.lines.len()), "{}", page.lines.len());
        let mut n_lines = 0;
        let mut end = None;
        loop {
            let page = after(dir.path(), end).unwrap();
            if page.lines.is_empty() {
                break;
            }
            n_lines += page.lines.len();
            end = page.end;
        }
        assert_eq!(n_lines, 40);
        assert!("7".parse::<OutputPlace>().is_err() && "a-b".parse::<OutputPlace>().is_err());
    }
}
