-- The usage of a launch until the end of a day in UTC (days since 1970). Numbers of later days are never smaller. Nothing else has usage.
CREATE TABLE launch_spend (
    launch_id TEXT NOT NULL,
    day BIGINT NOT NULL,
    input_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    cache_read_tokens BIGINT NOT NULL,
    cache_write_tokens BIGINT NOT NULL,
    responses BIGINT NOT NULL,
    cost_usd_micros BIGINT NOT NULL,
    is_estimated BOOLEAN NOT NULL,
    PRIMARY KEY (launch_id, day)
);
CREATE INDEX launch_spend_by_day ON launch_spend (day);
-- A launch that was killed may have used more than its output told.
INSERT INTO launch_spend (launch_id, day, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, responses,
    cost_usd_micros, is_estimated)
SELECT id, COALESCE(ended_at, claimed_at) / 86400000, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, turns,
    cost_usd_micros, COALESCE(outcome, '') = 'lost' OR signal IS NOT NULL
FROM launches
WHERE input_tokens > 0 OR output_tokens > 0 OR cache_read_tokens > 0 OR cache_write_tokens > 0 OR turns > 0 OR cost_usd_micros > 0;
-- Work whose launch has no usage, or is gone. All work of a launch has the same usage.
INSERT INTO launch_spend (launch_id, day, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, responses,
    cost_usd_micros, is_estimated)
SELECT launch_id, MAX(COALESCE(ended_at, started_at)) / 86400000, MAX(input_tokens), MAX(output_tokens), MAX(cache_read_tokens),
    MAX(cache_write_tokens), MAX(turns), MAX(cost_usd_micros), MAX(CASE WHEN outcome = 'lost' THEN 1 ELSE 0 END) = 1
FROM executions
WHERE (input_tokens > 0 OR output_tokens > 0 OR cache_read_tokens > 0 OR cache_write_tokens > 0 OR turns > 0 OR cost_usd_micros > 0)
    AND NOT EXISTS (SELECT 1 FROM launch_spend WHERE launch_spend.launch_id = executions.launch_id)
GROUP BY launch_id;
ALTER TABLE launches DROP COLUMN input_tokens;
ALTER TABLE launches DROP COLUMN output_tokens;
ALTER TABLE launches DROP COLUMN cache_read_tokens;
ALTER TABLE launches DROP COLUMN cache_write_tokens;
ALTER TABLE launches DROP COLUMN cost_usd_micros;
ALTER TABLE launches DROP COLUMN turns;
ALTER TABLE executions DROP COLUMN input_tokens;
ALTER TABLE executions DROP COLUMN output_tokens;
ALTER TABLE executions DROP COLUMN cache_read_tokens;
ALTER TABLE executions DROP COLUMN cache_write_tokens;
ALTER TABLE executions DROP COLUMN cost_usd_micros;
ALTER TABLE executions DROP COLUMN turns;
