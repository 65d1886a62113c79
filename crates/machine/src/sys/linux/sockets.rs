//! Addresses of Unix sockets.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::SocketAddr;

use rustix::event::PollFlags;

/// The longest path of a socket, in bytes: `sun_path` without its NUL.
pub const MAX_PATH: usize = 107;
/// The events to request from `poll`, to be told only that the other end is closed.
pub const ONLY_HANG_UP: PollFlags = PollFlags::empty();

/// Returns the address of a name in the abstract namespace.
pub fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}
