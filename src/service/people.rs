//! The names of the people who act.

use crate::sys::user_names;

/// Returns the name of a person who acted. A user of this machine acted under a number
/// (`local:1000`).
pub async fn name_of(author: String) -> String {
    let Some(uid) = author.strip_prefix("local:").and_then(|uid| uid.parse().ok()) else {
        return author;
    };
    tokio::task::spawn_blocking(move || user_names::name_of(uid)).await.unwrap_or(author)
}
