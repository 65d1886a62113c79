//! Runs the operator's hooks in workspaces, each under a shim, in a process table for hooks alone.
//! A shim ends its hook with all its processes at the time limit, also when the daemon has died,
//! and the next daemon ends what is left before it uses a workspace.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::OnceCell;

use crate::process::{self, BootInstant, OpenError, ProcessConfig, ProcessTable, StartRequest};
use crate::provider::{CloneFolders, LaunchRequest, Providers};
use config::WorkspaceHooks;
use domain::agent::DEFAULT_AI_TYPE;
use domain::id::InvalidId;
use domain::launch::{ExitStatus, ProcessEnd};
use domain::start_history::Backoff;
use domain::workspace::{Hook, HookFacts};
use domain::{
    AgentId, Attempt, Instance, InstanceKey, LaunchId, Phase, Purpose, RunAs, Secret, StopReason,
    Timestamp, WorkspaceId,
};
use machine::crash_point::{self, CrashPoint};
use machine::instance_dir;
use machine::locks::lock;
use runtime::clock;
use runtime::nudge::Nudge;
use runtime::telemetry::ErrorChain;
use service::world::{SystemWorld, World};

/// The end of the output of a hook that the log gets, in bytes.
const MAX_LOGGED: u64 = 4 * 1024;
/// The end of the last line of the output that people see with a failure, in characters.
const MAX_SHOWN: usize = 200;
/// The size of the kept output of a hook that runs, in bytes.
const MAX_OUTPUT: u64 = 1024 * 1024;
/// The longest time for the end of the hooks of an earlier daemon, which were killed.
const LONGEST_END: Duration = Duration::from_secs(10);

/// The settings for hooks.
#[derive(Debug, Clone)]
pub struct HookSettings {
    pub hooks: WorkspaceHooks,
    /// The waits after failures.
    pub backoff: Backoff,
    pub providers: Providers,
    /// The settings for their processes. The state directory is for hooks alone.
    pub processes: ProcessConfig,
}

/// The hooks of this host.
pub struct HookRunner {
    settings: Mutex<Arc<HookSettings>>,
    /// Opened for the first hook, or if an earlier daemon ran hooks.
    table: OnceCell<ProcessTable>,
    memory: Mutex<Memory>,
}

/// The results of hooks that later steps need. The next daemon runs the hooks again.
#[derive(Default)]
struct Memory {
    /// The workspaces whose hook before the next launch has passed.
    before_run: BTreeSet<WorkspaceId>,
    /// The last launch after which a hook ran, with the failure of the hook.
    after_run: BTreeMap<WorkspaceId, (LaunchId, Option<String>)>,
    /// The workspaces whose hook before the removal has passed.
    before_remove: BTreeSet<WorkspaceId>,
    /// The failures in a row.
    failures: BTreeMap<WorkspaceId, Failures>,
    /// A launch found a workspace of another user than its agent's, although no provider names one.
    has_other_owners: bool,
}

/// The failures in a row of the hooks of a workspace.
struct Failures {
    n: u32,
    since: Timestamp,
}

impl HookRunner {
    pub fn new(settings: HookSettings) -> Self {
        Self {
            settings: Mutex::new(Arc::new(settings)),
            table: OnceCell::new(),
            memory: Mutex::default(),
        }
    }

    /// Uses these settings from the next hook on.
    pub async fn reconfigure(&self, settings: HookSettings) {
        if let Some(table) = self.table.get() {
            // If the table is gone, hooks fail.
            let _ = table.reconfigure(limited(settings.processes.clone())).await;
        }
        *lock(&self.settings) = Arc::new(settings);
    }

    /// Ends the hooks that an earlier daemon left behind. Later calls wait for the first one.
    pub async fn end_earlier(&self) {
        let folder = self.settings().processes.state_dir.clone();
        if folder.exists()
            && let Err(error) = self.table().await
        {
            let error = ErrorChain(&error);
            tracing::error!(%error, "could not look for hooks of an earlier daemon");
        }
    }

    /// Ends all hooks, within `timeout` from SIGTERM to SIGKILL. No further hook starts.
    pub async fn end(&self, timeout: Duration) {
        if let Some(table) = self.table.get() {
            stop_all(table, StopReason::Shutdown, timeout).await;
            table.until_idle().await;
            table.clone().leave().await;
        }
    }

    /// Returns the workspaces that are ready for the next launch; `None` if that takes no step.
    pub(super) fn passed(&self) -> Option<BTreeSet<WorkspaceId>> {
        let takes_step = self.has(Hook::BeforeRun) || self.has_users();
        let memory = lock(&self.memory);
        (takes_step || memory.has_other_owners).then(|| memory.before_run.clone())
    }

    /// Returns whether agents run as other users than the daemon.
    pub(super) fn has_users(&self) -> bool {
        self.settings().providers.entries.values().any(|provider| provider.run_as.is_some())
    }

    /// Returns the user of the agent that a workspace is for; `None` for the daemon's own user.
    ///
    /// # Errors
    /// The machine has no such user.
    pub(super) fn user_of(&self, facts: &HookFacts) -> Result<Option<RunAs>, String> {
        let provider = facts.ai_type.as_deref().unwrap_or(DEFAULT_AI_TYPE);
        let settings = self.settings();
        let user = settings.providers.run_as(provider).map_err(|error| error.to_string())?;
        Ok(user.filter(|user| user.uid != rustix::process::geteuid().as_raw()).cloned())
    }

    /// Notes that a workspace is ready for the next launch.
    pub(super) fn note_ready(&self, id: &WorkspaceId) {
        lock(&self.memory).before_run.insert(id.clone());
    }

    /// Notes that a workspace belongs to another user than the agent's that was to use it.
    pub(super) fn note_other_owner(&self) {
        lock(&self.memory).has_other_owners = true;
    }

    /// Notes that a launch uses a workspace. Its hooks run anew for the next launch.
    pub(super) fn note_claim(&self, id: &WorkspaceId) {
        let mut memory = lock(&self.memory);
        memory.before_run.remove(id);
        memory.before_remove.remove(id);
    }

    /// Returns since when the hooks of workspaces have been failing.
    pub(super) fn failing(&self) -> BTreeMap<WorkspaceId, Timestamp> {
        let memory = lock(&self.memory);
        memory.failures.iter().map(|(id, failures)| (id.clone(), failures.since)).collect()
    }

    /// Forgets a workspace whose files are gone.
    pub(super) fn forget(&self, id: &WorkspaceId) {
        let mut memory = lock(&self.memory);
        memory.before_run.remove(id);
        memory.before_remove.remove(id);
        memory.after_run.remove(id);
        memory.failures.remove(id);
    }

    /// Returns whether there is a command for this hook.
    pub(super) fn has(&self, hook: Hook) -> bool {
        self.settings().hooks.command(hook).is_some()
    }

    /// Returns whether the hook need not run, because it has passed or because there is none.
    pub(super) fn is_done(&self, hook: Hook, id: &WorkspaceId) -> bool {
        if !self.has(hook) {
            return true;
        }
        let memory = lock(&self.memory);
        match hook {
            Hook::AfterCreate | Hook::AfterRun => false,
            Hook::BeforeRun => memory.before_run.contains(id),
            Hook::BeforeRemove => memory.before_remove.contains(id),
        }
    }

    /// Runs the hook after a launch, once for each launch. Returns its failure.
    pub(super) async fn run_after(
        &self,
        facts: &HookFacts,
        folders: &CloneFolders,
    ) -> Option<String> {
        let ended = facts.ended_launch.clone()?;
        let known = lock(&self.memory).after_run.get(&facts.id).cloned();
        if let Some((_, failure)) = known.filter(|(launch, _)| *launch == ended) {
            return failure;
        }
        let failure = self.run(Hook::AfterRun, facts, folders).await.err();
        lock(&self.memory).after_run.insert(facts.id.clone(), (ended, failure.clone()));
        failure
    }

    /// Returns the pause after a hook of a workspace has failed.
    pub(super) fn pause(&self, id: &WorkspaceId) -> Duration {
        let n_failures = lock(&self.memory).failures.get(id).map_or(1, |failures| failures.n);
        self.settings().backoff.delay(n_failures)
    }

    /// Runs a hook at the top of a workspace.
    ///
    /// # Errors
    /// The failure, as people see it.
    pub(super) async fn run(
        &self,
        hook: Hook,
        facts: &HookFacts,
        folders: &CloneFolders,
    ) -> Result<(), String> {
        let ended = self.run_to_end(hook, facts, folders).await;
        let mut memory = lock(&self.memory);
        if let Err(reason) = ended {
            if hook != Hook::AfterRun {
                let first = || Failures { n: 0, since: SystemWorld.now() };
                memory.failures.entry(facts.id.clone()).or_insert_with(first).n += 1;
            }
            drop(memory);
            tracing::warn!(
                workspace_id = %facts.id, task_id = %facts.task, project_id = %facts.project, %hook,
                reason, "hook failed"
            );
            return Err(hook.failure(&reason));
        }
        memory.failures.remove(&facts.id);
        match hook {
            Hook::BeforeRun => {
                memory.before_run.insert(facts.id.clone());
            }
            Hook::BeforeRemove => {
                memory.before_remove.insert(facts.id.clone());
            }
            Hook::AfterCreate | Hook::AfterRun => {}
        }
        drop(memory);
        crash_point::reach(CrashPoint::HookPassed);
        Ok(())
    }

    async fn run_to_end(
        &self,
        hook: Hook,
        facts: &HookFacts,
        folders: &CloneFolders,
    ) -> Result<(), String> {
        let settings = self.settings();
        let Some(command) = settings.hooks.command(hook) else {
            return Ok(());
        };
        let world: &dyn World = &SystemWorld;
        let launch: LaunchId = world.new_id(LaunchId::PREFIX);
        // The table allows one process of each key. A workspace has one step at a time.
        let agent: AgentId =
            facts.id.as_str().parse().map_err(|error: InvalidId| error.to_string())?;
        let key = InstanceKey { agent, project: facts.project.clone(), purpose: Purpose::Check };
        let of_agent = facts
            .agent
            .clone()
            .map_or_else(|| key.clone(), |agent| InstanceKey { agent, ..key.clone() });
        let request = LaunchRequest {
            launch: launch.clone(),
            key: of_agent,
            ai_type: String::new(),
            working_directory: folders.tree.clone(),
            clone: Some(folders.clone()),
            passkey: Secret::new(""),
            attempt: Attempt::FIRST,
            conversation: None,
            last_call: None,
        };
        let provider = facts.ai_type.as_deref().unwrap_or(DEFAULT_AI_TYPE);
        let command = settings
            .providers
            .hook_command(&request, provider, command, variables(facts))
            .map_err(|error| error.to_string())?;
        let table = self.table().await.map_err(|error| ErrorChain(&error).to_string())?;
        let began = clock::now();
        let start_deadline = BootInstant::now() + settings.hooks.timeout;
        let request = StartRequest { launch: launch.clone(), key, command, start_deadline };
        table.start(request).await.map_err(|error| ErrorChain(&error).to_string())?;
        let ended = table.until_ended(&launch).await;
        let output = take_output(table, &launch, &settings.processes.state_dir).await;
        let exit = ended.as_ref().and_then(exit_of).unwrap_or_default();
        tracing::info!(
            workspace_id = %facts.id, task_id = %facts.task, project_id = %facts.project, %hook,
            exit_code = exit.exit_code, signal = exit.signal,
            duration_ms = domain::time::millis(began.elapsed()),
            output, "hook ended"
        );
        match ended {
            Some(ended) => verdict(&ended, settings.hooks.timeout, &output),
            None => Err("its end was not seen".to_owned()),
        }
    }

    fn settings(&self) -> Arc<HookSettings> {
        Arc::clone(&lock(&self.settings))
    }

    /// Returns the table, in which nothing of an earlier daemon lives.
    async fn table(&self) -> Result<&ProcessTable, OpenError> {
        let open = || async {
            let processes = limited(self.settings().processes.clone());
            let folder = processes.state_dir.clone();
            let failed = |source| OpenError::StateDir { path: folder.clone(), source };
            match instance_dir::create_private(&folder) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(failed(error));
                }
                _ => {}
            }
            let (table, adoption) = process::open(processes, Nudge::new()).await?;
            if adoption.n_adopted > 0 {
                tracing::warn!(n = adoption.n_adopted, "ending hooks of an earlier daemon");
            }
            stop_all(&table, StopReason::Unknown, Duration::ZERO).await;
            if tokio::time::timeout(LONGEST_END, table.until_idle()).await.is_err() {
                tracing::error!("hooks of an earlier daemon do not end although they were killed");
            }
            for instance in table.instances().iter() {
                take_output(&table, &instance.launch, &folder).await;
            }
            Ok(table)
        };
        self.table.get_or_try_init(open).await
    }
}

/// Returns the settings with the limits for the output of hooks.
fn limited(mut processes: ProcessConfig) -> ProcessConfig {
    processes.output.max_file = processes.output.max_file.min(MAX_OUTPUT);
    processes.output.files = 1;
    processes
}

/// Returns the variables that a hook gets.
fn variables(facts: &HookFacts) -> Vec<(String, String)> {
    let text = |id: &Option<_>| id.as_ref().map(ToString::to_string).unwrap_or_default();
    let all = [
        ("WORKSPACE_ID", facts.id.to_string()),
        ("TASK_ID", facts.task.to_string()),
        ("AGENT_ID", text(&facts.agent)),
        ("PROJECT_ID", facts.project.to_string()),
        ("WORKSPACE_BASE", facts.base_commit.clone().unwrap_or_default()),
    ];
    all.map(|(name, value)| (name.to_owned(), value)).into()
}

async fn stop_all(table: &ProcessTable, reason: StopReason, timeout: Duration) {
    for instance in table.instances().iter().filter(|instance| instance.is_live()) {
        let _ = table.request_stop(&instance.launch, reason, Some(timeout)).await;
    }
}

/// Returns the end of the output of a hook that has ended, and removes all that is known of it.
async fn take_output(table: &ProcessTable, launch: &LaunchId, state_dir: &Path) -> String {
    let folder: PathBuf = instance_dir::instance(state_dir, launch);
    let read = move || instance_dir::output_tail(&folder, MAX_LOGGED).unwrap_or_default();
    let output = tokio::task::spawn_blocking(read).await.unwrap_or_default();
    let _ = table.forget(launch).await;
    let folder = instance_dir::ended_instance(state_dir, launch);
    // If it stays, it is only litter.
    let _ = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(folder)).await;
    output
}

fn exit_of(instance: &Instance) -> Option<ExitStatus> {
    match &instance.phase {
        Phase::Ended { end, .. } => end.exit(),
        Phase::Starting | Phase::Running { .. } | Phase::Exited { .. } => None,
    }
}

/// Returns whether a hook passed, or why it failed.
fn verdict(ended: &Instance, timeout: Duration, output: &str) -> Result<(), String> {
    let Phase::Ended { end, .. } = &ended.phase else {
        return Err("its end was not seen".to_owned());
    };
    let with_last_line = |what: String| {
        let last = output.lines().rev().map(str::trim).find(|line| !line.is_empty());
        last.map_or_else(
            || what.clone(),
            |line| format!("{what}: {}", line.chars().take(MAX_SHOWN).collect::<String>()),
        )
    };
    match (ended.stop, end) {
        (Some(StopReason::StartTimeout), _) | (_, ProcessEnd::StartDeadlinePassed) => {
            Err(format!("it did not end within {} s", timeout.as_secs()))
        }
        (Some(_), _) => Err("it was stopped".to_owned()),
        (None, ProcessEnd::Lost) => Err("its end was not seen".to_owned()),
        (None, ProcessEnd::StartFailed(why)) => Err(why.clone()),
        (None, ProcessEnd::Exited(ExitStatus { exit_code: Some(0), .. })) => Ok(()),
        (None, ProcessEnd::Exited(ExitStatus { exit_code: Some(code), .. })) => {
            Err(with_last_line(format!("exit code {code}")))
        }
        (None, ProcessEnd::Exited(ExitStatus { signal, .. })) => {
            let signal = signal.map_or_else(|| "a signal".to_owned(), |n| format!("signal {n}"));
            Err(with_last_line(format!("it was ended by {signal}")))
        }
    }
}
