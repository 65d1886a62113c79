//! What goes wrong, where, and how often.

use serde_json::{Value, json};

use super::Request;

/// What a request meets in the place of its answer.
#[derive(Debug, Clone)]
pub enum Fault {
    /// This answer; nothing is carried out.
    Status { status: u16, headers: Vec<(String, String)>, body: Value },
    /// No answer, ever; nothing is carried out.
    Hang,
    /// The connection ends without an answer; nothing is carried out.
    Cut,
    /// The same, but what was asked is done.
    LostAnswer,
    /// The connection ends in the middle of the answer; what was asked is done.
    CutBody,
    /// Half of the answer, as if that were all; what was asked is done.
    TruncatedJson,
    /// JSON of something else; what was asked is done.
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

/// How often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    N(u32),
    /// Until mended.
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

    /// What this request meets: the first that fits, once less from then on.
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

/// Whether a request's `METHOD route` or `METHOD path` is like the pattern.
pub fn is_like(pattern: &str, request: &Request) -> bool {
    [request.route, &request.path]
        .iter()
        .any(|path| is_match(pattern, &format!("{} {path}", request.method)))
}

/// `*` is anything.
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
