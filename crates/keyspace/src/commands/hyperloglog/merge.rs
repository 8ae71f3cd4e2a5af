//! Unions: PFMERGE.

use kvasir_structures::hyperloglog::{self, Encoding, Registers};

use super::stored;
use crate::command::{Command, Cx, Run};
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::text_value;

pub static COMMANDS: &[&Command] = &[&PFMERGE];

static PFMERGE: Command = Command {
    spec: Spec {
        name: "pfmerge",
        summary: "Adds to a HyperLogLog what others have seen.",
        since: "2.8.9",
        group: Group::Hyperloglog,
        complexity: "O(N) where N is the number of keys; each takes long.",
        arity: -2,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[
            KeySpec::first(KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::INSERT)),
            KeySpec::range(KeyFlags::RO.union(KeyFlags::ACCESS), 2, -1, 1),
        ],
        arguments: &[
            Argument::key("destkey", 0),
            Argument { multiple: true, ..Argument::key("sourcekey", 1) },
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(pfmerge),
};

fn pfmerge(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let (mut registers, mut has_dense, mut old) = (Registers::new(), false, None);
    for key in 0..cx.view.key_count() {
        let Some(stored) = stored::read(&mut cx.view, key)? else { continue };
        registers.merge(&stored.bytes)?;
        has_dense |= stored.encoding == Encoding::Dense;
        if key == 0 {
            old = Some(stored.bytes.into_owned());
        }
    }
    let exists = old.is_some();
    let mut bytes = old.unwrap_or_else(hyperloglog::empty);
    if has_dense {
        hyperloglog::make_dense(&mut bytes)?;
    }
    for mark in registers.marks() {
        hyperloglog::raise(&mut bytes, mark, cx.view.env.hll_sparse_bytes_max)?;
    }
    hyperloglog::forget_estimate(&mut bytes);
    if exists {
        let mut found = cx.view.find(0).expect("it was just read");
        text_value::replace(&mut found, bytes);
    } else {
        text_value::put(&mut cx.view, 0, bytes);
    }
    // As PFADD, from which one cannot tell it apart.
    cx.view.changed(0, Class::STRING, "pfadd");
    cx.reply.ok();
    Ok(Effect::AsGiven)
}

#[cfg(test)]
mod tests {
    use crate::testing::check;
    use crate::testing::events::check_events;

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn pfmerge() {
        check("PFMERGE d; PFCOUNT d; STRLEN d; PFMERGE d no; PFCOUNT d", "+OK; :0; :18; +OK; :0");
        check(
            "PFADD a x y z; PFADD b x y w; PFMERGE d a b no; PFCOUNT d; PFDEBUG DECODE d; \
             PFMERGE a; PFMERGE a b; PFDEBUG DECODE a; OBJECT ENCODING a",
            ":1; :1; +OK; :4; $Z:4168 v:2,1 Z:4412 v:1,1 Z:6350 v:3,1 Z:1441 v:2,1 z:9; +OK; +OK; \
             $Z:4168 v:2,1 Z:4412 v:1,1 Z:6350 v:3,1 Z:1441 v:2,1 z:9; $raw",
        );
        check(
            "PFADD a x; PFADD b y; EXPIRE a 100; PFDEBUG TODENSE b; PFMERGE a b; PFCOUNT a; TTL a; \
             PFDEBUG ENCODING a; PFMERGE c b; PFDEBUG ENCODING c",
            ":1; :1; :1; :1; +OK; :2; :100; +dense; +OK; +dense",
        );
    }

    #[test]
    fn a_large_union_becomes_dense() {
        let elements = |from: u32| {
            let elements: Vec<_> = (from..from + 900).map(|n| n.to_string()).collect();
            elements.join(" ")
        };
        let [one, other] = [elements(0), elements(5_000)];
        check(
            &format!(
                "PFADD a {one}; PFADD b {other}; PFDEBUG ENCODING a; PFMERGE d a b; \
                 PFDEBUG ENCODING d; PFCOUNT a b; PFCOUNT d"
            ),
            ":1; :1; +sparse; +OK; +dense; :1796; :1796",
        );
    }

    #[test]
    fn pfmerge_refuses() {
        let invalid = "-WRONGTYPE Key is not a valid HyperLogLog string value.";
        let corrupted = "-INVALIDOBJ Corrupted HLL object detected";
        check(
            "SET s foo; PFADD h a; PFMERGE s h; PFMERGE h s; PFMERGE d s; EXISTS d; GET s",
            &format!("+OK; :1; {invalid}; {invalid}; {invalid}; :0; $foo"),
        );
        check(
            "HSET h f v; PFMERGE h; PFMERGE d h; PFMERGE",
            &format!(
                ":1; {WRONG_TYPE}; {WRONG_TYPE}; \
                 -ERR wrong number of arguments for 'pfmerge' command"
            ),
        );
        let bad = "HYLL\\x01\\x00\\x00\\x00\\x05\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01";
        check(
            &format!("SET b \"{bad}\"; PFMERGE b; PFMERGE d b; EXISTS d"),
            &format!("+OK; {corrupted}; {corrupted}; :0"),
        );
    }

    #[test]
    fn events_of_merging() {
        check_events(
            "PFADD k a; PFMERGE d k; PFMERGE d k n; PFMERGE x none; PFMERGE k",
            "new k, pfadd k; keymiss d, new d, pfadd d; keymiss n, pfadd d; keymiss x, keymiss \
             none, new x, pfadd x; pfadd k",
        );
    }
}
