//! Connections between nodes: what is sent in one direction arrives in its order, each packet some
//! time later, or is lost with its connection. Between two hosts nothing may arrive for a while.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use kvasir_cluster::output::LinkId;
use kvasir_keyspace::rng::Rng;

/// A message is on its way for so long, ...
const DELAY_MS: usize = 12;
/// ...and one of so many longer, ...
const LATE_ONE_IN: usize = 40;
/// ...by up to so much.
const LATE_MS: usize = 600;

/// One end of a wire, as its host knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct End {
    pub host: usize,
    pub link: LinkId,
}

/// What happens at a host.
pub enum Event {
    /// To be sent to this port; the host has started so many times by then.
    Connect {
        from: End,
        starts: u64,
        port: u16,
    },
    Deliver {
        wire: usize,
        side: usize,
        bytes: Rc<Vec<u8>>,
    },
    Lost {
        wire: usize,
        side: usize,
    },
    Tick {
        host: usize,
        starts: u64,
    },
    Start {
        host: usize,
    },
}

struct Wire {
    ends: [Option<End>; 2],
    hosts: [usize; 2],
    last_ms: [u64; 2],
    /// What would have arrived by now if anything did.
    held: [VecDeque<Rc<Vec<u8>>>; 2],
}

#[derive(Default)]
pub struct Wires {
    wires: Vec<Wire>,
    by_end: BTreeMap<End, (usize, usize)>,
    /// Between these nothing arrives; the smaller first.
    cut: BTreeSet<(usize, usize)>,
    /// By time and number.
    events: BTreeMap<(u64, u64), Event>,
    next: u64,
}

impl Wires {
    /// The next that is due by then, with its time and its number.
    pub fn next(&mut self, by_ms: u64) -> Option<((u64, u64), Event)> {
        let (at, _) = self.events.first_key_value()?;
        if at.0 > by_ms { None } else { self.events.pop_first() }
    }

    pub fn push(&mut self, at_ms: u64, event: Event) {
        self.next += 1;
        self.events.insert((at_ms, self.next), event);
    }

    /// Puts something off until a time; what was to come earlier still does.
    pub fn put_off(&mut self, number: u64, until_ms: u64, event: Event) {
        self.events.insert((until_ms, number), event);
    }

    pub fn delay_ms(rng: &mut Rng) -> u64 {
        let late = if rng.below(LATE_ONE_IN) == 0 { rng.below(LATE_MS) } else { 0 };
        1 + (rng.below(DELAY_MS) + late) as u64
    }

    pub fn are_cut(&self, one: usize, other: usize) -> bool {
        self.cut.contains(&(one.min(other), one.max(other)))
    }

    /// Who is at a side of a wire.
    pub fn host_of(&self, wire: usize, side: usize) -> Option<usize> {
        self.wires[wire].ends[side].map(|end| end.host)
    }

    /// Who is at the other side.
    pub fn other(&self, end: End) -> Option<usize> {
        let (wire, side) = self.by_end.get(&end).copied()?;
        Some(self.wires[wire].hosts[1 - side])
    }

    pub fn open(&mut self, ends: [End; 2]) {
        let wire = self.wires.len();
        for (side, end) in ends.into_iter().enumerate() {
            self.by_end.insert(end, (wire, side));
        }
        let hosts = ends.map(|end| end.host);
        self.wires.push(Wire {
            ends: ends.map(Some),
            hosts,
            last_ms: [0; 2],
            held: Default::default(),
        });
    }

    pub fn send(&mut self, from: End, bytes: Vec<u8>, now_ms: u64, rng: &mut Rng) {
        let Some((wire, side)) = self.by_end.get(&from).copied() else { return };
        let at_ms = self.arrival(wire, 1 - side, now_ms, rng);
        self.push(at_ms, Event::Deliver { wire, side: 1 - side, bytes: Rc::new(bytes) });
    }

    fn arrival(&mut self, wire: usize, side: usize, now_ms: u64, rng: &mut Rng) -> u64 {
        let last_ms = &mut self.wires[wire].last_ms[side];
        *last_ms = (*last_ms).max(now_ms + Wires::delay_ms(rng));
        *last_ms
    }

    /// A host closes its end; the other hears of it behind all that was sent, or at once.
    pub fn close(&mut self, end: End, now_ms: u64, rng: &mut Rng) {
        let Some((wire, side)) = self.by_end.remove(&end) else { return };
        self.wires[wire].ends[side] = None;
        self.lose(wire, 1 - side, now_ms, rng);
    }

    fn lose(&mut self, wire: usize, side: usize, now_ms: u64, rng: &mut Rng) {
        let at_ms = match rng.below(2) {
            0 => self.arrival(wire, side, now_ms, rng),
            _ => now_ms + 1,
        };
        self.push(at_ms, Event::Lost { wire, side });
    }

    /// The end that something comes to, if it is still there; it is not if nothing arrives now.
    pub fn receiver(&mut self, wire: usize, side: usize, bytes: &Rc<Vec<u8>>) -> Option<End> {
        let Wire { ends, hosts, held, .. } = &mut self.wires[wire];
        let end = ends[side]?;
        let is_cut = self.cut.contains(&(hosts[0].min(hosts[1]), hosts[0].max(hosts[1])));
        if is_cut || !held[side].is_empty() {
            held[side].push_back(Rc::clone(bytes));
            return None;
        }
        Some(end)
    }

    /// The end is there no more; which one that was.
    pub fn lost(&mut self, wire: usize, side: usize) -> Option<End> {
        let end = self.wires[wire].ends[side].take()?;
        self.wires[wire].held[side].clear();
        self.by_end.remove(&end);
        Some(end)
    }

    /// All ends at a host are gone at once.
    pub fn stop(&mut self, host: usize, now_ms: u64, rng: &mut Rng) {
        let all: Vec<End> = self.by_end.keys().filter(|end| end.host == host).copied().collect();
        all.into_iter().for_each(|end| self.close(end, now_ms, rng));
    }

    /// Breaks the connections between two hosts, as a firewall does that forgets them.
    pub fn reset(&mut self, one: usize, other: usize, now_ms: u64, rng: &mut Rng) {
        for wire in 0..self.wires.len() {
            let Wire { hosts, ends, .. } = &self.wires[wire];
            if ends.iter().any(Option::is_some)
                && (*hosts == [one, other] || *hosts == [other, one])
            {
                (0..2).for_each(|side| self.lose(wire, side, now_ms, rng));
            }
        }
    }

    /// Has nothing arrive between two hosts.
    pub fn cut(&mut self, one: usize, other: usize) {
        if one != other {
            self.cut.insert((one.min(other), one.max(other)));
        }
    }

    /// Has everything arrive again: what was held up comes late, or is lost with its connection.
    pub fn mend(&mut self, now_ms: u64, rng: &mut Rng) {
        self.cut.clear();
        for wire in 0..self.wires.len() {
            if self.wires[wire].held.iter().all(VecDeque::is_empty) {
                continue;
            }
            if rng.below(2) == 0 {
                (0..2).for_each(|side| self.lose(wire, side, now_ms, rng));
            }
            for side in 0..2 {
                for bytes in std::mem::take(&mut self.wires[wire].held[side]) {
                    let at_ms = self.arrival(wire, side, now_ms, rng);
                    self.push(at_ms, Event::Deliver { wire, side, bytes });
                }
            }
        }
    }
}
