//! Tests of the conditions that need a person.

use super::*;
use crate::forge::{ItemKey, PendingWrite};
use crate::workspace::{Conflict, LeftMerge};
use crate::{Outcome, Purpose};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

fn task(id: &str) -> TaskInNeed {
    TaskInNeed {
        id: id.parse().unwrap(),
        short_id: "SHOP-7".parse().unwrap(),
        title: "Sell tea".to_owned(),
        project: "shop".parse().unwrap(),
        agent: None,
    }
}

fn blocked(id: &str, since: i64) -> Attention {
    let cause = Cause::Blocked { task: task(id), has_failed: false, reason: None };
    Attention { cause, since: Some(at(since)) }
}

fn key() -> InstanceKey {
    InstanceKey::new("ann".parse().unwrap(), "shop".parse().unwrap(), Purpose::Task)
}

fn conflict() -> Conflict {
    Conflict {
        result: None,
        branch: "main".to_owned(),
        commit: "0123456789abcdef".to_owned(),
        files: ["a.txt", "b.txt", "c.txt", "d.txt"].map(str::to_owned).to_vec(),
        at: at(1),
        squash: false,
        rebase: false,
        with_uncommitted: false,
        is_asked: false,
    }
}

fn left(workspace: &str) -> LeftMerge {
    LeftMerge {
        workspace: workspace.parse().unwrap(),
        project: "shop".parse().unwrap(),
        folder: "/srv/shop".into(),
        branch: "main".to_owned(),
        files: ["a.txt", "b.txt", "c.txt", "d.txt"].map(str::to_owned).to_vec(),
        since: at(1),
    }
}

#[test]
fn what_a_merge_left_is_named_with_its_repository_and_its_files() {
    let told = |task: Option<TaskInNeed>, merge: LeftMerge| {
        let entry =
            Attention { since: None, cause: Cause::Result(WaitingResult::Left { task, merge }) };
        (entry.project().cloned(), entry.text(Language::English))
    };
    let project = Some("shop".parse().unwrap());
    let text = "SHOP-7 was not merged into main, and its changes are still in /srv/shop: a.txt, \
                b.txt, c.txt and 1 more. Look at git status there, and commit or undo them";
    assert_eq!(told(Some(task("a")), left("one")), (project.clone(), text.to_owned()));
    let text = "A result was not merged into main, and its changes are still in /srv/shop. Look at \
                git status there, and commit or undo them";
    let unknown = LeftMerge { files: Vec::new(), ..left("one") };
    assert_eq!(told(None, unknown), (project, text.to_owned()));
}

fn upgrade(n_free: u64) -> WaitingUpgrade {
    WaitingUpgrade { project: "shop".parse().unwrap(), n_bytes: 3 << 30, n_free }
}

#[test]
fn an_upgrade_without_room_is_one_entry_of_its_project_that_names_the_bytes() {
    let entry = |n_free| Attention { cause: Cause::Upgrade(upgrade(n_free)), since: None };
    let text = "Its tasks wait: the next step copies 3.0 GiB once, but only 1.0 MiB are free";
    assert_eq!(entry(1 << 20).text(Language::English), text);
    assert_eq!(entry(1 << 20).project(), Some(&"shop".parse().unwrap()));
    assert_eq!(entry(1 << 20).id(), entry(2 << 20).id());
}

fn all() -> Vec<Attention> {
    let start = |reason| {
        let detail = match reason {
            StartReason::NoPasskey | StartReason::WorkspaceDisk => {
                Some("these are the figures behind it".to_owned())
            }
            _ => None,
        };
        let last_end = Some((Outcome::StartFailed("no such file is there".to_owned()), None));
        let waiting = Waiting { detail, last_end, ..Waiting::of(WaitReason::Start(reason)) };
        Cause::Start { key: key(), waiting }
    };
    let account = |class| Cause::Account {
        provider: "codex".to_owned(),
        class,
        until: at(60),
        tried_by: None,
    };
    let forge = |is_refused| Cause::Forge {
        forge: ForgeKind::GitHub,
        host: "github.com".to_owned(),
        is_refused,
        error: Some("the server says no to this".to_owned()),
    };
    let launch: LaunchId = "lnc_1".parse().unwrap();
    let causes = [
        account(FailureClass::Auth),
        account(FailureClass::Quota),
        start(StartReason::Suspended),
        start(StartReason::Misconfigured),
        start(StartReason::NoPasskey),
        start(StartReason::WorkspaceDisk),
        Cause::Blocked { task: task("a"), has_failed: true, reason: Some("no key".to_owned()) },
        Cause::Blocked { task: task("a"), has_failed: false, reason: None },
        Cause::Chain { task: task("a"), after: "SHOP-3".parse().unwrap() },
        Cause::Workspace {
            task: task("a"),
            reason: Some("there is no such branch".to_owned()),
            revision: 1,
        },
        Cause::Result(WaitingResult::ToMerge {
            task: task("a"),
            n_additions: 2,
            n_deletions: 1,
            tips: Vec::new(),
        }),
        Cause::Result(WaitingResult::Files { task: task("a"), n_files: 3, tips: Vec::new() }),
        Cause::Result(WaitingResult::NotKept {
            task: task("a"),
            entries: vec![".git/objects: there are more than 8 objects".to_owned()],
        }),
        Cause::Result(WaitingResult::Undecided {
            task: task("a"),
            tips: ["one", "two", "three", "four"].map(str::to_owned).to_vec(),
        }),
        Cause::Result(WaitingResult::Conflict { task: task("a"), conflict: conflict() }),
        Cause::Result(WaitingResult::Left { task: Some(task("a")), merge: left("one") }),
        Cause::Result(WaitingResult::Left { task: None, merge: left("two") }),
        Cause::Result(WaitingResult::Many {
            project: "shop".parse().unwrap(),
            name: "Shop".to_owned(),
            n: 12,
        }),
        Cause::Upgrade(upgrade(1 << 20)),
        Cause::Unkillable { launch: launch.clone(), key: key() },
        Cause::Abandoned { launch, key: key() },
        Cause::SilentCoordinator {
            coordinator: "crd_1".parse().unwrap(),
            machine: None,
            n_running: 2,
        },
        Cause::NoCoordinator,
        Cause::Configuration { problem: "line 3: what is this?".to_owned() },
        forge(true),
        forge(false),
        Cause::Write(RefusedWrite {
            key: ItemKey::example(),
            title: "Sell tea".to_owned(),
            url: String::new(),
            write: PendingWrite::Push,
            is_refused: true,
            error: Some("the server says no to this".to_owned()),
            task: Some(task("a")),
        }),
    ];
    causes.into_iter().map(|cause| Attention { cause, since: Some(at(1)) }).collect()
}

#[test]
fn each_kind_has_entries_with_words_in_both_languages() {
    for kind in AttentionKind::ALL {
        assert!(all().iter().any(|entry| entry.kind() == *kind), "{kind}");
    }
    for entry in all() {
        let (english, japanese) = (Language::English, Language::Japanese);
        assert!(!entry.text(english).is_empty() && !entry.title(japanese).is_empty());
        if entry.task().is_none() && entry.key().is_none() {
            assert_ne!(entry.title(english), entry.title(japanese), "{entry:?}");
        }
    }
}

/// Returns a text without what is between backquotes.
fn without_commands(text: &str) -> String {
    text.split('`').step_by(2).collect()
}

#[test]
fn no_english_sentence_is_in_a_japanese_entry() {
    let japanese = Language::Japanese;
    // Two words may be names, as those of a forge and its host.
    let sentence = |text: &str| {
        let is_word = |word: &&str| word.starts_with(|c: char| c.is_ascii_alphabetic());
        let words: Vec<&str> = text.split(' ').collect();
        words.windows(3).any(|words| words.iter().all(&is_word))
    };
    for entry in all() {
        let remedy = entry.remedy(japanese);
        assert_eq!(remedy.is_some(), entry.remedy(Language::English).is_some(), "{entry:?}");
        for text in [entry.text(japanese), without_commands(&remedy.unwrap_or_default())] {
            assert!(!sentence(&text), "{}: {text}", entry.kind());
        }
        if entry.task().is_none() {
            assert!(!sentence(&entry.title(japanese)), "{}", entry.kind());
        }
    }
    let errors = all().iter().filter(|entry| entry.detail_in_english().is_some()).count();
    assert_eq!(errors, 8, "the errors can be read apart");
}

#[test]
fn an_id_stays_until_the_condition_comes_again() {
    let first = blocked("a", 10);
    let reworded = Attention {
        cause: Cause::Blocked {
            task: TaskInNeed { title: "Sell coffee".to_owned(), ..task("a") },
            has_failed: false,
            reason: Some("no key".to_owned()),
        },
        ..first.clone()
    };
    assert_eq!(first.id(), reworded.id());
    assert_ne!(first.id(), blocked("a", 11).id());
    assert_ne!(first.id(), blocked("b", 10).id());
    let mut ids: Vec<_> = all().iter().map(Attention::id).collect();
    ids.sort();
    let n = ids.len();
    ids.dedup();
    // An account, a forge and a task have one of their two entries at a time.
    assert_eq!(ids.len(), n - 3);
}

#[test]
fn accounts_come_first_and_the_newest_of_each_group() {
    let mut entries = all();
    entries.extend([blocked("old", 0), blocked("new", 50)]);
    sort(&mut entries);
    let kinds: Vec<_> = entries.iter().map(Attention::kind).collect();
    assert_eq!(kinds[..2], [AttentionKind::Account; 2]);
    let groups: Vec<_> = kinds.iter().map(|kind| kind.group()).collect();
    assert!(groups.is_sorted());
    let blocked: Vec<_> = entries
        .iter()
        .filter(|entry| entry.kind().group() == AttentionGroup::Blocked)
        .filter_map(|entry| entry.since)
        .collect();
    assert_eq!((blocked[0], blocked.last()), (at(50), Some(&at(0))));
}

#[test]
fn what_is_put_off_comes_again_and_what_is_done_does_not() {
    let item = blocked("a", 1).id();
    let mark =
        |until| Mark { item: item.clone(), person: "ann".to_owned(), until, marked_at: at(10) };
    assert_eq!(mark(Some(at(20))).state_at(at(19)), AttentionState::Later);
    assert_eq!(mark(Some(at(20))).state_at(at(20)), AttentionState::Open);
    assert_eq!(mark(None).state_at(at(20)), AttentionState::Done);
    assert!(!mark(Some(at(20))).is_read(), "it comes again as a new one");
    let read = Mark::read(item.clone(), "ann".to_owned(), at(10));
    assert_eq!(read.state_at(at(10)), AttentionState::Open);
    assert!(read.is_read() && mark(None).is_read());
}
