//! The text of `status`.

use super::needs::line_of_results;
use super::{TextForm, in_words, parked_line, pause_file_line, warnings};
use crate::cli::activity::{doing, short, trouble, used};
use crate::cli::forge_items;
use crate::cli::output::{Zone, ago, or_dash, plain};
use crate::cli::screen::{Rows, Screen, Tone, Width};
use api::launches::LaunchBody;
use api::status::{DeferredBody, InstanceBody, NotInstalledBody, StatusBody};
use api::store::StoreBody;
use domain::configuration::ConfigurationState;
use domain::start_history::StartReason;
use domain::{FailureClass, Language, Purpose, Timestamp};

/// The longest text of a cell, in characters. `--json` has the whole text.
const MAX_CELL: usize = 90;
/// The number of ended launches that are shown without `--wide`.
const N_ENDED: usize = 5;

/// Returns what `status` prints: what needs a person, what runs, what waits, what ended lately, and
/// the addresses.
pub(super) fn describe(
    status: &StatusBody,
    needs: &[String],
    shown: TextForm,
    screen: Screen,
) -> String {
    // With all columns, lines may be longer than the terminal, which wraps them.
    let screen = if shown.is_wide { Screen { width: None, ..screen } } else { screen };
    let mut parts = vec![screen.wrapped(&header(status))];
    if !needs.is_empty() {
        let lines = needs.iter().map(|need| screen.wrapped(&format!("  {need}")));
        parts.push(format!("Needs a person:\n{}", lines.collect::<Vec<_>>().join("\n")));
    }
    let mut notes = notes(status);
    // Results that an earlier version kept are not in the inbox.
    notes.extend(line_of_results(status).filter(|line| !needs.contains(line)));
    if !notes.is_empty() {
        parts.push(screen.wrapped(&notes.join("\n")));
    }
    if status.instances.is_empty() {
        parts.push("No agent is running.".to_owned());
    } else {
        parts.push(running(&status.instances, status.at, shown).text(screen));
    }
    if !status.deferred.is_empty() {
        parts.push(waiting(&status.deferred, status.at).text(screen));
    }
    if !status.forge_items.is_empty() {
        let rows = forge_items::item_rows(&status.forge_items, status.at, shown.is_wide);
        parts.push(rows.text(screen));
    }
    if !status.ended.is_empty() {
        parts.push(ended(&status.ended, status.at, shown).text(screen));
    }
    let hosts = forge_items::of_hosts(&status.forges, status.at);
    parts.extend(hosts.map(|hosts| screen.wrapped(&hosts)));
    if let Some(http) = &status.http {
        parts.push(screen.wrapped(&format!("MCP over HTTP: http://{}/mcp", http.address)));
    }
    parts.extend(status.store.as_ref().map(|store| screen.wrapped(&of_store(store))));
    parts.join("\n\n")
}

fn header(status: &StatusBody) -> String {
    let problem = status.server.as_ref().and_then(|server| server.problem.as_ref());
    let state = match (&status.pause_file_path, problem) {
        (Some(file), _) if status.paused => {
            format!(
                "paused: no agent is started until `resume`, and while the file `{file}` exists"
            )
        }
        (Some(file), _) => format!("paused: no agent is started while the file `{file}` exists"),
        (None, _) if status.paused => "paused: no agent is started until `resume`".to_owned(),
        (None, Some(_)) => "no agent can start".to_owned(),
        (None, None) => "running".to_owned(),
    };
    let first = format!(
        "agent-coordinator {}: {state}, {} of {} slots in use",
        status.version, status.limits.running, status.limits.max_concurrent
    );
    match &status.server {
        Some(server) => {
            let problem = problem.map_or_else(String::new, |problem| format!(": {problem}"));
            format!("{first}\n\ncoordinator of {}{problem}", server.address)
        }
        None => first,
    }
}

/// Returns the conditions that change what starts, and that no person needs to end now.
fn notes(status: &StatusBody) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(status.configuration.as_ref().and_then(waiting_changes));
    let quotas = status.parked.iter().filter(|parked| parked.reason != FailureClass::Auth);
    notes.extend(quotas.map(|parked| parked_line(parked, status.at)));
    notes.extend(status.not_installed.iter().map(|missing| {
        let NotInstalledBody { provider, program, remedy } = missing;
        format!("not installed: {provider}: the program `{program}` was not found; {remedy}")
    }));
    notes.extend(status.pause_file_path.as_deref().map(pause_file_line));
    notes.extend(warnings(&status.crowds, &status.failed_snapshots));
    // The detail names the largest clones, and a cell is too short for it.
    let no_room = status.deferred.iter().find(|it| it.reason == StartReason::WorkspaceDisk);
    notes.extend(no_room.and_then(|waits| waits.detail.as_deref()).map(plain));
    if status.server.is_none()
        && status.coordinators.is_empty()
        && let Some(at) = status.unlisted_coordinator_at
    {
        let ago = ago(at, status.at);
        notes.push(format!("A coordinator that does not report its status asked {ago} ago."));
    }
    notes
}

/// Returns the changes of the configuration that wait for a restart.
fn waiting_changes(configuration: &ConfigurationState) -> Option<String> {
    let waiting: Vec<String> =
        configuration.waiting.iter().map(|change| format!("\n  {change}")).collect();
    (!waiting.is_empty())
        .then(|| format!("Changed, and in use after a restart:{}", waiting.concat()))
}

/// Returns the line about the store with its figures.
fn of_store(store: &StoreBody) -> String {
    let figures = store.figures().into_iter().map(|(name, spread)| format!("; {name} {spread}"));
    let line = format!("store: {}, {}{}", store.name(), store.url, figures.collect::<String>());
    match store.problem.as_ref().filter(|_| store.health == "slow") {
        Some(problem) => format!("{line}\n{problem}"),
        None => line,
    }
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

/// Returns the short id of the task; the full id if there is no short one; `chat` for a chat.
fn work_of(launch: &LaunchBody) -> String {
    let short_id = launch.task_short_id.as_ref().map(ToString::to_string);
    let task = short_id.or_else(|| launch.task_id.as_ref().map(ToString::to_string));
    task.unwrap_or_else(|| if launch.purpose == Purpose::Chat { "chat" } else { "-" }.to_owned())
}

fn running(instances: &[InstanceBody], now: Timestamp, shown: TextForm) -> Rows {
    let since = |launch: &LaunchBody| {
        launch.authenticated_at.or(launch.started_at).unwrap_or(launch.claimed_at)
    };
    Rows::of_width(
        instances,
        shown.is_wide,
        &[
            (Width::Any, "AGENT", &|it| it.launch.agent_id.to_string()),
            (Width::Any, "PROJECT", &|it| it.launch.project_id.to_string()),
            (Width::Any, "TASK", &|it| work_of(&it.launch)),
            (Width::Any, "STATE", &|it| state_of(it, now)),
            (Width::Any, "SINCE", &|it| ago(since(&it.launch), now)),
            (Width::Wide, "PURPOSE", &|it| it.launch.purpose.to_string()),
            (Width::Wide, "PID", &|it| or_dash(it.launch.pid)),
            (Width::Wide, "USED", &|it| used(it.launch.activity.usage.as_ref())),
            (Width::Wide, "TASK ID", &|it| or_dash(it.launch.task_id.as_ref())),
            (Width::Wide, "LAUNCH", &|it| it.launch.launch_id.to_string()),
            (Width::Any, "DOING", &|it| doing(&it.launch.activity, now, shown.zone)),
        ],
    )
}

fn waiting(deferred: &[DeferredBody], now: Timestamp) -> Rows {
    let why = |waits: &DeferredBody| {
        let sentence = waits.reason.sentence(Language::English);
        let detail = waits.detail.as_ref().map(|detail| format!(": {detail}"));
        short(&format!("{sentence}{}", detail.unwrap_or_default()), MAX_CELL)
    };
    Rows::of(
        deferred,
        &[
            ("WAITING", &|waits| waits.agent_id.to_string()),
            ("PROJECT", &|waits| waits.project_id.to_string()),
            ("PURPOSE", &|waits| waits.purpose.to_string()),
            ("WHY", &why),
            ("UNTIL", &|waits| or_dash(waits.until.map(|at| format!("in {}", ago(now, at))))),
        ],
    )
}

/// Returns how a launch ended, with its reason and its failure.
fn outcome_of(launch: &LaunchBody, now: Timestamp, zone: Zone) -> String {
    let outcome = launch.outcome.as_deref().unwrap_or("-");
    let reason = launch.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
    let failure = launch.activity.failure.as_ref();
    let failure =
        failure.map_or_else(String::new, |failure| format!(": {}", trouble(failure, now, zone)));
    short(&format!("{outcome}{reason}{failure}"), MAX_CELL)
}

fn exit_of(launch: &LaunchBody) -> String {
    let exit = match (launch.exit_code, launch.signal) {
        (Some(code), _) => code.to_string(),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "-".to_owned(),
    };
    let hints = launch.exit_hints.iter().map(|hint| format!(", {}", in_words(*hint)));
    hints.fold(exit, |exit, hint| exit + &hint)
}

/// Returns how the end of a launch is shown. An agent that is blocked or was stopped did nothing
/// wrong.
fn tone_of(outcome: Option<&str>) -> Tone {
    match outcome {
        None | Some("completed" | "blocked" | "stopped") => Tone::Usual,
        Some(_) => Tone::Bad,
    }
}

fn ended(launches: &[LaunchBody], now: Timestamp, shown: TextForm) -> Rows {
    let n_shown = if shown.is_wide { launches.len() } else { N_ENDED.min(launches.len()) };
    let launches = &launches[..n_shown];
    let rows = Rows::of_width(
        launches,
        shown.is_wide,
        &[
            (Width::Any, "ENDED", &|launch| launch.agent_id.to_string()),
            (Width::Any, "PROJECT", &|launch| launch.project_id.to_string()),
            (Width::Any, "TASK", &work_of),
            (Width::Any, "OUTCOME", &|launch| outcome_of(launch, now, shown.zone)),
            (Width::Any, "EXIT", &exit_of),
            (Width::Any, "AGO", &|launch| or_dash(launch.ended_at.map(|at| ago(at, now)))),
            (Width::Wide, "PURPOSE", &|launch| launch.purpose.to_string()),
            (Width::Wide, "USED", &|launch| used(launch.activity.usage.as_ref())),
            (Width::Wide, "TASK ID", &|launch| or_dash(launch.task_id.as_ref())),
            (Width::Wide, "LAUNCH", &|launch| launch.launch_id.to_string()),
        ],
    );
    rows.toned(launches.iter().map(|launch| tone_of(launch.outcome.as_deref())))
}
