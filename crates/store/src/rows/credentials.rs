//! Credentials of people and scripts. The store has the hash of each secret.

use crate::{Read, StoreError};
use domain::secret::TokenHash;
use domain::{Credential, CredentialId};

use super::record::entity;
use super::{Transaction, Wake};

entity! {
    Credential in "credentials" called "credential" {
        id;
        kind, audited plain;
        name, audited plain;
        role, audited plain;
        secret = "secret_hash";
        created_at;
        expires_at, audited plain;
        last_used_at;
        revoked_at, audited plain;
    }
}

pub fn get(tx: &mut Read<'_>, id: &CredentialId) -> Result<Option<Credential>, StoreError> {
    tx.find("WHERE id = ?1", &[id.into()])
}

/// Returns the newest credential with this secret, whether it is valid or not.
pub fn find_by_secret(
    tx: &mut Read<'_>,
    secret: &TokenHash,
) -> Result<Option<Credential>, StoreError> {
    let rest = "WHERE secret_hash = ?1 ORDER BY created_at DESC, id DESC LIMIT 1";
    tx.find(rest, &[secret.into()])
}

/// Returns all credentials by creation, then id.
pub fn list(tx: &mut Read<'_>) -> Result<Vec<Credential>, StoreError> {
    tx.list("ORDER BY created_at, id", &[])
}

/// Forgets a credential, if it exists.
pub fn forget(tx: &mut Transaction<'_>, id: &CredentialId) -> Result<(), StoreError> {
    tx.execute("DELETE FROM credentials WHERE id = ?1", &[id.into()]).map(drop)
}

/// Writes a credential.
pub fn put(tx: &mut Transaction<'_>, credential: &Credential) -> Result<(), StoreError> {
    tx.replace_audited(credential, &credential.id, |tx| get(tx, &credential.id))?;
    tx.wake(Wake::Credential(credential.id.clone()));
    Ok(())
}
