//! Adding to an end: LPUSH, RPUSH, LPUSHX, RPUSHX.

use kvasir_structures::quicklist::End;

use super::push_event;
use crate::command::{Command, Cx, Run};
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::list_value;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::value::Kind;

pub static COMMANDS: &[&Command] = &[&LPUSH, &RPUSH, &LPUSHX, &RPUSHX];

/// What the four rows share.
const PUSH: Spec = Spec {
    group: Group::List,
    complexity: "O(N) where N is the number of elements given, so O(1) for one.",
    arity: -3,
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::INSERT))],
    arguments: &[Argument::key("key", 0), Argument::string("element").multiple()],
    ..Spec::BLANK
};

static LPUSH: Command = Command {
    spec: Spec {
        name: "lpush",
        summary: "Puts elements before a list's head, one after the other; makes a missing list.",
        since: "1.0.0",
        history: &[("2.4.0", "Takes several `element`s.")],
        ..PUSH
    },
    run: Run::Keys(|cx| push(cx, End::Head)),
};

static RPUSH: Command = Command {
    spec: Spec {
        name: "rpush",
        summary: "Puts elements behind a list's tail, one after the other; makes a missing list.",
        since: "1.0.0",
        history: &[("2.4.0", "Takes several `element`s.")],
        ..PUSH
    },
    run: Run::Keys(|cx| push(cx, End::Tail)),
};

static LPUSHX: Command = Command {
    spec: Spec {
        name: "lpushx",
        summary: "Puts elements before the head of a list that is there.",
        since: "2.2.0",
        history: &[("4.0.0", "Takes several `element`s.")],
        ..PUSH
    },
    run: Run::Keys(|cx| push_existing(cx, End::Head)),
};

static RPUSHX: Command = Command {
    spec: Spec {
        name: "rpushx",
        summary: "Puts elements behind the tail of a list that is there.",
        since: "2.2.0",
        history: &[("4.0.0", "Takes several `element`s.")],
        ..PUSH
    },
    run: Run::Keys(|cx| push_existing(cx, End::Tail)),
};

fn push(cx: &mut Cx<'_, '_>, end: End) -> Result<Effect, Error> {
    let len = list_value::push(&mut cx.view, 0, end, cx.args.from(2).iter())?;
    cx.view.changed(0, Class::LIST, push_event(end));
    cx.reply.integer(len as i64);
    Ok(Effect::AsGiven)
}

fn push_existing(cx: &mut Cx<'_, '_>, end: End) -> Result<Effect, Error> {
    if !cx.view.expect_kind(0, Kind::List)? {
        cx.reply.integer(0);
        return Ok(Effect::None);
    }
    push(cx, end)
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::Effect;
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check_valkey, check_valkey3, check3, split};

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn elements_come_one_after_the_other() {
        check(
            "RPUSH l a b c; LPUSH l d e; LRANGE l 0 -1; TYPE l",
            ":3; :5; [$e $d $a $b $c]; +list",
        );
        check3("LPUSH l 1 02 -3; LRANGE l 0 -1; LPUSH l ''; LINDEX l 0", ":3; [$-3 $02 $1]; :4; $");
        check(
            "RPUSH l a; PEXPIREAT l 33177117420000; LPUSH l b; PEXPIRETIME l",
            ":1; :1; :2; :33177117420000",
        );
    }

    #[test]
    fn some_push_only_to_what_is_there() {
        check("LPUSHX l a; RPUSHX l a b; EXISTS l", ":0; :0; :0");
        check(
            "RPUSH l a; LPUSHX l b c; RPUSHX l d e; LRANGE l 0 -1",
            ":1; :3; :5; [$c $b $a $d $e]",
        );
    }

    #[test]
    fn pushes_refuse() {
        for name in ["LPUSH", "RPUSH", "LPUSHX", "RPUSHX"] {
            check(
                &format!("SET s v; {name} s a; {name} s; {name}"),
                &format!(
                    "+OK; {WRONG_TYPE}; -ERR wrong number of arguments for '{0}' command; \
                     -ERR wrong number of arguments for '{0}' command",
                    name.to_lowercase()
                ),
            );
        }
    }

    #[test]
    fn a_long_list_is_a_quicklist() {
        let (long, encoding) = ("v".repeat(8185), "OBJECT ENCODING l");
        check_valkey(&format!("RPUSH l {long}; {encoding}"), ":1; $listpack");
        check_valkey(&format!("RPUSH l {long}v; {encoding}"), ":1; $quicklist");
        check_valkey(
            &format!("RPUSH l a; LPUSH l {}; {encoding}", &long[3..]),
            ":1; :2; $listpack",
        );
        check_valkey(
            &format!("RPUSH l a; LPUSH l {}; {encoding}", &long[1..]),
            ":1; :2; $quicklist",
        );
        let many = " 1".repeat(5000);
        check_valkey(&format!("RPUSH l{many}; {encoding}; LLEN l"), ":5000; $listpack; :5000");
        check_valkey(
            &format!("RPUSH l{many}; LPUSH l{many}; {encoding}"),
            ":5000; :10000; $quicklist",
        );
        let many = " 1".repeat(8186);
        check_valkey3(&format!("LPUSH l{many}; {encoding}; LLEN l"), ":8186; $quicklist; :8186");
    }

    #[test]
    fn elements_of_any_length() {
        for len in [63, 64, 4095, 4096, 8184, 8185, 8192, 8193, 16_384, 70_000] {
            let value = "x".repeat(len);
            check(
                &format!(
                    "RPUSH l a {value}; LPUSH l {value} b; LINDEX l 1; LRANGE l 2 3; LPOP l 9"
                ),
                &format!(":2; :4; ${value}; [$a ${value}]; [$b ${value} $a ${value}]"),
            );
        }
    }

    #[test]
    fn the_log_gets_what_changed() {
        let mut bench = Bench::new(Protocol::Resp2);
        let mut effect = |call: &str| bench.call(split(call)[0].as_args()).1;
        assert_eq!(effect("LPUSHX l a"), Effect::None);
        for call in ["LPUSH l a", "RPUSH l a", "LPUSHX l a", "RPUSHX l a"] {
            assert_eq!(effect(call), Effect::AsGiven, "{call}");
        }
    }

    #[test]
    fn events_of_pushing() {
        check_events(
            "LPUSH l a; LPUSH l b c; RPUSH l d; LPUSHX l e; RPUSHX l f; LPUSHX none a; RPUSHX \
             none a; SET s v; LPUSH s a; RPUSH r a",
            "new l, lpush l; lpush l; rpush l; lpush l; rpush l; ; ; new s, set s; ; new r, \
             rpush r",
        );
    }
}
