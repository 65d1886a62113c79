//! One process guesses at passkeys, tokens and links over HTTP without pause. Few of its guesses
//! are checked, and no other client is delayed.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::json;

use super::entry::{OWN, log_in, token};
use super::{JSON, LISTENING, Web, address};
use crate::daemon::Daemon;
use crate::support::until;

const ANN: &str = "
agents: { agt_a: { name: Ann, passkey: key_a } }
projects: { prj_a: { working_directory: work, agents: [agt_a] } }
tasks: { tsk_a: { project: prj_a, title: by hand, assignee: agt_a, status: todo } }
";

impl Web {
    /// Opens a connection from this address of the loopback network.
    fn connect_from(source: Ipv4Addr, address: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let stream = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind((source, 0).into()).unwrap();
            socket.connect(address).await.unwrap().into_std().unwrap()
        });
        stream.set_nonblocking(false).unwrap();
        Self::over(stream)
    }

    /// Sends one wrong passkey. Returns whether it was checked.
    fn guess_passkey(&mut self) -> bool {
        let arguments = json!({ "agent_id": "agt_a", "passkey": "guess", "project_id": "prj_a" });
        let call = json!({ "name": "authenticate", "arguments": arguments });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call })
            .to_string();
        let answer = self.post(JSON, body.as_bytes()).unwrap();
        match answer.json()["result"]["structuredContent"]["error_code"].as_str().unwrap() {
            "invalid_credentials" => true,
            "too_many_attempts" => false,
            other => panic!("{other}"),
        }
    }
}

fn nth_loopback(n: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1, u8::try_from(n % 250 + 1).unwrap())
}

#[test]
fn guesses_from_all_loopback_addresses_are_those_of_one_host() {
    let daemon = Daemon::running(LISTENING);
    daemon.apply(ANN);
    let address = address(&daemon);
    let n_checked = std::thread::scope(|scope| {
        let guess = |n| move || Web::connect_from(nth_loopback(n), address).guess_passkey();
        let guesses: Vec<_> = (0..40).map(|n| scope.spawn(guess(n))).collect();
        guesses.into_iter().filter_map(|guess| guess.join().unwrap().then_some(())).count()
    });
    // Guesses that ended before the last ones came made room for others.
    assert!((8..20).contains(&n_checked), "{n_checked} of 40 guesses were checked");
}

#[test]
fn while_one_process_guesses_without_pause_agents_start_and_another_user_logs_in() {
    let daemon = Daemon::running(LISTENING);
    daemon.apply(ANN);
    let address = address(&daemon);
    let used = format!("Authorization: Bearer {}\r\n", token(&daemon, &[]));
    assert_eq!(Web::to(&daemon).ask("GET", "/api/status", &used, "").status, 200);
    let coordinator = std::fs::read_to_string(daemon.state().join("coordinator_token")).unwrap();
    let pair = json!({ "agent_id": "agt_a", "project_id": "prj_a", "coordinator_token": coordinator.trim() });
    assert_eq!(Web::to(&daemon).call("should_start", &pair)["reason"], "no_work");

    let began = Instant::now();
    let (stop, n_checked, n_refused) =
        (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        // The guard works even if an assertion fails, so that the threads end.
        let _guard = Stop(&stop);
        // This is twice the number of slots.
        for n in 0..48 {
            let (stop, n_checked, n_refused) = (&stop, &n_checked, &n_refused);
            scope.spawn(move || {
                let (mut web, mut n_guesses) = (Web::connect_from(nth_loopback(n), address), 0);
                while !stop.load(Ordering::Relaxed) {
                    let is_checked = match n % 3 {
                        0 => web.guess_passkey(),
                        1 => {
                            web.ask("GET", "/api/status", "Authorization: Bearer op_guess\r\n", "")
                                .status
                                != 429
                        }
                        _ => {
                            n_guesses += 1;
                            let wrong = json!({ "session_token": format!("sess_{n}_{n_guesses}") });
                            web.call("get_my_task", &wrong)["error_code"] != "too_many_attempts"
                        }
                    };
                    (if is_checked { n_checked } else { n_refused })
                        .fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        until("guesses are refused", || n_refused.load(Ordering::Relaxed) > 300);

        // The daemon starts this agent with its ticket.
        daemon.with_one_task(&["authenticate", "get-my-task", "report:success"]);
        assert_eq!(daemon.until_ended("agt")["outcome"], "completed");
        // A person starts this one on the socket.
        let by_hand = json!({ "agent_id": "agt_a", "passkey": "key_a", "project_id": "prj_a" });
        let opened = daemon.client().call("authenticate", &by_hand);
        assert_eq!(opened["success"], true, "{opened}");
        // A browser logs in with a new link, and a token and a coordinator still work.
        let cookie = log_in(&mut Web::to(&daemon), &daemon, &[]);
        for headers in
            [&cookie, &used, &format!("Authorization: Bearer {}\r\n", token(&daemon, &[]))]
        {
            assert_eq!(Web::to(&daemon).ask("GET", "/api/status", headers, "").status, 200);
        }
        assert_eq!(
            Web::to(&daemon).ask("POST", "/logout", &format!("{cookie}{OWN}"), "").status,
            303
        );
        assert_eq!(Web::to(&daemon).call("should_start", &pair)["should_start"], false);
    });
    // There are three throttles with eight slots each. Soon each answer is delayed by two seconds.
    let (n_checked, n_refused) = (n_checked.into_inner(), n_refused.into_inner());
    let most = 24 * (8 + began.elapsed().as_secs());
    assert!(
        n_checked < usize::try_from(most).unwrap(),
        "{n_checked} of {} were checked",
        n_checked + n_refused
    );
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
