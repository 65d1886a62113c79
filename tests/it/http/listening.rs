//! The address on which the daemon listens, and the conditions under which it does not start.

use std::net::{SocketAddr, TcpListener};

use super::{LISTENING, Web, address};
use crate::daemon::Daemon;

#[test]
fn a_chosen_port_is_kept_over_a_restart_and_given_up_when_it_is_taken() {
    let mut daemon = Daemon::running(LISTENING);
    let first = address(&daemon);
    assert_eq!(daemon.logged("ready")[0]["http"], first.to_string());
    assert!(daemon.done(&["status"]).contains(&format!("http://{first}/mcp")));
    // Connections of the earlier run may still be open.
    let mut web = Web::to(&daemon);
    web.check_well();
    daemon.terminate();
    assert!(web.receive().is_none());
    daemon.start();
    assert_eq!(address(&daemon), first);
    daemon.terminate();
    let in_the_way = TcpListener::bind(first).unwrap();
    daemon.start();
    let second = address(&daemon);
    assert_ne!(second, first);
    let warning =
        &daemon.logged("the port of the last time is taken; choosing another for HTTP")[0];
    assert_eq!(warning["port"], first.port());
    daemon.terminate();
    drop(in_the_way);
    daemon.start();
    assert_eq!(address(&daemon), second, "the other is kept from then on");
    Web::to(&daemon).check_well();
}

#[test]
fn a_fixed_port_that_is_taken_is_a_reason_not_to_start() {
    let in_the_way = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: SocketAddr = in_the_way.local_addr().unwrap();
    let mut daemon = Daemon::configured(&format!("http: {{ listen: '{address}' }}\n"));
    let (code, said) = daemon.refused();
    assert_eq!(code, Some(1), "{said}");
    let way_out =
        format!("could not listen on {address}; set http.listen to another port, to port 0");
    assert!(said.contains(&way_out) && said.contains("in use"), "{said}");
    assert!(!said.contains("checked the instances of earlier daemons"), "{said}");
    drop(in_the_way);
    daemon.start();
    assert_eq!(super::address(&daemon), address);
}

#[test]
fn without_http_there_is_no_address() {
    let daemon = Daemon::running("http: { listen: off }\n");
    assert!(daemon.status()["http"].is_null());
    assert!(!daemon.done(&["status"]).contains("HTTP"));
    assert!(daemon.logged("ready")[0]["http"].is_null());
}

#[test]
fn the_other_loopback_serves_too() {
    if TcpListener::bind("[::1]:0").is_err() {
        eprintln!("no IPv6 here: nothing to see");
        return;
    }
    let daemon = Daemon::running("http: { listen: '[::1]:0' }\n");
    assert!(address(&daemon).is_ipv6());
    Web::to(&daemon).check_well();
}

#[test]
fn other_machines_are_let_in_with_a_token_and_a_name_only() {
    let check = |settings: &str, words: &str| {
        let mut daemon = Daemon::configured(settings);
        let (code, said) = daemon.refused();
        assert_eq!(code, Some(78), "{said}");
        assert!(said.contains(words) && said.contains("coordinator_config.yaml:"), "{said}");
        assert_eq!(daemon.cli(&["check"]).code, 78);
    };
    check(
        "http: { listen: '0.0.0.0:0', allowed_hosts: [a.example] }\n",
        "`coordinator_token` is not set",
    );
    check(
        "http: { listen: '[::]:0' }\ncoordinator_token: a token\n",
        "and the names of this server are not listed",
    );
    check("http: { listen: '7420' }\n", "expected an address and a port");
    let daemon = Daemon::running(
        "http: { listen: '0.0.0.0:0', allowed_hosts: [a.example] }\ncoordinator_token: a token\n",
    );
    let port = address(&daemon).port();
    Web::connect(SocketAddr::from(([127, 0, 0, 1], port))).check_well();
}
