//! Finds the merges whose files could not be put back, until a person has dealt with them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::record::Record;
use crate::objects::names_in;
use crate::source::Source;
use crate::{Result, SourceTrees};
use domain::workspace::{LeftMerge, still_left};
use domain::{ProjectId, Timestamp};
use machine::locks::lock;
use runtime::clock;

/// The time for which an answer counts, because inboxes are read often.
const COUNTS_FOR: Duration = Duration::from_secs(2);
/// The longest look at one repository.
const LONGEST_LOOK: Duration = Duration::from_secs(5);

/// The last answer with its time.
pub(crate) type LastLook = Option<(Instant, Vec<LeftMerge>)>;

impl SourceTrees {
    /// Returns the merges that could not be undone, as far as their folders are there. One is
    /// forgotten when no file of its result differs from the commit that is checked out in the
    /// repository.
    pub async fn left_merges(&self) -> Vec<LeftMerge> {
        let mut last = self.left.lock().await;
        if let Some((at, found)) = last.as_ref()
            && at.elapsed() < COUNTS_FOR
        {
            return found.clone();
        }
        let mut found = Vec::new();
        let names = names_in(&self.places.root).into_iter();
        for project in names.filter_map(|name| name.parse::<ProjectId>().ok()) {
            for path in Record::list_left(&self.places.root.join(project.as_str())) {
                found.extend(self.look_at_left(&project, &path).await);
            }
        }
        *last = Some((clock::now(), found.clone()));
        found
    }

    /// Returns the merge of a record that was set aside; `None` if a person has dealt with it, or
    /// while its folder is gone. It may come back, as after a mount.
    async fn look_at_left(&self, project: &ProjectId, path: &Path) -> Option<LeftMerge> {
        let (workspace, record) = Record::read_left(path)?;
        let look = self.files_left(&record);
        // The folder may not answer, and git may not know them now.
        let files = match tokio::time::timeout(LONGEST_LOOK, look).await {
            Ok(Ok(None)) => return None,
            Ok(Ok(files)) => files,
            Ok(Err(_)) | Err(_) => None,
        };
        if files.as_ref().is_some_and(Vec::is_empty) && Record::remove(path).is_ok() {
            tracing::info!(path = %path.display(), "interrupted merge was dealt with");
            return None;
        }
        let written = path.metadata().and_then(|found| found.modified()).ok()?;
        let written = written.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let since = i64::try_from(written.as_millis()).unwrap_or(i64::MAX);
        Some(LeftMerge {
            workspace,
            project: project.clone(),
            folder: record.changed_folder().to_owned(),
            branch: record.branch,
            files: files.unwrap_or_default(),
            since: Timestamp::from_millis(since),
        })
    }

    /// Returns the files of the result that differ from the commit that is checked out now; `None`
    /// if the folder of the merge is gone.
    async fn files_left(&self, record: &Record) -> Result<Option<Vec<String>>> {
        let changed = record.changed_folder().to_owned();
        if !self.is_there(changed, |folder| folder.try_exists().unwrap_or(true)).await {
            return Ok(None);
        }
        let Some(folder) = &record.folder else { return Ok(Some(Vec::new())) };
        let source = Source::find_any(&self.git, &record.directory).await?;
        let of_result = self.planned(&source, folder, record, "--diff-filter=ADMT").await?;
        let now = Record { old: "HEAD".to_owned(), ..record.clone() };
        let mut differing = self.differing(&source, folder, &now.old).await?;
        differing.extend(self.unknown_in_the_way(&source, folder, &now).await?);
        Ok(Some(still_left(&of_result, differing)))
    }

    /// Returns what `look` finds at `folder`. A file system that does not answer holds one thread,
    /// and one that does not answer for [`LONGEST_LOOK`] is given up by the caller.
    async fn is_there(
        &self,
        folder: PathBuf,
        look: impl FnOnce(&Path) -> bool + Send + 'static,
    ) -> bool {
        let single = Arc::clone(lock(&self.folder_looks).entry(folder.clone()).or_default());
        let is_there = single.find(LONGEST_LOOK * 2, {
            let folder = folder.clone();
            move || look(&folder)
        });
        let is_there = is_there.await;
        lock(&self.folder_looks).remove(&folder);
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Checkouts;

    #[tokio::test]
    async fn a_folder_that_does_not_answer_is_asked_once() {
        let folder = tempfile::tempdir().unwrap();
        let checkouts = Checkouts::new(folder.path().to_owned());
        let away = folder.path().join("away");
        let (answer, waits) = std::sync::mpsc::channel::<()>();
        let brief = Duration::from_millis(10);
        let hangs = move |_: &Path| waits.recv().is_ok();
        let first = checkouts.trees.is_there(away.clone(), hangs);
        tokio::time::timeout(brief, first).await.unwrap_err();
        let again = checkouts.trees.is_there(away.clone(), |_| panic!("it is asked again"));
        tokio::time::timeout(brief, again).await.unwrap_err();
        answer.send(()).unwrap();
        assert!(checkouts.trees.is_there(away.clone(), |_| true).await);
        assert!(!checkouts.trees.is_there(away, |_| false).await, "it is asked anew");
    }
}
