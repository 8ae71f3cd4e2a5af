//! MEMORY REPORT: what fills the memory.

use std::sync::Arc;

use kvasir_analytics::report::by::{By, DEPTH_MAX};
use kvasir_analytics::report::survey::Wish;
use kvasir_keyspace::compression::Compression;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Categories, Flags, Group, Spec, Traits};
use kvasir_resp::args::Args;
use kvasir_resp::number::parse_integer;

use crate::analytics::graphs::Cancelled;
use crate::analytics::ticket::Ticket;
use crate::commands::export::{self, cancellable};
use crate::commands::is_word;
use crate::run::analytics::{caller, wait};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};

/// Rows and keys that are told if nothing else is said.
pub const TOP: usize = 20;
/// More of them nobody reads.
pub const TOP_MAX: usize = 10_000;

pub static REPORT: ServerCommand = ServerCommand {
    spec: Spec {
        name: "report",
        summary: "Sums up what the keys of all databases take, by what they have in common.",
        since: export::SINCE,
        group: Group::Server,
        complexity: "O(N) in keys and parts of their values, in the background.",
        arity: -2,
        flags: Flags::READONLY.union(Flags::BLOCKING).union(Flags::NOSCRIPT).union(Flags::NO_MULTI),
        traits: Traits::EVERY_DATABASE,
        categories: Categories::KEYSPACE.union(Categories::DANGEROUS),
        tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        arguments: &[Argument::one_of(
            "what",
            &[
                Argument::word("cancel", "CANCEL"),
                Argument::block(
                    "report",
                    &[
                        Argument::one_of(
                            "by",
                            &[
                                Argument::word("prefix", "PREFIX"),
                                Argument::word("type", "TYPE"),
                                Argument::word("ttl", "TTL"),
                                Argument::word("encoding", "ENCODING"),
                                Argument::word("slot", "SLOT"),
                            ],
                        )
                        .token("BY")
                        .optional(),
                        Argument::string("separator").token("SEPARATOR").optional(),
                        Argument::integer("separators").token("DEPTH").optional(),
                        Argument::integer("count").token("TOP").optional(),
                    ],
                ),
            ],
        )
        .optional()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(report),
};

fn report(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let (shared, args) = (cx.shared, cx.args);
    if args.len() == 3 && is_word(&args[2], "cancel") {
        let (id, user) = (None, cancellable(cx));
        let cancelled = shared.analytics.cancel_reports(Cancelled { id, user });
        cx.reply().integer(cancelled as i64);
        return Ok(());
    }
    let (by, top) = parse(args.from(2))?;
    let env = cx.core.env.clone();
    let compression = if env.compression.is_off() { Compression::MOST } else { env.compression };
    let grant = export::grant(cx, "memory|report")?;
    let wish = Wish { by, top, env, compression, may_read: grant.may_read() };
    let client = cx.connection.client.id;
    let job = shared.analytics.new_report(&shared.store, &grant, client)?;
    let ticket = Ticket::of_job(caller(cx), cx.connection.reply.protocol(), Arc::clone(&job));
    shared.analytics.begin_report(&shared.store, job, Arc::clone(&ticket), wish, grant)?;
    wait(cx, ticket);
    Ok(())
}

/// What is asked for, and how many rows.
fn parse(words: Args<'_>) -> Result<(By, usize), Error> {
    let (mut name, mut separator, mut depth, mut top) = (&b"prefix"[..], &b":"[..], 1, TOP);
    for at in (0..words.len()).step_by(2) {
        let (word, value) = (&words[at], words.get(at + 1).ok_or(Error::SYNTAX)?);
        if is_word(word, "by") {
            name = value;
        } else if is_word(word, "separator") {
            separator = value;
        } else if is_word(word, "depth") {
            depth = number("DEPTH", value, DEPTH_MAX)?;
        } else if is_word(word, "top") {
            top = number("TOP", value, TOP_MAX)?;
        } else {
            return Err(Error::SYNTAX);
        }
    }
    if separator.is_empty() {
        return Err(Error::fixed("ERR SEPARATOR is not empty"));
    }
    let by = By::from_name(name, separator, depth);
    let by =
        by.ok_or(Error::fixed("ERR a report is BY one of prefix, type, ttl, encoding, slot"))?;
    Ok((by, top))
}

fn number(name: &str, text: &[u8], most: usize) -> Result<usize, Error> {
    let number = parse_integer(text).and_then(|number| usize::try_from(number).ok());
    let number = number.filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| Error::new(format!("ERR {name} is a number from 1 to {most}")))
}
