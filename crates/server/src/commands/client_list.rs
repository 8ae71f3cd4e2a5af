//! CLIENT LIST: all connections, or those that pass its filters.

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Group, Spec};

use crate::commands::ANY_TIME_ADMIN;
use crate::commands::client::write_lines;
use crate::commands::client_filter::{Filter, LIST_TYPES, YES_NO};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};

pub static CLIENT_LIST: ServerCommand = ServerCommand {
    spec: Spec {
        name: "list",
        summary: "Describes all connections, or some, each on a line.",
        since: "2.4.0",
        group: Group::Connection,
        complexity: "O(N) in the number of connections",
        arity: -2,
        flags: ANY_TIME_ADMIN,
        tips: &["nondeterministic_output"],
        history: &[
            ("2.8.12", "Lines begin with the client's `id`."),
            ("5.0.0", "Can be limited to a `TYPE`."),
            ("6.0.0", "Lines have the `user`."),
            (
                "6.2.0",
                "Can be limited to `ID`s; lines have `argv-mem`, `tot-mem`, `laddr` and `redir`.",
            ),
            ("7.0.0", "Lines have `resp`, `multi-mem`, `rbs` and `rbp`."),
            ("7.0.3", "Lines have `ssub`."),
            ("8.0.0", "`TYPE` can be `primary`, of which `master` is the older name."),
            ("8.1.0", "Has filters by user, addresses and age, and `SKIPME`."),
            (
                "9.0.0",
                "Has filters by name, idle time, flags, library, database, capability and IP, and \
                 `NOT-` in front of most.",
            ),
        ],
        arguments: FILTERS,
        ..Spec::BLANK
    },
    run: ServerRun::Plain(list),
};

static FILTERS: &[Argument] = &[
    Argument::one_of("client-type", LIST_TYPES).token("TYPE").since("5.0.0").optional(),
    Argument::integer("client-id").token("ID").since("6.2.0").optional().multiple(),
    Argument::string("username").token("USER").since("8.1.0").optional(),
    Argument::string("addr").token("ADDR").since("8.1.0").optional(),
    Argument::string("laddr").token("LADDR").since("8.1.0").optional(),
    Argument::one_of("skipme", YES_NO).token("SKIPME").since("8.1.0").optional(),
    Argument::integer("maxage").token("MAXAGE").since("8.1.0").optional(),
    Argument::string("name").token("NAME").since("9.0.0").optional(),
    Argument::integer("idle").token("IDLE").since("9.0.0").optional(),
    Argument::string("flags").token("FLAGS").since("9.0.0").optional(),
    Argument::string("lib-name").token("LIB-NAME").since("9.0.0").optional(),
    Argument::string("lib-ver").token("LIB-VER").since("9.0.0").optional(),
    Argument::integer("db").token("DB").since("9.0.0").optional(),
    Argument::string("capa").token("CAPA").since("9.0.0").optional(),
    Argument::string("ip").token("IP").since("9.0.0").optional(),
    Argument::one_of("not-client-type", LIST_TYPES).token("NOT-TYPE").since("9.0.0").optional(),
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

fn list(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let filter = Filter::parse(cx.args, false, cx.shared, cx.core.config.databases)?;
    let (caller, now_ms) = (cx.connection.client.id, cx.core.env.now_ms);
    let mut clients = cx.shared.clients.all();
    clients.retain(|client| filter.applies(client, caller, now_ms));
    write_lines(cx, clients.iter().map(|client| &**client));
    Ok(())
}
