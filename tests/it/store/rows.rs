//! Valid rows for tests, by name.

use std::path::PathBuf;
use std::str::FromStr;

use domain::agent::{AgentStatus, Assignment, ProjectStatus};
use domain::chat::Sender;
use domain::check::CheckResult;
use domain::launch::ReportResult;
use domain::notice::NoticeDemand;
use domain::secret::TokenHash;
use domain::workspace::{WorkspaceMode, WorkspaceOverrides};
use domain::{
    Agent, Check, Comment, Conversation, Execution, InstanceKey, Launch, Message, Notice,
    NoticeAction, Priority, Project, ProjectKey, Purpose, Secret, Session, ShortId, Task,
    TaskStatus, Timestamp, Usage, Workspace,
};

#[track_caller]
pub(super) fn id<T: FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

pub(super) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// The hash of the only token of `name`.
pub(super) fn ticket(name: &str) -> TokenHash {
    Secret::new(name).token_hash()
}

pub(super) fn agent(name: &str) -> Agent {
    Agent {
        id: id(name),
        name: format!("agent {name}"),
        ai_type: "claude".to_owned(),
        system_prompt: "You're \"here\".\n日本".to_owned(),
        passkey: None,
        status: AgentStatus::Active,
        archived_from: None,
        created_at: at(1),
        revision: 0,
    }
}

pub(super) fn project(name: &str) -> Project {
    Project {
        workspace: WorkspaceMode::Shared,
        overrides: WorkspaceOverrides::default(),
        id: id(name),
        name: name.to_owned(),
        key: project_key(name),
        is_key_edited: false,
        working_directory: PathBuf::from("/projects").join(name),
        status: ProjectStatus::Active,
        archived_from: None,
        created_at: at(1),
        revision: 0,
    }
}

/// Returns a key for a project. Different names have different keys.
fn project_key(name: &str) -> ProjectKey {
    format!("P{}", number_of(name)).parse().unwrap()
}

/// Returns a number for a name. Different names have different numbers.
fn number_of(name: &str) -> u32 {
    name.bytes().fold(7, |number, byte| (number * 31 + u32::from(byte)) % 9_999_991)
}

pub(super) fn assignment(project: &str, agent: &str) -> Assignment {
    Assignment { project: id(project), agent: id(agent) }
}

pub(super) fn task(name: &str, project: &str, assignee: Option<&str>) -> Task {
    Task {
        id: id(name),
        short_id: ShortId { key: project_key(project), number: number_of(name) },
        project: id(project),
        parent: None,
        title: name.to_owned(),
        description: String::new(),
        status: TaskStatus::Todo,
        priority: Priority::Medium,
        assignee: assignee.map(id),
        dependencies: Vec::new(),
        blocked_reason: None,
        start_wanted_since: None,
        checking_since: None,
        n_failed_rounds: 0,
        archived_at: None,
        created_at: at(10),
        status_since: at(10),
        revision: 0,
    }
}

pub(super) fn task_key(agent: &str, project: &str) -> InstanceKey {
    InstanceKey::new(id(agent), id(project), Purpose::Task)
}

pub(super) fn launch(name: &str, agent: &str, project: &str) -> Launch {
    launch_of(name, agent, project, Purpose::Task)
}

pub(super) fn launch_of(name: &str, agent: &str, project: &str, purpose: Purpose) -> Launch {
    let key = InstanceKey::new(id(agent), id(project), purpose);
    Launch {
        coordinator: Some(id("crd_1")),
        ticket: Some(ticket(name)),
        ..Launch::claimed(id(name), key, "claude".to_owned(), at(100), at(200))
    }
}

pub(super) fn session(name: &str, launch: &str, agent: &str, project: &str) -> Session {
    Session {
        id: id(name),
        launch: id(launch),
        key: task_key(agent, project),
        token: ticket(name),
        created_at: at(110),
        last_seen_at: at(120),
        ended: None,
        handed_out: 0,
        revision: 0,
    }
}

pub(super) fn execution(name: &str, launch: &str, task: &str) -> Execution {
    Execution {
        id: id(name),
        launch: id(launch),
        task: id(task),
        key: task_key("a", "p"),
        started_at: at(130),
        ended_at: Some(at(140)),
        result: Some(ReportResult::Success),
        summary: Some("done, it's \u{1f980}".to_owned()),
        next_steps: None,
        progress: None,
        findings: None,
        outcome: None,
        usage: Usage::default(),
        failure: None,
        revision: 0,
    }
}

pub(super) fn notice(name: &str, launch: &str) -> Notice {
    Notice {
        id: id(name),
        launch: id(launch),
        task: Some(id("t")),
        action: NoticeAction::Blocked,
        demand: NoticeDemand::End,
        created_at: at(150),
        read_at: None,
        settled_at: None,
        revision: 0,
    }
}

pub(super) fn comment(name: &str, task: &str) -> Comment {
    Comment {
        id: id(name),
        task: id(task),
        author: Some("ann".to_owned()),
        text: "クーポンに注意".to_owned(),
        created_at: at(150),
    }
}

pub(super) fn message(name: &str, agent: &str, project: &str) -> Message {
    Message {
        seq: 0,
        id: id(name),
        agent: id(agent),
        project: id(project),
        sender: Sender::User,
        author: None,
        content: "タスクの進捗を教えてください".to_owned(),
        created_at: at(160),
        is_visible: true,
    }
}

/// Returns a workspace that is to be made.
pub(super) fn workspace(name: &str) -> Workspace {
    Workspace::wanted(id(name), id("p"), id("t"), "agents/p-1".to_owned(), at(1))
}

/// Returns a check that the launch `l1` runs.
pub(super) fn conversation(name: &str) -> Conversation {
    Conversation {
        id: id(name),
        task: id("t"),
        agent: id("a"),
        coordinator: id("crd_1"),
        cli_session: name.to_owned(),
        account: "claude".to_owned(),
        model: Some("opus".to_owned()),
        directory: PathBuf::from("/projects/p"),
        workspace: Some(id("w")),
        has_begun: true,
        last_launch: Some(id("l1")),
        n_unhelpful: 1,
        opened_at: at(7),
        last_used_at: at(8),
        closed_because: None,
        closed_at: None,
        revision: 0,
    }
}

pub(super) fn check(name: &str) -> Check {
    Check {
        id: id(name),
        task: id("t"),
        launch: Some(id("l1")),
        round: 1,
        name: "tests".to_owned(),
        commit: Some("c0ffee".to_owned()),
        result: CheckResult::Failed,
        exit_code: Some(1),
        duration: Some(std::time::Duration::from_millis(1_500)),
        output: "an output".to_owned(),
        started_at: at(7),
        revision: 0,
    }
}
