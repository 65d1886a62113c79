//! The agent CLIs of this machine, for pages. `app` looks for them, because it knows the
//! configuration and the presets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;

use config::EXAMPLE;
use machine::locks::lock;
use runtime::single_look::SingleLook;

/// The longest time that an answer waits for the look for programs that are not installed.
const LONGEST_LOOK: Duration = Duration::from_millis(500);

/// An agent CLI that can be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundProgram {
    /// The kind of its agents.
    pub ai_type: String,
    /// The file.
    pub program: PathBuf,
    /// The first line that the program prints for `--version`; `None` if it prints none.
    pub version: Option<String>,
    /// Whether it has a login.
    pub login: ProgramLogin,
}

/// Whether a program has a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramLogin {
    /// A variable or a file has it.
    Yes,
    /// There is neither.
    No,
    /// Only the program can tell, or it needs none.
    Unknown,
    /// The bundled agent needs none.
    NotNeeded,
}

impl FoundProgram {
    /// Returns the bundled agent, which each coordinator can start.
    fn bundled() -> Self {
        Self {
            ai_type: EXAMPLE.to_owned(),
            program: PathBuf::from("/bin/sh"),
            version: None,
            login: ProgramLogin::NotNeeded,
        }
    }

    /// Returns whether it is the bundled agent.
    pub fn is_bundled(&self) -> bool {
        self.login == ProgramLogin::NotNeeded
    }
}

/// An agent CLI with which no agent can be started as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfitProgram {
    /// The kind of its agents.
    pub ai_type: String,
    /// The fault and the action that mends it, in English.
    pub fault: String,
}

/// The agent CLIs of this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramList {
    pub found: Vec<FoundProgram>,
    pub unfit: Vec<UnfitProgram>,
}

/// A program of agents that is not installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingProgram {
    /// The name or the path with which it was looked for.
    pub program: String,
    /// The advice for a person who installs it.
    pub remedy: String,
}

/// The search for programs.
#[derive(Clone)]
pub struct Programs {
    /// The directory in which the daemon was started, if it may be the folder of a project.
    pub directory: Option<PathBuf>,
    look: Arc<dyn Fn() -> BoxFuture<'static, ProgramList> + Send + Sync>,
    find_missing: Arc<FindMissing>,
    missing: Arc<SingleLook<BTreeMap<String, MissingProgram>>>,
    /// The AI types for which programs were looked for. A look is for all of them, because it may
    /// answer a later question.
    asked: Arc<Mutex<BTreeSet<String>>>,
}

/// Returns the program of a provider, if it is not installed.
type FindMissing = dyn Fn(&str) -> Option<MissingProgram> + Send + Sync;

impl Programs {
    /// Returns a search that `look` carries out.
    pub fn new(
        directory: Option<PathBuf>,
        look: impl Fn() -> BoxFuture<'static, ProgramList> + Send + Sync + 'static,
    ) -> Self {
        Self {
            directory,
            look: Arc::new(look),
            find_missing: Arc::new(|_| None),
            missing: Arc::default(),
            asked: Arc::default(),
        }
    }

    /// Returns the same search, with `find_missing` for the program of an AI type.
    pub fn with_missing(
        self,
        find_missing: impl Fn(&str) -> Option<MissingProgram> + Send + Sync + 'static,
    ) -> Self {
        Self { find_missing: Arc::new(find_missing), ..self }
    }

    /// Returns the programs of these AI types that this host is known not to have. The programs may
    /// be in a file system that does not answer: then the last answer counts.
    pub(super) async fn find_missing(
        &self,
        ai_types: BTreeSet<String>,
    ) -> BTreeMap<String, MissingProgram> {
        let find = Arc::clone(&self.find_missing);
        let asked = {
            let mut asked = lock(&self.asked);
            asked.extend(ai_types.iter().cloned());
            asked.clone()
        };
        let look = move || {
            let found = asked.into_iter().filter_map(|ai_type| {
                let missing = find(ai_type.as_str())?;
                Some((ai_type, missing))
            });
            found.collect()
        };
        let mut found = self.missing.find(LONGEST_LOOK, look).await;
        found.retain(|ai_type, _| ai_types.contains(ai_type));
        found
    }

    /// Looks for the programs. It may take seconds. The bundled agent is always among them, before
    /// those that need a login first.
    pub(super) async fn look(&self) -> ProgramList {
        let mut list = (self.look)().await;
        let found = &mut list.found;
        if !found.iter().any(|program| program.ai_type == EXAMPLE) {
            let needs_login = |program: &FoundProgram| program.login == ProgramLogin::No;
            let place = found.iter().position(needs_login).unwrap_or(found.len());
            found.insert(place, FoundProgram::bundled());
        }
        list
    }
}

impl Default for Programs {
    /// Returns a search that finds only the bundled agent.
    fn default() -> Self {
        Self::new(None, || Box::pin(async { ProgramList::default() }))
    }
}

impl fmt::Debug for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Programs").field("directory", &self.directory).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn found(programs: Vec<(&'static str, ProgramLogin)>) -> String {
        let program = |(name, login): &(&str, ProgramLogin)| FoundProgram {
            ai_type: (*name).to_owned(),
            program: PathBuf::from("/bin/true"),
            version: None,
            login: *login,
        };
        let programs = Programs::new(None, move || {
            let found = programs.iter().map(program).collect::<Vec<_>>();
            Box::pin(async move { ProgramList { found, unfit: Vec::new() } })
        });
        let list = programs.look().await;
        list.found.into_iter().map(|program| program.ai_type).collect::<Vec<_>>().join(" ")
    }

    #[tokio::test]
    async fn a_look_is_for_all_programs_that_were_asked_for() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&seen);
        let programs = Programs::default().with_missing(move |ai_type: &str| {
            lock(&noted).push(ai_type.to_owned());
            None
        });
        for ai_type in ["claude", "codex"] {
            programs.find_missing([ai_type.to_owned()].into()).await;
        }
        assert_eq!(*lock(&seen), ["claude", "claude", "codex"]);
    }

    #[tokio::test]
    async fn the_bundled_agent_is_always_found_before_those_that_need_a_login() {
        let (yes, no) = (ProgramLogin::Yes, ProgramLogin::No);
        assert_eq!(found(Vec::new()).await, "example");
        assert_eq!(found(vec![("claude", no)]).await, "example claude");
        assert_eq!(found(vec![("claude", yes), ("codex", no)]).await, "claude example codex");
        // An entry of the configuration replaces it.
        assert_eq!(found(vec![("example", ProgramLogin::Unknown)]).await, "example");
    }
}
