//! A proxy before a server of the tests that passes data, loses the end of a transaction, or is
//! slow.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;

use crate::postgres::{USER, socket, url};
use crate::support::DEADLINE;

/// The fault of a connection at the end of a transaction that has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The commit does not reach the server, and the connection ends.
    CommitLost,
    /// The commit is made, its answer does not reach the client, and the connection ends.
    AnswerLost,
    /// Does the same as [`Fault::AnswerLost`], and the server does not notice it.
    OnlyClientCut,
    /// The commit is made, and the client waits for its answer until the server ends.
    AnswerHeld,
}

/// A running proxy. Its drop closes all connections.
pub struct Proxy {
    folder: TempDir,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    server: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The delay of each message that the server answers.
    delay: Duration,
    /// The fault of the next transaction that ends.
    fault: Option<Fault>,
    open: Vec<UnixStream>,
    is_over: bool,
}

impl Proxy {
    /// Starts a proxy before the server with its socket in `folder`.
    pub fn to(server: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(socket(folder.path())).unwrap();
        let shared = Arc::new(Shared {
            server: socket(server),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let accepting = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for client in listener.incoming() {
                    if shared.state().is_over {
                        return;
                    }
                    let (shared, client) = (Arc::clone(&shared), client.unwrap());
                    std::thread::spawn(move || shared.pass(&client));
                }
            }
        });
        Self { folder, shared, accepting: Some(accepting) }
    }

    /// Returns the folder with the socket of the proxy.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the URL of a database behind the proxy.
    pub fn url(&self, database: &str) -> String {
        url(&[self.folder()], USER, database)
    }

    /// Delays each message from now on.
    pub fn slow_down(&self, delay: Duration) {
        self.shared.state().delay = delay;
        self.shared.changed.notify_all();
    }

    /// Lets the next transaction that ends have this fault.
    pub fn set(&self, fault: Fault) {
        self.shared.state().fault = Some(fault);
    }

    /// Waits until a transaction has had the fault.
    pub fn until_it_happened(&self) {
        let waited = self
            .shared
            .changed
            .wait_timeout_while(self.shared.state(), DEADLINE, |state| state.fault.is_some())
            .unwrap();
        assert!(!waited.1.timed_out(), "no transaction has ended");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.slow_down(Duration::ZERO);
        self.shared.state().is_over = true;
        // This wakes the accepting thread.
        let _ = UnixStream::connect(socket(self.folder()));
        self.accepting.take().unwrap().join().unwrap();
        for stream in self.shared.state().open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Waits for the delay of a message.
    fn hold_up(&self) {
        let state = self.state();
        let delay = state.delay;
        if !delay.is_zero() {
            let is_slow = |state: &mut State| state.delay == delay;
            drop(self.changed.wait_timeout_while(state, delay, is_slow).unwrap());
        }
    }

    /// Passes all data of a connection in both directions.
    fn pass(&self, client: &UnixStream) {
        let Ok(server) = UnixStream::connect(&self.server) else { return };
        self.state().open.extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
        let fault = Mutex::new(None);
        std::thread::scope(|scope| {
            scope.spawn(|| self.pass_answers(&server, client, &fault));
            // An end of one side ends the other one.
            let _ = self.pass_messages(client, &server, &fault);
            if *fault.lock().unwrap() != Some(Fault::OnlyClientCut) {
                let _ = server.shutdown(Shutdown::Both);
            }
        });
    }

    fn pass_messages(
        &self,
        mut client: &UnixStream,
        mut server: &UnixStream,
        fault: &Mutex<Option<Fault>>,
    ) -> io::Result<()> {
        // Only the first message has no letter before its length.
        let mut message = read_message(&mut client, 0)?;
        loop {
            if is_end_of_transaction(&message) {
                let planned = self.state().fault;
                if planned == Some(Fault::CommitLost) {
                    client.shutdown(Shutdown::Both)?;
                    self.has_happened();
                    return Ok(());
                }
                *fault.lock().unwrap() = planned;
            }
            if matches!(message.first(), Some(b'Q' | b'S')) {
                self.hold_up();
            }
            server.write_all(&message)?;
            message = read_message(&mut client, 1)?;
        }
    }

    fn pass_answers(
        &self,
        mut server: &UnixStream,
        mut client: &UnixStream,
        fault: &Mutex<Option<Fault>>,
    ) {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(n_read @ 1..) = server.read(&mut buffer) {
            let fault = *fault.lock().unwrap();
            match fault {
                None if client.write_all(&buffer[..n_read]).is_err() => break,
                None => {}
                Some(fault) => {
                    if fault != Fault::AnswerHeld {
                        let _ = client.shutdown(Shutdown::Both);
                    }
                    self.has_happened();
                    if fault == Fault::AnswerLost {
                        break;
                    }
                }
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        if *fault.lock().unwrap() != Some(Fault::OnlyClientCut) {
            let _ = server.shutdown(Shutdown::Both);
        }
    }

    fn has_happened(&self) {
        self.state().fault = None;
        self.changed.notify_all();
    }
}

/// Reads a message whose length comes after `n_before` bytes.
fn read_message(from: &mut &UnixStream, n_before: usize) -> io::Result<Vec<u8>> {
    let mut message = vec![0; n_before + 4];
    from.read_exact(&mut message)?;
    let length = u32::from_be_bytes(message[n_before..].try_into().unwrap());
    message.resize(n_before + usize::try_from(length).unwrap(), 0);
    from.read_exact(&mut message[n_before + 4..])?;
    Ok(message)
}

/// Returns whether a message commits a transaction that has written.
fn is_end_of_transaction(message: &[u8]) -> bool {
    message.starts_with(b"Q") && String::from_utf8_lossy(message).contains("UPDATE servers")
}
