//! The labels by which people see the progress of their item. Only single labels are added and
//! removed, and the labels of other people stay.

use super::item::WorkState;

/// The names of the labels at a host. No two are the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelNames {
    /// Set by people: the bot shall work on the item.
    pub bot_label: String,
    pub processing_label: String,
    pub done_label: String,
    pub paused_label: String,
    pub stopped_label: String,
    pub failed_label: String,
    pub blocked_label: String,
}

impl Default for LabelNames {
    fn default() -> Self {
        Self {
            bot_label: "coding agent".to_owned(),
            processing_label: "coding agent processing".to_owned(),
            done_label: "coding agent done".to_owned(),
            paused_label: "coding agent paused".to_owned(),
            stopped_label: "coding agent stopped".to_owned(),
            failed_label: "coding agent failed".to_owned(),
            blocked_label: "coding agent blocked".to_owned(),
        }
    }
}

/// The state of an item that one label shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LabelState {
    Processing,
    Done,
    Paused,
    Stopped,
    Failed,
    Blocked,
}

/// Labels to add and labels to remove; no label is in both.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelDelta {
    pub add: Vec<String>,
    pub remove: Vec<String>,
}

impl LabelState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Processing => "processing",
            Self::Done => "done",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Blocked => "blocked",
        }
    }
}

impl LabelDelta {
    pub const fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }
}

impl From<WorkState> for LabelState {
    fn from(work_state: WorkState) -> Self {
        match work_state {
            WorkState::Processing => Self::Processing,
            WorkState::Blocked => Self::Blocked,
            WorkState::Failed => Self::Failed,
        }
    }
}

impl LabelNames {
    /// Returns all names, the bot's first.
    pub fn all(&self) -> [&str; 7] {
        [
            &self.bot_label,
            &self.processing_label,
            &self.done_label,
            &self.paused_label,
            &self.stopped_label,
            &self.failed_label,
            &self.blocked_label,
        ]
    }

    pub fn of(&self, state: LabelState) -> &str {
        match state {
            LabelState::Processing => &self.processing_label,
            LabelState::Done => &self.done_label,
            LabelState::Paused => &self.paused_label,
            LabelState::Stopped => &self.stopped_label,
            LabelState::Failed => &self.failed_label,
            LabelState::Blocked => &self.blocked_label,
        }
    }

    /// Returns the changes after which the label of `state` is the only one of our labels on the
    /// item. If `labels` is not known, the result names every label to add or remove.
    pub fn delta(&self, state: LabelState, labels: Option<&[String]>) -> LabelDelta {
        let wanted = self.of(state);
        let has = |label: &str| {
            labels.is_none_or(|labels| labels.iter().any(|other| is_same(other, label)))
        };
        let add =
            if labels.is_some() && has(wanted) { Vec::new() } else { vec![wanted.to_owned()] };
        let remove = self.all().into_iter().filter(|label| !is_same(label, wanted) && has(label));
        LabelDelta { add, remove: remove.map(str::to_owned).collect() }
    }
}

/// Returns whether two names are the same label. Forges keep the case of a label and compare
/// without it.
pub fn is_same(one: &str, other: &str) -> bool {
    one == other || one.to_lowercase() == other.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(state: LabelState, labels: &[&str], add: &[&str], remove: &[&str]) {
        let labels: Vec<String> = labels.iter().map(|&label| label.to_owned()).collect();
        let delta = LabelNames::default().delta(state, Some(&labels));
        assert_eq!(delta.add, add);
        assert_eq!(delta.remove, remove);
    }

    #[test]
    fn a_start_clears_what_was_said_before_and_leaves_peoples_labels() {
        check(
            LabelState::Processing,
            &["bug", "Coding Agent", "coding agent stopped"],
            &["coding agent processing"],
            &["coding agent", "coding agent stopped"],
        );
        check(LabelState::Processing, &["coding agent processing", "bug"], &[], &[]);
    }

    #[test]
    fn a_stop_is_never_done() {
        check(
            LabelState::Stopped,
            &["coding agent processing", "coding agent done"],
            &["coding agent stopped"],
            &["coding agent processing", "coding agent done"],
        );
    }
}
