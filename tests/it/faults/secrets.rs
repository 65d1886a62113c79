//! F-35, and the rights of an agent: secrets can be read nowhere, and no agent has the rights of
//! a person or a coordinator.

use std::fs;
use std::path::Path;

use machine::sys::processes;
use serde_json::json;

use crate::daemon::Daemon;
use crate::support::{contains, until_some};

const PASSKEY: &str = "correct-horse-battery-staple";

/// Returns the files below `folder` that contain `secret`.
fn files_with(folder: &Path, secret: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let has_it = |path: &Path| contains(&fs::read(path).unwrap_or_default(), secret);
    entries
        .flat_map(|path| match path.is_dir() {
            true => files_with(&path, secret),
            false if has_it(&path) => vec![path.display().to_string()],
            false => Vec::new(),
        })
        .collect()
}

#[test]
fn secrets_are_in_no_argument_list_no_log_no_answer_and_no_file() {
    let mut daemon = Daemon::running("log: { level: debug }");
    daemon.project("prj");
    daemon.agent(
        "agt",
        "prj",
        &[
            "authenticate",
            "print:I was given",
            "run:printf '%s\\n' \"$AGENT_PASSKEY\" \"$AGENT_SESSION_TOKEN\"",
            // CLIs print their tool calls like this, in two writes.
            "run:printf '{\"type\":\"tool_use\",\"input\":{\"passkey\":\"%.9s' \"$AGENT_PASSKEY\"",
            "run:printf '%s\",\"session_token\":\"%s\"}}\\n' \"${AGENT_PASSKEY#?????????}\" \"$AGENT_SESSION_TOKEN\"",
            "run:printf '%s\\n' \"$AGENT_PASSKEY\" \"$AGENT_SESSION_TOKEN\" >secrets.draft && mv secrets.draft secrets",
            "get-my-task",
            "wait-for:go",
            "report:success",
        ],
    );
    assert_eq!(daemon.cli_with_input(&["agent", "set", "agt", "--passkey-stdin"], PASSKEY).code, 0);
    daemon.task("tsk", "prj", "agt");
    let given = until_some("the agent has its secrets", || {
        fs::read_to_string(daemon.work().join("secrets")).ok()
    });
    let secrets: Vec<&str> = given.lines().chain([PASSKEY]).collect();
    assert!(secrets[0].starts_with("tkt_") && secrets[1].starts_with("sess_"), "{secrets:?}");

    // Other processes show the passkey and the ticket to the server, rightly and wrongly.
    for passkey in [PASSKEY, "wrong"] {
        let arguments = json!({ "agent_id": "agt", "project_id": "prj", "passkey": passkey });
        assert_eq!(daemon.client().call("authenticate", &arguments)["success"], false);
    }
    let said = [
        daemon.done(&["status", "--json"]),
        daemon.done(&["agent", "show", "agt", "--json"]),
        daemon.done(&["logs", "agt", "prj"]),
    ];
    assert!(said[2].contains("I was given"));
    let redacted =
        r#"{"type":"tool_use","input":{"passkey":"[redacted]","session_token":"sess_…"}}"#;
    assert!(said[2].contains(redacted), "{}", said[2]);
    let arguments = processes::list().unwrap().into_iter().filter_map(|process| {
        fs::read(format!("/proc/{}/cmdline", process.pid))
            .map(|text| String::from_utf8_lossy(&text).into_owned())
            .ok()
    });
    let arguments: Vec<String> = arguments.collect();
    assert!(
        arguments.iter().any(|arguments| arguments.contains("tests/fixtures/agent")),
        "{arguments:?}"
    );
    let check = |daemon: &Daemon, moment: &str| {
        for secret in &secrets {
            assert_eq!(files_with(&daemon.state(), secret), [""; 0], "{moment}");
            assert!(!daemon.log().contains(secret), "{moment}");
        }
    };
    for secret in &secrets {
        assert!(
            said.iter().chain(&arguments).all(|text| !text.contains(secret)),
            "{said:?} {arguments:?}"
        );
    }
    check(&daemon, "while it runs");
    fs::write(daemon.work().join("go"), "").unwrap();
    daemon.until_ended("agt");
    daemon.until_nothing_is_left();
    check(&daemon, "when it has ended");
    daemon.terminate();
    check(&daemon, "when the store is closed");
}

#[test]
fn an_agent_has_neither_the_control_socket_nor_a_coordinators_tools() {
    let daemon = Daemon::running("");
    let control = "\"$AGENT_COORDINATOR\" --config ../coordinator_config.yaml stop --all";
    let tool = r#"call should_start "{\"agent_id\":\"agt\",\"project_id\":\"prj\",\"coordinator_id\":\"crd_mine\"}""#;
    let daemonised = format!(
        "run:(env -i AGENT_COORDINATOR=\"$AGENT_COORDINATOR\" setsid sh -c '{control} >late 2>&1; echo $? >late.code' &)"
    );
    daemon.with_one_task(&[
        "authenticate",
        &format!("run:{control} >control 2>&1; echo $? >control.code"),
        &format!("run:{tool} >tool 2>&1; echo $? >tool.code"),
        &daemonised,
        "wait-for:late.code",
        "wait-for:go",
    ]);
    let written = |name: &str| {
        let path = daemon.work().join(name);
        until_some(name, || fs::read_to_string(&path).ok().filter(|text| !text.is_empty()))
    };
    for (name, expected) in [
        ("control", "agents have no access"),
        ("late", "agents have no access"),
        ("tool", "coordinator_only"),
    ] {
        assert_eq!(written(&format!("{name}.code")), "1\n", "{name}: {}", written(name));
        assert!(written(name).contains(expected), "{name}: {}", written(name));
    }
    let status = daemon.status();
    assert_eq!(
        (&status["paused"], &status["instances"][0]["state"]),
        (&false.into(), &"running".into())
    );
}
