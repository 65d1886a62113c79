//! Results as branches of the project's repository, with the real binary.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::os::unix::process::ExitStatusExt as _;

use machine::crash_point::{CrashPoint, VARIABLE};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{git, until};
use crate::workspaces::{Bed, COMMITS};

const PUBLISHES: &str = "workspace: { keep: off, publish: branch }";

impl Bed {
    fn publishing(agents: &[(&str, &[&str])]) -> Self {
        Self::configured(PUBLISHES, agents).daemon_with_clones(agents)
    }

    /// Returns the commit of a branch of the person's repository; empty without one.
    fn branch(&self, name: &str) -> String {
        let format = "--format=%(objectname)";
        git(&self.daemon.work(), &["for-each-ref", format, &format!("refs/heads/{name}")])
    }

    fn until_published(&self, task: &str) -> Value {
        let mut last = Value::Null;
        until("the result is published", || {
            // The task has no workspace yet at the first looks.
            let shown = self.daemon.cli(&["workspace", "show", task, "--json"]);
            last = serde_json::from_str(&shown.stdout).unwrap_or_default();
            let head = &last["content"]["head_commit"];
            head.is_string() && last["published_commit"] == *head
        });
        last
    }

    /// Lets the agent of a task work once more.
    fn work_again(&self, task: &str) {
        self.daemon.done(&["task", "set", task, "--status", "todo"]);
        self.daemon.done(&["task", "set", task, "--status", "in_progress"]);
    }
}

#[test]
fn the_result_of_a_task_that_is_done_is_a_branch_of_the_repository() {
    let bed = Bed::publishing(&[("one", COMMITS)]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    let shown = bed.until_published("tsk");
    assert_eq!(shown["published_branch"], "agents/prj-1");
    assert_eq!(bed.branch("agents/prj-1"), shown["published_commit"].as_str().unwrap());
    assert_eq!(git(&daemon.work(), &["status", "--porcelain"]), "");
    assert_eq!(bed.read("one.txt"), "", "the files of the person are as they were");
    let text = daemon.done(&["workspace", "show", "tsk"]);
    assert!(text.contains("has the branch agents/prj-1"), "{text}");
    // Later work continues the branch.
    let first = bed.branch("agents/prj-1");
    bed.work_again("tsk");
    until("the later result is there", || bed.branch("agents/prj-1") != first);
    git(&daemon.work(), &["merge-base", "--is-ancestor", &first, "agents/prj-1"]);
    assert_eq!(bed.branch("agents/prj-1-2"), "");
    // It can be merged by hand, and the daemon sees that.
    bed.until_published("tsk");
    git(&daemon.work(), &["merge", "--quiet", "agents/prj-1"]);
    let again = daemon.done(&["task", "merge", "tsk"]);
    assert!(again.contains("had the result before"), "{again}");
}

#[test]
fn a_branch_that_a_person_moved_or_checked_out_stays_as_it_is() {
    let bed = Bed::publishing(&[("one", COMMITS)]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    bed.until_published("tsk");
    let work = daemon.work();
    let published = bed.branch("agents/prj-1");
    // A person goes on there.
    git(&work, &["checkout", "--quiet", "agents/prj-1"]);
    std::fs::write(work.join("mine.txt"), "mine\n").unwrap();
    git(&work, &["add", "mine.txt"]);
    git(&work, &["commit", "--quiet", "-m", "mine"]);
    let mine = bed.branch("agents/prj-1");
    bed.work_again("tsk");
    until("the result has another name", || !bed.branch("agents/prj-1-2").is_empty());
    assert_eq!(bed.branch("agents/prj-1"), mine);
    let shown = bed.until_published("tsk");
    assert_eq!(shown["published_branch"], "agents/prj-1-2");
    // One that was reset to an earlier commit was moved, too.
    git(&work, &["checkout", "--quiet", "main"]);
    let second = bed.branch("agents/prj-1-2");
    git(&work, &["branch", "--force", "agents/prj-1-2", &published]);
    let said = daemon.cli(&["task", "publish", "tsk"]);
    assert!(said.stdout.contains("the branch agents/prj-1-3: "), "{said:?}");
    assert!(said.stderr.contains("`agents/prj-1` there has other commits"), "{said:?}");
    let found = (bed.branch("agents/prj-1-2"), bed.branch("agents/prj-1-3"));
    assert_eq!(found, (published, second));
    // One that is checked out is not changed, although it could go on.
    git(&work, &["checkout", "--quiet", "agents/prj-1-3"]);
    let before = bed.branch("agents/prj-1-3");
    bed.work_again("tsk");
    until("there is a fourth name", || !bed.branch("agents/prj-1-4").is_empty());
    assert_eq!(bed.branch("agents/prj-1-3"), before);
    assert_eq!(git(&work, &["status", "--porcelain"]), "");
}

#[test]
fn a_person_publishes_a_result_by_a_command() {
    let nothing: &[&str] = &["authenticate", "get-my-task", "report:success"];
    let bed = Bed::new(&[("one", COMMITS), ("two", nothing)]);
    let daemon = &bed.daemon;
    git(&daemon.work(), &["branch", "agents"]);
    daemon.task("tsk_1", "prj", "one");
    bed.until_kept("tsk_1");
    assert_eq!(bed.branch("agents-prj-1"), "", "it is published only on demand");
    // No branch is below another one.
    let said = daemon.json(&["task", "publish", "PRJ-1"]);
    assert_eq!((&said["branch"], &said["is_renamed"]), (&"agents-prj-1".into(), &true.into()));
    let again = daemon.json(&["task", "publish", "PRJ-1"]);
    assert_eq!(again, said);
    assert_eq!(bed.branch("agents-prj-1"), said["commit"].as_str().unwrap());
    git(&daemon.work(), &["branch", "-D", "agents-prj-1"]);
    assert_eq!(daemon.json(&["task", "publish", "PRJ-1"]), said, "it is made again");
    let audited = daemon.logged("done by a person");
    assert!(audited.iter().any(|line| line["after"].to_string().contains("published_branch")));
    // There is nothing of the other task.
    daemon.task("tsk_2", "prj", "two");
    until("the second task is done", || daemon.task_status("tsk_2") == "done");
    until("its content is kept", || {
        daemon.json(&["workspace", "show", "tsk_2"])["content"].is_object()
    });
    let refused = daemon.cli(&["task", "publish", "tsk_2"]);
    assert!(refused.code != 0 && refused.stderr.contains("no commit"), "{refused:?}");
    let refused = daemon.cli(&["task", "publish", "PRJ-9"]);
    assert!(refused.code != 0 && refused.stderr.contains("PRJ-9"), "{refused:?}");
}

#[test]
fn a_conflict_names_a_branch_to_merge_by_hand() {
    let bed = Bed::new(&[("one", COMMITS)]);
    let daemon = &bed.daemon;
    let work = daemon.work();
    daemon.task("tsk", "prj", "one");
    bed.until_kept("tsk");
    std::fs::write(work.join("common.txt"), "common\nmine\n").unwrap();
    git(&work, &["commit", "-qam", "mine"]);
    let main = bed.branch("main");
    let refused = daemon.cli(&["task", "merge", "tsk"]);
    assert!(refused.stderr.contains("same lines of: common.txt"), "{}", refused.stderr);
    assert!(refused.stderr.contains("as the branch `agents/prj-1`"), "{}", refused.stderr);
    assert_eq!((bed.branch("main"), git(&work, &["status", "--porcelain"])), (main, String::new()));
    // A person merges by hand as git says.
    git(&work, &["merge", "--quiet", "-X", "ours", "--no-edit", "agents/prj-1"]);
    let again = daemon.done(&["task", "merge", "tsk"]);
    assert!(again.contains("had the result before"), "{again}");
}

#[test]
fn a_result_that_cannot_be_published_is_named_and_published_later() {
    let bed = Bed::publishing(&[("one", COMMITS)]);
    let daemon = &bed.daemon;
    // Another git process seems to change the branch.
    let lock = daemon.work().join(".git/refs/heads/agents/prj-1.lock");
    std::fs::create_dir_all(lock.parent().unwrap()).unwrap();
    std::fs::write(&lock, "").unwrap();
    daemon.task("tsk", "prj", "one");
    until("the reason is shown", || {
        let shown = daemon.json(&["workspace", "show", "tsk"]);
        let reason = shown["reason"].as_str().unwrap_or_default();
        shown["state"] == "ready" && reason.contains("prj-1")
    });
    std::fs::remove_file(&lock).unwrap();
    bed.until_published("tsk");
    assert_eq!(daemon.json(&["workspace", "show", "tsk"])["reason"], Value::Null);
}

#[test]
fn a_daemon_that_dies_after_it_made_the_branch_makes_no_second_one() {
    let agents: &[(&str, &[&str])] = &[("one", COMMITS)];
    let mut bed = Bed::publishing(agents);
    bed.daemon.terminate();
    let mut command = bed.daemon.command();
    command.env(VARIABLE, format!("{:?}", CrashPoint::ResultPublished));
    bed.daemon.spawn_as(command);
    bed.daemon.until_ready();
    bed.daemon.task("tsk", "prj", "one");
    assert_eq!(bed.daemon.wait().signal(), Some(Signal::KILL.as_raw()));
    bed.daemon.start();
    let shown = bed.until_published("tsk");
    assert_eq!(shown["published_branch"], "agents/prj-1");
    assert_eq!(bed.branch("agents/prj-1-2"), "");
}

#[test]
fn a_result_is_published_although_some_files_could_not_be_kept() {
    let steps = [&COMMITS[..4], &["run:mkfifo pipe", "report:success"]].concat();
    let bed = Bed::publishing(&[("one", &steps)]);
    bed.daemon.task("tsk", "prj", "one");
    let shown = bed.until_published("tsk");
    assert_eq!(shown["content"]["is_complete"], false, "{shown}");
    assert_eq!(bed.branch("agents/prj-1"), shown["published_commit"].as_str().unwrap());
}
