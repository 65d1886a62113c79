//! The requests of the handles: starts, stops, marks, and the removal of ended instances.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::{info, warn};

use super::{Origin, Table};
use crate::process::launcher::{self, Spawned};
use crate::process::threads::Threads;
use crate::process::{Gone, ProcessConfig, StartError, StartRequest};
use domain::LaunchId;
use domain::launch::StopReason;
use machine::crash_point::{self, CrashPoint};
use machine::instance_dir;
use machine::instance_dir::record::Stop;

/// The threads for spawns, of which each takes about a millisecond. The rest waits.
static SPAWNING: Threads = Threads::new("spawn", 8);

/// A request of a handle to the owner.
pub enum Request {
    Start {
        request: Box<StartRequest>,
        reply: oneshot::Sender<Result<(), StartError>>,
    },
    Stop {
        launch: LaunchId,
        reason: StopReason,
        timeout: Option<Duration>,
        reply: oneshot::Sender<bool>,
    },
    MarkAuthenticated {
        launch: LaunchId,
        reply: oneshot::Sender<()>,
    },
    Forget {
        launch: LaunchId,
        reply: oneshot::Sender<()>,
    },
    Reconfigure {
        config: Box<ProcessConfig>,
        reply: oneshot::Sender<()>,
    },
    Leave {
        reply: oneshot::Sender<()>,
    },
}

/// A finished spawn, with the reply channel of its caller.
pub(super) struct StartDone {
    launch: LaunchId,
    result: Result<Spawned, StartError>,
    reply: oneshot::Sender<Result<(), StartError>>,
}

impl Table {
    pub(super) fn handle(&mut self, request: Request) {
        match request {
            Request::Start { request, reply } => self.start(*request, reply),
            Request::Stop { launch, reason, timeout, reply } => {
                let is_told = self.request_stop(&launch, reason, timeout);
                self.answer(reply, is_told);
            }
            Request::MarkAuthenticated { launch, reply } => {
                self.mark_authenticated(&launch);
                self.answer(reply, ());
            }
            Request::Forget { launch, reply } => {
                self.forget(&launch);
                self.answer(reply, ());
            }
            Request::Reconfigure { config, reply } => {
                let ProcessConfig { state_dir, program, temporary, .. } = (*self.config).clone();
                self.config = Arc::new(ProcessConfig { state_dir, program, temporary, ..*config });
                self.answer(reply, ());
            }
            // `run` ends.
            Request::Leave { reply } => self.leaving = Some(reply),
        }
    }

    fn start(&mut self, request: StartRequest, reply: oneshot::Sender<Result<(), StartError>>) {
        if let Some(error) = self.reason_not_to_start(&request) {
            self.answer(reply, Err(error));
            return;
        }
        let dir = instance_dir::instance(&self.config.state_dir, &request.launch);
        let entry = self.insert(request.launch.clone(), request.key.clone(), dir, Origin::Fresh);
        entry.files.clone_from(&request.command.files_in);
        let config = Arc::clone(&self.config);
        let state = Arc::clone(&self.state);
        let folders = self.folders.clone();
        let temporary = Arc::clone(&self.temporary);
        self.starts.spawn(async move {
            let launch = request.launch.clone();
            let program = config.program.clone();
            let (reply_of_thread, spawned) = oneshot::channel();
            let accepted = SPAWNING.run(move || {
                // A table that is gone cannot follow the shim.
                if reply_of_thread.is_closed() {
                    return;
                }
                let id = &state.installation_id;
                let _ = reply_of_thread
                    .send(launcher::spawn(&config, id, &folders, &temporary, &request));
            });
            let result = match accepted {
                Ok(()) => spawned.await.unwrap_or(Err(StartError::Gone(Gone))),
                Err(source) => Err(StartError::Spawn { program, source }),
            };
            StartDone { launch, result, reply }
        });
    }

    /// Returns the reason not to start, if there is one. This is the last guard against a second
    /// instance of a key on this host.
    fn reason_not_to_start(&self, request: &StartRequest) -> Option<StartError> {
        if self.entries.contains_key(&request.launch) {
            return Some(StartError::Exists { launch: request.launch.clone() });
        }
        let live = self.entries.values().map(|entry| &entry.instance);
        let mut live =
            live.filter(|instance| instance.key == request.key && !instance.phase.is_ended());
        live.next().map(|instance| StartError::KeyIsLive {
            key: request.key.clone(),
            launch: instance.launch.clone(),
        })
    }

    pub(super) fn on_start_done(&mut self, StartDone { launch, result, reply }: StartDone) {
        match result {
            Ok(spawned) => {
                if let Some(entry) = self.entries.get_mut(&launch) {
                    entry.watch = Some(spawned.watch);
                    entry.has_shim = true;
                    if entry.instance.is_marked_authenticated {
                        let _ = instance_dir::mark_authenticated(&entry.dir);
                    }
                    entry.write_stop();
                }
                self.watched.insert(spawned.watch, launch.clone());
                self.follow(&launch, Some(spawned.child));
                // This reads the records that were written between the watch and its entry above.
                self.refresh(&launch);
                self.answer(reply, Ok(()));
            }
            Err(error) => {
                self.entries.remove(&launch);
                self.is_changed = true;
                self.answer(reply, Err(error));
            }
        }
    }

    fn request_stop(
        &mut self,
        launch: &LaunchId,
        reason: StopReason,
        timeout: Option<Duration>,
    ) -> bool {
        let timeout = timeout.unwrap_or(self.config.stop.timeout);
        let Some(entry) =
            self.entries.get_mut(launch).filter(|entry| !entry.instance.phase.is_ended())
        else {
            return false;
        };
        let first = entry.stop.as_ref();
        // The shim may see only the last of several requests, so each contains the shortest timeout
        // of all.
        let timeout = first.map_or(timeout, |first| first.timeout().min(timeout));
        let stop = Stop::new(first.map_or(reason, |first| first.reason), timeout);
        if first.is_none() {
            info!(launch_id = %launch, reason = %reason, "agent process is told to stop");
            entry.instance.stop = Some(reason);
            self.is_changed = true;
        }
        entry.stop = Some(stop);
        entry.write_stop();
        crash_point::reach(CrashPoint::StopWritten);
        entry.shim.tell_to_stop();
        true
    }

    fn mark_authenticated(&mut self, launch: &LaunchId) {
        let Some(entry) = self.entries.get_mut(launch) else {
            return;
        };
        if entry.instance.is_marked_authenticated || entry.instance.phase.is_ended() {
            return;
        }
        if entry.has_shim
            && let Err(error) = instance_dir::mark_authenticated(&entry.dir)
        {
            warn!(launch_id = %launch, error = &error as &dyn std::error::Error, "could not mark the launch as authenticated");
            return;
        }
        crash_point::reach(CrashPoint::AuthenticationMarked);
        entry.instance.is_marked_authenticated = true;
        self.is_changed = true;
    }

    fn forget(&mut self, launch: &LaunchId) {
        if self.entries.get(launch).is_none_or(|entry| !entry.instance.phase.is_ended()) {
            return;
        }
        let Some(entry) = self.entries.remove(launch) else {
            return;
        };
        if let Some(files) = &entry.files {
            // If the removal fails, the files are only litter.
            let _ = std::fs::remove_dir_all(files);
        }
        let ended = instance_dir::ended_instance(&self.config.state_dir, launch);
        if let Err(error) = std::fs::rename(&entry.dir, ended) {
            // The next daemon reports it once more, which changes nothing.
            warn!(launch_id = %launch, error = &error as &dyn std::error::Error, "could not move the folder of an ended instance");
        }
        crash_point::reach(CrashPoint::FolderMoved);
        self.is_changed = true;
    }
}
