//! F-18, F-19: programs that can't be run, directories that can't be used, and users that are
//! missing. Each is named, and none ever counts as running.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::process::Command;

use super::Gate;
use super::ordinary_user;
use crate::daemon::{Daemon, PROGRAM};
use crate::isolation::{USER, other_user};
use crate::support::{agent_fixture, skip, until};

/// The id of another ordinary user, `daemon` on almost every system.
const SECOND: u32 = 1;
/// The steps of an agent that does its task.
const WORK: &[&str] = &["authenticate", "get-my-task", "report:success"];

/// Checks that each of these agents waits for a person for this reason, and that no start was
/// tried.
#[track_caller]
fn check_not_started(daemon: &Daemon, expected: &[(&str, &str)]) {
    for (agent, reason) in expected {
        let fault = daemon.until_faulty(agent);
        assert!(fault.contains(reason), "{reason}: {fault}");
        assert_eq!((daemon.open(agent).len(), daemon.ended(agent).len()), (0, 0), "{agent}");
    }
    assert_eq!(daemon.status()["limits"]["running"], 0);
    assert!(daemon.logged("agent process started").is_empty());
    daemon.until_nothing_is_left();
}

/// Checks that the inbox has one entry about agents that can't be started, which says this.
#[track_caller]
fn check_is_one_entry(daemon: &Daemon, fault: &str) {
    let inbox = daemon.json(&["inbox", "--kind", "misconfigured"]);
    let texts: Vec<&str> =
        inbox.as_array().unwrap().iter().filter_map(|entry| entry["text"].as_str()).collect();
    assert!(matches!(texts[..], [text] if text.contains(fault)), "{texts:?}");
}

fn is_suspended(daemon: &Daemon, agent: &str) -> bool {
    let status = daemon.status();
    let mut deferred = status["deferred"].as_array().unwrap().iter();
    deferred.any(|it| it["agent_id"] == agent && it["reason"] == "misconfigured")
}

/// Checks that an agent whose fault only the execution shows is suspended after one start, that a
/// reload tries it once more, and that the next one starts it after the fault was mended.
#[track_caller]
fn check_tried_by_reload(daemon: &Daemon, fault: &str, mend: impl FnOnce()) {
    daemon.with_one_task(WORK);
    let ended = daemon.until_ended("agt");
    assert_eq!(ended["outcome"], "start_failed", "{ended}");
    assert!(ended["reason"].as_str().unwrap().contains(fault), "{ended}");
    until("it is suspended at once", || is_suspended(daemon, "agt"));
    let remedy = daemon.json(&["inbox", "--kind", "misconfigured"]).to_string();
    assert!(remedy.contains("mend the cause, then `reload` or `resume agt prj`"), "{remedy}");
    daemon.done(&["reload"]);
    until("the reload tried it once more", || daemon.ended("agt").len() == 2);
    until("it is suspended again", || is_suspended(daemon, "agt"));
    mend();
    daemon.done(&["reload"]);
    until("the task is done", || daemon.task_status("tsk") == "done");
    until("its launch has ended", || daemon.ended("agt").len() > 2);
    let ended = daemon.ended("agt");
    let outcomes: Vec<_> = ended.iter().map(|launch| launch["outcome"].clone()).collect();
    assert_eq!(outcomes, ["completed", "start_failed", "start_failed"]);
    assert_eq!(daemon.json(&["inbox", "--kind", "misconfigured"]), serde_json::json!([]));
    daemon.until_nothing_is_left();
}

/// Waits until the task is done and its launch has ended. Checks that no launch of the agent failed
/// and that the inbox is empty.
#[track_caller]
fn check_done(daemon: &Daemon, task: &str, agent: &str, n_launches: usize) {
    until("the task is done", || daemon.task_status(task) == "done");
    // The task is done a moment before its launch has ended.
    until("its launch has ended", || daemon.ended(agent).len() >= n_launches);
    let outcomes: Vec<_> =
        daemon.ended(agent).iter().map(|launch| launch["outcome"].clone()).collect();
    assert_eq!(outcomes, vec!["completed"; n_launches]);
    assert_eq!(daemon.json(&["inbox", "--kind", "misconfigured"]), serde_json::json!([]));
}

#[test]
fn a_program_that_can_not_be_run_is_named_and_waits() {
    let mut daemon = Daemon::configured("");
    let program = |name: &str| daemon.work().join(name);
    fs::write(program("plain"), "#!/bin/sh\n").unwrap();
    fs::write(program("widow"), "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(program("widow"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(program("folder")).unwrap();
    let expected = [
        ("missing", "missing` does not exist"),
        ("plain", "plain` is not executable"),
        ("folder", "folder` is a directory"),
        ("widow", "interpreter `/no/such/interpreter`"),
    ];
    let mut settings =
        String::from("backoff: { initial: 1h, max: 1h }\nmax_concurrent: 9\nai_providers:\n");
    for (agent, _) in &expected {
        writeln!(settings, "  {agent}: {{ cli_command: {} }}", program(agent).display()).unwrap();
    }
    // One argument has a lower limit than all of them together.
    writeln!(settings, "  long: {{ cli_command: \"true\", cli_args: [{}] }}", "x".repeat(140_000))
        .unwrap();
    daemon.configure(&settings);
    daemon.start();
    daemon.project("prj");
    for (agent, _) in expected.into_iter().chain([("long", "")]) {
        daemon.agent(agent, "prj", &[]);
        daemon.done(&["agent", "set", agent, "--ai-type", agent]);
        daemon.task(agent, "prj", agent);
    }
    // Only the execution shows this one, and no further start changes it.
    let ended = daemon.until_ended("long");
    assert_eq!((&ended["outcome"], ended["pid"].is_null()), (&"start_failed".into(), true));
    assert!(ended["reason"].as_str().unwrap().contains("is too long"), "{ended}");
    until("it is suspended at once", || is_suspended(&daemon, "long"));
    assert_eq!(daemon.ended("long").len(), 1);
    check_not_started(&daemon, &expected);
}

#[test]
fn what_a_person_mends_is_one_entry_and_starts_by_itself_when_it_is_mended() {
    let daemon = Daemon::running(
        "polling_interval: 1s\n\
         ai_providers: { claude: { cli_command: FOLDER/late, cli_args: [script] } }",
    );
    daemon.with_one_task(WORK);
    let fault = daemon.until_faulty("agt");
    let expected = "late` does not exist; correct `cli_command`, or install it";
    assert!(fault.ends_with(expected), "{fault}");
    check_is_one_entry(&daemon, &fault);
    let why = daemon.json(&["why", "agt", "prj", "--purpose", "task"])[0].clone();
    assert_eq!(why["reason"], "misconfigured", "{why}");
    symlink(agent_fixture(), daemon.folder().join("late")).unwrap();
    check_done(&daemon, "tsk", "agt", 1);
    assert_eq!(daemon.status()["counters"]["found_by_poll_only"], 0);
}

/// The daemon does not poll, and looks by itself after a minute. No wait of a test takes so long.
#[test]
fn a_reload_and_a_resume_look_again_for_a_program_and_a_directory() {
    for command in ["reload", "resume"] {
        let look_again = |daemon: &Daemon, agent: &str, project: &str| {
            let n_words = if command == "resume" { 3 } else { 1 };
            daemon.done(&[command, agent, project][..n_words]);
        };
        let daemon = Daemon::running(
            "polling_interval: 1h\n\
             ai_providers: { claude: { cli_command: FOLDER/late, cli_args: [script] } }",
        );
        daemon.with_one_task(WORK);
        let fault = daemon.until_faulty("agt");
        assert!(fault.contains("late` does not exist"), "{fault}");
        symlink(agent_fixture(), daemon.folder().join("late")).unwrap();
        look_again(&daemon, "agt", "prj");
        check_done(&daemon, "tsk", "agt", 1);

        let folder = daemon.folder().join("later");
        daemon.done(&["project", "add", "prj_2", "--directory", folder.to_str().unwrap()]);
        daemon.agent("agt_2", "prj_2", WORK);
        daemon.task("tsk_2", "prj_2", "agt_2");
        let fault = daemon.until_faulty("agt_2");
        assert!(fault.contains("later` does not exist"), "{fault}");
        fs::create_dir(&folder).unwrap();
        fs::copy(daemon.work().join("agt_2.steps"), folder.join("agt_2.steps")).unwrap();
        look_again(&daemon, "agt_2", "prj_2");
        check_done(&daemon, "tsk_2", "agt_2", 1);
    }
}

#[test]
fn a_reload_tries_a_program_whose_interpreter_may_not_be_executed_once_more() {
    let daemon = Daemon::running(
        "polling_interval: 1h\n\
         ai_providers: { claude: { cli_command: FOLDER/odd, cli_args: [script] } }",
    );
    let program = daemon.folder().join("odd");
    let interpreter = daemon.folder().join("interpreter");
    fs::write(&interpreter, "").unwrap();
    fs::set_permissions(&interpreter, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&program, format!("#!{}\n", interpreter.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    check_tried_by_reload(&daemon, "or its interpreter, may not be executed", || {
        fs::remove_file(&program).unwrap();
        symlink(agent_fixture(), &program).unwrap();
    });
}

#[test]
fn a_reload_tries_a_program_that_its_user_may_not_execute_once_more() {
    let Some(user) = other_user() else { return };
    let mut daemon = Daemon::configured(&format!(
        "polling_interval: 1h\nmcp_socket_path: run/mcp.sock\nai_providers:\n  \
         claude: {{ cli_command: FOLDER/closed, cli_args: [script], run_as: {user} }}"
    ));
    fs::set_permissions(daemon.folder(), fs::Permissions::from_mode(0o711)).unwrap();
    chown(daemon.work(), Some(USER), Some(USER)).unwrap();
    let program = daemon.folder().join("closed");
    let script = format!("#!/bin/sh\nexec '{}' \"$@\"\n", agent_fixture().display());
    fs::write(&program, script).unwrap();
    let allow = |mode| fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
    allow(0o700);
    daemon.start();
    check_tried_by_reload(&daemon, "or not execute program", || allow(0o755));
}

/// Starts a daemon of root that sees the users of this file in place of those of the machine.
/// Returns `false` if that is impossible.
fn start_with_users(daemon: &mut Daemon, file: &str) -> bool {
    let file = daemon.folder().join(file);
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", r#"mount --bind "$0" /etc/passwd && exec "$@""#]);
        command.arg(&file);
        command
    };
    if !unshare().arg("true").status().is_ok_and(|status| status.success()) {
        skip("this user can't mount a file in a mount namespace");
        return false;
    }
    let (mut command, plain) = (unshare(), daemon.command());
    command.arg(PROGRAM).args(plain.get_args()).current_dir(plain.get_current_dir().unwrap());
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("TMPDIR", daemon.folder());
    daemon.spawn_as(command);
    daemon.until_ready();
    true
}

#[test]
fn a_user_that_is_missing_is_one_entry_and_is_looked_for_again() {
    if other_user().is_none() {
        return;
    }
    let settings = |polling_interval: &str| {
        format!(
            "polling_interval: {polling_interval}\nmcp_socket_path: run/mcp.sock\nai_providers:\n  \
             claude: {{ cli_command: {}, cli_args: [script], run_as: gone }}",
            agent_fixture().display()
        )
    };
    let mut daemon = Daemon::configured(&settings("1h"));
    fs::set_permissions(daemon.folder(), fs::Permissions::from_mode(0o711)).unwrap();
    chown(daemon.work(), Some(USER), Some(USER)).unwrap();
    let others = fs::read_to_string("/etc/passwd").unwrap();
    let with_user = |id: u32| format!("{}\ngone:x:{id}:{id}::/:/bin/sh\n", others.trim_end());
    daemon.write("passwd", with_user(USER));
    if !start_with_users(&mut daemon, "passwd") {
        return;
    }
    daemon.write("passwd", &others);
    daemon.with_one_task(WORK);
    let fault = daemon.until_faulty("agt");
    assert_eq!(
        fault,
        "this machine has no user `gone`; make the user and reload the configuration, or correct \
         `run_as` and restart the daemon"
    );
    check_is_one_entry(&daemon, &fault);
    assert_eq!((daemon.open("agt").len(), daemon.ended("agt").len()), (0, 0));
    assert!(daemon.logged("agent process started").is_empty());
    // A reload refuses a configuration that names the user, as a start would.
    assert_eq!(daemon.cli(&["reload"]).code, 78);

    daemon.write("passwd", with_user(USER));
    daemon.done(&["resume", "agt", "prj"]);
    check_done(&daemon, "tsk", "agt", 1);

    // The user is made again with another id.
    let wait_for_user = |task: &str| {
        daemon.write("passwd", &others);
        daemon.task(task, "prj", "agt");
        daemon.until_faulty("agt");
        daemon.write("passwd", with_user(SECOND));
    };
    wait_for_user("tsk_2");
    daemon.done(&["reload"]);
    check_done(&daemon, "tsk_2", "agt", 2);

    daemon.configure(&settings("1s"));
    daemon.done(&["reload"]);
    wait_for_user("tsk_3");
    check_done(&daemon, "tsk_3", "agt", 3);
    daemon.until_nothing_is_left();
}

#[test]
fn a_directory_that_can_not_be_worked_in_is_named_and_waits() {
    let settings = "backoff: { initial: 1h, max: 1h }";
    let is_root = rustix::process::geteuid().is_root();
    let daemon =
        if is_root { ordinary_user::of_user(settings) } else { Some(Daemon::configured(settings)) };
    let Some(mut daemon) = daemon else { return };
    daemon.start();
    let path = |name: &str| daemon.work().join(name);
    fs::write(path("file"), "").unwrap();
    fs::create_dir(path("closed")).unwrap();
    fs::set_permissions(path("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    let expected = [
        ("missing", "missing` does not exist"),
        ("file", "file` is not a directory"),
        ("closed", "closed` may not be entered by this user"),
    ];
    for (name, _) in expected {
        daemon.done(&["project", "add", name, "--directory", path(name).to_str().unwrap()]);
        daemon.agent(name, name, &[]);
        daemon.task(name, name, name);
    }
    check_not_started(&daemon, &expected);
    fs::set_permissions(path("closed"), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_directory_that_goes_while_an_agent_works_in_it_stops_only_the_next_one() {
    let daemon = Daemon::running("backoff: { initial: 1h, max: 1h }");
    let gate = Gate::closed(&daemon);
    let folder = daemon.work().join("gone");
    let elsewhere = |step: &str| step.replace("DIR", daemon.work().to_str().unwrap());
    fs::create_dir(&folder).unwrap();
    daemon.done(&["project", "add", "prj", "--directory", folder.to_str().unwrap()]);
    daemon.agent("agt", "prj", &[]);
    let steps = [
        "authenticate",
        "get-my-task",
        "write:DIR/ready",
        "run:flock -s DIR/gate true",
        "report:success",
    ];
    fs::write(folder.join("agt.steps"), elsewhere(&steps.join("\n")) + "\n").unwrap();
    daemon.task("tsk", "prj", "agt");
    daemon.written_pid("ready");
    fs::remove_dir_all(&folder).unwrap();
    drop(gate);
    until("the task is done", || daemon.task_status("tsk") == "done");
    assert_eq!(daemon.until_ended("agt")["outcome"], "completed");
    daemon.task("tsk_2", "prj", "agt");
    let fault = daemon.until_faulty("agt");
    assert!(fault.contains("gone` does not exist"), "{fault}");
    assert_eq!(daemon.ended("agt").len(), 1);
    daemon.until_nothing_is_left();
}
