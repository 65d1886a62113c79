//! The list of launches: those that go on, and those that ended, by day.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use super::layout::{Frame, NavSection, page_and_part};
use super::names::Names;
use super::shown::{Elapsed, Face, Faces, Short, ShownDuration, When, cost_of, task_of};
use super::today::Days;
use super::words::Words;
use crate::extract::InQuery;
use crate::{Problem, RestState};
use domain::totals::EndedLaunch;
use domain::{
    Agent, AgentId, Language, Launch, LaunchId, Outcome, Project, ProjectId, Purpose, StopReason,
    Timestamp, Usage,
};
use service::{LaunchEnd, LaunchFilter, LaunchHistory, LaunchTraits, Surroundings};

/// The number of ended launches that are added each time.
const PAGE: usize = 50;
/// The greatest number of ended launches in the list. Filters find earlier ones.
const MAX_ROWS: usize = 1000;
/// The number of words of a search that count.
const MAX_WORDS: usize = 4;
/// The number of tasks that a word of a search finds.
const MAX_TASKS: usize = 500;

page_and_part! {
    LaunchesPage "launches.html", LaunchesPart "parts/launches.html" { list: List }
}

/// The content of the list.
struct List {
    query: ListQuery,
    /// The values of the filters, with their texts.
    outcomes: [(&'static str, &'static str); 3],
    spans: [(&'static str, &'static str); 3],
    agents: Vec<Agent>,
    projects: Vec<Project>,
    figures: String,
    groups: Vec<Group>,
    /// The number of ended launches that may be shown.
    n_rows: usize,
    is_more: bool,
    /// The note that earlier ones are left out.
    is_cut: Option<String>,
    /// The name of the time zone whose days are shown.
    zone: String,
}

/// The launches that are shown together.
struct Group {
    heading: String,
    rows: Vec<Row>,
}

/// A launch in the list.
struct Row {
    id: LaunchId,
    mark: String,
    is_open: bool,
    is_bad: bool,
    title: String,
    /// The short id of the task, or the name of the project of a chat.
    of: String,
    /// The present activity, or the reason of a bad end.
    second: Option<String>,
    /// The reason of a start that failed, for a page in another language.
    second_in_english: Option<String>,
    face: Option<Face>,
    agent: String,
    took: Option<ShownDuration>,
    running_for: Option<Elapsed>,
    tokens: Option<Short>,
    cost: Option<String>,
    started: When,
}

impl Row {
    fn has_time(&self) -> bool {
        self.took.is_some() || self.running_for.is_some()
    }
}

/// The filters, as the address has them. An empty text is no filter.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ListQuery {
    outcome: String,
    agent: String,
    project: String,
    since: String,
    q: String,
    /// The number of ended launches that are shown.
    rows: Option<usize>,
    /// True if more of them are wanted.
    more: bool,
}

/// The spans of time that the list offers.
const SPANS: [(&str, Duration); 3] = [
    ("day", Duration::from_hours(24)),
    ("week", Duration::from_hours(7 * 24)),
    ("month", Duration::from_hours(30 * 24)),
];

pub(super) fn routes() -> Router<RestState> {
    Router::new().route("/ui/launches", get(show)).route("/ui/parts/launches", get(show))
}

async fn show(
    frame: Frame,
    State(state): State<RestState>,
    InQuery(query): InQuery<ListQuery>,
) -> Result<Response, Problem> {
    let list = List::read(&frame, &state, query).await?;
    Ok(LaunchesPage { frame: frame.at(NavSection::Launches), list }.shown())
}

impl ListQuery {
    fn is_filtered(&self) -> bool {
        let texts = [&self.outcome, &self.agent, &self.project, &self.since, &self.q];
        texts.iter().any(|text| !text.trim().is_empty())
    }

    /// Returns the filter for the store, without the words.
    fn filter(&self, now: Timestamp) -> Result<LaunchFilter, Problem> {
        let end = match self.outcome.as_str() {
            "" => None,
            "running" => Some(LaunchEnd::None),
            "bad" => Some(LaunchEnd::Bad),
            other => return Err(invalid("outcome", other, "expected `running` or `bad`")),
        };
        let since = match self.since.as_str() {
            "" => None,
            text => {
                let span = SPANS.iter().find(|(name, _)| *name == text).map(|(_, span)| *span);
                let expected = "expected `day`, `week` or `month`";
                Some(now - span.ok_or_else(|| invalid("since", text, expected))?)
            }
        };
        let n_more = if self.more { PAGE } else { 0 };
        Ok(LaunchFilter {
            agent: optional::<AgentId>("agent", &self.agent)?,
            project: optional::<ProjectId>("project", &self.project)?,
            end,
            since,
            limit: (self.rows.unwrap_or(PAGE).max(PAGE) + n_more).min(MAX_ROWS),
            ..LaunchFilter::default()
        })
    }
}

fn invalid(name: &str, text: &str, detail: impl Display) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "invalid_query", format!("{name}: `{text}`: {detail}"))
}

fn optional<T: FromStr<Err: Display>>(name: &str, text: &str) -> Result<Option<T>, Problem> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|error: T::Err| invalid(name, text, error))
}

/// Returns the traits of launches that each word of a text finds.
async fn words_of(
    w: &'static Words,
    state: &RestState,
    text: &str,
    agents: &[Agent],
) -> Result<Vec<LaunchTraits>, Problem> {
    let mut words = Vec::new();
    for word in text.split_whitespace().take(MAX_WORDS) {
        let tasks = state.service.tasks.search(word, MAX_TASKS).await?;
        let word = word.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&word);
        let agents = agents.iter().filter(|agent| has(&agent.name) || has(agent.id.as_str()));
        let purposes = [Purpose::Task, Purpose::Chat, Purpose::Check].into_iter();
        let outcomes = w.outcome_texts().into_iter().filter(|(_, text)| has(text));
        words.push(LaunchTraits {
            tasks: tasks.into_iter().map(|task| task.id).collect(),
            agents: agents.map(|agent| agent.id.clone()).collect(),
            purposes: purposes.filter(|purpose| has(w.of_purpose(*purpose))).collect(),
            outcomes: outcomes.map(|(outcome, _)| outcome).collect(),
        });
    }
    Ok(words)
}

impl List {
    async fn read(frame: &Frame, state: &RestState, query: ListQuery) -> Result<Self, Problem> {
        let w = frame.w;
        let now = state.service.time();
        let days = Days::here();
        let agents = state.service.catalog.agents().await?;
        let words = words_of(w, state, &query.q, &agents).await?;
        let filter = LaunchFilter { words, ..query.filter(now)? };
        let start_of_day = {
            let days = days.clone();
            move |at| days.start_of(at)
        };
        let midnight = days.start_of(now);
        let found = state.service.launches.history(&filter, midnight, start_of_day).await?;
        let projects = state.service.catalog.projects().await?;
        let faces = Faces::new(agents.clone(), &found.all_open, None);
        let faces = faces.with_deleted(state.service.removals.names().await?);
        let names = Names::read(state).await?;
        let rows = Rows { w, names: &names, faces: &faces, about: &found.surroundings };
        Ok(Self {
            figures: figures(w, &found),
            groups: groups(w, &found, &rows, &days, now),
            n_rows: filter.limit,
            is_more: found.is_more && filter.limit < MAX_ROWS,
            is_cut: (found.is_more && filter.limit >= MAX_ROWS)
                .then(|| w.of_newest_launches(MAX_ROWS)),
            zone: days.zone().to_owned(),
            projects: projects.into_iter().map(|(project, _)| project).collect(),
            agents,
            outcomes: [("", w.all), ("running", w.running), ("bad", w.ended_badly)],
            spans: SPANS.map(|(name, _)| (name, w.of_span(name))),
            query,
        })
    }
}

/// Returns the number and the cost of the launches that go on, and of those that ended today.
fn figures(w: &'static Words, found: &LaunchHistory) -> String {
    let all = found.all_open.iter().chain(&found.ends_today);
    let usage = all.fold(Usage::default(), |sum, launch| sum.plus(launch.activity.usage));
    let cost = cost_of(&usage);
    w.of_figures(found.all_open.len(), found.ends_today.len(), cost.as_deref())
}

fn groups(
    w: &'static Words,
    found: &LaunchHistory,
    rows: &Rows<'_>,
    days: &Days,
    now: Timestamp,
) -> Vec<Group> {
    let today = days.day_of(now);
    let mut groups = Vec::new();
    if !found.open.is_empty() {
        let heading = w.of_running_group(found.open.len());
        groups
            .push(Group { heading, rows: found.open.iter().map(|open| rows.row(open)).collect() });
    }
    for of_day in
        found.ended.chunk_by(|a, b| days.day_of(a.claimed_at) == days.day_of(b.claimed_at))
    {
        let day = of_day.first().map_or(today, |first| days.day_of(first.claimed_at));
        let ends = || found.ends.iter().filter(|end| days.day_of(end.claimed_at) == day);
        let n_bad = ends().filter(|end: &&EndedLaunch| end.is_bad).count();
        let heading = w.of_day_group(day, today, ends().count(), n_bad);
        groups.push(Group { heading, rows: of_day.iter().map(|ended| rows.row(ended)).collect() });
    }
    groups
}

/// The facts of which the rows are made.
struct Rows<'a> {
    w: &'static Words,
    names: &'a Names,
    faces: &'a Faces,
    about: &'a Surroundings,
}

impl Rows<'_> {
    fn row(&self, launch: &Launch) -> Row {
        let w = self.w;
        let task = task_of(launch).and_then(|task| self.about.tasks.get(task));
        let (title, of) = if let Some((short_id, title)) = task {
            (title.clone(), short_id.to_string())
        } else {
            let project = self.names.project(&launch.key.project).to_owned();
            (w.of_purpose(launch.key.purpose).to_owned(), project)
        };
        let ended = launch.as_ended();
        let outcome = ended.map(|(outcome, _)| outcome);
        let usage = launch.activity.usage;
        let since = launch.started_at.unwrap_or(launch.claimed_at);
        Row {
            mark: mark_of(w, launch, self.about),
            is_open: outcome.is_none(),
            is_bad: outcome.is_some_and(Outcome::is_bad),
            title,
            of,
            second: self.second_line(launch, outcome),
            second_in_english: outcome
                .filter(|_| w.language == Language::Japanese)
                .and_then(Outcome::reason_in_english)
                .map(str::to_owned),
            face: self.faces.of(&launch.key.agent),
            agent: self.names.agent(&launch.key.agent).to_owned(),
            took: launch.started_at.zip(ended).map(|(from, (_, to))| ShownDuration(to.since(from))),
            running_for: outcome.is_none().then_some(Elapsed(since)),
            tokens: Some(Short(usage.tokens())).filter(|tokens| tokens.0 > 0),
            cost: cost_of(&usage),
            started: When(launch.claimed_at),
            id: launch.id.clone(),
        }
    }

    fn second_line(&self, launch: &Launch, outcome: Option<&Outcome>) -> Option<String> {
        match outcome {
            Some(outcome) => {
                let summary = self.about.summaries.get(&launch.id).map(String::as_str);
                self.w.of_end_reason(launch, outcome, summary)
            }
            None => launch.activity.progress.as_deref().and_then(|line| self.w.of_activity(line)),
        }
    }
}

/// Returns the mark of a launch: its state, or its end.
pub(super) fn mark_of(w: &'static Words, launch: &Launch, about: &Surroundings) -> String {
    match launch.as_ended() {
        Some((outcome, _)) => {
            let is_by_person = launch.stop_reason == Some(StopReason::Person);
            let stopped_by = about.stopped_by.get(&launch.id).filter(|_| is_by_person);
            w.of_end(launch, outcome, stopped_by.map(String::as_str))
        }
        None => w.of_state(launch.state.as_str()).to_owned(),
    }
}
