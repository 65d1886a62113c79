//! The values that a property of a task can get, for the list from which a person picks one.

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use super::layout::{Frame, rendered};
use super::shown::{Face, Faces};
use super::tasks::task_ids;
use super::words::Words;
use crate::extract::{InPath, InQuery};
use crate::{Problem, RestState};
use domain::task::Relation;
use domain::{Priority, ProjectId, ShortId, Task, TaskId, TaskStatus};

/// The number of values that are shown. A reader who wants another one writes a part of its name.
const MAX_CHOICES: usize = 30;

#[derive(Template)]
#[template(path = "parts/choices.html")]
struct ChoicesPart {
    frame: Frame,
    property: Property,
    /// The text that was searched for.
    q: String,
    /// The revision of the task that the values are based on; `None` for a task that is not made
    /// yet.
    revision: Option<i64>,
    choices: Vec<Choice>,
}

/// A property whose value is one of many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Property {
    Assignee,
    Priority,
    Parent,
    Dependencies,
}

impl Property {
    /// Returns the name of the field that is posted.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Assignee => "assignee",
            Self::Priority => "priority",
            Self::Parent => "parent",
            Self::Dependencies => "dependencies",
        }
    }

    pub(super) const fn text(self, w: &'static Words) -> &'static str {
        match self {
            Self::Assignee => w.assignee,
            Self::Priority => w.priority,
            Self::Parent => w.parent(),
            Self::Dependencies => w.dependencies,
        }
    }
}

/// A value that a person can pick.
struct Choice {
    /// The content of the field.
    value: String,
    text: String,
    /// The task has this value now. Picking a dependency that it has takes it away.
    is_chosen: bool,
    mark: ChoiceMark,
}

/// The mark beside the text of a value.
enum ChoiceMark {
    Nothing,
    Agent(Face),
    Priority(Priority),
    Task(TaskStatus, ShortId),
}

impl Choice {
    const fn nothing(text: String, is_chosen: bool) -> Self {
        Self { value: String::new(), text, is_chosen, mark: ChoiceMark::Nothing }
    }

    fn of_task(task: &Task, value: String, is_chosen: bool) -> Self {
        let mark = ChoiceMark::Task(task.status, task.short_id.clone());
        Self { value, text: task.title.clone(), is_chosen, mark }
    }
}

#[derive(Debug, Deserialize)]
struct ChoicesQuery {
    #[serde(default)]
    q: String,
}

#[derive(Debug, Deserialize)]
struct NewChoicesQuery {
    #[serde(default)]
    q: String,
    /// The tasks that were picked already.
    #[serde(default)]
    dependencies: String,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new()
        .route("/ui/parts/tasks/{id}/choices/{property}", get(part))
        .route("/ui/parts/projects/{project}/choices/dependencies", get(part_of_new))
}

async fn part(
    frame: Frame,
    State(state): State<RestState>,
    InPath((id, property)): InPath<(TaskId, Property)>,
    InQuery(ChoicesQuery { q }): InQuery<ChoicesQuery>,
) -> Result<Response, Problem> {
    let id = state.service.tasks.full_id(id).await?;
    let task = state.service.tasks.get(&id).await?;
    let mut choices = match property {
        Property::Assignee => assignees(frame.w, &state, &task, &q).await?,
        Property::Priority => priorities(frame.w, &task, &q),
        Property::Parent => parents(frame.w, &state, &task, &q).await?,
        Property::Dependencies => {
            dependencies(&state, &task.project, Some(&task.id), &task.dependencies, &q).await?
        }
    };
    choices.truncate(MAX_CHOICES);
    Ok(rendered(&ChoicesPart { frame, property, q, revision: Some(task.revision), choices }))
}

/// Returns the tasks that a new task may wait for.
async fn part_of_new(
    frame: Frame,
    State(state): State<RestState>,
    InPath(project): InPath<ProjectId>,
    InQuery(NewChoicesQuery { q, dependencies: chosen }): InQuery<NewChoicesQuery>,
) -> Result<Response, Problem> {
    let chosen = task_ids("dependencies", &chosen, &state).await?;
    // A task may have gone since it was picked.
    let chosen: Vec<TaskId> =
        state.service.tasks.list_of_ids(&chosen).await?.into_iter().map(|task| task.id).collect();
    let mut choices = dependencies(&state, &project, None, &chosen, &q).await?;
    choices.truncate(MAX_CHOICES);
    let property = Property::Dependencies;
    Ok(rendered(&ChoicesPart { frame, property, q, revision: None, choices }))
}

async fn assignees(
    w: &'static Words,
    state: &RestState,
    task: &Task,
    q: &str,
) -> Result<Vec<Choice>, Problem> {
    let (project, members) = state.service.catalog.project(&task.project).await?;
    let faces = Faces::read(state, &project.id).await?;
    let part = q.trim().to_lowercase();
    let is_found = |face: &Face| {
        face.name.to_lowercase().contains(&part) || face.id.as_str().to_lowercase().contains(&part)
    };
    let nobody = Choice::nothing(w.nobody.to_owned(), task.assignee.is_none());
    let of_agents = faces.of_all(&members).into_iter().filter(is_found).map(|face| Choice {
        value: face.id.to_string(),
        text: face.name.clone(),
        is_chosen: task.assignee.as_ref() == Some(&face.id),
        mark: ChoiceMark::Agent(face),
    });
    Ok(Some(nobody).filter(|_| part.is_empty()).into_iter().chain(of_agents).collect())
}

fn priorities(w: &'static Words, task: &Task, q: &str) -> Vec<Choice> {
    let part = q.trim().to_lowercase();
    let choice = |priority: &Priority| Choice {
        value: priority.to_string(),
        text: w.of_priority(*priority).to_owned(),
        is_chosen: task.priority == *priority,
        mark: ChoiceMark::Priority(*priority),
    };
    // The most urgent one is the first, as in a column.
    let all = Priority::ALL.iter().rev().map(choice);
    all.filter(|choice| choice.text.to_lowercase().contains(&part)).collect()
}

async fn parents(
    w: &'static Words,
    state: &RestState,
    task: &Task,
    q: &str,
) -> Result<Vec<Choice>, Problem> {
    let nothing = Choice::nothing(w.nothing().to_owned(), task.parent.is_none());
    let tasks = &state.service.tasks;
    let found =
        tasks.list_relatable(&task.project, Some(&task.id), Relation::Parent, q, MAX_CHOICES);
    let of_tasks = found.await?.into_iter().map(|other| {
        Choice::of_task(&other, other.id.to_string(), task.parent.as_ref() == Some(&other.id))
    });
    Ok(Some(nothing).filter(|_| q.trim().is_empty()).into_iter().chain(of_tasks).collect())
}

/// Returns the content of a field with several tasks.
fn listed<'a>(ids: impl Iterator<Item = &'a TaskId>) -> String {
    ids.map(TaskId::as_str).collect::<Vec<_>>().join(" ")
}

/// Returns the tasks that a task waits for, and then others that it may wait for.
async fn dependencies(
    state: &RestState,
    project: &ProjectId,
    task: Option<&TaskId>,
    chosen: &[TaskId],
    q: &str,
) -> Result<Vec<Choice>, Problem> {
    let tasks = &state.service.tasks;
    let without = |id: &TaskId| listed(chosen.iter().filter(|other| *other != id));
    let with = |id: &TaskId| listed(chosen.iter().chain([id]));
    let mut choices = Vec::new();
    if q.trim().is_empty() {
        let shown = tasks.list_of_ids(chosen).await?;
        choices.extend(shown.iter().map(|other| Choice::of_task(other, without(&other.id), true)));
    }
    let found = tasks.list_relatable(project, task, Relation::Dependency, q, MAX_CHOICES);
    for other in found.await? {
        let is_chosen = chosen.contains(&other.id);
        if is_chosen && !q.trim().is_empty() {
            choices.push(Choice::of_task(&other, without(&other.id), true));
        } else if !is_chosen {
            choices.push(Choice::of_task(&other, with(&other.id), false));
        }
    }
    Ok(choices)
}
