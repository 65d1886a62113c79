//! Starts, watches and ends agents: [`coordinator`] carries out what `domain::plan` decides,
//! [`process`] has the processes and their shims, and [`provider`] makes the command lines of the
//! CLIs and reads their output.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests may wait and ask the time"))]

pub mod coordinator;
pub mod process;
pub mod provider;
