//! The owner of the table: one task that knows every instance, and the only one that changes the
//! table.
//!
//! Facts come from the folders. Their files are small and in the page cache, so they are read here,
//! in line. Spawns and reads of `/proc` run elsewhere.

mod lost;
mod requests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::adoption::{self, UsableFolder};
use super::entry::{Entry, log_phase};
use super::shims::{self, Child};
use super::state_dir::StateDir;
use super::temporary::TemporaryFolders;
use super::{Adoption, OpenError, ProcessConfig, ProcessTable, orphans};
use domain::{Condition, Instance, InstanceKey, LaunchId, Phase};
use machine::crash_point::{self, CrashPoint};
use machine::instance_dir;
use machine::instance_dir::lock::LockState;
use machine::instance_dir::record::Stop;
pub use requests::Request;
use requests::StartDone;
use runtime::clock;
use runtime::folder_watch::{FolderChanges, Folders, WatchId};
use runtime::nudge::Nudge;

/// The number of requests that wait for the owner. Further requests wait at their callers.
const INBOX: usize = 256;
/// The pause after a read that failed, for example for want of descriptors.
const RETRY_AFTER: Duration = Duration::from_millis(250);
/// The time that a daemon that ends waits for temporary files to be removed. The next daemon
/// removes the rest.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(1);

struct Table {
    config: Arc<ProcessConfig>,
    state: Arc<StateDir>,
    folders: Folders,
    temporary: Arc<TemporaryFolders>,
    nudge: Nudge,
    inbox: mpsc::Receiver<Request>,
    snapshot: watch::Sender<Arc<[Instance]>>,
    is_changed: bool,
    /// The answers to requests, which wait until the snapshot shows the changes.
    answers: Vec<Box<dyn FnOnce() + Send>>,
    /// The request to close the table, once it came.
    leaving: Option<oneshot::Sender<()>>,
    entries: BTreeMap<LaunchId, Entry>,
    watched: HashMap<WatchId, LaunchId>,
    /// Instances whose files could not be read just now.
    unread: BTreeSet<LaunchId>,
    /// Unread instances whose shim is gone: it is not known yet whether it left a record.
    unread_lost: BTreeSet<LaunchId>,
    /// The watch of the folders failed just now: any of them may have changed.
    has_watch_failed: bool,
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
        answers: Vec::new(),
        leaving: None,
        entries: BTreeMap::new(),
        watched: HashMap::new(),
        unread: BTreeSet::new(),
        unread_lost: BTreeSet::new(),
        has_watch_failed: false,
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
                    Some(request) => self.handle(request),
                    None => break,
                },
                seen = self.folders.seen(), if !self.has_watch_failed => match seen {
                    Ok(FolderChanges::Folders(ids)) => self.refresh_watched(&ids),
                    Ok(FolderChanges::Anything) => self.refresh_all(),
                    Err(error) => {
                        warn!(error = &error as &dyn std::error::Error, "could not watch the instance folders; polling them instead");
                        self.has_watch_failed = true;
                    }
                },
                Some(Ok(launch)) = self.shims.join_next() => self.on_shim_joined(&launch),
                Some(Ok(done)) = self.starts.join_next() => self.on_start_done(done),
                Some(Ok(launch)) = self.clearing.join_next() => self.on_cleared(&launch),
                Some(Ok(launch)) = self.overdue.join_next() => self.on_overdue(&launch),
                () = tokio::time::sleep(RETRY_AFTER), if self.must_read_again() => {
                    let unread = std::mem::take(&mut self.unread);
                    if std::mem::take(&mut self.has_watch_failed) {
                        self.refresh_all();
                    } else {
                        for launch in unread {
                            self.refresh(&launch);
                        }
                    }
                    for launch in std::mem::take(&mut self.unread_lost) {
                        self.on_shim_gone(&launch);
                    }
                }
            }
            self.take_more();
            self.publish();
            if self.leaving.is_some() {
                break;
            }
        }
        self.leave().await;
        if let Some(reply) = self.leaving.take() {
            let _ = reply.send(());
        }
    }

    /// Takes the requests, the starts and the ends of shims that are there already. A snapshot has
    /// all instances, so one for many changes costs much less than one for each.
    fn take_more(&mut self) {
        while self.leaving.is_none()
            && let Ok(request) = self.inbox.try_recv()
        {
            self.handle(request);
        }
        while let Some(joined) = self.starts.try_join_next() {
            if let Ok(done) = joined {
                self.on_start_done(done);
            }
        }
        while let Some(joined) = self.shims.try_join_next() {
            if let Ok(launch) = joined {
                self.on_shim_joined(&launch);
            }
        }
    }

    /// Closes the table without leaving a start half-way or a shim without an agent. The agents
    /// stay with their shims.
    async fn leave(&mut self) {
        self.inbox.close();
        while let Some(done) = self.starts.join_next().await {
            if let Ok(done) = done {
                self.on_start_done(done);
                self.publish();
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

    fn must_read_again(&self) -> bool {
        self.has_watch_failed || !self.unread.is_empty()
    }

    /// Returns whether the launch has ended; also true if it is forgotten.
    fn has_ended(&self, launch: &LaunchId) -> bool {
        self.entries.get(launch).is_none_or(|entry| entry.instance.phase.is_ended())
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

    fn adopt(&mut self, found: UsableFolder, adoption: &mut Adoption) {
        let UsableFolder { dir, spec, lock } = found;
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
        if matches!(phase, Phase::Exited { .. } | Phase::Ended { .. }) {
            self.temporary.keep_report(launch, &entry.dir);
        }
        if phase.is_ended() {
            self.temporary.remove(launch);
        }
        entry.instance.phase = phase;
        self.is_changed = true;
    }

    /// Answers when the change is published, so that the caller sees it in the snapshot.
    fn answer<T: Send + 'static>(&mut self, reply: oneshot::Sender<T>, answer: T) {
        // The caller may have gone.
        self.answers.push(Box::new(move || drop(reply.send(answer))));
    }

    /// Publishes the changes, and sends the answers that wait for this.
    fn publish(&mut self) {
        if std::mem::take(&mut self.is_changed) {
            let instances = self.entries.values().map(|entry| entry.instance.clone()).collect();
            self.snapshot.send_replace(instances);
            self.nudge.wake();
        }
        for answer in self.answers.drain(..) {
            answer();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Fresh,
    Adopted,
}
