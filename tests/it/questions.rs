//! The tests' questions to a store. Each question is a read of its own.

use domain::event::{Event, EventSpan};
use domain::id::{ExecutionId, LaunchId, TaskId};
use domain::secret::TokenHash;
use domain::{
    Agent, AgentId, Credential, Execution, InstanceKey, Launch, Message, Notice, Session,
    StartFacts, StartHistory, Task, Timestamp,
};
use futures::future::BoxFuture;
use store::rows::{
    Store, agents, credentials, events, executions, launches, messages, notices, output_tails,
    pauses, projects, sessions, start_histories, startable, tasks,
};
use store::{HistoryFilter, LaunchFilter, MessageFilter, Read, StoreError, TaskFilter};

pub type Answer<T> = BoxFuture<'static, Result<T, StoreError>>;

/// The questions of tests.
pub trait Questions {
    fn ask<T: Send + 'static>(
        &self,
        body: impl FnOnce(&mut Read<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Answer<T>;

    fn agent(&self, id: &AgentId) -> Answer<Option<Agent>> {
        let id = id.clone();
        self.ask(move |tx| agents::get(tx, &id))
    }

    fn agents(&self) -> Answer<Vec<Agent>> {
        self.ask(agents::list)
    }

    /// Returns the numbers of agents and projects.
    fn counts(&self) -> Answer<(u64, u64)> {
        self.ask(|tx| Ok((agents::count(tx)?, projects::count(tx)?)))
    }

    fn task(&self, id: &TaskId) -> Answer<Option<Task>> {
        let id = id.clone();
        self.ask(move |tx| tasks::get(tx, &id))
    }

    fn tasks(&self, filter: &TaskFilter) -> Answer<Vec<Task>> {
        let filter = filter.clone();
        self.ask(move |tx| tasks::list(tx, &filter))
    }

    fn launch(&self, id: &LaunchId) -> Answer<Option<Launch>> {
        let id = id.clone();
        self.ask(move |tx| launches::get(tx, &id))
    }

    fn launch_by_ticket(&self, ticket: &TokenHash) -> Answer<Option<Launch>> {
        let ticket = ticket.clone();
        self.ask(move |tx| launches::find_by_ticket(tx, &ticket))
    }

    fn open_launches(&self) -> Answer<Vec<Launch>> {
        self.ask(launches::list_open)
    }

    fn launches(&self, filter: &LaunchFilter) -> Answer<Vec<Launch>> {
        let filter = filter.clone();
        self.ask(move |tx| launches::list(tx, &filter))
    }

    fn output_tail(&self, launch: &LaunchId) -> Answer<Option<String>> {
        let launch = launch.clone();
        self.ask(move |tx| output_tails::get(tx, &launch))
    }

    fn session_by_token(&self, token: &TokenHash) -> Answer<Option<Session>> {
        let token = token.clone();
        self.ask(move |tx| sessions::find_by_token(tx, &token))
    }

    fn open_sessions(&self) -> Answer<Vec<Session>> {
        self.ask(sessions::list_open)
    }

    fn sessions_of(&self, launch: &LaunchId) -> Answer<Vec<Session>> {
        let launch = launch.clone();
        self.ask(move |tx| sessions::list_of_launch(tx, &launch))
    }

    fn executions(&self, filter: &HistoryFilter<ExecutionId>) -> Answer<Vec<Execution>> {
        let filter = filter.clone();
        self.ask(move |tx| executions::list(tx, &filter))
    }

    fn executions_of_task(&self, task: &TaskId) -> Answer<Vec<Execution>> {
        let task = task.clone();
        self.ask(move |tx| executions::list_of_task(tx, &task))
    }

    fn executions_of_launch(&self, launch: &LaunchId) -> Answer<Vec<Execution>> {
        let launch = launch.clone();
        self.ask(move |tx| executions::list_of_launch(tx, &launch))
    }

    fn open_notices(&self) -> Answer<Vec<Notice>> {
        self.ask(notices::list_open)
    }

    fn messages(&self, filter: &MessageFilter) -> Answer<Vec<Message>> {
        let filter = filter.clone();
        self.ask(move |tx| messages::list(tx, &filter))
    }

    fn pair(&self, key: &InstanceKey) -> Answer<StartHistory> {
        let key = key.clone();
        self.ask(move |tx| start_histories::get(tx, &key))
    }

    fn held_pairs(&self) -> Answer<Vec<StartHistory>> {
        self.ask(start_histories::list_held)
    }

    fn pair_facts(&self, key: &InstanceKey) -> Answer<StartFacts> {
        let key = key.clone();
        self.ask(move |tx| startable::of_key(tx, &key))
    }

    fn startable(&self) -> Answer<Vec<StartFacts>> {
        self.ask(startable::list)
    }

    fn paused_since(&self) -> Answer<Option<Timestamp>> {
        self.ask(pauses::since)
    }

    fn credentials(&self) -> Answer<Vec<Credential>> {
        self.ask(credentials::list)
    }

    fn events(&self, after: i64, limit: usize) -> Answer<Vec<Event>> {
        self.ask(move |tx| events::list(tx, after, limit))
    }

    fn event_span(&self) -> Answer<EventSpan> {
        self.ask(events::span)
    }
}

impl Questions for Store {
    fn ask<T: Send + 'static>(
        &self,
        body: impl FnOnce(&mut Read<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Answer<T> {
        Box::pin(self.read(body))
    }
}
