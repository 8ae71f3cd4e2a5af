//! The line that CLIENT LIST and CLIENT INFO show of a client, in Valkey 9.1's format.
//!
//! A client of memcached's protocol has a field more, and so has one with a ring; one that a graph
//! is computed for has two. Figures that have no meaning here are 0, or -1 where Redis says so for
//! "none".

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_pubsub::Kind;
use kvasir_table::Table;

use crate::clients::Client;
use crate::clients::tracker::{Mode, Tracker, redirect};

/// Appends one client's line, without a line end.
pub fn write_line(out: &mut String, client: &Client, table: &Table, now_ms: u64) {
    let seconds_since = |ms: u64| now_ms.saturating_sub(ms) / 1000;
    let names = client.names();
    let input = client.input_bytes.load(Relaxed);
    let output = client.output_bytes.load(Relaxed);
    let subscriptions = |kind: Kind| client.subscriptions[kind as usize].load(Relaxed);
    let command = table.entries().get(client.last_command.load(Relaxed));
    let queued = client.queued_bytes.load(Relaxed);
    let capabilities = if client.can_redirect.load(Relaxed) { "r" } else { "" };
    let tracker = client.tracker();
    let fields: [(&str, &dyn std::fmt::Display); 35] = [
        ("id", &client.id),
        ("addr", &client.address),
        ("laddr", &client.local_address),
        ("fd", &client.descriptor),
        ("name", &names.name),
        ("age", &seconds_since(client.created_ms)),
        ("idle", &seconds_since(client.last_ms.load(Relaxed))),
        ("flags", &flags(client)),
        ("capa", &capabilities),
        ("db", &client.db.load(Relaxed)),
        ("sub", &subscriptions(Kind::Channel)),
        ("psub", &subscriptions(Kind::Pattern)),
        ("ssub", &subscriptions(Kind::ShardChannel)),
        ("multi", &client.queued.load(Relaxed)),
        ("watch", &client.watched.load(Relaxed)),
        ("qbuf", &input),
        ("qbuf-free", &0),
        ("argv-mem", &0),
        ("multi-mem", &queued),
        ("rbs", &0),
        ("rbp", &0),
        ("obl", &0),
        ("oll", &0),
        ("omem", &output),
        ("tot-mem", &client.memory_bytes()),
        ("events", &"r"),
        ("cmd", &command.map_or("NULL", |entry| &entry.full_name)),
        ("user", &String::from_utf8_lossy(&names.user)),
        ("redir", &redirect(tracker.as_deref())),
        ("resp", &client.protocol.load(Relaxed)),
        ("lib-name", &names.library),
        ("lib-ver", &names.library_version),
        ("tot-net-in", &client.received_bytes.load(Relaxed)),
        ("tot-net-out", &client.sent_bytes.load(Relaxed)),
        ("tot-cmds", &client.commands.load(Relaxed)),
    ];
    for (index, (name, value)) in fields.iter().enumerate() {
        let space = if index == 0 { "" } else { " " };
        let _ = write!(out, "{space}{name}={value}");
    }
    if let Some(job) = client.job() {
        let _ = write!(out, " job={} progress={}", job.id, job.progress());
    }
    if client.is_memcached {
        out.push_str(" protocol=memcached");
    }
    let ring_bytes = client.ring_bytes.load(Relaxed);
    if ring_bytes > 0 {
        let _ = write!(out, " ring={ring_bytes}");
    }
}

/// The flags that a client may have here or elsewhere, as filters take them.
pub const FLAGS: &str = "AbcdeiNMOPSTUuxtRBrI";

/// `M` is the primary, `O` monitors, `S` replicates, `P` subscribes to something, `x` is in a
/// transaction, `b` waits for a key or the end of a pause, `t` tracks keys, `R` in the place of a
/// client that has gone, `B` in broadcasting mode, `U` a unix socket, `e` kept from eviction, `T`
/// leaves no trace in the access clocks, `N` none of these.
pub fn flags(client: &Client) -> String {
    let tracker = client.tracker();
    let tracks = |is_so: fn(&Tracker) -> bool| tracker.as_deref().is_some_and(is_so);
    let all = [
        ('O', client.is_monitor.load(Relaxed)),
        ('S', client.is_replica.load(Relaxed)),
        ('M', client.is_primary.load(Relaxed)),
        ('P', client.is_subscriber()),
        ('x', client.queued.load(Relaxed) >= 0),
        ('b', client.is_blocked.load(Relaxed) || client.is_postponed.load(Relaxed)),
        ('t', tracker.is_some()),
        ('R', tracks(|tracker| tracker.is_broken.load(Relaxed))),
        ('B', tracks(|tracker| tracker.mode == Mode::Broadcast)),
        ('U', client.is_unix),
        ('e', client.no_evict.load(Relaxed)),
        ('T', client.no_touch.load(Relaxed)),
    ];
    let set: String = all.into_iter().filter_map(|(flag, is_set)| is_set.then_some(flag)).collect();
    if set.is_empty() { "N".into() } else { set }
}
