//! Tests of one connection at a time, on a paused clock.

use std::convert::Infallible;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;

const HEAD: Duration = Duration::from_secs(75);
const BODY: Duration = Duration::from_secs(30);
const ANSWER: Duration = Duration::from_secs(30);
/// Less than [`ANSWER`].
const ALMOST: Duration = Duration::from_secs(29);
/// More than what a connection keeps for its client in these tests.
const LARGE: usize = 4 * 1024 * 1024;
/// The bytes that a slow reader reads within the limit.
const PART: usize = 512 * 1024;
const HOUR: Duration = Duration::from_hours(1);

/// Returns a stream without an end.
fn endless() -> impl futures::Stream<Item = Result<&'static str, Infallible>> {
    futures::stream::repeat_with(|| Ok("still here"))
}

/// A client and its connection.
struct Bed {
    client: DuplexStream,
    pool: ConnectionPool,
    cancel: CancellationToken,
    connection: JoinHandle<()>,
    requests: TaskTracker,
    /// The fate of the requests to `/slow` and `/heedful`.
    done: mpsc::UnboundedReceiver<&'static str>,
    began: Instant,
}

/// Sends a text when it is dropped.
struct Dropped(mpsc::UnboundedSender<&'static str>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

impl Bed {
    async fn new() -> Self {
        let (say, done) = mpsc::unbounded_channel();
        let slow = |say: mpsc::UnboundedSender<&'static str>| async move {
            let _dropped = Dropped(say.clone());
            tokio::time::sleep(HOUR).await;
            let _ = say.send("done");
        };
        let heedful = |say: mpsc::UnboundedSender<&'static str>, gone: ClientGone| async move {
            gone.0.cancelled().await;
            let _ = say.send("told");
        };
        let get_slow = say.clone();
        let post_slow = say.clone();
        let router = Router::new()
            .route("/", get(|| async { "hello" }))
            .route("/slow", get(move || slow(get_slow)).post(move |_: Bytes| slow(post_slow)))
            .route(
                "/heedful",
                post(move |Extension(gone): Extension<ClientGone>| heedful(say, gone)),
            )
            .route("/endless", get(|| async { Body::from_stream(endless()) }))
            .route("/large", get(|| async { "x".repeat(LARGE) }))
            .route("/refuse", post(|| async { "not read" }))
            .route("/echo", post(async |body: Body| body::collect(body, 100).await));
        let (client, server) = tokio::io::duplex(1024 * 1024);
        let pool = ConnectionPool::new(1);
        let cancel = CancellationToken::new();
        let registered = pool.enter().await;
        let limits = HttpLimits::of(1);
        assert_eq!((limits.head, limits.body, limits.answer), (HEAD, BODY, ANSWER));
        let requests = TaskTracker::new();
        let connection = connection::serve(
            server,
            router,
            (),
            registered,
            limits,
            cancel.clone(),
            requests.clone(),
        );
        let connection = tokio::spawn(connection);
        Self { client, pool, cancel, connection, requests, done, began: Instant::now() }
    }

    async fn send(&mut self, text: &str) {
        self.client.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads until the text ends with `end`, and returns it.
    async fn receive(&mut self, end: &str) -> String {
        let mut came = Vec::new();
        while !came.ends_with(end.as_bytes()) {
            let byte = self.client.read_u8().await;
            came.push(
                byte.unwrap_or_else(|_| panic!("closed after {}", String::from_utf8_lossy(&came))),
            );
        }
        String::from_utf8(came).unwrap()
    }

    async fn ask(&mut self) {
        self.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        self.receive("hello").await;
    }

    /// The rest of what comes, and when the server closed.
    async fn until_closed(&mut self) -> (String, Duration) {
        let mut rest = String::new();
        self.client.read_to_string(&mut rest).await.unwrap();
        (rest, self.began.elapsed())
    }
}

#[tokio::test(start_paused = true)]
async fn who_sends_nothing_is_closed_without_a_word() {
    let mut bed = Bed::new().await;
    assert_eq!(bed.until_closed().await, (String::new(), HEAD));
    bed.connection.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_sends_half_a_head_is_told() {
    let mut bed = Bed::new().await;
    tokio::time::sleep(HEAD / 2).await;
    bed.send("GET / HT").await;
    let (said, after) = bed.until_closed().await;
    assert_eq!(after, HEAD, "the time runs from the connection");
    let (head, body) = said.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 408 ")
            && head.contains(&format!("content-length: {}", body.len())),
        "{said}"
    );
    let problem: Problem = serde_json::from_str(body).unwrap();
    assert_eq!((problem.status, problem.code.as_ref()), (408, "request_too_slow"));
    // A client that goes on sending is heard for a moment, so that it can read that.
    assert!(!bed.connection.is_finished());
    bed.connection.await.unwrap();
    assert!(bed.began.elapsed() < HEAD + Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_connection_may_be_idle_between_requests() {
    let mut bed = Bed::new().await;
    for _ in 0..3 {
        tokio::time::sleep(HEAD * 9 / 10).await;
        bed.ask().await;
    }
    bed.began = Instant::now();
    assert_eq!(bed.until_closed().await, (String::new(), HEAD));
}

#[tokio::test(start_paused = true)]
async fn a_head_has_a_limit_also_after_other_requests() {
    let mut bed = Bed::new().await;
    bed.ask().await;
    bed.began = Instant::now();
    bed.send("G").await;
    tokio::time::sleep(HEAD / 2).await;
    bed.send("E").await;
    let (said, after) = bed.until_closed().await;
    assert!(said.starts_with("HTTP/1.1 408 ") && after == HEAD, "{said} {after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_end_is_told() {
    let mut bed = Bed::new().await;
    bed.send("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n\r\n").await;
    for _ in 0..5 {
        tokio::time::sleep(BODY / 6).await;
        bed.send("x").await;
    }
    let (said, after) = bed.until_closed().await;
    assert!(
        said.starts_with("HTTP/1.1 408 ") && said.contains("the body did not come in time"),
        "{said}"
    );
    assert_eq!(after, BODY);
}

#[tokio::test(start_paused = true)]
async fn an_answer_may_take_its_time() {
    let mut bed = Bed::new().await;
    bed.send("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    // No client is sent away for a new one in the middle of that.
    bed.pool.make_room();
    bed.receive("\r\n\r\n").await;
    assert_eq!(bed.began.elapsed(), HOUR);
    bed.ask().await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_gives_way() {
    let mut bed = Bed::new().await;
    bed.ask().await;
    bed.pool.make_room();
    assert_eq!(bed.until_closed().await, (String::new(), Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn who_still_sends_gets_the_answer_to_a_request_that_was_not_read() {
    let mut bed = Bed::new().await;
    bed.send("POST /refuse HTTP/1.1\r\nhost: x\r\ncontent-length: 9000000\r\n\r\n").await;
    bed.receive("not read").await;
    for _ in 0..8 {
        bed.send(&"x".repeat(1_000_000)).await;
    }
    assert_eq!(bed.until_closed().await.0, "");
    bed.connection.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn at_the_end_what_was_asked_is_answered_and_nothing_else_is_waited_for() {
    let mut bed = Bed::new().await;
    bed.send("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    tokio::time::sleep(HOUR / 2).await;
    bed.cancel.cancel();
    let (said, after) = bed.until_closed().await;
    assert!(said.starts_with("HTTP/1.1 200 ") && after == HOUR, "{said} {after:?}");

    let mut idle = Bed::new().await;
    idle.ask().await;
    idle.cancel.cancel();
    assert_eq!(idle.until_closed().await, (String::new(), Duration::ZERO));

    let mut half = Bed::new().await;
    half.send("GET / HTTP/1.1\r\n").await;
    tokio::task::yield_now().await;
    half.cancel.cancel();
    assert!(half.until_closed().await.1 <= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_question_ends_with_its_connection() {
    let mut bed = Bed::new().await;
    bed.send("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    tokio::time::sleep(HOUR / 2).await;
    bed.began = Instant::now();
    bed.client.shutdown().await.unwrap();
    assert_eq!(bed.done.recv().await, Some("dropped"));
    assert_eq!(bed.until_closed().await, (String::new(), Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_change_is_made_although_its_client_left() {
    for waits_before in [Duration::ZERO, HOUR / 2] {
        let mut bed = Bed::new().await;
        bed.send("POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc").await;
        tokio::time::sleep(waits_before).await;
        drop(bed.client);
        bed.connection.await.unwrap();
        assert_eq!(bed.began.elapsed(), waits_before);
        assert_eq!((bed.done.recv().await, bed.done.recv().await), (Some("done"), Some("dropped")));
        assert_eq!(bed.began.elapsed(), HOUR);
        // The end of the serving waits for it.
        bed.requests.close();
        bed.requests.wait().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_whose_body_breaks_off_is_not_made() {
    let mut bed = Bed::new().await;
    bed.send("POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nab").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(bed.client);
    assert_eq!(bed.done.recv().await, None);
    assert_eq!(bed.began.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn handlers_are_told_of_a_client_that_is_gone() {
    let mut bed = Bed::new().await;
    bed.send("POST /heedful HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n").await;
    tokio::time::sleep(HOUR).await;
    drop(bed.client);
    assert_eq!(bed.done.recv().await, Some("told"));
    assert_eq!(bed.began.elapsed(), HOUR);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_read_what_never_ends_is_closed() {
    let mut bed = Bed::new().await;
    bed.send("GET /endless HTTP/1.1\r\nhost: x\r\n\r\n").await;
    bed.receive("still here").await;
    tokio::time::sleep(ALMOST).await;
    // The client reads the bytes that were under way, and gets more time by that.
    bed.client.read_exact(&mut vec![0; 1024 * 1024]).await.unwrap();
    tokio::time::sleep(ALMOST).await;
    assert!(!bed.connection.is_finished());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(bed.connection.is_finished());
}

#[tokio::test(start_paused = true)]
async fn who_does_not_read_any_other_answer_is_closed() {
    let mut bed = Bed::new().await;
    bed.send("GET /large HTTP/1.1\r\nhost: x\r\n\r\n").await;
    bed.receive("xxx").await;
    // A few bytes are not read for the answer's sake.
    for _ in 0..9 {
        tokio::time::sleep(ANSWER / 10).await;
        bed.client.read_exact(&mut [0; 100]).await.unwrap();
    }
    assert!(!bed.connection.is_finished());
    bed.connection.await.unwrap();
    assert!(bed.began.elapsed() <= ANSWER + Duration::from_secs(1), "{:?}", bed.began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn who_reads_slowly_gets_the_whole_answer() {
    let mut bed = Bed::new().await;
    bed.send("GET /large HTTP/1.1\r\nhost: x\r\n\r\n").await;
    bed.receive("\r\n\r\n").await;
    for _ in 0..LARGE / PART {
        tokio::time::sleep(ALMOST).await;
        bed.client.read_exact(&mut vec![0; PART]).await.unwrap();
    }
    bed.ask().await;
}
