//! Which start of a coordinator speaks (supervision.md: a newer incarnation fences the older). Two that have one name are one that was
//! started again, or a copy of its machine that nobody told apart: if both went on, each would take the other's agents for lost and
//! start them again.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::id::CoordinatorId;
use super::time::Timestamp;

/// One start of a coordinator. Of two, the greater is the later one; as text `NUMBER.MARK`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Incarnation {
    number: u64,
    /// Of two copies that start with one number, this decides, and always alike.
    mark: u64,
}

/// Why a text is no incarnation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no incarnation: expected NUMBER.MARK, two whole numbers")]
pub struct InvalidIncarnation(String);

impl Incarnation {
    /// The one after `previous`. It goes by the clock as well: after a state directory was lost or restored, a start is still later
    /// than those before.
    pub fn after(previous: Option<Self>, now: Timestamp, mark: u64) -> Self {
        let next = previous.map_or(0, |previous| previous.number.saturating_add(1));
        Self { number: next.max(u64::try_from(now.as_millis()).unwrap_or(0)), mark }
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.number, self.mark)
    }
}

impl FromStr for Incarnation {
    type Err = InvalidIncarnation;

    fn from_str(text: &str) -> Result<Self, InvalidIncarnation> {
        let parsed = text.split_once('.').and_then(|(number, mark)| Some((number.parse().ok()?, mark.parse().ok()?)));
        let (number, mark) = parsed.ok_or_else(|| InvalidIncarnation(text.chars().take(80).collect()))?;
        Ok(Self { number, mark })
    }
}

impl Serialize for Incarnation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The latest start of each coordinator that says which one it is.
#[derive(Debug, Default)]
pub struct Incarnations(BTreeMap<CoordinatorId, Incarnation>);

/// Whose word it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// That of the latest start so far.
    Latest,
    /// That of a start later than one that was heard before.
    Successor,
    /// That of one that a later start has taken the place of.
    Superseded,
}

impl Incarnations {
    pub fn hear(&mut self, coordinator: &CoordinatorId, incarnation: Incarnation) -> Heard {
        match self.0.get_mut(coordinator) {
            Some(latest) if incarnation < *latest => Heard::Superseded,
            Some(latest) if incarnation > *latest => {
                *latest = incarnation;
                Heard::Successor
            }
            Some(_) => Heard::Latest,
            None => {
                self.0.insert(coordinator.clone(), incarnation);
                Heard::Latest
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn incarnation(text: &str) -> Incarnation {
        text.parse().unwrap()
    }

    #[test]
    fn each_start_is_later_than_the_one_before() {
        let first = Incarnation::after(None, NOW, 9);
        assert_eq!(first, incarnation("1000.9"));
        // Within a millisecond, and with a clock that was set back.
        assert!(Incarnation::after(Some(first), NOW, 1) > first);
        assert!(Incarnation::after(Some(first), Timestamp::from_millis(-5), 1) > first);
        // From a directory that was restored.
        let old = Incarnation::after(None, Timestamp::from_millis(10), 3);
        assert!(Incarnation::after(Some(old), Timestamp::from_millis(1_001), 1) > first);
    }

    #[test]
    fn a_text_is_read_back() {
        assert_eq!(incarnation("12.34").to_string(), "12.34");
        for wrong in ["", "1", "1.", ".1", "1.-1", "1.2.3", "a.b", "99999999999999999999.1"] {
            let problem = wrong.parse::<Incarnation>().unwrap_err().to_string();
            assert!(problem.starts_with(&format!("`{wrong}` is no incarnation")), "{problem}");
        }
    }

    #[test]
    fn the_latest_start_is_heard_and_no_earlier_one() {
        let (one, other) = ("crd_one".parse().unwrap(), "crd_other".parse().unwrap());
        let mut all = Incarnations::default();
        assert_eq!(all.hear(&one, incarnation("5.1")), Heard::Latest);
        assert_eq!(all.hear(&one, incarnation("5.1")), Heard::Latest);
        assert_eq!(all.hear(&one, incarnation("6.0")), Heard::Successor);
        assert_eq!(all.hear(&one, incarnation("5.1")), Heard::Superseded);
        assert_eq!(all.hear(&other, incarnation("2.0")), Heard::Latest);
        // Two copies that began alike: whoever comes first, one of them stays.
        assert_eq!(all.hear(&one, incarnation("6.7")), Heard::Successor);
        assert_eq!(all.hear(&one, incarnation("6.0")), Heard::Superseded);
    }
}
