//! Finds the agent, the project or the task that a text of a person names: by its id, by a shorter
//! form, or by the beginning of its id.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::printable::is_unprintable;
use super::words::words;

words! {
    /// The kinds of things that people name.
    pub enum LookupKind as "kind" {
        Agent = "agent",
        Project = "project",
        Task = "task",
    }
}

/// A thing that a text may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub id: String,
    /// The short id of a task, or the key of a project.
    pub short_id: Option<String>,
    /// The name of an agent or a project, or the title of a task.
    pub name: String,
}

/// Returns the candidates that `text` names: the one with this id, or else the one with this short
/// id, or else those with this name, or else those whose ids begin with it. Case matters only in
/// ids. A title is not a name.
pub fn named(kind: LookupKind, text: &str, candidates: Vec<Candidate>) -> Vec<Candidate> {
    let has_id = |candidate: &Candidate| candidate.id == text;
    let has_short_id = |candidate: &Candidate| {
        candidate.short_id.as_ref().is_some_and(|short_id| short_id.eq_ignore_ascii_case(text))
    };
    let has_name = |candidate: &Candidate| {
        kind != LookupKind::Task && candidate.name.to_lowercase() == text.to_lowercase()
    };
    let begins = |candidate: &Candidate| !text.is_empty() && candidate.id.starts_with(text);
    let tiers: [&dyn Fn(&Candidate) -> bool; 4] = [&has_id, &has_short_id, &has_name, &begins];
    let Some(names) = tiers.into_iter().find(|names| candidates.iter().any(names)) else {
        return Vec::new();
    };
    candidates.into_iter().filter(names).collect()
}

/// A text that names a thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    pub text: String,
    /// The name of an agent or a project, or the title of a task.
    pub name: String,
}

/// Returns what a text may become, with one text for each candidate: the short id of a task, the
/// name of an agent or a project, or else its key or its id. An empty text may become everything.
/// Case does not matter, except in ids.
pub fn completions(kind: LookupKind, text: &str, candidates: Vec<Candidate>) -> Vec<Completion> {
    let wanted = text.to_lowercase();
    let begins = |form: &&String| form.to_lowercase().starts_with(&wanted);
    // The number of candidates for which each text stands, also as an id or a key.
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    for Candidate { id, short_id, name } in &candidates {
        let texts = [Some(id), short_id.as_ref(), Some(name)].into_iter().flatten();
        for text in texts.map(|text| text.to_lowercase()).collect::<BTreeSet<String>>() {
            *uses.entry(text).or_default() += 1;
        }
    }
    let completion = |Candidate { id, short_id, name }: Candidate| {
        let is_unique = |name: &&String| uses.get(&name.to_lowercase()) == Some(&1);
        let is_plain = |name: &&String| {
            !name.is_empty() && !name.starts_with('-') && !name.chars().any(is_unprintable)
        };
        let named = Some(&name).filter(|_| kind != LookupKind::Task);
        let named = named.filter(is_plain).filter(begins).filter(is_unique);
        let key = short_id.as_ref().filter(begins);
        let key = key.filter(|_| kind == LookupKind::Task || !text.is_empty());
        let id = Some(&id).filter(|id| id.starts_with(text));
        let text = named.or(key).or(id)?.clone();
        Some(Completion { text, name })
    };
    candidates.into_iter().filter_map(completion).collect()
}

/// Returns the numbers whose digits begin with these, such as 12, 120 to 129 and 1200 to 1299. All
/// numbers begin with no digits. Other texts begin no number.
pub fn numbers_that_begin(digits: &str) -> Vec<RangeInclusive<u32>> {
    if digits.is_empty() {
        return vec![1..=u32::MAX];
    }
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    let Some(number) = digits.parse::<u64>().ok().filter(|_| is_number) else {
        return Vec::new();
    };
    let powers = std::iter::successors(Some(1_u64), |power| Some(power * 10));
    let ranges = powers.map(|power| (number * power, number * power + power - 1));
    let ranges = ranges.map_while(|(first, last)| {
        let first = u32::try_from(first).ok()?;
        Some(first..=u32::try_from(last).unwrap_or(u32::MAX))
    });
    ranges.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(id: &str, short_id: Option<&str>, name: &str) -> Candidate {
        Candidate {
            id: id.to_owned(),
            short_id: short_id.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    #[track_caller]
    fn check(kind: LookupKind, text: &str, ids: &[&str]) {
        let candidates = vec![
            candidate("ada", Some("ADA"), "Ada"),
            candidate("adam", Some("SHOP-1"), "Bob"),
            candidate("SHOP-1", None, "Ada Lovelace"),
            candidate("prj_1", Some("BOB"), "BOB"),
            candidate("prj_2", None, "二つ"),
        ];
        let found = named(kind, text, candidates);
        let found: Vec<&str> = found.iter().map(|candidate| candidate.id.as_str()).collect();
        assert_eq!(found, ids, "{text}");
    }

    #[test]
    fn an_id_is_before_a_short_id_a_name_and_a_prefix() {
        check(LookupKind::Agent, "ada", &["ada"]);
        check(LookupKind::Agent, "SHOP-1", &["SHOP-1"]);
        check(LookupKind::Agent, "shop-1", &["adam"]);
        check(LookupKind::Agent, "ada lovelace", &["SHOP-1"]);
        check(LookupKind::Agent, "bob", &["prj_1"]);
        check(LookupKind::Agent, "二つ", &["prj_2"]);
        check(LookupKind::Agent, "adam", &["adam"]);
        check(LookupKind::Agent, "SHOP", &["SHOP-1"]);
    }

    #[test]
    fn a_prefix_of_several_ids_names_all_of_them() {
        check(LookupKind::Project, "ad", &["ada", "adam"]);
        check(LookupKind::Project, "prj_", &["prj_1", "prj_2"]);
        check(LookupKind::Project, "", &[]);
        check(LookupKind::Project, "x", &[]);
    }

    #[test]
    fn a_title_does_not_name_a_task() {
        check(LookupKind::Task, "Ada Lovelace", &[]);
        check(LookupKind::Task, "Bob", &["prj_1"]);
    }

    #[track_caller]
    fn becomes(kind: LookupKind, text: &str, expected: &[&str]) {
        let candidates = vec![
            candidate("agt_ada", Some("ADA"), "Ada Lovelace"),
            candidate("agt_bob", Some("BOB"), "Bob"),
            candidate("agt_bo", Some("B2"), "BOB"),
            candidate("agt_jp", None, "決済"),
            candidate("agt_bell", None, "Bell\u{7}"),
        ];
        let found = completions(kind, text, candidates);
        assert_eq!(found.iter().map(|each| each.text.as_str()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_text_becomes_a_name_or_else_a_key_or_an_id() {
        let all = ["Ada Lovelace", "agt_bob", "agt_bo", "決済", "agt_bell"];
        becomes(LookupKind::Agent, "", &all);
        becomes(LookupKind::Agent, "ad", &["Ada Lovelace"]);
        becomes(LookupKind::Agent, "決", &["決済"]);
        becomes(LookupKind::Project, "b", &["BOB", "B2"]);
        becomes(LookupKind::Agent, "agt_b", &["agt_bob", "agt_bo", "agt_bell"]);
        becomes(LookupKind::Agent, "AGT_B", &[]);
        becomes(LookupKind::Task, "", &["ADA", "BOB", "B2", "agt_jp", "agt_bell"]);
        becomes(LookupKind::Task, "bo", &["BOB"]);
    }

    #[test]
    fn numbers_are_found_by_their_first_digits() {
        let twelve = numbers_that_begin("12");
        assert_eq!(twelve[..3], [12..=12, 120..=129, 1200..=1299]);
        assert_eq!(twelve.last(), Some(&(1_200_000_000..=1_299_999_999)));
        assert_eq!(numbers_that_begin(""), [1..=u32::MAX]);
        assert_eq!(numbers_that_begin("5").last(), Some(&(500_000_000..=599_999_999)));
        assert_eq!(numbers_that_begin("4294967295"), [u32::MAX..=u32::MAX]);
        assert_eq!(numbers_that_begin("429496729").last(), Some(&(4_294_967_290..=u32::MAX)));
        for none in ["0", "01", "x", "-1", "4294967296", "99999999999999999999999"] {
            assert!(numbers_that_begin(none).is_empty(), "{none}");
        }
    }
}
