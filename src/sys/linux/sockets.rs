//! Addresses of Unix sockets.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::SocketAddr;

use rustix::event::PollFlags;

/// Longest path of a socket, in bytes: `sun_path` without its NUL.
pub const MAX_PATH: usize = 107;
/// What to ask `poll` for, to be told that the other end is closed, and nothing else.
pub const ONLY_HANG_UP: PollFlags = PollFlags::empty();

/// A name in the kernel's own space.
pub fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}
