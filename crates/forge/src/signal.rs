//! The pause file: while it exists, no agent is started, and work on items of forges is paused. It
//! also works without a forge.
//!
//! Changes are noticed at once if its folder can be watched, and are checked for regularly in any
//! case.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use config::PauseResume;
use domain::forge::ItemState;
use domain::forge::item::WorkState;
use machine::crash_point::{self, CrashPoint};
use runtime::folder_watch::Folders;
use runtime::nudge::Nudges;
use runtime::telemetry::ErrorChain;
use service::{Service, ServiceError};

/// Returns the pause file if it exists. A file that cannot be checked counts as absent: a folder
/// without rights must not stop everything.
pub fn pause_file(settings: &PauseResume) -> Option<&Path> {
    Some(settings.signal_file.as_path()).filter(|file| settings.enabled && file.exists())
}

/// The longest pause after a failure of the store.
const RETRY: Duration = Duration::from_secs(5);

/// Follows the file as long as it is polled. Cancel-safe.
pub(super) async fn follow(
    service: &Arc<Service>,
    settings: &PauseResume,
    poll_interval: Duration,
    pokes: &Nudges<String>,
) -> Infallible {
    let look_interval = poll_interval * settings.check_interval;
    let folders = settings.signal_file.parent().and_then(watched);
    let mut has_failed = false;
    loop {
        let looked = look(service, settings, pokes).await;
        if let Err(error) = &looked
            && !has_failed
        {
            tracing::warn!(
                file = %settings.signal_file.display(),
                error = %ErrorChain(error),
                "could not store whether the pause file exists; will try again"
            );
        }
        has_failed = looked.is_err();
        let pause = if has_failed { look_interval.min(RETRY) } else { look_interval };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stirred(folders.as_ref()) => {}
        }
    }
}

/// Looks at the file, and stores what it pauses.
async fn look(
    service: &Service,
    settings: &PauseResume,
    pokes: &Nudges<String>,
) -> Result<(), ServiceError> {
    let pause_file = pause_file(settings);
    let is_news = service.hold_starts(pause_file).await?;
    let file = settings.signal_file.display();
    if pause_file.is_some() {
        if is_news {
            tracing::warn!(%file, "the pause file exists: no agent is started, and work of forges is paused");
        }
        return pause_all(service).await;
    }
    if is_news {
        tracing::info!(%file, "the pause file is gone: agents are started again");
        pokes.wake_where(|_| true);
    }
    Ok(())
}

async fn pause_all(service: &Service) -> Result<(), ServiceError> {
    for item in service.forge_items.open().await? {
        service.forge_items.pause(&item.id).await?;
        if matches!(item.state, ItemState::Active(WorkState::Processing)) {
            crash_point::reach(CrashPoint::ItemPauseWanted);
        }
    }
    Ok(())
}

fn watched(folder: &Path) -> Option<Folders> {
    let made = std::fs::create_dir_all(folder);
    let folders = made.and_then(|()| Folders::new()).and_then(|folders| {
        folders.watch_files(folder)?;
        Ok(folders)
    });
    folders
        .inspect_err(
            |error| tracing::warn!(folder = %folder.display(), %error, "could not watch the pause file; polling for it instead"),
        )
        .ok()
}

async fn stirred(folders: Option<&Folders>) {
    match folders {
        Some(folders) => drop(folders.seen().await),
        None => std::future::pending().await,
    }
}
