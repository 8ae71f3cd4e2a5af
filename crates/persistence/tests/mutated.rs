//! Files that were changed at random are loaded or refused: nothing panics, and no length makes
//! memory be taken that the file does not fill.
//!
//! `KVASIR_MUTATIONS=10000000 cargo test --release -p kvasir-persistence --test mutated` runs as
//! many as are asked for; a few thousand otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kvasir_keyspace::database::Keyspace;
use kvasir_keyspace::view::Env;
use kvasir_persistence::delay::KeyDelay;
use kvasir_persistence::load::{Entrance, LoadError, Progress, Target, load_from};
use kvasir_structures::gate::Gate;

/// What stands between header and end of files with values of every type.
const SEEDS: [&[u8]; 4] = [
    include_bytes!("../fuzz/corpus/rdb/redis-small"),
    include_bytes!("../fuzz/corpus/rdb/redis-large"),
    include_bytes!("../fuzz/corpus/rdb/valkey-small"),
    include_bytes!("../fuzz/corpus/rdb/valkey-large"),
];

const MUTATIONS: u64 = 20_000;
/// Files that are loaded into the same databases, where keys stay that are there.
const ROUND: u64 = 1000;
/// Of the process, in KiB. The files have less than a kilobyte.
const RESIDENT_MAX: u64 = 512 << 10;

struct Random(u64);

impl Random {
    /// Below `end`, by SplitMix64.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

/// A file made of a sound one by a few changes of the kind that lengths suffer most from.
fn mutated(random: &mut Random) -> Vec<u8> {
    let mut body = SEEDS[random.below(SEEDS.len())].to_vec();
    for _ in 0..=random.below(4) {
        let place = random.below(body.len());
        match random.below(6) {
            0 => body[place] ^= 1 << random.below(8),
            1 => body[place] = random.below(256) as u8,
            2 => drop(body.remove(place)),
            3 => body.insert(place, [0, 0x3f, 0x7f, 0x80, 0x81, 0xc3, 0xff][random.below(7)]),
            4 => body[place..].iter_mut().take(8).for_each(|byte| *byte = 0xff),
            _ => {
                let end = place + random.below(body.len() - place);
                let piece = body[place..end].to_vec();
                let at = random.below(body.len());
                body.splice(at..at, piece);
            }
        }
        if body.is_empty() {
            break;
        }
    }
    [b"VALKEY080", &body[..], &[0xff], &[0; 8]].concat()
}

/// Loads one round; says how many files were sound.
fn round(random: &mut Random, count: u64) -> u64 {
    let gate = Arc::new(Gate::new(1));
    let keyspace = Keyspace::new(&gate, 2);
    let env = Env::default();
    let target = Target {
        keyspace: &keyspace,
        entrance: Entrance::Gate(&gate),
        env: &env,
        threads: 1,
        drops_expired: false,
        key_delay: &KeyDelay::default(),
        keeps_present: true,
    };
    let is_sound = |_: &u64| {
        let file = mutated(random);
        let result = load_from(&file[..], &target, &Progress::default(), &mut ());
        assert!(!matches!(result, Err(LoadError::Io(_))), "memory has no such errors");
        result.is_ok()
    };
    (0..count).filter(is_sound).count() as u64
}

fn resident_max() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line of it");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn mutated_files_are_loaded_or_refused() {
    let wanted = std::env::var("KVASIR_MUTATIONS").ok();
    let wanted = wanted.map_or(MUTATIONS, |text| text.parse().expect("KVASIR_MUTATIONS: a number"));
    let rounds = wanted.div_ceil(ROUND);
    let (next, sound) = (AtomicU64::new(0), AtomicU64::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= rounds {
                        return;
                    }
                    // Each round has a seed of its own, so that it can be repeated.
                    let found = round(&mut Random(number << 32), ROUND);
                    sound.fetch_add(found, Relaxed);
                }
            });
        }
    });
    let (files, sound) = (rounds * ROUND, sound.into_inner());
    println!("{files} files, {sound} of them sound, at most {} KiB resident", resident_max());
    // Neither all nor none: the changes are small ones.
    assert!(sound > files / 100 && sound < files / 2, "{sound} of {files}");
    assert!(resident_max() < RESIDENT_MAX, "{} KiB", resident_max());
}
