//! Carries a plan out. It makes no choices: a failed action is reported, or the next cycle repeats
//! it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;

use super::Coordinator;
use super::control::{ControlPlane, Delivery};
use super::processes::ProcessLayer;
use crate::process::StartRequest;
use crate::provider::LaunchRequest;
use domain::launch::ProcessEnd;
use domain::plan::{Action, Plan, ProcessReport};
use domain::redact::Redactor;
use domain::transcript::last_open_call;
use domain::{CommandSpec, ConversationOrder, InstanceKey, LaunchId, Secret};
use machine::crash_point::{self, CrashPoint};
use machine::instance_dir;
use machine::instance_dir::record::{self, KeptReport, Record as _};
use machine::locks::lock;
use runtime::telemetry::ErrorChain;
use service::Claim;

/// The longest time that a start waits for files in the directory of its agent. The claim is over
/// then, and the start is tried again after a pause.
const FILES_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of launches whose actions are carried out at the same time. The store groups their
/// commits.
const N_AT_ONCE: usize = 64;
/// Added to the server's deadline for that of the shim, so that the shim still hears of an
/// authentication at the last moment.
const START_DEADLINE_MARGIN: Duration = Duration::from_secs(2);

/// The end of an output in which a call without a result is looked for, in bytes.
const MAX_OUTPUT: u64 = 256 * 1024;

/// The result of carrying out a plan.
pub(super) struct Acted {
    pub(super) n_started: u64,
    /// No action has to be repeated.
    pub(super) is_complete: bool,
    /// The server was told of ends. Their instances may be forgotten when the server knows of them.
    pub(super) has_told_ends: bool,
}

/// The server did not accept a call. The failure was logged, and the next cycle repeats the action.
struct NotDone;

impl<C: ControlPlane, P: ProcessLayer> Coordinator<C, P> {
    /// Carries out all actions. The actions of one launch keep their order, and starts come last.
    pub(super) async fn act(&self, actions: Vec<Action>) -> Acted {
        let mut by_launch: BTreeMap<LaunchId, Vec<Action>> = BTreeMap::new();
        let mut starts = Vec::new();
        let mut wishes = Vec::new();
        for action in actions {
            match action {
                Action::Workspace(job) => self.workspaces.begin(job),
                Action::Snapshot(order) => self.shared.snapshots.begin(order),
                Action::WantWorkspace { key } => wishes.push(key),
                Action::Start { key, ai_type, working_directory } => {
                    starts.push((key, ai_type, working_directory));
                }
                Action::Report { ref launch, .. }
                | Action::Forget { ref launch }
                | Action::MarkAuthenticated { ref launch }
                | Action::WantStop { ref launch, .. }
                | Action::Stop { ref launch, .. } => {
                    by_launch.entry(launch.clone()).or_default().push(action);
                }
            }
        }
        let has_told_ends = by_launch.values().flatten().any(|action| {
            matches!(action, Action::Report { report: ProcessReport::Ended { .. }, .. })
        });
        let acted = Acted { n_started: 0, is_complete: true, has_told_ends };
        let acted = stream::iter(by_launch.into_values())
            .map(|actions| self.act_on_launch(actions))
            .buffer_unordered(N_AT_ONCE)
            .fold(acted, |acted, done| async move {
                Acted { is_complete: acted.is_complete && done.is_ok(), ..acted }
            })
            .await;
        let acted = stream::iter(wishes)
            .map(|key| self.want_workspace(key))
            .buffer_unordered(N_AT_ONCE)
            .fold(acted, |acted, done| async move {
                Acted { is_complete: acted.is_complete && done.is_ok(), ..acted }
            })
            .await;
        stream::iter(starts)
            .map(|(key, ai_type, directory)| self.start(key, ai_type, directory))
            .buffer_unordered(N_AT_ONCE)
            .fold(acted, |acted, is_started| async move {
                Acted {
                    n_started: acted.n_started + u64::from(matches!(is_started, Ok(true))),
                    is_complete: acted.is_complete && is_started.is_ok(),
                    ..acted
                }
            })
            .await
    }

    /// Carries out the actions of one launch in their order: a reason comes before the end that it
    /// explains.
    async fn act_on_launch(&self, actions: Vec<Action>) -> Result<(), NotDone> {
        let mut actions = actions.into_iter().peekable();
        while let Some(action) = actions.next() {
            let Action::Report { launch, report } = action else {
                self.take(action).await?;
                continue;
            };
            // Consecutive reports of one launch are sent together: one commit instead of two.
            let mut reports = vec![report];
            while let Some(Action::Report { report, .. }) =
                actions.next_if(|next| matches!(next, Action::Report { .. }))
            {
                reports.push(report);
            }
            self.report(&launch, &reports).await?;
        }
        Ok(())
    }

    async fn report(&self, launch: &LaunchId, reports: &[ProcessReport]) -> Result<(), NotDone> {
        let points = || reports.iter().map(crash_points);
        points().for_each(|(seen, _)| crash_point::reach(seen));
        if reports.iter().any(|report| !matches!(report, ProcessReport::Started { .. })) {
            self.deliver_report(launch).await?;
        }
        if reports.iter().any(|report| matches!(report, ProcessReport::Ended { .. })) {
            self.tell_activity(launch).await;
        }
        if let Err(error) = self.control.report(launch, reports).await {
            tracing::warn!(launch_id = %launch, error = %ErrorChain(&error), "could not report the process to the server; will report again");
            return Err(NotDone);
        }
        points().for_each(|(_, reported)| crash_point::reach(reported));
        Ok(())
    }

    /// Delivers the report that the agent has left because it had no answer. The end of the process
    /// must not come first, because it ends the launch.
    async fn deliver_report(&self, launch: &LaunchId) -> Result<(), NotDone> {
        let Some(folder) = instance_dir::find(&self.config.state_dir, launch) else {
            return Ok(());
        };
        let Ok(Some(report)) = record::read::<KeptReport>(&folder) else { return Ok(()) };
        match self.control.deliver_report(launch, &report).await {
            Ok(Delivery::Taken) => {
                tracing::info!(launch_id = %launch, "delivered the report that the agent has left");
            }
            Ok(Delivery::Refused { code, message }) => tracing::warn!(
                launch_id = %launch, code, reason = message,
                "the server refused the report that the agent has left; it is not repeated"
            ),
            Err(error) => {
                tracing::warn!(
                    launch_id = %launch, error = %ErrorChain(&error),
                    "could not deliver the report of an agent; will try again"
                );
                return Err(NotDone);
            }
        }
        // A second delivery would change nothing.
        let _ = std::fs::remove_file(folder.join(KeptReport::FILE));
        Ok(())
    }

    async fn take(&self, action: Action) -> Result<(), NotDone> {
        match action {
            Action::WantStop { launch, reason } => {
                if let Err(error) = self.control.want_stop(&launch, reason).await {
                    tracing::warn!(launch_id = %launch, error = %ErrorChain(&error), "could not tell the server about a stop; will try again");
                    return Err(NotDone);
                }
            }
            Action::Stop { launch, reason } => {
                self.processes.request_stop(&launch, reason, None).await;
            }
            Action::MarkAuthenticated { launch } => {
                self.processes.mark_authenticated(&launch).await;
            }
            Action::Forget { launch } => self.processes.forget(&launch).await,
            // The callers handle these.
            Action::Report { .. }
            | Action::Start { .. }
            | Action::WantWorkspace { .. }
            | Action::Workspace(_)
            | Action::Snapshot(_) => {}
        }
        Ok(())
    }

    /// Reports the last activity of an agent before its end: later activity is not kept. A failure
    /// does not delay the report of the end.
    async fn tell_activity(&self, launch: &LaunchId) {
        let Some(activity) = self.output_watcher.read_to_end(launch).await else {
            return;
        };
        if let Err(error) = self.control.report_activity(launch, &activity).await {
            tracing::warn!(launch_id = %launch, error = %ErrorChain(&error), "could not report the activity");
        }
    }

    /// Returns true the first time that this `ai_type` is found to have no provider of its own.
    fn is_first_of(&self, ai_type: &str) -> bool {
        lock(&self.unknown_ai_types).insert(ai_type.to_owned())
    }

    async fn want_workspace(&self, key: InstanceKey) -> Result<(), NotDone> {
        self.control.want_workspace(&key).await.map_err(|error| {
            tracing::warn!(
                agent_id = %key.agent, project_id = %key.project, error = %ErrorChain(&error),
                "could not ask for a workspace; will try again"
            );
            NotDone
        })?;
        crash_point::reach(CrashPoint::WorkspaceWanted);
        Ok(())
    }

    /// Returns the command of an agent. It may depend on files in its directory, unless this machine
    /// is not looked at.
    async fn command_of(&self, request: &LaunchRequest) -> Result<CommandSpec, String> {
        if !self.faults.is_on {
            return self.config.providers.command(request).map_err(|error| error.to_string());
        }
        let providers = self.config.providers.clone();
        let order = request.clone();
        let made = tokio::task::spawn_blocking(move || providers.command(&order));
        let Ok(made) = tokio::time::timeout(FILES_TIMEOUT, made).await else {
            let directory = request.working_directory.display();
            return Err(format!("the file system of `{directory}` does not answer"));
        };
        made.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }

    /// Returns the call without a result in the output before an interruption, as one line. The
    /// output of the launch may be gone.
    async fn last_call(&self, conversation: Option<&ConversationOrder>) -> Option<String> {
        let launch = conversation?.resumed.as_ref()?.last_launch.clone()?;
        if !self.faults.is_on {
            return None;
        }
        let state_dir = self.config.state_dir.clone();
        let read = move || {
            let folder = instance_dir::find(&state_dir, &launch)?;
            let output = instance_dir::output_tail(&folder, MAX_OUTPUT).ok()?;
            last_open_call(output.lines())
        };
        let read = tokio::task::spawn_blocking(read);
        let call = tokio::time::timeout(FILES_TIMEOUT, read).await.ok()?.ok()??;
        let secrets = self.config.providers.redacted.iter().map(Secret::reveal);
        Some(Redactor::for_texts(secrets).redact_text(&call).into_owned())
    }

    /// Claims the start and then starts the process. A failure after the claim is reported at once.
    async fn start(
        &self,
        key: InstanceKey,
        expected_ai_type: String,
        working_directory: PathBuf,
    ) -> Result<bool, NotDone> {
        // The time is read before the claim, so that the duration of the call counts for the start
        // deadline.
        let asked_at = self.processes.boot_now();
        let entry = self.config.providers.entry(&expected_ai_type);
        let claim = match self.control.claim(&key, &entry).await {
            Ok(Some(claim)) => claim,
            Ok(None) => return Ok(false),
            Err(error) => {
                tracing::warn!(
                    agent_id = %key.agent, project_id = %key.project, error = %ErrorChain(&error),
                    "could not claim the start; will try again"
                );
                return Err(NotDone);
            }
        };
        let Claim { launch, ai_type, deadline, ticket, attempt, clone, check, conversation } =
            claim;
        // The rest of the time: a reservation that is found again is not a new one.
        let start_timeout = deadline.since(self.control.now());
        crash_point::reach(CrashPoint::Claimed);
        self.shared.snapshots.claimed(&key, &launch);
        let check = check.map(|check| self.workspaces.with_note(check));
        let clean = check.as_ref().and_then(|check| check.clean.as_deref());
        let folders =
            clone.as_ref().and_then(|clone| self.workspaces.folders(&key.project, clone, clean));
        let working_directory = match &clone {
            None => Ok(working_directory),
            Some(clone) => self.workspaces.directory(&key.project, clone, clean),
        };
        if self.processes.instances().iter().any(|instance| instance.launch == launch) {
            // The process runs here. A server that grants its launch once more does not end it.
            tracing::warn!(launch_id = %launch, "the server granted a start whose launch has a process already");
            return Ok(false);
        }
        let request = LaunchRequest {
            launch: launch.clone(),
            key: key.clone(),
            ai_type: ai_type.clone(),
            working_directory: working_directory.as_deref().unwrap_or(Path::new("")).to_owned(),
            clone: folders,
            passkey: ticket.unwrap_or_else(|| Secret::new("")),
            attempt,
            last_call: self.last_call(conversation.as_ref()).await,
            conversation,
        };
        let command = match &check {
            Some(check) => {
                let command = self.config.providers.check_command(&request, check);
                command.map_err(|error| error.to_string())
            }
            None => self.command_of(&request).await,
        };
        let started = match working_directory.and_then(|_| {
            let command = command?;
            if check.is_some() {
                self.faults.note_check(&key, &ai_type, &command);
            }
            if let Some(clone) = &clone {
                self.workspaces.check_owner(&key.project, clone, command.run_as.as_ref())?;
            }
            Ok(command)
        }) {
            Err(error) => Err(error),
            // A server elsewhere cannot name a folder of this machine relative to the directory
            // where its coordinator happens to run.
            Ok(command) if !command.working_directory.is_absolute() => Err(format!(
                "working directory `{}` is not absolute",
                command.working_directory.display()
            )),
            Ok(command) => {
                // The rest of the time until a deadline can be any value if a clock was set since
                // the deadline was made. It is therefore limited to the start timeout.
                let most = self
                    .server
                    .seen
                    .as_ref()
                    .and_then(|seen| seen.limits.start_timeout)
                    .unwrap_or(Duration::MAX);
                // The deadline of a check is the time limit of its command.
                let most = if check.is_some() { Duration::MAX } else { most };
                let start_deadline = asked_at + start_timeout.min(most) + START_DEADLINE_MARGIN;
                let request = StartRequest {
                    launch: launch.clone(),
                    key: key.clone(),
                    command,
                    start_deadline,
                };
                self.processes.start(request).await.map_err(|error| ErrorChain(&error).to_string())
            }
        };
        match started {
            Ok(()) => {
                let of = check.as_ref().map_or(&ai_type, |check| &check.provider);
                let (provider, _) = self.config.providers.find(of);
                if check.is_none() && provider != ai_type && self.is_first_of(&ai_type) {
                    tracing::warn!(
                        ai_type,
                        provider,
                        "no provider of this name is configured; using another"
                    );
                }
                tracing::info!(
                    launch_id = %launch, agent_id = %key.agent, project_id = %key.project, purpose = %key.purpose,
                    provider, working_directory = %request.working_directory.display(),
                    conversation = how_it_goes_on(request.conversation.as_ref()),
                    "agent started"
                );
                Ok(true)
            }
            Err(reason) => {
                tracing::warn!(
                    launch_id = %launch, agent_id = %key.agent, project_id = %key.project, purpose = %key.purpose,
                    reason, "agent could not be started"
                );
                let end = ProcessEnd::StartFailed(reason);
                let report = ProcessReport::Ended { end, at: self.control.now() };
                self.report(&launch, &[report]).await.map(|()| false)
            }
        }
    }
}

/// Returns the word of the log for a launch that begins or continues a conversation.
fn how_it_goes_on(conversation: Option<&ConversationOrder>) -> Option<&'static str> {
    conversation.map(|order| if order.resumed.is_some() { "continued" } else { "begun" })
}

pub(super) fn log_stops(plan: &Plan) {
    for action in &plan.actions {
        if let Action::Stop { launch, reason } = action {
            tracing::info!(launch_id = %launch, reason = %reason, "stopping the agent");
        }
    }
}

/// Returns the crash points before and after a report.
const fn crash_points(report: &ProcessReport) -> (CrashPoint, CrashPoint) {
    match report {
        ProcessReport::Started { .. } => (CrashPoint::StartSeen, CrashPoint::StartReported),
        ProcessReport::Exited { .. } => (CrashPoint::ExitSeen, CrashPoint::ExitReported),
        ProcessReport::Ended { .. } => (CrashPoint::EndSeen, CrashPoint::EndReported),
    }
}
