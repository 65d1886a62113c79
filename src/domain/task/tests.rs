use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_000);

fn task(id: &str, status: TaskStatus) -> Task {
    Task {
        id: id.parse().expect("an id"),
        project: "prj".parse().expect("an id"),
        parent: None,
        title: "a title".to_owned(),
        description: String::new(),
        status,
        priority: Priority::Medium,
        assignee: Some("agt".parse().expect("an id")),
        dependencies: Vec::new(),
        blocked_reason: None,
        created_at: Timestamp::from_millis(0),
        status_since: Timestamp::from_millis(0),
        revision: 1,
    }
}

fn agent(id: &str) -> AgentId {
    id.parse().expect("an id")
}

#[track_caller]
fn check(from: TaskStatus, to: TaskStatus, people: bool, agents: bool) {
    let task = task("tsk", from);
    let mine = agent("agt");
    for (actor, is_possible) in [(Actor::Person, people), (Actor::Agent(&mine), agents)] {
        let changed = change_status(&task, to, None, actor, Surroundings::default(), NOW);
        assert_eq!(changed.is_ok(), is_possible, "{from} -> {to} by {actor:?}: {changed:?}");
    }
}

#[test]
fn the_table_of_transitions_is_contract_mds() {
    use TaskStatus::{Backlog, Blocked, Cancelled, Done, InProgress, Todo};
    for from in [Backlog, Todo, InProgress, Blocked, Done, Cancelled] {
        for to in [Backlog, Todo, InProgress, Blocked, Done, Cancelled] {
            let (people, agents) = match (from, to) {
                _ if from == to => (true, true),
                (Backlog, Todo | InProgress | Cancelled) => (true, true),
                (Todo, Backlog | InProgress | Cancelled) => (true, true),
                (Todo, Done) => (false, true),
                (InProgress, Todo | Blocked | Done | Cancelled) => (true, true),
                (Blocked, Todo | InProgress | Cancelled) => (true, true),
                (Done | Cancelled, Todo) => (true, false),
                _ => (false, false),
            };
            check(from, to, people, agents);
        }
    }
}

#[test]
fn a_parent_is_not_done_before_its_subtasks() {
    let parent = task("tsk", TaskStatus::InProgress);
    let subtasks = [task("sub_1", TaskStatus::Done), task("sub_2", TaskStatus::Todo)];
    let around = Surroundings { subtasks: &subtasks, ..Surroundings::default() };
    let refusal = change_status(&parent, TaskStatus::Done, None, Actor::Person, around, NOW).unwrap_err();
    assert_eq!(refusal.to_string(), "Task tsk has subtasks that are not finished: sub_2");
    let closed = [task("sub_1", TaskStatus::Done), task("sub_2", TaskStatus::Cancelled)];
    let around = Surroundings { subtasks: &closed, ..Surroundings::default() };
    assert!(change_status(&parent, TaskStatus::Done, None, Actor::Person, around, NOW).is_ok());
}

#[test]
fn work_begins_with_an_assignee_and_finished_dependencies() {
    let nobodys = Task { assignee: None, ..task("tsk", TaskStatus::Todo) };
    let begin = |task: &Task, dependencies: &[Task]| {
        let around = Surroundings { dependencies, ..Surroundings::default() };
        change_status(task, TaskStatus::InProgress, None, Actor::Person, around, NOW)
    };
    assert!(matches!(begin(&nobodys, &[]), Err(Refusal::NeedsAssignee { .. })));
    let mine = task("tsk", TaskStatus::Todo);
    assert!(matches!(begin(&mine, &[task("dep", TaskStatus::Cancelled)]), Err(Refusal::DependenciesOpen { .. })));
    assert!(begin(&mine, &[task("dep", TaskStatus::Done)]).is_ok());
}

#[test]
fn blocking_a_parent_blocks_its_open_subtasks() {
    let parent = task("tsk", TaskStatus::InProgress);
    let subtasks = [
        task("sub_1", TaskStatus::InProgress),
        task("sub_2", TaskStatus::Todo),
        task("sub_3", TaskStatus::Done),
        task("sub_4", TaskStatus::Backlog),
    ];
    let around = Surroundings { subtasks: &subtasks, ..Surroundings::default() };
    let changed = change_status(&parent, TaskStatus::Blocked, Some("a reason"), Actor::Person, around, NOW).unwrap();
    let ids: Vec<&str> = changed.iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids, ["tsk", "sub_1", "sub_2"]);
    assert!(changed.iter().all(|task| task.status == TaskStatus::Blocked && task.blocked_reason.is_some()));
}

#[test]
fn agents_change_what_is_theirs_and_the_subtasks_of_it() {
    let theirs = agent("agt_other");
    let parent = Task { assignee: Some(theirs.clone()), ..task("parent", TaskStatus::InProgress) };
    let subtask = task("tsk", TaskStatus::InProgress);
    let by = |agent: &AgentId, parent: Option<&Task>| {
        let around = Surroundings { parent, ..Surroundings::default() };
        change_status(&subtask, TaskStatus::Todo, None, Actor::Agent(agent), around, NOW)
    };
    assert!(matches!(by(&theirs, None), Err(Refusal::NotYourTask { .. })));
    assert!(by(&theirs, Some(&parent)).is_ok());
    assert!(by(&agent("agt"), None).is_ok());
}

#[test]
fn the_next_task_is_the_bound_one_then_the_most_urgent_then_the_oldest() {
    let at = |id: &str, priority, millis| Task {
        priority,
        created_at: Timestamp::from_millis(millis),
        ..task(id, TaskStatus::InProgress)
    };
    let tasks = [at("old", Priority::Medium, 1), at("urgent", Priority::Urgent, 3), at("new", Priority::Medium, 2)];
    let next = |bound: Option<&str>, tasks: &[Task]| {
        let bound = bound.map(|id| id.parse().expect("an id"));
        next_task(bound.as_ref(), tasks).map(|task| task.id.to_string())
    };
    assert_eq!(next(None, &tasks).as_deref(), Some("urgent"));
    assert_eq!(next(Some("new"), &tasks).as_deref(), Some("new"));
    assert_eq!(next(Some("gone"), &tasks[..1]).as_deref(), Some("old"));
    assert_eq!(next(None, &[]), None);
}

proptest! {
    /// What a change leaves alone, and what it never leaves behind.
    #[test]
    fn a_reason_stands_only_at_what_is_blocked(from in 0usize..6, to in 0usize..6, by_agent: bool) {
        let (from, to) = (TaskStatus::ALL[from], TaskStatus::ALL[to]);
        let mine = agent("agt");
        let actor = if by_agent { Actor::Agent(&mine) } else { Actor::Person };
        if let Ok(changed) = change_status(&task("tsk", from), to, Some("why"), actor, Surroundings::default(), NOW) {
            prop_assert_eq!(changed.is_empty(), from == to);
            for task in changed {
                prop_assert_eq!(task.status, to);
                prop_assert_eq!(task.blocked_reason.is_some(), to == TaskStatus::Blocked);
                prop_assert_eq!(task.status_since, NOW);
            }
        }
    }
}
