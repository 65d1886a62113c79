-- The time at which a request of an item was sent to its forge, while the outcome is not known.
ALTER TABLE forge_items ADD COLUMN begun_at BIGINT;
