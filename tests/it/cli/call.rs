//! `call`: an MCP client in a shell.

use serde_json::Value;

use super::check_fails;
use crate::daemon::{Daemon, Said};

const WORLD: &str = "
agents: { agt_a: { name: Ann, passkey: key_a } }
projects: { prj: { working_directory: work, agents: [agt_a] } }
tasks: { tsk: { project: prj, title: a title, assignee: agt_a, status: todo } }
";

/// Runs a call with the variables that a coordinator gives its agents.
fn call(daemon: &Daemon, variables: &[(&str, &str)], arguments: &[&str]) -> Said {
    let mut command = daemon.command();
    let output =
        command.envs(variables.iter().copied()).arg("call").args(arguments).output().unwrap();
    Said {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn a_call_prints_its_answer_or_one_field_of_it() {
    let daemon = Daemon::running("");
    let answer: Value = serde_json::from_str(&daemon.done(&["call", "health_check"])).unwrap();
    assert_eq!(answer["status"], "ok");
    assert_eq!(daemon.done(&["call", "health_check", "{}", "--get", "status"]), "ok\n");
    assert_eq!(daemon.done(&["call", "health_check", "--get", "agent_count"]), "0\n");
    assert_eq!(
        daemon.done(&["call", "list_active_projects_with_agents", "--get", "projects"]),
        "[]\n"
    );
    check_fails(
        &daemon,
        &["call", "health_check", "--get", "none"],
        1,
        "the answer of health_check has no field `none`",
    );
}

#[test]
fn arguments_come_from_the_command_line_or_standard_input() {
    let daemon = Daemon::running("");
    daemon.apply(WORLD);
    let credentials = r#"{"agent_id": "agt_a", "passkey": "key_a", "project_id": "prj"}"#;
    let said = daemon
        .cli_with_input(&["call", "authenticate", "-", "--get", "session_token"], credentials);
    assert!(said.code == 0 && said.stdout.starts_with("sess_"), "{said:?}");
    let token = said.stdout.trim();
    let arguments = format!(r#"{{"session_token": "{token}"}}"#);
    assert_eq!(daemon.done(&["call", "get_my_task", &arguments, "--get", "has_task"]), "false\n");
    for bad in ["", "[]", "7", "{", "{} {}"] {
        let said = daemon.cli_with_input(&["call", "get_my_task", "-"], bad);
        assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{bad}: {said:?}");
    }
}

#[test]
fn what_is_missing_comes_from_the_environment() {
    let daemon = Daemon::running("");
    daemon.apply(WORLD);
    let socket = daemon.state().join("mcp.sock");
    let identity = [
        ("AGENT_ID", "agt_a"),
        ("AGENT_PASSKEY", "key_a"),
        ("PROJECT_ID", "prj"),
        ("COORDINATOR_MCP_SOCKET", socket.to_str().unwrap()),
        // The configuration is not needed, so it is not read.
        ("AGENT_COORDINATOR_CONFIG", "/none"),
    ];
    // An argument overrides the environment.
    let other = call(&daemon, &identity, &["authenticate", r#"{"passkey": "key_b"}"#]);
    assert_eq!(other.code, 1, "{other:?}");
    let said = call(&daemon, &identity, &["authenticate", "--get", "session_token"]);
    assert!(said.code == 0 && said.stdout.starts_with("sess_"), "{said:?}");
    let with_token = [&identity[..], &[("AGENT_SESSION_TOKEN", said.stdout.trim())]].concat();
    assert_eq!(call(&daemon, &with_token, &["get_my_task", "--get", "has_task"]).stdout, "false\n");
    assert_eq!(call(&daemon, &with_token, &["logout", "--get", "success"]).stdout, "true\n");
}

#[test]
fn a_refusal_is_printed_and_fails() {
    let daemon = Daemon::running("");
    let of_nobody = ["call", "get_my_task", r#"{"session_token": "sess_x"}"#];
    let field = daemon.cli(&[&of_nobody[..], &["--get", "task"]].concat());
    assert_eq!(
        (field.code, field.stdout.as_str()),
        (1, ""),
        "who asks for a field is not given something else"
    );
    let said = daemon.cli(&of_nobody);
    let answer: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((said.code, &answer["error_code"]), (1, &"invalid_session".into()));
    assert_eq!(said.stderr, "agent-coordinator: get_my_task: Invalid session token\n");
    let said = daemon.cli(&["call", "get_my_task"]);
    let answer: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((said.code, &answer["error_code"]), (1, &"invalid_arguments".into()));
    assert_eq!(
        said.stderr,
        "agent-coordinator: get_my_task: argument `session_token` is missing\n"
    );
    check_fails(
        &daemon,
        &["call", "no_such_tool"],
        1,
        "unknown tool `no_such_tool`; there are: health_check",
    );
}

#[test]
fn a_server_that_answers_nothing_useful_is_told_so() {
    let daemon = Daemon::configured("");
    let socket = daemon.config().with_file_name("other.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let server = std::thread::spawn(move || {
        for answer in ["", "garbage\n", "{\"id\": 7}\n"] {
            use std::io::{BufRead as _, Write as _};
            let (mut stream, _) = listener.accept().unwrap();
            std::io::BufReader::new(stream.try_clone().unwrap())
                .read_line(&mut String::new())
                .unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let variables = [("COORDINATOR_MCP_SOCKET", socket.to_str().unwrap())];
    for why in [
        "closed the connection without answering",
        "is not valid",
        "closed the connection without answering",
    ] {
        let said = call(&daemon, &variables, &["health_check"]);
        assert!(said.code == 1 && said.stderr.contains(why), "{said:?}");
    }
    server.join().unwrap();
    let said = call(&daemon, &variables, &["health_check"]);
    assert_eq!(said.code, 69, "{said:?}");
}

#[test]
fn the_tools_and_their_arguments_are_told_without_a_daemon() {
    let daemon = Daemon::configured("");
    let list = daemon.done(&["call", "--list"]);
    for line in ["TOOL ", "get_my_task ", "respond_chat ", "should_start "] {
        assert!(list.lines().any(|each| each.starts_with(line)), "{line}: {list}");
    }
    let json = daemon.json(&["call", "--list"]);
    assert_eq!(json.as_array().unwrap().len() + 1, list.lines().count());
    let help = daemon.done(&["call", "create_task", "--help"]);
    for words in ["create_task (for a task)", "title (string, required)", "priority (low | medium"]
    {
        assert!(help.contains(words), "{words}: {help}");
    }
    let schema = daemon.json(&["call", "create_task", "--help"]);
    assert_eq!(schema["input_schema"]["properties"]["title"]["type"], "string");
    let unknown = ["call", "get_my_tsk", "--help"];
    check_fails(&daemon, &unknown, 2, "no tool `get_my_tsk`; did you mean `get_my_task`?");
}

#[test]
fn an_agent_is_shown_the_tools_of_its_purpose() {
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;
    let daemon = Daemon::configured("");
    let file = daemon.folder().join("list.json");
    std::fs::write(&file, format!("{list}\n")).unwrap();
    let agent = format!(
        "'{}' mcp < '{}' > tools.new; mv tools.new tools; sleep 600",
        crate::daemon::PROGRAM,
        file.display()
    );
    let mut daemon = daemon;
    daemon.write("agent.sh", &agent);
    let path = daemon.folder().join("agent.sh");
    daemon.configure(&format!(
        "ai_providers: {{ claude: {{ cli_command: sh, cli_args: ['{}'] }} }}",
        path.display()
    ));
    daemon.start();
    daemon.with_one_task(&[]);
    let tools = |file: &str| {
        let answer = std::fs::read_to_string(daemon.work().join(file)).ok()?;
        let answer: Value = serde_json::from_str(&answer).ok()?;
        let tools = answer["result"]["tools"].as_array()?.clone();
        Some(tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>())
    };
    let of_task = crate::support::until_some("the agent has the list", || tools("tools"));
    assert!(of_task.contains(&"get_my_task".to_owned()), "{of_task:?}");
    assert!(of_task.contains(&"authenticate".to_owned()), "{of_task:?}");
    for other in ["respond_chat", "should_start"] {
        assert!(!of_task.contains(&other.to_owned()), "{of_task:?}");
    }
    // A person sees all tools.
    let listed = daemon.client().request("tools/list", &serde_json::json!({}));
    assert!(listed["result"]["tools"].as_array().unwrap().len() > of_task.len());
}
