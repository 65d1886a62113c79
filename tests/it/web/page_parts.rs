//! Parts of the page as the server makes them, without a browser.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::daemon;
use crate::daemon::Daemon;
use crate::support::until;

#[test]
fn a_task_that_an_agent_has_just_begun_shows_its_work() {
    let daemon = daemon(&[]);
    daemon.agent(
        "agt",
        "prj",
        &["authenticate", "wait-for:go", "get-my-task", "wait-for:end", "report:success"],
    );
    let part = |language| daemon.page("/ui/parts/tasks/tsk", language);
    daemon.task("tsk", "prj", "agt");
    daemon.until_in_state("agt", "running");
    let launch = daemon.open("agt")[0]["launch_id"].as_str().unwrap().to_owned();
    let begun = part("en");
    assert!(!begun.contains("No agent has worked on this task yet"), "{begun}");
    let link = format!("class=\"link\" href=\"/ui/launches/{launch}\"");
    let running = "<span class=\"good\">Running</span> <span class=\"faint\">· <a ";
    assert!(begun.contains(&format!("{running}{link}")), "{begun}");
    fs::write(daemon.work().join("go"), "").unwrap();
    until("its execution is there", || {
        daemon.json(&["task", "show", "tsk"])["executions"].as_array().unwrap().len() == 1
    });
    let works = part("en");
    assert_eq!(works.matches(&link).count(), 1, "it is there once: {works}");
    // The moves of agents and of people are told, and which tasks wait for it.
    let after = ["--id", "after", "--title", "Ship it", "--depends-on", "tsk"];
    daemon.done(&[&["task", "add", "--project", "prj"], &after[..]].concat());
    fs::write(daemon.work().join("end"), "").unwrap();
    until("it is done", || daemon.task_status("tsk") == "done");
    daemon.done(&["task", "set", "tsk", "--status", "todo"]);
    let told = part("en");
    for text in [
        "<b dir=\"auto\">agt</b> moved it from In progress to Done",
        "</b> moved it from Done to To do",
        "</b> created it",
        "<dt>Needed by</dt>",
        "dir=\"auto\">Ship it</a>",
    ] {
        assert!(told.contains(text), "no `{text}` in {told}");
    }
    assert!(part("ja").contains("「進行中」から「完了」に変更"));
    let events = daemon.json(&["task", "history", "tsk"]);
    let done = events.as_array().unwrap().iter().find(|event| event["detail"] == "done").unwrap();
    assert_eq!(done["launch_id"], launch.as_str(), "{done}");
}

#[test]
fn a_program_that_no_launch_finds_is_named_where_an_agent_is_made() {
    let mut daemon = daemon(&[]);
    daemon.terminate();
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(".bun/bin");
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join("codex");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = daemon.command();
    command.env("HOME", home.path()).env("PATH", "/usr/bin:/bin");
    daemon.spawn_as(command);
    daemon.until_ready();
    let place = format!("it is at `{}`: ", program.display());
    for path in ["/ui/parts/first-run/programs", "/ui/parts/agents/kinds"] {
        for (language, sentence) in [
            ("en", "Agents of the kind codex cannot start:"),
            ("ja", "種類「codex」のエージェントは、まだ起動できません。"),
        ] {
            let part = daemon.page(path, language);
            assert!(part.contains(sentence) && part.contains(&place), "{path}: {part}");
        }
    }
    // Another machine may start such agents.
    let socket = format!("unix:{}", daemon.state().join("mcp.sock").display());
    let settings = "agents: { agt: { passkey: a-passkey } }";
    let mut coordinator = Daemon::supervising(&socket, settings);
    coordinator.start();
    for path in ["/ui/parts/first-run/programs", "/ui/parts/agents/kinds"] {
        until("nothing is said about this machine", || {
            let part = daemon.page(path, "en");
            !part.contains(&place) && !part.contains("No agent CLI was found")
        });
    }
}

/// Returns the tasks of the cards in a part of the page.
fn cards(part: &str) -> BTreeSet<String> {
    let ids = part.split(" data-task=\"").skip(1);
    ids.map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
}

/// Returns the address of the next cards of a column.
fn more(part: &str, status: &str) -> Option<String> {
    let address = format!("/ui/parts/projects/prj/column/{status}?");
    let (_, rest) = part.split_once(&address)?;
    Some(format!("{address}{}", rest.split('"').next().unwrap()))
}

#[test]
fn more_cards_go_on_after_the_last_one_also_if_others_have_gone() {
    let daemon = daemon(&[]);
    let names: Vec<String> = (0..45).map(|n| format!("tsk_{n:02}")).collect();
    let entry = |name: &String| format!("  {name}: {{ project: prj, title: t, status: todo }}");
    let entries: Vec<String> = names.iter().map(entry).collect();
    let manifest = format!("tasks:\n{}\n", entries.join("\n"));
    fs::write(daemon.folder().join("many.yaml"), manifest).unwrap();
    daemon.done(&["apply", "many.yaml"]);
    let board = daemon.page("/ui/parts/projects/prj/board", "en");
    let first = cards(&board);
    assert_eq!(first.len(), 30);
    let next = more(&board, "todo").unwrap();
    // Cards that are shown leave the column, the last one among them.
    let last = next.split("after=").nth(1).unwrap();
    let last = names.iter().find(|name| last.ends_with(name.as_str())).unwrap();
    for gone in first.iter().take(5).chain([last]) {
        daemon.done(&["task", "set", gone, "--status", "cancelled"]);
    }
    let rest = cards(&daemon.page(&next, "en"));
    assert_eq!(rest.len(), 15, "{rest:?}");
    assert!(rest.is_disjoint(&first), "each card comes once");
    assert_eq!(more(&daemon.page(&next, "en"), "todo"), None);
}

/// Returns the text of an element of the page, which begins with `start`.
fn text_after<'a>(page: &'a str, start: &str) -> &'a str {
    let (_, rest) = page.split_once(start).unwrap_or_else(|| panic!("no {start}: {page}"));
    rest.split("</div>").next().unwrap()
}

fn with_a_mistake() -> Daemon {
    let daemon = daemon(&[]);
    let settings = "http: { listen: \"127.0.0.1:0\" }\nnot_a_setting: 1";
    daemon.configure(settings);
    daemon.cli(&["reload"]);
    daemon
}

#[test]
fn a_japanese_inbox_keeps_an_english_error_apart_from_its_sentence() {
    let daemon = with_a_mistake();
    let entries = daemon.json(&["inbox", "--kind", "configuration"]);
    let id = entries[0]["id"].as_str().unwrap();
    let page = daemon.page(&format!("/ui/inbox?item={id}"), "ja");
    let list = text_after(&page, "class=\"items walks\"");
    assert!(list.contains("前の設定のまま動作しています"), "{list}");
    assert!(!list.contains("not_a_setting"), "{list}");
    assert!(page.contains("<summary>原文（英語）</summary>"), "{page}");
    assert!(page.contains("lang=\"en\"") && page.contains("not_a_setting"), "{page}");
    assert!(page.contains("<code>agent-coordinator reload</code>"), "{page}");
    let english = daemon.page(&format!("/ui/inbox?item={id}"), "en");
    assert!(text_after(&english, "class=\"items walks\"").contains("not_a_setting"), "{english}");
    assert!(!english.contains("<summary>Error"), "the sentence has it");
}

#[test]
fn the_choices_of_a_relation_leave_out_what_the_server_would_refuse() {
    let daemon = daemon(&[]);
    let entries = [
        "top: {",
        "mid: { parent: top,",
        "leaf: { parent: mid, dependencies: [needed],",
        "waiter: { dependencies: [top],",
        "needed: {",
        "free: {",
    ];
    let entries = entries.map(|entry| format!("  {entry} project: prj, title: t, status: todo }}"));
    let manifest = format!("tasks:\n{}\n", entries.join("\n"));
    fs::write(daemon.folder().join("kin.yaml"), manifest).unwrap();
    daemon.done(&["apply", "kin.yaml"]);
    let offered = |property: &str, q: &str| {
        let part = daemon.page(&format!("/ui/parts/tasks/mid/choices/{property}?q={q}"), "en");
        let before = format!("name=\"{property}\" value=\"");
        let values = part.split(&before).skip(1);
        values.map(|rest| rest.split('"').next().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    for q in ["", "t"] {
        let parents =
            ["", "top", "waiter", "free"].into_iter().filter(|id| q.is_empty() || !id.is_empty());
        assert_eq!(offered("parent", q), parents.map(str::to_owned).collect(), "{q}");
        assert_eq!(offered("dependencies", q), ["free", "needed"].map(str::to_owned).into(), "{q}");
    }
}

#[test]
fn a_task_of_an_archived_project_leads_to_the_project() {
    let daemon = daemon(&["agt", "gone"]);
    daemon.done(&["agent", "archive", "gone"]);
    daemon.done(&["project", "archive", "prj"]);
    daemon.task("tsk", "prj", "agt");
    let page = daemon.page("/ui/tasks/tsk", "en");
    assert!(page.contains("prj is archived"), "{page}");
    assert!(page.contains("class=\"act\" href=\"/ui/projects/prj\""), "{page}");
    daemon.task("late", "prj", "gone");
    let page = daemon.page("/ui/tasks/late", "ja");
    assert!(page.contains("gone はアーカイブ済み"), "{page}");
    assert!(page.contains("class=\"act\" href=\"/ui/agents/gone\""), "{page}");
}
