//! `call --list` and `call TOOL --help`: the MCP tools and their arguments, from the same schemas as
//! those that clients get. They need no daemon.

use std::fmt::Write as _;

use clap::CommandFactory as _;
use serde_json::{Map, Value, json};

use super::Arguments;
use super::error::CliError;
use super::output::{print_json, print_line};
use super::screen::{Rows, Screen, Tone};
use domain::nearest::nearest;
use mcp::{Audience, ToolText, texts};

/// Prints the help of `call` itself.
pub(super) fn print_command() -> Result<(), CliError> {
    let mut program = Arguments::command();
    program.build();
    let call = program.find_subcommand_mut("call");
    let help = call.map(|call| call.render_long_help().to_string());
    print_line(help.unwrap_or_default().trim_end())
}

/// Prints each tool with its first sentence.
pub(super) fn print_list(is_json: bool) -> Result<(), CliError> {
    let tools = texts();
    if is_json {
        let list: Vec<Value> = tools.iter().map(to_json).collect();
        return print_json(&list);
    }
    let mut rows = Rows::new(&["TOOL", "FOR", "WHAT IT DOES"]);
    for tool in &tools {
        let cells = [tool.name.to_owned(), for_whom(tool.audience), first_sentence(&tool.text)];
        rows.add(Tone::Usual, cells);
    }
    print_line(&rows.text(Screen { has_colors: false, ..Screen::of_output() }))
}

/// Prints what a tool does and which arguments it takes.
///
/// # Errors
/// `Usage` for a name that is not a tool's.
pub(super) fn print_tool(name: &str, is_json: bool) -> Result<(), CliError> {
    let tools = texts();
    let Some(tool) = tools.iter().find(|tool| tool.name == name) else {
        let meant = nearest(name, tools.iter().map(|tool| tool.name));
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
        return Err(CliError::Usage(format!(
            "no tool `{name}`{meant} `call --list` lists the tools"
        )));
    };
    if is_json {
        return print_json(&to_json(tool));
    }
    let mut text = format!("{} (for {})\n\n{}\n", tool.name, for_whom(tool.audience), tool.text);
    text.push_str("\nArguments:\n");
    if properties_of(&tool.schema).is_none_or(Map::is_empty) {
        text.push_str("  none\n");
    }
    append_arguments(&tool.schema, 2, &mut text);
    let _ = write!(text, "\nUsage: agent-coordinator call {} '{}'", tool.name, example(tool));
    print_line(&Screen::of_output().wrapped(&text))
}

fn to_json(tool: &ToolText) -> Value {
    json!({
        "name": tool.name,
        "for": for_whom(tool.audience),
        "description": tool.text,
        "input_schema": *tool.schema,
    })
}

fn for_whom(audience: Audience) -> String {
    match audience {
        Audience::Agents(None) => "all agents".to_owned(),
        Audience::Agents(Some(purpose)) => format!("a {purpose}"),
        Audience::Coordinators => "coordinators".to_owned(),
    }
}

fn first_sentence(text: &str) -> String {
    let end = text.find(". ").map_or(text.len(), |end| end + 1);
    text[..end].to_owned()
}

fn properties_of(schema: &Map<String, Value>) -> Option<&Map<String, Value>> {
    schema.get("properties").and_then(Value::as_object)
}

fn is_required(schema: &Map<String, Value>, name: &str) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|required| required.iter().any(|each| each == name))
}

/// Appends a line for each property of the schema, the required ones first, and below it the
/// properties of nested objects.
fn append_arguments(schema: &Map<String, Value>, indent: usize, text: &mut String) {
    let Some(properties) = properties_of(schema) else { return };
    let mut named: Vec<(&String, &Value)> = properties.iter().collect();
    named.sort_by_key(|(name, _)| !is_required(schema, name));
    for (name, property) in named {
        let need = if is_required(schema, name) { "required" } else { "optional" };
        let description = property.get("description").and_then(Value::as_str).unwrap_or_default();
        let line = format!("{:indent$}{name} ({}, {need}): {description}", "", type_of(property));
        let _ = writeln!(text, "{}", line.trim_end().trim_end_matches(':'));
        let nested = property.get("items").unwrap_or(property).as_object();
        if let Some(nested) = nested {
            append_arguments(nested, indent + 2, text);
        }
    }
}

/// Returns the type of a value in words, with its words if it has only some.
fn type_of(property: &Value) -> String {
    if let Some(words) = property.get("enum").and_then(Value::as_array) {
        let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        return words.join(" | ");
    }
    if let Some(choices) = property.get("oneOf").or_else(|| property.get("anyOf")) {
        let choices = choices.as_array().into_iter().flatten();
        let words: Vec<String> = choices
            .map(|choice| match choice.get("const").and_then(Value::as_str) {
                Some(word) => word.to_owned(),
                None => type_of(choice),
            })
            .filter(|word| word != "null")
            .collect();
        return words.join(" | ");
    }
    let named = |name: &str| match name {
        "array" => format!("list of {}", type_of(property.get("items").unwrap_or(&Value::Null))),
        other => other.to_owned(),
    };
    match property.get("type") {
        Some(Value::String(name)) => named(name),
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str).filter(|name| *name != "null");
            names.map(named).collect::<Vec<_>>().join(" | ")
        }
        _ => "any".to_owned(),
    }
}

/// Returns a JSON object with the required arguments that the environment does not have.
fn example(tool: &ToolText) -> String {
    let from_environment =
        ["session_token", "coordinator_token", "agent_id", "passkey", "project_id"];
    let names = properties_of(&tool.schema).into_iter().flat_map(Map::keys);
    let names = names.filter(|name| is_required(&tool.schema, name));
    let names = names.filter(|name| !from_environment.contains(&name.as_str()));
    let arguments: Map<String, Value> =
        names.map(|name| (name.clone(), Value::from("…"))).collect();
    Value::from(arguments).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_a_sentence_and_every_argument_a_type() {
        for tool in texts() {
            assert!(first_sentence(&tool.text).ends_with('.'), "{}", tool.text);
            let mut arguments = String::new();
            append_arguments(&tool.schema, 2, &mut arguments);
            assert!(!arguments.contains("(any,"), "{}: {arguments}", tool.name);
        }
    }
}
