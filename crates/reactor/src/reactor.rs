//! The one interface to both backends. It chooses the backend and hands every call on.

use std::io;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::time::Duration;

use crate::epoll::Epoll;
use crate::ring::rings::Rings;
use crate::ring::turn::Around;
use crate::uring::Uring;
use crate::{Address, Buffer, ConnectionId, Event, Listener, ListenerId, Payload, Socket, Waker};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// io_uring if the kernel lets us, else epoll.
    #[default]
    Auto,
    Uring,
    Epoll,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    Uring,
    Epoll,
    /// A simulated world.
    Sim,
}

impl Backend {
    pub fn name(self) -> &'static str {
        match self {
            Backend::Uring => "io_uring",
            Backend::Epoll => "epoll",
            Backend::Sim => "sim",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Options {
    pub backend: BackendChoice,
    /// Submission queue of io_uring; the completion queue has four times as many. More operations
    /// than that are no error, they cost a system call more.
    pub ring_entries: u32,
    /// How many receive buffers there are for all connections together; rounded up to a power of
    /// two, at most 32,768. When all are in use, receiving waits until one is recycled.
    pub buffer_count: u16,
    pub buffer_size: usize,
    /// For how long a wait looks whether a ring brings something before it sleeps.
    pub ring_spin: Duration,
}

impl Default for Options {
    fn default() -> Options {
        let backend = BackendChoice::Auto;
        Options {
            backend,
            ring_entries: 1024,
            buffer_count: 256,
            buffer_size: 16 * 1024,
            ring_spin: Duration::ZERO,
        }
    }
}

/// Sockets of one worker thread. Must stay on the thread that made it.
pub struct Reactor {
    pub(crate) implementation: Implementation,
    fallback_reason: Option<String>,
    /// `None` until the first connection is given a ring, and asked only while there is one.
    pub(crate) around: Option<Box<Around>>,
    pub(crate) ring_spin: Duration,
    /// io_uring accepts calls of the thread that set the ring up only, so this is not `Send`.
    _thread: PhantomData<*mut ()>,
}

pub(crate) enum Implementation {
    Uring(Box<Uring>),
    Epoll(Box<Epoll>),
    #[cfg(feature = "sim")]
    Sim(Box<crate::sim::Sim>),
}

/// Calls the same method of whichever backend it is.
macro_rules! backend {
    ($implementation:expr, $backend:ident => $call:expr) => {
        match $implementation {
            Implementation::Uring($backend) => $call,
            Implementation::Epoll($backend) => $call,
            #[cfg(feature = "sim")]
            Implementation::Sim($backend) => $call,
        }
    };
}
pub(crate) use backend;

impl Reactor {
    pub fn new(options: &Options) -> io::Result<Reactor> {
        let (implementation, fallback_reason) = match options.backend {
            BackendChoice::Uring => (Implementation::uring(options)?, None),
            BackendChoice::Epoll => (Implementation::epoll(options)?, None),
            BackendChoice::Auto => match Implementation::uring(options) {
                Ok(uring) => (uring, None),
                // A sandbox may refuse it by any error; one that hits epoll as well comes again.
                Err(error) => (Implementation::epoll(options)?, Some(error.to_string())),
            },
        };
        let ring_spin = options.ring_spin;
        Ok(Reactor {
            implementation,
            fallback_reason,
            around: None,
            ring_spin,
            _thread: PhantomData,
        })
    }

    /// On a host of a simulated world.
    #[cfg(feature = "sim")]
    pub fn simulated(network: &crate::sim::Network, host: IpAddr) -> Reactor {
        let implementation = Implementation::Sim(Box::new(crate::sim::Sim::new(network, host)));
        Reactor {
            implementation,
            fallback_reason: None,
            around: None,
            ring_spin: Duration::ZERO,
            _thread: PhantomData,
        }
    }

    /// When `wait` should be called next, by the monotonic clock; `None`: when something else has
    /// happened. For a simulated world, where it does not block.
    #[cfg(feature = "sim")]
    pub fn due_ns(&self) -> Option<u64> {
        match &self.implementation {
            Implementation::Sim(sim) => sim.due_ns(),
            _ => panic!("the kernel says when"),
        }
    }

    pub fn backend(&self) -> Backend {
        match self.implementation {
            Implementation::Uring(_) => Backend::Uring,
            Implementation::Epoll(_) => Backend::Epoll,
            #[cfg(feature = "sim")]
            Implementation::Sim(_) => Backend::Sim,
        }
    }

    /// Why `Auto` did not take io_uring, for the log.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback_reason.as_deref()
    }

    pub fn waker(&self) -> Waker {
        backend!(&self.implementation, backend => backend.waker())
    }

    /// Starts accepting. If the kernel refuses, `AcceptFailed` follows.
    pub fn listen(&mut self, listener: Listener) -> ListenerId {
        backend!(&mut self.implementation, backend => backend.listen(listener))
    }

    /// Stops accepting and closes the listener. No event for that id after this.
    pub fn unlisten(&mut self, listener: ListenerId) {
        backend!(&mut self.implementation, backend => backend.unlisten(listener));
    }

    /// Starts receiving. If the kernel refuses, `Closed` follows.
    pub fn register(&mut self, socket: Socket) -> ConnectionId {
        backend!(&mut self.implementation, backend => backend.register(socket))
    }

    /// Begins to connect to `to`, from the address `source` if there is one; `Connected` says how
    /// that has ended. Until then nothing may be sent. It takes as long as the system allows, or
    /// until it is closed. Fails where it cannot even begin.
    pub fn connect(&mut self, to: &Address, source: Option<IpAddr>) -> io::Result<ConnectionId> {
        let socket = || Socket::connecting(to, source);
        Ok(match &mut self.implementation {
            Implementation::Uring(uring) => uring.connect(socket()?),
            Implementation::Epoll(epoll) => epoll.connect(socket()?),
            #[cfg(feature = "sim")]
            Implementation::Sim(sim) => sim.connect(to)?,
        })
    }

    /// Connections that are registered or not yet closed by the kernel.
    pub fn connection_count(&self) -> usize {
        backend!(&self.implementation, backend => backend.connection_count())
    }

    /// Submits what was queued, blocks until there is an event or `timeout` is over (`None`: as
    /// long as it takes), and appends every event there is. It may return without any: after a
    /// signal, or when a backend had something to do for itself.
    pub fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        if self.around.as_ref().is_some_and(|around| around.rings.are_there()) {
            return self.wait_with_rings(timeout, events);
        }
        backend!(&mut self.implementation, backend => backend.wait(timeout, events))
    }

    pub fn bytes(&self, buffer: &Buffer) -> &[u8] {
        if let Some(bytes) = self.around.as_ref().and_then(|around| around.rings.bytes(buffer)) {
            return bytes;
        }
        backend!(&self.implementation, backend => backend.bytes(buffer))
    }

    /// Gives the buffer back for receiving.
    pub fn recycle(&mut self, buffer: Buffer) {
        let buffer = match &mut self.around {
            Some(around) => around.rings.recycle(buffer),
            None => Some(buffer),
        };
        let Some(buffer) = buffer else { return };
        backend!(&mut self.implementation, backend => backend.recycle(buffer));
    }

    /// Sends all of the payload and then reports `Sent`. At most one may be on its way per
    /// connection. Ignored if the connection is closed.
    pub fn send(&mut self, connection: ConnectionId, payload: Payload) {
        payload.assert_valid();
        if let Some(rings) = self.rings_of(connection) {
            return rings.send(connection, payload, false);
        }
        backend!(&mut self.implementation, backend => backend.send(connection, payload));
    }

    /// As [`Reactor::send`], for whoever goes on waiting anyway: success alone does not end a wait,
    /// its `Sent` comes along with the next event. One system call a turn instead of two.
    pub fn send_quietly(&mut self, connection: ConnectionId, payload: Payload) {
        payload.assert_valid();
        if let Some(rings) = self.rings_of(connection) {
            return rings.send(connection, payload, true);
        }
        backend!(&mut self.implementation, backend => backend.send_quietly(connection, payload));
    }

    /// Stops receiving. What has been received already is still reported, `Closed` included.
    pub fn pause(&mut self, connection: ConnectionId) {
        if let Some(rings) = self.rings_of(connection) {
            return rings.pause(connection, true);
        }
        backend!(&mut self.implementation, backend => backend.pause(connection));
    }

    /// Receives again after `pause`.
    pub fn resume(&mut self, connection: ConnectionId) {
        if let Some(rings) = self.rings_of(connection) {
            return rings.pause(connection, false);
        }
        backend!(&mut self.implementation, backend => backend.resume(connection));
    }

    /// Cancels what is on its way and closes the descriptor once the kernel has given everything
    /// back. No event for that id after this; a payload on its way is dropped. Ignored if closed.
    pub fn close(&mut self, connection: ConnectionId) {
        if let Some(rings) = self.rings_of(connection) {
            rings.remove(connection);
        }
        backend!(&mut self.implementation, backend => backend.close(connection));
    }

    /// All rings, if the connection has one.
    fn rings_of(&mut self, connection: ConnectionId) -> Option<&mut Rings> {
        let rings = &mut self.around.as_deref_mut()?.rings;
        rings.has(connection).then_some(rings)
    }
}

impl Implementation {
    fn uring(options: &Options) -> io::Result<Implementation> {
        Ok(Implementation::Uring(Box::new(Uring::new(options)?)))
    }

    fn epoll(options: &Options) -> io::Result<Implementation> {
        Ok(Implementation::Epoll(Box::new(Epoll::new(options)?)))
    }
}
