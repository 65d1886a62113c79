//! `export` of a daemon that runs, and `import` at another one: a round trip, files with mistakes,
//! objects that exist, and what starts.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::resources::ask;
use crate::support::{Mount, skip, until};

const STEPS: &[&str] = &["authenticate", "get-my-task", "report:success", "exit:0"];

/// Returns a daemon with two projects, three agents, tasks in several states, and a chat.
fn fleet() -> Daemon {
    let daemon = Daemon::running("");
    daemon.done(&["pause"]);
    for agent in ["ann", "ben", "cy"] {
        daemon.steps(agent, STEPS);
        let prompt = format!("You are {agent}.\nBe \"kind\".");
        daemon.done(&["agent", "add", agent, "--system-prompt", &prompt, "--generate-passkey"]);
    }
    daemon.project("shop");
    daemon.project("site");
    daemon.done(&["project", "set", "shop", "--assign", "ann", "--assign", "ben"]);
    daemon.done(&["project", "set", "site", "--assign", "cy", "--key", "WEB"]);
    daemon.done(&["project", "set", "site", "--merge-hooks", "off"]);
    let add = |task: &str, project: &str, more: &[&str]| {
        let of = ["task", "add", "--id", task, "--project", project, "--title", "日本 & more"];
        daemon.done(&[&of, more].concat());
    };
    add("one", "shop", &["--description", "line 1\nline 2", "--priority", "urgent"]);
    add("two", "shop", &["--parent", "one", "--assignee", "ann"]);
    add("three", "shop", &["--depends-on", "two", "--assignee", "ben"]);
    add("four", "site", &["--status", "backlog"]);
    add("five", "site", &[]);
    daemon.done(&["task", "set", "five", "--status", "cancelled"]);
    daemon.done(&["task", "archive", "five"]);
    daemon.done(&["task", "comment", "one", "Mind the *gift card*.\n日本"]);
    daemon.done(&["chat", "send", "cy", "site", "hello\nthere"]);
    daemon.done(&["chat", "end", "cy", "site"]);
    daemon
}

/// Returns the lines of an export.
fn exported(daemon: &Daemon, more: &[&str]) -> Vec<Value> {
    let text = daemon.done(&[&["export"], more].concat());
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_kind<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["kind"] == kind).collect()
}

/// Writes an export of `from` into a file of `to`.
fn carried(from: &Daemon, to: &Daemon) -> PathBuf {
    let file = to.folder().join("fleet.jsonl");
    from.done(&["export", file.to_str().unwrap(), "--force"]);
    file
}

fn write(daemon: &Daemon, lines: &[Value]) -> PathBuf {
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    daemon.write("fleet.jsonl", &(lines.join("\n") + "\n"));
    daemon.folder().join("fleet.jsonl")
}

/// Checks that a file is refused with this text, and that nothing of it is there.
#[track_caller]
fn is_refused(daemon: &Daemon, file: &Path, more: &[&str], why: &str) {
    let before = exported(daemon, &[])[1..].to_vec();
    let arguments = [&["import", file.to_str().unwrap(), "--yes"], more].concat();
    let said = daemon.cli(&arguments);
    assert_eq!((said.code, said.stdout.as_str()), (1, ""), "{said:?}");
    assert!(said.stderr.contains(why), "expected {why}: {}", said.stderr);
    assert_eq!(exported(daemon, &[])[1..], before);
}

#[test]
fn an_export_is_imported_and_exported_again_as_the_same() {
    let first = fleet();
    let second = Daemon::running("");
    let file = carried(&first, &second);
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!text.contains("passkey") && !text.contains("hash"), "{text}");
    let name = file.to_str().unwrap();

    // Without a terminal nothing is asked, and nothing is done.
    let said = second.cli(&["import", name]);
    assert!(said.code == 2 && said.stderr.contains("--yes"), "{said:?}");
    let work = first.work();
    assert!(said.stdout.contains(work.to_str().unwrap()), "{said:?}");
    let dry = second.json(&["import", name, "--dry-run"]);
    assert_eq!((&dry["dry_run"], &dry["added"]["tasks"]), (&true.into(), &5.into()), "{dry}");
    assert_eq!(exported(&second, &[]).len(), 2);

    let report = second.json(&["import", name, "--yes"]);
    let counts = json!({ "agents": 3, "projects": 2, "tasks": 5, "comments": 1, "messages": 1 });
    assert_eq!(report["added"], counts, "{report}");
    assert_eq!(report["without_passkey"], json!(["ann", "ben", "cy"]));
    assert_eq!(report["directories"], json!([work]));
    let again = exported(&second, &[]);
    assert_eq!(again[1..], exported(&first, &[])[1..]);
    assert_eq!(second.json(&["task", "show", "WEB-1"])["id"], "four");
    assert_eq!(second.json(&["project", "show", "site"])["merge_hooks"], "off");
    second.done(&["task", "add", "--id", "six", "--project", "site", "--title", "x"]);
    assert_eq!(second.json(&["task", "show", "six"])["short_id"], "WEB-3");
    // The key that the project had before leads to its tasks.
    assert_eq!(second.json(&["task", "show", "SITE-1"])["id"], "four");
    assert!(second.open("cy").is_empty() && second.ended("cy").is_empty(), "nothing has started");
    let audit = second.logged("done by a person");
    let imports: Vec<_> = audit.iter().filter(|line| line["what"] == "import").collect();
    assert_eq!(imports.len(), 1, "{audit:?}");
    assert!(audit.iter().all(|line| line["action"] != "add" || line["id"] != "one"), "{audit:?}");
}

#[test]
fn an_export_names_no_agent_that_was_deleted() {
    let first = fleet();
    for task in ["two", "three"] {
        first.done(&["task", "set", task, "--status", "cancelled"]);
    }
    for agent in ["ann", "cy"] {
        first.done(&["agent", "delete", agent, "--yes"]);
    }
    let second = Daemon::running("");
    let file = carried(&first, &second);
    let report = second.json(&["import", file.to_str().unwrap(), "--yes"]);
    let counts = json!({ "agents": 1, "projects": 2, "tasks": 5, "comments": 1, "messages": 0 });
    assert_eq!(report["added"], counts, "{report}");
}

#[test]
fn projects_are_selected_with_what_belongs_to_them() {
    let daemon = fleet();
    let lines = exported(&daemon, &["--project", "WEB"]);
    let ids = |kind: &str| -> Vec<Value> {
        of_kind(&lines, kind).iter().map(|line| line["id"].clone()).collect()
    };
    assert_eq!((ids("agent"), ids("project")), (vec![json!("cy")], vec![json!("site")]));
    assert_eq!(ids("task"), [json!("four"), json!("five")]);
    assert_eq!(lines[0]["projects"], json!(["site"]));
    let both = exported(&daemon, &["--project", "site", "--project", "shop"]);
    assert_eq!(both[1..], exported(&daemon, &[])[1..]);
    let said = daemon.cli(&["export", "--project", "none"]);
    assert!(said.code == 1 && said.stderr.contains("no project `none`"), "{said:?}");
}

#[test]
fn long_lists_are_exported_in_parts() {
    let daemon = Daemon::running("");
    let tasks: Vec<Value> = (0..230)
        .map(|n| {
            json!({ "id": format!("t{n}"), "project": "prj", "title": "x", "description": "",
                    "assignee": null, "status": "todo", "parent": null, "dependencies": [],
                    "priority": "low" })
        })
        .collect();
    let project = json!({ "id": "prj", "name": "p", "workingDirectory": "/work", "agents": [],
                          "status": "active" });
    let wanted = json!({ "projects": [project], "tasks": tasks }).to_string();
    let answer = ask(&daemon, "POST", "/apply", "content-type: application/json\r\n", &wanted);
    assert_eq!(answer.0, 200, "{}", answer.2);
    let lines = exported(&daemon, &[]);
    let numbers: Vec<u64> =
        of_kind(&lines, "task").iter().map(|task| task["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=230).collect::<Vec<u64>>());
    let second = Daemon::running("");
    let file = carried(&daemon, &second);
    second.done(&["import", file.to_str().unwrap(), "--yes"]);
    assert_eq!(exported(&second, &[])[1..], lines[1..]);
}

#[test]
fn nothing_starts_unless_it_is_asked_for() {
    let first = Daemon::running("");
    first.project("prj");
    first.agent("agt", "prj", &["authenticate", "get-my-task", "wait-for:go", "report:success"]);
    first.task("tsk", "prj", "agt");
    first.until_in_state("agt", "running");
    let chain = ["--title", "x", "--status", "in_progress", "--assignee", "agt"];
    let waits = ["task", "add", "--id", "next", "--project", "prj", "--depends-on", "tsk"];
    first.done(&[&waits[..], &chain].concat());
    let lines = exported(&first, &[]);
    let wanted = of_kind(&lines, "task")[1];
    assert!(wanted["start_wanted_since"].is_string(), "{wanted}");

    let second = Daemon::running("");
    let file = carried(&first, &second);
    let said = second.done(&["import", file.to_str().unwrap(), "--yes"]);
    assert!(said.contains("no task starts; in progress, and todo here: 1"), "{said}");
    assert!(said.contains("without a passkey: agt"), "{said}");
    assert_eq!(second.task_status("tsk"), "todo");
    let lines = exported(&second, &[]);
    assert!(of_kind(&lines, "task").iter().all(|task| task["start_wanted_since"].is_null()));
    second.done(&["refresh"]);
    assert!(second.open("agt").is_empty(), "nothing has started");

    let third = Daemon::running("");
    third.steps("agt", STEPS);
    let mut lines = exported(&first, &[]);
    let project = lines.iter_mut().find(|line| line["kind"] == "project").unwrap();
    project["working_directory"] = json!(third.work());
    let file = write(&third, &lines);
    let report = third.json(&["import", file.to_str().unwrap(), "--yes", "--start"]);
    assert_eq!((&report["n_started"], &report["n_set_todo"]), (&2.into(), &0.into()));
    until("both tasks are done", || third.task_status("next") == "done");
    fs::write(first.work().join("go"), "").unwrap();
}

#[test]
fn what_exists_is_refused_or_left_as_it_is() {
    let first = fleet();
    let second = Daemon::running("");
    let file = carried(&first, &second);
    let name = file.to_str().unwrap();
    second.done(&["import", name, "--yes"]);
    is_refused(&second, &file, &[], "line 2: agent `ann` exists already; --merge leaves it");
    second.done(&["task", "set", "one", "--title", "changed here"]);
    let before = exported(&second, &[]);
    let report = second.json(&["import", name, "--yes", "--merge"]);
    assert_eq!((&report["added"]["tasks"], &report["left"]["tasks"]), (&0.into(), &5.into()));
    assert_eq!(exported(&second, &[])[1..], before[1..]);

    // New tasks of both: the number of one is taken.
    let six = ["--id", "six", "--project", "shop", "--parent", "one", "--title", "x"];
    first.done(&[&["task", "add"], &six[..]].concat());
    let file = carried(&first, &second);
    second.done(&["task", "add", "--id", "other", "--project", "shop", "--title", "y"]);
    is_refused(&second, &file, &["--merge"], "task `six` has the short id SHOP-4, which is");
    let mut lines = exported(&first, &[]);
    let six = lines.iter_mut().find(|line| line["id"] == "six").unwrap();
    six["number"] = json!(40);
    let file = write(&second, &lines);
    second.done(&["import", file.to_str().unwrap(), "--yes", "--merge"]);
    second.done(&["task", "add", "--id", "last", "--project", "shop", "--title", "z"]);
    assert_eq!(second.json(&["task", "show", "last"])["short_id"], "SHOP-41");

    // Ids and short ids of deleted tasks are never given again.
    second.done(&["task", "set", "other", "--status", "cancelled"]);
    second.done(&["task", "delete", "other", "--yes"]);
    for (id, number, why) in [
        ("other", 50, "A task `other` was deleted"),
        ("seven", 4, "has the short id SHOP-4, which the deleted task `other` had"),
    ] {
        let new = lines.iter_mut().find(|line| line["kind"] == "task").unwrap();
        new["id"] = json!(id);
        new["number"] = json!(number);
        let file = write(&second, &lines);
        is_refused(&second, &file, &["--merge"], why);
    }
}

#[test]
fn files_with_mistakes_are_refused_with_their_lines() {
    let first = fleet();
    let good = exported(&first, &[]);
    let second = Daemon::running("");
    let with = |id: &str, field: &str, value: Value| {
        let mut lines = good.clone();
        let line = lines.iter_mut().find(|line| line["id"] == id).unwrap();
        line[field] = value;
        write(&second, &lines)
    };
    let line_of = |id: &str| good.iter().position(|line| line["id"] == id).unwrap() + 1;
    let one = line_of("one");
    let refused = |file: PathBuf, why: &str| is_refused(&second, &file, &[], why);
    refused(with("ann", "name", json!("\u{1b}[31m")), "line 2: agent `ann`: `name` has a control");
    refused(with("ann", "ai_type", json!("cluade")), "did you mean `claude`?");
    refused(with("ann", "id", json!("../x")), "line 2: `../x` is not a valid agent id");
    refused(with("one", "parent", json!("three")), "depends on its own subtask `two`");
    refused(with("two", "dependencies", json!(["three"])), "a task would wait for itself");
    refused(with("one", "dependencies", json!(["one"])), &format!("line {one}: a task would wait"));
    refused(with("one", "dependencies", json!(["none"])), &format!("line {one}: task `one`"));
    refused(with("one", "project", json!("none")), "names `none`, which is neither in the file");
    refused(with("one", "assignee", json!("none")), "`assignee` names `none`");
    refused(with("shop", "agents", json!(["none"])), "`agents` names `none`");
    refused(with("one", "status", json!("done")), "its subtasks can't be open");
    refused(with("two", "id", json!("one")), &format!("task `one` is in line {one} already"));
    refused(with("one", "surprise", json!(1)), "unknown field `surprise`");
    let mut newer = good.clone();
    newer[0]["version"] = json!(2);
    refused(write(&second, &newer), "line 1: the file has version 2 of the format");
    refused(write(&second, &good[..good.len() - 1]), "it was cut off");
    refused(write(&second, &good[1..]), "line 1: this is not an export");
    let file = second.folder().join("fleet.jsonl");
    let mut bytes = fs::read(write(&second, &good)).unwrap();
    let inside = bytes.windows(6).position(|part| part == b"system").unwrap();
    fs::write(&file, &bytes[..inside]).unwrap();
    refused(file.clone(), "the line is cut off");
    bytes.insert(bytes.len() - 3, 0xff);
    fs::write(&file, &bytes).unwrap();
    refused(file.clone(), "is not UTF-8");
    fs::write(&file, "").unwrap();
    refused(file.clone(), "the file is empty");
    // A sparse file of 1 GiB has one endless line.
    fs::File::create(&file).unwrap().set_len(1 << 30).unwrap();
    refused(file.clone(), "fleet.jsonl:1: the line is longer than 4 MiB");
    let answer = ask(&second, "POST", "/import", "", &"x".repeat(5 << 20));
    assert_eq!((answer.0, &answer.json()["code"]), (409, &"invalid_import".into()));
    fs::write(&file, format!("{}\n", good[0]).repeat(3_000_000 / 100)).unwrap();
    refused(file.clone(), "a second header");

    // A key of another project.
    second.project("shop_2");
    second.done(&["project", "set", "shop_2", "--key", "SHOP"]);
    refused(write(&second, &good), "Key SHOP belongs to project shop_2");
    let said = second.cli(&["import", "none.jsonl", "--yes"]);
    assert!(said.code == 1 && said.stderr.contains("could not read `none.jsonl`"), "{said:?}");
}

#[test]
fn an_import_that_fills_the_disk_adds_nothing() {
    let first = Daemon::running("");
    first.project("prj");
    first.done(&["task", "add", "--id", "tsk", "--project", "prj", "--title", "t"]);
    let mut lines = exported(&first, &[]);
    let mut end = lines.pop().unwrap();
    end["tasks"] = json!(400);
    let task = lines.pop().unwrap();
    for n in 1..=400 {
        let mut new = task.clone();
        new["id"] = json!(format!("tsk_{n}"));
        new["number"] = json!(n);
        new["description"] = json!("x".repeat(10_000));
        lines.push(new);
    }
    lines.push(end);
    let mut second = Daemon::configured("");
    let small = second.folder().join("small");
    fs::create_dir(&small).unwrap();
    let Some(_mount) = Mount::small(&small, "size=3m,mode=0700") else {
        return skip("this machine mounts no small file system");
    };
    second.configure("store: { url: 'sqlite:small/one.db' }");
    second.start();
    let file = write(&second, &lines);
    let said = second.cli(&["import", file.to_str().unwrap(), "--yes"]);
    assert_eq!((said.code, said.stdout.as_str()), (1, ""), "{said:?}");
    assert!(said.stderr.contains("full"), "{said:?}");
    assert_eq!(second.json(&["project", "list"]), json!([]));
    assert_eq!(second.json(&["task", "list"]), json!([]));
    // The daemon goes on.
    second.project("other");
    assert!(second.terminate().success());
}

#[test]
fn an_export_leaves_a_whole_file_or_none() {
    let daemon = fleet();
    let fails = |arguments: &[&str], why: &str| {
        let said = daemon.cli(arguments);
        assert!(said.code == 1 && said.stderr.contains(why), "{arguments:?}: {said:?}");
    };
    daemon.done(&["export", "fleet.jsonl"]);
    fails(&["export", "fleet.jsonl"], "exists, and was left as it is");
    fails(&["export", "work", "--force"], "is not a file");
    fails(&["export", "none/fleet.jsonl"], "could not write");
    let report = daemon.json(&["export", "fleet.jsonl", "--force"]);
    assert_eq!(report["tasks"], 5, "{report}");
    assert!(!daemon.folder().join("fleet.jsonl.partial").exists());
    let said = daemon.cli(&["export", "--json"]);
    assert!(said.code == 2 && said.stderr.contains("name one"), "{said:?}");

    // A reader that goes away ends it quietly.
    let mut command = daemon.command();
    let mut child =
        command.arg("export").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!((child.wait().unwrap().code(), errors.as_str()), (Some(0), ""));

    let small = daemon.folder().join("small");
    fs::create_dir(&small).unwrap();
    let Some(_mount) = Mount::small(&small, "size=4k,mode=0700") else {
        return skip("this machine mounts no small file system");
    };
    daemon.done(&["agent", "set", "ann", "--system-prompt", &"x".repeat(40_000)]);
    let file = small.join("fleet.jsonl");
    fails(&["export", file.to_str().unwrap()], "No space left on device");
    assert_eq!(fs::read_dir(&small).unwrap().count(), 0);
}
