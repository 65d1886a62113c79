//! Measures the cost of many agents: of a daemon that keeps hundreds, and of one that has started
//! and ended thousands.
#![allow(clippy::disallowed_methods, reason = "a bench waits and asks the time")]

mod support;

use std::io::BufRead as _;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use support::agent::{self, Role};
use support::bed::{Bed, Wanted};
use support::figures::{Figure, Target, print};
use support::proc::{memory, n_descriptors, n_threads};

/// The numbers of sleeping agents, in ascending order, and the resident memory that the daemon may
/// have then, in MiB.
const FLEETS: [(usize, f64); 2] = [(100, 24.0), (500, 40.0)];
/// The number of agents that are started again and again, and the number of their starts in all.
const N_RESTARTED: usize = 20;
const N_STARTS: usize = 10_000;
/// The number of starts after which a daemon has its usual size.
const N_WARM: usize = 1_000;
/// The factor by which it may be larger at the end.
const FLAT: f64 = 1.05;
/// The time after which the daemon is at rest. The readers of the store close at most 40 s after
/// their last use.
const SETTLE: Duration = Duration::from_secs(50);

fn main() -> Result<()> {
    if agent::is_agent() {
        return Ok(());
    }
    let mut figures = sleeping()?;
    figures.extend(thousands()?);
    print(&figures);
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "small counts")]
fn sleeping() -> Result<Vec<Figure>> {
    let (most, _) = FLEETS[FLEETS.len() - 1];
    let settings = format!("polling_interval: 1h\nmax_concurrent: {most}");
    let mut bed = Bed::start(&Wanted { settings: &settings, role: Role::Stay, n_agents: most })?;
    let mut control = bed.control()?;
    let (mut figures, mut open) = (Vec::new(), Vec::new());
    let mut n_running = 0;
    for (n_agents, most_memory) in FLEETS {
        for n in n_running..n_agents {
            control.set_status(&format!("tsk_{n}"), "in_progress")?;
        }
        n_running = n_agents;
        bed.wait_until("all agents run", |_| {
            Ok(Bed::launches(&mut control, n_agents, |launch| launch["pid"].is_i64())?.len()
                == n_agents)
        })?;
        std::thread::sleep(SETTLE);
        let name = if n_agents == most {
            "daemon with 500 sleeping agents"
        } else {
            "daemon with 100 sleeping agents"
        };
        let figure = Figure::new(name, "MiB", memory(bed.pid(), "VmRSS")?);
        figures.push(Figure { target: Some(Target::AtMost(most_memory)), ..figure });
        open.push(n_descriptors(bed.pid())?);
    }
    // The first size contains the descriptors of the daemon itself.
    let [(few, _), _] = FLEETS;
    let each = (open[1] - open[0]) as f64 / (most - few) as f64;
    figures.push(Figure {
        target: Some(Target::AtMost(3.0)),
        ..Figure::new("descriptors of an agent", "", each)
    });
    Ok(figures)
}

/// Memory, descriptors and threads of a daemon.
struct Size {
    memory: f64,
    n_descriptors: usize,
    n_threads: usize,
}

impl Size {
    fn of(bed: &Bed) -> Result<Self> {
        std::thread::sleep(SETTLE);
        let pid = bed.pid();
        Ok(Self {
            memory: memory(pid, "RssAnon")?,
            n_descriptors: n_descriptors(pid)?,
            n_threads: n_threads(pid)?,
        })
    }
}

#[allow(clippy::cast_precision_loss, reason = "small counts")]
fn thousands() -> Result<[Figure; 4]> {
    let backoff = "backoff: { initial: 1ms, max: 1ms }\nstart: { limit: 0 }";
    let settings = format!("polling_interval: 1h\nmax_concurrent: {N_RESTARTED}\n{backoff}");
    let mut bed =
        Bed::start(&Wanted { settings: &settings, role: Role::Exit, n_agents: N_RESTARTED })?;
    let mut control = bed.control()?;
    let mut log = bed.follow_log()?;
    let (mut n_ended, mut line) = (0, String::new());
    let began = Instant::now();
    for n in 0..N_RESTARTED {
        control.set_status(&format!("tsk_{n}"), "in_progress")?;
    }
    let mut size_after = |bed: &mut Bed, n_starts: usize| -> Result<Size> {
        // Each part has a wait of its own, because a wait has a deadline.
        for part in (0..=n_starts).step_by(N_WARM) {
            bed.wait_until("they have ended", |_| {
                while log.read_line(&mut line)? > 0 && line.ends_with('\n') {
                    n_ended += usize::from(line.contains(r#""message":"launch ended""#));
                    line.clear();
                }
                Ok(n_ended >= part)
            })?;
        }
        control.post("/pause", &serde_json::Value::Null)?;
        let size = Size::of(bed)?;
        control.resume()?;
        Ok(size)
    };
    let warm = size_after(&mut bed, N_WARM)?;
    let last = size_after(&mut bed, N_STARTS)?;
    let rate = N_STARTS as f64 / began.elapsed().as_secs_f64();
    ensure!(warm.n_descriptors > 0 && warm.n_threads > 0, "a process has both");
    let flat = |name, unit, warm: f64, last: f64| Figure {
        floor: Some(warm),
        max_ratio: Some(FLAT),
        ..Figure::new(name, unit, last)
    };
    Ok([
        flat(
            "anonymous memory after 10,000 starts and ends; floor: after 1,000",
            "MiB",
            warm.memory,
            last.memory,
        ),
        flat("the same: descriptors", "", warm.n_descriptors as f64, last.n_descriptors as f64),
        flat("the same: threads", "", warm.n_threads as f64, last.n_threads as f64),
        Figure::new("starts and ends, 20 at a time", "1/s", rate),
    ])
}
