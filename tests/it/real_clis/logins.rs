//! Agents of CLIs without a login. codex is not among them: it says so only after an answer of its
//! service.

use std::fs;

use super::script::Plot;
use super::{Bed, find};

/// The variables with the logins and the services of the CLIs.
const VARIABLES: [&str; 10] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "COPILOT_MODEL",
    "COPILOT_PROVIDER_API_KEY",
    "COPILOT_PROVIDER_BASE_URL",
    "GEMINI_API_KEY",
    "GOOGLE_GEMINI_BASE_URL",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_MODEL",
];

/// Runs an agent with only these variables of [`VARIABLES`], which are no login of its CLI.
fn ends_without_a_login(cli: &str, kept: &[&str]) {
    let Some(program) = find(cli) else { return };
    let mut bed = Bed::new(cli, &program, Plot::Work, "{}", None);
    fs::remove_file(bed.daemon.folder().join("home/.config/opencode/opencode.json")).unwrap();
    let mut command = bed.command();
    for variable in VARIABLES.iter().filter(|variable| !kept.contains(variable)) {
        command.env_remove(variable);
    }
    bed.daemon.spawn_as(command);
    bed.daemon.until_ready();
    bed.daemon.project("prj");
    bed.add_agent(cli);
    bed.daemon.task("tsk", "prj", "agt");
    let ended = bed.until_ended();
    assert_eq!(ended["failure"]["class"], "auth", "{ended}\n{}", bed.said());
    bed.until("its account is parked", || {
        (bed.daemon.status()["parked"][0]["provider"] == cli).then_some(())
    });
    assert!(bed.model.seen.lock().unwrap().is_empty(), "no model was asked");
}

#[test]
fn claude_without_a_login_parks_its_account() {
    ends_without_a_login("claude", &[]);
}

#[test]
fn gemini_without_a_login_parks_its_account() {
    ends_without_a_login("gemini", &[]);
}

/// A key alone does not name a service.
#[test]
fn qwen_without_a_login_parks_its_account() {
    ends_without_a_login("qwen", &[]);
    ends_without_a_login("qwen", &["OPENAI_API_KEY"]);
}

/// It would use a free model that its makers host.
#[test]
fn opencode_without_a_login_parks_its_account() {
    ends_without_a_login("opencode", &[]);
}

/// A key alone does not name a service.
#[test]
fn copilot_without_a_login_parks_its_account() {
    ends_without_a_login("copilot", &[]);
    ends_without_a_login("copilot", &["COPILOT_PROVIDER_API_KEY"]);
}
