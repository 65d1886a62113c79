//! The `ai_type` of a new or changed agent: one that cannot be started is refused on every way in,
//! and one that an agent has already stays.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use serde_json::json;

use crate::daemon::Daemon;
use crate::resources::ask;
use crate::support::DEADLINE;

const MINE: &str = "  mine: { cli_command: /bin/true }";
const REFUSED: &str = "no provider starts the ai_type `cluade`; did you mean `claude`? Known are: ";

/// Returns the settings with this entry beside that of the tests' agent.
fn with_entry(entry: &str) -> String {
    format!(
        "backoff: {{ initial: 1m }}\nai_providers:\n  claude: {{ cli_command: /bin/true }}\n{entry}"
    )
}

/// Sends a form of the page in Japanese and returns the answer.
fn sent_form(daemon: &Daemon, path: &str, form: &str) -> String {
    let mut stream = UnixStream::connect(daemon.state().join("control.sock")).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let length = form.len();
    write!(
        stream,
        "POST {path} HTTP/1.0\r\nhost: x\r\naccept-language: ja\r\ncontent-length: {length}\r\n\
         content-type: application/x-www-form-urlencoded\r\n\r\n{form}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[track_caller]
fn is_refused(daemon: &Daemon, arguments: &[&str]) {
    let said = daemon.cli(arguments);
    assert_eq!((said.code, said.stdout.as_str()), (1, ""), "{arguments:?}: {said:?}");
    assert!(said.stderr.contains(REFUSED), "{arguments:?}: {}", said.stderr);
    assert!(said.stderr.contains("add an entry of this name to ai_providers"), "{}", said.stderr);
}

#[test]
fn an_unknown_ai_type_is_refused_with_the_nearest_one() {
    let daemon = Daemon::running(&with_entry(MINE));
    is_refused(&daemon, &["agent", "add", "agt", "--ai-type", "cluade"]);
    for (agent, ai_type) in [("agt", "claude"), ("agt_2", "mine"), ("agt_3", "qwen")] {
        daemon.done(&["agent", "add", agent, "--ai-type", ai_type]);
    }
    is_refused(&daemon, &["agent", "set", "agt", "--ai-type", "cluade"]);

    let body = json!({ "id": "agt_4", "aiType": "gpt" }).to_string();
    let answer = ask(&daemon, "POST", "/agents", "content-type: application/json\r\n", &body);
    assert_eq!((answer.0, &answer.json()["code"]), (409, &"unknown_ai_type".into()));
    let known = "Known are: claude, codex, copilot, example, gemini, mine, opencode, qwen";
    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
    assert_eq!(detail, format!("no provider starts the ai_type `gpt`. {known}"));

    let form = "id=agt_5&name=x&ai_type=cluade&system_prompt=";
    let answer = sent_form(&daemon, "/ui/do/agents", form);
    assert!(answer.contains("409") && answer.contains(REFUSED), "{answer}");
    assert!(answer.contains("起動できるプロバイダーがありません"), "{answer}");
    let page = daemon.page("/ui/agents/new", "en");
    assert!(page.contains("<option value=\"mine\">"), "{page}");
    assert_eq!(daemon.json(&["agent", "list"]).as_array().unwrap().len(), 3);
}

#[test]
fn a_manifest_names_the_place_of_an_unknown_ai_type() {
    let mut daemon = Daemon::running("");
    let file = daemon.folder().join("manifest.yaml");
    fs::write(&file, "agents:\n  agt:\n    name: x\n    ai_type: cluade\n").unwrap();
    let said = daemon.cli(&["apply", file.to_str().unwrap()]);
    assert!(said.code != 0 && said.stderr.contains(REFUSED), "{said:?}");
    assert!(said.stderr.contains("manifest.yaml:2:3: "), "{}", said.stderr);
    assert_eq!(daemon.json(&["agent", "list"]), json!([]));
    daemon.terminate();
    // The manifest of the configuration is refused in the same way.
    daemon.configure("manifest: manifest.yaml");
    let (code, log) = daemon.refused();
    assert!(code != Some(0) && log.contains("did you mean `claude`?"), "{log}");
}

#[test]
fn an_unknown_ai_type_is_the_only_problem_of_a_manifest() {
    let mut daemon = Daemon::configured("manifest: manifest.yaml");
    daemon.write(
        "manifest.yaml",
        "agents: { agt_x: { ai_type: cluade } }\n\
         projects:\n  prj: { working_directory: work, agents: [agt_x] }\n  \
         prj_2: { working_directory: work, agents: [agt_x] }\n\
         tasks: { tsk: { project: prj, title: t, assignee: agt_x, status: in_progress } }\n",
    );
    let (code, log) = daemon.refused();
    assert_eq!(code, Some(78), "{log}");
    assert!(log.contains("did you mean `claude`?"), "{log}");
    assert!(!log.contains("there is no agent") && !log.contains("problems in"), "{log}");
}

#[test]
fn an_agent_keeps_its_ai_type_after_its_entry_was_removed() {
    let daemon = Daemon::running(&with_entry(MINE));
    daemon.done(&["agent", "add", "agt", "--ai-type", "mine"]);
    let file = daemon.folder().join("manifest.yaml");
    fs::write(&file, "agents: { agt: { ai_type: mine, name: second } }").unwrap();
    daemon.configure(&with_entry(""));
    daemon.done(&["reload"]);
    daemon.done(&["agent", "set", "agt", "--name", "first"]);
    daemon.done(&["agent", "set", "agt", "--ai-type", "mine"]);
    daemon.done(&["apply", file.to_str().unwrap()]);
    assert_eq!(daemon.json(&["agent", "show", "agt"])["name"], "second");
    let said = daemon.cli(&["agent", "add", "agt_2", "--ai-type", "mine"]);
    assert!(said.code == 1 && said.stderr.contains("ai_type `mine`"), "{said:?}");
    daemon.done(&["agent", "set", "agt", "--ai-type", "claude"]);
    let said = daemon.cli(&["agent", "set", "agt", "--ai-type", "mine"]);
    assert!(said.code == 1 && said.stderr.contains("ai_type `mine`"), "{said:?}");
}

#[test]
fn a_server_without_a_coordinator_accepts_any_ai_type() {
    let server = Daemon::serving("");
    server.done(&["agent", "add", "agt", "--ai-type", "cluade"]);
    assert_eq!(server.json(&["agent", "show", "agt"])["ai_type"], "cluade");
}
