//! The questions that are more than a line of SQL, or asked in more than one place.

/// One row, whatever exists. Columns of `l` carry the names that `rows` expects of a launch's state.
pub(super) const PAIR_FACTS: &str = "\
    SELECT a.status AS agent_status, a.ai_type, p.status AS project_status, p.working_directory, \
        s.agent_id IS NOT NULL AS is_assigned, \
        CASE WHEN $3 = 'chat' THEN r.wanted_since ELSE (SELECT MIN(status_since) FROM tasks \
            WHERE status = 'in_progress' AND assignee_id = $1 AND project_id = $2) END AS waiting_since, \
        l.id AS launch_id, l.state, l.deadline, l.session_id, l.stopping_reason, l.ladder_at, \
        r.held_since, r.n_failures, r.last_end_at, r.failed_at, r.suspended_since, r.is_misconfigured, r.wanted_since, r.read_up_to, \
        r.revision, c.parked_class, c.parked_since, c.parked_until, c.n_parked, c.probe_launch_id, c.probe_at, \
        c.revision AS account_revision, EXISTS (SELECT 1 FROM pauses) AS is_paused \
    FROM (SELECT 1 AS one) AS k \
    LEFT JOIN agents AS a ON a.id = $1 \
    LEFT JOIN accounts AS c ON c.ai_type = a.ai_type \
    LEFT JOIN projects AS p ON p.id = $2 \
    LEFT JOIN assignments AS s ON s.project_id = $2 AND s.agent_id = $1 \
    LEFT JOIN launches AS l ON l.agent_id = $1 AND l.project_id = $2 AND l.purpose = $3 AND l.state <> 'ended' \
    LEFT JOIN pairs AS r ON r.agent_id = $1 AND r.project_id = $2 AND r.purpose = $3";

/// CROSS JOIN, because its order is the order of the loops: the work first, which is little, never the pairs.
pub(super) const STARTABLE: &str = "\
    SELECT w.agent_id, w.project_id, w.purpose, w.waiting_since, \
        a.status AS agent_status, a.ai_type, p.status AS project_status, p.working_directory, 1 AS is_assigned, \
        NULL AS launch_id, r.held_since, r.n_failures, r.last_end_at, r.failed_at, r.suspended_since, r.is_misconfigured, r.wanted_since, r.read_up_to, \
        r.revision, c.parked_class, c.parked_since, c.parked_until, c.n_parked, c.probe_launch_id, c.probe_at, \
        c.revision AS account_revision, EXISTS (SELECT 1 FROM pauses) AS is_paused \
    FROM (SELECT assignee_id AS agent_id, project_id, 'task' AS purpose, MIN(status_since) AS waiting_since FROM tasks \
        WHERE status = 'in_progress' AND assignee_id IS NOT NULL GROUP BY assignee_id, project_id \
        UNION ALL SELECT agent_id, project_id, purpose, wanted_since FROM pairs \
        WHERE wanted_since IS NOT NULL AND purpose = 'chat') AS w \
    CROSS JOIN agents AS a CROSS JOIN projects AS p CROSS JOIN assignments AS s \
    LEFT JOIN pairs AS r ON r.agent_id = w.agent_id AND r.project_id = w.project_id AND r.purpose = w.purpose \
    LEFT JOIN accounts AS c ON c.ai_type = a.ai_type \
    WHERE a.id = w.agent_id AND a.status = 'active' AND p.id = w.project_id AND p.status = 'active' \
        AND s.project_id = w.project_id AND s.agent_id = w.agent_id \
        AND NOT EXISTS (SELECT 1 FROM launches AS l WHERE l.agent_id = w.agent_id AND l.project_id = w.project_id \
            AND l.purpose = w.purpose AND l.state <> 'ended') \
    ORDER BY w.waiting_since, w.agent_id, w.project_id, w.purpose = 'chat'";

/// Launches that ended long ago, and whether anything of them is still open.
pub(super) const PAST_LAUNCHES: &str = "\
    SELECT l.id, l.ended_at, \
        EXISTS (SELECT 1 FROM sessions AS s WHERE s.launch_id = l.id AND s.ended_at IS NULL) \
        OR EXISTS (SELECT 1 FROM notices AS n WHERE n.launch_id = l.id AND n.settled_at IS NULL) \
        OR EXISTS (SELECT 1 FROM executions AS e WHERE e.launch_id = l.id AND e.ended_at IS NULL) AS has_open_parts, \
        EXISTS (SELECT 1 FROM accounts AS c WHERE c.probe_launch_id = l.id) AS is_probe \
    FROM launches AS l \
    WHERE l.state = 'ended' AND l.ended_at < $1 AND (l.ended_at, l.id) > ($2, $3) ORDER BY l.ended_at, l.id LIMIT $4";

/// The tasks whose newest execution is one of this launch.
pub(super) const NEWEST_WORK: &str = "\
    SELECT DISTINCT e.task_id, COALESCE(t.revision, 0) AS revision, \
        COALESCE(t.status IN ('backlog', 'todo', 'in_progress', 'blocked'), FALSE) AS is_open \
    FROM executions AS e LEFT JOIN tasks AS t ON t.id = e.task_id \
    WHERE e.launch_id = $1 AND NOT EXISTS (SELECT 1 FROM executions AS o \
        WHERE o.task_id = e.task_id AND (o.started_at, o.id) > (e.started_at, e.id)) \
    ORDER BY e.task_id";

pub(super) const ACCOUNTS: &str = "SELECT *, revision AS account_revision FROM accounts";

/// The last number that an event has had, also if it isn't kept any more.
pub(super) const LAST_EVENT: &str = "SELECT MAX(COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0), \
    COALESCE((SELECT MAX(seq) FROM events), 0)) AS seq";

/// TOTAL and not SUM: a sum beyond 64 bits is the greatest number then, and no error.
pub(super) const TOTALS: &str = "\
    SELECT ai_type, agent_id, project_id, outcome, COUNT(*) AS n_launches, \
        CAST(TOTAL(MAX(0, ended_at - started_at)) AS INTEGER) AS run_time_ms, \
        CAST(TOTAL(input_tokens) AS INTEGER) AS input_tokens, CAST(TOTAL(output_tokens) AS INTEGER) AS output_tokens, \
        CAST(TOTAL(cache_read_tokens) AS INTEGER) AS cache_read_tokens, \
        CAST(TOTAL(cache_write_tokens) AS INTEGER) AS cache_write_tokens, \
        CAST(TOTAL(cost_usd_micros) AS INTEGER) AS cost_usd_micros, CAST(TOTAL(turns) AS INTEGER) AS turns, \
        COUNT(CASE WHEN input_tokens + output_tokens + cache_read_tokens + cache_write_tokens + cost_usd_micros + turns > 0 \
            THEN 1 END) AS n_with_usage \
    FROM launches WHERE state = 'ended' GROUP BY ai_type, agent_id, project_id, outcome";

pub(super) const OPEN_LAUNCHES: &str =
    "SELECT * FROM launches WHERE state <> 'ended' ORDER BY claimed_at, id";
