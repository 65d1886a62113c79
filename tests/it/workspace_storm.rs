//! Many agents work in clones of one repository while processes are killed at any moment, and the
//! disk is full for a while. All that they wrote is still there at the end, and no agent's work is
//! in the branch of another.
//!
//! These variables choose a longer storm, or the same one again: `STORM_AGENTS`, `STORM_RUNS`,
//! `STORM_SEED`, and `STORM_FULL` for the number of runs after which the disk is full (10; only root
//! can mount the small file system for that).
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::iter::Cycle;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::vec::IntoIter;

use machine::crash_point::{CrashPoint, VARIABLE};
use machine::sys::processes;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{git, until_some_within};
use crate::workspace_full_disk::{Filler, mount, names_in};
use crate::workspaces::{Bed, KEEPING, MAKING};

/// The longest time for one run of all agents.
const LONGEST_RUN: Duration = Duration::from_mins(15);
/// The time for which the disk is full, and for which it is not, in a run with a full disk.
const FULL_FOR: Duration = Duration::from_secs(2);
/// The most bytes that all clones together may use.
const MAX_DISK: u64 = 1 << 30;
/// The time for which a process to kill is looked for.
const LOOKING_FOR: Duration = Duration::from_millis(300);
/// The time for which a daemon lives whose shims die at a crash point.
const DYING_FOR: Duration = Duration::from_secs(3);

/// An agent that writes content in each of the ways in which git may lose it. It notes content that
/// git or the file system has taken. The lock of a git that was killed is in the way of the next
/// one. Some agents leave a process behind.
const WORK: &str = "run:cd \"$WORKING_DIRECTORY\"; \
    id() { git hash-object \"$1\"; }; \
    put() { echo \"$1\" >>\"$LEDGER/$AGENT_ID\"; }; \
    note() { i=$(id \"$1\") && put \"$i\"; }; \
    r=$(od -An -N8 -tx8 /dev/urandom | tr -d ' '); f=$AGENT_ID-$r; \
    rm -f .git/index.lock .git/HEAD.lock; \
    git checkout -qf $(git for-each-ref --format='%(refname:short)' refs/heads | head -n 1); \
    for how in 1 2 3 4 5 6; do g=$f-$how; echo $g >$g || continue; \
    case $how in \
    1) git add $g && note $g; git commit -qm $g;; \
    2) git add $g && note $g; git commit -qm $g; \
       echo $g.amended >$g.a && git add $g.a && note $g.a; git commit -q --amend -m $g;; \
    3) i=$(id $g); git stash push -qu && put $i && git stash drop -q;; \
    4) git add $g && note $g; echo $g.again >$g; git reset -q --hard;; \
    5) git checkout -q --detach; git add $g && note $g; git commit -qm $g; git checkout -q -;; \
    6) mv $g $g.log && note $g.log;; esac; done; \
    echo $f >>common.txt; git commit -qam $f; \
    case $r in *[0-4]) (sleep 600 >/dev/null 2>&1 &);; esac; true";

/// The moments of a launch at which a daemon dies.
const LAUNCHING: [CrashPoint; 20] = [
    CrashPoint::Claimed,
    CrashPoint::FolderMade,
    CrashPoint::FolderReady,
    CrashPoint::Spawned,
    CrashPoint::ShimStarted,
    CrashPoint::ShimNoted,
    CrashPoint::AgentForked,
    CrashPoint::StartRecorded,
    CrashPoint::StartSeen,
    CrashPoint::StartReported,
    CrashPoint::Authenticated,
    CrashPoint::AuthenticationMarked,
    CrashPoint::ReportTaken,
    CrashPoint::ExitRecorded,
    CrashPoint::ExitSeen,
    CrashPoint::ExitReported,
    CrashPoint::EndRecorded,
    CrashPoint::EndSeen,
    CrashPoint::EndReported,
    CrashPoint::FolderMoved,
];

/// The moments at which a shim dies by itself.
const OF_SHIMS: [CrashPoint; 6] = [
    CrashPoint::ShimStarted,
    CrashPoint::ShimNoted,
    CrashPoint::AgentForked,
    CrashPoint::StartRecorded,
    CrashPoint::ExitRecorded,
    CrashPoint::EndRecorded,
];

/// The moments of a removal at which a daemon dies.
const REMOVING: [CrashPoint; 2] = [CrashPoint::WorkspaceInTrash, CrashPoint::WorkspaceRemoved];

/// Returns the points at which the daemons of the storm and their shims die, one after the other.
fn points() -> Cycle<IntoIter<String>> {
    let of_daemons = MAKING.into_iter().chain(LAUNCHING).chain(KEEPING);
    let of_daemons = of_daemons.map(|point| format!("{point:?}"));
    let of_shims = OF_SHIMS.into_iter().map(|point| format!("{point:?}@shim"));
    of_daemons.chain(of_shims).collect::<Vec<_>>().into_iter().cycle()
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
    let full_every = usize::try_from(number("STORM_FULL", 10)).unwrap();
    let usual = u64::from(std::process::id()) << 16 | 1;
    let seed = number("STORM_SEED", usual).max(1);
    eprintln!(
        "STORM_AGENTS={n_agents} STORM_RUNS={n_runs} STORM_FULL={full_every} STORM_SEED={seed}"
    );
    let names: Vec<String> = (0..n_agents).map(|n| format!("agt_{n}")).collect();
    let steps: &[&str] = &["authenticate", "get-my-task", WORK, "report:success"];
    let agents: Vec<(&str, &[&str])> = names.iter().map(|name| (name.as_str(), steps)).collect();
    let ledger = tempfile::tempdir().unwrap();
    let settings = format!(
        "workspace: {{ keep: off, root: FOLDER/clones, max_disk: {MAX_DISK} }}\n\
         max_concurrent: {n_agents}\nstop: {{ leak_grace: 50ms }}\n\
         backoff: {{ initial: 10ms, max: 50ms }}\nstart: {{ limit: 0 }}\n\
         ai_providers:\n  claude:\n    cli_command: {}\n    cli_args: [script]\n    \
         environment: {{ LEDGER: {} }}\n",
        crate::support::agent_fixture().display(),
        ledger.path().display()
    );
    let bed = Bed::configured(&settings, &agents);
    fs::write(bed.daemon.work().join(".gitignore"), "*.log\n").unwrap();
    git(&bed.daemon.work(), &["add", "."]);
    git(&bed.daemon.work(), &["commit", "-qm", "ignore logs"]);
    let root = bed.daemon.folder().join("clones");
    let has_full_runs = n_runs >= full_every;
    let mounted = if has_full_runs { mount(bed.daemon.folder(), "192m") } else { None };
    let bed = bed.daemon_with_clones(&agents);
    let ledger = ledger.path().to_owned();
    let n_kills = [0; 4];
    let (points, died_at) = (points(), BTreeMap::new());
    let mut storm =
        Storm { bed, root, ledger, names, dice: Dice(seed), points, point: None, n_kills, died_at };
    let (mut n_full, mut n_contents) = (0, 0);
    for run in 0..n_runs {
        let is_full = mounted.is_some() && run % full_every == full_every - 1;
        n_full += usize::from(is_full);
        storm.begin(run);
        storm.blow(is_full);
        n_contents = storm.check();
        eprintln!("run {run}: {n_contents} contents and objects are reached");
    }
    // All of it outlives the clones.
    let all: Vec<usize> = (0..n_agents).collect();
    storm.discard(&all);
    assert_eq!(storm.bed.daemon.json(&["workspace", "list"]), Value::Array(Vec::new()));
    storm.check();
    let [agents, shims, gits, daemons] = storm.n_kills;
    let at_points: usize = storm.died_at.values().sum();
    eprintln!(
        "{n_contents} contents and objects; {n_full} runs with a full disk; killed: {agents} \
         agents, {shims} shims, {gits} gits, {daemons} daemons at random, {at_points} daemons at \
         crash points: {:?}",
        storm.died_at
    );
}

struct Storm {
    bed: Bed,
    root: PathBuf,
    /// The folder with the ids of what each agent wrote.
    ledger: PathBuf,
    names: Vec<String>,
    dice: Dice,
    points: Cycle<IntoIter<String>>,
    /// The crash point of the daemon that runs now, and when it was started.
    point: Option<(String, Instant)>,
    /// Agents, shims, gits, daemons at random.
    n_kills: [usize; 4],
    /// The number of daemons that died at each crash point.
    died_at: BTreeMap<String, usize>,
}

impl Storm {
    /// Gives each agent something to do. Some of them get a clone that was removed meanwhile.
    fn begin(&mut self, run: usize) {
        if run > 0 {
            let all = 0..self.names.len();
            let some: Vec<usize> = all.filter(|_| self.dice.below(3) == 0).collect();
            self.discard(&some);
        }
        for (n, name) in self.names.iter().enumerate() {
            let task = format!("tsk_{n}");
            if run == 0 {
                self.bed.daemon.task(&task, "prj", name);
            } else {
                for status in ["todo", "in_progress"] {
                    self.bed.daemon.done(&["task", "set", &task, "--status", status]);
                }
            }
        }
    }

    /// Kills processes until each task of this run is done and its content kept. The number of
    /// kills is limited, so that the run ends. Agents write between two kills.
    fn blow(&mut self, is_full_run: bool) {
        let n_agents = self.names.len();
        let mut n_left = 2 + n_agents;
        let mut n_noted_at_next = 0;
        let mut disk = Disk::new(if is_full_run { 3 } else { 0 });
        let began_at = Instant::now();
        loop {
            self.revive();
            disk.turn(&self.root);
            let n_noted = self.count_noted();
            let may_kill = n_noted >= n_noted_at_next || disk.filler.is_some();
            if n_left > 0 && may_kill && self.kill_one() {
                n_left -= 1;
                n_noted_at_next = n_noted + self.dice.below(8);
            }
            // Nothing goes on while each shim dies, and some points are not reached any more.
            let waits = n_left == 0 || !may_kill;
            if waits && self.point.as_ref().is_some_and(|(_, at)| at.elapsed() > DYING_FOR) {
                self.restart(None);
            }
            if self.is_over(n_agents) && disk.n_left == 0 {
                break;
            }
            let shown = || self.bed.daemon.cli(&["workspace", "list"]).stdout;
            assert!(began_at.elapsed() < LONGEST_RUN, "the run does not end: {}", shown());
        }
        // The next daemon dies at no crash point.
        self.restart(None);
        self.bed.daemon.until_ready();
    }

    fn is_over(&self, n_agents: usize) -> bool {
        // A call fails while a daemon dies at a crash point.
        let said = self.bed.daemon.cli(&["workspace", "list", "--json"]);
        let Ok(Value::Array(list)) = serde_json::from_str(&said.stdout) else {
            return false;
        };
        let is_done = |it: &Value| {
            it["state"] == "ready" && it["task_status"] == "done" && it["content"].is_object()
        };
        list.len() == n_agents && list.iter().all(is_done)
    }

    /// Starts a daemon again that has died at its crash point.
    fn revive(&mut self) {
        if !self.bed.daemon.has_died() {
            return;
        }
        let point = self.point.take().map_or_else(|| "no point".to_owned(), |(point, _)| point);
        *self.died_at.entry(point).or_default() += 1;
        self.bed.daemon.start();
    }

    /// Kills the daemon unless it has died, and starts another one that dies at `point`.
    fn restart(&mut self, point: Option<String>) {
        if self.bed.daemon.has_died() {
            let point = self.point.take().map_or_else(|| "no point".to_owned(), |(point, _)| point);
            *self.died_at.entry(point).or_default() += 1;
        } else {
            self.bed.daemon.kill();
        }
        let mut command = self.bed.daemon.command();
        if let Some(point) = &point {
            command.env(VARIABLE, point);
        }
        self.point = point.map(|point| (point, Instant::now()));
        self.bed.daemon.spawn_as(command);
    }

    /// Kills one process, and returns whether there was one. A killed daemon is started again, and
    /// two of three die at the next crash point.
    fn kill_one(&mut self) -> bool {
        let victim = self.dice.below(4);
        if victim == 3 {
            self.n_kills[3] += 1;
            let point = if self.dice.below(3) == 0 { None } else { self.points.next() };
            self.restart(point);
            return true;
        }
        let git_config = self.root.join(".gitconfig");
        let variable = |pid, name| processes::find_variable(pid, name).map(PathBuf::from);
        let is_agent = |pid| {
            variable(pid, "WORKING_DIRECTORY").is_some_and(|found| found.starts_with(&self.root))
        };
        let daemon = self.bed.daemon.pid();
        let is_victim = |process: &processes::Process| match victim {
            0 => is_agent(process.pid),
            1 => process.parent == daemon && has_child(process.pid, is_agent),
            _ => variable(process.pid, "GIT_CONFIG_GLOBAL").is_some_and(|it| it == git_config),
        };
        // A git process lives for a few milliseconds.
        let began_at = Instant::now();
        let victims = loop {
            let all = processes::list().unwrap();
            let victims: Vec<_> = all.into_iter().filter(is_victim).collect();
            if !victims.is_empty() {
                break victims;
            }
            if began_at.elapsed() > LOOKING_FOR {
                return false;
            }
        };
        let pid = victims[self.dice.below(victims.len())].pid;
        self.n_kills[victim] += 1;
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).is_ok()
    }

    /// Gives up the results of these tasks, and waits until their clones are gone. The daemon dies
    /// meanwhile.
    fn discard(&mut self, tasks: &[usize]) {
        if tasks.is_empty() {
            return;
        }
        let point = REMOVING[self.dice.below(REMOVING.len())];
        self.restart(Some(format!("{point:?}")));
        for n in tasks {
            let task = format!("tsk_{n}");
            self.until(|storm| storm.bed.daemon.cli(&["task", "discard", &task]).code == 0);
        }
        for n in tasks {
            let task = format!("tsk_{n}");
            self.until(|storm| {
                let said = storm.bed.daemon.cli(&["workspace", "show", &task, "--json"]);
                let shown: Value = serde_json::from_str(&said.stdout).unwrap_or_default();
                shown["state"] == "removed"
            });
        }
        self.restart(None);
        self.bed.daemon.until_ready();
    }

    /// Waits for a fact. A daemon that dies meanwhile is started again.
    fn until(&mut self, fact: impl Fn(&Self) -> bool) {
        let is_so = || {
            self.revive();
            fact(self).then_some(())
        };
        until_some_within(LONGEST_RUN, is_so, || "waited in vain for a removal".to_owned());
    }

    fn count_noted(&self) -> usize {
        let files = fs::read_dir(&self.ledger).unwrap().flatten();
        files.map(|file| fs::read_to_string(file.path()).unwrap().lines().count()).sum()
    }

    /// Checks that the keep repository reaches all content that was noted, and all files and objects
    /// that the clones have. The branch of an agent has only its own files, and the root only what
    /// belongs there. Returns the number of contents and objects.
    fn check(&self) -> usize {
        let kept = self.root.join("prj/keep.git");
        let listed = git(&kept, &["rev-list", "--objects", "--no-object-names", "--all"]);
        let reached: BTreeSet<&str> = listed.lines().collect();
        let mut all = BTreeSet::new();
        let mut folders = BTreeSet::new();
        let mut has_committed = false;
        for (n, name) in self.names.iter().enumerate() {
            let noted = fs::read_to_string(self.ledger.join(name)).unwrap_or_default();
            for id in noted.lines() {
                assert!(reached.contains(id), "{id} of {name} is lost");
                all.insert(id.to_owned());
            }
            let shown = self.bed.daemon.json(&["workspace", "show", &format!("tsk_{n}")]);
            let id = shown["id"].as_str().unwrap();
            if shown["state"] != "removed" {
                folders.insert(id.to_owned());
                let ids = contents_of(&self.root.join("prj").join(id).join("tree"));
                for id in &ids {
                    assert!(reached.contains(id.as_str()), "{id} in the clone of {name} is lost");
                }
                all.extend(ids);
            }
            let branch = shown["branch"].as_str().unwrap();
            has_committed |= check_branch(&kept, branch, name);
        }
        assert!(has_committed, "no agent has committed anything");
        assert_eq!(git(&kept, &["fsck", "--no-dangling"]), "");
        check_names(&self.root, &folders);
        let used = size_of(&self.root);
        assert!(used < MAX_DISK, "{used} bytes are used");
        all.len()
    }
}

/// A disk that is full for a while, several times.
struct Disk {
    filler: Option<Filler>,
    n_left: usize,
    since: Instant,
}

impl Disk {
    fn new(n_left: usize) -> Self {
        Self { filler: None, n_left, since: Instant::now() }
    }

    fn turn(&mut self, root: &Path) {
        if self.n_left == 0 || self.since.elapsed() < FULL_FOR {
            return;
        }
        self.since = Instant::now();
        if self.filler.take().is_some() {
            self.n_left -= 1;
        } else {
            // The file system is too small for a reserve of the usual size.
            let _ = fs::write(root.join(".reserve"), vec![1; 1 << 20]);
            self.filler = Some(Filler::new(root));
        }
    }
}

fn has_child(pid: i32, is_wanted: impl Fn(i32) -> bool) -> bool {
    let all = processes::list().unwrap();
    all.iter().any(|process| process.parent == pid && is_wanted(process.pid))
}

/// Returns the ids of all files of a clone, and of all objects of its own.
fn contents_of(tree: &Path) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    let mut files = Vec::new();
    let mut folders = vec![tree.to_owned()];
    while let Some(folder) = folders.pop() {
        for name in names_in(&folder) {
            let path = folder.join(&name);
            if path.is_dir() && name != ".git" {
                folders.push(path);
            } else if path.is_file() {
                files.push(path.to_str().unwrap().to_owned());
            }
        }
    }
    for some in files.chunks(200) {
        let call = ["hash-object", "--no-filters", "--"].into_iter();
        let call: Vec<&str> = call.chain(some.iter().map(String::as_str)).collect();
        ids.extend(git(tree, &call).lines().map(str::to_owned));
    }
    let objects = tree.join(".git/objects");
    for folder in names_in(&objects).into_iter().filter(|name| name.len() == 2) {
        let names = names_in(&objects.join(&folder)).into_iter();
        ids.extend(names.filter(|name| name.len() == 38).map(|name| format!("{folder}{name}")));
    }
    for name in names_in(&objects.join("pack")) {
        let path = objects.join("pack").join(&name);
        if path.extension().is_some_and(|extension| extension == "idx") {
            let listed = git(tree, &["verify-pack", "-v", path.to_str().unwrap()]);
            let ids_in = listed.lines().filter_map(|line| line.split(' ').next());
            ids.extend(ids_in.filter(|word| word.len() == 40).map(str::to_owned));
        }
    }
    ids
}

/// Checks that the branch of an agent has its own files and lines, and those of the source. Returns
/// whether it has a line of its own. A killed git may leave the agent on no branch.
fn check_branch(kept: &Path, branch: &str, name: &str) -> bool {
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
    lines.lines().count() > 1
}

/// Checks that the root has the clones of these names, what the daemon needs itself, and perhaps
/// what a killed daemon was making. The next step removes that.
fn check_names(root: &Path, clones: &BTreeSet<String>) {
    let known = [".git-home", ".gitconfig", ".reserve", "prj"];
    for name in names_in(root) {
        assert!(known.contains(&name.as_str()), "{name} is in the root");
    }
    for name in names_in(&root.join("prj")) {
        let is_own = ["keep.git", "files.git"].contains(&name.as_str());
        let is_half = name.starts_with(".new-") || name.starts_with(".q-");
        assert!(is_own || is_half || clones.contains(&name), "{name} is in the project's folder");
    }
}

fn size_of(path: &Path) -> u64 {
    let Ok(found) = path.symlink_metadata() else { return 0 };
    let below = names_in(path).into_iter().map(|name| size_of(&path.join(name)));
    found.blocks() * 512 + if found.is_dir() { below.sum() } else { 0 }
}
