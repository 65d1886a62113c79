//! Kills the daemon again and again at random moments, while its agents start, work, leave
//! descendants behind and end, and while it starts itself. The next daemon knows all agents, starts
//! none twice, and loses no exit. The same holds if its PostgreSQL is killed. Then, no call of an
//! agent or a person fails either, and no launch ends because of it.
//!
//! ```sh
//! AGENT_COORDINATOR_TEST_KILLS=200 cargo test --test it chaos      the long form
//! ```
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::thread;
use std::time::{Duration, Instant};

use machine::instance_dir::{self, MARK_VARIABLE};
use machine::sys::processes;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::control::send_to;
use crate::daemon::Daemon;
use crate::faults::{daemon_of_ordinary_user, shim_of};
use crate::postgres::{Cluster, Data, USER, own};
use crate::sim::Dice;
use crate::support::{is_gone, kill, until};

/// The variable with the number of kills.
const VARIABLE: &str = "AGENT_COORDINATOR_TEST_KILLS";
const N_KILLS: usize = 10;
const AGENTS: [&str; 6] = ["agt_a", "agt_b", "agt_c", "agt_d", "agt_e", "agt_f"];
/// The number of tasks of each agent. It is more than the agent reports as done in one life of the
/// daemon.
const N_TASKS: usize = 8;
/// The number of slots. It is less than the number of agents, so that every end lets another one
/// start.
const N_SLOTS: usize = 4;
/// The longest life of a daemon and the longest time without one, in milliseconds.
const LIFE: u64 = 600;
const DEATH: u64 = 200;
/// The longest time from the start of a person's command to a kill of PostgreSQL, in milliseconds.
const ADDING: u64 = 100;
/// In each of this many rounds, the next daemon is killed as well, before it is ready.
const STILLBORN_EVERY: usize = 3;
const SETTINGS: &str = "manifest: manifest.yaml\nmax_concurrent: 4\nbackoff: { initial: 1ms, max: 1ms }\n\
                        start: { limit: 0 }\nstop: { leak_grace: 100ms }";

/// Returns the steps of an agent's life, which the agent writes down. A process of its tree holds
/// the file open as long as it lives.
fn life(agent: &str) -> Vec<String> {
    let note = |what: &str| {
        format!(r#"echo "${{AGENT_COORDINATOR_MARK#*/}} $$ {what}" >>{agent}.journal"#)
    };
    let act = [
        "0) ;;",
        "1) rest 0.2 ;;",
        "2) take term-ignoring-child; rest 0.1 ;;",
        "3) (env -i setsid sh -c 'read -r stat </proc/$$/stat; echo \"$stat\" >>escaped; exec sleep 600' >/dev/null 2>&1 &) ; \
         rest 0.05 ;;",
        "4) insist; take children:3 ;;",
        "5) insist; { take get-my-task && take report:success; } >/dev/null 2>>failed ;;",
    ];
    vec![
        format!("alone:{agent}.alone"),
        format!("run:{}", note("started")),
        // A call says in `failed` why it fails.
        "run:insist() { \
         until AGENT_SESSION_TOKEN=$(call authenticate --get session_token 2>>failed); \
         do rest 0.05; done; export AGENT_SESSION_TOKEN; }"
            .to_owned(),
        "run:dice=$(od -An -N2 -tu2 /dev/urandom | tr -d ' '); code=$((100 + dice % 100))"
            .to_owned(),
        format!("run:case $((dice % 6)) in {} esac", act.join(" ")),
        format!("run:{}; exit $code", note("$code")),
    ]
}

fn manifest(daemon: &Daemon) -> String {
    let all = AGENTS.join(", ");
    let mut text = format!(
        "agents: {{ {} }}\nprojects:\n  prj: {{ working_directory: {}, agents: [{all}] }}\ntasks:\n",
        AGENTS.map(|agent| format!("{agent}: {{}}")).join(", "),
        daemon.work().display()
    );
    for agent in AGENTS {
        for n in 0..N_TASKS {
            writeln!(
                text,
                "  tsk_{agent}_{n}: {{ project: prj, title: a title, assignee: {agent}, status: in_progress }}"
            )
            .unwrap();
        }
    }
    text
}

/// Puts finished tasks back to work, so that there is enough work however often the daemon is
/// killed.
fn work_again(daemon: &Daemon) {
    let send = |method, path: &str, body: &str| {
        let answer = send_to(&daemon.state().join("control.sock"), method, path, body.as_bytes());
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.body);
        answer.json()
    };
    for task in send("GET", "/api/tasks?status=done", "").as_array().unwrap() {
        for status in ["todo", "in_progress"] {
            let path = format!("/api/tasks/{}", task["id"].as_str().unwrap());
            send("PATCH", &path, &json!({ "status": status }).to_string());
        }
    }
}

/// All launches that were ever seen, by id.
#[derive(Default)]
struct Seen(BTreeMap<String, Value>);

impl Seen {
    /// Looks at the store. Returns the ids of the launches that have ended.
    fn look(&mut self, daemon: &Daemon) -> BTreeSet<String> {
        let answer =
            send_to(&daemon.state().join("control.sock"), "GET", "/api/launches?limit=1000", b"")
                .json();
        let mut open = BTreeSet::new();
        for launch in answer.as_array().unwrap() {
            let id = launch["launchId"].as_str().unwrap();
            let earlier = self.0.insert(id.to_owned(), launch.clone());
            if let Some(earlier) = earlier.filter(|earlier| earlier["state"] == "ended") {
                assert_eq!(earlier, *launch, "an end is recorded once");
            }
            if launch["state"] != "ended" {
                let agent = launch["agentId"].as_str().unwrap();
                assert!(
                    open.insert(agent.to_owned()),
                    "two launches of {agent} are open: {answer}"
                );
            }
        }
        assert!(open.len() <= N_SLOTS, "more are open than may be: {answer}");
        let ended = self.0.iter().filter(|(_, launch)| launch["state"] == "ended");
        ended.map(|(id, _)| id.clone()).collect()
    }

    /// Returns the agents that live now, as far as the store knows: launch and process.
    fn living(&self) -> Vec<(String, i32)> {
        let open = self.0.iter().filter(|(_, launch)| launch["state"] != "ended");
        let pid = |launch: &Value| {
            i32::try_from(launch["pid"].as_i64()?).ok().filter(|&pid| !is_gone(pid))
        };
        open.filter_map(|(id, launch)| Some((id.clone(), pid(launch)?))).collect()
    }
}

/// Returns the processes with the mark of a launch that has ended.
fn left_behind(ended: &BTreeSet<String>) -> Vec<i32> {
    let of_ended = |pid: &i32| {
        let mark = processes::find_variable(*pid, MARK_VARIABLE).unwrap_or_default();
        mark.split_once('/').is_some_and(|(_, launch)| ended.contains(launch)) && !is_gone(*pid)
    };
    processes::list().unwrap().iter().map(|process| process.pid).filter(of_ended).collect()
}

/// Returns the records of the agents: launch, process, and `started` or the exit code.
fn journal(daemon: &Daemon) -> Vec<(String, i64, String)> {
    let mut entries = Vec::new();
    for agent in AGENTS {
        for line in fs::read_to_string(daemon.work().join(format!("{agent}.journal")))
            .unwrap_or_default()
            .lines()
        {
            let mut words = line.split(' ').map(str::to_owned);
            let (launch, pid) = (words.next().unwrap(), words.next().unwrap().parse().unwrap());
            entries.push((launch, pid, words.next().unwrap()));
        }
    }
    entries
}

/// The attack on the agents in the last moment without a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    Nothing,
    /// A shim is killed, so that its agent's end can't be known.
    ShimKilled,
}

/// Starts the daemon and returns the time that it takes, in milliseconds.
fn start(daemon: &mut Daemon) -> u64 {
    let began = Instant::now();
    daemon.start();
    u64::try_from(began.elapsed().as_millis()).unwrap()
}

fn survive(mut daemon: Daemon, n_kills: usize, meanwhile: Meanwhile) {
    let mut dice = prepare(&daemon, n_kills);
    let mut birth = start(&mut daemon);
    let (mut seen, mut n_adopted, mut n_stillborn) = (Seen::default(), 0, 0);
    for n in 0..n_kills {
        // The moment is random, so that the daemon is killed in the middle of any work.
        thread::sleep(Duration::from_millis(dice.below(LIFE)));
        seen.look(&daemon);
        let before = seen.living();
        daemon.kill();
        thread::sleep(Duration::from_millis(dice.below(DEATH)));
        if meanwhile == Meanwhile::ShimKilled
            && let Some((_, agent)) = before.iter().find(|(_, pid)| !is_gone(*pid))
        {
            kill(shim_of(*agent), Signal::KILL);
        }
        if n % STILLBORN_EVERY == 1 {
            daemon.spawn();
            thread::sleep(Duration::from_millis(dice.below(birth)));
            daemon.kill();
            n_stillborn += usize::from(daemon.logged("ready").is_empty());
        }
        birth = start(&mut daemon);
        n_adopted += daemon.logged("instance adopted").len();
        let ended = seen.look(&daemon);
        for (launch, pid) in before {
            let now = &seen.0[&launch];
            assert_eq!(now["pid"], json!(pid), "the same process: {now}");
            assert!(now["state"] != "ended" || is_gone(pid), "it lives: {now}");
        }
        assert_eq!(left_behind(&ended), [0; 0], "of launches that have ended");
        work_again(&daemon);
    }
    end(&daemon, &mut seen);
    eprintln!(
        "chaos: {} launches, {n_adopted} adopted, {n_stillborn} daemons never ready",
        seen.0.len()
    );
    assert!(n_adopted > 0, "nothing was ever adopted: this shows nothing");
}

/// Kills PostgreSQL instead of the daemon: alternately its first process alone, and all.
fn survive_without_postgresql(daemon: &mut Daemon, cluster: &mut Cluster, n_kills: usize) {
    let mut dice = prepare(daemon, n_kills);
    daemon.start();
    let mut seen = Seen::default();
    for n in 0..n_kills {
        // On a busy machine a start takes longer than this life of the database.
        let n_seen = seen.0.len();
        until("an agent was started", || {
            seen.look(daemon);
            seen.0.len() > n_seen
        });
        thread::sleep(Duration::from_millis(dice.below(LIFE)));
        seen.look(daemon);
        let before = seen.living();
        let add = ["task", "add", "--project", "prj", "--title", "added meanwhile"];
        thread::scope(|scope| {
            let added = scope.spawn(|| daemon.cli(&add));
            thread::sleep(Duration::from_millis(dice.below(ADDING)));
            if n % 2 == 0 {
                kill(cluster.pid(), Signal::KILL);
            } else {
                cluster.stop(Data::Kept);
            }
            thread::sleep(Duration::from_millis(dice.below(DEATH)));
            cluster.start_again(&[]);
            let added = added.join().unwrap();
            assert_eq!(added.code, 0, "a person waits for the store: {added:?}");
        });
        until("the daemon has its database again", || {
            send_to(&daemon.state().join("control.sock"), "GET", "/api/status", b"").status == 200
        });
        let ended = seen.look(daemon);
        for (launch, pid) in before {
            let now = &seen.0[&launch];
            assert_eq!(now["pid"], json!(pid), "the same process: {now}");
            assert!(now["state"] != "ended" || is_gone(pid), "it lives: {now}");
        }
        assert_eq!(left_behind(&ended), [0; 0], "of launches that have ended");
        work_again(daemon);
    }
    end(daemon, &mut seen);
    check_ended_by_themselves(&seen);
    let failed = fs::read_to_string(daemon.work().join("failed")).unwrap_or_default();
    assert_eq!(failed, "", "calls of agents wait for the store");
    let tasks = daemon.json(&["task", "list"]);
    let titles = tasks.as_array().unwrap().iter().map(|task| task["title"].as_str());
    let n_added = titles.filter(|title| *title == Some("added meanwhile")).count();
    assert_eq!(n_added, n_kills, "each task was added once");
    eprintln!("chaos: {} launches", seen.0.len());
}

/// Writes down the work and the lives of the agents.
fn prepare(daemon: &Daemon, n_kills: usize) -> Dice {
    let seed = RandomState::new().hash_one(0);
    eprintln!("chaos: {n_kills} kills, seed {seed}");
    daemon.write("manifest.yaml", manifest(daemon));
    for agent in AGENTS {
        let steps = life(agent);
        daemon.steps(agent, &steps.iter().map(String::as_str).collect::<Vec<_>>());
    }
    Dice::new(seed, 0)
}

/// Lets all agents end, and checks their ends.
fn end(daemon: &Daemon, seen: &mut Seen) {
    daemon.done(&["pause"]);
    until("all of them have ended", || daemon.status()["limits"]["running"] == 0);
    daemon.until_nothing_is_left();
    seen.look(daemon);
    check_ends(daemon, seen);
}

/// Checks that no launch ended because the database was away: each outcome is one of [`life`].
fn check_ended_by_themselves(seen: &Seen) {
    let own = ["completed", "exited_without_report", "never_authenticated"];
    let is_own = |launch: &Value| own.iter().any(|outcome| launch["outcome"] == *outcome);
    let others: Vec<&Value> = seen.0.values().filter(|launch| !is_own(launch)).collect();
    assert!(others.is_empty(), "ended because of a kill: {others:#?}");
}

fn output(daemon: &Daemon, launch: &str) -> String {
    let Some(folder) = instance_dir::find(&daemon.state(), &launch.parse().unwrap()) else {
        return "its folder is gone".to_owned();
    };
    instance_dir::output_files(&folder)
        .iter()
        .map(|file| fs::read_to_string(file).unwrap())
        .collect()
}

/// Checks that every agent that ran is known with its process, and that the exit of every ended one
/// is known.
fn check_ends(daemon: &Daemon, seen: &Seen) {
    let journal = journal(daemon);
    let started: BTreeMap<&str, i64> = journal
        .iter()
        .filter(|entry| entry.2 == "started")
        .map(|(id, pid, _)| (id.as_str(), *pid))
        .collect();
    let ended = |id: &str| journal.iter().any(|entry| entry.0 == id && entry.2 != "started");
    let unknown: Vec<_> = started
        .keys()
        .filter(|id| !ended(id))
        .map(|id| (&seen.0[*id], output(daemon, id)))
        .collect();
    assert!(
        unknown.is_empty() && started.len() * 2 == journal.len(),
        "not each of them ended once: {unknown:#?}"
    );
    for (id, pid, code) in journal.iter().filter(|entry| entry.2 != "started") {
        let launch = &seen.0[id];
        assert_eq!(
            (launch["pid"].as_i64(), launch["exitCode"].to_string()),
            (Some(*pid), code.clone()),
            "{launch}"
        );
    }
    for (id, launch) in &seen.0 {
        let has_run = started.contains_key(id.as_str());
        assert!(has_run || launch["outcome"] == "start_failed", "its end is made up: {launch}");
        assert_ne!(launch["outcome"], "lost", "{launch}");
    }
    for agent in AGENTS {
        assert!(
            !daemon.work().join(format!("{agent}.alone.twin")).exists(),
            "{agent} was there twice"
        );
    }
    let escaped = fs::read_to_string(daemon.work().join("escaped")).unwrap_or_default();
    assert!(!escaped.is_empty(), "nobody escaped: this shows nothing");
    let escaped: Vec<&str> = escaped.lines().filter(|stat| is_there(stat)).collect();
    assert!(escaped.is_empty(), "what carries no mark is ended, too: {escaped:?}");
}

/// Returns whether the process with this line of `/proc/<pid>/stat` is still there. In a long run
/// another process may have its pid by now.
fn is_there(stat: &str) -> bool {
    let fields: Vec<&str> = stat.split(' ').collect();
    let (pid, start_ticks) = (fields[0].parse().unwrap(), fields[21].parse::<u64>().unwrap());
    processes::read(pid)
        .is_some_and(|process| process.start_ticks == start_ticks && !process.is_zombie)
}

fn n_kills() -> usize {
    std::env::var(VARIABLE).map_or(N_KILLS, |number| number.parse().expect("a number of kills"))
}

#[test]
fn whenever_the_daemon_is_killed_no_agent_is_doubled_and_no_exit_lost() {
    survive(Daemon::configured(SETTINGS), n_kills(), Meanwhile::Nothing);
}

#[test]
fn the_same_holds_for_an_ordinary_user() {
    let Some(daemon) = daemon_of_ordinary_user(SETTINGS) else {
        return;
    };
    survive(daemon, n_kills(), Meanwhile::Nothing);
}

#[test]
fn whenever_postgresql_is_killed_no_agent_is_doubled_and_no_exit_lost() {
    let Some(mut cluster) = own() else { return };
    let url = cluster.url(USER, &cluster.create_database(""));
    let mut daemon = Daemon::configured(&format!("{SETTINGS}\nstore: {{ url: '{url}' }}"));
    survive_without_postgresql(&mut daemon, &mut cluster, n_kills());
}

/// The mutant shows that the check finds a lost exit.
#[test]
#[should_panic(expected = "not each of them ended once")]
fn a_lost_exit_is_found() {
    survive(Daemon::configured(SETTINGS), N_KILLS, Meanwhile::ShimKilled);
}
