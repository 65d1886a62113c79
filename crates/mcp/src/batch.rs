//! JSON-RPC batches: several messages in one array, and their answers in one array. Only revision
//! 2025-03-26 of the protocol has them. The transports call this; the library behind them takes one
//! message at a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use rmcp::RoleServer;
use rmcp::model::{ClientRequest, JsonRpcMessage, ProtocolVersion, RequestId, ServerResult};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use serde_json::Value;

use super::connections::HeldBytes;
use super::malformed::{self, INVALID_REQUEST, complaint};

use machine::locks::lock;

/// The revision that has batches.
pub(super) const REVISION: ProtocolVersion = ProtocolVersion::V_2025_03_26;
/// The greatest number of messages in a batch.
const MAX_MESSAGES: usize = 64;

type Message = RxJsonRpcMessage<RoleServer>;

/// The messages of a batch, and the answers to those that are not valid.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) messages: Vec<Message>,
    pub(super) complaints: Vec<Value>,
}

impl Batch {
    /// Parses a batch; `None` if the text is not an array.
    ///
    /// # Errors
    /// The answer to an array that is not a batch.
    pub(super) fn parse(text: &[u8]) -> Option<Result<Self, Value>> {
        if text.trim_ascii_start().first() != Some(&b'[') {
            return None;
        }
        let Ok(elements) = serde_json::from_slice::<Vec<Value>>(text) else {
            return None;
        };
        if !(1..=MAX_MESSAGES).contains(&elements.len()) {
            let problem =
                format!("a batch has 1 to {MAX_MESSAGES} messages, not {}", elements.len());
            return Some(Err(complaint(INVALID_REQUEST, &problem, &Value::Null)));
        }
        let mut batch = Self::default();
        for element in elements {
            match malformed::parse(element.to_string().as_bytes(), "message") {
                Ok(message) if is_handshake(&message) => {
                    let id = element.get("id").unwrap_or(&Value::Null);
                    batch.complaints.push(complaint(
                        INVALID_REQUEST,
                        "initialize can't be part of a batch",
                        id,
                    ));
                }
                Ok(message) => batch.messages.push(message),
                Err(complaint) => batch.complaints.extend(complaint),
            }
        }
        Some(Ok(batch))
    }
}

fn is_handshake(message: &Message) -> bool {
    matches!(message, JsonRpcMessage::Request(request) if matches!(request.request, ClientRequest::InitializeRequest(_)))
}

/// The batches of one connection that are being answered.
#[derive(Default)]
pub(super) struct OpenBatches {
    /// The handshake agreed on [`REVISION`].
    is_agreed: AtomicBool,
    batches: Mutex<Vec<OpenBatch>>,
}

struct OpenBatch {
    waits_for: Vec<RequestId>,
    /// The written answers, with the count of their bytes.
    answers: Vec<(Vec<u8>, HeldBytes)>,
}

/// The next step for an answer.
pub(super) enum Answered {
    /// The answer is not part of a batch.
    Alone(Vec<u8>, HeldBytes),
    /// Other requests of its batch have no answer yet.
    Kept,
    /// The answer is the last one of a batch: the whole array.
    Whole(Vec<u8>, Vec<HeldBytes>),
}

impl OpenBatches {
    pub(super) fn is_agreed(&self) -> bool {
        self.is_agreed.load(Ordering::Relaxed)
    }

    /// Notes the requests of a batch, which are about to be answered.
    pub(super) fn open(&self, messages: &[Message], complaints: Vec<(Vec<u8>, HeldBytes)>) {
        let id = |message: &Message| match message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            JsonRpcMessage::Response(_)
            | JsonRpcMessage::Notification(_)
            | JsonRpcMessage::Error(_) => None,
        };
        let waits_for: Vec<RequestId> = messages.iter().filter_map(id).collect();
        if !waits_for.is_empty() {
            self.batches().push(OpenBatch { waits_for, answers: complaints });
        }
    }

    /// Notes an answer of the server, which is written as `line`.
    pub(super) fn answer(
        &self,
        message: &TxJsonRpcMessage<RoleServer>,
        line: Vec<u8>,
        held: HeldBytes,
    ) -> Answered {
        let id = match message {
            JsonRpcMessage::Response(response) => {
                if let ServerResult::InitializeResult(agreed) = &response.result {
                    self.is_agreed.store(agreed.protocol_version == REVISION, Ordering::Relaxed);
                }
                Some(&response.id)
            }
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let mut batches = self.batches();
        let found = id.and_then(|id| find(&mut batches, id));
        let Some(at) = found else {
            return Answered::Alone(line, held);
        };
        batches[at].answers.push((line, held));
        whole(&mut batches, at).map_or(Answered::Kept, |(array, held)| Answered::Whole(array, held))
    }

    /// Notes that a request was cancelled: it gets no answer. Returns the other answers of its
    /// batch if they are complete now.
    pub(super) fn give_up(&self, id: &RequestId) -> Option<(Vec<u8>, Vec<HeldBytes>)> {
        let mut batches = self.batches();
        let at = find(&mut batches, id)?;
        whole(&mut batches, at).filter(|(_, held)| !held.is_empty())
    }

    fn batches(&self) -> MutexGuard<'_, Vec<OpenBatch>> {
        lock(&self.batches)
    }
}

/// Finds the batch that waits for the answer to this request, and removes the request from it.
fn find(batches: &mut [OpenBatch], id: &RequestId) -> Option<usize> {
    batches.iter_mut().position(|batch| {
        let waiting = batch.waits_for.iter().position(|each| each == id);
        waiting.map(|at| batch.waits_for.swap_remove(at)).is_some()
    })
}

/// Removes the batch if it is complete, and returns its answers as one array.
fn whole(batches: &mut Vec<OpenBatch>, at: usize) -> Option<(Vec<u8>, Vec<HeldBytes>)> {
    batches[at].waits_for.is_empty().then(|| {
        let (lines, held): (Vec<_>, Vec<_>) = batches.swap_remove(at).answers.into_iter().unzip();
        ([&b"["[..], &lines.join(&b','), b"]"].concat(), held)
    })
}
