//! The conditions that need a person, for `status` and its exit code: the entries of `inbox`, or what
//! is known without a store. A pause and a hold are not among them, because a person wanted them.

use super::abandoned_line;
use crate::cli::output::{ago, plain};
use crate::cli::reasons::sentence;
use api::attention::AttentionBody;
use api::status::{StatusBody, ToMergeBody};
use domain::Language;
use domain::attention::{AttentionGroup, AttentionKind};
use domain::start_history::{StartReason, WaitEnd};

/// The number of blocked tasks that are listed.
const MAX_BLOCKED: usize = 5;

/// Returns a line for each entry of the inbox, and one for all results to merge.
pub(super) fn lines_of(entries: &[AttentionBody], status: &StatusBody) -> Vec<String> {
    let (unmerged, entries): (Vec<_>, Vec<_>) =
        entries.iter().partition(|entry| entry.kind == AttentionKind::Unmerged);
    let (blocked, others): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|entry| is_blocked(entry));
    let n_left_out = blocked.len().saturating_sub(MAX_BLOCKED);
    let shown_blocked = blocked.into_iter().take(MAX_BLOCKED);
    let (first, last): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|entry| entry.group == AttentionGroup::Accounts);
    let mut lines: Vec<String> =
        first.into_iter().chain(last).chain(shown_blocked).map(line_of).collect();
    if n_left_out > 0 {
        lines.push(format!("{n_left_out} more blocked: `inbox`"));
    }
    if !unmerged.is_empty() {
        lines.extend(line_of_results(status));
    }
    lines
}

/// Returns the line about the results that are not merged, if there are any.
pub(super) fn line_of_results(status: &StatusBody) -> Option<String> {
    let of = |it: &ToMergeBody| format!("{} in {}", it.n_results, it.project_id);
    let projects: Vec<String> = status.to_merge.iter().map(of).collect();
    let projects = (!projects.is_empty()).then(|| projects.join(", "))?;
    Some(format!("Results to merge: {projects}; `task list` marks them"))
}

const fn is_blocked(entry: &AttentionBody) -> bool {
    matches!(entry.kind, AttentionKind::Blocked | AttentionKind::Failed)
}

fn line_of(entry: &AttentionBody) -> String {
    let text = plain(&entry.text);
    if let Some(task) = entry.task_short_id.as_ref().filter(|_| is_blocked(entry)) {
        return format!("{task} {}: {text}", plain(&entry.title));
    }
    let head =
        entry.task_short_id.as_ref().map_or_else(|| plain(&entry.title), ToString::to_string);
    let remedy = entry.remedy.as_ref().map(|remedy| format!("; {}", plain(remedy)));
    format!("{head}: {text}{}", remedy.unwrap_or_default())
}

/// Returns a line for each condition that is known without a store: that of a coordinator alone,
/// or of a server whose database is away.
pub(super) fn without_store(status: &StatusBody) -> Vec<String> {
    let store = status.store.as_ref().filter(|store| !["ok", "slow"].contains(&&*store.health));
    let store = store.and_then(|store| store.problem.clone());
    let server = status.server.as_ref().and_then(|server| {
        let problem = server.problem.as_ref()?;
        Some(format!("no agent can start, because of the server {}: {problem}", server.address))
    });
    let rejected = status.configuration.as_ref().and_then(|state| state.rejected.as_ref());
    let rejected = rejected.map(|rejected| {
        let since = ago(rejected.since, status.at);
        format!("The configuration on disk has not been in use for {since}: {}", rejected.problem)
    });
    let mut lines: Vec<String> = [store, server, rejected].into_iter().flatten().collect();
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
        let remedy = waits.reason.remedy(&waits.agent_id, &waits.project_id, Language::English);
        let remedy = remedy.map_or_else(String::new, |remedy| format!("; {remedy}"));
        let fault = waits.detail.as_ref().filter(|_| waits.reason == StartReason::Misconfigured);
        let fault = fault.map_or_else(String::new, |fault| format!(": {}", plain(fault)));
        lines.push(format!("{pair}: {why} ({}){fault}{remedy}", waits.reason));
    }
    lines
}

/// Returns whether the reason has an entry in the inbox at once.
fn needs_person(reason: StartReason) -> bool {
    reason.row().inbox.is_some() && reason.row().ends != WaitEnd::ByItself
}
