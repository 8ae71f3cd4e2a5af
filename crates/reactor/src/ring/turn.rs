//! A reactor with rings: who has one is served by memory, all else by the backend, and a wait that
//! finds nothing spins for a moment before it sleeps.
//!
//! While rings bring something, the backend is asked only if it has something to do, as far as it
//! can tell, and when `BESIDE_MAX` is over. Spinning has a bound, comes once behind something
//! that a ring has brought, and ever more seldom where it finds nothing.

use std::io;
use std::time::{Duration, Instant};

use super::Ring;
use super::rings::Rings;
use crate::reactor::{Implementation, Reactor, backend};
use crate::{ConnectionId, Event, Payload};

/// For how long rings alone are served: epoll cannot tell that others wait.
const BESIDE_MAX: Duration = Duration::from_micros(50);

/// Looks at the rings between two looks at the clock and the backend.
const LOOKS: usize = 16;

/// After spinning in vain it is not tried for up to so many sleeps.
const SKIPS_MAX: u32 = 63;

/// When to spin, and for how long.
pub(crate) struct Spin {
    time: Duration,
    /// Sleeps that are not preceded by spinning.
    skips: u32,
    skips_left: u32,
}

impl Spin {
    /// On a machine of one core nobody can do meanwhile what is waited for. On how many of several
    /// this process may run does not matter: the peer may run on others.
    pub(crate) fn new(time: Duration) -> Spin {
        // SAFETY: it is asked for a number.
        let cores = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        let time = if cores > 1 { time } else { Duration::ZERO };
        Spin { time, skips: 0, skips_left: 0 }
    }

    /// Whether to spin before this sleep.
    fn is_worth_it(&mut self) -> bool {
        let skips = self.skips_left > 0;
        self.skips_left = self.skips_left.saturating_sub(1);
        !skips && !self.time.is_zero()
    }

    fn learn(&mut self, found: bool) {
        self.skips = if found { 0 } else { (2 * self.skips + 1).min(SKIPS_MAX) };
        self.skips_left = self.skips;
    }

    /// Spins until `found` or the time is over.
    pub(super) fn run(&mut self, mut found: impl FnMut() -> bool) -> bool {
        if !self.is_worth_it() {
            return false;
        }
        let start = Instant::now();
        let has_found = loop {
            if (0..LOOKS).any(|_| {
                std::hint::spin_loop();
                found()
            }) {
                break true;
            }
            if start.elapsed() >= self.time {
                break false;
            }
        };
        self.learn(has_found);
        has_found
    }
}

/// What a reactor with rings has besides its backend.
pub(crate) struct Around {
    pub(crate) rings: Rings,
    spin: Spin,
    /// When the backend was last asked.
    asked: Instant,
}

impl Around {
    pub(crate) fn new(spin: Duration) -> Around {
        Around { rings: Rings::new(), spin: Spin::new(spin), asked: Instant::now() }
    }
}

impl Reactor {
    /// Gives the client of a connection over a unix socket its ring, with the bytes, a short
    /// reply that tells of it. Reports `Sent`. From now on the connection
    /// receives from the ring and sends into it; whatever else comes by the socket ends it.
    pub fn open_ring(&mut self, id: ConnectionId, ring: Ring, mut payload: Payload) {
        assert!(!payload.bytes.is_empty(), "a reply tells of it");
        let Some(socket) = backend!(&mut self.implementation, backend => backend.socket(id)) else {
            return;
        };
        let result = match payload.shared.is_empty() {
            true => ring.hand_over(socket, &payload.bytes),
            false => Err(io::ErrorKind::InvalidInput.into()),
        };
        payload.clear();
        let Ring { end, bell, call, .. } = ring;
        if result.is_ok() {
            backend!(&mut self.implementation, backend => backend.watch_bell(id, bell));
        }
        let around = self.around.get_or_insert_with(|| Box::new(Around::new(self.ring_spin)));
        around.rings.insert(id, end, call);
        around.rings.report(Event::Sent { connection: id, payload, result });
    }

    /// `wait` where there are rings, or were.
    pub(crate) fn wait_with_rings(
        &mut self,
        timeout: Option<Duration>,
        events: &mut Vec<Event>,
    ) -> io::Result<()> {
        let Reactor { implementation, around, .. } = self;
        let around = around.as_deref_mut().expect("the caller has looked");
        let Around { rings, spin, asked } = around;
        let had = events.len();
        rings.poll(events);
        let has_found = |rings: &Rings, events: &Vec<Event>| {
            events.len() > had || rings.has_reports() || timeout == Some(Duration::ZERO)
        };
        if !has_found(rings, events) && rings.has_awake() && is_quiet(implementation) {
            if spin.run(|| rings.has_news() || !is_quiet(implementation)) {
                rings.poll(events);
            }
            if !has_found(rings, events) && is_quiet(implementation) {
                rings.fall_asleep();
                rings.poll(events);
            }
        }
        let must_not_block = has_found(rings, events) || rings.has_awake();
        let mut result = Ok(());
        if !must_not_block || !is_quiet(implementation) || asked.elapsed() >= BESIDE_MAX {
            let timeout = if must_not_block { Some(Duration::ZERO) } else { rings.limit(timeout) };
            let from = events.len();
            result = backend!(&mut *implementation, backend => backend.wait(timeout, events));
            sort_out(implementation, rings, from, events);
            *asked = Instant::now();
        }
        rings.take_reports(events);
        result
    }
}

fn is_quiet(implementation: &mut Implementation) -> bool {
    backend!(implementation, backend => backend.is_quiet())
}

/// Of what the backend reports from `from` on, what is of rings is theirs: a bell that was rung,
/// and the end of a socket. Nothing but its end should come by it.
fn sort_out(
    implementation: &mut Implementation,
    rings: &mut Rings,
    from: usize,
    events: &mut Vec<Event>,
) {
    let rung = backend!(&mut *implementation, backend => backend.take_rung());
    let is_of_a_ring = |event: &Event| match event {
        Event::Received { connection, .. } | Event::Closed { connection, .. } => {
            rings.has(*connection)
        }
        _ => false,
    };
    // Most waits of a worker with few rings.
    if rung.is_empty() && !events[from..].iter().any(is_of_a_ring) {
        return;
    }
    let reported = events.split_off(from);
    for id in rung {
        rings.hear(id, events);
    }
    for event in reported {
        match event {
            Event::Received { connection, buffer } if rings.has(connection) => {
                backend!(&mut *implementation, backend => backend.recycle(buffer));
                let error = io::Error::new(io::ErrorKind::InvalidData, "bytes beside the ring");
                rings.end(connection, Some(error), events);
            }
            Event::Closed { connection, error } if rings.has(connection) => {
                rings.end(connection, error, events);
            }
            event => events.push(event),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_kept_on_one_core_of_several_spins() {
        // SAFETY: it is asked for a number.
        let cores = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        let mut one = rustix::thread::CpuSet::new();
        let all = rustix::thread::sched_getaffinity(None).unwrap();
        let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|core| all.is_set(*core)).unwrap();
        one.set(first);
        // Of this thread alone.
        rustix::thread::sched_setaffinity(None, &one).unwrap();
        assert_eq!(!Spin::new(Duration::from_micros(1)).time.is_zero(), cores > 1);
    }
}
