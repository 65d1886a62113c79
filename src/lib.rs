//! agent-coordinator: a daemon that runs fleets of AI coding agents the way an init system runs
//! services.
//!
//! This crate is the program: [`cli`] has the commands, and [`app`] composes a daemon of the crates in
//! `crates`. ARCHITECTURE.md has the map of all crates.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests may wait and ask the time"))]

pub mod app;
pub mod cli;
