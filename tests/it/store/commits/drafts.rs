//! Commits made up at random: few names, so that they meet, and any values that a column can hold.

use agent_coordinator::domain::account::{Parked, Probe};
use agent_coordinator::domain::agent::{AgentStatus, ProjectStatus};
use agent_coordinator::domain::chat::Sender;
use agent_coordinator::domain::credential::{CredentialKind, Role};
use agent_coordinator::domain::event::NewEvent;
use agent_coordinator::domain::forge::labels::LabelState;
use agent_coordinator::domain::forge::{
    ForgeItem, ForgeKind, ItemEnd, ItemKey, ItemKind, ItemState, Owed, Place, Standing, StopCause,
};
use agent_coordinator::domain::launch::{ExitStatus, Outcome, ReportResult, StopReason, TimeLimit};
use agent_coordinator::domain::notice::NoticeDemand;
use agent_coordinator::domain::secret::PasskeyHash;
use agent_coordinator::domain::session::SessionEndReason;
use agent_coordinator::domain::{
    Account, Activity, Agent, Assignment, Credential, Execution, Failure, FailureClass,
    InstanceKey, Launch, LaunchState, Message, Notice, NoticeAction, PairRecord, Priority, Project,
    Purpose, Secret, Session, Task, TaskStatus, Timestamp, Usage,
};
use agent_coordinator::store::Change;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::store::rows::{
    agent, assignment, at, execution, id, launch_of, message, notice, project, session, task,
    ticket,
};

// Few names, so that commits meet.
pub const AGENTS: [&str; 3] = ["a", "b", "B"];
pub const PROJECTS: [&str; 2] = ["p", "q"];
pub const TASKS: [&str; 3] = ["t", "u", "v"];
pub const LAUNCHES: [&str; 4] = ["l1", "l2", "l3", "l4"];
pub const SESSIONS: [&str; 3] = ["s", "s2", "s3"];
pub const EXECUTIONS: [&str; 2] = ["e", "f"];
pub const NOTICES: [&str; 2] = ["n", "o"];
pub const CREDENTIALS: [&str; 2] = ["c", "d"];
const ITEMS: [&str; 3] = ["i", "j", "k"];
pub const MESSAGES: [&str; 3] = ["m1", "m2", "m3"];
/// What agents are started with; nobody with the second one.
pub const AI_TYPES: [&str; 2] = ["claude", "codex"];
pub const PURPOSES: [Purpose; 2] = [Purpose::Task, Purpose::Chat];
const STOP_REASONS: [StopReason; 19] = [
    StopReason::Reported,
    StopReason::LoggedOut,
    StopReason::Person,
    StopReason::StopAll,
    StopReason::Shutdown,
    StopReason::NoticeIgnored,
    StopReason::Noticed,
    StopReason::ChatEnded,
    StopReason::ChatIdle,
    StopReason::StartTimeout,
    StopReason::SessionMaximum,
    StopReason::RunMaximum,
    StopReason::Silence,
    StopReason::Unassigned,
    StopReason::Closed,
    StopReason::Gone,
    StopReason::Moved,
    StopReason::Paused,
    StopReason::Unknown,
];
const REPORTS: [ReportResult; 3] =
    [ReportResult::Success, ReportResult::Failed, ReportResult::Blocked];

fn time() -> impl Strategy<Value = Timestamp> {
    (0_i64..6).prop_map(at)
}

fn text() -> impl Strategy<Value = String> {
    "[a'\"%;\n\\\\é日]{0,6}"
}

fn key() -> impl Strategy<Value = InstanceKey> {
    (select(&AGENTS), select(&PROJECTS), select(&PURPOSES))
        .prop_map(|(agent, project, purpose)| InstanceKey::new(id(agent), id(project), purpose))
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        select(vec![
            Outcome::Completed,
            Outcome::Blocked,
            Outcome::Failed,
            Outcome::ExitedWithoutReport,
            Outcome::NeverAuthenticated,
            Outcome::TimedOut(TimeLimit::SessionIdle),
            Outcome::TimedOut(TimeLimit::SessionMaximum),
            Outcome::Lost,
        ]),
        select(&STOP_REASONS).prop_map(Outcome::Stopped),
        text().prop_map(Outcome::StartFailed),
    ]
}

fn state() -> impl Strategy<Value = LaunchState> {
    prop_oneof![
        time().prop_map(|deadline| LaunchState::Starting { deadline }),
        select(&SESSIONS).prop_map(|session| LaunchState::Running { session: id(session) }),
        (select(&STOP_REASONS), time())
            .prop_map(|(reason, ladder_at)| LaunchState::Stopping { reason, ladder_at }),
        Just(LaunchState::Ending),
        (outcome(), time()).prop_map(|(outcome, at)| LaunchState::Ended { outcome, at }),
    ]
}

/// How the revision of a change relates to the one that is stored.
#[derive(Debug, Clone, Copy)]
pub enum Basis {
    Newest,
    None,
    Older,
}

fn basis() -> impl Strategy<Value = Basis> {
    prop_oneof![8 => Just(Basis::Newest), 1 => Just(Basis::None), 1 => Just(Basis::Older)]
}

impl Basis {
    pub fn revision(self, stored: Option<i64>) -> i64 {
        match self {
            Self::Newest => stored.unwrap_or(0),
            Self::None => 0,
            Self::Older => stored.unwrap_or(0) - 1,
        }
    }
}

fn agent_row() -> impl Strategy<Value = Agent> {
    (select(&AGENTS), text(), any::<bool>(), select(AgentStatus::ALL)).prop_map(
        |(name, text, has_passkey, status)| {
            let passkey =
                has_passkey.then(|| PasskeyHash::new(&Secret::new(text.as_str()), [1; 16]));
            Agent { name: text, passkey, status, ..agent(name) }
        },
    )
}

fn project_row() -> impl Strategy<Value = Project> {
    let status = prop_oneof![4 => Just(ProjectStatus::Active), 1 => select(ProjectStatus::ALL)];
    (select(&PROJECTS), text(), status).prop_map(|(name, text, status)| Project {
        working_directory: text.into(),
        status,
        ..project(name)
    })
}

fn task_row() -> impl Strategy<Value = Task> {
    let names = (
        select(&TASKS),
        select(&PROJECTS),
        option::of(select(&AGENTS)),
        option::of(select(&TASKS)),
    );
    let status = prop_oneof![Just(TaskStatus::InProgress), select(TaskStatus::ALL)];
    let rest = (
        status,
        select(Priority::ALL),
        vec(select(&TASKS), 0..3),
        option::of(text()),
        time(),
        time(),
    );
    (names, rest).prop_map(|((name, project, assignee, parent), rest)| {
        let (status, priority, dependencies, blocked_reason, created_at, status_since) = rest;
        Task {
            parent: parent.map(id),
            status,
            priority,
            dependencies: dependencies.into_iter().map(id).collect(),
            blocked_reason,
            created_at,
            status_since,
            ..task(name, project, assignee)
        }
    })
}

fn launch_row() -> impl Strategy<Value = Launch> {
    let when = (time(), option::of(time()), option::of(time()));
    let process = (option::of(1_i32..), option::of(any::<i32>()), option::of(1_i32..64));
    let rest = (
        option::of(select(&TASKS)),
        option::of(select(&REPORTS)),
        option::of(select(&STOP_REASONS)),
        any::<u32>(),
    );
    (select(&LAUNCHES), key(), state(), when, process, rest, any::<[bool; 2]>(), activity())
        .prop_map(|(name, key, state, when, process, rest, [is_kept, is_chat_over], activity)| {
            let plain = launch_of(name, "a", "p", Purpose::Task);
            Launch {
                key,
                state,
                coordinator: plain.coordinator.filter(|_| is_kept),
                ticket: plain.ticket.filter(|_| is_kept),
                claimed_at: when.0,
                started_at: when.1,
                authenticated_at: when.2,
                pid: process.0,
                exit: ExitStatus { exit_code: process.1, signal: process.2 },
                task: rest.0.map(id),
                report: rest.1,
                stop_reason: rest.2,
                is_chat_over,
                activity,
                n_notices: rest.3,
                ..launch_of(name, "a", "p", Purpose::Task)
            }
        })
}

/// What a column can hold of it.
fn activity() -> impl Strategy<Value = Activity> {
    let numbers = proptest::array::uniform6(0..=i64::MAX.unsigned_abs());
    let failure = (select(FailureClass::ALL), option::of(time()));
    (numbers, option::of(text()), option::of(failure)).prop_map(|(numbers, progress, failure)| {
        let [
            input_tokens,
            output_tokens,
            cache_read_tokens,
            cache_write_tokens,
            cost_usd_micros,
            turns,
        ] = numbers;
        Activity {
            usage: Usage {
                input_tokens,
                output_tokens,
                cache_read_tokens,
                cache_write_tokens,
                cost_usd_micros,
                turns,
            },
            progress,
            failure: failure.map(|(class, resets_at)| Failure { class, resets_at }),
        }
    })
}

fn session_row() -> impl Strategy<Value = Session> {
    let ended = option::of((time(), select(SessionEndReason::ALL)));
    (select(&SESSIONS), select(&LAUNCHES), select(&SESSIONS), time(), ended, key(), 0_i64..9)
        .prop_map(|(name, launch, token, created_at, ended, key, handed_out)| Session {
            handed_out,
            key,
            token: ticket(token),
            created_at,
            ended,
            ..session(name, launch, "a", "p")
        })
}

fn execution_row() -> impl Strategy<Value = Execution> {
    let texts = (option::of(text()), option::of(text()), option::of(text()));
    let ended = (option::of(time()), option::of(select(&REPORTS)), option::of(outcome()), texts);
    (select(&EXECUTIONS), select(&LAUNCHES), select(&TASKS), time(), ended, activity()).prop_map(
        |(name, launch, task, started_at, (ended_at, result, outcome, texts), activity)| {
            Execution {
                usage: activity.usage,
                failure: activity.failure,
                started_at,
                ended_at,
                result,
                outcome,
                next_steps: texts.0,
                progress: texts.1,
                findings: texts.2,
                ..execution(name, launch, task)
            }
        },
    )
}

fn pair_row() -> impl Strategy<Value = PairRecord> {
    let chat = (option::of(time()), 0_i64..9);
    let failures = (vec(time(), 0..3), option::of(time()));
    (key(), option::of(time()), any::<u32>(), option::of(time()), chat, failures).prop_map(
        |(key, held_since, n_failures, last_end_at, (wanted_since, read_up_to), failures)| {
            PairRecord {
                failed_at: failures.0,
                is_misconfigured: failures.1.is_some() && n_failures % 2 == 0,
                suspended_since: failures.1,
                wanted_since,
                read_up_to,
                held_since,
                n_failures,
                last_end_at,
                ..PairRecord::new(key)
            }
        },
    )
}

fn account_row() -> impl Strategy<Value = Account> {
    let probe = option::of(
        (select(&LAUNCHES), time()).prop_map(|(launch, at)| Probe { launch: id(launch), at }),
    );
    let parked = (select(FailureClass::ALL), time(), time(), any::<u32>(), probe).prop_map(
        |(class, since, until, n_failures, probe)| Parked {
            class,
            since,
            until,
            n_failures,
            probe,
        },
    );
    (select(&AI_TYPES), option::of(parked))
        .prop_map(|(ai_type, parked)| Account { parked, ..Account::new(ai_type.to_owned()) })
}

fn credential_row() -> impl Strategy<Value = Credential> {
    let words = (select(CredentialKind::ALL), select(Role::ALL), text(), select(&CREDENTIALS));
    let times = (time(), option::of(time()), option::of(time()), option::of(time()));
    (select(&CREDENTIALS), words, times).prop_map(|(name, words, times)| Credential {
        id: id(name),
        kind: words.0,
        role: words.1,
        name: words.2,
        secret: ticket(words.3),
        created_at: times.0,
        expires_at: times.1,
        last_used_at: times.2,
        revoked_at: times.3,
        revision: 0,
    })
}

pub fn item_key(number: u64) -> ItemKey {
    let (host, repository) = ("forge.example".to_owned(), "a/b".to_owned());
    ItemKey { forge: ForgeKind::GitLab, host, repository, kind: ItemKind::MergeRequest, number }
}

fn item_row() -> impl Strategy<Value = ForgeItem> {
    let ended = |end| (ItemState::Ended(end), Some(at(7)));
    let states = vec![
        (ItemState::Claiming { after_comment: Some(3) }, None),
        (ItemState::Active(Standing::Failed), None),
        (ItemState::Stopping(StopCause::Gone), None),
        (ItemState::Paused { since: at(5) }, None),
        ended(ItemEnd::Done),
        ended(ItemEnd::Stopped(StopCause::Unassigned)),
    ];
    let owed = vec![
        Owed::Claim,
        Owed::Label { state: LabelState::Paused },
        Owed::Comment { number: 2, text: "it's \u{1f980}".to_owned() },
        Owed::Folder { place: Place::Completed },
    ];
    let rest = (subsequence(owed, 0..=4), option::of(time()), any::<(u32, bool)>());
    (select(&ITEMS), select(&TASKS), 1_u64..3, select(states), time(), rest).prop_map(
        |(name, task, number, (state, ended_at), created_at, (owed, retry_at, (n, is_missing)))| {
            ForgeItem {
                id: id(name),
                key: item_key(number),
                agent: id("a"),
                project: id("p"),
                task: id(task),
                title: "日本".to_owned(),
                url: String::new(),
                state,
                owed,
                n_attempts: n,
                n_refusals: n / 2,
                retry_at,
                last_error: retry_at.map(|at| at.to_string()),
                n_comments: n,
                is_missing,
                n_resumed: n,
                created_at,
                ended_at,
                revision: 0,
            }
        },
    )
}

fn notice_row() -> impl Strategy<Value = Notice> {
    let times = (time(), option::of(time()), option::of(time()));
    let words = (select(NoticeAction::ALL), select(NoticeDemand::ALL), option::of(select(&TASKS)));
    (select(&NOTICES), select(&LAUNCHES), times, words).prop_map(|(name, launch, times, words)| {
        Notice {
            task: words.2.map(id),
            action: words.0,
            demand: words.1,
            created_at: times.0,
            read_at: times.1,
            settled_at: times.2,
            ..notice(name, launch)
        }
    })
}

fn message_row() -> impl Strategy<Value = Message> {
    let words = (select(Sender::ALL), text(), any::<bool>());
    (select(&MESSAGES), select(&AGENTS), select(&PROJECTS), words).prop_map(
        |(name, agent, project, words)| Message {
            sender: words.0,
            content: words.1,
            is_visible: words.2,
            ..message(name, agent, project)
        },
    )
}

fn event() -> impl Strategy<Value = NewEvent> {
    (time(), option::of(select(&AGENTS)), option::of(select(&TASKS)), option::of(text())).prop_map(
        |(at, agent, task, detail)| NewEvent {
            at,
            kind: "thing.happened",
            agent: agent.map(id),
            project: None,
            launch: None,
            task: task.map(id),
            detail,
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    let assigned = (select(&PROJECTS), select(&AGENTS))
        .prop_map(|(project, agent)| assignment(project, agent));
    prop_oneof![
        1 => select(&LAUNCHES).prop_map(|launch| Change::ForgetLaunch(id(launch))),
        1 => (0i64..9).prop_map(Change::ForgetEvents),
        1 => (select(&AGENTS), select(&PROJECTS), 0i64..6).prop_map(|(agent, project, up_to)| {
            Change::ForgetMessages(Assignment { project: id(project), agent: id(agent) }, up_to)
        }),
        2 => agent_row().prop_map(Change::Agent),
        2 => project_row().prop_map(Change::Project),
        3 => assigned.clone().prop_map(Change::Assign),
        1 => assigned.prop_map(Change::Unassign),
        4 => task_row().prop_map(Change::Task),
        5 => launch_row().prop_map(Change::Launch),
        2 => session_row().prop_map(Change::Session),
        2 => execution_row().prop_map(Change::Execution),
        2 => pair_row().prop_map(Change::Pair),
        2 => account_row().prop_map(Change::Account),
        2 => credential_row().prop_map(Change::Credential),
        1 => select(&CREDENTIALS).prop_map(|name| Change::ForgetCredential(id(name))),
        3 => item_row().prop_map(Change::ForgeItem),
        1 => select(&ITEMS).prop_map(|name| Change::ForgetItem(id(name))),
        2 => notice_row().prop_map(Change::Notice),
        3 => message_row().prop_map(Change::Message),
        1 => (select(&LAUNCHES), "[a-z]{0,3}").prop_map(|(name, tail)| Change::OutputTail(id(name), tail)),
        1 => option::of(time()).prop_map(Change::Pause),
        1 => event().prop_map(Change::Event),
    ]
}

#[derive(Debug, Clone)]
pub enum Condition {
    NoOpenLaunch(InstanceKey),
    Task(&'static str, Basis),
    Launch(&'static str, Basis),
    Pair(InstanceKey, Basis),
    NoMessageAfter(InstanceKey, i64),
    NotPaused,
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        key().prop_map(Condition::NoOpenLaunch),
        (select(&TASKS), basis()).prop_map(|(name, basis)| Condition::Task(name, basis)),
        (select(&LAUNCHES), basis()).prop_map(|(name, basis)| Condition::Launch(name, basis)),
        (key(), basis()).prop_map(|(key, basis)| Condition::Pair(key, basis)),
        (key(), 0..4i64).prop_map(|(key, seq)| Condition::NoMessageAfter(key, seq)),
        Just(Condition::NotPaused),
    ]
}

pub type Draft = (Vec<Condition>, Vec<(Change, Basis)>);

pub fn draft() -> impl Strategy<Value = Draft> {
    (vec(condition(), 0..2), vec((change(), basis()), 1..4))
}
