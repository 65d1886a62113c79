//! Finds what a person names on the command line or in a search field.

use domain::lookup::{Candidate, Completion, LookupKind, completions, named, numbers_that_begin};
use domain::{Project, ShortId, Task};
use store::rows::{agents, projects, tasks};
use store::{Read, StoreError};

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
                let candidates = candidates(tx, kind, |tx| tasks_of(tx, &text))?;
                let mut found = named(kind, &text, candidates);
                found.truncate(MAX_CANDIDATES);
                Ok(found)
            })
            .await
    }
}

/// The number of completions at most.
const MAX_COMPLETIONS: usize = 100;

impl Service {
    /// Returns what `text` may become; at most `MAX_COMPLETIONS`. Of many tasks these are the
    /// newest ones.
    pub async fn complete(
        &self,
        kind: LookupKind,
        text: &str,
    ) -> Result<Vec<Completion>, ServiceError> {
        let text = text.to_owned();
        self.core
            .read(move |tx| {
                let candidates = candidates(tx, kind, |tx| newest_tasks_of(tx, &text))?;
                let mut found = completions(kind, &text, candidates);
                found.truncate(MAX_COMPLETIONS);
                Ok(found)
            })
            .await
    }
}

/// Returns all agents or projects, or the tasks that `tasks` chooses.
fn candidates(
    tx: &mut Read<'_>,
    kind: LookupKind,
    tasks: impl FnOnce(&mut Read<'_>) -> Result<Vec<Candidate>, StoreError>,
) -> Result<Vec<Candidate>, StoreError> {
    match kind {
        LookupKind::Agent => agents_of(tx),
        LookupKind::Project => projects_of(tx),
        LookupKind::Task => tasks(tx),
    }
}

/// Returns the newest tasks whose short ids begin with a text, and those whose ids do.
fn newest_tasks_of(tx: &mut Read<'_>, text: &str) -> Result<Vec<Candidate>, StoreError> {
    let (key, digits) = match text.split_once('-') {
        Some((key, digits)) => (key, Some(digits)),
        None => (text, None),
    };
    let key = key.to_uppercase();
    let fits = |project: &&Project| match digits {
        Some(_) => project.key.as_str() == key,
        None => project.key.as_str().starts_with(&key),
    };
    let projects = projects::list(tx)?;
    let projects: Vec<&Project> = projects.iter().filter(fits).collect();
    let limit = MAX_COMPLETIONS.checked_div(projects.len()).unwrap_or_default().max(1);
    let mut found = Vec::new();
    for project in projects {
        for numbers in numbers_that_begin(digits.unwrap_or_default()) {
            found.extend(tasks::list_of_numbers(tx, &project.id, &numbers, limit)?);
        }
    }
    found.sort_by_key(|task| std::cmp::Reverse(task.created_at));
    if !text.is_empty() {
        let others = tasks::list_with_prefix(tx, text, MAX_COMPLETIONS)?;
        let is_new = |other: &Task| found.iter().all(|task| task.id != other.id);
        let others: Vec<Task> = others.into_iter().filter(is_new).collect();
        found.extend(others);
    }
    Ok(found.into_iter().map(candidate_of).collect())
}

fn candidate_of(task: Task) -> Candidate {
    Candidate {
        id: task.id.to_string(),
        short_id: Some(task.short_id.to_string()),
        name: task.title,
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
    let mut found: Vec<Candidate> = match text.parse::<ShortId>() {
        // The short id may have a key that its project had before.
        Ok(id) => tasks::find_short(tx, &id)?
            .map(|task| Candidate { short_id: Some(id.to_string()), ..candidate_of(task) })
            .into_iter()
            .collect(),
        Err(_) => Vec::new(),
    };
    let known = found.first().map(|task| task.id.clone());
    let others = tasks::list_with_prefix(tx, text, MAX_CANDIDATES)?.into_iter().map(candidate_of);
    found.extend(others.filter(|other| Some(&other.id) != known.as_ref()));
    Ok(found)
}
