//! The names of the arguments of a call, compared with the schema of its tool.
//!
//! A tool for agents refuses a name that it does not know. Otherwise a model would take the success
//! of the call for the effect of the argument. A tool for coordinators ignores it, because
//! coordinators of other versions may send more.

use std::fmt::Write as _;

use rmcp::model::JsonObject;
use serde_json::{Map, Value};

use domain::InstanceKey;
use domain::nearest::nearest;
use domain::printable::excerpt;

/// Arguments that every tool accepts, whether or not its schema has them.
const ACCEPTED: [&str; 6] = [
    "agent_id",
    "project_id",
    "session_token",
    "token",
    "coordinator_token",
    // Gemini CLI adds this one to calls for its own scheduling.
    "wait_for_previous",
];

/// The greatest number of unknown arguments that one refusal names.
const MAX_NAMED: usize = 4;
/// The number of characters of a name that a refusal quotes.
const LONGEST_NAME: usize = 80;

/// The treatment of arguments that a tool's schema does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnknownArguments {
    Refuse,
    /// Metrics count them.
    Ignore,
}

/// Returns the number of arguments that `schema` does not have. An argument that is null is absent.
pub(super) fn count_unknown(arguments: &JsonObject, schema: &JsonObject) -> usize {
    let known = properties(schema);
    arguments.iter().filter(|(name, value)| !value.is_null() && !is_known(name, known)).count()
}

/// Describes the arguments that `schema` does not have, also those within other arguments; `None`
/// if it has all of them. `older` are names that only older clients use.
pub(super) fn describe_unknown(
    arguments: &JsonObject,
    schema: &JsonObject,
    older: &[&str],
) -> Option<String> {
    let mut unknown = Vec::new();
    let known = properties(schema);
    for (name, value) in arguments {
        match known.and_then(|known| known.get(name)) {
            Some(schema) => find_within(value, schema, name, &mut unknown),
            None if is_known(name, known) || older.contains(&name.as_str()) => {}
            None => note(name, name, value, known, &mut unknown),
        }
    }
    (!unknown.is_empty()).then(|| unknown.join("; "))
}

/// Describes an `agent_id` or a `project_id` that is not the one of the session; `None` if there is
/// no such argument.
pub(super) fn describe_foreign(arguments: &JsonObject, key: &InstanceKey) -> Option<String> {
    [("agent_id", key.agent.as_str()), ("project_id", key.project.as_str())].into_iter().find_map(|(name, own)| {
        let given = arguments.get(name).filter(|given| !given.is_null() && *given != own)?;
        let given = given.as_str().map_or_else(|| given.to_string(), str::to_owned);
        let given = excerpt(&given, LONGEST_NAME);
        Some(format!("argument `{name}`: this session is of `{own}`, not of `{given}`; leave the argument out"))
    })
}

fn properties(schema: &JsonObject) -> Option<&JsonObject> {
    schema.get("properties").and_then(Value::as_object)
}

fn is_known(name: &str, known: Option<&JsonObject>) -> bool {
    ACCEPTED.contains(&name) || known.is_some_and(|known| known.contains_key(name))
}

/// Looks for unknown names within the argument at `path`.
fn find_within(value: &Value, schema: &Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Array(elements) => {
            let Some(schema) = schema.get("items") else {
                return;
            };
            for (i, element) in elements.iter().enumerate() {
                find_within(element, schema, &format!("{path}[{i}]"), unknown);
            }
        }
        Value::Object(object) => {
            let Some(known) = schema.as_object().and_then(properties) else {
                return;
            };
            for (name, value) in object {
                let path = format!("{path}.{}", excerpt(name, LONGEST_NAME));
                match known.get(name) {
                    Some(schema) => find_within(value, schema, &path, unknown),
                    None => note(name, &path, value, Some(known), unknown),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn note(
    name: &str,
    path: &str,
    value: &Value,
    known: Option<&JsonObject>,
    unknown: &mut Vec<String>,
) {
    if value.is_null() || unknown.len() >= MAX_NAMED {
        return;
    }
    let mut words = format!("argument `{}` is unknown", excerpt(path, LONGEST_NAME));
    if let Some(known) = nearest(name, known.into_iter().flat_map(Map::keys).map(String::as_str)) {
        let _ = write!(words, ", the nearest is `{known}`");
    }
    unknown.push(words);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> JsonObject {
        let Value::Object(object) = value else { panic!("no object: {value}") };
        object
    }

    fn schema() -> JsonObject {
        let entry =
            json!({ "type": "object", "properties": { "title": {}, "parent_task_id": {} } });
        let tasks = json!({ "type": "array", "items": entry });
        object(
            json!({ "properties": { "title": {}, "extra": { "type": "object" }, "tasks": tasks } }),
        )
    }

    #[track_caller]
    fn check(arguments: Value, expected: Option<&str>) {
        assert_eq!(
            describe_unknown(&object(arguments), &schema(), &["duration"]).as_deref(),
            expected
        );
    }

    #[test]
    fn unknown_arguments_are_named_with_the_nearest_known_one() {
        check(json!({}), None);
        check(
            json!({ "title": 1, "tasks": [{ "title": "t" }], "agent_id": "a", "duration": 1, "odd": null }),
            None,
        );
        check(json!({ "titel": "t" }), Some("argument `titel` is unknown, the nearest is `title`"));
        check(
            json!({ "tasks": [{}, { "odd": null, "parent_id": "x" }] }),
            Some("argument `tasks[1].parent_id` is unknown, the nearest is `parent_task_id`"),
        );
        check(
            json!({ "since": 1, "verbose": true }),
            Some("argument `since` is unknown; argument `verbose` is unknown"),
        );
        // The check ignores open objects and values of other types.
        check(json!({ "extra": { "any": 1 }, "tasks": [[], 7, null], "title": { "a": 1 } }), None);
        let many: JsonObject = (0..1_000).map(|n| (format!("odd_{n}"), json!(1))).collect();
        assert_eq!(
            describe_unknown(&many, &schema(), &[]).unwrap_or_default().matches("unknown").count(),
            MAX_NAMED
        );
        assert_eq!(count_unknown(&many, &schema()), 1_000);
        assert_eq!(
            count_unknown(&object(json!({ "title": 1, "odd": null, "agent_id": "a" })), &schema()),
            0
        );
    }

    #[test]
    fn a_foreign_id_is_described() {
        let key: fn() -> InstanceKey = || {
            let agent = "agt_a".parse().expect("an id");
            let project = "prj".parse().expect("an id");
            InstanceKey::new(agent, project, domain::Purpose::Task)
        };
        let describe = |arguments: Value| describe_foreign(&object(arguments), &key());
        assert_eq!(describe(json!({ "agent_id": "agt_a", "project_id": "prj" })), None);
        assert_eq!(describe(json!({ "agent_id": null, "result": "success" })), None);
        let expected = "argument `agent_id`: this session is of `agt_a`, not of `agt_b`; leave the argument out";
        assert_eq!(describe(json!({ "agent_id": "agt_b" })).as_deref(), Some(expected));
        let expected =
            "argument `project_id`: this session is of `prj`, not of `7`; leave the argument out";
        assert_eq!(
            describe(json!({ "agent_id": "agt_a", "project_id": 7 })).as_deref(),
            Some(expected)
        );
    }
}
