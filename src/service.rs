//! Use cases: what can be asked of the server, one file each, and who may ask it.
//!
//! A use case is one transaction: it reads facts from the store, lets `domain` decide, and writes. Front doors (`mcp`,
//! `rest`, `coordinator`) call this module and nothing below it.

mod accounts;
mod activities;
mod attendance;
pub mod audit;
mod authenticate;
mod caller;
mod catalog;
mod chat;
mod cleanup;
mod clocks;
mod conversation;
mod coordination;
mod create_tasks;
mod creations;
mod credentials;
mod events;
mod footprint;
mod forge_board;
mod forge_claims;
mod forge_items;
mod forge_settling;
mod forge_waiting;
mod history;
mod launches;
mod logout;
mod manifest;
mod mirror;
mod my_task;
mod next_action;
mod notices;
mod older_clients;
mod operate;
mod output;
mod overdue;
pub mod recent;
mod report;
mod retention;
mod roster;
mod save_context;
mod session_rate;
mod shims;
mod start;
mod status;
mod task_progress;
mod task_rules;
mod task_status;
mod tasks;
pub mod throttle;
mod totals;
mod upkeep;
mod waiting;
mod why;
pub mod world;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use attendance::Attendance;
pub use authenticate::Authenticated;
pub use caller::Caller;
pub use catalog::{AgentEdit, ProjectEdit};
pub use chat::Pending;
pub use conversation::{ChatPage, Conversation, OpenSessions};
pub use coordination::{ServerView, Work};
pub use create_tasks::{Created, Draft};
pub use credentials::MadeCredential;
pub use events::{Follower, News};
pub use forge_board::{ForgeHealth, ForgeStatus, RepositoryStatus};
pub use forge_items::NewItem;
pub use forge_waiting::{FreeItem, RepositoryKey, WaitingItem, Workers};
pub use manifest::{Applied, AppliedAs, ApplyError, EntryProblem, Wanted};
pub use my_task::MyTask;
pub use next_action::NextAction;
pub use older_clients::{AgentAction, ManagedAgent};
pub use operate::{Force, StopTarget, Stopped};
pub use output::read_output;
pub use report::Report;
pub use roster::{ActiveProject, Health};
pub use save_context::Progress;
pub use start::{Claim, ShouldStart};
pub use status::{CoordinatorStatus, CoordinatorView, Counters, StatusView};
pub use task_progress::TaskProgress;
pub use task_status::StatusChange;
pub use tasks::{NewTask, TaskEdit, TaskView};
pub use why::Why;

pub use crate::store::{HistoryFilter, LaunchFilter, TaskFilter};

use crate::domain::account::Parking;
use crate::domain::creation::CreationLimits;
use crate::domain::pair::{Backoff, StartLimit};
use crate::domain::redact::Redactor;
use crate::domain::retention::Retention;
use crate::domain::{
    AgentId, CoordinatorId, FileOwners, Guidance, Incarnations, Language, Refusal, Secret,
    Timestamp,
};
use crate::folder_watch::shared::SharedFolders;
use crate::nudge::{Nudge, Wakeups};
use crate::rows::adapter::SqliteStore;
use crate::rows::{Context, Publish, Transaction};
use crate::store::{Read, StoreError};
use waiting::Waiting;
use world::World;

/// What the use cases need of the configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    pub language: Language,
    /// How long a claimed launch may take to authenticate.
    pub start_timeout: Duration,
    /// How long an agent may take to end when told to.
    pub stop_timeout: Duration,
    /// How long an agent may stay after its report.
    pub linger: Duration,
    /// How long an agent may go on after it was told that its work was changed.
    pub notice_grace: Duration,
    pub chat: ChatSettings,
    /// Silence after which a session without a process of ours ends.
    pub session_default: Duration,
    /// Age at which any session ends, its process first.
    pub session_maximum: Duration,
    /// Between two looks at what has run out of time without anybody waiting for it.
    pub cleanup_interval: Duration,
    pub backoff: Backoff,
    pub start_limit: StartLimit,
    /// How long a failed account waits that names no end of it.
    pub parking: Parking,
    /// How much one launch may create.
    pub creation: CreationLimits,
    /// How long the past is kept.
    pub retention: Retention,
    /// Where the instance folders are.
    pub state_dir: PathBuf,
    /// Who owns what is written for agents into their working directories.
    pub file_owners: FileOwners,
    /// The passkeys of the configuration. An agent that is created without a passkey takes its passkey from here.
    pub passkeys: BTreeMap<AgentId, Secret>,
    /// What launch tickets are made with.
    pub ticket_key: Secret,
    /// The Unix socket where agents are served.
    pub mcp_socket: PathBuf,
    /// Whether agents are served over HTTP, too.
    pub serves_agents_over_http: bool,
    /// Takes secrets out of what agents write.
    pub redactor: Arc<Redactor>,
}

/// What a use case takes into its transaction besides rows: the settings, and what is known in memory of launches.
#[derive(Clone)]
struct Inputs {
    settings: Arc<Settings>,
    activities: Arc<activities::Activities>,
    calls: Arc<caller::Activity>,
}

/// What the use cases need to know of chats.
#[derive(Debug, Clone)]
pub struct ChatSettings {
    /// How long an agent's question for its next action is held; zero answers at once (seed 003).
    pub poll_hold: Duration,
    /// A chat without a message for that long ends.
    pub idle_timeout: Duration,
}

/// The server side of the program: all state, all rights.
pub struct Service {
    store: Arc<SqliteStore>,
    world: Arc<dyn World>,
    /// Replaced as a whole; whoever reads several of them takes them out once.
    settings: RwLock<Arc<Settings>>,
    waiting: Waiting,
    /// Tells this run of the server from all others.
    run: u64,
    /// Cancelled when nobody is to wait here any more.
    ending: CancellationToken,
    activity: Arc<caller::Activity>,
    session_rate: session_rate::SessionRate,
    coordinators: status::CoordinatorBoard,
    /// Which start of each coordinator elsewhere is the latest.
    incarnations: Mutex<Incarnations>,
    activities: Arc<activities::Activities>,
    creations: creations::Creations,
    shims: shims::Shims,
    clocks: clocks::Clocks,
    longest: cleanup::Longest,
    attendances: attendance::Attendances,
    newsroom: events::Newsroom,
    /// For all who follow the output of launches.
    output_folders: SharedFolders,
    forges: forge_board::ForgeBoard,
    totals: Arc<totals::TotalsBoard>,
    /// Tells everybody of what was changed.
    publish: Publish,
}

/// Why a use case didn't succeed.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// A normal answer: the wish can't be granted.
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Service {
    pub fn new(
        store: Arc<SqliteStore>,
        world: Arc<dyn World>,
        settings: Settings,
        nudge: Nudge,
    ) -> Self {
        let mut run = [0; 8];
        world.fill(&mut run);
        let waiting = Waiting { coordinators: nudge, ..Waiting::default() };
        let totals = Arc::new(totals::TotalsBoard::default());
        let publish: Publish = {
            let (waiting, totals) = (waiting.clone(), Arc::clone(&totals));
            Arc::new(move |published| {
                totals.add(published.ended);
                waiting.wake(published.wakes);
            })
        };
        Self {
            run: u64::from_ne_bytes(run),
            ending: CancellationToken::new(),
            store,
            world,
            settings: RwLock::new(Arc::new(settings)),
            waiting,
            activity: Arc::default(),
            session_rate: session_rate::SessionRate::default(),
            coordinators: status::CoordinatorBoard::default(),
            incarnations: Mutex::default(),
            activities: Arc::default(),
            creations: creations::Creations::default(),
            shims: shims::Shims::default(),
            clocks: clocks::Clocks::new(),
            longest: cleanup::Longest::default(),
            attendances: attendance::Attendances::default(),
            newsroom: events::Newsroom::default(),
            output_folders: SharedFolders::default(),
            forges: forge_board::ForgeBoard::default(),
            totals,
            publish,
        }
    }

    /// Hears each change that may concern a coordinator.
    pub fn listen(&self) -> Wakeups {
        self.waiting.coordinators.listen()
    }

    /// Makes every coordinator look again, as if something had changed, and forges be asked at once.
    pub fn refresh(&self) {
        audit::note("refresh", "coordinator", "all");
        self.waiting.coordinators.wake();
        self.look_at_forges();
    }

    /// Hears whenever something new may become overdue; see [`Service::end_overdue`].
    pub fn deadlines(&self) -> Wakeups {
        self.waiting.deadlines.listen()
    }

    /// The texts for agents.
    pub fn guidance(&self) -> Guidance {
        Guidance::new(self.settings().language)
    }

    /// As they are now; they may be others at the next look.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Goes by other settings from the next decision on, and makes those look again whose deadlines they move. Where things are,
    /// and what tickets are made with, stays: what lies and lives there is this server's.
    pub fn reconfigure(&self, settings: Settings) {
        let before = self.settings();
        self.longest.with(&before);
        let settings = Settings {
            state_dir: before.state_dir.clone(),
            ticket_key: before.ticket_key.clone(),
            mcp_socket: before.mcp_socket.clone(),
            ..settings
        };
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        self.waiting.deadlines.wake();
        self.waiting.coordinators.wake();
    }

    /// `text` of an agent as it is stored and sent: without the secrets of the configuration as it is now, and without tokens.
    pub fn redacted<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.settings().redactor.redact_text(text)
    }

    /// The same of a text that was taken by its limit.
    fn redacted_taken(&self, text: Option<Cow<'_, str>>) -> Option<String> {
        text.map(|text| self.redacted(&text).into_owned())
    }

    /// The time by which everything here is measured.
    pub fn time(&self) -> Timestamp {
        self.now()
    }

    fn now(&self) -> Timestamp {
        self.world.now()
    }

    fn inputs(&self) -> Inputs {
        Inputs {
            settings: self.settings(),
            activities: Arc::clone(&self.activities),
            calls: Arc::clone(&self.activity),
        }
    }

    /// Makes the changes of `body` in one transaction, and tells everybody whom they concern, even if the caller is gone. Changes
    /// nothing if `body` returns an error.
    ///
    /// `body` may run more than once. It uses no clock and no chance, and does no input or output. Not cancel-safe in its
    /// effect: when the future is dropped, the changes may have been made or not.
    #[track_caller]
    fn write<T, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<T, ServiceError>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnMut(&mut Transaction<'_>) -> Result<T, ServiceError> + Send + 'static,
    {
        let context = Context::new(self.now(), self.world.unique(), audit::actor());
        self.store.change(context, Arc::clone(&self.publish), body)
    }

    /// Reads with `body` from one snapshot. Dropping the future is harmless.
    fn read<T, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<T, ServiceError>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(&mut Read<'_>) -> Result<T, ServiceError> + Send + 'static,
    {
        self.store.query(body)
    }
}

/// A coordinator that asks, where it matters who it is.
pub type AskedBy<'a> = Option<&'a CoordinatorId>;
