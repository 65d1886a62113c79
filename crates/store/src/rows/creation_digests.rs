//! The requests that created tasks, agents and projects under ids of their clients. A row stays
//! as long as its object.

use crate::{BoxError, Cells, Read, StoreError, Value};
use domain::Removable;
use domain::repeat::ContentDigest;

use super::Transaction;
use super::deletions::key_values;

fn read(cells: &mut Cells<'_>) -> Result<ContentDigest, BoxError> {
    cells.json()
}

pub fn get(tx: &mut Read<'_>, of: &Removable) -> Result<Option<ContentDigest>, StoreError> {
    let sql = "SELECT digest FROM creation_digests WHERE kind = ?1 AND object_id = ?2";
    tx.row("digest", sql, &key_values(of), read)
}

pub fn add(
    tx: &mut Transaction<'_>,
    of: &Removable,
    digest: &ContentDigest,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO creation_digests (kind, object_id, digest) VALUES (?1, ?2, ?3)";
    let [kind, id] = key_values(of);
    tx.execute(sql, &[kind, id, Value::json(digest)]).map(drop)
}

pub fn forget(tx: &mut Transaction<'_>, of: &Removable) -> Result<(), StoreError> {
    let sql = "DELETE FROM creation_digests WHERE kind = ?1 AND object_id = ?2";
    tx.execute(sql, &key_values(of)).map(drop)
}
