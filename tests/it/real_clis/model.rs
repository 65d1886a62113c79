//! A model that follows a script, behind the streaming APIs that the CLIs use. It contains just
//! enough of each for tool calls.

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

/// The server of the model. It answers on a loopback port until it is dropped.
pub struct Model {
    pub port: u16,
    /// The requests so far, each as its CLI sent it.
    pub seen: Arc<Mutex<Vec<Value>>>,
    /// The number of polls that gave the agent nothing.
    pub n_empty_polls: Arc<AtomicU32>,
    is_waiting: Arc<AtomicBool>,
    /// Becomes true when the event that the script waits for has happened.
    happened: watch::Sender<bool>,
    /// The runtime, which ends its tasks.
    _runtime: Runtime,
}

struct Shared {
    script: Script,
    seen: Arc<Mutex<Vec<Value>>>,
    n_empty_polls: Arc<AtomicU32>,
    /// True while a CLI waits for the event of the script.
    is_waiting: Arc<AtomicBool>,
    happened: watch::Receiver<bool>,
    /// A callback that runs while a CLI waits for its answer.
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

    /// Returns whether the model waits for the event of its script.
    pub fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Acquire)
    }

    /// Announces the event that its script waits for.
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
            // An error means the end of the test.
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

/// Returns a text, or the texts of a list of blocks.
fn text_of(content: &Value) -> String {
    match content.as_str() {
        Some(text) => text.to_owned(),
        None => {
            items(content).filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
    }
}
