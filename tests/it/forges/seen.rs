//! The operators' view of forges, and webhooks, which save the wait for the next look.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use domain::forge::ForgeKind;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::{BOT, Bed};
use crate::daemon::Daemon;
use crate::forge::fake::{Fake, Fault, Times};
use crate::support::until;

const SECRET: &str = "whatever was agreed upon";

/// Returns a daemon that looks at its forges only when a webhook comes.
fn patient(fake: &Fake, forge: ForgeKind) -> Daemon {
    let settings =
        Bed::settings(fake, forge, "").replace("poll_interval: 100ms", "poll_interval: 1h");
    let webhook = format!("webhook: {{ secret: '{SECRET}' }}");
    let settings =
        settings.replace("write_interval: 0s", &format!("write_interval: 0s, {webhook}"));
    let daemon = Daemon::running(&format!("http: {{ listen: '127.0.0.1:0' }}\n{settings}"));
    daemon.project("prj");
    daemon.agent("agt", "prj", &["authenticate", "get-my-task", "report:success"]);
    daemon
}

/// Sends a webhook and returns the status of the answer.
fn post(daemon: &Daemon, header: &str, body: &str) -> u16 {
    let port = std::fs::read_to_string(daemon.state().join("http_port")).unwrap();
    let mut stream = TcpStream::connect(format!("127.0.0.1:{}", port.trim())).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST /webhooks/forge HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nX-GitHub-Event: issues\r\n{header}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

fn signed(body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    let mut header = "X-Hub-Signature-256: sha256=".to_owned();
    for byte in mac.finalize().into_bytes() {
        write!(header, "{byte:02x}").unwrap();
    }
    header
}

#[test]
fn a_signed_webhook_makes_the_daemon_look_at_once() {
    for forge in [ForgeKind::GitHub, ForgeKind::GitLab] {
        let fake = Fake::start();
        let repository = fake.repository(forge, super::NAME);
        let daemon = patient(&fake, forge);
        until("the first look is over", || {
            daemon.status()["forges"][0]["repositories"][0]["seen_at"].is_string()
        });
        let issue = repository.issue("Login fails");
        issue.label("coding agent").assign(BOT);
        fake.forget_requests();

        let body = r#"{"action":"assigned"}"#;
        assert_eq!(post(&daemon, "X-Hub-Signature-256: sha256=00", body), 401);
        assert_eq!(post(&daemon, "X-Gitlab-Token: guessed", body), 401);
        assert_eq!(post(&daemon, "X-Other: nothing", body), 401);
        assert_eq!(post(&daemon, &signed("another body"), body), 401);
        assert_eq!(fake.requests().len(), 0, "nobody was woken by them");
        let header = match forge {
            ForgeKind::GitHub => signed(body),
            ForgeKind::GitLab => format!("X-Gitlab-Token: {SECRET}"),
        };
        assert_eq!(post(&daemon, &header, body), 202);
        until("it is done", || issue.labels() == ["coding agent done"]);
        assert!(!daemon.log().contains(SECRET));
    }
}

#[test]
fn unsigned_webhooks_take_no_memory_and_keep_no_signed_one_out() {
    const BODY: usize = 20 * 1024 * 1024;
    let fake = Fake::start();
    let repository = fake.repository(ForgeKind::GitHub, super::NAME);
    let daemon = patient(&fake, ForgeKind::GitHub);
    until("the first look is over", || {
        daemon.status()["forges"][0]["repositories"][0]["seen_at"].is_string()
    });
    let before = daemon.resident_kib();
    let port = std::fs::read_to_string(daemon.state().join("http_port")).unwrap();
    let unsigned: Vec<TcpStream> = (0..28)
        .map(|n| {
            // Some of them have the head of a webhook.
            let signature = if n % 4 == 0 { signed("another body") } else { "X-Other: nothing".to_owned() };
            let mut stream = TcpStream::connect(format!("127.0.0.1:{}", port.trim())).unwrap();
            write!(
                stream,
                "POST /webhooks/forge HTTP/1.1\r\nHost: 127.0.0.1\r\nX-GitHub-Event: issues\r\n{signature}\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                BODY + 1
            )
            .unwrap();
            // The client writes as much as the daemon takes. One byte is missing at the end.
            stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
            let _ = stream.write_all(&vec![b' '; BODY]);
            stream
        })
        .collect();
    let issue = repository.issue("Login fails");
    issue.label("coding agent").assign(BOT);
    let body = r#"{"action":"assigned"}"#;
    assert_eq!(post(&daemon, &signed(body), body), 202);
    let grown = daemon.resident_kib().saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} KiB");
    until("it is done", || issue.labels() == ["coding agent done"]);
    drop(unsigned);
}

#[test]
fn what_is_owed_and_why_it_is_not_done_is_seen() {
    let bed = Bed::new(ForgeKind::GitHub, &["authenticate", "get-my-task", "sleep:600"]);
    let issue = bed.issue("Login fails");
    bed.until("processing");
    let fault = Fault::status(403)
        .header("retry-after", "3600")
        .saying("You have exceeded a secondary rate limit");
    bed.fake.fail("GET *", Times::Always, fault);
    until("the limit is seen", || bed.daemon.status()["forges"][0]["health"] == "limited");
    let status = bed.daemon.status();
    assert!(status["forges"][0]["limited_until"].is_string(), "{status}");
    assert_eq!(status["forge_items"][0]["item"], "ann/site#1");
    assert!(
        status["forge_items"][0]["url"].as_str().unwrap().contains("/ann/site/issues/1"),
        "{status}"
    );
    let page = bed.daemon.page("/ui/parts/operations", "en");
    assert!(page.contains("rate-limited") && page.contains("/ann/site/issues/1\""), "{page}");
    let task = status["forge_items"][0]["task_id"].as_str().unwrap();
    let panel = bed.daemon.page(&format!("/ui/parts/tasks/{task}"), "en");
    assert!(panel.contains(">ann/site#1</a>"), "{panel}");
    assert!(panel.contains("Created from <a ") && panel.contains("</a> in progress"), "{panel}");
    assert_eq!(status["forge_items"][0]["task_short_id"], "PRJ-1");
    let listed = bed.daemon.done(&["forge", "list"]);
    assert!(listed.contains("PRJ-1") && !listed.contains(task), "{listed}");
    let wide = bed.daemon.done(&["forge", "list", "--wide"]);
    assert!(wide.contains(task) && wide.contains("/ann/site/issues/1"), "{wide}");
    // A person cancels the work here. The pending writes wait for the host.
    let task = status["forge_items"][0]["task_id"].as_str().unwrap().to_owned();
    bed.daemon.done(&["task", "set", &task, "--status", "cancelled"]);
    bed.daemon.done(&["stop", "agt", "prj"]);
    until("it is owed", || bed.items()[0]["owed"].as_array().is_some_and(|owed| owed.len() >= 3));
    let text = bed.daemon.done(&["status"]);
    assert!(text.contains("limited for") && text.contains("label stopped"), "{text}");
    assert_eq!(issue.labels(), ["coding agent processing"]);
}

#[test]
fn an_item_that_is_over_is_not_tried_again() {
    let bed = Bed::new(ForgeKind::GitHub, &["authenticate", "get-my-task", "report:success"]);
    bed.fake.fail("GET *comments", Times::Always, Fault::status(500));
    let issue = bed.issue("Login fails");
    until("its claim fails", || {
        bed.items().first().is_some_and(|item| item["retry_at"].is_string())
    });
    issue.unassign(BOT);
    bed.fake.mend();
    let item = bed.until("stopped");
    assert!(item["retry_at"].is_null(), "{item}");
    let text = bed.daemon.done(&["forge", "list", "--ended"]);
    assert!(text.contains("stopped (unassigned)") && !text.contains("again in"), "{text}");
}
