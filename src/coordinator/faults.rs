//! Looks at the programs, directories and users of starts before they are claimed, so that a fault
//! that a person mends makes no failed launch. It looks with the command that the launch would
//! have. It looks again in each cycle that has such a start: after a reload and a `resume`, and at
//! least once a minute.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::{ControlPlane, Coordinator, ProcessLayer};
use crate::clock;
use crate::domain::start_history::{Candidate, StartReason};
use crate::domain::{Attempt, CommandSpec, InstanceKey, LaunchId, Purpose, Secret};
use crate::locks::lock;
use crate::process::{StartFault, find_fault};
use crate::provider::{CORRECT_PROGRAM, LaunchRequest, Providers};

/// The longest time that the loop waits for a look.
const LONGEST_LOOK: Duration = Duration::from_millis(500);

type Faults = BTreeMap<InstanceKey, String>;

/// The faults of the starts that wait on this machine.
#[derive(Default)]
pub(super) struct StartFaults {
    is_on: bool,
    /// The last commands of checks. Only a claim tells the command of a check.
    checks: Mutex<BTreeMap<InstanceKey, CommandSpec>>,
    found: Faults,
    /// The last look found other faults than the one before. Nothing announces that.
    pub(super) has_changed: bool,
    /// A look that has not ended, because the file system or the directory of users hangs.
    late: Option<JoinHandle<Faults>>,
}

/// The starts with the same command.
struct Look {
    keys: Vec<InstanceKey>,
    command: Result<CommandSpec, String>,
    installation: &'static str,
}

impl<C: ControlPlane, P: ProcessLayer> Coordinator<C, P> {
    /// Looks for faults of starts on this machine. Without that, each start is tried.
    #[must_use]
    pub fn with_start_faults(mut self) -> Self {
        self.faults.is_on = true;
        self
    }
}

impl StartFaults {
    /// Forgets the commands of checks, because the configuration has changed.
    pub(super) fn forget_checks(&self) {
        lock(&self.checks).clear();
    }

    /// Notes the command of a check that is about to start. The next check of the key may have
    /// another directory.
    pub(super) fn note_check(&self, key: &InstanceKey, command: &CommandSpec) {
        if self.is_on {
            let command = CommandSpec { working_directory: "/".into(), ..command.clone() };
            lock(&self.checks).insert(key.clone(), command);
        }
    }

    /// Returns the faults of the starts that could be made now. All of them are found in one look.
    /// A look that does not end in time changes nothing.
    pub(super) async fn find(&mut self, startable: &[Candidate], providers: &Providers) -> Faults {
        let looks = if self.is_on { self.looks(startable, providers) } else { Vec::new() };
        self.has_changed = false;
        if looks.is_empty() {
            self.found.clear();
            return Faults::new();
        }
        let is_late = self.late.is_some();
        let look =
            self.late.get_or_insert_with(|| tokio::task::spawn_blocking(move || look_at(looks)));
        let until = if is_late { clock::now() } else { clock::now() + LONGEST_LOOK };
        if let Ok(found) = tokio::time::timeout_at(until, look).await {
            self.late = None;
            let found = found.unwrap_or_default();
            for (key, fault) in &found {
                if self.found.get(key) != Some(fault) {
                    tracing::warn!(
                        agent_id = %key.agent, project_id = %key.project, purpose = %key.purpose,
                        reason = fault, "the agent cannot be started until a person mends it"
                    );
                }
            }
            self.has_changed = self.found != found;
            self.found = found;
        }
        self.found.clone()
    }

    fn looks(&self, startable: &[Candidate], providers: &Providers) -> Vec<Look> {
        let mut looks = Vec::new();
        let mut of_agents: BTreeMap<(&str, &Path), Vec<InstanceKey>> = BTreeMap::new();
        let reasons = [StartReason::Ready, StartReason::Backoff, StartReason::PreparingWorkspace];
        let may_start = |it: &&Candidate| reasons.contains(&it.reason);
        for candidate in startable.iter().filter(may_start) {
            if candidate.key.purpose == Purpose::Check {
                let command = lock(&self.checks).get(&candidate.key).cloned();
                looks.extend(command.map(|command| Look {
                    keys: vec![candidate.key.clone()],
                    command: Ok(command),
                    installation: "correct its `command` in `checks`, or install it",
                }));
                continue;
            }
            // A server of the three steps names the provider with the grant.
            if candidate.ai_type.is_empty() {
                continue;
            }
            // A clone exists when it is claimed.
            let directory = if candidate.needs_clone {
                Path::new("/")
            } else {
                candidate.working_directory.as_path()
            };
            let same = of_agents.entry((candidate.ai_type.as_str(), directory)).or_default();
            same.push(candidate.key.clone());
        }
        looks.extend(of_agents.into_iter().map(|((ai_type, directory), keys)| {
            let command = command_of(&keys[0], ai_type, directory.to_owned(), providers);
            let installation = providers.installation(ai_type).unwrap_or(CORRECT_PROGRAM);
            Look { keys, command, installation }
        }));
        // A relative path begins at a directory that is not known yet.
        looks.retain(|look| !begins_in_clone(look));
        looks
    }
}

/// Returns whether the program is at a relative path in a clone.
fn begins_in_clone(look: &Look) -> bool {
    look.command.as_ref().is_ok_and(|command| {
        let program = command.wrap.first().unwrap_or(&command.program);
        let is_relative = program.contains('/') && !program.starts_with('/');
        is_relative && command.working_directory == Path::new("/")
    })
}

fn command_of(
    key: &InstanceKey,
    ai_type: &str,
    working_directory: PathBuf,
    providers: &Providers,
) -> Result<CommandSpec, String> {
    let launch: LaunchId = "lch_look".parse().expect("a literal in the grammar of ids");
    let request = LaunchRequest {
        launch,
        key: key.clone(),
        ai_type: ai_type.to_owned(),
        working_directory,
        clone: None,
        passkey: Secret::new(""),
        attempt: Attempt::FIRST,
    };
    providers.command(&request).map_err(|error| error.to_string())
}

fn look_at(looks: Vec<Look>) -> Faults {
    let mut found = Faults::new();
    for Look { keys, command, installation } in looks {
        let fault = match &command {
            Ok(command) => find_fault(command).map(|fault| with_remedy(&fault, installation)),
            Err(error) => Some(error.clone()),
        };
        let of_key = |key| Some((key, fault.clone()?));
        found.extend(keys.into_iter().filter_map(of_key));
    }
    found
}

fn with_remedy(fault: &StartFault, installation: &str) -> String {
    let remedy = match fault {
        StartFault::Directory(_) => "make it, or correct the directory of the project",
        StartFault::Program(_) => installation,
        StartFault::Wrapper(_) => "correct `wrap`, or install it",
        StartFault::User(_) => "make the user, or correct `run_as`, and reload the configuration",
    };
    format!("{fault}; {remedy}")
}
