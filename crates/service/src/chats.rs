//! Chats: the messages between people and agents, for each agent in a project.

pub(super) mod agents;
mod chat_export;
pub(super) mod people;
pub(super) mod presence;
pub(super) mod silence;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::clocks::Clocks;
use super::core::Core;
use super::waiting::Waiting;
use super::{Heard, Shared};
use presence::Attendances;

/// The chats of all agents.
pub struct Chats {
    core: Arc<Core>,
    heard: Heard,
    waiting: Waiting,
    clocks: Arc<Clocks>,
    attendances: Arc<Attendances>,
    /// Cancelled when the server must not hold calls any more.
    ending: CancellationToken,
}

impl Chats {
    pub(super) fn new(shared: Shared) -> Self {
        let Shared { core, heard, waiting, clocks, attendances, ending, .. } = shared;
        Self { core, heard, waiting, clocks, attendances, ending }
    }
}
