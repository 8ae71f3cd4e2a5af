//! Commands on keys that belong to the server's containers: MEMORY USAGE, DEBUG OBJECT and the
//! other words of DEBUG that look at a key.
//!
//! The server's rows describe them to clients; it calls these with the container's name in
//! argument 0, their own in 1 and the key in 2. They are not in the command table themselves.

use kvasir_structures::listpack::ListpackRef;
use kvasir_structures::record::Body;

use crate::command::{Command, Cx, Run};
use crate::commands::options::integer;
use crate::digest;
use crate::effect::Effect;
use crate::error::Error;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::usage;
use crate::value::{self, Object, Record, Text};

pub static MEMORY_USAGE: Command = Command {
    spec: Spec {
        name: "usage",
        summary: "Returns how many bytes a key and its value take.",
        since: "4.0.0",
        group: Group::Server,
        complexity: "O(N) where N is the number of parts of the value.",
        arity: -3,
        flags: Flags::READONLY,
        keys: &[KeySpec::range(KeyFlags::RO, 2, 0, 1)],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("count").token("SAMPLES").optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(memory_usage),
};

fn memory_usage(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    check_samples(cx)?;
    match cx.view.peek(0) {
        None => cx.reply.null(),
        Some(record) => cx.reply.integer(usage::bytes(record) as i64),
    }
    Ok(Effect::None)
}

/// SAMPLES is accepted and not needed: all parts of a value are counted.
fn check_samples(cx: &Cx<'_, '_>) -> Result<(), Error> {
    let mut words = cx.args.from(3).iter();
    while let Some(word) = words.next() {
        match words.next() {
            Some(samples) if word.eq_ignore_ascii_case(b"samples") => {
                if integer(samples)? < 0 {
                    return Err(Error::SYNTAX);
                }
            }
            _ => return Err(Error::SYNTAX),
        }
    }
    Ok(())
}

pub static DEBUG_OBJECT: Command = Command {
    spec: Spec {
        name: "object",
        group: Group::Server,
        arity: 3,
        flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
        keys: &[KeySpec::range(KeyFlags::RO, 2, 0, 1)],
        ..Spec::BLANK
    },
    run: Run::Keys(debug_object),
};

/// The address is always 0: where a value lies is nobody's business.
fn debug_object(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let record = cx.view.present(0).ok_or(Error::NO_KEY)?;
    let clock = record.clock();
    let (encoding, length) = (value::encoding(record), payload_len(record));
    let idle = cx.view.env.idle_s(clock);
    cx.reply.simple(&format!(
        "Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{length} lru:{clock} \
         lru_seconds_idle:{idle}"
    ));
    Ok(Effect::None)
}

pub static DEBUG_DIGEST_VALUE: Command = Command {
    spec: Spec {
        name: "digest-value",
        group: Group::Server,
        arity: -2,
        keys: &[KeySpec::range(KeyFlags::RO, 2, -1, 1)],
        ..Spec::BLANK
    },
    run: Run::Keys(debug_digest_value),
};

fn debug_digest_value(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let count = cx.view.key_count();
    cx.reply.array(count);
    for key in 0..count {
        let env = cx.view.env;
        let digest = cx.view.peek(key).map(|record| digest::of_value(record, env));
        cx.reply.simple(&digest.unwrap_or_default().to_string());
    }
    Ok(Effect::None)
}

const ONE_KEY: &[KeySpec] = &[KeySpec::range(KeyFlags::RO, 2, 0, 1)];

/// A word of DEBUG that says how a value of one encoding is kept.
const fn inside(name: &'static str, run: fn(&mut Cx<'_, '_>) -> Result<Effect, Error>) -> Command {
    let spec = Spec { name, group: Group::Server, arity: -3, keys: ONE_KEY, ..Spec::BLANK };
    Command { spec, run: Run::Keys(run) }
}

pub static DEBUG_LISTPACK: Command = inside("listpack", |cx| {
    let record = cx.view.peek(0).ok_or(Error::NO_KEY)?;
    match (value::encoding(record), record.body()) {
        ("listpack", Body::Bytes(bytes)) => {
            let text = format!("{:?}", ListpackRef::new(bytes));
            cx.reply.verbatim(b"txt", text.as_bytes());
            Ok(Effect::None)
        }
        _ => Err(Error::fixed("ERR Not a listpack encoded object.")),
    }
});

pub static DEBUG_QUICKLIST: Command = inside("quicklist", |cx| {
    let record = cx.view.peek(0).ok_or(Error::NO_KEY)?;
    match record.body() {
        Body::Object(Object::List(list)) => {
            let (elements, bytes) = (list.len(), list.allocated_bytes());
            let text = format!("elements:{elements} allocated_bytes:{bytes}\n");
            cx.reply.verbatim(b"txt", text.as_bytes());
            Ok(Effect::None)
        }
        _ => Err(Error::fixed("ERR Not a quicklist encoded object.")),
    }
});

/// A text has no room to spare but within its size class, which is nobody's to use.
pub static DEBUG_SDSLEN: Command = inside("sdslen", |cx| {
    let (key_len, record) = (cx.view.key(0).len(), cx.view.peek(0).ok_or(Error::NO_KEY)?);
    match Text::of(record) {
        Ok(text) if value::encoding(record) != "int" => {
            let (text_len, bytes) = (text.len(), record.allocated_bytes());
            cx.reply.simple(&format!(
                "key_sds_len:{key_len}, key_sds_avail:0, key_zmalloc: {key_len}, \
                 val_sds_len:{text_len}, val_sds_avail:0, val_zmalloc: {bytes}"
            ));
            Ok(Effect::None)
        }
        _ => Err(Error::fixed("ERR Not an sds encoded string.")),
    }
});

/// Large sets, hashes and sorted sets are tables; what is told of them is their size.
pub static DEBUG_HTSTATS_KEY: Command = inside("htstats-key", |cx| {
    let record = cx.view.peek(0).ok_or(Error::NO_KEY)?;
    let elements = match record.body() {
        Body::Object(Object::Set(table) | Object::Hash(table)) => table.len(),
        Body::Object(Object::SortedSet(set)) => set.len(),
        _ => {
            return Err(Error::fixed(
                "ERR The value stored at the specified key is not represented using an hash table",
            ));
        }
    };
    let bytes = value::allocated_bytes(record);
    let text = format!("number of elements: {elements}\n allocated bytes: {bytes}\n");
    cx.reply.verbatim(b"txt", text.as_bytes());
    Ok(Effect::None)
});

/// Bytes of the value itself, near to what DUMP would make of it.
fn payload_len(record: Record<'_>) -> usize {
    match record.body() {
        Body::Bytes(bytes) => bytes.len() + 1,
        Body::Object(_) => value::allocated_bytes(record) - record.allocated_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{check, check_ours};

    #[test]
    fn memory_usage_refuses_what_redis_refuses() {
        check(
            "SET k v; MEMORY USAGE none; MEMORY USAGE none foo; MEMORY USAGE k SAMPLES; \
             MEMORY USAGE k SAMPLES -1; MEMORY USAGE k SAMPLES x",
            "+OK; _; -ERR syntax error; -ERR syntax error; -ERR syntax error; \
             -ERR value is not an integer or out of range",
        );
    }

    #[test]
    fn memory_usage_is_the_record_and_its_place() {
        check_ours("SET k v; MEMORY USAGE k; MEMORY USAGE k SAMPLES 5", "+OK; :26; :26");
    }

    #[test]
    fn debug_object_describes_a_value() {
        check("DEBUG OBJECT none", "-ERR no such key");
        let mut bench = crate::testing::Bench::new(kvasir_resp::reply::Protocol::Resp2);
        bench.env.now_ms = 7_000;
        bench.call(crate::testing::split("SET k v")[0].as_args());
        bench.env.now_ms = 9_000;
        let (reply, _) = bench.call(crate::testing::split("DEBUG OBJECT k")[0].as_args());
        let text = "+Value at:0x0 refcount:1 encoding:embstr serializedlength:2 lru:7 \
                    lru_seconds_idle:2\r\n";
        assert_eq!(String::from_utf8_lossy(&reply), text);
    }
}
