//! GitHub's REST API, also that of an own server (GitHub Enterprise).
//!
//! Pull requests are issues there: one list has both, and both have the same comments and labels.
//! Knows requests and answers; what they mean for a task is decided in `domain::forge`. Made by
//! `app` and `cli`, called by the poller and the outbox worker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::gate::Gate;
use super::raw::{Named, Numbered, RawBranch, RawComment, RawLabel, RawUser, author, names};
use super::wire::{Ask, Dialect, Host, HostError, Part};
use super::{
    Answer, Conditional, Feed, Forge, ForgeError, FoundItem, FoundRequest, Identity, Listing,
    MAX_COMMENTS, NewRequest, Page, RepositoryFacts, RequestBranches,
};
use crate::domain::Secret;
use crate::domain::forge::pacing::Urgency;
use crate::domain::forge::{
    Comment, ForgeKind, ForgeUser, ItemFacts, ItemKind, LabelDelta, PullRequest,
};

static DIALECT: Dialect = Dialect {
    token: ("authorization", "Bearer "),
    headers: &[("accept", "application/vnd.github+json"), ("x-github-api-version", "2022-11-28")],
    suffix: "",
};

/// A neutral colour.
const LABEL_COLOUR: &str = "ededed";

/// One GitHub, with one token.
#[derive(Debug, Clone)]
pub struct GitHub {
    host: Host,
}

#[derive(Deserialize)]
struct RawItem {
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

/// An issue that blocks another one. It may be in a repository that shows little of it.
#[derive(Deserialize)]
struct RawBlocker {
    state: Option<String>,
    html_url: Option<String>,
}

#[derive(Deserialize)]
struct RawRepository {
    full_name: String,
    #[serde(default)]
    archived: bool,
    has_issues: Option<bool>,
    permissions: Option<BTreeMap<String, bool>>,
    clone_url: Option<String>,
}

#[derive(Deserialize)]
struct RawPull {
    number: u64,
    html_url: Option<String>,
    state: String,
    body: Option<String>,
    user: Option<Value>,
    head: RawSide,
    base: RawSide,
}

#[derive(Deserialize)]
struct RawReview {
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

impl GitHub {
    /// Creates a client. `base_url` is `https://api.github.com`, or that of an own server:
    /// `https://ghe.example/api/v3`.
    pub fn new(base_url: &str, token: Secret) -> Result<Self, HostError> {
        let host = Host::new(base_url, token, &DIALECT)?;
        match host.name() {
            "github.com" | "www.github.com" => Err(HostError::BaseUrl {
                url: base_url.to_owned(),
                problem: "that is the site for people, whose API is at `https://api.github.com`",
            }),
            _ => Ok(Self { host }),
        }
    }

    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// Sets the least time between two writes.
    pub fn with_write_interval(mut self, interval: Duration) -> Self {
        self.host.set_write_interval(interval);
        self
    }

    /// Sets the gate that all requests to this host share.
    pub(super) fn with_gate(mut self, gate: Arc<Gate>) -> Self {
        self.host.set_gate(gate);
        self
    }

    /// Sets the time limit for a question together with its repeats. The default is 20 s.
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.host.set_timeout(timeout);
        self
    }

    async fn list_page(
        &self,
        repository: &str,
        listing: &Listing,
        page: u32,
        etag: Option<&str>,
    ) -> Result<Conditional<Page>, ForgeError> {
        let ask = Ask::get(&path(repository, &["issues"])?)?;
        let ask = match listing {
            Listing::Assigned { bot } => {
                ask.query("assignee", &bot.login).query("state", "open").query("sort", "created")
            }
            Listing::ChangedSince(since) => {
                ask.query("state", "all").query("since", since).query("sort", "updated")
            }
        };
        let answer = self.host.send(ask.query("direction", "asc").page(page).etag(etag)).await?;
        answer.fresh(|answer| {
            let items = answer
                .good_ones(|item: RawItem| item.facts().ok_or("it is in an unknown state"))?;
            Ok(Page { items, etag: answer.etag(), has_more: answer.has_more() })
        })
    }

    async fn find_item(
        &self,
        repository: &str,
        number: u64,
        etag: Option<&str>,
    ) -> Result<Conditional<(FoundItem, Option<String>)>, ForgeError> {
        let number = number.to_string();
        let path = path(repository, &["issues", &number])?;
        let answer = match self.host.send(Ask::get(&path)?.etag(etag)).await {
            Ok(answer) => answer,
            Err(ForgeError::NotFound { .. }) => {
                return Ok(Conditional::Fresh((FoundItem::Gone, None)));
            }
            Err(error) => {
                let place = self.host.place_of_moved(&error, &path).ok_or(error)?;
                return Ok(Conditional::Fresh((FoundItem::Moved(place), None)));
            }
        };
        answer.fresh(|answer| {
            let facts = answer
                .json::<RawItem>()?
                .facts()
                .ok_or_else(|| answer.not_understood("its `state` is unknown"))?;
            Ok((FoundItem::Here(Box::new(facts)), answer.etag()))
        })
    }

    async fn all_comments(
        &self,
        repository: &str,
        number: u64,
    ) -> Result<Vec<Comment>, ForgeError> {
        let number = number.to_string();
        let list = Ask::get(&path(repository, &["issues", &number, "comments"])?)?;
        let comments = self.host.elements::<RawComment>(&list, Part::Last).await?;
        let n_too_many = comments.len().saturating_sub(MAX_COMMENTS);
        Ok(comments.into_iter().skip(n_too_many).map(Comment::from).collect())
    }

    async fn apply(
        &self,
        repository: &str,
        number: u64,
        delta: &LabelDelta,
    ) -> Result<(), ForgeError> {
        let number = number.to_string();
        let path = path(repository, &["issues", &number, "labels"])?;
        // The paths are checked before anything is written. A label without a path of its own would
        // remove all labels.
        let removals: Vec<Ask> = delta
            .remove
            .iter()
            .map(|label| Ask::new(Method::DELETE, &[&path[..], &[label]].concat()))
            .collect::<Result<_, _>>()?;
        if !delta.add.is_empty() {
            self.host
                .send(Ask::new(Method::POST, &path)?.body(json!({ "labels": delta.add })))
                .await?;
        }
        for removal in removals {
            self.host.find(removal).await?;
        }
        Ok(())
    }

    async fn all_labels(&self, repository: &str) -> Result<Vec<String>, ForgeError> {
        let list = Ask::get(&path(repository, &["labels"])?)?;
        let labels = self.host.elements::<Named>(&list, Part::First).await?;
        Ok(labels.into_iter().map(|label| label.name).collect())
    }
}

impl Forge for GitHub {
    fn kind(&self) -> ForgeKind {
        ForgeKind::GitHub
    }

    fn with_urgency(&self, urgency: Urgency) -> Arc<dyn Forge> {
        Arc::new(Self { host: self.host.with_urgency(urgency) })
    }

    fn feeds(&self) -> &'static [Feed] {
        &[Feed::All]
    }

    fn list<'a>(
        &'a self,
        repository: &'a str,
        _: Feed,
        listing: &'a Listing,
        page: u32,
        etag: Option<&'a str>,
    ) -> Answer<'a, Conditional<Page>> {
        Box::pin(self.list_page(repository, listing, page, etag))
    }

    fn hides_blockers(&self) -> bool {
        false
    }

    fn blockers<'a>(&'a self, repository: &'a str, number: u64) -> Answer<'a, Vec<String>> {
        Box::pin(async move {
            let number = number.to_string();
            let path = path(repository, &["issues", &number, "dependencies", "blocked_by"])?;
            let found = self.host.send(Ask::get(&path)?).await?.json::<Vec<RawBlocker>>()?;
            let open = found.into_iter().filter(|issue| issue.state.as_deref() == Some("open"));
            Ok(open.map(|issue| issue.html_url.unwrap_or_default()).collect())
        })
    }

    fn item<'a>(
        &'a self,
        repository: &'a str,
        _: ItemKind,
        number: u64,
        etag: Option<&'a str>,
    ) -> Answer<'a, Conditional<(FoundItem, Option<String>)>> {
        Box::pin(self.find_item(repository, number, etag))
    }

    fn comments<'a>(
        &'a self,
        repository: &'a str,
        _: ItemKind,
        number: u64,
    ) -> Answer<'a, Vec<Comment>> {
        Box::pin(self.all_comments(repository, number))
    }

    fn add_comment<'a>(
        &'a self,
        repository: &'a str,
        _: ItemKind,
        number: u64,
        body: &'a str,
    ) -> Answer<'a, u64> {
        Box::pin(async move {
            let number = number.to_string();
            let ask = Ask::new(Method::POST, &path(repository, &["issues", &number, "comments"])?)?;
            Ok(self.host.send(ask.body(json!({ "body": body }))).await?.json::<Numbered>()?.id)
        })
    }

    fn remove_comment<'a>(
        &'a self,
        repository: &'a str,
        _: ItemKind,
        _: u64,
        comment: u64,
    ) -> Answer<'a, ()> {
        Box::pin(async move {
            let comment = comment.to_string();
            let ask =
                Ask::new(Method::DELETE, &path(repository, &["issues", "comments", &comment])?)?;
            self.host.find(ask).await.map(drop)
        })
    }

    fn change_labels<'a>(
        &'a self,
        repository: &'a str,
        _: ItemKind,
        number: u64,
        delta: &'a LabelDelta,
    ) -> Answer<'a, ()> {
        Box::pin(self.apply(repository, number, delta))
    }

    fn identity(&self) -> Answer<'_, Identity> {
        Box::pin(async {
            let answer = self.host.send(Ask::get(&["user"])?).await?;
            let scopes = answer.header("x-oauth-scopes").map(|scopes| {
                scopes
                    .split(',')
                    .map(str::trim)
                    .filter(|scope| !scope.is_empty())
                    .map(str::to_owned)
                    .collect()
            });
            Ok(Identity { user: answer.json::<RawUser>()?.into(), scopes })
        })
    }

    fn user<'a>(&'a self, login: &'a str) -> Answer<'a, Option<ForgeUser>> {
        Box::pin(async move {
            let answer = self.host.find(Ask::get(&["users", login])?).await?;
            let user = answer.map(|answer| answer.json::<RawUser>()).transpose()?;
            Ok(user.map(ForgeUser::from))
        })
    }

    fn repository<'a>(&'a self, repository: &'a str) -> Answer<'a, RepositoryFacts> {
        Box::pin(async move {
            let answer = match self.host.send(Ask::get(&path(repository, &[])?)?).await {
                Ok(answer) => answer,
                // The repository was renamed or transferred. Its number stays.
                Err(error) => {
                    let number = self.host.number_of_moved(&error, "repositories").ok_or(error)?;
                    self.host.send(Ask::get(&["repositories", &number.to_string()])?).await?
                }
            };
            let raw: RawRepository = answer.json()?;
            // Each right contains the one before it.
            let has_any = |rights: &BTreeMap<String, bool>, names: &[&str]| {
                names.iter().any(|right| rights.get(*right) == Some(&true))
            };
            let rights = raw.permissions.as_ref();
            Ok(RepositoryFacts {
                full_name: raw.full_name,
                is_archived: raw.archived,
                has_issues: raw.has_issues.unwrap_or(true),
                may_triage: rights
                    .map(|rights| has_any(rights, &["triage", "push", "maintain", "admin"])),
                may_push: rights.map(|rights| has_any(rights, &["push", "maintain", "admin"])),
                clone_url: raw.clone_url,
            })
        })
    }

    fn requests_from<'a>(
        &'a self,
        repository: &'a str,
        branch: &'a str,
    ) -> Answer<'a, Vec<FoundRequest>> {
        Box::pin(async move {
            let owner = repository.split('/').next().unwrap_or_default();
            let ask = Ask::get(&path(repository, &["pulls"])?)?
                .query("head", format!("{owner}:{branch}"))
                .query("state", "all");
            let pulls = self.host.send(ask.page(1)).await?.json::<Vec<RawPull>>()?;
            // The same owner may have another fork.
            let id = |side: &RawSide| side.repo.as_ref().map(|repository| repository.id);
            let is_own =
                |pull: &RawPull| id(&pull.head).is_some() && id(&pull.head) == id(&pull.base);
            Ok(pulls.into_iter().filter(is_own).map(FoundRequest::from).collect())
        })
    }

    fn open_request<'a>(
        &'a self,
        repository: &'a str,
        request: &'a NewRequest,
    ) -> Answer<'a, PullRequest> {
        Box::pin(async move {
            let ask = Ask::new(Method::POST, &path(repository, &["pulls"])?)?.body(json!({
                "title": request.title,
                "head": request.branch,
                "base": request.target,
                "body": request.body,
                "draft": request.is_draft,
            }));
            Ok(FoundRequest::from(self.host.send(ask).await?.json::<RawPull>()?).request)
        })
    }

    fn branches_of<'a>(&'a self, repository: &'a str, number: u64) -> Answer<'a, RequestBranches> {
        Box::pin(async move {
            let number = number.to_string();
            let ask = Ask::get(&path(repository, &["pulls", &number])?)?;
            let RawPull { head, base, .. } = self.host.send(ask).await?.json()?;
            let id = |side: &RawSide| side.repo.as_ref().map(|repository| repository.id);
            let is_of_fork = id(&head).is_none() || id(&head) != id(&base);
            Ok(RequestBranches { branch: head.branch, target: base.branch, is_of_fork })
        })
    }

    fn is_protected<'a>(&'a self, repository: &'a str, branch: &'a str) -> Answer<'a, bool> {
        Box::pin(async move {
            let ask = Ask::get(&path(repository, &["branches", branch])?)?;
            let branch = self.host.find(ask).await?;
            let branch = branch.map(|answer| answer.json::<RawBranch>()).transpose()?;
            Ok(branch.is_some_and(|branch| branch.protected))
        })
    }

    fn review_comments<'a>(&'a self, repository: &'a str, number: u64) -> Answer<'a, Vec<Comment>> {
        Box::pin(async move {
            let number = number.to_string();
            let ask = Ask::get(&path(repository, &["pulls", &number, "comments"])?)?
                .query("sort", "created")
                .query("direction", "desc");
            let comments = self.host.send(ask.page(1)).await?.json::<Vec<RawReview>>()?;
            Ok(comments.into_iter().map(Comment::from).collect())
        })
    }

    fn is_assignable<'a>(&'a self, repository: &'a str, user: &'a ForgeUser) -> Answer<'a, bool> {
        Box::pin(async move {
            let ask = Ask::get(&path(repository, &["assignees", &user.login])?)?;
            Ok(self.host.find(ask).await?.is_some())
        })
    }

    fn labels<'a>(&'a self, repository: &'a str) -> Answer<'a, Vec<String>> {
        Box::pin(self.all_labels(repository))
    }

    fn create_label<'a>(
        &'a self,
        repository: &'a str,
        name: &'a str,
        description: &'a str,
    ) -> Answer<'a, ()> {
        Box::pin(async move {
            let ask = Ask::new(Method::POST, &path(repository, &["labels"])?)?;
            let body = json!({ "name": name, "color": LABEL_COLOUR, "description": description });
            match self.host.send(ask.body(body)).await {
                Err(ForgeError::Refused { status: 422, message })
                    if message.contains("already_exists") =>
                {
                    Ok(())
                }
                answer => answer.map(drop),
            }
        })
    }
}

/// Returns a path below a repository.
fn path<'a>(repository: &'a str, rest: &[&'a str]) -> Result<Vec<&'a str>, ForgeError> {
    match repository.split_once('/') {
        Some((owner, name)) if !name.contains('/') => Ok([&["repos", owner, name], rest].concat()),
        _ => Err(ForgeError::Refused {
            status: 400,
            message: format!("`{repository}` is not a repository: expected `owner/name`"),
        }),
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
        Self {
            request: PullRequest { number: raw.number, url: raw.html_url.unwrap_or_default() },
            is_open: raw.state == "open",
            body: raw.body.unwrap_or_default(),
            author: author(raw.user),
        }
    }
}

impl RawItem {
    /// Returns the facts; `None` for a state that GitHub does not document.
    fn facts(self) -> Option<ItemFacts> {
        let is_open = match self.state.as_str() {
            "open" => true,
            "closed" => false,
            _ => return None,
        };
        Some(ItemFacts {
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
        })
    }
}
