-- Where the agents of a project work: in its directory, or in a clone of its repository for each
-- task.
ALTER TABLE projects ADD COLUMN workspace TEXT NOT NULL DEFAULT 'shared';

-- The clone that a launch uses.
ALTER TABLE launches ADD COLUMN workspace_id TEXT;

CREATE TABLE workspaces (
    id TEXT PRIMARY KEY NOT NULL,
    project_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    coordinator_id TEXT,
    state TEXT NOT NULL,
    reason TEXT,
    branch TEXT NOT NULL,
    base_ref TEXT,
    base_commit TEXT,
    subdirectory TEXT NOT NULL,
    -- What was found when its content was kept, as JSON.
    content TEXT,
    launch_id TEXT,
    discarded_at BIGINT,
    merged_commit TEXT,
    created_at BIGINT NOT NULL,
    revision BIGINT NOT NULL
);

-- A task has one workspace with files.
CREATE UNIQUE INDEX workspaces_of_task ON workspaces (task_id) WHERE state <> 'removed';
CREATE INDEX workspaces_by_task ON workspaces (task_id, created_at);
CREATE INDEX workspaces_by_state ON workspaces (state) WHERE state <> 'removed';
