//! The mirror of a chat in its project's working directory: `.ai-pm/agents/<agent id>/chat.jsonl` (seed 003).
//!
//! The store is the truth, and the file is appended to: what is missing is added, a torn last line of ours is mended, lines that
//! people added are left alone. The working directory is never made; below it no symbolic link is followed, because agents can
//! make them. Blocking; whoever calls is the only writer. Called by `service`.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, mkdirat, openat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::domain::{AgentId, Message, Timestamp};

/// Below a working directory; the agent's own folder is in it.
const FOLDERS: [&str; 2] = [".ai-pm", "agents"];
const FILE: &str = "chat.jsonl";

/// A line, its keys in the order of the seed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    id: &'a str,
    sender_id: &'a str,
    content: &'a str,
    created_at: Timestamp,
    visible: bool,
}

/// What is read of a line: whose it is.
#[derive(Deserialize)]
struct Named {
    id: String,
}

/// Why a mirror is behind. The messages are in the store, and the next try adds them.
#[derive(Debug, thiserror::Error)]
pub enum ChatLogError {
    #[error("could not {action} `{}`", .path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("`{}` is a symbolic link, or no folder or file at all", .path.display())]
    NotOurs { path: PathBuf },
}

/// One mirror, open for writing.
#[derive(Debug)]
pub struct ChatLog {
    path: PathBuf,
    file: File,
}

/// The length of a mirror after the last write. Another one means that somebody else wrote, or that a write was cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Length(u64);

impl ChatLog {
    /// Where the mirror of the chats of `agent` in this working directory is.
    pub fn path(working_directory: &Path, agent: &AgentId) -> PathBuf {
        let folder = FOLDERS.iter().fold(working_directory.to_owned(), |folder, name| folder.join(name));
        folder.join(agent.as_str()).join(FILE)
    }

    /// Opens the mirror and makes it, with its folders, where there is none; `None` if there is no working directory.
    pub fn open(working_directory: &Path, agent: &AgentId) -> Result<Option<Self>, ChatLogError> {
        let directory = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut path = working_directory.to_owned();
        let mut folder = match openat(CWD, working_directory, directory, Mode::empty()) {
            Ok(folder) => folder,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(error) => return Err(failed("open", &path, error.into())),
        };
        for name in FOLDERS.into_iter().chain([agent.as_str()]) {
            path.push(name);
            folder = open_folder(&folder, name, &path)?;
        }
        path.push(FILE);
        // Non-blocking: a pipe in its place would wait for a reader.
        let flags =
            OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&folder, FILE, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => file,
            Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => return Err(ChatLogError::NotOurs { path }),
            Err(error) => return Err(failed("open", &path, error.into())),
        };
        let found = fstat(&file).map_err(|error| failed("look at", &path, error.into()))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(ChatLogError::NotOurs { path });
        }
        Ok(Some(Self { path, file: File::from(file) }))
    }

    pub fn length(&self) -> Result<Length, ChatLogError> {
        let metadata = self.file.metadata().map_err(|error| failed("look at", &self.path, error))?;
        Ok(Length(metadata.len()))
    }

    /// Adds messages, each as one write.
    pub fn append(&mut self, messages: &[Message]) -> Result<(), ChatLogError> {
        for message in messages {
            self.file.write_all(&line_of(message)).map_err(|error| failed("write to", &self.path, error))?;
        }
        Ok(())
    }

    /// Mends the end and adds those of `messages`, which are all there are, that are missing.
    pub fn repair(&mut self, messages: &[Message]) -> Result<(), ChatLogError> {
        let found = self.read().map_err(|error| failed("read", &self.path, error))?;
        let missing: Vec<Message> =
            messages.iter().filter(|message| !found.ids.contains(message.id.as_str())).cloned().collect();
        if !found.torn.is_empty() {
            let is_ours = missing.iter().any(|message| line_of(message).starts_with(&found.torn));
            let mended = if is_ours { self.file.set_len(found.whole) } else { self.file.write_all(b"\n") };
            mended.map_err(|error| failed("write to", &self.path, error))?;
        }
        self.append(&missing)
    }

    fn read(&mut self) -> io::Result<Found> {
        self.file.seek(SeekFrom::Start(0))?;
        let mut found = Found::default();
        let mut reader = BufReader::new(&self.file);
        let mut line = Vec::new();
        while reader.by_ref().read_until(b'\n', &mut line)? > 0 {
            let is_whole = line.last() == Some(&b'\n');
            if let Ok(Named { id }) = serde_json::from_slice(&line) {
                found.ids.insert(id);
            }
            if is_whole {
                found.whole += line.len() as u64;
            } else {
                found.torn.clone_from(&line);
            }
            line.clear();
        }
        Ok(found)
    }
}

/// What is in a file.
#[derive(Default)]
struct Found {
    ids: HashSet<String>,
    /// Bytes of whole lines.
    whole: u64,
    /// What comes after them.
    torn: Vec<u8>,
}

fn open_folder(parent: &OwnedFd, name: &str, path: &Path) -> Result<OwnedFd, ChatLogError> {
    match mkdirat(parent.as_fd(), name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(failed("make", path, error.into())),
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(parent.as_fd(), name, flags, Mode::empty()) {
        Ok(folder) => Ok(folder),
        Err(Errno::LOOP | Errno::NOTDIR) => Err(ChatLogError::NotOurs { path: path.to_owned() }),
        Err(error) => Err(failed("open", path, error.into())),
    }
}

fn line_of(message: &Message) -> Vec<u8> {
    let line = Line {
        id: message.id.as_str(),
        sender_id: message.sender_id(),
        content: &message.content,
        created_at: message.created_at,
        visible: message.is_visible,
    };
    let mut bytes = serde_json::to_vec(&line).expect("texts and a time are JSON");
    bytes.push(b'\n');
    bytes
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> ChatLogError {
    ChatLogError::Io { action, path: path.to_owned(), source }
}
