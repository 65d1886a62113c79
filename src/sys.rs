//! What the program asks of its operating system where Linux and macOS answer differently: processes and their ends, orphans,
//! clocks, folders, the other end of a socket, the birth of keepers and agents.
//!
//! One interface, two files for each concern: `sys/linux` and `sys/macos` have the same modules with the same public names.
//! What is the same on both is in a file of its own here (`regular_file`).
//! Which of them is meant is chosen here, so that no caller has a `cfg`, but for one constant of a library that not every system
//! has (`mcp::lines`). What macOS can't do, its file says, and docs/macos.md what follows from it. Decides nothing; knows no folders
//! of instances and no runtime.

#[cfg(any(target_os = "macos", test))]
mod lineage;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
mod process;
#[cfg(any(target_os = "macos", test))]
mod process_arguments;
pub mod regular_file;
mod walk;

#[cfg(target_os = "linux")]
use linux as twin;
#[cfg(target_os = "macos")]
use macos as twin;

pub use twin::{
    beneath, birth, clock, events, files, folders, handle, machine, orphans, paths, peers,
    processes, sockets, users,
};
