//! A daemon on PostgreSQL, as its operator sees it: `check`, `status`, the page, the metrics.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use postgres_url::PostgresUrl;
use serde_json::Value;

use crate::daemon::{Daemon, PROGRAM};
use crate::postgres::{Cluster, Data, USER};
use crate::support::{DEADLINE, is_gone, until, until_some};

const PASSWORD: &str = "correct-horse-battery";

/// A daemon whose user needs a password for its database.
struct Bed {
    daemon: Daemon,
    cluster: Cluster,
}

impl Bed {
    fn configured() -> Option<Self> {
        let cluster = Cluster::start(&[])?;
        cluster
            .run_sql("postgres", &format!("CREATE ROLE coordinator LOGIN PASSWORD '{PASSWORD}'"));
        let database = "CREATE DATABASE coordinator OWNER coordinator TEMPLATE template0";
        cluster.run_sql("postgres", database);
        let rules = cluster.folder().join("data/pg_hba.conf");
        let text = fs::read_to_string(&rules).unwrap();
        fs::write(&rules, format!("local all coordinator scram-sha-256\n{text}")).unwrap();
        cluster.run_sql("postgres", "SELECT pg_reload_conf()");
        let url = cluster.url("coordinator", "coordinator");
        let daemon = Daemon::configured(&format!(
            "http: {{ listen: '127.0.0.1:0' }}\n\
             store: {{ url: '{url}', password_file: database_password }}"
        ));
        daemon.write("database_password", format!("{PASSWORD}\n"));
        Some(Self { daemon, cluster })
    }

    fn store(&self) -> Value {
        self.daemon.status()["store"].clone()
    }

    fn n_tables(&self) -> String {
        self.cluster
            .run_sql("coordinator", "SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'")
    }
}

/// Returns the answer over HTTP to a script with this token.
fn asked(daemon: &Daemon, token: &str, path: &str) -> String {
    answer(ask(daemon, token, path))
}

/// Sends a request over HTTP with this token.
fn ask(daemon: &Daemon, token: &str, path: &str) -> TcpStream {
    let status = daemon.status();
    let mut stream = TcpStream::connect(status["http"]["address"].as_str().unwrap()).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Connection: close\r\n\r\n"
    )
    .unwrap();
    stream
}

fn answer(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn has_line(metrics: &str, line: &str) -> bool {
    metrics.lines().any(|each| each == line)
}

#[test]
fn check_names_the_problem_of_the_database_and_changes_nothing() {
    let Some(mut bed) = Bed::configured() else { return };
    let new = bed.daemon.cli(&["check"]);
    assert_eq!(new.code, 0, "{new:?}");
    assert!(new.stdout.contains("store: postgres://coordinator@"), "{new:?}");
    assert!(new.stdout.contains(": PostgreSQL ") && new.stdout.contains("a statement takes "));
    assert!(new.stdout.contains("no tables yet: the first start creates them"), "{new:?}");
    assert_eq!(bed.n_tables(), "0");

    bed.daemon.start();
    let used = bed.daemon.cli(&["check"]);
    assert!(used.code == 0 && used.stdout.contains(", up to date, used by `"), "{used:?}");

    bed.daemon.write("database_password", "another one");
    let refused = bed.daemon.cli(&["check"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    let problem = "PostgreSQL refused the login of `coordinator`";
    assert!(refused.stdout.contains(problem), "{refused:?}");
    assert!(refused.stderr.contains("can't use its store postgres://coordinator@"), "{refused:?}");
    assert!(!format!("{refused:?}").contains("another one"));
}

#[test]
fn status_and_metrics_have_the_figures_of_the_store_and_no_password() {
    let Some(mut bed) = Bed::configured() else { return };
    let daemon = &mut bed.daemon;
    daemon.start();
    daemon.with_one_task(&["authenticate", "report:success"]);
    daemon.until_ended("agt");
    let version = bed.cluster.run_sql("postgres", "SHOW server_version");
    let daemon = &bed.daemon;
    let (text, store) = (daemon.done(&["status"]), bed.store());
    assert!(text.contains(&format!("store: PostgreSQL {version}, postgres://coordinator@")));
    assert!(text.contains("; statement ") && text.contains("; transaction "), "{text}");
    assert_eq!((&store["kind"], &store["health"]), (&"postgres".into(), &"ok".into()), "{store}");
    for name in ["round_trip", "lock_wait", "transaction"] {
        assert!(store[name]["median_ms"].as_f64().unwrap() > 0.0, "{name}: {store}");
    }
    let metrics = daemon.done(&["metrics"]);
    let info = format!("agent_coordinator_store_info{{kind=\"postgres\",version=\"{version}\"}} 1");
    for line in [info.as_str(), "agent_coordinator_store_up 1"] {
        assert!(has_line(&metrics, line), "{line}: {metrics}");
    }
    let page = daemon.page("/ui/parts/operations", "en");
    assert!(page.contains(&format!("PostgreSQL {version}")), "{page}");

    let check = daemon.done(&["check"]);
    let arguments = fs::read(format!("/proc/{}/cmdline", daemon.pid())).unwrap();
    let arguments = String::from_utf8_lossy(&arguments).into_owned();
    assert!(arguments.contains(PROGRAM), "{arguments}");
    let json = bed.daemon.status().to_string();
    for shown in [text, json, metrics, page, check, arguments, daemon.log()] {
        assert!(!shown.contains(PASSWORD), "{shown}");
    }
}

#[test]
fn status_says_that_the_database_is_away_and_agents_go_on() {
    let Some(mut bed) = Bed::configured() else { return };
    bed.daemon.start();
    bed.daemon.with_one_task(&["authenticate", "write:working", "wait-for:go", "report:success"]);
    bed.daemon.until_in_state("agt", "running");
    let agent = bed.daemon.written_pid("working");
    let token = bed.daemon.done(&["token", "create"]);
    let asked = |path: &str| asked(&bed.daemon, token.trim_end(), path);
    for path in ["/api/status", "/metrics", "/health/ready"] {
        assert!(asked(path).starts_with("HTTP/1.1 200 "), "{path}: {}", asked(path));
    }

    bed.cluster.stop(Data::Kept);
    let away = until_some("status says so", || {
        let status = bed.daemon.status();
        (status["store"]["health"] == "failing").then_some(status)
    });
    assert_eq!(away["health"], "store_unavailable");
    assert!(away["store"]["since"].is_string(), "{away}");
    let problem = away["store"]["problem"].as_str().unwrap();
    assert!(problem.contains(": no agent starts, and running agents go on ("), "{problem}");
    assert_eq!(away["instances"][0]["agent_id"], "agt", "{away}");
    until("status says for how long", || {
        bed.daemon.done(&["status"]).contains("The store has not answered for ")
    });
    assert!(has_line(&bed.daemon.done(&["metrics"]), "agent_coordinator_store_up 0"));
    let ready = asked("/health/ready");
    assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
    assert!(ready.contains("could not read the store: "), "{ready}");
    let asked_at = Instant::now();
    let health = bed.daemon.cli(&["call", "health_check"]);
    assert!(health.stdout.contains(r#""error_code":"unavailable""#), "{health:?}");
    assert!(asked_at.elapsed() < Duration::from_secs(10), "{:?}", asked_at.elapsed());
    // The token of a script is in the store.
    let waiting = ["/api/status", "/metrics"].map(|path| ask(&bed.daemon, token.trim_end(), path));
    assert!(asked("/health/live").starts_with("HTTP/1.1 200 "));
    assert!(!is_gone(agent));

    let daemon = &bed.daemon;
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let asked_at = Instant::now();
            let health = daemon.cli(&["call", "health_check"]);
            // The store may start too slowly for it.
            let has_waited = health.code == 0 || asked_at.elapsed() >= Duration::from_secs(5);
            assert!(has_waited, "it waits for the store: {health:?}");
        });
        bed.cluster.start_again(&[]);
        asked.join().unwrap();
    });
    for request in waiting {
        let answer = answer(request);
        assert!(answer.starts_with("HTTP/1.1 200 "), "it has waited for the store: {answer}");
    }
    until("status is well again", || {
        let status = bed.daemon.status();
        status["health"] == "ok" && status["store"]["health"] == "ok"
    });
    fs::write(bed.daemon.work().join("go"), "").unwrap();
    assert_eq!(bed.daemon.until_ended("agt")["outcome"], "completed");
    assert!(has_line(&bed.daemon.done(&["metrics"]), "agent_coordinator_store_up 1"));
}

#[test]
fn status_says_what_a_transaction_waits_for() {
    let Some(mut bed) = Bed::configured() else { return };
    bed.daemon.start();
    let url: PostgresUrl = bed.cluster.url(USER, "coordinator").parse().unwrap();
    let config = postgres::Config::from(url.hosts()[0].clone());
    let mut other = config.connect(postgres::NoTls).unwrap();
    other.batch_execute("BEGIN; LOCK TABLE writer IN EXCLUSIVE MODE").unwrap();
    std::thread::scope(|scope| {
        let paused = scope.spawn(|| bed.daemon.cli(&["pause"]));
        let problem = until_some("status says so", || {
            let store = bed.store();
            (store["health"] == "stuck").then(|| store["problem"].as_str().unwrap().to_owned())
        });
        assert!(
            problem.contains(" for the lock of the store, which another one holds"),
            "{problem}"
        );
        other.batch_execute("ROLLBACK").unwrap();
        assert_eq!(paused.join().unwrap().code, 0);
    });
    until("status is well again", || bed.store()["health"] != "stuck");
}
