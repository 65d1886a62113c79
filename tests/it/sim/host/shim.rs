//! The work of a shim, from its start to its last record.

use std::sync::Arc;
use std::time::Duration;

use domain::launch::{ExitStatus, ProcessEnd};
use domain::{LaunchId, Secret, StopReason};
use runtime::nudge::sleep_until;
use tokio::time::Instant;

use super::{
    Character, Host, KILLED, LEAK_GRACE, Mutant, STOP_TIMEOUT, TERMINATED, Trouble, What, pass,
};

/// The state of a shim.
struct Keeping {
    start_deadline: Option<Instant>,
    is_told: bool,
    stopped_with: Option<Duration>,
    /// The time when its agent ends after a TERM.
    dies_at: Option<Instant>,
    kill_at: Option<Instant>,
}

impl Keeping {
    fn kill_by(&mut self, at: Instant) {
        self.kill_at = Some(self.kill_at.map_or(at, |earlier| earlier.min(at)));
    }
}

impl Host {
    /// Plays a shim from its start to its end.
    pub(super) async fn keep(
        self: Arc<Self>,
        launch: LaunchId,
        start_deadline: Instant,
        ticket: Secret,
    ) {
        let (character, news) = {
            let mut state = self.state.lock().unwrap();
            let folder = state.folder(&launch);
            (folder.character.clone(), folder.news.clone())
        };
        let slept_before = self.slumber.slept();
        let start_deadline_at = || match self.sim.mutant {
            Some(Mutant::FuseSleeps) => {
                start_deadline + self.slumber.slept().saturating_sub(slept_before)
            }
            _ => start_deadline,
        };
        pass(character.executed_after).await;
        self.slumber.over().await;
        let reason_not_to = {
            let mut state = self.state.lock().unwrap();
            match state.folder(&launch).stop {
                _ if Instant::now() >= start_deadline_at() => Some(ProcessEnd::StartDeadlinePassed),
                Some((reason, _)) => Some(ProcessEnd::StartFailed(format!(
                    "stopped ({reason}) before it was started"
                ))),
                None if character.trouble == Some(Trouble::NoProgram) => {
                    Some(ProcessEnd::StartFailed("no such program".to_owned()))
                }
                None => None,
            }
        };
        if let Some(end) = reason_not_to {
            self.finish(&launch, end);
            return;
        }
        self.exec(&launch, ticket);
        let mut keeping = Keeping {
            start_deadline: Some(start_deadline_at()),
            is_told: false,
            stopped_with: None,
            dies_at: None,
            kill_at: None,
        };
        loop {
            if let Some(exit) = self.turn(&launch, &mut keeping, &character) {
                self.finish(&launch, ProcessEnd::Exited(exit));
                return;
            }
            let deadline = keeping
                .start_deadline
                .into_iter()
                .chain(keeping.kill_at)
                .chain(keeping.dies_at)
                .min();
            tokio::select! {
                biased;
                () = news.notified() => {}
                () = sleep_until(deadline) => {}
            }
            self.slumber.over().await;
            keeping.start_deadline = keeping.start_deadline.map(|_| start_deadline_at());
        }
    }

    /// Plays one look of a shim. Returns the leader's exit when no process is left.
    fn turn(
        &self,
        launch: &LaunchId,
        keeping: &mut Keeping,
        character: &Character,
    ) -> Option<ExitStatus> {
        let now = Instant::now();
        let (went, stop) = {
            let mut state = self.state.lock().unwrap();
            let folder = state.folder(launch);
            // A start deadline has no more effect if its launch is marked.
            if let Some(start_deadline) =
                keeping.start_deadline.filter(|start_deadline| now >= *start_deadline)
            {
                keeping.start_deadline = None;
                if !folder.is_marked && folder.went.is_none() {
                    self.note(launch, || "its start_deadline has burnt".to_owned());
                    folder.stop.get_or_insert((StopReason::StartTimeout, STOP_TIMEOUT));
                    // The deadline counts from the start deadline, not from now. A machine that
                    // slept meanwhile may wake when another agent may have been started.
                    keeping.kill_by(start_deadline + STOP_TIMEOUT);
                }
            }
            if folder.went.is_some() && folder.exited.is_none() {
                folder.exited = folder.went;
                self.nudge.wake();
            }
            (folder.went, folder.stop)
        };
        if went.is_some() {
            keeping.start_deadline = None;
            keeping.dies_at = None;
            if !self.has_tree(launch) {
                return went;
            }
            keeping.kill_by(now + LEAK_GRACE);
        }
        if let Some((_, timeout)) = stop
            && keeping.stopped_with != Some(timeout)
        {
            keeping.stopped_with = Some(timeout);
            keeping.kill_by(now + timeout);
            if !keeping.is_told {
                keeping.is_told = true;
                keeping.dies_at = character.heeds_term_after.map(|after| now + after);
            }
        }
        if keeping.kill_at.is_some_and(|at| now >= at) {
            self.die(launch, KILLED);
            self.end_descendants(launch);
            keeping.kill_at = None;
            return self.turn(launch, keeping, character);
        }
        if keeping.dies_at.is_some_and(|at| now >= at) {
            keeping.dies_at = None;
            self.die(launch, TERMINATED);
            return self.turn(launch, keeping, character);
        }
        None
    }

    fn has_tree(&self, launch: &LaunchId) -> bool {
        !self.state.lock().unwrap().tree(launch).is_empty()
    }

    /// Writes the last record of a shim.
    fn finish(&self, launch: &LaunchId, end: ProcessEnd) {
        let mut state = self.state.lock().unwrap();
        for pid in state.pids(|what| matches!(what, What::EventLoop(of) if of == launch)) {
            state.procs.remove(&pid);
        }
        let folder = state.folder(launch);
        self.write_end(folder, launch, end);
    }
}
