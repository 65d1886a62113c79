//! Compares the service units with the program: systemd can check their syntax, but not their
//! meaning.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};

use ::config::{self, Environment};

/// The other deadlines of the shutdown (`app`), in seconds, beyond the time for ending agents.
const STEPS_SECONDS: u64 = 20;

/// The unit of a daemon of root.
const ROOT: &str = "system/agent-coordinator-root.service";

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
    for unit in [
        "agent-coordinator.service",
        "agent-coordinator-supervise.service",
        "system/agent-coordinator.service",
        ROOT,
    ] {
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
        "system/agent-coordinator.service",
        ROOT,
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

/// Returns the settings of a unit, without its comments.
fn settings(unit: &str) -> Vec<String> {
    let text = text(unit);
    let lines = text.lines().filter(|line| line.contains('=') && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

/// Returns the settings that only the first unit has, and those that only the second one has.
fn difference(one: &str, other: &str) -> (Vec<String>, Vec<String>) {
    let only = |here: &str, there: &str| {
        let there = settings(there);
        settings(here).into_iter().filter(|setting| !there.contains(setting)).collect()
    };
    (only(one, other), only(other, one))
}

#[test]
fn the_units_of_the_machine_differ_from_those_of_a_user_in_their_user_alone() {
    let (of_user, of_machine) =
        difference("agent-coordinator.service", "system/agent-coordinator.service");
    assert_eq!(
        of_user,
        [
            "Conflicts=agent-coordinator-serve.service agent-coordinator-supervise.service",
            "Environment=PATH=%h/.local/bin:/usr/local/bin:/usr/bin:/bin",
            "WantedBy=default.target",
        ]
    );
    assert_eq!(
        of_machine,
        [
            "Wants=network-online.target",
            "After=network-online.target",
            "User=agent-coordinator",
            "Group=agent-coordinator",
            "Environment=PATH=/var/lib/agent-coordinator/.local/bin:/usr/local/bin:/usr/bin:/bin",
            "WantedBy=multi-user.target",
        ]
    );
    let (of_user, of_machine) =
        difference("agent-coordinator-http.socket", "system/agent-coordinator-http.socket");
    assert!(of_user.is_empty() && of_machine.is_empty(), "{of_user:?} {of_machine:?}");
}

/// The folders of programs that only root can change.
const FOLDERS_OF_ROOT: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

#[test]
fn a_unit_of_root_finds_programs_in_folders_of_root_alone() {
    let units = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/system")).unwrap();
    let units = units.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let units = units.map(|name| format!("system/{name}")).filter(|it| it.ends_with(".service"));
    let is_of_root = |unit: &String| {
        let user = settings(unit).into_iter().find(|setting| setting.starts_with("User="));
        user.is_none_or(|user| user == "User=root" || user == "User=0")
    };
    let of_root: Vec<String> = units.filter(is_of_root).collect();
    assert_eq!(of_root, [ROOT]);
    let environment = settings(ROOT).into_iter().filter(|it| it.starts_with("Environment"));
    // A file or a second PATH would change the first one.
    assert_eq!(
        environment.collect::<Vec<_>>(),
        [
            "Environment=HOME=/root".to_owned(),
            format!("Environment=PATH={}", FOLDERS_OF_ROOT.join(":"))
        ]
    );
}

#[test]
fn the_unit_of_root_differs_from_that_of_the_machine_in_its_rights_and_its_folders() {
    let (of_machine, of_root) = difference("system/agent-coordinator.service", ROOT);
    assert_eq!(
        of_machine,
        [
            "Description=Runs fleets of AI coding agents",
            "After=network-online.target",
            "User=agent-coordinator",
            "Group=agent-coordinator",
            "Environment=PATH=/var/lib/agent-coordinator/.local/bin:/usr/local/bin:/usr/bin:/bin",
        ]
    );
    let keys: Vec<&str> = of_root.iter().map(|it| it.split_once('=').unwrap().0).collect();
    assert_eq!(
        keys,
        [
            "Description",
            "Conflicts",
            "After",
            "Environment",
            "Environment",
            "RuntimeDirectory",
            "RuntimeDirectoryMode",
            "ProtectSystem",
            "PrivateMounts",
            "CapabilityBoundingSet",
            "NoNewPrivileges",
            "RestrictSUIDSGID",
            "LockPersonality",
            "SystemCallArchitectures",
            "RestrictRealtime",
            "RestrictAddressFamilies",
            "SystemCallFilter",
            "SystemCallErrorNumber",
        ]
    );
    // Agents outlive a restart with what is in this folder.
    assert_eq!(setting(ROOT, "RuntimeDirectoryPreserve"), "yes");
    // Without these rights, it could not run agents as other users and end them.
    let capabilities = setting(ROOT, "CapabilityBoundingSet");
    for needed in ["CAP_SETUID", "CAP_SETGID", "CAP_CHOWN", "CAP_KILL", "CAP_SYS_PTRACE"] {
        assert!(capabilities.split(' ').any(|it| it == needed), "{needed}");
    }
    assert!(!capabilities.contains("CAP_SYS_ADMIN") && !capabilities.contains('~'));
    // What the drop-in of users takes from agents, this unit takes from them, too.
    for hardening in settings("agent-coordinator.service.d/hardening.conf") {
        assert!(of_root.contains(&hardening), "{hardening}");
    }
}

#[test]
fn the_unit_of_root_and_that_of_the_machine_do_not_run_at_once() {
    let units = [
        "agent-coordinator.service",
        "agent-coordinator-mcp.socket",
        "agent-coordinator-http.socket",
    ];
    let conflicts = setting(ROOT, "Conflicts");
    assert_eq!(conflicts.split(' ').collect::<Vec<_>>(), units);
    // systemd waits for the end of the other service only if there is an order.
    let after = setting(ROOT, "After");
    assert!(units.iter().all(|unit| after.split(' ').any(|it| it == *unit)), "{after}");
}

#[test]
fn the_socket_of_root_is_open_to_the_users_of_agents_as_the_daemon_would_make_it() {
    let socket = "system/agent-coordinator-root-mcp.socket";
    assert_eq!(setting(socket, "Service"), ROOT.strip_prefix("system/").unwrap());
    assert_eq!(setting(socket, "FileDescriptorName"), "mcp");
    // src/app/socket.rs has the same modes.
    let modes = ["SocketMode", "DirectoryMode"].map(|key| setting(socket, key));
    assert_eq!(modes, ["0666", "0711"]);
    assert_eq!(setting(ROOT, "RuntimeDirectoryMode"), modes[1]);
    let listens = setting(socket, "ListenStream");
    let folder = Path::new("/run").join(setting(ROOT, "RuntimeDirectory"));
    assert_eq!(Path::new(&listens).parent(), Some(folder.as_path()));
    // The document says how to set it.
    let told = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/install.md");
    let told = fs::read_to_string(told).unwrap();
    assert!(told.contains(&format!("\nmcp_socket_path: {listens}\n")));
}

#[test]
fn the_keeper_of_the_repositories_cannot_log_in_and_no_unit_runs_as_it() {
    let name = "agent-coordinator-keep";
    let users = text("system/sysusers.conf");
    let mut lines = users.lines().filter(|line| line.starts_with(&format!("u {name} ")));
    let line = lines.next().unwrap();
    assert_eq!(lines.next(), None);
    // `-` means a free number, and a group with the name of the user.
    assert!(line.starts_with(&format!("u {name} - ")), "{line}");
    assert!(line.ends_with(" /nonexistent /usr/sbin/nologin"), "{line}");
    for folder in ["", "system", "agent-coordinator.service.d"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(folder);
        for file in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if file.is_file() && !file.ends_with("sysusers.conf") {
                assert!(!fs::read_to_string(&file).unwrap().contains(name), "{}", file.display());
            }
        }
    }
}

#[test]
fn the_user_of_the_machine_has_a_home_with_the_folder_of_the_state() {
    let user = text("system/sysusers.conf");
    let user = user.lines().find(|line| line.starts_with("u ")).unwrap();
    let home = user.split(' ').find(|word| word.starts_with('/')).unwrap();
    let name = setting("system/agent-coordinator.service", "User");
    assert!(user.starts_with(&format!("u {name} - ")), "{user}");
    let folder = tempfile::tempdir().unwrap();
    let environment = Environment::new(folder.path(), [("HOME", home)]);
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/coordinator_config.yaml");
    let paths = config::load(Some(&shipped), &environment).unwrap().config.paths;
    let listens = setting("system/agent-coordinator-mcp.socket", "ListenStream");
    assert_eq!(PathBuf::from(listens), paths.mcp_socket_path);
    assert_eq!(setting("system/agent-coordinator-mcp.socket", "SocketUser"), name);
    // The folders, from the home to the state.
    let made = text("system/tmpfiles.conf");
    let made = made.lines().filter_map(|line| line.strip_prefix("d "));
    let made: Vec<(PathBuf, String)> = made
        .map(|line| {
            let mut words = line.split_whitespace();
            let folder = PathBuf::from(words.next().unwrap());
            (folder, words.collect::<Vec<_>>().join(" "))
        })
        .collect();
    let expected =
        paths.state_dir.ancestors().take_while(|folder| *folder != Path::new("/var/lib"));
    let mut expected: Vec<PathBuf> = expected.map(Path::to_owned).collect();
    expected.reverse();
    assert_eq!(made.iter().map(|(folder, _)| folder.clone()).collect::<Vec<_>>(), expected);
    for (folder, rights) in made {
        assert_eq!(rights, format!("0700 {name} {name}"), "{}", folder.display());
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
    let folders = [&folder, &folder.join("agent-coordinator.service.d"), &folder.join("system")];
    let files = folders.into_iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let is_unit = |path: &PathBuf| {
        // sysusers.conf and tmpfiles.conf have lines of another form.
        let is_drop_in = path.ends_with("agent-coordinator.service.d/hardening.conf");
        path.is_file() && (is_drop_in || path.extension().is_none_or(|it| it != "conf"))
    };
    for file in files.map(|entry| entry.unwrap().path()).filter(is_unit) {
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
