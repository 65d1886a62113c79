//! F-1, F-2, F-5: the daemon is killed, and the next one takes over.

use std::fs;

use crate::daemon::{Daemon, LEAVES_A_REPORT};
use crate::support::{is_gone, until, until_some};

/// Three agents that wait for `go`, and a fourth without a slot.
const AGENTS: [&str; 4] = ["agt_a", "agt_b", "agt_c", "agt_d"];

#[test]
fn living_agents_are_adopted_by_the_next_daemon() {
    let mut daemon = Daemon::configured("max_concurrent: 3\nmanifest: manifest.yaml");
    daemon.manifest(&AGENTS);
    for agent in AGENTS {
        let alone = format!("alone:{agent}.alone");
        let started = format!("append:{agent}.pid");
        daemon.steps(
            agent,
            &[&alone, &started, "authenticate", "wait-for:go", "get-my-task", "report:success"],
        );
    }
    daemon.start();
    let running = |daemon: &Daemon| {
        let status = daemon.status();
        let running = status["instances"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|launch| launch["state"] == "running");
        let mut pids: Vec<_> = running
            .filter_map(|launch| {
                Some((launch["agent_id"].as_str()?.to_owned(), launch["pid"].as_i64()?))
            })
            .collect();
        pids.sort();
        Some(pids).filter(|pids| pids.len() == 3)
    };
    let before = until_some("three agents run", || running(&daemon));
    daemon.kill();
    daemon.start();
    assert_eq!(daemon.logged("instance adopted").len(), 3);
    // The coordinator tells the server what it has adopted after the log.
    until("the status shows them as adopted", || {
        let status = daemon.status();
        status["instances"].as_array().unwrap().iter().all(|launch| launch["adopted"] == true)
    });
    assert_eq!(daemon.done(&["status"]).matches("adopted").count(), 3);
    assert_eq!(running(&daemon), Some(before.clone()), "the same processes");
    assert!(before.iter().all(|(_, pid)| !is_gone(i32::try_from(*pid).unwrap())));
    until("the fourth waits for a slot", || {
        daemon.status()["deferred"][0]["reason"] == "no_free_slot"
    });
    fs::write(daemon.work().join("go"), "").unwrap();
    until("all four are done", || daemon.status()["ended"].as_array().unwrap().len() == 4);
    for agent in AGENTS {
        assert_eq!(daemon.ended(agent)[0]["outcome"], "completed");
        let starts = fs::read_to_string(daemon.work().join(format!("{agent}.pid"))).unwrap();
        assert_eq!(starts.lines().count(), 1, "{agent} was started once");
    }
    daemon.until_nothing_is_left();
}

#[test]
fn an_exit_without_a_daemon_is_recorded_with_its_code() {
    let mut daemon = Daemon::running("backoff: { initial: 1m }\nmax_concurrent: 1");
    daemon.with_one_task(&["authenticate", "write:started", "wait-for:go", "exit:42"]);
    let pid = daemon.written_pid("started");
    daemon.kill();
    fs::write(daemon.work().join("go"), "").unwrap();
    until("the agent is gone", || is_gone(pid));
    daemon.start();
    let ended = daemon.until_ended("agt");
    assert_eq!(
        (&ended["outcome"], &ended["exit_code"]),
        (&"exited_without_report".into(), &42.into())
    );
    assert_eq!(daemon.status()["limits"]["running"], 0, "its slot is free");
    daemon.until_nothing_is_left();
}

#[test]
fn a_report_that_an_agent_has_left_is_delivered_by_the_next_daemon() {
    let mut daemon = Daemon::running("backoff: { initial: 1m }");
    let steps = ["authenticate", "get-my-task", "write:ready", "wait-for:go", LEAVES_A_REPORT];
    daemon.with_one_task(&steps);
    let pid = daemon.written_pid("ready");
    daemon.kill();
    fs::write(daemon.work().join("go"), "").unwrap();
    until("the agent is gone", || is_gone(pid));
    daemon.start();
    assert_eq!(daemon.until_ended("agt")["outcome"], "completed");
    assert_eq!((daemon.task_status("tsk").as_str(), daemon.ended("agt").len()), ("done", 1));
    daemon.until_nothing_is_left();
}

#[test]
fn a_second_daemon_names_the_first_and_a_third_takes_over() {
    let mut first = Daemon::running("");
    let pid = first.pid();
    let output = first.command().arg("run").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("another daemon (pid {pid})")), "{said}");
    first.done(&["status"]);
    first.kill();
    first.start();
    assert_ne!(first.pid(), pid);
    first.done(&["status"]);
}

#[test]
fn the_socket_of_a_killed_daemon_is_replaced() {
    let mut daemon = Daemon::running("");
    daemon.kill();
    assert!(daemon.state().join("mcp.sock").exists(), "nobody removed it");
    assert_eq!(daemon.cli(&["status"]).code, 69);
    daemon.start();
    assert_eq!(daemon.client().call("health_check", &serde_json::json!({}))["status"], "ok");
}
