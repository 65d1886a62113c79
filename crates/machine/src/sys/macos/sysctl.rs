//! Queries the kernel by name or number (sysctl(3)).
#![allow(unsafe_code, reason = "system calls that no crate wraps safely")]

use std::ffi::CStr;
use std::io;
use std::ptr;

use nix::libc;

/// Returns the value of `name`, of at most `N` bytes.
pub fn by_name<const N: usize>(name: &CStr) -> io::Result<Vec<u8>> {
    let mut value = vec![0_u8; N];
    let mut length = N;
    // SAFETY: the name ends with NUL, and the kernel writes up to `length` bytes and how many those
    // are.
    let result = unsafe {
        libc::sysctlbyname(
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            &raw mut length,
            ptr::null_mut(),
            0,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    value.truncate(length);
    Ok(value)
}

/// Returns the value of `name`, a number of 4 or 8 bytes.
pub fn number(name: &CStr) -> Option<u64> {
    let value = by_name::<8>(name).ok()?;
    match value.len() {
        4 => Some(u32::from_ne_bytes(value.try_into().ok()?).into()),
        8 => Some(u64::from_ne_bytes(value.try_into().ok()?)),
        _ => None,
    }
}

/// Returns the arguments and the environment of a process, as the kernel keeps them
/// (`KERN_PROCARGS2`).
pub fn process_arguments(pid: i32) -> io::Result<Vec<u8>> {
    /// The largest size of both together, `ARG_MAX`; untouched memory costs nothing.
    const LARGEST: usize = 1024 * 1024;
    let mut name = [libc::CTL_KERN, libc::KERN_PROCARGS2, pid];
    let mut value = vec![0_u8; LARGEST];
    let mut length = LARGEST;
    // SAFETY: three numbers are read, and the kernel writes up to `length` bytes and how many those
    // are.
    let result = unsafe {
        libc::sysctl(
            name.as_mut_ptr(),
            3,
            value.as_mut_ptr().cast(),
            &raw mut length,
            ptr::null_mut(),
            0,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    value.truncate(length);
    Ok(value)
}
