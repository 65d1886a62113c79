//! Measures how long agents wait for their starts while a database of 1 GB is backed up, and how long
//! such a backup takes.
#![allow(clippy::disallowed_methods, reason = "a bench waits and asks the time")]

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rusqlite::Connection;
use support::agent::{self, Pipe, Role};
use support::bed::{Bed, PROGRAM, Wanted};
use support::figures::{Figure, Target, Times, print};
use support::starts::{spawned_directly, started_by_daemon};

/// The size of the database, in rows of 64 KiB.
const N_ROWS: usize = 16 * 1024;
const ROW: usize = 64 * 1024;
/// A whole backup takes less time than so many starts.
const N_STARTS: usize = 1_000;
const N_BACKUPS: usize = 3;
/// The p99 that a start may have, in milliseconds. It is the same without a backup.
const P99_OF_STARTS: f64 = 50.0;

fn main() -> Result<()> {
    if agent::is_agent() {
        return Ok(());
    }
    let mut beginnings = Vec::new();
    let mut beds = Vec::new();
    for _ in 0..2 {
        let folder = Bed::folder()?;
        let pipe = Pipe::make(folder.path().join("beginnings"))?;
        let settings = "polling_interval: 10s\nrun: { linger: 0 }";
        let role = Role::Work(pipe.path().to_owned());
        beds.push(Bed::start_in(folder, &Wanted { settings, role, n_agents: 1 })?);
        beginnings.push(pipe);
    }
    let (alone, meanwhile) = match &mut beds[..] {
        [alone, meanwhile] => (alone.path().to_owned(), meanwhile.path().to_owned()),
        _ => unreachable!("two daemons were started"),
    };
    fill(&meanwhile.join("state/state.db"))?;
    fill(&alone.join("state/state.db"))?;

    let mut backups = Times::default();
    for number in 0..N_BACKUPS {
        backups.add(back_up(&meanwhile, number)?);
    }
    let beside = beds.pop().context("the second daemon")?;
    let spawned = spawned_directly(&mut beginnings[0], N_STARTS)?;
    let alone =
        started_by_daemon(beds.pop().context("the first daemon")?, &mut beginnings[0], N_STARTS)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let n_backups = Arc::new(AtomicUsize::new(0));
    let backing_up = thread::spawn({
        let is_over = Arc::clone(&is_over);
        let n_backups = Arc::clone(&n_backups);
        move || -> Result<()> {
            while !is_over.load(Ordering::Relaxed) {
                back_up(&meanwhile, N_BACKUPS + n_backups.load(Ordering::Relaxed))?;
                n_backups.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }
    });
    // The last backup may fail, because its folder goes away with the daemon.
    let with_backups = started_by_daemon(beside, &mut beginnings[1], N_STARTS)?;
    let n_meanwhile = n_backups.load(Ordering::Relaxed);
    is_over.store(true, Ordering::Relaxed);
    let _ = backing_up.join();
    // Otherwise the starts were measured without a backup.
    ensure!(n_meanwhile > 0, "no backup was finished while agents were started");
    print(&[
        Figure::of_times("a backup of 1 GB", &backups),
        Figure {
            floor: Some(spawned.median()),
            ..Figure::of_times("start of an agent (floor: posix_spawn)", &alone)
        },
        Figure {
            floor: Some(alone.median()),
            p99_target: Some(Target::AtMost(P99_OF_STARTS)),
            ..Figure::of_times("the same during backups (floor: without)", &with_backups)
        },
    ]);
    Ok(())
}

/// Adds rows to the database of a daemon that runs.
fn fill(database: &Path) -> Result<()> {
    let mut connection = Connection::open(database)?;
    connection.busy_timeout(Duration::from_secs(30))?;
    let text = "x".repeat(ROW);
    for batch in 0..N_ROWS / 256 {
        let tx = connection.transaction()?;
        for row in 0..256 {
            let sql = "INSERT INTO output_tails (launch_id, tail) VALUES (?1, ?2)";
            tx.execute(sql, (format!("lch_of_the_past_{batch}_{row}"), &text))?;
        }
        tx.commit()?;
    }
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}

/// Makes a backup. The file is kept until the folder goes: the removal of a file of 1 GB keeps other
/// writers from their syncs for a fifth of a second, whoever made it.
fn back_up(folder: &Path, number: usize) -> Result<Duration> {
    let file = folder.join(format!("backup-{number}.db"));
    let mut command = Command::new(PROGRAM);
    command.arg("--config").arg(folder.join("config.yaml")).arg("backup").arg(&file);
    let began_at = Instant::now();
    let is_done = command.stdout(Stdio::null()).status()?.success();
    let took = began_at.elapsed();
    ensure!(is_done, "the backup failed");
    Ok(took)
}
