//! Whether keys are there and what they are, and taking them away: DEL, UNLINK, EXISTS, TOUCH,
//! TYPE.

use crate::command::{Command, Cx, Run};
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::spec::{Argument, Categories, Flags, KeyFlags, KeySpec, Spec};
use crate::value::Tag;

pub static COMMANDS: &[&Command] = &[&DEL, &UNLINK, &EXISTS, &TOUCH, &TYPE];

static DEL: Command = Command {
    spec: Spec {
        name: "del",
        summary: "Deletes keys.",
        since: "1.0.0",
        complexity: "O(N) where N is the number of keys; large values are freed in the background.",
        arity: -2,
        flags: Flags::WRITE,
        categories: Categories::KEYSPACE,
        keys: &[KeySpec::range(KeyFlags::RM.union(KeyFlags::DELETE), 1, -1, 1)],
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        arguments: &[Argument::key("key", 0).multiple()],
        ..Spec::BLANK
    },
    run: Run::Keys(delete),
};

static UNLINK: Command = Command {
    spec: Spec {
        name: "unlink",
        summary: "Deletes keys; their memory is freed in the background.",
        since: "4.0.0",
        complexity: "O(1) for each key, then O(N) in the background, N allocations.",
        arity: -2,
        flags: Flags::WRITE.union(Flags::FAST),
        categories: Categories::KEYSPACE,
        keys: &[KeySpec::range(KeyFlags::RM.union(KeyFlags::DELETE), 1, -1, 1)],
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        arguments: &[Argument::key("key", 0).multiple()],
        ..Spec::BLANK
    },
    run: Run::Keys(delete),
};

/// DEL and UNLINK: what takes long to free is freed elsewhere in any case.
fn delete(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let deleted = count(cx, |cx, key| {
        let was_there = cx.view.delete(key);
        if was_there {
            cx.view.changed(key, Class::GENERIC, "del");
        }
        was_there
    });
    cx.reply.integer(deleted as i64);
    Ok(Effect::given_if(deleted > 0))
}

static EXISTS: Command = Command {
    spec: Spec {
        name: "exists",
        summary: "Counts how many of the named keys are there.",
        since: "1.0.0",
        complexity: "O(N) where N is the number of keys.",
        arity: -2,
        flags: Flags::READONLY.union(Flags::FAST),
        categories: Categories::KEYSPACE,
        keys: &[KeySpec::range(KeyFlags::RO, 1, -1, 1)],
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        history: &[("3.0.3", "Takes several keys.")],
        arguments: &[Argument::key("key", 0).multiple()],
        ..Spec::BLANK
    },
    run: Run::Keys(exists),
};

fn exists(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let found = count(cx, |cx, key| cx.view.look(key).is_some());
    cx.reply.integer(found as i64);
    Ok(Effect::None)
}

static TOUCH: Command = Command {
    spec: Spec {
        name: "touch",
        summary: "Notes an access to keys, and counts those that are there.",
        since: "3.2.1",
        complexity: "O(N) where N is the number of keys.",
        arity: -2,
        flags: Flags::READONLY.union(Flags::FAST),
        categories: Categories::KEYSPACE,
        keys: &[KeySpec::range(KeyFlags::RO, 1, -1, 1)],
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        arguments: &[Argument::key("key", 0).multiple()],
        ..Spec::BLANK
    },
    run: Run::Keys(touch),
};

fn touch(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    // To touch is what is asked for, also of a client that otherwise does not.
    let found = count(cx, |cx, key| cx.view.read(key).is_some() && cx.view.find(key).is_some());
    cx.reply.integer(found as i64);
    Ok(Effect::None)
}

/// For how many of the call's keys `f` is true.
fn count(cx: &mut Cx<'_, '_>, mut f: impl FnMut(&mut Cx<'_, '_>, usize) -> bool) -> usize {
    (0..cx.view.key_count()).filter(|key| f(cx, *key)).count()
}

static TYPE: Command = Command {
    spec: Spec {
        name: "type",
        summary: "Returns the type of a key's value.",
        since: "1.0.0",
        arity: 2,
        flags: Flags::READONLY.union(Flags::FAST),
        categories: Categories::KEYSPACE,
        keys: &[KeySpec::first(KeyFlags::RO)],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BLANK
    },
    run: Run::Keys(type_of),
};

fn type_of(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let kind = cx.view.look(0).map(|record| Tag::of(record).kind());
    cx.reply.simple(kind.map_or("none", |kind| kind.name()));
    Ok(Effect::None)
}

#[cfg(test)]
mod tests {
    use crate::testing::events::check_events;
    use crate::testing::{check, check3};

    #[test]
    fn deleting() {
        check("MSET a 1 b 2 c 3; DEL a b none; UNLINK c c; DEL a; DBSIZE", "+OK; :2; :1; :0; :0");
        check("HSET h f v; UNLINK h; EXISTS h", ":1; :1; :0");
        check("SET k v PXAT 1; DEL k", "+OK; :0");
        check(
            "DEL; UNLINK",
            "-ERR wrong number of arguments for 'del' command; \
             -ERR wrong number of arguments for 'unlink' command",
        );
    }

    #[test]
    fn a_long_string_is_deleted_too() {
        check("SETRANGE k 2000000 x; DEL k; GET k", ":2000001; :1; _");
    }

    #[test]
    fn asking() {
        check("MSET a 1 b 2; EXISTS a a b none; TOUCH a none a; TOUCH none", "+OK; :3; :2; :0");
        check("SET k v; TYPE k; HSET h f v; TYPE h; TYPE none", "+OK; +string; :1; +hash; +none");
        check3("SET k v; TYPE k; EXISTS k", "+OK; +string; :1");
        check("SET k v PXAT 1; EXISTS k; TYPE k", "+OK; :0; +none");
    }

    #[test]
    fn events_of_deleting() {
        check_events(
            "SET a 1; DEL a b; DEL a; UNLINK a; MSET a 1 c 1; UNLINK a a c",
            "new a, set a; del a; ; ; new a, set a, new c, set c; del a, del c",
        );
        check_events(
            "EXISTS a; TOUCH a; TYPE a; SET a 1; EXISTS a b a; TOUCH a b; TYPE a",
            "keymiss a; keymiss a; keymiss a; new a, set a; keymiss b; keymiss b; ",
        );
    }
}
