//! The loop of a shim that has an agent: output, signals, deadlines, until the tree is empty.

use std::io;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal as NixSignal;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;
use rustix::time::Timespec;

use super::agent::{Agent, Streams};
use super::complain_unless_written;
use super::output::{Log, Output};
use super::tree::{self, Next};
use crate::cgroup::Group;
use crate::crash_point::{self, CrashPoint};
use crate::domain::Condition;
use crate::domain::launch::{ExitStatus, ProcessEnd, StopReason};
use crate::domain::redact::Redactor;
use crate::instance_dir;
use crate::instance_dir::clock::{BootInstant, MonotonicInstant, wall_clock};
use crate::instance_dir::order::Order;
use crate::instance_dir::record::{self, Exit, ExitState, Started, Stop};
use crate::sys::events::Events;
use crate::sys::{orphans, processes};

/// Between two rounds of KILL: what was forked meanwhile is found soon, what can't be killed is not asked all the time.
const FIRST_KILL_PAUSE: Duration = Duration::from_millis(5);
/// Longest time from TERM to KILL for an agent that never authenticated, whatever `stop.timeout` is. With a leak grace it must be
/// well below the half minute after which a server frees such a claim.
const PATIENCE_WITH_STRANGERS: Duration = Duration::from_secs(10);
const LONGEST_KILL_PAUSE: Duration = Duration::from_millis(500);
/// How often, and how far apart, the record of an end is tried to be written where it can't be.
const N_LAST_ATTEMPTS: u32 = 120;
const LAST_ATTEMPTS_PAUSE: Duration = Duration::from_millis(500);
/// What lives so long after its KILL is told as unkillable.
const UNKILLABLE_AFTER: Duration = Duration::from_secs(5);

/// The daemon spawned this process with all signals blocked but those of its own faults, so that none was lost or deadly before
/// these are listened to.
const SIGNALS: [NixSignal; 4] =
    [NixSignal::SIGCHLD, NixSignal::SIGTERM, NixSignal::SIGINT, NixSignal::SIGHUP];

/// The times and sizes of an order, which stay when its secrets are gone.
pub struct Limits {
    fuse: BootInstant,
    stop_timeout: Duration,
    leak_grace: Duration,
    max_file: u64,
    n_files: u32,
}

impl Limits {
    pub fn of(order: &Order<'_>) -> Self {
        Self {
            fuse: order.fuse_boottime_ms,
            stop_timeout: order.stop_timeout,
            leak_grace: order.leak_grace,
            max_file: order.max_file,
            n_files: order.files,
        }
    }
}

pub struct Keeper<'a> {
    dir: &'a Path,
    agent: Agent,
    limits: Limits,
    output: Output,
    events: Events,
    /// The record written when the leader was gone; `None` while it lives.
    exit: Option<Exit>,
    is_leader_reaped: bool,
    /// Armed until the launch is seen marked as authenticated.
    fuse: Option<BootInstant>,
    /// The whole tree was sent TERM.
    is_told: bool,
    first_kill_at: Option<BootInstant>,
    /// As it was last written.
    condition: Condition,
    /// A child has died, or was stopped or continued.
    has_child_news: bool,
    /// The next round of KILL.
    kill_at: Option<BootInstant>,
    kill_pause: Duration,
}

impl<'a> Keeper<'a> {
    pub fn new(
        dir: &'a Path,
        agent: Agent,
        streams: Streams,
        limits: Limits,
        redactor: Redactor,
    ) -> io::Result<Self> {
        let started_monotonic_ms = Some(MonotonicInstant::now());
        let (pid, start_ticks, started_at) = (agent.pid, agent.start_ticks, agent.started_at);
        let started = Started { pid, start_ticks, started_at, started_monotonic_ms };
        complain_unless_written::<Started>(dir, record::write(dir, &started));
        crash_point::reach(CrashPoint::StartRecorded);
        Ok(Self {
            dir,
            agent,
            output: Output::new(streams, Log::open(dir, limits.max_file, limits.n_files), redactor),
            events: Events::listen(&SIGNALS)?,
            exit: None,
            is_leader_reaped: false,
            fuse: Some(limits.fuse),
            is_told: false,
            first_kill_at: None,
            condition: Condition::default(),
            has_child_news: false,
            kill_at: None,
            kill_pause: FIRST_KILL_PAUSE,
            limits,
        })
    }

    /// Returns a little after the tree is empty and its end is recorded.
    pub fn keep(mut self) {
        // Look, then wait: what happened before the signals were listened to counts as well.
        while !self.reap() {
            self.meet_deadlines();
            self.tell_condition();
            self.wait();
            self.take_signals();
            self.output.copy();
        }
        self.finish();
    }

    /// Reaps the dead; `true` when nobody is left.
    fn reap(&mut self) -> bool {
        loop {
            match tree::next(&self.agent.mark) {
                Next::Empty => return true,
                Next::Alive => {
                    if self.is_leader_reaped && self.kill_at.is_none() {
                        self.end_leftovers();
                    }
                    return false;
                }
                Next::Dead { pid, exit, has_dumped_core } => {
                    if pid == self.agent.pid {
                        self.on_leader_gone(exit, has_dumped_core);
                    }
                    tree::reap(pid);
                    self.is_leader_reaped |= pid == self.agent.pid;
                }
            }
        }
    }

    /// The leader is a zombie still: its pid and its group's id are its own.
    fn on_leader_gone(&mut self, status: ExitStatus, has_dumped_core: bool) {
        let exit = self.exited(status, has_dumped_core);
        self.fuse = None;
        if tree::has_living_child() {
            self.write(&exit);
            self.exit = Some(exit);
            crash_point::reach(CrashPoint::ExitRecorded);
            self.end_leftovers();
        } else {
            // The usual end: all that is to be said of it is said at once, and before anybody is reaped.
            self.exit = Some(exit);
            self.record_end();
        }
    }

    /// What there is to say of a leader that is gone.
    fn exited(&self, status: ExitStatus, has_dumped_core: bool) -> Exit {
        Exit {
            state: ExitState::Exited,
            pid: Some(self.agent.pid),
            started_at: Some(self.agent.started_at),
            ended_at: None,
            stop: self.stop().map(|stop| stop.reason),
            has_dumped_core,
            was_killed_by_others: status.signal == Some(Signal::KILL.as_raw())
                && self.first_kill_at.is_none(),
            n_oom_kills: self.n_oom_kills(),
            ..Exit::without_agent(ProcessEnd::Exited(status), wall_clock())
        }
    }

    /// What there is to say when nobody lives.
    fn ended(&self, exit: Exit) -> Exit {
        Exit {
            state: ExitState::Ended,
            n_oom_kills: self.n_oom_kills(),
            ended_at: Some(wall_clock()),
            stop: self.stop().map(|stop| stop.reason),
            n_dropped_lines: self.output.n_dropped_lines(),
            ..exit
        }
    }

    /// What lives on without its leader has `leak_grace`, or what is left of the stop's time if that is less.
    fn end_leftovers(&mut self) {
        let n_leaked = self.tell();
        if let Some(exit) = &mut self.exit {
            exit.n_leaked = u32::try_from(n_leaked).unwrap_or(u32::MAX);
        }
        self.kill_by(BootInstant::now() + self.limits.leak_grace);
    }

    /// TERM to everybody, once; returns how many live.
    fn tell(&mut self) -> usize {
        let living = tree::living(&self.agent.mark);
        if !self.is_told {
            self.is_told = true;
            tree::send(Signal::TERM, self.group(), &living);
            // A stopped process would not take the TERM.
            tree::send(Signal::CONT, self.group(), &living);
        }
        living.len()
    }

    fn kill_by(&mut self, at: BootInstant) {
        self.kill_at = Some(self.kill_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// The agent's group, while its id can't be anybody else's.
    fn group(&self) -> Option<i32> {
        (!self.is_leader_reaped).then_some(self.agent.pid)
    }

    fn stop(&self) -> Option<Stop> {
        record::read(self.dir).ok().flatten()
    }

    /// Each request may shorten the time, none prolongs it.
    fn begin_stop(&mut self) {
        let timeout = self.stop().map_or(self.limits.stop_timeout, |stop| stop.timeout());
        self.kill_by(BootInstant::now() + timeout);
        if self.kill_at.is_some_and(|at| at > BootInstant::now()) {
            self.tell();
        }
    }

    fn meet_deadlines(&mut self) {
        let now = BootInstant::now();
        if let Some(fuse) = self.fuse.filter(|fuse| now >= *fuse) {
            self.fuse = None;
            if !instance_dir::is_marked_authenticated(self.dir) {
                // Who never came in is not waited for: the server frees the claim some time after this.
                let patience = self.limits.stop_timeout.min(PATIENCE_WITH_STRANGERS);
                let stop = Stop::new(StopReason::StartTimeout, patience);
                complain_unless_written::<Stop>(
                    self.dir,
                    record::write_first(self.dir, &stop).map(drop),
                );
                // From the fuse on: a machine that slept meanwhile may wake long after it, beside another agent for the same key.
                self.kill_by(fuse + patience);
                self.begin_stop();
            }
        }
        if self.kill_at.is_some_and(|at| now >= at) {
            self.first_kill_at = self.first_kill_at.or(Some(now));
            // All of it at once, where that is possible.
            if let Some(group) = &self.agent.group {
                group.kill();
            }
            // What is forked between the look and the KILL is seen by the next round.
            tree::send(Signal::KILL, self.group(), &tree::living(&self.agent.mark));
            self.kill_at = Some(now + self.kill_pause);
            self.kill_pause = (self.kill_pause * 2).min(LONGEST_KILL_PAUSE);
        }
    }

    /// Writes down what its daemon can't see by itself: nobody is told when a process is stopped but its parent.
    fn tell_condition(&mut self) {
        if std::mem::take(&mut self.has_child_news) {
            let is_stopped = !self.is_leader_reaped
                && processes::read(self.agent.pid)
                    .is_some_and(|leader| leader.is_stopped && !leader.is_zombie);
            let since = self.condition.suspended_since;
            self.change_condition(Condition {
                suspended_since: is_stopped.then(|| since.unwrap_or_else(wall_clock)),
                ..self.condition
            });
        }
        let is_overdue =
            self.first_kill_at.is_some_and(|at| BootInstant::now() >= at + UNKILLABLE_AFTER);
        if is_overdue && self.condition.unkillable_since.is_none() {
            self.change_condition(Condition {
                unkillable_since: Some(wall_clock()),
                ..self.condition
            });
        }
    }

    fn change_condition(&mut self, condition: Condition) {
        if condition != self.condition {
            self.condition = condition;
            complain_unless_written::<Condition>(self.dir, record::write(self.dir, &condition));
        }
    }

    fn n_oom_kills(&self) -> u32 {
        self.agent.group.as_ref().and_then(Group::n_oom_kills).unwrap_or_default()
    }

    /// Returns when there is something to read, to reap or to do.
    fn wait(&mut self) {
        let look_again = orphans::LOOK_AGAIN
            .filter(|_| self.is_leader_reaped)
            .map(|pause| BootInstant::now() + pause);
        let deadline = self.fuse.into_iter().chain(self.kill_at).chain(look_again).min();
        self.events.wake_at(deadline.map(BootInstant::as_millis));
        let mut sources: Vec<PollFd<'_>> = self
            .events
            .descriptors()
            .chain(self.output.open_pipes())
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        // Interrupted or not: the loop looks at everything after each return.
        let _ = rustix::event::poll(&mut sources, None);
    }

    fn take_signals(&mut self) {
        while let Some(signal) = self.events.take_signal() {
            match signal {
                NixSignal::SIGTERM | NixSignal::SIGINT => self.begin_stop(),
                NixSignal::SIGHUP => self.output.reopen(),
                // The loop reaps in any case.
                NixSignal::SIGCHLD => self.has_child_news = true,
                _ => {}
            }
        }
    }

    fn finish(mut self) {
        self.record_end();
        // After the record: what a keeper that is killed leaves of it is removed by the next daemon.
        if let Some(group) = &self.agent.group {
            group.end();
        }
        crash_point::reach(CrashPoint::EndRecorded);
        self.linger();
    }

    /// The kernel is longer busy with taking this process apart than this process was with its last word. Where hundreds end at
    /// once, that of the first waits for the words of the last. Who tells it to end meanwhile is obeyed.
    fn linger(mut self) {
        // Those of its life.
        while self.events.take_signal().is_some() {}
        self.events.wake_at(None);
        let mut sources: Vec<PollFd<'_>> = self
            .events
            .descriptors()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let _ = rustix::event::poll(
            &mut sources,
            Timespec::try_from(instance_dir::LINGER).ok().as_ref(),
        );
    }

    /// Nobody lives: writes down how it went, once. Nothing is added to the output after that.
    fn record_end(&mut self) {
        let Some(exit) = self.exit.take() else { return };
        self.output.finish();
        self.write_insistently(&self.ended(exit));
    }

    /// The last word, which nobody else has: a folder that can't be written now may be later.
    fn write_insistently(&self, exit: &Exit) {
        for _ in 0..N_LAST_ATTEMPTS {
            if record::write(self.dir, exit).is_ok() || !self.dir.exists() {
                return;
            }
            std::thread::sleep(LAST_ATTEMPTS_PAUSE);
        }
        self.write(exit);
    }

    fn write(&self, exit: &Exit) {
        complain_unless_written::<Exit>(self.dir, record::write(self.dir, exit));
    }
}
