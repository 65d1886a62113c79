//! The scripts of `completions` ask the daemon for names.

use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::daemon::{Daemon, PROGRAM};
use crate::support::{skip, until};

const WORLD: &str = "
agents:
  agt_ada: { name: Ada Lovelace }
  agt_bob: { name: Bob }
  agt_bob_2: { name: bob }
  agt_odd: { name: \"it's $HOME\" }
projects:
  prj_shop: { name: Shop, working_directory: work, agents: [agt_ada] }
  prj_pay: { name: 決済, working_directory: work }
tasks:
  tsk_1: { project: prj_shop, title: Log in }
  tsk_2: { project: prj_shop, title: Log out }
  tsk_3: { project: prj_pay, title: Pay }
";

/// Reads the script for bash, completes the last word, and evaluates each word that is offered.
const SCRIPT: &str = r#"
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
COMPREPLY=()
_agent_coordinator_names "$1" "${COMP_WORDS[COMP_CWORD]}" ""
for word in "${COMPREPLY[@]}"; do
    case ${COMP_WORDS[COMP_CWORD]} in
        \"*) eval "printf '%s\n' \"$word\"" ;;
        \'*) eval "printf '%s\n' '$word'" ;;
        *) eval "printf '%s\n' $word" ;;
    esac
done
"#;

/// Returns what bash offers for the last word, without its quotes. Returns `None` if there is no
/// bash. A daemon on a busy machine may be too late with its answer, so nothing is asked for again.
fn offered(daemon: &Daemon, words: &[&str]) -> Option<Vec<String>> {
    let asked = || offered_now(daemon, words);
    (0..5)
        .map(|_| asked())
        .find(|offered| offered.as_ref().is_none_or(|words| !words.is_empty()))
        .unwrap_or(Some(Vec::new()))
}

fn offered_now(daemon: &Daemon, words: &[&str]) -> Option<Vec<String>> {
    let script = daemon.folder().join("completions");
    std::fs::write(&script, daemon.done(&["completions", "bash"])).unwrap();
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", SCRIPT, "bash"]).arg(script);
    bash.arg(PROGRAM).args(words);
    bash.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    bash.env("AGENT_COORDINATOR_CONFIG", daemon.config());
    bash.env("HOME", daemon.folder()).env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    let Ok(output) = bash.output() else {
        skip("there is no bash, which reads the completions");
        return None;
    };
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{words:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(str::to_owned).collect())
}

#[test]
fn bash_completes_short_ids_and_names_of_the_daemon() {
    let daemon = Daemon::running("");
    daemon.apply(WORLD);
    for (words, expected) in [
        (&["task", "show", ""][..], &["PRJ-1", "SHOP-2", "SHOP-1"][..]),
        (&["task", "show", "shop-"], &["SHOP-2", "SHOP-1"]),
        (&["task", "show", "SHOP-1"], &["SHOP-1"]),
        (&["task", "show", "tsk_3"], &["tsk_3"]),
        (&["task", "show", "SHOP-9"], &[]),
        (&["why", ""], &["Ada Lovelace", "agt_bob", "agt_bob_2", "it's $HOME"]),
        (&["why", "ada"], &["Ada Lovelace"]),
        (&["why", "Ada\\ L"], &["Ada Lovelace"]),
        (&["why", "\"Ada L"], &["Ada Lovelace"]),
        (&["why", "'it"], &["it's $HOME"]),
        (&["why", "\"it"], &["it's $HOME"]),
        (&["why", "Ada\\ Lovelace", "決"], &["決済"]),
        (&["status", "--project", "SHO"], &["Shop"]),
        (&["status", "--project", "=", "S"], &["Shop"]),
        (&["chat", "st"], &["start"]),
    ] {
        let Some(offered) = offered(&daemon, words) else { return };
        let mut expected: Vec<&str> = expected.to_vec();
        let mut offered: Vec<&str> = offered.iter().map(String::as_str).collect();
        expected.sort_unstable();
        offered.sort_unstable();
        assert_eq!(offered, expected, "{words:?}");
    }
    // The daemon may be another one than that of the environment.
    let other = Daemon::configured("");
    let config = other.config();
    let elsewhere = ["--config", config.to_str().unwrap(), "task", "show", ""];
    assert_eq!(offered(&daemon, &elsewhere), Some(Vec::new()));
    // The words of the commands themselves come from the script.
    let Some(commands) = offered(&daemon, &["task", "sho"]) else { return };
    assert_eq!(commands, ["show"]);
    let options = offered(&daemon, &["status", "--pro"]).unwrap();
    assert_eq!(options, ["--project"]);
}

#[test]
fn bash_completes_ids_of_launches_sessions_tokens_and_entries() {
    let daemon = Daemon::running("");
    daemon.project("prj");
    daemon.agent("agt", "prj", &["authenticate", "get-my-task", "write:ready", "sleep:600"]);
    daemon.task("tsk", "prj", "agt");
    daemon.written_pid("ready");
    daemon.done(&[
        "task",
        "add",
        "--id",
        "stuck",
        "--project",
        "prj",
        "--assignee",
        "agt",
        "--title",
        "x",
        "--status",
        "in_progress",
    ]);
    daemon.done(&["task", "set", "stuck", "--status", "blocked", "--reason", "why"]);
    daemon.done(&["token", "create", "--name", "ci"]);
    let of = |words: &[&str], begins: &str| {
        let offered = offered(&daemon, words)?;
        assert!(offered.len() == 1 && offered[0].starts_with(begins), "{words:?}: {offered:?}");
        Some(())
    };
    let Some(()) = of(&["logs", "agt", "prj", "--launch", ""], "lch_") else { return };
    of(&["session", "end", "ses_"], "ses_");
    of(&["token", "revoke", ""], "key_");
    of(&["inbox", "done", "att"], "att_");
}

#[test]
fn completions_are_silent_without_a_daemon_that_answers() {
    let daemon = Daemon::configured("");
    let nothing: Vec<String> = Vec::new();
    let Some(offered_words) = offered(&daemon, &["task", "show", ""]) else { return };
    assert_eq!(offered_words, nothing);
    // A server that accepts and never answers costs a moment only.
    std::fs::create_dir(daemon.state()).unwrap();
    let _listener = UnixListener::bind(daemon.state().join("control.sock")).unwrap();
    let began_at = Instant::now();
    assert_eq!(offered(&daemon, &["why", "a"]), Some(nothing.clone()));
    assert!(began_at.elapsed() < Duration::from_secs(5), "{:?}", began_at.elapsed());
    // A configuration with mistakes, and words that make no sense.
    std::fs::write(daemon.config(), "nonsense: [").unwrap();
    let said = daemon.cli(&["complete", "bash", "2", "--", "ac", "why", ""]);
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (0, "", ""));
    let said = daemon.cli(&["complete", "bash", "99", "--", "ac", "nonsense"]);
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (1, "", ""));
}

#[test]
fn other_shells_get_a_description_with_each_name() {
    let daemon = Daemon::running("");
    daemon.apply(WORLD);
    for shell in ["zsh", "fish"] {
        let config = daemon.config();
        let config = config.to_str().unwrap();
        let line = ["complete", shell, "5", "--", "ac", "--config", config, "task", "show", "SHOP"];
        let says = |line: &[&str], expected| {
            until("the daemon answers in time", || daemon.done(line) == expected);
        };
        says(&line, "SHOP-2\tLog out\nSHOP-1\tLog in\n");
        let line = ["complete", shell, "4", "--", "ac", "--config", config, "why", "ag"];
        says(&line, "agt_ada\tAda Lovelace\nagt_bob\tBob\nagt_bob_2\tbob\nagt_odd\tit's $HOME\n");
        let line =
            ["complete", shell, "4", "--", "ac", "--config", config, "status", "--project=S"];
        let whole = if shell == "zsh" { "--project=Shop\n" } else { "Shop\n" };
        says(&line, whole);
    }
}
