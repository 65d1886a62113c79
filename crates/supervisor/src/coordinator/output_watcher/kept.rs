//! Reads the transcript that the CLI of one agent keeps. All of this blocks, and for as long as the
//! file system of its user hangs.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::process::transcripts;
use crate::provider::output::Lines;
use domain::cli_lines::kept::KeptReader;
use domain::{OutputFact, Timestamp, Usage};
use machine::instance_dir::record::{self, KeptConversation, Spec};
use runtime::folder_watch::{Folders, WatchId};

/// The size of one read, in bytes.
const CHUNK: usize = 64 * 1024;
/// The most bytes that are read at once.
const MAX_READ: usize = 8 * 1024 * 1024;
/// After this many reads without a transcript, searches become rarer and rarer.
const MANY_MISSED: u32 = 8;

/// The length of the longest line that is read, in bytes. A line has a whole answer of the model,
/// such as a file that it writes. The longest answers, of 128,000 tokens, have about 600 kB.
const MAX_LINE: usize = 2 * 1024 * 1024;

/// The occasion of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// The agent printed something.
    Output,
    /// The process tree of the agent is gone, or soon will be.
    End,
}

/// The transcript of one agent, and how far it was read.
pub struct Kept {
    /// The folder of the instance.
    dir: PathBuf,
    note: KeptConversation,
    began_at: Timestamp,
    opened: Option<Opened>,
    /// The number of reads without a transcript.
    n_missed: u32,
}

struct Opened {
    conversation: String,
    file: File,
    position: u64,
    /// The part of the process begins here; 0 if the lines tell it.
    begins_at: u64,
    lines: Lines,
    reader: KeptReader,
}

/// The result of a read.
#[derive(Debug, Default)]
pub struct News {
    pub facts: Vec<OutputFact>,
    /// The transcript is read from the start. Earlier facts come again.
    pub is_anew: bool,
    pub is_found: bool,
    /// The usage of the conversation before the process, if it is known.
    pub used_before: Option<Usage>,
    pub has_more: bool,
    /// The watch of the transcript, if there is a new one.
    pub watch: Option<WatchId>,
}

impl Kept {
    /// Returns the transcript of an instance, which is not searched for yet; `None` if its program
    /// keeps none that is known, and for an instance of an earlier version.
    pub fn of(dir: &Path) -> Option<Self> {
        let note = record::read::<KeptConversation>(dir).ok().flatten()?;
        let began_at = record::read::<Spec>(dir).ok().flatten()?.created_at;
        Some(Self { dir: dir.to_owned(), note, began_at, opened: None, n_missed: 0 })
    }

    /// Returns the folder of the CLI.
    pub fn folder(&self) -> &Path {
        &self.note.spec.folder
    }

    /// Returns the usage of the conversation before the process, if there is no transcript. `None`
    /// if it is not known.
    pub fn used_before_without(&self) -> Option<Usage> {
        (!self.note.spec.asked.is_resumed).then(Usage::default)
    }

    /// Reads further. `told` is the name that the CLI told for the conversation.
    pub fn read(&mut self, told: Option<&str>, occasion: Occasion) -> News {
        // A CLI that forks a conversation tells the name of the fork, perhaps after other output.
        let is_of_told = |opened: &Opened| told.is_none_or(|told| told == opened.conversation);
        if self.opened.as_ref().is_some_and(|it| it.is_replaced() || !is_of_told(it)) {
            self.opened = None;
        }
        let mut news = News::default();
        if self.opened.is_none() {
            self.n_missed = self.n_missed.saturating_add(1);
            if self.is_search_due(occasion) {
                self.opened = self.open(told);
            }
            news.is_anew = self.opened.is_some();
            if news.is_anew {
                self.keep(told);
            }
        }
        if let Some(opened) = &mut self.opened {
            news.is_found = true;
            opened.read(occasion, &mut news);
            news.used_before = opened.reader.used_before();
        } else if told.is_some() && occasion == Occasion::Output {
            // It is about to appear, and perhaps its CLI prints nothing until it is searched for.
            news.has_more = self.note.spec.keeper.tells_waits() && self.n_missed < MANY_MISSED;
        }
        news
    }

    /// Watches the transcript for its growth, if it tells what the output does not. Earlier growth
    /// is not seen.
    pub fn watch(&self, folders: &Folders) -> Option<WatchId> {
        let opened = self.opened.as_ref().filter(|_| self.note.spec.keeper.tells_waits())?;
        folders.watch_file(&opened.file).ok()
    }

    /// Returns whether it is time for a search.
    const fn is_search_due(&self, occasion: Occasion) -> bool {
        let is_time = self.n_missed < MANY_MISSED || self.n_missed.is_power_of_two();
        is_time || matches!(occasion, Occasion::End)
    }

    /// Notes the conversation that the CLI told, for a daemon that does not find the beginning of the
    /// output any more. If that fails, this daemon still knows it.
    fn keep(&mut self, told: Option<&str>) {
        let conversation = &mut self.note.spec.asked.conversation;
        if conversation.is_none() {
            *conversation = told.map(str::to_owned);
            let _ = record::write(&self.dir, &self.note);
        }
    }

    fn open(&self, told: Option<&str>) -> Option<Opened> {
        let KeptConversation { spec, transcript, .. } = &self.note;
        let conversation = spec.asked.conversation.as_deref();
        let id = told.or(conversation)?;
        let before = transcript.as_ref().filter(|_| conversation == Some(id));
        let before = before.filter(|before| before.length > 0);
        let names = match before {
            Some(before) => {
                before.path.iter().map(|name| name.to_string_lossy().into_owned()).collect()
            }
            None => spec.keeper.names(id),
        };
        let (_, mut file) = transcripts::find(&self.note, &names)?;
        let mut begins_at = before.map_or(0, |before| before.length);
        let mut position = 0;
        let mut reader = if begins_at > 0 {
            KeptReader::new(spec.keeper, id.to_owned())
        } else {
            KeptReader::since(spec.keeper, id.to_owned(), self.began_at)
        };
        if begins_at > 0 && !reader.needs_part_before() {
            position = file.seek(SeekFrom::Start(begins_at)).ok()?;
            reader.begin();
            begins_at = 0;
        }
        let conversation = id.to_owned();
        let lines = Lines::up_to(MAX_LINE);
        Some(Opened { conversation, file, position, begins_at, lines, reader })
    }
}

impl Opened {
    /// Returns whether another file has taken the place of this one, or it was cut.
    fn is_replaced(&self) -> bool {
        let found = self.file.metadata();
        found.is_ok_and(|found| found.nlink() == 0 || found.len() < self.position)
    }

    fn read(&mut self, occasion: Occasion, news: &mut News) {
        let Self { file, position, begins_at, lines, reader, .. } = self;
        let mut chunk = vec![0; CHUNK];
        let mut n_read = 0;
        while n_read < MAX_READ {
            let left = usize::try_from(begins_at.saturating_sub(*position)).unwrap_or(CHUNK);
            let most = if left > 0 { left.min(CHUNK) } else { CHUNK };
            let Ok(n @ 1..) = file.read(&mut chunk[..most]) else {
                if occasion == Occasion::End {
                    // The process may have been killed before it wrote the end of the line.
                    lines.finish(|line| news.facts.extend(reader.hear(line)));
                }
                return;
            };
            n_read += n;
            *position += n as u64;
            lines.push(&chunk[..n], |line| news.facts.extend(reader.hear(line)));
            if *position == *begins_at {
                lines.finish(|line| news.facts.extend(reader.hear(line)));
                reader.begin();
            }
        }
        news.has_more = true;
    }
}

#[cfg(test)]
mod tests;
