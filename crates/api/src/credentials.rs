//! `/logins` and `/tokens`: the credentials of people and scripts.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use domain::credential::{CredentialKind, Role};
use domain::{Credential, CredentialId, Timestamp, limits};

/// The fields of a login link.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoginRequest {
    /// The name of the person who logs in. The default is the name of the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = limits::NAME.described())]
    pub name: Option<String>,
    /// The default is `operator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
}

/// The longest life of a token, in seconds: a hundred years.
pub const MAX_LIFE: u64 = 36_525 * 24 * 60 * 60;

/// A link that logs one browser in. It is shown this once.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoginBody {
    pub url: String,
    pub name: String,
    pub role: Role,
    pub expires_at: Timestamp,
}

/// The fields of a token.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenRequest {
    /// The name of the token. The default is the name of the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = limits::NAME.described())]
    pub name: Option<String>,
    /// The default is `operator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The life of the token in seconds, at most a hundred years. Without it, the token is valid
    /// until it is revoked.
    #[serde(default, deserialize_with = "whole_number", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_LIFE))]
    pub expires_in: Option<u64>,
}

/// A credential as it is shown. Only the answer to its creation shows its secret.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialBody {
    pub id: CredentialId,
    /// `token`, or `cookie` for a browser that is logged in, or `link` for one that may yet.
    pub kind: CredentialKind,
    pub name: String,
    pub role: Role,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The time of its last use, exact to five minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

impl From<Credential> for CredentialBody {
    fn from(credential: Credential) -> Self {
        Self {
            id: credential.id,
            kind: credential.kind,
            name: credential.name,
            role: credential.role,
            created_at: credential.created_at,
            expires_at: credential.expires_at,
            last_used_at: credential.last_used_at,
            token: None,
        }
    }
}

/// Reads a number without a fraction. JSON Schema also calls `3.0` an integer.
fn whole_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(deserializer)? else {
        return Ok(None);
    };
    let whole = number.as_u64().or_else(|| {
        let text = number.to_string();
        text.strip_suffix(".0")?.parse().ok()
    });
    whole
        .map(Some)
        .ok_or_else(|| D::Error::custom(format!("expected a whole number, not {number}")))
}
