//! The owner of the table: one task that knows every instance, and the only one that changes the
//! table.
//!
//! Facts come from the folders. Their files are small and in the page cache, so they are read here,
//! in line. Spawns and reads of `/proc` run elsewhere.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::adoption::{self, Found};
use super::entry::{Entry, log_phase};
use super::launcher::{self, Spawned};
use super::shims::{self, Child};
use super::state_dir::StateDir;
use super::temporary::TemporaryFolders;
use super::{
    Adoption, Gone, OpenError, ProcessConfig, ProcessTable, StartError, StartRequest, orphans,
};
use crate::cgroup::{self, Group};
use crate::clock;
use crate::crash_point::{self, CrashPoint};
use crate::domain::launch::StopReason;
use crate::domain::{Condition, Instance, InstanceKey, LaunchId, Phase};
use crate::folder_watch::{Folders, Seen, WatchId};
use crate::instance_dir::clock::wall_clock;
use crate::instance_dir::lock::{self, LockState};
use crate::instance_dir::record::{self, Exit, Stop};
use crate::instance_dir::{self};
use crate::nudge::Nudge;

/// The number of requests that wait for the owner. Further requests wait at their callers.
const INBOX: usize = 256;
/// The number of spawns at the same time. Each takes a thread for about a millisecond.
const MAX_SPAWNING: usize = 8;
/// The pause after a read that failed, for example for want of descriptors.
const RETRY_AFTER: Duration = Duration::from_millis(250);
/// The time that a daemon that ends waits for temporary files to be removed. The next daemon
/// removes the rest.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(1);
/// The time after the first KILL from which the remains of a lost shim count as unkillable.
const UNKILLABLE_AFTER: Duration = Duration::from_secs(5);

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
struct StartDone {
    launch: LaunchId,
    result: Result<Spawned, StartError>,
    reply: oneshot::Sender<Result<(), StartError>>,
}

struct Table {
    config: Arc<ProcessConfig>,
    state: Arc<StateDir>,
    folders: Folders,
    temporary: Arc<TemporaryFolders>,
    nudge: Nudge,
    inbox: mpsc::Receiver<Request>,
    snapshot: watch::Sender<Arc<[Instance]>>,
    is_changed: bool,
    entries: BTreeMap<LaunchId, Entry>,
    watched: HashMap<WatchId, LaunchId>,
    /// Instances whose files could not be read just now.
    unread: BTreeSet<LaunchId>,
    /// Unread instances whose shim is gone: it is not known yet whether it left a record.
    bereft: BTreeSet<LaunchId>,
    /// The watch of the folders failed just now: any of them may have changed.
    is_deaf: bool,
    spawning: Arc<Semaphore>,
    starts: JoinSet<StartDone>,
    /// One task for each living shim; it returns when the shim is gone.
    shims: JoinSet<LaunchId>,
    /// The launches of the shims in `shims`.
    followed: BTreeSet<LaunchId>,
    /// One task for each instance that lost its shim; it returns when no process of the instance
    /// lives.
    clearing: JoinSet<LaunchId>,
    /// One task for each instance in `clearing`; it returns after `UNKILLABLE_AFTER`.
    overdue: JoinSet<LaunchId>,
}

#[allow(clippy::disallowed_methods, reason = "its owner awaits the task")]
pub async fn open(
    config: ProcessConfig,
    nudge: Nudge,
) -> Result<(ProcessTable, Adoption), OpenError> {
    let state_dir = config.state_dir.clone();
    let temporary = config.temporary.clone();
    let failed = |source| OpenError::StateDir { path: config.state_dir.clone(), source };
    let stock = tokio::task::spawn_blocking(move || {
        let state = StateDir::own(&state_dir)?;
        let stock = adoption::take_stock(&state_dir);
        let stock =
            stock.map_err(|source| OpenError::StateDir { path: state_dir.clone(), source })?;
        orphans::become_reaper().map_err(|source| OpenError::Subreaper { source })?;
        let temporary = TemporaryFolders::open(temporary, &state_dir, &state.installation_id);
        Ok::<_, OpenError>((state, stock, Arc::new(temporary)))
    });
    let (state, mut stock, temporary) = stock.await.map_err(|panic| failed(panic.into()))??;
    crash_point::reach(CrashPoint::StockTaken);
    if let Some(cgroups) = config.cgroups.clone() {
        let installation_id = state.installation_id.clone();
        let live = stock.found.iter().map(|found| found.spec.launch_id.to_string()).collect();
        let swept = tokio::task::spawn_blocking(move || cgroups.sweep(&installation_id, &live))
            .await
            .unwrap_or_default();
        if swept > 0 {
            info!(n_groups = swept, "removed the control groups of ended launches");
        }
    }
    let ended = adoption::end_strays(&mut stock, &config, &state.installation_id).await;
    let (n_strays, n_set_aside) = ended.map_err(|source| OpenError::Strays { source })?;

    let (inbox, requests) = mpsc::channel(INBOX);
    let (snapshot, newest) = watch::channel(Arc::from([]));
    let mut table = Table {
        config: Arc::new(config),
        state: Arc::new(state),
        folders: Folders::new().map_err(|source| OpenError::Watch { source })?,
        temporary,
        nudge,
        inbox: requests,
        snapshot,
        is_changed: false,
        entries: BTreeMap::new(),
        watched: HashMap::new(),
        unread: BTreeSet::new(),
        bereft: BTreeSet::new(),
        is_deaf: false,
        spawning: Arc::new(Semaphore::new(MAX_SPAWNING)),
        starts: JoinSet::new(),
        shims: JoinSet::new(),
        followed: BTreeSet::new(),
        clearing: JoinSet::new(),
        overdue: JoinSet::new(),
    };
    let mut adoption = Adoption { n_strays, n_set_aside, ..Adoption::default() };
    for found in stock.found {
        table.adopt(found, &mut adoption);
    }
    crash_point::reach(CrashPoint::InstancesAdopted);
    let living = table.entries.values().filter(|entry| !entry.instance.phase.is_ended());
    let living: Vec<LaunchId> = living.map(|entry| entry.instance.launch.clone()).collect();
    let temporary = Arc::clone(&table.temporary);
    let _ = tokio::task::spawn_blocking(move || temporary.sweep(living.iter())).await;
    table.publish();
    let owner = tokio::spawn(table.run());
    Ok((
        ProcessTable { inbox, snapshot: newest, owner: Arc::new(Mutex::new(Some(owner))) },
        adoption,
    ))
}

impl Table {
    async fn run(mut self) {
        loop {
            // All branches are cancel-safe: each takes a value only when it returns it.
            tokio::select! {
                request = self.inbox.recv() => match request {
                    Some(Request::Leave { reply }) => {
                        self.leave().await;
                        let _ = reply.send(());
                        break;
                    }
                    Some(request) => self.handle(request),
                    None => {
                        self.leave().await;
                        break;
                    }
                },
                seen = self.folders.seen(), if !self.is_deaf => match seen {
                    Ok(Seen::Folders(ids)) => self.refresh_watched(&ids),
                    Ok(Seen::Anything) => self.refresh_all(),
                    Err(error) => {
                        warn!(error = &error as &dyn std::error::Error, "could not watch the instance folders; polling them instead");
                        self.is_deaf = true;
                    }
                },
                Some(Ok(launch)) = self.shims.join_next() => self.on_shim_joined(&launch),
                Some(Ok(done)) = self.starts.join_next() => self.on_start_done(done),
                Some(Ok(launch)) = self.clearing.join_next() => self.on_cleared(&launch),
                Some(Ok(launch)) = self.overdue.join_next() => self.on_overdue(&launch),
                () = tokio::time::sleep(RETRY_AFTER), if self.is_deaf || !self.unread.is_empty() => {
                    let unread = std::mem::take(&mut self.unread);
                    if std::mem::take(&mut self.is_deaf) {
                        self.refresh_all();
                    } else {
                        for launch in unread {
                            self.refresh(&launch);
                        }
                    }
                    for launch in std::mem::take(&mut self.bereft) {
                        self.on_shim_gone(&launch);
                    }
                }
            }
            self.publish();
        }
    }

    /// Closes the table without leaving a start half-way or a shim without an agent. The agents
    /// stay with their shims.
    async fn leave(&mut self) {
        self.inbox.close();
        while let Some(done) = self.starts.join_next().await {
            if let Ok(done) = done {
                self.on_start_done(done);
            }
        }
        // A shim that has recorded its end is about to exit. A service manager must find none of
        // them left over.
        let give_up_at = clock::now() + 2 * instance_dir::LINGER;
        while self.followed.iter().any(|launch| self.has_ended(launch)) {
            let Ok(Some(gone)) = tokio::time::timeout_at(give_up_at, self.shims.join_next()).await
            else {
                break;
            };
            if let Ok(launch) = gone {
                self.on_shim_joined(&launch);
            }
        }
        self.publish();
        let temporary = Arc::clone(&self.temporary);
        let _ = tokio::task::spawn_blocking(move || temporary.finish(REMOVAL_TIMEOUT)).await;
    }

    /// Returns whether the launch has ended; also true if it is forgotten.
    fn has_ended(&self, launch: &LaunchId) -> bool {
        self.entries.get(launch).is_none_or(|entry| entry.instance.phase.is_ended())
    }

    fn handle(&mut self, request: Request) {
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
                let ProcessConfig { state_dir, shim_program, temporary, .. } =
                    (*self.config).clone();
                self.config =
                    Arc::new(ProcessConfig { state_dir, shim_program, temporary, ..*config });
                self.answer(reply, ());
            }
            // `run` handles it and ends.
            Request::Leave { reply } => drop(reply),
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
        let spawning = Arc::clone(&self.spawning);
        let temporary = Arc::clone(&self.temporary);
        self.starts.spawn(async move {
            let launch = request.launch.clone();
            let program = config.shim_program.clone();
            let permit = spawning.acquire_owned().await;
            let (reply_of_thread, spawned) = oneshot::channel();
            // The spawn has a thread of its own, which costs little compared to two processes. The
            // runtime's pool would panic if there cannot be a thread, and would keep the memory of
            // a burst of starts.
            let thread = thread::Builder::new().name("spawn".to_owned()).spawn(move || {
                let id = &state.installation_id;
                let _ = reply_of_thread
                    .send(launcher::spawn(&config, id, &folders, &temporary, &request));
            });
            let result = match thread {
                Ok(_) => spawned.await.unwrap_or(Err(StartError::Gone(Gone))),
                Err(source) => Err(StartError::Spawn { program, source }),
            };
            drop(permit);
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

    fn insert(
        &mut self,
        launch: LaunchId,
        key: InstanceKey,
        dir: PathBuf,
        origin: Origin,
    ) -> &mut Entry {
        self.is_changed = true;
        let is_adopted = origin == Origin::Adopted;
        self.entries
            .entry(launch)
            .or_insert_with_key(|launch| Entry::new(launch.clone(), key, dir, is_adopted))
    }

    fn on_start_done(&mut self, StartDone { launch, result, reply }: StartDone) {
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

    fn follow(&mut self, launch: &LaunchId, child: Option<Child>) {
        let Some(entry) = self.entries.get(launch) else {
            return;
        };
        self.followed.insert(launch.clone());
        let shim = Arc::clone(&entry.shim);
        let dir = entry.dir.clone();
        let launch = launch.clone();
        self.shims.spawn(async move {
            shim.follow(&dir, child).await;
            launch
        });
    }

    fn adopt(&mut self, found: Found, adoption: &mut Adoption) {
        let Found { dir, spec, lock } = found;
        let launch = spec.launch_id;
        let watch = self.folders.watch_records(&dir).ok();
        let entry = self.insert(launch.clone(), spec.key, dir, Origin::Adopted);
        entry.watch = watch;
        entry.instance.is_marked_authenticated = instance_dir::is_marked_authenticated(&entry.dir);
        entry.stop = entry.read(&launch);
        entry.instance.stop = entry.stop.as_ref().map(|stop| stop.reason);
        (entry.cgroup, entry.files) = (spec.cgroup, spec.files);
        entry.instance.shim = lock.live_shim().cloned();
        if let Some(watch) = watch {
            self.watched.insert(watch, launch.clone());
        }
        self.refresh(&launch);
        let Some(entry) = self.entries.get(&launch) else {
            return;
        };
        match lock {
            _ if entry.instance.phase.is_ended() => adoption.n_ended += 1,
            LockState::Held(_) => {
                adoption.n_adopted += 1;
                let Instance { key, .. } = &entry.instance;
                info!(launch_id = %launch, agent_id = %key.agent, project_id = %key.project, purpose = %key.purpose, "instance adopted");
                self.follow(&launch, None);
            }
            LockState::Free(shim) => {
                adoption.n_lost += 1;
                // After a reboot its processes are gone, and other processes have their pids.
                if shim.as_ref().is_some_and(shims::is_from_elsewhere) {
                    self.on_cleared(&launch);
                } else {
                    self.clear(&launch);
                }
            }
        }
    }

    fn refresh_watched(&mut self, ids: &[WatchId]) {
        let launches: BTreeSet<LaunchId> =
            ids.iter().filter_map(|id| self.watched.get(id).cloned()).collect();
        for launch in launches {
            self.refresh(&launch);
        }
    }

    fn refresh_all(&mut self) {
        for launch in self.entries.keys().cloned().collect::<Vec<_>>() {
            self.refresh(&launch);
        }
    }

    /// Reads the folder of `launch` and updates the entry.
    fn refresh(&mut self, launch: &LaunchId) {
        let Some(entry) = self.entries.get_mut(launch) else {
            return;
        };
        if entry.instance.phase.is_ended() || !entry.has_shim {
            return;
        }
        let phase = match entry.read_phase(launch) {
            Ok(phase) => phase,
            Err(error) => {
                warn!(launch_id = %launch, error = &error as &dyn std::error::Error, "instance file could not be read; will try again");
                self.unread.insert(launch.clone());
                return;
            }
        };
        // The start deadline writes its own reason.
        if entry.instance.stop.is_none()
            && matches!(phase, Some(Phase::Exited { .. } | Phase::Ended { .. }))
        {
            entry.instance.stop = entry.read::<Stop>(launch).map(|stop| stop.reason);
        }
        self.is_changed |= entry.note_shim(phase.as_ref());
        let condition = entry.read_condition(launch, phase.as_ref());
        if let Some(phase) = phase.filter(|phase| *phase != entry.instance.phase) {
            self.set_phase(launch, phase);
        }
        self.set_condition(launch, condition);
    }

    fn set_condition(&mut self, launch: &LaunchId, condition: Condition) {
        let Some(entry) =
            self.entries.get_mut(launch).filter(|entry| entry.instance.condition != condition)
        else {
            return;
        };
        let before = std::mem::replace(&mut entry.instance.condition, condition);
        self.is_changed = true;
        match (before.suspended_since, condition.suspended_since) {
            (None, Some(_)) => info!(launch_id = %launch, "agent process is stopped by a signal"),
            (Some(_), None) => info!(launch_id = %launch, "agent process is not stopped any more"),
            _ => {}
        }
        if before.unkillable_since.is_none() && condition.unkillable_since.is_some() {
            warn!(launch_id = %launch, "processes of the agent live on after KILL; its slot stays taken");
        }
    }

    fn set_phase(&mut self, launch: &LaunchId, phase: Phase) {
        let Some(entry) = self.entries.get_mut(launch) else {
            return;
        };
        log_phase(&entry.instance, &phase);
        if phase.is_ended()
            && let Some(watch) = entry.watch.take()
        {
            self.folders.unwatch(watch);
            self.watched.remove(&watch);
        }
        if phase.is_ended() {
            self.temporary.remove(launch);
        }
        entry.instance.phase = phase;
        self.is_changed = true;
    }

    fn on_shim_joined(&mut self, launch: &LaunchId) {
        self.followed.remove(launch);
        self.on_shim_gone(launch);
    }

    fn on_shim_gone(&mut self, launch: &LaunchId) {
        self.refresh(launch);
        if self.unread.contains(launch) {
            self.bereft.insert(launch.clone());
            return;
        }
        if self.entries.get(launch).is_some_and(|entry| !entry.instance.phase.is_ended()) {
            warn!(launch_id = %launch, "shim of an agent is gone without a record; ending what it left behind");
            self.clear(launch);
        }
    }

    fn clear(&mut self, launch: &LaunchId) {
        let Some(entry) = self.entries.get(launch) else {
            return;
        };
        let shim = lock::look(&entry.dir)
            .ok()
            .and_then(|(LockState::Held(shim) | LockState::Free(shim))| shim);
        let (launch, mark) = (launch.clone(), format!("{}/{launch}", self.state.installation_id));
        let group = self.group_of(&launch);
        let late = launch.clone();
        self.overdue.spawn(async move {
            tokio::time::sleep(UNKILLABLE_AFTER).await;
            late
        });
        self.clearing.spawn(async move {
            if let Some(group) = group {
                // The group comes first: it also ends processes that could be found in no other
                // way.
                let _ = tokio::task::spawn_blocking(move || group.end()).await;
            }
            orphans::clear(mark, shim).await;
            launch
        });
    }

    /// Returns the control group of a launch, if it has one that this installation made.
    fn group_of(&self, launch: &LaunchId) -> Option<Group> {
        let id = &self.state.installation_id;
        let noted = self.entries.get(launch).and_then(|entry| entry.cgroup.clone());
        let made_now =
            || self.config.cgroups.as_ref().map(|cgroups| cgroups.group_of(id, launch.as_str()));
        let dir =
            noted.filter(|dir| cgroup::is_group_of(dir, id, launch.as_str())).or_else(made_now)?;
        Some(Group::at(dir))
    }

    /// Marks an instance as unkillable if it is still being cleared.
    fn on_overdue(&mut self, launch: &LaunchId) {
        let Some(entry) = self.entries.get(launch).filter(|entry| !entry.instance.phase.is_ended())
        else {
            return;
        };
        let since = entry.instance.condition.unkillable_since.or_else(|| Some(wall_clock()));
        self.set_condition(
            launch,
            Condition { unkillable_since: since, ..entry.instance.condition },
        );
    }

    /// Records the end of an instance without a shim, when none of its processes lives.
    fn on_cleared(&mut self, launch: &LaunchId) {
        let Some(entry) =
            self.entries.get_mut(launch).filter(|entry| !entry.instance.phase.is_ended())
        else {
            return;
        };
        crash_point::reach(CrashPoint::RemainsCleared);
        let at = wall_clock();
        let (pid, started_at, end) = entry.end_without_record(launch);
        let exit = Exit { pid, started_at, ..Exit::without_agent(end.clone(), at) };
        // The record spares the next daemon the search. If it cannot be written, the next daemon
        // searches again.
        let _ = record::write(&entry.dir, &Exit { stop: entry.instance.stop, ..exit });
        crash_point::reach(CrashPoint::LossRecorded);
        self.set_phase(launch, Phase::Ended { pid, started_at, end, at, n_leaked: 0 });
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

    /// Publishes the change before the answer, so that the caller sees it in the snapshot. The
    /// caller may have gone.
    fn answer<T>(&mut self, reply: oneshot::Sender<T>, answer: T) {
        self.publish();
        let _ = reply.send(answer);
    }

    fn publish(&mut self) {
        if std::mem::take(&mut self.is_changed) {
            let instances = self.entries.values().map(|entry| entry.instance.clone()).collect();
            self.snapshot.send_replace(instances);
            self.nudge.wake();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Fresh,
    Adopted,
}
