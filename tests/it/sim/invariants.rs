//! The invariants: after every step, and when everything has come to rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use domain::conversation::is_refused;
use domain::launch::{ProcessEnd, Verdict};
use domain::start_history::StartReason;
use domain::{AgentId, InstanceKey, LaunchId, LaunchState, Outcome, Purpose, StopReason, TaskId};
use service::world::World as _;

use super::history::POLLING_INTERVAL;
use super::host::{Cap, Host};
use super::world::pass;
use super::{CLEANUP_INTERVAL, NOTICE_GRACE, SESSION_MAXIMUM, SLACK, Sim, sim_settings, talk};
use crate::questions::Questions;

/// The facts that were seen so far, for comparison with the present ones.
#[derive(Default)]
pub struct Watch {
    seq: i64,
    ended: BTreeSet<LaunchId>,
    n_failures: BTreeMap<InstanceKey, u32>,
    /// The agents whose CLI refused a conversation about a task.
    refused: BTreeSet<(AgentId, Option<TaskId>)>,
}

impl Watch {
    /// Checks everything. `has_released` says that a person let pairs start again since the last
    /// look.
    pub async fn look(&mut self, sim: &Arc<Sim>, hosts: &[Arc<Host>], has_released: bool) {
        self.look_at_processes(sim).await;
        look_at_sessions(sim).await;
        look_at_maxima(sim, hosts).await;
        look_at_notices(sim).await;
        talk::look(sim).await;
        self.look_at_ends(sim, has_released).await;
    }

    /// Checks that neither time nor a report frees the place of a living agent.
    async fn look_at_processes(&self, sim: &Arc<Sim>) {
        for (launch, key) in sim.alive() {
            sim.check_not_freed(&launch, &key).await;
        }
        for (launch, end) in sim.take_forgotten() {
            let known = sim.store.launch(&launch).await.unwrap();
            let Some(known) = known else {
                // A launch that ended while the clock was a year behind is old when the clock is
                // right again.
                if !sim.world.has_jumped_by(sim_settings().retention.history) {
                    sim.chronicle
                        .violation(format!("{launch} ended, and the server never knew it"));
                }
                continue;
            };
            if known.is_open() {
                sim.chronicle.violation(format!("{launch} is forgotten and open"));
            }
            // A claim lapses if no process is reported. A later report has no effect.
            if let ProcessEnd::Exited(exit) = end
                && known.exit != exit
                && known.pid.is_some()
            {
                sim.chronicle.violation(format!(
                    "{launch} ended with {exit:?}, and {:?} is recorded",
                    known.exit
                ));
            }
        }
    }

    /// Checks that every end is recorded once, and counts once for its pair.
    async fn look_at_ends(&mut self, sim: &Arc<Sim>, has_released: bool) {
        // A verdict that may be missing is `None`.
        let mut by_key: BTreeMap<InstanceKey, Vec<Vec<Option<Verdict>>>> = BTreeMap::new();
        for event in sim.store.events(self.seq, usize::MAX).await.unwrap() {
            self.seq = event.seq;
            let Some(launch) = event.launch.filter(|_| event.kind == "launch.ended") else {
                continue;
            };
            let Some(row) = sim.store.launch(&launch).await.unwrap() else {
                // A server that starts with a wrong clock believes it.
                assert!(
                    sim.world.has_jumped_by(sim_settings().retention.history),
                    "an event is about a launch"
                );
                continue;
            };
            let LaunchState::Ended { outcome, .. } = &row.state else {
                sim.chronicle
                    .violation(format!("{launch} has ended and is {}", row.state.as_str()));
                continue;
            };
            sim.chronicle.note(|| format!("server  {launch}  ended: {outcome}"));
            let was_sent_away = matches!(outcome, Outcome::Stopped(_))
                || row.stop_reason == Some(StopReason::ChatEnded);
            let verdicts = match row.key.purpose {
                Purpose::Check => vec![row.verdict(outcome, true)],
                // The verdict also depends on unfinished work.
                Purpose::Task => vec![row.verdict(outcome, true), row.verdict(outcome, false)],
                Purpose::Chat if was_sent_away => vec![Verdict::Fine],
                Purpose::Chat if row.authenticated_at.is_none() => {
                    vec![row.failed_verdict(outcome)]
                }
                // The verdict also depends on unanswered messages then.
                Purpose::Chat => vec![Verdict::Fine, row.failed_verdict(outcome)],
            };
            let verdicts = verdicts.into_iter().map(Some);
            let verdicts: Vec<_> = if is_refused(&row, outcome) {
                let of = (row.key.agent.clone(), row.claimed_task.clone());
                let is_first = self.refused.insert(of);
                // A second refusal counts only within an hour.
                [None].into_iter().chain(verdicts.filter(|_| !is_first)).collect()
            } else {
                verdicts.collect()
            };
            by_key.entry(row.key.clone()).or_default().push(verdicts);
            if !self.ended.insert(launch.clone()) {
                sim.chronicle.violation(format!("the end of {launch} is recorded twice"));
            }
        }
        for key in sim.keys() {
            let found = sim.store.pair(&key).await.unwrap().n_failures;
            let before = self.n_failures.insert(key.clone(), found).unwrap_or(0);
            let ends = by_key.remove(&key).unwrap_or_default();
            let after = |from: u32, ends: &[Vec<Option<Verdict>>]| {
                ends.iter().fold(BTreeSet::from([from]), |before, verdicts| {
                    let next = |verdict: Option<Verdict>, n: u32| match verdict {
                        None => n,
                        Some(Verdict::Failure) => n + 1,
                        Some(_) => 0,
                    };
                    verdicts
                        .iter()
                        .flat_map(|verdict| before.iter().map(move |n| next(*verdict, *n)))
                        .collect()
                })
            };
            let expected = after(before, &ends);
            // A release may have come between any two of them. By a clock that jumps, a run may
            // look long enough to begin a new row.
            let is_possible = sim.world.has_jumped()
                || expected.contains(&found)
                || has_released && (0..=ends.len()).any(|n| after(0, &ends[n..]).contains(&found));
            if !is_possible {
                sim.chronicle.violation(format!(
                    "{key} has {found} failures; {before} and {ends:?} make {expected:?}"
                ));
            }
        }
    }
}

/// Checks that every session has an open launch.
async fn look_at_sessions(sim: &Arc<Sim>) {
    let open = sim.store.open_sessions().await.unwrap();
    for session in &open {
        let launch = sim.store.launch(&session.launch).await.unwrap();
        let is_fine =
            launch.is_some_and(|launch| launch.is_open() && launch.state != LaunchState::Ending);
        if !is_fine {
            sim.chronicle.violation(format!("session {} outlives {}", session.id, session.launch));
        }
    }
    for launch in sim.store.open_launches().await.unwrap() {
        if let LaunchState::Running { session } = &launch.state
            && !open.iter().any(|open| open.id == *session)
        {
            sim.chronicle.violation(format!("{} runs without its session", launch.id));
        }
    }
}

/// Checks that no session exceeds its maximum. Two parts enforce that independently. The server
/// does it at each cleanup, from its start on. A coordinator does it when the session is due, from
/// its own start on.
async fn look_at_maxima(sim: &Arc<Sim>, hosts: &[Arc<Host>]) {
    // After the clock was set, the start of a session is not known.
    if sim.world.has_jumped() || !sim.health.is_settled() {
        return;
    }
    let now = sim.world.now();
    for launch in sim.store.open_launches().await.unwrap() {
        let Some(since) =
            launch.authenticated_at.filter(|_| matches!(launch.state, LaunchState::Running { .. }))
        else {
            continue;
        };
        let host = hosts.iter().find(|host| Some(host.coordinator()) == launch.coordinator);
        let by_server = since.max(sim.began_at()) + 2 * CLEANUP_INTERVAL;
        let by_coordinator = host
            .and_then(|host| host.looked_after_since())
            .map(|looked_after| since.max(looked_after));
        for (who, from) in [("the server", Some(by_server)), ("its coordinator", by_coordinator)] {
            if from.is_some_and(|from| from + SESSION_MAXIMUM + SLACK < now) {
                sim.chronicle
                    .violation(format!("{} is past its maximum, and {who} lets it run", launch.id));
            }
        }
    }
}

/// Checks that a notice reaches its agent, or its agent ends.
async fn look_at_notices(sim: &Arc<Sim>) {
    let now = sim.world.now();
    for notice in sim.store.open_notices().await.unwrap() {
        let launch =
            sim.store.launch(&notice.launch).await.unwrap().expect("a notice is for a launch");
        let is_overdue =
            notice.waited_for_since().is_some_and(|at| at + NOTICE_GRACE + SLACK < now)
                && !sim.world.has_jumped()
                && sim.health.is_settled();
        let is_at_work =
            matches!(launch.state, LaunchState::Starting { .. } | LaunchState::Running { .. });
        if !launch.is_open() || (is_overdue && is_at_work) {
            let state = launch.state.as_str();
            sim.chronicle.violation(format!(
                "{} was told to end ({}) and is {state}",
                launch.id, notice.action
            ));
        }
    }
}

/// Returns the launches that time alone must advance.
pub async fn on_the_way(sim: &Arc<Sim>) -> Vec<(LaunchId, &'static str)> {
    let open = sim.store.open_launches().await.unwrap();
    open.into_iter()
        .filter(|launch| !matches!(launch.state, LaunchState::Running { .. }))
        .map(|launch| (launch.id.clone(), launch.state.as_str()))
        .collect()
}

/// Checks that no launch is stuck after much time without faults.
pub async fn check_progress(sim: &Arc<Sim>, before: &[(LaunchId, &'static str)]) {
    let now = on_the_way(sim).await;
    for (launch, was) in before {
        let Some((_, is)) = now.iter().find(|(stuck, _)| stuck == launch) else {
            continue;
        };
        sim.chronicle.violation(format!("{launch} was {was}, and long after that is {is}"));
    }
}

/// Checks that without faults each pair that may start does so if there is a slot.
pub async fn check_starts(sim: &Arc<Sim>, hosts: &[Arc<Host>]) {
    let mut waiting = possible_starts(sim, hosts).await;
    for _ in 0..=POLLING_INTERVAL.as_secs() {
        if waiting.is_empty() {
            return;
        }
        pass(Duration::from_secs(1)).await;
        let now = possible_starts(sim, hosts).await;
        waiting.retain(|start| now.contains(start));
    }
    for (host, key) in waiting {
        sim.chronicle.violation(format!("host {host}: {key} could start, and doesn't"));
    }
}

/// Returns the machines with a free slot for these keys.
async fn possible_starts(sim: &Arc<Sim>, hosts: &[Arc<Host>]) -> Vec<(usize, InstanceKey)> {
    let view = sim.service().coordinators.view().await.unwrap();
    let mut starts = Vec::new();
    for host in hosts {
        let mut taken: BTreeMap<LaunchId, InstanceKey> = host.live().into_iter().collect();
        let mine = view
            .launches
            .iter()
            .filter(|launch| launch.coordinator.as_ref() == Some(&host.coordinator()));
        taken.extend(mine.map(|launch| (launch.id.clone(), launch.key.clone())));
        let mut n_taken: BTreeMap<Cap<'_>, usize> = BTreeMap::new();
        for (cap, _) in taken.values().flat_map(|key| host.limits_on(key)) {
            *n_taken.entry(cap).or_default() += 1;
        }
        let has_room = |key| {
            host.limits_on(key).all(|(cap, most)| n_taken.get(&cap).is_none_or(|n| *n < most))
        };
        let ready =
            view.startable.iter().filter(|candidate| candidate.reason == StartReason::Ready);
        let ready = ready.filter(|candidate| has_room(&candidate.key));
        let ready = ready.filter(|candidate| !taken.values().any(|key| *key == candidate.key));
        starts.extend(ready.map(|candidate| (host.name, candidate.key.clone())));
    }
    starts
}

/// Checks that nothing is left some time after everything was told to stop.
pub async fn check_rest(sim: &Arc<Sim>, hosts: &[Arc<Host>]) {
    for launch in sim.store.open_launches().await.unwrap() {
        sim.chronicle.violation(format!(
            "{} never ends: it is {}",
            launch.id,
            launch.state.as_str()
        ));
    }
    for session in sim.store.open_sessions().await.unwrap() {
        sim.chronicle.violation(format!("session {} never ends", session.id));
    }
    for notice in sim.store.open_notices().await.unwrap() {
        sim.chronicle
            .violation(format!("notice {} for {} is never settled", notice.id, notice.launch));
    }
    for host in hosts {
        for (launch, _) in host.live() {
            sim.chronicle.violation(format!("host {}: {launch} lives on", host.name));
        }
        for launch in host.unforgotten() {
            sim.chronicle.violation(format!(
                "host {}: the folder of {launch} is never forgotten",
                host.name
            ));
        }
    }
}
