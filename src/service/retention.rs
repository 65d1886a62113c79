//! Forgetting what is old, in small commits, so that nobody waits long for the store. What may go is decided in
//! [`crate::domain::retention`]. What agents printed is on their host, and their coordinator's to remove.

use crate::domain::event::EventSpan;
use crate::domain::retention::PastLaunch;
use crate::domain::{InstanceKey, LaunchState, Purpose};
use crate::store::{Change, Commit, CommitError, Expect};
use crate::telemetry::counters;

use super::{Service, ServiceError};

/// Launches that are looked at together.
const PAGE: usize = 100;
/// Launches that go at one look, about: what is due meanwhile waits for it.
const MAX_LAUNCHES: u64 = 1_000;
/// Events of one commit; of messages it is all of a chat, which are few.
const MAX_EVENTS: i64 = 2_000;

impl Service {
    /// Forgets what is old and needed no more. Cancel-safe: each commit is whole.
    pub(super) async fn forget_the_past(&self) -> Result<(), ServiceError> {
        let n_launches = self.forget_launches().await?;
        let n_events = self.forget_events().await?;
        let n_chats = self.forget_messages().await?;
        let n_items = self.forget_forge_items().await?;
        if n_launches + n_events + n_chats + n_items > 0 {
            tracing::info!(n_launches, n_events, n_chats, n_items, "what was old is forgotten");
        }
        Ok(())
    }

    async fn forget_launches(&self) -> Result<u64, ServiceError> {
        let (retention, now) = (self.settings().retention.clone(), self.now_by_age());
        let (mut n_forgotten, mut after) = (0, None::<PastLaunch>);
        loop {
            let before = retention.history_before(now);
            let page = self.store.past_launches(before, after.as_ref(), PAGE).await?;
            for past in page.iter().filter(|past| retention.lets_go(past, now)) {
                // A task that is reopened in this moment keeps its memory.
                let expect = past
                    .newest_of
                    .iter()
                    .map(|work| Expect::TaskAt(work.task.clone(), work.revision));
                let changes = vec![Change::ForgetLaunch(past.id.clone())];
                match self.commit(Commit { expect: expect.collect(), changes }).await {
                    Ok(()) => n_forgotten += 1,
                    Err(CommitError::Store(error)) => return Err(error.into()),
                    // The next time.
                    Err(CommitError::Outdated { .. } | CommitError::OpenLaunch { .. }) => {}
                }
            }
            let is_last = page.len() < PAGE || n_forgotten >= MAX_LAUNCHES;
            after = page.into_iter().last();
            if is_last {
                counters::FORGOTTEN.add_many("launch", n_forgotten);
                return Ok(n_forgotten);
            }
        }
    }

    async fn forget_events(&self) -> Result<u64, ServiceError> {
        let (retention, now) = (self.settings().retention.clone(), self.now_by_age());
        let span = self.store.event_span().await?;
        let last_old = self.store.last_event_before(retention.events_before(now)).await?;
        let Some(up_to) = retention.events_up_to(span, last_old) else {
            return Ok(0);
        };
        let EventSpan { oldest, .. } = span;
        let mut gone = oldest - 1;
        while gone < up_to {
            gone = up_to.min(gone + MAX_EVENTS);
            self.forget(Change::ForgetEvents(gone)).await?;
        }
        let n_forgotten = u64::try_from(up_to - oldest + 1).unwrap_or(0);
        counters::FORGOTTEN.add_many("event", n_forgotten);
        Ok(n_forgotten)
    }

    async fn forget_forge_items(&self) -> Result<u64, ServiceError> {
        let before = self.settings().retention.history_before(self.now_by_age());
        let past = self.store.past_forge_items(before, PAGE).await?;
        let n_forgotten = past.len() as u64;
        if !past.is_empty() {
            let changes = past.into_iter().map(Change::ForgetItem).collect();
            match self.commit(Commit { expect: Vec::new(), changes }).await {
                Ok(()) => {}
                Err(CommitError::Store(error)) => return Err(error.into()),
                Err(CommitError::Outdated { .. } | CommitError::OpenLaunch { .. }) => {
                    return Err(ServiceError::Contended);
                }
            }
            counters::FORGOTTEN.add_many("forge_item", n_forgotten);
        }
        Ok(n_forgotten)
    }

    async fn forget_messages(&self) -> Result<u64, ServiceError> {
        let (retention, now) = (self.settings().retention.clone(), self.now_by_age());
        let Some(before) = retention.chats_before(now) else {
            return Ok(0);
        };
        let open = self.store.open_launches().await?;
        let mut n_chats = 0;
        for chat in self.store.chats().await? {
            let key = InstanceKey::new(chat.agent.clone(), chat.project.clone(), Purpose::Chat);
            let is_open = open.iter().any(|launch| {
                launch.key == key && !matches!(launch.state, LaunchState::Ended { .. })
            });
            let last_old = self.store.last_message_before(&chat, before).await?;
            let record = self.store.pair(&key).await?;
            if let Some(up_to) = retention.messages_up_to(&record, is_open, last_old) {
                self.forget(Change::ForgetMessages(chat, up_to)).await?;
                n_chats += 1;
            }
        }
        counters::FORGOTTEN.add_many("chat", n_chats);
        Ok(n_chats)
    }

    async fn forget(&self, change: Change) -> Result<(), ServiceError> {
        match self.commit(Commit { expect: Vec::new(), changes: vec![change] }).await {
            Ok(()) => Ok(()),
            Err(CommitError::Store(error)) => Err(error.into()),
            Err(CommitError::Outdated { .. } | CommitError::OpenLaunch { .. }) => {
                Err(ServiceError::Contended)
            }
        }
    }
}
