//! Handles a long call for its client. A client that asked for progress is told now and then that
//! the call goes on. If the client is gone, the call ends. `server` calls this module around every
//! tool, and tools do not know it.

use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext};
use tokio_util::sync::CancellationToken;

use super::sender::Sender;
use runtime::clock;

/// The time within which most calls end.
const FIRST_PROGRESS: Duration = Duration::from_secs(2);
/// The time between two progress messages. A client that gets them waits for more. Most clients
/// give up a call after a minute without any.
const PROGRESS: Duration = Duration::from_secs(15);
/// The time for sending one message to a client that does not read. The client gets the next one.
const SENDING: Duration = Duration::from_secs(1);

/// The client that waits for the answer to one call.
pub(super) struct CallProgress {
    /// Cancelled by the library when the client cancels the call or is gone.
    cancelled: CancellationToken,
    /// Cancelled by the transport in the same cases.
    gone: CancellationToken,
    progress: Option<(ProgressToken, Peer<RoleServer>)>,
}

impl CallProgress {
    pub(super) fn of(context: &RequestContext<RoleServer>, sender: &Sender) -> Self {
        let token = context.meta.get_progress_token().filter(|_| sender.hears_progress);
        Self {
            cancelled: context.ct.clone(),
            gone: sender.gone.clone(),
            progress: token.map(|token| (token, context.peer.clone())),
        }
    }

    /// Carries out a call, and reports its progress. A call that `waits` is dropped, and `None`
    /// returned, when its client does not wait for the answer any more.
    pub(super) async fn run<T>(&self, waits: bool, call: impl Future<Output = T>) -> Option<T> {
        let told = self.tell(call);
        if !waits {
            return Some(told.await);
        }
        tokio::select! {
            biased;
            () = self.cancelled.cancelled() => None,
            () = self.gone.cancelled() => None,
            answer = told => Some(answer),
        }
    }

    async fn tell<T>(&self, call: impl Future<Output = T>) -> T {
        let Some((token, peer)) = &self.progress else {
            return call.await;
        };
        let began = clock::now();
        let mut call = std::pin::pin!(call);
        let mut next = began + FIRST_PROGRESS;
        loop {
            if let Ok(output) = tokio::time::timeout_at(next, &mut call).await {
                return output;
            }
            // Seconds: it need only grow.
            let progress = ProgressNotificationParam::new(
                token.clone(),
                began.elapsed().as_secs_f64().round(),
            );
            // The notice is sent before the call goes on, because nothing may come after its
            // answer.
            let sent = Box::pin(peer.notify_progress(progress));
            let _ = tokio::time::timeout(SENDING, sent).await;
            next = clock::now() + PROGRESS;
        }
    }
}
