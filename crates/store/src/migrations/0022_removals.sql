-- The time since which a task is archived: boards and lists leave it out.
ALTER TABLE tasks ADD COLUMN archived_at BIGINT;

-- What people deleted. `content` has its rows, as JSON, until that cannot be undone any more.
CREATE TABLE deletions (
    kind TEXT NOT NULL,
    object_id TEXT NOT NULL,
    deleted_at BIGINT NOT NULL,
    undo_until BIGINT NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (kind, object_id)
);

-- The last names of what was deleted. They stay, so that no id is given again.
CREATE TABLE deleted_names (
    kind TEXT NOT NULL,
    object_id TEXT NOT NULL,
    -- Of a task.
    short_id TEXT,
    name TEXT NOT NULL,
    PRIMARY KEY (kind, object_id)
);
CREATE INDEX deleted_names_by_short_id ON deleted_names (short_id) WHERE short_id IS NOT NULL;
