//! Reading: LLEN, LINDEX, LRANGE, LPOS.

use std::ops::ControlFlow;

use kvasir_resp::args::Args;
use kvasir_structures::quicklist::End;

use crate::command::{Command, Cx, Run};
use crate::commands::options::integer;
use crate::effect::Effect;
use crate::error::Error;
use crate::list_value::{self, List, Needle};
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&LLEN, &LINDEX, &LRANGE, &LPOS];

const READS: &[KeySpec] = &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))];

static LLEN: Command = Command {
    spec: Spec {
        name: "llen",
        summary: "Returns how many elements a list has.",
        since: "1.0.0",
        group: Group::List,
        complexity: "O(1)",
        arity: 2,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RO)],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| {
        let len = list_value::read(&mut cx.view, 0)?.map_or(0, List::len);
        cx.reply.integer(len as i64);
        Ok(Effect::None)
    }),
};

static LINDEX: Command = Command {
    spec: Spec {
        name: "lindex",
        summary: "Returns the element at an index, which counts from the tail if negative.",
        since: "1.0.0",
        group: Group::List,
        complexity: "O(N) where N is the distance to the nearer end, by nodes where the list is \
                     long; O(1) at the ends.",
        arity: 3,
        flags: Flags::READONLY,
        keys: READS,
        arguments: &[Argument::key("key", 0), Argument::integer("index")],
        ..Spec::BLANK
    },
    run: Run::Keys(lindex),
};

fn lindex(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let Some(list) = list_value::read(&mut cx.view, 0)? else {
        cx.reply.null();
        return Ok(Effect::None);
    };
    match list.index(integer(&cx.args[2])?) {
        Some(index) => list.with(index, |item| item.write_to(cx.reply)),
        None => cx.reply.null(),
    }
    Ok(Effect::None)
}

static LRANGE: Command = Command {
    spec: Spec {
        name: "lrange",
        summary: "Returns the elements from one index to another, both included.",
        since: "1.0.0",
        group: Group::List,
        complexity: "O(S+N) where S is the distance of the first element to the nearer end, by \
                     nodes where the list is long, and N the number of elements returned.",
        arity: 4,
        flags: Flags::READONLY,
        keys: READS,
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("start"),
            Argument::integer("stop"),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(lrange),
};

fn lrange(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let (start, stop) = (integer(&cx.args[2])?, integer(&cx.args[3])?);
    let list = list_value::read(&mut cx.view, 0)?;
    let range = list.map_or(0..0, |list| list.range(start, stop));
    cx.reply.array(range.len());
    let mut left = range.len();
    if let Some(list) = list.filter(|_| left > 0) {
        list.visit(End::Head, range.start, |item| {
            item.write_to(cx.reply);
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { cx.reply.flow() }
        });
    }
    Ok(Effect::None)
}

static LPOS: Command = Command {
    spec: Spec {
        name: "lpos",
        summary: "Returns where in a list an element stands.",
        since: "6.0.6",
        group: Group::List,
        complexity: "O(N) where N is the number of elements looked at, MAXLEN at most.",
        arity: -3,
        flags: Flags::READONLY,
        keys: READS,
        arguments: &[
            Argument::key("key", 0),
            Argument::string("element"),
            Argument::integer("rank").token("RANK").optional(),
            Argument::integer("num-matches").token("COUNT").optional(),
            Argument::integer("len").token("MAXLEN").optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(lpos),
};

/// What LPOS looks for, beside the element.
struct Search {
    /// Where it starts.
    start: End,
    /// Matches that are passed over.
    skipped: usize,
    /// How many are wanted, where several may be.
    count: Option<usize>,
    /// How many elements are looked at.
    max_len: usize,
}

fn lpos(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let search = Search::parse(cx.args.from(3))?;
    let needle = Needle::new(&cx.args[2]);
    let list = list_value::read(&mut cx.view, 0)?;
    let places = list.map_or_else(Vec::new, |list| search.run(list, needle));
    match (search.count, places.first()) {
        (Some(_), _) => {
            cx.reply.array(places.len());
            places.iter().for_each(|index| cx.reply.integer(*index as i64));
        }
        (None, Some(index)) => cx.reply.integer(*index as i64),
        (None, None) => cx.reply.null(),
    }
    Ok(Effect::None)
}

impl Search {
    fn parse(options: Args<'_>) -> Result<Search, Error> {
        let mut search = Search { start: End::Head, skipped: 0, count: None, max_len: usize::MAX };
        let mut words = options.iter();
        while let Some(word) = words.next() {
            let text = words.next().ok_or(Error::SYNTAX)?;
            if word.eq_ignore_ascii_case(b"rank") {
                search.set_rank(text)?;
            } else if word.eq_ignore_ascii_case(b"count") {
                let count = not_negative(text, "ERR COUNT can't be negative")?;
                search.count = Some(if count == 0 { usize::MAX } else { count });
            } else if word.eq_ignore_ascii_case(b"maxlen") {
                let len = not_negative(text, "ERR MAXLEN can't be negative")?;
                search.max_len = if len == 0 { usize::MAX } else { len };
            } else {
                return Err(Error::SYNTAX);
            }
        }
        Ok(search)
    }

    fn set_rank(&mut self, text: &[u8]) -> Result<(), Error> {
        let rank = match integer(text)? {
            i64::MIN => return Err(Error::fixed(RANK_RANGE)),
            0 => return Err(Error::fixed(RANK_ZERO)),
            rank => rank,
        };
        self.start = if rank > 0 { End::Head } else { End::Tail };
        self.skipped = rank.unsigned_abs() as usize - 1;
        Ok(())
    }

    /// The indices of the matches that are wanted, in the order in which they are found.
    fn run(&self, list: List<'_>, needle: Needle<'_>) -> Vec<usize> {
        let (len, wanted) = (list.len(), self.count.unwrap_or(1));
        let (mut places, mut looked_at, mut matches) = (Vec::new(), 0, 0);
        let first = if self.start == End::Head { 0 } else { len - 1 };
        list.visit(self.start, first, |item| {
            if looked_at == self.max_len || places.len() == wanted {
                return ControlFlow::Break(());
            }
            if needle.is(item) {
                if matches >= self.skipped {
                    let back = self.start == End::Tail;
                    places.push(if back { len - 1 - looked_at } else { looked_at });
                }
                matches += 1;
            }
            looked_at += 1;
            ControlFlow::Continue(())
        });
        places
    }
}

const RANK_ZERO: &str = "ERR RANK can't be zero: use 1 to start from the first match, 2 from the \
                         second ... or use negative to start from the end of the list";
const RANK_RANGE: &str =
    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";

fn not_negative(text: &[u8], error: &'static str) -> Result<usize, Error> {
    let number = integer(text).ok().and_then(|number| usize::try_from(number).ok());
    number.ok_or(Error::fixed(error))
}

#[cfg(test)]
mod tests {
    use crate::testing::events::check_events;
    use crate::testing::{check, check_valkey, check3};

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    const NOT_INTEGER: &str = "-ERR value is not an integer or out of range";

    #[test]
    fn llen() {
        check("RPUSH l a b; LLEN l; LLEN none", ":2; :2; :0");
        check("SET s v; LLEN s", &format!("+OK; {WRONG_TYPE}"));
    }

    #[test]
    fn lindex() {
        check(
            "RPUSH l a 1 c; LINDEX l 0; LINDEX l 1; LINDEX l -1; LINDEX l -3; LINDEX l 3; LINDEX l -4",
            ":3; $a; $1; $c; $a; _; _",
        );
        check3("LINDEX none 0; LINDEX none x", "_; _");
        check(
            "RPUSH l a; SET s v; LINDEX l x; LINDEX s 0; LINDEX s x; LINDEX l 9223372036854775807; \
             LINDEX l -9223372036854775808",
            &format!(":1; +OK; {NOT_INTEGER}; {WRONG_TYPE}; {WRONG_TYPE}; _; _"),
        );
    }

    #[test]
    fn lrange() {
        check(
            "RPUSH l a b c 4; LRANGE l 0 -1; LRANGE l 1 2; LRANGE l -2 9; LRANGE l 3 1; LRANGE l 4 9; \
             LRANGE l -9 0; LRANGE l 0 -9",
            ":4; [$a $b $c $4]; [$b $c]; [$c $4]; []; []; [$a]; []",
        );
        check3("LRANGE none 0 -1; RPUSH l a; LRANGE l 0 0", "[]; :1; [$a]");
        check(
            "SET s v; LRANGE s 0 x; LRANGE s x 0; LRANGE s 0 0; LRANGE none x 0; LRANGE s 0",
            &format!(
                "+OK; {NOT_INTEGER}; {NOT_INTEGER}; {WRONG_TYPE}; {NOT_INTEGER}; \
                 -ERR wrong number of arguments for 'lrange' command"
            ),
        );
        check(
            "RPUSH l a b; LRANGE l -9223372036854775808 9223372036854775807; \
             LRANGE l 9223372036854775807 -9223372036854775808",
            ":2; [$a $b]; []",
        );
    }

    #[test]
    fn ranges_of_a_long_list() {
        let many: String = (0..5000).map(|n| format!(" element-{n}")).collect();
        check(
            &format!(
                "RPUSH l{many}; LRANGE l 2499 2501; LINDEX l 4000; LINDEX l -4000; LRANGE l -2 -1; \
                 LPOS l element-3210; LPOS l element-3210 RANK -1"
            ),
            ":5000; [$element-2499 $element-2500 $element-2501]; $element-4000; $element-1000; \
             [$element-4998 $element-4999]; :3210; :3210",
        );
    }

    #[test]
    fn lpos() {
        let list = "RPUSH l a b c 1 2 3 c c";
        check(
            &format!("{list}; LPOS l c; LPOS l c RANK 2; LPOS l c RANK -1; LPOS l 2"),
            ":8; :2; :6; :7; :4",
        );
        check(
            &format!("{list}; LPOS l c COUNT 2; LPOS l c COUNT 0; LPOS l x COUNT 0"),
            ":8; [:2 :6]; [:2 :6 :7]; []",
        );
        check(
            &format!("{list}; LPOS l c RANK -1 COUNT 2; LPOS l c RANK 2 COUNT 0; LPOS l c RANK 4"),
            ":8; [:7 :6]; [:6 :7]; _",
        );
        check(
            &format!(
                "{list}; LPOS l c MAXLEN 2; LPOS l c MAXLEN 3; LPOS l c COUNT 0 MAXLEN 7; LPOS l a RANK -1 MAXLEN 7; LPOS l c MAXLEN 0"
            ),
            ":8; _; :2; [:2 :6]; _; :2",
        );
        check3("LPOS none a; LPOS none a COUNT 1", "_; []");
    }

    #[test]
    fn lpos_refuses() {
        let zero = "-ERR RANK can't be zero: use 1 to start from the first match, 2 from the \
                    second ... or use negative to start from the end of the list";
        check(
            "RPUSH l a; LPOS l a RANK 0; LPOS l a RANK x; LPOS l a RANK; LPOS l a FOO 1",
            &format!(":1; {zero}; {NOT_INTEGER}; -ERR syntax error; -ERR syntax error"),
        );
        check(
            "LPOS l a COUNT -1; LPOS l a MAXLEN -1; LPOS l a COUNT x; LPOS l a MAXLEN x",
            "-ERR COUNT can't be negative; -ERR MAXLEN can't be negative; \
             -ERR COUNT can't be negative; -ERR MAXLEN can't be negative",
        );
        check("SET s v; LPOS s a; LPOS s a RANK 0", &format!("+OK; {WRONG_TYPE}; {zero}"));
        check_valkey(
            "LPOS s a RANK -9223372036854775808",
            "-ERR value is out of range, value must between -9223372036854775807 and \
             9223372036854775807",
        );
    }

    #[test]
    fn misses_are_events() {
        check_events(
            "LLEN none; LINDEX none 0; LRANGE none 0 1; LPOS none a",
            "keymiss none; keymiss none; keymiss none; keymiss none",
        );
    }
}
