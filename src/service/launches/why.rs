//! `why`: each rule that lets a pair start or keeps it from starting.

use std::path::PathBuf;

use crate::domain::id::{AgentId, LaunchId, ProjectId};
use crate::domain::pair::Ruling;
use crate::domain::plan::Deferred;
use crate::domain::{Account, InstanceKey, Launch, Purpose, Timestamp};

use super::Launches;
use super::operate::check_known;
use crate::service::ServiceError;

/// What the rules say of one key.
#[derive(Debug, Clone)]
pub struct Why {
    pub key: InstanceKey,
    pub at: Timestamp,
    /// The server's rules, in their order; the first that keeps it decides.
    pub rulings: Vec<Ruling>,
    /// What a coordinator said last, where one puts it off.
    pub deferred: Option<Deferred>,
    pub n_failures: u32,
    /// Of the agent's provider.
    pub account: Account,
    /// The pause file, if it exists.
    pub pause_file: Option<PathBuf>,
    /// The open launch, if its coordinator is not there.
    pub abandoned: Option<LaunchId>,
}

impl Launches {
    /// The rules for a pair, for each purpose.
    ///
    /// # Errors
    /// `AgentNotFound`, `ProjectNotFound`.
    pub async fn why(
        &self,
        agent: &AgentId,
        project: &ProjectId,
    ) -> Result<Vec<Why>, ServiceError> {
        let (of, project_id) = (agent.clone(), project.clone());
        self.core.read(move |tx| check_known(tx, &of, &project_id)).await?;
        let at = self.core.now();
        let abandoned: Vec<Launch> = self
            .core
            .store
            .open_launches()
            .await?
            .into_iter()
            .filter(|launch| self.coordinators.is_abandoned(launch, at))
            .collect();
        let mut all = Vec::new();
        for purpose in [Purpose::Task, Purpose::Chat] {
            let key = InstanceKey::new(agent.clone(), project.clone(), purpose);
            let facts = self.pause_file.apply(self.core.store.pair_facts(&key).await?);
            let rulings = facts.rulings(self.core.settings().backoff, at).to_vec();
            let deferred = self.coordinators.deferral_of(&key, at);
            let abandoned =
                abandoned.iter().find(|launch| launch.key == key).map(|launch| launch.id.clone());
            let (n_failures, account, pause_file) =
                (facts.record.n_failures, facts.account, self.pause_file.get());
            all.push(Why {
                key,
                at,
                rulings,
                deferred,
                n_failures,
                account,
                pause_file,
                abandoned,
            });
        }
        Ok(all)
    }
}
