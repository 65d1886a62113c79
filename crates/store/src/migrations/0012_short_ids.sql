-- Short ids of tasks: the key of the project and a number. Numbers are given in the order of creation.
-- The program fills in the keys (`store/project_keys.rs`); until then each project has a text of its own.
ALTER TABLE projects ADD COLUMN project_key TEXT NOT NULL DEFAULT '';
ALTER TABLE projects ADD COLUMN is_key_edited BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE projects SET project_key = '-' || id;
CREATE UNIQUE INDEX projects_by_key ON projects (project_key);

-- A task whose project does not exist keeps the default.
ALTER TABLE tasks ADD COLUMN project_key TEXT NOT NULL DEFAULT 'PRJ';
ALTER TABLE tasks ADD COLUMN number BIGINT NOT NULL DEFAULT 0;
UPDATE tasks SET number = numbered.place
    FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY project_id ORDER BY created_at, id) AS place FROM tasks) AS numbered
    WHERE numbered.id = tasks.id;
CREATE UNIQUE INDEX tasks_by_number ON tasks (project_id, number);
-- The new index serves its queries.
DROP INDEX tasks_of_project;

-- Each key that a project has or had. A row stays when its project is deleted, so that no number comes back.
CREATE TABLE project_keys (
    key TEXT PRIMARY KEY NOT NULL,
    project_id TEXT NOT NULL,
    next_number BIGINT NOT NULL
);
CREATE INDEX project_keys_of_project ON project_keys (project_id);
