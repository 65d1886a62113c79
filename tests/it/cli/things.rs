//! `status`, and `task`, `project`, `agent` with their list, show, add and set.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{check_fails, lively};
use crate::daemon::Daemon;
use crate::postgres::kind_of_daemon;
use crate::redacted::redacted;

const WORLD: &str = "
agents:
  agt_a: { name: Ann, ai_type: codex, system_prompt: \"You build things.\\nCarefully.\", passkey: key_a }
  agt_b: { status: inactive }
projects:
  prj: { name: Project, working_directory: /projects/prj, agents: [agt_b, agt_a] }
  prj_2: { working_directory: /projects/prj_2, status: archived }
tasks:
  tsk_1: { project: prj, title: Login page, description: \"Build the form.\\nAnd the rest.\", assignee: agt_a, status: todo }
  tsk_2: { project: prj, parent: tsk_1, title: \"Form \\u202ered \\u2066and bell\\u200f\", priority: urgent, dependencies: [tsk_3] }
  tsk_3: { project: prj, title: First, status: done }
";

#[test]
fn things_are_shown_as_tables() {
    let daemon = Daemon::running("");
    daemon.apply(WORLD);
    daemon.done(&["task", "set", "tsk_1", "--no-assignee"]);
    let mut text = String::new();
    for command in [
        "task list",
        "task list --status done",
        "task list --project prj --assignee agt_a",
        "task list --project prj_2",
        "task show tsk_1",
        "task list --wide",
        "task show tsk_2",
        "project list",
        "project list --all",
        "project show prj",
        "project show prj_2",
        "agent list",
        "agent show agt_a",
        "agent show agt_b",
    ] {
        let said = daemon.done(&command.split(' ').collect::<Vec<_>>());
        assert!(!said.contains(['\x1b', '\x07', '\t']), "{said:?}");
        writeln!(text, "$ agent-coordinator {command}\n{said}").unwrap();
    }
    insta::assert_snapshot!("tables", text);
}

#[test]
fn things_are_shown_as_json_with_keys_in_snake_case() {
    let daemon = Daemon::running("");
    daemon.apply(WORLD);
    let agent = json!({
        "id": "agt_a", "name": "Ann", "ai_type": "codex", "system_prompt": "You build things.\nCarefully.",
        "has_passkey": true, "status": "active", "created_at": "[created_at]",
    });
    let project = json!({
        "id": "prj", "name": "Project", "key": "PROJECT", "working_directory": "[working_directory]", "status": "active",
        "workspace": "shared", "agents": ["agt_a", "agt_b"], "created_at": "[created_at]",
    });
    let subtask = json!({
        "id": "tsk_2", "short_id": "PROJECT-2", "project_id": "prj", "parent_id": "tsk_1", "title": "Form red and bell\u{200f}",
        "description": "", "status": "todo", "priority": "urgent", "dependencies": ["tsk_3"],
        "created_at": "[created_at]", "status_since": "[status_since]",
    });
    let task = json!({
        "id": "tsk_1", "short_id": "PROJECT-1", "project_id": "prj", "title": "Login page", "description": "Build the form.\nAnd the rest.",
        "status": "todo", "priority": "medium", "assignee_id": "agt_a", "dependencies": [],
        "created_at": "[created_at]", "status_since": "[status_since]",
    });
    let check = |arguments: &[&str], expected: &Value| {
        assert_eq!(redacted(&daemon.json(arguments)), *expected);
    };
    check(&["agent", "show", "agt_a"], &agent);
    check(&["project", "show", "prj"], &project);
    let mut detail = task.clone();
    detail["subtasks"] = json!([subtask]);
    detail["executions"] = json!([]);
    check(&["task", "show", "tsk_1"], &detail);
    assert_eq!(redacted(&daemon.json(&["agent", "list"])[0]), agent);
    assert_eq!(redacted(&daemon.json(&["project", "list"])[0]), project);
    check(&["task", "list", "--assignee", "agt_a"], &json!([task]));
    check(&["task", "list", "--status", "blocked"], &json!([]));
    assert_eq!(daemon.json(&["project", "show", "prj"])["working_directory"], "/projects/prj");
}

/// A coordinator as the status shows it.
fn coordinator(max_concurrent: usize, running: usize) -> Value {
    let (id, heard_at) = ("[coordinator_id]", "[heard_at]");
    json!({ "coordinator_id": id, "heard_at": heard_at, "is_there": true, "max_concurrent": max_concurrent, "running": running })
}

/// Returns the status without the figures of the machine, which differ from moment to moment.
fn status_of(daemon: &Daemon) -> Value {
    let mut status = redacted(&daemon.status());
    for coordinator in status["coordinators"].as_array_mut().unwrap() {
        let machine = coordinator.as_object_mut().unwrap().remove("machine").unwrap();
        assert!(machine["memory"]["total"].as_u64() > Some(0), "{machine}");
    }
    status
}

/// A configuration that is in use as it is on disk.
fn configuration(daemon: &Daemon) -> Value {
    json!({ "file": daemon.config(), "since": "[since]", "waiting": [] })
}

#[test]
fn an_empty_house_says_what_to_do_next() {
    let daemon = Daemon::running("");
    // The paragraph about the store has figures that differ from run to run.
    let is_stable = |paragraph: &&str| !paragraph.starts_with("store: ");
    let check = |arguments: &[&str], expected: &str| {
        let text = daemon.done(arguments);
        let paragraphs: Vec<&str> = text.split("\n\n").filter(is_stable).collect();
        assert_eq!(paragraphs.join("\n\n").trim_end(), expected.trim_end());
    };
    check(&["task", "list"], "No tasks. Add one with `agent-coordinator task add`.\n");
    check(
        &["project", "list"],
        "No projects. Add one with `agent-coordinator project add --directory DIR`.\n",
    );
    check(&["agent", "list"], "No agents. Add one with `agent-coordinator agent add`.\n");
    let version = env!("CARGO_PKG_VERSION");
    let status = format!(
        "agent-coordinator {version}: running, 0 of 3 slots in use\n\nNo agent is running.\n"
    );
    check(&["status"], &status);
    check(&["stop", "--all"], "nothing was running\npaused: no agent is started until `resume`\n");
    let paused = status.replace(": running", ": paused: no agent is started until `resume`");
    check(&["status"], &paused);
    check(&["resume"], "resumed\n");
    check(&["status"], &status);
    let mut status = status_of(&daemon);
    assert_eq!(status.as_object_mut().unwrap().remove("store").unwrap()["kind"], kind_of_daemon());
    assert_eq!(
        status,
        json!({
            "version": "[version]", "health": "ok", "at": "[at]", "paused": false,
            "configuration": configuration(&daemon),
            "limits": { "max_concurrent": 3, "running": 0 }, "coordinators": [coordinator(3, 0)], "instances": [], "deferred": [], "parked": [], "ended": [],
            "counters": daemon.status()["counters"],
            "totals": { "agents": [], "projects": [], "providers": [] },
        })
    );
}

#[test]
fn things_are_added_and_changed() {
    let daemon = Daemon::running("");
    let done = |arguments: &[&str]| daemon.done(arguments);
    assert_eq!(done(&["agent", "add", "agt_a", "--name", "Ann", "--ai-type", "codex"]), "agt_a\n");
    assert!(done(&["agent", "add"]).starts_with("agt_"));
    let work = daemon.work();
    let work = work.to_str().unwrap();
    assert_eq!(
        done(&["project", "add", "prj", "--directory", "work", "--assign", "agt_a"]),
        "prj\n"
    );
    assert!(done(&["project", "add", "--directory", "work"]).starts_with("prj_"));
    let task = ["task", "add", "--project", "prj", "--title", "t", "--assignee", "agt_a"];
    assert_eq!(done(&[&task[..], &["--id", "tsk"]].concat()), "tsk\n");
    assert!(done(&task).starts_with("tsk_"));
    let said = daemon.cli_with_input(
        &[&task[..], &["--id", "tsk_long", "--description", "-"]].concat(),
        "line\nline\n",
    );
    assert_eq!((said.code, said.stdout.as_str()), (0, "tsk_long\n"));
    assert_eq!(daemon.json(&["task", "show", "tsk_long"])["description"], "line\nline\n");

    assert_eq!(
        done(&["task", "set", "tsk", "--status", "backlog", "--priority", "low"]),
        "PRJ-1 is backlog\n"
    );
    let expected = format!(
        "prj  renamed\nactive, key PRJ, in {work}\nworkspace: shared (all agents work in this folder)\nagents: none\n"
    );
    assert_eq!(
        done(&["project", "set", "prj", "--name", "renamed", "--unassign", "agt_a"]),
        expected
    );
    assert_eq!(
        done(&["agent", "set", "agt_a", "--status", "inactive"]),
        "agt_a  Ann\ninactive, started as codex\n"
    );

    let said = daemon.cli(&["project", "add", "prj_x", "--directory", "not/there"]);
    assert_eq!((said.code, said.stdout.as_str()), (0, "prj_x\n"));
    assert!(
        said.stderr.contains("warning: there is no folder") && said.stderr.contains("not/there"),
        "{said:?}"
    );

    let given = daemon.cli_with_input(&["agent", "set", "agt_a", "--passkey-stdin"], "my key\n");
    assert_eq!((given.code, given.stdout.contains("my key")), (0, false), "{given:?}");
    let made = done(&["agent", "set", "agt_a", "--generate-passkey"]);
    assert!(made.lines().last().unwrap().starts_with("passkey: "), "{made}");
}

#[test]
fn what_is_refused_says_why_and_fails() {
    let daemon = Daemon::running("");
    daemon.apply(WORLD);
    for (arguments, why) in [
        (&["task", "show", "none"][..], "no task `none`"),
        (&["project", "show", "none"], "no project `none`"),
        (&["agent", "show", "none"], "no agent `none`"),
        (&["agent", "add", "agt_a"], "agent agt_a exists already"),
        (
            &["task", "set", "tsk_3", "--status", "blocked"],
            "Task PROJECT-3 is done: it can't become blocked",
        ),
        (&["task", "set", "tsk_2", "--status", "in_progress"], "has no assignee"),
        (&["task", "add", "--project", "prj", "--title", " "], "needs a title"),
        (&["task", "add", "--project", "none", "--title", "t"], "no project `none`"),
        (
            &["task", "add", "--project", "prj_2", "--title", "t", "--assignee", "agt_a"],
            "project set PROJECT --assign AGENT",
        ),
        (&["project", "set", "prj", "--assign", "none"], "no agent `none`"),
        (&["stop", "none", "prj"], "no agent `none`"),
        (&["stop", "agt_a", "none"], "no project `none`"),
        (&["resume", "none", "prj"], "no agent `none`"),
        (&["logs", "agt_a", "prj"], "agt_a has not been started in prj"),
        (&["logs", "agt_a", "prj", "--launch", "lch_none"], "no launch `lch_none`"),
    ] {
        check_fails(&daemon, arguments, 1, why);
    }
}

#[test]
fn a_person_finishes_and_blocks_tasks_that_no_agent_has_begun() {
    let daemon = Daemon::running("");
    daemon.project("prj");
    let add = |id: &str, more: &[&str]| {
        let task = ["task", "add", "--project", "prj", "--title", "t", "--id", id];
        daemon.done(&[&task[..], more].concat());
    };
    let set = |id: &str, more: &[&str]| daemon.done(&[&["task", "set", id], more].concat());
    let shown = |id: &str| daemon.done(&["task", "show", id]);
    add("plain", &[]);
    add("later", &["--status", "backlog"]);
    add("stuck", &["--status", "blocked"]);
    add("whole", &[]);
    add("part", &["--parent", "whole"]);

    let text = shown("stuck");
    assert!(text.contains("waits: Blocked by "), "{text}");
    assert!(text.contains(", who gave no reason"), "{text}");
    set("later", &["--status", "blocked", "--reason", "no key"]);
    let text = shown("later");
    assert!(text.contains("blocked: no key") && !text.contains("waits:"), "{text}");
    for id in ["plain", "later", "stuck"] {
        set(id, &["--status", "done"]);
        assert!(shown(id).contains("\ndone by hand, by "), "{}", shown(id));
    }

    let why = "Task PRJ-4 has subtasks that are not finished: PRJ-5 (finish them first, or cancel \
               them with it: `cancelSubtasks` (`--cancel-subtasks`))";
    check_fails(&daemon, &["task", "set", "whole", "--status", "done"], 1, why);
    assert_eq!(daemon.task_status("whole"), "todo");
    set("whole", &["--status", "done", "--cancel-subtasks"]);
    assert_eq!([daemon.task_status("whole"), daemon.task_status("part")], ["done", "cancelled"]);
    let why = "Task PRJ-5 is cancelled: it can't become done";
    check_fails(&daemon, &["task", "set", "part", "--status", "done"], 1, why);
}

#[test]
fn status_shows_what_runs_what_waits_and_what_ended() {
    let daemon = lively("agt_waits");

    let mut status = status_of(&daemon);
    assert!(status["counters"].is_object());
    status["counters"] = Value::Null;
    assert!(status.as_object_mut().unwrap().remove("totals").unwrap().is_object());
    assert_eq!(status.as_object_mut().unwrap().remove("store").unwrap()["kind"], kind_of_daemon());
    let deferred = status["deferred"].as_array_mut().unwrap();
    deferred.sort_by_key(|deferred| deferred["agent_id"].to_string());
    let pair = |agent: &str| json!({ "agent_id": agent, "project_id": "prj", "purpose": "task" });
    let with = |mut object: Value, more: Value| {
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        object
    };
    let launch = |agent: &str, more: Value| {
        let common = json!({
            "launch_id": "[launch_id]", "ai_type": "claude", "pid": "[pid]", "claimed_at": "[claimed_at]",
            "started_at": "[started_at]",
        });
        with(with(pair(agent), common), more)
    };
    assert_eq!(
        status,
        json!({
            "version": "[version]", "health": "ok", "at": "[at]", "paused": false,
            "configuration": configuration(&daemon),
            "limits": { "max_concurrent": 1, "running": 1 },
            "coordinators": [coordinator(1, 1)],
            "instances": [launch("agt_runs", json!({
                "state": "running", "session": "[session]", "adopted": false, "task_id": "tsk_runs", "task_short_id": "PRJ-2",
                "authenticated_at": "[authenticated_at]",
            }))],
            "deferred": [
                with(pair("agt_failed"), json!({ "reason": "backoff", "until": "[until]" })),
                with(pair("agt_waits"), json!({
                    "reason": "no_free_slot", "detail": "tasks use 1 and chats use 0 of 1 slots",
                })),
            ],
            "parked": [],
            "ended": [launch("agt_failed", json!({
                "state": "ended", "ended_at": "[ended_at]", "outcome": "never_authenticated", "exit_code": 3,
                "failure": { "class": "crash" }, "claimed_task_id": "tsk_failed",
            }))],
            "counters": null,
        })
    );
    let table = daemon.done(&["status"]);
    for words in [
        "1 of 1 slots in use",
        "agt_runs  prj      PRJ-2  running",
        "No free slot",
        "Failed, tries again",
        "never_authenticated: crash  3",
    ] {
        assert!(table.contains(words), "{words}: {table}");
    }
}

#[test]
fn a_search_lists_the_tasks_with_all_words_the_best_first() {
    let daemon = Daemon::running("");
    daemon.project("prj");
    daemon.project("other");
    for (id, project, title, description) in [
        ("text", "prj", "Cart & co", "the LOGIN page"),
        ("title", "prj", "Login page 100%", ""),
        ("far", "other", "login page", "ünder"),
        ("none", "prj", "Nothing", ""),
    ] {
        let names = ["--id", id, "--project", project, "--title", title];
        daemon.done(&[&["task", "add", "--description", description], &names[..]].concat());
    }
    daemon.done(&["task", "set", "far", "--status", "cancelled"]);
    let found = |arguments: &[&str]| -> Vec<String> {
        let listed = daemon.json(&[&["task", "list", "--search"], arguments].concat());
        let ids = listed.as_array().unwrap().iter();
        ids.map(|task| task["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(found(&["login page"]), ["title", "far", "text"]);
    assert_eq!(found(&["PAGE login", "--project", "prj", "--status", "todo"]), ["title", "text"]);
    assert_eq!(found(&["prj-1"]), ["text"]);
    assert_eq!(found(&["100% & "]), [] as [&str; 0]);
    assert_eq!(found(&["cart &"]), ["text"]);
    assert_eq!(found(&["ÜNDER"]), ["far"]);
    assert_eq!(daemon.done(&["task", "list", "--search", "nothing like this"]), "No task fits.\n");
}
