//! Small collections that stand in one string, all turned into a listpack.

use std::borrow::Cow;

use kvasir_structures::hash;
use kvasir_structures::listpack::{Listpack, ListpackRef};
use kvasir_structures::ziplist::{ziplist_to_listpack, zipmap_to_listpack};

use super::{Reader, SerialError};

/// A listpack and where its string ends, for errors about its elements.
pub(super) struct Packed {
    pub listpack: Listpack,
    end: usize,
}

impl Packed {
    pub fn new(listpack: Listpack, reader: &Reader<'_>) -> Packed {
        Packed { listpack, end: reader.offset() }
    }

    pub fn error(&self, what: &'static str) -> SerialError {
        SerialError { offset: self.end, what }
    }
}

pub(super) fn listpack(reader: &mut Reader<'_>) -> Result<Packed, SerialError> {
    let bytes = reader.string()?;
    let listpack = Listpack::from_bytes(bytes.into_owned());
    let listpack = listpack.map_err(|_| reader.error("broken listpack"))?;
    Ok(Packed::new(listpack, reader))
}

pub(super) fn ziplist(reader: &mut Reader<'_>) -> Result<Packed, SerialError> {
    let listpack = ziplist_to_listpack(&reader.string()?);
    let listpack = listpack.map_err(|_| reader.error("broken ziplist"))?;
    Ok(Packed::new(listpack, reader))
}

/// One without elements is broken, as for Redis.
pub(super) fn zipmap(reader: &mut Reader<'_>) -> Result<Packed, SerialError> {
    let listpack = zipmap_to_listpack(&reader.string()?).ok();
    let listpack = listpack.filter(|listpack| !listpack.view().is_empty());
    let listpack = listpack.ok_or(reader.error("broken zipmap"))?;
    Ok(Packed::new(listpack, reader))
}

/// Whether two of the elements 0, `step`, 2 * `step`... have the same text.
pub(super) fn has_twice(listpack: ListpackRef<'_>, step: usize) -> bool {
    let entries = listpack.entries().step_by(step);
    let mut seen: Vec<_> = entries.map(|(at, element)| (hash::of(&element.text()), at)).collect();
    seen.sort_unstable();
    // The hash is seeded: nobody can have others of the same hash stand between two equal ones.
    seen.windows(2).any(|pair| {
        let text = |at| Cow::from(listpack.at(at).to_vec());
        pair[0].0 == pair[1].0 && text(pair[0].1) == text(pair[1].1)
    })
}
