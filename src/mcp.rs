//! The agents' door: the Model Context Protocol over the Unix socket.
//!
//! What every tool shares is in `server` once; a tool is one file in `tools/` and one line in its list. The rules are in
//! `service` and `domain`.

mod deprecated;
mod envelope;
mod lines;
mod server;
mod throttle;
mod tools;

pub mod socket;

pub use server::McpServer;
