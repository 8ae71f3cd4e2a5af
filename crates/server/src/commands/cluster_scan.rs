//! CLUSTERSCAN, of Valkey: a walk through the keys of a cluster, slot by slot, wherever these are.
//!
//! A cursor is `fingerprint-{tag}-position`. The tag has the slot where the walk goes on, so
//! clients send the call where that is. The position is one of the node with this fingerprint; any
//! other node begins the slot anew.

use std::sync::LazyLock;

use kvasir_cluster::slots::SLOTS;
use kvasir_keyspace::commands::generic::scan::{Options, STEPS_PER_KEY, Steps};
use kvasir_keyspace::error::Error;
use kvasir_keyspace::place::{DbIndex, Place};
use kvasir_keyspace::spec::{
    Argument, ArgumentKind, Categories, Flags, Group, KeyFlags, KeySpec, Spec,
};
use kvasir_resp::args::ArgsBuf;
use kvasir_structures::crc16;
use kvasir_structures::table::Position;

use crate::calls::routing::{self, Wish};
use crate::commands::cluster::{node, slot};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};
use crate::state::connection::Asks;

pub static COMMANDS: &[&ServerCommand] = &[&CLUSTERSCAN];

const INVALID: Error = Error::fixed("ERR Invalid cursor");
/// Digits of a fingerprint.
const FINGERPRINT_LEN: usize = 6;

static CLUSTERSCAN: ServerCommand = ServerCommand {
    spec: Spec {
        name: "clusterscan",
        summary: "Walks through the keys of a cluster, some at each call.",
        since: "9.1.0",
        group: Group::Cluster,
        complexity: "O(1) for a call, O(N) for a whole walk where N is the number of keys.",
        arity: -2,
        flags: Flags::READONLY,
        categories: Categories::KEYSPACE,
        keys: &[KeySpec::first(KeyFlags::NOT_KEY)],
        tips: &["nondeterministic_output", "request_policy:special", "response_policy:special"],
        arguments: &[
            Argument::string("cursor"),
            Argument::new("match-pattern", ArgumentKind::Pattern).token("MATCH").optional(),
            Argument::integer("count").token("COUNT").optional(),
            Argument::string("type").token("TYPE").optional(),
            Argument::integer("slot").token("SLOT").optional(),
        ],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(cluster_scan),
};

/// For each slot three letters or digits that have it.
static TAGS: LazyLock<Vec<[u8; 3]>> = LazyLock::new(|| {
    let letters = || (b'0'..=b'9').chain(b'a'..=b'z').chain(b'A'..=b'Z');
    let mut tags = vec![[0; 3]; usize::from(SLOTS)];
    for first in letters() {
        for second in letters() {
            for third in letters() {
                let tag = [first, second, third];
                tags[usize::from(crc16::slot_of(&tag))] = tag;
            }
        }
    }
    tags
});

/// Where a walk goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cursor {
    slot: u16,
    /// 0: at its start.
    position: u64,
}

impl Cursor {
    /// What a client has sent; `None` at the beginning of a walk.
    fn parse(word: &[u8], fingerprint: &str) -> Result<Option<Cursor>, Error> {
        let text = std::str::from_utf8(word).map_err(|_| INVALID)?;
        if text == "0" {
            return Ok(None);
        }
        let (rest, position) = text.rsplit_once('-').ok_or(INVALID)?;
        let (whose, tag) = rest.rsplit_once("-{").ok_or(INVALID)?;
        let tag = tag.strip_suffix('}').filter(|tag| !tag.is_empty()).ok_or(INVALID)?;
        let position = position.parse().map_err(|_| INVALID)?;
        let is_ours = whose == fingerprint;
        let slot = crc16::slot_of(tag.as_bytes());
        Ok(Some(Cursor { slot, position: if is_ours { position } else { 0 } }))
    }

    fn text(self, fingerprint: &str) -> String {
        let Cursor { slot, position } = self;
        let tag = String::from_utf8_lossy(&TAGS[usize::from(slot)]).into_owned();
        let whose = if position == 0 { "0" } else { fingerprint };
        format!("{whose}-{{{tag}}}-{position}")
    }
}

fn cluster_scan(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    node(cx)?;
    let fingerprint: String = cx.shared.facts.run_id.chars().take(FINGERPRINT_LEN).collect();
    let cursor = Cursor::parse(&cx.args[1], &fingerprint)?;
    let mut only = None;
    let options = Options::parse(cx.args.from(2), |word, value| {
        let is_it = word.eq_ignore_ascii_case(b"slot");
        if is_it {
            only = Some(slot(value)?);
        }
        Ok(is_it)
    })?;
    let mut found = ArgsBuf::new();
    let next = match (cursor, only) {
        (None, only) => Some(Cursor { slot: only.unwrap_or(0), position: 0 }),
        (Some(cursor), Some(only)) if cursor.slot != only => {
            return Err(Error::fixed("ERR Cursor slot mismatch with SLOT argument"));
        }
        (Some(cursor), only) => walk(cx, cursor, only.is_some(), &options, &mut found)?,
    };
    let text = next.map_or_else(|| "0".to_owned(), |next| next.text(&fingerprint));
    let reply = cx.reply();
    reply.array(2);
    reply.bulk(text.as_bytes());
    reply.array(found.len());
    found.as_args().iter().for_each(|key| reply.bulk(key));
    Ok(())
}

/// Goes on through slots that are here, until there are enough keys; `None` at the end. `is_one`:
/// its slot is all that is wanted.
fn walk(
    cx: &ServerCx<'_>,
    mut cursor: Cursor,
    is_one: bool,
    options: &Options<'_>,
    found: &mut ArgsBuf,
) -> Result<Option<Cursor>, Error> {
    let (shared, node, pass) = (cx.shared, node(cx)?, cx.pass());
    let wish = Wish {
        asks: cx.connection.routing.asks != Asks::No,
        reads_replicas: cx.connection.routing.reads_replicas,
        writes: false,
        is_pubsub: false,
        is_tls: cx.connection.wire.tls.is_some(),
    };
    routing::route_slot(shared, node, cursor.slot, wish)?;
    let (db, keyspace) = (DbIndex(0), &shared.keyspace);
    let steps_through = Steps { keyspace, pass, env: &cx.core.env, options };
    let (mut seen, mut steps) = (0, options.count * STEPS_PER_KEY);
    loop {
        let place = Place { db, slot: cursor.slot };
        if !keyspace.database(db, pass).slot(place.slot).is_empty() {
            if seen >= options.count || steps == 0 {
                return Ok(Some(cursor));
            }
            let (next, count) = steps_through.take(place, Position(cursor.position), found)?;
            (cursor.position, seen, steps) = (next.0, seen + count, steps - 1);
            if next != Position(0) {
                continue;
            }
        }
        if is_one || cursor.slot + 1 == SLOTS {
            return Ok(None);
        }
        cursor = Cursor { slot: cursor.slot + 1, position: 0 };
        if routing::route_slot(shared, node, cursor.slot, wish).is_err() {
            return Ok(Some(cursor));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_has_a_tag() {
        for slot in 0..SLOTS {
            assert_eq!(crc16::slot_of(&TAGS[usize::from(slot)]), slot);
        }
    }

    #[test]
    fn cursors_and_back() {
        for cursor in [Cursor { slot: 5061, position: 7 }, Cursor { slot: 0, position: 0 }] {
            assert_eq!(Cursor::parse(cursor.text("a-b").as_bytes(), "a-b"), Ok(Some(cursor)));
        }
        let elsewhere = Cursor { slot: 5061, position: 0 };
        assert_eq!(Cursor::parse(b"3>fPi2-{bar}-15495", "a"), Ok(Some(elsewhere)));
        assert_eq!(Cursor::parse(b"0", "a"), Ok(None));
        for word in ["", "1", "x", "0-bar-0", "0-{}-0", "0-{bar}-", "0-{bar}-x", "-{bar-0"] {
            assert_eq!(Cursor::parse(word.as_bytes(), "a"), Err(INVALID), "{word}");
        }
    }
}
