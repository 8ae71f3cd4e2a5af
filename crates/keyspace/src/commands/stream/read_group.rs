//! Reading as a member of a group: XREADGROUP.

use std::collections::BTreeMap;

use kvasir_resp::reply::Reply;
use kvasir_structures::stream::{ConsumerId, Group as ConsumerGroup, Pending, Stream, StreamId};
use smallvec::SmallVec;

use crate::command::{Command, Cx, Run};
use crate::commands::stream::id;
use crate::commands::stream::log::{Delivered, GroupLog};
use crate::commands::stream::read::{
    BLOCK, COUNT, Member, ReadOptions, STREAMS, StreamsReply, keys, plan_streams,
};
use crate::effect::Effect;
use crate::error::{Error, quoted};
use crate::spec::{Argument, Flags, Group, Spec};
use crate::stream_value;
use crate::value::Kind;
use crate::waiting::{Blocking, Nothing, Wait};

pub static COMMANDS: &[&Command] = &[&XREADGROUP];

static XREADGROUP: Command = Command {
    spec: Spec {
        name: "xreadgroup",
        summary: "Returns new entries to a consumer of a group, or what is pending for it; may \
                  wait for new ones.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(N) for each stream where N is the number of entries returned; an XADD pays \
                     O(M) for the M clients that wait.",
        arity: -7,
        flags: Flags::WRITE.union(Flags::BLOCKING).union(Flags::MOVABLEKEYS),
        keys: &[keys(4)],
        arguments: &[
            Argument::block(
                "group_consumer",
                &[Argument::string("group"), Argument::string("consumer")],
            )
            .token("GROUP"),
            COUNT,
            BLOCK,
            Argument::word("noack", "NOACK").optional(),
            STREAMS,
        ],
        ..Spec::BLANK
    },
    run: Run::Planned(xreadgroup, plan_streams),
};

/// What a consumer wants of a stream.
#[derive(Clone, Copy)]
enum Start {
    /// `>`: what nobody of the group has got.
    New,
    /// What is pending for the consumer behind this id.
    Behind(StreamId),
}

/// One consumer that reads.
struct Reader<'a> {
    consumer: &'a [u8],
    count: usize,
    no_ack: bool,
    now_ms: u64,
    /// It waits already, and leaves no trace if it has to go on.
    is_resumed: bool,
}

fn xreadgroup(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let options = ReadOptions::parse(cx.args, cx.view.env, true)?;
    let missing = Error::fixed("ERR Missing GROUP option for XREADGROUP");
    let Member { group, consumer } = options.member.ok_or(missing)?;
    let starts = (0..options.stream_count)
        .map(|key| start(cx, key, group, options.id_arg(key)))
        .collect::<Result<Vec<Start>, Error>>()?;
    let env = cx.view.env;
    let reader = Reader {
        consumer,
        count: options.count,
        no_ack: options.no_ack,
        now_ms: env.now_ms,
        is_resumed: matches!(cx.blocking, Blocking::Resumed(_)),
    };
    let (mut streams, mut effect) = (StreamsReply::default(), Effect::None);
    for (key, start) in starts.into_iter().enumerate() {
        let mut log = GroupLog::new(cx.view.key(key), group, env.logs);
        let reply = &mut *cx.reply;
        stream_value::change_group(&mut cx.view, key, group, |stream, group| {
            reader.read(stream, group, start, reply, &mut streams, &mut log);
        })?;
        log.tell(&mut cx.view, key);
        log.append_to(&mut effect);
    }
    if streams.end(cx.reply) {
        return Ok(effect);
    }
    let Some(deadline_ms) = options.deadline_ms else {
        cx.reply.null_array();
        return Ok(effect);
    };
    let (kind, nothing) = (Kind::Stream, Nothing::NullArray);
    cx.wait(Wait { kind, deadline_ms, nothing, wakes_on_removal: true, call: None })?;
    Ok(effect)
}

fn start(cx: &mut Cx<'_, '_>, key: usize, group: &[u8], arg: usize) -> Result<Start, Error> {
    let text = &cx.args[arg];
    let stream = stream_value::read(&mut cx.view, key)?;
    if stream.is_none_or(|stream| stream.group(group).is_none()) {
        return Err(Error::from_bytes(
            [
                b"NOGROUP No such key '",
                quoted(cx.view.key(key)),
                b"' or consumer group '",
                quoted(group),
                b"' in XREADGROUP with GROUP option",
            ]
            .concat(),
        ));
    }
    match text {
        b">" => Ok(Start::New),
        b"$" | b"+" => Err(Error::quoting(
            "ERR The ",
            text,
            &format!(
                " ID is meaningless in the context of XREADGROUP: you want to read the history of \
                 this consumer by specifying a proper ID, or use the > ID to get new messages. \
                 The {} ID would just return an empty result set.",
                char::from(text[0])
            ),
        )),
        // In Redis the greatest id says the same as `>`.
        text => match id::id(text, 0)? {
            StreamId::MAX => Ok(Start::New),
            id => Ok(Start::Behind(id)),
        },
    }
}

impl Reader<'_> {
    fn read(
        &self,
        stream: &Stream,
        group: &mut ConsumerGroup,
        start: Start,
        reply: &mut Reply,
        streams: &mut StreamsReply,
        log: &mut GroupLog<'_>,
    ) {
        let first_new =
            || group.last_id.next().and_then(|id| stream.range(id, StreamId::MAX).next());
        let serves = matches!(start, Start::Behind(_)) || first_new().is_some();
        if !serves && self.is_resumed {
            return;
        }
        let consumer = group.consumer(self.consumer).unwrap_or_else(|| {
            log.create_consumer(self.consumer);
            group.add_consumer(self.consumer, self.now_ms)
        });
        group.consumer_mut(consumer).seen_ms = self.now_ms;
        if !serves {
            return;
        }
        streams.begin(reply, log.key);
        match start {
            Start::New => self.deliver(stream, group, consumer, reply, log),
            Start::Behind(id) => self.deliver_again(stream, group, consumer, id, reply, log),
        }
    }

    /// Gives the consumer entries that nobody of the group has got.
    fn deliver(
        &self,
        stream: &Stream,
        group: &mut ConsumerGroup,
        consumer: ConsumerId,
        reply: &mut Reply,
        log: &mut GroupLog<'_>,
    ) {
        let array = reply.deferred_array();
        let first = group.last_id.next().unwrap_or(StreamId::MAX);
        let mut ids: SmallVec<[StreamId; 16]> = SmallVec::new();
        for entry in stream.range(first, StreamId::MAX).take(self.count) {
            id::write_entry(reply, entry);
            ids.push(entry.id);
        }
        reply.set_count(array, ids.len());
        stream.advance(group, ids.iter().copied());
        if !self.no_ack {
            let delivered_ms = self.now_ms;
            for id in &ids {
                group.set_pending(*id, Pending { consumer, delivered_ms, deliveries: 1 });
            }
            group.consumer_mut(consumer).active_ms = Some(self.now_ms);
            log.claim(self.consumer, &ids, Delivered { at_ms: self.now_ms, count: 1 });
        }
        log.set_id(group.last_id, group.entries_read);
    }

    /// Gives the consumer what is pending for it behind an id; of a deleted entry the id alone.
    fn deliver_again(
        &self,
        stream: &Stream,
        group: &mut ConsumerGroup,
        consumer: ConsumerId,
        behind: StreamId,
        reply: &mut Reply,
        log: &mut GroupLog<'_>,
    ) {
        let array = reply.deferred_array();
        let first = behind.next().unwrap_or(StreamId::MAX);
        let pending = group.pending_of(consumer, first, StreamId::MAX).take(self.count);
        let pending: Vec<(StreamId, Pending)> = pending.collect();
        reply.set_count(array, pending.len());
        let mut by_count: BTreeMap<u64, Vec<StreamId>> = BTreeMap::new();
        for (id, pending) in pending {
            let Some(entry) = stream.get(id) else {
                reply.array(2);
                id::write_id(reply, id);
                reply.null_array();
                continue;
            };
            id::write_entry(reply, entry);
            let deliveries = pending.deliveries.saturating_add(1);
            let delivered_ms = self.now_ms;
            group.set_pending(id, Pending { consumer, delivered_ms, deliveries });
            by_count.entry(deliveries).or_default().push(id);
        }
        for (count, ids) in by_count {
            log.claim(self.consumer, &ids, Delivered { at_ms: self.now_ms, count });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::events::check_valkey_events;
    use crate::testing::{check, check_valkey, check3};

    #[test]
    fn new_entries_are_delivered_once() {
        check(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XREADGROUP \
             GROUP g c COUNT 1 STREAMS s >; XREADGROUP GROUP g d STREAMS s >; XREADGROUP GROUP g \
             c STREAMS s >; XPENDING s g; XACK s g 1-1 1-1 9-9; XPENDING s g; XADD s 4-1 d 4; \
             XREADGROUP GROUP g c COUNT 0 STREAMS s >",
            "$1-1; $2-1; $3-1; +OK; [[$s [[$1-1 [$a $1]]]]]; [[$s [[$2-1 [$b $2]] [$3-1 [$c \
             $3]]]]]; _; [:3 $1-1 $3-1 [[$c $1] [$d $2]]]; :1; [:2 $2-1 $3-1 [[$d $2]]]; $4-1; \
             [[$s [[$4-1 [$d $4]]]]]",
        );
        check3(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XREADGROUP \
             GROUP g c STREAMS s >; XREADGROUP GROUP g c STREAMS s >; XREADGROUP GROUP g c COUNT \
             1 STREAMS s 0; XREADGROUP GROUP g d STREAMS s 0",
            "$1-1; $2-1; $3-1; +OK; {$s [[$1-1 [$a $1]] [$2-1 [$b $2]] [$3-1 [$c $3]]]}; _; {$s \
             [[$1-1 [$a $1]]]}; {$s []}",
        );
        check(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XADD t 7 x y; \
             XGROUP CREATE t g $; XREADGROUP GROUP g c STREAMS s t > >; XADD t 8 x y; XREADGROUP \
             GROUP g c STREAMS s t > >; XREADGROUP GROUP g c COUNT 1 STREAMS t s 0 0; XREADGROUP \
             GROUP g c STREAMS s s 2 >",
            "$1-1; $2-1; $3-1; +OK; $7-0; +OK; [[$s [[$1-1 [$a $1]] [$2-1 [$b $2]] [$3-1 [$c \
             $3]]]]]; $8-0; [[$t [[$8-0 [$x $y]]]]]; [[$t [[$8-0 [$x $y]]]] [$s [[$1-1 [$a \
             $1]]]]]; [[$s [[$2-1 [$b $2]] [$3-1 [$c $3]]]]]",
        );
    }

    #[test]
    fn history_is_one_s_own() {
        check(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XREADGROUP \
             GROUP g c COUNT 2 STREAMS s >; XREADGROUP GROUP g d STREAMS s >; XREADGROUP GROUP g \
             c STREAMS s 0; XREADGROUP GROUP g c STREAMS s 1-1; XREADGROUP GROUP g d STREAMS s \
             0; XREADGROUP GROUP g d STREAMS s 3-1; XREADGROUP GROUP g e STREAMS s 0; XREADGROUP \
             GROUP g c STREAMS s 18446744073709551615-18446744073709551615",
            "$1-1; $2-1; $3-1; +OK; [[$s [[$1-1 [$a $1]] [$2-1 [$b $2]]]]]; [[$s [[$3-1 [$c \
             $3]]]]]; [[$s [[$1-1 [$a $1]] [$2-1 [$b $2]]]]]; [[$s [[$2-1 [$b $2]]]]]; [[$s \
             [[$3-1 [$c $3]]]]]; [[$s []]]; [[$s []]]; _",
        );
        check(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XREADGROUP \
             GROUP g c STREAMS s >; XDEL s 2-1; XREADGROUP GROUP g c STREAMS s 0; XTRIM s MAXLEN \
             0; XREADGROUP GROUP g c STREAMS s 0",
            "$1-1; $2-1; $3-1; +OK; [[$s [[$1-1 [$a $1]] [$2-1 [$b $2]] [$3-1 [$c $3]]]]]; :1; \
             [[$s [[$1-1 [$a $1]] [$2-1 _] [$3-1 [$c $3]]]]]; :2; [[$s [[$1-1 _] [$2-1 _] [$3-1 \
             _]]]]",
        );
        check3(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XREADGROUP \
             GROUP g c STREAMS s >; XDEL s 2-1; XREADGROUP GROUP g c STREAMS s 0",
            "$1-1; $2-1; $3-1; +OK; {$s [[$1-1 [$a $1]] [$2-1 [$b $2]] [$3-1 [$c $3]]]}; :1; {$s \
             [[$1-1 [$a $1]] [$2-1 _] [$3-1 [$c $3]]]}",
        );
    }

    #[test]
    fn nothing_is_pending_with_noack() {
        check(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XREADGROUP \
             GROUP g c NOACK COUNT 2 STREAMS s >; XPENDING s g; XREADGROUP GROUP g c STREAMS s \
             0; XREADGROUP NOACK GROUP g c STREAMS s >; XINFO GROUPS s",
            "$1-1; $2-1; $3-1; +OK; [[$s [[$1-1 [$a $1]] [$2-1 [$b $2]]]]]; [:0 _ _ _]; [[$s \
             []]]; [[$s [[$3-1 [$c $3]]]]]; [[$name $g $consumers :1 $pending :0 \
             $last-delivered-id $3-1 $entries-read :3 $lag :0]]",
        );
    }

    /// A group that is set back delivers anew.
    #[test]
    fn who_reads_again_takes_over() {
        check(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XREADGROUP \
             GROUP g c STREAMS s >; XGROUP SETID s g 1; XREADGROUP GROUP g d STREAMS s >; \
             XPENDING s g; XREADGROUP GROUP g c STREAMS s 0; XGROUP SETID s g 0; XREADGROUP \
             GROUP g d COUNT 1 NOACK STREAMS s >; XPENDING s g",
            "$1-1; $2-1; $3-1; +OK; [[$s [[$1-1 [$a $1]] [$2-1 [$b $2]] [$3-1 [$c $3]]]]]; +OK; \
             [[$s [[$1-1 [$a $1]] [$2-1 [$b $2]] [$3-1 [$c $3]]]]]; [:3 $1-1 $3-1 [[$d $3]]]; \
             [[$s []]]; +OK; [[$s [[$1-1 [$a $1]]]]]; [:3 $1-1 $3-1 [[$d $3]]]",
        );
    }

    #[test]
    fn lag_is_known_or_null() {
        // Even where the first entry that lives is behind the deleted one.
        check_valkey(
            "XGROUP CREATE s g 14 MKSTREAM ENTRIESREAD 1; XADD s 66-3 a 1; XSETID s 77 \
             MAXDELETEDID 45; XINFO GROUPS s",
            "+OK; $66-3; +OK; [[$name $g $consumers :0 $pending :0 $last-delivered-id $14-0 \
             $entries-read :1 $lag _]]",
        );
        check_valkey(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XREADGROUP \
             GROUP g c COUNT 1 STREAMS s >; XINFO GROUPS s; XDEL s 2-1; XINFO GROUPS s; \
             XREADGROUP GROUP g c COUNT 1 STREAMS s >; XINFO GROUPS s; XADD s 4-1 a 1; XINFO \
             GROUPS s; XREADGROUP GROUP g c STREAMS s >; XINFO GROUPS s",
            "$1-1; $2-1; $3-1; +OK; [[$s [[$1-1 [$a $1]]]]]; [[$name $g $consumers :1 $pending \
             :1 $last-delivered-id $1-1 $entries-read :1 $lag :2]]; :1; [[$name $g $consumers :1 \
             $pending :1 $last-delivered-id $1-1 $entries-read :1 $lag _]]; [[$s [[$3-1 [$c \
             $3]]]]]; [[$name $g $consumers :1 $pending :2 $last-delivered-id $3-1 $entries-read \
             :3 $lag :0]]; $4-1; [[$name $g $consumers :1 $pending :2 $last-delivered-id $3-1 \
             $entries-read :3 $lag :1]]; [[$s [[$4-1 [$a $1]]]]]; [[$name $g $consumers :1 \
             $pending :3 $last-delivered-id $4-1 $entries-read :4 $lag :0]]",
        );
        check(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XDEL s 1-1; \
             XINFO GROUPS s; XREADGROUP GROUP g c COUNT 1 STREAMS s >; XINFO GROUPS s; XTRIM s \
             MAXLEN 1; XINFO GROUPS s; XADD s 5-1 a 1; XREADGROUP GROUP g c COUNT 1 STREAMS s >; \
             XINFO GROUPS s; XTRIM s MAXLEN 0; XINFO GROUPS s",
            "$1-1; $2-1; $3-1; +OK; :1; [[$name $g $consumers :0 $pending :0 $last-delivered-id \
             $0-0 $entries-read _ $lag :2]]; [[$s [[$2-1 [$b $2]]]]]; [[$name $g $consumers :1 \
             $pending :1 $last-delivered-id $2-1 $entries-read :2 $lag :1]]; :1; [[$name $g \
             $consumers :1 $pending :1 $last-delivered-id $2-1 $entries-read :2 $lag :1]]; $5-1; \
             [[$s [[$3-1 [$c $3]]]]]; [[$name $g $consumers :1 $pending :2 $last-delivered-id \
             $3-1 $entries-read :3 $lag :1]]; :2; [[$name $g $consumers :1 $pending :2 \
             $last-delivered-id $3-1 $entries-read :3 $lag :1]]",
        );
        check(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XGROUP CREATE \
             s h 2-1; XGROUP CREATE s i 3-1; XGROUP CREATE s j 9; XGROUP CREATE s k 1-1 \
             ENTRIESREAD 1; XTRIM s MINID 2; XINFO GROUPS s; XREADGROUP GROUP h c STREAMS s >; \
             XREADGROUP GROUP k c COUNT 1 STREAMS s >; XADD s 10 a 1; XINFO GROUPS s",
            "$1-1; $2-1; $3-1; +OK; +OK; +OK; +OK; +OK; :1; [[$name $g $consumers :0 $pending :0 \
             $last-delivered-id $0-0 $entries-read _ $lag :2] [$name $h $consumers :0 $pending \
             :0 $last-delivered-id $2-1 $entries-read _ $lag :1] [$name $i $consumers :0 \
             $pending :0 $last-delivered-id $3-1 $entries-read _ $lag :0] [$name $j $consumers \
             :0 $pending :0 $last-delivered-id $9-0 $entries-read _ $lag _] [$name $k $consumers \
             :0 $pending :0 $last-delivered-id $1-1 $entries-read :1 $lag :2]]; [[$s [[$3-1 [$c \
             $3]]]]]; [[$s [[$2-1 [$b $2]]]]]; $10-0; [[$name $g $consumers :0 $pending :0 \
             $last-delivered-id $0-0 $entries-read _ $lag :3] [$name $h $consumers :1 $pending \
             :1 $last-delivered-id $3-1 $entries-read :3 $lag :1] [$name $i $consumers :0 \
             $pending :0 $last-delivered-id $3-1 $entries-read _ $lag _] [$name $j $consumers :0 \
             $pending :0 $last-delivered-id $9-0 $entries-read _ $lag _] [$name $k $consumers :1 \
             $pending :1 $last-delivered-id $2-1 $entries-read :2 $lag :2]]",
        );
    }

    #[test]
    fn what_is_wrong() {
        check_valkey(
            "XADD s 1-1 a 1; XGROUP CREATE s g 0; XREADGROUP GROUP no c STREAMS s >; XREADGROUP \
             GROUP g c STREAMS none >; XREADGROUP GROUP g c STREAMS s none > >; XREADGROUP GROUP \
             g c STREAMS s $; XREADGROUP GROUP g c STREAMS s x; XREADGROUP GROUP g c STREAMS s \
             -; XREADGROUP COUNT 1 BLOCK 1 STREAMS s 0; XREADGROUP STREAMS s 0; XREADGROUP GROUP \
             g c STREAMS s > >; XREADGROUP GROUP g c BLOCK x STREAMS s >; XREADGROUP GROUP g c \
             COUNT x STREAMS s >; XREADGROUP GROUP g c COUNT 1 s >; XREADGROUP GROUP g c x \
             STREAMS s >; XREADGROUP x GROUP g c STREAMS s >; XREADGROUP GROUP g c BLOCK -1 \
             STREAMS s >",
            "$1-1; +OK; -NOGROUP No such key 's' or consumer group 'no' in XREADGROUP with GROUP \
             option; -NOGROUP No such key 'none' or consumer group 'g' in XREADGROUP with GROUP \
             option; -NOGROUP No such key 'none' or consumer group 'g' in XREADGROUP with GROUP \
             option; -ERR The $ ID is meaningless in the context of XREADGROUP: you want to read \
             the history of this consumer by specifying a proper ID, or use the > ID to get new \
             messages. The $ ID would just return an empty result set.; -ERR Invalid stream ID \
             specified as stream command argument; -ERR Invalid stream ID specified as stream \
             command argument; -ERR Missing GROUP option for XREADGROUP; -ERR wrong number of \
             arguments for 'xreadgroup' command; -ERR Unbalanced 'xreadgroup' list of streams: \
             for each stream key an ID or '>' must be specified.; -ERR timeout is not an integer \
             or out of range; -ERR value is not an integer or out of range; -ERR syntax error; \
             -ERR syntax error; -ERR syntax error; -ERR timeout is negative",
        );
        check_valkey(
            "XADD s 1-1 a 1; XGROUP CREATE s g 0; XREADGROUP GROUP g c STREAMS s +; SET k v; \
             XREADGROUP GROUP g c STREAMS k >; XREADGROUP GROUP g c STREAMS k s > >",
            "$1-1; +OK; -ERR The + ID is meaningless in the context of XREADGROUP: you want to \
             read the history of this consumer by specifying a proper ID, or use the > ID to get \
             new messages. The + ID would just return an empty result set.; +OK; -WRONGTYPE \
             Operation against a key holding the wrong kind of value; -WRONGTYPE Operation \
             against a key holding the wrong kind of value",
        );
        check(
            "XADD s 1-1 a 1; XGROUP CREATE s streams 0; XREADGROUP COUNT 1 GROUP streams block \
             STREAMS s >",
            "$1-1; +OK; [[$s [[$1-1 [$a $1]]]]]",
        );
    }

    #[test]
    fn events_of_reading() {
        check_valkey_events(
            "XADD s 1-1 f v; XADD s 2-1 f v; XGROUP CREATE s g 0; XREADGROUP GROUP g c COUNT 1 \
             STREAMS s >; XREADGROUP GROUP g c STREAMS s 0; XREADGROUP GROUP g d STREAMS s 0; \
             XREADGROUP GROUP g d NOACK COUNT 1 STREAMS s >; XREADGROUP GROUP g e STREAMS s >; \
             XREADGROUP GROUP g c STREAMS none >; XREADGROUP GROUP none c STREAMS s >; \
             XREADGROUP GROUP g f STREAMS s none > >",
            "new s, xadd s; xadd s; (xgroup-create s); (xgroup-createconsumer s); ; \
             (xgroup-createconsumer s); ; (xgroup-createconsumer s); keymiss none; ; keymiss none",
        );
        check_valkey_events(
            "XGROUP CREATE s g $ MKSTREAM; @2 XREADGROUP GROUP g c BLOCK 0 STREAMS s >; XADD s \
             2-1 f v; @2 XREADGROUP GROUP g e BLOCK 0 STREAMS s >; XGROUP DESTROY s g",
            "new s, xgroup-create s; (xgroup-createconsumer s); xadd s; (xgroup-createconsumer \
             s); (xgroup-destroy s)",
        );
    }
}
