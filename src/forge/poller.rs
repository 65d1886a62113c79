//! Looks at one repository again and again: takes what is new, stops what is not for the bot any more.
//!
//! Each repository has a loop of its own, and items are looked at beside each other: one that hangs delays no other. A list only
//! raises a suspicion; before anything is stopped the item itself is asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use tokio::time::Instant;

use super::look::{Look, Within};
use super::seat::{Seat, Unanswered};
use super::{Conditional, Feed, Forge, ForgeError, FoundItem, Listing};
use crate::config::{TaskStop, WatchedRepository};
use crate::crash_point::{self, CrashPoint};
use crate::domain::forge::{
    Eligibility, ForgeItem, ItemFacts, ItemKey, ItemKind, ItemState, Owed, Rules, StopCause, task_text,
};
use crate::nudge::Wakeups;
use crate::service::{NewItem, ServiceError};
use crate::telemetry::ErrorChain;

/// Items that are asked for at the same time.
const N_QUESTIONS: usize = 8;
/// Pages of changes that are read at one look; what is left comes with the next.
const MAX_CHANGE_PAGES: u32 = 20;
/// Between two looks, however often somebody pokes.
const MIN_DISTANCE: Duration = Duration::from_secs(1);
/// A repository that doesn't answer is asked again after at most so long.
const LONGEST_WAIT: Duration = Duration::from_mins(10);

/// How often and by what a repository is looked at.
#[derive(Debug, Clone)]
pub(super) struct Habits {
    pub(super) poll_interval: Duration,
    pub(super) task_stop: TaskStop,
    pub(super) paused_task_expiry: Duration,
}

/// What an answer about an item was good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judged {
    /// What it means is done.
    Finally,
    /// There was none, or its time hasn't come: the next look asks again.
    AskAgain,
}

/// One watched repository.
pub(super) struct Poller {
    seat: Arc<Seat>,
    watched: WatchedRepository,
    habits: Habits,
    looks: BTreeMap<Feed, Look>,
    n_looks: u64,
    n_failures: u32,
    /// Items of ours that a list didn't show as they should be, until the forge said of each how it is.
    suspects: BTreeSet<Within>,
    /// What it would take, said once (dry run).
    said: BTreeSet<Within>,
}

impl Poller {
    pub(super) fn new(seat: Arc<Seat>, watched: WatchedRepository, habits: Habits) -> Self {
        let (looks, suspects, said) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self { seat, watched, habits, looks, n_looks: 0, n_failures: 0, suspects, said }
    }

    /// Looks as long as it is polled, and at once when woken. Cancel-safe: what was decided is stored as a whole.
    pub(super) async fn watch(mut self, mut pokes: Wakeups) -> Infallible {
        loop {
            let began_at = Instant::now();
            let wait = match self.look().await {
                Ok(()) => {
                    self.n_failures = 0;
                    self.habits.poll_interval
                }
                Err(problem) => {
                    self.n_failures = self.n_failures.saturating_add(1);
                    self.seat.note(&self.watched.name, |status| status.problem = Some(problem));
                    let wait = self.habits.poll_interval * (1 << self.n_failures.min(8));
                    wait.min(LONGEST_WAIT.max(self.habits.poll_interval)).mul_f64(jitter(&self.watched.name))
                }
            };
            let next_at = self.seat.gated_until().map_or(began_at + wait, |until| until.max(began_at + wait));
            tokio::select! {
                () = tokio::time::sleep_until(next_at) => {}
                // Not before the host may be asked again, nor for each of a thousand changes at once.
                () = pokes.woken() => {
                    let soonest = began_at + MIN_DISTANCE.min(self.habits.poll_interval);
                    tokio::time::sleep_until(self.seat.gated_until().map_or(soonest, |until| until.max(soonest))).await;
                }
            }
        }
    }

    async fn look(&mut self) -> Result<(), String> {
        if self.seat.is_unauthorized() {
            self.seat.renew();
        }
        let rules = self.seat.rules().await?;
        let forge = self.seat.forge().map_err(|error| error.to_string())?;
        self.n_looks += 1;
        let (mut problem, mut unanswered) = (None, None);
        for feed in forge.feeds() {
            match self.read_feed(&*forge, *feed, &rules, &mut problem).await {
                Ok(()) => {}
                Err(Unanswered::Failed(error @ (ForgeError::NotFound { .. } | ForgeError::Moved { .. }))) => {
                    // Each item says for itself what became of it.
                    self.looks.remove(feed);
                    let ours = self.ours().await?.into_iter().map(|item| within(&item));
                    self.suspects.extend(ours.filter(|within| kinds_of(*feed).contains(&within.0)));
                    problem = Some(format!("{error}; `forge check` tells more"));
                }
                // As of a project that has no merge requests.
                Err(Unanswered::Failed(error @ ForgeError::Forbidden { .. })) => {
                    problem = Some(format!("{error}; `forge check` tells more"));
                }
                // It says nothing of the other lists, nor of what is suspected.
                Err(error) => unanswered = Some(error.to_string()),
            }
        }
        self.judge_all(&*forge, &rules).await?;
        if let Some(unanswered) = unanswered {
            return Err(unanswered);
        }
        let (n_assigned, n_elsewhere) = self.count(&rules).await?;
        let seen_at = self.seat.service.time();
        self.seat.note(&self.watched.name, |status| {
            status.seen_at = Some(seen_at);
            status.n_assigned = n_assigned;
            status.n_elsewhere = n_elsewhere;
            status.problem = problem;
        });
        Ok(())
    }

    /// How many items are on the lists, and how many of these somebody else has.
    async fn count(&self, rules: &Rules) -> Result<(usize, usize), String> {
        let ours: BTreeSet<Within> = self.ours().await?.iter().map(within).collect();
        let is_elsewhere = |item: &&ItemFacts| {
            !ours.contains(&(item.kind, item.number))
                && rules.judge(item, None) == Eligibility::Eligible
                && !rules.is_free(item)
        };
        let all = || self.looks.values().flat_map(Look::items);
        Ok((all().count(), all().filter(is_elsewhere).count()))
    }

    /// Reads what there is to read of a list now.
    async fn read_feed(
        &mut self,
        forge: &dyn Forge,
        feed: Feed,
        rules: &Rules,
        problem: &mut Option<String>,
    ) -> Result<(), Unanswered> {
        let mut look = self.looks.remove(&feed).unwrap_or_default();
        let repository = self.watched.name.clone();
        let bot = rules.bot.clone();
        loop {
            let (page, etag) = look.question();
            let listing = Listing::Assigned { bot: bot.clone() };
            let answer = self.seat.ask(forge.list(&repository, feed, &listing, page, etag)).await?;
            let is_first = look.goes_on();
            let read = look.take(answer);
            self.take_in(&read.items, rules, problem).await;
            if let Some(whole) = &read.whole {
                let kinds = kinds_of(feed);
                let ours = self.ours().await.unwrap_or_default();
                let missing = ours.iter().map(within);
                self.suspects.extend(missing.filter(|within| kinds.contains(&within.0) && !whole.contains(within)));
            }
            if !is_first || read.whole.is_some() {
                break;
            }
        }
        if let Some(since) = look.changes_since().map(str::to_owned) {
            for page in 1..=MAX_CHANGE_PAGES {
                let listing = Listing::ChangedSince(since.clone());
                let answer = self.seat.ask(forge.list(&repository, feed, &listing, page, None)).await?;
                let Conditional::Fresh(changed) = answer else { break };
                self.take_in(&changed.items, rules, problem).await;
                look.note_changes(&changed.items);
                if !changed.has_more {
                    break;
                }
            }
        }
        self.looks.insert(feed, look);
        Ok(())
    }

    /// Items as a list shows them: what is free is taken, what doesn't look right is looked into.
    async fn take_in(&mut self, items: &[ItemFacts], rules: &Rules, problem: &mut Option<String>) {
        let ours = match self.ours().await {
            Ok(ours) => ours,
            Err(error) => {
                *problem = Some(error);
                return;
            }
        };
        for item in items {
            let here = (item.kind, item.number);
            match ours.iter().find(|our| within(our) == here) {
                Some(our) if is_suspect(our, item, rules, self.seat.service.are_starts_held()) => {
                    self.suspects.insert(here);
                }
                Some(_) => {}
                None if rules.is_free(item) => {
                    if let Err(error) = self.take(item).await {
                        *problem = Some(error);
                    }
                }
                None => {}
            }
        }
    }

    async fn take(&mut self, item: &ItemFacts) -> Result<(), String> {
        let key = self.key(item.kind, item.number);
        if self.seat.is_dry_run {
            if self.said.insert((item.kind, item.number)) {
                tracing::info!(item = %key, host = key.host, title = item.title, "dry run: would take a forge item");
            }
            return Ok(());
        }
        if self.seat.service.are_starts_held() {
            return Ok(());
        }
        let title = task_text::title(&key, item);
        let new = NewItem {
            key,
            agent: self.watched.agent.clone(),
            project: self.watched.project.clone(),
            title,
            url: item.url.clone(),
        };
        let in_vain = |error| {
            let WatchedRepository { agent, project, .. } = &self.watched;
            format!("items can't be given to agent `{agent}` in project `{project}`: {}", said(&error))
        };
        self.seat.service.take_item(&new).await.map_err(in_vain)?;
        crash_point::reach(CrashPoint::ItemTaken);
        Ok(())
    }

    /// Asks for each item by itself and does what its answer means.
    async fn judge_all(&mut self, forge: &dyn Forge, rules: &Rules) -> Result<(), String> {
        let now = self.seat.service.time();
        let suspects = std::mem::take(&mut self.suspects);
        let mut asked = Vec::new();
        for item in self.ours().await? {
            if let ItemState::Paused { since } = item.state
                && now.since(since) >= self.habits.paused_task_expiry
            {
                self.seat.service.expire_item(&item.id).await.map_err(|error| said(&error))?;
            } else if is_watched(&item) && (item.is_missing || suspects.contains(&within(&item))) {
                asked.push(item);
            }
        }
        self.suspects = asked.iter().map(within).collect();
        let judged = stream::iter(asked).map(async |item| (within(&item), self.judge(forge, rules, item).await));
        let judged: Vec<_> = judged.buffer_unordered(N_QUESTIONS).collect().await;
        for (within, judged) in judged {
            if judged? == Judged::Finally {
                self.suspects.remove(&within);
            }
        }
        Ok(())
    }

    async fn judge(&self, forge: &dyn Forge, rules: &Rules, item: ForgeItem) -> Result<Judged, String> {
        let ItemKey { repository, kind, number, .. } = &item.key;
        let revision = item.revision;
        let answer = self.seat.ask(forge.item(repository, *kind, *number, None)).await;
        let service = &self.seat.service;
        // As it is now: it may have come further while the forge was asked.
        let item = service.forge_item(&item.id).await.map_err(|error| said(&error))?;
        // What the forge said of it is of before or after that; the next look tells.
        let Some(item) = item.filter(|item| item.revision == revision) else { return Ok(Judged::AskAgain) };
        let done = match answer {
            Ok(Conditional::NotModified) => Ok(Judged::AskAgain),
            Ok(Conditional::Fresh((FoundItem::Here(facts), _))) => self.act(rules, &item, &facts).await,
            Ok(Conditional::Fresh((FoundItem::Moved(to), _))) => {
                tracing::info!(item = %item.key, to, "a forge item was moved");
                self.stop(&item, StopCause::Moved).await
            }
            Ok(Conditional::Fresh((FoundItem::Gone, _))) => match service.note_missing(&item.id, true).await {
                // Once may be a mistake of the forge, or of the token.
                Ok(true) => self.stop(&item, StopCause::Gone).await,
                other => other.map(|_| Judged::AskAgain),
            },
            // Seed 002 §8.1: what can't be asked goes on.
            Err(error) => {
                tracing::debug!(item = %item.key, %error, "a forge item could not be looked at; its work goes on");
                Ok(Judged::AskAgain)
            }
        };
        done.map_err(|error| said(&error))
    }

    async fn act(&self, rules: &Rules, item: &ForgeItem, facts: &ItemFacts) -> Result<Judged, ServiceError> {
        let service = &self.seat.service;
        if item.is_missing {
            service.note_missing(&item.id, false).await?;
        }
        match rules.judge(facts, Some(&item.state)) {
            Eligibility::Eligible => {
                if matches!(item.state, ItemState::Paused { .. }) && !service.are_starts_held() {
                    service.resume_item(&item.id, Eligibility::Eligible).await?;
                    crash_point::reach(CrashPoint::ItemResumed);
                } else if rules.is_asked_again(facts, &item.state) && item.owed.is_empty() {
                    service.retry_item(&item.id).await?;
                }
                Ok(Judged::Finally)
            }
            // Labels that we are about to set are no word of people.
            Eligibility::Not(StopCause::Unlabelled)
                if item.owed.iter().any(|owed| matches!(owed, Owed::Label { .. })) =>
            {
                Ok(Judged::Finally)
            }
            Eligibility::Not(cause) => self.stop(item, cause).await,
        }
    }

    async fn stop(&self, item: &ForgeItem, cause: StopCause) -> Result<Judged, ServiceError> {
        if !self.habits.task_stop.enabled {
            return Ok(Judged::Finally);
        }
        if !self.n_looks.is_multiple_of(u64::from(self.habits.task_stop.check_interval)) {
            return Ok(Judged::AskAgain);
        }
        self.seat.service.stop_item(&item.id, cause).await?;
        crash_point::reach(CrashPoint::ItemStopWanted);
        Ok(Judged::Finally)
    }

    /// Our items of this repository that the forge has a say in.
    async fn ours(&self) -> Result<Vec<ForgeItem>, String> {
        let mut items = self.seat.service.forge_items().await.map_err(|error| said(&error))?;
        items.retain(|item| self.seat.has(item) && item.key.repository == self.watched.name);
        Ok(items)
    }

    fn key(&self, kind: ItemKind, number: u64) -> ItemKey {
        ItemKey {
            forge: self.seat.config.kind,
            host: self.seat.config.host.clone(),
            repository: self.watched.name.clone(),
            kind,
            number,
        }
    }
}

const fn within(item: &ForgeItem) -> Within {
    (item.key.kind, item.key.number)
}

/// Whether the forge has a say in it: what is being claimed is looked at by who claims it, and what is over is over.
const fn is_watched(item: &ForgeItem) -> bool {
    matches!(item.state, ItemState::Active(_) | ItemState::Pausing | ItemState::Paused { .. })
}

/// Whether what a list shows of our item is a reason to ask for it by itself.
fn is_suspect(item: &ForgeItem, facts: &ItemFacts, rules: &Rules, is_held: bool) -> bool {
    is_watched(item)
        && (rules.judge(facts, Some(&item.state)) != Eligibility::Eligible
            || rules.is_asked_again(facts, &item.state)
            || (matches!(item.state, ItemState::Paused { .. }) && !is_held))
}

const fn kinds_of(feed: Feed) -> &'static [ItemKind] {
    match feed {
        Feed::All => &[ItemKind::Issue, ItemKind::PullRequest],
        Feed::Issues => &[ItemKind::Issue],
        Feed::MergeRequests => &[ItemKind::MergeRequest],
    }
}

fn said(error: &ServiceError) -> String {
    ErrorChain(error).to_string()
}

/// From 0.9 to 1.1, always the same for a name.
fn jitter(name: &str) -> f64 {
    let sum = name.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    0.9 + f64::from(sum % 201) / 1_000.0
}
