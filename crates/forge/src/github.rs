//! GitHub's REST API, as far as it differs from GitLab's; also that of an own server (GitHub
//! Enterprise). `client` calls it.
//!
//! Pull requests are issues there: one list has both, and both have the same comments and labels.

use std::collections::BTreeMap;
use std::sync::Arc;

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::gate::Gate;
use super::raw::{Numbered, RawComment, RawLabel, RawUser, author, names};
use super::wire::{ApiPath, Ask, Dialect, Host, HostError, Response};
use super::{
    Answer, ForgeError, FoundItem, FoundRequest, Listing, NewRequest, RepositoryFacts,
    RequestBranches,
};
use domain::Secret;
use domain::forge::{Comment, ForgeUser, ItemFacts, ItemKind, LabelDelta, PullRequest};

static DIALECT: Dialect = Dialect {
    token: ("authorization", "Bearer "),
    headers: &[("accept", "application/vnd.github+json"), ("x-github-api-version", "2022-11-28")],
    suffix: "",
};

#[derive(Deserialize)]
pub(super) struct RawItem {
    number: u64,
    state: String,
    title: Option<String>,
    body: Option<String>,
    html_url: Option<String>,
    user: Option<Value>,
    assignees: Vec<RawUser>,
    labels: Vec<RawLabel>,
    updated_at: String,
    pull_request: Option<Value>,
    locked: Option<bool>,
    issue_dependencies_summary: Option<RawDependencies>,
}

#[derive(Deserialize)]
struct RawDependencies {
    /// The number of open issues that block it.
    #[serde(default)]
    blocked_by: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct RawRepository {
    full_name: String,
    #[serde(default)]
    archived: bool,
    has_issues: Option<bool>,
    permissions: Option<BTreeMap<String, bool>>,
    clone_url: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct RawPull {
    number: u64,
    html_url: Option<String>,
    state: String,
    body: Option<String>,
    user: Option<Value>,
    head: RawSide,
    base: RawSide,
}

#[derive(Deserialize)]
pub(super) struct RawReview {
    #[serde(flatten)]
    comment: RawComment,
    path: Option<String>,
    line: Option<u64>,
}

#[derive(Deserialize)]
struct RawSide {
    #[serde(rename = "ref")]
    branch: String,
    /// `None` if the fork is deleted.
    repo: Option<Numbered>,
}

/// Returns the host of `base_url`: `https://api.github.com`, or that of an own server:
/// `https://ghe.example/api/v3`.
pub(super) fn host(base_url: &str, token: Secret, gate: Arc<Gate>) -> Result<Host, HostError> {
    let host = Host::new(base_url, token, &DIALECT, gate)?;
    match host.name() {
        "github.com" | "www.github.com" => Err(HostError::BaseUrl {
            url: base_url.to_owned(),
            problem: "that is the site for people, whose API is at `https://api.github.com`",
        }),
        _ => Ok(host),
    }
}

/// Returns the path of a repository.
pub(super) fn path(repository: &str) -> Answer<ApiPath> {
    match repository.split_once('/') {
        Some((owner, name)) if !name.contains('/') => ApiPath::new(&["repos", owner, name]),
        _ => Err(ForgeError::Refused {
            status: 400,
            message: format!("`{repository}` is not a repository: expected `owner/name`"),
        }),
    }
}

/// Adds the parameters that select the items of a list.
pub(super) fn select<'a>(ask: Ask<'a>, listing: &Listing) -> Ask<'a> {
    let ask = match listing {
        Listing::Assigned { bot } => {
            ask.query("assignee", &bot.login).query("state", "open").query("sort", "created")
        }
        Listing::ChangedSince(since) => {
            ask.query("state", "all").query("since", since).query("sort", "updated")
        }
    };
    ask.query("direction", "asc")
}

pub(super) async fn change_labels(host: &Host, item: ApiPath, delta: &LabelDelta) -> Answer<()> {
    let labels = item.join(&["labels"])?;
    // The paths are checked before anything is written. A label without a path of its own would
    // remove all labels.
    let removed: Vec<ApiPath> =
        delta.remove.iter().map(|label| labels.clone().join(&[label])).collect::<Result<_, _>>()?;
    if !delta.add.is_empty() {
        host.send(Ask::new(Method::POST, labels).body(json!({ "labels": delta.add }))).await?;
    }
    for label in removed {
        host.find(Ask::new(Method::DELETE, label)).await?;
    }
    Ok(())
}

/// Returns the scopes of the token, from the answer about its owner.
pub(super) fn scopes(answer: &Response) -> Option<Vec<String>> {
    let scopes = answer.header("x-oauth-scopes")?.split(',').map(str::trim);
    Some(scopes.filter(|scope| !scope.is_empty()).map(str::to_owned).collect())
}

pub(super) async fn user(host: &Host, login: &str) -> Answer<Option<ForgeUser>> {
    let answer = host.find(Ask::get(ApiPath::new(&["users", login])?)).await?;
    let user = answer.map(|answer| answer.json::<RawUser>()).transpose()?;
    Ok(user.map(ForgeUser::from))
}

/// Returns the body that opens a pull request.
pub(super) fn body_of(request: &NewRequest) -> Value {
    json!({
        "title": request.title,
        "head": request.branch,
        "base": request.target,
        "body": request.body,
        "draft": request.is_draft,
    })
}

impl From<RawRepository> for RepositoryFacts {
    fn from(raw: RawRepository) -> Self {
        // Each right contains the one before it.
        let has_any = |rights: &BTreeMap<String, bool>, names: &[&str]| {
            names.iter().any(|right| rights.get(*right) == Some(&true))
        };
        let rights = raw.permissions.as_ref();
        Self {
            is_archived: raw.archived,
            has_issues: raw.has_issues.unwrap_or(true),
            may_triage: rights
                .map(|rights| has_any(rights, &["triage", "push", "maintain", "admin"])),
            may_push: rights.map(|rights| has_any(rights, &["push", "maintain", "admin"])),
            full_name: raw.full_name,
            clone_url: raw.clone_url,
        }
    }
}

impl From<RawReview> for Comment {
    fn from(raw: RawReview) -> Self {
        let comment = Self::from(raw.comment);
        let place = match (raw.path, raw.line) {
            (Some(path), Some(line)) => format!("{path}:{line}\n"),
            (Some(path), None) => format!("{path}\n"),
            (None, _) => String::new(),
        };
        Self { body: format!("{place}{}", comment.body), ..comment }
    }
}

impl From<RawPull> for FoundRequest {
    fn from(raw: RawPull) -> Self {
        let id = |side: &RawSide| side.repo.as_ref().map(|repository| repository.id);
        let is_of_fork = id(&raw.head).is_none() || id(&raw.head) != id(&raw.base);
        let branches =
            RequestBranches { branch: raw.head.branch, target: raw.base.branch, is_of_fork };
        Self {
            request: PullRequest { number: raw.number, url: raw.html_url.unwrap_or_default() },
            is_open: raw.state == "open",
            body: raw.body.unwrap_or_default(),
            author: author(raw.user),
            branches,
        }
    }
}

impl RawItem {
    /// Returns the item.
    ///
    /// # Errors
    /// A state that GitHub does not document.
    pub(super) fn read(self) -> Result<FoundItem, &'static str> {
        let is_open = match self.state.as_str() {
            "open" => true,
            "closed" => false,
            _ => return Err("its `state` is unknown"),
        };
        Ok(FoundItem::Here(Box::new(ItemFacts {
            kind: if self.pull_request.is_some() { ItemKind::PullRequest } else { ItemKind::Issue },
            number: self.number,
            title: self.title.unwrap_or_default(),
            body: self.body.unwrap_or_default(),
            url: self.html_url.unwrap_or_default(),
            author: author(self.user).map(|user| user.login),
            labels: names(self.labels),
            assignees: self.assignees.into_iter().map(ForgeUser::from).collect(),
            is_open,
            is_locked: self.locked == Some(true),
            n_blockers: self
                .issue_dependencies_summary
                .and_then(|summary| summary.blocked_by)
                .unwrap_or(0),
            updated_at: self.updated_at,
        })))
    }
}
