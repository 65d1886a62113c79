//! The event stream of a page. It only tells the page which of its parts to request again. There is
//! one stream per page, which also tells the server that the chat panel of the page is open.

use std::fmt::Write as _;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use serde::{Deserialize, Serialize};

use crate::auth::Operator;
use crate::extract::{InQuery, given};
use crate::routes::events::{Places, stream};
use crate::{Problem, RestState};
use domain::event::Event;
use domain::{AgentId, Assignment, ProjectId, TaskId};
use service::EventUpdate;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewsQuery {
    after: Option<i64>,
    /// The open panel, as `<project>/<agent>`.
    #[serde(default)]
    chat: String,
}

/// A part of the page that has changed.
#[derive(Debug, Serialize, PartialEq, Eq)]
#[serde(tag = "topic", rename_all = "snake_case")]
enum Item<'a> {
    /// One card.
    Task { task: &'a TaskId },
    /// One card, and the changes of the task.
    Workspace { task: &'a TaskId },
    /// A chat.
    Chat,
    /// The assignments and the launches.
    Work,
    /// The counters and measurements of a coordinator.
    Status,
    /// The whole page.
    Reset,
}

impl<'a> Item<'a> {
    fn of(event: &'a Event) -> Self {
        match (&event.task, event.kind.split('.').next()) {
            (Some(task), Some("task")) => Self::Task { task },
            (Some(task), Some("workspace")) => Self::Workspace { task },
            (_, Some("chat")) if event.kind == "chat.message" => Self::Chat,
            _ => Self::Work,
        }
    }
}

pub(super) fn routes() -> Router<RestState> {
    Router::new().route("/ui/events", get(follow).layer(Extension(Places::of_listener())))
}

async fn follow(
    State(state): State<RestState>,
    Extension(places): Extension<Places>,
    operator: Operator,
    InQuery(query): InQuery<NewsQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let chat = query
        .chat
        .split_once('/')
        .map(|(project, agent)| (given("chat", project), given("chat", agent)));
    let presence = match chat {
        Some((project, agent)) if operator.may_view_chats(&headers) => {
            let project: Option<ProjectId> = project?;
            let agent: Option<AgentId> = agent?;
            project
                .zip(agent)
                .map(|(project, agent)| state.service.chats.attend(Assignment { project, agent }))
        }
        _ => None,
    };
    let text_of = move |news: &EventUpdate| {
        let _open_as_long_as_this = &presence;
        text_of(news)
    };
    stream(&state, places, query.after, &headers, text_of).await
}

fn text_of(news: &EventUpdate) -> String {
    let (id, mut items) = match news {
        EventUpdate::Status => (None, vec![Item::Status]),
        EventUpdate::Lost { newest } => (Some(*newest), vec![Item::Reset]),
        EventUpdate::Events(events) => {
            (events.last().map(|event| event.seq), events.iter().map(Item::of).collect())
        }
    };
    items.dedup();
    let mut text = String::new();
    if let Some(id) = id {
        let _ = writeln!(text, "id: {id}");
    }
    let items = serde_json::to_string(&items).expect("a list of words is JSON");
    let _ = write!(text, "data: {items}\n\n");
    text
}
