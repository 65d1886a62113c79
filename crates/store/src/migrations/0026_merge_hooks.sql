-- A person has decided that merges run no hooks of the project's repository.
ALTER TABLE projects ADD COLUMN skips_merge_hooks BOOLEAN NOT NULL DEFAULT FALSE;
