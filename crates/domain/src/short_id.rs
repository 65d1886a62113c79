//! The short ids of tasks, such as `SHOP-12`: the key of the project and the number of the task.
//!
//! A number is never given to a second task, so a short id names one task for good. Names of
//! branches are made of short ids. The first key of a project is made from its name. People may
//! change it once; the old key then still leads to the same tasks.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::id::{ProjectId, texts};
use super::printable::excerpt;

/// The shortest and the longest key, in bytes.
const KEY_LENGTHS: std::ops::RangeInclusive<usize> = 2..=8;
/// The length of a key that is made from one long word.
const CUT_LENGTH: usize = 4;
/// The key of a project whose name and id have too few letters.
const FALLBACK: &str = "PRJ";

/// The grammar of keys, for JSON schemas. Lower case is accepted, too.
const KEY_PATTERN: &str = "^[A-Za-z][A-Za-z0-9]{1,7}$";
/// The grammar of short ids as they are printed.
const PATTERN: &str = "^[A-Z][A-Z0-9]{1,7}-[1-9][0-9]*$";

/// The key of a project: the first part of the short ids of its tasks. It is in upper case.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProjectKey(Arc<str>);

/// The short id of a task.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ShortId {
    pub key: ProjectKey,
    /// The number of the task in its project. The first one is 1.
    pub number: u32,
}

/// The error for a text that is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a valid project key: expected 2 to 8 letters and digits, beginning with a letter"
)]
pub struct InvalidKey(String);

/// The error for a text that is not a short id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a short id: expected the key of a project, `-`, and a number, such as SHOP-12"
)]
pub struct InvalidShortId(String);

impl ProjectKey {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the keys that a project may have, the best one first, without end.
    ///
    /// The first one comes from the name, or from the id if the name has fewer than two ASCII
    /// letters and digits. The others have a digit at the end, so that one of them is free.
    pub fn candidates(name: &str, id: &ProjectId) -> impl Iterator<Item = Self> + use<> {
        // A generated id says nothing about its project.
        let of_id = || Some(id.as_str()).filter(|id| !id.starts_with(ProjectId::PREFIX));
        let base = base_of(name).or_else(|| base_of(of_id()?));
        let base = base.unwrap_or_else(|| FALLBACK.to_owned());
        let first = std::iter::once(base.clone());
        let others = (2_u64..).map(move |n| {
            let digits = n.to_string();
            let kept = base.len().min(KEY_LENGTHS.end().saturating_sub(digits.len()));
            format!("{}{digits}", &base[..kept])
        });
        first.chain(others).map(|key| Self(key.into()))
    }
}

/// Returns the key that a text suggests: all its letters and digits, the initials of its words if
/// these are too many, or the beginning of a single long word.
fn base_of(text: &str) -> Option<String> {
    let words: Vec<String> = text
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_uppercase)
        .collect();
    let from_letter = |text: &str| {
        let text = text.trim_start_matches(|c: char| c.is_ascii_digit());
        (text.len() >= *KEY_LENGTHS.start()).then(|| text.to_owned())
    };
    let joined = from_letter(&words.concat())?;
    if joined.len() <= *KEY_LENGTHS.end() {
        return Some(joined);
    }
    let initials: String = words.iter().map(|word| &word[..1]).collect();
    let cut = |text: String, length: usize| text[..text.len().min(length)].to_owned();
    Some(match from_letter(&initials) {
        Some(initials) => cut(initials, *KEY_LENGTHS.end()),
        None => cut(joined, CUT_LENGTH),
    })
}

impl ShortId {
    /// Returns the short id of a task whose project does not exist. No such task is stored.
    pub fn of_no_project() -> Self {
        Self { key: ProjectKey(FALLBACK.into()), number: 0 }
    }
}

/// Writes a short id as its number. The key of one that is read is that of no project.
pub(super) mod number {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::ShortId;

    pub fn serialize<S: Serializer>(id: &ShortId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(id.number)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ShortId, D::Error> {
        let number = u32::deserialize(deserializer)?;
        Ok(ShortId { number, ..ShortId::of_no_project() })
    }
}

impl FromStr for ProjectKey {
    type Err = InvalidKey;

    /// Reads a key in any case.
    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let is_key = KEY_LENGTHS.contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.bytes().all(|b| b.is_ascii_alphanumeric());
        if is_key {
            Ok(Self(text.to_ascii_uppercase().into()))
        } else {
            Err(InvalidKey(excerpt(text, 80).into_owned()))
        }
    }
}

impl FromStr for ShortId {
    type Err = InvalidShortId;

    /// Reads a short id in any case.
    fn from_str(text: &str) -> Result<Self, InvalidShortId> {
        let parse = || {
            let (key, number) = text.split_once('-')?;
            let key = key.parse().ok()?;
            // A number has one form, so that a task has one short id.
            let is_plain =
                !number.starts_with('0') && number.bytes().all(|byte| byte.is_ascii_digit());
            let number = number.parse().ok().filter(|_| is_plain)?;
            Some(Self { key, number })
        };
        parse().ok_or_else(|| InvalidShortId(excerpt(text, 80).into_owned()))
    }
}

impl fmt::Display for ProjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for ProjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ShortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}-{}", self.key, self.number))
    }
}

impl fmt::Debug for ShortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

texts! {
    ProjectKey, InvalidKey, KEY_PATTERN;
    ShortId, InvalidShortId, PATTERN;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidates(name: &str, id: &str, n: usize) -> Vec<String> {
        let id = id.parse().unwrap();
        ProjectKey::candidates(name, &id).take(n).map(String::from).collect()
    }

    #[track_caller]
    fn check_key(name: &str, id: &str, expected: &str) {
        assert_eq!(candidates(name, id, 1), [expected], "{name} ({id})");
    }

    #[test]
    fn a_key_comes_from_the_name() {
        check_key("Shop", "prj_1", "SHOP");
        check_key("Web shop", "prj_1", "WEBSHOP");
        check_key("agent-coordinator", "prj_1", "AC");
        check_key("The web shop of Ann", "prj_1", "TWSOA");
        check_key("Coordinator", "prj_1", "COOR");
        check_key("a b c d e f g h i j k", "prj_1", "ABCDEFGH");
        check_key("2048 Game", "prj_1", "GAME");
        check_key("決済 API", "prj_1", "API");
    }

    #[test]
    fn a_name_without_latin_letters_falls_back_to_the_id() {
        check_key("決済サービス", "payments", "PAYMENTS");
        check_key("ショップ A", "shop", "SHOP");
        check_key("決済サービス", "prj_0193ab", "PRJ");
        check_key("", "x", "PRJ");
        check_key("2048", "3d", "PRJ");
    }

    #[test]
    fn later_candidates_have_a_digit_and_keep_the_length() {
        assert_eq!(candidates("Shop", "p", 3), ["SHOP", "SHOP2", "SHOP3"]);
        let many = candidates("Payments", "p", 12);
        assert_eq!((many[1].as_str(), many[11].as_str()), ("PAYMENT2", "PAYMEN12"));
    }

    #[test]
    fn a_short_id_is_read_in_any_case_and_printed_in_one() {
        for text in ["SHOP-12", "shop-12", "Shop-12"] {
            assert_eq!(text.parse::<ShortId>().unwrap().to_string(), "SHOP-12", "{text}");
        }
        assert_eq!("S2-4294967295".parse::<ShortId>().unwrap().number, u32::MAX);
    }

    #[test]
    fn texts_that_are_not_short_ids_are_refused() {
        for text in [
            "",
            "-",
            "SHOP",
            "SHOP-",
            "-12",
            "SHOP-0",
            "SHOP-012",
            "SHOP-+1",
            "SHOP--1",
            "SHOP-1-2",
            "SHOP-1x",
            "SHOP 12",
            "S-12",
            "2SHOP-1",
            "LONGNAMES-1",
            "SHOP-4294967296",
            "SHOP-99999999999999999999",
            "ショップ-1",
            "SHOP-１",
            "tsk_0193ab",
        ] {
            assert!(text.parse::<ShortId>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn keys_are_2_to_8_letters_and_digits() {
        for (text, is_valid) in [
            ("shop", true),
            ("S2", true),
            ("ABCDEFGH", true),
            ("S", false),
            ("ABCDEFGHI", false),
            ("2S", false),
            ("SH-P", false),
            ("ショップ", false),
            ("", false),
        ] {
            assert_eq!(text.parse::<ProjectKey>().is_ok(), is_valid, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn every_candidate_is_a_key(name in ".{0,40}", id in "[A-Za-z0-9][A-Za-z0-9._-]{0,20}") {
            for key in candidates(&name, &id, 120) {
                prop_assert_eq!(key.parse::<ProjectKey>().map(String::from), Ok(key));
            }
        }
    }
}
