//! Forges: GitHub and GitLab issues become work, and unassigning the bot stops it.
//!
//! ```text
//!  Forge (GitHub, GitLab)
//!    ◄── poller, one a repository: lists; reconciler: items
//!          ──► service: lets wait, claims, stops, resumes
//!    ◄── outbox worker, one a host: pending writes
//!          ◄── service: settles items by their tasks
//!  client: the requests                 wire: their way to a host
//!  contexts: the folders of items       signal: the pause file
//! ```
//!
//! This module knows hosts, repositories and folders. `domain::forge` decides about answers, and
//! `service` stores what is wanted, so that a restart loses none of it. `app` starts it.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests may wait and ask the time"))]

mod agenda;
mod bases;
mod blockers;
pub mod check;
mod client;
mod connect;
mod context_retention;
pub mod contexts;
mod gate;
mod gates;
mod github;
mod gitlab;
mod host_state;
mod list_cursor;
mod outbox_worker;
mod poller;
mod raw;
mod reconciler;
mod remotes;
mod renames;
mod signal;
#[cfg(test)]
mod testing;
mod tokens;
mod turns;
mod wire;

use std::convert::Infallible;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use config::Forges;
use runtime::nudge::{Nudges, Wakeups};
use service::Service;

use domain::forge::{ForgeUser, ItemFacts, PullRequest};

pub use client::Forge;
pub use connect::{ConnectError, connect, is_open_to_others, read_token};
pub use signal::pause_file;
pub use wire::{Host, HostError};

/// The answer of a forge to a request.
pub type Answer<T> = Result<T, ForgeError>;

/// The content of one list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listing {
    /// Open items that the bot is assigned to, the oldest first, so that a page stays the same when
    /// items are added.
    Assigned { bot: ForgeUser },
    /// All items that have changed since then (a `updated_at` of this forge, inclusive), the
    /// earliest change first. They may be open or closed, assigned or not.
    ChangedSince(String),
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub items: Vec<ItemFacts>,
    /// The tag that makes the next question for the same page conditional.
    pub etag: Option<String>,
    /// There is a page after it.
    pub has_more: bool,
}

/// The answer to a conditional question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conditional<T> {
    Fresh(T),
    /// The answer is the same as when its `etag` was given.
    NotModified,
}

/// The answer about one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundItem {
    /// The item is at its place.
    Here(Box<ItemFacts>),
    /// The item is at another place: the place, as far as the forge tells it.
    Moved(String),
    /// 404 or 410: the item is deleted, or the token cannot see it any more.
    Gone,
}

/// A list of a repository: GitHub has one for everything, GitLab one for each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feed {
    All,
    Issues,
    MergeRequests,
}

/// The owner of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub user: ForgeUser,
    /// Classic scopes, if the forge tells them. Fine-grained tokens have none.
    pub scopes: Option<Vec<String>>,
}

/// The facts of a repository for `forge check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryFacts {
    /// Its present name, also if the question used another one.
    pub full_name: String,
    pub is_archived: bool,
    pub has_issues: bool,
    /// The token may set labels and assignees; `None` if the forge does not tell.
    pub may_triage: Option<bool>,
    /// The token may push branches; `None` if the forge does not tell.
    pub may_push: Option<bool>,
    /// The address from which git clones it over HTTP.
    pub clone_url: Option<String>,
}

/// A pull or merge request that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRequest {
    pub request: PullRequest,
    pub is_open: bool,
    pub body: String,
    /// `None` for a deleted account.
    pub author: Option<ForgeUser>,
    pub branches: RequestBranches,
}

/// A pull or merge request to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRequest {
    pub title: String,
    pub body: String,
    /// The branch that has the commits.
    pub branch: String,
    /// The branch that is to get them.
    pub target: String,
    pub is_draft: bool,
}

/// The branches of a pull or merge request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestBranches {
    /// The branch with the commits.
    pub branch: String,
    /// The branch that is to get them.
    pub target: String,
    /// The branch is in another repository.
    pub is_of_fork: bool,
}

/// The reason why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForgeError {
    /// 401.
    #[error("the token is not accepted (401): {message}")]
    Unauthorized { message: String },
    /// 403 or 429 with the signs of a limit. The whole host waits.
    #[error("limited for {}: {message}", humantime::format_duration(Duration::from_secs(wait.as_secs())))]
    Limited {
        /// The pause from now on, at least a second.
        wait: Duration,
        message: String,
    },
    /// Nothing was sent: the host asked for a pause, which lasts this much longer.
    #[error("not sent: the host asked for a pause of {} more", humantime::format_duration(Duration::from_secs(wait.as_secs())))]
    Withheld { wait: Duration },
    /// Nothing was sent: `forge.writes_per_hour` is used up, and has room again after this time.
    #[error("not sent: the writes of this hour (`forge.writes_per_hour`) are used up for {} more", humantime::format_duration(Duration::from_secs(wait.as_secs())))]
    OverBudget { wait: Duration },
    /// 403 without such signs: a right is missing, or the conversation is locked.
    #[error("forbidden (403): {message}")]
    Forbidden { message: String },
    /// 404 or 410 for something else than an item.
    #[error("not found ({status}): {message}")]
    NotFound { status: u16, message: String },
    /// The repository has another place now.
    #[error("moved ({status}) to {to}")]
    Moved { status: u16, to: String },
    /// The forge rejects the request (400, 409, 422).
    #[error("refused ({status}): {message}")]
    Refused { status: u16, message: String },
    /// 5xx, no connection, or no answer in time. The forge may have carried out a write.
    #[error("unavailable: {message}")]
    Unavailable { message: String },
    /// An answer that does not follow the API: truncated, not JSON, or without a field. The forge
    /// may have carried out a write.
    #[error("the answer to {request} is not valid: {problem}")]
    NotUnderstood { request: String, problem: String },
}

impl ForgeError {
    /// Returns the word under which monitoring counts the error; `None` if nothing was sent.
    const fn counted_as(&self) -> Option<&'static str> {
        match self {
            Self::Unauthorized { .. } => Some("unauthorized"),
            Self::Limited { .. } => Some("limited"),
            Self::Withheld { .. } | Self::OverBudget { .. } => None,
            Self::Forbidden { .. } => Some("forbidden"),
            Self::NotFound { .. } => Some("not_found"),
            Self::Moved { .. } => Some("moved"),
            Self::Refused { .. } => Some("refused"),
            Self::Unavailable { .. } => Some("unavailable"),
            Self::NotUnderstood { .. } => Some("not_understood"),
        }
    }
}

/// The number of comments that are read of an item, far more than people write on one.
pub const MAX_COMMENTS: usize = 3_000;

/// Watches all hosts of the newest configuration as long as it is polled, and carries out pending
/// writes. When it is woken, it polls at once. Dropping it, or a new configuration, is like a
/// crash: nothing is lost.
pub async fn watch(
    service: Arc<Service>,
    state_dir: &Path,
    mut config: watch::Receiver<Forges>,
    pokes: Nudges<String>,
) -> Infallible {
    // The gates live longer than a configuration: a limit of a host survives a reload, and a
    // restart.
    let gates = Arc::new(gates::Gates::open(state_dir, service.time()));
    let mut keeping = pin!(gates.keep(&service));
    loop {
        let newest = config.borrow_and_update().clone();
        service.forges.forget_all();
        warn_of_orphans(&service, &newest).await;
        let mut parts = parts_of(&service, state_dir, &newest, &pokes, &gates);
        tokio::select! {
            never = ended(&mut parts) => match never {},
            never = &mut keeping => match never {},
            changed = config.changed() => {
                if changed.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
        // All old tasks end before the new ones begin.
        parts.shutdown().await;
    }
}

/// Returns the tasks that watch and serve the hosts of a configuration.
fn parts_of(
    service: &Arc<Service>,
    state_dir: &Path,
    config: &Forges,
    pokes: &Nudges<String>,
    gates: &Arc<gates::Gates>,
) -> JoinSet<Infallible> {
    let mut parts = JoinSet::new();
    let settling = Arc::clone(service);
    parts.spawn(async move { settling.forge_items.settle_all().await });
    let claiming = Arc::clone(service);
    parts.spawn(async move { claiming.forges.claim_waiting_items().await });
    let paused = Arc::clone(service);
    let settings = config.pause_resume.clone();
    let poll_interval = config.access.poll_interval;
    let all = pokes.clone();
    parts.spawn(async move { signal::follow(&paused, &settings, poll_interval, &all).await });
    if config.hosts.is_empty() {
        return parts;
    }
    parts.spawn(look_at_once(Arc::clone(service), pokes.clone(), service.forges.looks()));
    let contexts = Arc::new(contexts::Contexts::new(state_dir));
    parts.spawn(context_retention::forget(Arc::clone(service), Arc::clone(&contexts)));
    let poll_settings = reconciler::PollSettings {
        poll_interval: config.access.poll_interval,
        task_stop: config.task_stop.clone(),
        paused_task_expiry: Duration::from_hours(24) * config.pause_resume.paused_task_expiry_days,
    };
    for (place, host) in config.hosts.iter().enumerate() {
        let host_state =
            host_state::HostState::new(place, host.clone(), config, Arc::clone(service), gates);
        let host_state = Arc::new(host_state);
        if let Some(file) = &host.account.token_file {
            parts.spawn(tokens::follow(Arc::clone(&host_state), file.clone()));
        }
        let outbox_worker = outbox_worker::OutboxWorker::new(
            Arc::clone(&host_state),
            Arc::clone(&contexts),
            config.access.write_settle,
        );
        parts.spawn(outbox_worker.work(service.forge_items.news()));
        for repository in &host.repositories {
            let poller = poller::Poller::new(
                Arc::clone(&host_state),
                repository.clone(),
                poll_settings.clone(),
            );
            parts.spawn(poller.watch(pokes.listen(repository.name.to_lowercase())));
        }
    }
    parts
}

/// Asks all forges and repeats failed writes on each request to do so.
async fn look_at_once(
    service: Arc<Service>,
    pokes: Nudges<String>,
    mut looks: Wakeups,
) -> Infallible {
    loop {
        looks.woken().await;
        pokes.wake_where(|_| true);
        if let Err(error) = service.forge_items.hurry().await {
            tracing::warn!(error = %runtime::telemetry::ErrorChain(&error), "could not shorten the delays of failed writes to forges");
        }
    }
}

/// Waits for a task to end. Tasks end only by a panic, which is passed on.
async fn ended(parts: &mut JoinSet<Infallible>) -> Infallible {
    match parts.join_next().await {
        Some(Ok(never)) => match never {},
        Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Some(Err(_)) | None => std::future::pending().await,
    }
}

/// Warns of work whose repository is not in the configuration. It is neither stopped by its forge
/// nor reported there.
async fn warn_of_orphans(service: &Service, config: &Forges) {
    let items = match service.forge_items.open().await {
        Ok(items) => items,
        Err(error) => {
            tracing::warn!(error = %runtime::telemetry::ErrorChain(&error), "could not look for items whose repository is not configured");
            return;
        }
    };
    for item in
        items.iter().filter(|item| !config.hosts.iter().any(|host| host_state::is_of(host, item)))
    {
        tracing::warn!(
            item = %item.key, host = item.key.host, state = item.state.as_str(),
            "no configured repository has this item; it is followed only if its repository was renamed to a configured name"
        );
    }
}
