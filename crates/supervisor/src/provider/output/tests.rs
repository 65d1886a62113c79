use proptest::prelude::*;

use super::*;
use domain::activity::Tally;
use domain::{Activity, FailureClass};

macro_rules! printed {
    ($name:literal) => {
        include_str!(concat!("../../../../../tests/fixtures/output/", $name, ".jsonl"))
    };
}

/// The output of every CLI about a task that is done.
const DONE: [(&str, &str); 6] = [
    ("claude", printed!("claude")),
    ("codex", printed!("codex")),
    ("gemini", printed!("gemini")),
    ("qwen", printed!("qwen")),
    ("opencode", printed!("opencode")),
    ("copilot", printed!("copilot")),
];

/// A day in Tokyo.
fn noon() -> jiff::Zoned {
    let time = jiff::civil::date(2026, 11, 23).at(12, 0, 0, 0);
    time.to_zoned(jiff::tz::TimeZone::fixed(jiff::tz::offset(9))).expect("a time")
}

fn heard<'a>(lines: impl IntoIterator<Item = &'a str>) -> Activity {
    lines
        .into_iter()
        .flat_map(|line| read_line(line, Some(&noon())))
        .fold(Tally::default(), Tally::heard)
        .activity()
}

#[track_caller]
fn check(family: &str, expected: Usage) {
    let (_, printed) = DONE.iter().find(|(name, _)| *name == family).expect("a family");
    let activity = heard(printed.lines());
    assert_eq!((activity.usage, activity.failure), (expected, None), "{family}");
    assert_eq!(activity.progress.as_deref(), Some("I am done."), "{family}");
}

#[test]
fn each_family_tells_what_a_task_took() {
    let usage = |turns,
                 input_tokens,
                 output_tokens,
                 cache_read_tokens,
                 cache_write_tokens,
                 cost_usd_micros| Usage {
        input_tokens,
        output_tokens,
        cache_read_tokens,
        cache_write_tokens,
        cost_usd_micros,
        turns,
        is_estimated: false,
    };
    check("claude", usage(3, 342, 100, 200, 20, 12_346));
    check("codex", usage(4, 170, 70, 120, 10, 0));
    check("gemini", usage(2, 100, 14, 100, 0, 0));
    check("qwen", usage(2, 100, 14, 100, 0, 0));
    check("opencode", usage(2, 100, 14, 100, 0, 540));
    check("copilot", usage(2, 50, 7, 50, 0, 0));
}

#[test]
fn each_family_is_told_by_its_lines() {
    for (family, printed) in DONE {
        let facts: Vec<String> = printed
            .lines()
            .map(|line| match recognise(line, None) {
                None => format!("as it is: {line}"),
                Some(facts) => facts.iter().map(shown).collect::<Vec<_>>().join("; "),
            })
            .collect();
        insta::assert_snapshot!(family, facts.join("\n"));
    }
}

/// The text is shown without the marks, which are numbers.
fn shown(fact: &OutputFact) -> String {
    match fact {
        OutputFact::Conversation(id) => format!("conversation {id}"),
        OutputFact::Did(text) => format!("did {text}"),
        OutputFact::Got(text) => format!("got {text}"),
        OutputFact::Printed(text) => format!("printed {text}"),
        OutputFact::Step { usage, .. } => format!("step of {} tokens", usage.tokens()),
        OutputFact::Total { totals, .. } => {
            format!("total of {} tokens", totals.of_new_conversation().tokens())
        }
        OutputFact::Failed(failure) => format!("failed: {}", failure.class),
        OutputFact::LoginRefused => "login refused".to_owned(),
        OutputFact::Recovered => "recovered".to_owned(),
    }
}

#[track_caller]
fn check_trouble(printed: &str, class: FailureClass, resets_at: Option<&str>) {
    let failure = heard(printed.lines()).failure.expect("a failure");
    let told = failure.resets_at.map(|at| at.to_string());
    assert_eq!((failure.class, told.as_deref()), (class, resets_at), "{printed}");
}

#[test]
fn each_family_tells_its_trouble() {
    use FailureClass::{Auth, Config, Overload, Quota};
    check_trouble(printed!("claude_auth"), Auth, None);
    check_trouble(printed!("claude_quota"), Quota, Some("2026-01-01T00:00:00.000Z"));
    check_trouble(printed!("claude_overload"), Overload, None);
    check_trouble(printed!("claude_config"), Config, None);
    check_trouble(printed!("codex_auth"), Auth, None);
    check_trouble(printed!("codex_quota"), Quota, None);
    check_trouble(printed!("gemini_auth"), Auth, None);
    check_trouble(printed!("gemini_quota"), Quota, Some("2026-01-01T01:00:00.000Z"));
    check_trouble(printed!("qwen_auth"), Auth, None);
    check_trouble(printed!("qwen_no_login"), Auth, None);
    check_trouble(printed!("qwen_no_key"), Auth, None);
    check_trouble(printed!("qwen_old_login"), Auth, None);
    check_trouble(printed!("opencode_auth"), Auth, None);
    check_trouble(printed!("opencode_no_login"), Auth, None);
    check_trouble(printed!("opencode_other_login"), Auth, None);
    check_trouble(printed!("opencode_waits"), Quota, None);
    check_trouble(printed!("opencode_config"), Config, None);
    check_trouble(printed!("opencode_quota"), Quota, Some("2026-01-01T01:00:00.000Z"));
    check_trouble(printed!("copilot_auth"), Auth, None);
    check_trouble(printed!("copilot_no_login"), Auth, None);
    check_trouble(printed!("copilot_quota"), Quota, None);
    check_trouble(printed!("copilot_overload"), Overload, None);
}

#[test]
fn claude_tells_a_limit_in_its_own_words() {
    let check = |text: &str, resets_at: Option<&str>| {
        let result =
            format!(r#"{{"type":"result","session_id":"s","is_error":true,"result":"{text}"}}"#);
        check_trouble(&result, FailureClass::Quota, resets_at);
        let answer = format!(
            r#"{{"type":"assistant","session_id":"s","message":{{"model":"<synthetic>","content":[{{"type":"text","text":"{text}"}}]}}}}"#
        );
        check_trouble(&answer, FailureClass::Quota, resets_at);
    };
    let nine = Some("2026-11-23T09:01:00.000Z");
    check("You've hit your limit · resets 9am (UTC)", nine);
    check("You’ve hit your weekly limit · resets 9am (UTC)", nine);
    let december = Some("2026-12-01T03:11:00.000Z");
    check("You've hit your limit · resets Dec 1, 4:10am (Europe/Berlin)", december);
    // In the zone of the agent, which is Tokyo.
    check("5-hour limit reached ∙ resets 6pm", nine);
    check("You're out of extra usage · resets soon", None);
    // Without a form of output, it is a line of its own.
    check_trouble("You've hit your limit · resets 9am (UTC)", FailureClass::Quota, nine);
    for other in ["You've hit your limit", "I hit your limit of 5 files, which resets daily"] {
        assert_eq!(heard([other]).failure, None, "{other}");
    }
    let context = "Context limit reached · /compact or /clear to continue";
    let other =
        format!(r#"{{"type":"result","session_id":"s","is_error":true,"result":"{context}"}}"#);
    assert_eq!(heard([other.as_str()]).failure, None);
}

/// The output of codex 0.169.0 for a quota that ends in 90 minutes, and in three days.
#[test]
fn codex_names_the_end_of_a_quota_in_local_time() {
    let printed = |end: &str| {
        let message = format!(
            "You’ve hit your usage limit. Upgrade to Pro (https://chatgpt.com/explore/pro), visit https://chatgpt.com/settings/usage to purchase more credits or try again at {end}."
        );
        format!(r#"{{"type":"error","message":"{message}"}}"#)
    };
    check_trouble(&printed("3:34 PM"), FailureClass::Quota, Some("2026-11-23T06:35:00.000Z"));
    check_trouble(&printed("12:05 PM"), FailureClass::Quota, Some("2026-11-23T03:06:00.000Z"));
    check_trouble(
        &printed("Nov 26th, 2026 2:04 PM"),
        FailureClass::Quota,
        Some("2026-11-26T05:05:00.000Z"),
    );
    check_trouble(
        &printed("Jan 1st, 2027 12:00 AM"),
        FailureClass::Quota,
        Some("2026-12-31T15:01:00.000Z"),
    );
    for odd in ["", "noon", "25:99 PM", "Nov, 2026", "Nov 26th, 2026", "½"] {
        check_trouble(&printed(odd), FailureClass::Quota, None);
    }
    let old = printed("3:34 PM");
    assert!(
        recognise(&old, None)
            .expect("codex")
            .contains(&OutputFact::Failed(FailureClass::Quota.into()))
    );
}

/// The texts of older releases of codex, and of the service itself.
#[test]
fn codex_names_the_end_of_a_quota_as_a_pause() {
    let printed = |message: &str| format!(r#"{{"type":"error","message":"{message}"}}"#);
    let limit = |pause: &str| {
        printed(&format!(
            "You've hit your usage limit. Upgrade to Pro (https://openai.com/chatgpt/pricing) or try again in {pause}."
        ))
    };
    for (pause, end) in [
        ("5 minutes", "2026-11-23T03:06:00.000Z"),
        ("1 minute", "2026-11-23T03:02:00.000Z"),
        ("3 hours 2 minutes", "2026-11-23T06:03:00.000Z"),
        ("5 days 22 hours 11 minutes", "2026-11-29T01:12:00.000Z"),
        ("1 hour, 30 minutes", "2026-11-23T04:31:00.000Z"),
        ("less than a minute", "2026-11-23T03:01:00.000Z"),
    ] {
        check_trouble(&limit(pause), FailureClass::Quota, Some(end));
    }
    for (pause, end) in
        [("11.5s", "2026-11-23T03:01:11.500Z"), ("1m30s", "2026-11-23T03:02:30.000Z")]
    {
        let message = format!(
            "Rate limit reached for the model. Please try again in {pause}. Visit the site to learn more."
        );
        check_trouble(&printed(&message), FailureClass::Quota, Some(end));
    }
    for odd in [
        "",
        "a while",
        "5",
        "-5 minutes",
        "5 minutes ago",
        "99999999999 days",
        "½ hour",
        "5 minutes or so",
    ] {
        check_trouble(&limit(odd), FailureClass::Quota, None);
    }
}

/// It tries again as often as the service says, and prints no event of that.
#[test]
fn opencode_tells_its_trouble_in_its_log() {
    let line = |is_small: bool, error: &str| {
        format!(
            "timestamp=2026-11-23T14:04:38.460Z level=ERROR run=4d6dba39 message=\"stream error\" providerID=local modelID=scripted \
             session.id=ses_1 small={is_small} agent=build mode=primary error.error=\"AI_APICallError: {error}\""
        )
    };
    check_trouble(&line(false, "Rate limit reached"), FailureClass::Quota, None);
    check_trouble(&line(false, "Too Many Requests"), FailureClass::Quota, None);
    check_trouble(&line(false, "Service Unavailable"), FailureClass::Overload, None);
    assert_eq!(
        heard([line(false, "odd").as_str()]).progress.as_deref(),
        Some("AI_APICallError: odd")
    );
    assert_eq!(recognise(&line(true, "Rate limit reached"), None), None);
    assert_eq!(
        recognise(
            "timestamp=2026-11-23T14:04:38.460Z level=INFO run=4d6dba39 message=\"quota\"",
            None
        ),
        None
    );
}

#[test]
fn trouble_is_told_by_the_first_attempt_already() {
    let first = printed!("claude_auth").lines().next().expect("a line");
    check_trouble(first, FailureClass::Auth, None);
    check_trouble(
        "Attempt 1 failed with status 503. Retrying with backoff…",
        FailureClass::Overload,
        None,
    );
    check_trouble(
        "Error authenticating: FatalAuthenticationError: Manual authorization is required",
        FailureClass::Auth,
        None,
    );
}

#[test]
fn a_login_is_refused_for_good_at_the_second_attempt() {
    let refused = |lines: &str| {
        lines
            .lines()
            .flat_map(|line| read_line(line, Some(&noon())))
            .fold(Tally::default(), Tally::heard)
            .is_login_refused()
    };
    let auth = printed!("claude_auth");
    let overload = printed!("claude_overload");
    assert!(refused(auth));
    assert!(!refused(auth.lines().next().expect("a line")), "it may renew its login");
    assert!(!refused(&overload.replace("\"attempt\":1", "\"attempt\":2")));
    assert!(!refused(&format!("{auth}\n{}", printed!("claude"))));
}

#[test]
fn who_goes_on_after_a_failed_attempt_has_no_trouble() {
    let auth = printed!("claude_auth").lines();
    assert_eq!(heard(auth.chain(printed!("claude").lines())).failure, None);
}

#[test]
fn lines_of_no_family_are_not_recognised() {
    let long =
        format!(r#"{{"type":"turn.failed","error":{{"message":"{}"}}}}"#, "x".repeat(MAX_LINE));
    let deep = format!("{}{}", r#"{"type":"system","session_id":"#, "[".repeat(10_000));
    let others = [
        "",
        " ",
        "plain text",
        "{",
        "{}",
        "[]",
        "null",
        "Attempt x failed with status y",
        "Attempt 1 failed with status 999999999999999999999",
        r#"{"type":7}"#,
        r#"{"type":"other"}"#,
        r#"{"type":"result"}"#,
        r#"{"type":"error"}"#,
        r#"{"type":"message","text":"mine"}"#,
        r#"{"level":"info","message":"my own log"}"#,
        r#"{"type":"other.event","data":{}}"#,
        &long,
        &deep,
    ];
    for other in others {
        assert_eq!(recognise(other, None), None, "{other:.100}");
    }
}

#[test]
fn the_last_plain_line_is_the_progress_of_an_agent_that_tells_no_other() {
    let progress = |lines: &[&str]| heard(lines.iter().copied()).progress;
    assert_eq!(progress(&["Compiling", "  Running\ttests  "]).as_deref(), Some("Running tests"));
    assert_eq!(progress(&["実行中"]).as_deref(), Some("実行中"));
    let call = r#"{"type":"item.started","item":{"type":"command_execution","command":"ls"}}"#;
    assert_eq!(progress(&["before", call, "after"]).as_deref(), Some("shell: ls"));
    assert_eq!(progress(&["x".repeat(1_000).as_str()]).map(|text| text.chars().count()), Some(160));
    let long = "x".repeat(MAX_LINE + 1);
    for other in ["", " \t", "-----", "\u{1b}[", "{", r#"{"level":"info"}"#, "\0ELF\u{fffd}", &long]
    {
        assert_eq!(progress(&["text", other]).as_deref(), Some("text"), "{other:.100}");
        assert_eq!(progress(&[other]), None, "{other:.100}");
    }
}

#[test]
fn odd_values_are_as_good_as_none() {
    for odd in [
        r#"{"type":"assistant","session_id":7,"message":{"id":[],"content":"text","usage":{"input_tokens":-5,"output_tokens":"many"}}}"#,
        r#"{"type":"result","session_id":"s","total_cost_usd":-1,"num_turns":1e300,"usage":[],"modelUsage":7}"#,
        r#"{"type":"turn.completed","usage":null}"#,
        r#"{"type":"step_finish","sessionID":null,"part":[]}"#,
        r#"{"type":"rate_limit_event","session_id":"s","rate_limit_info":{"status":"rejected","resetsAt":9223372036854775807}}"#,
        r#"{"type":"result","timestamp":"yesterday","error":{"message":"429 retry after 1e999s"}}"#,
    ] {
        let usage = heard([odd]).usage;
        assert_eq!(usage.tokens() + usage.cost_usd_micros, 0, "{odd}");
    }
}

#[test]
fn texts_of_agents_become_one_short_line() {
    let text = "\\u001b]0;title\\u0007 \\n".repeat(2000);
    let line =
        format!(r#"{{"type":"item.completed","item":{{"type":"agent_message","text":"{text}"}}}}"#);
    let facts = read_line(&line, Some(&noon()));
    let Some(OutputFact::Did(text)) = facts.first() else { panic!("{facts:?}") };
    assert!(text.chars().count() <= MAX_TEXT && !text.chars().any(char::is_control), "{text}");
}

/// The lines of one family, each with its place.
fn any_lines() -> impl Strategy<Value = Vec<&'static str>> {
    proptest::sample::select(DONE.to_vec()).prop_map(|(_, printed)| printed.lines().collect())
}

proptest! {
    #[test]
    fn usage_is_the_same_in_any_order_and_however_often(
        (lines, again) in any_lines().prop_flat_map(|lines| {
            let twice = Just([lines.clone(), lines.clone()].concat()).prop_shuffle();
            (Just(lines), twice)
        })
    ) {
        prop_assert_eq!(heard(lines).usage, heard(again).usage);
    }

    #[test]
    fn usage_is_the_same_however_the_output_is_read(lines in any_lines(), cuts in proptest::collection::vec(0_usize..4000, 0..9)) {
        let text = lines.join("\n") + "\n";
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([0, text.len()]).collect();
        cuts.sort_unstable();
        let mut reader = Lines::default();
        let mut found = Vec::new();
        for cut in cuts.windows(2) {
            reader.push(&text.as_bytes()[cut[0]..cut[1]], |line| found.push(line.to_owned()));
        }
        prop_assert_eq!(heard(found.iter().map(String::as_str)), heard(lines));
    }

    #[test]
    fn garbage_tells_nothing_bad(line in ".{0,200}") {
        read_line(&line, Some(&noon()));
    }

    #[test]
    fn a_line_with_anything_in_it_is_read(lines in any_lines(), at in any::<proptest::sample::Index>(), place in any::<proptest::sample::Index>(), odd in "[\\[\\]{}\",:0-9a-z\\\\é-]{0,6}") {
        let line = lines[at.index(lines.len())];
        let places: Vec<usize> = line.char_indices().map(|(place, _)| place).collect();
        let place = places[place.index(places.len())];
        read_line(&format!("{}{odd}{}", &line[..place], &line[place..]), Some(&noon()));
        read_line(&line[..place], Some(&noon()));
    }
}
