//! The state that all tasks of one host share: the client, the rules, the limits and the health.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::connect::{ConnectError, connect_through, token_of};
use super::gate::{Gate, Held};
use super::gates::Gates;
use super::{Forge, ForgeError};
use config::{ForgeAccess, ForgeHost, Forges, WatchedRepository};
use domain::forge::pacing::{Pace, Shortage, Urgency};
use domain::forge::{Claimants, ForgeItem, ForgeUser, Rules};
use domain::{Secret, Timestamp};
use machine::locks::lock;
use runtime::clock;
use runtime::telemetry::counters;
use service::{ForgeHealth, ForgeStatus, RepositoryStatus, Service};

/// The least change of the end of a wait that is shown.
const MINUTE: Duration = Duration::from_mins(1);

/// A host, as its poller and its outbox worker use it.
pub(super) struct HostState {
    /// The place in the configuration.
    place: usize,
    pub(super) config: ForgeHost,
    /// The repositories that later entries of the same address watch. Only the first entry of an
    /// address has them.
    of_others: Option<BTreeSet<String>>,
    pub(super) is_dry_run: bool,
    claims_from: BTreeSet<String>,
    pub(super) service: Arc<Service>,
    /// The client with its token; `None` while there is no usable token.
    forge: Mutex<Option<(Secret, Forge)>>,
    /// The rules, once the bot is known.
    rules: Mutex<Option<Arc<Rules>>>,
    /// The owner of the token, once it is known.
    own: Mutex<Option<ForgeUser>>,
    /// The present names of renamed repositories, by the names in the configuration (in lower
    /// case).
    pub(super) names: Mutex<BTreeMap<String, String>>,
    /// The addresses from which git clones the repositories, by their names in the configuration.
    pub(super) clone_urls: Mutex<BTreeMap<String, String>>,
    gates: Arc<Gates>,
    /// The gate that each request to the host passes. Other entries of the host have the same gate.
    gate: Arc<Gate>,
    status: Mutex<ForgeStatus>,
}

/// The reason why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unanswered {
    /// The host asked for a pause, so nothing was sent. The status of the host has its end.
    #[error("the host asked for a pause of all requests")]
    Closed,
    /// The budget of the host's writes is used up: nothing was sent.
    #[error("the writes of this hour (`forge.writes_per_hour`) are used up")]
    OverBudget,
    #[error("there is no usable token")]
    NoToken,
    #[error(transparent)]
    Failed(#[from] ForgeError),
    /// The repository does not answer, which means nothing for its items.
    #[error("the repository does not answer: {0}")]
    Repository(#[source] ForgeError),
}

impl HostState {
    pub(super) fn new(
        place: usize,
        config: ForgeHost,
        forges: &Forges,
        service: Arc<Service>,
        gates: &Arc<Gates>,
    ) -> Self {
        let &ForgeAccess {
            dry_run: is_dry_run,
            write_interval,
            writes_per_hour,
            ref claims_from,
            ..
        } = &forges.access;
        let is_twin =
            |other: &&ForgeHost| (other.kind, other.host()) == (config.kind, config.host());
        let is_first = !forges.hosts[..place].iter().any(|other| is_twin(&other));
        let later =
            forges.hosts[place + 1..].iter().filter(is_twin).flat_map(|other| &other.repositories);
        let of_others = is_first.then(|| later.map(|watched| watched.name.clone()).collect());
        let repositories = config.repositories.iter().map(|repository| RepositoryStatus {
            name: repository.name.clone(),
            project: repository.project.clone(),
            agents: repository.agents.clone(),
            seen_at: None,
            n_assigned: 0,
            n_elsewhere: 0,
            n_waiting: 0,
            problem: None,
        });
        let status = ForgeStatus {
            forge: config.kind,
            host: config.host().to_owned(),
            health: ForgeHealth::Unknown,
            health_since: service.time(),
            last_error: None,
            is_dry_run,
            writes_held_until: None,
            are_writes_reserved: false,
            repositories: repositories.collect(),
        };
        let gate = gates.of(config.kind, config.host(), Pace { write_interval, writes_per_hour });
        let host_state = Self {
            place,
            of_others,
            forge: Mutex::default(),
            rules: Mutex::default(),
            own: Mutex::default(),
            names: Mutex::default(),
            clone_urls: Mutex::default(),
            gates: Arc::clone(gates),
            gate,
            status: Mutex::new(status),
            config,
            is_dry_run,
            claims_from: claims_from.clone(),
            service,
        };
        host_state.renew();
        // The host asked for it before the daemon, or this configuration, began.
        host_state.note_limit();
        let status = lock(&host_state.status).clone();
        host_state.service.forges.report(place, &status);
        host_state
    }

    /// Returns the place of its host in the configuration.
    pub(super) const fn place(&self) -> usize {
        self.place
    }

    /// Returns whether an item belongs to this host and to a repository of this token. The first
    /// token of a host also serves repositories that are not watched any more.
    pub(super) fn has(&self, item: &ForgeItem) -> bool {
        let key = &item.key;
        let is_left = || {
            let others = self.of_others.as_ref();
            others.is_some_and(|others| {
                !others.iter().any(|name| name.eq_ignore_ascii_case(&key.repository))
            })
        };
        let is_here = key.forge == self.config.kind && key.host == self.config.host();
        is_of(&self.config, item) || (is_here && is_left())
    }

    /// Returns whether the token was refused.
    pub(super) fn is_unauthorized(&self) -> bool {
        lock(&self.status).health == ForgeHealth::Unauthorized
    }

    /// Reads the token again, because its file may have changed. A token that cannot be read is
    /// reported.
    pub(super) fn renew(&self) {
        if let Err(error) = self.read_token_again() {
            let error = runtime::telemetry::ErrorChain(&error).to_string();
            self.set_health(ForgeHealth::Unauthorized, Some(&error));
        }
    }

    /// Reads the token again. Returns whether it has changed; if so, it is used from now on.
    pub(super) fn read_token_again(&self) -> Result<bool, ConnectError> {
        let token = token_of(&self.config)?;
        if lock(&self.forge).as_ref().is_some_and(|(used, _)| *used == token) {
            return Ok(false);
        }
        let forge = connect_through(&self.config, token.clone(), Arc::clone(&self.gate))?;
        *lock(&self.forge) = Some((token, forge));
        // The token may belong to another account.
        *lock(&self.own) = None;
        Ok(true)
    }

    /// Returns the client, for questions through [`HostState::ask`].
    pub(super) fn forge(&self) -> Result<Forge, Unanswered> {
        self.check_gate()?;
        let forge = lock(&self.forge).as_ref().map(|(_, forge)| forge.clone());
        forge.ok_or(Unanswered::NoToken)
    }

    /// Returns the token that the client uses.
    pub(super) fn token(&self) -> Result<Secret, Unanswered> {
        let token = lock(&self.forge).as_ref().map(|(token, _)| token.clone());
        token.ok_or(Unanswered::NoToken)
    }

    fn check_gate(&self) -> Result<(), Unanswered> {
        if self.gated_until().is_none() {
            return Ok(());
        }
        self.note_limit();
        Err(Unanswered::Closed)
    }

    /// Returns when the host may be asked again; `None` if it may be asked now.
    pub(super) fn gated_until(&self) -> Option<Instant> {
        self.gate.limited_until()
    }

    /// Returns the answer to `question`, and updates the health of the host from it. Does not ask
    /// during a pause of the host.
    pub(super) async fn ask<T>(
        &self,
        question: impl Future<Output = Result<T, ForgeError>>,
    ) -> Result<T, Unanswered> {
        self.check_gate()?;
        let answer = question.await;
        if let Some(kind) = answer.as_ref().err().and_then(ForgeError::counted_as) {
            counters::FORGE_ERRORS.add(kind);
        }
        match &answer {
            // These answers concern the object of the question. The host is well.
            Ok(_)
            | Err(
                ForgeError::Forbidden { .. }
                | ForgeError::NotFound { .. }
                | ForgeError::Moved { .. }
                | ForgeError::Refused { .. },
            ) => self.set_health(ForgeHealth::Ok, None),
            Err(error @ ForgeError::Unauthorized { .. }) => {
                self.set_health(ForgeHealth::Unauthorized, Some(&error.to_string()));
            }
            Err(error @ ForgeError::Limited { .. }) => {
                // The limit is stored first, because a daemon that is killed now must know it
                // afterwards.
                self.gates.save(self.service.time()).await;
                if let Some(until) = self.limited_until() {
                    self.set_health(ForgeHealth::Limited(until), Some(&error.to_string()));
                }
            }
            Err(ForgeError::OverBudget { .. }) => return Err(Unanswered::OverBudget),
            Err(ForgeError::Withheld { .. }) => {
                self.note_limit();
                return Err(Unanswered::Closed);
            }
            Err(error @ (ForgeError::Unavailable { .. } | ForgeError::NotUnderstood { .. })) => {
                self.set_health(ForgeHealth::Unavailable, Some(&error.to_string()));
            }
        }
        answer.map_err(Unanswered::Failed)
    }

    /// Returns the rules for items. Asks for the bot's account if it is not known.
    pub(super) async fn rules(&self) -> Result<Arc<Rules>, String> {
        if let Some(rules) = lock(&self.rules).clone() {
            return Ok(rules);
        }
        let forge = self.forge().map_err(|error| error.to_string())?;
        let name = &self.config.account.bot_name;
        let user = self.ask(forge.user(name)).await.map_err(|error| error.to_string())?;
        let bot = user.ok_or_else(|| {
            format!("`{}` has no account `{name}` (bot_name)", self.config.host())
        })?;
        let rules = Arc::new(Rules { bot, labels: self.config.labels.clone() });
        *lock(&self.rules) = Some(Arc::clone(&rules));
        Ok(rules)
    }

    /// Returns the account of the token; `None` if the forge refuses to tell it.
    ///
    /// # Errors
    /// A forge that does not answer now.
    pub(super) async fn own(&self) -> Result<Option<ForgeUser>, Unanswered> {
        if let Some(own) = lock(&self.own).clone() {
            return Ok(Some(own));
        }
        let forge = self.forge()?;
        let own = match self.ask(forge.identity()).await {
            Ok(identity) => identity.user,
            Err(Unanswered::Failed(
                ForgeError::Forbidden { .. }
                | ForgeError::NotFound { .. }
                | ForgeError::Refused { .. },
            )) => return Ok(None),
            Err(error) => return Err(error),
        };
        *lock(&self.own) = Some(own.clone());
        Ok(Some(own))
    }

    /// Returns the accounts whose claims count.
    pub(super) async fn claimants(&self, rules: &Rules) -> Result<Claimants, Unanswered> {
        let own = self.own().await?;
        Ok(Claimants { own, bot: rules.bot.clone(), others: self.claims_from.clone() })
    }

    /// Stores the result of a poll of a repository.
    pub(super) fn note(&self, name: &str, note: impl FnOnce(&mut RepositoryStatus)) {
        let mut status = lock(&self.status);
        let before = status.clone();
        if let Some(repository) =
            status.repositories.iter_mut().find(|repository| repository.name == name)
        {
            note(repository);
        }
        let after = status.clone();
        drop(status);
        let problem = |status: &ForgeStatus| {
            let repository = status.repositories.iter().find(|repository| repository.name == name);
            repository.and_then(|repository| repository.problem.clone())
        };
        if let Some(problem) =
            problem(&after).filter(|problem| differs(problem, problem_of(&before, name)))
        {
            tracing::warn!(
                host = self.config.host(),
                repository = name,
                problem,
                "a repository of a forge has a problem"
            );
        }
        if after != before {
            self.service.forges.report(self.place, &after);
        }
    }

    /// Returns the end of the pause on the wall clock.
    fn limited_until(&self) -> Option<Timestamp> {
        self.gated_until().map(|until| self.time_at(until))
    }

    fn time_at(&self, at: Instant) -> Timestamp {
        self.service.time() + at.saturating_duration_since(clock::now())
    }

    /// Returns the limit that keeps work of this urgency from beginning now.
    pub(super) fn held(&self, urgency: Urgency) -> Option<Held> {
        self.gate.held(urgency)
    }

    /// Returns the limit that keeps an item from being claimed now. It needs this number of writes,
    /// and other items of the host owe `n_reserved`.
    pub(super) fn held_claim(&self, n_needed: u32, n_reserved: u32) -> Option<Held> {
        self.gate.held_claim(n_needed, n_reserved)
    }

    /// Returns an error while work of this urgency may not begin.
    pub(super) fn check_held(&self, urgency: Urgency) -> Result<(), Unanswered> {
        match self.held(urgency) {
            Some(Held::Budget(..)) => Err(Unanswered::OverBudget),
            Some(Held::Limit(_)) => Err(Unanswered::Closed),
            None => Ok(()),
        }
    }

    /// Shows whether writes wait for the budget, why, and until when. Logs it once in an hour.
    pub(super) fn note_budget(&self, held: Option<Held>) {
        let dated = held.filter(|held| !matches!(held, Held::Budget(Shortage::Owed, _)));
        let until = dated.map(|held| self.time_at(held.until()));
        let is_reserved =
            matches!(held, Some(Held::Budget(Shortage::Reserved | Shortage::Owed, _)));
        let mut status = lock(&self.status);
        // A wait that goes on is not shown again for each millisecond.
        let is_shown = match (status.writes_held_until, until) {
            (Some(shown), Some(until)) => shown.since(until).max(until.since(shown)) < MINUTE,
            (shown, until) => shown == until,
        };
        if is_shown && status.are_writes_reserved == is_reserved {
            return;
        }
        status.writes_held_until = until;
        status.are_writes_reserved = is_reserved;
        let after = status.clone();
        drop(status);
        if held.is_some() && self.gate.is_budget_news() {
            tracing::warn!(
                host = self.config.host(),
                forge = self.config.kind.as_str(),
                until = after.writes_held_until.map(tracing::field::display),
                reason = if is_reserved { "reserved for items at work" } else { "used up" },
                advice = "forge.writes_per_hour is the budget; stops are written all the same",
                "labels and comments of a forge wait for the budget of this hour"
            );
        }
        self.service.forges.report(self.place, &after);
    }

    /// Shows a limit that other tasks met, or that is from before a restart.
    fn note_limit(&self) {
        let is_shown = matches!(lock(&self.status).health, ForgeHealth::Limited(_));
        if let Some(until) = self.limited_until().filter(|_| !is_shown) {
            self.set_health(
                ForgeHealth::Limited(until),
                Some("the host asked for a pause of all requests"),
            );
        }
    }

    /// Sets the health, and reports each change once. The answer to a question from before the
    /// pause of the host is not news.
    fn set_health(&self, health: ForgeHealth, error: Option<&str>) {
        if self.gated_until().is_some() && !matches!(health, ForgeHealth::Limited(_)) {
            return;
        }
        let mut status = lock(&self.status);
        let before = status.health;
        if before == health && error.is_none() {
            return;
        }
        status.health = health;
        if before.as_str() != health.as_str() {
            status.health_since = self.service.time();
        }
        if error.is_some() {
            status.last_error = error.map(str::to_owned);
        }
        let after = status.clone();
        drop(status);
        let host = self.config.host();
        let forge = self.config.kind.as_str();
        if before.as_str() != health.as_str() {
            match health {
                ForgeHealth::Unauthorized => {
                    tracing::error!(
                        host,
                        forge,
                        error,
                        "a forge does not take the token; a person must renew it"
                    );
                }
                ForgeHealth::Limited(until) => {
                    tracing::warn!(host, forge, error, %until, "a forge asked for a pause of all requests");
                }
                ForgeHealth::Unavailable => {
                    tracing::warn!(host, forge, error, "a forge did not answer; will ask again");
                }
                ForgeHealth::Ok => tracing::info!(host, forge, "a forge answers"),
                ForgeHealth::Unknown => {}
            }
        }
        self.service.forges.report(self.place, &after);
    }
}

/// Returns whether an item belongs to this host and to one of its repositories. The same host may
/// be configured with several tokens, each for some repositories.
pub(super) fn is_of(host: &ForgeHost, item: &ForgeItem) -> bool {
    let key = &item.key;
    let is_its =
        |repository: &WatchedRepository| repository.name.eq_ignore_ascii_case(&key.repository);
    key.forge == host.kind && key.host == host.host() && host.repositories.iter().any(is_its)
}

fn problem_of<'a>(status: &'a ForgeStatus, name: &str) -> Option<&'a str> {
    status.repositories.iter().find(|repository| repository.name == name)?.problem.as_deref()
}

fn differs(problem: &str, before: Option<&str>) -> bool {
    before != Some(problem)
}
