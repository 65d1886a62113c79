//! Web pages can reach a loopback port through their reader's browser. The server refuses their
//! requests.

use super::{HEALTH, JSON, LISTENING, Web};
use crate::daemon::Daemon;

/// Returns the answer to a call with this Host and these headers.
fn call(web: &mut Web, host: &str, headers: &str) -> super::Answer {
    let length = HEALTH.len();
    web.send(format!(
        "POST /mcp HTTP/1.1\r\n{host}{headers}{JSON}Content-Length: {length}\r\n\r\n{HEALTH}"
    ));
    web.receive().unwrap()
}

#[test]
fn only_requests_for_this_server_are_answered() {
    let settings = "http: { listen: '127.0.0.1:0', allowed_hosts: [coordinator.example, 'proxy.example:8443'] }\n";
    let daemon = Daemon::running(settings);
    let web = &mut Web::to(&daemon);
    let own = format!("Host: {}\r\n", super::address(&daemon));
    for host in [
        &own,
        "Host: localhost:1\r\n",
        "Host: [::1]\r\n",
        "Host: Coordinator.Example\r\n",
        "Host: proxy.example:8443\r\n",
    ] {
        assert_eq!(call(web, host, "").status, 200, "{host}");
    }
    for host in [
        "evil.example",
        "evil.example:7420",
        "localhost.evil.example",
        "proxy.example",
        "10.0.0.1",
        "",
        "a b",
    ] {
        let answer = call(web, &format!("Host: {host}\r\n"), "");
        answer.check_problem(
            403,
            "host_not_allowed",
            &format!("does not answer for the host `{host}`"),
        );
        // Other requests are refused, too.
        let answer = web.get("/health/live", &format!("Host: {host}\r\n"));
        answer.check_problem(403, "host_not_allowed", host);
    }
    call(web, "", "").check_problem(400, "no_host", "no Host header");
    call(web, "Host: localhost\r\nHost: evil.example\r\n", "").check_problem(
        400,
        "repeated_header",
        "`host`",
    );
    // This is a request in the form for a proxy.
    web.send("GET http://evil.example/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n");
    web.receive().unwrap().check_problem(403, "host_not_allowed", "evil.example");
    web.check_well();
}

#[test]
fn only_pages_of_this_server_may_call() {
    let daemon = Daemon::running(LISTENING);
    let web = &mut Web::to(&daemon);
    let host = "Host: localhost\r\n";
    for origin in
        ["http://localhost", "https://localhost:3000", "http://127.0.0.1:8080", "http://[::1]"]
    {
        assert_eq!(call(web, host, &format!("Origin: {origin}\r\n")).status, 200, "{origin}");
    }
    for origin in [
        "null",
        "http://evil.example",
        "https://localhost.evil.example",
        "file://",
        "chrome-extension://abc",
        "",
    ] {
        let answer = call(web, host, &format!("Origin: {origin}\r\n"));
        answer.check_problem(403, "origin_not_allowed", &format!("pages of the origin `{origin}`"));
        web.get("/health/live", &format!("{host}Origin: {origin}\r\n")).check_problem(
            403,
            "origin_not_allowed",
            "",
        );
    }
    web.check_well();
}
