//! Appending: XADD.

use kvasir_structures::stream::{NODE_BYTES_MAX, Stream, StreamId};
use smallvec::SmallVec;

use crate::command::{Command, Cx, Run};
use crate::commands::stream::id;
use crate::commands::stream::references::{REFERENCES, References, Trimmed, trim};
use crate::commands::stream::trim::{TRIM, TrimOptions};
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::stream_value;
use crate::value::Kind;

pub static COMMANDS: &[&Command] = &[&XADD];

static XADD: Command = Command {
    spec: Spec {
        name: "xadd",
        summary: "Appends an entry to a stream, which is created if the key is free.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(1), and O(N) for trimming where N is the number of entries that go.",
        arity: -5,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec {
            notes: Some("UPDATE, not INSERT: an entry may push others out."),
            ..KeySpec::first(KeyFlags::RW.union(KeyFlags::UPDATE))
        }],
        tips: &["nondeterministic_output"],
        history: &[
            ("6.2.0", "Knows `NOMKSTREAM`, `MINID` and `LIMIT`."),
            ("7.0.0", "Takes `<ms>-*` as an id."),
            ("8.2.0", "Knows `KEEPREF`, `DELREF` and `ACKED`."),
        ],
        arguments: &[
            Argument::key("key", 0),
            Argument::word("nomkstream", "NOMKSTREAM").since("6.2.0").optional(),
            REFERENCES,
            TRIM,
            Argument::one_of(
                "id_or_auto",
                &[Argument::word("auto_id", "*"), Argument::string("id")],
            ),
            Argument::block("field_value", &[Argument::string("field"), Argument::string("value")])
                .multiple(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(xadd),
};

/// The id that an entry is to have.
#[derive(Clone, Copy)]
enum NewId {
    /// `*`: now, or behind the last one.
    Auto,
    /// `ms-*`: the next number within this time.
    AutoSeq(u64),
    Exact(StreamId),
}

fn xadd(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let options = TrimOptions::parse(cx.args, true)?;
    let new_id = cx.args.get(options.end).map(new_id).transpose()?;
    let how = options.trim(cx.view.env)?;
    let references = options.references.unwrap_or(References::Keep);
    let pairs: SmallVec<[&[u8]; 16]> = cx.args.iter().skip(options.end + 1).collect();
    let new_id = new_id.filter(|_| !pairs.is_empty() && pairs.len().is_multiple_of(2));
    let new_id = new_id.ok_or_else(|| Error::wrong_arity("xadd"))?;
    if matches!(new_id, NewId::Exact(StreamId::MIN)) {
        return Err(Error::fixed("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let (now_ms, limits) = (cx.view.env.now_ms, stream_value::limits(cx.view.env));
    let append = |stream: &mut Stream| -> Result<Added, Error> {
        let id = next_id(stream.last_id(), new_id, now_ms)?;
        if pairs.iter().map(|part| part.len()).sum::<usize>() > NODE_BYTES_MAX {
            return Err(Error::fixed("ERR Elements are too large to be stored"));
        }
        stream.append(id, &pairs, limits);
        let trimmed = how.map(|how| trim(stream, how, references));
        Ok(Added { id, trimmed: trimmed.filter(|trimmed| trimmed.count > 0) })
    };
    let added = match stream_value::change(&mut cx.view, 0, append)? {
        Some(added) => {
            let added = added?;
            cx.view.note_ready(0, Kind::Stream);
            added
        }
        None if options.no_mkstream => {
            cx.reply.null();
            return Ok(Effect::None);
        }
        None => {
            let mut stream = Stream::new();
            let added = append(&mut stream)?;
            stream_value::create(&mut cx.view, 0, stream);
            added
        }
    };
    cx.view.changed(0, Class::STREAM, "xadd");
    if added.trimmed.is_some() {
        cx.view.changed(0, Class::STREAM, "xtrim");
    }
    id::write_id(cx.reply, added.id);
    // How many go with `~` depends on how entries lie in nodes.
    let is_exact = matches!(new_id, NewId::Exact(_)) && how.is_none_or(|how| !how.is_approximate);
    if is_exact && options.references.is_none() {
        return Ok(Effect::AsGiven);
    }
    Ok(effect(cx, &added, &pairs))
}

/// What became of an entry, and of others that it pushed out.
struct Added {
    id: StreamId,
    trimmed: Option<Trimmed>,
}

fn effect(cx: &Cx<'_, '_>, added: &Added, pairs: &[&[u8]]) -> Effect {
    if !cx.view.env.logs {
        return Effect::Rewritten(Vec::new());
    }
    let key = cx.view.key(0);
    let mut call = vec![b"XADD".to_vec(), key.to_vec()];
    call.extend(added.trimmed.iter().flat_map(Trimmed::words));
    call.push(id::text(added.id));
    call.extend(pairs.iter().map(|part| part.to_vec()));
    let mut calls = vec![call];
    calls.extend(added.trimmed.iter().flat_map(|trimmed| trimmed.acknowledgements(key)));
    Effect::Rewritten(calls)
}

fn new_id(text: &[u8]) -> Result<NewId, Error> {
    if text == b"*" {
        return Ok(NewId::Auto);
    }
    match text.strip_suffix(b"-*") {
        Some(ms) if !ms.contains(&b'-') => Ok(NewId::AutoSeq(id::id(ms, 0)?.ms)),
        _ => id::id(text, 0).map(NewId::Exact),
    }
}

fn next_id(last: StreamId, new_id: NewId, now_ms: u64) -> Result<StreamId, Error> {
    const TOO_SMALL: Error = Error::fixed(
        "ERR The ID specified in XADD is equal or smaller than the target stream top item",
    );
    let exhausted =
        Error::fixed("ERR The stream has exhausted the last possible ID, unable to add more items");
    let next = last.next().ok_or(exhausted)?;
    let id = match new_id {
        NewId::Auto => next.max(StreamId::new(now_ms, 0)),
        NewId::AutoSeq(ms) if ms == last.ms && next.ms != ms => return Err(TOO_SMALL),
        NewId::AutoSeq(ms) if ms == last.ms => next,
        NewId::AutoSeq(ms) => StreamId::new(ms, 0),
        NewId::Exact(id) => id,
    };
    if id > last { Ok(id) } else { Err(TOO_SMALL) }
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::{Effect, call};
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check_valkey, check3, split};

    const TOO_SMALL: &str =
        "-ERR The ID specified in XADD is equal or smaller than the target stream top item";
    const ARITY: &str = "-ERR wrong number of arguments for 'xadd' command";
    const INVALID: &str = "-ERR Invalid stream ID specified as stream command argument";

    #[test]
    fn entries_follow_one_another() {
        check(
            "XADD s 1-1 a 1; XADD s 1-1 b 2; XADD s 1 b 2; XADD s 2 b 2 c 3; XLEN s; XRANGE s - +; \
             TYPE s; OBJECT ENCODING s",
            &format!(
                "$1-1; {TOO_SMALL}; {TOO_SMALL}; $2-0; :2; [[$1-1 [$a $1]] [$2-0 [$b $2 $c $3]]]; \
                 +stream; $stream"
            ),
        );
        check3("XADD s 1-1 a '' a ''; XRANGE s - +", "$1-1; [[$1-1 [$a $ $a $]]]");
        check(
            "XADD s 1-1 12 -7 x y; XADD s 1-2 12 9223372036854775807 x 007; XRANGE s - +",
            "$1-1; $1-2; [[$1-1 [$12 $-7 $x $y]] [$1-2 [$12 $9223372036854775807 $x $007]]]",
        );
    }

    #[test]
    fn numbers_of_their_own() {
        check(
            "XADD s 5-* a 1; XADD s 5-* a 1; XADD s 4-* a 1; XADD s 0-* a 1; XADD t 0-* a 1",
            &format!("$5-0; $5-1; {TOO_SMALL}; {TOO_SMALL}; $0-1"),
        );
        check_valkey(
            "XADD s 5-18446744073709551615 a 1; XADD s 5-* a 1; XADD s 6-* a 1",
            &format!("$5-18446744073709551615; {TOO_SMALL}; $6-0"),
        );
        check(
            "XADD s x-* a 1; XADD s 1-1-* a 1; XADD s -* a 1; XADD s 1-** a 1",
            &format!("{INVALID}; {INVALID}; {INVALID}; {INVALID}"),
        );
    }

    #[test]
    fn the_last_id_ends_a_stream() {
        let last = "18446744073709551615-18446744073709551615";
        let exhausted =
            "-ERR The stream has exhausted the last possible ID, unable to add more items";
        check(
            &format!("XADD s {last} a 1; XADD s * a 1; XADD s 1-1 a 1; XLEN s"),
            &format!("${last}; {exhausted}; {exhausted}; :1"),
        );
        check(
            "XADD s 99999999999999-18446744073709551615 a 1; XADD s * a 1",
            "$99999999999999-18446744073709551615; $100000000000000-0",
        );
    }

    #[test]
    fn no_stream_is_made() {
        check(
            "XADD s NOMKSTREAM * a 1; EXISTS s; XADD s nomkstream 0-0 a 1; XADD s 0-0 a 1; \
             EXISTS s; XADD s 1 a 1; XADD s NOMKSTREAM 2 a 1",
            "_; :0; -ERR The ID specified in XADD must be greater than 0-0; \
             -ERR The ID specified in XADD must be greater than 0-0; :0; $1-0; $2-0",
        );
        check3("XADD s NOMKSTREAM * a 1", "_");
    }

    #[test]
    fn what_is_wrong() {
        check(
            "XADD s 1; XADD s 1 a 1 b; XADD s x a 1; XADD s - a 1; XADD s + a 1; XADD s $ a 1; \
             XADD s MAXLEN x 1 a b; XADD s MAXLEN -1 1 a b; XADD s MAXLEN 1 MINID 1 1 a b; \
             XADD s LIMIT 1 1 a b; XADD s MAXLEN 1 LIMIT 1 1 a b; XADD s MAXLEN 1 * a; \
             XADD s NOMKSTREAM NOMKSTREAM NOMKSTREAM; XADD s MAXLEN 1 MAXLEN 1 * a b",
            &format!(
                "{ARITY}; {ARITY}; {INVALID}; {INVALID}; {INVALID}; {INVALID}; \
                 -ERR value is not an integer or out of range; \
                 -ERR The MAXLEN argument must be >= 0.; \
                 -ERR syntax error, MAXLEN and MINID options at the same time are not compatible; \
                 -ERR syntax error, LIMIT cannot be used without specifying a trimming strategy; \
                 -ERR syntax error, LIMIT cannot be used without the special ~ option; {ARITY}; \
                 {ARITY}; \
                 -ERR syntax error, MAXLEN and MINID options at the same time are not compatible"
            ),
        );
        check(
            "SET s v; XADD s * a 1; XADD s NOMKSTREAM * a 1",
            "+OK; -WRONGTYPE Operation against a key holding the wrong kind of value; \
             -WRONGTYPE Operation against a key holding the wrong kind of value",
        );
    }

    #[test]
    fn entries_push_others_out() {
        check(
            "XADD s MAXLEN 2 1 a 1; XADD s MAXLEN = 2 2 a 1; XADD s MAXLEN 2 3 a 1; XLEN s; \
             XADD s MINID 4 4 a 1; XRANGE s - +; XADD s MAXLEN 0 5 a 1; XLEN s; EXISTS s; \
             XADD s MAXLEN ~ 0 6 a 1; XLEN s; XADD t MAXLEN 0 1 a 1; EXISTS t",
            "$1-0; $2-0; $3-0; :2; $4-0; [[$4-0 [$a $1]]]; $5-0; :0; :1; $6-0; :0; $1-0; :1",
        );
    }

    #[test]
    fn a_stream_outgrows_its_record() {
        let value = "x".repeat(100);
        let calls: Vec<String> = (1..=30).map(|id| format!("XADD s {id} a {value}")).collect();
        let replies: Vec<String> = (1..=30).map(|id| format!("${id}-0")).collect();
        check(
            &format!("{}; XLEN s; XRANGE s 29 29; PERSIST s", calls.join("; ")),
            &format!("{}; :30; [[$29-0 [$a ${value}]]]; :0", replies.join("; ")),
        );
        check(
            "XADD s 1 a 1; PEXPIREAT s 33177117420000; XADD s 2 a 1; PEXPIRETIME s",
            "$1-0; :1; $2-0; :33177117420000",
        );
    }

    #[test]
    fn the_log_has_the_id_and_the_length() {
        let mut bench = Bench::new(Protocol::Resp2);
        (bench.env.now_ms, bench.env.stream_node_entries_max) = (77, 1);
        let mut effect = |call: &str| bench.call(split(call)[0].as_args()).1;
        let added = |parts: &[&[u8]]| Effect::Rewritten(vec![call(parts)]);
        assert_eq!(effect("XADD s * a 1"), added(&[b"XADD", b"s", b"77-0", b"a", b"1"]));
        assert_eq!(effect("XADD s 77-* a 1"), added(&[b"XADD", b"s", b"77-1", b"a", b"1"]));
        assert_eq!(effect("XADD s MAXLEN 2 78 a 1"), Effect::AsGiven);
        let trimmed: &[&[u8]] = &[b"XADD", b"s", b"MAXLEN", b"=", b"1", b"79-0", b"a", b"1"];
        assert_eq!(effect("XADD s MINID ~ 79 79 a 1"), added(trimmed));
        bench.env.logs = false;
        let (_, effect) = bench.call(split("XADD s * a 1")[0].as_args());
        assert_eq!(effect, Effect::Rewritten(Vec::new()));
    }

    #[test]
    fn events_of_adding() {
        check_events(
            "XADD s 1-1 f v; XADD s NOMKSTREAM 3-1 f v; XADD none NOMKSTREAM 1-1 f v; XADD s \
             MAXLEN 2 4-1 f v; XADD s MAXLEN 2 5-1 f v; XADD s MAXLEN ~ 1 6-1 f v; XADD n MAXLEN \
             0 1-1 f v; XADD s 1-1 f v; XADD s MINID 5 7-1 f v; XADD s MINID 1 8-1 f v",
            "new s, xadd s; xadd s; ; xadd s, xtrim s; xadd s, xtrim s; xadd s; new n, xadd n, \
             xtrim n; ; xadd s, xtrim s; xadd s",
        );
    }
}
