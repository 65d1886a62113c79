-- The end of what an agent printed, for launches whose output is on another machine.
CREATE TABLE output_tails (
    launch_id TEXT PRIMARY KEY,
    tail TEXT NOT NULL
);
