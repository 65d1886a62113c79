//! The implementation for macOS, by kqueue, libproc and sysctl. `.ci/check-macos` builds and links
//! it; it has never been run so far.

pub mod beneath;
pub mod birth;
pub mod clock;
pub mod events;
pub mod files;
pub mod folders;
pub mod handle;
pub mod machine;
pub mod orphans;
pub mod paths;
pub mod peers;
pub mod processes;
mod queue;
pub mod sockets;
mod sysctl;
pub mod users;
