//! Binds Unix sockets for their owner alone, or also for agents of other users, without taking a
//! socket from a live daemon.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context as _, bail};
use tokio::net::UnixListener;

/// The users that may connect, as far as file modes decide it. The server also checks the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    Owner,
    AgentsOfOthers,
}

impl For {
    const fn socket_mode(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::AgentsOfOthers => 0o666,
        }
    }

    /// Others may enter the folder but not list it.
    const fn folder_mode(self) -> u32 {
        match self {
            Self::Owner => 0o700,
            Self::AgentsOfOthers => 0o711,
        }
    }
}

/// Binds `path`. A socket that a dead daemon left is replaced.
///
/// # Errors
/// Returns an error if a process listens there, the path is not a socket, or the folder is not
/// usable.
pub(super) fn bind(path: &Path, who: For) -> anyhow::Result<UnixListener> {
    clear(path)?;
    if let Some(folder) = path.parent() {
        let is_there = folder.exists();
        let mut private = std::fs::DirBuilder::new();
        let created = private.recursive(true).mode(who.folder_mode()).create(folder);
        // A folder that is made here has its mode for any umask. An existing folder keeps its mode.
        let mode = std::fs::Permissions::from_mode(who.folder_mode());
        let made = created
            .and_then(|()| if is_there { Ok(()) } else { std::fs::set_permissions(folder, mode) });
        made.with_context(|| {
            format!("could not create the folder `{}` of the socket", folder.display())
        })?;
    }
    // No other user can connect in the moment between the bind and the change of its mode.
    let before = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o177));
    let bound = UnixListener::bind(path);
    nix::sys::stat::umask(before);
    let listener =
        bound.with_context(|| format!("could not bind the socket `{}`", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(who.socket_mode()))
        .with_context(|| format!("could not protect the socket `{}`", path.display()))?;
    Ok(listener)
}

fn clear(path: &Path) -> anyhow::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(error).with_context(|| format!("could not look at `{}`", path.display()));
        }
        Ok(metadata) => metadata,
    };
    if !metadata.file_type().is_socket() {
        bail!(
            "`{}` is in the way: it is not a socket; move it or choose another path",
            path.display()
        );
    }
    match UnixStream::connect(path) {
        Ok(_) => bail!("another process listens on `{}` already", path.display()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
                .with_context(|| format!("could not remove the stale socket `{}`", path.display()))
        }
        Err(error) => {
            Err(error).with_context(|| format!("could not try the socket `{}`", path.display()))
        }
    }
}
