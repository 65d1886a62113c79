//! Two daemons that watch one repository. Only one of them works on each item.

use std::fs;

use domain::forge::ForgeKind;
use domain::forge::marker::Marker;
use machine::crash_point::{CrashPoint, VARIABLE};
use serde_json::Value;

use super::{BOT, Bed, NAME, check_comments, n_comments};
use crate::daemon::Daemon;
use crate::forge::fake::{Fake, Fault, Item, TOKEN, Times};
use crate::support::{until, until_some_within};

const N_ITEMS: usize = 8;
const BOTH: [ForgeKind; 2] = [ForgeKind::GitHub, ForgeKind::GitLab];
/// The log message for a claim that does not count.
const IGNORED: &str = "ignored a claim on a forge item: its author is not an accepted account";
const WORKS: &[&str] = &["authenticate", "get-my-task", "append:runs", "report:success"];

/// Two daemons with an agent each, which do not run yet.
struct Rivals {
    fake: Fake,
    forge: ForgeKind,
    daemons: [Daemon; 2],
}

impl Rivals {
    fn new(forge: ForgeKind) -> Self {
        Self::configured(forge, |_, settings| settings)
    }

    /// Makes the daemons with changed settings. Each daemon has a number.
    fn configured(forge: ForgeKind, change: impl Fn(usize, String) -> String) -> Self {
        let fake = Fake::start();
        fake.repository(forge, NAME);
        let daemons = [0, 1].map(|number| {
            let settings = change(number, Bed::settings(&fake, forge, ""));
            let more = "manifest: manifest.yaml\nbackoff: { initial: 1ms, max: 1ms }";
            let daemon = Daemon::configured(&format!("{settings}\n{more}"));
            let project =
                format!("prj: {{ working_directory: {}, agents: [agt] }}", daemon.work().display());
            daemon.write(
                "manifest.yaml",
                format!("agents: {{ agt: {{}} }}\nprojects: {{ {project} }}\n"),
            );
            daemon.steps("agt", WORKS);
            daemon
        });
        Self { fake, forge, daemons }
    }

    fn issue(&self, title: &str) -> Item {
        let issue = self.fake.repository(self.forge, NAME).issue(title);
        issue.label("coding agent").assign(BOT);
        issue
    }

    fn issues(&self) -> Vec<Item> {
        (0..N_ITEMS).map(|n| self.issue(&format!("issue {n}"))).collect()
    }

    fn logs(&self) -> String {
        self.daemons.iter().map(Daemon::log).collect::<Vec<_>>().join("\n---\n")
    }

    fn n_runs(&self) -> usize {
        let runs =
            |daemon: &Daemon| fs::read_to_string(daemon.work().join("runs")).unwrap_or_default();
        self.daemons.iter().map(|daemon| runs(daemon).lines().count()).sum()
    }

    #[track_caller]
    fn until_labelled(&self, issue: &Item, label: &str) {
        let labelled = || (issue.labels() == [label]).then_some(());
        until_some_within(super::TIMEOUT, labelled, || {
            format!(
                "waited in vain for `{label}`: {:?} {:?}\n{}",
                issue.labels(),
                issue.comments(),
                self.logs()
            )
        });
    }

    /// Checks that all issues are done, each by one agent, and that no text mentions the other
    /// daemon.
    #[track_caller]
    fn check_done(&self, issues: &[Item]) {
        for issue in issues {
            self.until_labelled(issue, "coding agent done");
        }
        until("nothing is open", || self.daemons.iter().all(|daemon| open(daemon).is_empty()));
        for issue in issues {
            check_comments(issue, &["Task started", "Task done"]);
            assert_eq!(issue.labels(), ["coding agent done"]);
        }
        assert_eq!(self.n_runs(), issues.len(), "{}", self.logs());
        let ended = self.daemons.each_ref().map(ended);
        let n_done = ended.iter().flatten().filter(|item| item["state"] == "done").count();
        assert_eq!(n_done, issues.len());
        assert!(
            ended
                .iter()
                .flatten()
                .all(|item| item["state"] == "done" || item["state"] == "elsewhere"),
            "{ended:?}"
        );
    }
}

fn open(daemon: &Daemon) -> Vec<Value> {
    daemon.json(&["forge", "list"]).as_array().unwrap().clone()
}

fn ended(daemon: &Daemon) -> Vec<Value> {
    daemon.json(&["forge", "list", "--ended"]).as_array().unwrap().clone()
}

#[test]
fn two_daemons_share_what_comes_and_each_item_is_done_once() {
    let mut rivals = Rivals::new(ForgeKind::GitLab);
    rivals.daemons.iter_mut().for_each(Daemon::start);
    let issues = rivals.issues();
    rivals.check_done(&issues);
}

#[test]
fn two_daemons_that_start_at_the_same_moment_share_what_is_there() {
    let mut rivals = Rivals::new(ForgeKind::GitHub);
    let issues = rivals.issues();
    rivals.daemons.iter_mut().for_each(Daemon::spawn);
    rivals.daemons.iter_mut().for_each(Daemon::until_ready);
    rivals.check_done(&issues);
}

#[test]
fn two_daemons_whose_answers_are_lost_do_each_item_once() {
    for (forge, comments) in
        [(ForgeKind::GitHub, "POST *comments"), (ForgeKind::GitLab, "POST *notes")]
    {
        let mut rivals = Rivals::new(forge);
        let issues = rivals.issues();
        rivals.fake.fail(comments, Times::N(12), Fault::LostAnswer);
        rivals.fake.fail("POST *labels", Times::N(4), Fault::LostAnswer);
        rivals.fake.fail("DELETE *", Times::N(4), Fault::LostAnswer);
        rivals.daemons.iter_mut().for_each(Daemon::spawn);
        rivals.daemons.iter_mut().for_each(Daemon::until_ready);
        rivals.check_done(&issues);
    }
}

#[test]
fn what_somebody_else_works_on_is_left_alone_and_counted() {
    let mut rivals = Rivals::new(ForgeKind::GitHub);
    let issue = rivals.issue("Login fails");
    issue.label("coding agent processing");
    let [daemon, _] = &mut rivals.daemons;
    daemon.start();
    let repository = || daemon.status()["forges"][0]["repositories"][0].clone();
    until("it is counted", || repository()["n_elsewhere"] == 1);
    assert!(open(daemon).is_empty());
    assert!(rivals.fake.requests().iter().all(|request| request.method == "GET"));
    assert!(issue.comments().is_empty());
    // The other worker has released the item.
    issue.unlabel("coding agent processing");
    rivals.until_labelled(&issue, "coding agent done");
}

#[test]
fn what_one_put_aside_the_other_does_not_take() {
    for state in ["blocked", "failed"] {
        let mut rivals = Rivals::new(ForgeKind::GitHub);
        let report = format!("report:{state}");
        rivals.daemons[0].steps("agt", &["authenticate", "get-my-task", &report]);
        let issue = rivals.issue("Login fails");
        rivals.daemons[0].start();
        rivals.until_labelled(&issue, &format!("coding agent {state}"));
        until("all is said", || open(&rivals.daemons[0])[0]["owed"].is_null());
        rivals.daemons[0].kill();
        rivals.daemons[1].start();
        // If it is assigned again, it belongs to its former worker, which is away now.
        issue.label("coding agent");
        let repository = || rivals.daemons[1].status()["forges"][0]["repositories"][0].clone();
        until("it is somebody else's", || repository()["n_elsewhere"] == 1);
        assert!(open(&rivals.daemons[1]).is_empty());
        rivals.daemons[0].steps("agt", WORKS);
        rivals.daemons[0].start();
        rivals.until_labelled(&issue, "coding agent done");
        assert_eq!(rivals.n_runs(), 1);
        assert!(ended(&rivals.daemons[1]).is_empty());
    }
}

#[test]
fn who_dies_with_a_half_done_claim_leaves_the_item_to_who_took_it_since() {
    let mut rivals = Rivals::new(ForgeKind::GitHub);
    let issue = rivals.issue("Login fails");
    let [late, quick] = &mut rivals.daemons;
    let mut command = late.command();
    command.env(VARIABLE, format!("{:?}", CrashPoint::ItemLookedAt));
    late.spawn_as(command);
    late.wait();
    quick.start();
    until("the other has done it", || issue.labels() == ["coding agent done"]);
    late.start();
    until("it is left alone", || ended(late).iter().any(|item| item["state"] == "elsewhere"));
    rivals.check_done(&[issue]);
}

#[test]
fn who_dies_before_it_has_said_anything_says_nothing_of_what_is_over() {
    let mut rivals = Rivals::new(ForgeKind::GitHub);
    let issue = rivals.issue("Login fails");
    // The daemon has noted that it wants the item, but has not asked for it.
    rivals.fake.fail("GET *comments", Times::Always, Fault::status(500));
    rivals.daemons[0].start();
    until("it wants it", || !open(&rivals.daemons[0]).is_empty());
    rivals.daemons[0].kill();
    rivals.fake.mend();
    issue.unassign(BOT).label("coding agent done").unlabel("coding agent");
    rivals.daemons[0].start();
    until("it lets it go", || open(&rivals.daemons[0]).is_empty());
    assert_eq!((issue.labels(), issue.comments().len()), (vec!["coding agent done".to_owned()], 0));
    assert!(rivals.fake.requests().iter().all(|request| request.method == "GET"));
}

/// Returns a claim that a commenter could write, of another coordinator's item.
fn claim() -> String {
    Marker { item: "0198f000-aaaa-7000-8000-000000000000".parse().unwrap(), number: Marker::CLAIM }
        .mark("Mine.")
}

/// Lets `author` post a claim while the first daemon has set its label and can't post its own claim
/// yet.
fn outrun(rivals: &mut Rivals, issue: &Item, author: &str) {
    let comments = if rivals.forge == ForgeKind::GitHub { "POST *comments" } else { "POST *notes" };
    rivals.fake.fail(comments, Times::Always, Fault::status(502));
    rivals.daemons[0].start();
    until("it tries to post its claim", || rivals.fake.n_requests(comments) > 0);
    issue.comment(author, &claim());
    rivals.fake.mend();
}

#[test]
fn a_claim_of_any_commenter_takes_no_item_away() {
    for forge in BOTH {
        let mut rivals = Rivals::new(forge);
        let issue = rivals.issue("Login fails");
        outrun(&mut rivals, &issue, "mallory");
        rivals.until_labelled(&issue, "coding agent done");
        assert_eq!(n_comments(&issue, "Task started"), 1);
        let logged = rivals.daemons[0].logged(IGNORED);
        assert_eq!(logged.len(), 1, "{logged:?}");
        assert_eq!(logged[0]["author"], "mallory");
        assert_eq!(logged[0]["item"], format!("{NAME}#{}", issue.number));
    }
}

#[test]
fn a_claim_of_an_account_that_is_named_takes_the_item() {
    for forge in BOTH {
        let named =
            |_, settings: String| settings.replace("forge: {", "forge: { claims_from: [Android],");
        let mut rivals = Rivals::configured(forge, named);
        let issue = rivals.issue("Login fails");
        outrun(&mut rivals, &issue, "android");
        until("it is left alone", || {
            ended(&rivals.daemons[0]).iter().any(|item| item["state"] == "elsewhere")
        });
        assert!(rivals.daemons[0].logged(IGNORED).is_empty());
        assert_eq!(rivals.n_runs(), 0);
    }
}

#[test]
fn a_claim_of_the_bots_own_account_takes_the_item_also_under_a_new_name() {
    let mut rivals = Rivals::new(ForgeKind::GitHub);
    let issue = rivals.issue("Login fails");
    let comments = "POST *comments";
    rivals.fake.fail(comments, Times::Always, Fault::status(502));
    rivals.daemons[0].start();
    until("it tries to post its claim", || rivals.fake.n_requests(comments) > 0);
    rivals.fake.rename_user(BOT, "robot-2");
    issue.comment("robot-2", &claim());
    rivals.fake.mend();
    until("it is left alone", || {
        ended(&rivals.daemons[0]).iter().any(|item| item["state"] == "elsewhere")
    });
}

#[test]
fn two_daemons_with_accounts_of_their_own_share_what_both_are_assigned() {
    const OTHER: &str = "android";
    const OTHER_TOKEN: &str = "t0ken-of-the-0ther";
    let mut rivals = Rivals::configured(ForgeKind::GitHub, |number, settings| {
        let (own, other) = if number == 0 { (BOT, OTHER) } else { (OTHER, BOT) };
        let token = if number == 0 { TOKEN } else { OTHER_TOKEN };
        settings
            .replace(TOKEN, token)
            .replace(&format!("bot_name: {BOT}"), &format!("bot_name: {own}"))
            .replace("forge: {", &format!("forge: {{ claims_from: [{other}],"))
    });
    rivals.fake.add_token(OTHER, OTHER_TOKEN);
    let issues = rivals.issues();
    for issue in &issues {
        issue.assign(OTHER);
    }
    rivals.daemons.iter_mut().for_each(Daemon::spawn);
    rivals.daemons.iter_mut().for_each(Daemon::until_ready);
    rivals.check_done(&issues);
    assert!(rivals.daemons.iter().all(|daemon| daemon.logged(IGNORED).is_empty()));
}
