//! Reading a set: SISMEMBER, SMISMEMBER, SMEMBERS, SCARD.

use crate::command::{Command, Cx, Run};
use crate::effect::Effect;
use crate::error::Error;
use crate::set_value::{self, Member};
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&SISMEMBER, &SMISMEMBER, &SMEMBERS, &SCARD];

const READS: &[KeySpec] = &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))];
/// For commands that tell no member.
const LOOKS: &[KeySpec] = &[KeySpec::first(KeyFlags::RO)];

static SISMEMBER: Command = Command {
    spec: Spec {
        name: "sismember",
        summary: "Says whether a set has a member.",
        since: "1.0.0",
        group: Group::Set,
        complexity: "O(1)",
        arity: 3,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: LOOKS,
        arguments: &[Argument::key("key", 0), Argument::string("member")],
        ..Spec::BLANK
    },
    run: Run::Keys(sismember),
};

fn sismember(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let set = set_value::read(&mut cx.view, 0)?;
    let is_there = set.is_some_and(|set| set.contains(Member::Bytes(&cx.args[2])));
    cx.reply.integer(i64::from(is_there));
    Ok(Effect::None)
}

static SMISMEMBER: Command = Command {
    spec: Spec {
        name: "smismember",
        summary: "Says of each of several members whether a set has it.",
        since: "6.2.0",
        group: Group::Set,
        complexity: "O(N) where N is the number of members given.",
        arity: -3,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: READS,
        arguments: &[Argument::key("key", 0), Argument::string("member").multiple()],
        ..Spec::BLANK
    },
    run: Run::Keys(smismember),
};

fn smismember(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let members = cx.args.from(2);
    let set = set_value::read(&mut cx.view, 0)?;
    cx.reply.array(members.len());
    for member in members {
        let is_there = set.is_some_and(|set| set.contains(Member::Bytes(member)));
        cx.reply.integer(i64::from(is_there));
    }
    Ok(Effect::None)
}

static SMEMBERS: Command = Command {
    spec: Spec {
        name: "smembers",
        summary: "Returns all members of a set.",
        since: "1.0.0",
        group: Group::Set,
        complexity: "O(N) where N is the number of members.",
        arity: 2,
        flags: Flags::READONLY,
        keys: READS,
        tips: &["nondeterministic_output_order"],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BLANK
    },
    run: Run::Keys(smembers),
};

fn smembers(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let set = set_value::read(&mut cx.view, 0)?;
    cx.reply.set(set.map_or(0, |set| set.len()));
    if let Some(set) = set {
        let _ = set.try_for_each(|member| {
            set_value::write(cx.reply, member);
            cx.reply.flow()
        });
    }
    Ok(Effect::None)
}

static SCARD: Command = Command {
    spec: Spec {
        name: "scard",
        summary: "Returns the number of members.",
        since: "1.0.0",
        group: Group::Set,
        complexity: "O(1)",
        arity: 2,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: LOOKS,
        arguments: &[Argument::key("key", 0)],
        ..Spec::BLANK
    },
    run: Run::Keys(scard),
};

fn scard(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let len = set_value::read(&mut cx.view, 0)?.map_or(0, |set| set.len());
    cx.reply.integer(len as i64);
    Ok(Effect::None)
}

#[cfg(test)]
mod tests {
    use crate::testing::events::check_events;
    use crate::testing::{check, check_valkey, check3};

    const CALLS: [&str; 4] = ["SISMEMBER k a", "SMISMEMBER k a 1 a", "SMEMBERS k", "SCARD k"];

    #[test]
    fn each_encoding() {
        let calls = CALLS.join("; ");
        check(&format!("SADD k 3 1; {calls}"), ":2; :0; [:0 :1 :0]; [$1 $3]; :2");
        check3(&format!("SADD k 3 1; {calls}"), ":2; :0; [:0 :1 :0]; ~[$1 $3]; :2");
        check_valkey(&format!("SADD k b 1 a; {calls}"), ":3; :1; [:1 :1 :1]; [$b $1 $a]; :3");
        let long = "m".repeat(65);
        check(&format!("SADD k {long}; {calls}"), &format!(":1; :0; [:0 :0 :0]; [${long}]; :1"));
        check3(&format!("SADD k {long}; {calls}"), &format!(":1; :0; [:0 :0 :0]; ~[${long}]; :1"));
    }

    /// A member is its text: 01 is not 1.
    #[test]
    fn integers_are_texts() {
        for others in ["", " a"] {
            let count = 1 + others.len() / 2;
            check(
                &format!("SADD k 1{others}; SMISMEMBER k 1 01 +1 1.0 ' 1' ''"),
                &format!(":{count}; [:1 :0 :0 :0 :0 :0]"),
            );
        }
    }

    #[test]
    fn no_set() {
        check(&CALLS.join("; "), ":0; [:0 :0 :0]; []; :0");
        check3(&CALLS.join("; "), ":0; [:0 :0 :0]; ~[]; :0");
        for call in CALLS {
            let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
            check(&format!("SET k v; {call}"), &format!("+OK; {wrong_type}"));
            let name = call.split(' ').next().unwrap();
            let error =
                format!("-ERR wrong number of arguments for '{}' command", name.to_lowercase());
            check(name, &error);
            if name != "SMISMEMBER" {
                check(&format!("{call} more"), &error);
            }
        }
    }

    #[test]
    fn misses_are_events() {
        check_events(
            "SCARD k; SMEMBERS k; SISMEMBER k a; SMISMEMBER k a",
            "keymiss k; keymiss k; keymiss k; keymiss k",
        );
    }
}
