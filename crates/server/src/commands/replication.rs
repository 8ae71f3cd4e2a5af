//! The commands of replication, but for what a replica says itself (`replica_link`), and of the
//! append-only file.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::commands::options::block_deadline_ms;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Categories, Flags, Group, Spec};
use kvasir_resp::args::Args;
use kvasir_resp::number::parse_integer;
use kvasir_structures::locks::lock;

use crate::commands::{ANY_TIME_NOSCRIPT, is_word};
use crate::log::notice;
use crate::replicas::Stage;
use crate::run::acks::answer_or_wait;
use crate::run::failover as run_failover;
use crate::run::server::{ServerCommand, ServerCx, ServerRun};
use crate::state::waits::Acks;
use crate::store::replication::failover::{Plan, Stage as FailoverStage};
use crate::store::replication::role;
use crate::store::replication::upstream::{Primary, Stage as LinkStage};

pub static COMMANDS: &[&ServerCommand] =
    &[&ROLE, &WAIT, &WAITAOF, &REPLICAOF, &SLAVEOF, &FAILOVER, &BGREWRITEAOF];

const ADMIN: Flags = Flags::ADMIN.union(Flags::NOSCRIPT);
pub(super) const ADMIN_LOADED: Flags = ADMIN.union(Flags::NO_ASYNC_LOADING);

static ROLE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "role",
        summary: "Tells the server's part in replication.",
        since: "2.8.12",
        group: Group::Server,
        flags: ANY_TIME_NOSCRIPT.union(Flags::FAST),
        categories: Categories::ADMIN,
        ..Spec::BLANK
    },
    run: ServerRun::Plain(role),
};

fn role(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let upstream = &cx.shared.replication.upstream;
    if let Some(primary) = upstream.primary() {
        let (stage, end) = (upstream.stage(), cx.shared.keyspace.log.end());
        let reply = cx.reply();
        reply.array(5);
        reply.bulk(b"slave");
        reply.bulk(primary.host.as_bytes());
        reply.integer(primary.port.into());
        reply.bulk(stage.name().as_bytes());
        reply.integer(if stage == LinkStage::Online { end as i64 } else { -1 });
        return Ok(());
    }
    let mut replicas = cx.shared.replication.replicas();
    replicas.retain(|replica| replica.stage() == Stage::Online);
    let end = cx.shared.keyspace.log.end();
    let reply = cx.reply();
    reply.array(3);
    reply.bulk(b"master");
    reply.integer(end as i64);
    reply.array(replicas.len());
    for replica in replicas {
        reply.array(3);
        reply.bulk(lock(&replica.address).as_bytes());
        reply.bulk_integer(replica.port.load(Relaxed).into());
        reply.bulk_integer(replica.acked.load(Relaxed) as i64);
    }
    Ok(())
}

static WAIT: ServerCommand = ServerCommand {
    spec: Spec {
        name: "wait",
        summary: "Waits until replicas have what this connection wrote.",
        since: "3.0.0",
        arity: 3,
        flags: Flags::BLOCKING,
        categories: Categories::CONNECTION,
        tips: &["request_policy:all_shards", "response_policy:agg_min"],
        arguments: &[Argument::integer("numreplicas"), Argument::integer("timeout")],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        check_primary(cx, "WAIT")?;
        let replicas = replica_count(integer(&cx.args[1])?);
        let deadline_ms = block_deadline_ms(&cx.args[2], &cx.core.env)?;
        let acks = Acks::of_wait(cx.connection.durability.written_to, replicas, deadline_ms);
        answer_or_wait(cx, acks);
        Ok(())
    }),
};

static WAITAOF: ServerCommand = ServerCommand {
    spec: Spec {
        name: "waitaof",
        summary: "Waits until what this connection wrote is on disk, here or at replicas.",
        since: "7.2.0",
        arity: 4,
        flags: Flags::BLOCKING,
        categories: Categories::CONNECTION,
        tips: &["request_policy:all_shards", "response_policy:agg_min"],
        arguments: &[
            Argument::integer("numlocal"),
            Argument::integer("numreplicas"),
            Argument::integer("timeout"),
        ],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(waitaof),
};

/// Fails on a replica, which has nobody's word but its primary's.
fn check_primary(cx: &ServerCx<'_>, command: &str) -> Result<(), Error> {
    if !cx.shared.replication.upstream.is_replica() {
        return Ok(());
    }
    Err(Error::new(format!(
        "ERR {command} cannot be used with replica instances. Please also note that writes to \
         replicas are just local and are not propagated."
    )))
}

fn waitaof(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    check_primary(cx, "WAITAOF")?;
    let local = match integer(&cx.args[1])? {
        0 => false,
        1 => true,
        _ => {
            return Err(Error::fixed("ERR value is out of range, value must between 0 and 1"));
        }
    };
    let replicas = parse_integer(&cx.args[2]).filter(|count| *count >= 0);
    let replicas = replicas.ok_or(Error::fixed("ERR value is out of range, must be positive"))?;
    let replicas = replica_count(replicas);
    let deadline_ms = block_deadline_ms(&cx.args[3], &cx.core.env)?;
    if local && !cx.shared.config().aof.appendonly {
        return Err(Error::fixed(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ));
    }
    let written_to = cx.connection.durability.written_to;
    answer_or_wait(cx, Acks::of_waitaof(written_to, local, replicas, deadline_ms));
    Ok(())
}

/// How many replicas a call waits for. Redis keeps 32 bits of what the client says.
#[expect(clippy::cast_possible_truncation, reason = "that is what it is for")]
fn replica_count(count: i64) -> i64 {
    i64::from(count as i32)
}

fn integer(word: &[u8]) -> Result<i64, Error> {
    parse_integer(word).ok_or(Error::NOT_INTEGER)
}

const MASTER: &[Argument] = &[Argument::one_of(
    "args",
    &[
        Argument::block("host-port", &[Argument::string("host"), Argument::integer("port")]),
        Argument::block("no-one", &[Argument::word("no", "NO"), Argument::word("one", "ONE")]),
    ],
)];

/// Both names have the same row.
const OF_REPLICAOF: Spec = Spec {
    summary: "Makes the server a replica of another one, or a master again.",
    group: Group::Server,
    arity: 3,
    flags: ADMIN_LOADED.union(Flags::STALE),
    arguments: MASTER,
    ..Spec::BLANK
};

static REPLICAOF: ServerCommand = ServerCommand {
    spec: Spec { name: "replicaof", since: "5.0.0", ..OF_REPLICAOF },
    run: ServerRun::World(replicaof),
};

static SLAVEOF: ServerCommand = ServerCommand {
    spec: Spec { name: "slaveof", deprecated: Some(("5.0.0", "`REPLICAOF`")), ..OF_REPLICAOF },
    run: ServerRun::World(replicaof),
};

/// With the gate closed: what is logged before and behind is of two histories.
fn replicaof(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    if cx.shared.cluster.is_some() {
        return Err(Error::fixed("ERR REPLICAOF not allowed in cluster mode."));
    }
    // Else two changes of role were under way at once.
    if cx.shared.replication.failover.is_under_way() {
        return Err(Error::fixed("ERR REPLICAOF not allowed while failing over."));
    }
    let (shared, now_ms) = (cx.shared, cx.core.env.now_ms);
    let upstream = &shared.replication.upstream;
    if is_word(&cx.args[1], "no") && is_word(&cx.args[2], "one") {
        if upstream.is_replica() {
            role::become_primary(shared, cx.alone(), now_ms);
        }
        cx.reply().ok();
        return Ok(());
    }
    let port = parse_integer(&cx.args[2]).and_then(|port| u16::try_from(port).ok());
    let port = port.ok_or(Error::fixed("ERR Invalid master port"))?;
    let host = String::from_utf8_lossy(&cx.args[1]).into_owned();
    let primary = Primary { host: host.clone(), port };
    if upstream.primary() == Some(primary.clone()) {
        notice!(
            "REPLICAOF would result into synchronization with the master we are already connected with. No operation performed."
        );
        cx.reply().simple("OK Already connected to specified master");
        return Ok(());
    }
    role::become_replica(shared, primary, now_ms);
    cx.reply().ok();
    Ok(())
}

static FAILOVER: ServerCommand = ServerCommand {
    spec: Spec {
        name: "failover",
        summary: "Hands the part of the master over to a replica.",
        since: "6.2.0",
        group: Group::Server,
        arity: -1,
        flags: ADMIN.union(Flags::STALE),
        arguments: &[
            Argument::block(
                "target",
                &[
                    Argument::string("host"),
                    Argument::integer("port"),
                    Argument::word("force", "FORCE").optional(),
                ],
            )
            .token("TO")
            .optional(),
            Argument::word("abort", "ABORT").optional(),
            Argument::integer("milliseconds").token("TIMEOUT").optional(),
        ],
        ..Spec::BLANK
    },
    run: ServerRun::World(failover),
};

/// With the gate closed: nobody is in the middle of a write when it has begun.
fn failover(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    if cx.shared.cluster.is_some() {
        return Err(Error::fixed("ERR FAILOVER not allowed in cluster mode."));
    }
    let (shared, now_ms) = (cx.shared, cx.core.env.now_ms);
    let replication = &shared.replication;
    let is_under_way = replication.failover.is_under_way();
    if cx.args.len() == 2 && is_word(&cx.args[1], "abort") {
        if !is_under_way {
            return Err(Error::fixed("ERR No failover in progress."));
        }
        run_failover::give_up(shared, cx.alone(), "Failover manually aborted", now_ms);
        cx.reply().ok();
        return Ok(());
    }
    let plan = parse_failover(cx.args, now_ms)?;
    let replicas = replication.replicas();
    let refusal = if is_under_way {
        Some("ERR FAILOVER already in progress.")
    } else if replication.upstream.is_replica() {
        Some("ERR FAILOVER is not valid when server is a replica.")
    } else if replicas.is_empty() {
        Some("ERR FAILOVER requires connected replicas.")
    } else if plan.is_forced && (plan.deadline_ms.is_none() || plan.target.is_none()) {
        Some("ERR FAILOVER with force option requires both a timeout and target HOST and IP.")
    } else if let Some(target) = &plan.target {
        match replicas.iter().find(|replica| run_failover::is_at(replica, target)) {
            None => Some("ERR FAILOVER target HOST and PORT is not a replica."),
            Some(replica) if replica.stage() != Stage::Online => {
                Some("ERR FAILOVER target replica is not online.")
            }
            Some(_) => None,
        }
    } else {
        None
    };
    if let Some(refusal) = refusal {
        return Err(Error::fixed(refusal));
    }
    run_failover::begin(shared, plan, now_ms);
    cx.core.see_listeners(shared);
    cx.reply().ok();
    Ok(())
}

fn parse_failover(args: Args<'_>, now_ms: u64) -> Result<Plan, Error> {
    let stage = FailoverStage::WaitsForReplica;
    let mut plan = Plan { target: None, deadline_ms: None, is_forced: false, stage };
    let mut words = args.from(1).iter();
    while let Some(word) = words.next() {
        if is_word(word, "timeout") && plan.deadline_ms.is_none() {
            let timeout = integer(words.next().ok_or(Error::SYNTAX)?)?;
            if timeout <= 0 {
                return Err(Error::fixed("ERR FAILOVER timeout must be greater than 0"));
            }
            plan.deadline_ms = Some(now_ms.saturating_add(timeout as u64));
        } else if is_word(word, "to") && plan.target.is_none() {
            let (Some(host), Some(port)) = (words.next(), words.next()) else {
                return Err(Error::SYNTAX);
            };
            // No replica has a port that is none.
            let port = u16::try_from(integer(port)?).unwrap_or(0);
            plan.target = Some(Primary { host: String::from_utf8_lossy(host).into_owned(), port });
        } else if is_word(word, "force") && !plan.is_forced {
            plan.is_forced = true;
        } else {
            return Err(Error::SYNTAX);
        }
    }
    Ok(plan)
}

static BGREWRITEAOF: ServerCommand = ServerCommand {
    spec: Spec {
        name: "bgrewriteaof",
        summary: "Rewrites the log of changes in the background.",
        group: Group::Server,
        flags: ADMIN_LOADED,
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        cx.shared.aof.ask_for_rewrite(cx.shared)?;
        let is_saving = cx.shared.saving.facts(cx.shared).current_took.is_some();
        let what = if is_saving { "scheduled" } else { "started" };
        cx.reply().simple(&format!("Background append only file rewriting {what}"));
        Ok(())
    }),
};
