//! Polls one repository: new items wait, and items that are not for the bot any more are stopped.
//!
//! Each repository has a loop of its own, and items are checked concurrently, so one that hangs
//! delays no other. A list only raises a suspicion: the item itself is read before anything is
//! stopped.

mod blockers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::bases;
use super::blockers::Blockers;
use super::host_state::{HostState, Unanswered};
use super::list_cursor::{ItemNumber, ListCursor};
use super::reconciler::{PollSettings, Reconciled, Reconciler, is_watched, said};
use super::turns::Turns;
use super::{Conditional, Feed, Forge, ForgeError, Listing};
use config::WatchedRepository;
use domain::forge::{
    Eligibility, ForgeItem, ItemFacts, ItemKey, ItemKind, ItemState, Rules, task_text,
};
use runtime::clock;
use runtime::nudge::Listener;
use service::{FreeItem, RepositoryKey, Workers};

/// The number of items that are read at the same time.
const N_QUESTIONS: usize = 8;
/// The number of polls after which a page of each of several long lists is read.
const N_LOOKS_A_PAGE: u64 = 10;
/// The number of pages of changes that one poll reads. The rest comes with the next poll.
const MAX_CHANGE_PAGES: u32 = 20;
/// The least time between two polls, however often the poller is woken.
const MIN_DISTANCE: Duration = Duration::from_secs(1);
/// The longest pause before a repository that does not answer is asked again.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// One watched repository.
pub(super) struct Poller {
    host_state: Arc<HostState>,
    poll_settings: PollSettings,
    watched: WatchedRepository,
    /// The key under which its waiting items are noted.
    repository: RepositoryKey,
    looks: BTreeMap<Feed, ListCursor>,
    n_looks: u64,
    n_failures: u32,
    /// Items of ours that a list showed in an unexpected state, until the forge has answered about
    /// each.
    suspects: BTreeSet<ItemNumber>,
    /// The suspects that must be read.
    to_ask: VecDeque<ForgeItem>,
    /// The suspects that are being read.
    under_way: BTreeSet<ItemNumber>,
    reconciling: JoinSet<(ItemNumber, Result<Reconciled, String>)>,
    /// The problems that keep the bot from taking items.
    problems: BTreeMap<ItemNumber, String>,
    /// The items that a dry run would take, each logged once.
    said: BTreeSet<ItemNumber>,
    /// The fetch of the commits at which items begin. There is at most one at a time.
    fetching: JoinSet<Result<(), String>>,
    /// The reason why the last fetch failed.
    fetch_problem: Option<String>,
    /// The turns of the waiting pull or merge requests.
    requests: Turns,
    /// The free issues, and what blocks them.
    blockers: Blockers,
}

impl Poller {
    pub(super) fn new(
        host_state: Arc<HostState>,
        watched: WatchedRepository,
        poll_settings: PollSettings,
    ) -> Self {
        let repository = RepositoryKey {
            forge: host_state.config.kind,
            host: host_state.config.host().to_owned(),
            name: watched.name.clone(),
        };
        let project = watched.project.clone();
        let agents = watched.agents.clone();
        let publish = watched.publish;
        let workers = Workers { host: host_state.place(), project, agents, publish };
        host_state.service.forges.watch(repository.clone(), workers);
        Self {
            host_state,
            poll_settings,
            watched,
            repository,
            looks: BTreeMap::new(),
            n_looks: 0,
            n_failures: 0,
            suspects: BTreeSet::new(),
            to_ask: VecDeque::new(),
            under_way: BTreeSet::new(),
            reconciling: JoinSet::new(),
            problems: BTreeMap::new(),
            said: BTreeSet::new(),
            fetching: JoinSet::new(),
            fetch_problem: None,
            requests: Turns::default(),
            blockers: Blockers::default(),
        }
    }

    /// Polls as long as it is polled itself, and at once when it is woken. Cancel-safe: each
    /// decision is stored as a whole.
    pub(super) async fn watch(mut self, mut pokes: Listener<String>) -> Infallible {
        loop {
            let began_at = clock::now();
            let wait = match self.look().await {
                Ok(()) => {
                    self.n_failures = 0;
                    self.poll_settings.poll_interval
                }
                Err(problem) => {
                    self.n_failures = self.n_failures.saturating_add(1);
                    self.host_state
                        .note(&self.watched.name, |status| status.problem = Some(problem));
                    let poll_interval = self.poll_settings.poll_interval;
                    retry_delay(poll_interval, self.n_failures, &self.watched.name)
                }
            };
            let mut next_at = self.not_before(began_at + wait);
            loop {
                tokio::select! {
                    () = tokio::time::sleep_until(next_at) => break,
                    Some(verdict) = self.reconciling.join_next() => self.take_verdict(verdict).await,
                    Some(fetched) = self.fetching.join_next() => self.note_fetched(fetched),
                    () = pokes.woken() => {
                        // A thousand changes at once cause one poll.
                        let soonest = began_at + MIN_DISTANCE.min(self.poll_settings.poll_interval);
                        next_at = next_at.min(self.not_before(soonest));
                    }
                }
            }
        }
    }

    /// Returns `at`, or when the host may be asked again, whichever is later.
    fn not_before(&self, at: Instant) -> Instant {
        self.host_state.gated_until().map_or(at, |until| until.max(at))
    }

    async fn look(&mut self) -> Result<(), String> {
        if self.host_state.is_unauthorized() {
            self.host_state.renew();
        }
        let rules = self.host_state.rules().await?;
        let forge = self.host_state.forge().map_err(|error| error.to_string())?;
        self.n_looks += 1;
        if self.n_looks == 1 {
            let items =
                self.host_state.service.forge_items.open().await.map_err(|error| said(&error))?;
            self.host_state.learn_names(&forge, &items).await;
        }
        let mut problem = None;
        let mut unanswered = None;
        let n_feeds = forge.feeds().len();
        for (place, feed) in forge.feeds().iter().enumerate() {
            // A long list is read page by page. If there are several lists, a page sometimes takes
            // the place of the changes, because two questions are enough.
            let reads_pages = n_feeds == 1 || self.n_looks % N_LOOKS_A_PAGE == place as u64;
            let read = self.read_feed(&forge, *feed, &rules, reads_pages, &mut problem).await;
            // Waiting items can be claimed while other lists are read.
            self.host_state.service.forges.serve_waiting();
            match read {
                Ok(()) => {}
                Err(Unanswered::Failed(
                    error @ (ForgeError::NotFound { .. } | ForgeError::Moved { .. }),
                )) => {
                    // Each item says for itself what became of it.
                    self.looks.remove(feed);
                    self.keep_waiting(|kind, _| !kinds_of(*feed).contains(&kind));
                    let ours = self.ours().await?.into_iter().map(|item| within(&item));
                    self.suspects.extend(ours.filter(|within| kinds_of(*feed).contains(&within.0)));
                    problem = Some(format!("{error}; `forge check` shows more"));
                }
                // A suspected repository proves nothing either, because its items would not answer.
                Err(error @ Unanswered::Repository(_)) => {
                    problem = Some(format!(
                        "{error}; its items are worked on as before, and `forge check` shows more"
                    ));
                }
                // A project without merge requests answers like this.
                Err(Unanswered::Failed(error @ ForgeError::Forbidden { .. })) => {
                    problem = Some(format!("{error}; `forge check` shows more"));
                }
                // It says nothing of the other lists, nor of what is suspected.
                Err(error) => unanswered = Some(error.to_string()),
            }
        }
        match self.ask_about_blockers(&forge).await {
            Ok(unknown) => problem = problem.or(unknown),
            Err(error) => unanswered = unanswered.or(Some(error.to_string())),
        }
        self.fetch_bases();
        self.suspect().await?;
        if let Some(unanswered) = unanswered {
            return Err(unanswered);
        }
        let (n_assigned, n_elsewhere) = self.count(&rules).await?;
        let seen_at = self.host_state.service.time();
        let problem = problem.or_else(|| self.problems.values().next().cloned());
        let problem = problem.or_else(|| self.fetch_problem.clone());
        let problem = problem.or_else(|| self.host_state.rename_of(&self.watched.name));
        self.host_state.note(&self.watched.name, |status| {
            status.seen_at = Some(seen_at);
            status.n_assigned = n_assigned;
            status.n_elsewhere = n_elsewhere;
            status.problem = problem;
        });
        Ok(())
    }

    /// Begins to fetch the commits at which waiting items begin, if results go to the forge.
    fn fetch_bases(&mut self) {
        let service = &self.host_state.service;
        let waiting = service.forges.waiting_in(&self.repository);
        let is_due = self.n_looks == 1 || !waiting.is_empty();
        if !bases::are_needed(&self.watched) || !is_due || !self.fetching.is_empty() {
            return;
        }
        let host_state = Arc::clone(&self.host_state);
        let repository = self.repository.clone();
        let watched = self.watched.clone();
        let requests = waiting.into_iter().filter(|(kind, _)| *kind != ItemKind::Issue);
        let asked = self.requests.take(requests, bases::MAX_REQUESTS);
        let fetch = async move { bases::fetch(&host_state, &repository, &watched, &asked).await };
        self.fetching.spawn(fetch);
    }

    fn note_fetched(&mut self, fetched: Result<Result<(), String>, JoinError>) {
        match fetched {
            Ok(fetched) => {
                self.fetch_problem = fetched.err();
                if let Some(problem) = self.fetch_problem.clone() {
                    self.host_state
                        .note(&self.watched.name, |status| status.problem = Some(problem));
                }
            }
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => {}
        }
    }

    /// Returns the number of items on the lists, and how many of them another instance has.
    async fn count(&self, rules: &Rules) -> Result<(usize, usize), String> {
        let ours: BTreeSet<ItemNumber> = self.ours().await?.iter().map(within).collect();
        let is_elsewhere = |item: &&ItemFacts| {
            !ours.contains(&(item.kind, item.number))
                && rules.judge(item, None) == Eligibility::Eligible
                && item.n_blockers == 0
                && !rules.is_free(item)
        };
        let all = || self.looks.values().flat_map(ListCursor::items);
        Ok((all().count(), all().filter(is_elsewhere).count()))
    }

    /// Reads the part of a list that is due now.
    async fn read_feed(
        &mut self,
        forge: &Forge,
        feed: Feed,
        rules: &Rules,
        reads_pages: bool,
        problem: &mut Option<String>,
    ) -> Result<(), Unanswered> {
        let mut look = self.looks.remove(&feed).unwrap_or_default();
        let read = self.read(forge, feed, &mut look, rules, reads_pages, problem).await;
        // The state is kept after a failure, too, because earlier pages were read.
        self.looks.insert(feed, look);
        read
    }

    async fn read(
        &mut self,
        forge: &Forge,
        feed: Feed,
        look: &mut ListCursor,
        rules: &Rules,
        reads_pages: bool,
        problem: &mut Option<String>,
    ) -> Result<(), Unanswered> {
        let repository = self.watched.name.clone();
        let bot = rules.bot.clone();
        let is_alone = forge.feeds().len() == 1;
        while reads_pages || look.changes_since().is_none() {
            let (page, etag) = look.question();
            let listing = Listing::Assigned { bot: bot.clone() };
            let listing = &listing;
            let list =
                |name: String| async move { forge.list(&name, feed, listing, page, etag).await };
            let answer = self.host_state.ask_in(forge, &repository, list).await?;
            let is_first = look.goes_on();
            let read = look.take(answer);
            self.take_in(&read.items, rules, forge.hides_blockers(), problem).await;
            if let Some(whole) = &read.whole {
                let kinds = kinds_of(feed);
                self.keep_waiting(|kind, number| {
                    !kinds.contains(&kind) || whole.contains(&(kind, number))
                });
                let ours = self.ours().await.unwrap_or_default();
                let missing = ours.iter().map(within);
                self.suspects.extend(
                    missing.filter(|within| kinds.contains(&within.0) && !whole.contains(within)),
                );
            }
            if !is_first || read.whole.is_some() {
                break;
            }
        }
        if let Some((since, etag)) = look.changes_question().filter(|_| is_alone || !reads_pages) {
            for page in 1..=MAX_CHANGE_PAGES {
                let listing = Listing::ChangedSince(since.clone());
                let etag = etag.as_deref().filter(|_| page == 1);
                let listing = &listing;
                let list = |name: String| async move {
                    forge.list(&name, feed, listing, page, etag).await
                };
                let answer = self.host_state.ask_in(forge, &repository, list).await?;
                let Conditional::Fresh(changed) = answer else {
                    break;
                };
                self.take_in(&changed.items, rules, forge.hides_blockers(), problem).await;
                look.note_changes(&changed.items);
                if !changed.has_more {
                    // If nothing more has changed, the next question is the same.
                    look.note_answer(&since, changed.etag.filter(|_| page == 1));
                    break;
                }
            }
        }
        Ok(())
    }

    /// Processes items of a list: free items wait, and unexpected states are checked.
    async fn take_in(
        &mut self,
        items: &[ItemFacts],
        rules: &Rules,
        hides_blockers: bool,
        problem: &mut Option<String>,
    ) {
        let is_held = self.host_state.service.are_starts_held();
        let ours = match self.ours().await {
            Ok(ours) => ours,
            Err(error) => {
                *problem = Some(error);
                return;
            }
        };
        let mut not_free: BTreeSet<ItemNumber> = BTreeSet::new();
        for item in items {
            let here = (item.kind, item.number);
            let our = ours.iter().find(|our| within(our) == here);
            if our.is_none() && rules.is_wanted(item) {
                if !hides_blockers {
                    let blockers = self.blockers.note_counted(item);
                    self.let_wait(item, blockers);
                } else if self.blockers.note(item) {
                    self.let_wait(item, Vec::new());
                }
                continue;
            }
            not_free.insert(here);
            if our.is_some_and(|our| is_suspect(our, item, rules, is_held)) {
                self.suspects.insert(here);
            }
        }
        self.keep_waiting(|kind, number| !not_free.contains(&(kind, number)));
    }

    /// Lets an item wait for an agent and a slot, or for the issues that block it.
    fn let_wait(&mut self, item: &ItemFacts, mut blockers: Vec<String>) {
        // An issue without an address counts, but has no link.
        blockers.retain(|address| !address.is_empty());
        let key = self.key(item.kind, item.number);
        if self.host_state.is_dry_run {
            if item.n_blockers == 0 && self.said.insert((item.kind, item.number)) {
                tracing::info!(item = %key, host = key.host, title = item.title, "dry run: would take a forge item");
            }
            return;
        }
        let title = task_text::title(&key, item);
        let url = item.url.clone();
        let n_blockers = item.n_blockers;
        let item = FreeItem { key, title, url, n_blockers, blockers };
        self.host_state.service.forges.add_waiting(&self.repository, item);
    }

    fn keep_waiting(&mut self, is_meant: impl Fn(ItemKind, u64) -> bool) {
        self.blockers.keep(&is_meant);
        self.host_state.service.forges.keep_waiting(&self.repository, is_meant);
    }

    /// Finds the items that must be read alone, and begins to read them.
    async fn suspect(&mut self) -> Result<(), String> {
        let now = self.host_state.service.time();
        let service = Arc::clone(&self.host_state.service);
        let is_held = service.are_starts_held();
        let before = std::mem::take(&mut self.suspects);
        self.to_ask.clear();
        for item in self.ours().await? {
            let here = within(&item);
            let is_paused = matches!(item.state, ItemState::Paused { .. });
            if let ItemState::Paused { since } = item.state
                && now.since(since) >= self.poll_settings.paused_task_expiry
            {
                if let Err(error) = service.forge_items.expire(&item.id).await {
                    self.problems.insert(here, said(&error));
                }
            } else if is_watched(&item)
                && (before.contains(&here) || item.is_missing || (is_paused && !is_held))
            {
                self.suspects.insert(here);
                if !self.under_way.contains(&here) {
                    self.to_ask.push_back(item);
                }
            }
        }
        self.problems.retain(|here, _| self.suspects.contains(here));
        self.ask_on().await;
        Ok(())
    }

    /// Reads as many items as may be read at the same time.
    async fn ask_on(&mut self) {
        let Ok(rules) = self.host_state.rules().await else {
            return;
        };
        let is_checked =
            self.n_looks.is_multiple_of(u64::from(self.poll_settings.task_stop.check_interval));
        while self.reconciling.len() < N_QUESTIONS
            && let Some(item) = self.to_ask.pop_front()
        {
            let reconciler = Reconciler {
                host_state: Arc::clone(&self.host_state),
                poll_settings: self.poll_settings.clone(),
            };
            let rules = Arc::clone(&rules);
            let here = within(&item);
            self.under_way.insert(here);
            self.reconciling
                .spawn(async move { (here, reconciler.reconcile(&rules, item, is_checked).await) });
        }
    }

    async fn take_verdict(
        &mut self,
        verdict: Result<(ItemNumber, Result<Reconciled, String>), JoinError>,
    ) {
        match verdict {
            Ok((here, judged)) => {
                self.under_way.remove(&here);
                match judged {
                    Ok(Reconciled::Finally) => {
                        self.suspects.remove(&here);
                        self.problems.remove(&here);
                    }
                    Ok(Reconciled::AskAgain) => {}
                    // The problem concerns this item only. Others go on.
                    Err(problem) => {
                        self.problems.insert(here, problem);
                    }
                }
            }
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => {}
        }
        self.ask_on().await;
    }

    /// Returns our items of this repository that the forge decides about.
    async fn ours(&self) -> Result<Vec<ForgeItem>, String> {
        let mut items =
            self.host_state.service.forge_items.open().await.map_err(|error| said(&error))?;
        items.retain(|item| {
            self.host_state.has(item)
                && self.host_state.is_called(&item.key.repository, &self.watched.name)
        });
        Ok(items)
    }

    fn key(&self, kind: ItemKind, number: u64) -> ItemKey {
        ItemKey {
            forge: self.host_state.config.kind,
            host: self.host_state.config.host().to_owned(),
            repository: self.watched.name.clone(),
            kind,
            number,
        }
    }
}

const fn within(item: &ForgeItem) -> ItemNumber {
    (item.key.kind, item.key.number)
}

/// Returns whether the state of our item in a list is a reason to read the item alone.
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

/// Returns the delay before the poll after a failed one. It grows with each failure, to a minute at
/// most.
fn retry_delay(poll_interval: Duration, n_failures: u32, name: &str) -> Duration {
    (poll_interval * (1 << n_failures.min(8))).min(LONGEST_WAIT).mul_f64(jitter(name))
}

/// Returns a factor from 0.8 to 1, always the same for a name.
fn jitter(name: &str) -> f64 {
    let sum = name.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    0.8 + f64::from(sum % 201) / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_that_fails_is_asked_again_within_a_minute() {
        let delay = |interval: u64, n| retry_delay(Duration::from_secs(interval), n, "ann/site");
        assert!(delay(1, 1) < delay(1, 2) && delay(1, 2) < Duration::from_secs(5));
        for (interval, n_failures) in [(30, 1), (30, 9), (86_400, 1), (86_400, u32::MAX)] {
            let delay = delay(interval, n_failures);
            assert!((45..=60).contains(&delay.as_secs()), "{delay:?}");
        }
    }
}
