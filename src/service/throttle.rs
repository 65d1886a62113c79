//! Patience with what could be guessed at: the answer to a wrong passkey or token is held back, longer with each failure for the
//! same agent id, whether there is such an agent or not, and with each failure of the same peer, whichever ids it tries.
//!
//! Only so many answers of one peer are held back at a time. A peer that goes on guessing meanwhile is told so at once, and what
//! it says of an agent that was guessed at is not looked at: otherwise it would learn from the speed of the answer what the delay
//! is to hide. Nobody else is concerned: whoever comes from elsewhere, tries for another agent, or shows a launch ticket, which
//! can't be guessed, is looked at, and who is right is never held back. So nobody can lock an agent out whose coordinator started
//! it, nor one that comes from another process or host than who guesses.
//!
//! Called by the doors, which know who is at the other end; what is guessed at is not looked at here.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::recent::Recent;
use crate::domain::LaunchId;
use crate::peer::{Peer, PeerKind};

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);
/// Enough to reach the longest delay.
const MAX_DOUBLINGS: u32 = 6;
/// Failures are forgotten when there was none for so long.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(10);
/// Of one peer at the same time: a person who mistypes needs one, a script that retries one each for a few agents.
const MAX_HELD: usize = 8;
/// More ids than this are made up, more peers an attack: the oldest is forgotten.
const MAX_KNOWN: usize = 4096;
/// What is kept of an id that is none.
const MAX_ID_LENGTH: usize = 64;

/// Whose failures count together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Guesser {
    /// Any process below the keeper of this launch.
    Launch(LaunchId),
    /// Any other process of this user: it could be another one each time.
    User(u32),
    /// A host: its address, or the half of it that its network gives it.
    Host(IpAddr),
}

impl Guesser {
    pub fn of(peer: &Peer) -> Self {
        match peer {
            Peer::Local(local) => match &local.kind {
                PeerKind::Agent { launch: Some(launch) } => Self::Launch(launch.clone()),
                PeerKind::Agent { launch: None } | PeerKind::Operator | PeerKind::Stranger => Self::User(local.uid),
            },
            Peer::Network(address) => Self::Host(match address.ip().to_canonical() {
                IpAddr::V4(ip) => ip.into(),
                IpAddr::V6(ip) => std::net::Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
            }),
        }
    }
}

/// Failures in a row, by agent id and by peer.
#[derive(Debug)]
pub struct Throttle(Mutex<State>);

#[derive(Debug)]
struct State {
    agents: Recent<String, Failures>,
    guessers: Recent<Guesser, OfGuesser>,
}

#[derive(Debug, Default)]
struct Failures {
    n_in_row: u32,
    last: Option<Instant>,
}

#[derive(Debug, Default)]
struct OfGuesser {
    failures: Failures,
    /// Until when each of its answers is held back, at most [`MAX_HELD`]. It doesn't matter whether anyone still waits for them.
    held: Vec<Instant>,
}

impl Default for Throttle {
    fn default() -> Self {
        Self(Mutex::new(State { agents: Recent::of(MAX_KNOWN), guessers: Recent::of(MAX_KNOWN) }))
    }
}

impl Throttle {
    /// Whether what `guesser` says of `agent_id` is to be looked at.
    pub fn is_heard(&self, guesser: &Guesser, agent_id: &str, now: Instant) -> bool {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_busy = state.guessers.find(guesser).is_some_and(|known| known.n_held(now) >= MAX_HELD);
        !is_busy || state.agents.find(&shortened(agent_id)).is_none_or(|known| known.is_old(now))
    }

    /// Counts a failure and says how long its answer is to be held back; `None` if too many of this peer's are already. Without
    /// an `agent_id` it was a token.
    pub fn failed(&self, guesser: &Guesser, agent_id: Option<&str>, now: Instant) -> Option<Duration> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let for_agent = agent_id.map(|id| state.agents.touch(&shortened(id)).count(now)).unwrap_or_default();
        let known = state.guessers.touch(guesser);
        let delay = known.failures.count(now).max(for_agent);
        known.held.retain(|until| *until > now);
        let is_held = known.held.len() < MAX_HELD;
        if is_held {
            known.held.push(now + delay);
        }
        is_held.then_some(delay)
    }

    /// The agent came in: its failures are forgotten. Those of the peer are not: it may have one right passkey and guess at others.
    pub fn succeeded(&self, agent_id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).agents.forget(&shortened(agent_id));
    }
}

impl Failures {
    /// One more; how long its answer is to take.
    fn count(&mut self, now: Instant) -> Duration {
        if self.is_old(now) {
            self.n_in_row = 0;
        }
        let delay = FIRST.saturating_mul(1 << self.n_in_row.min(MAX_DOUBLINGS)).min(LONGEST);
        *self = Self { n_in_row: self.n_in_row.saturating_add(1), last: Some(now) };
        delay
    }

    fn is_old(&self, now: Instant) -> bool {
        self.last.is_none_or(|last| now.saturating_duration_since(last) > FORGOTTEN_AFTER)
    }
}

impl OfGuesser {
    fn n_held(&self, now: Instant) -> usize {
        self.held.iter().filter(|until| **until > now).count()
    }
}

fn shortened(id: &str) -> String {
    id.chars().take(MAX_ID_LENGTH).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: Guesser = Guesser::User(1);
    const BOB: Guesser = Guesser::User(2);

    #[track_caller]
    fn check_delays(expected: &[u128], fail: impl FnMut() -> Option<Duration>) {
        let delays: Vec<u128> =
            std::iter::repeat_with(fail).take(expected.len()).map(|d| d.unwrap().as_millis()).collect();
        assert_eq!(delays, expected);
    }

    /// A clock, and failures that wait for their answer.
    struct Patient {
        throttle: Throttle,
        now: Instant,
    }

    impl Patient {
        fn new() -> Self {
            Self { throttle: Throttle::default(), now: Instant::now() }
        }

        fn fail(&mut self, guesser: &Guesser, agent: &str) -> Option<Duration> {
            let delay = self.throttle.failed(guesser, Some(agent), self.now);
            self.now += delay.unwrap_or_default() + Duration::from_millis(1);
            delay
        }
    }

    #[test]
    fn failures_are_answered_later_and_later_and_a_success_ends_it() {
        let mut patient = Patient::new();
        check_delays(&[50, 100, 200, 400, 800, 1600, 2000, 2000], || patient.fail(&ANN, "agt"));
        // Whoever fails for the same agent, and whomever the same one fails for.
        check_delays(&[2000], || patient.fail(&BOB, "agt"));
        check_delays(&[2000], || patient.fail(&ANN, "agt_other"));
        patient.throttle.succeeded("agt");
        check_delays(&[100, 200], || patient.fail(&BOB, "agt"));
        patient.now += FORGOTTEN_AFTER;
        check_delays(&[50], || patient.fail(&ANN, "agt"));
    }

    #[test]
    fn ids_that_vary_do_not_help() {
        let mut patient = Patient::new();
        let mut n = 0;
        check_delays(&[50, 100, 200, 400, 800, 1600, 2000, 2000], || {
            n += 1;
            patient.fail(&ANN, &format!("agt_{n}"))
        });
    }

    #[test]
    fn who_goes_on_while_its_answers_are_held_is_not_heard_and_nobody_else_minds() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for _ in 0..MAX_HELD {
            assert!(throttle.is_heard(&ANN, "agt", now));
            assert!(throttle.failed(&ANN, Some("agt"), now).is_some());
        }
        assert!(!throttle.is_heard(&ANN, "agt", now));
        assert!(throttle.is_heard(&BOB, "agt", now) && throttle.is_heard(&ANN, "agt_other", now));
        assert_eq!(throttle.failed(&ANN, Some("agt_other"), now), None, "too many are held");
        assert!(!throttle.is_heard(&ANN, "agt_other", now), "once for each agent");
        assert!(throttle.is_heard(&ANN, "agt", now + LONGEST));
    }

    #[test]
    fn made_up_ids_and_peers_do_not_fill_the_memory() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for n in 0..3 * MAX_KNOWN {
            let guesser = Guesser::User(u32::try_from(n).unwrap());
            throttle.failed(&guesser, Some(&"x".repeat(n)), now);
        }
        let state = throttle.0.lock().unwrap();
        assert!(state.agents.find(&"x".repeat(MAX_ID_LENGTH)).is_some());
        assert!(state.guessers.find(&Guesser::User(0)).is_none());
    }

    #[test]
    fn a_host_is_what_its_network_calls_one() {
        let guesser = |ip: &str| Guesser::of(&Peer::Network(format!("{ip}:1").parse().unwrap()));
        assert_eq!(guesser("[2001:db8:1:2::7]"), guesser("[2001:db8:1:2:3:4:5:6]"));
        assert_ne!(guesser("[2001:db8:1:2::7]"), guesser("[2001:db8:1:3::7]"));
        assert_eq!(guesser("[::ffff:192.0.2.1]"), guesser("192.0.2.1"));
        assert_ne!(guesser("192.0.2.2"), guesser("192.0.2.1"));
    }
}
