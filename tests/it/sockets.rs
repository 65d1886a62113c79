//! The real binary with inherited sockets, like those of a service manager's socket units. No
//! client is refused while the daemon starts or restarts. A socket that the daemon can't use is
//! refused by name.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::Command;

use rustix::process::Signal;

use crate::daemon::{Client, Daemon};
use crate::support::{DEADLINE, until};

const HEALTH: &[u8] =
    br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"health_check","arguments":{}}}"#;

/// Returns a daemon and the socket that it will inherit. The test listens in its place.
fn listening(settings: &str) -> (Daemon, UnixListener) {
    let daemon = Daemon::configured(settings);
    fs::create_dir(daemon.state()).unwrap();
    let listener = UnixListener::bind(daemon.state().join("mcp.sock")).unwrap();
    (daemon, listener)
}

/// Spawns the daemon with `socket` passed to it once per name, like systemd.
fn spawn(daemon: &mut Daemon, socket: impl Into<OwnedFd>, n_sockets: usize, names: Option<&str>) {
    let program = daemon.command();
    let copies: Vec<_> = (0..n_sockets).map(|index| format!("{}<&0", index + 3)).collect();
    let mut command = Command::new("sh");
    // The socket is passed as standard input, because a descriptor without close-on-exec could get
    // into another test's children.
    command
        .arg("-c")
        .arg(format!("exec {} </dev/null; LISTEN_PID=$$ exec \"$0\" \"$@\"", copies.join(" ")));
    command
        .arg(program.get_program())
        .args(program.get_args())
        .current_dir(daemon.folder())
        .env_clear();
    command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("LISTEN_FDS", n_sockets.to_string());
    if let Some(names) = names {
        command.env("LISTEN_FDNAMES", names);
    }
    daemon.spawn_with(command, socket.into());
}

/// Connects and sends a request. The answer comes when a server runs.
fn ask(daemon: &Daemon) -> Client {
    let mut client = daemon.client();
    client.send(HEALTH);
    client.send(b"\n");
    client
}

#[track_caller]
fn check_answered(client: &mut Client, daemon: &Daemon) {
    let answer = client.receive().unwrap_or_else(|| panic!("no answer\n{}", daemon.log()));
    assert_eq!(answer["result"]["structuredContent"]["status"], "ok", "{answer}");
}

#[test]
fn a_call_made_before_the_daemon_is_started_is_answered() {
    for names in [Some("mcp"), None] {
        let (mut daemon, listener) = listening("");
        let mut client = ask(&daemon);
        spawn(&mut daemon, listener, 1, names);
        check_answered(&mut client, &daemon);
        daemon.until_ready();
        assert!(daemon.terminate().success());
    }
}

#[test]
fn nobody_is_refused_over_a_restart() {
    let (mut daemon, listener) = listening("");
    let socket = daemon.state().join("mcp.sock");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o660)).unwrap();
    let inode = fs::metadata(&socket).unwrap().ino();
    for end in [Signal::TERM, Signal::USR1, Signal::KILL] {
        spawn(&mut daemon, listener.try_clone().unwrap(), 1, Some("mcp"));
        daemon.until_ready();
        check_answered(&mut ask(&daemon), &daemon);
        daemon.signal(end);
        daemon.wait();
        let mut client = ask(&daemon);
        spawn(&mut daemon, listener.try_clone().unwrap(), 1, Some("mcp"));
        check_answered(&mut client, &daemon);
        daemon.until_ready();
        assert!(daemon.terminate().success());
    }
    let metadata = fs::metadata(&socket).unwrap();
    assert_eq!(
        (metadata.ino(), metadata.mode() & 0o777),
        (inode, 0o660),
        "the socket is who made it's"
    );
}

#[test]
fn sigusr1_keeps_the_agents_and_what_they_ask_meanwhile_waits() {
    let (mut daemon, listener) = listening("shutdown: { sigterm: stop }");
    spawn(&mut daemon, listener.try_clone().unwrap(), 1, Some("mcp"));
    daemon.until_ready();
    daemon.with_one_task(&[
        "authenticate",
        "write:ready",
        "wait-for:go",
        "write:asks",
        "get-my-task",
        "report:success",
    ]);
    daemon.written_pid("ready");
    daemon.signal(Signal::USR1);
    assert!(daemon.wait().success(), "{}", daemon.log());
    assert_eq!(daemon.logged("stopping")[0]["agents"], "kept");
    fs::write(daemon.work().join("go"), "").unwrap();
    daemon.written_pid("asks");
    spawn(&mut daemon, listener.try_clone().unwrap(), 1, Some("mcp"));
    daemon.until_ready();
    until("the task is done", || daemon.task_status("tsk") == "done");
    daemon.until_nothing_is_left();
    let outcomes: Vec<_> =
        daemon.ended("agt").iter().map(|launch| launch["outcome"].clone()).collect();
    assert_eq!(outcomes, ["completed"]);
}

#[test]
fn sockets_for_another_process_are_not_taken() {
    let mut daemon = Daemon::configured("");
    let mut command = daemon.command();
    command.envs([("LISTEN_PID", "1"), ("LISTEN_FDS", "1"), ("LISTEN_FDNAMES", "other")]);
    daemon.spawn_as(command);
    daemon.until_ready();
    check_answered(&mut ask(&daemon), &daemon);
}

#[track_caller]
fn check_refused(
    socket: impl Into<OwnedFd>,
    n_sockets: usize,
    names: Option<&str>,
    expected: &str,
) {
    let (mut daemon, _listener) = listening("");
    spawn(&mut daemon, socket, n_sockets, names);
    let code = daemon.wait().code();
    let log = daemon.log();
    assert!(log.contains(expected), "expected {expected}, got {log}");
    assert_eq!(code, Some(78), "starting again would not mend it");
    assert!(!daemon.state().join("state.db").exists(), "nothing is begun");
}

#[test]
fn what_no_door_can_use_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.sock");
    let unix = || UnixListener::bind_addr(&abstract_name()).unwrap();
    let tcp = || TcpListener::bind("127.0.0.1:0").unwrap();
    check_refused(
        unix(),
        1,
        Some("web"),
        "an inherited socket has the unknown name `web`: expected `mcp` or `http`",
    );
    check_refused(
        tcp(),
        1,
        Some("mcp"),
        "the inherited socket `mcp` is not a Unix socket for a stream",
    );
    check_refused(unix(), 1, Some("http"), "the inherited socket `http` is not a TCP socket");
    check_refused(
        UdpSocket::bind("127.0.0.1:0").unwrap(),
        1,
        None,
        "the inherited socket number 1 (without a name) is not a Unix or TCP socket",
    );
    check_refused(
        UnixDatagram::unbound().unwrap(),
        1,
        Some("mcp"),
        "`mcp` is not a Unix socket for a stream",
    );
    check_refused(
        std::io::pipe().unwrap().0,
        1,
        Some("mcp"),
        "`mcp` is not a Unix socket for a stream",
    );
    check_refused(
        unix(),
        2,
        Some("mcp:mcp"),
        "two sockets were inherited for `mcp`, which is one listener",
    );
    check_refused(unix(), 2, Some("mcp"), "LISTEN_FDNAMES has 1 names for 2 sockets");
    check_refused(unix(), 1, Some("mcp"), "the inherited socket `mcp` has no path");
    let connected = std::os::unix::net::UnixStream::pair().unwrap().0;
    check_refused(connected, 1, Some("mcp"), "the inherited socket `mcp` doesn't listen");
    let elsewhere = UnixListener::bind(&path).unwrap();
    check_refused(
        elsewhere,
        1,
        Some("mcp"),
        &format!("it was bound to `{}`, and they are told `", path.display()),
    );
}

#[test]
fn a_request_over_http_made_before_the_daemon_is_started_is_answered() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut daemon = Daemon::configured(&format!("http: {{ listen: '{address}' }}"));
    for _ in 0..2 {
        let mut client = std::net::TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(DEADLINE)).unwrap();
        write!(client, "GET /health/live HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
            .unwrap();
        spawn(&mut daemon, listener.try_clone().unwrap(), 1, Some("http"));
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        daemon.until_ready();
        assert!(daemon.terminate().success());
    }
}

#[test]
fn an_address_for_http_that_is_not_the_configured_one_is_refused() {
    for (setting, expected) in [("off", "off"), ("127.0.0.2:0", "127.0.0.2:0")] {
        let mut daemon = Daemon::configured(&format!("http: {{ listen: '{setting}' }}"));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let bound = listener.local_addr().unwrap();
        spawn(&mut daemon, listener, 1, Some("http"));
        assert_eq!(daemon.wait().code(), Some(78));
        let refused = format!(
            "the inherited socket `http` is bound to {bound}, and `http.listen` is {expected}"
        );
        assert!(daemon.log().contains(&refused), "{}", daemon.log());
    }
}

/// Returns an unused abstract name.
fn abstract_name() -> std::os::unix::net::SocketAddr {
    use std::os::linux::net::SocketAddrExt as _;
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).unwrap();
    std::os::unix::net::SocketAddr::from_abstract_name(bytes).unwrap()
}
