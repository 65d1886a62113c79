//! The pages of launches: the list, and the life of one launch with its output.

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;

use super::layout::{Frame, NavSection, rendered};
use super::names::Names;
use super::shown::{LaunchRow, Took, When, cost_of, is_bad};
use crate::domain::{
    AgentId, Language, Launch, LaunchId, LaunchState, ProjectId, Purpose, ShortId,
};
use crate::rest::extract::{InPath, InQuery};
use crate::rest::routes::launches::LaunchQuery;
use crate::rest::{Problem, RestState};
use crate::service::LaunchFilter;

/// The number of launches in the list.
const MAX_LAUNCHES: usize = 100;

#[derive(Template)]
#[template(path = "launches.html")]
struct LaunchesPage {
    frame: Frame,
    launches: Vec<LaunchRow>,
    names: Names,
    /// The filter of the list, in the form of the query string.
    query: String,
}

#[derive(Template)]
#[template(path = "parts/launches.html")]
struct LaunchesPart {
    frame: Frame,
    launches: Vec<LaunchRow>,
    names: Names,
}

#[derive(Template)]
#[template(path = "launch.html")]
struct LaunchPage {
    frame: Frame,
    launch: ShownLaunch,
}

#[derive(Template)]
#[template(path = "parts/launch.html")]
struct LaunchPart {
    frame: Frame,
    launch: ShownLaunch,
}

struct ShownLaunch {
    id: LaunchId,
    agent: AgentId,
    agent_name: String,
    project: ProjectId,
    project_name: String,
    purpose: Purpose,
    ai_type: String,
    state: String,
    is_stoppable: bool,
    is_bad: bool,
    /// The short id and the title.
    task: Option<(ShortId, String)>,
    pid: Option<i32>,
    took: Option<Took>,
    outcome: Option<String>,
    /// The reason of an outcome whose Japanese text does not contain it.
    reason_in_english: Option<String>,
    exit: Option<String>,
    usage: Option<String>,
    cost: Option<String>,
    last_line: Option<String>,
    timeline: Vec<Moment>,
}

/// A stage in the life of a launch.
struct Moment {
    what: &'static str,
    /// The time; `None` if the launch has not reached the stage.
    at: Option<When>,
    detail: Option<String>,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new()
        .route("/ui/launches", get(all))
        .route("/ui/parts/launches", get(all_part))
        .route("/ui/launches/{id}", get(one))
        .route("/ui/parts/launches/{id}", get(one_part))
}

async fn all(
    frame: Frame,
    State(state): State<RestState>,
    uri: axum::http::Uri,
    InQuery(query): InQuery<LaunchQuery>,
) -> Result<Response, Problem> {
    let launches = rows(&state, query).await?;
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let names = Names::read(&state).await?;
    Ok(rendered(&LaunchesPage { frame: frame.at(NavSection::Launches), launches, names, query }))
}

async fn all_part(
    frame: Frame,
    State(state): State<RestState>,
    InQuery(query): InQuery<LaunchQuery>,
) -> Result<Response, Problem> {
    let names = Names::read(&state).await?;
    Ok(rendered(&LaunchesPart { frame, launches: rows(&state, query).await?, names }))
}

async fn rows(state: &RestState, query: LaunchQuery) -> Result<Vec<LaunchRow>, Problem> {
    let filter = LaunchFilter {
        agent: query.agent,
        project: query.project,
        purpose: query.purpose,
        only_ended: false,
        after: None,
        limit: query.limit.unwrap_or(MAX_LAUNCHES).min(MAX_LAUNCHES),
    };
    Ok(state.service.launches.list(&filter).await?.iter().map(LaunchRow::from).collect())
}

async fn one(
    frame: Frame,
    State(state): State<RestState>,
    InPath(id): InPath<LaunchId>,
) -> Result<Response, Problem> {
    let launch = ShownLaunch::read(&frame, &state, &id).await?;
    Ok(rendered(&LaunchPage { frame: frame.at(NavSection::Launches), launch }))
}

async fn one_part(
    frame: Frame,
    State(state): State<RestState>,
    InPath(id): InPath<LaunchId>,
) -> Result<Response, Problem> {
    let launch = ShownLaunch::read(&frame, &state, &id).await?;
    Ok(rendered(&LaunchPart { frame, launch }))
}

impl ShownLaunch {
    async fn read(frame: &Frame, state: &RestState, id: &LaunchId) -> Result<Self, Problem> {
        let launch = state.service.launches.get(id).await?;
        let names = Names::read(state).await?;
        let task = match &launch.task {
            Some(task) => {
                let task = state.service.tasks.view(task).await?.task;
                Some((task.short_id, task.title))
            }
            None => None,
        };
        Ok(Self::of(frame, launch, &names, task))
    }

    fn of(frame: &Frame, launch: Launch, names: &Names, task: Option<(ShortId, String)>) -> Self {
        let w = frame.w;
        let purpose = launch.key.purpose;
        let timeline = timeline(frame, &launch);
        let (ended_at, outcome) =
            launch.as_ended().map(|(outcome, at)| (at, w.of_outcome(outcome, purpose))).unzip();
        let reason = launch.as_ended().and_then(|(outcome, _)| outcome.reason_in_english());
        let reason = reason.filter(|_| w.language == Language::Japanese).map(str::to_owned);
        let exit = match (launch.exit.exit_code, launch.exit.signal) {
            (Some(code), _) => Some(format!("{} {code}", frame.w.exit_code)),
            (None, Some(signal)) => Some(format!("{} {signal}", frame.w.signal)),
            (None, None) => None,
        };
        let usage = launch.activity.usage;
        Self {
            timeline,
            is_stoppable: matches!(
                launch.state,
                LaunchState::Starting { .. } | LaunchState::Running { .. }
            ),
            took: launch.started_at.zip(ended_at).map(|(from, to)| Took(to.since(from))),
            exit,
            outcome,
            reason_in_english: reason,
            usage: (usage.tokens() > 0)
                .then(|| format!("{} ({} {})", usage.tokens(), usage.turns, frame.w.turns)),
            cost: cost_of(usage),
            state: launch.state.as_str().to_owned(),
            is_bad: launch.as_ended().is_some_and(|(outcome, _)| is_bad(outcome)),
            agent_name: names.agent(&launch.key.agent).to_owned(),
            project_name: names.project(&launch.key.project).to_owned(),
            agent: launch.key.agent,
            project: launch.key.project,
            purpose,
            ai_type: launch.ai_type,
            task,
            pid: launch.pid,
            id: launch.id,
            last_line: launch.activity.progress,
        }
    }
}

/// Returns the stages that a launch has passed, and those still to come.
fn timeline(frame: &Frame, launch: &Launch) -> Vec<Moment> {
    let w = frame.w;
    let moment = |what, at: Option<_>, detail| Moment { what, at: at.map(When), detail };
    let mut moments = vec![
        moment(w.claimed, Some(launch.claimed_at), None),
        moment(w.started, launch.started_at, launch.pid.map(|pid| format!("pid {pid}"))),
        moment(w.authenticated, launch.authenticated_at, None),
    ];
    if let Some(report) = launch.report {
        moments.push(moment(w.reported, None, Some(w.of_report(report).to_owned())));
    }
    if let Some(reason) = launch.stop_reason {
        moments.push(moment(w.stop_wanted, None, Some(w.of_stop_reason(reason).to_owned())));
    }
    let ended = launch.as_ended();
    let told = |outcome| w.of_outcome(outcome, launch.key.purpose);
    let (ended_at, outcome) = ended.map(|(outcome, at)| (at, told(outcome))).unzip();
    moments.push(moment(w.ended, ended_at, outcome));
    moments
}
