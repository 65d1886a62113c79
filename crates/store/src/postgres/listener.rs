//! Hears what the other servers on the database announce, on a thread of its own.
//!
//! The thread sleeps until a message comes. A message that is sent while the listener has no
//! connection is lost, so each new connection reports that anything may have changed.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime;
use tokio_postgres::{AsyncMessage, Notification};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::super::db::BoxError;
use super::connect::connect;
use super::open::options;
use super::{CHANNEL, EVERYTHING, EventUpdate, Hear, Role, Server, chain};

/// The pause between two attempts to connect.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// The running listener.
pub(super) struct Listener {
    /// Its drop ends the thread.
    ending: DropGuard,
    thread: JoinHandle<()>,
}

impl Listener {
    /// Starts the thread. `hear` gets the messages of other servers.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub(super) fn start(server: Arc<Server>, hear: Hear) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let ending = CancellationToken::new();
        let ended = ending.clone();
        let thread = thread::Builder::new().name("store-listener".to_owned());
        let thread = thread.spawn(move || {
            runtime.block_on(ended.run_until_cancelled(listen(&server, &hear)));
            // A look-up of a name may take long, and nothing needs its answer.
            runtime.shutdown_background();
        })?;
        Ok(Self { ending: ending.drop_guard(), thread })
    }

    /// Ends the thread and its connection.
    pub(super) fn end(self) {
        drop(self.ending);
        // A panic of the thread has been printed.
        let _ = self.thread.join();
    }
}

/// Listens until the future is dropped. It logs once that the messages of other servers are
/// missing, and once that they are heard again.
async fn listen(server: &Server, hear: &Hear) {
    let mut is_reported = false;
    loop {
        let Err(error) = listen_once(server, hear, &mut is_reported).await;
        if !is_reported {
            tracing::warn!(
                error = %chain(error.as_ref()),
                "lost the connection that reports changes of other servers; will retry"
            );
            is_reported = true;
        }
        tokio::time::sleep(RECONNECT_INTERVAL).await;
    }
}

/// Listens until the connection ends.
async fn listen_once(
    server: &Server,
    hear: &Hear,
    is_reported: &mut bool,
) -> Result<Infallible, BoxError> {
    let (client, mut messages) = connect(&server.connector, &options(Role::Listener)).await?;
    let sql = format!("LISTEN {CHANNEL}");
    let mut asked = pin!(client.batch_execute(&sql));
    let mut is_listening = false;
    loop {
        tokio::select! {
            begun = &mut asked, if !is_listening => {
                begun?;
                is_listening = true;
                if std::mem::take(is_reported) {
                    tracing::info!("the connection that reports changes of other servers is open again");
                }
                hear(EventUpdate::Anything);
            }
            message = poll_fn(&mut messages) => match message {
                Some(Ok(AsyncMessage::Notification(sent))) => pass_on(&sent, server, hear),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => return Err("the connection ended".into()),
            },
        }
    }
}

/// Reads a message: the id of its server, and a line for each text. The own server has published
/// its texts already.
fn pass_on(sent: &Notification, server: &Server, hear: &Hear) {
    match sent.payload().split_once('\n') {
        Some((sender, _)) if sender == server.id => {}
        Some((_, texts)) if texts != EVERYTHING => {
            texts.lines().for_each(|text| hear(EventUpdate::Announced(text)));
        }
        _ => hear(EventUpdate::Anything),
    }
}
