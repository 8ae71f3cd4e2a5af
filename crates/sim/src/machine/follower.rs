//! Who follows a primary, in a simulated world: between steps it waits for bytes or for a time.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use kvasir_reactor::clock;
use kvasir_reactor::sim::{End, Network, Received};
use kvasir_resp::encode::encode_request;
use kvasir_server::commands;
use kvasir_server::following::follow;
use kvasir_server::following::host::{Host, Wire};
use kvasir_server::state::shared::Shared;
use kvasir_server::store::replication::upstream::{CutOff, Primary, Upstream};

use super::Elsewhere;

/// How long a reader waits for bytes before it looks at the clock.
const LOOK_NS: u64 = 100_000_000;
/// How long it waits for a connection.
const PATIENCE_NS: u64 = 2_000_000_000;

pub struct Follower {
    shared: &'static Shared,
    future: Pin<Box<dyn Future<Output = Infallible>>>,
    waits: Rc<Waits>,
}

/// What it waits for, and by what.
#[derive(Default)]
struct Waits {
    what: Cell<What>,
    end: RefCell<Option<End>>,
    is_cut_off: Arc<AtomicBool>,
}

#[derive(Clone, Copy, Default)]
enum What {
    /// For nothing: it has not begun.
    #[default]
    Nothing,
    /// Until there is a server to follow.
    Wish,
    /// Until a time, or until another server is to be followed than at this version.
    Time(u64, Option<u64>),
    /// For bytes, until a time.
    Bytes(u64),
}

impl Follower {
    pub fn new(
        shared: &'static Shared,
        network: &Network,
        ip: IpAddr,
        fault: Option<Elsewhere>,
    ) -> Follower {
        let waits = Rc::new(Waits::default());
        let host = SimHost { network: network.clone(), ip, fault, waits: Rc::clone(&waits) };
        let future = Box::pin(follow(shared, commands::numbered(), host));
        Follower { shared, future, waits }
    }

    pub fn step(&mut self) {
        let _ = self.future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }

    pub fn due_ns(&self) -> Option<u64> {
        let upstream = &self.shared.replication.upstream;
        match self.waits.what.get() {
            What::Nothing => Some(0),
            What::Wish => upstream.is_replica().then_some(0),
            What::Time(_, Some(version)) if !upstream.is_current(version) => Some(0),
            What::Bytes(_) if self.waits.is_cut_off.load(Relaxed) => Some(0),
            What::Time(ns, _) => Some(ns),
            What::Bytes(ns) => {
                let arrives = self.waits.end.borrow().as_ref().and_then(End::next_ns);
                arrives.into_iter().chain([ns]).min()
            }
        }
    }
}

struct SimHost {
    network: Network,
    ip: IpAddr,
    fault: Option<Elsewhere>,
    waits: Rc<Waits>,
}

impl Waits {
    /// Until a time, or until `is_over`.
    async fn rest(&self, time: Duration, version: Option<u64>, is_over: impl Fn() -> bool) {
        let until_ns = clock::monotonic_ns() + time.as_nanos() as u64;
        poll_fn(|_| {
            self.what.set(What::Time(until_ns, version));
            match clock::monotonic_ns() >= until_ns || is_over() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// What comes next, until a time.
    async fn receive(&self, until_ns: u64, max: usize) -> io::Result<Received> {
        poll_fn(|_| {
            self.what.set(What::Bytes(until_ns));
            if self.is_cut_off.load(Relaxed) {
                return Poll::Ready(Ok(Received::End));
            }
            let end = self.end.borrow();
            match end.as_ref().expect("it is connected").receive(max) {
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

impl Host for SimHost {
    type Wire = SimWire;

    async fn wait(&mut self, upstream: &Upstream) -> (Primary, u64) {
        poll_fn(|_| {
            self.waits.what.set(What::Wish);
            match upstream.wish() {
                Some(wish) => Poll::Ready(wish),
                None => Poll::Pending,
            }
        })
        .await
    }

    async fn rest(&mut self, upstream: &Upstream, version: u64, time: Duration) {
        self.waits.rest(time, Some(version), || !upstream.is_current(version)).await;
    }

    async fn connect(
        &mut self,
        _shared: &'static Shared,
        primary: &Primary,
        _version: u64,
    ) -> Result<SimWire, String> {
        let ip = primary.host.parse().map_err(|_| "its name is no address")?;
        let end = self.network.connect(self.ip, SocketAddr::new(ip, primary.port));
        *self.waits.end.borrow_mut() = Some(end);
        self.waits.is_cut_off.store(false, Relaxed);
        let wire = SimWire { waits: Rc::clone(&self.waits), fault: self.fault.clone() };
        match self.waits.receive(clock::monotonic_ns() + PATIENCE_NS, 0).await {
            Ok(Received::Open) => Ok(wire),
            Ok(_) => Err("it closes at once".into()),
            Err(error) => Err(error.to_string()),
        }
    }
}

struct SimWire {
    waits: Rc<Waits>,
    fault: Option<Elsewhere>,
}

impl Drop for SimWire {
    fn drop(&mut self) {
        *self.waits.end.borrow_mut() = None;
    }
}

impl Wire for SimWire {
    fn addresses(&self) -> io::Result<(String, String)> {
        let end = self.waits.end.borrow();
        let end = end.as_ref().expect("it is connected");
        Ok((end.peer().to_string(), end.local().to_string()))
    }

    fn cut_off(&self) -> io::Result<CutOff> {
        let is_cut_off = Arc::clone(&self.waits.is_cut_off);
        Ok(Box::new(move || is_cut_off.store(true, Relaxed)))
    }

    async fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let until_ns = clock::monotonic_ns() + LOOK_NS;
        match self.waits.receive(until_ns, bytes.len()).await? {
            Received::Bytes(received) => {
                bytes[..received.len()].copy_from_slice(&received);
                Ok(received.len())
            }
            _ => Ok(0),
        }
    }

    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let bytes = match &self.fault {
            Some(elsewhere) => &asking_from(elsewhere.get(), bytes)[..],
            None => bytes,
        };
        let end = self.waits.end.borrow();
        match end.as_ref().expect("it is connected").send(bytes) == bytes.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    async fn rest(&mut self, time: Duration) {
        self.waits.rest(time, None, || false).await;
    }

    fn alive_during<R>(&self, work: impl FnOnce() -> R) -> R {
        work()
    }
}

/// If this is a PSYNC, it asks for what comes behind an offset.
fn asking_from(offset: u64, bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let words: Vec<_> = text.split("\r\n").collect();
    match words[..] {
        [_, _, "PSYNC", _, id, _, asked, ..] if asked != "-1" => {
            encode_request(&["PSYNC", id, &(offset + 1).to_string()])
        }
        _ => bytes.to_vec(),
    }
}
