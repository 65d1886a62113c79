//! Finds what a person names on the command line or in a search field.

use crate::domain::lookup::{Candidate, LookupKind, named};
use crate::domain::{ShortId, Task};
use crate::rows::{agents, projects, tasks};
use crate::store::{Read, StoreError};

use super::{Service, ServiceError};

/// The number of tasks whose ids are compared with the beginning of an id. A caller shows some of
/// them, and tells that there are more.
pub const MAX_CANDIDATES: usize = 11;

impl Service {
    /// Returns the agents, projects or tasks that `text` names; one if it is unambiguous. There are
    /// at most `MAX_CANDIDATES`.
    pub async fn look_up(
        &self,
        kind: LookupKind,
        text: &str,
    ) -> Result<Vec<Candidate>, ServiceError> {
        let text = text.to_owned();
        self.core
            .read(move |tx| {
                let candidates = match kind {
                    LookupKind::Agent => agents_of(tx)?,
                    LookupKind::Project => projects_of(tx)?,
                    LookupKind::Task => tasks_of(tx, &text)?,
                };
                let mut found = named(kind, &text, candidates);
                found.truncate(MAX_CANDIDATES);
                Ok(found)
            })
            .await
    }
}

fn agents_of(tx: &mut Read<'_>) -> Result<Vec<Candidate>, StoreError> {
    let agents = agents::list(tx)?.into_iter();
    let candidates = agents.map(|agent| Candidate {
        id: agent.id.to_string(),
        short_id: None,
        name: agent.name,
    });
    Ok(candidates.collect())
}

fn projects_of(tx: &mut Read<'_>) -> Result<Vec<Candidate>, StoreError> {
    let projects = projects::list(tx)?.into_iter();
    let candidates = projects.map(|project| Candidate {
        id: project.id.to_string(),
        short_id: Some(project.key.to_string()),
        name: project.name,
    });
    Ok(candidates.collect())
}

/// Returns the task with a short id, and those whose ids begin with a text.
fn tasks_of(tx: &mut Read<'_>, text: &str) -> Result<Vec<Candidate>, StoreError> {
    let candidate = |task: Task| Candidate {
        id: task.id.to_string(),
        short_id: Some(task.short_id.to_string()),
        name: task.title,
    };
    let mut found: Vec<Candidate> = match text.parse::<ShortId>() {
        // The short id may have a key that its project had before.
        Ok(id) => tasks::find_short(tx, &id)?
            .map(|task| Candidate { short_id: Some(id.to_string()), ..candidate(task) })
            .into_iter()
            .collect(),
        Err(_) => Vec::new(),
    };
    let known = found.first().map(|task| task.id.clone());
    let others = tasks::list_with_prefix(tx, text, MAX_CANDIDATES)?.into_iter().map(candidate);
    found.extend(others.filter(|other| Some(&other.id) != known.as_ref()));
    Ok(found)
}
