//! `check` and `apply`: their output about correct and wrong files.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use rustix::fs::{CWD, FileType, Mode};

use super::check_fails;
use crate::daemon::{Daemon, PROGRAM, Said};

/// A configuration of the older system, unchanged (R-004-24).
const SEED: &str = include_str!("../../fixtures/seed_004.yaml");

/// Runs `check` on this configuration, with the variables of the older system if wanted. Its folder
/// is `HOME`, too, and is left out of the output.
fn check(text: &str, variables: &[(&str, &str)]) -> Said {
    let daemon = Daemon::configured("");
    daemon.write("coordinator_config.yaml", text);
    let folder = daemon.config().parent().unwrap().to_owned();
    let mut command = daemon.command();
    command
        .env_clear()
        .env("PATH", "/nowhere")
        .env("HOME", &folder)
        .envs(variables.iter().copied());
    let output = command.arg("check").output().unwrap();
    let plain =
        |bytes| String::from_utf8(bytes).unwrap().replace(folder.to_str().unwrap(), "[folder]");
    Said {
        code: output.status.code().unwrap(),
        stdout: plain(output.stdout),
        stderr: plain(output.stderr),
    }
}

const SECRETS: [(&str, &str); 3] = [
    ("DEV_PASSKEY", "dev-secret"),
    ("REVIEWER_PASSKEY", "reviewer-secret"),
    ("INFRA_PASSKEY", "infra-secret"),
];

#[test]
fn the_seeds_configuration_is_right_as_it_stands() {
    let said = check(SEED, &SECRETS);
    let absent = "agent-coordinator: the programs of these providers were not found: claude, \
                  codex, gemini\n";
    assert_eq!(
        (said.code, said.stderr.as_str()),
        (1, absent),
        "the file is right, the programs are missing"
    );
    insta::assert_snapshot!("seed", said.stdout);
}

/// Returns the output of `check` with these programs on the `PATH`, and its exit code. The folders
/// of this machine are left out.
fn check_with_programs(programs: &[&str], arguments: &[&str]) -> (String, Option<i32>) {
    let daemon = Daemon::configured("");
    daemon.write("coordinator_config.yaml", "state_dir: state\n");
    for program in programs {
        daemon.write(program, "#!/bin/sh\n");
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(daemon.folder().join(program), executable).unwrap();
    }
    let mut command = daemon.command();
    command
        .env_clear()
        .env("PATH", daemon.folder())
        .env("OPENAI_API_KEY", "sk-hidden")
        .arg("check")
        .args(arguments);
    let output = command.output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(!said.contains("sk-hidden"), "{said}");
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let said =
        said.replace(daemon.folder().to_str().unwrap(), "[folder]").replace(examples, "[examples]");
    (said.replace(PROGRAM, "[program]"), output.status.code())
}

#[test]
fn a_missing_program_is_a_warning_while_another_provider_can_start() {
    let absent = "the programs of these providers were not found: mine\n";
    let other = "other: { cli_command: /bin/sh }";
    let one = check(
        &format!("ai_providers: {{ mine: {{ cli_command: no-such-program }}, {other} }}"),
        &[],
    );
    assert_eq!((one.code, one.stderr.as_str()), (0, ""), "{one:?}");
    assert!(one.stdout.ends_with(&format!("\nwarning: {absent}")), "{one:?}");
    let all = check("ai_providers: { mine: { cli_command: no-such-program } }", &[]);
    let said = format!("agent-coordinator: {absent}");
    assert_eq!((all.code, all.stderr), (1, said), "{}", all.stdout);
    let none = check(&format!("ai_providers: {{ {other} }}"), &[]);
    assert_eq!((none.code, none.stderr.as_str()), (0, ""), "{none:?}");
    assert!(!none.stdout.contains("warning"), "{none:?}");
}

#[test]
fn a_port_that_only_a_start_finds_is_not_shown_as_an_address() {
    for (listen, url) in
        [("'127.0.0.1:0'", "http://127.0.0.1:PORT/mcp"), ("'[::1]:0'", "http://[::1]:PORT/mcp")]
    {
        let said = check(&format!("http: {{ listen: {listen} }}"), &[]);
        let told = format!(", HTTP {url} (PORT is a free port)\n");
        assert!(said.stdout.contains(&told) && !said.stdout.contains(":0/"), "{said:?}");
    }
}

#[test]
fn without_providers_the_presets_are_shown_that_can_be_used() {
    let (said, code) = check_with_programs(&["claude"], &[]);
    assert_eq!(code, Some(0));
    insta::assert_snapshot!("presets", said);
}

#[test]
fn the_example_with_real_clis_is_right_and_says_what_is_missing() {
    let example =
        concat!(env!("CARGO_MANIFEST_DIR"), "/examples/claude-and-codex/coordinator_config.yaml");
    let (said, code) = check_with_programs(&["codex"], &["--config", example]);
    assert_eq!(code, Some(0), "only one agent of its manifest can't be started");
    insta::assert_snapshot!("claude_and_codex", said);
    assert_eq!(check_with_programs(&["claude", "codex"], &["--config", example]).1, Some(0));
}

#[test]
fn an_agent_of_the_manifest_that_is_started_as_another_is_named() {
    let daemon = Daemon::configured("manifest: manifest.yaml");
    daemon.write(
        "manifest.yaml",
        "agents: { agt_a: { ai_type: cluade }, agt_b: { ai_type: codex } }",
    );
    let check = || daemon.command().env("PATH", daemon.folder()).arg("check").output().unwrap();
    let output = check();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains(
            "ai_type cluade: no provider of this name (did you mean `claude`?); `run` refuses it"
        ),
        "{said}"
    );
    assert!(said.contains("it already is started as claude"), "{said}");
    assert!(said.contains("provider codex:") && !said.contains("provider cluade:"), "{said}");
    // One agent has the tests' agent for a program, and the other has no program.
    let warning = "codex; these agents of the manifest can't start: agt_b\n";
    assert!(output.status.code() == Some(0) && said.ends_with(warning), "{said}");
    // A provider that no agent uses does not count.
    daemon.write("manifest.yaml", "agents: { agt_b: { ai_type: codex } }");
    let output = check();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && told.ends_with(warning), "{told}");
}

#[test]
fn providers_that_need_http_are_named() {
    let entries = "ai_providers:\n  by_url: { cli_command: /bin/sh, cli_args: [--mcp, '{mcp_url}'] }\n  \
                   by_socket: { cli_command: /bin/sh, cli_args: [--mcp, '{mcp_socket}'] }\n  \
                   by_variable: { cli_command: /bin/sh, cli_args: [-c, 'curl \"$COORDINATOR_MCP_URL\"'] }\n";
    let need = "  needs HTTP: its entry uses {mcp_url} or COORDINATOR_MCP_URL";
    let on = check(entries, &[]);
    assert_eq!((on.code, on.stdout.matches(need).count()), (0, 2), "{on:?}");
    // Every agent gets the variable, even one that does not need it.
    let variables =
        |said: &Said| said.stdout.matches(" COORDINATOR_MCP_SOCKET COORDINATOR_MCP_URL ").count();
    assert_eq!(variables(&on), 3, "{on:?}");
    assert!(
        !on.stdout.contains("warning:") && on.stdout.contains("http://127.0.0.1:7420/mcp"),
        "{on:?}"
    );
    for (settings, setting) in [("agents", "http.agents"), ("listen", "http.listen")] {
        let off = check(&format!("{entries}http: {{ {settings}: off }}\n"), &[]);
        let warning = format!(
            "warning: `{setting}` is off, and these providers need HTTP: by_url, by_variable\n"
        );
        assert!(off.code == 1 && off.stdout.contains(&warning), "{off:?}");
        assert!(off.stderr.ends_with("are not startable: by_url\n"), "{off:?}");
        assert_eq!(variables(&off), 0, "{off:?}");
    }
    let remote = check("server: https://far.example/mcp\nhttp: { agents: off }\n", &[]);
    assert!(
        remote.stdout.contains("warning: `http.agents` is off: agents of `supervise`"),
        "{remote:?}"
    );
}

#[test]
fn secrets_that_are_too_short_to_be_taken_out_of_text_are_named() {
    let daemon = Daemon::configured(
        "coordinator_token: eleven-char\nagents: { agt_a: { passkey: twelve-chars } }\nmanifest: m.yaml",
    );
    daemon.write(
        "m.yaml",
        "agents: { agt_b: { passkey: short }, agt_c: { passkey: a-long-passkey } }",
    );
    let said = daemon.done(&["check"]);
    let warned = |setting: &str| {
        said.contains(&format!(
            "warning: the secret in `{setting}` has fewer than 12 characters: it is not taken out of what agents write and print\n"
        ))
    };
    assert!(warned("coordinator_token") && warned("agents.agt_b.passkey (manifest)"), "{said}");
    assert_eq!(said.matches("warning:").count(), 2, "{said}");
}

#[test]
fn the_seeds_configuration_without_its_variables_names_each() {
    let said = check(SEED, &SECRETS[..1]);
    assert_eq!((said.code, said.stdout.as_str()), (78, ""));
    insta::assert_snapshot!("seed_without_variables", said.stderr);
    assert!(!said.stderr.contains("dev-secret"));
}

#[test]
fn broken_files_are_told_all_that_is_wrong_with_them() {
    let mut report = String::new();
    for text in [
        "polling_interval: 10\nmax_concurrent: [3\n",
        "poling_interval: 10\nmax_concurrent: 3\nmax_concurrent: 4\n",
        "polling_interval: soon\nmax_concurrent: 0\nshutdown: { sigterm: wait }\nlog: loud\n",
        "ai_providers:\n  claude:\n    cli_args: --yes\n  \"no such name\": 7\nagents:\n  a b: { passkey: x }\n",
        "session:\n  default_timeout: 2h\n  max_timeout: 1h\nstate_dir: ${NOWHERE:?say where}\nlanguage: de\n",
        "- a list\n",
    ] {
        let said = check(text, &[]);
        assert_eq!((said.code, said.stdout.as_str()), (78, ""), "{text}");
        writeln!(report, "--- of\n{text}--- is said\n{}", said.stderr).unwrap();
    }
    insta::assert_snapshot!("broken_files", report);
}

#[test]
fn a_file_that_can_not_be_read_is_named_with_the_reason() {
    let daemon = Daemon::configured("");
    let check = |path: &str, why: &str| {
        let output = daemon.command().args(["check", "--config", path]).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), output.stdout.as_slice()),
            (Some(78), &b""[..]),
            "{stderr}"
        );
        assert!(stderr.contains(path) && stderr.contains(why), "{stderr}");
    };
    check("none.yaml", "No such file or directory");
    check("work", "Is a directory");
    daemon.write("binary.yaml", b"state_dir: x\n\xff\xfe\n");
    check("binary.yaml", "not a text in UTF-8");
    // The daemon reports the same.
    let run = daemon.command().args(["run", "--config", "none.yaml"]).output().unwrap();
    assert_eq!(run.status.code(), Some(78));
    // It also reports problems of the file that its configuration names.
    daemon.configure("manifest: none.yaml");
    check_fails(&daemon, &["run"], 78, "No such file or directory");
    let check = daemon.cli(&["check"]);
    assert_eq!(check.code, 78);
    assert!(
        check.stderr.contains("none.yaml") && check.stderr.contains("No such file"),
        "{check:?}"
    );
}

#[test]
fn a_pipe_is_named_and_never_waited_for_unless_a_shell_passes_it_on() {
    let daemon = Daemon::running("");
    let pipe = daemon.folder().join("pipe");
    rustix::fs::mknodat(CWD, pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    daemon.done(&["backup", "saved.db"]);
    let copy = |from, to| ["store", "copy", "--from", from, "--to", to];
    let a_pipe = "it is a pipe, not a regular file; name another path";
    let of_config = format!("could not read `pipe`, which --config names: {a_pipe}");
    let of_setting = format!("/pipe`, which the setting `manifest` names: {a_pipe}");
    daemon.write("piped.yaml", "state_dir: other\nmanifest: pipe\n");
    let a_pipe = format!("could not read `pipe`: {a_pipe}");
    for (arguments, code, why) in [
        (&["import", "pipe", "--yes"][..], 1, a_pipe.as_str()),
        (&["apply", "pipe"], 78, &a_pipe),
        (&["check", "--config", "pipe"], 78, &of_config),
        (&["check", "--config", "piped.yaml"], 78, &of_setting),
        (&["run", "--config", "piped.yaml"], 78, &of_setting),
        (&["backup", "pipe", "--force"], 1, "pipe` is not a file"),
        (&["export", "pipe", "--force"], 1, "pipe` is not a file"),
        (&copy("sqlite:pipe", "sqlite:other.db"), 1, "pipe` is not a file"),
        (&copy("sqlite:saved.db", "sqlite:pipe"), 1, "pipe` is not a file"),
    ] {
        check_fails(&daemon, arguments, code, why);
    }
    let said = daemon.cli_with_input(&["apply", "/dev/stdin"], "agents: { agt: {} }");
    assert_eq!((said.code, said.stdout.as_str()), (0, "agent agt created\n"), "{said:?}");
    let exported = daemon.done(&["export"]);
    let said = daemon.cli_with_input(&["import", "/dev/stdin", "--yes", "--merge"], &exported);
    assert_eq!(said.code, 0, "{said:?}");
}

const MANIFEST: &str = "
agents:
  agt_a: { name: Ann, system_prompt: 'You build ${things}.', passkey: \"${KEY:-a key}\" }
  agt_b: {}
projects:
  prj: { name: Project, working_directory: work, agents: [agt_a] }
tasks:
  tsk_parent: { project: prj, title: parent, assignee: agt_a, status: todo }
  tsk_child: { project: prj, parent: tsk_parent, title: child, dependencies: [tsk_first] }
  tsk_first: { project: prj, title: first, priority: high }
";

#[test]
fn apply_says_what_changed_and_nothing_changes_twice() {
    let daemon = Daemon::running("");
    assert_eq!(
        daemon.apply(MANIFEST),
        "agent agt_a created\nagent agt_b created\nproject prj created\ntask tsk_parent created\ntask tsk_child created\n\
         task tsk_first created\n"
    );
    let state = |what: &str| daemon.json(&[what, "list"]);
    let before = (state("agent"), state("project"), state("task"));
    assert_eq!(daemon.apply(MANIFEST), "6 unchanged\n");
    assert_eq!((state("agent"), state("project"), state("task")), before);
    assert_eq!(daemon.json(&["agent", "show", "agt_a"])["system_prompt"], "You build ${things}.");

    // People set the status of an existing task, and entries that the file doesn't list stay.
    daemon.done(&["task", "set", "tsk_first", "--status", "in_progress", "--assignee", "agt_a"]);
    let smaller = "
agents: { agt_b: { name: Bob } }
projects: { prj: { name: Project, working_directory: work, agents: [agt_b] } }
tasks: { tsk_first: { project: prj, title: the first, priority: high, assignee: agt_a, status: backlog } }
";
    assert_eq!(
        daemon.apply(smaller),
        "agent agt_b updated\nproject prj updated\ntask tsk_first updated\n"
    );
    assert_eq!(daemon.task_status("tsk_first"), "in_progress");
    assert_eq!(
        daemon.json(&["project", "show", "prj"])["agents"],
        serde_json::json!(["agt_a", "agt_b"])
    );
    assert_eq!(daemon.json(&["task", "list"]).as_array().unwrap().len(), 3);
    daemon.write("manifest.yaml", smaller);
    let applied = daemon.json(&["apply", "manifest.yaml"]);
    assert_eq!(
        applied[0],
        serde_json::json!({ "kind": "agent", "id": "agt_b", "what": "unchanged" })
    );
    assert_eq!(daemon.apply("{}"), "nothing to apply\n");
}

const WITH_DELETED: &str = "\
agents:
  agt_gone: {}
  agt: {}
projects:
  prj_gone: { working_directory: work }
  prj: { working_directory: work, agents: [agt_gone, agt] }
tasks:
  tsk_hello: { project: prj, title: hello, status: done }
  tsk_of_project: { project: prj_gone, title: goes along, status: done }
  tsk_of_agent: { project: prj, title: stays, assignee: agt_gone, status: done }
  tsk_after: { project: prj, title: after, dependencies: [tsk_hello] }
";

#[test]
fn what_a_person_deleted_is_left_out_of_the_manifest_and_the_rest_is_applied() {
    let mut daemon = Daemon::configured("manifest: manifest.yaml");
    daemon.write("manifest.yaml", WITH_DELETED);
    daemon.start();
    for [kind, id] in [["task", "tsk_hello"], ["project", "prj_gone"], ["agent", "agt_gone"]] {
        daemon.done(&[kind, "delete", id, "--yes"]);
    }
    assert_eq!(daemon.terminate().code(), Some(0), "{}", daemon.log());

    let more = format!(
        "{WITH_DELETED}  tsk_new: {{ project: prj, title: new, assignee: agt }}\n  \
         tsk_late: {{ project: prj_gone, title: too late }}\n"
    );
    daemon.write("manifest.yaml", more);
    daemon.start();
    assert_eq!(daemon.task_status("tsk_new"), "todo");
    assert_eq!(daemon.task_status("tsk_after"), "todo");
    assert_eq!(daemon.task_status("tsk_of_agent"), "done");
    for [kind, id] in [["task", "tsk_hello"], ["task", "tsk_late"], ["agent", "agt_gone"]] {
        assert_eq!(daemon.cli(&[kind, "show", id]).code, 1, "{id}");
    }
    let warnings = [
        "manifest.yaml:2:3: the agent `agt_gone` was deleted, so it is left out; \
         remove the entry, or give it another id",
        "manifest.yaml:5:3: the project `prj_gone` was deleted, so it is left out",
        "manifest.yaml:6:44: the agent `agt_gone` was deleted, so it is left out of the agents of `prj`",
        "manifest.yaml:8:3: the task `tsk_hello` was deleted, so it is left out",
        "manifest.yaml:9:3: the task `tsk_of_project` was deleted, so it is left out",
        "manifest.yaml:10:57: the task `tsk_of_agent` is left out, because its assignee `agt_gone` was deleted",
        "manifest.yaml:11:59: the task `tsk_hello` was deleted, so it is left out of the dependencies of `tsk_after`",
        "manifest.yaml:13:24: the task `tsk_late` is left out, because its project `prj_gone` was deleted",
    ];
    let logged = daemon.logged("a part of the manifest is left out");
    assert_eq!(logged.len(), warnings.len(), "{logged:?}");
    for warning in warnings {
        let found = logged.iter().find(|line| line["problem"].as_str().unwrap().contains(warning));
        assert_eq!(found.expect(warning)["level"], "warn");
    }

    let said = daemon.cli(&["apply", "manifest.yaml"]);
    assert_eq!(
        said.stdout,
        "agent agt_gone left out\nproject prj_gone left out\ntask tsk_hello left out\n\
         task tsk_of_project left out\ntask tsk_of_agent left out\ntask tsk_late left out\n\
         4 unchanged\n",
        "{said:?}"
    );
    for warning in warnings {
        let line = format!("agent-coordinator: warning: {warning}");
        assert!(said.stderr.contains(&line), "{line}: {}", said.stderr);
    }
    let applied = daemon.json(&["apply", "manifest.yaml"]);
    let of = |id: &str| applied.as_array().unwrap().iter().find(|entry| entry["id"] == id).unwrap();
    let hello = of("tsk_hello");
    assert_eq!((&hello["kind"], &hello["what"]), (&"task".into(), &"left_out".into()));
    assert!(hello["warnings"][0]["message"].as_str().unwrap().starts_with(warnings[3]), "{hello}");
    let after = of("tsk_after");
    assert_eq!(after["what"], "unchanged");
    assert_eq!(after["warnings"][0]["key"], "dependencies");
    assert_eq!(of("tsk_new").get("warnings"), None);
}

#[test]
fn a_manifest_with_problems_is_told_their_places_and_changes_nothing() {
    let daemon = Daemon::running("");
    let mut report = String::new();
    for (what, text) in [
        (
            "unknown references",
            "
projects:
  prj: { working_directory: work, agents: [agt_nobody] }
tasks:
  tsk_1: { project: prj_nowhere, title: t }
  tsk_2: { project: prj, title: t, assignee: agt_nobody }
  tsk_3: { project: prj, title: t, parent: tsk_none, dependencies: [tsk_2, tsk_none] }
",
        ),
        (
            "cycles",
            "
projects: { prj: { working_directory: work } }
tasks:
  tsk_1: { project: prj, title: t, dependencies: [tsk_2] }
  tsk_2: { project: prj, title: t, dependencies: [tsk_1] }
  tsk_3: { project: prj, title: t, parent: tsk_3 }
",
        ),
        (
            "duplicate ids",
            "
agents:
  agt_a: {}
  agt_a: { name: again }
projects:
  prj: { working_directory: work }
  prj: { working_directory: work }
",
        ),
        (
            "an unassigned agent, and work that can't begin",
            "
agents: { agt_a: {} }
projects: { prj: { working_directory: work } }
tasks:
  tsk_1: { project: prj, title: t, assignee: agt_a }
  tsk_2: { project: prj, title: t, status: in_progress }
",
        ),
        (
            "shapes",
            "agents: { 'a b': {}, agt_a: { nam: x } }\nprojects: { prj: {} }\ntasks: { tsk: { title: 7, status: x } }\n",
        ),
    ] {
        daemon.write("manifest.yaml", text);
        let said = check_fails(&daemon, &["apply", "manifest.yaml"], 78, "manifest.yaml:");
        writeln!(report, "--- {what}\n{}", said.stderr).unwrap();
    }
    insta::assert_snapshot!("broken_manifests", report);
    for what in ["agent", "project", "task"] {
        assert_eq!(daemon.json(&[what, "list"]), serde_json::json!([]), "{what}");
    }
    check_fails(&daemon, &["apply", "none.yaml"], 78, "No such file or directory");
}

#[test]
fn a_state_directory_that_everybody_may_write_to_is_refused() {
    let mut daemon = Daemon::configured("");
    std::fs::create_dir(daemon.state()).unwrap();
    std::fs::set_permissions(daemon.state(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let (code, said) = daemon.refused();
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("(mode 0777)") && said.contains("chmod 700"), "{said}");
    assert_eq!(std::fs::read_dir(daemon.state()).unwrap().count(), 0);
    let said = daemon.cli(&["check"]);
    assert!(said.code == 78 && said.stderr.contains("(mode 0777)"), "{said:?}");
    std::fs::set_permissions(daemon.state(), std::fs::Permissions::from_mode(0o775)).unwrap();
    let said = daemon.cli(&["check"]);
    assert!(
        said.code == 0 && said.stdout.contains("warning: the group of the state directory"),
        "{said:?}"
    );
}

#[test]
fn a_sandbox_without_the_repository_of_clones_is_named() {
    let advice = "clones: projects with `workspace: clone` need two folders in the sandbox";
    for (wrap, is_named) in [
        (r#"[bwrap, --bind, "{working_directory}", "{working_directory}"]"#, true),
        (r#"[/usr/bin/bwrap, --ro-bind, /usr, /usr, --bind, "{workspace}", "{workspace}"]"#, true),
        (r#"[bwrap, --ro-bind, "{keep}", "{keep}", --bind, "{workspace}", "{workspace}"]"#, false),
        (r#"[bwrap, --ro-bind, /, /, --bind, "{workspace}", "{workspace}"]"#, false),
        ("[nice]", false),
    ] {
        let said =
            check(&format!("ai_providers: {{ tried: {{ cli_command: sh, wrap: {wrap} }} }}"), &[]);
        assert_eq!(said.stdout.contains(advice), is_named, "{wrap}: {}", said.stdout);
    }
}
