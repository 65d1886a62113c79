//! The parts of the operating system in which Linux and macOS differ: processes and their ends,
//! orphans, clocks, folders, the other end of a socket, the start of shims and agents.
//!
//! There is one interface, and two files for each concern: `sys/linux` and `sys/macos` have the
//! same modules with the same public names. Code that is the same on both is in files of this
//! folder, such as `regular_file`. The system is chosen here, so that no caller has a `cfg`, except
//! for one constant of a library that not every system has (`mcp::lines`). The macOS files name the
//! features that macOS lacks, and docs/macos.md the consequences. This module makes no decisions,
//! and knows no instance folders and no runtime.

pub mod below;
pub mod confined;
pub mod draft;
pub mod executable;
#[cfg(any(target_os = "macos", test))]
mod lineage;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
pub mod ownership;
mod process;
#[cfg(any(target_os = "macos", test))]
mod process_arguments;
pub mod regular_file;
pub mod user_names;
pub mod usual_folders;
mod walk;

#[cfg(target_os = "linux")]
use linux as twin;
#[cfg(target_os = "macos")]
use macos as twin;

pub use twin::{
    beneath, birth, clock, events, files, folders, handle, machine, orphans, paths, peers,
    processes, sockets, users,
};
