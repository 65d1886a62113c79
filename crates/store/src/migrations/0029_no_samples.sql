-- The load of the last hour is in memory.
DROP TABLE samples;
