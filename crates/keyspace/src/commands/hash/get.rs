//! Reading fields: HGET, HMGET, HGETALL, HKEYS, HVALS, HLEN, HSTRLEN, HEXISTS.

use kvasir_resp::args::Args;

use crate::command::{Command, Cx, Run};
use crate::effect::Effect;
use crate::error::Error;
use crate::hash_value::{self, Item};
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::view::View;

pub static COMMANDS: &[&Command] =
    &[&HGET, &HMGET, &HGETALL, &HKEYS, &HVALS, &HLEN, &HSTRLEN, &HEXISTS];

const READS: &[KeySpec] = &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))];
/// For commands that tell no value.
const LOOKS: &[KeySpec] = &[KeySpec::first(KeyFlags::RO)];

/// The row of what reads one field.
const OF_FIELD: Spec = Spec {
    group: Group::Hash,
    arity: 3,
    flags: Flags::READONLY.union(Flags::FAST),
    keys: LOOKS,
    arguments: &[Argument::key("key", 0), Argument::string("field")],
    ..Spec::BLANK
};
/// The row of what reads all of them.
const OF_HASH: Spec = Spec {
    since: "2.0.0",
    group: Group::Hash,
    complexity: "O(N) where N is the number of fields of the hash.",
    arity: 2,
    flags: Flags::READONLY,
    keys: READS,
    tips: &["nondeterministic_output_order"],
    arguments: &[Argument::key("key", 0)],
    ..Spec::BLANK
};

static HGET: Command = Command {
    spec: Spec {
        name: "hget",
        summary: "Returns the value of a field.",
        since: "2.0.0",
        keys: READS,
        ..OF_FIELD
    },
    run: Run::Keys(hget),
};

fn hget(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    match value(&mut cx.view, cx.args)? {
        Some(value) => value.write_to(cx.reply),
        None => cx.reply.null(),
    }
    Ok(Effect::None)
}

static HMGET: Command = Command {
    spec: Spec {
        name: "hmget",
        summary: "Returns the values of the given fields.",
        since: "2.0.0",
        group: Group::Hash,
        complexity: "O(N) where N is the number of fields given.",
        arity: -3,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: READS,
        arguments: &[Argument::key("key", 0), Argument::string("field").multiple()],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| write_values(cx, cx.args.from(2))),
};

/// Replies with the values of these fields, null where there is none.
pub(super) fn write_values(cx: &mut Cx<'_, '_>, fields: Args<'_>) -> Result<Effect, Error> {
    let hash = hash_value::read(&mut cx.view, 0)?;
    cx.reply.array(fields.len());
    for field in fields {
        match hash.and_then(|hash| hash.get(field)) {
            Some(value) => value.write_to(cx.reply),
            None => cx.reply.null(),
        }
        if cx.reply.is_cut() {
            break;
        }
    }
    Ok(Effect::None)
}

static HGETALL: Command = Command {
    spec: Spec { name: "hgetall", summary: "Returns all fields and their values.", ..OF_HASH },
    run: Run::Keys(hgetall),
};

fn hgetall(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let hash = hash_value::read(&mut cx.view, 0)?;
    cx.reply.map(hash.map_or(0, |hash| hash.live_len()));
    if let Some(hash) = hash {
        hash.for_each(|field, value| {
            field.write_to(cx.reply);
            value.write_to(cx.reply);
        });
    }
    Ok(Effect::None)
}

static HKEYS: Command = Command {
    spec: Spec { name: "hkeys", summary: "Returns the names of all fields.", ..OF_HASH },
    run: Run::Keys(|cx| list(cx, |field, _| field)),
};

static HVALS: Command = Command {
    spec: Spec { name: "hvals", summary: "Returns the values of all fields.", ..OF_HASH },
    run: Run::Keys(|cx| list(cx, |_, value| value)),
};

fn list(
    cx: &mut Cx<'_, '_>,
    choose: for<'a> fn(Item<'a>, Item<'a>) -> Item<'a>,
) -> Result<Effect, Error> {
    let hash = hash_value::read(&mut cx.view, 0)?;
    cx.reply.array(hash.map_or(0, |hash| hash.live_len()));
    if let Some(hash) = hash {
        hash.for_each(|field, value| choose(field, value).write_to(cx.reply));
    }
    Ok(Effect::None)
}

static HLEN: Command = Command {
    spec: Spec {
        name: "hlen",
        summary: "Returns the number of fields.",
        complexity: "O(1)",
        flags: Flags::READONLY.union(Flags::FAST),
        keys: LOOKS,
        tips: &[],
        ..OF_HASH
    },
    run: Run::Keys(hlen),
};

fn hlen(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let len = hash_value::read(&mut cx.view, 0)?.map_or(0, |hash| hash.len());
    cx.reply.integer(len as i64);
    Ok(Effect::None)
}

static HSTRLEN: Command = Command {
    spec: Spec {
        name: "hstrlen",
        summary: "Returns the length of a field's value in bytes.",
        since: "3.2.0",
        ..OF_FIELD
    },
    run: Run::Keys(hstrlen),
};

fn hstrlen(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let len = value(&mut cx.view, cx.args)?.map_or(0, Item::text_len);
    cx.reply.integer(len as i64);
    Ok(Effect::None)
}

static HEXISTS: Command = Command {
    spec: Spec {
        name: "hexists",
        summary: "Says whether a hash has a field.",
        since: "2.0.0",
        ..OF_FIELD
    },
    run: Run::Keys(hexists),
};

fn hexists(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let exists = value(&mut cx.view, cx.args)?.is_some();
    cx.reply.integer(i64::from(exists));
    Ok(Effect::None)
}

/// The value of the field that the second argument names.
fn value<'v>(view: &'v mut View<'_, '_>, args: Args<'_>) -> Result<Option<Item<'v>>, Error> {
    Ok(hash_value::read(view, 0)?.and_then(|hash| hash.get(&args[2])))
}

#[cfg(test)]
mod tests {
    use crate::testing::events::check_events;
    use crate::testing::{check, check3};

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    const CALLS: [&str; 8] = [
        "HGET k f",
        "HMGET k f g",
        "HGETALL k",
        "HKEYS k",
        "HVALS k",
        "HLEN k",
        "HSTRLEN k f",
        "HEXISTS k f",
    ];

    #[test]
    fn a_small_hash() {
        let replies = ":2; $v; [$v $12]; [$f $v $g $12]; [$f $g]; [$v $12]; :2; :1; :1";
        check(&format!("HSET k f v g 12; {}", CALLS.join("; ")), replies);
        let replies = ":2; $v; [$v $12]; {$f $v $g $12}; [$f $g]; [$v $12]; :2; :1; :1";
        check3(&format!("HSET k f v g 12; {}", CALLS.join("; ")), replies);
        check(
            "HSET k f 12; HGET k g; HMGET k g f g; HSTRLEN k f; HEXISTS k g",
            ":1; _; [_ $12 _]; :2; :0",
        );
        check(
            "HSET k 12 -7; HGET k 12; HGET k 012; HSTRLEN k 12; HSTRLEN k x",
            ":1; $-7; _; :2; :0",
        );
    }

    #[test]
    fn a_large_hash() {
        let long = "v".repeat(65);
        let calls = CALLS.join("; ");
        let replies =
            format!(":1; ${long}; [${long} _]; [$f ${long}]; [$f]; [${long}]; :1; :65; :1");
        check(&format!("HSET k f {long}; {calls}"), &replies);
        let replies =
            format!(":1; ${long}; [${long} _]; {{$f ${long}}}; [$f]; [${long}]; :1; :65; :1");
        check3(&format!("HSET k f {long}; {calls}"), &replies);
    }

    #[test]
    fn no_hash() {
        check(&CALLS.join("; "), "_; [_ _]; []; []; []; :0; :0; :0");
        check3(&CALLS.join("; "), "_; [_ _]; {}; []; []; :0; :0; :0");
        for call in CALLS {
            check(&format!("SET k v; {call}"), &format!("+OK; {WRONG_TYPE}"));
            let name = call.split(' ').next().unwrap();
            let error = format!(
                "-ERR wrong number of arguments for '{}' command",
                name.to_ascii_lowercase()
            );
            check(name, &error);
            if !name.eq("HMGET") {
                check(&format!("{call} more"), &error);
            }
        }
    }

    #[test]
    fn misses_are_events() {
        check_events(
            "HGET k a; HMGET k a b; HGETALL k; HKEYS k; HVALS k; HLEN k; HEXISTS k a; HSTRLEN k \
             a; HSET k b 1; HGET k a",
            "keymiss k; keymiss k; keymiss k; keymiss k; keymiss k; keymiss k; keymiss k; \
             keymiss k; new k, hset k; ",
        );
    }
}
