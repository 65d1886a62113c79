//! The answer to a request that would create an object whose id exists already.

use domain::repeat::Content;
use domain::{Refusal, Removable};
use store::Read;
use store::rows::creation_digests;

use super::ServiceError;

/// Checks that a request repeats the one that created an object. `now` returns the content of the
/// object, for one that no such request has created.
///
/// # Errors
/// `AlreadyExists`.
pub(super) fn check_repeats(
    tx: &mut Read<'_>,
    of: &Removable,
    asked: &Content,
    now: impl FnOnce() -> Content,
) -> Result<(), ServiceError> {
    let field = match creation_digests::get(tx, of)? {
        Some(made) => asked.difference_from_request(&made),
        None => asked.difference_from_object(&now()),
    };
    if field.is_none() {
        return Ok(());
    }
    let what = format!("{} {}", of.kind(), of.id());
    Err(Refusal::AlreadyExists { what, field }.into())
}
