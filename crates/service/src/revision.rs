//! The check that an object has not changed since the revision on which an edit is based.

use domain::Refusal;

/// Checks that an object still has the revision on which an edit is based.
///
/// # Errors
/// `Changed`.
pub(super) fn check_seen(
    what: &'static str,
    id: &impl ToString,
    seen: Option<i64>,
    revision: i64,
) -> Result<(), Refusal> {
    if seen.is_none_or(|seen| seen == revision) {
        return Ok(());
    }
    Err(Refusal::Changed { what, id: id.to_string(), revision })
}
