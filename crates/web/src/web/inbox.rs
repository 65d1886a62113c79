//! The inbox: what needs a person, the entry that is read, and what the reader does with it.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;

use super::layout::{Frame, NavSection, page_and_part};
use super::names::Names;
use super::shown::Since;
use super::waits::{About, WhyAction, WhyLine};
use super::words::Words;
use crate::auth::Operator;
use crate::extract::{InForm, InQuery, given};
use crate::routes::attention::{entries, put_mark};
use crate::{Problem, RestState};
use api::forge::is_safe_link;
use domain::attention::{
    AttentionGroup, AttentionKind, AttentionState, Cause, Mark, TaskInNeed, WaitingResult,
};
use domain::{AgentId, AttentionId, Language, LaunchId, ProjectId, ShortId};
use runtime::telemetry::ErrorChain;
use service::MarkedAttention;

page_and_part! {
    InboxPage "inbox.html", InboxPart "parts/inbox.html" { names: Names, inbox: Inbox }
}

/// The entries with one state, and the one that is read.
struct Inbox {
    show: AttentionState,
    /// The kind and the project that are chosen; `None` for all.
    kind: Option<AttentionKind>,
    project: Option<ProjectId>,
    /// The kinds and the projects that can be chosen.
    kinds: Vec<AttentionKind>,
    projects: Vec<ProjectId>,
    n_shown: usize,
    groups: Vec<Group>,
    /// The entry that is read; `None` if none was chosen, or if it has ended.
    reading: Option<Entry>,
    has_ended: bool,
    /// The entry that the address names.
    item: Option<AttentionId>,
    /// The agents that work now.
    n_running: usize,
}

/// The entries that are shown together.
struct Group {
    group: AttentionGroup,
    entries: Vec<Entry>,
}

#[derive(Clone)]
struct Entry {
    id: AttentionId,
    kind: AttentionKind,
    state: AttentionState,
    /// The reader has not read it. The marks of a viewer are not kept, so nothing is new for one.
    is_new: bool,
    title: String,
    text: String,
    since: Option<Since>,
    until: Option<Since>,
    later_until: Option<Since>,
    short_id: Option<ShortId>,
    agent: Option<AgentId>,
    project: Option<ProjectId>,
    launch: Option<LaunchId>,
    /// The name and the address of the item of a forge that it is about.
    item: Option<(String, String)>,
    remedy: Vec<Piece>,
    /// The error that a Japanese text leaves out.
    detail_in_english: Option<String>,
    /// The action that ends it, unless that is to look at the task.
    action: Option<WhyAction>,
    /// The place where a person decides about results, and the name of that.
    decides_at: Option<(String, &'static str)>,
}

/// A piece of a remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Command(String),
    /// The name of a setting.
    Name(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct InboxQuery {
    show: Option<AttentionState>,
    item: Option<AttentionId>,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    project: String,
}

/// The answers of the reader to an entry.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Done,
    /// For an hour.
    Hour,
    /// For a day.
    Day,
    Open,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MarkFields {
    item: AttentionId,
    answer: Answer,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new()
        .route("/ui/inbox", get(show))
        .route("/ui/parts/inbox", get(show))
        .route("/ui/do/inbox/mark", post(mark))
}

async fn show(
    frame: Frame,
    State(state): State<RestState>,
    operator: Operator,
    InQuery(query): InQuery<InboxQuery>,
) -> Result<Response, Problem> {
    let names = Names::read(&state).await?;
    let inbox = Inbox::read(&frame, &state, &names, &operator, query).await?;
    Ok(InboxPage { frame: frame.at(NavSection::Inbox), names, inbox }.shown())
}

async fn mark(
    State(state): State<RestState>,
    operator: Operator,
    InForm(fields): InForm<MarkFields>,
) -> Result<StatusCode, Problem> {
    const HOUR: Duration = Duration::from_hours(1);
    let now = state.service.time();
    let until = match fields.answer {
        Answer::Open => {
            state.service.unmark_attention(&operator.name, &fields.item).await?;
            return Ok(StatusCode::NO_CONTENT);
        }
        Answer::Done => None,
        Answer::Hour => Some(now + HOUR),
        Answer::Day => Some(now + 24 * HOUR),
    };
    put_mark(&state, &operator.name, &fields.item, until).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the number of entries that are open for a person.
pub(super) async fn count_open(state: &RestState, operator: &Operator) -> Result<usize, Problem> {
    let entries = entries(state, &operator.name).await?;
    Ok(entries.iter().filter(|marked| marked.state == AttentionState::Open).count())
}

impl Inbox {
    async fn read(
        frame: &Frame,
        state: &RestState,
        names: &Names,
        operator: &Operator,
        query: InboxQuery,
    ) -> Result<Self, Problem> {
        let show = query.show.unwrap_or(AttentionState::Open);
        let kind: Option<AttentionKind> = given("kind", &query.kind)?;
        let project: Option<ProjectId> = given("project", &query.project)?;
        let all = entries(state, &operator.name).await?.into_iter();
        let mut all: Vec<Entry> = all.map(|marked| Entry::of(frame, names, marked)).collect();
        let mut reading = all.iter_mut().find(|entry| Some(&entry.id) == query.item.as_ref());
        if let Some(entry) = reading.as_mut().filter(|entry| entry.is_new) {
            entry.is_new = false;
            // It can be read, whether or not that can be noted.
            if let Err(error) = state.service.read_attention(&operator.name, &entry.id).await {
                tracing::warn!(error = %ErrorChain(&error), "could not note what was read");
            }
        }
        let reading = reading.cloned();
        let kinds: BTreeSet<_> = all.iter().map(|entry| entry.kind).chain(kind).collect();
        let projects = all.iter().filter_map(|entry| entry.project.as_ref()).chain(&project);
        let projects: BTreeSet<ProjectId> = projects.cloned().collect();
        let is_shown = |entry: &Entry| {
            entry.state == show
                && kind.is_none_or(|kind| entry.kind == kind)
                && (project.is_none() || entry.project == project)
        };
        let shown: Vec<Entry> = all.into_iter().filter(is_shown).collect();
        let groups = AttentionGroup::ALL.iter().map(|group| {
            let entries = shown.iter().filter(|entry| entry.kind.group() == *group);
            Group { group: *group, entries: entries.cloned().collect() }
        });
        let n_shown = shown.len();
        let groups = groups.filter(|group| !group.entries.is_empty()).collect();
        let open = state.service.launches.open().await?;
        let running = open.iter().filter(|launch| launch.pid.is_some());
        let running: BTreeSet<&AgentId> = running.map(|launch| &launch.key.agent).collect();
        Ok(Self {
            show,
            kind,
            project,
            kinds: kinds.into_iter().collect(),
            projects: projects.into_iter().collect(),
            n_shown,
            groups,
            has_ended: reading.is_none() && query.item.is_some(),
            reading,
            item: query.item,
            n_running: running.len(),
        })
    }

    fn is_filtered(&self) -> bool {
        self.kind.is_some() || self.project.is_some()
    }

    /// Returns the query of an address that shows the entries of a state by the same filter.
    fn query(&self, show: AttentionState) -> String {
        let kind = self.kind.iter().map(|kind| format!("&kind={kind}"));
        let project = self.project.iter().map(|project| format!("&project={project}"));
        format!("show={show}{}", kind.chain(project).collect::<String>())
    }

    /// Returns whether the entries with this state are shown.
    fn shows(&self, state: AttentionState) -> bool {
        self.show == state
    }

    /// Returns whether the reader chose this entry.
    fn is_read(&self, entry: &Entry) -> bool {
        self.item.as_ref() == Some(&entry.id)
    }
}

impl Entry {
    fn of(frame: &Frame, names: &Names, marked: MarkedAttention) -> Self {
        let MarkedAttention { entry, mark, state } = marked;
        let language = frame.w.language;
        let task = entry.task();
        let about = About {
            agent: entry.agent(),
            project: entry.project(),
            task: task.map(|task| &task.id),
        };
        let action =
            entry.waiting().and_then(|waiting| WhyLine::of(frame.w, &waiting, about).action);
        let is_read = mark.as_ref().is_some_and(Mark::is_read);
        let later_until = mark.and_then(|mark| mark.until);
        Self {
            id: entry.id(),
            kind: entry.kind(),
            state,
            is_new: state == AttentionState::Open && frame.may_change() && !is_read,
            title: match entry.key() {
                Some(key) => frame.w.of_pair(names.agent(&key.agent), names.project(&key.project)),
                None => entry.title(language),
            },
            text: entry.text(language),
            since: entry.since.map(Since),
            until: entry.until().map(Since),
            later_until: later_until.filter(|_| state == AttentionState::Later).map(Since),
            short_id: task.map(|task| task.short_id.clone()),
            agent: entry.agent().cloned(),
            project: entry.project().cloned(),
            launch: entry.launch().cloned(),
            item: entry
                .item()
                .filter(|write| is_safe_link(&write.url))
                .map(|write| (write.key.to_string(), write.url.clone())),
            remedy: entry.remedy(language).map(|remedy| pieces(&remedy)).unwrap_or_default(),
            detail_in_english: entry.detail_in_english().filter(|_| language == Language::Japanese),
            action: action.filter(|action| !action.leads_to_task()),
            decides_at: match &entry.cause {
                Cause::Result(result) => Some(place_of(frame.w, result)),
                _ => None,
            },
        }
    }

    /// Returns the task of an entry about a blocked one, which a person may set in progress again.
    fn blocked_task(&self) -> Option<&ShortId> {
        self.short_id.as_ref().filter(|_| self.kind == AttentionKind::Blocked)
    }

    /// Returns the short id to show before the text, unless the text begins with it.
    fn id_before_text(&self) -> Option<&ShortId> {
        let short_id = self.short_id.as_ref()?;
        (!self.text.starts_with(&short_id.to_string())).then_some(short_id)
    }

    /// Returns the name of its symbol in the sprite.
    const fn icon(&self) -> &'static str {
        match self.kind {
            AttentionKind::Account => "i-key",
            AttentionKind::Unmerged => "i-merge",
            AttentionKind::Blocked | AttentionKind::Chain | AttentionKind::Workspace => "i-warn",
            _ => "i-bad",
        }
    }

    /// Returns the colour of its symbol.
    const fn tone(&self) -> &'static str {
        match (self.kind.group(), self.kind) {
            (AttentionGroup::Blocked, _) | (_, AttentionKind::Unmerged) => "wait",
            _ => "bad",
        }
    }
}

/// Returns the address at which a person decides about results, and the text of the link to it.
fn place_of(w: &'static Words, result: &WaitingResult) -> (String, &'static str) {
    let changes = |task: &TaskInNeed| format!("/ui/tasks/{}?tab=changes", task.short_id);
    match result {
        WaitingResult::ToMerge { task, .. } | WaitingResult::Files { task, .. } => {
            (changes(task), w.merge)
        }
        WaitingResult::Undecided { task, .. } => (changes(task), w.choose_result()),
        WaitingResult::Beside { task, .. } | WaitingResult::NotKept { task, .. } => {
            (changes(task), w.changes)
        }
        WaitingResult::Conflict { task, .. } | WaitingResult::Left { task: Some(task), .. } => {
            (changes(task), w.changes)
        }
        WaitingResult::Left { merge, .. } => (format!("/ui/projects/{}", merge.project), w.project),
        WaitingResult::Many { project, .. } => {
            (format!("/ui/projects/{project}?merge=wanted"), w.merge)
        }
    }
}

/// Divides a remedy at its backquotes, between which there are commands and settings.
fn pieces(remedy: &str) -> Vec<Piece> {
    let pieces = remedy.split('`').enumerate().filter(|(_, text)| !text.is_empty());
    let piece = |(place, text): (usize, &str)| match place % 2 {
        0 => Piece::Text(text.to_owned()),
        _ if text.contains('.') && !text.contains(' ') => Piece::Name(text.to_owned()),
        _ => Piece::Command(text.to_owned()),
    };
    pieces.map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_of_a_remedy_are_between_backquotes() {
        let pieces = pieces("mend the cause or `workspace.hooks`, then `resume ann shop`");
        let expected = [
            Piece::Text("mend the cause or ".to_owned()),
            Piece::Name("workspace.hooks".to_owned()),
            Piece::Text(", then ".to_owned()),
            Piece::Command("resume ann shop".to_owned()),
        ];
        assert_eq!(pieces, expected);
    }
}
