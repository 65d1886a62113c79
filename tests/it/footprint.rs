//! The cost of a shim for each agent: its private memory, and the part of the program that every
//! process must copy.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;

use machine::sys::processes;

use crate::daemon::{Daemon, PROGRAM, SHIM_PROGRAM};
use crate::support::install;

/// The greatest size of the relocated part, in bytes. The optimiser removes most of it, so that a
/// debug build only must not grow without bounds.
const MAX_RELOCATED: u64 = if cfg!(debug_assertions) { 1600 * 1024 } else { 512 * 1024 };
/// The same of the program of shims. It would be more with a runtime, or with other crates.
const MAX_RELOCATED_OF_SHIM: u64 = 128 * 1024;
/// The greatest private memory of a shim, in kilobytes. It includes the relocated part, so it is
/// more in a debug build.
const MAX_SHIM: u64 = if cfg!(debug_assertions) { 768 } else { 384 };
/// The same of a shim that runs the daemon's program.
const MAX_SHIM_OF_PROGRAM: u64 = if cfg!(debug_assertions) { 4352 } else { 768 };

#[test]
fn few_pages_of_the_programs_are_relocated() {
    for (program, most) in [(PROGRAM, MAX_RELOCATED), (SHIM_PROGRAM, MAX_RELOCATED_OF_SHIM)] {
        let size = section_size(&fs::read(program).unwrap(), ".data.rel.ro")
            .expect("the program has this section");
        assert!(
            size <= most,
            "every process of {program} copies {size} bytes of relocated data, of at most {most}"
        );
    }
}

#[test]
fn a_shim_is_small() {
    check_shim(&Daemon::running(""), MAX_SHIM);
}

#[test]
fn a_shim_of_the_daemons_program_is_small() {
    let mut daemon = Daemon::configured("");
    // No program of shims is beside it.
    daemon.program = install(PROGRAM.as_ref(), daemon.folder(), "agent-coordinator");
    daemon.start();
    check_shim(&daemon, MAX_SHIM_OF_PROGRAM);
}

#[track_caller]
fn check_shim(daemon: &Daemon, most: u64) {
    daemon.with_one_task(&["authenticate", "write:started", "sleep:600"]);
    let agent = daemon.written_pid("started");
    daemon.until_in_state("agt", "running");
    let shim = processes::read(agent).unwrap().parent;
    let status = fs::read_to_string(format!("/proc/{shim}/status")).unwrap();
    let anonymous = kilobytes(&status, "RssAnon:");
    assert!(anonymous <= most, "a shim has {anonymous} kB of its own, of at most {most}");
}

/// Returns a number of `/proc/<pid>/status`.
fn kilobytes(status: &str, name: &str) -> u64 {
    let number = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    number.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Returns the size of a section of a 64-bit little-endian ELF file. The table of sections contains
/// the places of the sections, and one of these contains their names.
fn section_size(elf: &[u8], name: &str) -> Option<u64> {
    let n16 = |at: usize| Some(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?).into());
    let n32 = |at: usize| Some(u32::from_le_bytes(elf.get(at..at + 4)?.try_into().ok()?));
    let n64 = |at: usize| Some(u64::from_le_bytes(elf.get(at..at + 8)?.try_into().ok()?));
    let offset = |at: usize| usize::try_from(n64(at)?).ok();
    let index = |at: usize| usize::try_from(n32(at)?).ok();
    assert_eq!(elf.get(..6)?, b"\x7fELF\x02\x01");
    let (table, entry, n_sections, names): (usize, usize, usize, usize) =
        (offset(40)?, n16(58)?, n16(60)?, n16(62)?);
    let header = |section: usize| table + section * entry;
    let names = offset(header(names) + 24)?;
    (0..n_sections).find_map(|section| {
        let found = elf.get(names + index(header(section))?..)?;
        (found.starts_with(name.as_bytes()) && found.get(name.len()) == Some(&0))
            .then(|| n64(header(section) + 32))?
    })
}
