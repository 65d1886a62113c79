//! Answers without the parts that differ from run to run, so that whole answers can be compared.

use serde_json::{Map, Value};

/// The keys whose values differ, in any case.
const VOLATILE: [&str; 22] = [
    "at",
    "authenticatedat",
    "claimedat",
    "coordinatorid",
    "createdat",
    "endedat",
    "heardat",
    "launchid",
    "launchticket",
    "passkey",
    "pausedsince",
    "pid",
    "session",
    "sessiontoken",
    "startdeadline",
    "startedat",
    "statussince",
    "timestamp",
    "until",
    "version",
    "workingdirectory",
    "since",
];

/// Returns `value` with `[key]` in place of each volatile text or number.
pub fn redacted(value: &Value) -> Value {
    match value {
        Value::Object(object) => Value::Object(
            object.iter().map(|(key, value)| entry(key, value)).collect::<Map<_, _>>(),
        ),
        Value::Array(array) => array.iter().map(redacted).collect(),
        other => other.clone(),
    }
}

fn entry(key: &str, value: &Value) -> (String, Value) {
    let is_volatile = VOLATILE.contains(&key.replace('_', "").to_lowercase().as_str());
    let is_plain = value.is_string() || value.is_number();
    let value = if is_volatile && is_plain { format!("[{key}]").into() } else { redacted(value) };
    (key.to_owned(), value)
}
