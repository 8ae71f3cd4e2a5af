//! The keys of the greatest weight in a stream, in memory of a fixed size: Space-Saving (Metwally,
//! Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k Elements in Data Streams, 2005).
//!
//! A key that has no place takes that of the key of the least weight, and its weight, as an error
//! that is noted. So whatever has more than the mean weight of a place has one, and a weight is
//! known to lie between itself and itself less its error.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use kvasir_keyspace::place::DbIndex;

/// Of a longer name the start is kept; its hash tells it from others.
pub const NAME_MAX: usize = 1024;

/// A key as sketches know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Id {
    pub hash: u64,
    pub db: DbIndex,
}

/// A key that has a place.
#[derive(Clone, Debug)]
pub struct Held {
    pub id: Id,
    pub name: Box<[u8]>,
    pub weight: u64,
    /// What of the weight may be others'.
    pub error: u64,
}

/// Some keys and their weights.
pub struct Sketch {
    room: usize,
    places: Vec<Place>,
    /// Numbers of places: none weighs less than the one at half its index.
    heap: Vec<u32>,
    by_id: HashMap<Id, u32, BuildHasherDefault<Given>>,
}

struct Place {
    held: Held,
    /// Where it is in the heap.
    at: u32,
}

impl Held {
    /// What is certainly its own.
    pub fn certain(&self) -> u64 {
        self.weight - self.error
    }
}

impl Sketch {
    /// With room for so many keys, at least one.
    pub fn new(room: usize) -> Sketch {
        let room = room.max(1);
        let by_id = HashMap::with_capacity_and_hasher(room, BuildHasherDefault::default());
        Sketch { room, places: Vec::with_capacity(room), heap: Vec::with_capacity(room), by_id }
    }

    /// Adds weight to a key.
    pub fn add(&mut self, id: Id, name: &[u8], weight: u64) {
        if let Some(place) = self.by_id.get(&id) {
            let place = &mut self.places[*place as usize];
            place.held.weight = place.held.weight.saturating_add(weight);
            let at = place.at;
            return self.sink(at as usize);
        }
        let name: Box<[u8]> = name[..name.len().min(NAME_MAX)].into();
        if self.places.len() < self.room {
            let (place, at) = (self.places.len() as u32, self.heap.len());
            self.places.push(Place { held: Held { id, name, weight, error: 0 }, at: at as u32 });
            self.heap.push(place);
            self.by_id.insert(id, place);
            return self.rise(at);
        }
        let least = self.heap[0];
        let held = &mut self.places[least as usize].held;
        self.by_id.remove(&held.id);
        let error = held.weight;
        *held = Held { id, name, weight: error.saturating_add(weight), error };
        self.by_id.insert(id, least);
        self.sink(0);
    }

    /// Halves all weights so many times: what was long ago counts less.
    pub fn halve(&mut self, times: u32) {
        for Place { held, .. } in &mut self.places {
            // What is certain is halved as what is not, so neither comes to nothing before.
            let certain = held.certain().checked_shr(times).unwrap_or(0);
            held.weight = held.weight.checked_shr(times).unwrap_or(0);
            held.error = held.weight - certain.min(held.weight);
        }
    }

    pub fn get(&self, id: Id) -> Option<&Held> {
        self.by_id.get(&id).map(|place| &self.places[*place as usize].held)
    }

    /// All keys that have a place, in no order.
    pub fn held(&self) -> impl Iterator<Item = &Held> {
        self.places.iter().map(|place| &place.held)
    }

    /// Bytes that it takes, names aside.
    pub fn allocated_bytes(&self) -> usize {
        let names: usize = self.held().map(|held| held.name.len()).sum();
        self.room * (size_of::<Place>() + 2 * size_of::<u32>() + size_of::<(Id, u32)>() * 2) + names
    }

    fn weight(&self, at: usize) -> u64 {
        self.places[self.heap[at] as usize].held.weight
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        for at in [one, other] {
            self.places[self.heap[at] as usize].at = at as u32;
        }
    }

    /// Moves a place that may weigh too little up.
    fn rise(&mut self, mut at: usize) {
        while at > 0 && self.weight((at - 1) / 2) > self.weight(at) {
            self.swap((at - 1) / 2, at);
            at = (at - 1) / 2;
        }
    }

    /// Moves a place that may weigh too much down.
    fn sink(&mut self, mut at: usize) {
        loop {
            let below = [2 * at + 1, 2 * at + 2].into_iter().filter(|at| *at < self.heap.len());
            let Some(least) = below.min_by_key(|at| self.weight(*at)) else { return };
            if self.weight(least) >= self.weight(at) {
                return;
            }
            self.swap(least, at);
            at = least;
        }
    }
}

/// Sums up what several sketches hold, the heaviest first by what is certain.
pub fn merge(all: impl Iterator<Item = Held>) -> Vec<Held> {
    let mut sums: HashMap<Id, Held> = HashMap::new();
    for held in all {
        match sums.get_mut(&held.id) {
            Some(sum) => {
                sum.weight += held.weight;
                sum.error += held.error;
            }
            None => drop(sums.insert(held.id, held)),
        }
    }
    let mut all: Vec<Held> = sums.into_values().collect();
    all.sort_unstable_by(|one, other| {
        (other.certain(), &one.name).cmp(&(one.certain(), &other.name))
    });
    all
}

impl Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash ^ u64::from(self.db.0).rotate_right(16));
    }
}

/// Passes on a hash that is good already.
#[derive(Default)]
pub struct Given(u64);

impl Hasher for Given {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("an id is one number");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvasir_keyspace::rng::Rng;

    fn add(sketch: &mut Sketch, key: u64, weight: u64) {
        let name = key.to_string();
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        sketch.add(Id { hash, db: DbIndex(0) }, name.as_bytes(), weight);
    }

    /// Against exact counts: no weight is less than the truth, none is more by more than its error.
    #[test]
    fn weights_are_within_their_errors() {
        for seed in 0..20 {
            let (mut rng, room) = (Rng::new(seed), 1 + seed as usize * 7);
            let (mut sketch, mut truth) = (Sketch::new(room), HashMap::<u64, u64>::new());
            let mut total = 0;
            for _ in 0..5000 {
                let most = 1 + rng.below(200);
                let key = rng.below(most) as u64;
                let weight = 1 + rng.below(9) as u64;
                add(&mut sketch, key, weight);
                *truth.entry(key).or_default() += weight;
                total += weight;
            }
            let held = merge(sketch.held().cloned());
            assert_eq!(held.len(), room.min(truth.len()));
            assert_eq!(held.iter().map(|held| held.weight).sum::<u64>(), total);
            for held in &held {
                let key: u64 = std::str::from_utf8(&held.name).unwrap().parse().unwrap();
                let truth = truth[&key];
                assert!((held.certain()..=held.weight).contains(&truth), "{held:?} {truth}");
                assert_eq!(sketch.get(held.id).unwrap().weight, held.weight);
            }
            // Whoever has more than the mean of the places has one.
            for (key, weight) in truth {
                if weight > total / room as u64 {
                    assert!(held.iter().any(|held| *held.name == *key.to_string().as_bytes()));
                }
            }
        }
    }

    #[test]
    fn what_was_long_ago_counts_less() {
        let mut sketch = Sketch::new(2);
        for (key, weight) in [(1, 100), (2, 9), (3, 4)] {
            add(&mut sketch, key, weight);
        }
        sketch.halve(1);
        let shown: Vec<_> =
            merge(sketch.held().cloned()).iter().map(|held| (held.weight, held.error)).collect();
        assert_eq!(shown, [(50, 0), (6, 4)]);
        sketch.halve(64);
        assert!(sketch.held().all(|held| held.weight == 0 && held.error == 0));
        add(&mut sketch, 4, 1);
        assert_eq!(merge(sketch.held().cloned())[0].weight, 1);
    }
}
