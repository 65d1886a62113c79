//! Many agents work in clones of one repository while processes are killed at any moment. All that
//! they wrote is still there at the end, and no agent's work is in the branch of another.
//!
//! `STORM_AGENTS`, `STORM_RUNS` and `STORM_SEED` choose a longer storm, or the same one again.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::iter::Cycle;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::vec::IntoIter;

use agent_coordinator::crash_point::{CrashPoint, VARIABLE};
use agent_coordinator::sys::processes;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{git, until_some_within};
use crate::workspaces::{Bed, KEEPING, MAKING};

/// The longest time for one run of one agent.
const LONGEST_RUN: Duration = Duration::from_mins(5);

/// An agent that writes content in each of the ways in which git may lose it. It notes the content
/// after it was written. The lock of a git that was killed is in the way of the next one.
const WORK: &str = "run:cd \"$WORKING_DIRECTORY\"; \
    note() { git hash-object \"$1\" >>\"$LEDGER/$AGENT_ID\"; }; \
    r=$(od -An -N8 -tx8 /dev/urandom | tr -d ' '); f=$AGENT_ID-$r; \
    rm -f .git/index.lock .git/HEAD.lock; \
    git checkout -qf $(git for-each-ref --format='%(refname:short)' refs/heads | head -n 1); \
    for how in 1 2 3 4 5 6; do g=$f-$how; echo $g >$g; note $g; \
    case $how in \
    1) git add $g; git commit -qm $g;; \
    2) git add $g; git commit -qm $g; echo $g.amended >$g.a; note $g.a; git add $g.a; \
       git commit -q --amend -m $g;; \
    3) git stash push -qu; git stash drop -q;; \
    4) git add $g; echo $g.again >$g; git reset -q --hard;; \
    5) git checkout -q --detach; git add $g; git commit -qm $g; git checkout -q -;; \
    6) mv $g $g.log;; esac; done; echo $f >>common.txt; git commit -qam $f; true";

/// Returns the points at which a daemon of the storm dies, one after the other.
fn points() -> Cycle<IntoIter<CrashPoint>> {
    let used = [CrashPoint::Claimed, CrashPoint::Spawned, CrashPoint::ExitSeen];
    let points: Vec<_> = MAKING.into_iter().chain(used).chain(KEEPING).collect();
    points.into_iter().cycle()
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().map_or(usual, |text| text.parse().unwrap())
}

/// Numbers that look random, and are the same for each seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n as u64).unwrap()
    }
}

#[test]
fn a_storm_of_kills_loses_nothing_and_mixes_nothing() {
    let n_agents = usize::try_from(number("STORM_AGENTS", 3)).unwrap();
    let n_runs = usize::try_from(number("STORM_RUNS", 1)).unwrap();
    let usual = u64::from(std::process::id()) << 16 | 1;
    let seed = number("STORM_SEED", usual).max(1);
    eprintln!("STORM_AGENTS={n_agents} STORM_RUNS={n_runs} STORM_SEED={seed}");
    let names: Vec<String> = (0..n_agents).map(|n| format!("agt_{n}")).collect();
    let steps: &[&str] = &["authenticate", "get-my-task", WORK, "report:success"];
    let agents: Vec<(&str, &[&str])> = names.iter().map(|name| (name.as_str(), steps)).collect();
    let ledger = tempfile::tempdir().unwrap();
    let settings = format!(
        "workspace: {{ keep: off, max_disk: 2 GiB }}\nmax_concurrent: {n_agents}\n\
         backoff: {{ initial: 10ms, max: 50ms }}\nstart: {{ limit: 0 }}\n\
         ai_providers:\n  claude:\n    cli_command: {}\n    cli_args: [script]\n    \
         environment: {{ LEDGER: {} }}\n",
        crate::support::agent_fixture().display(),
        ledger.path().display()
    );
    let bed = Bed::configured(&settings, &agents);
    std::fs::write(bed.daemon.work().join(".gitignore"), "*.log\n").unwrap();
    git(&bed.daemon.work(), &["add", "."]);
    git(&bed.daemon.work(), &["commit", "-qm", "ignore logs"]);
    let mut bed = bed.daemon_with_clones(&agents);
    let mut storm = Storm { dice: Dice(seed), points: points(), n_kills: [0; 5] };
    for run in 0..n_runs {
        for (n, name) in names.iter().enumerate() {
            let task = format!("tsk_{n}");
            if run == 0 {
                bed.daemon.task(&task, "prj", name);
            } else {
                for status in ["todo", "in_progress"] {
                    bed.daemon.done(&["task", "set", &task, "--status", status]);
                }
            }
        }
        storm.blow(&mut bed, n_agents, ledger.path());
    }
    let kept = bed.daemon.state().join("workspaces/prj/keep.git");
    check(&bed, &names, &kept, ledger.path());
    // All of it outlives the clones.
    for n in 0..n_agents {
        bed.daemon.done(&["task", "discard", &format!("tsk_{n}")]);
    }
    let are_removed = || bed.daemon.json(&["workspace", "list"]) == Value::Array(Vec::new());
    until_some_within(
        LONGEST_RUN,
        || are_removed().then_some(()),
        || format!("the clones stay: {}", bed.daemon.done(&["workspace", "list"])),
    );
    check(&bed, &names, &kept, ledger.path());
    let [agents, shims, gits, daemons, points] = storm.n_kills;
    eprintln!(
        "killed: {agents} agents, {shims} shims, {gits} gits, {daemons} daemons at random, \
         {points} at crash points"
    );
}

struct Storm {
    dice: Dice,
    points: Cycle<IntoIter<CrashPoint>>,
    /// Agents, shims, gits, daemons at random, daemons at crash points.
    n_kills: [usize; 5],
}

impl Storm {
    /// Kills processes until each task of this run is done and its content kept. The number of
    /// kills is limited, so that the run ends. Agents write between two kills.
    fn blow(&mut self, bed: &mut Bed, n_agents: usize, ledger: &Path) {
        let mut n_left = 2 + n_agents;
        let mut n_noted_at_next = 0;
        let mut is_over = || {
            if bed.daemon.has_died() {
                self.n_kills[4] += 1;
                bed.daemon.start();
            }
            let n_noted = count_noted(ledger);
            if n_left > 0 && n_noted >= n_noted_at_next && self.kill_one(bed) {
                n_left -= 1;
                n_noted_at_next = n_noted + self.dice.below(8);
            }
            // A call fails while a daemon dies at a crash point.
            let said = bed.daemon.cli(&["workspace", "list", "--json"]);
            let list: Value = serde_json::from_str(&said.stdout).ok()?;
            let list = list.as_array()?;
            let is_done = |it: &Value| {
                it["state"] == "ready" && it["task_status"] == "done" && it["content"].is_object()
            };
            (list.len() == n_agents && list.iter().all(is_done)).then_some(())
        };
        until_some_within(LONGEST_RUN, &mut is_over, || "a run of the storm ends".to_owned());
        // The next daemon dies at no crash point.
        if !bed.daemon.has_died() {
            bed.daemon.terminate();
        }
        bed.daemon.start();
    }

    /// Kills one process, and returns whether there was one. A killed daemon is started again, and
    /// each second one dies at the next crash point.
    fn kill_one(&mut self, bed: &mut Bed) -> bool {
        let victim = self.dice.below(4);
        if victim == 3 {
            self.n_kills[3] += 1;
            bed.daemon.kill();
            let mut command = bed.daemon.command();
            if self.dice.below(2) == 0 {
                command.env(VARIABLE, format!("{:?}", self.points.next().unwrap()));
            }
            bed.daemon.spawn_as(command);
            return true;
        }
        let root = bed.daemon.state().join("workspaces").join(".gitconfig");
        let state = bed.daemon.state();
        let variable = |pid, name| processes::find_variable(pid, name).map(PathBuf::from);
        let is_agent =
            |pid| variable(pid, "WORKING_DIRECTORY").is_some_and(|found| found.starts_with(&state));
        let is_victim = |process: &processes::Process| match victim {
            0 => is_agent(process.pid),
            1 => process.parent == bed.daemon.pid() && has_child(process.pid, is_agent),
            _ => variable(process.pid, "GIT_CONFIG_GLOBAL").is_some_and(|found| found == root),
        };
        let all = processes::list().unwrap();
        let victims: Vec<_> = all.into_iter().filter(is_victim).collect();
        if victims.is_empty() {
            return false;
        }
        let pid = victims[self.dice.below(victims.len())].pid;
        self.n_kills[victim] += 1;
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).is_ok()
    }
}

fn count_noted(ledger: &Path) -> usize {
    let files = std::fs::read_dir(ledger).unwrap().flatten();
    files.map(|file| std::fs::read_to_string(file.path()).unwrap().lines().count()).sum()
}

fn has_child(pid: i32, is_wanted: impl Fn(i32) -> bool) -> bool {
    let all = processes::list().unwrap();
    all.iter().any(|process| process.parent == pid && is_wanted(process.pid))
}

/// Checks that the keep repository reaches all content that was noted, and that the branch of an
/// agent has only its own files.
fn check(bed: &Bed, names: &[String], kept: &Path, ledger: &Path) {
    let listed = git(kept, &["rev-list", "--objects", "--no-object-names", "--all"]);
    let reached: BTreeSet<&str> = listed.lines().collect();
    let mut n_noted = 0;
    for (n, name) in names.iter().enumerate() {
        let noted = std::fs::read_to_string(ledger.join(name)).unwrap();
        for id in noted.lines() {
            n_noted += 1;
            assert!(reached.contains(id), "{id} of {name} is lost");
        }
        let shown: Value = bed.daemon.json(&["workspace", "show", &format!("tsk_{n}")]);
        let branch = shown["branch"].as_str().unwrap();
        let files = git(kept, &["ls-tree", "-r", "--name-only", branch]);
        let lines = git(kept, &["show", &format!("{branch}:common.txt")]);
        let own = format!("{name}-");
        let is_first = |entry: &str| {
            let is_step = entry.rsplit_once('.').is_some_and(|(_, ending)| ending == "steps");
            is_step || ["common.txt", ".gitignore", "common"].contains(&entry)
        };
        for entry in files.lines().chain(lines.lines()) {
            let is_own = entry.starts_with(&own) || is_first(entry);
            assert!(is_own, "{entry} is in the branch of {name}");
        }
        assert!(lines.lines().count() > 1, "{name} has committed nothing");
    }
    eprintln!("{n_noted} contents are reached");
    assert_eq!(git(kept, &["fsck", "--no-dangling"]), "");
}
