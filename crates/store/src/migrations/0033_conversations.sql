-- The conversations of agent CLIs about tasks, which the next launch continues.
CREATE TABLE conversations (
    id TEXT PRIMARY KEY NOT NULL,
    task_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    coordinator_id TEXT NOT NULL,
    -- The id by which the CLI knows it.
    cli_session TEXT NOT NULL,
    account TEXT NOT NULL,
    model TEXT,
    directory TEXT NOT NULL,
    workspace_id TEXT,
    has_begun BOOLEAN NOT NULL,
    -- The last launch in it that authenticated.
    last_launch_id TEXT,
    n_unhelpful BIGINT NOT NULL,
    opened_at BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL,
    closed_because TEXT,
    closed_at BIGINT,
    revision BIGINT NOT NULL
);
-- An agent has one open conversation about a task.
CREATE UNIQUE INDEX conversations_open ON conversations (task_id, agent_id) WHERE closed_because IS NULL;
CREATE INDEX conversations_of_task ON conversations (task_id, opened_at);

-- The conversation that a launch begins or continues, and why it does not continue the one before.
ALTER TABLE launches ADD COLUMN conversation_id TEXT;
ALTER TABLE launches ADD COLUMN fresh_because TEXT;
-- Two launches never write one conversation at the same time.
CREATE UNIQUE INDEX launches_conversation ON launches (conversation_id) WHERE state <> 'ended';
