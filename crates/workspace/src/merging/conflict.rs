//! Looks whether a conflict is over.

use std::path::Path;

use crate::keep_repository::SOURCE;
use crate::keeping::uncommitted_ref;
use crate::source::Source;
use crate::{Clones, Place, Result};
use domain::workspace::{Conflict, KeepOrder};

impl Clones {
    /// Returns the conflict that a workspace had, as far as its result still has it with the same
    /// commit of the branch.
    pub(crate) async fn conflict_left(
        &self,
        place: &Place,
        order: &KeepOrder,
        result: Option<&String>,
    ) -> Result<Option<Conflict>> {
        let Some((before, result)) = order.conflict.as_deref().zip(result) else {
            return Ok(None);
        };
        let Some(commit) = self.git.resolve(place, &before.commit).await? else {
            return Ok(None);
        };
        let merged = self.git.merged_tree(place, &commit, result).await?;
        let result = Some(result.clone());
        Ok(merged.err().map(|files| Conflict { result, files, ..before.clone() }))
    }

    /// Returns the conflict that a result has with its branch as that is now in the repository at
    /// `directory`; `None` if it has none any more. The workspace can merge the branch then.
    ///
    /// # Errors
    /// Git cannot be run.
    pub async fn compare_anew(
        &self,
        order: &KeepOrder,
        directory: &Path,
    ) -> Result<Option<Conflict>> {
        let Some(before) = &order.conflict else { return Ok(None) };
        self.git.check().await?;
        let place = self.places.place(&order.project, &order.id);
        let source = Source::find(&self.git, directory).await?;
        let _locked = self.keep.lock_keep(&order.project, &place).await?;
        self.keep.follow(&source, &place).await?;
        let branch = format!("{SOURCE}/heads/{}", before.branch);
        let Some(commit) = self.git.resolve(&place, &branch).await? else {
            return Ok(Some(Conflict::clone(before)));
        };
        self.keep.lend_to_all(&place).await?;
        // The merge may have had files that are in no commit, or another base. It was right then.
        if commit == before.commit {
            return Ok(Some(Conflict::clone(before)));
        }
        let left = if before.with_uncommitted {
            self.git.resolve(&place, &uncommitted_ref(&order.branch)).await?
        } else {
            None
        };
        let Some(result) = left.or_else(|| before.result.clone()) else { return Ok(None) };
        let merged = self.git.merged_tree(&place, &commit, &result).await?;
        Ok(merged.err().map(|files| Conflict { commit, files, ..Conflict::clone(before) }))
    }
}
