//! Deleting entries that consumer groups still know of: XDELEX, XACKDEL, and KEEPREF, DELREF and
//! ACKED, which XADD and XTRIM share.
//!
//! The log has such calls as XDEL, XACK and XTRIM, which every peer and every version replays. Only
//! where ACKED lets entries go behind others that stay is there no older way to say it.

use std::collections::BTreeMap;

use kvasir_resp::args::Args;
use kvasir_structures::stream::{Stream, StreamId, Trim};

use crate::command::{Command, Cx, Run};
use crate::commands::options::integer;
use crate::commands::stream::id;
use crate::commands::stream::trim::decimal;
use crate::effect::{Effect, call};
use crate::error::Error;
use crate::event::Class;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::stream_value;

pub static COMMANDS: &[&Command] = &[&XDELEX, &XACKDEL];

/// How COMMAND DOCS describes the three words.
pub const REFERENCES: Argument = Argument::one_of(
    "condition",
    &[
        Argument::word("keepref", "KEEPREF"),
        Argument::word("delref", "DELREF"),
        Argument::word("acked", "ACKED"),
    ],
)
.optional();

const IDS: Argument =
    Argument::block("ids", &[Argument::integer("numids"), Argument::string("id").multiple()])
        .token("IDS");

static XDELEX: Command = Command {
    spec: Spec {
        name: "xdelex",
        summary: "Deletes entries of a stream, and minds what groups know of them; tells of each \
                  one what became of it.",
        since: "8.2.0",
        group: Group::Stream,
        complexity: "O(1) for each entry, however long the stream is.",
        arity: -5,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::DELETE))],
        arguments: &[Argument::key("key", 0), REFERENCES, IDS],
        ..Spec::BLANK
    },
    run: Run::Keys(xdelex),
};

static XACKDEL: Command = Command {
    spec: Spec {
        name: "xackdel",
        summary: "Says that entries delivered to a group were dealt with, and deletes them; tells \
                  of each one what became of it.",
        since: "8.2.0",
        group: Group::Stream,
        complexity: "O(1) for each id.",
        arity: -6,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::UPDATE).union(KeyFlags::DELETE))],
        arguments: &[Argument::key("key", 0), Argument::string("group"), REFERENCES, IDS],
        ..Spec::BLANK
    },
    run: Run::Keys(xackdel),
};

/// What is to become of that which groups know of an entry that goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum References {
    /// It stays pending where it is.
    Keep,
    /// It is pending nowhere any more.
    Delete,
    /// It only goes if every group has got and acknowledged it.
    Acked,
}

impl References {
    pub fn from_word(word: &[u8]) -> Option<References> {
        let words: [(&[u8], References); 3] = [
            (b"keepref", References::Keep),
            (b"delref", References::Delete),
            (b"acked", References::Acked),
        ];
        words.iter().find(|(name, _)| word.eq_ignore_ascii_case(name)).map(|(_, it)| *it)
    }
}

/// What became of an entry, as the reply has it.
const MISSING: i64 = -1;
const DELETED: i64 = 1;
const REFERENCED: i64 = 2;

fn xdelex(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let is_missing = stream_value::peek(&mut cx.view, 0)?.is_none();
    let options = Options::parse(cx.args.from(2))?;
    change_all(cx, &options, is_missing, |stream, id, taken| match options.references {
        References::Acked if stream.is_referenced(id) => REFERENCED,
        _ if taken.delete(stream, id, options.references) => DELETED,
        _ => MISSING,
    })
}

fn xackdel(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let args = cx.args;
    let name = &args[2];
    let stream = stream_value::peek(&mut cx.view, 0)?;
    let is_missing = stream.is_none_or(|stream| stream.group(name).is_none());
    let options = Options::parse(cx.args.from(3))?;
    change_all(cx, &options, is_missing, |stream, id, taken| {
        let group = stream.group_mut(name);
        if !group.is_some_and(|group| group.acknowledge(id)) {
            return MISSING;
        }
        taken.acknowledged(name, id);
        if options.references == References::Acked && stream.is_referenced(id) {
            return REFERENCED;
        }
        // What is not there any more counts as deleted, too.
        taken.delete(stream, id, options.references);
        DELETED
    })
}

/// Lets `change` at every id and replies with what it says. Where there is no stream or group,
/// nobody looks at the ids.
fn change_all(
    cx: &mut Cx<'_, '_>,
    options: &Options<'_>,
    is_missing: bool,
    change: impl Fn(&mut Stream, StreamId, &mut Taken) -> i64,
) -> Result<Effect, Error> {
    let count = options.ids.len();
    if is_missing {
        cx.reply.array(count);
        (0..count).for_each(|_| cx.reply.integer(MISSING));
        return Ok(Effect::None);
    }
    let ids = options.ids.iter().map(|text| id::id(text, 0));
    let ids: Vec<StreamId> = ids.collect::<Result<_, _>>()?;
    let mut taken = Taken::default();
    cx.reply.array(count);
    let reply = &mut *cx.reply;
    stream_value::change(&mut cx.view, 0, |stream| {
        for id in &ids {
            reply.integer(change(&mut *stream, *id, &mut taken));
        }
    })?;
    if !taken.deleted.is_empty() {
        cx.view.changed(0, Class::STREAM, "xdel");
    }
    Ok(taken.into_effect(cx.view.key(0), cx.view.env.logs))
}

struct Options<'a> {
    references: References,
    ids: Args<'a>,
}

impl<'a> Options<'a> {
    /// Reads a word of the three, at most one, and IDS, of which the last one counts.
    fn parse(args: Args<'a>) -> Result<Options<'a>, Error> {
        let (mut references, mut ids, mut at) = (None, None, 0);
        while let Some(word) = args.get(at) {
            let given = References::from_word(word).filter(|_| references.is_none());
            if given.is_some() {
                references = given;
                at += 1;
            } else if word.eq_ignore_ascii_case(b"ids") && args.len() > at + 1 {
                let counted = counted(args.from(at + 1))?;
                at += 2 + counted.len();
                ids = Some(counted);
            } else {
                return Err(Error::SYNTAX);
            }
        }
        let references = references.unwrap_or(References::Keep);
        Ok(Options { references, ids: ids.ok_or(Error::SYNTAX)? })
    }
}

/// The ids behind their count.
fn counted(args: Args<'_>) -> Result<Args<'_>, Error> {
    let invalid = Error::fixed("ERR Number of IDs must be a positive integer");
    let count = integer(&args[0]).ok().filter(|count| *count > 0).ok_or(invalid)?;
    let ids = args.from(1);
    let differs = Error::fixed("ERR The `numids` parameter must match the number of arguments");
    let count = usize::try_from(count).ok().filter(|count| *count <= ids.len()).ok_or(differs)?;
    Ok(ids.first(count))
}

/// What was taken from a stream, for the log.
#[derive(Default)]
struct Taken {
    deleted: Vec<StreamId>,
    /// By group, what is pending no more.
    acknowledged: BTreeMap<Vec<u8>, Vec<StreamId>>,
}

impl Taken {
    /// Deletes an entry; says whether it was there.
    fn delete(&mut self, stream: &mut Stream, id: StreamId, references: References) -> bool {
        if references == References::Delete {
            self.acknowledge_everywhere(stream, id);
        }
        let is_there = stream.delete(id);
        self.deleted.extend(is_there.then_some(id));
        is_there
    }

    fn acknowledge_everywhere(&mut self, stream: &mut Stream, id: StreamId) {
        for (name, group) in stream.groups_mut() {
            if group.acknowledge(id) {
                self.acknowledged(name, id);
            }
        }
    }

    fn acknowledged(&mut self, group: &[u8], id: StreamId) {
        match self.acknowledged.get_mut(group) {
            Some(ids) => ids.push(id),
            None => {
                self.acknowledged.insert(group.to_vec(), vec![id]);
            }
        }
    }

    /// One XACK for each group.
    fn acknowledgements(&self, key: &[u8]) -> Vec<Vec<Vec<u8>>> {
        let of_group =
            |(group, ids): (&Vec<u8>, &Vec<StreamId>)| with_ids(call(&[b"XACK", key, group]), ids);
        self.acknowledged.iter().map(of_group).collect()
    }

    fn into_effect(self, key: &[u8], logs: bool) -> Effect {
        if self.deleted.is_empty() && self.acknowledged.is_empty() {
            return Effect::None;
        }
        let mut calls = Vec::new();
        if logs {
            calls = self.acknowledgements(key);
            if !self.deleted.is_empty() {
                calls.push(with_ids(call(&[b"XDEL", key]), &self.deleted));
            }
        }
        Effect::Rewritten(calls)
    }
}

fn with_ids(mut call: Vec<Vec<u8>>, ids: &[StreamId]) -> Vec<Vec<u8>> {
    call.extend(ids.iter().map(|id| id::text(*id)));
    call
}

/// What trimming did, for the log.
pub struct Trimmed {
    pub count: u64,
    len: u64,
    taken: Taken,
    /// Entries went that others, which stay, lie before.
    has_holes: bool,
}

/// Trims a stream in one of the three ways.
pub fn trim(stream: &mut Stream, trim: Trim, references: References) -> Trimmed {
    let mut taken = Taken::default();
    if references == References::Keep {
        let count = stream.trim(trim);
        return Trimmed { count, len: stream.len(), taken, has_holes: false };
    }
    let is_free = |id| references == References::Delete || !stream.is_referenced(id);
    // What a group has yet to get may be most of a stream, and need not be looked at.
    let delivered = stream.groups().map(|(_, group)| group.last_id).min();
    let last = delivered.filter(|_| references == References::Acked).unwrap_or(StreamId::MAX);
    let ids = stream.trimmable(trim, last, is_free);
    stream.take_out(&ids);
    if references == References::Delete {
        ids.iter().for_each(|id| taken.acknowledge_everywhere(stream, *id));
    }
    let has_holes = ids.last().is_some_and(|last| !stream.is_empty() && stream.first_id() < *last);
    Trimmed { count: ids.len() as u64, len: stream.len(), taken, has_holes }
}

impl Trimmed {
    /// The words for XTRIM and XADD that trim the same entries, whatever nodes they lie in.
    pub fn words(&self) -> Vec<Vec<u8>> {
        let mut words = call(&[b"MAXLEN", b"=", &decimal(self.len)]);
        words.extend(self.has_holes.then(|| b"ACKED".to_vec()));
        words
    }

    /// What has to follow the call that trims.
    pub fn acknowledgements(&self, key: &[u8]) -> Vec<Vec<Vec<u8>>> {
        self.taken.acknowledgements(key)
    }
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::{Effect, call};
    use crate::testing::events::check_our_events;
    use crate::testing::{Bench, check_ours, split};

    #[test]
    fn xdelex_minds_the_groups() {
        check_ours(
            "XADD s 1-1 a 1; XADD s 2-1 a 2; XADD s 3-1 a 3; XDELEX s IDS 2 1-1 1-1; XDELEX s ids \
             3 2 2-1 9; XDELEX s ACKED IDS 1 3-1; XLEN s; EXISTS s; XADD s 3-1 a 1; XDELEX s IDS \
             1 1 acked; XDELEX s KEEPREF IDS 1 x IDS 2 1 2",
            "$1-1; $2-1; $3-1; [:1 :-1]; [:-1 :1 :-1]; [:1]; :0; :1; -ERR The ID specified in \
             XADD is equal or smaller than the target stream top item; [:-1]; [:-1 :-1]",
        );
        check_ours(
            "XADD s 1-1 a 1; XADD s 2-1 a 2; XADD s 3-1 a 3; XADD s 4-1 a 4; XGROUP CREATE s g 0; \
             XGROUP CREATE s h 0; XREADGROUP GROUP g c COUNT 3 STREAMS s >; XREADGROUP GROUP h c \
             COUNT 2 STREAMS s >; XDELEX s ACKED IDS 4 0-9 1-1 4-1 9-9; XACK s g 1-1 2-1 3-1; \
             XACK s h 2-1; XDELEX s ACKED IDS 4 1-1 2-1 3-1 4-1; XDELEX s DELREF IDS 1 1-1; \
             XPENDING s h; XDELEX s KEEPREF IDS 1 3-1; XRANGE s - +; XGROUP DESTROY s g; XGROUP \
             DESTROY s h; XDELEX s ACKED IDS 1 4-1; XLEN s",
            "$1-1; $2-1; $3-1; $4-1; +OK; +OK; [[$s [[$1-1 [$a $1]] [$2-1 [$a $2]] [$3-1 [$a \
             $3]]]]]; [[$s [[$1-1 [$a $1]] [$2-1 [$a $2]]]]]; [:-1 :2 :2 :2]; :3; :1; [:2 :1 :2 \
             :2]; [:1]; [:0 _ _ _]; [:1]; [[$4-1 [$a $4]]]; :1; :1; [:1]; :0",
        );
        check_ours(
            "XADD s 1-1 a 1; XADD s 2-1 a 2; XADD s 3-1 a 3; XGROUP CREATE s g 0; XREADGROUP \
             GROUP g c STREAMS s >; XDEL s 1-1 2-1; XDELEX s ACKED IDS 1 1-1; XDELEX s IDS 1 1-1; \
             XPENDING s g; XDELEX s DELREF IDS 3 1-1 9 3-1; XPENDING s g; XINFO GROUPS s",
            "$1-1; $2-1; $3-1; +OK; [[$s [[$1-1 [$a $1]] [$2-1 [$a $2]] [$3-1 [$a $3]]]]]; :2; \
             [:2]; [:-1]; [:3 $1-1 $3-1 [[$c $3]]]; [:-1 :-1 :1]; [:1 $2-1 $2-1 [[$c $1]]]; \
             [[$name $g $consumers :1 $pending :1 $last-delivered-id $3-1 $entries-read :3 $lag \
             :0]]",
        );
    }

    #[test]
    fn xackdel_tells_what_became_of_each() {
        check_ours(
            "XADD s 1-1 a 1; XADD s 2-1 a 2; XADD s 3-1 a 3; XADD s 4-1 a 4; XGROUP CREATE s g 0; \
             XGROUP CREATE s h 0; XREADGROUP GROUP g c COUNT 3 STREAMS s >; XREADGROUP GROUP h d \
             STREAMS s >; XACKDEL s g IDS 3 1-1 1-1 4-1; XPENDING s h - + 9 d; XACKDEL s g ACKED \
             IDS 1 2-1; XACKDEL s g ACKED IDS 1 2-1; XRANGE s - + COUNT 1; XACKDEL s h ACKED IDS \
             1 2-1; XACKDEL s g DELREF IDS 1 3-1; XPENDING s h; XACKDEL s h keepref ids 1 1-1; \
             XLEN s",
            "$1-1; $2-1; $3-1; $4-1; +OK; +OK; [[$s [[$1-1 [$a $1]] [$2-1 [$a $2]] [$3-1 [$a \
             $3]]]]]; [[$s [[$1-1 [$a $1]] [$2-1 [$a $2]] [$3-1 [$a $3]] [$4-1 [$a $4]]]]]; [:1 \
             :-1 :-1]; [[$1-1 $d :0 :1] [$2-1 $d :0 :1] [$3-1 $d :0 :1] [$4-1 $d :0 :1]]; [:2]; \
             [:-1]; [[$2-1 [$a $2]]]; [:1]; [:1]; [:2 $1-1 $4-1 [[$d $2]]]; [:1]; :1",
        );
        check_ours(
            "XADD s 1-1 a 1; XGROUP CREATE s g 0; XREADGROUP GROUP g c STREAMS s >; XDEL s 1-1; \
             XACKDEL s g ACKED IDS 2 1-1 1-1; XACKDEL none g IDS 2 1 x; XACKDEL s none IDS 1 x; \
             XACKDEL s g IDS 1 x; XACKDEL s g IDS 1 1 DELREF",
            "$1-1; +OK; [[$s [[$1-1 [$a $1]]]]]; :1; [:1 :-1]; [:-1 :-1]; [:-1]; -ERR Invalid \
             stream ID specified as stream command argument; [:-1]",
        );
    }

    #[test]
    fn what_is_wrong() {
        check_ours(
            "XDELEX none IDS 2 1-1 x; XDELEX none IDS 0; XDELEX none FOO IDS 1 1; XDELEX none IDS \
             2 1; XDELEX none IDS 1 1 2; XDELEX none IDS x 1; XDELEX none IDS -1 1; XDELEX none \
             KEEPREF DELREF IDS 1 1; XDELEX none KEEPREF KEEPREF IDS 1 1; XDELEX none IDS 0 1; \
             XDELEX none KEEPREF 1 1; XDELEX none IDS 4294967296 1; XDELEX none IDS \
             99999999999999999999 1; XDELEX none IDS 01 1; XDELEX none IDS 1 1 IDS; XDELEX none \
             IDS 1 1 IDS 1; XDELEX none ACKED KEEPREF x",
            "[:-1 :-1]; -ERR wrong number of arguments for 'xdelex' command; -ERR syntax error; \
             -ERR The `numids` parameter must match the number of arguments; -ERR syntax error; \
             -ERR Number of IDs must be a positive integer; -ERR Number of IDs must be a positive \
             integer; -ERR syntax error; -ERR syntax error; -ERR Number of IDs must be a positive \
             integer; -ERR syntax error; -ERR The `numids` parameter must match the number of \
             arguments; -ERR Number of IDs must be a positive integer; -ERR Number of IDs must be \
             a positive integer; -ERR syntax error; -ERR The `numids` parameter must match the \
             number of arguments; -ERR syntax error",
        );
        check_ours(
            "SET k v; XDELEX k FOO IDS 1 1; XDELEX k IDS 1 x; XACKDEL k g FOO 1 1; XADD s 1 a b; \
             XDELEX s IDS 2 1 x; XLEN s; XACKDEL s g; XACKDEL s g IDS 1; XACKDEL s g FOO IDS 1 1; \
             XACKDEL s g IDS 2 1; XACKDEL s g IDS 1 1 2; XACKDEL s g IDS 0 1; XACKDEL s g KEEPREF \
             ACKED IDS 1 1",
            "+OK; -WRONGTYPE Operation against a key holding the wrong kind of value; -WRONGTYPE \
             Operation against a key holding the wrong kind of value; -WRONGTYPE Operation \
             against a key holding the wrong kind of value; $1-0; -ERR Invalid stream ID \
             specified as stream command argument; :1; -ERR wrong number of arguments for \
             'xackdel' command; -ERR wrong number of arguments for 'xackdel' command; -ERR syntax \
             error; -ERR The `numids` parameter must match the number of arguments; -ERR syntax \
             error; -ERR Number of IDs must be a positive integer; -ERR syntax error",
        );
    }

    #[test]
    fn trimming_minds_the_groups() {
        check_ours(
            "XADD s 1-1 a 1; XADD s 2-1 a 2; XADD s 3-1 a 3; XADD s 4-1 a 4; XADD s 5-1 a 5; \
             XGROUP CREATE s g 0; XREADGROUP GROUP g c COUNT 3 STREAMS s >; XACK s g 2-1; XTRIM s \
             MAXLEN 1 ACKED; XRANGE s - + COUNT 2; XTRIM s ACKED MINID 9; XINFO GROUPS s; XSETID \
             s 9-9; XTRIM s MAXLEN 3 DELREF; XPENDING s g; XTRIM s KEEPREF MAXLEN = 0; XPENDING s \
             g; XLEN s",
            "$1-1; $2-1; $3-1; $4-1; $5-1; +OK; [[$s [[$1-1 [$a $1]] [$2-1 [$a $2]] [$3-1 [$a \
             $3]]]]]; :1; :1; [[$1-1 [$a $1]] [$3-1 [$a $3]]]; :0; [[$name $g $consumers :1 \
             $pending :2 $last-delivered-id $3-1 $entries-read :3 $lag :2]]; +OK; :1; [:1 $3-1 \
             $3-1 [[$c $1]]]; :3; [:1 $3-1 $3-1 [[$c $1]]]; :0",
        );
        check_ours(
            "XADD s 1-1 a 1; XADD s 2-1 a 2; XADD s 3-1 a 3; XADD s 4-1 a 4; XADD s 5-1 a 5; XADD \
             s 6-1 a 6; XGROUP CREATE s g 0; XREADGROUP GROUP g c STREAMS s >; XACK s g 2-1 3-1 \
             5-1; XTRIM s MAXLEN 4 ACKED; XTRIM s MAXLEN 3 ACKED; XTRIM s MINID 5-2 ACKED; XTRIM \
             s MINID 4 DELREF; XPENDING s g; XRANGE s - +",
            "$1-1; $2-1; $3-1; $4-1; $5-1; $6-1; +OK; [[$s [[$1-1 [$a $1]] [$2-1 [$a $2]] [$3-1 \
             [$a $3]] [$4-1 [$a $4]] [$5-1 [$a $5]] [$6-1 [$a $6]]]]]; :3; :2; :1; :0; :1; [:2 \
             $4-1 $6-1 [[$c $2]]]; [[$4-1 [$a $4]] [$6-1 [$a $6]]]",
        );
        check_ours(
            "XADD s MAXLEN 1 ACKED 6-1 a 1; XADD s KEEPREF 7-1 a 1; XADD s ACKED MAXLEN 1 8-1 a \
             1; XADD s NOMKSTREAM KEEPREF MAXLEN = 1 9-1 a 1; XADD s MAXLEN = 1 KEEPREF DELREF \
             10-1 a 1; XADD s KEEPREF KEEPREF 11-1 a 1; XTRIM s KEEPREF; XTRIM s MAXLEN 1 KEEPREF \
             LIMIT 1; XTRIM s ACKED DELREF; XTRIM s ACKED DELREF MAXLEN 1; XTRIM none MAXLEN 1 \
             ACKED; XADD t KEEPREF *; XADD t ACKED 1-1 a; XADD u LIMIT 1 ACKED 1-1 a b; XGROUP \
             CREATE s g 0; XADD s MAXLEN 1 ACKED 12-1 a b; XREADGROUP GROUP g c STREAMS s >; XADD \
             s MAXLEN 1 DELREF 13-1 a b; XPENDING s g",
            "$6-1; $7-1; $8-1; $9-1; -ERR Invalid stream ID specified as stream command argument; \
             -ERR Invalid stream ID specified as stream command argument; -ERR wrong number of \
             arguments for 'xtrim' command; -ERR syntax error, LIMIT cannot be used without the \
             special ~ option; -ERR syntax error; -ERR syntax error; :0; -ERR wrong number of \
             arguments for 'xadd' command; -ERR wrong number of arguments for 'xadd' command; \
             -ERR syntax error, LIMIT cannot be used without specifying a trimming strategy; +OK; \
             $12-1; [[$s [[$9-1 [$a $1]] [$12-1 [$a $b]]]]]; $13-1; [:0 _ _ _]",
        );
    }

    /// As Redis has it since 8.4: 8.2 lets nothing go with `~` unless references are kept.
    #[test]
    fn whole_nodes_are_looked_through() {
        let mut bench = Bench::new(Protocol::Resp2);
        bench.env.stream_node_entries_max = 2;
        let mut ask = |call: &str| {
            let reply = bench.call(split(call)[0].as_args()).0;
            String::from_utf8(reply).unwrap().trim_end().to_string()
        };
        (1..=8)
            .for_each(|id| assert_eq!(ask(&format!("XADD s {id} f v")), format!("$3\r\n{id}-0")));
        ask("XGROUP CREATE s g 0");
        ask("XREADGROUP GROUP g c STREAMS s >");
        assert_eq!(ask("XACK s g 1 2 4 5 6 7"), ":6");
        assert_eq!(ask("XTRIM s MAXLEN ~ 1 ACKED LIMIT 1"), ":0");
        // The node of 7 and 8 would not leave as a whole, so that 7 stays.
        assert_eq!(ask("XTRIM s MINID ~ 8 ACKED"), ":5");
        assert_eq!(ask("XTRIM s MAXLEN ~ 2 ACKED"), ":0");
        assert_eq!(ask("XTRIM s MAXLEN ~ 1 ACKED"), ":1");
        assert_eq!(ask("XTRIM s MAXLEN ~ 1 DELREF"), ":1");
        assert_eq!(ask("XLEN s"), ":1");
        assert_eq!(ask("XPENDING s g - + 9").split("\r\n").next(), Some("*1"));
    }

    const DELIVERED: &str = "XADD s 1 a 1; XADD s 2 a 2; XADD s 3 a 3; XGROUP CREATE s g 0; \
                             XGROUP CREATE s h 0; XREADGROUP GROUP g c STREAMS s >; \
                             XREADGROUP GROUP h c STREAMS s >";

    #[test]
    fn the_log_has_what_older_followers_know() {
        let effect = |asked: &str| {
            let mut bench = Bench::new(Protocol::Resp2);
            split(DELIVERED).iter().for_each(|step| drop(bench.call(step.as_args())));
            let mut effect = Effect::None;
            split(asked).iter().for_each(|step| effect = bench.call(step.as_args()).1);
            effect
        };
        let calls = |calls: &[&str]| {
            let words = |text: &&str| call(&text.split(' ').map(str::as_bytes).collect::<Vec<_>>());
            Effect::Rewritten(calls.iter().map(words).collect())
        };
        assert_eq!(effect("XDELEX s IDS 3 1 9 2"), calls(&["XDEL s 1-0 2-0"]));
        assert_eq!(effect("XDELEX s ACKED IDS 1 1"), Effect::None);
        let both = &["XACK s g 1-0", "XACK s h 1-0", "XDEL s 1-0"];
        assert_eq!(effect("XDELEX s DELREF IDS 1 1"), calls(both));
        assert_eq!(effect("XACKDEL s g DELREF IDS 1 1"), calls(both));
        assert_eq!(effect("XACKDEL s g ACKED IDS 1 1"), calls(&["XACK s g 1-0"]));
        // Its entry is gone, what is pending of it goes.
        assert_eq!(
            effect("XDEL s 1; XACK s g 1; XDELEX s DELREF IDS 1 1"),
            calls(&["XACK s h 1-0"])
        );
        assert_eq!(effect("XTRIM s MAXLEN 2 KEEPREF"), calls(&["XTRIM s MAXLEN = 2"]));
        let trimmed = &["XTRIM s MAXLEN = 2", "XACK s g 1-0", "XACK s h 1-0"];
        assert_eq!(effect("XTRIM s MAXLEN 2 DELREF"), calls(trimmed));
        let acked = "XACK s g 1 3; XACK s h 1 3";
        let beginning = calls(&["XTRIM s MAXLEN = 2"]);
        assert_eq!(effect(&format!("{acked}; XTRIM s MAXLEN 2 ACKED")), beginning);
        let holes = calls(&["XTRIM s MAXLEN = 1 ACKED"]);
        assert_eq!(effect(&format!("{acked}; XTRIM s MINID 9 ACKED")), holes);
        let added = calls(&["XADD s MAXLEN = 2 ACKED 9-0 f v"]);
        assert_eq!(effect(&format!("{acked}; XADD s MAXLEN 0 ACKED 9 f v")), added);
        let added = &["XADD s MAXLEN = 2 4-0 f v", "XACK s g 1-0 2-0", "XACK s h 1-0 2-0"];
        assert_eq!(effect("XADD s DELREF MAXLEN 2 4 f v"), calls(added));
        assert_eq!(effect("XADD s KEEPREF 4 f v"), calls(&["XADD s 4-0 f v"]));
    }

    #[test]
    fn events_of_deleting_with_references() {
        check_our_events(
            "XADD s 1-1 f v; XADD s 2-1 f v; XGROUP CREATE s g 0; XREADGROUP GROUP g c STREAMS s \
             >; XDELEX s ACKED IDS 1 1-1; XDELEX s IDS 1 1-1; XDELEX s IDS 1 1-1; XACKDEL s g \
             ACKED IDS 1 1-1; XACKDEL s g IDS 1 2-1; XACKDEL s g IDS 1 2-1; XADD s MAXLEN 0 DELREF \
             3-1 f v; XADD s MAXLEN 0 ACKED 4-1 f v; XTRIM s MAXLEN 0 DELREF",
            "new s, xadd s; xadd s; (xgroup-create s); (xgroup-createconsumer s); ; xdel s; ; ; \
             xdel s; ; xadd s, xtrim s; xadd s; xtrim s",
        );
    }
}
