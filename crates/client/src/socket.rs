//! A connection to a server over its Unix socket: lines of JSON-RPC, and many requests at a time.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::task::AbortOnDropHandle;

use super::{Lost, MAX_MESSAGE, UNKNOWN_METHOD};
use machine::locks::lock;

/// The number of lines that wait to be written.
const MAX_UNWRITTEN: usize = 32;
/// JSON-RPC's code for errors of an implementation. Without an id, the error is about the
/// connection.
const NO_ROOM: i64 = -32000;

type Answer = oneshot::Sender<Result<Value, Lost>>;

/// A connection. Its drop closes it.
pub(super) struct Socket {
    lines: mpsc::Sender<String>,
    unanswered: Arc<Mutex<HashMap<u64, Answer>>>,
    carrying: AbortOnDropHandle<()>,
}

impl Socket {
    pub(super) async fn connect(path: &Path) -> Result<Self, Lost> {
        let stream = UnixStream::connect(path).await.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                Lost::NoServer(error.to_string())
            }
            _ => Lost::Unsent(format!("could not reach the server: {error}")),
        })?;
        let (reader, mut writer) = stream.into_split();
        let (lines, mut unwritten) = mpsc::channel::<String>(MAX_UNWRITTEN);
        let unanswered = Arc::<Mutex<HashMap<u64, Answer>>>::default();
        let answers = Arc::clone(&unanswered);
        let replies = lines.clone();
        let carry = async move {
            let writing = async {
                while let Some(line) = unwritten.recv().await {
                    if writer.write_all(line.as_bytes()).await.is_err() {
                        break;
                    }
                }
                // A server that takes no more lines may have said why.
                std::future::pending::<()>().await;
            };
            let lost = tokio::select! {
                lost = read(reader, &answers, &replies) => lost,
                () = writing => unreachable!("the writer waits forever"),
            };
            // Later requests are refused before the earlier ones are told.
            drop(unwritten);
            for (_, answer) in lock(&answers).drain() {
                let _ = answer.send(Err(lost.clone()));
            }
        };
        #[allow(clippy::disallowed_methods, reason = "the handle aborts the task")]
        let carrying = AbortOnDropHandle::new(tokio::spawn(carry));
        Ok(Self { lines, unanswered, carrying })
    }

    /// Sends a message that has no answer.
    pub(super) async fn notify(&self, message: &Value) -> Result<(), Lost> {
        let sent = self.lines.send(format!("{message}\n")).await;
        sent.map_err(|_| Lost::Unsent("the connection is closed".to_owned()))
    }

    /// Sends a request with this id and returns its answer.
    pub(super) async fn request(&self, id: u64, message: &Value) -> Result<Value, Lost> {
        let (answer, answered) = oneshot::channel();
        lock(&self.unanswered).insert(id, answer);
        if let Err(lost) = self.notify(message).await {
            lock(&self.unanswered).remove(&id);
            return Err(lost);
        }
        answered.await.unwrap_or_else(|_| Err(Lost::unanswered()))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.carrying.is_finished()
    }
}

/// Hands out answers until the connection ends. Returns what is lost then.
async fn read(
    reader: impl AsyncRead + Unpin,
    unanswered: &Mutex<HashMap<u64, Answer>>,
    replies: &mpsc::Sender<String>,
) -> Lost {
    // A line without an end would fill the memory.
    let mut lines = FramedRead::new(reader, LinesCodec::new_with_max_length(MAX_MESSAGE));
    while let Some(line) = lines.next().await {
        let message = line.map_err(|error| error.to_string()).and_then(|line| {
            serde_json::from_str::<Value>(&line).map_err(|error| error.to_string())
        });
        let message = match message {
            Ok(message) => message,
            Err(error) => return Lost::Answer(format!("the answer is not valid: {error}")),
        };
        if let (Some(method), Some(id)) = (message.get("method"), message.get("id")) {
            // A server that waits for the answer to a ping may close the connection without it.
            let reply = if method == "ping" {
                json!({ "jsonrpc": "2.0", "id": id, "result": {} })
            } else {
                let error =
                    json!({ "code": UNKNOWN_METHOD, "message": "this client has no methods" });
                json!({ "jsonrpc": "2.0", "id": id, "error": error })
            };
            let _ = replies.try_send(format!("{reply}\n"));
        } else if let Some(id) = message["id"].as_u64() {
            if let Some(answer) = lock(unanswered).remove(&id) {
                let _ = answer.send(Ok(message));
            }
        } else if message["error"]["code"] == NO_ROOM {
            // A server without room for the connection says so before it closes, and takes nothing.
            let problem = message["error"]["message"].as_str().unwrap_or("the server has no room");
            return Lost::Unsent(problem.to_owned());
        }
    }
    Lost::unanswered()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_without_an_end_ends_the_connection() {
        let unanswered = Mutex::default();
        let (replies, _lines) = mpsc::channel(1);
        let mut lines = b"{}\n".to_vec();
        lines.resize(MAX_MESSAGE + 3, b' ');
        let lost = read(&lines[..], &unanswered, &replies).await;
        assert!(!lost.to_string().contains("max line length"), "{lost}");
        lines.push(b' ');
        let lost = read(&lines[..], &unanswered, &replies).await;
        assert!(lost.to_string().contains("max line length"), "{lost}");
    }

    #[tokio::test]
    async fn a_ping_is_answered() {
        let unanswered = Mutex::default();
        let (replies, mut lines) = mpsc::channel(1);
        read(&br#"{"id":"p","method":"ping"}"#[..], &unanswered, &replies).await;
        let reply: Value =
            serde_json::from_str(&lines.recv().await.expect("a line")).expect("JSON");
        assert_eq!(reply, json!({ "jsonrpc": "2.0", "id": "p", "result": {} }));
    }
}
