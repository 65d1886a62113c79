//! Past and running launches with their surroundings, for the lists and the page of launches. Each
//! kind of fact is read by one query, for all launches together.

use std::collections::{BTreeMap, BTreeSet};

use domain::totals::EndedLaunch;
use domain::{InstanceKey, Launch, LaunchId, Outcome, ShortId, TaskId, Timestamp};
use store::rows::{events, executions, launches, tasks, workspaces};
use store::{LaunchEnd, LaunchFilter, Read, StoreError};

use super::Launches;
use crate::{ServiceError, people};

/// The facts about launches that their rows do not have.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// The short ids and the titles of their tasks. A deleted task is left out.
    pub tasks: BTreeMap<TaskId, (ShortId, String)>,
    /// The last summary that each agent gave of its work.
    pub summaries: BTreeMap<LaunchId, String>,
    /// The people who had launches stopped.
    pub stopped_by: BTreeMap<LaunchId, String>,
}

/// The launches of a filter.
#[derive(Debug, Default)]
pub struct LaunchHistory {
    /// The launches that go on, the newest first.
    pub open: Vec<Launch>,
    /// The launches that have ended, the newest first.
    pub ended: Vec<Launch>,
    /// True if more of them have ended.
    pub is_more: bool,
    /// All ends of the filter on the days of `ended`, in any order.
    pub ends: Vec<EndedLaunch>,
    /// The launches that go on, of any filter.
    pub all_open: Vec<Launch>,
    /// The ends of this day, of any filter.
    pub ends_today: Vec<Launch>,
    pub surroundings: Surroundings,
}

impl Launches {
    /// Returns the launches of a filter, and the facts about them. The limit of the filter is for
    /// those that have ended. `midnight` is the beginning of this day, and `start_of_day` returns
    /// the beginning of the day of a time.
    pub async fn history(
        &self,
        filter: &LaunchFilter,
        midnight: Timestamp,
        start_of_day: impl Fn(Timestamp) -> Timestamp + Send + 'static,
    ) -> Result<LaunchHistory, ServiceError> {
        let filter = filter.clone();
        let read = self.core.read(move |tx| Ok(read(tx, &filter, midnight, &start_of_day)?));
        let found = read.await?;
        Ok(LaunchHistory {
            surroundings: found.surroundings.with_names().await,
            open: self.with_newest(found.open),
            all_open: self.with_newest(found.all_open),
            ..found
        })
    }

    /// Returns the facts about one launch, and the branch that it works on.
    pub async fn surroundings(
        &self,
        launch: &Launch,
    ) -> Result<(Surroundings, Option<String>), ServiceError> {
        let launch = launch.clone();
        let read = self.core.read(move |tx| {
            let workspace = match &launch.workspace {
                Some(workspace) => workspaces::get(tx, workspace)?,
                None => None,
            };
            let branch = workspace.map(|workspace| workspace.branch);
            Ok((surroundings(tx, std::slice::from_ref(&launch))?, branch))
        });
        let (surroundings, branch) = read.await?;
        Ok((surroundings.with_names().await, branch))
    }
}

impl Surroundings {
    /// Returns the facts with the names of the people in place of the numbers under which they
    /// acted.
    async fn with_names(mut self) -> Self {
        let names = people::names_of(self.stopped_by.values()).await;
        for author in self.stopped_by.values_mut() {
            if let Some(name) = names.get(author) {
                author.clone_from(name);
            }
        }
        self
    }
}

fn read(
    tx: &mut Read<'_>,
    filter: &LaunchFilter,
    midnight: Timestamp,
    start_of_day: impl Fn(Timestamp) -> Timestamp,
) -> Result<LaunchHistory, StoreError> {
    let is_wanted = |end| filter.end.is_none_or(|wanted| wanted == end);
    let mut found = LaunchHistory {
        all_open: launches::list_open(tx)?,
        ends_today: launches::list_ended_since(tx, midnight)?,
        ..LaunchHistory::default()
    };
    if is_wanted(LaunchEnd::None) {
        let limit = found.all_open.len();
        let open = LaunchFilter { end: Some(LaunchEnd::None), limit, ..filter.clone() };
        found.open = launches::list(tx, &open)?;
    }
    if filter.end != Some(LaunchEnd::None) {
        let end = filter.end.or(Some(LaunchEnd::Any));
        // One more row shows whether there is more.
        let ended = LaunchFilter { end, limit: filter.limit + 1, ..filter.clone() };
        found.ended = launches::list(tx, &ended)?;
        found.is_more = found.ended.len() > filter.limit;
        found.ended.truncate(filter.limit);
        if let Some(oldest) = found.ended.last() {
            let since = filter.since.max(Some(start_of_day(oldest.claimed_at)));
            found.ends = launches::list_ends(tx, &LaunchFilter { since, ..ended })?;
        }
    }
    let all: Vec<Launch> = found.open.iter().chain(&found.ended).cloned().collect();
    found.surroundings = surroundings(tx, &all)?;
    Ok(found)
}

fn surroundings(tx: &mut Read<'_>, launches: &[Launch]) -> Result<Surroundings, StoreError> {
    let task_of = |launch: &Launch| launch.task.clone().or_else(|| launch.claimed_task.clone());
    let ids: BTreeSet<TaskId> = launches.iter().filter_map(task_of).collect();
    let tasks = tasks::titles(tx, ids.iter().cloned())?;
    let launches: Vec<LaunchId> = launches.iter().map(|launch| launch.id.clone()).collect();
    // The newest comes first, and the first of a launch stays.
    let mut summaries = BTreeMap::new();
    for work in executions::list_of_launches(tx, &launches)? {
        if let Some(summary) = work.summary {
            summaries.entry(work.launch).or_insert(summary);
        }
    }
    let stopped_by = events::list_stopped_by(tx, &ids)?.into_iter().collect();
    Ok(Surroundings { tasks, summaries, stopped_by })
}

/// Returns how the last launch of a key ended, with the last line of its agent; `None` if none has
/// ended.
pub(crate) fn last_end(
    tx: &mut Read<'_>,
    key: &InstanceKey,
) -> Result<Option<(Outcome, Option<String>)>, StoreError> {
    let last = LaunchFilter {
        agent: Some(key.agent.clone()),
        project: Some(key.project.clone()),
        purpose: Some(key.purpose),
        only_ended: true,
        limit: 1,
        ..LaunchFilter::default()
    };
    let last = launches::list(tx, &last)?.into_iter().next();
    Ok(last.and_then(|launch| {
        let outcome = launch.as_ended().map(|(outcome, _)| outcome.clone())?;
        Some((outcome, launch.activity.progress))
    }))
}
