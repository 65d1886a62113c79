//! The facts that decide about the start of an agent: one query for one key, and one for all keys
//! with work.

use crate::{BoxError, Cells, Read, StoreError};
use domain::account::Parked;
use domain::start_history::{OpenLaunch, TaskToStart};
use domain::workspace::WorkspaceMode;
use domain::{Account, InstanceKey, StartFacts, StartHistory, Timestamp};

use super::launches;
use super::record::Record;
use super::start_histories::millis;

/// The facts in the order in which `read` reads them. A key without a row in `pairs` has NULL in
/// `r.revision`, and the others have what a fresh record has.
macro_rules! facts {
    ($is_assigned:literal, $waiting_since:literal, $task:literal, $launch:literal) => {
        concat!(
            "a.status, a.ai_type, p.status, p.working_directory, p.workspace, ",
            $is_assigned,
            ", ",
            $waiting_since,
            ", ",
            $task,
            ", ",
            $launch,
            ", r.revision, r.held_since, COALESCE(r.n_failures, 0), r.last_end_at, \
            COALESCE(r.failed_at, '[]'), r.suspended_since, COALESCE(r.is_misconfigured, FALSE), \
            r.wanted_since, COALESCE(r.read_up_to, 0), c.revision, c.parked_class, c.parked_since, \
            c.parked_until, c.n_parked, c.probe_launch_id, c.probe_at, c.parked_first, \
            EXISTS (SELECT 1 FROM pauses) "
        )
    };
}

/// The query of one key. It has exactly one row, also for a key without any rows.
const OF_KEY: &str = concat!(
    "SELECT ",
    facts!(
        "s.agent_id IS NOT NULL",
        "CASE ?3 WHEN 'chat' THEN r.wanted_since WHEN 'check' THEN w.checking_since \
            ELSE w.status_since END",
        "CASE ?3 WHEN 'chat' THEN 0 ELSE w.n_tasks END, w.task_id, w.priority, \
            NOT EXISTS (SELECT 1 FROM executions AS e WHERE e.task_id = w.task_id)",
        "l.id, l.state, l.deadline, l.session_id, l.stopping_reason, l.ladder_at"
    ),
    "FROM (SELECT COUNT(*) AS n_tasks, MIN(id) AS task_id, MIN(priority) AS priority, \
            MIN(status_since) AS status_since, MIN(checking_since) AS checking_since FROM tasks \
        WHERE status = 'in_progress' AND assignee_id = ?1 AND project_id = ?2 \
            AND (checking_since IS NOT NULL) = (?3 = 'check')) AS w \
    LEFT JOIN agents AS a ON a.id = ?1 \
    LEFT JOIN accounts AS c ON c.ai_type = a.ai_type \
    LEFT JOIN projects AS p ON p.id = ?2 \
    LEFT JOIN assignments AS s ON s.project_id = ?2 AND s.agent_id = ?1 \
    LEFT JOIN launches AS l ON l.agent_id = ?1 AND l.project_id = ?2 AND l.purpose = ?3 \
        AND l.state <> 'ended' \
    LEFT JOIN pairs AS r ON r.agent_id = ?1 AND r.project_id = ?2 AND r.purpose = ?3"
);

/// CROSS JOIN fixes the order of the loops: first the work, which is little, and never the pairs.
const STARTABLE: &str = concat!(
    "SELECT w.agent_id, w.project_id, w.purpose, ",
    facts!(
        "TRUE",
        "w.waiting_since",
        "w.n_tasks, w.task_id, w.priority, FALSE",
        "NULL, NULL, NULL, NULL, NULL, NULL"
    ),
    "FROM (SELECT assignee_id AS agent_id, project_id, 'task' AS purpose, \
            MIN(status_since) AS waiting_since, COUNT(*) AS n_tasks, MIN(id) AS task_id, \
            MIN(priority) AS priority FROM tasks \
        WHERE status = 'in_progress' AND assignee_id IS NOT NULL AND checking_since IS NULL \
            GROUP BY assignee_id, project_id \
        UNION ALL SELECT assignee_id, project_id, 'check', MIN(checking_since), COUNT(*), \
            MIN(id), MIN(priority) FROM tasks \
        WHERE status = 'in_progress' AND assignee_id IS NOT NULL AND checking_since IS NOT NULL \
            GROUP BY assignee_id, project_id \
        UNION ALL SELECT agent_id, project_id, purpose, wanted_since, 0, NULL, NULL FROM pairs \
        WHERE wanted_since IS NOT NULL AND purpose = 'chat') AS w \
    CROSS JOIN agents AS a CROSS JOIN projects AS p CROSS JOIN assignments AS s \
    LEFT JOIN pairs AS r ON r.agent_id = w.agent_id AND r.project_id = w.project_id \
        AND r.purpose = w.purpose \
    LEFT JOIN accounts AS c ON c.ai_type = a.ai_type \
    WHERE a.id = w.agent_id AND a.status = 'active' AND p.id = w.project_id AND p.status = 'active' \
        AND s.project_id = w.project_id AND s.agent_id = w.agent_id \
        AND NOT EXISTS (SELECT 1 FROM launches AS l WHERE l.agent_id = w.agent_id \
            AND l.project_id = w.project_id AND l.purpose = w.purpose AND l.state <> 'ended') \
    ORDER BY w.waiting_since, w.agent_id, w.project_id, w.purpose = 'chat'"
);

fn read(cells: &mut Cells<'_>, key: InstanceKey) -> Result<StartFacts, BoxError> {
    let agent_status = cells.get::<Option<_>>()?;
    let ai_type = cells.get::<Option<String>>()?;
    let project_status = cells.get::<Option<_>>()?;
    let directory = cells.get::<Option<_>>()?;
    let workspace_mode = cells.get::<Option<_>>()?;
    let is_assigned = cells.get()?;
    let waiting_since = cells.get()?;
    let task = read_only_task(cells, waiting_since)?;
    let open = read_open(cells)?;
    let revision = cells.get::<Option<i64>>()?;
    let memory = read_memory(cells, key.clone())?;
    let account_revision = cells.get::<Option<i64>>()?;
    let parked = Option::<Parked>::read(cells)?;
    let agent = agent_status.zip(ai_type);
    let ai_type = agent.as_ref().map_or_else(String::new, |(_, ai_type)| ai_type.clone());
    Ok(StartFacts {
        agent,
        project: project_status.zip(directory),
        workspace_mode: workspace_mode.unwrap_or(WorkspaceMode::Shared),
        clone: None,
        is_assigned,
        waiting_since,
        task,
        open,
        record: match revision {
            Some(revision) => StartHistory { revision, ..memory },
            None => StartHistory::new(key.clone()),
        },
        account: match account_revision {
            Some(revision) => Account { ai_type, parked, revision },
            None => Account::new(ai_type),
        },
        key,
        is_paused: cells.get()?,
    })
}

/// Reads the columns of a [`StartHistory`] after its key, without the revision.
fn read_memory(cells: &mut Cells<'_>, key: InstanceKey) -> Result<StartHistory, BoxError> {
    Ok(StartHistory {
        key,
        held_since: cells.get()?,
        n_failures: cells.get()?,
        last_end_at: cells.get()?,
        failed_at: millis::read(cells)?,
        suspended_since: cells.get()?,
        is_misconfigured: cells.get()?,
        wanted_since: cells.get()?,
        read_up_to: cells.get()?,
        revision: 0,
    })
}

/// Reads the task of a key with a single task in progress. The rules choose among several.
fn read_only_task(
    cells: &mut Cells<'_>,
    since: Option<Timestamp>,
) -> Result<Option<TaskToStart>, BoxError> {
    let n_tasks = cells.get::<i64>()?;
    let id = cells.get::<Option<_>>()?;
    let priority = cells.get::<Option<_>>()?;
    let is_untried = cells.get()?;
    let only = id.zip(priority).zip(since).filter(|_| n_tasks == 1);
    Ok(only.map(|((id, priority), since)| TaskToStart { id, priority, since, is_untried }))
}

fn read_open(cells: &mut Cells<'_>) -> Result<Option<OpenLaunch>, BoxError> {
    let id = cells.get::<Option<_>>()?;
    let state = cells.get::<Option<&str>>()?;
    let deadline = cells.get()?;
    let session = cells.get::<Option<_>>()?;
    let reason = cells.get::<Option<_>>()?;
    let stop_at = cells.get::<Option<_>>()?;
    let Some((id, state)) = id.zip(state) else {
        return Ok(None);
    };
    let state = launches::state_of(state, deadline, session, reason.zip(stop_at), None)?;
    Ok(Some(OpenLaunch { id, state }))
}

/// Returns the facts that decide about the start of `key`. Work is a task in progress in the
/// project, assigned to the agent; for a chat it is the wish for one.
pub fn of_key(tx: &mut Read<'_>, key: &InstanceKey) -> Result<StartFacts, StoreError> {
    let found = tx.row("pair", OF_KEY, &key.values(), |cells| read(cells, key.clone()));
    found.map_err(|error| error.named(|| key.to_string()))?.ok_or_else(|| StoreError::Unreadable {
        what: "pair",
        id: key.to_string(),
        source: "the query has no row".into(),
    })
}

/// Returns the facts of each key with work and without an open launch, whose agent and project are
/// active and assigned, by `waiting_since`, then key. The cost grows with the work, not with the
/// pairs.
pub fn list(tx: &mut Read<'_>) -> Result<Vec<StartFacts>, StoreError> {
    tx.rows("pair", STARTABLE, &[], |cells| {
        let key = InstanceKey::read(cells)?;
        read(cells, key)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::query_plan::scans;

    #[tokio::test]
    async fn the_queries_of_each_cycle_cost_by_work_and_not_by_pairs_or_history() {
        // The index of wishes has only wishes.
        let wishes = "SCAN pairs USING COVERING INDEX pairs_wanted";
        assert_eq!(scans(STARTABLE, 0).await, [wishes, "SCAN w", "SCAN pauses"]);
        assert_eq!(scans(OF_KEY, 3).await, ["SCAN w", "SCAN pauses"]);
        let open = "SELECT * FROM launches WHERE state <> 'ended' ORDER BY claimed_at, id";
        assert_eq!(scans(open, 0).await, ["SCAN launches USING INDEX launches_open_by_claim"]);
    }
}
