//! The machine below the coordinator: processes and their ends, files and rights, the folder of an
//! instance, control groups. Linux and macOS have one interface, see [`sys`].
//!
//! It has no runtime: the shim of an agent uses it, and must stay small.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests may wait and ask the time"))]

pub mod cgroup;
pub mod crash_point;
pub mod instance_dir;
pub mod locks;
pub mod sys;
