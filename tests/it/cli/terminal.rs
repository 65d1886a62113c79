//! `status` in terminals of several sizes, and what follows the daemon over its restarts.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use serde_json::Value;

use super::{check_fails, lively};
use crate::daemon::Daemon;
use crate::support::{skip, until};

/// Returns what a command prints on a terminal with this number of columns. Returns `None` if
/// script(1) is missing.
fn on_terminal(daemon: &Daemon, columns: usize, arguments: &str, variable: &str) -> Option<String> {
    let command = daemon.command();
    let program = command.get_program().display();
    let config = daemon.config();
    let inner = format!(
        "stty cols {columns} rows 40; exec env {variable} {program} --config {} {arguments}",
        config.display()
    );
    let mut script = Command::new("script");
    script.args(["-qec", &inner, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR");
    let Ok(output) = script.stdin(Stdio::null()).output() else {
        skip("there is no script(1), which makes terminals");
        return None;
    };
    Some(String::from_utf8(output.stdout).unwrap().replace('\r', ""))
}

fn without_colors(text: &str) -> String {
    text.replace("\u{1b}[31m", "").replace("\u{1b}[0m", "")
}

#[test]
fn status_fits_terminals_of_every_width() {
    let daemon = lively("agt_waits_with_a_rather_long_name");
    for columns in [20, 49, 50, 80, 120, 400] {
        let Some(text) = on_terminal(&daemon, columns, "status", "A=b") else { return };
        for line in without_colors(&text).lines() {
            assert!(line.chars().count() <= columns, "{columns}: {line:?}\n{text}");
        }
        assert!(text.contains("PRJ-2") && !text.contains("tsk_runs"), "{columns}: {text}");
    }
    let text = on_terminal(&daemon, 80, "status", "A=b").unwrap();
    let red: Vec<&str> = text.lines().filter(|line| line.contains("\u{1b}[31m")).collect();
    assert!(red.len() == 1 && red[0].contains("agt_failed"), "only the bad end is red: {text}");
    let order = ["slots in use", "AGENT", "WAITING", "ENDED", "store: "];
    let places: Vec<usize> = order.iter().map(|part| text.find(part).unwrap()).collect();
    assert!(places.is_sorted(), "{text}");
    for variable in ["NO_COLOR=1", "TERM=dumb"] {
        let plain = on_terminal(&daemon, 80, "status", variable).unwrap();
        assert!(!plain.contains('\u{1b}'), "{variable}: {plain}");
    }
    assert!(on_terminal(&daemon, 80, "status", "NO_COLOR=").unwrap().contains("\u{1b}[31m"));
    // Without a terminal, nothing is cut or coloured.
    let piped = daemon.done(&["status"]);
    assert!(piped.contains("agt_waits_with_a_rather_long_name  prj"), "{piped}");
    assert!(!piped.contains('\u{1b}'), "{piped}");
    let wide = daemon.done(&["status", "--wide"]);
    assert!(wide.contains("tsk_runs") && wide.contains("lch_") && wide.contains("PID"), "{wide}");
}

#[test]
fn status_shows_one_project_and_says_whether_it_needs_a_person() {
    let daemon = lively("agt_waits_with_a_rather_long_name");
    daemon.project("prj_2");
    daemon.agent("agt_2", "prj_2", &[]);
    daemon.task("tsk_2", "prj_2", "agt_2");
    let one = daemon.done(&["status", "--project", "prj_2"]);
    assert!(one.contains("No agent is running.") && !one.contains("agt_failed"), "{one}");
    let other = daemon.done(&["status", "--project", "PRJ"]);
    assert!(other.contains("agt_runs") && other.contains("agt_failed"), "{other}");
    assert_eq!(daemon.json(&["status", "--project", "prj_2"])["ended"], serde_json::json!([]));

    assert_eq!(daemon.cli(&["status", "--exit-code"]).code, 0);
    daemon.done(&["task", "set", "tsk_2", "--status", "blocked", "--reason", "which\nbank?"]);
    let said = daemon.cli(&["status", "--exit-code"]);
    assert_eq!(said.code, 3, "{said:?}");
    let need = "Needs a person:\n  PRJ2-1 a title: Blocked: which bank?\n";
    assert!(said.stdout.contains(need) && said.stderr.is_empty(), "{said:?}");
    assert_eq!(daemon.cli(&["status", "--exit-code", "--project", "prj"]).code, 0);
    let said = daemon.cli(&["status", "--exit-code", "--json"]);
    assert!(said.code == 3 && serde_json::from_str::<Value>(&said.stdout).is_ok(), "{said:?}");
    check_fails(&daemon, &["status", "--exit-code", "--watch"], 2, "cannot be used with");
}

const LISTS: [&str; 11] = [
    "agent list",
    "execution list",
    "forge list",
    "inbox",
    "notice list",
    "project list",
    "session list --all",
    "task list",
    "token list",
    "workspace list",
    "workspace snapshots prj",
];

#[test]
fn lists_are_cut_on_terminals_of_every_width_and_whole_elsewhere() {
    let daemon = lively("agt_waits_with_a_rather_long_name");
    let title = "a title that is longer than a small terminal has columns ".repeat(3);
    daemon.done(&["task", "add", "--id", "tsk_long", "--project", "prj", "--title", title.trim()]);
    daemon.done(&["token", "create", "--name", "a-script-with-a-name-that-is-as-long-as-allowed"]);
    for list in LISTS {
        for columns in [20, 80, 400] {
            let Some(text) = on_terminal(&daemon, columns, list, "A=b") else { return };
            assert!(!text.is_empty(), "{list}");
            for line in without_colors(&text).lines() {
                assert!(line.chars().count() <= columns, "{list} at {columns}: {line:?}\n{text}");
            }
        }
    }
    let rules = on_terminal(&daemon, 80, "why agt_runs prj", "A=b").unwrap();
    assert!(rules.lines().all(|line| line.chars().count() <= 80), "{rules}");
    let rows = on_terminal(&daemon, 80, "task list", "A=b").unwrap();
    let n_tasks = daemon.json(&["task", "list"]).as_array().unwrap().len();
    assert_eq!(rows.lines().count(), n_tasks + 1, "a row is one line: {rows}");
    assert!(rows.contains('…') && !rows.contains(title.trim()), "{rows}");
    let wide = on_terminal(&daemon, 80, "task list --wide", "A=b").unwrap();
    assert!(wide.contains(title.trim()) && wide.contains("tsk_long"), "{wide}");
    assert!(daemon.done(&["task", "list"]).contains(title.trim()), "a pipe gets all");
}

#[test]
fn a_reader_that_goes_away_ends_each_command_quietly() {
    let daemon = lively("agt_waits");
    let others = [
        "check",
        "doctor --offline",
        "events",
        "inbox --follow",
        "logs agt_runs prj -f",
        "metrics",
        "status",
        "status --watch",
        "task show tsk_runs",
        "why agt_runs prj",
    ];
    for line in LISTS.into_iter().chain(others) {
        for form in ["", "--json"] {
            let mut command = daemon.command();
            command.args(line.split(' ')).args((!form.is_empty()).then_some(form));
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            drop(child.stdout.take());
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            // Not every command has this form.
            if form.is_empty() || output.status.code() != Some(2) {
                assert_eq!((output.status.code(), said.as_ref()), (Some(0), ""), "{line} {form}");
            }
        }
    }
}

/// Starts a command that follows the daemon, and returns it with the lines of its output.
fn follow(daemon: &Daemon, arguments: &[&str]) -> (Child, mpsc::Receiver<String>) {
    let mut command = daemon.command();
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in stdout.lines() {
            if sender.send(line.unwrap()).is_err() {
                return;
            }
        }
    });
    (child, lines)
}

/// Ends a command that follows, and returns what it said on standard error.
fn said_by(mut child: Child) -> String {
    child.kill().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    said
}

#[test]
fn events_go_on_after_a_restart_of_the_daemon_without_a_loss_or_a_repetition() {
    let mut daemon = Daemon::running("");
    daemon.project("prj");
    let (child, lines) = follow(&daemon, &["events", "--json"]);
    let mut seen = Vec::new();
    let mut until_seen = |detail: &str| {
        until("the event is printed", || {
            seen.extend(lines.try_iter().map(|line| serde_json::from_str::<Value>(&line).unwrap()));
            seen.iter().any(|event| event["project_id"] == detail)
        });
    };
    // The command may not follow yet, so that this repeats until it sees one. The same name again
    // would be no change.
    let mut names = ["one", "another"].into_iter().cycle();
    until("it follows", || {
        daemon.done(&["project", "set", "prj", "--name", names.next().unwrap()]);
        lines.recv_timeout(std::time::Duration::from_millis(200)).is_ok()
    });
    for n in 0..3 {
        daemon.project(&format!("prj_before_{n}"));
        if n % 2 == 0 {
            daemon.kill();
        } else {
            daemon.terminate();
        }
        daemon.start();
        daemon.project(&format!("prj_after_{n}"));
    }
    until_seen("prj_after_2");
    let created: Vec<&str> = seen
        .iter()
        .filter(|event| event["kind"] == "project.created")
        .map(|event| event["project_id"].as_str().unwrap())
        .collect();
    let expected: Vec<String> =
        (0..3).flat_map(|n| [format!("prj_before_{n}"), format!("prj_after_{n}")]).collect();
    assert_eq!(created, expected);
    let numbers: Vec<i64> = seen.iter().map(|event| event["seq"].as_i64().unwrap()).collect();
    let once: BTreeSet<i64> = numbers.iter().copied().collect();
    assert_eq!(numbers, once.into_iter().collect::<Vec<_>>(), "in order and once");
    let said = said_by(child);
    assert!(said.contains("the daemon is away; waiting for it"), "{said}");
    assert!(said.contains("connected again"), "{said}");
}

#[test]
fn a_watch_waits_for_the_daemon_and_says_that_it_was_away() {
    let mut daemon = lively("agt_waits_with_a_rather_long_name");
    let (child, lines) = follow(&daemon, &["status", "--watch"]);
    let first = lines.recv().unwrap();
    assert!(first.starts_with("\x1b[2J\x1b[Hagent-coordinator "), "{first:?}");
    daemon.kill();
    until("it says so", || lines.recv().unwrap().contains("No daemon has answered since "));
    // The last state stays.
    until("it shows its last state", || lines.recv().unwrap().starts_with("agt_runs"));
    daemon.start();
    until("it says so", || lines.recv().unwrap().contains("reconnected: no daemon answered from"));
    let frame: Vec<String> = lines.iter().take(30).collect();
    assert!(frame.iter().all(|line| !line.contains("\x1b[2J")), "it never clears all: {frame:?}");
    assert_eq!(said_by(child), "");
}

#[test]
fn the_output_of_an_agent_is_followed_over_a_restart_of_the_daemon() {
    let mut daemon = Daemon::running(
        "ai_providers: { claude: { cli_command: sh, cli_args: [-c, 'echo one; until [ -e go ]; do sleep 0.01; done; echo two'] } }\n\
         backoff: { initial: 1h, max: 1h }",
    );
    daemon.with_one_task(&[]);
    until("it has a process", || {
        daemon.open("agt").first().is_some_and(|launch| launch["pid"].is_number())
    });
    let (mut child, lines) = follow(&daemon, &["logs", "agt", "prj", "-f"]);
    assert_eq!(lines.recv().unwrap(), "one");
    daemon.kill();
    daemon.start();
    std::fs::write(daemon.work().join("go"), "").unwrap();
    assert_eq!(lines.recv().unwrap(), "two");
    assert!(lines.recv().is_err(), "the output is over, and nothing is printed twice");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("waiting for it") && said.contains("connected again"), "{said}");
}

#[test]
fn times_are_local_or_in_utc() {
    let daemon = Daemon::running("");
    daemon.project("prj");
    let at = |zone: &str, arguments: &[&str]| {
        let mut command = daemon.command();
        let output = command.env("TZ", zone).args(arguments).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split("  ").next().unwrap().to_owned()
    };
    daemon.done(&["task", "add", "--id", "tsk", "--project", "prj", "--title", "t"]);
    let utc = at("XYZ-3", &["task", "history", "tsk", "--utc"]);
    let local = at("XYZ-3", &["task", "history", "tsk"]);
    assert!(utc.ends_with('Z') && utc.contains('T'), "{utc}");
    let moment: jiff::Timestamp = utc.parse().unwrap();
    let later = moment + jiff::SignedDuration::from_hours(3);
    assert_eq!(local, later.strftime("%Y-%m-%d %H:%M:%S").to_string());
}
