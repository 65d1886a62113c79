//! Suggestions for misspelt names: the known name that is most similar to a given one.

/// Longer words are not compared, because no name is so long.
const MAX_BYTES: usize = 60;
/// The similarity (0 to 1) from which a known name is suggested.
const MIN_LIKENESS: f64 = 0.6;

/// Returns the known name that `word` was probably meant to be.
pub fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    if word.len() > MAX_BYTES {
        return None;
    }
    let word = word.to_ascii_lowercase().replace('-', "_");
    known
        .map(|known| (strsim::normalized_damerau_levenshtein(&word, known), known))
        .filter(|(likeness, _)| *likeness >= MIN_LIKENESS)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_finds_the_one_that_is_most_like_it() {
        let known = ["title", "description", "parent_task_id", "assignee_id"];
        for (word, expected) in [
            ("titel", Some("title")),
            ("parent_id", Some("parent_task_id")),
            ("parentTaskId", Some("parent_task_id")),
            ("parent-task-id", Some("parent_task_id")),
            ("verbose", None),
            ("", None),
            (&"title".repeat(20), None),
        ] {
            assert_eq!(nearest(word, known.into_iter()), expected, "{word}");
        }
    }
}
