//! agent-coordinator: a daemon that runs fleets of AI coding agents the way an init system runs
//! services.
//!
//! # The layers
//! A row may use the rows below it, and neither its own row nor those above.
//! `tests/it/layering.rs` enforces this table.
//!
//! ```text
//! main                                  branches into the shim before anything else
//! cli                                   the commands
//! app                                   composition, start order, shutdown order
//! coordinator   mcp   rest   forge      interfaces and drivers; they don't know one another
//! service                               use cases and permissions, one file each
//! rows                                  the entities of the store, one file each
//! store  process  provider  chat_log  workspace    adapters; they don't know one another
//! shim                                  the shim of one agent; knows instance_dir only
//! throttle                              limits on guesses at secrets, by peer; for the listeners
//! config  telemetry  nudge  peer  lru  http  mcp_client
//! folder_watch  instance_dir  cgroup  crash_point      leaves
//! sys  postgres_url                     the operating system, in two versions; the URL of a database
//! locks  clock                          mutexes that stay in use after a panic; the clock for deadlines
//! domain                                pure decisions
//! ```
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests may wait and ask the time"))]

pub mod app;
pub mod cli;
