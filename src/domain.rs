//! The decisions, as plain functions of values: no clock, no files, no sockets, no environment, no
//! `async`. All other code in this crate fetches facts, calls the domain, and carries the decision
//! out.

pub mod account;
pub mod activity;
pub mod admission;
pub mod agent;
pub mod attempt;
pub mod attention;
pub mod authentication;
pub mod chat;
pub mod check;
pub mod command;
pub mod compat;
pub mod creation;
pub mod credential;
pub mod event;
pub mod file_owner;
pub mod forge;
pub mod guidance;
pub mod host;
pub mod id;
pub mod incarnation;
pub mod instance;
pub mod key;
pub mod language;
pub mod launch;
pub mod limits;
pub mod lookup;
pub mod nearest;
pub mod next_action;
pub mod notice;
pub mod peer;
pub mod plan;
pub mod printable;
pub mod rate;
pub mod redact;
pub mod refusal;
pub mod retention;
pub mod secret;
pub mod series;
pub mod server_address;
pub mod session;
pub mod short_id;
pub mod start_history;
pub mod stopwatch;
pub mod store_state;
pub mod task;
pub mod time;
pub mod totals;
pub mod transcript;
pub mod waiting;
mod words;
pub mod workspace;

pub use account::Account;
pub use activity::{Activity, Failure, FailureClass, OutputFact, Usage};
pub use agent::{Agent, Assignment, Project};
pub use attempt::{Attempt, LastEnd};
pub use attention::{Attention, AttentionKind};
pub use chat::Message;
pub use check::Check;
pub use command::{CommandSpec, FileContent, LaunchFile, RunAs};
pub use credential::{Credential, CredentialKind, Role};
pub use file_owner::{FileOwner, FileOwners};
pub use forge::{ForgeItem, ItemKey};
pub use guidance::Guidance;
pub use id::{
    AgentId, AttentionId, CheckId, CoordinatorId, CredentialId, ExecutionId, ItemId, LaunchId,
    MessageId, NoticeId, ProjectId, SessionId, TaskId, WorkspaceId,
};
pub use incarnation::{Incarnation, Incarnations};
pub use instance::{Condition, Instance, Phase};
pub use key::{InstanceKey, Purpose};
pub use language::Language;
pub use launch::{Launch, LaunchFacts, LaunchState, Outcome, StopReason};
pub use notice::{Notice, NoticeAction};
pub use refusal::Refusal;
pub use secret::Secret;
pub use server_address::ServerAddress;
pub use session::{Execution, Session};
pub use short_id::{ProjectKey, ShortId};
pub use start_history::{Candidate, StartFacts, StartHistory};
pub use task::{Priority, Task, TaskGraph, TaskStatus};
pub use time::Timestamp;
pub use waiting::Waiting;
pub use words::UnknownWord;
pub use workspace::Workspace;
