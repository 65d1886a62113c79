//! The page behind a proxy that shows it under a path of another site.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::json;

use super::assert_quiet;
use super::browser::Browser;
use crate::daemon::Daemon;

const PATH: &str = "/at/coordinator";

/// A proxy that removes [`PATH`] from requests, as nginx and Caddy do, and answers others itself.
struct Proxy {
    address: SocketAddr,
    /// The paths of requests that were not for the daemon.
    strays: Arc<Mutex<Vec<String>>>,
    server: Arc<Mutex<Option<SocketAddr>>>,
}

impl Proxy {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let strays = Arc::<Mutex<Vec<String>>>::default();
        let server = Arc::<Mutex<Option<SocketAddr>>>::default();
        let (known, seen) = (server.clone(), strays.clone());
        // It ends with the process of the tests.
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let (known, seen) = (known.clone(), seen.clone());
                thread::spawn(move || {
                    let server = known.lock().unwrap().expect("the daemon runs");
                    // A browser may leave at any time.
                    let _ = pass(client, server, &seen);
                });
            }
        });
        Self { address, strays, server }
    }
}

/// Passes one request and its answer on.
fn pass(
    mut client: TcpStream,
    server: SocketAddr,
    strays: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let mut parts = head.splitn(3, ' ');
    let (method, target, rest) =
        (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
    let Some(path) = target.strip_prefix(PATH).filter(|path| path.starts_with('/')) else {
        strays.lock().unwrap().push(target.to_owned());
        return client.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
    };
    let lines = rest.split("\r\n").filter(|line| !line.to_lowercase().starts_with("connection:"));
    let rest = lines.collect::<Vec<_>>().join("\r\n");
    let rest = rest.replacen("\r\n", "\r\nConnection: close\r\n", 1);
    let mut server = TcpStream::connect(server)?;
    server.write_all(format!("{method} {path} {rest}").as_bytes())?;
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
    std::io::copy(&mut server, &mut client)?;
    client.shutdown(Shutdown::Both)
}

#[test]
fn the_page_works_under_a_path_of_a_proxy() {
    let proxy = Proxy::start();
    let daemon = Daemon::running(&format!(
        "http: {{ listen: \"127.0.0.1:0\", public_url: \"http://{}{PATH}/\" }}",
        proxy.address
    ));
    *proxy.server.lock().unwrap() =
        daemon.status()["http"]["address"].as_str().unwrap().parse().ok();
    daemon.project("prj");
    daemon.agent("agt", "prj", &["authenticate", "chat"]);
    for title in ["one", "two"] {
        daemon.done(&["task", "add", "--project", "prj", "--id", title, "--title", title]);
    }
    // Browser::at logs in by the link that the daemon printed.
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    assert!(browser.base.ends_with(PATH), "{}", browser.base);
    let cookies = browser.run_async(
        "fetch(document.body.dataset.base + '/ui/settings').then(r => arguments[arguments.length - 1](r.status))",
    );
    assert_eq!(cookies, 200);
    let page = || browser.run("return location.pathname");
    browser.find("#side-prj").click();
    browser.until("the board is open", || page() == format!("{PATH}/ui/projects/prj"));
    assert_eq!(browser.texts(".card-link").len(), 2);

    // The panel, its address, a change, and the news of another change.
    browser.find("#card-one .card-link").click();
    browser.find("#panel .task");
    assert_eq!(page(), format!("{PATH}/ui/projects/prj"));
    browser.find(".states [data-sets=cancelled]").click();
    browser.find("#column-cancelled #card-one");
    daemon.done(&["task", "set", "two", "--title", "renamed"]);
    browser.until("the news come", || browser.texts("#card-two .card-link") == ["renamed"]);
    browser.find("#panel [data-as-page]").click();
    browser.until("the page is open", || page() == format!("{PATH}/ui/tasks/PRJ-1"));

    browser.go_to("/ui/projects/prj");
    browser.find("#avatar-agt").click();
    browser.find("[data-is-ready]");
    browser.find("#say").type_in("hello");
    browser.find("#send").click();
    browser.until("it answers", || browser.texts(".message").len() >= 2);
    browser.find("#panel [data-close]").click();

    // The keys, the palette, and the language.
    browser.press(&['g']);
    browser.press(&['a']);
    browser.until("the place is open", || page() == format!("{PATH}/ui/agents"));
    browser.press(&['\u{e009}', 'k']);
    browser.find("#palette-q").type_in("renamed");
    browser.until("it is found", || browser.texts("#found .what") == ["renamed"]);
    browser.press(&['\u{e007}']);
    browser.find("#panel .task");
    let launch = daemon.open("agt")[0]["launch_id"].as_str().unwrap().to_owned();
    browser.go_to(&format!("/ui/launches/{launch}"));
    browser.find("[data-view=raw-view]").click();
    browser.until("the page follows", || browser.has("#contact.is-there"));
    browser.go_to("/ui/settings");
    browser.find("button[lang=ja]").click();
    browser.until("it is Japanese", || browser.run("return document.documentElement.lang") == "ja");
    assert_eq!(page(), format!("{PATH}/ui/settings"));
    browser.find("[action$='/logout'] button").click();
    browser.until("it is logged out", || page() == format!("{PATH}/login"));
    browser.go_to("/ui/projects");
    assert_eq!(page(), format!("{PATH}/login"));
    let strays = proxy.strays.lock().unwrap().clone();
    let strays: Vec<_> = strays.iter().filter(|path| *path != "/favicon.ico").collect();
    assert_eq!(json!(strays), json!([]));
    assert_quiet(&browser);

    // On loopback, without the proxy, the addresses have no path.
    let page = daemon.page("/ui/projects", "en");
    assert!(page.contains("href=\"/ui/inbox\""), "{page}");
}
