//! The contract of the agents' interface: every tool's whole answer, every refusal, and other input
//! on the socket.
#![allow(clippy::unwrap_used, reason = "a test")]

mod authenticate;
mod bad_lines;
mod coordinator;
mod create_tasks;
mod creation_limits;
mod crowds;
mod foreign_texts;
mod guessing;
mod handshake;
mod legacy;
mod notices;
mod opening;
mod reports;
mod save_context;
mod sessions;
mod subtasks;
mod tasks;
mod tokens;

use serde_json::{Value, json};

use crate::daemon::{Client, Daemon};

/// Returns a manifest with Ann and Bob in a project, with these tasks.
pub fn world(tasks: &str) -> String {
    format!(
        "
agents:
  agt_a: {{ name: Ann, system_prompt: You build things., passkey: key_a }}
  agt_b: {{ name: Bob, passkey: key_b }}
projects:
  prj: {{ name: Project, working_directory: work, agents: [agt_a, agt_b] }}
  prj_2: {{ name: Another, working_directory: work, agents: [agt_a] }}
tasks:
  tsk_elsewhere: {{ project: prj_2, title: elsewhere, assignee: agt_a, status: todo }}
{tasks}"
    )
}

/// The task of most tests.
pub const MINE: &str = "  tsk: { project: prj, title: Login page, description: Build the form., assignee: agt_a, status: in_progress }\n";

/// An agent that a person started by hand. It knows its passkey and calls the tools itself.
struct ByHand {
    client: Client,
    token: String,
}

impl ByHand {
    /// Authenticates as agent `agt_x` of [`world`] in its project.
    #[track_caller]
    fn authenticate(daemon: &Daemon, agent: &str) -> Self {
        Self::with(daemon, agent, &agent.replace("agt_", "key_"))
    }

    /// Authenticates with a passkey or a ticket.
    #[track_caller]
    fn with(daemon: &Daemon, agent: &str, passkey: &str) -> Self {
        let mut client = daemon.client();
        let answer = client.call("authenticate", &credentials(agent, passkey, "prj"));
        let token =
            answer["session_token"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        Self { client, token }
    }

    fn call(&mut self, tool: &str, mut arguments: Value) -> Value {
        arguments["session_token"] = self.token.as_str().into();
        self.client.call(tool, &arguments)
    }

    fn get_my_task(&mut self) -> Value {
        self.call("get_my_task", json!({}))
    }

    fn set(&mut self, task: &str, status: &str) -> Value {
        self.call("update_task_status", json!({ "task_id": task, "status": status }))
    }

    fn report(&mut self, result: &str) -> Value {
        self.call(
            "report_completed",
            json!({ "result": result, "summary": "a summary", "next_steps": "the next steps" }),
        )
    }
}

pub fn credentials(agent: &str, passkey: &str, project: &str) -> Value {
    json!({ "agent_id": agent, "passkey": passkey, "project_id": project })
}

/// Returns the answer to a coordinator of this name.
fn should_start(daemon: &Daemon, agent: &str, coordinator: Option<&str>) -> Value {
    let mut arguments = json!({ "agent_id": agent, "project_id": "prj" });
    if let Some(coordinator) = coordinator {
        arguments["coordinator_id"] = coordinator.into();
    }
    daemon.client().call("should_start", &arguments)
}

/// Claims a launch as a coordinator of the test and returns its ticket.
#[track_caller]
fn claim(daemon: &Daemon, agent: &str) -> String {
    let answer = should_start(daemon, agent, Some("crd_test"));
    answer["launch_ticket"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// Checks that a refusal has this code and text, in the common form of refusals.
#[track_caller]
fn check_refused(answer: &Value, error_code: &str, error: &str) {
    assert_eq!(answer["success"], false, "{answer}");
    assert_eq!(
        (&answer["error_code"], &answer["error"]),
        (&error_code.into(), &error.into()),
        "{answer}"
    );
}
