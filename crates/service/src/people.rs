//! The names of the people who act.

use std::collections::BTreeMap;

use machine::sys::user_names;

/// Returns the name of a person who acted. A user of this machine acted under a number
/// (`local:1000`).
pub async fn name_of(author: String) -> String {
    let Some(uid) = author.strip_prefix("local:").and_then(|uid| uid.parse().ok()) else {
        return author;
    };
    tokio::task::spawn_blocking(move || user_names::name_of(uid)).await.unwrap_or(author)
}

/// Returns the names of the persons who acted, each looked up once.
pub async fn names_of<'a>(authors: impl Iterator<Item = &'a String>) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for author in authors {
        if !names.contains_key(author) {
            names.insert(author.clone(), name_of(author.clone()).await);
        }
    }
    names
}
