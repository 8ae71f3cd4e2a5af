//! HELLO and AUTH: who a connection is, and which protocol it speaks.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Group, Spec};
use kvasir_resp::number::parse_integer;
use kvasir_resp::reply::Protocol;

use crate::calls::admit::Scene;
use crate::calls::login::{WrongPassword, log_in};
use crate::commands::{HANDSHAKE, client, is_word};
use crate::machine::version::REDIS_VERSION;
use crate::run::server::{ServerCommand, ServerCx, ServerRun};

pub static COMMANDS: &[&ServerCommand] = &[&HELLO, &AUTH];

const WRONG_PASSWORD: Error =
    Error::fixed("WRONGPASS invalid username-password pair or user is disabled.");

pub fn set_protocol(cx: &mut ServerCx<'_>, protocol: Protocol) {
    cx.connection.reply.set_protocol(protocol);
    cx.connection.client.protocol.store(protocol_number(protocol), Relaxed);
}

fn protocol_number(protocol: Protocol) -> u16 {
    match protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    }
}

static HELLO: ServerCommand = ServerCommand {
    spec: Spec {
        name: "hello",
        summary: "Chooses the protocol, may authenticate and name the client; tells about the server.",
        since: "6.0.0",
        group: Group::Connection,
        arity: -1,
        flags: HANDSHAKE,
        history: &[(
            "6.2.0",
            "The version of the protocol may be left out; the reply then describes the connection as it is.",
        )],
        arguments: &[Argument::block(
            "arguments",
            &[
                Argument::integer("protover"),
                Argument::block(
                    "username_password",
                    &[Argument::string("username"), Argument::string("password")],
                )
                .token("AUTH")
                .optional(),
                Argument::string("clientname").token("SETNAME").optional(),
            ],
        )
        .optional()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(hello),
};

/// What a HELLO asks for.
#[derive(Default)]
struct Greeting<'a> {
    protocol: Option<Protocol>,
    credentials: Option<Credentials<'a>>,
    name: Option<&'a [u8]>,
}

struct Credentials<'a> {
    user: &'a [u8],
    password: &'a [u8],
}

/// Options are read before any of them counts; the protocol changes only if all else went well.
fn hello(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let args = cx.args;
    let greeting = Greeting::parse(args)?;
    if let Some(Credentials { user, password }) = greeting.credentials {
        authenticate(cx, user, password)?;
    }
    if !cx.connection.access.may_go_on(&cx.shared.acl) {
        return Err(Error::fixed(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = greeting.name {
        client::set_name(cx, name)?;
    }
    if let Some(protocol) = greeting.protocol {
        set_protocol(cx, protocol);
    }
    write_hello(cx);
    Ok(())
}

impl<'a> Greeting<'a> {
    fn parse(args: kvasir_resp::args::Args<'a>) -> Result<Greeting<'a>, Error> {
        let mut greeting = Greeting::default();
        let mut words = args.from(1).iter();
        let Some(version) = words.next() else { return Ok(greeting) };
        greeting.protocol = Some(parse_protocol(version)?);
        while let Some(word) = words.next() {
            if is_word(word, "auth") && words.len() >= 2 {
                let both = words.next().zip(words.next());
                greeting.credentials = both.map(|(user, password)| Credentials { user, password });
            } else if is_word(word, "setname") && words.len() >= 1 {
                greeting.name = words.next();
            } else {
                return Err(Error::quoting("ERR Syntax error in HELLO option '", word, "'"));
            }
        }
        Ok(greeting)
    }
}

fn parse_protocol(version: &[u8]) -> Result<Protocol, Error> {
    match parse_integer(version) {
        Some(2) => Ok(Protocol::Resp2),
        Some(3) => Ok(Protocol::Resp3),
        Some(_) => Err(Error::fixed("NOPROTO unsupported protocol version")),
        None => Err(Error::fixed("ERR Protocol version is not an integer or out of range")),
    }
}

fn write_hello(cx: &mut ServerCx<'_>) {
    let id = cx.connection.client.id as i64;
    let mode = if cx.shared.cluster.is_some() { "cluster" } else { "standalone" };
    let is_replica = cx.shared.replication.upstream.is_replica();
    let role = if is_replica { "replica" } else { "master" };
    let zone = cx.core.config.availability_zone.clone();
    let reply = cx.reply();
    let protocol = protocol_number(reply.protocol());
    reply.map(7 + usize::from(!zone.is_empty()));
    for (field, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    for (field, value) in [("proto", i64::from(protocol)), ("id", id)] {
        reply.bulk(field.as_bytes());
        reply.integer(value);
    }
    for (field, value) in [("mode", mode), ("role", role)] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
    if !zone.is_empty() {
        reply.bulk(b"availability_zone");
        reply.bulk(&zone);
    }
}

static AUTH: ServerCommand = ServerCommand {
    spec: Spec {
        name: "auth",
        summary: "Gives the password, and with it the right to call other commands.",
        group: Group::Connection,
        complexity: "O(N) in the number of passwords that the user has",
        arity: -2,
        flags: HANDSHAKE,
        history: &[("6.0.0", "Takes a user name before the password.")],
        arguments: &[
            Argument::string("username").since("6.0.0").optional(),
            Argument::string("password"),
        ],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(auth),
};

fn auth(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let args = cx.args;
    match args.len() {
        2 if cx.shared.acl.default_user().0.takes_any_password => {
            return Err(Error::fixed(
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            ));
        }
        2 => authenticate(cx, b"default", &args[1])?,
        3 => authenticate(cx, &args[1], &args[2])?,
        _ => return Err(Error::SYNTAX),
    }
    cx.reply().ok();
    Ok(())
}

/// Makes the connection this user's.
fn authenticate(cx: &mut ServerCx<'_>, name: &[u8], password: &[u8]) -> Result<(), Error> {
    let ServerCx { shared, worker, core, connection, args, .. } = cx;
    let scene = Scene { shared, worker: *worker, core };
    log_in(scene, connection, &args[0], name, password).map_err(|WrongPassword| WRONG_PASSWORD)
}
