//! Launches: each life of an agent, from its claim to its end.

use std::collections::{BTreeMap, BTreeSet};

use crate::{BoxError, Cells, LaunchEnd, LaunchFilter, Read, StoreError, Value};
use domain::agent::Assignment;
use domain::creation::Creations;
use domain::event::NewEvent;
use domain::launch::{ExitStatus, StopReason};
use domain::notice::WorkChange;
use domain::secret::TokenHash;
use domain::totals::EndedLaunch;
use domain::{
    Activity, AgentId, Failure, InstanceKey, Launch, LaunchId, LaunchState, Outcome, Purpose,
    SessionId, TaskStatus, Timestamp, Usage,
};

use super::audit::plain;
use super::filter::{self, Filter};
use super::record::{Record, entity, record};
use super::{Transaction, Wake, launch_spend};

entity! {
    Launch in "launches" called "launch" {
        id;
        key: InstanceKey;
        coordinator = "coordinator_id";
        ai_type;
        ticket = "ticket_hash";
        claimed_at;
        pid;
        started_at;
        authenticated_at;
        task = "task_id";
        report;
        stop_reason, audited plain;
        is_chat_over;
        exit: ExitStatus;
        n_notices;
        state: LaunchState;
        activity: Activity;
        workspace = "workspace_id";
        claimed_task = "claimed_task_id";
        conversation = "conversation_id";
        fresh_because;
    }
    also audited |launch| {
        "agent_id" = plain(&launch.key.agent);
        "project_id" = plain(&launch.key.project);
        "purpose" = plain(launch.key.purpose);
        "state" = plain(launch.state.as_str());
    }
    with usage of "launches.id" in activity.usage;
}

record! {
    ExitStatus {
        exit_code;
        signal;
    }
}

record! {
    Activity {
        usage: Usage;
        failure: Option<Failure>;
        progress;
    }
}

/// Columns of other states are NULL.
impl Record for LaunchState {
    fn columns() -> Vec<&'static str> {
        vec![
            "state",
            "deadline",
            "session_id",
            "stopping_reason",
            "ladder_at",
            "outcome",
            "outcome_reason",
            "ended_at",
        ]
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self, BoxError> {
        let state = cells.get::<&str>()?;
        let deadline = cells.get::<Option<Timestamp>>()?;
        let session = cells.get::<Option<_>>()?;
        let reason = cells.get::<Option<_>>()?;
        let stop_at = cells.get::<Option<Timestamp>>()?;
        let outcome = Option::<Outcome>::read(cells)?;
        let ended_at = cells.get::<Option<Timestamp>>()?;
        state_of(state, deadline, session, reason.zip(stop_at), outcome.zip(ended_at))
    }

    fn values(&self) -> Vec<Value<'_>> {
        let mut deadline = None;
        let mut session = None;
        let mut stopping = None;
        let mut ended = None;
        match self {
            Self::Starting { deadline: at } => deadline = Some(*at),
            Self::Running { session: id } => session = Some(id),
            Self::Stopping { reason, stop_at } => stopping = Some((*reason, *stop_at)),
            Self::Ending => {}
            Self::Ended { outcome, at } => ended = Some((outcome, *at)),
        }
        vec![
            self.as_str().into(),
            deadline.into(),
            session.into(),
            stopping.map(|(reason, _)| reason).into(),
            stopping.map(|(_, at)| at).into(),
            ended.map(|(outcome, _)| outcome.as_str()).into(),
            ended.and_then(|(outcome, _)| outcome.reason()).into(),
            ended.map(|(_, at)| at).into(),
        ]
    }
}

/// Returns the state with the values that exist only in it.
pub(super) fn state_of(
    state: &str,
    deadline: Option<Timestamp>,
    session: Option<SessionId>,
    stopping: Option<(StopReason, Timestamp)>,
    ended: Option<(Outcome, Timestamp)>,
) -> Result<LaunchState, BoxError> {
    let known = match state {
        "starting" => deadline.map(|deadline| LaunchState::Starting { deadline }),
        "running" => session.map(|session| LaunchState::Running { session }),
        "stopping" => stopping.map(|(reason, stop_at)| LaunchState::Stopping { reason, stop_at }),
        "ending" => Some(LaunchState::Ending),
        "ended" => ended.map(|(outcome, at)| LaunchState::Ended { outcome, at }),
        other => return Err(format!("`{other}` is not a state of a launch").into()),
    };
    known.ok_or_else(|| format!("the columns of the state `{state}` are NULL").into())
}

pub fn get(tx: &mut Read<'_>, id: &LaunchId) -> Result<Option<Launch>, StoreError> {
    tx.find("WHERE id = ?1", &[id.into()])
}

/// Returns the launches with these ids, read together. A launch that does not exist is left out.
pub fn list_of_ids(
    tx: &mut Read<'_>,
    ids: &[LaunchId],
) -> Result<BTreeMap<LaunchId, Launch>, StoreError> {
    let launches: Vec<Launch> = filter::list_of_ids::<_, LaunchId>(tx, ids)?;
    Ok(launches.into_iter().map(|launch| (launch.id.clone(), launch)).collect())
}

/// Returns the agents of the launches with these ids. A launch that does not exist is left out.
pub fn agents_of(
    tx: &mut Read<'_>,
    ids: &BTreeSet<LaunchId>,
) -> Result<BTreeMap<LaunchId, AgentId>, StoreError> {
    filter::column_of_ids::<Launch, LaunchId, AgentId>(tx, "agent_id", ids)
}

/// Returns the newest launch with this ticket.
pub fn find_by_ticket(tx: &mut Read<'_>, ticket: &TokenHash) -> Result<Option<Launch>, StoreError> {
    let rest = "WHERE ticket_hash = ?1 ORDER BY claimed_at DESC, id DESC LIMIT 1";
    tx.find(rest, &[ticket.into()])
}

/// Returns the open launches by claim time, then id.
pub fn list_open(tx: &mut Read<'_>) -> Result<Vec<Launch>, StoreError> {
    tx.list("WHERE state <> 'ended' ORDER BY claimed_at, id", &[])
}

/// Returns the open launches that a change may concern, in any order. One may be in it twice.
pub fn list_concerned(tx: &mut Read<'_>, change: &WorkChange) -> Result<Vec<Launch>, StoreError> {
    match change {
        WorkChange::Task { before, .. } => {
            let parent = before.parent.as_ref().unwrap_or(&before.id);
            let mut launches: Vec<Launch> =
                tx.list(OPEN_OF_TASKS, &[(&before.id).into(), parent.into()])?;
            // An agent with a session that has not asked for its task has no execution yet.
            let is_work = before.status == TaskStatus::InProgress;
            if let Some(agent) = before.assignee.as_ref().filter(|_| is_work) {
                let of_pair: Vec<Launch> =
                    tx.list(OPEN_OF_PAIR, &[agent.into(), (&before.project).into()])?;
                let is_running =
                    |launch: &Launch| matches!(launch.state, LaunchState::Running { .. });
                launches.extend(of_pair.into_iter().filter(is_running));
            }
            Ok(launches)
        }
        WorkChange::Unassigned(Assignment { agent, project }) => {
            tx.list(OPEN_OF_PAIR, &[agent.into(), project.into()])
        }
        WorkChange::Agent { agent, .. } => tx.list(OPEN_OF_AGENT, &[agent.into()]),
        WorkChange::Project { project, .. } => tx.list(OPEN_OF_PROJECT, &[project.into()]),
    }
}

/// Selects the open launches that work on one of two tasks. A launch that has a task has an
/// execution, too.
const OPEN_OF_TASKS: &str = "\
    WHERE id IN (SELECT launch_id FROM executions WHERE task_id IN (?1, ?2)) \
        AND task_id IN (?1, ?2) AND state <> 'ended'";
const OPEN_OF_PAIR: &str = "WHERE agent_id = ?1 AND project_id = ?2 AND state <> 'ended'";
const OPEN_OF_AGENT: &str = "WHERE agent_id = ?1 AND state <> 'ended'";
const OPEN_OF_PROJECT: &str = "WHERE project_id = ?1 AND state <> 'ended'";

/// Returns whether the key has an open launch.
pub fn is_open(tx: &mut Read<'_>, key: &InstanceKey) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM launches \
        WHERE agent_id = ?1 AND project_id = ?2 AND purpose = ?3 AND state <> 'ended'";
    tx.exists(sql, &key.values())
}

/// Returns launches of a filter, the newest first.
pub fn list(tx: &mut Read<'_>, wanted: &LaunchFilter) -> Result<Vec<Launch>, StoreError> {
    let at = if wanted.only_ended { "ended_at" } else { "claimed_at" };
    filter_of(wanted).newest(tx, at, wanted.after.as_ref(), wanted.limit)
}

/// Returns the ends of all launches of a filter that have ended, in any order. The limit and the
/// place of the filter do not count.
pub fn list_ends(tx: &mut Read<'_>, wanted: &LaunchFilter) -> Result<Vec<EndedLaunch>, StoreError> {
    let mut filter = filter_of(wanted);
    filter.also("state = 'ended' AND outcome IS NOT NULL");
    let join = launch_spend::newest_of!("launches.id");
    let sql = format!("SELECT id, claimed_at, outcome, s.cost_usd_micros FROM launches {join}");
    filter.rows(tx, "launch", &sql, "", |cells| {
        cells.get::<LaunchId>()?;
        Ok(EndedLaunch {
            claimed_at: cells.get()?,
            is_bad: Outcome::BAD.contains(&cells.get::<&str>()?),
            cost_usd_micros: cells.get::<Option<_>>()?.unwrap_or_default(),
        })
    })
}

fn filter_of(wanted: &LaunchFilter) -> Filter<'_> {
    let mut filter = Filter::default();
    if let Some(agent) = &wanted.agent {
        filter.is("agent_id", agent);
    }
    if let Some(project) = &wanted.project {
        filter.is("project_id", project);
    }
    if let Some(purpose) = wanted.purpose {
        filter.is("purpose", purpose);
    }
    if wanted.only_ended {
        filter.also("state = 'ended' AND ended_at IS NOT NULL");
    }
    match wanted.end {
        None => {}
        Some(LaunchEnd::None) => filter.also("state <> 'ended'"),
        Some(LaunchEnd::Any) => filter.also("state = 'ended'"),
        Some(LaunchEnd::Bad) => {
            filter.also("state = 'ended'");
            filter.among("outcome", Outcome::BAD);
        }
    }
    if let Some(since) = wanted.since {
        let since = filter.arg(since);
        filter.also(format!("claimed_at >= {since}"));
    }
    for traits in &wanted.words {
        let found = [
            filter.one_of("task_id", &traits.tasks),
            filter.one_of("agent_id", &traits.agents),
            filter.one_of("purpose", traits.purposes.iter().copied()),
            filter.one_of("outcome", traits.outcomes.iter().copied()),
        ];
        let found: Vec<String> = found.into_iter().flatten().collect();
        let found = if found.is_empty() { "1 = 0".to_owned() } else { found.join(" OR ") };
        filter.also(format!("({found})"));
    }
    filter
}

/// Returns the launches that ended at this time or later, the newest end first.
pub fn list_ended_since(tx: &mut Read<'_>, since: Timestamp) -> Result<Vec<Launch>, StoreError> {
    let rest = "WHERE state = 'ended' AND ended_at >= ?1 ORDER BY ended_at DESC, id DESC";
    tx.list(rest, &[since.into()])
}

/// Forgets an ended launch with its sessions, notices, executions, checks, usage and kept output.
/// An open one stays as it is.
pub fn forget(tx: &mut Transaction<'_>, id: &LaunchId) -> Result<(), StoreError> {
    const IT: &str = "FROM launches WHERE id = ?1 AND state = 'ended'";
    // Its rows in other tables go first; the condition keeps those of an open launch.
    for table in ["sessions", "notices", "executions", "checks", "launch_spend", "output_tails"] {
        let sql = format!("DELETE FROM {table} WHERE launch_id = ?1 AND EXISTS (SELECT 1 {IT})");
        tx.execute(&sql, &[id.into()])?;
    }
    tx.execute(&format!("DELETE {IT}"), &[id.into()]).map(drop)
}

/// Writes a launch. The index of open launches is the last guard against two with the same key.
pub fn put(tx: &mut Transaction<'_>, launch: &Launch) -> Result<(), StoreError> {
    tx.replace_audited(launch, &launch.id, |tx| get(tx, &launch.id))?;
    tx.wake(Wake::Coordinators);
    tx.wake(Wake::Agent(launch.key.clone()));
    if launch.key.purpose == Purpose::Chat {
        tx.wake(Wake::Chat(launch.key.pair()));
    }
    Ok(())
}

/// Returns what a launch has created. Its columns are not part of [`Launch`], so a change of them
/// does not make a launch outdated that was read before.
pub fn creations(tx: &mut Read<'_>, id: &LaunchId) -> Result<Creations, StoreError> {
    let sql = "SELECT n_tasks_created, n_messages_created FROM launches WHERE id = ?1";
    let found = tx.row("launch", sql, &[id.as_str().into()], |cells| {
        Ok(Creations { n_tasks: cells.get()?, n_messages: cells.get()? })
    });
    Ok(found?.unwrap_or_default())
}

/// Writes what a launch has created. This wakes no listener, because no decision about starts and
/// stops depends on it.
pub fn set_creations(
    tx: &mut Transaction<'_>,
    id: &LaunchId,
    created: Creations,
) -> Result<(), StoreError> {
    let sql = "UPDATE launches SET n_tasks_created = ?2, n_messages_created = ?3 WHERE id = ?1";
    let Creations { n_tasks, n_messages } = created;
    tx.execute(sql, &[id.as_str().into(), n_tasks.into(), n_messages.into()]).map(drop)
}

/// Returns the event that tells of the state of a launch.
pub fn event(launch: &Launch, at: Timestamp) -> NewEvent {
    let (kind, detail) = match &launch.state {
        LaunchState::Starting { .. } => ("launch.starting", None),
        LaunchState::Running { .. } => ("launch.running", None),
        LaunchState::Stopping { reason, .. } => ("launch.stopping", Some(reason.to_string())),
        LaunchState::Ending => ("launch.ending", None),
        LaunchState::Ended { outcome, .. } => ("launch.ended", Some(outcome.to_string())),
    };
    NewEvent {
        agent: Some(launch.key.agent.clone()),
        project: Some(launch.key.project.clone()),
        launch: Some(launch.id.clone()),
        task: launch.task.clone(),
        detail,
        ..NewEvent::new(kind, at)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::rows::query_plan::scans;
    use crate::rows::{Context, Publish, Store};

    #[tokio::test]
    async fn the_launches_that_a_change_concerns_are_found_by_an_index() {
        let scans = async |rest: &str, n_args| {
            scans(&format!("SELECT * FROM launches {rest}"), n_args).await
        };
        assert_eq!(scans(OPEN_OF_TASKS, 2).await, [""; 0]);
        assert_eq!(scans(OPEN_OF_PAIR, 2).await, [""; 0]);
        assert_eq!(scans(OPEN_OF_AGENT, 1).await, [""; 0]);
        // Projects change rarely, because only people change them.
        let open = ["SCAN launches USING INDEX launches_open"];
        assert_eq!(scans(OPEN_OF_PROJECT, 1).await, open);
    }

    #[tokio::test]
    async fn counting_what_a_launch_creates_wakes_no_listener_and_outdates_no_launch() {
        let store = Store::in_memory().unwrap();
        let woken = Arc::<Mutex<Vec<Wake>>>::default();
        let publish: Publish = {
            let woken = woken.clone();
            Arc::new(move |wakes| woken.lock().unwrap().extend(wakes))
        };
        let at = Timestamp::from_millis(1);
        let context = || Context::new(at, "unique".to_owned(), None);
        let (id, agent, project): (LaunchId, _, _) =
            ("lch".parse().unwrap(), "agt".parse().unwrap(), "prj".parse().unwrap());
        let key = InstanceKey::new(agent, project, Purpose::Task);
        let launch = Launch::claimed(id.clone(), key, "claude".to_owned(), at, at);
        let put =
            |launch: Launch| store.write(context(), publish.clone(), move |tx| put(tx, &launch));
        put(launch).await.unwrap();
        let of = id.clone();
        let before = store.read(move |tx| get(tx, &of)).await.unwrap().unwrap();

        woken.lock().unwrap().clear();
        let of = id.clone();
        let created = Creations { n_tasks: 2, n_messages: 3 };
        let counted = store.write(context(), publish.clone(), move |tx| {
            assert_eq!(creations(tx, &of)?, Creations::default());
            set_creations(tx, &of, created)
        });
        counted.await.unwrap();
        assert!(woken.lock().unwrap().is_empty());
        put(before).await.unwrap();
        let of = id.clone();
        assert_eq!(store.read(move |tx| creations(tx, &of)).await.unwrap(), created);
    }
}
