//! The rows of CLUSTER and its kin, and what their functions have in common.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_cluster::slots::SLOTS;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Categories, Flags, Group, Spec};
use kvasir_resp::number::parse_integer;

use crate::cluster::Node;
use crate::commands::{
    ANY_TIME_FAST, cluster_change, cluster_handover, cluster_help, cluster_view, help_spec,
    write_help,
};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};
use crate::state::connection::Asks;

pub static COMMANDS: &[&ServerCommand] = &[&CLUSTER, &ASKING, &READONLY, &READWRITE];

const DISABLED: Error = Error::fixed("ERR This instance has cluster support disabled");

const ADMIN: Flags = Flags::ADMIN.union(Flags::STALE);
pub const CHANGING: Flags = ADMIN.union(Flags::NO_ASYNC_LOADING);

/// Most of the family's rows.
pub const OF_CLUSTER: Spec =
    Spec { since: "3.0.0", group: Group::Cluster, arity: 2, flags: Flags::STALE, ..Spec::BLANK };

/// This node, if it is one of a cluster.
pub fn node(cx: &ServerCx<'_>) -> Result<&'static Node, Error> {
    cx.shared.cluster.as_ref().ok_or(DISABLED)
}

/// A slot, or why a word names none.
pub fn slot(word: &[u8]) -> Result<u16, Error> {
    let slot = parse_integer(word).and_then(slot_of);
    slot.ok_or(Error::fixed("ERR Invalid or out of range slot"))
}

pub fn slot_of(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|slot| *slot < SLOTS)
}

fn asking(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    node(cx)?;
    cx.connection.routing.asks = Asks::Next;
    cx.reply().ok();
    Ok(())
}

/// Fails for a client that is not sent elsewhere in any case: none of a cluster, nor one that a
/// replica redirects.
fn reader(cx: &ServerCx<'_>) -> Result<(), Error> {
    let can_redirect = cx.connection.client.can_redirect.load(Relaxed);
    if cx.shared.cluster.is_some() || can_redirect { Ok(()) } else { Err(DISABLED) }
}

fn readonly(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    reader(cx)?;
    cx.connection.routing.reads_replicas = true;
    cx.reply().ok();
    Ok(())
}

fn readwrite(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    reader(cx)?;
    cx.connection.routing.reads_replicas = false;
    cx.reply().ok();
    Ok(())
}

fn help(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    node(cx)?;
    write_help(&mut cx.connection.reply, "CLUSTER", cluster_help::LINES);
    Ok(())
}

static ASKING: ServerCommand = ServerCommand {
    spec: Spec {
        name: "asking",
        summary: "Says that the next call was sent here by an -ASK.",
        arity: 1,
        flags: Flags::FAST,
        categories: Categories::CONNECTION,
        ..OF_CLUSTER
    },
    run: ServerRun::Plain(asking),
};

static READONLY: ServerCommand = ServerCommand {
    spec: Spec {
        name: "readonly",
        summary: "Lets this connection read from a replica of a cluster.",
        arity: 1,
        flags: ANY_TIME_FAST,
        categories: Categories::CONNECTION,
        ..OF_CLUSTER
    },
    run: ServerRun::Plain(readonly),
};

static READWRITE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "readwrite",
        summary: "Takes READONLY back.",
        arity: 1,
        flags: ANY_TIME_FAST,
        categories: Categories::CONNECTION,
        ..OF_CLUSTER
    },
    run: ServerRun::Plain(readwrite),
};

static CLUSTER: ServerCommand = ServerCommand {
    spec: Spec {
        name: "cluster",
        summary: "Commands about the cluster.",
        complexity: "Depends on subcommand.",
        arity: -2,
        flags: Flags::empty(),
        ..OF_CLUSTER
    },
    run: ServerRun::Container(&[
        &CLUSTER_ADDSLOTS,
        &CLUSTER_ADDSLOTSRANGE,
        &CLUSTER_BUMPEPOCH,
        &cluster_handover::CLUSTER_CANCELSLOTMIGRATIONS,
        &CLUSTER_COUNT_FAILURE_REPORTS,
        &CLUSTER_COUNTKEYSINSLOT,
        &CLUSTER_DELSLOTS,
        &CLUSTER_DELSLOTSRANGE,
        &CLUSTER_FAILOVER,
        &CLUSTER_FLUSHSLOT,
        &CLUSTER_FLUSHSLOTS,
        &CLUSTER_FORGET,
        &CLUSTER_GETKEYSINSLOT,
        &cluster_handover::CLUSTER_GETSLOTMIGRATIONS,
        &CLUSTER_HELP,
        &CLUSTER_INFO,
        &CLUSTER_KEYSLOT,
        &CLUSTER_LINKS,
        &CLUSTER_MEET,
        &cluster_handover::CLUSTER_MIGRATESLOTS,
        &CLUSTER_MYID,
        &CLUSTER_MYSHARDID,
        &CLUSTER_NODES,
        &CLUSTER_REPLICAS,
        &CLUSTER_REPLICATE,
        &CLUSTER_RESET,
        &CLUSTER_SAVECONFIG,
        &CLUSTER_SET_CONFIG_EPOCH,
        &CLUSTER_SETSLOT,
        &CLUSTER_SHARDS,
        &CLUSTER_SLAVES,
        &CLUSTER_SLOT_STATS,
        &CLUSTER_SLOTS,
        &cluster_handover::CLUSTER_SYNCSLOTS,
    ]),
};

static CLUSTER_HELP: ServerCommand =
    ServerCommand { spec: help_spec("5.0.0", Group::Cluster), run: ServerRun::Plain(help) };

static CLUSTER_ADDSLOTS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "addslots",
        summary: "Gives slots to this node.",
        complexity: "O(N) in the number of slots",
        arity: -3,
        flags: CHANGING,
        arguments: &[Argument::integer("slot").multiple()],
        ..OF_CLUSTER
    },
    run: ServerRun::World(cluster_change::add_slots),
};

static CLUSTER_ADDSLOTSRANGE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "addslotsrange",
        summary: "Gives ranges of slots to this node.",
        since: "7.0.0",
        complexity: "O(N) in the number of slots in the ranges",
        arity: -4,
        flags: CHANGING,
        arguments: &[Argument::block(
            "start-slot_end-slot",
            &[Argument::integer("start-slot"), Argument::integer("end-slot")],
        )
        .multiple()],
        ..OF_CLUSTER
    },
    run: ServerRun::World(cluster_change::add_ranges),
};

static CLUSTER_BUMPEPOCH: ServerCommand = ServerCommand {
    spec: Spec {
        name: "bumpepoch",
        summary: "Raises the configuration epoch.",
        flags: CHANGING,
        tips: &["nondeterministic_output"],
        ..OF_CLUSTER
    },
    run: ServerRun::World(cluster_change::bump_epoch),
};

static CLUSTER_COUNT_FAILURE_REPORTS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "count-failure-reports",
        summary: "Counts the nodes that say that a node failed.",
        complexity: "O(N) in the number of reports",
        arity: 3,
        flags: ADMIN,
        tips: &["nondeterministic_output"],
        arguments: &[Argument::string("node-id")],
        ..OF_CLUSTER
    },
    run: ServerRun::Plain(cluster_view::count_failure_reports),
};

static CLUSTER_COUNTKEYSINSLOT: ServerCommand = ServerCommand {
    spec: Spec {
        name: "countkeysinslot",
        summary: "Counts the keys of a slot.",
        arity: 3,
        arguments: &[Argument::integer("slot")],
        ..OF_CLUSTER
    },
    run: ServerRun::Plain(cluster_view::count_keys_in_slot),
};

static CLUSTER_DELSLOTS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "delslots",
        summary: "Takes slots from this node.",
        complexity: "O(N) in the number of slots",
        arity: -3,
        flags: CHANGING,
        arguments: &[Argument::integer("slot").multiple()],
        ..OF_CLUSTER
    },
    run: ServerRun::World(cluster_change::delete_slots),
};

static CLUSTER_DELSLOTSRANGE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "delslotsrange",
        summary: "Takes ranges of slots from this node.",
        since: "7.0.0",
        complexity: "O(N) in the number of slots in the ranges",
        arity: -4,
        flags: CHANGING,
        arguments: &[Argument::block(
            "start-slot_end-slot",
            &[Argument::integer("start-slot"), Argument::integer("end-slot")],
        )
        .multiple()],
        ..OF_CLUSTER
    },
    run: ServerRun::World(cluster_change::delete_ranges),
};

static CLUSTER_FAILOVER: ServerCommand = ServerCommand {
    spec: Spec {
        name: "failover",
        summary: "Lets a replica take over from its master.",
        arity: -2,
        flags: CHANGING,
        arguments: &[Argument::one_of(
            "options",
            &[Argument::word("force", "FORCE"), Argument::word("takeover", "TAKEOVER")],
        )
        .optional()],
        ..OF_CLUSTER
    },
    run: ServerRun::World(cluster_change::failover),
};

static CLUSTER_FLUSHSLOT: ServerCommand = ServerCommand {
    spec: Spec {
        name: "flushslot",
        summary: "Deletes all keys of a slot.",
        since: "9.0.0",
        complexity: "O(N) in the number of keys of the slot",
        arity: -3,
        flags: Flags::WRITE.union(Flags::ADMIN).union(Flags::NO_ASYNC_LOADING),
        categories: Categories::KEYSPACE,
        arguments: &[
            Argument::integer("slot"),
            Argument::one_of(
                "flush-type",
                &[Argument::word("async", "ASYNC"), Argument::word("sync", "SYNC")],
            )
            .optional(),
        ],
        ..OF_CLUSTER
    },
    run: ServerRun::World(cluster_change::flush_slot),
};

static CLUSTER_FLUSHSLOTS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "flushslots",
        summary: "Takes all slots from this node.",
        flags: CHANGING,
        ..OF_CLUSTER
    },
    run: ServerRun::World(cluster_change::flush_slots),
};

static CLUSTER_FORGET: ServerCommand = ServerCommand {
    spec: Spec {
        name: "forget",
        summary: "Removes a node from the cluster's table.",
        arity: 3,
        flags: CHANGING,
        arguments: &[Argument::string("node-id")],
        ..OF_CLUSTER
    },
    run: ServerRun::World(cluster_change::forget),
};

static CLUSTER_GETKEYSINSLOT: ServerCommand = ServerCommand {
    spec: Spec {
        name: "getkeysinslot",
        summary: "Names keys of a slot.",
        complexity: "O(log(N)) in the number of keys named",
        arity: 4,
        tips: &["nondeterministic_output"],
        arguments: &[Argument::integer("slot"), Argument::integer("count")],
        ..OF_CLUSTER
    },
    run: ServerRun::Plain(cluster_view::get_keys_in_slot),
};

static CLUSTER_INFO: ServerCommand = ServerCommand {
    spec: Spec {
        name: "info",
        summary: "Tells the state of the cluster.",
        tips: &["nondeterministic_output"],
        ..OF_CLUSTER
    },
    run: ServerRun::Plain(cluster_view::info),
};

static CLUSTER_KEYSLOT: ServerCommand = ServerCommand {
    spec: Spec {
        name: "keyslot",
        summary: "Tells the slot of a key.",
        complexity: "O(N) in the length of the key",
        arity: 3,
        arguments: &[Argument::string("key")],
        ..OF_CLUSTER
    },
    run: ServerRun::Plain(cluster_view::key_slot),
};

static CLUSTER_LINKS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "links",
        summary: "Lists the connections between the nodes.",
        since: "7.0.0",
        complexity: "O(N) in the number of nodes",
        tips: &["nondeterministic_output"],
        ..OF_CLUSTER
    },
    run: ServerRun::Plain(cluster_view::links),
};

static CLUSTER_MEET: ServerCommand = ServerCommand {
    spec: Spec {
        name: "meet",
        summary: "Makes this node known to another one.",
        arity: -4,
        flags: CHANGING,
        history: &[("4.0.0", "Takes the port of the cluster's bus.")],
        arguments: &[
            Argument::string("ip"),
            Argument::integer("port"),
            Argument::integer("cluster_bus_port").since("4.0.0").optional(),
        ],
        ..OF_CLUSTER
    },
    run: ServerRun::World(cluster_change::meet),
};

static CLUSTER_MYID: ServerCommand = ServerCommand {
    spec: Spec { name: "myid", summary: "Tells this node's id.", ..OF_CLUSTER },
    run: ServerRun::Plain(cluster_view::my_id),
};

static CLUSTER_NODES: ServerCommand = ServerCommand {
    spec: Spec {
        name: "nodes",
        summary: "Lists the nodes and their slots.",
        complexity: "O(N) in the number of nodes",
        tips: &["nondeterministic_output"],
        ..OF_CLUSTER
    },
    run: ServerRun::Plain(cluster_view::nodes),
};

static CLUSTER_REPLICAS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "replicas",
        summary: "Lists the replicas of a master.",
        since: "5.0.0",
        arity: 3,
        flags: ADMIN,
        tips: &["nondeterministic_output"],
        arguments: &[Argument::string("node-id")],
        ..OF_CLUSTER
    },
    run: ServerRun::Plain(cluster_view::replicas),
};

static CLUSTER_REPLICATE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "replicate",
        summary: "Makes this node a replica of a master, or of none.",
        arity: -3,
        flags: CHANGING,
        history: &[("9.0.0", "Takes `NO ONE`.")],
        arguments: &[Argument::one_of(
            "args",
            &[
                Argument::string("node-id"),
                Argument::block(
                    "no-one",
                    &[Argument::word("no", "NO"), Argument::word("one", "ONE")],
                ),
            ],
        )],
        ..OF_CLUSTER
    },
    run: ServerRun::World(cluster_change::replicate),
};

static CLUSTER_RESET: ServerCommand = ServerCommand {
    spec: Spec {
        name: "reset",
        summary: "Makes this node forget the cluster.",
        complexity: "O(N) in the number of nodes that are known",
        arity: -2,
        flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::STALE),
        arguments: &[Argument::one_of(
            "hard_soft",
            &[Argument::word("hard", "HARD"), Argument::word("soft", "SOFT")],
        )
        .optional()],
        ..OF_CLUSTER
    },
    run: ServerRun::World(cluster_change::reset),
};

static CLUSTER_SAVECONFIG: ServerCommand = ServerCommand {
    spec: Spec {
        name: "saveconfig",
        summary: "Writes the state of the cluster to disk.",
        flags: CHANGING,
        ..OF_CLUSTER
    },
    run: ServerRun::Plain(cluster_change::save_config),
};

static CLUSTER_SET_CONFIG_EPOCH: ServerCommand = ServerCommand {
    spec: Spec {
        name: "set-config-epoch",
        summary: "Sets the configuration epoch of a new node.",
        arity: 3,
        flags: CHANGING,
        arguments: &[Argument::integer("config-epoch")],
        ..OF_CLUSTER
    },
    run: ServerRun::World(cluster_change::set_config_epoch),
};

static CLUSTER_SETSLOT: ServerCommand = ServerCommand {
    spec: Spec {
        name: "setslot",
        summary: "Binds a slot to a node, or begins or ends its move.",
        arity: -4,
        flags: CHANGING,
        arguments: &[
            Argument::integer("slot"),
            Argument::one_of(
                "subcommand",
                &[
                    Argument::string("node-id").token("IMPORTING"),
                    Argument::string("node-id").token("MIGRATING"),
                    Argument::string("node-id").token("NODE"),
                    Argument::word("stable", "STABLE"),
                ],
            ),
        ],
        ..OF_CLUSTER
    },
    run: ServerRun::World(cluster_change::set_slot),
};

static CLUSTER_SHARDS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "shards",
        summary: "Lists slots with their masters and replicas.",
        since: "7.0.0",
        complexity: "O(N) in the number of nodes",
        tips: &["nondeterministic_output"],
        ..OF_CLUSTER
    },
    run: ServerRun::Plain(cluster_view::shards),
};

static CLUSTER_SLAVES: ServerCommand = ServerCommand {
    spec: Spec {
        name: "slaves",
        summary: "Lists the replicas of a master.",
        arity: 3,
        flags: ADMIN,
        tips: &["nondeterministic_output"],
        deprecated: Some(("5.0.0", "`CLUSTER REPLICAS`")),
        arguments: &[Argument::string("node-id")],
        ..OF_CLUSTER
    },
    run: ServerRun::Plain(cluster_view::replicas),
};

static CLUSTER_SLOTS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "slots",
        summary: "Lists slots with their masters and replicas.",
        complexity: "O(N) in the number of nodes",
        tips: &["nondeterministic_output"],
        history: &[
            ("4.0.0", "Tells the nodes' ids too."),
            ("7.0.0", "Tells more about how to reach them."),
        ],
        deprecated: Some(("7.0.0", "`CLUSTER SHARDS`")),
        ..OF_CLUSTER
    },
    run: ServerRun::Plain(cluster_view::slots),
};

static CLUSTER_MYSHARDID: ServerCommand = ServerCommand {
    spec: Spec {
        name: "myshardid",
        summary: "Tells the id of this node's shard.",
        since: "7.2.0",
        tips: &["nondeterministic_output"],
        flags: Flags::LOADING.union(Flags::STALE),
        ..OF_CLUSTER
    },
    run: ServerRun::Plain(cluster_view::my_shard_id),
};

static CLUSTER_SLOT_STATS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "slot-stats",
        summary: "Counts the keys of this node's slots.",
        since: "8.0.0",
        complexity: "O(N) in the number of slots, O(N*log(N)) where they are ordered",
        arity: -4,
        flags: Flags::STALE.union(Flags::LOADING),
        tips: &["nondeterministic_output", "request_policy:all_shards"],
        arguments: &[Argument::one_of(
            "filter",
            &[
                Argument::block(
                    "slotsrange",
                    &[Argument::integer("start-slot"), Argument::integer("end-slot")],
                )
                .token("SLOTSRANGE"),
                Argument::block(
                    "orderby",
                    &[
                        Argument::string("metric"),
                        Argument::integer("limit").token("LIMIT").optional(),
                        Argument::one_of(
                            "order",
                            &[Argument::word("asc", "ASC"), Argument::word("desc", "DESC")],
                        )
                        .optional(),
                    ],
                )
                .token("ORDERBY"),
            ],
        )],
        ..OF_CLUSTER
    },
    run: ServerRun::Plain(cluster_view::slot_stats),
};
