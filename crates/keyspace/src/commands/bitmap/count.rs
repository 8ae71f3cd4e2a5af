//! Counting bits: BITCOUNT.

use kvasir_structures::bits;

use super::range::Part;
use crate::command::{Command, Cx, Run};
use crate::effect::Effect;
use crate::error::Error;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&BITCOUNT];

static BITCOUNT: Command = Command {
    spec: Spec {
        name: "bitcount",
        summary: "Counts the ones in a string or in a part of it.",
        since: "2.6.0",
        group: Group::Bitmap,
        complexity: "O(N) where N is the length of that part.",
        arity: -2,
        flags: Flags::READONLY,
        keys: &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))],
        history: &[
            ("7.0.0", "Takes `BYTE` or `BIT`."),
            ("8.0.0", "`end` may be left out and is the last byte then."),
        ],
        arguments: &[
            Argument::key("key", 0),
            Argument::block(
                "range",
                &[
                    Argument::integer("start"),
                    Argument::block(
                        "end-unit-block",
                        &[
                            Argument::integer("end"),
                            Argument::one_of(
                                "unit",
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
    run: Run::Keys(bitcount),
};

fn bitcount(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let part = Part::parse(cx.args.from(2).iter())?;
    // Redis takes these as they stand, whatever the length makes of them.
    let is_reversed = part.start < 0 && part.end.is_some_and(|end| end < 0 && part.start > end);
    let ones = match cx.view.text(0)? {
        Some(text) if !is_reversed => {
            let bytes = text.bytes();
            bits::count_ones(&bytes, part.bits(bytes.len()))
        }
        _ => 0,
    };
    cx.reply.integer(ones as i64);
    Ok(Effect::None)
}

#[cfg(test)]
mod tests {
    use crate::testing::events::check_events;
    use crate::testing::{check, check_valkey};

    #[test]
    fn bitcount() {
        check(
            "SET k foobar; BITCOUNT k; BITCOUNT k 0 0; BITCOUNT k 1 1; BITCOUNT k 1 1 byte; \
             BITCOUNT k 5 30 BIT; BITCOUNT k 0 -1 bit; BITCOUNT k -3 -2 bit",
            "+OK; :26; :4; :6; :6; :17; :26; :1",
        );
        check(
            "SET k ab; BITCOUNT k -5 -10; BITCOUNT k -3 -8; BITCOUNT k -8 -3; BITCOUNT k 1 0; \
             BITCOUNT k 100 200; BITCOUNT k 0 0 bit; \
             BITCOUNT k -9223372036854775808 9223372036854775807 bit; BITCOUNT k 1 100",
            "+OK; :0; :0; :3; :0; :0; :0; :6; :3",
        );
        check(
            "BITCOUNT no; BITCOUNT no 0 1; SET e ''; BITCOUNT e; BITCOUNT e 0 -1",
            ":0; :0; +OK; :0; :0",
        );
        check("SET k 123; BITCOUNT k; OBJECT ENCODING k", "+OK; :10; $int");
        let long = "U".repeat(30_000);
        check(&format!("SET k {long}; BITCOUNT k; BITCOUNT k 3 -9"), "+OK; :120000; :119956");
    }

    #[test]
    fn bitcount_to_the_end() {
        check_valkey(
            "SET k foobar; BITCOUNT k 0; BITCOUNT k -2; BITCOUNT no 3",
            "+OK; :26; :7; :0",
        );
    }

    #[test]
    fn bitcount_refuses() {
        check(
            "SET k v; BITCOUNT k 0 1 foo; BITCOUNT k 0 1 bit 4; BITCOUNT k a b; BITCOUNT k 0 b; \
             BITCOUNT k a b foo; BITCOUNT",
            "+OK; -ERR syntax error; -ERR syntax error; \
             -ERR value is not an integer or out of range; \
             -ERR value is not an integer or out of range; \
             -ERR value is not an integer or out of range; \
             -ERR wrong number of arguments for 'bitcount' command",
        );
        // Redis 7.0 looks at the key first.
        check_valkey(
            "HSET h f v; BITCOUNT h; BITCOUNT h a b; BITCOUNT h 0 1 foo; BITCOUNT h 0 b foo; \
             BITCOUNT no a b; BITCOUNT no 0 1 foo",
            ":1; -WRONGTYPE Operation against a key holding the wrong kind of value; \
             -ERR value is not an integer or out of range; -ERR syntax error; -ERR syntax error; \
             -ERR value is not an integer or out of range; -ERR syntax error",
        );
    }

    #[test]
    fn events_of_counting() {
        check_events("BITCOUNT none; SETBIT k 1 1; BITCOUNT k", "keymiss none; new k, setbit k; ");
    }
}
