-- Failures in a row, by their times, and what came of too many: moments in milliseconds, a JSON array of them.
ALTER TABLE pairs ADD COLUMN failed_at TEXT NOT NULL DEFAULT '[]';
ALTER TABLE pairs ADD COLUMN suspended_since BIGINT;
