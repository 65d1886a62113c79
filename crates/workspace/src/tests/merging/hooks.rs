//! Hooks of the source that judge the commit of a merge.

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use super::*;
use crate::tests::rights::{PERSON, give, mode};
use domain::workspace::{HookWish, MergeHooks};
use machine::sys::processes;

impl Task {
    /// Makes an executable hook of the source. A process of its own writes it, so that no child of
    /// another test has it open.
    fn hook(&self, name: &str, script: &str) {
        write_hook(&self.bed.source().join(".git/hooks"), name, script);
    }

    fn with_wish(&self, style: MergeStyle, wish: HookWish) -> MergeOrder {
        let hooks = HookRule { wish, ..HookRule::default() };
        MergeOrder { hooks, ..self.order(style, Repeat::Once) }
    }

    async fn merge_wish(&self, style: MergeStyle, wish: HookWish) -> Merged {
        self.bed.checkouts.results.merge(&self.with_wish(style, wish)).await.unwrap()
    }

    async fn run(&self, style: MergeStyle) -> Merged {
        self.merge_wish(style, HookWish::Run).await
    }

    fn mark(&self) -> PathBuf {
        self.bed.folder.path().join("mark")
    }

    fn record(&self) -> PathBuf {
        self.bed.folder.path().join("workspaces/shop/merging-one.json")
    }

    fn lock(&self) -> PathBuf {
        self.bed.source().join(".git/index.lock")
    }

    /// Returns the branch, the index, and the state of the files.
    fn state(&self) -> [String; 3] {
        let status = self.git(&["status", "--porcelain", "--untracked-files=all"]);
        [self.head(), self.git(&["ls-files", "--stage"]), status]
    }

    /// Checks that a hook refuses, that all is as it was, and returns its words and the files.
    async fn refused(&self, style: MergeStyle) -> (String, Vec<String>, Option<String>) {
        let before = self.state();
        let merged = self.run(style).await;
        let Merged::HookRefused { said, files, saved, .. } = merged else { panic!("{merged:?}") };
        assert_eq!(self.state(), before);
        assert!(!self.record().exists());
        (said, files, saved)
    }

    /// Lets a merge be cut off while its hook runs, as by the death of the daemon.
    async fn cut_off(&self) {
        let mark = self.mark();
        self.hook("pre-merge-commit", &format!("touch {}; sleep 600", mark.display()));
        let order = self.with_wish(MergeStyle::Merge, HookWish::Run);
        let begun = async {
            while !mark.exists() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            merged = self.bed.checkouts.results.merge(&order) => panic!("{merged:?}"),
            () = begun => {}
        }
        assert!(self.record().exists() && self.has("work.txt"));
        std::fs::remove_file(mark).unwrap();
    }

    /// Returns the files of each merge that was left, as the next daemon finds them.
    async fn left(&self) -> Vec<Vec<String>> {
        let next = Checkouts::new(self.bed.folder.path().join("workspaces"));
        next.trees.left_merges().await.into_iter().map(|merge| merge.files).collect()
    }

    /// Does what the next daemon does first.
    async fn restart(&self) {
        let next = Checkouts::new(self.bed.folder.path().join("workspaces"));
        next.trees.end_interrupted_merges().await;
        assert!(!self.record().exists());
    }
}

pub(super) fn write_hook(folder: &Path, name: &str, script: &str) {
    write_program(folder, name, &format!("#!/bin/sh\n{script}"));
}

fn write_program(folder: &Path, name: &str, content: &str) {
    std::fs::create_dir_all(folder).unwrap();
    let write = "printf '%s\\n' \"$2\" >\"$1\" && chmod 755 \"$1\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", write, "sh"]).arg(folder.join(name)).arg(content);
    assert!(shell.status().unwrap().success());
}

/// Returns a task whose result changes only a Makefile that a hook uses.
async fn trap() -> Task {
    let bed = Bed::new();
    bed.commit(&bed.source(), "Makefile", "check:\n\t@true\n");
    let (prepared, tree) = bed.prepare("one").await;
    let mark = bed.folder.path().join("mark");
    bed.commit(&tree, "Makefile", &format!("check:\n\t@touch {}\n", mark.display()));
    let task = Task { bed, prepared, tree };
    task.keep().await;
    task.of_person("other.txt", "other\n");
    task.hook("pre-merge-commit", "make -s check");
    task
}

#[tokio::test]
async fn by_default_nothing_of_a_result_runs() {
    let task = trap().await;
    let merged = task.merge(MergeStyle::Merge, Repeat::Once).await;
    assert!(matches!(merged, Merged::HooksAsk { may_run: true, .. }), "{merged:?}");
    assert!(!task.mark().exists());
    let merged = task.merge_wish(MergeStyle::Merge, HookWish::Skip).await;
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
    assert!(!task.mark().exists());
    if Command::new("make").arg("--version").output().is_ok() {
        let task = trap().await;
        task.run(MergeStyle::Merge).await;
        assert!(task.mark().exists(), "the trap is one");
    }
}

#[tokio::test]
async fn only_hooks_that_judge_are_named_and_nothing_changes() {
    let task = Task::new().await;
    let all = ["pre-merge-commit", "pre-commit", "commit-msg", "post-merge", "post-commit"];
    for name in all {
        task.hook(name, "exit 1");
    }
    let before = task.state();
    let folder = task.bed.source().canonicalize().unwrap().join(".git/hooks");
    for (style, first) in
        [(MergeStyle::Merge, "pre-merge-commit"), (MergeStyle::Squash, "pre-commit")]
    {
        let named = [first, "commit-msg"].map(|name| folder.join(name).display().to_string());
        let hooks = named.to_vec();
        let asked = Merged::HooksAsk { branch: "main".to_owned(), hooks, may_run: true };
        assert_eq!(task.merge(style, Repeat::Once).await, asked);
        let own = HookRule { agents_have_users: true, ..HookRule::default() };
        for (setting, wish) in
            [(MergeHooks::Ask, HookWish::Run), (MergeHooks::Run, HookWish::AsSet)]
        {
            let hooks = HookRule { setting, wish, ..own };
            let order = MergeOrder { hooks, ..task.order(style, Repeat::Once) };
            let merged = task.bed.checkouts.results.merge(&order).await.unwrap();
            assert!(matches!(merged, Merged::HooksAsk { may_run: false, .. }), "{merged:?}");
        }
    }
    assert_eq!(task.state(), before);
    // One that cannot be executed is no hook, and a rebase has none.
    for name in ["pre-commit", "commit-msg"] {
        mode(&folder.join(name), 0o644);
    }
    task.merged(MergeStyle::Squash, Repeat::Once).await;
    let task = Task::new().await;
    task.hook("pre-commit", "exit 1");
    task.merged(MergeStyle::Rebase, Repeat::Once).await;
}

#[tokio::test]
async fn a_hook_runs_with_the_result_in_the_work_tree_before_the_branch_moves() {
    let task = Task::new().await;
    let before = task.head();
    let mark = task.mark();
    let script = format!(
        "tty -s && exit 1; exec >{}; pwd; git rev-parse HEAD; cat work.txt; git write-tree; \
         echo \"$HOME:$USER:$LOGNAME\"",
        mark.display()
    );
    task.bed.git(&task.bed.source(), &["config", "core.hooksPath", "own"]);
    let own = task.bed.source().join("own");
    write_hook(&own, "pre-merge-commit", &script);
    let merged = task.run(MergeStyle::Merge).await;
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
    let said = std::fs::read_to_string(&mark).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    let top = task.bed.source().canonicalize().unwrap();
    let tree = task.git(&["rev-parse", "HEAD^{tree}"]);
    assert_eq!(lines[..4], [top.to_str().unwrap(), &before, "work", &tree], "{said}");
    assert!(!lines[4].starts_with(':') && !lines[4].ends_with(':'), "{said}");
    assert_eq!(task.git(&["rev-parse", "HEAD^1"]), before);
    assert_eq!(task.git(&["status", "--porcelain"]), "?? own/");
    let git_dir = task.bed.source().join(".git");
    assert!(!git_dir.join("SQUASH_MSG").exists() && !task.record().exists());
    task.changes_nothing(MergeStyle::Merge, Repeat::Once).await;
}

#[tokio::test]
async fn a_person_undoes_a_merge_as_one_of_git() {
    for (style, wish) in [(MergeStyle::Merge, HookWish::Run), (MergeStyle::Squash, HookWish::Skip)]
    {
        let task = Task::new().await;
        task.hook("commit-msg", "exit 0");
        let before = task.state();
        let merged = task.merge_wish(style, wish).await;
        assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
        task.git(&["reset", "--quiet", "--merge", "ORIG_HEAD"]);
        assert_eq!(task.state(), before, "{style:?}");
    }
}

#[tokio::test]
async fn a_hook_that_fails_refuses_the_merge_in_its_words() {
    let task = Task::new().await;
    task.hook("pre-merge-commit", "printf 'a \\033[31mred\\033[0m word\\n' >&2; exit 3");
    std::fs::write(task.bed.source().join("own.txt"), "untracked").unwrap();
    let (said, files, saved) = task.refused(MergeStyle::Merge).await;
    assert!(said.contains("red") && said.contains("exit status: 3"), "{said}");
    assert!(!said.contains('\u{1b}') && files.is_empty() && saved.is_none(), "{said}");
    assert_eq!(task.bed.read("own.txt"), "untracked");
    let other = task.bed.source().join(".git/hooks/pre-merge-commit");
    std::fs::remove_file(other).unwrap();
    task.hook("commit-msg", "grep -q Signed-off-by \"$1\"");
    task.refused(MergeStyle::Squash).await;
    task.hook("commit-msg", ": >\"$1\"");
    task.refused(MergeStyle::Merge).await;
    let merged = task.merge_wish(MergeStyle::Merge, HookWish::Skip).await;
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
}

#[tokio::test]
async fn a_hook_that_changes_files_refuses_the_merge_and_its_changes_are_saved() {
    for exit in ["0", "1"] {
        let task = Task::new().await;
        let script = "echo formatted >work.txt; echo staged >main.txt; git add main.txt";
        task.hook("pre-commit", &format!("{script}; exit {exit}"));
        let (_, files, saved) = task.refused(MergeStyle::Squash).await;
        assert_eq!(files, ["main.txt", "work.txt"]);
        let saved = saved.unwrap();
        for (name, content) in [("work.txt", "formatted"), ("main.txt", "staged")] {
            assert_eq!(task.git(&["show", &format!("{saved}:{name}")]), content);
        }
    }
}

#[tokio::test]
async fn a_changed_file_and_an_unknown_one_keep_hooks_from_running() {
    let task = Task::new().await;
    task.hook("pre-merge-commit", &format!("touch {}", task.mark().display()));
    task.bed.put("main.txt", "edited\n");
    let merged = task.run(MergeStyle::Merge).await;
    let files = vec!["main.txt".to_owned()];
    assert_eq!(merged, Merged::Dirty { branch: "main".to_owned(), files });
    task.git(&["checkout", "--quiet", "main.txt"]);
    // Git would overwrite one that is ignored.
    std::fs::write(task.bed.source().join(".git/info/exclude"), "work.txt\n").unwrap();
    task.bed.put("work.txt", "of a person\n");
    let before = task.state();
    let merged = task.run(MergeStyle::Merge).await;
    let Merged::InTheWay { message, .. } = merged else { panic!("{merged:?}") };
    assert!(message.contains("work.txt"), "{message}");
    assert_eq!((task.state(), task.bed.read("work.txt").as_str()), (before, "of a person\n"));
    std::fs::remove_file(task.bed.source().join("work.txt")).unwrap();
    task.bed.put("main.txt", "edited\n");
    assert!(!task.mark().exists());
    let merged = task.merge_wish(MergeStyle::Merge, HookWish::Skip).await;
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
    assert_eq!(task.bed.read("main.txt"), "edited\n");
}

#[tokio::test]
async fn a_hook_may_change_the_message() {
    let task = Task::new().await;
    task.hook("commit-msg", "echo 'Reviewed-by: Ann' >>\"$1\"");
    let merged = task.run(MergeStyle::Merge).await;
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
    let message = task.git(&["log", "-1", "--format=%B"]);
    assert!(message.starts_with("Merge SHOP-1: it"), "{message}");
    assert!(message.ends_with("Reviewed-by: Ann"), "{message}");
    assert_eq!(task.git(&["status", "--porcelain"]), "");
    task.changes_nothing(MergeStyle::Merge, Repeat::Once).await;
}

#[tokio::test]
async fn a_hook_that_names_no_interpreter_runs_in_a_shell_as_with_git() {
    let task = Task::new().await;
    let hooks = task.bed.source().join(".git/hooks");
    write_program(&hooks, "commit-msg", "echo \"Judged: $(basename \"$1\")\" >>\"$1\"");
    let merged = task.run(MergeStyle::Squash).await;
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
    let message = task.git(&["log", "-1", "--format=%B"]);
    assert!(message.ends_with("Judged: MESSAGE_OF_AGENT_COORDINATOR"), "{message}");
}

#[tokio::test]
async fn without_a_work_tree_only_the_message_is_judged() {
    let task = Task::new().await;
    task.git(&["checkout", "--quiet", "-b", "aside"]);
    task.hook("pre-merge-commit", "exit 1");
    task.hook("commit-msg", "echo 'Judged: yes' >>\"$1\"");
    let merged = task.run(MergeStyle::Merge).await;
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
    let message = task.git(&["log", "-1", "--format=%B", "main"]);
    assert!(message.ends_with("Judged: yes"), "{message}");
    assert!(!task.has("work.txt"));
}

#[tokio::test]
async fn a_hook_that_never_ends_is_ended_with_all_its_processes() {
    let task = Task::new().await;
    let pids = [task.mark().with_extension("1"), task.mark().with_extension("2")];
    let [first, second] = pids.each_ref().map(|path| path.display());
    // The second process leaves the session of the hook, and ignores the first signal. Git holds
    // the lock of the index.
    task.hook(
        "pre-merge-commit",
        &format!(
            "setsid sh -c 'trap \"\" TERM; echo $$ >{second}; exec sleep 600' & echo $$ >{first}; \
             sleep 600 | git update-index --index-info"
        ),
    );
    let hooks =
        HookRule { wish: HookWish::Run, timeout: Duration::from_secs(2), ..HookRule::default() };
    let before = task.state();
    let order = MergeOrder { hooks, ..task.order(MergeStyle::Merge, Repeat::Once) };
    let merged = task.bed.checkouts.results.merge(&order).await.unwrap();
    let Merged::HookRefused { said, .. } = merged else { panic!("{merged:?}") };
    assert!(said.contains("did not end within 2 s"), "{said}");
    assert_eq!(task.state(), before);
    assert!(!task.lock().exists());
    let running = processes::list().unwrap();
    for path in pids {
        let pid: i32 = std::fs::read_to_string(path).unwrap().trim().parse().unwrap();
        assert!(!running.iter().any(|process| process.pid == pid && !process.is_zombie));
    }
}

#[tokio::test]
async fn the_next_daemon_or_the_next_merge_puts_back_what_was_cut_off() {
    for by_merge in [false, true] {
        let task = Task::new().await;
        task.bed.put("own.txt", "untracked\n");
        let before = task.state();
        task.cut_off().await;
        assert_ne!(task.state(), before);
        if by_merge {
            let merged = task.merge(MergeStyle::Merge, Repeat::Once).await;
            assert!(matches!(merged, Merged::HooksAsk { .. }), "{merged:?}");
        } else {
            task.restart().await;
        }
        assert_eq!(task.state(), before);
    }
    // Git writes the index last. It was killed in an earlier comparison, too.
    let task = Task::new().await;
    let before = task.state();
    task.cut_off().await;
    task.git(&["read-tree", "--reset", "HEAD"]);
    task.bed.put(".git/index-of-agent-coordinator.lock", "");
    task.restart().await;
    assert_eq!(task.state(), before);
}

#[tokio::test]
async fn a_git_that_an_earlier_daemon_left_takes_its_lock_along() {
    let task = Task::new().await;
    let before = task.state();
    task.cut_off().await;
    // It reads from this process, so that it ends with the test.
    let mut left = Command::new("git");
    left.args(["update-index", "--index-info"]).stdin(std::process::Stdio::piped());
    left.current_dir(task.bed.source());
    left.env(strays::MARK, task.bed.folder.path().join("workspaces/.gitconfig"));
    let mut left = left.spawn().unwrap();
    let has_lock = async {
        while !task.lock().exists() {
            assert_eq!(left.try_wait().unwrap(), None, "git has ended");
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), has_lock).await.expect("git takes its lock");
    task.restart().await;
    assert!(!task.lock().exists());
    assert!(!left.wait().unwrap().success(), "the next daemon ends it");
    assert_eq!(task.state(), before);
}

#[tokio::test]
async fn a_merge_that_was_cut_off_is_left_if_its_files_were_changed_since() {
    let task = Task::new().await;
    task.cut_off().await;
    task.bed.put("work.txt", "of a person\n");
    let before = task.state();
    task.restart().await;
    assert_eq!(task.state(), before);
    assert_eq!(task.bed.read("work.txt"), "of a person\n");
    assert!(task.record().with_extension("left").exists());
    // Other files have nothing to do with it.
    let task = Task::new().await;
    task.cut_off().await;
    task.bed.put("main.txt", "of a person\n");
    task.restart().await;
    assert_eq!(task.git(&["status", "--porcelain"]), "M main.txt");
    assert_eq!(
        (task.bed.read("main.txt").as_str(), task.has("work.txt")),
        ("of a person\n", false)
    );
}

#[tokio::test]
async fn files_that_a_merge_left_are_named_until_a_person_has_dealt_with_them() {
    let undo = ["reset", "--quiet", "--hard"];
    let commit = ["commit", "--quiet", "--message=own", "work.txt"];
    for deal in [&undo[..], &commit[..]] {
        let task = Task::new().await;
        task.cut_off().await;
        task.bed.put("work.txt", "of a person\n");
        assert!(task.left().await.is_empty(), "the next start may undo it");
        task.restart().await;
        assert_eq!(task.left().await, [["work.txt"]]);
        // The file is not staged any more, and another one has nothing to do with it.
        task.git(&["reset", "--quiet"]);
        task.bed.put("main.txt", "of a person\n");
        assert_eq!(task.left().await, [["work.txt"]]);
        task.git(&["add", "work.txt"]);
        task.git(deal);
        assert!(task.left().await.is_empty(), "{deal:?}");
        assert!(!task.record().with_extension("left").exists());
    }
}

#[tokio::test]
async fn files_that_a_merge_left_are_not_named_while_their_folder_is_gone() {
    let task = Task::new().await;
    task.cut_off().await;
    task.bed.put("work.txt", "of a person\n");
    task.restart().await;
    let source = task.bed.source();
    let aside = task.bed.folder.path().join("aside");
    std::fs::rename(&source, &aside).unwrap();
    assert!(task.left().await.is_empty());
    std::fs::rename(&aside, &source).unwrap();
    assert_eq!(task.left().await, [["work.txt"]]);
}

#[tokio::test]
async fn a_merge_waits_until_an_earlier_one_is_undone() {
    let task = Task::new().await;
    let before = task.state();
    task.cut_off().await;
    std::fs::write(task.lock(), "").unwrap();
    let order = task.with_wish(MergeStyle::Merge, HookWish::Skip);
    let refused = task.bed.checkouts.results.merge(&order).await.unwrap_err().to_string();
    assert!(refused.contains("index.lock") && refused.contains(" ago"), "{refused}");
    assert!(task.record().exists());
    std::fs::remove_file(task.lock()).unwrap();
    task.restart().await;
    assert_eq!(task.state(), before);
    // A record that cannot be read holds back nothing.
    std::fs::write(task.record(), "{").unwrap();
    let merged = task.merge_wish(MergeStyle::Merge, HookWish::Skip).await;
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
    assert!(task.record().with_extension("left").exists());
}

#[tokio::test]
async fn a_refusal_keeps_what_git_does_not_see() {
    let task = Task::new().await;
    task.git(&["update-index", "--assume-unchanged", "main.txt"]);
    task.bed.put("main.txt", "of a person\n");
    task.hook("pre-merge-commit", "exit 1");
    task.refused(MergeStyle::Merge).await;
    assert_eq!(task.bed.read("main.txt"), "of a person\n");
}

#[tokio::test]
async fn a_merge_goes_not_on_where_the_branch_is_not_checked_out_any_more() {
    for exit in ["0", "1"] {
        let task = Task::new().await;
        let before = task.head();
        task.hook("pre-merge-commit", &format!("git switch -q -c aside; exit {exit}"));
        let said = match task.run(MergeStyle::Merge).await {
            Merged::InTheWay { message, .. } => message,
            Merged::HookRefused { said, .. } => said,
            other => panic!("{other:?}"),
        };
        assert!(said.contains("files of the result are still there"), "{said}");
        assert_eq!(task.git(&["rev-parse", "main"]), before);
        assert!(task.record().with_extension("left").exists() && task.has("work.txt"));
    }
}

#[tokio::test]
async fn a_merge_that_was_cut_off_after_the_branch_moved_is_complete() {
    let task = Task::new().await;
    task.cut_off().await;
    let record: serde_json::Value =
        serde_json::from_slice(&std::fs::read(task.record()).unwrap()).unwrap();
    let new = record["new"].as_str().unwrap();
    task.git(&["update-ref", "refs/heads/main", new]);
    task.restart().await;
    assert_eq!((task.head().as_str(), task.has("work.txt")), (new, true));
    assert_eq!(task.git(&["status", "--porcelain"]), "");
}

#[tokio::test]
async fn a_hook_runs_as_the_owner_of_the_repository() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root has other users");
    }
    let task = Task::new().await;
    mode(task.bed.folder.path(), 0o711);
    task.hook("pre-merge-commit", "id -u >.git/uid");
    give(&task.bed.source(), PERSON);
    let hooks = HookRule { wish: HookWish::Run, agents_have_users: true, ..HookRule::default() };
    let order = MergeOrder { hooks, ..task.order(MergeStyle::Merge, Repeat::Once) };
    let merged = task.bed.checkouts.results.merge(&order).await.unwrap();
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
    assert_eq!(task.bed.read(".git/uid"), format!("{PERSON}\n"));
    for name in ["work.txt", ".git/uid", ".git/index"] {
        let found = task.bed.source().join(name).metadata().unwrap();
        assert_eq!(found.uid(), PERSON, "{name}");
    }
}
