//! Looks at the programs, directories and users of starts before they are claimed, so that a fault
//! that a person mends makes no failed launch. It looks with the command that the launch would
//! have. It looks again in each cycle that has such a start: after a reload and a `resume`, and at
//! least once a minute.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{ControlPlane, Coordinator, ProcessLayer};
use crate::process::{StartFault, find_elsewhere, find_fault};
use crate::provider::{CORRECT_PROGRAM, LaunchRequest, Providers};
use config::ProviderConfig;
use domain::start_history::{Candidate, StartReason};
use domain::{Attempt, CommandSpec, InstanceKey, Purpose, Secret};
use machine::locks::lock;
use machine::sys::usual_folders::Elsewhere;
use runtime::clock;

/// The longest time that the loop waits for a look. A start that is tried before its first look has
/// ended may be a failed launch, so this is long even for a busy machine.
const LONGEST_LOOK: Duration = Duration::from_secs(2);
/// The longest time for which a look that hangs keeps what was found before it.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

type Faults = BTreeMap<InstanceKey, String>;

/// The faults of the starts that wait on this machine.
#[derive(Default)]
pub(super) struct StartFaults {
    pub(super) is_on: bool,
    /// The last commands of checks, with their providers. Only a claim tells the command of a check.
    checks: Mutex<BTreeMap<InstanceKey, (String, CommandSpec)>>,
    found: Faults,
    /// The last look found other faults than the one before. Nothing announces that.
    pub(super) has_changed: bool,
    /// A look that has not ended, because the file system or the directory of users hangs.
    late: Option<LateLook>,
}

struct LateLook {
    since: Instant,
    found: JoinHandle<Faults>,
}

/// The starts with the same command.
struct CommandStarts {
    keys: Vec<InstanceKey>,
    start: Start,
}

/// The command of a start, or what it is made of. The command of an agent may depend on files.
enum Start {
    Check(CommandSpec),
    Agent(LaunchRequest),
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
    /// another directory, so a program in this one tells nothing about it.
    pub(super) fn note_check(&self, key: &InstanceKey, ai_type: &str, command: &CommandSpec) {
        if self.is_on
            && let Some(command) = anywhere(command.clone())
        {
            lock(&self.checks).insert(key.clone(), (ai_type.to_owned(), command));
        }
    }

    /// Returns the faults of the starts that could be made now. All of them are found in one look.
    /// A look that does not end in time changes nothing. After a minute, each start is tried.
    pub(super) async fn find(&mut self, startable: &[Candidate], providers: &Providers) -> Faults {
        let looks = if self.is_on { self.looks(startable) } else { Vec::new() };
        self.has_changed = false;
        if looks.is_empty() {
            self.found.clear();
            return Faults::new();
        }
        let now = clock::now();
        let until = if self.late.is_some() { now } else { now + LONGEST_LOOK };
        let LateLook { since, found } = self.late.get_or_insert_with(|| {
            let providers = providers.clone();
            let found = tokio::task::spawn_blocking(move || look_at(looks, &providers));
            LateLook { since: now, found }
        });
        let is_hung = now.saturating_duration_since(*since) >= LONGEST_WAIT;
        match tokio::time::timeout_at(until, found).await {
            Ok(found) => {
                self.late = None;
                self.note(found.unwrap_or_default());
            }
            Err(_) if is_hung => self.note(Faults::new()),
            Err(_) => {}
        }
        self.found.clone()
    }

    fn note(&mut self, found: Faults) {
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

    fn looks(&self, startable: &[Candidate]) -> Vec<CommandStarts> {
        let mut looks = Vec::new();
        let mut of_agents: BTreeMap<(&str, &Path), Vec<InstanceKey>> = BTreeMap::new();
        let reasons = [StartReason::Ready, StartReason::Backoff, StartReason::PreparingWorkspace];
        let may_start = |it: &&Candidate| reasons.contains(&it.reason);
        for candidate in startable.iter().filter(may_start) {
            if candidate.key.purpose == Purpose::Check {
                let noted = lock(&self.checks).get(&candidate.key).cloned();
                let noted = noted.filter(|(ai_type, _)| *ai_type == candidate.ai_type);
                looks.extend(noted.map(|(_, command)| CommandStarts {
                    keys: vec![candidate.key.clone()],
                    start: Start::Check(command),
                }));
                continue;
            }
            // A server of the three steps names the provider with the grant.
            if candidate.ai_type.is_empty() {
                continue;
            }
            let directory = if candidate.needs_clone {
                Path::new(IN_CLONE)
            } else {
                candidate.working_directory.as_path()
            };
            let same = of_agents.entry((candidate.ai_type.as_str(), directory)).or_default();
            same.push(candidate.key.clone());
        }
        looks.extend(of_agents.into_iter().map(|((ai_type, directory), keys)| {
            let request = request_of(&keys[0], ai_type, directory.to_owned());
            CommandStarts { keys, start: Start::Agent(request) }
        }));
        looks
    }
}

/// The directory of a start whose clone is not known yet. No program is there: a command that begins
/// below it is not looked at.
const IN_CLONE: &str = "/proc/0/clone";

/// Returns whether a program of a command is looked for in this folder: the first one by its path,
/// or any by the `PATH`, such as that of a wrapper or the interpreter of a script. A relative path
/// begins in the working directory, and so does an empty folder of the `PATH`.
fn leads_into(folder: &Path, command: &CommandSpec) -> bool {
    let is_inside = |path: &str| !path.starts_with('/') || Path::new(path).starts_with(folder);
    let first = command.wrap.first().unwrap_or(&command.program);
    let variable = command.environment.iter().find(|(name, _)| name == "PATH");
    let is_in_path = variable.is_some_and(|(_, path)| path.reveal().split(':').any(is_inside));
    is_in_path || first.contains('/') && is_inside(first)
}

fn request_of(key: &InstanceKey, ai_type: &str, working_directory: PathBuf) -> LaunchRequest {
    LaunchRequest {
        launch: "lch_look".parse().expect("a literal in the grammar of ids"),
        key: key.clone(),
        ai_type: ai_type.to_owned(),
        working_directory,
        clone: None,
        passkey: Secret::new(""),
        attempt: Attempt::FIRST,
        conversation: None,
        last_call: None,
    }
}

/// Returns the command of the agents of an `ai_type` in any directory. `None` if there is none, or
/// if it begins in its directory.
pub fn command_anywhere(ai_type: &str, providers: &Providers) -> Option<CommandSpec> {
    let literal = "a literal in the grammar of ids";
    let agent = "agt_look".parse().expect(literal);
    let key = InstanceKey::new(agent, "prj_look".parse().expect(literal), Purpose::Task);
    let request = request_of(&key, ai_type, IN_CLONE.into());
    providers.command(&request).ok().and_then(anywhere)
}

/// Returns the command in a directory that exists; `None` if it begins in its own one.
pub fn anywhere(command: CommandSpec) -> Option<CommandSpec> {
    let begins_there = leads_into(&command.working_directory, &command);
    (!begins_there).then(|| CommandSpec { working_directory: "/".into(), ..command })
}

/// Returns the faults of these starts. Blocks.
fn look_at(looks: Vec<CommandStarts>, providers: &Providers) -> Faults {
    let mut found = Faults::new();
    for CommandStarts { keys, start } in looks {
        let fault = match start {
            Start::Check(command) => find_fault(&command).map(|fault| {
                let remedy = remedy(&fault, "correct its `command` in `checks`, or install it");
                format!("{fault}; {remedy}")
            }),
            Start::Agent(request) => match providers.command(&request) {
                Ok(command) => {
                    // A clone exists when it is claimed.
                    let is_in_clone = request.working_directory == Path::new(IN_CLONE);
                    let command = if is_in_clone { anywhere(command) } else { Some(command) };
                    let fault = command.and_then(|command| {
                        find_unstartable(&command, &request.ai_type, providers)
                    });
                    fault.map(|fault| fault.to_string())
                }
                Err(error) => Some(error.to_string()),
            },
        };
        let of_key = |key| Some((key, fault.clone()?));
        found.extend(keys.into_iter().filter_map(of_key));
    }
    found
}

/// A fault of the command of agents, with its remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unstartable {
    pub fault: StartFault,
    /// The usual folder that has what their `PATH` lacks.
    pub elsewhere: Option<Elsewhere>,
    /// The action that mends it.
    pub remedy: String,
}

impl fmt::Display for Unstartable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.fault, self.remedy)
    }
}

/// Returns what keeps the agents of an `ai_type` from being started with this command. Blocks, see
/// [`find_fault`].
pub fn find_unstartable(
    command: &CommandSpec,
    ai_type: &str,
    providers: &Providers,
) -> Option<Unstartable> {
    let fault = find_fault(command)?;
    let elsewhere = find_elsewhere(&fault, command);
    let remedy = remedy_of(&fault, elsewhere.as_ref(), ai_type, providers);
    Some(Unstartable { fault, elsewhere, remedy })
}

/// Returns what a person does about a fault of the agents of an `ai_type`.
fn remedy_of(
    fault: &StartFault,
    elsewhere: Option<&Elsewhere>,
    ai_type: &str,
    providers: &Providers,
) -> String {
    let Some(Elsewhere { program, path, lacks }) = elsewhere else {
        let installation = providers.installation(ai_type).unwrap_or(CORRECT_PROGRAM);
        return remedy(fault, installation).to_owned();
    };
    // A `PATH` without the interpreter would only lead to the next fault.
    if let Some(interpreter) = lacks {
        let program = program.display();
        return format!(
            "it is at `{program}`, but its interpreter `{interpreter}` was not found: install \
             that first, or add its folder to the PATH of the agents"
        );
    }
    let (name, _) = providers.find(ai_type);
    let entry = providers.entries.get(name);
    let setting = if entry.is_some() {
        format!("set `environment: {{ PATH: {} }}` in `ai_providers.{name}`", in_yaml(path))
    } else if providers.entries.is_empty() {
        format!("add `{}` to the configuration", setting_of_path(name, path))
    } else {
        format!("add `{}` to `ai_providers`", entry_with_path(name, path))
    };
    // Root must not run git from a folder of another user.
    let needs_own =
        |entry: &ProviderConfig| entry.run_as.is_some() || entry.environment.contains_key("PATH");
    let unit = if entry.is_some_and(needs_own) {
        String::new()
    } else {
        format!(", or `Environment={}` in the daemon's unit", in_unit(&format!("PATH={path}")))
    };
    format!("it is at `{}`: {setting}{unit}", program.display())
}

/// Returns the line of the configuration with which the agents of a preset have this `PATH`.
pub fn setting_of_path(preset: &str, path: &str) -> String {
    format!("ai_providers: {{ {} }}", entry_with_path(preset, path))
}

/// Returns the entry of a preset whose agents have this `PATH`.
fn entry_with_path(preset: &str, path: &str) -> String {
    let path = in_yaml(path);
    format!("{preset}: {{ preset: {preset}, environment: {{ PATH: {path} }} }}")
}

/// Returns a text as the configuration reads it. A `$` would begin a variable.
fn in_yaml(text: &str) -> String {
    serde_json::Value::from(text.replace('$', "$$")).to_string()
}

/// Returns a text as a unit of systemd reads it. A `%` would begin a specifier.
fn in_unit(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    format!("\"{text}\"")
}

fn remedy(fault: &StartFault, installation: &'static str) -> &'static str {
    match fault {
        StartFault::Directory(_) => "make it, or correct the directory of the project",
        StartFault::Program(_) => installation,
        StartFault::Wrapper(_) => "correct `wrap`, or install it",
        StartFault::Interpreter { .. } => "install it, or add its folder to the PATH of the agents",
        StartFault::User(_) => {
            "make the user and reload the configuration, or correct `run_as` and restart the daemon"
        }
        StartFault::UserId(_) => "reload the configuration",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::tests::{no_providers, view};

    #[test]
    fn a_unit_reads_a_blank_a_quote_and_a_specifier_as_they_are() {
        assert_eq!(in_unit("PATH=/a:/b"), r#""PATH=/a:/b""#);
        assert_eq!(in_unit(r#"PATH=/my "bin"\50%"#), r#""PATH=/my \"bin\"\\50%%""#);
    }

    #[test]
    fn a_user_who_was_made_again_needs_a_reload_alone() {
        assert_eq!(remedy(&StartFault::UserId("bob".to_owned()), ""), "reload the configuration");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_hangs_keeps_what_was_found_for_a_minute() {
        let startable = view("1", true).startable;
        let found = Faults::from([(startable[0].key.clone(), "no program".to_owned())]);
        let late = LateLook { since: clock::now(), found: tokio::spawn(std::future::pending()) };
        let mut faults = StartFaults {
            is_on: true,
            found: found.clone(),
            late: Some(late),
            ..StartFaults::default()
        };
        assert_eq!(faults.find(&startable, &no_providers()).await, found);
        tokio::time::advance(LONGEST_WAIT).await;
        assert_eq!(faults.find(&startable, &no_providers()).await, Faults::new());
    }

    #[test]
    fn a_command_that_begins_in_the_clone_is_not_looked_at() {
        let folder = Path::new("/clone");
        let command = |wrap: &[&str], program: &str, path: &str| CommandSpec {
            wrap: wrap.iter().map(|part| (*part).to_owned()).collect(),
            program: program.to_owned(),
            arguments: Vec::new(),
            environment: vec![("PATH".to_owned(), Secret::new(path))],
            working_directory: folder.to_owned(),
            stdin: None,
            redact: Vec::new(),
            files: Vec::new(),
            files_in: None,
            transcript: None,
            run_as: None,
        };
        for (wrap, program, path, expected) in [
            (vec![], "agent", "/usr/bin", false),
            (vec![], "agent", "/clone/node_modules/.bin:/usr/bin", true),
            (vec![], "agent", "bin:/usr/bin", true),
            (vec![], "/clone/agent", "/usr/bin", true),
            (vec![], "./agent", "/usr/bin", true),
            (vec![], "/clones/agent", "/usr/bin", false),
            (vec!["/clone/box"], "agent", "/usr/bin", true),
            (vec!["/usr/bin/box"], "./agent", "/usr/bin", false),
            (vec!["/usr/bin/box"], "agent", "/clone/bin:/usr/bin", true),
            (vec![], "/opt/script", "/clone/bin:/usr/bin", true),
            (vec![], "agent", "/usr/bin:", true),
        ] {
            let command = command(&wrap, program, path);
            assert_eq!(leads_into(folder, &command), expected, "{wrap:?} {program} {path}");
        }
    }
}
