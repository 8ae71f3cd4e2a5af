//! DEBUG: for tests and for people who look inside.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use kvasir_config::kind::Kind;
use kvasir_keyspace::commands::internal;
use kvasir_keyspace::digest;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::logging::log_changes;
use kvasir_keyspace::spec::{Flags, Group, Spec};
use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::number::parse_integer;
use kvasir_table::Handler;

use crate::commands::config::rewrite_all;
use crate::commands::{
    ANY_TIME_ADMIN, cluster_debug, debug_protocol, is_word, saving, unknown_word, write_help,
};
use crate::info::crash;
use crate::loading::again;
use crate::log::warning;
use crate::run::server::{ServerCommand, ServerCx, ServerRun};
use crate::state::debugging::Debugging;
use crate::workers::Message;

pub static COMMANDS: &[&ServerCommand] = &[&DEBUG];

/// One command with words, not a container, as in Redis. The gate is closed for all of them: SLEEP
/// wants it, and nobody hurries a debugger.
static DEBUG: ServerCommand = ServerCommand {
    spec: Spec {
        name: "debug",
        summary: "Looks inside the server, or makes it behave oddly, for tests.",
        group: Group::Server,
        complexity: "Depends on subcommand.",
        arity: -2,
        flags: ANY_TIME_ADMIN.union(Flags::PROTECTED),
        is_for_system: true,
        ..Spec::BLANK
    },
    run: ServerRun::SessionIf(loads_log, again::run, debug),
};

/// It runs the calls of the log.
fn loads_log(args: Args<'_>) -> bool {
    args.len() == 2 && is_word(&args[1], "loadaof")
}

fn debug(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let args = cx.args;
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"help", 2) => write_help(cx.reply(), "DEBUG", HELP),
        (b"object", 3) => return cx.run_data(&internal::DEBUG_OBJECT),
        (b"digest", 2) => digest(cx),
        (b"digest-value", _) => return cx.run_data(&internal::DEBUG_DIGEST_VALUE),
        (b"listpack", 3) => return cx.run_data(&internal::DEBUG_LISTPACK),
        (b"quicklist", 3 | 4) => return cx.run_data(&internal::DEBUG_QUICKLIST),
        (b"sdslen", 3) => return cx.run_data(&internal::DEBUG_SDSLEN),
        (b"htstats-key", 3 | 4) => return cx.run_data(&internal::DEBUG_HTSTATS_KEY),
        (b"htstats", 3 | 4) => return table_stats(cx),
        (b"populate", 3..=5) => return populate(cx),
        (b"protocol", 3) => return debug_protocol::reply(cx),
        (b"error", 3) => error(cx),
        (b"log", 3) => log(cx),
        (b"sleep", 3) => sleep(cx),
        (b"set-active-expire", 3) => turn(cx, |debugging| &debugging.expires_actively),
        (b"pause-cron", 3) => turn(cx, |debugging| &debugging.pauses_cron),
        (b"set-disable-deny-scripts", 3) => turn(cx, |debugging| &debugging.frees_scripts),
        (b"set-skip-checksum-validation", 3) => turn(cx, |debugging| &debugging.skips_checksums),
        (b"clusterlink", 5) => return cluster_debug::kill_link(cx),
        (b"drop-cluster-packet-filter", 3) => return cluster_debug::drop_packets(cx),
        (b"close-cluster-link-on-packet-drop", 3) => return cluster_debug::close_on_drop(cx),
        (b"dict-resizing", 3) => cx.reply().ok(),
        (b"aof-flush-sleep", 3) => aof_flush_sleep(cx),
        (b"quicklist-packed-threshold", 3) => return packed_threshold(cx),
        (b"replybuffer", 4) => return reply_buffer(cx),
        (b"config-rewrite-force-all", 2) => return rewrite_all(cx),
        (b"change-repl-id", 2) => return change_replication_id(cx),
        (b"replicate", 3..) => replicate(cx),
        (b"reload", _) => return saving::reload(cx),
        (b"loadaof", 2) => return Err(NOT_FROM_SCRIPTS),
        (b"panic", 2) => panic!("DEBUG PANIC was asked for"),
        (b"assert", 2) => crash::fatal("DEBUG ASSERT was asked for"),
        (b"oom", 2) => crash::fatal("out of memory, as DEBUG OOM wants it"),
        (b"segfault", 2) => kvasir_reactor::signal::die_of_segfault(),
        _ => return Err(unknown_word("DEBUG", &args[1])),
    }
    Ok(())
}

const NOT_FROM_SCRIPTS: Error = Error::fixed("ERR DEBUG LOADAOF is not allowed from script");

static HELP: &[&str] = &[
    "AOF-FLUSH-SLEEP <microseconds>",
    "    Has the append-only file written so much later.",
    "ASSERT, OOM, PANIC, SEGFAULT",
    "    Ends the server as such a failure would, with a crash report.",
    "CHANGE-REPL-ID",
    "    Gives the data another replication id.",
    "CLUSTERLINK KILL <to|from|all> <node-id>",
    "    Closes links to a node, or from it.",
    "CLOSE-CLUSTER-LINK-ON-PACKET-DROP <0|1>",
    "    Whether a link is closed over which a packet came that is not looked at.",
    "CONFIG-REWRITE-FORCE-ALL",
    "    As CONFIG REWRITE, but with all options, whether they have their default or not.",
    "DICT-RESIZING <0|1>",
    "    Accepted: tables grow a bucket at a time.",
    "DIGEST",
    "    A fingerprint of all data.",
    "DIGEST-VALUE <key> [<key> ...]",
    "    A fingerprint of each value.",
    "DROP-CLUSTER-PACKET-FILTER <packet-type>",
    "    Has packets of this type not looked at; -1: none, -2: all.",
    "ERROR <message>",
    "    Replies this error.",
    "HTSTATS <db>",
    "    How the table of a database is filled.",
    "HTSTATS-KEY <key>",
    "    How the table of a large set, hash or sorted set is filled.",
    "LISTPACK <key>",
    "    The elements of a value that is a listpack.",
    "LOADAOF",
    "    Forgets the data and loads it from the append-only file.",
    "LOG <message>",
    "    Writes a line to the log.",
    "OBJECT <key>",
    "    What is known of a key's value inside.",
    "PAUSE-CRON <0|1>",
    "    Whether nothing is done by the clock: no expired keys are deleted in the background.",
    "POPULATE <count> [<prefix>] [<size>]",
    "    Creates keys of strings, named key:0 and so on, where there are none yet.",
    "PROTOCOL <type>",
    "    Replies a value of a type: string, integer, double, bignum, null, array, set, map, attrib,",
    "    push, verbatim, true, false.",
    "QUICKLIST <key>",
    "    Figures of a list that is no listpack.",
    "QUICKLIST-PACKED-THRESHOLD <size>",
    "    Accepted: an element that is too large for a node stands alone in any case.",
    "RELOAD [MERGE] [NOFLUSH] [NOSAVE]",
    "    Saves the data, forgets it, and loads it again.",
    "REPLICATE <command> [<argument> ...]",
    "    Sends replicas a call that is not made here.",
    "REPLYBUFFER <PEAK-RESET-TIME <NEVER|RESET|time>|RESIZING <0|1>>",
    "    Accepted: an idle client has no buffer.",
    "SDSLEN <key>",
    "    Lengths of a key and of its string.",
    "SET-ACTIVE-EXPIRE <0|1>",
    "    Whether expired keys are deleted before somebody asks for them.",
    "SET-DISABLE-DENY-SCRIPTS <0|1>",
    "    Whether scripts may make calls that they must not make otherwise.",
    "SET-SKIP-CHECKSUM-VALIDATION <0|1>",
    "    Whether files, and what RESTORE gets, are taken whatever their checksums say.",
    "SLEEP <seconds>",
    "    Stops the whole server for so long. Decimals allowed.",
];

fn digest(cx: &mut ServerCx<'_>) {
    let digest = digest::of_data_set(&cx.shared.keyspace, cx.pass(), &cx.core.env);
    cx.reply().simple(&digest.to_string());
}

/// The whole text is the error, code and all; a line break would end it.
fn error(cx: &mut ServerCx<'_>) {
    let is_break = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let text: Vec<u8> =
        cx.args[2].iter().map(|byte| if is_break(byte) { b' ' } else { *byte }).collect();
    cx.reply().error_bytes(&text);
}

fn log(cx: &mut ServerCx<'_>) {
    warning!("DEBUG LOG: {}", String::from_utf8_lossy(&cx.args[2]));
    cx.reply().ok();
}

/// Of each slot in use; what there is to say is how many keys share one.
fn table_stats(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let db = parse_integer(&cx.args[2]).ok_or(Error::NOT_INTEGER)?;
    let out_of_range = Error::fixed("ERR Out of range database");
    let db = cx.shared.keyspace.db_index(db).ok_or(out_of_range)?;
    let database = cx.shared.keyspace.database(db, cx.pass());
    let (mut slots, mut longest, mut expires) = (0, 0, 0);
    for slot in database.slots().iter().filter(|slot| !slot.is_empty()) {
        let slot = slot.lock(cx.pass());
        slots += 1;
        longest = longest.max(slot.len());
        expires += slot.expiring_len();
    }
    let text = format!(
        "[Dictionary HT]\n number of elements: {}\n different slots: {slots}\n max keys of a slot: \
         {longest}\n[Expires HT]\n number of elements: {expires}\n",
        database.len()
    );
    cx.reply().verbatim(b"txt", text.as_bytes());
    Ok(())
}

/// Strings `value:N`, cut or filled with zero bytes to the size that was asked for. As in Redis
/// neither replicas nor the append-only file hear of them.
fn populate(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let logs = std::mem::replace(&mut cx.core.env.logs, false);
    let populated = add_strings(cx);
    cx.core.env.logs = logs;
    populated?;
    cx.reply().ok();
    Ok(())
}

fn add_strings(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let args = cx.args;
    let count = positive(&args[2])?;
    let prefix = args.get(3).unwrap_or(b"key");
    let size = args.get(4).map(positive).transpose()?.filter(|size| *size > 0);
    let Some(Handler::Data(setnx)) = cx.shared.table.find(b"setnx").map(|entry| entry.handler)
    else {
        unreachable!("SETNX is a data command");
    };
    let mark = cx.connection.reply.mark();
    for number in 0..count {
        let mut value = format!("value:{number}").into_bytes();
        value.resize(size.unwrap_or(value.len()), 0);
        let key = [prefix, format!(":{number}").as_bytes()].concat();
        let call: ArgsBuf = [&b"SETNX"[..], &key, &value].into_iter().collect();
        cx.run_data_on(setnx, call.as_args())?;
        cx.connection.reply.truncate(mark);
    }
    Ok(())
}

fn positive(word: &[u8]) -> Result<usize, Error> {
    let number = parse_integer(word).and_then(|number| usize::try_from(number).ok());
    number.ok_or(Error::fixed("ERR value is out of range, must be positive"))
}

/// A limit for which there is no use here: see HELP.
fn packed_threshold(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let size = Kind::Memory { min: 0, max: 4 << 30 }.parse(&[cx.args[2].to_vec()]);
    if size.is_err() {
        return Err(Error::fixed(
            "ERR argument must be a memory value bigger than 1 and smaller than 4gb",
        ));
    }
    cx.reply().ok();
    Ok(())
}

/// A setting for which there is no use here: see HELP.
fn reply_buffer(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let value = &cx.args[3];
    match cx.args[2].to_ascii_lowercase().as_slice() {
        b"peak-reset-time" if is_word(value, "never") || is_word(value, "reset") => {}
        b"peak-reset-time" | b"resizing" => {
            parse_integer(value).ok_or(Error::NOT_INTEGER)?;
        }
        _ => return Err(unknown_word("DEBUG", &cx.args[1])),
    }
    cx.reply().ok();
    Ok(())
}

fn change_replication_id(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    cx.shared.replication.begin_history(cx.shared.keyspace.log.end());
    cx.reply().ok();
    Ok(())
}

fn replicate(cx: &mut ServerCx<'_>) {
    let core = &mut *cx.core;
    if core.env.logs {
        core.tally.entry.push(cx.connection.db, cx.args.from(2).iter());
        let pass = cx.inside.pass().expect("DEBUG runs inside the gate");
        log_changes(&cx.shared.keyspace, pass, [], &core.env, &mut core.tally);
    }
    cx.reply().ok();
}

/// The gate is closed, so everyone waits; and so do other nodes and the primary.
fn sleep(cx: &mut ServerCx<'_>) {
    let text = std::str::from_utf8(&cx.args[2]).unwrap_or_default();
    let seconds = text.trim().parse::<f64>().unwrap_or(0.0);
    let _asleep = cx.shared.debugging.fall_asleep();
    std::thread::sleep(Duration::try_from_secs_f64(seconds).unwrap_or_default());
    cx.reply().ok();
}

/// Turns something on or off. Workers are woken: they may sleep without a clock.
fn turn(cx: &mut ServerCx<'_>, switch: fn(&Debugging) -> &AtomicBool) {
    let is_on = parse_integer(&cx.args[2]).is_some_and(|number| number != 0);
    switch(&cx.shared.debugging).store(is_on, Relaxed);
    cx.shared.send_all(|| Message::Look);
    cx.reply().ok();
}

fn aof_flush_sleep(cx: &mut ServerCx<'_>) {
    let sleep_us = parse_integer(&cx.args[2]).and_then(|number| u64::try_from(number).ok());
    cx.shared.aof.sleep_us.store(sleep_us.unwrap_or(0), Relaxed);
    cx.reply().ok();
}
