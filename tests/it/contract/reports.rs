//! `report_process_started`, `_stopping` and `_exit`: a coordinator's reports about its launches.

use serde_json::{Value, json};

use super::bed::Bed;
use super::client::Caller;

/// Claims Ann's launch for `coordinator`.
fn claim(coordinator: &mut Caller) -> Value {
    coordinator.done(
        "should_start",
        json!({ "agent_id": "agt_a", "project_id": "prj" }),
    )["launch_id"]
        .clone()
}

fn done() -> Value {
    json!({ "success": true })
}

pub fn a_report_may_be_repeated(bed: &Bed) {
    bed.with_a_task();
    let mut coordinator = bed.coordinator("crd_one");
    let launch = claim(&mut coordinator);
    let started = json!({ "launch_id": launch, "pid": 4242, "started_at": "2026-01-01T00:00:00Z" });
    assert_eq!(coordinator.done("report_process_started", started.clone()), done());
    let seen = bed.launch(&launch);
    assert_eq!((&seen["state"], &seen["pid"]), (&"starting".into(), &4242.into()), "{seen}");
    assert_eq!(coordinator.done("report_process_started", started.clone()), done());
    assert_eq!(bed.launch(&launch), seen);

    let exit = json!({ "launch_id": launch, "exit_code": 3, "outcome": "ended" });
    assert_eq!(coordinator.done("report_process_exit", exit.clone()), done());
    let seen = bed.launch(&launch);
    let end = (&seen["state"], &seen["outcome"], &seen["exitCode"]);
    assert_eq!(end, (&"ended".into(), &"never_authenticated".into(), &3.into()), "{seen}");
    // Later reports have no effect, even if they contradict: the end is known.
    assert_eq!(coordinator.done("report_process_exit", exit), done());
    let other = json!({ "launch_id": launch, "signal": 9, "outcome": "lost" });
    assert_eq!(coordinator.done("report_process_exit", other), done());
    assert_eq!(coordinator.done("report_process_started", started), done());
    let late = json!({ "launch_id": launch, "reason": "shutdown" });
    assert_eq!(coordinator.done("report_process_stopping", late), done());
    assert_eq!(bed.launch(&launch), seen);
}

pub fn a_server_asks_for_a_shim_that_it_was_not_told(bed: &Bed) {
    bed.with_a_task();
    let mut coordinator = bed.coordinator("crd_one");
    let launch = claim(&mut coordinator);
    let is_asked_for = |coordinator: &mut Caller| {
        let launches = coordinator.done("wait_for_work", json!({}))["launches"].clone();
        launches[0].get("is_shim_unknown").cloned()
    };
    assert_eq!(is_asked_for(&mut coordinator), None);
    let started = json!({ "launch_id": launch, "pid": 4242 });
    assert_eq!(coordinator.done("report_process_started", started), done());
    assert_eq!(is_asked_for(&mut coordinator), Some(true.into()));
    // This process is on another machine.
    let started = json!({
        "launch_id": launch, "pid": 4242, "shim_pid": 4241, "shim_start_ticks": 7, "shim_boot": "another", "shim_pid_namespace": 7,
    });
    assert_eq!(coordinator.done("report_process_started", started), done());
    assert_eq!(is_asked_for(&mut coordinator), None);
}

pub fn the_first_reason_of_a_stop_is_the_one_that_counts(bed: &Bed) {
    bed.with_a_task();
    let mut coordinator = bed.coordinator("crd_one");
    let launch = claim(&mut coordinator);
    for reason in ["shutdown", "shutdown", "start_timeout"] {
        let stopping = json!({ "launch_id": launch, "reason": reason });
        assert_eq!(coordinator.done("report_process_stopping", stopping), done());
    }
    let seen = bed.launch(&launch);
    assert_eq!(
        (&seen["state"], &seen["reason"]),
        (&"stopping".into(), &"shutdown".into()),
        "{seen}"
    );
    // The process is gone, but the processes that it started are not: the slot is not free yet.
    let exited = json!({ "launch_id": launch, "signal": 15, "outcome": "exited" });
    assert_eq!(coordinator.done("report_process_exit", exited), done());
    assert_eq!(bed.launch(&launch)["state"], "ending");
    assert_eq!(
        coordinator.done("report_process_exit", json!({ "launch_id": launch, "signal": 15 })),
        done()
    );
    let seen = bed.launch(&launch);
    let end = (&seen["outcome"], &seen["reason"], &seen["signal"]);
    assert_eq!(end, (&"stopped".into(), &"shutdown".into(), &15.into()), "{seen}");
}

pub fn a_start_that_failed_says_why(bed: &Bed) {
    bed.with_a_task();
    let mut coordinator = bed.coordinator("crd_one");
    let launch = claim(&mut coordinator);
    let failed =
        json!({ "launch_id": launch, "outcome": "start_failed", "reason": "no such program" });
    assert_eq!(coordinator.done("report_process_exit", failed), done());
    let seen = bed.launch(&launch);
    assert_eq!(
        (&seen["outcome"], &seen["reason"]),
        (&"start_failed".into(), &"no such program".into()),
        "{seen}"
    );
}

pub fn an_activity_is_the_newest_word_and_its_usage_never_shrinks(bed: &Bed) {
    bed.with_a_task();
    let mut coordinator = bed.coordinator("crd_one");
    let launch = claim(&mut coordinator);
    let mut report = |mut activity: Value| {
        activity["launch_id"] = launch.clone();
        assert_eq!(coordinator.done("report_activity", activity), done());
        bed.launch(&launch)
    };
    let first = json!({ "turns": 3, "input_tokens": 40, "progress": "Bash: ls\u{1b}[2J", "failure": "quota", "failure_resets_at": "2026-01-01T00:00:00Z" });
    let seen = report(first);
    assert_eq!(
        (&seen["usage"]["turns"], &seen["usage"]["inputTokens"], &seen["usage"]["estimated"]),
        (&3.into(), &40.into(), &Value::Null),
        "{seen}"
    );
    assert_eq!(
        seen["failure"],
        json!({ "class": "quota", "resetsAt": "2026-01-01T00:00:00.000Z" })
    );
    assert_eq!(seen["progress"], "Bash: ls [2J");
    let long = "x".repeat(1000);
    let more = json!({ "turns": 2, "cost_usd_micros": 7, "estimated": true, "progress": long });
    let seen = report(more);
    assert_eq!(
        (&seen["usage"]["turns"], &seen["usage"]["costUsdMicros"], &seen["usage"]["estimated"]),
        (&3.into(), &7.into(), &true.into()),
        "{seen}"
    );
    assert_eq!(
        (seen["progress"].as_str().unwrap().chars().count(), &seen["failure"]),
        (160, &Value::Null),
        "{seen}"
    );
    // The report is kept with the end, and later reports have no effect.
    coordinator.done("report_process_exit", json!({ "launch_id": launch, "exit_code": 1 }));
    let seen = bed.launch(&launch);
    assert_eq!(
        (&seen["usage"]["turns"], &seen["failure"]),
        (&3.into(), &json!({ "class": "crash" })),
        "{seen}"
    );
    coordinator.done("report_activity", json!({ "launch_id": launch, "turns": 99 }));
    assert_eq!(bed.launch(&launch), seen);
}

pub fn a_launch_is_its_coordinators(bed: &Bed) {
    bed.with_a_task();
    let launch = claim(&mut bed.coordinator("crd_one"));
    let before = bed.launch(&launch);
    let mut other = bed.coordinator("crd_two");
    for (tool, more) in [
        ("report_process_started", json!({ "pid": 7 })),
        ("report_process_stopping", json!({ "reason": "shutdown" })),
        ("report_process_exit", json!({ "exit_code": 0 })),
        ("report_activity", json!({ "turns": 1 })),
    ] {
        let mut arguments = more;
        arguments["launch_id"] = launch.clone();
        let refusal = other.call(tool, arguments.clone()).refusal("not_your_launch");
        let error = format!("Launch {} belongs to another coordinator", launch.as_str().unwrap());
        assert_eq!(refusal["error"], error.as_str());
        assert_eq!(
            refusal["hint"],
            "give the coordinator_id that claimed it; two coordinators need two of them"
        );
        arguments["launch_id"] = "lch_nowhere".into();
        assert_eq!(
            other.call(tool, arguments).refusal("launch_not_found")["error"],
            "Launch not found"
        );
    }
    assert_eq!(bed.launch(&launch), before);
}

pub fn a_report_may_leave_the_launch_unsaid(bed: &Bed) {
    bed.with_a_task();
    let (mut one, mut two) = (bed.coordinator("crd_one"), bed.coordinator("crd_two"));
    let exit = |pid: Option<i32>| {
        let mut arguments = json!({ "agent_id": "agt_a", "project_id": "prj", "exit_code": 0 });
        if let Some(pid) = pid {
            arguments["pid"] = pid.into();
        }
        arguments
    };
    one.call("report_process_exit", exit(None)).refusal("no_open_launch");
    let launch = claim(&mut one);
    // Only the owner of a launch can end it, whatever process a report names.
    two.call("report_process_exit", exit(None)).refusal("no_open_launch");
    bed.nameless_coordinator()
        .call("report_process_exit", exit(Some(4242)))
        .refusal("no_open_launch");
    one.done("report_process_started", json!({ "launch_id": launch, "pid": 4242 }));
    let refusal = one.call("report_process_exit", exit(Some(1))).refusal("no_open_launch");
    assert_eq!(refusal["error"], "No launch of agt_a in prj is open that process 1 could be of");
    assert_eq!(bed.launch(&launch)["state"], "starting");

    let mut nameless = bed.nameless_coordinator();
    nameless.call("report_process_exit", exit(Some(4242))).refusal("no_open_launch");
    assert_eq!(one.done("report_process_exit", exit(Some(4242))), done());
    assert_eq!(bed.launch(&launch)["state"], "ended");
    assert_eq!(one.done("report_process_exit", exit(Some(4242))), done());
    for incomplete in
        [json!({}), json!({ "agent_id": "agt_a" }), json!({ "project_id": "prj", "pid": 4242 })]
    {
        let refusal = nameless.call("report_process_exit", incomplete).refusal("invalid");
        assert_eq!(refusal["error"], "launch_id is missing, or agent_id and project_id are");
    }
}
