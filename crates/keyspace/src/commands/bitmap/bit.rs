//! Single bits: SETBIT, GETBIT.

use kvasir_resp::number::parse_integer;
use kvasir_structures::bits;

use crate::command::{Command, Cx, Run};
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::found::Found;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::text_value::{edit, find_or_create};
use crate::value::{Tag, Text};
use crate::view::Env;

pub static COMMANDS: &[&Command] = &[&SETBIT, &GETBIT];

static SETBIT: Command = Command {
    spec: Spec {
        name: "setbit",
        summary: "Sets a bit of a string, which grows as far as it takes, and returns the old bit.",
        since: "2.2.0",
        group: Group::Bitmap,
        complexity: "O(1)",
        arity: 4,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("offset"),
            Argument::integer("value"),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(setbit),
};

fn setbit(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let at = bit_offset(&cx.args[2], cx.view.env)?;
    let bit = match parse_integer(&cx.args[3]) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(Error::fixed("ERR bit is not an integer or out of range")),
    };
    let old_len = cx.view.peek_text(0)?.map(Text::len);
    let len = old_len.unwrap_or(0).max((at / 8) as usize + 1);
    let mut found = find_or_create(&mut cx.view, 0, old_len.is_some());
    let becomes_raw = will_become_raw(&found);
    let old = edit(&mut found, len, |bytes| {
        let old = bits::get(bytes, at);
        bits::set(bytes, at, bit);
        old
    });
    cx.reply.integer(i64::from(old));
    let changed = old != bit || old_len != Some(len);
    if changed {
        cx.view.changed(0, Class::STRING, "setbit");
    }
    Ok(Effect::given_if(changed || becomes_raw))
}

/// Whether changing a string in place changes what OBJECT ENCODING says of it, which the log has to
/// know even if the bytes stay the same.
pub fn will_become_raw(found: &Found<'_>) -> bool {
    Tag::of(found.record()) != Tag::RawText
}

static GETBIT: Command = Command {
    spec: Spec {
        name: "getbit",
        summary: "Returns a bit of a string; behind its end all are 0.",
        since: "2.2.0",
        group: Group::Bitmap,
        complexity: "O(1)",
        arity: 3,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0), Argument::integer("offset")],
        ..Spec::BLANK
    },
    run: Run::Keys(getbit),
};

fn getbit(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let at = bit_offset(&cx.args[2], cx.view.env)?;
    let bit = cx.view.text(0)?.is_some_and(|text| bits::get(&text.bytes(), at));
    cx.reply.integer(i64::from(bit));
    Ok(Effect::None)
}

/// The place of a bit in a string of any allowed length.
fn bit_offset(text: &[u8], env: &Env) -> Result<u64, Error> {
    check_offset(parse_integer(text), env)
}

/// Fails unless a string may be long enough to have this bit.
pub fn check_offset(at: Option<i64>, env: &Env) -> Result<u64, Error> {
    let at = at.and_then(|at| u64::try_from(at).ok());
    at.filter(|at| at / 8 < env.text_len_max as u64)
        .ok_or(Error::fixed("ERR bit offset is not an integer or out of range"))
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::Effect;
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, split};

    const OFFSET: &str = "-ERR bit offset is not an integer or out of range";
    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn setbit() {
        check(
            "SETBIT k 7 1; GET k; SETBIT k 7 1; SETBIT k 0 1; SETBIT k 7 0; GET k",
            ":0; $\\x01; :1; :0; :1; $\\x80",
        );
        check("SETBIT k 100 0; STRLEN k; OBJECT ENCODING k", ":0; :13; $raw");
        check(
            "SET k 1234 EX 100; SETBIT k 0 0; OBJECT ENCODING k; TTL k; GET k",
            "+OK; :0; $raw; :100; $1234",
        );
        check("SET k abc; SETBIT k 6 1; SETBIT k 30 1; GET k", "+OK; :0; :0; $cbc\\x02");
        check("SETBIT k 160000 1; STRLEN k; SETBIT k 160000 0; BITCOUNT k", ":0; :20001; :1; :0");
    }

    #[test]
    fn setbit_leaves_a_copy_alone() {
        let long = "x".repeat(20_000);
        check(
            &format!("SET k {long}; COPY k c; SETBIT k 0 1; GETBIT k 0; GETBIT c 0"),
            "+OK; :1; :0; :1; :0",
        );
    }

    #[test]
    fn setbit_refuses() {
        let bit = "-ERR bit is not an integer or out of range";
        check(
            "SETBIT k x 1; SETBIT k -1 1; SETBIT k 4294967296 1; SETBIT k 7 2; SETBIT k 7 x; \
             SETBIT k 01 1; SETBIT k -1 2; EXISTS k",
            &format!("{OFFSET}; {OFFSET}; {OFFSET}; {bit}; {bit}; {OFFSET}; {OFFSET}; :0"),
        );
        check(
            "HSET h f v; SETBIT h 1 1; SETBIT h 1 2; SETBIT h 1",
            &format!(
                ":1; {WRONG_TYPE}; {bit}; -ERR wrong number of arguments for 'setbit' command"
            ),
        );
    }

    #[test]
    fn getbit() {
        check(
            "SET k 1234; GETBIT k 3; GETBIT k 0; GETBIT k 31; GETBIT k 4294967295; GETBIT no 3; \
             OBJECT ENCODING k",
            "+OK; :1; :0; :0; :0; :0; $int",
        );
        check(
            "GETBIT k -1; GETBIT k x; GETBIT k 4294967296; HSET h f v; GETBIT h 0; GETBIT k",
            &format!(
                "{OFFSET}; {OFFSET}; {OFFSET}; :1; {WRONG_TYPE}; \
                 -ERR wrong number of arguments for 'getbit' command"
            ),
        );
    }

    #[test]
    fn the_log_gets_what_changed() {
        let mut bench = Bench::new(Protocol::Resp2);
        let steps = [
            ("SETBIT k 3 0", Effect::AsGiven),
            ("SETBIT k 3 0", Effect::None),
            ("SETBIT k 3 1", Effect::AsGiven),
            ("SET k 1", Effect::AsGiven),
            ("SETBIT k 0 0", Effect::AsGiven),
            ("SETBIT k 0 0", Effect::None),
        ];
        for (call, effect) in steps {
            assert_eq!(bench.call(split(call)[0].as_args()).1, effect, "{call}");
        }
    }

    #[test]
    fn events_of_bits() {
        check_events(
            "SETBIT k 7 1; SETBIT k 7 1; SETBIT k 7 0; SETBIT k 100 0; GETBIT k 1; GETBIT none \
             1; SET t 5; SETBIT t 0 0",
            "new k, setbit k; ; setbit k; setbit k; ; keymiss none; new t, set t; ",
        );
    }
}
