//! Clones in which an agent of another user left something that could lead root astray.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown, symlink};
use std::path::Path;

use serde_json::Value;

use super::{SECRET, Users};
use crate::isolation::USER;
use crate::support::{git, until};
use crate::workspaces::COMMITS;

/// Changes of a tree that could lead root to a file that only root can read: by the agent, and by
/// the test, which makes what the kernel does not let the agent make.
fn hostile_tree(steps: &[&str], change: impl FnOnce(&Users, &Path)) -> Option<(Users, Value)> {
    let all = [&COMMITS[..4], steps, &["write:ready", "wait-for:go", "exit:0"]].concat();
    let users = Users::new("", &[("one", "claude", &all)])?;
    users.daemon().task("tsk", "prj", "one");
    let tree = users.until_written("ready");
    change(&users, &tree);
    users.daemon().done(&["task", "set", "tsk", "--status", "cancelled"]);
    fs::write(tree.join("go"), "").unwrap();
    users.daemon().until_ended("one");
    let mut shown = Value::Null;
    until("the content is kept, or the reason is shown", || {
        shown = users.shown();
        let is_kept = shown["state"] != "in_use" && shown["content"].is_object();
        is_kept || shown["reason"].is_string()
    });
    assert!(!users.all_kept().contains(SECRET), "{shown}");
    assert_eq!(fs::read_to_string(users.secret()).unwrap(), SECRET);
    let found = fs::metadata(users.secret()).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o777), (0, 0o600), "it stays root's");
    Some((users, shown))
}

#[test]
fn links_and_pipes_in_a_tree_never_lead_to_a_file_of_root() {
    let Some((users, shown)) = hostile_tree(&["run:mkfifo pipe"], |users, tree| {
        let secret = users.secret();
        fs::remove_file(tree.join("common.txt")).unwrap();
        symlink(&secret, tree.join("common.txt")).unwrap();
        symlink(users.daemon().folder(), tree.join("folder")).unwrap();
        fs::hard_link(&secret, tree.join("hard.txt")).unwrap();
        fs::hard_link(&secret, tree.join(".git/refs/heads/hard")).unwrap();
        fs::hard_link(&secret, tree.join(".git/MERGE_HEAD")).unwrap();
        fs::create_dir_all(tree.join(".git/objects/aa")).unwrap();
        fs::hard_link(&secret, tree.join(format!(".git/objects/aa/{}", "b".repeat(38)))).unwrap();
        symlink(&secret, tree.join(format!(".git/objects/aa/{}", "c".repeat(38)))).unwrap();
        fs::hard_link(&secret, tree.join(".git/objects/pack/pack-secret.pack")).unwrap();
        git(tree, &["init", "--quiet", "inner"]);
        fs::remove_file(tree.join("inner/.git/config")).unwrap();
        fs::hard_link(&secret, tree.join("inner/.git/config")).unwrap();
        fs::hard_link(&secret, tree.join("inner/.git/refs/heads/hard")).unwrap();
        fs::hard_link(&secret, tree.join("inner/hard.txt")).unwrap();
        fs::hard_link(&secret, tree.join(".GIT")).unwrap();
        for entry in [".git", "inner", "inner/.git", "inner/.git/HEAD", "inner/.git/objects"] {
            lchown(tree.join(entry), Some(USER), Some(USER)).unwrap();
        }
    }) else {
        return;
    };
    let left_out = shown["content"]["left_out"].to_string();
    let named = ["hard.txt: it cannot be read", "pipe: it is a special file", "pack-secret.pack"];
    for part in named.into_iter().chain(["inner/hard.txt: it cannot be read", ".GIT"]) {
        assert!(left_out.contains(part), "{part} is named: {shown}");
    }
    let inbox = users.daemon().json(&["inbox", "--kind", "workspace"]).to_string();
    assert!(inbox.contains("could be kept, so its clone stays: .git/objects: "), "{inbox}");
    let keep = users.project().join("keep.git");
    let branch = shown["branch"].as_str().unwrap();
    assert_eq!(git(&keep, &["show", &format!("{branch}:one.txt")]), "one");
    let kept = shown["content"]["kept_commit"].as_str().unwrap();
    let entry = git(&keep, &["ls-tree", kept, "worktree/common.txt", "worktree/hard.txt"]);
    assert!(entry.starts_with("120000 blob") && entry.lines().count() == 1, "{entry}");
}

#[test]
fn a_repository_that_is_a_link_leads_nowhere_and_the_files_are_kept() {
    for replaced in [".git", ".git/objects", ".git/refs"] {
        let hostile = hostile_tree(&["run:echo more >more.txt"], |users, tree| {
            let elsewhere = users.daemon().folder().join("elsewhere");
            fs::create_dir(&elsewhere).unwrap();
            fs::set_permissions(&elsewhere, Permissions::from_mode(0o700)).unwrap();
            for name in ["HEAD", "packed-refs", "heads", "pack.pack", "aa"] {
                if name == "heads" || name == "aa" {
                    fs::create_dir(elsewhere.join(name)).unwrap();
                    fs::copy(users.secret(), elsewhere.join(name).join("d".repeat(38))).unwrap();
                } else {
                    fs::copy(users.secret(), elsewhere.join(name)).unwrap();
                }
            }
            fs::rename(tree.join(replaced), users.beside("aside")).unwrap();
            symlink(&elsewhere, tree.join(replaced)).unwrap();
        });
        let Some((users, shown)) = hostile else { return };
        let kept = shown["content"]["kept_commit"].as_str().unwrap_or_default();
        let keep = users.project().join("keep.git");
        assert_eq!(
            git(&keep, &["show", &format!("{kept}:worktree/more.txt")]),
            "more",
            "{replaced}: {shown}"
        );
    }
}

#[test]
fn nothing_that_an_agent_wrote_runs_when_its_clone_is_kept() {
    let steps: &[&str] = &[
        "run:printf '#!/bin/sh\\nid -u >>BESIDE\\ncat\\n' >mark; chmod +x mark; echo '* filter=mark diff=mark' >.gitattributes",
        "run:for key in filter.mark.clean filter.mark.smudge diff.mark.textconv diff.external core.fsmonitor \
         core.editor core.pager gpg.program core.sshCommand; do git config $key $PWD/mark; done; \
         mkdir hooks; for hook in post-checkout reference-transaction post-index-change pre-commit; do cp mark hooks/$hook; done; \
         git config core.hooksPath $PWD/hooks; git config core.worktree /etc",
    ];
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    let ran = folder.path().join("ran");
    let steps: Vec<String> =
        steps.iter().map(|step| step.replace("BESIDE", ran.to_str().unwrap())).collect();
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    let Some((users, shown)) = hostile_tree(&steps, |_, _| {
        // The commands of the agent itself may have run it.
        let _ = fs::remove_file(&ran);
    }) else {
        return;
    };
    assert_eq!(shown["content"]["is_complete"], true, "{shown}");
    assert!(!ran.exists(), "{}", fs::read_to_string(&ran).unwrap());
    users.daemon().done(&["task", "diff", "tsk"]);
    let to = users.daemon().folder().join("restored");
    users.daemon().done(&["task", "restore", "tsk", "--to", to.to_str().unwrap()]);
    assert!(to.join("mark").exists());
    assert!(!ran.exists(), "{}", fs::read_to_string(&ran).unwrap());
}

#[test]
fn the_settings_of_a_project_that_its_user_owns_never_run_as_root() {
    let steps: &[&str] = &[
        "authenticate",
        "get-my-task",
        "run:echo one >one.txt; git add one.txt",
        "run:git commit -qm work",
        "report:success",
    ];
    let more = "workspace: { keep: off, root: ROOT, publish: branch }\n";
    let Some(users) = Users::new(more, &[("one", "claude", steps)]) else { return };
    let work = users.daemon().work();
    let marks = users.beside("marks");
    fs::create_dir(&marks).unwrap();
    fs::set_permissions(&marks, Permissions::from_mode(0o777)).unwrap();
    let script = users.beside("mark");
    fs::write(&script, format!("#!/bin/sh\n>{}/$(id -u)\ncat\n", marks.display())).unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let script = script.display();
    let settings = format!(
        "[core]\n\talternateRefsCommand = {script}\n\tfsmonitor = {script}\n\thooksPath = hooks\n\
         [filter \"mark\"]\n\tsmudge = {script}\n\tclean = {script}\n[diff]\n\texternal = {script}\n"
    );
    let config = work.join(".git/config");
    let before = fs::read_to_string(&config).unwrap();
    fs::write(&config, before + &settings).unwrap();
    fs::write(work.join(".git/info/attributes"), "* filter=mark\n").unwrap();
    give_all(&work);
    users.daemon().task("tsk", "prj", "one");
    let shown = users.bed.until_kept("tsk");
    let branch = shown["branch"].as_str().unwrap().to_owned();
    let name = work.join(".git/refs/heads").join(&branch);
    until("the result is published", || name.exists());
    users.daemon().done(&["task", "merge", "tsk"]);
    assert_eq!(fs::read_to_string(work.join("one.txt")).unwrap(), "one\n");
    assert!(!marks.join("0").exists(), "a program of the project ran as root");
    for made in [name, work.join("one.txt"), work.join(".git/refs/heads/main")] {
        assert_eq!(made.metadata().unwrap().uid(), USER, "{}", made.display());
    }
}

/// Gives all below a path to the user of the agents.
fn give_all(path: &Path) {
    lchown(path, Some(USER), Some(USER)).unwrap();
    if path.symlink_metadata().unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give_all(&entry.unwrap().path());
        }
    }
}
