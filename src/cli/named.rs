//! Arguments that name an agent, a project or a task. The daemon looks them up, so that an id may be
//! given in a shorter form.

use std::fmt::{self, Write as _};
use std::marker::PhantomData;
use std::str::FromStr;

use super::client::{Client, encoded};
use super::error::CliError;
use super::output::plain;
use api::lookup::LookupBody;
use domain::lookup::LookupKind;
use domain::{AgentId, ProjectId, TaskId};

/// A text that names a thing with an id of the type `Id`.
#[derive(Debug)]
pub(super) struct Named<Id> {
    text: String,
    id: PhantomData<fn() -> Id>,
}

/// An id that people name in shorter forms.
pub(super) trait Lookup: FromStr {
    const KIND: LookupKind;
    /// The things have names, so that any text may name one.
    const HAS_NAMES: bool = true;
}

impl Lookup for AgentId {
    const KIND: LookupKind = LookupKind::Agent;
}

impl Lookup for ProjectId {
    const KIND: LookupKind = LookupKind::Project;
}

impl Lookup for TaskId {
    const KIND: LookupKind = LookupKind::Task;
    const HAS_NAMES: bool = false;
}

/// The number of candidates that an error lists.
const MAX_LISTED: usize = 10;

impl<Id: Lookup> Named<Id> {
    /// Returns the id that the text names. A text that names nothing is returned as it is, if it
    /// may be an id: the daemon then answers as for every unknown id.
    ///
    /// # Errors
    /// `Failed` if the text names several things, with a list of them, or cannot be an id. The
    /// error of the request, if the text cannot be an id.
    pub(super) async fn id(&self, client: &Client) -> Result<Id, CliError> {
        let kind = Id::KIND;
        let path = format!("/lookup?kind={kind}&text={}", encoded(&self.text));
        let as_typed = |error: CliError| self.text.parse().map_err(|_| error);
        match client.get::<Vec<LookupBody>>(&path).await {
            // A coordinator without its server, and a daemon of an earlier version, look nothing up.
            Err(error) => as_typed(error),
            Ok(found) => match &found[..] {
                [] => as_typed(self.unknown()),
                [one] => one.id.parse().map_err(|_| self.unknown()),
                several => Err(CliError::Failed(ambiguous(kind, &self.text, several))),
            },
        }
    }

    fn unknown(&self) -> CliError {
        CliError::Failed(format!("no {} `{}`", Id::KIND, self.text))
    }
}

/// Returns the ids that several texts name.
///
/// # Errors
/// The errors of [`Named::id`].
pub(super) async fn ids<Id: Lookup>(
    named: &[Named<Id>],
    client: &Client,
) -> Result<Vec<Id>, CliError> {
    let mut ids = Vec::with_capacity(named.len());
    for one in named {
        ids.push(one.id(client).await?);
    }
    Ok(ids)
}

/// Returns the id that a text names, if it is given.
///
/// # Errors
/// The errors of [`Named::id`].
pub(super) async fn id_of<Id: Lookup>(
    named: Option<&Named<Id>>,
    client: &Client,
) -> Result<Option<Id>, CliError> {
    match named {
        Some(named) => named.id(client).await.map(Some),
        None => Ok(None),
    }
}

fn ambiguous(kind: LookupKind, text: &str, candidates: &[LookupBody]) -> String {
    let mut message = format!("`{text}` names several {kind}s; give one of these ids:");
    for LookupBody { id, short_id, name } in candidates.iter().take(MAX_LISTED) {
        let short_id = short_id.as_ref().map(|short_id| format!("  {short_id}"));
        let _ = write!(message, "\n  {id}{}  {}", short_id.unwrap_or_default(), plain(name));
    }
    if candidates.len() > MAX_LISTED {
        message.push_str("\n  and more");
    }
    message
}

impl<Id> Clone for Named<Id> {
    fn clone(&self) -> Self {
        Self { text: self.text.clone(), id: PhantomData }
    }
}

impl<Id: Lookup> FromStr for Named<Id> {
    type Err = Id::Err;

    fn from_str(text: &str) -> Result<Self, Id::Err> {
        if !Id::HAS_NAMES {
            text.parse::<Id>()?;
        }
        Ok(Self { text: text.to_owned(), id: PhantomData })
    }
}

impl<Id> fmt::Display for Named<Id> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ambiguous_text_lists_what_it_may_mean() {
        let candidate = |n: usize| LookupBody {
            id: format!("tsk_{n}"),
            short_id: Some(format!("SHOP-{n}")),
            name: "Log in\u{1b}[31m".to_owned(),
        };
        let few: Vec<LookupBody> = (1..3).map(candidate).collect();
        let expected = "`tsk_` names several tasks; give one of these ids:\n  \
            tsk_1  SHOP-1  Log in [31m\n  tsk_2  SHOP-2  Log in [31m";
        assert_eq!(ambiguous(LookupKind::Task, "tsk_", &few), expected);
        let many: Vec<LookupBody> = (0..11).map(candidate).collect();
        let message = ambiguous(LookupKind::Task, "tsk_", &many);
        assert!(message.ends_with("SHOP-9  Log in [31m\n  and more"), "{message}");
    }
}
