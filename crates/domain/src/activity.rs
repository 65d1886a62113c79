//! The activity of an agent as its own output tells it: its progress, its usage, and its kind of
//! failure.
//!
//! A CLI tells the same thing more than once and tells totals beside their parts. Its output may
//! also be read again from the start. Therefore usage is not kept as a running sum. It is kept by
//! step and by session, and the greatest figure for each counts.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::fnv;
use super::launch::{ExitStatus, Outcome, StopReason};
use super::printable::one_line;
use super::time::Timestamp;
use super::words::words;

/// The number of steps that are kept apart. Only the sum of earlier steps is kept. Repeated figures
/// for a step follow it closely.
const MAX_STEPS: usize = 1024;
/// The number of sessions that are kept apart. As a rule, one process has one session.
const MAX_SESSIONS: usize = 32;
/// The longest progress text, in characters.
const MAX_PROGRESS: usize = 160;

/// The resources of its model that an agent used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Tokens that the model read, without those from a cache.
    pub input_tokens: u64,
    /// Tokens that the model wrote, including its reasoning.
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
    /// Millionths of a US dollar, if the CLI says what it costs.
    pub cost_usd_micros: u64,
    /// Answers of the model, as far as the CLI keeps them apart.
    pub turns: u64,
    /// True if a part of the numbers is an estimate, because no source reported it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_estimated: bool,
}

impl Usage {
    /// The greatest usage that can be counted.
    pub const MOST: Self = Self {
        input_tokens: u64::MAX,
        output_tokens: u64::MAX,
        cache_read_tokens: u64::MAX,
        cache_write_tokens: u64::MAX,
        cost_usd_micros: u64::MAX,
        turns: u64::MAX,
        is_estimated: false,
    };

    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the part of the tokens that the model read from a cache, in percent; `None` if it
    /// read nothing.
    pub fn cached_percent(&self) -> Option<u64> {
        let read = self.tokens().saturating_sub(self.output_tokens);
        let percent = u128::from(self.cache_read_tokens) * 100;
        percent.checked_div(u128::from(read)).and_then(|percent| u64::try_from(percent).ok())
    }

    /// Returns the number of all tokens that the model read or wrote.
    pub const fn tokens(&self) -> u64 {
        let read = self
            .input_tokens
            .saturating_add(self.cache_read_tokens)
            .saturating_add(self.cache_write_tokens);
        read.saturating_add(self.output_tokens)
    }

    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// Returns the usage after `earlier`. It is an estimate if only this usage is one.
    pub fn less(self, earlier: Self) -> Self {
        let is_estimated = self.is_estimated && !earlier.is_estimated;
        Self { is_estimated, ..self.with(earlier, u64::saturating_sub) }
    }

    /// Returns the usage of an agent that was killed. Its model may have been giving an answer,
    /// which no CLI reports before it is complete.
    #[must_use]
    pub fn of_killed(self) -> Self {
        Self { is_estimated: !self.is_none(), ..self }
    }

    /// Returns the greater of each number.
    pub fn at_least(self, other: Self) -> Self {
        self.with(other, Ord::max)
    }

    fn with(self, other: Self, both: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            input_tokens: both(self.input_tokens, other.input_tokens),
            output_tokens: both(self.output_tokens, other.output_tokens),
            cache_read_tokens: both(self.cache_read_tokens, other.cache_read_tokens),
            cache_write_tokens: both(self.cache_write_tokens, other.cache_write_tokens),
            cost_usd_micros: both(self.cost_usd_micros, other.cost_usd_micros),
            turns: both(self.turns, other.turns),
            is_estimated: self.is_estimated || other.is_estimated,
        }
    }
}

words! {
    /// The class of a failure, which decides who must act. `auth`: the login is missing, wrong or
    /// locked. `quota`: the account has used up its quota. `overload`: the service is overloaded.
    /// `config`: the configuration can't work, for example with an unknown model or an unreachable
    /// server. `crash`: the agent crashed.
    // Comments at the variants would make `oneOf` of the schema, which some clients do not accept.
    pub enum FailureClass as "failure" {
        Auth = "auth",
        Quota = "quota",
        Overload = "overload",
        Config = "config",
        Crash = "crash",
    }
}

impl FailureClass {
    /// Returns the class that an HTTP status of the model's service means, if it means one.
    pub const fn of_status(status: u64) -> Option<Self> {
        match status {
            401 | 403 => Some(Self::Auth),
            402 | 429 => Some(Self::Quota),
            408 | 500..=599 => Some(Self::Overload),
            400 | 404 | 405 | 413 | 422 => Some(Self::Config),
            _ => None,
        }
    }

    /// Returns whether all agents with the same account would have this failure.
    pub const fn parks_account(self) -> bool {
        matches!(self, Self::Auth | Self::Quota)
    }
}

/// A failure of an agent, as its output tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Failure {
    pub class: FailureClass,
    /// The time when a quota begins anew, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets_at: Option<Timestamp>,
}

impl From<FailureClass> for Failure {
    fn from(class: FailureClass) -> Self {
        Self { class, resets_at: None }
    }
}

impl Failure {
    /// Returns this failure after an earlier one. It keeps what the earlier one knew of the same
    /// failure. Of the ends of two quotas, the later one counts.
    fn after(self, earlier: Option<Self>) -> Self {
        let known = earlier
            .filter(|earlier| earlier.class == self.class)
            .and_then(|earlier| earlier.resets_at);
        Self { resets_at: self.resets_at.max(known), ..self }
    }
}

/// The state of an agent, as far as its output tells.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Activity {
    pub usage: Usage,
    /// The last thing that the agent did, or the last line that it printed if its output does not
    /// tell what it does. It is one printable line of at most 160 characters. The text is not ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

impl Activity {
    /// Returns the activity after a newer observation of the same agent. Usage never shrinks,
    /// because a reader that starts anew may not find the beginning of the output any more.
    #[must_use]
    pub fn after(self, earlier: Self) -> Self {
        Self {
            usage: self.usage.at_least(earlier.usage),
            progress: self.progress.map(|text| one_line(&text, MAX_PROGRESS)).or(earlier.progress),
            failure: self.failure.map(|failure| failure.after(earlier.failure)),
        }
    }

    /// Returns the activity to keep at the end of the process. An agent that did its work had no
    /// failure, and an agent that we ended did not crash.
    #[must_use]
    pub fn at_end(self, outcome: &Outcome, exit: ExitStatus, stop: Option<StopReason>) -> Self {
        let is_bad = exit.signal.is_some() || exit.exit_code.is_some_and(|code| code != 0);
        let has_crashed = is_bad && stop.is_none();
        let failure = match outcome {
            Outcome::Completed | Outcome::Blocked | Outcome::Failed => None,
            Outcome::ExitedWithoutReport | Outcome::NeverAuthenticated => {
                self.failure.or_else(|| has_crashed.then(|| FailureClass::Crash.into()))
            }
            Outcome::Stopped(_)
            | Outcome::StartFailed(_)
            | Outcome::TimedOut(_)
            | Outcome::Lost => self.failure,
        };
        Self { failure, ..self }
    }
}

/// A number in place of the name that a CLI gave to a session or a step. The name itself may have
/// any length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mark(u64);

impl Mark {
    /// The mark of a session or step without a name.
    pub const UNNAMED: Self = Self(0);

    pub fn of(name: &str) -> Self {
        // An agent that forges a collision only hides its own usage.
        Self(fnv::hash(name))
    }
}

/// The totals that a CLI counted. A CLI tells one of the two, or some numbers in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// The usage of this process.
    pub process: Usage,
    /// The usage of the whole conversation, including the processes before this one.
    pub whole: Usage,
}

impl Totals {
    /// Returns the total of a conversation that began with this process.
    pub fn of_new_conversation(self) -> Usage {
        self.process.at_least(self.whole)
    }

    fn at_least(self, other: Self) -> Self {
        let process = self.process.at_least(other.process);
        Self { process, whole: self.whole.at_least(other.whole) }
    }
}

/// One fact that a line of output tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputFact {
    /// The CLI named the conversation.
    Conversation(String),
    /// The agent said or did something.
    Did(String),
    /// The result of something that the agent did.
    Got(String),
    /// The agent printed a line of plain text.
    Printed(String),
    /// The usage of one step of a session.
    Step {
        session: Mark,
        step: Mark,
        usage: Usage,
    },
    /// The usage of a session until now, for all its steps together.
    Total {
        session: Mark,
        totals: Totals,
    },
    Failed(Failure),
    /// The model's service refuses the agent's login, and further attempts of the CLI will not
    /// change that.
    LoginRefused,
    /// The agent works again after a failure.
    Recovered,
}

/// The sums over what one agent's CLI tells, in its output and in the transcript that it keeps.
///
/// Usage does not depend on the order in which steps and totals are told, nor on their repetition.
/// The two sources have different ids for the same answer. So they are never added to each other:
/// the greater of each number counts. The progress is the last one told, and so is the failure of
/// each source. A plain line is the progress of an agent that does not tell what it does.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    output: SourceTally,
    transcript: SourceTally,
    /// The usage of the conversation when the process began.
    before: Usage,
    conversation: Option<String>,
    progress: Option<String>,
    /// The last plain line.
    printed: Option<String>,
    is_login_refused: bool,
}

impl Tally {
    #[must_use]
    pub fn heard(mut self, fact: OutputFact) -> Self {
        match fact {
            // The first name counts.
            OutputFact::Conversation(id) => {
                self.conversation.get_or_insert(id);
            }
            OutputFact::Did(text) => self.progress = Some(one_line(&text, MAX_PROGRESS)),
            OutputFact::Got(_) => {}
            OutputFact::Printed(text) => self.printed = Some(one_line(&text, MAX_PROGRESS)),
            OutputFact::Step { .. } | OutputFact::Total { .. } | OutputFact::Failed(_) => {
                self.output.hear(&fact);
            }
            OutputFact::LoginRefused => self.is_login_refused = true,
            OutputFact::Recovered => (self.output.failure, self.is_login_refused) = (None, false),
        }
        self
    }

    /// Hears a fact in the transcript. Only usage and failures count there, and an answer of the
    /// model ends a failure.
    pub fn hear_transcript(&mut self, fact: &OutputFact) {
        if matches!(fact, OutputFact::Step { .. } | OutputFact::Recovered) {
            self.transcript.failure = None;
        }
        self.transcript.hear(fact);
    }

    /// Forgets the transcript, because it is read from the start again.
    pub fn forget_transcript(&mut self) {
        self.transcript = SourceTally::default();
    }

    /// Returns the name that the CLI gave the conversation.
    pub fn conversation(&self) -> Option<&str> {
        self.conversation.as_deref()
    }

    /// Sets the usage of the conversation when the process began. Only the part of its totals above
    /// that counts. If it is `None`, because it is not known, these totals do not count.
    pub fn set_before(&mut self, before: Option<Usage>) {
        self.before = before.unwrap_or(Usage::MOST);
    }

    pub fn activity(&self) -> Activity {
        Activity {
            usage: self.output.usage(self.before).at_least(self.transcript.usage(self.before)),
            progress: self.progress.as_ref().or(self.printed.as_ref()).cloned(),
            failure: self.output.failure.or(self.transcript.failure),
        }
    }

    /// Returns whether the output tells a failure after which the agent did not go on.
    pub const fn has_printed_failure(&self) -> bool {
        self.output.failure.is_some()
    }

    /// Returns whether it is certain that the agent cannot reach its model with this login.
    pub const fn is_login_refused(&self) -> bool {
        self.is_login_refused
    }
}

/// The usage and the failure that one source tells.
#[derive(Debug, Clone, Default)]
struct SourceTally {
    steps: BTreeMap<(Mark, Mark), Usage>,
    /// The keys of `steps` in the order in which they came.
    order: VecDeque<(Mark, Mark)>,
    sessions: BTreeMap<Mark, SessionTally>,
    failure: Option<Failure>,
}

#[derive(Debug, Clone, Copy, Default)]
struct SessionTally {
    totals: Totals,
    /// The sum of all steps of the session, including those that are not kept apart any more.
    steps: Usage,
}

impl SourceTally {
    /// Returns the usage in all sessions. The usage `before` the process does not count.
    fn usage(&self, before: Usage) -> Usage {
        let sessions = self.sessions.values().map(|session| {
            let Totals { process, whole } = session.totals;
            process.at_least(whole.less(before)).at_least(session.steps)
        });
        sessions.fold(Usage::default(), Usage::plus)
    }

    fn hear(&mut self, fact: &OutputFact) {
        match fact {
            OutputFact::Step { session, step, usage } => self.add_step(*session, *step, *usage),
            OutputFact::Total { session, totals } => {
                let session = self.session(*session);
                session.totals = session.totals.at_least(*totals);
            }
            OutputFact::Failed(failure) => self.failure = Some(failure.after(self.failure)),
            _ => {}
        }
    }

    fn add_step(&mut self, session: Mark, step: Mark, usage: Usage) {
        let key = (session, step);
        let before = self.steps.get(&key).copied();
        let now = before.unwrap_or_default().at_least(usage);
        self.steps.insert(key, now);
        if before.is_none() {
            self.order.push_back(key);
            if self.order.len() > MAX_STEPS
                && let Some(oldest) = self.order.pop_front()
            {
                self.steps.remove(&oldest);
            }
        }
        let more = now.less(before.unwrap_or_default());
        let session = self.session(session);
        session.steps = session.steps.plus(more);
    }

    /// Returns the tally of a session. Sessions over the limit are counted with those that have no
    /// name.
    fn session(&mut self, session: Mark) -> &mut SessionTally {
        let is_one_too_many =
            self.sessions.len() >= MAX_SESSIONS && !self.sessions.contains_key(&session);
        self.sessions.entry(if is_one_too_many { Mark::UNNAMED } else { session }).or_default()
    }
}

#[cfg(test)]
mod tests;
