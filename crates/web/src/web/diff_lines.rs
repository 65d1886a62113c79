//! The lines of one file of a diff. The part with the changes has the first lines of each file, and
//! a reader asks for more: a browser would be busy for seconds with all lines of a long diff.

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use super::layout::{Frame, rendered};
use super::unified_diff::{FileDiff, Row, UnifiedDiff};
use crate::extract::{InQuery, InTask};
use crate::{Problem, RestState};
use domain::TaskId;
use service::DiffKind;

/// The number of lines of a file that are shown at first.
const FIRST: usize = 400;
/// The number of lines of all files together that are shown at first.
const FIRST_OF_ALL: usize = 2_000;
/// The number of lines that a reader gets at once after these.
const MORE: usize = 2_000;

#[derive(Template)]
#[template(path = "parts/diff_lines.html")]
struct DiffLinesPart<'a> {
    frame: Frame,
    task: TaskId,
    lines: DiffLines<'a>,
}

/// Some lines of a file.
pub(super) struct DiffLines<'a> {
    /// The diff that has the file: `committed` or `uncommitted`.
    pub(super) kind: &'a str,
    /// The path of the file in the diff.
    pub(super) path: &'a str,
    /// The number of earlier files of the diff with this path.
    pub(super) nth: usize,
    pub(super) rows: &'a [Row],
    /// The index of the line after them.
    pub(super) next: usize,
    /// The number of lines after them.
    pub(super) n_left: usize,
}

impl DiffLines<'_> {
    /// Returns the query for the lines after these, as JSON.
    pub(super) fn query(&self) -> String {
        let Self { kind, path, nth, next, .. } = self;
        serde_json::json!({ "kind": kind, "path": path, "nth": nth, "from": next }).to_string()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinesQuery {
    kind: QueryKind,
    path: String,
    #[serde(default)]
    nth: usize,
    from: usize,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum QueryKind {
    Committed,
    Uncommitted,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new().route("/ui/parts/tasks/{id}/changes/lines", get(more))
}

/// Returns the next lines of a file. A file that is not in the diff any more has none.
async fn more(
    frame: Frame,
    State(state): State<RestState>,
    InTask(task): InTask,
    InQuery(LinesQuery { kind, path, nth, from }): InQuery<LinesQuery>,
) -> Result<Response, Problem> {
    let (wanted, kind) = match kind {
        QueryKind::Committed => (DiffKind::Committed, "committed"),
        QueryKind::Uncommitted => (DiffKind::Uncommitted, "uncommitted"),
    };
    let text = state.service.workspaces.diff(&task, wanted).await?;
    let diff = UnifiedDiff::parse(&String::from_utf8_lossy(&text));
    let file = diff.files.iter().find(|file| file.path == path && file.nth == nth);
    let rows = file.map(|file| file.rows.as_slice()).unwrap_or_default();
    let next = from.saturating_add(MORE).min(rows.len());
    let n_left = rows.len() - next;
    let rows = rows.get(from..next).unwrap_or_default();
    let lines = DiffLines { kind, path: &path, nth, rows, next, n_left };
    Ok(rendered(&DiffLinesPart { frame, task, lines }))
}

/// Decides how many lines of each file are shown at first.
pub(super) fn limit(diff: &mut UnifiedDiff) {
    let mut n_left = FIRST_OF_ALL;
    for file in &mut diff.files {
        file.n_shown = file.rows.len().min(FIRST).min(n_left);
        n_left -= file.n_shown;
    }
}

impl FileDiff {
    /// Returns the lines that are shown at first.
    pub(super) fn first_lines<'a>(&'a self, kind: &'a str) -> DiffLines<'a> {
        let (rows, rest) = self.rows.split_at(self.n_shown);
        let Self { path, nth, n_shown, .. } = self;
        DiffLines { kind, path, nth: *nth, rows, next: *n_shown, n_left: rest.len() }
    }

    /// Returns a text that no other file of the diff has.
    pub(super) fn key(&self) -> String {
        match self.nth {
            0 => self.path.clone(),
            nth => format!("{}~{nth}", self.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_and_many_files_show_their_first_lines_only() {
        let file = |n: usize| {
            let lines = "+x\n".repeat(n);
            format!("diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -0,0 +1,{n} @@\n{lines}")
        };
        let mut diff = UnifiedDiff::parse(&[file(1_000), file(100), file(399).repeat(5)].concat());
        limit(&mut diff);
        let shown: Vec<usize> = diff.files.iter().map(|file| file.n_shown).collect();
        assert_eq!(shown, [400, 101, 400, 400, 400, 299, 0]);
        let lines = diff.files[0].first_lines("committed");
        assert_eq!((lines.rows.len(), lines.next, lines.n_left), (400, 400, 601));
    }
}
