//! A stream whose writes fail if its client does not read. hyper has no such limit. It would keep
//! the written data as long as the client stays.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// The number of bytes within the limit that restart the limit. A client that reads byte by byte
/// does not restart it.
const PROGRESS: usize = 256 * 1024;

/// A stream with a limit for the time in which its client must read.
pub(super) struct Unread<S> {
    stream: S,
    limit: Duration,
    /// Set while there is data that the client has not read.
    stuck: Option<Stuck>,
    has_timed_out: bool,
}

struct Stuck {
    deadline: Pin<Box<Sleep>>,
    n_written: usize,
}

impl<S> Unread<S> {
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, stuck: None, has_timed_out: false }
    }

    pub(super) fn into_inner(self) -> S {
        self.stream
    }

    /// Returns whether a write has failed because the client did not read.
    pub(super) fn has_timed_out(&self) -> bool {
        self.has_timed_out
    }

    fn note(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(n_written)) => {
                if let Some(stuck) = &mut self.stuck {
                    stuck.n_written += n_written;
                    if stuck.n_written >= PROGRESS {
                        self.stuck = None;
                    }
                }
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                let new =
                    || Stuck { deadline: Box::pin(tokio::time::sleep(self.limit)), n_written: 0 };
                let stuck = self.stuck.get_or_insert_with(new);
                if stuck.deadline.as_mut().poll(cx).is_ready() {
                    self.has_timed_out = true;
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
            }
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Unread<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unread<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.note(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Flushes the stream. hyper calls it when it has written all data.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stuck = None;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
