//! A client with too many connections, or with endless lines. It uses up only its own places.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream as StdStream;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::mcp::connections::SocketConnections;
use ::mcp::{self, McpServer};
use domain::admission::{ConnectionLimits, Refused};
use domain::peer::ProcessId;
use domain::{LaunchId, Secret};
use runtime::nudge::Nudge;
use runtime::peer::{Lineage, LocalPeer, PeerKind};
use serde_json::Value;
use service::Service;
use service::world::SystemWorld;
use store::rows::Store;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use crate::daemon::{Daemon, PROGRAM};
use crate::service::settings;
use crate::support::until;

const PING: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";

/// A server whose clients have the identities that the test gives them.
struct Bed {
    server: McpServer,
    connections: SocketConnections,
}

impl Bed {
    fn new(n_places: usize) -> Self {
        let store = Arc::new(Store::in_memory().unwrap());
        let service =
            Arc::new(Service::new(store, Arc::new(SystemWorld), settings(), Nudge::new()));
        let server = McpServer::new(service, Secret::new("coord_of_the_crowd"));
        Self { server, connections: SocketConnections::new(ConnectionLimits::of(n_places)) }
    }

    fn try_connect(&self, kind: &PeerKind) -> Result<Wire, Refused> {
        self.try_connect_as(LocalPeer {
            kind: kind.clone(),
            pid: 1,
            uid: 1,
            lineage: Lineage::default(),
        })
    }

    fn try_connect_as(&self, peer: LocalPeer) -> Result<Wire, Refused> {
        let connection = self.connections.register(&peer)?;
        let (ours, theirs) = UnixStream::pair().unwrap();
        tokio::spawn(mcp::socket::converse(
            theirs,
            peer,
            connection,
            self.server.clone(),
            CancellationToken::new(),
        ));
        Ok(Wire(BufReader::new(ours)))
    }

    fn connect(&self, kind: &PeerKind) -> Wire {
        self.try_connect(kind).unwrap()
    }
}

/// Returns the identity of an agent with a launch of its own.
fn launch(n: usize) -> PeerKind {
    let id: LaunchId = format!("lch_{n}").parse().unwrap();
    PeerKind::Agent { launch: Some(id) }
}

/// A client's end of a connection.
struct Wire(BufReader<UnixStream>);

impl Wire {
    async fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).await.unwrap();
    }

    /// Returns the next message, or `None` when the server has closed.
    async fn receive(&mut self) -> Option<Value> {
        let mut line = String::new();
        let n_read = self.0.read_line(&mut line).await.unwrap_or(0);
        (n_read > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    /// Returns whether the server answers a ping here.
    async fn is_served(&mut self) -> bool {
        let is_sent = self.0.get_mut().write_all(PING).await.is_ok();
        is_sent && self.receive().await.is_some_and(|answer| answer["result"].is_object())
    }
}

#[tokio::test]
async fn a_launch_displaces_its_own_idle_connections_and_no_others() {
    let bed = Bed::new(4096);
    let (crowd, other, unknown) = (launch(1), launch(2), PeerKind::Agent { launch: None });
    let mut others = Vec::new();
    for kind in [&other, &unknown, &PeerKind::Operator] {
        let mut wire = bed.connect(kind);
        assert!(wire.is_served().await, "{kind:?}");
        others.push(wire);
    }
    let mut wires = Vec::new();
    for _ in 0..200 {
        let mut wire = bed.connect(&crowd);
        assert!(wire.is_served().await, "the newest connection is served");
        wires.push(wire);
    }
    for (n, wire) in wires.iter_mut().enumerate() {
        assert_eq!(wire.is_served().await, n >= 200 - 64, "connection {n} of the crowd");
    }
    for wire in &mut others {
        assert!(wire.is_served().await, "it has waited longer than any of the crowd");
    }
    assert!(bed.connect(&other).is_served().await);
}

#[tokio::test]
async fn agents_below_different_shims_count_apart_before_their_launches_are_known() {
    let bed = Bed::new(4096);
    let below = |pid| {
        let mut lineage = Lineage::default();
        lineage.outermost_shim = Some(ProcessId { pid, start_ticks: 1 });
        LocalPeer { kind: PeerKind::Agent { launch: None }, pid: 1, uid: 1, lineage }
    };
    let mut other = bed.try_connect_as(below(7)).unwrap();
    let mut crowd: Vec<_> = (0..100).map(|_| bed.try_connect_as(below(8)).unwrap()).collect();
    assert!(other.is_served().await, "it has waited longer than any of the crowd");
    assert!(!crowd[0].is_served().await, "a crowd displaces its own");
}

#[tokio::test]
async fn agents_together_leave_places_for_operators() {
    let bed = Bed::new(100);
    let mut crowd: Vec<Wire> = (0..75).map(|n| bed.connect(&launch(n))).collect();
    assert_eq!(bed.try_connect(&launch(75)).err(), Some(Refused::AllIsFull { n: 75 }));
    for _ in 0..25 {
        crowd.push(bed.connect(&PeerKind::Operator));
    }
    for wire in &mut crowd {
        assert!(wire.is_served().await);
    }
    // Operators displace each other.
    assert!(bed.connect(&PeerKind::Operator).is_served().await);
    assert!(!crowd[75].is_served().await);
    assert!(crowd[0].is_served().await);
}

#[tokio::test]
async fn unfinished_lines_of_a_launch_hold_a_limited_number_of_bytes() {
    let bed = Bed::new(100);
    let crowd = launch(1);
    let half = vec![b'x'; 1_000_000];
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut wire = bed.connect(&crowd);
        wire.send(&half).await;
        held.push(wire);
    }
    let mut late = bed.connect(&crowd);
    // There may be room until the server has read the others.
    let busy = loop {
        late.send(&half).await;
        late.send(b"\n").await;
        let answer = late.receive().await.unwrap();
        if answer["error"]["code"] == -32000 {
            break answer;
        }
        late = bed.connect(&crowd);
    };
    let problem = busy["error"]["message"].as_str().unwrap();
    assert!(problem.contains("more than 4194304 bytes together"), "{problem}");
    // The connection goes on, and no other client is affected.
    let whole = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{{\"x\":\"{}\"}}}}\n",
        "y".repeat(1_000_000)
    );
    let mut other = bed.connect(&launch(2));
    other.send(whole.as_bytes()).await;
    assert!(other.receive().await.unwrap()["result"].is_object());
    // The held bytes are released.
    for mut wire in held {
        wire.send(b"\n").await;
        assert_eq!(wire.receive().await.unwrap()["error"]["code"], -32700);
    }
    late.send(whole.as_bytes()).await;
    assert!(late.receive().await.unwrap()["result"].is_object());
}

#[tokio::test]
async fn a_line_must_end_in_time() {
    let bed = Bed::new(100);
    let kind = launch(1);
    let (mut slow, mut endless, mut idle) =
        (bed.connect(&kind), bed.connect(&kind), bed.connect(&kind));
    assert!(idle.is_served().await);
    tokio::time::pause();
    slow.send(&PING[..5]).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    slow.send(&PING[5..]).await;
    assert!(slow.receive().await.unwrap()["result"].is_object(), "it came in time");
    let began = tokio::time::Instant::now();
    endless.send(&PING[..5]).await;
    let answer = endless.receive().await.unwrap();
    assert_eq!(answer["error"]["message"], "the line did not end within 10 s");
    assert_eq!(endless.receive().await, None);
    assert!(began.elapsed() < Duration::from_secs(11), "{:?}", began.elapsed());
    tokio::time::sleep(Duration::from_hours(5)).await;
    assert!(idle.is_served().await, "silence between two lines has no limit");
}

/// A client below the shim of an agent. It is this test's own program, which the agent starts
/// with `CROWD` in its environment.
#[test]
fn client_of_an_agent() {
    let Ok(what) = std::env::var("CROWD") else {
        return;
    };
    let socket = std::env::var("COORDINATOR_MCP_SOCKET").unwrap();
    let connect = |bytes: &[u8]| {
        let mut stream = StdStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        // The server may have closed this connection already.
        let _ = stream.write_all(bytes);
        stream
    };
    let streams: Vec<StdStream> = match what.as_str() {
        "idle" => (0..200)
            .map(|_| connect(PING))
            .inspect(|mut stream| drop(stream.read(&mut [0; 256])))
            .collect(),
        "unfinished" => (0..100).map(|_| connect(&vec![b'x'; 1_000_000])).collect(),
        other => panic!("{other}"),
    };
    std::fs::write("crowded", "").unwrap();
    until("the test is over", || std::path::Path::new("enough").exists());
    drop(streams);
}

/// Returns the step of an agent that runs [`client_of_an_agent`].
fn crowd(what: &str) -> String {
    let program = std::env::current_exe().unwrap();
    format!("run:CROWD={what} {} --exact mcp::crowds::client_of_an_agent >&2", program.display())
}

fn until_crowded(daemon: &Daemon) {
    until("the crowd is there", || daemon.work().join("crowded").exists());
}

#[test]
fn a_crowd_of_one_launch_keeps_no_other_agent_out() {
    let mut daemon = Daemon::configured("");
    let mut command = Command::new("sh");
    let few = "ulimit -n 256 && exec \"$0\" \"$@\"";
    command
        .args(["-c", few, PROGRAM, "--config"])
        .arg(daemon.config())
        .current_dir(daemon.folder());
    daemon.spawn_as(command);
    daemon.until_ready();
    daemon.with_one_task(&[&crowd("idle"), "sleep:600"]);
    until_crowded(&daemon);
    let asked = Instant::now();
    daemon.client().call("health_check", &serde_json::json!({}));
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    daemon.agent("other", "prj", &["authenticate", "get-my-task", "report:success"]);
    daemon.task("tsk_other", "prj", "other");
    until("the other agent works", || daemon.task_status("tsk_other") == "done");
    std::fs::write(daemon.work().join("enough"), "").unwrap();
}

#[test]
fn unfinished_lines_of_one_launch_cost_little_memory() {
    let daemon = Daemon::running("");
    daemon.client().call("health_check", &serde_json::json!({}));
    let before = daemon.resident_kib();
    daemon.with_one_task(&[&crowd("unfinished"), "sleep:600"]);
    until_crowded(&daemon);
    daemon.client().call("health_check", &serde_json::json!({}));
    let grown = daemon.resident_kib().saturating_sub(before);
    assert!(grown < 24 * 1024, "100 unfinished lines of 1 MB made the daemon {grown} KiB larger");
    std::fs::write(daemon.work().join("enough"), "").unwrap();
}
