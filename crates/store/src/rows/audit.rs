//! Lines of the audit log: the changes of a person or their script, before and after.
//!
//! A line never shows a secret. It shows only the length of long texts and chats.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::Entity;
use domain::printable::excerpt;
use domain::secret::PasskeyHash;
use domain::{Credential, CredentialId};

/// The person or script that acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The name by which people know it.
    pub name: String,
    /// The credential that it showed; `None` at the control socket.
    pub credential: Option<CredentialId>,
}

impl From<&Credential> for Actor {
    fn from(credential: &Credential) -> Self {
        Self { name: credential.name.clone(), credential: Some(credential.id.clone()) }
    }
}

/// The columns of a row that people look at.
pub type Fields = BTreeMap<&'static str, AuditValue>;

/// An entity whose changes are in the audit log, if one of its columns is shown there.
pub(super) trait Audited: Entity {
    /// Its name in the audit log.
    const CALLED: &'static str = Self::NAME;

    /// Returns the columns that people look at.
    fn shown(&self) -> Fields;
}

/// A value with the form in which it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditValue {
    Plain(Value),
    /// A value that is shown only as present.
    Hidden(Option<String>),
    /// A value of which only the length is shown.
    Long(String),
}

/// A change of one row.
#[derive(Debug)]
pub struct Entry {
    what: &'static str,
    id: String,
    action: &'static str,
    before: Fields,
    after: Fields,
}

impl Entry {
    /// Creates an entry without columns.
    pub const fn bare(action: &'static str, what: &'static str, id: String) -> Self {
        Self { what, id, action, before: Fields::new(), after: Fields::new() }
    }

    /// Returns the entry with the columns of a row that goes.
    pub fn with_before(self, before: Fields) -> Self {
        Self { before, ..self }
    }

    /// Creates the entry of a change between two states of a row, with the columns that differ.
    /// Returns `None` if none does.
    pub fn between(
        what: &'static str,
        id: &impl ToString,
        before: Option<Fields>,
        after: Fields,
    ) -> Option<Self> {
        let action = if before.is_some() { "change" } else { "add" };
        let mut before = before.unwrap_or_default();
        let mut after = after;
        let is_same = |name: &str, value: &AuditValue| after.get(name) == Some(value);
        let same: Vec<&str> = before
            .iter()
            .filter(|(name, value)| is_same(name, value))
            .map(|(name, _)| *name)
            .collect();
        for name in same {
            before.remove(name);
            after.remove(name);
        }
        let has_changed = !before.is_empty() || !after.is_empty();
        has_changed.then(|| Self { what, id: id.to_string(), action, before, after })
    }

    /// Writes the line.
    pub fn write(&self, actor: &Actor) {
        let shown = |fields: &Fields| {
            let fields = fields.iter().filter(|(_, value)| !value.is_nothing());
            let fields: serde_json::Map<_, _> =
                fields.map(|(name, value)| ((*name).to_owned(), value.to_json())).collect();
            (!fields.is_empty()).then(|| Value::Object(fields).to_string())
        };
        tracing::info!(
            target: "audit",
            who = %actor.name, credential_id = actor.credential.as_ref().map(tracing::field::display),
            action = self.action, what = self.what, id = %self.id, before = shown(&self.before),
            after = shown(&self.after), "done by a person"
        );
    }
}

/// The longest text that is shown, in characters.
const MAX_SHOWN: usize = 200;

impl AuditValue {
    /// Returns whether the value is empty. A new row is shown without its empty columns.
    fn is_nothing(&self) -> bool {
        match self {
            Self::Plain(value) => value.is_null() || *value == json!([]),
            Self::Hidden(secret) => secret.is_none(),
            Self::Long(text) => text.is_empty(),
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Self::Plain(Value::String(text)) => excerpt(text, MAX_SHOWN).into(),
            Self::Plain(value) => value.clone(),
            Self::Hidden(_) => "(hidden)".into(),
            Self::Long(text) => format!("({} characters)", text.chars().count()).into(),
        }
    }
}

/// Returns the values of columns and more values; `None` is a column that is not shown.
pub(super) fn fields(
    columns: impl IntoIterator<Item = Option<(&'static str, AuditValue)>>,
    more: impl IntoIterator<Item = (&'static str, AuditValue)>,
) -> Fields {
    columns.into_iter().flatten().chain(more).collect()
}

/// Returns a secret, which is shown only as present.
pub fn hidden(hash: Option<&PasskeyHash>) -> AuditValue {
    AuditValue::Hidden(hash.map(|hash| hash.as_str().to_owned()))
}

/// Returns a value of which only the length is shown.
pub fn long(text: &str) -> AuditValue {
    AuditValue::Long(text.to_owned())
}

/// Returns a value that is shown as it is.
pub fn plain(value: impl serde::Serialize) -> AuditValue {
    AuditValue::Plain(serde_json::to_value(value).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_told_and_no_secret() {
        let before = Fields::from([
            ("name", plain("Ann")),
            ("status", plain("active")),
            ("passkey", AuditValue::Hidden(Some("hash of one".to_owned()))),
            ("system_prompt", AuditValue::Long("secret plans".to_owned())),
        ]);
        let mut after = before.clone();
        after.insert("name", plain("x".repeat(1000)));
        after.insert("passkey", AuditValue::Hidden(Some("hash of another".to_owned())));
        after.insert("system_prompt", AuditValue::Long("other plans".to_owned()));
        let entry = Entry::between("agent", &"agt", Some(before.clone()), after).expect("a change");
        let told: Vec<_> =
            entry.after.iter().map(|(name, value)| (*name, value.to_json())).collect();
        let names: Vec<_> = told.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["name", "passkey", "system_prompt"]);
        assert!(told[0].1.as_str().is_some_and(|name| name.chars().count() < 250), "{told:?}");
        assert_eq!((&told[1].1, &told[2].1), (&json!("(hidden)"), &json!("(11 characters)")));
        assert_eq!(entry.before["name"].to_json(), "Ann");
        assert!(Entry::between("agent", &"agt", Some(before.clone()), before).is_none());
    }
}
