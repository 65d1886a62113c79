//! Checks: commands of the operator that a task must pass after its agent reported success.
//!
//! ```text
//!  reported success ──► checking ──all passed──► done
//!        ▲                  │
//!        │               one failed ──rounds left──► the agent works again
//!        └──────────────────┼──────────────────────────────┘
//!                           └──no round left──► blocked
//! ```
//!
//! A check runs after the end of the agent's launch, as a launch of its own in the same clone. The
//! exit status of its command is the verdict. A check that could not be run to its end costs no
//! round, and is tried again.

use std::time::Duration;

use super::id::{CheckId, LaunchId, TaskId};
use super::launch::{ExitStatus, Outcome};
use super::time::Timestamp;
use super::words::words;

words! {
    /// The result of a check.
    pub enum CheckResult as "check result" {
        /// It has been claimed, and has not ended.
        Running = "running",
        Passed = "passed",
        Failed = "failed",
        /// It did not run to its end: a time limit, a signal, or an end that was not seen.
        NotRun = "not_run",
    }
}

/// One run of a check, with its evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub id: CheckId,
    pub task: TaskId,
    /// The launch that ran it; `None` if no command was needed for the verdict.
    pub launch: Option<LaunchId>,
    /// The number of the round. The first one is 1.
    pub round: u32,
    /// The name in the configuration.
    pub name: String,
    /// The commit that was checked.
    pub commit: Option<String>,
    pub result: CheckResult,
    pub exit_code: Option<i32>,
    pub duration: Option<Duration>,
    /// The end of what it printed, at most [`MAX_OUTPUT`] bytes.
    pub output: String,
    pub started_at: Timestamp,
    pub revision: i64,
}

/// The length of the kept output of a check, in bytes.
pub const MAX_OUTPUT: u64 = 8 * 1024;

/// The name of the evidence about files that are in no commit.
pub const UNCOMMITTED: &str = "uncommitted files";

/// The name of the evidence about a result that conflicts with a branch.
pub const CONFLICT: &str = "merge conflict";

impl Check {
    /// Returns the check after the end of its launch.
    #[must_use]
    pub fn ended(self, outcome: &Outcome, exit: ExitStatus, output: String, at: Timestamp) -> Self {
        let result = match outcome {
            Outcome::Completed => CheckResult::Passed,
            Outcome::Failed => CheckResult::Failed,
            _ => CheckResult::NotRun,
        };
        let duration = Some(at.since(self.started_at));
        Self { result, exit_code: exit.exit_code, duration, output, ..self }
    }

    /// Returns whether it belongs to this round of a task that is being checked since
    /// `checking_since`. After a task was reopened, its rounds are counted anew.
    pub fn is_of(&self, round: u32, checking_since: Timestamp) -> bool {
        self.round == round && self.started_at >= checking_since
    }

    /// Returns the reason for people why the task is blocked by this check.
    pub fn as_reason(&self) -> String {
        let exit = self.exit_code.map(|code| format!(" (exit {code})")).unwrap_or_default();
        format!("checks_failed: {}{exit}", self.name)
    }
}

/// Returns the first of the configured checks that has not passed in this round, which is the next
/// one to run. `None` means that the task has passed. `of_round` contains the checks of the round.
pub fn next_check<'a, T>(
    configured: impl IntoIterator<Item = (&'a str, T)>,
    of_round: &[Check],
) -> Option<T> {
    let has_passed = |name: &str| {
        let mut passed = of_round.iter().filter(|check| check.result == CheckResult::Passed);
        passed.any(|check| check.name == name)
    };
    configured.into_iter().find(|(name, _)| !has_passed(name)).map(|(_, check)| check)
}

/// Returns the newest run of each check of the last round. `checks` are all of a task, the oldest
/// first.
pub fn last_round(checks: &[Check]) -> Vec<&Check> {
    let Some(last) = checks.last() else {
        return Vec::new();
    };
    let mut found: Vec<&Check> = Vec::new();
    // After a task was reopened, its rounds are counted anew. A round is about one commit.
    let is_of = |check: &&Check| check.round == last.round && check.commit == last.commit;
    for check in checks.iter().rev().take_while(is_of) {
        if found.iter().all(|newer| newer.name != check.name) {
            found.push(check);
        }
    }
    found.reverse();
    found
}

/// A check that a coordinator has to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckOrder {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The provider of the agent. The check runs in its wrapper.
    pub provider: String,
}

/// Returns whether the agent works again after so many rounds with a failed check.
pub const fn has_rounds_left(n_failed_rounds: u32, rounds: u32) -> bool {
    n_failed_rounds <= rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// Returns a check of a round, which begins at its number.
    fn check(name: &str, round: u32, result: CheckResult) -> Check {
        Check {
            id: "chk".parse().expect("an id"),
            task: "tsk".parse().expect("an id"),
            launch: None,
            round,
            name: name.to_owned(),
            commit: None,
            result,
            exit_code: None,
            duration: None,
            output: String::new(),
            started_at: at(round.into()),
            revision: 1,
        }
    }

    #[test]
    fn each_check_passes_once_in_a_round_in_the_order_of_the_configuration() {
        use CheckResult::{Failed, NotRun, Passed};
        let next = |all: &[Check], round| {
            let of_round: Vec<Check> =
                all.iter().filter(|check| check.is_of(round, at(1))).cloned().collect();
            next_check([("a", 1), ("b", 2)], &of_round)
        };
        assert_eq!(next(&[], 1), Some(1));
        assert_eq!(next(&[check("a", 1, NotRun)], 1), Some(1));
        assert_eq!(next(&[check("a", 1, Passed)], 1), Some(2));
        assert_eq!(next(&[check("a", 1, Passed), check("b", 1, Passed)], 1), None);
        let red = [check("a", 1, Passed), check("b", 1, Failed)];
        assert_eq!(next(&red, 2), Some(1), "a new round begins anew");
        assert_eq!(next_check::<u8>([], &red), None);
        let before_it_was_reopened = Check { started_at: at(0), ..check("a", 1, Passed) };
        assert_eq!(next(&[before_it_was_reopened], 1), Some(1));
    }

    #[test]
    fn an_exit_is_a_verdict_and_everything_else_is_none() {
        let result = |outcome: Outcome| {
            let exit = ExitStatus { exit_code: Some(3), signal: None };
            let before = check("a", 1, CheckResult::Running);
            before.ended(&outcome, exit, String::new(), at(5)).result
        };
        assert_eq!(result(Outcome::Completed), CheckResult::Passed);
        assert_eq!(result(Outcome::Failed), CheckResult::Failed);
        assert_eq!(result(Outcome::Lost), CheckResult::NotRun);
        assert_eq!(result(Outcome::ExitedWithoutReport), CheckResult::NotRun);
    }

    #[test]
    fn the_agent_works_again_as_often_as_there_are_rounds() {
        let again: Vec<bool> = (1..=4).map(|n_failed| has_rounds_left(n_failed, 2)).collect();
        assert_eq!(again, [true, true, false, false]);
        assert!(!has_rounds_left(1, 0));
    }
}
