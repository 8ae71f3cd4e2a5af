//! Looking at a stream, its groups and its consumers: XINFO.

use kvasir_resp::args::Args;
use kvasir_resp::reply::Reply;
use kvasir_structures::stream::{Consumer, Entry, Group as ConsumerGroup, Stream, StreamId};

use crate::command::{Command, Cx, Roam, Run};
use crate::commands::options::integer;
use crate::commands::stream::group::no_group;
use crate::commands::stream::id;
use crate::effect::Effect;
use crate::error::Error;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::stream_value::{self, Held};

pub static COMMANDS: &[&Command] = &[&XINFO];

/// How many entries FULL lists where no COUNT is given.
const FULL_COUNT: i64 = 10;

static XINFO: Command = Command {
    spec: Spec {
        name: "xinfo",
        summary: "Tells about streams, groups and consumers.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "That of the subcommand.",
        arity: -2,
        ..Spec::BLANK
    },
    run: Run::Container(&[&CONSUMERS, &GROUPS, &HELP, &STREAM]),
};

const KEY: KeySpec = KeySpec::range(KeyFlags::RO.union(KeyFlags::ACCESS), 2, 0, 1);

static STREAM: Command = Command {
    spec: Spec {
        name: "stream",
        summary: "Tells about a stream; with FULL, also about all that belongs to it.",
        since: "5.0.0",
        group: Group::Stream,
        arity: -3,
        flags: Flags::READONLY,
        keys: &[KEY],
        history: &[
            ("6.0.0", "Knows `FULL`."),
            (
                "7.0.0",
                "Has `max-deleted-entry-id`, `entries-added`, `recorded-first-entry-id`, \
                 `entries-read` and `lag`.",
            ),
            ("7.2.0", "Has `active-time`; `seen-time` is that of the last attempt to read."),
        ],
        arguments: &[
            Argument::key("key", 0),
            Argument::block("full", &[Argument::integer("count").token("COUNT").optional()])
                .token("FULL")
                .optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(stream),
};

fn stream(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let stream = stream_value::read(&mut cx.view, 0)?.ok_or(Error::NO_KEY)?;
    let full_count = full_count(cx.args)?;
    let reply = &mut *cx.reply;
    reply.map(if full_count.is_some() { 9 } else { 10 });
    field(reply, "length").integer(stream.len() as i64);
    // Redis's nodes are leaves of a radix tree, which has a root as well.
    let nodes = stream.node_count() as i64;
    field(reply, "radix-tree-keys").integer(nodes);
    field(reply, "radix-tree-nodes").integer(nodes + 1);
    id::write_id(field(reply, "last-generated-id"), stream.last_id());
    id::write_id(field(reply, "max-deleted-entry-id"), stream.max_deleted_id());
    field(reply, "entries-added").integer(stream.entries_added() as i64);
    id::write_id(field(reply, "recorded-first-entry-id"), stream.first_id());
    match full_count {
        Some(count) => full(reply, &stream, count),
        None => {
            field(reply, "groups").integer(stream.groups().len() as i64);
            edge(field(reply, "first-entry"), stream.first());
            edge(field(reply, "last-entry"), stream.last());
        }
    }
    Ok(Effect::None)
}

/// How many entries FULL is to list; `None` without FULL.
fn full_count(args: Args<'_>) -> Result<Option<usize>, Error> {
    let is = |index: usize, word: &[u8]| {
        args.get(index).is_some_and(|arg| arg.eq_ignore_ascii_case(word))
    };
    let count = match args.len() {
        3 => return Ok(None),
        4 if is(3, b"full") => FULL_COUNT,
        6 if is(3, b"full") && is(4, b"count") => match integer(&args[5])? {
            ..0 => FULL_COUNT,
            0 => i64::MAX,
            count => count,
        },
        _ => {
            return Err(Error::quoting(
                "ERR unknown subcommand or wrong number of arguments for '",
                &args[1],
                "'. Try XINFO HELP.",
            ));
        }
    };
    Ok(Some(count as usize))
}

fn full(reply: &mut Reply, stream: &Stream, count: usize) {
    let array = field(reply, "entries").deferred_array();
    let entries = stream.range(StreamId::MIN, StreamId::MAX).take(count);
    let written = entries.map(|entry| id::write_entry(reply, entry)).count();
    reply.set_count(array, written);
    field(reply, "groups").array(stream.groups().len());
    for (name, group) in stream.groups() {
        reply.map(7);
        field(reply, "name").bulk(name);
        progress(reply, stream, group);
        field(reply, "pel-count").integer(group.pending_len() as i64);
        let pending = group.pending_range(StreamId::MIN, StreamId::MAX).take(count);
        field(reply, "pending").array(group.pending_len().min(count));
        for (id, pending) in pending {
            reply.array(4);
            id::write_id(reply, id);
            reply.bulk(group.name_of(pending.consumer));
            reply.integer(pending.delivered_ms as i64);
            reply.integer(pending.deliveries as i64);
        }
        field(reply, "consumers").array(group.consumers().len());
        group.consumers().for_each(|consumer| full_consumer(reply, group, consumer, count));
    }
}

/// How far a group has read.
fn progress(reply: &mut Reply, stream: &Stream, group: &ConsumerGroup) {
    id::write_id(field(reply, "last-delivered-id"), group.last_id);
    count_or_null(field(reply, "entries-read"), group.entries_read);
    count_or_null(field(reply, "lag"), stream.lag(group));
}

fn full_consumer(reply: &mut Reply, group: &ConsumerGroup, consumer: &Consumer, count: usize) {
    reply.map(5);
    field(reply, "name").bulk(consumer.name());
    field(reply, "seen-time").integer(consumer.seen_ms as i64);
    field(reply, "active-time").integer(consumer.active_ms.map_or(-1, |ms| ms as i64));
    field(reply, "pel-count").integer(consumer.pending_len() as i64);
    field(reply, "pending").array(consumer.pending_len().min(count));
    for id in consumer.pending().take(count) {
        let pending = group.pending(id).expect("what is pending for a consumer is so in its group");
        reply.array(3);
        id::write_id(reply, id);
        reply.integer(pending.delivered_ms as i64);
        reply.integer(pending.deliveries as i64);
    }
}

fn edge(reply: &mut Reply, entry: Option<Entry<'_>>) {
    match entry {
        Some(entry) => id::write_entry(reply, entry),
        None => reply.null(),
    }
}

fn count_or_null(reply: &mut Reply, count: Option<u64>) {
    match count {
        Some(count) => reply.integer(count as i64),
        None => reply.null(),
    }
}

/// Writes a field's name; its value follows.
fn field<'r>(reply: &'r mut Reply, name: &str) -> &'r mut Reply {
    reply.bulk(name.as_bytes());
    reply
}

static GROUPS: Command = Command {
    spec: Spec {
        name: "groups",
        summary: "Tells about the groups of a stream.",
        since: "5.0.0",
        group: Group::Stream,
        arity: 3,
        flags: Flags::READONLY,
        keys: &[KEY],
        history: &[("7.0.0", "Has `entries-read` and `lag`.")],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BLANK
    },
    run: Run::Keys(groups),
};

fn groups(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let stream = stream_value::read(&mut cx.view, 0)?.ok_or(Error::NO_KEY)?;
    let reply = &mut *cx.reply;
    reply.array(stream.groups().len());
    for (name, group) in stream.groups() {
        reply.map(6);
        field(reply, "name").bulk(name);
        field(reply, "consumers").integer(group.consumers().len() as i64);
        field(reply, "pending").integer(group.pending_len() as i64);
        progress(reply, &stream, group);
    }
    Ok(Effect::None)
}

static CONSUMERS: Command = Command {
    spec: Spec {
        name: "consumers",
        summary: "Tells about the consumers of a group.",
        since: "5.0.0",
        group: Group::Stream,
        arity: 4,
        flags: Flags::READONLY,
        keys: &[KEY],
        tips: &["nondeterministic_output"],
        history: &[("7.2.0", "Has `inactive`; `idle` counts from the last attempt to read.")],
        arguments: &[Argument::key("key", 0), Argument::string("groupname")],
        ..Spec::BLANK
    },
    run: Run::Keys(consumers),
};

fn consumers(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let args = cx.args;
    let (key, now_ms) = (cx.view.key(0), cx.view.env.now_ms);
    let stream: Held<'_> = stream_value::read(&mut cx.view, 0)?.ok_or(Error::NO_KEY)?;
    let group = stream.group(&args[3]).ok_or_else(|| no_group(key, &args[3]))?;
    let since = |ms: u64| now_ms.saturating_sub(ms) as i64;
    let reply = &mut *cx.reply;
    reply.array(group.consumers().len());
    for consumer in group.consumers() {
        reply.map(4);
        field(reply, "name").bulk(consumer.name());
        field(reply, "pending").integer(consumer.pending_len() as i64);
        field(reply, "idle").integer(since(consumer.seen_ms));
        field(reply, "inactive").integer(consumer.active_ms.map_or(-1, since));
    }
    Ok(Effect::None)
}

static HELP: Command = Command {
    spec: Spec {
        name: "help",
        summary: "Explains the subcommands.",
        since: "5.0.0",
        group: Group::Stream,
        arity: 2,
        flags: Flags::LOADING.union(Flags::STALE),
        ..Spec::BLANK
    },
    run: Run::Roam(help),
};

fn help(cx: &mut Roam<'_>) -> Result<Effect, Error> {
    const LINES: &[&str] = &[
        "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CONSUMERS <key> <groupname>",
        "    The consumers of a group.",
        "GROUPS <key>",
        "    The groups of a stream.",
        "STREAM <key> [FULL [COUNT <count>]]",
        "    The stream; with FULL, its entries, groups and consumers too.",
        "HELP",
        "    Prints this help.",
    ];
    cx.reply.array(LINES.len());
    LINES.iter().for_each(|line| cx.reply.simple(line));
    Ok(Effect::None)
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check3, split};

    #[test]
    fn a_stream() {
        check(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XINFO STREAM s; XDEL s 2-1; XINFO STREAM s; XDEL s \
             1-1; XINFO STREAM s; XGROUP CREATE e g 0 MKSTREAM; XINFO STREAM e",
            "$1-1; $2-1; [$length :2 $radix-tree-keys :1 $radix-tree-nodes :2 $last-generated-id \
             $2-1 $max-deleted-entry-id $0-0 $entries-added :2 $recorded-first-entry-id $1-1 \
             $groups :0 $first-entry [$1-1 [$a $1]] $last-entry [$2-1 [$b $2]]]; :1; [$length :1 \
             $radix-tree-keys :1 $radix-tree-nodes :2 $last-generated-id $2-1 \
             $max-deleted-entry-id $2-1 $entries-added :2 $recorded-first-entry-id $1-1 $groups \
             :0 $first-entry [$1-1 [$a $1]] $last-entry [$1-1 [$a $1]]]; :1; [$length :0 \
             $radix-tree-keys :0 $radix-tree-nodes :1 $last-generated-id $2-1 \
             $max-deleted-entry-id $2-1 $entries-added :2 $recorded-first-entry-id $0-0 $groups \
             :0 $first-entry _ $last-entry _]; +OK; [$length :0 $radix-tree-keys :0 \
             $radix-tree-nodes :1 $last-generated-id $0-0 $max-deleted-entry-id $0-0 \
             $entries-added :0 $recorded-first-entry-id $0-0 $groups :1 $first-entry _ \
             $last-entry _]",
        );
        check3(
            "XADD s 1-1 a 1; XGROUP CREATE s g 0; XINFO STREAM s; XINFO GROUPS s; XINFO STREAM s \
             FULL",
            "$1-1; +OK; {$length :1 $radix-tree-keys :1 $radix-tree-nodes :2 $last-generated-id \
             $1-1 $max-deleted-entry-id $0-0 $entries-added :1 $recorded-first-entry-id $1-1 \
             $groups :1 $first-entry [$1-1 [$a $1]] $last-entry [$1-1 [$a $1]]}; [{$name $g \
             $consumers :0 $pending :0 $last-delivered-id $0-0 $entries-read _ $lag :1}]; \
             {$length :1 $radix-tree-keys :1 $radix-tree-nodes :2 $last-generated-id $1-1 \
             $max-deleted-entry-id $0-0 $entries-added :1 $recorded-first-entry-id $1-1 $entries \
             [[$1-1 [$a $1]]] $groups [{$name $g $last-delivered-id $0-0 $entries-read _ $lag :1 \
             $pel-count :0 $pending [] $consumers []}]}",
        );
        check(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XTRIM s MAXLEN 1; XINFO STREAM s; XSETID s 9-9 \
             ENTRIESADDED 100 MAXDELETEDID 9-8; XINFO STREAM s",
            "$1-1; $2-1; :1; [$length :1 $radix-tree-keys :1 $radix-tree-nodes :2 \
             $last-generated-id $2-1 $max-deleted-entry-id $0-0 $entries-added :2 \
             $recorded-first-entry-id $2-1 $groups :0 $first-entry [$2-1 [$b $2]] $last-entry \
             [$2-1 [$b $2]]]; +OK; [$length :1 $radix-tree-keys :1 $radix-tree-nodes :2 \
             $last-generated-id $9-9 $max-deleted-entry-id $9-8 $entries-added :100 \
             $recorded-first-entry-id $2-1 $groups :0 $first-entry [$2-1 [$b $2]] $last-entry \
             [$2-1 [$b $2]]]",
        );
    }

    #[test]
    fn full() {
        check(
            "XADD s 1 a 1; XADD s 2 a 1; XADD s 3 a 1; XADD s 4 a 1; XADD s 5 a 1; XADD s 6 a 1; \
             XADD s 7 a 1; XADD s 8 a 1; XADD s 9 a 1; XADD s 10 a 1; XADD s 11 a 1; XADD s 12 a \
             1; XGROUP CREATE s g 0; XGROUP CREATE s f 3; XINFO STREAM s FULL; XINFO STREAM s \
             full count 1; XINFO STREAM s FULL COUNT 0; XINFO STREAM s FULL COUNT -1",
            "$1-0; $2-0; $3-0; $4-0; $5-0; $6-0; $7-0; $8-0; $9-0; $10-0; $11-0; $12-0; +OK; \
             +OK; [$length :12 $radix-tree-keys :1 $radix-tree-nodes :2 $last-generated-id $12-0 \
             $max-deleted-entry-id $0-0 $entries-added :12 $recorded-first-entry-id $1-0 \
             $entries [[$1-0 [$a $1]] [$2-0 [$a $1]] [$3-0 [$a $1]] [$4-0 [$a $1]] [$5-0 [$a \
             $1]] [$6-0 [$a $1]] [$7-0 [$a $1]] [$8-0 [$a $1]] [$9-0 [$a $1]] [$10-0 [$a $1]]] \
             $groups [[$name $f $last-delivered-id $3-0 $entries-read _ $lag _ $pel-count :0 \
             $pending [] $consumers []] [$name $g $last-delivered-id $0-0 $entries-read _ $lag \
             :12 $pel-count :0 $pending [] $consumers []]]]; [$length :12 $radix-tree-keys :1 \
             $radix-tree-nodes :2 $last-generated-id $12-0 $max-deleted-entry-id $0-0 \
             $entries-added :12 $recorded-first-entry-id $1-0 $entries [[$1-0 [$a $1]]] $groups \
             [[$name $f $last-delivered-id $3-0 $entries-read _ $lag _ $pel-count :0 $pending [] \
             $consumers []] [$name $g $last-delivered-id $0-0 $entries-read _ $lag :12 \
             $pel-count :0 $pending [] $consumers []]]]; [$length :12 $radix-tree-keys :1 \
             $radix-tree-nodes :2 $last-generated-id $12-0 $max-deleted-entry-id $0-0 \
             $entries-added :12 $recorded-first-entry-id $1-0 $entries [[$1-0 [$a $1]] [$2-0 [$a \
             $1]] [$3-0 [$a $1]] [$4-0 [$a $1]] [$5-0 [$a $1]] [$6-0 [$a $1]] [$7-0 [$a $1]] \
             [$8-0 [$a $1]] [$9-0 [$a $1]] [$10-0 [$a $1]] [$11-0 [$a $1]] [$12-0 [$a $1]]] \
             $groups [[$name $f $last-delivered-id $3-0 $entries-read _ $lag _ $pel-count :0 \
             $pending [] $consumers []] [$name $g $last-delivered-id $0-0 $entries-read _ $lag \
             :12 $pel-count :0 $pending [] $consumers []]]]; [$length :12 $radix-tree-keys :1 \
             $radix-tree-nodes :2 $last-generated-id $12-0 $max-deleted-entry-id $0-0 \
             $entries-added :12 $recorded-first-entry-id $1-0 $entries [[$1-0 [$a $1]] [$2-0 [$a \
             $1]] [$3-0 [$a $1]] [$4-0 [$a $1]] [$5-0 [$a $1]] [$6-0 [$a $1]] [$7-0 [$a $1]] \
             [$8-0 [$a $1]] [$9-0 [$a $1]] [$10-0 [$a $1]]] $groups [[$name $f \
             $last-delivered-id $3-0 $entries-read _ $lag _ $pel-count :0 $pending [] $consumers \
             []] [$name $g $last-delivered-id $0-0 $entries-read _ $lag :12 $pel-count :0 \
             $pending [] $consumers []]]]",
        );
    }

    #[test]
    fn groups() {
        check(
            "XADD s 1-1 a 1; XINFO GROUPS s; XGROUP CREATE s z 0; XGROUP CREATE s a 0; \
             XREADGROUP GROUP a c STREAMS s >; XINFO GROUPS s",
            "$1-1; []; +OK; +OK; [[$s [[$1-1 [$a $1]]]]]; [[$name $a $consumers :1 $pending :1 \
             $last-delivered-id $1-1 $entries-read :1 $lag :0] [$name $z $consumers :0 $pending \
             :0 $last-delivered-id $0-0 $entries-read _ $lag :1]]",
        );
    }

    #[test]
    fn what_is_wrong() {
        check(
            "XADD s 1-1 a 1; XGROUP CREATE s g 0; XINFO STREAM none; XINFO STREAM none FULL; \
             XINFO GROUPS none; XINFO CONSUMERS none g; XINFO CONSUMERS s no; XINFO CONSUMERS s \
             g; XINFO STREAM s FUL; XINFO STREAM s FULL COUNT; XINFO STREAM s FULL X 1; XINFO \
             STREAM s FULL COUNT x; XINFO STREAM s FULL COUNT 1 1; XINFO STREAM; XINFO GROUPS; \
             XINFO CONSUMERS s",
            "$1-1; +OK; -ERR no such key; -ERR no such key; -ERR no such key; -ERR no such key; \
             -NOGROUP No such consumer group 'no' for key name 's'; []; -ERR unknown subcommand \
             or wrong number of arguments for 'STREAM'. Try XINFO HELP.; -ERR unknown subcommand \
             or wrong number of arguments for 'STREAM'. Try XINFO HELP.; -ERR unknown subcommand \
             or wrong number of arguments for 'STREAM'. Try XINFO HELP.; -ERR value is not an \
             integer or out of range; -ERR unknown subcommand or wrong number of arguments for \
             'STREAM'. Try XINFO HELP.; -ERR wrong number of arguments for 'xinfo|stream' \
             command; -ERR wrong number of arguments for 'xinfo|groups' command; -ERR wrong \
             number of arguments for 'xinfo|consumers' command",
        );
        check(
            "SET k v; XINFO STREAM k; XINFO STREAM k FULL; XINFO GROUPS k; XINFO CONSUMERS k g",
            "+OK; -WRONGTYPE Operation against a key holding the wrong kind of value; -WRONGTYPE \
             Operation against a key holding the wrong kind of value; -WRONGTYPE Operation \
             against a key holding the wrong kind of value; -WRONGTYPE Operation against a key \
             holding the wrong kind of value",
        );
        // The key is looked at before the options.
        check(
            "SET k v; XINFO STREAM none 5; XINFO STREAM none FULL COUNT x; XINFO STREAM k 5",
            "+OK; -ERR no such key; -ERR no such key; -WRONGTYPE Operation against a key holding \
             the wrong kind of value",
        );
    }

    #[test]
    fn consumers_with_times() {
        let mut bench = Bench::new(Protocol::Resp3);
        bench.env.now_ms = 1_000;
        let mut ask = |wait_ms, call: &str| {
            bench.env.now_ms += wait_ms;
            let reply = bench.call(split(call)[0].as_args()).0;
            let reply = String::from_utf8(reply).unwrap();
            let words = reply.split("\r\n").filter(|word| !word.starts_with('$'));
            words.collect::<Vec<_>>().join(" ")
        };
        ask(0, "XADD s 1-1 a 1");
        ask(0, "XGROUP CREATE s g 0");
        ask(0, "XREADGROUP GROUP g c STREAMS s >");
        ask(30, "XREADGROUP GROUP g c STREAMS s >");
        ask(0, "XGROUP CREATECONSUMER s g b");
        assert_eq!(
            ask(20, "XINFO CONSUMERS s g"),
            "*2 %4 name b pending :0 idle :20 inactive :-1 \
             %4 name c pending :1 idle :20 inactive :50 "
        );
        let full = ask(0, "XINFO STREAM s FULL");
        let (_, groups) = full.split_once("groups ").unwrap();
        assert_eq!(
            groups,
            "*1 %7 name g last-delivered-id 1-1 entries-read :1 lag :0 pel-count :1 \
             pending *1 *4 1-1 c :1000 :1 consumers *2 \
             %5 name b seen-time :1030 active-time :-1 pel-count :0 pending *0 \
             %5 name c seen-time :1030 active-time :1000 pel-count :1 pending *1 *3 1-1 :1000 :1 "
        );
    }

    #[test]
    fn help_is_lines() {
        let mut bench = Bench::new(Protocol::Resp2);
        let (reply, _) = bench.call(split("XINFO HELP")[0].as_args());
        assert!(reply.starts_with(b"*9\r\n+XINFO <subcommand> "));
    }

    #[test]
    fn misses_are_events() {
        check_events(
            "XINFO STREAM k; XINFO GROUPS k; XINFO CONSUMERS k g",
            "keymiss k; keymiss k; keymiss k",
        );
    }
}
