//! The operator's hooks in clones, with the real binary.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};

use machine::crash_point::VARIABLE;
use machine::sys::processes;
use rustix::process::Signal;
use serde_json::Value;

use crate::daemon::Daemon;
use crate::support::{agent_fixture, is_gone, kill, until, until_some};
use crate::workspaces::{Bed, COMMITS};

const AGENT: &[(&str, &[&str])] = &[("one", COMMITS)];

/// Returns the settings with hooks, each with a script for `sh`. `BESIDE` in a script stands for a
/// folder outside of the clones.
fn settings(beside: &Path, more: &str, hooks: &[(&str, &str)]) -> String {
    let beside = beside.to_str().unwrap();
    let hook = |(name, script): &(&str, &str)| {
        // A dollar sign of a script is doubled in the configuration.
        let script = script.replace("BESIDE", beside).replace('$', "$$");
        format!("    {name}: {}\n", serde_json::json!(["sh", "-c", script]))
    };
    let hooks: String = hooks.iter().map(hook).collect();
    format!(
        "backoff: {{ initial: 50ms, max: 50ms }}\nstop: {{ timeout: 100ms }}\n\
         workspace:\n  keep: off\n  hooks:\n    timeout: 1h\n{hooks}{more}"
    )
}

/// A daemon with hooks, and the folder beside its clones.
struct Hooked {
    bed: Bed,
    beside: PathBuf,
    _folder: tempfile::TempDir,
}

impl Hooked {
    fn new(hooks: &[(&str, &str)]) -> Self {
        Self::with("", hooks)
    }

    fn with(more: &str, hooks: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let beside = folder.path().to_owned();
        let settings = settings(&beside, more, hooks);
        let bed = Bed::configured(&settings, AGENT).daemon_with_clones(AGENT);
        Self { bed, beside, _folder: folder }
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.beside.join(name)).unwrap_or_default()
    }

    fn write(&self, name: &str) {
        fs::write(self.beside.join(name), "").unwrap();
    }

    /// Waits until the text of all these commands contains `expected`.
    fn until_said(&self, commands: &[&[&str]], expected: &str) {
        for command in commands {
            until(&format!("{command:?} says {expected}"), || {
                self.bed.daemon.done(command).contains(expected)
            });
        }
    }

    fn shown(&self) -> Value {
        self.bed.daemon.json(&["workspace", "show", "tsk"])
    }

    fn until_removed(&self) {
        until("the files are removed", || self.shown()["state"] == "removed");
    }

    fn pid(&self, name: &str) -> i32 {
        until_some("the hook runs", || self.read(name).lines().next()?.parse().ok())
    }
}

const WHY: &[&str] = &["why", "one", "prj"];
const SHOW: &[&str] = &["workspace", "show", "tsk"];

#[test]
fn hooks_run_at_their_moments_in_the_clone_with_its_facts_and_without_a_way_to_the_server() {
    let notes = "echo HOOK $(pwd) >>BESIDE/order; env >BESIDE/env.HOOK; echo said by HOOK";
    let script = |hook: &str| notes.replace("HOOK", hook);
    let names = ["after_create", "before_run", "after_run", "before_remove"];
    let scripts: Vec<String> = names.iter().map(|name| script(name)).collect();
    let hooks: Vec<(&str, &str)> =
        names.iter().zip(&scripts).map(|(name, script)| (*name, script.as_str())).collect();
    let providers = format!(
        "ai_providers:\n  claude:\n    cli_command: {}\n    cli_args: [script]\n    \
         pass_environment: [PASSED]\n    environment: {{ TOKEN_OF_AGENT: t0k3n }}\n",
        agent_fixture().display()
    );
    let mut hooked = Hooked::with(&providers, &hooks);
    hooked.bed.daemon.terminate();
    let mut command = hooked.bed.daemon.command();
    command.env("PASSED", "on").env("WITHHELD", "yes");
    hooked.bed.daemon.spawn_as(command);
    hooked.bed.daemon.until_ready();
    hooked.bed.daemon.task("tsk", "prj", "one");
    let kept = hooked.bed.until_kept("tsk");
    let tree = hooked.bed.tree("tsk");
    hooked.bed.daemon.done(&["task", "discard", "tsk"]);
    hooked.until_removed();

    let tree = tree.display();
    let expected = names.map(|name| format!("{name} {tree}\n")).concat();
    assert_eq!(hooked.read("order"), expected);
    for name in names {
        let environment = hooked.read(&format!("env.{name}"));
        let has = |line: &str| environment.lines().any(|other| other == line);
        for (variable, value) in [
            ("WORKSPACE_ID", &kept["id"]),
            ("WORKSPACE_BASE", &kept["base_commit"]),
            ("TASK_ID", &"tsk".into()),
            ("AGENT_ID", &"one".into()),
            ("PROJECT_ID", &"prj".into()),
            ("PASSED", &"on".into()),
        ] {
            let line = format!("{variable}={}", value.as_str().unwrap());
            assert!(has(&line), "{name} has no {line}: {environment}");
        }
        let has_name = |part: &str| {
            environment.lines().any(|line| line.split('=').next().unwrap().contains(part))
        };
        for part in ["WITHHELD", "TOKEN", "PASSKEY", "MCP", "TICKET"] {
            assert!(!has_name(part), "{name} has {part}: {environment}");
        }
    }
    let logged = hooked.bed.daemon.logged("hook ended");
    let said: Vec<_> = logged.iter().map(|line| line["output"].as_str().unwrap().trim()).collect();
    assert_eq!(said, names.map(|name| format!("said by {name}")));
    hooked.bed.daemon.until_nothing_is_left();
}

#[test]
fn a_failed_hook_after_the_creation_defers_the_start_and_the_clone_is_made_anew() {
    let script = "[ ! -e junk ] || touch BESIDE/not-anew; echo x >junk; echo no network; \
        [ -e BESIDE/go ] || exit 3; rm junk";
    let hooked = Hooked::new(&[("after_create", script)]);
    hooked.bed.daemon.task("tsk", "prj", "one");
    let expected = "hook_failed: after_create: exit code 3: no network";
    hooked.until_said(&[SHOW, &["workspace", "list"]], expected);
    hooked.until_said(&[WHY], "tries again: after_create: exit code 3: no network");
    hooked.until_said(&[&["status"]], "A hook failed, tries again");
    assert!(hooked.bed.daemon.ended("one").is_empty(), "no agent has started");
    hooked.write("go");
    let kept = hooked.bed.until_kept("tsk");
    assert_eq!(kept["content"]["n_uncommitted"], 0, "{kept}");
    assert!(!hooked.beside.join("not-anew").exists());
}

#[test]
fn a_failed_hook_before_a_launch_defers_the_start_until_it_passes() {
    let script = "echo ran >>BESIDE/runs; [ -e BESIDE/go ] || { echo no database; exit 1; }";
    let hooked = Hooked::new(&[("before_run", script)]);
    hooked.bed.daemon.task("tsk", "prj", "one");
    let expected = "hook_failed: before_run: exit code 1: no database";
    hooked.until_said(&[SHOW], expected);
    hooked.until_said(&[WHY], "no: hook_failed (before_run: exit code 1: no database)");
    hooked.until_said(&[WHY], "A hook failed, tries again: before_run: exit code 1: no database");
    hooked.until_said(&[&["status"]], "A hook failed, tries again");
    until("it is tried again", || hooked.read("runs").lines().count() > 1);
    assert!(hooked.bed.daemon.ended("one").is_empty(), "no agent has started");
    hooked.write("go");
    hooked.bed.until_kept("tsk");
    assert_eq!(hooked.shown()["reason"], Value::Null);
    // The next launch has a run of its own.
    let n_runs = hooked.read("runs").lines().count();
    for status in ["todo", "in_progress"] {
        hooked.bed.daemon.done(&["task", "set", "tsk", "--status", status]);
    }
    until("the agent works again", || hooked.bed.daemon.ended("one").len() == 2);
    assert_eq!(hooked.read("runs").lines().count(), n_runs + 1);
}

#[test]
fn a_clone_that_is_gone_is_broken_before_its_hook_runs_and_is_made_again() {
    let hooked = Hooked::new(&[("before_run", "[ -e BESIDE/go ]")]);
    hooked.bed.daemon.task("tsk", "prj", "one");
    hooked.until_said(&[WHY], "hook_failed");
    fs::remove_dir_all(hooked.bed.tree("tsk")).unwrap();
    until("the clone is broken", || hooked.shown()["state"] == "broken");
    let inbox = hooked.bed.daemon.json(&["inbox", "--kind", "workspace"]);
    assert_eq!(inbox.as_array().unwrap().len(), 1, "{inbox}");
    hooked.write("go");
    hooked.bed.daemon.done(&["workspace", "retry", "tsk"]);
    hooked.bed.until_kept("tsk");
    assert_eq!(hooked.bed.daemon.ended("one").len(), 1, "no launch failed");
}

#[test]
fn the_only_slot_waits_for_the_clone_of_the_urgent_task() {
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let slow = "[ $AGENT_ID != one ] || read line <BESIDE/gate";
    let more = "max_concurrent: 1\nstart: { clone_wait: 1h }\n";
    let settings = settings(folder.path(), more, &[("after_create", slow)]);
    let both: &[(&str, &[&str])] = &[("one", COMMITS), ("two", COMMITS)];
    let bed = Bed::configured(&settings, both).daemon_with_clones(both);
    let daemon = &bed.daemon;
    daemon.done(&["pause"]);
    for (task, agent, priority) in [("tsk_2", "two", "low"), ("tsk_1", "one", "urgent")] {
        let of = ["--project", "prj", "--assignee", agent, "--id", task, "--title", "a title"];
        let rest = ["--status", "in_progress", "--priority", priority];
        daemon.done(&[&["task", "add"], &of[..], &rest[..]].concat());
    }
    daemon.done(&["resume"]);
    let is_deferred = |agent: &str, reason: &str| {
        let status = daemon.status();
        let mut deferred = status["deferred"].as_array().unwrap().iter();
        deferred.any(|it| it["agent_id"] == agent && it["reason"] == reason)
    };
    until("the other clone is ready", || is_deferred("two", "no_free_slot"));
    assert!(is_deferred("one", "preparing_workspace"));
    assert!(daemon.open("two").is_empty() && daemon.ended("two").is_empty());
    // This waits until the hook reads.
    fs::write(&gate, "go\n").unwrap();
    until("both tasks are done", || {
        ["tsk_1", "tsk_2"].iter().all(|task| daemon.task_status(task) == "done")
    });
    until("both launches have ended", || daemon.status()["ended"].as_array().unwrap().len() == 2);
    let claimed = |agent: &str| daemon.ended(agent)[0]["claimed_at"].as_str().unwrap().to_owned();
    assert!(claimed("one") < claimed("two"), "the urgent task is first");
}

#[test]
fn a_clone_that_is_being_made_goes_after_its_task_was_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let slow = "pwd >BESIDE/tree; read line <BESIDE/gate";
    let last = "echo ran >>BESIDE/removed";
    let hooks = [("after_create", slow), ("before_remove", last)];
    let settings = settings(folder.path(), "", &hooks);
    let bed = Bed::configured(&settings, AGENT).daemon_with_clones(AGENT);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    let tree = until_some("the hook runs", || {
        let said = fs::read_to_string(folder.path().join("tree")).ok()?;
        said.strip_suffix('\n').map(PathBuf::from)
    });
    daemon.done(&["task", "set", "tsk", "--status", "cancelled"]);
    daemon.done(&["task", "delete", "tsk", "--yes"]);
    assert!(tree.is_dir(), "the hook is in it");
    // This waits until the hook reads.
    fs::write(&gate, "go\n").unwrap();
    until("its files are gone", || !tree.parent().unwrap().exists());
    assert_eq!(fs::read_to_string(folder.path().join("removed")).unwrap(), "ran\n");
    assert!(daemon.ended("one").is_empty());
}

#[test]
fn a_hook_that_is_no_longer_configured_delays_nothing() {
    let hooked = Hooked::new(&[("before_run", "exit 1")]);
    hooked.bed.daemon.task("tsk", "prj", "one");
    hooked.until_said(&[WHY], "hook_failed");
    hooked.bed.daemon.configure(&settings(&hooked.beside, "", &[]));
    hooked.bed.daemon.done(&["reload"]);
    hooked.bed.until_kept("tsk");
}

#[test]
fn a_failed_hook_after_a_launch_is_recorded_and_the_work_is_kept() {
    let script = "echo ran >>BESIDE/runs; echo left >left.txt; echo could not stop it; exit 4";
    let hooked = Hooked::new(&[("after_run", script)]);
    hooked.bed.daemon.task("tsk", "prj", "one");
    let kept = hooked.bed.until_kept("tsk");
    hooked.until_said(&[SHOW], "hook_failed: after_run: exit code 4: could not stop it");
    assert_eq!(hooked.bed.daemon.task_status("tsk"), "done");
    assert_eq!(kept["content"]["n_uncommitted"], 1, "what it wrote is kept: {kept}");
    assert_eq!(hooked.read("runs"), "ran\n");
    hooked.bed.daemon.done(&["task", "discard", "tsk"]);
    hooked.until_removed();
}

#[test]
fn a_hook_that_hangs_forks_and_prints_without_end_is_ended_and_the_clone_stays() {
    let script = "trap '' TERM; echo $$ >>BESIDE/pids; \
        setsid sh -c 'trap \"\" TERM; echo $$ >>BESIDE/pids; while :; do sleep 1000; done' & \
        yes";
    let hooked = Hooked::with("", &[("before_remove", script)]);
    let limited = |hooks: &[(&str, &str)]| {
        let settings = settings(&hooked.beside, "", hooks);
        hooked.bed.daemon.configure(&settings.replace("timeout: 1h", "timeout: 1s"));
        hooked.bed.daemon.done(&["reload"]);
    };
    limited(&[("before_remove", script)]);
    hooked.bed.daemon.task("tsk", "prj", "one");
    hooked.bed.until_kept("tsk");
    let tree = hooked.bed.tree("tsk");
    hooked.bed.daemon.done(&["task", "discard", "tsk"]);
    hooked.until_said(&[SHOW], "hook_failed: before_remove: it did not end within 1 s");
    assert!(tree.join("one.txt").exists());
    limited(&[]);
    hooked.until_removed();
    let pids: Vec<i32> = hooked.read("pids").lines().map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.len() >= 2, "{pids:?}");
    assert!(pids.into_iter().all(is_gone), "no process of it is left");
    hooked.bed.daemon.until_nothing_is_left();
    let folder = hooked.bed.daemon.state().join("hooks/ended");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0, "no output of it is left");
}

#[test]
fn hooks_before_removals_keep_no_other_clone_from_being_made() {
    let hooked = Hooked::new(&[(
        "before_remove",
        "echo $$ >>BESIDE/pids; while [ ! -e BESIDE/go ]; do sleep 0.1; done",
    )]);
    let daemon = &hooked.bed.daemon;
    let tasks = ["tsk_1", "tsk_2", "tsk_3", "tsk_4", "tsk_5"];
    for task in tasks {
        daemon.task(task, "prj", "one");
        hooked.bed.until_kept(task);
    }
    for task in tasks {
        daemon.done(&["task", "discard", task]);
    }
    until("all hooks run at once", || hooked.read("pids").lines().count() == tasks.len());
    daemon.task("tsk", "prj", "one");
    hooked.bed.until_kept("tsk");
    hooked.write("go");
    until("the files are removed", || {
        let state = |task: &&str| daemon.json(&["workspace", "show", task])["state"].clone();
        tasks.iter().all(|task| state(task) == "removed")
    });
}

#[test]
fn a_failed_hook_before_the_removal_delays_no_later_launch() {
    let hooks: &[(&str, &str)] = &[("before_remove", "exit 3")];
    let hooked = Hooked::new(hooks);
    let daemon = &hooked.bed.daemon;
    let slow = settings(&hooked.beside, "", hooks).replace("50ms, max: 50ms", "1h, max: 1h");
    daemon.configure(&slow);
    daemon.done(&["reload"]);
    daemon.task("tsk", "prj", "one");
    hooked.bed.until_kept("tsk");
    daemon.done(&["task", "discard", "tsk"]);
    hooked.until_said(&[SHOW], "hook_failed: before_remove: ");
    for status in ["todo", "in_progress"] {
        daemon.done(&["task", "set", "tsk", "--status", status]);
    }
    until("the agent worked again", || hooked.shown()["content"]["n_commits"] == 2);
}

/// A hook that hangs in its first run.
const HANGS_ONCE: &str = "[ ! -e BESIDE/first ] || exit 0; echo $$ >BESIDE/first; \
    while :; do sleep 1000; done";

#[test]
fn a_daemon_that_follows_a_killed_one_ends_its_hook_and_runs_it_again() {
    for hook in ["after_create", "before_run", "after_run"] {
        let mut hooked = Hooked::new(&[(hook, HANGS_ONCE)]);
        hooked.bed.daemon.task("tsk", "prj", "one");
        let pid = hooked.pid("first");
        hooked.bed.daemon.kill();
        hooked.bed.daemon.start();
        hooked.bed.until_kept("tsk");
        assert!(is_gone(pid), "{hook}: the hook of the killed daemon was ended");
        hooked.bed.daemon.until_nothing_is_left();
    }
}

#[test]
fn a_daemon_that_is_stopped_ends_its_hook() {
    let mut hooked = Hooked::new(&[("before_run", HANGS_ONCE)]);
    hooked.bed.daemon.task("tsk", "prj", "one");
    let pid = hooked.pid("first");
    hooked.bed.daemon.terminate();
    assert!(is_gone(pid));
}

#[test]
fn a_hook_whose_shim_is_killed_has_failed_and_is_run_again() {
    let hooked = Hooked::new(&[("before_run", HANGS_ONCE)]);
    hooked.bed.daemon.task("tsk", "prj", "one");
    let pid = hooked.pid("first");
    kill(processes::read(pid).unwrap().parent, Signal::KILL);
    hooked.bed.until_kept("tsk");
    assert!(is_gone(pid));
    let failed = hooked.bed.daemon.logged("hook failed");
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0]["reason"], "its end was not seen");
}

#[test]
fn a_daemon_that_dies_after_a_hook_passed_lets_the_next_one_run_it_again() {
    let script = "echo ran >>BESIDE/runs; [ ! -e mark ] || touch BESIDE/not-anew; echo x >mark";
    for (hook, n_runs) in [("after_create", 2), ("before_run", 2), ("after_run", 2)] {
        let mut hooked = Hooked::new(&[(hook, script)]);
        hooked.bed.daemon.terminate();
        let mut command = hooked.bed.daemon.command();
        command.env(VARIABLE, "HookPassed");
        hooked.bed.daemon.spawn_as(command);
        hooked.bed.daemon.until_ready();
        hooked.bed.daemon.try_task("tsk", "prj", "one");
        let ended = hooked.bed.daemon.wait();
        assert_eq!(ended.signal(), Some(Signal::KILL.as_raw()), "{hook}");
        hooked.bed.daemon.start();
        hooked.bed.until_kept("tsk");
        assert_eq!(hooked.read("runs").lines().count(), n_runs, "{hook}");
        let is_anew = !hooked.beside.join("not-anew").exists();
        assert_eq!(is_anew, hook == "after_create", "only a new clone is made anew");
        hooked.bed.daemon.until_nothing_is_left();
    }
}

#[test]
fn hooks_that_are_not_valid_are_refused_with_their_key() {
    for (hooks, expected) in [
        ("after_create: make", "workspace.hooks.after_create"),
        ("before_run: []", "`workspace.hooks.before_run` is not valid: it has no program"),
        ("after_run: ['']", "workspace.hooks.after_run"),
        ("timeout: 0s", "workspace.hooks.timeout"),
        ("timeout: 2h", "workspace.hooks.timeout"),
        ("before_removal: [make]", "before_remov"),
    ] {
        let mut daemon = Daemon::configured(&format!("workspace: {{ hooks: {{ {hooks} }} }}"));
        let (code, told) = daemon.refused();
        assert_eq!(code, Some(78), "{hooks}: {told}");
        assert!(told.contains(expected), "{hooks}: {told}");
    }
}

#[test]
fn a_wrapper_gets_the_clone_and_the_repository_that_it_borrows_from() {
    let script = "echo \"$1|$2\" >>BESIDE/folders; shift 2; exec \"$@\"";
    let folder = tempfile::tempdir().unwrap();
    let script = script.replace("BESIDE", folder.path().to_str().unwrap());
    let wrap = serde_json::json!(["sh", "-c", script, "sh", "{workspace}", "{keep}"]);
    let providers = format!(
        "ai_providers:\n  claude:\n    cli_command: {}\n    cli_args: [script]\n    wrap: {wrap}\n",
        agent_fixture().display()
    );
    let hooked = Hooked::with(&providers, &[("before_run", "true")]);
    hooked.bed.daemon.task("tsk", "prj", "one");
    hooked.bed.until_kept("tsk");
    let tree = hooked.bed.tree("tsk");
    let keep = hooked.bed.daemon.state().join("workspaces/prj/keep.git");
    let line = format!("{}|{}\n", tree.display(), keep.display());
    let written = fs::read_to_string(folder.path().join("folders")).unwrap();
    assert_eq!(written, line.repeat(2), "the hook and the agent are started by it");
}
