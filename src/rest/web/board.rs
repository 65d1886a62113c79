//! The task board of a project. It has a column for each state, and beside it a panel for a task or
//! a chat.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use super::changes::{CardResult, results};
use super::layout::{Frame, NavSection, rendered};
use super::shown::{Card, Face, Faces, When, leads_to, order_of};
use crate::domain::{AgentId, Project, ProjectId, Task, TaskId, TaskStatus};
use crate::rest::extract::{InPath, InQuery};
use crate::rest::{Problem, RestState};
use crate::service::TaskFilter;

/// The number of cards of a column that are shown at once. A reader can ask for more.
const MAX_CARDS: usize = 100;

#[derive(Template)]
#[template(path = "board.html")]
struct BoardPage {
    frame: Frame,
    project: Project,
    /// All active projects, and this one.
    projects: Vec<Project>,
    members: Vec<Face>,
    /// The agents that a person stopped here.
    held: Vec<AgentId>,
    paused_since: Option<When>,
    columns: Vec<Column>,
    n_tasks: usize,
    /// The part that the panel begins with.
    open: Option<String>,
}

#[derive(Template)]
#[template(path = "parts/board.html")]
struct BoardPart {
    frame: Frame,
    project: Project,
    columns: Vec<Column>,
}

#[derive(Template)]
#[template(path = "parts/board_avatars.html")]
struct AvatarsPart {
    frame: Frame,
    project: Project,
    members: Vec<Face>,
    held: Vec<AgentId>,
    paused_since: Option<When>,
}

#[derive(Template)]
#[template(path = "parts/cards.html")]
struct CardsPart {
    frame: Frame,
    project: ProjectId,
    status: TaskStatus,
    cards: Vec<Card>,
    more: Option<usize>,
}

#[derive(Template)]
#[template(path = "parts/changed_cards.html")]
struct ChangedCardsPart {
    frame: Frame,
    cards: Vec<Card>,
    /// The number of tasks in each state, as JSON.
    counts: String,
}

struct Column {
    status: TaskStatus,
    n_tasks: usize,
    cards: Vec<Card>,
    /// The index of the next cards, if not all are shown.
    more: Option<usize>,
}

/// The content that the panel of a board begins with.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PanelQuery {
    task: Option<TaskId>,
    chat: Option<AgentId>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FromQuery {
    #[serde(default)]
    from: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CardsQuery {
    /// Task ids, separated by commas.
    ids: String,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new()
        .route("/ui/projects/{project}", get(page))
        .route("/ui/parts/projects/{project}/board", get(board))
        .route("/ui/parts/projects/{project}/avatars", get(avatars))
        .route("/ui/parts/projects/{project}/column/{status}", get(column))
        .route("/ui/parts/projects/{project}/cards", get(cards))
}

async fn page(
    frame: Frame,
    State(state): State<RestState>,
    InPath(id): InPath<ProjectId>,
    InQuery(query): InQuery<PanelQuery>,
) -> Result<Response, Problem> {
    let (project, members) = state.service.catalog.project(&id).await?;
    let board = Board::read(&state, &id).await?;
    let projects = state.service.catalog.projects().await?.into_iter().map(|(project, _)| project);
    let projects =
        projects.filter(|other| other.id == id || other.status.as_str() == "active").collect();
    let open = match query {
        PanelQuery { task: Some(task), .. } => {
            let task = state.service.tasks.full_id(task).await?;
            Some(format!("/ui/parts/tasks/{task}"))
        }
        PanelQuery { chat: Some(agent), .. } => {
            Some(format!("/ui/parts/projects/{id}/agents/{agent}/chat"))
        }
        PanelQuery { task: None, chat: None } => None,
    };
    let (held, paused_since) = who_may_not_start(&state, &id).await?;
    Ok(rendered(&BoardPage {
        held,
        paused_since,
        frame: frame.at(NavSection::Projects),
        project,
        projects,
        members: board.faces.of_all(&members),
        columns: board.columns(),
        n_tasks: board.tasks.len(),
        open,
    }))
}

async fn board(
    frame: Frame,
    State(state): State<RestState>,
    InPath(id): InPath<ProjectId>,
) -> Result<Response, Problem> {
    let (project, _) = state.service.catalog.project(&id).await?;
    let columns = Board::read(&state, &id).await?.columns();
    Ok(rendered(&BoardPart { frame, project, columns }))
}

async fn avatars(
    frame: Frame,
    State(state): State<RestState>,
    InPath(id): InPath<ProjectId>,
) -> Result<Response, Problem> {
    let (project, members) = state.service.catalog.project(&id).await?;
    let faces =
        Faces::new(state.service.catalog.agents().await?, &state.service.launches.open().await?);
    let (held, paused_since) = who_may_not_start(&state, &id).await?;
    Ok(rendered(&AvatarsPart {
        frame,
        project,
        members: faces.of_all(&members),
        held,
        paused_since,
    }))
}

/// Returns the agents of a project that a person stopped, and the time since which no agent is
/// started at all.
async fn who_may_not_start(
    state: &RestState,
    project: &ProjectId,
) -> Result<(Vec<AgentId>, Option<When>), Problem> {
    let status = state.service.status().await?;
    let held = status.held.into_iter().filter(|record| record.key.project == *project);
    let held: BTreeSet<AgentId> = held.map(|record| record.key.agent).collect();
    Ok((held.into_iter().collect(), status.paused_since.map(When)))
}

async fn column(
    frame: Frame,
    State(state): State<RestState>,
    InPath((project, status)): InPath<(ProjectId, TaskStatus)>,
    InQuery(query): InQuery<FromQuery>,
) -> Result<Response, Problem> {
    let board = Board::read(&state, &project).await?;
    let (cards, more) = board.cards(status, query.from);
    Ok(rendered(&CardsPart { frame, project, status, cards, more }))
}

/// Returns the cards of tasks that changed. Tasks of other projects are left out.
async fn cards(
    frame: Frame,
    State(state): State<RestState>,
    InPath(project): InPath<ProjectId>,
    InQuery(query): InQuery<CardsQuery>,
) -> Result<Response, Problem> {
    let board = Board::read(&state, &project).await?;
    let ids: BTreeSet<&str> = query.ids.split(',').collect();
    // The cards of the parents and of the dependents show something about these tasks, so they are
    // included.
    let parents: BTreeSet<&TaskId> = board
        .tasks
        .iter()
        .filter(|task| ids.contains(task.id.as_str()))
        .filter_map(|task| task.parent.as_ref())
        .collect();
    let is_concerned = |task: &&Task| {
        ids.contains(task.id.as_str())
            || parents.contains(&task.id)
            || task.dependencies.iter().any(|id| ids.contains(id.as_str()))
    };
    let cards = board.tasks.iter().filter(is_concerned).map(|task| board.card(task));
    let counts: BTreeMap<&str, usize> = TaskStatus::ALL
        .iter()
        .map(|status| (status.as_str(), board.tasks_in(*status).count()))
        .collect();
    let counts = serde_json::json!(counts).to_string();
    Ok(rendered(&ChangedCardsPart { frame, cards: cards.collect(), counts }))
}

/// The data of a board.
struct Board {
    /// The tasks of the project, in the order of their columns.
    tasks: Vec<Task>,
    statuses: BTreeMap<TaskId, (TaskStatus, usize)>,
    parts: BTreeMap<TaskId, Vec<TaskStatus>>,
    results: BTreeMap<TaskId, CardResult>,
    faces: Faces,
}

impl Board {
    async fn read(state: &RestState, project: &ProjectId) -> Result<Self, Problem> {
        let filter = TaskFilter { project: Some(project.clone()), ..TaskFilter::default() };
        let mut tasks = state.service.tasks.list(&filter).await?;
        tasks.sort_by_cached_key(order_of);
        let statuses = tasks
            .iter()
            .enumerate()
            .map(|(at, task)| (task.id.clone(), (task.status, at)))
            .collect();
        let mut parts: BTreeMap<TaskId, Vec<TaskStatus>> = BTreeMap::new();
        for task in &tasks {
            if let Some(parent) = &task.parent {
                parts.entry(parent.clone()).or_default().push(task.status);
            }
        }
        let faces = Faces::new(
            state.service.catalog.agents().await?,
            &state.service.launches.open().await?,
        );
        let results = results(state, project).await?;
        Ok(Self { tasks, statuses, parts, results, faces })
    }

    fn tasks_in(&self, status: TaskStatus) -> impl Iterator<Item = &Task> {
        self.tasks.iter().filter(move |task| task.status == status)
    }

    fn columns(&self) -> Vec<Column> {
        let column = |status: TaskStatus| {
            let (cards, more) = self.cards(status, 0);
            Column { status, n_tasks: self.tasks_in(status).count(), cards, more }
        };
        TaskStatus::ALL.iter().copied().map(column).collect()
    }

    /// Returns the cards of a column from index `from`, and the index of the next ones.
    fn cards(&self, status: TaskStatus, from: usize) -> (Vec<Card>, Option<usize>) {
        let to = from.saturating_add(MAX_CARDS);
        let cards =
            self.tasks_in(status).skip(from).take(MAX_CARDS).map(|task| self.card(task)).collect();
        (cards, Some(to).filter(|to| self.tasks_in(status).nth(*to).is_some()))
    }

    fn card(&self, task: &Task) -> Card {
        let parts = self.parts.get(&task.id).map_or(&[][..], Vec::as_slice);
        let is_waited_for = |id: &&TaskId| {
            self.statuses.get(*id).is_none_or(|(status, _)| *status != TaskStatus::Done)
        };
        let is_cancelled = |id: &TaskId| {
            self.statuses.get(id).is_some_and(|(status, _)| *status == TaskStatus::Cancelled)
        };
        let is_start_wanted = task.start_wanted_since.is_some();
        let parent = task.parent.as_ref().and_then(|parent| self.statuses.get(parent));
        Card {
            id: task.id.clone(),
            short_id: task.short_id.clone(),
            title: task.title.clone(),
            status: task.status,
            priority: task.priority,
            assignee: task.assignee.as_ref().and_then(|agent| self.faces.of(agent)),
            parent: parent
                .and_then(|(_, at)| self.tasks.get(*at))
                .map(|parent| parent.title.clone()),
            n_parts: parts.len(),
            n_parts_done: parts.iter().filter(|status| !status.is_open()).count(),
            n_waits_for: if task.status.is_open() {
                task.dependencies.iter().filter(is_waited_for).count()
            } else {
                0
            },
            is_start_wanted,
            waits_for_cancelled: is_start_wanted && task.dependencies.iter().any(is_cancelled),
            blocked_reason: task.blocked_reason.clone(),
            result: self.results.get(&task.id).cloned(),
            order: order_of(task),
            leads_to: leads_to(task.status)
                .iter()
                .map(|to| to.as_str())
                .collect::<Vec<_>>()
                .join(" "),
        }
    }
}
