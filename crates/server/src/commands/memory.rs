//! MEMORY: what takes memory, and how much.

use kvasir_keyspace::commands::internal;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec, Traits};
use kvasir_keyspace::usage::PLACE_BYTES;
use kvasir_resp::reply::Reply;
use kvasir_structures::{heap, slab};

use crate::commands::memory_report::REPORT;
use crate::commands::{help_spec, info, write_help};
use crate::info::data::{Counts, databases};
use crate::info::memory::Memory;
use crate::info::ratio;
use crate::info::scripts::Texts;
use crate::run::server::{ServerCommand, ServerCx, ServerRun};
use crate::workers::Message;

pub static COMMANDS: &[&ServerCommand] = &[&MEMORY];

const SINCE: &str = "4.0.0";
const GATHERED: &[&str] =
    &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"];

static MEMORY: ServerCommand = ServerCommand {
    spec: Spec {
        name: "memory",
        summary: "Commands about memory.",
        since: SINCE,
        group: Group::Server,
        complexity: "Depends on subcommand.",
        arity: -2,
        ..Spec::BLANK
    },
    run: ServerRun::Container(&[
        &MEMORY_DOCTOR,
        &MEMORY_HELP,
        &MEMORY_MALLOC_STATS,
        &MEMORY_PURGE,
        &REPORT,
        &MEMORY_STATS,
        &MEMORY_USAGE,
    ]),
};

static MEMORY_USAGE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "usage",
        summary: "Tells how many bytes a key and its value take.",
        since: SINCE,
        group: Group::Server,
        complexity: "O(N) in the number of parts of the value",
        arity: -3,
        flags: Flags::READONLY,
        traits: Traits::LOOKS,
        keys: &[KeySpec::range(KeyFlags::RO, 2, 0, 1)],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("count").token("SAMPLES").optional(),
        ],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(usage),
};

/// Every part is counted, so SAMPLES is only looked at.
fn usage(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    cx.run_data(&internal::MEMORY_USAGE)
}

static MEMORY_STATS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "stats",
        summary: "Tells figures about the server's memory.",
        since: SINCE,
        group: Group::Server,
        arity: 2,
        tips: GATHERED,
        ..Spec::BLANK
    },
    run: ServerRun::Plain(stats),
};

/// A field of MEMORY STATS.
enum Figure {
    Bytes(u64),
    Difference(i64),
    Ratio(f64),
}

fn stats(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let databases = databases(&info::source(cx));
    let keys = databases.iter().map(|database| database.keys as u64).sum();
    let figures = figures(&Memory::now(&info::source(cx)), &Texts::now(cx.shared), keys);
    let reply = cx.reply();
    reply.map(figures.len() + databases.len());
    for (name, figure) in figures {
        // As in Redis, behind what the server itself takes.
        if name == "overhead.total" {
            databases.iter().for_each(|database| write_database(reply, database));
        }
        reply.bulk(name.as_bytes());
        match figure {
            Figure::Bytes(bytes) => reply.integer(bytes as i64),
            Figure::Difference(bytes) => reply.integer(bytes),
            Figure::Ratio(ratio) => reply.double(ratio),
        }
    }
    Ok(())
}

/// What a database takes beside its records: a place for each key, in the one table that knows the
/// expiries too.
fn write_database(reply: &mut Reply, database: &Counts) {
    reply.bulk(format!("db.{}", database.db).as_bytes());
    reply.map(2);
    reply.bulk(b"overhead.hashtable.main");
    reply.integer((database.keys * PLACE_BYTES) as i64);
    reply.bulk(b"overhead.hashtable.expires");
    reply.integer(0);
}

fn figures(memory: &Memory, texts: &Texts, keys: u64) -> Vec<(&'static str, Figure)> {
    use Figure::{Bytes, Difference, Ratio};
    let dataset = memory.dataset();
    let difference = |one: u64, other: u64| Difference(one as i64 - other as i64);
    vec![
        ("peak.allocated", Bytes(memory.used_peak)),
        ("total.allocated", Bytes(memory.used)),
        ("startup.allocated", Bytes(memory.used_at_start)),
        ("replication.backlog", Bytes(0)),
        ("clients.slaves", Bytes(0)),
        ("clients.normal", Bytes(memory.clients)),
        ("cluster.links", Bytes(0)),
        ("aof.buffer", Bytes(memory.log)),
        ("lua.caches", Bytes(texts.script_bytes)),
        ("functions.caches", Bytes(texts.library_bytes)),
        ("overhead.total", Bytes(memory.overhead())),
        ("keys.count", Bytes(keys)),
        ("keys.bytes-per-key", Bytes(dataset.checked_div(keys).unwrap_or_default())),
        ("dataset.bytes", Bytes(dataset)),
        ("dataset.percentage", Ratio(memory.dataset_percent())),
        ("peak.percentage", Ratio(ratio(memory.used, memory.used_peak) * 100.0)),
        ("allocator.allocated", Bytes(memory.used)),
        ("allocator.active", Bytes(memory.active)),
        ("allocator.resident", Bytes(memory.resident)),
        ("allocator-fragmentation.ratio", Ratio(ratio(memory.active, memory.used))),
        ("allocator-fragmentation.bytes", difference(memory.active, memory.used)),
        ("allocator-rss.ratio", Ratio(ratio(memory.resident, memory.active))),
        ("allocator-rss.bytes", difference(memory.resident, memory.active)),
        ("rss-overhead.ratio", Ratio(ratio(memory.resident, memory.resident))),
        ("rss-overhead.bytes", Bytes(0)),
        ("fragmentation", Ratio(ratio(memory.resident, memory.used))),
        ("fragmentation.bytes", difference(memory.resident, memory.used)),
    ]
}

static MEMORY_DOCTOR: ServerCommand = ServerCommand {
    spec: Spec {
        name: "doctor",
        summary: "Says whether memory looks well, and what to do if not.",
        since: SINCE,
        group: Group::Server,
        arity: 2,
        tips: GATHERED,
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        let text = diagnosis(&Memory::now(&info::source(cx)));
        write_text(cx.reply(), &text);
        Ok(())
    }),
};

/// Below this much data, ratios say nothing.
const DATA_TO_JUDGE: u64 = 5 << 20;
/// Resident beyond this multiple of the data is odd.
const RESIDENT_RATIO_MAX: f64 = 1.4;

fn diagnosis(memory: &Memory) -> String {
    let resident_ratio = ratio(memory.resident, memory.used);
    if memory.used < DATA_TO_JUDGE {
        "There is too little data to judge its memory. Come back with more.\n".into()
    } else if ratio(memory.used_peak, memory.used) > 1.5 {
        "There was once much more data than now. New data uses the memory that it left; the \
         process does not get smaller.\n"
            .into()
    } else if resident_ratio > RESIDENT_RATIO_MAX {
        format!(
            "The process takes {resident_ratio:.2} times the memory of its data. Many connections \
             with large buffers, or many deleted keys, are the usual causes: compare CLIENT LIST \
             and INFO memory.\n"
        )
    } else {
        "Nothing odd was found.\n".into()
    }
}

static MEMORY_PURGE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "purge",
        summary: "Asks the allocator to give memory back.",
        since: SINCE,
        group: Group::Server,
        complexity: "Depends on how much memory is allocated, could be slow",
        arity: 2,
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        slab::purge(0);
        heap::give_back();
        cx.shared.send_all(|| Message::GiveBack);
        cx.reply().ok();
        Ok(())
    }),
};

static MEMORY_MALLOC_STATS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "malloc-stats",
        summary: "Tells what the allocator of the data says of itself.",
        since: SINCE,
        group: Group::Server,
        complexity: "Depends on how much memory is allocated, could be slow",
        arity: 2,
        tips: GATHERED,
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        let (allocated, mapped) = (slab::allocated_bytes(), slab::mapped_bytes());
        let text = format!("slabs: allocated_bytes={allocated} mapped_bytes={mapped}\n");
        write_text(cx.reply(), &text);
        Ok(())
    }),
};

fn write_text(reply: &mut Reply, text: &str) {
    reply.verbatim(b"txt", text.as_bytes());
}

static MEMORY_HELP: ServerCommand = ServerCommand {
    spec: help_spec(SINCE, Group::Server),
    run: ServerRun::Plain(|cx| {
        write_help(&mut cx.connection.reply, "MEMORY", HELP);
        Ok(())
    }),
};

static HELP: &[&str] = &[
    "DOCTOR",
    "    Whether memory looks well.",
    "MALLOC-STATS",
    "    What the allocator says of itself.",
    "PURGE",
    "    Asks the allocator to give memory back.",
    "REPORT [BY prefix|type|ttl|encoding|slot] [SEPARATOR <separator>] [DEPTH <count>]",
    "       [TOP <count>]",
    "    What the keys of all databases take, by what they have in common.",
    "REPORT CANCEL",
    "    Gives up all reports that are being made.",
    "STATS",
    "    Figures about the server's memory.",
    "USAGE <key> [SAMPLES <count>]",
    "    Bytes that a key and its value take. All parts are counted, whatever SAMPLES says.",
];
