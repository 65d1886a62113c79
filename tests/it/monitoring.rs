//! The dashboard and the alert rules name metrics that exist, and the log file may be moved.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rustix::process::Signal;

use crate::daemon::Daemon;
use crate::support::until;

fn packaged(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/monitoring");
    fs::read_to_string(folder.join(name)).unwrap()
}

/// Returns the names in a text that begin like those of the daemon's metrics.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_metric =
        |word: &&str| word.starts_with("agent_coordinator_") || word.starts_with("process_");
    words.filter(is_metric).map(str::to_owned).collect()
}

#[test]
fn the_dashboard_and_the_alerts_name_metrics_that_exist() {
    let daemon = Daemon::running("");
    let metrics = daemon.done(&["metrics"]);
    let families: BTreeSet<&str> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let dashboard = packaged("grafana.json");
    let _: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    for (file, text) in [("grafana.json", dashboard), ("alerts.yaml", packaged("alerts.yaml"))] {
        let used = names(&text);
        assert!(used.len() > 5, "{file}: {used:?}");
        for name in used {
            let family = name.strip_suffix("_bucket").unwrap_or(&name);
            assert!(families.contains(family), "{file} names `{name}`, which does not exist");
        }
    }
}

#[test]
fn the_metrics_count_tasks_and_what_waits() {
    let daemon = Daemon::running("store: { url: 'sqlite:one.db' }");
    daemon.project("prj");
    daemon.agent("agt", "prj", &["authenticate"]);
    daemon.done(&["pause"]);
    daemon.task("tsk", "prj", "agt");
    daemon.done(&["task", "add", "--id", "other", "--project", "prj", "--title", "a title"]);
    let metrics = daemon.done(&["metrics"]);
    let text = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {metrics}")).trim()
    };
    let value = |name: &str| -> f64 { text(name).parse().unwrap() };
    assert_eq!(text("agent_coordinator_tasks{status=\"in_progress\"}"), "1");
    assert_eq!(text("agent_coordinator_paused"), "1");
    assert_eq!(text("agent_coordinator_attention_open{kind=\"blocked\"}"), "0");
    daemon.done(&["task", "set", "tsk", "--status", "blocked", "--reason", "which bank?"]);
    let metrics = daemon.done(&["metrics"]);
    assert!(metrics.contains("attention_open{kind=\"blocked\"} 1"), "{metrics}");
    assert_eq!(text("agent_coordinator_chats"), "0");
    assert!(value("agent_coordinator_store_size_bytes") > 4096.0);
    assert!(value("agent_coordinator_oldest_waiting_seconds") < 60.0);
    assert!(value("process_resident_memory_bytes") > 1e6);
    assert!(value("process_open_fds") > 5.0);
    assert!(value("process_cpu_seconds_total") > 0.0);
}

#[test]
fn a_log_file_that_was_moved_is_made_again_on_sighup() {
    let mut daemon = Daemon::configured("log: { file: daemon.log, format: json }");
    let path = daemon.folder().join("daemon.log");
    let moved = daemon.folder().join("daemon.log.1");
    daemon.spawn();
    until("the daemon is ready", || {
        fs::read_to_string(&path).is_ok_and(|text| text.contains("\"message\":\"ready\""))
    });
    fs::rename(&path, &moved).unwrap();
    daemon.signal(Signal::HUP);
    until("the new file has the lines of the reload", || {
        fs::read_to_string(&path).is_ok_and(|text| text.contains("configuration read again"))
    });
    assert!(!fs::read_to_string(&moved).unwrap().contains("configuration read again"));
}
