//! GitLab's REST API (v4), as far as it differs from GitHub's; also that of an own server below a
//! path. `client` calls it.
//!
//! Issues and merge requests are two lists with numbers of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::gate::Gate;
use super::raw::{RawLabel, RawUser, author, names};
use super::wire::{ApiPath, Ask, Dialect, Host, HostError};
use super::{
    Answer, ForgeError, FoundItem, FoundRequest, Listing, NewRequest, RepositoryFacts,
    RequestBranches,
};
use domain::Secret;
use domain::forge::{ForgeUser, ItemFacts, ItemKind, LabelDelta, PullRequest, task_text};

static DIALECT: Dialect = Dialect { token: ("private-token", ""), headers: &[], suffix: "/api/v4" };

/// The lowest role that may label issues (Planner).
const LABELS_ISSUES: u64 = 15;
/// The lowest role that may also label merge requests (Developer).
const LABELS_MERGE_REQUESTS: u64 = 30;

/// The lowest role that may push branches (Developer).
const PUSHES: u64 = 30;

#[derive(Deserialize)]
pub(super) struct RawItem {
    iid: u64,
    state: String,
    title: Option<String>,
    description: Option<String>,
    web_url: Option<String>,
    author: Option<Value>,
    assignees: Vec<RawUser>,
    labels: Vec<RawLabel>,
    updated_at: String,
    /// The number of an issue in all of GitLab, after it was moved to another project.
    moved_to_id: Option<u64>,
    discussion_locked: Option<bool>,
}

#[derive(Deserialize)]
pub(super) struct RawProject {
    path_with_namespace: String,
    #[serde(default)]
    archived: bool,
    issues_access_level: Option<String>,
    merge_requests_access_level: Option<String>,
    /// The access by the project and by its group.
    permissions: Option<BTreeMap<String, Option<RawAccess>>>,
    http_url_to_repo: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct RawRequest {
    iid: u64,
    web_url: Option<String>,
    state: String,
    description: Option<String>,
    author: Option<Value>,
    source_branch: String,
    target_branch: String,
    source_project_id: Option<u64>,
    target_project_id: Option<u64>,
}

#[derive(Deserialize)]
struct RawAccess {
    access_level: u64,
}

#[derive(Deserialize)]
struct RawToken {
    scopes: Vec<String>,
}

/// Returns the host of `base_url`: `https://gitlab.com` or an own server, also below a path:
/// `https://code.example/gitlab`. It may end in `/api/v4`.
pub(super) fn host(base_url: &str, token: Secret, gate: Arc<Gate>) -> Result<Host, HostError> {
    Host::new(base_url, token, &DIALECT, gate)
}

/// Adds the parameters that select the items of a list.
pub(super) fn select<'a>(ask: Ask<'a>, listing: &Listing) -> Ask<'a> {
    let ask = ask.query("scope", "all");
    let ask = match listing {
        Listing::Assigned { bot } => {
            let ask = match bot.id {
                Some(id) => ask.query("assignee_id", id.to_string()),
                None => ask.query("assignee_username[]", &bot.login),
            };
            ask.query("state", "opened").query("order_by", "created_at")
        }
        Listing::ChangedSince(since) => {
            ask.query("state", "all").query("updated_after", since).query("order_by", "updated_at")
        }
    };
    ask.query("sort", "asc")
}

pub(super) async fn change_labels(host: &Host, item: ApiPath, delta: &LabelDelta) -> Answer<()> {
    if delta.is_empty() {
        return Ok(());
    }
    if let Some(label) = delta.add.iter().chain(&delta.remove).find(|label| label.contains(',')) {
        let message = format!("a label with a comma can't be sent to GitLab: `{label}`");
        return Err(ForgeError::Refused { status: 400, message });
    }
    let mut body = Map::new();
    for (name, labels) in [("add_labels", &delta.add), ("remove_labels", &delta.remove)] {
        if !labels.is_empty() {
            body.insert(name.to_owned(), labels.join(",").into());
        }
    }
    host.send(Ask::new(Method::PUT, item).body(body.into())).await.map(drop)
}

/// Returns the scopes of the token.
pub(super) async fn scopes(host: &Host) -> Answer<Option<Vec<String>>> {
    let ask = Ask::get(ApiPath::new(&["personal_access_tokens", "self"])?);
    // Older servers, and other kinds of tokens, do not answer this.
    let token = host.send(ask).await.and_then(|answer| answer.json::<RawToken>());
    Ok(token.ok().map(|token| token.scopes))
}

pub(super) async fn user(host: &Host, login: &str) -> Answer<Option<ForgeUser>> {
    let ask = Ask::get(ApiPath::new(&["users"])?).query("username", login);
    let users = host.send(ask).await?.json::<Vec<RawUser>>()?;
    let found = users.into_iter().find(|user| user.login.to_lowercase() == login.to_lowercase());
    Ok(found.map(ForgeUser::from))
}

/// Returns the body that opens a merge request.
pub(super) fn body_of(request: &NewRequest) -> Value {
    let is_marked = task_text::is_title_of_draft(&request.title);
    let draft = if request.is_draft && !is_marked { "Draft: " } else { "" };
    json!({
        "source_branch": request.branch,
        "target_branch": request.target,
        "title": format!("{draft}{}", request.title),
        "description": request.body,
        "remove_source_branch": true,
    })
}

impl From<RawProject> for RepositoryFacts {
    fn from(raw: RawProject) -> Self {
        let is_off = |level: &Option<String>| level.as_deref() == Some("disabled");
        let needed = if is_off(&raw.merge_requests_access_level) {
            LABELS_ISSUES
        } else {
            LABELS_MERGE_REQUESTS
        };
        let has_role = |needed: u64| {
            let rights = raw.permissions.as_ref()?;
            Some(rights.values().flatten().any(|access| access.access_level >= needed))
        };
        Self {
            is_archived: raw.archived,
            has_issues: !is_off(&raw.issues_access_level),
            may_triage: has_role(needed),
            may_push: has_role(PUSHES),
            full_name: raw.path_with_namespace,
            clone_url: raw.http_url_to_repo,
        }
    }
}

impl From<RawRequest> for FoundRequest {
    fn from(raw: RawRequest) -> Self {
        let is_of_fork =
            raw.source_project_id.is_none() || raw.source_project_id != raw.target_project_id;
        let branches =
            RequestBranches { branch: raw.source_branch, target: raw.target_branch, is_of_fork };
        Self {
            request: PullRequest { number: raw.iid, url: raw.web_url.unwrap_or_default() },
            is_open: matches!(raw.state.as_str(), "opened" | "locked"),
            body: raw.description.unwrap_or_default(),
            author: author(raw.author),
            branches,
        }
    }
}

impl RawItem {
    /// Returns the item, of a list of this kind.
    ///
    /// # Errors
    /// A state that GitLab does not document.
    pub(super) fn read(self, kind: ItemKind) -> Result<FoundItem, &'static str> {
        if let Some(id) = self.moved_to_id {
            return Ok(FoundItem::Moved(format!("the issue with the id {id}")));
        }
        let is_open = match self.state.as_str() {
            // The request is being merged for a moment. It becomes merged, or opened again.
            "opened" | "locked" => true,
            "closed" | "merged" => false,
            _ => return Err("its `state` is unknown"),
        };
        Ok(FoundItem::Here(Box::new(ItemFacts {
            kind,
            number: self.iid,
            title: self.title.unwrap_or_default(),
            body: self.description.unwrap_or_default(),
            url: self.web_url.unwrap_or_default(),
            author: author(self.author).map(|user| user.login),
            labels: names(self.labels),
            assignees: self.assignees.into_iter().map(ForgeUser::from).collect(),
            is_open,
            is_locked: self.discussion_locked == Some(true),
            // Neither a list nor the issue tells them.
            n_blockers: 0,
            updated_at: self.updated_at,
        })))
    }
}
