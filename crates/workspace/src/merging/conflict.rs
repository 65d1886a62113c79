//! Looks whether a conflict is over.

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
}
