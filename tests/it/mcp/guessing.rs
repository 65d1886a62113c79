//! A client that guesses, or calls without end, is slowed down. Other clients are not affected.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{ByHand, MINE, check_refused, claim, credentials, world};
use crate::daemon::{Client, Daemon};
use crate::http::Web;

/// Sends calls without waiting for their answers.
fn send_all(client: &mut Client, calls: impl IntoIterator<Item = (&'static str, Value)>) -> usize {
    let mut n_sent = 0;
    for (tool, arguments) in calls {
        n_sent += 1;
        let params = json!({ "name": tool, "arguments": arguments });
        let call =
            json!({ "jsonrpc": "2.0", "id": n_sent, "method": "tools/call", "params": params });
        client.send(format!("{call}\n").as_bytes());
    }
    n_sent
}

fn code(answer: &Value) -> String {
    answer["result"]["structuredContent"]["error_code"].as_str().unwrap_or("none").to_owned()
}

/// Returns the codes of the next answers, in alphabetical order.
fn codes(client: &mut Client, n: usize) -> Vec<String> {
    let mut codes: Vec<String> =
        (0..n).map(|_| code(&client.receive().expect("an answer"))).collect();
    codes.sort();
    codes
}

#[test]
fn ids_that_vary_do_not_help_a_guesser() {
    let daemon = Daemon::crowded("", &world(MINE));
    let begun = Instant::now();
    for n in 0..5 {
        let answer =
            daemon.client().call("authenticate", &credentials(&format!("agt_{n}"), "guess", "prj"));
        check_refused(&answer, "invalid_credentials", "Invalid agent_id or passkey");
    }
    // The delays are 50, 100, 200, 400 and 800 milliseconds.
    assert!(begun.elapsed() > Duration::from_millis(1_500), "{:?}", begun.elapsed());
    let begun = Instant::now();
    ByHand::authenticate(&daemon, "agt_a");
    ByHand::authenticate(&daemon, "agt_b");
    assert!(
        begun.elapsed() < Duration::from_millis(500),
        "who is right waited {:?}",
        begun.elapsed()
    );
}

#[test]
fn guesses_at_once_are_refused_at_once_and_hold_nobody_up() {
    let bobs = "  tsk_b: { project: prj, title: t, assignee: agt_b, status: in_progress }\n";
    let daemon = Daemon::crowded("", &world(&format!("{MINE}{bobs}")));
    let ticket = claim(&daemon, "agt_b");
    let mut guesser = daemon.client();
    let guesses = |n: usize| (0..n).map(|_| ("authenticate", credentials("agt_a", "guess", "prj")));
    // Eight guesses are delayed, each longer than the one before, and further ones are refused at
    // once. Other calls are answered before them on the same connection, which has places for 64
    // calls.
    send_all(&mut guesser, guesses(60).chain([("health_check", json!({}))]));
    let mut answers = Vec::new();
    while answers.last().is_none_or(|answer: &Value| answer["id"] != 61) {
        answers.push(guesser.receive().unwrap());
    }
    assert!(
        answers.iter().filter(|answer| code(answer) == "invalid_credentials").count() < 8,
        "{answers:?}"
    );
    // The same process may use the right passkey of an agent without guesses, and any ticket.
    ByHand::with(&daemon, "agt_b", &ticket);
    answers.extend((answers.len()..61).map(|_| guesser.receive().unwrap()));
    let n_heard = answers.iter().filter(|answer| code(answer) == "invalid_credentials").count();
    assert!((8..16).contains(&n_heard), "{n_heard} of 60 guesses were looked at");
    // When none of its answers is delayed any more, its attempts are checked again.
    ByHand::authenticate(&daemon, "agt_a");
}

#[test]
fn too_many_attempts_are_told_to_wait_and_not_to_exit() {
    let daemon = Daemon::crowded("", &world(MINE));
    let mut guesser = daemon.client();
    send_all(&mut guesser, (0..9).map(|_| ("authenticate", credentials("agt_a", "guess", "prj"))));
    let first = guesser.receive().unwrap()["result"]["structuredContent"].clone();
    let expected = json!({
        "success": false, "error": "Too many wrong attempts at once", "error_code": "too_many_attempts",
        "hint": "wait 2 seconds and call again",
    });
    assert_eq!(first, expected);
}

#[test]
fn guesses_over_http_take_few_of_its_places() {
    let daemon = Daemon::running("http: { listen: '127.0.0.1:0' }");
    daemon.apply(&world(MINE));
    let address = daemon.status()["http"]["address"].as_str().unwrap().parse().unwrap();
    let guess =
        json!({ "name": "authenticate", "arguments": credentials("agt_a", "guess", "prj") });
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": guess }).to_string();
    let threads: Vec<_> = (0..40)
        .map(|_| {
            let body = body.clone();
            std::thread::spawn(move || {
                let answer = Web::connect(address)
                    .post("Content-Type: application/json\r\n", body.as_bytes())
                    .unwrap();
                code(&serde_json::from_str(&answer.body).unwrap())
            })
        })
        .collect();
    let codes: Vec<String> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let n_held = codes.iter().filter(|code| *code == "invalid_credentials").count();
    // Guesses that ended before the last ones came made room for others.
    assert!((8..20).contains(&n_held), "{codes:?}");
    assert_eq!(
        codes.iter().filter(|code| *code == "too_many_attempts").count(),
        40 - n_held,
        "{codes:?}"
    );
}

#[test]
fn an_agent_in_a_loop_is_told_to_wait_and_no_other_notices() {
    let daemon = Daemon::crowded("", &world(MINE));
    let (mut ann, mut bob) =
        (ByHand::authenticate(&daemon, "agt_a"), ByHand::authenticate(&daemon, "agt_b"));
    let call = || ("get_my_task", json!({ "session_token": ann.token }));
    let n_sent =
        send_all(&mut ann.client, std::iter::repeat_with(call).take(400).collect::<Vec<_>>());
    let codes = codes(&mut ann.client, n_sent);
    let n_limited = codes.iter().filter(|code| *code == "rate_limited").count();
    assert!(codes.iter().all(|code| code == "none" || code == "rate_limited"), "{codes:?}");
    // The limit is a hundred calls, and twenty for each second that this took.
    assert!((200..=300).contains(&n_limited), "{n_limited}");
    // The other refusals are only counted.
    let logged = daemon.logged("tool call refused");
    assert_eq!(
        logged.iter().filter(|line| line["reason"] == "rate_limited").count(),
        1,
        "{logged:?}"
    );
    assert_eq!(bob.get_my_task()["success"], true);
    let expected = json!({
        "success": false, "error": "Too many calls in a short time", "error_code": "rate_limited",
        "hint": "wait 1 second and call again",
    });
    let answer = crate::support::until_some("it is too much again", || {
        Some(ann.get_my_task()).filter(|answer| answer["success"] == false)
    });
    assert_eq!(answer, expected);
    let begun = Instant::now();
    crate::support::until("a second has passed", || begun.elapsed() > Duration::from_secs(1));
    assert_eq!(ann.get_my_task()["has_task"], true);
}
