//! What was delivered and not acknowledged: XACK, XPENDING.

use kvasir_resp::args::Args;
use kvasir_resp::reply::Reply;
use kvasir_structures::stream::{Group as ConsumerGroup, Pending, StreamId};

use crate::command::{Command, Cx, Run};
use crate::commands::options::integer;
use crate::commands::stream::id;
use crate::effect::Effect;
use crate::error::{Error, quoted};
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::stream_value;

pub static COMMANDS: &[&Command] = &[&XACK, &XPENDING];

static XACK: Command = Command {
    spec: Spec {
        name: "xack",
        summary: "Says that entries delivered to a group were dealt with; returns how many of \
                  them were pending.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(1) for each id.",
        arity: -4,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::UPDATE))],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("group"),
            Argument::string("id").multiple(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(xack),
};

fn xack(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let args = cx.args;
    let group = &args[2];
    // Without a group there is nothing to acknowledge, whatever the ids are.
    let stream = stream_value::read(&mut cx.view, 0)?;
    if stream.is_none_or(|stream| stream.group(group).is_none()) {
        cx.reply.integer(0);
        return Ok(Effect::None);
    }
    let ids = args.from(3).iter().map(|text| id::id(text, 0));
    let ids: Vec<StreamId> = ids.collect::<Result<_, _>>()?;
    let count = stream_value::change_group(&mut cx.view, 0, group, |_, group| {
        ids.iter().filter(|id| group.acknowledge(**id)).count()
    });
    let count = count?.unwrap_or(0);
    cx.reply.integer(count as i64);
    Ok(Effect::given_if(count > 0))
}

static XPENDING: Command = Command {
    spec: Spec {
        name: "xpending",
        summary: "Tells what was delivered to a group and is not acknowledged yet.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(N) where N is the number of entries returned, or of those looked at with \
                     IDLE; for the summary O(N) where N is the number of consumers.",
        arity: -3,
        flags: Flags::READONLY,
        keys: &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output"],
        history: &[("6.2.0", "Knows `IDLE`; a bound may be excluded with `(`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("group"),
            Argument::block(
                "filters",
                &[
                    Argument::integer("min-idle-time").token("IDLE").since("6.2.0").optional(),
                    Argument::string("start"),
                    Argument::string("end"),
                    Argument::integer("count"),
                    Argument::string("consumer").optional(),
                ],
            )
            .optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(xpending),
};

/// Which pending entries are wanted.
struct Filter<'a> {
    idle_ms_min: i64,
    first: StreamId,
    last: StreamId,
    count: usize,
    consumer: Option<&'a [u8]>,
}

fn xpending(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let args = cx.args;
    let filter = Filter::parse(args)?;
    let (name, group) = (cx.view.key(0), &args[2]);
    let now_ms = cx.view.env.now_ms;
    let stream = stream_value::read(&mut cx.view, 0)?;
    let group = stream.as_ref().and_then(|stream| stream.group(group));
    let group = group.ok_or_else(|| no_key_or_group(name, &args[2]))?;
    match filter {
        None => summary(cx.reply, group),
        Some(filter) => list(cx.reply, group, &filter, now_ms),
    }
    Ok(Effect::None)
}

/// What commands say that need a key with a group.
pub fn no_key_or_group(key: &[u8], group: &[u8]) -> Error {
    let text =
        [b"NOGROUP No such key '", quoted(key), b"' or consumer group '", quoted(group), b"'"];
    Error::from_bytes(text.concat())
}

impl<'a> Filter<'a> {
    /// Nothing behind the group asks for a summary.
    fn parse(args: Args<'a>) -> Result<Option<Filter<'a>>, Error> {
        match args.len() {
            3 => return Ok(None),
            6..=9 => {}
            _ => return Err(Error::SYNTAX),
        }
        let has_idle = args[3].eq_ignore_ascii_case(b"idle");
        let idle_ms_min = if has_idle { integer(args.get(4).unwrap_or_default())? } else { 0 };
        let rest = args.from(if has_idle { 5 } else { 3 });
        if rest.len() < 3 {
            return Err(Error::SYNTAX);
        }
        let count = usize::try_from(integer(rest.get(2).unwrap_or_default())?).unwrap_or(0);
        let first = id::range_start(rest.name())?;
        let last = id::range_end(rest.get(1).unwrap_or_default())?;
        Ok(Some(Filter { idle_ms_min, first, last, count, consumer: rest.get(3) }))
    }
}

/// Writes how many entries are pending, between which ids, and how many for whom.
fn summary(reply: &mut Reply, group: &ConsumerGroup) {
    let mut pending = group.pending_range(StreamId::MIN, StreamId::MAX);
    reply.array(4);
    reply.integer(group.pending_len() as i64);
    let Some((first, _)) = pending.next() else {
        reply.null();
        reply.null();
        reply.null_array();
        return;
    };
    id::write_id(reply, first);
    id::write_id(reply, pending.next_back().map_or(first, |(last, _)| last));
    let busy = group.consumers().filter(|consumer| consumer.pending_len() > 0);
    let array = reply.deferred_array();
    let written = busy.map(|consumer| {
        reply.array(2);
        reply.bulk(consumer.name());
        reply.bulk_integer(consumer.pending_len() as i64);
    });
    let count = written.count();
    reply.set_count(array, count);
}

fn list(reply: &mut Reply, group: &ConsumerGroup, filter: &Filter<'_>, now_ms: u64) {
    let idle_ms = |pending: &Pending| now_ms.saturating_sub(pending.delivered_ms) as i64;
    let Filter { first, last, .. } = *filter;
    let is_idle = |(_, pending): &(StreamId, Pending)| idle_ms(pending) >= filter.idle_ms_min;
    let array = reply.deferred_array();
    let mut write = |(id, pending): (StreamId, Pending)| {
        reply.array(4);
        id::write_id(reply, id);
        reply.bulk(group.name_of(pending.consumer));
        reply.integer(idle_ms(&pending));
        reply.integer(pending.deliveries as i64);
    };
    let count = match filter.consumer {
        None => {
            let pending = group.pending_range(first, last).filter(is_idle);
            pending.take(filter.count).map(&mut write).count()
        }
        Some(name) => group.consumer(name).map_or(0, |consumer| {
            let pending = group.pending_of(consumer, first, last).filter(is_idle);
            pending.take(filter.count).map(&mut write).count()
        }),
    };
    reply.set_count(array, count);
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check3, split};

    #[test]
    fn xack_counts() {
        check(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XREADGROUP \
             GROUP g c STREAMS s >; XACK s g 1 1-1 1-1 2-1; XACK s g 9-9; XACK s no x; XACK none \
             g x; XACK s g 3-1 x; XPENDING s g",
            "$1-1; $2-1; $3-1; +OK; [[$s [[$1-1 [$a $1]] [$2-1 [$b $2]] [$3-1 [$c $3]]]]]; :2; \
             :0; :0; :0; -ERR Invalid stream ID specified as stream command argument; [:1 $3-1 \
             $3-1 [[$c $1]]]",
        );
    }

    #[test]
    fn a_summary() {
        check(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XPENDING s g; \
             XREADGROUP GROUP g b COUNT 2 STREAMS s >; XREADGROUP GROUP g a STREAMS s >; XGROUP \
             CREATECONSUMER s g idle; XPENDING s g; XACK s g 1-1 2-1; XPENDING s g",
            "$1-1; $2-1; $3-1; +OK; [:0 _ _ _]; [[$s [[$1-1 [$a $1]] [$2-1 [$b $2]]]]]; [[$s \
             [[$3-1 [$c $3]]]]]; :1; [:3 $1-1 $3-1 [[$a $1] [$b $2]]]; :2; [:1 $3-1 $3-1 [[$a \
             $1]]]",
        );
        check3(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XPENDING s g; \
             XREADGROUP GROUP g b COUNT 2 STREAMS s >; XPENDING s g; XPENDING s g - + 10 no",
            "$1-1; $2-1; $3-1; +OK; [:0 _ _ _]; {$s [[$1-1 [$a $1]] [$2-1 [$b $2]]]}; [:2 $1-1 \
             $2-1 [[$b $2]]]; []",
        );
    }

    #[test]
    fn what_is_wrong() {
        check(
            "XADD s 1-1 a 1; XGROUP CREATE s g 0; XPENDING none g; XPENDING s no; XPENDING none \
             no - + 1; XPENDING s g -; XPENDING s g - +; XPENDING s g - + x; XPENDING s g x + 1; \
             XPENDING s g - x 1; XPENDING s g (18446744073709551615-18446744073709551615 + 1; \
             XPENDING s g - (0-0 1; XPENDING s g IDLE; XPENDING s g IDLE 1; XPENDING s g IDLE 1 \
             - +; XPENDING s g IDLE x - + 1; XPENDING s g IDLE 1 - + 1 c x; XPENDING s g - + 1 c \
             c; XPENDING s g - + 0; XPENDING s g - + -1; XPENDING s; XACK s g; XACK s; XACK s g x",
            "$1-1; +OK; -NOGROUP No such key 'none' or consumer group 'g'; -NOGROUP No such key \
             's' or consumer group 'no'; -NOGROUP No such key 'none' or consumer group 'no'; \
             -ERR syntax error; -ERR syntax error; -ERR value is not an integer or out of range; \
             -ERR Invalid stream ID specified as stream command argument; -ERR Invalid stream ID \
             specified as stream command argument; -ERR invalid start ID for the interval; -ERR \
             invalid end ID for the interval; -ERR syntax error; -ERR syntax error; -ERR syntax \
             error; -ERR value is not an integer or out of range; -ERR syntax error; []; []; []; \
             -ERR wrong number of arguments for 'xpending' command; -ERR wrong number of \
             arguments for 'xack' command; -ERR wrong number of arguments for 'xack' command; \
             -ERR Invalid stream ID specified as stream command argument",
        );
        check(
            "SET k v; XACK k g 1; XPENDING k g; XPENDING k g - + 1",
            "+OK; -WRONGTYPE Operation against a key holding the wrong kind of value; -WRONGTYPE \
             Operation against a key holding the wrong kind of value; -WRONGTYPE Operation \
             against a key holding the wrong kind of value",
        );
    }

    #[test]
    fn a_list_with_times() {
        let mut bench = Bench::new(Protocol::Resp2);
        bench.env.now_ms = 1_000;
        let mut ask = |wait_ms, call: &str| {
            bench.env.now_ms += wait_ms;
            let reply = bench.call(split(call)[0].as_args()).0;
            String::from_utf8(reply).unwrap().replace("\r\n", " ")
        };
        ask(0, "XADD s 1-1 a 1");
        ask(0, "XADD s 2-1 a 1");
        ask(0, "XGROUP CREATE s g 0");
        ask(0, "XREADGROUP GROUP g c COUNT 1 STREAMS s >");
        ask(50, "XREADGROUP GROUP g d COUNT 1 STREAMS s >");
        let (c, d) = ("*4 $3 1-1 $1 c :150 :1 ", "*4 $3 2-1 $1 d :100 :1 ");
        assert_eq!(ask(100, "XPENDING s g - + 10"), format!("*2 {c}{d}"));
        assert_eq!(ask(0, "XPENDING s g - + 1"), format!("*1 {c}"));
        assert_eq!(ask(0, "XPENDING s g (1-1 + 10"), format!("*1 {d}"));
        assert_eq!(ask(0, "XPENDING s g - + 10 d"), format!("*1 {d}"));
        assert_eq!(ask(0, "XPENDING s g IDLE 101 - + 10"), format!("*1 {c}"));
        assert_eq!(ask(0, "XPENDING s g IDLE 150 - + 10 d"), "*0 ");
        ask(0, "XREADGROUP GROUP g c STREAMS s 0");
        let again = ask(7, "XPENDING s g - + 1");
        assert_eq!(again, "*1 *4 $3 1-1 $1 c :7 :2 ", "reading it again counts");
    }

    #[test]
    fn misses_are_events() {
        check_events(
            "XACK k g 1-1; XPENDING k g; XPENDING k g - + 1; XGROUP CREATE k g 0 MKSTREAM; XADD \
             k 1-1 f v; XREADGROUP GROUP g c STREAMS k >; XACK k g 1-1",
            "keymiss k; keymiss k; keymiss k; new k, xgroup-create k; xadd k; \
             (xgroup-createconsumer k); ",
        );
    }
}
