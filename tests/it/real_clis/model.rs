//! A model that follows a script, behind the streaming APIs that the CLIs speak: just enough of each for tool calls.

mod completions;
mod generate;
mod messages;
mod responses;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::script::{Conversation, Script, Step, turn_of};

/// Answers on a loopback port until it is dropped.
pub struct Model {
    pub port: u16,
    /// The requests so far, each as its CLI sent it.
    pub seen: Arc<Mutex<Vec<Value>>>,
    /// How many polls gave the agent nothing.
    pub n_empty_polls: Arc<AtomicU32>,
    is_waiting: Arc<AtomicBool>,
    /// Whether what the script waits for has happened.
    happened: watch::Sender<bool>,
    /// Its tasks end with it.
    _runtime: Runtime,
}

struct Shared {
    script: Script,
    seen: Arc<Mutex<Vec<Value>>>,
    n_empty_polls: Arc<AtomicU32>,
    /// A CLI waits for what the script waits for.
    is_waiting: Arc<AtomicBool>,
    happened: watch::Receiver<bool>,
    /// Called while a CLI waits for its answer.
    look: Box<dyn Fn() + Send + Sync>,
}

impl Model {
    pub fn start(script: Script, look: impl Fn() + Send + Sync + 'static) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::<Mutex<Vec<Value>>>::default();
        let is_waiting = Arc::<AtomicBool>::default();
        let n_empty_polls = Arc::<AtomicU32>::default();
        let (happened, happens) = watch::channel(false);
        let shared = Arc::new(Shared {
            script,
            seen: seen.clone(),
            n_empty_polls: n_empty_polls.clone(),
            is_waiting: is_waiting.clone(),
            happened: happens,
            look: Box::new(look),
        });
        let router = Router::new()
            .route("/v1/messages", post(messages::answer))
            .route("/v1/responses", post(responses::answer))
            .route("/v1/chat/completions", post(completions::answer))
            .route("/v1beta/models/{call}", post(generate::answer));
        let router = router.layer(DefaultBodyLimit::disable()).with_state(shared);
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self { port, seen, n_empty_polls, is_waiting, happened, _runtime: runtime }
    }

    /// Whether it thinks until what its script waits for has happened.
    pub fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Acquire)
    }

    /// What its script waits for has happened.
    pub fn go_on(&self) {
        self.happened.send_replace(true);
    }
}

impl Shared {
    async fn next(&self, request: Value, read: fn(&Value) -> Conversation) -> (Step, usize) {
        (self.look)();
        let conversation = read(&request);
        self.seen.lock().unwrap().push(request);
        if conversation.results.last().and_then(|latest| turn_of(latest)).is_some() {
            self.n_empty_polls.fetch_add(1, Ordering::Relaxed);
        }
        if self.script.is_to_wait(&conversation) {
            self.is_waiting.store(true, Ordering::Release);
            // An error is the end of the test.
            let _ = self.happened.clone().wait_for(|happened| *happened).await;
        }
        (self.script.next(&conversation), conversation.results.len())
    }
}

fn stream(events: &[Value]) -> Response {
    let mut text = String::new();
    for event in events {
        if let Some(name) = event["type"].as_str() {
            writeln!(text, "event: {name}").unwrap();
        }
        write!(text, "data: {event}\n\n").unwrap();
    }
    ([(CONTENT_TYPE, "text/event-stream")], text).into_response()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A text, or the texts of a list of blocks.
fn text_of(content: &Value) -> String {
    match content.as_str() {
        Some(text) => text.to_owned(),
        None => {
            items(content).filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
    }
}
