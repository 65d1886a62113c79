//! The common part of every tool call: the caller, the result, and the text of a refusal.
//!
//! A tool names its kind of caller by a type ([`Who`]). The envelope finds that caller before the
//! tool runs, so no tool can omit the check.

use std::fmt::Display;
use std::str::FromStr;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use serde_json::{Value, json};

use super::arguments::UnknownArguments;
use super::call_limits::CallLimits;
use super::sender::Sender;
use super::tools::Audience;
use super::tools::Entry;
use domain::credential::CredentialKind;
use domain::printable::excerpt;
use domain::secret::SESSION_TOKEN_PREFIX;
use domain::session::{Presenter, Transport};
use domain::{CoordinatorId, Language, LaunchId, Purpose, Refusal, Secret};
use runtime::peer::{Peer, PeerKind};
use runtime::telemetry::ErrorChain;
use service::{Caller, Service, ServiceError};

/// The tool that opens a session. Its refusals end the agent, and answers to wrong passkeys are
/// held back.
pub(super) const AUTHENTICATE: &str = "authenticate";
/// The number of characters in the description of wrong arguments, which quotes them.
const LONGEST_PROBLEM: usize = 400;

/// One call, before its caller is known.
pub(super) struct Incoming<'a> {
    pub(super) service: &'a Service,
    pub(super) limits: &'a CallLimits,
    pub(super) sender: &'a Sender,
    pub(super) coordinator_token: &'a Secret,
    pub(super) arguments: &'a JsonObject,
    /// The schema of the tool's arguments.
    pub(super) schema: &'a JsonObject,
}

/// The reason why a call has no result.
#[derive(Debug)]
pub(super) enum CallError {
    /// The arguments are wrong. The text may quote them.
    Arguments(String),
    Service(ServiceError),
}

impl From<ServiceError> for CallError {
    fn from(error: ServiceError) -> Self {
        Self::Service(error)
    }
}

impl From<Refusal> for CallError {
    fn from(refusal: Refusal) -> Self {
        Self::Service(refusal.into())
    }
}

/// A kind of caller. Finding it is the check of its rights.
pub(super) trait Who: Sized + Send {
    /// The arguments that identify the caller. Every tool for this kind of caller has them.
    const ARGUMENTS: &'static [IdentityArgument];
    /// The treatment of unknown arguments by tools for this kind of caller.
    const UNKNOWN: UnknownArguments;
    /// The callers for which the tools are listed.
    const AUDIENCE: Audience;

    fn find(incoming: &Incoming<'_>) -> impl Future<Output = Result<Self, CallError>> + Send;

    /// Returns the agent, if the caller has shown a session.
    fn caller(&self) -> Option<&Caller> {
        None
    }

    /// Returns whether the caller has unsettled notices.
    fn has_notices(&self) -> bool {
        self.caller().is_some_and(|caller| caller.launch.n_notices > 0)
    }
}

/// An argument that identifies the caller. It is always a string.
#[derive(Clone, Copy)]
pub(super) struct IdentityArgument {
    pub(super) name: &'static str,
    /// The description for models.
    pub(super) text: &'static str,
    pub(super) is_required: bool,
}

/// Any client that can connect.
pub(super) struct Visitor {
    /// The caller is a process of this machine, or has shown a token of a coordinator, an operator
    /// or a session.
    pub(super) is_known: bool,
    /// The caller is an agent that has notices.
    has_notices: bool,
}

impl Who for Visitor {
    const AUDIENCE: Audience = Audience::Agents(None);
    const ARGUMENTS: &'static [IdentityArgument] = &[];
    const UNKNOWN: UnknownArguments = UnknownArguments::Ignore;

    async fn find(incoming: &Incoming<'_>) -> Result<Self, CallError> {
        if incoming.sender.peer.kind().is_some() {
            return Ok(Self { is_known: true, has_notices: incoming.has_notices().await });
        }
        let arguments = ["session_token", "token", "coordinator_token"];
        let given =
            arguments.map(|name| incoming.text(name)).into_iter().collect::<Result<Vec<_>, _>>()?;
        for token in given.into_iter().flatten().chain(incoming.sender.bearer.clone()) {
            let checked = async {
                incoming.is_good(&token).await?.then_some(()).ok_or(Refusal::InvalidSession.into())
            };
            match incoming.limits.check_token(&incoming.sender.peer, &token, checked).await {
                Ok(()) => {
                    return Ok(Self { is_known: true, has_notices: incoming.has_notices().await });
                }
                Err(CallError::Service(ServiceError::Refused(Refusal::InvalidSession))) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { is_known: false, has_notices: false })
    }

    fn has_notices(&self) -> bool {
        self.has_notices
    }
}

/// A caller that is about to authenticate.
pub(super) struct AuthenticatingCaller {
    transport: Transport,
    /// The launch of the agent, if it is known.
    launch: Option<LaunchId>,
}

impl AuthenticatingCaller {
    pub(super) fn presenter(&self) -> Presenter<'_> {
        Presenter { transport: self.transport, launch: self.launch.as_ref() }
    }
}

impl Who for AuthenticatingCaller {
    const AUDIENCE: Audience = Audience::Agents(None);
    const ARGUMENTS: &'static [IdentityArgument] = &[];
    const UNKNOWN: UnknownArguments = UnknownArguments::Refuse;

    async fn find(incoming: &Incoming<'_>) -> Result<Self, CallError> {
        Ok(Self {
            transport: incoming.sender.transport(),
            launch: incoming.sender.launch().cloned(),
        })
    }
}

/// An agent with an open session for any purpose. It is boxed, because it is passed from future to
/// future while a call waits.
pub(super) struct AgentSession(pub(super) Box<Caller>);

const SESSION_TOKEN: &[IdentityArgument] = &[IdentityArgument {
    name: "session_token",
    text: "The session_token that authenticate returned.",
    is_required: true,
}];

impl Who for AgentSession {
    const AUDIENCE: Audience = Audience::Agents(None);
    const ARGUMENTS: &'static [IdentityArgument] = SESSION_TOKEN;
    const UNKNOWN: UnknownArguments = UnknownArguments::Refuse;

    async fn find(incoming: &Incoming<'_>) -> Result<Self, CallError> {
        let token = incoming.session_token()?;
        let identified = async {
            Ok(incoming.service.sessions.identify(&token, incoming.sender.presenter()).await?)
        };
        let caller = incoming.limits.check_token(&incoming.sender.peer, &token, identified).await?;
        incoming.check_own_session(&caller)?;
        Ok(Self(Box::new(noted(caller))))
    }

    fn caller(&self) -> Option<&Caller> {
        Some(&self.0)
    }
}

/// An agent that asks for its next action; `None` if its chat is over.
pub(super) struct Asker(pub(super) Option<Box<Caller>>);

impl Who for Asker {
    const AUDIENCE: Audience = Audience::Agents(None);
    const ARGUMENTS: &'static [IdentityArgument] = SESSION_TOKEN;
    const UNKNOWN: UnknownArguments = UnknownArguments::Refuse;

    async fn find(incoming: &Incoming<'_>) -> Result<Self, CallError> {
        let token = incoming.session_token()?;
        let presenter = incoming.sender.presenter();
        let identified =
            async { Ok(incoming.service.sessions.identify_unless_over(&token, presenter).await?) };
        let Some(caller) =
            incoming.limits.check_token(&incoming.sender.peer, &token, identified).await?
        else {
            return Ok(Self(None));
        };
        incoming.check_own_session(&caller)?;
        Ok(Self(Some(Box::new(noted(caller)))))
    }

    fn caller(&self) -> Option<&Caller> {
        self.0.as_deref()
    }
}

/// An agent with an open session for a task.
pub(super) struct TaskSession(pub(super) Box<Caller>);

impl Who for TaskSession {
    const AUDIENCE: Audience = Audience::Agents(Some(Purpose::Task));
    const ARGUMENTS: &'static [IdentityArgument] = SESSION_TOKEN;
    const UNKNOWN: UnknownArguments = UnknownArguments::Refuse;

    async fn find(incoming: &Incoming<'_>) -> Result<Self, CallError> {
        let AgentSession(caller) = AgentSession::find(incoming).await?;
        Ok(Self(for_purpose(Purpose::Task, "get_next_action", caller)?))
    }

    fn caller(&self) -> Option<&Caller> {
        Some(&self.0)
    }
}

/// An agent with an open session for a chat.
pub(super) struct ChatSession(pub(super) Box<Caller>);

impl Who for ChatSession {
    const AUDIENCE: Audience = Audience::Agents(Some(Purpose::Chat));
    const ARGUMENTS: &'static [IdentityArgument] = SESSION_TOKEN;
    const UNKNOWN: UnknownArguments = UnknownArguments::Refuse;

    async fn find(incoming: &Incoming<'_>) -> Result<Self, CallError> {
        let AgentSession(caller) = AgentSession::find(incoming).await?;
        Ok(Self(for_purpose(Purpose::Chat, "get_my_task", caller)?))
    }

    fn caller(&self) -> Option<&Caller> {
        Some(&self.0)
    }
}

/// Returns the caller if its session has this purpose. Otherwise the refusal names the right tool.
fn for_purpose(
    purpose: Purpose,
    instead: &'static str,
    caller: Box<Caller>,
) -> Result<Box<Caller>, Refusal> {
    let has = caller.session.key.purpose;
    if has == purpose { Ok(caller) } else { Err(Refusal::WrongPurpose { purpose: has, instead }) }
}

/// An agent that reports the end of its task, perhaps in a repeated call.
pub(super) struct Reporter(pub(super) Box<Caller>);

impl Who for Reporter {
    const AUDIENCE: Audience = Audience::Agents(Some(Purpose::Task));
    const ARGUMENTS: &'static [IdentityArgument] = SESSION_TOKEN;
    const UNKNOWN: UnknownArguments = UnknownArguments::Refuse;

    async fn find(incoming: &Incoming<'_>) -> Result<Self, CallError> {
        let token = incoming.session_token()?;
        let identified = async {
            Ok(incoming
                .service
                .sessions
                .identify_reporter(&token, incoming.sender.presenter())
                .await?)
        };
        let caller = incoming.limits.check_token(&incoming.sender.peer, &token, identified).await?;
        incoming.check_own_session(&caller)?;
        Ok(Self(for_purpose(Purpose::Task, "logout", Box::new(noted(caller)))?))
    }

    fn caller(&self) -> Option<&Caller> {
        Some(&self.0)
    }
}

/// Puts the caller's ids on the span of the call, so that every line about it can be found by its
/// launch.
fn noted(caller: Caller) -> Caller {
    let span = tracing::Span::current();
    span.record("launch_id", tracing::field::display(&caller.launch.id));
    span.record("agent_id", tracing::field::display(&caller.session.key.agent));
    span.record("project_id", tracing::field::display(&caller.session.key.project));
    span.record("purpose", tracing::field::display(caller.session.key.purpose));
    span.record("session_id", tracing::field::display(&caller.session.id));
    caller
}

/// A coordinator: a caller with its token, or a process of this machine that is not an agent.
pub(super) struct Coordinator {
    /// The id that the coordinator sent, if any.
    pub(super) id: Option<CoordinatorId>,
}

impl Who for Coordinator {
    const AUDIENCE: Audience = Audience::Coordinators;
    const UNKNOWN: UnknownArguments = UnknownArguments::Ignore;
    const ARGUMENTS: &'static [IdentityArgument] = &[
        IdentityArgument {
            name: "coordinator_token",
            text: "The coordinator token. Processes of the daemon's user that are not agents do not need \
                   it on the socket.",
            is_required: false,
        },
        IdentityArgument {
            name: "coordinator_id",
            text: "The id of the calling coordinator: a name of its choice that never changes.",
            is_required: false,
        },
        IdentityArgument {
            name: "coordinator_incarnation",
            text: "The start of the calling coordinator: NUMBER.MARK. A later start has a greater number. \
                   From its first call on, earlier starts are refused.",
            is_required: false,
        },
    ];

    async fn find(incoming: &Incoming<'_>) -> Result<Self, CallError> {
        match incoming.token("coordinator_token")? {
            Some(token) => {
                let compared = async {
                    let is_right = token == *incoming.coordinator_token;
                    is_right.then_some(()).ok_or_else(|| Refusal::CoordinatorOnly.into())
                };
                incoming.limits.check_token(&incoming.sender.peer, &token, compared).await?;
            }
            None if incoming.sender.peer.kind() == Some(&PeerKind::Operator) => {}
            None => return Err(Refusal::CoordinatorOnly.into()),
        }
        let id = incoming.parsed("coordinator_id")?;
        let incarnation = incoming.parsed("coordinator_incarnation")?;
        match &id {
            Some(id) => incoming.service.coordinators.hear(id, incarnation)?,
            None => incoming.service.coordinators.hear_unnamed(),
        }
        // Scripts that use these tools do not send an incarnation.
        if let (Some(_), Peer::Local(peer)) = (incarnation, &incoming.sender.peer) {
            peer.note_as_coordinator();
        }
        Ok(Self { id })
    }
}

/// A coordinator that sends its id.
pub(super) struct NamedCoordinator(pub(super) CoordinatorId);

impl Who for NamedCoordinator {
    const AUDIENCE: Audience = Audience::Coordinators;
    const UNKNOWN: UnknownArguments = UnknownArguments::Ignore;
    const ARGUMENTS: &'static [IdentityArgument] = &[
        Coordinator::ARGUMENTS[0],
        IdentityArgument { is_required: true, ..Coordinator::ARGUMENTS[1] },
        Coordinator::ARGUMENTS[2],
    ];

    async fn find(incoming: &Incoming<'_>) -> Result<Self, CallError> {
        let Coordinator { id } = Coordinator::find(incoming).await?;
        id.map(Self).ok_or_else(|| missing("coordinator_id"))
    }
}

impl Incoming<'_> {
    /// Refuses an agent that shows the session of a launch, but runs outside that launch.
    fn check_own_session(&self, caller: &Caller) -> Result<(), Refusal> {
        let launch = &caller.launch;
        let Peer::Local(peer) = &self.sender.peer else {
            return Ok(());
        };
        let Some(processes) = peer.ancestors_of_unknown_agent() else {
            return Ok(());
        };
        if launch.is_kept() && self.service.launches.is_outside_launch(&launch.id, processes) {
            tracing::info!(launch_id = %launch.id, "a process of an unknown agent presented a session token");
            return Err(Refusal::InvalidSession);
        }
        Ok(())
    }

    /// Returns whether an agent that a tool refused has notices.
    pub(super) async fn has_notices_despite(&self, error: &CallError) -> bool {
        match error {
            CallError::Arguments(_)
            | CallError::Service(ServiceError::Refused(
                Refusal::WrongPurpose { .. } | Refusal::CoordinatorOnly,
            )) => self.has_notices().await,
            // The agent has no session, or the answer must not cost a read of the store.
            CallError::Service(_) => false,
        }
    }

    /// Returns whether there are notices for the session of the token in the call, or else for the
    /// launch of the caller's process.
    async fn has_notices(&self) -> bool {
        let token = self.session_token().ok();
        let Some(token) = token.filter(|token| token.reveal().starts_with(SESSION_TOKEN_PREFIX))
        else {
            let Some(launch) = self.sender.launch() else {
                return false;
            };
            return self
                .service
                .launches
                .get(launch)
                .await
                .is_ok_and(|launch| launch.n_notices > 0);
        };
        let identified =
            async { Ok(self.service.sessions.identify(&token, self.sender.presenter()).await?) };
        let caller = self.limits.check_token(&self.sender.peer, &token, identified).await;
        caller.is_ok_and(|caller| caller.launch.n_notices > 0)
    }

    /// Returns the token of a session. Some older clients call the argument `token`
    /// (docs/migration.md).
    pub(super) fn session_token(&self) -> Result<Secret, CallError> {
        let token = self
            .text("session_token")?
            .map_or_else(|| self.token("token"), |token| Ok(Some(token)))?;
        token.ok_or_else(|| missing("session_token"))
    }

    /// Returns whether a token belongs to a coordinator, an operator, or an open session.
    async fn is_good(&self, token: &Secret) -> Result<bool, ServiceError> {
        if token == self.coordinator_token
            || self.service.credentials.find(CredentialKind::Token, token).await?.is_some()
        {
            return Ok(true);
        }
        match self.service.sessions.identify(token, self.sender.presenter()).await {
            Ok(_) => Ok(true),
            Err(ServiceError::Refused(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns a token: the argument, or else the token of the transport.
    fn token(&self, name: &str) -> Result<Option<Secret>, CallError> {
        Ok(self.text(name)?.or_else(|| self.sender.bearer.clone()))
    }

    /// Returns a text argument with its own grammar.
    fn parsed<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, CallError> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let parsed = text
            .reveal()
            .parse()
            .map_err(|invalid| CallError::Arguments(format!("argument `{name}`: {invalid}")));
        parsed.map(Some)
    }

    /// Returns a text argument.
    fn text(&self, name: &str) -> Result<Option<Secret>, CallError> {
        match self.arguments.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(Secret::new(text.as_str()))),
            Some(other) => Err(CallError::Arguments(format!(
                "argument `{name}` must be a string, not {}",
                kind(other)
            ))),
        }
    }
}

fn missing(name: &str) -> CallError {
    CallError::Arguments(format!("argument `{name}` is missing"))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Returns the one form of an answer: a JSON object, as structured content and, byte for byte, as
/// text.
pub(super) fn answer(mut object: JsonObject, notification: Option<&str>) -> CallToolResult {
    if let Some(notification) = notification {
        object.insert("notification".to_owned(), notification.into());
    }
    let value = Value::Object(object);
    let mut result = CallToolResult::success(vec![ContentBlock::text(value.to_string())]);
    result.structured_content = Some(value);
    result
}

/// Returns the one form of a refusal.
pub(super) fn refused(
    tool: &str,
    error: &ServiceError,
    notification: Option<&str>,
) -> CallToolResult {
    let (code, hint) = match error {
        ServiceError::Refused(refusal) => (refusal.code(), refusal.hint(Language::English)),
        ServiceError::Store(_) => {
            tracing::error!(error = %ErrorChain(error), "tool call failed");
            (
                "unavailable",
                Some("the coordinator can't answer just now; wait a little and call again"),
            )
        }
    };
    let mut object = refusal(&error.to_string(), code, hint, notification);
    // A caller that is refused here has nothing to wait for, unless it came too often.
    if tool == AUTHENTICATE
        && matches!(error, ServiceError::Refused(refusal) if !refusal.is_passing())
    {
        object["action"] = "exit".into();
    }
    error_result(object)
}

/// Returns the refusal of a call with wrong arguments. A model can read it and correct the call;
/// many clients keep JSON-RPC errors from their models (MCP 2025-11-25, SEP-1303).
pub(super) fn refused_arguments(
    tool: &Entry,
    problem: &str,
    notification: Option<&str>,
) -> CallToolResult {
    let problem = excerpt(problem, LONGEST_PROBLEM);
    error_result(refusal(&problem, "invalid_arguments", Some(&tool.arguments_hint()), notification))
}

fn refusal(error: &str, code: &str, hint: Option<&str>, notification: Option<&str>) -> Value {
    let mut object = json!({ "success": false, "error": error, "error_code": code });
    if let Some(hint) = hint {
        object["hint"] = hint.into();
    }
    if let Some(notification) = notification {
        object["notification"] = notification.into();
    }
    object
}

fn error_result(object: Value) -> CallToolResult {
    let mut result = CallToolResult::error(vec![ContentBlock::text(object.to_string())]);
    result.structured_content = Some(object);
    result
}
