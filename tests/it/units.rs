//! The service units, against what the program does: systemd can check their words, and not what they mean.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};

use agent_coordinator::config::{self, Environment};

/// Beyond the stop ladder of the agents: every other deadline of the shutdown (`app`).
const STEPS_SECONDS: u64 = 20;

fn text(unit: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(unit)).unwrap()
}

/// The value of a setting, which stands there once.
#[track_caller]
fn setting(unit: &str, key: &str) -> String {
    let text = text(unit);
    let mut values = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let value = values.next().unwrap_or_else(|| panic!("{unit} has no {key}")).to_owned();
    assert_eq!(values.next(), None, "{unit}: {key} stands there twice");
    value
}

#[test]
fn the_mcp_socket_unit_listens_where_the_defaults_say() {
    let folder = tempfile::tempdir().unwrap();
    let environment = Environment::new(folder.path(), [("HOME", "/home/me")]);
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/coordinator_config.yaml");
    let config = config::load(Some(&shipped), &environment).unwrap().config;
    let listens = setting("agent-coordinator-mcp.socket", "ListenStream").replace("%h", "/home/me");
    assert_eq!(PathBuf::from(listens), config.mcp_socket);
}

#[test]
fn systemd_is_more_patient_than_the_daemon() {
    let config = config::Config::with_state_dir("/state");
    let daemon = config.stop.timeout.as_secs() + config.stop.leak_grace.as_secs() + STEPS_SECONDS;
    for unit in ["agent-coordinator.service", "agent-coordinator-supervise.service"] {
        let systemd: u64 = setting(unit, "TimeoutStopSec").parse().unwrap();
        assert!(systemd > daemon, "{unit}: {systemd} s, and the daemon may take {daemon} s");
        // SIGUSR1 is `keep`: tests/it/sockets.rs.
        assert_eq!(
            (setting(unit, "KillSignal").as_str(), setting(unit, "RestartKillSignal").as_str()),
            ("SIGTERM", "SIGUSR1")
        );
        assert_eq!(setting(unit, "KillMode"), "process");
    }
}

#[test]
fn every_setting_of_a_unit_has_its_reason() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
    let files = fs::read_dir(&folder).unwrap().chain(fs::read_dir(folder.join("agent-coordinator.service.d")).unwrap());
    for file in files.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
        let text = fs::read_to_string(&file).unwrap();
        let settings = text.split_once("\n[Service]\n").or_else(|| text.split_once("\n[Socket]\n")).unwrap().1;
        let first_lines = settings.split_once("\n[Install]\n").map_or(settings, |(settings, _)| settings).lines();
        // One comment may be for several lines; none stands without one above its group.
        let mut is_explained = false;
        for line in first_lines {
            is_explained = !line.is_empty() && (line.starts_with('#') || is_explained);
            assert!(is_explained || line.is_empty(), "{}: {line} has no comment", file.display());
        }
    }
}
