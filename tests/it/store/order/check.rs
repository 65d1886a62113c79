//! Checks that the log of events is an order that explains all answers.
//!
//! The log is replayed on a model. Each answer states facts. A fact must hold after some event of
//! the window of its call:
//!
//! ```text
//!   events of calls that were       │ window: the call's own events, and those of  │ events of calls that
//!   answered before it began        │ calls that went on at the same time          │ began after its answer
//! ```
//!
//! An event of a call that comes before an event of a call that was answered earlier is wrong by
//! itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use domain::event::Event;
use domain::start_history::StartReason;
use domain::{InstanceKey, LaunchId, MessageId, Purpose};

/// One call of a use case, with its answer.
#[derive(Debug)]
pub struct Call {
    pub name: &'static str,
    /// The time just before the call.
    pub began: i64,
    /// The time just after its answer.
    pub answered: i64,
    /// The times that the call took from the clock. Its events have one of them.
    pub ticks: Vec<i64>,
    pub facts: Vec<Fact>,
}

/// A fact that an answer states.
#[derive(Debug)]
pub enum Fact {
    Phase(InstanceKey, LaunchId, Phase),
    /// The launch is on its way out, or has ended.
    Leaves(InstanceKey, LaunchId),
    Ended(InstanceKey, LaunchId),
    MayNotStart(InstanceKey, StartReason),
    Paused(bool),
    Held(InstanceKey, bool),
    Assigned(InstanceKey, bool),
    /// These are all open launches, or all of one key.
    Open(Option<InstanceKey>, BTreeSet<LaunchId>),
    /// These launches are on their way out, or have ended.
    AllLeave(BTreeSet<LaunchId>),
    /// This is the newest message of the chat.
    Newest(InstanceKey, MessageId),
    /// No agent is wanted for the chat, and none is in it that may stay.
    Over(InstanceKey),
    Chat {
        key: InstanceKey,
        is_wanted: bool,
        open: Option<(LaunchId, Phase)>,
    },
}

/// The part of the life of an open launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Starting,
    Running,
    Leaving,
}

#[derive(Debug, Clone)]
struct Open {
    launch: LaunchId,
    phase: Phase,
    /// People have ended its chat.
    is_chat_over: bool,
}

/// The state that the events tell, for keys of one purpose.
#[derive(Debug, Clone)]
pub struct Model {
    purpose: Purpose,
    is_paused: bool,
    assigned: BTreeSet<InstanceKey>,
    held: BTreeSet<InstanceKey>,
    open: BTreeMap<InstanceKey, Open>,
    wanted: BTreeSet<InstanceKey>,
    /// The newest message of each chat. No agent answers, so that all messages stay unread.
    newest: BTreeMap<InstanceKey, String>,
}

impl Model {
    pub fn new(purpose: Purpose) -> Self {
        Self {
            purpose,
            is_paused: false,
            assigned: BTreeSet::new(),
            held: BTreeSet::new(),
            open: BTreeMap::new(),
            wanted: BTreeSet::new(),
            newest: BTreeMap::new(),
        }
    }

    /// Returns the reason that keeps a key from starting, in the order of the rules.
    fn reason(&self, key: &InstanceKey) -> StartReason {
        let has_work = self.purpose == Purpose::Task || self.wanted.contains(key);
        match self.open.get(key).map(|open| open.phase) {
            _ if !self.assigned.contains(key) => StartReason::NotAssigned,
            Some(Phase::Starting) => StartReason::Starting,
            Some(Phase::Running) => StartReason::Running,
            Some(Phase::Leaving) => StartReason::Stopping,
            None if !has_work => StartReason::NoWork,
            None if self.held.contains(key) => StartReason::Held,
            None if self.is_paused => StartReason::Paused,
            None => StartReason::Ready,
        }
    }

    /// Returns the phase of a launch; `None` if it is not open.
    fn phase(&self, key: &InstanceKey, launch: &LaunchId) -> Option<Phase> {
        self.open.get(key).filter(|open| open.launch == *launch).map(|open| open.phase)
    }

    fn listens(&self, key: &InstanceKey) -> bool {
        self.open.get(key).is_some_and(|open| open.phase == Phase::Running)
    }

    /// Applies an event.
    ///
    /// # Errors
    /// The event cannot happen in this state.
    fn apply(&mut self, event: &Event) -> Result<(), String> {
        let key = event.agent.clone().zip(event.project.clone());
        let key = key.map(|(agent, project)| InstanceKey::new(agent, project, self.purpose));
        let is_possible = match (event.kind.as_str(), key, &event.launch) {
            ("person.pause" | "person.stop", None, _) => {
                !std::mem::replace(&mut self.is_paused, true)
            }
            ("person.resume", None, _) => std::mem::replace(&mut self.is_paused, false),
            ("person.stop", Some(key), _) => self.held.insert(key),
            ("person.resume", Some(key), _) => {
                self.held.remove(&key);
                true
            }
            ("assignment.added", Some(key), _) => {
                self.assigned.insert(key);
                true
            }
            ("assignment.removed", Some(key), _) => {
                self.assigned.remove(&key);
                true
            }
            ("launch.starting", Some(key), Some(launch)) => {
                let reason = self.reason(&key);
                if reason != StartReason::Ready {
                    return Err(format!("{launch} of {key} starts although the key is {reason}"));
                }
                let (launch, phase) = (launch.clone(), Phase::Starting);
                self.open.insert(key, Open { launch, phase, is_chat_over: false });
                true
            }
            ("launch.running", Some(key), Some(launch)) => {
                self.wanted.remove(&key);
                self.advance(&key, launch, Phase::Running, event)
            }
            ("launch.stopping", Some(key), Some(launch)) => {
                self.advance(&key, launch, Phase::Leaving, event)
            }
            ("launch.ended", Some(key), Some(launch)) => {
                let open = self.open.remove(&key).filter(|open| open.launch == *launch);
                if open.as_ref().is_some_and(|open| !open.is_chat_over)
                    && self.newest.contains_key(&key)
                {
                    self.wanted.insert(key);
                }
                open.is_some()
            }
            ("chat.message", Some(key), _) => {
                if !self.listens(&key) {
                    self.wanted.insert(key.clone());
                }
                self.newest.insert(key, event.detail.clone().unwrap_or_default());
                true
            }
            ("chat.ended", Some(key), _) => self.wanted.remove(&key),
            _ => true,
        };
        if is_possible { Ok(()) } else { Err("this cannot happen then".to_owned()) }
    }

    /// Moves an open launch to a later phase, and returns whether that is possible.
    fn advance(&mut self, key: &InstanceKey, launch: &LaunchId, to: Phase, event: &Event) -> bool {
        let open = self.open.get_mut(key).filter(|open| open.launch == *launch);
        let Some(open) = open.filter(|open| open.phase != Phase::Leaving) else {
            return false;
        };
        open.phase = to;
        open.is_chat_over |= event.detail.as_deref() == Some("chat_ended");
        true
    }

    fn confirms(&self, fact: &Fact) -> bool {
        match fact {
            Fact::Phase(key, launch, phase) => self.phase(key, launch) == Some(*phase),
            Fact::Leaves(key, launch) => {
                matches!(self.phase(key, launch), Some(Phase::Leaving) | None)
            }
            Fact::Ended(key, launch) => self.phase(key, launch).is_none(),
            Fact::MayNotStart(key, reason) => self.reason(key) == *reason,
            Fact::Paused(is_paused) => self.is_paused == *is_paused,
            Fact::Held(key, is_held) => self.held.contains(key) == *is_held,
            Fact::Assigned(key, is_assigned) => self.assigned.contains(key) == *is_assigned,
            Fact::Open(of, launches) => {
                let open =
                    self.open.iter().filter(|(key, _)| of.as_ref().is_none_or(|of| of == *key));
                let (mut n_open, mut all_named) = (0, true);
                for (_, open) in open {
                    n_open += 1;
                    all_named &= launches.contains(&open.launch);
                }
                all_named && n_open == launches.len()
            }
            Fact::AllLeave(launches) => {
                let mut open = self.open.values().filter(|open| launches.contains(&open.launch));
                open.all(|open| open.phase == Phase::Leaving)
            }
            Fact::Newest(key, id) => {
                self.newest.get(key).is_some_and(|newest| newest == id.as_str())
            }
            Fact::Over(key) => {
                let open = self.open.get(key);
                !self.wanted.contains(key) && open.is_none_or(|open| open.is_chat_over)
            }
            Fact::Chat { key, is_wanted, open } => {
                let found = self.open.get(key);
                self.wanted.contains(key) == *is_wanted
                    && found.map(|found| (&found.launch, found.phase))
                        == open.as_ref().map(|(launch, phase)| (launch, *phase))
            }
        }
    }
}

/// The name of a call that has several transactions: it holds starts, lists the open launches, and
/// stops each of them.
pub const STOP: &str = "stop";

/// The numbers of events of a call.
#[derive(Debug, Clone, Copy)]
struct Span {
    first: i64,
    last: i64,
    /// The first event of its first transaction, if that has one.
    decision: Option<i64>,
}

/// A fact with the numbers of the events after one of which it must hold.
struct Expected<'c> {
    call: &'c Call,
    fact: &'c Fact,
    from: i64,
    to: i64,
}

/// Replays the log from its beginning. Events up to the number `prepared` are of no call. Returns
/// the broken rules.
pub fn violations(model: Model, log: &[Event], prepared: i64, calls: &[Call]) -> Vec<String> {
    let mut broken = Vec::new();
    let spans = spans(log, prepared, calls, &mut broken);
    let windows = windows(calls, &spans, prepared);
    let mut expected = Vec::new();
    for ((call, span), &(after, before)) in calls.iter().zip(&spans).zip(&windows) {
        if let Some(Span { first, .. }) = *span
            && first <= after
        {
            broken.push(format!("{call} has the event {first}, but {after} was answered before"));
        }
        let from = span.and_then(|span| span.decision).unwrap_or(after);
        let of_call = call.facts.iter().map(|fact| Expected { call, fact, from, to: before - 1 });
        expected.extend(of_call);
    }
    expected.sort_by_key(|expected| expected.from);
    replay(model, log, expected, &mut broken);
    broken
}

/// Returns the events of each call.
fn spans(
    log: &[Event],
    prepared: i64,
    calls: &[Call],
    broken: &mut Vec<String>,
) -> Vec<Option<Span>> {
    let mut by_tick = HashMap::new();
    for (n, call) in calls.iter().enumerate() {
        by_tick.extend(call.ticks.iter().map(|tick| (*tick, n)));
    }
    let mut spans: Vec<Option<Span>> = vec![None; calls.len()];
    for event in log.iter().filter(|event| event.seq > prepared) {
        match by_tick.get(&event.at.as_millis()) {
            Some(&n) => {
                let is_later_step = calls[n].name == STOP && event.kind.starts_with("launch.");
                let decision = (!is_later_step).then_some(event.seq);
                let span = spans[n].get_or_insert(Span { first: event.seq, last: 0, decision });
                span.last = event.seq;
            }
            None => broken.push(format!("{} is of no call that was answered", Shown(event))),
        }
    }
    spans
}

/// Returns for each call the number of the last event that was answered before it began, and that
/// of the first event of a call that began after its answer.
fn windows(calls: &[Call], spans: &[Option<Span>], prepared: i64) -> Vec<(i64, i64)> {
    let mut answers: Vec<(i64, i64)> = Vec::new();
    let mut beginnings: Vec<(i64, i64)> = Vec::new();
    for (call, span) in calls.iter().zip(spans) {
        let Some(Span { first, last, .. }) = *span else { continue };
        answers.push((call.answered, last));
        beginnings.push((call.began, first));
    }
    answers.sort_unstable();
    beginnings.sort_unstable();
    let mut newest = prepared;
    for (_, last) in &mut answers {
        newest = newest.max(*last);
        *last = newest;
    }
    let mut oldest = i64::MAX;
    for (_, first) in beginnings.iter_mut().rev() {
        oldest = oldest.min(*first);
        *first = oldest;
    }
    let window = |call: &Call| {
        let n_before = answers.partition_point(|(answered, _)| *answered < call.began);
        let after = n_before.checked_sub(1).map_or(prepared, |n| answers[n].1);
        let n_begun = beginnings.partition_point(|(began, _)| *began <= call.answered);
        (after, beginnings.get(n_begun).map_or(i64::MAX, |(_, first)| *first))
    };
    calls.iter().map(window).collect()
}

/// Applies all events, and looks for the facts after each of them. `expected` is in the order of
/// the beginnings.
fn replay(mut model: Model, log: &[Event], expected: Vec<Expected<'_>>, broken: &mut Vec<String>) {
    let mut coming = expected.into_iter().peekable();
    let mut open: Vec<Expected<'_>> = Vec::new();
    for event in log {
        open.retain(|expected| {
            let is_late = expected.to < event.seq;
            if is_late {
                broken.push(expected.to_string());
            }
            !is_late
        });
        if let Err(error) = model.apply(event) {
            broken.push(format!("{}: {error}", Shown(event)));
        }
        while let Some(next) = coming.next_if(|next| next.from <= event.seq) {
            open.push(next);
        }
        open.retain(|expected| !model.confirms(expected.fact));
    }
    broken.extend(open.iter().map(ToString::to_string));
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (from {} to {})", self.name, self.began, self.answered)
    }
}

impl fmt::Display for Expected<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, fact, from, to } = self;
        write!(f, "{call} says {fact:?}, which holds after no event from {from} to {to}")
    }
}

struct Shown<'e>(&'e Event);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Event { seq, at, kind, .. } = self.0;
        write!(f, "event {seq} ({kind} of {})", at.as_millis())
    }
}
