//! The JSON-RPC errors of texts that are not messages of the protocol. All transports use the same
//! texts.

use rmcp::RoleServer;
use rmcp::service::RxJsonRpcMessage;
use serde_json::{Value, json};

const PARSE_ERROR: i32 = -32700;
pub(super) const INVALID_REQUEST: i32 = -32600;
/// The server has no room for this request now.
pub(super) const BUSY: i32 = -32000;

/// The message in `text`, which is a `what`: a line, a body.
///
/// # Errors
/// What to answer instead; `None` for what gets no answer, as an unknown notification.
pub(super) fn parse(
    text: &[u8],
    what: &str,
) -> Result<RxJsonRpcMessage<RoleServer>, Option<Value>> {
    serde_json::from_slice(text).map_err(|error| complaint_about(text, &error, what))
}

/// Returns an answer without a result.
pub(super) fn complaint(code: i32, problem: &str, id: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": problem } })
}

fn complaint_about(text: &[u8], error: &serde_json::Error, what: &str) -> Option<Value> {
    let invalid = |problem: &str| Some(complaint(INVALID_REQUEST, problem, &Value::Null));
    match serde_json::from_slice::<Value>(text) {
        Ok(Value::Object(message)) => {
            let id = message.get("id").cloned();
            // A notification, even an unknown one, gets no answer.
            (id.is_some() || !message.contains_key("method")).then(|| {
                let problem = "not a JSON-RPC 2.0 request: expected jsonrpc, id, method and params";
                complaint(INVALID_REQUEST, problem, &id.unwrap_or(Value::Null))
            })
        }
        Ok(Value::Array(_)) => invalid(&format!(
            "only revision 2025-03-26 of the protocol has batches: send one request a {what}"
        )),
        Ok(_) => invalid("a request is a JSON object"),
        Err(_) => Some(complaint(
            PARSE_ERROR,
            &format!("the {what} is not valid JSON: {error}"),
            &Value::Null,
        )),
    }
}
