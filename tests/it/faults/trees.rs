//! F-6 to F-10, F-12 to F-14, F-21, F-22: the processes of an agent under a running daemon, and its
//! descriptors, signals and environment.
#![allow(unsafe_code, reason = "what runs between fork and exec")]

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use machine::instance_dir::record::{self, Exit, Stop};
use machine::instance_dir::{self, SHIM_COMM};
use machine::sys::processes;
use rustix::process::Signal;

use super::{Ended, folder, shim_of};
use crate::daemon::{Daemon, PROGRAM};
use crate::support::{is_gone, kill, tree_of, until, until_some};

/// A step that leaves a child beside the agent. The child ignores TERM, and its pid is in the file
/// `child`.
const STUBBORN_CHILD: &str = "run:(trap '' TERM; sleep 600 >/dev/null 2>&1 & echo $! >child)";
/// A step that leaves such a child with a session of its own, without the agent's environment and
/// without its parent.
const DAEMONISED_CHILD: &str =
    "run:(env -i setsid sh -c 'echo $$ >child; exec sleep 600' >/dev/null 2>&1 &)";

#[test]
fn a_daemonised_child_is_ended_before_its_launch_is() {
    let daemon = Daemon::running("");
    daemon.with_one_task(&[
        "authenticate",
        "get-my-task",
        DAEMONISED_CHILD,
        "wait-for:child",
        "report:success",
    ]);
    let ended = daemon.until_ended("agt");
    assert!(is_gone(daemon.written_pid("child")));
    assert_eq!((&ended["outcome"], &ended["exit_code"]), (&"completed".into(), &0.into()));
    let exit: Exit = record::read(&folder(&daemon, &ended)).unwrap().unwrap();
    assert!(exit.n_leaked >= 1, "counted");
    daemon.until_nothing_is_left();
}

#[test]
fn an_exit_is_recorded_at_once_whoever_stays_or_holds_the_pipe() {
    let daemon = Daemon::running("stop: { leak_grace: 1h }\nmax_concurrent: 1");
    let holder = "run:(trap '' TERM; sleep 600 & echo $! >holder)";
    daemon.with_one_task(&["authenticate", STUBBORN_CHILD, holder, "exit:5"]);
    let open = daemon.until_in_state("agt", "ending");
    assert_eq!(open["exit_code"], 5, "known while its children live");
    let left = [daemon.written_pid("child"), daemon.written_pid("holder")];
    assert!(left.iter().all(|&pid| !is_gone(pid)));
    assert!(daemon.ended("agt").is_empty(), "its slot is taken");
    for pid in left {
        kill(pid, Signal::KILL);
    }
    assert_eq!(daemon.until_ended("agt")["exit_code"], 5);
    daemon.until_nothing_is_left();
}

#[test]
fn what_stays_behind_is_killed_after_the_grace() {
    let daemon = Daemon::running("stop: { leak_grace: 300ms }\nbackoff: { initial: 1m }");
    daemon.with_one_task(&["authenticate", STUBBORN_CHILD, "exit:5"]);
    let ended = daemon.until_ended("agt");
    assert!(is_gone(daemon.written_pid("child")));
    let exit: Exit = record::read(&folder(&daemon, &ended)).unwrap().unwrap();
    assert_eq!(exit.n_leaked, 1);
    assert!(exit.ended_at.unwrap().since(exit.exited_at) >= Duration::from_millis(290), "{exit:?}");
    assert_eq!(daemon.status()["limits"]["running"], 0);
}

#[test]
fn an_agent_that_ignores_term_is_killed_at_the_stop_timeout() {
    let timeout = Duration::from_millis(500);
    let daemon = Daemon::running("stop: { timeout: 500ms }");
    daemon.with_one_task(&["ignore-term", "authenticate", "write:ready", "sleep:600"]);
    daemon.written_pid("ready");
    daemon.done(&["stop", "agt", "prj"]);
    let ended = daemon.until_ended("agt");
    assert_eq!((&ended["outcome"], &ended["signal"]), (&"stopped".into(), &9.into()));
    let folder = folder(&daemon, &ended);
    let told =
        fs::metadata(folder.join(<Stop as record::Record>::FILE)).unwrap().modified().unwrap();
    let told = told.duration_since(std::time::UNIX_EPOCH).unwrap();
    let exit: Exit = record::read(&folder).unwrap().unwrap();
    let took =
        Duration::from_millis(exit.exited_at.as_millis().cast_unsigned()).saturating_sub(told);
    // A busy machine may be late, but the kill must not be early.
    assert!(took >= timeout * 9 / 10 && took < timeout * 10, "{took:?}");
}

#[test]
fn a_child_that_ignores_term_does_not_survive_an_agent_that_does_not() {
    let daemon = Daemon::running("stop: { timeout: 1h, leak_grace: 200ms }");
    daemon.with_one_task(&[
        "on-term:0",
        "authenticate",
        STUBBORN_CHILD,
        "write:ready",
        "sleep:600",
    ]);
    daemon.written_pid("ready");
    daemon.done(&["stop", "agt", "prj"]);
    assert_eq!(daemon.until_ended("agt")["exit_code"], 0);
    assert!(is_gone(daemon.written_pid("child")));
    daemon.until_nothing_is_left();
}

#[test]
fn a_killed_shim_takes_its_agents_tree_with_it() {
    let daemon = Daemon::running("backoff: { initial: 1m }");
    let own_session = "run:(setsid sh -c 'echo $$ >marked; exec sleep 600' &)";
    let steps = ["authenticate", DAEMONISED_CHILD, own_session, "write:ready", "sleep:600"];
    daemon.with_one_task(&steps);
    let agent = daemon.written_pid("ready");
    let tree = [agent, daemon.written_pid("child"), daemon.written_pid("marked")];
    kill(shim_of(agent), Signal::KILL);
    let ended = daemon.until_ended("agt");
    assert_eq!(ended["outcome"], "lost");
    assert!(tree.iter().all(|&pid| is_gone(pid)), "{tree:?}");
    assert_eq!(daemon.status()["limits"]["running"], 0);
    daemon.until_nothing_is_left();
}

#[test]
fn what_runs_beside_the_daemon_is_nobodys_orphan() {
    let mut daemon = Daemon::configured("backoff: { initial: 1m }");
    let plain = daemon.command();
    let mut command = Command::new("sh");
    // The sidecar is a child of the daemon, in a session of its own, that leaves another process to
    // the daemon.
    let sidecar = "setsid sh -c '
        echo $$ >sidecar.draft; mv sidecar.draft sidecar
        until [ -e go ]; do sleep 0.01; done
        (setsid sh -c '\\''echo $$ >detached; exec sleep 600'\\'' &)
        exec sleep 600' >/dev/null 2>&1 &
        until [ -e sidecar ]; do sleep 0.01; done";
    command.args(["-c", &format!("cd work; {sidecar}; cd ..; exec \"$0\" \"$@\""), PROGRAM]);
    command.args(plain.get_args()).current_dir(plain.get_current_dir().unwrap());
    daemon.spawn_as(command);
    daemon.until_ready();
    fs::write(daemon.work().join("go"), "").unwrap();
    let strangers = ["sidecar", "detached"].map(|file| Ended(daemon.written_pid(file)));
    let own_session = "run:(setsid sh -c 'echo $$ >marked; exec sleep 600' &)";
    daemon.with_one_task(&[
        "authenticate",
        STUBBORN_CHILD,
        own_session,
        "write:ready",
        "sleep:600",
    ]);
    let agent = daemon.written_pid("ready");
    let tree = [agent, daemon.written_pid("child"), daemon.written_pid("marked")];
    until("the sidecar's child fell to the daemon", || {
        strangers.iter().all(|pid| {
            processes::read(pid.0).is_some_and(|stranger| stranger.parent == daemon.pid())
        })
    });
    kill(shim_of(agent), Signal::KILL);
    assert_eq!(daemon.until_ended("agt")["outcome"], "lost");
    assert!(strangers.iter().all(|stranger| !is_gone(stranger.0)));
    assert!(tree.iter().all(|&pid| is_gone(pid)), "{tree:?}");
    daemon.until_nothing_is_left();
}

#[test]
fn as_the_first_process_it_ends_what_carries_its_mark() {
    let unshare = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", program]);
        command
    };
    if !unshare("true")
        .stderr(std::process::Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
    {
        eprintln!("skipped: this user can't make a pid namespace");
        return;
    }
    let mut daemon = Daemon::configured("manifest: manifest.yaml\nbackoff: { initial: 1m }");
    daemon.manifest(&["agt"]);
    let detached = |prefix: &str, seconds: &str| {
        format!("run:({prefix} setsid sleep {seconds} >/dev/null 2>&1 &)")
    };
    daemon.steps("agt", &[&detached("", "611"), &detached("env -i", "612"), "sleep:600"]);
    let (mut command, plain) = (unshare(PROGRAM), daemon.command());
    command.args(plain.get_args()).current_dir(plain.get_current_dir().unwrap());
    daemon.spawn_as(command);
    daemon.until_ready();
    // The files have the pids of the namespace. The search must not find the `env` that is about to
    // become the process, because it still has its environment.
    let find = |what: &str| {
        let is_it = |pid: &i32| {
            fs::read_to_string(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.starts_with(what))
        };
        tree_of(daemon.pid()).into_iter().find(is_it)
    };
    let [marked, unmarked] =
        ["sleep\x00611", "sleep\x00612"].map(|what| until_some("it is there", || find(what)));
    let shim = find("agent-coordinator\0shim\0").unwrap();
    assert_eq!(processes::comm(shim).as_deref(), Some(SHIM_COMM));
    kill(shim, Signal::KILL);
    until("the launch is lost", || {
        daemon.logged("launch ended").iter().any(|launch| launch["outcome"] == "lost")
    });
    assert!(is_gone(marked));
    assert!(!is_gone(unmarked), "it could be anybody's");
}

#[test]
fn a_shim_killed_without_a_daemon_is_found_by_the_next() {
    let mut daemon = Daemon::running("backoff: { initial: 1m }");
    // Without the daemon, only a process with the mark in its environment can be found.
    let own_session = "run:(setsid sh -c 'echo $$ >marked; exec sleep 600' &)";
    daemon.with_one_task(&[
        "authenticate",
        STUBBORN_CHILD,
        own_session,
        "write:ready",
        "sleep:600",
    ]);
    let agent = daemon.written_pid("ready");
    let (shim, tree) =
        (shim_of(agent), [agent, daemon.written_pid("child"), daemon.written_pid("marked")]);
    daemon.kill();
    kill(shim, Signal::KILL);
    until("the leader went with its shim", || is_gone(agent));
    daemon.start();
    assert_eq!(daemon.until_ended("agt")["outcome"], "lost");
    assert!(tree.iter().all(|&pid| is_gone(pid)), "{tree:?}");
    daemon.until_nothing_is_left();
}

#[test]
fn sixty_agents_that_exit_at_once_are_sixty_ends() {
    let settings = "manifest: manifest.yaml\nmax_concurrent: 100\nbackoff: { initial: 5m }";
    let mut daemon = Daemon::configured(settings);
    let agents: Vec<String> = (0..60).map(|n| format!("agt_{n}")).collect();
    daemon.manifest(&agents.iter().map(String::as_str).collect::<Vec<_>>());
    for (n, agent) in agents.iter().enumerate() {
        daemon.steps(agent, &[&format!("exit:{n}")]);
    }
    daemon.start();
    let ended = until_some("all have ended", || {
        let ended = daemon.logged("launch ended");
        (ended.len() >= 60).then_some(ended)
    });
    let mut codes: Vec<_> =
        ended.iter().map(|launch| launch["exit_code"].as_u64().unwrap()).collect();
    codes.sort_unstable();
    assert_eq!(codes, (0..60).collect::<Vec<_>>());
    until("no slot is taken", || daemon.status()["limits"]["running"] == 0);
    daemon.until_nothing_is_left();
    assert_eq!(fs::read_dir(instance_dir::ended(&daemon.state())).unwrap().count(), 60);
}

#[test]
fn sixty_agents_killed_in_one_loop_are_sixty_ends_and_no_zombie() {
    let settings =
        "manifest: manifest.yaml\nmax_concurrent: 100\nbackoff: { initial: 1h, max: 1h }";
    let mut daemon = Daemon::configured(settings);
    let agents: Vec<String> = (0..60).map(|n| format!("agt_{n}")).collect();
    daemon.manifest(&agents.iter().map(String::as_str).collect::<Vec<_>>());
    for agent in &agents {
        daemon.steps(agent, &["append:pids", "sleep:600"]);
    }
    daemon.start();
    let pids: Vec<i32> = until_some("all of them are there", || {
        let text = fs::read_to_string(daemon.work().join("pids")).ok()?;
        Some(text.lines().map(|pid| pid.parse().unwrap()).collect())
            .filter(|pids: &Vec<i32>| pids.len() == 60)
    });
    for pid in pids {
        kill(pid, Signal::KILL);
    }
    let ended = until_some("all have ended", || {
        let ended = daemon.logged("launch ended");
        (ended.len() >= 60).then_some(ended)
    });
    assert_eq!(ended.iter().filter(|launch| launch["signal"] == 9).count(), 60, "{ended:?}");
    let is_zombie =
        |process: &processes::Process| process.is_zombie && process.parent == daemon.pid();
    until("no zombie is left", || !processes::list().unwrap().iter().any(is_zombie));
    daemon.until_nothing_is_left();
}

#[test]
fn an_agent_has_clean_signals_and_three_descriptors_whatever_the_daemon_was_started_with() {
    use nix::sys::signal::{SigSet, SigmaskHow, Signal as NixSignal, pthread_sigmask};
    let mut daemon = Daemon::configured(
        "ai_providers:
  signals: { cli_command: cat, cli_args: [/proc/self/status], prompt: stdin }
  descriptors: { cli_command: ls, cli_args: [\"-1\", /proc/self/fd], prompt: stdin }
backoff: { initial: 1m }",
    );
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "trap '' HUP USR1 PIPE 34 35 64; exec 7</dev/null; exec \"$0\" \"$@\"",
        PROGRAM,
    ]);
    let plain = daemon.command();
    command.args(plain.get_args()).current_dir(plain.get_current_dir().unwrap());
    let block_term = || {
        let mut blocked = SigSet::empty();
        blocked.add(NixSignal::SIGTERM);
        blocked.add(NixSignal::SIGCHLD);
        pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&blocked), None).map_err(std::io::Error::from)
    };
    // SAFETY: one system call.
    unsafe { command.pre_exec(block_term) };
    daemon.spawn_as(command);
    daemon.until_ready();
    daemon.project("prj");
    for kind in ["signals", "descriptors"] {
        daemon.agent(kind, "prj", &[]);
        daemon.done(&["agent", "set", kind, "--ai-type", kind]);
        daemon.task(kind, "prj", kind);
        daemon.until_ended(kind);
    }
    let signals = daemon.done(&["logs", "signals", "prj"]);
    for field in ["SigPnd", "SigBlk", "SigIgn", "SigCgt"] {
        assert!(signals.contains(&format!("{field}:\t0000000000000000\n")), "{signals}");
    }
    // Descriptor 3 is the folder that `ls` reads.
    assert_eq!(daemon.done(&["logs", "descriptors", "prj"]), "0\n1\n2\n3\n");
    assert!(daemon.terminate().success(), "the daemon itself hears TERM");
}
