-- What people did with the conditions that need a person: they put one off until a time, or marked
-- it as done (NULL). The conditions themselves are derived from the other tables.
CREATE TABLE attention_marks (
    item TEXT NOT NULL,
    person TEXT NOT NULL,
    until BIGINT,
    PRIMARY KEY (item, person)
);
