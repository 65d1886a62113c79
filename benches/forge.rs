//! Measures the cost of watching forges, and the time until an agent stops after people take the
//! bot off an item.
#![allow(clippy::disallowed_methods, reason = "a bench waits and asks the time")]

mod support;

#[path = "../tests/it/forge"]
#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "the fake of the tests, of which little is needed"
)]
mod forge {
    pub mod fake;
}

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use domain::forge::ForgeKind;
use forge::fake::{Fake, Fault, Item, TOKEN, Times as Often};
use serde_json::{Value, json};
use support::agent::{self, Role};
use support::bed::{Bed, Wanted};
use support::clients::Control;
use support::figures::{Figure, Target, Times, print};

const NAME: &str = "ann/site";
const BOT: &str = "robot";
const N_WATCHED: usize = 1_000;
/// The number of items that are taken while another host hangs.
const N_TAKEN: usize = 30;
/// The repositories with an agent each. There are as many slots.
const NAMES: [&str; 3] = ["ann/a", "ann/b", "ann/c"];
/// The number of items in each of them.
const N_EACH: usize = 100;
/// The time that an agent works on one of these items.
const WORK: Duration = Duration::from_secs(1);
/// The number of items whose result is published.
const N_PUBLISHED: usize = 15;
/// The number of looks at the watched items.
const N_LOOKS: usize = 20;
/// The ticks in a second of the clock by which the kernel counts the time of a process.
const TICKS: f64 = 100.0;

fn main() -> Result<()> {
    if agent::is_agent() {
        return Ok(());
    }
    let mut figures = Vec::new();
    for (forge, name, cost, share) in [
        (
            ForgeKind::GitHub,
            "GitHub: requests for a look at 1,000 unchanged items",
            "GitHub: time for it",
            "GitHub: of a core, at a look each 30 s",
        ),
        (
            ForgeKind::GitLab,
            "GitLab: requests for a look at 1,000 unchanged items",
            "GitLab: time for it",
            "GitLab: of a core, at a look each 30 s",
        ),
    ] {
        let (n_requests, per_look) = watched(forge)?;
        figures.push(Figure {
            target: Some(Target::AtMost(2.0)),
            ..Figure::new(name, "", n_requests)
        });
        figures.push(Figure::new(cost, "ms", per_look * 1e3));
        let at_default = per_look / 30.0 * 100.0;
        figures.push(Figure {
            target: Some(Target::AtMost(1.0)),
            ..Figure::new(share, "%", at_default)
        });
    }
    figures.push(beside_a_hanging_host()?);
    figures.push(until_stopped()?);
    figures.extend(more_items_than_slots()?);
    figures.extend(published()?);
    print(&figures);
    Ok(())
}

/// Returns the section of a host with one repository, on whose items `n_agents` agents work.
fn host(fake: &Fake, forge: ForgeKind, n_agents: usize) -> String {
    let (section, repositories) = match forge {
        ForgeKind::GitHub => ("github", "repositories"),
        ForgeKind::GitLab => ("gitlab", "projects"),
    };
    let url = fake.url(forge);
    let agents: Vec<String> = (0..n_agents).map(|n| format!("agt_{n}")).collect();
    let agents = agents.join(", ");
    format!(
        "{section}: {{ base_url: '{url}', token: {TOKEN}, bot_name: {BOT}, {repositories}: {{ {NAME}: {{ project_id: prj, agents: [{agents}] }} }} }}\n"
    )
}

/// Reports a coordinator with `n_slots` slots. Without one, a server claims nothing. This one
/// starts nothing.
fn offer_slots(bed: &Bed, n_slots: usize) -> Result<()> {
    let status = json!({ "coordinator_id": "crd_bench", "max_concurrent": n_slots });
    bed.mcp()?.call("report_status", &status).map(drop)
}

fn assigned(fake: &Fake, forge: ForgeKind, title: &str) -> Item {
    let issue = fake.repository(forge, NAME).issue(title);
    issue.label("coding agent").assign(BOT);
    issue
}

fn is_open(launch: &Value) -> bool {
    launch["state"] != "ended"
}

fn items(control: &mut Control) -> Result<Vec<Value>> {
    let items = control.get("/forge/items?limit=1000")?;
    Ok(items.as_array().context("a list")?.clone())
}

/// Returns the requests and the processor seconds for a look at items that don't change.
fn watched(forge: ForgeKind) -> Result<(f64, f64)> {
    let fake = Fake::start();
    for n in 0..N_WATCHED {
        assigned(&fake, forge, &format!("Issue {n}"));
    }
    let settings = format!(
        "forge: {{ poll_interval: 1s, write_interval: 0s, writes_per_hour: off }}\n{}",
        host(&fake, forge, N_WATCHED)
    );
    let wanted = Wanted { settings: &settings, role: Role::Stay, n_agents: N_WATCHED };
    let bed = Bed::serve(&wanted)?;
    let mut control = bed.control()?;
    let began = Instant::now();
    loop {
        ensure!(began.elapsed() < Duration::from_mins(10), "not in ten minutes");
        offer_slots(&bed, N_WATCHED)?;
        let items = items(&mut control)?;
        let is_settled = |item: &Value| item["state"] == "processing" && item["owed"].is_null();
        if items.len() == N_WATCHED && items.iter().all(is_settled) {
            break;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    // A look that began before is over then.
    std::thread::sleep(Duration::from_secs(3));
    fake.forget_requests();
    let (before, began) = (processor_time(bed.pid())?, Instant::now());
    std::thread::sleep(Duration::from_secs(N_LOOKS as u64));
    let n_requests = fake.requests().len();
    #[allow(clippy::cast_precision_loss, reason = "small counts")]
    let n_looks = began.elapsed().as_secs_f64().floor().max(1.0);
    let seconds = processor_time(bed.pid())? - before;
    #[allow(clippy::cast_precision_loss, reason = "a small count")]
    Ok((n_requests as f64 / n_looks, seconds / n_looks))
}

/// Returns the processor time that a process has used, in seconds.
fn processor_time(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().context("a name")?.split_whitespace().collect();
    Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) / TICKS)
}

/// Measures the time that a hanging host adds until an item of another host is taken.
fn beside_a_hanging_host() -> Result<Figure> {
    let (alone, beside) = (until_taken(false)?, until_taken(true)?);
    let added = (beside.median() - alone.median()).max(0.0);
    let name = "a hanging host adds, until another's item is taken (floor: that alone)";
    Ok(Figure {
        target: Some(Target::AtMost(100.0)),
        floor: Some(alone.median()),
        ..Figure::new(name, "ms", added)
    })
}

fn until_taken(hangs: bool) -> Result<Times> {
    let (fake, other) = (Fake::start(), Fake::start());
    fake.repository(ForgeKind::GitHub, NAME);
    other.repository(ForgeKind::GitLab, NAME);
    let settings = format!(
        "forge: {{ poll_interval: 100ms, write_interval: 0s, writes_per_hour: off }}\n{}{}",
        host(&fake, ForgeKind::GitHub, N_TAKEN),
        host(&other, ForgeKind::GitLab, N_TAKEN)
    );
    let wanted = Wanted { settings: &settings, role: Role::Stay, n_agents: N_TAKEN };
    let bed = Bed::serve(&wanted)?;
    offer_slots(&bed, N_TAKEN)?;
    if hangs {
        other.fail("*", Often::Always, Fault::Hang);
    }
    let mut times = Times::default();
    for n in 0..N_TAKEN {
        let issue = assigned(&fake, ForgeKind::GitHub, &format!("Issue {n}"));
        let began = Instant::now();
        while !issue.labels().iter().any(|label| label == "coding agent processing") {
            ensure!(began.elapsed() < Duration::from_secs(30), "it is not taken:\n{}", bed.log());
            std::thread::sleep(Duration::from_millis(1));
        }
        times.add(began.elapsed());
    }
    Ok(times)
}

/// Measures the time from the unassignment to the end of the agent's tree, with a look each second.
fn until_stopped() -> Result<Figure> {
    let fake = Fake::start();
    fake.repository(ForgeKind::GitHub, NAME);
    let settings = format!(
        "forge: {{ poll_interval: 1s, write_interval: 0s, writes_per_hour: off }}\n{}",
        host(&fake, ForgeKind::GitHub, 1)
    );
    let mut bed = Bed::start(&Wanted { settings: &settings, role: Role::Stay, n_agents: 1 })?;
    let mut control = bed.control()?;
    let mut times = Times::default();
    for n in 0..10 {
        let issue = assigned(&fake, ForgeKind::GitHub, &format!("Issue {n}"));
        bed.wait_until("the agent runs", |_| {
            Ok(!Bed::launches(&mut control, 1, |launch| is_open(launch) && launch["pid"].is_u64())?
                .is_empty())
        })?;
        issue.unassign(BOT);
        let began = Instant::now();
        bed.wait_until("the agent is gone", |_| {
            Ok(Bed::launches(&mut control, 1, is_open)?.is_empty())
        })?;
        times.add(began.elapsed());
        bed.wait_until("all is said", |_| Ok(items(&mut control)?.is_empty()))?;
    }
    let name = "unassigned -> the agent's tree gone, a look each second (target: that + 2 s)";
    Ok(Figure { target: Some(Target::AtMost(3_000.0)), ..Figure::of_times(name, &times) })
}

/// Measures three hundred items in three repositories with three slots. A second daemon joins when
/// half of them are done.
fn more_items_than_slots() -> Result<Vec<Figure>> {
    let fake = Fake::start();
    let mut issues = Vec::new();
    for name in NAMES {
        let repository = fake.repository(ForgeKind::GitHub, name);
        for n in 0..N_EACH {
            let issue = repository.issue(&format!("Issue {n}"));
            issue.label("coding agent").assign(BOT);
            issues.push(issue);
        }
    }
    let of = |(n, name): (usize, &&str)| format!("{name}: {{ project_id: prj, agent: agt_{n} }}");
    let repositories: Vec<String> = NAMES.iter().enumerate().map(of).collect();
    let settings = format!(
        "max_concurrent: {}\nforge: {{ poll_interval: 1s, write_interval: 10ms, writes_per_hour: off }}\n\
         github: {{ base_url: '{}', token: {TOKEN}, bot_name: {BOT}, repositories: {{ {} }} }}\n",
        NAMES.len(),
        fake.url(ForgeKind::GitHub),
        repositories.join(", ")
    );
    let wanted = Wanted { settings: &settings, role: Role::WorkFor(WORK), n_agents: NAMES.len() };
    let first = Bed::start(&wanted)?;
    let mut control = first.control()?;
    let (mut n_running, mut n_looks, mut most_claimed, mut most_ahead) = (0, 0, 0, 0);
    let n_done = |of: &[Item]| of.iter().filter(|it| has(it, "coding agent done")).count();
    let began = Instant::now();
    // Figures from before each repository was served once would not be typical.
    while n_done(&issues) < issues.len() / 2 {
        ensure!(began.elapsed() < Duration::from_mins(5), "half is not done:\n{}", first.log());
        std::thread::sleep(Duration::from_millis(20));
        let served: Vec<usize> = issues.chunks(N_EACH).map(n_done).collect();
        if served.contains(&0) {
            continue;
        }
        let launches = control.get("/launches?limit=20")?;
        let launches = launches.as_array().context("a list")?;
        n_running += launches.iter().filter(|it| is_open(it) && it["pid"].is_u64()).count();
        n_looks += 1;
        let claimed = issues.iter().filter(|it| has(it, "coding agent processing")).count();
        most_claimed = most_claimed.max(claimed);
        let (least, most) = (served.iter().min(), served.iter().max());
        most_ahead = most_ahead.max(most.zip(least).map_or(0, |(most, least)| most - least));
    }
    let second = Bed::start(&wanted)?;
    let n_left = issues.len() - n_done(&issues);
    while n_done(&issues) < issues.len() {
        ensure!(began.elapsed() < Duration::from_mins(10), "not done:\n{}", second.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    let ended = second.control()?.get("/forge/items?ended=true&limit=1000")?;
    let ended = ended.as_array().context("a list")?;
    let n_of_second = ended.iter().filter(|item| item["state"] == "done").count();
    #[allow(clippy::cast_precision_loss, reason = "small counts")]
    let [used, share, most_claimed, most_ahead] = [
        n_running as f64 / f64::from(n_looks),
        n_of_second as f64 / n_left as f64 * 100.0,
        most_claimed as f64,
        most_ahead as f64,
    ];
    let at_least = |least, figure| Figure { target: Some(Target::AtLeast(least)), ..figure };
    let at_most = |most, figure| Figure { target: Some(Target::AtMost(most)), ..figure };
    Ok(vec![
        at_least(2.5, Figure::new("300 items, 3 repositories, 3 slots: agents that run", "", used)),
        at_most(
            6.0,
            Figure::new("the same: most items with the label processing", "", most_claimed),
        ),
        at_most(2.0, Figure::new("the same: items one repository is ahead", "", most_ahead)),
        at_least(30.0, Figure::new("the same: what a second daemon takes of the rest", "%", share)),
    ])
}

/// Measures the way from the report of an agent to its draft pull request: the writes to the forge
/// beside the push, and the time that a check adds to the run of its command.
fn published() -> Result<Vec<Figure>> {
    let fake = Fake::start();
    fake.repository(ForgeKind::GitHub, NAME).init_git();
    let host = host(&fake, ForgeKind::GitHub, 1);
    let settings = format!(
        "forge: {{ poll_interval: 100ms, write_interval: 0s, writes_per_hour: off }}\n\
         checks: {{ tests: {{ command: ['true'] }} }}\n{}",
        host.replace("project_id: prj", "project_id: prj, publish: pull_request")
    );
    let mut bed = Bed::start(&Wanted { settings: &settings, role: Role::Commit, n_agents: 1 })?;
    let mut control = bed.control()?;
    let (mut most_writes, mut checks, mut bare) = (0, Times::default(), Times::default());
    for n in 0..N_PUBLISHED {
        fake.forget_requests();
        assigned(&fake, ForgeKind::GitHub, &format!("Issue {n}"));
        bed.wait_until("the item is taken", |_| Ok(!items(&mut control)?.is_empty()))?;
        bed.wait_until("the item has ended", |_| Ok(items(&mut control)?.is_empty()))?;
        let requests = fake.requests();
        let is_push = |path: &str| path.starts_with("/git/") && path.ends_with("git-receive-pack");
        let after = requests.iter().skip_while(|it| !(it.method == "POST" && is_push(&it.path)));
        let is_write = |path: &str, method: &str| method != "GET" && !path.starts_with("/git/");
        most_writes = most_writes.max(after.filter(|it| is_write(&it.path, &it.method)).count());
        let ended = control.get("/forge/items?ended=true&limit=1")?;
        ensure!(ended[0]["requestUrl"].is_string(), "no draft: {ended}\n{}", bed.log());
        let task = ended[0]["taskId"].as_str().context("a task")?;
        let task = control.get(&format!("/tasks/{task}"))?;
        let took = task["checks"][0]["durationMs"].as_u64().context("a check")?;
        checks.add(Duration::from_millis(took));
        let began = Instant::now();
        std::process::Command::new("true").status()?;
        bare.add(began.elapsed());
    }
    #[allow(clippy::cast_precision_loss, reason = "a small count")]
    let most_writes = most_writes as f64;
    let added = (checks.median() - bare.median()).max(0.0);
    let name = "a check adds to the run of its command (floor: a bare spawn of it)";
    Ok(vec![
        Figure {
            target: Some(Target::AtMost(4.0)),
            ..Figure::new("report -> draft pull request: writes to the API", "", most_writes)
        },
        Figure {
            target: Some(Target::AtMost(20.0)),
            floor: Some(bare.median()),
            ..Figure::new(name, "ms", added)
        },
    ])
}

fn has(item: &Item, label: &str) -> bool {
    item.labels().iter().any(|other| other == label)
}
