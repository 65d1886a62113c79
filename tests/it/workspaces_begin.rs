//! The commit at which work begins, with the real binary: the configured base and branch, the
//! results that a task depends on, and the commit of the task above.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;

use serde_json::Value;

use crate::support::{git, until};
use crate::workspaces::{Bed, COMMITS};

/// The steps of an agent that notes the files that it finds.
const LOOKS: &[&str] = &["authenticate", "get-my-task", "run:ls >../seen", "report:success"];

/// The steps of an agent that commits only a file of its own.
const APART: &[&str] = &[
    "authenticate",
    "get-my-task",
    "run:echo $AGENT_ID >$AGENT_ID.txt; git add $AGENT_ID.txt; git commit -qm work",
    "report:success",
];

impl Bed {
    /// Returns what the agent of a task noted beside its clone.
    fn seen(&self, task: &str) -> String {
        let seen = self.tree(task).parent().unwrap().join("seen");
        fs::read_to_string(seen).unwrap_or_default()
    }

    /// Returns the last commit of the work on a task.
    fn result(&self, task: &str) -> String {
        let shown = self.daemon.json(&["workspace", "show", task]);
        shown["content"]["head_commit"].as_str().unwrap().to_owned()
    }

    /// Adds a task that begins when both others are done.
    fn task_after(&self, agent: &str, others: [&str; 2]) {
        let [first, second] = others;
        self.daemon.done(&[
            "task",
            "add",
            "--id",
            "tsk",
            "--project",
            "prj",
            "--assignee",
            agent,
            "--title",
            "both",
            "--status",
            "in_progress",
            "--depends-on",
            first,
            "--depends-on",
            second,
        ]);
    }
}

#[test]
fn work_begins_at_the_configured_base_on_the_configured_branch() {
    let settings =
        "workspace: { keep: off, base: working_tree, branch: \"work/{agent_id}/{task_id}\" }";
    let agents: &[(&str, &[&str])] = &[("one", APART)];
    let bed = Bed::configured(settings, agents).daemon_with_clones(agents);
    let daemon = &bed.daemon;
    fs::write(daemon.work().join("open.txt"), "open\n").unwrap();
    daemon.task("tsk", "prj", "one");
    let kept = bed.until_kept("tsk");
    assert_eq!(kept["branch"], "work/one/prj-1");
    assert_eq!(kept["content"]["n_commits"], 1);
    assert_eq!(fs::read_to_string(bed.tree("tsk").join("open.txt")).unwrap(), "open\n");
    let diff = daemon.done(&["task", "diff", "tsk", "--stat"]);
    assert!(diff.contains("one.txt") && !diff.contains("open.txt"), "{diff}");
    let refused = daemon.cli(&["task", "merge", "tsk", "--into", "work/one/prj-1"]);
    assert!(refused.stderr.contains("cannot get the result"), "{}", refused.stderr);
    // A base that names nothing is shown, and mended by a change of the configuration.
    daemon.configure("workspace: { keep: off, base: mian }");
    daemon.done(&["reload"]);
    daemon.task("tsk_2", "prj", "one");
    until("the base is named", || {
        let shown = daemon.cli(&["workspace", "show", "tsk_2"]).stdout;
        shown.contains("broken") && shown.contains("did you mean `main`?")
    });
    daemon.configure("workspace: { keep: off, base: main }");
    daemon.done(&["reload"]);
    daemon.done(&["workspace", "retry", "tsk_2"]);
    bed.until_kept("tsk_2");
}

#[test]
fn patterns_and_bases_that_git_does_not_allow_are_refused() {
    let bed = Bed::configured("", &[]);
    std::os::unix::fs::symlink("/srv", bed.daemon.folder().join("link")).unwrap();
    for (settings, expected) in [
        ("branch: agents/x", "two tasks would have one branch"),
        (
            "root: clones",
            "expected an absolute path below `/`, such as `/srv/clones`, found `clones`",
        ),
        ("root: //srv/clones", "expected an absolute path"),
        ("root: /", "expected an absolute path"),
        ("root: /srv/../clones", "expected an absolute path"),
        ("root: FOLDER/link", "is a symbolic link to `/srv`"),
        ("submodules: yes", "workspace.submodules"),
        ("lfs: files", "expected `auto` or `pointers`"),
        ("branch: \"{task_id}.lock\"", "no such name"),
        ("base: \"-rf\"", "name a branch, a tag, a commit"),
        ("paths: [src]", "`workspace.paths` was removed"),
        ("branch: \"a..b/{task_id}\"", "workspace.branch"),
        ("branch: \"{task_id}/\"", "workspace.branch"),
        ("max_disk: 63 MiB", "workspace.max_disk"),
        ("shared_at_once: 0", "workspace.shared_at_once"),
        ("keep: 0s", "workspace.keep"),
        ("rebuildable: target", "workspace.rebuildable"),
        ("mode: clone", "workspace"),
    ] {
        bed.daemon.configure(&format!("workspace: {{ {settings} }}"));
        let said = bed.daemon.cli(&["check"]);
        assert!(said.code != 0 && said.stderr.contains(expected), "{settings}: {}", said.stderr);
    }
}

#[test]
fn a_task_begins_at_the_results_that_it_depends_on() {
    let bed = Bed::new(&[("one", APART), ("two", APART), ("three", LOOKS)]);
    let daemon = &bed.daemon;
    daemon.task("tsk_1", "prj", "one");
    daemon.task("tsk_2", "prj", "two");
    bed.task_after("three", ["tsk_1", "tsk_2"]);
    until("it is done", || daemon.task_status("tsk") == "done");
    let seen = bed.seen("tsk");
    assert!(seen.contains("one.txt") && seen.contains("two.txt"), "{seen}");
    assert_eq!(bed.read("one.txt"), "", "nothing was merged for it");
    let answers = daemon.done(&["logs", "three", "prj"]);
    for task in ["tsk_1", "tsk_2"] {
        assert!(answers.contains(&bed.result(task)), "{task}: {answers}");
    }
}

#[test]
fn a_task_is_told_of_results_that_conflict() {
    let bed = Bed::new(&[("one", COMMITS), ("two", COMMITS), ("three", LOOKS)]);
    let daemon = &bed.daemon;
    daemon.task("tsk_1", "prj", "one");
    daemon.task("tsk_2", "prj", "two");
    bed.task_after("three", ["tsk_1", "tsk_2"]);
    until("it is done", || daemon.task_status("tsk") == "done");
    let seen = bed.seen("tsk");
    assert!(!seen.contains("one.txt") && !seen.contains("two.txt"), "{seen}");
    let answers = daemon.done(&["logs", "three", "prj"]);
    for task in ["tsk_1", "tsk_2"] {
        let commit = bed.result(task);
        let told = format!("{{\"commit\":\"{commit}\",\"task_id\":\"{task}\"}}");
        assert!(answers.contains(&told), "{answers}");
    }
}

#[test]
fn a_task_that_needs_a_result_to_be_chosen_says_so_and_begins_after_the_choice() {
    let parts: &[&str] = &[
        "authenticate",
        "get-my-task",
        "run:git checkout -qb x; echo x >x.txt; git add x.txt; git commit -qm x",
        "run:git checkout -qb y HEAD^; echo y >y.txt; git add y.txt; git commit -qm y",
        "run:git checkout -q agents/prj-1",
        "report:success",
    ];
    let bed = Bed::new(&[("one", parts), ("two", APART), ("three", LOOKS)]);
    let daemon = &bed.daemon;
    daemon.task("tsk_1", "prj", "one");
    daemon.task("tsk_2", "prj", "two");
    bed.task_after("three", ["tsk_1", "tsk_2"]);
    let told = "PRJ-1 has several results; `task result PRJ-1 --take BRANCH` takes one";
    until("the task says why it waits", || {
        daemon.json(&["task", "show", "tsk"])["waiting"]["text"] == told
    });
    assert_eq!(daemon.json(&["task", "show", "tsk"])["waiting"]["reason"], "result_to_choose");
    assert_eq!(daemon.json(&["workspace", "show", "tsk"])["reason"], told);
    assert!(daemon.done(&["why", "three", "prj"]).contains(told));
    let page = daemon.page("/ui/tasks/PRJ-3", "ja");
    assert!(page.contains("PRJ-1 に結果が複数あり"), "{page}");
    daemon.done(&["task", "result", "tsk_1", "--take", "y"]);
    until("the task is done", || daemon.task_status("tsk") == "done");
    let seen = bed.seen("tsk");
    assert!(seen.contains("y.txt") && !seen.contains("x.txt"), "{seen}");
}

#[test]
fn a_subtask_of_another_agent_begins_at_the_commit_above_and_gives_its_own_back() {
    let asks = "call get_my_task_progress '{}'";
    let waits =
        format!("run:until {asks} | grep -q '\"is_complete\":true'; do rest 0.1; done; {asks}");
    let merges = format!(
        "run:git merge -q --no-edit $({asks} | grep -o '\"commit\":\"[0-9a-f]*' | cut -d'\"' -f4)"
    );
    let above = [&APART[..3], &["wait-for:go", &waits, &merges, "report:success"]].concat();
    let below = [&APART[..2], &["run:ls >../seen"], &APART[2..]].concat();
    let bed = Bed::new(&[("one", &above), ("two", &below)]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    daemon.until_in_state("one", "running");
    until("the agent above has committed", || {
        let tree = daemon.cli(&["workspace", "path", "tsk"]).stdout;
        let head = std::path::Path::new(tree.trim()).join(".git/refs/heads/agents/prj-1");
        let main = git(&daemon.work(), &["rev-parse", "main"]);
        fs::read_to_string(head).is_ok_and(|head| head.trim() != main)
    });
    daemon.done(&[
        "task",
        "add",
        "--id",
        "part",
        "--project",
        "prj",
        "--assignee",
        "two",
        "--title",
        "part",
        "--parent",
        "tsk",
        "--status",
        "in_progress",
    ]);
    until("the part is done", || daemon.task_status("part") == "done");
    let seen = bed.seen("part");
    assert!(seen.contains("one.txt"), "it begins at the newest commit above: {seen}");
    let part = bed.until_kept("part");
    assert_eq!(part["branch"], "agents/prj-2");
    fs::write(bed.tree("tsk").join("go"), "").unwrap();
    until("the task is done", || daemon.task_status("tsk") == "done");
    bed.until_kept("tsk");
    daemon.done(&["task", "merge", "tsk"]);
    assert_eq!((bed.read("one.txt"), bed.read("two.txt")), ("one\n".into(), "two\n".into()));
}

#[test]
fn removed_clones_are_listed_with_all() {
    let bed = Bed::new(&[("one", APART)]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    bed.until_kept("tsk");
    daemon.done(&["task", "merge", "tsk"]);
    until("its files are removed", || {
        daemon.json(&["workspace", "list"]) == Value::Array(Vec::new())
    });
    let all = daemon.json(&["workspace", "list", "--all", "--project", "prj"]);
    assert_eq!((&all[0]["short_id"], &all[0]["state"]), (&"PRJ-1".into(), &"removed".into()));
    assert!(daemon.done(&["workspace", "list", "--all"]).contains("removed"));
    assert_eq!(daemon.done(&["workspace", "list"]).lines().count(), 1);
}

#[test]
fn a_clone_has_only_the_folders_of_its_hook_and_its_result_has_all_files() {
    let steps: &[&str] = &[
        "authenticate",
        "get-my-task",
        "run:ls . * >../seen; echo changed >src/a.txt; git commit -qam work; echo >src/left.txt",
        "report:success",
    ];
    let agents: &[(&str, &[&str])] = &[("one", steps)];
    let hook = "hooks: { after_create: [git, sparse-checkout, set, src] }";
    let bed = Bed::configured(&format!("workspace: {{ keep: off, {hook} }}"), agents);
    for name in ["src/a.txt", "docs/b.txt"] {
        let path = bed.daemon.work().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "first\n").unwrap();
    }
    git(&bed.daemon.work(), &["add", "."]);
    git(&bed.daemon.work(), &["commit", "-qm", "folders"]);
    let bed = bed.daemon_with_clones(agents);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    let kept = bed.until_kept("tsk");
    let seen = bed.seen("tsk");
    assert!(seen.contains("a.txt") && seen.contains("common.txt"), "{seen}");
    assert!(!seen.contains("docs"), "{seen}");
    let content = &kept["content"];
    let found = (&content["n_files"], &content["n_uncommitted"], &content["is_complete"]);
    assert_eq!(found, (&1.into(), &1.into(), &true.into()), "{kept}");
    // Without an identity, the person at the control socket is the author under a name.
    git(&daemon.work(), &["config", "user.name", ""]);
    daemon.done(&["task", "merge", "tsk", "--squash", "--with-uncommitted"]);
    let author = git(&daemon.work(), &["log", "-1", "--format=%an <%ae>"]);
    assert!(!author.contains("local:") && !author.starts_with(' '), "{author}");
    assert!(author.ends_with("@agent-coordinator.invalid>"), "{author}");
    assert_eq!(
        (bed.read("src/a.txt"), bed.read("src/left.txt")),
        ("changed\n".into(), "\n".into())
    );
    assert_eq!(bed.read("docs/b.txt"), "first\n");
}

#[test]
fn a_project_has_a_base_and_branches_of_its_own() {
    let agents: &[(&str, &[&str])] = &[("one", APART)];
    let settings = "workspace: { keep: off, base: nothing, branch: \"conf/{task_id}\" }";
    let bed = Bed::configured(settings, agents);
    git(&bed.daemon.work(), &["branch", "release"]);
    let bed = bed.daemon_with_clones(agents);
    let daemon = &bed.daemon;
    let set = |arguments: &[&str]| daemon.cli(&[&["project", "set", "prj"], arguments].concat());
    for (arguments, problem) in [
        (["--base", "-x"], "the `base` of the project's workspaces: name a branch"),
        (["--base", "a..b"], "the `base` of the project's workspaces"),
        (["--branch", "agents/x"], "two tasks would have one branch"),
        (["--branch", "a b/{task_id}"], "is not allowed in it"),
    ] {
        let arguments = [format!("{}={}", arguments[0], arguments[1])];
        let said = set(&[arguments[0].as_str()]);
        assert!(said.code != 0 && said.stderr.contains(problem), "{arguments:?}: {said:?}");
    }
    let before = daemon.json(&["project", "show", "prj"]);
    assert!(before["workspace_base"].is_null() && before["workspace_branch"].is_null());
    let said = set(&["--base", "release", "--branch", "work/{agent_id}/{task_id}"]);
    assert!(said.stdout.contains("work begins at release"), "{said:?}");
    daemon.task("tsk", "prj", "one");
    let kept = bed.until_kept("tsk");
    assert_eq!((&kept["branch"], &kept["base"]), (&"work/one/prj-1".into(), &"release".into()));
    // The settings of the configuration count again.
    set(&["--base", "", "--branch", ""]);
    let after = daemon.json(&["project", "show", "prj"]);
    assert!(after["workspace_base"].is_null() && after["workspace_branch"].is_null());
    daemon.task("tsk_2", "prj", "one");
    until("the base of the configuration is missed", || {
        let shown = daemon.json(&["workspace", "show", "tsk_2"]);
        shown["reason"].as_str().is_some_and(|reason| reason.contains("is `nothing`"))
    });
    assert_eq!(daemon.json(&["workspace", "show", "tsk_2"])["branch"], "conf/prj-2");
}

#[test]
fn a_manifest_sets_the_base_and_the_branches_of_a_project() {
    let bed = Bed::new(&[]);
    let daemon = &bed.daemon;
    let work = daemon.work();
    let apply = |workspace: &str| {
        let work = work.display();
        daemon.apply(&format!(
            "projects: {{ two: {{ working_directory: {work}, workspace: {workspace} }} }}"
        ));
        let shown = daemon.json(&["project", "show", "two"]);
        assert_eq!(shown["workspace"], "clone", "{workspace}");
        (shown["workspace_base"].clone(), shown["workspace_branch"].clone())
    };
    let own = (Value::from("main"), Value::from("m/{task_id}"));
    assert_eq!(apply("{ mode: clone, base: main, branch: \"m/{task_id}\" }"), own);
    // Keys that are not there stay as they are.
    assert_eq!(apply("clone"), own);
    assert_eq!(apply("{ mode: clone, base: \"\" }"), (Value::Null, own.1));
}
