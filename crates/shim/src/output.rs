//! Writes the agent's output to files of limited size: whole lines, cleaned and redacted. Trouble
//! with the disk loses lines and counts them; it never makes the agent wait.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::agent::Streams;
use super::clean::clean;
use domain::redact::Redactor;
use machine::instance_dir::clock::BootInstant;
use machine::instance_dir::{OUTPUT_LOG, rotated_log};
use machine::sys::regular_file;

/// The longest line, in bytes; the rest of a longer line is dropped.
const MAX_LINE: usize = 64 * 1024;
/// The part of a line after `MAX_LINE` that is still examined, so that a secret on the border is
/// found as a whole. It is as long as the longest passkey with all its characters escaped.
const OVERLAP: usize = 16 * 1024;
/// The size of one read, in bytes.
const CHUNK: usize = 16 * 1024;
/// The most that is read from a pipe that other processes hold open when the tree is empty, in
/// bytes.
const MAX_DRAIN: usize = 1024 * 1024;
/// The pause between a failure to open the log and the next attempt.
const REOPEN_AFTER: Duration = Duration::from_secs(1);

/// Both streams of an agent, and their log.
pub struct Output {
    streams: [Option<Stream>; 2],
    log: Log,
    redactor: Redactor,
    chunk: Vec<u8>,
}

struct Stream {
    pipe: File,
    line: Line,
}

impl Output {
    pub fn new(streams: Streams, log: Log, redactor: Redactor) -> Self {
        let streams =
            streams.map(|pipe| Some(Stream { pipe: File::from(pipe), line: Line::default() }));
        Self { streams, log, redactor, chunk: vec![0; CHUNK] }
    }

    /// Returns the pipes that are still open, to wait for.
    pub fn open_pipes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.streams.iter().flatten().map(|stream| stream.pipe.as_fd())
    }

    /// Copies the available output, up to one chunk per stream. Returns the number of bytes.
    pub fn copy(&mut self) -> usize {
        let mut n_copied = 0;
        for slot in &mut self.streams {
            let Some(stream) = slot else { continue };
            match stream.pipe.read(&mut self.chunk) {
                Ok(n) if n > 0 => {
                    n_copied += n;
                    stream.line.push(&self.chunk[..n], |line, n_cut| {
                        add_line(&mut self.log, &self.redactor, line, n_cut);
                    });
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) => {}
                // The stream has ended or failed. A closed stream is not polled again, because it
                // would always be ready.
                Ok(_) | Err(_) => {
                    stream
                        .line
                        .finish(|line, n_cut| add_line(&mut self.log, &self.redactor, line, n_cut));
                    *slot = None;
                }
            }
        }
        self.log.flush();
        n_copied
    }

    /// Copies the rest of the pipes, even if other processes hold their other ends, and the last
    /// partial lines.
    pub fn finish(&mut self) {
        let mut n_copied = 0;
        while n_copied < MAX_DRAIN {
            match self.copy() {
                0 => break,
                n => n_copied += n,
            }
        }
        for stream in self.streams.iter_mut().flatten() {
            stream.line.finish(|line, n_cut| add_line(&mut self.log, &self.redactor, line, n_cut));
        }
        self.log.flush();
    }

    pub fn reopen(&mut self) {
        self.log.reopen();
    }

    pub fn n_dropped_lines(&self) -> u64 {
        self.log.n_dropped_lines
    }
}

fn add_line(log: &mut Log, redactor: &Redactor, line: &[u8], n_cut: usize) {
    // The line is cleaned first: a colour in the middle of a token would hide it.
    let cleaned = clean(line);
    let text = redactor.redact(&cleaned);
    if n_cut == 0 && line.len() <= MAX_LINE {
        log.add(&[&*text]);
    } else {
        let kept = text.len().min(MAX_LINE);
        let n_dropped = n_cut + line.len().saturating_sub(kept);
        let kept = floor_char_boundary(&text, kept);
        log.add(&[&text[..kept], format!(" … [{n_dropped} bytes dropped]").as_bytes()]);
    }
}

/// Returns the last position up to `at` that is not inside of a character.
fn floor_char_boundary(text: &[u8], at: usize) -> usize {
    let is_inside = |at: usize| text.get(at).is_some_and(|&b| b & 0b1100_0000 == 0b1000_0000);
    (0..=at).rev().find(|&at| !is_inside(at)).unwrap_or(0)
}

/// The unfinished line of a stream.
#[derive(Default)]
struct Line {
    start: Vec<u8>,
    n_cut: usize,
}

impl Line {
    fn push(&mut self, mut chunk: &[u8], mut on_line: impl FnMut(&[u8], usize)) {
        while let Some(end) = chunk.iter().position(|&b| b == b'\n') {
            let rest = &chunk[..end];
            let behind = &chunk[end + 1..];
            if self.start.is_empty() {
                on_line(rest, 0);
            } else {
                self.extend(rest);
                self.finish(&mut on_line);
            }
            chunk = behind;
        }
        self.extend(chunk);
    }

    fn extend(&mut self, bytes: &[u8]) {
        let room = (MAX_LINE + OVERLAP).saturating_sub(self.start.len()).min(bytes.len());
        self.start.extend_from_slice(&bytes[..room]);
        self.n_cut += bytes.len() - room;
    }

    fn finish(&mut self, on_line: impl FnOnce(&[u8], usize)) {
        if !self.start.is_empty() {
            on_line(&self.start, self.n_cut);
        }
        self.n_cut = 0;
        if self.start.capacity() > CHUNK {
            // One long line must not keep its memory for the rest of the agent's life.
            self.start = Vec::new();
        }
        self.start.clear();
    }
}

/// `output.log` and its older parts.
pub struct Log {
    dir: PathBuf,
    max_file: u64,
    n_files: u32,
    file: Option<File>,
    retry_at: BootInstant,
    /// The number of bytes in the current file.
    length: u64,
    pending: Vec<u8>,
    n_pending_lines: u64,
    n_dropped_lines: u64,
}

impl Log {
    pub fn open(dir: &Path, max_file: u64, n_files: u32) -> Self {
        let mut log = Self {
            dir: dir.to_owned(),
            max_file,
            n_files,
            file: None,
            retry_at: BootInstant::now(),
            length: 0,
            pending: Vec::new(),
            n_pending_lines: 0,
            n_dropped_lines: 0,
        };
        log.reopen();
        log
    }

    /// Adds one line made of `parts`; it is written at the next flush.
    fn add(&mut self, parts: &[&[u8]]) {
        let n: usize = parts.iter().map(|part| part.len()).sum::<usize>() + 1;
        let length = self.length + self.pending.len() as u64;
        if length > 0 && length + n as u64 > self.max_file {
            self.flush();
            self.rotate();
        }
        for part in parts {
            self.pending.extend_from_slice(part);
        }
        self.pending.push(b'\n');
        self.n_pending_lines += 1;
        if self.pending.len() > CHUNK {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        if self.file.is_none() && BootInstant::now() >= self.retry_at {
            self.reopen();
        }
        let is_written = self.file.as_mut().is_some_and(|file| {
            let is_written = file.write_all(&self.pending).is_ok();
            if !is_written {
                // Half a line would run into the next one.
                let _ = file.set_len(self.length);
            }
            is_written
        });
        if is_written {
            self.length += self.pending.len() as u64;
        } else {
            self.n_dropped_lines += self.n_pending_lines;
        }
        self.n_pending_lines = 0;
        self.pending.clear();
        if self.pending.capacity() > 2 * CHUNK {
            self.pending = Vec::new();
        }
    }

    fn reopen(&mut self) {
        let path = self.dir.join(OUTPUT_LOG);
        self.file = regular_file::open_to_append(&path).ok();
        self.length = self
            .file
            .as_ref()
            .and_then(|file| file.metadata().ok())
            .map_or(0, |metadata| metadata.len());
        self.retry_at = BootInstant::now() + REOPEN_AFTER;
    }

    fn rotate(&mut self) {
        let current = self.dir.join(OUTPUT_LOG);
        if self.n_files <= 1 {
            let _ = std::fs::remove_file(&current);
        } else {
            for n in (1..self.n_files - 1).rev() {
                let _ = std::fs::rename(rotated_log(&self.dir, n), rotated_log(&self.dir, n + 1));
            }
            let _ = std::fs::rename(&current, rotated_log(&self.dir, 1));
        }
        self.reopen();
        if self.length > 0 {
            // The file could not be moved away. The limit is more important than the lines.
            if let Some(file) = &self.file {
                self.length = file.set_len(0).map_or(self.length, |()| 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::instance_dir::output_files;

    fn lines_of(chunks: &[&[u8]]) -> Vec<(Vec<u8>, usize)> {
        let mut line = Line::default();
        let mut lines = Vec::new();
        for chunk in chunks {
            line.push(chunk, |text, n_cut| lines.push((text.to_vec(), n_cut)));
        }
        line.finish(|text, n_cut| lines.push((text.to_vec(), n_cut)));
        lines
    }

    #[test]
    fn a_line_is_whole_however_it_was_read() {
        let expected = vec![(b"one".to_vec(), 0), (b"".to_vec(), 0), (b"two".to_vec(), 0)];
        assert_eq!(lines_of(&[b"one\n\ntwo"]), expected);
        assert_eq!(lines_of(&[b"o", b"ne", b"\n", b"\ntw", b"o\n"]), expected);
    }

    #[test]
    fn a_long_line_is_cut_and_the_next_one_is_not() {
        let long = vec![b'x'; MAX_LINE];
        let lines = lines_of(&[&long, &long, b"\nnext\n"]);
        assert_eq!((lines[0].0.len(), lines[0].1), (MAX_LINE + OVERLAP, MAX_LINE - OVERLAP));
        assert_eq!(lines[1], (b"next".to_vec(), 0));
    }

    #[test]
    fn a_secret_on_the_border_of_a_long_line_does_not_show() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(dir.path(), u64::MAX, 1);
        // This is the longest possible secret, in its longest form.
        let secret = "hunter22".repeat(125);
        let escaped = secret
            .bytes()
            .fold(String::new(), |escaped, byte| escaped + &format!("\\\\u{byte:04x}"));
        for secret_in_line in [&secret, &escaped] {
            let mut line = vec![b'x'; MAX_LINE - 3];
            line.extend_from_slice(secret_in_line.as_bytes());
            line.extend_from_slice(b" and more");
            add_line(&mut log, &Redactor::new([secret.as_bytes()]), &line, 100_000);
        }
        log.flush();
        let text = std::fs::read_to_string(dir.path().join(OUTPUT_LOG)).unwrap();
        assert!(!text.contains("hun") && !text.contains("u00"), "{}", &text[MAX_LINE - 10..]);
        assert_eq!(text.matches("bytes dropped]\n").count(), 2);
    }

    /// An agent CLI writes when it has something, not when a line is whole.
    #[test]
    fn a_secret_does_not_show_wherever_a_write_ends() {
        let passkey = r#"ключ "1" \ 鍵"#;
        let line = r#"{"type":"tool_use","input":{"passkey":"\u043aлюч \"1\" \\ \u9375","session_token":"sess_0123456789abcdefGH"}}"#;
        let expected =
            r#"{"type":"tool_use","input":{"passkey":"[redacted]","session_token":"sess_…"}}"#;
        for at in 0..line.len() {
            let dir = tempfile::tempdir().unwrap();
            let (stdout, mut agent) = io::pipe().unwrap();
            let (stderr, _) = io::pipe().unwrap();
            let redactor = Redactor::new([passkey.as_bytes()]);
            let mut output = Output::new(
                [stdout.into(), stderr.into()],
                Log::open(dir.path(), u64::MAX, 1),
                redactor,
            );
            agent.write_all(&line.as_bytes()[..at]).unwrap();
            if at > 0 {
                output.copy();
            }
            agent.write_all(&line.as_bytes()[at..]).unwrap();
            drop(agent);
            output.finish();
            let text = std::fs::read_to_string(dir.path().join(OUTPUT_LOG)).unwrap();
            assert_eq!(text, format!("{expected}\n"), "at {at}");
        }
    }

    #[test]
    fn files_keep_their_limit_and_their_number() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(dir.path(), 100, 3);
        for n in 0..100 {
            log.add(&[format!("line {n}").as_bytes()]);
        }
        log.flush();
        let files = output_files(dir.path());
        assert_eq!(files.len(), 3);
        let text: String =
            files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
        assert!(files.iter().all(|path| path.metadata().unwrap().len() <= 100));
        assert!(text.ends_with("line 98\nline 99\n") && !text.contains("line 10\n"));
    }

    #[test]
    fn what_can_not_be_written_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(OUTPUT_LOG)).unwrap();
        let mut log = Log::open(dir.path(), 100, 3);
        log.add(&[b"lost"]);
        log.flush();
        assert_eq!(log.n_dropped_lines, 1);
        std::fs::remove_dir(dir.path().join(OUTPUT_LOG)).unwrap();
        log.reopen();
        log.add(&[b"kept"]);
        log.flush();
        assert_eq!(log.n_dropped_lines, 1);
        assert_eq!(std::fs::read_to_string(dir.path().join(OUTPUT_LOG)).unwrap(), "kept\n");
    }
}
