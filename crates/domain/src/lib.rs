//! The decisions, as plain functions of values: no clock, no files, no sockets, no environment, no
//! `async`. All other crates fetch facts, call the domain, and carry the decisions out.
//!
//! | module | what it decides or defines |
//! |---|---|
//! | [`start_history`] | whether the server lets a key start, and the reasons if it does not |
//! | [`plan`] | the actions of a coordinator in one cycle: what starts, and what ends |
//! | [`conversation`] | whether a launch continues the conversation of the launch before it |
//! | [`launch`] | the life of a launch, from its claim to the end of its process tree |
//! | [`task`] | how tasks are created and changed through every interface |
//! | [`workspace`] | the states of a clone, and when its files may be removed |
//! | [`forge`] | the meaning of what a forge answers about an item |
//! | [`attention`] | the conditions that need a person |
//! | [`refusal`] | all refusals, with their codes and texts |
//!
//! A function that depends on the time takes it as an argument. An id is parsed once, where it
//! comes in, and trusted afterwards ([`id`]).

pub mod account;
pub mod activity;
pub mod admission;
pub mod agent;
pub mod attempt;
pub mod attention;
pub mod authentication;
pub mod chat;
pub mod check;
pub mod cli_lines;
pub mod command;
pub mod comment;
pub mod compat;
pub mod configuration;
pub mod conversation;
pub mod counters;
pub mod creation;
pub mod credential;
pub mod event;
pub mod export;
pub mod file_owner;
mod fnv;
pub mod forge;
pub mod form_id;
pub mod guidance;
pub mod host;
pub mod id;
pub mod incarnation;
pub mod instance;
pub mod key;
pub mod language;
pub mod launch;
pub mod limits;
pub mod load;
pub mod lookup;
pub mod machine;
pub mod nearest;
pub mod next_action;
pub mod notice;
pub mod peer;
pub mod plan;
pub mod printable;
pub mod rate;
pub mod redact;
pub mod refusal;
pub mod removal;
pub mod repeat;
pub mod retention;
pub mod secret;
pub mod server_address;
pub mod session;
pub mod short_id;
pub mod spend;
pub mod start_history;
pub mod stopwatch;
pub mod store_state;
pub mod task;
pub mod time;
pub mod totals;
pub mod transcript;
pub mod waiting;
pub mod why;
pub mod words;
pub mod workspace;

pub use account::Account;
pub use activity::{Activity, Failure, FailureClass, OutputFact, Usage};
pub use agent::{Agent, Assignment, Project};
pub use attempt::{Attempt, LastEnd};
pub use attention::{Attention, AttentionKind};
pub use chat::Message;
pub use check::Check;
pub use command::{CommandSpec, FileContent, LaunchFile, RunAs, TranscriptSpec};
pub use comment::Comment;
pub use conversation::{Conversation, ConversationOrder};
pub use credential::{Credential, CredentialKind, Role};
pub use file_owner::{FileOwner, FileOwners};
pub use forge::{ForgeItem, ItemKey};
pub use form_id::{CheckedForm, FormFault, FormId, MadeByForm, Sent};
pub use guidance::Guidance;
pub use id::{
    AgentId, AttentionId, CheckId, CommentId, ConversationId, CoordinatorId, CredentialId,
    ExecutionId, ItemId, LaunchId, MessageId, NoticeId, ProjectId, SessionId, TaskId, WorkspaceId,
};
pub use incarnation::{Incarnation, Incarnations};
pub use instance::{Condition, Instance, Phase};
pub use key::{InstanceKey, Purpose};
pub use language::Language;
pub use launch::{Launch, LaunchFacts, LaunchState, Outcome, StopReason};
pub use notice::{Notice, NoticeAction};
pub use refusal::Refusal;
pub use removal::{Removable, RemovableKind};
pub use secret::Secret;
pub use server_address::ServerAddress;
pub use session::{Execution, Session};
pub use short_id::{ProjectKey, ShortId};
pub use start_history::{Candidate, StartFacts, StartHistory};
pub use task::{Priority, Task, TaskGraph, TaskStatus};
pub use time::Timestamp;
pub use waiting::Waiting;
pub use why::Why;
pub use words::UnknownWord;
pub use workspace::Workspace;
