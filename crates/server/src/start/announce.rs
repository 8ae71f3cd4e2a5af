//! What the server says of itself at its start: words by which people and tools know it.
//!
//! Service managers, containers, test suites and packages look for Redis's phrases; ours are in the
//! same places, with fields behind them.

use std::path::Path;

use kvasir_config::Config;
use kvasir_config::load::Ignored;
use kvasir_reactor::limits;
use kvasir_reactor::sandbox::Optional;

use crate::log::{self, debug, notice};
use crate::machine::version::REDIS_VERSION;
use crate::state::shared::Shared;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What `--version` prints: first the line that tools read a Redis's version from.
pub fn version() -> String {
    let bits = usize::BITS;
    format!(
        "Redis server v={REDIS_VERSION} sha=00000000:0 malloc=mimalloc bits={bits} \
         build=kvasir-{VERSION}\n\
         Kvasir server v={VERSION}\n"
    )
}

/// The first lines of the log, with a banner if that is wanted.
pub fn start(config: &Config, file: Option<&Path>) {
    let (bits, pid) = (usize::BITS, limits::pid());
    notice!(
        "Kvasir is starting version={VERSION} redis_version={REDIS_VERSION} malloc=mimalloc \
         bits={bits} pid={pid}"
    );
    match file {
        Some(file) => notice!("Configuration loaded file={}", file.display()),
        None => notice!("no config file specified, using the default config"),
    }
    let port = if config.port == 0 { config.tls.port } else { config.port };
    let mode = if config.cluster.enabled { "cluster" } else { "standalone" };
    match config.always_show_logo {
        true => log::write_raw(&banner(port, mode)),
        false => notice!("Running mode={mode}, port={port}."),
    }
}

fn banner(port: u16, mode: &str) -> String {
    format!(
        r"
        .-~~~-.
       /       \      Kvasir {VERSION} (Redis {REDIS_VERSION}) {} bit
      |  ~ ~ ~  |
      |  ~ ~ ~  |\    Running in {mode} mode
      |  ~ ~ ~  | |   Port: {port}
      |  ~ ~ ~  |/    PID: {}
       \_______/

",
        usize::BITS,
        limits::pid()
    )
}

/// Says that clients can connect, though there may be data to load yet.
pub fn initialized() {
    notice!("Server initialized");
}

/// Says that options of the configuration are not obeyed: which, and on request why.
pub fn ignored(ignored: &[Ignored]) {
    if ignored.is_empty() {
        return;
    }
    let names: Vec<&str> = ignored.iter().map(|option| option.name).collect();
    notice!("options have no effect, loglevel debug says why names={}", names.join(","));
    for Ignored { name, why } in ignored {
        debug!("option without effect name={name} reason={why}");
    }
}

/// Says what the server goes on without.
pub fn sandbox() {
    for deadly in Optional::ALL.iter().filter(|optional| optional.is_deadly()) {
        notice!("a system call filter kills who calls {}: going on without", deadly.calls());
    }
}

/// What is served where, for the person who started it.
pub fn ready(config: &Config, shared: &Shared) {
    let mut places = Vec::new();
    let bind = config.bind.join(",");
    if config.port != 0 {
        places.push(format!("port={} bind={bind}", config.port));
    }
    if config.tls.port != 0 {
        places.push(format!("tls-port={} bind={bind}", config.tls.port));
    }
    if !config.unixsocket.as_os_str().is_empty() {
        places.push(format!("unixsocket={}", config.unixsocket.display()));
    }
    let memcached = &config.memcached;
    if memcached.port != 0 {
        places.push(format!("memcached-port={} bind={bind}", memcached.port));
    }
    if !memcached.unixsocket.as_os_str().is_empty() {
        places.push(format!("memcached-unixsocket={}", memcached.unixsocket.display()));
    }
    if config.metrics.port != 0 {
        let bind = config.metrics.bind.join(",");
        places.push(format!("metrics-port={} bind={bind}", config.metrics.port));
    }
    notice!(
        "Ready to accept connections {} workers={} io={} databases={} keys={}",
        places.join(" "),
        shared.workers.len(),
        shared.facts.backend,
        config.databases,
        keys(shared),
    );
}

/// However they came.
fn keys(shared: &Shared) -> usize {
    let (keyspace, pass) = (&shared.keyspace, shared.gate.enter_extra());
    keyspace.indexes().map(|db| keyspace.database(db, &pass).len()).sum()
}
