-- Accounts behind providers that were parked, by ai_type: what for, and which launch tries them again.
CREATE TABLE accounts (
    ai_type TEXT PRIMARY KEY NOT NULL,
    parked_class TEXT,
    parked_since BIGINT,
    parked_until BIGINT,
    n_parked BIGINT,
    probe_launch_id TEXT,
    probe_at BIGINT,
    revision BIGINT NOT NULL
);

-- Suspended because it can't work as it is configured.
ALTER TABLE pairs ADD COLUMN is_misconfigured BOOLEAN NOT NULL DEFAULT FALSE;
