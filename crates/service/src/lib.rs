//! Use cases: the requests that the server answers, with the check of the caller's rights.
//!
//! ```text
//!  mcp, web, forge, supervisor ──► Service, with an owner for each subject
//!                                     │ one transaction: facts ─► domain ─► rows
//!                                     └ after the commit: wakes the listeners of the change
//! ```
//!
//! A use case is one transaction: it reads facts from the store, lets `domain` decide, and writes.
//! Its closure may run more than once, so it takes the time and the settings from outside (`core`).
//! `waiting` has the listeners that a change wakes, such as coordinators and waiting agents.
//!
//! [`Service`] has an owner for each subject, such as [`Tasks`] and [`Launches`]. An owner is one
//! file, with a folder beside it if it has many use cases. The crates above call this one, and none
//! of them knows the store. `app` opens the store and makes the [`Service`].
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests may wait and ask the time"))]

mod attention;
pub mod audit;
mod catalog;
pub mod chat_log;
mod chats;
mod checks;
mod clocks;
mod compat;
mod coordinators;
mod core;
mod credentials;
mod events;
mod export;
mod forge_items;
mod forges;
mod forms;
mod import;
mod launches;
mod lookup;
mod maintenance;
pub mod people;
mod removals;
mod repeats;
mod revision;
mod sessions;
mod standings;
mod status;
mod tasks;
mod waiting;
mod workspaces;
pub mod world;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use attention::MarkedAttention;
pub use catalog::Catalog;
pub use catalog::active_projects::ActiveProject;
pub use catalog::manifest::{Applied, AppliedAs, ApplyError, EntryProblem, LeftOut};
pub use chats::Chats;
pub use chats::agents::Pending;
pub use chats::people::{ChatPage, Conversation, OpenSessions};
pub use chats::presence::Presence;
pub use compat::ManagedAgent;
pub use coordinators::board::{CoordinatorStatus, CoordinatorView};
pub use coordinators::{Coordinators, ServerView, Work};
pub use credentials::{Credentials, MadeCredential};
pub use events::{EventUpdate, Events, Follower};
pub use export::Export;
pub use forge_items::{ForgeItems, NewItem};
pub use forges::waiting::{FreeItem, RepositoryKey, WaitingItem, Workers};
pub use forges::{ForgeHealth, ForgeStatus, Forges, RepositoryStatus};
pub use import::{Existing, ImportError, ImportMode, ImportReport, ImportUser, ImportWish};
pub use launches::Launches;
pub use launches::history::{LaunchHistory, Surroundings};
pub use launches::operate::{Force, StopTarget, Stopped};
pub use launches::other_coordinators::AgentAction;
pub use launches::output::{WantedLines, read_output};
pub use launches::start::{Claim, ShouldStart};
pub use removals::{RemovalView, Removals};
pub use sessions::Sessions;
pub use sessions::authenticate::Authenticated;
pub use sessions::caller::Caller;
pub use sessions::next_action::NextAction;
pub use sessions::report::Report;
pub use standings::Standings;
pub use status::{Health, StatusView};
pub use tasks::context::Progress;
pub use tasks::create::Created;
pub use tasks::mine::MyTask;
pub use tasks::progress::TaskProgress;
pub use tasks::status::StatusChange;
pub use tasks::{TaskFigures, TaskView, Tasks};

pub use domain::agent::{AgentEdit, ProjectEdit};
pub use domain::task::batch::Draft;
pub use domain::task::{NewTask, TaskEdit};
pub use domain::workspace::{HookWish, MergeStyle, Repeat};
pub use maintenance::Maintenance;
pub use store::{ArchivedTasks, HistoryFilter, LaunchEnd, LaunchFilter, LaunchTraits, TaskFilter};
pub use workspace::{DiffKind, Merged, SnapshotEntry};
pub use workspaces::{
    ClonePlace, DependencyResult, MergeWish, OwnResult, PublishedResult, ResultChoice,
    SnapshotView, WorkspaceView, Workspaces,
};

use chats::presence::Attendances;
use clocks::Clocks;
use config::{Chat, NamedCheck, Notice, Session, Start, Stop, Workspace};
use coordinators::board::CoordinatorBoard;
use core::Core;
use domain::account::Parking;
use domain::conversation::ContinueLimits;
use domain::creation::CreationLimits;
use domain::plan::RunLimits;
use domain::redact::Redactor;
use domain::retention::Retention;
use domain::start_history::Backoff;
use domain::{AgentId, CoordinatorId, FileOwners, Guidance, Language, Refusal, Secret, Timestamp};
use launches::shims::Shims;
use runtime::clock;
use runtime::nudge::{Nudge, Wakeups};
use store::StoreError;
use store::rows::{Publish, Store, pauses};
use waiting::Waiting;
use workspace::Checkouts;
use world::World;

/// The part of the configuration that the use cases need.
#[derive(Debug, Clone)]
pub struct Settings {
    pub language: Language,
    pub start: Start,
    pub stop: Stop,
    pub run: RunLimits,
    pub notice: Notice,
    pub chat: Chat,
    pub session: Session,
    pub backoff: Backoff,
    pub parking: Parking,
    /// The settings about conversations of CLIs (`continue`).
    pub conversations: ContinueLimits,
    pub creation: CreationLimits,
    pub retention: Retention,
    pub workspace: Workspace,
    /// The time after which a hook at a merge is ended.
    pub hook_timeout: Duration,
    /// An agent runs as another user than the daemon (`run_as`).
    pub agents_have_users: bool,
    /// The checks that tasks must pass, in their order.
    pub checks: Vec<NamedCheck>,
    /// The number of times that an agent works again after a failed check.
    pub checks_rounds: u32,
    /// The URL of the pages as people reach them (`http.public_url`).
    pub page_url: Option<String>,
    /// The directory of the instance folders.
    pub state_dir: PathBuf,
    /// The owners of files that are written for agents into their working directories.
    pub file_owners: FileOwners,
    /// The passkeys of the configuration. An agent that is created without a passkey takes its
    /// passkey from here.
    pub passkeys: BTreeMap<AgentId, Secret>,
    /// The key that launch tickets and the ids of forms are made with.
    pub ticket_key: Secret,
    /// The Unix socket where agents are served.
    pub mcp_socket: PathBuf,
    /// Agents are served over HTTP, too.
    pub serves_agents_over_http: bool,
    /// The names in `ai_providers`.
    pub providers: BTreeSet<String>,
    /// Takes secrets out of what agents write.
    pub redactor: Arc<Redactor>,
}

/// The facts about launches in memory: the usage and the last calls of running launches, and the
/// totals of ended launches.
#[derive(Clone, Default)]
struct Heard {
    activities: Arc<launches::activities::Activities>,
    calls: Arc<sessions::caller::Activity>,
    totals: Arc<launches::totals::TotalsBoard>,
}

impl Heard {
    fn inputs(&self, core: &Core) -> Inputs {
        Inputs { settings: core.settings(), heard: self.clone(), made_at: clock::now() }
    }
}

/// The values besides rows that a use case takes into its transaction: the settings, and the facts
/// about launches in memory.
#[derive(Clone)]
struct Inputs {
    settings: Arc<Settings>,
    heard: Heard,
    /// The time until which held calls count as last calls. A transaction may run again, so it
    /// reads no clock.
    made_at: Instant,
}

/// The parts that several owners use. Each owner takes the parts that it needs.
#[derive(Clone)]
struct Shared {
    core: Arc<Core>,
    heard: Heard,
    waiting: Waiting,
    clocks: Arc<Clocks>,
    attendances: Arc<Attendances>,
    shims: Arc<Shims>,
    coordinators: Arc<CoordinatorBoard>,
    /// The clones on this host, if the coordinator runs in this process.
    checkouts: Arc<OnceLock<Arc<Checkouts>>>,
    /// Cancelled when the server must not hold calls any more.
    ending: CancellationToken,
}

/// The server side of the program: all state and all rights. Each owner has the use cases of one
/// subject. This type has the use cases that concern several subjects.
pub struct Service {
    pub catalog: Catalog,
    pub credentials: Credentials,
    pub tasks: Tasks,
    pub launches: Launches,
    pub sessions: Sessions,
    pub chats: Chats,
    pub coordinators: Coordinators,
    pub forges: Forges,
    pub forge_items: ForgeItems,
    pub events: Events,
    pub maintenance: Maintenance,
    pub workspaces: Workspaces,
    pub removals: Removals,
    core: Arc<Core>,
    waiting: Waiting,
    board: Arc<CoordinatorBoard>,
    ending: CancellationToken,
}

/// The reason why a use case did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// A normal answer: the server cannot grant the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Service {
    pub fn new(store: Arc<Store>, world: Arc<dyn World>, settings: Settings, nudge: Nudge) -> Self {
        let waiting = Waiting { coordinators: nudge, ..Waiting::default() };
        let publish: Publish = {
            let waiting = waiting.clone();
            Arc::new(move |wakes| waiting.wake(wakes))
        };
        store.publish_others(Arc::clone(&publish));
        let shared = Shared {
            clocks: Arc::new(Clocks::new(Arc::clone(&world))),
            core: Arc::new(Core::new(store, world, settings, publish)),
            heard: Heard::default(),
            waiting,
            attendances: Arc::default(),
            shims: Arc::default(),
            coordinators: Arc::default(),
            checkouts: Arc::default(),
            ending: CancellationToken::new(),
        };
        Self {
            catalog: Catalog::new(shared.clone()),
            credentials: Credentials::new(shared.clone()),
            tasks: Tasks::new(shared.clone()),
            launches: Launches::new(shared.clone()),
            sessions: Sessions::new(shared.clone()),
            chats: Chats::new(shared.clone()),
            coordinators: Coordinators::new(shared.clone()),
            forges: Forges::new(shared.clone()),
            forge_items: ForgeItems::new(shared.clone()),
            events: Events::new(shared.clone()),
            maintenance: Maintenance::new(shared.clone()),
            workspaces: Workspaces::new(shared.clone()),
            removals: Removals::new(shared.clone()),
            core: shared.core,
            waiting: shared.waiting,
            board: shared.coordinators,
            ending: shared.ending,
        }
    }

    /// Listens for changes that may concern a coordinator.
    pub fn listen(&self) -> Wakeups {
        self.waiting.coordinators.listen()
    }

    /// Wakes every coordinator, as if something had changed, and makes the server ask the forges at
    /// once.
    pub fn refresh(&self) {
        audit::note("refresh", "coordinator", "all");
        self.waiting.coordinators.wake();
        self.forges.look();
    }

    /// Holds starts while there is a pause file, or allows them again. Returns whether that has
    /// changed in the store, or a pause that was never stored has ended. Called by one task at a
    /// time.
    ///
    /// # Errors
    /// [`ServiceError::Store`]. Starts are held by a pause file in any case; the caller tries
    /// again, so that the end of one is noticed and stored, too.
    pub async fn hold_starts(&self, pause_file: Option<&Path>) -> Result<bool, ServiceError> {
        let file = pause_file.map(|file| file.display().to_string());
        if file.is_some() {
            self.core.note_pause_file(file.clone());
        }
        // Most looks at the file change nothing, and do not use the only writer.
        let before = self.core.read(|tx| Ok(pauses::file(tx)?)).await?;
        // If the read failed or was dropped, the next call still finds what was noted.
        let noted = self.core.note_pause_file(file.clone());
        let has_ended = noted.is_some() && file.is_none();
        if has_ended {
            // Perhaps it was never stored, so that no change of the store tells its end.
            self.waiting.coordinators.wake();
            self.waiting.forges.wake();
        }
        if before == file {
            return Ok(has_ended);
        }
        let is_news = before.is_some() != file.is_some();
        self.core.write(move |tx| Ok(pauses::set_file(tx, file.as_deref())?)).await?;
        self.waiting.forges.wake();
        Ok(is_news)
    }

    /// Returns whether the pause file keeps agents from starting.
    pub fn are_starts_held(&self) -> bool {
        self.core.are_starts_held()
    }

    /// Ends all waits for news. Later calls do not wait either.
    pub fn end_waits(&self) {
        self.ending.cancel();
    }

    /// Listens for new deadlines; see [`Maintenance::end_overdue`].
    pub fn deadlines(&self) -> Wakeups {
        self.waiting.deadlines.listen()
    }

    /// The texts for agents.
    pub fn guidance(&self) -> Guidance {
        self.core.guidance()
    }

    /// Returns the settings as they are now. The next call may return others.
    pub fn settings(&self) -> Arc<Settings> {
        self.core.settings()
    }

    /// Uses the new settings from the next decision on, and wakes the listeners whose deadlines
    /// they move. The paths and the key of tickets stay the same, because existing files and
    /// tickets belong to this server.
    pub fn reconfigure(&self, settings: Settings) {
        self.maintenance.note_timeouts(&self.settings());
        self.core.reconfigure(settings);
        self.waiting.deadlines.wake();
        self.waiting.coordinators.wake();
    }

    /// Returns `text` of an agent as it is stored and sent: without the current secrets of the
    /// configuration, and without tokens.
    pub fn redacted<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.core.redacted(text)
    }

    /// Returns the time that the server uses for all its decisions.
    pub fn time(&self) -> Timestamp {
        self.core.now()
    }
}

/// The coordinator that asks, for calls that depend on its identity.
pub type AskedBy<'a> = Option<&'a CoordinatorId>;
