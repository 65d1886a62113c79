-- The path of the pause file in the row of its pause. The row of people has none.
ALTER TABLE pauses ADD COLUMN file TEXT;
