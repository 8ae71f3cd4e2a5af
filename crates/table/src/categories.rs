//! The ACL categories of commands.

use kvasir_keyspace::spec::{Categories, Flags, Group};

use crate::Entry;

/// The ACL categories of a command.
pub fn categories(entry: &Entry) -> Vec<&'static str> {
    let all = every_category(entry).into_iter();
    all.filter_map(|(name, is_in)| is_in.then_some(name)).collect()
}

/// Every ACL category, in Redis's order with our own behind them, and whether the command is in it:
/// by its row, its flags or its group.
pub fn every_category(entry: &Entry) -> [(&'static str, bool); 22] {
    let spec = entry.spec;
    let has = |flag: Flags| spec.flags.contains(flag);
    let names = |category: Categories| spec.categories.contains(category);
    let is_of = |group: Group| spec.group == group && entry.subcommands.is_empty();
    let sorts = names(Categories::SORTABLE);
    let is_other = sorts || names(Categories::CONNECTION);
    let is_admin = has(Flags::ADMIN) || names(Categories::ADMIN);
    [
        ("keyspace", names(Categories::KEYSPACE) || is_of(Group::Generic) && !is_other),
        // A script that only reads may still be anything but a read.
        ("read", has(Flags::READONLY) && !is_of(Group::Scripting)),
        ("write", has(Flags::WRITE)),
        ("set", is_of(Group::Set) || sorts),
        ("sortedset", is_of(Group::SortedSet) || sorts),
        ("list", is_of(Group::List) || sorts),
        ("hash", is_of(Group::Hash)),
        ("string", is_of(Group::String)),
        ("bitmap", is_of(Group::Bitmap)),
        ("hyperloglog", is_of(Group::Hyperloglog)),
        ("geo", is_of(Group::Geo)),
        ("stream", is_of(Group::Stream)),
        ("pubsub", has(Flags::PUBSUB)),
        ("admin", is_admin),
        ("fast", has(Flags::FAST)),
        ("slow", !has(Flags::FAST)),
        ("blocking", has(Flags::BLOCKING)),
        ("dangerous", is_admin || names(Categories::DANGEROUS)),
        ("connection", names(Categories::CONNECTION) || is_of(Group::Connection)),
        ("transaction", names(Categories::TRANSACTION) || is_of(Group::Transactions)),
        ("scripting", names(Categories::SCRIPTING) || is_of(Group::Scripting)),
        ("analytics", spec.group == Group::Analytics),
    ]
}
