//! Moving values to other keys: RENAME, RENAMENX, and to other databases: MOVE.

use kvasir_resp::args::Args;

use crate::command::{Command, Cx, Run};
use crate::commands::options::db_index;
use crate::database::Keyspace;
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::place::DbIndex;
use crate::plan::KeyAt;
use crate::spec::{Argument, Categories, Flags, KeyFlags, KeySpec, Spec, Traits};

pub static COMMANDS: &[&Command] = &[&RENAME, &RENAMENX, &MOVE];

static RENAME: Command = Command {
    spec: Spec {
        name: "rename",
        summary: "Gives a value another key, whatever that held before.",
        since: "1.0.0",
        arity: 3,
        flags: Flags::WRITE,
        categories: Categories::KEYSPACE,
        keys: &[
            KeySpec::first(KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE)),
            KeySpec::range(KeyFlags::OW.union(KeyFlags::UPDATE), 2, 0, 1),
        ],
        arguments: &[Argument::key("key", 0), Argument::key("newkey", 1)],
        ..Spec::BLANK
    },
    run: Run::Keys(rename),
};

fn rename(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    if cx.view.peek(0).is_none() {
        return Err(Error::NO_KEY);
    }
    let same = cx.view.key(0) == cx.view.key(1);
    if !same {
        cx.view.delete(1);
        carry(cx);
    }
    cx.reply.ok();
    Ok(Effect::given_if(!same))
}

static RENAMENX: Command = Command {
    spec: Spec {
        name: "renamenx",
        summary: "Gives a value another key if that is free.",
        since: "1.0.0",
        arity: 3,
        flags: Flags::WRITE.union(Flags::FAST),
        categories: Categories::KEYSPACE,
        keys: &[
            KeySpec::first(KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE)),
            KeySpec::range(KeyFlags::OW.union(KeyFlags::INSERT), 2, 0, 1),
        ],
        history: &[("3.2.0", "Two equal names are no longer an error.")],
        arguments: &[Argument::key("key", 0), Argument::key("newkey", 1)],
        ..Spec::BLANK
    },
    run: Run::Keys(renamenx),
};

fn renamenx(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    if cx.view.peek(0).is_none() {
        return Err(Error::NO_KEY);
    }
    let free = !cx.view.exists(1);
    if free {
        carry(cx);
    }
    cx.reply.integer(i64::from(free));
    Ok(Effect::given_if(free))
}

/// Carries the value of key 0, which is there, with its expiry to key 1, which is free.
fn carry(cx: &mut Cx<'_, '_>) {
    let record = cx.view.take(0).expect("the caller saw it");
    let expiry_ms = record.borrow().expiry_ms();
    cx.view.insert(1, record.rebuilt(cx.view.key(1), expiry_ms));
    cx.view.changed(0, Class::GENERIC, "rename_from");
    cx.view.changed(1, Class::GENERIC, "rename_to");
}

static MOVE: Command = Command {
    spec: Spec {
        name: "move",
        summary: "Moves a key to another database where it is free.",
        since: "1.0.0",
        arity: 3,
        flags: Flags::WRITE.union(Flags::FAST),
        traits: Traits::LEAVES_DATABASE,
        categories: Categories::KEYSPACE,
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0), Argument::integer("db")],
        ..Spec::BLANK
    },
    run: Run::Planned(move_key, plan_move),
};

/// The key in this database and in the other one.
fn plan_move(
    keyspace: &Keyspace,
    args: Args<'_>,
    db: DbIndex,
    keys: &mut Vec<KeyAt>,
) -> Result<(), Error> {
    let other = db_index(keyspace, &args[2])?;
    if other == db {
        return Err(Error::SAME_OBJECT);
    }
    keys.extend([KeyAt::new(args, 1, db), KeyAt::new(args, 1, other)]);
    Ok(())
}

fn move_key(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let wanted = cx.view.exists(0) && !cx.view.exists(1);
    if wanted {
        let record = cx.view.take(0).expect("it was just seen");
        cx.view.insert(1, record);
        cx.view.changed(0, Class::GENERIC, "move_from");
        cx.view.changed(1, Class::GENERIC, "move_to");
    }
    cx.reply.integer(i64::from(wanted));
    Ok(Effect::given_if(wanted))
}

#[cfg(test)]
mod tests {
    use crate::testing::check;
    use crate::testing::events::check_events;

    #[test]
    fn renaming() {
        check("SET a v; RENAME a b; EXISTS a; GET b", "+OK; +OK; :0; $v");
        check("SET a v EX 100; SET b w; RENAME a b; GET b; TTL b", "+OK; +OK; +OK; $v; :100");
        check("SET a v; SET b w EX 100; RENAME a b; TTL b", "+OK; +OK; +OK; :-1");
        check("SET a v; RENAME a a; GET a", "+OK; +OK; $v");
        check("RENAME none a; RENAME none none", "-ERR no such key; -ERR no such key");
        check("SET a v PXAT 1; RENAME a b", "+OK; -ERR no such key");
        check(
            "SET {t}a v; SET {t}b w; RENAME {t}a {t}b; GET {t}b; DBSIZE",
            "+OK; +OK; +OK; $v; :1",
        );
        check("HSET h f v; SET s v; RENAME h s; TYPE s; EXISTS h", ":1; +OK; +OK; +hash; :0");
        check("SETRANGE a 20000 x; RENAME a b; STRLEN b", ":20001; +OK; :20001");
    }

    #[test]
    fn renaming_to_a_free_key() {
        check("SET a v EX 100; RENAMENX a b; GET b; TTL b; GET a", "+OK; :1; $v; :100; _");
        check("MSET a v b w; RENAMENX a b; MGET a b", "+OK; :0; [$v $w]");
        check("SET a v; RENAMENX a a; RENAMENX none a", "+OK; :0; -ERR no such key");
        check("SET a v; SET b w PXAT 1; RENAMENX a b; GET b", "+OK; +OK; :1; $v");
    }

    #[test]
    fn moving() {
        check(
            "SET k v EX 100; MOVE k 9; EXISTS k; SELECT 9; GET k; TTL k; FLUSHDB; SELECT 0",
            "+OK; :1; :0; +OK; $v; :100; +OK; +OK",
        );
        check("SET k v; SELECT 9; SET k w; MOVE k 0; GET k; DEL k", "+OK; +OK; +OK; :0; $w; :1");
        check("MOVE none 9", ":0");
    }

    #[test]
    fn moving_to_where_it_cannot_be() {
        let same = "-ERR source and destination objects are the same";
        check("SET k v; MOVE k 0; MOVE none 0", &format!("+OK; {same}; {same}"));
        check(
            "MOVE k 16; MOVE k -1; MOVE k x; MOVE k 9223372036854775808",
            "-ERR DB index is out of range; -ERR DB index is out of range; \
             -ERR value is not an integer or out of range; \
             -ERR value is not an integer or out of range",
        );
        check(
            "MOVE k 9999999999",
            "-ERR value is out of range, value must between -2147483648 and 2147483647",
        );
    }

    #[test]
    fn events_of_moving() {
        check_events(
            "SET a 1; RENAME a b; SET a 2; RENAME a b; RENAME b b; RENAMENX b a; SET b x; \
             RENAMENX a b; RENAME none x; RENAMENX a a",
            "new a, set a; new b, rename_from a, rename_to b; new a, set a; new b, rename_from \
             a, rename_to b; ; new a, rename_from b, rename_to a; new b, set b; ; ; ",
        );
        check_events(
            "SET a 1; MOVE a 1; MOVE a 1; SET a 2; MOVE a 1",
            "new a, set a; new 1/a, move_from a, move_to 1/a; ; new a, set a; ",
        );
    }
}
