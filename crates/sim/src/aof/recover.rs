//! What a start finds on the files that a crash has left, and whether that is as it was promised.

use std::path::Path;
use std::sync::atomic::AtomicU64;

use kvasir_persistence::aof::files::Files as AofFiles;
use kvasir_persistence::aof::load::{AofError, Replay, load};
use kvasir_persistence::aof::manifest::Manifest;
use kvasir_resp::args::Args;

use super::model::{self, Call};
use super::run::{DIR, NAME, Promise};
use crate::disk::{Files, SimDisk};
use crate::luck::{Bytes, Luck};

/// What was found.
#[derive(Clone, Default, Debug)]
pub struct Found {
    /// None: there is nothing yet.
    pub manifest: Option<Manifest>,
    /// Entries, from the first one on.
    pub entries: usize,
    /// How much of the last file is whole records.
    pub good_to: u64,
}

/// Loads what is there, as a server does that starts.
pub fn recover(files: &Files) -> Result<Found, String> {
    let path = |name: &str| Path::new(DIR).join(name);
    let Some(text) = files.get(&path(&AofFiles::<SimDisk>::manifest_name(NAME))) else {
        return Ok(Found::default());
    };
    let manifest = Manifest::parse(text)
        .map_err(|(line, what)| format!("the manifest cannot be read: {what} in line {line}"))?;
    let parts: Vec<_> = manifest.base.iter().chain(&manifest.increments).collect();
    let mut calls = Calls(Vec::new());
    let mut good_to = 0;
    for (index, part) in parts.iter().enumerate() {
        let bytes = files.get(&path(&part.name)).ok_or(format!("{} is not there", part.name))?;
        let is_last = index + 1 == parts.len();
        good_to = match load(&bytes[..], 0, &AtomicU64::new(0), &mut calls) {
            Ok(end) if is_last || end.room == 0 => end.offset,
            Ok(_) => return Err(format!("{} is not the last and ends in zeros", part.name)),
            Err(AofError::Torn { offset }) if is_last => offset,
            Err(error) => return Err(format!("{} is refused: {error}", part.name)),
        };
    }
    let entries = count(&calls.0)?;
    Ok(Found { manifest: Some(manifest), entries, good_to })
}

/// What was promised is there, and nothing else.
pub fn check(found: &Found, promise: &Promise, luck: Luck) -> Result<(), String> {
    let (least, what) = match luck.bytes {
        Bytes::Killed => (promise.written, "was written"),
        _ => (promise.safe, "was acknowledged"),
    };
    if found.entries < least {
        return Err(format!("entry {} {what} and is gone", found.entries));
    }
    if found.entries > promise.logged {
        return Err(format!("entry {} was never logged", promise.logged));
    }
    Ok(())
}

struct Calls(Vec<Call>);

impl Replay for Calls {
    fn call(&mut self, args: Args<'_>) -> Result<(), String> {
        if args.name() == b"SELECT" {
            return Ok(());
        }
        let number = |index: usize| {
            let word = std::str::from_utf8(args.get(index).unwrap_or_default()).ok();
            word.and_then(|word| word.parse().ok()).ok_or("a call that nobody made")
        };
        self.0.push((number(1)?, number(2)?));
        Ok(())
    }
}

/// How many entries these calls are: whole ones, in their order, without a gap.
fn count(calls: &[Call]) -> Result<usize, String> {
    let mut rest = calls;
    for number in 0.. {
        if rest.is_empty() {
            return Ok(number);
        }
        for call in model::calls(number) {
            match rest.split_first() {
                Some((found, behind)) if *found == call => rest = behind,
                Some((found, _)) => return Err(format!("{found:?} comes where {call:?} belongs")),
                None => return Err(format!("entry {number} is there by half")),
            }
        }
    }
    unreachable!("there are fewer calls than numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_whole_and_in_order() {
        assert_eq!(count(&[]), Ok(0));
        assert_eq!(count(&[(0, 0), (1, 0), (1, 1), (2, 0)]), Ok(3));
        for wrong in
            [&[(0, 0), (1, 0)][..], &[(1, 0), (1, 1)], &[(0, 0), (0, 0)], &[(0, 0), (1, 1)]]
        {
            assert!(count(wrong).is_err(), "{wrong:?}");
        }
    }
}
