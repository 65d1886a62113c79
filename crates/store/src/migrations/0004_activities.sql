-- What the output of an agent told: of a launch and of the work it did, written at its end.
ALTER TABLE launches ADD COLUMN input_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE launches ADD COLUMN output_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE launches ADD COLUMN cache_read_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE launches ADD COLUMN cache_write_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE launches ADD COLUMN cost_usd_micros BIGINT NOT NULL DEFAULT 0;
ALTER TABLE launches ADD COLUMN turns BIGINT NOT NULL DEFAULT 0;
ALTER TABLE launches ADD COLUMN progress TEXT;
ALTER TABLE launches ADD COLUMN failure TEXT;
ALTER TABLE launches ADD COLUMN failure_resets_at BIGINT;

ALTER TABLE executions ADD COLUMN input_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE executions ADD COLUMN output_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE executions ADD COLUMN cache_read_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE executions ADD COLUMN cache_write_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE executions ADD COLUMN cost_usd_micros BIGINT NOT NULL DEFAULT 0;
ALTER TABLE executions ADD COLUMN turns BIGINT NOT NULL DEFAULT 0;
ALTER TABLE executions ADD COLUMN failure TEXT;
ALTER TABLE executions ADD COLUMN failure_resets_at BIGINT;
