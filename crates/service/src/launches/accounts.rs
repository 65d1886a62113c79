//! The accounts of providers. A failure of an agent parks an account, the next start tries it, and
//! a person can release it.

use domain::account::Parked;
use domain::account::Parking;
use domain::event::NewEvent;
use domain::{Account, Failure, FailureClass, Launch, LaunchState, Refusal};
use store::StoreError;
use store::rows::{Transaction, accounts, agents, launches};

use super::Launches;
use crate::core::Core;
use crate::{Inputs, ServiceError};

impl Launches {
    /// Lets agents of a provider start again although its account is parked. Repeating it changes
    /// nothing.
    ///
    /// # Errors
    /// `Invalid` for an `ai_type` that no agent has.
    pub async fn release_provider(&self, ai_type: &str) -> Result<(), ServiceError> {
        let ai_type = ai_type.to_owned();
        self.core
            .write(move |tx| {
                let account = accounts::get(tx, &ai_type)?;
                if account.revision == 0
                    && !agents::list(tx)?.iter().any(|agent| agent.ai_type == ai_type)
                {
                    return Err(Refusal::ProviderNotFound { ai_type: ai_type.clone() }.into());
                }
                if account.parked.is_some() {
                    let event = accounts::event(&account, tx.now());
                    tx.event(NewEvent { kind: "person.resume", ..event });
                    put(tx, &account.released())?;
                }
                Ok(())
            })
            .await
    }
}

/// Corrects parked accounts whose times come from a wrong clock.
pub(crate) async fn correct(core: &Core) -> Result<(), ServiceError> {
    core.write(|tx| {
        for account in accounts::list_parked(tx)? {
            let seen = account.clone().seen_at(tx.now());
            if seen != account {
                put(tx, &seen)?;
            }
        }
        Ok(())
    })
    .await
}

/// Logs the changes of accounts.
pub(crate) fn log_accounts<'a>(accounts: impl Iterator<Item = &'a Account>) {
    for Account { ai_type, parked, .. } in accounts {
        match parked {
            Some(Parked { probe: Some(probe), since, .. }) if probe.at != *since => {
                tracing::info!(provider = ai_type, launch_id = %probe.launch, "trying the account again");
            }
            Some(Parked { class, until, n_failures, .. }) => {
                tracing::warn!(
                    provider = ai_type, reason = class.as_str(), until = %until, n_failures,
                    "account parked: no agent of this provider is started until then, or until it is resumed"
                );
            }
            None => tracing::info!(provider = ai_type, "account is not parked any more"),
        }
    }
}

/// Notes the effect of a launch that has just reached this state on its account.
pub(crate) fn note_state(
    tx: &mut Transaction<'_>,
    launch: &Launch,
    parking: Parking,
) -> Result<(), StoreError> {
    let says_something = match launch.state {
        LaunchState::Running { .. } => true,
        // A launch that has authenticated had this effect at that time.
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
    put_after(tx, launch, &before, &after)
}

/// Notes the effect of the present failure of a running launch on its account.
pub(super) fn note_report(
    tx: &mut Transaction<'_>,
    launch: &Launch,
    failure: Option<Failure>,
    parking: Parking,
) -> Result<(), StoreError> {
    let before = accounts::get(tx, &launch.ai_type)?;
    let after = before.clone().after_report(launch, failure, tx.now(), parking);
    put_after(tx, launch, &before, &after)
}

/// Parks an account for longer if an agent still waits for its quota: that agent tries it. Returns
/// whether one does.
pub(super) fn is_waited_for(
    tx: &mut Transaction<'_>,
    inputs: &Inputs,
    account: &Account,
) -> Result<bool, StoreError> {
    let probe = account.parked.as_ref().and_then(|parked| parked.probe.as_ref());
    let Some(probe) = probe else { return Ok(false) };
    let failure = inputs.heard.activities.failure_of(&probe.launch);
    let quota = failure.filter(|failure| failure.class == FailureClass::Quota);
    let launch = launches::get(tx, &probe.launch)?.filter(Launch::is_open);
    let (Some(launch), Some(_)) = (launch, quota) else { return Ok(false) };
    note_report(tx, &launch, quota, inputs.settings.parking)?;
    Ok(true)
}

/// Writes the account of a launch if the launch changed it.
fn put_after(
    tx: &mut Transaction<'_>,
    launch: &Launch,
    before: &Account,
    after: &Account,
) -> Result<(), StoreError> {
    if after != before {
        let event = accounts::event(after, tx.now());
        tx.event(NewEvent { launch: Some(launch.id.clone()), ..event });
        put(tx, after)?;
    }
    Ok(())
}

/// Writes an account, and logs it after the commit.
pub(crate) fn put(tx: &mut Transaction<'_>, account: &Account) -> Result<(), StoreError> {
    accounts::put(tx, account)?;
    let account = account.clone();
    tx.after_commit(move || log_accounts(std::iter::once(&account)));
    Ok(())
}
