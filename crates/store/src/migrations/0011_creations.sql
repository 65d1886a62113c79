-- What a launch has created, for the limits of agents.
ALTER TABLE launches ADD COLUMN n_tasks_created BIGINT NOT NULL DEFAULT 0;
ALTER TABLE launches ADD COLUMN n_messages_created BIGINT NOT NULL DEFAULT 0;
