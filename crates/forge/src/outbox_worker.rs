//! Carries out the pending writes for the items of one host: claims, labels, comments, folders. The
//! writes of each item keep their order, and are repeated until they succeed.
//!
//! Each write is idempotent: labels are changed by the present ones, and comments are searched for
//! before they are posted. So a daemon may crash between any two steps, and an answer may be lost.
//! A forge may carry out a request after that. So a request is recorded before it is sent. Without
//! an answer to it, the item waits for `forge.write_settle` before the forge is asked again.

mod claiming;
mod comments;
mod publishing;
mod retry;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{StreamExt as _, future};
use tokio::time::Instant;

use super::agenda::Agenda;
use super::contexts::{Context, Contexts};
use super::gate::Held;
use super::host_state::{HostState, Unanswered};
use super::remotes::NoRemote;
use super::{Answer, Forge, ForgeError, FoundItem};
use domain::forge::labels::LabelState;
use domain::forge::pacing::{Urgency, n_owed};
use domain::forge::texts::Texts;
use domain::forge::{
    FolderPlace, ForgeItem, ItemFacts, ItemState, LabelDelta, PendingWrite, Settling, StopCause,
};
use domain::id::ItemId;
use domain::time::Timestamp;
use domain::workspace::RemoteError;
use machine::crash_point::{self, CrashPoint};
use retry::{Next, next_after};
use runtime::clock;
use runtime::nudge::{Wakeups, sleep_until};
use runtime::telemetry::ErrorChain;
use service::ServiceError;

/// The delay between a change and the check of all items. While some items are due already, others
/// can wait longer.
const SOON: Duration = Duration::from_millis(10);
const LATER: Duration = Duration::from_millis(500);
/// The time after which a waiting item is checked again.
const LONGEST_NAP: Duration = Duration::from_mins(1);
/// The pause after a failure of the store.
const RETRY: Duration = Duration::from_secs(5);

/// Carries out pending writes.
pub(super) struct OutboxWorker {
    host_state: Arc<HostState>,
    contexts: Arc<Contexts>,
    /// The time at which this worker was made. People can set the time of day, but not this clock.
    since: Instant,
    write_settle: Duration,
    /// Items with a claim that was ignored: each is logged once.
    with_ignored_claims: Mutex<BTreeSet<ItemId>>,
}

/// The writes to one item at its forge.
struct ItemWriter<'a> {
    worker: &'a OutboxWorker,
    host_state: &'a HostState,
    /// The client, for writes as urgent as the item.
    forge: Forge,
    item: &'a ForgeItem,
}

/// The reason why a write is still pending.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// A request was sent and has no answer. The forge may still carry it out.
    #[error(transparent)]
    Lost(ForgeError),
    #[error(transparent)]
    Service(#[from] ServiceError),
    #[error(transparent)]
    Folder(#[from] super::contexts::ContextError),
    /// The pause file exists.
    #[error("the pause file is there")]
    Held,
    /// A dry run does not do this.
    #[error("dry run")]
    DryRun,
    /// The forge refused a comment, and the item is locked.
    #[error("the conversation is locked")]
    Locked,
    /// A refusal, in the form that people read.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Remote(#[from] RemoteError),
}

impl From<NoRemote> for WriteError {
    fn from(error: NoRemote) -> Self {
        match error {
            NoRemote::Unanswered(error) => Self::Unanswered(error),
            NoRemote::Untrusted(reason) => Self::Remote(RemoteError::Refused(reason)),
        }
    }
}

impl OutboxWorker {
    pub(super) fn new(
        host_state: Arc<HostState>,
        contexts: Arc<Contexts>,
        write_settle: Duration,
    ) -> Self {
        let with_ignored_claims = Mutex::default();
        Self { host_state, contexts, since: clock::now(), write_settle, with_ignored_claims }
    }

    fn settling(&self, now: Timestamp) -> Settling {
        let since = now - clock::now().saturating_duration_since(self.since);
        Settling { since, duration: self.write_settle }
    }

    /// Works as long as it is polled. Cancel-safe, because a crash is safe, too.
    pub(super) async fn work(self, mut news: Wakeups) -> Infallible {
        let mut running = FuturesUnordered::new();
        let mut agenda = Agenda::default();
        // The time when all items are checked next. Due items are served meanwhile.
        let mut look_at = Some(clock::now());
        loop {
            if look_at.is_some_and(|at| at <= clock::now()) {
                // Running work goes on meanwhile, because it may hold the connections to the store
                // that this waits for.
                let mut looking = pin!(self.due());
                let mut again_at = None;
                let found = loop {
                    tokio::select! {
                        found = &mut looking => break found,
                        (served, at) = next(&mut running) => {
                            agenda.note_served(&served);
                            again_at = [again_at, at].into_iter().flatten().min();
                        }
                    }
                };
                agenda.set_due(found.0);
                look_at = [found.1, again_at].into_iter().flatten().min();
            }
            while let Some(id) = agenda.take_next() {
                running.push(self.serve(id));
            }
            if let Some(until) = self.host_state.gated_until() {
                look_at = Some(look_at.map_or(until, |at| at.min(until)));
            }
            tokio::select! {
                () = news.woken() => {
                    // A thousand changes at once cause one check.
                    let soon = clock::now() + if agenda.is_empty() { SOON } else { LATER };
                    look_at = Some(look_at.map_or(soon, |at| at.min(soon)));
                }
                () = sleep_until(look_at) => {}
                (served, again_at) = next(&mut running) => {
                    agenda.note_served(&served);
                    look_at = [look_at, again_at].into_iter().flatten().min();
                }
            }
        }
    }

    /// Returns the open items. Times of theirs that the clock allows no more are recorded anew.
    async fn open_items(&self) -> Result<Vec<ForgeItem>, ServiceError> {
        let service = &self.host_state.service;
        let mut items = service.forge_items.open().await?;
        let now = service.time();
        for item in &mut items {
            if let Some(changed) = item.after_clock_change(now) {
                service.forge_items.heed_clock(&item.id).await?;
                *item = changed;
            }
        }
        Ok(items)
    }

    /// Returns the items with pending writes that are due, and the time when the next one will be.
    async fn due(&self) -> (Vec<(Urgency, ItemId)>, Option<Instant>) {
        let items = match self.open_items().await {
            Ok(items) => items,
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "could not read the pending writes to forges; will try again");
                return (Vec::new(), Some(clock::now() + RETRY));
            }
        };
        let now = self.host_state.service.time();
        let settling = self.settling(now);
        let mut due = Vec::new();
        let mut next_at = None;
        let mut budget: Option<Held> = None;
        // Other tokens of the host have the same budget.
        let config = &self.host_state.config;
        let is_of_host =
            |item: &&ForgeItem| item.key.forge == config.kind && item.key.host == config.host();
        let at_work = items.iter().filter(is_of_host).filter(|item| !is_unclaimed(item));
        let mut n_reserved: u32 = at_work.map(n_owed).sum();
        for item in
            items.into_iter().filter(|item| self.host_state.has(item) && !item.pending.is_empty())
        {
            let is_asked = !matches!(item.pending.first(), Some(PendingWrite::Folder { .. }));
            let urgency = Urgency::of(&item.state);
            let held = if is_unclaimed(&item) {
                self.host_state.held_claim(n_owed(&item), n_reserved)
            } else {
                self.host_state.held(urgency).filter(|_| is_asked)
            };
            let of_budget = held.filter(|held| matches!(held, Held::Budget(..)));
            budget = budget.into_iter().chain(of_budget).min();
            if item.due(now, settling).is_none() || held.is_some() {
                let wait = item.held_until(settling).map(|at| at.since(now));
                let wait = wait.unwrap_or_default();
                let held_until = held.map(Held::until);
                let at = (clock::now() + wait).max(held_until.unwrap_or_else(clock::now));
                next_at = Some(next_at.map_or(at, |earlier: Instant| earlier.min(at)));
            } else {
                if is_unclaimed(&item) {
                    n_reserved += n_owed(&item);
                }
                due.push((urgency, item.id));
            }
        }
        self.host_state.note_budget(budget);
        (due, next_at)
    }

    /// Carries out the pending writes of an item one after the other, and stores the results.
    /// Returns when to check the item again if no wake-up will tell.
    async fn serve(&self, id: ItemId) -> (ItemId, Option<Instant>) {
        loop {
            let item = match self.host_state.service.forge_items.get(&id).await {
                Ok(item) => item,
                Err(error) => {
                    tracing::warn!(error = %ErrorChain(&error), "could not read a forge item; will try again");
                    return (id, Some(clock::now() + RETRY));
                }
            };
            let now = self.host_state.service.time();
            match item.filter(|item| item.due(now, self.settling(now)).is_some()) {
                Some(item) => {
                    if let Some(again_at) = self.do_next(&item).await {
                        return (id, again_at);
                    }
                }
                None => return (id, None),
            }
        }
    }

    /// Carries out the first pending write. Returns `None` if it succeeded, and otherwise when to
    /// check again if no wake-up will tell.
    async fn do_next(&self, item: &ForgeItem) -> Option<Option<Instant>> {
        let id = &item.id;
        let Some(write) = item.pending.first().cloned() else {
            return Some(None);
        };
        let noted = match self.perform(item, &write).await {
            Ok(()) => {
                crash_point::reach(CrashPoint::ItemWriteDone);
                let noted =
                    self.host_state.service.forge_items.write_is_done(id, &write, None).await;
                crash_point::reach(CrashPoint::ItemWriteNoted);
                noted.map(|()| true)
            }
            Err(failure) => self.note(item, &write, &failure).await,
        };
        match noted {
            // The next pending write follows at once, because the wake-up of this change may be
            // over already.
            Ok(true) => None,
            // An item that waits for its host or for the end of the pause file is checked again in
            // any case.
            Ok(false) => Some(Some(clock::now() + LONGEST_NAP)),
            Err(error) => {
                tracing::warn!(
                    item = %item.key, error = %ErrorChain(&error), "could not record a finished write to a forge item; will write again"
                );
                // The store has a problem, so the next check waits.
                Some(Some(clock::now() + RETRY))
            }
        }
    }

    /// Notes why a write failed. Returns whether it is given up.
    async fn note(
        &self,
        item: &ForgeItem,
        write: &PendingWrite,
        failure: &WriteError,
    ) -> Result<bool, ServiceError> {
        let error = ErrorChain(failure).to_string();
        let what = write.to_string();
        match next_after(failure, write, item.n_refusals) {
            Next::Wait => {
                tracing::debug!(item = %item.key, owed = what, reason = error, "a forge item waits for its host");
                Ok(false)
            }
            Next::TryAgain => {
                if matches!(failure, WriteError::Folder(_)) {
                    tracing::error!(item = %item.key, owed = what, error, "the folder of a forge item could not be written");
                } else {
                    tracing::warn!(item = %item.key, host = item.key.host, owed = what, error, "a forge item is not up to date; will try again");
                }
                self.host_state
                    .service
                    .forge_items
                    .write_has_failed(&item.id, write, failure.setback(), &error)
                    .await?;
                Ok(false)
            }
            Next::GiveUp => {
                tracing::warn!(item = %item.key, host = item.key.host, owed = what, error, "gave up a write to a forge item");
                let given_up = format!("{what} given up: {error}");
                self.host_state
                    .service
                    .forge_items
                    .write_is_done(&item.id, write, Some(&given_up))
                    .await?;
                Ok(true)
            }
        }
    }

    async fn perform(&self, item: &ForgeItem, write: &PendingWrite) -> Result<(), WriteError> {
        if let PendingWrite::Folder { place } = write {
            return self.put_folder(item, *place).await;
        }
        if self.host_state.is_dry_run {
            if item.n_attempts == 0 {
                tracing::info!(item = %item.key, host = item.key.host, owed = %write, "dry run: would write to a forge");
            }
            return Err(WriteError::DryRun);
        }
        let urgency = Urgency::of(&item.state);
        self.host_state.check_held(urgency)?;
        let forge = self.host_state.forge()?.with_urgency(urgency);
        let writer = ItemWriter { worker: self, host_state: &self.host_state, forge, item };
        match write {
            PendingWrite::Claim => writer.claim().await,
            PendingWrite::Withdraw => writer.withdraw().await,
            PendingWrite::Label { state } => writer.label(*state).await,
            PendingWrite::Comment { number, text } => {
                let text = writer.with_result(*number, text).await?;
                writer.comment(*number, &text).await.map(drop)
            }
            PendingWrite::Push => writer.push().await,
            PendingWrite::PullRequest => writer.open_request().await,
            PendingWrite::Folder { .. } => Ok(()),
        }
    }

    async fn put_folder(&self, item: &ForgeItem, place: FolderPlace) -> Result<(), WriteError> {
        let service = &self.host_state.service;
        let executions = service.forge_items.executions_of(item).await?;
        let provider = service.catalog.agent(&item.agent).await.ok().map(|agent| agent.ai_type);
        let mut launches: Vec<_> =
            executions.iter().map(|execution| execution.launch.clone()).collect();
        launches.reverse();
        launches.dedup();
        // The item ends with this write.
        let ended_at = item.ended_at.or((place == FolderPlace::Completed).then(|| service.time()));
        let context = Context {
            item: ForgeItem { ended_at, ..item.clone() },
            provider,
            launches,
            last: executions.into_iter().next(),
        };
        let contexts = Arc::clone(&self.contexts);
        let put = tokio::task::spawn_blocking(move || contexts.put(place, &context)).await;
        put.map_err(|error| WriteError::Refused(error.to_string()))??;
        crash_point::reach(CrashPoint::ItemFolderMoved);
        Ok(())
    }
}

impl ItemWriter<'_> {
    async fn label(&self, state: LabelState) -> Result<(), WriteError> {
        let facts = match self.facts().await? {
            Ok(facts) => facts,
            Err(cause) => {
                let status = 404;
                let message = cause.to_string();
                return Err(Unanswered::Failed(ForgeError::NotFound { status, message }).into());
            }
        };
        let delta = self.host_state.config.labels.delta(state, Some(&facts.labels));
        if !delta.is_empty() {
            self.change_labels(&delta).await?;
        }
        crash_point::reach(CrashPoint::ItemRelabelled);
        Ok(())
    }

    /// Asks something of the repository of the item, by the present name of the repository.
    async fn ask<T, F>(&self, question: impl Fn(String) -> F) -> Result<T, Unanswered>
    where
        F: Future<Output = Answer<T>>,
    {
        self.host_state.ask_in(&self.forge, &self.item.key.repository, question).await
    }

    /// Sends a request that must not be carried out twice. It is recorded as begun before.
    ///
    /// # Errors
    /// [`WriteError::Lost`] if its outcome is not known.
    async fn send<T, F>(&self, request: impl Fn(String) -> F) -> Result<T, WriteError>
    where
        F: Future<Output = Answer<T>>,
    {
        let service = &self.host_state.service;
        let id = &self.item.id;
        service.forge_items.note_begun(id, Some(service.time())).await?;
        let answer = self.ask(request).await;
        match answer {
            Err(Unanswered::Failed(
                error @ (ForgeError::Unavailable { .. } | ForgeError::NotUnderstood { .. }),
            )) => return Err(WriteError::Lost(error)),
            Err(Unanswered::Closed | Unanswered::OverBudget) => {
                service.forge_items.note_begun(id, None).await?;
            }
            _ => {}
        }
        Ok(answer?)
    }

    async fn change_labels(&self, delta: &LabelDelta) -> Result<(), WriteError> {
        let forge = &self.forge;
        let key = &self.item.key;
        let change = |name: String| async move {
            forge.change_labels(&name, key.kind, key.number, delta).await
        };
        self.send(change).await
    }

    /// Returns the item, or the reason why there is none.
    async fn facts(&self) -> Result<Result<ItemFacts, StopCause>, Unanswered> {
        Ok(match self.host_state.find(&self.forge, self.item).await? {
            FoundItem::Here(facts) => Ok(*facts),
            FoundItem::Moved(_) => Err(StopCause::Moved),
            FoundItem::Gone => Err(StopCause::Gone),
        })
    }

    fn texts(&self) -> Texts {
        Texts::new(self.host_state.service.settings().language)
    }
}

/// Returns whether nothing was written to an item so far.
const fn is_unclaimed(item: &ForgeItem) -> bool {
    matches!(item.state, ItemState::Claiming { after_comment: None })
}

/// Returns the result of the next future that ends. It waits forever while there is none.
async fn next<F: Future>(running: &mut FuturesUnordered<F>) -> F::Output {
    match running.next().await {
        Some(served) => served,
        None => future::pending().await,
    }
}

#[cfg(test)]
mod tests;
