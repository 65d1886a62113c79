//! Files as agents and people may have left them.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use domain::chat::Sender;

fn agent() -> AgentId {
    "agt_a".parse().unwrap()
}

#[track_caller]
fn opened(directory: &Path) -> ChatLog {
    ChatLog::open(directory, &agent(), &FileOwner::Daemon)
        .unwrap()
        .expect("there is a working directory")
}

/// Returns all lines of a file with this content, the last one first.
fn lines(content: &[u8], longest: usize) -> Vec<(u64, Option<String>)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, content).unwrap();
    let file = File::open(path).unwrap();
    let mut lines = LinesFromEnd::new(&file, 0..content.len() as u64, longest);
    let mut found = Vec::new();
    while let Some(LineFromEnd { length, text }) = lines.next().unwrap() {
        found.push((length, text.map(|text| String::from_utf8(text).unwrap())));
    }
    found
}

#[test]
fn lines_are_read_from_the_end_across_pieces() {
    let long = "x".repeat(3 * CHUNK);
    let line = |text: &str| (text.len() as u64, Some(text.to_owned()));
    assert_eq!(lines(b"", 9), [line("")]);
    assert_eq!(lines(b"one\n\ntwo\n", 9), [line(""), line("two"), line(""), line("one")]);
    assert_eq!(lines(b"one\ntorn", 9), [line("torn"), line("one")]);
    let content = format!("one\n{long}\ntwo");
    assert_eq!(lines(content.as_bytes(), 9), [line("two"), (long.len() as u64, None), line("one")]);
    assert_eq!(lines(content.as_bytes(), long.len()), [line("two"), line(&long), line("one")]);
}

#[test]
fn a_path_is_resolved_as_far_as_it_exists() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    fs::create_dir(folder.join("real")).unwrap();
    symlink("real", folder.join("link")).unwrap();
    symlink("nowhere", folder.join("dangling")).unwrap();
    for (given, expected) in
        [("link", "real"), ("link/a/b", "real/a/b"), ("dangling", "dangling"), ("real", "real")]
    {
        assert_eq!(resolve(&folder.join(given)), folder.join(expected));
    }
}

#[test]
fn a_link_in_the_place_of_a_resolved_directory_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let work = folder.join("above/work");
    let elsewhere = folder.join("elsewhere");
    fs::create_dir_all(elsewhere.join("work")).unwrap();
    for link in [work.clone(), folder.join("above")] {
        let _ = fs::remove_dir_all(folder.join("above"));
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(&elsewhere, &link).unwrap();
        let error = ChatLog::open(&work, &agent(), &FileOwner::Daemon).unwrap_err();
        assert!(matches!(error, ChatLogError::Moved { .. }), "{error}");
        fs::remove_file(link).unwrap();
    }
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
    assert_eq!(fs::read_dir(elsewhere.join("work")).unwrap().count(), 0);
    assert!(
        ChatLog::open(&work, &agent(), &FileOwner::Daemon).unwrap().is_none(),
        "there is no working directory"
    );
}

fn message(n: i64) -> Message {
    Message {
        id: format!("msg_{n}").parse().unwrap(),
        seq: n,
        project: "prj".parse().unwrap(),
        agent: agent(),
        sender: Sender::User,
        author: None,
        content: format!("message {n}"),
        is_visible: true,
        created_at: Timestamp::from_millis(n),
    }
}

#[test]
fn a_huge_file_is_read_from_its_end_and_not_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().canonicalize().unwrap();
    let messages: Vec<Message> = (1..=3).map(message).collect();
    opened(&directory).append(&messages[..2]).unwrap();
    let path = ChatLog::path(&directory, &agent());
    // Far more than there is memory, and than could be read in the time of a test.
    fs::File::options().write(true).open(&path).unwrap().set_len(1 << 42).unwrap();
    opened(&directory).repair(&messages).unwrap();
    let length = fs::metadata(&path).unwrap().len();
    // Lines before the hole count as missing and are written again. The next repair finds them at
    // the end.
    opened(&directory).repair(&messages).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), length);
    let file = opened(&directory).file;
    let mut lines = LinesFromEnd::new(&file, 0..length, 1_000);
    let ids: Vec<String> = std::iter::from_fn(|| lines.next().unwrap())
        .skip(1)
        .take(3)
        .map(|line| serde_json::from_slice::<LineId>(&line.text.unwrap()).unwrap().id)
        .collect();
    assert_eq!(ids, ["msg_3", "msg_2", "msg_1"]);
}
