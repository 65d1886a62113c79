//! The health of the database: its latencies, its failures, and the one remark for an operator.

use std::fmt;
use std::time::Duration;

/// A statement that takes longer than this is slow, because a start needs several of them one after
/// the other.
pub const SLOW_STATEMENT: Duration = Duration::from_millis(10);
/// A transaction that takes longer than this is slow.
const SLOW_TRANSACTION: Duration = Duration::from_millis(200);
/// A wait for the lock of the writer that is longer than this is slow.
const SLOW_LOCK: Duration = Duration::from_millis(100);
/// A step of a transaction that takes longer than this is a problem while it lasts.
const LONG_STEP: Duration = Duration::from_secs(1);

/// The state of the database, from the last transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreState {
    pub database: Database,
    /// The time of one statement without work, which ends a read. `None` without a recent one, as
    /// with the two others.
    pub round_trip: Option<Spread>,
    /// The time until a transaction that writes may begin. It includes one round trip.
    pub lock_wait: Option<Spread>,
    /// The time of a whole transaction that writes.
    pub transaction: Option<Spread>,
    /// The present failure.
    pub failure: Option<StoreFailure>,
    /// The step that the present transaction is at, and for how long.
    pub step: Option<(Step, Duration)>,
    /// The number of committed transactions since the start of the program.
    pub n_transactions: u64,
}

/// A database and the program that keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Database {
    pub kind: DatabaseKind,
    /// The version of SQLite or of the PostgreSQL server.
    pub version: String,
    /// The URL, without a password.
    pub url: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DatabaseKind {
    #[default]
    Sqlite,
    Postgres,
}

/// Some durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    pub median: Duration,
    pub max: Duration,
}

/// All transactions of a kind have failed for some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFailure {
    pub access: Access,
    pub lasts: Duration,
    /// The last error.
    pub error: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// A step of a transaction that writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It waits for the lock of the writer.
    Lock,
    /// It runs statements.
    Statements,
    Commit,
}

/// The most important remark about the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreProblem<'a> {
    Failing(&'a StoreFailure),
    /// A transaction does not go on.
    Stuck(Step, Duration),
    SlowStatements(Spread, Option<Spread>),
    SlowLock(Spread),
    SlowTransactions(Spread),
}

impl DatabaseKind {
    /// Returns its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

impl Spread {
    /// Returns the spread of `durations`; `None` if there are none.
    pub fn of(mut durations: Vec<Duration>) -> Option<Self> {
        durations.sort_unstable();
        let median = *durations.get(durations.len() / 2)?;
        Some(Self { median, max: *durations.last()? })
    }
}

impl StoreState {
    /// Returns the remark that explains best why calls or starts take long; `None` if all is well.
    pub fn problem(&self) -> Option<StoreProblem<'_>> {
        if let Some(failure) = &self.failure {
            return Some(StoreProblem::Failing(failure));
        }
        if let Some((step, lasts)) = self.step
            && lasts >= LONG_STEP
        {
            return Some(StoreProblem::Stuck(step, lasts));
        }
        let over = |spread: Option<Spread>, limit| spread.filter(|spread| spread.median > limit);
        if let Some(statement) = over(self.round_trip, SLOW_STATEMENT) {
            return Some(StoreProblem::SlowStatements(statement, self.transaction));
        }
        if let Some(lock) = over(self.lock_wait, SLOW_LOCK) {
            return Some(StoreProblem::SlowLock(lock));
        }
        over(self.transaction, SLOW_TRANSACTION).map(StoreProblem::SlowTransactions)
    }
}

impl StoreProblem<'_> {
    /// Returns the state of the store in one word.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Failing(_) => "failing",
            Self::Stuck(..) => "stuck",
            Self::SlowStatements(..) | Self::SlowLock(_) | Self::SlowTransactions(_) => "slow",
        }
    }
}

/// Writes one sentence for an operator.
impl fmt::Display for StoreProblem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failing(StoreFailure { access, lasts, error }) => {
                match access {
                    _ if *lasts < LONG_STEP => write!(f, "The store does not answer")?,
                    Access::Read => write!(f, "The store has not answered for {}", span(*lasts))?,
                    Access::Write => {
                        write!(f, "Nothing could be written to the store for {}", span(*lasts))?;
                    }
                }
                write!(f, ": no agent starts, and running agents go on ({error}).")
            }
            Self::Stuck(step, lasts) => {
                let lasts = span(*lasts);
                let waits = "no agent starts until then";
                match step {
                    Step::Lock => write!(
                        f,
                        "A transaction has waited {lasts} for the lock of the store, which another \
                         one holds: {waits}."
                    ),
                    Step::Statements => write!(
                        f,
                        "A transaction has waited {lasts} for answers of the store: {waits}."
                    ),
                    Step::Commit => write!(
                        f,
                        "A transaction has waited {lasts} for its commit, as if a disk or a \
                         synchronous standby did not answer: {waits}."
                    ),
                }
            }
            Self::SlowStatements(statement, transaction) => {
                write!(f, "The store is slow, so starts take longer: a statement takes ")?;
                write!(f, "{statement}")?;
                match transaction {
                    Some(transaction) => write!(f, ", and a transaction {transaction}."),
                    None => write!(f, "."),
                }
            }
            Self::SlowLock(lock) => write!(
                f,
                "The store is slow, so starts take longer: a transaction waits {lock} for the lock \
                 of the store."
            ),
            Self::SlowTransactions(transaction) => write!(
                f,
                "The store is slow, so starts take longer: a transaction takes {transaction}."
            ),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at most {})", span(self.median), span(self.max))
    }
}

/// Returns a duration for people: `0.21 ms`, `52 ms`, `12 s`, `3 min`.
pub fn span(duration: Duration) -> String {
    match duration.as_millis() {
        0..10 => format!("{:.2} ms", duration.as_secs_f64() * 1_000.0),
        ms @ 10..1_000 => format!("{ms} ms"),
        ms @ 1_000..10_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        ms @ 10_000..120_000 => format!("{} s", ms / 1_000),
        ms => format!("{} min", ms / 60_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn spread(median: u64, max: u64) -> Spread {
        Spread { median: ms(median), max: ms(max) }
    }

    fn well() -> StoreState {
        StoreState {
            database: Database::default(),
            round_trip: Some(spread(1, 30)),
            lock_wait: Some(spread(1, 300)),
            transaction: Some(spread(5, 600)),
            failure: None,
            step: Some((Step::Commit, ms(20))),
            n_transactions: 7,
        }
    }

    #[test]
    fn a_store_without_a_problem_has_no_remark() {
        assert_eq!(well().problem(), None);
        let none = StoreState { round_trip: None, lock_wait: None, transaction: None, ..well() };
        assert_eq!(none.problem(), None);
    }

    #[test]
    fn the_remark_has_the_figure_that_explains_most() {
        let slow = StoreState {
            round_trip: Some(spread(52, 80)),
            transaction: Some(spread(410, 950)),
            ..well()
        };
        let lock = StoreState { lock_wait: Some(spread(150, 1_800)), ..well() };
        let disk = StoreState { transaction: Some(spread(250, 11_000)), ..well() };
        let stuck = StoreState { step: Some((Step::Commit, ms(35_000))), ..slow.clone() };
        let failure = StoreFailure {
            access: Access::Read,
            lasts: ms(200_000),
            error: "connection refused".to_owned(),
        };
        let away = StoreState { failure: Some(failure), ..stuck.clone() };
        for (state, word, text) in [
            (
                &slow,
                "slow",
                "The store is slow, so starts take longer: a statement takes 52 ms (at most 80 ms), \
                 and a transaction 410 ms (at most 950 ms).",
            ),
            (
                &lock,
                "slow",
                "The store is slow, so starts take longer: a transaction waits 150 ms (at most \
                 1.8 s) for the lock of the store.",
            ),
            (
                &disk,
                "slow",
                "The store is slow, so starts take longer: a transaction takes 250 ms (at most 11 s).",
            ),
            (
                &stuck,
                "stuck",
                "A transaction has waited 35 s for its commit, as if a disk or a synchronous \
                 standby did not answer: no agent starts until then.",
            ),
            (
                &away,
                "failing",
                "The store has not answered for 3 min: no agent starts, and running agents go on \
                 (connection refused).",
            ),
        ] {
            let problem = state.problem().unwrap();
            assert_eq!((problem.as_str(), problem.to_string().as_str()), (word, text));
        }
    }

    #[test]
    fn a_failure_that_was_just_noticed_has_no_duration() {
        let failure =
            StoreFailure { access: Access::Write, lasts: ms(3), error: "closed".to_owned() };
        let text = StoreProblem::Failing(&failure).to_string();
        assert!(text.starts_with("The store does not answer: no agent starts"), "{text}");
    }

    #[test]
    fn a_spread_has_the_middle_and_the_greatest_duration() {
        assert_eq!(Spread::of(Vec::new()), None);
        assert_eq!(Spread::of([9, 1, 5].map(ms).to_vec()), Some(spread(5, 9)));
        assert_eq!(span(Duration::from_micros(210)), "0.21 ms");
    }
}
