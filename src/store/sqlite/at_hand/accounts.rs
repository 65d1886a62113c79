//! The provider accounts, of which there are few, as the newest commit left them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::Account;
use crate::store::{Change, Commit};

/// `None` until they were read, and after a commit of which nobody knows whether it was made.
#[derive(Debug, Default)]
pub(in super::super) struct Accounts(Mutex<Option<BTreeMap<String, Account>>>);

impl Accounts {
    fn lock(&self) -> MutexGuard<'_, Option<BTreeMap<String, Account>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in super::super) fn are_known(&self) -> bool {
        self.lock().is_some()
    }

    /// That of `ai_type`, as if it was there always; `None` where they aren't known.
    pub(in super::super) fn find(&self, ai_type: &str) -> Option<Account> {
        let accounts = self.lock();
        Some(
            accounts
                .as_ref()?
                .get(ai_type)
                .cloned()
                .unwrap_or_else(|| Account::new(ai_type.to_owned())),
        )
    }

    pub(in super::super) fn set(&self, accounts: Vec<Account>) {
        *self.lock() =
            Some(accounts.into_iter().map(|account| (account.ai_type.clone(), account)).collect());
    }

    pub(in super::super) fn forget(&self) {
        *self.lock() = None;
    }

    /// Takes over what was committed, in its order.
    pub(in super::super) fn note<'a>(&self, commits: impl IntoIterator<Item = &'a Commit>) {
        let mut accounts = self.lock();
        let Some(accounts) = accounts.as_mut() else {
            return;
        };
        for change in commits.into_iter().flat_map(|commit| &commit.changes) {
            let Change::Account(account) = change else {
                continue;
            };
            let written = Account { revision: account.revision + 1, ..account.clone() };
            accounts.insert(account.ai_type.clone(), written);
        }
    }
}
