//! Both APIs in one server of this process. It remembers changes, counts requests, and fails where
//! a test wants it. GitHub is at its root (also below `/api/v3`, like an own server), and GitLab is
//! below `/gitlab`.
//!
//! ```text
//! let fake = Fake::start();
//! let repository = fake.repository(ForgeKind::GitHub, "ann/site");
//! let issue = repository.issue("Login").label("coding agent").assign("robot");   // 1
//! fake.fail("POST *comments", Times::N(1), Fault::LostAnswer);
//! assert_eq!(issue.labels(), ["coding agent"]);
//! ```
//! A route is a method and the path as the forge documents it (`GET /repos/{owner}/{repo}/issues`;
//! GitLab's begin with `/api/v4`). The fake has its own time: each change is a second later than
//! the one before.

mod faults;
pub mod git;
mod github;
mod gitlab;
mod handles;
mod world;

use std::collections::hash_map::DefaultHasher;
use std::convert::Infallible;
use std::hash::{Hash as _, Hasher as _};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use futures::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use domain::forge::ForgeKind;

pub use self::faults::{Fault, Times};
pub use self::handles::{Item, Repository};
#[allow(unused_imports, reason = "the benchmark has no branches")]
pub use self::world::Branches;
use self::world::{Reply, World};

/// The valid token of its owner, at both forges.
pub const TOKEN: &str = "t0ken-that-nobody-may-see";
/// The owner of that token.
pub const OWNER: &str = "robot";

/// The path of GitLab.
const GITLAB: &str = "/gitlab/api/v4";

/// A request as the server received it.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    /// The path as the forge documents it; empty if the forge has no such path.
    pub route: &'static str,
    /// The received path without the query.
    pub path: String,
    pub query: Vec<(String, String)>,
    pub body: Option<Value>,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

/// The server. Its drop ends all connections.
pub struct Fake {
    world: Shared,
    address: SocketAddr,
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

/// The world behind the server.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<World>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }
}

impl Fake {
    /// Starts the server at a free port.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let world = Shared(Arc::new(Mutex::new(World::new(address))));
        let (stop, stopped) = oneshot::channel::<Infallible>();
        let shared = world.clone();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => (),
                    () = serve(listener, shared) => (),
                }
            });
        });
        Self { world, address, stop: Some(stop), thread: Some(thread) }
    }

    /// Returns the base URL for a `github:`.
    pub fn github_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the base URL of an own GitHub server.
    pub fn enterprise_url(&self) -> String {
        format!("http://{}/api/v3", self.address)
    }

    /// Returns the base URL for a `gitlab:`.
    pub fn gitlab_url(&self) -> String {
        format!("http://{}/gitlab", self.address)
    }

    pub fn url(&self, forge: ForgeKind) -> String {
        match forge {
            ForgeKind::GitHub => self.github_url(),
            ForgeKind::GitLab => self.gitlab_url(),
        }
    }

    /// Returns the repository of this name, which is made if there is none.
    pub fn repository(&self, forge: ForgeKind, name: &str) -> Repository {
        let id = self.world.lock().repository(forge, name);
        Repository::new(self.world.clone(), id)
    }

    /// Returns the number of an account, which is made if there is none.
    pub fn user(&self, login: &str) -> u64 {
        self.world.lock().user(login)
    }

    /// Gives an account a token of its own.
    pub fn add_token(&self, login: &str, token: &str) {
        let mut world = self.world.lock();
        let id = world.user(login);
        world.accounts.insert(token.to_owned(), id);
    }

    /// Renames an account; its number stays.
    pub fn rename_user(&self, old: &str, new: &str) {
        let mut world = self.world.lock();
        let id = world.user(old);
        new.clone_into(world.users.get_mut(&id).unwrap());
    }

    /// Makes another token the valid one from now on, as if the old one was revoked.
    pub fn set_token(&self, token: &str) {
        token.clone_into(&mut self.world.lock().token);
    }

    /// Lets requests fail whose `METHOD route` or `METHOD path` matches `pattern` (`*` is
    /// anything).
    pub fn fail(&self, pattern: &str, times: Times, fault: Fault) {
        self.world.lock().faults.add(pattern, times, fault);
    }

    /// Ends the faults. Requests that hang stay so.
    pub fn mend(&self) {
        self.world.lock().faults.clear();
    }

    /// Carries out the requests that met [`Fault::CutLate`] or [`Fault::HangLate`].
    pub fn carry_out_late(&self) {
        let mut world = self.world.lock();
        for (request, call) in std::mem::take(&mut world.late) {
            carried_out(&mut world, &request, call);
        }
    }

    /// Returns all requests in their order.
    pub fn requests(&self) -> Vec<Request> {
        self.world.lock().requests.clone()
    }

    pub fn forget_requests(&self) {
        self.world.lock().requests.clear();
    }

    /// Returns the number of requests that match `pattern` (as for [`Fake::fail`]).
    pub fn n_requests(&self, pattern: &str) -> usize {
        self.world
            .lock()
            .requests
            .iter()
            .filter(|request| faults::is_like(pattern, request))
            .count()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, world: Shared) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        let world = world.clone();
        // The task ends with the runtime.
        tokio::spawn(async move {
            let service = service_fn(|request| answer(world.clone(), request));
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

type Answer = hyper::Response<BoxBody<Bytes, io::Error>>;

/// Answers a request. An error ends the connection without an answer.
async fn answer(world: Shared, request: hyper::Request<Incoming>) -> Result<Answer, io::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let url = reqwest::Url::parse(&format!("http://fake{}", head.uri)).unwrap();
    // The path stays as it was received, because a parser of URLs would resolve dots.
    let path = head.uri.path().to_owned();
    let mut request = Request {
        method: head.method.to_string(),
        route: "",
        query: url
            .query_pairs()
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect(),
        body: (!body.is_empty())
            .then(|| serde_json::from_slice(&body).unwrap_or_else(|_| json!("no JSON"))),
        headers: head
            .headers
            .iter()
            .map(|(name, value)| {
                (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
            })
            .collect(),
        path,
    };
    let is_git = request.path.starts_with(git::PATH);
    let (fault, reply) = {
        let mut world = world.lock();
        let call = find_route(&mut request);
        world.requests.push(request.clone());
        let fault = world.faults.take(&request);
        let reply = match fault {
            _ if is_git => None,
            Some(Fault::Status { .. } | Fault::Hang | Fault::Cut) => None,
            Some(Fault::CutLate | Fault::HangLate) => {
                world.late.push((request.clone(), call));
                None
            }
            _ => Some(carried_out(&mut world, &request, call)),
        };
        (fault, reply)
    };
    let cut = || Err(io::Error::other("cut"));
    if is_git {
        return match fault {
            Some(Fault::Hang | Fault::HangLate) => std::future::pending().await,
            Some(Fault::Cut | Fault::CutLate) => cut(),
            Some(Fault::Status { status, headers, body }) => {
                Ok(sent(&Reply { status, headers, body }, End::Whole))
            }
            Some(_) => {
                git::answer(&world, &request, &body).await;
                cut()
            }
            None => Ok(git::answer(&world, &request, &body).await),
        };
    }
    let reply = match fault {
        Some(Fault::Hang | Fault::HangLate) => std::future::pending().await,
        Some(Fault::Cut | Fault::CutLate | Fault::LostAnswer) => return cut(),
        Some(Fault::Status { status, headers, body }) => Reply { status, headers, body },
        Some(Fault::WrongJson) => Reply { body: json!({ "cat": ["meow"] }), ..reply.unwrap() },
        Some(Fault::CutBody) => return Ok(sent(&reply.unwrap(), End::Cut)),
        Some(Fault::TruncatedJson) => return Ok(sent(&reply.unwrap(), End::Half)),
        None => reply.unwrap(),
    };
    let etag = etag(&reply);
    if reply.status == 200 && request.method == "GET" {
        if request.header("if-none-match") == Some(&etag) {
            return Ok(sent(
                &Reply { status: 304, headers: vec![("etag".to_owned(), etag)], body: Value::Null },
                End::Whole,
            ));
        }
        let mut reply = reply;
        reply.headers.push(("etag".to_owned(), etag));
        return Ok(sent(&reply, End::Whole));
    }
    Ok(sent(&reply, End::Whole))
}

/// The forge of a request with the values of its route's parameters; `None` if there is no such
/// route.
type Call = Option<(ForgeKind, Vec<String>)>;

fn carried_out(world: &mut World, request: &Request, call: Call) -> Reply {
    match call {
        Some((ForgeKind::GitHub, parameters)) => github::answer(world, request, &parameters),
        Some((ForgeKind::GitLab, parameters)) => gitlab::answer(world, request, &parameters),
        None => Reply::error(404, "Not Found"),
    }
}

fn etag(reply: &Reply) -> String {
    let mut hasher = DefaultHasher::new();
    reply.body.to_string().hash(&mut hasher);
    reply.headers.hash(&mut hasher);
    format!("W/\"{:016x}\"", hasher.finish())
}

/// The end of a body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Whole,
    /// The body ends in its middle, as if that were all.
    Half,
    /// The body and the connection end in its middle.
    Cut,
}

fn sent(reply: &Reply, end: End) -> Answer {
    let text = if reply.body.is_null() { String::new() } else { reply.body.to_string() };
    let n = if end == End::Whole { text.len() } else { text.len() / 2 };
    let bytes = Bytes::copy_from_slice(&text.as_bytes()[..n]);
    let body = if end == End::Cut {
        let frames = vec![Ok(Frame::data(bytes)), Err(io::Error::other("cut"))];
        StreamBody::new(stream::iter(frames)).boxed()
    } else {
        Full::new(bytes).map_err(|never| match never {}).boxed()
    };
    let mut answer =
        hyper::Response::builder().status(reply.status).header("content-type", "application/json");
    for (name, value) in &reply.headers {
        answer = answer.header(name, value);
    }
    answer.body(body).unwrap()
}

/// Returns the forge of a request, with the values of its route's parameters.
fn find_route(request: &mut Request) -> Call {
    let gitlab = request
        .path
        .strip_prefix(GITLAB)
        .map(|path| (ForgeKind::GitLab, gitlab::ROUTES, "/api/v4", path));
    let (forge, routes, prefix, path) = gitlab.unwrap_or_else(|| {
        let path = request.path.strip_prefix("/api/v3").unwrap_or(&request.path);
        (ForgeKind::GitHub, github::ROUTES, "", path)
    });
    routes.iter().find_map(|route| {
        let (method, template) = route.split_once(' ').unwrap();
        let template_path = template.strip_prefix(prefix).unwrap();
        let parameters =
            (method == request.method).then(|| parameters(template_path, path)).flatten()?;
        request.route = template;
        Some((forge, parameters))
    })
}

/// Returns the values of a template's `{parameters}` in a path.
pub fn parameters(template: &str, path: &str) -> Option<Vec<String>> {
    let (template, path): (Vec<_>, Vec<_>) =
        (template.split('/').collect(), path.split('/').collect());
    if template.len() != path.len() {
        return None;
    }
    let mut values = Vec::new();
    for (expected, segment) in template.into_iter().zip(path) {
        if expected.starts_with('{') {
            values.push(decoded(segment));
        } else if expected != segment {
            return None;
        }
    }
    Some(values)
}

fn decoded(segment: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), segment.as_bytes());
    while let Some((&byte, tail)) = rest.split_first() {
        let hex = tail
            .get(..2)
            .and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match hex {
            Some(value) if byte == b'%' => {
                bytes.push(value);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).unwrap()
}
