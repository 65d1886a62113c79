//! The transcript of a launch, in pages: the last entries, those before them, and those that are
//! new.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr as _;
use std::time::Duration;

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use super::layout::{Frame, rendered};
use super::markdown::Markdown;
use super::shown::{Elapsed, Short, ShownDuration};
use crate::extract::{InPath, InQuery};
use crate::{Problem, RestState};
use domain::transcript::{Body, Call, CallResult, EditedLines, Entry, entries};
use domain::{LaunchId, ProjectKey, Timestamp};
use machine::instance_dir::output_pages::{OutputPage, OutputPlace};
use service::WantedLines;

/// The number of lines of a page.
const MAX_LINES: usize = 400;

#[derive(Template)]
#[template(path = "parts/transcript.html")]
struct TranscriptPart {
    frame: Frame,
    keys: BTreeSet<ProjectKey>,
    entries: Vec<Entry>,
    /// The place before the entries, if earlier ones are kept.
    start: Option<OutputPlace>,
    /// The place after the entries.
    end: Option<OutputPlace>,
    /// Nothing comes before or after these entries.
    is_all: bool,
    is_live: bool,
    /// The ids of the entries, if they have any. They are of the last page only, because pages are
    /// shown together.
    ids: Vec<String>,
    /// The time from which the times of the entries count.
    began_at: Timestamp,
}

/// Returns an id of its own for each entry about a call that has one, and an empty text for the
/// other entries. Several runs of a CLI in one launch may count their calls alike.
fn ids_of(entries: &[Entry]) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let id = |entry: &Entry| {
        let id = match &entry.body {
            Body::Call(Call { id, .. }) if !id.is_empty() => format!("call-{id}"),
            Body::Result { call, .. } if !call.is_empty() => format!("result-of-{call}"),
            _ => return String::new(),
        };
        let count = counts.entry(id.clone()).or_default();
        *count += 1;
        if *count == 1 { id } else { format!("{id}~{count}") }
    };
    entries.iter().map(id).collect()
}

impl TranscriptPart {
    /// Returns the entries with their ids.
    fn rows(&self) -> impl Iterator<Item = (&Entry, &str)> {
        let ids = self.ids.iter().map(String::as_str).chain(std::iter::repeat(""));
        self.entries.iter().zip(ids)
    }

    /// Returns the time of an entry since the launch began: `1:04`, or `2:05:09`.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "called by its template")]
    fn offset(&self, at: &Timestamp) -> String {
        let seconds = at.since(self.began_at).as_secs();
        let minutes = seconds / 60;
        match minutes {
            0..60 => format!("{minutes}:{:02}", seconds % 60),
            _ => format!("{}:{:02}:{:02}", minutes / 60, minutes % 60, seconds % 60),
        }
    }

    /// Returns what became of a call and how long it took, such as `+67 −0 · 0.1s`.
    fn brief(&self, call: &Call) -> String {
        let became = match (&call.result, &call.edited) {
            (None, _) if self.is_live => self.frame.w.running.to_owned(),
            (None, _) => String::new(),
            (Some(result), Some(edited)) if !result.is_error => self.edited(edited),
            (Some(result), _) => self.brief_result(result),
        };
        let took = call.took.map(took_text);
        let parts = Some(became).filter(|text| !text.is_empty()).into_iter().chain(took);
        parts.collect::<Vec<_>>().join(" · ")
    }

    /// Returns the time since which a call goes on, for a page that counts it.
    fn running_since(&self, entry: &Entry) -> Option<Elapsed> {
        let Body::Call(call) = &entry.body else { return None };
        let goes_on = self.is_live && call.result.is_none();
        entry.at.filter(|_| goes_on).map(Elapsed)
    }

    /// Returns what became of a call: that it failed, or the number of lines of its result if there
    /// are several.
    fn brief_result(&self, result: &CallResult) -> String {
        let w = self.frame.w;
        match result.text.lines().count() {
            _ if result.is_error => w.call_failed.to_owned(),
            n_lines @ 2.. => w.of_lines(n_lines),
            _ => String::new(),
        }
    }

    #[allow(clippy::unused_self, reason = "called by its template")]
    fn edited(&self, edited: &EditedLines) -> String {
        format!("+{} −{}", edited.n_added, edited.n_removed)
    }
}

/// Returns the duration of a call, in tenths of a second if it is short.
fn took_text(took: Duration) -> String {
    let tenths = took.as_millis() / 100;
    if tenths < 100 {
        format!("{}.{}s", tenths / 10, tenths % 10)
    } else {
        ShownDuration(took).to_string()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PageQuery {
    before: Option<String>,
    after: Option<String>,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new().route("/ui/parts/launches/{id}/transcript", get(part))
}

async fn part(
    frame: Frame,
    State(state): State<RestState>,
    InPath(id): InPath<LaunchId>,
    InQuery(query): InQuery<PageQuery>,
) -> Result<Response, Problem> {
    let launch = state.service.launches.get(&id).await?;
    let place =
        |name: &str, text: Option<&String>| text.map(|text| place_of(name, text)).transpose();
    let after = place("after", query.after.as_ref())?;
    let before = place("before", query.before.as_ref())?;
    let wanted = if after.is_some() {
        WantedLines::After(after)
    } else {
        WantedLines::Before { place: before, n_lines: MAX_LINES }
    };
    let mut is_all = false;
    let page = if let Some(page) = state.service.launches.output_page(&id, wanted).await? {
        page
    } else {
        let tail = state.service.launches.output_elsewhere(&id).await?;
        is_all = tail.is_some();
        let lines = tail.iter().flat_map(|tail| tail.lines()).map(str::to_owned).collect();
        OutputPage { lines, ..OutputPage::default() }
    };
    let entries = entries(page.lines.iter().map(String::as_str));
    let is_last_page = query.before.is_none() && query.after.is_none();
    Ok(rendered(&TranscriptPart {
        frame,
        keys: state.service.catalog.project_keys().await?,
        ids: if is_last_page { ids_of(&entries) } else { Vec::new() },
        entries,
        start: page.start,
        end: page.end,
        is_all,
        is_live: launch.as_ended().is_none(),
        began_at: launch.started_at.unwrap_or(launch.claimed_at),
    }))
}

fn place_of(name: &str, text: &str) -> Result<OutputPlace, Problem> {
    OutputPlace::from_str(text).map_err(|error| {
        let detail = format!("{name}: `{text}`: {error}");
        Problem::new(StatusCode::BAD_REQUEST, "invalid_query", detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calls_of_two_runs_that_count_alike_have_ids_of_their_own() {
        let line = |kind: &str, id: &str| {
            let item = serde_json::json!({ "id": id, "type": "command_execution", "command": "ls",
                "aggregated_output": "", "exit_code": 0, "status": "completed" });
            serde_json::json!({ "type": kind, "item": item }).to_string()
        };
        let run = ["item_1", "item_2"].map(|id| line("item.completed", id));
        let lines: Vec<String> = run.iter().chain(&run).cloned().collect();
        let entries = entries(lines.iter().map(String::as_str));
        let ids = ["call-item_1", "call-item_2", "call-item_1~2", "call-item_2~2"];
        assert_eq!(ids_of(&entries), ids);
    }

    #[test]
    fn a_short_call_has_tenths_of_a_second() {
        let shown = |millis| took_text(Duration::from_millis(millis));
        assert_eq!(shown(99), "0.0s");
        assert_eq!(shown(250), "0.2s");
        assert_eq!(shown(9_999), "9.9s");
        assert_eq!(shown(12_500), "12s");
        assert_eq!(shown(61_000), "1m 01s");
    }
}
