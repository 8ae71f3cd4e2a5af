//! The network of a simulated world: who listens where, and what is on its way.
//!
//! What is sent in one direction arrives in its order, each piece some time later, and whoever
//! receives finds it in any pieces. Links may be held up, and hosts may go: all that TCP allows,
//! drawn from one seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock;

/// Sent and not yet received in one direction; who sends more has to wait.
const WINDOW: usize = 64 << 10;
/// How long a piece is on its way, in nanoseconds.
const DELAY_NS: std::ops::Range<u64> = 20_000..400_000;
/// One piece of so many is late by up to so much more.
const LATE_ONE_IN: u64 = 32;
const LATE_NS: u64 = 20_000_000;
/// The first port that is given to who connects.
const FIRST_PORT: u16 = 30_000;

/// A network; its clones are the same.
#[derive(Clone)]
pub struct Network(Arc<Mutex<State>>);

struct State {
    luck: u64,
    /// Who listens, and the links that wait to be accepted, with the time of their arrival.
    listeners: BTreeMap<SocketAddr, VecDeque<(u64, usize)>>,
    links: Vec<Link>,
    /// Pairs of hosts, the smaller first, between which nothing arrives.
    held_up: BTreeSet<(IpAddr, IpAddr)>,
    /// Hosts that say nothing any more.
    silent: BTreeSet<IpAddr>,
}

struct Link {
    sides: [Side; 2],
}

struct Side {
    address: SocketAddr,
    /// What comes to it, and when.
    incoming: VecDeque<(u64, Packet)>,
    last_ns: u64,
    /// Bytes in `incoming`.
    flying: usize,
    /// Nobody is there any more.
    is_gone: bool,
}

enum Packet {
    Open,
    Bytes(VecDeque<u8>),
    End,
    Reset,
}

/// What an end of a connection finds.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing for now.
    Nothing,
    /// It is connected.
    Open,
    Bytes(Vec<u8>),
    /// The other side sends no more.
    End,
    Reset,
}

/// One end of a connection, which is closed when this is dropped.
pub struct End {
    network: Network,
    link: usize,
    side: usize,
}

/// A place where connections arrive; closed when this is dropped.
pub struct Place {
    network: Network,
    pub(crate) address: SocketAddr,
}

impl Network {
    pub fn new(seed: u64) -> Network {
        Network(Arc::new(Mutex::new(State {
            luck: seed | 1,
            listeners: BTreeMap::new(),
            links: Vec::new(),
            held_up: BTreeSet::new(),
            silent: BTreeSet::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Panics
    ///
    /// If somebody listens there already.
    pub(crate) fn listen(&self, address: SocketAddr) -> Place {
        let before = self.state().listeners.insert(address, VecDeque::new());
        assert!(before.is_none(), "{address} is in use");
        Place { network: self.clone(), address }
    }

    /// Begins to connect a host to a place; where nobody listens the end is reset.
    pub fn connect(&self, from: IpAddr, to: SocketAddr) -> End {
        let state = &mut *self.state();
        let link = state.links.len();
        let port = FIRST_PORT + (link % 30_000) as u16;
        let side = |address| Side {
            address,
            incoming: VecDeque::new(),
            last_ns: 0,
            flying: 0,
            is_gone: false,
        };
        let sides = [side(SocketAddr::new(from, port)), side(to)];
        state.links.push(Link { sides });
        if state.listeners.contains_key(&to) {
            let ns = state.push(link, 0, Packet::Open);
            state.listeners.get_mut(&to).expect("just looked").push_back((ns, link));
        } else {
            state.links[link].sides[1].is_gone = true;
            state.push(link, 0, Packet::Reset);
        }
        End { network: self.clone(), link, side: 0 }
    }

    /// A host stops: who is connected to it will find out, and what it had sent may be lost.
    pub fn stop(&self, host: IpAddr) {
        let state = &mut *self.state();
        state.silent.remove(&host);
        state.listeners.retain(|address, _| address.ip() != host);
        for link in 0..state.links.len() {
            for side in 0..2 {
                if state.links[link].sides[side].address.ip() == host {
                    state.leave(link, side, true);
                }
            }
        }
    }

    /// What a host sends from now on is lost, until it is stopped: its power has gone.
    pub fn silence(&self, host: IpAddr) {
        self.state().silent.insert(host);
    }

    /// Breaks the connections between two hosts, as a firewall does that forgets them.
    pub fn reset(&self, one: IpAddr, other: IpAddr) {
        let state = &mut *self.state();
        for link in 0..state.links.len() {
            if state.links[link].pair() == pair(one, other) {
                state.push_reset(link, 0);
                state.push_reset(link, 1);
            }
        }
    }

    /// Nothing arrives between two hosts, until this is taken back; nothing is lost either.
    pub fn hold_up(&self, one: IpAddr, other: IpAddr, is_held_up: bool) {
        let held_up = &mut self.state().held_up;
        match is_held_up {
            true => held_up.insert(pair(one, other)),
            false => held_up.remove(&pair(one, other)),
        };
    }
}

fn pair(one: IpAddr, other: IpAddr) -> (IpAddr, IpAddr) {
    (one.min(other), one.max(other))
}

impl Link {
    fn pair(&self) -> (IpAddr, IpAddr) {
        pair(self.sides[0].address.ip(), self.sides[1].address.ip())
    }
}

impl State {
    /// Any number below `limit`.
    fn draw(&mut self, limit: u64) -> u64 {
        // Xorshift: what is drawn need not be good, but the same each time.
        self.luck ^= self.luck << 13;
        self.luck ^= self.luck >> 7;
        self.luck ^= self.luck << 17;
        (self.luck >> 11) % limit
    }

    /// Has something arrive at a side, and says when.
    fn push(&mut self, link: usize, side: usize, packet: Packet) -> u64 {
        let mut delay = DELAY_NS.start + self.draw(DELAY_NS.end - DELAY_NS.start);
        if self.draw(LATE_ONE_IN) == 0 {
            delay += self.draw(LATE_NS);
        }
        let side = &mut self.links[link].sides[side];
        side.last_ns = side.last_ns.max(clock::monotonic_ns() + delay);
        if let Packet::Bytes(bytes) = &packet {
            side.flying += bytes.len();
        }
        side.incoming.push_back((side.last_ns, packet));
        side.last_ns
    }

    /// A reset may overtake what was sent before it, which is lost then.
    fn push_reset(&mut self, link: usize, side: usize) {
        if self.draw(2) == 0 {
            let side = &mut self.links[link].sides[side];
            side.incoming.clear();
            side.flying = 0;
        }
        self.push(link, side, Packet::Reset);
    }

    fn leave(&mut self, link: usize, side: usize, is_sudden: bool) {
        let leaving = &mut self.links[link].sides[side];
        if std::mem::replace(&mut leaving.is_gone, true) {
            return;
        }
        // Who closes without having read all resets, as a system that has lost the process does.
        let has_unread = leaving.flying > 0;
        if self.links[link].sides[1 - side].is_gone {
            return;
        }
        if is_sudden || has_unread {
            self.push_reset(link, 1 - side);
        } else {
            self.push(link, 1 - side, Packet::End);
        }
    }

    /// When something arrives at a side, if anything is on its way.
    fn next_ns(&self, link: usize, side: usize) -> Option<u64> {
        let link = &self.links[link];
        let (ns, _) = link.sides[side].incoming.front()?;
        (!self.held_up.contains(&link.pair())).then_some(*ns)
    }
}

impl End {
    pub fn local(&self) -> SocketAddr {
        self.network.state().links[self.link].sides[self.side].address
    }

    pub fn peer(&self) -> SocketAddr {
        self.network.state().links[self.link].sides[1 - self.side].address
    }

    /// A number that no other has.
    pub(crate) fn number(&self) -> i32 {
        (2 * self.link + self.side) as i32
    }

    /// How many bytes can be sent.
    pub fn room(&self) -> usize {
        WINDOW.saturating_sub(self.network.state().links[self.link].sides[1 - self.side].flying)
    }

    /// Sends as much as there is room for, and says how much that is. What is sent to who is gone
    /// is lost.
    pub fn send(&self, bytes: &[u8]) -> usize {
        let room = self.room();
        let taken = &bytes[..bytes.len().min(room)];
        let state = &mut *self.network.state();
        let sides = &state.links[self.link].sides;
        let is_silent = state.silent.contains(&sides[self.side].address.ip());
        if !taken.is_empty() && !sides[1 - self.side].is_gone && !is_silent {
            state.push(self.link, 1 - self.side, Packet::Bytes(taken.iter().copied().collect()));
        }
        taken.len()
    }

    /// When `receive` has something next.
    pub fn next_ns(&self) -> Option<u64> {
        self.network.state().next_ns(self.link, self.side)
    }

    /// Takes the next that has arrived, at most so many bytes of it.
    pub fn receive(&self, max: usize) -> Received {
        let state = &mut *self.network.state();
        let is_there = |ns: u64| ns <= clock::monotonic_ns();
        if !state.next_ns(self.link, self.side).is_some_and(is_there) {
            return Received::Nothing;
        }
        let is_cut = state.draw(4) == 0;
        let cut = 1 + state.draw(64) as usize;
        let side = &mut state.links[self.link].sides[self.side];
        let Some((_, first)) = side.incoming.front_mut() else { return Received::Nothing };
        if let Packet::Bytes(bytes) = first {
            let size = bytes.len().min(max).min(if is_cut { cut } else { usize::MAX });
            let taken: Vec<u8> = bytes.drain(..size).collect();
            let is_used_up = bytes.is_empty();
            side.flying -= size;
            if is_used_up {
                side.incoming.pop_front();
            }
            return Received::Bytes(taken);
        }
        match side.incoming.pop_front() {
            Some((_, Packet::Open)) => Received::Open,
            Some((_, Packet::End)) => Received::End,
            _ => Received::Reset,
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.network.state().leave(self.link, self.side, false);
    }
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "End({}, {})", self.link, self.side)
    }
}

impl Place {
    /// When somebody arrives next.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.network.state().listeners.get(&self.address)?.front().map(|(ns, _)| *ns)
    }

    /// The next who has arrived.
    pub(crate) fn accept(&self) -> Option<End> {
        let state = &mut *self.network.state();
        let waiting = state.listeners.get_mut(&self.address)?;
        let (ns, link) = *waiting.front()?;
        if ns > clock::monotonic_ns() {
            return None;
        }
        waiting.pop_front();
        Some(End { network: self.network.clone(), link, side: 1 })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let state = &mut *self.network.state();
        for (_, link) in state.listeners.remove(&self.address).unwrap_or_default() {
            state.leave(link, 1, true);
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({})", self.address)
    }
}
