//! The conversation of an agent CLI about one task, which goes on over several launches.
//!
//! ```text
//! open, not begun ──authenticated──► open, begun ──ended──► open, begun ──continued──► …
//!       └───────────────────────── closed, with its reason ◄──────┘
//! ```
//!
//! An agent has at most one open conversation about a task. [`to_continue`] decides whether its
//! next launch continues it. The server stores the id that the CLI gets before a process exists, so
//! that a crash at any moment leaves an id that is either unused or known.

mod cause;
mod fresh;

use std::path::PathBuf;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::activity::FailureClass;
use super::id::{AgentId, ConversationId, CoordinatorId, LaunchId, TaskId, WorkspaceId};
use super::launch::{Launch, Outcome};
use super::time::Timestamp;

pub use cause::Cause;
pub use fresh::FreshReason;

/// The time within which a second refusal of an agent's CLI counts as a failure.
pub const REFUSALS_WITHIN: Duration = Duration::from_hours(1);
/// The number of continued launches in a row that do not authenticate and end a conversation.
const MAX_UNHELPFUL: u32 = 2;

/// A conversation as the store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    pub id: ConversationId,
    pub task: TaskId,
    pub agent: AgentId,
    /// The coordinator whose machine has the transcript.
    pub coordinator: CoordinatorId,
    /// The id by which the CLI knows it.
    pub cli_session: String,
    /// [`Entry::account`] of its launches.
    pub account: String,
    pub model: Option<String>,
    pub directory: PathBuf,
    /// The clone that its launches work in; `None` for the directory of the project.
    pub workspace: Option<WorkspaceId>,
    /// A launch in it has authenticated, so that the CLI knows the id.
    pub has_begun: bool,
    /// The last launch in it that authenticated.
    pub last_launch: Option<LaunchId>,
    /// The continued launches in a row that did not authenticate.
    pub n_unhelpful: u32,
    pub opened_at: Timestamp,
    pub last_used_at: Timestamp,
    /// Set if it is closed. A closed conversation is never continued.
    pub closed_because: Option<FreshReason>,
    pub closed_at: Option<Timestamp>,
    /// Counts the writes of this row.
    pub revision: i64,
}

/// The directories in which the CLI of an entry can continue a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The CLI cannot continue it, or the configuration turns that off.
    Nowhere,
    /// Only in the directory where the conversation began.
    SameDirectory,
    Anywhere,
}

/// The facts of an entry of `ai_providers` on which it depends whether its launches continue a
/// conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The `ai_type` that it is for. An agent that got another one meanwhile has no conversation.
    pub ai_type: String,
    /// The entry, its program, its user and its wrapper. Two entries of one preset are two
    /// accounts.
    pub account: String,
    pub model: Option<String>,
    pub reach: Reach,
}

/// The place of the next launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub coordinator: CoordinatorId,
    pub directory: PathBuf,
    pub workspace: Option<WorkspaceId>,
    /// The CLI's file with the conversation was looked for, and is missing or empty.
    pub is_gone: bool,
}

/// The settings about conversations (`continue`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContinueLimits {
    pub enabled: bool,
    pub max_age: Duration,
}

impl Default for ContinueLimits {
    fn default() -> Self {
        Self { enabled: true, max_age: Duration::from_hours(30 * 24) }
    }
}

/// The conversation that the CLI of a launch is to begin or to continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationOrder {
    /// The id by which the CLI knows it. A conversation that begins gets this id.
    pub cli_session: String,
    /// `None` for a conversation that begins.
    pub resumed: Option<Resumed>,
}

/// The interruption after which a conversation goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumed {
    pub cause: Cause,
    /// The time since the conversation was used last.
    pub pause: Duration,
    /// The launch whose output may show a call without a result.
    pub last_launch: Option<LaunchId>,
}

/// Returns the conversation that the next launch continues, which is the newest one of an agent
/// about a task.
///
/// # Errors
/// The first [`FreshReason`] that holds: the launch begins afresh.
pub fn to_continue<'a>(
    newest: Option<&'a Conversation>,
    entry: &Entry,
    place: &Place,
    limits: ContinueLimits,
    now: Timestamp,
) -> Result<&'a Conversation, FreshReason> {
    use FreshReason as F;
    if !limits.enabled || entry.reach == Reach::Nowhere {
        return Err(F::Off);
    }
    let known = newest.ok_or(F::None)?;
    if let Some(why) = known.fresh_because() {
        // Continuing was turned off and is on again, so a conversation begins.
        return Err(if why == F::Off { F::None } else { why });
    }
    let is_elsewhere = known.directory != place.directory;
    let reasons = [
        (known.account != entry.account, F::OtherAccount),
        (known.model != entry.model, F::OtherModel),
        (is_elsewhere && entry.reach == Reach::SameDirectory, F::OtherDirectory),
        (known.coordinator != place.coordinator, F::OtherHost),
        (place.is_gone, F::Gone),
        (known.workspace.is_some() && known.workspace != place.workspace, F::WorkspaceGone),
        (now.since(known.last_used_at) > limits.max_age, F::TooOld),
    ];
    match reasons.into_iter().find(|(holds, _)| *holds) {
        Some((_, why)) => Err(why),
        None => Ok(known),
    }
}

/// Returns the id of the conversation that a launch begins: a UUID, which all CLIs take. It is made
/// from the id of the launch, so that no two launches begin with the same one.
pub fn new_session(launch: &LaunchId) -> String {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&Sha256::digest(launch.as_str().as_bytes())[..16]);
    // The form of a random UUID (RFC 9562, section 5.4).
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let n = u128::from_be_bytes(bytes);
    let part = |from: u32, n_digits: u32| (n >> (4 * from)) & ((1 << (4 * n_digits)) - 1);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        part(24, 8),
        part(20, 4),
        part(16, 4),
        part(12, 4),
        part(0, 12)
    )
}

/// Returns whether the CLI of a continued launch did not accept the conversation: it ended by
/// itself, it never authenticated, and the model answered nothing. A failure of the account or of
/// the configuration says nothing about the conversation.
pub fn is_refused(launch: &Launch, outcome: &Outcome) -> bool {
    let is_config = class_of(launch) == Some(FailureClass::Config);
    is_unhelpful(launch)
        && !is_config
        // claude counts a turn for an answer that it made up.
        && launch.activity.usage.tokens() == 0
        && *outcome == Outcome::NeverAuthenticated
        && launch.stop_reason.is_none()
        && launch.exit.exit_code.is_some()
}

/// Returns whether a continued launch ended before it authenticated, for no reason of its account.
/// The conversation may be the cause: its model takes the task for finished, or the model's service
/// refuses the conversation, which looks like a wrong configuration.
fn is_unhelpful(launch: &Launch) -> bool {
    launch.is_continued()
        && launch.authenticated_at.is_none()
        && matches!(class_of(launch), None | Some(FailureClass::Config | FailureClass::Crash))
}

fn class_of(launch: &Launch) -> Option<FailureClass> {
    launch.activity.failure.map(|failure| failure.class)
}

impl Conversation {
    /// Returns the conversation after a launch in it authenticated.
    pub fn begun(self, launch: &LaunchId, at: Timestamp) -> Self {
        let last_launch = Some(launch.clone());
        Self { has_begun: true, last_launch, n_unhelpful: 0, last_used_at: at, ..self }
    }

    /// Returns the conversation after the end of a launch in it.
    pub fn after_end(self, launch: &Launch, outcome: &Outcome, at: Timestamp) -> Self {
        if is_refused(launch, outcome) {
            return self.closed(FreshReason::Refused, at);
        }
        if launch.authenticated_at.is_some() {
            return Self { last_used_at: at, ..self };
        }
        // A stop by a person and a failed start say nothing about the conversation.
        let is_counted =
            matches!(outcome, Outcome::NeverAuthenticated | Outcome::Lost | Outcome::TimedOut(_));
        if !is_counted || !is_unhelpful(launch) {
            return self;
        }
        let n_unhelpful = self.n_unhelpful.saturating_add(1);
        let counted = Self { n_unhelpful, ..self };
        if n_unhelpful < MAX_UNHELPFUL {
            counted
        } else {
            counted.closed(FreshReason::Unhelpful, at)
        }
    }

    /// Returns the conversation after it was closed. The first reason stays.
    pub fn closed(self, because: FreshReason, at: Timestamp) -> Self {
        Self {
            closed_because: self.closed_because.or(Some(because)),
            closed_at: self.closed_at.or(Some(at)),
            ..self
        }
    }

    pub const fn is_open(&self) -> bool {
        self.closed_because.is_none()
    }

    /// Returns the reason for which the next launch cannot continue it; `None` if that depends on
    /// the place and the configuration of that launch.
    pub fn fresh_because(&self) -> Option<FreshReason> {
        if self.has_begun { self.closed_because } else { Some(FreshReason::None) }
    }

    /// Returns the order for the CLI of a launch in it. `last` is the last launch that
    /// authenticated.
    pub fn order(&self, launch: &Launch, last: Option<&Launch>) -> ConversationOrder {
        let resumed = launch.is_continued().then(|| Resumed {
            cause: Cause::of(last),
            pause: launch.claimed_at.since(self.last_used_at),
            last_launch: self.last_launch.clone(),
        });
        ConversationOrder { cli_session: self.cli_session.clone(), resumed }
    }
}

#[cfg(test)]
mod tests;
