//! Slow clients, and very many clients. Other clients are not affected.

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;

use super::entry::token;
use super::{HEALTH, JSON, LISTENING, Web, address, request_head};
use crate::control::send_to;
use crate::daemon::{Daemon, PROGRAM};

/// The number of idle connections in the tests of a crowd.
const CROWD: usize = 1000;

/// Raises the limit of descriptors of this process, if that is allowed.
fn raise_descriptors() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(8192.min(hard)), hard).unwrap();
}

#[test]
fn a_crowd_of_idle_connections_keeps_nobody_out() {
    raise_descriptors();
    let daemon = Daemon::running(LISTENING);
    let address = address(&daemon);
    let mut served = Web::connect(address);
    served.check_well();
    let crowd: Vec<Web> = (0..CROWD).map(|_| Web::connect(address)).collect();
    let asked = Instant::now();
    let mut late = Web::connect(address);
    late.check_well();
    late.check_well();
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    // Clients that have begun a request have no more rights.
    let half = format!("{}{HEALTH}", request_head(JSON, HEALTH.len()));
    let mut half_way: Vec<Web> = (0..CROWD).map(|_| Web::connect(address)).collect();
    for web in &mut half_way {
        web.send(&half[..half.len() - 10]);
    }
    Web::connect(address).check_well();
    // Other parts of the daemon have enough descriptors, too.
    assert_eq!(daemon.client().call("health_check", &json!({}))["status"], "ok");
    daemon.with_one_task(&["authenticate", "report:success"]);
    assert_eq!(daemon.until_ended("agt")["outcome"], "completed");
    drop((crowd, half_way));
}

#[test]
fn a_crowd_on_the_socket_keeps_nobody_out() {
    raise_descriptors();
    let daemon = Daemon::running("");
    let mut speaks = daemon.client();
    assert_eq!(speaks.call("health_check", &json!({}))["status"], "ok");
    let silent: Vec<_> = (0..CROWD).map(|_| daemon.client()).collect();
    let asked = Instant::now();
    assert_eq!(daemon.client().call("health_check", &json!({}))["status"], "ok");
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    // A client that has sent a request keeps its connection.
    assert_eq!(speaks.call("health_check", &json!({}))["status"], "ok");
    drop(silent);
    // The same holds for people.
    let control = daemon.state().join("control.sock");
    let silent: Vec<UnixStream> =
        (0..CROWD).map(|_| UnixStream::connect(&control).unwrap()).collect();
    daemon.status();
    drop(silent);
}

#[test]
fn a_daemon_of_few_descriptors_starts_its_agents_whatever_clients_do() {
    raise_descriptors();
    let mut daemon = Daemon::configured(LISTENING);
    let mut command = Command::new("sh");
    let few = "ulimit -n 72 && exec \"$0\" \"$@\"";
    command
        .args(["-c", few, PROGRAM, "--config"])
        .arg(daemon.config())
        .current_dir(daemon.folder());
    daemon.spawn_as(command);
    daemon.until_ready();
    let address = address(&daemon);
    let (mcp, control) = (daemon.state().join("mcp.sock"), daemon.state().join("control.sock"));
    let crowd: Vec<Web> = (0..200).map(|_| Web::connect(address)).collect();
    let silent: Vec<UnixStream> = (0..200)
        .map(|n| UnixStream::connect(if n % 2 == 0 { &mcp } else { &control }).unwrap())
        .collect();
    daemon.with_one_task(&["authenticate", "report:success"]);
    assert_eq!(daemon.until_ended("agt")["outcome"], "completed", "{}", daemon.log());
    Web::connect(address).check_well();
    drop((crowd, silent));
}

#[test]
fn answers_that_are_not_read_take_little_memory_and_delay_only_their_asker() {
    const N_ASKERS: usize = 30;
    let daemon = Daemon::running(LISTENING);
    daemon.apply("projects:\n  prj: { name: Project, working_directory: work }\n");
    let control = daemon.state().join("control.sock");
    for n in 0..80 {
        let task = json!({ "projectId": "prj", "title": n.to_string(), "description": "x".repeat(50_000) });
        let made = send_to(&control, "POST", "/tasks", task.to_string().as_bytes());
        assert_eq!(made.status, 201, "{}", made.body);
    }
    let (greedy, other) = (token(&daemon, &[]), token(&daemon, &[]));
    let ask = |token: &str| {
        let mut web = Web::to(&daemon);
        web.send(format!(
            "GET /api/tasks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
        ));
        web
    };
    let before = daemon.resident_kib();
    let unread: Vec<Web> = (0..N_ASKERS).map(|_| ask(&greedy)).collect();
    let answer = ask(&other).receive().unwrap();
    assert!(answer.status == 200 && answer.body.len() > 4_000_000, "{}", answer.status);
    // Only the beginning of each answer is read.
    let refused = unread.iter().filter(|web| {
        let mut begin = [0; 12];
        (&web.stream).read_exact(&mut begin).unwrap();
        begin == *b"HTTP/1.1 503"
    });
    let n_refused = refused.count();
    assert!(n_refused >= N_ASKERS / 2, "{n_refused}");
    let grown = daemon.resident_kib().saturating_sub(before);
    assert!(grown < 96 * 1024, "{grown} KiB");
    drop(unread);
    assert_eq!(ask(&greedy).receive().unwrap().status, 200);
}

#[test]
fn unfinished_bodies_cost_little_memory_and_keep_nobody_out() {
    let daemon = Daemon::running(LISTENING);
    Web::to(&daemon).check_well();
    let before = daemon.resident_kib();
    let head = request_head(JSON, 1_000_000);
    let mut unfinished: Vec<Web> = (0..100).map(|_| Web::to(&daemon)).collect();
    for web in &mut unfinished {
        web.send(&head);
        web.send(vec![b' '; 900_000]);
        Web::to(&daemon).check_well();
    }
    let grown = daemon.resident_kib().saturating_sub(before);
    assert!(grown < 40 * 1024, "100 unfinished bodies of 1 MB made the daemon {grown} KiB larger");
    let answer = unfinished[0].receive().unwrap();
    assert_eq!(answer.status, 503, "{}", answer.body);
    assert!(answer.body.contains("too_many_bodies"), "{}", answer.body);
}
