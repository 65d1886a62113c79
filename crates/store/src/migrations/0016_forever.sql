-- The time when a person decided that not even the kept state of a workspace is wanted any more.
ALTER TABLE workspaces ADD COLUMN forever_at BIGINT;
