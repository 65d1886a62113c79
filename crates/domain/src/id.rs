//! The ids of agents, projects, tasks, launches and other things. They are parsed once at the edge
//! and trusted afterwards.
//!
//! All kinds have one grammar: `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`. Therefore an id is safe as a file
//! name, a YAML key, a URL segment and a log field. A clone only counts a reference, because every
//! look at a fleet clones hundreds of ids.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::printable::excerpt;

/// The longest id, in bytes.
pub const MAX_ID_LENGTH: usize = 64;

/// The grammar, for JSON schemas.
pub const PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$";

/// The error for a text that is not a valid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a valid {kind}: expected 1 to 64 of letters, digits, `.`, `_`, `-`, beginning with a letter or digit"
)]
pub struct InvalidId {
    kind: &'static str,
    text: String,
}

/// Returns whether a text has the grammar of all ids.
pub fn is_id(text: &str) -> bool {
    text.len() <= MAX_ID_LENGTH
        && text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// Stores and sends a type as its text.
macro_rules! texts {
    ($($name:ident, $error:ty, $pattern:expr;)*) => {$(
        impl TryFrom<String> for $name {
            type Error = $error;

            fn try_from(text: String) -> Result<Self, $error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.to_string()
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    )*};
}

pub(super) use texts;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $kind:literal, $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The prefix of generated ids of this kind. Ids that people give may have any form.
            pub const PREFIX: &'static str = $prefix;

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                if is_id(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(InvalidId { kind: $kind, text: excerpt(text, 80).into_owned() })
                }
            }
        }

        texts! { $name, InvalidId, PATTERN; }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

ids! {
    /// An agent as people define it.
    AgentId, "agent id", "agt_";
    /// A project with its working directory.
    ProjectId, "project id", "prj_";
    /// A task of a project.
    TaskId, "task id", "tsk_";
    /// A conversation of an agent CLI about a task.
    ConversationId, "conversation id", "cnv_";
    /// One life of one agent instance, from claim to end. Every call about the instance names it,
    /// which fences off earlier lives.
    LaunchId, "launch id", "lch_";
    /// One authenticated conversation of an agent with the server.
    SessionId, "session id", "ses_";
    /// The work of one launch on one task.
    ExecutionId, "execution id", "exe_";
    /// A notice that tells an agent about a change of its work.
    NoticeId, "notice id", "ntf_";
    /// One message of a chat.
    MessageId, "message id", "msg_";
    /// One comment on a task.
    CommentId, "comment id", "cmt_";
    /// A coordinator, as named in its state directory.
    CoordinatorId, "coordinator id", "crd_";
    /// A credential of people or scripts: a login link, a cookie, or a token.
    CredentialId, "credential id", "key_";
    /// One run of a check.
    CheckId, "check id", "chk_";
    /// The files that the agent of a task works in.
    WorkspaceId, "workspace id", "wsp_";
    /// A condition that needs a person.
    AttentionId, "attention id", "att_";
    /// The work on one item of a forge, and the name of its folder. It is a UUID.
    ItemId, "forge item id", "";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, is_valid: bool) {
        assert_eq!(text.parse::<AgentId>().is_ok(), is_valid, "{text:?}");
    }

    #[test]
    fn ids_have_one_grammar() {
        check("agt_developer", true);
        check("A", true);
        check("0.b-c_d", true);
        check(&"x".repeat(64), true);
        check(&"x".repeat(65), false);
        check("", false);
        check(".hidden", false);
        check("_x", false);
        check("a/b", false);
        check("a b", false);
        check("エージェント", false);
    }
}
