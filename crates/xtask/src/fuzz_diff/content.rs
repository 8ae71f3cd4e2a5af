//! Everything that two servers store, compared key by key.

use anyhow::Result;

use super::intended::{Tally, Verdict, judge};
use super::pair::{Difference, Twins};
use super::values::DATABASES;
use crate::link::{Call, Link, show};
use crate::raw::Raw;

/// Calls in one write.
const PIPELINE: usize = 512;

pub fn compare(twins: &mut Twins) -> Result<Option<Difference>> {
    for db in 0..DATABASES {
        let select = vec![b"SELECT".to_vec(), db.to_string().into_bytes()];
        if let Some(difference) = ask(twins, &[select])? {
            return Ok(Some(difference));
        }
        if let Some(difference) = compare_database(twins)? {
            let call = format!("{} (in database {db})", difference.call);
            return Ok(Some(Difference { call, ..difference }));
        }
    }
    Ok(None)
}

fn compare_database(twins: &mut Twins) -> Result<Option<Difference>> {
    if let Some(difference) = ask(twins, &[words(&["KEYS", "*"])])? {
        return Ok(Some(difference));
    }
    let keys = twins.theirs.ask(&["KEYS", "*"])?;
    let keys: Vec<&[u8]> = keys.items().iter().filter_map(Raw::text).collect();
    let mut calls: Vec<Call> = Vec::new();
    for key in &keys {
        calls.push(with_key(&["TYPE"], key));
        calls.push(with_key(&["OBJECT", "ENCODING"], key));
        calls.push(with_key(&["PEXPIRETIME"], key));
    }
    if let Some(difference) = ask(twins, &calls)? {
        return Ok(Some(difference));
    }
    let types = answers(&mut twins.theirs, &calls)?;
    let values: Vec<Call> = keys
        .iter()
        .zip(types.chunks(3))
        .filter_map(|(key, about)| match about[0].text()? {
            b"string" => Some(with_key(&["GET"], key)),
            b"hash" => Some(with_key(&["HGETALL"], key)),
            _ => None,
        })
        .collect();
    ask(twins, &values)
}

/// Asks both and compares.
fn ask(twins: &mut Twins, calls: &[Call]) -> Result<Option<Difference>> {
    let ours = answers(&mut twins.ours, calls)?;
    let theirs = answers(&mut twins.theirs, calls)?;
    for ((call, ours), theirs) in calls.iter().zip(ours).zip(theirs) {
        if judge(call, &ours, &theirs, &mut Tally::default()) == Verdict::Different {
            let (ours, theirs) = (format!("{ours:?}"), format!("{theirs:?}"));
            return Ok(Some(Difference { step: 0, call: show(call), ours, theirs }));
        }
    }
    Ok(None)
}

fn answers(link: &mut Link, calls: &[Call]) -> Result<Vec<Raw>> {
    let mut replies = Vec::new();
    for part in calls.chunks(PIPELINE) {
        link.send(&part.iter().collect::<Vec<_>>())?;
        replies.extend(link.replies(part.len())?);
    }
    Ok(replies)
}

fn words(words: &[&str]) -> Call {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn with_key(command: &[&str], key: &[u8]) -> Call {
    let mut call = words(command);
    call.push(key.to_vec());
    call
}
