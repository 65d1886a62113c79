//! The answers of all rules on the start of a key, and the wait that people see of them.

use super::account::{Account, Parking};
use super::conversation::Conversation;
use super::id::{LaunchId, TaskId};
use super::key::InstanceKey;
use super::launch::Outcome;
use super::plan::Deferred;
use super::plan::shared::Crowd;
use super::start_history::{Ruling, StartReason};
use super::time::Timestamp;
use super::waiting::{WaitFacts, WaitReason, Waiting};

/// The answers of the rules for one key.
#[derive(Debug, Clone)]
pub struct Why {
    pub key: InstanceKey,
    pub at: Timestamp,
    /// All rules: those of the server in their order, then those of coordinators. The first rule
    /// that keeps the key from starting decides.
    pub rules: Vec<Ruling>,
    pub n_failures: u32,
    /// The time when the work began that the start is for; `None` if there is no work.
    pub waiting_since: Option<Timestamp>,
    /// The task that the next launch is given.
    pub task: Option<TaskId>,
    /// The newest conversation of the agent about that task.
    pub conversation: Option<Conversation>,
    /// The account of the agent's provider.
    pub account: Account,
    pub parking: Parking,
    /// The git work tree of the project, if several agents work in it at once.
    pub crowd: Option<Crowd>,
    /// The open launch, if its coordinator is absent.
    pub abandoned: Option<LaunchId>,
    /// The end of its last launch, with the last line of its agent, if failures keep it.
    pub last_end: Option<(Outcome, Option<String>)>,
    /// It runs on a host that does not answer.
    pub is_host_silent: bool,
    /// The facts that the sentence of a wait names.
    pub facts: WaitFacts,
}

impl Why {
    /// Returns the deciding reason; [`StartReason::Ready`] if the start is allowed.
    pub fn reason(&self) -> StartReason {
        self.keeping().map_or(StartReason::Ready, |rule| rule.reason)
    }

    /// Returns the wait that the rules cause, or a silent host; `None` if the agent may start, runs
    /// already or has no work.
    pub fn waiting(&self) -> Option<Waiting> {
        if self.is_host_silent {
            return Some(Waiting::of(WaitReason::HostSilent).with_facts(self.facts.clone()));
        }
        self.wait_for(self.keeping()?)
    }

    /// Returns the same as [`Self::waiting`], and the stop by a person also for an agent without
    /// work: it stays stopped for the work that comes.
    pub fn waiting_or_stopped(&self) -> Option<Waiting> {
        let is_held = |rule: &&Ruling| rule.keeps && rule.reason == StartReason::Held;
        self.waiting().or_else(|| self.wait_for(self.rules.iter().find(is_held)?))
    }

    fn keeping(&self) -> Option<&Ruling> {
        self.rules.iter().find(|rule| rule.keeps)
    }

    fn wait_for(&self, rule: &Ruling) -> Option<Waiting> {
        let is_by_failures =
            matches!(rule.reason, StartReason::Suspended | StartReason::Misconfigured);
        let parked = self.account.parked.as_ref();
        Some(Waiting {
            until: rule.until,
            detail: rule.detail.clone(),
            last_end: self.last_end.clone().filter(|_| is_by_failures),
            n_failures: self.n_failures,
            account: parked.map(|parked| (self.account.ai_type.clone(), parked.class)),
            facts: Some(Box::new(self.facts.clone())),
            ..Waiting::of_start(rule.reason)?
        })
    }
}

/// Returns the rules of the server with those of coordinators. `pause_file` is the path of the
/// pause file, if that exists. `deferred` is the last report of a coordinator that defers the
/// start.
pub fn all_rules(
    of_server: Vec<Ruling>,
    pause_file: Option<&str>,
    deferred: Option<Deferred>,
    has_coordinator: bool,
) -> Vec<Ruling> {
    let mut rules = of_server;
    let n_of_server = rules.len();
    let is_paused = |rule: &&mut Ruling| rule.reason == StartReason::Paused;
    if let (Some(file), Some(paused)) = (pause_file, rules.iter_mut().find(is_paused)) {
        paused.detail = Some(format!("the pause file `{file}` exists; remove it"));
    }
    if let Some(deferred) = deferred {
        let by_fault = deferred.is_by_fault().then_some(deferred.reason);
        if let Some(rule) = rules.iter_mut().find(|rule| by_fault == Some(rule.reason)) {
            rule.keeps = true;
            rule.detail.clone_from(&deferred.detail);
        }
        // The rules contain the server's own reasons already, which may have changed since a
        // coordinator repeated them.
        rules.extend(rules_of(deferred).filter(|rule| rule.reason.row().is_of_coordinator));
    }
    if !has_coordinator {
        rules.push(Ruling::keeping(StartReason::NoCoordinator));
    }
    if rules.len() == n_of_server {
        rules.push(Ruling::free(StartReason::NoFreeSlot));
    }
    rules
}

/// Returns the rules for which a coordinator defers a start.
pub fn rules_of(deferred: Deferred) -> impl Iterator<Item = Ruling> {
    let Deferred { reason, until, detail, also, .. } = deferred;
    let first = Ruling { until, detail, ..Ruling::keeping(reason) };
    std::iter::once(first).chain(also.into_iter().map(Ruling::keeping))
}
