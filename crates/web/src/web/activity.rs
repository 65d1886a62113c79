//! The activity of a task: what people, agents and the daemon did about it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::shown::{Face, Faces, ShownDuration, When, cost_of};
use super::tasks::LiveLaunch;
use super::words::Words;
use crate::{Problem, RestState};
use api::forge::is_safe_link;
use domain::event::Event;
use domain::task::Move;
use domain::{
    AgentId, Comment, Execution, ForgeItem, LaunchId, Outcome, Task, TaskStatus, Timestamp,
};
use service::{TaskView, people};

/// The number of milestones of a task that are read.
const MAX_EVENTS: usize = 100;

/// An event in the history of a task.
pub(super) enum Activity {
    Work(Work),
    Move(ShownMove),
    Comment(ShownComment),
    Forge(ForgeNews),
    /// The result was merged into a branch.
    Merge(Merge),
    Made(Made),
}

impl Activity {
    const fn at(&self) -> Timestamp {
        match self {
            Self::Work(work) => work.started_at.0,
            Self::Move(step) => step.at.0,
            Self::Comment(comment) => comment.at.0,
            Self::Forge(news) => news.at.0,
            Self::Merge(merge) => merge.at.0,
            Self::Made(made) => made.at.0,
        }
    }
}

/// A change of the status of a task.
pub(super) struct ShownMove {
    /// The name of the person or the agent; `None` if the daemon moved the task.
    pub(super) who: Option<String>,
    pub(super) from: Option<TaskStatus>,
    pub(super) to: TaskStatus,
    pub(super) at: When,
}

/// A change of the forge item that the task was made from.
pub(super) struct ForgeNews {
    pub(super) item: String,
    pub(super) url: Option<String>,
    pub(super) text: &'static str,
    pub(super) at: When,
}

/// A merge of the result.
pub(super) struct Merge {
    pub(super) who: Option<String>,
    pub(super) branch: String,
    pub(super) at: When,
}

/// The creation of the task.
pub(super) struct Made {
    /// The name of the person or the agent, if it is known.
    pub(super) who: Option<String>,
    /// The name and the URL of the forge item that the task was made from.
    pub(super) item: Option<(String, Option<String>)>,
    pub(super) at: When,
}

/// A comment of a person.
pub(super) struct ShownComment {
    /// The name of the person, if it is known.
    pub(super) author: Option<String>,
    pub(super) text: String,
    pub(super) at: When,
}

impl ShownComment {
    async fn all(comments: Vec<Comment>) -> Vec<Self> {
        let authors = comments.iter().filter_map(|comment| comment.author.as_ref());
        let names = people::names_of(authors).await;
        let of = |comment: Comment| Self {
            author: comment.author.map(|author| names.get(&author).cloned().unwrap_or(author)),
            text: comment.text,
            at: When(comment.created_at),
        };
        comments.into_iter().map(of).collect()
    }
}

/// The work of one launch on a task.
pub(super) struct Work {
    pub(super) launch: LaunchId,
    pub(super) agent: AgentId,
    pub(super) face: Option<Face>,
    pub(super) took: Option<ShownDuration>,
    pub(super) started_at: When,
    pub(super) outcome: Option<Outcome>,
    pub(super) cost: Option<String>,
    pub(super) summary: Option<String>,
    pub(super) next_steps: Option<String>,
}

impl Work {
    pub(super) fn is_bad(&self) -> bool {
        self.outcome.as_ref().is_some_and(Outcome::is_bad)
    }

    /// Returns the work of a launch of which only the start is known.
    fn beginning(launch: &LiveLaunch, faces: &Faces) -> Self {
        Self {
            launch: launch.id.clone(),
            agent: launch.agent.clone(),
            face: faces.of(&launch.agent),
            took: None,
            started_at: launch.since,
            outcome: None,
            cost: None,
            summary: None,
            next_steps: None,
        }
    }

    fn of(execution: &Execution, faces: &Faces) -> Self {
        Self {
            face: faces.of(&execution.key.agent),
            took: execution.ended_at.map(|ended| ShownDuration(ended.since(execution.started_at))),
            launch: execution.launch.clone(),
            agent: execution.key.agent.clone(),
            started_at: When(execution.started_at),
            outcome: execution.outcome.clone(),
            cost: cost_of(&execution.usage),
            summary: execution.summary.clone().or_else(|| execution.progress.clone()),
            next_steps: execution.next_steps.clone(),
        }
    }
}

/// Returns the name of an item with the address for people, if it is safe.
pub(super) fn link_of(item: &ForgeItem) -> (String, Option<String>) {
    (item.key.to_string(), Some(item.url.clone()).filter(|url| is_safe_link(url)))
}

/// Returns the activity of a task, the newest first. `live` is the launch that works on it.
pub(super) async fn activity_of(
    w: &'static Words,
    state: &RestState,
    view: &TaskView,
    item: Option<&ForgeItem>,
    live: Option<&LiveLaunch>,
    faces: &Faces,
) -> Result<Vec<Activity>, Problem> {
    let events = state.service.tasks.milestones(&view.task.id, MAX_EVENTS).await?;
    let actors = Actors::of(state, view, &events, faces).await?;
    let link = item.map(link_of);
    let comments = ShownComment::all(view.comments.clone()).await;
    let mut activity: Vec<Activity> = comments.into_iter().map(Activity::Comment).collect();
    activity.extend(Move::all(&events).into_iter().map(|step| {
        Activity::Move(ShownMove {
            who: actors.name(step.author.as_ref(), step.launch.as_ref()),
            from: step.from,
            to: step.to,
            at: When(step.at),
        })
    }));
    activity.extend(events.iter().filter_map(|event| news_of(w, event, link.as_ref(), &actors)));
    activity.push(Activity::Made(made(&view.task, &events, link, &actors)));
    activity.extend(view.executions.iter().map(|work| Activity::Work(Work::of(work, faces))));
    // A launch that has not asked for its task yet has no execution.
    let is_told = |launch: &LiveLaunch| view.executions.iter().any(|work| work.launch == launch.id);
    if let Some(launch) = live.filter(|launch| !is_told(launch)) {
        activity.push(Activity::Work(Work::beginning(launch, faces)));
    }
    // The creation stays below what happened in the same moment.
    activity.sort_by_key(|event| (Reverse(event.at()), matches!(event, Activity::Made(_))));
    Ok(activity)
}

/// Returns what an event tells of the forge item or of a merge; `None` for another event.
fn news_of(
    w: &'static Words,
    event: &Event,
    link: Option<&(String, Option<String>)>,
    actors: &Actors,
) -> Option<Activity> {
    let detail = event.detail.as_deref()?;
    let at = When(event.at);
    match event.kind.as_str() {
        "forge.item" => {
            let (item, item_state) = detail.rsplit_once(' ')?;
            let url = link.filter(|(name, _)| name == item).and_then(|(_, url)| url.clone());
            let text = w.of_item_state(item_state);
            Some(Activity::Forge(ForgeNews { item: item.to_owned(), url, text, at }))
        }
        "workspace.merged" => {
            let who = actors.name(event.author.as_ref(), None);
            Some(Activity::Merge(Merge { who, branch: detail.to_owned(), at }))
        }
        _ => None,
    }
}

fn made(
    task: &Task,
    events: &[Event],
    item: Option<(String, Option<String>)>,
    actors: &Actors,
) -> Made {
    let event = events.iter().find(|event| event.kind == "task.created");
    let who = event.and_then(|event| actors.name(event.author.as_ref(), event.launch.as_ref()));
    Made { who, item, at: When(task.created_at) }
}

/// The names of those who acted.
struct Actors {
    people: BTreeMap<String, String>,
    agents: BTreeMap<LaunchId, String>,
}

impl Actors {
    /// Reads the names of the people and of the agents that the events are of.
    async fn of(
        state: &RestState,
        view: &TaskView,
        events: &[Event],
        faces: &Faces,
    ) -> Result<Self, Problem> {
        let people =
            people::names_of(events.iter().filter_map(|event| event.author.as_ref())).await;
        let name = |agent: &AgentId| faces.of(agent).map_or(agent.to_string(), |face| face.name);
        let of_executions = view.executions.iter();
        let mut agents: BTreeMap<LaunchId, String> =
            of_executions.map(|work| (work.launch.clone(), name(&work.key.agent))).collect();
        // The agent of a task above works in a launch without an execution of this task.
        let others = events.iter().filter_map(|event| event.launch.as_ref());
        let others = others.filter(|launch| !agents.contains_key(*launch)).cloned().collect();
        let others = state.service.launches.agents_of(others).await?.into_iter();
        agents.extend(others.map(|(launch, agent)| (launch, name(&agent))));
        Ok(Self { people, agents })
    }

    fn name(&self, author: Option<&String>, launch: Option<&LaunchId>) -> Option<String> {
        match author {
            Some(author) => Some(self.people.get(author).unwrap_or(author).clone()),
            None => self.agents.get(launch?).cloned(),
        }
    }
}

/// Returns the name of the person who saved a task last, if a person did.
pub(super) async fn name_of(author: Option<String>) -> Option<String> {
    match author {
        Some(author) => Some(people::name_of(author).await),
        None => None,
    }
}
