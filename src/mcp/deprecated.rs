//! Older forms of calls (seed 004, "後方互換性"): they are answered, and the log says once what takes their place.

use std::sync::atomic::{AtomicBool, Ordering};

/// A form of a call that goes away; one static each.
pub(super) struct Deprecated {
    form: &'static str,
    successor: &'static str,
    is_said: AtomicBool,
}

impl Deprecated {
    pub(super) const fn new(form: &'static str, successor: &'static str) -> Self {
        Self { form, successor, is_said: AtomicBool::new(false) }
    }

    /// Somebody used it. Warns the first time only: old clients poll.
    pub(super) fn is_used(&self) {
        if !self.is_said.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                form = self.form,
                successor = self.successor,
                "a client uses a deprecated call"
            );
        }
    }
}
