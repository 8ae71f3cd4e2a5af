//! Changing what is there: LSET, LINSERT, LREM, LTRIM.

use kvasir_structures::quicklist::End;

use crate::command::{Command, Cx, Run};
use crate::commands::options::integer;
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::list_value::{self, List};
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&LSET, &LINSERT, &LREM, &LTRIM];

static LSET: Command = Command {
    spec: Spec {
        name: "lset",
        summary: "Replaces the element at an index, which counts from the tail if negative.",
        since: "1.0.0",
        group: Group::List,
        complexity: "O(N) where N is the distance to the nearer end, by nodes where the list is \
                     long; O(1) at the ends.",
        arity: 4,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::UPDATE))],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("index"),
            Argument::string("element"),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(lset),
};

fn lset(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let list = list_value::peek(&mut cx.view, 0)?.ok_or(Error::NO_KEY)?;
    let index = list.index(integer(&cx.args[2])?);
    let Some(index) = index else {
        // As in Valkey, room is made before the index is looked at.
        list_value::make_room(&mut cx.view, 0, &cx.args[3])?;
        return Err(Error::fixed("ERR index out of range"));
    };
    list_value::set(&mut cx.view, 0, index, &cx.args[3])?;
    cx.view.changed(0, Class::LIST, "lset");
    cx.reply.ok();
    Ok(Effect::AsGiven)
}

static LINSERT: Command = Command {
    spec: Spec {
        name: "linsert",
        summary: "Puts an element before or behind the first one that is the pivot.",
        since: "2.2.0",
        group: Group::List,
        complexity: "O(N) where N is the number of elements up to the pivot.",
        arity: 5,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::INSERT))],
        arguments: &[
            Argument::key("key", 0),
            Argument::one_of(
                "where",
                &[Argument::word("before", "BEFORE"), Argument::word("after", "AFTER")],
            ),
            Argument::string("pivot"),
            Argument::string("element"),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(linsert),
};

fn linsert(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let side = match &cx.args[2] {
        word if word.eq_ignore_ascii_case(b"before") => End::Head,
        word if word.eq_ignore_ascii_case(b"after") => End::Tail,
        _ => return Err(Error::SYNTAX),
    };
    if list_value::peek(&mut cx.view, 0)?.is_none() {
        cx.reply.integer(0);
        return Ok(Effect::None);
    }
    let tag = |cx: &mut Cx<'_, '_>| cx.view.peek(0).map(|record| record.tag());
    let before = tag(cx);
    let len = list_value::insert(&mut cx.view, 0, &cx.args[3], side, &cx.args[4])?;
    if len.is_some() {
        cx.view.changed(0, Class::LIST, "linsert");
    }
    cx.reply.integer(len.map_or(-1, |len| len as i64));
    // As in Valkey, making room changes the encoding even if the pivot is not there.
    Ok(Effect::given_if(len.is_some() || tag(cx) != before))
}

static LREM: Command = Command {
    spec: Spec {
        name: "lrem",
        summary: "Removes elements that equal the given one, and the list with its last one.",
        since: "1.0.0",
        group: Group::List,
        complexity: "O(N) where N is the length of the list.",
        arity: 4,
        flags: Flags::WRITE,
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::DELETE))],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("count"),
            Argument::string("element"),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(lrem),
};

/// A positive count is taken from the head, a negative one from the tail; 0 means all.
const OUT_OF_RANGE: Error = Error::fixed(
    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
);

fn lrem(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let (count, start) = match integer(&cx.args[2])? {
        i64::MIN => return Err(OUT_OF_RANGE),
        0 => (usize::MAX, End::Head),
        count if count < 0 => (count.unsigned_abs() as usize, End::Tail),
        count => (count as usize, End::Head),
    };
    let removed = list_value::remove_matching(&mut cx.view, 0, &cx.args[3], count, start)?;
    if removed > 0 {
        cx.view.shrunk(0, Class::LIST, "lrem");
    }
    cx.reply.integer(removed as i64);
    Ok(Effect::given_if(removed > 0))
}

static LTRIM: Command = Command {
    spec: Spec {
        name: "ltrim",
        summary: "Removes all but the elements from one index to another, both included.",
        since: "1.0.0",
        group: Group::List,
        complexity: "O(N) where N is the number of elements removed, by nodes where the list is \
                     long.",
        arity: 4,
        flags: Flags::WRITE,
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::DELETE))],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("start"),
            Argument::integer("stop"),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(ltrim),
};

fn ltrim(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let (start, stop) = (integer(&cx.args[2])?, integer(&cx.args[3])?);
    let list = list_value::peek(&mut cx.view, 0)?;
    let kept = list.map_or(0..0, |list| list.range(start, stop));
    let len = list.map_or(0, List::len);
    if kept.is_empty() {
        list_value::remove(&mut cx.view, 0, 0..len);
    } else {
        list_value::remove(&mut cx.view, 0, kept.end..len);
        list_value::remove(&mut cx.view, 0, 0..kept.start);
    }
    let changed = kept.len() < len;
    if changed {
        cx.view.shrunk(0, Class::LIST, "ltrim");
    } else if len > 0 {
        cx.view.tell(0, Class::LIST, "ltrim");
    }
    cx.reply.ok();
    Ok(Effect::given_if(changed))
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::Effect;
    use crate::testing::events::{check_events, check_valkey_events};
    use crate::testing::{Bench, check, check_valkey, split};

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    const NOT_INTEGER: &str = "-ERR value is not an integer or out of range";

    #[test]
    fn lset() {
        check(
            "RPUSH l a b c; LSET l 0 x; LSET l -1 longer-than-before; LSET l 1 7; LRANGE l 0 -1",
            ":3; +OK; +OK; +OK; [$x $7 $longer-than-before]",
        );
        check(
            "LSET none 0 x; LSET none x x; RPUSH l a; LSET l 1 x; LSET l -2 x; \
             LSET l 4294967295 x; LSET l x x; SET s v; LSET s 0 x; LSET s x x",
            &format!(
                "-ERR no such key; -ERR no such key; :1; -ERR index out of range; \
                 -ERR index out of range; -ERR index out of range; {NOT_INTEGER}; +OK; \
                 {WRONG_TYPE}; {WRONG_TYPE}"
            ),
        );
        let (long, encoding) = ("v".repeat(9000), "OBJECT ENCODING l");
        check_valkey(
            &format!("RPUSH l a; LSET l 1 {long}; {encoding}; LLEN l"),
            ":1; -ERR index out of range; $quicklist; :1",
        );
        check_valkey(
            &format!(
                "RPUSH l a b c; LSET l 1 {long}; {encoding}; LRANGE l 0 -1; LSET l 1 x; {encoding}"
            ),
            &format!(":3; +OK; $quicklist; [$a ${long} $c]; +OK; $quicklist"),
        );
        check_valkey(
            &format!("RPUSH l {long}; {encoding}; LSET l 0 x; {encoding}"),
            ":1; $quicklist; +OK; $listpack",
        );
    }

    #[test]
    fn linsert() {
        check(
            "RPUSH l a b 3; LINSERT l BEFORE b x; LINSERT l after 3 y; LINSERT l BEFORE a z; \
             LRANGE l 0 -1; LINSERT l BEFORE none x; LINSERT none AFTER a b",
            ":3; :4; :5; :6; [$z $a $x $b $3 $y]; :-1; :0",
        );
        check(
            "SET s v; LINSERT s BEFORE a b; LINSERT s ON a b; LINSERT s BEFORE a",
            &format!(
                "+OK; {WRONG_TYPE}; -ERR syntax error; \
                 -ERR wrong number of arguments for 'linsert' command"
            ),
        );
        let long = "v".repeat(9000);
        check_valkey(
            &format!(
                "RPUSH l a; LINSERT l BEFORE none {long}; OBJECT ENCODING l; LINSERT l AFTER a b; LRANGE l 0 -1"
            ),
            ":1; :-1; $quicklist; :2; [$a $b]",
        );
    }

    #[test]
    fn lrem() {
        let list = "RPUSH l a b 1 a b 1 a";
        check(&format!("{list}; LREM l 2 a; LRANGE l 0 -1"), ":7; :2; [$b $1 $b $1 $a]");
        check(&format!("{list}; LREM l -2 a; LRANGE l 0 -1"), ":7; :2; [$a $b $1 $b $1]");
        check(&format!("{list}; LREM l 0 1; LRANGE l 0 -1"), ":7; :2; [$a $b $a $b $a]");
        check(&format!("{list}; LREM l 9 x; LREM none 0 a"), ":7; :0; :0");
        check("RPUSH l a a; LREM l -9223372036854775807 a; EXISTS l", ":2; :2; :0");
        check_valkey(
            "RPUSH l a a; LREM l -9223372036854775808 a",
            ":2; -ERR value is out of range, value must between -9223372036854775807 and \
             9223372036854775807",
        );
        check(
            "SET s v; LREM s 0 a; LREM s x a; LREM s 0",
            &format!(
                "+OK; {WRONG_TYPE}; {NOT_INTEGER}; \
                 -ERR wrong number of arguments for 'lrem' command"
            ),
        );
    }

    #[test]
    fn ltrim() {
        let list = "RPUSH l a b c d e";
        check(&format!("{list}; LTRIM l 1 3; LRANGE l 0 -1"), ":5; +OK; [$b $c $d]");
        check(&format!("{list}; LTRIM l -2 -1; LRANGE l 0 -1"), ":5; +OK; [$d $e]");
        check(&format!("{list}; LTRIM l 0 -1; LLEN l"), ":5; +OK; :5");
        check(&format!("{list}; LTRIM l 3 1; EXISTS l"), ":5; +OK; :0");
        check(&format!("{list}; LTRIM l 9 10; EXISTS l; LTRIM l 0 0"), ":5; +OK; :0; +OK");
        check(
            "SET s v; LTRIM s 0 0; LTRIM s x 0; LTRIM s 0 x",
            &format!("+OK; {WRONG_TYPE}; {NOT_INTEGER}; {NOT_INTEGER}"),
        );
    }

    #[test]
    fn a_long_list_changes_alike() {
        let many: String = (0..3000).map(|n| format!(" value-{}", n % 1000)).collect();
        check(
            &format!(
                "RPUSH l{many}; LREM l 2 value-500; LREM l -1 value-1; LINSERT l BEFORE value-700 x; \
                 LINDEX l 699; LSET l 1234 y; LPOS l y; LTRIM l 600 2000; LLEN l; LINDEX l 0; \
                 LINDEX l -1; LREM l 0 none"
            ),
            ":3000; :2; :1; :2998; $x; +OK; :1234; +OK; :1401; $value-601; $value-2; :0",
        );
    }

    #[test]
    fn encodings_after_removal() {
        let many: String = (0..1000).map(|n| format!(" value-{n}")).collect();
        check_valkey(
            &format!("RPUSH l{many}; OBJECT ENCODING l; LTRIM l 0 99; OBJECT ENCODING l"),
            ":1000; $quicklist; +OK; $listpack",
        );
        let long = "v".repeat(8000);
        check_valkey(
            &format!(
                "RPUSH l a {long} {long}; OBJECT ENCODING l; LREM l 0 {long}; OBJECT ENCODING l"
            ),
            ":3; $quicklist; :2; $listpack",
        );
    }

    #[test]
    fn the_log_gets_what_changed() {
        let mut bench = Bench::new(Protocol::Resp2);
        let mut effect = |call: &str| bench.call(split(call)[0].as_args()).1;
        effect("RPUSH l a b c d e");
        for call in ["LSET l 0 x", "LINSERT l AFTER x y", "LREM l 0 y", "LTRIM l 1 2"] {
            assert_eq!(effect(call), Effect::AsGiven, "{call}");
        }
        for call in ["LSET l 9 x", "LINSERT l AFTER n y", "LREM l 0 y", "LTRIM l 0 -1"] {
            assert_eq!(effect(call), Effect::None, "{call}");
        }
    }

    #[test]
    fn events_of_changes() {
        check_events(
            "RPUSH l a b c; LSET l 0 x; LSET l 0 x; LSET l 9 x; LSET none 0 x; LINSERT l BEFORE \
             b y; LINSERT l AFTER zz y; LINSERT none BEFORE a b; LREM l 0 zz; LREM l 0 y; LREM \
             none 0 y",
            "new l, rpush l; lset l; lset l; ; ; linsert l; ; ; ; lrem l; ",
        );
        check_events(
            "RPUSH l a b c; LTRIM l 0 1; LTRIM l 5 6; LTRIM l 0 1; RPUSH l a; LREM l 1 a",
            "new l, rpush l; ltrim l; ltrim l, del l; ; new l, rpush l; lrem l, del l",
        );
        check_valkey_events(
            "RPUSH l a b c; LTRIM l 0 -1; LTRIM none 0 -1",
            "new l, rpush l; (ltrim l); ",
        );
    }
}
