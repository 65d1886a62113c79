//! Fills in the keys of the projects of an older database. SQL alone cannot make them.

use std::collections::BTreeSet;

use domain::{ProjectId, ProjectKey};

/// Runs statements during a migration. `$1` is the first parameter.
pub(super) trait Migrating {
    type Error;

    /// Returns the first two columns of a query.
    fn pairs(&mut self, sql: &str) -> Result<Vec<(String, String)>, Self::Error>;

    fn run(&mut self, sql: &str, args: &[&str]) -> Result<(), Self::Error>;
}

/// Gives each project a key, the oldest project first, and each task the key of its project.
///
/// # Errors
/// A failed statement.
pub(super) fn fill<D: Migrating>(db: &mut D) -> Result<(), D::Error> {
    let mut taken = BTreeSet::new();
    for (id, name) in db.pairs("SELECT id, name FROM projects ORDER BY created_at, id")? {
        // The store has never written another id.
        let Ok(project) = id.parse::<ProjectId>() else { continue };
        let key = ProjectKey::candidates(&name, &project).find(|key| !taken.contains(key));
        let key = key.expect("the candidates do not end");
        for sql in [
            "UPDATE projects SET project_key = $1 WHERE id = $2",
            "UPDATE tasks SET project_key = $1 WHERE project_id = $2",
            "INSERT INTO project_keys (key, project_id, next_number) \
                SELECT $1, $2, COALESCE(MAX(number), 0) + 1 FROM tasks WHERE project_id = $2",
        ] {
            db.run(sql, &[key.as_str(), &id])?;
        }
        taken.insert(key);
    }
    Ok(())
}
