//! The same tests for an ordinary user: neither the main work nor the adoption needs root. If the
//! tests run as an ordinary user, all other tests show it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::{Ended, shim_of};
use crate::daemon::{Daemon, IN_A_FILE, PROGRAM};
use crate::support::{agent_fixture, is_gone, kill, skip, until, until_some};

/// The id of `nobody` on almost every system.
const USER: u32 = 65534;

/// Returns a daemon of another user. If that is impossible, prints the reason and returns `None`.
pub fn of_user(settings: &str) -> Option<Daemon> {
    if !rustix::process::geteuid().is_root() {
        skip("only root can become another user");
        return None;
    }
    let runs = |program: &str, argument: &str| {
        let mut command = Command::new(program);
        command.arg(argument).stdout(Stdio::null()).uid(USER).gid(USER).current_dir("/");
        command.status().is_ok_and(|status| status.success())
    };
    if !runs(PROGRAM, "--version") || !runs(agent_fixture().to_str().unwrap(), "exit:0") {
        skip("an ordinary user may not run what was built here");
        return None;
    }
    let mut daemon = Daemon::configured(settings);
    daemon.hand_over_to(USER);
    Some(daemon)
}

#[test]
fn an_ordinary_users_agents_work_and_are_adopted() {
    let Some(mut daemon) = of_user("") else {
        return;
    };
    daemon.start();
    daemon.with_one_task(&[
        "authenticate",
        "get-my-task",
        "write:ready",
        "wait-for:go",
        "report:success",
    ]);
    let agent = daemon.written_pid("ready");
    daemon.kill();
    daemon.start();
    assert_eq!(daemon.logged("instance adopted").len(), 1);
    assert!(!is_gone(agent));
    fs::write(daemon.work().join("go"), "").unwrap();
    assert_eq!(daemon.until_ended("agt")["outcome"], "completed");
    assert_eq!(daemon.task_status("tsk"), "done");
    daemon.until_nothing_is_left();
}

#[test]
fn an_ordinary_users_daemon_ends_what_a_killed_shim_left() {
    let Some(mut daemon) = of_user("backoff: { initial: 1m }") else {
        return;
    };
    daemon.start();
    daemon.with_one_task(&["authenticate", "term-ignoring-child", "write:ready", "sleep:600"]);
    let agent = daemon.written_pid("ready");
    let shim = shim_of(agent);
    daemon.kill();
    kill(shim, Signal::KILL);
    until("the leader went with its shim", || is_gone(agent));
    daemon.start();
    assert_eq!(daemon.until_ended("agt")["outcome"], "lost");
    daemon.until_nothing_is_left();
}

/// F-17. Root may write everywhere, so this needs an ordinary user.
#[test]
fn a_folder_that_cant_be_written_delays_the_end_and_loses_nothing() {
    let Some(mut daemon) = of_user("backoff: { initial: 1m }") else {
        return;
    };
    daemon.start();
    daemon.with_one_task(&[
        "authenticate",
        "write:ready",
        "wait-for:go",
        "print:unwritten",
        "exit:6",
    ]);
    let agent = daemon.written_pid("ready");
    let folders = fs::read_dir(machine::instance_dir::instances(&daemon.state())).unwrap();
    let folder = folders.map(|folder| folder.unwrap().path()).next().unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o500)).unwrap();
    fs::write(daemon.work().join("go"), "").unwrap();
    until("the agent is gone", || is_gone(agent));
    assert!(daemon.ended("agt").is_empty());
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(daemon.until_ended("agt")["exit_code"], 6);
    daemon.until_nothing_is_left();
}

/// A tool of an agent that becomes another user: [`gives_root`].
const CHILD_OF_ROOT: &str = "run:(setsid ./become-root --reuid 0 --clear-groups sh -c 'echo $$ >root; exec sleep 600' >/dev/null 2>&1 &)";

/// Puts the program that [`CHILD_OF_ROOT`] needs into the working directory. Prints the reason if
/// that fails.
fn gives_root(daemon: &Daemon) -> bool {
    let become_root = daemon.work().join("become-root");
    if fs::copy("/usr/bin/setpriv", &become_root).is_err() {
        skip("there is no setpriv");
        return false;
    }
    fs::set_permissions(&become_root, fs::Permissions::from_mode(0o4755)).unwrap();
    true
}

/// F-50. A process that the shim of an ordinary user may not kill keeps its slot, is shown, and
/// delays no other agent.
#[test]
fn what_cant_be_killed_is_shown_as_such() {
    let Some(mut daemon) = of_user("stop: { timeout: 100ms }\nbackoff: { initial: 1m }") else {
        return;
    };
    if !gives_root(&daemon) {
        return;
    }
    daemon.start();
    daemon.with_one_task(&["authenticate", CHILD_OF_ROOT, "write:ready", "sleep:600"]);
    let (agent, root) = (daemon.written_pid("ready"), Ended(daemon.written_pid("root")));
    daemon.done(&["stop", "agt", "prj", "--no-wait"]);
    let open = until_some("it is shown", || {
        daemon.open("agt").into_iter().find(|open| !open["unkillable_since"].is_null())
    });
    assert_eq!(open["state"], "ending", "{open}");
    assert!(is_gone(agent) && !is_gone(root.0));
    let shown = daemon.done(&["status"]);
    assert!(shown.contains("unkillable"), "{shown}");
    assert_eq!(daemon.status()["limits"]["running"], 1);
    daemon.agent("other", "prj", &["authenticate", "exit:0"]);
    daemon.task("tsk_other", "prj", "other");
    daemon.until_ended("other");
    drop(root);
    daemon.until_ended("agt");
    daemon.until_nothing_is_left();
}

/// F-10, with a tool of the agent that became another user. The daemon may not kill it.
#[test]
fn what_cant_be_killed_holds_up_its_own_instance_and_no_other() {
    let Some(mut daemon) = of_user("backoff: { initial: 1m }") else {
        return;
    };
    if !gives_root(&daemon) {
        return;
    }
    daemon.start();
    daemon.project("prj");
    for agent in ["stuck", "agt"] {
        let child = format!(
            "run:(env -i setsid sh -c 'echo $$ >{agent}.child; exec sleep 600' >/dev/null 2>&1 &)"
        );
        let is_there = format!("write:{agent}.agent");
        let tools = if agent == "stuck" {
            vec![child.as_str(), CHILD_OF_ROOT]
        } else {
            vec![child.as_str()]
        };
        daemon.agent(
            agent,
            "prj",
            &[&["authenticate"], &tools[..], &[&is_there, "sleep:600"]].concat(),
        );
        daemon.task(&format!("tsk_{agent}"), "prj", agent);
    }
    let root = Ended(daemon.written_pid("root"));
    let child_of = |agent: &str| daemon.written_pid(&format!("{agent}.child"));
    let kill_shim =
        |agent: &str| kill(shim_of(daemon.written_pid(&format!("{agent}.agent"))), Signal::KILL);
    let children = ["stuck", "agt"].map(child_of);
    kill_shim("stuck");
    until("the daemon has come to what the shim left", || is_gone(children[0]));
    kill_shim("agt");
    assert_eq!(daemon.until_ended("agt")["outcome"], "lost");
    assert!(is_gone(children[1]));
    assert!(!is_gone(root.0) && daemon.ended("stuck").is_empty(), "what lives is not ended");
    drop(root);
    assert_eq!(daemon.until_ended("stuck")["outcome"], "lost");
    daemon.until_nothing_is_left();
}

#[track_caller]
fn check_goes_first(mut daemon: Daemon) {
    daemon.start();
    daemon.with_one_task(&["authenticate", "write:ready", "sleep:600"]);
    let agent = daemon.written_pid("ready");
    let score = |pid: i32| -> i32 {
        fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim().parse().unwrap()
    };
    let (of_daemon, of_shim) = (score(daemon.pid()), score(shim_of(agent)));
    assert_eq!(of_shim, of_daemon);
    // Its shim sets the score just after its start.
    until("the agent goes before its shim", || score(agent) == (of_shim + 300).min(1000));
}

#[test]
fn for_want_of_memory_an_agent_goes_before_its_shim_and_the_daemon() {
    check_goes_first(Daemon::configured(""));
}

#[test]
fn for_want_of_memory_an_ordinary_users_agent_goes_first_too() {
    let Some(daemon) = of_user("") else { return };
    check_goes_first(daemon);
}

/// Without root, an agent, its shim and the daemon are processes of the same user.
#[test]
fn an_agent_can_not_look_into_its_shim_or_the_daemon() {
    let is_root = rustix::process::geteuid().is_root();
    let Some(mut daemon) = (if is_root { of_user("") } else { Some(Daemon::configured("")) })
    else {
        return;
    };
    daemon.start();
    let pry = format!(
        "run:for who in agent/$$ shim/$PPID daemon/{}; do for file in environ mem maps; do \
         (exec 8</proc/${{who#*/}}/$file) 2>/dev/null && echo ${{who%/*}} $file >>opened; done; \
         ls /proc/${{who#*/}}/fd/ >/dev/null 2>&1 && echo ${{who%/*}} fd >>opened; done",
        daemon.pid()
    );
    daemon.with_one_task(&["authenticate", &pry, "write:ready", "sleep:600"]);
    shim_of(daemon.written_pid("ready"));
    let opened = fs::read_to_string(daemon.work().join("opened")).unwrap();
    assert!(opened.starts_with("agent environ\n"), "it looks where it should: {opened}");
    assert!(opened.lines().all(|line| line.starts_with("agent ")), "{opened}");
}

#[test]
fn a_state_directory_that_may_not_be_written_is_named() {
    let Some(mut daemon) = of_user("") else {
        return;
    };
    fs::create_dir(daemon.state()).unwrap();
    fs::set_permissions(daemon.state(), fs::Permissions::from_mode(0o755)).unwrap();
    let (code, said) = daemon.refused();
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("is not writable; set state_dir")
            && said.contains(daemon.state().to_str().unwrap()),
        "{said}"
    );
    assert_eq!(fs::read_dir(daemon.state()).unwrap().count(), 0);
}

#[test]
fn a_database_that_may_not_be_written_is_left_alone() {
    let Some(mut daemon) = of_user(IN_A_FILE) else {
        return;
    };
    daemon.start();
    daemon.terminate();
    let database = daemon.state().join("state.db");
    fs::set_permissions(&database, fs::Permissions::from_mode(0o400)).unwrap();
    let before = fs::read(&database).unwrap();
    let (code, said) = daemon.refused();
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("give it read and write access") && said.contains(database.to_str().unwrap()),
        "{said}"
    );
    assert_eq!(fs::read(&database).unwrap(), before);
}

#[test]
fn another_users_processes_are_refused() {
    let Some(mut daemon) = of_user("") else {
        return;
    };
    daemon.start();
    // The modes are opened for all users here, because the mode of a socket must not be the only
    // guard.
    for path in [daemon.folder().to_owned(), daemon.state()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for socket in ["mcp.sock", "control.sock"] {
        fs::set_permissions(daemon.state().join(socket), fs::Permissions::from_mode(0o666))
            .unwrap();
    }
    let run = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command
            .env_clear()
            .arg("--config")
            .arg(daemon.config())
            .args(arguments)
            .uid(USER - 1)
            .gid(USER - 1);
        let output = command.current_dir("/").output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = run(&["status"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("for the daemon's own user"), "{said}");
    let (code, said) = run(&["call", "health_check"]);
    assert_eq!(code, Some(1), "{said}");
}
