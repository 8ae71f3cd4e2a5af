//! An entry of the command table in the shape of COMMAND DOCS.
//!
//! Field by field as Redis 7 replies: <https://redis.io/docs/latest/commands/command-docs/>.

use kvasir_keyspace::spec::{Argument, ArgumentKind, Spec};
use kvasir_resp::reply::Reply;
use kvasir_table::{Entry, Table};

/// The command's name and its map of facts; what does not apply is left out.
pub fn write_docs(reply: &mut Reply, table: &Table, entry: &Entry) {
    let Spec {
        summary,
        since,
        complexity,
        group,
        deprecated,
        is_for_system,
        history,
        arguments,
        ..
    } = *entry.spec;
    let texts = [
        ("summary", summary),
        ("since", since),
        ("group", group.name()),
        ("complexity", complexity),
    ];
    let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
    let lists = [history.len(), arguments.len(), entry.subcommands.len()];
    reply.bulk(entry.full_name.as_bytes());
    let lists = lists.iter().filter(|length| **length > 0).count();
    let flags = [("deprecated", deprecated.is_some()), ("syscmd", is_for_system)];
    let flags = flags.into_iter().filter(|(_, is_set)| *is_set);
    let deprecation = if deprecated.is_some() { 2 } else { 0 };
    let has_flags = usize::from(flags.clone().count() > 0);
    reply.map(texts.clone().count() + has_flags + deprecation + lists);
    texts.for_each(|(field, text)| write_text(reply, field, text));
    if has_flags > 0 {
        reply.bulk(b"doc_flags");
        reply.set(flags.clone().count());
        flags.for_each(|(flag, _)| reply.simple(flag));
    }
    if let Some((version, instead)) = deprecated {
        write_text(reply, "deprecated_since", version);
        write_text(reply, "replaced_by", instead);
    }
    if !history.is_empty() {
        reply.bulk(b"history");
        reply.set(history.len());
        for (version, change) in history {
            reply.array(2);
            reply.bulk(version.as_bytes());
            reply.bulk(change.as_bytes());
        }
    }
    if !arguments.is_empty() {
        write_arguments(reply, arguments);
    }
    if !entry.subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(entry.subcommands.len());
        for sub in &entry.subcommands {
            write_docs(reply, table, &table.entries()[*sub]);
        }
    }
}

fn write_text(reply: &mut Reply, field: &str, text: &str) {
    reply.bulk(field.as_bytes());
    reply.bulk(text.as_bytes());
}

fn write_arguments(reply: &mut Reply, arguments: &[Argument]) {
    reply.bulk(b"arguments");
    reply.array(arguments.len());
    arguments.iter().for_each(|argument| write_argument(reply, argument));
}

fn write_argument(reply: &mut Reply, argument: &Argument) {
    let flags = [
        ("optional", argument.optional),
        ("multiple", argument.multiple),
        ("multiple_token", argument.multiple_token),
    ];
    let flags = flags.into_iter().filter(|(_, is_set)| *is_set);
    let has_parts = matches!(argument.kind, ArgumentKind::OneOf | ArgumentKind::Block);
    let optional_fields = [
        argument.key_spec.is_some(),
        argument.token.is_some(),
        argument.since.is_some(),
        flags.clone().count() > 0,
        has_parts,
    ];
    reply.map(2 + optional_fields.into_iter().filter(|is_there| *is_there).count());
    write_text(reply, "name", argument.name);
    write_text(reply, "type", argument.kind.name());
    if let Some(key_spec) = argument.key_spec {
        reply.bulk(b"key_spec_index");
        reply.integer(key_spec.into());
    }
    for (field, text) in [("token", argument.token), ("since", argument.since)] {
        text.into_iter().for_each(|text| write_text(reply, field, text));
    }
    if flags.clone().count() > 0 {
        reply.bulk(b"flags");
        reply.set(flags.clone().count());
        flags.for_each(|(flag, _)| reply.simple(flag));
    }
    if has_parts {
        write_arguments(reply, argument.parts);
    }
}
