//! The task board of a project. It has a column for each state, and beside it a panel for a task or
//! a chat.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use super::banners::Banner;
use super::changes::{CardResult, results};
use super::first_run::FirstRun;
use super::layout::{Frame, NavSection, rendered};
use super::shown::{Card, Count, Face, Faces, Now, Since, cost_of, leads_to_words, order_of};
use super::tasks::Tab;
use super::today::Days;
use super::words::Words;
use crate::extract::{InPath, InQuery};
use crate::{Problem, RestState};
use domain::task::{BoardFilter, TaskNeeds};
use domain::workspace::MergeStep;
use domain::{AgentId, Priority, Project, ProjectId, Task, TaskId, TaskStatus};
use service::{Standings, TaskFilter};

/// The number of cards of a column that are shown at once. A reader can ask for more.
const MAX_CARDS: usize = 30;
/// The number of avatars in the tools.
const MAX_AVATARS: usize = 5;
/// The states that a new task may have.
pub(super) const NEW_STATUSES: [TaskStatus; 3] =
    [TaskStatus::Backlog, TaskStatus::Todo, TaskStatus::InProgress];

#[derive(Template)]
#[template(path = "board.html")]
struct BoardPage {
    frame: Frame,
    project: Project,
    members: Members,
    /// The worst first.
    banners: Vec<Banner>,
    now: BoardNow,
    columns: Vec<Column>,
    n_tasks: usize,
    n_needing_person: usize,
    n_to_merge: usize,
    /// The filter as the address has it.
    query: BoardQuery,
    is_searched: bool,
    /// The number of tasks that match it.
    n_found: usize,
    /// The part that the panel begins with.
    open: Option<String>,
    /// The steps to the first task of the project, which are shown instead of the columns.
    first_run: Option<FirstRun>,
}

#[derive(Template)]
#[template(path = "parts/board.html")]
struct BoardPart {
    frame: Frame,
    project: Project,
    columns: Vec<Column>,
    n_needing_person: usize,
    n_to_merge: usize,
    is_searched: bool,
    n_found: usize,
}

#[derive(Template)]
#[template(path = "parts/board_avatars.html")]
struct AvatarsPart {
    frame: Frame,
    project: Project,
    members: Members,
    banners: Vec<Banner>,
    /// The filter that the form shows. A page keeps its form, so a part has none.
    query: BoardQuery,
    n_needing_person: usize,
    n_to_merge: usize,
}

/// The agents of a project, in the tools of its board.
struct Members {
    all: Vec<Face>,
}

impl Members {
    /// Returns those whose avatars are shown.
    fn shown(&self) -> &[Face] {
        &self.all[..self.all.len().min(MAX_AVATARS)]
    }

    fn n_more(&self) -> usize {
        self.all.len().saturating_sub(MAX_AVATARS)
    }
}

#[derive(Template)]
#[template(path = "parts/board_now.html")]
struct BoardNowPart {
    frame: Frame,
    project: Project,
    now: BoardNow,
}

/// The running agents and the cost of a project, which its board shows beside the name.
struct BoardNow {
    n_running: usize,
    /// The cost since midnight, if there is any.
    spent: Option<String>,
    /// The name of the time zone of that midnight.
    zone: String,
}

impl BoardNow {
    async fn read(state: &RestState, project: &ProjectId) -> Result<Self, Problem> {
        let open = state.service.launches.open().await?;
        let here = || open.iter().filter(|launch| launch.key.project == *project);
        let days = Days::here();
        let since = days.start_of(state.service.time());
        let ended = state.service.launches.usage_since(project, since).await?;
        let usage = here().fold(ended, |sum, launch| sum.plus(launch.activity.usage));
        Ok(Self {
            n_running: here().filter(|launch| launch.pid.is_some()).count(),
            spent: cost_of(&usage),
            zone: days.zone().to_owned(),
        })
    }
}

#[derive(Template)]
#[template(path = "parts/cards.html")]
struct CardsPart {
    frame: Frame,
    project: Project,
    status: TaskStatus,
    cards: Vec<Card>,
    more: Option<String>,
}

#[derive(Template)]
#[template(path = "parts/changed_cards.html")]
struct ChangedCardsPart {
    frame: Frame,
    project: Project,
    cards: Vec<Card>,
    /// The number of tasks in each state, as JSON.
    counts: String,
    n_needing_person: usize,
    n_to_merge: usize,
}

struct Column {
    status: TaskStatus,
    n_tasks: usize,
    cards: Vec<Card>,
    /// The sort key of the last card, if not all are shown.
    more: Option<String>,
    /// It has the results that the filter asks for.
    is_wanted: bool,
    /// A phone shows it first.
    is_first: bool,
}

impl Column {
    /// Returns the columns that a card of this one can be moved to.
    fn leads_to(&self) -> String {
        leads_to_words(self.status)
    }

    /// Returns the width of the board below which the column is folded: `wide` or `auto`. `None` for
    /// a column that is always open.
    const fn fold(&self) -> Option<&'static str> {
        match self.status {
            TaskStatus::Backlog | TaskStatus::Cancelled => Some("wide"),
            TaskStatus::Done if !self.is_wanted => Some("auto"),
            TaskStatus::Done | TaskStatus::Todo | TaskStatus::InProgress | TaskStatus::Blocked => {
                None
            }
        }
    }

    /// Returns whether a new task may have this state.
    fn may_begin(&self) -> bool {
        NEW_STATUSES.contains(&self.status)
    }
}

/// The address of a board: what is searched for, and the content that the panel begins with.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct BoardQuery {
    task: Option<TaskId>,
    /// The part of the task that the panel shows.
    tab: Tab,
    chat: Option<AgentId>,
    q: String,
    /// The id of an agent; empty for all.
    assignee: String,
    /// A priority; empty for all.
    priority: String,
    /// `person` for the tasks that only a person can help.
    needs: String,
    /// `wanted` for the tasks whose results wait for a person.
    merge: String,
    /// The sort key of the last card of a column that is shown. It has the id of the task, and
    /// leads on also if the card is in another place now.
    after: String,
    /// The ids of tasks that changed, separated by commas.
    ids: String,
}

impl BoardQuery {
    /// Returns the filter. Values that do not exist choose nothing.
    fn filter(&self) -> BoardFilter {
        let mut filter = BoardFilter::parse(&self.q);
        filter.assignee = self.assignee.parse().ok();
        filter.priority = filter.priority.or_else(|| self.priority.parse().ok());
        filter.needs_person |= self.needs == "person";
        filter.to_merge |= self.merge == "wanted";
        filter
    }
}

pub(super) fn routes() -> Router<RestState> {
    Router::new()
        .route("/ui/projects/{project}", get(page))
        .route("/ui/parts/projects/{project}/board", get(board))
        .route("/ui/parts/projects/{project}/avatars", get(avatars))
        .route("/ui/parts/projects/{project}/now", get(now))
        .route("/ui/parts/projects/{project}/column/{status}", get(column))
        .route("/ui/parts/projects/{project}/cards", get(cards))
}

async fn page(
    frame: Frame,
    State(state): State<RestState>,
    InPath(id): InPath<ProjectId>,
    InQuery(query): InQuery<BoardQuery>,
) -> Result<Response, Problem> {
    let (project, members) = state.service.catalog.project(&id).await?;
    let board = Board::read(&frame, &state, &id, query.filter()).await?;
    let open = match &query {
        BoardQuery { task: Some(task), tab, .. } => {
            let task = state.service.tasks.full_id(task.clone()).await?;
            Some(format!("/ui/parts/tasks/{task}?tab={}", tab.as_str()))
        }
        BoardQuery { chat: Some(agent), .. } => {
            Some(format!("/ui/parts/projects/{id}/agents/{agent}/chat"))
        }
        BoardQuery { task: None, chat: None, .. } => None,
    };
    let first_run = if board.tasks.is_empty() {
        FirstRun::of_project(&frame, &state, &project, &members).await?
    } else {
        None
    };
    Ok(rendered(&BoardPage {
        banners: banners(&frame, &state, &id).await?,
        now: BoardNow::read(&state, &id).await?,
        n_needing_person: board.n_needing_person(),
        n_to_merge: board.merge_steps.len(),
        first_run,
        frame: frame.at(NavSection::Projects),
        project,
        members: Members { all: board.faces.of_all(&members) },
        columns: board.columns(&state).await?,
        n_tasks: board.tasks.len(),
        is_searched: !board.filter.is_empty(),
        n_found: board.n_found(),
        query,
        open,
    }))
}

/// Returns the columns. The address of the page names what is searched for.
async fn board(
    frame: Frame,
    State(state): State<RestState>,
    InPath(id): InPath<ProjectId>,
    InQuery(query): InQuery<BoardQuery>,
) -> Result<Response, Problem> {
    let (project, _) = state.service.catalog.project(&id).await?;
    let board = Board::read(&frame, &state, &id, query.filter()).await?;
    let columns = board.columns(&state).await?;
    let is_searched = !board.filter.is_empty();
    let n_found = board.n_found();
    Ok(rendered(&BoardPart {
        frame,
        project,
        columns,
        n_needing_person: board.n_needing_person(),
        n_to_merge: board.merge_steps.len(),
        is_searched,
        n_found,
    }))
}

async fn avatars(
    frame: Frame,
    State(state): State<RestState>,
    InPath(id): InPath<ProjectId>,
) -> Result<Response, Problem> {
    let (project, members) = state.service.catalog.project(&id).await?;
    let in_progress = TaskFilter {
        project: Some(id.clone()),
        status: Some(TaskStatus::InProgress),
        ..TaskFilter::default()
    };
    let tasks = state.service.tasks.list(&in_progress).await?;
    let standings = Standings::read(&state.service, &tasks).await?;
    let faces = Faces::read(&state, &id).await?.with_waits(&standings);
    Ok(rendered(&AvatarsPart {
        banners: banners(&frame, &state, &id).await?,
        members: Members { all: faces.of_all(&members) },
        frame,
        project,
        query: BoardQuery::default(),
        n_needing_person: 0,
        n_to_merge: 0,
    }))
}

async fn now(
    frame: Frame,
    State(state): State<RestState>,
    InPath(id): InPath<ProjectId>,
) -> Result<Response, Problem> {
    let (project, _) = state.service.catalog.project(&id).await?;
    let now = BoardNow::read(&state, &id).await?;
    Ok(rendered(&BoardNowPart { frame, project, now }))
}

/// Returns the banners of a board, the worst first: no coordinator, a pause of all starts, and
/// several agents in its directory.
async fn banners(
    frame: &Frame,
    state: &RestState,
    project: &ProjectId,
) -> Result<Vec<Banner>, Problem> {
    let w = frame.w;
    let paused_since = state.service.launches.paused_since().await?;
    let paused = paused_since.map(|since| Banner::paused(w.paused_since, Since(since)));
    let status = state.service.status().await?;
    let has_coordinator = status.coordinators.iter().any(|each| each.is_there);
    let absent = (!has_coordinator).then(|| Banner::bad(w.no_coordinator));
    let mut crowds = status.coordinators.iter().flat_map(|each| &each.status.crowds);
    let is_crowded = crowds.any(|crowd| crowd.concerns(project));
    let crowded =
        is_crowded.then(|| Banner { href: Some("/ui/operations"), ..Banner::note(w.crowd) });
    Ok(absent.into_iter().chain(paused).chain(crowded).collect())
}

async fn column(
    frame: Frame,
    State(state): State<RestState>,
    InPath((id, status)): InPath<(ProjectId, TaskStatus)>,
    InQuery(query): InQuery<BoardQuery>,
) -> Result<Response, Problem> {
    let (project, _) = state.service.catalog.project(&id).await?;
    let board = Board::read(&frame, &state, &id, query.filter()).await?;
    let (mut cards, more) = board.cards(status, &query.after);
    put_costs(&state, cards.iter_mut()).await?;
    Ok(rendered(&CardsPart { frame, project, status, cards, more }))
}

/// Returns the cards of tasks that changed. Tasks of other projects are left out.
async fn cards(
    frame: Frame,
    State(state): State<RestState>,
    InPath(id): InPath<ProjectId>,
    InQuery(query): InQuery<BoardQuery>,
) -> Result<Response, Problem> {
    let (project, _) = state.service.catalog.project(&id).await?;
    let board = Board::read(&frame, &state, &id, query.filter()).await?;
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
    let is_shown = |task: &&Task| is_concerned(task) && board.is_found(task);
    let cards = board.tasks.iter().filter(is_shown).map(|task| board.card(task));
    let counts: BTreeMap<&str, usize> = TaskStatus::ALL
        .iter()
        .map(|status| (status.as_str(), board.tasks_in(*status).count()))
        .collect();
    let counts = serde_json::json!(counts).to_string();
    let n_needing_person = board.n_needing_person();
    let n_to_merge = board.merge_steps.len();
    let mut cards: Vec<Card> = cards.collect();
    put_costs(&state, cards.iter_mut()).await?;
    Ok(rendered(&ChangedCardsPart { frame, project, cards, counts, n_needing_person, n_to_merge }))
}

/// The data of a board.
struct Board {
    /// The tasks of the project, in the order of their columns.
    tasks: Vec<Task>,
    statuses: BTreeMap<TaskId, TaskStatus>,
    parts: BTreeMap<TaskId, Vec<TaskStatus>>,
    results: BTreeMap<TaskId, CardResult>,
    /// The next steps with the results that wait for a person.
    merge_steps: BTreeMap<TaskId, MergeStep>,
    faces: Faces,
    standings: Standings,
    w: &'static Words,
    filter: BoardFilter,
}

impl Board {
    async fn read(
        frame: &Frame,
        state: &RestState,
        project: &ProjectId,
        filter: BoardFilter,
    ) -> Result<Self, Problem> {
        let of_project = TaskFilter { project: Some(project.clone()), ..TaskFilter::default() };
        let mut tasks = state.service.tasks.list(&of_project).await?;
        tasks.sort_by_cached_key(order_of);
        let statuses = tasks.iter().map(|task| (task.id.clone(), task.status)).collect();
        let mut parts: BTreeMap<TaskId, Vec<TaskStatus>> = BTreeMap::new();
        for task in &tasks {
            if let Some(parent) = &task.parent {
                parts.entry(parent.clone()).or_default().push(task.status);
            }
        }
        // Archived tasks have no cards, and others may depend on them.
        tasks.retain(|task| task.archived_at.is_none());
        let faces = Faces::read(state, project).await?;
        let faces = faces.with_deleted(state.service.removals.names().await?);
        let results = results(state, project).await?;
        let mut merge_steps = state.service.workspaces.merge_steps(Some(project)).await?;
        // Nothing is left to merge of these.
        merge_steps.retain(|_, step| *step != MergeStep::Compare);
        let standings = Standings::read(&state.service, &tasks).await?;
        let faces = faces.with_waits(&standings);
        let w = frame.w;
        Ok(Self { tasks, statuses, parts, results, merge_steps, faces, standings, w, filter })
    }

    fn tasks_in(&self, status: TaskStatus) -> impl Iterator<Item = &Task> {
        self.tasks.iter().filter(move |task| task.status == status && self.is_found(task))
    }

    fn is_found(&self, task: &Task) -> bool {
        let agent = task.assignee.as_ref().and_then(|agent| self.faces.of(agent));
        let name = agent.as_ref().map(|agent| agent.name.as_str());
        self.filter.is_empty() || self.filter.matches(task, name, || self.needs_of(task))
    }

    fn needs_of(&self, task: &Task) -> TaskNeeds {
        let merge = self.merge_steps.contains_key(&task.id);
        TaskNeeds { person: self.needs_person(task), merge }
    }

    fn needs_person(&self, task: &Task) -> bool {
        self.standings.waiting(task).is_some_and(|waiting| waiting.needs_person())
    }

    /// Returns the number of tasks that only a person can help, for any filter.
    fn n_needing_person(&self) -> usize {
        self.tasks.iter().filter(|task| self.needs_person(task)).count()
    }

    fn n_found(&self) -> usize {
        self.tasks.iter().filter(|task| self.is_found(task)).count()
    }

    async fn columns(&self, state: &RestState) -> Result<Vec<Column>, Problem> {
        let is_of_results = self.filter.to_merge && !self.filter.needs_person;
        let first = if is_of_results { TaskStatus::Done } else { TaskStatus::InProgress };
        let column = |status: TaskStatus| {
            let (cards, more) = self.cards(status, "");
            let n_tasks = self.tasks_in(status).count();
            let is_wanted = status == TaskStatus::Done && self.filter.to_merge;
            Column { status, n_tasks, cards, more, is_wanted, is_first: status == first }
        };
        let mut columns: Vec<Column> = TaskStatus::ALL.iter().copied().map(column).collect();
        put_costs(state, columns.iter_mut().flat_map(|column| &mut column.cards)).await?;
        Ok(columns)
    }

    /// Returns the cards of a column after the sort key of one, and the sort key of the last of
    /// them if there are more.
    fn cards(&self, status: TaskStatus, after: &str) -> (Vec<Card>, Option<String>) {
        let mut tasks =
            self.tasks_in(status).skip_while(|task| order_of(task).as_str() <= after).peekable();
        let cards: Vec<Card> = tasks.by_ref().take(MAX_CARDS).map(|task| self.card(task)).collect();
        let last = cards.last().map(|card| card.order.clone());
        (cards, last.filter(|_| tasks.peek().is_some()))
    }

    fn card(&self, task: &Task) -> Card {
        let parts = self.parts.get(&task.id).map_or(&[][..], Vec::as_slice);
        let is_waited_for =
            |id: &&TaskId| self.statuses.get(*id).is_none_or(|status| *status != TaskStatus::Done);
        let is_cancelled = |id: &TaskId| {
            self.statuses.get(id).is_some_and(|status| *status == TaskStatus::Cancelled)
        };
        Card {
            id: task.id.clone(),
            short_id: task.short_id.clone(),
            title: task.title.clone(),
            status: task.status,
            priority: task.priority,
            assignee: task.assignee.as_ref().and_then(|agent| self.faces.of(agent)),
            n_parts: parts.len(),
            n_parts_done: parts.iter().filter(|status| !status.is_open()).count(),
            n_waits_for: if task.status.is_open() {
                task.dependencies.iter().filter(is_waited_for).count()
            } else {
                0
            },
            waits_for_cancelled: task.start_wanted_since.is_some()
                && task.dependencies.iter().any(is_cancelled),
            starts_later: task.start_wanted_since.is_some(),
            now: Now::of(self.w, &self.standings, task),
            result: self.results.get(&task.id).cloned(),
            merge_step: self.merge_steps.get(&task.id).copied(),
            cost: None,
            order: order_of(task),
            leads_to: leads_to_words(task.status),
        }
    }
}

/// Puts the costs of their launches on the cards that are shown.
async fn put_costs(
    state: &RestState,
    cards: impl Iterator<Item = &mut Card>,
) -> Result<(), Problem> {
    let cards: Vec<&mut Card> = cards.collect();
    let tasks = cards.iter().map(|card| card.id.clone()).collect();
    let usage = state.service.launches.usage_of_tasks(tasks).await?;
    for card in cards {
        card.cost = usage.get(&card.id).and_then(cost_of);
    }
    Ok(())
}
