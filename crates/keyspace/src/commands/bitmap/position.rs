//! Searching for a bit: BITPOS.

use kvasir_structures::bits;

use super::range::Part;
use crate::command::{Command, Cx, Run};
use crate::commands::options::integer;
use crate::effect::Effect;
use crate::error::Error;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&BITPOS];

static BITPOS: Command = Command {
    spec: Spec {
        name: "bitpos",
        summary: "Finds the first 1 or the first 0 in a string or in a part of it.",
        since: "2.8.7",
        group: Group::Bitmap,
        complexity: "O(N) where N is the length of that part.",
        arity: -3,
        flags: Flags::READONLY,
        keys: &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))],
        history: &[("7.0.0", "Takes `BYTE` or `BIT`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("bit"),
            Argument::block(
                "index",
                &[
                    Argument::integer("start"),
                    Argument::block(
                        "end_index",
                        &[
                            Argument::integer("end"),
                            Argument::one_of(
                                "index_unit",
                                &[Argument::word("byte", "BYTE"), Argument::word("bit", "BIT")],
                            )
                            .since("7.0.0")
                            .optional(),
                        ],
                    )
                    .optional(),
                ],
            )
            .optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(bitpos),
};

fn bitpos(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let bit = match integer(&cx.args[2])? {
        0 => false,
        1 => true,
        _ => return Err(Error::fixed("ERR The bit argument must be 1 or 0.")),
    };
    let part = Part::parse(cx.args.from(3).iter())?;
    let position = match cx.view.text(0)? {
        // As if it were zeros without end.
        None => (!bit).then_some(0),
        Some(text) => {
            let bytes = text.bytes();
            let range = part.bits(bytes.len());
            let end = range.end;
            // A string of ones is followed by zeros, unless the caller said where to stop.
            let behind = (!bit && part.end.is_none() && !range.is_empty()).then_some(end);
            bits::find(&bytes, range, bit).or(behind)
        }
    };
    cx.reply.integer(position.map_or(-1, |position| position as i64));
    Ok(Effect::None)
}

#[cfg(test)]
mod tests {
    use crate::testing::events::check_events;
    use crate::testing::{check, check_valkey};

    #[test]
    fn bitpos() {
        check(
            "SET k foobar; BITPOS k 1; BITPOS k 0; BITPOS k 1 2; BITPOS k 0 10; BITPOS k 1 10; \
             BITPOS k 1 5 20 bit; BITPOS k 0 5 20 BIT; BITPOS k 1 -2 -1 BYTE; BITPOS k 1 3 3 bit",
            "+OK; :1; :0; :17; :-1; :-1; :5; :7; :33; :-1",
        );
        check("BITPOS no 0; BITPOS no 1; BITPOS no 0 5 6; BITPOS no 1 5", ":0; :-1; :0; :-1");
        check(
            "SET e ''; BITPOS e 0; BITPOS e 1; BITPOS e 0 0; BITPOS e 0 0 -1",
            "+OK; :-1; :-1; :-1; :-1",
        );
        check("SET k ab; BITPOS k 1 -3 -8; BITPOS k 1 -1 -2; BITPOS k 0 100", "+OK; :1; :-1; :-1");
        check("SET k \"\\x00\\x00\"; BITPOS k 1; BITPOS k 1 0 -1 bit", "+OK; :-1; :-1");
    }

    #[test]
    fn ones_to_the_end() {
        check(
            "SET k \"\\xff\\xff\"; BITPOS k 0; BITPOS k 0 0; BITPOS k 0 1; BITPOS k 0 0 -1; \
             BITPOS k 0 0 7 bit; BITPOS k 1 8 9 bit; BITPOS k 0 2",
            "+OK; :16; :16; :16; :-1; :-1; :8; :-1",
        );
    }

    #[test]
    fn bitpos_in_a_long_string() {
        check(
            "SETBIT k 200003 1; BITPOS k 1; BITPOS k 1 25001; BITPOS k 1 5 -1 bit",
            ":0; :200003; :-1; :200003",
        );
    }

    #[test]
    fn bitpos_refuses() {
        check(
            "SET k v; BITPOS k 2; BITPOS k x; BITPOS k 1 a; BITPOS k 1 0 a; BITPOS k 1 0 1 foo; \
             BITPOS k 1 0 1 bit x; BITPOS k 1 a b foo; BITPOS k 1 0 b foo; BITPOS k 1 a b bit x; \
             BITPOS k",
            "+OK; -ERR The bit argument must be 1 or 0.; \
             -ERR value is not an integer or out of range; \
             -ERR value is not an integer or out of range; \
             -ERR value is not an integer or out of range; -ERR syntax error; -ERR syntax error; \
             -ERR value is not an integer or out of range; -ERR syntax error; -ERR syntax error; \
             -ERR wrong number of arguments for 'bitpos' command",
        );
        check(
            "HSET h f v; BITPOS h 1; BITPOS h 2",
            ":1; -WRONGTYPE Operation against a key holding the wrong kind of value; \
             -ERR The bit argument must be 1 or 0.",
        );
        // Redis 7.0 answers for a free key before it reads on.
        check_valkey(
            "BITPOS no 1 a; BITPOS no 0 1 2 foo",
            "-ERR value is not an integer or out of range; -ERR syntax error",
        );
    }

    #[test]
    fn events_of_searching() {
        check_events("BITPOS none 1; SETBIT k 1 1; BITPOS k 1", "keymiss none; new k, setbit k; ");
    }
}
