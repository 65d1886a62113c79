//! Carries out one step on a workspace and returns its reports.

use std::borrow::Cow;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

use super::Host;
use crate::coordinator::control::ControlPlane;
use domain::workspace::{Hook, HookFacts, Job, Order, RemoveOrder, WorkspaceReport};
use domain::{ProjectId, WorkspaceId};
use runtime::telemetry::ErrorChain;
use workspace::{CheckoutError, Checkouts, Removal};

/// The pause after a step that failed, before the plan may take it again.
const PAUSE: Duration = Duration::from_secs(10);
/// The pause before the disk space is measured again for a workspace that has no room.
const NO_ROOM_PAUSE: Duration = Duration::from_secs(2);

/// The result of a step.
pub(super) struct StepOutcome {
    /// The server gets these reports, in this order.
    pub(super) reports: Vec<WorkspaceReport>,
    /// The pause after the step.
    pub(super) pause: Duration,
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
pub(super) async fn carry_out<C: ControlPlane>(host: &Host, control: &C, job: &Job) -> StepOutcome {
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
                    Ok(put_off(checkouts, job, &error, "no fresh clone for its check"))
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
                    Ok(put_off(checkouts, job, &error, reason))
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

/// Returns that a step failed, and that its workspace can be used.
fn put_off(checkouts: &Checkouts, job: &Job, error: &CheckoutError, what: &str) -> StepOutcome {
    let is_given_up = checkouts.give_up(job, error);
    let again = if is_given_up { "; `workspace retry` tries it again" } else { "" };
    StepOutcome::failed(format!("{what}: {}{again}", ErrorChain(error)), PAUSE)
}

fn failure(error: &CheckoutError, reason: String) -> WorkspaceReport {
    if error.needs_person() {
        WorkspaceReport::Broken { reason }
    } else {
        WorkspaceReport::Failed { reason }
    }
}
