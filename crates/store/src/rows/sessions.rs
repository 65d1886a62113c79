//! Sessions: the proof of who calls, from authentication to logout.

use crate::{BoxError, Cells, HistoryFilter, Read, StoreError, Value};
use domain::event::NewEvent;
use domain::id::SessionId;
use domain::secret::TokenHash;
use domain::session::SessionEndReason;
use domain::{InstanceKey, LaunchId, Purpose, Session, Timestamp};

use super::audit::plain;
use super::filter::Filter;
use super::record::{Record, entity};
use super::{Transaction, Wake};

entity! {
    Session in "sessions" called "session" {
        id;
        launch = "launch_id";
        key: InstanceKey;
        token = "token_hash";
        created_at;
        last_seen_at;
        ended: Option<(Timestamp, SessionEndReason)>;
        handed_out;
    }
    also audited |session| {
        "ended" = plain(session.ended.map(|(_, reason)| reason));
    }
}

impl Record for Option<(Timestamp, SessionEndReason)> {
    fn columns() -> Vec<&'static str> {
        vec!["ended_at", "end_reason"]
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self, BoxError> {
        match (cells.get::<Option<Timestamp>>()?, cells.get()?) {
            (Some(at), Some(reason)) => Ok(Some((at, reason))),
            (Some(_), None) => Err("the session ended without a reason".into()),
            (None, _) => Ok(None),
        }
    }

    fn values(&self) -> Vec<Value<'_>> {
        vec![self.map(|(at, _)| at).into(), self.map(|(_, reason)| reason).into()]
    }
}

pub fn get(tx: &mut Read<'_>, id: &SessionId) -> Result<Option<Session>, StoreError> {
    tx.find("WHERE id = ?1", &[id.into()])
}

/// Returns the newest session with this token, also an ended one.
pub fn find_by_token(tx: &mut Read<'_>, token: &TokenHash) -> Result<Option<Session>, StoreError> {
    let rest = "WHERE token_hash = ?1 ORDER BY created_at DESC, id DESC LIMIT 1";
    tx.find(rest, &[token.into()])
}

/// Returns the sessions that have not ended, by creation, then id.
pub fn list_open(tx: &mut Read<'_>) -> Result<Vec<Session>, StoreError> {
    tx.list("WHERE ended_at IS NULL ORDER BY created_at, id", &[])
}

/// Returns the sessions of a launch by creation, then id.
pub fn list_of_launch(tx: &mut Read<'_>, launch: &LaunchId) -> Result<Vec<Session>, StoreError> {
    tx.list("WHERE launch_id = ?1 ORDER BY created_at, id", &[launch.into()])
}

/// Returns sessions of a filter, the newest first.
pub fn list(
    tx: &mut Read<'_>,
    wanted: &HistoryFilter<SessionId>,
) -> Result<Vec<Session>, StoreError> {
    if wanted.task.is_some() {
        // A session has no task.
        return Ok(Vec::new());
    }
    let mut filter = Filter::default();
    filter.owner("sessions", wanted);
    if wanted.only_open {
        filter.also("ended_at IS NULL");
    }
    filter.newest(tx, "created_at", wanted.after.as_ref(), wanted.limit)
}

/// Writes a session.
pub fn put(tx: &mut Transaction<'_>, session: &Session) -> Result<(), StoreError> {
    tx.replace_audited(session, &session.id, |tx| get(tx, &session.id))?;
    if let Some(event) = event(session, tx.now()) {
        tx.row_event(event);
    }
    // A message only delays the end of its chat; a chat that begins has an end.
    if session.revision == 0 && session.key.purpose == Purpose::Chat {
        tx.wake(Wake::Deadlines);
    }
    Ok(())
}

/// Returns the event of its beginning or its end. Other changes have none.
fn event(session: &Session, at: Timestamp) -> Option<NewEvent> {
    let (kind, detail) = match session.ended {
        Some((_, reason)) => ("session.ended", reason.to_string()),
        None if session.revision == 0 => ("session.opened", session.key.purpose.to_string()),
        None => return None,
    };
    let launch = Some(session.launch.clone());
    Some(NewEvent { launch, detail: Some(detail), ..NewEvent::of_pair(kind, at, &session.key) })
}
