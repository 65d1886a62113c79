//! The changes of a task on the page: what an agent changed, and what people do with the result.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::entry::{OWN, log_in};
use super::{Answer, LISTENING, Web};
use crate::daemon::Daemon;
use crate::support::{self, until, until_some};

const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";

/// Runs git in the repository of the person.
#[track_caller]
pub fn git(daemon: &Daemon, arguments: &[&str]) -> String {
    support::git(&daemon.work(), arguments)
}

/// Starts a daemon with the project `shop`, whose tasks have clones. Its agent `agt` takes these
/// steps.
pub fn shop(settings: &str, steps: &[&str]) -> Daemon {
    let daemon = Daemon::running(settings);
    daemon.steps("agt", steps);
    fs::write(daemon.work().join("main.txt"), "one\ntwo\nthree\n").unwrap();
    git(&daemon, &["init", "--quiet", "--initial-branch=main"]);
    git(&daemon, &["add", "."]);
    git(&daemon, &["commit", "--quiet", "-m", "first"]);
    let work = daemon.work();
    let directory = work.to_str().unwrap();
    daemon.done(&["project", "add", "shop", "--directory", directory, "--workspace", "clone"]);
    daemon.done(&["agent", "add", "agt"]);
    daemon.done(&["project", "set", "shop", "--assign", "agt"]);
    daemon
}

/// The steps of an agent that changes a line, adds a file, and leaves another one uncommitted.
pub const WORKS: [&str; 4] = [
    "authenticate",
    "get-my-task",
    "run:printf 'one\\n<b>TWO</b>\\nthree\\n' >main.txt; echo new >'日本.txt'; git add . && git commit --quiet -m work; echo left >left.txt",
    "report:success",
];

/// Waits until the result of the task is kept.
#[track_caller]
pub fn until_kept(daemon: &Daemon, task: &str) {
    until_some("the result is kept", || {
        let listed = daemon.json(&["workspace", "list"]);
        let workspaces = listed.as_array()?.iter();
        let mut of_task = workspaces
            .filter(|workspace| workspace["task_id"] == task && workspace["state"] == "ready");
        of_task.find(|workspace| workspace["content"].is_object()).cloned()
    });
}

/// The steps of an agent that leaves two branches, and goes back to the branch of its task.
pub const TWO_BRANCHES: [&str; 6] = [
    "authenticate",
    "get-my-task",
    "run:git checkout -qb x; echo x >x.txt; git add x.txt; git commit -qm x",
    "run:git checkout -qb y HEAD^; echo y >y.txt; git add y.txt; git commit -qm y",
    "run:git checkout -q agents/shop-1",
    "report:success",
];

/// Returns the number of primary buttons in the part.
fn n_primary(part: &str) -> usize {
    part.matches("class=\"btn primary\"").count()
}

/// Returns the menu of the part; empty if it has none.
fn menu(part: &str) -> &str {
    let found = part.split_once("id=\"more-of-result-tsk\"");
    found.map_or("", |(_, rest)| rest.split_once("</div>").unwrap().0)
}

fn part(daemon: &Daemon, language: &str) -> String {
    daemon.page("/ui/parts/tasks/tsk/changes", language)
}

/// Returns the commit that the part shows as the result.
fn head(part: &str) -> &str {
    let (_, rest) = part.split_once("name=\"expected_head\" value=\"").expect(part);
    rest.split_once('"').unwrap().0
}

struct Person<'a> {
    web: Web,
    cookie: String,
    daemon: &'a Daemon,
}

impl<'a> Person<'a> {
    fn of(daemon: &'a Daemon, role: &str) -> Self {
        let mut web = Web::to(daemon);
        let cookie = log_in(&mut web, daemon, &["--role", role]);
        Self { web, cookie, daemon }
    }

    fn get(&mut self, path: &str) -> Answer {
        let cookie = &self.cookie;
        self.web.ask("GET", path, cookie, "")
    }

    fn does(&mut self, action: &str, body: &str) -> Answer {
        let headers = format!("{}{OWN}{FORM}Hx-Request: true\r\n", self.cookie);
        self.web.ask("POST", &format!("/ui/do/tasks/{action}"), &headers, body)
    }

    /// Merges, and checks that the part tells this.
    #[track_caller]
    fn merges(&mut self, body: &str, told: &str) -> String {
        let answer = self.does("tsk/merge", body);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.body.contains(told), "{}", answer.body);
        assert!(answer.body.contains("<span class=\"mark "), "the part is whole: {}", answer.body);
        // A hook may take longer than the page usually waits.
        let n_actions = answer.body.matches("/merge\"").count();
        let n_patient = answer.body.matches("/merge\" hx-config=\"timeout:0\"").count();
        assert_eq!(n_patient, n_actions, "{}", answer.body);
        git(self.daemon, &["rev-parse", "main"])
    }
}

#[test]
fn a_reader_sees_what_an_agent_changed_and_merges_it() {
    let daemon = shop(LISTENING, &WORKS);
    daemon.task("tsk", "shop", "agt");
    until_kept(&daemon, "tsk");
    let shown = part(&daemon, "en");
    for text in [
        "<span class=\"mark good\">Ready</span>",
        "2 files, 1 commit on <code>agents/shop-1</code> · from <code>main</code>",
        "1 file in no commit",
        "<tr class=\"hunk\"><td class=\"ln\"></td><td class=\"ln\"></td><td>@@ -1,3 +1,3 @@</td></tr>",
        "<tr class=\"del\"><td class=\"ln\">2</td><td class=\"ln\"></td><td>two</td></tr>",
        "<tr class=\"add\"><td class=\"ln\"></td><td class=\"ln\">2</td><td>&#60;b&#62;TWO&#60;/b&#62;</td></tr>",
        "日本.txt",
        "Uncommitted changes",
        "left.txt",
        "Merge into main",
    ] {
        assert!(shown.contains(text), "no `{text}` in {shown}");
    }
    assert_eq!(shown.matches("<details class=\"box\" ").count(), 3);
    assert!(!shown.contains("<b>TWO"), "{shown}");
    let japanese = part(&daemon, "ja");
    assert!(japanese.contains("変更") && japanese.contains("main にマージ"), "{japanese}");
    let panel = daemon.page("/ui/parts/tasks/tsk?tab=changes", "en");
    assert!(
        panel.contains("data-changes-of=\"tsk\"") && panel.contains("/ui/parts/tasks/tsk/changes")
    );
    let board = daemon.page("/ui/parts/projects/shop/board", "en");
    assert!(
        board.contains("agents/shop-1") && board.contains("<span class=\"plus\">+2</span>"),
        "{board}"
    );
    let unmerged = "<b>The result is not merged yet.</b>";
    assert!(daemon.page("/ui/parts/tasks/tsk", "en").contains(unmerged));
    assert_eq!(n_primary(&shown), 1, "{shown}");
    let others = ["Merge all in one commit", "Merge commit by commit", "Publish", "Discard…"];
    for text in others {
        assert!(menu(&shown).contains(text), "no `{text}` in {shown}");
    }
    assert!(!menu(&shown).contains("Merge into main"), "{shown}");
    let mut person = Person::of(&daemon, "operator");
    let merge = format!("expected_head={}&squash=false", head(&shown));
    person.merges(&merge, "Merged into main");
    let merged = part(&daemon, "en");
    assert_eq!(n_primary(&merged), 0, "{merged}");
    for text in others.into_iter().chain(["Merge into main", "Merge all again"]) {
        assert!(menu(&merged).contains(text), "no `{text}` in {merged}");
    }
    assert!(!daemon.page("/ui/parts/tasks/tsk", "en").contains(unmerged));
    let board = daemon.page("/ui/parts/projects/shop/board", "en");
    assert!(board.contains("<span class=\"mark good\">Merged</span>"), "{board}");
    assert_eq!(git(&daemon, &["show", "main:main.txt"]), "one\n<b>TWO</b>\nthree");
    assert!(!daemon.work().join("left.txt").exists());
    // The remaining file is in no commit.
    person.merges(&merge, "Nothing to merge: main got the result with ");
}

/// A git that never ends a diff as long as the file exists. It comes first in the path.
fn hanging_git(while_exists: &Path) -> String {
    format!(
        "#!/bin/sh\nfor word; do\n  test \"$word\" = diff -a -e '{}' && exec sleep 600\ndone\n\
         PATH=${{PATH#*:}} exec git \"$@\"\n",
        while_exists.display()
    )
}

#[test]
fn a_git_that_hangs_is_told_and_the_reader_asks_again() {
    let becomes_a_link = "run:ln -sf target main.txt; git commit --quiet -am link";
    let steps = ["authenticate", "get-my-task", becomes_a_link, "report:success"];
    let mut daemon = shop(LISTENING, &steps);
    daemon.task("tsk", "shop", "agt");
    until_kept(&daemon, "tsk");
    daemon.terminate();
    let (bin, hangs) = (daemon.folder().join("bin"), daemon.folder().join("hangs"));
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("git"), hanging_git(&hangs)).unwrap();
    fs::set_permissions(bin.join("git"), Permissions::from_mode(0o755)).unwrap();
    let path = std::env::join_paths(
        [bin].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let mut command = daemon.command();
    command.env("PATH", path.unwrap());
    daemon.spawn_as(command);
    daemon.until_ready();

    fs::write(&hangs, "").unwrap();
    let slow = part(&daemon, "en");
    assert!(slow.contains("Git did not answer within 5 seconds.") && slow.contains("Try again"));
    assert!(slow.contains("agent-coordinator task diff SHOP-1"), "{slow}");
    assert!(slow.contains("1 commit on") && !slow.contains("class=\"box\""), "{slow}");
    fs::remove_file(&hangs).unwrap();
    git(&daemon, &["commit", "--quiet", "--allow-empty", "-m", "later"]);
    let shown = part(&daemon, "en");
    assert!(!shown.contains("did not answer"), "{shown}");
    let behind = "1 commit on <code>agents/shop-1</code>, 1 behind <code>main</code>";
    assert!(shown.contains(behind), "{shown}");
    // A file that becomes a link is shown twice, and each has an id of its own.
    for id in ["id=\"committed-main.txt\"", "id=\"committed-main.txt~1\""] {
        assert_eq!(shown.matches(id).count(), 1, "{id}: {shown}");
    }
}

#[test]
fn a_merge_that_is_refused_changes_nothing_and_says_what_to_do() {
    let daemon = shop(LISTENING, &WORKS);
    daemon.task("tsk", "shop", "agt");
    until_kept(&daemon, "tsk");
    let mut person = Person::of(&daemon, "operator");
    let seen = head(&part(&daemon, "en")).to_owned();
    let before = git(&daemon, &["rev-parse", "main"]);
    let other = "0".repeat(40);
    let after = person.merges(&format!("expected_head={other}"), "has changed since you saw it");
    assert_eq!(after, before);
    let merge = format!("expected_head={seen}");
    fs::write(daemon.work().join("main.txt"), "my own\n").unwrap();
    assert_eq!(person.merges(&merge, "files are in the way"), before);
    assert_eq!(fs::read_to_string(daemon.work().join("main.txt")).unwrap(), "my own\n");
    assert_eq!(git(&daemon, &["rev-parse", "agents/shop-1"]), seen);
    git(&daemon, &["commit", "--quiet", "--all", "-m", "mine"]);
    let mine = git(&daemon, &["rev-parse", "main"]);
    assert_eq!(person.merges(&merge, "change the same lines of:"), mine);
    let answer = person.does("tsk/merge", &merge);
    assert!(answer.body.contains("Ask the agent to resolve"), "{answer:?}");
    assert!(answer.body.contains("the branch agents/shop-1."), "{answer:?}");
    assert_eq!(n_primary(&answer.body), 1, "only the agent comes first: {answer:?}");
    assert!(menu(&answer.body).contains("Merge into main"), "{answer:?}");
    assert_eq!(git(&daemon, &["status", "--porcelain"]), "");
    let answer = person.does("tsk/merge", &format!("{merge}&into=other"));
    assert!((400..500).contains(&answer.status), "{answer:?}");
    // A person discards the result, and takes that back.
    let answer = person.does("tsk/discard", "");
    assert!(answer.body.contains("Discarded") && !answer.body.contains("Merge into"), "{answer:?}");
    let board = daemon.page("/ui/parts/projects/shop/board", "en");
    assert!(!board.contains("agents/shop-1"), "{board}");
    assert_eq!(n_primary(&answer.body), 0, "{answer:?}");
    assert!(!menu(&answer.body).contains("Merge"), "{answer:?}");
    assert!(answer.body.contains(">Undo discard</button>"), "{answer:?}");
    let answer = person.does("tsk/keep", "");
    assert_eq!(n_primary(&answer.body), 1, "{answer:?}");
    assert!(!answer.body.contains("Undo discard"), "{answer:?}");
}

#[test]
fn a_reader_chooses_among_the_branches_that_an_agent_left() {
    let daemon = shop(LISTENING, &TWO_BRANCHES);
    daemon.task("tsk", "shop", "agt");
    until("the result is undecided", || {
        daemon.json(&["workspace", "show", "tsk"])["content"]["is_undecided"] == true
    });
    let shown = part(&daemon, "en");
    assert!(shown.contains("call wait") && shown.contains("<h3>Choose the result</h3>"), "{shown}");
    for branch in ["x", "y"] {
        let row =
            format!("title=\"{branch}\">{branch}</code> <span class=\"second\">1 commit more<");
        assert!(shown.contains(&row), "no `{row}` in {shown}");
    }
    assert_eq!(shown.matches(">Take as the result</button>").count(), 2, "{shown}");
    assert!(
        shown.contains(">A branch is to be chosen as the result · from <code>main<"),
        "{shown}"
    );
    assert!(!shown.contains("0 files"), "{shown}");
    let (_, first) = shown.split_once("class=\"btn primary opens-menu\"").expect(&shown);
    let (first, choices) = first.split_once("</button>").unwrap();
    assert!(first.ends_with("Choose the branch"), "{shown}");
    let (choices, _) = choices.split_once("</div>").unwrap();
    assert_eq!(choices.matches("name=\"take\"").count(), 2, "{choices}");
    assert_eq!(n_primary(&shown), 0, "{shown}");
    assert!(!shown.contains("/merge\"") && !shown.contains("/publish\""), "{shown}");
    assert!(!shown.contains("No changes yet."), "{shown}");
    let japanese = part(&daemon, "ja");
    let texts = ["結果を選択", "1 コミット先行", "結果にする", "不要にする", "ブランチを選択"];
    for text in texts.into_iter().chain(["結果にするブランチの選択が必要です"]) {
        assert!(japanese.contains(text), "no `{text}` in {japanese}");
    }
    let mut viewer = Person::of(&daemon, "viewer");
    let seen = viewer.get("/ui/parts/tasks/tsk/changes").body;
    assert!(seen.contains("1 commit more") && !seen.contains("<button"), "{seen}");
    assert!(seen.contains("A branch is to be chosen"), "{seen}");

    let mut person = Person::of(&daemon, "operator");
    for wrong in ["", "take=x&drop=y"] {
        person.does("tsk/result", wrong).check_problem(409, "one_decision", "exactly one");
    }
    let answer = person.does("tsk/result", "take=z");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.contains("The result was not changed."), "{answer:?}");
    assert!(answer.body.contains("<h3>Choose the result</h3>"), "{answer:?}");

    let answer = person.does("tsk/result", "take=y");
    assert!(answer.body.contains("<h3>Beside the result</h3>"), "{answer:?}");
    assert!(answer.body.contains("id=\"committed-y.txt\""), "{answer:?}");
    assert!(!answer.body.contains("Choose the result"), "{answer:?}");
    assert_eq!(n_primary(&answer.body), 1, "{answer:?}");
    assert_eq!(answer.body.matches(">Take as the result</button>").count(), 1, "{answer:?}");

    let mark = "<span class=\"mark\">Not needed</span>";
    assert!(!answer.body.contains(mark), "{answer:?}");
    let answer = person.does("tsk/result", "drop=x");
    assert!(answer.body.contains(mark) && answer.body.contains(">Needed after all<"), "{answer:?}");
    assert!(!answer.body.contains("name=\"drop\""), "{answer:?}");
    let answer = person.does("tsk/result", "want=x");
    assert!(!answer.body.contains(mark), "{answer:?}");
    let shown = &daemon.json(&["workspace", "show", "tsk"])["content"]["others"][0]["commit"];
    let button = format!("name=\"drop\" value=\"{}\"", shown.as_str().unwrap());
    assert!(answer.body.contains(&button), "{answer:?}");

    // Until it is merged, another one may be taken.
    let answer = person.does("tsk/result", "take=x");
    let merge = format!("expected_head={}", head(&answer.body));
    person.merges(&merge, "Merged into main");
    assert_eq!(git(&daemon, &["show", "main:x.txt"]), "x");
}

#[test]
fn a_reader_asks_the_agent_to_resolve_a_conflict() {
    let daemon = shop(LISTENING, &WORKS);
    daemon.task("tsk", "shop", "agt");
    until_kept(&daemon, "tsk");
    fs::write(daemon.work().join("main.txt"), "one\nmine\nthree\n").unwrap();
    git(&daemon, &["commit", "--quiet", "--all", "-m", "mine"]);
    let mut person = Person::of(&daemon, "operator");
    let before = person.merges("squash=true", "Ask the agent to resolve");
    let after = person.merges("squash=true&ask_agent=true", "The agent was asked to resolve");
    assert_eq!(after, before);
    let task = daemon.json(&["task", "show", "tsk"]);
    assert_eq!(task["checks"][0]["name"], "merge conflict", "{task}");
    assert!(task["checks"][0]["output"].as_str().unwrap().contains("main.txt"), "{task}");
}

#[test]
fn a_reader_merges_commit_by_commit_and_is_named_in_a_merge() {
    let daemon = shop(LISTENING, &WORKS);
    daemon.task("tsk", "shop", "agt");
    until_kept(&daemon, "tsk");
    fs::write(daemon.work().join("mine.txt"), "mine\n").unwrap();
    git(&daemon, &["add", "mine.txt"]);
    git(&daemon, &["commit", "--quiet", "-m", "mine"]);
    let mut person = Person::of(&daemon, "operator");
    for language in [("en", "Merge commit by commit"), ("ja", "コミットごとにマージ")] {
        assert!(part(&daemon, language.0).contains(language.1), "{language:?}");
    }
    let both = person.does("tsk/merge", "squash=true&rebase=true");
    both.check_problem(409, "two_merge_styles", "");
    person.merges("rebase=true", "Merged into main");
    let log = git(&daemon, &["log", "--format=%an %s %p"]);
    let lines: Vec<&str> = log.lines().collect();
    assert!(lines[0].starts_with("agt work ") && lines[1].contains(" mine "), "{log}");
    assert_eq!(lines[0].split(' ').count(), 3, "one parent: {log}");
    // A commit that the daemon makes for a person has the identity of the repository, and names the
    // person.
    git(&daemon, &["config", "user.name", "Ann Example"]);
    git(&daemon, &["config", "user.email", "ann@example.org"]);
    person.merges("squash=true&with_uncommitted=true", "Merged into main");
    let shown = daemon.json(&["token", "list"]);
    let author = git(&daemon, &["log", "-1", "--format=%an <%ae>"]);
    assert_eq!(author, "Ann Example <ann@example.org>");
    let by = git(&daemon, &["log", "-1", "--format=%(trailers:key=Merged-by,valueonly)"]);
    assert!(!by.is_empty() && shown.to_string().contains(&format!("\"{by}\"")), "{by}: {shown}");
}

#[test]
fn a_reader_publishes_a_result_as_a_branch() {
    let daemon = shop(LISTENING, &WORKS);
    daemon.task("tsk", "shop", "agt");
    until_kept(&daemon, "tsk");
    assert!(part(&daemon, "en").contains("Publish as a branch"));
    assert!(part(&daemon, "ja").contains("ブランチとして公開"));
    let mut person = Person::of(&daemon, "operator");
    let answer = person.does("tsk/publish", "");
    assert!(answer.body.contains("as the branch agents/shop-1."), "{answer:?}");
    assert!(answer.body.contains("published as <code>agents/shop-1</code>"), "{answer:?}");
    assert_eq!(git(&daemon, &["rev-parse", "agents/shop-1"]), head(&part(&daemon, "en")));
}

#[test]
fn a_reader_gives_up_a_result_for_ever_by_its_id() {
    let daemon = shop(LISTENING, &WORKS);
    daemon.task("tsk", "shop", "agt");
    until_kept(&daemon, "tsk");
    let shown = part(&daemon, "en");
    assert!(shown.contains("Discard permanently") && shown.contains("type SHOP-1:"), "{shown}");
    assert!(part(&daemon, "ja").contains("SHOP-1 と入力"));
    let mut person = Person::of(&daemon, "operator");
    for wrong in ["", "confirm=", "confirm=SHOP-2"] {
        let answer = person.does("tsk/discard-forever", wrong);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.body.contains("Nothing was discarded."), "{answer:?}");
        assert!(answer.body.contains("is not the id SHOP-1"), "{answer:?}");
    }
    assert_eq!(daemon.json(&["workspace", "show", "tsk"])["forever_at"], serde_json::Value::Null);
    let answer = person.does("tsk/discard-forever", "confirm=shop-1");
    assert!(answer.body.contains("The result was discarded permanently."), "{answer:?}");
    assert!(!answer.body.contains("Discard permanently"), "{answer:?}");
    until_some("the kept state is given up", || {
        let shown = daemon.json(&["workspace", "show", "tsk"]);
        (shown["state"] == "removed" && shown["content"].is_null()).then_some(())
    });
    // An open task is worked on.
    daemon.done(&["task", "set", "tsk", "--status", "todo"]);
    let answer = person.does("tsk/discard-forever", "confirm=SHOP-1");
    assert!(answer.body.contains("finish or cancel it first"), "{answer:?}");
}

#[test]
fn a_result_without_a_commit_is_merged_only_with_what_is_not_committed() {
    let steps = ["authenticate", "get-my-task", "run:echo left >left.txt", "report:success"];
    let daemon = shop(LISTENING, &steps);
    daemon.task("tsk", "shop", "agt");
    until_kept(&daemon, "tsk");
    let mut person = Person::of(&daemon, "operator");
    let told = "the form is not as expected: squash: expected `true` or `false`";
    person.does("tsk/merge", "squash=maybe").check_problem(422, "invalid_form", told);
    let told = "the form is not as expected: into: unknown field `into`, expected one of";
    person.does("tsk/merge", "into=other").check_problem(422, "invalid_form", told);
    let before = git(&daemon, &["rev-parse", "main"]);
    assert_eq!(person.merges("squash=true", "There is nothing to merge"), before);
    let after = person.merges("squash=true&with_uncommitted=true", "Merged into main");
    assert_ne!(after, before);
    assert_eq!(git(&daemon, &["show", "main:left.txt"]), "left");
    // After a revert, the menu brings the files back.
    git(&daemon, &["revert", "--no-edit", "HEAD"]);
    let shown = part(&daemon, "en");
    assert!(menu(&shown).contains(">Merge all again<"), "{shown}");
    let field =
        "<input type=\"hidden\" name=\"with_uncommitted\" value=\"true\" data-merge-of=\"tsk\">";
    assert!(shown.contains(field), "{shown}");
    let sent = format!("expected_head={}&with_uncommitted=true", head(&shown));
    let told = person.merges(&sent, "reverted that.");
    assert!(git(&daemon, &["ls-tree", &told, "left.txt"]).is_empty());
    person.merges(&format!("{sent}&again=true"), "Merged into main");
    assert_eq!(git(&daemon, &["show", "main:left.txt"]), "left");
}

#[test]
fn viewers_may_look_at_changes_and_do_nothing() {
    let daemon = shop(LISTENING, &WORKS);
    daemon.task("tsk", "shop", "agt");
    until_kept(&daemon, "tsk");
    let mut viewer = Person::of(&daemon, "viewer");
    let shown = viewer.get("/ui/parts/tasks/tsk/changes");
    assert_eq!(shown.status, 200, "{shown:?}");
    assert!(shown.body.contains("main.txt"), "{shown:?}");
    assert!(!shown.body.contains("<button") && !shown.body.contains("<form"), "{shown:?}");
    let before = git(&daemon, &["rev-parse", "main"]);
    for action in ["merge", "publish", "discard", "discard-forever", "keep", "restore", "retry"] {
        let answer = viewer.does(&format!("tsk/{action}"), "");
        answer.check_problem(403, "viewer_may_not", "");
    }
    viewer.does("tsk/result", "take=x").check_problem(403, "viewer_may_not", "");
    assert_eq!(git(&daemon, &["rev-parse", "main"]), before);
    assert!(part(&daemon, "en").contains("Merge into main"));
}

#[test]
fn changes_of_what_is_not_there_are_refused() {
    let daemon = shop(LISTENING, &WORKS);
    daemon.done(&["task", "add", "--id", "tsk", "--project", "shop", "--title", "a title"]);
    let mut person = Person::of(&daemon, "operator");
    for (id, statuses) in [
        ("tsk", [404, 404]),
        ("none", [404, 404]),
        ("..", [400, 404]),
        ("%2e%2e", [400, 404]),
        ("a%2fb", [400, 404]),
        ("a%00b", [400, 404]),
        ("%ff", [400, 404]),
    ] {
        let shown = person.get(&format!("/ui/parts/tasks/{id}/changes"));
        assert!(statuses.contains(&shown.status), "{id}: {shown:?}");
        for action in ["merge", "publish", "discard", "discard-forever", "keep", "restore", "retry"]
        {
            let answer = person.does(&format!("{id}/{action}"), "");
            assert!(statuses.contains(&answer.status), "{id} {action}: {answer:?}");
        }
        let answer = person.does(&format!("{id}/result"), "take=x");
        assert!(statuses.contains(&answer.status), "{id}: {answer:?}");
    }
    assert!(!daemon.page("/ui/parts/tasks/tsk", "en").contains("data-changes-of"));
}

#[test]
fn the_form_of_a_new_project_proposes_clones_in_a_repository_and_says_what_they_are() {
    let daemon = shop(LISTENING, &WORKS);
    let mut person = Person::of(&daemon, "operator");
    let work = daemon.work();
    let cloned = "<option value=\"clone\" selected>";
    let shared = "<option value=\"shared\" selected>";
    assert!(person.get("/ui/projects/new").body.contains(shared));
    let choice = |person: &mut Person<'_>, directory: &str| {
        person.get(&format!("/ui/parts/projects/workspace?working_directory={directory}")).body
    };
    assert!(choice(&mut person, work.to_str().unwrap()).contains(cloned));
    assert!(choice(&mut person, daemon.folder().to_str().unwrap()).contains(shared));
    assert!(choice(&mut person, "").contains(shared));
    let mut viewer = Person::of(&daemon, "viewer");
    let told = choice(&mut viewer, work.to_str().unwrap());
    assert!(told.contains(shared) && !told.contains("folder-state"), "{told}");
    let looked = |person: &mut Person<'_>| person.get("/ui/parts/projects/shop/folder").body;
    assert_eq!(looked(&mut viewer).trim(), "", "a viewer learns nothing about folders");
    assert!(looked(&mut person).contains("git, branch main"), "{}", looked(&mut person));
    let headers = format!("{}{OWN}{FORM}Hx-Request: true\r\n", person.cookie);
    let body = format!("id=blog&name=Blog&working_directory={}&workspace=clone", work.display());
    let answer = person.web.ask("POST", "/ui/do/projects", &headers, &body);
    assert_eq!(answer.status, 204, "{answer:?}");
    assert_eq!(daemon.json(&["project", "show", "blog"])["workspace"], "clone");
    for page in ["/ui/projects/blog", "/ui/projects/blog/edit"] {
        let page = daemon.page(page, "en");
        assert!(page.contains("each task has its own clone"), "{page}");
    }
    let edit = daemon.page("/ui/projects/blog/edit", "ja");
    assert!(
        edit.contains("name=\"workspace_base\"") && edit.contains("クローンの開始位置"),
        "{edit}"
    );
    let own = "workspace_base=main&workspace_branch=w%2F%7Btask_id%7D";
    let body = format!("name=Blog&working_directory={}&{own}", work.display());
    let answer = person.web.ask("POST", "/ui/do/projects/blog", &headers, &body);
    assert_eq!(answer.status, 204, "{answer:?}");
    let edit = daemon.page("/ui/projects/blog/edit", "en");
    assert!(edit.contains("value=\"w/{task_id}\"") && edit.contains("value=\"main\""), "{edit}");
    let body = format!("name=Blog&working_directory={}&workspace_base=-x", work.display());
    let answer = person.web.ask("POST", "/ui/do/projects/blog", &headers, &body);
    answer.check_problem(409, "bad_workspace_setting", "");
    let body = format!("name=Blog&working_directory={}&workspace=shared", work.display());
    let answer = person.web.ask("POST", "/ui/do/projects/blog", &headers, &body);
    assert_eq!(answer.status, 409, "{answer:?}");
}

#[test]
fn a_reader_turns_the_hooks_off_for_a_project_and_on_again() {
    let daemon = shop(LISTENING, &WORKS);
    daemon.task("tsk", "shop", "agt");
    until_kept(&daemon, "tsk");
    fs::write(daemon.work().join("mine.txt"), "mine\n").unwrap();
    git(&daemon, &["add", "mine.txt"]);
    git(&daemon, &["commit", "--quiet", "-m", "mine"]);
    let hooks = daemon.work().join(".git/hooks");
    fs::create_dir_all(&hooks).unwrap();
    fs::write(hooks.join("pre-merge-commit"), "#!/bin/sh\nexit 1\n").unwrap();
    fs::set_permissions(hooks.join("pre-merge-commit"), Permissions::from_mode(0o755)).unwrap();
    let mut person = Person::of(&daemon, "operator");
    person.merges("", "name=\"remember\"");
    person.merges("remember=true", "Later merges in this project run no hooks either.");
    let form = "/ui/projects/shop/edit";
    let is_off = "<option value=\"off\" selected>";
    assert!(daemon.page(form, "en").contains(is_off), "{}", daemon.page(form, "en"));
    assert!(daemon.page(form, "ja").contains("マージ時のリポジトリのフック"));
    let headers = format!("{}{OWN}{FORM}Hx-Request: true\r\n", person.cookie);
    let directory = daemon.work();
    let change = |hooks: &str| {
        format!("name=Shop&working_directory={}&merge_hooks={hooks}", directory.display())
    };
    let refused = person.web.ask("POST", "/ui/do/projects/shop", &headers, &change("run"));
    refused.check_problem(409, "bad_workspace_setting", "");
    let answer = person.web.ask("POST", "/ui/do/projects/shop", &headers, &change(""));
    assert_eq!(answer.status, 204, "{answer:?}");
    assert!(!daemon.page(form, "en").contains(is_off));
}

#[test]
fn a_reader_learns_that_a_reverted_result_has_no_newer_commit() {
    let daemon = shop(LISTENING, &WORKS);
    daemon.task("tsk", "shop", "agt");
    until_kept(&daemon, "tsk");
    daemon.done(&["task", "merge", "tsk"]);
    git(&daemon, &["revert", "--no-edit", "HEAD"]);
    let mut person = Person::of(&daemon, "operator");
    person.merges("", "Merge only newer changes");
    person.merges("only_new=true", "There is no newer commit.");
}
