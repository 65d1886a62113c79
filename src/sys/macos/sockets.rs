//! Addresses of Unix sockets.

use std::io;
use std::os::unix::net::SocketAddr;

use rustix::event::PollFlags;

/// Longest path of a socket, in bytes: `sun_path` without its NUL.
pub const MAX_PATH: usize = 103;
/// What to ask `poll` for, to be told that the other end is closed: for nothing it tells nothing, and to a reader also one that only
/// says no more is closed.
pub const ONLY_HANG_UP: PollFlags = PollFlags::OUT;

/// A name in the kernel's own space, which this kernel doesn't have.
pub fn abstract_address(_name: &[u8]) -> io::Result<SocketAddr> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no sockets without a path"))
}
