//! `mcp`: the bridge for agents that speak only stdio MCP. It carries lines between standard input
//! and output and the server's socket, byte for byte.
//!
//! The bridge outlives a restart of the server. It connects again, and tells the client which of
//! its calls were lost. Only a lost report is sent again, while other lines are carried. The bridge
//! connects only when there is a line to send, because a server closes idle connections.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::call::{send_again, unanswered};
use super::error::CliError;
use super::kept_report::{Mailbox, is_put_off, report_of};
use super::waits::{FIRST_PAUSE, LAST_ANSWERS, LAST_LINES, LONGEST_PAUSE, TIMEOUT};
use domain::ServerAddress;
use runtime::clock;
use runtime::nudge::sleep_until;

/// The bytes of lines from which on no further line is read while there is no server.
const MAX_UNSENT: usize = 64 * 1024;

/// Carries lines until the input ends, and the answers until `client_gone`.
pub(super) async fn run(
    socket: PathBuf,
    mailbox: Mailbox,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
    client_gone: impl Future<Output = ()>,
) -> Result<(), CliError> {
    let mut bridge = Bridge::new(socket, mailbox, input, output);
    let carried = bridge.carry_all(std::pin::pin!(client_gone)).await;
    bridge.note_unread().await;
    // A report without an answer is kept, also if the output is closed.
    let kept = bridge.keep_reports().await;
    let said = bridge.say_what_was_lost().await;
    carried.and(kept).and(said)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carried {
    InputEnded,
    ConnectionLost,
    /// The connection was lost before the server took a line.
    NothingTaken,
}

/// A request without an answer.
struct Call {
    request: Value,
    /// The client cancelled it, and expects no answer. Only a report is carried out all the same.
    is_cancelled: bool,
}

struct Bridge<I, O> {
    socket: PathBuf,
    mailbox: Mailbox,
    input: BufReader<I>,
    output: O,
    /// The requests that went to the server and have no answer yet, by their ids as text.
    unanswered: BTreeMap<String, Call>,
    /// The lines of the input that no server took as a whole. The last one is being read.
    unsent: Vec<u8>,
    /// The deadline for the last answers, after the end of the input.
    input_ended: Option<Instant>,
    /// The reports that are being sent again, by their ids as text, and their answers.
    repeated: BTreeMap<String, Call>,
    repeats: JoinSet<Option<Value>>,
}

impl<I: AsyncRead + Unpin, O: AsyncWrite + Unpin> Bridge<I, O> {
    fn new(socket: PathBuf, mailbox: Mailbox, input: I, output: O) -> Self {
        Self {
            socket,
            mailbox,
            input: BufReader::new(input),
            output,
            unanswered: BTreeMap::new(),
            unsent: Vec::new(),
            input_ended: None,
            repeated: BTreeMap::new(),
            repeats: JoinSet::new(),
        }
    }

    /// Carries lines over one connection after the other.
    async fn carry_all(
        &mut self,
        mut client_gone: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), CliError> {
        let mut pause = Duration::ZERO;
        let mut give_up_at = None;
        while self.has_line(client_gone.as_mut()).await? {
            let stream = self.connect(pause, client_gone.as_mut()).await?;
            let Some(stream) = stream else { return Ok(()) };
            pause = match self.carry(stream, client_gone.as_mut()).await? {
                Carried::InputEnded => return Ok(()),
                Carried::ConnectionLost => Duration::ZERO,
                Carried::NothingTaken => (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE),
            };
            if pause.is_zero() {
                give_up_at = None;
                if self.input_ended.is_none() {
                    eprintln!(
                        "agent-coordinator mcp: the server closed the connection; the next line \
                         will open another"
                    );
                }
            } else if clock::now() >= *give_up_at.get_or_insert(clock::now() + TIMEOUT) {
                return Err(no_server(&self.socket));
            }
            self.say_what_was_lost().await?;
        }
        Ok(())
    }

    /// Waits for a line to send. Returns `false` at the end of the input, and if the client leaves
    /// while a report is sent again.
    async fn has_line(
        &mut self,
        mut client_gone: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<bool, CliError> {
        while self.line_length() == 0 {
            if self.input_ended.is_some() && self.repeats.is_empty() {
                return Ok(false);
            }
            let may_read = self.input_ended.is_none();
            tokio::select! {
                read = self.input.read_until(b'\n', &mut self.unsent), if may_read => {
                    if read? == 0 {
                        self.note_end();
                    }
                },
                Some(answer) = self.repeats.join_next() => self.write_repeated(answer).await?,
                () = sleep_until(self.input_ended) => return Ok(false),
                () = &mut client_gone, if !self.repeats.is_empty() => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Returns the length of the first unsent line; 0 if it is not whole yet. The last line of the
    /// input may lack its line end.
    fn line_length(&self) -> usize {
        match self.unsent.iter().position(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None if self.input_ended.is_some() => self.unsent.len(),
            None => 0,
        }
    }

    fn note_end(&mut self) {
        if self.input_ended.is_none() {
            self.input_ended = Some(clock::now() + LAST_ANSWERS);
        }
    }

    /// Notes the lines that were not sent, also those that the client has written and that were
    /// not read yet.
    async fn note_unread(&mut self) {
        if self.input_ended.is_none() {
            let reading = async {
                while matches!(self.input.read_until(b'\n', &mut self.unsent).await, Ok(1..)) {}
            };
            let _ = tokio::time::timeout(LAST_LINES, reading).await;
        }
        for line in std::mem::take(&mut self.unsent).split(|byte| *byte == b'\n') {
            self.note_request(line);
        }
    }

    /// Connects to the server after a pause, and reads further lines meanwhile. Returns `None` if
    /// the client leaves.
    async fn connect(
        &mut self,
        pause: Duration,
        mut client_gone: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Option<UnixStream>, CliError> {
        let socket = self.socket.clone();
        let mut connected = std::pin::pin!(async {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            connect(&socket).await
        });
        loop {
            let may_read = self.input_ended.is_none() && self.unsent.len() < MAX_UNSENT;
            tokio::select! {
                stream = &mut connected => return stream.map(Some),
                read = self.input.read_until(b'\n', &mut self.unsent), if may_read => {
                    if read? == 0 {
                        self.note_end();
                    }
                },
                Some(answer) = self.repeats.join_next() => self.write_repeated(answer).await?,
                () = sleep_until(self.input_ended) => return Err(no_server(&socket)),
                () = &mut client_gone => return Ok(None),
            }
        }
    }

    /// Carries lines over one connection. The first line is in `unsent` already.
    async fn carry(
        &mut self,
        stream: UnixStream,
        mut client_gone: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Carried, CliError> {
        let (reader, mut writer) = stream.into_split();
        let mut reader = BufReader::new(reader);
        let mut answer = Vec::new();
        let mut has_sent_all = false;
        if let Err(carried) = self.send(&mut writer, client_gone.as_mut()).await {
            return Ok(carried);
        }
        // The deadline for answers that came before a server took no further line.
        let mut lost_at = None;
        loop {
            let is_answered = self.unanswered.values().all(|call| call.is_cancelled);
            if has_sent_all && is_answered && self.repeats.is_empty() {
                return Ok(Carried::InputEnded);
            }
            let may_leave = self.input_ended.is_some() || !self.repeats.is_empty();
            tokio::select! {
                // Both reads are cancel-safe, because the bytes that they have read stay in their
                // buffers.
                read = reader.read_until(b'\n', &mut answer) => match read {
                    Ok(n_read) if n_read > 0 && answer.ends_with(b"\n") => {
                        let rest = self.note_answer(&answer);
                        self.write(rest.as_deref().unwrap_or(&answer)).await?;
                        answer.clear();
                    }
                    _ => return Ok(Carried::ConnectionLost),
                },
                has_line = read_line(&mut self.input, &mut self.unsent),
                    if !has_sent_all && lost_at.is_none() =>
                {
                    if !has_line? {
                        self.note_end();
                    }
                    if self.unsent.is_empty() {
                        has_sent_all = true;
                        // This tells the server that no more lines come. Its answers still come.
                        let _ = writer.shutdown().await;
                    } else {
                        match self.send(&mut writer, client_gone.as_mut()).await {
                            Err(Carried::InputEnded) => return Ok(Carried::InputEnded),
                            Err(_) => lost_at = Some(clock::now() + LAST_LINES),
                            Ok(()) => {}
                        }
                    }
                },
                Some(repeated) = self.repeats.join_next() => self.write_repeated(repeated).await?,
                () = sleep_until(lost_at) => return Ok(Carried::ConnectionLost),
                () = sleep_until(self.input_ended) => return Ok(Carried::InputEnded),
                () = &mut client_gone, if may_leave => return Ok(Carried::InputEnded),
            }
        }
    }

    /// Sends the first line, unless the client leaves or the time for the last answers is over. It
    /// stays in `unsent` if the server did not take it as a whole. A server ignores a line without
    /// its line end.
    async fn send(
        &mut self,
        writer: &mut (impl AsyncWrite + Unpin),
        client_gone: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Carried> {
        let length = self.line_length();
        tokio::select! {
            biased;
            sent = writer.write_all(&self.unsent[..length]) => {
                sent.map_err(|_| Carried::NothingTaken)?;
            },
            () = sleep_until(self.input_ended) => return Err(Carried::InputEnded),
            () = client_gone => return Err(Carried::InputEnded),
        }
        let line: Vec<u8> = self.unsent.drain(..length).collect();
        self.note_request(&line);
        Ok(())
    }

    fn note_request(&mut self, line: &[u8]) {
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            // The error about such a line has no id.
            if !line.trim_ascii().is_empty() {
                self.note_call(&Value::Null, Value::Null);
            }
            return;
        };
        for message in messages(&message) {
            match (message.get("id"), message.get("method")) {
                (Some(id), Some(_)) => self.note_call(id, message.clone()),
                (None, Some(method)) if method == "notifications/cancelled" => {
                    self.note_cancelled(&message["params"]["requestId"].to_string());
                }
                _ => {}
            }
        }
    }

    fn note_call(&mut self, id: &Value, request: Value) {
        self.unanswered.insert(id.to_string(), Call { request, is_cancelled: false });
    }

    /// Notes that a request gets no answer. The work that a report tells of is done, so the report
    /// is not lost with its answer.
    fn note_cancelled(&mut self, id: &str) {
        for calls in [&mut self.unanswered, &mut self.repeated] {
            if let Some(call) = calls.get_mut(id) {
                call.is_cancelled = true;
            }
        }
        self.unanswered.retain(|_, it| !it.is_cancelled || report_of(&it.request).is_some());
    }

    /// Notes which requests have their answers. A report for which the store was away is sent
    /// again. Returns the line without such answers, if there are any.
    fn note_answer(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        let line: Value = serde_json::from_slice(line).ok()?;
        let mut rest = Vec::new();
        let mut is_whole = true;
        for message in messages(&line) {
            if let (Some(id), None) = (message.get("id"), message.get("method"))
                && let Some(call) = self.unanswered.remove(&id.to_string())
                && is_put_off(&call.request, message)
            {
                self.repeat(call);
                is_whole = false;
            } else {
                rest.push(message);
            }
        }
        match rest.as_slice() {
            _ if is_whole => None,
            [] => Some(Vec::new()),
            rest => Some(format!("{}\n", json!(rest)).into_bytes()),
        }
    }

    /// Reports an error for each unanswered call. The call is not sent again, because the bridge
    /// can't know whether the server carried it out. A repeated report changes nothing, so it is
    /// sent again, also if the output is closed.
    async fn say_what_was_lost(&mut self) -> Result<(), CliError> {
        // A line that was no request has no caller that waits for an answer.
        self.unanswered.remove(&Value::Null.to_string());
        let mut written = Ok(());
        for call in std::mem::take(&mut self.unanswered).into_values() {
            if report_of(&call.request).is_some() {
                self.repeat(call);
            } else if written.is_ok() {
                written = self.write_answer(&lost(&call.request)).await;
            }
        }
        written
    }

    /// Begins to send a report again, until a minute has passed. Then it is kept.
    fn repeat(&mut self, call: Call) {
        let server = ServerAddress::Socket(self.socket.clone());
        let mailbox = self.mailbox.clone();
        let give_up_at = clock::now() + TIMEOUT;
        let report = call.request.clone();
        self.repeated.insert(report["id"].to_string(), call);
        let repeat = async move { send_again(&server, &report, give_up_at, &mailbox).await };
        self.repeats.spawn(repeat);
    }

    /// Writes the answer to a report that was sent again.
    async fn write_repeated(
        &mut self,
        answer: Result<Option<Value>, JoinError>,
    ) -> Result<(), CliError> {
        let Some(answer) = answer.ok().flatten() else { return Ok(()) };
        match self.repeated.remove(&answer["id"].to_string()) {
            Some(repeated) if !repeated.is_cancelled => self.write_answer(&answer).await,
            _ => Ok(()),
        }
    }

    /// Keeps the reports without an answer, also if the output is closed.
    async fn keep_reports(&mut self) -> Result<(), CliError> {
        let mut written = Ok(());
        // These have their answers already.
        while let Some(answer) = self.repeats.try_join_next() {
            written = written.and(self.write_repeated(answer).await);
        }
        self.repeats.shutdown().await;
        let (reports, calls): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.unanswered)
                .into_iter()
                .partition(|(_, call)| report_of(&call.request).is_some());
        self.unanswered = calls;
        let repeated = std::mem::take(&mut self.repeated).into_values();
        for Call { request, is_cancelled } in repeated.chain(reports.into_values()) {
            let answer = self.mailbox.answer(&request).unwrap_or_else(|| lost(&request));
            if written.is_ok() && !is_cancelled {
                written = self.write_answer(&answer).await;
            }
        }
        written
    }

    async fn write_answer(&mut self, answer: &Value) -> Result<(), CliError> {
        self.write(format!("{answer}\n").as_bytes()).await
    }

    async fn write(&mut self, line: &[u8]) -> Result<(), CliError> {
        self.output.write_all(line).await?;
        self.output.flush().await?;
        Ok(())
    }
}

/// Returns the error for a call whose answer was lost.
fn lost(call: &Value) -> Value {
    let text = "the connection to the coordinator was lost before the answer came; call again";
    unanswered(&call["id"], text)
}

/// Reads the rest of the first unsent line, if it is not whole. Returns `false` at the end of the
/// input. Cancel-safe.
async fn read_line(
    input: &mut (impl AsyncBufRead + Unpin),
    unsent: &mut Vec<u8>,
) -> io::Result<bool> {
    while !unsent.contains(&b'\n') {
        if input.read_until(b'\n', unsent).await? == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the messages of a line: one, or those of a batch.
fn messages(line: &Value) -> &[Value] {
    line.as_array().map_or(std::slice::from_ref(line), Vec::as_slice)
}

fn no_server(socket: &Path) -> CliError {
    CliError::NoDaemon { at: socket.display().to_string() }
}

async fn connect(socket: &Path) -> Result<UnixStream, CliError> {
    let give_up_at = clock::now() + TIMEOUT;
    let mut pause = FIRST_PAUSE;
    loop {
        match UnixStream::connect(socket).await {
            Ok(stream) => return Ok(stream),
            Err(_) if pause == FIRST_PAUSE => {
                eprintln!(
                    "agent-coordinator mcp: no server at {} yet; waiting for it",
                    socket.display()
                );
                tokio::time::sleep(pause).await;
            }
            Err(error) if clock::now() + pause > give_up_at => {
                eprintln!("agent-coordinator mcp: {}: {error}", socket.display());
                return Err(no_server(socket));
            }
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests;
