//! Gives the coordinator's repositories of a project that belong to root to the keeper, as soon as
//! this machine has that account.
//!
//! A mark beside the repositories names the account until all of them are given. So the next step
//! on the project completes a handover that a crash has cut off.

use std::fmt::Display;
use std::fs::{File, Metadata};
use std::os::unix::fs::{MetadataExt as _, lchown};
use std::path::{Path, PathBuf};

use super::disk::n_free;
use super::lending::close;
use super::objects::names_in;
use super::rights::Owner;
use super::upgrade::replace_shared;
use super::{CheckoutError, KeepRepositories, LENT, Place, Result, blocking, write};
use machine::crash_point::{self, CrashPoint};
use machine::locks::lock;

/// The file of a project with the keeper, as `chown` takes it, while the handover goes on.
const HANDOVER: &str = "handover";

impl KeepRepositories {
    /// Gives the coordinator's repositories of a project to the keeper, if they belong to root and
    /// the keeper can reach them. Ends in the same state after a crash. The caller has the lock of
    /// the project.
    ///
    /// # Errors
    /// Nothing is lost then, and the next attempt goes on.
    pub(super) async fn give_to_keeper(&self, place: &Place) -> Result<()> {
        let is_given = place.keeper().is_some();
        if self.keeper.is_none() || is_given || lock(&self.not_given).contains(&place.project) {
            return Ok(());
        }
        let Some(keeper) = self.keeper_with_way()? else {
            return Ok(());
        };
        let here = place.clone();
        if let Some((path, reason)) = blocking(move || find_obstacle(&here, keeper)).await? {
            lock(&self.not_given).insert(place.project.clone());
            tracing::warn!(
                path = %path.display(),
                reason,
                "root keeps the coordinator's repositories of a project because of this entry; \
                 bring the content here in place of it, and restart the daemon"
            );
            return Ok(());
        }
        // This opens the folders on the way.
        if self.keeper_of(place)?.is_none() {
            return Ok(());
        }
        self.copy_linked_objects(place).await?;
        let project = place.project.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let here = place.clone();
        let given = blocking(move || hand_over(&here, keeper)).await;
        self.note_room(place, given.map_err(|error| self.disk.name_full_disk(error)))?;
        tracing::info!(
            project_id = %project,
            uid = keeper.uid,
            "the coordinator's repositories of a project belong to the keeper"
        );
        Ok(())
    }
}

/// Completes what [`KeepRepositories::give_to_keeper`] began before the daemon ended, so that root writes
/// nothing into what the keeper has already. The user in the mark gets the rest.
pub(super) async fn finish_handover(place: &Place) -> Result<()> {
    let mark = place.project.join(HANDOVER);
    if mark.symlink_metadata().is_err() {
        return Ok(());
    }
    let place = place.clone();
    blocking(move || {
        let text = std::fs::read_to_string(&mark).map_err(CheckoutError::io("read", &mark))?;
        // Nothing has changed before the mark was whole.
        let Some(keeper) = keeper_in(&text).filter(|_| place.keep().is_dir()) else {
            return std::fs::remove_file(&mark).map_err(CheckoutError::io("remove", &mark));
        };
        if let Some((path, reason)) = find_obstacle(&place, keeper)? {
            return Err(CheckoutError::Refused(format!(
                "`{}` was replaced while it went to the user with id {}: it {reason}; put back \
                 what was there",
                path.display(),
                keeper.uid
            )));
        }
        hand_over(&place, keeper)
    })
    .await
}

/// Returns the user in the mark of a handover.
fn keeper_in(mark: &str) -> Option<Owner> {
    let (uid, gid) = mark.strip_suffix('\n')?.split_once(':')?;
    Some(Owner { uid: uid.parse().ok()?, gid: gid.parse().ok()? })
}

/// Writes the mark of a handover, which outlives a crash of the machine.
fn write_mark(mark: &Path, keeper: Owner) -> Result<()> {
    write(mark, format!("{}:{}\n", keeper.uid, keeper.gid))?;
    for path in [Some(mark), mark.parent()].into_iter().flatten() {
        let synced = File::open(path).and_then(|file| file.sync_all());
        synced.map_err(CheckoutError::io("write to the disk", path))?;
    }
    Ok(())
}

/// Gives the coordinator's repositories of a project to the keeper. From the first change of an
/// owner to the last one, the mark [`HANDOVER`] is beside them. The folder `keep.git` comes last:
/// until then root is the keeper. Blocks.
///
/// # Errors
/// `NoRoomForCopies`, before anything changes, for the files that have a second name. `Refused` if
/// an entry cannot be given. If others were given before it, the mark stays.
fn hand_over(place: &Place, keeper: Owner) -> Result<()> {
    let folders = given_folders(place);
    let mut shared = Vec::new();
    for folder in &folders {
        each_not_given(folder, keeper, &mut |path, found| {
            if found.is_file() && found.nlink() > 1 {
                shared.push((path.to_owned(), found.len()));
            }
            Ok(())
        })?;
    }
    replace_shared(&place.project, shared, || n_free(&place.project))?;
    let mark = place.project.join(HANDOVER);
    let mut has_begun = mark.symlink_metadata().is_ok();
    if !has_begun {
        write_mark(&mark, keeper)?;
    }
    for folder in &folders {
        each_not_given(folder, keeper, &mut |path, found| {
            // The group of what is lent is that of its user. Old clones of root need that of the
            // keep repository.
            let gid = (found.gid() == 0 && path != place.keep()).then_some(keeper.gid);
            if let Err(error) = lchown(path, Some(keeper.uid), gid) {
                if !has_begun {
                    let _ = std::fs::remove_file(&mark);
                }
                return Err(refuse_entry(path, keeper, &error));
            }
            has_begun = true;
            crash_point::reach(CrashPoint::EntryHandedOver);
            Ok(())
        })?;
    }
    close(place)?;
    if place.keeper().is_none_or(|owner| owner.uid != keeper.uid) {
        return Err(refuse_entry(&place.keep(), keeper, &"its owner stayed the same"));
    }
    std::fs::remove_file(&mark).map_err(CheckoutError::io("remove", &mark))
}

/// Returns the error for an entry that cannot be given to the keeper.
fn refuse_entry(path: &Path, keeper: Owner, error: &dyn Display) -> CheckoutError {
    CheckoutError::Refused(format!(
        "`{}` cannot be given to the user with id {}: {error}; remove what prevents it, such as \
         `chattr +i`",
        path.display(),
        keeper.uid
    ))
}

/// Returns the folders that the keeper gets, the keep repository as the last one.
fn given_folders(place: &Place) -> Vec<PathBuf> {
    let lent = names_in(&place.project).into_iter().filter(|name| name.starts_with(LENT));
    lent.map(|name| place.project.join(name)).chain([place.keep()]).collect()
}

/// Returns an entry of what is to go to the keeper that leads to something elsewhere, and what it
/// is. Blocks.
fn find_obstacle(place: &Place, keeper: Owner) -> Result<Option<(PathBuf, &'static str)>> {
    let project = &place.project;
    let disk = project.metadata().map_err(CheckoutError::io("read", project))?.dev();
    let mut obstacle = None;
    for folder in given_folders(place) {
        let alternates = folder.join("objects/info/alternates");
        each_not_given(&folder, keeper, &mut |path, found| {
            let reason = if !found.is_dir() && !found.is_file() {
                "is neither a folder nor a regular file"
            } else if found.is_dir() && found.dev() != disk {
                "is on another disk than the folder of the project"
            } else if path == alternates && found.len() > 0 {
                "names other folders with objects"
            } else {
                return Ok(());
            };
            obstacle = Some((path.to_owned(), reason));
            Ok(())
        })?;
    }
    Ok(obstacle)
}

/// Calls `work` with each entry that the keeper does not have, a folder after all that is in it.
fn each_not_given(
    path: &Path,
    keeper: Owner,
    work: &mut dyn FnMut(&Path, &Metadata) -> Result<()>,
) -> Result<()> {
    let found = path.symlink_metadata().map_err(CheckoutError::io("read", path))?;
    if found.uid() == keeper.uid {
        return Ok(());
    }
    if found.is_dir() {
        for entry in path.read_dir().map_err(CheckoutError::io("read", path))? {
            let entry = entry.map_err(CheckoutError::io("read", path))?;
            each_not_given(&entry.path(), keeper, work)?;
        }
    }
    work(path, &found)
}

#[cfg(test)]
mod tests;
