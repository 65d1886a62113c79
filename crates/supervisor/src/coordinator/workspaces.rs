//! Carries out the steps on workspaces beside the loop, which never waits for git.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::control::ControlPlane;
use super::hooks::HookRunner;
use crate::provider::CloneFolders;
use domain::check::CheckOrder;
use domain::workspace::{CleanOrder, Job};
use domain::{ProjectId, RunAs, WorkspaceId};
use machine::crash_point::{self, CrashPoint};
use machine::locks::lock;
use runtime::telemetry::ErrorChain;
use service::ClonePlace;
use steps::carry_out;
use workspace::{Checkouts, KeepPolicy};

mod steps;

/// The number of steps at the same time.
const N_AT_ONCE: usize = 4;
/// The pause before a report is repeated that the server did not accept.
const REPORT_AGAIN: Duration = Duration::from_secs(1);

/// The steps under way. They end when this is dropped: the next daemon repeats them.
pub(super) struct WorkspaceJobs<C> {
    control: Arc<C>,
    host: Option<Host>,
    busy: Arc<Mutex<BTreeSet<WorkspaceId>>>,
    /// The workspaces whose files are being removed.
    removing: Arc<Mutex<BTreeSet<WorkspaceId>>>,
    /// The workspaces whose removal failed a moment ago. Other steps on them need not wait.
    staying: Arc<Mutex<BTreeSet<WorkspaceId>>>,
    ended: Arc<Notify>,
    tasks: Mutex<JoinSet<()>>,
}

/// The workspaces of this host.
#[derive(Clone)]
struct Host {
    checkouts: Arc<Checkouts>,
    policy: Arc<KeepPolicy>,
    /// The operator's hooks.
    hooks: Arc<HookRunner>,
    /// A place for each step that uses git. Hooks have none, so that they keep git from no other
    /// workspace.
    places: Arc<Semaphore>,
}

impl Host {
    /// Waits for a place among the steps that use git at the same time.
    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).acquire_owned().await.ok()
    }

    fn folders(&self, project: &ProjectId, id: &WorkspaceId) -> CloneFolders {
        let tree = self.checkouts.places.directory(project, id, "");
        CloneFolders { tree, keep: self.checkouts.places.lending_folder(project, id) }
    }
}

impl<C: ControlPlane> WorkspaceJobs<C> {
    pub(super) fn new(control: Arc<C>) -> Self {
        Self {
            control,
            host: None,
            busy: Arc::default(),
            removing: Arc::default(),
            staying: Arc::default(),
            ended: Arc::default(),
            tasks: Mutex::default(),
        }
    }

    /// Returns how far the upgrade of a project is; `None` if it copies nothing now.
    pub(super) fn upgrade_progress(&self, project: &ProjectId) -> Option<String> {
        self.host.as_ref()?.checkouts.keep.upgrade_progress(project)
    }

    /// Makes, keeps and removes workspaces in `checkouts` from now on, and runs `hooks` in them.
    /// Ends the hooks and the merges that an earlier daemon left.
    pub(super) fn serve_from(
        &mut self,
        checkouts: Arc<Checkouts>,
        policy: Arc<KeepPolicy>,
        hooks: Arc<HookRunner>,
    ) {
        let earlier = Arc::clone(&hooks);
        lock(&self.tasks).spawn(async move { earlier.end_earlier().await });
        let merges = Arc::clone(&checkouts.trees);
        lock(&self.tasks).spawn(async move { merges.end_interrupted_merges().await });
        let places = Arc::new(Semaphore::new(N_AT_ONCE));
        self.host = Some(Host { checkouts, policy, hooks, places });
    }

    /// Returns the workspaces whose hook before the next launch has passed; `None` if there is no
    /// such hook.
    pub(super) fn passed_hooks(&self) -> Option<BTreeSet<WorkspaceId>> {
        self.hooks()?.passed()
    }

    pub(super) fn hooks(&self) -> Option<&HookRunner> {
        Some(&self.host.as_ref()?.hooks)
    }

    /// Returns the workspaces on which a step is under way, or has failed a moment ago.
    pub(super) fn busy(&self) -> BTreeSet<WorkspaceId> {
        lock(&self.busy).clone()
    }

    /// Returns the steps that would fail again in the same way.
    pub(super) fn given_up(&self) -> BTreeMap<WorkspaceId, Job> {
        let host = self.host.as_ref();
        host.map(|host| lock(&host.checkouts.given_up).clone()).unwrap_or_default()
    }

    /// Returns the workspaces whose files are being removed.
    pub(super) fn removing(&self) -> BTreeSet<WorkspaceId> {
        lock(&self.removing).clone()
    }

    /// Returns when a step has ended. Cancel-safe.
    pub(super) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Returns the folder that a launch gets that was claimed, if its repository is there.
    ///
    /// # Errors
    /// The reason why an agent cannot start there.
    pub(super) fn directory(
        &self,
        project: &ProjectId,
        clone: &ClonePlace,
        clean: Option<&CleanOrder>,
    ) -> Result<PathBuf, String> {
        let Some(Host { checkouts, hooks, .. }) = &self.host else {
            return Err("this coordinator keeps no workspaces".to_owned());
        };
        hooks.note_claim(&clone.id);
        let found = checkouts.places.take_back(project, &clone.id);
        let found = found.and_then(|()| checkouts.places.check(project, &clone.id));
        found.map_err(|error| error.to_string())?;
        match clean {
            None => Ok(checkouts.places.directory(project, &clone.id, &clone.subdirectory)),
            Some(order) if checkouts.places.is_clean_ready(order) => {
                Ok(checkouts.places.clean_directory(order, &clone.subdirectory))
            }
            Some(_) => Err("the fresh clone of the check is not there".to_owned()),
        }
    }

    /// Returns the check with a note in its output, if its fresh clone was written with other
    /// attributes than those of the result.
    pub(super) fn with_note(&self, check: CheckOrder) -> CheckOrder {
        let host = self.host.as_ref();
        let has_other = host.zip(check.clean.as_deref());
        let has_other = has_other
            .is_some_and(|(host, clean)| host.checkouts.places.has_first_attributes(clean));
        if has_other { check.with_attributes_note() } else { check }
    }

    /// Checks that the agent of a launch, which runs as `user` or as the daemon's own user, owns
    /// its clone.
    ///
    /// # Errors
    /// The clone is another user's. The next attempt makes it anew.
    pub(super) fn check_owner(
        &self,
        project: &ProjectId,
        clone: &ClonePlace,
        user: Option<&RunAs>,
    ) -> Result<(), String> {
        let Some(Host { checkouts, hooks, .. }) = &self.host else {
            return Ok(());
        };
        let wanted = user.map(|user| user.uid).filter(|uid| *uid != own_uid());
        let found = checkouts.places.owner(project, &clone.id);
        if found == wanted {
            return Ok(());
        }
        hooks.note_other_owner();
        let name = |uid: Option<u32>| uid.unwrap_or_else(own_uid);
        Err(format!(
            "its clone belongs to the user with id {}, and the agent runs as the one with id {}; \
             the clone is made anew",
            name(found),
            name(wanted)
        ))
    }

    /// Returns the folders of the clone of a launch.
    pub(super) fn folders(
        &self,
        project: &ProjectId,
        clone: &ClonePlace,
        clean: Option<&CleanOrder>,
    ) -> Option<CloneFolders> {
        let host = self.host.as_ref()?;
        let folders = host.folders(project, &clone.id);
        Some(match clean {
            None => folders,
            Some(order) => {
                CloneFolders { tree: host.checkouts.places.clean_directory(order, ""), ..folders }
            }
        })
    }

    /// Begins a step, unless one of the same workspace is under way.
    pub(super) fn begin(&self, job: Job) {
        let Some(host) = self.host.clone() else {
            return;
        };
        let id = job.workspace().clone();
        let is_removal = matches!(job, Job::Remove(_));
        if is_removal && lock(&self.staying).contains(&id) {
            return;
        }
        if !lock(&self.busy).insert(id.clone()) {
            return;
        }
        let control = Arc::clone(&self.control);
        let staying = Arc::clone(&self.staying);
        let ended = || Arc::clone(&self.ended);
        let removing = is_removal.then(|| {
            lock(&self.removing).insert(id.clone());
            Done { id: id.clone(), among: Arc::clone(&self.removing), ended: ended() }
        });
        let done = Done { id, among: Arc::clone(&self.busy), ended: ended() };
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            // They may still write into the workspace.
            host.hooks.end_earlier().await;
            let taken = carry_out(&host, &*control, &job).await;
            for report in taken.reports {
                while let Err(error) = control.report_workspace(&done.id, report.clone()).await {
                    tracing::warn!(
                        workspace_id = %done.id, error = %ErrorChain(&error),
                        "could not report a workspace; will report again"
                    );
                    tokio::time::sleep(REPORT_AGAIN).await;
                }
            }
            crash_point::reach(CrashPoint::WorkspaceReported);
            drop(removing);
            let paused = (is_removal && !taken.pause.is_zero()).then(|| {
                lock(&staying).insert(done.id.clone());
                Done { id: done.id.clone(), among: staying, ended: Arc::clone(&done.ended) }
            });
            let _busy = paused.is_none().then_some(done);
            tokio::time::sleep(taken.pause).await;
            drop(paused);
        });
    }
}

/// Takes a workspace out of a set when its step has ended, also if it panicked.
struct Done {
    id: WorkspaceId,
    among: Arc<Mutex<BTreeSet<WorkspaceId>>>,
    ended: Arc<Notify>,
}

impl Drop for Done {
    fn drop(&mut self) {
        lock(&self.among).remove(&self.id);
        self.ended.notify_one();
    }
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}
