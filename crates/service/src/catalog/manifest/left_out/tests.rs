//! The rule about deleted things in manifests, without a store.

use serde_json::{Value, json};

use super::*;

fn agent(id: &str) -> Value {
    json!({ "id": id, "name": id, "aiType": "claude", "systemPrompt": "", "status": "active" })
}

fn project(id: &str, agents: &[&str]) -> Value {
    json!({
        "id": id, "name": id, "workingDirectory": "/work", "agents": agents, "status": "active"
    })
}

/// Returns a task of `shop`, with these keys in place of the usual ones.
fn task(id: &str, keys: &Value) -> Value {
    let mut task = json!({
        "id": id, "project": "shop", "title": id, "description": "", "assignee": null,
        "status": "todo", "parent": null, "dependencies": [], "priority": "medium"
    });
    for (key, value) in keys.as_object().expect("keys with values") {
        task[key] = value.clone();
    }
    task
}

fn wanted(agents: &[Value], projects: &[Value], tasks: &[Value]) -> Wanted {
    let all = json!({ "agents": agents, "projects": projects, "tasks": tasks });
    serde_json::from_value(all).expect("a valid manifest")
}

fn of_agent(id: &str) -> Removable {
    Removable::Agent(id.parse().expect("a valid id"))
}

fn of_project(id: &str) -> Removable {
    Removable::Project(id.parse().expect("a valid id"))
}

fn of_task(id: &str) -> Removable {
    Removable::Task(id.parse().expect("a valid id"))
}

fn facts(deleted: impl IntoIterator<Item = Removable>, stored: &[&str]) -> Facts {
    Facts {
        deleted: deleted.into_iter().collect(),
        stored: stored.iter().map(|id| id.parse().expect("a valid id")).collect(),
    }
}

/// Returns all ids of entries in their order.
fn ids(wanted: &Wanted) -> Vec<&str> {
    let agents = wanted.agents.iter().map(|entry| entry.id.as_str());
    let projects = wanted.projects.iter().map(|entry| entry.id.as_str());
    let tasks = wanted.tasks.iter().map(|entry| entry.id.as_str());
    agents.chain(projects).chain(tasks).collect()
}

fn places(warnings: &[EntryProblem]) -> Vec<(Removable, Option<Field>)> {
    warnings.iter().map(|warning| (warning.of.clone(), warning.field)).collect()
}

fn plain_task(id: &str) -> Value {
    task(id, &json!({}))
}

#[test]
fn nothing_is_left_out_if_nothing_was_deleted() {
    let tasks = [task("a", &json!({ "assignee": "ann", "dependencies": ["b"] })), plain_task("b")];
    let mut all = wanted(&[agent("ann")], &[project("shop", &["ann"])], &tasks);
    assert!(take_out(&mut all, &Facts::default()).is_empty());
    assert_eq!(ids(&all), ["ann", "shop", "a", "b"]);
    assert_eq!(all.tasks[0].dependencies.len(), 1);
}

#[test]
fn deleted_entries_and_what_needs_them_are_left_out_and_the_rest_stays() {
    let tasks = [
        plain_task("hello"),
        task("of_old", &json!({ "project": "old" })),
        task("of_ann", &json!({ "assignee": "ann" })),
        task("below", &json!({ "parent": "hello" })),
        task("stays", &json!({ "assignee": "bob", "dependencies": ["other", "hello", "of_old"] })),
        plain_task("other"),
    ];
    let agents = [agent("ann"), agent("bob")];
    let projects = [project("old", &["bob"]), project("shop", &["ann", "bob"])];
    let mut all = wanted(&agents, &projects, &tasks);
    let deleted = [of_agent("ann"), of_project("old"), of_task("hello")];
    let warnings = take_out(&mut all, &facts(deleted, &[]));
    assert_eq!(ids(&all), ["bob", "shop", "stays", "other"]);
    assert_eq!(all.projects[0].agents.len(), 1);
    assert_eq!(all.tasks[0].dependencies.len(), 1);
    let expected = [
        (of_agent("ann"), None),
        (of_project("old"), None),
        (of_project("shop"), Some(("agents", Some(0)))),
        (of_task("hello"), None),
        (of_task("of_old"), Some(("project", None))),
        (of_task("of_ann"), Some(("assignee", None))),
        (of_task("below"), Some(("parent", None))),
        (of_task("stays"), Some(("dependencies", Some(1)))),
        (of_task("stays"), Some(("dependencies", Some(2)))),
    ];
    assert_eq!(places(&warnings), expected);
}

#[test]
fn a_deleted_thing_that_has_no_entry_any_more_is_left_out_of_others() {
    let tasks = [task("a", &json!({ "dependencies": ["hello"] }))];
    let mut all = wanted(&[], &[project("shop", &["ann"])], &tasks);
    let warnings = take_out(&mut all, &facts([of_agent("ann"), of_task("hello")], &[]));
    assert_eq!(ids(&all), ["shop", "a"]);
    assert_eq!(warnings.len(), 2);
}

#[test]
fn a_subtask_goes_with_a_parent_that_is_left_out_unless_the_parent_exists() {
    let tasks = [
        task("leaf", &json!({ "parent": "middle" })),
        task("middle", &json!({ "assignee": "ann" })),
        task("after", &json!({ "dependencies": ["middle"] })),
    ];
    let all = wanted(&[], &[], &tasks);
    let without: (&[&str], &[&str]) = (&[], &["after"]);
    for (stored, kept) in [without, (&["middle"], &["leaf", "after"])] {
        let mut all = all.clone();
        take_out(&mut all, &facts([of_agent("ann")], stored));
        assert_eq!(ids(&all), kept);
        let dependencies = &all.tasks.last().expect("the last task").dependencies;
        assert_eq!(dependencies.len(), stored.len());
    }
}

#[test]
fn a_warning_says_what_is_left_out_and_what_to_do() {
    let tasks = [
        plain_task("hello"),
        task("of_ann", &json!({ "assignee": "ann" })),
        task("below", &json!({ "parent": "of_ann" })),
        task("stays", &json!({ "dependencies": ["hello"] })),
    ];
    let mut all = wanted(&[], &[], &tasks);
    let warnings = take_out(&mut all, &facts([of_agent("ann"), of_task("hello")], &[]));
    let messages: Vec<&str> = warnings.iter().map(|warning| warning.message.as_str()).collect();
    let expected = [
        "the task `hello` was deleted, so it is left out; remove the entry, or give it another id",
        "the task `of_ann` is left out, because its assignee `ann` was deleted; \
         remove the entry, or name another assignee",
        "the task `below` is left out, because its parent `of_ann` is left out; \
         remove the entry, or name another parent",
        "the task `hello` was deleted, so it is left out of the dependencies of `stays`; \
         remove it from the list",
    ];
    assert_eq!(messages, expected);
}

#[test]
fn a_problem_in_a_shortened_list_has_its_place_in_the_file() {
    let problem = |id: &str, index| EntryProblem {
        of: of_task(id),
        field: Some(("dependencies", Some(index))),
        message: String::new(),
    };
    let taken = [problem("a", 0), problem("a", 2), problem("b", 0)];
    for (index, place) in [(0, 1), (1, 3), (2, 4)] {
        let mut problems = [problem("a", index), problem("c", index)];
        restore_places(&mut problems, &taken);
        assert_eq!(problems, [problem("a", place), problem("c", index)]);
    }
}

#[test]
fn a_warning_stands_with_the_result_of_its_entry_or_is_the_result() {
    let mut applied = vec![Applied {
        kind: "task".into(),
        id: "a".into(),
        what: AppliedAs::Created,
        warnings: vec![],
    }];
    let warning = |of, field| EntryProblem { of, field, message: "gone".to_owned() };
    let warnings =
        vec![warning(of_agent("a"), None), warning(of_task("a"), Some(("dependencies", Some(1))))];
    add_warnings(&mut applied, warnings);
    let expected = json!([
        {
            "kind": "task", "id": "a", "what": "created",
            "warnings": [{ "key": "dependencies", "index": 1, "message": "gone" }]
        },
        { "kind": "agent", "id": "a", "what": "left_out", "warnings": [{ "message": "gone" }] }
    ]);
    assert_eq!(serde_json::to_value(&applied).expect("valid JSON"), expected);
}
