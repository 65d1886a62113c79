//! Finds the commit since which the changes of a result are shown.

use crate::keep_repository::SOURCE;
use crate::{Git, Place, Result};
use domain::workspace::KeepOrder;

impl Git {
    /// Returns the commit at which the work began. If the branch of the source was merged into the
    /// result since, returns the last commit of the branch that the result has: what came from
    /// there is not the work of the task.
    pub(crate) async fn begin_of(
        &self,
        place: &Place,
        order: &KeepOrder,
        result: &str,
    ) -> Result<Option<String>> {
        let Some(base) = &order.base_commit else { return Ok(None) };
        let branch = order.base_ref.as_deref().and_then(|name| name.strip_prefix("refs/"));
        let target = match branch {
            Some(branch) => self.resolve(place, &format!("{SOURCE}/{branch}")).await?,
            None => None,
        };
        let noted = self.noted(place, &order.branch).await?;
        // A branch that has the result says nothing. The one before each merge does.
        let targets = target.iter().chain(noted.iter().map(|merge| &merge.target));
        'targets: for target in targets {
            let Some(last) = self.common(place, target, result).await? else { continue };
            if last == result || self.contains(place, base, &last).await? {
                continue;
            }
            for merge in &noted {
                let is_own = self.contains(place, &merge.result, &last).await?
                    && !self.contains(place, &merge.target, &last).await?;
                if is_own {
                    continue 'targets;
                }
            }
            return Ok(Some(last));
        }
        Ok(Some(base.clone()))
    }
}
