//! A kernel queue (kqueue(2)): it takes descriptions of events, and returns the events that
//! occurred. Its descriptor is readable while there is an event to take, also for `poll` and for
//! another queue.
#![allow(unsafe_code, reason = "system calls that no crate wraps safely")]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;

use nix::libc;

/// The number of events that are taken at once.
const CHUNK: usize = 32;

pub struct Queue(OwnedFd);

/// The event to wait for; the other fields depend on the filter.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub ident: usize,
    pub filter: i16,
    pub flags: u16,
    pub notes: u32,
    pub data: isize,
    /// A number that is returned with each event.
    pub tag: usize,
}

impl Queue {
    pub fn new() -> io::Result<Self> {
        let queue = rustix::event::kqueue::kqueue()?;
        rustix::io::fcntl_setfd(&queue, rustix::io::FdFlags::CLOEXEC)?;
        Ok(Self(queue))
    }

    /// Adds, changes or removes an event to wait for.
    pub fn change(&self, wanted: Wanted) -> io::Result<()> {
        let Wanted { ident, filter, flags, notes, data, tag } = wanted;
        let udata = ptr::without_provenance_mut::<c_void>(tag);
        let change = libc::kevent { ident, filter, flags, fflags: notes, data, udata };
        // SAFETY: one change is read; there is no room for events, so that none is taken and an
        // error is the change's own.
        let result = unsafe {
            libc::kevent(self.0.as_raw_fd(), &raw const change, 1, ptr::null_mut(), 0, ptr::null())
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Returns the events since the last call, without waiting: identifier, filter and tag of each.
    /// If there are many, it returns some of them.
    pub fn take(&self) -> io::Result<Vec<(usize, i16, usize)>> {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let mut events = Vec::<libc::kevent>::with_capacity(CHUNK);
        let room = libc::c_int::try_from(CHUNK).expect("a small constant");
        // SAFETY: there is room for so many events, and the kernel writes as many as it returns.
        let n = unsafe {
            libc::kevent(
                self.0.as_raw_fd(),
                ptr::null(),
                0,
                events.as_mut_ptr(),
                room,
                &raw const now,
            )
        };
        let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
        // SAFETY: the first `n` are written.
        unsafe { events.set_len(n) };
        Ok(events.iter().map(|event| (event.ident, event.filter, event.udata.addr())).collect())
    }
}

impl AsRawFd for Queue {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
