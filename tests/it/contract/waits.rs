//! `wait_for_work` and `list_stop_requests`: the facts for a coordinator's plan, and its waits for
//! news.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::bed::Bed;
use super::client::Caller;
use crate::redacted::redacted;
use crate::support::until;

/// A wait that is longer than any of these tests may take, in seconds.
const LONG: u64 = 55;

/// Returns the present view.
fn look(coordinator: &mut Caller) -> Value {
    coordinator.done("wait_for_work", json!({}))
}

/// Begins to wait for news since `work`, and returns when the server has taken that.
#[track_caller]
fn wait(bed: &Bed, coordinator: &mut Caller, work: &Value, timeout_seconds: u64) -> u64 {
    let arguments = json!({ "seen": work["seen"], "timeout_seconds": timeout_seconds });
    let id =
        until_heard(bed, coordinator, |coordinator| coordinator.begin("wait_for_work", arguments));
    // This is another call, on the same connection if there are connections. It is answered at
    // once.
    assert_eq!(coordinator.done("health_check", json!({}))["status"], "ok");
    id
}

/// Begins a call as this coordinator by `begin`, and returns when the server has taken it.
#[track_caller]
fn until_heard<T>(bed: &Bed, coordinator: &mut Caller, begin: impl FnOnce(&mut Caller) -> T) -> T {
    // From then on the server notes when it hears from the coordinator.
    coordinator.done("report_status", json!({ "max_concurrent": 1 }));
    let heard_at = || bed.status()["coordinators"][0]["heardAt"].clone();
    let before = heard_at();
    until("time has passed", || bed.status()["at"] != before);
    let begun = begin(coordinator);
    until("the wait has begun", || heard_at() != before);
    begun
}

/// Sends messages of which one waits, and returns when the server has taken that.
#[track_caller]
fn send_wait(bed: &Bed, coordinator: &mut Caller, messages: &Value) {
    until_heard(bed, coordinator, |coordinator| coordinator.client.send(&messages.to_string()));
}

fn stop(bed: &Bed) {
    bed.operate("POST", "/stop", &json!({ "agentId": "agt_a", "projectId": "prj" }));
}

fn claim(coordinator: &mut Caller) -> Value {
    coordinator.done(
        "should_start",
        json!({ "agent_id": "agt_a", "project_id": "prj" }),
    )["launch_id"]
        .clone()
}

/// Returns the only entry of a list of the view, without the parts that differ.
#[track_caller]
fn only(work: &Value, list: &str) -> Value {
    let entries = work[list].as_array().unwrap();
    assert_eq!(entries.len(), 1, "{work}");
    let mut entry = redacted(&entries[0]);
    for time in ["waiting_since", "deadline", "ladder_at"] {
        if entry.get(time).is_some() {
            entry[time] = "[time]".into();
        }
    }
    entry
}

pub fn who_has_seen_nothing_is_answered_at_once(bed: &Bed) {
    bed.with_a_task();
    let mut coordinator = bed.coordinator("crd_one");
    let began = Instant::now();
    let work = coordinator.done("wait_for_work", json!({ "timeout_seconds": LONG }));
    // A caller that has seen another server, or an earlier run of this one, does not wait either.
    coordinator
        .done("wait_for_work", json!({ "timeout_seconds": LONG, "seen": "of another server" }));
    assert!(began.elapsed() < Duration::from_secs(LONG));
    let names: Vec<&String> = work.as_object().unwrap().keys().collect();
    let of_server = [
        "at",
        "launches",
        "linger_ms",
        "run",
        "seen",
        "session_maximum_ms",
        "start_timeout_ms",
        "startable",
    ];
    assert_eq!(names, [&of_server[..], &["stop_requests", "success"]].concat());
    work["at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let startable = json!({
        "agent_id": "agt_a", "project_id": "prj", "purpose": "task", "ai_type": "claude", "reason": "ready",
        "waiting_since": "[time]", "working_directory": "[working_directory]",
    });
    assert_eq!(only(&work, "startable"), startable);
    assert_eq!((&work["launches"], &work["stop_requests"]), (&json!([]), &json!([])));
}

pub fn a_wait_ends_with_the_news_and_delays_nothing_else(bed: &Bed) {
    bed.with_a_task();
    bed.set_task("tsk", "todo");
    let mut coordinator = bed.coordinator("crd_one");
    let work = look(&mut coordinator);
    assert_eq!(work["startable"], json!([]));
    let id = wait(bed, &mut coordinator, &work, LONG);
    assert!(!coordinator.client.has_answer(id));
    bed.set_task("tsk", "in_progress");
    let news = coordinator.client.answer(id).success();
    assert_eq!(news["startable"][0]["agent_id"], "agt_a", "{news}");
    assert_ne!(news["seen"], work["seen"]);
    // A change between two waits is not missed.
    stop(bed);
    let id = wait(bed, &mut coordinator, &news, LONG);
    let news = coordinator.client.answer(id).success();
    assert_eq!(news["startable"][0]["reason"], "held", "{news}");
}

pub fn a_wait_without_news_ends_in_time(bed: &Bed) {
    bed.with_a_task();
    let mut coordinator = bed.coordinator("crd_one");
    let work = look(&mut coordinator);
    let began = Instant::now();
    let id = wait(bed, &mut coordinator, &work, 1);
    let mut same = coordinator.client.answer(id).success();
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    same["at"] = work["at"].clone();
    assert_eq!(same, work);
}

pub fn a_coordinator_sees_its_own_launches_and_stops(bed: &Bed) {
    bed.with_a_task();
    let (mut one, mut two) = (bed.coordinator("crd_one"), bed.coordinator("crd_two"));
    let launch = claim(&mut one);
    let entry = json!({
        "launch_id": "[launch_id]", "agent_id": "agt_a", "project_id": "prj", "purpose": "task",
        "coordinator_id": "[coordinator_id]", "ai_type": "claude", "state": "starting", "deadline": "[time]", "is_authenticated": false,
    });
    let work = look(&mut one);
    assert_eq!((only(&work, "launches"), &work["launches"][0]["launch_id"]), (entry, &launch));
    assert_eq!((&work["startable"], &work["stop_requests"]), (&json!([]), &json!([])));
    assert_eq!(look(&mut two)["launches"], json!([]));
    let none = json!({ "success": true, "stop_requests": [] });
    assert_eq!(one.done("list_stop_requests", json!({})), none);

    let id = wait(bed, &mut one, &work, LONG);
    stop(bed);
    let request = json!({
        "launch_id": launch, "agent_id": "agt_a", "project_id": "prj", "purpose": "task", "reason": "person",
        "grace_seconds": 0,
    });
    let news = one.client.answer(id).success();
    // The pair is held before its launch is told to end, so the first news may contain only that.
    let news = if news["stop_requests"] == json!([]) { look(&mut one) } else { news };
    assert_eq!(news["stop_requests"], json!([request]));
    assert_eq!(
        (&news["launches"][0]["state"], &news["launches"][0]["reason"]),
        (&"stopping".into(), &"person".into())
    );
    let all = json!({ "success": true, "stop_requests": [request] });
    assert_eq!(one.done("list_stop_requests", json!({})), all);
    assert_eq!(two.done("list_stop_requests", json!({})), none);
    one.done("report_process_exit", json!({ "launch_id": launch, "signal": 15 }));
    assert_eq!(one.done("list_stop_requests", json!({})), none);
}

pub fn a_wait_that_is_given_up_harms_nobody(bed: &Bed) {
    bed.with_a_task();
    let mut coordinator = bed.coordinator("crd_one");
    let work = look(&mut coordinator);
    let id = wait(bed, &mut coordinator, &work, LONG);
    let given_up = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    coordinator.client.send(&given_up.to_string());
    assert_eq!(look(&mut coordinator)["startable"], work["startable"]);
    // This client closes its connection without cancelling.
    let mut gone = bed.coordinator("crd_one");
    wait(bed, &mut gone, &work, LONG);
    drop(gone);
    assert_eq!(look(&mut coordinator)["startable"], work["startable"]);
}

pub fn a_wait_that_is_cancelled_is_dropped(bed: &Bed) {
    bed.with_a_task();
    let mut coordinator = bed.coordinator("crd_one");
    let work = look(&mut coordinator);
    let id = wait(bed, &mut coordinator, &work, LONG);
    cancel(&mut coordinator, id);
    bed.until_call_dropped();
    // A call that has ended can't be cancelled any more. Some clients try that after each call.
    let answered = coordinator.client.begin("health_check", &json!({}));
    coordinator.client.answer(answered).success();
    for ended in [id, answered, 1000] {
        cancel(&mut coordinator, ended);
    }
    assert_eq!(coordinator.done("health_check", json!({}))["status"], "ok");
    assert!(!coordinator.client.has_answer(id));
}

pub fn a_cancelled_request_of_a_batch_is_dropped_and_the_others_are_answered(bed: &Bed) {
    bed.with_a_task();
    let mut coordinator = bed.coordinator("crd_one");
    let hello = json!({
        "protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": { "name": "x", "version": "1" },
    });
    assert_eq!(
        coordinator.client.request("initialize", &hello)["result"]["protocolVersion"],
        "2025-03-26"
    );
    coordinator.client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    let work = look(&mut coordinator);
    let call = |id: u64, tool: &str, arguments: Value| {
        let params = json!({ "name": tool, "arguments": arguments });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    let held = |coordinator: &Caller, id: u64| {
        let arguments = json!({ "seen": work["seen"], "timeout_seconds": LONG });
        call(id, "wait_for_work", coordinator.arguments(&arguments))
    };
    let batch = json!([held(&coordinator, 201), call(202, "health_check", json!({}))]);
    send_wait(bed, &mut coordinator, &batch);
    cancel(&mut coordinator, 201);
    let answers: Value = serde_json::from_str(&coordinator.client.receive()).unwrap();
    assert_eq!((&answers[0]["id"], answers.as_array().unwrap().len()), (&202.into(), 1));
    bed.until_call_dropped();
    // A batch whose requests are all cancelled has no answer at all.
    let batch = json!([held(&coordinator, 203)]);
    send_wait(bed, &mut coordinator, &batch);
    cancel(&mut coordinator, 203);
    assert_eq!(coordinator.done("health_check", json!({}))["status"], "ok");
}

fn cancel(coordinator: &mut Caller, id: u64) {
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    coordinator.client.send(&cancel.to_string());
}

pub fn a_wait_of_a_client_that_is_gone_is_dropped(bed: &Bed) {
    bed.with_a_task();
    let mut coordinator = bed.coordinator("crd_one");
    let work = look(&mut coordinator);
    wait(bed, &mut coordinator, &work, LONG);
    drop(coordinator);
    bed.until_call_dropped();
}

pub fn who_asks_for_it_is_told_that_a_wait_goes_on(bed: &Bed) {
    bed.with_a_task();
    let mut coordinator = bed.coordinator("crd_one");
    let work = look(&mut coordinator);
    // A caller that does not ask for progress gets none, and neither does one with a quick answer.
    let silent =
        coordinator.begin("wait_for_work", json!({ "seen": work["seen"], "timeout_seconds": 3 }));
    let short = coordinator.begin_attended("health_check", &json!({}), "short");
    let arguments = json!({ "seen": work["seen"], "timeout_seconds": 3 });
    let long = coordinator.begin_attended("wait_for_work", &arguments, "long");
    for id in [short, long, silent] {
        coordinator.client.answer(id).success();
    }
    let progress = json!({ "progressToken": "long", "progress": 2.0 });
    let expected =
        json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": progress });
    assert_eq!(coordinator.client.notices(), [expected]);
}

pub fn who_waits_says_its_name(bed: &Bed) {
    let mut nameless = bed.nameless_coordinator();
    for (tool, arguments) in [
        ("wait_for_work", json!({})),
        ("list_stop_requests", json!({})),
        ("report_status", json!({ "max_concurrent": 1 })),
    ] {
        let refusal = nameless.call(tool, arguments).refusal("invalid_arguments");
        assert_eq!(refusal["error"], "argument `coordinator_id` is missing", "{tool}");
    }
}

pub fn whoever_waits_is_told_that_the_server_stops(bed: &mut Bed) {
    bed.with_a_task();
    let mut coordinator = bed.coordinator("crd_one");
    let work = look(&mut coordinator);
    let ids = [wait(bed, &mut coordinator, &work, LONG), wait(bed, &mut coordinator, &work, LONG)];
    bed.begin_to_stop();
    for id in ids {
        let refusal = coordinator.client.answer(id).refusal("server_stopping");
        let hint = "wait a little and call again";
        let expected = json!({
            "success": false, "error": "The server is being stopped", "error_code": "server_stopping", "hint": hint,
        });
        assert_eq!(refusal, expected);
    }
    assert!(bed.has_ended_well());
}
