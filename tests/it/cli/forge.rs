//! `forge check`: its output about hosts with and without problems.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use domain::forge::ForgeKind::{GitHub, GitLab};
use serde_json::Value;

use crate::daemon::{Daemon, Said};
use crate::forge::fake::{Fake, Fault, TOKEN, Times};

fn check(fake: &Fake, settings: &str, arguments: &[&str]) -> Said {
    let daemon = Daemon::configured("");
    daemon.write("coordinator_config.yaml", settings);
    daemon.write("token", format!("{TOKEN}\n"));
    let for_all = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(daemon.folder().join("token"), for_all).unwrap();
    let folder = daemon.config().parent().unwrap().to_owned();
    let output = daemon.command().args(["forge", "check"]).args(arguments).output().unwrap();
    let port = fake.github_url();
    let plain = |bytes| {
        let text = String::from_utf8(bytes).unwrap().replace(folder.to_str().unwrap(), "[folder]");
        assert!(!text.contains(TOKEN), "{text}");
        let text = text.replace(port.strip_prefix("http://").unwrap(), "[fake]");
        // The width of the columns depends on the port.
        let line = |line: &str| {
            let cells = line.split("  ").filter(|cell| !cell.is_empty()).map(str::trim);
            cells.collect::<Vec<_>>().join(" | ")
        };
        if arguments.contains(&"--json") {
            text
        } else {
            text.lines().map(line).collect::<Vec<_>>().join("\n")
        }
    };
    Said {
        code: output.status.code().unwrap(),
        stdout: plain(output.stdout),
        stderr: plain(output.stderr),
    }
}

/// Returns the configuration of both forges, with one repository each.
fn both(fake: &Fake) -> String {
    let (github, gitlab) = (fake.enterprise_url(), fake.gitlab_url());
    format!(
        "forge: {{ write_interval: 0s }}\n\
         github: {{ base_url: \"{github}\", token: {TOKEN}, bot_name: robot, \
         repositories: {{ ann/site: {{ project_id: p, agent: a }} }} }}\n\
         gitlab: {{ base_url: \"{gitlab}\", token: {TOKEN}, bot_name: Robot, \
         projects: {{ ann/site: {{ project_id: p, agent: a }} }} }}\n"
    )
}

#[test]
fn labels_that_are_missing_are_told_and_created_on_request() {
    let fake = Fake::start();
    let repositories = [GitHub, GitLab].map(|forge| fake.repository(forge, "ann/site"));
    for repository in &repositories {
        repository.add_member("robot");
        repository.create_label("Coding Agent");
    }
    let said = check(&fake, &both(&fake), &[]);
    assert_eq!(said.code, 1);
    insta::assert_snapshot!("labels_missing", said.stdout);
    let said = check(&fake, &both(&fake), &["--create-labels"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{}", said.stdout);
    insta::assert_snapshot!("labels_created", said.stdout);
    for repository in &repositories {
        assert_eq!(repository.labels().len(), 7);
    }
    fake.forget_requests();
    let said = check(&fake, &both(&fake), &["--json"]);
    let answer: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(
        (said.code, &answer["is_good"], &answer["hosts"][1]["token_of"]),
        (0, &true.into(), &"robot".into())
    );
    assert!(fake.requests().iter().all(|request| request.method == "GET"), "it only looks");
}

#[test]
fn each_problem_is_told_with_what_to_do() {
    let fake = Fake::start();
    let (archived, foreign) =
        (fake.repository(GitHub, "ann/archived"), fake.repository(GitHub, "ann/foreign"));
    archived.add_member("robot");
    archived.archive();
    foreign.forbid_triage();
    fake.fail("GET /api/v4/user", Times::Always, Fault::status(503).saying("down for maintenance"));
    let (github, gitlab) = (fake.github_url(), fake.gitlab_url());
    let in_github = format!("base_url: \"{github}\", bot_name: robot");
    let said = check(
        &fake,
        &format!(
            "github:\n- {{ {in_github}, token_file: token, repositories: {{ ann/archived: {{ project_id: p, agent: a }}, \
             ann/foreign: {{ project_id: p, agent: a }}, ann/none: {{ project_id: p, agent: a }} }} }}\n\
             - {{ {in_github}, token: wrong }}\n\
             - {{ {in_github}, token_file: nowhere }}\n\
             - {{ base_url: \"{github}\", bot_name: nobody, token: {TOKEN} }}\n\
             gitlab: {{ base_url: \"{gitlab}\", token: {TOKEN}, bot_name: robot, projects: {{ 1: {{ project_id: p, agent: a }} }} }}\n"
        ),
        &[],
    );
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("there are problems at the forges"), "{}", said.stderr);
    insta::assert_snapshot!("problems", said.stdout);
}

#[test]
fn a_host_that_hangs_is_named_and_delays_no_other() {
    let fake = Fake::start();
    let repository = fake.repository(GitLab, "ann/site");
    repository.add_member("robot");
    fake.fail("GET /user", Times::Always, Fault::Hang);
    let daemon = Daemon::configured("");
    daemon.write("coordinator_config.yaml", both(&fake));
    let mut command = daemon.command();
    command
        .args(["forge", "check", "--create-labels"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut checking = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(checking.stderr.take().unwrap()).read_line(&mut line).unwrap();
    checking.kill().unwrap();
    checking.wait().unwrap();
    let host = fake.enterprise_url().replace("http://", "");
    assert_eq!(line, format!("waiting for {host}\n"));
    assert_eq!(repository.labels().len(), 7);
}

#[test]
fn without_hosts_there_is_nothing_to_check() {
    let said = check(&Fake::start(), "", &[]);
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (0, "no hosts are configured: docs/forges.md says how to begin")
    );
}
