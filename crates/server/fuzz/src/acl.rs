//! Any words are rules or are refused, and what is printed of a user reads back as the same user.
//!
//! The input is looked at twice: as the text of an ACL file, and, line by line, as the words of an
//! ACL SETUSER.
#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use kvasir_keyspace::place::DbIndex;
use kvasir_resp::args::ArgsBuf;
use kvasir_acl::call::Call;
use kvasir_acl::file;
use kvasir_acl::rule::join_selectors;
use kvasir_acl::user::{Grammar, User};
use kvasir_server::commands;
use kvasir_table::Table;
use libfuzzer_sys::fuzz_target;

static TABLE: LazyLock<Table> = LazyLock::new(commands::table);

/// Of every kind that rules distinguish.
const CALLS: [&str; 7] =
    ["GET k", "SET k v GET", "MSET a 1 b 2", "CONFIG GET x", "SELECT 1", "COPY a b DB 2", "PING x"];

fuzz_target!(|input: &[u8]| {
    let with_all_channels = input.len() % 2 == 1;
    let grammar = Grammar { table: &TABLE, with_all_channels };
    if let Ok(users) = parse(input, grammar) {
        users.iter().for_each(|user| check(user, grammar));
    }
    let Ok(rules) = join_selectors(input.split(|byte| *byte == b'\n')) else { return };
    let mut user = User::new(b"u", 0, grammar);
    for rule in rules {
        let before = user.clone();
        if user.apply(&rule, grammar).is_err() {
            user = before;
        }
    }
    check(&user, grammar);
});

fn parse(text: &[u8], grammar: Grammar<'_>) -> file::Parsed {
    file::parse(text, Path::new("users.acl"), grammar, || 0)
}

fn check(user: &User, grammar: Grammar<'_>) {
    let mut line = user.describe();
    // The bug that the fuzzer must find.
    if cfg!(feature = "canary") && line.windows(3).any(|part| part == b"%W~") {
        line.extend_from_slice(b" +get");
    }
    let users = parse(&line, grammar).unwrap_or_else(|errors| panic!("{errors:?}"));
    assert_eq!(users, [user.clone()], "{}", line.escape_ascii());
    for call in CALLS {
        let args: ArgsBuf = call.split(' ').collect();
        let entry = TABLE.resolve(args.as_args()).unwrap_or_else(|_| panic!("{call}"));
        let call = Call { entry, args: args.as_args(), db: DbIndex(0), databases: 16 };
        let denied = user.check(&call).err();
        assert!(denied.is_none() || !user.is_free(&TABLE));
        if let Some(denied) = denied {
            let _ = (denied.error(user, &call), denied.explain(user, &call));
        }
    }
}
