//! The agent that a process belongs to, and the processes that are operators: names give no rights,
//! identities do.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::daemon::{Daemon, IN_A_FILE, PROGRAM};
use crate::support::{is_gone, kill, until, until_some};

/// Adds two agents. `agt_b` shows its token to every process. `agt_a` tries it whenever it finds
/// `go_N`. It tries until it is refused, because the start of an agent is reported while the agent
/// runs. Then it tries once more below a process that looks like the shim of `agt_b`. Last, it uses
/// its own token.
fn with_a_thief(server: &Daemon) {
    let call = r#""$AGENT_COORDINATOR" call get_my_task >/dev/null 2>&1"#;
    let forged = r#"x "/instances/$(cat launch)""#;
    let probe = format!(
        "run:probe() {{ theirs=taken; n=0; while [ $n -lt 100 ]; do n=$((n + 1)); \
         AGENT_SESSION_TOKEN=$(cat token) {call} || {{ theirs=refused; break; }}; sleep 0.2; done; echo \"theirs $theirs\"; \
         AGENT_SESSION_TOKEN=$(cat token) ./ac-shim -c '{call} && echo forged taken || echo forged refused' {forged}; \
         ./ac-shim -c '{call} && echo own taken || echo own refused' {forged}; }}"
    );
    let show = r#"run:echo "$AGENT_LAUNCH_ID" >launch; echo "$AGENT_SESSION_TOKEN" >token"#;
    server.project("prj");
    server.agent(
        "agt_b",
        "prj",
        &["authenticate", show, "write:shown", "wait-for:end", "report:success"],
    );
    let mut steps =
        vec!["authenticate", "wait-for:shown", "run:cp /bin/sh ac-shim", probe.as_str()];
    steps.extend(["write:ready", "wait-for:go_1", "run:probe >out && mv out out_1"]);
    steps.extend(["wait-for:go_2", "run:probe >out && mv out out_2", "report:success"]);
    server.agent("agt_a", "prj", &steps);
    for agent in ["agt_a", "agt_b"] {
        server.task(&format!("tsk_{agent}"), "prj", agent);
    }
    until("both agents are there", || server.work().join("ready").exists());
}

/// Checks the results of `agt_a` now.
#[track_caller]
fn check_thief(server: &Daemon, n: u32) {
    fs::write(server.work().join(format!("go_{n}")), "").unwrap();
    let out = server.work().join(format!("out_{n}"));
    let said = until_some("the thief has tried", || fs::read_to_string(&out).ok());
    assert_eq!(said, "theirs refused\nforged refused\nown taken\n", "{}", server.log());
}

#[track_caller]
fn check_end(server: &Daemon) {
    fs::write(server.work().join("end"), "").unwrap();
    for agent in ["agt_a", "agt_b"] {
        assert_eq!(server.until_ended(agent)["outcome"], "completed", "{}", server.log());
    }
}

#[test]
fn an_agent_that_looks_like_the_shim_of_another_is_not_that_one() {
    let mut daemon = Daemon::running("");
    with_a_thief(&daemon);
    check_thief(&daemon, 1);
    // The next daemon adopts them.
    daemon.kill();
    daemon.start();
    check_thief(&daemon, 2);
    check_end(&daemon);
    daemon.until_nothing_is_left();
}

#[test]
fn an_agent_is_known_by_its_shim_after_its_store_was_restored() {
    let mut daemon = Daemon::running(IN_A_FILE);
    with_a_thief(&daemon);
    for agent in ["agt_a", "agt_b"] {
        until("its start is known", || {
            daemon.open(agent).iter().any(|launch| launch["pid"].is_number())
        });
    }
    daemon.kill();
    let files = |dir: &Path| {
        let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.to_string_lossy().contains("/state.db")).collect::<Vec<_>>()
    };
    let backup = tempfile::tempdir().unwrap();
    for file in files(&daemon.state()) {
        fs::copy(&file, backup.path().join(file.file_name().unwrap())).unwrap();
    }
    daemon.start();
    check_thief(&daemon, 1);
    daemon.kill();
    for file in files(&daemon.state()) {
        fs::remove_file(file).unwrap();
    }
    for file in files(backup.path()) {
        fs::copy(&file, daemon.state().join(file.file_name().unwrap())).unwrap();
    }
    daemon.start();
    check_thief(&daemon, 2);
    check_end(&daemon);
    daemon.until_nothing_is_left();
}

#[test]
fn a_server_knows_the_agents_of_a_coordinator_beside_it_also_after_its_restart() {
    let mut server = Daemon::serving("");
    let settings = "agents: { agt_a: { passkey: x }, agt_b: { passkey: x } }\npolling_interval: 1h";
    let link = format!("unix:{}", server.state().join("mcp.sock").display());
    let mut coordinator = Daemon::supervising(&link, settings);
    coordinator.start();
    with_a_thief(&server);
    check_thief(&server, 1);
    server.kill();
    server.start();
    check_thief(&server, 2);
    check_end(&server);
    coordinator.until_nothing_is_left();
}

#[test]
fn a_script_that_is_named_like_the_daemon_is_an_operators() {
    let daemon = Daemon::running("");
    let script = daemon.folder().join("agent-coordinator-nightly.sh");
    fs::write(&script, "#!/bin/sh\n\"$1\" --config \"$2\" token create; exit $?\n").unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let said = Command::new(&script).arg(PROGRAM).arg(daemon.config()).output().unwrap();
    assert!(said.status.success() && said.stdout.starts_with(b"op_"), "{said:?}");
}

#[test]
fn what_a_killed_shim_of_one_daemon_leaves_behind_is_an_agent_to_another_daemon() {
    let (daemon, other) = (Daemon::running(""), Daemon::running(""));
    let ask = format!("\"{PROGRAM}\" --config \"{}\" status", other.config().display());
    let orphan = format!(
        "run:{ask} >agent 2>&1; (env -i PATH=\"$PATH\" setsid sh -c 'echo $$ >draft; mv draft orphan; until [ -e go ]; do sleep 0.05; done; \
         {ask} >draft 2>&1; mv draft said' >/dev/null 2>&1 &)"
    );
    daemon.with_one_task(&["authenticate", &orphan, "write:ready", "sleep:600"]);
    let agent = daemon.written_pid("ready");
    let orphan = daemon.written_pid("orphan");
    let shim = machine::sys::processes::read(agent).unwrap().parent;
    // The daemon would end the orphan at once.
    daemon.signal(Signal::STOP);
    kill(shim, Signal::KILL);
    until("the orphan fell to its daemon", || {
        machine::sys::processes::read(orphan).is_some_and(|process| process.parent == daemon.pid())
    });
    fs::write(daemon.work().join("go"), "").unwrap();
    let refused =
        "agent-coordinator: agents have no access to the control socket; they use the MCP tools\n";
    let said =
        until_some("the orphan asked", || fs::read_to_string(daemon.work().join("said")).ok());
    assert_eq!(said, refused);
    assert_eq!(fs::read_to_string(daemon.work().join("agent")).unwrap(), refused);
    daemon.signal(Signal::CONT);
    until("the orphan is ended", || is_gone(orphan));
}
