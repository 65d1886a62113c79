-- The requests that created objects under ids of their clients: digests of their fields, as JSON.
CREATE TABLE creation_digests (
    kind TEXT NOT NULL,
    object_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (kind, object_id)
);
