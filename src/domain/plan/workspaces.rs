//! The steps that workspaces need, and what a start waits for before its workspace can be used.

use super::{Action, Plan, Snapshot};
use crate::domain::id::WorkspaceId;
use crate::domain::key::Purpose;
use crate::domain::start_history::{Candidate, StartReason};
use crate::domain::workspace::Job;

/// Takes the steps that workspaces need, one at a time for each workspace. A workspace is prepared
/// before the claim, so that a slow preparation holds no slot and uses up no deadline.
pub(super) fn plan_workspaces(snapshot: &Snapshot, plan: &mut Plan) {
    for job in &snapshot.jobs {
        if !snapshot.busy_workspaces.contains(job.workspace()) {
            plan.actions.push(Action::Workspace(job.clone()));
        }
    }
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
