//! The answers of a store to all questions, for a comparison before and after a change.

use domain::chat::Sender;
use domain::forge::{ForgeKind, ItemKey, ItemKind};
use domain::{Assignment, InstanceKey, Purpose, TaskStatus, Timestamp};
use store::rows::{
    Store, accounts, agents, assignments, credentials, events, executions, forge_items,
    launch_retention, launch_spend, launches, messages, notices, output_tails, pauses, projects,
    sessions, start_histories, startable, tasks,
};
use store::{ChatEnd, HistoryFilter, LaunchFilter, MessageFilter, Read, StoreError, TaskFilter};

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
        $answers.push(format!("{}: {:#?}", stringify!($question), $question.unwrap()))
    };
}

/// Returns the answers that decide about starts, and the events.
fn answers_about_starts(tx: &mut Read<'_>) -> Vec<String> {
    let mut answers = Vec::new();
    ask!(answers, startable::list(tx));
    ask!(answers, launches::list_open(tx));
    ask!(answers, events::list(tx, 0, 100));
    for ai_type in AI_TYPES {
        ask!(answers, accounts::get(tx, ai_type));
    }
    for (agent, project) in
        AGENTS.iter().flat_map(|agent| PROJECTS.iter().map(move |project| (agent, project)))
    {
        for purpose in PURPOSES {
            ask!(
                answers,
                start_histories::get(tx, &InstanceKey::new(id(agent), id(project), purpose))
            );
        }
    }
    answers
}

/// Returns the answers to all questions, one text each.
pub(super) async fn everything(store: &Store) -> Vec<String> {
    store.read(|tx| Ok::<_, StoreError>(answers(tx))).await.unwrap()
}

fn answers(tx: &mut Read<'_>) -> Vec<String> {
    let mut answers = answers_about_starts(tx);
    ask!(answers, agents::list(tx));
    ask!(answers, projects::list(tx));
    ask!(answers, assignments::list(tx));
    ask!(answers, sessions::list_open(tx));
    ask!(answers, start_histories::list_held(tx));
    ask!(answers, start_histories::list_suspended(tx));
    ask!(answers, start_histories::list_misconfigured(tx));
    ask!(answers, tasks::list_failed(tx));
    ask!(answers, accounts::list_parked(tx));
    ask!(answers, pauses::since(tx));
    ask!(answers, pauses::file(tx));
    ask!(answers, pauses::is_paused(tx));
    ask!(answers, events::list(tx, 2, 3));
    ask!(answers, events::span(tx));
    for at in [0, 2, 1_000_000_000_000] {
        ask!(answers, events::last_before(tx, Timestamp::from_millis(at)));
        ask!(answers, launch_retention::launches(tx, Timestamp::from_millis(at), None, 100));
        let first = launch_retention::launches(tx, Timestamp::from_millis(at), None, 1).unwrap();
        ask!(answers, launch_retention::launches(tx, Timestamp::from_millis(at), first.first(), 2));
        let chat = Assignment { project: id("p"), agent: id("a") };
        ask!(answers, messages::last_before(tx, &chat, Timestamp::from_millis(at)));
    }
    ask!(answers, launch_spend::totals(tx));
    ask!(answers, launch_spend::of_tasks(tx, &TASKS.map(id)));
    ask!(answers, agents::count(tx));
    ask!(answers, projects::count(tx));
    ask!(answers, notices::list_open(tx));
    ask!(answers, messages::list_chats(tx));
    ask!(answers, messages::list_chats_after(tx, 2));
    ask!(answers, messages::newest(tx));
    for agent in AGENTS {
        ask!(answers, agents::get(tx, &id(agent)));
        for project in PROJECTS {
            for purpose in PURPOSES {
                let key = InstanceKey::new(id(agent), id(project), purpose);
                ask!(answers, startable::of_key(tx, &key));
            }
            let all = MessageFilter::oldest(id(agent), id(project), 100);
            ask!(answers, messages::list(tx, &all));
            ask!(
                answers,
                messages::list(
                    tx,
                    &MessageFilter { end: ChatEnd::Newest, limit: 1, ..all.clone() }
                )
            );
            ask!(
                answers,
                messages::list(
                    tx,
                    &MessageFilter { after: Some(1), before: Some(3), ..all.clone() }
                )
            );
            ask!(
                answers,
                messages::list(
                    tx,
                    &MessageFilter { sender: Some(Sender::User), only_visible: true, ..all }
                )
            );
        }
    }
    for project in PROJECTS {
        ask!(answers, projects::get(tx, &id(project)));
        ask!(
            answers,
            tasks::list(
                tx,
                &TaskFilter {
                    project: Some(id(project)),
                    assignee: Some(id("a")),
                    ..TaskFilter::default()
                }
            )
        );
        ask!(
            answers,
            tasks::list(
                tx,
                &TaskFilter {
                    project: Some(id(project)),
                    only_open: true,
                    ..TaskFilter::default()
                }
            )
        );
    }
    for status in TaskStatus::ALL {
        ask!(
            answers,
            tasks::list(tx, &TaskFilter { status: Some(*status), ..TaskFilter::default() })
        );
    }
    for task in TASKS {
        ask!(answers, tasks::get(tx, &id(task)));
        ask!(
            answers,
            tasks::list(tx, &TaskFilter { parent: Some(id(task)), ..TaskFilter::default() })
        );
        ask!(answers, executions::list_of_task(tx, &id(task)));
    }
    for launch in LAUNCHES {
        ask!(answers, launches::get(tx, &id(launch)));
        ask!(answers, launches::creations(tx, &id(launch)));
        ask!(answers, launches::find_by_ticket(tx, &ticket(launch)));
        ask!(answers, sessions::list_of_launch(tx, &id(launch)));
        ask!(answers, executions::list_of_launch(tx, &id(launch)));
        ask!(answers, output_tails::get(tx, &id(launch)));
        ask!(answers, launch_spend::list_of_launch(tx, &id(launch)));
        ask!(answers, notices::list_of_launch(tx, &id(launch)));
    }
    for notice in NOTICES {
        ask!(answers, notices::get(tx, &id(notice)));
    }
    for message in MESSAGES {
        ask!(answers, messages::get(tx, &id(message)));
    }
    ask!(answers, forge_items::list_open(tx));
    for number in 1..3 {
        ask!(answers, forge_items::find_open(tx, &item_key(number)));
    }
    ask!(answers, forge_items::list_ended(tx, 2));
    ask!(answers, forge_items::list_ended_before(tx, at(9), 2));
    for task in TASKS {
        ask!(answers, forge_items::find_of_task(tx, &id(task)));
    }
    ask!(answers, credentials::list(tx));
    for credential in CREDENTIALS {
        ask!(answers, credentials::get(tx, &id(credential)));
        ask!(answers, credentials::find_by_secret(tx, &ticket(credential)));
    }
    for session in SESSIONS {
        ask!(answers, sessions::find_by_token(tx, &ticket(session)));
    }
    macro_rules! ask_history {
        ($question:ident, $ids:expr) => {
            let all = HistoryFilter::newest(100);
            ask!(answers, $question::list(tx, &all));
            ask!(answers, $question::list(tx, &HistoryFilter { only_open: true, ..all.clone() }));
            ask!(
                answers,
                $question::list(
                    tx,
                    &HistoryFilter { agent: Some(id("a")), limit: 1, ..all.clone() }
                )
            );
            ask!(
                answers,
                $question::list(
                    tx,
                    &HistoryFilter {
                        project: Some(id("p")),
                        launch: Some(id("l1")),
                        ..all.clone()
                    }
                )
            );
            ask!(
                answers,
                $question::list(tx, &HistoryFilter { task: Some(id(TASKS[0])), ..all.clone() })
            );
            for after in $ids {
                ask!(
                    answers,
                    $question::list(
                        tx,
                        &HistoryFilter {
                            after: Some(id(after)),
                            agent: Some(id("a")),
                            ..all.clone()
                        }
                    )
                );
                ask!(
                    answers,
                    $question::list(tx, &HistoryFilter { after: Some(id(after)), ..all.clone() })
                );
            }
        };
    }
    ask_history!(sessions, SESSIONS);
    ask_history!(executions, EXECUTIONS);
    ask_history!(notices, NOTICES);
    for session in SESSIONS {
        ask!(answers, sessions::get(tx, &id(session)));
    }
    for task in TASKS {
        ask!(answers, events::list_of_task(tx, &id(task), 1, 3));
    }
    for launch in LAUNCHES {
        let after = LaunchFilter { after: Some(id(launch)), limit: 2, ..LaunchFilter::default() };
        ask!(answers, launches::list(tx, &after));
        ask!(answers, launches::list(tx, &LaunchFilter { only_ended: true, ..after.clone() }));
    }
    let all = LaunchFilter { limit: 100, ..LaunchFilter::default() };
    ask!(answers, launches::list(tx, &all));
    ask!(answers, launches::list(tx, &LaunchFilter { only_ended: true, ..all.clone() }));
    ask!(
        answers,
        launches::list(tx, &LaunchFilter { agent: Some(id("a")), limit: 1, ..all.clone() })
    );
    let chats = LaunchFilter { project: Some(id("p")), purpose: Some(Purpose::Chat), ..all };
    ask!(answers, launches::list(tx, &chats));
    answers
}
