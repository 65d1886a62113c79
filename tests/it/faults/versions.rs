//! F-38: a program of another version takes over agents, and gives them back. It is this program,
//! if the variable does not name another.
//!
//! ```sh
//! AGENT_COORDINATOR_TEST_OTHER_PROGRAM=/usr/bin/agent-coordinator cargo test --test it versions
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use machine::instance_dir;
use rustix::process::Signal;

use super::{Gate, folder, shim_of};
use crate::daemon::{Daemon, IN_A_FILE, PROGRAM};
use crate::support::{install, is_gone, kill, until};

const VARIABLE: &str = "AGENT_COORDINATOR_TEST_OTHER_PROGRAM";
const SETTINGS: &str = "max_concurrent: 9\nbackoff: { initial: 1h, max: 1h }\nstop: { timeout: 2s }\npolling_interval: 1s";
/// The agents that live for as long as they are left alone.
const LIVING: [&str; 4] = ["working", "late", "stopped", "chatting"];
/// The agents that end while programs are exchanged.
const ENDING: [&str; 3] = ["ending", "gone", "lost"];

fn other_program() -> PathBuf {
    std::env::var_os(VARIABLE).map_or_else(|| PROGRAM.into(), PathBuf::from)
}

/// Returns the steps of an agent. Each but `late` has authenticated when it writes its pid.
fn steps(agent: &str) -> Vec<String> {
    let ready = format!("write:{agent}.ready");
    let rest: &[&str] = match agent {
        "working" => {
            &["print:before", &ready, Gate::STEP, "print:after", "get-my-task", "report:success"]
        }
        "late" => {
            return own_steps(
                agent,
                &[&ready, Gate::STEP, "authenticate", "get-my-task", "report:success"],
            );
        }
        "stopped" => &["term-ignoring-child", "on-term:5", &ready, "sleep:600"],
        "chatting" => &[&ready, "chat"],
        "ending" => &["ignore-term", &ready, "sleep:600"],
        "gone" => &["setsid-child", &ready, "wait-for:go", "exit:7"],
        _ => &["term-ignoring-child", &ready, "sleep:600"],
    };
    own_steps(agent, &[&["authenticate"], rest].concat())
}

fn own_steps(agent: &str, steps: &[&str]) -> Vec<String> {
    let alone = format!("alone:{agent}.alone");
    std::iter::once(alone).chain(steps.iter().map(|step| (*step).to_owned())).collect()
}

/// Agents, the coordinator that keeps them, and its server, if that is a process of its own.
struct Fleet {
    server: Option<Daemon>,
    coordinator: Daemon,
    gate: Gate,
    pids: BTreeMap<&'static str, i32>,
}

impl Fleet {
    /// Starts these agents under a daemon of this program.
    fn in_one_process(program: &Path, agents: &[&'static str]) -> Self {
        let mut daemon = Daemon::configured(&format!("{SETTINGS}\n{IN_A_FILE}"));
        program.clone_into(&mut daemon.program);
        daemon.start();
        Self::with_agents(None, daemon, agents)
    }

    /// Starts these agents under a coordinator of the one program, with a server of the other.
    fn in_two_processes(server: &Path, coordinator: &Path, agents: &[&'static str]) -> Self {
        let server_program = server;
        let mut server = Daemon::configured(&format!("{SETTINGS}\n{IN_A_FILE}"));
        server_program.clone_into(&mut server.program);
        server.role = "serve";
        server.start();
        let passkeys: Vec<String> =
            agents.iter().map(|agent| format!("{agent}: {{ passkey: x }}")).collect();
        let link = format!("unix:{}", server.state().join("mcp.sock").display());
        let settings = format!("{SETTINGS}\nagents: {{ {} }}", passkeys.join(", "));
        let mut daemon = Daemon::supervising(&link, &settings);
        coordinator.clone_into(&mut daemon.program);
        daemon.start();
        Self::with_agents(Some(server), daemon, agents)
    }

    fn with_agents(server: Option<Daemon>, coordinator: Daemon, agents: &[&'static str]) -> Self {
        let gate = Gate::closed(server.as_ref().unwrap_or(&coordinator));
        let mut fleet = Self { server, coordinator, gate, pids: BTreeMap::new() };
        let server = fleet.server();
        server.project("prj");
        for agent in agents {
            let steps = steps(agent);
            server.agent(agent, "prj", &steps.iter().map(String::as_str).collect::<Vec<_>>());
            if *agent == "chatting" {
                server.done(&["chat", "start", agent, "prj"]);
            } else {
                server.task(&format!("tsk_{agent}"), "prj", agent);
            }
        }
        let pid = |agent: &&'static str| (*agent, server.written_pid(&format!("{agent}.ready")));
        let pids = agents.iter().map(pid).collect();
        fleet.pids = pids;
        for (agent, pid) in &fleet.pids {
            fleet.until_known(agent, *pid);
        }
        fleet
    }

    /// Returns the daemon that knows tasks.
    fn server(&self) -> &Daemon {
        self.server.as_ref().unwrap_or(&self.coordinator)
    }

    #[track_caller]
    fn until_known(&self, agent: &str, pid: i32) {
        until(&format!("{agent} is known"), || {
            self.server().open(agent).iter().any(|launch| launch["pid"] == pid)
        });
    }

    /// Checks that the coordinator has adopted the agents that live.
    #[track_caller]
    fn check_adopted(&self) {
        let n_adopted = self.coordinator.logged("instance adopted").len();
        assert!(n_adopted >= LIVING.len(), "{}", self.coordinator.log());
        for agent in LIVING {
            assert!(!is_gone(self.pids[agent]), "{agent}: {}", self.coordinator.log());
            self.until_known(agent, self.pids[agent]);
        }
    }

    /// Replaces the coordinator by one of this program.
    fn replace(&mut self, program: &Path) {
        self.coordinator.kill();
        program.clone_into(&mut self.coordinator.program);
        self.coordinator.start();
        self.check_adopted();
    }

    /// Does the same while agents end.
    fn replace_while_agents_end(&mut self, program: &Path) {
        self.server().done(&["stop", "ending", "prj", "--no-wait"]);
        self.server().until_in_state("ending", "stopping");
        self.coordinator.kill();
        kill(shim_of(self.pids["lost"]), Signal::KILL);
        fs::write(self.server().work().join("go"), "").unwrap();
        for agent in ["lost", "gone"] {
            until(&format!("{agent} is gone"), || is_gone(self.pids[agent]));
        }
        program.clone_into(&mut self.coordinator.program);
        self.coordinator.start();
        self.check_adopted();
        let outcome = |agent, field| self.server().until_ended(agent)[field].clone();
        assert_eq!(outcome("lost", "outcome"), "lost");
        assert_eq!(outcome("gone", "exit_code"), 7);
        assert_eq!(
            (outcome("ending", "reason"), outcome("ending", "signal")),
            ("person".into(), 9.into())
        );
    }

    /// Lets the agents that live do the rest of their work, and checks that no agent was there
    /// twice.
    #[track_caller]
    fn check_end(self) {
        let server = self.server();
        let launch = server.open("working")[0].clone();
        server.done(&["stop", "stopped", "prj"]);
        let stopped = server.until_ended("stopped");
        assert_eq!((&stopped["reason"], &stopped["exit_code"]), (&"person".into(), &5.into()));
        server.done(&["chat", "send", "chatting", "prj", "Are you there?"]);
        until("the chat goes on", || {
            server.done(&["chat", "show", "chatting", "prj"]).contains("read msg_")
        });
        server.done(&["chat", "end", "chatting", "prj"]);
        assert_eq!(server.until_ended("chatting")["exit_code"], 0);
        drop(self.gate);
        let server = self.server.as_ref().unwrap_or(&self.coordinator);
        for agent in ["working", "late"] {
            assert_eq!(server.until_ended(agent)["outcome"], "completed", "{agent}");
            assert_eq!(server.task_status(&format!("tsk_{agent}")), "done");
        }
        let files = instance_dir::output_files(&folder(&self.coordinator, &launch));
        let output: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        assert!(output.starts_with("before\n") && output.contains("after\n"), "{output}");
        self.coordinator.until_nothing_is_left();
        for agent in self.pids.keys() {
            let twin = server.work().join(format!("{agent}.alone.twin"));
            assert!(!twin.exists(), "{agent} was there twice");
            assert_eq!(server.ended(agent).len(), 1, "{agent}");
        }
    }
}

fn all_agents() -> Vec<&'static str> {
    [&LIVING[..], &ENDING].concat()
}

#[test]
fn agents_of_the_other_program_are_adopted() {
    let mut fleet = Fleet::in_one_process(&other_program(), &all_agents());
    fleet.replace_while_agents_end(Path::new(PROGRAM));
    fleet.check_end();
}

/// A program with an older schema refuses the database. It adopts the agents when it finds the copy
/// from before the migration.
#[test]
fn agents_are_adopted_by_the_other_program() {
    let mut fleet = Fleet::in_one_process(&other_program(), &LIVING);
    fleet.replace(Path::new(PROGRAM));
    fleet.coordinator.kill();
    fleet.coordinator.program = other_program();
    let state = fleet.coordinator.state();
    let copy = fs::read_dir(&state)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_string_lossy().contains("state.db.before-"));
    if let Some(copy) = copy {
        let (code, said) = fleet.coordinator.refused();
        assert!(code == Some(1) && said.contains("newer version"), "{said}");
        for (agent, pid) in &fleet.pids {
            assert!(!is_gone(*pid), "{agent}");
        }
        for file in ["state.db", "state.db-wal", "state.db-shm"] {
            let _ = fs::remove_file(state.join(file));
        }
        fs::copy(copy, state.join("state.db")).unwrap();
    }
    fleet.coordinator.start();
    fleet.check_adopted();
    fleet.check_end();
}

#[test]
fn agents_that_this_program_started_end_under_the_other_one() {
    let mut fleet = Fleet::in_two_processes(Path::new(PROGRAM), Path::new(PROGRAM), &all_agents());
    fleet.replace_while_agents_end(&other_program());
    fleet.check_end();
}

#[test]
fn agents_that_the_other_program_started_go_there_and_back_beside_a_server() {
    let other = other_program();
    let mut fleet = Fleet::in_two_processes(Path::new(PROGRAM), &other, &all_agents());
    fleet.replace_while_agents_end(Path::new(PROGRAM));
    fleet.replace(&other);
    fleet.check_end();
}

#[test]
fn agents_of_a_server_of_the_other_program_are_adopted() {
    let other = other_program();
    let mut fleet = Fleet::in_two_processes(&other, &other, &all_agents());
    fleet.replace_while_agents_end(Path::new(PROGRAM));
    fleet.check_end();
}

/// A daemon of one program starts an agent with a shim of the other. No program of shims is beside
/// them.
#[test]
fn a_replaced_program_adopts_what_the_one_before_it_started() {
    let (this, other) = (PathBuf::from(PROGRAM), other_program());
    for (first, second) in [(&other, &this), (&this, &other)] {
        let mut daemon = Daemon::configured(&format!("{SETTINGS}\n{IN_A_FILE}"));
        daemon.program = install(first, daemon.folder(), "program");
        daemon.start();
        // Its commands are of the same version.
        first.clone_into(&mut daemon.program);
        let gate = Gate::closed(&daemon);
        daemon.project("prj");
        let begin = |agent| {
            let steps = steps(agent);
            daemon.agent(agent, "prj", &steps.iter().map(String::as_str).collect::<Vec<_>>());
            daemon.task(&format!("tsk_{agent}"), "prj", agent);
            (agent, daemon.written_pid(&format!("{agent}.ready")))
        };
        let early = begin("working");
        install(second, daemon.folder(), "program");
        let late = begin("late");
        daemon.kill();
        daemon.program = install(&this, daemon.folder(), "program");
        daemon.start();
        assert_eq!(daemon.logged("instance adopted").len(), 2);
        for (agent, pid) in [early, late] {
            assert_eq!(daemon.open(agent)[0]["pid"], pid);
        }
        drop(gate);
        for (agent, _) in [early, late] {
            assert_eq!(daemon.until_ended(agent)["outcome"], "completed");
            assert_eq!(daemon.task_status(&format!("tsk_{agent}")), "done");
            assert!(!daemon.work().join(format!("{agent}.alone.twin")).exists(), "{agent}");
            assert_eq!(daemon.ended(agent).len(), 1, "{agent}");
        }
        daemon.until_nothing_is_left();
    }
}
