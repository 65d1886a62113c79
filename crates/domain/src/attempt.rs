//! Attempts at a task: the number of the present one, and the end of the one before.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use super::activity::Failure;
use super::id::LaunchId;
use super::launch::Outcome;
use super::session::Execution;
use super::time::Timestamp;

/// The place of a launch among the launches that worked on its task. A chat is always the first
/// attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The number of the attempt. The first one is 1.
    #[serde(rename = "attempt", default = "first", skip_serializing_if = "is_first")]
    pub number: u32,
    /// The outcome of the attempt before, by any agent.
    #[serde(default, deserialize_with = "if_known", skip_serializing_if = "Option::is_none")]
    pub last_end: Option<Outcome>,
}

/// The end of the attempt before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastEnd {
    /// The launch, which may not be kept any more.
    pub launch: LaunchId,
    pub outcome: Outcome,
    pub failure: Option<Failure>,
    /// The last line about its progress that its CLI printed, if the launch is kept.
    pub last_line: Option<String>,
    pub at: Timestamp,
}

const fn first() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
const fn is_first(number: &u32) -> bool {
    *number == 1
}

/// Reads an outcome. One that only a newer version knows is left out.
fn if_known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Outcome>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Read {
        Known(Outcome),
        Other(IgnoredAny),
    }
    Ok(match Read::deserialize(deserializer)? {
        Read::Known(outcome) => Some(outcome),
        Read::Other(IgnoredAny) => None,
    })
}

impl Attempt {
    pub const FIRST: Self = Self { number: 1, last_end: None };

    /// Returns the attempt of a launch. `executions` are those of its task, the newest first. They
    /// may contain its own.
    pub fn of(launch: &LaunchId, executions: &[Execution]) -> Self {
        let n_earlier = executions.iter().filter(|execution| execution.launch != *launch).count();
        Self {
            number: u32::try_from(n_earlier).unwrap_or(u32::MAX).saturating_add(1),
            last_end: LastEnd::of(launch, executions).map(|end| end.outcome),
        }
    }
}

impl LastEnd {
    /// Returns the end of the attempt before that of a launch. `executions` are those of its task,
    /// the newest first.
    pub fn of(launch: &LaunchId, executions: &[Execution]) -> Option<Self> {
        let mut earlier = executions.iter().filter(|execution| execution.launch != *launch);
        let last = earlier.find(|execution| execution.outcome.is_some())?;
        Some(Self {
            launch: last.launch.clone(),
            outcome: last.outcome.clone()?,
            failure: last.failure,
            last_line: None,
            at: last.ended_at.unwrap_or(last.started_at),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::Usage;
    use crate::key::{InstanceKey, Purpose};
    use crate::launch::StopReason;

    fn execution(launch: &str, outcome: Option<Outcome>) -> Execution {
        let agent = "agt".parse().expect("an id");
        let project = "prj".parse().expect("an id");
        Execution {
            id: format!("exe_{launch}").parse().expect("an id"),
            launch: launch.parse().expect("an id"),
            task: "tsk".parse().expect("an id"),
            key: InstanceKey::new(agent, project, Purpose::Task),
            started_at: Timestamp::from_millis(1),
            ended_at: outcome.is_some().then_some(Timestamp::from_millis(2)),
            result: None,
            summary: None,
            next_steps: None,
            progress: None,
            findings: None,
            outcome,
            usage: Usage::default(),
            failure: None,
            revision: 1,
        }
    }

    #[test]
    fn an_attempt_counts_the_other_launches_of_its_task() {
        let of = |executions: &[Execution]| Attempt::of(&"own".parse().expect("an id"), executions);
        assert_eq!(of(&[]), Attempt::FIRST);
        assert_eq!(of(&[execution("own", None)]), Attempt::FIRST);
        let stopped = Outcome::Stopped(StopReason::Person);
        let earlier = [
            execution("own", None),
            execution("third", None),
            execution("second", Some(stopped.clone())),
            execution("first", Some(Outcome::Failed)),
        ];
        assert_eq!(of(&earlier), Attempt { number: 4, last_end: Some(stopped) });
    }

    #[test]
    fn the_first_attempt_has_no_form_and_a_later_one_names_the_end_before() {
        let form = |attempt: &Attempt| serde_json::to_string(attempt).expect("JSON");
        assert_eq!(form(&Attempt::FIRST), "{}");
        let second = Attempt { number: 2, last_end: Some(Outcome::Stopped(StopReason::Silence)) };
        let text = r#"{"attempt":2,"last_end":{"outcome":"stopped","reason":"silence"}}"#;
        assert_eq!(form(&second), text);
        for attempt in [Attempt::FIRST, second] {
            let read: Attempt = serde_json::from_str(&form(&attempt)).expect("an attempt");
            assert_eq!(read, attempt);
        }
        for end in [r#"{"outcome":"of_a_newer_version"}"#, "null", "7"] {
            let read = serde_json::from_str(&format!(r#"{{"attempt":2,"last_end":{end}}}"#));
            let read: Attempt = read.expect("an attempt");
            assert_eq!(read, Attempt { number: 2, last_end: None }, "{end}");
        }
    }
}
