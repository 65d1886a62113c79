//! Chats whose every step is known.

use std::sync::Arc;

use domain::launch::{ExitStatus, ProcessEnd};
use domain::plan::ProcessReport;
use domain::session::Presenter;
use domain::{InstanceKey, LaunchId, LaunchState, Purpose, Secret};
use service::Caller;
use service::world::World as _;

use crate::questions::Questions;
use crate::sim::script::Fleet;
use crate::sim::world::{Telling, pass};
use crate::sim::{CHAT_IDLE, CLEANUP_INTERVAL, SLACK, Sim, people};

/// Opens a chat with its agent, without a coordinator.
async fn open_chat(sim: &Arc<Sim>) -> (InstanceKey, LaunchId, Secret) {
    let fleet = Fleet { n_tasks: 0, max_concurrent: Vec::new(), ..Fleet::SMALL };
    people::found(sim, &fleet).await;
    sim.begin_server();
    let key = fleet.keys().into_iter().find(|key| key.purpose == Purpose::Chat).unwrap();
    let service = sim.service();
    service.chats.start(&key.agent, &key.project).await.unwrap();
    let coordinator = "crd_0".parse().unwrap();
    let claim =
        service.launches.should_start(&key, Some(&coordinator)).await.unwrap().claim.unwrap();
    let ticket = claim.ticket.unwrap();
    let opened = service
        .sessions
        .authenticate(&key.agent, &ticket, &key.project, Presenter::on_socket(None))
        .await
        .unwrap();
    (key, claim.launch, opened.session_token)
}

/// Says something as a person, and gives it to the agent of `token`. Returns the agent as a caller,
/// and the number of the message.
async fn given(sim: &Sim, key: &InstanceKey, token: &Secret) -> (Caller, i64) {
    let service = sim.service();
    service.chats.say(&key.agent, &key.project, None, "thank you").await.unwrap();
    let caller = service.sessions.identify(token, Presenter::on_socket(None)).await.unwrap();
    let given = service.chats.hand_out(&caller).await.unwrap().pending;
    (caller, given[0].seq)
}

/// Checks that the chat goes on for this time after the last message, whichever side wrote it.
async fn check_idle_end(speaks: impl AsyncFnOnce(&Sim, &InstanceKey, &Secret)) {
    let sim = Sim::new(0, None, Telling::Silent);
    let (key, launch, token) = open_chat(&sim).await;
    // This is longer than the time between two cleanups of the server.
    let (talking, silence) = (CLEANUP_INTERVAL + SLACK, CHAT_IDLE.saturating_sub(SLACK));
    pass(talking).await;
    speaks(&sim, &key, &token).await;
    let state = || async { sim.store.launch(&launch).await.unwrap().unwrap().state };
    pass(silence).await;
    assert!(matches!(state().await, LaunchState::Running { .. }));
    pass(2 * SLACK).await;
    assert_eq!(state().await.as_str(), "stopping");
}

#[tokio::test(start_paused = true)]
async fn a_chat_ends_so_long_after_the_last_word_of_a_person() {
    check_idle_end(async |sim, key, _| {
        sim.service().chats.say(&key.agent, &key.project, None, "the last word").await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_chat_ends_so_long_after_the_last_word_of_its_agent() {
    check_idle_end(async |sim, _, token| {
        let service = sim.service();
        let caller = service.sessions.identify(token, Presenter::on_socket(None)).await.unwrap();
        service.chats.respond(&caller, "the last word").await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_into_an_answer_is_no_news_before_the_rest_is_answered() {
    let sim = Sim::new(0, None, Telling::Silent);
    let (key, _, token) = open_chat(&sim).await;
    let service = sim.service();
    for _ in 0..3 {
        service.chats.say(&key.agent, &key.project, None, &"x".repeat(7_000)).await.unwrap();
    }
    let caller = service.sessions.identify(&token, Presenter::on_socket(None)).await.unwrap();
    let ask = || async {
        let asked_at = tokio::time::Instant::now();
        let n_messages = service.sessions.next_action(&caller, None).await.unwrap().messages.len();
        (n_messages, asked_at.elapsed() < SLACK)
    };
    assert_eq!(ask().await, (2, true));
    assert_eq!(ask().await, (2, false), "the answer may have been lost, but not that soon");
    service.chats.respond(&caller, "to two").await.unwrap();
    assert_eq!(ask().await, (1, true));
}

#[tokio::test(start_paused = true)]
async fn who_is_told_to_go_reads_nothing_by_logging_out() {
    let sim = Sim::new(0, None, Telling::Silent);
    let (key, _, token) = open_chat(&sim).await;
    let service = sim.service();
    // The answer with the message may have been lost.
    let (caller, _) = given(&sim, &key, &token).await;
    service.chats.end(&key.agent, &key.project).await.unwrap();
    assert_eq!(service.sessions.next_action(&caller, None).await.unwrap().action, "exit");
    service.sessions.logout(&caller).await.unwrap();
    assert_eq!(sim.store.pair(&key).await.unwrap().read_up_to, 0);
}

#[tokio::test(start_paused = true)]
async fn who_logs_out_has_read_what_it_was_given_and_is_not_wanted_back_for_it() {
    let sim = Sim::new(0, None, Telling::Silent);
    let (key, launch, token) = open_chat(&sim).await;
    let service = sim.service();
    let (caller, newest) = given(&sim, &key, &token).await;
    service.sessions.logout(&caller).await.unwrap();
    let gone = ProcessReport::Ended {
        end: ProcessEnd::Exited(ExitStatus::default()),
        at: sim.world.now(),
    };
    service.launches.report_process(&launch, &[gone]).await.unwrap();
    let record = sim.store.pair(&key).await.unwrap();
    assert_eq!((record.read_up_to, record.wanted_since, record.n_failures), (newest, None, 0));
}
