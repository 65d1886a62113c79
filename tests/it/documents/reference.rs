//! Checks the generated parts of the documents.
//!
//! ```sh
//! AGENT_COORDINATOR_WRITE_DOCUMENTS=1 cargo test --test it documents      writes the generated parts
//! ```
#![allow(clippy::unwrap_used, reason = "a test")]

mod examples;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use examples::Examples;

/// Set to write the generated parts of the documents.
const WRITE: &str = "AGENT_COORDINATOR_WRITE_DOCUMENTS";
const BEGIN: &str = "<!-- The test `documents` generates the part from here on. -->\n";
const END: &str = "<!-- The generated part ends here. -->\n";
const HEADER: &str = "| argument | type | required | meaning |\n|---|---|---|---|\n";

/// Compares the generated part of a document with `generated`, or writes it.
#[track_caller]
fn check_generated(document: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the document has a generated part");
    let (present, after) = rest.split_once(END).expect("the generated part ends");
    if present == generated {
        return;
    }
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, format!("{before}{BEGIN}{generated}{END}{after}")).unwrap();
        return;
    }
    let line = present.lines().zip(generated.lines()).find(|(old, new)| old != new);
    panic!(
        "{document} is out of date: run {WRITE}=1 cargo test --test it documents\n\
         first difference: {line:#?}"
    );
}

/// Returns the types of an argument and its range, as a reader of a table needs them.
fn describe_type(schema: &Value) -> String {
    let mut text = match schema["type"].as_str() {
        Some("array") => match schema["items"]["type"].as_str() {
            Some(items) => format!("list of {items}s"),
            None => "list".to_owned(),
        },
        Some(one) => one.to_owned(),
        None => "any".to_owned(),
    };
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<String> =
            words.iter().map(|word| format!("`{}`", word.as_str().unwrap())).collect();
        text = words.join(", ");
    }
    match (schema["minimum"].as_i64(), schema["maximum"].as_i64()) {
        (Some(least), Some(most)) => write!(text, ", {least} to {most}").unwrap(),
        (Some(least), None) => write!(text, ", at least {least}").unwrap(),
        (None, Some(most)) => write!(text, ", at most {most}").unwrap(),
        (None, None) => {}
    }
    text
}

/// Returns the row of an argument.
fn row_of(schema: &Value, prefix: &str, name: &str) -> String {
    let argument = &schema["properties"][name];
    let mut required = schema["required"].as_array().into_iter().flatten();
    let mark = if required.any(|each| each == name) { "yes" } else { "" };
    let text = argument["description"].as_str().unwrap_or_default();
    format!("| `{prefix}{name}` | {} | {mark} | {text} |\n", describe_type(argument))
}

/// Returns the rows of arguments that many of these tools have.
fn common_rows(tools: &[&Value], names: &[&str]) -> Vec<String> {
    let row = |name: &&str| {
        let mut schemas = tools.iter().map(|tool| &tool["inputSchema"]);
        let schema = schemas.find(|schema| schema["properties"].get(*name).is_some());
        row_of(schema.unwrap(), "", name)
    };
    names.iter().map(row).collect()
}

/// Adds a row for each argument of an object, and for those of nested objects. Required ones come
/// first. The common rows are left out.
fn write_arguments(page: &mut String, schema: &Value, prefix: &str, common: &[String]) {
    let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
    let is_required = |name: &str| required.iter().any(|each| each == name);
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    let mut names: Vec<&String> = properties.keys().collect();
    names.sort_by_key(|name| !is_required(name));
    for name in names {
        let row = row_of(schema, prefix, name);
        if !common.contains(&row) {
            page.push_str(&row);
        }
        write_arguments(page, &properties[name]["items"], &format!("{prefix}{name}[]."), common);
    }
}

fn write_tool(page: &mut String, tool: &Value, examples: &Examples, common: &[String]) {
    let name = tool["name"].as_str().unwrap();
    let text = tool["description"].as_str().unwrap().trim_start_matches("For coordinators: ");
    let mut text = text.to_owned();
    text[..1].make_ascii_uppercase();
    writeln!(page, "### {name}\n\n{text}\n").unwrap();
    let schema = &tool["inputSchema"];
    let mut rows = String::new();
    write_arguments(&mut rows, schema, "", common);
    if schema["properties"].as_object().is_none_or(serde_json::Map::is_empty) {
        page.push_str("It has no arguments.\n\n");
    } else if rows.is_empty() {
        page.push_str("It has no other arguments.\n\n");
    } else {
        writeln!(page, "{HEADER}{rows}").unwrap();
    }
    let (arguments, answer) = examples.of(name);
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap();
    writeln!(page, "```json\n{arguments}\n```\n\nanswers\n").unwrap();
    writeln!(page, "```json\n{}\n```\n", pretty(answer)).unwrap();
}

#[test]
fn the_reference_of_the_tools_is_up_to_date() {
    let (tools, examples) = examples::tools_and_examples();
    let is_old = |tool: &&Value| tool["description"].as_str().unwrap().starts_with("Deprecated");
    let is_coordinators =
        |tool: &Value| tool["inputSchema"]["properties"].get("coordinator_token").is_some();
    let current = tools.iter().filter(|tool| !is_old(tool));
    let (of_coordinators, of_agents): (Vec<&Value>, Vec<&Value>) =
        current.partition(|tool| is_coordinators(tool));
    let mut page = String::new();
    let common = common_rows(&of_agents, &["session_token"]);
    writeln!(
        page,
        "## Tools\n\nThe examples are real answers. Ids, tokens and times are shortened or fixed. \
         Tools of a session also take:\n\n{HEADER}{}",
        common.concat()
    )
    .unwrap();
    for tool in of_agents {
        write_tool(&mut page, tool, &examples, &common);
    }
    let names = ["coordinator_id", "coordinator_incarnation", "coordinator_token"];
    let common = common_rows(&of_coordinators, &names);
    writeln!(
        page,
        "## Tools of coordinators\n\nThese tools are for `supervise` and for coordinators of your \
         own ([hosts.md](hosts.md#other-coordinators)). Agents cannot call them. Older clients use \
         [deprecated tools](migration.md). Each tool also takes:\n\n{HEADER}{}",
        common.concat()
    )
    .unwrap();
    for tool in of_coordinators {
        write_tool(&mut page, tool, &examples, &common);
    }
    check_generated("docs/agents.md", &page);
}
