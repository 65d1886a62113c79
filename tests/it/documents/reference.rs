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

/// Adds a row for each argument of an object, and for those of nested objects. Required ones come
/// first.
fn write_arguments(page: &mut String, schema: &Value, prefix: &str) {
    let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
    let is_required = |name: &str| required.iter().any(|each| each == name);
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    let mut names: Vec<&String> = properties.keys().collect();
    names.sort_by_key(|name| !is_required(name));
    for name in names {
        let argument = &properties[name];
        let mark = if is_required(name) { "yes" } else { "" };
        let text = argument["description"].as_str().unwrap_or_default();
        let kind = describe_type(argument);
        writeln!(page, "| `{prefix}{name}` | {kind} | {mark} | {text} |").unwrap();
        write_arguments(page, &argument["items"], &format!("{prefix}{name}[]."));
    }
}

fn write_tool(page: &mut String, tool: &Value, examples: &Examples) {
    let name = tool["name"].as_str().unwrap();
    let text = tool["description"].as_str().unwrap().trim_start_matches("For coordinators: ");
    let mut text = text.to_owned();
    text[..1].make_ascii_uppercase();
    writeln!(page, "### {name}\n\n{text}\n").unwrap();
    let schema = &tool["inputSchema"];
    if schema["properties"].as_object().is_none_or(serde_json::Map::is_empty) {
        page.push_str("It has no arguments.\n\n");
    } else {
        page.push_str("| argument | type | required | meaning |\n|---|---|---|---|\n");
        write_arguments(page, schema, "");
        page.push('\n');
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
    let mut page = String::from(
        "## Tools\n\nThe examples are real answers. Ids, tokens and times are shortened or fixed.\n\n",
    );
    for tool in tools.iter().filter(|tool| !is_old(tool) && !is_coordinators(tool)) {
        write_tool(&mut page, tool, &examples);
    }
    page.push_str(
        "## Tools of coordinators\n\nThese tools are for `supervise` and for coordinators of your \
         own ([hosts.md](hosts.md#other-coordinators)). Agents cannot call them. Older clients use \
         [deprecated tools](migration.md).\n\n",
    );
    for tool in tools.iter().filter(|tool| !is_old(tool) && is_coordinators(tool)) {
        write_tool(&mut page, tool, &examples);
    }
    check_generated("docs/agents.md", &page);
}
