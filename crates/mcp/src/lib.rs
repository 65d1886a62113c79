//! The listener for agents: the Model Context Protocol over the Unix socket and over HTTP.
//!
//! `server` has the common part of all tools. A tool is one file in `tools/` and one line in its
//! list. The rules are in `service` and `domain`.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests may wait and ask the time"))]

mod arguments;
mod batch;
mod call_limits;
mod cancels;
mod compat;
mod envelope;
mod identification;
mod lines;
mod malformed;
mod progress;
mod refusals;
mod sender;
mod server;
mod tools;

pub mod connections;
pub mod http;
pub mod socket;

pub use server::McpServer;
pub use tools::{Audience, ToolText, texts};

/// The longest message, in bytes. The content of a report is the longest text that an agent sends.
const MAX_MESSAGE: usize = 1024 * 1024;
