//! Measures a daemon whose state is in PostgreSQL: a server of its own on a Unix socket, which
//! keeps each commit safe from a crash of the machine.
#![allow(clippy::disallowed_methods, reason = "a bench waits and asks the time")]

#[allow(dead_code, reason = "tests need more of it")]
#[path = "../tests/it/postgres.rs"]
mod postgres;
mod support;

use std::thread::sleep;
use std::time::{Duration, Instant};

use ::postgres::{Client, NoTls, Statement};
use anyhow::{Result, ensure};
use postgres::{Cluster, Database};
use serde_json::json;
use support::agent::{self, Pipe, Role};
use support::bed::{Bed, Wanted};
use support::clients::{Mcp, request};
use support::figures::{Figure, Target, Times, print};
use support::fleet::massacre;
use support::proc::wake_ups;
use support::skip;
use support::starts::{spawned_directly, started_by_daemon};

const N_CLAIMS: usize = 400;
const N_QUESTIONS: usize = 10_000;
const N_STARTS: usize = 200;
const N_MASSACRED: usize = 500;
/// The time after which a daemon has finished the work of its start.
const SETTLE: Duration = Duration::from_secs(15);
const WATCH: Duration = Duration::from_secs(40);

fn main() -> Result<()> {
    if agent::is_agent() {
        return Ok(());
    }
    let Some(cluster) = Cluster::start(&[]) else {
        skip("PostgreSQL's programs are not installed (Debian: postgresql)");
        return Ok(());
    };
    let (claims, inserts, refusals) = claims_and_refusals(&cluster)?;
    let (starts, spawns) = starts(&cluster.database())?;
    let database = cluster.database();
    let massacre = massacre(&settings(&database), N_MASSACRED)?;
    drop(database);
    let wake_ups = idle(&cluster.database())?;
    #[allow(clippy::cast_precision_loss, reason = "a count of some thousands")]
    let rate = refusals.len() as f64 / refusals.total().as_secs_f64();
    print(&[
        Figure {
            floor: Some(inserts.median()),
            max_ratio: Some(5.0),
            ..Figure::of_times("should_start: yes (floor: a bare insert)", &claims)
        },
        Figure {
            target: Some(Target::AtLeast(2_000.0)),
            ..Figure::new("should_start: no, one connection", "1/s", rate)
        },
        Figure::of_times("should_start: no, one answer", &refusals),
        Figure {
            target: Some(Target::AtMost(20.0)),
            floor: Some(spawns.median()),
            ..Figure::of_times("task in progress -> agent's first instruction", &starts)
        },
        Figure {
            target: Some(Target::AtMost(400.0)),
            ..Figure::of_times(
                "500 killed in one loop: the first signal -> all exits in the store",
                &massacre,
            )
        },
        Figure {
            target: Some(Target::AtMost(0.3)),
            ..Figure::new("daemon: wake-ups while idle", "1/s", wake_ups)
        },
    ]);
    Ok(())
}

/// Returns the settings of a daemon with this database.
fn settings(database: &Database<'_>) -> String {
    format!("store: {{ url: '{}' }}", database.url())
}

/// Measures claims, each beside a bare insert, and then questions about a pair without work.
fn claims_and_refusals(cluster: &Cluster) -> Result<(Times, Times, Times)> {
    let (database, bare) = (cluster.database(), cluster.database());
    let settings = format!("{}\nstart: {{ timeout: 1h }}", settings(&database));
    let wanted = Wanted { settings: &settings, role: Role::Exit, n_agents: N_CLAIMS + 1 };
    let bed = Bed::serve(&wanted)?;
    let (mut control, mut server) = (bed.control()?, bed.mcp()?);
    for n in 0..N_CLAIMS {
        control.set_status(&format!("tsk_{n}"), "in_progress")?;
    }
    let mut bare = BareTable::create(&bare)?;
    let (mut claims, mut inserts) = (Times::default(), Times::default());
    for n in 0..N_CLAIMS {
        claims.add(ask(&mut server, n, "ready")?);
        inserts.add(bare.insert(n)?);
    }
    let refusals: Result<Times> =
        (0..N_QUESTIONS).map(|_| ask(&mut server, N_CLAIMS, "no_work")).collect();
    Ok((claims, inserts, refusals?))
}

/// Asks whether an agent should start, and returns the duration of the answer.
fn ask(server: &mut Mcp, agent: usize, expected: &str) -> Result<Duration> {
    let pair = json!({ "agent_id": format!("agt_{agent}"), "project_id": "prj" });
    let line = request("should_start", &pair);
    let asked = Instant::now();
    let answer = server.exchange(&line)?;
    let lasted = asked.elapsed();
    ensure!(answer.contains(expected), "{answer}");
    Ok(lasted)
}

/// A table beside the store, in the same server.
struct BareTable {
    client: Client,
    insert: Statement,
}

impl BareTable {
    fn create(database: &Database<'_>) -> Result<Self> {
        let config = ::postgres::Config::from(database.parsed_url().hosts()[0].clone());
        let mut client = config.connect(NoTls)?;
        client.batch_execute("CREATE TABLE bare (id TEXT PRIMARY KEY, content TEXT NOT NULL)")?;
        let insert = client.prepare("INSERT INTO bare (id, content) VALUES ($1, $2)")?;
        Ok(Self { client, insert })
    }

    /// Commits one row, and returns the duration.
    fn insert(&mut self, n: usize) -> Result<Duration> {
        let (id, content) = (format!("row_{n}"), "x".repeat(200));
        let began = Instant::now();
        self.client.execute(&self.insert, &[&id, &content])?;
        Ok(began.elapsed())
    }
}

/// Measures starts, and the floor.
fn starts(database: &Database<'_>) -> Result<(Times, Times)> {
    let folder = Bed::folder()?;
    let mut beginnings = Pipe::make(folder.path().join("beginnings"))?;
    let floor = spawned_directly(&mut beginnings, N_STARTS)?;
    let settings = format!("{}\npolling_interval: 10s\nrun: {{ linger: 0 }}", settings(database));
    let role = Role::Work(beginnings.path().to_owned());
    let bed = Bed::start_in(folder, &Wanted { settings: &settings, role, n_agents: 1 })?;
    Ok((started_by_daemon(bed, &mut beginnings, N_STARTS)?, floor))
}

/// Measures a daemon at rest.
fn idle(database: &Database<'_>) -> Result<f64> {
    let settings = format!("{}\npolling_interval: 1h", settings(database));
    let bed = Bed::start(&Wanted { settings: &settings, role: Role::Stay, n_agents: 1 })?;
    sleep(SETTLE);
    wake_ups(bed.pid(), WATCH)
}
