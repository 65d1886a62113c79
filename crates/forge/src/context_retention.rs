//! Removes the folders of items that retention has deleted (`retention.history`).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use super::contexts::Contexts;
use runtime::telemetry::ErrorChain;
use service::Service;

/// The time between two passes.
const INTERVAL: Duration = Duration::from_hours(6);

/// Removes folders as long as it is polled. Cancel-safe.
pub(super) async fn forget(service: Arc<Service>, contexts: Arc<Contexts>) -> Infallible {
    loop {
        let known = Arc::clone(&contexts);
        let completed =
            tokio::task::spawn_blocking(move || known.completed()).await.unwrap_or_default();
        for id in completed {
            match service.forge_items.get(&id).await {
                Ok(None) => {
                    let known = Arc::clone(&contexts);
                    let removed =
                        tokio::task::spawn_blocking(move || known.remove_completed(&id)).await;
                    if let Ok(Err(error)) = removed {
                        tracing::warn!(error = %ErrorChain(&error), "could not remove the folder of an old forge item");
                    }
                }
                Ok(Some(_)) => {}
                Err(error) => {
                    tracing::warn!(error = %ErrorChain(&error), "could not look for the folders of old forge items; will try again");
                    break;
                }
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
