//! The answers of a store to all questions, to see whether anything has changed.

use agent_coordinator::domain::chat::Sender;
use agent_coordinator::domain::forge::{ForgeKind, ItemKey, ItemKind};
use agent_coordinator::domain::{Assignment, InstanceKey, Purpose, TaskStatus, Timestamp};
use agent_coordinator::rows::adapter::SqliteStore;
use agent_coordinator::store::{ChatEnd, HistoryFilter, LaunchFilter, MessageFilter, TaskFilter};

use super::rows::{at, id, ticket};

const AGENTS: [&str; 3] = ["a", "b", "B"];
const PROJECTS: [&str; 2] = ["p", "q"];
const TASKS: [&str; 3] = ["t", "u", "v"];
const LAUNCHES: [&str; 4] = ["l1", "l2", "l3", "l4"];
const SESSIONS: [&str; 3] = ["s", "s2", "s3"];
const EXECUTIONS: [&str; 2] = ["e", "f"];
const NOTICES: [&str; 2] = ["n", "o"];
const CREDENTIALS: [&str; 2] = ["c", "d"];
const MESSAGES: [&str; 3] = ["m1", "m2", "m3"];
const AI_TYPES: [&str; 2] = ["claude", "codex"];
const PURPOSES: [Purpose; 2] = [Purpose::Task, Purpose::Chat];

fn item_key(number: u64) -> ItemKey {
    let (host, repository) = ("forge.example".to_owned(), "a/b".to_owned());
    ItemKey { forge: ForgeKind::GitLab, host, repository, kind: ItemKind::MergeRequest, number }
}

/// Puts the question and its answer to the others.
macro_rules! ask {
    ($answers:ident, $question:expr) => {
        $answers.push(format!("{}: {:#?}", stringify!($question), $question.await.unwrap()))
    };
}

/// The answers that decide about starts, and the events.
async fn answers_about_starts(store: &SqliteStore) -> Vec<String> {
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
pub(super) async fn everything(store: &SqliteStore) -> Vec<String> {
    let mut answers = answers_about_starts(store).await;
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
