//! Calls whose replies are right in many ways: iterations and random picks.
//!
//! They are run one at a time, since checking them takes questions of its own.

use anyhow::{Result, bail};

use super::pair::Twins;
use crate::link::Call;
use crate::link::Link;
use crate::raw::Raw;

/// No iteration over our small databases takes longer.
const SCAN_CALLS_MAX: usize = 1_000_000;

pub fn is_special(call: &Call) -> bool {
    let name = call[0].to_ascii_lowercase();
    scan_cursor(&name).is_some() || matches!(&name[..], b"randomkey" | b"hrandfield" | b"dbsize")
}

/// Both replies, and whether they may stand side by side.
pub fn run(twins: &mut Twins, call: &Call) -> Result<(Raw, Raw, bool)> {
    let name = call[0].to_ascii_lowercase();
    if let Some(cursor) = scan_cursor(&name) {
        return scan(twins, call, cursor, if name == b"hscan" { 2 } else { 1 });
    }
    let (ours, theirs) = (twins.ours.call(call)?, twins.theirs.call(call)?);
    if ours == theirs {
        return Ok((ours, theirs, true));
    }
    let is_same = ours.has_shape_of(&theirs)
        && !ours.is_error()
        && match &name[..] {
            b"randomkey" => exists(twins, &ours)?,
            b"dbsize" => have_same_live_keys(twins, &ours, &theirs)?,
            _ => are_fields(twins, call, &ours, &theirs)?,
        };
    Ok((ours, theirs, is_same))
}

/// Which argument is the cursor.
fn scan_cursor(name: &[u8]) -> Option<usize> {
    match name {
        b"scan" => Some(1),
        b"hscan" => Some(2),
        _ => None,
    }
}

/// A full iteration on both sides; of a call with another cursor than 0 only whether it fails.
fn scan(
    twins: &mut Twins,
    call: &Call,
    cursor: usize,
    per_item: usize,
) -> Result<(Raw, Raw, bool)> {
    let (ours, theirs) = (twins.ours.call(call)?, twins.theirs.call(call)?);
    if ours.is_error() || theirs.is_error() {
        let is_same = ours == theirs;
        return Ok((ours, theirs, is_same));
    }
    if call[cursor] != b"0" {
        let is_same = ours.has_shape_of(&theirs);
        return Ok((ours, theirs, is_same));
    }
    let ours = scan_on(&mut twins.ours, call, cursor, per_item, ours)?;
    let theirs = scan_on(&mut twins.theirs, call, cursor, per_item, theirs)?;
    let is_same = ours == theirs;
    Ok((ours, theirs, is_same))
}

/// Everything that an iteration returns, in order and once.
fn scan_on(
    link: &mut Link,
    call: &Call,
    cursor: usize,
    per_item: usize,
    first: Raw,
) -> Result<Raw> {
    let mut call = call.clone();
    let mut found: Vec<Vec<Raw>> = Vec::new();
    let mut reply = first;
    for _ in 0..SCAN_CALLS_MAX {
        let [next, items] = reply.items() else { bail!("no reply of SCAN: {reply:?}") };
        found.extend(items.items().chunks(per_item).map(<[Raw]>::to_vec));
        match next.text() {
            Some(b"0") => {
                found.sort();
                found.dedup();
                return Ok(Raw::Node(Vec::new(), found.concat()));
            }
            Some(text) => call[cursor] = text.to_vec(),
            None => bail!("a cursor that is no text: {reply:?}"),
        }
        reply = link.call(&call)?;
    }
    bail!("an iteration that does not end")
}

/// DBSIZE counts expired keys that nobody has met yet; those who are alive must be as many.
fn have_same_live_keys(twins: &mut Twins, ours: &Raw, theirs: &Raw) -> Result<bool> {
    let live = twins.ours.ask(&["KEYS", "*"])?.items().len();
    let has_all = |size: &Raw| size.integer().is_some_and(|size| size >= live as i64);
    let is_same = live == twins.theirs.ask(&["KEYS", "*"])?.items().len();
    Ok(is_same && has_all(ours) && has_all(theirs))
}

fn exists(twins: &mut Twins, key: &Raw) -> Result<bool> {
    let Some(key) = key.text() else { return Ok(false) };
    Ok(twins.theirs.call(&vec![b"EXISTS".to_vec(), key.to_vec()])?.integer() == Some(1))
}

/// Whether HRANDFIELD returned fields of the hash with their values: each once, if the count is
/// not negative.
fn are_fields(twins: &mut Twins, call: &Call, ours: &Raw, theirs: &Raw) -> Result<bool> {
    let content = twins.theirs.call(&vec![b"HGETALL".to_vec(), call[1].clone()])?;
    let pairs: Vec<&[Raw]> = content.items().chunks_exact(2).collect();
    let has_field = |field: &Raw| pairs.iter().any(|pair| &pair[0] == field);
    if call.len() < 3 {
        return Ok(has_field(ours));
    }
    let is_repeating = call[2].starts_with(b"-");
    let mut items: Vec<Vec<Raw>> = match (call.len() > 3, &theirs.items()[0]) {
        (false, _) => ours.items().iter().map(|item| vec![item.clone()]).collect(),
        (true, Raw::Node(..)) => ours.items().iter().map(|item| item.items().to_vec()).collect(),
        (true, Raw::Leaf(_)) => ours.items().chunks(2).map(<[Raw]>::to_vec).collect(),
    };
    let is_known = |item: &Vec<Raw>| match &item[..] {
        [field] => has_field(field),
        pair => pairs.contains(&pair),
    };
    let are_known = items.iter().all(is_known);
    let count = items.len();
    items.sort();
    items.dedup();
    Ok(are_known && (is_repeating || items.len() == count))
}
