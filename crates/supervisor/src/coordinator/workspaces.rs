//! Carries out the steps on workspaces beside the loop, which never waits for git.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::control::ControlPlane;
use super::hooks::HookRunner;
use crate::provider::CloneFolders;
use domain::check::CheckOrder;
use domain::workspace::{CleanOrder, Hook, HookFacts, Job, Order, RemoveOrder, WorkspaceReport};
use domain::{ProjectId, RunAs, WorkspaceId};
use machine::crash_point::{self, CrashPoint};
use machine::locks::lock;
use runtime::telemetry::ErrorChain;
use service::ClonePlace;
use workspace::{CheckoutError, Checkouts, KeepPolicy, Removal};

/// The number of steps at the same time.
const N_AT_ONCE: usize = 4;
/// The pause after a step that failed, before the plan may take it again.
const PAUSE: Duration = Duration::from_secs(10);
/// The pause before the disk space is measured again for a workspace that has no room.
const NO_ROOM_PAUSE: Duration = Duration::from_secs(2);
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

/// The result of a step.
struct StepOutcome {
    /// The server gets these reports, in this order.
    reports: Vec<WorkspaceReport>,
    /// The pause after the step.
    pause: Duration,
}

impl StepOutcome {
    fn report(report: WorkspaceReport) -> Self {
        Self { reports: vec![report], pause: Duration::ZERO }
    }

    fn failed(reason: String, pause: Duration) -> Self {
        Self { reports: vec![WorkspaceReport::Failed { reason }], pause }
    }
}

/// Carries out a step.
async fn carry_out<C: ControlPlane>(host: &Host, control: &C, job: &Job) -> StepOutcome {
    let Host { checkouts, .. } = host;
    let step = match job {
        Job::Prepare { .. } => "prepare",
        Job::BeforeRun { .. } => "before_run",
        Job::PrepareClean { .. } => "prepare_clean",
        Job::Keep(_) => "keep",
        Job::Publish(_) => "publish",
        Job::Forget(_) => "forget",
        Job::Remove(_) | Job::RemoveUnused { .. } => "remove",
    };
    let named = |error| checkouts.disk.name_full_disk(error);
    let mut done = take(host, control, job).await.map_err(named);
    let is_full = |error: &CheckoutError| checkouts.disk.give_up_reserve(error);
    let is_new = matches!(job, Job::Prepare { .. } | Job::PrepareClean { .. });
    if !is_new && done.as_ref().is_err_and(is_full) {
        tracing::warn!(
            workspace_id = %job.workspace(), step,
            "the disk is full; the space in reserve is used"
        );
        done = take(host, control, job).await.map_err(named);
    }
    let id = job.workspace();
    if let Err(error) = checkouts.disk.measure_changed(job.project(), id).await {
        tracing::warn!(
            workspace_id = %id, error = %ErrorChain(&error),
            "could not measure the workspaces"
        );
    }
    match done {
        Ok(taken) => {
            let failure = taken.reports.iter().find_map(|report| match report {
                WorkspaceReport::Failed { reason } => Some(reason),
                _ => None,
            });
            match failure {
                Some(reason) => {
                    tracing::debug!(workspace_id = %id, step, reason, "the step waits");
                }
                None => {
                    tracing::info!(workspace_id = %id, step, "the step on the workspace has ended");
                }
            }
            taken
        }
        Err(error) => {
            let reason = ErrorChain(&error).to_string();
            tracing::warn!(workspace_id = %id, step, error = %reason, "the step on the workspace failed");
            StepOutcome { reports: vec![failure(&error, reason)], pause: PAUSE }
        }
    }
}

async fn take<C: ControlPlane>(
    host: &Host,
    control: &C,
    job: &Job,
) -> Result<StepOutcome, CheckoutError> {
    let Host { checkouts, policy, .. } = host;
    match job {
        Job::Prepare { order, max_disk } => {
            let place = host.place().await;
            // One that was made before its report was lost needs no more space.
            let is_made = checkouts.places.check(&order.project, &order.id).is_ok();
            if !is_made && !checkouts.disk.has_room(*max_disk).await? {
                let reason = "`workspace.max_disk` is used up".to_owned();
                return Ok(StepOutcome::failed(reason, NO_ROOM_PAUSE));
            }
            prepare(host, control, order, place).await
        }
        Job::BeforeRun { project, id } => before_run(host, control, project, id).await,
        Job::PrepareClean { order, max_disk } => {
            let _place = host.place().await;
            if !checkouts.disk.has_room(*max_disk).await? {
                let reason = "`workspace.max_disk` is used up".to_owned();
                return Ok(StepOutcome::failed(reason, NO_ROOM_PAUSE));
            }
            match checkouts.clones.prepare_clean(order).await {
                // The clone of the task can be used, and only the check waits.
                Err(error) if error.stops_only_its_step() => {
                    let reason = format!("no fresh clone for its check: {}", ErrorChain(&error));
                    Ok(StepOutcome::failed(reason, PAUSE))
                }
                made => made.map(|()| StepOutcome { reports: Vec::new(), pause: Duration::ZERO }),
            }
        }
        Job::Keep(order) => {
            remove_clean(checkouts, &order.project, &order.id).await;
            let failed = run_after(host, control, &order.id).await;
            let _place = host.place().await;
            let mut taken =
                StepOutcome::report(order.kept(checkouts.clones.keep(order, policy).await?));
            let failed = failed.map(|reason| WorkspaceReport::Failed { reason });
            taken.reports.extend(failed);
            Ok(taken)
        }
        Job::Publish(order) => {
            let _place = host.place().await;
            match checkouts.results.publish_branch(order).await {
                // Such a result stays with the coordinator, and its workspace can be used.
                Err(error) if error.needs_person() => {
                    let reason = "its result is in no branch of the project's repository yet";
                    Ok(StepOutcome::failed(format!("{reason}: {}", ErrorChain(&error)), PAUSE))
                }
                published => Ok(StepOutcome::report(WorkspaceReport::Published(published?))),
            }
        }
        Job::Forget(order) => {
            let _place = host.place().await;
            checkouts.keep.forget(order).await?;
            Ok(StepOutcome::report(WorkspaceReport::Forgotten))
        }
        Job::Remove(order) => remove(host, control, order).await,
        Job::RemoveUnused { project, id } => {
            if checkouts.places.check(project, id).is_ok()
                && let Err(failed) = run_hook(host, control, Hook::BeforeRemove, id, None).await
            {
                return Ok(failed);
            }
            let _place = host.place().await;
            checkouts.clones.remove_unused(project, id).await?;
            host.hooks.forget(id);
            Ok(StepOutcome::report(WorkspaceReport::Removed))
        }
    }
}

/// Removes the files of a workspace, unless they have changed since they were kept.
async fn remove<C: ControlPlane>(
    host: &Host,
    control: &C,
    order: &RemoveOrder,
) -> Result<StepOutcome, CheckoutError> {
    let Host { checkouts, policy, .. } = host;
    let keep = &order.keep;
    remove_clean(checkouts, &keep.project, &keep.id).await;
    if checkouts.places.check(&keep.project, &keep.id).is_ok()
        && let Err(failed) = run_hook(host, control, Hook::BeforeRemove, &keep.id, None).await
    {
        return Ok(failed);
    }
    let _place = host.place().await;
    Ok(match checkouts.clones.remove(order, policy).await? {
        // Perhaps something still writes there.
        Removal::KeptAgain(content) => {
            StepOutcome { reports: vec![keep.kept(*content)], pause: PAUSE }
        }
        Removal::Removed => {
            host.hooks.forget(&keep.id);
            StepOutcome::report(WorkspaceReport::Removed)
        }
    })
}

/// Makes a workspace ready for the next launch: for the user of its agent, and by the hook.
async fn before_run<C: ControlPlane>(
    host: &Host,
    control: &C,
    project: &ProjectId,
    id: &WorkspaceId,
) -> Result<StepOutcome, CheckoutError> {
    let Host { checkouts, hooks, .. } = host;
    let known = look_up(control, id).await;
    let known = known.and_then(|facts| Ok((hooks.user_of(&facts)?, facts)));
    let (user, facts) = match known {
        Ok(known) => known,
        Err(reason) => return Ok(StepOutcome::failed(reason, PAUSE)),
    };
    let is_another = checkouts.places.owner(project, id) != user.map(|user| user.uid);
    if (is_another && !checkouts.places.is_gone(project, id))
        || checkouts.places.is_half_removed(project, id)
    {
        return give_up(host, control, &facts).await;
    }
    checkouts.keep.lend_results(project, id).await?;
    checkouts.places.check(project, id)?;
    if let Err(failed) = run_hook(host, control, Hook::BeforeRun, id, None).await {
        return Ok(failed);
    }
    hooks.note_ready(id);
    Ok(StepOutcome::report(WorkspaceReport::ReadyToRun))
}

/// Removes a workspace that the user of its next agent cannot use. It is then made again from what
/// was kept: settings and hooks that an agent left in its repository are not for another user.
async fn give_up<C: ControlPlane>(
    host: &Host,
    control: &C,
    facts: &HookFacts,
) -> Result<StepOutcome, CheckoutError> {
    if facts.left_out.is_empty() {
        return remove(host, control, &facts.removal).await;
    }
    let tree = host.checkouts.places.directory(&facts.project, &facts.id, "");
    let folder = tree.parent().unwrap_or(&tree).display();
    let reason = format!(
        "the next agent runs as another user and needs a clone of its own, but not all of this one \
         could be kept ({}); remove what is in the way, or move `{folder}` away to go on with what \
         was kept",
        facts.left_out.join("; ")
    );
    Ok(StepOutcome::report(WorkspaceReport::Broken { reason }))
}

/// Removes the fresh clone of a check that has ended. If that fails, the work is kept nevertheless,
/// and the next check or the removal of the workspace tries again.
async fn remove_clean(checkouts: &Checkouts, project: &ProjectId, id: &WorkspaceId) {
    if let Err(error) = checkouts.clones.remove_clean(project, id).await {
        tracing::warn!(
            workspace_id = %id, error = %ErrorChain(&error),
            "could not remove the fresh clone of a check"
        );
    }
}

/// Makes a workspace and runs the hook that follows. `place` is the one among the steps that use
/// git.
async fn prepare<C: ControlPlane>(
    host: &Host,
    control: &C,
    order: &Order,
    place: Option<OwnedSemaphorePermit>,
) -> Result<StepOutcome, CheckoutError> {
    let Host { checkouts, hooks, .. } = host;
    let order = match for_user(host, control, order).await {
        Ok(order) => order,
        Err(reason) => return Ok(StepOutcome::failed(reason, PAUSE)),
    };
    let order = order.as_ref();
    if !hooks.has(Hook::AfterCreate) {
        return Ok(StepOutcome::report(WorkspaceReport::Prepared(
            checkouts.clones.prepare(order).await?,
        )));
    }
    let prepared = checkouts.clones.prepare_for_hook(order).await?;
    drop(place);
    if checkouts.places.awaits_hook(order) {
        let base = prepared.base_commit.clone();
        if let Err(failed) = run_hook(host, control, Hook::AfterCreate, &order.id, base).await {
            return Ok(failed);
        }
        checkouts.clones.note_hook_passed(order).await?;
    }
    Ok(StepOutcome::report(WorkspaceReport::Prepared(prepared)))
}

/// Returns the order with the user that the agent runs as.
async fn for_user<'a, C: ControlPlane>(
    host: &Host,
    control: &C,
    order: &'a Order,
) -> Result<Cow<'a, Order>, String> {
    if !host.hooks.has_users() {
        return Ok(Cow::Borrowed(order));
    }
    let facts = look_up(control, &order.id).await?;
    Ok(Cow::Owned(Order { run_as: host.hooks.user_of(&facts)?, ..order.clone() }))
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Runs a hook, unless it has passed already. `base` is the commit that new work begins at.
async fn run_hook<C: ControlPlane>(
    host: &Host,
    control: &C,
    hook: Hook,
    id: &WorkspaceId,
    base: Option<String>,
) -> Result<(), StepOutcome> {
    let hooks = &host.hooks;
    if hooks.is_done(hook, id) {
        return Ok(());
    }
    let facts = look_up(control, id)
        .await
        .map_err(|reason| StepOutcome::failed(hook.failure(&reason), PAUSE))?;
    let base_commit = base.or_else(|| facts.base_commit.clone());
    let facts = HookFacts { base_commit, ..facts };
    let folders = host.folders(&facts.project, id);
    hooks
        .run(hook, &facts, &folders)
        .await
        .map_err(|failure| StepOutcome::failed(failure, hooks.pause(id)))
}

/// Runs the hook after a launch. Returns its failure, which delays nothing.
async fn run_after<C: ControlPlane>(host: &Host, control: &C, id: &WorkspaceId) -> Option<String> {
    if !host.hooks.has(Hook::AfterRun) {
        return None;
    }
    let facts = match look_up(control, id).await {
        Ok(facts) => facts,
        Err(reason) => return Some(Hook::AfterRun.failure(&reason)),
    };
    host.checkouts.places.check(&facts.project, id).ok()?;
    let folders = host.folders(&facts.project, id);
    host.hooks.run_after(&facts, &folders).await
}

async fn look_up<C: ControlPlane>(control: &C, id: &WorkspaceId) -> Result<HookFacts, String> {
    let found = control.hook_facts(id).await.map_err(|error| ErrorChain(&error).to_string())?;
    found.ok_or_else(|| "the workspace is not known".to_owned())
}

fn failure(error: &CheckoutError, reason: String) -> WorkspaceReport {
    if error.needs_person() {
        WorkspaceReport::Broken { reason }
    } else {
        WorkspaceReport::Failed { reason }
    }
}
