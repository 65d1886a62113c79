//! The faults of the fake: their kinds, their requests and their number.

use serde_json::{Value, json};

use super::Request;

/// The fault that a request meets in place of its answer.
#[derive(Debug, Clone)]
pub enum Fault {
    /// This answer. The request is not carried out.
    Status { status: u16, headers: Vec<(String, String)>, body: Value },
    /// No answer, ever. The request is not carried out.
    Hang,
    /// The connection ends without an answer. The request is not carried out.
    Cut,
    /// The connection ends without an answer, but the request is carried out.
    LostAnswer,
    /// The connection ends without an answer. The request is carried out when the test calls
    /// [`super::Fake::carry_out_late`].
    CutLate,
    /// No answer, ever. The request is carried out when the test wants it, too.
    HangLate,
    /// The connection ends in the middle of the answer. The request is carried out.
    CutBody,
    /// Half of the answer, as if that were all. The request is carried out.
    TruncatedJson,
    /// JSON of another kind. The request is carried out.
    WrongJson,
}

impl Fault {
    pub fn status(status: u16) -> Self {
        Self::Status {
            status,
            headers: Vec::new(),
            body: json!({ "message": format!("fault {status}") }),
        }
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Self::Status { headers, .. } = &mut self {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    #[must_use]
    pub fn saying(mut self, message: &str) -> Self {
        if let Self::Status { body, .. } = &mut self {
            *body = json!({ "message": message });
        }
        self
    }
}

/// The number of failing requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    N(u32),
    /// All requests until [`super::Fake::mend`].
    Always,
}

#[derive(Default)]
pub struct Faults(Vec<(String, Times, Fault)>);

impl Faults {
    pub fn add(&mut self, pattern: &str, times: Times, fault: Fault) {
        self.0.push((pattern.to_owned(), times, fault));
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the fault of this request: the first that matches. Counts it down.
    pub fn take(&mut self, request: &Request) -> Option<Fault> {
        let at = self
            .0
            .iter()
            .position(|(pattern, times, _)| *times != Times::N(0) && is_like(pattern, request))?;
        let (_, times, fault) = &mut self.0[at];
        if let Times::N(n) = times {
            *n -= 1;
        }
        Some(fault.clone())
    }
}

/// Returns whether a request's `METHOD route` or `METHOD path` matches the pattern.
pub fn is_like(pattern: &str, request: &Request) -> bool {
    [request.route, &request.path]
        .iter()
        .any(|path| is_match(pattern, &format!("{} {path}", request.method)))
}

/// Returns whether the text matches the pattern, in which `*` is anything.
fn is_match(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => text.strip_prefix(head).is_some_and(|tail| {
            tail.char_indices()
                .map(|(at, _)| at)
                .chain([tail.len()])
                .any(|at| is_match(rest, &tail[at..]))
        }),
    }
}
