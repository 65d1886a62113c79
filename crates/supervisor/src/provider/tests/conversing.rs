use std::time::Duration;

use super::*;
use domain::ConversationOrder;
use domain::conversation::{Cause, Reach, Resumed};

/// Returns the request of a launch that begins a conversation, or continues it.
fn request_in(name: &str, is_resumed: bool) -> LaunchRequest {
    let resumed = is_resumed.then_some(Resumed {
        cause: Cause::Lost,
        pause: Duration::from_mins(3),
        last_launch: None,
    });
    let cli_session = "0190-id".to_owned();
    LaunchRequest {
        conversation: Some(ConversationOrder { cli_session, resumed }),
        last_call: Some("Bash make".to_owned()),
        ..request(name)
    }
}

#[test]
fn the_options_of_a_conversation_come_before_those_of_the_entry() {
    for (name, preset, begun, resumed) in [
        ("claude", Preset::Claude, "--session-id 0190-id --own", "--resume 0190-id --own"),
        ("qwen", Preset::Qwen, "--session-id 0190-id --own", "--resume 0190-id --own"),
        ("copilot", Preset::Copilot, "--session-id=0190-id --own", "--resume=0190-id --own"),
    ] {
        let entry = ProviderConfig {
            cli_args: vec!["--own".to_owned()],
            ..ProviderConfig::of_preset(preset)
        };
        let providers = providers([(name, entry)]);
        for (is_resumed, end) in [(false, begun), (true, resumed)] {
            let command = providers.command(&request_in(name, is_resumed)).expect("a command");
            let arguments = command.arguments.join(" ");
            assert!(arguments.ends_with(end), "{arguments}");
            let prompt = command.stdin.expect("a prompt");
            let names_call = prompt.reveal().contains("\"Bash make\"");
            assert_eq!(names_call, is_resumed, "{}", prompt.reveal());
        }
        let without = providers.command(&request(name)).expect("a command").arguments.join(" ");
        assert!(!without.contains("--resume") && !without.contains("--session-id"), "{without}");
    }
}

#[test]
fn an_entry_of_its_own_has_its_arguments_behind_the_others() {
    let args = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let entry = ProviderConfig {
        begin_args: args(&["--new", "{conversation}"]),
        resume_args: args(&["--again={conversation}"]),
        ..own("a", &["-x"])
    };
    let providers = providers([("a", entry)]);
    let of = |is_resumed| {
        let command = providers.command(&request_in("a", is_resumed)).expect("a command");
        command.arguments[..command.arguments.len() - 2].to_vec()
    };
    assert_eq!(of(false), ["-x", "--new", "0190-id"]);
    assert_eq!(of(true), ["-x", "--again=0190-id"]);
}

#[test]
fn the_prompt_in_the_arguments_of_a_conversation_is_not_added_once_more() {
    let entry = ProviderConfig {
        begin_args: vec!["--new={conversation}".to_owned()],
        resume_args: vec!["--again={conversation}".to_owned(), "{prompt}".to_owned()],
        ..own("a", &[])
    };
    let providers = providers([("a", entry)]);
    let arguments =
        |is_resumed| providers.command(&request_in("a", is_resumed)).expect("a command").arguments;
    assert_eq!(arguments(false)[..2], ["--new=0190-id", "-p"]);
    let resumed = arguments(true);
    assert_eq!(resumed.len(), 2, "{resumed:?}");
    assert!(resumed[1].contains("You worked on this task before"), "{resumed:?}");
}

#[test]
fn an_entry_continues_conversations_as_far_as_its_cli_can() {
    let reach = |entry: ProviderConfig| providers([("a", entry)]).entry("a").reach;
    let of = ProviderConfig::of_preset;
    assert_eq!(reach(of(Preset::Claude)), Reach::Anywhere);
    assert_eq!(reach(of(Preset::Copilot)), Reach::Anywhere);
    assert_eq!(reach(of(Preset::Qwen)), Reach::SameDirectory);
    for preset in [Preset::Codex, Preset::Gemini, Preset::Opencode] {
        assert_eq!(reach(of(preset)), Reach::Nowhere);
    }
    let claude = || of(Preset::Claude);
    let args = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    assert_eq!(reach(ProviderConfig { continues: false, ..claude() }), Reach::Nowhere);
    assert_eq!(reach(ProviderConfig { wrap: args(&["bwrap"]), ..claude() }), Reach::Nowhere);
    for option in ["--resume=x", "-c", "--session-id"] {
        let entry = ProviderConfig { cli_args: args(&[option]), ..claude() };
        assert_eq!(reach(entry), Reach::Nowhere, "{option}");
    }
    assert_eq!(reach(own("a", &["-x"])), Reach::Nowhere);
    assert_eq!(reach(own("a", &["--id={conversation}"])), Reach::SameDirectory);
    let begin_args = args(&["{conversation}"]);
    let only_begins = ProviderConfig { begin_args, ..own("a", &[]) };
    assert_eq!(reach(only_begins), Reach::Nowhere);
}

#[test]
fn another_entry_user_program_or_wrapper_is_another_account() {
    let account =
        |name: &'static str, entry: ProviderConfig| providers([(name, entry)]).entry(name).account;
    let usual = || account("a", own("a", &[]));
    assert_eq!(usual(), account("a", own("a", &["-x"])));
    assert_ne!(usual(), account("b", own("a", &[])));
    assert_ne!(usual(), account("a", own("b", &[])));
    let run_as = Some("worker".to_owned());
    assert_ne!(usual(), account("a", ProviderConfig { run_as, ..own("a", &[]) }));
    let wrap = vec!["s3cret".to_owned()];
    let wrapped = account("a", ProviderConfig { wrap, ..own("a", &[]) });
    assert_ne!(usual(), wrapped);
    // The store keeps the account, and a wrapper may contain a secret.
    assert!(!wrapped.contains("s3cret"), "{wrapped}");
}
