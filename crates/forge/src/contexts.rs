//! The folders of items: the records of the work on an item for people, also after its end.
//!
//! ```text
//! <state_dir>/contexts/{running,paused,completed}/<uuid>/
//!     metadata.json      the item, its agent, its launches
//!     task_state.json    since it was paused for the first time
//!     summary.md         the agent's summary of its work, if any
//!     logs/<launch id>/  the output, a folder for each launch
//! ```
//!
//! All of it can be made again from the store and the folders of instances, and no decision reads
//! it. A crash may follow each step; repeating all steps repairs the folder. This module knows no
//! forge. The outbox worker calls it, on a thread that may wait.

use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Value, json};

use domain::forge::{FolderPlace, ForgeItem, ForgeKind, ItemKey, ItemKind, ItemState};
use domain::id::{ItemId, LaunchId};
use domain::session::Execution;
use machine::instance_dir;
use machine::sys::regular_file;

const METADATA: &str = "metadata.json";
const TASK_STATE: &str = "task_state.json";
const SUMMARY: &str = "summary.md";
const LOGS: &str = "logs";

/// The folders of all items.
#[derive(Debug, Clone)]
pub struct Contexts {
    state_dir: PathBuf,
}

/// The facts about the work on an item.
#[derive(Debug, Clone)]
pub struct Context {
    pub item: ForgeItem,
    /// The `ai_type` of its agent; `None` for one that is deleted.
    pub provider: Option<String>,
    /// All launches that worked on it, the earliest first.
    pub launches: Vec<LaunchId>,
    /// The newest execution.
    pub last: Option<Execution>,
}

/// The reason why a folder is not complete.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    #[error("could not read `{}`", .path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("could not write `{}`", .path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("could not move `{}` to `{}`", .from.display(), .to.display())]
    Move {
        from: PathBuf,
        to: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl ContextError {
    fn write(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Write { path: path.to_owned(), source }
    }

    fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Read { path: path.to_owned(), source }
    }
}

impl Contexts {
    pub fn new(state_dir: &Path) -> Self {
        Self { state_dir: state_dir.to_owned() }
    }

    /// Returns the items whose folders are complete. Blocks.
    pub fn completed(&self) -> Vec<ItemId> {
        let folder = self.state_dir.join("contexts").join(FolderPlace::Completed.as_str());
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// Removes the folder of a completed item. A missing folder is not an error. Blocks.
    ///
    /// # Errors
    /// A file that could not be removed.
    pub fn remove_completed(&self, id: &ItemId) -> Result<(), ContextError> {
        let path = self.folder(FolderPlace::Completed, id);
        match fs::remove_dir_all(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(ContextError::Write { path, source })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Writes the facts into the folder of the item, and moves it to `place`. Blocks. Repeating it
    /// changes nothing.
    ///
    /// # Errors
    /// A file that could not be written or moved. Finished steps stay; the folder is at its old
    /// place, or at `place`.
    pub fn put(&self, place: FolderPlace, context: &Context) -> Result<(), ContextError> {
        let wanted = self.folder(place, &context.item.id);
        create_folders(wanted.parent().expect("it is in the folder of its place"))?;
        let folder = match self.all_of(&context.item.id).split_first() {
            None => {
                create_folders(&wanted)?;
                wanted.clone()
            }
            Some(((newest, _), others)) => {
                let newest = self.folder(*newest, &context.item.id);
                for (other, _) in others {
                    merge(&self.folder(*other, &context.item.id), &newest)?;
                }
                newest
            }
        };
        for launch in &context.launches {
            self.keep_logs(launch, &folder)?;
        }
        if let Some(summary) = summary(context) {
            write(&folder.join(SUMMARY), summary.as_bytes())?;
        }
        write_task_state(&folder, place, &context.item)?;
        write_json(&folder.join(METADATA), &metadata(context))?;
        if folder != wanted {
            let moved = fs::rename(&folder, &wanted);
            moved.map_err(|source| ContextError::Move { from: folder, to: wanted, source })?;
        }
        Ok(())
    }

    /// Returns the place of the folder of an item. Blocks.
    pub fn find(&self, id: &ItemId) -> Option<FolderPlace> {
        self.all_of(id).first().map(|(place, _)| *place)
    }

    fn folder(&self, place: FolderPlace, id: &ItemId) -> PathBuf {
        self.state_dir.join("contexts").join(place.as_str()).join(id.as_str())
    }

    /// Returns the places of the folder with their times, the newest first. More than one place
    /// comes from another program, because a move is atomic.
    fn all_of(&self, id: &ItemId) -> Vec<(FolderPlace, SystemTime)> {
        let written_at = |place| {
            let folder = self.folder(place, id);
            let file =
                fs::metadata(folder.join(METADATA)).or_else(|_| fs::metadata(&folder)).ok()?;
            Some((place, file.modified().unwrap_or(SystemTime::UNIX_EPOCH)))
        };
        let places = [FolderPlace::Running, FolderPlace::Paused, FolderPlace::Completed];
        let mut found: Vec<_> = places.into_iter().filter_map(written_at).collect();
        found.sort_by_key(|(_, written_at)| std::cmp::Reverse(*written_at));
        found
    }

    /// Links each output file of a launch into `folder`. A link also gets later output, and
    /// outlives the folder of the instance. If the folder of a launch is gone, only the earlier
    /// links remain.
    fn keep_logs(&self, launch: &LaunchId, folder: &Path) -> Result<(), ContextError> {
        let Some(instance) = instance_dir::find(&self.state_dir, launch) else {
            return Ok(());
        };
        let logs = folder.join(LOGS).join(launch.as_str());
        for file in instance_dir::output_files(&instance) {
            create_folders(&logs)?;
            let kept = logs.join(file.file_name().expect("it is a file in a folder"));
            match keep(&file, &kept) {
                // The file was rotated away, or its folder moved, a moment ago.
                Err(ContextError::Read { source, .. })
                    if source.kind() == io::ErrorKind::NotFound => {}
                kept => kept?,
            }
        }
        Ok(())
    }
}

/// Links `kept` to `file`, or copies it on another file system.
fn keep(file: &Path, kept: &Path) -> Result<(), ContextError> {
    let now = fs::metadata(file).map_err(ContextError::read(file))?;
    let before = fs::metadata(kept).ok();
    if before.as_ref().is_some_and(|before| (before.dev(), before.ino()) == (now.dev(), now.ino()))
    {
        return Ok(());
    }
    let draft = draft_of(kept);
    remove_if_there(&draft)?;
    if fs::hard_link(file, &draft).is_err() {
        let is_as_before =
            before.is_some_and(|before| before.len() == now.len() && before.mtime() >= now.mtime());
        if is_as_before {
            return Ok(());
        }
        let mut source = regular_file::open(file).map_err(ContextError::read(file))?;
        let mut target = regular_file::make_anew(&draft).map_err(ContextError::write(&draft))?;
        io::copy(&mut source, &mut target).map_err(ContextError::write(&draft))?;
    }
    fs::rename(&draft, kept).map_err(ContextError::write(kept))
}

/// Moves the entries that only `from` has to `to`, and removes `from`.
fn merge(from: &Path, to: &Path) -> Result<(), ContextError> {
    for entry in fs::read_dir(from).map_err(ContextError::read(from))? {
        let entry = entry.map_err(ContextError::read(from))?;
        let here = entry.path();
        let there = to.join(entry.file_name());
        if !there.exists() {
            let moved = fs::rename(&here, &there);
            moved.map_err(|source| ContextError::Move { from: here, to: there, source })?;
        } else if here.is_dir() && there.is_dir() {
            merge(&here, &there)?;
        } else if here.is_dir() {
            fs::remove_dir_all(&here).map_err(ContextError::write(&here))?;
        } else {
            fs::remove_file(&here).map_err(ContextError::write(&here))?;
        }
    }
    fs::remove_dir(from).map_err(ContextError::write(from))
}

/// Returns the key of an item as the files of a context contain it: with the owner, the repository
/// and the number.
fn task_key(key: &ItemKey) -> Value {
    let ItemKey { forge, host: _, repository, kind, number } = key;
    let in_github = |word: &str| {
        let (owner, repo) = repository.split_once('/').unwrap_or(("", repository));
        json!({ "type": word, "owner": owner, "repo": repo, "number": number })
    };
    // The project has its number or its path, as it is configured.
    let project =
        repository.parse::<u64>().map_or_else(|_| json!(repository), |number| json!(number));
    match (forge, kind) {
        (ForgeKind::GitHub, ItemKind::Issue) => in_github("github_issue"),
        (_, ItemKind::PullRequest) => in_github("github_pull_request"),
        (ForgeKind::GitLab, ItemKind::Issue) => {
            json!({ "type": "gitlab_issue", "project_id": project, "issue_iid": number })
        }
        (_, ItemKind::MergeRequest) => {
            json!({ "type": "gitlab_merge_request", "project_id": project, "mr_iid": number })
        }
    }
}

fn metadata(context: &Context) -> Value {
    let Context { item, provider, launches, last: _ } = context;
    json!({
        "uuid": item.id,
        "task_key": task_key(&item.key),
        "host": item.key.host,
        "title": item.title,
        "url": item.url,
        "state": item.state.as_str(),
        "cause": item.state.cause(),
        "created_at": item.created_at,
        "ended_at": item.ended_at,
        "task_id": item.task,
        "agent_id": item.agent,
        "project_id": item.project,
        "provider": provider,
        "launch_ids": launches,
    })
}

/// Writes the state of the task. Once it exists, the file stays with the folder, and shows the
/// later state.
fn write_task_state(
    folder: &Path,
    place: FolderPlace,
    item: &ForgeItem,
) -> Result<(), ContextError> {
    let path = folder.join(TASK_STATE);
    let former = match regular_file::read_small(&path) {
        Ok(text) => Some(serde_json::from_slice(&text).unwrap_or(Value::Null)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(source) => return Err(ContextError::Read { path, source }),
    };
    if former.is_none() && place != FolderPlace::Paused {
        return Ok(());
    }
    let paused_at = match &item.state {
        ItemState::Paused { since } => json!(since),
        _ => former.and_then(|former| former.get("paused_at").cloned()).unwrap_or_default(),
    };
    let state = json!({
        "task_key": task_key(&item.key),
        "uuid": item.id,
        "paused_at": paused_at,
        "status": item.state.as_str(),
        "resume_count": item.n_resumed,
        "last_error": item.last_error,
    });
    write_json(&path, &state)
}

/// Returns the agent's summary of its work; `None` if there is none.
fn summary(context: &Context) -> Option<String> {
    let last = context.last.as_ref()?;
    let parts = [
        ("Summary", &last.summary),
        ("Next steps", &last.next_steps),
        ("Progress", &last.progress),
        ("Findings", &last.findings),
    ];
    let said: Vec<String> = parts
        .into_iter()
        .filter_map(|(word, text)| Some((word, text.as_deref()?.trim())))
        .filter(|(_, text)| !text.is_empty())
        .map(|(word, text)| format!("\n## {word}\n\n{text}\n"))
        .collect();
    let ForgeItem { title, url, .. } = &context.item;
    (!said.is_empty()).then(|| format!("# {title}\n\n{url}\n{}", said.concat()))
}

fn write_json(path: &Path, value: &Value) -> Result<(), ContextError> {
    write(path, format!("{value:#}\n").as_bytes())
}

/// Replaces a file. Readers see the old file or the new one.
fn write(path: &Path, content: &[u8]) -> Result<(), ContextError> {
    if regular_file::read_small(path).is_ok_and(|former| former == content) {
        return Ok(());
    }
    let draft = draft_of(path);
    let written = regular_file::make_anew(&draft).and_then(|mut file| {
        file.write_all(content)?;
        // The data is synced before the rename, so that a power loss leaves one of the two files,
        // too.
        file.sync_data()
    });
    written.map_err(ContextError::write(path))?;
    fs::rename(&draft, path).map_err(ContextError::write(path))
}

fn draft_of(path: &Path) -> PathBuf {
    let name = path.file_name().expect("it names a file").to_string_lossy();
    path.with_file_name(format!(".{name}.new"))
}

fn remove_if_there(path: &Path) -> Result<(), ContextError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(ContextError::write(path)(error))
        }
        _ => Ok(()),
    }
}

fn create_folders(path: &Path) -> Result<(), ContextError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(ContextError::write(path))
}

#[cfg(test)]
mod tests;
