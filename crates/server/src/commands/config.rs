//! CONFIG: reading and changing the configuration of the running server.
//!
//! What an option is, and which value it takes, is `crate::config`'s business.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_config::Config;
use kvasir_config::command::{self, SetError};
use kvasir_config::rewrite::{Extent, rewrite_file};
use kvasir_config::row::Row;
use kvasir_config::tls::is_tls;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Group, Spec};
use kvasir_reactor::crash;
use kvasir_structures::glob::{self, Case};

use crate::commands::{ANY_TIME_ADMIN, acl_declared, help_spec, is_word, write_help};
use crate::log::{self, notice, warning};
use crate::machine::process;
use crate::net::listening::Turn;
use crate::run::server::{ServerCommand, ServerCx, ServerRun};
use crate::state::shared::Shared;
use crate::stats::WorkerStats;
use crate::store::aof;
use crate::store::aof::place::Refused;
use crate::store::saving::loading::LOADING;
use crate::tracking;
use crate::workers::Message;

pub static COMMANDS: &[&ServerCommand] = &[&CONFIG];

static CONFIG: ServerCommand = ServerCommand {
    spec: Spec {
        name: "config",
        summary: "Commands about the configuration.",
        since: "2.0.0",
        group: Group::Server,
        complexity: "Depends on subcommand.",
        arity: -2,
        ..Spec::BLANK
    },
    run: ServerRun::Container(&[
        &CONFIG_GET,
        &CONFIG_HELP,
        &CONFIG_RESETSTAT,
        &CONFIG_REWRITE,
        &CONFIG_SET,
    ]),
};

static CONFIG_GET: ServerCommand = ServerCommand {
    spec: Spec {
        name: "get",
        summary: "Tells the values of options whose names match a pattern.",
        since: "2.0.0",
        group: Group::Server,
        complexity: "O(N) in the number of patterns",
        arity: -3,
        flags: ANY_TIME_ADMIN,
        history: &[("7.0.0", "Takes more than one pattern.")],
        arguments: &[Argument::block("parameter", &[Argument::string("parameter")]).multiple()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(get),
};

fn get(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let patterns: Vec<&[u8]> = cx.args.from(2).iter().collect();
    let matches = |pattern: &[u8], name: &[u8]| glob::matches(pattern, name, Case::Ignored);
    let pairs = command::get(&cx.shared.config(), &patterns, matches);
    let workers = cx.shared.workers.len();
    let reply = cx.reply();
    reply.map(pairs.len());
    for (name, value) in pairs {
        reply.bulk(name.as_bytes());
        match (name, value.as_slice()) {
            // Clients read a number.
            ("io-threads", b"auto") => reply.bulk(workers.to_string().as_bytes()),
            (_, value) => reply.bulk(value),
        }
    }
    Ok(())
}

static CONFIG_SET: ServerCommand = ServerCommand {
    spec: Spec {
        name: "set",
        summary: "Changes options, all of those given or none.",
        since: "2.0.0",
        group: Group::Server,
        complexity: "O(N) in the number of options",
        arity: -4,
        flags: ANY_TIME_ADMIN,
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        history: &[("7.0.0", "Takes more than one option.")],
        arguments: &[Argument::block(
            "parameter_value",
            &[Argument::string("parameter"), Argument::string("value")],
        )
        .multiple()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(set),
};

/// A user that is not there would keep all from the metrics.
fn check_metrics_user(shared: &Shared, before: &Config, changed: &Config) -> Result<(), SetError> {
    let user = &changed.metrics.user;
    if *user == before.metrics.user || user.is_empty() || shared.acl.find(user).is_some() {
        return Ok(());
    }
    let (name, reason) = ("metrics-user".into(), "there is no user of this name".into());
    Err(SetError::Failed { name, reason })
}

/// This worker obeys the new values from the next command on, the others from their next turn.
fn set(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let pairs: Vec<&[u8]> = cx.args.from(2).iter().collect();
    let is_local = cx.connection.client.is_local;
    let loading = &cx.shared.saving.loading;
    let is_loading = loading.is_under_way() || loading.is_aside();
    let is_fixed = |name: &&[u8]| is_word(name, "appendonly") || is_word(name, "dir");
    if is_loading && pairs.iter().step_by(2).any(is_fixed) {
        return Err(LOADING);
    }
    let mut had_log = false;
    let changed = cx.shared.change_config(|config| {
        let changed = command::set(config, &pairs, is_local)?;
        had_log = config.aof.appendonly;
        if !had_log && changed.aof.appendonly {
            let is_here = config.dir == changed.dir;
            check_log(cx.shared, if is_here { Path::new(".") } else { &changed.dir }, &changed)?;
        }
        let turn = cx.shared.listeners.turn_to(config, &changed);
        let turn = turn.map_err(|(name, reason)| SetError::Failed {
            name: name.into(),
            reason: reason.into(),
        })?;
        check_metrics_user(cx.shared, config, &changed)?;
        reload_tls(cx.shared, &changed, &pairs)?;
        let changed = change_files(cx.shared, config, changed)?;
        listen_elsewhere(cx.shared, turn)?;
        Ok(changed)
    });
    let config = changed.map_err(|error: SetError| Error::from_bytes(error.message()))?;
    let names =
        |option: &[u8]| pairs.iter().step_by(2).any(|name| name.eq_ignore_ascii_case(option));
    if names(b"requirepass") {
        cx.shared.acl.set_default_password(&config.requirepass);
    }
    if !config.aof.disable_auto_gc && names(b"aof-disable-auto-gc") {
        cx.shared.aof.delete_history();
    }
    cx.core.refresh(cx.shared);
    cx.shared.aof.obey(cx.shared, had_log, &config);
    cx.shared.saving.obey(&config);
    if let Some(node) = &cx.shared.cluster {
        // What others are told at once, this node says at once.
        node.obey(&config);
    }
    cx.shared.tracking.keep_limit(tracking::Scene::of(&cx.shared.clients, cx.worker, &config));
    log::refresh(&cx.core.config);
    crash::want(cx.core.config.crash_log_enabled);
    if let Err(error) = process::adjust_oom_score(&cx.core.config) {
        warning!("oom-score-adj has no effect: {error}");
    }
    cx.shared.send_all(|| Message::Look);
    cx.reply().ok();
    Ok(())
}

/// Has worker 0 accept where the configuration now says.
fn listen_elsewhere(shared: &Shared, turn: Turn<'_>) -> Result<(), SetError> {
    let change = turn
        .complete()
        .map_err(|error| SetError::Failed { name: b"bind".to_vec(), reason: error.to_string() })?;
    if let Some(change) = change {
        shared.send(0, Message::Listen(change));
    }
    Ok(())
}

/// Puts options of TLS in force, if there are any among the pairs, or says to which it is due that
/// nothing changes.
fn reload_tls(shared: &Shared, config: &Config, pairs: &[&[u8]]) -> Result<(), SetError> {
    let names = pairs.iter().step_by(2).filter_map(|name| Row::find(name));
    let Some((_, name)) = { names }.find(|(_, name)| is_tls(name)) else { return Ok(()) };
    shared.tls.reload(&config.tls).map_err(|reason| {
        warning!("TLS configuration was not changed: {reason}");
        let reason = "Unable to update TLS configuration. Check server logs.".into();
        SetError::Failed { name: name.into(), reason }
    })
}

/// Whether an append-only file can be begun in a directory.
fn check_log(shared: &Shared, dir: &Path, config: &Config) -> Result<(), SetError> {
    aof::switch::check(shared, dir, config).map_err(|refused| {
        let reason = match refused {
            Refused::Held(text) => text,
            Refused::Io(text) => {
                warning!("the append-only file can't be turned on: {text}");
                "Unable to turn on AOF. Check server logs.".into()
            }
        };
        SetError::Failed { name: b"appendonly".to_vec(), reason }
    })
}

/// Goes to other files, if the options say so. The last thing that can fail.
fn change_files(shared: &Shared, before: &Config, mut after: Config) -> Result<Config, SetError> {
    let failed = |(name, reason): (&str, String)| SetError::Failed { name: name.into(), reason };
    if before.aof.appendonly && after.aof.appendonly && !is_same_dir(before, &after) {
        let reason = "the append-only file can't move while it is written: set appendonly to no \
                      first, then dir, then appendonly to yes";
        return Err(failed(("dir", reason.into())));
    }
    shared.saving.file.turn_to(before, &after, &shared.facts.identity).map_err(failed)?;
    if before.dir != after.dir {
        // From the root, as at the start.
        after.dir = std::env::current_dir().unwrap_or(after.dir);
        shared.aof.look_around(&after);
    }
    Ok(after)
}

/// A path that leads nowhere is refused by who goes there.
fn is_same_dir(before: &Config, after: &Config) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|dir| (dir.dev(), dir.ino()));
    let Ok(after_is) = identity(&after.dir) else { return true };
    before.dir == after.dir || identity(Path::new(".")).is_ok_and(|before| before == after_is)
}

static CONFIG_RESETSTAT: ServerCommand = ServerCommand {
    spec: Spec {
        name: "resetstat",
        summary: "Sets the counters that INFO reports back to 0.",
        since: "2.0.0",
        group: Group::Server,
        arity: 2,
        flags: ANY_TIME_ADMIN,
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        cx.shared.error_codes.reset();
        cx.shared.http_denied_auth.store(0, Relaxed);
        cx.shared.workers.stats().for_each(WorkerStats::reset);
        cx.shared.over_limit.reset();
        cx.shared.defrag.reset_figures();
        cx.shared.freeing.reset_figures();
        cx.shared.scripts.reset_figures();
        cx.shared.aof.late.reset();
        cx.shared.compression.reset();
        cx.shared.replication.stats.reset();
        cx.reply().ok();
        Ok(())
    }),
};

static CONFIG_REWRITE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "rewrite",
        summary: "Writes the configuration in force back to its file.",
        since: "2.8.0",
        group: Group::Server,
        arity: 2,
        flags: ANY_TIME_ADMIN,
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        if cx.shared.facts.config_file.is_empty() {
            return Err(Error::fixed("ERR The server is running without a config file"));
        }
        rewrite(cx.shared, Extent::Changed).map_err(|error| {
            warning!("CONFIG REWRITE failed error={error}");
            Error::new(format!("ERR Rewriting config file: {error}"))
        })?;
        notice!("CONFIG REWRITE wrote the configuration file");
        cx.reply().ok();
        Ok(())
    }),
};

/// Writes options and users into the file; the error is for the user.
fn rewrite(shared: &Shared, extent: Extent) -> Result<(), String> {
    let (path, config) = (Path::new(&shared.facts.config_file), shared.config());
    let users = acl_declared::lines(shared, &config)?;
    rewrite_file(path, &config, &users, extent).map_err(|error| error.to_string())
}

/// DEBUG CONFIG-REWRITE-FORCE-ALL.
pub fn rewrite_all(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    rewrite(cx.shared, Extent::All)
        .map_err(|error| Error::new(format!("ERR CONFIG-REWRITE-FORCE-ALL failed: {error}")))?;
    cx.reply().ok();
    Ok(())
}

static CONFIG_HELP: ServerCommand = ServerCommand {
    spec: help_spec("5.0.0", Group::Server),
    run: ServerRun::Plain(|cx| {
        write_help(&mut cx.connection.reply, "CONFIG", HELP);
        Ok(())
    }),
};

static HELP: &[&str] = &[
    "GET <pattern> [<pattern> ...]",
    "    Options whose names match, and their values.",
    "RESETSTAT",
    "    Sets the counters of INFO back to 0.",
    "REWRITE",
    "    Writes the configuration in force back to its file.",
    "SET <option> <value> [<option> <value> ...]",
    "    Changes options, all or none.",
];
