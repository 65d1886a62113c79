//! Use cases with a mistake that the check must find: what they read is not of their transaction.

use std::collections::BTreeSet;
use std::sync::Arc;

use domain::chat::{Sender, listens};
use domain::event::NewEvent;
use domain::id::CoordinatorId;
use domain::start_history::StartReason;
use domain::{InstanceKey, Launch, LaunchId, Message, MessageId, Secret, StartHistory};
use service::world::World as _;
use service::{Force, ServiceError, StopTarget};
use store::StoreError;
use store::rows::{Context, Transaction, launches, messages, start_histories};

use crate::questions::Questions as _;

use super::writer::Clock;
use super::{Server, without_pauses};

/// The answer to a claim: its launch and ticket, or the reason why there is none.
pub type Claimed = Result<(LaunchId, Option<Secret>), StartReason>;

async fn write<T: Send + 'static>(
    server: &Server,
    clock: &Clock,
    body: impl FnMut(&mut Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, ServiceError> {
    let context = Context::new(clock.now(), clock.unique(), None);
    Ok(server.store.write(context, Arc::new(|_| ()), body).await?)
}

/// Claims a start by facts that were read before.
pub async fn claim(
    server: &Server,
    clock: &Clock,
    key: &InstanceKey,
    by: &CoordinatorId,
) -> Result<Claimed, ServiceError> {
    let facts = server.store.pair_facts(key).await?;
    let reason = facts.reason(without_pauses().backoff, clock.now());
    if reason != StartReason::Ready {
        return Ok(Err(reason));
    }
    let (key, by) = (key.clone(), by.clone());
    let claimed = write(server, clock, move |tx| {
        if launches::is_open(tx, &key)? {
            return Ok(Err(StartReason::Starting));
        }
        let (id, now) = (tx.new_id(LaunchId::PREFIX), tx.now());
        let launch = Launch::claimed(id, key.clone(), "claude".to_owned(), now, now);
        let launch = Launch { coordinator: Some(by.clone()), ..launch };
        tx.event(launches::event(&launch, now));
        launches::put(tx, &launch)?;
        Ok(Ok((launch.id, None)))
    });
    claimed.await
}

/// Stops a target, and returns the launches that were open before.
pub async fn stop(
    server: &Server,
    key: Option<&InstanceKey>,
    target: &StopTarget,
) -> Result<BTreeSet<LaunchId>, ServiceError> {
    let open = server.store.open_launches().await?;
    server.service.launches.stop(target, Force::No).await?;
    let open = open.into_iter().filter(|launch| key.is_none_or(|key| *key == launch.key));
    Ok(open.map(|launch| launch.id).collect())
}

/// Adds a message, and wants an agent if none listened before.
pub async fn say(
    server: &Server,
    clock: &Clock,
    key: &InstanceKey,
) -> Result<MessageId, ServiceError> {
    let facts = server.store.pair_facts(key).await?;
    let key = key.clone();
    let said = write(server, clock, move |tx| {
        let message = Message {
            seq: 0,
            id: tx.new_id(MessageId::PREFIX),
            agent: key.agent.clone(),
            project: key.project.clone(),
            sender: Sender::User,
            author: None,
            content: "a message".to_owned(),
            created_at: tx.now(),
            is_visible: true,
        };
        let detail = Some(message.id.to_string());
        tx.event(NewEvent { detail, ..NewEvent::of_pair("chat.message", tx.now(), &key) });
        messages::add(tx, &message)?;
        if !listens(&facts) {
            start_histories::change(tx, &key, |record: StartHistory| {
                record.wanted(message.created_at)
            })?;
        }
        Ok(message.id)
    });
    said.await
}
