//! Completions and manual pages.

use crate::daemon::Daemon;

#[test]
fn each_shell_gets_completions_of_every_command() {
    let daemon = Daemon::configured("");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let text = daemon.done(&["completions", shell]);
        assert!(
            ["status", "task", "resume"].iter().all(|command| text.contains(command)),
            "{shell}"
        );
    }
    assert_eq!(daemon.cli(&["completions", "tcsh"]).code, 2);
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let daemon = Daemon::configured("");
    let page = daemon.done(&["man"]);
    assert!(page.starts_with(".ie") && page.contains("agent\\-coordinator"), "{page}");
    daemon.done(&["man", "work"]);
    assert!(daemon.work().join("agent-coordinator-task-add.1").exists());
    let said = daemon.cli(&["man", "nowhere"]);
    assert_eq!(
        (said.code, said.stderr.as_str()),
        (1, "agent-coordinator: there is no folder nowhere\n")
    );
}
