//! The page of one launch: its figures, its output and its life.

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;

use super::launches::mark_of;
use super::layout::{Frame, NavSection, page_and_part};
use super::names::Names;
use super::shown::{Elapsed, Face, Faces, Short, ShownDuration, When, cost_of, size, task_of};
use super::words::Words;
use crate::extract::InPath;
use crate::{Problem, RestState};
use domain::machine::Machine;
use domain::{
    AgentId, Language, Launch, LaunchId, LaunchState, ProjectId, Purpose, ShortId, StopReason,
    Timestamp,
};
use service::Surroundings;

page_and_part! {
    LaunchPage "launch.html", LaunchPart "parts/launch.html" { launch: ShownLaunch }
}

struct ShownLaunch {
    id: LaunchId,
    /// The agent and its task.
    heading: String,
    face: Option<Face>,
    agent: AgentId,
    agent_name: String,
    project: ProjectId,
    project_name: String,
    purpose: Purpose,
    kind: String,
    state: &'static str,
    mark: String,
    is_stoppable: bool,
    is_bad: bool,
    /// The short id and the title.
    task: Option<(ShortId, String)>,
    /// The reason of a bad end.
    reason: Option<String>,
    branch: Option<String>,
    memory: Option<String>,
    pid: Option<i32>,
    since: Elapsed,
    took: Option<ShownDuration>,
    exit: Option<String>,
    /// The tokens that the model read and wrote.
    tokens: Option<(Short, Short)>,
    cost: Option<String>,
    timeline: Vec<TimelineEntry>,
    /// The reason of a start that failed, for a page in another language.
    detail_in_english: Option<String>,
}

impl ShownLaunch {
    fn is_open(&self) -> bool {
        self.state != "ended"
    }

    /// Returns whether it is about a conversation, and not about a task.
    fn is_chat(&self) -> bool {
        self.purpose == Purpose::Chat
    }
}

/// The sign of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Reached,
    Bad,
    /// It is the present stage.
    Now,
    /// It was never reached.
    Missed,
}

/// A stage in the life of a launch.
struct TimelineEntry {
    sign: Sign,
    what: String,
    at: Option<When>,
    /// The beginning of the present stage.
    since: Option<Elapsed>,
    detail: Option<String>,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new().route("/ui/launches/{id}", get(show)).route("/ui/parts/launches/{id}", get(show))
}

async fn show(
    frame: Frame,
    State(state): State<RestState>,
    InPath(id): InPath<LaunchId>,
) -> Result<Response, Problem> {
    let launch = ShownLaunch::read(frame.w, &state, &id).await?;
    Ok(LaunchPage { frame: frame.at(NavSection::Launches), launch }.shown())
}

impl ShownLaunch {
    async fn read(w: &'static Words, state: &RestState, id: &LaunchId) -> Result<Self, Problem> {
        let service = &state.service;
        let launch = service.launches.get(id).await?;
        let (about, branch) = service.launches.surroundings(&launch).await?;
        let names = Names::read(state).await?;
        let live = if launch.is_open() { std::slice::from_ref(&launch) } else { &[] };
        let faces = Faces::new(service.catalog.agents().await?, live, None);
        let faces = faces.with_deleted(service.removals.names().await?);
        let memory = if launch.is_open() {
            service.launches.memory_of_instances().await.remove(id).map(size)
        } else {
            None
        };
        let face = faces.of(&launch.key.agent);
        let coordinator = launch.coordinator.as_ref();
        let machine = coordinator.and_then(|id| service.coordinators.machine_of(id));
        let timeline = timeline(w, &launch, &about, machine.as_ref());
        Ok(Self { face, branch, memory, timeline, ..Self::of(w, launch, &names, &about) })
    }

    /// Returns the facts that the launch itself has. The caller adds the others.
    fn of(w: &'static Words, launch: Launch, names: &Names, about: &Surroundings) -> Self {
        let task = task_of(&launch).and_then(|task| about.tasks.get(task)).cloned();
        let agent_name = names.agent(&launch.key.agent).to_owned();
        let project_name = names.project(&launch.key.project).to_owned();
        let on = task.as_ref().map_or_else(|| project_name.clone(), |(id, _)| id.to_string());
        let ended = launch.as_ended();
        let summary = about.summaries.get(&launch.id).map(String::as_str);
        let usage = launch.activity.usage;
        let n_read = usage.tokens().saturating_sub(usage.output_tokens);
        Self {
            heading: w.of_work_on(&agent_name, launch.key.purpose, &on),
            face: None,
            kind: w.of_kind(&launch.ai_type, launch.key.purpose),
            state: launch.state.as_str(),
            mark: mark_of(w, &launch, about),
            is_stoppable: matches!(
                launch.state,
                LaunchState::Starting { .. } | LaunchState::Running { .. }
            ),
            is_bad: ended.is_some_and(|(outcome, _)| outcome.is_bad()),
            reason: ended.and_then(|(outcome, _)| w.of_end_reason(&launch, outcome, summary)),
            detail_in_english: ended
                .filter(|_| w.language == Language::Japanese)
                .and_then(|(outcome, _)| outcome.reason_in_english())
                .map(str::to_owned),
            task,
            branch: None,
            memory: None,
            pid: launch.pid,
            since: Elapsed(launch.started_at.unwrap_or(launch.claimed_at)),
            took: launch.started_at.zip(ended).map(|(from, (_, to))| ShownDuration(to.since(from))),
            exit: w.of_exit(launch.exit),
            tokens: (usage.tokens() > 0).then_some((Short(n_read), Short(usage.output_tokens))),
            cost: cost_of(&usage),
            timeline: Vec::new(),
            agent_name,
            project_name,
            agent: launch.key.agent,
            project: launch.key.project,
            purpose: launch.key.purpose,
            id: launch.id,
        }
    }
}

/// Returns the stages that a launch has passed, and the present one.
fn timeline(
    w: &'static Words,
    launch: &Launch,
    about: &Surroundings,
    machine: Option<&Machine>,
) -> Vec<TimelineEntry> {
    let ended = launch.as_ended();
    let moment = |sign, what: &str, at: Option<Timestamp>, detail| TimelineEntry {
        sign,
        what: what.to_owned(),
        at: at.map(When),
        since: None,
        detail,
    };
    let passed = |what, at: Option<Timestamp>, detail| match at {
        Some(at) => Some(moment(Sign::Reached, what, Some(at), detail)),
        None => ended.map(|_| moment(Sign::Missed, what, None, None)),
    };
    let pid = launch.pid.map(|pid| w.of_process(pid, machine));
    let mut moments = vec![moment(Sign::Reached, w.claimed, Some(launch.claimed_at), None)];
    moments.extend(passed(w.started, launch.started_at, pid));
    moments.extend(passed(w.authenticated, launch.authenticated_at, None));
    if let Some(report) = launch.report {
        let report = w.of_report(report).to_owned();
        moments.push(moment(Sign::Reached, w.reported, None, Some(report)));
    }
    // The report says that already.
    if let Some(reason) = launch.stop_reason.filter(|reason| *reason != StopReason::Reported) {
        let reason = w.of_stop_reason(reason).to_owned();
        moments.push(moment(Sign::Reached, w.stop_wanted, None, Some(reason)));
    }
    match ended {
        Some((outcome, at)) => {
            let sign = if outcome.is_bad() { Sign::Bad } else { Sign::Reached };
            let mark = mark_of(w, launch, about);
            moments.push(moment(sign, w.ended, Some(at), Some(mark)));
        }
        None => moments.push(present(w, launch)),
    }
    moments
}

/// Returns the present stage of a launch that goes on.
fn present(w: &'static Words, launch: &Launch) -> TimelineEntry {
    let started_at = launch.started_at.unwrap_or(launch.claimed_at);
    let (what, since) = match launch.state {
        LaunchState::Running { .. } => {
            (w.works, Some(launch.authenticated_at.unwrap_or(started_at)))
        }
        LaunchState::Starting { .. } => (w.starting, Some(started_at)),
        LaunchState::Stopping { .. } | LaunchState::Ending | LaunchState::Ended { .. } => {
            (w.of_state(launch.state.as_str()), None)
        }
    };
    TimelineEntry {
        sign: Sign::Now,
        what: what.to_owned(),
        at: None,
        since: since.map(Elapsed),
        detail: None,
    }
}
