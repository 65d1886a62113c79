//! Compares the service units with the program: systemd can check their syntax, but not their
//! meaning.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};

use agent_coordinator::config::{self, Environment};

/// The other deadlines of the shutdown (`app`), in seconds, beyond the time for ending agents.
const STEPS_SECONDS: u64 = 20;

fn text(unit: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(unit)).unwrap()
}

/// Returns the value of a setting, which occurs once.
#[track_caller]
pub fn setting(unit: &str, key: &str) -> String {
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
    assert_eq!(PathBuf::from(listens), config.paths.mcp_socket_path);
}

#[test]
fn systemd_is_more_patient_than_the_daemon() {
    let config = config::Config::with_state_dir("/state");
    let daemon = config.stop.timeout.as_secs() + config.stop.leak_grace.as_secs() + STEPS_SECONDS;
    for unit in ["agent-coordinator.service", "agent-coordinator-supervise.service"] {
        let systemd: u64 = setting(unit, "TimeoutStopSec").parse().unwrap();
        assert!(systemd > daemon, "{unit}: {systemd} s, and the daemon may take {daemon} s");
        // SIGUSR1 means `keep`: tests/it/sockets.rs.
        assert_eq!(
            (setting(unit, "KillSignal").as_str(), setting(unit, "RestartKillSignal").as_str()),
            ("SIGTERM", "SIGUSR1")
        );
        assert_eq!(setting(unit, "KillMode"), "process");
    }
}

#[test]
fn every_service_reloads_by_its_own_command_and_is_watched() {
    for unit in [
        "agent-coordinator.service",
        "agent-coordinator-supervise.service",
        "agent-coordinator-serve.service",
    ] {
        assert_eq!(setting(unit, "Type"), "notify", "{unit}");
        assert_eq!(setting(unit, "ExecReload"), "/usr/bin/agent-coordinator reload", "{unit}");
        // A command that notifies for the daemon (sd_notify) would take its watchdog, too.
        assert_eq!(setting(unit, "NotifyAccess"), "main", "{unit}");
        assert_eq!(setting(unit, "WatchdogSec"), "3min", "{unit}");
        // An end by the watchdog is a failure, too, and the daemon is started again.
        assert_eq!(setting(unit, "Restart"), "on-failure", "{unit}");
    }
}

/// A value of a property list.
#[derive(Debug, PartialEq)]
enum Plist {
    Text(String),
    Number(u64),
    Boolean(bool),
    List(Vec<Plist>),
    Table(Vec<(String, Plist)>),
}

impl Plist {
    #[track_caller]
    fn get(&self, key: &str) -> &Self {
        let Self::Table(entries) = self else { panic!("no table") };
        let mut values = entries.iter().filter(|(name, _)| name == key).map(|(_, value)| value);
        let value = values.next().unwrap_or_else(|| panic!("no {key}"));
        assert!(values.next().is_none(), "{key} stands there twice");
        value
    }
}

/// Returns the text between `<tag>` and `</tag>` at the beginning of `text`, and the rest.
#[track_caller]
fn element<'a>(text: &'a str, tag: &str) -> (&'a str, &'a str) {
    let text = text
        .trim_start()
        .strip_prefix(&format!("<{tag}>"))
        .unwrap_or_else(|| panic!("no <{tag}>: {text}"));
    text.split_once(&format!("</{tag}>")).unwrap_or_else(|| panic!("<{tag}> has no end"))
}

/// Returns a value at the beginning of `text`, and the rest. It reads only the XML of property
/// lists.
fn plist(text: &str) -> (Plist, &str) {
    let text = text.trim_start();
    let tag = text.strip_prefix('<').and_then(|text| text.split_once('>')).unwrap().0;
    match tag {
        "string" => {
            let (value, rest) = element(text, tag);
            (Plist::Text(value.to_owned()), rest)
        }
        "integer" => {
            let (value, rest) = element(text, tag);
            (Plist::Number(value.parse().unwrap()), rest)
        }
        "true/" | "false/" => (Plist::Boolean(tag == "true/"), &text[tag.len() + 2..]),
        "array" | "dict" => {
            let (mut list, mut table, mut rest) = (Vec::new(), Vec::new(), &text[tag.len() + 2..]);
            let end = format!("</{tag}>");
            loop {
                rest = rest.trim_start();
                if let Some(rest) = rest.strip_prefix(&end) {
                    let value = if tag == "dict" { Plist::Table(table) } else { Plist::List(list) };
                    return (value, rest);
                }
                let value;
                if tag == "dict" {
                    let (key, behind) = element(rest, "key");
                    (value, rest) = plist(behind);
                    table.push((key.to_owned(), value));
                } else {
                    (value, rest) = plist(rest);
                    list.push(value);
                }
            }
        }
        other => panic!("<{other}> in a property list"),
    }
}

#[test]
fn launchd_is_told_the_same_as_systemd() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("launchd/io.github.agent-coordinator.plist");
    let text = fs::read_to_string(&file).unwrap();
    let body = text.split_once("<plist version=\"1.0\">").unwrap().1;
    let (plist, rest) = plist(body);
    assert_eq!(rest.trim(), "</plist>");
    // The arguments are `run` and nothing else, like in ExecStart=.
    let Plist::List(arguments) = plist.get("ProgramArguments") else { panic!("no list") };
    assert_eq!(arguments.last(), Some(&Plist::Text("run".to_owned())));
    assert_eq!(arguments.len(), 2);
    assert_eq!(
        Plist::Text(file.file_stem().unwrap().to_str().unwrap().to_owned()),
        *plist.get("Label")
    );
    // Its shims are in groups of their own, and launchd leaves them alone, like KillMode=process.
    assert_eq!(plist.get("AbandonProcessGroup"), &Plist::Boolean(true));
    // This is like Restart=on-failure.
    assert_eq!(plist.get("KeepAlive").get("SuccessfulExit"), &Plist::Boolean(false));
    let seconds: u64 = setting("agent-coordinator.service", "TimeoutStopSec").parse().unwrap();
    assert_eq!(plist.get("ExitTimeOut"), &Plist::Number(seconds));
    // The commands in the README name this very service, and the signal of RestartKillSignal=.
    let told = fs::read_to_string(file.with_file_name("README.md")).unwrap();
    let Plist::Text(label) = plist.get("Label") else { panic!("no text") };
    let signal = setting("agent-coordinator.service", "RestartKillSignal");
    assert!(told.contains(&format!("`launchctl kill {signal} gui/$(id -u)/{label}`")));
    for target in told.split("gui/$(id -u)/").skip(1) {
        assert!(target.starts_with(label.as_str()), "{target}");
    }
}

#[test]
fn every_setting_of_a_unit_has_its_reason() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
    let files = fs::read_dir(&folder)
        .unwrap()
        .chain(fs::read_dir(folder.join("agent-coordinator.service.d")).unwrap());
    for file in files.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
        let text = fs::read_to_string(&file).unwrap();
        let settings =
            text.split_once("\n[Service]\n").or_else(|| text.split_once("\n[Socket]\n")).unwrap().1;
        let first_lines =
            settings.split_once("\n[Install]\n").map_or(settings, |(settings, _)| settings).lines();
        // One comment may belong to several lines, and no line stands without a comment above its
        // group.
        let mut is_explained = false;
        for line in first_lines {
            is_explained = !line.is_empty() && (line.starts_with('#') || is_explained);
            assert!(is_explained || line.is_empty(), "{}: {line} has no comment", file.display());
        }
    }
}
