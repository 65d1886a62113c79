//! The accounts of providers that were parked. An account without a row has nothing to remember.

use crate::{BoxError, Cells, Read, StoreError, Value};
use domain::Account;
use domain::Timestamp;
use domain::account::{Parked, Probe};
use domain::event::NewEvent;

use super::audit::plain;
use super::record::{Record, entity};
use super::{Transaction, Wake};

entity! {
    Account in "accounts" called "account", audited as "provider" {
        ai_type;
        parked: Option<Parked>;
    }
    also audited |account| {
        "parked_until" = plain(account.parked.as_ref().map(|parked| parked.until));
    }
}

impl Record for Option<Parked> {
    fn columns() -> Vec<&'static str> {
        vec![
            "parked_class",
            "parked_since",
            "parked_until",
            "n_parked",
            "probe_launch_id",
            "probe_at",
            "parked_first",
        ]
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self, BoxError> {
        let class = cells.get::<Option<_>>()?;
        let since = cells.get::<Option<_>>()?;
        let until = cells.get::<Option<_>>()?;
        let n_failures = cells.get::<Option<_>>()?;
        let launch = cells.get::<Option<_>>()?;
        let at = cells.get::<Option<_>>()?;
        let first = cells.get::<Option<_>>()?;
        let Some(class) = class else {
            return Ok(None);
        };
        let complete = || -> Option<Parked> {
            Some(Parked {
                class,
                since: since?,
                // Rows of earlier versions do not have it.
                first: first.or(since)?,
                until: until?,
                n_failures: n_failures?,
                probe: launch.zip(at).map(|(launch, at)| Probe { launch, at }),
            })
        };
        complete().map(Some).ok_or_else(|| "a parked account has a NULL".into())
    }

    fn values(&self) -> Vec<Value<'_>> {
        let parked = self.as_ref();
        let probe = parked.and_then(|parked| parked.probe.as_ref());
        vec![
            parked.map(|parked| parked.class).into(),
            parked.map(|parked| parked.since).into(),
            parked.map(|parked| parked.until).into(),
            parked.map(|parked| parked.n_failures).into(),
            probe.map(|probe| &probe.launch).into(),
            probe.map(|probe| probe.at).into(),
            parked.map(|parked| parked.first).into(),
        ]
    }
}

/// Returns the account of an `ai_type`; a fresh one if nothing is remembered.
pub fn get(tx: &mut Read<'_>, ai_type: &str) -> Result<Account, StoreError> {
    let found = tx.find("WHERE ai_type = ?1", &[ai_type.into()])?;
    Ok(found.unwrap_or_else(|| Account::new(ai_type.to_owned())))
}

/// Returns the parked accounts by `ai_type`.
pub fn list_parked(tx: &mut Read<'_>) -> Result<Vec<Account>, StoreError> {
    tx.list("WHERE parked_class IS NOT NULL ORDER BY ai_type", &[])
}

/// Writes what is remembered of an account.
pub fn put(tx: &mut Transaction<'_>, account: &Account) -> Result<(), StoreError> {
    tx.replace_audited(account, &account.ai_type, |tx| get(tx, &account.ai_type).map(Some))?;
    tx.row_event(event(account, tx.now()));
    tx.wake(Wake::Coordinators);
    Ok(())
}

/// Returns the event that tells whether an account is parked.
pub fn event(account: &Account, at: Timestamp) -> NewEvent {
    let (kind, detail) = match &account.parked {
        Some(Parked { class, until, .. }) => {
            ("provider.parked", format!("{}: {class} until {until}", account.ai_type))
        }
        None => ("provider.works", account.ai_type.clone()),
    };
    NewEvent { detail: Some(detail), ..NewEvent::new(kind, at) }
}
