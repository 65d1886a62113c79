//! The unit of management: one agent in one project for one purpose.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::agent::Assignment;
use super::id::{AgentId, ProjectId};
use super::printable::excerpt;

/// The purpose of an agent instance. A chat and a task of one agent live side by side.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    Task,
    Chat,
    // Not an agent, but a command of the operator that checks the work on a task. A documented
    // variant would make the schema a form that some clients do not take.
    Check,
}

impl Purpose {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Chat => "chat",
            Self::Check => "check",
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Purpose {
    type Err = InvalidPurpose;

    fn from_str(text: &str) -> Result<Self, InvalidPurpose> {
        match text {
            "task" => Ok(Self::Task),
            "chat" => Ok(Self::Chat),
            "check" => Ok(Self::Check),
            _ => Err(InvalidPurpose(excerpt(text, 80).into_owned())),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a purpose: expected `task`, `chat` or `check`")]
pub struct InvalidPurpose(String);

/// The key of an instance. At most one instance of each key is alive.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstanceKey {
    #[serde(rename = "agent_id")]
    pub agent: AgentId,
    #[serde(rename = "project_id")]
    pub project: ProjectId,
    pub purpose: Purpose,
}

impl InstanceKey {
    pub fn new(agent: AgentId, project: ProjectId, purpose: Purpose) -> Self {
        Self { agent, project, purpose }
    }

    /// Returns the agent in the project.
    pub fn pair(&self) -> Assignment {
        Assignment { project: self.project.clone(), agent: self.agent.clone() }
    }
}

impl fmt::Display for InstanceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} ({})", self.agent, self.project, self.purpose)
    }
}
