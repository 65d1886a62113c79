//! Hears that a file that was read is another now.
//!
//! Folders are watched, not files: editors write a new file and rename it over the old one, and a link may be turned to another
//! target. Events say little; whether anything is different is seen by the files' marks. Knows nothing of what is in them.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use crate::folder_watch::{Folders, WatchId};

/// After an event, until nothing more has happened for that long: editors take several steps.
const QUIET: Duration = Duration::from_millis(200);
/// In a folder that is never quiet, at most.
const LONGEST_STIR: Duration = Duration::from_secs(2);

/// What tells a file from its successor; `None` where there is none.
type Mark = Option<(u64, u64, u64, i64, i64)>;

/// Some files, and the folders that they and their links' targets are in.
pub(super) struct WatchedFiles {
    folders: Option<Folders>,
    watched: BTreeMap<PathBuf, WatchId>,
    marks: BTreeMap<PathBuf, Mark>,
    /// Something happened, and wasn't looked into yet.
    is_stirred: bool,
}

impl WatchedFiles {
    /// Must be called within a tokio runtime.
    pub(super) fn new() -> Self {
        let folders = Folders::new().inspect_err(|error| {
            tracing::warn!(%error, "changes of the configuration are not heard of; SIGHUP and `reload` tell");
        });
        Self {
            folders: folders.ok(),
            watched: BTreeMap::new(),
            marks: BTreeMap::new(),
            is_stirred: false,
        }
    }

    /// Watches these and no others. They are as they are now: read them afterwards.
    pub(super) fn follow(&mut self, files: impl IntoIterator<Item = PathBuf>) {
        self.marks = files.into_iter().map(|file| (file.clone(), mark_of(&file))).collect();
        self.is_stirred = false;
        self.watch_folders();
    }

    /// Watches these and no others, wherever they link to by now. Those that were followed are compared with what they were then.
    pub(super) fn go_on_with(&mut self, files: impl IntoIterator<Item = PathBuf>) {
        let mut before = std::mem::take(&mut self.marks);
        let marked = |file: PathBuf| {
            let mark = before.remove(&file).unwrap_or_else(|| mark_of(&file));
            (file, mark)
        };
        self.marks = files.into_iter().map(marked).collect();
        self.watch_folders();
    }

    fn watch_folders(&mut self) {
        let Some(folders) = &self.folders else { return };
        let mut before = std::mem::take(&mut self.watched);
        for folder in self.marks.keys().flat_map(|file| folders_of(file)) {
            before.remove(&folder);
            // Also one that is watched already: another folder may have its name now.
            match folders.watch_files(&folder) {
                Ok(id) => {
                    self.watched.insert(folder, id);
                }
                Err(error) => {
                    tracing::warn!(
                        %error, folder = %folder.display(),
                        "changes in the folder of the configuration are not heard of; SIGHUP and `reload` tell"
                    );
                }
            }
        }
        for id in before.into_values() {
            folders.unwatch(id);
        }
    }

    /// Returns when one of them is another than when it was followed. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        loop {
            let Some(folders) = &self.folders else {
                return std::future::pending().await;
            };
            if !self.is_stirred {
                if let Err(error) = folders.seen().await {
                    tracing::warn!(%error, "changes of the configuration are not heard of any more; SIGHUP and `reload` tell");
                    self.folders = None;
                    continue;
                }
                self.is_stirred = true;
            }
            let at_last = Instant::now() + LONGEST_STIR;
            while let Ok(Ok(Ok(_))) = timeout_at(at_last, timeout(QUIET, folders.seen())).await {}
            self.is_stirred = false;
            if self.marks.iter().any(|(file, mark)| mark_of(file) != *mark) {
                return;
            }
        }
    }
}

fn mark_of(file: &Path) -> Mark {
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec()))
}

/// Where the file is, and where what it links to is.
fn folders_of(file: &Path) -> Vec<PathBuf> {
    let target = std::fs::canonicalize(file).ok();
    let folders = [Some(file), target.as_deref()].into_iter().flatten().filter_map(Path::parent);
    folders.map(Path::to_owned).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use std::fs;

    async fn is_heard(files: &mut WatchedFiles) -> bool {
        timeout(Duration::from_secs(20), files.changed()).await.is_ok()
    }

    #[tokio::test]
    async fn a_file_is_heard_of_however_it_changes() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (file, target) = (folder.path().join("config"), elsewhere.path().join("config"));
        let mut files = WatchedFiles::new();
        let mut follow = || files.follow([file.clone()]);
        follow();
        let changes: [(&str, &dyn Fn()); 6] = [
            ("it comes", &|| fs::write(&file, "a").unwrap()),
            ("it is written", &|| fs::write(&file, "ab").unwrap()),
            ("it is replaced, in several steps", &|| {
                fs::rename(&file, folder.path().join("config~")).unwrap();
                fs::write(folder.path().join("new"), "cd").unwrap();
                fs::rename(folder.path().join("new"), &file).unwrap();
            }),
            ("it becomes a link", &|| {
                fs::write(&target, "e").unwrap();
                fs::remove_file(&file).unwrap();
                std::os::unix::fs::symlink(&target, &file).unwrap();
            }),
            ("its target is written", &|| fs::write(&target, "efg").unwrap()),
            ("it goes", &|| fs::remove_file(&file).unwrap()),
        ];
        for (change, make) in changes {
            make();
            assert!(is_heard(&mut files).await, "{change}");
            files.follow([file.clone()]);
        }
    }

    #[tokio::test]
    async fn what_happens_beside_it_is_nothing_and_what_was_half_heard_is_not_lost() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        fs::write(&file, "a").unwrap();
        let mut files = WatchedFiles::new();
        files.follow([file.clone()]);
        fs::write(folder.path().join("other"), "b").unwrap();
        assert!(timeout(QUIET * 2, files.changed()).await.is_err());
        fs::write(&file, "ab").unwrap();
        // Given up while it waits for quiet.
        assert!(timeout(QUIET / 4, files.changed()).await.is_err());
        assert!(is_heard(&mut files).await);
    }
}
