//! Reading strings: GET, GETDEL, GETEX, GETRANGE, MGET, STRLEN, SUBSTR.

use kvasir_resp::args::Args;

use crate::command::{Command, Cx, Run};
use crate::commands::expiration::{Expiration, TIME_OR_PERSIST};
use crate::commands::options::integer;
use crate::effect::{Effect, call};
use crate::error::Error;
use crate::event::Class;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::value::Text;

pub static COMMANDS: &[&Command] = &[&GET, &GETDEL, &GETEX, &GETRANGE, &MGET, &STRLEN, &SUBSTR];

static GET: Command = Command {
    spec: Spec {
        name: "get",
        summary: "Returns a string.",
        since: "1.0.0",
        group: Group::String,
        arity: 2,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BLANK
    },
    run: Run::Keys(get),
};

fn get(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    match cx.view.text(0)? {
        Some(text) => text.write_to(cx.reply),
        None => cx.reply.null(),
    }
    Ok(Effect::None)
}

static GETDEL: Command = Command {
    spec: Spec {
        name: "getdel",
        summary: "Returns a string and deletes its key.",
        since: "6.2.0",
        group: Group::String,
        arity: 2,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE))],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BLANK
    },
    run: Run::Keys(getdel),
};

fn getdel(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let found = cx.view.text(0)?.map(|text| text.write_to(cx.reply)).is_some();
    if !found {
        cx.reply.null();
        return Ok(Effect::None);
    }
    cx.view.delete(0);
    cx.view.changed(0, Class::GENERIC, "del");
    Ok(Effect::Rewritten(vec![call(&[b"DEL", cx.view.key(0)])]))
}

static GETEX: Command = Command {
    spec: Spec {
        name: "getex",
        summary: "Returns a string and sets or takes away its expiry.",
        since: "6.2.0",
        group: Group::String,
        arity: -2,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec {
            notes: Some("An update since it changes the expiry."),
            ..KeySpec::first(KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))
        }],
        arguments: &[Argument::key("key", 0), TIME_OR_PERSIST],
        ..Spec::BLANK
    },
    run: Run::Keys(getex),
};

fn getex(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let expiration = getex_expiration(cx.args)?;
    let expiry = expiration.expiry_ms(cx.view.env, "getex")?;
    let Some(text) = cx.view.text(0)? else {
        cx.reply.null();
        return Ok(Effect::None);
    };
    text.write_to(cx.reply);
    let key = cx.view.key(0);
    match expiration {
        Expiration::Unsaid => Ok(Effect::None),
        Expiration::Word => {
            if cx.view.peek(0).is_none_or(|record| record.expiry_ms().is_none()) {
                return Ok(Effect::None);
            }
            cx.view.set_expiry(0, None);
            cx.view.changed(0, Class::GENERIC, "persist");
            Ok(Effect::Rewritten(vec![call(&[b"PERSIST", key])]))
        }
        Expiration::At(..) if expiry.is_some_and(|ms| ms <= cx.view.env.now_ms) => {
            cx.view.expire(0);
            Ok(Effect::Rewritten(vec![call(&[b"DEL", key])]))
        }
        Expiration::At(..) => {
            cx.view.set_expiry(0, expiry);
            cx.view.changed(0, Class::GENERIC, "expire");
            let ms = expiry.unwrap_or_default().to_string();
            Ok(Effect::Rewritten(vec![call(&[b"PEXPIREAT", key, ms.as_bytes()])]))
        }
    }
}

fn getex_expiration<'a>(args: Args<'a>) -> Result<Expiration<'a>, Error> {
    let mut expiration = Expiration::Unsaid;
    let mut words = args.from(2).iter();
    while let Some(word) = words.next() {
        if !expiration.take(word, &mut words, "PERSIST")? {
            return Err(Error::SYNTAX);
        }
    }
    Ok(expiration)
}

static GETRANGE: Command = Command {
    spec: Spec {
        name: "getrange",
        summary: "Returns a part of a string.",
        since: "2.4.0",
        group: Group::String,
        complexity: "O(N) where N is the length of that part.",
        arity: 4,
        flags: Flags::READONLY,
        keys: &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0), Argument::integer("start"), Argument::integer("end")],
        ..Spec::BLANK
    },
    run: Run::Keys(getrange),
};

static SUBSTR: Command = Command {
    spec: Spec {
        name: "substr",
        summary: "Returns a part of a string, as GETRANGE does.",
        since: "1.0.0",
        group: Group::String,
        complexity: "O(N) where N is the length of that part.",
        arity: 4,
        flags: Flags::READONLY,
        keys: &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))],
        deprecated: Some(("2.0.0", "`GETRANGE`")),
        arguments: &[Argument::key("key", 0), Argument::integer("start"), Argument::integer("end")],
        ..Spec::BLANK
    },
    run: Run::Keys(getrange),
};

fn getrange(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let (start, end) = (integer(&cx.args[2])?, integer(&cx.args[3])?);
    match cx.view.text(0)? {
        None => cx.reply.bulk(b""),
        Some(text) => cx.reply.bulk(range(&text.bytes(), start, end)),
    }
    Ok(Effect::None)
}

/// Both ends count, negative ones from the end.
fn range(bytes: &[u8], start: i64, end: i64) -> &[u8] {
    let len = bytes.len() as i64;
    if start < 0 && end < 0 && start > end {
        return b"";
    }
    let from_start = |index: i64| if index < 0 { (len + index).max(0) } else { index };
    let (start, end) = (from_start(start), from_start(end).min(len - 1));
    if start > end { b"" } else { &bytes[start as usize..=end as usize] }
}

static MGET: Command = Command {
    spec: Spec {
        name: "mget",
        summary: "Returns the strings of several keys in one moment.",
        since: "1.0.0",
        group: Group::String,
        complexity: "O(N) where N is the number of keys.",
        arity: -2,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::range(KeyFlags::RO.union(KeyFlags::ACCESS), 1, -1, 1)],
        tips: &["request_policy:multi_shard"],
        arguments: &[Argument::key("key", 0).multiple()],
        ..Spec::BLANK
    },
    run: Run::Keys(mget),
};

fn mget(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let keys = cx.view.key_count();
    cx.reply.array(keys);
    for key in 0..keys {
        match cx.view.read(key).map(Text::of) {
            Some(Ok(text)) => text.write_to(cx.reply),
            Some(Err(_)) | None => cx.reply.null(),
        }
        if cx.reply.is_cut() {
            break;
        }
    }
    Ok(Effect::None)
}

static STRLEN: Command = Command {
    spec: Spec {
        name: "strlen",
        summary: "Returns the length of a string.",
        since: "2.2.0",
        group: Group::String,
        arity: 2,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RO)],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BLANK
    },
    run: Run::Keys(strlen),
};

fn strlen(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let len = cx.view.text(0)?.map_or(0, Text::len);
    cx.reply.integer(len as i64);
    Ok(Effect::None)
}

#[cfg(test)]
mod tests {
    use crate::testing::events::{check_events, check_valkey_events};
    use crate::testing::{check, check_valkey};

    #[test]
    fn get_and_its_errors() {
        check("SET k v; GET k; GET none; STRLEN k; STRLEN none", "+OK; $v; _; :1; :0");
        check(
            "HSET h f v; GET h",
            ":1; -WRONGTYPE Operation against a key holding the wrong kind of value",
        );
        check("SET k v; GETDEL k; GETDEL k", "+OK; $v; _");
        check("SET a 1; HSET h f v; MGET a h none a", "+OK; :1; [$1 _ _ $1]");
    }

    #[test]
    fn ranges() {
        check(
            "SET k hello; GETRANGE k 1 3; GETRANGE k -3 -1; GETRANGE k 3 1; GETRANGE k 0 99",
            "+OK; $ell; $llo; $; $hello",
        );
        check(
            "GETRANGE none 0 1; GETRANGE none x 1",
            "$; -ERR value is not an integer or out of range",
        );
        check("SET k hello; GETRANGE k -1 -5; GETRANGE k -99 -98; SUBSTR k 0 0", "+OK; $; $h; $h");
    }

    #[test]
    fn getex_changes_the_expiry() {
        check("SET k v; GETEX k EX 100; TTL k; GETEX k PERSIST; TTL k", "+OK; $v; :100; $v; :-1");
        check("SET k v; GETEX k PXAT 1; EXISTS k", "+OK; $v; :0");
        check("GETEX none; GETEX none EX 1; GETEX none FOO", "_; _; -ERR syntax error");
        // Redis 7.0 looks at the time only of a string that is there.
        check_valkey(
            "GETEX none EX -1; GETEX none PX x; HSET h f v; GETEX h EX 0; GETEX h EX 1",
            "-ERR invalid expire time in 'getex' command; \
             -ERR value is not an integer or out of range; :1; \
             -ERR invalid expire time in 'getex' command; \
             -WRONGTYPE Operation against a key holding the wrong kind of value",
        );
        check("SET k v; GETEX k PERSIST PERSIST; GETEX k EX 1 EX 100; TTL k", "+OK; $v; $v; :100");
        check(
            "SET k v; GETEX k EX 0; GETEX k EX x; GETEX k EX 1 PERSIST; GETEX k EX 9223372036854775807",
            "+OK; -ERR invalid expire time in 'getex' command; \
             -ERR value is not an integer or out of range; -ERR syntax error; \
             -ERR invalid expire time in 'getex' command",
        );
    }

    #[test]
    fn events_of_reading() {
        check_events(
            "GET k; STRLEN k; GETRANGE k 0 1; SUBSTR k 0 1; MGET k k n; SET k v; GET k; MGET n k",
            "keymiss k; keymiss k; keymiss k; keymiss k; keymiss k, keymiss k, keymiss n; new k, \
             set k; ; keymiss n",
        );
        check_events(
            "GETDEL k; SET k v; GETDEL k; GETDEL k; GETEX k; SET k v; GETEX k; GETEX k EX 10; \
             GETEX k PERSIST; GETEX k PERSIST; HSET h f v; GETEX h EX 10; GETDEL h; GETEX none \
             EX 10",
            "keymiss k; new k, set k; del k; keymiss k; keymiss k; new k, set k; ; expire k; \
             persist k; ; new h, hset h; ; ; keymiss none",
        );
        check_valkey_events(
            "SET k v; GETEX k EXAT 1; GETEX k EXAT 1",
            "new k, set k; expired k; keymiss k",
        );
    }
}
