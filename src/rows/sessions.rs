//! Sessions: the proof of who calls, from authentication to logout.

use crate::domain::Purpose;
use crate::domain::event::NewEvent;
use crate::domain::id::SessionId;
use crate::domain::secret::TokenHash;
use crate::domain::{LaunchId, Session, Timestamp};
use crate::store::{BoxError, Cells, Entity, HistoryFilter, Read, StoreError, Value};

use super::audit::{Audited, Fields, plain};
use super::{Transaction, Wake};

use super::filter::Filter;
use super::{key_values, read_key};

impl Entity for Session {
    const NAME: &'static str = "session";
    const TABLE: &'static str = "sessions";
    const COLUMNS: &'static str = "id, launch_id, agent_id, project_id, purpose, token_hash, created_at, \
        last_seen_at, ended_at, end_reason, handed_out";

    fn read(cells: &mut Cells<'_>) -> Result<Self, BoxError> {
        Ok(Self {
            id: cells.get()?,
            launch: cells.get()?,
            key: read_key(cells)?,
            token: cells.get()?,
            created_at: cells.get()?,
            last_seen_at: cells.get()?,
            ended: match (cells.get::<Option<Timestamp>>()?, cells.get()?) {
                (Some(at), Some(reason)) => Some((at, reason)),
                (Some(_), None) => return Err("the session ended without a reason".into()),
                (None, _) => None,
            },
            handed_out: cells.get()?,
            revision: cells.get()?,
        })
    }

    fn values(&self) -> Vec<Value<'_>> {
        let mut values = vec![(&self.id).into(), (&self.launch).into()];
        values.extend(key_values(&self.key));
        values.extend([
            (&self.token).into(),
            self.created_at.into(),
            self.last_seen_at.into(),
            self.ended.map(|(at, _)| at).into(),
            self.ended.map(|(_, reason)| reason).into(),
            self.handed_out.into(),
        ]);
        values
    }

    fn revision(&self) -> i64 {
        self.revision
    }
}

impl Audited for Session {
    fn shown(&self) -> Fields {
        Fields::from([("ended", plain(self.ended.map(|(_, reason)| reason)))])
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
    filter.owner(wanted);
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
