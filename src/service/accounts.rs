//! Accounts behind providers: parked by what their agents run into, tried by the next start, released by a person.

use crate::domain::account::Parked;
use crate::domain::account::Parking;
use crate::domain::event::NewEvent;
use crate::domain::{Account, Launch, LaunchState, Refusal, Timestamp};
use crate::rows::{Transaction, accounts};
use crate::store::{Change, Commit, StoreError};

use super::{Service, ServiceError};

impl Service {
    /// What a launch that has just come to this state says of its account: the change, and the event that tells of it.
    pub(super) async fn account_changes(
        &self,
        launch: &Launch,
        now: Timestamp,
    ) -> Result<Vec<Change>, StoreError> {
        let says_something = match launch.state {
            LaunchState::Running { .. } => true,
            // Who has authenticated said so then.
            LaunchState::Ended { .. } => {
                launch.authenticated_at.is_none() || launch.activity.failure.is_some()
            }
            LaunchState::Starting { .. } | LaunchState::Stopping { .. } | LaunchState::Ending => {
                false
            }
        };
        if !says_something {
            return Ok(Vec::new());
        }
        let before = self.store.account(&launch.ai_type).await?;
        let after = before.clone().after(launch, now, self.settings().parking);
        if after == before {
            return Ok(Vec::new());
        }
        let event = NewEvent { launch: Some(launch.id.clone()), ..account_event(&after, now) };
        Ok(vec![Change::Account(after), Change::Event(event)])
    }

    /// Lets agents of a provider start again although its account is parked. Repeating it changes nothing.
    ///
    /// # Errors
    /// `Invalid` for an `ai_type` that no agent has.
    pub async fn release_provider(&self, ai_type: &str) -> Result<(), ServiceError> {
        self.transact(|| async move {
            let account = self.store.account(ai_type).await?;
            let agents =
                if account.revision == 0 { self.store.agents().await? } else { Vec::new() };
            if account.revision == 0 && !agents.iter().any(|agent| agent.ai_type == ai_type) {
                return Err(Refusal::ProviderNotFound { ai_type: ai_type.to_owned() }.into());
            }
            let mut changes = Vec::new();
            if account.parked.is_some() {
                let event =
                    NewEvent { kind: "person.resume", ..account_event(&account, self.now()) };
                changes = vec![Change::Account(account.released()), Change::Event(event)];
            }
            Ok((Commit { expect: Vec::new(), changes }, ()))
        })
        .await
    }

    /// A clock that was wrong keeps no account parked.
    pub(super) async fn correct_accounts(&self) -> Result<(), ServiceError> {
        self.transact(|| async move {
            let now = self.now();
            let parked = self.store.parked_accounts().await?;
            let wrong = parked.into_iter().filter_map(|account| {
                let seen = account.clone().seen_at(now);
                (seen != account).then_some(Change::Account(seen))
            });
            Ok((Commit { expect: Vec::new(), changes: wrong.collect() }, ()))
        })
        .await
    }
}

/// The event that tells how an account stands.
pub(super) fn account_event(account: &Account, now: Timestamp) -> NewEvent {
    let (kind, detail) = match &account.parked {
        Some(Parked { class, until, .. }) => {
            ("provider.parked", format!("{}: {class} until {until}", account.ai_type))
        }
        None => ("provider.works", account.ai_type.clone()),
    };
    NewEvent {
        at: now,
        kind,
        agent: None,
        project: None,
        launch: None,
        task: None,
        detail: Some(detail),
    }
}

/// The lines that tell of changes that were made.
pub(super) fn log_accounts<'a>(accounts: impl Iterator<Item = &'a Account>) {
    for Account { ai_type, parked, .. } in accounts {
        match parked {
            Some(Parked { probe: Some(probe), .. }) => {
                tracing::info!(provider = ai_type, launch_id = %probe.launch, "trying the account again");
            }
            Some(Parked { class, until, n_failures, .. }) => {
                tracing::warn!(
                    provider = ai_type, reason = class.as_str(), until = %until, n_failures,
                    "account parked: no agent of this provider is started until then, or until it is resumed"
                );
            }
            None => tracing::info!(provider = ai_type, "account is parked no more"),
        }
    }
}

/// Notes what a launch that has just come to this state says of its account.
pub(super) fn note_state(
    tx: &mut Transaction<'_>,
    launch: &Launch,
    parking: Parking,
) -> Result<(), StoreError> {
    let says_something = match launch.state {
        LaunchState::Running { .. } => true,
        // A launch that has authenticated said so then.
        LaunchState::Ended { .. } => {
            launch.authenticated_at.is_none() || launch.activity.failure.is_some()
        }
        LaunchState::Starting { .. } | LaunchState::Stopping { .. } | LaunchState::Ending => false,
    };
    if !says_something {
        return Ok(());
    }
    let before = accounts::get(tx, &launch.ai_type)?;
    let after = before.clone().after(launch, tx.now(), parking);
    if after != before {
        let event = accounts::event(&after, tx.now());
        tx.event(NewEvent { launch: Some(launch.id.clone()), ..event });
        put(tx, &after)?;
    }
    Ok(())
}

/// Writes an account, and logs it after the commit.
pub(super) fn put(tx: &mut Transaction<'_>, account: &Account) -> Result<(), StoreError> {
    accounts::put(tx, account)?;
    let account = account.clone();
    tx.after_commit(move || log_accounts(std::iter::once(&account)));
    Ok(())
}
