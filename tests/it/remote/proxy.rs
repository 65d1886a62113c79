//! A TCP proxy between a coordinator and its server that passes data, or breaks in one of many
//! ways.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// The treatment of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Pass,
    /// Closes it at once.
    Close,
    /// Reads everything and never answers.
    Hang,
    /// Answers every request with 500.
    Fail,
    /// Answers with a text that is not HTTP.
    Garbage,
    /// Answers with JSON that is not an answer.
    OtherJson,
    /// Answers with JSON that doesn't end: 64 MiB of it.
    Huge,
    /// Closes in the middle of an answer.
    Half,
    /// Passes data, with a delay for each piece of an answer.
    Slow,
}

/// The delay of a slow proxy for each piece, as long as it is slow.
const SLOWNESS: Duration = Duration::from_secs(1);

/// A running proxy. Its drop closes all connections.
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    server: SocketAddr,
    mode: Mutex<Mode>,
    mode_changed: Condvar,
    open: Mutex<Vec<TcpStream>>,
    is_over: AtomicBool,
    n_slow: AtomicUsize,
    /// The greatest number of slow connections at a time.
    most_slow: AtomicUsize,
    /// The number of delayed pieces of answers.
    n_slow_pieces: AtomicUsize,
}

impl Proxy {
    pub fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (mode, open) = (Mutex::new(Mode::Pass), Mutex::default());
        let shared = Shared {
            server,
            mode,
            mode_changed: Condvar::new(),
            open,
            is_over: AtomicBool::new(false),
            n_slow: AtomicUsize::new(0),
            most_slow: AtomicUsize::new(0),
            n_slow_pieces: AtomicUsize::new(0),
        };
        let shared = Arc::new(shared);
        let accepting = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for stream in listener.incoming() {
                    if shared.is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    let (shared, stream) = (Arc::clone(&shared), stream.unwrap());
                    std::thread::spawn(move || shared.treat(stream));
                }
            }
        });
        Self { shared, address, accepting: Some(accepting) }
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Sets the mode for new connections, and closes the open ones.
    pub fn set(&self, mode: Mode) {
        let mut current = self.shared.mode.lock().unwrap();
        *current = mode;
        self.shared.mode_changed.notify_all();
        for stream in self.shared.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Returns the greatest number of slow connections at a time, and the number of delayed pieces
    /// of answers.
    pub fn slow(&self) -> (usize, usize) {
        (
            self.shared.most_slow.load(Ordering::SeqCst),
            self.shared.n_slow_pieces.load(Ordering::SeqCst),
        )
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // This wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
        self.accepting.take().unwrap().join().unwrap();
        self.set(Mode::Close);
    }
}

impl Shared {
    fn treat(&self, mut client: TcpStream) {
        // The list of open connections has a descriptor of it, too, so that dropping this one
        // closes nothing.
        let end = client.try_clone().unwrap();
        self.answer(&mut client);
        let _ = end.shutdown(Shutdown::Both);
    }

    fn answer(&self, client: &mut TcpStream) {
        let mode = {
            // Both locks are held, so that no connection misses a change.
            let mode = self.mode.lock().unwrap();
            self.open.lock().unwrap().push(client.try_clone().unwrap());
            *mode
        };
        match mode {
            Mode::Close => {}
            Mode::Pass => self.pass(client.try_clone().unwrap(), |_| {}),
            Mode::Slow => {
                let n_slow = self.n_slow.fetch_add(1, Ordering::SeqCst) + 1;
                self.most_slow.fetch_max(n_slow, Ordering::SeqCst);
                self.pass(client.try_clone().unwrap(), |shared| {
                    let mode = shared.mode.lock().unwrap();
                    let _slow_no_more = shared
                        .mode_changed
                        .wait_timeout_while(mode, SLOWNESS, |mode| *mode == Mode::Slow)
                        .unwrap();
                    shared.n_slow_pieces.fetch_add(1, Ordering::SeqCst);
                });
                self.n_slow.fetch_sub(1, Ordering::SeqCst);
            }
            Mode::Hang => drain(client),
            Mode::Fail => answer(client, "HTTP/1.1 500 Oops\r\ncontent-length: 4\r\n\r\noops"),
            Mode::Garbage => answer(client, "\u{1}\u{2} what is this\r\n\r\n"),
            Mode::OtherJson => {
                let body = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":7}}"#;
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
                answer(client, &format!("{head} {}\r\n\r\n{body}", body.len()));
            }
            Mode::Huge => {
                answer(
                    client,
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"a\":\"",
                );
                for _ in 0..1024 {
                    if client.write_all(&vec![b'x'; 64 * 1024]).is_err() {
                        return;
                    }
                }
            }
            Mode::Half => {
                answer(
                    client,
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{\"json",
                );
            }
        }
    }

    /// Passes all data, and calls `hold_up` for each piece of an answer.
    fn pass(&self, client: TcpStream, hold_up: impl Fn(&Self) + Send) {
        let Ok(server) = TcpStream::connect(self.server) else {
            return;
        };
        self.open.lock().unwrap().push(server.try_clone().unwrap());
        let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(move || copy(back.0, back.1, || hold_up(self)));
            copy(client, server, || {});
        });
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, hold_up: impl Fn()) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(n_read @ 1..) = from.read(&mut buffer) {
        hold_up();
        if to.write_all(&buffer[..n_read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

fn drain(stream: &mut TcpStream) {
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer).is_ok_and(|n_read| n_read > 0) {}
}

/// Answers after a request.
fn answer(stream: &mut TcpStream, text: &str) {
    let mut buffer = [0; 4096];
    if stream.read(&mut buffer).is_ok_and(|n_read| n_read > 0) {
        let _ = stream.write_all(text.as_bytes());
    }
}
