//! F-28, F-29: agents that take too long, and a daemon that was asleep.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::daemon::Daemon;
use crate::support::{is_gone, kill, until, until_some_within};

/// Returns the duration of a launch, in milliseconds.
fn lasted(ended: &serde_json::Value) -> i64 {
    let at = |name: &str| {
        ended[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond()
    };
    at("ended_at") - at("started_at")
}

#[track_caller]
fn check_timed_out(daemon: &Daemon, reason: &str) -> i64 {
    let ended = daemon.until_ended("agt");
    assert_eq!(
        (&ended["outcome"], &ended["reason"]),
        (&"timed_out".into(), &reason.into()),
        "{ended}"
    );
    lasted(&ended)
}

#[test]
fn an_agent_that_was_stopped_by_a_signal_is_ended_when_its_time_is_over() {
    let daemon = Daemon::running("run: { max_runtime: 2s }\nbackoff: { initial: 1h, max: 1h }");
    daemon.with_one_task(&["authenticate", "write:ready", "sleep:600"]);
    let agent = daemon.written_pid("ready");
    kill(agent, Signal::STOP);
    let lasted = check_timed_out(&daemon, "run_maximum");
    assert!(lasted >= 1_900, "{lasted} ms");
    assert!(is_gone(agent));
    daemon.until_nothing_is_left();
}

#[test]
fn the_time_of_an_agent_goes_on_while_no_daemon_is_there() {
    let mut daemon = Daemon::running("run: { max_runtime: 3s }\nbackoff: { initial: 1h, max: 1h }");
    daemon.with_one_task(&["authenticate", "write:ready", "sleep:2", "write:old", "sleep:600"]);
    daemon.written_pid("ready");
    daemon.kill();
    // The agent writes this when it has run for that time.
    daemon.written_pid("old");
    let restarted_at = Instant::now();
    daemon.start();
    check_timed_out(&daemon, "run_maximum");
    // The time counts from the agent's own start, not from that of the daemon.
    assert!(restarted_at.elapsed() < Duration::from_millis(2_800), "{:?}", restarted_at.elapsed());
}

/// The step of an agent that never ends its work.
const WORKS: &str = "run:while :; do call get_my_task; sleep 0.2; done";

/// The coordinator ends it, because the server looks for old sessions only every five minutes.
#[test]
fn an_agent_is_ended_when_its_session_is_past_its_maximum() {
    let daemon = Daemon::running(
        "session: { default_timeout: 1s, max_timeout: 3s }\nbackoff: { initial: 1h, max: 1h }",
    );
    daemon.with_one_task(&["authenticate", "get-my-task", "write:ready", "sleep:2", WORKS]);
    let agent = daemon.written_pid("ready");
    let lasted = check_timed_out(&daemon, "session_maximum");
    assert!(lasted >= 2_900, "{lasted} ms");
    assert!(is_gone(agent));
    daemon.until_nothing_is_left();
}

#[test]
fn the_maximum_of_a_session_goes_on_while_no_daemon_is_there() {
    let mut daemon = Daemon::running(
        "session: { default_timeout: 1s, max_timeout: 6s }\nbackoff: { initial: 1h, max: 1h }",
    );
    daemon.with_one_task(&[
        "authenticate",
        "get-my-task",
        "write:ready",
        "sleep:5",
        "write:old",
        WORKS,
    ]);
    daemon.written_pid("ready");
    daemon.kill();
    daemon.written_pid("old");
    let restarted_at = Instant::now();
    daemon.start();
    check_timed_out(&daemon, "session_maximum");
    // The time counts from the agent's own start, not from that of the daemon.
    assert!(restarted_at.elapsed() < Duration::from_millis(5_800), "{:?}", restarted_at.elapsed());
    daemon.until_nothing_is_left();
}

#[test]
fn an_agent_that_neither_calls_nor_prints_is_ended() {
    let daemon = Daemon::running("run: { silence_timeout: 1s }\nbackoff: { initial: 1h, max: 1h }");
    let prints = "run:n=0; while [ $n -lt 14 ]; do echo $n; sleep 0.3; n=$((n + 1)); done";
    let calls = "run:n=0; while [ $n -lt 14 ]; do call get_my_task; sleep 0.3; n=$((n + 1)); done";
    daemon.with_one_task(&["authenticate", "get-my-task", prints, calls, "sleep:600"]);
    // This is twice four seconds of activity, then one of silence and a second look.
    let lasted = check_timed_out(&daemon, "silence");
    assert!(lasted >= 9_000, "{lasted} ms");
}

/// CLIs print nothing while a long command runs.
#[test]
fn the_work_of_a_child_is_a_sign_of_life() {
    let daemon = Daemon::running("run: { silence_timeout: 2s }\nbackoff: { initial: 1h, max: 1h }");
    daemon.with_one_task(&[
        "authenticate",
        "get-my-task",
        "run:timeout 8 sh -c 'while :; do :; done' || true",
        "sleep:600",
    ]);
    let lasted = check_timed_out(&daemon, "silence");
    assert!(lasted >= 9_000, "{lasted} ms");
    daemon.until_nothing_is_left();
}

#[test]
fn a_silence_is_shown_before_it_ends_an_agent() {
    let daemon = Daemon::running(
        "run: { silence_timeout: 8s }\nbackoff: { initial: 1h, max: 1h }\npolling_interval: 1h",
    );
    daemon.with_one_task(&["authenticate", "get-my-task", "sleep:600"]);
    until("the silence is shown", || daemon.status()["instances"][0]["silent_since"].is_string());
    let told = daemon.done(&["status"]);
    assert!(told.contains("running (silent for "), "{told}");
    for (language, words) in [("en", "silent since <time "), ("ja", "最終出力: <time ")] {
        let page = daemon.page("/ui/parts/agents", language);
        assert!(page.contains(words), "{page}");
    }
    check_timed_out(&daemon, "silence");
}

#[test]
fn an_authenticate_is_a_sign_of_life() {
    let daemon = Daemon::running("run: { silence_timeout: 3s }\nbackoff: { initial: 1h, max: 1h }");
    // The agent is silent for longer than the limit, but before the limit applies, and not after.
    daemon.with_one_task(&[
        "sleep:6",
        "authenticate",
        "sleep:2.5",
        "get-my-task",
        "report:success",
    ]);
    assert_eq!(daemon.until_ended("agt")["outcome"], "completed");
}

#[test]
fn a_call_that_is_held_is_life() {
    let daemon = Daemon::running("run: { silence_timeout: 1s }\nchat: { poll_hold: 6s }");
    daemon.project("prj");
    daemon.agent(
        "agt",
        "prj",
        &["authenticate", "call:get_next_action {}", "write:held", "sleep:600"],
    );
    daemon.done(&["chat", "start", "agt", "prj"]);
    daemon.written_pid("held");
    let ended = daemon.until_ended("agt");
    assert_eq!(ended["reason"], "silence", "{ended}");
    assert!(lasted(&ended) >= 6_500, "{ended}");
}

#[test]
fn a_daemon_that_was_stopped_by_a_signal_ends_nobody_who_is_at_work() {
    let settings =
        // The timeout is long in comparison with a beat that waits for its processor.
        "run: { silence_timeout: 5s }\nnotice: { grace: 5s }\nchat: { idle_timeout: 1h }\npolling_interval: 1s";
    let daemon = Daemon::running(settings);
    daemon.project("prj");
    let works = "run:while :; do echo x; echo x >>$AGENT_ID.beats; sleep 0.3; done";
    for agent in ["agt_a", "agt_b"] {
        daemon.agent(agent, "prj", &["authenticate", "get-my-task", works]);
        daemon.task(&format!("tsk_{agent}"), "prj", agent);
        daemon.until_in_state(agent, "running");
    }
    // The agents' own clock: each beat takes 0.3 s and a little more.
    let until_beats = |n: u64| {
        let beats = |agent: &str| {
            std::fs::metadata(daemon.work().join(format!("{agent}.beats")))
                .map_or(0, |it| it.len() / 2)
        };
        let enough = ["agt_a", "agt_b"].map(|agent| beats(agent) + n);
        // On a busy machine, each beat is a process that waits for its turn.
        let are_enough = || {
            ["agt_a", "agt_b"]
                .into_iter()
                .zip(enough)
                .all(|(agent, enough)| beats(agent) >= enough)
                .then_some(())
        };
        until_some_within(Duration::from_mins(2), are_enough, || {
            format!("waited in vain until they worked on: {}", daemon.log())
        });
    };
    let cycles = || daemon.status()["counters"]["cycles"].as_u64().unwrap();
    let before = cycles();
    daemon.signal(Signal::STOP);
    until_beats(24);
    daemon.signal(Signal::CONT);
    let after = cycles();
    // This is one poll and the cycles that it causes, not one for each missed poll.
    assert!(after - before <= 4, "{} cycles", after - before);
    // The daemon had time to find them silent.
    until_beats(24);
    for agent in ["agt_a", "agt_b"] {
        assert_eq!(daemon.open(agent)[0]["state"], "running", "{}", daemon.log());
    }
}
