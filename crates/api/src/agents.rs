//! `/agents`.

use serde::{Deserialize, Serialize};

use domain::agent::AgentStatus;
use domain::{Agent, AgentId, Timestamp, limits};

/// An agent as it is shown. Its passkey never is.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentBody {
    pub id: AgentId,
    pub name: String,
    pub ai_type: String,
    pub system_prompt: String,
    pub has_passkey: bool,
    pub status: AgentStatus,
    pub created_at: Timestamp,
    /// The passkey. Only the answer to the request that made it has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passkey: Option<String>,
    /// `false` in the answer to a repeated request with `generatePasskey`: only the first answer
    /// had the passkey.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passkey_shown: Option<bool>,
    /// The command that makes a new passkey, beside `passkeyShown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_passkey_command: Option<String>,
}

/// The fields of a new or changed agent. A missing field stays, or has its default.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentRequest {
    /// The id of a new agent. The server generates one if it is missing. With an id, the request
    /// can be repeated: the answer is then 200, with the agent as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = limits::NAME.described())]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = limits::AI_TYPE.described())]
    pub ai_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = limits::SYSTEM_PROMPT.described())]
    pub system_prompt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = limits::PASSKEY.described())]
    pub passkey: Option<String>,
    /// Makes a passkey and shows it in this one answer.
    #[serde(default)]
    pub generate_passkey: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<AgentStatus>,
}

impl From<Agent> for AgentBody {
    fn from(agent: Agent) -> Self {
        Self {
            id: agent.id,
            name: agent.name,
            ai_type: agent.ai_type,
            system_prompt: agent.system_prompt,
            has_passkey: agent.passkey.is_some(),
            status: agent.status,
            created_at: agent.created_at,
            passkey: None,
            passkey_shown: None,
            new_passkey_command: None,
        }
    }
}
