//! Taking members from an end: ZPOPMIN, ZPOPMAX, ZMPOP, and those that wait: BZPOPMIN, BZPOPMAX,
//! BZMPOP.

use kvasir_resp::args::Args;
use kvasir_resp::number::parse_integer;
use kvasir_resp::reply::{Protocol, Reply};

use crate::command::{Command, Cx, Run};
use crate::commands::options::deadline_ms;
use crate::commands::take_or_wait::take_or_wait;
use crate::effect::{Effect, call};
use crate::error::Error;
use crate::event::Class;
use crate::sorted_set_value::{self, Direction, Expected};
use crate::spec::{Argument, ArgumentKind, Begin, Find, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::value::Kind;

pub static COMMANDS: &[&Command] = &[&ZPOPMIN, &ZPOPMAX, &ZMPOP, &BZPOPMIN, &BZPOPMAX, &BZMPOP];

const TAKES: KeyFlags = KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE);

/// What ZPOPMIN and ZPOPMAX share.
const POP: Spec = Spec {
    since: "5.0.0",
    group: Group::SortedSet,
    complexity: "O(M*log(N)) where N is the size of the sorted set and M the number of members \
                 taken.",
    arity: -2,
    flags: Flags::WRITE.union(Flags::FAST),
    keys: &[KeySpec::first(TAKES)],
    arguments: &[Argument::key("key", 0), Argument::integer("count").optional()],
    ..Spec::BLANK
};

static ZPOPMIN: Command = Command {
    spec: Spec {
        name: "zpopmin",
        summary: "Takes the members with the lowest scores out of a sorted set.",
        ..POP
    },
    run: Run::Keys(|cx| pop(cx, Direction::Ascending)),
};

static ZPOPMAX: Command = Command {
    spec: Spec {
        name: "zpopmax",
        summary: "Takes the members with the highest scores out of a sorted set.",
        ..POP
    },
    run: Run::Keys(|cx| pop(cx, Direction::Descending)),
};

fn pop(cx: &mut Cx<'_, '_>, direction: Direction) -> Result<Effect, Error> {
    let count = match cx.args.len() {
        2 => None,
        3 => Some(pop_count(&cx.args[2])?),
        _ => return Err(Error::SYNTAX),
    };
    let is_nested = count.is_some() && cx.reply.protocol() == Protocol::Resp3;
    let header = |reply: &mut Reply, len: usize| {
        reply.array(if is_nested { len } else { 2 * len });
    };
    let taken = take(cx, 0, direction, count.unwrap_or(1), is_nested, header)?;
    Ok(Effect::given_if(taken > 0))
}

fn pop_count(text: &[u8]) -> Result<usize, Error> {
    let count = parse_integer(text).and_then(|count| usize::try_from(count).ok());
    count.ok_or(Error::fixed("ERR value is out of range, must be positive"))
}

const MIN_OR_MAX: &[Argument] = &[Argument::word("min", "MIN"), Argument::word("max", "MAX")];
const SEVERAL_COMPLEXITY: &str = "O(K+M*log(N)) where K is the number of keys, N the size of the \
                                  sorted set and M the number of members taken.";

static ZMPOP: Command = Command {
    spec: Spec {
        name: "zmpop",
        summary: "Takes members from an end of the first sorted set of several that is there.",
        since: "7.0.0",
        group: Group::SortedSet,
        complexity: SEVERAL_COMPLEXITY,
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
            Argument::one_of("where", MIN_OR_MAX),
            Argument::integer("count").token("COUNT").optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| {
        let request = Request::parse(cx.args.from(1))?;
        for key in 0..cx.view.key_count() {
            if let Some(effect) = request.take_from(cx, key)? {
                return Ok(effect);
            }
        }
        cx.reply.null_array();
        Ok(Effect::None)
    }),
};

/// What BZPOPMIN and BZPOPMAX share.
const WAITING_POP: Spec = Spec {
    since: "5.0.0",
    group: Group::SortedSet,
    complexity: "O(log(N)) where N is the size of the sorted set.",
    arity: -3,
    flags: Flags::WRITE.union(Flags::BLOCKING).union(Flags::FAST),
    keys: &[KeySpec::range(TAKES, 1, -2, 1)],
    history: &[("6.0.0", "`timeout` may have a fraction.")],
    arguments: &[
        Argument::key("key", 0).multiple(),
        Argument::new("timeout", ArgumentKind::Double),
    ],
    ..Spec::BLANK
};

static BZPOPMIN: Command = Command {
    spec: Spec {
        name: "bzpopmin",
        summary: "Takes the member with the lowest score from the first sorted set of several that \
                  is there, or waits for one.",
        ..WAITING_POP
    },
    run: Run::Keys(|cx| pop_or_wait(cx, Direction::Ascending)),
};

static BZPOPMAX: Command = Command {
    spec: Spec {
        name: "bzpopmax",
        summary: "Takes the member with the highest score from the first sorted set of several \
                  that is there, or waits for one.",
        ..WAITING_POP
    },
    run: Run::Keys(|cx| pop_or_wait(cx, Direction::Descending)),
};

fn pop_or_wait(cx: &mut Cx<'_, '_>, direction: Direction) -> Result<Effect, Error> {
    let deadline_ms = deadline_ms(&cx.args[cx.args.len() - 1], cx.view.env)?;
    take_or_wait(cx, Kind::SortedSet, deadline_ms, |cx, key| {
        let name = cx.view.key(key);
        let header = |reply: &mut Reply, _| {
            reply.array(3);
            reply.bulk(name);
        };
        take(cx, key, direction, 1, false, header)?;
        Ok(taken_effect(cx, key, direction, None))
    })
}

static BZMPOP: Command = Command {
    spec: Spec {
        name: "bzmpop",
        summary: "Takes members as ZMPOP does, or waits for a sorted set that has some.",
        since: "7.0.0",
        group: Group::SortedSet,
        complexity: SEVERAL_COMPLEXITY,
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
            Argument::one_of("where", MIN_OR_MAX),
            Argument::integer("count").token("COUNT").optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| {
        let request = Request::parse(cx.args.from(2))?;
        let deadline_ms = deadline_ms(&cx.args[1], cx.view.env)?;
        take_or_wait(cx, Kind::SortedSet, deadline_ms, |cx, key| {
            Ok(request.take_from(cx, key)?.expect("the key holds something"))
        })
    }),
};

/// What ZMPOP and BZMPOP want.
struct Request {
    direction: Direction,
    count: usize,
}

impl Request {
    /// `args` begin with the number of keys.
    fn parse(args: Args<'_>) -> Result<Request, Error> {
        let key_count = positive(&args[0], "ERR numkeys should be greater than 0")?;
        let rest = args.from(key_count.saturating_add(1).min(args.len()));
        let end = rest.get(0).ok_or(Error::SYNTAX)?;
        let direction = if end.eq_ignore_ascii_case(b"min") {
            Direction::Ascending
        } else if end.eq_ignore_ascii_case(b"max") {
            Direction::Descending
        } else {
            return Err(Error::SYNTAX);
        };
        let count = match rest.len() {
            1 => 1,
            2 => return Err(Error::SYNTAX),
            _ if !rest[1].eq_ignore_ascii_case(b"count") => return Err(Error::SYNTAX),
            len => {
                let count = positive(&rest[2], "ERR count should be greater than 0")?;
                if len > 3 {
                    return Err(Error::SYNTAX);
                }
                count
            }
        };
        Ok(Request { direction, count })
    }

    /// Takes members of a key and replies with them; `None` if there are none.
    fn take_from(&self, cx: &mut Cx<'_, '_>, key: usize) -> Result<Option<Effect>, Error> {
        if !cx.view.expect_kind(key, Kind::SortedSet)? {
            return Ok(None);
        }
        let name = cx.view.key(key);
        let header = |reply: &mut Reply, len: usize| {
            reply.array(2);
            reply.bulk(name);
            reply.array(len);
        };
        let taken = take(cx, key, self.direction, self.count, true, header)?;
        Ok(Some(taken_effect(cx, key, self.direction, Some(taken))))
    }
}

fn positive(text: &[u8], error: &'static str) -> Result<usize, Error> {
    let number = parse_integer(text).filter(|number| *number > 0);
    number.map(|number| number as usize).ok_or(Error::fixed(error))
}

/// Takes up to `count` members from the end where `direction` starts, and writes them behind what
/// `header` writes, which is told their number; each as an array of its own if `is_nested`.
fn take(
    cx: &mut Cx<'_, '_>,
    key: usize,
    direction: Direction,
    count: usize,
    is_nested: bool,
    header: impl FnOnce(&mut Reply, usize),
) -> Result<usize, Error> {
    let reply = &mut *cx.reply;
    let taken = sorted_set_value::edit(&mut cx.view, key, Expected::default(), |set| {
        let len = set.len();
        let taken = count.min(len);
        header(reply, taken);
        let ranks = match direction {
            Direction::Ascending => 0..taken,
            Direction::Descending => len - taken..len,
        };
        set.remove_ranks(ranks, direction, |member, score| {
            if is_nested {
                reply.array(2);
            }
            reply.bulk(member);
            reply.double_shortest(score);
        });
        taken
    })?;
    if taken > 0 {
        let event = match direction {
            Direction::Ascending => "zpopmin",
            Direction::Descending => "zpopmax",
        };
        cx.view.shrunk(key, Class::SORTED_SET, event);
    }
    Ok(taken)
}

/// What the log gets of a call that chose its key: the key is named there.
fn taken_effect(cx: &Cx<'_, '_>, key: usize, direction: Direction, count: Option<usize>) -> Effect {
    if !cx.view.env.logs {
        return Effect::Rewritten(Vec::new());
    }
    let name: &[u8] = match direction {
        Direction::Ascending => b"ZPOPMIN",
        Direction::Descending => b"ZPOPMAX",
    };
    let key = cx.view.key(key);
    Effect::Rewritten(vec![match count {
        None => call(&[name, key]),
        Some(count) => call(&[name, key, count.to_string().as_bytes()]),
    }])
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::{Effect, call};
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check3, split};

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    const ADD: &str = "ZADD z 1 a 2 b 3.5 c 4 d";

    #[test]
    fn from_one_key() {
        let script = format!(
            "{ADD}; ZPOPMIN z; ZPOPMAX z; ZPOPMIN z 0; ZPOPMAX z 5; EXISTS z; ZPOPMIN z; ZPOPMAX z 2"
        );
        check(&script, ":4; [$a $1]; [$d $4]; []; [$c $3.5 $b $2]; :0; []; []");
        check3(&script, ":4; [$a ,1]; [$d ,4]; []; [[$c ,3.5] [$b ,2]]; :0; []; []");
        let long = "~".repeat(65);
        check(
            &format!("{ADD} 9 {long}; ZPOPMAX z; ZPOPMIN z 2; ZPOPMAX z 2; EXISTS z"),
            &format!(":5; [${long} $9]; [$a $1 $b $2]; [$d $4 $c $3.5]; :0"),
        );
    }

    #[test]
    fn from_several_keys() {
        let script = format!(
            "{ADD}; ZMPOP 2 none z MIN; ZMPOP 1 z max COUNT 2; ZMPOP 2 none z MAX COUNT 9; EXISTS z; \
             ZMPOP 2 none z MIN"
        );
        check(&script, ":4; [$z [[$a $1]]]; [$z [[$d $4] [$c $3.5]]]; [$z [[$b $2]]]; :0; _");
        check3(&script, ":4; [$z [[$a ,1]]]; [$z [[$d ,4] [$c ,3.5]]]; [$z [[$b ,2]]]; :0; _");
    }

    #[test]
    fn what_is_there_is_taken_at_once() {
        let script = format!(
            "{ADD}; BZPOPMIN none z 0; BZPOPMAX z none 1.5; BZMPOP 0 2 none z MIN COUNT 9; EXISTS z; \
             BZPOPMIN z 0.01; BZPOPMAX z 0.01; BZMPOP 0.01 1 z MAX"
        );
        check(&script, ":4; [$z $a $1]; [$z $d $4]; [$z [[$b $2] [$c $3.5]]]; :0; _; _; _");
        check3(&script, ":4; [$z $a ,1]; [$z $d ,4]; [$z [[$b ,2] [$c ,3.5]]]; :0; _; _; _");
    }

    #[test]
    fn refuses() {
        let (syntax, positive) =
            ("-ERR syntax error", "-ERR value is out of range, must be positive");
        check(
            "SET s v; ZPOPMIN s; ZPOPMAX s 0; ZPOPMIN s -1; ZPOPMIN s x; ZPOPMIN s 1 2; ZPOPMIN",
            &format!(
                "+OK; {WRONG_TYPE}; {WRONG_TYPE}; {positive}; {positive}; {syntax}; \
                 -ERR wrong number of arguments for 'zpopmin' command"
            ),
        );
        let (keys, count) =
            ("-ERR numkeys should be greater than 0", "-ERR count should be greater than 0");
        check(
            "ZMPOP 0 z MIN; ZMPOP x z MIN; ZMPOP 1 z FOO; ZMPOP 2 z MIN; ZMPOP 1 z MIN COUNT 0; \
             ZMPOP 1 z MIN COUNT x; ZMPOP 1 z MIN COUNT; ZMPOP 1 z MIN COUNT 1 COUNT 2; \
             ZMPOP 1 z MIN FOO 1; ZMPOP 9223372036854775807 z MIN",
            &format!(
                "{keys}; {keys}; {syntax}; {syntax}; {count}; {count}; {syntax}; {syntax}; {syntax}; \
                 {syntax}"
            ),
        );
        check(
            "SET s v; ZADD z 1 a; ZMPOP 2 s z MIN; ZMPOP 2 z s MIN; BZPOPMIN s z 0; \
             BZMPOP 0 2 none s MIN; BZPOPMAX z s 0",
            &format!(
                "+OK; :1; {WRONG_TYPE}; [$z [[$a $1]]]; {WRONG_TYPE}; {WRONG_TYPE}; {WRONG_TYPE}"
            ),
        );
        let (float, negative) =
            ("-ERR timeout is not a float or out of range", "-ERR timeout is negative");
        check(
            "BZPOPMIN z x; BZPOPMAX z -1; BZMPOP x 1 z MIN; BZMPOP -1 1 z MIN; BZMPOP x 0 z MIN; \
             BZMPOP x 1 z FOO",
            &format!("{float}; {negative}; {float}; {negative}; {keys}; {syntax}"),
        );
    }

    #[test]
    fn the_log_names_the_key() {
        let mut bench = Bench::new(Protocol::Resp2);
        let mut effect = |call: &str| bench.call(split(call)[0].as_args()).1;
        effect("ZADD z 1 a 2 b 3 c 4 d 5 e 6 f 7 g");
        let rewritten = |words: &[&[u8]]| Effect::Rewritten(vec![call(words)]);
        assert_eq!(effect("ZPOPMIN z"), Effect::AsGiven);
        assert_eq!(effect("BZPOPMIN x z 0"), rewritten(&[b"ZPOPMIN", b"z"]));
        assert_eq!(effect("BZPOPMAX x z 0"), rewritten(&[b"ZPOPMAX", b"z"]));
        assert_eq!(effect("ZMPOP 2 x z MAX"), rewritten(&[b"ZPOPMAX", b"z", b"1"]));
        assert_eq!(effect("BZMPOP 0 2 x z MIN COUNT 9"), rewritten(&[b"ZPOPMIN", b"z", b"3"]));
        for call in ["ZPOPMIN z", "ZPOPMAX z 5", "ZMPOP 1 z MIN", "BZPOPMIN z 0"] {
            assert_eq!(effect(call), Effect::None, "{call}");
        }
    }

    #[test]
    fn events_of_popping() {
        check_events(
            "ZADD z 1 a 2 b 3 c 4 d; ZPOPMIN z; ZPOPMAX z; ZPOPMIN z 0; ZPOPMAX z 9; ZPOPMIN z; \
             ZADD z 1 a; ZPOPMIN z",
            "new z, zadd z; zpopmin z; zpopmax z; ; zpopmax z, del z; ; new z, zadd z; zpopmin \
             z, del z",
        );
        check_events(
            "ZADD z 1 a 2 b 3 c 4 d; ZMPOP 2 none z MIN; ZMPOP 2 none z MAX COUNT 9; ZMPOP 1 \
             none MIN; ZADD z 1 a 2 b; BZPOPMIN none z 0; BZPOPMAX z none 0; ZADD z 1 a; BZMPOP \
             0 2 none z MIN; BZPOPMIN z 0.01",
            "new z, zadd z; zpopmin z; zpopmax z, del z; ; new z, zadd z; zpopmin z; zpopmax z, \
             del z; new z, zadd z; zpopmin z, del z; ",
        );
        check_events(
            "@1 BZPOPMIN z 0; ZADD z 1 a; @1 BZPOPMAX z 0; ZADD z 1 b 2 c; @2 BZMPOP 0 1 y MIN \
             COUNT 2; ZADD y 1 a 2 b 3 c",
            "; new z, zadd z, zpopmin z, del z; ; new z, zadd z, zpopmax z; ; new y, zadd y, \
             zpopmin y",
        );
    }
}
