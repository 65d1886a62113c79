//! The file of `export` and `import`: JSON lines with projects, agents, tasks with their
//! comments, and chats.
//!
//! The first line is the [`Header`], the last one counts the objects ([`Line::End`]), so that a
//! file that was cut off is noticed. The objects between them may come in any order. A file
//! contains no passkey, token or hash. [`read`] reads it, and [`check`] has the rules for its
//! tasks.

pub mod check;
pub mod lines;
pub mod problems;
pub mod read;

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::agent::{AgentStatus, ProjectStatus};
use super::chat::Sender;
use super::id::{AgentId, CommentId, MessageId, ProjectId, TaskId};
use super::short_id::ProjectKey;
use super::time::Timestamp;
use super::workspace::WorkspaceMode;
use super::{Agent, Comment, Message, Project, Task};

/// The name of the format, in the header.
pub const FORMAT: &str = "agent-coordinator-export";
/// The version of the format that this program writes and reads.
pub const VERSION: u32 = 1;
/// The longest line that is read, in bytes. No object of this program comes near it.
pub const MAX_LINE: usize = 4 << 20;
/// The longest file that is imported at once, in bytes. The server holds its objects in memory.
pub const MAX_FILE: usize = 128 << 20;
/// The greatest number of a short id that is imported. Enough numbers are left after it.
pub const MAX_NUMBER: u32 = 1_000_000_000;

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Line {
    Header(Header),
    Agent(AgentLine),
    Project(ProjectLine),
    Task(Task),
    Comment(CommentLine),
    Message(MessageLine),
    /// The numbers of the objects before it.
    End(Counts),
}

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    pub format: String,
    pub version: u32,
    /// The version of the program that wrote the file.
    pub program: String,
    pub exported_at: Timestamp,
    /// The selected projects; absent if all were exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub projects: Option<Vec<ProjectId>>,
}

/// An agent without its passkey.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentLine {
    pub id: AgentId,
    pub name: String,
    pub ai_type: String,
    pub system_prompt: String,
    pub status: AgentStatus,
    /// The status before it was archived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived_from: Option<AgentStatus>,
    pub created_at: Timestamp,
}

/// A project with its agents and its keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProjectLine {
    pub id: ProjectId,
    pub name: String,
    pub key: ProjectKey,
    /// The keys that it had before. They lead to the same tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_keys: Vec<ProjectKey>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_key_edited: bool,
    /// The number of its next task.
    pub next_number: u32,
    pub working_directory: PathBuf,
    pub status: ProjectStatus,
    /// The status before it was archived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived_from: Option<ProjectStatus>,
    pub workspace: WorkspaceMode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_base: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_branch: Option<String>,
    /// True if merges run no hooks of its repository.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skips_merge_hooks: bool,
    pub created_at: Timestamp,
    pub agents: Vec<AgentId>,
}

/// A comment of a person on a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommentLine {
    pub id: CommentId,
    pub task: TaskId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    pub text: String,
    pub created_at: Timestamp,
}

/// A message of the chat with an agent in a project. Messages of a chat are in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageLine {
    pub id: MessageId,
    pub project: ProjectId,
    pub agent: AgentId,
    pub sender: Sender,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    pub content: String,
    pub created_at: Timestamp,
    /// True if people do not see it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_hidden: bool,
    /// True if the agent has not answered it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unread: bool,
}

/// Numbers of objects.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    pub agents: u64,
    pub projects: u64,
    pub tasks: u64,
    #[serde(default)]
    pub comments: u64,
    pub messages: u64,
}

impl Header {
    /// Returns the header of a file that is written at `now`.
    pub fn new(projects: Option<Vec<ProjectId>>, now: Timestamp) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            exported_at: now,
            projects,
        }
    }
}

impl Line {
    /// Returns the line with its line feed.
    pub fn to_text(&self) -> String {
        let mut text = serde_json::to_string(self).expect("texts and numbers are JSON");
        text.push('\n');
        text
    }
}

impl Counts {
    /// Counts the object of a line. The header and the end are not objects.
    pub const fn count(&mut self, line: &Line) {
        match line {
            Line::Header(_) | Line::End(_) => {}
            Line::Agent(_) => self.agents += 1,
            Line::Project(_) => self.projects += 1,
            Line::Task(_) => self.tasks += 1,
            Line::Comment(_) => self.comments += 1,
            Line::Message(_) => self.messages += 1,
        }
    }

    /// Returns the number of all objects.
    pub const fn total(self) -> u64 {
        self.agents + self.projects + self.tasks + self.comments + self.messages
    }
}

impl fmt::Display for Counts {
    /// Writes the numbers in words: `1 project, 2 agents, 0 tasks, 0 comments, 4 messages`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { agents, projects, tasks, comments, messages } = *self;
        let parts = [
            (projects, "project"),
            (agents, "agent"),
            (tasks, "task"),
            (comments, "comment"),
            (messages, "message"),
        ];
        for (index, (n, one)) in parts.into_iter().enumerate() {
            let before = if index == 0 { "" } else { ", " };
            write!(f, "{before}{n} {one}{}", if n == 1 { "" } else { "s" })?;
        }
        Ok(())
    }
}

impl From<Agent> for AgentLine {
    fn from(agent: Agent) -> Self {
        let Agent { id, name, ai_type, system_prompt, status, archived_from, created_at, .. } =
            agent;
        Self { id, name, ai_type, system_prompt, status, archived_from, created_at }
    }
}

impl ProjectLine {
    /// Returns the line of a project. `former_keys` are those that it had before its key.
    pub fn of(
        project: Project,
        former_keys: Vec<ProjectKey>,
        next_number: u32,
        agents: Vec<AgentId>,
    ) -> Self {
        Self {
            id: project.id,
            name: project.name,
            key: project.key,
            former_keys,
            is_key_edited: project.is_key_edited,
            next_number,
            working_directory: project.working_directory,
            status: project.status,
            archived_from: project.archived_from,
            workspace: project.workspace,
            workspace_base: project.overrides.base,
            workspace_branch: project.overrides.branch,
            skips_merge_hooks: project.overrides.skips_merge_hooks,
            created_at: project.created_at,
            agents,
        }
    }
}

impl From<Comment> for CommentLine {
    fn from(comment: Comment) -> Self {
        let Comment { id, task, author, text, created_at } = comment;
        Self { id, task, author, text, created_at }
    }
}

impl MessageLine {
    /// Returns the line of a message. Its agent has answered the messages up to `read_up_to`.
    pub fn of(message: Message, read_up_to: i64) -> Self {
        Self {
            is_unread: message.sender == Sender::User && message.seq > read_up_to,
            id: message.id,
            project: message.project,
            agent: message.agent,
            sender: message.sender,
            author: message.author,
            content: message.content,
            created_at: message.created_at,
            is_hidden: !message.is_visible,
        }
    }
}
