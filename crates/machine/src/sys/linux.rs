//! The implementation for Linux.

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
pub mod sockets;
pub mod users;
