//! Removes the files of a workspace whose content is kept.

use super::rights::blocking_as;
use super::walk::walk;
use super::{
    CheckoutError, Clones, KeepPolicy, Place, Result, WorkspacePlaces, blocking, remove_folder,
    rename,
};
use domain::workspace::{Content, RemoveOrder};
use domain::{ProjectId, WorkspaceId};
use machine::crash_point::{self, CrashPoint};

/// The result of an attempt to remove a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    Removed,
    /// The files have changed since they were kept. They were kept again, and are still there.
    KeptAgain(Box<Content>),
}

impl Clones {
    /// Removes the files of a workspace if they are those that were kept. Files that have changed
    /// are kept again instead. A workspace that is gone already counts as removed.
    ///
    /// # Errors
    /// Something that cannot be read or removed. The rest stays, under its name or a name that
    /// begins with `.trash-` or `.gone-`.
    pub async fn remove(&self, order: &RemoveOrder, policy: &KeepPolicy) -> Result<Removal> {
        self.git.check().await?;
        self.places.take_back(&order.keep.project, &order.keep.id)?;
        let place = self.places.place(&order.keep.project, &order.keep.id);
        let folder = place.project.join(format!(".trash-{}", order.keep.id));
        let trash = Place { tree: folder.join("tree"), folder, ..place.clone() };
        let gone = place.project.join(format!(".gone-{}", order.keep.id));
        if place.folder.is_symlink() || place.folder.is_dir() {
            place.check_tree()?;
            if !is_unchanged(&place, &order.proof).await? {
                let kept = self.keep(&order.keep, policy).await?;
                return Ok(Removal::KeptAgain(Box::new(kept)));
            }
            self.check_is_kept(&place, order).await?;
            // It has another name from here on, so that no late process finds it by its name.
            rename(&place.folder, &trash.folder)?;
            crash_point::reach(CrashPoint::WorkspaceInTrash);
            // A process may still have had it open.
            if !is_unchanged(&trash, &order.proof).await? {
                rename(&trash.folder, &place.folder)?;
                let kept = self.keep_at(&place, &order.keep, policy).await?;
                return Ok(Removal::KeptAgain(Box::new(kept)));
            }
            remove_folder(&gone)?;
            rename(&trash.folder, &gone)?;
        } else {
            // Perhaps the whole folder of the clones is away.
            self.check_is_kept(&place, order).await?;
        }
        // Only files that are as they were kept get this name.
        blocking(move || remove_folder(&gone)).await?;
        {
            let _locked = self.keep.lock_keep(&order.keep.project, &place).await?;
            self.keep.guard_objects(&place).await?;
        }
        crash_point::reach(CrashPoint::WorkspaceRemoved);
        Ok(Removal::Removed)
    }

    /// Removes the files of a workspace that no launch has used, also those of one that was made
    /// in part. No other step on it may be under way. One that is gone counts as removed.
    ///
    /// # Errors
    /// Something that cannot be removed, or a keep repository that cannot be changed.
    pub async fn remove_unused(&self, project: &ProjectId, id: &WorkspaceId) -> Result<()> {
        self.places.take_back(project, id)?;
        let place = self.places.place(project, id);
        let new = place.project.join(format!(".new-{id}"));
        let gone = place.project.join(format!(".gone-{id}"));
        let folder = place.folder.clone();
        blocking(move || {
            remove_folder(&new)?;
            remove_folder(&gone)?;
            if folder.symlink_metadata().is_ok() {
                rename(&folder, &gone)?;
            }
            remove_folder(&gone)
        })
        .await?;
        // The attempt to make it may have failed before the project had a keep repository.
        if place.keep().is_dir() {
            let _locked = self.keep.lock_keep(project, &place).await?;
            self.keep.guard_objects(&place).await?;
        }
        Ok(())
    }

    /// Checks that the keep repository is there, and still has the kept state that the proof is of.
    async fn check_is_kept(&self, place: &Place, order: &RemoveOrder) -> Result<()> {
        let at = format!("--points-at={}", order.kept_commit);
        let list = ["for-each-ref", "--count=1", &at, "refs/agent-coordinator/kept/"];
        let found = self.git.on(&place.keep(), list).end().await?;
        if found.code == Some(0) && !found.stdout.is_empty() {
            return Ok(());
        }
        Err(CheckoutError::Refused(format!(
            "`{}` has no kept state of the workspace, so that its files stay; bring it back from a \
             copy",
            place.keep().display()
        )))
    }
}

impl WorkspacePlaces {
    /// Gives a workspace its name back, if an earlier removal ended before it had looked at the
    /// files once more. No removal of it may be under way.
    ///
    /// # Errors
    /// The folder cannot be renamed.
    pub fn take_back(&self, project: &ProjectId, id: &WorkspaceId) -> Result<()> {
        let place = self.place(project, id);
        let trash = place.project.join(format!(".trash-{id}"));
        if place.folder.symlink_metadata().is_err() && trash.is_dir() {
            rename(&trash, &place.folder)?;
        }
        Ok(())
    }
}

async fn is_unchanged(place: &Place, proof: &str) -> Result<bool> {
    let tree = place.tree();
    let now = blocking_as(place.owner, move || Ok(walk(&tree)?.digest)).await?;
    Ok(now == proof)
}
