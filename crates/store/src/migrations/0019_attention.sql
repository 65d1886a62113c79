-- What people did with the conditions that need a person: they put one off until a time, or marked
-- it as done (NULL). The conditions themselves are derived from the other tables.
CREATE TABLE attention_marks (
    item TEXT NOT NULL,
    person TEXT NOT NULL,
    until BIGINT,
    marked_at BIGINT NOT NULL,
    PRIMARY KEY (item, person)
);

-- The time of the first of the failures in a row of an account.
ALTER TABLE accounts ADD COLUMN parked_first BIGINT;

CREATE INDEX tasks_blocked ON tasks (id) WHERE status = 'blocked';
