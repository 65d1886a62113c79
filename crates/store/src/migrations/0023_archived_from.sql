-- The status that an archived agent or project had before, and has again if it is unarchived.
ALTER TABLE agents ADD COLUMN archived_from TEXT;
ALTER TABLE projects ADD COLUMN archived_from TEXT;
