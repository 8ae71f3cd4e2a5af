//! What ZUNION and its kin take members from: sorted sets, and sets, whose members score 1 each.

use std::ops::{ControlFlow, Range};

use kvasir_structures::listpack::Element;

use crate::error::Error;
use crate::set_value::Set;
use crate::sorted_set_value::{Direction, SortedSet};
use crate::value::{Kind, Record, Tag};
use crate::view::View;

/// A key's members; none if the key is free.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    Nothing,
    /// Every member has the score 1.
    Set(Set<'a>),
    SortedSet(SortedSet<'a>),
}

/// Reads the sources of several keys.
pub fn read_all<'v>(
    view: &'v mut View<'_, '_>,
    keys: Range<usize>,
) -> Result<Vec<Source<'v>>, Error> {
    let records = view.read_all(keys, |record| Source::of(Some(record)).map(drop))?;
    records.into_iter().map(Source::of).collect()
}

impl<'a> Source<'a> {
    /// The source that a record is, or WRONGTYPE.
    fn of(record: Option<Record<'a>>) -> Result<Source<'a>, Error> {
        match record {
            None => Ok(Source::Nothing),
            Some(record) if Tag::of(record).kind() == Kind::Set => {
                Ok(Source::Set(Set::of(record)?))
            }
            Some(record) => Ok(Source::SortedSet(SortedSet::of(record)?)),
        }
    }

    pub fn len(self) -> usize {
        match self {
            Source::Nothing => 0,
            Source::Set(set) => set.len(),
            Source::SortedSet(set) => set.len(),
        }
    }

    pub fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            Source::Nothing => None,
            Source::Set(set) => set.contains(Element::Bytes(member)).then_some(1.0),
            Source::SortedSet(set) => set.score(member),
        }
    }

    pub fn for_each(self, mut f: impl FnMut(&[u8], f64)) {
        let _ = self.try_for_each(|member, score| {
            f(member, score);
            ControlFlow::Continue(())
        });
    }

    /// Calls `f` with every member until it breaks.
    pub fn try_for_each(self, mut f: impl FnMut(&[u8], f64) -> ControlFlow<()>) -> ControlFlow<()> {
        match self {
            Source::Nothing => ControlFlow::Continue(()),
            Source::Set(set) => set.try_for_each(|member| f(&member.text(), 1.0)),
            Source::SortedSet(set) => {
                set.try_for_each(0..set.len(), Direction::Ascending, |member, score| {
                    member.with_bytes(|member| f(member, score))
                })
            }
        }
    }
}
