//! F-11, F-15, F-16: agents that print nothing, far too much, or invalid text.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Command;

use machine::instance_dir;

use super::{folder, shim_of};
use crate::daemon::{Daemon, PROGRAM};
use crate::support::{DEADLINE, until, until_some_within};

/// Returns the processor time that a process has used, in ticks of ten milliseconds.
fn ticks(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, numbers) = stat.rsplit_once(')').unwrap();
    numbers
        .split_ascii_whitespace()
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<u64>().unwrap())
        .sum()
}

#[test]
fn an_agent_that_closed_its_output_keeps_nobody_busy() {
    let daemon = Daemon::running("polling_interval: 1h");
    let steps = [
        "authenticate",
        "close-stdout",
        "run:exec 2>&-",
        "write:ready",
        "sleep:2",
        "write:later",
        "sleep:600",
    ];
    daemon.with_one_task(&steps);
    let watched = [shim_of(daemon.written_pid("ready")), daemon.pid()];
    daemon.until_in_state("agt", "running");
    let before = watched.map(ticks);
    daemon.written_pid("later");
    for (pid, before) in watched.into_iter().zip(before) {
        let used = ticks(pid) - before;
        assert!(
            used <= 10,
            "process {pid} used {used} ticks of 200 or more, and there was nothing to do"
        );
    }
    daemon.done(&["stop", "agt", "prj"]);
    daemon.until_nothing_is_left();
}

/// Waits until the agent has printed a million bytes this number of times.
fn until_rounds(daemon: &Daemon, wanted: usize) {
    let rounds = daemon.work().join("rounds");
    until_some_within(
        std::time::Duration::from_mins(2),
        || {
            (fs::read_to_string(&rounds).unwrap_or_default().lines().count() >= wanted)
                .then_some(())
        },
        || format!("there were no {wanted} rounds of output"),
    );
}

#[test]
fn a_flood_of_output_fills_neither_disk_nor_memory_and_holds_nobody_up() {
    const MAX_FILE: u64 = 64 * 1024;
    let daemon = Daemon::running("output: { max_file: 64 KiB, files: 3 }");
    daemon.project("prj");
    let flood = "run:until [ -e enough ]; do take chatter:1000000; echo >>rounds; done";
    daemon.agent("flood", "prj", &["authenticate", "get-my-task", flood, "report:success"]);
    daemon.agent("calm", "prj", &["authenticate", "get-my-task", "report:success"]);
    daemon.task("tsk_flood", "prj", "flood");
    until_rounds(&daemon, 1);
    daemon.task("tsk_calm", "prj", "calm");
    until("the other works beside it", || daemon.task_status("tsk_calm") == "done");
    let launch = daemon.until_in_state("flood", "running");
    let n_before = fs::read_to_string(daemon.work().join("rounds")).unwrap().lines().count();
    let before = daemon.resident_kib();
    until_rounds(&daemon, n_before + 16);
    let grown = daemon.resident_kib().saturating_sub(before);
    assert!(grown < 8 * 1024, "16 MB of output made the daemon {grown} KiB larger");
    let folder = folder(&daemon, &launch);
    let files = instance_dir::output_files(&folder);
    // One file may just be rotated away.
    let sizes: Vec<u64> =
        files.iter().filter_map(|file| Some(file.metadata().ok()?.len())).collect();
    assert!(sizes.len() <= 3 && sizes.iter().all(|&size| size <= MAX_FILE), "{sizes:?}");
    fs::write(daemon.work().join("enough"), "").unwrap();
    until("it ends as if nothing were", || daemon.task_status("tsk_flood") == "done");
    daemon.until_nothing_is_left();
}

#[test]
fn whatever_it_prints_is_kept_as_lines_of_text() {
    let daemon = Daemon::running("backoff: { initial: 1h, max: 1h }");
    daemon.with_one_task(&[
        r"run:printf 'bytes \377\376 that are none\n'",
        r"run:printf 'nothing \000 inside\n'",
        r"run:printf '\033[31mred\033[0m, \033]0;a title\007untitled\n'",
        "long-line:100000000",
        "partial:and the rest",
    ]);
    daemon.until_ended("agt");
    let said = daemon.done(&["logs", "agt", "prj"]);
    let lines: Vec<&str> = said.lines().collect();
    let (long, plain): (Vec<&str>, Vec<&str>) = lines.iter().partition(|line| line.len() > 1000);
    assert_eq!(
        plain,
        [
            "bytes \u{fffd}\u{fffd} that are none",
            "nothing  inside",
            "red, untitled",
            "and the rest"
        ]
    );
    assert!(
        long.len() == 1 && long[0].len() < 66_000 && long[0].ends_with("bytes dropped]"),
        "{}",
        long.len()
    );
    assert!(said.ends_with("and the rest\n"));
}

/// A client that follows the output of a launch.
struct Follower(BufReader<UnixStream>);

impl Follower {
    fn of(daemon: &Daemon, launch: &str) -> Self {
        let mut stream = UnixStream::connect(daemon.state().join("control.sock")).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        // HTTP/1.0 has no chunks, so that the lines are those of the agent.
        write!(stream, "GET /api/launches/{launch}/output?follow=true HTTP/1.0\r\nhost: x\r\n\r\n")
            .unwrap();
        Self(BufReader::new(stream))
    }

    /// Returns the next line, or an empty one at the end.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Reads up to a line that contains `text`.
    #[track_caller]
    fn until(&mut self, text: &str) -> String {
        let mut read = Vec::new();
        while read.len() < 100 {
            let line = self.line();
            if line.contains(text) {
                return line;
            }
            read.push(line);
        }
        panic!("no line with {text}: {read:#?}");
    }
}

/// Returns the number of inotify instances of a process.
fn n_watchers(pid: i32) -> usize {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let targets = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    targets.filter(|target| target.to_string_lossy().contains("inotify")).count()
}

/// The steps of an agent that prints `before`, and `after` once the file `go` exists.
const TALKS: [&str; 5] = ["print:before", "write:ready", "wait-for:go", "print:after", "sleep:600"];

#[test]
fn many_followers_of_output_share_one_watcher() {
    let daemon = Daemon::running("");
    daemon.with_one_task(&TALKS);
    daemon.written_pid("ready");
    let launch = daemon.open("agt")[0]["launch_id"].as_str().unwrap().to_owned();
    let before = n_watchers(daemon.pid());
    let mut followers: Vec<Follower> = (0..40).map(|_| Follower::of(&daemon, &launch)).collect();
    for follower in &mut followers {
        follower.until("before");
    }
    let n_more = n_watchers(daemon.pid()) - before;
    assert!(n_more <= 1, "40 followers use {n_more} more watchers");
    // The remaining followers still get new output.
    followers.truncate(20);
    fs::write(daemon.work().join("go"), "").unwrap();
    for follower in &mut followers {
        follower.until("after");
    }
    daemon.done(&["stop", "agt", "prj"]);
    for follower in &mut followers {
        while !follower.line().is_empty() {}
    }
}

#[test]
fn output_has_a_limited_number_of_followers() {
    let mut daemon = Daemon::configured("");
    let mut command = Command::new("sh");
    // With this limit, two clients may follow.
    let few = "ulimit -n 256 && exec \"$0\" \"$@\"";
    command
        .args(["-c", few, PROGRAM, "--config"])
        .arg(daemon.config())
        .current_dir(daemon.folder());
    daemon.spawn_as(command);
    daemon.until_ready();
    daemon.with_one_task(&TALKS);
    daemon.written_pid("ready");
    let launch = daemon.open("agt")[0]["launch_id"].as_str().unwrap().to_owned();
    let mut followers = [Follower::of(&daemon, &launch), Follower::of(&daemon, &launch)];
    for follower in &mut followers {
        follower.until("before");
    }
    let mut late = Follower::of(&daemon, &launch);
    assert_eq!(late.line(), "HTTP/1.0 503 Service Unavailable");
    let problem = late.until("too_many_followers");
    assert!(
        problem.contains("too many clients follow the output of launches already"),
        "{problem}"
    );
    let [_stays, leaves] = followers;
    drop(leaves);
    until("its place is free", || Follower::of(&daemon, &launch).line().contains("200"));
}
