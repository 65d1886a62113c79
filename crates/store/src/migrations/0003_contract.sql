-- What agents and people say to each other: notices, chats, what is saved on the way.

ALTER TABLE launches ADD COLUMN n_notices BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN handed_out BIGINT NOT NULL DEFAULT 0;
ALTER TABLE executions ADD COLUMN progress TEXT;
ALTER TABLE executions ADD COLUMN findings TEXT;
ALTER TABLE pairs ADD COLUMN wanted_since BIGINT;
ALTER TABLE pairs ADD COLUMN read_up_to BIGINT NOT NULL DEFAULT 0;
CREATE INDEX pairs_wanted ON pairs (agent_id, project_id, purpose, wanted_since) WHERE wanted_since IS NOT NULL;

-- So that the most urgent task of an agent is found among its own, whatever else there is.
CREATE INDEX tasks_of_agent_by_status ON tasks (assignee_id, project_id, status);
DROP INDEX tasks_of_assignee;

CREATE TABLE notices (
    id TEXT PRIMARY KEY NOT NULL,
    launch_id TEXT NOT NULL,
    task_id TEXT,
    action TEXT NOT NULL,
    demand TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    read_at BIGINT,
    settled_at BIGINT,
    revision BIGINT NOT NULL
);
CREATE INDEX notices_of_launch ON notices (launch_id);
CREATE INDEX notices_open ON notices (created_at, id) WHERE settled_at IS NULL;

CREATE TABLE messages (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, -- never used twice, also after old messages were deleted
    id TEXT NOT NULL UNIQUE,
    agent_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    sender TEXT NOT NULL,
    content TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    is_visible BOOLEAN NOT NULL
);
CREATE INDEX messages_of_chat ON messages (agent_id, project_id, seq);
