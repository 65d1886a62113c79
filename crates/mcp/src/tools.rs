//! The list of the tools. Each tool has a file of its own and one line here.

mod authenticate;
mod chat_message;
mod create_task;
mod create_tasks_batch;
mod get_agent_action;
mod get_my_task;
mod get_my_task_progress;
mod get_next_action;
mod get_notifications;
mod get_pending_messages;
mod health_check;
mod list_active_projects_with_agents;
mod list_stop_requests;
mod logout;
mod report_activity;
mod report_completed;
mod report_process_exit;
mod report_process_started;
mod report_process_stopping;
mod report_status;
mod respond_chat;
mod save_context;
mod should_start;
mod update_task_status;
mod wait_for_work;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use futures::future::BoxFuture;
use rmcp::model::{JsonObject, Tool as Definition, ToolAnnotations};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::arguments::{UnknownArguments, count_unknown, describe_foreign, describe_unknown};
use super::compat;
use super::envelope::{CallError, Incoming, Who};
use domain::Purpose;
use runtime::telemetry::counters;
use service::{Service, ServiceError};

/// Returns all tools in the order of the list.
pub(super) fn all() -> Tools {
    let tools = [
        Tool::of::<health_check::HealthCheck>(),
        Tool::of::<list_active_projects_with_agents::ListActiveProjectsWithAgents>(),
        Tool::of::<should_start::ShouldStart>(),
        Tool::of::<wait_for_work::WaitForWork>(),
        Tool::of::<list_stop_requests::ListStopRequests>(),
        Tool::of::<report_process_started::ReportProcessStarted>(),
        Tool::of::<report_process_stopping::ReportProcessStopping>(),
        Tool::of::<report_process_exit::ReportProcessExit>(),
        Tool::of::<report_status::ReportStatus>(),
        Tool::of::<report_activity::ReportActivity>(),
        Tool::of::<get_agent_action::GetAgentAction>(),
        Tool::of::<authenticate::Authenticate>(),
        Tool::of::<get_my_task::GetMyTask>(),
        Tool::of::<get_my_task_progress::GetMyTaskProgress>(),
        Tool::of::<get_next_action::GetNextAction>(),
        Tool::of::<create_task::CreateTask>(),
        Tool::of::<create_tasks_batch::CreateTasksBatch>(),
        Tool::of::<update_task_status::UpdateTaskStatus>(),
        Tool::of::<get_notifications::GetNotifications>(),
        Tool::of::<save_context::SaveContext>(),
        Tool::of::<get_pending_messages::GetPendingMessages>(),
        Tool::of::<respond_chat::RespondChat>(),
        Tool::of::<report_completed::ReportCompleted>(),
        Tool::of::<logout::Logout>(),
    ];
    // Deprecated tools come after their successors.
    Tools::of(tools.into_iter().chain(compat::tools()))
}

/// The effect of a call, as clients are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    /// A repetition of the call changes nothing further.
    ChangesOnce,
    Changes,
}

/// The callers for which a tool is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Agents with a launch of this purpose, or of any purpose.
    Agents(Option<Purpose>),
    Coordinators,
}

impl Audience {
    /// Returns whether an agent that was started for `purpose` can use the tool.
    fn has(self, purpose: Purpose) -> bool {
        match self {
            Self::Agents(wanted) => wanted.is_none_or(|wanted| wanted == purpose),
            Self::Coordinators => false,
        }
    }
}

/// A tool as people read about it.
#[derive(Debug, Clone)]
pub struct ToolText {
    pub name: &'static str,
    pub text: String,
    pub audience: Audience,
    /// The JSON schema of its arguments.
    pub schema: Arc<JsonObject>,
}

/// Returns the texts of all tools, in the order of the list.
pub fn texts() -> Vec<ToolText> {
    let tools = all();
    let texts = tools.definitions().iter().filter_map(|definition| {
        let entry = tools.find(&definition.name)?;
        Some(ToolText {
            name: entry.name,
            text: definition.description.as_deref().unwrap_or_default().to_owned(),
            audience: entry.audience,
            schema: Arc::clone(&entry.schema),
        })
    });
    texts.collect()
}

/// One tool: its texts, its schemas and its call.
pub(super) trait ToolSpec {
    const NAME: &'static str;
    /// The description by which a model chooses the tool.
    const TEXT: &'static str;
    const EFFECT: Effect;
    /// True if the call may wait for an event. Such a call is dropped, at any await, when its
    /// client cancels it or goes away. Any other call is carried out to its end, even if its client
    /// is gone.
    const WAITS: bool = false;
    /// True if the call itself handles the notices of its caller. Then its answer does not mention
    /// them again.
    const IS_ABOUT_NOTICES: bool = false;
    /// Arguments that older clients send, and that the schema of the tool does not have.
    const OLDER_ARGUMENTS: &'static [&'static str] = &[];
    type Who: Who;
    type Input: DeserializeOwned + JsonSchema + Send;
    type Output: Serialize;

    fn call(
        service: &Service,
        who: Self::Who,
        input: Self::Input,
    ) -> impl Future<Output = Result<Self::Output, ServiceError>> + Send;
}

/// The answer of tools that only confirm success.
#[derive(Serialize)]
pub(super) struct Done {
    success: bool,
}

impl Done {
    pub(super) const DONE: Self = Self { success: true };
}

/// The arguments of tools that have none of their own.
#[derive(serde::Deserialize, JsonSchema)]
pub(super) struct NoInput {}

/// The result of a call.
pub(super) struct Called {
    pub(super) result: Result<JsonObject, CallError>,
    /// True if the caller is to be told that it has unread notices.
    pub(super) is_notified: bool,
}

/// The part of a tool that the envelope needs.
pub(super) struct Entry {
    pub(super) name: &'static str,
    /// See [`ToolSpec::WAITS`].
    pub(super) waits: bool,
    pub(super) call: for<'a> fn(&'a Incoming<'a>) -> BoxFuture<'a, Called>,
    /// The schema of its arguments.
    schema: Arc<JsonObject>,
    audience: Audience,
}

impl Entry {
    pub(super) fn schema(&self) -> &JsonObject {
        &self.schema
    }

    /// Returns a text for a caller with wrong arguments that names the arguments of the tool.
    pub(super) fn arguments_hint(&self) -> String {
        let required =
            self.schema.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let names = self
            .schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(Map::keys);
        let (required, optional): (Vec<&str>, Vec<&str>) =
            names.map(String::as_str).partition(|name| required.iter().any(|each| each == name));
        let mut hint = "correct the arguments and call again".to_owned();
        for (kind, names) in [("required", required), ("optional", optional)] {
            if !names.is_empty() {
                let _ = write!(hint, "; {kind}: {}", names.join(", "));
            }
        }
        hint
    }
}

/// A tool in the list.
pub(super) struct Tool {
    definition: Definition,
    entry: Entry,
}

/// The tools by name.
pub(super) struct Tools {
    in_order: Vec<Definition>,
    entries: BTreeMap<&'static str, Entry>,
}

impl Tool {
    pub(super) fn of<T: ToolSpec + 'static>() -> Self {
        let annotations = ToolAnnotations::new()
            .read_only(T::EFFECT == Effect::Reads)
            .destructive(false)
            .idempotent(T::EFFECT != Effect::Changes)
            .open_world(false);
        let schema = Arc::new(input_schema::<T>());
        let definition =
            Definition::new(T::NAME, T::TEXT, Arc::clone(&schema)).with_annotations(annotations);
        let entry = Entry {
            name: T::NAME,
            waits: T::WAITS,
            call: |incoming| Box::pin(run::<T>(incoming)),
            schema,
            audience: T::Who::AUDIENCE,
        };
        Self { definition, entry }
    }
}

impl Tools {
    fn of(tools: impl Iterator<Item = Tool>) -> Self {
        let (in_order, entries): (Vec<_>, Vec<_>) =
            tools.map(|tool| (tool.definition, tool.entry)).unzip();
        Self { in_order, entries: entries.into_iter().map(|entry| (entry.name, entry)).collect() }
    }

    pub(super) fn definitions(&self) -> &[Definition] {
        &self.in_order
    }

    /// Returns the tools for an agent that was started for `purpose`.
    pub(super) fn definitions_for(&self, purpose: Purpose) -> Vec<Definition> {
        let is_for = |tool: &&Definition| {
            self.find(&tool.name).is_some_and(|entry| entry.audience.has(purpose))
        };
        self.in_order.iter().filter(is_for).cloned().collect()
    }

    pub(super) fn find(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }
}

async fn run<T: ToolSpec>(incoming: &Incoming<'_>) -> Called {
    // The boxed future of `find` is freed before the call waits.
    match Box::pin(T::Who::find(incoming)).await {
        Ok(who) => {
            let has_notices = who.has_notices();
            let result = run_for::<T>(incoming, who).await;
            Called { is_notified: has_notices && (result.is_err() || !T::IS_ABOUT_NOTICES), result }
        }
        Err(error) => {
            Called { is_notified: incoming.has_notices_despite(&error).await, result: Err(error) }
        }
    }
}

async fn run_for<T: ToolSpec>(
    incoming: &Incoming<'_>,
    who: T::Who,
) -> Result<JsonObject, CallError> {
    check_names::<T>(incoming, &who)?;
    // Some clients fill in the arguments that a model leaves out. Therefore a null argument counts
    // as missing.
    let given = incoming.arguments.iter().filter(|(_, value)| !value.is_null());
    let input = Value::Object(given.map(|(name, value)| (name.clone(), value.clone())).collect());
    let input = serde_path_to_error::deserialize(input)
        .map_err(|error| CallError::Arguments(describe(&error)))?;
    let output = T::call(incoming.service, who, input).await?;
    match serde_json::to_value(output) {
        Ok(Value::Object(object)) => Ok(object),
        other => unreachable!("the output of {} is an object, not {other:?}", T::NAME),
    }
}

/// Refuses or counts arguments that the tool does not know, and refuses those that name another
/// agent or project.
fn check_names<T: ToolSpec>(incoming: &Incoming<'_>, who: &T::Who) -> Result<(), CallError> {
    let Incoming { arguments, schema, .. } = incoming;
    let problem = match T::Who::UNKNOWN {
        UnknownArguments::Refuse => describe_unknown(arguments, schema, T::OLDER_ARGUMENTS),
        UnknownArguments::Ignore => {
            let n_unknown = count_unknown(arguments, schema);
            if n_unknown > 0 {
                counters::UNKNOWN_ARGUMENTS
                    .add_many(T::NAME, u64::try_from(n_unknown).unwrap_or(u64::MAX));
            }
            None
        }
    };
    let foreign = || describe_foreign(arguments, &who.caller()?.session.key);
    problem.or_else(foreign).map_or(Ok(()), |problem| Err(CallError::Arguments(problem)))
}

/// Returns a text that names the argument and what was expected.
fn describe(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    match error.path().to_string().as_str() {
        "." => format!("arguments: {}", error.inner()),
        path => format!("argument `{path}`: {}", error.inner()),
    }
}

/// Returns the schema of a tool's arguments, including those that identify the caller.
fn input_schema<T: ToolSpec>() -> JsonObject {
    // Some clients don't accept references, special formats, or null for an optional text.
    let settings = SchemaSettings::default().with(|settings| settings.inline_subschemas = true);
    let Value::Object(mut schema) =
        settings.into_generator().into_root_schema_for::<T::Input>().to_value()
    else {
        unreachable!("the schema of a struct is an object")
    };
    simplify(&mut schema);
    schema.remove("$schema");
    schema.remove("title");
    // The tool has a description of its own. This one would be the type's.
    schema.remove("description");
    for argument in T::Who::ARGUMENTS {
        let properties = schema.entry("properties").or_insert_with(|| json!({}));
        properties[argument.name] = json!({ "type": "string", "description": argument.text });
        if argument.is_required
            && let Value::Array(required) = schema.entry("required").or_insert_with(|| json!([]))
        {
            required.insert(0, argument.name.into());
        }
    }
    schema.entry("properties").or_insert_with(|| json!({}));
    if T::Who::UNKNOWN == UnknownArguments::Refuse {
        close(&mut schema);
    }
    schema
}

/// Adds to the objects of a schema that they have no other properties.
fn close(schema: &mut JsonObject) {
    if let Some(items) = schema.get_mut("items").and_then(Value::as_object_mut) {
        close(items);
    }
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().filter_map(Value::as_object_mut).for_each(close);
        schema.insert("additionalProperties".to_owned(), false.into());
    }
}

/// Removes from the arguments of a schema, and from nested ones, the parts that some clients don't
/// accept. Joins the lines of their descriptions.
fn simplify(schema: &mut JsonObject) {
    if let Some(items) = schema.get_mut("items").and_then(Value::as_object_mut) {
        simplify(items);
    }
    for argument in schema
        .get_mut("properties")
        .and_then(Value::as_object_mut)
        .into_iter()
        .flat_map(Map::values_mut)
    {
        if let Some(argument) = argument.as_object_mut() {
            argument.remove("format");
            // The lines of a comment are one text.
            if let Some(Value::String(text)) = argument.get_mut("description") {
                *text = text.replace('\n', " ");
            }
            argument.retain(|key, value| key != "default" || !value.is_null());
            simplify(argument);
        }
    }
}
