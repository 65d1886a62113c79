use super::*;

macro_rules! printed {
    ($name:literal) => {
        include_str!(concat!("../../../../tests/fixtures/output/", $name, ".jsonl"))
    };
}

/// Returns an entry as one line.
fn shown(entry: &Entry) -> String {
    let result = |result: &CallResult| {
        format!("{}{:?}", if result.is_error { "failed " } else { "" }, result.text)
    };
    let body = match &entry.body {
        Body::Text(text) => format!("text {text:?}"),
        Body::Call(call) => format!(
            "call {} ({}) -> {}",
            call.tool,
            call.telling,
            call.result.as_ref().map_or_else(|| "lasts".to_owned(), result)
        ),
        Body::Result { call, result: of } => format!("result of {call}: {}", result(of)),
        Body::Note(text) => format!("note {text:?}"),
        Body::Error(text) => format!("error {text:?}"),
        Body::Total(usage) => {
            format!("total {} tokens, {} micros", usage.tokens(), usage.cost_usd_micros)
        }
        Body::Plain(text) => format!("plain {text:?}"),
    };
    entry.at.map_or_else(|| body.clone(), |at| format!("{at} {body}"))
}

fn read(printed: &str) -> Vec<String> {
    entries(printed.lines()).iter().map(shown).collect()
}

#[test]
fn claude_and_qwen_are_read() {
    assert_eq!(
        read(printed!("claude")),
        [
            "note \"claude-x\"",
            "text \"First the task.\\n\"",
            "call coordinator.get_my_task () -> \"{\\\"has_task\\\":true}\"",
            "error \"attempt 1 failed: overloaded\"",
            "call Bash (cargo test) -> failed \"test result: FAILED\"",
            "text \"I am done.\"",
            "total 662 tokens, 12346 micros",
        ]
    );
    assert_eq!(
        read(printed!("qwen")),
        [
            "note \"m\"",
            "call run_shell_command (cargo test) -> \"ok\"",
            "text \"I am done.\"",
            "total 214 tokens, 0 micros",
        ]
    );
}

#[test]
fn codex_is_read() {
    assert_eq!(
        read(printed!("codex")),
        [
            "plain \"WARNING: proceeding, even though something is odd\"",
            "note \"Model metadata for `scripted` not found. Defaulting to fallback metadata.\"",
            "call coordinator.get_my_task () -> \"{\\\"has_task\\\":true}\"",
            "call edit (/projects/p/a.rs) -> \"\"",
            "error \"Reconnecting... 1/5 (unexpected status 503 Service Unavailable: unavailable, \
             url: http://127.0.0.1:1/v1/responses)\"",
            "call shell (/bin/bash -lc 'cargo test') -> \"ok\"",
            "text \"I am done.\"",
            "total 370 tokens, 0 micros",
        ]
    );
}

#[test]
fn gemini_is_read() {
    assert_eq!(
        read(printed!("gemini")),
        [
            "plain \"YOLO mode is enabled. All tool calls will be automatically approved.\"",
            "2026-01-01T00:00:00.000Z note \"gemini-x\"",
            "plain \"Attempt 1 failed with status 503. Retrying with backoff... _ApiError: \
             {\\\"error\\\":{\\\"code\\\":503}}\"",
            "2026-01-01T00:00:00.000Z call run_shell_command (cargo test) -> \"ok\"",
            "2026-01-01T00:00:00.000Z text \"I am done.\"",
            "2026-01-01T00:00:00.000Z total 214 tokens, 0 micros",
        ]
    );
    let delta = |text: &str| {
        format!(
            r#"{{"type":"message","timestamp":0,"role":"assistant","delta":true,"content":"{text}"}}"#
        )
    };
    let lines = [delta("I am "), delta("**done**.")].join("\n");
    assert_eq!(read(&lines), ["1970-01-01T00:00:00.000Z text \"I am **done**.\""]);
}

#[test]
fn opencode_and_copilot_are_read() {
    assert_eq!(
        read(printed!("opencode")),
        [
            "2026-01-01T00:00:00.000Z call bash (cargo test) -> \"ok\"",
            "2026-01-01T00:00:00.000Z text \"I am done.\"",
        ]
    );
    assert_eq!(
        read(printed!("copilot")),
        [
            "2026-01-01T00:00:00.000Z note \"m\"",
            "2026-01-01T00:00:00.000Z call bash (cargo test) -> \"ok\"",
            "2026-01-01T00:00:00.000Z text \"I am done.\"",
        ]
    );
}

#[test]
fn trouble_of_each_family_is_an_error_or_plain_text() {
    for printed in [
        printed!("claude_auth"),
        printed!("claude_quota"),
        printed!("codex_auth"),
        printed!("codex_quota"),
        printed!("copilot_auth"),
        printed!("gemini_auth"),
        printed!("gemini_quota"),
        printed!("opencode_auth"),
        printed!("opencode_quota"),
        printed!("qwen_auth"),
    ] {
        let shown = read(printed);
        let is_told = |line: &String| line.contains("error \"") || line.contains("plain \"");
        assert!(
            shown.iter().any(is_told) || shown.iter().any(|line| line.contains("API Error")),
            "{printed}\n{shown:#?}"
        );
    }
}

#[test]
fn a_result_without_its_call_stands_alone_and_a_call_without_a_result_lasts() {
    let lines: Vec<&str> = printed!("claude").lines().collect();
    let (before, after) = lines.split_at(3);
    assert_eq!(
        shown(entries(before.iter().copied()).last().unwrap()),
        "call coordinator.get_my_task () -> lasts"
    );
    assert_eq!(
        shown(&entries(after.iter().copied())[0]),
        "result of toolu_1: \"{\\\"has_task\\\":true}\""
    );
    let open = last_open_call(before.iter().copied());
    assert_eq!(open.as_deref(), Some("coordinator.get_my_task"));
    assert_eq!(last_open_call(lines.iter().copied()), None);
    // qwen ends its call when it is stopped.
    let stopped = [
        r#"{"type":"assistant","session_id":"s","message":{"content":[{"type":"tool_use","id":"c","name":"run_shell_command","input":{"command":"make"}}]}}"#,
        r#"{"type":"user","session_id":"s","message":{"content":[{"type":"tool_result","tool_use_id":"c","is_error":true,"content":"[Operation Cancelled]"}]}}"#,
        "Operation cancelled.",
    ];
    assert_eq!(last_open_call(stopped).as_deref(), Some("run_shell_command make"));
    // The line of the end of codex has the whole call.
    let ends = printed!("codex").lines().skip(5);
    assert!(shown(&entries(ends)[0]).starts_with("call coordinator.get_my_task () -> \"{"));
}

#[test]
fn a_call_took_the_time_between_its_lines() {
    let gemini = [
        r#"{"type":"tool_use","timestamp":1000,"tool_id":"t","tool_name":"edit","parameters":{}}"#,
        r#"{"type":"tool_result","timestamp":13500,"tool_id":"t","status":"success","output":"ok"}"#,
    ];
    let opencode = r#"{"type":"tool_use","timestamp":1,"sessionID":"s","part":{"type":"tool","callID":"c",
        "tool":"bash","state":{"status":"completed","input":{},"output":"ok",
        "time":{"start":1000,"end":1250}}}}"#;
    let took = |lines: &[&str]| match &entries(lines.iter().copied())[..] {
        [Entry { body: Body::Call(call), .. }] => call.took,
        other => panic!("one call is expected: {other:?}"),
    };
    assert_eq!(took(&gemini), Some(Duration::from_millis(12_500)));
    assert_eq!(took(&[opencode]), Some(Duration::from_millis(250)));
    let untimed = gemini.map(|line| line.replace(r#""timestamp":1"#, r#""timestamp":null,"at":1"#));
    assert_eq!(took(&[untimed[0].as_str(), untimed[1].as_str()]), None);
}

#[test]
fn plain_lines_are_put_together_without_colours() {
    let printed = "\u{1b}[32mgreen\u{1b}[0m\n\n\u{1b}]0;title\u{7}two\n{\"not\": \"known\"}";
    assert_eq!(read(printed), ["plain \"green\\n\\ntwo\\n{\\\"not\\\": \\\"known\\\"}\""]);
    assert_eq!(read("\n \n"), Vec::<String>::new());
    assert_eq!(read("\u{1b}[12"), Vec::<String>::new());
}

#[test]
fn the_total_of_codex_has_the_tokens_that_it_wrote_into_the_cache() {
    let line = r#"{"type":"turn.completed","usage":{"input_tokens":100,"cached_input_tokens":60,
        "cache_write_input_tokens":10,"output_tokens":5}}"#;
    let [Entry { body: Body::Total(usage), .. }] = &entries([line])[..] else {
        panic!("a total is expected")
    };
    assert_eq!((usage.input_tokens, usage.cache_write_tokens), (30, 10));
}

#[test]
fn long_texts_are_cut_between_characters() {
    let text = "字".repeat(MAX_TEXT);
    let line =
        format!(r#"{{"type":"item.completed","item":{{"type":"agent_message","text":"{text}"}}}}"#);
    let entries = entries([line.as_str(), &"é".repeat(MAX_PLAIN)]);
    let [Entry { body: Body::Text(text), .. }, Entry { body: Body::Plain(plain), .. }] =
        &entries[..]
    else {
        panic!("{entries:?}")
    };
    assert!(text.len() <= MAX_TEXT + 3 && text.ends_with("字…"));
    assert!(plain.len() <= MAX_PLAIN + 3 && plain.ends_with("é…"));
}

proptest::proptest! {
    #[test]
    fn no_line_is_too_odd(line in ".{0,300}", at in 0_usize..4000, odd in "[\\[\\]{}\",:0-9a-z\\\\é-]{0,6}") {
        entries([line.as_str()]);
        let printed = printed!("claude");
        let at = (0..=at.min(printed.len())).rev().find(|&at| printed.is_char_boundary(at)).unwrap();
        let changed = format!("{}{odd}{}", &printed[..at], &printed[at..]);
        entries(changed.lines());
    }
}
