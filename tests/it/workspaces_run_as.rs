//! Clones of agents that run as other users than the daemon, with the real binary. They need root,
//! two ordinary users, and that these may run what was built here.
#![allow(clippy::unwrap_used, reason = "a test")]

mod hostile;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use machine::crash_point::{CrashPoint, VARIABLE};
use rustix::process::Signal;
use serde_json::Value;

use crate::daemon::Daemon;
use crate::isolation::{USER, other_user};
use crate::support::{agent_fixture, git, skip, until};
use crate::workspaces::{Bed, COMMITS};

/// The id of a second ordinary user, `daemon` on almost every system.
const SECOND: u32 = 1;
/// The content of a file that only root can read.
const SECRET: &str = "only root may read this";

/// A daemon of root. The provider `claude` is for the first user, `second` for the other one, and
/// `plain` for root.
struct Users {
    bed: Bed,
    root: PathBuf,
}

impl Users {
    /// Returns `None`, with the reason, if the tests cannot become these users. Each agent has an
    /// id, a provider and its steps.
    fn new(more: &str, agents: &[(&str, &str, &[&str])]) -> Option<Self> {
        let first = other_user()?;
        let Ok(Some(second)) = nix::unistd::User::from_uid(SECOND.into()) else {
            skip("there is no user of id 1");
            return None;
        };
        let steps: Vec<(&str, &[&str])> =
            agents.iter().map(|(agent, _, steps)| (*agent, *steps)).collect();
        let mut bed = Bed::configured("", &steps);
        let folder = bed.daemon.folder().to_owned();
        fs::set_permissions(&folder, Permissions::from_mode(0o711)).unwrap();
        fs::write(folder.join("secret"), SECRET).unwrap();
        fs::set_permissions(folder.join("secret"), Permissions::from_mode(0o600)).unwrap();
        // Each user can write there.
        fs::create_dir(folder.join("beside")).unwrap();
        fs::set_permissions(folder.join("beside"), Permissions::from_mode(0o1777)).unwrap();
        let root = folder.join("clones");
        let program = agent_fixture();
        let entry = |name: &str, more: &str| {
            format!(
                "  {name}: {{ cli_command: {}, cli_args: [script]{more} }}\n",
                program.display()
            )
        };
        let entries = [
            entry("claude", &format!(", run_as: {first}")),
            entry("second", &format!(", run_as: {}", second.name)),
            entry("plain", ""),
        ];
        let (shown, beside) = (root.display(), folder.join("beside"));
        let more = more.replace("BESIDE", beside.to_str().unwrap());
        let more = more.replace("ROOT", root.to_str().unwrap());
        let root_setting = if more.contains("workspace:") {
            String::new()
        } else {
            format!("workspace: {{ keep: off, root: {shown} }}\n")
        };
        bed.daemon.configure(&format!(
            "mcp_socket_path: run/mcp.sock\nbackoff: {{ initial: 10ms, max: 10ms }}\n\
             {root_setting}{more}\nai_providers:\n{}",
            entries.concat()
        ));
        bed.daemon.start();
        let work = bed.daemon.work();
        let add = ["project", "add", "prj", "--directory", work.to_str().unwrap()];
        bed.daemon.done(&[&add[..], &["--workspace", "clone"]].concat());
        for (agent, provider, _) in agents {
            bed.daemon.done(&["agent", "add", agent, "--ai-type", provider]);
            bed.daemon.done(&["project", "set", "prj", "--assign", agent]);
        }
        Some(Self { bed, root })
    }

    fn daemon(&self) -> &Daemon {
        &self.bed.daemon
    }

    fn project(&self) -> PathBuf {
        self.root.join("prj")
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.daemon().folder().join("beside").join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.beside(name)).unwrap_or_default()
    }

    fn secret(&self) -> PathBuf {
        self.daemon().folder().join("secret")
    }

    fn shown(&self) -> Value {
        self.daemon().json(&["workspace", "show", "tsk"])
    }

    /// Waits until the agent has written the file, in its clone.
    fn until_written(&self, name: &str) -> PathBuf {
        until(&format!("`{name}` is in the clone"), || {
            let said = self.daemon().cli(&["workspace", "path", "tsk"]);
            said.code == 0 && Path::new(said.stdout.trim()).join(name).exists()
        });
        self.bed.tree("tsk")
    }

    fn until_state(&self, state: &str) -> Value {
        until(&format!("the clone is {state}"), || self.shown()["state"] == state);
        self.shown()
    }

    /// Returns the content of all objects of the keep repository.
    fn all_kept(&self) -> String {
        let output = Command::new("git")
            .arg("--git-dir")
            .arg(self.project().join("keep.git"))
            .args(["cat-file", "--batch-all-objects", "--batch"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Returns whether a user can run a command, whose output is not shown.
fn can(user: u32, program: &str, arguments: &[&Path]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).uid(user).gid(user).current_dir("/");
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
}

#[test]
fn an_agent_of_another_user_works_in_its_clone_and_the_result_is_merged_and_removed() {
    let steps: &[&str] = &[
        "authenticate",
        "get-my-task",
        "run:echo one >one.txt; echo one >>common.txt; git add one.txt common.txt",
        // The second launch finds `ready` and leaves the file as it came back.
        "run:[ -e ready ] || { git commit -qm work; git log --oneline | wc -l >left.txt; id -u >>left.txt; }",
        "run:for path in .. ../.. ../../keep.git ../../files.git/info/exclude ../scratch/../made.json; do \
         cat $path >/dev/null 2>&1 && echo $path >>left.txt; ls $path/ >/dev/null 2>&1 && echo $path >>left.txt; \
         done; for path in .. ../.. ../../keep.git ../../lent-$(id -u)/objects/pack; do \
         touch $path/x 2>/dev/null && echo $path >>left.txt; done; true",
        "write:ready",
        "wait-for:go",
        "report:success",
    ];
    let Some(mut users) = Users::new("", &[("one", "claude", steps)]) else { return };
    users.daemon().task("tsk", "prj", "one");
    let tree = users.until_written("ready");
    assert_eq!(fs::read_to_string(tree.join("left.txt")).unwrap(), format!("2\n{USER}\n"));
    for entry in [tree.clone(), tree.join("common.txt"), tree.join(".git/HEAD")] {
        let found = fs::metadata(&entry).unwrap();
        assert_eq!(found.uid(), USER, "{}", entry.display());
    }
    assert_eq!(fs::metadata(&tree).unwrap().mode() & 0o777, 0o700);
    for path in ["keep.git", "keep.git/objects", "lent-65534"] {
        let path = users.project().join(path);
        assert!(!can(USER, "ls", &[&path]), "{}", path.display());
    }
    let diff = users.daemon().done(&["task", "diff", "tsk"]);
    assert!(diff.contains("+++ b/one.txt"), "while the agent works: {diff}");
    // The next daemon goes on with the agent and its clone.
    users.bed.daemon.kill();
    users.bed.daemon.start();
    fs::write(tree.join("go"), "").unwrap();
    let kept = users.bed.until_kept("tsk");
    let content = &kept["content"];
    let found = (&content["n_commits"], &content["n_uncommitted"], &content["is_complete"]);
    assert_eq!(found, (&1.into(), &3.into(), &true.into()), "{kept}");
    let left = users.daemon().done(&["task", "diff", "tsk", "--uncommitted"]);
    assert!(left.contains("+++ b/left.txt"), "{left}");
    users.daemon().done(&["task", "merge", "tsk"]);
    assert_eq!(users.bed.read("common.txt"), "common\none\n");
    users.daemon().done(&["task", "discard", "tsk"]);
    users.until_state("removed");
    let names = fs::read_dir(users.project()).unwrap().flatten().map(|entry| entry.file_name());
    let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    assert_eq!(names, ["files.git", "keep.git", "lent-65534"]);
    assert_eq!(git(&users.project().join("keep.git"), &["fsck", "--no-dangling"]), "");
    // The task goes on where it was.
    users.daemon().done(&["task", "set", "tsk", "--status", "todo"]);
    users.daemon().done(&["task", "set", "tsk", "--status", "in_progress"]);
    let tree = users.until_written("ready");
    assert_eq!(fs::metadata(tree.join("one.txt")).unwrap().uid(), USER);
    assert!(fs::read_to_string(tree.join("left.txt")).unwrap().starts_with('2'));
}

#[test]
fn two_users_work_in_one_project_and_get_only_each_others_commits() {
    let asks = "call get_my_task_progress '{}'";
    let waits =
        format!("run:until {asks} | grep -q '\"is_complete\":true'; do rest 0.1; done; {asks}");
    let merges = format!(
        "run:git merge -q --no-edit $({asks} | grep -o '\"commit\":\"[0-9a-f]*' | cut -d'\"' -f4)"
    );
    let apart = &[
        "authenticate",
        "get-my-task",
        "run:echo pri''vate >$AGENT_ID.left; echo $AGENT_ID >$AGENT_ID.txt; git add $AGENT_ID.txt; git commit -qm work",
    ];
    let above =
        [&apart[..], &["write:ready", "wait-for:go", &waits, &merges, "report:success"]].concat();
    let below = [&apart[..], &["report:success"]].concat();
    let agents: &[(&str, &str, &[&str])] = &[("one", "claude", &above), ("two", "second", &below)];
    let Some(users) = Users::new("", agents) else { return };
    let daemon = users.daemon();
    daemon.task("tsk", "prj", "one");
    let tree = users.until_written("ready");
    let part = ["task", "add", "--id", "part", "--project", "prj", "--assignee", "two"];
    let rest = ["--title", "part", "--parent", "tsk", "--status", "in_progress"];
    daemon.done(&[&part[..], &rest[..]].concat());
    until("the part is done", || daemon.task_status("part") == "done");
    users.bed.until_kept("part");
    let theirs = users.bed.tree("part");
    assert_eq!(fs::metadata(theirs.join("one.txt")).unwrap().uid(), SECOND);
    let lent = |user: u32| users.project().join(format!("lent-{user}/objects/pack"));
    for (user, other, other_tree) in [(USER, SECOND, &theirs), (SECOND, USER, &tree)] {
        assert!(can(user, "ls", &[&lent(user)]));
        assert!(!can(user, "ls", &[&lent(other)]));
        assert!(!can(user, "ls", &[other_tree]));
        assert!(!can(user, "ls", &[&other_tree.join("../scratch")]));
        assert!(!can(user, "cat", &[&other_tree.join("common.txt")]));
        assert!(!can(user, "ls", &[&users.project().join("keep.git/objects")]));
    }
    fs::write(tree.join("go"), "").unwrap();
    until("the task is done", || daemon.task_status("tsk") == "done");
    users.bed.until_kept("tsk");
    daemon.done(&["task", "merge", "tsk"]);
    let read = |name: &str| users.bed.read(name);
    assert_eq!((read("one.txt"), read("two.txt")), ("one\n".into(), "two\n".into()));
    // Files in no commit are not lent.
    for user in [USER, SECOND] {
        let lent = users.project().join(format!("lent-{user}/objects"));
        let output = Command::new("git")
            .arg("--git-dir")
            .arg(users.project().join("files.git"))
            .env("GIT_OBJECT_DIRECTORY", &lent)
            .args(["cat-file", "--batch-all-objects", "--batch"])
            .output()
            .unwrap();
        let all = String::from_utf8_lossy(&output.stdout);
        assert!(all.contains("work") && !all.contains("private"), "{user}: {all}");
    }
}

#[test]
fn another_users_agent_goes_on_in_a_clone_of_its_own() {
    let first: &[&str] = &[
        "authenticate",
        "get-my-task",
        "run:[ -e one.txt ] || { echo one >one.txt; git add one.txt; git commit -qm work; }; echo half >half.txt",
        "run:mkdir -p hooks; printf '#!/bin/sh\\nid -u >>BESIDE\\n' >hooks/post-commit; chmod +x hooks/post-commit; git config core.hooksPath $PWD/hooks",
        "report:success",
    ];
    let next: &[&str] = &[
        "authenticate",
        "get-my-task",
        "run:id -u >>half.txt; git add half.txt && git commit -qm next",
        "report:success",
    ];
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    let ran = folder.path().join("ran");
    let first: Vec<String> =
        first.iter().map(|step| step.replace("BESIDE", ran.to_str().unwrap())).collect();
    let first: Vec<&str> = first.iter().map(String::as_str).collect();
    let agents: &[(&str, &str, &[&str])] =
        &[("one", "claude", &first), ("two", "second", next), ("root", "plain", next)];
    let Some(users) = Users::new("", agents) else { return };
    users.daemon().task("tsk", "prj", "one");
    users.bed.until_kept("tsk");
    let mut n_commits = 1;
    let mut half = "half\n".to_owned();
    for (agent, user) in [("two", SECOND), ("root", 0), ("one", USER)] {
        users.daemon().done(&["task", "set", "tsk", "--status", "todo"]);
        users.daemon().done(&["task", "set", "tsk", "--assignee", agent]);
        users.daemon().done(&["task", "set", "tsk", "--status", "in_progress"]);
        if agent == "one" {
            half = "half\n".to_owned();
        } else {
            n_commits += 1;
            half.push_str(&user.to_string());
            half.push('\n');
        }
        until(&format!("{agent} has worked"), || {
            let shown = users.shown();
            shown["state"] == "ready"
                && shown["content"]["n_commits"] == n_commits
                && users.daemon().task_status("tsk") == "done"
                && fs::metadata(users.bed.tree("tsk")).is_ok_and(|found| found.uid() == user)
        });
        let tree = users.bed.tree("tsk");
        assert_eq!(fs::read_to_string(tree.join("half.txt")).unwrap(), half, "{agent}");
        assert_eq!(fs::metadata(tree.join("one.txt")).unwrap().uid(), user);
        assert!(!ran.exists(), "the hook of the first user ran: {agent}");
    }
    users.daemon().done(&["task", "merge", "tsk"]);
    assert_eq!(users.bed.read("one.txt"), "one\n");
}

#[test]
fn hooks_and_checks_run_as_the_user_of_the_agent() {
    let more = "checks:\n  tests: { command: [sh, -c, \"id -u >BESIDE/check; cat one.txt\"] }\n\
          \x20 fresh: { clean: true, command: [sh, -c, \"id -u >BESIDE/fresh; git log -1; cat one.txt\"] }\n\
        workspace:\n  keep: off\n  root: ROOT\n  hooks:\n    timeout: 1h\n";
    let hook = |name: &str| {
        format!(
            "    {name}: [sh, -c, \"id -u >BESIDE/{name}; echo $$HOME >>BESIDE/{name}; ls >/dev/null\"]\n"
        )
    };
    let hooks = ["after_create", "before_run", "after_run", "before_remove"];
    let more = more.to_owned() + &hooks.map(hook).concat();
    let agents: &[(&str, &str, &[&str])] = &[("one", "claude", COMMITS)];
    let Some(users) = Users::new(&more, agents) else { return };
    users.daemon().task("tsk", "prj", "one");
    until("the task is done", || users.daemon().task_status("tsk") == "done");
    users.bed.until_kept("tsk");
    users.daemon().done(&["task", "discard", "tsk"]);
    users.until_state("removed");
    for name in hooks.iter().chain(&["check", "fresh"]) {
        let said = users.read(name);
        assert!(
            said.starts_with(&format!("{USER}\n")) && !said.contains("/root"),
            "{name}: {said}"
        );
    }
}

#[test]
fn a_clone_that_the_user_cannot_reach_is_refused_with_the_folder_in_the_way() {
    let more = "workspace: { keep: off }";
    let Some(users) = Users::new(more, &[("one", "claude", COMMITS)]) else { return };
    users.daemon().task("tsk", "prj", "one");
    let shown = users.until_state("broken");
    let reason = shown["reason"].as_str().unwrap();
    let state = users.daemon().state();
    let expected = format!("may not enter `{}`", state.canonicalize().unwrap().display());
    assert!(reason.contains(&expected) && reason.contains("workspace.root"), "{reason}");
}

/// The moments of a clone's life at which the daemon dies.
const MOMENTS: [CrashPoint; 8] = [
    CrashPoint::WorkspaceCheckedOut,
    CrashPoint::WorkspaceMade,
    CrashPoint::ObjectsCopied,
    CrashPoint::ObjectsTaken,
    CrashPoint::FilesTaken,
    CrashPoint::ContentKept,
    CrashPoint::WorkspaceInTrash,
    CrashPoint::WorkspaceRemoved,
];

#[test]
fn whenever_the_daemon_dies_the_next_one_has_the_whole_result() {
    for point in MOMENTS {
        let steps = [&COMMITS[..4], &["run:echo left >left.txt", "report:success"]].concat();
        let Some(mut users) = Users::new("", &[("one", "claude", &steps)]) else { return };
        users.bed.daemon.terminate();
        let mut command = users.bed.daemon.command();
        command.env(VARIABLE, format!("{point:?}"));
        users.bed.daemon.spawn_as(command);
        users.bed.daemon.until_ready();
        users.daemon().try_task("tsk", "prj", "one");
        let is_end = matches!(point, CrashPoint::WorkspaceInTrash | CrashPoint::WorkspaceRemoved);
        if is_end {
            users.bed.until_kept("tsk");
            users.daemon().cli(&["task", "discard", "tsk"]);
        }
        assert_eq!(users.bed.daemon.wait().signal(), Some(Signal::KILL.as_raw()), "{point:?}");
        users.bed.daemon.start();
        if is_end {
            users.until_state("removed");
        } else {
            users.bed.until_kept("tsk");
        }
        let content = &users.shown()["content"];
        let found = (&content["n_commits"], &content["n_uncommitted"], &content["is_complete"]);
        assert_eq!(found, (&1.into(), &1.into(), &true.into()), "{point:?}");
        let names = fs::read_dir(users.project()).unwrap().flatten().map(|entry| entry.file_name());
        let remains: Vec<_> =
            names.filter(|name| name.to_string_lossy().starts_with('.')).collect();
        assert!(remains.is_empty(), "{point:?} left {remains:?}");
        let keep = users.project().join("keep.git");
        assert_eq!(git(&keep, &["fsck", "--no-dangling"]), "", "{point:?}");
        users.daemon().done(&["task", "merge", "tsk"]);
        assert_eq!(users.bed.read("common.txt"), "common\none\n", "{point:?}");
    }
}

#[test]
fn a_clone_that_is_not_kept_as_a_whole_stays_until_a_person_decides() {
    let first = [&COMMITS[..4], &["run:mkfifo pipe", "report:success"]].concat();
    let next: &[&str] = &["authenticate", "get-my-task", "run:id -u >two.txt", "report:success"];
    let agents: &[(&str, &str, &[&str])] = &[("one", "claude", &first), ("two", "second", next)];
    let Some(users) = Users::new("", agents) else { return };
    users.daemon().task("tsk", "prj", "one");
    users.bed.until_kept("tsk");
    let tree = users.bed.tree("tsk");
    users.daemon().done(&["task", "set", "tsk", "--status", "todo"]);
    users.daemon().done(&["task", "set", "tsk", "--assignee", "two"]);
    users.daemon().done(&["task", "set", "tsk", "--status", "in_progress"]);
    let shown = users.until_state("broken");
    let reason = shown["reason"].as_str().unwrap();
    let folder = tree.parent().unwrap();
    assert!(reason.contains("pipe: it is a special file"), "{reason}");
    assert!(reason.contains(folder.to_str().unwrap()), "{reason}");
    fs::rename(folder, users.beside("aside")).unwrap();
    users.daemon().done(&["workspace", "retry", "tsk"]);
    until("the task is done", || users.daemon().task_status("tsk") == "done");
    let tree = users.bed.tree("tsk");
    assert_eq!(fs::read_to_string(tree.join("two.txt")).unwrap(), format!("{SECOND}\n"));
    assert_eq!(fs::metadata(tree.join("one.txt")).unwrap().uid(), SECOND);
}

#[test]
fn repositories_inside_a_clone_come_back_in_the_clone_of_another_user() {
    let inside = "git -C inner -c user.name=a -c user.email=a@example.org commit -qm";
    let makes = format!(
        "run:git init -q inner; echo in >inner/in.txt; git -C inner add in.txt; {inside} inside; \
         git -C inner branch other; echo more >inner/more.txt; \
         echo one >one.txt; git add one.txt; git commit -qm work"
    );
    let looks = format!(
        "run:{{ git -C inner status --porcelain; git -C inner log --format=%s other; \
         cat inner/in.txt; }} >seen; git -C inner add .; {inside} next"
    );
    let first = ["authenticate", "get-my-task", &makes, "report:success"];
    let next = ["authenticate", "get-my-task", &looks, "report:success"];
    let agents: &[(&str, &str, &[&str])] = &[("one", "claude", &first), ("two", "second", &next)];
    let Some(users) = Users::new("", agents) else { return };
    users.daemon().task("tsk", "prj", "one");
    users.bed.until_kept("tsk");
    let shown = users.shown();
    assert_eq!(shown["content"]["is_complete"], true, "{shown}");
    users.daemon().done(&["task", "set", "tsk", "--status", "todo"]);
    users.daemon().done(&["task", "set", "tsk", "--assignee", "two"]);
    users.daemon().done(&["task", "set", "tsk", "--status", "in_progress"]);
    users.until_written("seen");
    until("the task is done", || users.daemon().task_status("tsk") == "done");
    let tree = users.bed.tree("tsk");
    assert_eq!(fs::metadata(tree.join("inner/in.txt")).unwrap().uid(), SECOND);
    assert_eq!(fs::read_to_string(tree.join("seen")).unwrap(), "?? more.txt\ninside\nin\n");
    users.bed.until_kept("tsk");
    let shown = users.shown();
    assert_eq!(shown["content"]["is_complete"], true, "{shown}");
    let kept = shown["content"]["kept_commit"].as_str().unwrap();
    let keep = users.project().join("keep.git");
    let log = git(&keep, &["log", "--format=%s", kept]);
    assert!(log.lines().any(|line| line == "next"), "the commits inside are kept: {log}");
}

#[test]
fn files_that_commits_have_and_gitignore_names_are_kept_for_another_user() {
    let works = "run:echo dist/ >.gitignore; mkdir dist; echo one >dist/one.txt; echo two >dist/two.txt; \
         git add .gitignore; git add -f dist; git commit -qm work; echo more >>dist/two.txt";
    let steps = ["authenticate", "get-my-task", works, "report:success"];
    let Some(users) = Users::new("", &[("one", "claude", &steps)]) else { return };
    users.daemon().task("tsk", "prj", "one");
    users.bed.until_kept("tsk");
    let shown = users.shown();
    let content = &shown["content"];
    let found = (&content["n_commits"], &content["n_uncommitted"], &content["is_complete"]);
    assert_eq!(found, (&1.into(), &1.into(), &true.into()), "{shown}");
}

#[test]
fn a_clone_of_another_user_has_submodules_and_their_commits_are_kept() {
    let works = "run:cat lib/lib.txt >seen; git status --porcelain -- lib >>seen; \
         echo two >lib/two.txt; git -C lib add two.txt; git -C lib commit -qm in-lib; \
         git add lib seen; git commit -qm outside";
    let steps = ["authenticate", "get-my-task", works, "report:success"];
    let more = "checks:\n  fresh: { clean: true, command: [cat, lib/two.txt] }\n\
        workspace: { keep: off, root: ROOT, submodules: true }\n";
    let Some(users) = Users::new(more, &[("one", "claude", &steps)]) else { return };
    let work = users.daemon().work();
    let lib = work.parent().unwrap().join("lib");
    fs::create_dir(&lib).unwrap();
    git(&lib, &["init", "--quiet", "--initial-branch=main"]);
    fs::write(lib.join("lib.txt"), "lib\n").unwrap();
    git(&lib, &["add", "."]);
    git(&lib, &["commit", "--quiet", "-m", "lib"]);
    let add = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add"];
    git(&work, &[&add[..], &[lib.to_str().unwrap(), "lib"]].concat());
    git(&work, &["commit", "--quiet", "-m", "a submodule"]);
    users.daemon().task("tsk", "prj", "one");
    until("the task is done", || users.daemon().task_status("tsk") == "done");
    users.bed.until_kept("tsk");
    let shown = users.shown();
    let content = &shown["content"];
    let found = (&content["n_commits"], &content["n_uncommitted"], &content["is_complete"]);
    assert_eq!(found, (&1.into(), &0.into(), &true.into()), "{shown}");
    let tree = users.bed.tree("tsk");
    assert_eq!(fs::read_to_string(tree.join("seen")).unwrap(), "lib\n");
    assert_eq!(fs::metadata(tree.join("lib/lib.txt")).unwrap().uid(), USER);
}
