use super::*;
use crate::export::MAX_LINE;
use crate::export::lines::LineSplitter;

const HEADER: &str = concat!(
    r#"{"kind":"header","format":"agent-coordinator-export","version":1"#,
    r#","program":"0.1.0","exported_at":"2026-01-06T10:00:00Z"}"#,
);
const AGENT: &str = concat!(
    r#"{"kind":"agent","id":"agt","name":"Ann","ai_type":"claude","system_prompt":"""#,
    r#","status":"active","created_at":"2026-01-06T10:00:00Z"}"#,
);
const PROJECT: &str = concat!(
    r#"{"kind":"project","id":"prj","name":"Shop","key":"SHOP","next_number":3"#,
    r#","working_directory":"/work","status":"active","workspace":"shared""#,
    r#","created_at":"2026-01-06T10:00:00Z","agents":["agt"]}"#,
);
const TASK: &str = concat!(
    r#"{"kind":"task","id":"tsk","project":"prj","number":1,"title":"a title""#,
    r#","description":"","status":"todo","priority":"medium""#,
    r#","created_at":"2026-01-06T10:00:00Z","status_since":"2026-01-06T10:00:00Z"}"#,
);
const MESSAGE: &str = concat!(
    r#"{"kind":"message","id":"msg","project":"prj","agent":"agt","sender":"user""#,
    r#","content":"hello","created_at":"2026-01-06T10:00:00Z"}"#,
);
const END: &str = r#"{"kind":"end","agents":1,"projects":1,"tasks":1,"messages":1}"#;

fn read_bytes(bytes: &[u8]) -> Result<ExportFile, Problems> {
    let mut splitter = LineSplitter::default();
    let mut reader = FileReader::default();
    if let Err(too_long) = splitter.push(bytes, |n, line| reader.take(n, line)) {
        reader.stop(too_long);
    }
    let n_lines = splitter.finish(|n, line| reader.take(n, line));
    reader.finish(n_lines)
}

fn read(lines: &[&str]) -> Result<ExportFile, Problems> {
    read_bytes(lines.join("\n").as_bytes())
}

/// Checks that a file with one line in place of another is refused at the place of that line.
#[track_caller]
fn check_refused(line: &str, by: &str, expected: &str) {
    let lines = [HEADER, AGENT, PROJECT, TASK, MESSAGE, END];
    let at = lines.iter().position(|found| *found == line).unwrap() + 1;
    let text = lines.map(|found| if found == line { by } else { found }).join("\n");
    let problems = read_bytes(text.as_bytes()).unwrap_err();
    let told: Vec<_> = problems.told.iter().filter(|problem| problem.line == at).collect();
    assert!(told.iter().any(|problem| problem.message.contains(expected)), "{problems:?}");
}

#[test]
fn a_whole_file_is_read_with_its_lines() {
    let file = read(&[HEADER, "", AGENT, PROJECT, TASK, MESSAGE, END, ""]).unwrap();
    assert_eq!((file.agents[0].line, file.messages[0].line), (3, 6));
    let project = &file.projects[0].object;
    assert_eq!((project.project.key.as_str(), project.next_number), ("SHOP", 3));
    assert_eq!(file.tasks[0].object.short_id.number, 1);
    // The objects may come in any order.
    assert!(read(&[HEADER, MESSAGE, TASK, PROJECT, AGENT, END]).is_ok());
}

#[test]
fn what_was_archived_knows_its_former_status() {
    let archived = r#""status":"archived","archived_from":"inactive""#;
    let line = |line: &str| line.replace(r#""status":"active""#, archived);
    let file = read(&[HEADER, &line(AGENT), &line(PROJECT), TASK, MESSAGE, END]).unwrap();
    assert_eq!(file.agents[0].object.archived_from, Some(AgentStatus::Inactive));
    assert_eq!(file.projects[0].object.project.archived_from, Some(ProjectStatus::Inactive));
    // A file of an earlier version does not have it.
    let earlier = AGENT.replace(r#""status":"active""#, r#""status":"archived""#);
    let file = read(&[HEADER, &earlier, PROJECT, TASK, MESSAGE, END]).unwrap();
    assert_eq!(file.agents[0].object.archived_from, Some(AgentStatus::Active));
}

#[test]
fn lines_that_are_not_objects_are_refused_with_their_number() {
    check_refused(AGENT, "[1]", "expected a JSON object");
    check_refused(AGENT, "agents: {}", "expected a JSON object");
    check_refused(AGENT, &AGENT[..40], "the line is cut off");
    check_refused(AGENT, r#"{"kind":"launch"}"#, "unknown variant `launch`, expected one of");
    check_refused(AGENT, r#"{"id":"agt"}"#, "missing field `kind`");
    check_refused(TASK, &TASK.replace("title\":", "titel\":"), "unknown field `titel`");
    check_refused(TASK, &TASK.replace("\"todo\"", "\"doing\""), "doing");
    check_refused(TASK, &TASK.replace("\"number\":1", "\"number\":0"), "1 to 1000000000");
    check_refused(TASK, &TASK.replace("\"number\":1", "\"number\":4294967295"), "is expected");
    check_refused(AGENT, HEADER, "a second header");
    check_refused(AGENT, END, "lines are missing");
    let deep = format!("{{\"kind\":\"task\",\"id\":{}", "[".repeat(100_000));
    check_refused(TASK, &deep, "recursion limit");
    let unknown = format!(r#"{{"kind":"{}"}}"#, "x".repeat(100_000));
    let problems = read(&[HEADER, &unknown, END]).unwrap_err();
    assert!(problems.told[0].message.len() < 400, "{}", problems.told[0].message.len());
}

#[test]
fn texts_have_the_limits_of_rest() {
    let long = AGENT.replace("Ann", &"x".repeat(201));
    check_refused(AGENT, &long, "agent `agt`: `name` is 201 characters long");
    check_refused(AGENT, &AGENT.replace("Ann", "\\u001b[31m"), "control character");
    check_refused(AGENT, &AGENT.replace("\"agt\"", "\"../x\""), "not a valid agent id");
    check_refused(PROJECT, &PROJECT.replace("/work", "work"), "must be an absolute path");
    check_refused(PROJECT, &PROJECT.replace("SHOP", "S-P"), "not a valid project key");
    check_refused(PROJECT, &PROJECT.replace(":3", ":0"), "`next_number` is 0");
    check_refused(TASK, &TASK.replace("a title", " "), "task `tsk`: a task needs a title");
    check_refused(MESSAGE, &MESSAGE.replace("hello", " "), "message `msg`: content is empty");
    let cleaned = TASK.replace("a title", "a \\u202etitle");
    let file = read(&[HEADER, AGENT, PROJECT, &cleaned, MESSAGE, END]).unwrap();
    assert_eq!(file.tasks[0].object.title, "a title");
}

#[test]
fn nothing_is_in_a_file_twice() {
    check_refused(MESSAGE, AGENT, "agent `agt` is in line 2 already");
    check_refused(MESSAGE, TASK, "task `tsk` is in line 4 already");
    check_refused(MESSAGE, &TASK.replace("\"tsk\"", "\"tsk_2\""), "the task in line 4");
    let same_key = PROJECT.replace("\"prj\"", "\"prj_2\"");
    check_refused(MESSAGE, &same_key, "key `SHOP` is in line 3 already");
    let former = same_key.replace("\"SHOP\"", "\"NEW\",\"former_keys\":[\"shop\"]");
    check_refused(MESSAGE, &former, "key `SHOP` is in line 3 already");
}

#[test]
fn files_of_other_kinds_and_versions_are_named() {
    for (start, expected) in [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        ("PGDMP", "not an export"),
        ("[]", "not an export"),
        (r#"{"kind":"header","format":"other","version":1}"#, "not an export"),
        (AGENT, "not an export"),
    ] {
        let problems = read(&[start]).unwrap_err();
        assert!(problems.told[0].message.contains(expected), "{start}: {problems:?}");
    }
    let newer = HEADER.replace("\"version\":1", "\"version\":2,\"more\":true");
    check_refused(HEADER, &newer, "it was written by a newer version");
    check_refused(HEADER, &HEADER.replace("\"version\":1", "\"version\":0"), "version 1");
    let backup = read_bytes(b"SQLite format 3\0\x10\x00\x02\xff").unwrap_err();
    assert!(backup.told[0].message.contains("`agent-coordinator restore`"), "{backup:?}");
}

#[test]
fn a_file_that_was_cut_off_or_put_together_is_noticed() {
    let problems = read(&[HEADER, AGENT, PROJECT]).unwrap_err();
    assert_eq!(problems.told[0].line, 3);
    assert!(problems.told[0].message.contains("it was cut off"), "{problems:?}");
    let problems = read(&[HEADER, AGENT, PROJECT, TASK, MESSAGE, END, HEADER]).unwrap_err();
    assert_eq!((problems.told.len(), problems.told[0].line), (1, 7));
    let problems = read(&[HEADER, PROJECT, TASK, MESSAGE, END]).unwrap_err();
    assert!(problems.told[0].message.contains("expected 1 project, 1 agent"), "{problems:?}");
}

#[test]
fn bytes_that_are_not_utf_8_and_endless_lines_are_refused() {
    let mut bytes = format!("{HEADER}\n{{\"kind\":\"agent\",\"id\":\"").into_bytes();
    bytes.push(0xff);
    let problems = read_bytes(&bytes).unwrap_err();
    assert_eq!(problems.told[0].line, 2);
    assert!(problems.told[0].message.contains("byte 23 is not UTF-8"), "{problems:?}");
    let long = "x".repeat(MAX_LINE + 1);
    let problems = read(&[HEADER, &long]).unwrap_err();
    assert_eq!((problems.told.len(), problems.told[0].line), (1, 2));
    assert!(problems.told[0].message.contains("longer than 4 MiB"), "{problems:?}");
}

#[test]
fn a_list_of_very_many_dependencies_takes_no_time() {
    let ids: Vec<String> = (0..100_000).map(|n| format!("\"t{n}\"")).collect();
    let many = format!("\"priority\":\"low\",\"dependencies\":[{0},{0}]", ids.join(","));
    let task = TASK.replace("\"priority\":\"medium\"", &many);
    let file = read(&[HEADER, AGENT, PROJECT, &task, MESSAGE, END]).unwrap();
    assert_eq!(file.tasks[0].object.dependencies.len(), 100_000);
}
