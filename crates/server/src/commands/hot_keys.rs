//! HOTKEYS: which keys are used most.
//!
//! START, STOP, GET and RESET are Redis 8.6's; LIST and SLOTS tell what `hotkeys-sample` has
//! counted.

use std::ops::RangeInclusive;

use kvasir_acl::call::Call;
use kvasir_acl::patterns::{Databases, Keys};
use kvasir_cluster::view::Place;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::spec::{Argument, Group, Spec, Traits};
use kvasir_reactor::limits::cpu_time;
use kvasir_resp::args::Args;
use kvasir_resp::number::parse_integer;
use kvasir_resp::reply::Reply;
use kvasir_structures::crc16;
use kvasir_structures::slot::SLOTS as SLOT_COUNT;

use crate::commands::{ANY_TIME_ADMIN, help_spec, is_word, write_help};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};
use crate::state::shared::Shared;
use crate::stats::hot_keys::Measure;
use crate::stats::hot_keys::sketch::NAME_MAX;
use crate::stats::hot_keys::tracking::{Tracked, Wish};

pub static COMMANDS: &[&ServerCommand] = &[&HOTKEYS];

const SINCE: &str = "8.6.0";
const COUNT: usize = 10;
const COUNT_MAX: i64 = 64;
/// More keys a list has no place for.
const LIST_MAX: i64 = 1024;

static HOTKEYS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "hotkeys",
        summary: "Commands about the keys that are used most.",
        since: SINCE,
        group: Group::Server,
        complexity: "Depends on subcommand.",
        arity: -2,
        ..Spec::BLANK
    },
    run: ServerRun::Container(&[&START, &STOP, &GET, &RESET, &LIST, &SLOTS, &HELP]),
};

/// Those of slots but for the first: a key is one.
const MEASURES: &[Argument] = SLOT_MEASURES.split_at(1).1;
const SLOT_MEASURES: &[Argument] = &[
    Argument::word("keys", "KEYS"),
    Argument::word("calls", "CALLS"),
    Argument::word("reads", "READS"),
    Argument::word("writes", "WRITES"),
    Argument::word("net", "NET"),
    Argument::word("cpu", "CPU"),
];

/// What all of them have in common.
const OWN: Spec = Spec {
    since: SINCE,
    group: Group::Server,
    arity: 2,
    flags: ANY_TIME_ADMIN,
    tips: &["nondeterministic_output"],
    ..Spec::BLANK
};

static START: ServerCommand = ServerCommand {
    spec: Spec {
        name: "start",
        summary: "Begins to track the keys that are used most.",
        arity: -2,
        arguments: &[
            Argument::block(
                "metrics",
                &[
                    Argument::integer("count").token("METRICS"),
                    Argument::word("cpu", "CPU").optional(),
                    Argument::word("net", "NET").optional(),
                    Argument::word("reads", "READS").optional(),
                    Argument::word("writes", "WRITES").optional(),
                ],
            ),
            Argument::integer("k").token("COUNT").optional(),
            Argument::integer("seconds").token("DURATION").optional(),
            Argument::integer("ratio").token("SAMPLE").optional(),
            Argument::block(
                "slots",
                &[Argument::integer("count").token("SLOTS"), Argument::integer("slot").multiple()],
            )
            .optional(),
        ],
        ..OWN
    },
    run: ServerRun::Plain(start),
};

static STOP: ServerCommand = ServerCommand {
    spec: Spec { name: "stop", summary: "Ends the tracking, and keeps what it has found.", ..OWN },
    run: ServerRun::Plain(|cx| {
        let now_ms = cx.core.env.now_ms;
        match cx.shared.hot_keys.end_tracking(now_ms) {
            true => cx.reply().ok(),
            false => cx.reply().null(),
        }
        Ok(())
    }),
};

static RESET: ServerCommand = ServerCommand {
    spec: Spec { name: "reset", summary: "Drops what was tracked.", ..OWN },
    run: ServerRun::Plain(|cx| {
        let now_ms = cx.core.env.now_ms;
        if !cx.shared.hot_keys.reset_tracking(now_ms) {
            return Err(Error::fixed(
                "ERR hotkey tracking session in progress, stop tracking first",
            ));
        }
        cx.reply().ok();
        Ok(())
    }),
};

static GET: ServerCommand = ServerCommand {
    spec: Spec {
        name: "get",
        summary: "Tells the keys that were tracked, the most used first.",
        complexity: "O(N) in the keys of all workers' sketches.",
        ..OWN
    },
    run: ServerRun::Plain(get),
};

static LIST: ServerCommand = ServerCommand {
    spec: Spec {
        name: "list",
        summary: "Tells the keys that are used most, as hotkeys-sample counts them.",
        complexity: "O(N) in the keys of all workers' sketches.",
        arity: -2,
        arguments: &[
            Argument::one_of("by", MEASURES).token("BY").optional(),
            Argument::integer("k").token("COUNT").optional(),
        ],
        ..OWN
    },
    run: ServerRun::Plain(list),
};

static SLOTS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "slots",
        summary: "Tells of each slot how many keys it has, or what hotkeys-sample counts of it.",
        complexity: "O(N) in slots, workers and databases.",
        arity: -2,
        traits: Traits::EVERY_DATABASE,
        arguments: &[Argument::one_of("by", SLOT_MEASURES).token("BY").optional()],
        ..OWN
    },
    run: ServerRun::Plain(slots),
};

static HELP: ServerCommand = ServerCommand {
    spec: help_spec(SINCE, Group::Server),
    run: ServerRun::Plain(|cx| {
        let lines = [
            "START METRICS <count> [CPU] [NET] [READS] [WRITES] [COUNT <k>] [DURATION <seconds>]",
            "      [SAMPLE <ratio>] [SLOTS <count> <slot> ...]",
            "    Begins to track the keys that are used most.",
            "STOP",
            "    Ends that, and keeps what was found.",
            "GET",
            "    Tells what was found.",
            "RESET",
            "    Drops what was found.",
            "LIST [BY CALLS|READS|WRITES|NET|CPU] [COUNT <k>]",
            "    The keys that are used most, as the option hotkeys-sample counts them.",
            "SLOTS [BY KEYS|CALLS|READS|WRITES|NET|CPU]",
            "    Of each slot its keys in all databases, or what hotkeys-sample counts for it.",
        ];
        write_help(cx.reply(), "HOTKEYS", &lines);
        Ok(())
    }),
};

fn start(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let (shared, now_ms) = (cx.shared, cx.core.env.now_ms);
    const UNDER_WAY: Error = Error::fixed("ERR hotkey tracking session already in progress");
    if shared.hot_keys.is_tracking(now_ms) {
        return Err(UNDER_WAY);
    }
    let wish = parse(shared, cx.args)?;
    if !shared.hot_keys.track(wish, now_ms, cpu_time()) {
        return Err(UNDER_WAY);
    }
    cx.reply().ok();
    Ok(())
}

/// A metric, if it is one: words that are none are passed over, as in Redis.
fn measure(word: &[u8]) -> Option<(Measure, &'static str)> {
    const WORDS: [(&str, Measure, &str); 4] = [
        ("cpu", Measure::Time, "ERR METRICS CPU defined more than once!"),
        ("net", Measure::Bytes, "ERR METRICS NET defined more than once!"),
        ("reads", Measure::Reads, "ERR METRICS READS defined more than once!"),
        ("writes", Measure::Writes, "ERR METRICS WRITES defined more than once!"),
    ];
    let found = WORDS.iter().find(|(name, ..)| is_word(word, name));
    found.map(|(_, measure, again)| (*measure, *again))
}

fn parse(shared: &Shared, args: Args<'_>) -> Result<Wish, Error> {
    if args.len() < 4 || !is_word(&args[2], "metrics") {
        return Err(Error::fixed("ERR METRICS parameter is required"));
    }
    let wrong_count = "ERR METRICS count must be > 0 and <= 4";
    let count = number(&args[3], 1..=Measure::ALL.len() as i64, wrong_count)?;
    let mut measures = Vec::new();
    let mut at = 4;
    while at < args.len() && at < 4 + count {
        if let Some((found, again)) = measure(&args[at]) {
            if measures.contains(&found) {
                return Err(Error::fixed(again));
            }
            measures.push(found);
        }
        at += 1;
    }
    if at < 4 + count {
        return Err(Error::fixed(
            "ERR METRICS count does not match number of metric types provided",
        ));
    }
    if measures.is_empty() {
        return Err(Error::fixed("ERR METRICS no valid metrics passed. Supported: CPU|NET"));
    }
    let mut wish = Wish { measures, count: COUNT, duration_ms: 0, sample: 1, slots: None };
    while at < args.len() {
        at = option(shared, args, at, &mut wish)?;
    }
    Ok(wish)
}

/// Reads an option and says where the next one is.
fn option(shared: &Shared, args: Args<'_>, at: usize, wish: &mut Wish) -> Result<usize, Error> {
    let (word, value) = (&args[at], args.get(at + 1).ok_or(Error::SYNTAX)?);
    if is_word(word, "count") {
        wish.count = number(value, 1..=COUNT_MAX, "ERR COUNT must be between 1 and 64")?;
    } else if is_word(word, "duration") {
        let wrong = "ERR DURATION must be between 1 and 1000000";
        wish.duration_ms = number(value, 1..=1_000_000, wrong)? as u64 * 1000;
    } else if is_word(word, "sample") {
        let ratio = number(value, 1..=i32::MAX.into(), "ERR SAMPLE ratio must be positive")?;
        wish.sample = u32::try_from(ratio).unwrap_or(u32::MAX);
    } else if is_word(word, "slots") {
        if wish.slots.is_some() && shared.cluster.is_some() {
            return Err(Error::fixed("ERR SLOTS parameter already specified"));
        }
        let slots = parse_slots(shared, args, at + 1)?;
        let next = at + 2 + slots.len();
        wish.slots = Some(slots);
        return Ok(next);
    } else {
        return Err(Error::SYNTAX);
    }
    Ok(at + 2)
}

/// A count and as many slots of this node, in order.
fn parse_slots(shared: &Shared, args: Args<'_>, at: usize) -> Result<Vec<u16>, Error> {
    if shared.cluster.is_none() {
        return Err(Error::fixed("ERR SLOTS parameter cannot be used in non-cluster mode"));
    }
    let wrong = "ERR SLOTS count must be between 1 and 16384";
    let count = number(&args[at], 1..=crc16::SLOTS.into(), wrong)?;
    if at + count >= args.len() {
        return Err(Error::fixed("ERR not enough slot numbers provided"));
    }
    let mut slots = Vec::new();
    for arg in at + 1..=at + count {
        let slot = parse_integer(&args[arg]).and_then(|slot| u16::try_from(slot).ok());
        let slot = slot.filter(|slot| *slot < crc16::SLOTS);
        let slot = slot.ok_or(Error::fixed("ERR Invalid or out of range slot"))?;
        if !is_mine(shared, slot) {
            return Err(Error::new(format!("ERR slot {slot} not handled by this node")));
        }
        slots.push(slot);
    }
    slots.sort_unstable();
    if slots.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Error::fixed("ERR duplicate slot number"));
    }
    Ok(slots)
}

/// Which keys of which databases the caller may know of; `None`: all.
fn readable(cx: &ServerCx<'_>, command: &str) -> Option<Vec<(Keys, Databases)>> {
    let (shared, access) = (cx.shared, &cx.connection.access);
    if access.is_free(&shared.acl) || access.is_unbound() {
        return None;
    }
    let entry = shared.table.find_original(command.as_bytes()).expect("it is called");
    let (db, databases) = (cx.connection.db, cx.core.config.databases);
    access.user().readable(&Call { entry, args: cx.args, db, databases })
}

fn is_told(readable: Option<&[(Keys, Databases)]>, db: DbIndex, name: &[u8]) -> bool {
    // Of a long name no more is known, so a pattern might mean what is behind that.
    let is_whole = name.len() < NAME_MAX;
    let covers = |(keys, databases): &(Keys, Databases)| {
        databases.cover(db.0.into())
            && (keys.cover_all_reads() || is_whole && keys.cover_read(name))
    };
    readable.is_none_or(|readable| readable.iter().any(covers))
}

fn is_mine(shared: &Shared, slot: u16) -> bool {
    let Some(node) = &shared.cluster else { return true };
    matches!(node.look().place(slot), Place::Mine | Place::Migrating(_))
}

fn number(text: &[u8], wanted: RangeInclusive<i64>, wrong: &'static str) -> Result<usize, Error> {
    let number = parse_integer(text).filter(|number| wanted.contains(number));
    let number = number.and_then(|number| usize::try_from(number).ok());
    number.ok_or(Error::fixed(wrong))
}

fn get(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let (shared, now_ms) = (cx.shared, cx.core.env.now_ms);
    let readable = readable(cx, "hotkeys|get");
    match shared
        .hot_keys
        .tracked(&|db: DbIndex, name: &[u8]| is_told(readable.as_deref(), db, name))
    {
        None => cx.reply().null(),
        Some(tracked) => {
            let slots = match &tracked.tracking.wish.slots {
                Some(slots) => slots.clone(),
                None => (0..crc16::SLOTS).filter(|slot| is_mine(shared, *slot)).collect(),
            };
            // An array of maps, so that those of several nodes are put together easily.
            cx.reply().array(1);
            write(cx.reply(), &tracked, &slots, now_ms);
        }
    }
    Ok(())
}

/// Fields, the lists of keys aside.
fn figures(tracked: &Tracked, now_ms: u64) -> Vec<(&'static str, u64)> {
    let Tracked { tracking, totals, .. } = tracked;
    let wish = &tracking.wish;
    let (has_slots, has_sample) = (wish.slots.is_some(), wish.sample > 1);
    let mut all = Vec::new();
    let mut add = |is_told: bool, name, value| {
        if is_told {
            all.push((name, value));
        }
    };
    let us = |nanos: u64| nanos / 1000;
    let both = has_slots && has_sample;
    add(both, "sampled-commands-selected-slots-us", us(totals.sampled.nanos));
    add(has_slots, "all-commands-selected-slots-us", us(totals.selected.nanos));
    add(true, "all-commands-all-slots-us", us(totals.all.nanos));
    add(both, "net-bytes-sampled-commands-selected-slots", totals.sampled.bytes);
    add(has_slots, "net-bytes-all-commands-selected-slots", totals.selected.bytes);
    add(true, "net-bytes-all-commands-all-slots", totals.all.bytes);
    add(true, "collection-start-time-unix-ms", tracking.started_ms);
    add(true, "collection-duration-ms", tracking.took_ms(now_ms));
    let (has_time, before, now) =
        (wish.measures.contains(&Measure::Time), tracking.cpu_before, cpu_time());
    let ms = |now: std::time::Duration, before| {
        u64::try_from(now.saturating_sub(before).as_millis()).unwrap_or(u64::MAX)
    };
    add(has_time, "total-cpu-time-user-ms", ms(now.user, before.user));
    add(has_time, "total-cpu-time-sys-ms", ms(now.system, before.system));
    add(wish.measures.contains(&Measure::Bytes), "total-net-bytes", totals.sampled.bytes);
    all
}

fn write(reply: &mut Reply, tracked: &Tracked, slots: &[u16], now_ms: u64) {
    let (wish, figures) = (&tracked.tracking.wish, figures(tracked, now_ms));
    reply.map(3 + figures.len() + wish.measures.len());
    reply.bulk(b"tracking-active");
    reply.integer(tracked.tracking.is_active(now_ms).into());
    reply.bulk(b"sample-ratio");
    reply.integer(wish.sample.into());
    reply.bulk(b"selected-slots");
    write_slots(reply, slots);
    for (name, value) in figures {
        reply.bulk(name.as_bytes());
        reply.integer(value as i64);
    }
    let lists = [
        (Measure::Time, "by-cpu-time-us"),
        (Measure::Bytes, "by-net-bytes"),
        (Measure::Reads, "by-reads"),
        (Measure::Writes, "by-writes"),
    ];
    for (measure, name) in lists {
        let Some(at) = wish.measures.iter().position(|one| *one == measure) else { continue };
        reply.bulk(name.as_bytes());
        reply.array(2 * tracked.keys[at].len());
        for held in &tracked.keys[at] {
            reply.bulk(&held.name);
            let weight = held.certain();
            // What took any time has taken a microsecond.
            let is_time = measure == Measure::Time;
            reply.integer(if is_time { weight.div_ceil(1000) } else { weight } as i64);
        }
    }
}

/// Ranges of slots that are in order: of two numbers, or of one.
fn write_slots(reply: &mut Reply, slots: &[u16]) {
    let ranges: Vec<&[u16]> = slots.chunk_by(|one, next| one + 1 == *next).collect();
    reply.array(ranges.len());
    for range in ranges {
        let (first, last) = (range[0], range[range.len() - 1]);
        reply.array(if range.len() > 1 { 2 } else { 1 });
        reply.integer(first.into());
        if range.len() > 1 {
            reply.integer(last.into());
        }
    }
}

/// What keys and slots are weighed by, of a word behind BY.
fn measures(word: &[u8]) -> Result<&'static [Measure], Error> {
    Ok(match word.to_ascii_lowercase().as_slice() {
        b"calls" => &[Measure::Reads, Measure::Writes],
        b"reads" => &[Measure::Reads],
        b"writes" => &[Measure::Writes],
        b"net" => &[Measure::Bytes],
        b"cpu" => &[Measure::Time],
        _ => return Err(Error::SYNTAX),
    })
}

/// Without a sample nothing was counted: that is no answer of zeros.
fn check_sample(shared: &Shared) -> Result<(), Error> {
    match shared.hot_keys.every() {
        0 => Err(Error::fixed("ERR hotkeys-sample is 0: no keys are counted")),
        _ => Ok(()),
    }
}

fn slots(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let words = cx.args.from(2);
    let by = match words.len() {
        0 => b"keys",
        2 if is_word(&words[0], "by") => &words[1],
        _ => return Err(Error::SYNTAX),
    };
    let sums = if is_word(by, "keys") {
        keys_by_slot(cx)
    } else {
        let by = measures(by)?;
        check_sample(cx.shared)?;
        let mut sums = cx.shared.hot_keys.slots(by, cx.core.env.now_ms);
        if by == [Measure::Time] {
            sums.iter_mut().for_each(|nanos| *nanos = nanos.div_ceil(1000));
        }
        sums
    };
    let reply = cx.reply();
    reply.array(sums.len());
    sums.iter().for_each(|sum| reply.integer(*sum as i64));
    Ok(())
}

fn keys_by_slot(cx: &ServerCx<'_>) -> Vec<u64> {
    let (keyspace, mut sums) = (&cx.shared.keyspace, vec![0; SLOT_COUNT]);
    let used = keyspace.indexes().map(|db| keyspace.database(db, cx.pass()));
    for database in used.filter(|database| database.was_used()) {
        for (at, slot) in (0..).zip(database.slots()) {
            if !keyspace.hidden.has(at) {
                sums[usize::from(at)] += slot.len() as u64;
            }
        }
    }
    sums
}

fn list(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let (hot_keys, now_ms) = (&cx.shared.hot_keys, cx.core.env.now_ms);
    let (mut by, mut count) = (&[Measure::Reads, Measure::Writes][..], COUNT);
    let words = cx.args.from(2);
    for at in (0..words.len()).step_by(2) {
        let (word, value) = (&words[at], words.get(at + 1).ok_or(Error::SYNTAX)?);
        if is_word(word, "count") {
            count = number(value, 1..=LIST_MAX, "ERR COUNT must be between 1 and 1024")?;
        } else if is_word(word, "by") {
            by = measures(value)?;
        } else {
            return Err(Error::SYNTAX);
        }
    }
    check_sample(cx.shared)?;
    let readable = readable(cx, "hotkeys|list");
    let is_told = |db: DbIndex, name: &[u8]| is_told(readable.as_deref(), db, name);
    let hottest = hot_keys.hottest(by, count, now_ms, &is_told);
    cx.reply().array(hottest.len());
    for hot in hottest {
        let [reads, writes, bytes, nanos] = hot.weights;
        let reply = cx.reply();
        reply.map(6);
        reply.bulk(b"key");
        reply.bulk(&hot.name);
        let figures = [
            ("db", hot.db.0.into()),
            ("reads", reads),
            ("writes", writes),
            ("net-bytes", bytes),
            ("cpu-us", nanos.div_ceil(1000)),
        ];
        for (name, value) in figures {
            reply.bulk(name.as_bytes());
            reply.integer(value as i64);
        }
    }
    Ok(())
}
