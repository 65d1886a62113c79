//! The palette: one text finds tasks of all projects, agents, projects, places and commands.
//!
//! A command presses a control of the page that is open. The script of the page leaves out the
//! commands whose control the page does not have, so nothing is offered that it could not do.

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use super::layout::{Frame, rendered};
use super::names::Names;
use super::words::Words;
use crate::extract::InQuery;
use crate::{Problem, RestState};
use domain::agent::ProjectStatus;
use domain::{Agent, Project, ProjectId, Task, TaskStatus};

/// The number of entries of a group.
const MAX_ENTRIES: usize = 8;
/// The number of tasks that a text finds. Those beyond the first group are in a group at the end.
const MAX_TASKS: usize = 50;

#[derive(Template)]
#[template(path = "parts/palette.html")]
struct PalettePart {
    frame: Frame,
    groups: Vec<Group>,
}

struct Group {
    /// The beginning of the ids of its entries.
    id: &'static str,
    name: &'static str,
    entries: Vec<Entry>,
}

#[derive(Default)]
struct Entry {
    icon: String,
    /// The classes of the icon.
    look: String,
    text: String,
    detail: String,
    /// The key that does the same.
    key: Option<&'static str>,
    /// The page that it leads to.
    href: Option<String>,
    /// The part that the panel of the board of this project shows in place of the page.
    part: Option<(ProjectId, String)>,
    /// The selector of the control that it presses.
    press: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PaletteQuery {
    #[serde(default)]
    q: String,
    /// The project whose board is open.
    project: Option<ProjectId>,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new().route("/ui/parts/palette", get(part))
}

async fn part(
    frame: Frame,
    State(state): State<RestState>,
    InQuery(query): InQuery<PaletteQuery>,
) -> Result<Response, Problem> {
    let w = frame.w;
    let needles: Vec<String> = query.q.split_whitespace().map(str::to_lowercase).collect();
    let is_searched = !needles.is_empty();
    let n_tasks = if is_searched { MAX_TASKS } else { MAX_ENTRIES };
    let found = state.service.tasks.search(&query.q, n_tasks).await?;
    let names = Names::read(&state).await?;
    let mut tasks: Vec<Entry> = found.iter().map(|task| Entry::of_task(task, &names)).collect();
    let more_tasks = tasks.split_off(tasks.len().min(MAX_ENTRIES));
    let is_found = |text: &str| {
        let text = text.to_lowercase();
        needles.iter().all(|needle| text.contains(needle))
    };
    let agents = state.service.catalog.agents().await?;
    let agents = agents.iter().filter(|agent| is_found(&format!("{} {}", agent.name, agent.id)));
    let projects = state.service.catalog.projects().await?;
    let projects = projects.iter().map(|(project, _)| project).filter(|project| {
        is_found(&format!("{} {} {}", project.name, project.id, project.key))
            && (is_searched || project.status == ProjectStatus::Active)
    });
    let mut commands = commands(w);
    let mut places = places(w);
    if frame.may_change() {
        places.push(Entry::leading_to("i-plus", w.new_project, "/ui/projects/new"));
        places.push(Entry::leading_to("i-plus", w.new_agent, "/ui/agents/new"));
    }
    commands.retain(|entry| is_found(&entry.text));
    places.retain(|entry| is_found(&entry.text));
    // Without a text, the board's own agents are beside it.
    let n_agents = if is_searched { MAX_ENTRIES } else { 0 };
    let agents = agents.take(n_agents).map(Entry::of_agent).collect();
    let is_elsewhere =
        |project: &&Project| is_searched || Some(&project.id) != query.project.as_ref();
    let projects = projects.filter(is_elsewhere).take(MAX_ENTRIES).map(Entry::of_project).collect();
    let group = |id, name, entries| Group { id, name, entries };
    let tasks_name = if is_searched { w.tasks } else { w.recent_tasks };
    let mut groups = vec![
        group("found-task", tasks_name, tasks),
        group("found-agent", w.agents, agents),
        group("found-project", w.projects, projects),
        group("found-command", w.commands, commands),
        group("found-place", w.places, places),
        group("found-more", w.more_tasks, more_tasks),
    ];
    groups.retain(|group| !group.entries.is_empty());
    Ok(rendered(&PalettePart { frame, groups }))
}

impl Entry {
    fn of_task(task: &Task, names: &Names) -> Self {
        Self {
            icon: format!("s-{}", task.status),
            look: format!("st {}", task.status),
            text: task.title.clone(),
            detail: format!("{} · {}", task.short_id, names.project(&task.project)),
            href: Some(format!("/ui/projects/{}?task={}", task.project, task.short_id)),
            part: Some((task.project.clone(), format!("/ui/parts/tasks/{}", task.id))),
            ..Self::default()
        }
    }

    fn of_agent(agent: &Agent) -> Self {
        Self {
            detail: agent.ai_type.clone(),
            ..Self::leading_to("i-agents", &agent.name, &format!("/ui/agents/{}", agent.id))
        }
    }

    fn of_project(project: &Project) -> Self {
        Self {
            detail: project.key.to_string(),
            ..Self::leading_to("i-board", &project.name, &format!("/ui/projects/{}", project.id))
        }
    }

    fn leading_to(icon: &str, text: &str, href: &str) -> Self {
        Self {
            icon: icon.to_owned(),
            look: "i".to_owned(),
            text: text.to_owned(),
            href: Some(href.to_owned()),
            ..Self::default()
        }
    }

    fn pressing(icon: &str, text: &str, key: &'static str, press: &str) -> Self {
        Self {
            icon: icon.to_owned(),
            look: "i".to_owned(),
            text: text.to_owned(),
            key: Some(key).filter(|key| !key.is_empty()),
            press: Some(press.to_owned()),
            ..Self::default()
        }
    }
}

/// Returns the commands of all pages. Those of a task are about the one that is open.
fn commands(w: &'static Words) -> Vec<Entry> {
    let set_to = |status: TaskStatus| {
        let press = if status == TaskStatus::Blocked {
            ".states [data-asks-reason]".to_owned()
        } else {
            format!(".states [data-sets={status}][hx-post]")
        };
        Entry {
            icon: format!("s-{status}"),
            look: format!("st {status}"),
            text: format!("{} {}", w.set_to, w.of_status(status)),
            press: Some(press),
            ..Entry::default()
        }
    };
    let mut commands = vec![Entry::pressing("i-plus", w.new_task, "N", "[data-new-task]")];
    commands.extend(TaskStatus::ALL.iter().copied().map(set_to));
    commands.extend([
        Entry::pressing("i-chat", w.key_chat, "C", ".task [data-panel*='/chat']"),
        Entry::pressing("i-user", w.assignee, "A", "[data-property='assignee']"),
        Entry::pressing("i-filter", w.priority, "P", "[data-property='priority']"),
        Entry::pressing("i-full", w.open_as_page, "O", "[data-as-page]"),
        Entry::pressing("i-link", w.copy_link, "", ".task [data-copy-link]"),
        Entry::pressing("i-stop", w.stop, "", ":is(.task, #launch) [hx-post$='/ui/do/stop']"),
        Entry::pressing("i-search", w.key_search, "/", "#search"),
    ]);
    commands
}

/// Returns the places of the navigation.
fn places(w: &'static Words) -> Vec<Entry> {
    vec![
        Entry::leading_to("i-inbox", w.inbox, "/ui/inbox"),
        Entry::leading_to("i-board", w.all_projects, "/ui/projects"),
        Entry::leading_to("i-agents", w.agents, "/ui/agents"),
        Entry::leading_to("i-runs", w.launches, "/ui/launches"),
        Entry::leading_to("i-ops", w.operations, "/ui/operations"),
        Entry::leading_to("i-sliders", w.settings, "/ui/settings"),
        Entry::leading_to("i-key", w.keys, "/ui/settings#keys"),
    ]
}
