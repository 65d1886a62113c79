//! From an issue to a draft pull or merge request: a clone of the repository at the forge, a push,
//! and the request, with the real daemon and git over HTTP.

use std::path::PathBuf;

use domain::forge::ForgeKind;
use serde_json::Value;

use super::{BOT, Bed, NAME, n_comments};
use crate::daemon::Daemon;
use crate::forge::fake::{Branches, Fake, Fault, Item, Repository, TOKEN, Times};
use crate::support::{contains, git, until, until_some};
use crate::workspace_faults::{path_with_git, start_with};

pub(super) const BOTH: [ForgeKind; 2] = [ForgeKind::GitHub, ForgeKind::GitLab];

/// The steps of an agent that commits a file and reports success.
pub(super) const COMMITS: &[&str] = &[
    "authenticate",
    "get-my-task",
    "run:echo fixed >login.txt; git add login.txt && git commit -qm 'Fix the login'",
    r#"call:report_completed {"result": "success", "summary": "Fixed the form, see @ann."}"#,
];

/// Starts a bed whose repository has a commit, and whose results are published.
pub(super) fn bed(forge: ForgeKind, publish: &str, steps: &[&str]) -> Bed {
    bed_with(forge, publish, steps, "")
}

pub(super) fn bed_with(forge: ForgeKind, publish: &str, steps: &[&str], settings: &str) -> Bed {
    started(forge, publish, steps, settings, Daemon::start)
}

/// Starts such a bed with a daemon that `start` starts.
fn started(
    forge: ForgeKind,
    publish: &str,
    steps: &[&str],
    settings: &str,
    start: impl FnOnce(&mut Daemon),
) -> Bed {
    let fake = Fake::start();
    let repository = fake.repository(forge, NAME);
    repository.init_git();
    // The scripted agent finds its steps in its working directory, which is a clone.
    repository.commit("main", "agt.steps", &(steps.join("\n") + "\n"));
    let entry = "{ project_id: prj, agent: agt";
    let text = Bed::settings(&fake, forge, "");
    let text = text.replace(entry, &format!("{entry}, publish: {publish}"));
    let mut daemon = Daemon::configured(&format!("{text}\n{settings}"));
    start(&mut daemon);
    daemon.project("prj");
    daemon.agent("agt", "prj", steps);
    Bed { fake, daemon, forge }
}

impl Bed {
    pub(super) fn repository(&self) -> Repository {
        self.fake.repository(self.forge, NAME)
    }

    /// Returns the only request between branches.
    #[track_caller]
    pub(super) fn only_request(&self) -> (Item, Branches) {
        let mut requests = self.repository().requests();
        assert_eq!(requests.len(), 1, "{:?}", self.daemon.log());
        requests.remove(0)
    }

    /// Returns the content of a file of a branch at the forge.
    pub(super) fn file_at(&self, branch: &str, file: &str) -> String {
        git(&self.repository().git(), &["show", &format!("refs/heads/{branch}:{file}")])
    }
}

#[test]
fn an_issue_becomes_a_draft_request_with_the_work_of_its_agent() {
    for forge in BOTH {
        let bed = bed(forge, "pull_request, publish_closes: true", COMMITS);
        let base = bed.repository().branch("main").unwrap();
        let issue = bed.issue("Login fails");
        let item = bed.until("done");

        let (request, branches) = bed.only_request();
        let found = (branches.branch.as_str(), branches.target.as_str(), branches.is_draft);
        assert_eq!(found, ("agents/prj-1", "main", true));
        assert_eq!(bed.file_at("agents/prj-1", "login.txt"), "fixed");
        assert_eq!(bed.file_at("agents/prj-1", "README.md"), "# Site", "it began at the forge");
        assert_eq!(bed.repository().branch("main"), Some(base), "only its own branch is pushed");
        let draft = if forge == ForgeKind::GitLab { "Draft: " } else { "" };
        assert_eq!(request.title(), format!("{draft}Login fails"));
        let body = request.body();
        assert!(body.starts_with("Closes #1\n") && body.contains("Fixed the form"), "{body}");
        assert!(!body.contains("@ann"), "an agent notifies no account: {body}");

        let url = item["request_url"].as_str().unwrap();
        assert_eq!(n_comments(&issue, "Task done"), 1);
        let comments = issue.comments();
        let done = comments.last().unwrap();
        assert!(done.contains(url) && done.contains("`agents/prj-1`"), "{done}");
        assert!(done.contains("### Work\n\n- Duration: "), "{done}");
        assert_eq!(issue.labels(), ["coding agent done"]);
        assert!(
            !bed.daemon.work().join("login.txt").exists(),
            "the project's directory is as before"
        );
    }
}

#[test]
fn publish_push_opens_no_request() {
    let bed = bed(ForgeKind::GitHub, "push", COMMITS);
    let issue = bed.issue("Login fails");
    let item = bed.until("done");
    assert_eq!(item["branch"], "agents/prj-1");
    assert!(bed.repository().requests().is_empty());
    assert_eq!(bed.file_at("agents/prj-1", "login.txt"), "fixed");
    assert_eq!(n_comments(&issue, "`agents/prj-1`"), 1);
    // The coordinator does that for items.
    let said = bed.daemon.cli(&["task", "publish", item["task_id"].as_str().unwrap()]);
    assert!(said.code != 0 && said.stderr.contains("`forge list` says how far"), "{said:?}");
}

#[test]
fn work_without_a_commit_publishes_nothing_and_says_so() {
    let steps = &["authenticate", "get-my-task", "report:success"];
    let bed = bed(ForgeKind::GitHub, "pull_request", steps);
    let issue = bed.issue("Login fails");
    bed.until("done");
    assert!(bed.repository().requests().is_empty());
    assert_eq!(bed.repository().branch("agents/prj-1"), None);
    assert_eq!(n_comments(&issue, "no commit"), 1);
}

#[test]
fn work_that_a_person_finishes_is_told_as_done_by_hand_and_not_pushed() {
    let mut steps = COMMITS.to_vec();
    steps.pop();
    steps.push("report:blocked");
    for forge in BOTH {
        let bed = bed(forge, "pull_request", &steps);
        let issue = bed.issue("Login fails");
        let item = bed.until("blocked");
        let task = item["task_id"].as_str().unwrap();
        bed.daemon.done(&["task", "set", task, "--status", "done"]);
        bed.until("done");
        assert_eq!((n_comments(&issue, "done by hand"), n_comments(&issue, "Result")), (1, 0));
        assert_eq!(issue.labels(), ["coding agent done"]);
        assert!(bed.repository().requests().is_empty());
        assert_eq!(bed.repository().branch("agents/prj-1"), None);
        // A person decides about what the agent left.
        assert_eq!(bed.daemon.json(&["task", "show", task])["to_merge"], "merge");
    }
}

#[test]
fn an_item_is_claimed_only_when_its_base_commit_is_there() {
    let bed = bed(ForgeKind::GitHub, "pull_request", COMMITS);
    bed.fake.fail("GET /git/*", Times::Always, Fault::status(503));
    let issue = bed.issue("Login fails");
    let waiting = until_some("the item is prepared", || {
        bed.items_and_waiting().into_iter().find(|item| item["state"] == "preparing")
    });
    assert_eq!(waiting["item"], "ann/site#1");
    bed.until_problem("was not fetched");
    assert!(issue.comments().is_empty(), "it is not claimed");
    bed.fake.mend();
    bed.until("done");
    assert_eq!(bed.only_request().1.branch, "agents/prj-1");
    until("the problem is over", || bed.host()["repositories"][0]["problem"].is_null());
}

#[test]
fn a_pull_or_merge_request_begins_at_its_head_and_its_result_is_proposed_for_its_branch() {
    for forge in BOTH {
        let bed = bed(forge, "pull_request, publish_closes: true", COMMITS);
        let request = bed.add_request("feature", None);
        if forge == ForgeKind::GitHub {
            request.review("ann", "login.txt", "Please trim it.");
        }
        request.label("coding agent").assign(BOT);
        let item = bed.until("done");
        let task = bed.task(&item);
        let description = task["description"].as_str().unwrap();
        let main = bed.repository().branch("main").unwrap();
        assert!(description.contains(&format!("Compared with: main ({main})")), "{description}");
        let has_review = description.contains("login.txt:7\nPlease trim it.");
        assert_eq!(has_review, forge == ForgeKind::GitHub, "{description}");
        let requests = bed.repository().requests();
        let (result, branches) = requests.last().unwrap();
        assert_eq!((requests.len(), branches.target.as_str()), (2, "feature"));
        assert_eq!(result.title(), "Draft: Better login", "the mark is there once");
        assert!(result.body().contains("Refs "), "a request closes nothing: {}", result.body());
        assert_eq!(bed.file_at(&branches.branch, "feature.txt"), "feature");
    }
}

#[test]
fn of_many_waiting_requests_some_are_asked_for_at_each_poll_in_turn() {
    let bed = bed(ForgeKind::GitHub, "pull_request", COMMITS);
    // Nothing is claimed meanwhile.
    std::fs::create_dir_all(bed.daemon.state().join("contexts")).unwrap();
    std::fs::write(bed.daemon.state().join("contexts/pause_signal"), "").unwrap();
    let commit = bed.repository().commit("feature", "feature.txt", "feature");
    let numbers: Vec<String> = (0..45)
        .map(|n| {
            let request = bed.repository().open_request(&format!("{n}"), "feature", "main", None);
            let name = format!("refs/pull/{}/head", request.number);
            git(&bed.repository().git(), &["update-ref", &name, &commit]);
            request.label("coding agent").assign(BOT);
            format!("/{}", request.number)
        })
        .collect();
    let one = "/repos/{owner}/{repo}/pulls/{pull_number}";
    until("each was asked for", || {
        let requests = bed.fake.requests();
        numbers.iter().all(|number| {
            requests.iter().any(|it| it.route == one && it.path.ends_with(number.as_str()))
        })
    });
    let requests = bed.fake.requests();
    // Each fetch ends with a request of git.
    let fetches = requests.split(|request| request.path.starts_with("/git/"));
    let most = fetches.map(|of| of.iter().filter(|it| it.route == one).count()).max();
    assert_eq!(most, Some(20));
}

/// Adds a request from `feature`, lets `change` prepare it, and gives it to the bot. Returns the
/// commit that `feature` had.
fn with_request(bed: &Bed, change: impl FnOnce()) -> (Item, String) {
    let request = bed.add_request("feature", None);
    let before = bed.repository().branch("feature").unwrap();
    change();
    request.label("coding agent").assign(BOT);
    (request, before)
}

#[test]
fn the_answer_to_a_review_is_pushed_to_the_branch_of_the_request() {
    for forge in BOTH {
        let bed = bed(forge, "pull_request, push_to_pr: true", COMMITS);
        let (request, before) = with_request(&bed, || {});
        bed.until("done");
        let repository = bed.repository();
        assert_eq!(bed.file_at("feature", "login.txt"), "fixed");
        let parent = git(&repository.git(), &["rev-parse", "refs/heads/feature^"]);
        assert_eq!(parent, before, "its commits are added");
        assert_eq!(repository.requests().len(), 1, "no other request is needed");
        assert_eq!(repository.branch("agents/prj-1"), None);
        assert_eq!(n_comments(&request, "Pushed to this branch: `feature`"), 1);
    }
}

#[test]
fn a_protected_branch_and_a_branch_that_moved_are_left_as_they_are() {
    for forge in BOTH {
        let bed = bed(forge, "push, push_to_pr: true", COMMITS);
        let (request, before) = with_request(&bed, || bed.repository().protect("feature"));
        bed.until("done");
        assert_eq!(bed.repository().branch("feature"), Some(before));
        assert_eq!(bed.file_at("agents/prj-1", "login.txt"), "fixed");
        assert_eq!(n_comments(&request, "`feature` is protected, has newer commits"), 1);
    }
    let bed = bed(ForgeKind::GitHub, "push, push_to_pr: true", COMMITS);
    // The push waits for this answer.
    bed.fake.fail("GET */branches/*", Times::Always, Fault::status(503));
    let (request, _) = with_request(&bed, || {});
    until("the agent is done", || bed.daemon.json(&["task", "list"])[0]["status"] == "done");
    let theirs = bed.repository().commit("feature", "theirs.txt", "theirs");
    bed.fake.mend();
    bed.until("done");
    assert_eq!(bed.repository().branch("feature"), Some(theirs), "no commit of people is lost");
    assert_eq!(bed.file_at("agents/prj-1", "login.txt"), "fixed");
    assert_eq!(n_comments(&request, "`feature` is protected, has newer commits"), 1);
}

#[test]
fn the_request_and_the_comment_name_each_check() {
    let checks = "checks: { tests: { command: [sh, -c, 'test -s login.txt'] } }";
    let bed = bed_with(ForgeKind::GitHub, "pull_request", COMMITS, checks);
    let issue = bed.issue("Login fails");
    bed.until("done");
    let (request, _) = bed.only_request();
    let passed = "- `tests`: passed (exit 0, ";
    assert!(request.body().contains(passed), "{}", request.body());
    assert!(request.body().starts_with("Refs #1\n"), "it closes nothing: {}", request.body());
    let done = issue.comments().pop().unwrap();
    let after_checks = done.split_once(passed).unwrap().1;
    assert!(after_checks.contains("\n\n### Work\n\n- Duration: "), "{done}");
}

#[test]
fn the_comment_about_a_blocked_item_has_the_output_of_the_failed_check() {
    let checks = "checks_rounds: 0\n\
        checks: { tests: { command: [sh, -c, 'echo expected 3, see @ann; exit 4'] } }";
    let bed = bed_with(ForgeKind::GitHub, "pull_request", COMMITS, checks);
    let issue = bed.issue("Login fails");
    bed.until_labelled(&issue, "coding agent blocked");
    until("the comment is there", || n_comments(&issue, "- `tests`: failed (exit 4, ") == 1);
    let comment = issue.comments().pop().unwrap();
    assert!(comment.contains("expected 3"), "{comment}");
    assert!(!comment.contains("@ann"), "an output notifies no account: {comment}");
    assert!(bed.repository().requests().is_empty());
}

#[test]
fn an_issue_waits_for_open_issues_that_block_it() {
    let bed = Bed::new(ForgeKind::GitHub, &["authenticate", "get-my-task", "report:success"]);
    let blocked = bed.fake.repository(ForgeKind::GitHub, NAME).issue("Second");
    let blocker = bed.fake.repository(ForgeKind::GitHub, NAME).issue("Before");
    let summary = |n: u64| serde_json::json!({ "blocked_by": n, "total_blocked_by": 1 });
    blocked.say("issue_dependencies_summary", summary(1));
    blocked.link("is_blocked_by", &blocker);
    blocked.label("coding agent").assign(BOT);
    bed.issue("First");
    bed.until("done");
    assert_eq!(blocked.labels(), ["coding agent"], "it is not claimed");
    check_shown_as_blocked(&bed, &blocked, "/ann/site/issues/2");
    let asked = "GET */dependencies/blocked_by";
    assert_eq!(bed.fake.n_requests(asked), 1, "the list has the number");
    blocker.close();
    blocked.say("issue_dependencies_summary", summary(0));
    bed.until_labelled(&blocked, "coding agent done");
}

#[test]
fn an_issue_of_gitlab_waits_for_open_issues_that_block_it() {
    let bed = Bed::new(ForgeKind::GitLab, &["authenticate", "get-my-task", "report:success"]);
    let repository = bed.repository();
    let blocked = repository.issue("Second");
    let (closed, related) = (repository.issue("Before"), repository.issue("Beside"));
    let blocker = repository.issue("First");
    let unnamed = repository.issue("Elsewhere");
    unnamed.omit("web_url");
    // A question is asked three times.
    bed.fake.fail("GET */issues/1/links", Times::N(3), Fault::status(500));
    bed.fake.fail("GET */issues/1/links", Times::Always, Fault::TruncatedJson);
    closed.close();
    blocked.link("is_blocked_by", &closed).link("relates_to", &related);
    blocked.link("is_blocked_by", &blocker).link("is_blocked_by", &unnamed);
    blocked.label("coding agent").assign(BOT);
    bed.issue("Other");
    bed.until("done");
    assert_eq!(blocked.labels(), ["coding agent"], "it is not claimed");
    bed.until_problem("the issues that block ann/site#1 are not known");
    let repository = || bed.host()["repositories"][0].clone();
    until("the look is not in vain", || repository()["n_assigned"] == 2);
    assert_eq!(bed.host()["health"], "ok");
    let log = bed.daemon.log();
    assert!(!log.contains("a forge did not answer"), "{log}");
    bed.fake.mend();
    let shown = until_some("both are counted", || {
        bed.items_and_waiting().into_iter().find(|item| item["n_blockers"] == 2)
    });
    let links: Vec<_> = shown["blockers"].as_array().unwrap().iter().collect();
    assert!(links.len() == 1 && links[0].as_str().unwrap().ends_with("/issues/4"), "{shown}");
    unnamed.close();
    until("one is left", || bed.items_and_waiting().iter().any(|item| item["n_blockers"] == 1));
    check_shown_as_blocked(&bed, &blocked, "/issues/4");
    // The forge shows neither the links nor the issue.
    bed.fake.fail("GET */issues/1*", Times::Always, Fault::status(403));
    bed.until_problem("the issues that block ann/site#1 are not known");
    bed.fake.mend();
    blocker.close();
    bed.until_labelled(&blocked, "coding agent done");
}

/// Checks that people see that an issue waits, with a link to the only one that blocks it.
#[track_caller]
fn check_shown_as_blocked(bed: &Bed, blocked: &Item, address: &str) {
    let name = format!("{NAME}#{}", blocked.number);
    let shown = until_some("it is shown with a link", || {
        let is_it = |item: &Value| item["item"] == name && item["blockers"].is_array();
        bed.items_and_waiting().into_iter().find(is_it)
    });
    assert_eq!((&shown["state"], &shown["n_blockers"]), (&"waiting".into(), &1.into()), "{shown}");
    assert!(shown["position"].is_null(), "it has no turn: {shown}");
    let link = shown["blockers"][0].as_str().unwrap();
    assert!(link.ends_with(address), "{shown}");
    let text = "waits: blocked by 1 open issue";
    for command in [&["forge", "list"][..], &["why", "agt", "prj"]] {
        let said = bed.daemon.done(command);
        assert!(said.contains(text) && said.contains(link), "{command:?}: {said}");
    }
    let page = bed.daemon.page("/ui/parts/operations", "en");
    assert!(page.contains(text) && page.contains(&format!("href=\"{link}\"")), "{page}");
    let page = bed.daemon.page("/ui/parts/operations", "ja");
    assert!(page.contains("未完了の Issue 1 件"), "{page}");
    assert_eq!(bed.host()["repositories"][0]["n_waiting"], 0, "it waits for no agent");
}

#[test]
fn issues_of_a_gitlab_without_links_do_not_wait_and_it_is_asked_once() {
    let links = "GET /api/v4/projects/{id}/issues/{issue_iid}/links";
    for status in [403, 404] {
        let bed = Bed::new(ForgeKind::GitLab, &["authenticate", "get-my-task", "report:success"]);
        bed.fake.fail(links, Times::Always, Fault::status(status));
        let issue = bed.issue("First");
        bed.until_labelled(&issue, "coding agent done");
        let second = bed.issue("Second");
        bed.until_labelled(&second, "coding agent done");
        assert_eq!(bed.fake.n_requests(links), 1);
        let said = "the forge does not tell which issues block others";
        assert_eq!(bed.daemon.log().matches(said).count(), 1);
    }
}

#[test]
fn a_request_of_a_fork_is_worked_on_at_its_head_and_nothing_is_pushed() {
    let bed = bed(ForgeKind::GitHub, "pull_request", COMMITS);
    let other = bed.fake.repository(ForgeKind::GitHub, "eve/site");
    let request = bed.add_request("feature", Some(other.id()));
    request.label("coding agent").assign(BOT);
    let item = bed.until("done");
    assert_eq!(bed.repository().requests().len(), 1);
    assert!(item["branch"].is_null(), "{item}");
    let diff = bed.daemon.done(&["task", "diff", item["task_id"].as_str().unwrap()]);
    assert!(diff.contains("login.txt") && !diff.contains("feature.txt"), "{diff}");
    assert_eq!(n_comments(&request, "Task done"), 1);
}

/// The token is looked for in each call of git, in its calls of other programs, and in all
/// processes while an agent works.
#[test]
fn the_token_is_in_no_command_line_environment_log_or_file() {
    let steps = &[
        "authenticate",
        "get-my-task",
        "run:env >../env.txt; cat .git/config >>../env.txt; echo x >x; git add x; git commit -qm x",
        "wait-for:../../../../../work/go",
        "report:success",
    ];
    // A check finds as little of it as an agent does.
    let checks = "checks:\n  \
        plain: { command: [sh, -c, 'env >../check.txt'] }\n  \
        clean: { clean: true, command: [sh, -c, 'cd ..; env >../clean.txt'] }";
    for forge in BOTH {
        let bed = started(forge, "pull_request", steps, checks, |daemon| {
            let script = format!(
                "{{ printf '%s\\n' \"$@\"; env; }} >>'{0}/calls'\n\
                 export GIT_TRACE='{0}/trace'\nexec GIT \"$@\"",
                daemon.folder().display()
            );
            let path = path_with_git(daemon.folder(), &script);
            start_with(daemon, &path);
        });
        token_is_nowhere(&bed);
    }
}

fn token_is_nowhere(bed: &Bed) {
    bed.fake.fail("POST /git/*", Times::N(1), Fault::status(500));
    bed.issue("Login fails");
    bed.until("processing");
    bed.until_agent_runs();
    let folder = bed.daemon.folder();
    let daemon = bed.daemon.pid();
    let looked = processes_with(folder.to_str().unwrap(), daemon);
    assert!(!looked.is_empty(), "its shim and its agent are looked at");
    assert_eq!(processes_with(TOKEN, daemon), [""; 0]);
    std::fs::write(bed.daemon.work().join("go"), "").unwrap();
    bed.until("done");
    assert_eq!(bed.only_request().1.branch, "agents/prj-1");
    assert!(!bed.daemon.log().contains(TOKEN));
    for (file, expected) in [("calls", &["fetch", "push"][..]), ("trace", &["remote-http"][..])] {
        let content =
            String::from_utf8_lossy(&std::fs::read(folder.join(file)).unwrap()).into_owned();
        assert!(expected.iter().all(|call| content.contains(call)), "{file}: {content}");
        assert!(!content.contains(TOKEN), "{file}: {content}");
    }
    let files = files_below(&bed.daemon.state());
    for name in ["env.txt", "check.txt", "clean.txt"] {
        assert!(files.iter().any(|file| file.ends_with(name)), "{name}: {files:?}");
    }
    for file in files {
        let content = std::fs::read(&file).unwrap_or_default();
        assert!(!contains(&content, TOKEN), "{} has the token", file.display());
    }
}

/// Returns the files of processes that contain a text, except those of the daemon itself.
fn processes_with(text: &str, daemon: i32) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(pid) = name.parse::<i32>() else { continue };
        if pid == std::process::id().cast_signed() || pid == daemon {
            continue;
        }
        for part in ["cmdline", "environ"] {
            let content = std::fs::read(entry.path().join(part)).unwrap_or_default();
            if contains(&content, text) {
                found.push(format!("{name}/{part}"));
            }
        }
    }
    found
}

fn files_below(folder: &std::path::Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files.extend(files_below(&entry.path())),
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
    files
}

impl Bed {
    /// Returns all open items with those that wait.
    pub(super) fn items_and_waiting(&self) -> Vec<Value> {
        self.daemon.json(&["forge", "list"]).as_array().cloned().unwrap_or_default()
    }

    /// Opens a request from a branch with a commit to `main`. `of` is the fork that has the branch.
    pub(super) fn add_request(&self, branch: &str, of: Option<u64>) -> Item {
        let repository = self.repository();
        let commit = repository.commit(branch, &format!("{branch}.txt"), branch);
        let request = repository.open_request("Draft: Better login", branch, "main", of);
        let folder = match self.forge {
            ForgeKind::GitHub => "pull",
            ForgeKind::GitLab => "merge-requests",
        };
        let name = format!("refs/{folder}/{}/head", request.number);
        git(&repository.git(), &["update-ref", &name, &commit]);
        request
    }
}
