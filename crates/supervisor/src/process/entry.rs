//! One instance in the table, and the records of its folder. The files are small and in the page
//! cache.

use std::path::PathBuf;
use std::sync::Arc;

use tracing::{info, warn};

use super::adoption;
use super::shims::Shim;
use domain::launch::{ExitStatus, ProcessEnd};
use domain::{Condition, Instance, InstanceKey, LaunchId, Phase, Timestamp};
use machine::instance_dir::lock::{self, LockState};
use machine::instance_dir::record::{self, Exit, ExitState, Record, RecordError, Started, Stop};
use runtime::folder_watch::WatchId;

/// One instance in the table.
pub struct Entry {
    pub instance: Instance,
    pub dir: PathBuf,
    pub shim: Arc<Shim>,
    pub watch: Option<WatchId>,
    /// The stop that was requested, with its time from TERM to KILL.
    pub stop: Option<Stop>,
    /// The folder is complete: a shim was spawned, now or earlier.
    pub has_shim: bool,
    /// The folder of its files, if that is not in `dir`.
    pub files: Option<PathBuf>,
    /// The control group that an earlier daemon made for it.
    pub cgroup: Option<PathBuf>,
}

impl Entry {
    pub fn new(launch: LaunchId, key: InstanceKey, dir: PathBuf, adopted: bool) -> Self {
        let instance = Instance {
            launch,
            key,
            phase: Phase::Starting,
            adopted,
            stop: None,
            is_marked_authenticated: false,
            condition: Condition::default(),
            shim: None,
        };
        Self {
            instance,
            dir,
            shim: Arc::default(),
            watch: None,
            stop: None,
            has_shim: adopted,
            files: None,
            cgroup: None,
        }
    }

    /// Notes the process of the shim of a running agent. Returns true if that is new. The shim
    /// writes itself into its lock before it starts the agent.
    pub fn note_shim(&mut self, phase: Option<&Phase>) -> bool {
        if self.instance.shim.is_some() || !matches!(phase, Some(Phase::Running { .. })) {
            return false;
        }
        let Ok(lock) = lock::look(&self.dir) else {
            return false;
        };
        self.instance.shim = lock.live_shim().cloned();
        self.instance.shim.is_some()
    }

    /// Writes the stop request. If the folder does not exist yet, it is written when the folder is
    /// complete.
    pub fn write_stop(&self) {
        let Some(stop) = self.stop.as_ref().filter(|_| self.has_shim) else {
            return;
        };
        let written = match record::write_first(&self.dir, stop) {
            Ok(true) => Ok(()),
            // The first reason stays, also that of the start deadline; the time may have become
            // shorter.
            Ok(false) => match self.read::<Stop>(&self.instance.launch) {
                Some(first) => {
                    record::write(&self.dir, &Stop { reason: first.reason, ..stop.clone() })
                }
                None => record::write(&self.dir, stop),
            },
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            // The shim stops without it as well, with the timeout of its order.
            warn!(launch_id = %self.instance.launch, error = &error as &dyn std::error::Error, "could not write the stop reason of the agent");
        }
    }

    /// Reads a record of the folder. An unusable record is set aside.
    pub fn read<T: Record>(&self, launch: &LaunchId) -> Option<T> {
        self.try_read(launch).ok().flatten()
    }

    /// Reads a record like [`Entry::read`], but returns errors that may pass.
    pub fn try_read<T: Record>(&self, launch: &LaunchId) -> Result<Option<T>, RecordError> {
        match record::read(&self.dir) {
            Err(error) if error.is_lasting() => {
                adoption::set_record_aside::<T>(&self.dir, launch, &error);
                Ok(None)
            }
            other => other,
        }
    }

    /// Returns the phase that the folder records; `None` if it records none.
    pub fn read_phase(&self, launch: &LaunchId) -> Result<Option<Phase>, RecordError> {
        if let Some(exit) = self.try_read::<Exit>(launch)? {
            match (exit.state, exit.pid, exit.started_at, exit.end) {
                (ExitState::Ended, pid, started_at, end) => {
                    let at = exit.ended_at.unwrap_or(exit.exited_at);
                    return Ok(Some(Phase::Ended {
                        pid,
                        started_at,
                        end,
                        at,
                        n_leaked: exit.n_leaked,
                    }));
                }
                (ExitState::Exited, Some(pid), Some(started_at), ProcessEnd::Exited(exit)) => {
                    return Ok(Some(Phase::Exited { pid, started_at, exit }));
                }
                // The record does not say which process exited, so parts of the tree may live.
                (ExitState::Exited, ..) => {}
            }
        }
        // The record of the start does not change.
        if matches!(self.instance.phase, Phase::Running { .. }) {
            return Ok(Some(self.instance.phase.clone()));
        }
        let started = self.try_read::<Started>(launch)?;
        Ok(started
            .map(|started| Phase::Running { pid: started.pid, started_at: started.started_at }))
    }

    /// Returns the condition that the shim reports in addition to the phase. An ended instance
    /// has the default condition.
    pub fn read_condition(&self, launch: &LaunchId, phase: Option<&Phase>) -> Condition {
        match phase.unwrap_or(&self.instance.phase) {
            Phase::Ended { .. } => Condition::default(),
            Phase::Exited { .. } => {
                Condition { suspended_since: None, ..self.read(launch).unwrap_or_default() }
            }
            Phase::Starting | Phase::Running { .. } => self.read(launch).unwrap_or_default(),
        }
    }

    /// Returns the end of an instance whose shim is gone without a record of the end.
    pub fn end_without_record(
        &self,
        launch: &LaunchId,
    ) -> (Option<i32>, Option<Timestamp>, ProcessEnd) {
        match self.instance.phase {
            Phase::Exited { pid, started_at, exit } => {
                (Some(pid), Some(started_at), ProcessEnd::Exited(exit))
            }
            Phase::Running { pid, started_at } => (Some(pid), Some(started_at), ProcessEnd::Lost),
            Phase::Starting | Phase::Ended { .. } => {
                let never_was = matches!(lock::look(&self.dir), Ok(LockState::Free(None)))
                    && self.read::<Started>(launch).is_none()
                    && self.dir.exists();
                let end = if !never_was {
                    ProcessEnd::Lost
                } else if self.instance.adopted {
                    ProcessEnd::StartFailed("the daemon died before its shim started".to_owned())
                } else {
                    ProcessEnd::StartFailed("its shim died before the agent was started".to_owned())
                };
                (None, None, end)
            }
        }
    }
}

/// Logs that an instance reaches this phase.
pub fn log_phase(instance: &Instance, phase: &Phase) {
    let Instance { launch, key, .. } = instance;
    let span = tracing::info_span!(
        "instance", launch_id = %launch, agent_id = %key.agent, project_id = %key.project, purpose = %key.purpose
    );
    let _entered = span.entered();
    match phase {
        Phase::Starting => {}
        Phase::Running { pid, .. } => info!(pid, "agent process started"),
        Phase::Exited { pid, exit: ExitStatus { exit_code, signal }, .. } => {
            info!(pid, exit_code, signal, "agent process exited");
        }
        Phase::Ended { pid, end, n_leaked, .. } => {
            let ExitStatus { exit_code, signal } = end.exit().unwrap_or_default();
            info!(pid, end = end.as_str(), exit_code, signal, n_leaked, "instance ended");
        }
    }
}
