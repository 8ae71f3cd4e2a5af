//! Everything that two servers store, compared key by key.

use anyhow::Result;
use kvasir_harness::link::{Call, Link, show};
use kvasir_harness::raw::Raw;
use kvasir_keyspace::commands;

use super::intended::Peer;
use super::judge::{Tally, Verdict, judge};
use super::pair::{Difference, Twins};
use super::values::DATABASES;

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
    let type_of = |index: usize| types[3 * index].text().unwrap_or_default();
    let values: Vec<Call> =
        keys.iter().enumerate().flat_map(|(index, key)| questions(type_of(index), key)).collect();
    if let Some(difference) = ask(twins, &values)? {
        return Ok(Some(difference));
    }
    let hashes = keys.iter().enumerate().filter(|(index, _)| type_of(*index) == b"hash");
    let fields_expire = commands::all().any(|command| command.spec.name == "hpexpiretime");
    match twins.terms.peer {
        Peer::Valkey if fields_expire => {
            compare_fields(twins, &hashes.map(|(_, key)| *key).collect::<Vec<_>>())
        }
        _ => Ok(None),
    }
}

/// What says everything about a key of this type.
fn questions(of_type: &[u8], key: &[u8]) -> Vec<Call> {
    let question = |words: &[&str], rest: &[&str]| {
        let mut call = with_key(words, key);
        call.extend(rest.iter().map(|word| word.as_bytes().to_vec()));
        call
    };
    match of_type {
        b"string" => vec![question(&["GET"], &[])],
        b"hash" => vec![question(&["HGETALL"], &[])],
        b"list" => vec![question(&["LRANGE"], &["0", "-1"])],
        b"set" => vec![question(&["SMEMBERS"], &[])],
        b"zset" => vec![question(&["ZRANGE"], &["0", "-1", "WITHSCORES"])],
        b"stream" => vec![
            question(&["XRANGE"], &["-", "+"]),
            question(&["XINFO", "STREAM"], &["FULL", "COUNT", "0"]),
        ],
        _ => Vec::new(),
    }
}

/// When the fields of these hashes expire.
fn compare_fields(twins: &mut Twins, hashes: &[&[u8]]) -> Result<Option<Difference>> {
    let mut calls = Vec::new();
    for key in hashes {
        let fields = twins.theirs.call(&with_key(&["HKEYS"], key))?;
        let fields: Vec<Vec<u8>> =
            fields.items().iter().filter_map(Raw::text).map(<[u8]>::to_vec).collect();
        let mut call = with_key(&["HPEXPIRETIME"], key);
        call.extend([b"FIELDS".to_vec(), fields.len().to_string().into_bytes()]);
        call.extend(fields);
        calls.push(call);
    }
    ask(twins, &calls)
}

/// Asks both and compares.
fn ask(twins: &mut Twins, calls: &[Call]) -> Result<Option<Difference>> {
    let ours = answers(&mut twins.ours, calls)?;
    let theirs = answers(&mut twins.theirs, calls)?;
    let mut tally = Tally::new(twins.terms);
    for ((call, ours), theirs) in calls.iter().zip(ours).zip(theirs) {
        if judge(call, &ours, &theirs, &mut tally) == Verdict::Different {
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
