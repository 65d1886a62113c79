//! Limits the memory of request bodies that are not complete yet, of all clients together.
//!
//! Over HTTP, a client is not known before its request is complete. If all unfinished bodies
//! together hold too much, the one that began first gives way: an honest client sends its body
//! within moments.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use tokio_util::sync::CancellationToken;

use super::body;
use super::problem::Problem;

use machine::locks::lock;

/// The bodies that are being received. Clones share them.
#[derive(Debug, Clone)]
pub struct UnfinishedBodies(Arc<Mutex<Bodies>>);

#[derive(Debug)]
struct Bodies {
    /// The limit for the bytes of all bodies together.
    most: usize,
    n_bytes: usize,
    n_begun: u64,
    unfinished: BTreeMap<u64, Unfinished>,
}

#[derive(Debug, Default)]
struct Unfinished {
    n_bytes: usize,
    gives_way: CancellationToken,
}

/// One of the bodies. Dropping it gives its bytes back.
struct Begun {
    bodies: UnfinishedBodies,
    number: u64,
    gives_way: CancellationToken,
}

impl UnfinishedBodies {
    /// Creates a limit of `most` bytes for all bodies together.
    pub fn new(most: usize) -> Self {
        let bodies = Bodies { most, n_bytes: 0, n_begun: 0, unfinished: BTreeMap::new() };
        Self(Arc::new(Mutex::new(bodies)))
    }

    /// Receives a whole body of at most `most` bytes.
    ///
    /// # Errors
    /// The errors of [`body::collect`]; 503 for a body that gave way to others.
    pub async fn collect(&self, body: Body, most: usize) -> Result<Bytes, Problem> {
        let begun = self.begin();
        tokio::select! {
            biased;
            () = begun.gives_way.cancelled() => {
                let detail = "too many bodies are being received; this one took longest and was given up: send it again";
                Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_bodies", detail))
            }
            collected = body::collect_noting(body, most, |n_bytes| self.lock().add(begun.number, n_bytes)) => collected,
        }
    }

    fn begin(&self) -> Begun {
        let mut bodies = self.lock();
        bodies.n_begun += 1;
        let number = bodies.n_begun;
        let begun = bodies.unfinished.entry(number).or_default();
        Begun { bodies: self.clone(), number, gives_way: begun.gives_way.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Bodies> {
        lock(&self.0)
    }
}

impl Bodies {
    /// Counts bytes that came for a body. As long as there are too many bytes, the oldest other
    /// body gives way.
    fn add(&mut self, number: u64, n_bytes: usize) {
        // The body may have given way just now.
        let Some(body) = self.unfinished.get_mut(&number) else {
            return;
        };
        body.n_bytes += n_bytes;
        self.n_bytes += n_bytes;
        while self.n_bytes > self.most {
            let mut others = self
                .unfinished
                .iter()
                .filter(|(other, body)| **other != number && body.n_bytes > 0);
            let Some((&oldest, body)) = others.next() else {
                return;
            };
            body.gives_way.cancel();
            self.remove(oldest);
        }
    }

    fn remove(&mut self, number: u64) {
        if let Some(body) = self.unfinished.remove(&number) {
            self.n_bytes -= body.n_bytes;
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.bodies.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::StreamExt as _;
    use tokio::sync::mpsc;

    use super::*;

    /// Returns a body and its sender. Each number that is sent becomes a piece of that many bytes.
    fn body() -> (mpsc::UnboundedSender<usize>, Body) {
        let (pieces, received) = mpsc::unbounded_channel();
        let stream = futures::stream::unfold(
            received,
            |mut received: mpsc::UnboundedReceiver<usize>| async move {
                Some((received.recv().await?, received))
            },
        );
        (pieces, Body::from_stream(stream.map(|n_bytes| Ok::<_, Infallible>(vec![b'x'; n_bytes]))))
    }

    #[tokio::test]
    async fn the_body_that_began_first_gives_way() {
        let bodies = UnfinishedBodies::new(100);
        let begin = || {
            let (pieces, body) = body();
            let bodies = bodies.clone();
            pieces.send(40).unwrap();
            (pieces, tokio::spawn(async move { bodies.collect(body, 90).await }))
        };
        let (_first, first) = begin();
        tokio::task::yield_now().await;
        let (second_pieces, second) = begin();
        tokio::task::yield_now().await;
        let (third_pieces, third) = begin();
        assert_eq!(first.await.unwrap().unwrap_err().code, "too_many_bodies");
        drop((second_pieces, third_pieces));
        assert_eq!(
            (second.await.unwrap().unwrap().len(), third.await.unwrap().unwrap().len()),
            (40, 40)
        );
        assert_eq!(bodies.lock().n_bytes, 0);
        assert!(bodies.lock().unfinished.is_empty());
        // A single body is limited only by its own length.
        let (pieces, alone) = begin();
        pieces.send(40).unwrap();
        drop(pieces);
        assert_eq!(alone.await.unwrap().unwrap().len(), 80);
    }
}
