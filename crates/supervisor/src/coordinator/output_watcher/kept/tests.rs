use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;

use super::*;
use crate::provider::output::read_line;
use domain::TranscriptSpec;
use domain::activity::Tally;
use domain::cli_lines::kept::{Asked, Keeper};
use machine::instance_dir::record::TranscriptBefore;

/// A launch of a recorded conversation: what it printed, and the transcript before and after it.
struct Recorded {
    keeper: Keeper,
    conversation: String,
    printed: String,
    before: String,
    after: String,
}

impl Recorded {
    fn of(cli: &str, launch: &str, before: Option<&str>) -> Self {
        let root =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/transcripts");
        let read = |name: String| fs::read_to_string(root.join(cli).join(name)).unwrap();
        let printed = read(format!("{launch}.stdout.jsonl"));
        let after = read(format!("{launch}.transcript.jsonl"));
        let keeper: Keeper = serde_json::from_value(cli.into()).unwrap();
        // A killed copilot does not tell its conversation.
        let ids = [r#""session_id":""#, r#""thread_id":""#, r#""sessionId":""#];
        let (_, id) = ids.iter().find_map(|start| after.split_once(start)).unwrap();
        let conversation = id.split('"').next().unwrap().to_owned();
        let before =
            before.map_or_else(String::new, |launch| read(format!("{launch}.transcript.jsonl")));
        Self { keeper, conversation, printed, before, after }
    }

    fn path(&self) -> PathBuf {
        let names = self.keeper.names(&self.conversation);
        names.iter().map(|name| name.replace('*', "x")).collect()
    }

    fn write(&self, home: &Path, content: &str) -> PathBuf {
        let path = home.join(self.path());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Returns the transcript for a launch whose arguments name the conversation.
    fn kept(&self, home: &Path) -> Kept {
        let length = self.before.len() as u64;
        let before = TranscriptBefore { path: self.path(), length };
        let asked = Asked { conversation: Some(self.conversation.clone()), is_resumed: length > 0 };
        Kept {
            dir: home.to_owned(),
            note: KeptConversation {
                spec: TranscriptSpec { keeper: self.keeper, folder: home.to_owned(), asked },
                transcript: (length > 0).then_some(before),
                run_as: None,
            },
            began_at: Timestamp::from_millis(0),
            opened: None,
            n_missed: 0,
        }
    }

    /// Returns the usage in all that was printed.
    fn tally(&self) -> Tally {
        let facts = self.printed.lines().flat_map(|line| read_line(line, None));
        let mut tally = facts.fold(Tally::default(), Tally::heard);
        tally.set_before(None);
        tally
    }
}

fn hear(tally: &mut Tally, news: &News) {
    if news.is_found {
        tally.set_before(news.used_before);
    }
    news.facts.iter().for_each(|fact| tally.hear_transcript(fact));
}

/// Returns the usage that the model server counted in two responses.
fn two_answers(keeper: Keeper) -> Usage {
    let counted = include_str!("../../../../../../tests/fixtures/transcripts/counted.json");
    let counted: serde_json::Value = serde_json::from_str(counted).unwrap();
    let cli = serde_json::to_value(keeper).unwrap();
    serde_json::from_value(counted[cli.as_str().unwrap()].clone()).unwrap()
}

const CLIS: [&str; 5] = ["claude", "codex", "copilot", "gemini", "qwen"];
const LAUNCHES: [(&str, Option<&str>); 4] = [
    ("normal", None),
    ("continued", Some("normal")),
    ("killed", None),
    ("resumed", Some("killed")),
];

#[test]
fn output_and_transcript_together_have_each_answer_once() {
    for cli in CLIS {
        for (launch, before) in LAUNCHES {
            let home = tempfile::tempdir().unwrap();
            let recorded = Recorded::of(cli, launch, before);
            recorded.write(home.path(), &recorded.after);
            let mut tally = recorded.tally();
            let news = recorded.kept(home.path()).read(None, Occasion::End);
            assert!(news.is_found && !news.has_more, "{cli} {launch}");
            hear(&mut tally, &news);
            let usage = tally.activity().usage;
            let has_cost = cli == "claude" && launch != "killed";
            let cost_usd_micros = if has_cost { 7_920 } else { 0 };
            let expected = Usage { cost_usd_micros, turns: 0, ..two_answers(recorded.keeper) };
            assert_eq!(Usage { turns: 0, ..usage }, expected, "{cli} {launch}");
            assert!(cli != "qwen" || usage.turns == 2, "{launch}: {usage:?}");
        }
    }
}

#[test]
fn a_resumed_launch_without_its_transcript_does_not_count_the_one_before() {
    for cli in CLIS {
        let recorded = Recorded::of(cli, "continued", Some("normal"));
        let usage = recorded.tally().activity().usage;
        let most =
            Usage { cost_usd_micros: 7_920, turns: u64::MAX, ..two_answers(recorded.keeper) };
        assert_eq!(usage.at_least(most), most, "{cli}");
    }
}

#[test]
fn a_transcript_that_grows_is_read_further() {
    let home = tempfile::tempdir().unwrap();
    let recorded = Recorded::of("codex", "resumed", Some("killed"));
    let path = recorded.write(home.path(), &recorded.before);
    let mut kept = recorded.kept(home.path());
    let mut tally = Tally::default();
    let news = kept.read(None, Occasion::Output);
    assert!(news.is_found && news.is_anew && news.facts.is_empty(), "{news:?}");
    let mut file = fs::File::options().append(true).open(&path).unwrap();
    for piece in recorded.after.as_bytes()[recorded.before.len()..].chunks(1000) {
        file.write_all(piece).unwrap();
        let news = kept.read(None, Occasion::Output);
        assert!(!news.is_anew);
        hear(&mut tally, &news);
    }
    assert_eq!(tally.activity().usage, two_answers(Keeper::Codex));
    // A file in its place is read from the start.
    fs::remove_file(&path).unwrap();
    assert!(!kept.read(None, Occasion::End).is_found);
    recorded.write(home.path(), &recorded.after);
    let news = kept.read(None, Occasion::End);
    assert!(news.is_anew && news.facts.len() == 2, "{news:?}");
}

#[test]
fn the_conversation_that_the_cli_tells_is_followed_from_the_time_of_the_launch() {
    let home = tempfile::tempdir().unwrap();
    let recorded = Recorded::of("qwen", "normal", None);
    let kept = || {
        let mut kept = recorded.kept(home.path());
        kept.note.spec.asked.conversation = None;
        kept
    };
    assert!(!kept().read(Some(&recorded.conversation), Occasion::End).is_found);
    recorded.write(home.path(), &recorded.after);
    assert!(!kept().read(None, Occasion::End).is_found);
    let told = Some(recorded.conversation.as_str());
    assert_eq!(kept().read(told, Occasion::End).facts.len(), 2);
    let noted = record::read::<KeptConversation>(home.path()).unwrap().unwrap();
    assert_eq!(noted.spec.asked.conversation.as_deref(), told, "the next daemon knows it");
    let mut later = kept();
    later.began_at = Timestamp::from_millis(i64::MAX);
    let news = later.read(told, Occasion::End);
    assert!(news.is_found && news.facts.is_empty() && news.used_before.is_none(), "{news:?}");
}

#[test]
fn a_transcript_that_tells_waits_is_searched_for_a_while_without_further_output() {
    let n_searches = |cli: &str| {
        let home = tempfile::tempdir().unwrap();
        let recorded = Recorded::of(cli, "normal", None);
        let mut kept = recorded.kept(home.path());
        assert!(!kept.read(None, Occasion::Output).has_more, "{cli}: it has not begun");
        let told = Some(recorded.conversation.as_str());
        assert!(!kept.read(told, Occasion::End).has_more, "{cli}: it is gone");
        (0..100).take_while(|_| kept.read(told, Occasion::Output).has_more).count()
    };
    assert_eq!(n_searches("qwen"), 5);
    assert_eq!(n_searches("codex"), 0);
}

#[test]
fn a_fork_that_the_cli_tells_later_is_read_instead_of_the_conversation_it_was_asked_for() {
    let home = tempfile::tempdir().unwrap();
    let asked = Recorded::of("claude", "normal", None);
    let fork = Recorded::of("claude", "killed", None);
    asked.write(home.path(), &asked.after);
    fork.write(home.path(), &fork.after);
    let mut kept = asked.kept(home.path());
    assert!(kept.read(None, Occasion::Output).is_anew);
    assert!(!kept.read(Some(&asked.conversation), Occasion::End).is_anew);
    let news = kept.read(Some(&fork.conversation), Occasion::End);
    assert!(news.is_anew, "{news:?}");
    let mut tally = Tally::default();
    hear(&mut tally, &news);
    assert_eq!(tally.activity().usage, two_answers(Keeper::Claude));
    assert!(!kept.read(Some(&fork.conversation), Occasion::End).is_anew);
}

#[test]
fn nothing_is_read_through_a_link_or_from_anything_but_a_file() {
    let home = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let recorded = Recorded::of("claude", "normal", None);
    let target = outside.path().join("transcript");
    fs::write(&target, &recorded.after).unwrap();
    let path = recorded.write(home.path(), "");
    fs::remove_file(&path).unwrap();
    symlink(&target, &path).unwrap();
    assert!(!recorded.kept(home.path()).read(None, Occasion::End).is_found);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(!recorded.kept(home.path()).read(None, Occasion::End).is_found);
}

#[test]
fn a_line_without_its_end_counts_at_the_end_of_the_process() {
    let home = tempfile::tempdir().unwrap();
    let recorded = Recorded::of("codex", "killed", None);
    let (lines, _) = recorded.after.rsplit_once("token_usage_record").unwrap();
    let start = lines.rsplit_once('\n').map_or("", |(start, _)| start);
    let last = recorded.after[start.len()..].trim_start().lines().next().unwrap();
    recorded.write(home.path(), &format!("{start}\n{last}"));
    let mut kept = recorded.kept(home.path());
    assert_eq!(kept.read(None, Occasion::Output).facts.len(), 1);
    assert_eq!(kept.read(None, Occasion::End).facts.len(), 1);
}

#[test]
fn an_answer_on_a_long_line_counts_within_the_limit() {
    let home = tempfile::tempdir().unwrap();
    let recorded = Recorded::of("claude", "killed", None);
    for (length, usage) in
        [(MAX_LINE / 2, two_answers(Keeper::Claude)), (MAX_LINE, Usage::default())]
    {
        let lengthened = recorded.after.lines().map(|line| {
            let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
            if line["type"] == "assistant" {
                line["written"] = "x".repeat(length).into();
            }
            format!("{line}\n")
        });
        recorded.write(home.path(), &lengthened.collect::<String>());
        let mut kept = recorded.kept(home.path());
        let mut tally = Tally::default();
        let mut has_more = true;
        while has_more {
            let news = kept.read(None, Occasion::End);
            hear(&mut tally, &news);
            has_more = news.has_more;
        }
        assert_eq!(tally.activity().usage, usage, "{length}");
    }
}

#[test]
fn a_long_transcript_is_read_in_pieces() {
    let home = tempfile::tempdir().unwrap();
    let recorded = Recorded::of("claude", "normal", None);
    let filler = format!("{{\"type\":\"user\",\"text\":\"{}\"}}\n", "x".repeat(MAX_READ / 8));
    let path = recorded.write(home.path(), &recorded.after);
    let mut file = fs::File::options().append(true).open(path).unwrap();
    (0..12).for_each(|_| file.write_all(filler.as_bytes()).unwrap());
    let mut kept = recorded.kept(home.path());
    assert!(kept.read(None, Occasion::End).has_more);
    assert!(!kept.read(None, Occasion::End).has_more);
}
