//! Who does what takes long when slots move, in a simulated world: work that waits between steps,
//! for a time, for bytes or for chunks.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use kvasir_config::Config;
use kvasir_reactor::clock;
use kvasir_reactor::sim::{End, Network, Received};
use kvasir_server::cluster::hands::{Chunk, Chunks, Hands, Later, Wire, Work, Workforce};

/// How long a reader or a writer waits before it looks whether it is still wanted.
const LOOK_NS: u64 = 50_000_000;

/// Work that was begun, and is taken up by the crew at its next step.
#[derive(Clone, Default)]
pub struct Begun(Arc<Mutex<Vec<Work>>>);

impl Workforce for Begun {
    fn begin(&self, _name: &'static str, work: Work) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(work);
        Ok(())
    }
}

pub struct Crew {
    network: Network,
    ip: IpAddr,
    begun: Begun,
    members: Vec<Member>,
}

struct Member {
    future: Pin<Box<dyn Future<Output = ()>>>,
    waits: Waits,
}

/// What a member waits for.
#[derive(Clone, Default)]
struct Waits(Rc<RefCell<What>>);

#[derive(Default)]
enum What {
    /// For nothing: it has not begun.
    #[default]
    Nothing,
    Time(u64),
    /// Until then.
    Bytes(Rc<End>, u64),
    Room(Rc<End>, u64),
    Chunks(Arc<Chunks>),
}

impl Crew {
    pub fn new(network: &Network, ip: IpAddr, begun: Begun) -> Crew {
        Crew { network: network.clone(), ip, begun, members: Vec::new() }
    }

    /// When each has something to do.
    pub fn dues(&mut self) -> Vec<Option<u64>> {
        for work in self.begun.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let waits = Waits::default();
            let (network, ip) = (self.network.clone(), self.ip);
            let hand = Hand { network, ip, waits: waits.clone() };
            self.members.push(Member { future: work(Box::new(hand)), waits });
        }
        self.members.iter().map(|member| member.waits.due_ns()).collect()
    }

    pub fn step(&mut self, member: usize) {
        let future = self.members[member].future.as_mut();
        if future.poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            self.members.remove(member);
        }
    }
}

impl Waits {
    fn due_ns(&self) -> Option<u64> {
        match &*self.0.borrow() {
            What::Nothing => Some(0),
            What::Time(ns) => Some(*ns),
            What::Bytes(end, ns) => Some(end.next_ns().unwrap_or(u64::MAX).min(*ns)),
            What::Room(end, _) if end.room() > 0 => Some(0),
            What::Room(_, ns) => Some(*ns),
            What::Chunks(chunks) => chunks.is_ready().then_some(0),
        }
    }

    fn set(&self, what: What) {
        *self.0.borrow_mut() = what;
    }

    /// The next that comes, until a time.
    async fn receive(&self, end: &Rc<End>, until_ns: u64, max: usize) -> io::Result<Received> {
        poll_fn(|_| {
            self.set(What::Bytes(Rc::clone(end), until_ns));
            match end.receive(max) {
                Received::Nothing if clock::monotonic_ns() >= until_ns => {
                    Poll::Ready(Err(io::ErrorKind::WouldBlock.into()))
                }
                Received::Nothing => Poll::Pending,
                Received::Reset => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                received => Poll::Ready(Ok(received)),
            }
        })
        .await
    }
}

struct Hand {
    network: Network,
    ip: IpAddr,
    waits: Waits,
}

impl Hands for Hand {
    fn rest(&mut self, time: Duration) -> Later<'_, ()> {
        let until_ns = clock::monotonic_ns() + time.as_nanos() as u64;
        Box::pin(poll_fn(move |_| {
            self.waits.set(What::Time(until_ns));
            if clock::monotonic_ns() >= until_ns { Poll::Ready(()) } else { Poll::Pending }
        }))
    }

    fn connect<'a>(
        &'a mut self,
        host: &'a str,
        port: u16,
        _config: &'a Config,
        patience: Duration,
    ) -> Later<'a, Result<Box<dyn Wire>, String>> {
        Box::pin(async move {
            let ip = host.parse().map_err(|_| "its name is no address")?;
            let end = Rc::new(self.network.connect(self.ip, SocketAddr::new(ip, port)));
            let until_ns = clock::monotonic_ns() + patience.as_nanos() as u64;
            match self.waits.receive(&end, until_ns, 0).await {
                Ok(Received::Open) => {
                    let wire = SimWire { end, waits: self.waits.clone() };
                    Ok(Box::new(wire) as Box<dyn Wire>)
                }
                Ok(_) => Err("it closes at once".into()),
                Err(error) => Err(error.to_string()),
            }
        })
    }

    fn take<'a>(&'a mut self, chunks: &'a Arc<Chunks>) -> Later<'a, Option<Chunk>> {
        Box::pin(poll_fn(|_| {
            self.waits.set(What::Chunks(Arc::clone(chunks)));
            if chunks.is_ready() { Poll::Ready(chunks.take()) } else { Poll::Pending }
        }))
    }
}

struct SimWire {
    end: Rc<End>,
    waits: Waits,
}

impl Drop for SimWire {
    fn drop(&mut self) {
        // Who waits must not keep the connection open.
        self.waits.set(What::Nothing);
    }
}

impl Wire for SimWire {
    fn read<'a>(&'a mut self, bytes: &'a mut [u8]) -> Later<'a, io::Result<usize>> {
        Box::pin(async {
            let until_ns = clock::monotonic_ns() + LOOK_NS;
            match self.waits.receive(&self.end, until_ns, bytes.len()).await? {
                Received::Bytes(received) => {
                    bytes[..received.len()].copy_from_slice(&received);
                    Ok(received.len())
                }
                _ => Ok(0),
            }
        })
    }

    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Later<'a, io::Result<usize>> {
        let until_ns = clock::monotonic_ns() + LOOK_NS;
        Box::pin(poll_fn(move |_| {
            self.waits.set(What::Room(Rc::clone(&self.end), until_ns));
            match self.end.send(bytes) {
                0 if clock::monotonic_ns() >= until_ns => {
                    Poll::Ready(Err(io::ErrorKind::WouldBlock.into()))
                }
                0 => Poll::Pending,
                sent => Poll::Ready(Ok(sent)),
            }
        }))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
