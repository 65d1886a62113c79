//! Older forms of calls (docs/migration.md). They are answered, and the log names the replacement
//! once.

use std::sync::atomic::{AtomicBool, Ordering};

/// A deprecated form of a call, with one static each.
pub(super) struct Deprecated {
    form: &'static str,
    successor: &'static str,
    is_said: AtomicBool,
}

impl Deprecated {
    pub(super) const fn new(form: &'static str, successor: &'static str) -> Self {
        Self { form, successor, is_said: AtomicBool::new(false) }
    }

    /// Notes a use of this form. Only the first use logs a warning, because old clients poll.
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
