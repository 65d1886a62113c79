//! The page and the panel of an agent in a project: what it does, or the reason why it does not
//! run, what it needs to start, and its latest launches.

use axum::Router;
use axum::extract::State;
use axum::response::{Redirect, Response};
use axum::routing::get;
use serde::Deserialize;

use super::agent_state::{AgentState, StateGroup};
use super::buttons::{Button, ButtonAction};
use super::instances::{InstanceRow, instance_rows};
use super::layout::{Frame, NavSection, page_and_part};
use super::needs::{ChecklistRow, NeedFacts, needs_of};
use super::shown::{Face, LastEnd, task_of};
use super::today::{Today, usage_text};
use super::waits::{About, WhyAction, WhyLine, WhyTime};
use super::words::Words;
use crate::extract::{InPath, InQuery};
use crate::routes::status::status_body;
use crate::{Problem, RestState};
use domain::{Agent, AgentId, Launch, Project, ProjectId, Purpose, Why};
use service::LaunchFilter;

/// The number of launches that are shown.
const MAX_LAUNCHES: usize = 5;

page_and_part! {
    AgentPage "agent.html", AgentPart "parts/agent.html" { agent: ShownAgent, is_page: bool }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentQuery {
    /// The purpose whose checklist is shown.
    #[serde(rename = "for")]
    purpose: Option<Purpose>,
    /// Asks for the part of the page, and not of the panel.
    #[serde(default)]
    page: bool,
}

struct ShownAgent {
    face: Face,
    ai_type: String,
    project: (ProjectId, String),
    /// The names of all of its projects.
    projects: String,
    state: AgentState,
    note: Note,
    instances: Vec<InstanceRow>,
    /// The purpose that is shown, and those that there are.
    purpose: Purpose,
    purposes: Vec<Purpose>,
    needs: Vec<ChecklistRow>,
    latest: Vec<LastEnd>,
    usage: String,
}

/// The first lines: what the agent does, or the reason why it does not run, with the button.
struct Note {
    tone: &'static str,
    icon: &'static str,
    heading: String,
    time: Option<WhyTime>,
    help: Option<&'static str>,
    /// A command that a person runs.
    command: Option<&'static str>,
    button: Option<Button>,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new()
        .route("/ui/projects/{project}/agents/{agent}", get(show))
        .route("/ui/parts/projects/{project}/agents/{agent}", get(show))
        // Its address in earlier versions.
        .route("/ui/projects/{project}/agents/{agent}/why", get(old_address))
}

async fn old_address(InPath((project, agent)): InPath<(ProjectId, AgentId)>) -> Redirect {
    Redirect::permanent(&format!("/ui/projects/{project}/agents/{agent}"))
}

async fn show(
    frame: Frame,
    State(state): State<RestState>,
    InPath((project, agent)): InPath<(ProjectId, AgentId)>,
    InQuery(query): InQuery<AgentQuery>,
) -> Result<Response, Problem> {
    let agent = ShownAgent::read(&frame, &state, &agent, &project, query.purpose).await?;
    let is_page = query.page || !frame.is_part();
    let frame = Frame { project: None, ..frame }.at(NavSection::Agents);
    Ok(AgentPage { frame, agent, is_page }.shown())
}

impl ShownAgent {
    async fn read(
        frame: &Frame,
        state: &RestState,
        id: &AgentId,
        project: &ProjectId,
        wanted: Option<Purpose>,
    ) -> Result<Self, Problem> {
        let w = frame.w;
        let all = state.service.launches.why(id, project).await?;
        let agent = state.service.catalog.agent(id).await?;
        let projects = state.service.catalog.projects().await?;
        let view = state.service.status().await?;
        let today = Today::read(state, &view.ended).await?;
        let mut instances = instance_rows(state, &view).await?;
        let limits = status_body(view).limits;
        instances.retain(|row| row.agent == *id && row.project == *project);
        instances.sort_by_key(|row| row.purpose);
        let latest = latest(state, id, project).await?;
        let next = all.iter().filter_map(|why| why.task.as_ref());
        let ids = latest.iter().filter_map(task_of).chain(next);
        let titles = state.service.tasks.titles(ids.cloned().collect()).await?;
        // The purpose that runs or waits tells more than the other one.
        let busy = instances.first().map(|instance| instance.purpose);
        let purpose = wanted.or(busy).unwrap_or(Purpose::Task);
        let why = all.iter().find(|why| why.key.purpose == purpose).or_else(|| all.first());
        let Some(why) = why else {
            return Err(domain::Refusal::AgentNotFound { agent: id.clone() }.into());
        };
        let task = why.task.as_ref().and_then(|task| titles.get(task).cloned());
        let named = projects.iter().find(|(other, _)| other.id == *project);
        let project_name = named.map_or_else(String::new, |(project, _)| project.name.clone());
        let facts = NeedFacts {
            project: &project_name,
            task: task.map(|(short_id, _)| short_id.to_string()),
            limits: &limits,
        };
        let first = instances.first();
        // The mark is that of the list, for any purpose that is shown.
        let of_tasks = all.iter().find(|why| why.key.purpose == Purpose::Task).unwrap_or(why);
        let of_why = || AgentState::of_why(w, of_tasks);
        let runs = first.filter(|_| !why.is_host_silent);
        let state = runs.map_or_else(of_why, |first| AgentState::of_instance(w, first));
        let ring = state.ring(instances.iter().any(|row| row.pid.is_some()));
        Ok(Self {
            state,
            note: Note::of(w, &agent, project, &project_name, &instances, why),
            needs: needs_of(w, why, &facts),
            purposes: all.iter().map(|why| why.key.purpose).collect(),
            purpose: why.key.purpose,
            latest: LastEnd::of_all(w, &latest, &titles),
            usage: usage_text(w, today.usage(id, [project])),
            projects: names_of(&projects, id),
            face: Face { ring, ..Face::of(&agent, false) },
            ai_type: agent.ai_type,
            project: (project.clone(), project_name),
            instances,
        })
    }

    /// Returns the address of its page without the purpose.
    fn href(&self) -> String {
        format!("/ui/projects/{}/agents/{}", self.project.0, self.face.id)
    }

    /// Returns the part that shows it for a purpose.
    fn part(&self, purpose: Purpose, is_page: bool) -> String {
        let page = if is_page { "&page=true" } else { "" };
        format!("/ui/parts/projects/{}/agents/{}?for={purpose}{page}", self.project.0, self.face.id)
    }
}

fn names_of(projects: &[(Project, Vec<AgentId>)], agent: &AgentId) -> String {
    let of = |(project, members): &(Project, Vec<AgentId>)| {
        members.contains(agent).then(|| project.name.clone())
    };
    projects.iter().filter_map(of).collect::<Vec<_>>().join(", ")
}

/// Returns the last launches of an agent in a project, the newest first.
async fn latest(
    state: &RestState,
    agent: &AgentId,
    project: &ProjectId,
) -> Result<Vec<Launch>, Problem> {
    let filter = LaunchFilter {
        agent: Some(agent.clone()),
        project: Some(project.clone()),
        only_ended: true,
        limit: MAX_LAUNCHES,
        ..LaunchFilter::default()
    };
    Ok(state.service.launches.list(&filter).await?)
}

impl Note {
    fn of(
        w: &'static Words,
        agent: &Agent,
        project: &ProjectId,
        project_name: &str,
        instances: &[InstanceRow],
        why: &Why,
    ) -> Self {
        let plain = |heading: String, button| Self {
            tone: "",
            icon: "i-agents",
            heading,
            time: None,
            help: None,
            command: None,
            button,
        };
        if let Some(first) = instances.first().filter(|_| !why.is_host_silent) {
            let stop = Button::stop_of(w, agent, project, instances);
            let state = AgentState::of_instance(w, first);
            let heading = match first.purpose {
                _ if state.group == StateGroup::NeedsPerson => state.text,
                Purpose::Chat => w.chats_now,
                Purpose::Task | Purpose::Check => w.works_now,
            };
            let note = plain(heading.to_owned(), stop);
            return Self { tone: state.tone(), icon: "i-runs", ..note };
        }
        let Some(waiting) = why.waiting_or_stopped() else {
            if AgentState::of_why(w, why).group == StateGroup::Waits {
                return plain(w.starts_now.to_owned(), None);
            }
            if why.key.purpose == Purpose::Chat {
                return plain(w.starts_for_chat.to_owned(), None);
            }
            let give = Button::give_task(w, &agent.id, project);
            return plain(w.of_no_task_in(project_name), Some(give));
        };
        let about = About { agent: Some(&agent.id), project: Some(project), task: None };
        let line = WhyLine::of(w, &waiting, about);
        let is_login = waiting.is_not_logged_in();
        Self {
            // A person stopped or deactivated it on purpose.
            tone: match AgentState::of_why(w, why).group {
                StateGroup::Stopped => "",
                _ => line.tone,
            },
            icon: if is_login { "i-key" } else { line.icon },
            heading: w.of_not_running(&waiting),
            time: line.time,
            help: w.of_wait_help(&waiting),
            command: if is_login { login_command(&agent.ai_type) } else { None },
            button: WhyAction::at_once(w, &waiting, about)
                .map(|action| Button::from(action).primary())
                .or_else(|| Button::stop_of(w, agent, project, instances)),
        }
    }
}

/// Returns the command that logs in to the CLI of a provider. A provider with another name has a
/// configuration of its own.
pub(super) fn login_command(ai_type: &str) -> Option<&'static str> {
    Some(match ai_type {
        "claude" => "claude",
        "codex" => "codex login",
        "copilot" => "copilot login",
        "opencode" => "opencode auth login",
        "qwen" => "qwen",
        _ => return None,
    })
}
