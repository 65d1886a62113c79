//! Routes with their descriptions. The registration of a route names the types that it takes and
//! gives. `/openapi.json` is made of these types. There is no other way to register a route.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Bytes;
use axum::handler::Handler;
use axum::http::{StatusCode, header};
use axum::routing::{self, MethodRouter};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::RestState;
use super::auth::COOKIE;
use domain::id::PATTERN;

/// Routes with their descriptions.
#[derive(Default)]
pub(super) struct Api {
    router: Router<RestState>,
    operations: Vec<Operation>,
}

#[derive(Clone)]
struct Operation {
    method: &'static str,
    path: String,
    about: About,
}

type Described = fn(&mut SchemaGenerator) -> Schema;

/// The description of a route.
#[derive(Clone)]
pub(super) struct About {
    summary: &'static str,
    query: Option<Described>,
    takes: Option<Described>,
    /// The media type of a body that is not JSON.
    takes_text: Option<&'static str>,
    gives: Given,
    status: StatusCode,
    /// The route answers 200 to a request that created the resource before.
    is_repeatable: bool,
    access: Access,
}

/// The clients that may use a route.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Operators,
    Everybody,
}

#[derive(Clone)]
enum Given {
    Nothing,
    Json(Described),
    /// Another content of this media type.
    Text(&'static str),
}

/// Returns the description of a route that takes nothing and gives nothing.
pub(super) fn about(summary: &'static str) -> About {
    let gives = Given::Nothing;
    let status = StatusCode::NO_CONTENT;
    let access = Access::Operators;
    About {
        summary,
        query: None,
        takes: None,
        takes_text: None,
        gives,
        status,
        is_repeatable: false,
        access,
    }
}

impl About {
    pub(super) fn query<T: JsonSchema>(self) -> Self {
        Self { query: Some(|generator| T::json_schema(generator)), ..self }
    }

    pub(super) fn takes<T: JsonSchema>(self) -> Self {
        Self { takes: Some(|generator| T::json_schema(generator)), ..self }
    }

    /// Describes a body of this media type that may be any text.
    pub(super) fn takes_text(self, kind: &'static str) -> Self {
        Self { takes_text: Some(kind), ..self }
    }

    pub(super) fn gives<T: JsonSchema>(self) -> Self {
        Self {
            gives: Given::Json(SchemaGenerator::subschema_for::<T>),
            status: StatusCode::OK,
            ..self
        }
    }

    /// Like [`About::gives`], for a route that creates the resource.
    pub(super) fn makes<T: JsonSchema>(self) -> Self {
        Self { status: StatusCode::CREATED, ..self.gives::<T>() }
    }

    /// Like [`About::makes`], for a request that can be repeated with the id that its client chose.
    pub(super) fn makes_once<T: JsonSchema>(self) -> Self {
        Self { is_repeatable: true, ..self.makes::<T>() }
    }

    /// Marks a route that needs no token.
    pub(super) fn for_everybody(self) -> Self {
        Self { access: Access::Everybody, ..self }
    }

    pub(super) fn gives_text(self, kind: &'static str) -> Self {
        Self { gives: Given::Text(kind), status: StatusCode::OK, ..self }
    }
}

macro_rules! methods {
    ($($name:ident),*) => {$(
        pub(super) fn $name<H, T>(self, path: &'static str, handler: H, about: About) -> Self
        where
            H: Handler<T, RestState>,
            T: 'static,
        {
            self.route(stringify!($name), path, routing::$name(handler), about)
        }
    )*};
}

impl Api {
    pub(super) fn new() -> Self {
        Self::default()
    }

    methods!(get, post, put, patch, delete);

    /// Adds a route whose handler has layers of its own. `route` must answer only `method`.
    pub(super) fn route(
        mut self,
        method: &'static str,
        path: &'static str,
        route: MethodRouter<RestState>,
        about: About,
    ) -> Self {
        self.router = self.router.route(path, route);
        self.operations.push(Operation { method, path: path.to_owned(), about });
        self
    }

    pub(super) fn merge(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.operations.extend(other.operations);
        self
    }

    /// Adds the same routes below `prefix`.
    pub(super) fn also_below(mut self, prefix: &'static str) -> Self {
        self.router = self.router.clone().nest(prefix, self.router);
        let below = self.operations.iter().cloned();
        let below = below.map(|operation| Operation {
            path: format!("{prefix}{}", operation.path),
            ..operation
        });
        self.operations = below.collect::<Vec<_>>().into_iter().chain(self.operations).collect();
        self
    }

    /// Returns the routes without the descriptions, for another listener.
    pub(super) fn into_router(self) -> Router<RestState> {
        self.router
    }

    /// Returns the routes with `/openapi.json`, which describes them and the routes of `beside`.
    pub(super) fn described_with(self, beside: &Self) -> Router<RestState> {
        let summary = "The description of this API, as OpenAPI 3.1";
        // It is described like all others, although it does not exist yet.
        let mut api = self;
        api.operations.extend(beside.operations.iter().cloned());
        api.operations.push(Operation {
            method: "get",
            path: "/openapi.json".to_owned(),
            about: about(summary).gives_text("application/json"),
        });
        // The document is made when it is first requested. That takes megabytes, and most daemons
        // never need it.
        let operations = api.operations;
        let document = OnceLock::new();
        let document = Arc::new(move || -> Bytes {
            document.get_or_init(|| Bytes::from(describe(&operations).to_string())).clone()
        });
        let show = async move || ([(header::CONTENT_TYPE, "application/json")], document());
        api.router.route("/openapi.json", routing::get(show))
    }
}

/// Returns the document about `operations`.
fn describe(operations: &[Operation]) -> Value {
    // The types that routes give are described once, by their names. The types that routes take are
    // inlined, because their fields with defaults are optional.
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut given = SchemaGenerator::new(
        settings.with(|settings| settings.definitions_path = "/components/schemas".into()),
    );
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    let mut taken =
        SchemaGenerator::new(settings.with(|settings| settings.inline_subschemas = true));
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for operation in operations {
        let described = describe_one(operation, &mut given, &mut taken);
        paths.entry(&operation.path).or_default().insert(operation.method.to_owned(), described);
    }
    let mut schemas = given.take_definitions(true);
    schemas.insert("Problem".to_owned(), problem());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "agent-coordinator",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Shows and changes the state of a fleet of AI coding agents.",
            "license": { "name": env!("CARGO_PKG_LICENSE"), "identifier": env!("CARGO_PKG_LICENSE") },
        },
        "servers": [{ "url": "/api" }],
        "security": [{ "token": [] }, { "cookie": [] }],
        "paths": paths,
        "components": { "schemas": schemas, "securitySchemes": security_schemes() },
    })
}

fn describe_one(
    operation: &Operation,
    given: &mut SchemaGenerator,
    taken: &mut SchemaGenerator,
) -> Value {
    let About { summary, query, takes, takes_text, gives, status, is_repeatable, access } =
        &operation.about;
    let mut parameters: Vec<Value> = names_in(&operation.path)
        .map(|name| {
            let schema = json!({ "type": "string", "pattern": PATTERN });
            json!({ "name": name, "in": "path", "required": true, "schema": schema })
        })
        .collect();
    let query = query.map(|query| query(taken).to_value());
    for (name, schema) in
        query.as_ref().and_then(|query| query["properties"].as_object()).into_iter().flatten()
    {
        let is_required = query
            .as_ref()
            .and_then(|query| query["required"].as_array())
            .is_some_and(|all| all.contains(&json!(name)));
        parameters.push(
            json!({ "name": name, "in": "query", "required": is_required, "schema": schema }),
        );
    }
    let content = match gives {
        Given::Nothing => None,
        Given::Json(schema) => Some(json!({ "application/json": { "schema": schema(given) } })),
        Given::Text(kind) => Some(json!({ *kind: {} })),
    };
    let mut answer = json!({ "description": "Done" });
    if let Some(content) = content {
        answer["content"] = content;
    }
    let problem = json!({
        "description": "A problem, with a code that programs branch on",
        "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
    });
    let mut described = json!({
        "operationId": operation_id(operation),
        "summary": summary,
        "parameters": parameters,
        "responses": { status.as_str(): answer, "4XX": problem, "5XX": problem },
    });
    if *is_repeatable {
        answer["description"] =
            json!("The same request created it before. This is the object as it is now");
        described["responses"][StatusCode::OK.as_str()] = answer;
    }
    if let Some(takes) = takes {
        let schema = takes(taken).to_value();
        let is_required = !takes_empty_object(&schema);
        described["requestBody"] = json!({ "required": is_required, "content": { "application/json": { "schema": schema } } });
    }
    if let Some(kind) = takes_text {
        let content = json!({ *kind: { "schema": { "type": "string" } } });
        described["requestBody"] = json!({ "required": true, "content": content });
    }
    if *access == Access::Everybody {
        described["security"] = json!([]);
    }
    described
}

/// Returns whether an object without fields matches `schema`. A body that is left out is such an
/// object.
fn takes_empty_object(schema: &Value) -> bool {
    let has_no = |word: &str| schema[word].as_array().is_none_or(Vec::is_empty);
    has_no("required")
        && (has_no("anyOf")
            || schema["anyOf"].as_array().into_iter().flatten().any(takes_empty_object))
}

/// Returns the ways to authenticate (`auth`).
fn security_schemes() -> Value {
    json!({
        "token": { "type": "http", "scheme": "bearer", "description": "agent-coordinator token create makes one" },
        "cookie": {
            "type": "apiKey",
            "in": "cookie",
            "name": COOKIE,
            "description": "agent-coordinator login prints a link that sets it in a browser",
        },
    })
}

/// Returns the parameters of a path, in their order.
fn names_in(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// Returns an id such as `patch_tasks_id` for `PATCH /tasks/{id}`.
fn operation_id(Operation { method, path, .. }: &Operation) -> String {
    let path = path.replace(['{', '}'], "").replace(['/', '-', '.'], "_");
    format!("{method}{path}")
}

/// Returns the schema of a problem: RFC 9457 with further members.
fn problem() -> Value {
    let place = json!({
        "type": "object",
        "required": ["path", "message"],
        "properties": { "path": { "type": "string" }, "message": { "type": "string" } },
    });
    json!({
        "type": "object",
        "required": ["type", "title", "status", "detail", "code"],
        "properties": {
            "type": { "const": "about:blank" },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string", "description": "The error, with the object that it is about" },
            "code": { "type": "string", "description": "The word that programs branch on" },
            "hint": { "type": "string", "description": "The remedy" },
            "problems": { "type": "array", "items": place },
        },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::routes;

    fn document() -> Value {
        describe(&routes::api().operations)
    }

    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str));
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 50, "{}", found.len());
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference}"));
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }

    #[test]
    fn operations_have_names_of_their_own_and_parameters_for_their_paths() {
        let document = document();
        let mut ids = BTreeSet::new();
        for (path, operations) in document["paths"].as_object().expect("paths") {
            for (method, operation) in operations.as_object().expect("operations") {
                assert!(ids.insert(operation["operationId"].to_string()), "{method} {path}");
                assert!(
                    !operation["summary"].as_str().unwrap_or_default().is_empty(),
                    "{method} {path}"
                );
                let parameters = operation["parameters"].as_array().expect("parameters").iter();
                let named: Vec<&str> = parameters
                    .filter(|one| one["in"] == "path")
                    .filter_map(|one| one["name"].as_str())
                    .collect();
                assert_eq!(named, names_in(path).collect::<Vec<_>>(), "{method} {path}");
            }
        }
        for known in [
            "get_events",
            "patch_tasks_id",
            "post_projects_project_chat_start",
            "delete_sessions_id",
        ] {
            assert!(ids.contains(&format!("\"{known}\"")), "{known}");
        }
    }
}
