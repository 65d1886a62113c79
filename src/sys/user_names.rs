//! The names of the users of this machine.

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
