//! Archiving and deleting: the rules on a real store, and the commands with the real binary.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use domain::agent::{AgentEdit, AgentStatus, ProjectEdit, ProjectStatus};
use domain::{AgentId, InstanceKey, ProjectId, Purpose, Refusal, Removable, TaskId, TaskStatus};
use runtime::nudge::Nudge;
use serde_json::{Value, json};
use service::world::SystemWorld;
use service::{ArchivedTasks, NewTask, Service, ServiceError, TaskEdit, TaskFilter};
use store::rows::Store;

use crate::control::{Response, send_to};
use crate::daemon::Daemon;
use crate::questions::Questions as _;
use crate::service::settings;
use crate::support::{git, until};
use crate::workspaces::{Bed, COMMITS};

fn id<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

fn task(text: &str) -> Removable {
    Removable::Task(id(text))
}

fn agent(text: &str) -> Removable {
    Removable::Agent(id(text))
}

fn project(text: &str) -> Removable {
    Removable::Project(id(text))
}

/// Makes the project `shop` with the agent `ann`, in a new store.
async fn shop() -> (Arc<Store>, Arc<Service>) {
    let store = Arc::new(Store::in_memory().unwrap());
    let world = Arc::new(SystemWorld);
    let service = Arc::new(Service::new(store.clone(), world, settings(), Nudge::new()));
    let edit = AgentEdit { name: Some("Ann".to_owned()), ..AgentEdit::default() };
    service.catalog.add_agent(Some(id("ann")), &edit).await.unwrap();
    let edit = ProjectEdit {
        name: Some("Shop".to_owned()),
        working_directory: Some(PathBuf::from("/shop")),
        assign: vec![id("ann")],
        ..ProjectEdit::default()
    };
    service.catalog.add_project(Some(id("shop")), &edit).await.unwrap();
    (store, service)
}

fn new_task(name: &str) -> NewTask {
    NewTask {
        id: Some(id(name)),
        assignee: Some(id("ann")),
        ..NewTask::new(id("shop"), format!("title of {name}"))
    }
}

async fn add(service: &Service, new: NewTask) {
    service.tasks.add(&new).await.unwrap();
}

async fn set(service: &Service, name: &str, status: TaskStatus) {
    let edit = TaskEdit { status: Some(status), ..TaskEdit::default() };
    service.tasks.set(&id(name), &edit).await.unwrap();
}

/// Adds a task and finishes it.
async fn add_done(service: &Service, new: NewTask) {
    let name = new.id.clone().unwrap();
    add(service, new).await;
    set(service, name.as_str(), TaskStatus::InProgress).await;
    set(service, name.as_str(), TaskStatus::Done).await;
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, ServiceError>) -> Refusal {
    match result {
        Err(ServiceError::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_deleted_task_is_gone_with_its_subtasks_and_no_id_is_given_again() {
    let (_store, service) = shop().await;
    add_done(&service, new_task("tsk")).await;
    let part = NewTask { parent: Some(id("tsk")), ..new_task("part") };
    set(&service, "tsk", TaskStatus::Todo).await;
    add(&service, part).await;
    set(&service, "part", TaskStatus::Cancelled).await;
    set(&service, "tsk", TaskStatus::InProgress).await;
    set(&service, "tsk", TaskStatus::Done).await;
    add(&service, NewTask { dependencies: vec![id("tsk")], ..new_task("next") }).await;

    let view = service.removals.delete(&task("tsk"), false).await.unwrap();
    let names: Vec<_> = view.affected.iter().flat_map(|them| them.names.clone()).collect();
    let expected = ["SHOP-1 title of tsk", "SHOP-2 title of part", "SHOP-3 title of next"];
    assert_eq!(names, expected);
    for gone in ["tsk", "part"] {
        assert_eq!(refused(service.tasks.view(&id(gone)).await).code(), "task_not_found");
    }
    let next = service.tasks.view(&id("next")).await.unwrap().task;
    assert_eq!(next.dependencies, [] as [TaskId; 0]);
    assert_eq!(service.tasks.full_id(id("SHOP-1")).await.unwrap(), id::<TaskId>("SHOP-1"));

    let found = service.removals.full_id(id("SHOP-1")).await.unwrap();
    assert_eq!(found, id::<TaskId>("tsk"));
    service.maintenance.cleanup().await.unwrap();
    assert_eq!(refused(service.tasks.add(&new_task("tsk")).await).code(), "deleted_id");
    add(&service, new_task("other")).await;
    let other = service.tasks.view(&id("other")).await.unwrap().task;
    assert_eq!(other.short_id.to_string(), "SHOP-4");
    assert_eq!(
        refused(service.removals.delete(&task("tsk"), false).await).code(),
        "task_not_found"
    );
}

#[tokio::test]
async fn nothing_that_goes_on_is_archived_or_deleted() {
    let (_store, service) = shop().await;
    add(&service, new_task("tsk")).await;
    for of in [task("tsk"), project("shop")] {
        for refusal in [
            refused(service.removals.delete(&of, true).await),
            refused(service.removals.archive(&of).await),
        ] {
            assert_eq!(refusal.code(), "not_removable");
            assert!(refusal.to_string().ends_with("SHOP-1 is todo"), "{refusal}");
        }
        let preview = service.removals.preview(&of, false).await.unwrap();
        assert!(preview.refusal.is_some());
    }
    // An agent may go before its tasks. Its open launch keeps it.
    set(&service, "tsk", TaskStatus::InProgress).await;
    let key = InstanceKey::new(id("ann"), id("shop"), Purpose::Task);
    let claim = service.launches.should_start(&key, Some(&id("crd"))).await.unwrap();
    assert!(claim.claim.is_some(), "{claim:?}");
    for refusal in [
        refused(service.removals.delete(&agent("ann"), false).await),
        refused(service.removals.archive(&agent("ann")).await),
    ] {
        assert!(refusal.to_string().ends_with("Ann works on SHOP-1"), "{refusal}");
    }
    // A task in progress keeps its agent between two launches.
    let (_store, service) = shop().await;
    add(&service, new_task("tsk")).await;
    set(&service, "tsk", TaskStatus::InProgress).await;
    let refusal = refused(service.removals.delete(&agent("ann"), false).await);
    assert!(refusal.to_string().contains("SHOP-1 is in_progress"), "{refusal}");
    // A chat that waits for its agent counts as open.
    let (_store, service) = shop().await;
    service.chats.say(&id("ann"), &id("shop"), None, "hello").await.unwrap();
    for of in [agent("ann"), project("shop")] {
        let refusal = refused(service.removals.delete(&of, false).await);
        assert!(refusal.to_string().ends_with("a chat waits for Ann"), "{refusal}");
    }
}

#[tokio::test]
async fn an_edit_of_the_status_archives_only_what_has_ended() {
    let (_store, service) = shop().await;
    add(&service, new_task("tsk")).await;
    set(&service, "tsk", TaskStatus::InProgress).await;
    let archived = ProjectEdit { status: Some(ProjectStatus::Archived), ..ProjectEdit::default() };
    let refusal = refused(service.catalog.set_project(&id("shop"), &archived).await);
    assert_eq!(refusal.code(), "not_removable");
    let archived = AgentEdit { status: Some(AgentStatus::Archived), ..AgentEdit::default() };
    let refusal = refused(service.catalog.set_agent(&id("ann"), &archived).await);
    assert_eq!(refusal.code(), "not_removable");
    set(&service, "tsk", TaskStatus::Done).await;
    service.catalog.set_agent(&id("ann"), &archived).await.unwrap();
    service.catalog.set_agent(&id("ann"), &archived).await.unwrap();
}

#[tokio::test]
async fn what_is_unarchived_has_its_former_status() {
    let (_store, service) = shop().await;
    let inactive = AgentEdit { status: Some(AgentStatus::Inactive), ..AgentEdit::default() };
    service.catalog.set_agent(&id("ann"), &inactive).await.unwrap();
    let inactive = ProjectEdit { status: Some(ProjectStatus::Inactive), ..ProjectEdit::default() };
    service.catalog.set_project(&id("shop"), &inactive).await.unwrap();
    for of in [agent("ann"), project("shop")] {
        service.removals.archive(&of).await.unwrap();
        service.removals.unarchive(&of).await.unwrap();
    }
    let of_agent = service.catalog.agent(&id("ann")).await.unwrap();
    assert_eq!(of_agent.status, AgentStatus::Inactive);
    let (of_project, _) = service.catalog.project(&id("shop")).await.unwrap();
    assert_eq!(of_project.status, ProjectStatus::Inactive);
}

#[tokio::test]
async fn a_deleted_agent_leaves_its_tasks_and_its_last_name() {
    let (_store, service) = shop().await;
    add_done(&service, new_task("tsk")).await;
    service.removals.delete(&agent("ann"), false).await.unwrap();
    let kept = service.tasks.view(&id("tsk")).await.unwrap().task;
    assert_eq!(kept.assignee, Some(id("ann")));
    assert_eq!(service.removals.names().await.unwrap(), [(agent("ann"), "Ann".to_owned())]);
    let (_, members) = service.catalog.project(&id("shop")).await.unwrap();
    assert_eq!(members, [] as [AgentId; 0]);
    let edit = AgentEdit::default();
    let again = service.catalog.add_agent(Some(id("ann")), &edit).await;
    assert_eq!(refused(again).code(), "deleted_id");
    service.maintenance.cleanup().await.unwrap();
    assert_eq!(service.removals.names().await.unwrap().len(), 1);
    assert!(service.tasks.view(&id("tsk")).await.is_ok());
}

#[tokio::test]
async fn a_project_goes_with_its_tasks_and_its_key_is_free_but_not_its_numbers() {
    let (_store, service) = shop().await;
    add_done(&service, new_task("tsk")).await;
    add_done(&service, new_task("tsk_2")).await;
    service.removals.delete(&project("shop"), false).await.unwrap();
    assert_eq!(refused(service.catalog.project(&id("shop")).await).code(), "project_not_found");
    assert_eq!(refused(service.tasks.view(&id("tsk")).await).code(), "task_not_found");
    let edit = ProjectEdit {
        name: Some("Shop".to_owned()),
        working_directory: Some(PathBuf::from("/other")),
        ..ProjectEdit::default()
    };
    let other: ProjectId = service.catalog.add_project(None, &edit).await.unwrap().thing();
    let (other, _) = service.catalog.project(&other).await.unwrap();
    assert_eq!(other.key.to_string(), "SHOP");
    let new = NewTask { project: other.id, assignee: None, ..new_task("tsk_3") };
    add(&service, new).await;
    let short_id = service.tasks.view(&id("tsk_3")).await.unwrap().task.short_id;
    assert_eq!(short_id.to_string(), "SHOP-3");
    let again = service.catalog.add_project(Some(id("shop")), &edit).await;
    assert_eq!(refused(again).code(), "deleted_id");
}

#[tokio::test]
async fn each_thing_that_is_deleted_has_an_event() {
    let (store, service) = shop().await;
    for name in ["tsk", "tsk_2", "tsk_3"] {
        add_done(&service, new_task(name)).await;
    }
    let before = store.event_span().await.unwrap().newest;
    for of in [task("tsk_3"), project("shop"), agent("ann")] {
        service.removals.delete(&of, false).await.unwrap();
    }
    let events = store.events(before, 9).await.unwrap();
    let events: Vec<_> =
        events.iter().map(|event| (event.kind.as_str(), event.detail.as_deref())).collect();
    let expected = [
        ("task.deleted", Some("SHOP-3")),
        ("task.deleted", Some("SHOP-1")),
        ("task.deleted", Some("SHOP-2")),
        ("project.deleted", Some("Shop")),
        ("agent.deleted", Some("Ann")),
    ];
    assert_eq!(events, expected);
}

#[tokio::test]
async fn an_archived_task_is_left_out_of_lists_until_it_is_shown_again_or_reopened() {
    let (_store, service) = shop().await;
    add_done(&service, new_task("tsk")).await;
    service.removals.archive(&task("tsk")).await.unwrap();
    service.removals.archive(&task("tsk")).await.unwrap();
    let count = async |archived| {
        let filter = TaskFilter { archived, ..TaskFilter::default() };
        service.tasks.list(&filter).await.unwrap().len()
    };
    assert_eq!(count(ArchivedTasks::LeftOut).await, 0);
    assert_eq!(count(ArchivedTasks::Only).await, 1);
    assert_eq!(count(ArchivedTasks::Included).await, 1);
    service.removals.unarchive(&task("tsk")).await.unwrap();
    assert_eq!(count(ArchivedTasks::LeftOut).await, 1);
    service.removals.archive(&task("tsk")).await.unwrap();
    set(&service, "tsk", TaskStatus::Todo).await;
    assert_eq!(count(ArchivedTasks::LeftOut).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_deletion_and_a_start_of_its_agent_never_both_succeed() {
    for _ in 0..40 {
        let (store, service) = shop().await;
        add(&service, new_task("tsk")).await;
        let key = InstanceKey::new(id("ann"), id("shop"), Purpose::Task);
        let claim = tokio::spawn({
            let service = service.clone();
            async move {
                let begins =
                    TaskEdit { status: Some(TaskStatus::InProgress), ..TaskEdit::default() };
                if service.tasks.set(&id("tsk"), &begins).await.is_err() {
                    return false;
                }
                let answer = service.launches.should_start(&key, Some(&id("crd"))).await.unwrap();
                answer.claim.is_some()
            }
        });
        let deleted = tokio::spawn({
            let service = service.clone();
            async move { service.removals.delete(&agent("ann"), false).await.is_ok() }
        });
        let results = (claim.await.unwrap(), deleted.await.unwrap());
        assert!(results.0 != results.1, "{results:?}");
        assert_eq!(store.open_launches().await.unwrap().len(), usize::from(results.0));
    }
}

fn ask(daemon: &Daemon, method: &str, path: &str) -> Response {
    send_to(&daemon.state().join("control.sock"), method, path, b"")
}

/// Returns a daemon with the finished task `tsk`.
fn with_done_task(settings: &str) -> Daemon {
    let daemon = Daemon::running(settings);
    daemon.with_one_task(&["authenticate", "get-my-task", "report:success"]);
    daemon.until_ended("agt");
    until("it is done", || daemon.task_status("tsk") == "done");
    daemon
}

#[test]
fn the_command_line_asks_before_it_deletes_for_good() {
    let daemon = with_done_task("");
    // A script has no terminal for the question.
    let said = daemon.cli(&["task", "delete", "PRJ-1"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.stderr.contains("--yes"), "{said:?}");
    let said = daemon.done(&["task", "delete", "PRJ-1", "--dry-run"]);
    assert_eq!(said, "Task PRJ-1 a title, with:\n  1 task: PRJ-1 a title\n");
    assert_eq!(daemon.task_status("tsk"), "done");

    let said = daemon.done(&["task", "delete", "PRJ-1", "--yes"]);
    assert_eq!(said, "Task PRJ-1 is deleted\n");
    assert_eq!(daemon.cli(&["task", "show", "tsk"]).code, 1);
    assert_eq!(daemon.json(&["task", "list", "--all"]), Value::Array(Vec::new()));
    // Earlier versions could undo it for a while.
    for path in ["/api/tasks/PRJ-1/undelete", "/api/tasks/tsk/undelete"] {
        let answer = ask(&daemon, "POST", path);
        assert_eq!(answer.status, 410, "{}", answer.body);
        for words in ["deletion_is_final", "A deletion is final: if the task ", "archive what"] {
            assert!(answer.body.contains(words), "{words}: {}", answer.body);
        }
    }

    let deleted = daemon.json(&["agent", "delete", "agt", "--yes"]);
    assert_eq!((&deleted["kind"], &deleted["id"]), (&"agent".into(), &"agt".into()));
    let said = daemon.done(&["project", "delete", "prj", "--dry-run"]);
    assert!(said.starts_with("Project prj, with:\n") && said.contains("1 launch with"), "{said}");
    daemon.done(&["project", "delete", "prj", "--yes"]);
    assert_eq!(daemon.json(&["project", "list", "--all"]), Value::Array(Vec::new()));
    let audit = daemon.logged("done by a person").into_iter();
    let deletions = audit.filter(|line| line["action"] == "delete");
    let deletions = deletions.map(|line| json!([line["what"], line["id"], line["before"]]));
    let expected = json!([
        ["task", "tsk", r#"{"name":"PRJ-1 a title"}"#],
        ["agent", "agt", r#"{"name":"agt"}"#],
        ["project", "prj", r#"{"name":"prj"}"#],
    ]);
    assert_eq!(deletions.collect::<Value>(), expected);
}

#[test]
fn archived_things_are_listed_when_asked_for() {
    let daemon = with_done_task("");
    for (kind, name, told) in [
        ("task", "PRJ-1", "PRJ-1 is archived\n"),
        ("agent", "agt", "agt is archived\n"),
        ("project", "prj", "prj is archived\n"),
    ] {
        let count = |more: &[&str]| {
            let listed = daemon.json(&[&[kind, "list"], more].concat());
            listed.as_array().unwrap().len()
        };
        assert_eq!(daemon.done(&[kind, "archive", name]), told);
        assert_eq!([count(&[]), count(&["--archived"]), count(&["--all"])], [0, 1, 1], "{kind}");
        daemon.done(&[kind, "unarchive", name]);
        assert_eq!([count(&[]), count(&["--archived"]), count(&["--all"])], [1, 0, 1], "{kind}");
    }
    daemon.done(&["task", "set", "tsk", "--status", "todo"]);
    let said = daemon.cli(&["task", "archive", "tsk"]);
    let expected = "Task PRJ-1 can't be archived: PRJ-1 is todo";
    assert!(said.code == 1 && said.stderr.contains(expected), "{said:?}");
    let said = daemon.cli(&["project", "delete", "prj", "--yes"]);
    assert!(said.code == 1 && said.stderr.contains("PRJ-1 is todo"), "{said:?}");
}

#[test]
fn bad_requests_are_answered_with_what_is_wrong() {
    let daemon = Daemon::running("");
    daemon.project("prj");
    for (method, path, status, code) in [
        ("DELETE", "/api/tasks/none", 404, "task_not_found"),
        ("GET", "/api/tasks/none/deletion", 404, "task_not_found"),
        ("POST", "/api/tasks/none/archive", 404, "task_not_found"),
        ("POST", "/api/tasks/none/undelete", 410, "deletion_is_final"),
        ("DELETE", "/api/agents/none", 404, "agent_not_found"),
        ("POST", "/api/agents/none/undelete", 410, "deletion_is_final"),
        ("DELETE", "/api/projects/none", 404, "project_not_found"),
        ("POST", "/api/projects/none/unarchive", 404, "project_not_found"),
        ("DELETE", "/api/projects/prj?discard=perhaps", 400, "invalid_query"),
        ("DELETE", "/api/projects/prj?force=true", 400, "invalid_query"),
        ("DELETE", "/api/projects/a%20b", 400, "invalid_path"),
        ("GET", "/api/tasks?archived=yes", 400, "invalid_query"),
        ("GET", "/api/projects?archived=1", 400, "invalid_query"),
    ] {
        let answer = ask(&daemon, method, path);
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
        assert!(answer.body.contains(code), "{method} {path}: {}", answer.body);
    }
    assert_eq!(ask(&daemon, "DELETE", "/api/projects/prj").status, 200);
}

#[test]
fn no_tool_of_agents_deletes() {
    let daemon = Daemon::running("");
    let answer = daemon.client().request("tools/list", &json!({}));
    let tools = answer["tools"].as_array().or_else(|| answer["result"]["tools"].as_array());
    let names: Vec<&str> =
        tools.unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.len() > 5, "{names:?}");
    let removes = |name: &&&str| ["delete", "archive", "remove"].iter().any(|it| name.contains(it));
    assert_eq!(names.iter().find(removes), None);
}

#[test]
fn work_that_is_not_merged_is_given_up_only_on_request_and_its_files_go() {
    let settings = "workspace: { keep: off }";
    let agents: &[(&str, &[&str])] = &[("one", COMMITS)];
    let bed = Bed::configured(settings, agents).daemon_with_clones(agents);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    let kept = bed.until_kept("tsk");
    let tree = bed.tree("tsk");
    for thing in [["task", "delete", "PRJ-1"], ["project", "delete", "prj"]] {
        let said = daemon.cli(&[&thing[..], &["--yes"]].concat());
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.stderr.contains("the work on PRJ-1 is not merged"), "{said:?}");
        assert!(said.stderr.contains("--discard"), "{said:?}");
    }
    daemon.done(&["task", "delete", "PRJ-1", "--yes", "--discard"]);
    until("the files are gone", || !tree.exists());
    // The kept commit stays for its 14 days.
    let keep = fs::read_dir(tree.parent().unwrap().parent().unwrap()).unwrap();
    let keep = keep.map(|entry| entry.unwrap().path()).find(|path| path.ends_with("keep.git"));
    let commit = kept["content"]["kept_commit"].as_str().unwrap();
    assert_eq!(git(&keep.unwrap(), &["cat-file", "-t", commit]), "commit");
}

#[test]
fn a_deleted_project_takes_its_launches_and_their_output_along() {
    let daemon = with_done_task("session: { cleanup_interval: 1s }");
    let launch = daemon.until_ended("agt")["launch_id"].as_str().unwrap().to_owned();
    let folder = daemon.state().join("ended").join(&launch);
    until("the folder of the launch is moved", || folder.is_dir());
    daemon.done(&["project", "delete", "prj", "--yes"]);
    until("the output is gone", || !folder.exists());
    until("the launch is gone", || daemon.ended("agt").is_empty());
    // Its folder is the person's.
    assert!(daemon.work().is_dir());
}

#[test]
fn a_manifest_that_archives_a_project_and_gives_it_work_is_refused() {
    let daemon = Daemon::running("");
    daemon.project("prj");
    daemon.agent("agt", "prj", &["authenticate", "chat"]);
    let work = daemon.work();
    let manifest = format!(
        "projects:\n  prj: {{ working_directory: {}, status: archived }}\ntasks:\n  \
         tsk: {{ project: prj, title: x, assignee: agt, status: in_progress }}\n",
        work.display()
    );
    daemon.write("archives.yaml", &manifest);
    let said = daemon.cli(&["apply", "archives.yaml"]);
    assert!(said.code != 0 && said.stderr.contains("prj can't be archived: PRJ-1 is"), "{said:?}");
    assert_eq!(daemon.json(&["project", "show", "prj"])["status"], "active");
    assert_eq!(daemon.json(&["task", "list"]), Value::Array(Vec::new()));
}
