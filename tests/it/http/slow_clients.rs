//! Clients that take their time, and those that are many: the others don't notice.

use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;

use super::{HEALTH, JSON, LISTENING, Web, address, request_head};
use crate::daemon::{Daemon, PROGRAM};

/// Idle connections in the tests of a crowd.
const CROWD: usize = 1000;

/// So many descriptors for this process, if it may have them.
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
    // One that began its request is no better.
    let half = format!("{}{HEALTH}", request_head(JSON, HEALTH.len()));
    let mut half_way: Vec<Web> = (0..CROWD).map(|_| Web::connect(address)).collect();
    for web in &mut half_way {
        web.send(&half[..half.len() - 10]);
    }
    Web::connect(address).check_well();
    // Nor is anything else of the daemon's short of descriptors.
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
    // Whoever has spoken stays.
    assert_eq!(speaks.call("health_check", &json!({}))["status"], "ok");
    drop(silent);
    // And the same for people.
    let control = daemon.state().join("control.sock");
    let silent: Vec<UnixStream> = (0..CROWD).map(|_| UnixStream::connect(&control).unwrap()).collect();
    daemon.status();
    drop(silent);
}

#[test]
fn a_daemon_of_few_descriptors_starts_its_agents_whatever_clients_do() {
    raise_descriptors();
    let mut daemon = Daemon::configured(LISTENING);
    let mut command = Command::new("sh");
    let few = "ulimit -n 72 && exec \"$0\" \"$@\"";
    command.args(["-c", few, PROGRAM, "--config"]).arg(daemon.config()).current_dir(daemon.folder());
    daemon.spawn_as(command);
    daemon.until_ready();
    let address = address(&daemon);
    let (mcp, control) = (daemon.state().join("mcp.sock"), daemon.state().join("control.sock"));
    let crowd: Vec<Web> = (0..200).map(|_| Web::connect(address)).collect();
    let silent: Vec<UnixStream> =
        (0..200).map(|n| UnixStream::connect(if n % 2 == 0 { &mcp } else { &control }).unwrap()).collect();
    daemon.with_one_task(&["authenticate", "report:success"]);
    assert_eq!(daemon.until_ended("agt")["outcome"], "completed", "{}", daemon.log());
    Web::connect(address).check_well();
    drop((crowd, silent));
}
