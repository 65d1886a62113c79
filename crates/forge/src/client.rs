//! The requests to a forge, each at one place for both forges.
//!
//! `github` and `gitlab` have what differs: addresses, bodies, and the names of fields. Knows
//! requests and answers; `domain::forge` decides what they mean for a task. `connect` makes a
//! client. The poller, the outbox worker and the check use it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use super::gate::Gate;
use super::raw::{Named, Numbered, RawBranch, RawComment, RawLinked, RawUser};
use super::wire::{ApiPath, Ask, Host, HostError, Part, Response};
use super::{
    Answer, Conditional, Feed, ForgeError, FoundItem, FoundRequest, Identity, Listing,
    MAX_COMMENTS, NewRequest, Page, RepositoryFacts, RequestBranches, github, gitlab,
};
use domain::Secret;
use domain::forge::pacing::Urgency;
use domain::forge::{Comment, ForgeKind, ForgeUser, ItemFacts, ItemKind, LabelDelta, PullRequest};

/// A forge at one host, with one token. Reads are repeated automatically if an answer was lost;
/// writes never.
///
/// Nothing happens before a future is polled. If the future of a write is dropped, the forge may
/// have carried it out or not.
#[derive(Debug, Clone)]
pub enum Forge {
    GitHub(Host),
    GitLab(Host),
}

impl Forge {
    /// Creates a client. Each request to the host passes `gate`.
    ///
    /// # Errors
    /// A base URL that is not that of an API, and a token that cannot be sent.
    pub(super) fn new(
        kind: ForgeKind,
        base_url: &str,
        token: Secret,
        gate: Arc<Gate>,
    ) -> Result<Self, HostError> {
        match kind {
            ForgeKind::GitHub => github::host(base_url, token, gate).map(Self::GitHub),
            ForgeKind::GitLab => gitlab::host(base_url, token, gate).map(Self::GitLab),
        }
    }

    pub const fn host(&self) -> &Host {
        match self {
            Self::GitHub(host) | Self::GitLab(host) => host,
        }
    }

    fn host_mut(&mut self) -> &mut Host {
        match self {
            Self::GitHub(host) | Self::GitLab(host) => host,
        }
    }

    /// Sets the time limit for a question together with its repeats. The default is 20 s.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.host_mut().set_timeout(timeout);
        self
    }

    /// Sets the urgency of writes. The default is [`Urgency::Work`].
    pub(super) fn with_urgency(mut self, urgency: Urgency) -> Self {
        self.host_mut().set_urgency(urgency);
        self
    }

    /// Returns the lists of a repository.
    pub const fn feeds(&self) -> &'static [Feed] {
        match self {
            Self::GitHub(_) => &[Feed::All],
            Self::GitLab(_) => &[Feed::Issues, Feed::MergeRequests],
        }
    }

    /// Returns a page of a list (from 1), at most 100 items.
    pub async fn list(
        &self,
        repository: &str,
        feed: Feed,
        listing: &Listing,
        page: u32,
        etag: Option<&str>,
    ) -> Answer<Conditional<Page>> {
        // The only list of GitHub is that of its issues.
        let is_of_requests = feed == Feed::MergeRequests;
        let kind = if is_of_requests { ItemKind::MergeRequest } else { ItemKind::Issue };
        let ask = Ask::get(self.path(repository, &[self.collection(kind)])?);
        let ask = match self {
            Self::GitHub(_) => github::select(ask, listing),
            Self::GitLab(_) => gitlab::select(ask, listing),
        };
        let answer = self.host().send(ask.page(page).etag(etag)).await?;
        answer.fresh(|answer| {
            let items = match self {
                Self::GitHub(_) => answer.good_ones(|item: github::RawItem| here(item.read())),
                Self::GitLab(_) => answer.good_ones(|item: gitlab::RawItem| here(item.read(kind))),
            };
            Ok(Page { items: items?, etag: answer.etag(), has_more: answer.has_more() })
        })
    }

    /// Returns whether the lists leave out how many open issues block an issue.
    pub const fn hides_blockers(&self) -> bool {
        matches!(self, Self::GitLab(_))
    }

    /// Returns the addresses for people of the open issues that block an issue. One that the forge
    /// does not name is an empty text.
    pub async fn blockers(&self, repository: &str, number: u64) -> Answer<Vec<String>> {
        let list: &[&str] = match self {
            Self::GitHub(_) => &["dependencies", "blocked_by"],
            Self::GitLab(_) => &["links"],
        };
        let path = self.item_path(repository, ItemKind::Issue, number)?.join(list)?;
        let linked = self.host().send(Ask::get(path)).await?.json::<Vec<RawLinked>>()?;
        let blockers = linked.into_iter().filter(RawLinked::is_open_blocker);
        Ok(blockers.map(|issue| issue.html_url.unwrap_or_default()).collect())
    }

    /// Returns an item as it is now.
    pub async fn item(&self, repository: &str, kind: ItemKind, number: u64) -> Answer<FoundItem> {
        let path = self.item_path(repository, kind, number)?;
        let answer = match self.host().find(Ask::get(path.clone())).await {
            Ok(Some(answer)) => answer,
            Ok(None) => return Ok(FoundItem::Gone),
            Err(error) => {
                let place = self.host().place_of_moved(&error, &path);
                return place.map(FoundItem::Moved).ok_or(error);
            }
        };
        let read = match self {
            Self::GitHub(_) => answer.json::<github::RawItem>()?.read(),
            Self::GitLab(_) => answer.json::<gitlab::RawItem>()?.read(kind),
        };
        read.map_err(|problem| answer.not_understood(problem))
    }

    /// Returns the comments, the oldest first. If there are more than [`MAX_COMMENTS`], it returns
    /// the newest.
    pub async fn comments(
        &self,
        repository: &str,
        kind: ItemKind,
        number: u64,
    ) -> Answer<Vec<Comment>> {
        let list = Ask::get(self.comments_path(repository, kind, number)?);
        let host = self.host();
        let comments = match self {
            Self::GitHub(_) => host.elements::<RawComment>(&list, Part::Last).await?,
            Self::GitLab(_) => {
                let newest_first = list.query("order_by", "created_at").query("sort", "desc");
                host.elements::<RawComment>(&newest_first, Part::First).await?
            }
        };
        // A comment that moves to another page meanwhile occurs once.
        let comments = comments.into_iter().filter(|comment| !comment.system);
        let by_id: BTreeMap<_, _> = comments.map(|it| (it.id, Comment::from(it))).collect();
        let n_too_many = by_id.len().saturating_sub(MAX_COMMENTS);
        Ok(by_id.into_values().skip(n_too_many).collect())
    }

    /// Posts a comment, and returns its id.
    pub async fn add_comment(
        &self,
        repository: &str,
        kind: ItemKind,
        number: u64,
        body: &str,
    ) -> Answer<u64> {
        let path = self.comments_path(repository, kind, number)?;
        let ask = Ask::new(Method::POST, path).body(json!({ "body": body }));
        Ok(self.host().send(ask).await?.json::<Numbered>()?.id)
    }

    /// Removes a comment. A missing comment is not an error.
    pub async fn remove_comment(
        &self,
        repository: &str,
        kind: ItemKind,
        number: u64,
        comment: u64,
    ) -> Answer<()> {
        let id = comment.to_string();
        let path = match self {
            Self::GitHub(_) => self.path(repository, &["issues", "comments", &id])?,
            Self::GitLab(_) => self.comments_path(repository, kind, number)?.join(&[&id])?,
        };
        self.host().find(Ask::new(Method::DELETE, path)).await.map(drop)
    }

    /// Adds labels, then removes labels. A missing label is not an error. Other labels stay as they
    /// are.
    pub async fn change_labels(
        &self,
        repository: &str,
        kind: ItemKind,
        number: u64,
        delta: &LabelDelta,
    ) -> Answer<()> {
        let item = self.item_path(repository, kind, number)?;
        match self {
            Self::GitHub(host) => github::change_labels(host, item, delta).await,
            Self::GitLab(host) => gitlab::change_labels(host, item, delta).await,
        }
    }

    /// Returns the owner of the token.
    pub async fn identity(&self) -> Answer<Identity> {
        let answer = self.host().send(Ask::get(ApiPath::new(&["user"])?)).await?;
        let user = answer.json::<RawUser>()?.into();
        let scopes = match self {
            Self::GitHub(_) => github::scopes(&answer),
            Self::GitLab(host) => gitlab::scopes(host).await?,
        };
        Ok(Identity { user, scopes })
    }

    /// Returns the account with this login.
    pub async fn user(&self, login: &str) -> Answer<Option<ForgeUser>> {
        match self {
            Self::GitHub(host) => github::user(host, login).await,
            Self::GitLab(host) => gitlab::user(host, login).await,
        }
    }

    /// Returns a repository, also by an earlier name.
    pub async fn repository(&self, repository: &str) -> Answer<RepositoryFacts> {
        let host = self.host();
        let answer = match host.send(Ask::get(self.path(repository, &[])?)).await {
            Ok(answer) => answer,
            // The repository was renamed or transferred. Its number stays.
            Err(error) => {
                let collection = match self {
                    Self::GitHub(_) => "repositories",
                    Self::GitLab(_) => "projects",
                };
                let number = host.number_of_moved(&error, collection).ok_or(error)?;
                host.send(Ask::get(ApiPath::new(&[collection, &number.to_string()])?)).await?
            }
        };
        match self {
            Self::GitHub(_) => answer.json::<github::RawRepository>().map(Into::into),
            Self::GitLab(_) => answer.json::<gitlab::RawProject>().map(Into::into),
        }
    }

    /// Returns the pull or merge requests from a branch of a repository, also closed ones.
    pub async fn requests_from(&self, repository: &str, branch: &str) -> Answer<Vec<FoundRequest>> {
        let ask = Ask::get(self.path(repository, &[self.requests()])?);
        let ask = match self {
            Self::GitHub(_) => {
                let owner = repository.split('/').next().unwrap_or_default();
                ask.query("head", format!("{owner}:{branch}"))
            }
            Self::GitLab(_) => ask.query("source_branch", branch),
        };
        let answer = self.host().send(ask.query("state", "all").page(1)).await?;
        let mut found: Vec<FoundRequest> = match self {
            Self::GitHub(_) => into_all(answer.json::<Vec<github::RawPull>>()?),
            Self::GitLab(_) => into_all(answer.json::<Vec<gitlab::RawRequest>>()?),
        };
        // A fork may have a branch of this name, also one of the same owner.
        found.retain(|found| !found.branches.is_of_fork);
        Ok(found)
    }

    /// Opens a pull or merge request between two branches of a repository.
    pub async fn open_request(
        &self,
        repository: &str,
        request: &NewRequest,
    ) -> Answer<PullRequest> {
        let body = match self {
            Self::GitHub(_) => github::body_of(request),
            Self::GitLab(_) => gitlab::body_of(request),
        };
        let ask = Ask::new(Method::POST, self.path(repository, &[self.requests()])?);
        Ok(self.request(&self.host().send(ask.body(body)).await?)?.request)
    }

    /// Returns the branches of a pull or merge request.
    pub async fn branches_of(&self, repository: &str, number: u64) -> Answer<RequestBranches> {
        let path = self.path(repository, &[self.requests(), &number.to_string()])?;
        Ok(self.request(&self.host().send(Ask::get(path)).await?)?.branches)
    }

    /// Returns whether a branch is protected; `false` if there is none.
    pub async fn is_protected(&self, repository: &str, branch: &str) -> Answer<bool> {
        let path = match self {
            Self::GitHub(_) => self.path(repository, &["branches", branch])?,
            Self::GitLab(_) => self.path(repository, &["repository", "branches", branch])?,
        };
        match self.host().find(Ask::get(path)).await? {
            Some(answer) => Ok(answer.json::<RawBranch>()?.protected),
            None => Ok(false),
        }
    }

    /// Returns the newest comments on lines of a pull request, each with its place. GitLab has them
    /// among the comments of a merge request.
    pub async fn review_comments(&self, repository: &str, number: u64) -> Answer<Vec<Comment>> {
        let Self::GitHub(host) = self else {
            return Ok(Vec::new());
        };
        let path = self.path(repository, &["pulls", &number.to_string(), "comments"])?;
        let ask = Ask::get(path).query("sort", "created").query("direction", "desc");
        Ok(into_all(host.send(ask.page(1)).await?.json::<Vec<github::RawReview>>()?))
    }

    /// Returns whether an account can be assigned to items of a repository.
    pub async fn is_assignable(&self, repository: &str, user: &ForgeUser) -> Answer<bool> {
        let path = match self {
            Self::GitHub(_) => self.path(repository, &["assignees", &user.login])?,
            Self::GitLab(host) => {
                let id = match user.id {
                    Some(id) => Some(id),
                    None => gitlab::user(host, &user.login).await?.and_then(|user| user.id),
                };
                let Some(id) = id else { return Ok(false) };
                self.path(repository, &["members", "all", &id.to_string()])?
            }
        };
        Ok(self.host().find(Ask::get(path)).await?.is_some())
    }

    /// Returns the labels that exist in a repository.
    pub async fn labels(&self, repository: &str) -> Answer<Vec<String>> {
        let list = Ask::get(self.path(repository, &["labels"])?);
        let labels = self.host().elements::<Named>(&list, Part::First).await?;
        Ok(labels.into_iter().map(|label| label.name).collect())
    }

    /// Creates a label. A label that exists already is not an error.
    pub async fn create_label(
        &self,
        repository: &str,
        name: &str,
        description: &str,
    ) -> Answer<()> {
        // A neutral colour.
        let colour = match self {
            Self::GitHub(_) => "ededed",
            Self::GitLab(_) => "#ededed",
        };
        let body = json!({ "name": name, "color": colour, "description": description });
        let ask = Ask::new(Method::POST, self.path(repository, &["labels"])?).body(body);
        match (self, self.host().send(ask).await) {
            (Self::GitHub(_), Err(ForgeError::Refused { status: 422, message }))
                if message.contains("already_exists") =>
            {
                Ok(())
            }
            (Self::GitLab(_), Err(ForgeError::Refused { status: 409, .. })) => Ok(()),
            (_, answer) => answer.map(drop),
        }
    }

    /// Returns the path of a part of a repository.
    fn path(&self, repository: &str, part: &[&str]) -> Answer<ApiPath> {
        let path = match self {
            Self::GitHub(_) => github::path(repository),
            Self::GitLab(_) => ApiPath::new(&["projects", repository]),
        };
        path?.join(part)
    }

    fn item_path(&self, repository: &str, kind: ItemKind, number: u64) -> Answer<ApiPath> {
        self.path(repository, &[self.collection(kind), &number.to_string()])
    }

    fn comments_path(&self, repository: &str, kind: ItemKind, number: u64) -> Answer<ApiPath> {
        let comments = match self {
            Self::GitHub(_) => "comments",
            Self::GitLab(_) => "notes",
        };
        self.item_path(repository, kind, number)?.join(&[comments])
    }

    /// Returns the collection that has the items of a kind. Pull requests are issues at GitHub:
    /// both have the same comments and labels.
    const fn collection(&self, kind: ItemKind) -> &'static str {
        match (self, kind) {
            (Self::GitHub(_), _) | (Self::GitLab(_), ItemKind::Issue) => "issues",
            (Self::GitLab(_), ItemKind::PullRequest | ItemKind::MergeRequest) => "merge_requests",
        }
    }

    /// Returns the collection that has the pull or merge requests, with their branches.
    const fn requests(&self) -> &'static str {
        match self {
            Self::GitHub(_) => "pulls",
            Self::GitLab(_) => "merge_requests",
        }
    }

    fn request(&self, answer: &Response) -> Answer<FoundRequest> {
        match self {
            Self::GitHub(_) => answer.json::<github::RawPull>().map(Into::into),
            Self::GitLab(_) => answer.json::<gitlab::RawRequest>().map(Into::into),
        }
    }
}

/// Returns the facts of an item of a list. A moved issue is in no list any more, as at GitHub.
fn here(read: Result<FoundItem, &'static str>) -> Result<ItemFacts, &'static str> {
    match read? {
        FoundItem::Here(facts) => Ok(*facts),
        FoundItem::Moved(_) | FoundItem::Gone => Err("it was moved"),
    }
}

fn into_all<R, T: From<R>>(raw: Vec<R>) -> Vec<T> {
    raw.into_iter().map(T::from).collect()
}
