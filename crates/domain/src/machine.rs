//! The machine of a coordinator, as people see it: its name, its memory and its disk.

use serde::{Deserialize, Serialize};

/// The change of a share, in percent, that is worth a report. Small ones come and go all the time.
const WORTH_REPORTING: u64 = 5;

/// The machine of a coordinator at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// The name of the host.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Space>,
    /// The disk with the state directory of the coordinator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Space>,
}

/// The free and the whole space of a resource, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Space {
    pub free: u64,
    pub total: u64,
}

impl Space {
    /// Returns the part that is in use, in percent.
    pub fn used_percent(self) -> u64 {
        let used = u128::from(self.total.saturating_sub(self.free));
        let percent = (used * 100).checked_div(u128::from(self.total)).unwrap_or_default();
        u64::try_from(percent).unwrap_or(100)
    }
}

impl Machine {
    /// Returns whether a report that says `other` would tell people something new.
    pub fn is_news_after(&self, other: &Self) -> bool {
        let differ = |a: Option<Space>, b: Option<Space>| match (a, b) {
            (Some(a), Some(b)) => a.used_percent().abs_diff(b.used_percent()) >= WORTH_REPORTING,
            (a, b) => a.is_some() != b.is_some(),
        };
        self.name != other.name
            || differ(self.memory, other.memory)
            || differ(self.disk, other.disk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_reported_when_its_name_or_a_share_has_changed() {
        let machine = |name: &str, free: u64| Machine {
            name: name.to_owned(),
            memory: Some(Space { free, total: 1000 }),
            disk: None,
        };
        let before = machine("build-1", 500);
        assert!(!machine("build-1", 451).is_news_after(&before));
        assert!(machine("build-1", 450).is_news_after(&before));
        assert!(machine("build-1", 550).is_news_after(&before));
        assert!(machine("build-2", 500).is_news_after(&before));
        assert!(Machine { memory: None, ..before.clone() }.is_news_after(&before));
    }

    #[test]
    fn a_share_is_a_percentage_of_any_size() {
        let percent = |free, total| Space { free, total }.used_percent();
        assert_eq!((percent(0, u64::MAX), percent(1, 3), percent(3, 3)), (100, 66, 0));
        assert_eq!((percent(0, 0), percent(9, 3)), (0, 0));
    }
}
