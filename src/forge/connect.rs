//! From a configured host to a forge that can be asked: its token is read, nothing is sent yet.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::github::GitHub;
use super::gitlab::GitLab;
use super::{Forge, HostError};
use crate::config::{ForgeHost, ForgeToken};
use crate::domain::Secret;
use crate::domain::forge::ForgeKind;

/// Why there is no forge to ask.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("could not read the token of {host} from `{}`", .path.display())]
    TokenFile {
        host: String,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Host(#[from] HostError),
}

/// The forge at `host`, whose writes are so far apart at least, with the token as it is now: a file of it is read again each time.
///
/// # Errors
/// [`ConnectError`]; nothing else can fail before something is asked.
pub fn connect(host: &ForgeHost, write_interval: Duration) -> Result<Arc<dyn Forge>, ConnectError> {
    let token = match &host.token {
        ForgeToken::Given(token) => token.clone(),
        ForgeToken::File(path) => {
            let text = std::fs::read_to_string(path).map_err(|source| ConnectError::TokenFile {
                host: host.host.clone(),
                path: path.clone(),
                source,
            })?;
            Secret::new(text.trim())
        }
    };
    Ok(match host.kind {
        ForgeKind::GitHub => {
            let mut forge = GitHub::new(&host.base_url, token)?;
            forge.host_mut().set_write_interval(write_interval);
            Arc::new(forge)
        }
        ForgeKind::GitLab => {
            let mut forge = GitLab::new(&host.base_url, token)?;
            forge.host_mut().set_write_interval(write_interval);
            Arc::new(forge)
        }
    })
}
