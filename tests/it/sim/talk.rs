//! The messages of chats as people and agents know them, and the checks against the store.
//!
//! A message waits until an agent that got it answers it or logs out. Until then an agent is wanted
//! for it or runs, unless a person ended the chat.

mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use domain::chat::Sender;
use domain::{
    InstanceKey, Launch, LaunchId, LaunchState, Message, MessageId, SessionId, Timestamp,
};
use service::world::World as _;
use store::{LaunchFilter, MessageFilter};

use super::{CHAT_IDLE, CHAT_REST, SLACK, Sim};
use crate::questions::Questions;

/// The knowledge of all chats.
#[derive(Default)]
pub struct Talk(Mutex<Known>);

#[derive(Default)]
struct Known {
    n_messages: u64,
    n_answers: u64,
    /// The number of events that were looked at.
    n_events: i64,
    /// The times when launches were told to end, or ended.
    left_at: BTreeMap<LaunchId, Timestamp>,
    chats: BTreeMap<InstanceKey, Chat>,
    /// The newest message that was given to a session, even if the answer did not arrive.
    handed_out: BTreeMap<SessionId, i64>,
}

#[derive(Default)]
struct Chat {
    said: BTreeMap<MessageId, i64>,
    /// The newest message that the agent of a launch received.
    seen: BTreeMap<LaunchId, i64>,
    /// The newest message that an agent received and began to answer, or left with unasked.
    settled: i64,
    /// The newest message that an agent knows to be answered.
    acknowledged: i64,
    /// True if people ended it last.
    is_ended: bool,
}

impl Talk {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap()
    }

    fn with<T>(&self, key: &InstanceKey, change: impl FnOnce(&mut Chat) -> T) -> T {
        change(self.lock().chats.entry(key.clone()).or_default())
    }

    /// Returns an id for the message of a person.
    pub fn next_message(&self) -> MessageId {
        let mut known = self.lock();
        known.n_messages += 1;
        format!("msg_{}", known.n_messages).parse().unwrap()
    }

    /// Returns the text of an agent's answer, which is always a different one.
    pub fn next_answer(&self, launch: &LaunchId) -> String {
        let mut known = self.lock();
        known.n_answers += 1;
        format!("answer {} of {launch}", known.n_answers)
    }

    pub fn note_opened(&self, key: &InstanceKey) {
        self.with(key, |chat| chat.is_ended = false);
    }

    pub fn note_ended(&self, key: &InstanceKey) {
        self.with(key, |chat| chat.is_ended = true);
    }

    /// Notes that the server accepted it from a person.
    pub fn note_said(&self, key: &InstanceKey, message: &Message) {
        self.with(key, |chat| {
            chat.is_ended = false;
            chat.said.insert(message.id.clone(), message.seq);
        });
    }

    pub fn handed_out(&self, session: &SessionId) -> i64 {
        self.lock().handed_out.get(session).copied().unwrap_or(0)
    }

    /// Notes that the server gave these to a session. Returns the number of the newest.
    pub fn note_handed_out(&self, session: &SessionId, messages: &[Message]) -> i64 {
        let newest = newest(messages);
        let mut known = self.lock();
        let known = known.handed_out.entry(session.clone()).or_default();
        *known = newest.max(*known);
        newest
    }

    /// Notes that they arrived.
    pub fn note_seen(&self, key: &InstanceKey, launch: &LaunchId, messages: &[Message]) {
        self.with(key, |chat| {
            let seen = chat.seen.entry(launch.clone()).or_default();
            *seen = newest(messages).max(*seen);
        });
    }

    /// Notes that an agent answers the messages that it has, or leaves with them unasked. Returns
    /// the number of the newest.
    pub fn settle(&self, key: &InstanceKey, launch: &LaunchId) -> i64 {
        self.with(key, |chat| {
            let seen = chat.seen.get(launch).copied().unwrap_or(0);
            chat.settled = chat.settled.max(seen);
            seen
        })
    }

    /// Notes that the server accepted its answer to all messages up to this one.
    pub fn note_acknowledged(&self, key: &InstanceKey, up_to: i64) {
        self.with(key, |chat| chat.acknowledged = chat.acknowledged.max(up_to));
    }
}

fn newest(messages: &[Message]) -> i64 {
    messages.iter().map(|message| message.seq).max().unwrap_or(0)
}

/// Checks that no message is lost, and that no agent is kept for a chat without one.
pub async fn look(sim: &Arc<Sim>) {
    look_at_ends(sim).await;
    let keys: Vec<InstanceKey> = sim.talk.lock().chats.keys().cloned().collect();
    for key in keys {
        look_at_chat(sim, &key).await;
    }
}

async fn messages_of(sim: &Arc<Sim>, key: &InstanceKey) -> Vec<Message> {
    let all = MessageFilter::oldest(key.agent.clone(), key.project.clone(), usize::MAX);
    sim.store.messages(&all).await.unwrap()
}

async fn look_at_chat(sim: &Arc<Sim>, key: &InstanceKey) {
    let messages = messages_of(sim, key).await;
    let facts = sim.store.pair_facts(key).await.unwrap();
    let (record, read_up_to) = (&facts.record, facts.record.read_up_to);
    let over_at = over_at(sim, key).await;
    let has_jumped = sim.world.has_jumped();
    let mut broken = Vec::new();
    sim.talk.with(key, |chat| {
        for (id, seq) in &mut chat.said {
            let found: Vec<i64> =
                messages.iter().filter(|row| row.id == *id).map(|row| row.seq).collect();
            match found[..] {
                // The answer to a person does not contain the number of a new message yet.
                [found] if *seq == 0 || *seq == found => *seq = found,
                _ => broken.push(format!("{id} was said once and is there as {found:?}")),
            }
        }
        if read_up_to > chat.settled {
            broken.push(format!(
                "message {read_up_to} counts as read, and agents have only settled {}",
                chat.settled
            ));
        }
        if read_up_to < chat.acknowledged {
            broken.push(format!(
                "message {} was answered, and {read_up_to} is the last one read",
                chat.acknowledged
            ));
        }
        let unread =
            messages.iter().filter(|row| row.seq > read_up_to && chat.said.contains_key(&row.id));
        // After the clock was set, the order of the messages is not known by their times.
        let mut unread =
            unread.filter(|row| !has_jumped && over_at.is_none_or(|at| row.created_at > at));
        let is_waited_for = record.wanted_since.is_some() || facts.open.is_some();
        if let Some(unread) = unread.next_back().filter(|_| !is_waited_for && !chat.is_ended) {
            broken.push(format!("message {} is unread, and nobody comes for it", unread.seq));
        }
        if chat.is_ended && record.wanted_since.is_some() {
            broken.push("a person ended it, and somebody is wanted".to_owned());
        }
    });
    let mut answers = BTreeSet::new();
    for answer in messages.iter().filter(|row| row.sender == Sender::Agent && !has_jumped) {
        if !answers.insert(&answer.content) {
            broken.push(format!("`{}` is there twice", answer.content));
        }
    }
    if let Some(open) = &facts.open
        && matches!(open.state, LaunchState::Running { .. })
        && !has_jumped
        && sim.health.is_settled()
    {
        let launch = sim.store.launch(&open.id).await.unwrap().expect("it is open");
        if last_word(&messages, &launch) + CHAT_IDLE + SLACK < sim.world.now() {
            broken.push(format!("{} goes on, and nobody says anything", open.id));
        }
    }
    for what in broken {
        sim.chronicle.violation(format!("chat of {key}: {what}"));
    }
}

/// Checks that no agent is ended for a silence that was too short.
async fn look_at_ends(sim: &Arc<Sim>) {
    let seen = sim.talk.lock().n_events;
    for event in sim.store.events(seen, usize::MAX).await.unwrap() {
        sim.talk.lock().n_events = event.seq;
        let is_end = matches!(event.kind.as_str(), "launch.stopping" | "launch.ended");
        let Some(launch) = event.launch.filter(|_| is_end) else {
            continue;
        };
        sim.talk.lock().left_at.entry(launch.clone()).or_insert(event.at);
        if event.detail.as_deref() != Some("chat_idle") || sim.world.has_jumped() {
            continue;
        }
        let launch = sim.store.launch(&launch).await.unwrap().expect("it was there lately");
        let mut messages = messages_of(sim, &launch.key).await;
        messages.retain(|row| row.created_at < event.at);
        // A chat that leaves no message unanswered may give its slot away.
        let is_unanswered = messages.last().is_some_and(|row| row.sender == Sender::User);
        let silence = if is_unanswered { CHAT_IDLE } else { CHAT_IDLE.min(CHAT_REST) };
        if event.at + SLACK < last_word(&messages, &launch) + silence {
            sim.chronicle
                .violation(format!("{} was ended by a silence that had not lasted", launch.id));
        }
    }
}

/// Returns the time of the last message in the chat of an authenticated agent.
fn last_word(messages: &[Message], launch: &Launch) -> Timestamp {
    let said_at = messages.iter().filter(|row| row.is_visible).map(|row| row.created_at).max();
    launch.authenticated_at.max(said_at).expect("who came in has authenticated")
}

/// Returns the time when the last agent of a chat ended or was told to end, if people ended the
/// chat. They may do so with the work of the pair, too. Later messages ask for another agent
/// themselves.
async fn over_at(sim: &Arc<Sim>, key: &InstanceKey) -> Option<Timestamp> {
    let InstanceKey { agent, project, purpose } = key.clone();
    let (agent, project, purpose) = (Some(agent), Some(project), Some(purpose));
    let filter = LaunchFilter { agent, project, purpose, limit: 1, ..LaunchFilter::default() };
    let last = sim.store.launches(&filter).await.unwrap().into_iter().next()?;
    sim.talk.lock().left_at.get(&last.id).copied().filter(|_| last.is_chat_over)
}
