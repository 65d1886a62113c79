//! Whole manifests, good and bad.

use std::path::PathBuf;

use domain::Secret;

use super::*;

fn environment() -> Environment {
    Environment::new("/work", [("HOME", "/home/me"), ("DEV_PASSKEY", "hunter2")])
}

fn try_parse(text: &str) -> Result<Manifest, String> {
    parse(&Source::new("manifest.yaml", "/plans", text), &environment())
        .map_err(|report| report.to_string())
}

#[track_caller]
fn report(text: &str) -> String {
    let report = try_parse(text).expect_err("a manifest with problems");
    assert!(!report.contains("hunter2"), "{report}");
    report
}

/// A complete example, in which a `[]` means that there is nothing to wait for.
const CONTRACT: &str = r#"
agents:
  agt_developer: { name: frontend-dev, ai_type: claude, system_prompt: "be ${KIND}", passkey: "${DEV_PASSKEY}" }
projects:
  prj_frontend: { name: Frontend App, working_directory: /projects/frontend, agents: [agt_developer] }
tasks:
  tsk_login: { project: prj_frontend, title: Login page, description: "…", assignee: agt_developer, status: in_progress }
  tsk_form:  { project: prj_frontend, parent: tsk_login, title: Form, assignee: agt_developer, status: todo, dependencies: [] }
"#;

#[test]
fn the_workspaces_of_a_project_are_a_mode_or_a_mapping() {
    let read = |workspace: &str| {
        let text =
            format!("projects: {{ prj: {{ working_directory: /a, workspace: {workspace} }} }}");
        try_parse(&text).map(|manifest| {
            let project = manifest.wanted.projects.into_iter().next().unwrap();
            let texts = [project.workspace_base, project.workspace_branch, project.merge_hooks];
            (project.workspace, texts)
        })
    };
    let mode = Some(WorkspaceMode::Clone);
    let short = (mode, [None, None, None]);
    assert_eq!(read("clone").as_ref(), Ok(&short));
    assert_eq!(read("{ mode: clone }"), Ok(short));
    let long = (mode, ["develop", "w/{task_id}", "off"].map(|text| Some(text.to_owned())));
    let all = "{ mode: clone, base: develop, branch: \"w/{task_id}\", merge_hooks: off }";
    assert_eq!(read(all), Ok(long));
    for (bad, problem) in [
        ("worktree", "expected `shared` or `clone`"),
        ("{ mode: worktree }", "expected `shared` or `clone`"),
        ("{ base: \"-x\" }", "workspace.base` is not valid"),
        ("{ base: [a] }", "expected a text"),
        ("{ merge_hooks: run }", "only the configuration file can say `run`"),
        ("{ branch: agents/x }", "two tasks would have one branch"),
        ("{ brunch: x }", "did you mean `branch`?"),
    ] {
        let report = read(bad).expect_err(bad);
        assert!(report.contains(problem), "{bad}: {report}");
    }
}

#[test]
fn the_contracts_manifest_is_read() {
    let manifest = try_parse(CONTRACT).expect("a valid manifest").wanted;
    let [agent] = manifest.agents.as_slice() else { panic!("one agent") };
    assert_eq!((agent.id.as_str(), agent.name.as_str()), ("agt_developer", "frontend-dev"));
    assert_eq!(agent.passkey.as_ref().map(Secret::reveal), Some("hunter2"));
    assert_eq!(agent.system_prompt, "be ${KIND}", "prose is taken as it is");
    let [project] = manifest.projects.as_slice() else { panic!("one project") };
    assert_eq!(project.working_directory, PathBuf::from("/projects/frontend"));
    assert_eq!(project.agents[0], agent.id);
    let [login, form] = manifest.tasks.as_slice() else { panic!("two tasks") };
    assert_eq!((login.status, login.priority), (TaskStatus::InProgress, Priority::Medium));
    assert_eq!(form.parent.as_ref(), Some(&login.id));
}

#[test]
fn what_is_left_out_has_a_default() {
    let manifest = try_parse(
        "agents: { a: }\nprojects: { p: { working_directory: apps/p } }\ntasks: { t: { project: p, title: T } }\n",
    )
    .expect("a valid manifest")
    .wanted;
    let (agent, project, task) = (&manifest.agents[0], &manifest.projects[0], &manifest.tasks[0]);
    assert_eq!(
        (agent.name.as_str(), agent.ai_type.as_str(), agent.status),
        ("a", "claude", AgentStatus::Active)
    );
    assert_eq!((project.name.as_str(), project.status), ("p", ProjectStatus::Active));
    assert_eq!(project.working_directory, PathBuf::from("/plans/apps/p"));
    assert_eq!(
        (task.status, task.priority, task.description.as_str()),
        (TaskStatus::Todo, Priority::Medium, "")
    );
    assert!(try_parse("").expect("an empty manifest").wanted.tasks.is_empty());
}

#[test]
fn one_report_names_every_problem() {
    insta::assert_snapshot!(report(
        r"agents:
  agt_a: { ai_typ: claude, status: asleep, passkey: hunter2 }
  agt_a: { name: twin }
  -bad: {}
projects:
  prj_a: { agents: agt_a }
tasks:
  tsk_1: { project: prj_a, title: One, parent: tsk_3 }
  tsk_2: { project: prj_a, title: Two, parent: tsk_1, priority: hihg }
  tsk_3: { project: prj_a, title: Three, parent: tsk_2, dependencies: [tsk_3, 'a b', [x]] }
  tsk_4: { title: [Four], status: doing, assignee: ${NOPE}
  }
"
        .replace("${NOPE}", "'${NOPE}'")
        .as_str()
    ));
}

#[test]
fn only_secrets_are_hidden_whatever_the_ids_of_projects_and_tasks_are() {
    let entry = "{ name: Shown, status: asleep, passkey: hunter2 }";
    for section in ["projects", "tasks"] {
        for id in ["agents", "environment", "passkey"] {
            let shown = report(&format!("{section}:\n  {id}: {entry}\n"));
            assert!(shown.contains("{ name: Shown, status: asleep, passkey: ******* }"), "{shown}");
        }
    }
    for hidden in ["agents: { a: hunter2 }", "agents: { environment: { API: hunter2 } }"] {
        report(&format!("{hidden}\nprojects: nothing\n"));
    }
    report("projects: { p: { environment: { API: hunter2 }, agents: { a: hunter2 } } }");
}

#[test]
fn a_reference_out_of_the_file_is_left_to_whoever_knows_the_store() {
    let text = "tasks:\n  tsk_1:\n    project: prj_elsewhere\n    title: One\n    dependencies: [tsk_old]\n";
    let manifest = try_parse(text).expect("a valid manifest");
    let place = |field| manifest.locate("tasks", "tsk_1", field);
    let report = manifest.report([
        (place(Some(("dependencies", Some(0)))), "task `tsk_old` does not exist".to_owned()),
        (place(Some(("project", None))), "project `prj_elsewhere` does not exist".to_owned()),
    ]);
    insta::assert_snapshot!(report.to_string());
    let one = manifest.problem_at(place(None), "no such thing").to_string();
    assert!(one.contains("manifest.yaml:2:3: no such thing"), "{one}");
}

#[test]
fn long_chains_and_many_circles_are_no_burden() {
    use std::fmt::Write;
    let tasks = |parent: fn(usize) -> usize| {
        (0..4_000).fold("tasks:\n".to_owned(), |mut text, i| {
            let _ = writeln!(text, "  t{i}: {{project: p, title: T, parent: t{}}}", parent(i));
            text
        })
    };
    assert!(try_parse(&tasks(|i| i + 1)).is_ok(), "a chain that ends outside");
    assert!(report(&tasks(|i| i)).contains("20 problems"), "each its own parent");
    assert!(report(&tasks(|i| (i + 1) % 4_000)).len() < 10_000, "one great circle");
}
