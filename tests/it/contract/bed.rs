//! A server behind one of its interfaces, with the operator's requests to it. The end of a test
//! ends the server in any case.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};

use ::mcp::connections::SocketConnections;
use ::mcp::{self, McpServer};
use config::manifest;
use config::{Environment, Start};
use domain::admission::ConnectionLimits;
use domain::configuration::ConfigurationState;
use domain::{Secret, Timestamp};
use runtime::nudge::Nudge;
use runtime::peer::{Lineage, LocalPeer, PeerKind};
use rustix::process::Signal;
use serde_json::{Value, json};
use service::world::SystemWorld;
use service::{Service, Settings};
use store::rows::Store;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use web::{self, ConfigurationHandle, RestState};

use super::client::{Caller, Client, Wire};
use crate::control::send_to;
use crate::daemon::PROGRAM;
use crate::http::{Answer, JSON, Web};
use crate::mcp::{MINE, credentials, world};
use crate::postgres::{self, Database};
use crate::service::settings;
use crate::support::{DEADLINE, kill, until, until_some};

/// The token of a coordinator that is not known by its process.
pub const TOKEN: &str = "coord_of_the_contract";

/// An interface to the tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// A stream in the process of the server.
    InProcess,
    Socket,
    Http,
    /// `agent-coordinator mcp`, connected to the socket.
    Bridge,
    /// `agent-coordinator mcp`, connected to the URL.
    HttpBridge,
}

impl Endpoint {
    /// Returns whether the server sees the caller's process, and so knows a coordinator without its
    /// token.
    pub const fn knows_its_peer(self) -> bool {
        match self {
            Self::InProcess | Self::Socket | Self::Bridge => true,
            Self::Http | Self::HttpBridge => false,
        }
    }
}

/// A server without agents of its own.
pub struct Bed {
    pub endpoint: Endpoint,
    folder: TempDir,
    server: Server,
    /// Its store, if the tests run on PostgreSQL. It is dropped after the server.
    database: Option<Database<'static>>,
}

enum Server {
    /// The real program in the role `serve`.
    Program(Program),
    Here(Here),
}

struct Program(Child);

struct Here {
    runtime: Runtime,
    service: Arc<Service>,
    mcp: McpServer,
    cancel: CancellationToken,
}

impl Bed {
    pub fn behind(endpoint: Endpoint) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("work")).unwrap();
        fs::create_dir(folder.path().join("state")).unwrap();
        let is_here = endpoint == Endpoint::InProcess;
        let database = if is_here { None } else { postgres::database_of_daemon() };
        let server = if is_here {
            Server::Here(Here::new(&folder))
        } else {
            Server::Program(Program::new(&folder, database.as_ref()))
        };
        let bed = Self { endpoint, folder, server, database };
        until("the server can be reached", || UnixStream::connect(bed.control_socket()).is_ok());
        bed
    }

    fn control_socket(&self) -> PathBuf {
        self.folder.path().join("state/control.sock")
    }

    /// Returns the file of its store, if it has one.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("state/state.db")
    }

    /// Returns its store, if it has one on PostgreSQL.
    pub fn database(&self) -> Option<&Database<'static>> {
        self.database.as_ref()
    }

    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Sends a person's request on the control socket and returns the answer.
    #[track_caller]
    pub fn operate(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let response =
            send_to(&self.control_socket(), method, &format!("/api{path}"), body.as_bytes());
        assert!((200..300).contains(&response.status), "{method} {path}: {}", response.body);
        serde_json::from_str(&response.body).unwrap_or(Value::Null)
    }

    /// Sends a person's request that is refused, and returns the problem.
    #[track_caller]
    pub fn refused(&self, method: &str, path: &str, body: &Value) -> Value {
        let response = send_to(
            &self.control_socket(),
            method,
            &format!("/api{path}"),
            body.to_string().as_bytes(),
        );
        assert!((400..500).contains(&response.status), "{method} {path}: {}", response.body);
        serde_json::from_str(&response.body).unwrap()
    }

    /// Applies a valid manifest.
    #[track_caller]
    pub fn apply(&self, manifest: &str) {
        let path = self.folder.path().join("manifest.yaml");
        fs::write(&path, manifest).unwrap();
        let wanted = manifest::load(&path, &Environment::of_process()).unwrap().wanted;
        self.operate("POST", "/apply", &serde_json::to_value(wanted).unwrap());
    }

    /// Makes Ann and Bob in a project, and a task in progress for Ann.
    pub fn with_a_task(&self) -> &Self {
        self.apply(&world(MINE));
        self
    }

    #[track_caller]
    pub fn set_task(&self, task: &str, status: &str) {
        self.operate("PATCH", &format!("/tasks/{task}"), &json!({ "status": status }));
    }

    pub fn task(&self, task: &str) -> Value {
        self.operate("GET", &format!("/tasks/{task}"), &Value::Null)
    }

    pub fn status(&self) -> Value {
        self.operate("GET", "/status", &Value::Null)
    }

    /// Returns the launch as people see it.
    pub fn launch(&self, launch: &Value) -> Value {
        self.operate("GET", &format!("/launches/{}", launch.as_str().unwrap()), &Value::Null)
    }

    /// Returns the output of `agent-coordinator status --json`, if there is a daemon for it.
    pub fn printed_status(&self) -> Option<Value> {
        let Server::Program(_) = &self.server else {
            return None;
        };
        let printed = command(&self.folder).args(["status", "--json"]).output().unwrap();
        Some(serde_json::from_slice(&printed.stdout).unwrap())
    }

    /// Makes the server end like in a shutdown. Returns at once.
    pub fn begin_to_stop(&self) {
        match &self.server {
            Server::Program(Program(child)) => {
                kill(i32::try_from(child.id()).unwrap(), Signal::TERM);
            }
            Server::Here(here) => {
                here.service.end_waits();
                let (mcp, cancel) = (here.mcp.clone(), here.cancel.clone());
                here.runtime.spawn(async move {
                    mcp.settled().await;
                    cancel.cancel();
                });
            }
        }
    }

    /// Waits for the end of the daemon, and returns whether it ended without an error.
    #[track_caller]
    pub fn has_ended_well(&mut self) -> bool {
        match &mut self.server {
            Server::Program(Program(child)) => {
                until_some("the daemon has ended", || child.try_wait().unwrap()).success()
            }
            Server::Here(here) => {
                until("the server has ended", || here.cancel.is_cancelled());
                true
            }
        }
    }

    /// Waits until the only running call was dropped.
    #[track_caller]
    pub fn until_call_dropped(&self) {
        match &self.server {
            Server::Program(_) => until("a call is dropped", || {
                let log = fs::read_to_string(self.folder.path().join("log")).unwrap();
                log.contains("tool call dropped")
            }),
            Server::Here(here) => {
                let settled = async { tokio::time::timeout(DEADLINE, here.mcp.settled()).await };
                here.runtime.block_on(settled).expect("nothing goes on");
            }
        }
    }

    /// Returns a client without credentials.
    pub fn client(&self) -> Client {
        Client::new(self.open())
    }

    /// Returns a coordinator of this name.
    pub fn coordinator(&self, id: &str) -> Caller {
        Caller::new(self.client(), &json!({ "coordinator_id": id }))
            .with(&self.proof_of_coordinator())
    }

    /// Returns a coordinator without a name.
    pub fn nameless_coordinator(&self) -> Caller {
        Caller::new(self.client(), &self.proof_of_coordinator())
    }

    fn proof_of_coordinator(&self) -> Value {
        if self.endpoint.knows_its_peer() {
            json!({})
        } else {
            json!({ "coordinator_token": TOKEN })
        }
    }

    /// Returns an agent of the world in its project, by its passkey.
    #[track_caller]
    pub fn agent(&self, agent: &str) -> Caller {
        self.agent_with(agent, &agent.replace("agt_", "key_"))
    }

    /// Returns an agent with a passkey or a ticket.
    #[track_caller]
    pub fn agent_with(&self, agent: &str, passkey: &str) -> Caller {
        let mut client = self.client();
        let opened = client.call("authenticate", &credentials(agent, passkey, "prj")).success();
        Caller::new(client, &json!({ "session_token": opened["session_token"] }))
    }

    fn open(&self) -> Wire {
        match (&self.server, self.endpoint) {
            (Server::Here(here), _) => here.open(),
            (_, Endpoint::Http) => self.open_http(),
            (_, Endpoint::HttpBridge) => self
                .open_bridge("COORDINATOR_MCP_URL", &format!("http://{}/mcp", self.http_address())),
            (_, Endpoint::Bridge) => {
                let socket = self.folder.path().join("state/mcp.sock");
                self.open_bridge("COORDINATOR_MCP_SOCKET", socket.to_str().unwrap())
            }
            (_, Endpoint::Socket | Endpoint::InProcess) => {
                let mut stream =
                    UnixStream::connect(self.folder.path().join("state/mcp.sock")).unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let closes = stream.try_clone().unwrap();
                Wire::of_lines(lines, move |line| stream.write_all(line.as_bytes()).unwrap())
                    .ending(move || drop(closes.shutdown(std::net::Shutdown::Both)))
            }
        }
    }

    fn http_address(&self) -> SocketAddr {
        self.status()["http"]["address"].as_str().unwrap().parse().unwrap()
    }

    /// Opens HTTP. Each request has a connection of its own, like those of a client that doesn't
    /// wait for its answers. The connection of a cancelled request is closed, and all of them at
    /// the end. Cancelled requests of a batch are reported to the server.
    fn open_http(&self) -> Wire {
        let address = self.http_address();
        let (answers, receiver) = mpsc::channel();
        let connections = Arc::<Mutex<BTreeMap<String, TcpStream>>>::default();
        let close = |stream: TcpStream| drop(stream.shutdown(std::net::Shutdown::Both));
        let open = connections.clone();
        let client_id = Arc::<Mutex<String>>::default();
        let send = move |line: &str| {
            let message: Value = serde_json::from_str(line).unwrap_or_default();
            if message["method"] == "notifications/cancelled"
                && let Some(cancelled) =
                    open.lock().unwrap().remove(&message["params"]["requestId"].to_string())
            {
                return close(cancelled);
            }
            let (answers, body, client_id) = (answers.clone(), line.to_owned(), client_id.clone());
            let mut web = Web::connect(address);
            open.lock().unwrap().insert(message["id"].to_string(), web.other_end());
            std::thread::spawn(move || {
                let accept = "Accept: application/json, text/event-stream\r\n";
                let known = client_id.lock().unwrap().clone();
                let answer = web.post(&format!("{JSON}{accept}{known}"), body.as_bytes());
                if let Some(id) = answer.as_ref().and_then(|answer| answer.header("mcp-session-id"))
                {
                    *client_id.lock().unwrap() = format!("Mcp-Session-Id: {id}\r\n");
                }
                for message in answer.iter().flat_map(Answer::messages) {
                    // The test may have ended already.
                    let _ = answers.send(message);
                }
            });
        };
        let end =
            move || std::mem::take(&mut *connections.lock().unwrap()).into_values().for_each(close);
        Wire::new(receiver, send).ending(end)
    }

    fn open_bridge(&self, variable: &str, value: &str) -> Wire {
        let mut command = command(&self.folder);
        command
            .arg("mcp")
            .env(variable, value)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (mut input, lines) =
            (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
        Wire::of_lines(lines, move |line| input.write_all(line.as_bytes()).unwrap()).ending(
            move || {
                let _ = child.kill();
                let _ = child.wait();
            },
        )
    }
}

/// Returns the program under test with the configuration in `folder`.
fn command(folder: &TempDir) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).current_dir(folder.path());
    command.args(["--config", "coordinator_config.yaml"]);
    command
}

impl Program {
    fn new(folder: &TempDir, database: Option<&Database<'_>>) -> Self {
        let store = database.map_or_else(String::new, Database::setting);
        let config = format!(
            "state_dir: state\nhttp: {{ listen: '127.0.0.1:0' }}\nstart: {{ timeout: 1h }}\ncoordinator_token: {TOKEN}\n\
             log: {{ level: debug }}\n{store}"
        );
        fs::write(folder.path().join("coordinator_config.yaml"), config).unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        Self(
            command(folder)
                .arg("serve")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .unwrap(),
        )
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Here {
    fn new(folder: &TempDir) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (service, cancel) = (service(), CancellationToken::new());
        let control = {
            let _in_runtime = runtime.enter();
            tokio::net::UnixListener::bind(folder.path().join("state/control.sock")).unwrap()
        };
        let configuration_state = ConfigurationState {
            file: None,
            since: Timestamp::from_millis(0),
            rejected: None,
            waiting: Vec::new(),
            settings: [].into(),
        };
        let (configuration, ..) = ConfigurationHandle::new(configuration_state);
        let closing = cancel.clone();
        let state = RestState {
            service: service.clone(),
            http: None,
            public_url: None,
            guesses: Arc::default(),
            configuration,
            programs: web::Programs::default(),
            closing,
        };
        runtime.spawn(web::serve_control(control, web::router(state), cancel.clone()));
        let mcp = McpServer::new(service.clone(), Secret::new(TOKEN));
        Self { runtime, service, mcp, cancel }
    }

    fn open(&self) -> Wire {
        let (ours, theirs) = {
            let _in_runtime = self.runtime.enter();
            tokio::net::UnixStream::pair().unwrap()
        };
        let (kind, pid) = (PeerKind::Operator, i32::try_from(std::process::id()).unwrap());
        let peer = LocalPeer { kind, pid, uid: 0, lineage: Lineage::default() };
        let (mcp, cancel) = (self.mcp.clone(), self.cancel.child_token());
        self.runtime.spawn(async move {
            let connections = SocketConnections::new(ConnectionLimits::of(1));
            let connection = connections.register(&peer).unwrap();
            mcp::socket::converse(theirs, peer, connection, mcp, cancel).await;
        });
        let (reader, mut writer) = ours.into_split();
        let (answers, receiver) = mpsc::channel();
        let reading = self.runtime.spawn(async move {
            let mut lines = tokio::io::BufReader::new(reader).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let _ = answers.send(line);
            }
        });
        let runtime = self.runtime.handle().clone();
        Wire::new(receiver, move |line| {
            runtime.block_on(writer.write_all(line.as_bytes())).unwrap();
        })
        .ending(move || reading.abort())
    }
}

fn service() -> Arc<Service> {
    let store = Arc::new(Store::in_memory().unwrap());
    let start = Start { timeout: std::time::Duration::from_hours(1), ..Start::default() };
    let settings = Settings { start, ..settings() };
    Arc::new(Service::new(store, Arc::new(SystemWorld), settings, Nudge::new()))
}
