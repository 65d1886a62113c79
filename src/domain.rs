//! What is decided, and nothing else: plain values in, values out. No clock, no files, no sockets, no environment, no
//! `async`. Everything else in this crate fetches facts, calls the domain, and carries the decision out.

pub mod command;
pub mod id;
pub mod key;
pub mod launch;
pub mod redact;
pub mod secret;
pub mod time;

pub use command::CommandSpec;
pub use id::{AgentId, CoordinatorId, ExecutionId, LaunchId, ProjectId, SessionId, TaskId};
pub use key::{InstanceKey, Purpose};
pub use secret::Secret;
pub use time::Timestamp;
