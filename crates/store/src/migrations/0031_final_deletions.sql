-- A deletion is final. Those that could still be undone are finished here. `deleted_names` has all that was ever deleted, and no id is
-- given again.
DELETE FROM executions WHERE task_id IN (SELECT object_id FROM deleted_names WHERE kind = 'task');
DELETE FROM checks WHERE task_id IN (SELECT object_id FROM deleted_names WHERE kind = 'task');
DELETE FROM comments WHERE task_id IN (SELECT object_id FROM deleted_names WHERE kind = 'task');
DELETE FROM messages WHERE agent_id IN (SELECT object_id FROM deleted_names WHERE kind = 'agent');
DELETE FROM messages WHERE project_id IN (SELECT object_id FROM deleted_names WHERE kind = 'project');
DELETE FROM pairs WHERE agent_id IN (SELECT object_id FROM deleted_names WHERE kind = 'agent');
DELETE FROM pairs WHERE project_id IN (SELECT object_id FROM deleted_names WHERE kind = 'project');
DELETE FROM creation_digests WHERE EXISTS (
    SELECT 1 FROM deleted_names
    WHERE deleted_names.kind = creation_digests.kind AND deleted_names.object_id = creation_digests.object_id
);
DELETE FROM workspaces WHERE state = 'wanted' AND content IS NULL
    AND task_id IN (SELECT object_id FROM deleted_names WHERE kind = 'task');
-- Their files go at once, and what was kept of them 14 days later.
UPDATE workspaces SET
    discarded_at = COALESCE(discarded_at, (SELECT MAX(deleted_at) FROM deletions)),
    forever_at = COALESCE(forever_at, (SELECT MAX(deleted_at) FROM deletions)),
    revision = revision + 1
WHERE forever_at IS NULL AND task_id IN (SELECT object_id FROM deleted_names WHERE kind = 'task');
DROP TABLE deletions;
-- Launches of a deleted project may be left. They are removed in parts, with their output.
ALTER TABLE deleted_names ADD COLUMN has_launches BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE deleted_names SET has_launches = TRUE WHERE kind = 'project';
