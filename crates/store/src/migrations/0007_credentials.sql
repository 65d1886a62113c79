-- By what people and scripts come in over the network; of each secret its hash.
CREATE TABLE credentials (
    id TEXT PRIMARY KEY NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    secret_hash TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    last_used_at BIGINT,
    revoked_at BIGINT,
    revision BIGINT NOT NULL
);

CREATE INDEX credentials_by_secret ON credentials (secret_hash);
