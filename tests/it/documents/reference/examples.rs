//! An example of each tool: a real call to a real server, in the order in which a coordinator and
//! its agents make the calls. Everything that differs between two runs is replaced.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::daemon::{Client, Daemon};

const WORLD: &str = "
agents:
  agt_developer: { name: Developer, system_prompt: You are a web developer. }
  agt_reviewer: { name: Reviewer, system_prompt: You review code. }
projects:
  prj_shop: { name: Web shop, working_directory: work, agents: [agt_developer, agt_reviewer] }
tasks:
  tsk_login:
    project: prj_shop
    title: Login page
    description: Name and password.
    assignee: agt_developer
    status: in_progress
";
/// Stands for the working directory of the test.
const WORK: &str = "/home/ann/projects/shop";
/// A moment with milliseconds, and one of `health_check`.
const TIMES: [&str; 2] = ["2026-01-06T10:00:00.000Z", "2026-01-06T10:00:00Z"];
/// The beginnings of generated ids and secrets.
const PREFIXES: [&str; 8] =
    ["lch_", "tkt_", "sess_socket_", "ses_", "tsk_", "msg_", "ntf_", "exe_"];
/// The least length of the rest of a generated id. Ids in the manifest are shorter.
const MIN_GENERATED: usize = 20;

/// The arguments and the answer of one call of each tool.
pub struct Examples(BTreeMap<&'static str, (Value, Value)>);

impl Examples {
    #[track_caller]
    pub fn of(&self, tool: &str) -> &(Value, Value) {
        self.0.get(tool).unwrap_or_else(|| {
            panic!("{tool} has no example: add a call to tests/it/documents/reference/examples.rs")
        })
    }
}

/// A client that keeps its calls as examples.
struct Recorder {
    client: Client,
    work: String,
    examples: BTreeMap<&'static str, (Value, Value)>,
}

impl Recorder {
    /// Makes a successful call, keeps it as the example of the tool, and returns its answer.
    #[track_caller]
    fn shown(&mut self, tool: &'static str, arguments: Value) -> Value {
        let answer = self.client.call(tool, &arguments);
        assert_ne!(answer["success"], false, "{tool}: {answer}");
        let (mut stable_arguments, mut stable_answer) = (arguments, answer.clone());
        make_stable(&mut stable_arguments, &self.work);
        make_stable(&mut stable_answer, &self.work);
        self.examples.insert(tool, (stable_arguments, stable_answer));
        answer
    }

    /// Lets a coordinator start an agent, and returns the launch and the session token.
    #[track_caller]
    fn start(&mut self, agent: &str, purpose: &str) -> (Value, Value) {
        let mut pair = json!({ "agent_id": agent, "project_id": "prj_shop" });
        let mut question = pair.clone();
        question["purpose"] = purpose.into();
        question["coordinator_id"] = "crd_mine".into();
        let granted = self.shown("should_start", question);
        pair["passkey"] = granted["launch_ticket"].clone();
        let session = self.shown("authenticate", pair);
        (granted["launch_id"].clone(), session["session_token"].clone())
    }
}

/// Replaces what differs between two runs.
fn make_stable(value: &mut Value, work: &str) {
    match value {
        Value::String(text) => *text = stable(text, work),
        Value::Array(values) => values.iter_mut().for_each(|value| make_stable(value, work)),
        Value::Object(object) => {
            for (key, value) in object {
                match key.as_str() {
                    "version" | "run" | "seen" => *value = "…".into(),
                    "expires_in" => *value = 86_400.into(),
                    "idle_ms" => *value = 5.into(),
                    _ => make_stable(value, work),
                }
            }
        }
        _ => {}
    }
}

fn stable(text: &str, work: &str) -> String {
    let is_time = |time: &&&str| {
        text.len() == time.len() && text.ends_with('Z') && text.as_bytes()[10] == b'T'
    };
    if let Some(time) = TIMES.iter().find(is_time) {
        return (*time).to_owned();
    }
    // The user of the test.
    if text.starts_with("local:") {
        return "Ann".to_owned();
    }
    let is_of_id = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let mut text = text.replace(work, WORK);
    for prefix in PREFIXES {
        let Some(at) = text.find(prefix) else {
            continue;
        };
        let rest = &text[at + prefix.len()..];
        let length = rest.find(|c| !is_of_id(c)).unwrap_or(rest.len());
        if length >= MIN_GENERATED {
            let end = at + prefix.len() + length;
            let short = prefix.trim_end_matches("socket_");
            text.replace_range(at..end, &format!("{short}…"));
        }
    }
    text
}

/// Returns the tools as the server lists them, and an example of each.
pub fn tools_and_examples() -> (Vec<Value>, Examples) {
    let daemon = Daemon::serving("");
    daemon.apply(WORLD);
    let mut client = daemon.client();
    let listed = client.request("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap().clone();
    let work = daemon.work().canonicalize().unwrap().to_str().unwrap().to_owned();
    let mut recorder = Recorder { client, work, examples: BTreeMap::new() };
    let mine = json!({ "coordinator_id": "crd_mine" });
    let of_mine = |mut arguments: Value| {
        arguments["coordinator_id"] = "crd_mine".into();
        arguments
    };

    recorder.shown("health_check", json!({}));
    recorder.shown("list_active_projects_with_agents", mine.clone());
    let (launch, token) = recorder.start("agt_developer", "task");
    recorder.shown("report_process_started", of_mine(json!({ "launch_id": launch, "pid": 4711 })));
    recorder.shown("wait_for_work", mine.clone());
    recorder.shown(
        "report_status",
        of_mine(json!({ "max_concurrent": 3, "counters": { "cycles": 12, "starts": 1 } })),
    );
    recorder.shown(
        "get_agent_action",
        of_mine(json!({ "agent_id": "agt_reviewer", "project_id": "prj_shop" })),
    );

    let session = |mut arguments: Value| {
        arguments["session_token"] = token.clone();
        arguments
    };
    recorder.shown("get_next_action", session(json!({})));
    recorder.shown("get_my_task", session(json!({})));
    let parts = json!([
        { "local_id": "form", "title": "Form with validation" },
        { "local_id": "errors", "title": "Error messages", "dependencies": ["form"] },
    ]);
    let divided = recorder.shown(
        "create_tasks_batch",
        session(json!({ "parent_task_id": "tsk_login", "tasks": parts })),
    );
    recorder.shown("create_task", session(json!({ "title": "Reset a forgotten password" })));
    let form = &divided["local_id_to_real_id"]["form"];
    recorder.shown("update_task_status", session(json!({ "task_id": form, "status": "done" })));
    recorder.shown("get_my_task_progress", session(json!({})));
    recorder.shown(
        "save_context",
        session(json!({ "progress": "The form is done.", "next_steps": "Write the messages." })),
    );
    recorder.shown(
        "report_activity",
        of_mine(
            json!({ "launch_id": launch, "turns": 3, "input_tokens": 1200, "output_tokens": 800 }),
        ),
    );

    let blocked = ["task", "set", "tsk_login", "--status", "blocked", "--reason", "new design"];
    daemon.done(&blocked);
    recorder.shown("get_notifications", session(json!({})));
    daemon.done(&["stop", "agt_developer", "prj_shop", "--no-wait"]);
    recorder.shown("list_stop_requests", mine);
    recorder.shown(
        "report_process_stopping",
        of_mine(json!({ "launch_id": launch, "reason": "person" })),
    );
    let report = json!({ "result": "blocked", "summary": "The form is done.", "next_steps": "Wait for the design." });
    recorder.shown("report_completed", session(report));
    recorder.shown("report_process_exit", of_mine(json!({ "launch_id": launch, "exit_code": 0 })));

    daemon.done(&["chat", "start", "agt_reviewer", "prj_shop"]);
    daemon.done(&["chat", "send", "agt_reviewer", "prj_shop", "Is the cart done?"]);
    let first =
        ["should_start", "authenticate"].map(|tool| (tool, recorder.examples[tool].clone()));
    let (_, token) = recorder.start("agt_reviewer", "chat");
    // The task is the better example.
    recorder.examples.extend(first);
    let session = |mut arguments: Value| {
        arguments["session_token"] = token.clone();
        arguments
    };
    recorder.shown("get_pending_messages", session(json!({})));
    recorder.shown("respond_chat", session(json!({ "content": "Yes, since this morning." })));
    recorder.shown("logout", session(json!({})));
    (tools, Examples(recorder.examples))
}
