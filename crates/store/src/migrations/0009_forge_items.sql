-- Work on items of forges: how far it is, and what is still to be done for it outside of the store.
CREATE TABLE forge_items (
    id TEXT PRIMARY KEY NOT NULL,
    forge TEXT NOT NULL,
    host TEXT NOT NULL,
    repository TEXT NOT NULL,
    kind TEXT NOT NULL,
    number BIGINT NOT NULL,
    agent_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    title TEXT NOT NULL,
    url TEXT NOT NULL,
    state TEXT NOT NULL,
    owed TEXT NOT NULL,
    n_attempts BIGINT NOT NULL,
    n_refusals BIGINT NOT NULL,
    retry_at BIGINT,
    last_error TEXT,
    n_comments BIGINT NOT NULL,
    is_missing BOOLEAN NOT NULL,
    n_resumed BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    ended_at BIGINT,
    revision BIGINT NOT NULL
);

-- The last guard against two works on one item.
CREATE UNIQUE INDEX open_forge_items ON forge_items (forge, host, repository, kind, number) WHERE ended_at IS NULL;
CREATE INDEX forge_items_of_task ON forge_items (task_id);
CREATE INDEX ended_forge_items ON forge_items (ended_at, id) WHERE ended_at IS NOT NULL;
