//! GitLab's REST API (v4), also of an own server below a path.
//!
//! Issues and merge requests are two lists with numbers of their own. Knows requests and answers;
//! what they mean for a task is decided in `domain::forge`. Made by `app` and `cli`, called by the
//! poller and the outbox worker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::gate::Gate;
use super::raw::{Named, Numbered, RawBranch, RawComment, RawLabel, RawUser, author, names};
use super::wire::{Ask, Dialect, Host, HostError, Part};
use super::{
    Answer, Conditional, Feed, Forge, ForgeError, FoundItem, FoundRequest, Identity, Listing,
    NewRequest, Page, RepositoryFacts, RequestBranches,
};
use crate::domain::Secret;
use crate::domain::forge::pacing::Urgency;
use crate::domain::forge::{
    Comment, ForgeKind, ForgeUser, ItemFacts, ItemKind, LabelDelta, PullRequest, task_text,
};

static DIALECT: Dialect = Dialect { token: ("private-token", ""), headers: &[], suffix: "/api/v4" };

/// A neutral colour.
const LABEL_COLOUR: &str = "#ededed";
/// The lowest role that may label issues (Planner).
const LABELS_ISSUES: u64 = 15;
/// The lowest role that may also label merge requests (Developer).
const LABELS_MERGE_REQUESTS: u64 = 30;

/// The lowest role that may push branches (Developer).
const PUSHES: u64 = 30;

/// One GitLab, with one token.
#[derive(Debug, Clone)]
pub struct GitLab {
    host: Host,
}

#[derive(Deserialize)]
struct RawItem {
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
struct RawProject {
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
struct RawRequest {
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

/// Another issue, with its relation to the one that was asked about.
#[derive(Deserialize)]
struct RawIssueLink {
    link_type: Option<String>,
    state: Option<String>,
    web_url: Option<String>,
}

#[derive(Deserialize)]
struct RawAccess {
    access_level: u64,
}

#[derive(Deserialize)]
struct RawToken {
    scopes: Vec<String>,
}

impl GitLab {
    /// Creates a client. `base_url` is `https://gitlab.com` or an own server, also below a path:
    /// `https://code.example/gitlab`. It may end in `/api/v4`.
    pub fn new(base_url: &str, token: Secret) -> Result<Self, HostError> {
        Ok(Self { host: Host::new(base_url, token, &DIALECT)? })
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
        project: &str,
        kind: ItemKind,
        listing: &Listing,
        page: u32,
        etag: Option<&str>,
    ) -> Result<Conditional<Page>, ForgeError> {
        let ask = Ask::get(&["projects", project, collection(kind)])?.query("scope", "all");
        let ask = match listing {
            Listing::Assigned { bot } => {
                let ask = match bot.id {
                    Some(id) => ask.query("assignee_id", id.to_string()),
                    None => ask.query("assignee_username[]", &bot.login),
                };
                ask.query("state", "opened").query("order_by", "created_at")
            }
            Listing::ChangedSince(since) => ask
                .query("state", "all")
                .query("updated_after", since)
                .query("order_by", "updated_at"),
        };
        let answer = self.host.send(ask.query("sort", "asc").page(page).etag(etag)).await?;
        answer.fresh(|answer| {
            let items = answer.good_ones(|item: RawItem| match item.moved_to_id {
                // A moved issue is in no list any more, as at GitHub.
                Some(_) => Err("it was moved"),
                None => item.facts(kind).ok_or("it is in an unknown state"),
            })?;
            Ok(Page { items, etag: answer.etag(), has_more: answer.has_more() })
        })
    }

    async fn find_item(
        &self,
        project: &str,
        kind: ItemKind,
        number: u64,
        etag: Option<&str>,
    ) -> Result<Conditional<(FoundItem, Option<String>)>, ForgeError> {
        let number = number.to_string();
        let path = ["projects", project, collection(kind), &number];
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
            let raw: RawItem = answer.json()?;
            if let Some(id) = raw.moved_to_id {
                return Ok((
                    FoundItem::Moved(format!("the issue with the id {id}")),
                    answer.etag(),
                ));
            }
            let facts =
                raw.facts(kind).ok_or_else(|| answer.not_understood("its `state` is unknown"))?;
            Ok((FoundItem::Here(Box::new(facts)), answer.etag()))
        })
    }

    async fn all_notes(
        &self,
        project: &str,
        kind: ItemKind,
        number: u64,
    ) -> Result<Vec<Comment>, ForgeError> {
        let number = number.to_string();
        // The newest notes come first, so that they are read if there are very many. The key is the
        // id, so a note that moves to another page meanwhile occurs once.
        let list = Ask::get(&["projects", project, collection(kind), &number, "notes"])?
            .query("order_by", "created_at")
            .query("sort", "desc");
        let notes = self.host.elements::<RawComment>(&list, Part::First).await?;
        let notes = notes.into_iter().filter(|note| !note.system);
        let notes: BTreeMap<_, _> = notes.map(|note| (note.id, Comment::from(note))).collect();
        Ok(notes.into_values().collect())
    }

    async fn apply(
        &self,
        project: &str,
        kind: ItemKind,
        number: u64,
        delta: &LabelDelta,
    ) -> Result<(), ForgeError> {
        if delta.is_empty() {
            return Ok(());
        }
        if let Some(label) = delta.add.iter().chain(&delta.remove).find(|label| label.contains(','))
        {
            let message = format!("a label with a comma can't be sent to GitLab: `{label}`");
            return Err(ForgeError::Refused { status: 400, message });
        }
        let number = number.to_string();
        let mut body = Map::new();
        for (name, labels) in [("add_labels", &delta.add), ("remove_labels", &delta.remove)] {
            if !labels.is_empty() {
                body.insert(name.to_owned(), labels.join(",").into());
            }
        }
        let ask = Ask::new(Method::PUT, &["projects", project, collection(kind), &number])?;
        self.host.send(ask.body(body.into())).await.map(drop)
    }

    async fn all_labels(&self, project: &str) -> Result<Vec<String>, ForgeError> {
        let list = Ask::get(&["projects", project, "labels"])?;
        let labels = self.host.elements::<Named>(&list, Part::First).await?;
        Ok(labels.into_iter().map(|label| label.name).collect())
    }

    async fn find_user(&self, login: &str) -> Result<Option<ForgeUser>, ForgeError> {
        let answer = self.host.send(Ask::get(&["users"])?.query("username", login)).await?;
        let users = answer.json::<Vec<RawUser>>()?;
        let found =
            users.into_iter().find(|user| user.login.to_lowercase() == login.to_lowercase());
        Ok(found.map(ForgeUser::from))
    }
}

impl Forge for GitLab {
    fn kind(&self) -> ForgeKind {
        ForgeKind::GitLab
    }

    fn with_urgency(&self, urgency: Urgency) -> Arc<dyn Forge> {
        Arc::new(Self { host: self.host.with_urgency(urgency) })
    }

    fn feeds(&self) -> &'static [Feed] {
        &[Feed::Issues, Feed::MergeRequests]
    }

    fn list<'a>(
        &'a self,
        repository: &'a str,
        feed: Feed,
        listing: &'a Listing,
        page: u32,
        etag: Option<&'a str>,
    ) -> Answer<'a, Conditional<Page>> {
        let kind =
            if feed == Feed::MergeRequests { ItemKind::MergeRequest } else { ItemKind::Issue };
        Box::pin(self.list_page(repository, kind, listing, page, etag))
    }

    fn hides_blockers(&self) -> bool {
        true
    }

    fn blockers<'a>(&'a self, repository: &'a str, number: u64) -> Answer<'a, Vec<String>> {
        Box::pin(async move {
            let ask = Ask::get(&["projects", repository, "issues", &number.to_string(), "links"])?;
            let links = self.host.send(ask).await?.json::<Vec<RawIssueLink>>()?;
            let blocks = |link: &RawIssueLink| {
                link.link_type.as_deref() == Some("is_blocked_by")
                    && link.state.as_deref() == Some("opened")
            };
            let blockers = links.into_iter().filter(blocks);
            Ok(blockers.map(|link| link.web_url.unwrap_or_default()).collect())
        })
    }

    fn item<'a>(
        &'a self,
        repository: &'a str,
        kind: ItemKind,
        number: u64,
        etag: Option<&'a str>,
    ) -> Answer<'a, Conditional<(FoundItem, Option<String>)>> {
        Box::pin(self.find_item(repository, kind, number, etag))
    }

    fn comments<'a>(
        &'a self,
        repository: &'a str,
        kind: ItemKind,
        number: u64,
    ) -> Answer<'a, Vec<Comment>> {
        Box::pin(self.all_notes(repository, kind, number))
    }

    fn add_comment<'a>(
        &'a self,
        repository: &'a str,
        kind: ItemKind,
        number: u64,
        body: &'a str,
    ) -> Answer<'a, u64> {
        Box::pin(async move {
            let number = number.to_string();
            let ask = Ask::new(
                Method::POST,
                &["projects", repository, collection(kind), &number, "notes"],
            )?;
            Ok(self.host.send(ask.body(json!({ "body": body }))).await?.json::<Numbered>()?.id)
        })
    }

    fn remove_comment<'a>(
        &'a self,
        repository: &'a str,
        kind: ItemKind,
        number: u64,
        comment: u64,
    ) -> Answer<'a, ()> {
        Box::pin(async move {
            let number = number.to_string();
            let comment = comment.to_string();
            let path = ["projects", repository, collection(kind), &number, "notes", &comment];
            self.host.find(Ask::new(Method::DELETE, &path)?).await.map(drop)
        })
    }

    fn change_labels<'a>(
        &'a self,
        repository: &'a str,
        kind: ItemKind,
        number: u64,
        delta: &'a LabelDelta,
    ) -> Answer<'a, ()> {
        Box::pin(self.apply(repository, kind, number, delta))
    }

    fn identity(&self) -> Answer<'_, Identity> {
        Box::pin(async {
            let user = self.host.send(Ask::get(&["user"])?).await?.json::<RawUser>()?.into();
            // Older servers, and other kinds of tokens, do not answer this.
            let token = self.host.send(Ask::get(&["personal_access_tokens", "self"])?).await;
            let scopes =
                token.and_then(|answer| answer.json::<RawToken>()).ok().map(|token| token.scopes);
            Ok(Identity { user, scopes })
        })
    }

    fn user<'a>(&'a self, login: &'a str) -> Answer<'a, Option<ForgeUser>> {
        Box::pin(self.find_user(login))
    }

    fn repository<'a>(&'a self, repository: &'a str) -> Answer<'a, RepositoryFacts> {
        Box::pin(async move {
            let answer = match self.host.send(Ask::get(&["projects", repository])?).await {
                Ok(answer) => answer,
                // The repository was renamed or transferred. Its number stays.
                Err(error) => {
                    let number = self.host.number_of_moved(&error, "projects").ok_or(error)?;
                    self.host.send(Ask::get(&["projects", &number.to_string()])?).await?
                }
            };
            let raw: RawProject = answer.json()?;
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
            Ok(RepositoryFacts {
                full_name: raw.path_with_namespace,
                is_archived: raw.archived,
                has_issues: !is_off(&raw.issues_access_level),
                may_triage: has_role(needed),
                may_push: has_role(PUSHES),
                clone_url: raw.http_url_to_repo,
            })
        })
    }

    fn requests_from<'a>(
        &'a self,
        repository: &'a str,
        branch: &'a str,
    ) -> Answer<'a, Vec<FoundRequest>> {
        Box::pin(async move {
            let ask = Ask::get(&["projects", repository, "merge_requests"])?
                .query("source_branch", branch)
                .query("state", "all");
            let requests = self.host.send(ask.page(1)).await?.json::<Vec<RawRequest>>()?;
            // Anyone can open a request from a branch of this name of a fork.
            let is_own = |request: &RawRequest| {
                let RawRequest { source_project_id: from, target_project_id: to, .. } = request;
                from.is_some() && from == to
            };
            Ok(requests.into_iter().filter(is_own).map(FoundRequest::from).collect())
        })
    }

    fn open_request<'a>(
        &'a self,
        repository: &'a str,
        request: &'a NewRequest,
    ) -> Answer<'a, PullRequest> {
        Box::pin(async move {
            let is_marked = task_text::is_title_of_draft(&request.title);
            let draft = if request.is_draft && !is_marked { "Draft: " } else { "" };
            let ask = Ask::new(Method::POST, &["projects", repository, "merge_requests"])?;
            let ask = ask.body(json!({
                "source_branch": request.branch,
                "target_branch": request.target,
                "title": format!("{draft}{}", request.title),
                "description": request.body,
                "remove_source_branch": true,
            }));
            Ok(FoundRequest::from(self.host.send(ask).await?.json::<RawRequest>()?).request)
        })
    }

    fn branches_of<'a>(&'a self, repository: &'a str, number: u64) -> Answer<'a, RequestBranches> {
        Box::pin(async move {
            let number = number.to_string();
            let ask = Ask::get(&["projects", repository, "merge_requests", &number])?;
            let raw: RawRequest = self.host.send(ask).await?.json()?;
            Ok(RequestBranches {
                is_of_fork: raw.source_project_id.is_none()
                    || raw.source_project_id != raw.target_project_id,
                branch: raw.source_branch,
                target: raw.target_branch,
            })
        })
    }

    fn is_protected<'a>(&'a self, repository: &'a str, branch: &'a str) -> Answer<'a, bool> {
        Box::pin(async move {
            let ask = Ask::get(&["projects", repository, "repository", "branches", branch])?;
            let branch = self.host.find(ask).await?;
            let branch = branch.map(|answer| answer.json::<RawBranch>()).transpose()?;
            Ok(branch.is_some_and(|branch| branch.protected))
        })
    }

    fn review_comments<'a>(&'a self, _: &'a str, _: u64) -> Answer<'a, Vec<Comment>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn is_assignable<'a>(&'a self, repository: &'a str, user: &'a ForgeUser) -> Answer<'a, bool> {
        Box::pin(async move {
            let id = match user.id {
                Some(id) => Some(id),
                None => self.find_user(&user.login).await?.and_then(|user| user.id),
            };
            let Some(id) = id else { return Ok(false) };
            let ask = Ask::get(&["projects", repository, "members", "all", &id.to_string()])?;
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
            let ask = Ask::new(Method::POST, &["projects", repository, "labels"])?;
            let body = json!({ "name": name, "color": LABEL_COLOUR, "description": description });
            match self.host.send(ask.body(body)).await {
                Err(ForgeError::Refused { status: 409, .. }) => Ok(()),
                answer => answer.map(drop),
            }
        })
    }
}

const fn collection(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Issue => "issues",
        ItemKind::PullRequest | ItemKind::MergeRequest => "merge_requests",
    }
}

impl From<RawRequest> for FoundRequest {
    fn from(raw: RawRequest) -> Self {
        Self {
            request: PullRequest { number: raw.iid, url: raw.web_url.unwrap_or_default() },
            is_open: matches!(raw.state.as_str(), "opened" | "locked"),
            body: raw.description.unwrap_or_default(),
            author: author(raw.author),
        }
    }
}

impl RawItem {
    /// Returns the facts; `None` for a state that GitLab does not document.
    fn facts(self, kind: ItemKind) -> Option<ItemFacts> {
        let is_open = match self.state.as_str() {
            // The request is being merged for a moment. It becomes merged, or opened again.
            "opened" | "locked" => true,
            "closed" | "merged" => false,
            _ => return None,
        };
        Some(ItemFacts {
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
        })
    }
}
