//! Agents that do a task: within their project, for an ordinary user, over a URL, and without any
//! limit.

use std::fs;

use serde_json::json;

use super::script::Plot;
use super::{Bed, Server, USER, find, has_ordinary_user};
use crate::support::skip;

/// Runs an agent of this CLI for its whole life. Returns the files that it made outside its
/// project.
fn live(cli: &str, providers: &str, user: Option<u32>) -> Option<Vec<String>> {
    live_with(Server::Own, cli, providers, user)
}

fn live_with(server: Server, cli: &str, providers: &str, user: Option<u32>) -> Option<Vec<String>> {
    let program = find(cli)?;
    if user.is_some() && !has_ordinary_user(&program) {
        skip("the tests can't run these programs as another user");
        return None;
    }
    let mut bed = Bed::new(cli, &program, Plot::Work, providers, user);
    let ended = bed.run(cli, server);
    bed.check(&ended, server);
    Some(bed.strays())
}

/// Its shell may write wherever its user may. Its own tools may not (docs/providers.md).
#[test]
fn claude_does_its_task_and_edits_nothing_outside_its_project() {
    let Some(strays) = live("claude", "{}", None) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn codex_does_its_task_and_writes_nothing_outside_its_project() {
    let Some(strays) = live("codex", "{}", None) else {
        return;
    };
    assert_eq!(strays, [""; 0]);
}

#[test]
fn claude_does_its_task_for_an_ordinary_user() {
    let providers =
        "{ claude: { preset: claude, model: sonnet, cli_args: [--max-turns, \"50\"] } }";
    let Some(strays) = live("claude", providers, Some(USER)) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn codex_does_its_task_for_an_ordinary_user() {
    let Some(strays) = live("codex", "{ codex: { preset: codex, model: other } }", Some(USER))
    else {
        return;
    };
    assert_eq!(strays, [""; 0]);
}

/// The same as [`claude_does_its_task_and_edits_nothing_outside_its_project`], over HTTP.
#[test]
fn claude_does_its_task_for_a_coordinator_that_knows_only_a_url() {
    let Some(strays) = live_with(Server::ByUrl, "claude", "{}", None) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn codex_does_its_task_for_a_coordinator_that_knows_only_a_url() {
    let Some(strays) = live_with(Server::ByUrl, "codex", "{}", None) else {
        return;
    };
    assert_eq!(strays, [""; 0]);
}

/// Claude refuses this mode as root.
#[test]
fn claude_is_let_go_anywhere_by_bypass() {
    let providers = "{ claude: { preset: claude, permissions: bypass } }";
    let Some(strays) = live("claude", providers, Some(USER)) else {
        return;
    };
    assert_eq!(strays, ["by_edit", "by_shell"]);
}

#[test]
fn codex_is_let_go_anywhere_by_bypass() {
    let Some(strays) = live("codex", "{ codex: { preset: codex, permissions: bypass } }", None)
    else {
        return;
    };
    assert_eq!(strays, ["by_edit", "by_shell"]);
}

/// Blocks the task while the agent's model waits.
fn obeys_a_block(cli: &str) {
    let Some(program) = find(cli) else { return };
    let mut bed = Bed::new(cli, &program, Plot::Blocked, "{}", None);
    bed.start_with_agent(cli, Server::Own);
    bed.daemon.task("tsk", "prj", "agt");
    bed.until("it has its task", || bed.model.is_waiting().then_some(()));
    bed.daemon.done(&["task", "set", "tsk", "--status", "blocked"]);
    bed.model.go_on();
    let ended = bed.until_ended();
    assert_eq!(ended["outcome"], "blocked", "{ended}\n{}", bed.said());
    assert_eq!(bed.daemon.task_status("tsk"), "blocked");
    bed.daemon.until_nothing_is_left();
    // No further agent is started.
    assert_eq!(bed.daemon.ended("agt").len(), 1, "{}", bed.said());
}

#[test]
fn claude_ends_because_its_task_is_blocked() {
    obeys_a_block("claude");
}

#[test]
fn codex_ends_because_its_task_is_blocked() {
    obeys_a_block("codex");
}

#[test]
fn gemini_does_its_task_and_edits_nothing_outside_its_project() {
    let Some(strays) = live("gemini", "{}", None) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn gemini_does_its_task_for_an_ordinary_user() {
    let providers = "{ gemini: { preset: gemini, model: gemini-2.5-pro } }";
    let Some(strays) = live("gemini", providers, Some(USER)) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn gemini_does_its_task_for_a_coordinator_that_knows_only_a_url() {
    let Some(strays) = live_with(Server::ByUrl, "gemini", "{}", None) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn gemini_edits_nothing_outside_its_project_even_by_bypass() {
    let Some(strays) = live("gemini", "{ gemini: { preset: gemini, permissions: bypass } }", None)
    else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

/// The policies are those in the user's real folder.
#[test]
fn gemini_obeys_the_policies_of_its_user() {
    let Some(program) = find("gemini") else {
        return;
    };
    let mut bed = Bed::new("gemini", &program, Plot::Work, "{}", None);
    let folder = bed.daemon.folder().join("home/.gemini/policies");
    fs::create_dir_all(&folder).unwrap();
    let policy = "[[rule]]\ntoolName = \"run_shell_command\"\ncommandPrefix = \"echo\"\ndecision = \"deny\"\npriority = 10\n";
    fs::write(folder.join("no-echo.toml"), policy).unwrap();
    let ended = bed.run("gemini", Server::Own);
    bed.check(&ended, Server::Own);
    assert_eq!(bed.strays(), [""; 0]);
}

#[test]
fn gemini_uses_the_settings_of_its_project() {
    let Some(program) = find("gemini") else {
        return;
    };
    let mut bed = Bed::new("gemini", &program, Plot::Work, "{}", None);
    fs::create_dir(bed.daemon.work().join(".gemini")).unwrap();
    let settings = json!({ "tools": { "exclude": ["web_fetch"] } }).to_string();
    fs::write(bed.daemon.work().join(".gemini/settings.json"), settings).unwrap();
    let ended = bed.run("gemini", Server::Own);
    bed.check(&ended, Server::Own);
    let requests: String = bed.model.seen.lock().unwrap().iter().map(ToString::to_string).collect();
    assert!(
        requests.contains("write_file") && !requests.contains("\"name\":\"web_fetch\""),
        "{requests}"
    );
}

#[test]
fn qwen_does_its_task_and_edits_nothing_outside_its_project() {
    let Some(strays) = live("qwen", "{}", None) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn qwen_does_its_task_for_an_ordinary_user() {
    let providers =
        "{ qwen: { preset: qwen, model: other, cli_args: [--max-session-turns, \"50\"] } }";
    let Some(strays) = live("qwen", providers, Some(USER)) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn qwen_does_its_task_for_a_coordinator_that_knows_only_a_url() {
    let Some(strays) = live_with(Server::ByUrl, "qwen", "{}", None) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn qwen_is_let_go_anywhere_by_bypass() {
    let Some(strays) = live("qwen", "{ qwen: { preset: qwen, permissions: bypass } }", None) else {
        return;
    };
    assert_eq!(strays, ["by_edit", "by_shell"]);
}

#[test]
fn opencode_does_its_task_and_edits_nothing_outside_its_project() {
    let Some(strays) = live("opencode", "{}", None) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn opencode_does_its_task_for_an_ordinary_user() {
    let providers = "{ opencode: { preset: opencode, model: local/other } }";
    let Some(strays) = live("opencode", providers, Some(USER)) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn opencode_does_its_task_for_a_coordinator_that_knows_only_a_url() {
    let Some(strays) = live_with(Server::ByUrl, "opencode", "{}", None) else {
        return;
    };
    assert_eq!(strays, ["by_shell"]);
}

#[test]
fn opencode_is_let_go_anywhere_by_bypass() {
    let providers = "{ opencode: { preset: opencode, permissions: bypass } }";
    let Some(strays) = live("opencode", providers, None) else {
        return;
    };
    assert_eq!(strays, ["by_edit", "by_shell"]);
}

#[test]
fn copilot_does_its_task_and_writes_nothing_outside_its_project() {
    let Some(strays) = live("copilot", "{}", None) else {
        return;
    };
    assert_eq!(strays, [""; 0]);
}

#[test]
fn copilot_does_its_task_for_an_ordinary_user() {
    let Some(strays) =
        live("copilot", "{ copilot: { preset: copilot, model: other } }", Some(USER))
    else {
        return;
    };
    assert_eq!(strays, [""; 0]);
}

#[test]
fn copilot_does_its_task_for_a_coordinator_that_knows_only_a_url() {
    let Some(strays) = live_with(Server::ByUrl, "copilot", "{}", None) else {
        return;
    };
    assert_eq!(strays, [""; 0]);
}

#[test]
fn copilot_is_let_go_anywhere_by_bypass() {
    let Some(strays) =
        live("copilot", "{ copilot: { preset: copilot, permissions: bypass } }", None)
    else {
        return;
    };
    assert_eq!(strays, ["by_edit", "by_shell"]);
}
