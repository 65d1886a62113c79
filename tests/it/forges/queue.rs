//! More items than agents and slots. An item is claimed when an agent and a slot are free for it,
//! and the repositories are served in turn. Until then the forge shows no sign of the daemon.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use domain::forge::ForgeKind;
use serde_json::Value;

use super::{BOT, NAME, n_comments};
use crate::daemon::Daemon;
use crate::forge::fake::{Fake, Item, TOKEN};
use crate::support::{until, until_some_within};

const PROCESSING: &str = "coding agent processing";

/// Returns the steps of an agent that works until its file exists. It removes the file, unless all
/// agents are to end.
fn waits(agent: &str) -> String {
    format!(
        "authenticate\nget-my-task\nwait-for:go-{agent}\nrun:[ -e all ] || rm go-{agent}\nreport:success"
    )
}

/// A daemon that watches several repositories, each with an agent of its own.
struct Fleet {
    fake: Fake,
    daemon: Daemon,
    forge: ForgeKind,
    names: Vec<&'static str>,
}

impl Fleet {
    fn new(forge: ForgeKind, names: &[&'static str], settings: &str) -> Self {
        let fake = Fake::start();
        for name in names {
            fake.repository(forge, name);
        }
        let (section, repositories) = match forge {
            ForgeKind::GitHub => ("github", "repositories"),
            ForgeKind::GitLab => ("gitlab", "projects"),
        };
        let mut text = format!(
            "polling_interval: 1h\nforge: {{ poll_interval: 100ms, write_interval: 0s, writes_per_hour: off }}\n{settings}\n\
             {section}:\n  base_url: {}\n  token: {TOKEN}\n  bot_name: {BOT}\n  {repositories}:\n",
            fake.url(forge)
        );
        for (n, name) in names.iter().enumerate() {
            writeln!(text, "    {name}: {{ project_id: prj, agent: agt{n} }}").unwrap();
        }
        let daemon = Daemon::configured(&text);
        Self { fake, daemon, forge, names: names.to_vec() }
    }

    /// Starts the daemon. The items exist already.
    fn start(&mut self) {
        self.daemon.start();
        self.daemon.project("prj");
        for n in 0..self.names.len() {
            let agent = format!("agt{n}");
            self.daemon.agent(&agent, "prj", &[&waits(&agent)]);
        }
    }

    fn issues(&self, n_each: usize) -> Vec<Vec<Item>> {
        let of = |name: &&'static str| {
            let repository = self.fake.repository(self.forge, name);
            let issue = |n: usize| {
                let issue = repository.issue(&format!("{name} {n}"));
                issue.label("coding agent").assign(BOT);
                issue
            };
            (0..n_each).map(issue).collect()
        };
        self.names.iter().map(of).collect()
    }

    /// Waits until each repository is looked at three times more.
    #[track_caller]
    fn until_looked(&self) {
        let list = match self.forge {
            ForgeKind::GitHub => "GET /repos/{owner}/{repo}/issues",
            ForgeKind::GitLab => "GET /api/v4/projects/{id}/issues",
        };
        let (before, n) = (self.fake.n_requests(list), 3 * (self.names.len() + 1));
        until("they are looked at again", || self.fake.n_requests(list) >= before + n);
    }

    /// Lets the agent of a repository finish its item, and waits until the forge shows that.
    fn finish(&self, repository: usize, item: &Item) {
        fs::write(self.daemon.work().join(format!("go-agt{repository}")), "").unwrap();
        until_some_within(
            super::TIMEOUT,
            || (item.labels() == ["coding agent done"]).then_some(()),
            || format!("{:?}\n{}", item.labels(), self.daemon.log()),
        );
    }
}

fn is_processing(issue: &Item) -> bool {
    issue.labels().iter().any(|label| label == PROCESSING)
}

/// Checks that the forge shows no sign of a daemon at these.
#[track_caller]
fn check_untouched<'a>(issues: impl IntoIterator<Item = &'a Item>) {
    for issue in issues {
        assert_eq!(issue.labels(), ["coding agent"]);
        assert!(issue.comments().is_empty(), "{:?}", issue.comments());
    }
}

fn list(daemon: &Daemon) -> Vec<Value> {
    daemon.json(&["forge", "list"]).as_array().unwrap().clone()
}

#[test]
fn an_item_is_claimed_when_its_agent_and_a_slot_are_free_and_repositories_are_served_in_turn() {
    let names = ["ann/a", "ann/b", "ann/c"];
    let mut fleet = Fleet::new(ForgeKind::GitLab, &names, "max_concurrent: 2");
    let issues = fleet.issues(4);
    fleet.start();
    let n_processing = |of: usize| issues[of].iter().filter(|issue| is_processing(issue)).count();
    let all = || (0..3).map(n_processing).sum::<usize>();
    until_some_within(
        super::TIMEOUT,
        || (all() >= 2).then_some(()),
        || format!("{} are claimed\n{}", all(), fleet.daemon.log()),
    );
    until("two agents run", || fleet.daemon.status()["limits"]["running"] == 2);
    fleet.until_looked();
    // There are two slots, so two items are at work, each the oldest of its repository.
    let served: Vec<usize> = (0..3).filter(|n| n_processing(*n) == 1).collect();
    assert_eq!((served.len(), all()), (2, 2), "{:?}", list(&fleet.daemon));
    let unserved = (0..3).find(|n| !served.contains(n)).unwrap();
    check_untouched(issues.iter().flat_map(|of| &of[1..]).chain(&issues[unserved]));

    // The next free slot goes to the repository that had none yet, not to the one that just had
    // it.
    fleet.finish(served[0], &issues[served[0]][0]);
    until("the third is served", || n_processing(unserved) == 1);
    fleet.until_looked();
    assert_eq!((n_processing(served[0]), all()), (0, 2));
    fleet.finish(unserved, &issues[unserved][0]);
    until("the first is served again", || n_processing(served[0]) == 1);
    check_untouched(issues[served[0]][2..].iter().chain(&issues[served[1]][1..]));

    // Without waits all items are done in the end, each once.
    fs::write(fleet.daemon.work().join("all"), "").unwrap();
    for n in 0..3 {
        fs::write(fleet.daemon.work().join(format!("go-agt{n}")), "").unwrap();
    }
    for issue in issues.iter().flatten() {
        let is_done = || (issue.labels() == ["coding agent done"]).then_some(());
        until_some_within(super::TIMEOUT, is_done, || {
            format!("{:?}\n{}", issue.labels(), fleet.daemon.log())
        });
        assert_eq!(n_comments(issue, "Task started"), 1);
    }
    check_never_more_than(&fleet.daemon, 2);
}

/// Checks that the log shows at no time more items at work than slots. An item whose agent has
/// reported does not count, although its end is not written yet.
#[track_caller]
fn check_never_more_than(daemon: &Daemon, n_slots: usize) {
    let mut open: BTreeSet<String> = BTreeSet::new();
    let mut most = 0;
    for line in daemon.log().lines() {
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        if line["message"] == "forge item" {
            let item = line["item"].to_string();
            match line["state"].as_str() {
                Some("claiming" | "processing") => open.insert(item),
                _ => open.remove(&item),
            };
        }
        most = most.max(open.len());
    }
    // Each slot may have one item that is ready and one that is claimed for the time after it.
    assert!((n_slots..=2 * n_slots).contains(&most), "{most} at a time\n{}", daemon.log());
}

#[test]
fn what_waits_is_listed_with_its_position_until_the_bot_is_taken_off() {
    let mut fleet = Fleet::new(ForgeKind::GitHub, &["ann/a", "ann/b"], "max_concurrent: 1");
    let issues = fleet.issues(3);
    fleet.start();
    let waiting = || -> Vec<Value> {
        list(&fleet.daemon).into_iter().filter(|item| item["state"] == "waiting").collect()
    };
    until("five wait", || waiting().len() == 5 && list(&fleet.daemon).len() == 6);
    until("one is at work", || list(&fleet.daemon)[0]["state"] == "processing");
    let first = list(&fleet.daemon)[0]["item"].as_str().unwrap().to_owned();
    let (own, other) = if first == "ann/a#1" { ("a", "b") } else { ("b", "a") };
    let names = |items: &[Value]| -> Vec<String> {
        items.iter().map(|item| item["item"].as_str().unwrap().to_owned()).collect()
    };
    let all = waiting();
    // The repositories take turns, and the one that has just been served comes last.
    let turns = [(other, 1), (own, 2), (other, 2), (own, 3), (other, 3)];
    assert_eq!(names(&all), turns.map(|(name, number)| format!("ann/{name}#{number}")));
    for (n, item) in all.iter().enumerate() {
        assert_eq!(item["position"], n + 1, "{item}");
        assert!(item["id"].is_null() && item["task_id"].is_null(), "{item}");
        assert!(item["title"].is_string() && item["url"].is_string(), "{item}");
        assert_eq!(item["project_id"], "prj");
    }
    let text = fleet.daemon.done(&["forge", "list"]);
    assert!(text.contains("waiting, position 5"), "{text}");
    assert_eq!(fleet.daemon.json(&["forge", "list", "--limit", "3"]).as_array().unwrap().len(), 3);
    let host = fleet.daemon.status()["forges"][0].clone();
    let n_waiting = |n: usize| host["repositories"][n]["n_waiting"].as_u64().unwrap();
    assert_eq!(n_waiting(0) + n_waiting(1), 5, "{host}");

    // The next one is unassigned: it leaves the list, and nothing is written to it.
    let next = &issues[usize::from(other == "b")][0];
    next.unassign(BOT);
    until("four wait", || waiting().len() == 4);
    assert_eq!(waiting()[0]["position"], 1);
    assert_eq!(names(&waiting())[0], format!("ann/{other}#2"), "{:?}", waiting());
    check_untouched([next]);
}

#[test]
fn a_second_daemon_with_a_free_slot_takes_its_share_of_what_waits() {
    let mut fleet = Fleet::new(ForgeKind::GitHub, &[NAME], "");
    let issues = fleet.issues(8).remove(0);
    let settings = fs::read_to_string(fleet.daemon.config()).unwrap();
    let (_, settings) = settings.split_once("polling_interval").unwrap();
    let mut second = Daemon::configured(&format!("polling_interval{settings}"));
    fleet.start();
    let n_processing = || issues.iter().filter(|issue| is_processing(issue)).count();
    until("the first has one", || n_processing() == 1 && list(&fleet.daemon).len() == 8);
    fleet.until_looked();
    check_untouched(&issues[1..]);

    second.start();
    second.project("prj");
    second.agent("agt0", "prj", &[&waits("agt0")]);
    until("the second has one", || n_processing() == 2);
    fleet.until_looked();
    check_untouched(&issues[2..]);
    for daemon in [&fleet.daemon, &second] {
        fs::write(daemon.work().join("all"), "").unwrap();
        fs::write(daemon.work().join("go-agt0"), "").unwrap();
    }
    for issue in &issues {
        until_some_within(
            super::TIMEOUT,
            || (issue.labels() == ["coding agent done"]).then_some(()),
            || format!("{:?}\n{}\n---\n{}", issue.labels(), fleet.daemon.log(), second.log()),
        );
        assert_eq!(n_comments(issue, "Task started"), 1);
    }
    let n_done = |daemon: &Daemon| {
        let ended = daemon.json(&["forge", "list", "--ended"]);
        ended.as_array().unwrap().iter().filter(|item| item["state"] == "done").count()
    };
    until("both know what they did", || n_done(&fleet.daemon) + n_done(&second) == issues.len());
    assert!(n_done(&fleet.daemon) > 0 && n_done(&second) > 0);
}

#[test]
fn nothing_is_claimed_while_starts_are_paused() {
    let mut fleet = Fleet::new(ForgeKind::GitHub, &[NAME], "");
    fleet.daemon.start();
    fleet.daemon.done(&["pause"]);
    fleet.daemon.terminate();
    let issues = fleet.issues(2).remove(0);
    fleet.start();
    until("both wait", || {
        list(&fleet.daemon).iter().filter(|item| item["state"] == "waiting").count() == 2
    });
    fleet.until_looked();
    check_untouched(&issues);
    fleet.daemon.done(&["resume"]);
    until("the first is worked on", || is_processing(&issues[0]));
    check_untouched(&issues[1..]);
}

#[test]
fn the_next_free_agent_of_a_repository_takes_the_next_item_and_keeps_it() {
    let mut fleet = Fleet::new(ForgeKind::GitLab, &[NAME], "");
    let settings = fs::read_to_string(fleet.daemon.config()).unwrap();
    let settings = settings.replace("agent: agt0", "agents: [agt0, agt1]");
    fs::write(fleet.daemon.config(), settings).unwrap();
    let issues = fleet.issues(4).remove(0);
    fleet.start();
    fleet.daemon.agent("agt1", "prj", &[&waits("agt1")]);
    let at_work = || -> Vec<(String, String)> {
        let all = list(&fleet.daemon);
        let mut found: Vec<_> = all
            .iter()
            .filter(|item| item["state"] == "processing")
            .map(|item| [&item["item"], &item["agent_id"]].map(|it| it.as_str().unwrap()))
            .map(|[item, agent]| (item.to_owned(), agent.to_owned()))
            .collect();
        found.sort();
        found
    };
    until("both agents have one", || at_work().len() == 2);
    fleet.until_looked();
    let first = at_work();
    let agents: BTreeSet<&str> = first.iter().map(|(_, agent)| agent.as_str()).collect();
    assert_eq!(agents, BTreeSet::from(["agt0", "agt1"]), "{first:?}");
    assert!(issues[..2].iter().all(is_processing), "the oldest: {first:?}");
    check_untouched(&issues[2..]);
    // It is not known yet which of several agents takes a waiting item.
    let waiting = list(&fleet.daemon).into_iter().find(|item| item["state"] == "waiting");
    assert!(waiting.unwrap()["agent_id"].is_null());

    let of_second = first.iter().find(|(_, agent)| agent == "agt1").unwrap().0.clone();
    let n = usize::from(!of_second.ends_with('1'));
    fleet.finish(1, &issues[n]);
    until("the next item is taken", || is_processing(&issues[2]));
    until("by who was free", || at_work().iter().any(|(_, agent)| agent == "agt1"));
    let kept = first.iter().find(|(_, agent)| agent == "agt0").unwrap();
    assert!(at_work().contains(kept), "{:?}", at_work());
    check_untouched(&issues[3..]);
}

#[test]
fn each_agent_that_is_not_there_is_logged_once_and_shown_while_items_wait() {
    let mut fleet = Fleet::new(ForgeKind::GitHub, &[NAME], "");
    let settings = fs::read_to_string(fleet.daemon.config()).unwrap();
    let settings = settings.replace("agent: agt0", "agents: [agt0, unknown, nameless]");
    fs::write(fleet.daemon.config(), settings).unwrap();
    let issues = fleet.issues(3).remove(0);
    fleet.start();
    let problem = || -> String {
        let repository = fleet.daemon.status()["forges"][0]["repositories"][0].clone();
        repository["problem"].as_str().unwrap_or_default().to_owned()
    };
    let is_shown = || ["`unknown`", "`nameless`"].iter().all(|agent| problem().contains(agent));
    let n_logged = |agent: &str| {
        let lines = fleet.daemon.logged("a repository of a forge has a problem");
        lines.iter().filter(|line| line["problem"].as_str().unwrap().contains(agent)).count()
    };
    until("both are shown", is_shown);
    // The claim of another agent causes no new line about these.
    fleet.finish(0, &issues[0]);
    until("the next is worked on", || is_processing(&issues[1]));
    until("both are shown again", is_shown);
    fleet.until_looked();
    assert_eq!((n_logged("`unknown`"), n_logged("`nameless`")), (1, 1));
    // One of these agents is created, and takes the waiting item.
    fleet.daemon.agent("unknown", "prj", &[&waits("unknown")]);
    until("the last is worked on", || is_processing(&issues[2]));
    until("nothing waits", || problem().is_empty());
}

#[test]
fn a_server_claims_what_its_coordinators_have_slots_for() {
    let mut fleet = Fleet::new(ForgeKind::GitHub, &["ann/a", "ann/b", "ann/c"], "");
    fleet.daemon.role = "serve";
    let issues = fleet.issues(2);
    fleet.start();
    until("they wait", || list(&fleet.daemon).len() == 6);
    fleet.until_looked();
    // Without a coordinator no agent could be started.
    check_untouched(issues.iter().flatten());
    let server = format!("unix:{}", fleet.daemon.state().join("mcp.sock").display());
    let agents: Vec<String> = (0..3).map(|n| format!("agt{n}: {{ passkey: a-passkey }}")).collect();
    let settings =
        format!("max_concurrent: 2\npolling_interval: 1h\nagents: {{ {} }}", agents.join(", "));
    let mut coordinator = Daemon::supervising(&server, &settings);
    coordinator.start();
    let n_processing = || issues.iter().flatten().filter(|issue| is_processing(issue)).count();
    until("two are claimed", || n_processing() == 2);
    until("two agents run", || fleet.daemon.status()["limits"]["running"] == 2);
    fleet.until_looked();
    assert_eq!(n_processing(), 2);
}
