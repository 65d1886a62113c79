//! `why`: each rule that lets a pair start or keeps it from starting.

use std::path::PathBuf;
use std::sync::Arc;

use crate::domain::id::{AgentId, LaunchId, ProjectId, TaskId};
use crate::domain::plan::Deferred;
use crate::domain::plan::shared::Crowd;
use crate::domain::start_history::Ruling;
use crate::domain::{Account, InstanceKey, Outcome, Purpose, StartFacts, Timestamp};
use crate::rows::{launches, startable};

use super::Launches;
use super::history::last_end;
use super::operate::check_known;
use crate::service::{ServiceError, workspaces};

/// The answers of the rules for one key.
#[derive(Debug, Clone)]
pub struct Why {
    pub key: InstanceKey,
    pub at: Timestamp,
    /// The server's rules, in their order. The first rule that keeps the pair from starting
    /// decides.
    pub rulings: Vec<Ruling>,
    /// The last report of a coordinator that defers the start.
    pub deferred: Option<Deferred>,
    pub n_failures: u32,
    /// The time when the work began that the start is for; `None` if there is no work.
    pub waiting_since: Option<Timestamp>,
    /// The task that the next launch is given.
    pub task: Option<TaskId>,
    /// The account of the agent's provider.
    pub account: Account,
    /// The pause file, if it exists.
    pub pause_file: Option<PathBuf>,
    /// The reason, for people, why the clone for its task is not ready.
    pub about_clone: Option<String>,
    /// The git work tree of the project, if several agents work in it at once.
    pub crowd: Option<Crowd>,
    /// The open launch, if its coordinator is absent.
    pub abandoned: Option<LaunchId>,
    /// The end of its last launch, with the last line of its agent, if failures keep it.
    pub last_end: Option<(Outcome, Option<String>)>,
}

impl Launches {
    /// Returns the answers of the rules for a pair, for each purpose.
    ///
    /// # Errors
    /// `AgentNotFound`, `ProjectNotFound`.
    pub async fn why(
        &self,
        agent: &AgentId,
        project: &ProjectId,
    ) -> Result<Vec<Why>, ServiceError> {
        let keys = [Purpose::Task, Purpose::Chat, Purpose::Check]
            .map(|purpose| InstanceKey::new(agent.clone(), project.clone(), purpose));
        let agent = agent.clone();
        let project = project.clone();
        self.core.read(move |tx| check_known(tx, &agent, &project)).await?;
        self.why_of(keys.to_vec()).await
    }

    /// Returns the answers of the rules for several keys, read together. The cost grows with the
    /// keys.
    pub async fn why_of(&self, keys: Vec<InstanceKey>) -> Result<Vec<Why>, ServiceError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let checkouts = Arc::clone(&self.checkouts);
        let max_disk = self.core.settings().workspace.max_disk;
        let read = self.core.read(move |tx| {
            let no_room = workspaces::no_room(tx, &checkouts, max_disk)?;
            let mut facts = Vec::with_capacity(keys.len());
            for key in &keys {
                let mut of_key = startable::of_key(tx, key)?;
                workspaces::look_up(tx, &mut of_key, no_room.as_deref())?;
                // Most pairs have nothing to check.
                if key.purpose == Purpose::Check && of_key.waiting_since.is_none() {
                    continue;
                }
                let last_end = match of_key.record.suspended_since {
                    Some(_) => last_end(tx, key)?,
                    None => None,
                };
                facts.push((of_key, last_end));
            }
            Ok((facts, launches::list_open(tx)?))
        });
        let (facts, open) = read.await?;
        let at = self.core.now();
        let backoff = self.core.settings().backoff;
        let why = |(facts, last_end): (StartFacts, _)| {
            let facts = self.pause_file.apply(facts);
            let abandoned = open.iter().find(|launch| {
                launch.key == facts.key && self.coordinators.is_abandoned(launch, at)
            });
            Why {
                at,
                rulings: facts.rulings(backoff, at).to_vec(),
                deferred: self.coordinators.deferral_of(&facts.key, at),
                crowd: self.coordinators.crowd_of(&facts.key, at),
                abandoned: abandoned.map(|launch| launch.id.clone()),
                pause_file: self.pause_file.get(),
                about_clone: facts.about_clone(),
                waiting_since: facts.waiting_since,
                task: facts.task.map(|task| task.id),
                n_failures: facts.record.n_failures,
                account: facts.account,
                key: facts.key,
                last_end,
            }
        };
        Ok(facts.into_iter().map(why).collect())
    }
}
