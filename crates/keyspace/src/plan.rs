//! Finding a call's keys, before anything is locked.

use kvasir_resp::args::Args;
use kvasir_resp::number::parse_integer;
use kvasir_structures::{crc16, hash};

use crate::command::{Command, Run};
use crate::database::Keyspace;
use crate::error::Error;
use crate::place::{DbIndex, Place};
use crate::spec::{Begin, Find, Flags, KeyFlags, KeySpec, Spec};

/// A key of a call: which argument it is, and where it belongs.
#[derive(Clone, Copy, Debug)]
pub struct KeyAt {
    pub arg: u32,
    pub slot: u16,
    pub db: DbIndex,
    pub hash: u64,
}

impl KeyAt {
    /// Inline: handed on through memory, it would be waited for.
    #[inline(always)]
    pub fn new(args: Args<'_>, arg: usize, db: DbIndex) -> KeyAt {
        let key = &args[arg];
        KeyAt { arg: arg as u32, slot: crc16::slot_of(key), db, hash: hash::of(key) }
    }

    #[inline(always)]
    pub fn place(&self) -> Place {
        Place { db: self.db, slot: self.slot }
    }
}

/// Appends the keys of a call whose arity was checked, in the order of its arguments.
#[inline]
pub fn keys(
    keyspace: &Keyspace,
    command: &Command,
    args: Args<'_>,
    db: DbIndex,
    keys: &mut Vec<KeyAt>,
) -> Result<(), Error> {
    match &command.run {
        Run::Keys(_) => {
            // Errors of a malformed call are the command's own business: it sees fewer keys.
            let _ = each_key(&command.spec, args, |arg, _| keys.push(KeyAt::new(args, arg, db)));
            Ok(())
        }
        Run::Planned(_, plan) => plan(keyspace, args, db, keys),
        Run::Roam(_) | Run::World(_) | Run::Container(_) => Ok(()),
    }
}

/// The arguments do not say where the keys are.
#[derive(Debug, PartialEq, Eq)]
pub struct NoKeys;

/// Calls `f` with the index and the flags of every key argument.
#[inline]
pub fn each_key(
    spec: &Spec,
    args: Args<'_>,
    mut f: impl FnMut(usize, KeyFlags),
) -> Result<(), NoKeys> {
    for key_spec in spec.keys {
        if key_spec.flags.contains(KeyFlags::NOT_KEY) {
            continue;
        }
        // Most calls have one key, at a place of its own.
        if let KeySpec { begin: Begin::Index(arg), find: Find::Range { last: 0, .. }, .. } =
            key_spec
        {
            let arg = usize::from(*arg);
            if arg >= args.len() {
                return Err(NoKeys);
            }
            f(arg, key_spec.flags);
            continue;
        }
        let Some((first, last, step)) = positions(key_spec, args)? else {
            // Only a script may count none.
            let counts = matches!(key_spec.find, Find::Count { .. });
            if counts && !spec.flags.contains(Flags::NO_MANDATORY_KEYS) {
                return Err(NoKeys);
            }
            continue;
        };
        for arg in (first..=last).step_by(step) {
            f(arg, key_spec.flags);
        }
    }
    Ok(())
}

/// First and last argument of one specification's keys and the step between them; `None` if an
/// optional keyword is not there.
#[inline]
fn positions(spec: &KeySpec, args: Args<'_>) -> Result<Option<(usize, usize, usize)>, NoKeys> {
    let Some(begin) = begin(spec.begin, args) else { return Ok(None) };
    let (first, last, step) = match spec.find {
        Find::Range { last, step, limit } => {
            let end = args.len() as i64;
            let last = match (last, limit) {
                (last, _) if last >= 0 => begin as i64 + last as i64,
                (-1, limit) if limit >= 2 => begin as i64 + (end - begin as i64) / limit as i64 - 1,
                (last, _) => end + last as i64,
            };
            (begin as i64, last, step)
        }
        Find::Count { count, first, step } => {
            let text = args.get(begin + count as usize).ok_or(NoKeys)?;
            let keys = parse_integer(text).filter(|keys| *keys >= 0).ok_or(NoKeys)?;
            let first = (begin + first as usize) as i64;
            let last = keys
                .checked_mul(step as i64)
                .and_then(|span| first.checked_add(span - step as i64))
                .ok_or(NoKeys)?;
            (first, last, step)
        }
        Find::Unknown => return Ok(None),
    };
    if last >= args.len() as i64 || first >= args.len() as i64 {
        return Err(NoKeys);
    }
    Ok((last >= first).then_some((first as usize, last as usize, step.max(1) as usize)))
}

#[inline]
fn begin(begin: Begin, args: Args<'_>) -> Option<usize> {
    match begin {
        Begin::Index(index) => Some(index as usize),
        Begin::Unknown => None,
        Begin::Keyword { word, from } => {
            let found = |arg: &usize| args[*arg].eq_ignore_ascii_case(word.as_bytes());
            let after = |arg: usize| arg + 1;
            if from >= 0 {
                (from as usize..args.len()).find(found).map(after)
            } else {
                let last = args.len().checked_sub(from.unsigned_abs() as usize)?;
                (1..=last).rev().find(found).map(after)
            }
        }
    }
}
