-- Comments of people on tasks.
CREATE TABLE comments (
    id TEXT PRIMARY KEY NOT NULL,
    task_id TEXT NOT NULL,
    -- The name of the person who wrote it, if it is known.
    author TEXT,
    content TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX comments_of_task ON comments (task_id, created_at, id);
