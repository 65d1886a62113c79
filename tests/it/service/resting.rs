//! A chat at rest: its agent has answered everything, and no view of it is open.

use agent_coordinator::domain::{Launch, LaunchId, LaunchState};

use super::*;

struct Resting {
    store: Arc<Store>,
    service: Service,
    launch: LaunchId,
}

/// Returns a server with a chat that has been silent for longer than a chat without a view needs to
/// give its slot away.
async fn resting() -> Resting {
    let store = one_pair_with_work().await;
    let began = Timestamp::from_millis(SystemWorld.now().as_millis() - 40_000);
    let key = InstanceKey { purpose: Purpose::Chat, ..key() };
    let launch = Launch {
        state: LaunchState::Running { session: "ses".parse().unwrap() },
        authenticated_at: Some(began),
        ..Launch::claimed("lch".parse().unwrap(), key, "claude".to_owned(), began, began)
    };
    rows::write(&store, vec![Row::Launch(launch.clone())]).await.unwrap();
    let service = Service::new(store.clone(), Arc::new(SystemWorld), settings(), Nudge::new());
    service.maintenance.end_overdue().await.unwrap();
    Resting { store, service, launch: launch.id }
}

impl Resting {
    async fn is_at_rest(&self) -> bool {
        let view = self.service.coordinators.view().await.unwrap();
        view.launches.iter().any(|launch| launch.id == self.launch && launch.is_at_rest)
    }

    /// Asks the chat to give its slot away, and returns whether it does.
    async fn gives_way(&self) -> bool {
        self.service.launches.want_stop(&self.launch, StopReason::ChatIdle).await.unwrap();
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
