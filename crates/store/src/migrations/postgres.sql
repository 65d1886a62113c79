-- Tables that only PostgreSQL needs. They are created before all migrations.

-- Its lock makes a transaction the only one that writes. It has no rows.
CREATE TABLE writer ();

-- The servers that use the database, and the number of the last transaction that each has committed.
CREATE TABLE servers (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,
    last_number BIGINT NOT NULL
);
