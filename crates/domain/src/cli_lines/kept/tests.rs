use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::Failure;
use crate::activity::Tally;

macro_rules! kept {
    ($cli:literal, $launch:literal) => {
        include_str!(concat!(
            "../../../../../tests/fixtures/transcripts/",
            $cli,
            "/",
            $launch,
            ".transcript.jsonl"
        ))
    };
}

macro_rules! recorded {
    ($keeper:ident, $cli:literal) => {
        Recorded {
            keeper: Keeper::$keeper,
            normal: kept!($cli, "normal"),
            continued: kept!($cli, "continued"),
            killed: kept!($cli, "killed"),
            resumed: kept!($cli, "resumed"),
        }
    };
}

/// The transcripts of a CLI after four launches. README.md beside them describes the launches.
#[derive(Debug, Clone, Copy)]
struct Recorded {
    keeper: Keeper,
    normal: &'static str,
    continued: &'static str,
    killed: &'static str,
    resumed: &'static str,
}

const RECORDED: [Recorded; 5] = [
    recorded!(Claude, "claude"),
    recorded!(Codex, "codex"),
    recorded!(Copilot, "copilot"),
    recorded!(Gemini, "gemini"),
    recorded!(Qwen, "qwen"),
];

const START: Timestamp = Timestamp::from_millis(0);

/// Returns the name that the lines have for their conversation.
fn conversation_of(keeper: Keeper, transcript: &str) -> String {
    let mut named = transcript.lines().filter_map(|line| keeper.read(line).conversation);
    named.next().expect("a name")
}

fn all(keeper: Keeper, transcript: &str) -> KeptReader {
    KeptReader::since(keeper, conversation_of(keeper, transcript), START)
}

fn heard<'a>(mut reader: KeptReader, lines: impl IntoIterator<Item = &'a str>) -> Tally {
    let mut tally = Tally::default();
    tally.set_before(None);
    for line in lines {
        if let Some(fact) = reader.hear(line) {
            tally.hear_transcript(&fact);
        }
    }
    tally.set_before(reader.used_before());
    tally
}

/// Returns the usage that the model server counted in two responses.
fn two_answers(keeper: Keeper) -> Usage {
    let counted = include_str!("../../../../../tests/fixtures/transcripts/counted.json");
    let counted: Value = serde_json::from_str(counted).expect("JSON");
    let cli = serde_json::to_value(keeper).expect("a name");
    serde_json::from_value(counted[cli.as_str().expect("a text")].clone()).expect("usage")
}

#[test]
fn a_new_conversation_has_each_answer_of_the_model_once_also_if_it_is_killed() {
    for Recorded { keeper, normal, killed, .. } in RECORDED {
        let usage = heard(all(keeper, killed), killed.lines()).activity().usage;
        assert_eq!(usage, two_answers(keeper), "{keeper:?}");
        let reader = all(keeper, normal);
        assert_eq!(reader.used_before(), None);
        let usage = heard(reader, normal.lines()).activity().usage;
        let cost_usd_micros = if keeper == Keeper::Claude { 7_920 } else { 0 };
        assert_eq!(usage, Usage { cost_usd_micros, ..two_answers(keeper) }, "{keeper:?}");
    }
}

#[test]
fn a_resumed_launch_has_only_its_own_answers() {
    for Recorded { keeper, normal, continued, killed, resumed } in RECORDED {
        for (before, after) in [(normal, continued), (killed, resumed)] {
            let own = after.strip_prefix(before).expect("the CLI only appends");
            let mut reader = KeptReader::new(keeper, conversation_of(keeper, before));
            before.lines().for_each(|line| assert_eq!(reader.hear(line), None));
            reader.begin();
            let is_known = reader.used_before().is_some();
            assert_eq!(is_known, reader.needs_part_before(), "{keeper:?}");
            let usage = heard(reader, own.lines()).activity().usage;
            let cost_usd_micros = if keeper == Keeper::Claude { 7_920 } else { 0 };
            assert_eq!(usage, Usage { cost_usd_micros, ..two_answers(keeper) }, "{keeper:?}");
        }
    }
}

#[test]
fn without_a_known_length_the_times_of_the_lines_tell_where_a_launch_begins() {
    for Recorded { keeper, killed, resumed, .. } in RECORDED {
        let own = resumed.strip_prefix(killed).expect("the CLI only appends");
        let times = own.lines().filter_map(|line| keeper.read(line).at);
        let began_at = times.min().expect("a time");
        let reader = KeptReader::since(keeper, conversation_of(keeper, killed), began_at);
        let usage = heard(reader, resumed.lines()).activity().usage;
        assert_eq!(usage.output_tokens, 100, "{keeper:?}");
        assert_eq!(usage.turns, 2, "{keeper:?}");
    }
}

#[test]
fn a_qwen_that_waits_for_its_quota_says_so_until_it_goes_on() {
    let kept = kept!("qwen", "waited");
    let mut reader = all(Keeper::Qwen, kept);
    let mut tally = Tally::default();
    let mut failures = Vec::new();
    for line in kept.lines().filter(|line| line.contains("ui_telemetry")) {
        if let Some(fact) = reader.hear(line) {
            tally.hear_transcript(&fact);
            failures.push(tally.activity().failure);
        }
    }
    let quota: Option<Failure> = Some(FailureClass::Quota.into());
    assert_eq!(failures, [None, quota, quota, None]);
    assert_eq!(tally.activity().usage, two_answers(Keeper::Qwen));
}

#[test]
fn of_the_errors_that_qwen_keeps_only_a_quota_counts() {
    let id = "00000000-0000";
    let hear = |event: Value| {
        let line = json!({ "uuid": "u", "sessionId": id, "timestamp": "2026-11-30T10:00:00Z",
            "subtype": "ui_telemetry", "systemPayload": { "uiEvent": event } });
        KeptReader::since(Keeper::Qwen, id.to_owned(), START).hear(&line.to_string())
    };
    let refused =
        |status: Value| hear(json!({ "event.name": "qwen-code.api_error", "status_code": status }));
    let quota = Some(OutputFact::Failed(FailureClass::Quota.into()));
    assert_eq!(refused(json!(429)), quota);
    for other in [json!(500), json!(401), json!(400), json!("429"), Value::Null] {
        assert_eq!(refused(other), None);
    }
    let unmeasured = hear(json!({ "event.name": "qwen-code.api_response" }));
    assert_eq!(unmeasured, Some(OutputFact::Recovered));
}

#[test]
fn lines_of_another_conversation_do_not_count() {
    for Recorded { keeper, normal, .. } in RECORDED {
        let reader = KeptReader::since(keeper, "another-conversation".to_owned(), START);
        assert_eq!(heard(reader, normal.lines()).activity().usage, Usage::default(), "{keeper:?}");
    }
}

#[test]
fn odd_lines_count_nothing_or_as_much_as_has_a_place() {
    let conversation = "00000000-0000";
    let hear = |usage: Value| {
        let message = json!({ "id": "m", "model": "x", "usage": usage });
        let line = json!({ "type": "assistant", "sessionId": conversation, "message": message,
            "timestamp": "2026-11-30T10:00:00Z" });
        let reader = KeptReader::since(Keeper::Claude, conversation.to_owned(), START);
        heard(reader, [line.to_string().as_str()]).activity().usage
    };
    assert_eq!(hear(json!({ "output_tokens": -5, "input_tokens": "7" })), Usage::default());
    let most: Value = serde_json::from_str("1180591620717411303424").expect("a number");
    assert_eq!(hear(json!({ "output_tokens": most })).output_tokens, u64::MAX);
    assert_eq!(hear(json!([])), Usage::default());
    let mut reader = KeptReader::since(Keeper::Claude, conversation.to_owned(), START);
    for odd in ["", "\0\0\0", "null", "[]", r#""usage""#, r#"{"usage":"#, r#"{"type":7,"usage":1}"#]
    {
        assert_eq!(reader.hear(odd), None, "{odd}");
    }
}

#[test]
fn a_transcript_lies_below_the_folder_of_its_cli_under_the_id() {
    let id = "02f853af-dcbb-451b-a11a-9116603cff59";
    assert_eq!(Keeper::Gemini.names(id).join("/"), "tmp/*/chats/session-*-02f853af.jsonl");
    assert_eq!(
        Keeper::Codex.names(id).last().map(String::as_str),
        Some(&*format!("rollout-*-{id}.jsonl"))
    );
    assert!(is_conversation(id) && is_conversation("ses_0123456789"));
    for odd in ["", "short", "-0123456789", "../../../etc/passwd", "a b c d e f g", "*********"] {
        assert!(!is_conversation(odd), "{odd}");
    }
    assert!(!is_conversation(&"a".repeat(65)));
}

#[test]
fn the_arguments_name_the_conversation() {
    let id = "02f853af-dcbb-451b-a11a-9116603cff59";
    let check = |arguments: &str, conversation: Option<&str>, is_resumed: bool| {
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        let conversation = conversation.map(str::to_owned);
        assert_eq!(Asked::by(&arguments), Asked { conversation, is_resumed }, "{arguments:?}");
    };
    check("-p --verbose", None, false);
    check(&format!("-p --session-id {id}"), Some(id), false);
    check(&format!("-p --resume {id} --model x"), Some(id), true);
    check(&format!("--resume={id}"), Some(id), true);
    check(&format!("exec -c a=b resume {id} -"), Some(id), true);
    check("--continue", None, true);
    check("--resume latest", None, true);
    check("--resume ../../x/y/z", None, true);
}

fn any_recorded() -> impl Strategy<Value = (Keeper, &'static str)> {
    let transcripts = RECORDED
        .map(|recorded| [(recorded.keeper, recorded.normal), (recorded.keeper, recorded.killed)]);
    proptest::sample::select(transcripts.concat())
}

proptest! {
    #[test]
    fn usage_is_the_same_however_often_and_in_which_order_the_lines_are_read(
        ((keeper, transcript), again) in any_recorded().prop_flat_map(|(keeper, transcript)| {
            let lines: Vec<&str> = transcript.lines().collect();
            let twice = Just([lines.clone(), lines].concat()).prop_shuffle();
            (Just((keeper, transcript)), twice)
        })
    ) {
        let own = || {
            let mut reader = all(keeper, transcript);
            reader.begin();
            reader
        };
        let usage = heard(own(), transcript.lines()).activity().usage;
        prop_assert_eq!(heard(own(), again).activity().usage, usage);
    }

    #[test]
    fn a_line_with_anything_in_it_is_read(
        (keeper, transcript) in any_recorded(),
        at in any::<proptest::sample::Index>(),
        place in any::<proptest::sample::Index>(),
        odd in "[\\[\\]{}\",:0-9a-z\\\\é-]{0,6}",
    ) {
        let lines: Vec<&str> = transcript.lines().collect();
        let line = lines[at.index(lines.len())];
        let places: Vec<usize> = line.char_indices().map(|(place, _)| place).collect();
        let place = places[place.index(places.len())];
        let mut reader = all(keeper, transcript);
        reader.hear(&format!("{}{odd}{}", &line[..place], &line[place..]));
        reader.hear(&line[..place]);
    }
}
