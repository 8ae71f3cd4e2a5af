//! Whether a call's keys are this node's: MOVED, ASK and their kin.
//!
//! Where all keys are in one slot of this node's, that is one load. In a slot that moves it depends
//! on whether its keys are here, so such a call runs as a session, which looks while it holds them.

use kvasir_analytics::selection::Served;
use kvasir_cluster::view::Place;
use kvasir_config::cluster::Endpoint;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Flags, KeyFlags, Traits};
use kvasir_resp::args::Args;
use kvasir_structures::crc16;
use kvasir_table::Entry;

use crate::calls::invocation::Invocation;
use crate::cluster::Node;
use crate::scripts::writes::says_that_it_writes;
use crate::state::connection::transaction::Queued;
use crate::state::connection::{Asks, Connection};
use crate::state::shared::Shared;

const CROSS_SLOT: Error = Error::fixed("CROSSSLOT Keys in request don't hash to the same slot");
pub const TRY_AGAIN: Error =
    Error::fixed("TRYAGAIN Multiple keys request during rehashing of slot");
const DOWN: Error = Error::fixed("CLUSTERDOWN The cluster is down");
const DOWN_READS: Error =
    Error::fixed("CLUSTERDOWN The cluster is down and only accepts read commands");
/// Its slot is being handed over to another node: the call waits for some milliseconds, and only
/// where it cannot is its client told so.
pub const HELD: Error = Error::fixed("TRYAGAIN The slot is being handed over to another node");
/// A key is being sent to another node, and would be written to: as above.
pub const IN_FLIGHT: Error = Error::fixed("TRYAGAIN The key is being sent to another node");
pub const UNBOUND: Error = Error::fixed("CLUSTERDOWN Hash slot not served");

/// What a call may do, as far as its slot says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    Here,
    /// Its slot is on its way, so it depends on which of its keys are here.
    Moving(Moving),
}

/// A slot on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moving {
    pub slot: u16,
    /// To this node.
    pub is_import: bool,
}

/// How many of a call's keys are here.
#[derive(Clone, Copy)]
pub struct Found {
    pub present: usize,
    pub missing: usize,
}

/// What of a connection and its call decides.
#[derive(Clone, Copy)]
pub struct Wish {
    /// Was sent here by an -ASK.
    pub asks: bool,
    /// Takes old data.
    pub reads_replicas: bool,
    pub writes: bool,
    pub is_pubsub: bool,
    pub is_tls: bool,
}

impl Wish {
    pub fn of(shared: &Shared, connection: &Connection, entry: &Entry, args: Args<'_>) -> Wish {
        let spec = &entry.spec;
        Wish {
            asks: connection.routing.asks != Asks::No
                || spec.flags.contains(Flags::ASKING)
                || spec.traits.contains(Traits::SENDS_KEYS),
            reads_replicas: connection.routing.reads_replicas,
            writes: says_that_it_writes(&shared.scripts, &shared.libraries, entry, args),
            is_pubsub: spec.flags.contains(Flags::PUBSUB),
            is_tls: connection.wire.tls.is_some(),
        }
    }

    /// Of a write that was prepared while its client waited, which was let in: in a slot that comes
    /// here, since it asked.
    pub fn late(is_tls: bool) -> Wish {
        Wish { asks: true, reads_replicas: false, writes: true, is_pubsub: false, is_tls }
    }
}

/// Where a call that has come may run.
#[inline]
pub fn route(
    shared: &Shared,
    node: &Node,
    connection: &Connection,
    call: &Invocation<'_>,
) -> Result<Route, Error> {
    if let Some([key]) = call.planned
        && node.routes.is_own(key.slot)
    {
        return Ok(Route::Here);
    }
    route_any(shared, node, connection, call)
}

fn route_any(
    shared: &Shared,
    node: &Node,
    connection: &Connection,
    call: &Invocation<'_>,
) -> Result<Route, Error> {
    let Invocation { entry, args, planned } = *call;
    // Is looked at with all that was queued, when it runs.
    if entry.spec.traits.contains(Traits::RUNS_QUEUED) {
        let is_held = node.handovers.holds_any() && has_held(node, connection);
        return if is_held { Err(HELD) } else { Ok(Route::Here) };
    }
    let slot = match planned.filter(|keys| !keys.is_empty()) {
        Some(keys) => one_slot(keys.iter().map(|key| key.slot))?,
        None => one_slot(slots_of(entry, args).into_iter())?,
    };
    match slot {
        None => Ok(Route::Here),
        Some(slot) => {
            let wish = Wish::of(shared, connection, entry, args);
            route_slot(shared, node, slot, wish)
        }
    }
}

/// Whether calls that were queued are about a slot that is being handed over.
fn has_held(node: &Node, connection: &Connection) -> bool {
    let Some(transaction) = &connection.multi.transaction else { return false };
    transaction.calls.iter().any(|Queued { entry, args }| {
        slots_of(entry, args.as_args()).into_iter().any(|slot| node.holds(slot))
    })
}

/// The slot of all keys, if there are any.
pub fn one_slot(mut slots: impl Iterator<Item = u16>) -> Result<Option<u16>, Error> {
    let Some(first) = slots.next() else { return Ok(None) };
    if slots.all(|slot| slot == first) { Ok(Some(first)) } else { Err(CROSS_SLOT) }
}

/// Slots of the keys, and of the shard channels, that a call names.
pub fn slots_of(entry: &Entry, args: Args<'_>) -> Vec<u16> {
    let mut slots = Vec::new();
    let spec = entry.spec;
    // Malformed calls have no keys, and fail when they run.
    let _ = kvasir_table::keys::each_key_used(entry.spec, args, |arg, _| {
        slots.push(crc16::slot_of(&args[arg]));
    });
    let has_channels = spec.flags.contains(Flags::PUBSUB)
        && spec.keys.iter().any(|key| key.flags.contains(KeyFlags::NOT_KEY));
    if has_channels {
        let all = if spec.arity < 0 { args.len() } else { args.len().min(2) };
        slots.extend((1..all).map(|arg| crc16::slot_of(&args[arg])));
    }
    slots
}

/// Where calls about one slot run.
pub fn route_slot(shared: &Shared, node: &Node, slot: u16, wish: Wish) -> Result<Route, Error> {
    if node.routes.is_own(slot) {
        return Ok(Route::Here);
    }
    let takes_old_data = wish.reads_replicas || wish.is_pubsub;
    if !wish.writes && takes_old_data && node.routes.is_readable(slot) {
        return Ok(Route::Here);
    }
    let cluster = node.look();
    let config = shared.config();
    let place = cluster.place(slot);
    if place == Place::Unbound {
        return Err(UNBOUND);
    }
    if !cluster.is_ok() {
        let of = &config.cluster;
        match () {
            () if wish.is_pubsub => {
                if !of.allows_pubsubshard_when_down {
                    return Err(DOWN);
                }
            }
            () if !of.allows_reads_when_down => return Err(DOWN),
            () if wish.writes => return Err(DOWN_READS),
            () => {}
        }
    }
    match place {
        Place::Unbound => Err(UNBOUND),
        Place::Mine if node.holds(slot) && !wish.is_pubsub => Err(HELD),
        Place::Mine => Ok(Route::Here),
        // Channels do not move: who has the slot has them, and who asks listens at the next owner.
        Place::Migrating(_) if wish.is_pubsub => Ok(Route::Here),
        Place::Migrating(_) => Ok(Route::Moving(Moving { slot, is_import: false })),
        Place::Importing(_) if wish.asks && wish.is_pubsub => Ok(Route::Here),
        Place::Importing(_) if wish.asks => Ok(Route::Moving(Moving { slot, is_import: true })),
        Place::Importing(_) | Place::Elsewhere(_) => {
            let owner = cluster.owner(slot);
            let is_mine = owner.is_some_and(|owner| Some(owner.id) == cluster.me().primary);
            if is_mine && takes_old_data && !wish.writes {
                return Ok(Route::Here);
            }
            match owner {
                None => Err(UNBOUND),
                Some(owner) => Err(Error::new(format!(
                    "MOVED {slot} {}",
                    endpoint(owner, config.cluster.preferred_endpoint, wish.is_tls)
                ))),
            }
        }
    }
}

/// Whose keys a call may see that names none: in a cluster, those that this node or its primary
/// has; what is on its way here, or is left of what has gone, is another's.
pub fn served(shared: &Shared) -> Option<Served> {
    let cluster = shared.cluster.as_ref()?.look();
    let primary = cluster.my_primary().id;
    let is_served = |slot| match cluster.place(slot) {
        Place::Mine | Place::Migrating(_) => true,
        Place::Elsewhere(owner) => owner == primary,
        Place::Importing(_) | Place::Unbound => false,
    };
    let all: Vec<bool> = (0..crc16::SLOTS).map(is_served).collect();
    Some(Box::new(move |slot| all[usize::from(slot)]))
}

/// What a call on a moving slot comes to.
pub fn judge_moving(
    shared: &Shared,
    node: &Node,
    moving: Moving,
    found: Found,
    is_tls: bool,
) -> Result<(), Error> {
    let (Moving { slot, is_import }, Found { present, missing }) = (moving, found);
    if missing == 0 {
        return Ok(());
    }
    if is_import {
        // Of one key that is not here nobody else knows either: it was sent here.
        return if present + missing > 1 { Err(TRY_AGAIN) } else { Ok(()) };
    }
    if present > 0 {
        return Err(TRY_AGAIN);
    }
    let cluster = node.look();
    let Place::Migrating(to) = cluster.place(slot) else { return Ok(()) };
    let Some(to) = cluster.node(to) else { return Ok(()) };
    let endpoint_type = shared.config().cluster.preferred_endpoint;
    Err(Error::new(format!("ASK {slot} {}", endpoint(to, endpoint_type, is_tls))))
}

/// `host:port` as clients are told it.
pub fn endpoint(node: &kvasir_cluster::node::Node, kind: Endpoint, is_tls: bool) -> String {
    let host = match kind {
        Endpoint::Ip => node.address.ip.as_str(),
        Endpoint::Hostname if node.hostname.is_empty() => "?",
        Endpoint::Hostname => node.hostname.as_str(),
        Endpoint::Unknown => "",
    };
    format!("{host}:{}", client_port(node, is_tls))
}

/// The port for clients that come as this one did.
pub fn client_port(node: &kvasir_cluster::node::Node, is_tls: bool) -> u16 {
    match (is_tls, node.address.tls_port, node.address.port) {
        (true, port, _) if port != 0 => port,
        (_, port, 0) => port,
        (_, _, port) => port,
    }
}
