//! The loop of a shim that has an agent: it handles output, signals and deadlines until the tree is
//! empty.

use std::io;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal as NixSignal;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;
use rustix::time::Timespec;

use super::agent::{Agent, Streams};
use super::complain_unless_written;
use super::kill_rounds::KillRounds;
use super::output::{Log, Output};
use super::tree::{self, Next};
use domain::Condition;
use domain::launch::{ExitStatus, ProcessEnd, StopReason};
use domain::redact::Redactor;
use machine::cgroup::Group;
use machine::crash_point::{self, CrashPoint};
use machine::instance_dir;
use machine::instance_dir::clock::{BootInstant, MonotonicInstant, wall_clock};
use machine::instance_dir::order::Order;
use machine::instance_dir::record::{self, Exit, ExitState, Started, Stop};
use machine::sys::events::Events;
use machine::sys::{orphans, processes};

/// The longest time from TERM to KILL for an agent that never authenticated, for any
/// `stop.timeout`. Together with the leak grace it must be well below the half minute after which a
/// server frees such a claim.
const UNAUTHENTICATED_STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of attempts to write the record of an end, and the pause between them.
const N_LAST_ATTEMPTS: u32 = 120;
const LAST_ATTEMPTS_PAUSE: Duration = Duration::from_millis(500);
/// The time after the first KILL from which living processes are reported as unkillable.
const UNKILLABLE_AFTER: Duration = Duration::from_secs(5);

/// The signals that a shim handles. The daemon spawned this process with all signals blocked
/// except faults, so that none was lost or deadly before these are listened to.
const SIGNALS: [NixSignal; 4] =
    [NixSignal::SIGCHLD, NixSignal::SIGTERM, NixSignal::SIGINT, NixSignal::SIGHUP];

/// The times and sizes of an order, which stay when its secrets are erased.
pub struct OrderLimits {
    start_deadline: BootInstant,
    stop_timeout: Duration,
    leak_grace: Duration,
    max_file: u64,
    n_files: u32,
}

impl OrderLimits {
    pub fn of(order: &Order<'_>) -> Self {
        Self {
            start_deadline: order.fuse_boottime_ms,
            stop_timeout: order.stop_timeout,
            leak_grace: order.leak_grace,
            max_file: order.max_file,
            n_files: order.files,
        }
    }
}

pub struct EventLoop<'a> {
    dir: &'a Path,
    agent: Agent,
    limits: OrderLimits,
    output: Output,
    events: Events,
    /// The record written when the leader was gone; `None` while it lives.
    exit: Option<Exit>,
    is_leader_reaped: bool,
    /// Armed until the launch is found marked as authenticated.
    start_deadline: Option<BootInstant>,
    /// TERM was sent to the whole tree.
    is_told: bool,
    first_kill_at: Option<BootInstant>,
    /// The condition as it was last written.
    condition: Condition,
    /// A child has died, or was stopped or continued.
    has_child_news: bool,
    /// The time of the next round of KILL.
    kill_at: Option<BootInstant>,
    kill_rounds: KillRounds,
}

impl<'a> EventLoop<'a> {
    pub fn new(
        dir: &'a Path,
        agent: Agent,
        streams: Streams,
        limits: OrderLimits,
        redactor: Redactor,
    ) -> io::Result<Self> {
        let started_monotonic_ms = Some(MonotonicInstant::now());
        let pid = agent.pid;
        let start_ticks = agent.start_ticks;
        let started_at = agent.started_at;
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
            start_deadline: Some(limits.start_deadline),
            is_told: false,
            first_kill_at: None,
            condition: Condition::default(),
            has_child_news: false,
            kill_at: None,
            kill_rounds: KillRounds::default(),
            limits,
        })
    }

    /// Keeps the agent. Returns a little after the tree is empty and its end is recorded.
    pub fn keep(mut self) {
        // The check comes before the wait: events from before the signals were listened to count as
        // well.
        while !self.reap() {
            self.meet_deadlines();
            self.tell_condition();
            self.wait();
            self.take_signals();
            self.output.copy();
        }
        self.finish();
    }

    /// Reaps dead children. Returns `true` when no child is left.
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

    /// Records that the leader is gone. It is still a zombie: its pid and its group's id are its
    /// own.
    fn on_leader_gone(&mut self, status: ExitStatus, has_dumped_core: bool) {
        let exit = self.exited(status, has_dumped_core);
        self.start_deadline = None;
        if tree::has_living_child() {
            self.write(&exit);
            self.exit = Some(exit);
            crash_point::reach(CrashPoint::ExitRecorded);
            self.end_leftovers();
        } else {
            // In the usual case, one record of the end is written at once, before any child is
            // reaped.
            self.exit = Some(exit);
            self.record_end();
        }
    }

    /// Returns the record of a leader that is gone.
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

    /// Returns the record of a tree in which no process lives.
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

    /// Ends the processes that outlive their leader. They have `leak_grace`, or the rest of the
    /// stop's time if that is less.
    fn end_leftovers(&mut self) {
        let n_leaked = self.tell();
        if let Some(exit) = &mut self.exit {
            exit.n_leaked = u32::try_from(n_leaked).unwrap_or(u32::MAX);
        }
        self.kill_by(BootInstant::now() + self.limits.leak_grace);
    }

    /// Sends TERM to all living processes, once. Returns how many live.
    fn tell(&mut self) -> usize {
        let living = tree::living(&self.agent.mark);
        if !self.is_told {
            self.is_told = true;
            tree::send(Signal::TERM, self.group(), &living);
            // A stopped process would not handle the TERM.
            tree::send(Signal::CONT, self.group(), &living);
        }
        living.len()
    }

    fn kill_by(&mut self, at: BootInstant) {
        self.kill_at = Some(self.kill_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Returns the agent's group, while its id cannot belong to another one.
    fn group(&self) -> Option<i32> {
        (!self.is_leader_reaped).then_some(self.agent.pid)
    }

    fn stop(&self) -> Option<Stop> {
        record::read(self.dir).ok().flatten()
    }

    /// Begins the stop. Each request may shorten the time, but none prolongs it.
    fn begin_stop(&mut self) {
        let timeout = self.stop().map_or(self.limits.stop_timeout, |stop| stop.timeout());
        self.kill_by(BootInstant::now() + timeout);
        if self.kill_at.is_some_and(|at| at > BootInstant::now()) {
            self.tell();
        }
    }

    fn meet_deadlines(&mut self) {
        let now = BootInstant::now();
        if let Some(start_deadline) =
            self.start_deadline.filter(|start_deadline| now >= *start_deadline)
        {
            self.start_deadline = None;
            if !instance_dir::is_marked_authenticated(self.dir) {
                // An agent that never authenticated gets less time: the server frees the claim some
                // time after this.
                let timeout = self.limits.stop_timeout.min(UNAUTHENTICATED_STOP_TIMEOUT);
                let stop = Stop::new(StopReason::StartTimeout, timeout);
                complain_unless_written::<Stop>(
                    self.dir,
                    record::write_first(self.dir, &stop).map(drop),
                );
                // The time counts from the start deadline: a machine that slept may wake long after
                // it, beside another agent for the same key.
                self.kill_by(start_deadline + timeout);
                self.begin_stop();
            }
        }
        if self.kill_at.is_some_and(|at| now >= at) {
            self.first_kill_at = self.first_kill_at.or(Some(now));
            // The group is killed at once, if there is one.
            if let Some(group) = &self.agent.group {
                group.kill();
            }
            // The next round finds processes that were forked between the listing and the KILL.
            let living = tree::living(&self.agent.mark);
            tree::send(Signal::KILL, self.group(), &living);
            let pause = self.kill_rounds.next_pause(&living, self.is_overdue());
            self.kill_at = Some(now + pause);
        }
    }

    /// Records facts that the daemon cannot see by itself: only its parent is told when a process
    /// is stopped.
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
        if self.is_overdue() && self.condition.unkillable_since.is_none() {
            self.change_condition(Condition {
                unkillable_since: Some(wall_clock()),
                ..self.condition
            });
        }
    }

    /// Returns whether a process lives long after the first KILL.
    fn is_overdue(&self) -> bool {
        self.first_kill_at.is_some_and(|at| BootInstant::now() >= at + UNKILLABLE_AFTER)
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
        let deadline = self.start_deadline.into_iter().chain(self.kill_at).chain(look_again).min();
        self.events.wake_at(deadline.map(BootInstant::as_millis));
        let mut sources: Vec<PollFd<'_>> = self
            .events
            .descriptors()
            .chain(self.output.open_pipes())
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        // The result does not matter: the loop checks everything after each return.
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
        // This comes after the record: the next daemon removes the group of a shim that is killed
        // here.
        if let Some(group) = &self.agent.group {
            group.end();
        }
        crash_point::reach(CrashPoint::EndRecorded);
        self.linger();
    }

    /// Waits a moment before the process exits. The kernel takes longer to remove this process than
    /// the process took to record its end. If hundreds end at once, the removal of the first then
    /// waits until the last has recorded its end. A signal to end stops the wait.
    fn linger(mut self) {
        // These signals came during its life.
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

    /// Records the end once, when no process of the tree lives. Nothing is added to the output
    /// after that.
    fn record_end(&mut self) {
        let Some(exit) = self.exit.take() else { return };
        self.output.finish();
        self.write_insistently(&self.ended(exit));
    }

    /// Writes the record of the end, which only this process can write. It tries again, because a
    /// folder that cannot be written now may be writable later.
    #[allow(clippy::disallowed_methods, reason = "the shim has one thread and no other work")]
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
