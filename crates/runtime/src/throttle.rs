//! Limits on guesses at passkeys, tokens and links. The answer to a wrong secret is held back. The
//! delay grows with each failure for the same agent id, whether such an agent exists or not. It
//! also grows with each failure of the same peer, whichever ids it tries.
//!
//! A check needs a free waiting slot of its peer. If answers that are held back use all slots, the
//! attempt is refused and the secret is not checked. Otherwise the speed of the answer would reveal
//! what the delay hides. A right secret frees its slot at once. A wrong secret keeps the slot until
//! its delay is over. An attempt waits for checks that go on, because a thousand agents may show
//! their tokens at once after a restart. All hosts together have a limited number of slots, too.
//!
//! Some attempts need no slot, so that guesses over the network lock no other client out:
//!
//! - launch tickets, which cannot be guessed
//! - operators on the Unix socket, who have all rights anyway
//! - tokens, cookies, links and sessions that this server has just issued, or that were right when
//!   they were last shown
//!
//! Agents on the Unix socket have slots of their own for each launch. Therefore, an agent that guesses at
//! the passkeys of others locks out only itself.
//!
//! The listeners call this module; they know who is at the other end. It never sees the secrets
//! themselves.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::lru::Lru;
use crate::peer::{Peer, PeerKind};
use domain::LaunchId;
use domain::secret::TokenHash;
use machine::locks::lock;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);
/// The number of failures that reaches the longest delay.
const MAX_DOUBLINGS: u32 = 6;
/// The time without a failure after which failures are forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(10);
/// The slots of one peer. A person who mistypes needs one slot; a script that retries needs one for
/// each of a few agents.
const MAX_SLOTS: usize = 8;
/// The slots of all hosts together. Each answer that is held back keeps a connection of the
/// listener.
const MAX_SLOTS_OF_HOSTS: usize = 64;
/// The number of known ids and peers. More ids than this are invented, and more peers are an
/// attack. The oldest one is forgotten.
const MAX_KNOWN: usize = 4096;
/// The number of remembered secrets: more sessions, tokens and logins than one server has in use.
const MAX_REMEMBERED: usize = 8192;
/// The number of characters that are kept of an id that is not valid.
const MAX_ID_LENGTH: usize = 64;

/// The peer whose failures count together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Guesser {
    /// Any process below the shim of this launch.
    Launch(LaunchId),
    /// Any other process of this user, because each attempt could come from another process.
    User(u32),
    /// A host, by its IPv4 address or the network half of its IPv6 address.
    Host(IpAddr),
}

impl Guesser {
    pub fn of(peer: &Peer) -> Self {
        match peer {
            Peer::Local(local) => match &local.kind {
                PeerKind::Agent { launch: Some(launch) } => Self::Launch(launch.clone()),
                PeerKind::Agent { launch: None }
                | PeerKind::Operator
                | PeerKind::Unauthenticated => Self::User(local.uid),
            },
            Peer::Network(address) => Self::Host(match address.ip().to_canonical() {
                // One process can use any address of 127.0.0.0/8.
                ip if ip.is_loopback() => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V4(ip) => ip.into(),
                IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
            }),
        }
    }

    const fn is_host(&self) -> bool {
        matches!(self, Self::Host(_))
    }
}

/// Says if an attempt needs a free slot before its secret is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotRule {
    Needed,
    Exempt,
}

impl SlotRule {
    /// Returns the rule for the attempts of this peer.
    pub fn of(peer: &Peer) -> Self {
        match peer.kind() {
            Some(PeerKind::Operator) => Self::Exempt,
            Some(PeerKind::Agent { .. } | PeerKind::Unauthenticated) | None => Self::Needed,
        }
    }
}

/// Failures in a row by agent id and by peer, the slots in use, and secrets that were right.
#[derive(Debug)]
pub struct Throttle {
    state: Mutex<State>,
    /// Wakes attempts that wait for a check to end.
    check_ended: Notify,
}

#[derive(Debug)]
struct State {
    agents: Lru<String, Failures>,
    guessers: Lru<Guesser, OfGuesser>,
    of_hosts: Slots,
    right: Lru<TokenHash, ()>,
}

#[derive(Debug, Default)]
struct Failures {
    n_in_row: u32,
    last: Option<Instant>,
}

#[derive(Debug, Default)]
struct OfGuesser {
    failures: Failures,
    slots: Slots,
}

/// The slots of one peer.
#[derive(Debug, Default)]
struct Slots {
    /// The number of attempts whose secret is being checked.
    n_checks: usize,
    /// The times when the answers that are held back may go. A slot stays in use even if the client
    /// does not wait for its answer.
    held: Vec<Instant>,
}

/// The result of an attempt to take a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SlotAnswer {
    Yes,
    /// The caller must wait until a check ends.
    CheckGoesOn,
    AllHeld,
}

/// A secret that is being checked. Dropping it frees its slot.
#[derive(Debug)]
pub struct Attempt {
    throttle: Arc<Throttle>,
    guesser: Guesser,
    /// `None` for a passkey, because a caller may try the same passkey for another agent.
    secret: Option<TokenHash>,
    is_remembered: bool,
    has_slot: bool,
}

impl Default for Throttle {
    fn default() -> Self {
        let state = State {
            agents: Lru::of(MAX_KNOWN),
            guessers: Lru::of(MAX_KNOWN),
            of_hosts: Slots::default(),
            right: Lru::of(MAX_REMEMBERED),
        };
        Self { state: Mutex::new(state), check_ended: Notify::new() }
    }
}

impl Throttle {
    /// Admits the check of a passkey; `None` if it must be refused unchecked, because no slot is
    /// free. Cancel-safe.
    pub async fn try_passkey(
        self: &Arc<Self>,
        guesser: Guesser,
        slot_rule: SlotRule,
        now: Instant,
    ) -> Option<Attempt> {
        self.admit(guesser, None, slot_rule, now).await
    }

    /// Admits the check of a token, cookie or link like [`Self::try_passkey`]. A secret that is
    /// remembered as right needs no slot.
    pub async fn try_token(
        self: &Arc<Self>,
        guesser: Guesser,
        token: TokenHash,
        slot_rule: SlotRule,
        now: Instant,
    ) -> Option<Attempt> {
        self.admit(guesser, Some(token), slot_rule, now).await
    }

    /// Remembers a token, cookie or link as right until it turns out to be wrong, or too many newer
    /// ones are remembered. An agent may be silent for hours.
    pub fn remember(&self, token: &TokenHash) {
        self.lock().right.touch(token);
    }

    async fn admit(
        self: &Arc<Self>,
        guesser: Guesser,
        secret: Option<TokenHash>,
        slot_rule: SlotRule,
        now: Instant,
    ) -> Option<Attempt> {
        let is_remembered =
            secret.as_ref().is_some_and(|token| self.lock().right.find(token).is_some());
        let has_slot = slot_rule == SlotRule::Needed && !is_remembered;
        if has_slot && !self.wait_for_slot(&guesser, now).await {
            return None;
        }
        Some(Attempt { throttle: Arc::clone(self), guesser, secret, is_remembered, has_slot })
    }

    /// Takes a slot, after a wait for a check to end if necessary. Returns `false` if answers that
    /// are held back use all slots.
    async fn wait_for_slot(&self, guesser: &Guesser, now: Instant) -> bool {
        loop {
            let check_ended = self.check_ended.notified();
            let taken = self.lock().take_slot(guesser, now);
            match taken {
                SlotAnswer::Yes => return true,
                SlotAnswer::CheckGoesOn => check_ended.await,
                SlotAnswer::AllHeld => return false,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    fn take_slot(&mut self, guesser: &Guesser, now: Instant) -> SlotAnswer {
        let of_guesser = self.guessers.find(guesser).map(|known| (&known.slots, MAX_SLOTS));
        let of_hosts = guesser.is_host().then_some((&self.of_hosts, MAX_SLOTS_OF_HOSTS));
        let taken = of_guesser
            .into_iter()
            .chain(of_hosts)
            .map(|(slots, most)| slots.can_be_taken(most, now))
            .max();
        let taken = taken.unwrap_or(SlotAnswer::Yes);
        if taken == SlotAnswer::Yes {
            self.each_slots(guesser, |slots| slots.n_checks += 1);
        }
        taken
    }

    fn each_slots(&mut self, guesser: &Guesser, change: impl Fn(&mut Slots)) {
        change(&mut self.guessers.touch(guesser).slots);
        if guesser.is_host() {
            change(&mut self.of_hosts);
        }
    }
}

impl Attempt {
    /// Returns whether the secret was right when it was last shown, for any purpose.
    pub const fn is_remembered(&self) -> bool {
        self.is_remembered
    }

    /// Notes that the secret was right. The failures for `agent_id` are forgotten. The failures of
    /// the peer are not: it may have one right passkey and guess at others.
    pub fn succeeded(self, agent_id: Option<&str>) {
        let mut state = self.throttle.lock();
        if let Some(id) = agent_id {
            state.agents.forget(&shortened(id));
        }
        if let Some(secret) = &self.secret {
            state.right.touch(secret);
        }
    }

    /// Counts a failure, because the secret was wrong. Returns the delay of its answer; `None` if
    /// no slot is free for that.
    pub fn failed(mut self, agent_id: Option<&str>, now: Instant) -> Option<Duration> {
        let mut state = self.throttle.lock();
        if let Some(secret) = &self.secret {
            state.right.forget(secret);
        }
        let for_agent =
            agent_id.map(|id| state.agents.touch(&shortened(id)).count(now)).unwrap_or_default();
        let delay = state.guessers.touch(&self.guesser).failures.count(now).max(for_agent);
        let has_slot = self.has_slot || state.take_slot(&self.guesser, now) == SlotAnswer::Yes;
        if has_slot {
            state.each_slots(&self.guesser, |slots| slots.hold_until(now, now + delay));
        }
        drop(state);
        self.has_slot = false;
        self.throttle.check_ended.notify_waiters();
        has_slot.then_some(delay)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.has_slot {
            let free = |slots: &mut Slots| slots.n_checks = slots.n_checks.saturating_sub(1);
            self.throttle.lock().each_slots(&self.guesser, free);
            self.throttle.check_ended.notify_waiters();
        }
    }
}

impl Slots {
    fn can_be_taken(&self, most: usize, now: Instant) -> SlotAnswer {
        let n_held = self.held.iter().filter(|until| **until > now).count();
        if n_held >= most {
            SlotAnswer::AllHeld
        } else if n_held + self.n_checks >= most {
            SlotAnswer::CheckGoesOn
        } else {
            SlotAnswer::Yes
        }
    }

    /// Ends the check. Its slot stays in use until `until`.
    fn hold_until(&mut self, now: Instant, until: Instant) {
        self.n_checks = self.n_checks.saturating_sub(1);
        self.held.retain(|until| *until > now);
        self.held.push(until);
    }
}

impl Failures {
    /// Counts one more failure, and returns the delay of its answer.
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

fn shortened(id: &str) -> String {
    id.chars().take(MAX_ID_LENGTH).collect()
}

#[cfg(test)]
mod tests;
