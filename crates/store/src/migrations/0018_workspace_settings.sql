-- What a project sets for its workspaces in place of the configuration.
ALTER TABLE projects ADD COLUMN workspace_base TEXT;
ALTER TABLE projects ADD COLUMN workspace_branch TEXT;

-- The branch of the project's repository that has the result, and the commit that it got last.
ALTER TABLE workspaces ADD COLUMN published_branch TEXT;
ALTER TABLE workspaces ADD COLUMN published_commit TEXT;
