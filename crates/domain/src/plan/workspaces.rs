//! The steps that workspaces need, and what a start waits for before its workspace can be used.

use std::time::Duration;

use super::queue::Queue;
use super::slots::Slots;
use super::{Action, Plan, Snapshot};
use crate::id::WorkspaceId;
use crate::key::Purpose;
use crate::start_history::{Candidate, StartReason};
use crate::workspace::Job;

/// Takes the steps that workspaces need, one at a time for each workspace. A workspace is prepared
/// before the claim, so that a slow preparation uses up no deadline.
pub(super) fn plan_workspaces(snapshot: &Snapshot, plan: &mut Plan) {
    let is_free = |job: &&Job| {
        let id = job.workspace();
        !snapshot.busy_workspaces.contains(id) && snapshot.given_up.get(id) != Some(*job)
    };
    let jobs: Vec<&Job> = snapshot.jobs.iter().filter(is_free).collect();
    let jobs = in_order_of_starts(jobs, snapshot).into_iter();
    plan.actions.extend(jobs.map(|job| Action::Workspace(job.clone())));
    for candidate in &snapshot.startable {
        if candidate.reason == StartReason::PreparingWorkspace && candidate.workspace.is_none() {
            plan.actions.push(Action::WantWorkspace { key: candidate.key.clone() });
        }
        // A workspace that is to be made has its hook in that step.
        let has_step = |id: &WorkspaceId| snapshot.jobs.iter().any(|job| job.workspace() == id);
        if let (StartReason::HookFailed, Some(id)) = (candidate.reason, &candidate.workspace)
            && !has_step(id)
        {
            plan.actions.extend(before_run(candidate, id, snapshot));
        }
    }
}

/// Returns the steps with the new clones in the order in which the starts that wait for them take
/// slots. The other steps keep their places.
fn in_order_of_starts<'a>(jobs: Vec<&'a Job>, snapshot: &Snapshot) -> Vec<&'a Job> {
    let is_new = |job: &&'a Job| matches!(job, Job::Prepare { .. });
    let mut new: Vec<&Job> = jobs.iter().copied().filter(is_new).collect();
    if new.len() < 2 {
        return jobs;
    }
    let slots = Slots::of(snapshot);
    let waits = |it: &&Candidate| it.reason == StartReason::PreparingWorkspace;
    let waiting = snapshot.startable.iter().filter(waits).collect();
    let order = Queue::of(waiting, &slots).into_order(&slots);
    let ids: Vec<Option<&WorkspaceId>> = order.iter().map(|it| it.workspace.as_ref()).collect();
    let rank = |job: &Job| ids.iter().position(|id| *id == Some(job.workspace()));
    new.sort_by_cached_key(|job| rank(job).unwrap_or(usize::MAX));
    let mut new = new.into_iter();
    let sorted = jobs.into_iter().map(|job| if is_new(&job) { new.next() } else { Some(job) });
    sorted.flatten().collect()
}

/// Returns how much longer a start whose clone is being prepared keeps its slot. A clone whose
/// preparation failed keeps none.
pub(super) fn slot_wait(candidate: &Candidate, snapshot: &Snapshot) -> Option<Duration> {
    let waited = snapshot.preparing.get(&candidate.key).copied().unwrap_or_default();
    let left = snapshot.limits.clone_wait.saturating_sub(waited);
    (candidate.detail.is_none() && !left.is_zero()).then_some(left)
}

/// Returns the workspace of a candidate if a hook is to run in it before the start.
pub(super) fn hook_before<'a>(
    candidate: &'a Candidate,
    snapshot: &Snapshot,
) -> Option<&'a WorkspaceId> {
    let passed = snapshot.passed_hooks.as_ref()?;
    candidate.workspace.as_ref().filter(|workspace| !passed.contains(*workspace))
}

/// Returns the step that runs the hook, unless a step of the workspace is under way.
pub(super) fn before_run(
    candidate: &Candidate,
    id: &WorkspaceId,
    snapshot: &Snapshot,
) -> Option<Action> {
    let job = || Job::BeforeRun { project: candidate.key.project.clone(), id: id.clone() };
    (!snapshot.busy_workspaces.contains(id)).then(|| Action::Workspace(job()))
}

pub(super) fn is_being_removed(candidate: &Candidate, snapshot: &Snapshot) -> bool {
    let workspace = candidate.workspace.as_ref();
    workspace.is_some_and(|id| snapshot.removing_workspaces.contains(id))
}

/// Returns whether the check of a candidate runs in a fresh clone that is not there yet.
pub(super) fn awaits_clean_clone(candidate: &Candidate, snapshot: &Snapshot) -> bool {
    let is_wanted = |id: &WorkspaceId| {
        let mut jobs = snapshot.jobs.iter();
        jobs.any(|job| matches!(job, Job::PrepareClean { .. }) && job.workspace() == id)
    };
    let workspace = candidate.workspace.as_ref();
    candidate.key.purpose == Purpose::Check && workspace.is_some_and(is_wanted)
}
