//! The JSON files of an instance folder. Each has a `version`. Each is replaced as a whole, so that
//! a reader sees the old one or the new one.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::clock::{BootInstant, MonotonicInstant, wall_clock};
use crate::sys;
use crate::sys::regular_file;
use domain::instance::{Condition, ExitHint};
use domain::launch::{ProcessEnd, ReportResult, StopReason, shortened};
use domain::{InstanceKey, LaunchId, RunAs, Timestamp, TranscriptSpec};

/// The version that this program writes, and the newest that it reads.
const VERSION: u32 = 1;
/// The space reserved for each record that must not be lost to a full disk, in bytes.
const RESERVED: u64 = 4096;
/// The longest text that is kept of a failed start, in characters, so that the record fits into the
/// reserved space.
const MAX_FAILURE_TEXT: usize = 500;

/// A kind of record file.
pub trait Record: Serialize + DeserializeOwned {
    const FILE: &'static str;

    /// Returns the name of the file that is written first, and then renamed.
    fn draft(&self) -> &'static str;
}

/// `spec.json`: the program to run, without values that could be secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    pub launch_id: LaunchId,
    #[serde(flatten)]
    pub key: InstanceKey,
    pub program: PathBuf,
    /// The names of the variables, without values.
    pub environment: Vec<String>,
    pub working_directory: PathBuf,
    pub fuse_boottime_ms: BootInstant,
    /// The folder of its files, if that is not in this folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<PathBuf>,
    /// The control group of its tree, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
    pub created_at: Timestamp,
}

impl Record for Spec {
    const FILE: &'static str = "spec.json";

    fn draft(&self) -> &'static str {
        ".spec.json"
    }
}

/// `conversation.json`: the transcript that the agent's CLI keeps, as it was before the process
/// existed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptConversation {
    /// The conversation gets the id that the CLI tells, if the arguments have none.
    #[serde(flatten)]
    pub spec: TranscriptSpec,
    /// The transcript of that conversation, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transcript: Option<TranscriptBefore>,
    /// The user that the transcript belongs to, if it is not the daemon's own user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as: Option<RunAs>,
}

/// A transcript before a process appended to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranscriptBefore {
    /// The path from the folder of the CLI.
    pub path: PathBuf,
    /// The length, in bytes.
    pub length: u64,
}

impl Record for KeptConversation {
    const FILE: &'static str = "conversation.json";

    fn draft(&self) -> &'static str {
        ".conversation.json"
    }
}

/// `started.json`: the agent's process exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The pid, which is also the id of its process group.
    pub pid: i32,
    /// The start time of that process in clock ticks since boot. Together with the pid it
    /// identifies the process until the next boot.
    pub start_ticks: u64,
    pub started_at: Timestamp,
    /// The moment on the clock by which runs are measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_monotonic_ms: Option<MonotonicInstant>,
}

impl Record for Started {
    const FILE: &'static str = "started.json";

    fn draft(&self) -> &'static str {
        STARTED_DRAFT
    }
}

/// `stop.json`: the agent is to end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    pub reason: StopReason,
    /// The time from TERM to KILL.
    pub timeout_ms: u64,
}

impl Stop {
    pub fn new(reason: StopReason, timeout: Duration) -> Self {
        Self { reason, timeout_ms: domain::time::millis(timeout) }
    }

    pub const fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}

impl Record for Stop {
    const FILE: &'static str = "stop.json";

    fn draft(&self) -> &'static str {
        STOP_DRAFT
    }
}

impl Record for Condition {
    const FILE: &'static str = "condition.json";

    fn draft(&self) -> &'static str {
        ".condition.json"
    }
}

/// The stage of the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitState {
    /// The leader is gone; something of its tree may live.
    Exited,
    /// The tree is empty; nothing more will be written.
    Ended,
}

/// `exit.json`: the end of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub state: ExitState,
    pub end: ProcessEnd,
    #[serde(default)]
    pub pid: Option<i32>,
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// The time when the leader was gone, or when the start failed.
    pub exited_at: Timestamp,
    /// The time when the tree was empty.
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    /// The reason for which it was stopped, if it was.
    #[serde(default)]
    pub stop: Option<StopReason>,
    /// The number of processes that outlived the leader.
    #[serde(default)]
    pub n_leaked: u32,
    #[serde(default)]
    pub has_dumped_core: bool,
    /// It was killed, but not by its shim: by the kernel, for want of memory, or by another
    /// process.
    #[serde(default)]
    pub was_killed_by_others: bool,
    /// The number of processes of its tree that the kernel killed for want of memory; counted if
    /// its control group limits memory.
    #[serde(default)]
    pub n_oom_kills: u32,
    /// The number of output lines that could not be written.
    #[serde(default)]
    pub n_dropped_lines: u64,
}

/// `report.json`: the last report of the agent, which found no server. The agent leaves it in its
/// folder for temporary files. It has the token of the session, so it has no `Debug`.
#[derive(Serialize, Deserialize)]
pub struct KeptReport {
    pub session_token: String,
    pub result: ReportResult,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_steps: Option<String>,
}

impl Record for KeptReport {
    const FILE: &'static str = "report.json";

    fn draft(&self) -> &'static str {
        ".report.json"
    }
}

impl Exit {
    /// Makes the record of an agent that never ran.
    pub fn without_agent(end: ProcessEnd, at: Timestamp) -> Self {
        let end = match end {
            ProcessEnd::StartFailed(text) => {
                ProcessEnd::StartFailed(shortened(&text, MAX_FAILURE_TEXT))
            }
            end => end,
        };
        Self {
            state: ExitState::Ended,
            end,
            pid: None,
            started_at: None,
            exited_at: at,
            ended_at: Some(at),
            stop: None,
            n_leaked: 0,
            has_dumped_core: false,
            was_killed_by_others: false,
            n_oom_kills: 0,
            n_dropped_lines: 0,
        }
    }
}

impl Exit {
    /// Returns the facts that deserve mention beside the exit status.
    pub fn hints(&self) -> Vec<ExitHint> {
        let hints = [
            (self.n_oom_kills > 0, ExitHint::OutOfMemory),
            (self.n_oom_kills == 0 && self.was_killed_by_others, ExitHint::KilledFromOutside),
            (self.has_dumped_core, ExitHint::CoreDumped),
        ];
        hints.into_iter().filter_map(|(is_so, hint)| is_so.then_some(hint)).collect()
    }
}

impl Record for Exit {
    const FILE: &'static str = "exit.json";

    fn draft(&self) -> &'static str {
        match self.state {
            ExitState::Exited => EXITED_DRAFT,
            ExitState::Ended => ENDED_DRAFT,
        }
    }
}

const STARTED_DRAFT: &str = ".started.json";
const STOP_DRAFT: &str = ".stop.json";
const EXITED_DRAFT: &str = ".exited.json";
const ENDED_DRAFT: &str = ".ended.json";

/// The reason why a file of an instance folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("could not read `{}`", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}` is damaged", .path.display())]
    Damaged { path: PathBuf, source: serde_json::Error },
    #[error("`{}` was written by a newer version of this program (format {version})", .path.display())]
    Newer { path: PathBuf, version: u32 },
}

impl RecordError {
    /// Returns whether reading the file again later cannot help, because it is not a usable record.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Read { source, .. } => regular_file::is_lasting(source),
            Self::Damaged { .. } | Self::Newer { .. } => true,
        }
    }
}

#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}

#[derive(Serialize)]
struct Versioned<'a, T> {
    version: u32,
    #[serde(flatten)]
    record: &'a T,
}

/// Reads the record of this kind in `dir`; `None` if none was written yet.
pub fn read<T: Record>(dir: &Path) -> Result<Option<T>, RecordError> {
    let path = dir.join(T::FILE);
    let text = match regular_file::read_small(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(RecordError::Read { path, source }),
    };
    match serde_json::from_slice::<VersionOnly>(&text) {
        Ok(VersionOnly { version }) if version > VERSION => {
            return Err(RecordError::Newer { path, version });
        }
        Ok(_) => {}
        Err(source) => return Err(RecordError::Damaged { path, source }),
    }
    serde_json::from_slice(&text).map(Some).map_err(|source| RecordError::Damaged { path, source })
}

/// Writes or replaces the record of this kind in `dir`.
pub fn write<T: Record>(dir: &Path, record: &T) -> io::Result<()> {
    let draft = write_draft(dir, record)?;
    let path = dir.join(T::FILE);
    match std::fs::rename(&draft, &path) {
        // A rename replaces anything but a folder.
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            set_aside(&path)?;
            std::fs::rename(draft, path)
        }
        renamed => renamed,
    }
}

/// Writes the record unless there is one of its kind; `false` if there was.
pub fn write_first<T: Record>(dir: &Path, record: &T) -> io::Result<bool> {
    let draft = write_draft(dir, record)?;
    match rustix::fs::renameat_with(CWD, &draft, CWD, dir.join(T::FILE), RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::EXIST) => std::fs::remove_file(draft).map(|()| false),
        Err(error) => Err(error.into()),
    }
}

fn write_draft<T: Record>(dir: &Path, record: &T) -> io::Result<PathBuf> {
    let mut text = serde_json::to_vec(&Versioned { version: VERSION, record })?;
    text.push(b'\n');
    let draft = dir.join(record.draft());
    let mut file = open_draft(&draft)?;
    file.write_all(&text)?;
    // A draft that an earlier writer left behind may be longer. Truncating first would give back
    // the reserved space.
    if file.metadata()?.len() > text.len() as u64 {
        file.set_len(text.len() as u64)?;
    }
    Ok(draft)
}

fn open_draft(path: &Path) -> io::Result<File> {
    match regular_file::open_or_make(path) {
        // Another entry was put in its place.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            set_aside(path)?;
            regular_file::open_or_make(path)
        }
        opened => opened,
    }
}

/// Reserves space for the records that must always be written, so that a full disk loses no exit
/// and no reason of a stop.
pub fn reserve(dir: &Path) -> io::Result<()> {
    for name in [STARTED_DRAFT, STOP_DRAFT, EXITED_DRAFT, ENDED_DRAFT] {
        sys::files::reserve(&open_draft(&dir.join(name))?, RESERVED)?;
    }
    Ok(())
}

/// Renames an unusable file to `<name>.corrupt-<time>` and returns its new path.
pub fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".corrupt-{}", wall_clock().as_millis()));
    let aside = PathBuf::from(name);
    std::fs::rename(path, &aside).map(|()| aside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::cli_lines::kept::{Asked, Keeper};
    use domain::launch::ExitStatus;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        reserve(dir.path()).unwrap();
        assert!(read::<Exit>(dir.path()).unwrap().is_none());
        let exit = Exit {
            pid: Some(7),
            n_leaked: 2,
            ..Exit::without_agent(
                ProcessEnd::Exited(ExitStatus { exit_code: Some(3), signal: None }),
                wall_clock(),
            )
        };
        write(dir.path(), &Exit { state: ExitState::Exited, ..exit.clone() }).unwrap();
        write(dir.path(), &exit).unwrap();
        assert_eq!(read::<Exit>(dir.path()).unwrap(), Some(exit));
    }

    /// A shim and the daemon that adopts it may be of different versions.
    #[test]
    fn an_end_has_the_same_form_in_all_versions() {
        let exited = ExitStatus { exit_code: Some(3), signal: None };
        let forms = [
            (ProcessEnd::Exited(exited), r#"{"exited":{"exit_code":3}}"#),
            (ProcessEnd::StartFailed("no file".to_owned()), r#"{"start_failed":"no file"}"#),
            (ProcessEnd::StartDeadlinePassed, r#""fuse_burnt""#),
            (ProcessEnd::Lost, r#""lost""#),
        ];
        for (end, form) in forms {
            assert_eq!(serde_json::to_string(&end).unwrap(), form);
            assert_eq!(serde_json::from_str::<ProcessEnd>(form).unwrap(), end);
        }
    }

    /// The coordinator that adopts an agent may be of another version than the one that started it.
    #[test]
    fn a_kept_conversation_has_the_same_form_in_all_versions() {
        let asked = Asked { conversation: Some("c0ffee00".to_owned()), is_resumed: true };
        let named = r#""conversation":"c0ffee00","is_resumed":true"#;
        for (asked, form) in [(asked, named), (Asked::default(), r#""is_resumed":false"#)] {
            let form = format!(r#"{{"keeper":"qwen","folder":"/q",{form}}}"#);
            let spec = TranscriptSpec { keeper: Keeper::Qwen, folder: "/q".into(), asked };
            let kept = KeptConversation { spec, transcript: None, run_as: None };
            assert_eq!(serde_json::to_string(&kept).unwrap(), form);
            assert_eq!(serde_json::from_str::<KeptConversation>(&form).unwrap(), kept);
        }
        let shortest = r#"{"version":1,"keeper":"qwen","folder":"/q"}"#;
        let kept: KeptConversation = serde_json::from_str(shortest).unwrap();
        assert_eq!(kept.spec.asked, Asked::default());
    }

    /// Checks the hints for an end with so many kills for want of memory, with its killer, and with
    /// or without a core dump.
    #[track_caller]
    fn check_hints(
        n_oom_kills: u32,
        was_killed_by_others: bool,
        has_dumped_core: bool,
        expected: &[ExitHint],
    ) {
        let exit = Exit::without_agent(ProcessEnd::Lost, wall_clock());
        let exit = Exit { has_dumped_core, was_killed_by_others, n_oom_kills, ..exit };
        assert_eq!(exit.hints(), expected);
    }

    #[test]
    fn an_end_has_hints_of_what_its_status_does_not_tell() {
        use ExitHint::{CoreDumped, KilledFromOutside, OutOfMemory};
        check_hints(0, false, false, &[]);
        check_hints(0, true, false, &[KilledFromOutside]);
        check_hints(0, false, true, &[CoreDumped]);
        // The kernel does not count as an outside killer.
        check_hints(1, true, false, &[OutOfMemory]);
        // The kernel killed a tool of its tree; the leader ended by itself.
        check_hints(3, false, true, &[OutOfMemory, CoreDumped]);
    }

    #[test]
    fn a_longer_draft_of_an_earlier_writer_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(ENDED_DRAFT), "x".repeat(3000)).unwrap();
        let exit = Exit::without_agent(ProcessEnd::Lost, wall_clock());
        write(dir.path(), &exit).unwrap();
        assert_eq!(read::<Exit>(dir.path()).unwrap(), Some(exit));
    }

    #[test]
    fn the_first_stop_wins() {
        let dir = tempfile::tempdir().unwrap();
        let first = Stop::new(StopReason::Person, Duration::from_secs(9));
        assert!(write_first(dir.path(), &first).unwrap());
        assert!(
            !write_first(dir.path(), &Stop::new(StopReason::Shutdown, Duration::ZERO)).unwrap()
        );
        assert_eq!(read::<Stop>(dir.path()).unwrap(), Some(first));
    }

    #[test]
    fn garbage_and_newer_files_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(Exit::FILE);
        for garbage in ["", "{", "\0\0\0", "[1]", r#"{"version":1}"#, r#"{"state":"ended"}"#] {
            std::fs::write(&path, garbage).unwrap();
            assert!(
                matches!(read::<Exit>(dir.path()), Err(RecordError::Damaged { .. })),
                "{garbage:?}"
            );
        }
        std::fs::write(&path, r#"{"version":2,"anything":true}"#).unwrap();
        assert!(matches!(read::<Exit>(dir.path()), Err(RecordError::Newer { version: 2, .. })));
        let aside = set_aside(&path).unwrap();
        assert!(aside.exists() && !path.exists());
    }

    #[test]
    fn the_longest_failure_fits_into_the_reserved_space() {
        let text = "\u{1}\u{1F600}".repeat(5000);
        let exit = Exit::without_agent(ProcessEnd::StartFailed(text), wall_clock());
        let json = serde_json::to_vec(&Versioned { version: VERSION, record: &exit }).unwrap();
        assert!(json.len() as u64 <= RESERVED, "{}", json.len());
    }
}
