//! Making pending entries a consumer's own: XCLAIM, XAUTOCLAIM.

use std::collections::BTreeMap;

use kvasir_resp::args::Args;
use kvasir_resp::number::parse_integer;
use kvasir_resp::reply::Reply;
use kvasir_structures::stream::{
    ConsumerId, Entry, Group as ConsumerGroup, Pending, Stream, StreamId,
};

use crate::command::{Command, Cx, Run};
use crate::commands::options::integer;
use crate::commands::stream::id;
use crate::commands::stream::log::{Delivered, GroupLog};
use crate::commands::stream::pending::no_key_or_group;
use crate::effect::Effect;
use crate::error::Error;
use crate::spec::{Argument, ArgumentKind, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::stream_value;
use crate::view::View;

pub static COMMANDS: &[&Command] = &[&XCLAIM, &XAUTOCLAIM];

/// XAUTOCLAIM looks at so many entries for each one that it may return.
const LOOKS_PER_ENTRY: usize = 10;
/// XAUTOCLAIM's COUNT, where none is given.
const COUNT_DEFAULT: usize = 100;
/// The greatest COUNT, as Redis has it: the ids fit into the address space.
const COUNT_MAX: usize = i64::MAX as usize / 16;

static XCLAIM: Command = Command {
    spec: Spec {
        name: "xclaim",
        summary: "Makes entries pending for a consumer that were delivered to another one.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(log N) for each id where N is the number of entries pending.",
        arity: -6,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::UPDATE))],
        tips: &["nondeterministic_output"],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("group"),
            Argument::string("consumer"),
            Argument::string("min-idle-time"),
            Argument::string("id").multiple(),
            Argument::integer("ms").token("IDLE").optional(),
            Argument::new("unix-time-milliseconds", ArgumentKind::UnixTime)
                .token("TIME")
                .optional(),
            Argument::integer("count").token("RETRYCOUNT").optional(),
            Argument::word("force", "FORCE").optional(),
            Argument::word("justid", "JUSTID").optional(),
            Argument::string("id").token("LASTID").optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(xclaim),
};

/// How entries are claimed.
struct Claim {
    idle_ms_min: u64,
    now_ms: u64,
    /// When they count as delivered.
    at_ms: u64,
    /// How often they count as delivered; `None`: once more, or as often where only ids are asked
    /// for.
    count: Option<u64>,
    /// Also entries that are pending for nobody.
    is_forced: bool,
    only_ids: bool,
    last_id: StreamId,
}

fn xclaim(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let args = cx.args;
    let (key, group_name, consumer) = (cx.view.key(0), &args[2], &args[3]);
    check_group(&mut cx.view, group_name)?;
    let ids = args.from(5).iter().map_while(|text| id::id(text, 0).ok());
    let ids: Vec<StreamId> = ids.collect();
    let env = cx.view.env;
    let claim = Claim::parse(args, 5 + ids.len(), env.now_ms)?;
    let mut log = GroupLog::new(key, group_name, env.logs);
    let reply = &mut *cx.reply;
    stream_value::change_group(&mut cx.view, 0, group_name, |stream, group| {
        let mut claims = Claims::begin(&claim, group, consumer, &mut log);
        let array = reply.deferred_array();
        let claimed = ids.iter().filter_map(|id| claims.take(stream, group, *id));
        let claimed = claimed.map(|entry| claim.write(entry, reply)).count();
        reply.set_count(array, claimed);
        claims.end(consumer, &mut log);
        if claim.last_id > group.last_id {
            group.last_id = claim.last_id;
            log.set_id(group.last_id, group.entries_read);
        }
    })?;
    log.tell(&mut cx.view, 0);
    Ok(log.into_effect())
}

/// Fails unless there is such a group. Redis takes this for a read.
fn check_group(view: &mut View<'_, '_>, group: &[u8]) -> Result<(), Error> {
    let key = view.key(0);
    let stream = stream_value::read(view, 0)?;
    let exists = stream.is_some_and(|stream| stream.group(group).is_some());
    if exists { Ok(()) } else { Err(no_key_or_group(key, group)) }
}

impl Claim {
    /// A claim without options.
    fn new(idle_ms_min: &[u8], now_ms: u64, command: &str) -> Result<Claim, Error> {
        let error = || Error::new(format!("ERR Invalid min-idle-time argument for {command}"));
        Ok(Claim {
            idle_ms_min: integer(idle_ms_min).map_err(|_| error())?.max(0) as u64,
            now_ms,
            at_ms: now_ms,
            count: None,
            is_forced: false,
            only_ids: false,
            last_id: StreamId::MIN,
        })
    }

    /// The minimal idle time, and options from argument `at` on.
    fn parse(args: Args<'_>, at: usize, now_ms: u64) -> Result<Claim, Error> {
        let mut claim = Claim::new(&args[4], now_ms, "XCLAIM")?;
        // A time in the future, or before 1970, is taken for now.
        let moment = |ms: i64| u64::try_from(ms).ok().filter(|ms| *ms <= now_ms).unwrap_or(now_ms);
        let mut words = args.from(at).iter();
        while let Some(word) = words.next() {
            let mut rest = words.clone();
            let number = |text: &[u8], option: &str| {
                let error = format!("ERR Invalid {option} option argument for XCLAIM");
                integer(text).map_err(|_| Error::new(error))
            };
            match (word.to_ascii_lowercase().as_slice(), rest.next()) {
                (b"force", _) => claim.is_forced = true,
                (b"justid", _) => claim.only_ids = true,
                (b"idle", Some(text)) => {
                    let idle_ms = number(text, "IDLE")?;
                    claim.at_ms = moment((now_ms as i64).saturating_sub(idle_ms));
                    words = rest;
                }
                (b"time", Some(text)) => {
                    claim.at_ms = moment(number(text, "TIME")?);
                    words = rest;
                }
                (b"retrycount", Some(text)) => {
                    claim.count = u64::try_from(number(text, "RETRYCOUNT")?).ok();
                    words = rest;
                }
                (b"lastid", Some(text)) => {
                    claim.last_id = id::id(text, 0)?;
                    words = rest;
                }
                _ => return Err(Error::quoting("ERR Unrecognized XCLAIM option '", word, "'")),
            }
        }
        Ok(claim)
    }

    fn write(&self, entry: Entry<'_>, reply: &mut Reply) {
        if self.only_ids { id::write_id(reply, entry.id) } else { id::write_entry(reply, entry) }
    }
}

/// Entries that become a consumer's, and what the log has to have of them.
struct Claims<'a> {
    claim: &'a Claim,
    consumer: ConsumerId,
    /// By how often they were delivered.
    claimed: BTreeMap<u64, Vec<StreamId>>,
    deleted: Vec<StreamId>,
}

impl<'a> Claims<'a> {
    fn begin(
        claim: &'a Claim,
        group: &mut ConsumerGroup,
        name: &[u8],
        log: &mut GroupLog<'_>,
    ) -> Claims<'a> {
        let consumer = group.consumer(name).unwrap_or_else(|| {
            log.create_consumer(name);
            group.add_consumer(name, claim.now_ms)
        });
        group.consumer_mut(consumer).seen_ms = claim.now_ms;
        Claims { claim, consumer, claimed: BTreeMap::new(), deleted: Vec::new() }
    }

    /// Claims an entry, if it is there and may be claimed. One that was deleted is pending no more.
    fn take<'s>(
        &mut self,
        stream: &'s Stream,
        group: &mut ConsumerGroup,
        id: StreamId,
    ) -> Option<Entry<'s>> {
        let claim = self.claim;
        let Some(entry) = stream.get(id) else {
            self.deleted.extend(group.acknowledge(id).then_some(id));
            return None;
        };
        let delivered = match group.pending(id) {
            Some(old) => {
                let idle_ms = claim.now_ms.saturating_sub(old.delivered_ms);
                (idle_ms >= claim.idle_ms_min).then_some(old.deliveries)?
            }
            None => claim.is_forced.then_some(1)?,
        };
        let more = u64::from(!claim.only_ids);
        let deliveries = claim.count.unwrap_or(delivered.saturating_add(more));
        let (consumer, delivered_ms) = (self.consumer, claim.at_ms);
        group.set_pending(id, Pending { consumer, delivered_ms, deliveries });
        group.consumer_mut(consumer).active_ms = Some(claim.now_ms);
        self.claimed.entry(deliveries).or_default().push(id);
        Some(entry)
    }

    /// Claims up to `count` entries from `start` on, the deleted ones counted; those claimed, and
    /// where to go on, 0-0 at the end.
    fn walk<'s>(
        &mut self,
        stream: &'s Stream,
        group: &mut ConsumerGroup,
        start: StreamId,
        count: usize,
    ) -> (Vec<Entry<'s>>, StreamId) {
        let (mut entries, mut at) = (Vec::new(), Some(start));
        let mut looks = count.saturating_mul(LOOKS_PER_ENTRY);
        while let Some((id, _)) = at.and_then(|at| group.pending_range(at, StreamId::MAX).next()) {
            if looks == 0 || entries.len() + self.deleted.len() == count {
                return (entries, id);
            }
            looks -= 1;
            entries.extend(self.take(stream, group, id));
            at = id.next();
        }
        (entries, StreamId::MIN)
    }

    fn end(self, consumer: &[u8], log: &mut GroupLog<'_>) {
        for (count, ids) in self.claimed {
            log.claim(consumer, &ids, Delivered { at_ms: self.claim.at_ms, count });
        }
        log.acknowledge(&self.deleted);
    }
}

static XAUTOCLAIM: Command = Command {
    spec: Spec {
        name: "xautoclaim",
        summary: "Makes entries pending for a consumer that others have left idle.",
        since: "6.2.0",
        group: Group::Stream,
        complexity: "O(1) for each entry that COUNT allows.",
        arity: -6,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::DELETE))],
        tips: &["nondeterministic_output"],
        history: &[("7.0.0", "Also returns the ids that were deleted and are pending no more.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("group"),
            Argument::string("consumer"),
            Argument::string("min-idle-time"),
            Argument::string("start"),
            Argument::integer("count").token("COUNT").optional(),
            Argument::word("justid", "JUSTID").optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(xautoclaim),
};

fn xautoclaim(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let args = cx.args;
    let (key, group_name, consumer) = (cx.view.key(0), &args[2], &args[3]);
    let env = cx.view.env;
    let Automatic { claim, start, count } = Automatic::parse(args, env.now_ms)?;
    check_group(&mut cx.view, group_name)?;
    let mut log = GroupLog::new(key, group_name, env.logs);
    let reply = &mut *cx.reply;
    stream_value::change_group(&mut cx.view, 0, group_name, |stream, group| {
        let mut claims = Claims::begin(&claim, group, consumer, &mut log);
        let (entries, next) = claims.walk(stream, group, start, count);
        reply.array(3);
        id::write_id(reply, next);
        reply.array(entries.len());
        entries.iter().for_each(|entry| claim.write(*entry, reply));
        reply.array(claims.deleted.len());
        claims.deleted.iter().for_each(|id| id::write_id(reply, *id));
        claims.end(consumer, &mut log);
    })?;
    log.tell(&mut cx.view, 0);
    Ok(log.into_effect())
}

/// How XAUTOCLAIM claims, from where on and how many.
struct Automatic {
    claim: Claim,
    start: StreamId,
    count: usize,
}

impl Automatic {
    fn parse(args: Args<'_>, now_ms: u64) -> Result<Automatic, Error> {
        let mut claim = Claim::new(&args[4], now_ms, "XAUTOCLAIM")?;
        let start = id::range_start(&args[5])?;
        let mut count = COUNT_DEFAULT;
        let mut words = args.from(6).iter();
        while let Some(word) = words.next() {
            if word.eq_ignore_ascii_case(b"count") && words.len() > 0 {
                let given = parse_integer(words.next().unwrap_or_default());
                let given = given.and_then(|count| usize::try_from(count).ok());
                let fits = |count: &usize| (1..=COUNT_MAX).contains(count);
                count = given.filter(fits).ok_or(Error::fixed("ERR COUNT must be > 0"))?;
            } else if word.eq_ignore_ascii_case(b"justid") {
                claim.only_ids = true;
            } else {
                return Err(Error::SYNTAX);
            }
        }
        Ok(Automatic { claim, start, count })
    }
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::testing::events::check_valkey_events;
    use crate::testing::{Bench, check, check_valkey, check3, split};

    #[test]
    fn entries_change_hands() {
        check(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XREADGROUP \
             GROUP g c STREAMS s >; XCLAIM s g d 0 1-1 3-1 9-9; XPENDING s g; XCLAIM s g d \
             1000000 2-1; XCLAIM s g d -5 2 2-1 JUSTID; XPENDING s g; XCLAIM s g d 0 8; XCLAIM s \
             g e 0 2-1 LASTID 7; XINFO GROUPS s; XCLAIM s g e 0 2-1 LASTID 5; XINFO GROUPS s",
            "$1-1; $2-1; $3-1; +OK; [[$s [[$1-1 [$a $1]] [$2-1 [$b $2]] [$3-1 [$c $3]]]]]; \
             [[$1-1 [$a $1]] [$3-1 [$c $3]]]; [:3 $1-1 $3-1 [[$c $1] [$d $2]]]; []; [$2-1]; [:3 \
             $1-1 $3-1 [[$d $3]]]; []; [[$2-1 [$b $2]]]; [[$name $g $consumers :3 $pending :3 \
             $last-delivered-id $7-0 $entries-read :3 $lag :0]]; [[$2-1 [$b $2]]]; [[$name $g \
             $consumers :3 $pending :3 $last-delivered-id $7-0 $entries-read :3 $lag :0]]",
        );
        check3(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XREADGROUP \
             GROUP g c STREAMS s >; XCLAIM s g d 0 1-1 3-1; XCLAIM s g d 0 1-1 JUSTID; XCLAIM s \
             g d 0 9",
            "$1-1; $2-1; $3-1; +OK; {$s [[$1-1 [$a $1]] [$2-1 [$b $2]] [$3-1 [$c $3]]]}; [[$1-1 \
             [$a $1]] [$3-1 [$c $3]]]; [$1-1]; []",
        );
    }

    #[test]
    fn what_was_deleted_is_pending_no_more() {
        check(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XREADGROUP \
             GROUP g c STREAMS s >; XDEL s 2-1; XCLAIM s g d 0 1-1 2-1 3-1; XPENDING s g; XDEL s \
             1-1; XCLAIM s g d 1000000 1-1; XPENDING s g; XCLAIM s g d 0 2-1 FORCE; XPENDING s g",
            "$1-1; $2-1; $3-1; +OK; [[$s [[$1-1 [$a $1]] [$2-1 [$b $2]] [$3-1 [$c $3]]]]]; :1; \
             [[$1-1 [$a $1]] [$3-1 [$c $3]]]; [:2 $1-1 $3-1 [[$d $2]]]; :1; []; [:1 $3-1 $3-1 \
             [[$d $1]]]; []; [:1 $3-1 $3-1 [[$d $1]]]",
        );
    }

    #[test]
    fn what_nobody_has_is_claimed_by_force() {
        check(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XCLAIM s g d 0 \
             1-1; XCLAIM s g d 0 1-1 FORCE; XCLAIM s g d 0 2-1 9-9 force JUSTID; XPENDING s g; \
             XCLAIM s g e 1000000 3-1 FORCE; XPENDING s g",
            "$1-1; $2-1; $3-1; +OK; []; [[$1-1 [$a $1]]]; [$2-1]; [:2 $1-1 $2-1 [[$d $2]]]; \
             [[$3-1 [$c $3]]]; [:3 $1-1 $3-1 [[$d $2] [$e $1]]]",
        );
    }

    #[test]
    fn idle_entries_are_claimed() {
        check(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XREADGROUP \
             GROUP g c STREAMS s >; XAUTOCLAIM s g d 0 0 COUNT 1; XAUTOCLAIM s g d 0 2-1; \
             XAUTOCLAIM s g d 1000000 0; XAUTOCLAIM s g d 0 (1-1 COUNT 1 JUSTID; XPENDING s g; \
             XAUTOCLAIM s g d 0 4; XAUTOCLAIM s g d 0 - COUNT 1 COUNT 2",
            "$1-1; $2-1; $3-1; +OK; [[$s [[$1-1 [$a $1]] [$2-1 [$b $2]] [$3-1 [$c $3]]]]]; [$2-1 \
             [[$1-1 [$a $1]]] []]; [$0-0 [[$2-1 [$b $2]] [$3-1 [$c $3]]] []]; [$0-0 [] []]; \
             [$3-1 [$2-1] []]; [:3 $1-1 $3-1 [[$d $3]]]; [$0-0 [] []]; [$3-1 [[$1-1 [$a $1]] \
             [$2-1 [$b $2]]] []]",
        );
        check(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XREADGROUP \
             GROUP g c STREAMS s >; XDEL s 1-1 3-1; XAUTOCLAIM s g d 0 0 COUNT 1; XPENDING s g; \
             XAUTOCLAIM s g d 1000000 0; XPENDING s g",
            "$1-1; $2-1; $3-1; +OK; [[$s [[$1-1 [$a $1]] [$2-1 [$b $2]] [$3-1 [$c $3]]]]]; :2; \
             [$2-1 [] [$1-1]]; [:2 $2-1 $3-1 [[$c $2]]]; [$0-0 [] [$3-1]]; [:1 $2-1 $2-1 [[$c \
             $1]]]",
        );
        check3(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XREADGROUP \
             GROUP g c STREAMS s >; XDEL s 1-1; XAUTOCLAIM s g d 0 0 COUNT 2; XAUTOCLAIM s g d 0 \
             0 JUSTID",
            "$1-1; $2-1; $3-1; +OK; {$s [[$1-1 [$a $1]] [$2-1 [$b $2]] [$3-1 [$c $3]]]}; :1; \
             [$3-1 [[$2-1 [$b $2]]] [$1-1]]; [$0-0 [$2-1 $3-1] []]",
        );
    }

    /// Ten entries are looked at for each one wanted.
    #[test]
    fn few_are_looked_at() {
        check(
            "XADD s 1 a 1; XADD s 2 a 1; XADD s 3 a 1; XADD s 4 a 1; XADD s 5 a 1; XADD s 6 a 1; \
             XADD s 7 a 1; XADD s 8 a 1; XADD s 9 a 1; XADD s 10 a 1; XADD s 11 a 1; XADD s 12 a \
             1; XGROUP CREATE s g 0; XREADGROUP GROUP g c NOACK COUNT 1 STREAMS s >; XREADGROUP \
             GROUP g c COUNT 99 STREAMS s >; XAUTOCLAIM s g d 1000000 0 COUNT 1; XAUTOCLAIM s g \
             d 1000000 12 COUNT 1",
            "$1-0; $2-0; $3-0; $4-0; $5-0; $6-0; $7-0; $8-0; $9-0; $10-0; $11-0; $12-0; +OK; \
             [[$s [[$1-0 [$a $1]]]]]; [[$s [[$2-0 [$a $1]] [$3-0 [$a $1]] [$4-0 [$a $1]] [$5-0 \
             [$a $1]] [$6-0 [$a $1]] [$7-0 [$a $1]] [$8-0 [$a $1]] [$9-0 [$a $1]] [$10-0 [$a \
             $1]] [$11-0 [$a $1]] [$12-0 [$a $1]]]]]; [$12-0 [] []]; [$0-0 [] []]",
        );
    }

    #[test]
    fn what_is_wrong() {
        check_valkey(
            "XADD s 1-1 a 1; XGROUP CREATE s g 0; XCLAIM s g c x 1; XCLAIM s no c x 1; XCLAIM \
             none g c 0 1; XCLAIM s g c 0 x; XCLAIM s g c 0 1 X; XCLAIM s g c 0 1 x 2; XCLAIM s \
             g c 0 1 IDLE; XCLAIM s g c 0 1 IDLE x; XCLAIM s g c 0 1 TIME x; XCLAIM s g c 0 1 \
             RETRYCOUNT x; XCLAIM s g c 0 1 RETRYCOUNT -1; XCLAIM s g c 0 1 LASTID x; XCLAIM s g \
             c 0 1 LASTID; XCLAIM s g c 0 -; XCLAIM s g c 0; XINFO GROUPS s",
            "$1-1; +OK; -ERR Invalid min-idle-time argument for XCLAIM; -NOGROUP No such key 's' \
             or consumer group 'no'; -NOGROUP No such key 'none' or consumer group 'g'; -ERR \
             Unrecognized XCLAIM option 'x'; -ERR Unrecognized XCLAIM option 'X'; -ERR \
             Unrecognized XCLAIM option 'x'; -ERR Unrecognized XCLAIM option 'IDLE'; -ERR \
             Invalid IDLE option argument for XCLAIM; -ERR Invalid TIME option argument for \
             XCLAIM; -ERR Invalid RETRYCOUNT option argument for XCLAIM; []; -ERR Invalid stream \
             ID specified as stream command argument; -ERR Unrecognized XCLAIM option 'LASTID'; \
             -ERR Unrecognized XCLAIM option '-'; -ERR wrong number of arguments for 'xclaim' \
             command; [[$name $g $consumers :1 $pending :0 $last-delivered-id $0-0 $entries-read \
             _ $lag :1]]",
        );
        check(
            "XADD s 1-1 a 1; XGROUP CREATE s g 0; XAUTOCLAIM s g c x 0; XAUTOCLAIM s g c 0 x; \
             XAUTOCLAIM s g c 0 0 COUNT 0; XAUTOCLAIM s g c 0 0 COUNT -1; XAUTOCLAIM s g c 0 0 \
             COUNT x; XAUTOCLAIM s g c 0 0 COUNT 576460752303423488; XAUTOCLAIM s g c 0 0 COUNT; \
             XAUTOCLAIM s g c 0 0 x; XAUTOCLAIM s no c 0 0; XAUTOCLAIM none g c 0 0; XAUTOCLAIM \
             s g c 0 (18446744073709551615-18446744073709551615; XAUTOCLAIM s g c 0; XAUTOCLAIM \
             s g c -1 0",
            "$1-1; +OK; -ERR Invalid min-idle-time argument for XAUTOCLAIM; -ERR Invalid stream \
             ID specified as stream command argument; -ERR COUNT must be > 0; -ERR COUNT must be \
             > 0; -ERR COUNT must be > 0; -ERR COUNT must be > 0; -ERR syntax error; -ERR syntax \
             error; -NOGROUP No such key 's' or consumer group 'no'; -NOGROUP No such key 'none' \
             or consumer group 'g'; -ERR invalid start ID for the interval; -ERR wrong number of \
             arguments for 'xautoclaim' command; [$0-0 [] []]",
        );
        check(
            "SET k v; XCLAIM k g c 0 1; XAUTOCLAIM k g c 0 0",
            "+OK; -WRONGTYPE Operation against a key holding the wrong kind of value; -WRONGTYPE \
             Operation against a key holding the wrong kind of value",
        );
    }

    #[test]
    fn times_and_counts() {
        let mut bench = Bench::new(Protocol::Resp2);
        bench.env.now_ms = 1_000_000;
        let mut ask = |call: &str| {
            let reply = bench.call(split(call)[0].as_args()).0;
            String::from_utf8(reply).unwrap().replace("\r\n", " ")
        };
        ask("XADD s 1-1 a 1");
        ask("XGROUP CREATE s g 0");
        ask("XREADGROUP GROUP g c STREAMS s >");
        let mut claimed = |options: &str| {
            ask(&format!("XCLAIM s g d 0 1-1 {options}"));
            ask("XPENDING s g - + 1").strip_prefix("*1 *4 $3 1-1 $1 d ").unwrap().to_string()
        };
        assert_eq!(claimed("IDLE 300"), ":300 :2 ");
        assert_eq!(claimed("TIME 999999"), ":1 :3 ");
        assert_eq!(claimed("IDLE -5 JUSTID"), ":0 :3 ", "no future");
        assert_eq!(claimed("TIME -5 RETRYCOUNT 9"), ":0 :9 ", "nothing before 1970");
        assert_eq!(claimed("IDLE 7 RETRYCOUNT -1"), ":7 :10 ");
    }

    #[test]
    fn events_of_claiming() {
        check_valkey_events(
            "XADD s 1-1 f v; XADD s 2-1 f v; XGROUP CREATE s g 0; XREADGROUP GROUP g c STREAMS s \
             >; XCLAIM s g d 0 1-1; XCLAIM s g d 0 1-1; XCLAIM s g e 0 7-1; XCLAIM s g d 100000 \
             1-1; XCLAIM s g d 0 1-1 LASTID 9; XCLAIM s g d 0 1-1 JUSTID; XDEL s 1-1; XCLAIM s g \
             d 0 1-1; XAUTOCLAIM s g f 0 0; XAUTOCLAIM s g i 100000 0; XCLAIM none g d 0 1-1; \
             XAUTOCLAIM none g d 0 0; XCLAIM s g d 0 1-1 FORCE",
            "new s, xadd s; xadd s; (xgroup-create s); (xgroup-createconsumer s); \
             (xgroup-createconsumer s); ; (xgroup-createconsumer s); ; ; ; xdel s; ; \
             (xgroup-createconsumer s); (xgroup-createconsumer s); keymiss none; keymiss none; ",
        );
    }
}
