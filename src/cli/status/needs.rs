//! The conditions that need a person, for `status` and its exit code. A pause and a hold are not among it, because
//! a person wanted them.

use super::{abandoned_line, parked_line, stuck_line};
use crate::cli::output::{ago, plain};
use crate::cli::reasons::{needs_person, remedy, sentence};
use crate::domain::FailureClass;
use crate::rest::routes::status::StatusBody;
use crate::rest::routes::tasks::TaskBody;

/// The number of blocked tasks that are listed.
const MAX_BLOCKED: usize = 5;

/// Returns a line for each condition that only a person can end.
pub(super) fn needs(status: &StatusBody, blocked: &[TaskBody]) -> Vec<String> {
    let store = status.store.as_ref().filter(|store| !["ok", "slow"].contains(&&*store.health));
    let store = store.and_then(|store| store.problem.clone());
    let server = status.server.as_ref().and_then(|server| {
        let problem = server.problem.as_ref()?;
        Some(format!("the server {} does not answer: {problem}", server.address))
    });
    let rejected = status.configuration.as_ref().and_then(|state| state.rejected.as_ref());
    let rejected = rejected.map(|rejected| {
        let since = ago(rejected.since, status.at);
        format!("The configuration on disk has not been in use for {since}: {}", rejected.problem)
    });
    let no_coordinator = status.server.is_none()
        && status.coordinators.is_empty()
        && status.unlisted_coordinator_at.is_none();
    let no_coordinator = no_coordinator
        .then(|| "No coordinator has come yet: nothing is started until one does.".to_owned());
    let mut lines: Vec<String> =
        [store, server, rejected, no_coordinator].into_iter().flatten().collect();
    let silent = status.coordinators.iter().filter(|coordinator| !coordinator.is_there);
    lines.extend(silent.map(|coordinator| {
        format!(
            "coordinator {} was last seen {} ago; it ran {} agents then",
            coordinator.coordinator_id,
            ago(coordinator.heard_at, status.at),
            coordinator.running
        )
    }));
    // A quota begins anew by itself.
    let logins = status.parked.iter().filter(|parked| parked.reason == FailureClass::Auth);
    lines.extend(logins.map(|parked| parked_line(parked, status.at)));
    for instance in &status.instances {
        let launch = &instance.launch;
        if instance.is_abandoned {
            lines.push(abandoned_line(&launch.launch_id, &launch.agent_id, &launch.project_id));
        }
        if instance.unkillable_since.is_some() {
            let pair = format!("{} in {}", launch.agent_id, launch.project_id);
            lines.push(format!(
                "{pair}: a process of it is unkillable; it may need a restart of the machine"
            ));
        }
    }
    for waits in status.deferred.iter().filter(|waits| needs_person(waits.reason)) {
        let pair = format!("{} in {}", waits.agent_id, waits.project_id);
        let why = sentence(waits.reason, waits.purpose);
        let remedy = remedy(waits.reason, &waits.agent_id, &waits.project_id);
        let remedy = remedy.map_or_else(String::new, |remedy| format!("; {remedy}"));
        lines.push(format!("{pair}: {why} ({}){remedy}", waits.reason));
    }
    lines.extend(status.stuck.iter().map(stuck_line));
    for host in status.forges.iter().filter(|host| host.health == "unauthorized") {
        let error = host.last_error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
        lines.push(format!("{} {} refuses the token{error}", host.forge, host.host));
    }
    lines.extend(blocked.iter().take(MAX_BLOCKED).map(|task| {
        let reason = task.blocked_reason.as_deref().map(plain).filter(|reason| !reason.is_empty());
        let why = reason.unwrap_or_else(|| plain(&task.title));
        format!("{} is blocked: {why}", task.short_id)
    }));
    if blocked.len() > MAX_BLOCKED {
        let n = blocked.len() - MAX_BLOCKED;
        lines.push(format!("{n} more blocked: `task list --status blocked`"));
    }
    lines
}
