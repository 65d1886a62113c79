//! Removes kept states that people do not want any more. Their refs stay under another name for
//! some days, so that a mistake can be mended by hand.

use std::fmt::Write as _;
use std::time::Duration;

use super::keeping::uncommitted_ref;
use super::merging::merged_ref;
use super::{Git, KeepRepositories, Place, Result};
use domain::workspace::ForgetOrder;
use domain::{ProjectId, Timestamp};

/// The refs of kept states that are not wanted any more, each below the time of that decision in
/// milliseconds.
const EXPIRED: &str = "refs/agent-coordinator/expired";
/// The time after which these refs are removed.
const EXPIRES_AFTER: Duration = Duration::from_hours(14 * 24);

impl KeepRepositories {
    /// Moves the refs of a workspace below `EXPIRED`, all of them or none. A repeated call ends
    /// in the same state.
    ///
    /// # Errors
    /// Git cannot be run, or cannot write the refs.
    pub async fn forget(&self, order: &ForgetOrder) -> Result<()> {
        let ForgetOrder { id, project, branch, decided_at } = order;
        self.git.check().await?;
        let place = self.places.place(project, id);
        let _locked = self.lock_keep(project, &place).await?;
        if !place.has_keep()? {
            return Ok(());
        }
        let own = |kind: &str| format!("refs/agent-coordinator/{kind}/{id}");
        let names = [
            own("kept"),
            own("base"),
            // Earlier versions made these two.
            own("merge"),
            own("offer"),
            format!("refs/heads/{branch}"),
            uncommitted_ref(branch),
            merged_ref(branch),
        ];
        let mut changes = String::new();
        for (name, object) in self.git.refs_below(&place, &names).await? {
            let short = name.trim_start_matches("refs/");
            let new = format!("{EXPIRED}/{}/{id}/{short}", decided_at.as_millis());
            let _ = writeln!(changes, "update {new} {object}\ndelete {name} {object}");
        }
        self.git.on(&place.keep(), ["update-ref", "--stdin"]).input(changes).long().run().await?;
        Ok(())
    }

    /// Removes the refs of kept states that people have not wanted for 14 days, in all projects
    /// that no other step changes now.
    /// Returns the number of refs.
    ///
    /// # Errors
    /// The first error of a project, after all others have been looked at.
    pub async fn expire(&self, now: Timestamp) -> Result<usize> {
        let Ok(projects) = std::fs::read_dir(&self.places.root) else {
            return Ok(0);
        };
        self.git.check().await?;
        let names = projects.flatten().map(|entry| entry.file_name());
        let mut n_removed = 0;
        let mut first_error = None;
        for name in names {
            let Some(project) = name.to_str().and_then(|name| name.parse::<ProjectId>().ok())
            else {
                continue;
            };
            match self.expire_in(&project, now).await {
                Ok(n) => n_removed += n,
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(n_removed), Err)
    }

    async fn expire_in(&self, project: &ProjectId, now: Timestamp) -> Result<usize> {
        let folder = self.places.root.join(project.as_str());
        let tree = folder.join("tree");
        let place = Place::new(folder.clone(), folder, tree);
        // A step on this project may take long, and the caller has other work.
        let Some(_locked) = self.try_lock_keep(project, &place).await? else {
            return Ok(0);
        };
        if !place.has_keep()? {
            return Ok(0);
        }
        let mut changes = String::new();
        let mut n_removed = 0;
        for (name, object) in self.git.refs_below(&place, &[EXPIRED.to_owned()]).await? {
            let time = name.strip_prefix(EXPIRED).and_then(|rest| rest.split('/').nth(1));
            let decided_at = time.and_then(|time| time.parse().ok()).map(Timestamp::from_millis);
            if decided_at.is_some_and(|at| now.since(at) >= EXPIRES_AFTER) {
                let _ = writeln!(changes, "delete {name} {object}");
                n_removed += 1;
            }
        }
        if n_removed > 0 {
            let call = self.git.on(&place.keep(), ["update-ref", "--stdin"]);
            call.input(changes).long().run().await?;
        }
        Ok(n_removed)
    }
}

impl Git {
    /// Returns these refs and all below them, each with the object that it names.
    pub(super) async fn refs_below(
        &self,
        place: &Place,
        names: &[String],
    ) -> Result<Vec<(String, String)>> {
        let list = ["for-each-ref", "--format=%(refname) %(objectname)"];
        let list = list.into_iter().chain(names.iter().map(String::as_str));
        let listed = self.on(&place.keep(), list).long().text().await?;
        let lines = listed.lines().filter_map(|line| line.split_once(' '));
        Ok(lines.map(|(name, object)| (name.to_owned(), object.to_owned())).collect())
    }
}
