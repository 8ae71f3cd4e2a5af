//! A connection by futures, over tokio: a stream for whatever speaks RESP, and over it the crate
//! `redis`, whose calls of many tasks go as a pipeline.
//!
//! It does not spin: a task that waits leaves its thread to others until the ring's bell wakes it.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};

use kvasir_reactor::ring::client::Stream;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisResult};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Receiver;

use crate::{Connection, Options, Way};

/// A stream to a server through a ring, or over the unix socket that has none.
pub struct AsyncConnection {
    way: AsyncWay,
    before: Vec<u8>,
}

enum AsyncWay {
    Ring(Box<Polled>),
    Socket(UnixStream),
}

/// What drives a connection of the crate `redis`.
pub type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Who it is has been said by `Connection` already.
static NOBODY: LazyLock<RedisConnectionInfo> = LazyLock::new(RedisConnectionInfo::default);

/// A ring, and its bell for each of the two that may wait for it, perhaps in tasks of their own.
struct Polled {
    ring: Stream,
    for_data: Receiver,
    for_room: Receiver,
}

impl AsyncConnection {
    /// Within a runtime that has its I/O enabled.
    pub fn new(connection: Connection) -> io::Result<AsyncConnection> {
        let Connection { way, before, .. } = connection;
        let way = match way {
            Way::Ring(ring) => AsyncWay::Ring(Box::new(Polled::new(ring)?)),
            Way::Socket(socket) => {
                socket.set_nonblocking(true)?;
                AsyncWay::Socket(UnixStream::from_std(socket)?)
            }
        };
        Ok(AsyncConnection { way, before })
    }

    pub fn has_ring(&self) -> bool {
        matches!(self.way, AsyncWay::Ring(_))
    }
}

/// Connects the crate `redis`: a connection, and what drives it, to be spawned. To connect blocks
/// for the moment that a server of this machine takes. `options.timeout` is that of a reply.
pub async fn connect(
    path: impl AsRef<Path>,
    options: &Options,
) -> RedisResult<(MultiplexedConnection, Driver)> {
    let stream = AsyncConnection::new(Connection::open(path, options)?)?;
    let config = AsyncConnectionConfig::new().set_response_timeout(options.timeout);
    let (client, driver) = MultiplexedConnection::new_with_config(&NOBODY, stream, config).await?;
    Ok((client, Box::pin(driver)))
}

impl Polled {
    fn new(ring: Stream) -> io::Result<Polled> {
        let bell = || Receiver::from_owned_fd(ring.heard().try_clone()?);
        let (for_data, for_room) = (bell()?, bell()?);
        Ok(Polled { ring, for_data, for_room })
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut is_there = true;
        loop {
            if let Some(count) = self.ring.try_read(into)? {
                return Poll::Ready(Ok(count));
            }
            if !is_there {
                return Poll::Ready(Ok(0));
            }
            is_there = ready!(hear(&self.for_data, cx))?;
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            if let Some(count) = self.ring.try_write(bytes)? {
                return Poll::Ready(Ok(count));
            }
            if !ready!(hear(&self.for_room, cx))? {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
        }
    }
}

/// Waits for the bell, of which the other may have heard first; false if the server has gone.
fn hear(bell: &Receiver, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
    ready!(bell.poll_read_ready(cx))?;
    match bell.try_read(&mut [0; 256]) {
        Ok(count) => Poll::Ready(Ok(count > 0)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Ready(Ok(true)),
        Err(error) => Poll::Ready(Err(error)),
    }
}

impl AsyncRead for AsyncConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let AsyncConnection { way, before } = &mut *self;
        if !before.is_empty() {
            let count = before.len().min(into.remaining());
            into.put_slice(&before[..count]);
            before.drain(..count);
            return Poll::Ready(Ok(()));
        }
        match way {
            AsyncWay::Ring(ring) => {
                let count = ready!(ring.poll_read(cx, into.initialize_unfilled()))?;
                into.advance(count);
                Poll::Ready(Ok(()))
            }
            AsyncWay::Socket(socket) => Pin::new(socket).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for AsyncConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.way {
            AsyncWay::Ring(ring) => ring.poll_write(cx, bytes),
            AsyncWay::Socket(socket) => Pin::new(socket).poll_write(cx, bytes),
        }
    }

    /// What is written is there at once.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.way {
            AsyncWay::Ring(ring) => Poll::Ready(ring.ring.shutdown()),
            AsyncWay::Socket(socket) => Pin::new(socket).poll_shutdown(cx),
        }
    }
}
