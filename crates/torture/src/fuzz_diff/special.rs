//! Calls whose replies are right in many ways: iterations and random picks; and steps that are no
//! calls but take several.
//!
//! They are run one at a time, since checking them takes questions of its own.

use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use kvasir_harness::link::Call;
use kvasir_harness::link::Link;
use kvasir_harness::raw::Raw;

use super::pair::Twins;

/// A step: some keys of the database get a short time to live, which is waited for.
pub const EXPIRE_SOME: &[u8] = b"~expire-some";
/// A step: the peer's serialized value of a key is restored under another, on both sides.
pub const RESTORE_COPY: &[u8] = b"~restore-copy";

/// A step: calls that are not answered, since the client asked for that.
pub const SILENT: &[u8] = b"~silent";

/// No iteration over our small databases takes longer.
const SCAN_CALLS_MAX: usize = 1_000_000;

/// One key in so many expires.
const EXPIRE_EVERY: usize = 7;
const EXPIRE_MS: &str = "3";
const EXPIRE_WAIT: Duration = Duration::from_millis(20);

pub fn is_special(call: &Call) -> bool {
    let name = call[0].to_ascii_lowercase();
    let is_random = matches!(
        &name[..],
        b"randomkey" | b"hrandfield" | b"srandmember" | b"zrandmember" | b"spop"
    );
    let is_plain = !is_random && scan_cursor(&name).is_none() && lex_source(call).is_none();
    let is_sort = name.starts_with(b"sort") && call.len() > 1;
    !is_plain
        || is_sort
        || name == b"dbsize"
        || matches!(&name[..], EXPIRE_SOME | RESTORE_COPY | SILENT)
}

/// Both replies, and whether they may stand side by side.
pub fn run(twins: &mut Twins, call: &Call) -> Result<(Raw, Raw, bool)> {
    let name = call[0].to_ascii_lowercase();
    if let Some(cursor) = scan_cursor(&name) {
        return scan(twins, call, cursor, scan_items(&name, call));
    }
    if let Some(source) = lex_source(call)
        && has_many_scores(twins, &call[source])?
    {
        let skipped = Raw::Leaf(Vec::new());
        return Ok((skipped.clone(), skipped, true));
    }
    match &name[..] {
        b"sort" | b"sort_ro" if call.len() > 1 => return sort(twins, call),
        EXPIRE_SOME => return expire_some(twins),
        RESTORE_COPY => return restore_copy(twins, call),
        SILENT => return silent(twins, call),
        b"spop" => return pop(twins, call),
        _ => {}
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
            _ => are_elements(twins, &name, call, &ours, &theirs)?,
        };
    Ok((ours, theirs, is_same))
}

/// Which argument is the cursor.
fn scan_cursor(name: &[u8]) -> Option<usize> {
    match name {
        b"scan" => Some(1),
        b"hscan" | b"sscan" | b"zscan" => Some(2),
        _ => None,
    }
}

/// Which argument is the sorted set that is looked at in the order of its members' bytes.
fn lex_source(call: &Call) -> Option<usize> {
    let source = match &call[0].to_ascii_lowercase()[..] {
        b"zlexcount" | b"zrangebylex" | b"zrevrangebylex" | b"zremrangebylex" => 1,
        b"zrange" if has_word(call, b"bylex") => 1,
        b"zrangestore" if has_word(call, b"bylex") => 2,
        _ => return None,
    };
    (call.len() > source).then_some(source)
}

/// The peers change the encoding of a sorted set that is sorted: they are given a copy of it.
fn sort(twins: &mut Twins, call: &Call) -> Result<(Raw, Raw, bool)> {
    const COPY: &[u8] = b"~sorted";
    let of_type = twins.theirs.call(&vec![b"TYPE".to_vec(), call[1].clone()])?;
    let mut asked = call.clone();
    if of_type.text() == Some(b"zset") {
        twins.theirs.call(&vec![b"COPY".to_vec(), call[1].clone(), COPY.to_vec()])?;
        asked[1] = COPY.to_vec();
    }
    let (ours, theirs) = (twins.ours.call(call)?, twins.theirs.call(&asked)?);
    if asked != *call {
        twins.theirs.call(&vec![b"DEL".to_vec(), COPY.to_vec()])?;
    }
    let is_same = ours == theirs;
    Ok((ours, theirs, is_same))
}

/// Whether the members of a sorted set are not in the order of their bytes: what such a range of
/// it holds is nobody's promise.
fn has_many_scores(twins: &mut Twins, key: &[u8]) -> Result<bool> {
    let words: [&[u8]; 5] = [b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"];
    let members = flat(&twins.theirs.call(&words.map(<[u8]>::to_vec).to_vec())?, 2);
    Ok(members.windows(2).any(|pair| pair[0].get(1) != pair[1].get(1)))
}

/// How many items of a reply make one element.
fn scan_items(name: &[u8], call: &Call) -> usize {
    match name {
        b"zscan" if !has_word(call, b"noscores") => 2,
        b"hscan" if !has_word(call, b"novalues") => 2,
        _ => 1,
    }
}

/// Keys die while nobody looks; afterwards both sides have the same.
fn expire_some(twins: &mut Twins) -> Result<(Raw, Raw, bool)> {
    let keys = twins.theirs.ask(&["KEYS", "*"])?.sorted(1);
    for key in keys.items().iter().step_by(EXPIRE_EVERY).filter_map(Raw::text) {
        let call = vec![b"PEXPIRE".to_vec(), key.to_vec(), EXPIRE_MS.into()];
        let (ours, theirs) = (twins.ours.call(&call)?, twins.theirs.call(&call)?);
        if ours != theirs {
            return Ok((ours, theirs, false));
        }
    }
    thread::sleep(EXPIRE_WAIT);
    let ours = twins.ours.ask(&["KEYS", "*"])?.sorted(1);
    let theirs = twins.theirs.ask(&["KEYS", "*"])?.sorted(1);
    let is_same = ours == theirs;
    Ok((ours, theirs, is_same))
}

fn restore_copy(twins: &mut Twins, call: &Call) -> Result<(Raw, Raw, bool)> {
    let dump = twins.theirs.call(&vec![b"DUMP".to_vec(), call[1].clone()])?;
    let Some(payload) = dump.text() else { return Ok((dump.clone(), dump, true)) };
    let words: [&[u8]; 5] = [b"RESTORE", &call[2], b"0", payload, b"REPLACE"];
    let restore: Call = words.map(<[u8]>::to_vec).to_vec();
    let (ours, theirs) = (twins.ours.call(&restore)?, twins.theirs.call(&restore)?);
    let is_same = ours == theirs;
    Ok((ours, theirs, is_same))
}

/// Of what is called between two CLIENT REPLY only the second is answered; one call behind SKIP is
/// not either.
fn silent(twins: &mut Twins, step: &Call) -> Result<(Raw, Raw, bool)> {
    let mut calls: Vec<Call> = Vec::new();
    let mut rest = &step[1..];
    while let [count, words @ ..] = rest {
        let count: usize = std::str::from_utf8(count)?.parse()?;
        calls.push(words[..count].to_vec());
        rest = &words[count..];
    }
    let reply = |word: &str| -> Call { ["CLIENT", "REPLY", word].map(|word| word.into()).to_vec() };
    calls.insert(0, reply("OFF"));
    calls.extend([
        reply("ON"),
        reply("SKIP"),
        vec![b"PING".to_vec()],
        vec![b"DBSIZE".to_vec(), b"x".to_vec()],
    ]);
    let answers = |link: &mut Link| -> Result<Raw> {
        link.send(&calls.iter().collect::<Vec<_>>())?;
        Ok(Raw::Node(b"*2\r\n".to_vec(), link.replies(2)?))
    };
    let (ours, theirs) = (answers(&mut twins.ours)?, answers(&mut twins.theirs)?);
    let is_same = ours == theirs;
    Ok((ours, theirs, is_same))
}

/// SPOP here, and SREM of the same members there: as many have to be removed as there should be.
fn pop(twins: &mut Twins, call: &Call) -> Result<(Raw, Raw, bool)> {
    let size = |link: &mut Link| -> Result<Option<i64>> {
        let key = call.get(1).cloned().unwrap_or_default();
        Ok(link.call(&vec![b"SCARD".to_vec(), key])?.integer())
    };
    let before = size(&mut twins.theirs)?;
    let ours = twins.ours.call(call)?;
    let members: Vec<Vec<u8>> = match &ours {
        Raw::Leaf(_) if !ours.is_error() => ours.text().map(<[u8]>::to_vec).into_iter().collect(),
        Raw::Leaf(_) => Vec::new(),
        Raw::Node(_, items) => items.iter().filter_map(Raw::text).map(<[u8]>::to_vec).collect(),
    };
    if members.is_empty() {
        let theirs = twins.theirs.call(call)?;
        let is_same = ours == theirs;
        return Ok((ours, theirs, is_same));
    }
    let wanted = match call.get(2) {
        None => 1,
        Some(count) => std::str::from_utf8(count)?.parse::<i64>()?.min(before.unwrap_or(0)),
    };
    let remove = [&[b"SREM".to_vec(), call[1].clone()], &members[..]].concat();
    let theirs = twins.theirs.call(&remove)?;
    let is_same = theirs.integer() == Some(wanted)
        && members.len() as i64 == wanted
        && matches!(ours, Raw::Node(..)) == (call.len() > 2);
    Ok((ours, theirs, is_same))
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

/// Whether these are elements of the collection, with their values or scores: each once, if the
/// count is not negative.
fn are_elements(
    twins: &mut Twins,
    name: &[u8],
    call: &Call,
    ours: &Raw,
    theirs: &Raw,
) -> Result<bool> {
    let (question, per_element): (&[&[u8]], usize) = match name {
        b"hrandfield" => (&[b"HGETALL"], 2),
        b"zrandmember" => (&[b"ZRANGE", b"0", b"-1", b"WITHSCORES"], 2),
        _ => (&[b"SMEMBERS"], 1),
    };
    let mut content: Call = question.iter().map(|word| word.to_vec()).collect();
    content.insert(1, call[1].clone());
    // Ours, since Redis 7.0 writes scores with more digits.
    let content = flat(&twins.ours.call(&content)?, per_element);
    let is_element = |element: &Raw| content.iter().any(|known| &known[0] == element);
    if call.len() < 3 {
        return Ok(is_element(ours));
    }
    let width = if call.len() > 3 { 2 } else { 1 };
    let mut found = flat(ours, width);
    let is_known = |element: &Vec<Raw>| match &element[..] {
        [element] => is_element(element),
        pair => content.iter().any(|known| known == pair),
    };
    let are_known = found.iter().all(is_known);
    let count = found.len();
    found.sort();
    found.dedup();
    let is_repeating = call[2].starts_with(b"-");
    Ok(are_known && count == flat(theirs, width).len() && (is_repeating || found.len() == count))
}

/// The elements of a reply, whether RESP2 wrote them one behind the other or RESP3 in pairs.
fn flat(reply: &Raw, per_element: usize) -> Vec<Vec<Raw>> {
    match reply.items().first() {
        Some(Raw::Node(..)) => reply.items().iter().map(|item| item.items().to_vec()).collect(),
        _ => reply.items().chunks(per_element).map(<[Raw]>::to_vec).collect(),
    }
}

fn has_word(call: &Call, word: &[u8]) -> bool {
    call.iter().any(|arg| arg.eq_ignore_ascii_case(word))
}
