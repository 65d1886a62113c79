//! `status` prints an overview of the daemon.

use std::io::{self, Write as _};
use std::time::Duration;

use super::activity::{doing, short, trouble, used};
use super::client::Client;
use super::error::CliError;
use super::forge_items;
use super::output::{Form, ago, lines, print_json, print_line, table};
use crate::config::ConfigurationState;
use crate::domain::instance::ExitHint;
use crate::domain::{AgentId, LaunchId, ProjectId, Timestamp};
use crate::rest::routes::status::{
    CoordinatorBody, InstanceBody, ParkedBody, StatusBody, StuckBody,
};
use crate::rest::routes::store::StoreBody;

/// The time between two updates of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Clears a terminal and moves the cursor to its upper left corner.
const CLEAR: &str = "\x1b[2J\x1b[H";

pub(super) async fn status(client: &Client, watch: bool, form: Form) -> Result<(), CliError> {
    loop {
        let status: StatusBody = client.get("/status").await?;
        if form.json {
            return print_json(&status);
        }
        let text = describe(&status);
        if !watch {
            return print_line(&text);
        }
        write!(io::stdout(), "{CLEAR}")?;
        print_line(&text)?;
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

/// The longest text of a cell, in characters. `--json` has the whole text.
const MAX_CELL: usize = 90;

/// Returns the hint in words for a person.
pub(super) const fn in_words(hint: ExitHint) -> &'static str {
    match hint {
        ExitHint::OutOfMemory => "out of memory",
        ExitHint::KilledFromOutside => "killed from outside",
        ExitHint::CoreDumped => "core dumped",
    }
}

fn silence(coordinator: &CoordinatorBody, now: Timestamp) -> Option<String> {
    (!coordinator.is_there).then(|| {
        format!(
            "coordinator {} was last seen {} ago; it ran {} agents then",
            coordinator.coordinator_id,
            ago(coordinator.heard_at, now),
            coordinator.running
        )
    })
}

/// Returns the difference between the configuration on disk and the one in use, with its reason;
/// `None` if they agree.
fn of_configuration(configuration_state: &ConfigurationState, now: Timestamp) -> Option<String> {
    let rejected = configuration_state.rejected.as_ref().map(|rejected| {
        let since = ago(rejected.since, now);
        format!("The configuration on disk has not been in use for {since}: {}", rejected.problem)
    });
    let waiting: Vec<String> =
        configuration_state.waiting.iter().map(|change| format!("\n  {change}")).collect();
    let waiting = (!waiting.is_empty())
        .then(|| format!("Changed, and in use after a restart:{}", waiting.concat()));
    let told: Vec<String> = [rejected, waiting].into_iter().flatten().collect();
    (!told.is_empty()).then(|| told.join("\n"))
}

/// Returns the state with remarks about unusual conditions.
fn state_of(instance: &InstanceBody, now: Timestamp) -> String {
    let remarks = [
        (instance.adopted, "adopted"),
        (instance.suspended_since.is_some(), "stopped by a signal"),
        (instance.unkillable_since.is_some(), "unkillable"),
        (instance.is_abandoned, "no coordinator"),
    ];
    let remarks =
        remarks.into_iter().filter(|(is_so, _)| *is_so).map(|(_, remark)| remark.to_owned());
    let silence = instance.silent_since.map(|since| format!("silent for {}", ago(since, now)));
    let remarks: Vec<String> = remarks.chain(silence).collect();
    match remarks.as_slice() {
        [] => instance.launch.state.clone(),
        remarks => format!("{} ({})", instance.launch.state, remarks.join(", ")),
    }
}

/// Returns the line about a launch whose coordinator is away, and how to end that launch. Such a
/// coordinator is gone, or another database was restored.
pub(super) fn abandoned_line(launch: &LaunchId, agent: &AgentId, project: &ProjectId) -> String {
    format!(
        "the coordinator of {launch} is not there. If it does not come back, only `stop {agent} {project} --force` ends that \
         launch; make sure first that its processes are gone"
    )
}

/// Returns the line that says why no agent of a provider starts, and until when.
pub(super) fn parked_line(parked: &ParkedBody, now: Timestamp) -> String {
    let ParkedBody { provider, reason, until, .. } = parked;
    let until = match &parked.tried_by {
        Some(launch) => format!("{launch} tries whether it works again"),
        None if *until <= now => "the next start tries whether it works again".to_owned(),
        None => format!(
            "no agent of it starts for {}, or until `resume --provider {provider}`",
            ago(now, *until)
        ),
    };
    format!("parked: {provider} ({reason}): {until}")
}

/// Returns the line about a task that waits for a cancelled one, and how to let it go on.
fn stuck_line(stuck: &StuckBody) -> String {
    let StuckBody { short_id, after_short_id, .. } = stuck;
    format!(
        "{short_id} is to start after {after_short_id}, which was cancelled: reopen {after_short_id}, or change the \
         dependencies of {short_id} (`task set`)"
    )
}

/// Returns the line that the pause file keeps agents from starting, and how to end that.
pub(super) fn pause_file_line(path: &str) -> String {
    format!(
        "The pause file `{path}` exists: no agent is started, and work of forges is paused. Remove it to go on."
    )
}

/// Returns the line about the store with its figures, and the sentence about its problem.
fn of_store(store: &StoreBody) -> String {
    let figures = store.figures().into_iter().map(|(name, spread)| format!("; {name} {spread}"));
    let line = format!("store: {}, {}{}", store.name(), store.url, figures.collect::<String>());
    match &store.problem {
        Some(problem) => format!("{line}\n{problem}"),
        None => line,
    }
}

fn describe(status: &StatusBody) -> String {
    let state =
        if status.paused { "paused: no agent is started until `resume`" } else { "running" };
    let mut parts = vec![format!(
        "agent-coordinator {}: {state}, {} of {} slots in use",
        status.version, status.limits.running, status.limits.max_concurrent
    )];
    if let Some(http) = &status.http {
        parts.push(format!("MCP over HTTP: http://{}/mcp", http.address));
    }
    parts.extend(status.store.as_ref().map(of_store));
    if let Some(server) = &status.server {
        let problem = server
            .problem
            .as_ref()
            .map_or_else(String::new, |problem| format!("; cut off: {problem}"));
        parts.push(format!("coordinator of {}{problem}", server.address));
    }
    parts.extend(
        status
            .configuration
            .as_ref()
            .and_then(|configuration_state| of_configuration(configuration_state, status.at)),
    );
    let silent: Vec<String> =
        status.coordinators.iter().filter_map(|each| silence(each, status.at)).collect();
    if !silent.is_empty() {
        parts.push(silent.join("\n"));
    }
    if !status.parked.is_empty() {
        let parked: Vec<String> =
            status.parked.iter().map(|parked| parked_line(parked, status.at)).collect();
        parts.push(parked.join("\n"));
    }
    parts.extend(status.pause_file_path.as_deref().map(pause_file_line));
    parts.extend(forge_items::of_hosts(&status.forges, status.at));
    if !status.forge_items.is_empty() {
        parts.push(lines(&forge_items::item_rows(&status.forge_items, status.at)));
    }
    if status.server.is_none() && status.coordinators.is_empty() {
        parts.push(match status.unlisted_coordinator_at {
            Some(at) => format!(
                "A coordinator that does not report its status asked {} ago.",
                ago(at, status.at)
            ),
            None => "No coordinator has come yet: nothing is started until one does.".to_owned(),
        });
    }
    if status.instances.is_empty() {
        parts.push("No agent is running.".to_owned());
    } else {
        let mut running = table(&[
            "AGENT", "PROJECT", "PURPOSE", "STATE", "SINCE", "PID", "TASK", "USED", "LAUNCH",
            "DOING",
        ]);
        for instance in &status.instances {
            let launch = &instance.launch;
            let since = launch.authenticated_at.or(launch.started_at).unwrap_or(launch.claimed_at);
            running.add_row([
                launch.agent_id.to_string(),
                launch.project_id.to_string(),
                launch.purpose.to_string(),
                state_of(instance, status.at),
                ago(since, status.at),
                launch.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
                launch.task_id.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
                used(launch.activity.usage.as_ref()),
                launch.launch_id.to_string(),
                doing(&launch.activity, status.at),
            ]);
        }
        parts.push(lines(&running));
        let launches = status
            .instances
            .iter()
            .filter(|instance| instance.is_abandoned)
            .map(|instance| &instance.launch);
        let abandoned: Vec<String> = launches
            .map(|launch| abandoned_line(&launch.launch_id, &launch.agent_id, &launch.project_id))
            .collect();
        if !abandoned.is_empty() {
            parts.push(abandoned.join("\n"));
        }
    }
    if !status.deferred.is_empty() {
        let mut waiting = table(&["WAITING", "PROJECT", "PURPOSE", "WHY", "UNTIL"]);
        for deferred in &status.deferred {
            waiting.add_row([
                deferred.agent_id.to_string(),
                deferred.project_id.to_string(),
                deferred.purpose.to_string(),
                deferred.detail.as_ref().map_or_else(
                    || deferred.reason.to_string(),
                    |detail| short(&format!("{}: {detail}", deferred.reason), MAX_CELL),
                ),
                deferred.until.map_or_else(
                    || "-".to_owned(),
                    |until| format!("in {}", ago(status.at, until)),
                ),
            ]);
        }
        parts.push(lines(&waiting));
    }
    if !status.stuck.is_empty() {
        let stuck: Vec<String> = status.stuck.iter().map(stuck_line).collect();
        parts.push(stuck.join("\n"));
    }
    if !status.ended.is_empty() {
        let mut ended = table(&[
            "ENDED", "PROJECT", "PURPOSE", "OUTCOME", "EXIT", "AGO", "TASK", "USED", "LAUNCH",
        ]);
        for launch in &status.ended {
            let outcome = launch.outcome.as_deref().unwrap_or("-");
            let reason =
                launch.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
            let failure = launch.activity.failure.as_ref();
            let failure = failure
                .map_or_else(String::new, |failure| format!(": {}", trouble(failure, status.at)));
            let outcome = short(&format!("{outcome}{reason}{failure}"), MAX_CELL);
            let exit = match (launch.exit_code, launch.signal) {
                (Some(code), _) => code.to_string(),
                (None, Some(signal)) => format!("signal {signal}"),
                (None, None) => "-".to_owned(),
            };
            let hints = launch.exit_hints.iter().map(|hint| format!(", {}", in_words(*hint)));
            let exit = hints.fold(exit, |exit, hint| exit + &hint);
            ended.add_row([
                launch.agent_id.to_string(),
                launch.project_id.to_string(),
                launch.purpose.to_string(),
                outcome,
                exit,
                launch.ended_at.map_or_else(|| "-".to_owned(), |at| ago(at, status.at)),
                launch.task_id.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
                used(launch.activity.usage.as_ref()),
                launch.launch_id.to_string(),
            ]);
        }
        parts.push(lines(&ended));
    }
    parts.join("\n\n")
}
