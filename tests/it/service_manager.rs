//! A service manager as the daemon sees it: the socket for notifications, the watchdog, and the
//! commands of its units. No systemd runs here; the tests play its part.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::daemon::{Daemon, PROGRAM};
use crate::support::{DEADLINE, is_gone, until_some};
use crate::units::setting;

/// The receiver of the daemon's notifications.
struct Manager {
    socket: UnixDatagram,
    name: String,
    _folder: TempDir,
}

impl Manager {
    fn at_a_path() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        Self::with(UnixDatagram::bind(&path).unwrap(), path.display().to_string(), folder)
    }

    /// Makes a manager with a socket in the abstract namespace of the kernel.
    fn by_a_name() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("{}/notify", folder.path().display());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        Self::with(UnixDatagram::bind_addr(&address).unwrap(), format!("@{name}"), folder)
    }

    fn with(socket: UnixDatagram, name: String, folder: TempDir) -> Self {
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        Self { socket, name, _folder: folder }
    }

    /// Receives the next message.
    fn hear(&self) -> io::Result<String> {
        let mut bytes = [0; 4096];
        let length = self.socket.recv(&mut bytes)?;
        Ok(String::from_utf8(bytes[..length].to_vec()).unwrap())
    }

    /// Receives messages up to one that contains this text, and returns them. The last one
    /// contains the text.
    #[track_caller]
    fn hear_until(&self, wanted: &str) -> Vec<String> {
        let mut heard = Vec::new();
        loop {
            let message =
                self.hear().unwrap_or_else(|error| panic!("no {wanted}: {error}; but {heard:?}"));
            heard.push(message);
            if heard.last().is_some_and(|message| message.contains(wanted)) {
                return heard;
            }
        }
    }

    /// Returns the end of the next reload that ends in this way. The watch of the file may be
    /// earlier than a command, and then there are two reloads.
    #[track_caller]
    fn hear_reload_until(&self, wanted: &str) -> String {
        loop {
            let begin = self.hear_until("=1\n").pop().unwrap();
            let micros = begin
                .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
                .unwrap_or_else(|| panic!("{begin}"));
            assert!(micros.parse::<u64>().unwrap() > 0);
            let end = self.hear_until("=1\n").pop().unwrap();
            assert!(end.starts_with("READY=1\nSTATUS="), "{end}");
            // Each line is an assignment.
            assert_eq!(end.lines().count(), 2, "{end}");
            if end.contains(wanted) {
                return end;
            }
        }
    }

    /// Returns whether no message comes for this time.
    fn is_left_alone_for(&self, duration: Duration) -> bool {
        self.socket.set_read_timeout(Some(duration)).unwrap();
        self.hear().is_err()
    }
}

/// Starts the daemon like a manager. `variables` are shell words, in which `$$` is its pid.
fn start(daemon: &mut Daemon, manager: &Manager, variables: &str) {
    let program = daemon.command();
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{variables} exec \"$0\" \"$@\"")).arg(program.get_program());
    command.args(program.get_args()).current_dir(daemon.folder()).env_clear();
    command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("NOTIFY_SOCKET", &manager.name);
    daemon.spawn_as(command);
}

#[test]
fn it_hears_of_the_start_of_agents_of_reloads_and_of_the_end_in_their_order() {
    let manager = Manager::at_a_path();
    let mut daemon = Daemon::configured("");
    start(&mut daemon, &manager, "");
    let ready = manager.hear().unwrap();
    assert!(ready.starts_with("READY=1\nSTATUS="), "{ready}");
    daemon.until_ready();
    daemon.with_one_task(&[
        "authenticate",
        "write:ready",
        "wait-for:go",
        "get-my-task",
        "report:success",
    ]);
    manager.hear_until("STATUS=1 agent running");
    daemon.agent("agt_waits", "prj", &[]);
    daemon.configure("max_concurrent: 1");
    daemon.done(&["reload"]);
    manager.hear_reload_until("STATUS=1 agent running");
    daemon.task("tsk_waits", "prj", "agt_waits");
    manager.hear_until("STATUS=1 agent running, 1 waiting");

    daemon.configure("max_concurrent: none");
    daemon.signal(Signal::HUP);
    let told = "STATUS=1 agent running, 1 waiting; the configuration on disk is not in use: ";
    let refused = manager.hear_reload_until(told);
    assert!(refused.contains("`max_concurrent` is not valid"), "{refused}");

    daemon.configure("max_concurrent: 1\noutput: { files: 2 }\nlog: { format: text }");
    daemon.done(&["reload"]);
    manager.hear_reload_until("1 waiting; 1 changed setting waits for a restart");

    daemon.signal(Signal::TERM);
    let last = manager.hear_until("STOPPING=1").pop();
    assert_eq!(last.as_deref(), Some("STOPPING=1\nSTATUS=stopping"));
    assert!(daemon.wait().success());
    assert!(manager.is_left_alone_for(Duration::from_millis(1)));
}

#[test]
fn a_name_without_a_file_is_heard_at_and_every_role_says_how_it_is() {
    for (role, settings, status) in [
        ("serve", "", "STATUS=running"),
        ("supervise", "server: unix:/nowhere/mcp.sock", "STATUS="),
        ("run", "", "STATUS="),
    ] {
        let manager = Manager::by_a_name();
        let mut daemon = Daemon::configured(settings);
        daemon.role = role;
        start(&mut daemon, &manager, "");
        let ready = manager.hear().unwrap();
        assert!(ready.starts_with(&format!("READY=1\n{status}")), "{role}: {ready}");
        daemon.done(&["reload"]);
        manager.hear_reload_until("STATUS=");
        assert!(daemon.terminate().success(), "{role}");
        manager.hear_until("STOPPING=1");
    }
}

#[test]
fn the_watchdog_is_fed_while_the_loop_turns_and_not_when_it_hangs() {
    let manager = Manager::at_a_path();
    let mut daemon = Daemon::configured("polling_interval: 1h");
    // The daemon hangs in its first claim, like with a lock that is never released.
    let hang = "AGENT_COORDINATOR_CRASH_AT=Claimed@hang";
    start(&mut daemon, &manager, &format!("{hang} WATCHDOG_USEC=400000 WATCHDOG_PID=$$"));
    daemon.until_ready();
    for _ in 0..5 {
        manager.hear_until("WATCHDOG=1");
    }
    daemon.with_one_task(&["authenticate"]);
    // This is five times the timeout of its manager.
    until_some("the loop hangs", || {
        manager.is_left_alone_for(Duration::from_secs(2)).then_some(())
    });
    assert!(daemon.logged("agent started").is_empty(), "{}", daemon.log());
    // The rest of the daemon works, so that only the watchdog shows the hang.
    assert_eq!(daemon.status()["health"], "ok");
}

#[test]
fn a_server_alone_feeds_the_watchdog_itself_and_nobody_feeds_that_of_another() {
    let manager = Manager::at_a_path();
    let mut server = Daemon::configured("");
    server.role = "serve";
    start(&mut server, &manager, "WATCHDOG_USEC=400000");
    for _ in 0..3 {
        manager.hear_until("WATCHDOG=1");
    }
    let manager = Manager::at_a_path();
    let mut daemon = Daemon::configured("polling_interval: 100ms");
    start(&mut daemon, &manager, "WATCHDOG_USEC=400000 WATCHDOG_PID=1");
    daemon.until_ready();
    manager.hear_until("READY=1");
    daemon.done(&["status"]);
    assert!(daemon.terminate().success());
    let heard = manager.hear_until("STOPPING=1");
    assert!(!heard.iter().any(|message| message.contains("WATCHDOG")), "{heard:?}");
}

/// Returns a command of a unit, with the program under test in place of the installed one.
fn command_of(unit: &str, key: &str) -> Vec<String> {
    let command = setting(unit, key);
    let words =
        command.split_whitespace().map(|word| word.replace("/usr/bin/agent-coordinator", PROGRAM));
    words.collect()
}

#[test]
fn the_commands_of_the_unit_start_reload_restart_and_stop_it() {
    const UNIT: &str = "agent-coordinator.service";
    let manager = Manager::by_a_name();
    let mut daemon = Daemon::configured("");
    let home = daemon.folder().join("home");
    let file = home.join(".config/agent-coordinator/coordinator_config.yaml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let text = fs::read_to_string(daemon.config()).unwrap();
    let text =
        text.replace("state_dir: state", &format!("state_dir: {}", daemon.state().display()));
    fs::write(&file, &text).unwrap();
    let environment = |command: &mut Command| {
        let folder = setting(UNIT, "WorkingDirectory");
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", &home)
            .current_dir(folder);
    };
    let run = |key: &str| {
        let words = command_of(UNIT, key);
        let mut command = Command::new(&words[0]);
        environment(&mut command);
        command.args(&words[1..]).output().unwrap()
    };
    let start = command_of(UNIT, "ExecStart");
    assert_eq!(start.last().unwrap(), daemon.role);
    let spawn = |daemon: &mut Daemon| {
        let mut command = Command::new(&start[0]);
        environment(&mut command);
        command
            .args(&start[1..start.len() - 1])
            .env("NOTIFY_SOCKET", &manager.name)
            .env("WATCHDOG_USEC", "180000000");
        daemon.spawn_as(command);
        manager.hear_until("READY=1");
    };
    spawn(&mut daemon);
    daemon.with_one_task(&["authenticate", "write:ready", "wait-for:go"]);
    let agent = daemon.written_pid("ready");

    fs::write(&file, format!("{text}max_concurrent: 7\n")).unwrap();
    let reloaded = run("ExecReload");
    assert!(reloaded.status.success(), "{reloaded:?}");
    assert!(
        String::from_utf8_lossy(&reloaded.stdout).contains("max_concurrent: 3 → 7"),
        "{reloaded:?}"
    );
    fs::write(&file, format!("{text}max_concurrent: -7\n")).unwrap();
    let refused = run("ExecReload");
    assert_eq!(refused.status.code(), Some(78), "{refused:?}");
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("coordinator_config.yaml:"),
        "{refused:?}"
    );
    assert_eq!(daemon.status()["limits"]["max_concurrent"], 7);

    let signal = |key: &str| {
        if setting(UNIT, key) == "SIGUSR1" { Signal::USR1 } else { Signal::TERM }
    };
    fs::write(&file, &text).unwrap();
    daemon.signal(signal("RestartKillSignal"));
    manager.hear_until("STOPPING=1");
    assert!(daemon.wait().success());
    assert!(!is_gone(agent), "a restart keeps it");
    spawn(&mut daemon);
    manager.hear_until("STATUS=1 agent running");
    daemon.signal(signal("KillSignal"));
    manager.hear_until("STOPPING=1");
    assert!(daemon.wait().success());
    assert!(is_gone(agent), "a stop ends it");
}
