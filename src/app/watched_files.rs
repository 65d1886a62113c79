//! Reports when a file that was read has changed.
//!
//! It watches folders, not files: editors write a new file and rename it over the old one, and a
//! link may get another target. Events carry little information; the files' marks show whether a
//! file changed. This module does not know the files' contents.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{timeout, timeout_at};

use runtime::clock;
use runtime::folder_watch::{Folders, WatchId};

/// The time without events after which a change counts as complete: editors take several steps.
const QUIET: Duration = Duration::from_millis(200);
/// The longest wait in a folder that is never quiet.
const LONGEST_STIR: Duration = Duration::from_secs(2);

/// The values that distinguish a file from its successor; `None` if there is no file.
type Mark = Option<(u64, u64, u64, i64, i64)>;

/// Some files, with their folders and the folders of their links' targets.
pub(super) struct WatchedFiles {
    folders: Option<Folders>,
    watched: BTreeMap<PathBuf, WatchId>,
    marks: BTreeMap<PathBuf, Mark>,
    /// An event occurred that was not examined yet.
    is_stirred: bool,
}

impl WatchedFiles {
    /// Watches no files yet. Must be called within a tokio runtime.
    pub(super) fn new() -> Self {
        let folders = Folders::new().inspect_err(|error| {
            tracing::warn!(%error, "could not watch the configuration file; run `reload` after a change");
        });
        Self {
            folders: folders.ok(),
            watched: BTreeMap::new(),
            marks: BTreeMap::new(),
            is_stirred: false,
        }
    }

    /// Watches these files and no others, from their present state on. The caller reads them
    /// afterwards.
    pub(super) fn follow(&mut self, files: impl IntoIterator<Item = PathBuf>) {
        self.marks = files.into_iter().map(|file| (file.clone(), mark_of(&file))).collect();
        self.is_stirred = false;
        self.watch_folders();
    }

    /// Watches these files and no others, with the present targets of their links. Files that were
    /// watched before keep their marks.
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
            // A folder that is watched already is watched anew: another folder may have its name
            // now.
            match folders.watch_files(&folder) {
                Ok(id) => {
                    self.watched.insert(folder, id);
                }
                Err(error) => {
                    tracing::warn!(
                        %error, folder = %folder.display(),
                        "could not watch the folder of the configuration; run `reload` after a change"
                    );
                }
            }
        }
        for id in before.into_values() {
            folders.unwatch(id);
        }
    }

    /// Returns when one of the files has changed since it was first watched. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        loop {
            let Some(folders) = &self.folders else {
                return std::future::pending().await;
            };
            if !self.is_stirred {
                if let Err(error) = folders.seen().await {
                    tracing::warn!(%error, "lost the watch of the configuration file; run `reload` after a change");
                    self.folders = None;
                    continue;
                }
                self.is_stirred = true;
            }
            let at_last = clock::now() + LONGEST_STIR;
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

/// Returns the folder of the file, and the folder of its link's target.
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
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        let target = elsewhere.path().join("config");
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
        // The call is cancelled while it waits for quiet.
        assert!(timeout(QUIET / 4, files.changed()).await.is_err());
        assert!(is_heard(&mut files).await);
    }
}
