//! Launches that ended long ago, and whether something of them is still needed.

use crate::{Read, StoreError};
use domain::Timestamp;
use domain::retention::{PastLaunch, PastWork};

const PAST_LAUNCHES: &str = "\
    SELECT l.id, l.ended_at, \
        EXISTS (SELECT 1 FROM sessions AS s WHERE s.launch_id = l.id AND s.ended_at IS NULL) \
        OR EXISTS (SELECT 1 FROM notices AS n WHERE n.launch_id = l.id AND n.settled_at IS NULL) \
        OR EXISTS (SELECT 1 FROM executions AS e WHERE e.launch_id = l.id AND e.ended_at IS NULL), \
        EXISTS (SELECT 1 FROM accounts AS c WHERE c.probe_launch_id = l.id) \
    FROM launches AS l \
    WHERE l.state = 'ended' AND l.ended_at < ?1 AND (l.ended_at, l.id) > (?2, ?3) \
    ORDER BY l.ended_at, l.id LIMIT ?4";

/// The tasks whose newest execution is one of this launch.
const NEWEST_WORK: &str = "\
    SELECT DISTINCT e.task_id, COALESCE(t.revision, 0), \
        COALESCE(t.status IN ('backlog', 'todo', 'in_progress', 'blocked'), FALSE) \
    FROM executions AS e LEFT JOIN tasks AS t ON t.id = e.task_id \
    WHERE e.launch_id = ?1 AND NOT EXISTS (SELECT 1 FROM executions AS o \
        WHERE o.task_id = e.task_id AND (o.started_at, o.id) > (e.started_at, e.id)) \
    ORDER BY e.task_id";

/// Returns at most `limit` launches that ended before `before` and come after `after`, by their
/// end, then id.
pub fn launches(
    tx: &mut Read<'_>,
    before: Timestamp,
    after: Option<&PastLaunch>,
    limit: usize,
) -> Result<Vec<PastLaunch>, StoreError> {
    let (ended_at, id) =
        after.map_or((i64::MIN, ""), |after| (after.ended_at.as_millis(), after.id.as_str()));
    let args = [before.into(), ended_at.into(), id.into(), limit.into()];
    let mut past = tx.rows("launch", PAST_LAUNCHES, &args, |cells| {
        Ok(PastLaunch {
            id: cells.get()?,
            ended_at: cells.get()?,
            has_open_parts: cells.get()?,
            is_probe: cells.get()?,
            newest_of: Vec::new(),
        })
    })?;
    for launch in &mut past {
        let args = [(&launch.id).into()];
        launch.newest_of = tx.rows("execution", NEWEST_WORK, &args, |cells| {
            Ok(PastWork { task: cells.get()?, revision: cells.get()?, is_open: cells.get()? })
        })?;
    }
    Ok(past)
}
