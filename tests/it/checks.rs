//! Checks with the real binary: commands of the operator that a task must pass.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::os::unix::process::ExitStatusExt as _;

use machine::crash_point::{CrashPoint, VARIABLE};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{git, until, until_some};
use crate::workspaces::Bed;

/// The steps of an agent that commits one line more and reports success.
const TRIES: &[&str] = &[
    "authenticate",
    "get-my-task",
    "run:echo try >>tries.txt",
    "run:git add tries.txt && git commit -qm try",
    "report:success",
];

/// Returns a daemon whose tasks must pass `checks`, with one agent and one task in progress.
fn bed(checks: &str, steps: &[&str]) -> Bed {
    let settings = format!("backoff: {{ initial: 10ms, max: 10ms }}\n{checks}");
    let agents: &[(&str, &[&str])] = &[("one", steps)];
    let bed = Bed::configured(&settings, agents).daemon_with_clones(agents);
    bed.daemon.task("tsk", "prj", "one");
    bed
}

/// Returns such a daemon whose project has a script of its own, `ci/test.sh`.
fn bed_with_script(checks: &str, steps: &[&str]) -> Bed {
    let settings = format!("backoff: {{ initial: 10ms, max: 10ms }}\n{checks}");
    let agents: &[(&str, &[&str])] = &[("one", steps)];
    let bed = Bed::configured(&settings, agents);
    let work = bed.daemon.work();
    fs::create_dir(work.join("ci")).unwrap();
    let script = "echo the operator\u{2019}s script; grep -q good common.txt\n";
    fs::write(work.join("ci/test.sh"), script).unwrap();
    git(&work, &["add", "."]);
    git(&work, &["commit", "-qm", "a script"]);
    let bed = bed.daemon_with_clones(agents);
    bed.daemon.task("tsk", "prj", "one");
    bed
}

/// Returns the names of the fresh clones of checks that are there.
fn fresh_clones(bed: &Bed) -> Vec<String> {
    let entries = fs::read_dir(bed.daemon.state().join("workspaces/prj")).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| name.contains("check")).collect()
}

fn shown(bed: &Bed) -> Value {
    bed.daemon.json(&["task", "show", "tsk"])
}

#[track_caller]
fn until_status(bed: &Bed, status: &str) -> Value {
    until_some(&format!("the task is {status}"), || {
        Some(shown(bed)).filter(|task| task["status"] == status)
    })
}

/// Returns round, result and exit code of each check.
fn results(task: &Value) -> Vec<(u64, String, Option<i64>)> {
    let checks = task["checks"].as_array().cloned().unwrap_or_default();
    let result = |check: &Value| {
        let word = check["result"].as_str().unwrap().to_owned();
        (check["round"].as_u64().unwrap(), word, check["exit_code"].as_i64())
    };
    checks.iter().map(result).collect()
}

#[test]
fn a_task_is_done_after_its_checks_passed_one_after_the_other() {
    let checks = r#"
checks:
  tests: { command: [sh, -c, "echo tested >>../order; git status --porcelain; grep -q try tries.txt"] }
  lint: { command: [sh, -c, "echo linted >>../order"] }
  other: { command: ["false"], projects: [prj_other] }"#;
    let bed = bed(checks, TRIES);
    let task = until_status(&bed, "done");
    let passed = || (1, "passed".to_owned(), Some(0));
    assert_eq!(results(&task), [passed(), passed()], "{task}");
    let check = &task["checks"][0];
    assert_eq!((&check["name"], check["output"].as_str().unwrap_or("")), (&json!("tests"), ""));
    assert_eq!(check["commit"].as_str().map(str::len), Some(40), "{check}");
    let order = fs::read_to_string(bed.tree("tsk").parent().unwrap().join("order")).unwrap();
    assert_eq!(order, "tested\nlinted\n");
    let told = bed.daemon.done(&["task", "show", "tsk"]);
    assert!(told.contains("passed"), "{told}");
}

#[test]
fn an_agent_works_again_with_the_evidence_until_the_check_passes() {
    let checks = r#"
checks:
  tests: { command: [sh, -c, "echo a test failed; [ $(wc -l <tries.txt) -ge 3 ]"] }"#;
    let bed = bed(checks, TRIES);
    let task = until_status(&bed, "done");
    let failed = |round| (round, "failed".to_owned(), Some(1));
    assert_eq!(results(&task), [failed(1), failed(2), (3, "passed".to_owned(), Some(0))]);
    assert_eq!(task["executions"].as_array().map(Vec::len), Some(3), "{task}");
    let answers = bed.daemon.done(&["logs", "one", "prj"]);
    assert!(answers.contains("a test failed"), "the agent sees the evidence: {answers}");
}

#[test]
fn a_task_whose_checks_fail_in_every_round_is_blocked_with_the_evidence() {
    let checks = r#"
checks_rounds: 1
checks:
  tests: { command: [sh, -c, "echo it is broken; exit 3"] }"#;
    let bed = bed(checks, TRIES);
    let task = until_status(&bed, "blocked");
    assert_eq!(task["blocked_reason"], "checks_failed: tests (exit 3)");
    let failed = |round| (round, "failed".to_owned(), Some(3));
    assert_eq!(results(&task), [failed(1), failed(2)]);
    let told = bed.daemon.done(&["task", "show", "tsk"]);
    assert!(told.contains("output of tests:\n  it is broken"), "{told}");
}

#[test]
fn uncommitted_files_fail_without_a_run() {
    let steps: &[&str] =
        &["authenticate", "get-my-task", "run:echo half >half.txt", "report:success"];
    let bed = bed("checks_rounds: 0\nchecks: { tests: { command: [touch, ran] } }", steps);
    let task = until_status(&bed, "blocked");
    assert_eq!(task["blocked_reason"], "checks_failed: uncommitted files");
    assert_eq!(results(&task), [(1, "failed".to_owned(), None)]);
    assert!(!bed.tree("tsk").join("ran").exists());
}

#[test]
fn a_check_runs_on_the_result_also_if_the_agent_left_it_elsewhere() {
    let steps: &[&str] = &[
        "authenticate",
        "get-my-task",
        "run:git checkout -qb feature; echo try >tries.txt; git add tries.txt; git commit -qm try",
        "run:git checkout -q agents/prj-1",
        "report:success",
    ];
    let bed = bed("checks: { tests: { command: [cat, tries.txt] } }", steps);
    let task = until_status(&bed, "done");
    assert_eq!(results(&task), [(1, "passed".to_owned(), Some(0))], "{task}");
    let result = git(&bed.tree("tsk"), &["rev-parse", "feature"]);
    assert_eq!(task["checks"][0]["commit"].as_str(), Some(result.trim()));
    assert!(!bed.tree("tsk").join("tries.txt").exists());
}

#[test]
fn work_on_several_branches_fails_until_the_agent_decides() {
    let steps: &[&str] = &[
        "authenticate",
        "get-my-task",
        "run:[ -e .git/refs/heads/x ] && git checkout -q x && touch ../decided; true",
        "run:[ -e ../decided ] || for b in x y; do git checkout -qb $b agents/prj-1; \
         echo $b >$b.txt; git add $b.txt; git commit -qm $b; done",
        "run:[ -e ../decided ] || git checkout -q agents/prj-1",
        "report:success",
    ];
    let bed = bed("checks: { tests: { command: [cat, x.txt] } }", steps);
    let task = until_status(&bed, "done");
    assert_eq!(
        results(&task),
        [(1, "failed".to_owned(), None), (2, "passed".to_owned(), Some(0))],
        "{task}"
    );
    assert_eq!(task["checks"][0]["name"], "several results");
    let evidence = task["checks"][0]["output"].as_str().unwrap_or_default();
    assert!(evidence.contains("`x` (1 commit), `y` (1 commit)"), "{task}");
}

#[test]
fn a_check_outlives_the_daemon_and_runs_once() {
    let checks = r#"
checks:
  tests: { command: [sh, -c, "echo ran >>../runs; until [ -e ../go ]; do sleep 0.1; done"] }"#;
    let mut bed = bed(checks, TRIES);
    let beside = until_some("the check runs", || {
        let tree = bed.daemon.cli(&["workspace", "path", "tsk"]).stdout;
        let beside = std::path::Path::new(tree.trim()).parent()?.to_owned();
        beside.join("runs").exists().then_some(beside)
    });
    assert!(shown(&bed)["checking_since"].is_string());
    bed.daemon.kill();
    bed.daemon.start();
    fs::write(beside.join("go"), "").unwrap();
    let task = until_status(&bed, "done");
    assert_eq!(results(&task), [(1, "passed".to_owned(), Some(0))]);
    assert_eq!(fs::read_to_string(beside.join("runs")).unwrap(), "ran\n");
    bed.daemon.until_nothing_is_left();
}

#[test]
fn a_check_that_takes_too_long_is_no_verdict_and_costs_no_round() {
    let checks = r#"
checks_rounds: 0
checks:
  tests: { timeout: 1s, command: [sh, -c, "[ -e ../again ] || { touch ../again; sleep 1000; }"] }"#;
    let bed = bed(checks, TRIES);
    let task = until_status(&bed, "done");
    let expected = [(1, "not_run".to_owned(), None), (1, "passed".to_owned(), Some(0))];
    let found: Vec<_> = results(&task)
        .into_iter()
        .map(|(round, word, exit)| {
            let exit = exit.filter(|_| word == "passed");
            (round, word, exit)
        })
        .collect();
    assert_eq!(found, expected, "{task}");
}

#[test]
fn a_person_overrides_the_checks() {
    let bed = bed("checks: { tests: { command: [sleep, \"1000\"] } }", TRIES);
    until("the check runs", || {
        let status = bed.daemon.status();
        let mut instances = status["instances"].as_array().unwrap().iter();
        instances.any(|launch| launch["purpose"] == "check" && launch["pid"].is_i64())
    });
    bed.daemon.done(&["task", "set", "tsk", "--status", "done"]);
    bed.daemon.done(&["stop", "one", "prj"]);
    until("the check has ended", || results(&shown(&bed)) == [(1, "not_run".to_owned(), None)]);
    assert_eq!(bed.daemon.task_status("tsk"), "done");
}

#[test]
fn an_agent_that_sets_its_task_done_does_not_bypass_the_checks() {
    let steps: &[&str] = &[
        "authenticate",
        "get-my-task",
        "call:update_task_status {\"task_id\": \"tsk\", \"status\": \"todo\"}",
        "run:call update_task_status '{\"task_id\": \"tsk\", \"status\": \"done\"}' >>../next 2>&1 || true",
        "call:update_task_status {\"task_id\": \"tsk\", \"status\": \"in_progress\"}",
        "call:update_task_status {\"task_id\": \"tsk\", \"status\": \"done\"}",
        "run:call get_next_action >>../next",
        "report:success",
    ];
    let bed = bed("checks_rounds: 0\nchecks: { tests: { command: ['false'] } }", steps);
    let task = until_status(&bed, "blocked");
    assert_eq!(results(&task), [(1, "failed".to_owned(), Some(1))]);
    let next = fs::read_to_string(bed.tree("tsk").parent().unwrap().join("next")).unwrap();
    assert!(next.contains("has checks to pass"), "{next}");
    assert!(next.contains("report_completed"), "{next}");
}

#[test]
fn a_check_may_take_longer_than_a_start_and_leave_files_behind() {
    let checks = r#"
start: { timeout: 2s }
checks:
  slow: { command: [sh, -c, "echo report >left.txt; sleep 4"], timeout: 1min }
  then: { command: [test, -e, left.txt] }"#;
    let bed = bed(checks, TRIES);
    let task = until_status(&bed, "done");
    let passed = || (1, "passed".to_owned(), Some(0));
    assert_eq!(results(&task), [passed(), passed()], "{task}");
}

#[test]
fn a_clean_check_sees_the_commit_and_nothing_else() {
    let checks = r#"
checks:
  tests:
    clean: true
    command:
      - sh
      - -c
      - "pwd; git log -1 --format=%H; ls -A; mkdir -m 0500 closed; echo new >>tries.txt"
"#;
    let steps: &[&str] = &[
        "authenticate",
        "get-my-task",
        "run:echo ignored.txt >.gitignore; echo stale >ignored.txt; echo try >>tries.txt",
        "run:git add . && git commit -qm try",
        "report:success",
    ];
    let bed = bed(checks, steps);
    let task = until_status(&bed, "done");
    assert_eq!(results(&task), [(1, "passed".to_owned(), Some(0))], "{task}");
    let check = &task["checks"][0];
    let commit = git(&bed.tree("tsk"), &["rev-parse", "HEAD"]);
    assert_eq!(check["commit"].as_str(), Some(commit.trim()));
    let output = check["output"].as_str().unwrap_or_default();
    assert!(output.contains(commit.trim()), "{output}");
    assert!(output.contains("tries.txt") && !output.contains("ignored.txt"), "{output}");
    assert!(!output.contains(bed.tree("tsk").to_str().unwrap()), "{output}");
    assert_eq!(fs::read_to_string(bed.tree("tsk").join("tries.txt")).unwrap(), "try\n");
    until("the fresh clone is gone", || fresh_clones(&bed).is_empty());
}

#[test]
fn protected_paths_have_the_version_of_the_base_and_the_agent_keeps_its_own() {
    let checks = r"
checks_rounds: 0
checks:
  tests: { protected: ['ci/**'], command: [sh, ci/test.sh] }";
    let edits: &[&str] = &[
        "run:echo exit 0 >ci/test.sh",
        "run:rm -r ci",
        "run:rm -r ci; mkdir mine; echo exit 0 >mine/test.sh; ln -s mine ci",
    ];
    for edit in edits {
        let last = ["run:git add -A && git commit -qm cheat", "report:success"];
        let steps: Vec<&str> =
            ["authenticate", "get-my-task", edit].into_iter().chain(last).collect();
        let bed = bed_with_script(checks, &steps);
        let task = until_status(&bed, "blocked");
        assert_eq!(results(&task), [(1, "failed".to_owned(), Some(1))], "{edit}: {task}");
        let told = bed.daemon.done(&["task", "show", "tsk"]);
        assert!(told.contains("the operator\u{2019}s script"), "{edit}: {told}");
        let script = fs::read_to_string(bed.tree("tsk").join("ci/test.sh")).unwrap_or_default();
        assert!(!script.contains("operator"), "the agent keeps its version: {script}");
        until("the fresh clone is gone", || fresh_clones(&bed).is_empty());
    }
}

#[test]
fn work_beside_the_protected_paths_passes() {
    let checks = r#"
checks:
  tests: { protected: ['ci/**'], command: [sh, -c, "sh ci/test.sh && [ ! -e ci/more.sh ]"] }"#;
    let steps: &[&str] = &[
        "authenticate",
        "get-my-task",
        "run:echo good >>common.txt; echo more >ci/more.sh",
        "run:git add -A && git commit -qm good",
        "report:success",
    ];
    let bed = bed_with_script(checks, steps);
    let task = until_status(&bed, "done");
    assert_eq!(results(&task), [(1, "passed".to_owned(), Some(0))], "{task}");
    assert!(bed.tree("tsk").join("ci/more.sh").exists());
}

#[test]
fn a_check_that_changes_the_files_of_the_commit_fails() {
    let cases = [
        ("echo more >>tries.txt", "The check changed 1 file of the commit."),
        ("rm tries.txt", "The check changed 1 file of the commit."),
        ("git commit -q --allow-empty -m mine", "The check moved the branch from "),
        ("git reset -q --hard HEAD~1", "The check moved the branch from "),
    ];
    for (command, why) in cases {
        let tests = format!("{{ command: [sh, -c, \"echo ran; {command}\"] }}");
        let checks = format!("checks_rounds: 0\nchecks: {{ tests: {tests} }}");
        let bed = bed(&checks, TRIES);
        let task = until_status(&bed, "blocked");
        let reason = "checks_failed: tests (it changed the files of the commit)";
        assert_eq!(task["blocked_reason"], reason, "{command}");
        assert_eq!(results(&task), [(1, "failed".to_owned(), Some(0))], "{command}");
        let told = bed.daemon.done(&["task", "show", "tsk"]);
        assert!(told.contains("ran\n") && told.contains(why), "{command}: {told}");
    }
}

#[test]
fn a_clean_check_outlives_the_daemon_and_its_clone_goes_afterwards() {
    let checks = r#"
checks:
  tests:
    clean: true
    command:
      - sh
      - -c
      - "echo ran >>../../runs; until [ -e ../../go ]; do sleep 0.1; done; ls tries.txt"
"#;
    let mut bed = bed(checks, TRIES);
    let project = until_some("the check runs", || {
        let tree = bed.daemon.cli(&["workspace", "path", "tsk"]).stdout;
        let project = std::path::Path::new(tree.trim()).parent()?.parent()?.to_owned();
        project.join("runs").exists().then_some(project)
    });
    bed.daemon.kill();
    assert_eq!(fresh_clones(&bed).len(), 1);
    bed.daemon.start();
    fs::write(project.join("go"), "").unwrap();
    let task = until_status(&bed, "done");
    assert_eq!(results(&task), [(1, "passed".to_owned(), Some(0))]);
    assert_eq!(fs::read_to_string(project.join("runs")).unwrap(), "ran\n");
    until("the fresh clone is gone", || fresh_clones(&bed).is_empty());
    bed.daemon.until_nothing_is_left();
}

#[test]
fn an_agent_does_not_set_another_task_done_that_has_checks() {
    let steps: &[&str] = &[
        "authenticate",
        "get-my-task",
        "wait-for:../go",
        r#"run:call update_task_status '{"task_id": "other", "status": "done"}' >../answer || true"#,
        "run:echo try >>tries.txt; git add tries.txt && git commit -qm try",
        "report:success",
    ];
    let bed = bed("checks: { tests: { command: ['true'] } }", steps);
    let beside = until_some("the agent works", || {
        let tree = bed.daemon.cli(&["workspace", "path", "tsk"]).stdout;
        let beside = std::path::Path::new(tree.trim()).parent()?.to_owned();
        beside.is_dir().then_some(beside)
    });
    let other = ["--id", "other", "--project", "prj", "--assignee", "one", "--title", "Other"];
    bed.daemon.done(&[&["task", "add"], &other[..]].concat());
    fs::write(beside.join("go"), "").unwrap();
    until_status(&bed, "done");
    let answer = fs::read_to_string(beside.join("answer")).unwrap();
    assert!(answer.contains("checks_pending"), "{answer}");
    assert_ne!(bed.daemon.task_status("other"), "done");
}

#[test]
fn a_daemon_that_dies_while_it_makes_a_fresh_clone_makes_it_anew() {
    let steps: &[&str] = &[
        "authenticate",
        "get-my-task",
        "wait-for:../go",
        "run:echo try >>tries.txt; git add tries.txt && git commit -qm try",
        "report:success",
    ];
    let checks = "checks: { tests: { clean: true, command: [sh, -c, 'echo ran >>../../runs'] } }";
    for point in
        [CrashPoint::WorkspaceBegun, CrashPoint::WorkspaceCheckedOut, CrashPoint::WorkspaceMade]
    {
        let mut bed = bed(checks, steps);
        bed.daemon.until_in_state("one", "running");
        let beside = bed.tree("tsk").parent().unwrap().to_owned();
        bed.daemon.kill();
        let mut command = bed.daemon.command();
        command.env(VARIABLE, format!("{point:?}"));
        bed.daemon.spawn_as(command);
        bed.daemon.until_ready();
        fs::write(beside.join("go"), "").unwrap();
        assert_eq!(bed.daemon.wait().signal(), Some(Signal::KILL.as_raw()), "{point:?}");
        bed.daemon.start();
        let task = until_status(&bed, "done");
        assert_eq!(results(&task), [(1, "passed".to_owned(), Some(0))], "{point:?}");
        let runs = beside.parent().unwrap().join("runs");
        assert_eq!(fs::read_to_string(runs).unwrap(), "ran\n", "{point:?}");
        until("the fresh clone is gone", || fresh_clones(&bed).is_empty());
    }
}
