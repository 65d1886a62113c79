//! The one way in which every tool is called, whatever the transport: a span, the caller, the call, the form of the answer.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::http::request::Parts;
use futures::FutureExt as _;
use rmcp::RoleServer;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestMethod, CompleteRequestParams, CompleteResult,
    CustomRequest, CustomResult, ErrorCode, ErrorData, Implementation, JsonObject, ListPromptsRequestMethod,
    ListPromptsResult, ListResourceTemplatesRequestMethod, ListResourceTemplatesResult, ListResourcesRequestMethod,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;
use tracing::field::Empty;

use super::envelope::{AUTHENTICATE, CallError, Incoming, Sender, answer, refused};
use super::throttle::Throttle;
use super::tools::{self, Call, Called, Tools};
use crate::domain::{Refusal, Secret};
use crate::peer::{LocalPeer, Peer};
use crate::service::{Service, ServiceError};

/// What all connections share.
#[derive(Clone)]
pub struct McpServer {
    service: Arc<Service>,
    tools: Arc<Tools>,
    coordinator_token: Arc<Secret>,
    throttle: Arc<Throttle>,
    /// Calls that are being answered; the shutdown waits for them.
    calls: TaskTracker,
}

impl McpServer {
    /// `coordinator_token` is what a coordinator shows where it is not known by its process.
    pub fn new(service: Arc<Service>, coordinator_token: Secret) -> Self {
        Self {
            service,
            tools: Arc::new(tools::all()),
            coordinator_token: Arc::new(coordinator_token),
            throttle: Arc::default(),
            calls: TaskTracker::new(),
        }
    }

    /// Returns when no call is being answered.
    pub async fn settled(&self) {
        self.calls.close();
        self.calls.wait().await;
    }

    /// For all calls of one process.
    pub(super) fn for_peer(&self, peer: LocalPeer) -> Connection {
        Connection { server: self.clone(), sender: Some(Sender { peer: Peer::Local(peer), bearer: None }) }
    }

    /// For calls that bring their [`Sender`] with them, as an extension of the HTTP request.
    pub(super) fn for_requests(&self) -> Connection {
        Connection { server: self.clone(), sender: None }
    }
}

/// The server as a client sees it.
pub(super) struct Connection {
    server: McpServer,
    sender: Option<Sender>,
}

impl Connection {
    async fn call(&self, request: CallToolRequestParams, sender: &Sender) -> Result<CallToolResponse, ErrorData> {
        let Some((name, call)) = self.server.tools.find(&request.name) else {
            let known: Vec<_> = self.server.tools.definitions().iter().map(|tool| tool.name.as_ref()).collect();
            let problem = format!("unknown tool `{}`; there are: {}", request.name, known.join(", "));
            return Err(ErrorData::invalid_params(problem, None));
        };
        let _in_flight = self.server.calls.token();
        let arguments = request.arguments.unwrap_or_default();
        let incoming = Incoming {
            service: &self.server.service,
            sender,
            coordinator_token: &self.server.coordinator_token,
            arguments: &arguments,
        };
        let span = tracing::info_span!(
            "tool_call",
            tool = name,
            peer = %sender.peer,
            launch_id = Empty,
            agent_id = Empty,
            project_id = Empty,
            purpose = Empty,
            session_id = Empty
        );
        self.answer(name, call, &incoming).instrument(span).await
    }

    async fn answer(&self, name: &str, call: Call, incoming: &Incoming<'_>) -> Result<CallToolResponse, ErrorData> {
        // A call changes nothing but the store, and that by whole commits: a panic leaves nothing half-done behind.
        let Ok(Called { result, is_notified }) = AssertUnwindSafe(call(incoming)).catch_unwind().await else {
            tracing::error!("a tool panicked");
            return Err(ErrorData::internal_error(format!("{name}: this is a bug of agent-coordinator"), None));
        };
        self.hold_back(name, incoming, &result).await;
        let notification = is_notified.then(|| incoming.service.guidance().notification());
        match result {
            Ok(object) => Ok(answer(object, notification).into()),
            Err(CallError::Service(error)) => Ok(refused(name, &error, notification).into()),
            Err(CallError::Arguments(problem)) => {
                // Without the words, which may hold what was sent: a passkey, perhaps.
                tracing::debug!("malformed tool call");
                Err(ErrorData::invalid_params(format!("{name}: {problem}"), None))
            }
        }
    }
}

impl Connection {
    /// Rate limit of what could be guessed at: a passkey, and over the network a token.
    async fn hold_back(&self, name: &str, incoming: &Incoming<'_>, result: &Result<JsonObject, CallError>) {
        let subject = match &incoming.sender.peer {
            _ if name == AUTHENTICATE => {
                incoming.arguments.get("agent_id").and_then(|id| id.as_str()).unwrap_or_default().to_owned()
            }
            Peer::Network(address) => format!("tokens from {}", address.ip()),
            Peer::Local(_) => return,
        };
        match result {
            Ok(_) if name == AUTHENTICATE => self.server.throttle.succeeded(&subject),
            Err(CallError::Service(ServiceError::Refused(
                Refusal::InvalidCredentials | Refusal::InvalidSession | Refusal::CoordinatorOnly,
            ))) => tokio::time::sleep(self.server.throttle.failed(&subject)).await,
            Ok(_) | Err(_) => {}
        }
    }
}

impl ServerHandler for Connection {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("agent-coordinator", env!("CARGO_PKG_VERSION")))
            .with_instructions(
                "Begin with authenticate and do what its answer says. For a task: get_my_task, work in your current directory, \
                 end with report_completed. For a chat: get_next_action again and again, answer with respond_chat.",
            )
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let of_request = || context.extensions.get::<Parts>()?.extensions.get::<Sender>();
        let Some(sender) = self.sender.as_ref().or_else(of_request) else {
            return Err(ErrorData::internal_error("nobody knows who called: this is a bug of agent-coordinator", None));
        };
        self.call(request, sender).await
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.server.tools.definitions().to_vec()))
    }

    /// What the library takes for no request that it knows: an unknown method, or a known one with other params.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let problem = match request.method.as_str() {
            "tools/call" => "tools/call: params must have `name`, a string, and may have `arguments`, an object",
            "initialize" => "initialize: params must have protocolVersion, capabilities and clientInfo",
            unknown => {
                let problem = format!("unknown method `{unknown}`");
                return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, problem, None));
            }
        };
        Err(ErrorData::invalid_params(problem, None))
    }

    // What isn't declared isn't there; the library would answer these with empty lists.

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourcesRequestMethod>())
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourceTemplatesRequestMethod>())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }
}
