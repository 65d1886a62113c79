//! Addresses of Unix sockets.

use std::io;
use std::os::unix::net::SocketAddr;

use rustix::event::PollFlags;

/// The longest path of a socket, in bytes: `sun_path` without its NUL.
pub const MAX_PATH: usize = 103;
/// The events to request from `poll`, to be told that the other end is closed. An empty request
/// reports nothing, and a request to read also reports an end that is only shut down for writing.
pub const ONLY_HANG_UP: PollFlags = PollFlags::OUT;

/// Returns an error: this kernel has no abstract namespace.
pub fn abstract_address(_name: &[u8]) -> io::Result<SocketAddr> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no sockets without a path"))
}
