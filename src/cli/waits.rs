//! The times that `call` and both bridges wait for a server and for a client.

use std::time::Duration;

/// The longest absence of a server: a restart takes a moment, an upgrade takes longer.
pub(super) const TIMEOUT: Duration = Duration::from_mins(1);
/// The first and the longest pause between two attempts.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(50);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The time for pending answers after the end of the input.
pub(super) const LAST_ANSWERS: Duration = Duration::from_secs(10);
/// The time for lines that the client or a closing server has written before the end.
pub(super) const LAST_LINES: Duration = Duration::from_millis(50);
