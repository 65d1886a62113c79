//! The clients' handling of refusals, faults and lost answers.

use std::time::{Duration, Instant};

use domain::forge::ForgeKind;
use forge::{ForgeError, FoundItem};

use super::fake::{Fault, TOKEN, Times};
use super::{BOTH, Bed, NAME};

/// Checks the result of a read and of a write that meet a fault, at both forges, and the number of
/// requests of a read.
#[track_caller]
fn check(fault: &Fault, expected: &str, n_reads: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for forge in BOTH {
        let timeout = if matches!(fault, Fault::Hang) {
            Duration::from_millis(300)
        } else {
            Duration::from_secs(20)
        };
        let bed = Bed::with_timeout(forge, timeout);
        let issue = bed.repository.issue("Login");
        bed.fake.fail("*", Times::Always, fault.clone());
        let (read, written) = runtime.block_on(async {
            let read = bed.client.comments(NAME, issue.kind, issue.number).await;
            (
                read.unwrap_err(),
                // The write uses another client, because a client that met a limit sends nothing
                // more.
                super::client(&bed.fake.url(forge), forge)
                    .with_timeout(timeout)
                    .add_comment(NAME, issue.kind, issue.number, "Hello.")
                    .await
                    .unwrap_err(),
            )
        });
        for error in [&read, &written] {
            let text = format!("{error:?}: {error}");
            assert!(text.starts_with(expected), "{forge}: {text}");
            assert!(!text.contains(TOKEN) && text.len() < 1_000, "{text}");
        }
        assert_eq!(bed.fake.n_requests("GET *"), n_reads, "{forge} {fault:?}");
        assert_eq!(bed.fake.n_requests("POST *"), 1, "writes are never repeated");
    }
}

#[test]
fn each_refusal_is_told_apart_and_asked_for_once() {
    check(&Fault::status(401), "Unauthorized", 1);
    check(&Fault::status(403), "Forbidden", 1);
    check(
        &Fault::status(403).saying("You have exceeded a secondary rate limit."),
        "Limited { wait: 60s",
        1,
    );
    check(&Fault::status(403).header("retry-after", "7"), "Limited { wait: 7s", 1);
    check(&Fault::status(429).header("retry-after", "120"), "Limited { wait: 120s", 1);
    check(&Fault::status(429), "Limited { wait: 60s", 1);
    check(&Fault::status(404), "NotFound { status: 404", 1);
    check(&Fault::status(410), "NotFound { status: 410", 1);
    check(
        &Fault::status(422).saying(&format!("no: {TOKEN} {}", "x".repeat(9_999))),
        "Refused { status: 422",
        1,
    );
    check(&Fault::status(304), "NotUnderstood", 1);
}

#[test]
fn a_redirect_is_told_and_not_followed() {
    for status in [301, 302, 307, 308] {
        let elsewhere = Fault::status(status).header("location", "/repos/ann/other");
        check(&elsewhere, &format!("Moved {{ status: {status}, to: \"/repos/ann/other\""), 1);
    }
}

#[test]
fn only_a_read_is_repeated_where_no_answer_came() {
    // Each takes a second because of the pauses before the repeats.
    std::thread::scope(|scope| {
        for fault in [Fault::status(500), Fault::status(503), Fault::Cut, Fault::CutBody] {
            scope.spawn(move || check(&fault, "Unavailable", 3));
        }
        scope.spawn(|| check(&Fault::Hang, "Unavailable", 1));
    });
}

#[test]
fn an_answer_that_is_none_is_not_understood() {
    check(&Fault::TruncatedJson, "NotUnderstood", 1);
    check(&Fault::WrongJson, "NotUnderstood", 1);
}

#[tokio::test]
async fn a_read_succeeds_when_its_repeat_does() {
    for forge in BOTH {
        for fault in [Fault::status(502), Fault::Cut, Fault::CutBody] {
            let bed = Bed::new(forge);
            let issue = bed.repository.issue("Login");
            bed.fake.fail("GET *", Times::N(1), fault);
            assert_eq!(bed.facts(&issue).await.title, "Login");
            assert_eq!(bed.fake.n_requests("GET *"), 2);
        }
    }
}

#[tokio::test]
async fn a_comment_whose_answer_was_lost_is_there_once() {
    for forge in BOTH {
        for fault in [Fault::LostAnswer, Fault::CutBody] {
            let bed = Bed::new(forge);
            let issue = bed.repository.issue("Login");
            bed.fake.fail("POST *", Times::Always, fault);
            let lost = bed.client.add_comment(NAME, issue.kind, issue.number, "Hello.").await;
            assert!(matches!(lost, Err(ForgeError::Unavailable { .. })), "{lost:?}");
            assert_eq!(issue.comments(), ["Hello."]);
            bed.fake.mend();
            bed.client.add_comment(NAME, issue.kind, issue.number, "Again.").await.unwrap();
            assert_eq!(issue.comments(), ["Hello.", "Again."]);
        }
    }
}

#[tokio::test]
async fn a_host_that_is_not_there_is_told_in_plain_words() {
    for forge in BOTH {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let client = super::client(&format!("http://127.0.0.1:{port}"), forge);
        let error = client.identity().await.unwrap_err().to_string();
        assert!(
            error.contains("no connection") && error.contains("refused") && error.contains("/user"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn gone_and_moved_items_are_answers() {
    for forge in BOTH {
        let bed = Bed::new(forge);
        let (deleted, hidden, moved) =
            (bed.repository.issue("a"), bed.repository.issue("b"), bed.repository.issue("c"));
        deleted.delete(410);
        hidden.delete(404);
        moved.transfer(&bed.fake.repository(forge, "ann/other"));
        assert_eq!(bed.find(&deleted).await, Ok(FoundItem::Gone));
        assert_eq!(bed.find(&hidden).await, Ok(FoundItem::Gone));
        let found = bed.find(&moved).await;
        assert!(matches!(&found, Ok(FoundItem::Moved(to)) if to.contains("issue")), "{found:?}");
        // A temporary redirect, or one of the whole host, proves nothing about an item.
        let path = |base: &str| match forge {
            ForgeKind::GitHub => format!("{base}/repos/ann/site/issues/3"),
            ForgeKind::GitLab => format!("{base}/gitlab/api/v4/projects/ann%2Fsite/issues/3"),
        };
        for fault in [
            Fault::status(307).header("location", "https://x.example/repositories/5/issues/1"),
            Fault::status(301).header("location", &path("https://x.example")),
        ] {
            bed.fake.fail("*", Times::N(1), fault);
            assert!(matches!(bed.find(&moved).await, Err(ForgeError::Moved { .. })));
        }
    }
}

#[tokio::test]
async fn an_item_without_assignees_is_no_answer_and_hides_no_other() {
    for forge in BOTH {
        let bed = Bed::new(forge);
        let kept = bed.repository.issue("kept");
        let nobodys = bed.repository.issue("nobody's");
        let null = serde_json::Value::Null;
        let broken = |field: &str, value: Option<serde_json::Value>| {
            let item = bed.repository.issue("broken");
            match value {
                Some(value) => item.say(field, value),
                None => item.omit(field),
            };
            item
        };
        let login = if forge == ForgeKind::GitHub { "login" } else { "username" };
        let broken = [
            broken("assignees", None),
            broken("assignees", Some(null.clone())),
            broken("assignees", Some(serde_json::json!([{ login: 5 }]))),
            broken("labels", None),
            broken("state", Some("frozen".into())),
        ];
        kept.assign(OWNER_AND_MORE[0]).assign(OWNER_AND_MORE[1]).set_author(None).say("cat", null);
        let since = super::Listing::ChangedSince("2026-01-01T00:00:00Z".to_owned());
        let (items, _) = bed.all(bed.client.feeds()[0], &since).await;
        assert_eq!(
            items.iter().map(|item| item.title.as_str()).collect::<Vec<_>>(),
            ["nobody's", "kept"]
        );
        assert_eq!(
            (items[0].assignees.len(), items[1].assignees.len(), &items[1].author),
            (0, 2, &None)
        );
        for item in &broken {
            let error = bed.find(item).await.unwrap_err();
            assert!(matches!(error, ForgeError::NotUnderstood { .. }), "{error}");
        }
        let error = bed.find(&broken[0]).await.unwrap_err().to_string();
        assert!(error.contains("`assignees`"), "{error}");
        assert_eq!(bed.facts(&nobodys).await.assignees, []);
    }
}

const OWNER_AND_MORE: [&str; 2] = [super::OWNER, "bob"];

#[test]
fn nothing_shows_the_token() {
    let github = super::client("https://api.github.com", ForgeKind::GitHub);
    let gitlab = super::client("https://code.example/gitlab", ForgeKind::GitLab);
    assert_eq!(
        (github.host().name(), gitlab.host().name()),
        ("api.github.com", "code.example/gitlab")
    );
    assert!(!format!("{github:?}{gitlab:?}").contains(TOKEN));
}

#[tokio::test]
async fn writes_are_as_far_apart_as_is_wanted_and_reads_wait_for_none() {
    const APART: Duration = Duration::from_millis(200);
    for forge in BOTH {
        let bed = Bed::new(forge);
        let issue = bed.repository.issue("Login");
        let client = super::try_client(&bed.fake.url(forge), forge, APART).unwrap();
        let write = || client.add_comment(NAME, issue.kind, issue.number, "Hello.");
        let began = Instant::now();
        client.comments(NAME, issue.kind, issue.number).await.unwrap();
        let (one, two, three) = tokio::join!(write(), write(), write());
        one.and(two).and(three).unwrap();
        assert!(began.elapsed() >= 2 * APART, "{:?}", began.elapsed());
        assert_eq!(issue.comments().len(), 3);
    }
}
