//! A file that changes under a daemon that runs: what is told, and what counts.

use super::example::NAMED;
use super::*;
use domain::Timestamp;
use domain::configuration::{Applies, Change, Rejected};

/// Returns the texts of a reload of `new` after a start with `old`.
#[track_caller]
fn changes(old: &str, new: &str) -> Vec<String> {
    let say = |change: &Change| format!("{change} ({})", change.applies.as_str());
    diff(&valid(old), &valid(new)).iter().map(say).collect()
}

#[test]
fn changes_are_told_with_both_values_and_when_they_count() {
    assert_eq!(changes(SEED, SEED), [""; 0]);
    assert_eq!(changes("", "max_concurrent: 1"), ["max_concurrent: 3 → 1 (now)"]);
    assert_eq!(
        changes("http: { listen: off }", ""),
        ["http.listen: off → 127.0.0.1:7420 (after a restart)"]
    );
    assert_eq!(
        changes("stop: { leak_grace: 0 }", ""),
        ["stop.leak_grace: 0s → 2s (to new starts)"]
    );
    let (old, new) =
        ("{ preset: claude, cli_args: [-a] }", "{ cli_command: mine, cli_args: [-b] }");
    assert_eq!(
        changes(
            &format!("ai_providers: {{ x: {old} }}"),
            &format!("ai_providers: {{ x: {new}, y: {new} }}")
        ),
        [
            "ai_providers.x.preset: claude → none (to new starts)",
            "ai_providers.x.cli_command: none → mine (to new starts)",
            "ai_providers.x.permissions: project → none (to new starts)",
            "ai_providers.x.telemetry: off → none (to new starts)",
            "ai_providers.x.prompt: none → argument (to new starts)",
            "ai_providers.x.passkey_in_prompt: none → false (to new starts)",
            "ai_providers.x.cli_args: changed (to new starts)",
            "ai_providers.y: no entry → an entry (to new starts)",
        ]
    );
}

#[test]
fn secrets_are_changed_and_never_shown() {
    let old = "coordinator_token: hunter2a\nagents: { a: { passkey: hunter2b }, b: { passkey: hunter2c } }\n\
               ai_providers: { x: { cli_command: x, environment: { K: hunter2 }, cli_args: [hunter2] } }";
    let new = "coordinator_token: hunter2d\nagents: { a: { passkey: hunter2e }, c: { passkey: hunter2c } }\n\
               ai_providers: { x: { cli_command: x, environment: { K: hunter3 }, cli_args: [hunter3] } }";
    assert_eq!(
        changes(old, new),
        [
            "coordinator_token: changed (now)",
            "ai_providers.x.cli_args: changed (to new starts)",
            "ai_providers.x.environment: changed (to new starts)",
            "agents.a.passkey: changed (now)",
            "agents.b.passkey: changed (now)",
            "agents.c.passkey: changed (now)",
        ]
    );
}

#[test]
fn a_store_whose_options_change_is_told_without_them() {
    let store = |options: &str| format!("store: {{ url: 'postgres://u@h/d?options={options}' }}");
    assert_eq!(changes(&store("hunter2"), &store("hunter2")), [""; 0]);
    assert_eq!(
        changes(&store("hunter2"), &store("hunter3")),
        ["store.url: changed (after a restart)"]
    );
    assert_eq!(
        changes("store: { url: 'postgres://u@h/d' }", &store("hunter2")),
        ["store.url: postgres://u@h/d → postgres://u@h/d?options=*** (after a restart)"]
    );
}

#[test]
fn every_key_that_is_known_is_compared() {
    let (all, environment) = (Source::new("all", "/etc/ac", EVERY_SETTING), environment());
    let reader = Reader::new(&all, &environment);
    let (config, _) = reader.read(Config::read).expect("a valid file");
    let is_of_entry =
        |setting: &str| NAMED.iter().any(|named| setting.starts_with(&format!("{named}.")));
    // A host has one of the two.
    let is_other_token = |setting: &str| {
        matches!(setting, "github.token_file" | "gitlab.token" | "store.password_file")
    };
    let known: BTreeSet<_> = reader
        .known_keys()
        .into_iter()
        .filter(|key| !is_of_entry(key) && !is_other_token(key))
        .collect();
    // The settings that have their default there.
    let session = Session { default_timeout: Duration::from_secs(1), ..Session::default() };
    let shutdown = Shutdown { sigterm: AtShutdown::Stop, sigint: AtShutdown::Keep };
    let other = Config { session, shutdown, ..defaults() };
    let compared = diff(&config, &other).into_iter().map(|change| change.setting);
    assert_eq!(compared.filter(|setting| !is_of_entry(setting)).collect::<BTreeSet<_>>(), known);
}

fn loaded(text: &str) -> Loaded {
    let source = Some("/etc/ac/coordinator_config.yaml".into());
    Loaded { config: valid(text), source, places: SettingPlaces::new() }
}

#[test]
fn what_needs_a_restart_waits_and_the_rest_counts() {
    let at = Timestamp::from_millis;
    let mut live = Live::new(loaded(""), at(0));
    let reloaded = live.take(loaded(EVERY_SETTING), at(1));
    let is_restart = |change: &Change| change.applies == Applies::AfterRestart;
    assert!(reloaded.changes.len() > 30 && reloaded.waiting.iter().all(is_restart), "{reloaded:?}");
    let of_changes: Vec<_> =
        reloaded.changes.iter().filter(|change| is_restart(change)).cloned().collect();
    assert_eq!(reloaded.waiting, of_changes);
    let left = diff(live.in_use(), &valid(EVERY_SETTING));
    assert_eq!(left, reloaded.waiting, "everything else is in use");
    // Other settings change, and these still wait; taken back, they don't.
    let again = live
        .take(loaded(&EVERY_SETTING.replace("max_concurrent: 12", "max_concurrent: 13")), at(2));
    assert_eq!((again.changes.len(), &again.waiting, again.is_news()), (1, &left, true));
    // A later request gets the same answer.
    let later = live
        .take(loaded(&EVERY_SETTING.replace("max_concurrent: 12", "max_concurrent: 13")), at(9));
    assert_eq!((&later.changes, later.since, later.is_news()), (&again.changes, at(2), false));
    assert_eq!(live.take(loaded(""), at(10)).waiting, []);
    assert_eq!(live.in_use(), &valid(""));
}

#[test]
fn an_entry_for_another_user_waits_as_a_whole() {
    let at = Timestamp::from_millis;
    let entry = |rest: &str| format!("ai_providers: {{ claude: {{ preset: claude{rest} }} }}");
    let user_of =
        |live: &Live| live.in_use().providers.get("claude").map(|entry| entry.run_as.clone());
    let mut live = Live::new(loaded(""), at(0));
    live.take(loaded(&entry(", run_as: worker")), at(1));
    let waits = |live: &Live| live.in_use().providers["claude"].waits_for_restart;
    assert!(waits(&live), "nobody is started as the daemon's user instead");
    live.take(loaded(&entry(", run_as: worker, model: m")), at(2));
    assert!(
        waits(&live) && !live.configuration_state().waiting.is_empty(),
        "it is not forgotten by the next file"
    );
    live.take(loaded(&entry("")), at(3));
    assert!(!waits(&live));
    let mut live = Live::new(loaded(&entry(", run_as: worker")), at(0));
    for other in [entry(""), entry(", run_as: other"), entry(", model: m"), String::new()] {
        let reloaded = live.take(loaded(&other), at(1));
        assert_eq!(user_of(&live), Some(Some("worker".to_owned())));
        assert!(!reloaded.waiting.is_empty(), "{other}");
    }
    assert_eq!(live.take(loaded(&entry(", run_as: worker, model: m")), at(2)).waiting, []);
}

#[test]
fn a_bad_file_changes_nothing_until_a_good_one_comes() {
    let at = Timestamp::from_millis;
    let mut live = Live::new(loaded("max_concurrent: 5"), at(0));
    live.reject("first".to_owned(), at(1));
    live.reject("second".to_owned(), at(2));
    let rejected = Rejected { since: at(1), problem: "second".to_owned() };
    assert_eq!(live.configuration_state().rejected, Some(rejected));
    assert_eq!(
        (live.in_use().general.max_concurrent, live.configuration_state().since),
        (5, at(0))
    );
    let same = live.take(loaded("max_concurrent: 5"), at(3));
    assert!(same.changes.is_empty() && !same.is_news());
    assert_eq!(
        (&live.configuration_state().rejected, live.configuration_state().since),
        (&None, at(0))
    );
}

#[test]
fn a_report_has_a_form_for_one_line() {
    let text = "max_concurent: 2\nlanguage: fr\nsession: { default_timeout: \"${NOBODY_SET_THIS}\" }\nx: 1\ny: 2\n";
    let error = read(&Source::new("file.yaml", "/", text), &environment())
        .expect_err("a file with problems");
    insta::assert_snapshot!(error.on_one_line());
}

#[test]
fn a_passkey_that_no_door_would_take_is_told_here() {
    let text = format!("agents: {{ a: {{ passkey: '{}' }} }}", "x".repeat(1_001));
    let report = report(&text);
    assert!(report.contains("coordinator_config.yaml:1:") && report.contains("1000"), "{report}");
    assert!(!report.contains("xxx"), "{report}");
}

#[test]
fn a_daemon_is_found_although_its_file_is_no_yaml() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.yaml");
    let find = |text: &str| {
        std::fs::write(&file, text).expect("a file");
        find_daemon(Some(&file), &environment()).map(|paths| paths.control_socket())
    };
    let socket = folder.path().join("here/control.sock");
    assert_eq!(find("state_dir: here\nagents: [\n").expect("a place"), socket);
    assert_eq!(find("agents: [\nstate_dir : 'here' # there\n").expect("a place"), socket);
    // A file that is valid YAML, but wrong in one of these keys, names no place.
    assert!(find("state_dir: [here]\n").is_err());
}

#[test]
fn a_setting_has_the_line_and_the_variables_of_its_value() {
    let text = "max_concurrent: 7\nsession:\n  max_timeout: 2h\nstate_dir: \"${HOME}/state\"\n";
    let source = Source::new("file.yaml", "/etc/ac", text);
    let (config, places) = read(&source, &environment()).expect("a valid file");
    let all = settings(&config, &places);
    let place = |name: &str| {
        let found = all.iter().find(|setting| setting.setting == name).expect("a setting");
        (found.line, found.variables.join(" "))
    };
    assert_eq!(place("max_concurrent"), (Some(1), String::new()));
    assert_eq!(place("session.max_timeout"), (Some(3), String::new()));
    assert_eq!(place("state_dir"), (Some(4), "HOME".to_owned()));
    assert_eq!(place("session.default_timeout"), (None, String::new()));
}
