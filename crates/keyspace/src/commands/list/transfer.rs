//! From one list to another: LMOVE, RPOPLPUSH, and BLMOVE, BRPOPLPUSH, which wait for an element.

use kvasir_structures::quicklist::End;
use smallvec::SmallVec;

use super::pop::TAKES;
use super::{LEFT_OR_RIGHT, end, pop_event, push_event};
use crate::command::{Command, Cx, Run};
use crate::commands::options::deadline_ms;
use crate::effect::{Effect, call};
use crate::error::Error;
use crate::event::Class;
use crate::hash_value::Item;
use crate::list_value::{self, Ends};
use crate::spec::{Argument, ArgumentKind, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::value::Kind;
use crate::view::View;
use crate::waiting::{Blocking, Nothing, Wait};

pub static COMMANDS: &[&Command] = &[&LMOVE, &RPOPLPUSH, &BLMOVE, &BRPOPLPUSH];

const WRITES: Flags = Flags::WRITE.union(Flags::DENYOOM);
const WAITS: Flags = WRITES.union(Flags::BLOCKING);
const KEYS: &[KeySpec] =
    &[KeySpec::first(TAKES), KeySpec::range(KeyFlags::RW.union(KeyFlags::INSERT), 2, 0, 1)];
/// Where RPOPLPUSH takes and puts.
const TAIL_TO_HEAD: Ends = Ends { from: End::Tail, to: End::Head };
const TIMEOUT: Argument = Argument::new("timeout", ArgumentKind::Double);

static LMOVE: Command = Command {
    spec: Spec {
        name: "lmove",
        summary: "Moves an element from an end of a list to an end of another, or of the same.",
        since: "6.2.0",
        group: Group::List,
        complexity: "O(1)",
        arity: 5,
        flags: WRITES,
        keys: KEYS,
        arguments: &[
            Argument::key("source", 0),
            Argument::key("destination", 1),
            Argument::one_of("wherefrom", LEFT_OR_RIGHT),
            Argument::one_of("whereto", LEFT_OR_RIGHT),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| {
        let ends = Ends { from: end(&cx.args[3])?, to: end(&cx.args[4])? };
        transfer_or_null(cx, ends)
    }),
};

static RPOPLPUSH: Command = Command {
    spec: Spec {
        name: "rpoplpush",
        summary: "Moves the last element of a list before the head of another, or of the same.",
        since: "1.2.0",
        group: Group::List,
        complexity: "O(1)",
        arity: 3,
        flags: WRITES,
        keys: KEYS,
        deprecated: Some(("6.2.0", "`LMOVE` with the `RIGHT` and `LEFT` arguments")),
        arguments: &[Argument::key("source", 0), Argument::key("destination", 1)],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| transfer_or_null(cx, TAIL_TO_HEAD)),
};

static BLMOVE: Command = Command {
    spec: Spec {
        name: "blmove",
        summary: "Moves an element as LMOVE does, and waits for one if the source has none.",
        since: "6.2.0",
        group: Group::List,
        complexity: "O(1)",
        arity: 6,
        flags: WAITS,
        keys: KEYS,
        arguments: &[
            Argument::key("source", 0),
            Argument::key("destination", 1),
            Argument::one_of("wherefrom", LEFT_OR_RIGHT),
            Argument::one_of("whereto", LEFT_OR_RIGHT),
            TIMEOUT,
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| {
        let ends = Ends { from: end(&cx.args[3])?, to: end(&cx.args[4])? };
        transfer_or_wait(cx, ends, move_effect)
    }),
};

static BRPOPLPUSH: Command = Command {
    spec: Spec {
        name: "brpoplpush",
        summary: "Moves an element as RPOPLPUSH does, and waits for one if the source has none.",
        since: "2.2.0",
        group: Group::List,
        complexity: "O(1)",
        arity: 4,
        flags: WAITS,
        keys: KEYS,
        history: &[("6.0.0", "`timeout` may have a fraction.")],
        deprecated: Some(("6.2.0", "`BLMOVE` with the `RIGHT` and `LEFT` arguments")),
        arguments: &[Argument::key("source", 0), Argument::key("destination", 1), TIMEOUT],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| transfer_or_wait(cx, TAIL_TO_HEAD, pop_effect)),
};

fn transfer_or_null(cx: &mut Cx<'_, '_>, ends: Ends) -> Result<Effect, Error> {
    if transfer(cx, ends)? {
        return Ok(Effect::AsGiven);
    }
    cx.reply.null();
    Ok(Effect::None)
}

/// The timeout is the last argument.
fn transfer_or_wait(
    cx: &mut Cx<'_, '_>,
    ends: Ends,
    effect: fn(&Cx<'_, '_>, Ends) -> Effect,
) -> Result<Effect, Error> {
    let deadline_ms = deadline_ms(&cx.args[cx.args.len() - 1], cx.view.env)?;
    cx.view.expect_kind(0, Kind::List)?;
    if !cx.is_behind_others(0) && transfer(cx, ends)? {
        return Ok(effect(cx, ends));
    }
    // A call that may not wait answers as LMOVE does; one that has waited, as BLPOP does.
    if cx.blocking == Blocking::Never {
        cx.reply.null();
        return Ok(Effect::None);
    }
    cx.wait(Wait {
        kind: Kind::List,
        deadline_ms,
        nothing: Nothing::NullArray,
        wakes_on_removal: false,
        call: None,
    })
}

/// Moves one element and replies with it; `false` if there is none.
fn transfer(cx: &mut Cx<'_, '_>, ends: Ends) -> Result<bool, Error> {
    if list_value::peek(&mut cx.view, 0)?.is_none() {
        return Ok(false);
    }
    cx.view.expect_kind(1, Kind::List)?;
    let copy = |bytes: &[u8]| SmallVec::<[u8; 128]>::from_slice(bytes);
    let reply = &mut *cx.reply;
    let take = |item: Item<'_>| {
        item.write_to(reply);
        item.with_bytes(copy)
    };
    if cx.view.key(0) != cx.view.key(1) {
        let element = list_value::pop_one(&mut cx.view, 0, ends.from, take)?;
        let Some(element) = element else { return Ok(false) };
        list_value::push(&mut cx.view, 1, ends.to, std::iter::once(&element[..]))?;
    } else if let Some(list) = list_value::peek(&mut cx.view, 0)? {
        let element = list.with(list.first_from(ends.from), take);
        list_value::turn(&mut cx.view, 0, ends, &element)?;
    }
    tell(&mut cx.view, ends);
    Ok(true)
}

/// The element is told to arrive before it is told to leave.
fn tell(view: &mut View<'_, '_>, ends: Ends) {
    view.changed(1, Class::LIST, push_event(ends.to));
    view.shrunk(0, Class::LIST, pop_event(ends.from));
}

/// The LMOVE that a blocking call was in the end.
fn move_effect(cx: &Cx<'_, '_>, ends: Ends) -> Effect {
    if !cx.view.env.logs {
        return Effect::Rewritten(Vec::new());
    }
    let word = |end: End| if end == End::Head { &b"LEFT"[..] } else { b"RIGHT" };
    let keys = (cx.view.key(0), cx.view.key(1));
    Effect::Rewritten(vec![call(&[b"LMOVE", keys.0, keys.1, word(ends.from), word(ends.to)])])
}

/// The RPOPLPUSH that BRPOPLPUSH was in the end.
fn pop_effect(cx: &Cx<'_, '_>, _: Ends) -> Effect {
    if !cx.view.env.logs {
        return Effect::Rewritten(Vec::new());
    }
    Effect::Rewritten(vec![call(&[b"RPOPLPUSH", cx.view.key(0), cx.view.key(1)])])
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::{Effect, call};
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check_valkey, check3, split};

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn lmove_takes_and_puts_at_either_end() {
        for (from, to, reply, rest) in [
            ("LEFT", "LEFT", "$a", "[$b $c]; [$a $x $y]"),
            ("left", "RIGHT", "$a", "[$b $c]; [$x $y $a]"),
            ("RIGHT", "left", "$c", "[$a $b]; [$c $x $y]"),
            ("RIGHT", "RIGHT", "$c", "[$a $b]; [$x $y $c]"),
        ] {
            for call in [format!("LMOVE l m {from} {to}"), format!("BLMOVE l m {from} {to} 0")] {
                check(
                    &format!("RPUSH l a b c; RPUSH m x y; {call}; LRANGE l 0 -1; LRANGE m 0 -1"),
                    &format!(":3; :2; {reply}; {rest}"),
                );
            }
        }
        check3("RPUSH l 1; LMOVE l m LEFT LEFT; EXISTS l; LRANGE m 0 -1", ":1; $1; :0; [$1]");
        check(
            "RPUSH l a b c; RPOPLPUSH l m; RPOPLPUSH l m; BRPOPLPUSH l m 1; EXISTS l; LRANGE m 0 -1",
            ":3; $c; $b; $a; :0; [$a $b $c]",
        );
        check3("LMOVE none m LEFT LEFT; RPOPLPUSH none m; EXISTS m", "_; _; :0");
    }

    #[test]
    fn a_list_turns() {
        check(
            "RPUSH l a b c; EXPIRE l 100; RPOPLPUSH l l; LRANGE l 0 -1; LMOVE l l LEFT LEFT; \
             LMOVE l l LEFT RIGHT; LRANGE l 0 -1; TTL l",
            ":3; :1; $c; [$c $a $b]; $c; $c; [$a $b $c]; :100",
        );
        check(
            "RPUSH l a; EXPIRE l 100; RPOPLPUSH l l; LRANGE l 0 -1; TTL l",
            ":1; :1; $a; [$a]; :100",
        );
        // It is not small while the element is on its way.
        let part = "v".repeat(1900);
        check_valkey(
            &format!(
                "RPUSH l {part} {part} {part} {part} {part}; RPOP l 2; LMOVE l l LEFT RIGHT; \
                 OBJECT ENCODING l; RPOP l; OBJECT ENCODING l"
            ),
            &format!(":5; [${part} ${part}]; ${part}; $quicklist; ${part}; $listpack"),
        );
        let long = "v".repeat(8000);
        check_valkey(
            &format!(
                "RPUSH l a {long} {long} {long}; LMOVE l l RIGHT LEFT; OBJECT ENCODING l; LLEN l"
            ),
            &format!(":4; ${long}; $quicklist; :4"),
        );
    }

    #[test]
    fn moves_refuse() {
        let syntax = "-ERR syntax error";
        check(
            "RPUSH l a; SET s v; LMOVE l s LEFT LEFT; LMOVE s l LEFT LEFT; RPOPLPUSH l s; \
             RPOPLPUSH s l; BLMOVE l s LEFT LEFT 0; BLMOVE s l LEFT LEFT 0; BRPOPLPUSH s l 0; \
             LRANGE l 0 -1; LMOVE none s LEFT LEFT",
            &format!(
                ":1; +OK; {WRONG_TYPE}; {WRONG_TYPE}; {WRONG_TYPE}; {WRONG_TYPE}; {WRONG_TYPE}; \
                 {WRONG_TYPE}; {WRONG_TYPE}; [$a]; _"
            ),
        );
        check(
            "LMOVE l m UP LEFT; LMOVE l m LEFT UP; BLMOVE l m UP LEFT 0; BLMOVE l m LEFT UP x",
            &[syntax; 4].join("; "),
        );
        check(
            "BLMOVE l m LEFT LEFT x; BLMOVE l m LEFT LEFT -1; BRPOPLPUSH l m x; LMOVE l m LEFT",
            "-ERR timeout is not a float or out of range; -ERR timeout is negative; \
             -ERR timeout is not a float or out of range; \
             -ERR wrong number of arguments for 'lmove' command",
        );
    }

    #[test]
    fn the_log_gets_moves() {
        let mut bench = Bench::new(Protocol::Resp2);
        let mut effect = |call: &str| bench.call(split(call)[0].as_args()).1;
        effect("RPUSH l a b c d");
        assert_eq!(effect("LMOVE l m LEFT RIGHT"), Effect::AsGiven);
        assert_eq!(effect("RPOPLPUSH l m"), Effect::AsGiven);
        assert_eq!(effect("LMOVE none m LEFT RIGHT"), Effect::None);
        let moved = |from: &[u8], to: &[u8]| {
            Effect::Rewritten(vec![call(&[b"LMOVE", b"l", b"m", from, to])])
        };
        assert_eq!(effect("BLMOVE l m LEFT RIGHT 0"), moved(b"LEFT", b"RIGHT"));
        let popped = Effect::Rewritten(vec![call(&[b"RPOPLPUSH", b"l", b"m"])]);
        assert_eq!(effect("BRPOPLPUSH l m 0"), popped);
        assert_eq!(effect("BRPOPLPUSH l m 0"), Effect::None);
    }

    #[test]
    fn events_of_moving() {
        check_events(
            "RPUSH l a b c; LMOVE l d LEFT RIGHT; LMOVE l d RIGHT LEFT; RPOPLPUSH l d; LMOVE l d \
             LEFT LEFT; LMOVE d l RIGHT RIGHT; LMOVE l l LEFT LEFT; LMOVE d d LEFT RIGHT; SET s \
             1; LMOVE d s LEFT LEFT",
            "new l, rpush l; new d, rpush d, lpop l; lpush d, rpop l; lpush d, rpop l, del l; ; \
             new l, rpush l, rpop d; lpush l, lpop l; rpush d, lpop d; new s, set s; ",
        );
        check_events(
            "RPUSH l a b; BLMOVE l d LEFT LEFT 0; BRPOPLPUSH l d 0; BLMOVE none d LEFT LEFT 0.01",
            "new l, rpush l; new d, lpush d, lpop l; lpush d, rpop l, del l; ",
        );
    }
}
