//! The chat between people and one agent in one project.
//!
//! Messages are in the order of their numbers, which the store gives. Whether a message is unread
//! is decided by its number, never by time.

use std::borrow::Cow;

use super::agent::{AgentStatus, ProjectStatus};
use super::id::{AgentId, MessageId, ProjectId};
use super::key::InstanceKey;
use super::launch::{Launch, LaunchState, Outcome, StopReason, Verdict};
use super::limits;
use super::refusal::Refusal;
use super::session::Session;
use super::start_history::{OpenLaunch, StartFacts, StartHistory, StartLimit};
use super::time::Timestamp;
use super::words::words;

words! {
    /// Who speaks.
    pub enum Sender as "sender" {
        /// This program.
        System = "system",
        /// A person.
        User = "user",
        /// The agent of the chat.
        Agent = "agent",
    }
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The place of the message in the order of all messages; 0 until the store gives it one.
    pub seq: i64,
    pub id: MessageId,
    pub agent: AgentId,
    pub project: ProjectId,
    pub sender: Sender,
    /// The name of the person who wrote it; `None` if no person did, or if it is not known.
    pub author: Option<String>,
    pub content: String,
    pub created_at: Timestamp,
    /// True if the message is shown.
    pub is_visible: bool,
}

impl Message {
    /// Returns the identifier of the sender as clients see it: `user`, `system`, or the id of the
    /// agent.
    pub fn sender_id(&self) -> &str {
        match self.sender {
            Sender::System | Sender::User => self.sender.as_str(),
            Sender::Agent => self.agent.as_str(),
        }
    }

    /// Returns whether the message is in the chat of `key`.
    pub fn is_in(&self, key: &InstanceKey) -> bool {
        self.agent == key.agent && self.project == key.project
    }
}

/// Returns the content of a message in the form that is stored.
///
/// # Errors
/// Returns [`Refusal::Missing`] for an empty message, and the refusals of [`limits`].
pub fn said(content: &str) -> Result<Cow<'_, str>, Refusal> {
    if content.trim().is_empty() {
        let problem = "content is empty: expected a text";
        return Err(Refusal::Missing { text: "content", problem });
    }
    limits::CONTENT.take(content)
}

/// Returns how many of these texts fit into `budget` bytes together. If there are any texts, at
/// least one is counted.
pub fn n_fitting<'a>(contents: impl IntoIterator<Item = &'a str>, budget: usize) -> usize {
    let mut left = budget;
    let fits = |(n, content): &(usize, &str)| {
        let is_fitting = *n == 0 || content.len() <= left;
        left = left.saturating_sub(content.len());
        is_fitting
    };
    contents.into_iter().enumerate().take_while(fits).count()
}

/// Returns the last of these messages, in their order, that fit into `budget` bytes together. There
/// are none if the last message does not fit by itself.
pub fn newest_fitting(mut messages: Vec<Message>, budget: usize) -> Vec<Message> {
    let contents = messages.iter().rev().map(|message| message.content.as_str());
    let n_fitting = contents
        .clone()
        .next()
        .filter(|content| content.len() <= budget)
        .map_or(0, |_| n_fitting(contents, budget));
    messages.split_off(messages.len() - n_fitting)
}

/// Returns whether an answer is the last answer of the agent once more. It is if `last` has the
/// same content and is from this session, and if the agent has answered all messages that it was
/// given.
pub fn is_repeated(
    last: &Message,
    content: &str,
    session: &Session,
    record: &StartHistory,
) -> bool {
    last.content == content
        && last.created_at >= session.created_at
        && record.read_up_to >= session.handed_out
}

/// Returns whether an agent has a session in the chat and is not about to leave.
pub fn listens(facts: &StartFacts) -> bool {
    facts.open.as_ref().is_some_and(|open| matches!(open.state, LaunchState::Running { .. }))
}

/// Returns whether an agent listens in the chat or is about to.
pub fn is_open(facts: &StartFacts) -> bool {
    let is_starting = |open: &OpenLaunch| matches!(open.state, LaunchState::Starting { .. });
    listens(facts) || facts.open.as_ref().is_some_and(is_starting)
}

/// Checks whether people may write in a chat.
///
/// # Errors
/// Returns `AgentNotFound`, `ProjectNotFound`, `NotAssigned` or `Inactive`.
pub fn check_may_chat(facts: &StartFacts) -> Result<(), Refusal> {
    let InstanceKey { agent, project, .. } = &facts.key;
    match (&facts.agent, &facts.project) {
        (None, _) => Err(Refusal::AgentNotFound { agent: agent.clone() }),
        (_, None) => Err(Refusal::ProjectNotFound { project: project.clone() }),
        _ if !facts.is_assigned => {
            Err(Refusal::NotAssigned { agent: agent.clone(), project: project.clone() })
        }
        (Some((AgentStatus::Active, _)), Some((ProjectStatus::Active, _))) => Ok(()),
        _ => Err(Refusal::Inactive),
    }
}

/// Returns the record of a chat after its launch ended. If the agent leaves messages unanswered, it
/// is wanted again. Its pause grows each time that this happens in a row. If people ended the chat,
/// the agent is not wanted again. An agent that answered everything may end as it likes.
pub fn after_end(
    record: StartHistory,
    launch: &Launch,
    outcome: &Outcome,
    newest_unread: Option<i64>,
    at: Timestamp,
    limit: StartLimit,
) -> StartHistory {
    let leaves_messages = newest_unread.is_some();
    let verdict = match outcome {
        Outcome::Stopped(_) => Verdict::Fine,
        _ if launch.stop_reason == Some(StopReason::ChatEnded) => Verdict::Fine,
        _ if leaves_messages || launch.authenticated_at.is_none() => launch.failed_verdict(outcome),
        _ => Verdict::Fine,
    };
    let record = record.after_end(verdict, launch.claimed_at, at, limit);
    if leaves_messages && !launch.is_chat_over { record.wanted(at) } else { record }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::account::Account;
    use crate::key::Purpose;
    use crate::secret::Secret;
    use crate::start_history::Backoff;
    use crate::workspace::WorkspaceMode;

    const LIMIT: StartLimit =
        StartLimit { failures: 5, interval: std::time::Duration::from_mins(10) };

    fn record() -> StartHistory {
        StartHistory::new(InstanceKey::new(
            "agt".parse().unwrap(),
            "prj".parse().unwrap(),
            Purpose::Chat,
        ))
    }

    /// Checks whether the chat is wanted again, and the number of its failures.
    #[track_caller]
    fn check_end(
        stop_reason: Option<StopReason>,
        outcome: &Outcome,
        unread: Option<i64>,
        expected: (bool, u32),
    ) {
        let now = Timestamp::from_millis(100);
        let claim = Launch::claimed("lch".parse().unwrap(), record().key, String::new(), now, now);
        let is_chat_over = stop_reason == Some(StopReason::ChatEnded);
        let launch = Launch { stop_reason, is_chat_over, authenticated_at: Some(now), ..claim };
        let after = |launch: &Launch| after_end(record(), launch, outcome, unread, now, LIMIT);
        let left = after(&launch);
        assert_eq!(
            (left.wanted_since.is_some(), left.n_failures),
            expected,
            "{stop_reason:?} {outcome} {unread:?}"
        );
        // If people ended the chat meanwhile, its agent is not wanted again, and the failure counts
        // the same.
        let over = after(&Launch { is_chat_over: true, ..launch });
        assert_eq!(
            (over.wanted_since, over.n_failures),
            (None, expected.1),
            "{stop_reason:?} {outcome} {unread:?}"
        );
    }

    #[test]
    fn who_leaves_messages_behind_is_wanted_again_and_waits() {
        let idle = Some(StopReason::ChatIdle);
        let out = Some(StopReason::LoggedOut);
        check_end(None, &Outcome::ExitedWithoutReport, Some(3), (true, 1));
        check_end(None, &Outcome::Lost, Some(3), (true, 1));
        check_end(out, &Outcome::Completed, Some(3), (true, 1));
        check_end(idle, &Outcome::Completed, Some(3), (true, 1));
        for reason in [StopReason::Shutdown, StopReason::Person] {
            check_end(Some(reason), &Outcome::Stopped(reason), Some(3), (true, 0));
        }
        check_end(Some(StopReason::ChatEnded), &Outcome::Completed, Some(3), (false, 0));
    }

    #[test]
    fn who_answered_everything_may_go_as_it_likes() {
        for outcome in [Outcome::ExitedWithoutReport, Outcome::Completed, Outcome::Lost] {
            check_end(None, &outcome, None, (false, 0));
        }
    }

    #[test]
    fn who_never_came_is_a_failure_and_is_wanted_as_before() {
        let now = Timestamp::from_millis(100);
        let launch = Launch::claimed("lch".parse().unwrap(), record().key, String::new(), now, now);
        let after = after_end(record().wanted(now), &launch, &Outcome::Lost, None, now, LIMIT);
        assert_eq!((after.wanted_since, after.n_failures), (Some(now), 1));
    }

    #[test]
    fn a_message_has_something_to_say_and_not_too_much() {
        let at_most = "x".repeat(limits::CONTENT.most());
        assert_eq!(said(&at_most).as_deref(), Ok(at_most.as_str()));
        for content in ["", " \n\t", &format!("{at_most}x")] {
            assert!(said(content).is_err(), "{} bytes", content.len());
        }
    }

    #[test]
    fn as_much_is_given_as_fits() {
        assert_eq!(n_fitting([], 10), 0);
        assert_eq!(n_fitting(["a text that is too long"], 10), 1);
        assert_eq!(n_fitting(["12345", "12345", "1"], 10), 2);
        assert_eq!(n_fitting(["12345", "123456", "1"], 10), 1);
    }

    fn message(content: &str, at: Timestamp) -> Message {
        Message {
            seq: 1,
            id: "msg".parse().unwrap(),
            agent: "agt".parse().unwrap(),
            project: "prj".parse().unwrap(),
            sender: Sender::Agent,
            author: None,
            content: content.to_owned(),
            created_at: at,
            is_visible: true,
        }
    }

    #[test]
    fn the_context_is_what_was_said_last() {
        let fitting = |contents: &[&str]| -> Vec<String> {
            let messages = contents.iter().map(|text| message(text, Timestamp::from_millis(0)));
            let newest = newest_fitting(messages.collect(), 10);
            newest.into_iter().map(|message| message.content).collect()
        };
        assert_eq!(fitting(&["1", "12345", "12345"]), ["12345", "12345"]);
        assert_eq!(fitting(&["1", "123456", "12345"]), ["12345"]);
        assert_eq!(fitting(&["1", "a text that is too long"]), [""; 0]);
        assert_eq!(fitting(&[]), [""; 0]);
    }

    #[test]
    fn an_answer_is_a_repetition_if_nothing_was_handed_out_since() {
        let at = Timestamp::from_millis;
        let session = Session {
            id: "ses".parse().unwrap(),
            launch: "lch".parse().unwrap(),
            key: record().key,
            token: Secret::new("token").token_hash(),
            created_at: at(10),
            last_seen_at: at(10),
            ended: None,
            handed_out: 5,
            revision: 1,
        };
        let answered = record().answered(5);
        assert!(is_repeated(&message("yes", at(11)), "yes", &session, &answered));
        assert!(!is_repeated(&message("yes", at(11)), "no", &session, &answered));
        assert!(!is_repeated(&message("yes", at(9)), "yes", &session, &answered));
        assert!(!is_repeated(&message("yes", at(11)), "yes", &session, &record().answered(4)));
    }

    fn facts() -> StartFacts {
        StartFacts {
            workspace_mode: WorkspaceMode::Shared,
            clone: None,
            key: record().key,
            agent: Some((AgentStatus::Active, "claude".to_owned())),
            project: Some((ProjectStatus::Active, PathBuf::from("dir"))),
            is_assigned: true,
            waiting_since: None,
            task: None,
            open: None,
            record: record(),
            account: Account::new("claude".to_owned()),
            is_paused: false,
        }
    }

    #[test]
    fn an_agent_listens_while_it_has_a_session_and_its_chat_is_open_before_that() {
        let now = Timestamp::from_millis(0);
        let with = |state| {
            let open = OpenLaunch { id: "lch".parse().unwrap(), state };
            let facts = StartFacts { open: Some(open), ..facts() };
            (listens(&facts), is_open(&facts))
        };
        assert_eq!((listens(&facts()), is_open(&facts())), (false, false));
        assert_eq!(with(LaunchState::Starting { deadline: now }), (false, true));
        assert_eq!(with(LaunchState::Running { session: "ses".parse().unwrap() }), (true, true));
        let stopping = LaunchState::Stopping { reason: StopReason::LoggedOut, stop_at: now };
        assert_eq!(with(stopping), (false, false));
        assert_eq!(with(LaunchState::Ending), (false, false));
    }

    /// The reason that keeps the agent from starting says the same as the refusal.
    #[test]
    fn people_may_write_to_an_active_agent_of_an_active_project() {
        let check = |facts: StartFacts, expected: Option<&str>| {
            let refusal = check_may_chat(&facts).err();
            assert_eq!(refusal.as_ref().map(Refusal::code), expected, "{facts:?}");
            let backoff = Backoff { initial: LIMIT.interval, max: LIMIT.interval };
            let reason = facts.reason(backoff, Timestamp::from_millis(0));
            assert_eq!(reason.row().refuses_messages, refusal.is_some(), "{facts:?}");
        };
        let claude = || "claude".to_owned();
        check(facts(), None);
        check(StartFacts { agent: None, ..facts() }, Some("agent_not_found"));
        check(StartFacts { project: None, ..facts() }, Some("project_not_found"));
        check(StartFacts { is_assigned: false, ..facts() }, Some("not_assigned"));
        let agent = Some((AgentStatus::Inactive, claude()));
        check(StartFacts { agent, ..facts() }, Some("inactive"));
        let project = Some((ProjectStatus::Archived, PathBuf::from("dir")));
        check(StartFacts { project, ..facts() }, Some("inactive"));
    }
}
