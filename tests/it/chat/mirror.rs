//! `chat.jsonl`: the store has the authoritative messages, and the file follows it as far as it
//! can.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, RenameFlags};
use serde_json::{Value, json};

use super::{asked, quiet, say};
use crate::daemon::Daemon;
use crate::support::until;

fn file(daemon: &Daemon) -> PathBuf {
    daemon.work().join(".ai-pm/agents/agt_a/chat.jsonl")
}

/// Returns the contents of its lines. Other and incomplete lines are returned unchanged.
fn contents(daemon: &Daemon) -> Vec<String> {
    let text = fs::read_to_string(file(daemon)).unwrap_or_default();
    let of_line = |line: &str| {
        let found: Value = serde_json::from_str(line).unwrap_or_default();
        found["content"]
            .as_str()
            .filter(|_| line.ends_with('\n'))
            .unwrap_or(line.trim_end())
            .to_owned()
    };
    text.split_inclusive('\n').map(of_line).collect()
}

#[track_caller]
fn until_mirrored(daemon: &Daemon, expected: &[&str]) {
    until(&format!("the file says {expected:?}"), || contents(daemon) == expected);
}

#[test]
fn only_its_user_reads_it() {
    let daemon = quiet("");
    say(&daemon, "one");
    until_mirrored(&daemon, &["one"]);
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(file(&daemon)), mode(daemon.work().join(".ai-pm/agents/agt_a"))),
        (0o600, 0o700)
    );
}

#[test]
fn it_does_not_get_into_commits() {
    let daemon = quiet("");
    say(&daemon, "one");
    until_mirrored(&daemon, &["one"]);
    let ignore = daemon.work().join(".ai-pm/.gitignore");
    assert_eq!(fs::read_to_string(&ignore).unwrap(), "*\n");
    let git = |arguments: &[&str]| {
        let git = Command::new("git").args(arguments).current_dir(daemon.work()).output().unwrap();
        String::from_utf8(git.stdout).unwrap()
    };
    git(&["init", "--quiet"]);
    assert!(!git(&["status", "--porcelain", "--untracked-files=all"]).contains(".ai-pm"));
}

#[test]
fn what_is_missing_or_torn_is_mended_at_the_start_and_what_people_added_stays() {
    let mut daemon = quiet("");
    for content in ["one", "two", "three"] {
        say(&daemon, content);
    }
    until_mirrored(&daemon, &["one", "two", "three"]);
    daemon.kill();
    let text = fs::read_to_string(file(&daemon)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    // The daemon died while it wrote the third line, after a line of a person.
    fs::write(file(&daemon), format!("{}\n# a note\n{}\n{}", lines[0], lines[1], &lines[2][..20]))
        .unwrap();
    daemon.start();
    until_mirrored(&daemon, &["one", "# a note", "two", "three"]);
    daemon.kill();
    // Only the line end is missing, and a person's last line has none.
    fs::write(file(&daemon), format!("{}\n{}\nmine", lines[0], lines[1])).unwrap();
    daemon.start();
    until_mirrored(&daemon, &["one", "two", "mine", "three"]);
    // This happens while the daemon runs.
    OpenOptions::new().append(true).open(file(&daemon)).unwrap().write_all(b"another").unwrap();
    say(&daemon, "four");
    until_mirrored(&daemon, &["one", "two", "mine", "three", "another", "four"]);
    fs::remove_dir_all(daemon.work().join(".ai-pm")).unwrap();
    say(&daemon, "five");
    until_mirrored(&daemon, &["one", "two", "three", "four", "five"]);
}

#[test]
fn a_working_directory_is_never_made() {
    let daemon = quiet("");
    fs::remove_dir_all(daemon.work()).unwrap();
    say(&daemon, "one");
    say(&daemon, "two");
    assert!(!daemon.work().exists());
    fs::create_dir(daemon.work()).unwrap();
    say(&daemon, "three");
    until_mirrored(&daemon, &["one", "two", "three"]);
}

#[test]
fn no_link_leads_it_out_of_the_working_directory() {
    let daemon = quiet("");
    let elsewhere = daemon.folder().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, daemon.work().join(".ai-pm")).unwrap();
    say(&daemon, "one");
    let warning = "could not export a chat; its messages are in the store";
    until("it is told", || !daemon.logged(warning).is_empty());
    say(&daemon, "two");
    // Each replaces the one before in one step, because the mirror may look at any time.
    let prepared = daemon.folder().join("prepared");
    fs::create_dir_all(prepared.join("agents/agt_a")).unwrap();
    symlink(elsewhere.join("file"), prepared.join("agents/agt_a/chat.jsonl")).unwrap();
    let place = daemon.work().join(".ai-pm");
    rustix::fs::renameat_with(CWD, &prepared, CWD, &place, RenameFlags::EXCHANGE).unwrap();
    say(&daemon, "three");
    let pipe = daemon.folder().join("pipe");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
    fs::rename(pipe, file(&daemon)).unwrap();
    say(&daemon, "four");
    fs::remove_file(file(&daemon)).unwrap();
    say(&daemon, "five");
    until_mirrored(&daemon, &["one", "two", "three", "four", "five"]);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    assert_eq!(daemon.logged(warning).len(), 1, "told once");
}

/// Returns the last bytes of the file.
fn tail(daemon: &Daemon) -> String {
    let file = fs::File::open(file(daemon)).unwrap();
    let length = file.metadata().unwrap().len();
    let kept = length.min(500);
    let mut bytes = vec![0; usize::try_from(kept).unwrap()];
    file.read_exact_at(&mut bytes, length - kept).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn a_huge_file_takes_no_memory() {
    let mut daemon = quiet("");
    say(&daemon, "one");
    until_mirrored(&daemon, &["one"]);
    daemon.kill();
    OpenOptions::new().write(true).open(file(&daemon)).unwrap().set_len(3 << 30).unwrap();
    daemon.start();
    say(&daemon, "two");
    until("the second message is in the file", || tail(&daemon).contains("\"content\":\"two\""));
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak_kib < 400 * 1024, "{peak_kib} KiB");
}

#[test]
fn a_link_in_the_place_of_the_working_directory_is_not_followed() {
    let daemon = quiet("");
    say(&daemon, "one");
    until_mirrored(&daemon, &["one"]);
    let (elsewhere, moved) = (daemon.folder().join("elsewhere"), daemon.folder().join("moved"));
    fs::create_dir(&elsewhere).unwrap();
    fs::rename(daemon.work(), &moved).unwrap();
    symlink(&elsewhere, daemon.work()).unwrap();
    say(&daemon, "two");
    let warning = "could not export a chat; its messages are in the store";
    until("it is told", || !daemon.logged(warning).is_empty());
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    fs::remove_file(daemon.work()).unwrap();
    fs::rename(&moved, daemon.work()).unwrap();
    say(&daemon, "three");
    until_mirrored(&daemon, &["one", "two", "three"]);
}

#[test]
fn a_link_that_the_operator_gave_is_followed() {
    let daemon = quiet("");
    symlink(daemon.work(), daemon.folder().join("link")).unwrap();
    daemon.done(&[
        "project",
        "set",
        "prj",
        "--directory",
        daemon.folder().join("link").to_str().unwrap(),
    ]);
    say(&daemon, "one");
    until_mirrored(&daemon, &["one"]);
}

#[test]
fn a_mirror_that_can_not_be_written_fails_no_message() {
    if rustix::process::geteuid().is_root() {
        crate::support::skip("root may write everywhere");
        return;
    }
    let daemon = quiet("");
    fs::set_permissions(daemon.work(), Permissions::from_mode(0o500)).unwrap();
    say(&daemon, "one");
    until("it is told", || daemon.log().contains("could not export a chat"));
    fs::set_permissions(daemon.work(), Permissions::from_mode(0o700)).unwrap();
    say(&daemon, "two");
    until_mirrored(&daemon, &["one", "two"]);
}

#[test]
fn two_projects_in_one_directory_share_it() {
    // Both projects of the world have the same directory.
    let mut daemon = quiet("");
    let elsewhere = "/projects/prj_2/agents/agt_a/chat/messages";
    for n in 0..10 {
        say(&daemon, &format!("here {n}"));
        asked(&daemon, "POST", elsewhere, &json!({ "content": format!("there {n}") }));
    }
    let expected: Vec<String> =
        (0..10).flat_map(|n| [format!("here {n}"), format!("there {n}")]).collect();
    until("it says everything in order", || contents(&daemon) == expected);
    daemon.kill();
    let text = fs::read_to_string(file(&daemon)).unwrap();
    fs::write(file(&daemon), &text[..text.len() - 30]).unwrap();
    daemon.start();
    until("it says everything in order again", || contents(&daemon) == expected);
}
