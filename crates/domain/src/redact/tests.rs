use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::Value;

use super::*;

#[track_caller]
fn check(line: &str, literals: &[&str], expected: &str) {
    let redactor = Redactor::new(literals.iter().map(|literal| literal.as_bytes()));
    assert_eq!(String::from_utf8_lossy(&redactor.redact(line.as_bytes())), expected);
}

#[test]
fn tokens_are_cut_to_their_prefix() {
    check(r#"{"session_token":"sess_0123456789abcdefGHIJ"}"#, &[], r#"{"session_token":"sess_…"}"#);
    check("tkt_0123456789abcdef tkt_0123456789abcdef", &[], "tkt_… tkt_…");
    check(r"x\nop_0123456789abcdef\n", &[], r"x\nop_…\n");
}

#[test]
fn words_with_a_prefix_are_left_alone() {
    check("op_count = 3, sess_id", &[], "op_count = 3, sess_id");
}

#[test]
fn literal_secrets_are_replaced() {
    check("passkey=hunter22!", &["hunter22"], "passkey=[redacted]!");
    check("a b c", &["b"], "a b c");
}

#[test]
fn of_secrets_that_begin_alike_the_longest_is_taken() {
    check("a hunter22-more", &["hunter22", "hunter22-more"], "a [redacted]");
}

#[test]
fn texts_lose_long_secrets_and_whole_tokens() {
    let random = "0123456789abcdefGHIJKLMNOPQRSTUV";
    let redactor = Redactor::for_texts([&"short secret"[..11], "a long secret", "schlüssel-ключ"]);
    let check = |text: &str, expected: &str| assert_eq!(redactor.redact_text(text), expected);
    check("It is\n`a long secret`, schlüssel-ключ.", "It is\n`[redacted]`, [redacted].");
    check("a short secre stays", "a short secre stays");
    check(&format!("sess_{random}, sess_socket_{random}"), "sess_…, sess_…");
    check(&format!("tkt_{}.", "0".repeat(40)), "tkt_….");
    check(&format!("a\\nop_{random}"), "a\\nop_…");
    for word in
        ["loop_counter_increment_value_of_all", "op_count_of_all_the_things_there_are", "op_"]
    {
        check(word, word);
    }
    let longer = format!("xop_{random} op_{random}0");
    check(&longer, &longer);
}

#[test]
fn what_only_looks_like_an_escape_is_left_alone() {
    for line in [
        r"C:\users\u00",
        r"\",
        r"\\\",
        r"\ud83d\u0041",
        r"\ud83d",
        r#"\"\/\'"#,
        "\u{fffd} é",
        r"\uzzzz",
    ] {
        check(line, &["hunter22", r"\\secret"], line);
    }
}

#[test]
fn backslashes_take_no_time_and_hide_nothing() {
    let many = r"\".repeat(1_000_000);
    check(&many, &["hunter22", r"\\\\"], &many);
    check(&format!("{many}hunter22"), &["hunter22"], "[redacted]");
    check(r"hunter\\22", &[r"hunter\22"], "[redacted]");
}

/// Examples of passkeys that people may choose.
const PASSKEYS: [&str; 6] = [
    "correct-horse-battery-staple",
    r#"quo"ted \ back\\slashed"#,
    "schlüssel-ключ-鍵",
    "🔑 with 🦀",
    "</script>&'/path'",
    r"C:\new\table",
];
const TOKEN: &str = "sess_0b6a7c91d2e34f5a8b9cGHIJ-kl_m";

/// Escapes a text as the inside of a JSON string.
type Escape = fn(&str) -> String;

fn usual(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Escapes as Go and JavaScript do for HTML.
fn for_html(text: &str) -> String {
    usual(text)
        .replace('<', r"\u003c")
        .replace('>', r"\u003E")
        .replace('&', r"\u0026")
        .replace('/', r"\/")
}

/// Escapes as Python does: ASCII only.
fn for_ascii(text: &str) -> String {
    usual(text).chars().fold(String::new(), |mut escaped, c| {
        if c.is_ascii() {
            escaped.push(c);
        } else {
            c.encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|unit| write!(escaped, "\\u{unit:04x}").unwrap());
        }
        escaped
    })
}

fn every_character(text: &str) -> String {
    text.encode_utf16().fold(String::new(), |mut escaped, unit| {
        write!(escaped, "\\u{unit:04X}").unwrap();
        escaped
    })
}

const ESCAPES: [Escape; 4] = [usual, for_html, for_ascii, every_character];

/// Lines that the CLIs print for calls of `authenticate` and `get_my_task`. The marks `<1>` and
/// `<2>` stand for a passkey and a session token in a JSON string. The marks `<<1>>` and `<<2>>`
/// stand for the same in JSON that is quoted in a JSON string.
const LINES: [&str; 12] = [
    // claude --output-format stream-json --verbose
    r#"{"type":"assistant","message":{"id":"msg_01","type":"message","role":"assistant","content":[{"type":"tool_use","id":"toolu_01","name":"mcp__coordinator__authenticate","input":{"agent_id":"agt_a","passkey":"<1>","project_id":"prj"}}],"stop_reason":"tool_use"},"session_id":"7d1e"}"#,
    r#"{"type":"user","message":{"role":"user","content":[{"tool_use_id":"toolu_01","type":"tool_result","content":[{"type":"text","text":"{\"success\":true,\"session_token\":\"<<2>>\",\"expires_in\":86400}"}]}]},"tool_use_result":"{\"session_token\":\"<<2>>\"}","session_id":"7d1e"}"#,
    r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"toolu_02","name":"Bash","input":{"command":"agent-coordinator call authenticate '{\"passkey\":\"<<1>>\"}'"}}]}}"#,
    // codex exec --json
    r#"{"type":"item.completed","item":{"id":"item_1","type":"mcp_tool_call","server":"coordinator","tool":"authenticate","arguments":{"agent_id":"agt_a","passkey":"<1>"},"result":{"content":[{"type":"text","text":"{\"session_token\":\"<<2>>\"}"}],"structured_content":{"session_token":"<2>"}},"error":null,"status":"completed"}}"#,
    r#"{"type":"item.started","item":{"id":"item_2","type":"command_execution","command":"/bin/bash -lc \"call authenticate \\\"<<1>>\\\"\"","aggregated_output":"","exit_code":null,"status":"in_progress"}}"#,
    // gemini -o stream-json
    r#"{"type":"tool_use","timestamp":"2026-01-06T10:00:00.000Z","tool_name":"authenticate","tool_id":"authenticate-1","parameters":{"agent_id":"agt_a","passkey":"<1>","project_id":"prj"}}"#,
    r#"{"type":"tool_result","timestamp":"2026-01-06T10:00:01.000Z","tool_id":"authenticate-1","status":"success","output":"{\"session_token\":\"<<2>>\"}"}"#,
    // qwen -o stream-json
    r#"{"type":"assistant","uuid":"u1","session_id":"s1","message":{"role":"assistant","content":[{"type":"tool_use","id":"call_1","name":"mcp__coordinator__get_my_task","input":{"session_token":"<2>"}}]}}"#,
    // opencode run --format json
    r#"{"type":"tool_use","timestamp":1767693600000,"sessionID":"ses_1","part":{"id":"prt_1","type":"tool","callID":"call_1","tool":"coordinator_authenticate","state":{"status":"completed","input":{"agent_id":"agt_a","passkey":"<1>"},"output":"{\"session_token\":\"<<2>>\"}","title":""}}}"#,
    // copilot --output-format json
    r#"{"type":"tool.execution_start","data":{"toolCallId":"call_1","toolName":"coordinator-authenticate","arguments":{"agent_id":"agt_a","passkey":"<1>"}},"id":"e1"}"#,
    r#"{"type":"tool.execution_complete","data":{"toolCallId":"call_1","success":true,"result":{"content":"{\"session_token\":\"<<2>>\"}","detailedContent":"<2>"}},"id":"e2"}"#,
    r#"{"type":"assistant.message","data":{"content":"I am in: <2>, with <1>.","toolRequests":[{"arguments":"{\"session_token\":\"<<2>>\"}"}]}}"#,
];

#[test]
fn no_secret_is_left_in_what_agent_clis_print() {
    for passkey in PASSKEYS {
        let redactor = Redactor::new([passkey.as_bytes()]);
        for escape in ESCAPES {
            for line in LINES {
                let once = escape(passkey);
                let token = escape(TOKEN);
                // The outer quotation escapes only the backslashes of a text that is fully escaped
                // already.
                let twice = usual(&once);
                let token_twice = usual(&token);
                let printed = line.replace("<<1>>", &twice).replace("<<2>>", &token_twice);
                let printed = printed.replace("<1>", &once).replace("<2>", &token);
                assert_eq!(
                    serde_json::from_str::<Value>(&printed).err().map(|error| error.to_string()),
                    None
                );

                let redacted = redactor.redact(printed.as_bytes()).into_owned();
                let redacted = String::from_utf8(redacted).unwrap();
                let expected = line.replace("<<1>>", "[redacted]").replace("<<2>>", "sess_…");
                assert_eq!(
                    redacted,
                    expected.replace("<1>", "[redacted]").replace("<2>", "sess_…"),
                    "of {printed}"
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn nothing_is_skipped_that_begins_a_secret(
        literals in prop::collection::vec("[sé鍵\u{fffd}\\\\]{2,3}[a-bé]{0,3}", 0..3),
        parts in prop::collection::vec(
            prop_oneof![
                "[setk_o0u\\\\é鍵\u{fffd}ab]{1,8}".prop_map(String::into_bytes),
                Just(br"\u0073".to_vec()),
                Just(br"\\u00e9".to_vec()),
                Just(b"sess_0123456789abcdefG".to_vec()),
                prop::collection::vec(0x80_u8.., 1..3),
            ],
            0..12,
        ),
    ) {
        let redactor = Redactor::new(literals.iter().map(String::as_bytes));
        // The line also contains pieces of the secrets.
        let mut line = parts.concat();
        line.extend(literals.iter().flat_map(|literal| literal.bytes()));
        let everywhere = |at: usize| (at < line.len()).then_some(at);
        prop_assert_eq!(redactor.redact(&line), redactor.redact_where(&line, everywhere));
    }
}
