//! Reads and writes values of the domain in one cell: ids, hashes, the words of enums, and others.

use std::path::PathBuf;
use std::time::Duration;

use crate::{BoxError, Cell, FromCell, Value, word};
use domain::activity::FailureClass;
use domain::agent::{AgentStatus, ProjectStatus};
use domain::chat::Sender;
use domain::check::CheckResult;
use domain::conversation::FreshReason;
use domain::credential::{CredentialKind, Role};
use domain::forge::{ForgeKind, ItemKind};
use domain::launch::{ReportResult, StopReason};
use domain::notice::{NoticeAction, NoticeDemand};
use domain::removal::RemovableKind;
use domain::secret::{PasskeyHash, TokenHash};
use domain::session::SessionEndReason;
use domain::workspace::{WorkspaceMode, WorkspaceState};
use domain::{
    AgentId, AttentionId, CheckId, CommentId, ConversationId, CoordinatorId, CredentialId,
    ExecutionId, ItemId, LaunchId, MessageId, NoticeId, Priority, ProjectId, ProjectKey, Purpose,
    SessionId, TaskId, TaskStatus, WorkspaceId,
};

/// Stores each of these types as its text, and checks the text when it is read.
macro_rules! ids {
    ($($id:ty),* $(,)?) => {$(
        impl FromCell<'_> for $id {
            fn from_cell(cell: Cell<'_>) -> Result<Self, BoxError> {
                Ok(<&str>::from_cell(cell)?.parse()?)
            }
        }

        impl<'a> From<&'a $id> for Value<'a> {
            fn from(id: &'a $id) -> Self {
                id.as_str().into()
            }
        }
    )*};
}

ids!(
    AgentId,
    AttentionId,
    CheckId,
    CommentId,
    ConversationId,
    CoordinatorId,
    CredentialId,
    ExecutionId,
    ItemId,
    LaunchId,
    MessageId,
    NoticeId,
    ProjectId,
    ProjectKey,
    SessionId,
    TaskId,
    WorkspaceId,
);

/// Stores each of these enums as its word, as serde knows it.
macro_rules! words {
    ($($word:ty),* $(,)?) => {$(
        impl<'r> FromCell<'r> for $word {
            fn from_cell(cell: Cell<'r>) -> Result<Self, BoxError> {
                word(<&str>::from_cell(cell)?)
            }
        }

        impl From<$word> for Value<'_> {
            fn from(word: $word) -> Self {
                word.as_str().into()
            }
        }

        impl From<&$word> for Value<'_> {
            fn from(word: &$word) -> Self {
                word.as_str().into()
            }
        }
    )*};
}

words!(
    AgentStatus,
    CheckResult,
    CredentialKind,
    FailureClass,
    ForgeKind,
    FreshReason,
    ItemKind,
    NoticeAction,
    NoticeDemand,
    Priority,
    ProjectStatus,
    Purpose,
    RemovableKind,
    ReportResult,
    Role,
    Sender,
    SessionEndReason,
    StopReason,
    TaskStatus,
    WorkspaceMode,
    WorkspaceState,
);

macro_rules! hashes {
    ($($hash:ty),* $(,)?) => {$(
        impl FromCell<'_> for $hash {
            fn from_cell(cell: Cell<'_>) -> Result<Self, BoxError> {
                String::from_cell(cell).map(Self::from_stored)
            }
        }

        impl<'a> From<&'a $hash> for Value<'a> {
            fn from(hash: &'a $hash) -> Self {
                hash.as_str().into()
            }
        }
    )*};
}

hashes!(PasskeyHash, TokenHash);

/// Stores a duration in milliseconds.
impl FromCell<'_> for Duration {
    fn from_cell(cell: Cell<'_>) -> Result<Self, BoxError> {
        u64::from_cell(cell).map(Self::from_millis)
    }
}

impl From<&Duration> for Value<'_> {
    fn from(duration: &Duration) -> Self {
        domain::time::millis(*duration).into()
    }
}

impl FromCell<'_> for PathBuf {
    fn from_cell(cell: Cell<'_>) -> Result<Self, BoxError> {
        String::from_cell(cell).map(Self::from)
    }
}

/// A path that is not UTF-8 becomes NULL, which the columns refuse.
impl<'a> From<&'a PathBuf> for Value<'a> {
    fn from(path: &'a PathBuf) -> Self {
        path.to_str().into()
    }
}

/// Stores a value as JSON, and the JSON `null` as NULL.
pub(super) mod json {
    use serde::{Deserialize, Serialize};

    use crate::{BoxError, Cells, Value};

    pub fn read<'r, T: Deserialize<'r>>(cells: &mut Cells<'r>) -> Result<T, BoxError> {
        Ok(serde_json::from_str(cells.get::<Option<&str>>()?.unwrap_or("null"))?)
    }

    pub fn value(value: &impl Serialize) -> Value<'static> {
        match Value::json(value) {
            Value::Text(text) if text == "null" => Value::Null,
            json => json,
        }
    }
}
