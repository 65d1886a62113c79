-- What people look up of what was: lists by time, the events of a task, and what is old enough to go.
CREATE INDEX events_of_task ON events (task_id, seq) WHERE task_id IS NOT NULL;
CREATE INDEX executions_by_start ON executions (started_at, id);
CREATE INDEX sessions_by_creation ON sessions (created_at, id);
CREATE INDEX notices_by_creation ON notices (created_at, id);
