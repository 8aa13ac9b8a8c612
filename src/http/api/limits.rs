//! Connections of the API: so many at a time, each for so long. Whoever opens many and says nothing holds them for a
//! minute, and no descriptor beyond.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// Connections at a time; more wait in the system's own short queue.
const MAX_CONNECTIONS: usize = 256;

/// A connection ends after so long, whatever it does: longer than the one request that it is for.
const MAX_AGE: Duration = Duration::from_secs(60);

/// A listener with these bounds.
pub(super) struct Limited {
    listener: TcpListener,
    free: Arc<Semaphore>,
    age: Duration,
}

impl Limited {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self::with(listener, MAX_CONNECTIONS, MAX_AGE)
    }

    fn with(listener: TcpListener, connections: usize, age: Duration) -> Self {
        Self { listener, free: Arc::new(Semaphore::new(connections)), age }
    }
}

impl Listener for Limited {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // Nobody closes the semaphore.
        let Ok(permit) = Arc::clone(&self.free).acquire_owned().await else { std::future::pending().await };
        let (stream, address) = Listener::accept(&mut self.listener).await;
        (Connection { stream, end: Box::pin(tokio::time::sleep_until(Instant::now() + self.age)), _permit: permit }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends.
pub(super) struct Connection {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.end.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.end.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn connections_are_bounded_and_a_silent_one_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let mut limited = Limited::with(listener, 1, Duration::from_millis(20));
        let _silent = TcpStream::connect(address).await.expect("connected");
        let _second = TcpStream::connect(address).await.expect("in the queue of the system");
        let (mut first, _) = limited.accept().await;
        {
            let mut next = Box::pin(limited.accept());
            assert!(futures::poll!(&mut next).is_pending(), "one at a time");
            let error = first.read_u8().await.expect_err("it ends by itself");
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert!(futures::poll!(&mut next).is_pending());
        }
        drop(first);
        limited.accept().await;
    }
}
