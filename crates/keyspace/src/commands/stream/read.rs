//! Reading what is new in several streams: XREAD, and the options that XREADGROUP shares.

use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::reply::{Deferred, Protocol, Reply};
use kvasir_structures::stream::{Entry, StreamId};

use crate::command::{Command, Cx, Run};
use crate::commands::options::{block_deadline_ms, integer};
use crate::commands::stream::id;
use crate::database::Keyspace;
use crate::effect::Effect;
use crate::error::Error;
use crate::place::DbIndex;
use crate::plan::KeyAt;
use crate::spec::{Argument, Begin, Find, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::stream_value;
use crate::value::Kind;
use crate::view::Env;
use crate::waiting::{Nothing, Wait};

pub static COMMANDS: &[&Command] = &[&XREAD];

pub const COUNT: Argument = Argument::integer("count").token("COUNT").optional();
pub const BLOCK: Argument = Argument::integer("milliseconds").token("BLOCK").optional();
pub const STREAMS: Argument = Argument::block(
    "streams",
    &[Argument::key("key", 0).multiple(), Argument::string("id").multiple()],
)
.token("STREAMS");

/// The first half of what follows on STREAMS is keys; the word is searched from argument `from`.
pub const fn keys(from: i32) -> KeySpec {
    KeySpec {
        flags: KeyFlags::RO.union(KeyFlags::ACCESS),
        notes: None,
        begin: Begin::Keyword { word: "STREAMS", from },
        find: Find::Range { last: -1, step: 1, limit: 2 },
    }
}

/// Says how many there were.
fn write_entries<'a>(reply: &mut Reply, mut entries: impl Iterator<Item = Entry<'a>>) -> usize {
    let mut written = 0;
    let _ = entries.try_for_each(|entry| {
        id::write_entry(reply, entry);
        written += 1;
        reply.flow()
    });
    written
}

static XREAD: Command = Command {
    spec: Spec {
        name: "xread",
        summary: "Returns entries behind the ids given, from several streams; may wait for them.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(N) for each stream where N is the number of entries returned; an XADD pays \
                     O(M) for the M clients that wait.",
        arity: -4,
        flags: Flags::READONLY.union(Flags::BLOCKING).union(Flags::MOVABLEKEYS),
        keys: &[keys(1)],
        arguments: &[COUNT, BLOCK, STREAMS],
        ..Spec::BLANK
    },
    run: Run::Planned(xread, plan_streams),
};

fn xread(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let options = ReadOptions::parse(cx.args, cx.view.env, false)?;
    let seen = (0..options.stream_count)
        .map(|key| seen(cx, key, options.id_arg(key)))
        .collect::<Result<Vec<StreamId>, Error>>()?;
    let mut streams = StreamsReply::default();
    for (key, seen) in seen.iter().enumerate() {
        let name = cx.view.key(key);
        let stream = stream_value::read(&mut cx.view, key)?;
        let Some((stream, first)) = stream.zip(seen.next()) else { continue };
        let mut entries = stream.range(first, StreamId::MAX).take(options.count).peekable();
        if entries.peek().is_some() {
            streams.begin(cx.reply, name);
            let array = cx.reply.deferred_array();
            let written = write_entries(cx.reply, entries);
            cx.reply.set_count(array, written);
        }
        if cx.reply.is_cut() {
            break;
        }
    }
    if streams.end(cx.reply) {
        return Ok(Effect::None);
    }
    let Some(deadline_ms) = options.deadline_ms else {
        cx.reply.null_array();
        return Ok(Effect::None);
    };
    let call = Some(with_ids(cx.args, &options, &seen));
    let (kind, nothing) = (Kind::Stream, Nothing::NullArray);
    cx.wait(Wait { kind, deadline_ms, nothing, wakes_on_removal: false, call })
}

/// Up to where a reader has seen a stream: an id, `$` for all of it, `+` for all but the last
/// entry.
fn seen(cx: &mut Cx<'_, '_>, key: usize, arg: usize) -> Result<StreamId, Error> {
    let args = cx.args;
    let stream = stream_value::read(&mut cx.view, key)?;
    let last_id = stream.map_or(StreamId::MIN, |stream| stream.last_id());
    match &args[arg] {
        b"$" => Ok(last_id),
        b"+" => Ok(last_id.previous().unwrap_or_default()),
        b">" => Err(Error::fixed(
            "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> \
             <consumer> option.",
        )),
        text => id::id(text, 0),
    }
}

/// The call to be made again: `$` stays what it is now.
fn with_ids(args: Args<'_>, options: &ReadOptions<'_>, ids: &[StreamId]) -> ArgsBuf {
    let mut call: ArgsBuf = args.first(options.id_arg(0)).iter().collect();
    for id in ids {
        call.push(&id::text(*id)).expect("ids are short");
    }
    call
}

/// Who reads for a group.
#[derive(Clone, Copy)]
pub struct Member<'a> {
    pub group: &'a [u8],
    pub consumer: &'a [u8],
}

/// The options of XREAD and XREADGROUP.
pub struct ReadOptions<'a> {
    /// At most so many entries of each stream.
    pub count: usize,
    /// Whether and until when to wait.
    pub deadline_ms: Option<Option<u64>>,
    pub member: Option<Member<'a>>,
    pub no_ack: bool,
    pub stream_count: usize,
    first_key: usize,
}

impl<'a> ReadOptions<'a> {
    pub fn parse(args: Args<'a>, env: &Env, is_group: bool) -> Result<ReadOptions<'a>, Error> {
        let mut options = ReadOptions {
            count: usize::MAX,
            deadline_ms: None,
            member: None,
            no_ack: false,
            stream_count: 0,
            first_key: 0,
        };
        let mut at = 1;
        while let (Some(word), 0) = (args.get(at), options.first_key) {
            let next = args.get(at + 1);
            match (word.to_ascii_lowercase().as_slice(), next) {
                (b"block", Some(timeout)) => {
                    options.deadline_ms = Some(block_deadline_ms(timeout, env)?);
                    at += 2;
                }
                (b"count", Some(count)) => {
                    let count = usize::try_from(integer(count)?).unwrap_or(0);
                    options.count = if count == 0 { usize::MAX } else { count };
                    at += 2;
                }
                (b"streams", Some(_)) => options.streams(args, at + 1, is_group)?,
                (b"group", Some(group)) if args.len() > at + 2 => {
                    options.member = args.get(at + 2).map(|consumer| Member { group, consumer });
                    only_group("GROUP", is_group)?;
                    at += 3;
                }
                (b"noack", _) => {
                    options.no_ack = true;
                    only_group("NOACK", is_group)?;
                    at += 1;
                }
                _ => return Err(Error::SYNTAX),
            }
        }
        if options.first_key == 0 {
            return Err(Error::SYNTAX);
        }
        Ok(options)
    }

    fn streams(&mut self, args: Args<'_>, first: usize, is_group: bool) -> Result<(), Error> {
        let count = args.len() - first;
        if count % 2 == 1 {
            let (name, id) = if is_group { ("xreadgroup", '>') } else { ("xread", '$') };
            return Err(Error::new(format!(
                "ERR Unbalanced '{name}' list of streams: for each stream key an ID or '{id}' \
                 must be specified."
            )));
        }
        (self.first_key, self.stream_count) = (first, count / 2);
        Ok(())
    }

    /// The argument that is the id for this stream.
    pub fn id_arg(&self, key: usize) -> usize {
        self.first_key + self.stream_count + key
    }
}

fn only_group(option: &str, is_group: bool) -> Result<(), Error> {
    let text = format!(
        "ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."
    );
    if is_group { Ok(()) } else { Err(Error::new(text)) }
}

/// The keys of XREAD and XREADGROUP, read as the commands read them: a group may be named
/// "streams". A malformed call has none, and its command says why.
pub fn plan_streams(
    _: &Keyspace,
    args: Args<'_>,
    db: DbIndex,
    keys: &mut Vec<KeyAt>,
) -> Result<(), Error> {
    let mut at = 1;
    while let Some(word) = args.get(at) {
        at += match word.to_ascii_lowercase().as_slice() {
            b"block" | b"count" => 2,
            b"group" => 3,
            b"noack" => 1,
            b"streams" => {
                let (first, count) = (at + 1, args.len() - at - 1);
                let is_balanced = count % 2 == 0;
                let range = first..first + if is_balanced { count / 2 } else { 0 };
                keys.extend(range.map(|arg| KeyAt::new(args, arg, db)));
                return Ok(());
            }
            _ => return Ok(()),
        };
    }
    Ok(())
}

/// A reply of streams and what was read of each, which is nothing at all until the first one.
#[derive(Default)]
pub struct StreamsReply {
    open: Option<Deferred>,
    count: usize,
}

impl StreamsReply {
    /// Begins a stream; its entries follow.
    pub fn begin(&mut self, reply: &mut Reply, name: &[u8]) {
        let is_map = reply.protocol() == Protocol::Resp3;
        if self.open.is_none() {
            self.open = Some(if is_map { reply.deferred_map() } else { reply.deferred_array() });
        }
        if !is_map {
            reply.array(2);
        }
        reply.bulk(name);
        self.count += 1;
    }

    /// Ends the reply; says whether there is one.
    pub fn end(self, reply: &mut Reply) -> bool {
        let is_open = self.open.is_some();
        self.open.into_iter().for_each(|open| reply.set_count(open, self.count));
        is_open
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::events::{check_events, check_valkey_events};
    use crate::testing::{check, check_ours, check_valkey, check_valkey3, check3};

    const TWO: &str = "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD t 5-1 c 3";
    const ADDED: &str = "$1-1; $2-1; $5-1";

    #[test]
    fn what_is_behind_an_id() {
        let (one, two) = ("[$1-1 [$a $1]]", "[$2-1 [$b $2]]");
        check(
            &format!(
                "{TWO}; XREAD STREAMS s 0; XREAD STREAMS s t 1-1 0; XREAD STREAMS s t 2-1 9; \
                 XREAD COUNT 1 STREAMS s none 0 0; XREAD streams s $"
            ),
            &format!(
                "{ADDED}; [[$s [{one} {two}]]]; [[$s [{two}]] [$t [[$5-1 [$c $3]]]]]; _; \
                 [[$s [{one}]]]; _"
            ),
        );
        check3(
            &format!("{TWO}; XREAD STREAMS s t 1-1 0; XREAD STREAMS s 9"),
            &format!("{ADDED}; {{$s [{two}] $t [[$5-1 [$c $3]]]}}; _"),
        );
        check(
            &format!(
                "{TWO}; XREAD COUNT 0 STREAMS s 1-1; XREAD COUNT -3 STREAMS s 1-1; \
                 XREAD STREAMS s 18446744073709551615-18446744073709551615"
            ),
            &format!("{ADDED}; [[$s [{two}]]]; [[$s [{two}]]]; _"),
        );
    }

    #[test]
    fn the_last_entry() {
        check_valkey3("XADD s 1-1 a 1; XREAD STREAMS s +", "$1-1; {$s [[$1-1 [$a $1]]]}");
        check_valkey(
            &format!("{TWO}; XREAD STREAMS s +; XREAD COUNT 9 STREAMS s t none + + +"),
            &format!(
                "{ADDED}; [[$s [[$2-1 [$b $2]]]]]; [[$s [[$2-1 [$b $2]]]] [$t [[$5-1 [$c $3]]]]]"
            ),
        );
        check_valkey(
            &format!("{TWO}; XDEL s 2-1; XREAD STREAMS s +; XADD s 3 a 1; XREAD STREAMS s +"),
            &format!("{ADDED}; :1; _; $3-0; [[$s [[$3-0 [$a $1]]]]]"),
        );
    }

    /// The bench's client never waits, as one in a transaction does not.
    #[test]
    fn where_nobody_may_wait() {
        check_ours("XREAD BLOCK 0 STREAMS s 0; XREAD BLOCK 10 STREAMS s $", "_; _");
    }

    #[test]
    fn what_is_wrong() {
        check_valkey(
            "XREAD STREAMS s 1 2",
            "-ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be \
             specified.",
        );
        let group =
            "-ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.";
        let (syntax, invalid) =
            ("-ERR syntax error", "-ERR Invalid stream ID specified as stream command argument");
        check(
            "XREAD COUNT 1 BLOCK 3; XREAD COUNT a STREAMS s 1; \
             XREAD BLOCK -1 STREAMS s 1; XREAD BLOCK x STREAMS s 1; XREAD NOACK STREAMS s 1; \
             XREAD GROUP a b STREAMS s 1; XREAD GROUP a STREAMS; XREAD x STREAMS s 1; \
             XREAD STREAMS s >; XREAD STREAMS s x; XREAD STREAMS s -; XREAD STREAMS s; \
             XREAD COUNT 1 STREAMS",
            &format!(
                "{syntax}; -ERR value is not an integer or out of range; \
                 -ERR timeout is negative; -ERR timeout is not an integer or out of range; \
                 -ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.; \
                 {group}; {group}; {syntax}; \
                 -ERR The > ID can be specified only when calling XREADGROUP using the GROUP \
                 <group> <consumer> option.; {invalid}; {invalid}; \
                 -ERR wrong number of arguments for 'xread' command; {syntax}"
            ),
        );
        check(
            "SET k v; XREAD STREAMS k 0; XREAD STREAMS none k 0 0; XREAD STREAMS k none x 0",
            "+OK; -WRONGTYPE Operation against a key holding the wrong kind of value; \
             -WRONGTYPE Operation against a key holding the wrong kind of value; \
             -WRONGTYPE Operation against a key holding the wrong kind of value",
        );
    }

    #[test]
    fn misses_are_events() {
        check_events(
            "XREAD STREAMS k 0; XREAD STREAMS k $; XREAD COUNT 1 STREAMS k n 0 0; XREAD BLOCK 1 \
             STREAMS k 0; XADD k 1-1 f v; XREAD STREAMS k $; XREAD STREAMS k n $ $",
            "keymiss k, keymiss k; keymiss k, keymiss k; keymiss k, keymiss n, keymiss k, \
             keymiss n; keymiss k, keymiss k; new k, xadd k; ; keymiss n, keymiss n",
        );
        check_valkey_events(
            "@1 XREAD BLOCK 0 STREAMS a b $ $; XADD a 1-1 f v",
            "keymiss a, keymiss b, keymiss a, keymiss b; new a, xadd a, keymiss b, keymiss b",
        );
    }
}
