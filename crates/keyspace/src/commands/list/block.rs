//! Taking from the first list of several, and waiting for one: BLPOP, BRPOP, BLMPOP.

use kvasir_structures::quicklist::End;

use super::pop::{Request, TAKES, pop_effect};
use super::{LEFT_OR_RIGHT, pop_event};
use crate::command::{Command, Cx, Run};
use crate::commands::options::deadline_ms;
use crate::commands::take_or_wait::take_or_wait;
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::list_value;
use crate::spec::{Argument, ArgumentKind, Begin, Find, Flags, Group, KeySpec, Spec};
use crate::value::Kind;

pub static COMMANDS: &[&Command] = &[&BLPOP, &BRPOP, &BLMPOP];

/// What BLPOP and BRPOP share.
const POP: Spec = Spec {
    since: "2.0.0",
    group: Group::List,
    complexity: "O(N) where N is the number of keys.",
    arity: -3,
    flags: Flags::WRITE.union(Flags::BLOCKING),
    keys: &[KeySpec::range(TAKES, 1, -2, 1)],
    history: &[("6.0.0", "`timeout` may have a fraction.")],
    arguments: &[
        Argument::key("key", 0).multiple(),
        Argument::new("timeout", ArgumentKind::Double),
    ],
    ..Spec::BLANK
};

static BLPOP: Command = Command {
    spec: Spec {
        name: "blpop",
        summary: "Takes the head of the first list of several that is there, or waits for one.",
        ..POP
    },
    run: Run::Keys(|cx| pop(cx, End::Head)),
};

static BRPOP: Command = Command {
    spec: Spec {
        name: "brpop",
        summary: "Takes the tail of the first list of several that is there, or waits for one.",
        ..POP
    },
    run: Run::Keys(|cx| pop(cx, End::Tail)),
};

fn pop(cx: &mut Cx<'_, '_>, end: End) -> Result<Effect, Error> {
    let deadline_ms = deadline_ms(&cx.args[cx.args.len() - 1], cx.view.env)?;
    take_or_wait(cx, Kind::List, deadline_ms, |cx, key| {
        let name = cx.view.key(key);
        cx.reply.array(2);
        cx.reply.bulk(name);
        let reply = &mut *cx.reply;
        list_value::pop_one(&mut cx.view, key, end, |item| item.write_to(reply))?;
        cx.view.shrunk(key, Class::LIST, pop_event(end));
        Ok(pop_effect(cx, key, end, None))
    })
}

static BLMPOP: Command = Command {
    spec: Spec {
        name: "blmpop",
        summary: "Takes elements as LMPOP does, or waits for a list that has some.",
        since: "7.0.0",
        group: Group::List,
        complexity: "O(N+M) where N is the number of keys and M that of the elements taken.",
        arity: -5,
        flags: Flags::WRITE.union(Flags::BLOCKING).union(Flags::MOVABLEKEYS),
        keys: &[KeySpec {
            flags: TAKES,
            notes: None,
            begin: Begin::Index(2),
            find: Find::Count { count: 0, first: 1, step: 1 },
        }],
        arguments: &[
            Argument::new("timeout", ArgumentKind::Double),
            Argument::integer("numkeys"),
            Argument::key("key", 0).multiple(),
            Argument::one_of("where", LEFT_OR_RIGHT),
            Argument::integer("count").token("COUNT").optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| {
        let request = Request::parse(cx.args.from(2))?;
        let deadline_ms = deadline_ms(&cx.args[1], cx.view.env)?;
        take_or_wait(cx, Kind::List, deadline_ms, |cx, key| {
            Ok(request.pop_from(cx, key)?.expect("the key holds something"))
        })
    }),
};

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::{Effect, call};
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check3, split};

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn what_is_there_is_taken_at_once() {
        check(
            "RPUSH b 1 2 3; BLPOP a b 0; BRPOP a b 0; BLPOP b a 1.5; EXISTS b",
            ":3; [$b $1]; [$b $3]; [$b $2]; :0",
        );
        check3("RPUSH b 1 2; BLPOP a b 0; BRPOP b 0", ":2; [$b $1]; [$b $2]");
        check(
            "RPUSH b 1 2 3; BLMPOP 0 2 a b LEFT; BLMPOP 1 1 b RIGHT COUNT 5",
            ":3; [$b [$1]]; [$b [$3 $2]]",
        );
        check(
            "RPUSH a 1; SET s v; BLPOP a s 0; BLMPOP 0 2 b s LEFT",
            &format!(":1; +OK; [$a $1]; {WRONG_TYPE}"),
        );
    }

    #[test]
    fn who_may_not_wait_gets_nothing() {
        check("BLPOP a b 0.01; BRPOP a 0.01; BLMPOP 0.01 2 a b LEFT", "_; _; _");
        check3("BLPOP a b 0.01; BRPOP a 0.01; BLMPOP 0.01 2 a b LEFT COUNT 3", "_; _; _");
    }

    #[test]
    fn blocking_pops_refuse() {
        let (float, negative) =
            ("-ERR timeout is not a float or out of range", "-ERR timeout is negative");
        check(
            "BLPOP a x; BLPOP a -1; BRPOP a -0.5; BLMPOP x 1 a LEFT; BLMPOP -1 1 a LEFT; BLPOP a ''",
            &format!("{float}; {negative}; {negative}; {float}; {negative}; {float}"),
        );
        check(
            "BLMPOP x 0 a LEFT; BLMPOP x 1 a UP; BLMPOP 0 2 a LEFT; BLMPOP x 1 a LEFT COUNT 0; BLMPOP 0 1 a",
            "-ERR numkeys should be greater than 0; -ERR syntax error; -ERR syntax error; \
             -ERR count should be greater than 0; \
             -ERR wrong number of arguments for 'blmpop' command",
        );
        check("SET s v; BLPOP a s b 0; BRPOP s x", &format!("+OK; {WRONG_TYPE}; {float}"));
    }

    #[test]
    fn the_log_gets_pops() {
        let mut bench = Bench::new(Protocol::Resp2);
        let mut effect = |call: &str| bench.call(split(call)[0].as_args()).1;
        effect("RPUSH l a b c d");
        assert_eq!(effect("BLPOP n l 0"), Effect::Rewritten(vec![call(&[b"LPOP", b"l"])]));
        assert_eq!(effect("BRPOP n l 0"), Effect::Rewritten(vec![call(&[b"RPOP", b"l"])]));
        let popped = Effect::Rewritten(vec![call(&[b"RPOP", b"l", b"2"])]);
        assert_eq!(effect("BLMPOP 0 1 l RIGHT COUNT 5"), popped);
        assert_eq!(effect("BLPOP n l 0"), Effect::None);
    }

    #[test]
    fn events_of_popping() {
        check_events(
            "BLPOP none l 0.01; RPUSH l a b c d; BLPOP none l 0; BRPOP l 0; BLMPOP 0 2 none l \
             LEFT; BRPOP l 0",
            "; new l, rpush l; lpop l; rpop l; lpop l; rpop l, del l",
        );
    }

    #[test]
    fn who_waited_is_told_of_after_who_came() {
        check_events(
            "@1 BLPOP l 0; RPUSH l a b; @2 BLMOVE l d LEFT LEFT 0; DEL l; RPUSH l a b; @3 BLMPOP \
             0 1 x LEFT; @4 BLMOVE l x LEFT RIGHT 0; LTRIM l 1 0; RPUSH l a; @1 BRPOP l 0; @2 \
             BLPOP l 0; LPUSH l a",
            "; new l, rpush l, lpop l; new d, lpush d, lpop l, del l; ; new l, rpush l; ; new x, \
             rpush x, lpop l, lpop x, del x; ltrim l, del l; new l, rpush l; rpop l, del l; ; \
             new l, lpush l, lpop l, del l",
        );
    }
}
