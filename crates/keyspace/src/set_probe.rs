//! A set that is asked for many members. A listpack is searched from its start for each, which for
//! a hundred members and a hundred questions costs more than hashing both.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use kvasir_structures::hash;
use kvasir_structures::listpack::ListpackRef;

use crate::set_value::{Member, Set};

/// Fewer questions, or members, than this are answered by searching.
const SEARCHES_MAX: usize = 8;

/// A set, for asking whether members are in it.
pub enum Probe<'a> {
    Set(Set<'a>),
    Hashed(Names<'a>),
}

/// A member in the one form that it has, whether or not it is stored as an integer.
#[derive(PartialEq, Eq)]
pub enum Name<'a> {
    Int(i64),
    Bytes(&'a [u8]),
}

type Names<'a> = HashSet<Name<'a>, BuildHasherDefault<GivenHash>>;

/// Passes on a hash that was made already, by the function that keys are hashed with.
#[derive(Default)]
pub struct GivenHash(u64);

impl Hasher for GivenHash {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash::of(bytes);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Hash for Name<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Name::Int(int) => state.write(&int.to_le_bytes()),
            Name::Bytes(bytes) => state.write(bytes),
        }
    }
}

impl<'a> Name<'a> {
    fn of(member: Member<'a>) -> Name<'a> {
        match (member.to_int(), member) {
            (Some(int), _) | (None, Member::Int(int)) => Name::Int(int),
            (None, Member::Bytes(bytes)) => Name::Bytes(bytes),
        }
    }
}

impl<'a> Probe<'a> {
    /// For about so many questions.
    pub fn new(set: Set<'a>, questions: usize) -> Probe<'a> {
        match set {
            Set::Packed(listpack) if questions.min(listpack.len()) > SEARCHES_MAX => {
                Probe::Hashed(names(listpack))
            }
            set => Probe::Set(set),
        }
    }

    pub fn contains(&self, member: Member<'_>) -> bool {
        match self {
            Probe::Set(set) => set.contains(member),
            Probe::Hashed(names) => names.contains(&Name::of(member)),
        }
    }
}

fn names(listpack: ListpackRef<'_>) -> Names<'_> {
    let mut names = Names::with_capacity_and_hasher(listpack.len(), Default::default());
    names.extend(listpack.iter().map(Name::of));
    names
}

#[cfg(test)]
mod tests {
    use kvasir_structures::listpack::Listpack;

    use super::*;

    #[test]
    fn both_ways_give_the_same_answers() {
        let mut listpack = Listpack::new();
        for member in ["a", "b", "7", "007", "-3", "c", "d", "e", "f", "", "9223372036854775808"] {
            listpack.push_back(Member::Bytes(member.as_bytes()));
        }
        let set = Set::Packed(listpack.view());
        let (searched, hashed) = (Probe::new(set, 1), Probe::new(set, 100));
        assert!(matches!(searched, Probe::Set(_)) && matches!(hashed, Probe::Hashed(_)));
        for (member, is_there) in
            [("a", true), ("7", true), ("007", true), ("7 ", false), ("", true), ("x", false)]
        {
            for probe in [&searched, &hashed] {
                assert_eq!(probe.contains(Member::Bytes(member.as_bytes())), is_there, "{member}");
            }
        }
        assert!(hashed.contains(Member::Int(-3)) && !hashed.contains(Member::Int(3)));
    }
}
