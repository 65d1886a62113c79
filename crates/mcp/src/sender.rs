//! The sender of an MCP call, as its transport knows it.

use std::borrow::Cow;

use tokio_util::sync::CancellationToken;

use domain::session::{Presenter, Transport};
use domain::{LaunchId, Secret};
use runtime::peer::{Peer, PeerKind};
use service::Service;

/// The sender of a call, as far as its transport knows it.
#[derive(Debug, Clone)]
pub(super) struct Sender {
    pub(super) peer: Peer,
    /// The value of `Authorization: Bearer`, which replaces a missing token argument.
    pub(super) bearer: Option<Secret>,
    /// The client takes messages before its answer. This is not so if the answer must be one JSON
    /// object.
    pub(super) hears_progress: bool,
    /// Cancelled when the client does not wait for the answer any more. Waiting calls are dropped
    /// then.
    pub(super) gone: CancellationToken,
}

impl Sender {
    /// Returns the sender with its launch, if the shim of that launch was reported.
    pub(super) fn with_launch(&self, service: &Service) -> Cow<'_, Self> {
        let Peer::Local(peer) = &self.peer else {
            return Cow::Borrowed(self);
        };
        match peer.with_launch(|processes| service.launches.find_launch_of(processes)) {
            Some(peer) => Cow::Owned(Self { peer: Peer::Local(peer), ..self.clone() }),
            None => Cow::Borrowed(self),
        }
    }

    /// Returns the launch whose shim is above the process, if it is known.
    pub(super) fn launch(&self) -> Option<&LaunchId> {
        match self.peer.kind() {
            Some(PeerKind::Agent { launch }) => launch.as_ref(),
            Some(PeerKind::Operator | PeerKind::Unauthenticated) | None => None,
        }
    }

    /// Returns whether the sender is an agent whose launch is not known.
    pub(super) fn is_unknown_agent(&self) -> bool {
        matches!(self.peer.kind(), Some(PeerKind::Agent { launch: None }))
    }

    /// Returns the transport of the sender.
    pub(super) fn transport(&self) -> Transport {
        match self.peer {
            Peer::Local(_) => Transport::Socket,
            Peer::Network(_) => Transport::Http,
        }
    }

    pub(super) fn presenter(&self) -> Presenter<'_> {
        Presenter { transport: self.transport(), launch: self.launch() }
    }
}
