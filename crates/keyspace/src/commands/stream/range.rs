//! Reading by ids: XRANGE, XREVRANGE, XLEN.

use kvasir_structures::stream::Entry;

use crate::command::{Command, Cx, Run};
use crate::commands::options::integer;
use crate::commands::stream::id;
use crate::effect::Effect;
use crate::error::Error;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::stream_value;

pub static COMMANDS: &[&Command] = &[&XLEN, &XRANGE, &XREVRANGE];

static XLEN: Command = Command {
    spec: Spec {
        name: "xlen",
        summary: "Returns the number of entries in a stream.",
        since: "5.0.0",
        group: Group::Stream,
        arity: 2,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RO)],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BLANK
    },
    run: Run::Keys(xlen),
};

fn xlen(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let len = stream_value::read(&mut cx.view, 0)?.map_or(0, |stream| stream.len());
    cx.reply.integer(len as i64);
    Ok(Effect::None)
}

static XRANGE: Command = Command {
    spec: Spec {
        name: "xrange",
        summary: "Returns the entries between two ids.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(N) where N is the number of entries returned.",
        arity: -4,
        flags: Flags::READONLY,
        keys: &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))],
        history: &[("6.2.0", "A bound may be excluded with `(`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("start"),
            Argument::string("end"),
            Argument::integer("count").token("COUNT").optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| range(cx, false)),
};

static XREVRANGE: Command = Command {
    spec: Spec {
        name: "xrevrange",
        summary: "Returns the entries between two ids, the greatest id first.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(N) where N is the number of entries returned.",
        arity: -4,
        flags: Flags::READONLY,
        keys: &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))],
        history: &[("6.2.0", "A bound may be excluded with `(`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("end"),
            Argument::string("start"),
            Argument::integer("count").token("COUNT").optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| range(cx, true)),
};

fn range(cx: &mut Cx<'_, '_>, is_backward: bool) -> Result<Effect, Error> {
    let args = cx.args;
    let (first, last) = if is_backward { (&args[3], &args[2]) } else { (&args[2], &args[3]) };
    let (first, last) = (id::range_start(first)?, id::range_end(last)?);
    let count = count(cx)?;
    let Some(stream) = stream_value::read(&mut cx.view, 0)? else {
        cx.reply.array(0);
        return Ok(Effect::None);
    };
    match count {
        Some(0) => cx.reply.null_array(),
        count if is_backward => write(cx.reply, stream.range_backward(first, last), count),
        count => write(cx.reply, stream.range(first, last), count),
    }
    Ok(Effect::None)
}

/// How many entries are wanted at most; `None`: all. Negative numbers of them count as 0.
fn count(cx: &Cx<'_, '_>) -> Result<Option<usize>, Error> {
    let mut count = None;
    let mut options = cx.args.from(4).iter();
    while let Some(word) = options.next() {
        if !word.eq_ignore_ascii_case(b"count") {
            return Err(Error::SYNTAX);
        }
        let number = integer(options.next().ok_or(Error::SYNTAX)?)?;
        // -1 is how Redis itself says that no count was given.
        count = Some(number.max(0) as usize);
    }
    Ok(count)
}

fn write<'a>(
    reply: &mut kvasir_resp::reply::Reply,
    entries: impl Iterator<Item = Entry<'a>>,
    count: Option<usize>,
) {
    let array = reply.deferred_array();
    let mut written = 0;
    for entry in entries.take(count.unwrap_or(usize::MAX)) {
        id::write_entry(reply, entry);
        written += 1;
        if reply.is_cut() {
            break;
        }
    }
    reply.set_count(array, written);
}

#[cfg(test)]
mod tests {
    use crate::testing::events::check_events;
    use crate::testing::{check, check3};

    const THREE: &str = "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3";
    const ADDED: &str = "$1-1; $2-1; $3-1";

    #[test]
    fn both_ways() {
        check(
            &format!("{THREE}; XRANGE s - +; XREVRANGE s + -; XRANGE s 2 2; XREVRANGE s 2 3"),
            &format!(
                "{ADDED}; [[$1-1 [$a $1]] [$2-1 [$b $2]] [$3-1 [$c $3]]]; \
                 [[$3-1 [$c $3]] [$2-1 [$b $2]] [$1-1 [$a $1]]]; [[$2-1 [$b $2]]]; []"
            ),
        );
        check3(
            &format!("{THREE}; XREVRANGE s 2 -"),
            &format!("{ADDED}; [[$2-1 [$b $2]] [$1-1 [$a $1]]]"),
        );
    }

    #[test]
    fn counts() {
        check(
            &format!(
                "{THREE}; XRANGE s - + COUNT 1; XREVRANGE s + - count 1; XRANGE s - + COUNT 9; \
                 XRANGE s - + COUNT 0; XRANGE s - + COUNT -5; XRANGE none - + COUNT 0; \
                 XRANGE s - + COUNT 1 COUNT 2"
            ),
            &format!(
                "{ADDED}; [[$1-1 [$a $1]]]; [[$3-1 [$c $3]]]; \
                 [[$1-1 [$a $1]] [$2-1 [$b $2]] [$3-1 [$c $3]]]; _; _; []; \
                 [[$1-1 [$a $1]] [$2-1 [$b $2]]]"
            ),
        );
        check3(
            &format!("{THREE}; XRANGE s - + COUNT 0; XREVRANGE none + -"),
            &format!("{ADDED}; _; []"),
        );
    }

    #[test]
    fn deleted_entries_are_not_there() {
        check(
            &format!(
                "{THREE}; XDEL s 2-1; XRANGE s - +; XREVRANGE s + -; XRANGE s 2-1 2-1; XLEN s"
            ),
            &format!(
                "{ADDED}; :1; [[$1-1 [$a $1]] [$3-1 [$c $3]]]; [[$3-1 [$c $3]] [$1-1 [$a $1]]]; \
                 []; :2"
            ),
        );
    }

    #[test]
    fn what_is_wrong() {
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        check(
            "SET s v; XRANGE s - +; XREVRANGE s + -; XLEN s; XLEN none; XRANGE none - +",
            &format!("+OK; {wrong}; {wrong}; {wrong}; :0; []"),
        );
        let syntax = "-ERR syntax error";
        check(
            "XRANGE s - + COUNT; XRANGE s - + 1; XRANGE s - + COUNT x; XRANGE s - + COUNT 1 x; \
             XRANGE s -; XLEN s s",
            &format!(
                "{syntax}; {syntax}; -ERR value is not an integer or out of range; {syntax}; \
                 -ERR wrong number of arguments for 'xrange' command; \
                 -ERR wrong number of arguments for 'xlen' command"
            ),
        );
    }

    #[test]
    fn misses_are_events() {
        check_events("XLEN k; XRANGE k - +; XREVRANGE k + -", "keymiss k; keymiss k; keymiss k");
    }
}
