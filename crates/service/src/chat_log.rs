//! The export of a chat in its project's working directory: `.ai-pm/agents/<agent id>/chat.jsonl`.
//!
//! The store has the authoritative messages, and the file only grows. Missing messages are added,
//! an incomplete last line of the daemon is completed, and lines that people added are left alone.
//! The working directory is never made. Agents can change everything in it and replace it.
//! Therefore its path is resolved once, and from then on no symbolic link is followed, neither on
//! the way to it nor beneath it. Files of an agent that runs as another user are made and opened
//! with that user's rights. All functions block. The caller is the only writer. `service` calls
//! this module.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::{FileType, Mode, OFlags, fstat, mkdirat, openat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use domain::{AgentId, FileOwner, Message, RunAs, Timestamp};
use machine::sys;

/// The folders below a working directory. The agent's own folder is in the last one.
const FOLDERS: [&str; 2] = [".ai-pm", "agents"];
const FILE: &str = "chat.jsonl";
/// The size of a piece that is read at once, in bytes.
const CHUNK: usize = 64 * 1024;
/// The search for our lines passes over at most this many bytes of other content.
const MAX_FOREIGN: u64 = 64 * 1024 * 1024;

/// A line with its keys in a fixed order, which the clients of the older system expect.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    id: &'a str,
    sender_id: &'a str,
    content: &'a str,
    created_at: Timestamp,
    visible: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    author: Option<&'a str>,
}

/// The part of a line that is read: its id.
#[derive(Deserialize)]
struct LineId {
    id: String,
}

/// The reason why an export is behind. The messages are in the store, and the next attempt adds
/// them.
#[derive(Debug, thiserror::Error)]
pub enum ChatLogError {
    #[error("could not {action} `{}`", .path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("`{}` is a symbolic link, or neither a folder nor a file; remove it", .path.display())]
    NotOurs { path: PathBuf },
    #[error(
        "`{}` is reached by a symbolic link that was not there before; restart the daemon if the link is meant to be there",
        .path.display()
    )]
    Moved { path: PathBuf },
    #[error("user `{user}`, whom the agent runs as, may not use `{}`; give it to that user", .path.display())]
    NotTheUsers { user: String, path: PathBuf },
    #[error("this machine has no user `{user}`, whom the agent runs as")]
    NoUser { user: String },
    #[error("could not act as user `{user}`")]
    OtherUser {
        user: String,
        #[source]
        source: io::Error,
    },
}

/// Returns the path without symbolic links. The part of the path that does not exist stays
/// unchanged.
pub fn resolve(path: &Path) -> PathBuf {
    let resolved = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        let real = above.canonicalize().ok()?;
        Some(if rest.as_os_str().is_empty() { real } else { real.join(rest) })
    });
    resolved.unwrap_or_else(|| path.to_owned())
}

/// One export, open for writing.
#[derive(Debug)]
pub struct ChatLog {
    path: PathBuf,
    file: File,
}

/// The length of an export after the last write. Another length means that another program wrote,
/// or that a write was cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Length(u64);

impl ChatLog {
    /// Returns the path of the export of the chats of `agent` in this working directory.
    pub fn path(working_directory: &Path, agent: &AgentId) -> PathBuf {
        let folder =
            FOLDERS.iter().fold(working_directory.to_owned(), |folder, name| folder.join(name));
        folder.join(agent.as_str()).join(FILE)
    }

    /// Opens the export. Makes it with its folders if there is none. Returns `None` if there is no
    /// working directory.
    ///
    /// `working_directory` comes from [`resolve`]. If the owner is another user, a thread with that
    /// user's rights opens the export.
    pub fn open(
        working_directory: &Path,
        agent: &AgentId,
        owner: &FileOwner,
    ) -> Result<Option<Self>, ChatLogError> {
        match owner {
            FileOwner::Daemon => Self::open_here(working_directory, agent),
            FileOwner::Missing { name } => Err(ChatLogError::NoUser { user: name.clone() }),
            FileOwner::User(user) => match Self::open_as(user, working_directory, agent) {
                Err(ChatLogError::Io { path, source, .. })
                    if source.kind() == io::ErrorKind::PermissionDenied =>
                {
                    Err(ChatLogError::NotTheUsers { user: user.name.clone(), path })
                }
                opened => opened,
            },
        }
    }

    /// Opens the export on a thread of its own, because a thread that has taken another user's
    /// rights must do nothing else.
    fn open_as(
        user: &RunAs,
        working_directory: &Path,
        agent: &AgentId,
    ) -> Result<Option<Self>, ChatLogError> {
        let failed = |source| ChatLogError::OtherUser { user: user.name.clone(), source };
        thread::scope(|scope| {
            let open = || {
                sys::users::take_file_rights(user.uid, user.gid, &user.groups).map_err(failed)?;
                Self::open_here(working_directory, agent)
            };
            let thread = thread::Builder::new()
                .name("export".to_owned())
                .spawn_scoped(scope, open)
                .map_err(failed)?;
            thread.join().unwrap_or_else(|_| Err(failed(io::Error::other("the thread panicked"))))
        })
    }

    fn open_here(working_directory: &Path, agent: &AgentId) -> Result<Option<Self>, ChatLogError> {
        let mut path = working_directory.to_owned();
        let mut folder = match sys::paths::open_folder(working_directory) {
            Ok(folder) => folder,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(Errno::LOOP) => return Err(ChatLogError::Moved { path }),
            Err(error) => return Err(failed("open", &path, error.into())),
        };
        for name in FOLDERS.into_iter().chain([agent.as_str()]) {
            path.push(name);
            folder = open_folder(&folder, name, &path)?;
            if name == FOLDERS[0] {
                keep_out_of_commits(&folder);
            }
        }
        path.push(FILE);
        // The open is non-blocking, because a pipe in its place would wait for a reader.
        let flags = OFlags::RDWR
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let file = match openat(&folder, FILE, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => file,
            Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => {
                return Err(ChatLogError::NotOurs { path });
            }
            Err(error) => return Err(failed("open", &path, error.into())),
        };
        let found = fstat(&file).map_err(|error| failed("look at", &path, error.into()))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(ChatLogError::NotOurs { path });
        }
        Ok(Some(Self { path, file: File::from(file) }))
    }

    pub fn length(&self) -> Result<Length, ChatLogError> {
        let metadata =
            self.file.metadata().map_err(|error| failed("look at", &self.path, error))?;
        Ok(Length(metadata.len()))
    }

    /// Adds messages, each as one write.
    pub fn append(&mut self, messages: &[Message]) -> Result<(), ChatLogError> {
        for message in messages {
            self.file
                .write_all(&line_of(message))
                .map_err(|error| failed("write to", &self.path, error))?;
        }
        Ok(())
    }

    /// Completes the last line and adds the missing ones of `messages`, which are all messages of
    /// the chat.
    ///
    /// It reads from the end, in pieces. It stops when all are found, or when it has read
    /// `MAX_FOREIGN` bytes more than the messages take together.
    pub fn repair(&mut self, messages: &[Message]) -> Result<(), ChatLogError> {
        let found = self.look_for(messages).map_err(|error| failed("read", &self.path, error))?;
        let missing: Vec<Message> = messages
            .iter()
            .filter(|message| found.missing.contains(message.id.as_str()))
            .cloned()
            .collect();
        let torn = found.torn;
        if torn.length > 0 {
            let is_ours = torn.text.is_some_and(|text| {
                missing.iter().any(|message| line_of(message).starts_with(&text))
            });
            let mended = if is_ours {
                self.file.set_len(found.length - torn.length)
            } else {
                self.file.write_all(b"\n")
            };
            mended.map_err(|error| failed("write to", &self.path, error))?;
        }
        self.append(&missing)
    }

    fn look_for<'a>(&self, messages: &'a [Message]) -> io::Result<LogContent<'a>> {
        let length = self.file.metadata()?.len();
        let mut missing: HashSet<&str> =
            messages.iter().map(|message| message.id.as_str()).collect();
        // The lines are made one after the other, so that they are not all in memory at the same
        // time.
        let lengths = || messages.iter().map(|message| line_of(message).len());
        let most = lengths().fold(MAX_FOREIGN, |most, length| most.saturating_add(length as u64));
        let longest = lengths().max().unwrap_or_default();
        let mut lines = LinesFromEnd::new(&self.file, length.saturating_sub(most)..length, longest);
        let mut torn = None;
        while let Some(line) = lines.next()? {
            if let Some(LineId { id }) =
                line.text.as_deref().and_then(|text| serde_json::from_slice(text).ok())
            {
                missing.remove(id.as_str());
            }
            torn.get_or_insert(line);
            if missing.is_empty() {
                break;
            }
        }
        Ok(LogContent { missing, length, torn: torn.unwrap_or_default() })
    }
}

/// The content of a file.
struct LogContent<'a> {
    /// The ids of messages that are not in it.
    missing: HashSet<&'a str>,
    /// In bytes.
    length: u64,
    /// The text after its last whole line.
    torn: LineFromEnd,
}

/// A line without its end.
#[derive(Default)]
struct LineFromEnd {
    /// In bytes.
    length: u64,
    /// `None` if it is longer than any line that is looked for, or was not read as a whole.
    text: Option<Vec<u8>>,
}

/// Reads lines from the end of a file, the last one first. The text after the last line end is the
/// first, even if it is empty.
struct LinesFromEnd<'a> {
    file: &'a File,
    /// The range that is not read yet, in bytes from the start of the file.
    unread: Range<u64>,
    /// The longest line whose text is kept, in bytes.
    longest: usize,
    /// The piece that was read last; a part of it may have been returned already.
    chunk: Vec<u8>,
    is_over: bool,
}

impl<'a> LinesFromEnd<'a> {
    /// Reads the part `unread` of the file.
    const fn new(file: &'a File, unread: Range<u64>, longest: usize) -> Self {
        Self { file, unread, longest, chunk: Vec::new(), is_over: false }
    }

    /// Returns the line before the last one; `None` at the start.
    fn next(&mut self) -> io::Result<Option<LineFromEnd>> {
        if self.is_over {
            return Ok(None);
        }
        let mut length = 0;
        // The text is collected backwards.
        let mut text = Some(Vec::new());
        loop {
            if self.chunk.is_empty() {
                if self.unread.is_empty() {
                    self.is_over = true;
                    // The line may have begun before.
                    text = text.filter(|_| self.unread.start == 0);
                    break;
                }
                self.read()?;
            }
            let line_end = self.chunk.iter().rposition(|&byte| byte == b'\n');
            let piece = &self.chunk[line_end.map_or(0, |at| at + 1)..];
            length += piece.len() as u64;
            text = text.filter(|text| text.len() + piece.len() <= self.longest);
            if let Some(text) = &mut text {
                text.extend(piece.iter().rev());
            }
            self.chunk.truncate(line_end.unwrap_or(0));
            if line_end.is_some() {
                break;
            }
        }
        if let Some(text) = &mut text {
            text.reverse();
        }
        Ok(Some(LineFromEnd { length, text }))
    }

    fn read(&mut self) -> io::Result<()> {
        let n =
            usize::try_from(self.unread.end - self.unread.start).unwrap_or(usize::MAX).min(CHUNK);
        self.chunk.resize(n, 0);
        self.unread.end -= n as u64;
        self.file.read_exact_at(&mut self.chunk, self.unread.end)
    }
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

/// Makes a `.gitignore` for everything in the folder, unless there is one: a chat must not get into a
/// commit by `git add .`. A chat is written all the same if that fails.
fn keep_out_of_commits(folder: &OwnedFd) {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if let Ok(file) = openat(folder, ".gitignore", flags, Mode::RUSR | Mode::WUSR) {
        let _ = File::from(file).write_all(b"*\n");
    }
}

fn line_of(message: &Message) -> Vec<u8> {
    let line = Line {
        id: message.id.as_str(),
        sender_id: message.sender_id(),
        content: &message.content,
        created_at: message.created_at,
        visible: message.is_visible,
        author: message.author.as_deref(),
    };
    let mut bytes = serde_json::to_vec(&line).expect("texts and a time are JSON");
    bytes.push(b'\n');
    bytes
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> ChatLogError {
    ChatLogError::Io { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
