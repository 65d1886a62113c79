-- The way of an item's result to its repository, as JSON: the commit that the work begins at, the
-- branch that was pushed, and the pull or merge request.
ALTER TABLE forge_items ADD COLUMN publication TEXT;

-- Tasks of projects without clones may have one: those of items whose results are published.
CREATE INDEX workspaces_of_project ON workspaces (project_id);
