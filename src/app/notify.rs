//! Telling the service manager how things stand (`sd_notify`); nothing where none asks, that is without `NOTIFY_SOCKET`.

use sd_notify::NotifyState;

/// The daemon serves: units that wait for it may go on.
pub(super) fn ready() {
    tell(&[NotifyState::Ready, NotifyState::Status("running")]);
}

/// The daemon is on its way out.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "could not tell the service manager");
    }
}
