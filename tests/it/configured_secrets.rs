//! Secrets of the configuration: no agent gets one, and no stored or sent text contains one.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;

use domain::forge::ForgeKind;
use serde_json::json;

use crate::daemon::Daemon;
use crate::forge::fake::TOKEN;
use crate::forges::Bed;
use crate::mcp::{MINE, credentials, world};

const SETTINGS: &str = r#"
manifest: world.yaml
http: { listen: '127.0.0.1:0' }
coordinator_token: "${FIRST_HALF}-${SECOND_HALF}"
agents: { agt_b: { passkey: "${PASSKEY_B}" } }
forge: { webhook: { secret: "${WEBHOOK_SECRET}" } }
"#;
const VARIABLES: [(&str, &str); 7] = [
    ("FIRST_HALF", "coordinators"),
    ("SECOND_HALF", "here"),
    ("PASSKEY_B", "passkey-of-agent-b"),
    ("PASSKEY_C", "passkey-of-agent-c"),
    ("WEBHOOK_SECRET", "hook-s3cret-0123"),
    ("COPY", "https://me:hook-s3cret-0123@example"),
    ("HARMLESS", "coordinators elsewhere"),
];
/// The secrets that the configuration contains in the end.
const SECRETS: [&str; 4] =
    ["coordinators-here", "passkey-of-agent-b", "passkey-of-agent-c", "hook-s3cret-0123"];

#[test]
fn no_agent_gets_a_secret_of_the_configuration_and_none_is_kept() {
    let mut daemon = Daemon::configured("");
    let agent = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/agent");
    let entry = format!("{{ cli_command: {agent}, cli_args: [script], pass_environment: ['*'] }}");
    daemon.configure(&format!("ai_providers: {{ claude: {entry} }}\n{SETTINGS}"));
    daemon.write("world.yaml", "agents: { agt_b: {}, agt_c: { passkey: '${PASSKEY_C}' } }");
    let mut command = daemon.command();
    command.envs(VARIABLES);
    daemon.spawn_as(command);
    daemon.until_ready();
    let said = SECRETS.join(" and ");
    let token = "sess_0123456789abcdefGHIJKLMNOPQRSTUV";
    let call = |tool: &str, arguments: serde_json::Value| format!("call:{tool} {arguments}");
    let texts = json!({ "progress": said, "findings": said });
    let report = json!({ "result": "blocked", "summary": format!("I know {said} and {token}"), "next_steps": said });
    daemon.with_one_task(&[
        "env:environment",
        "authenticate",
        "get-my-task",
        &format!("print:printed {said}"),
        &call("create_task", json!({ "title": said, "description": said })),
        &call("save_context", texts),
        &call("report_completed", report),
    ]);
    daemon.until_ended("agt");
    let environment = fs::read_to_string(daemon.work().join("environment")).unwrap();
    assert!(environment.contains("HARMLESS=coordinators elsewhere"), "{environment}");
    for name in ["FIRST_HALF", "SECOND_HALF", "PASSKEY_B", "PASSKEY_C", "WEBHOOK_SECRET", "COPY"] {
        assert!(!environment.contains(&format!("{name}=")), "{name}: {environment}");
    }
    let kept = [
        daemon.done(&["task", "show", "tsk", "--json"]),
        daemon.done(&["task", "list", "--json"]),
        daemon.done(&["logs", "agt", "prj"]),
    ];
    for secret in SECRETS.into_iter().chain([token]) {
        assert!(
            kept.iter().chain([&environment]).all(|text| !text.contains(secret)),
            "{secret}: {kept:?}"
        );
    }
    let redacted = ["[redacted]"; 4].join(" and ");
    assert!(kept[0].contains(&format!("I know {redacted} and sess_…")), "{}", kept[0]);
    assert!(kept[1].contains(&redacted), "{}", kept[1]);
    assert!(kept[2].contains(&format!("printed {redacted}")), "{}", kept[2]);
}

#[test]
fn a_reload_that_changes_secrets_takes_effect() {
    let daemon = Daemon::crowded("agents: { agt_b: { passkey: the-first-passkey } }", &world(MINE));
    let mut client = daemon.client();
    let token =
        client.call("authenticate", &credentials("agt_a", "key_a", "prj"))["session_token"].clone();
    client.call("get_my_task", &json!({ "session_token": token }));
    let mut saved = || {
        let text = "the-first-passkey, the-second-passkey, passkey-of-agent-c, another-of-agent-c";
        let saved =
            client.call("save_context", &json!({ "session_token": token, "progress": text }));
        assert_eq!(saved["success"], true, "{saved}");
        daemon.done(&["task", "show", "tsk"])
    };
    let shown = saved();
    assert!(
        shown.contains("[redacted], the-second-passkey, passkey-of-agent-c, another-of-agent-c"),
        "{shown}"
    );
    let settings = fs::read_to_string(daemon.config()).unwrap().replace("the-first", "the-second");
    fs::write(daemon.config(), format!("{settings}manifest: more.yaml\n")).unwrap();
    for (passkey, expected) in [
        ("passkey-of-agent-c", "the-first-passkey, [redacted], [redacted], another-of-agent-c"),
        ("another-of-agent-c", "the-first-passkey, [redacted], passkey-of-agent-c, [redacted]"),
    ] {
        daemon.write("more.yaml", format!("agents: {{ agt_c: {{ passkey: {passkey} }} }}"));
        daemon.done(&["reload"]);
        let shown = saved();
        assert!(shown.contains(expected), "{shown}");
    }
}

#[test]
fn a_comment_at_a_forge_holds_no_secret() {
    let report = format!(
        r#"call:report_completed {{"result":"success","summary":"I used {TOKEN} for it"}}"#
    );
    let bed = Bed::new(ForgeKind::GitHub, &["authenticate", "get-my-task", &report]);
    let issue = bed.issue("Login fails");
    bed.until("done");
    let comments = format!("{:?}", issue.comments());
    assert!(
        comments.contains("I used [redacted] for it") && !comments.contains(TOKEN),
        "{comments}"
    );
}
