//! Decides which start of a coordinator is valid: a newer incarnation fences off the older one. Two
//! starts with one name are a restart, or a copy of the machine that kept its name. If both
//! continued, each would take the other's agents for lost and start them again.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::id::CoordinatorId;
use super::time::Timestamp;

/// One start of a coordinator. The greater of two incarnations is the later one. Its text is
/// `NUMBER.MARK`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Incarnation {
    number: u64,
    /// The mark that orders two copies that start with the same number. The order is always the
    /// same.
    mark: u64,
}

/// The error for a text that is not an incarnation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an incarnation: expected NUMBER.MARK, two whole numbers")]
pub struct InvalidIncarnation(String);

impl Incarnation {
    /// Returns the incarnation after `previous`. It also depends on the clock. Therefore a start is
    /// later than those before it even after a state directory was lost or restored.
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
        let parsed = text
            .split_once('.')
            .and_then(|(number, mark)| Some((number.parse().ok()?, mark.parse().ok()?)));
        let (number, mark) =
            parsed.ok_or_else(|| InvalidIncarnation(text.chars().take(80).collect()))?;
        Ok(Self { number, mark })
    }
}

impl Serialize for Incarnation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The silence after which a start counts as gone. Then an earlier start is accepted, because it
/// may be a snapshot or a restored directory.
const GONE_AFTER: Duration = Duration::from_mins(2);

/// The latest start of each coordinator that reports its incarnation.
#[derive(Debug, Default)]
pub struct Incarnations {
    latest: BTreeMap<CoordinatorId, Latest>,
    /// The coordinator in the same process as the server. No other coordinator may use its name.
    own: Option<CoordinatorId>,
}

#[derive(Debug)]
struct Latest {
    incarnation: Incarnation,
    heard_at: Timestamp,
}

/// The standing of a start that called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartStanding {
    /// The caller is the latest start so far.
    Latest,
    /// The caller is a later start than one that called before.
    Successor,
    /// A later start has replaced the caller.
    Superseded,
}

impl Incarnations {
    /// Reserves a name for the coordinator in the same process as the server.
    pub fn reserve(&mut self, coordinator: CoordinatorId) {
        self.own = Some(coordinator);
    }

    /// Records a call of a coordinator in another process, and returns the standing of its start.
    pub fn hear(
        &mut self,
        coordinator: &CoordinatorId,
        incarnation: Incarnation,
        at: Timestamp,
    ) -> StartStanding {
        if self.own.as_ref() == Some(coordinator) {
            return StartStanding::Superseded;
        }
        let before = self.latest.get(coordinator);
        let is_later = before.is_some_and(|before| incarnation > before.incarnation);
        let is_gone = |before: &Latest| at.since(before.heard_at) > GONE_AFTER;
        if before.is_some_and(|before| incarnation < before.incarnation && !is_gone(before)) {
            return StartStanding::Superseded;
        }
        self.latest.insert(coordinator.clone(), Latest { incarnation, heard_at: at });
        if is_later { StartStanding::Successor } else { StartStanding::Latest }
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
        // The two starts are within a millisecond, and with a clock that was set back.
        assert!(Incarnation::after(Some(first), NOW, 1) > first);
        assert!(Incarnation::after(Some(first), Timestamp::from_millis(-5), 1) > first);
        // The start is from a directory that was restored.
        let old = Incarnation::after(None, Timestamp::from_millis(10), 3);
        assert!(Incarnation::after(Some(old), Timestamp::from_millis(1_001), 1) > first);
    }

    #[test]
    fn a_text_is_read_back() {
        assert_eq!(incarnation("12.34").to_string(), "12.34");
        for wrong in ["", "1", "1.", ".1", "1.-1", "1.2.3", "a.b", "99999999999999999999.1"] {
            let problem = wrong.parse::<Incarnation>().unwrap_err().to_string();
            assert!(problem.starts_with(&format!("`{wrong}` is not an incarnation")), "{problem}");
        }
    }

    #[test]
    fn the_latest_start_is_heard_and_no_earlier_one() {
        let one = "crd_one".parse().unwrap();
        let other = "crd_other".parse().unwrap();
        let mut all = Incarnations::default();
        assert_eq!(all.hear(&one, incarnation("5.1"), NOW), StartStanding::Latest);
        assert_eq!(all.hear(&one, incarnation("5.1"), NOW), StartStanding::Latest);
        assert_eq!(all.hear(&one, incarnation("6.0"), NOW), StartStanding::Successor);
        assert_eq!(all.hear(&one, incarnation("5.1"), NOW), StartStanding::Superseded);
        assert_eq!(all.hear(&other, incarnation("2.0"), NOW), StartStanding::Latest);
        // Two copies began alike. One of them stays, whichever calls first.
        assert_eq!(all.hear(&one, incarnation("6.7"), NOW), StartStanding::Successor);
        assert_eq!(all.hear(&one, incarnation("6.0"), NOW), StartStanding::Superseded);
    }

    #[test]
    fn an_earlier_start_is_heard_again_once_the_later_is_gone() {
        let one = "crd_one".parse().unwrap();
        let mut all = Incarnations::default();
        assert_eq!(all.hear(&one, incarnation("6.0"), NOW), StartStanding::Latest);
        assert_eq!(all.hear(&one, incarnation("6.0"), NOW + GONE_AFTER), StartStanding::Latest);
        let soon = NOW + GONE_AFTER * 2;
        assert_eq!(all.hear(&one, incarnation("5.0"), soon), StartStanding::Superseded);
        let late = soon + Duration::from_millis(1);
        assert_eq!(all.hear(&one, incarnation("5.0"), late), StartStanding::Latest);
        assert_eq!(all.hear(&one, incarnation("5.0"), late), StartStanding::Latest);
        // The later start was not gone.
        assert_eq!(all.hear(&one, incarnation("6.0"), late), StartStanding::Successor);
        assert_eq!(all.hear(&one, incarnation("5.0"), late), StartStanding::Superseded);
    }

    #[test]
    fn nobody_elsewhere_has_the_name_of_the_servers_own_coordinator() {
        let own = "crd_own".parse().unwrap();
        let other = "crd_other".parse().unwrap();
        let mut all = Incarnations::default();
        all.reserve("crd_own".parse().unwrap());
        assert_eq!(all.hear(&own, incarnation("6.0"), NOW), StartStanding::Superseded);
        assert_eq!(all.hear(&other, incarnation("6.0"), NOW), StartStanding::Latest);
    }
}
