//! Tasks that begin when their dependencies are done.

use super::*;

fn after(dependencies: &[&str], task: Task) -> Task {
    let dependencies = dependencies.iter().map(|id| id.parse().expect("an id")).collect();
    Task { dependencies, ..task }
}

/// Returns a task that waits for `dependencies`.
fn waiting(id: &str, dependencies: &[&str]) -> Task {
    let start_wanted_since = Some(Timestamp::from_millis(1));
    Task { start_wanted_since, ..after(dependencies, task(id, TaskStatus::Todo)) }
}

/// Returns the ids and statuses of the tasks that change with a status of the first of `tasks`.
fn statuses(tasks: &[Task], to: TaskStatus, actor: Actor<'_>) -> Vec<(String, TaskStatus)> {
    let changed = change_status(tasks, to, None, actor).expect("a possible change");
    changed.into_iter().map(|task| (task.id.to_string(), task.status)).collect()
}

#[test]
fn the_change_that_finishes_the_last_dependency_begins_the_task() {
    use TaskStatus::{Cancelled, Done, InProgress, Todo};
    let mine = agent("agt");
    let c = waiting("c", &["a", "b"]);
    let a = task("a", InProgress);
    let done = |id: &str| (id.to_owned(), Done);
    for actor in [Actor::Person, Actor::Agent(&mine)] {
        let with = |b| [a.clone(), task("b", b), c.clone(), waiting("d", &["c"])];
        assert_eq!(statuses(&with(Todo), Done, actor), [done("a")]);
        assert_eq!(statuses(&with(Cancelled), Done, actor), [done("a")]);
        assert_eq!(statuses(&with(Done), Done, actor), [done("a"), ("c".to_owned(), InProgress)]);
    }
    // The start of this one is not wanted.
    let unwanted = Task { start_wanted_since: None, ..waiting("c", &["a"]) };
    assert_eq!(statuses(&[a.clone(), unwanted], Done, Actor::Person), [done("a")]);
    let cancelled = statuses(&[a, waiting("c", &["a"])], Cancelled, Actor::Person);
    assert_eq!(cancelled, [("a".to_owned(), Cancelled)]);
}

#[test]
fn a_person_who_changes_the_status_or_the_assignee_withdraws_the_wish() {
    let before = waiting("c", &["a"]);
    let a = task("a", TaskStatus::Todo);
    let wish_after = |edit: TaskEdit| {
        let wanted = edit.apply(&before).expect("a valid edit");
        let around = graph([&a, &wanted]);
        let changed = change(Some(&before), &wanted, Actor::Person, &around, NOW).expect("allowed");
        changed.first().unwrap_or(&before).start_wanted_since
    };
    let status = |status| TaskEdit { status: Some(status), ..TaskEdit::default() };
    assert_eq!(wish_after(status(TaskStatus::Todo)), None);
    assert_eq!(wish_after(status(TaskStatus::Backlog)), None);
    assert_eq!(wish_after(TaskEdit { assignee: Some(None), ..TaskEdit::default() }), None);
    let other = TaskEdit { assignee: Some(Some(agent("bob"))), ..TaskEdit::default() };
    assert_eq!(wish_after(other), None);
    let kept = before.start_wanted_since;
    let title = TaskEdit { title: Some("another".to_owned()), ..TaskEdit::default() };
    assert_eq!(wish_after(title), kept);
    let same = TaskEdit { assignee: Some(before.assignee.clone()), ..TaskEdit::default() };
    assert_eq!(wish_after(same), kept);
    assert_eq!(wish_after(status(TaskStatus::InProgress)), kept);
}

#[test]
fn wanting_a_start_again_changes_nothing() {
    let tasks = [waiting("c", &["a"]), task("a", TaskStatus::InProgress)];
    assert_eq!(statuses(&tasks, TaskStatus::InProgress, Actor::Person), []);
}

#[test]
fn a_task_without_its_open_dependency_begins_at_once() {
    let before = waiting("c", &["a"]);
    let edit = TaskEdit { dependencies: Some(Vec::new()), ..TaskEdit::default() };
    let wanted = edit.apply(&before).expect("a valid edit");
    let changed = change(Some(&before), &wanted, Actor::Person, &graph([&wanted]), NOW).unwrap();
    assert_eq!((changed[0].status, changed[0].start_wanted_since), (TaskStatus::InProgress, None));
}

#[test]
fn an_agent_is_refused_while_a_dependency_is_open() {
    let mine = agent("agt");
    let tasks = [after(&["a"], task("c", TaskStatus::Todo)), task("a", TaskStatus::Todo)];
    let refused = change_status(&tasks, TaskStatus::InProgress, None, Actor::Agent(&mine));
    assert!(matches!(refused, Err(Refusal::DependenciesOpen { .. })));
}

#[test]
fn a_task_that_is_blocked_with_its_parent_begins_when_both_go_on() {
    let parent = task("p", TaskStatus::InProgress);
    let part = part_of("p", waiting("c", &["a"]));
    let blocked = change_status(&[parent, part], TaskStatus::Blocked, None, Actor::Person).unwrap();
    assert!(blocked[1].start_wanted_since.is_some());
    let tasks = [blocked[0].clone(), blocked[1].clone(), task("a", TaskStatus::Done)];
    let expected =
        [("p".to_owned(), TaskStatus::InProgress), ("c".to_owned(), TaskStatus::InProgress)];
    assert_eq!(statuses(&tasks, TaskStatus::InProgress, Actor::Person), expected);
}
