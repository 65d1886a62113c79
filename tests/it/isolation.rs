//! Agents that run as another user than the daemon, and agents that another program starts.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use domain::launch::ProcessEnd;
use domain::{FileContent, LaunchFile, RunAs};
use machine::instance_dir::SHIM_COMM;
use machine::sys::processes;
use rustix::process::Signal;

use crate::control::send_to;
use crate::daemon::{Daemon, PROGRAM};
use crate::support::{Bed, agent_fixture, exited, is_gone, kill, skip, tree_of, until};

/// The id of `nobody` on almost every system.
pub const USER: u32 = 65534;

/// Returns its name if the tests may become this user and it may run the programs that were built
/// here. Otherwise prints the reason.
pub fn other_user() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        skip("only root can run agents as another user");
        return None;
    }
    let Ok(Some(user)) = nix::unistd::User::from_uid(USER.into()) else {
        skip("there is no user of id 65534");
        return None;
    };
    let mut command = Command::new(PROGRAM);
    command.arg("--version").stdout(Stdio::null()).uid(USER).gid(USER).current_dir("/");
    if !command.status().is_ok_and(|status| status.success()) {
        skip("an ordinary user may not run what was built here");
        return None;
    }
    Some(user.name)
}

/// Returns a daemon of root whose agents run as `user`.
fn daemon_with_agents_of(user: &str) -> Daemon {
    let daemon = Daemon::configured(&format!(
        "mcp_socket_path: run/mcp.sock\nbackoff: {{ initial: 1m }}\nai_providers:\n  claude: {{ cli_command: {}, cli_args: [script], run_as: {user} }}",
        agent_fixture().display()
    ));
    fs::set_permissions(daemon.folder(), Permissions::from_mode(0o711)).unwrap();
    chown(daemon.work(), Some(USER), Some(USER)).unwrap();
    daemon
}

#[test]
fn an_agent_of_another_user_works_and_reaches_nothing_but_its_server() {
    let Some(user) = other_user() else { return };
    let mut daemon = daemon_with_agents_of(&user);
    daemon.start();
    let look = "run:id -u >id; id -G >groups; echo $HOME:$USER:$LOGNAME:${XDG_RUNTIME_DIR-} >names; : >reached";
    let pry = format!(
        "run:for file in {state}/state.db {state}/coordinator_token {state}/instances {state}/control.sock; do \
         cat $file >/dev/null 2>&1 && echo $file >>reached; ls $file >/dev/null 2>&1 && echo $file >>reached; done; \
         kill -KILL $PPID 2>/dev/null && echo shim >>reached; \
         cat /proc/$PPID/environ >/dev/null 2>&1 && echo environ >>reached; \
         $AGENT_COORDINATOR --config {config} status >/dev/null 2>&1 && echo control >>reached",
        state = daemon.state().display(),
        config = daemon.config().display(),
    );
    daemon.with_one_task(&[
        "authenticate",
        "get-my-task",
        look,
        &pry,
        "write:ready",
        "wait-for:go",
        "report:success",
    ]);
    let agent = daemon.written_pid("ready");
    let shim = processes::read(agent).unwrap().parent;
    let uid_of = |pid: i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().find_map(|line| line.strip_prefix("Uid:\t")).unwrap().to_owned()
    };
    assert_eq!(
        (uid_of(agent).as_str(), uid_of(shim).as_str()),
        ("65534\t65534\t65534\t65534", "0\t0\t0\t0")
    );
    let written = |file: &str| fs::read_to_string(daemon.work().join(file)).unwrap();
    assert_eq!(written("id"), "65534\n");
    assert!(
        !written("groups").split_whitespace().any(|group| group == "0"),
        "{}",
        written("groups")
    );
    assert!(
        written("names").ends_with(&format!(":{user}:{user}:\n"))
            && !written("names").starts_with("/root"),
        "{}",
        written("names")
    );
    assert_eq!(written("reached"), "");
    // This is the same user, but not an agent.
    let mut stranger = Command::new(PROGRAM);
    stranger.env_clear().env("COORDINATOR_MCP_SOCKET", daemon.folder().join("run/mcp.sock"));
    let said = stranger
        .args(["call", "health_check"])
        .uid(USER)
        .gid(USER)
        .current_dir("/")
        .output()
        .unwrap();
    assert!(!said.status.success());
    assert_eq!(daemon.logged("refused a connection of another user").len(), 1, "{}", daemon.log());
    // This does the same under the name of a shim, with a launch in its arguments.
    let forged = daemon.work().join(SHIM_COMM);
    fs::copy("/bin/sh", &forged).unwrap();
    let mut stranger = Command::new(&forged);
    stranger.env_clear().env("COORDINATOR_MCP_SOCKET", daemon.folder().join("run/mcp.sock"));
    stranger.args(["-c", "\"$0\" call health_check; exit $?", PROGRAM, "/instances/lch_1"]);
    let said = stranger.uid(USER).gid(USER).current_dir("/").output().unwrap();
    assert!(!said.status.success(), "{said:?}");
    assert_eq!(daemon.logged("refused a connection of another user").len(), 2, "{}", daemon.log());
    // The agent is adopted like any other.
    daemon.kill();
    daemon.start();
    assert!(!is_gone(agent));
    fs::write(daemon.work().join("go"), "").unwrap();
    assert_eq!(daemon.until_ended("agt")["outcome"], "completed");
    daemon.until_nothing_is_left();
}

#[test]
fn an_agent_of_another_user_is_ended_with_its_tree() {
    let Some(user) = other_user() else { return };
    let mut daemon = daemon_with_agents_of(&user);
    daemon.start();
    let child = "run:(env -i setsid sh -c 'trap \"\" TERM; echo $$ >child; exec sleep 600' >/dev/null 2>&1 &)";
    daemon.with_one_task(&["authenticate", child, "write:ready", "sleep:600"]);
    let (agent, child) = (daemon.written_pid("ready"), daemon.written_pid("child"));
    kill(processes::read(agent).unwrap().parent, Signal::KILL);
    assert_eq!(daemon.until_ended("agt")["outcome"], "lost");
    assert!(is_gone(agent) && is_gone(child), "it dies with its shim, whoever it is");
    daemon.until_nothing_is_left();
}

#[test]
fn the_chat_file_is_its_agents_users_and_root_makes_nothing_for_it() {
    let Some(user) = other_user() else { return };
    let mut daemon = daemon_with_agents_of(&user);
    daemon.start();
    daemon.project("prj");
    daemon.agent("agt", "prj", &["exit:0"]);
    let say = |content: &str| {
        let (path, body) =
            ("/projects/prj/agents/agt/chat/messages", format!(r#"{{"content":"{content}"}}"#));
        let answer = send_to(&daemon.state().join("control.sock"), "POST", path, body.as_bytes());
        assert!((200..300).contains(&answer.status), "{} {}", answer.status, answer.body);
    };
    let mirrored = || -> Vec<String> {
        let lines = daemon.mirrored("agt").into_iter();
        lines.map(|line| line["content"].as_str().unwrap().to_owned()).collect()
    };
    say("one");
    until("the message is in the file", || mirrored() == ["one"]);
    let file = daemon.work().join(".ai-pm/agents/agt/chat.jsonl");
    for path in file.ancestors().take(4) {
        let found = fs::metadata(path).unwrap();
        assert_eq!((found.uid(), found.gid()), (USER, USER), "{}", path.display());
    }
    let read =
        Command::new("cat").arg(&file).uid(USER).gid(USER).current_dir("/").output().unwrap();
    assert!(String::from_utf8_lossy(&read.stdout).contains("one"), "{read:?}");
    // If the user may not make anything, root makes nothing either.
    fs::remove_dir_all(daemon.work().join(".ai-pm")).unwrap();
    chown(daemon.work(), Some(0), Some(0)).unwrap();
    say("two");
    until("it is told", || {
        !daemon.logged("could not export a chat; its messages are in the store").is_empty()
    });
    assert!(
        daemon.log().contains(&format!("user `{user}`, whom the agent runs as, may not use")),
        "{}",
        daemon.log()
    );
    assert!(!daemon.work().join(".ai-pm").exists());
    chown(daemon.work(), Some(USER), Some(USER)).unwrap();
    say("three");
    until("all messages are in the file", || mirrored() == ["one", "two", "three"]);
}

#[test]
fn who_can_not_be_become_is_told_before_anything_starts() {
    let configured = |settings: &str| {
        Daemon::configured(&format!(
            "{settings}\nai_providers:\n  claude: {{ cli_command: sh, run_as: no-such-user }}"
        ))
    };
    let mut daemon = configured("mcp_socket_path: run/mcp.sock");
    let expected = if rustix::process::geteuid().is_root() {
        "has no user `no-such-user`"
    } else {
        "needs a daemon of root"
    };
    let (code, said) = daemon.refused();
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains(expected) && said.contains("ai_providers.claude.run_as"), "{said}");
    let said = daemon.cli(&["check"]);
    assert!(said.code == 78 && said.stderr.contains(expected), "{said:?}");
    assert!(!said.stdout.contains("correct"), "{said:?}");
    let Some(user) = other_user() else { return };
    let with = |settings: &str| {
        Daemon::configured(&format!(
            "{settings}\nai_providers:\n  claude: {{ cli_command: sh, run_as: {user} }}"
        ))
    };
    let (code, said) = with("").refused();
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("needs `mcp_socket_path` outside of the state directory"), "{said}");
    let mut closed = with("mcp_socket_path: run/mcp.sock");
    fs::set_permissions(closed.folder(), Permissions::from_mode(0o700)).unwrap();
    let (code, said) = closed.refused();
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("may not enter"), "{said}");
    let mut open = with("mcp_socket_path: run/mcp.sock");
    fs::set_permissions(open.folder(), Permissions::from_mode(0o711)).unwrap();
    fs::create_dir(open.folder().join("run")).unwrap();
    fs::set_permissions(open.folder().join("run"), Permissions::from_mode(0o1777)).unwrap();
    let (code, said) = open.refused();
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("the daemon's alone to change") && said.contains("/run`"), "{said}");
}

#[test]
fn a_reload_refuses_what_a_start_would_refuse() {
    let daemon = Daemon::running("max_concurrent: 2");
    daemon.configure(
        "max_concurrent: 3\nai_providers:\n  new: { cli_command: sh, run_as: no-such-user }",
    );
    let said = daemon.cli(&["reload"]);
    assert!(said.code == 78 && said.stderr.contains("ai_providers.new.run_as"), "{said:?}");
    let status = daemon.status();
    assert_eq!(status["limits"]["max_concurrent"], 2);
    assert!(
        status["configuration"]["rejected"]["problem"].as_str().unwrap().contains("run_as"),
        "{status}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_a_launch_are_its_users() {
    let Some(name) = other_user() else { return };
    let bed = Bed::new().await;
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o711)).unwrap();
    fs::set_permissions(bed.work.path(), Permissions::from_mode(0o777)).unwrap();
    let files = place.path().join("files/lch");
    let mut request = bed.request(&[&format!(
        "run:cat {0}/of/it; echo more >{0}/more && rm {0}/of/it",
        files.display()
    )]);
    request.command.files = vec![LaunchFile {
        path: "of/it".into(),
        content: FileContent::Text("a setting\n".to_owned()),
    }];
    request.command.files_in = Some(files.clone());
    request.command.run_as =
        Some(RunAs { name: name.clone(), uid: USER, gid: USER, groups: vec![USER] });
    let launch = bed.start_request(request).await;
    assert_eq!(bed.until_ended(&launch), exited(0));
    assert_eq!(bed.output(&launch), "a setting\n");
    let mode = fs::metadata(&files).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode, files.join("more").exists()), (0o700, true));
    bed.table().forget(&launch).await.unwrap();
    assert!(!files.exists());
    // A folder that it may not enter is named, together with the user.
    let mut request = bed.request(&["exit:0"]);
    request.command.run_as =
        Some(RunAs { name: name.clone(), uid: USER, gid: USER, groups: vec![USER] });
    request.command.working_directory = bed.config.state_dir.clone();
    fs::set_permissions(&bed.config.state_dir, Permissions::from_mode(0o700)).unwrap();
    let launch = bed.start_request(request).await;
    let end = bed.until_ended(&launch);
    assert!(
        matches!(&end, ProcessEnd::StartFailed(text) if text.contains(&format!("user `{name}` may not enter"))),
        "{end:?}"
    );
}

#[test]
fn a_wrapper_starts_the_agent_and_changes_nothing_else() {
    // There are two kinds of wrappers: one becomes the agent, and one stays in between.
    let between = r#"[sh, -c, 'echo "$1" >wrapped; shift; "$@"; exit $?', sh, "{agent_id}"]"#;
    for (wrap, agent_is_leader) in [("[env, WRAPPED=1, nice, -n, \"1\"]", true), (between, false)] {
        let daemon = Daemon::running(&format!(
            "backoff: {{ initial: 1m }}\nai_providers:\n  claude: {{ cli_command: {}, cli_args: [script], wrap: {wrap} }}",
            agent_fixture().display()
        ));
        daemon.project("prj");
        daemon.agent("agt", "prj", &["authenticate", "write:ready", "wait-for:go", "exit:9"]);
        daemon.task("tsk", "prj", "agt");
        let agent = daemon.written_pid("ready");
        let running = daemon.until_in_state("agt", "running");
        assert_eq!(running["pid"] == agent, agent_is_leader, "{running}");
        if agent_is_leader {
            assert_eq!(processes::find_variable(agent, "WRAPPED").as_deref(), Some("1"));
        } else {
            assert_eq!(fs::read_to_string(daemon.work().join("wrapped")).unwrap(), "agt\n");
        }
        fs::write(daemon.work().join("go"), "").unwrap();
        assert_eq!(daemon.until_ended("agt")["exit_code"], 9);
        fs::remove_file(daemon.work().join("go")).unwrap();
        fs::remove_file(daemon.work().join("ready")).unwrap();
        daemon.done(&["resume", "agt", "prj"]);
        let agent = daemon.written_pid("ready");
        let leader =
            i32::try_from(daemon.until_in_state("agt", "running")["pid"].as_i64().unwrap())
                .unwrap();
        let shim = processes::read(leader).unwrap().parent;
        let tree = tree_of(shim);
        kill(shim, Signal::KILL);
        until("it is lost", || daemon.ended("agt")[0]["outcome"] == "lost");
        assert!(is_gone(agent) && tree.iter().all(|&pid| is_gone(pid)));
        daemon.until_nothing_is_left();
    }
}

#[test]
fn a_wrapper_that_is_missing_is_named() {
    let daemon = Daemon::running(&format!(
        "backoff: {{ initial: 1m }}\nai_providers:\n  claude: {{ cli_command: {}, wrap: [no-such-wrapper] }}",
        agent_fixture().display()
    ));
    daemon.with_one_task(&[]);
    let fault = daemon.until_faulty("agt");
    assert!(fault.contains("no-such-wrapper") && fault.contains("correct `wrap`"), "{fault}");
}
