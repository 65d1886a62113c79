//! Folders with many followers that share one [`Folders`]. The number of watchers of a user is
//! small (inotify(7): `max_user_instances`), and a follower must not keep another daemon of the
//! user from starting.
//!
//! A folder may have several followers. The kernel gives its watch one id for all of them.
//! Therefore the followers are counted, and the last one that leaves ends the watch.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{FolderChanges, Folders, WatchId};

use machine::locks::lock;

/// The shared watcher. It is made for the first follower and kept from then on. Clones are the same
/// one.
#[derive(Clone, Default)]
pub struct SharedFolders(Arc<Mutex<Option<Current>>>);

struct Current {
    watcher: Arc<SharedWatcher>,
    /// The task that hands out the news, aborted with this.
    _reading: JoinSet<()>,
}

struct SharedWatcher {
    folders: Folders,
    followed: Mutex<Followed>,
}

#[derive(Default)]
struct Followed {
    folders: HashMap<WatchId, Followers>,
    /// True if the watcher failed. It takes no more followers then.
    has_failed: bool,
}

struct Followers {
    n: usize,
    news: watch::Sender<()>,
}

/// One follower of a folder. Dropping it ends the following.
pub struct FollowedFolder {
    watcher: Arc<SharedWatcher>,
    id: WatchId,
    news: watch::Receiver<()>,
}

impl SharedFolders {
    /// Follows `dir`: files that grow, appear or are replaced, and the removal of the folder
    /// itself. It does not see earlier changes. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// Fails if the folder can't be watched.
    pub fn follow(&self, dir: &Path) -> io::Result<FollowedFolder> {
        let mut current = lock(&self.0);
        if let Some(Current { watcher, .. }) = &*current
            && let Some(followed) = watcher.follow(dir)?
        {
            return Ok(followed);
        }
        let watcher =
            Arc::new(SharedWatcher { folders: Folders::new()?, followed: Mutex::default() });
        let mut reading = JoinSet::new();
        reading.spawn(Arc::clone(&watcher).hand_out());
        *current = Some(Current { watcher: Arc::clone(&watcher), _reading: reading });
        watcher.follow(dir)?.ok_or_else(|| io::Error::other("the watcher failed at once"))
    }
}

impl SharedWatcher {
    /// Returns `None` if the watcher has failed.
    fn follow(self: &Arc<Self>, dir: &Path) -> io::Result<Option<FollowedFolder>> {
        // The lock is held over both steps, so that neither news nor the end of another follower
        // comes between them.
        let mut followed = lock(&self.followed);
        if followed.has_failed {
            return Ok(None);
        }
        let id = self.folders.watch_all(dir)?;
        let followers = followed
            .folders
            .entry(id)
            .or_insert_with(|| Followers { n: 0, news: watch::Sender::new(()) });
        followers.n += 1;
        Ok(Some(FollowedFolder { watcher: Arc::clone(self), id, news: followers.news.subscribe() }))
    }

    /// Wakes the followers of each folder that there is news of.
    async fn hand_out(self: Arc<Self>) {
        loop {
            let seen = self.folders.seen().await;
            let mut followed = lock(&self.followed);
            match seen {
                Ok(FolderChanges::Folders(ids)) => {
                    for followers in ids.iter().filter_map(|id| followed.folders.get(id)) {
                        followers.news.send_replace(());
                    }
                }
                Ok(FolderChanges::Anything) => {
                    for followers in followed.folders.values() {
                        followers.news.send_replace(());
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "could not read the events of the watched folders");
                    *followed = Followed { has_failed: true, ..Followed::default() };
                    return;
                }
            }
        }
    }
}

impl FollowedFolder {
    /// Waits until something happened since the last call. Cancel-safe.
    ///
    /// # Errors
    /// If the folder is not watched any more.
    pub async fn stirred(&mut self) -> io::Result<()> {
        self.news
            .changed()
            .await
            .map_err(|_| io::Error::other("the folder is not watched any more"))
    }
}

impl Drop for FollowedFolder {
    fn drop(&mut self) {
        let mut followed = lock(&self.watcher.followed);
        let Some(followers) = followed.folders.get_mut(&self.id) else {
            return;
        };
        followers.n -= 1;
        if followers.n == 0 {
            followed.folders.remove(&self.id);
            self.watcher.folders.unwatch(self.id);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;

    use super::*;

    async fn is_heard(follower: &mut FollowedFolder) -> bool {
        tokio::time::timeout(Duration::from_secs(20), follower.stirred())
            .await
            .is_ok_and(|stirred| stirred.is_ok())
    }

    fn n_watched(folders: &SharedFolders) -> usize {
        let current = lock(&folders.0);
        let watcher = Arc::clone(&current.as_ref().unwrap().watcher);
        lock(&watcher.followed).folders.len()
    }

    #[tokio::test]
    async fn followers_of_one_folder_leave_one_after_the_other() {
        let one = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let folders = SharedFolders::default();
        let (mut first, mut second) =
            (folders.follow(one.path()).unwrap(), folders.follow(one.path()).unwrap());
        let mut of_other = folders.follow(other.path()).unwrap();
        std::fs::write(one.path().join("file"), "a").unwrap();
        assert!(is_heard(&mut first).await && is_heard(&mut second).await);
        assert!(
            of_other.stirred().now_or_never().is_none(),
            "nothing happened in the other folder"
        );
        drop(first);
        // This consumes the rest of the first change.
        while second.stirred().now_or_never().is_some() {}
        std::fs::write(one.path().join("another"), "a").unwrap();
        assert!(is_heard(&mut second).await, "its watch stays while it follows");
        drop(second);
        std::fs::write(other.path().join("file"), "a").unwrap();
        assert!(is_heard(&mut of_other).await);
        drop(of_other);
        assert!(lock(&folders.0).is_some());
        let mut again = folders.follow(one.path()).unwrap();
        std::fs::write(one.path().join("file"), "b").unwrap();
        assert!(
            is_heard(&mut again).await,
            "a folder is watched again after its last follower left"
        );
    }

    #[tokio::test]
    async fn a_folder_that_goes_is_heard_of() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("dir");
        let moved = folder.path().join("moved");
        std::fs::create_dir(&dir).unwrap();
        let folders = SharedFolders::default();
        let mut follower = folders.follow(&dir).unwrap();
        std::fs::rename(&dir, &moved).unwrap();
        assert!(is_heard(&mut follower).await);
        std::fs::remove_dir(&moved).unwrap();
        assert!(is_heard(&mut follower).await);
        drop(follower);
        assert_eq!(n_watched(&folders), 0);
        assert!(folders.follow(&dir).is_err(), "there is no such folder");
    }

    #[tokio::test]
    async fn a_watcher_that_failed_is_replaced_for_the_next_follower() {
        let folder = tempfile::tempdir().unwrap();
        let folders = SharedFolders::default();
        let mut lost = folders.follow(folder.path()).unwrap();
        {
            let current = lock(&folders.0);
            *lock(&current.as_ref().unwrap().watcher.followed) =
                Followed { has_failed: true, ..Followed::default() };
        }
        assert!(lost.stirred().await.is_err());
        let mut next = folders.follow(folder.path()).unwrap();
        drop(lost);
        std::fs::write(folder.path().join("file"), "a").unwrap();
        assert!(
            is_heard(&mut next).await,
            "the end of a follower of the failed watcher is no concern of this one"
        );
    }
}
