//! What is said in chats, as people and agents themselves know it, and what must be so of it in the store.
//!
//! A message waits until an agent that had it in its hands answers it or logs out. Until then somebody is wanted for it or
//! there, unless a person ended the chat.

mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use agent_coordinator::domain::chat::Sender;
use agent_coordinator::domain::{
    InstanceKey, Launch, LaunchId, LaunchState, Message, MessageId, SessionId, Timestamp,
};
use agent_coordinator::service::world::World as _;
use agent_coordinator::store::{LaunchFilter, MessageFilter};

use super::{CHAT_IDLE, SLACK, Sim};
use crate::questions::Questions;

/// Everything that is known of all chats.
#[derive(Default)]
pub struct Talk(Mutex<Known>);

#[derive(Default)]
struct Known {
    n_messages: u64,
    n_answers: u64,
    /// Those that were looked at.
    n_events: i64,
    /// When launches were told to go, or were gone.
    left_at: BTreeMap<LaunchId, Timestamp>,
    chats: BTreeMap<InstanceKey, Chat>,
    /// The newest message that was given to a session, whether or not the answer arrived.
    handed_out: BTreeMap<SessionId, i64>,
}

#[derive(Default)]
struct Chat {
    said: BTreeMap<MessageId, i64>,
    /// The newest message that the agent of a launch had in its hands.
    seen: BTreeMap<LaunchId, i64>,
    /// The newest one that an agent who had it began to answer, or logged out with.
    settled: i64,
    /// The newest one that an agent knows to be answered.
    acknowledged: i64,
    /// The last word of people was that it ends.
    is_ended: bool,
}

impl Talk {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap()
    }

    fn with<T>(&self, key: &InstanceKey, change: impl FnOnce(&mut Chat) -> T) -> T {
        change(self.lock().chats.entry(key.clone()).or_default())
    }

    /// An id for what a person says.
    pub fn next_message(&self) -> MessageId {
        let mut known = self.lock();
        known.n_messages += 1;
        format!("msg_{}", known.n_messages).parse().unwrap()
    }

    /// What an agent says; never the same.
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

    /// The server took it from a person.
    pub fn note_said(&self, key: &InstanceKey, message: &Message) {
        self.with(key, |chat| {
            chat.is_ended = false;
            chat.said.insert(message.id.clone(), message.seq);
        });
    }

    pub fn handed_out(&self, session: &SessionId) -> i64 {
        self.lock().handed_out.get(session).copied().unwrap_or(0)
    }

    /// The server gave these to a session; gives the number of the newest.
    pub fn note_handed_out(&self, session: &SessionId, messages: &[Message]) -> i64 {
        let newest = newest(messages);
        let mut known = self.lock();
        let known = known.handed_out.entry(session.clone()).or_default();
        *known = newest.max(*known);
        newest
    }

    /// They arrived.
    pub fn note_seen(&self, key: &InstanceKey, launch: &LaunchId, messages: &[Message]) {
        self.with(key, |chat| {
            let seen = chat.seen.entry(launch.clone()).or_default();
            *seen = newest(messages).max(*seen);
        });
    }

    /// An agent answers what it has, or is about to go with it; gives the number of the newest.
    pub fn settle(&self, key: &InstanceKey, launch: &LaunchId) -> i64 {
        self.with(key, |chat| {
            let seen = chat.seen.get(launch).copied().unwrap_or(0);
            chat.settled = chat.settled.max(seen);
            seen
        })
    }

    /// The server took its answer to all up to this one.
    pub fn note_acknowledged(&self, key: &InstanceKey, up_to: i64) {
        self.with(key, |chat| chat.acknowledged = chat.acknowledged.max(up_to));
    }
}

fn newest(messages: &[Message]) -> i64 {
    messages.iter().map(|message| message.seq).max().unwrap_or(0)
}

/// Nothing that was said is lost, and nobody is kept for a chat in which nothing is.
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
                // What a person is told of a message that is new is not yet its number.
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
        // By a clock that was set nobody knows what was said before what.
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

/// Nobody is sent away for a silence that has not lasted.
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
        if event.at + SLACK < last_word(&messages, &launch) + CHAT_IDLE {
            sim.chronicle
                .violation(format!("{} was ended by a silence that had not lasted", launch.id));
        }
    }
}

/// When something was said in the chat of somebody who came in.
fn last_word(messages: &[Message], launch: &Launch) -> Timestamp {
    let said_at = messages.iter().filter(|row| row.is_visible).map(|row| row.created_at).max();
    launch.authenticated_at.max(said_at).expect("who came in has authenticated")
}

/// When the last agent of a chat went or was told to, if people ended it: also with the work of a pair that they take it from. What
/// is said later asks for another one itself.
async fn over_at(sim: &Arc<Sim>, key: &InstanceKey) -> Option<Timestamp> {
    let InstanceKey { agent, project, purpose } = key.clone();
    let (agent, project, purpose) = (Some(agent), Some(project), Some(purpose));
    let filter = LaunchFilter { agent, project, purpose, only_ended: false, after: None, limit: 1 };
    let last = sim.store.launches(&filter).await.unwrap().into_iter().next()?;
    sim.talk.lock().left_at.get(&last.id).copied().filter(|_| last.is_chat_over)
}
