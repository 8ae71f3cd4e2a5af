//! CLIENT: what a connection says of itself, and what is known of all of them.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Flags, Group, Spec};

use crate::clients::Client;
use crate::clients::line::write_line;
use crate::commands::client_durability::CLIENT_DURABILITY;
use crate::commands::client_kill::CLIENT_KILL;
use crate::commands::client_list::CLIENT_LIST;
use crate::commands::client_pause::{CLIENT_PAUSE, CLIENT_UNPAUSE};
use crate::commands::client_ring::CLIENT_RING;
use crate::commands::client_trace::CLIENT_TRACE;
use crate::commands::client_tracking::{
    CLIENT_CACHING, CLIENT_GETREDIR, CLIENT_TRACKING, CLIENT_TRACKINGINFO,
};
use crate::commands::client_unblock::CLIENT_UNBLOCK;
use crate::commands::{
    ANY_TIME_ADMIN, ANY_TIME_NOSCRIPT, ON_OFF, help_spec, is_word, parse_switch, write_help,
};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};
use crate::state::connection::Replies;

pub static COMMANDS: &[&ServerCommand] = &[&CLIENT];

static CLIENT: ServerCommand = ServerCommand {
    spec: Spec {
        name: "client",
        summary: "Commands about client connections.",
        since: "2.4.0",
        group: Group::Connection,
        complexity: "Depends on subcommand.",
        arity: -2,
        ..Spec::BLANK
    },
    run: ServerRun::Container(&[
        &CLIENT_CACHING,
        &CLIENT_CAPA,
        &CLIENT_DURABILITY,
        &CLIENT_GETNAME,
        &CLIENT_GETREDIR,
        &CLIENT_HELP,
        &CLIENT_ID,
        &CLIENT_INFO,
        &CLIENT_KILL,
        &CLIENT_LIST,
        &CLIENT_NO_EVICT,
        &CLIENT_NO_TOUCH,
        &CLIENT_PAUSE,
        &CLIENT_REPLY,
        &CLIENT_RING,
        &CLIENT_SETINFO,
        &CLIENT_SETNAME,
        &CLIENT_TRACE,
        &CLIENT_TRACKING,
        &CLIENT_TRACKINGINFO,
        &CLIENT_UNBLOCK,
        &CLIENT_UNPAUSE,
    ]),
};

static CLIENT_ID: ServerCommand = ServerCommand {
    spec: Spec {
        name: "id",
        summary: "Tells the connection's id, which no other connection of this run has.",
        since: "5.0.0",
        group: Group::Connection,
        arity: 2,
        flags: ANY_TIME_NOSCRIPT,
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        let id = cx.connection.client.id as i64;
        cx.reply().integer(id);
        Ok(())
    }),
};

static CLIENT_INFO: ServerCommand = ServerCommand {
    spec: Spec {
        name: "info",
        summary: "Describes the connection on one line.",
        since: "6.2.0",
        group: Group::Connection,
        arity: 2,
        flags: ANY_TIME_NOSCRIPT,
        tips: &["nondeterministic_output"],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        let client = std::sync::Arc::clone(&cx.connection.client);
        write_lines(cx, [&*client]);
        Ok(())
    }),
};

pub fn write_lines<'c>(cx: &mut ServerCx<'_>, clients: impl IntoIterator<Item = &'c Client>) {
    let mut text = String::new();
    for client in clients {
        write_line(&mut text, client, &cx.shared.table, cx.core.env.now_ms);
        text.push('\n');
    }
    cx.reply().verbatim(b"txt", text.as_bytes());
}

static CLIENT_SETNAME: ServerCommand = ServerCommand {
    spec: Spec {
        name: "setname",
        summary: "Names the connection.",
        since: "2.6.9",
        group: Group::Connection,
        arity: 3,
        flags: ANY_TIME_NOSCRIPT,
        arguments: &[Argument::string("connection-name")],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        let args = cx.args;
        set_name(cx, &args[2])?;
        cx.reply().ok();
        Ok(())
    }),
};

/// Names the client; an empty name takes the name away.
pub fn set_name(cx: &mut ServerCx<'_>, name: &[u8]) -> Result<(), Error> {
    let name = plain_text(name).ok_or(Error::fixed(
        "ERR Client names cannot contain spaces, newlines or special characters.",
    ))?;
    cx.connection.client.rename(|names| names.name = name);
    Ok(())
}

/// Text that cannot break the format of CLIENT LIST.
fn plain_text(bytes: &[u8]) -> Option<String> {
    let text = bytes.iter().all(u8::is_ascii_graphic).then(|| bytes.to_vec())?;
    String::from_utf8(text).ok()
}

static CLIENT_GETNAME: ServerCommand = ServerCommand {
    spec: Spec {
        name: "getname",
        summary: "Tells the connection's name.",
        since: "2.6.9",
        group: Group::Connection,
        arity: 2,
        flags: ANY_TIME_NOSCRIPT,
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        let name = cx.connection.client.names().name;
        match name.as_str() {
            "" => cx.reply().null(),
            name => cx.reply().bulk(name.as_bytes()),
        }
        Ok(())
    }),
};

static CLIENT_SETINFO: ServerCommand = ServerCommand {
    spec: Spec {
        name: "setinfo",
        summary: "Notes which client library uses the connection, and its version.",
        since: "7.2.0",
        group: Group::Connection,
        arity: 4,
        flags: ANY_TIME_NOSCRIPT,
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        arguments: &[Argument::one_of(
            "attr",
            &[
                Argument::string("libname").token("LIB-NAME"),
                Argument::string("libver").token("LIB-VER"),
            ],
        )],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(set_info),
};

fn set_info(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let (attribute, value) = (&cx.args[2], plain_text(&cx.args[3]));
    let is_name = is_word(attribute, "lib-name");
    if !is_name && !is_word(attribute, "lib-ver") {
        return Err(Error::quoting("ERR Unrecognized option '", attribute, "'"));
    }
    let wrong = " cannot contain spaces, newlines or special characters.";
    let value = value.ok_or_else(|| Error::quoting("ERR ", attribute, wrong))?;
    cx.connection.client.rename(|names| match is_name {
        true => names.library = value,
        false => names.library_version = value,
    });
    cx.reply().ok();
    Ok(())
}

static CLIENT_REPLY: ServerCommand = ServerCommand {
    spec: Spec {
        name: "reply",
        summary: "Turns replies off and on, or drops that to the next command.",
        since: "3.2.0",
        group: Group::Connection,
        arity: 3,
        flags: ANY_TIME_NOSCRIPT.union(Flags::NO_MULTI),
        arguments: &[Argument::one_of(
            "on_off_skip",
            &[
                Argument::word("on", "ON"),
                Argument::word("off", "OFF"),
                Argument::word("skip", "SKIP"),
            ],
        )],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(reply),
};

/// Only ON answers.
fn reply(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let mode = &cx.args[2];
    if is_word(mode, "on") {
        cx.connection.output.replies = Replies::On;
        cx.reply().ok();
    } else if is_word(mode, "off") {
        cx.connection.output.replies = Replies::Off;
    } else if is_word(mode, "skip") {
        if cx.connection.output.replies != Replies::Off {
            cx.connection.output.replies = Replies::SkipNext;
        }
    } else {
        return Err(Error::SYNTAX);
    }
    Ok(())
}

static CLIENT_NO_EVICT: ServerCommand = ServerCommand {
    spec: Spec {
        name: "no-evict",
        summary: "Keeps the connection from being closed to save memory.",
        since: "7.0.0",
        group: Group::Connection,
        arity: 3,
        flags: ANY_TIME_ADMIN,
        arguments: &[Argument::one_of("enabled", ON_OFF)],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        let is_on = parse_switch(&cx.args[2], "on", "off")?;
        cx.connection.client.no_evict.store(is_on, Relaxed);
        cx.reply().ok();
        Ok(())
    }),
};

static CLIENT_NO_TOUCH: ServerCommand = ServerCommand {
    spec: Spec {
        name: "no-touch",
        summary: "Lets the connection's commands read keys without noting the access.",
        since: "7.2.0",
        group: Group::Connection,
        arity: 3,
        flags: ANY_TIME_NOSCRIPT,
        arguments: &[Argument::one_of("enabled", ON_OFF)],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        let is_on = parse_switch(&cx.args[2], "on", "off")?;
        cx.connection.client.no_touch.store(is_on, Relaxed);
        cx.reply().ok();
        Ok(())
    }),
};

static CLIENT_CAPA: ServerCommand = ServerCommand {
    spec: Spec {
        name: "capa",
        summary: "Says what the client can do beyond the protocol.",
        since: "8.0.0",
        group: Group::Connection,
        arity: -3,
        flags: ANY_TIME_NOSCRIPT.union(Flags::ALLOW_BUSY),
        arguments: &[Argument::string("capability").multiple()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        let can_redirect = cx.args.from(2).iter().any(|word| is_word(word, "redirect"));
        cx.connection.client.can_redirect.fetch_or(can_redirect, Relaxed);
        cx.reply().ok();
        Ok(())
    }),
};

static CLIENT_HELP: ServerCommand = ServerCommand {
    spec: help_spec("5.0.0", Group::Connection),
    run: ServerRun::Plain(|cx| {
        write_help(&mut cx.connection.reply, "CLIENT", HELP);
        Ok(())
    }),
};

static HELP: &[&str] = &[
    "CACHING (YES|NO)",
    "    Whether this connection caches what its next call reads, in the modes OPTIN and OPTOUT.",
    "CAPA <option> [<option> ...]",
    "    Says what the client can do: REDIRECT, to follow a move to another server.",
    "DURABILITY [ALWAYS|EVERYSEC|NO|DEFAULT]",
    "    What this connection asks of the disk, where the server does less for everybody: ALWAYS,",
    "    that replies wait until what they tell of is there. Without a word: what holds.",
    "GETNAME",
    "    The name of this connection.",
    "GETREDIR",
    "    Which client is told of changes to keys in this one's place.",
    "ID",
    "    The id of this connection.",
    "INFO",
    "    This connection on one line.",
    "KILL <ip:port>",
    "    Closes the connection from this address.",
    "KILL <filter> <value> [<filter> <value> [...]]",
    "    Closes connections to which all filters of LIST apply; this one only with SKIPME NO.",
    "LIST [<filter> <value> [...]]",
    "    Connections, each on a line; with filters those to which all apply:",
    "    * ID <client-id> [<client-id> ...]",
    "    * ADDR (<ip:port>|<unixsocket>:0): where it comes from.",
    "    * LADDR (<ip:port>|<unixsocket>:0): where it arrived.",
    "    * IP <ip>: the address without the port.",
    "    * TYPE (NORMAL|PRIMARY|REPLICA|PUBSUB)",
    "    * USER <username>",
    "    * NAME <name>",
    "    * LIB-NAME <name>, LIB-VER <version>: of the client library.",
    "    * FLAGS <flags>: has all of them.",
    "    * CAPA <capa>: has said that it can do this.",
    "    * DB <number>: the selected database.",
    "    * MAXAGE <seconds>: open for at least so long.",
    "    * IDLE <seconds>: silent for at least so long.",
    "    * SKIPME (YES|NO): whether to leave this connection out.",
    "    All but the last three can have NOT- in front.",
    "NO-EVICT (ON|OFF)",
    "    Keeps this connection from being closed to save memory.",
    "NO-TOUCH (ON|OFF)",
    "    Reads keys without noting the access.",
    "PAUSE <milliseconds> [WRITE|ALL]",
    "    Puts calls off for this long: those that may write, or all.",
    "REPLY (ON|OFF|SKIP)",
    "    Whether this connection gets replies; SKIP drops one.",
    "RING [SIZE <bytes>]",
    "    Has this connection go on through memory that it shares with the server: for clients",
    "    of this machine that know how.",
    "SETINFO (LIB-NAME|LIB-VER) <value>",
    "    Notes the client library of this connection.",
    "SETNAME <name>",
    "    Names this connection.",
    "TRACKING (ON|OFF) [REDIRECT <client-id>] [BCAST] [PREFIX <prefix> [...]]",
    "         [OPTIN] [OPTOUT] [NOLOOP]",
    "    Tells this connection of changes to keys that it may cache.",
    "TRACKINGINFO",
    "    How this connection tracks keys.",
    "UNBLOCK <client-id> [TIMEOUT|ERROR]",
    "    Ends the wait of a client for a key, as if its time were over, or with an error;",
    "    for the disk or for replicas with an error, and what was written stands.",
    "UNPAUSE",
    "    Ends the pause.",
];
