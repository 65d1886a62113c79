//! The connection to the server: made when it is needed, given up when a call on it is lost, made again by the next call.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::sync::{Mutex, watch};

use super::LinkState;
use crate::domain::{Secret, ServerAddress};
use crate::mcp_client::{CallError, ConnectError, McpClient};
use crate::telemetry::ErrorChain;

/// Arguments that a server may not know, and does without.
const OPTIONAL: [&str; 2] = ["coordinator_id", "coordinator_token"];

pub(super) struct Link {
    server: ServerAddress,
    token: Option<Secret>,
    client: Mutex<Option<Arc<McpClient>>>,
    state: watch::Sender<LinkState>,
}

/// The server could not be asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Call(#[from] CallError),
    /// It answered its health check, with something else than "ok".
    #[error("the server says that it is `{0}`")]
    Unhealthy(String),
}

impl Link {
    pub(super) fn new(server: ServerAddress, token: Option<Secret>) -> Self {
        Self { server, token, client: Mutex::new(None), state: watch::Sender::new(LinkState::default()) }
    }

    pub(super) fn state(&self) -> watch::Receiver<LinkState> {
        self.state.subscribe()
    }

    /// The connection there is, or a new one. One attempt at a time; others wait for it.
    pub(super) async fn client(&self) -> Result<Arc<McpClient>, LinkError> {
        let mut client = self.client.lock().await;
        if let Some(client) = client.as_ref().filter(|client| !client.is_closed()) {
            return Ok(Arc::clone(client));
        }
        *client = None;
        match McpClient::connect(&self.server, self.token.as_ref()).await {
            Ok(connected) => Ok(Arc::clone(client.insert(Arc::new(connected)))),
            Err(error) => {
                let error = LinkError::from(error);
                self.note(Some(&error));
                Err(error)
            }
        }
    }

    /// One call, with the arguments that the server knows. A connection on which it is lost is given up.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        client: &Arc<McpClient>,
        tool: &str,
        arguments: Value,
        patience: Duration,
    ) -> Result<T, LinkError> {
        let Value::Object(mut arguments) = arguments else { unreachable!("arguments are an object") };
        self.identify(client, tool, &mut arguments);
        let result = client.call(tool, arguments, patience).await.map_err(LinkError::from);
        match &result {
            // What it can't be asked, or refuses, says nothing about the connection.
            Ok(_) | Err(LinkError::Call(CallError::Refused { .. })) => self.note(None),
            Err(error) => {
                self.note(Some(error));
                let mut current = self.client.lock().await;
                if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, client)) {
                    *current = None;
                }
            }
        }
        result
    }

    fn identify(&self, client: &McpClient, tool: &str, arguments: &mut Map<String, Value>) {
        if let (Some(token), ServerAddress::Socket(_)) = (&self.token, &self.server) {
            arguments.insert("coordinator_token".to_owned(), token.reveal().into());
        }
        for name in OPTIONAL {
            if !client.takes(tool, name) {
                arguments.remove(name);
            }
        }
        arguments.retain(|_, value| !value.is_null());
    }

    fn note(&self, problem: Option<&LinkError>) {
        let problem = problem.map(|error| ErrorChain(error).to_string());
        self.state.send_if_modified(|state| {
            let is_news = state.problem != problem;
            state.problem = problem;
            is_news
        });
    }
}
