//! The README's first command, in a copy of its folder.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;

use rustix::process::Signal;

use crate::daemon::Daemon;
use crate::support::until;

/// Returns a daemon whose folder is a copy of the bundled example.
fn quickstart() -> Daemon {
    let daemon = Daemon::configured("");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/quickstart");
    let folder = daemon.config().parent().unwrap().to_owned();
    for file in ["coordinator_config.yaml", "manifest.yaml", "agent.sh"] {
        fs::copy(example.join(file), folder.join(file)).unwrap();
    }
    fs::create_dir(folder.join("project")).unwrap();
    daemon
}

#[test]
fn the_quickstart_does_its_task_once_and_says_how_to_give_the_next() {
    let mut daemon = quickstart();
    daemon.start();
    let ended = daemon.until_ended("agt_example");
    assert_eq!(
        (&ended["outcome"], &ended["exit_code"]),
        (&"completed".into(), &0.into()),
        "{}",
        daemon.log()
    );
    assert_eq!(daemon.task_status("tsk_hello"), "done");
    let greeting = daemon.config().with_file_name("project").join("hello.txt");
    assert!(fs::read_to_string(&greeting).unwrap().starts_with("Hello from agt_example"));
    let printed = daemon.done(&["logs", "agt_example", "prj_hello"]);
    assert!(
        printed.contains("wrote ") && !printed.contains("tkt_0") && !printed.contains("sess_0"),
        "{printed}"
    );
    daemon.signal(Signal::INT);
    assert_eq!(daemon.wait().code(), Some(0));

    daemon.start();
    let hint = &daemon.logged("every task of the manifest is done; give the next one")[0]["next"];
    let hint = hint.as_str().unwrap();
    assert!(hint.contains("task add --project prj_hello --assignee agt_example"), "{hint}");
    assert_eq!(daemon.ended("agt_example").len(), 1, "the task is not done twice");

    // This adds the next task in the way of the hint.
    let words = ["task", "add", "--project", "prj_hello", "--assignee", "agt_example"];
    daemon.done(&[&words[..], &["--status", "in_progress", "--title", "again"]].concat());
    until("the next task is done", || daemon.ended("agt_example").len() == 2);
    assert_eq!(fs::read_to_string(&greeting).unwrap().lines().count(), 2);
}

#[test]
fn the_bundled_agent_answers_in_a_chat_and_leaves_when_it_ends() {
    let mut daemon = quickstart();
    daemon.start();
    daemon.until_ended("agt_example");
    daemon.done(&["chat", "send", "agt_example", "prj_hello", "Who are you?"]);
    until("it answers", || {
        daemon.done(&["chat", "show", "agt_example", "prj_hello"]).contains("I only do tasks")
    });
    daemon.done(&["chat", "end", "agt_example", "prj_hello"]);
    until("its launch ends", || daemon.ended("agt_example").len() == 2);
    assert_eq!(daemon.ended("agt_example")[0]["outcome"], "completed", "{}", daemon.log());
}

#[test]
fn a_second_task_is_applied_while_the_daemon_runs() {
    let mut daemon = quickstart();
    daemon.start();
    daemon.until_ended("agt_example");
    let manifest = daemon.config().with_file_name("second.yaml");
    let second = "tasks:\n  tsk_second: { project: prj_hello, title: Again, assignee: agt_example, status: in_progress }\n";
    fs::write(&manifest, second).unwrap();
    let said = daemon.done(&["apply", manifest.to_str().unwrap()]);
    assert_eq!(said, "task tsk_second created\n");
    until("the second task is done", || daemon.task_status("tsk_second") == "done");
    assert_eq!(daemon.done(&["apply", manifest.to_str().unwrap()]), "1 unchanged\n");
}
