use super::*;
use crate::task::{NewTask, begun};

const NOW: Timestamp = Timestamp::from_millis(1_000);

/// Returns a task of the project `prj`.
fn task(id: &str, status: TaskStatus, parent: Option<&str>, dependencies: &[&str]) -> Task {
    let new = NewTask {
        status,
        parent: parent.map(|parent| parent.parse().unwrap()),
        dependencies: dependencies.iter().map(|id| id.parse().unwrap()).collect(),
        ..NewTask::new("prj".parse().unwrap(), "a title")
    };
    let short_id = "PRJ-1".parse().unwrap();
    new.to_task(id.parse().unwrap(), short_id, Timestamp::from_millis(0)).unwrap()
}

fn todo(id: &str, parent: Option<&str>, dependencies: &[&str]) -> Task {
    task(id, TaskStatus::Todo, parent, dependencies)
}

/// Returns the problems of these tasks, of which the first is in line 2.
fn problems(new: Vec<Task>, known: Vec<Task>) -> Vec<String> {
    let mut graph: TaskGraph = new.iter().cloned().collect();
    graph.extend(known);
    let new: Vec<_> = (2..).zip(new).map(|(line, object)| Numbered { line, object }).collect();
    let mut problems = Problems::default();
    check(&new, &graph, &mut problems);
    let told = problems.sorted().told.into_iter();
    told.map(|problem| format!("{}: {}", problem.line, problem.message)).collect()
}

#[track_caller]
fn check_one(new: Vec<Task>, expected: &str) {
    let problems = problems(new, vec![todo("known", None, &[])]);
    assert!(problems.len() == 1 && problems[0].contains(expected), "{problems:?}");
}

#[test]
fn trees_and_chains_are_accepted() {
    let tasks = vec![
        todo("a", None, &["known"]),
        todo("b", Some("a"), &[]),
        todo("c", Some("a"), &["b"]),
        todo("d", Some("known"), &["b"]),
        task("e", TaskStatus::Done, None, &[]),
        task("f", TaskStatus::Cancelled, Some("e"), &[]),
    ];
    assert_eq!(problems(tasks, vec![todo("known", None, &[])]), [""; 0]);
}

#[test]
fn circles_of_dependencies_and_parents_are_refused_at_a_line_of_them() {
    check_one(vec![todo("a", None, &["b"]), todo("b", None, &["a"])], "2: a task would wait");
    check_one(vec![todo("a", Some("b"), &[]), todo("b", Some("a"), &[])], "a -> b -> a");
    check_one(vec![todo("a", Some("a"), &[])], "a -> a");
    check_one(vec![todo("a", None, &[]), todo("b", Some("a"), &["a"])], "wait for itself");
    // A circle that leads through tasks of the store.
    let known = vec![todo("p", None, &[]), todo("q", None, &["p"])];
    let found = problems(vec![todo("x", Some("p"), &["q"])], known);
    assert!(found.len() == 1 && found[0].starts_with("2: a task would wait"), "{found:?}");
    // A long one is not told in full.
    let n = 5_000;
    let next = |n: usize| format!("t{n}");
    let long = (0..n).map(|i| todo(&next(i), None, &[&next((i + 1) % n)])).collect();
    let found = problems(long, Vec::new());
    assert!(found.len() == 1 && found[0].contains("-> …"), "{found:?}");
}

#[test]
fn references_lead_to_tasks_of_the_same_project() {
    check_one(vec![todo("a", Some("none"), &[])], "`parent` names `none`, which is neither");
    check_one(vec![todo("a", None, &["known", "none"])], "`dependencies` names `none`");
    let other = Task { project: "other".parse().unwrap(), ..todo("o", None, &[]) };
    let found = problems(vec![todo("a", None, &["o"])], vec![other]);
    assert!(found.len() == 1 && found[0].contains("in another project"), "{found:?}");
}

#[test]
fn states_that_cannot_be_are_refused() {
    let closed = task("p", TaskStatus::Done, None, &[]);
    check_one(vec![closed, todo("a", Some("p"), &[])], "3: task `a` is todo, and its parent `p`");
    check_one(vec![task("a", TaskStatus::InProgress, None, &[])], "expected an `assignee`");
    let deep = vec![todo("a", None, &["c"]), todo("b", Some("a"), &[]), todo("c", Some("b"), &[])];
    check_one(deep, "2: task `a` depends on its own subtask `c`");
}

#[test]
fn a_deep_and_wide_file_takes_no_time() {
    let n = 20_000;
    let id = |n: usize| format!("t{n}");
    let tasks: Vec<Task> = (0..n)
        .map(|i| {
            let parent = (i > 0).then(|| id(i - 1));
            todo(&id(i), parent.as_deref(), &[])
        })
        .collect();
    assert_eq!(problems(tasks, Vec::new()), [""; 0]);
}

#[test]
fn nothing_starts_unless_it_is_asked_for() {
    let of = |status, wanted: bool| Task {
        assignee: Some("agt".parse().unwrap()),
        start_wanted_since: wanted.then_some(NOW),
        ..task("a", status, None, &["d"])
    };
    let begun_task = of(TaskStatus::InProgress, false);
    let kept = imported(begun_task.clone(), Starts::Nothing, NOW);
    assert_eq!((kept.status, kept.status_since), (TaskStatus::Todo, NOW));
    let kept = imported(begun_task, Starts::AsInFile, NOW);
    assert_eq!((kept.status, kept.status_since), (TaskStatus::InProgress, NOW));

    let waits = of(TaskStatus::Todo, true);
    assert_eq!(imported(waits.clone(), Starts::Nothing, NOW).start_wanted_since, None);
    assert_eq!(imported(waits.clone(), Starts::AsInFile, NOW), waits);
    let done = of(TaskStatus::Done, true);
    assert_eq!(imported(done, Starts::AsInFile, NOW).start_wanted_since, None);

    let graph = |status| TaskGraph::from_iter([task("d", status, None, &[])]);
    assert_eq!(begun(&waits, &graph(TaskStatus::Todo), NOW), None);
    let begins = begun(&waits, &graph(TaskStatus::Done), NOW).unwrap();
    assert_eq!((begins.status, begins.start_wanted_since), (TaskStatus::InProgress, None));
    assert_eq!(begun(&of(TaskStatus::Todo, false), &graph(TaskStatus::Done), NOW), None);
}
