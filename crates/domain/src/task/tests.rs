use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

mod chain;
mod relation;

const NOW: Timestamp = Timestamp::from_millis(1_000);

fn task(id: &str, status: TaskStatus) -> Task {
    let new = NewTask {
        status,
        assignee: Some("agt".parse().expect("an id")),
        ..NewTask::new("prj".parse().expect("an id"), "a title")
    };
    let short_id = "PRJ-1".parse().expect("a short id");
    let task = new.to_task(id.parse().expect("an id"), short_id, Timestamp::from_millis(0));
    Task { revision: 1, ..task.expect("a short title") }
}

fn agent(id: &str) -> AgentId {
    id.parse().expect("an id")
}

/// Returns the graph of `tasks`.
fn graph<'a>(tasks: impl IntoIterator<Item = &'a Task>) -> TaskGraph {
    tasks.into_iter().cloned().collect()
}

/// Returns the changes that give the first of `tasks` this status.
fn change_status(
    tasks: &[Task],
    to: TaskStatus,
    reason: Option<&str>,
    actor: Actor<'_>,
) -> Result<Vec<Task>, Refusal> {
    let before = &tasks[0];
    let after = Task { status: to, blocked_reason: reason.map(str::to_owned), ..before.clone() };
    let graph = graph(tasks.iter().skip(1).chain([&after]));
    change(Some(before), &after, actor, &graph, NOW)
}

fn part_of(parent: &str, task: Task) -> Task {
    Task { parent: Some(parent.parse().expect("an id")), ..task }
}

#[track_caller]
fn check(from: TaskStatus, to: TaskStatus, people: bool, agents: bool) {
    let task = task("tsk", from);
    let mine = agent("agt");
    for (actor, is_possible) in [(Actor::Person, people), (Actor::Agent(&mine), agents)] {
        let changed = change_status(std::slice::from_ref(&task), to, None, actor);
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
                (Todo, Backlog | InProgress | Done | Cancelled) => (true, true),
                (InProgress, Todo | Blocked | Done | Cancelled) => (true, true),
                (Blocked, Todo | InProgress | Cancelled) => (true, true),
                // Agents keep the order of work. People finish and block by hand.
                (Backlog | Blocked, Done) | (Backlog | Todo, Blocked) => (true, false),
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
    let part = |id: &str, status| part_of("tsk", task(id, status));
    let open = [parent.clone(), part("sub_1", TaskStatus::Done), part("sub_2", TaskStatus::Todo)];
    let refusal = change_status(&open, TaskStatus::Done, None, Actor::Person).unwrap_err();
    assert_eq!(refusal.to_string(), "Task PRJ-1 has subtasks that are not finished: PRJ-1");
    let closed = [parent, part("sub_1", TaskStatus::Done), part("sub_2", TaskStatus::Cancelled)];
    assert!(change_status(&closed, TaskStatus::Done, None, Actor::Person).is_ok());
}

#[test]
fn nothing_open_comes_to_be_part_of_what_is_closed() {
    for status in [TaskStatus::Done, TaskStatus::Cancelled] {
        let parent = task("tsk", status);
        let refused = Refusal::ParentClosed { parent: parent.short_id.to_string(), status };
        let new = part_of("tsk", task("new", TaskStatus::Backlog));
        let around = graph([&parent, &new]);
        assert_eq!(change(None, &new, Actor::Person, &around, NOW), Err(refused.clone()));
        let moved = Task { parent: None, ..new.clone() };
        assert_eq!(change(Some(&moved), &new, Actor::Person, &around, NOW), Err(refused.clone()));
        let over = part_of("tsk", task("old", TaskStatus::Done));
        assert_eq!(
            change_status(&[over.clone(), parent.clone()], TaskStatus::Todo, None, Actor::Person),
            Err(refused)
        );
        assert!(change(None, &over, Actor::Person, &graph([&parent, &over]), NOW).is_ok());
    }
}

#[test]
fn work_begins_with_an_assignee_and_finished_dependencies() {
    let nobodys = Task { assignee: None, ..task("tsk", TaskStatus::Todo) };
    let begin = |task: &Task, dependencies: &[Task]| {
        let dependencies = dependencies.iter();
        let task = Task {
            dependencies: dependencies.clone().map(|other| other.id.clone()).collect(),
            ..task.clone()
        };
        let tasks: Vec<Task> = [task].iter().chain(dependencies).cloned().collect();
        change_status(&tasks, TaskStatus::InProgress, None, Actor::Person)
    };
    assert!(matches!(begin(&nobodys, &[]), Err(Refusal::NeedsAssignee { .. })));
    let mine = task("tsk", TaskStatus::Todo);
    let waits = begin(&mine, &[task("dep", TaskStatus::Cancelled)]).unwrap();
    assert_eq!((waits[0].status, waits[0].start_wanted_since), (TaskStatus::Todo, Some(NOW)));
    let begun = begin(&mine, &[task("dep", TaskStatus::Done)]).unwrap();
    assert_eq!((begun[0].status, begun[0].start_wanted_since), (TaskStatus::InProgress, None));
}

/// A tree of three levels, one of whose leaves was blocked before.
fn tree(status: TaskStatus) -> [Task; 7] {
    use TaskStatus::{Backlog, Blocked, Done, InProgress, Todo};
    let blocked =
        Task { blocked_reason: Some("a reason of its own".to_owned()), ..task("sub_4", Blocked) };
    [
        task("tsk", status),
        part_of("tsk", task("sub_1", InProgress)),
        part_of("sub_1", task("sub_1a", Todo)),
        part_of("tsk", task("sub_2", Backlog)),
        part_of("sub_2", task("sub_2a", Todo)),
        part_of("tsk", task("sub_3", Done)),
        part_of("tsk", blocked),
    ]
}

fn names(tasks: &[Task]) -> Vec<&str> {
    tasks.iter().map(|task| task.id.as_str()).collect()
}

#[test]
fn blocking_a_parent_blocks_what_could_go_on_below_it_until_it_goes_on_itself() {
    let tree = tree(TaskStatus::InProgress);
    let blocked =
        change_status(&tree, TaskStatus::Blocked, Some("a reason"), Actor::Person).unwrap();
    assert_eq!(names(&blocked), ["tsk", "sub_1", "sub_1a", "sub_2a"]);
    assert!(blocked.iter().all(|task| task.status == TaskStatus::Blocked));
    assert_eq!(blocked[0].blocked_reason.as_deref(), Some("a reason"));
    assert!(
        blocked[1..]
            .iter()
            .all(|task| task.blocked_reason.as_deref() == Some("parent task tsk is blocked"))
    );

    let mut after = graph(&tree);
    after.extend(blocked.iter().cloned());
    let resumed = Task { status: TaskStatus::InProgress, ..blocked[0].clone() };
    after.insert(resumed.clone());
    let freed = change(Some(&blocked[0]), &resumed, Actor::Person, &after, NOW).unwrap();
    assert_eq!(names(&freed), ["tsk", "sub_1", "sub_1a", "sub_2a"]);
    assert!(
        freed[1..]
            .iter()
            .all(|task| task.status == TaskStatus::Todo && task.blocked_reason.is_none())
    );
}

#[test]
fn cancelling_a_parent_cancels_all_that_is_open_below_it() {
    let cancelled =
        change_status(&tree(TaskStatus::Todo), TaskStatus::Cancelled, None, Actor::Person).unwrap();
    assert_eq!(names(&cancelled), ["tsk", "sub_1", "sub_2", "sub_4", "sub_1a", "sub_2a"]);
    assert!(
        cancelled
            .iter()
            .all(|task| task.status == TaskStatus::Cancelled && task.blocked_reason.is_none())
    );
}

#[test]
fn agents_change_what_is_theirs_and_what_is_part_of_that() {
    let theirs = agent("agt_other");
    let top = Task { assignee: Some(theirs.clone()), ..task("top", TaskStatus::InProgress) };
    let tree = [
        part_of("mid", task("tsk", TaskStatus::InProgress)),
        part_of("top", task("mid", TaskStatus::Todo)),
        top,
    ];
    let by = |agent: &AgentId, tasks: &[Task]| {
        change_status(tasks, TaskStatus::Todo, None, Actor::Agent(agent))
    };
    assert!(matches!(by(&theirs, &tree[..2]), Err(Refusal::NotYourTask { .. })));
    assert!(by(&theirs, &tree).is_ok());
    assert!(by(&agent("agt"), &tree[..1]).is_ok());
}

#[test]
fn agents_make_parts_of_their_tasks_and_top_tasks_that_begin_nothing() {
    let mine = agent("agt");
    let theirs = agent("agt_other");
    let parent = task("tsk", TaskStatus::InProgress);
    let make = |new: &Task, agent| {
        change(None, new, Actor::Agent(agent), &graph([&parent, new]), NOW).map(|_| ())
    };
    let part =
        part_of("tsk", Task { assignee: Some(theirs.clone()), ..task("new", TaskStatus::Todo) });
    assert_eq!(make(&part, &mine), Ok(()));
    assert_eq!(make(&part, &theirs), Err(Refusal::NotYourTask { task: parent.id.clone() }));
    assert_eq!(make(&task("new", TaskStatus::Backlog), &theirs), Ok(()));
    assert!(matches!(make(&task("new", TaskStatus::InProgress), &mine), Err(Refusal::Invalid(_))));
}

/// Checks the answer to a new task with this parent and these dependencies, beside the other tasks:
/// `(id, parent, dependencies)`.
#[track_caller]
fn check_shape_of(
    others: &[(&str, &str, &[&str])],
    new: (&str, &str, &[&str]),
    expected: Result<(), &str>,
) {
    let shaped = |(id, parent, dependencies): &(&str, &str, &[&str])| Task {
        parent: parent.parse().ok(),
        dependencies: dependencies.iter().map(|id| id.parse().expect("an id")).collect(),
        ..task(id, TaskStatus::Todo)
    };
    let (others, new): (Vec<Task>, Task) = (others.iter().map(shaped).collect(), shaped(&new));
    let said = change(None, &new, Actor::Person, &graph(others.iter().chain([&new])), NOW);
    assert_eq!(
        said.map(|_| ()).map_err(|refusal| refusal.to_string()),
        expected.map_err(str::to_owned)
    );
}

#[test]
fn a_task_never_waits_for_itself() {
    let loops = |way: &str| format!("A task would wait for itself: {way}");
    check_shape_of(&[("a", "", &[])], ("b", "", &["a"]), Ok(()));
    check_shape_of(&[], ("a", "", &["b"]), Err("There is no task b in project prj"));
    check_shape_of(&[], ("a", "b", &[]), Err("There is no task b in project prj"));
    check_shape_of(&[], ("a", "a", &[]), Err("Task a can't be part of itself"));
    check_shape_of(&[("b", "a", &[])], ("a", "b", &[]), Err("Task a can't be part of itself"));
    check_shape_of(&[], ("a", "", &["a"]), Err(&loops("a -> a")));
    check_shape_of(
        &[("b", "", &["c"]), ("c", "", &["a"])],
        ("a", "", &["b"]),
        Err(&loops("a -> b -> c -> a")),
    );
    let kin = |task: &str, other: &str| {
        format!("Task {task} can't depend on {other}: one is part of the other")
    };
    check_shape_of(&[("b", "c", &[]), ("c", "", &[])], ("a", "b", &["c"]), Err(&kin("a", "c")));
    check_shape_of(&[("b", "a", &[]), ("c", "b", &[])], ("a", "", &["c"]), Err(&kin("a", "c")));
    // The parent waits for its part, the part for another task, and that task for the parent.
    check_shape_of(
        &[("p", "", &[]), ("x", "", &["p"])],
        ("a", "p", &["x"]),
        Err(&loops("a -> x -> p -> a")),
    );
}

#[test]
fn the_next_task_is_the_bound_one_then_the_most_urgent_then_the_oldest() {
    let at = |id: &str, priority, millis| Task {
        priority,
        created_at: Timestamp::from_millis(millis),
        ..task(id, TaskStatus::InProgress)
    };
    let tasks = [
        at("old", Priority::Medium, 1),
        at("urgent", Priority::Urgent, 3),
        at("new", Priority::Medium, 2),
    ];
    let next = |bound: Option<&str>, tasks: &[Task]| {
        let bound = bound.map(|id| id.parse().expect("an id"));
        next_task(bound.as_ref(), tasks, &graph(tasks)).map(|task| task.id.to_string())
    };
    assert_eq!(next(None, &tasks).as_deref(), Some("urgent"));
    assert_eq!(next(Some("new"), &tasks).as_deref(), Some("new"));
    assert_eq!(next(Some("gone"), &tasks[..1]).as_deref(), Some("old"));
    assert_eq!(next(None, &[]), None);
    // A parent comes before its parts, however urgent they are.
    let tree = [part_of("old", tasks[1].clone()), tasks[0].clone()];
    assert_eq!(next(None, &tree).as_deref(), Some("old"));
    assert_eq!(next(Some("urgent"), &tree).as_deref(), Some("urgent"));
}

/// A requested change of one of a few tasks.
#[derive(Debug, Clone)]
struct Wish {
    task: usize,
    status: TaskStatus,
    parent: Option<usize>,
    dependency: Option<usize>,
    assignee: Option<&'static str>,
    /// The bits of the fields above that are to change.
    what: u8,
    by: Option<&'static str>,
}

fn wish() -> impl Strategy<Value = Wish> {
    let one = 0..N_TASKS;
    let agent = select(vec![None, Some("ann"), Some("bob")]);
    (
        one.clone(),
        select(TaskStatus::ALL),
        option::of(one.clone()),
        option::of(one),
        agent.clone(),
        0..16u8,
        agent,
    )
        .prop_map(|(task, status, parent, dependency, assignee, what, by)| Wish {
            task,
            status,
            parent,
            dependency,
            assignee,
            what,
            by,
        })
}

const N_TASKS: usize = 7;

fn nth(n: usize) -> TaskId {
    format!("tsk_{n}").parse().expect("an id")
}

/// Checks the invariants of all tasks, which no earlier change may break.
fn check_all(tasks: &TaskGraph) {
    for task in tasks.tasks() {
        assert!(tasks.find_cycle(&task.id).is_none(), "{task:?}");
        assert!(
            task.status.is_open()
                || tasks.descendants(&task.id).iter().all(|part| !part.status.is_open()),
            "{task:?}"
        );
        assert!(task.status != TaskStatus::InProgress || task.assignee.is_some(), "{task:?}");
        assert!(task.status == TaskStatus::Blocked || task.blocked_reason.is_none(), "{task:?}");
        assert!(
            task.parent.iter().chain(&task.dependencies).all(|other| tasks.find(other).is_some()),
            "{task:?}"
        );
    }
}

proptest! {
    /// Checks what a change leaves alone and what it never leaves behind.
    #[test]
    fn a_reason_stands_only_at_what_is_blocked(from in 0usize..6, to in 0usize..6, by_agent: bool) {
        let from = TaskStatus::ALL[from];
        let to = TaskStatus::ALL[to];
        let mine = agent("agt");
        let actor = if by_agent { Actor::Agent(&mine) } else { Actor::Person };
        let task = Task { blocked_reason: (from == TaskStatus::Blocked).then(|| "why".to_owned()), ..task("tsk", from) };
        if let Ok(changed) = change_status(&[task], to, Some("why"), actor) {
            prop_assert!(changed.is_empty() || from != to || from != TaskStatus::Blocked);
            for task in changed {
                prop_assert_eq!(task.status, to);
                prop_assert_eq!(task.blocked_reason.is_some(), to == TaskStatus::Blocked);
                prop_assert_eq!(task.status_since == NOW, from != to);
            }
        }
    }

    /// Checks random changes by people and agents in random order.
    #[test]
    fn no_wish_makes_a_forest_that_must_not_be(wishes in vec(wish(), 1..60)) {
        let mut tasks = TaskGraph::default();
        for wish in wishes {
            let before = tasks.find(&nth(wish.task)).cloned();
            let is_wished = |bit: u8| before.is_none() || wish.what & bit != 0;
            let base = before.clone().unwrap_or_else(|| task(nth(wish.task).as_str(), wish.status));
            let after = Task {
                status: if is_wished(1) { wish.status } else { base.status },
                parent: if is_wished(2) { wish.parent.map(nth) } else { base.parent.clone() },
                dependencies: if is_wished(4) { wish.dependency.map(nth).into_iter().collect() } else { base.dependencies.clone() },
                assignee: if is_wished(8) { wish.assignee.map(agent) } else { base.assignee.clone() },
                ..base
            };
            let by = wish.by.map(agent);
            let actor = by.as_ref().map_or(Actor::Person, Actor::Agent);
            let mut wished = tasks.clone();
            wished.insert(after.clone());
            let Ok(changed) = change(before.as_ref(), &after, actor, &wished, NOW) else { continue };
            let changed_first = changed.first().cloned();
            tasks.extend(changed);
            check_all(&tasks);
            let is_begun = after.status == TaskStatus::InProgress && before.as_ref().is_none_or(|task| task.status != after.status);
            let has_begun = |first: &Task| is_begun && first.status == TaskStatus::InProgress;
            if let Some(first) = changed_first.filter(has_begun) {
                prop_assert_eq!(first.start_wanted_since, None);
                prop_assert!(after.dependencies.iter().all(|id| tasks.find(id).is_some_and(|task| task.status == TaskStatus::Done)));
            }
            if let (Some(by), Some(before)) = (&by, &before) {
                let above = wished.ancestors(before);
                prop_assert!([before].into_iter().chain(above).any(|task| task.assignee.as_ref() == Some(by)));
            }
        }
    }
}
