//! Results of finished tasks that are not merged, with the real binary: they are in the inbox, in the
//! filter of the board and in the lists of the command line until a person has decided.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::support::{git, until};
use crate::workspaces::{Bed, COMMITS};

/// Returns the entries of the inbox of this kind, as `title: text`.
fn inbox(bed: &Bed, kind: &str) -> Vec<String> {
    let listed = bed.daemon.json(&["inbox", "--kind", kind]);
    let line = |entry: &Value| {
        format!("{}: {}", entry["title"].as_str().unwrap(), entry["text"].as_str().unwrap())
    };
    listed.as_array().unwrap().iter().map(line).collect()
}

/// Returns the next step with the result of the first task, as `task list` has it.
fn step(bed: &Bed) -> Value {
    bed.daemon.json(&["task", "list", "--project", "prj"])[0]["to_merge"].clone()
}

#[test]
fn a_result_is_listed_until_it_is_merged_or_discarded() {
    let bed = Bed::new(&[("one", COMMITS)]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    bed.until_kept("tsk");
    until("the task is done", || daemon.task_status("tsk") == "done");
    let told = "a title: PRJ-1 is done: +2 −0, not merged";
    assert_eq!(inbox(&bed, "unmerged"), [told]);
    let entry = &daemon.json(&["inbox"])[0];
    assert_eq!((&entry["group"], &entry["action"]), (&json!("results"), &json!("merge")));
    assert!(entry["remedy"].as_str().unwrap().contains("`task merge PRJ-1`"), "{entry}");
    assert_eq!(step(&bed), "merge");
    assert_eq!(daemon.json(&["task", "show", "tsk"])["to_merge"], "merge");
    assert!(daemon.done(&["task", "list"]).contains("done, to merge"));
    let line = "Results to merge: 1 in prj; `task list` marks them";
    let status = daemon.done(&["status"]);
    assert_eq!(status.matches(line).count(), 1, "{status}");
    let counted = json!([{ "project_id": "prj", "n_results": 1 }]);
    assert_eq!(daemon.status()["to_merge"], counted);
    assert_eq!(daemon.cli(&["status", "--exit-code"]).code, 3);
    let id = entry["id"].as_str().unwrap();
    let page = daemon.page(&format!("/ui/inbox?item={id}"), "en");
    assert!(
        page.contains("<a class=\"btn primary\" href=\"/ui/tasks/PRJ-1?tab=changes\">Merge</a>")
    );

    // A decision against it ends the entry, and can be taken back.
    daemon.done(&["task", "discard", "tsk"]);
    assert_eq!((inbox(&bed, "unmerged"), step(&bed)), (vec![], Value::Null));
    daemon.done(&["task", "keep", "tsk"]);
    assert_eq!(inbox(&bed, "unmerged"), [told], "also without its files");
    daemon.done(&["task", "merge", "tsk"]);
    assert_eq!((inbox(&bed, "unmerged"), step(&bed)), (vec![], Value::Null));
    assert_eq!(daemon.cli(&["status", "--exit-code"]).code, 0);
    assert_eq!(daemon.status()["to_merge"], Value::Null);
}

#[test]
fn a_result_that_is_in_no_commit_is_told_wherever_a_person_looks() {
    let steps: &[&str] = &[
        "authenticate",
        "get-my-task",
        "run:for name in a b c; do echo $name >$name.txt; done",
        "report:success",
    ];
    let bed = Bed::new(&[("one", steps)]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    until("it is listed", || inbox(&bed, "unmerged").len() == 1);
    let told = "a title: PRJ-1 is done: 3 files in no commit, not merged";
    assert_eq!(inbox(&bed, "unmerged"), [told]);
    assert_eq!(step(&bed), "merge");
    let shown = daemon.done(&["task", "show", "tsk"]);
    assert!(shown.contains("result: 3 files in no commit\n"), "{shown}");
    let page = daemon.page("/ui/parts/projects/prj/board", "en");
    assert!(page.contains("<span class=\"second\">3 files in no commit</span>"), "{page}");
    let diff = daemon.cli(&["task", "diff", "tsk"]);
    assert_eq!((diff.code, diff.stdout.as_str()), (0, ""));
    assert!(diff.stderr.contains("`task diff PRJ-1 --uncommitted`"), "{diff:?}");
    let with_files = ["task", "merge", "tsk", "--with-uncommitted"];
    daemon.done(&with_files);
    assert_eq!((inbox(&bed, "unmerged"), step(&bed)), (vec![], Value::Null));
    // A repeated merge says that the branch had the result.
    for again in [&with_files[..], &with_files[..3]] {
        let said = daemon.done(again);
        assert!(said.contains("had the result before"), "{again:?}: {said}");
    }
    let shown = daemon.done(&["task", "show", "tsk"]);
    assert!(shown.contains("result: files that were in no commit\nmerged as"), "{shown}");
    let page = daemon.page("/ui/parts/tasks/tsk/changes", "en");
    assert!(!page.contains("The task changed nothing"), "{page}");
    git(&daemon.work(), &["revert", "--no-edit", "HEAD"]);
    let shown = daemon.done(&["task", "show", "tsk"]);
    assert!(shown.contains("`task merge PRJ-1 --again --with-uncommitted` merges"), "{shown}");
    daemon.done(&["task", "merge", "tsk", "--again", "--with-uncommitted"]);
    assert_eq!(bed.read("a.txt"), "a\n");
}

#[test]
fn a_published_result_and_an_archived_task_are_not_listed() {
    let bed = Bed::new(&[("one", COMMITS)]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    bed.until_kept("tsk");
    until("it is listed", || inbox(&bed, "unmerged").len() == 1);
    daemon.done(&["task", "archive", "tsk"]);
    assert_eq!(inbox(&bed, "unmerged"), [""; 0]);
    daemon.done(&["task", "unarchive", "tsk"]);
    assert_eq!(inbox(&bed, "unmerged").len(), 1);
    daemon.done(&["task", "publish", "tsk"]);
    assert_eq!((inbox(&bed, "unmerged"), step(&bed)), (vec![], Value::Null));
}

#[test]
fn a_refused_merge_is_no_decision_although_it_gives_the_branch() {
    let bed = Bed::new(&[("one", COMMITS)]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    bed.until_kept("tsk");
    until("it is listed", || inbox(&bed, "unmerged").len() == 1);
    let work = daemon.work();
    let before = git(&work, &["rev-parse", "main"]);
    let waits = |merge: &[&str], file: &str| {
        let refused = daemon.cli(merge);
        assert!(refused.code != 0 && refused.stderr.contains(file), "{refused:?}");
        let shown = daemon.json(&["workspace", "show", "tsk"]);
        assert_eq!(shown["published_commit"], git(&work, &["rev-parse", "agents/prj-1"]));
        assert_eq!((inbox(&bed, "unmerged").len(), inbox(&bed, "conflict").len()), (1, 0));
        assert_eq!(step(&bed), "merge");
        assert_eq!(daemon.status()["to_merge"][0]["n_results"], 1);
    };
    let is_published = || {
        daemon.done(&["task", "publish", "tsk"]);
        assert_eq!((inbox(&bed, "unmerged"), step(&bed)), (vec![], Value::Null));
        assert_eq!(daemon.status()["to_merge"], Value::Null);
    };
    fs::write(work.join("one.txt"), "in the way\n").unwrap();
    waits(&["task", "merge", "tsk"], "one.txt");
    is_published();
    // The agent cannot resolve a conflict of a merge that ignores earlier ones.
    fs::remove_file(work.join("one.txt")).unwrap();
    fs::write(work.join("common.txt"), "common\nmine\n").unwrap();
    git(&work, &["commit", "-qam", "mine"]);
    waits(&["task", "merge", "tsk", "--again"], "common.txt");
    is_published();
    git(&work, &["reset", "-q", "--hard", &before]);
    fs::write(work.join("one.txt"), "in the way\n").unwrap();
    waits(&["task", "merge", "tsk"], "one.txt");
    fs::remove_file(work.join("one.txt")).unwrap();
    daemon.done(&["task", "merge", "tsk"]);
    assert_eq!((inbox(&bed, "unmerged"), step(&bed)), (vec![], Value::Null));
    assert_eq!(bed.read("one.txt"), "one\n");
}

#[test]
fn a_person_is_asked_to_choose_among_several_results() {
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
    until("it is listed", || inbox(&bed, "unmerged").len() == 1);
    let told = "a title: PRJ-1 is done, and its agent left several results: x, y. Choose one";
    assert_eq!(inbox(&bed, "unmerged"), [told]);
    assert_eq!(step(&bed), "choose");
    let shown = daemon.done(&["task", "show", "tsk"]);
    assert!(shown.contains("result: to choose\n`x` has 1 more commit\n"), "{shown}");
    let diff = daemon.cli(&["task", "diff", "tsk"]);
    assert!(diff.stdout.is_empty() && diff.stderr.contains("`y` has 1 more commit"), "{diff:?}");
    let entry = daemon.json(&["inbox", "--kind", "unmerged"])[0].clone();
    assert!(entry["remedy"].as_str().unwrap().contains("--take BRANCH"), "{entry}");
    // An entry that was put off returns as another one after the choice.
    daemon.done(&["inbox", "done", entry["id"].as_str().unwrap()]);
    daemon.done(&["task", "result", "tsk", "--take", "x"]);
    let told = "a title: PRJ-1 is done: +1 −0, not merged; more is on y";
    assert_eq!(inbox(&bed, "unmerged"), [told]);
    let shown = daemon.done(&["task", "show", "tsk"]);
    assert!(shown.contains(" on the branch agents/prj-1 (`x` in the clone)\n"), "{shown}");
}

#[test]
fn a_conflict_is_known_until_the_result_is_merged() {
    let mut bed = Bed::new(&[("one", COMMITS)]);
    bed.daemon.task("tsk", "prj", "one");
    bed.until_kept("tsk");
    let work = bed.daemon.work();
    let before = git(&work, &["rev-parse", "main"]);
    fs::write(work.join("common.txt"), "common\nmine\n").unwrap();
    git(&work, &["commit", "-qam", "mine"]);
    let mine = git(&work, &["rev-parse", "main"]);
    let refused = bed.daemon.cli(&["task", "merge", "tsk"]);
    assert!(refused.stderr.contains("run `task merge` after that"), "{}", refused.stderr);
    let conflict = bed.daemon.json(&["workspace", "show", "tsk"])["conflict"].clone();
    assert_eq!((&conflict["branch"], &conflict["commit"]), (&json!("main"), &json!(mine)));
    assert_eq!(conflict["files"], json!(["common.txt"]));
    let task = bed.daemon.json(&["task", "show", "tsk"]);
    assert_eq!(task["workspace"]["conflict"], conflict);
    for command in ["task", "workspace"] {
        let shown = bed.daemon.done(&[command, "show", "tsk"]);
        assert!(shown.contains(" in common.txt\n") && shown.contains("--ask-agent"), "{shown}");
    }
    let told = format!(
        "a title: PRJ-1 was not merged: it and main (as of {}) change the same lines of common.txt",
        &mine[..10]
    );
    // It survives a restart.
    bed.daemon.terminate();
    bed.daemon.start();
    assert_eq!((inbox(&bed, "conflict"), inbox(&bed, "unmerged")), (vec![told], vec![]));
    assert_eq!(step(&bed), "resolve");
    for command in [&["task", "list"][..], &["task", "show", "tsk"]] {
        assert!(bed.daemon.done(command).contains("done, conflict"), "{command:?}");
    }
    let page = bed.daemon.page("/ui/parts/projects/prj/board", "en");
    assert!(page.contains("<span class=\"mark bad\">Conflict</span>"), "{page}");
    // A later merge finds another commit of the branch, or none.
    git(&work, &["commit", "-q", "--allow-empty", "-m", "later"]);
    let later = git(&work, &["rev-parse", "main"]);
    assert_ne!(bed.daemon.cli(&["task", "merge", "tsk", "--rebase"]).code, 0);
    let entries = inbox(&bed, "conflict");
    assert!(entries[0].contains(&later[..10]) && entries.len() == 1, "{entries:?}");
    git(&work, &["reset", "-q", "--hard", &before]);
    bed.daemon.done(&["task", "merge", "tsk"]);
    assert_eq!((inbox(&bed, "conflict"), step(&bed)), (vec![], Value::Null));
    assert!(!bed.daemon.done(&["task", "show", "tsk"]).contains("conflict"));
}

#[test]
fn a_conflict_is_over_when_somebody_sees_that_its_branch_is_over() {
    let steps: &[&str] = &[
        "authenticate",
        "get-my-task",
        "run:echo two >two.txt; git add two.txt; git commit -qm work",
        "report:success",
    ];
    let bed = Bed::new(&[("one", COMMITS), ("two", steps)]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    bed.until_kept("tsk");
    let work = daemon.work();
    fs::write(work.join("common.txt"), "common\nmine\n").unwrap();
    git(&work, &["commit", "-qam", "mine"]);
    let part = || daemon.page("/ui/parts/tasks/tsk/changes", "en");
    let is_refused = || {
        assert_ne!(daemon.cli(&["task", "merge", "tsk"]).code, 0);
        daemon.done(&["task", "show", "tsk"]);
        assert!(part().contains("call bad conflict"), "the branch has not moved");
        assert_eq!((step(&bed), inbox(&bed, "conflict").len()), (json!("resolve"), 1));
    };
    let is_over = |look: &str| {
        assert_eq!(step(&bed), "merge", "{look}");
        assert_eq!((inbox(&bed, "conflict").len(), inbox(&bed, "unmerged").len()), (0, 1));
    };
    for look in ["task", "workspace", "the page"] {
        is_refused();
        git(&work, &["commit", "-q", "--allow-empty", "-m", "later"]);
        let shown = if look == "the page" { part() } else { daemon.done(&[look, "show", "tsk"]) };
        assert!(!shown.contains("conflict"), "{look}: {shown}");
        is_over(look);
    }
    // A merge that is refused for another reason finds no conflict.
    is_refused();
    git(&work, &["revert", "--no-edit", "HEAD~3"]);
    let hook = work.join(".git/hooks/pre-merge-commit");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&hook, Permissions::from_mode(0o755)).unwrap();
    assert!(daemon.cli(&["task", "merge", "tsk"]).stderr.contains("--run-hooks"));
    is_over("a hook");
    fs::remove_file(hook).unwrap();
    git(&work, &["revert", "--no-edit", "HEAD"]);
    // A merge of another result moves the branch, too.
    is_refused();
    daemon.task("other", "prj", "two");
    until("it is listed", || inbox(&bed, "unmerged").len() == 1);
    daemon.done(&["task", "merge", "other"]);
    is_over("merge");
}

#[test]
fn the_page_says_of_a_finished_task_that_it_changed_nothing() {
    let bed = Bed::new(&[("one", &["authenticate", "get-my-task", "report:success"])]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    until("the task is done", || daemon.task_status("tsk") == "done");
    bed.until_state("tsk", "ready");
    let page = daemon.page("/ui/parts/tasks/tsk/changes", "en");
    assert!(page.contains("<p class=\"empty\">The task changed nothing.</p>"), "{page}");
}

#[test]
fn an_agent_that_begins_later_is_told_of_the_branch_as_it_is_then() {
    let bed = Bed::new(&[("one", COMMITS)]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    bed.until_kept("tsk");
    let work = daemon.work();
    let moves = |content: &str| {
        fs::write(work.join("common.txt"), content).unwrap();
        git(&work, &["commit", "-qam", "mine"]);
        git(&work, &["rev-parse", "main"])
    };
    let before = moves("common\nmine\n");
    let steps = |last| ["authenticate", "get-my-task", last];
    bed.steps_in_clone("tsk", "one", &steps("report:blocked"));
    assert_ne!(daemon.cli(&["task", "merge", "tsk", "--ask-agent"]).code, 0);
    until("the task is blocked", || daemon.task_status("tsk") == "blocked");
    bed.until_state("tsk", "ready");
    let later = moves("common\nmine\nlater\n");
    daemon.done(&["task", "set", "tsk", "--status", "in_progress"]);
    until("the agent has begun again", || daemon.ended("one").len() == 3);
    let answers = daemon.done(&["logs", "one", "prj"]);
    assert!(answers.contains(&format!("\"commit\":\"{later}\"")), "{answers}");
    assert!(answers.contains(&format!("git merge {later}")), "{answers}");
    assert!(!answers.contains(&before), "{answers}");
}

#[test]
fn more_than_five_results_of_a_project_are_one_entry_that_leads_to_the_filter() {
    let bed = Bed::new(&[("one", COMMITS)]);
    let daemon = &bed.daemon;
    let tasks = ["t1", "t2", "t3", "t4", "t5", "t6"];
    for task in tasks {
        daemon.task(task, "prj", "one");
    }
    until("all are done", || daemon.status()["to_merge"][0]["n_results"] == tasks.len());
    let entries = daemon.json(&["inbox"]);
    assert_eq!(entries.as_array().unwrap().len(), 1, "{entries}");
    let title = entries[0]["title"].as_str().unwrap();
    assert!(title.ends_with(": 6 results to merge"), "{title}");
    assert_eq!(entries[0]["project_id"], "prj");
    let id = entries[0]["id"].as_str().unwrap();
    let page = daemon.page(&format!("/ui/inbox?item={id}"), "ja");
    assert!(page.contains("マージ待ちの結果 6 件"), "{page}");
    let href = "/ui/projects/prj?merge=wanted";
    assert!(page.contains(&format!("href=\"{href}\"")), "{page}");
    daemon.done(&["task", "add", "--project", "prj", "--title", "another one"]);
    let board = daemon.page(href, "en");
    assert!(board.contains("name=\"merge\" value=\"wanted\" checked"), "{board}");
    assert!(board.contains("To merge <span class=\"count\" data-count-of=\"merge\">6</span>"));
    assert_eq!(board.matches("<li class=\"card\"").count(), 6, "{board}");
    daemon.done(&["task", "merge", "t1"]);
    assert_eq!(inbox(&bed, "unmerged").len(), 5);
}
