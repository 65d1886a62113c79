//! The results of tasks with the real binary: restore, merge by a rebase, let the agent resolve a
//! conflict, and discard for ever.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::{git, until};
use crate::workspaces::{Bed, COMMITS};

impl Bed {
    pub(super) fn until_state(&self, task: &str, state: &str) -> Value {
        let mut last = Value::Null;
        until(&format!("the clone of {task} is {state}"), || {
            last = self.daemon.json(&["workspace", "show", task]);
            last["state"] == state
        });
        last
    }
}

impl Bed {
    /// Replaces the steps of an agent in the clone of a task, where its next launch reads them.
    pub(super) fn steps_in_clone(&self, task: &str, agent: &str, steps: &[&str]) {
        fs::write(self.tree(task).join(format!("{agent}.steps")), steps.join("\n") + "\n").unwrap();
    }
}

/// The steps of an agent that leaves a commit, a staged file and an ignored one.
const LEAVES: &[&str] = &[
    "authenticate",
    "get-my-task",
    "run:echo '*.log' >.gitignore; git add .gitignore; git commit -qm ignore",
    "run:echo done >done.txt; git add done.txt; git commit -qm work",
    "run:echo open >open.txt; echo secret >secret.log; git rm -q common.txt",
    "report:success",
];

#[test]
fn a_removed_clone_comes_back_with_all_its_files() {
    let bed = Bed::new(&[("one", LEAVES)]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    let before = bed.until_kept("tsk");
    let to = daemon.folder().join("a/copy");
    daemon.done(&["task", "discard", "PRJ-1"]);
    bed.until_state("tsk", "removed");
    assert!(!daemon.cli(&["workspace", "path", "tsk"]).stderr.is_empty());
    // The files without a clone.
    let said = daemon.done(&["task", "restore", "PRJ-1", "--to", to.to_str().unwrap()]);
    assert_eq!(said.trim(), to.to_str().unwrap());
    assert_eq!(fs::read_to_string(to.join("secret.log")).unwrap(), "secret\n");
    let again = daemon.cli(&["task", "restore", "PRJ-1", "--to", to.to_str().unwrap()]);
    assert!(again.stderr.contains("is not a new or an empty folder"), "{}", again.stderr);
    assert_eq!(daemon.json(&["workspace", "show", "tsk"])["state"], "removed");
    // The clone, although the task is done.
    let said = daemon.done(&["task", "restore", "PRJ-1"]);
    assert!(said.contains("is being made"), "{said}");
    let after = bed.until_state("tsk", "ready");
    assert_eq!(daemon.task_status("tsk"), "done");
    assert_eq!(after["discarded_at"], Value::Null);
    for fact in ["branch", "base", "base_commit"] {
        assert_eq!(after[fact], before[fact], "{fact}");
    }
    let tree = bed.tree("tsk");
    for (name, content) in
        [("done.txt", "done\n"), ("open.txt", "open\n"), ("secret.log", "secret\n")]
    {
        assert_eq!(fs::read_to_string(tree.join(name)).unwrap(), content, "{name}");
    }
    assert!(!tree.join("common.txt").exists());
    assert_eq!(git(&tree, &["log", "--format=%s"]), "work\nignore\nfirst");
    let diff = daemon.done(&["task", "diff", "tsk"]);
    assert!(diff.contains("+++ b/done.txt"), "{diff}");
    // Asked again, it stays as it is.
    let said = daemon.done(&["task", "restore", "PRJ-1"]);
    assert!(said.contains("it is ready"), "{said}");
    let audited = daemon.logged("done by a person");
    assert!(audited.iter().any(|line| {
        line["what"] == "workspace" && line["after"].to_string().contains("wanted")
    }));
    daemon.done(&["task", "merge", "tsk", "--with-uncommitted"]);
    assert_eq!(bed.read("open.txt"), "open\n");
    // Its files were kept anew, so that they stay until a person gives them up.
    daemon.done(&["task", "discard", "tsk"]);
    bed.until_state("tsk", "removed");
}

#[test]
fn what_was_never_kept_cannot_be_restored() {
    let waits: &[&str] = &["authenticate", "get-my-task", "wait-for:go", "report:success"];
    let bed = Bed::new(&[("one", waits)]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    daemon.until_in_state("one", "running");
    let to = daemon.folder().join("copy");
    let refused = daemon.cli(&["task", "restore", "tsk", "--to", to.to_str().unwrap()]);
    assert!(refused.stderr.contains("nothing of it was kept yet"), "{}", refused.stderr);
    assert!(!to.exists());
    let said = daemon.done(&["task", "restore", "tsk"]);
    assert!(said.contains("it is in_use"), "{said}");
    fs::write(bed.tree("tsk").join("go"), "").unwrap();
    daemon.until_ended("one");
}

#[test]
fn a_clone_that_was_deleted_by_hand_is_made_again_from_the_kept_state() {
    let steps: &[&str] = &[
        "authenticate",
        "get-my-task",
        "run:if [ -e done.txt ]; then ls >../seen; fi",
        "run:[ -e ../seen ] || { echo open >open.txt; echo >done.txt; git add done.txt; }",
        "run:[ -e ../seen ] || git commit -qm work",
        "report:blocked",
    ];
    let agents: &[(&str, &[&str])] = &[("one", steps)];
    let settings = "backoff: { initial: 10ms, max: 10ms }\nworkspace: { keep: off }";
    let bed = Bed::configured(settings, agents).daemon_with_clones(agents);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    bed.until_kept("tsk");
    let tree = bed.tree("tsk");
    fs::remove_dir_all(&tree).unwrap();
    daemon.done(&["task", "set", "tsk", "--status", "todo"]);
    daemon.done(&["task", "set", "tsk", "--status", "in_progress"]);
    let broken = bed.until_state("tsk", "broken");
    assert!(broken["reason"].as_str().unwrap().contains("are gone"), "{broken}");
    daemon.done(&["workspace", "retry", "tsk"]);
    let seen = tree.parent().unwrap().join("seen");
    until("the agent has worked on what was kept", || {
        seen.exists() && daemon.task_status("tsk") == "blocked"
    });
    let seen = fs::read_to_string(seen).unwrap();
    assert!(seen.contains("done.txt") && seen.contains("open.txt"), "{seen}");
    let after = bed.until_state("tsk", "ready");
    assert_eq!(after["content"]["n_commits"], 1);
}

#[test]
fn a_rebase_replays_each_commit_with_its_author() {
    let steps: &[&str] = &[
        "authenticate",
        "get-my-task",
        "run:echo 1 >one.txt; git add one.txt; git commit -qm 'one: add' -m 'the reason'",
        "run:echo 2 >two.txt; git add two.txt; git commit -qm 'two: add'",
        "run:echo 3 >left.txt",
        "report:success",
    ];
    let bed = Bed::new(&[("one", steps)]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    bed.until_kept("tsk");
    fs::write(daemon.work().join("mine.txt"), "mine\n").unwrap();
    git(&daemon.work(), &["add", "mine.txt"]);
    git(&daemon.work(), &["commit", "-qm", "mine"]);
    let both = daemon.cli(&["task", "merge", "tsk", "--rebase", "--squash"]);
    assert!(both.code != 0 && both.stderr.contains("--squash"), "{}", both.stderr);
    daemon.done(&["task", "merge", "tsk", "--rebase", "--with-uncommitted"]);
    let log = git(&daemon.work(), &["log", "--reverse", "--format=%an|%s|%P"]);
    let lines: Vec<&str> = log.lines().collect();
    let titles: Vec<&str> = lines.iter().map(|line| line.split('|').nth(1).unwrap()).collect();
    assert_eq!(titles, ["first", "mine", "one: add", "two: add", "left uncommitted by one"]);
    assert!(lines[2..].iter().all(|line| line.starts_with("one|")), "{log}");
    assert!(lines.iter().all(|line| !line.split('|').nth(2).unwrap().contains(' ')), "{log}");
    assert_eq!(git(&daemon.work(), &["log", "-1", "--format=%b", "HEAD~2"]), "the reason");
    for (name, content) in [("mine.txt", "mine\n"), ("one.txt", "1\n"), ("left.txt", "3\n")] {
        assert_eq!(bed.read(name), content, "{name}");
    }
    let again = daemon.done(&["task", "merge", "tsk", "--rebase", "--with-uncommitted"]);
    assert!(again.contains("had the result before"), "{again}");
    assert_eq!(git(&daemon.work(), &["status", "--porcelain"]), "");
}

#[test]
fn a_rebase_with_a_conflict_or_a_merge_changes_nothing() {
    let aside =
        "run:git checkout -q -b aside HEAD^; echo a >a.txt; git add a.txt; git commit -qm a";
    let merge = "run:git checkout -q agents/prj-2; git merge -q --no-edit aside";
    let merges = [&COMMITS[..4], &[aside, merge, "report:success"]].concat();
    let bed = Bed::new(&[("one", COMMITS), ("two", &merges)]);
    let daemon = &bed.daemon;
    daemon.task("tsk_1", "prj", "one");
    bed.until_kept("tsk_1");
    daemon.task("tsk_2", "prj", "two");
    bed.until_kept("tsk_2");
    fs::write(daemon.work().join("common.txt"), "common\nmine\n").unwrap();
    git(&daemon.work(), &["commit", "-qam", "mine"]);
    let before = git(&daemon.work(), &["rev-parse", "main"]);
    let refused = daemon.cli(&["task", "merge", "tsk_1", "--rebase"]);
    assert!(refused.stderr.contains("same lines of: common.txt"), "{}", refused.stderr);
    let refused = daemon.cli(&["task", "merge", "tsk_2", "--rebase"]);
    assert!(refused.stderr.contains("which cannot be replayed"), "{}", refused.stderr);
    assert_eq!(git(&daemon.work(), &["rev-parse", "main"]), before);
    assert_eq!(git(&daemon.work(), &["status", "--porcelain"]), "");
}

#[test]
fn an_agent_is_asked_to_resolve_a_conflict_in_its_clone() {
    for (language, text) in [("en", "change the same lines"), ("ja", "同じ行を変更して")] {
        let agents: &[(&str, &[&str])] = &[("one", COMMITS)];
        let settings = format!("workspace: {{ keep: off }}\nlanguage: {language}");
        let bed = Bed::configured(&settings, agents).daemon_with_clones(agents);
        let daemon = &bed.daemon;
        daemon.task("tsk", "prj", "one");
        bed.until_kept("tsk");
        let clone = daemon.json(&["workspace", "show", "tsk"])["id"].clone();
        fs::write(daemon.work().join("common.txt"), "common\nmine\n").unwrap();
        git(&daemon.work(), &["commit", "-qam", "mine"]);
        let main = git(&daemon.work(), &["rev-parse", "main"]);
        let resolves = format!(
            "run:git merge -q {main}; (echo common; echo mine; echo one) >common.txt; \
             git add common.txt; git commit -qm resolved"
        );
        bed.steps_in_clone(
            "tsk",
            "one",
            &["authenticate", "get-my-task", &resolves, "report:success"],
        );
        // Without the option, nothing but the answer comes of a conflict.
        daemon.cli(&["task", "merge", "tsk"]);
        assert_eq!(daemon.task_status("tsk"), "done");
        let said = daemon.cli(&["task", "merge", "tsk", "--ask-agent"]);
        assert!(said.code != 0 && said.stderr.contains("was asked to resolve"), "{}", said.stderr);
        until("the agent has resolved it", || {
            let shown = daemon.json(&["workspace", "show", "tsk"]);
            daemon.task_status("tsk") == "done" && shown["content"]["n_commits"] == 2
        });
        let shown = daemon.json(&["workspace", "show", "tsk"]);
        assert_eq!((&shown["id"], &shown["state"]), (&clone, &"ready".into()));
        let answers = daemon.done(&["logs", "one", "prj"]);
        assert!(answers.contains(text) && answers.contains(&main), "{answers}");
        assert!(answers.contains("common.txt"), "{answers}");
        daemon.done(&["task", "merge", "tsk"]);
        assert_eq!(bed.read("common.txt"), "common\nmine\none\n");
    }
}

#[test]
fn an_agent_is_not_told_of_a_conflict_that_it_has_resolved() {
    let bed = Bed::new(&[("one", COMMITS)]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    bed.until_kept("tsk");
    fs::write(daemon.work().join("common.txt"), "common\nmine\n").unwrap();
    git(&daemon.work(), &["commit", "-qam", "mine"]);
    bed.lets_resolve("tsk", "one", false);
    daemon.cli(&["task", "merge", "tsk", "--ask-agent"]);
    until("the agent has resolved it", || daemon.task_status("tsk") == "done");
    assert_eq!(daemon.ended("one").len(), 2);
    bed.steps_in_clone("tsk", "one", &["authenticate", "get-my-task", "report:success"]);
    daemon.done(&["task", "set", "tsk", "--status", "todo"]);
    daemon.done(&["task", "set", "tsk", "--status", "in_progress"]);
    until("the agent has worked once more", || daemon.ended("one").len() == 3);
    let answers = daemon.done(&["logs", "one", "prj"]);
    assert!(!answers.contains("change the same lines"), "{answers}");
}

impl Bed {
    /// Lets the agent of a task resolve a conflict of `common.txt`, but not in its first launch
    /// from now on if it is `late`.
    fn lets_resolve(&self, task: &str, agent: &str, is_late: bool) {
        let main = git(&self.daemon.work(), &["rev-parse", "main"]);
        let resolves = format!(
            "run:if [ -e ../late ]; then rm ../late; else git merge -q {main}; \
             (echo common; echo mine; echo one) >common.txt; git commit -qam resolved; fi"
        );
        if is_late {
            fs::write(self.tree(task).join("../late"), "").unwrap();
        }
        let steps = ["authenticate", "get-my-task", &resolves, "report:success"];
        self.steps_in_clone(task, agent, &steps);
    }
}

#[test]
fn a_conflict_that_the_agent_did_not_resolve_is_a_failed_round() {
    let bed = Bed::new(&[("one", COMMITS)]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    bed.until_kept("tsk");
    fs::write(daemon.work().join("common.txt"), "common\nmine\n").unwrap();
    git(&daemon.work(), &["commit", "-qam", "mine"]);
    let main = git(&daemon.work(), &["rev-parse", "main"]);
    bed.lets_resolve("tsk", "one", true);
    daemon.cli(&["task", "merge", "tsk", "--ask-agent"]);
    until("the agent has resolved it", || daemon.task_status("tsk") == "done");
    assert_eq!(daemon.ended("one").len(), 3, "it reported success once without a merge");
    let shown = daemon.json(&["task", "show", "tsk"]);
    let names: Vec<&Value> =
        shown["checks"].as_array().unwrap().iter().map(|check| &check["name"]).collect();
    assert_eq!(names, ["merge conflict", "merge conflict"], "{shown}");
    let answers = daemon.done(&["logs", "one", "prj"]);
    assert!(answers.contains("\"to_merge\"") && answers.contains(&main), "{answers}");
    daemon.done(&["task", "merge", "tsk"]);
    assert!(!daemon.done(&["task", "show", "tsk"]).contains("output of merge conflict"));
    assert_eq!(bed.read("common.txt"), "common\nmine\none\n");
}

#[test]
fn a_result_is_given_up_for_ever_only_when_its_id_is_given_twice() {
    let bed = Bed::new(&[("one", LEAVES)]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    bed.until_kept("tsk");
    let keep = daemon.state().join("workspaces/prj/keep.git");
    let refs = || git(&keep, &["for-each-ref", "--format=%(refname)"]);
    let before = refs();
    let refused = |arguments: &[&str], expected: &str| {
        let command = [&["task", "discard", "PRJ-1", "--forever"], arguments].concat();
        let said = daemon.cli(&command);
        assert!(said.code != 0 && said.stderr.contains(expected), "{arguments:?}: {}", said.stderr);
    };
    refused(&[], "--yes PRJ-1");
    refused(&["--yes", "PRJ-2"], "is not the id PRJ-1");
    daemon.done(&["task", "set", "tsk", "--status", "todo"]);
    refused(&["--yes", "PRJ-1"], "finish or cancel it first");
    daemon.done(&["task", "set", "tsk", "--status", "cancelled"]);
    assert_eq!(refs(), before);
    daemon.done(&["task", "discard", "PRJ-1", "--forever", "--yes", "prj-1"]);
    until("the kept state is given up", || {
        let shown = daemon.json(&["workspace", "show", "tsk"]);
        shown["state"] == "removed" && shown["content"] == Value::Null
    });
    let after = refs();
    let is_expired = |name: &str| name.starts_with("refs/agent-coordinator/expired/");
    let own = |name: &&str| !name.starts_with("refs/agent-coordinator/source/");
    assert!(after.lines().filter(own).all(is_expired), "{after}");
    assert_eq!(after.lines().count(), before.lines().count());
    let refused = daemon.cli(&["task", "restore", "tsk"]);
    assert!(refused.stderr.contains("nothing of it was kept"), "{}", refused.stderr);
    let audited = daemon.logged("done by a person");
    assert!(audited.iter().any(|line| line["after"].to_string().contains("forever_at")));
    // New work begins at the project's repository again.
    daemon.done(&["task", "set", "tsk", "--status", "todo"]);
    daemon.done(&["task", "set", "tsk", "--status", "in_progress"]);
    let again = bed.until_kept("tsk");
    assert_eq!((&again["content"]["n_commits"], &again["forever_at"]), (&2.into(), &Value::Null));
}

#[test]
fn a_merge_right_after_the_end_waits_for_the_keeping_and_is_recorded() {
    let steps: &[&str] = &[
        "authenticate",
        "get-my-task",
        "run:echo done >done.txt; git add done.txt; git commit -qm work",
        "report:success",
        "run:sleep 0.5",
    ];
    let bed = Bed::new(&[("one", steps)]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    until("the task is done", || daemon.task_status("tsk") == "done");
    let said = daemon.done(&["task", "merge", "tsk"]);
    assert!(said.contains("main has the result"), "{said}");
    let after = bed.until_state("tsk", "removed");
    assert!(after["merged_commit"].is_string(), "{after}");
    assert_eq!(bed.read("done.txt"), "done\n");
}

#[test]
fn a_person_chooses_among_the_branches_that_an_agent_left() {
    let steps: &[&str] = &[
        "authenticate",
        "get-my-task",
        "run:git checkout -qb x; echo x >x.txt; git add x.txt; git commit -qm x",
        "run:git checkout -qb y HEAD^; echo y >y.txt; git add y.txt; git commit -qm y",
        "run:git checkout -q agents/prj-1",
        "report:success",
    ];
    let bed = Bed::new(&[("one", steps)]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    until("the result is undecided", || {
        daemon.json(&["workspace", "show", "tsk"])["content"]["is_undecided"] == true
    });
    for command in ["merge", "publish"] {
        let refused = daemon.cli(&["task", command, "tsk"]).stderr;
        assert!(refused.contains("`x` (1 commit), `y` (1 commit)"), "{refused}");
        assert!(refused.contains("task result PRJ-1 --take BRANCH"), "{refused}");
    }
    let told = daemon.done(&["workspace", "show", "tsk"]);
    assert!(told.contains("`x` has 1 more commit"), "{told}");
    let refused = daemon.cli(&["task", "result", "tsk", "--take", "z"]).stderr;
    assert!(refused.contains("no branch or commit `z`"), "{refused}");
    let told = daemon.done(&["task", "result", "tsk", "--take", "y"]);
    assert!(told.contains("1 commit, 1 file +1 -0\n`x` has 1 more commit"), "{told}");
    // Until it is merged, another one may be chosen.
    daemon.done(&["task", "result", "tsk", "--take", "x"]);
    let diff = daemon.cli(&["task", "diff", "tsk", "--stat"]);
    assert!(diff.stdout.contains("x.txt") && !diff.stdout.contains('`'), "{}", diff.stdout);
    assert!(diff.stderr.contains("`y` has 1 more commit"), "{}", diff.stderr);
    let inbox = daemon.done(&["inbox"]);
    assert!(inbox.contains("not merged; more is on y"), "{inbox}");
    let told = daemon.done(&["task", "result", "tsk", "--drop", "y"]);
    assert!(told.contains("`y` has 1 more commit (not needed)"), "{told}");
    let inbox = daemon.done(&["inbox"]);
    assert!(inbox.contains("not merged") && !inbox.contains("more is on"), "{inbox}");
    let refused = daemon.cli(&["task", "result", "tsk", "--drop", "x"]).stderr;
    assert!(refused.contains("`x` is the result"), "{refused}");
    daemon.done(&["task", "result", "tsk", "--want", "y"]);
    let diff = daemon.done(&["task", "diff", "tsk"]);
    assert!(diff.contains("+++ b/x.txt") && !diff.contains("y.txt"), "{diff}");
    daemon.done(&["task", "merge", "tsk"]);
    assert_eq!(bed.read("x.txt"), "x\n");
    let inbox = daemon.done(&["inbox"]);
    assert!(inbox.contains("left more beside the result: y"), "{inbox}");
    let refused = daemon.cli(&["task", "delete", "tsk", "--yes"]).stderr;
    assert!(refused.contains("not merged"), "{refused}");
    // The clone stays until a person has decided.
    daemon.done(&["task", "result", "tsk", "--drop", "y"]);
    let inbox = daemon.done(&["inbox"]);
    assert!(!inbox.contains("left more"), "{inbox}");
    bed.until_state("tsk", "removed");
}

/// The steps of an agent that has reported, and stays until a file appears beside its clone.
const STAYS: &[&str] = &[
    "authenticate",
    "get-my-task",
    "run:echo done >done.txt; git add done.txt; git commit -qm work",
    "report:success",
    "run:until [ -e ../go ]; do sleep 0.05; done",
];

/// Runs a command, and lets the agent of the task end once the command says that it waits for the
/// result. The other commands must wait then, too. Returns the exit code and what it printed.
fn while_it_stays(bed: &Bed, arguments: &[&str], others: &mut [Child]) -> (i32, String, String) {
    let go = bed.tree("tsk").parent().unwrap().join("go");
    let mut command = bed.daemon.command();
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    while !said.contains("waiting until the work of PRJ-") {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "it did not wait: {said}");
    }
    for other in others {
        assert_eq!(other.try_wait().unwrap(), None, "it did not wait");
    }
    fs::write(go, "").unwrap();
    stderr.read_to_string(&mut said).unwrap();
    let output = child.wait_with_output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    (output.status.code().unwrap_or(-1), stdout, said)
}

#[test]
fn a_deletion_right_after_the_end_waits_until_it_is_known_what_would_be_lost() {
    let bed = Bed::new(&[("one", STAYS)]);
    bed.daemon.task("tsk", "prj", "one");
    until("the task is done", || bed.daemon.task_status("tsk") == "done");
    let (code, _, said) = while_it_stays(&bed, &["task", "delete", "tsk", "--yes"], &mut []);
    assert_ne!(code, 0, "{said}");
    assert!(said.contains("not merged"), "{said}");
}

#[test]
fn a_deletion_also_waits_for_the_work_on_the_parts_of_a_task_and_in_a_project() {
    let bed = Bed::new(&[("one", STAYS)]);
    let daemon = &bed.daemon;
    let add = ["task", "add", "--project", "prj", "--title", "a title", "--id"];
    daemon.done(&[&add[..], &["par"]].concat());
    let part = ["tsk", "--parent", "par", "--assignee", "one", "--status", "in_progress"];
    daemon.done(&[&add[..], &part[..]].concat());
    until("the part is done", || daemon.task_status("tsk") == "done");
    daemon.done(&["task", "set", "par", "--status", "done"]);
    let deletions = [["task", "delete", "par", "--yes"], ["project", "delete", "prj", "--yes"]];
    let mut deletions = deletions.map(|arguments| {
        let mut command = daemon.command();
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    });
    let (code, _, said) = while_it_stays(&bed, &["task", "wait", "tsk"], &mut deletions);
    assert_eq!(code, 0, "{said}");
    for deletion in deletions {
        let output = deletion.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("the work on PRJ-2 is not merged"), "{said}");
    }
}

#[test]
fn a_wait_for_a_task_is_also_one_for_its_result() {
    let bed = Bed::new(&[("one", STAYS)]);
    bed.daemon.task("tsk", "prj", "one");
    until("the task is done", || bed.daemon.task_status("tsk") == "done");
    // One that is over is told, although it comes after one that is waited for.
    bed.daemon.done(&["task", "add", "--project", "prj", "--title", "a title", "--id", "other"]);
    bed.daemon.done(&["task", "set", "other", "--status", "cancelled"]);
    let said = bed.daemon.cli(&["task", "wait", "tsk", "other", "--timeout", "100ms"]);
    assert_eq!(said.code, 124, "{said:?}");
    assert!(said.stderr.contains("the work on PRJ-1 is not kept yet"), "{said:?}");
    assert!(!said.stderr.contains("PRJ-2 is not"), "{said:?}");
    let told = [said.stdout.as_str(), &said.stderr].concat();
    assert!(told.contains("PRJ-2 is cancelled"), "{said:?}");
    let (code, stdout, said) = while_it_stays(&bed, &["task", "wait", "tsk", "--json"], &mut []);
    assert_eq!(code, 0, "{said}");
    let over: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(over[0]["workspace"]["state"], "ready", "{over}");
    let inbox = bed.daemon.done(&["inbox"]);
    assert!(inbox.contains("PRJ-1 is done: +1 −0, not merged"), "{inbox}");
}

#[test]
fn the_diff_of_a_merged_task_stays_the_same_when_its_clone_comes_back() {
    let bed = Bed::new(&[("one", COMMITS)]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    bed.until_kept("tsk");
    let before = daemon.done(&["task", "diff", "tsk", "--stat"]);
    assert!(before.contains("2 files changed"), "{before}");
    daemon.done(&["task", "merge", "tsk"]);
    bed.until_state("tsk", "removed");
    daemon.done(&["task", "restore", "tsk"]);
    assert_eq!(daemon.done(&["task", "diff", "tsk", "--stat"]), before, "while it is made");
    let after = bed.until_state("tsk", "ready");
    assert_eq!(daemon.done(&["task", "diff", "tsk", "--stat"]), before);
    assert!(after["base_commit"].is_string() && after["merged_commit"].is_string(), "{after}");
}

/// The steps of an agent that commits one file.
const COMMITS_ONE: &[&str] = &[
    "authenticate",
    "get-my-task",
    "run:echo one >one.txt; git add one.txt; git commit -qm work",
    "report:success",
];

#[test]
fn a_merge_and_its_revert_are_shown_and_the_result_is_merged_again() {
    let agents: &[(&str, &[&str])] =
        &[("one", COMMITS_ONE), ("idle", &["authenticate", "get-my-task", "report:success"])];
    let bed = Bed::new(agents);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    bed.until_kept("tsk");
    let unmerged = daemon.done(&["task", "show", "tsk"]);
    assert!(unmerged.contains("result: 1 commit, 1 file +1 -0 on the branch"), "{unmerged}");
    daemon.done(&["task", "merge", "tsk"]);
    let merge = git(&daemon.work(), &["rev-parse", "HEAD"]);
    assert!(daemon.done(&["task", "show", "tsk"]).contains(&format!("merged as {merge}")));
    assert!(daemon.done(&["workspace", "list", "--all"]).contains(", merged"));
    git(&daemon.work(), &["revert", "--no-edit", "HEAD"]);
    let revert = git(&daemon.work(), &["rev-parse", "HEAD"]);
    let shown = daemon.done(&["task", "show", "tsk"]);
    assert!(shown.contains(&format!("reverted by {revert}")), "{shown}");
    assert_eq!(daemon.json(&["task", "show", "tsk"])["workspace"]["reverted_by"], *revert);
    let asked = daemon.cli(&["task", "merge", "tsk"]).stderr;
    for word in [&merge, &revert, "--again", "--only-new"] {
        assert!(asked.contains(word), "{word}: {asked}");
    }
    let newer = daemon.done(&["task", "merge", "tsk", "--only-new"]);
    let before = format!("main had the result before: {} (`--again`", &merge[..12]);
    assert!(newer.starts_with(&format!("there is no newer commit; {before}")), "{newer}");
    daemon.done(&["task", "merge", "tsk", "--again"]);
    let more = daemon.done(&["task", "merge", "tsk", "--again"]);
    assert!(more.contains("nothing is missing") && !more.contains("--again"), "{more}");
    assert_eq!(bed.read("one.txt"), "one\n");
    // Another branch gets the result, too.
    git(&daemon.work(), &["checkout", "--quiet", "-b", "release", &format!("{merge}^")]);
    daemon.done(&["task", "merge", "tsk", "--into", "release"]);
    git(&daemon.work(), &["revert", "--no-edit", "HEAD"]);
    let revert = git(&daemon.work(), &["rev-parse", "HEAD"]);
    let shown = daemon.done(&["task", "show", "tsk"]);
    let hint = format!("reverted by {revert}; `task merge PRJ-1 --again --into release` merges");
    assert!(shown.contains(&hint), "{shown}");

    daemon.task("tsk_idle", "prj", "idle");
    until("the task without a change says so", || {
        daemon.done(&["task", "show", "tsk_idle"]).contains("changed nothing")
    });
    let merged = daemon.done(&["task", "merge", "tsk_idle"]);
    assert!(merged.contains("changed nothing"), "{merged}");
    let refused = daemon.cli(&["task", "result", "tsk_idle", "--take", "other"]).stderr;
    assert!(refused.contains("PRJ-2") && !refused.contains("wsp_"), "{refused}");
}

#[test]
fn a_merge_is_by_the_identity_in_the_home_folder_of_the_owner() {
    let mut bed = Bed::new(&[("one", COMMITS)]);
    bed.daemon.task("tsk", "prj", "one");
    bed.until_kept("tsk");
    bed.daemon.terminate();
    let home = tempfile::tempdir().unwrap();
    let identity = "[user]\n\tname = Bo Example\n\temail = bo@example.org\n";
    fs::write(home.path().join(".gitconfig"), identity).unwrap();
    let mut command = bed.daemon.command();
    command.env("HOME", home.path());
    bed.daemon.spawn_as(command);
    bed.daemon.until_ready();
    bed.daemon.done(&["task", "merge", "tsk", "--squash"]);
    let author = git(&bed.daemon.work(), &["log", "-1", "--format=%an <%ae>"]);
    assert_eq!(author.trim(), "Bo Example <bo@example.org>");
}
