//! Any commits, applied to the memory store and to SQLite: the same results, the same answers to every question.

mod drafts;

use agent_coordinator::domain::chat::Sender;
use agent_coordinator::domain::{
    Assignment, InstanceKey, Launch, Purpose, Task, TaskStatus, Timestamp,
};
use agent_coordinator::store::memory::MemoryStore;
use agent_coordinator::store::sqlite::SqliteStore;
use agent_coordinator::store::{
    Change, ChatEnd, Commit, CommitError, Expect, HistoryFilter, LaunchFilter, MessageFilter,
    Store, TaskFilter,
};
use proptest::collection::vec;
use proptest::prelude::*;

use self::drafts::{
    AGENTS, AI_TYPES, Basis, CREDENTIALS, Condition, Draft, EXECUTIONS, LAUNCHES, MESSAGES,
    NOTICES, PROJECTS, PURPOSES, SESSIONS, TASKS, draft, item_key,
};
use super::made;
use super::rows::{agent, assignment, at, id, launch_of, project, task, ticket};

/// Gives the rows of `draft` their revisions.
async fn written_on(store: &dyn Store, draft: Draft) -> Commit {
    let mut commit = Commit::default();
    for condition in draft.0 {
        commit.expect.push(match condition {
            Condition::NoOpenLaunch(key) => Expect::NoOpenLaunch(key),
            Condition::Task(name, basis) => {
                let stored = store.task(&id(name)).await.unwrap();
                Expect::TaskAt(id(name), basis.revision(stored.map(|row| row.revision)))
            }
            Condition::Launch(name, basis) => {
                let stored = store.launch(&id(name)).await.unwrap();
                Expect::LaunchAt(id(name), basis.revision(stored.map(|row| row.revision)))
            }
            Condition::Pair(key, basis) => {
                let stored = store.pair(&key).await.unwrap();
                Expect::PairAt(key, basis.revision(Some(stored.revision)))
            }
            Condition::NoMessageAfter(InstanceKey { agent, project, .. }, seq) => {
                Expect::NoMessageAfter(Assignment { project, agent }, seq)
            }
            Condition::NotPaused => Expect::NotPaused,
        });
    }
    for (mut change, basis) in draft.1 {
        match &mut change {
            Change::Agent(row) => {
                row.revision =
                    basis.revision(store.agent(&row.id).await.unwrap().map(|row| row.revision));
            }
            Change::Project(row) => {
                row.revision =
                    basis.revision(store.project(&row.id).await.unwrap().map(|row| row.revision));
            }
            Change::Task(row) => {
                row.revision =
                    basis.revision(store.task(&row.id).await.unwrap().map(|row| row.revision));
            }
            Change::Launch(row) => {
                row.revision =
                    basis.revision(store.launch(&row.id).await.unwrap().map(|row| row.revision));
            }
            Change::Pair(row) => {
                row.revision = basis.revision(Some(store.pair(&row.key).await.unwrap().revision));
            }
            Change::Account(row) => {
                row.revision =
                    basis.revision(Some(store.account(&row.ai_type).await.unwrap().revision));
            }
            Change::Credential(row) => {
                row.revision = basis
                    .revision(store.credential(&row.id).await.unwrap().map(|row| row.revision));
            }
            Change::ForgeItem(row) => {
                row.revision = basis
                    .revision(store.forge_item(&row.id).await.unwrap().map(|row| row.revision));
            }
            // There is no question for one of these by its id: the first write succeeds, later ones conflict or hit by luck.
            Change::Session(row) => row.revision = i64::from(matches!(basis, Basis::Older)),
            Change::Execution(row) => row.revision = i64::from(matches!(basis, Basis::Older)),
            Change::Notice(row) => {
                row.revision =
                    basis.revision(store.notice(&row.id).await.unwrap().map(|row| row.revision));
            }
            Change::Assign(_)
            | Change::Unassign(_)
            | Change::OutputTail(..)
            | Change::ForgetCredential(_)
            | Change::ForgetItem(_)
            | Change::Message(_)
            | Change::Pause(_)
            | Change::ForgetLaunch(_)
            | Change::ForgetEvents(_)
            | Change::ForgetMessages(..)
            | Change::Event(_) => {}
        }
        commit.changes.push(change);
    }
    commit
}

/// Puts the question and its answer to the others.
macro_rules! ask {
    ($answers:ident, $question:expr) => {
        $answers.push(format!("{}: {:#?}", stringify!($question), $question.await.unwrap()))
    };
}

/// The answers that a backend may have at hand.
async fn kept_at_hand(store: &dyn Store) -> Vec<String> {
    let mut answers = Vec::new();
    ask!(answers, store.startable());
    ask!(answers, store.open_launches());
    ask!(answers, store.events(0, 100));
    for ai_type in AI_TYPES {
        ask!(answers, store.account(ai_type));
    }
    for (agent, project) in
        AGENTS.iter().flat_map(|agent| PROJECTS.iter().map(move |project| (agent, project)))
    {
        for purpose in PURPOSES {
            ask!(answers, store.pair(&InstanceKey::new(id(agent), id(project), purpose)));
        }
    }
    answers
}

/// The answers to all questions, one text each.
pub(super) async fn everything(store: &dyn Store) -> Vec<String> {
    let mut answers = kept_at_hand(store).await;
    ask!(answers, store.agents());
    ask!(answers, store.projects());
    ask!(answers, store.assignments());
    ask!(answers, store.open_sessions());
    ask!(answers, store.held_pairs());
    ask!(answers, store.parked_accounts());
    ask!(answers, store.paused_since());
    ask!(answers, store.events(2, 3));
    ask!(answers, store.event_span());
    for at in [0, 2, 1_000_000_000_000] {
        ask!(answers, store.last_event_before(Timestamp::from_millis(at)));
        ask!(answers, store.past_launches(Timestamp::from_millis(at), None, 100));
        let first = store.past_launches(Timestamp::from_millis(at), None, 1).await.unwrap();
        ask!(answers, store.past_launches(Timestamp::from_millis(at), first.first(), 2));
        let chat = Assignment { project: id("p"), agent: id("a") };
        ask!(answers, store.last_message_before(&chat, Timestamp::from_millis(at)));
    }
    ask!(answers, store.counts());
    ask!(answers, store.open_notices());
    ask!(answers, store.chats());
    for agent in AGENTS {
        ask!(answers, store.agent(&id(agent)));
        for project in PROJECTS {
            for purpose in PURPOSES {
                let key = InstanceKey::new(id(agent), id(project), purpose);
                ask!(answers, store.pair_facts(&key));
            }
            let all = MessageFilter::oldest(id(agent), id(project), 100);
            ask!(answers, store.messages(&all));
            ask!(
                answers,
                store.messages(&MessageFilter { end: ChatEnd::Newest, limit: 1, ..all.clone() })
            );
            ask!(
                answers,
                store.messages(&MessageFilter { after: Some(1), before: Some(3), ..all.clone() })
            );
            ask!(
                answers,
                store.messages(&MessageFilter {
                    sender: Some(Sender::User),
                    only_visible: true,
                    ..all
                })
            );
        }
    }
    for project in PROJECTS {
        ask!(answers, store.project(&id(project)));
        ask!(
            answers,
            store.tasks(&TaskFilter {
                project: Some(id(project)),
                assignee: Some(id("a")),
                ..TaskFilter::default()
            })
        );
        ask!(
            answers,
            store.tasks(&TaskFilter {
                project: Some(id(project)),
                only_open: true,
                ..TaskFilter::default()
            })
        );
    }
    for status in TaskStatus::ALL {
        ask!(answers, store.tasks(&TaskFilter { status: Some(*status), ..TaskFilter::default() }));
    }
    for task in TASKS {
        ask!(answers, store.task(&id(task)));
        ask!(answers, store.tasks(&TaskFilter { parent: Some(id(task)), ..TaskFilter::default() }));
        ask!(answers, store.executions_of_task(&id(task)));
    }
    for launch in LAUNCHES {
        ask!(answers, store.launch(&id(launch)));
        ask!(answers, store.launch_by_ticket(&ticket(launch)));
        ask!(answers, store.sessions_of(&id(launch)));
        ask!(answers, store.executions_of_launch(&id(launch)));
        ask!(answers, store.output_tail(&id(launch)));
        ask!(answers, store.notices_of(&id(launch)));
    }
    for notice in NOTICES {
        ask!(answers, store.notice(&id(notice)));
    }
    for message in MESSAGES {
        ask!(answers, store.message(&id(message)));
    }
    ask!(answers, store.open_forge_items());
    for number in 1..3 {
        ask!(answers, store.open_forge_item(&item_key(number)));
    }
    ask!(answers, store.ended_forge_items(2));
    ask!(answers, store.past_forge_items(at(9), 2));
    for task in TASKS {
        ask!(answers, store.forge_item_of_task(&id(task)));
    }
    ask!(answers, store.credentials());
    for credential in CREDENTIALS {
        ask!(answers, store.credential(&id(credential)));
        ask!(answers, store.credential_by_secret(&ticket(credential)));
    }
    for session in SESSIONS {
        ask!(answers, store.session_by_token(&ticket(session)));
    }
    macro_rules! ask_history {
        ($question:ident, $ids:expr) => {
            let all = HistoryFilter::newest(100);
            ask!(answers, store.$question(&all));
            ask!(answers, store.$question(&HistoryFilter { only_open: true, ..all.clone() }));
            ask!(
                answers,
                store.$question(&HistoryFilter { agent: Some(id("a")), limit: 1, ..all.clone() })
            );
            ask!(
                answers,
                store.$question(&HistoryFilter {
                    project: Some(id("p")),
                    launch: Some(id("l1")),
                    ..all.clone()
                })
            );
            ask!(
                answers,
                store.$question(&HistoryFilter { task: Some(id(TASKS[0])), ..all.clone() })
            );
            for after in $ids {
                ask!(
                    answers,
                    store.$question(&HistoryFilter {
                        after: Some(id(after)),
                        agent: Some(id("a")),
                        ..all.clone()
                    })
                );
                ask!(
                    answers,
                    store.$question(&HistoryFilter { after: Some(id(after)), ..all.clone() })
                );
            }
        };
    }
    ask_history!(sessions, SESSIONS);
    ask_history!(executions, EXECUTIONS);
    ask_history!(notices, NOTICES);
    for session in SESSIONS {
        ask!(answers, store.session(&id(session)));
    }
    for task in TASKS {
        ask!(answers, store.events_of_task(&id(task), 1, 3));
    }
    for launch in LAUNCHES {
        let after = LaunchFilter {
            agent: None,
            project: None,
            purpose: None,
            only_ended: false,
            after: Some(id(launch)),
            limit: 2,
        };
        ask!(answers, store.launches(&after));
        ask!(answers, store.launches(&LaunchFilter { only_ended: true, ..after.clone() }));
    }
    let all = LaunchFilter {
        agent: None,
        project: None,
        purpose: None,
        only_ended: false,
        after: None,
        limit: 100,
    };
    ask!(answers, store.launches(&all));
    ask!(answers, store.launches(&LaunchFilter { only_ended: true, ..all.clone() }));
    ask!(answers, store.launches(&LaunchFilter { agent: Some(id("a")), limit: 1, ..all.clone() }));
    let chats = LaunchFilter { project: Some(id("p")), purpose: Some(Purpose::Chat), ..all };
    ask!(answers, store.launches(&chats));
    answers
}

/// A result as one may compare it: an error of the driver is none that the memory store could have.
fn told(result: Result<(), CommitError>) -> String {
    match result {
        Ok(()) => "made".to_owned(),
        Err(CommitError::Store(error)) => panic!("{error:?}"),
        Err(refusal) => format!("{refusal:?}"),
    }
}

/// Work for everybody, which changes that come one by one hardly ever make up.
fn work() -> Vec<Change> {
    let pairs =
        || PROJECTS.iter().flat_map(|project| AGENTS.iter().map(move |agent| (project, agent)));
    let tasks = TASKS.iter().zip(pairs());
    let tasks = tasks.map(|(name, (project, assignee))| {
        Change::Task(Task { status: TaskStatus::InProgress, ..task(name, project, Some(assignee)) })
    });
    let agents = AGENTS.iter().map(|name| Change::Agent(agent(name)));
    let projects = PROJECTS.iter().map(|name| Change::Project(project(name)));
    let assigned = pairs().map(|(project, agent)| Change::Assign(assignment(project, agent)));
    agents.chain(projects).chain(assigned).chain(tasks).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_backend_gives_the_same_answers_to_the_same_commits(
        is_busy in any::<bool>(),
        drafts in vec(draft(), 1..16),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (memory, sqlite) = (MemoryStore::new(), SqliteStore::in_memory().await.unwrap());
            if is_busy {
                for store in [&memory as &dyn Store, &sqlite] {
                    made(store, work()).await;
                }
                assert_eq!(memory.startable().await.unwrap().len(), TASKS.len());
            }
            for draft in drafts {
                let commit = written_on(&memory, draft).await;
                let results = (told(memory.commit(commit.clone()).await), told(sqlite.commit(commit.clone()).await));
                assert_eq!(results.0, results.1, "{commit:#?}");
                // After each, because a backend may have the answers of before at hand.
                let (expected, found) = (kept_at_hand(&memory).await, kept_at_hand(&sqlite).await);
                for (expected, found) in expected.iter().zip(&found) {
                    assert_eq!(expected, found, "{commit:#?}");
                }
            }
            let (expected, found) = (everything(&memory).await, everything(&sqlite).await);
            for (expected, found) in expected.iter().zip(&found) {
                assert_eq!(expected, found);
            }
            sqlite.close().await;
        });
    }
}

/// Nobody does it; a backend that has the answer of before at hand must see it nevertheless.
#[tokio::test]
async fn a_launch_that_changes_hands_is_nobodys_of_before() {
    let sqlite = SqliteStore::in_memory().await.unwrap();
    made(&sqlite, work()).await;
    let of_chat = launch_of("l1", "a", "p", Purpose::Chat);
    made(&sqlite, vec![Change::Launch(of_chat.clone())]).await;
    let waiting = || async {
        sqlite.startable().await.unwrap().into_iter().filter(|facts| facts.open.is_none()).count()
    };
    let before = waiting().await;
    let key = InstanceKey { purpose: Purpose::Task, ..of_chat.key.clone() };
    made(&sqlite, vec![Change::Launch(Launch { key, revision: 1, ..of_chat })]).await;
    assert_eq!(waiting().await, before - 1);
    sqlite.close().await;
}
