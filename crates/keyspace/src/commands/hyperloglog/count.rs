//! Asking for the estimate: PFCOUNT.

use kvasir_structures::hyperloglog::{self, Registers};

use super::stored;
use crate::command::{Command, Cx, Run};
use crate::effect::Effect;
use crate::error::Error;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec, Traits};
use crate::text_value;

pub static COMMANDS: &[&Command] = &[&PFCOUNT];

static PFCOUNT: Command = Command {
    spec: Spec {
        name: "pfcount",
        summary: "Estimates how many different elements a HyperLogLog, or several, have seen.",
        since: "2.8.9",
        group: Group::Hyperloglog,
        complexity: "O(1) for one key, and quick as long as nothing was added since the last call; \
                     O(N) for N keys, which takes far longer.",
        arity: -2,
        flags: Flags::READONLY,
        traits: Traits::MAY_REPLICATE,
        keys: &[KeySpec {
            notes: Some("Keeps the estimate in the key, which replicas hear of."),
            ..KeySpec::range(KeyFlags::RW.union(KeyFlags::ACCESS), 1, -1, 1)
        }],
        arguments: &[Argument { multiple: true, ..Argument::key("key", 0) }],
        ..Spec::BLANK
    },
    run: Run::Keys(pfcount),
};

fn pfcount(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    if cx.view.key_count() > 1 { count_union(cx) } else { count_one(cx) }
}

/// Keeps a fresh estimate in the value: a change, if one that nobody sees.
fn count_one(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let Some(stored) = stored::read(&mut cx.view, 0)? else {
        cx.reply.integer(0);
        return Ok(Effect::None);
    };
    if let Some(kept) = hyperloglog::kept_estimate(&stored.bytes) {
        cx.reply.integer(kept as i64);
        return Ok(Effect::None);
    }
    let (estimate, len) = (hyperloglog::count(&stored.bytes)?, stored.bytes.len());
    let mut found = cx.view.find(0).expect("it was just read");
    text_value::edit(&mut found, len, |bytes| hyperloglog::keep_estimate(bytes, estimate));
    cx.view.touched(0);
    cx.reply.integer(estimate as i64);
    Ok(Effect::AsGiven)
}

fn count_union(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let mut registers = Registers::new();
    for key in 0..cx.view.key_count() {
        if let Some(stored) = stored::read(&mut cx.view, key)? {
            registers.merge(&stored.bytes)?;
        }
    }
    cx.reply.integer(registers.count() as i64);
    Ok(Effect::None)
}

#[cfg(test)]
mod tests {
    use crate::testing::events::check_events;
    use crate::testing::{check, check3, compare};

    #[test]
    fn pfcount() {
        check("PFCOUNT no; PFCOUNT no none; EXISTS no", ":0; :0; :0");
        check3(
            "PFADD h a b c; PFCOUNT h; GETRANGE h 8 15; PFCOUNT h",
            ":1; :3; $\\x03\\x00\\x00\\x00\\x00\\x00\\x00\\x00; :3",
        );
        check(
            "PFADD a x y z; PFADD b x y w; PFCOUNT a b no; PFCOUNT a a; GETRANGE a 15 15; \
             PFCOUNT b",
            ":1; :1; :4; :3; $\\x80; :3",
        );
        check(
            "PFADD h a; EXPIRE h 100; PFCOUNT h; TTL h; PFDEBUG TODENSE h; PFADD h b; PFCOUNT h; \
             PFCOUNT h h; STRLEN h",
            ":1; :1; :1; :100; :1; :1; :2; :2; :12304",
        );
    }

    #[test]
    fn estimates_are_those_of_redis() {
        for count in [50, 999, 3_000, 20_000] {
            let elements: Vec<_> = (0..count).map(|n| format!("e{n}")).collect();
            let elements = elements.join(" ");
            let replies =
                compare(&format!("PFADD h {elements}; PFCOUNT h; PFCOUNT h no; GETRANGE h 8 15"));
            assert_eq!(replies[1], replies[2]);
        }
    }

    #[test]
    fn a_kept_estimate_is_believed() {
        let header = "HYLL\\x01\\x00\\x00\\x00\\x05\\x00\\x00\\x00\\x00\\x00\\x00\\x00";
        let corrupted = "-INVALIDOBJ Corrupted HLL object detected";
        check(
            &format!(
                "SET h \"{header}\"; PFCOUNT h; PFCOUNT h h; SETRANGE h 15 \"\\x80\"; PFCOUNT h"
            ),
            &format!("+OK; :5; {corrupted}; :16; {corrupted}"),
        );
    }

    #[test]
    fn pfcount_refuses() {
        let invalid = "-WRONGTYPE Key is not a valid HyperLogLog string value.";
        check(
            "SET s foo; PFADD h a; PFCOUNT s; PFCOUNT h s",
            &format!("+OK; :1; {invalid}; {invalid}"),
        );
        let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        check(
            "HSET h f v; PFCOUNT h; PFCOUNT no h; PFCOUNT",
            &format!(
                ":1; {wrong_type}; {wrong_type}; \
                 -ERR wrong number of arguments for 'pfcount' command"
            ),
        );
        // Too many registers, too few, and half a run.
        for tail in ["\\x7f\\xff\\x00", "\\x00", "\\x7f", "\\xff"] {
            let text =
                format!("HYLL\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80{tail}");
            check(
                &format!("SET h \"{text}\"; PFCOUNT h; PFCOUNT h no"),
                "+OK; -INVALIDOBJ Corrupted HLL object detected; \
                 -INVALIDOBJ Corrupted HLL object detected",
            );
        }
    }

    #[test]
    fn events_of_counting() {
        check_events(
            "PFADD k a; PFCOUNT k; PFCOUNT k; PFCOUNT none; PFCOUNT k none none; SET s v; \
             PFCOUNT s",
            "new k, pfadd k; touch k; ; keymiss none; keymiss none, keymiss none; new s, set s; ",
        );
    }
}
