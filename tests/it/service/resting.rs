//! A chat at rest: its agent has answered everything, and no view of it is open.

use std::sync::atomic::AtomicU64;

use domain::LaunchId;
use service::Caller;

use super::*;

/// A world whose time of day can be set.
#[derive(Default)]
struct SetWorld(AtomicU64);

impl World for SetWorld {
    fn now(&self) -> Timestamp {
        SystemWorld.now() + Duration::from_secs(self.0.load(Ordering::SeqCst))
    }

    fn fill(&self, bytes: &mut [u8]) {
        SystemWorld.fill(bytes);
    }

    fn unique(&self) -> String {
        SystemWorld.unique()
    }
}

struct Resting {
    store: Arc<Store>,
    service: Service,
    launch: LaunchId,
    caller: Caller,
    token: Secret,
}

/// Returns a server with a chat that has been silent for longer than a chat without a view needs to
/// give its slot away. Its agent has just asked for something to do.
async fn resting() -> Resting {
    let store = one_pair_with_work().await;
    let world = Arc::new(SetWorld::default());
    let chat = config::Chat { poll_hold: Duration::ZERO, ..config::Chat::default() };
    let settings = Settings { chat, ..settings() };
    let service = Service::new(store.clone(), world.clone(), settings, Nudge::new());
    let key = InstanceKey { purpose: Purpose::Chat, ..key() };
    service.chats.start(&key.agent, &key.project).await.unwrap();
    let coordinator = "crd_here".parse().unwrap();
    let start = service.launches.should_start(&key, Some(&coordinator)).await.unwrap();
    let ticket = start.claim.unwrap().ticket.unwrap();
    let socket = || Presenter::on_socket(None);
    let session =
        service.sessions.authenticate(&key.agent, &ticket, &key.project, socket()).await.unwrap();
    world.0.store(40, Ordering::SeqCst);
    service.maintenance.end_overdue().await.unwrap();
    let caller = service.sessions.identify(&session.session_token, socket()).await.unwrap();
    service.sessions.next_action(&caller, None).await.unwrap();
    Resting {
        store,
        service,
        launch: caller.launch.id.clone(),
        caller,
        token: session.session_token,
    }
}

impl Resting {
    async fn is_at_rest(&self) -> bool {
        let view = self.service.coordinators.view().await.unwrap();
        view.launches.iter().any(|launch| launch.id == self.launch && launch.is_at_rest)
    }

    /// Asks the chat to give its slot away, and returns whether it does.
    async fn gives_way(&self) -> bool {
        self.service.coordinators.want_stop(&self.launch, StopReason::ChatIdle).await.unwrap();
        self.store.launch(&self.launch).await.unwrap().unwrap().stop_reason.is_some()
    }
}

#[tokio::test]
async fn a_chat_is_at_rest_until_a_view_of_it_opens() {
    let chat = resting().await;
    assert!(chat.is_at_rest().await);
    let InstanceKey { agent, project, .. } = key();
    let view = chat.service.chats.attend(Assignment { project, agent });
    assert!(!chat.is_at_rest().await && !chat.gives_way().await);
    drop(view);
    assert!(chat.is_at_rest().await && chat.gives_way().await);
}

#[tokio::test]
async fn a_chat_in_which_a_person_has_just_spoken_keeps_its_slot() {
    let chat = resting().await;
    assert!(chat.is_at_rest().await);
    let InstanceKey { agent, project, .. } = key();
    chat.service.chats.say(&agent, &project, None, "one more question").await.unwrap();
    assert!(!chat.is_at_rest().await && !chat.gives_way().await);
}

#[tokio::test]
async fn a_chat_whose_agent_calls_other_tools_keeps_its_slot() {
    let chat = resting().await;
    assert!(chat.is_at_rest().await);
    let sessions = &chat.service.sessions;
    sessions.identify(&chat.token, Presenter::on_socket(None)).await.unwrap();
    assert!(!chat.is_at_rest().await && !chat.gives_way().await);
    sessions.next_action(&chat.caller, None).await.unwrap();
    assert!(chat.is_at_rest().await);
}
