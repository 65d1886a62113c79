//! What the scripted model does, whichever API it is asked by: a fixed list of tool calls, one per answer, so that the number of
//! results so far says which is next. What it needs to know, it reads from the conversation as a model would.

use std::path::PathBuf;

use serde_json::{Value, json};

/// What there is to read in a request.
pub struct Conversation {
    /// All that was said to the model.
    pub text: String,
    /// The results of its calls, in their order.
    pub results: Vec<String>,
    /// The coordinator's tools that it may call, without their prefix.
    pub tools: Vec<String>,
}

/// What the model does next.
pub enum Step {
    /// A tool of the coordinator.
    Coordinator(&'static str, Value),
    /// Writes a file by the CLI's own means.
    Write(PathBuf, &'static str),
    /// Runs a command in a shell.
    Run(String),
    Say(String),
}

/// Where the model works.
#[derive(Debug, Clone)]
pub struct Script {
    pub work: PathBuf,
    /// Where it also tries to write.
    pub outside: PathBuf,
}

pub const EDITED: &str = "written by the scripted model\n";

impl Script {
    pub fn next(&self, conversation: &Conversation) -> Step {
        let Conversation { text, results, tools } = conversation;
        for needed in ["authenticate", "get_my_task", "report_completed"] {
            if !tools.iter().any(|tool| tool == needed) {
                return Step::Say(format!("there is no tool {needed} among {tools:?}"));
            }
        }
        let session_token = || results.iter().find_map(|result| find_token(result, "sess_")).unwrap_or_default();
        match results.len() {
            0 => {
                let argument = |name: &str| between(text, &format!("{name}=\""), "\"");
                let (agent, project) = (argument("agent_id"), argument("project_id"));
                let passkey = argument("passkey");
                Step::Coordinator(
                    "authenticate",
                    json!({ "agent_id": agent, "passkey": passkey, "project_id": project }),
                )
            }
            1 => Step::Coordinator("get_my_task", json!({ "session_token": session_token() })),
            2 => Step::Write(self.work.join("edited.txt"), EDITED),
            3 => Step::Run("cat edited.txt > ran.txt && pwd >> ran.txt".to_owned()),
            4 => Step::Write(self.outside.join("by_edit"), EDITED),
            5 => Step::Run(format!("echo stray > {}/by_shell", self.outside.display())),
            6 => {
                let summary = "edited a file and ran a command";
                let report = json!({ "session_token": session_token(), "result": "success", "summary": summary });
                Step::Coordinator("report_completed", report)
            }
            _ => Step::Say("I am done.".to_owned()),
        }
    }
}

fn between(text: &str, before: &str, after: &str) -> Option<String> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found.to_owned())
}

/// A token with this prefix.
pub fn find_token(text: &str, prefix: &str) -> Option<String> {
    let token = &text[text.find(prefix)?..];
    let end = token.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-').unwrap_or(token.len());
    Some(token[..end].to_owned())
}
