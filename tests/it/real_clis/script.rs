//! The behaviour of the scripted model, which is the same for all APIs. The plot and the results so
//! far decide the next call. Like a model, it reads all other facts from the conversation.

use std::path::PathBuf;

use serde_json::{Value, json};

/// The readable parts of a request.
pub struct Conversation {
    /// The whole text that was sent to the model.
    pub text: String,
    /// The results of its calls, in their order.
    pub results: Vec<String>,
    /// The coordinator's tools that it may call, without their prefix.
    pub tools: Vec<String>,
}

/// The next step of the model.
pub enum Step {
    /// Calls a tool of the coordinator.
    Coordinator(&'static str, Value),
    /// Writes a file by the CLI's own means.
    Write(PathBuf, &'static str),
    /// Runs a command in a shell.
    Run(String),
    Say(String),
}

/// The behaviour of the model, and its folders.
#[derive(Debug, Clone)]
pub struct Script {
    pub plot: Plot,
    pub work: PathBuf,
    /// A folder outside its project, in which it also tries to write.
    pub outside: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plot {
    /// Does its task, and reports that it is done.
    Work,
    /// Commits a file, and reports that its task is done.
    Commit,
    /// Learns in the middle of its task that the task is blocked, and stops.
    Blocked,
    /// Answers messages until it is to log out.
    Chat,
}

pub const EDITED: &str = "written by the scripted model\n";

impl Script {
    /// Returns whether the model waits for the event that it is to notice.
    pub fn is_to_wait(&self, conversation: &Conversation) -> bool {
        self.plot == Plot::Blocked && conversation.results.len() == 2
    }

    pub fn next(&self, conversation: &Conversation) -> Step {
        let Conversation { text, results, tools } = conversation;
        let needed: &[&str] = match self.plot {
            Plot::Work | Plot::Commit => &["authenticate", "get_my_task", "report_completed"],
            Plot::Blocked => {
                &["authenticate", "get_my_task", "get_notifications", "report_completed"]
            }
            Plot::Chat => &["authenticate", "get_next_action", "respond_chat", "logout"],
        };
        if let Some(missing) =
            needed.iter().find(|needed| !tools.iter().any(|tool| tool == **needed))
        {
            return Step::Say(format!("there is no tool {missing} among {tools:?}"));
        }
        let Some(latest) = results.last() else {
            let argument = |name: &str| between(text, &format!("{name}=\""), "\"");
            let (agent, project) = (argument("agent_id"), argument("project_id"));
            let passkey = argument("passkey");
            return Step::Coordinator(
                "authenticate",
                json!({ "agent_id": agent, "passkey": passkey, "project_id": project }),
            );
        };
        let token =
            results.iter().find_map(|result| find_token(result, "sess_")).unwrap_or_default();
        match self.plot {
            Plot::Work => self.work(results.len(), &token),
            Plot::Commit => commit(results.len(), &token),
            Plot::Blocked => blocked(latest, results.len(), &token),
            Plot::Chat => chat(latest, &token),
        }
    }

    fn work(&self, n_results: usize, token: &str) -> Step {
        match n_results {
            1 => Step::Coordinator("get_my_task", json!({ "session_token": token })),
            2 => Step::Write(self.work.join("edited.txt"), EDITED),
            3 => Step::Run("cat edited.txt > ran.txt && pwd >> ran.txt".to_owned()),
            4 => Step::Write(self.outside.join("by_edit"), EDITED),
            5 => Step::Run(format!("echo stray > {}/by_shell", self.outside.display())),
            6 => report_success(token, "edited a file and ran a command"),
            _ => Step::Say("I am done.".to_owned()),
        }
    }
}

fn commit(n_results: usize, token: &str) -> Step {
    match n_results {
        1 => Step::Coordinator("get_my_task", json!({ "session_token": token })),
        2 => Step::Run("echo work > added.txt".to_owned()),
        3 => Step::Run("git add added.txt && git commit -qm work".to_owned()),
        4 => report_success(token, "committed a file"),
        _ => Step::Say("I am done.".to_owned()),
    }
}

fn report_success(token: &str, summary: &str) -> Step {
    let report = json!({ "session_token": token, "result": "success", "summary": summary });
    Step::Coordinator("report_completed", report)
}

fn blocked(latest: &str, n_results: usize, token: &str) -> Step {
    match n_results {
        1 | 2 => Step::Coordinator("get_my_task", json!({ "session_token": token })),
        // The answer itself names the tool for the notice.
        3 if latest.contains("get_notifications") => {
            Step::Coordinator("get_notifications", json!({ "session_token": token }))
        }
        4 if latest.contains("report_completed") && latest.contains("blocked") => {
            let report =
                json!({ "session_token": token, "result": "blocked", "summary": "told to stop" });
            Step::Coordinator("report_completed", report)
        }
        n => Step::Say(format!("I end after {n} results, the last of which says: {latest}")),
    }
}

fn chat(latest: &str, token: &str) -> Step {
    // Some CLIs encode the answer as a text inside a text.
    let latest = latest.replace("\\\"", "\"");
    let says = |key: &str| {
        between(&latest, &format!("\"{key}\":"), "\",").map(|rest| rest.replace(['"', ' '], ""))
    };
    match says("action").as_deref() {
        Some("get_pending_messages") if latest.contains("\"messages\"") => {
            let contents = latest.split("\"content\":").skip(1);
            let contents = contents
                .filter_map(|rest| between(rest, "\"", "\""))
                .collect::<Vec<_>>()
                .join(" and ");
            let answer =
                json!({ "session_token": token, "content": format!("You said: {contents}") });
            Step::Coordinator("respond_chat", answer)
        }
        Some("logout") => Step::Coordinator("logout", json!({ "session_token": token })),
        Some("exit") => Step::Say("Good-bye.".to_owned()),
        _ => {
            let mut question = json!({ "session_token": token });
            // A waiting agent is asked to repeat it.
            if let Some(turn) = turn_of(&latest) {
                question["turn"] = turn.into();
            }
            Step::Coordinator("get_next_action", question)
        }
    }
}

/// Returns the turn that the answer to an empty poll asks for.
pub fn turn_of(result: &str) -> Option<u32> {
    let result = result.replace("\\\"", "\"");
    let (_, rest) = result.split_once("\"turn\":")?;
    rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn between(text: &str, before: &str, after: &str) -> Option<String> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found.to_owned())
}

/// Returns the token with this prefix.
pub fn find_token(text: &str, prefix: &str) -> Option<String> {
    let token = &text[text.find(prefix)?..];
    let end = token
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-')
        .unwrap_or(token.len());
    Some(token[..end].to_owned())
}
