//! Publishes the result of an item: pushes its branch, and opens a draft pull or merge request.
//!
//! Each step first finds out what an earlier attempt did. So neither a crash nor a lost answer
//! leads to a second branch or a second request.

use super::super::{ForgeError, FoundRequest, NewRequest};
use super::{ItemWriter, Unanswered, WriteError};
use domain::check::CheckResult;
use domain::forge::marker::Marker;
use domain::forge::publication::nth_branch;
use domain::forge::{
    Comment, ItemEnd, ItemKind, ItemState, Publication, Publish, PullRequest, TakenResult,
    WorkState, is_bot, task_text,
};
use domain::workspace::{PushOrder, PushWay, Pushed, RemoteError};
use machine::crash_point::{self, CrashPoint};

/// The number of names that are tried for a branch.
const MAX_NAMES: u32 = 20;

impl ItemWriter<'_> {
    /// Pushes the result of an item to a branch of its own.
    pub(super) async fn push(&self) -> Result<(), WriteError> {
        let item = self.item;
        let service = &self.host_state.service;
        let Some(publication) = &item.publication else {
            return Ok(());
        };
        // The result is stored before the push, so that each attempt pushes the same commit.
        let mut publication = publication.clone();
        if publication.result.is_none() {
            let result = self.take_result().await?;
            let note = move |to: &mut Publication| to.result = Some(result.clone());
            let noted = service.forge_items.note_publication(&item.id, note).await?;
            publication = noted.unwrap_or(publication);
        }
        crash_point::reach(CrashPoint::ItemResultTaken);
        let Some((wanted, commit)) = publication.to_push() else {
            tracing::info!(item = %item.key, "the work on a forge item has no commit to push");
            return Ok(());
        };
        let remote = self.host_state.remote(&self.forge, &item.key.repository).await?;
        let own = self.branch_of_request(&publication).await?;
        let own = own.map(|branch| (branch.to_owned(), PushWay::Advance));
        let new = (1..=MAX_NAMES).map(|n| (nth_branch(wanted, n), PushWay::Create));
        for (branch, way) in own.into_iter().chain(new) {
            let order = PushOrder {
                project: item.project.clone(),
                remote: remote.clone(),
                commit: commit.to_owned(),
                branch: branch.clone(),
                way,
            };
            match service.workspaces.push(&order).await {
                // Another author has a branch of this name, or has moved the branch.
                Ok(Pushed::Taken) => {}
                Ok(Pushed::Done) => {
                    crash_point::reach(CrashPoint::ItemPushed);
                    tracing::info!(item = %item.key, branch, commit, "pushed a result to a forge");
                    let note = move |to: &mut Publication| to.pushed = Some(branch.clone());
                    service.forge_items.note_publication(&item.id, note).await?;
                    return Ok(());
                }
                // A rule of the forge may keep the token from this branch alone.
                Err(RemoteError::Refused(error)) if way == PushWay::Advance => {
                    tracing::warn!(item = %item.key, branch, error, "a branch refused a push");
                }
                Err(error) => {
                    self.host_state.forget_remote(&item.key.repository);
                    return Err(error.into());
                }
            }
        }
        let message = format!("the branches `{wanted}` to `{wanted}-{MAX_NAMES}` are all taken");
        Err(RemoteError::Refused(message).into())
    }

    /// Returns the branch of a pull or merge request, if its result is to be pushed there, and the
    /// forge does not protect it.
    async fn branch_of_request<'a>(
        &self,
        publication: &'a Publication,
    ) -> Result<Option<&'a str>, Unanswered> {
        let forge = &self.forge;
        let Some(branch) = publication.push_to.as_deref() else {
            return Ok(None);
        };
        let ask = |name: String| async move { forge.is_protected(&name, branch).await };
        let is_protected = self.ask(ask).await?;
        Ok(Some(branch).filter(|_| !is_protected))
    }

    async fn take_result(&self) -> Result<TakenResult, WriteError> {
        let result = self.host_state.service.workspaces.result_of(&self.item.task).await?;
        let not_kept = "the result is not kept yet; `agent-coordinator workspace show` tells why";
        Ok(result.ok_or_else(|| RemoteError::Unanswered(not_kept.to_owned()))?)
    }

    /// Opens a draft pull or merge request for the pushed branch, unless there is one.
    pub(super) async fn open_request(&self) -> Result<(), WriteError> {
        let item = self.item;
        let Some(publication) = &item.publication else {
            return Ok(());
        };
        let is_there = publication.request.is_some()
            || publication.foreign_request.is_some()
            || publication.is_on_request();
        let Some(branch) = publication.pushed.as_deref().filter(|_| !is_there) else {
            return Ok(());
        };
        let (request, is_foreign) = match self.find_request(branch).await?.ours {
            Some(found) => (found, false),
            None => match self.open(publication, branch).await {
                // Another author has opened one for this branch.
                Err(
                    error @ WriteError::Unanswered(Unanswered::Failed(ForgeError::Refused {
                        ..
                    })),
                ) => match self.find_request(branch).await? {
                    Requests { ours: Some(found), .. } => (found, false),
                    Requests { foreign: Some(found), .. } => (found, true),
                    _ => return Err(error),
                },
                opened => (opened?, false),
            },
        };
        crash_point::reach(CrashPoint::ItemRequestOpened);
        if is_foreign {
            tracing::warn!(
                item = %item.key, branch, request = request.url,
                "no draft was opened: another account has a request for the branch"
            );
        }
        let note = move |to: &mut Publication| {
            let place = if is_foreign { &mut to.foreign_request } else { &mut to.request };
            *place = Some(request.clone());
        };
        self.host_state.service.forge_items.note_publication(&item.id, note).await?;
        Ok(())
    }

    /// Returns the comments on an item with those of reviews, if it is a pull request with a clone.
    pub(super) async fn with_review(
        &self,
        mut comments: Vec<Comment>,
    ) -> Result<Vec<Comment>, WriteError> {
        let forge = &self.forge;
        let key = &self.item.key;
        if self.item.publication.is_none() || key.kind != ItemKind::PullRequest {
            return Ok(comments);
        }
        let ask = |name: String| async move { forge.review_comments(&name, key.number).await };
        comments.extend(self.ask(ask).await?);
        // Forges write all times in one form, so that their texts are in the order of time.
        comments.sort_by(|one, other| one.created_at.cmp(&other.created_at));
        Ok(comments)
    }

    /// Returns the text of a comment. The last comment of a finished item also names its result,
    /// its checks and the launch. That of a blocked one has the check that failed.
    pub(super) async fn with_result(&self, number: u32, text: &str) -> Result<String, WriteError> {
        let item = self.item;
        let is_done = item.state == ItemState::Ended(ItemEnd::Done);
        let is_blocked = item.state == ItemState::Active(WorkState::Blocked);
        if number != item.n_comments || !(is_done || is_blocked) {
            return Ok(text.to_owned());
        }
        let service = &self.host_state.service;
        let texts = self.texts();
        let checks = service.forge_items.checks_of(item).await?;
        if is_blocked {
            let has_failed = checks.last().is_some_and(|last| last.result == CheckResult::Failed);
            let checks = if has_failed { texts.checks(&checks) } else { String::new() };
            return Ok(format!("{text}{}", service.redacted(&checks)));
        }
        let publication = item.publication.as_ref();
        let Some(publication) = publication.filter(|to| to.publish != Publish::Nothing) else {
            return Ok(text.to_owned());
        };
        let result = texts.published(item.key.forge, publication);
        let executions = service.forge_items.executions_of(item).await?;
        let page_url = service.settings().page_url.clone();
        let effort = texts.effort(executions.first(), page_url.as_deref());
        let checks = texts.checks(&checks);
        Ok([text, &result, &service.redacted(&checks), &effort].concat())
    }

    async fn find_request(&self, branch: &str) -> Result<Requests, Unanswered> {
        let forge = &self.forge;
        let list = |name: String| async move { forge.requests_from(&name, branch).await };
        let found = self.ask(list).await?;
        if found.is_empty() {
            return Ok(Requests::default());
        }
        let own = self.host_state.own().await?;
        // Any account can copy the marker.
        let is_ours = |found: &FoundRequest| {
            Marker::find(&found.body).is_some_and(|marker| marker.item == self.item.id)
                && own.as_ref().is_none_or(|own| {
                    found.author.as_ref().is_some_and(|author| is_bot(author, own))
                })
        };
        let (ours, others): (Vec<_>, Vec<_>) = found.into_iter().partition(is_ours);
        let foreign = others.into_iter().find(|found| found.is_open);
        let of = |found: FoundRequest| found.request;
        Ok(Requests { ours: ours.into_iter().next().map(of), foreign: foreign.map(of) })
    }

    async fn open(
        &self,
        publication: &Publication,
        branch: &str,
    ) -> Result<PullRequest, WriteError> {
        let forge = &self.forge;
        let item = self.item;
        let service = &self.host_state.service;
        let executions = service.forge_items.executions_of(item).await.unwrap_or_default();
        let checks = service.forge_items.checks_of(item).await.unwrap_or_default();
        let texts = self.texts();
        let closes = self.host_state.closes_issues_of(&item.key.repository);
        let request = |is_draft: bool| {
            let text = texts.request(&item.key, executions.first(), is_draft, closes);
            let text = format!("{text}{}", texts.checks(&checks));
            let text = service.redacted(&text);
            NewRequest {
                title: task_text::title_of_request(&item.key, &service.redacted(&item.title)),
                body: Marker { item: item.id.clone(), number: Marker::REQUEST }.mark(&text),
                branch: branch.to_owned(),
                target: publication.target.clone(),
                is_draft,
            }
        };
        let open = async |request: NewRequest| {
            let request = &request;
            let open = |name: String| async move { forge.open_request(&name, request).await };
            self.send(open).await
        };
        match open(request(true)).await {
            // Private repositories of some plans have no drafts.
            Err(WriteError::Unanswered(Unanswered::Failed(ForgeError::Refused {
                message,
                ..
            }))) if message.to_lowercase().contains("draft") => open(request(false)).await,
            opened => opened,
        }
    }
}

/// The requests from a branch.
#[derive(Debug, Default)]
struct Requests {
    /// The one that this item opened, also if it is closed: it has our marker, and our account is
    /// its author.
    ours: Option<PullRequest>,
    /// An open one of another account.
    foreign: Option<PullRequest>,
}
