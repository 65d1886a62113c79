//! Access over HTTP, and its rights: links, cookies and tokens, and all mistakes with them.

use serde_json::{Value, json};

use super::{Answer, LISTENING, Web, address};
use crate::daemon::Daemon;
use crate::support::until;

/// Returns a link that `login` printed: its path and its secret.
pub(super) fn link(daemon: &Daemon, more: &[&str]) -> (String, String) {
    let printed = daemon.done(&[&["login"], more].concat());
    let base = format!("http://{}/login?link=", address(daemon));
    let secret =
        printed.strip_prefix(&base).unwrap_or_else(|| panic!("{printed}")).trim_end().to_owned();
    assert!(secret.starts_with("op_") && printed.lines().count() == 1, "{printed}");
    (format!("/login?link={secret}"), secret)
}

pub(super) fn token(daemon: &Daemon, more: &[&str]) -> String {
    let printed = daemon.done(&[&["token", "create"], more].concat());
    assert!(
        printed.starts_with("op_") && printed.ends_with('\n') && printed.lines().count() == 1,
        "{printed}"
    );
    printed.trim_end().to_owned()
}

impl Web {
    /// Sends any request, with these headers beside Host.
    pub fn ask(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let length = body.len();
        self.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost:7420\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        ));
        self.receive().unwrap()
    }

    /// Presses the button of the page of a link.
    pub(super) fn press(&mut self, secret: &str, headers: &str) -> Answer {
        self.ask("POST", "/login", &format!("{headers}{FORM}"), &format!("link={secret}"))
    }
}

const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";
pub(super) const OWN: &str = "Origin: http://localhost:7420\r\n";

/// Returns the header of a browser that has just logged in.
pub(super) fn log_in(web: &mut Web, daemon: &Daemon, more: &[&str]) -> String {
    let (_, secret) = link(daemon, more);
    let answer = web.press(&secret, OWN);
    assert_eq!((answer.status, answer.header("location")), (303, Some("/")), "{answer:?}");
    let (cookie, _) = answer.header("set-cookie").unwrap().split_once(';').unwrap();
    format!("Cookie: other=1; {cookie}\r\n")
}

#[test]
fn a_link_logs_one_browser_in_and_looking_at_it_uses_nothing_up() {
    let daemon = Daemon::running(LISTENING);
    let web = &mut Web::to(&daemon);
    let (path, secret) = link(&daemon, &["--name", "Ann <b>"]);
    for _ in 0..3 {
        let page = web.get(&path, "Host: localhost\r\n");
        assert_eq!(
            (page.status, page.header("content-type")),
            (200, Some("text/html; charset=utf-8")),
            "{page:?}"
        );
        assert!(page.body.contains("Ann &#60;b&#62;") && page.body.contains("<button"), "{page:?}");
    }
    let answer = web.press(&secret, OWN);
    assert_eq!((answer.status, answer.header("location")), (303, Some("/")), "{answer:?}");
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.starts_with("agent_coordinator_session=op_"), "{cookie}");
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000"), "{cookie}");
    assert!(!cookie.contains(&secret));
    let mine = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
    assert_eq!(web.ask("GET", "/api/status", &mine, "").status, 200);
    // The link was for one login.
    for answer in [web.press(&secret, OWN), web.get(&path, "Host: localhost\r\n")] {
        assert_eq!(answer.status, 403, "{answer:?}");
        assert!(
            answer.body.contains("was already used") && answer.header("set-cookie").is_none(),
            "{answer:?}"
        );
    }
    let japanese = web.get(&path, "Host: localhost\r\nAccept-Language: ja\r\n");
    assert!(japanese.body.contains("このリンクは使用済みです"), "{japanese:?}");
    // This is the logout.
    let answer = web.ask("POST", "/logout", &format!("{mine}{OWN}"), "");
    assert_eq!((answer.status, answer.header("location")), (303, Some("/login")), "{answer:?}");
    assert!(answer.header("set-cookie").unwrap().contains("Max-Age=0"));
    web.ask("GET", "/api/status", &mine, "").check_problem(
        401,
        "not_authenticated",
        "needs a token",
    );
}

#[test]
fn a_link_that_is_none_is_told_to_a_person() {
    let daemon = Daemon::running(LISTENING);
    let web = &mut Web::to(&daemon);
    let token = token(&daemon, &[]);
    for wrong in ["op_guessed", "%3Cscript%3E", &token] {
        for answer in
            [web.get(&format!("/login?link={wrong}"), "Host: localhost\r\n"), web.press(wrong, OWN)]
        {
            assert_eq!(answer.status, 403, "{answer:?}");
            assert!(answer.body.contains("This link is not valid here"), "{answer:?}");
            assert!(
                answer.body.contains("agent-coordinator login")
                    && !answer.body.contains("<script>"),
                "{answer:?}"
            );
        }
    }
    for body in
        ["", "link=", "other=1", "link=a&link=b", &format!("link={}", "x".repeat(5000)), "\u{0}"]
    {
        let answer = web.ask("POST", "/login", &format!("{OWN}{FORM}"), body);
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
    }
    let page = web.get("/login", "Host: localhost\r\n");
    assert!(page.status == 200 && page.body.contains("agent-coordinator login"), "{page:?}");
}

#[test]
fn each_secret_is_good_for_its_own_purpose_only() {
    let daemon = Daemon::running(LISTENING);
    let web = &mut Web::to(&daemon);
    let (token, (_, link)) = (token(&daemon, &[]), link(&daemon, &[]));
    let cookie = log_in(web, &daemon, &[]);
    let cookie_secret = cookie.trim_end().rsplit_once('=').unwrap().1;
    for (headers, status) in [
        (format!("Authorization: Bearer {token}\r\n"), 200),
        (format!("authorization: bearer  {token}\r\n"), 200),
        (format!("Authorization: Bearer {link}\r\n"), 401),
        (format!("Authorization: Bearer {cookie_secret}\r\n"), 401),
        (format!("Cookie: agent_coordinator_session={token}\r\n"), 401),
        (format!("Cookie: agent_coordinator_session={link}\r\n"), 401),
        (format!("Authorization: Basic {token}\r\n"), 401),
        (format!("Authorization: {token}\r\n"), 401),
        ("Authorization: Bearer\r\n".to_owned(), 401),
        (format!("Authorization: Bearer {token}x\r\n"), 401),
        ("Authorization: Bearer \u{e9}\r\n".to_owned(), 401),
        // A cookie does not make up for a wrong token.
        (format!("{cookie}Authorization: Bearer op_x\r\n"), 401),
        (format!("Authorization: Bearer {token}\r\nAuthorization: Bearer {token}\r\n"), 400),
        ("Cookie: agent_coordinator_session=\r\n".to_owned(), 401),
        ("Cookie: ;;=;agent_coordinator_session\r\n".to_owned(), 401),
    ] {
        let answer = web.ask("GET", "/api/status", &headers, "");
        assert_eq!(answer.status, status, "{headers}: {answer:?}");
        if status == 401 {
            answer.check_problem(401, "not_authenticated", "needs a token");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
    }
    // This is longer than a head may be.
    let huge = format!("Authorization: Bearer {}\r\n", "x".repeat(64 * 1024));
    web.send(format!("GET /api/status HTTP/1.1\r\nHost: localhost\r\n{huge}\r\n"));
    assert_eq!(web.receive().map(|answer| answer.status), Some(431));
}

#[test]
fn a_token_ends_when_it_expires_or_is_taken_back() {
    let daemon = Daemon::running(LISTENING);
    let web = &mut Web::to(&daemon);
    let status = |web: &mut Web, token: &str| {
        web.ask("GET", "/api/status", &format!("Authorization: Bearer {token}\r\n"), "").status
    };
    let (lasting, short) =
        (token(&daemon, &["--name", "ci"]), token(&daemon, &["--expires-in", "1s"]));
    assert_eq!(status(web, &lasting), 200);
    until("the token has expired", || status(web, &short) == 401);
    let made = daemon.json(&["token", "create", "--name", "other", "--role", "viewer"]);
    assert_eq!((&made["kind"], &made["role"]), (&"token".into(), &"viewer".into()));
    let listed = daemon.json(&["token", "list"]);
    let names: Vec<_> =
        listed.as_array().unwrap().iter().map(|token| token["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ci", "other"], "the expired one is no way in any more");
    assert!(!listed.to_string().contains("op_"), "{listed}");
    assert!(
        listed[0]["last_used_at"].is_string() && listed[1]["last_used_at"].is_null(),
        "{listed}"
    );
    let table = daemon.done(&["token", "list"]);
    assert!(table.starts_with("ID") && table.contains("ci") && table.contains("viewer"), "{table}");
    let id = listed[0]["id"].as_str().unwrap();
    for _ in 0..2 {
        daemon.done(&["token", "revoke", id]);
        assert_eq!(status(web, &lasting), 401);
    }
    let said = daemon.cli(&["token", "revoke", "key_unknown"]);
    assert_eq!(
        (said.code, said.stderr.contains("no credential `key_unknown`")),
        (1, true),
        "{said:?}"
    );
    assert_eq!(daemon.cli(&["token", "create", "--role", "king"]).code, 2);
    assert_eq!(daemon.cli(&["token", "create", "--expires-in", "0s"]).code, 1);
    assert_eq!(daemon.cli(&["token", "create", "--name", "a\nb"]).code, 1);
}

#[test]
fn credentials_outlive_a_restart() {
    let mut daemon = Daemon::running(LISTENING);
    let cookie = log_in(&mut Web::to(&daemon), &daemon, &[]);
    let (path, _) = link(&daemon, &[]);
    daemon.terminate();
    daemon.start();
    let web = &mut Web::to(&daemon);
    assert_eq!(web.ask("GET", "/api/status", &cookie, "").status, 200);
    assert_eq!(web.get(&path, "Host: localhost\r\n").status, 200);
}

#[test]
fn a_viewer_looks_and_changes_nothing() {
    let daemon = Daemon::running(LISTENING);
    let web = &mut Web::to(&daemon);
    let cookie = log_in(web, &daemon, &["--role", "viewer", "--name", "Vic"]);
    let bearer = format!(
        "Authorization: Bearer {}\r\n",
        token(&daemon, &["--role", "viewer", "--name", "Vic"])
    );
    for viewer in [format!("{cookie}{OWN}"), bearer] {
        assert_eq!(web.ask("GET", "/api/projects", &viewer, "").status, 200);
        let answer = web.ask("POST", "/api/pause", &viewer, "");
        answer.check_problem(403, "viewer_may_not", "`Vic` is a viewer");
        web.ask("POST", "/api/tokens", &viewer, "{}").check_problem(
            403,
            "viewer_may_not",
            "viewers change nothing",
        );
    }
    assert!(daemon.status()["paused_since"].is_null());
    // A logout is never refused.
    assert_eq!(web.ask("POST", "/logout", &format!("{cookie}{OWN}"), "").status, 303);
    assert_eq!(web.ask("GET", "/api/projects", &cookie, "").status, 401);
}

#[test]
fn a_page_of_somebody_else_changes_nothing_with_the_cookie_of_its_reader() {
    let daemon = Daemon::running(LISTENING);
    let web = &mut Web::to(&daemon);
    let cookie = log_in(web, &daemon, &[]);
    let pause = |web: &mut Web, headers: &str| {
        web.ask("POST", "/api/pause", &format!("{cookie}{headers}"), "")
    };
    for (headers, code) in [
        ("", "not_same_origin"),
        // Another user's server on this machine has the same cookies.
        ("Origin: http://localhost:3000\r\n", "not_same_origin"),
        ("Origin: http://127.0.0.1:7420\r\n", "not_same_origin"),
        ("Origin: http://evil.example\r\n", "origin_not_allowed"),
        ("Origin: null\r\n", "origin_not_allowed"),
        ("Sec-Fetch-Site: same-site\r\n", "not_same_origin"),
        ("Sec-Fetch-Site: cross-site\r\n", "not_same_origin"),
        ("Sec-Fetch-Site: none\r\n", "not_same_origin"),
        ("Sec-Fetch-Site: cross-site\r\nOrigin: http://localhost:7420\r\n", "not_same_origin"),
    ] {
        pause(web, headers).check_problem(403, code, "");
    }
    assert!(daemon.status()["paused_since"].is_null());
    for (path, form) in [("/login", "link=op_x"), ("/logout", "")] {
        for headers in ["", "Origin: http://localhost:3000\r\n", "Sec-Fetch-Site: cross-site\r\n"] {
            let answer = web.ask("POST", path, &format!("{cookie}{headers}{FORM}"), form);
            assert_eq!(answer.status, 403, "{answer:?}");
            assert!(answer.body.contains("not_same_origin"), "{answer:?}");
        }
    }
    // A script has a token, and no pages.
    let bearer = format!("Authorization: Bearer {}\r\n", token(&daemon, &[]));
    for headers in
        [format!("{cookie}{OWN}"), format!("{cookie}Sec-Fetch-Site: same-origin\r\n"), bearer]
    {
        let answer = web.ask("POST", "/api/pause", &headers, "");
        assert!((200..300).contains(&answer.status), "{answer:?}");
    }
    web.ask("GET", "/api/status", "Host: evil.example\r\n", "").check_problem(
        400,
        "repeated_header",
        "`host`",
    );
}

#[test]
fn a_page_sends_its_reader_to_the_login_and_a_program_is_told() {
    let daemon = Daemon::running(LISTENING);
    let web = &mut Web::to(&daemon);
    let answer = web.ask("GET", "/projects", "Accept: text/html,*/*;q=0.8\r\n", "");
    assert_eq!((answer.status, answer.header("location")), (303, Some("/login")), "{answer:?}");
    web.ask("GET", "/api/projects", "Accept: text/html\r\n", "").check_problem(
        401,
        "not_authenticated",
        "",
    );
    web.ask("GET", "/projects", "Accept: application/json\r\n", "").check_problem(
        401,
        "not_authenticated",
        "",
    );
    web.ask("POST", "/pause", "Accept: text/html\r\n", "").check_problem(
        401,
        "not_authenticated",
        "",
    );
    assert_eq!(web.ask("GET", "/health/live", "", "").status, 200);
}

#[test]
fn an_agent_is_no_operator_and_an_operator_no_agent() {
    let mut daemon = Daemon::configured(&format!("{LISTENING}manifest: world.yaml\n"));
    std::fs::write(daemon.folder().join("world.yaml"), super::WORLD).unwrap();
    daemon.start();
    let web = &mut Web::to(&daemon);
    let arguments = json!({ "agent_id": "agt_a", "passkey": "key_a", "project_id": "prj" });
    let authenticated = web.call("authenticate", &arguments);
    let session =
        authenticated["session_token"].as_str().unwrap_or_else(|| panic!("{authenticated}"));
    let coordinator = std::fs::read_to_string(daemon.state().join("coordinator_token")).unwrap();
    for secret in [session, coordinator.trim(), "key_a"] {
        for headers in [
            format!("Authorization: Bearer {secret}\r\n"),
            format!("Cookie: agent_coordinator_session={secret}\r\n{OWN}"),
        ] {
            web.ask("GET", "/api/status", &headers, "").check_problem(401, "not_authenticated", "");
            web.ask("POST", "/api/pause", &headers, "").check_problem(401, "not_authenticated", "");
        }
    }
    let operator = token(&daemon, &[]);
    let cookie = log_in(web, &daemon, &[]);
    let cookie = cookie.trim_end().rsplit_once('=').unwrap().1;
    for secret in [operator.as_str(), cookie] {
        let mine = web.call("get_my_task", &json!({ "session_token": secret }));
        assert_eq!(mine["error_code"], "invalid_session", "{mine}");
        for headers in [format!("Authorization: Bearer {secret}\r\n"), String::new()] {
            let arguments = json!({ "coordinator_token": secret });
            let all = web.call_with(&headers, "list_managed_agents", &arguments);
            assert_eq!(all["success"], false, "{all}");
        }
    }
}

#[test]
fn no_route_lets_a_stranger_in_nor_a_viewer_change_anything() {
    let daemon = Daemon::running(LISTENING);
    let web = &mut Web::to(&daemon);
    let viewer = format!("Authorization: Bearer {}\r\n", token(&daemon, &["--role", "viewer"]));
    let mut n_unsafe = 0;
    let description: Value =
        serde_json::from_str(&web.ask("GET", "/api/openapi.json", &viewer, "").body).unwrap();
    let described = description["paths"].as_object().unwrap().iter().flat_map(|(path, methods)| {
        let path = path.strip_prefix("/api").unwrap_or(path);
        methods
            .as_object()
            .unwrap()
            .keys()
            .map(move |method| (method.to_uppercase(), filled_in(path)))
    });
    let described: Vec<_> =
        described.filter(|(method, _)| METHODS.contains(&method.as_str())).collect();
    for (method, path) in
        described.into_iter().chain(routes()).filter(|(_, path)| !OPEN.contains(&path.as_str()))
    {
        for path in [format!("/api{path}"), path] {
            let answer = web.ask(&method, &path, "", "{}");
            // A page without `/api` in front of it is not a REST route.
            if answer.status != 404 {
                answer.check_problem(401, "not_authenticated", "");
            }
            if method != "GET" && answer.status != 404 {
                n_unsafe += 1;
                web.ask(&method, &path, &viewer, "{}").check_problem(403, "viewer_may_not", "");
            }
        }
    }
    assert!(n_unsafe > 30, "the routes are found: {n_unsafe}");
    // A method that a route doesn't have needs a token, too.
    for method in ["PUT", "OPTIONS", "TRACE", "XYZ"] {
        let answer = web.ask(method, "/api/tasks", "", "");
        assert!([401, 405].contains(&answer.status), "{method}: {answer:?}");
    }
}

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
const OPEN: [&str; 6] =
    ["/health/live", "/health/ready", "/login", "/logout", "/favicon.ico", "/ui/do/language"];

/// Returns every route without a description, with its methods, from the sources: the pages and
/// their actions.
fn routes() -> Vec<(String, String)> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/web/src");
    let (mut found, mut folders) = (Vec::new(), vec![root]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("routes/coordinator.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
                for route in text.split(".route(\"").skip(1) {
                    let (path, rest) = route.split_once('"').unwrap();
                    let methods =
                        rest.split(".route(").next().unwrap().split(['}', ';']).next().unwrap();
                    for method in ["get", "post", "put", "patch", "delete"] {
                        let is_taken = methods.contains(&format!(",{method}("))
                            || methods.contains(&format!(").{method}("));
                        if is_taken && !path.starts_with("/assets") {
                            found.push((method.to_uppercase(), filled_in(path)));
                        }
                    }
                }
            }
        }
    }
    found
}

fn filled_in(path: &str) -> String {
    let parts = path.split('/').map(|part| if part.starts_with('{') { "x" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

#[test]
fn without_http_there_is_no_page_to_log_in_to() {
    let daemon = Daemon::running("");
    let said = daemon.cli(&["login"]);
    assert_eq!(said.code, 1);
    assert!(
        said.stderr.contains("doesn't listen for HTTP") && said.stderr.contains("http.listen"),
        "{said:?}"
    );
}

#[test]
fn behind_a_proxy_links_and_cookies_are_for_its_name() {
    let daemon =
        Daemon::running("http: { listen: '127.0.0.1:0', public_url: 'https://c.example' }\n");
    let login: Value = daemon.json(&["login"]);
    let url = login["url"].as_str().unwrap();
    let secret =
        url.strip_prefix("https://c.example/login?link=").unwrap_or_else(|| panic!("{url}"));
    let web = &mut Web::to(&daemon);
    let mut press = |headers: &str| {
        let body = format!("link={secret}");
        let length = body.len();
        web.send(format!(
            "POST /login HTTP/1.1\r\nContent-Length: {length}\r\n{headers}{FORM}\r\n{body}"
        ));
        web.receive().unwrap()
    };
    // This request comes from an attacker between the browser and the proxy, without a certificate.
    assert_eq!(press("Host: c.example\r\nOrigin: http://c.example\r\n").status, 403);
    let answer = press("Host: c.example\r\nOrigin: https://c.example\r\n");
    assert_eq!(answer.status, 303, "{answer:?}");
    assert!(answer.header("set-cookie").unwrap().ends_with("; Secure"), "{answer:?}");
}

#[test]
fn who_guesses_is_answered_later_and_later_and_keeps_nobody_else_out() {
    let daemon = Daemon::running(LISTENING);
    let good = format!("Authorization: Bearer {}\r\n", token(&daemon, &[]));
    let guess = |n: usize| {
        let web = &mut Web::to(&daemon);
        match n % 3 {
            0 => web.ask("GET", "/api/status", &format!("Authorization: Bearer op_{n}\r\n"), ""),
            1 => web.ask(
                "GET",
                "/api/status",
                &format!("Cookie: agent_coordinator_session=op_{n}\r\n"),
                "",
            ),
            _ => web.press(&format!("op_{n}"), OWN),
        }
        .status
    };
    let guess = &guess;
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let guesses: Vec<_> = (0..60).map(|n| scope.spawn(move || guess(n))).collect();
        // These requests come from the same address meanwhile.
        for _ in 0..10 {
            assert_eq!(Web::to(&daemon).ask("GET", "/api/status", &good, "").status, 200);
        }
        guesses.into_iter().map(|guess| guess.join().unwrap()).collect()
    });
    let n_told = statuses.iter().filter(|status| **status == 429).count();
    assert!(
        n_told >= 30 && statuses.iter().all(|status| [401, 403, 429].contains(status)),
        "{statuses:?}"
    );
    assert!(daemon.logged("an HTTP client presented an invalid token, cookie or link").len() < 60);
    assert!(!daemon.log().contains("op_1"), "{}", daemon.log());
}

#[test]
fn every_answer_tells_a_browser_what_it_may_do_with_it() {
    let daemon = Daemon::running(LISTENING);
    let web = &mut Web::to(&daemon);
    for path in ["/login", "/api/status", "/health/live", "/nothing", "/mcp"] {
        let answer = web.get(path, "Host: localhost\r\n");
        let policy = answer
            .header("content-security-policy")
            .unwrap_or_else(|| panic!("{path}: {answer:?}"));
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(
            !policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("referrer-policy"), Some("same-origin"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
    let answer = web.get("/login", "Host: evil.example\r\n");
    assert!(
        answer.status == 403 && answer.header("content-security-policy").is_some(),
        "{answer:?}"
    );
}

#[test]
fn a_stream_ends_with_the_right_to_read_it() {
    use std::io::{Read as _, Write as _};
    let daemon = Daemon::running(LISTENING);
    let token = token(&daemon, &["--role", "viewer"]);
    let mut stream = std::net::TcpStream::connect(address(&daemon)).unwrap();
    stream.set_read_timeout(Some(crate::support::DEADLINE)).unwrap();
    let request = "GET /api/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer";
    write!(stream, "{request} {token}\r\n\r\n").unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
    let listed = daemon.json(&["token", "list"]);
    daemon.done(&["token", "revoke", listed[0]["id"].as_str().unwrap()]);
    let (mut text, begun) = (Vec::new(), std::time::Instant::now());
    while !text.ends_with(b"0\r\n\r\n") {
        assert!(begun.elapsed() < crate::support::DEADLINE, "it goes on");
        let mut piece = [0; 1024];
        let n_read = stream.read(&mut piece).expect("the stream ends");
        assert!(n_read > 0, "it is ended, not broken off");
        text.extend_from_slice(&piece[..n_read]);
    }
}
