//! The limits of a host and of the configuration: the times of requests, and their order.

use std::time::{Duration, Instant};

use domain::forge::ForgeKind;

use super::crashes::for_each;
use super::{BOT, Bed, NAME, n_comments};
use crate::daemon::Daemon;
use crate::forge::fake::{Fake, Fault, Item, TOKEN, Times};
use crate::support::{until, until_some};

const WORKS: &[&str] = &["authenticate", "get-my-task", "report:success"];
const WAITS: &[&str] = &["authenticate", "get-my-task", "wait-for:go", "report:success"];
const GOES_ON: &[&str] = &["authenticate", "get-my-task", "sleep:600"];

/// Starts a bed with this `forge` section.
fn bed(steps: &[&str], forge_section: &str) -> Bed {
    running(ForgeKind::GitHub, steps, 1, |fake| settings(fake, ForgeKind::GitHub, forge_section))
}

/// Starts a bed with several agents, which can all work at the same time.
fn bed_with_agents(n_agents: usize, forge_section: &str) -> Bed {
    let forge = ForgeKind::GitHub;
    running(forge, GOES_ON, n_agents, |fake| {
        settings_with_agents(fake, forge, n_agents, forge_section)
    })
}

fn running(
    forge: ForgeKind,
    steps: &[&str],
    n_agents: usize,
    settings: impl Fn(&Fake) -> String,
) -> Bed {
    let fake = Fake::start();
    fake.repository(forge, NAME);
    let daemon = Daemon::running(&settings(&fake));
    daemon.project("prj");
    for agent in agents(n_agents) {
        daemon.agent(&agent, "prj", steps);
    }
    Bed { fake, daemon, forge }
}

/// Returns the names `agt`, `agt1`, `agt2` and so on.
fn agents(n: usize) -> Vec<String> {
    (0..n).map(|n| if n == 0 { "agt".to_owned() } else { format!("agt{n}") }).collect()
}

fn settings_with_agents(
    fake: &Fake,
    forge: ForgeKind,
    n_agents: usize,
    forge_section: &str,
) -> String {
    let list = format!("agents: [{}]", agents(n_agents).join(", "));
    let settings = settings(fake, forge, forge_section).replace("agent: agt", &list);
    format!("{settings}\nmax_concurrent: {n_agents}\n")
}

fn settings(fake: &Fake, forge: ForgeKind, forge_section: &str) -> String {
    Bed::settings(fake, forge, "")
        .replace("poll_interval: 100ms, write_interval: 0s, writes_per_hour: off", forge_section)
}

/// Makes issues that become work at the same moment.
fn issues(bed: &Bed, n: usize) -> Vec<Item> {
    let issues: Vec<Item> =
        (0..n).map(|n| bed.fake.repository(bed.forge, NAME).issue(&format!("issue {n}"))).collect();
    for issue in &issues {
        issue.label("coding agent").assign(BOT);
    }
    issues
}

/// Lets the host ask for a pause of this number of seconds. Returns when the daemon knows that.
fn limit(bed: &Bed, seconds: u32) -> Instant {
    let fault = Fault::status(429).header("retry-after", &seconds.to_string());
    bed.fake.fail("*", Times::Always, fault);
    until_some("the limit is known", || bed.host()["limited_until"].as_str().map(str::to_owned));
    bed.fake.mend();
    Instant::now()
}

/// Checks that the daemon sends nothing before `begin + wait`, after the first `n_requests`.
#[track_caller]
fn check_silent(bed: &Bed, n_requests: usize, begin: Instant, wait: Duration) {
    until("the time is over", || {
        let requests = bed.fake.requests();
        let is_over = begin.elapsed() > wait;
        assert!(is_over || requests.len() == n_requests, "{:?}", requests.last());
        is_over
    });
}

#[test]
fn writes_that_wait_for_their_turn_are_not_sent_while_the_host_wants_a_pause() {
    let bed = bed(WORKS, "poll_interval: 100ms, write_interval: 300ms");
    let issues = issues(&bed, 8);
    // The others wait for their turn by then.
    until("two are labelled", || bed.fake.n_requests("POST *labels") > 1);
    let begin = limit(&bed, 5);
    check_silent(&bed, bed.fake.requests().len(), begin, Duration::from_secs(3));
    bed.until_labelled(&issues[7], "coding agent done");
}

#[test]
fn a_limit_of_a_host_outlives_a_restart_and_a_reload() {
    let mut bed = bed(WORKS, "poll_interval: 100ms, write_interval: 0s");
    until("the host answers", || bed.host()["health"] == "ok");
    let begin = limit(&bed, 9);
    let issues = issues(&bed, 1);
    let n_requests = bed.fake.requests().len();
    bed.daemon.kill();
    bed.daemon.start();
    until("the limit is known again", || bed.host()["health"] == "limited");
    // The text has no time, because it would be shown unchanged for the whole limit.
    let problem = || bed.host()["repositories"][0]["problem"].clone();
    until("its repository tells", || problem() == "the host asked for a pause of all requests");
    check_silent(&bed, n_requests, begin, Duration::from_secs(4));
    bed.daemon.configure(&settings(
        &bed.fake,
        bed.forge,
        "poll_interval: 150ms, write_interval: 0s",
    ));
    bed.daemon.done(&["reload"]);
    until("the limit is still known", || bed.host()["health"] == "limited");
    check_silent(&bed, n_requests, begin, Duration::from_secs(6));
    bed.until_labelled(&issues[0], "coding agent done");
    assert_eq!(bed.host()["health"], "ok");
}

#[test]
fn what_a_stop_writes_goes_before_the_claims_that_wait() {
    let bed = bed_with_agents(13, "poll_interval: 100ms, write_interval: 600ms");
    let stopped = &issues(&bed, 1)[0];
    bed.until("processing");
    bed.until_agent_runs();
    bed.fake.forget_requests();
    issues(&bed, 12);
    until("claims are under way", || bed.fake.n_requests("POST *labels") > 1);
    stopped.unassign(BOT);
    until("it is stopped", || stopped.labels() == ["coding agent stopped"]);
    let n_claimed = bed.fake.n_requests("POST *labels") - 1;
    assert!(n_claimed < 8, "{n_claimed} labels of claims were written first");
}

#[test]
fn a_used_up_budget_holds_claims_and_is_shown_and_a_stop_is_written_all_the_same() {
    const N_AGENTS: usize = 6;
    let section = "poll_interval: 100ms, write_interval: 0s, writes_per_hour: 10";
    let mut bed = bed_with_agents(N_AGENTS, section);
    let stopped = &issues(&bed, 1)[0];
    bed.until("processing");
    bed.until_agent_runs();
    let others = issues(&bed, N_AGENTS - 1);
    until("the writes wait", || bed.host()["writes_held_until"].is_string());
    let n_writes = bed.fake.n_requests("POST *");
    assert!(n_writes <= 10, "{n_writes} writes");
    assert_eq!(bed.host()["health"], "ok");
    stopped.unassign(BOT);
    until("it is stopped", || stopped.labels() == ["coding agent stopped"]);
    let list = bed.daemon.done(&["forge", "list"]);
    assert!(list.contains("(forge.writes_per_hour)"), "{list}");

    // A crash may lose the writes since the count was saved last.
    let file = bed.daemon.state().join("forge_limits.json");
    until("the count is saved", || {
        std::fs::read_to_string(&file).is_ok_and(|text| text.contains("writes"))
    });
    bed.daemon.kill();
    bed.daemon.start();
    until("the writes wait again", || bed.host()["writes_held_until"].is_string());
    assert_eq!(
        bed.daemon.logged("labels and comments of a forge wait for the budget of this hour").len(),
        1,
        "it is logged once"
    );

    let section = "poll_interval: 100ms, write_interval: 0s, writes_per_hour: off";
    bed.daemon.configure(&settings_with_agents(&bed.fake, bed.forge, N_AGENTS, section));
    bed.daemon.done(&["reload"]);
    for issue in &others {
        bed.until_labelled(issue, "coding agent processing");
    }
}

#[test]
fn an_item_that_has_begun_has_the_writes_of_its_end() {
    const N_AGENTS: usize = 4;
    // The budget has room for two items: a claim at GitLab needs one request less for its labels.
    for_each(&[(ForgeKind::GitHub, 14), (ForgeKind::GitLab, 12)], |&(forge, budget)| {
        let section =
            format!("poll_interval: 100ms, write_interval: 0s, writes_per_hour: {budget}");
        let bed = running(forge, WAITS, N_AGENTS, |fake| {
            settings_with_agents(fake, forge, N_AGENTS, &section)
        });
        let issues = issues(&bed, N_AGENTS);
        let labelled = |label: &str| issues.iter().filter(|it| it.labels() == [label]).count();
        until("two are at work", || labelled("coding agent processing") == 2);
        until("the others wait", || bed.host()["writes_held_until"].is_string());
        assert_eq!(bed.host()["writes_reserved"], true, "{}", bed.host());
        let list = bed.daemon.done(&["forge", "list"]);
        assert!(list.contains("reserved") && !list.contains("used up"), "{list}");
        std::fs::write(bed.daemon.work().join("go"), "").unwrap();
        let n_told = || issues.iter().map(|issue| n_comments(issue, "Task done")).sum::<usize>();
        until("both are done", || labelled("coding agent done") == 2 && n_told() == 2);
        assert_eq!(labelled("coding agent"), N_AGENTS - 2, "nothing was written to the others");
        let n_writes = ["POST *", "PUT *", "DELETE *"].map(|it| bed.fake.n_requests(it));
        let n_writes: usize = n_writes.iter().sum();
        // GitHub takes six for each.
        assert!(n_writes <= budget && (forge == ForgeKind::GitLab || n_writes == 12), "{n_writes}");
    });
}

#[test]
fn claims_that_wait_for_the_budget_of_a_host_keep_no_slot_from_another_host() {
    const N_AGENTS: usize = 6;
    let section = "poll_interval: 100ms, write_interval: 0s, writes_per_hour: 10";
    let other_host = |fake: &Fake| {
        let url = fake.url(ForgeKind::GitLab);
        let project = format!("{NAME}: {{ project_id: prj, agent: other }}");
        format!(
            "gitlab: {{ base_url: '{url}', token: {TOKEN}, bot_name: {BOT}, projects: {{ {project} }} }}\n"
        )
    };
    let forge = ForgeKind::GitHub;
    let bed = running(forge, GOES_ON, N_AGENTS, |fake| {
        settings_with_agents(fake, forge, N_AGENTS, section) + &other_host(fake)
    });
    let other = bed.fake.repository(ForgeKind::GitLab, NAME);
    bed.daemon.agent("other", "prj", GOES_ON);
    issues(&bed, 2 * N_AGENTS);
    let n_claiming = || bed.items().iter().filter(|item| item["state"] == "claiming").count();
    until("claims wait", || bed.host()["writes_held_until"].is_string() && n_claiming() > 0);
    // Slots are free, and the time of the claims is not known.
    let issue = other.issue("Login fails");
    issue.label("coding agent").assign(BOT);
    bed.until_labelled(&issue, "coding agent processing");
    assert!(n_claiming() > 0, "{:?}", bed.items());
}
