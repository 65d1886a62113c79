//! Tests of the sentences of waits.

use super::*;
use crate::plan::InUse;

#[test]
fn each_reason_has_its_own_sentence_in_both_languages() {
    for language in [Language::English, Language::Japanese] {
        let mut sentences: Vec<String> = StartReason::ALL
            .iter()
            .map(|reason| Waiting::of(WaitReason::Start(*reason)).sentence(language))
            .collect();
        sentences.sort();
        let n = sentences.len();
        sentences.dedup();
        assert_eq!(sentences.len(), n);
        for reason in StartReason::ALL {
            let sentence = Waiting::of(WaitReason::Start(*reason)).sentence(language);
            assert!(!sentence.contains('_'), "{sentence}");
        }
    }
}

#[test]
fn a_japanese_sentence_leaves_out_what_exists_in_english_only() {
    let full = Waiting {
        detail: Some("1.2 GiB free, and 5 GiB is the least".to_owned()),
        ..Waiting::of(WaitReason::Start(StartReason::LowDisk))
    };
    assert_eq!(full.sentence(Language::Japanese), "ディスクの空き不足");
    assert_eq!(full.detail_in_english(), full.detail.as_deref());
    let blocked =
        Waiting { detail: Some("which bank?".to_owned()), ..Waiting::of(WaitReason::Blocked) };
    assert_eq!(blocked.sentence(Language::Japanese), "which bank?", "a person wrote it");
    assert_eq!(blocked.detail_in_english(), None);
    let suspended = Waiting {
        n_failures: 5,
        last_end: Some((Outcome::ExitedWithoutReport, Some("bye".to_owned()))),
        ..Waiting::of(WaitReason::Start(StartReason::Suspended))
    };
    let english = suspended.sentence(Language::English);
    assert_eq!(english, "Failed 5 times in a row: No report: bye");
    assert_eq!(suspended.sentence(Language::Japanese), "5 回連続で失敗: 報告なし: bye");
}

#[test]
fn a_task_shows_the_wait_of_its_agent_only_while_it_is_in_progress() {
    let held = Waiting::of(WaitReason::Start(StartReason::Held));
    let of = |status, agent| Waiting::of_task(status, true, None, agent);
    let waits = || Some(held.clone());
    assert_eq!(of(TaskStatus::InProgress, waits()), waits());
    assert_eq!(of(TaskStatus::InProgress, None), None);
    for status in [TaskStatus::Backlog, TaskStatus::Todo, TaskStatus::Done] {
        assert_eq!(of(status, waits()), None);
    }
    let first = Waiting::of(WaitReason::OtherTaskFirst("SHOP-12".parse().unwrap()));
    assert_eq!(first.sentence(Language::English), "Runs SHOP-12 first");
    let alone = Waiting::of_task(TaskStatus::Todo, false, None, None).unwrap();
    assert_eq!(alone.action(), Some(WaitAction::Assign));
}

#[test]
fn a_blocked_task_shows_the_reason_that_was_given() {
    let of = |reason| {
        let waiting = Waiting::of_task(TaskStatus::Blocked, true, reason, None).unwrap();
        waiting.sentence(Language::English)
    };
    assert_eq!(of(Some("waits for the security team")), "waits for the security team");
    assert_eq!(of(None), "Blocked, and no reason was given");
    let facts = WaitFacts { stopped_by: Some("Ann".to_owned()), ..WaitFacts::default() };
    let by_ann = Waiting { facts: Some(Box::new(facts)), ..Waiting::of(WaitReason::Blocked) };
    assert_eq!(by_ann.sentence(Language::English), "Blocked by Ann, who gave no reason");
    assert_eq!(by_ann.sentence(Language::Japanese), "Ann がブロック（理由の記載なし）");
}

#[test]
fn a_parked_account_needs_a_person_only_if_its_login_failed() {
    let of = |class| Waiting {
        account: Some(("codex".to_owned(), class)),
        ..Waiting::of(WaitReason::Start(StartReason::Parked))
    };
    let auth = of(FailureClass::Auth);
    assert!(auth.needs_person() && auth.sentence(Language::English).contains("codex is not"));
    assert!(!of(FailureClass::Quota).needs_person());
    assert_eq!(auth.action(), Some(WaitAction::TryProvider));
}

#[test]
fn a_sentence_names_the_person_the_objects_and_the_limit() {
    let facts = WaitFacts {
        agent: Some("Ada".to_owned()),
        project: Some("Shop".to_owned()),
        ai_type: Some("claude".to_owned()),
        inactive: Some(Inactive::Project),
        held_since: Some(Timestamp::from_millis(1)),
        stopped_by: Some("Ann".to_owned()),
        paused_since: Some(Timestamp::from_millis(2)),
        dependency: Some("SHOP-1".to_owned()),
        in_use: Some(InUse { n_running: 2, limit: 2 }),
        host: Some("build-1".to_owned()),
        n_ahead: 3,
        chat: None,
        silent_host: Some(SilentHost {
            coordinator: "build-1".parse().unwrap(),
            machine: None,
            heard_at: Timestamp::from_millis(3),
        }),
    };
    let told = |reason, facts: &WaitFacts| {
        let facts = Some(Box::new(facts.clone()));
        let waiting = Waiting { facts, ..Waiting::of(reason) };
        assert_eq!(
            waiting.begins_with_name(),
            ["Ann", "Ada", "Shop", "SHOP-1", "build", "claude"]
                .iter()
                .any(|name| waiting.sentence(Language::English).starts_with(name)),
            "{waiting:?}"
        );
        let since = waiting.since().map(Timestamp::as_millis);
        (waiting.sentence(Language::English), waiting.sentence(Language::Japanese), since)
    };
    let check = |reason, english: &str, japanese: &str, since| {
        let expected = (english.to_owned(), japanese.to_owned(), since);
        assert_eq!(told(reason, &facts), expected);
    };
    let start = WaitReason::Start;
    check(start(StartReason::Held), "Ann stopped it", "Ann が停止", Some(1));
    check(start(StartReason::Paused), "Starts are paused", "起動を一時停止中", Some(2));
    check(start(StartReason::NotAssigned), "Not assigned to Shop", "Shop に未割り当て", None);
    check(start(StartReason::Inactive), "Shop is deactivated", "Shop は無効", None);
    let archived = WaitFacts { inactive: Some(Inactive::ArchivedAgent), ..facts.clone() };
    let expected = ("Ada is archived".to_owned(), "Ada はアーカイブ済み".to_owned(), None);
    assert_eq!(told(start(StartReason::Inactive), &archived), expected);
    let disk = ("Too little disk free on build-1", "build-1 のディスクの空き不足");
    check(start(StartReason::LowDisk), disk.0, disk.1, None);
    let memory = ("Too little memory free on build-1", "build-1 のメモリーの空き不足");
    check(start(StartReason::LowMemory), memory.0, memory.1, None);
    let choice = (
        "SHOP-1 has several results; `task result SHOP-1 --take BRANCH` takes one",
        "SHOP-1 に結果が複数あり、`task result SHOP-1 --take BRANCH` での選択待ち",
    );
    check(start(StartReason::ResultToChoose), choice.0, choice.1, None);
    let queue = ("No free slot", "空きスロットなし（先に 3 件）");
    check(start(StartReason::NoFreeSlot), queue.0, queue.1, None);
    let limit = |name: &str| format!("{name} は上限 2 件中 2 件を実行中");
    check(start(StartReason::ProjectLimit), "Shop runs 2 of 2", &limit("Shop"), None);
    check(start(StartReason::AgentLimit), "Ada runs 2 of 2", &limit("Ada"), None);
    let provider = (start(StartReason::ProviderLimit), "claude runs 2 of 2");
    check(provider.0, provider.1, &limit("claude"), None);
    let silent = ("build-1 does not answer", "build-1 が応答なし");
    check(start(StartReason::NoCoordinator), silent.0, silent.1, Some(3));
    check(WaitReason::HostSilent, silent.0, silent.1, Some(3));
    let unknown = told(start(StartReason::Held), &WaitFacts::default());
    assert_eq!(unknown, ("A person stopped it".to_owned(), "人が停止".to_owned(), None));
}

#[test]
fn each_placeholder_of_a_sentence_has_a_value() {
    let facts = WaitFacts {
        agent: Some("Ada".to_owned()),
        project: Some("Shop".to_owned()),
        ai_type: Some("claude".to_owned()),
        inactive: Some(Inactive::Agent),
        stopped_by: Some("Ann".to_owned()),
        dependency: Some("SHOP-1".to_owned()),
        in_use: Some(InUse { n_running: 2, limit: 2 }),
        host: Some("build-1".to_owned()),
        n_ahead: 3,
        ..WaitFacts::default()
    };
    for reason in StartReason::ALL.iter().filter(|reason| reason.row().named.is_some()) {
        let waiting = Waiting {
            n_failures: 5,
            account: Some(("claude".to_owned(), FailureClass::Quota)),
            facts: Some(Box::new(facts.clone())),
            ..Waiting::of(WaitReason::Start(*reason))
        };
        assert!(waiting.named_sentence(*reason, Language::Japanese).is_some(), "{reason}");
    }
}

#[test]
fn an_agent_that_may_start_or_runs_does_not_wait() {
    let waits = |reason| Waiting::of_start(reason).is_some();
    assert!(!waits(StartReason::Ready) && !waits(StartReason::Running));
    assert!(waits(StartReason::Stopping) && waits(StartReason::NoFreeSlot));
}
