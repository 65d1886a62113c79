-- The checks of the operator that a task must pass after its agent reported success.

-- The time since which the task is being checked. Its agent does not work on it meanwhile.
ALTER TABLE tasks ADD COLUMN checking_since BIGINT;
-- The number of rounds with a failed check since the task was set in progress.
ALTER TABLE tasks ADD COLUMN n_failed_rounds BIGINT NOT NULL DEFAULT 0;

CREATE TABLE checks (
    id TEXT PRIMARY KEY NOT NULL,
    task_id TEXT NOT NULL,
    launch_id TEXT,
    round BIGINT NOT NULL,
    name TEXT NOT NULL,
    commit_id TEXT,
    result TEXT NOT NULL,
    exit_code BIGINT,
    duration_ms BIGINT,
    output TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    revision BIGINT NOT NULL
);
CREATE INDEX checks_of_task ON checks (task_id, started_at);
CREATE INDEX checks_of_launch ON checks (launch_id);
