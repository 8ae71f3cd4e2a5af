//! COPY: a value under a second key, here or in another database.

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
use crate::value;

pub static COMMANDS: &[&Command] = &[&COPY];

static COPY: Command = Command {
    spec: Spec {
        name: "copy",
        summary: "Puts a copy of a value under another key, here or in another database.",
        since: "6.2.0",
        complexity: "O(N) for collections, where N is the number of elements; O(1) for strings.",
        arity: -3,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        traits: Traits::LEAVES_DATABASE,
        categories: Categories::KEYSPACE,
        keys: &[
            KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS)),
            KeySpec::range(KeyFlags::OW.union(KeyFlags::UPDATE), 2, 0, 1),
        ],
        arguments: &[
            Argument::key("source", 0),
            Argument::key("destination", 1),
            Argument::integer("destination-db").token("DB").optional(),
            Argument::word("replace", "REPLACE").optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Planned(copy, plan_copy),
};

/// The source in this database, the destination in the one that the options name.
fn plan_copy(
    keyspace: &Keyspace,
    args: Args<'_>,
    db: DbIndex,
    keys: &mut Vec<KeyAt>,
) -> Result<(), Error> {
    let mut other = db;
    let mut words = args.from(3).iter();
    while let Some(word) = words.next() {
        if is_replace(word) {
            continue;
        }
        match words.next() {
            Some(index) if word.eq_ignore_ascii_case(b"db") => other = db_index(keyspace, index)?,
            _ => return Err(Error::SYNTAX),
        }
    }
    if other == db && args[1] == args[2] {
        return Err(Error::SAME_OBJECT);
    }
    keys.extend([KeyAt::new(args, 1, db), KeyAt::new(args, 2, other)]);
    Ok(())
}

fn copy(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let destination = cx.view.key(1);
    let copy = cx.view.read(0).map(|record| value::copy(record, destination, record.expiry_ms()));
    // The value of DB is a number, so any word that says REPLACE means it.
    let replaces = cx.args.from(3).iter().any(is_replace);
    let wanted = copy.filter(|_| replaces || !cx.view.exists(1));
    cx.reply.integer(i64::from(wanted.is_some()));
    let Some(mut copy) = wanted else { return Ok(Effect::None) };
    copy.borrow_mut().set_clock(cx.view.env.clock_of_new());
    cx.view.delete(1);
    cx.view.insert(1, copy);
    cx.view.changed(1, Class::GENERIC, "copy_to");
    Ok(Effect::AsGiven)
}

fn is_replace(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"replace")
}

#[cfg(test)]
mod tests {
    use crate::testing::check;
    use crate::testing::events::check_events;

    #[test]
    fn copies_have_value_and_expiry() {
        check("SET a v EX 100; COPY a b; GET b; TTL b; GET a", "+OK; :1; $v; :100; $v");
        check("HSET h f v; COPY h g; HSET g f w; HGET h f; HGET g f", ":1; :1; :0; $v; $w");
        check("COPY none a; SET k v PXAT 1; COPY k a", ":0; +OK; :0");
        check(
            "SETRANGE a 20000 x; COPY a b; APPEND b y; STRLEN a; STRLEN b",
            ":20001; :1; :20002; :20001; :20002",
        );
        check("SET a v; APPEND a w; COPY a b; OBJECT ENCODING b", "+OK; :2; :1; $raw");
    }

    #[test]
    fn copies_of_large_hashes_are_their_own() {
        let fields: Vec<String> = (0..600).map(|field| format!("f{field} v")).collect();
        let script = format!("HSET h {}; COPY h g; HSET g f1 w; HDEL h f2; ", fields.join(" "))
            + "HLEN g; HLEN h; HGET h f1; HGET g f2; OBJECT ENCODING g; DEL h; HGET g f1";
        check(&script, ":600; :1; :0; :1; :600; :599; $v; $v; $hashtable; :1; $w");
    }

    #[test]
    fn copies_replace_only_if_told() {
        check("MSET a v b w; COPY a b; GET b; COPY a b REPLACE; GET b", "+OK; :0; $w; :1; $v");
        check("SET a v; SET b w PXAT 1; COPY a b; GET b", "+OK; +OK; :1; $v");
    }

    #[test]
    fn copies_go_to_other_databases() {
        check(
            "SET k v; COPY k k DB 9; COPY k k DB 9; COPY k k REPLACE DB 9 REPLACE; \
             SELECT 9; GET k; FLUSHDB; SELECT 0; GET k",
            "+OK; :1; :0; :1; +OK; $v; +OK; +OK; $v",
        );
    }

    #[test]
    fn copies_that_cannot_be() {
        let same = "-ERR source and destination objects are the same";
        check(
            "COPY k k; COPY k k DB 0; COPY k k DB 1 DB 0; COPY none none",
            &format!("{same}; {same}; {same}; {same}"),
        );
        let out = "-ERR DB index is out of range";
        check("COPY a b DB 16; COPY a b DB -1 FOO", &format!("{out}; {out}"));
        let syntax = "-ERR syntax error";
        check("COPY a b FOO; COPY a b DB", &format!("{syntax}; {syntax}"));
        check("COPY a b DB REPLACE", "-ERR value is not an integer or out of range");
    }

    #[test]
    fn events_of_copying() {
        check_events(
            "SET a 1 EX 100; COPY a b; COPY a b; COPY a b REPLACE; COPY a b DB 1; COPY none b \
             REPLACE; COPY a a DB 1",
            "new a, set a, expire a; new b, copy_to b; ; new b, copy_to b; new 1/b, copy_to 1/b; \
             keymiss none; new 1/a, copy_to 1/a",
        );
    }
}
