//! Measures the disk space of all workspaces, and reserves some for keeping.
//!
//! A folder is measured when a step has changed it, or when its last measurement is old. Agents
//! write into their workspaces between two measurements, so the sum is not exact.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::objects::names_in;
use super::rights::{Owner, run_as};
use super::{CheckoutError, GitError, Result, WorkspacePlaces, blocking};
use domain::{ProjectId, WorkspaceId};
use machine::locks::lock;
use runtime::clock;

/// The age of a measurement after which a folder is measured again, if there is time.
const OLD: Duration = Duration::from_mins(1);
/// The time for measuring folders again.
const LONGEST_AGAIN: Duration = Duration::from_secs(2);
/// The number of workspaces that people are shown.
const N_LARGEST: usize = 5;
/// The size of the file that is given up when the disk is full, so that work can be kept.
const RESERVE: u64 = 256 << 20;
/// The free space below which a failure of git counts as one of a full disk.
const ALMOST_NOTHING: u64 = 1 << 20;
/// The free space that the file system must have for each byte of the reserve.
const FREE_PER_RESERVED: u64 = 64;

/// The disk space of all workspaces and keep repositories, as it was measured last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    pub n_bytes: u64,
    /// The part of the keep repositories.
    pub n_kept_bytes: u64,
    /// The largest workspaces with their sizes, the largest first.
    pub largest: Vec<(WorkspaceId, u64)>,
}

/// The sizes of the folders of projects, as they were measured last.
#[derive(Debug, Default)]
struct Meter {
    folders: BTreeMap<PathBuf, Measured>,
    /// `None` before the first measurement.
    usage: Option<Usage>,
}

#[derive(Debug, Clone, Copy)]
struct Measured {
    at: Instant,
    n_bytes: u64,
}

/// The disk space that the workspaces of this host use.
#[derive(Debug)]
pub struct Disk {
    places: WorkspacePlaces,
    meter: Mutex<Meter>,
    /// Held while folders are measured.
    measuring: AsyncMutex<()>,
}

impl Disk {
    pub(super) fn new(places: WorkspacePlaces) -> Self {
        Self { places, meter: Mutex::default(), measuring: AsyncMutex::default() }
    }

    /// Returns the disk space of all workspaces, as it was measured last.
    pub fn usage(&self) -> Option<Usage> {
        lock(&self.meter).usage.clone()
    }

    /// Measures what a step on a workspace has changed, if the other folders were measured before.
    ///
    /// # Errors
    /// A thread could not be used.
    pub async fn measure_changed(
        &self,
        project: &ProjectId,
        workspace: &WorkspaceId,
    ) -> Result<()> {
        let place = self.places.place(project, workspace);
        {
            let mut meter = lock(&self.meter);
            if meter.usage.is_none() {
                return Ok(());
            }
            meter.folders.retain(|path, _| *path != place.folder && *path != place.keep());
        }
        self.measure(None).await.map(drop)
    }

    /// Measures all workspaces, and returns whether they use less than `max_disk` bytes.
    ///
    /// # Errors
    /// A thread could not be used.
    pub async fn has_room(&self, max_disk: u64) -> Result<bool> {
        let usage = self.measure(Some(OLD)).await?;
        let root = self.places.root.clone();
        blocking(move || {
            reserve(&root);
            Ok(())
        })
        .await?;
        Ok(usage.n_bytes < max_disk)
    }

    /// Measures the folders that were not measured yet, and those with an older measurement.
    async fn measure(&self, older_than: Option<Duration>) -> Result<Usage> {
        // Steps run at the same time, and each folder is measured once.
        let _one_at_a_time = self.measuring.lock().await;
        let before = lock(&self.meter).folders.clone();
        let root = self.places.root.clone();
        let folders = blocking(move || Ok(measure(&root, &before, older_than))).await?;
        let usage = usage_of(&folders);
        *lock(&self.meter) = Meter { folders, usage: Some(usage.clone()) };
        Ok(usage)
    }

    /// Gives the reserve up if `error` came from a full disk. Returns whether that made room.
    pub fn give_up_reserve(&self, error: &CheckoutError) -> bool {
        self.is_disk_full(error) && std::fs::remove_file(reserve_in(&self.places.root)).is_ok()
    }

    /// Returns whether `error` came from a full disk. Git does not always say so.
    pub(super) fn is_disk_full(&self, error: &CheckoutError) -> bool {
        match error {
            CheckoutError::Io { source, .. } => is_full(source),
            CheckoutError::Git(GitError::Io(error)) => is_full(error),
            CheckoutError::Git(GitError::Failed { message, .. }) => {
                message.contains("No space left")
                    || message.contains("Disk quota exceeded")
                    || message.lines().any(is_short_write)
                    || n_free(&self.places.root).is_some_and(|n_free| n_free < ALMOST_NOTHING)
            }
            CheckoutError::DiskFull { .. } => true,
            CheckoutError::Submodule { source, .. } => self.is_disk_full(source),
            CheckoutError::OtherUser { .. }
            | CheckoutError::Git(_)
            | CheckoutError::Refused(_)
            | CheckoutError::Malformed(_)
            | CheckoutError::NoRoom(_)
            | CheckoutError::NoRoomForCopies { .. }
            | CheckoutError::Gone(_) => false,
        }
    }

    /// Says of an error that came from a full disk that it did. The caller asks before it removes
    /// the files that filled the disk.
    pub fn name_full_disk(&self, error: CheckoutError) -> CheckoutError {
        if matches!(error, CheckoutError::DiskFull { .. }) || !self.is_disk_full(&error) {
            return error;
        }
        CheckoutError::DiskFull { root: self.places.root.clone(), source: Box::new(error) }
    }
}

/// Returns the free space on the disk of a folder, in bytes.
pub(super) fn n_free(root: &Path) -> Option<u64> {
    let found = statvfs(root).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Returns whether git says that it could not write all of a file, without a reason. It has removed
/// the part that it could write, so that there may be space again.
fn is_short_write(line: &str) -> bool {
    line.starts_with("error: unable to write file ") && line.ends_with('\'')
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

fn reserve_in(root: &Path) -> PathBuf {
    root.join(".reserve")
}

/// Makes the reserve if the file system has much more free space. Without one, nothing is given up.
fn reserve(root: &Path) {
    let path = reserve_in(root);
    let n_free = n_free(root).unwrap_or(0);
    if n_free / FREE_PER_RESERVED < RESERVE || path.exists() {
        return;
    }
    let made =
        File::create(&path).map(|file| fallocate(&file, FallocateFlags::empty(), 0, RESERVE));
    // A part of it, or an empty file, is of no use.
    if !matches!(made, Ok(Ok(()))) {
        let _ = std::fs::remove_file(&path);
    }
}

/// Returns the folders of all projects with their sizes.
fn measure(
    root: &Path,
    before: &BTreeMap<PathBuf, Measured>,
    older_than: Option<Duration>,
) -> BTreeMap<PathBuf, Measured> {
    let began_at = clock::now();
    let mut folders = BTreeMap::new();
    for project in names_in(root).into_iter().map(|name| root.join(name)) {
        for folder in names_in(&project).into_iter().map(|name| project.join(name)) {
            let known = before.get(&folder).filter(|known| {
                let is_old = older_than.is_some_and(|age| began_at - known.at >= age);
                !is_old || clock::now() - began_at >= LONGEST_AGAIN
            });
            let measured = known.copied().unwrap_or_else(|| {
                let n_bytes = run_as(Owner::of(&folder), || Ok(size_of(&folder)));
                Measured { at: began_at, n_bytes: n_bytes.unwrap_or_default() }
            });
            folders.insert(folder, measured);
        }
    }
    folders
}

fn usage_of(folders: &BTreeMap<PathBuf, Measured>) -> Usage {
    let mut usage = Usage::default();
    for (path, Measured { n_bytes, .. }) in folders {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        usage.n_bytes += n_bytes;
        if name == "keep.git" {
            usage.n_kept_bytes += n_bytes;
        } else if let Some(id) =
            name.parse::<WorkspaceId>().ok().filter(|_| path.join("tree").is_dir())
        {
            usage.largest.push((id, *n_bytes));
        }
    }
    usage.largest.sort_by_key(|(_, n_bytes)| std::cmp::Reverse(*n_bytes));
    usage.largest.truncate(N_LARGEST);
    usage
}

/// Returns the space that a file, or a folder with all that is in it, uses. Follows no link. What
/// cannot be read counts as nothing.
fn size_of(path: &Path) -> u64 {
    let Ok(found) = path.symlink_metadata() else {
        return 0;
    };
    let mut sum = found.blocks() * 512;
    if found.is_dir() {
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            sum += size_of(&entry.path());
        }
    }
    sum
}
