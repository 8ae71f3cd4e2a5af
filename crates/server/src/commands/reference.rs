//! The command table as text: docs/commands.md.
//!
//! The page is committed; a test says when it is no longer what is printed here.

use kvasir_keyspace::spec::{Argument, ArgumentKind, Group, Spec};
use kvasir_table::{Entry, Handler, ServerHandler, Table, Way};

use crate::commands::command_info::flag_names;

/// Every group in the order of the page, with its title.
const GROUPS: &[(Group, &str)] = &[
    (Group::Generic, "Keys"),
    (Group::String, "Strings"),
    (Group::Bitmap, "Bitmaps"),
    (Group::Hyperloglog, "HyperLogLogs"),
    (Group::List, "Lists"),
    (Group::Set, "Sets"),
    (Group::SortedSet, "Sorted sets"),
    (Group::Geo, "Places on the earth"),
    (Group::Hash, "Hashes"),
    (Group::Stream, "Streams"),
    (Group::Pubsub, "Publish and subscribe"),
    (Group::Transactions, "Transactions"),
    (Group::Scripting, "Scripts and functions"),
    (Group::Connection, "Connections"),
    (Group::Analytics, "Exports and graphs"),
    (Group::Server, "The server"),
    (Group::Cluster, "The cluster"),
];

/// docs/commands.md.
pub fn reference(table: &Table) -> String {
    let mut out = String::from(
        "# Commands\n\n\
         Printed from the command table. In a synopsis `[]` may be left out, `|` stands between\n\
         choices, `...` for more of the same; words in capitals are written as they stand.\n\
         *Since* is the version of Redis, or of Valkey, that has the command first.\n",
    );
    for (group, title) in GROUPS {
        let mut entries: Vec<&Entry> =
            table.entries().iter().filter(|entry| entry.spec.group == *group).collect();
        entries.retain(|entry| is_callable(entry));
        entries.sort_by_key(|entry| &entry.full_name);
        if !entries.is_empty() {
            out += &format!("\n## {title}\n");
        }
        entries.iter().for_each(|entry| out += &section(entry));
    }
    out
}

/// A container alone is an error; its subcommands are what can be called.
fn is_callable(entry: &Entry) -> bool {
    let is_family =
        matches!(entry.handler, Handler::Server(ServerHandler { way: Way::Family, .. }));
    entry.subcommands.is_empty() || is_family
}

fn section(entry: &Entry) -> String {
    let spec = entry.spec;
    let name = name(entry);
    let mut out = format!("\n### {name}\n\n    {}\n\n{}\n\n", synopsis(&name, spec), spec.summary);
    out += &format!("- Since: {}\n", spec.since);
    if !spec.complexity.is_empty() {
        out += &format!("- Complexity: {}\n", spec.complexity);
    }
    let flags = flag_names(spec);
    if !flags.is_empty() {
        out += &format!("- Flags: {}\n", flags.join(", "));
    }
    if let Some((since, instead)) = spec.deprecated {
        out += &format!("- Deprecated since {since}; instead: {instead}\n");
    }
    for (version, change) in spec.history {
        out += &format!("- Since {version}: {change}\n");
    }
    out
}

/// As one types it: `CLIENT LIST`.
fn name(entry: &Entry) -> String {
    entry.full_name.replace('|', " ").to_ascii_uppercase()
}

fn synopsis(name: &str, spec: &Spec) -> String {
    let takes_more = spec.arguments.is_empty() && spec.arity < 0;
    let arguments = spec.arguments.iter().map(argument);
    let words = std::iter::once(name.to_string()).chain(arguments);
    let words = words.chain(takes_more.then(|| "...".to_string()));
    words.collect::<Vec<_>>().join(" ")
}

fn argument(row: &Argument) -> String {
    let token = row.token.map(|token| if token.is_empty() { "\"\"" } else { token });
    let value = value(row);
    let once = match token {
        Some(token) if row.kind != ArgumentKind::PureToken => format!("{token} {value}"),
        _ => value.clone(),
    };
    let repeated = if row.multiple_token { &once } else { &value };
    let whole = if row.multiple { format!("{once} [{repeated} ...]") } else { once.clone() };
    match (row.optional, row.kind, row.token, row.multiple) {
        // The brackets hold the choices together already.
        (true, ArgumentKind::OneOf, None, false) => format!("[{}]", joined(row.parts, " | ")),
        (true, ..) => format!("[{whole}]"),
        (false, ..) => whole,
    }
}

fn value(row: &Argument) -> String {
    match row.kind {
        ArgumentKind::PureToken => row.token.unwrap_or(row.name).to_string(),
        ArgumentKind::OneOf => format!("<{}>", joined(row.parts, " | ")),
        ArgumentKind::Block => joined(row.parts, " "),
        _ => row.name.to_string(),
    }
}

fn joined(parts: &[Argument], separator: &str) -> String {
    parts.iter().map(argument).collect::<Vec<_>>().join(separator)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Run with KVASIR_UPDATE=1 in the environment, writes the file instead.
    #[test]
    fn committed_files_are_what_the_table_prints() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
        let printed = reference(&crate::commands::table());
        if std::env::var_os("KVASIR_UPDATE").is_some() {
            std::fs::write(&path, &printed).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == printed,
            "docs/commands.md differs from the command table; run \
             cargo xtask printed"
        );
    }

    #[test]
    fn every_command_has_a_section() {
        let table = crate::commands::table();
        let printed = reference(&table);
        for entry in table.entries().iter().filter(|entry| is_callable(entry)) {
            let heading = format!("\n### {}\n", name(entry));
            assert_eq!(printed.matches(&heading).count(), 1, "{heading}");
        }
    }

    #[test]
    fn synopses() {
        const CHOICES: &[Argument] =
            &[Argument::word("nx", "NX"), Argument::integer("s").token("EX")];
        const PAIR: &[Argument] = &[Argument::string("f"), Argument::string("v")];
        let choice = || Argument::one_of("c", CHOICES);
        let get = || Argument::string("p").token("GET").optional().multiple();
        let rows = [
            (choice(), "<NX | EX s>"),
            (choice().optional(), "[NX | EX s]"),
            (choice().token("T").optional(), "[T <NX | EX s>]"),
            (Argument::block("b", PAIR).multiple(), "f v [f v ...]"),
            (get(), "[GET p [p ...]]"),
            (Argument { multiple_token: true, ..get() }, "[GET p [GET p ...]]"),
        ];
        for (row, wanted) in rows {
            assert_eq!(argument(&row), wanted);
        }
        assert_eq!(synopsis("X", &Spec { arity: -2, ..Spec::BLANK }), "X ...");
        assert_eq!(synopsis("X", &Spec::BLANK), "X");
    }
}
