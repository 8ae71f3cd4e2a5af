//! CLUSTER's subcommands that only look.

use kvasir_cluster::id::NodeId;
use kvasir_cluster::node::{Flags as NodeFlags, Node as Peer};
use kvasir_cluster::state::Cluster;
use kvasir_cluster::view::Reader;
use kvasir_config::cluster::Endpoint;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::place::{DbIndex, Place};
use kvasir_keyspace::slot_keys::some_keys;
use kvasir_resp::number::parse_integer;
use kvasir_resp::reply::Reply;

use crate::calls::routing::client_port;
use crate::commands::cluster::{node, slot_of};
use crate::commands::cluster_change::ranges;
use crate::info::cluster;
use crate::run::server::ServerCx;

pub fn info(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let text = cluster::text(&node(cx)?.look());
    cx.reply().verbatim(b"txt", text.as_bytes());
    Ok(())
}

pub fn my_id(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let id = node(cx)?.look().my_id();
    cx.reply().bulk(&id.digits());
    Ok(())
}

pub fn my_shard_id(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let shard = node(cx)?.look().me().shard;
    cx.reply().bulk(&shard.digits());
    Ok(())
}

fn reader(cx: &ServerCx<'_>) -> Reader {
    if cx.connection.wire.tls.is_some() { Reader::ClientOverTls } else { Reader::Client }
}

pub fn nodes(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let text = node(cx)?.look().nodes_text(reader(cx));
    cx.reply().verbatim(b"txt", text.as_bytes());
    Ok(())
}

pub fn replicas(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let cluster = node(cx)?.look();
    let id = cluster.find(&cx.args[2]).map_err(|text| Error::new(text.into_owned()))?;
    if !cluster.node(id).is_some_and(Peer::is_primary) {
        return Err(Error::fixed("ERR The specified node is not a master"));
    }
    let (all, reader) = (cluster.shard_of(id), reader(cx));
    cx.connection.reply.array(all.len() - 1);
    for replica in &all[1..] {
        let mut text = String::new();
        cluster.describe(&mut text, replica, reader);
        cx.connection.reply.bulk(text.as_bytes());
    }
    Ok(())
}

pub fn count_failure_reports(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let now_ms = cx.core.env.now_ms;
    let name = &cx.args[2];
    let count = node(cx)?.change(|cluster| {
        let id = cluster.find(name).map_err(|text| Error::new(text.into_owned()))?;
        Ok::<_, Error>(cluster.failure_reports(id, now_ms))
    })?;
    cx.reply().integer(count as i64);
    Ok(())
}

pub fn count_keys_in_slot(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    node(cx)?;
    let slot = parse_integer(&cx.args[2]).ok_or(Error::NOT_INTEGER)?;
    let slot = slot_of(slot).ok_or(Error::fixed("ERR Invalid slot"))?;
    let count = cx.shared.keyspace.database(DbIndex(0), cx.pass()).slot(slot).len();
    cx.reply().integer(count as i64);
    Ok(())
}

pub fn get_keys_in_slot(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    node(cx)?;
    let number = |word: &[u8]| parse_integer(word).ok_or(Error::NOT_INTEGER);
    let (slot, most) = (number(&cx.args[2])?, number(&cx.args[3])?);
    let (Some(slot), Ok(most)) = (slot_of(slot), usize::try_from(most)) else {
        return Err(Error::fixed("ERR Invalid slot or number of keys"));
    };
    let place = Place { db: DbIndex(0), slot };
    let keys = some_keys(&cx.shared.keyspace, cx.pass(), place, most);
    cx.reply().array(keys.len());
    keys.iter().for_each(|key| cx.reply().bulk(key));
    Ok(())
}

pub fn links(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let links = node(cx)?.look().links();
    let reply = cx.reply();
    reply.array(links.len());
    for link in links {
        reply.map(6);
        reply.bulk(b"direction");
        reply.bulk(if link.is_inbound { b"from" } else { b"to" });
        reply.bulk(b"node");
        reply.bulk(&link.node.digits());
        reply.bulk(b"create-time");
        reply.integer(link.created_ms.cast_signed());
        reply.bulk(b"events");
        reply.bulk(b"r");
        reply.bulk(b"send-buffer-allocated");
        reply.integer(0);
        reply.bulk(b"send-buffer-used");
        reply.integer(0);
    }
    Ok(())
}

pub fn slots(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let is_tls = cx.connection.wire.tls.is_some();
    let endpoint = cx.core.config.cluster.preferred_endpoint;
    let gets_snapshot = cx.shared.replication.upstream.gets_snapshot();
    let cluster = node(cx)?.look();
    let has_data = |node: &Peer| match node.is(NodeFlags::MYSELF) {
        true => !gets_snapshot,
        false => node.offset > 0,
    };
    let ranges = cluster.ranges();
    let reply = &mut cx.connection.reply;
    reply.array(ranges.len());
    for (first, last, owner) in ranges {
        let shard = cluster.shard_of(owner);
        let is_told =
            |node: &&&Peer| node.id == owner || !node.is(NodeFlags::FAIL) && has_data(node);
        let told: Vec<&&Peer> = shard.iter().filter(is_told).collect();
        reply.array(2 + told.len());
        reply.integer(i64::from(first));
        reply.integer(i64::from(last));
        for node in told {
            reply.array(4);
            write_endpoint(reply, node, endpoint);
            reply.integer(i64::from(client_port(node, is_tls)));
            reply.bulk(&node.id.digits());
            let metadata = metadata(node, endpoint);
            reply.map(metadata.len());
            for (name, value) in metadata {
                reply.bulk(name.as_bytes());
                reply.bulk(value.as_bytes());
            }
        }
    }
    Ok(())
}

fn write_endpoint(reply: &mut Reply, node: &Peer, kind: Endpoint) {
    match kind {
        Endpoint::Ip => reply.bulk(node.address.ip.as_bytes()),
        Endpoint::Hostname if node.hostname.is_empty() => reply.bulk(b"?"),
        Endpoint::Hostname => reply.bulk(node.hostname.as_bytes()),
        Endpoint::Unknown => reply.null(),
    }
}

/// How a node can be reached besides.
fn metadata(node: &Peer, kind: Endpoint) -> Vec<(&'static str, &str)> {
    let mut all = Vec::new();
    if kind != Endpoint::Ip {
        all.push(("ip", node.address.ip.as_str()));
    }
    if kind != Endpoint::Hostname && !node.hostname.is_empty() {
        all.push(("hostname", node.hostname.as_str()));
    }
    all
}

pub fn shards(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let endpoint = cx.core.config.cluster.preferred_endpoint;
    let is_loading =
        cx.shared.saving.loading.is_under_way() || cx.shared.replication.upstream.gets_snapshot();
    let own = Own { offset: cx.shared.keyspace.log.end(), is_loading };
    let cluster = node(cx)?.look();
    let primaries: Vec<NodeId> = cluster
        .nodes()
        .filter(|node| node.is_primary() && !node.is(NodeFlags::HANDSHAKE))
        .map(|node| node.id)
        .collect();
    let reply = &mut cx.connection.reply;
    reply.array(primaries.len());
    for primary in primaries {
        let shard = cluster.shard_of(primary);
        let ranges = shard.first().map(|node| node.slots.ranges()).unwrap_or_default();
        reply.map(2);
        reply.bulk(b"slots");
        reply.array(ranges.len() * 2);
        for (first, last) in ranges {
            reply.integer(i64::from(first));
            reply.integer(i64::from(last));
        }
        reply.bulk(b"nodes");
        reply.array(shard.len());
        shard.iter().for_each(|node| write_node(reply, &cluster, node, endpoint, own));
    }
    Ok(())
}

/// What this node knows of itself alone.
#[derive(Clone, Copy)]
struct Own {
    offset: u64,
    is_loading: bool,
}

fn write_node(reply: &mut Reply, cluster: &Cluster, node: &Peer, endpoint: Endpoint, own: Own) {
    let is_me = node.id == cluster.my_id();
    let address = &node.address;
    let ports = [("port", address.port), ("tls-port", address.tls_port)];
    let ports: Vec<_> = ports.into_iter().filter(|(_, port)| *port != 0).collect();
    let has_name = !node.hostname.is_empty();
    reply.map(6 + ports.len() + usize::from(has_name));
    reply.bulk(b"id");
    reply.bulk(&node.id.digits());
    for (name, port) in ports {
        reply.bulk(name.as_bytes());
        reply.integer(i64::from(port));
    }
    reply.bulk(b"ip");
    reply.bulk(address.ip.as_bytes());
    reply.bulk(b"endpoint");
    write_endpoint(reply, node, endpoint);
    if has_name {
        reply.bulk(b"hostname");
        reply.bulk(node.hostname.as_bytes());
    }
    reply.bulk(b"role");
    reply.bulk(if node.is_primary() { b"master" } else { b"replica" });
    reply.bulk(b"replication-offset");
    let offset = if is_me { own.offset } else { node.offset };
    reply.integer(offset.cast_signed());
    reply.bulk(b"health");
    let is_failing = node.is(NodeFlags::PFAIL | NodeFlags::FAIL);
    let is_loading = if is_me { own.is_loading } else { node.is_replica() && node.offset == 0 };
    reply.bulk(match () {
        () if is_failing => b"fail",
        () if is_loading => b"loading",
        () => b"online",
    });
}

/// CLUSTER SLOT-STATS, of Valkey: keys by slot.
pub fn slot_stats(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let words: Vec<Vec<u8>> = cx.args.iter().map(<[u8]>::to_ascii_lowercase).collect();
    let mine: Vec<u16> = node(cx)?.look().my_primary().slots.iter().collect();
    let database = cx.shared.keyspace.database(DbIndex(0), cx.pass());
    let count = |slot: u16| database.slot(slot).len();
    let found: Vec<(u16, usize)> = match words[2].as_slice() {
        b"slotsrange" if words.len() == 5 => {
            let wanted = ranges(cx.args.from(3))?;
            let found = mine.into_iter().filter(|slot| wanted.contains(*slot));
            found.map(|slot| (slot, count(slot))).collect()
        }
        b"orderby" if words.len() >= 4 => {
            if words[3] != b"key-count" {
                return Err(Error::fixed("ERR unrecognized sort metric for ORDERBY."));
            }
            let (mut limit, mut rises) = (usize::from(kvasir_cluster::slots::SLOTS), false);
            let mut rest = words[4..].iter();
            while let Some(word) = rest.next() {
                match word.as_slice() {
                    b"asc" => rises = true,
                    b"desc" => rises = false,
                    b"limit" => {
                        let number = rest.next().and_then(|word| parse_integer(word));
                        let number = number.and_then(|number| usize::try_from(number).ok());
                        let fits = |number: &usize| (1..=16384).contains(number);
                        limit = number.filter(fits).ok_or(Error::fixed(
                            "ERR Limit has to lie in between 1 and 16384 (maximum number of slots).",
                        ))?;
                    }
                    _ => return Err(Error::SYNTAX),
                }
            }
            let mut all: Vec<(u16, usize)> =
                mine.into_iter().map(|slot| (slot, count(slot))).collect();
            all.sort_by(|(slot, count), (other_slot, other)| {
                let order = if rises { count.cmp(other) } else { other.cmp(count) };
                order.then(slot.cmp(other_slot))
            });
            all.truncate(limit);
            all
        }
        _ => return Err(Error::SYNTAX),
    };
    let reply = cx.reply();
    reply.array(found.len());
    for (slot, count) in found {
        reply.array(2);
        reply.integer(i64::from(slot));
        reply.map(1);
        reply.bulk(b"key-count");
        reply.integer(count as i64);
    }
    Ok(())
}

/// Slots are told by the key alone; Valkey tells it without a cluster too.
pub fn key_slot(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let slot = kvasir_structures::crc16::slot_of(&cx.args[2]);
    cx.reply().integer(i64::from(slot));
    Ok(())
}
