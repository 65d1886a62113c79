//! A server and a coordinator as two processes: over the socket, over HTTP, and over links that
//! break in every way.

#![allow(clippy::unwrap_used, reason = "a test")]

mod failures;
mod proxy;
mod seed_server;
mod seed_steps;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use serde_json::Value;

use crate::daemon::Daemon;
use crate::support::{is_gone, until, until_some};
use rustix::process::Signal;

/// The server listens for HTTP on a port of its choice.
const LISTENING: &str = "http: { listen: \"127.0.0.1:0\" }";
/// The coordinator starts this agent. It polls rarely, so that quick reactions show that a change
/// was announced.
const KNOWS_AGT: &str = "agents: { agt: { passkey: a-passkey } }\npolling_interval: 1h";
const WORK: &[&str] = &["authenticate", "get-my-task", "report:success"];

/// Returns the address of a server's socket.
fn socket_of(server: &Daemon) -> String {
    format!("unix:{}", server.state().join("mcp.sock").display())
}

/// Returns the URL of a server.
fn url_of(server: &Daemon) -> String {
    format!("http://{}/mcp", server.status()["http"]["address"].as_str().unwrap())
}

/// Returns settings with which a coordinator is admitted over HTTP.
fn with_token(server: &Daemon, settings: &str) -> String {
    let token = fs::read_to_string(server.state().join("coordinator_token")).unwrap();
    format!("coordinator_token: {}\n{settings}", token.trim())
}

/// Starts a coordinator of `server` over its socket.
fn supervising(server: &Daemon, settings: &str) -> Daemon {
    let mut coordinator = Daemon::supervising(&socket_of(server), settings);
    coordinator.start();
    coordinator
}

#[test]
fn work_is_done_over_the_socket_and_over_http() {
    let server = Daemon::serving(LISTENING);
    let links = [
        (socket_of(&server), KNOWS_AGT.to_owned()),
        (url_of(&server), with_token(&server, KNOWS_AGT)),
    ];
    server.project("prj");
    server.agent("agt", "prj", WORK);
    for (n, (link, settings)) in links.iter().enumerate() {
        let mut coordinator = Daemon::supervising(link, settings);
        coordinator.start();
        let task = format!("tsk_{n}");
        server.task(&task, "prj", "agt");
        until("the work is done", || server.task_status(&task) == "done");
        let ended = until_some("the end is known", || server.ended("agt").get(n).cloned());
        assert_eq!(
            (&ended["outcome"], &ended["exit_code"]),
            (&"completed".into(), &0.into()),
            "{link}"
        );
        coordinator.until_nothing_is_left();
        assert!(coordinator.terminate().success());
    }
}

#[test]
fn the_server_may_come_later_and_go_in_between() {
    let mut server = Daemon::serving("");
    server.project("prj");
    server.agent(
        "agt",
        "prj",
        &["authenticate", "get-my-task", "write:ready", "wait-for:go", "report:success", "exit:7"],
    );
    server.kill();
    let coordinator = supervising(&server, KNOWS_AGT);
    until("it says that it is cut off", || coordinator.status()["health"] == "cut_off");
    server.start();
    server.task("tsk", "prj", "agt");
    let agent = server.written_pid("ready");
    server.kill();
    until("it notices", || coordinator.status()["health"] == "cut_off");
    assert!(!is_gone(agent));
    assert_eq!(coordinator.status()["instances"][0]["pid"], agent);
    fs::write(server.work().join("go"), "").unwrap();
    server.start();
    let ended = server.until_ended("agt");
    assert_eq!((&ended["outcome"], &ended["exit_code"]), (&"completed".into(), &7.into()));
    assert_eq!(server.task_status("tsk"), "done");
    coordinator.until_nothing_is_left();
}

#[test]
fn a_coordinator_that_dies_finds_its_agents_again() {
    let server = Daemon::serving("");
    let mut coordinator = supervising(&server, KNOWS_AGT);
    server.with_one_task(&[
        "alone:one",
        "authenticate",
        "get-my-task",
        "write:ready",
        "wait-for:go",
        "report:success",
        "exit:3",
    ]);
    let agent = server.written_pid("ready");
    coordinator.kill();
    coordinator.start();
    assert!(coordinator.logged("checked the instances of earlier daemons")[0]["adopted"] == 1);
    assert!(!is_gone(agent));
    // The coordinator is away while the agent ends.
    coordinator.kill();
    fs::write(server.work().join("go"), "").unwrap();
    until("the agent is gone", || is_gone(agent));
    coordinator.start();
    let ended = server.until_ended("agt");
    assert_eq!((&ended["outcome"], &ended["exit_code"]), (&"completed".into(), &3.into()));
    assert!(!server.work().join("one.twin").exists());
}

#[test]
fn several_coordinators_start_no_twin() {
    let agents: Vec<String> = (0..12).map(|n| format!("agt_{n}")).collect();
    let names: Vec<&str> = agents.iter().map(String::as_str).collect();
    let passkeys = names
        .iter()
        .map(|agent| format!("{agent}: {{ passkey: x }}"))
        .collect::<Vec<_>>()
        .join(", ");
    let settings = format!("agents: {{ {passkeys} }}\nmax_concurrent: 12\npolling_interval: 100ms");
    let server = Daemon::serving("");
    server.project("prj");
    for agent in &names {
        server.agent(
            agent,
            "prj",
            &[&format!("alone:{agent}.alone"), "authenticate", "get-my-task", "report:success"],
        );
    }
    let coordinators: Vec<Daemon> = (0..3).map(|_| supervising(&server, &settings)).collect();
    for agent in &names {
        server.task(&format!("tsk_{agent}"), "prj", agent);
    }
    for agent in &names {
        until("the work is done", || server.task_status(&format!("tsk_{agent}")) == "done");
        assert_eq!(server.until_ended(agent)["outcome"], "completed");
        assert_eq!(server.ended(agent).len(), 1);
        assert!(!server.work().join(format!("{agent}.alone.twin")).exists());
    }
    assert_eq!(server.status()["coordinators"].as_array().unwrap().len(), 3);
    drop(coordinators);
}

/// F-31. The lapse of an abandoned claim takes half a minute longer than
/// any start, so the simulation shows it.
#[cfg(debug_assertions)]
#[test]
fn a_start_that_a_dying_coordinator_had_claimed_is_nobody_elses_until_it_is_given_back() {
    use machine::crash_point::{CrashPoint, VARIABLE};
    let server = Daemon::serving("backoff: { initial: 10ms, max: 10ms }");
    let mut first = Daemon::supervising(&socket_of(&server), KNOWS_AGT);
    let mut command = first.command();
    command.env(VARIABLE, format!("{:?}", CrashPoint::Claimed));
    first.spawn_as(command);
    server.with_one_task(&[
        "alone:one",
        "append:agents",
        "authenticate",
        "get-my-task",
        "report:success",
    ]);
    assert!(!first.wait().success());
    let _second = supervising(&server, &KNOWS_AGT.replace("1h", "100ms"));
    let mut heard = BTreeSet::new();
    until("the other has looked often enough", || {
        let coordinators = server.status()["coordinators"].clone();
        heard
            .extend(coordinators.as_array().unwrap().iter().map(|one| one["heard_at"].to_string()));
        heard.len() >= 5
    });
    assert_eq!(server.open("agt").len(), 1);
    assert!(!server.work().join("agents").exists(), "nobody is started for a claim of another");
    first.start();
    until("the work is done", || server.task_status("tsk") == "done");
    until("both ends are known", || server.ended("agt").len() == 2);
    let outcomes: Vec<Value> =
        server.ended("agt").iter().map(|launch| launch["outcome"].clone()).collect();
    assert_eq!(outcomes, ["completed", "start_failed"]);
    let agents = fs::read_to_string(server.work().join("agents")).unwrap();
    assert_eq!((agents.lines().count(), server.work().join("one.twin").exists()), (1, false));
}

#[test]
fn a_person_stops_an_agent_of_a_coordinator_elsewhere() {
    let server = Daemon::serving("");
    let coordinator = supervising(&server, KNOWS_AGT);
    server.with_one_task(&["authenticate", "write:ready", "sleep:600"]);
    let agent = server.written_pid("ready");
    server.done(&["stop", "agt", "prj"]);
    until("the agent is gone", || is_gone(agent));
    let ended = server.until_ended("agt");
    assert_eq!((&ended["outcome"], &ended["reason"]), (&"stopped".into(), &"person".into()));
    coordinator.until_nothing_is_left();
    server.steps("agt", WORK);
    server.done(&["resume", "agt", "prj"]);
    until("the work is done", || server.task_status("tsk") == "done");
}

#[test]
fn who_authenticated_in_time_outlives_the_start_timeout_and_who_did_not_does_not() {
    let server = Daemon::serving("start: { timeout: 2s }");
    let coordinator = supervising(&server, KNOWS_AGT);
    server.with_one_task(&[
        "authenticate",
        "get-my-task",
        "write:ready",
        "sleep:5",
        "report:success",
    ]);
    until("the work is done", || server.task_status("tsk") == "done");
    assert_eq!(server.until_ended("agt")["outcome"], "completed");
    server.steps("agt", &["write:silent", "sleep:600"]);
    server.task("tsk_2", "prj", "agt");
    let silent = server.written_pid("silent");
    until("the silent one is gone", || is_gone(silent));
    let newest = until_some("its end is known", || {
        server.ended("agt").into_iter().find(|ended| ended["task_id"].is_null())
    });
    assert_eq!(newest["outcome"], "never_authenticated", "{newest}");
    drop(coordinator);
}

#[test]
fn a_coordinator_ends_a_session_past_the_servers_maximum_also_when_it_was_away() {
    let server = Daemon::serving(
        "session: { default_timeout: 1s, max_timeout: 3s }\nbackoff: { initial: 1h, max: 1h }",
    );
    let mut coordinator = supervising(&server, KNOWS_AGT);
    let works = "run:while :; do call get_my_task; sleep 0.2; done";
    server.with_one_task(&["authenticate", "get-my-task", "write:ready", works]);
    let agent = server.written_pid("ready");
    let check_ended = |nth: usize, agent: i32| {
        let ended =
            until_some("its end is known", || server.ended("agt").into_iter().rev().nth(nth));
        assert_eq!(
            (&ended["outcome"], &ended["reason"]),
            (&"timed_out".into(), &"session_maximum".into()),
            "{ended}"
        );
        assert!(is_gone(agent));
    };
    check_ended(0, agent);
    server.steps("agt", &["authenticate", "write:again", "sleep:4", "write:old", works]);
    server.done(&["resume", "agt", "prj"]);
    let agent = server.written_pid("again");
    coordinator.kill();
    server.written_pid("old");
    assert!(!is_gone(agent));
    coordinator.start();
    check_ended(1, agent);
    coordinator.until_nothing_is_left();
}

#[test]
fn a_coordinator_ends_its_agents_though_the_server_is_away() {
    let mut server = Daemon::serving("");
    let mut coordinator = supervising(&server, KNOWS_AGT);
    server.with_one_task(&["authenticate", "write:ready", "sleep:600"]);
    let agent = server.written_pid("ready");
    server.kill();
    assert!(coordinator.terminate().success());
    assert!(is_gone(agent));
    server.start();
    server.steps("agt", WORK);
    coordinator.start();
    let ended = server.until_ended("agt");
    assert_eq!(
        (&ended["outcome"], &ended["reason"]),
        (&"stopped".into(), &"shutdown".into()),
        "{ended}"
    );
}

#[test]
fn an_agent_without_a_passkey_is_not_started_and_the_status_says_so() {
    let server = Daemon::serving("");
    let coordinator = supervising(&server, "agents: { other: { passkey: x } }");
    server.with_one_task(WORK);
    let deferred = |daemon: &Daemon| daemon.status()["deferred"][0].clone();
    until("both say why", || {
        [&server, &coordinator].iter().all(|daemon| deferred(daemon)["reason"] == "no_passkey")
    });
    assert_eq!(server.task_status("tsk"), "in_progress");
}

#[test]
fn a_wrong_token_is_told_and_nothing_is_started() {
    let server = Daemon::serving(LISTENING);
    server.with_one_task(WORK);
    let url = url_of(&server);
    let mut coordinator =
        Daemon::supervising(&url, &format!("coordinator_token: coord_wrong\n{KNOWS_AGT}"));
    coordinator.start();
    let said = until_some("it says so", || {
        let failed =
            coordinator.logged("could not ask the server; running agents go on, will ask again");
        failed.first().map(|line| line["error"].as_str().unwrap().to_owned())
    });
    assert!(said.contains("its coordinator_token is another one"), "{said}");
    assert_eq!(coordinator.status()["health"], "cut_off");
    assert!(!coordinator.log().contains("coord_wrong"));
    assert!(server.ended("agt").is_empty() && server.open("agt").is_empty());
    coordinator.terminate();
    coordinator.configure(&format!("server: {url}\n{}", with_token(&server, KNOWS_AGT)));
    coordinator.start();
    until("the work is done", || server.task_status("tsk") == "done");
}

#[test]
fn the_command_line_asks_a_coordinator_what_it_knows_and_says_whom_to_ask_else() {
    let server = Daemon::serving("");
    let coordinator = supervising(&server, KNOWS_AGT);
    server.with_one_task(&["print:a-line", "authenticate", "write:ready", "sleep:600"]);
    server.written_pid("ready");
    let running = coordinator.status()["instances"][0].clone();
    assert_eq!((&running["agent_id"], &running["state"]), (&"agt".into(), &"running".into()));
    assert!(coordinator.done(&["status"]).contains("coordinator of unix:"));
    until("the line is there", || coordinator.done(&["logs", "agt", "prj"]).contains("a-line"));
    let said = coordinator.cli(&["task", "list"]);
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("is a coordinator's, without its server"), "{said:?}");
    // The server has the end of the output only once the agent has ended.
    let said = server.cli(&["logs", "agt", "prj"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stderr.contains("is where its coordinator"), "{said:?}");
    let known: Value = server.status()["coordinators"][0].clone();
    assert_eq!((&known["running"], &known["max_concurrent"]), (&1.into(), &3.into()));
    server.done(&["stop", "agt", "prj"]);
    server.until_ended("agt");
    let said = server.cli(&["logs", "agt", "prj"]);
    assert_eq!((said.code, said.stdout.lines().next()), (0, Some("a-line")), "{said:?}");
    assert!(said.stderr.contains("this is the end of it"), "{said:?}");
}

#[test]
fn a_server_and_a_coordinator_share_a_state_directory_and_two_coordinators_do_not() {
    let server = Daemon::serving("");
    let settings = format!("{KNOWS_AGT}\nstate_dir: {}", server.state().display());
    let shared = |settings: &str| {
        let coordinator = Daemon::supervising(&socket_of(&server), "");
        fs::write(coordinator.config(), settings).unwrap();
        coordinator
    };
    let agent = format!(
        "ai_providers: {{ claude: {{ cli_command: {}, cli_args: [script] }} }}",
        crate::support::agent_fixture().display()
    );
    let settings = format!("{settings}\n{agent}\nserver: {}\n", socket_of(&server));
    let mut first = shared(&settings);
    first.start();
    server.with_one_task(WORK);
    until("the work is done", || server.task_status("tsk") == "done");
    let (code, said) = shared(&settings).refused();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("another coordinator (pid"), "{said}");
    assert!(first.terminate().success());
}

#[test]
fn both_answer_a_second_term_and_a_coordinator_without_agents_goes_at_once() {
    let mut server = Daemon::serving("");
    let mut coordinator = supervising(&server, KNOWS_AGT);
    assert!(coordinator.terminate().success());
    coordinator.start();
    // A question that waits for news doesn't delay the server's end.
    until("it listens", || coordinator.status()["health"] == "ok");
    server.signal(Signal::TERM);
    assert!(server.wait().success());
    let stopped = server.logged("stopped");
    assert_eq!(stopped.len(), 1);
    assert!(
        server
            .logged("a step of the shutdown exceeded its deadline; continuing without it")
            .is_empty(),
        "{}",
        server.log()
    );
    assert!(coordinator.terminate().success());
}

#[test]
fn a_server_that_comes_back_hears_how_its_coordinators_stand() {
    let mut server = Daemon::serving("");
    let _coordinator = supervising(&server, KNOWS_AGT);
    let is_listed =
        |server: &Daemon| !server.status()["coordinators"].as_array().unwrap().is_empty();
    until("it is known", || is_listed(&server));
    server.kill();
    server.start();
    until("it is known again", || is_listed(&server));
}

#[test]
fn a_copy_of_a_state_directory_is_another_coordinator() {
    let server = Daemon::serving("");
    let original = supervising(&server, KNOWS_AGT);
    server.with_one_task(PATIENT_WORK);
    let agent = server.written_pid("ready");
    let mut copy = copy_of(&original, &server);
    copy.start();
    let is_copy = |line: &Value| {
        line["message"].as_str().is_some_and(|message| message.contains("is a copy of another"))
    };
    assert!(
        copy.log().lines().any(|line| serde_json::from_str(line).is_ok_and(|line| is_copy(&line))),
        "{}",
        copy.log()
    );
    until("both are known", || server.status()["coordinators"].as_array().unwrap().len() == 2);
    assert!(!is_gone(agent));
    fs::write(server.work().join("go"), "").unwrap();
    until("the work is done", || server.task_status("tsk") == "done");
    assert_eq!(server.until_ended("agt")["outcome"], "completed");
    assert_eq!((server.ended("agt").len(), server.work().join("one.twin").exists()), (1, false));
}

#[test]
fn of_two_starts_of_one_coordinator_the_later_goes_on_alone() {
    let server = Daemon::serving("");
    let mut original = supervising(&server, KNOWS_AGT);
    server.with_one_task(PATIENT_WORK);
    let agent = server.written_pid("ready");
    let mut copy = copy_of(&original, &server);
    looks_like(&copy, &original);
    fs::remove_file(server.work().join("ready")).unwrap();
    copy.start();
    assert_eq!(original.wait().code(), Some(1), "{}", original.log());
    assert!(is_gone(agent));
    let told = |line: &Value| {
        line["message"]
            .as_str()
            .is_some_and(|text| text.starts_with("a later start of this coordinator"))
    };
    assert!(
        original.log().lines().any(|line| serde_json::from_str(line).is_ok_and(|line| told(&line))),
        "{}",
        original.log()
    );
    // After another start it is a coordinator of its own, and each leaves the other's agents alone.
    server.written_pid("ready");
    original.start();
    until("both are there", || {
        let status = server.status();
        let coordinators = status["coordinators"].as_array().unwrap();
        coordinators.len() == 2
            && coordinators.iter().all(|coordinator| coordinator["is_there"] == true)
    });
    fs::write(server.work().join("go"), "").unwrap();
    until("the work is done", || server.task_status("tsk") == "done");
    let outcomes = until_some("the ends are known", || {
        let ended = server.ended("agt");
        (ended.len() == 2)
            .then(|| ended.iter().map(|ended| ended["outcome"].clone()).collect::<Vec<_>>())
    });
    assert!(
        outcomes.contains(&"completed".into()) && outcomes.contains(&"lost".into()),
        "{outcomes:?}"
    );
    assert!(!server.work().join("one.twin").exists());
}

#[test]
fn nobody_elsewhere_is_the_coordinator_of_a_server_that_has_one() {
    let original = Daemon::running("");
    original.with_one_task(PATIENT_WORK);
    let agent = original.written_pid("ready");
    let mut copy = copy_of(&original, &original);
    copy.start();
    assert!(copy.log().contains("is a copy of another"), "{}", copy.log());
    copy.terminate();
    // If the copy can't detect it, the server reports it.
    let mut clone = copy_of(&original, &original);
    looks_like(&clone, &original);
    clone.start();
    assert_eq!(clone.wait().code(), Some(1), "{}", clone.log());
    assert!(!is_gone(agent));
    fs::write(original.work().join("go"), "").unwrap();
    assert_eq!(original.until_ended("agt")["outcome"], "completed");
    assert_eq!(original.ended("agt").len(), 1);
}

/// Makes the copy look like one on a cloned machine, which shows no sign of another place.
fn looks_like(copy: &Daemon, original: &Daemon) {
    let [of_original, own] =
        [original, copy].map(|daemon| fs::metadata(daemon.state()).unwrap().ino().to_string());
    let place = copy.state().join("coordinator_place");
    let copied = fs::read_to_string(&place).unwrap();
    fs::write(&place, copied.replacen(&of_original, &own, 1)).unwrap();
}

/// The steps of an agent that must not run twice, and waits for a signal.
const PATIENT_WORK: &[&str] =
    &["alone:one", "authenticate", "get-my-task", "write:ready", "wait-for:go", "report:success"];

/// Returns a coordinator with a copy of another's state directory, which is not started.
fn copy_of(original: &Daemon, server: &Daemon) -> Daemon {
    let copy = Daemon::supervising(&socket_of(server), KNOWS_AGT);
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .arg(original.state())
        .arg(copy.state())
        .status()
        .unwrap();
    assert!(copied.success());
    copy
}
