//! SUBSCRIBE and its kin, PUBLISH, PUBSUB.

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{
    Argument, ArgumentKind, Flags, Group, KeyFlags, KeySpec, Spec, Traits,
};
use kvasir_pubsub::Kind;
use kvasir_pubsub::post::Origin;
use kvasir_structures::glob::{self, Case};

use crate::commands::{ANY_TIME, ANY_TIME_FAST, help_spec, unknown_word, write_help};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};
use crate::state::connection::Replies;

pub static COMMANDS: &[&ServerCommand] = &[
    &SUBSCRIBE,
    &UNSUBSCRIBE,
    &PSUBSCRIBE,
    &PUNSUBSCRIBE,
    &SSUBSCRIBE,
    &SUNSUBSCRIBE,
    &PUBLISH,
    &SPUBLISH,
    &PUBSUB,
];

/// Of what makes or ends subscriptions.
const SUBSCRIBING: Flags = Flags::PUBSUB.union(Flags::NOSCRIPT).union(ANY_TIME);
const PUBLISHING: Flags = Flags::PUBSUB.union(ANY_TIME_FAST);
const LOOKING: Flags = Flags::PUBSUB.union(ANY_TIME);

const PATTERN: Argument = Argument::new("pattern", ArgumentKind::Pattern);

/// Shard channels have a slot, as keys have.
const SHARD_CHANNELS: &[KeySpec] = &[KeySpec::range(KeyFlags::NOT_KEY, 1, -1, 1)];

static SUBSCRIBE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "subscribe",
        summary: "Has the messages to these channels sent to the connection.",
        since: "2.0.0",
        group: Group::Pubsub,
        complexity: "O(N) in the number of channels given",
        arity: -2,
        flags: SUBSCRIBING,
        traits: Traits::WHILE_SUBSCRIBED,
        arguments: &[Argument::string("channel").multiple()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| subscribe(cx, Kind::Channel, "subscribe")),
};

static UNSUBSCRIBE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "unsubscribe",
        summary: "Ends the subscriptions to these channels, or to all.",
        since: "2.0.0",
        group: Group::Pubsub,
        complexity: "O(N) in the number of channels left",
        arity: -1,
        flags: SUBSCRIBING,
        traits: Traits::WHILE_SUBSCRIBED,
        arguments: &[Argument::string("channel").optional().multiple()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| unsubscribe(cx, Kind::Channel, "unsubscribe")),
};

static PSUBSCRIBE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "psubscribe",
        summary: "Has the messages to all channels that match these patterns sent to the connection.",
        since: "2.0.0",
        group: Group::Pubsub,
        complexity: "O(N) in the number of patterns given",
        arity: -2,
        flags: SUBSCRIBING,
        traits: Traits::WHILE_SUBSCRIBED,
        arguments: &[Argument::block("pattern", &[PATTERN]).multiple()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| subscribe(cx, Kind::Pattern, "psubscribe")),
};

static PUNSUBSCRIBE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "punsubscribe",
        summary: "Ends the subscriptions to these patterns, or to all.",
        since: "2.0.0",
        group: Group::Pubsub,
        complexity: "O(N) in the number of patterns left",
        arity: -1,
        flags: SUBSCRIBING,
        traits: Traits::WHILE_SUBSCRIBED,
        arguments: &[PATTERN.optional().multiple()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| unsubscribe(cx, Kind::Pattern, "punsubscribe")),
};

static SSUBSCRIBE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "ssubscribe",
        summary: "Has the messages to these shard channels sent to the connection.",
        since: "7.0.0",
        group: Group::Pubsub,
        complexity: "O(N) in the number of shard channels given",
        arity: -2,
        flags: SUBSCRIBING,
        traits: Traits::WHILE_SUBSCRIBED,
        keys: SHARD_CHANNELS,
        arguments: &[Argument::string("shardchannel").multiple()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| subscribe(cx, Kind::ShardChannel, "ssubscribe")),
};

static SUNSUBSCRIBE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "sunsubscribe",
        summary: "Ends the subscriptions to these shard channels, or to all.",
        since: "7.0.0",
        group: Group::Pubsub,
        complexity: "O(N) in the number of shard channels left",
        arity: -1,
        flags: SUBSCRIBING,
        traits: Traits::WHILE_SUBSCRIBED,
        keys: SHARD_CHANNELS,
        arguments: &[Argument::string("shardchannel").optional().multiple()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| unsubscribe(cx, Kind::ShardChannel, "sunsubscribe")),
};

fn subscribe(cx: &mut ServerCx<'_>, kind: Kind, word: &str) -> Result<(), Error> {
    for name in cx.args.from(1) {
        cx.subscriber().subscribe(kind, name);
        confirm(cx, kind, word, Some(name));
    }
    Ok(())
}

fn unsubscribe(cx: &mut ServerCx<'_>, kind: Kind, word: &str) -> Result<(), Error> {
    let all = cx.subscriber().names(kind);
    match cx.args.len() {
        1 if all.is_empty() => confirm(cx, kind, word, None),
        1 => all.iter().for_each(|name| leave(cx, kind, word, name)),
        _ => cx.args.from(1).iter().for_each(|name| leave(cx, kind, word, name)),
    }
    Ok(())
}

fn leave(cx: &mut ServerCx<'_>, kind: Kind, word: &str, name: &[u8]) {
    cx.subscriber().unsubscribe(kind, name);
    confirm(cx, kind, word, Some(name));
}

/// Says to what the connection has subscribed or no longer subscribes, and how many subscriptions
/// it has: channels and patterns count together, shard channels alone.
fn confirm(cx: &mut ServerCx<'_>, kind: Kind, word: &str, name: Option<&[u8]>) {
    let count_of =
        |kind| cx.connection.listening.subscriptions.as_ref().map_or(0, |all| all.count(kind));
    let count = match kind {
        Kind::ShardChannel => count_of(kind),
        Kind::Channel | Kind::Pattern => count_of(Kind::Channel) + count_of(Kind::Pattern),
    };
    // Confirmations are messages, which CLIENT REPLY OFF does not concern.
    let is_muted = cx.connection.output.replies != Replies::On;
    let reply = if is_muted { cx.connection.late_messages() } else { cx.reply() };
    reply.push(3);
    reply.bulk(word.as_bytes());
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    }
    reply.integer(count as i64);
}

static PUBLISH: ServerCommand = ServerCommand {
    spec: Spec {
        name: "publish",
        summary: "Sends a message to the subscribers of a channel; tells how many they are.",
        since: "2.0.0",
        group: Group::Pubsub,
        complexity: "O(N+M) for N subscribers that get it and M patterns that anybody subscribes to",
        arity: 3,
        flags: PUBLISHING,
        traits: Traits::MAY_REPLICATE.union(Traits::PUBLISHES),
        arguments: &[Argument::string("channel"), Argument::string("message")],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| publish(cx, Kind::Channel)),
};

static SPUBLISH: ServerCommand = ServerCommand {
    spec: Spec {
        name: "spublish",
        summary: "Sends a message to the subscribers of a shard channel; tells how many they are.",
        since: "7.0.0",
        group: Group::Pubsub,
        complexity: "O(N) in the number of subscribers that get it",
        arity: 3,
        flags: PUBLISHING,
        traits: Traits::MAY_REPLICATE.union(Traits::PUBLISHES),
        keys: &[KeySpec::first(KeyFlags::NOT_KEY)],
        arguments: &[Argument::string("shardchannel"), Argument::string("message")],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| publish(cx, Kind::ShardChannel)),
};

fn publish(cx: &mut ServerCx<'_>, kind: Kind) -> Result<(), Error> {
    let (channel, message) = (&cx.args[1], &cx.args[2]);
    // What the client wrote before, its subscribers may look for.
    let origin = Origin { worker: cx.worker, fence: cx.connection.durability.written_to };
    let receivers = cx.shared.pubsub.publish(origin, kind, channel, message);
    match &cx.shared.cluster {
        None => cx.relay_call(),
        Some(node) => {
            node.change(|cluster| {
                cluster.publish(channel, message, kind == Kind::ShardChannel);
            });
            node.wake();
        }
    }
    cx.reply().integer(receivers as i64);
    Ok(())
}

static PUBSUB: ServerCommand = ServerCommand {
    spec: Spec {
        name: "pubsub",
        summary: "Commands about channels and their subscribers.",
        since: "2.8.0",
        group: Group::Pubsub,
        complexity: "Depends on subcommand.",
        arity: -2,
        ..Spec::BLANK
    },
    run: ServerRun::Container(&[
        &PUBSUB_CHANNELS,
        &PUBSUB_HELP,
        &PUBSUB_NUMPAT,
        &PUBSUB_NUMSUB,
        &PUBSUB_SHARDCHANNELS,
        &PUBSUB_SHARDNUMSUB,
    ]),
};

static PUBSUB_CHANNELS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "channels",
        summary: "Lists channels with subscribers, all of them or those that match.",
        since: "2.8.0",
        group: Group::Pubsub,
        complexity: "O(N) in the number of channels with subscribers",
        arity: -2,
        flags: LOOKING,
        arguments: &[PATTERN.optional()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| channels(cx, Kind::Channel)),
};

static PUBSUB_SHARDCHANNELS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "shardchannels",
        summary: "Lists shard channels with subscribers, all of them or those that match.",
        since: "7.0.0",
        group: Group::Pubsub,
        complexity: "O(N) in the number of shard channels with subscribers",
        arity: -2,
        flags: LOOKING,
        arguments: &[PATTERN.optional()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| channels(cx, Kind::ShardChannel)),
};

fn channels(cx: &mut ServerCx<'_>, kind: Kind) -> Result<(), Error> {
    let pattern = match cx.args.len() {
        2 => None,
        3 => Some(&cx.args[2]),
        _ => return Err(unknown_word("PUBSUB", &cx.args[1])),
    };
    let is_wanted =
        |name: &[u8]| pattern.is_none_or(|pattern| glob::matches(pattern, name, Case::Sensitive));
    let names = cx.shared.pubsub.index_of(kind).names(is_wanted);
    cx.reply().array(names.len());
    names.iter().for_each(|name| cx.reply().bulk(name));
    Ok(())
}

static PUBSUB_NUMSUB: ServerCommand = ServerCommand {
    spec: Spec {
        name: "numsub",
        summary: "Counts the subscribers of channels, without those to patterns.",
        since: "2.8.0",
        group: Group::Pubsub,
        complexity: "O(N) in the number of channels given",
        arity: -2,
        flags: LOOKING,
        arguments: &[Argument::string("channel").optional().multiple()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| subscriber_counts(cx, Kind::Channel)),
};

static PUBSUB_SHARDNUMSUB: ServerCommand = ServerCommand {
    spec: Spec {
        name: "shardnumsub",
        summary: "Counts the subscribers of shard channels.",
        since: "7.0.0",
        group: Group::Pubsub,
        complexity: "O(N) in the number of shard channels given",
        arity: -2,
        flags: LOOKING,
        arguments: &[Argument::string("shardchannel").optional().multiple()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| subscriber_counts(cx, Kind::ShardChannel)),
};

/// An array in RESP3, too.
fn subscriber_counts(cx: &mut ServerCx<'_>, kind: Kind) -> Result<(), Error> {
    let names = cx.args.from(2);
    let index = cx.shared.pubsub.index_of(kind);
    cx.reply().array(names.len() * 2);
    for name in names {
        cx.reply().bulk(name);
        cx.reply().integer(index.subscriber_count(name) as i64);
    }
    Ok(())
}

static PUBSUB_NUMPAT: ServerCommand = ServerCommand {
    spec: Spec {
        name: "numpat",
        summary: "Counts the patterns that somebody subscribes to.",
        since: "2.8.0",
        group: Group::Pubsub,
        arity: 2,
        flags: LOOKING,
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        let count = cx.shared.pubsub.index_of(Kind::Pattern).count();
        cx.reply().integer(count as i64);
        Ok(())
    }),
};

static PUBSUB_HELP: ServerCommand = ServerCommand {
    spec: help_spec("6.2.0", Group::Pubsub),
    run: ServerRun::Plain(|cx| {
        write_help(&mut cx.connection.reply, "PUBSUB", HELP);
        Ok(())
    }),
};

static HELP: &[&str] = &[
    "CHANNELS [<pattern>]",
    "    Channels with subscribers that match the pattern (default: all).",
    "NUMPAT",
    "    How many patterns are subscribed to.",
    "NUMSUB [<channel> ...]",
    "    How many subscribers each of these channels has.",
    "SHARDCHANNELS [<pattern>]",
    "    Shard channels with subscribers that match the pattern (default: all).",
    "SHARDNUMSUB [<shardchannel> ...]",
    "    How many subscribers each of these shard channels has.",
];
