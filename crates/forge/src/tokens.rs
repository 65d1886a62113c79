//! Follows the file of a host's token, so that a new token is used at once.
//!
//! The folder of the file is watched, because editors and secret stores replace the file. If the
//! folder can't be watched, a token that is refused is read again at the next look. Spawned once
//! for each host whose token is in a file.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::host_state::HostState;
use runtime::folder_watch::Folders;

/// The delay between an event and the reading of the file. The file may be incomplete, and a busy
/// folder has many events.
const QUIET: Duration = Duration::from_millis(200);

/// Follows the file as long as it is polled. Cancel-safe.
pub(super) async fn follow(host_state: Arc<HostState>, file: std::path::PathBuf) -> Infallible {
    let folders = watched(&file);
    loop {
        // The file is read before the first wait, too, because it may have changed.
        if matches!(host_state.read_token_again(), Ok(true)) {
            tracing::info!(host = host_state.config.host(), file = %file.display(), "read a new token for a forge");
            host_state.service.forges.look();
        }
        let seen = match &folders {
            Some(folders) => folders.seen().await.map(drop),
            None => std::future::pending().await,
        };
        if let Err(error) = seen {
            tracing::warn!(file = %file.display(), %error, "lost the watch of a token file; run `refresh` after a change");
            return std::future::pending().await;
        }
        tokio::time::sleep(QUIET).await;
    }
}

fn watched(file: &Path) -> Option<Folders> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty())?;
    let watched = Folders::new().and_then(|folders| {
        folders.watch_files(folder)?;
        Ok(folders)
    });
    watched
        .inspect_err(|error| {
            tracing::warn!(file = %file.display(), %error, "could not watch a token file; run `refresh` after a change");
        })
        .ok()
}
