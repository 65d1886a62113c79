//! What a commit tells of itself: each change that somebody may be looking at has an event, in the same transaction.
//!
//! Those who change something say what only they know (why a launch ended, what a person did); here is what the rows say by
//! themselves, so that no use case can forget it. Who hears it is the business of `events`.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::event::NewEvent;
use crate::domain::id::{LaunchId, TaskId};
use crate::domain::{Assignment, Execution, InstanceKey, Notice, Session, Task, Timestamp};
use crate::store::Change;

use super::accounts::account_event;

/// An event without any object.
pub(super) fn bare(kind: &'static str, at: Timestamp) -> NewEvent {
    NewEvent { at, kind, agent: None, project: None, launch: None, task: None, detail: None }
}

/// An event of a pair.
pub(super) fn of_pair(kind: &'static str, at: Timestamp, key: &InstanceKey) -> NewEvent {
    let (agent, project) = (Some(key.agent.clone()), Some(key.project.clone()));
    NewEvent { agent, project, detail: Some(key.purpose.to_string()), ..bare(kind, at) }
}

/// The events that `changes` don't bring along.
pub(super) fn untold(changes: &[Change], now: Timestamp) -> Vec<NewEvent> {
    let told: Vec<&NewEvent> = changes
        .iter()
        .filter_map(|change| if let Change::Event(event) = change { Some(event) } else { None })
        .collect();
    let told_tasks: BTreeSet<&TaskId> =
        told.iter().filter_map(|event| event.task.as_ref()).collect();
    let tells_of_accounts = told
        .iter()
        .any(|event| event.kind.starts_with("provider.") || event.kind == "person.resume");
    let keys: BTreeMap<&LaunchId, &InstanceKey> = changes
        .iter()
        .filter_map(|change| {
            if let Change::Launch(launch) = change { Some((&launch.id, &launch.key)) } else { None }
        })
        .collect();
    let mut events = Vec::new();
    for change in changes {
        events.extend(match change {
            Change::Agent(agent) => {
                let kind = if agent.revision == 0 { "agent.created" } else { "agent.changed" };
                Some(NewEvent { agent: Some(agent.id.clone()), ..bare(kind, now) })
            }
            Change::Project(project) => {
                let kind =
                    if project.revision == 0 { "project.created" } else { "project.changed" };
                Some(NewEvent { project: Some(project.id.clone()), ..bare(kind, now) })
            }
            Change::Assign(assignment) => Some(of_assignment("assignment.added", assignment, now)),
            Change::Unassign(assignment) => {
                Some(of_assignment("assignment.removed", assignment, now))
            }
            Change::Task(task) if !told_tasks.contains(&task.id) => {
                Some(of_task("task.changed", task, now))
            }
            Change::Session(session) => of_session(session, now),
            Change::Execution(execution) => Some(of_execution(execution, now)),
            Change::Notice(notice) => {
                Some(of_notice(notice, keys.get(&notice.launch).copied(), now))
            }
            Change::Account(account) if !tells_of_accounts => Some(account_event(account, now)),
            // Told by those who change them, or seen by nobody.
            Change::Task(_)
            | Change::Account(_)
            | Change::Launch(_)
            | Change::Message(_)
            | Change::OutputTail(..)
            | Change::Credential(_)
            | Change::ForgetCredential(_)
            | Change::ForgeItem(_)
            | Change::ForgetItem(_)
            | Change::Pair(_)
            | Change::Pause(_)
            | Change::ForgetLaunch(_)
            | Change::ForgetEvents(_)
            | Change::ForgetMessages(..)
            | Change::Event(_) => None,
        });
    }
    events
}

/// The event that tells of a task.
pub(super) fn of_task(kind: &'static str, task: &Task, now: Timestamp) -> NewEvent {
    NewEvent {
        agent: task.assignee.clone(),
        project: Some(task.project.clone()),
        task: Some(task.id.clone()),
        detail: Some(task.status.to_string()),
        ..bare(kind, now)
    }
}

fn of_assignment(kind: &'static str, assignment: &Assignment, now: Timestamp) -> NewEvent {
    let Assignment { project, agent } = assignment.clone();
    NewEvent { project: Some(project), agent: Some(agent), ..bare(kind, now) }
}

/// Its beginning and its end; that it was seen is no news.
fn of_session(session: &Session, now: Timestamp) -> Option<NewEvent> {
    let (kind, detail) = match session.ended {
        Some((_, reason)) => ("session.ended", reason.to_string()),
        None if session.revision == 0 => ("session.opened", session.key.purpose.to_string()),
        None => return None,
    };
    let launch = Some(session.launch.clone());
    Some(NewEvent { launch, detail: Some(detail), ..of_pair(kind, now, &session.key) })
}

fn of_execution(execution: &Execution, now: Timestamp) -> NewEvent {
    let kind = match (execution.revision, execution.ended_at) {
        (0, _) => "execution.started",
        (_, None) => "execution.changed",
        (_, Some(_)) => "execution.ended",
    };
    let detail = execution.result.map(|result| result.as_str().to_owned());
    let (launch, task) = (Some(execution.launch.clone()), Some(execution.task.clone()));
    NewEvent { launch, task, detail, ..of_pair(kind, now, &execution.key) }
}

fn of_notice(notice: &Notice, key: Option<&InstanceKey>, now: Timestamp) -> NewEvent {
    let kind = match (notice.revision, notice.settled_at, notice.read_at) {
        (0, ..) => "notice.created",
        (_, Some(_), _) => "notice.settled",
        (_, None, Some(_)) => "notice.read",
        (_, None, None) => "notice.changed",
    };
    let (launch, detail) = (Some(notice.launch.clone()), Some(notice.action.to_string()));
    let event = key.map_or_else(|| bare(kind, now), |key| of_pair(kind, now, key));
    NewEvent { launch, task: notice.task.clone(), detail, ..event }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Account, Agent, AgentId};

    fn agent(revision: i64) -> Agent {
        let id: AgentId = "agt_a".parse().expect("an id");
        Agent {
            name: String::new(),
            id,
            ai_type: "claude".to_owned(),
            system_prompt: String::new(),
            passkey: None,
            status: crate::domain::agent::AgentStatus::Active,
            created_at: Timestamp::from_millis(0),
            revision,
        }
    }

    fn kinds(changes: &[Change]) -> Vec<&'static str> {
        untold(changes, Timestamp::from_millis(1)).iter().map(|event| event.kind).collect()
    }

    #[test]
    fn what_rows_say_by_themselves_is_told() {
        let assignment = Assignment {
            project: "prj".parse().expect("an id"),
            agent: "agt_a".parse().expect("an id"),
        };
        let changes = [
            Change::Agent(agent(0)),
            Change::Assign(assignment.clone()),
            Change::Unassign(assignment),
        ];
        assert_eq!(kinds(&changes), ["agent.created", "assignment.added", "assignment.removed"]);
        assert_eq!(kinds(&[Change::Agent(agent(1))]), ["agent.changed"]);
    }

    #[test]
    fn what_is_told_already_is_not_told_twice() {
        let account = Change::Account(Account::new("claude".to_owned()));
        assert_eq!(kinds(std::slice::from_ref(&account)), ["provider.works"]);
        let event = Change::Event(bare("person.resume", Timestamp::from_millis(1)));
        assert_eq!(kinds(&[account, event]), [""; 0]);
    }
}
