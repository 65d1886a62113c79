//! Checks: what happens between the reported success of an agent and the end of its task.
//!
//! The report of an agent begins the checks. Each check is claimed, run and reported like a launch,
//! and its end decides what comes next: the next check, the end of the task, another run of the
//! agent, or a person.

use config::NamedCheck;
use domain::check::{
    CONFLICT, Check, CheckOrder, CheckResult, UNCOMMITTED, UNDECIDED, has_rounds_left, next_check,
};
use domain::event::NewEvent;
use domain::guidance::Guidance;
use domain::id::{AgentId, CheckId, CoordinatorId, LaunchId};
use domain::launch::ReportResult;
use domain::printable::counted;
use domain::start_history::StartReason;
use domain::task::{Actor, change};
use domain::workspace::{CleanOrder, Conflict, Content, WorkspaceMode, WorkspaceState, owner};
use domain::{
    Attempt, Execution, Launch, Outcome, ProjectId, Purpose, StartFacts, Task, TaskId, TaskStatus,
    Timestamp, Workspace,
};
use store::rows::{Transaction, checks, executions, launches, output_tails, projects, tasks};
use store::{Read, StoreError};

use super::launches::start::{Claim, ShouldStart};
use super::tasks::rules::{graph_above, graph_around, move_task};
use super::{Inputs, ServiceError, Settings, workspaces};

/// Begins the checks of a task whose agent reported success. Returns false if there are none. A
/// conflict that the agent was asked to resolve is one.
///
/// # Errors
/// The refusals that the agent gets if the task cannot be done, such as `SubtasksOpen`.
pub(super) fn begin(
    tx: &mut Transaction<'_>,
    settings: &Settings,
    launch: &Launch,
    task: &Task,
) -> Result<bool, ServiceError> {
    let is_checked = of_project(settings, &task.project).next().is_some();
    // Only a launch with a clone has files that can be checked apart from those of other tasks.
    let Some(workspace) = &launch.workspace else {
        return Ok(false);
    };
    let workspace = store::rows::workspaces::get(tx, workspace)?;
    let content = workspace.and_then(|workspace| workspace.content);
    if !is_checked && content.is_none_or(|content| content.asked_conflict().is_none()) {
        return Ok(false);
    }
    let done = Task { status: TaskStatus::Done, ..task.clone() };
    let graph = graph_around(tx, &[(Some(task), &done)])?;
    change(Some(task), &done, Actor::Agent(&launch.key.agent), &graph, tx.now())?;
    let now = tx.now();
    tasks::put(tx, &Task { checking_since: Some(now), ..task.clone() })?;
    tx.event(event(task, "reported success", now));
    Ok(true)
}

/// Returns whether a task that has an agent must pass checks before it is done. A part of a
/// larger task is checked with it.
///
/// # Errors
/// A failed query.
pub(super) fn are_needed(
    tx: &mut Read<'_>,
    settings: &Settings,
    task: &Task,
) -> Result<bool, StoreError> {
    let is_checked = of_project(settings, &task.project).next().is_some();
    if !is_checked || !task.status.is_open() || task.assignee.is_none() {
        return Ok(false);
    }
    let graph = graph_above(tx, std::slice::from_ref(task))?;
    if owner(task, &graph).id != task.id {
        return Ok(false);
    }
    let project = projects::get(tx, &task.project)?;
    let has_clones = project.is_some_and(|it| it.workspace == WorkspaceMode::Clone);
    Ok(has_clones || store::rows::workspaces::newest_of_task(tx, &task.id)?.is_some())
}

fn event(task: &Task, detail: &str, at: Timestamp) -> NewEvent {
    NewEvent {
        agent: task.assignee.clone(),
        project: Some(task.project.clone()),
        task: Some(task.id.clone()),
        detail: Some(detail.to_owned()),
        ..NewEvent::new("task.checked", at)
    }
}

/// Returns the checks of a project in the order of the configuration.
fn of_project<'a>(
    settings: &'a Settings,
    project: &'a ProjectId,
) -> impl Iterator<Item = &'a NamedCheck> {
    settings.checks.iter().filter(|check| check.is_for(project))
}

/// Writes another text into the evidence of a conflict, if that is the newest evidence of a task.
pub(super) fn renew_conflict(
    tx: &mut Transaction<'_>,
    task: &TaskId,
    text: &str,
) -> Result<(), StoreError> {
    let newest = checks::list_of_task(tx, task)?.pop();
    let is_meant = |check: &Check| check.name == CONFLICT && check.result == CheckResult::Failed;
    if let Some(check) = newest.filter(is_meant) {
        checks::put(tx, &Check { output: text.to_owned(), ..check })?;
    }
    Ok(())
}

/// Returns the check to run next for a task that is being checked.
fn next_of<'a>(
    tx: &mut Read<'_>,
    settings: &'a Settings,
    task: &'a Task,
    checking_since: Timestamp,
) -> Result<Option<&'a NamedCheck>, StoreError> {
    let of_round = of_round(tx, task, checking_since)?;
    let configured = of_project(settings, &task.project).map(|check| (check.name.as_str(), check));
    Ok(next_check(configured, &of_round))
}

/// Returns why work fails before any command checks it: the name of the evidence, and its text.
/// After the first check of the round, a check may have made files that are in no commit.
fn unfinished(
    settings: &Settings,
    task: &Task,
    content: &Content,
    of_round: &[Check],
) -> Option<(&'static str, String)> {
    if let Some(Conflict { branch, commit, files, .. }) = content.asked_conflict() {
        let guidance = Guidance::new(settings.language);
        return Some((CONFLICT, guidance.merge_conflict(branch, commit, files)));
    }
    // Without a check, nothing but a conflict is judged.
    of_project(settings, &task.project).next()?;
    let n = content.n_uncommitted;
    if content.is_undecided {
        let there = content.names_of_others();
        let output = format!("Several branches have work: {there}. Check out one with all of it.");
        Some((UNDECIDED, output))
    } else if n > 0 && of_round.iter().all(|check| check.launch.is_none()) {
        let verb = if n == 1 { "has" } else { "have" };
        let files = counted(n, "file");
        let output = format!(
            "{files} {verb} changes that are in no commit. Commit them, also in linked work trees."
        );
        Some((UNCOMMITTED, output))
    } else {
        None
    }
}

/// Returns the number of the round in which a task is checked now.
fn round_of(task: &Task) -> u32 {
    task.n_failed_rounds.saturating_add(1)
}

/// Returns the checks of a task in this round, the oldest first.
fn of_round(
    tx: &mut Read<'_>,
    task: &Task,
    checking_since: Timestamp,
) -> Result<Vec<Check>, StoreError> {
    let mut checks = checks::list_of_task(tx, &task.id)?;
    checks.retain(|check| check.is_of(round_of(task), checking_since));
    Ok(checks)
}

/// Claims the next check of the task of `facts`. Nothing is claimed if the verdict needs no
/// command.
pub(super) fn claim(
    tx: &mut Transaction<'_>,
    inputs: &Inputs,
    facts: StartFacts,
    coordinator: Option<CoordinatorId>,
) -> Result<ShouldStart, ServiceError> {
    let no = ShouldStart { reason: StartReason::NoWork, claim: None };
    let settings = &inputs.settings;
    let now = tx.now();
    let Some((needed, workspace)) = facts.clone.and_then(|needed| {
        let workspace = needed.workspace.clone()?;
        Some((needed, workspace))
    }) else {
        return Ok(no);
    };
    let Some(task) = tasks::get(tx, &needed.task)? else {
        return Ok(no);
    };
    let Some(checking_since) = task.checking_since else {
        return Ok(no);
    };
    let content = workspace.content.clone().unwrap_or_default();
    let check = |name: &str, launch: Option<LaunchId>, result| Check {
        id: "chk_0".parse::<CheckId>().expect("a literal in the grammar of ids"),
        task: task.id.clone(),
        launch,
        round: round_of(&task),
        name: name.to_owned(),
        commit: content.head_commit.clone(),
        result,
        exit_code: None,
        duration: None,
        output: String::new(),
        // The clock may have been set back since the report.
        started_at: now.max(checking_since),
        revision: 0,
    };
    if let Some((name, output)) =
        unfinished(settings, &task, &content, &of_round(tx, &task, checking_since)?)
    {
        let id = tx.new_id(CheckId::PREFIX);
        let failed = Check { id, output, ..check(name, None, CheckResult::Failed) };
        checks::put(tx, &failed)?;
        fail(tx, inputs, &task, &failed)?;
        return Ok(no);
    }
    let Some(next) = next_of(tx, settings, &task, checking_since)?.cloned() else {
        finish(tx, inputs, &task)?;
        return Ok(no);
    };
    let provider = facts.agent.map(|(_, ai_type)| ai_type).unwrap_or_default();
    let clean = clean_order(&next, &workspace, &facts.key.agent);
    let id: LaunchId = tx.new_id(LaunchId::PREFIX);
    let deadline = now + next.keys.timeout;
    let mut launch =
        Launch { coordinator, ..Launch::claimed(id, facts.key, AI_TYPE.to_owned(), now, deadline) };
    let clone = workspaces::claim(tx, needed, &mut launch)?;
    let check_id = tx.new_id(CheckId::PREFIX);
    let running = check(&next.name, Some(launch.id.clone()), CheckResult::Running);
    checks::put(tx, &Check { id: check_id, ..running })?;
    tx.event(launches::event(&launch, now));
    launches::put(tx, &launch)?;
    let claim = Claim {
        launch: launch.id,
        ai_type: launch.ai_type,
        deadline,
        ticket: None,
        clone,
        attempt: Attempt::FIRST,
        check: Some(CheckOrder {
            command: next.keys.command,
            provider,
            clean: clean.map(Box::new),
        }),
        conversation: None,
    };
    Ok(ShouldStart { reason: StartReason::Ready, claim: Some(claim) })
}

/// The `ai_type` of the launches of checks. No provider counts them.
const AI_TYPE: &str = "check";

/// Returns what a launch has to run, if that is still configured.
pub(super) fn find_order(
    tx: &mut Read<'_>,
    settings: &Settings,
    launch: &Launch,
) -> Result<Option<CheckOrder>, StoreError> {
    let check = checks::find_of_launch(tx, &launch.id)?;
    let agent = store::rows::agents::get(tx, &launch.key.agent)?;
    let configured = check.and_then(|check| {
        of_project(settings, &launch.key.project).find(|other| other.name == check.name)
    });
    let workspace = match &launch.workspace {
        Some(id) => store::rows::workspaces::get(tx, id)?,
        None => None,
    };
    let found = configured.zip(agent).zip(workspace);
    Ok(found.map(|((check, agent), workspace)| CheckOrder {
        command: check.keys.command.clone(),
        provider: agent.ai_type,
        clean: clean_order(check, &workspace, &launch.key.agent).map(Box::new),
    }))
}

/// Returns the fresh clone in which a check runs, if it does not run in that of the task.
fn clean_order(check: &NamedCheck, workspace: &Workspace, agent: &AgentId) -> Option<CleanOrder> {
    let content = workspace.content.as_ref();
    // The files of the task's clone are those of another commit if its HEAD is elsewhere.
    let is_elsewhere = content.is_some_and(|content| content.is_elsewhere);
    (check.is_clean() || is_elsewhere).then(|| CleanOrder {
        id: workspace.id.clone(),
        project: workspace.project.clone(),
        commit: content.and_then(|content| content.head_commit.clone()),
        base_commit: workspace.base_commit.clone(),
        agent: agent.clone(),
        protected: check.keys.protected.clone(),
    })
}

/// Returns the fresh clone that the next check of a key needs.
pub(super) fn next_clean(
    tx: &mut Read<'_>,
    settings: &Settings,
    facts: &StartFacts,
) -> Result<Option<CleanOrder>, StoreError> {
    let needed = facts.clone.as_ref().filter(|_| facts.key.purpose == Purpose::Check);
    let Some((needed, workspace)) = needed.and_then(|it| Some((it, it.workspace.as_ref()?))) else {
        return Ok(None);
    };
    let is_elsewhere = workspace.content.as_ref().is_some_and(|content| content.is_elsewhere);
    let may_be_clean = is_elsewhere || settings.checks.iter().any(NamedCheck::is_clean);
    if workspace.state != WorkspaceState::Ready || !may_be_clean {
        return Ok(None);
    }
    let task = tasks::get(tx, &needed.task)?;
    let checking = task.and_then(|task| Some((task.checking_since?, task)));
    let Some((checking_since, task)) = checking else {
        return Ok(None);
    };
    let is_over = match &workspace.content {
        Some(content) => {
            unfinished(settings, &task, content, &of_round(tx, &task, checking_since)?).is_some()
        }
        None => true,
    };
    if is_over {
        return Ok(None);
    }
    let next = next_of(tx, settings, &task, checking_since)?;
    Ok(next.and_then(|check| clean_order(check, workspace, &facts.key.agent)))
}

/// Notes the end of the launch of a check, and decides what comes next for its task. A task that a
/// person has moved or given to another agent meanwhile keeps its state.
pub(super) fn note_end(
    tx: &mut Transaction<'_>,
    inputs: &Inputs,
    launch: &Launch,
    outcome: &Outcome,
    at: Timestamp,
) -> Result<(), StoreError> {
    let Some(before) = checks::find_of_launch(tx, &launch.id)? else {
        return Ok(());
    };
    if before.result != CheckResult::Running {
        return Ok(());
    }
    let output = output_tails::get(tx, &launch.id)?.unwrap_or_default();
    let check = before.ended(outcome, launch.exit, output, at);
    checks::put(tx, &check)?;
    let Some(task) = tasks::get(tx, &check.task)? else {
        return Ok(());
    };
    if task.checking_since.is_none_or(|since| check.started_at < since) {
        return Ok(());
    }
    tx.event(event(&task, &format!("{} {}", check.name, check.result), tx.now()));
    match check.result {
        CheckResult::Failed => fail(tx, inputs, &task, &check),
        // The files decide, when they have been kept.
        CheckResult::Passed | CheckResult::Running | CheckResult::NotRun => Ok(()),
    }
}

/// Decides what comes next for the task of a check that passed, when the files after it are kept. A
/// check that changed the files of the commit has failed.
pub(super) fn note_kept(
    tx: &mut Transaction<'_>,
    inputs: &Inputs,
    launch: &LaunchId,
    content: &Content,
) -> Result<(), StoreError> {
    let passed = checks::find_of_launch(tx, launch)?;
    let Some(check) = passed.filter(|check| check.result == CheckResult::Passed) else {
        return Ok(());
    };
    let task = tasks::get(tx, &check.task)?;
    let is_of = |since: &Timestamp| check.started_at >= *since;
    let checking = task.and_then(|task| Some((task.checking_since.filter(is_of)?, task)));
    let Some((checking_since, task)) = checking else {
        return Ok(());
    };
    if let Some(why) = check.spoiled_by(content) {
        let failed = check.spoiled(&why);
        checks::put(tx, &failed)?;
        tx.event(event(&task, &format!("{} {}", failed.name, failed.result), tx.now()));
        return fail(tx, inputs, &task, &failed);
    }
    if next_of(tx, &inputs.settings, &task, checking_since)?.is_none() {
        finish(tx, inputs, &task)?;
    }
    Ok(())
}

/// Lets the agent work again after a failed check, or blocks the task after the last round.
fn fail(
    tx: &mut Transaction<'_>,
    inputs: &Inputs,
    task: &Task,
    check: &Check,
) -> Result<(), StoreError> {
    let n_failed_rounds = task.n_failed_rounds.saturating_add(1);
    let failed = Task { n_failed_rounds, checking_since: None, ..task.clone() };
    if has_rounds_left(n_failed_rounds, inputs.settings.checks_rounds) {
        return tasks::put(tx, &failed);
    }
    let reason = check.as_reason();
    move_checked(tx, inputs, task, TaskStatus::Blocked, Some(&reason), &failed)
}

/// Sets a task done that has passed all checks. If it cannot be done, because it got an open subtask
/// meanwhile, its agent goes on.
fn finish(tx: &mut Transaction<'_>, inputs: &Inputs, task: &Task) -> Result<(), StoreError> {
    let not_done = Task { checking_since: None, ..task.clone() };
    move_checked(tx, inputs, task, TaskStatus::Done, None, &not_done)
}

/// Moves a task after its checks. If the rules refuse that, writes `otherwise`.
fn move_checked(
    tx: &mut Transaction<'_>,
    inputs: &Inputs,
    task: &Task,
    status: TaskStatus,
    reason: Option<&str>,
    otherwise: &Task,
) -> Result<(), StoreError> {
    match move_task(tx, task, status, reason, Actor::Person) {
        Ok(moved) => inputs.tell_agents(tx, &moved.news, None),
        Err(ServiceError::Store(error)) => Err(error),
        Err(ServiceError::Refused(refusal)) => {
            tracing::info!(
                task_id = %task.id,
                %status,
                reason = %refusal,
                "a task cannot be moved after its checks"
            );
            tasks::put(tx, otherwise)
        }
    }
}

/// Returns the check that failed last, if none passed after it. The agent that works on the task
/// again gets its evidence. The conflict of a merge is over with the next reported success.
pub(super) fn failed_of(tx: &mut Read<'_>, task: &Task) -> Result<Vec<Check>, StoreError> {
    let newest = checks::list_of_task(tx, &task.id)?.pop();
    let failed = newest.filter(|check| check.result == CheckResult::Failed);
    let Some(check) = failed else {
        return Ok(Vec::new());
    };
    if check.name == CONFLICT {
        let is_later = |execution: &Execution| {
            let is_success = execution.result == Some(ReportResult::Success);
            is_success && execution.ended_at.is_some_and(|at| at > check.started_at)
        };
        if executions::list_of_task(tx, &task.id)?.iter().any(is_later) {
            return Ok(Vec::new());
        }
    }
    Ok(vec![check])
}

/// Notes that the result of a task conflicts with a branch. `text` tells the agent what to do.
pub(super) fn note_conflict(
    tx: &mut Transaction<'_>,
    task: &Task,
    content: Option<Content>,
    text: &str,
) -> Result<(), StoreError> {
    let id = tx.new_id(CheckId::PREFIX);
    let check = Check {
        id,
        task: task.id.clone(),
        launch: None,
        round: round_of(task),
        name: CONFLICT.to_owned(),
        commit: content.and_then(|content| content.head_commit),
        result: CheckResult::Failed,
        exit_code: None,
        duration: None,
        output: text.to_owned(),
        started_at: tx.now(),
        revision: 0,
    };
    checks::put(tx, &check)?;
    tx.event(event(task, "the result conflicts with a branch", tx.now()));
    Ok(())
}

/// Returns all checks of a task, the oldest first.
pub(super) fn list(tx: &mut Read<'_>, task: &TaskId) -> Result<Vec<Check>, StoreError> {
    checks::list_of_task(tx, task)
}
