//! What watching forges costs, and what people wait for who take the bot off an item.

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

use agent_coordinator::domain::forge::ForgeKind;
use anyhow::{Context as _, Result, ensure};
use forge::fake::{Fake, Fault, Item, TOKEN, Times as Often};
use serde_json::Value;
use support::agent::{self, Role};
use support::bed::{Bed, Wanted};
use support::clients::Control;
use support::figures::{Figure, Target, Times, print};

const NAME: &str = "ann/site";
const BOT: &str = "robot";
const N_WATCHED: usize = 1_000;
/// Looks at what is watched.
const N_LOOKS: usize = 20;
/// Ticks of a clock in which the kernel counts the time of a process, in a second.
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
    print(&figures);
    Ok(())
}

/// The section of a host with one repository.
fn host(fake: &Fake, forge: ForgeKind) -> String {
    let (section, repositories) = match forge {
        ForgeKind::GitHub => ("github", "repositories"),
        ForgeKind::GitLab => ("gitlab", "projects"),
    };
    let url = fake.url(forge);
    format!(
        "{section}: {{ base_url: '{url}', token: {TOKEN}, bot_name: {BOT}, {repositories}: {{ {NAME}: {{ project_id: prj, agent: agt_0 }} }} }}\n"
    )
}

fn wanted(settings: &str, role: Role) -> Wanted<'_> {
    Wanted { settings, role, n_agents: 1 }
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

/// Requests and seconds of a processor for a look at items that don't change.
fn watched(forge: ForgeKind) -> Result<(f64, f64)> {
    let fake = Fake::start();
    for n in 0..N_WATCHED {
        assigned(&fake, forge, &format!("Issue {n}"));
    }
    let settings = format!(
        "forge: {{ poll_interval: 1s, write_interval: 0s, writes_per_hour: off }}\n{}",
        host(&fake, forge)
    );
    let mut bed = Bed::serve(&wanted(&settings, Role::Stay))?;
    let mut control = bed.control()?;
    let began = Instant::now();
    bed.wait_until("all are worked on", |_| {
        std::thread::sleep(Duration::from_millis(500));
        ensure!(began.elapsed() < Duration::from_mins(10), "not in ten minutes");
        let items = items(&mut control)?;
        let is_settled = |item: &Value| item["state"] == "processing" && item["owed"].is_null();
        Ok(items.len() == N_WATCHED && items.iter().all(is_settled))
    })?;
    // A look that began before is over.
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

/// What a process has used of processors, in seconds.
fn processor_time(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().context("a name")?.split_whitespace().collect();
    Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) / TICKS)
}

/// What a host that hangs adds to the time until an item of another one is taken.
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
        host(&fake, ForgeKind::GitHub),
        host(&other, ForgeKind::GitLab)
    );
    let bed = Bed::serve(&wanted(&settings, Role::Stay))?;
    if hangs {
        other.fail("*", Often::Always, Fault::Hang);
    }
    let mut times = Times::default();
    for n in 0..30 {
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

/// From the unassignment to the end of the agent's tree, with a look each second.
fn until_stopped() -> Result<Figure> {
    let fake = Fake::start();
    fake.repository(ForgeKind::GitHub, NAME);
    let settings = format!(
        "forge: {{ poll_interval: 1s, write_interval: 0s, writes_per_hour: off }}\n{}",
        host(&fake, ForgeKind::GitHub)
    );
    let mut bed = Bed::start(&wanted(&settings, Role::Stay))?;
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
