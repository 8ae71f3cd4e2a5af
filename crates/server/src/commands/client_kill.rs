//! CLIENT KILL: closing connections by address, or by filters that must all apply.

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Group, Spec};

use crate::clients::Client;
use crate::commands::ANY_TIME_ADMIN;
use crate::commands::client_filter::{Filter, NOT_TYPES, TYPES, YES_NO};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};
use crate::workers::Message;

pub static CLIENT_KILL: ServerCommand = ServerCommand {
    spec: Spec {
        name: "kill",
        summary: "Closes connections.",
        since: "2.4.0",
        group: Group::Connection,
        complexity: "O(N) in the number of connections",
        arity: -3,
        flags: ANY_TIME_ADMIN,
        history: &[
            ("2.8.12", "Takes filters instead of an address."),
            ("2.8.12", "Has the filter `ID`."),
            ("3.2.0", "`TYPE` can be `master`."),
            ("5.0.0", "`TYPE` can be `replica`, of which `slave` is the older name."),
            ("6.2.0", "Has the filter `LADDR`."),
            ("8.0.0", "Has the filter `MAXAGE`."),
            ("8.0.0", "`TYPE` can be `primary`, of which `master` is the older name."),
            ("8.1.0", "`ID` takes several ids."),
            (
                "9.0.0",
                "Has filters by name, idle time, flags, library, database, capability and IP, and \
                 `NOT-` in front of most.",
            ),
        ],
        arguments: &[Argument::one_of(
            "filter",
            &[Argument::string("old-format"), Argument::one_of("new-format", NEW_FORM).multiple()],
        )],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(kill),
};

static NEW_FORM: &[Argument] = &[
    Argument::integer("client-id").token("ID").since("2.8.12").optional().multiple(),
    Argument::one_of("client-type", TYPES).token("TYPE").since("2.8.12").optional(),
    Argument::string("username").token("USER").optional(),
    Argument::string("addr").token("ADDR").optional(),
    Argument::string("laddr").token("LADDR").since("6.2.0").optional(),
    Argument::one_of("skipme", YES_NO).token("SKIPME").optional(),
    Argument::integer("maxage").token("MAXAGE").since("8.0.0").optional(),
    Argument::string("name").token("NAME").since("9.0.0").optional(),
    Argument::integer("idle").token("IDLE").since("9.0.0").optional(),
    Argument::string("flags").token("FLAGS").since("9.0.0").optional(),
    Argument::string("lib-name").token("LIB-NAME").since("9.0.0").optional(),
    Argument::string("lib-ver").token("LIB-VER").since("9.0.0").optional(),
    Argument::integer("db").token("DB").since("9.0.0").optional(),
    Argument::string("capa").token("CAPA").since("9.0.0").optional(),
    Argument::string("ip").token("IP").since("9.0.0").optional(),
    Argument::one_of("not-client-type", NOT_TYPES).token("NOT-TYPE").since("9.0.0").optional(),
    Argument::integer("not-client-id").token("NOT-ID").since("9.0.0").optional().multiple(),
    Argument::string("not-username").token("NOT-USER").since("9.0.0").optional(),
    Argument::string("not-addr").token("NOT-ADDR").since("9.0.0").optional(),
    Argument::string("not-laddr").token("NOT-LADDR").since("9.0.0").optional(),
    Argument::string("not-name").token("NOT-NAME").since("9.0.0").optional(),
    Argument::string("not-flags").token("NOT-FLAGS").since("9.0.0").optional(),
    Argument::string("not-lib-name").token("NOT-LIB-NAME").since("9.0.0").optional(),
    Argument::string("not-lib-ver").token("NOT-LIB-VER").since("9.0.0").optional(),
    Argument::integer("not-db").token("NOT-DB").since("9.0.0").optional(),
    Argument::string("not-capa").token("NOT-CAPA").since("9.0.0").optional(),
    Argument::string("not-ip").token("NOT-IP").since("9.0.0").optional(),
];

fn kill(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let args = cx.args;
    let is_old_form = args.len() == 3;
    let filter = match is_old_form {
        true => Filter::of_address(&args[2]),
        false => Filter::parse(args, true, cx.shared, cx.core.config.databases)?,
    };
    let (caller, now_ms) = (cx.connection.client.id, cx.core.env.now_ms);
    let all = cx.shared.clients.all();
    let matching = all.iter().filter(|client| filter.applies(client, caller, now_ms));
    let killed = matching.map(|client| close(cx, client)).count();
    match (is_old_form, killed) {
        (true, 0) => return Err(Error::fixed("ERR No such client")),
        (true, _) => cx.reply().ok(),
        (false, _) => cx.reply().integer(killed as i64),
    }
    Ok(())
}

/// The caller gets its reply first; others are closed by the workers that own them. They are gone
/// from the list at once, so that nobody is counted twice.
pub fn close(cx: &mut ServerCx<'_>, client: &Client) {
    if client.id == cx.connection.client.id {
        cx.connection.is_closing = true;
        return;
    }
    cx.shared.clients.remove(client.id);
    // The link to the primary, which is no worker's.
    cx.shared.replication.upstream.break_off(client.id, cx.core.env.now_ms);
    cx.shared.send(client.worker, Message::Kill(client.id));
}
