-- What coordination needs. Moments are milliseconds since 1970 (UTC), enums are their words, `revision` counts the writes of
-- a row. In the subset that PostgreSQL shares, except for the `seq` of events.
--
-- No REFERENCES: whether an id exists is a rule, and rules are not the store's (see `store.rs`).

CREATE TABLE agents (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,
    ai_type TEXT NOT NULL,
    system_prompt TEXT NOT NULL,
    passkey_hash TEXT,
    status TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    revision BIGINT NOT NULL
);

CREATE TABLE projects (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,
    working_directory TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    revision BIGINT NOT NULL
);

CREATE TABLE assignments (
    project_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    PRIMARY KEY (project_id, agent_id)
);

CREATE TABLE tasks (
    id TEXT PRIMARY KEY NOT NULL,
    project_id TEXT NOT NULL,
    parent_id TEXT,
    title TEXT NOT NULL,
    description TEXT NOT NULL,
    status TEXT NOT NULL,
    priority TEXT NOT NULL,
    assignee_id TEXT,
    dependencies TEXT NOT NULL, -- a JSON array of task ids, in their order
    blocked_reason TEXT,
    created_at BIGINT NOT NULL,
    status_since BIGINT NOT NULL,
    revision BIGINT NOT NULL
);
CREATE INDEX tasks_of_project ON tasks (project_id);
CREATE INDEX tasks_of_assignee ON tasks (assignee_id);
CREATE INDEX tasks_of_parent ON tasks (parent_id);
-- The work there is. What asks for startable pairs reads nothing else.
CREATE INDEX tasks_in_progress ON tasks (assignee_id, project_id, status_since) WHERE status = 'in_progress';

CREATE TABLE launches (
    id TEXT PRIMARY KEY NOT NULL,
    agent_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    purpose TEXT NOT NULL,
    coordinator_id TEXT,
    ai_type TEXT NOT NULL,
    ticket_hash TEXT,
    claimed_at BIGINT NOT NULL,
    -- The state, and what exists only in one: starting (deadline), running (session_id), stopping (stopping_reason,
    -- ladder_at), ending, ended (outcome, outcome_reason, ended_at).
    state TEXT NOT NULL,
    deadline BIGINT,
    session_id TEXT,
    stopping_reason TEXT,
    ladder_at BIGINT,
    outcome TEXT,
    outcome_reason TEXT,
    ended_at BIGINT,
    pid BIGINT,
    started_at BIGINT,
    authenticated_at BIGINT,
    task_id TEXT,
    report TEXT,
    stop_reason TEXT, -- the first one; outlives the stopping state
    exit_code BIGINT,
    signal BIGINT,
    revision BIGINT NOT NULL
);
-- The last guard against a double start.
CREATE UNIQUE INDEX launches_open ON launches (agent_id, project_id, purpose) WHERE state <> 'ended';
CREATE INDEX launches_open_by_claim ON launches (claimed_at, id) WHERE state <> 'ended';
CREATE INDEX launches_by_claim ON launches (claimed_at, id);
CREATE INDEX launches_by_end ON launches (ended_at, id) WHERE state = 'ended';
CREATE INDEX launches_by_ticket ON launches (ticket_hash);

CREATE TABLE sessions (
    id TEXT PRIMARY KEY NOT NULL,
    launch_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    purpose TEXT NOT NULL,
    token_hash TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    last_seen_at BIGINT NOT NULL,
    ended_at BIGINT,
    end_reason TEXT,
    revision BIGINT NOT NULL
);
CREATE INDEX sessions_by_token ON sessions (token_hash);
CREATE INDEX sessions_of_launch ON sessions (launch_id);
CREATE INDEX sessions_open ON sessions (created_at, id) WHERE ended_at IS NULL;

CREATE TABLE executions (
    id TEXT PRIMARY KEY NOT NULL,
    launch_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    purpose TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    ended_at BIGINT,
    result TEXT,
    summary TEXT,
    next_steps TEXT,
    outcome TEXT,
    outcome_reason TEXT,
    revision BIGINT NOT NULL
);
CREATE INDEX executions_of_task ON executions (task_id);
CREATE INDEX executions_of_launch ON executions (launch_id);

-- What outlives the launches of a key; no row: nothing to remember.
CREATE TABLE pairs (
    agent_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    purpose TEXT NOT NULL,
    held_since BIGINT,
    n_failures BIGINT NOT NULL,
    last_end_at BIGINT,
    revision BIGINT NOT NULL,
    PRIMARY KEY (agent_id, project_id, purpose)
);
CREATE INDEX pairs_held ON pairs (agent_id, project_id) WHERE held_since IS NOT NULL;

-- One row while no new agents are started, otherwise none.
CREATE TABLE pauses (
    since BIGINT NOT NULL
);

CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, -- never used twice, also after old events were deleted
    at BIGINT NOT NULL,
    kind TEXT NOT NULL,
    agent_id TEXT,
    project_id TEXT,
    launch_id TEXT,
    task_id TEXT,
    detail TEXT
);
