//! The problem of a request that does not have the expected form, in the words of other errors.
//!
//! Serde and axum have words of their own, such as names of Rust types. Messages of types of this
//! program, such as those of ids, stay as they are.

use axum::http::StatusCode;
use serde::de::IgnoredAny;

use super::problem::{FieldProblem, Problem};

/// The texts that axum puts before the message of a deserializer.
const WRAPS: [&str; 4] = [
    "Failed to deserialize query string: ",
    "Failed to deserialize form body: ",
    "Failed to deserialize form: ",
    "Invalid URL: ",
];
/// The beginnings of the messages about a value that is not of the expected type.
const MISFITS: [&str; 3] = ["invalid type: ", "invalid value: ", "invalid length "];
/// The kinds of values that serde names before the value.
const KINDS: [&str; 4] = ["boolean ", "floating point ", "integer ", "string "];

/// Returns the problem of a part of a request, such as its body, at a place in it. The empty place
/// is the whole part.
pub(super) fn malformed(
    status: StatusCode,
    code: &'static str,
    part: &str,
    place: &str,
    message: String,
) -> Problem {
    let at = if place.is_empty() { String::new() } else { format!("{place}: ") };
    let detail = format!("the {part} is not as expected: {at}{message}");
    let problem = FieldProblem { path: place.to_owned(), message };
    Problem::new(status, code, detail).with_problems(vec![problem])
}

/// Returns the problem of a part of a request that axum refused with this text.
pub(super) fn refused(status: StatusCode, code: &'static str, part: &str, text: &str) -> Problem {
    let Some(said) = WRAPS.iter().find_map(|wrap| text.strip_prefix(wrap)) else {
        // It is about the size or the kind of a body.
        return Problem::new(status, code, text);
    };
    let placed = said.split_once(": ").map(|(place, message)| {
        let key = place.strip_prefix("Cannot parse `").and_then(|it| it.split_once('`'));
        (key.map_or(place, |(key, _)| key), message)
    });
    // A place has no space, but the beginning of a message has one.
    let placed = placed.filter(|(place, _)| !place.contains(' '));
    let (place, message) = placed.unwrap_or(("", said));
    malformed(status, code, part, place, in_words(message))
}

/// Returns the message about an error in a JSON body.
pub(super) fn json_message(error: &serde_json::Error, body: &[u8]) -> String {
    let line = error.line();
    let column = error.column();
    let said = error.to_string();
    let said = said.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&said);
    if error.is_data() {
        return in_words(said);
    }
    let is_json = serde_json::from_slice::<IgnoredAny>(body).is_ok();
    let message = match said {
        // The word of an enumeration was expected.
        "expected value" if is_json => "expected a string",
        _ if is_json => said,
        "expected value" | "expected ident" => "expected a value",
        "trailing characters" => "expected the end, found more",
        _ => said,
    };
    let message = message.replace("EOF while parsing", "the end is within");
    if is_json {
        return message;
    }
    format!("not valid JSON at line {line}, column {column}: {message}")
}

/// Returns the message of a deserializer in the words of the other errors.
fn in_words(message: &str) -> String {
    let after = |beginning: &&str| message.strip_prefix(*beginning);
    let misfit = MISFITS.iter().find_map(after).and_then(|it| it.rsplit_once(", expected "));
    if let Some((found, expected)) = misfit {
        let value = KINDS.iter().find_map(|kind| found.strip_prefix(kind));
        let found = value.unwrap_or_else(|| in_json(found));
        return format!("expected {}, found {found}", in_json(expected));
    }
    if let Some(field) = after(&"missing field ") {
        return format!("{field} is missing");
    }
    if let Some(field) = after(&"duplicate field ") {
        return format!("{field} is there twice");
    }
    if let Some((word, expected)) = after(&"unknown variant ").and_then(|it| it.split_once(", ")) {
        return format!("{word} is not valid: {expected}");
    }
    if let Some(key) = after(&"Invalid UTF-8 in ") {
        return format!("{key} is not valid UTF-8");
    }
    match message {
        "provided string was not `true` or `false`" => "expected `true` or `false`",
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "expected digits"
        }
        "number too large to fit in target type" => "the number is too large",
        _ => message,
    }
    .to_owned()
}

/// Returns what serde names in the words of JSON.
fn in_json(named: &str) -> &str {
    match named {
        "sequence" | "a sequence" => "an array",
        "map" | "a map" => "an object",
        "u16" => "an integer from 0 to 65535",
        "u32" => "an integer from 0 to 4294967295",
        "u64" | "usize" => "an integer of at least 0",
        "i32" | "i64" => "an integer",
        "f64" => "a number",
        "a boolean" => "`true` or `false`",
        "unit value" => "null",
        _ if named.starts_with("struct ") => "an object",
        _ if named.starts_with("a nonzero ") => "an integer above 0",
        _ => named,
    }
}
