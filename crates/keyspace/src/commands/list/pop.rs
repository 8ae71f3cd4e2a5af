//! Taking from an end: LPOP, RPOP, LMPOP.

use kvasir_resp::args::Args;
use kvasir_structures::quicklist::End;

use super::{LEFT_OR_RIGHT, end, pop_event};
use crate::command::{Command, Cx, Run};
use crate::commands::options::integer;
use crate::effect::{Effect, call};
use crate::error::Error;
use crate::event::Class;
use crate::list_value;
use crate::spec::{Argument, Begin, Find, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&LPOP, &RPOP, &LMPOP];

pub const TAKES: KeyFlags = KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE);

/// What LPOP and RPOP share.
const POP: Spec = Spec {
    since: "1.0.0",
    group: Group::List,
    complexity: "O(N) where N is the number of elements taken.",
    arity: -2,
    flags: Flags::WRITE.union(Flags::FAST),
    keys: &[KeySpec::first(TAKES)],
    history: &[("6.2.0", "Takes a `count`.")],
    arguments: &[Argument::key("key", 0), Argument::integer("count").since("6.2.0").optional()],
    ..Spec::BLANK
};

static LPOP: Command = Command {
    spec: Spec {
        name: "lpop",
        summary: "Takes elements from a list's head, and the list with its last one.",
        ..POP
    },
    run: Run::Keys(|cx| pop(cx, End::Head, "lpop")),
};

static RPOP: Command = Command {
    spec: Spec {
        name: "rpop",
        summary: "Takes elements from a list's tail, and the list with its last one.",
        ..POP
    },
    run: Run::Keys(|cx| pop(cx, End::Tail, "rpop")),
};

fn pop(cx: &mut Cx<'_, '_>, end: End, command: &str) -> Result<Effect, Error> {
    match cx.args.len() {
        2 => {
            let reply = &mut *cx.reply;
            let taken = list_value::pop_one(&mut cx.view, 0, end, |item| item.write_to(reply))?;
            match taken {
                Some(()) => cx.view.shrunk(0, Class::LIST, pop_event(end)),
                None => cx.reply.null(),
            }
            Ok(Effect::given_if(taken.is_some()))
        }
        3 => {
            let count = count(&cx.args[2])?;
            if list_value::peek(&mut cx.view, 0)?.is_none() {
                cx.reply.null_array();
                return Ok(Effect::None);
            }
            let taken = list_value::pop(&mut cx.view, 0, end, count, cx.reply)?;
            if taken > 0 {
                cx.view.shrunk(0, Class::LIST, pop_event(end));
            }
            Ok(Effect::given_if(taken > 0))
        }
        _ => Err(Error::wrong_arity(command)),
    }
}

fn count(text: &[u8]) -> Result<usize, Error> {
    let negative = Error::fixed("ERR value is out of range, must be positive");
    integer(text).ok().and_then(|count| usize::try_from(count).ok()).ok_or(negative)
}

static LMPOP: Command = Command {
    spec: Spec {
        name: "lmpop",
        summary: "Takes elements from an end of the first list of several that is there.",
        since: "7.0.0",
        group: Group::List,
        complexity: "O(N+M) where N is the number of keys and M that of the elements taken.",
        arity: -4,
        flags: Flags::WRITE.union(Flags::MOVABLEKEYS),
        keys: &[KeySpec {
            flags: TAKES,
            notes: None,
            begin: Begin::Index(1),
            find: Find::Count { count: 0, first: 1, step: 1 },
        }],
        arguments: &[
            Argument::integer("numkeys"),
            Argument::key("key", 0).multiple(),
            Argument::one_of("where", LEFT_OR_RIGHT),
            Argument::integer("count").token("COUNT").optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| {
        let request = Request::parse(cx.args.from(1))?;
        for key in 0..cx.view.key_count() {
            if let Some(effect) = request.pop_from(cx, key)? {
                return Ok(effect);
            }
        }
        cx.reply.null_array();
        Ok(Effect::None)
    }),
};

/// What LMPOP and BLMPOP are asked for, beside the keys.
pub struct Request {
    end: End,
    count: usize,
}

impl Request {
    /// From the number of keys on.
    pub fn parse(args: Args<'_>) -> Result<Request, Error> {
        let keys = at_least_one(&args[0], "ERR numkeys should be greater than 0")?;
        let word = keys.checked_add(1).and_then(|at| args.get(at)).ok_or(Error::SYNTAX)?;
        let (end, mut count) = (end(word)?, None);
        let mut words = args.from(keys + 2).iter();
        while let Some(word) = words.next() {
            match words.next() {
                Some(text) if count.is_none() && word.eq_ignore_ascii_case(b"count") => {
                    count = Some(at_least_one(text, "ERR count should be greater than 0")?);
                }
                _ => return Err(Error::SYNTAX),
            }
        }
        Ok(Request { end, count: count.unwrap_or(1) })
    }

    /// Takes elements from a key and replies with both; `None` if the key is free.
    pub fn pop_from(&self, cx: &mut Cx<'_, '_>, key: usize) -> Result<Option<Effect>, Error> {
        if list_value::peek(&mut cx.view, key)?.is_none() {
            return Ok(None);
        }
        let name = cx.view.key(key);
        cx.reply.array(2);
        cx.reply.bulk(name);
        let taken = list_value::pop(&mut cx.view, key, self.end, self.count, cx.reply)?;
        cx.view.shrunk(key, Class::LIST, pop_event(self.end));
        Ok(Some(pop_effect(cx, key, self.end, Some(taken))))
    }
}

fn at_least_one(text: &[u8], error: &'static str) -> Result<usize, Error> {
    let number = integer(text).ok().and_then(|number| usize::try_from(number).ok());
    number.filter(|number| *number > 0).ok_or(Error::fixed(error))
}

/// The LPOP or RPOP that took elements from a key.
pub fn pop_effect(cx: &Cx<'_, '_>, key: usize, end: End, count: Option<usize>) -> Effect {
    if !cx.view.env.logs {
        return Effect::Rewritten(Vec::new());
    }
    let name: &[u8] = if end == End::Head { b"LPOP" } else { b"RPOP" };
    let mut pop = call(&[name, cx.view.key(key)]);
    pop.extend(count.map(|count| count.to_string().into_bytes()));
    Effect::Rewritten(vec![pop])
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::{Effect, call};
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check_valkey, check3, split};

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn elements_leave_from_an_end() {
        check("RPUSH l a b c; LPOP l; RPOP l; LRANGE l 0 -1", ":3; $a; $c; [$b]");
        check("RPUSH l a b c d; LPOP l 2; RPOP l 9; EXISTS l", ":4; [$a $b]; [$d $c]; :0");
        check("RPUSH l a; LPOP l 0; RPOP l 0; LLEN l", ":1; []; []; :1");
        check("LPOP l; RPOP l; LPOP l 1; RPOP l 0", "_; _; _; _");
        check3("LPOP l; RPOP l; LPOP l 1; RPUSH l 1; LPOP l 1; EXISTS l", "_; _; _; :1; [$1]; :0");
    }

    #[test]
    fn pops_refuse() {
        let range = "-ERR value is out of range, must be positive";
        check(
            "SET s v; LPOP s; RPOP s 1; LPOP s x; RPOP s -1; LPOP s 1 2; LPOP",
            &format!(
                "+OK; {WRONG_TYPE}; {WRONG_TYPE}; {range}; {range}; \
                 -ERR wrong number of arguments for 'lpop' command; \
                 -ERR wrong number of arguments for 'lpop' command"
            ),
        );
    }

    #[test]
    fn lmpop_takes_from_the_first_list() {
        check("RPUSH b 1 2 3; LMPOP 2 a b LEFT", ":3; [$b [$1]]");
        check3("RPUSH b 1 2 3; LMPOP 2 a b right COUNT 2; LRANGE b 0 -1", ":3; [$b [$3 $2]]; [$1]");
        check("RPUSH b 1 2 3; LMPOP 1 b LEFT COUNT 10; EXISTS b", ":3; [$b [$1 $2 $3]]; :0");
        check("LMPOP 2 a b LEFT", "_");
        check3("LMPOP 2 a b LEFT COUNT 5", "_");
    }

    #[test]
    fn lmpop_refuses() {
        let (keys, count) =
            ("-ERR numkeys should be greater than 0", "-ERR count should be greater than 0");
        let syntax = "-ERR syntax error";
        check(
            "LMPOP 0 a LEFT; LMPOP x a LEFT; LMPOP -1 a LEFT",
            &format!("{keys}; {keys}; {keys}"),
        );
        check(
            "LMPOP 2 a LEFT; LMPOP 1 a UP; LMPOP 1 a LEFT COUNT; LMPOP 1 a LEFT COUNT 1 COUNT 1; \
             LMPOP 1 a LEFT x 1; LMPOP 9 a LEFT",
            &[syntax; 6].join("; "),
        );
        check(
            "LMPOP 1 a LEFT COUNT 0; LMPOP 1 a LEFT COUNT x; LMPOP 1 a LEFT COUNT -1; LMPOP 1 a",
            &format!(
                "{count}; {count}; {count}; -ERR wrong number of arguments for 'lmpop' command"
            ),
        );
        check(
            "RPUSH l a; SET s v; LMPOP 2 l s LEFT; LMPOP 2 l s LEFT",
            &format!(":1; +OK; [$l [$a]]; {WRONG_TYPE}"),
        );
    }

    #[test]
    fn a_list_that_shrinks_becomes_a_listpack_again() {
        // 100 bytes take 103: 39 of them and the frame of 7 are 4,024 of the 4,096 that are half.
        let many = format!(" {}", "v".repeat(100)).repeat(90);
        for pop in ["LPOP", "RPOP"] {
            check_valkey(
                &format!(
                    "RPUSH l{many}; OBJECT ENCODING l; LTRIM l 0 40; {pop} l 1; OBJECT ENCODING l; \
                     {pop} l 0; {pop} l 1; OBJECT ENCODING l; LTRIM l 0 0; OBJECT ENCODING l"
                ),
                &format!(
                    ":90; $quicklist; +OK; [${0}]; $quicklist; []; [${0}]; $listpack; +OK; $listpack",
                    "v".repeat(100)
                ),
            );
        }
    }

    #[test]
    fn the_log_gets_what_was_taken() {
        let mut bench = Bench::new(Protocol::Resp2);
        let mut effect = |call: &str| bench.call(split(call)[0].as_args()).1;
        effect("RPUSH l a b c d e");
        assert_eq!(effect("LPOP l"), Effect::AsGiven);
        assert_eq!(effect("LPOP l 0"), Effect::None);
        assert_eq!(effect("LPOP none"), Effect::None);
        let popped = Effect::Rewritten(vec![call(&[b"RPOP", b"l", b"2"])]);
        assert_eq!(effect("LMPOP 2 none l RIGHT COUNT 2"), popped);
        let popped = Effect::Rewritten(vec![call(&[b"LPOP", b"l", b"2"])]);
        assert_eq!(effect("LMPOP 1 l LEFT COUNT 9"), popped);
        assert_eq!(effect("LMPOP 1 l LEFT"), Effect::None);
    }

    #[test]
    fn events_of_popping() {
        check_events(
            "RPUSH l a b c d e f; LPOP l; RPOP l; LPOP l 0; LPOP l 2; RPOP l 9; LPOP l; RPOP l \
             2; LPOP l 0",
            "new l, rpush l; lpop l; rpop l; ; lpop l; rpop l, del l; ; ; ",
        );
        check_events(
            "RPUSH l a b c; LMPOP 2 none l LEFT; LMPOP 2 l none RIGHT COUNT 9; LMPOP 1 none \
             LEFT; RPUSH l a; RPOP l",
            "new l, rpush l; lpop l; rpop l, del l; ; new l, rpush l; rpop l, del l",
        );
    }
}
