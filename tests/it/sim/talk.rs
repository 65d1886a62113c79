//! What is said in chats, as people and agents themselves know it, and what must be so of it in the store.
//!
//! A message waits until an agent that had it in its hands answers it or logs out. Until then somebody is wanted for it or
//! there, unless a person ended the chat.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use agent_coordinator::domain::chat::Sender;
use agent_coordinator::domain::{
    InstanceKey, LaunchId, LaunchState, Message, MessageId, Purpose, Secret, SessionId, StopReason,
};
use agent_coordinator::service::world::World as _;
use agent_coordinator::store::{ChatEnd, LaunchFilter, MessageFilter, Store as _};

use super::script::Fleet;
use super::world::Telling;
use super::{CHAT_IDLE, CLEANUP_INTERVAL, Sim, people};

/// Everything that is known of all chats.
#[derive(Default)]
pub struct Talk(Mutex<Known>);

#[derive(Default)]
struct Known {
    n_messages: u64,
    n_answers: u64,
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

    pub fn is_opened(&self, key: &InstanceKey) {
        self.with(key, |chat| chat.is_ended = false);
    }

    pub fn is_ended(&self, key: &InstanceKey) {
        self.with(key, |chat| chat.is_ended = true);
    }

    /// The server took it from a person.
    pub fn is_said(&self, key: &InstanceKey, message: &Message) {
        self.with(key, |chat| {
            chat.is_ended = false;
            chat.said.insert(message.id.clone(), message.seq);
        });
    }

    pub fn handed_out(&self, session: &SessionId) -> i64 {
        self.lock().handed_out.get(session).copied().unwrap_or(0)
    }

    /// The server gave these to a session; gives the number of the newest.
    pub fn is_handed_out(&self, session: &SessionId, messages: &[Message]) -> i64 {
        let newest = newest(messages);
        let mut known = self.lock();
        let known = known.handed_out.entry(session.clone()).or_default();
        *known = newest.max(*known);
        newest
    }

    /// They arrived.
    pub fn is_seen_by(&self, key: &InstanceKey, launch: &LaunchId, messages: &[Message]) {
        self.with(key, |chat| {
            let seen = chat.seen.entry(launch.clone()).or_default();
            *seen = newest(messages).max(*seen);
        });
    }

    /// An agent answers what it has, or is about to go with it; gives the number of the newest.
    pub fn is_settled_by(&self, key: &InstanceKey, launch: &LaunchId) -> i64 {
        self.with(key, |chat| {
            let seen = chat.seen.get(launch).copied().unwrap_or(0);
            chat.settled = chat.settled.max(seen);
            seen
        })
    }

    /// The server took its answer to all up to this one.
    pub fn is_acknowledged(&self, key: &InstanceKey, up_to: i64) {
        self.with(key, |chat| chat.acknowledged = chat.acknowledged.max(up_to));
    }
}

fn newest(messages: &[Message]) -> i64 {
    messages.iter().map(|message| message.seq).max().unwrap_or(0)
}

/// Between the moment when something is due and the one when it is done.
const SLACK: Duration = Duration::from_secs(1);

/// Nothing that was said is lost, and nobody is kept for a chat in which nothing is.
pub async fn look(sim: &Arc<Sim>) {
    let keys: Vec<InstanceKey> = sim.talk.lock().chats.keys().cloned().collect();
    for key in keys {
        look_at_chat(sim, &key).await;
    }
}

async fn look_at_chat(sim: &Arc<Sim>, key: &InstanceKey) {
    let messages = sim.store.messages(&all_of(key)).await.unwrap();
    let facts = sim.store.pair_facts(key).await.unwrap();
    let (record, read_up_to) = (&facts.record, facts.record.read_up_to);
    let was_told = was_told_to_end(sim, key).await;
    let mut broken = Vec::new();
    sim.talk.with(key, |chat| {
        for (id, seq) in &mut chat.said {
            let found: Vec<i64> = messages.iter().filter(|row| row.id == *id).map(|row| row.seq).collect();
            match found[..] {
                // What a person is told of a message that is new is not yet its number.
                [found] if *seq == 0 || *seq == found => *seq = found,
                _ => broken.push(format!("{id} was said once and is there as {found:?}")),
            }
        }
        if read_up_to > chat.settled {
            broken.push(format!("message {read_up_to} counts as read, and agents have only settled {}", chat.settled));
        }
        if read_up_to < chat.acknowledged {
            broken.push(format!("message {} was answered, and {read_up_to} is the last one read", chat.acknowledged));
        }
        let unread = chat.said.values().copied().filter(|seq| *seq > read_up_to).max();
        let is_waited_for = record.wanted_since.is_some() || facts.open.is_some();
        if let Some(unread) = unread.filter(|_| !is_waited_for && !chat.is_ended && !was_told) {
            broken.push(format!("message {unread} is unread, and nobody comes for it"));
        }
        if chat.is_ended && record.wanted_since.is_some() {
            broken.push("a person ended it, and somebody is wanted".to_owned());
        }
    });
    // What is repeated because its answer was lost is repeated right after it.
    let answers =
        messages.windows(2).filter(|pair| pair[0].sender == Sender::Agent && pair[0].content == pair[1].content);
    if !sim.world.has_jumped() {
        broken.extend(answers.map(|pair| format!("`{}` is there twice", pair[0].content)));
    }
    if let Some(open) = &facts.open
        && matches!(open.state, LaunchState::Running { .. })
        && !sim.world.has_jumped()
    {
        let launch = sim.store.launch(&open.id).await.unwrap().expect("it is open");
        let last = messages.iter().filter(|row| row.is_visible).map(|row| row.created_at).max();
        let since = launch.authenticated_at.max(last).expect("who runs has authenticated");
        if since + CHAT_IDLE + SLACK < sim.world.now() {
            broken.push(format!("{} goes on, and nobody says anything", open.id));
        }
    }
    for what in broken {
        sim.chronicle.violation(format!("chat of {key}: {what}"));
    }
}

/// Whether the last agent of the chat was told that people ended it: also with the work of a pair that they take it from.
async fn was_told_to_end(sim: &Arc<Sim>, key: &InstanceKey) -> bool {
    let InstanceKey { agent, project, purpose } = key.clone();
    let (agent, project, purpose) = (Some(agent), Some(project), Some(purpose));
    let filter = LaunchFilter { agent, project, purpose, only_ended: false, after: None, limit: 1 };
    let last = sim.store.launches(&filter).await.unwrap().into_iter().next();
    // By a clock that was set nobody knows which was the last, or it is so old that it is forgotten.
    sim.world.has_jumped() || last.is_some_and(|last| last.stop_reason == Some(StopReason::ChatEnded))
}

fn all_of(key: &InstanceKey) -> MessageFilter {
    MessageFilter {
        agent: key.agent.clone(),
        project: key.project.clone(),
        after: None,
        before: None,
        sender: None,
        only_visible: false,
        end: ChatEnd::Oldest,
        limit: usize::MAX,
    }
}

/// A chat whose agent is there, without a coordinator.
async fn open_chat(sim: &Arc<Sim>) -> (InstanceKey, LaunchId, Secret) {
    let fleet =
        Fleet { n_agents: 1, n_projects: 1, n_tasks: 0, max_concurrent: Vec::new(), chat_reserve: 0, has_local: true };
    people::found(sim, &fleet).await;
    sim.begin_server();
    let key = fleet.keys().into_iter().find(|key| key.purpose == Purpose::Chat).unwrap();
    let service = sim.service();
    service.start_chat(&key.agent, &key.project).await.unwrap();
    let coordinator = "crd_0".parse().unwrap();
    let claim = service.should_start(&key, Some(&coordinator)).await.unwrap().claim.unwrap();
    let ticket = claim.ticket.unwrap();
    let opened = service.authenticate(&key.agent, &ticket, &key.project, None).await.unwrap();
    (key, claim.launch, opened.session_token)
}

#[tokio::test(start_paused = true)]
async fn a_chat_ends_so_long_after_its_last_message() {
    let sim = Sim::new(0, None, Telling::Silent);
    let (key, launch, _) = open_chat(&sim).await;
    // Longer than from one look of the server at everything to the next.
    let (talking, silence) = (CLEANUP_INTERVAL + SLACK, CHAT_IDLE.saturating_sub(SLACK));
    tokio::time::sleep(talking).await;
    sim.service().say(&key.agent, &key.project, None, "the last word").await.unwrap();
    let state = || async { sim.store.launch(&launch).await.unwrap().unwrap().state };
    tokio::time::sleep(silence).await;
    assert!(matches!(state().await, LaunchState::Running { .. }));
    tokio::time::sleep(2 * SLACK).await;
    assert_eq!(state().await.as_str(), "stopping");
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_into_an_answer_is_no_news_before_the_rest_is_answered() {
    let sim = Sim::new(0, None, Telling::Silent);
    let (key, _, token) = open_chat(&sim).await;
    let service = sim.service();
    for _ in 0..3 {
        service.say(&key.agent, &key.project, None, &"x".repeat(7_000)).await.unwrap();
    }
    let caller = service.identify(&token, None).await.unwrap();
    let ask = || async {
        let asked_at = tokio::time::Instant::now();
        let n_messages = service.next_action(&caller, None).await.unwrap().messages.len();
        (n_messages, asked_at.elapsed() < SLACK)
    };
    assert_eq!(ask().await, (2, true));
    assert_eq!(ask().await, (2, false), "the answer may have been lost, but not that soon");
    service.respond(&caller, "to two").await.unwrap();
    assert_eq!(ask().await, (1, true));
}

#[tokio::test(start_paused = true)]
async fn who_is_told_to_go_reads_nothing_by_logging_out() {
    let sim = Sim::new(0, None, Telling::Silent);
    let (key, _, token) = open_chat(&sim).await;
    let service = sim.service();
    service.say(&key.agent, &key.project, None, "the answer with it is lost").await.unwrap();
    let caller = service.identify(&token, None).await.unwrap();
    service.hand_out(&caller).await.unwrap();
    service.end_chat(&key.agent, &key.project).await.unwrap();
    assert_eq!(service.next_action(&caller, None).await.unwrap().action, "exit");
    service.logout(&caller).await.unwrap();
    assert_eq!(sim.store.pair(&key).await.unwrap().read_up_to, 0);
}
