-- The task by which a start was ordered when it was claimed. The agent is given this task first.
ALTER TABLE launches ADD COLUMN claimed_task_id TEXT;

-- The time since which a person wants a task to start as soon as its dependencies are done.
ALTER TABLE tasks ADD COLUMN start_wanted_since BIGINT;
CREATE INDEX tasks_wanted ON tasks (project_id) WHERE start_wanted_since IS NOT NULL;
