//! Whole databases: DBSIZE, FLUSHDB, FLUSHALL, SWAPDB.

use kvasir_resp::args::Args;
use kvasir_resp::number::parse_integer;

use crate::command::{Command, Roam, Run, World};
use crate::effect::Effect;
use crate::error::Error;
use crate::place::DbIndex;
use crate::spec::{Argument, Categories, Flags, Group, Spec, Traits};
use crate::view::Garbage;
use crate::waiting::note_all;

pub static COMMANDS: &[&Command] = &[&DBSIZE, &FLUSHDB, &FLUSHALL, &SWAPDB];

/// Accepted; memory is freed in the background in any case.
const FLUSH_MODE: Argument = Argument::one_of(
    "async",
    &[
        Argument::word("async", "ASYNC").since("4.0.0"),
        Argument::word("sync", "SYNC").since("6.2.0"),
    ],
)
.optional();

static DBSIZE: Command = Command {
    spec: Spec {
        name: "dbsize",
        summary: "Returns the number of keys in the database.",
        since: "1.0.0",
        group: Group::Server,
        complexity: "O(1): a sum over the slots.",
        arity: 1,
        flags: Flags::READONLY.union(Flags::FAST),
        categories: Categories::KEYSPACE,
        tips: &["request_policy:all_shards", "response_policy:agg_sum"],
        ..Spec::BLANK
    },
    run: Run::Roam(dbsize),
};

fn dbsize(cx: &mut Roam<'_>) -> Result<Effect, Error> {
    cx.reply.integer(cx.keyspace.visible_len(cx.db, cx.pass) as i64);
    Ok(Effect::None)
}

static FLUSHDB: Command = Command {
    spec: Spec {
        name: "flushdb",
        summary: "Deletes all keys of the database.",
        since: "1.0.0",
        group: Group::Server,
        complexity: "O(1), then O(N) in the background where N is the number of keys.",
        arity: -1,
        flags: Flags::WRITE,
        traits: Traits::EMPTIES,
        categories: Categories::DANGEROUS.union(Categories::KEYSPACE),
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        history: &[("4.0.0", "Takes `ASYNC`."), ("6.2.0", "Takes `SYNC`.")],
        arguments: &[FLUSH_MODE],
        ..Spec::BLANK
    },
    run: Run::World(flushdb),
};

fn flushdb(cx: &mut World<'_, '_>) -> Result<Effect, Error> {
    check_mode(cx.args)?;
    flush(cx, cx.db);
    cx.reply.ok();
    Ok(Effect::AsGiven)
}

static FLUSHALL: Command = Command {
    spec: Spec {
        name: "flushall",
        summary: "Deletes all keys of all databases.",
        since: "1.0.0",
        group: Group::Server,
        complexity: "O(1), then O(N) in the background where N is the number of keys.",
        arity: -1,
        flags: Flags::WRITE,
        traits: Traits::EMPTIES.union(Traits::EVERY_DATABASE),
        categories: Categories::DANGEROUS.union(Categories::KEYSPACE),
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        history: &[("4.0.0", "Takes `ASYNC`."), ("6.2.0", "Takes `SYNC`.")],
        arguments: &[FLUSH_MODE],
        ..Spec::BLANK
    },
    run: Run::World(flushall),
};

fn flushall(cx: &mut World<'_, '_>) -> Result<Effect, Error> {
    check_mode(cx.args)?;
    for db in cx.keyspace.indexes() {
        flush(cx, db);
    }
    cx.tally.emptied = true;
    cx.reply.ok();
    Ok(Effect::AsGiven)
}

/// ASYNC or SYNC: both are known and neither waits for memory to be freed.
fn check_mode(args: Args<'_>) -> Result<(), Error> {
    match args.get(1) {
        None => Ok(()),
        Some(mode) if args.len() == 2 && is_mode(mode) => Ok(()),
        Some(_) => Err(Error::SYNTAX),
    }
}

fn is_mode(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"async") || word.eq_ignore_ascii_case(b"sync")
}

/// Each key is a change, as in Redis.
fn flush(cx: &mut World<'_, '_>, db: DbIndex) {
    let database = cx.keyspace.database(db, cx.pass);
    if !database.is_empty() {
        cx.tally.changes += database.len() as u64;
        cx.keyspace.watching.note_replaced(db, database, None, cx.env, cx.pass);
        let old = cx.keyspace.flush(db, cx.pass);
        cx.tally.garbage.extend(old.map(Garbage::Database));
        note_all(cx.keyspace, cx.pass, db, cx.tally);
    }
}

static SWAPDB: Command = Command {
    spec: Spec {
        name: "swapdb",
        summary: "Exchanges two databases.",
        since: "4.0.0",
        group: Group::Server,
        complexity: "O(N) where N is the number of clients that watch or wait for keys of the two.",
        arity: 3,
        flags: Flags::WRITE.union(Flags::FAST),
        traits: Traits::NAMED_DATABASES,
        categories: Categories::DANGEROUS.union(Categories::KEYSPACE),
        arguments: &[Argument::integer("index1"), Argument::integer("index2")],
        ..Spec::BLANK
    },
    run: Run::World(swapdb),
};

fn swapdb(cx: &mut World<'_, '_>) -> Result<Effect, Error> {
    let first = index(&cx.args[1], "ERR invalid first DB index")?;
    let second = index(&cx.args[2], "ERR invalid second DB index")?;
    let db = |index| cx.keyspace.db_index(index).ok_or(Error::DB_OUT_OF_RANGE);
    let (first, second) = (db(first)?, db(second)?);
    if first != second {
        let database = |db| cx.keyspace.database(db, cx.pass);
        for (db, other) in [(first, second), (second, first)] {
            let (old, new) = (database(db), database(other));
            cx.keyspace.watching.note_replaced(db, old, Some(new), cx.env, cx.pass);
        }
        cx.keyspace.swap(first, second, cx.pass);
        for db in [first, second] {
            note_all(cx.keyspace, cx.pass, db, cx.tally);
        }
    }
    cx.tally.changes += 1;
    cx.reply.ok();
    Ok(Effect::AsGiven)
}

fn index(text: &[u8], invalid: &'static str) -> Result<i64, Error> {
    let index = parse_integer(text).filter(|index| i32::try_from(*index).is_ok());
    index.ok_or(Error::fixed(invalid))
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, split};
    use crate::view::Garbage;

    #[test]
    fn sizes() {
        check("DBSIZE; MSET a 1 b 2; DBSIZE; DEL a; DBSIZE", ":0; +OK; :2; :1; :1");
        check("SET k v; SELECT 9; DBSIZE", "+OK; +OK; :0");
    }

    #[test]
    fn flushing() {
        check(
            "SET k v; SELECT 9; SET k v; FLUSHDB; DBSIZE; SELECT 0; DBSIZE; FLUSHALL; DBSIZE",
            "+OK; +OK; +OK; +OK; :0; +OK; :1; +OK; :0",
        );
        check(
            "SET k v; FLUSHDB ASYNC; GET k; FLUSHALL sync; FLUSHDB SYNC",
            "+OK; +OK; _; +OK; +OK",
        );
        let syntax = "-ERR syntax error";
        check(
            "FLUSHALL x; FLUSHDB x; FLUSHALL ASYNC SYNC; FLUSHDB SYNC SYNC",
            &[syntax; 4].join("; "),
        );
    }

    #[test]
    fn a_flushed_database_is_freed_elsewhere() {
        let mut bench = Bench::new(Protocol::Resp2);
        for call in split("SET k v; FLUSHALL; FLUSHALL") {
            bench.call(call.as_args());
        }
        assert!(matches!(&bench.tally.garbage[..], [Garbage::Database(old)] if old.len() == 1));
    }

    #[test]
    fn every_key_that_goes_is_a_change() {
        let mut bench = Bench::new(Protocol::Resp2);
        let mut changes = |calls: &str| {
            bench.tally.changes = 0;
            split(calls).iter().for_each(|call| drop(bench.call(call.as_args())));
            (bench.tally.changes, std::mem::take(&mut bench.tally.emptied))
        };
        assert_eq!(changes("MSET a 1 b 2 c 3; SELECT 1; SET d 4"), (2, false));
        assert_eq!(changes("FLUSHDB; FLUSHDB"), (1, false));
        assert_eq!(changes("FLUSHALL"), (3, true));
        assert_eq!(changes("FLUSHALL; FLUSHALL x"), (0, true));
        assert_eq!(changes("SWAPDB 0 1"), (1, false));
    }

    #[test]
    fn swapping() {
        check(
            "SET k v; SWAPDB 0 9; GET k; SELECT 9; GET k; SWAPDB 9 0; GET k; SWAPDB 3 3",
            "+OK; +OK; _; +OK; $v; +OK; _; +OK",
        );
        let (first, second) = ("-ERR invalid first DB index", "-ERR invalid second DB index");
        check("SWAPDB x 1; SWAPDB 9999999999 1", &format!("{first}; {first}"));
        check("SWAPDB 0 x; SWAPDB 99 x", &format!("{second}; {second}"));
        let out = "-ERR DB index is out of range";
        check("SWAPDB 0 16; SWAPDB -1 0; SWAPDB 16 0", &format!("{out}; {out}; {out}"));
    }

    #[test]
    fn events_of_whole_databases() {
        check_events(
            "SET a 1; SELECT 1; SET b 1; SWAPDB 0 1; FLUSHDB; FLUSHALL; DBSIZE; FLUSHALL",
            "new a, set a; ; new 1/b, set 1/b; touch a, touch b, touch 1/a, touch 1/b; touch \
             1/a; touch b; ; ",
        );
    }
}
