//! The coordinators' views, and their reports about themselves.

use serde_json::{Value, json};

use super::bed::Bed;
use crate::mcp::world;
use crate::redacted::redacted;

pub fn health_check_says_who_answers_and_how_much_there_is(bed: &Bed) {
    bed.with_a_task();
    let health = bed.nameless_coordinator().done("health_check", json!({}));
    let expected = json!({
        "status": "ok", "version": "[version]", "timestamp": "[timestamp]", "agent_count": 2, "project_count": 2,
    });
    assert_eq!(redacted(&health), expected);
    assert_eq!(health["version"], env!("CARGO_PKG_VERSION"));
    let timestamp = health["timestamp"].as_str().unwrap();
    timestamp.parse::<jiff::Timestamp>().unwrap();
    assert_eq!(timestamp.len(), "2025-01-06T10:00:00Z".len(), "{timestamp}");
}

pub fn active_projects_are_listed_with_their_active_agents(bed: &Bed) {
    bed.apply(&world(""));
    bed.apply(
        "
agents:
  agt_idle: { status: inactive }
  agt_a: { name: Ann }
projects:
  prj_2: { name: Another, working_directory: /somewhere, agents: [agt_idle] }
  prj_asleep: { working_directory: work, agents: [agt_a], status: inactive }
  prj_old: { working_directory: work, agents: [agt_a], status: archived }
  prj_new: { working_directory: work }
  prj_late: { working_directory: work }
",
    );
    let mut coordinator = bed.nameless_coordinator();
    let mut list =
        |arguments: Value| coordinator.done("list_active_projects_with_agents", arguments);
    let project = |id: &str, name: &str, agents: &[&str]| json!({ "project_id": id, "project_name": name, "working_directory": "[working_directory]", "agents": agents });
    // They are in the order of their creation, also those of one manifest.
    let all = [
        project("prj", "Project", &["agt_a", "agt_b"]),
        project("prj_2", "Another", &["agt_a"]),
        project("prj_new", "prj_new", &[]),
        project("prj_late", "prj_late", &[]),
    ];
    let whole = list(json!({}));
    assert_eq!(redacted(&whole), json!({ "success": true, "projects": all }));
    assert_eq!(whole["projects"][1]["working_directory"], "/somewhere");

    let first = list(json!({ "limit": 2 }));
    assert_eq!(
        redacted(&first),
        json!({ "success": true, "projects": all[..2], "next_cursor": "prj_2" })
    );
    let second =
        list(json!({ "limit": 2, "cursor": first["next_cursor"], "coordinator_id": "crd_one" }));
    assert_eq!(redacted(&second), json!({ "success": true, "projects": all[2..] }));
    assert_eq!(list(json!({ "limit": 4 })), whole);
    // A cursor keeps its place if its project is not active any more.
    let after = list(json!({ "cursor": "prj_asleep" }));
    assert_eq!(redacted(&after), json!({ "success": true, "projects": all[2..] }));
    // A cursor whose project was deleted begins again, so that no project is left out.
    assert_eq!(list(json!({ "cursor": "zzz" })), whole);
}

pub fn a_status_is_shown_to_people(bed: &Bed) {
    bed.with_a_task();
    let mut coordinator = bed.coordinator("crd_far");
    let pair = json!({ "agent_id": "agt_a", "project_id": "prj" });
    let launch = coordinator.done("should_start", pair)["launch_id"].clone();
    assert_eq!(bed.status()["coordinators"], json!([]), "who only asks is not listed");
    let instance = json!({
        "launch_id": launch, "agent_id": "agt_a", "project_id": "prj", "purpose": "task", "phase": "running",
        "pid": 4242, "started_at": "2026-01-01T00:00:00Z", "adopted": true, "is_marked_authenticated": false,
    });
    let waits = json!({ "agent_id": "agt_b", "project_id": "prj", "purpose": "task", "reason": "no_free_slot" });
    let machine = json!({ "name": "build-1", "memory": { "free": 30, "total": 100 } });
    let report = json!({
        "max_concurrent": 5, "instances": [instance], "deferred": [waits], "counters": { "cycles": 7, "starts": 3 },
        "machine": machine,
    });
    let done = json!({ "success": true });
    assert_eq!(coordinator.done("report_status", report), done);
    let status = bed.status();
    let of_it = json!([{
        "coordinatorId": "[coordinatorId]", "heardAt": "[heardAt]", "isThere": true, "maxConcurrent": 5, "running": 1,
        "machine": machine,
    }]);
    assert_eq!(redacted(&status["coordinators"]), of_it);
    assert_eq!(status["coordinators"][0]["coordinatorId"], "crd_far");
    let waiting = json!({ "agentId": "agt_b", "projectId": "prj", "purpose": "task", "reason": "no_free_slot" });
    assert_eq!(status["deferred"], json!([waiting]));
    assert_eq!(status["instances"][0]["adopted"], true, "{status}");
    assert_eq!(
        (&status["counters"]["cycles"], &status["counters"]["starts"]),
        (&7.into(), &3.into()),
        "{status}"
    );
    if let Some(printed) = bed.printed_status() {
        let expected = json!([{
            "coordinator_id": "[coordinator_id]", "heard_at": "[heard_at]", "is_there": true, "max_concurrent": 5, "running": 1,
            "machine": machine,
        }]);
        assert_eq!(redacted(&printed["coordinators"]), expected);
    }

    // The newest report counts. Other coordinators have their own.
    assert_eq!(coordinator.done("report_status", json!({ "max_concurrent": 2 })), done);
    bed.coordinator("crd_near").done("report_status", json!({ "max_concurrent": 1 }));
    let limits: Vec<Value> = bed.status()["coordinators"]
        .as_array()
        .unwrap()
        .iter()
        .map(|each| json!([each["coordinatorId"], each["maxConcurrent"], each["running"]]))
        .collect();
    assert_eq!(limits, [json!(["crd_far", 2, 0]), json!(["crd_near", 1, 0])]);
}

pub fn an_earlier_start_of_a_coordinator_is_refused(bed: &Bed) {
    bed.with_a_task();
    let start = |id: &str, incarnation: &str| {
        bed.coordinator(id).with(&json!({ "coordinator_incarnation": incarnation }))
    };
    let (mut earlier, mut later) = (start("crd_one", "7.5"), start("crd_one", "8.1"));
    earlier.done("wait_for_work", json!({}));
    later.done("wait_for_work", json!({}));
    let pair = json!({ "agent_id": "agt_a", "project_id": "prj" });
    for tool in ["wait_for_work", "should_start", "list_stop_requests"] {
        let refusal = earlier.call(tool, pair.clone()).refusal("superseded");
        assert_eq!(refusal["error"], "A later start of coordinator crd_one has connected");
        assert_eq!(
            refusal["hint"],
            "end your agents; a copy of a coordinator needs a coordinator_id of its own"
        );
    }
    assert_eq!(later.done("should_start", pair)["should_start"], true);
    // Other coordinators, and calls without an incarnation, are not affected.
    start("crd_two", "1.1").done("wait_for_work", json!({}));
    bed.coordinator("crd_one").done("wait_for_work", json!({}));
    let refusal =
        start("crd_one", "8").call("wait_for_work", json!({})).refusal("invalid_arguments");
    let words =
        "argument `coordinator_incarnation`: `8` is not an incarnation: expected NUMBER.MARK";
    assert!(refusal["error"].as_str().unwrap().contains(words), "{refusal}");
}
