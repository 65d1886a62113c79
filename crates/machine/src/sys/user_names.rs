//! The names of the users of this machine.

use std::ffi::OsString;
use std::path::PathBuf;

use nix::unistd::{Uid, User};

/// Returns the full name of a user of this machine, or else the name of the login.
///
/// It may block for long, because the users of a machine may be in a directory on the network.
pub fn name_of(uid: u32) -> String {
    let Ok(Some(user)) = User::from_uid(Uid::from_raw(uid)) else {
        return format!("user {uid}");
    };
    let full = user.gecos.to_string_lossy().split(',').next().unwrap_or_default().trim().to_owned();
    if full.is_empty() { user.name } else { full }
}

/// Returns the name of the login of a user of this machine. It may block for long.
pub fn login_of(uid: u32) -> Option<String> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name)
}

/// Returns the id of the user with this name, if this machine has one. It may block for long.
pub fn uid_of(name: &str) -> nix::Result<Option<u32>> {
    Ok(User::from_name(name)?.map(|user| user.uid.as_raw()))
}

/// Returns the home folder of a user of this machine. It may block for long.
pub fn home_of(uid: u32) -> Option<PathBuf> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.dir)
}

/// Returns the variables that a login of a user of this machine sets. It may block for long.
pub fn login_variables(uid: u32) -> Vec<(&'static str, OsString)> {
    let Ok(Some(user)) = User::from_uid(Uid::from_raw(uid)) else {
        return Vec::new();
    };
    let name = OsString::from(user.name);
    vec![
        ("HOME", user.dir.into()),
        ("SHELL", user.shell.into()),
        ("USER", name.clone()),
        ("LOGNAME", name),
    ]
}
