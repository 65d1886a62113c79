//! The next launch of a task continues the conversation of the agent's CLI.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::support::{agent_fixture, kill, processes_of, until};

/// Starts a daemon whose agents note in `turns` how they begin, and keep their prompts. `resumed`
/// are the steps of a launch that continues a conversation.
fn daemon(backoff: &str, resumed: &str) -> Daemon {
    let agent = agent_fixture();
    let keep_prompt = "'run:cat >prompt.$AGENT_ATTEMPT'";
    Daemon::running(&format!(
        "backoff: {{ initial: {backoff}, max: {backoff} }}\nrun: {{ linger: 0 }}\n\
         ai_providers:\n  claude:\n    cli_command: {}\n    prompt: stdin\n    \
         begin_args: ['run:echo begin {{conversation}} >>turns', {keep_prompt}, script]\n    \
         resume_args: ['run:echo resume {{conversation}} >>turns', {keep_prompt}, {resumed}]\n",
        agent.display()
    ))
}

/// The steps of an agent that keeps its task of each attempt in a file.
const KEEP_TASK: [&str; 2] = ["authenticate", "run:call get_my_task >task.$AGENT_ATTEMPT"];
const BLOCKED: &str = r#"call report_completed '{"result":"blocked","summary":"s"}'; exit 0"#;

/// Returns how each launch began, with the id of its conversation.
fn turns(daemon: &Daemon) -> Vec<(String, String)> {
    let turns = fs::read_to_string(daemon.work().join("turns")).unwrap_or_default();
    let split = |line: &str| line.split_once(' ').map(|(how, id)| (how.to_owned(), id.to_owned()));
    turns.lines().filter_map(split).collect()
}

fn prompt(daemon: &Daemon, attempt: u32) -> String {
    fs::read_to_string(daemon.work().join(format!("prompt.{attempt}"))).unwrap()
}

/// Returns whether the conversation goes on, as an attempt was told, and the reason if not.
fn told(daemon: &Daemon, attempt: u32) -> (Value, Value) {
    let answer = fs::read_to_string(daemon.work().join(format!("task.{attempt}"))).unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    (answer["task"]["continued"].clone(), answer["task"]["fresh_because"].clone())
}

#[test]
fn a_launch_after_a_kill_continues_the_conversation_and_is_told_of_the_last_call() {
    let daemon = daemon("10ms", "script");
    let call = json!({
        "type": "tool_use", "id": "toolu_1", "name": "Bash", "input": { "command": "make all" },
    });
    let said = json!({ "id": "m", "content": [call] });
    let line = json!({ "type": "assistant", "session_id": "s", "message": said });
    fs::write(daemon.work().join("line"), format!("{line}\n")).unwrap();
    let kill = "run:[ $AGENT_ATTEMPT != 1 ] || { cat line; kill -KILL $$; }";
    daemon.with_one_task(&[&KEEP_TASK[..], &[kill, "report:success"]].concat());
    until("the task is done", || daemon.task_status("tsk") == "done");

    let turns = turns(&daemon);
    let [(first, begun), (second, resumed)] = &turns[..] else { panic!("{turns:?}") };
    assert_eq!((first.as_str(), second.as_str()), ("begin", "resume"));
    assert_eq!(begun, resumed);
    assert_eq!(begun.len(), 36, "{begun}");
    assert_eq!(told(&daemon, 1), (Value::Null, Value::Null));
    assert_eq!(told(&daemon, 2), (true.into(), Value::Null));
    let prompt = prompt(&daemon, 2);
    assert!(prompt.contains("You worked on this task before, in this conversation."), "{prompt}");
    assert!(prompt.contains(r#"may not show it: "Bash make all". Look first"#), "{prompt}");
    assert!(prompt.contains("You ended without report_completed."), "{prompt}");
    let detail = daemon.json(&["task", "show", "PRJ-1"]);
    assert_eq!(detail["conversations"][0]["session_id"], begun.as_str(), "{detail}");
    // A finished task has no next launch.
    let detail = daemon.done(&["task", "show", "PRJ-1"]);
    assert!(!detail.contains("the next launch"), "{detail}");
    assert!(!daemon.page("/ui/tasks/PRJ-1", "en").contains("The next launch continues it"));
}

#[test]
fn the_conversation_outlives_a_kill_of_the_daemon_its_shim_and_the_agent() {
    let mut daemon = daemon("10ms", "script");
    let hang = "run:[ $AGENT_ATTEMPT != 1 ] || { echo >works; sleep 600; }";
    daemon.with_one_task(&[&KEEP_TASK[..], &[hang, "report:success"]].concat());
    until("the agent works", || daemon.work().join("works").exists());
    daemon.kill();
    for pid in processes_of(&daemon.state()) {
        kill(pid, Signal::KILL);
    }
    daemon.start();
    until("the task is done", || daemon.task_status("tsk") == "done");

    let turns = turns(&daemon);
    let [(_, begun), (second, resumed)] = &turns[..] else { panic!("{turns:?}") };
    assert_eq!(second, "resume");
    assert_eq!(begun, resumed);
    let prompt = prompt(&daemon, 2);
    assert!(prompt.contains("may not show it: none is known."), "{prompt}");
}

#[test]
fn a_launch_begins_afresh_if_a_person_asks_for_it() {
    let daemon = daemon("10ms", "script");
    let blocks = format!("run:[ $AGENT_ATTEMPT != 1 ] || {{ {BLOCKED}; }}");
    daemon.with_one_task(&[&KEEP_TASK[..], &[&blocks, "report:success"]].concat());
    until("the task is blocked", || daemon.task_status("tsk") == "blocked");
    let begun = turns(&daemon)[0].1.clone();
    let detail = daemon.done(&["task", "show", "PRJ-1"]);
    assert!(
        detail.contains(&format!("the next launch continues the conversation {begun}")),
        "{detail}"
    );
    assert!(daemon.page("/ui/tasks/PRJ-1", "en").contains("The next launch continues it"));
    daemon.done(&["task", "set", "PRJ-1", "--fresh"]);
    let detail = daemon.done(&["task", "show", "PRJ-1"]);
    assert!(detail.contains("the next launch begins afresh: a person asked for it"), "{detail}");
    daemon.done(&["task", "set", "PRJ-1", "--status", "in_progress"]);
    until("the task is done", || daemon.task_status("tsk") == "done");

    let turns = turns(&daemon);
    let [(_, first), (how, second)] = &turns[..] else { panic!("{turns:?}") };
    assert_eq!(how, "begin");
    assert_ne!(first, second);
    assert_eq!(told(&daemon, 2), (false.into(), "asked".into()));
    let detail = daemon.done(&["task", "show", "PRJ-1"]);
    assert!(detail.contains("it began afresh: a person asked for it"), "{detail}");
}

#[test]
fn a_refused_conversation_begins_afresh_at_once_and_a_second_refusal_is_a_failure() {
    let daemon = daemon("1h", "exit:1");
    let blocks = format!("run:[ $AGENT_ATTEMPT = 3 ] || {{ {BLOCKED}; }}");
    daemon.with_one_task(&[&KEEP_TASK[..], &[&blocks, "report:success"]].concat());
    until("the task is blocked", || daemon.task_status("tsk") == "blocked");
    daemon.done(&["task", "set", "PRJ-1", "--status", "in_progress"]);
    // The launch that was refused is followed by one without a wait of an hour.
    until("it began afresh", || turns(&daemon).len() == 3);
    until("the task is blocked again", || daemon.task_status("tsk") == "blocked");
    let begun = turns(&daemon);
    let how: Vec<&str> = begun.iter().map(|(how, _)| how.as_str()).collect();
    assert_eq!(how, ["begin", "resume", "begin"]);
    assert_eq!(begun[0].1, begun[1].1);
    assert_ne!(begun[1].1, begun[2].1);
    assert_eq!(told(&daemon, 2), (false.into(), "refused".into()));

    daemon.done(&["task", "set", "PRJ-1", "--status", "in_progress"]);
    until("it was refused again", || turns(&daemon).len() == 4);
    until("the pair waits after a failure", || {
        daemon.done(&["why", "agt", "prj", "--purpose", "task"]).contains("backoff")
    });
    assert_eq!(turns(&daemon).len(), 4);
}

#[test]
fn a_provider_that_is_not_to_continue_begins_each_launch_without_an_id() {
    let agent = agent_fixture();
    let daemon = Daemon::running(&format!(
        "backoff: {{ initial: 10ms, max: 10ms }}\nai_providers:\n  claude:\n    cli_command: {}\n    \
         continue: off\n    cli_args: [script]\n    begin_args: ['run:echo {{conversation}} >>turns']\n    \
         resume_args: ['run:echo {{conversation}} >>turns']\n",
        agent.display()
    ));
    let kill = "run:[ $AGENT_ATTEMPT != 1 ] || kill -KILL $$";
    daemon.with_one_task(&[&KEEP_TASK[..], &[kill, "report:success"]].concat());
    until("the task is done", || daemon.task_status("tsk") == "done");
    assert!(turns(&daemon).is_empty());
    assert_eq!(told(&daemon, 2), (Value::Null, Value::Null));
}
