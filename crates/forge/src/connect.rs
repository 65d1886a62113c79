//! Makes a client from a host of the configuration.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::gate::Gate;
use super::{Forge, HostError};
use config::ForgeHost;
use domain::Secret;
use domain::forge::pacing::Pace;
use runtime::nudge::Nudge;

/// The longest token file. Longer files contain something else.
const MAX_TOKEN_FILE: u64 = 16 * 1024;

/// The reason why a host cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("could not read the token file `{}`", .path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the token file `{}` holds no token: expected one line", .path.display())]
    NoToken { path: PathBuf },
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Reads the token and creates the client of `host`, for a caller that shares the host with no
/// other. Nothing is sent. Blocks for the time that reading a small file takes.
///
/// # Errors
/// A token file that cannot be read or has no token, and a host with an invalid address.
pub fn connect(host: &ForgeHost, write_interval: Duration) -> Result<Forge, ConnectError> {
    let pace = Pace { write_interval, ..Pace::unlimited() };
    connect_through(host, token_of(host)?, Arc::new(Gate::new(pace, Nudge::new())))
}

/// Returns the token of a host, from the configuration or from its file.
pub(super) fn token_of(host: &ForgeHost) -> Result<Secret, ConnectError> {
    match &host.account.token_file {
        Some(path) => read_token(path),
        None => Ok(host.account.token.clone()),
    }
}

/// Creates a client like [`connect`], with this token and through the gate of the host.
pub(super) fn connect_through(
    host: &ForgeHost,
    token: Secret,
    gate: Arc<Gate>,
) -> Result<Forge, ConnectError> {
    if let Some(path) = &host.account.token_file
        && is_open_to_others(path)
    {
        tracing::warn!(path = %path.display(), "all users of this machine can read a token file");
    }
    Ok(Forge::new(host.kind, &host.account.base_url, token, gate)?)
}

/// Returns whether every user of this machine may read a file; `false` for a missing file.
pub fn is_open_to_others(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o004 != 0)
}

/// Reads the token from a file of one line. Blocks for the time that reading a small file takes.
///
/// # Errors
/// A file that cannot be read, and a file without a token.
pub fn read_token(path: &Path) -> Result<Secret, ConnectError> {
    let unreadable = |source| ConnectError::Unreadable { path: path.to_owned(), source };
    let file = fs::metadata(path).map_err(unreadable)?;
    // A pipe may never end.
    if !file.is_file() || file.len() > MAX_TOKEN_FILE {
        return Err(ConnectError::NoToken { path: path.to_owned() });
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let token = text.trim();
    let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    if is_token {
        Ok(Secret::new(token))
    } else {
        Err(ConnectError::NoToken { path: path.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::ForgeAccount;
    use domain::forge::{ForgeKind, LabelNames};

    fn host(path: PathBuf) -> ForgeHost {
        ForgeHost {
            kind: ForgeKind::GitLab,
            account: ForgeAccount {
                base_url: "https://code.example/gitlab".to_owned(),
                token_file: Some(path),
                bot_name: "coder".to_owned(),
                ..ForgeAccount::default()
            },
            labels: LabelNames::default(),
            repositories: Vec::new(),
        }
    }

    #[test]
    fn a_token_is_one_line_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let check = |text: &[u8], is_token: bool| {
            fs::write(&path, text).unwrap();
            let connected = connect(&host(path.clone()), Duration::ZERO);
            assert_eq!(connected.is_ok(), is_token, "{:?}", String::from_utf8_lossy(text));
            if let Err(error) = connected {
                assert!(error.to_string().contains("token`"), "{error}");
            }
        };
        check(b"glpat-x\n", true);
        check(b"  glpat-x \r\n", true);
        check(b"", false);
        check(b"one\ntwo\n", false);
        check(b"\xff\xfe", false);
        check("x".repeat(20_000).as_bytes(), false);
        assert!(matches!(
            connect(&host(folder.path().to_owned()), Duration::ZERO),
            Err(ConnectError::NoToken { .. })
        ));
        assert!(matches!(
            connect(&host(folder.path().join("none")), Duration::ZERO),
            Err(ConnectError::Unreadable { .. })
        ));
    }

    #[test]
    fn a_file_for_everybody_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "x").unwrap();
        for (mode, is_open) in [(0o600, false), (0o640, false), (0o644, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_open_to_others(&path), is_open, "{mode:o}");
        }
    }
}
