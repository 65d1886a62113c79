//! The marks that people put on the conditions that need a person.

use crate::{Read, StoreError};
use domain::attention::Mark;
use domain::event::NewEvent;
use domain::{AttentionId, Timestamp};

use super::Transaction;
use super::audit::{Entry, Fields, plain};

/// Returns the marks of a person.
pub fn list_of(tx: &mut Read<'_>, person: &str) -> Result<Vec<Mark>, StoreError> {
    let sql = "SELECT item, until, marked_at FROM attention_marks WHERE person = ?1 ORDER BY item";
    tx.rows("mark", sql, &[person.into()], |cells| {
        Ok(Mark {
            item: cells.get()?,
            person: person.to_owned(),
            until: cells.get()?,
            marked_at: cells.get()?,
        })
    })
}

/// Writes the mark of a person in place of the one before, and says so.
pub fn put(tx: &mut Transaction<'_>, mark: &Mark) -> Result<(), StoreError> {
    tx.audit(|tx| {
        let before = list_of(tx, &mark.person)?.into_iter().find(|known| known.item == mark.item);
        let before = before.as_ref().map(shown);
        Ok(Entry::between("attention", &mark.item, before, shown(mark)))
    })?;
    let sql = "INSERT INTO attention_marks (item, person, until, marked_at) \
        VALUES (?1, ?2, ?3, ?4) \
        ON CONFLICT (item, person) DO UPDATE SET until = excluded.until, \
            marked_at = excluded.marked_at";
    write(tx, sql, mark)?;
    tx.event(NewEvent::new("attention.marked", tx.now()));
    Ok(())
}

/// Writes the mark of a person who has only read the entry. An entry that is put off or done
/// meanwhile stays so.
pub fn put_read(tx: &mut Transaction<'_>, mark: &Mark) -> Result<(), StoreError> {
    let sql = "INSERT INTO attention_marks (item, person, until, marked_at) \
        VALUES (?1, ?2, ?3, ?4) \
        ON CONFLICT (item, person) DO UPDATE SET until = excluded.until, \
            marked_at = excluded.marked_at \
        WHERE attention_marks.until IS NOT NULL AND attention_marks.until <= excluded.marked_at";
    write(tx, sql, mark)
}

fn write(tx: &mut Transaction<'_>, sql: &'static str, mark: &Mark) -> Result<(), StoreError> {
    let Mark { item, person, until, marked_at } = mark;
    let values = [item.into(), person.into(), (*until).into(), (*marked_at).into()];
    tx.execute(sql, &values).map(drop)
}

/// Removes the mark of a person, if there is one. The entry is open again.
pub fn remove(
    tx: &mut Transaction<'_>,
    item: &AttentionId,
    person: &str,
) -> Result<(), StoreError> {
    let sql = "DELETE FROM attention_marks WHERE item = ?1 AND person = ?2";
    if tx.execute(sql, &[item.into(), person.into()])? > 0 {
        tx.audit(|_| Ok(Some(Entry::bare("remove", "attention", item.to_string()))))?;
        tx.event(NewEvent::new("attention.marked", tx.now()));
    }
    Ok(())
}

/// Removes the marks from before `at`.
pub fn forget_before(tx: &mut Transaction<'_>, at: Timestamp) -> Result<(), StoreError> {
    tx.execute("DELETE FROM attention_marks WHERE marked_at < ?1", &[at.into()]).map(drop)
}

fn shown(mark: &Mark) -> Fields {
    Fields::from([
        ("state", plain(Some(if mark.until.is_some() { "later" } else { "done" }))),
        ("until", plain(mark.until)),
    ])
}
