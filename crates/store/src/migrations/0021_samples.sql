-- The load of the daemon, one row a minute for a day. The charts of Operations are made of it.
CREATE TABLE samples (
    -- Minutes since 1970.
    minute BIGINT PRIMARY KEY NOT NULL,
    running BIGINT NOT NULL,
    waiting BIGINT NOT NULL,
    -- Sums over all launches until then.
    tokens BIGINT NOT NULL,
    cost_usd_micros BIGINT NOT NULL
);
