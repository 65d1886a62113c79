//! The transcript of a launch: what its agent said and did, while it does it, and of any length.

use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

use super::browser::Browser;
use super::pictures::keep;
use super::{assert_quiet, daemon};

const PRINTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/output/claude.jsonl");

#[test]
fn a_transcript_shows_what_is_said_and_done_while_the_agent_runs() {
    let daemon = daemon(&["agt"]);
    // A session token that the agent prints is not shown, as in its log.
    let token = format!("sess_{}", "A1b2".repeat(11));
    let secret = json!({ "type": "item.completed",
        "item": { "type": "agent_message", "text": format!("**my** <i>token</i>: {token}") } });
    let print = format!(
        "run:echo plain words; head -n 3 {PRINTED}; until [ -e go ]; do sleep 0.1; done; \
         tail -n +4 {PRINTED}; echo '{secret}'; until [ -e end ]; do sleep 0.1; done"
    );
    daemon.steps("agt", &["authenticate", "get-my-task", &print]);
    daemon.task("tsk", "prj", "agt");
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let launch = daemon.until_in_state("agt", "running")["launch_id"].as_str().unwrap().to_owned();
    browser.go_to(&format!("/ui/launches/{launch}"));
    browser.until("its call lasts", || {
        browser.texts("#transcript .tool.is-begun .end") == ["Running"]
    });
    assert!(browser.texts("#transcript pre")[0].contains("plain words"));
    assert_eq!(browser.texts("#transcript .prose"), ["First the task."]);

    // The result comes in another page, and goes to its call.
    fs::write(daemon.work().join("go"), "").unwrap();
    browser.until("its total is shown", || {
        browser.texts("#transcript p").concat().contains("662 tokens · 3 turns · $0.02")
    });
    assert!(!browser.has("#transcript .is-begun, #transcript [data-result-of]"));
    assert_eq!(browser.texts("#transcript .tool summary b"), ["coordinator.get_my_task", "Run"]);
    assert_eq!(browser.texts("#transcript .tool.is-bad[open] .end"), ["failed"]);
    assert_eq!(browser.texts("#transcript .tool.is-bad .got"), ["test result: FAILED"]);
    assert_eq!(browser.texts("#transcript .call.bad p"), ["attempt 1 failed: overloaded"]);
    browser
        .until("the last text is shown", || browser.texts("#transcript .prose strong") == ["my"]);
    let text = browser.texts("#transcript").concat();
    assert!(text.contains("<i>token</i>:") && !text.contains(&token), "{text}");
    keep(&browser, "transcript");

    // The raw output is there when it is wanted.
    assert_eq!(browser.texts("#output"), [""]);
    browser.find("[data-view=raw-view]").click();
    browser.until("it is shown", || browser.texts("#output").concat().contains("plain words"));
    assert!(!browser.texts("#output").concat().contains(&token));
    fs::write(daemon.work().join("end"), "").unwrap();
    browser.until("its end is shown", || browser.has("#launch [data-state=ended]"));
    assert_quiet(&browser);
}

#[test]
fn the_time_of_a_call_and_the_lines_of_an_edit_stand_beside_it() {
    let daemon = daemon(&["agt"]);
    let call = json!({ "type": "tool_use", "timestamp": 1000, "tool_id": "t", "tool_name": "Edit",
        "parameters": { "file_path": "a.rs", "old_string": "a\nb", "new_string": "a\nB\nC" } });
    let result = json!({ "type": "tool_result", "timestamp": 13_500, "tool_id": "t",
        "status": "success", "output": "ok" });
    // Each of two runs of a CLI counts its calls from the beginning.
    let run = |kind: &str, output: &str| {
        let item = json!({ "id": "item_1", "type": "command_execution", "command": "ls",
            "aggregated_output": output, "exit_code": 0, "status": "completed" });
        json!({ "type": kind, "item": item })
    };
    let [first, begun, second] = [("completed", "one"), ("started", ""), ("completed", "two")]
        .map(|(kind, output)| run(&format!("item.{kind}"), output));
    let print = format!(
        "run:printf '%s\\n' '{call}' '{first}' '{begun}'; until [ -e go ]; do sleep 0.1; done; \
         printf '%s\\n' '{result}' '{second}'"
    );
    daemon.steps("agt", &["authenticate", "get-my-task", &print, "report:success"]);
    daemon.task("tsk", "prj", "agt");
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let launch = daemon.until_in_state("agt", "running")["launch_id"].as_str().unwrap().to_owned();
    browser.go_to(&format!("/ui/launches/{launch}"));
    let end = || browser.texts("#transcript .tool .end");
    browser.until("the call lasts", || {
        let end = end();
        end.len() == 3 && end[0].starts_with("Running · ") && end[1..] == ["", "Running"]
    });
    fs::write(daemon.work().join("go"), "").unwrap();
    browser.until("its result came in another page", || end() == ["+2 −1 · 12s", "", ""]);
    let got = || browser.texts("#transcript .got");
    assert_eq!(got(), ["ok", "one", "two"]);
    daemon.until_ended("agt");
    browser.go_to(&format!("/ui/launches/{launch}"));
    browser.until("they come in one page", || end() == ["+2 −1 · 12s", "", ""]);
    assert_eq!(got(), ["ok", "one", "two"]);
    let doubled = "const ids = [...document.querySelectorAll('[id]')].map(e => e.id); \
                   return ids.length - new Set(ids).size";
    assert_eq!(browser.run(doubled), 0);
    assert_quiet(&browser);
}

#[test]
fn a_transcript_of_a_hundred_thousand_entries_begins_at_its_end() {
    let daemon = daemon(&["agt"]);
    daemon.steps("agt", &["authenticate", "get-my-task", "report:success"]);
    daemon.task("tsk", "prj", "agt");
    let launch = daemon.until_ended("agt")["launch_id"].as_str().unwrap().to_owned();
    let Some(browser) = Browser::at(&daemon, "operator", "ja") else {
        return;
    };
    let mut log = String::new();
    for n in 0..100_000 {
        writeln!(
            log,
            r#"{{"type":"item.completed","item":{{"id":"i{n}","type":"agent_message","text":"entry {n}"}}}}"#
        )
        .unwrap();
    }
    let folder = ["ended", "instances"].map(|name| daemon.state().join(name).join(&launch));
    let folder = folder.into_iter().find(|folder| folder.is_dir()).unwrap();
    fs::write(folder.join("output.log"), log).unwrap();
    let begun = Instant::now();
    browser.go_to(&format!("/ui/launches/{launch}"));
    let texts = || browser.texts("#transcript .prose");
    browser.until("its end is shown", || texts().last().is_some_and(|text| text == "entry 99999"));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(texts().len(), 400);
    let bottom = "const b = document.querySelector('#transcript-box'); return b.scrollHeight - b.scrollTop - b.clientHeight";
    assert!(browser.run(bottom).as_f64().unwrap() < 40.0);

    // Earlier entries come before them, and the reader stays at the same entry.
    let y =
        "document.querySelector('#transcript li:nth-last-child(400)').getBoundingClientRect().y";
    browser
        .run(&format!("document.querySelector('#transcript-box').scrollTop = 0; window.y = {y}"));
    browser.find("#earlier-entries").click();
    browser.until("more are shown", || texts().len() == 800);
    assert_eq!(texts()[0], "entry 99200");
    let moved = browser.run(&format!("return Math.abs({y} - window.y)"));
    assert!(moved.as_f64().unwrap() < 2.0, "{moved}");
    assert_eq!(browser.texts("#earlier-entries"), ["以前の記録を表示"]);

    // A line of a mebibyte, and a text that is as long as an entry can be and looks like a script.
    let entry = |text: &str| json!({ "type": "item.completed", "item": { "id": "i", "type": "agent_message", "text": text } });
    let hostile = format!("<img src=x onerror=window.hit=1> {}", "*".repeat(60_000));
    let long = entry(&"*".repeat(1 << 20));
    fs::write(folder.join("output.log"), format!("{long}\n{}\n", entry(&hostile))).unwrap();
    browser.go_to(&format!("/ui/launches/{launch}"));
    browser.until("it is text", || texts().concat() == hostile);
    assert!(browser.texts("#transcript li")[0].contains(&"*".repeat(10_000)));
    let facts = "return [window.hit ?? null, document.querySelector('#transcript img')]";
    assert_eq!(browser.run(facts), json!([null, null]));
    assert_quiet(&browser);
}
