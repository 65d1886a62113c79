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
//! exit status of its command is the verdict, unless the command changed the files of the commit,
//! which fails. A check that could not be run to its end costs no round, and is tried again.
//!
//! A clean check runs in a fresh clone of the commit, which is removed afterwards. It never sees
//! other files of the agent, and protected paths are there as the work found them.

use std::time::Duration;

use super::id::{CheckId, LaunchId, TaskId};
use super::launch::{ExitStatus, Outcome};
use super::printable::counted;
use super::time::Timestamp;
use super::words::words;
use super::workspace::{CleanOrder, Content};

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
/// The name of the check that fails if no rule says which branch has the result.
pub const UNDECIDED: &str = "several results";

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

    /// Returns the reason why a check that passed has failed nevertheless, if its files are not as
    /// the agent reported them any more. `content` is what was kept after it.
    pub fn spoiled_by(&self, content: &Content) -> Option<String> {
        let short = |commit: Option<&String>| {
            commit.map_or("no commit", |id| id.get(..12).unwrap_or(id)).to_owned()
        };
        let before = self.commit.as_ref();
        let after = content.head_commit.as_ref();
        if before != after {
            return Some(format!(
                "The check moved the branch from {} to {}. A check must leave the commit as it is.",
                short(before),
                short(after)
            ));
        }
        (content.n_changed > 0).then(|| {
            let files = counted(content.n_changed, "file");
            format!(
                "The check changed {files} of the commit. A check must leave them as they are, or \
                 run with `clean: true`."
            )
        })
    }

    /// Returns the check with a failed result, for this reason, which is the end of its output.
    #[must_use]
    pub fn spoiled(self, why: &str) -> Self {
        let room = usize::try_from(MAX_OUTPUT).unwrap_or(usize::MAX).saturating_sub(why.len() + 1);
        let from = self.output.ceil_char_boundary(self.output.len().saturating_sub(room));
        let printed = self.output[from..].trim_end_matches('\n');
        let output = [printed, why].into_iter().filter(|part| !part.is_empty());
        let output = output.collect::<Vec<_>>().join("\n");
        Self { result: CheckResult::Failed, output, ..self }
    }

    /// Returns whether its output says that it ran with other attributes than those of the result.
    pub fn has_attributes_note(&self) -> bool {
        self.output.contains(ATTRIBUTES_NOTE)
    }

    /// Returns whether it belongs to this round of a task that is being checked since
    /// `checking_since`. After a task was reopened, its rounds are counted anew.
    pub fn is_of(&self, round: u32, checking_since: Timestamp) -> bool {
        self.round == round && self.started_at >= checking_since
    }

    /// Returns the reason for people why the task is blocked by this check.
    pub fn as_reason(&self) -> String {
        let exit = match self.exit_code {
            Some(0) => " (it changed the files of the commit)".to_owned(),
            Some(code) => format!(" (exit {code})"),
            None => String::new(),
        };
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
    /// The fresh clone that it runs in; `None` for the clone of the task.
    pub clean: Option<Box<CleanOrder>>,
}

/// Says in the output of a check with which attributes its files were written.
const ATTRIBUTES_NOTE: &str = "agent-coordinator: the result changes .gitattributes; the files of \
    this check were written with the attributes of the commit that the work began at";

impl CheckOrder {
    /// Returns the check with a line before its own output, which says that the result has other
    /// attributes than those that its files were written with.
    pub fn with_attributes_note(self) -> Self {
        let say = ["/bin/sh", "-c", "printf '%s\\n' \"$0\" >&2; exec \"$@\"", ATTRIBUTES_NOTE];
        let command = say.into_iter().map(str::to_owned).chain(self.command).collect();
        Self { command, ..self }
    }
}

/// The longest pattern of protected paths, in bytes.
const MAX_PATTERN: usize = 1000;

/// Checks a pattern of protected paths.
///
/// # Errors
/// The problem, as the end of a sentence.
pub fn check_pattern(pattern: &str) -> Result<(), &'static str> {
    if pattern.is_empty() || pattern.trim() != pattern || pattern.contains(char::is_control) {
        return Err("is empty, has a control character, or a space at an end");
    }
    if pattern.starts_with('/') {
        return Err("is absolute; begin at the top of the repository");
    }
    if pattern.len() > MAX_PATTERN {
        return Err("is too long");
    }
    if pattern.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err("matches no file of a repository; for a folder, write `folder/**`");
    }
    Ok(())
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
    fn a_check_that_passed_has_failed_if_the_files_are_others_afterwards() {
        let passed = Check {
            commit: Some("1234".to_owned()),
            exit_code: Some(0),
            output: "all good\n".to_owned(),
            ..check("tests", 1, CheckResult::Passed)
        };
        let head_commit = Some("1234".to_owned());
        let same = Content { head_commit, n_uncommitted: 3, ..Content::default() };
        assert_eq!(passed.spoiled_by(&same), None, "new files are fine");
        let changed = Content { n_changed: 2, ..same.clone() };
        let why = passed.spoiled_by(&changed).expect("a reason");
        assert!(why.starts_with("The check changed 2 files"), "{why}");
        let moved = Content { head_commit: Some("5678".to_owned()), ..same };
        let why = passed.spoiled_by(&moved).expect("a reason");
        assert!(why.contains("from 1234 to 5678"), "{why}");
        let failed = passed.spoiled(&why);
        assert_eq!(failed.result, CheckResult::Failed);
        assert_eq!(failed.output, format!("all good\n{why}"));
        let reason = "checks_failed: tests (it changed the files of the commit)";
        assert_eq!(failed.as_reason(), reason);
        let long = Check { output: "ä".repeat(5000), ..failed };
        assert!(long.spoiled(&why).output.len() as u64 <= MAX_OUTPUT);
    }

    #[test]
    fn a_check_with_other_attributes_says_so_before_its_own_output() {
        let command = ["printf", "%s\n", "a b"].map(str::to_owned).to_vec();
        let order = CheckOrder { command, provider: "claude".to_owned(), clean: None };
        let noted = order.with_attributes_note();
        let (program, arguments) = noted.command.split_first().expect("a program");
        assert_eq!(program, "/bin/sh");
        // The words of the check are no words of the shell.
        assert_eq!(arguments[1], "printf '%s\\n' \"$0\" >&2; exec \"$@\"");
        assert_eq!(arguments[2..], [ATTRIBUTES_NOTE, "printf", "%s\n", "a b"]);
        let output = format!("{ATTRIBUTES_NOTE}\na b\n");
        let failed = check("tests", 1, CheckResult::Failed);
        assert!(!failed.has_attributes_note());
        assert!(Check { output, ..failed }.has_attributes_note());
    }

    #[test]
    fn a_pattern_of_protected_paths_begins_at_the_top_of_the_repository() {
        for good in ["ci/**", "*.toml", "a b/c", ":odd", "ci/[ab].sh"] {
            assert_eq!(check_pattern(good), Ok(()), "{good}");
        }
        for bad in ["", " ci", "/ci", "ci/", "../ci", "./ci", "ci//a", "a\nb"] {
            assert!(check_pattern(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_agent_works_again_as_often_as_there_are_rounds() {
        let again: Vec<bool> = (1..=4).map(|n_failed| has_rounds_left(n_failed, 2)).collect();
        assert_eq!(again, [true, true, false, false]);
        assert!(!has_rounds_left(1, 0));
    }
}
