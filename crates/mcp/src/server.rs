//! The common path of all tool calls on every transport: a span, the caller, the call, the form of
//! the answer.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use futures::FutureExt as _;
use rmcp::RoleServer;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestMethod, CompleteRequestParams,
    CompleteResult, CustomRequest, CustomResult, ErrorCode, ErrorData, Implementation,
    ListPromptsRequestMethod, ListPromptsResult, ListResourceTemplatesRequestMethod,
    ListResourceTemplatesResult, ListResourcesRequestMethod, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;
use tracing::field::Empty;

use super::call_limits::CallLimits;
use super::envelope::{CallError, Incoming, answer, refused, refused_arguments};
use super::progress::CallProgress;
use super::refusals::RefusalLog;
use super::sender::Sender;
use super::tools::{self, Called, Entry, Tools};
use domain::printable::excerpt;
use domain::{Purpose, Secret};
use runtime::peer::{LocalPeer, Peer};
use service::{Service, ServiceError};

/// The number of characters of a name that an error quotes.
const LONGEST_NAME: usize = 80;
/// The time between two looks for the report of an agent's shim.
const SHIM_REPORT_PAUSE: Duration = Duration::from_millis(50);
const SHIM_REPORT_LOOKS: usize = 40;

/// The state that all connections share.
#[derive(Clone)]
pub struct McpServer {
    service: Arc<Service>,
    tools: Arc<Tools>,
    coordinator_token: watch::Sender<Arc<Secret>>,
    limits: Arc<CallLimits>,
    refusals: Arc<RefusalLog>,
    /// Calls that are being answered; the shutdown waits for them.
    calls: TaskTracker,
}

impl McpServer {
    /// Returns the peer with its launch, if the shim of that launch was reported.
    pub(super) fn with_launch<'a>(&self, peer: &'a LocalPeer) -> Cow<'a, LocalPeer> {
        let found = peer.with_launch(|processes| self.service.launches.find_launch_of(processes));
        found.map_or(Cow::Borrowed(peer), Cow::Owned)
    }

    /// Creates the server. A coordinator that is not known by its process shows
    /// `coordinator_token`.
    pub fn new(service: Arc<Service>, coordinator_token: Secret) -> Self {
        Self {
            service,
            tools: Arc::new(tools::all()),
            coordinator_token: watch::Sender::new(Arc::new(coordinator_token)),
            limits: Arc::default(),
            refusals: Arc::default(),
            calls: TaskTracker::new(),
        }
    }

    /// Replaces the token of coordinators from the next call on.
    pub fn set_coordinator_token(&self, token: Secret) {
        self.coordinator_token.send_replace(Arc::new(token));
    }

    /// Returns when no call is being answered.
    pub async fn settled(&self) {
        self.calls.close();
        self.calls.wait().await;
    }

    /// Returns the service for all calls of one process.
    pub(super) fn for_peer(&self, peer: LocalPeer) -> Connection {
        Connection {
            server: self.clone(),
            sender: Some(Sender {
                peer: Peer::Local(peer),
                bearer: None,
                hears_progress: true,
                // The library says it of each call.
                gone: CancellationToken::new(),
            }),
        }
    }

    /// Returns the service for calls that bring their [`Sender`] with them, as an extension of the
    /// HTTP request.
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
    async fn call(
        &self,
        request: CallToolRequestParams,
        sender: &Sender,
        progress: CallProgress,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = self.server.tools.find(&request.name) else {
            let known: Vec<_> =
                self.server.tools.definitions().iter().map(|tool| tool.name.as_ref()).collect();
            let name = excerpt(&request.name, LONGEST_NAME);
            let problem = format!("unknown tool `{name}`; there are: {}", known.join(", "));
            return Err(ErrorData::invalid_params(problem, None));
        };
        let _in_flight = self.server.calls.token();
        let arguments = request.arguments.unwrap_or_default();
        let sender = &*sender.with_launch(&self.server.service);
        let coordinator_token = Arc::clone(&self.server.coordinator_token.borrow());
        let incoming = Incoming {
            service: &self.server.service,
            limits: &self.server.limits,
            sender,
            coordinator_token: &coordinator_token,
            arguments: &arguments,
            schema: tool.schema(),
        };
        let span = tracing::info_span!(
            "tool_call",
            tool = tool.name,
            peer = %sender.peer,
            launch_id = Empty,
            agent_id = Empty,
            project_id = Empty,
            purpose = Empty,
            session_id = Empty
        );
        // The future is on the heap: each layer around a future needs its own place for it, and a
        // thousand calls may wait.
        let answered = async {
            tracing::debug!("tool call begun");
            let answered = progress.run(tool.waits, Box::pin(self.answer(tool, &incoming))).await;
            answered.unwrap_or_else(|| {
                tracing::debug!(reason = "client_gone", "tool call dropped");
                // The client does not read this.
                Err(ErrorData::internal_error(
                    format!("{}: the call was cancelled", tool.name),
                    None,
                ))
            })
        };
        answered.instrument(span).await
    }

    async fn answer(
        &self,
        tool: &Entry,
        incoming: &Incoming<'_>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = tool.name;
        self.server.refusals.log_counted();
        let attempt = match self.server.limits.admit(name, incoming).await {
            Ok(attempt) => attempt,
            Err(refusal) => {
                self.server.refusals.note(incoming, &refusal);
                return Ok(refused(name, &refusal.into(), None).into());
            }
        };
        // A call changes only the store, in whole commits, so a panic leaves no incomplete change.
        let Ok(Called { result, is_notified }) =
            AssertUnwindSafe((tool.call)(incoming)).catch_unwind().await
        else {
            tracing::error!("a tool panicked");
            return Err(ErrorData::internal_error(
                format!("{name}: this is a bug of agent-coordinator"),
                None,
            ));
        };
        let notification = is_notified.then(|| incoming.service.guidance().notification());
        match self.server.limits.hold_back(attempt, incoming, result).await {
            Ok(object) => Ok(answer(object, notification).into()),
            Err(CallError::Service(error)) => {
                if let ServiceError::Refused(refusal) = &error {
                    self.server.refusals.note(incoming, refusal);
                }
                Ok(refused(name, &error, notification).into())
            }
            Err(CallError::Arguments(problem)) => {
                // The text is left out, because it may contain a passkey that was sent.
                tracing::debug!("tool call with wrong arguments");
                Ok(refused_arguments(tool, &problem, notification).into())
            }
        }
    }
}

impl Connection {
    /// Returns the purpose of the launch whose agent is at the other end of the socket; `None` for
    /// every other client.
    ///
    /// An agent may ask before its coordinator has reported its shim. The answer then waits for the
    /// report, for at most [`SHIM_REPORT_LOOKS`] × [`SHIM_REPORT_PAUSE`].
    async fn purpose(&self) -> Option<Purpose> {
        let sender = self.sender.as_ref()?;
        let mut known = sender.with_launch(&self.server.service);
        for _ in 0..SHIM_REPORT_LOOKS {
            if !known.is_unknown_agent() {
                break;
            }
            tokio::time::sleep(SHIM_REPORT_PAUSE).await;
            known = sender.with_launch(&self.server.service);
        }
        let launch = self.server.service.launches.get(known.launch()?).await;
        launch.ok().map(|launch| launch.key.purpose)
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
            return Err(ErrorData::internal_error(
                "the caller of this tool is not known: this is a bug of agent-coordinator",
                None,
            ));
        };
        Box::pin(self.call(request, sender, CallProgress::of(&context, sender))).await
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = match self.purpose().await {
            Some(purpose) => self.server.tools.definitions_for(purpose),
            None => self.server.tools.definitions().to_vec(),
        };
        Ok(ListToolsResult::with_all_items(tools))
    }

    /// Answers requests that the library does not recognise: an unknown method, or a known one with
    /// other params.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        // The newest revision has no handshake.
        let has_handshake = context
            .meta
            .protocol_version()
            .is_none_or(|version| version < ProtocolVersion::V_2026_07_28);
        let problem = match request.method.as_str() {
            "tools/call" => {
                "tools/call: params must have `name`, a string, and may have `arguments`, an object"
            }
            "initialize" if has_handshake => {
                "initialize: params must have protocolVersion, capabilities and clientInfo"
            }
            unknown => {
                let problem = format!("unknown method `{}`", excerpt(unknown, LONGEST_NAME));
                return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, problem, None));
            }
        };
        Err(ErrorData::invalid_params(problem, None))
    }

    // The server does not declare these capabilities. The library would answer with empty lists.

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
