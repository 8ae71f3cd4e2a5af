//! What a power cut leaves of what nobody has made safe.

use kvasir_keyspace::rng::Rng;

/// Names and bytes are lost independently of each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Luck {
    pub names: Names,
    pub bytes: Bytes,
}

/// Which changes of names have reached the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Names {
    All,
    SafeOnly,
    /// Of those that were not made safe only the last one.
    Last,
}

/// Which bytes have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bytes {
    /// It is not power that goes, but the process: the system has all.
    Killed,
    All,
    SafeOnly,
    /// So many eighths, from the front.
    Front(usize),
    /// From the front, and zeros for the rest.
    FrontThenZeros(usize),
    /// So many eighths at the end, and zeros before them.
    ZerosThenBack(usize),
    /// What was cut off before is still there.
    Uncut,
}

impl Luck {
    pub const KILLED: Luck = Luck { names: Names::All, bytes: Bytes::Killed };
    pub const NOTHING: Luck = Luck { names: Names::SafeOnly, bytes: Bytes::SafeOnly };
    /// Renames have reached the disk, what was written before has not.
    pub const NAMES_ONLY: Luck = Luck { names: Names::All, bytes: Bytes::SafeOnly };
    pub const LAST_NAME_ONLY: Luck = Luck { names: Names::Last, bytes: Bytes::SafeOnly };

    /// Some kind of a power cut.
    pub fn of_a_cut(rng: &mut Rng) -> Luck {
        let cuts: Vec<_> = Luck::all().filter(|luck| luck.bytes != Bytes::Killed).collect();
        cuts[rng.below(cuts.len())]
    }

    /// All kinds.
    pub fn all() -> impl Iterator<Item = Luck> {
        const BYTES: [Bytes; 10] = [
            Bytes::All,
            Bytes::SafeOnly,
            Bytes::Front(1),
            Bytes::Front(4),
            Bytes::Front(7),
            Bytes::FrontThenZeros(0),
            Bytes::FrontThenZeros(5),
            Bytes::ZerosThenBack(2),
            Bytes::ZerosThenBack(6),
            Bytes::Uncut,
        ];
        let cut = |names| BYTES.map(|bytes| Luck { names, bytes });
        let cuts = [Names::All, Names::SafeOnly, Names::Last].into_iter().flat_map(cut);
        std::iter::once(Luck::KILLED).chain(cuts)
    }
}
