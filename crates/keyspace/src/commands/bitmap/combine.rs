//! Combining strings bit by bit: BITOP.

use kvasir_structures::bits;

use crate::command::{Command, Cx, Run};
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::text_value;
use crate::value::Text;

pub static COMMANDS: &[&Command] = &[&BITOP];

static BITOP: Command = Command {
    spec: Spec {
        name: "bitop",
        summary: "Combines strings bit by bit and stores the result.",
        since: "2.6.0",
        group: Group::Bitmap,
        complexity: "O(N) where N is the length of all strings together.",
        arity: -4,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[
            KeySpec::range(KeyFlags::OW.union(KeyFlags::UPDATE), 2, 0, 1),
            KeySpec::range(KeyFlags::RO.union(KeyFlags::ACCESS), 3, -1, 1),
        ],
        arguments: &[
            Argument::string("operation"),
            Argument::key("destkey", 0),
            Argument::key("key", 1).multiple(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(bitop),
};

/// Takes the next string into what was made of those before it.
type Combine = fn(&mut Vec<u8>, &[u8]);

/// The one operation that takes a single string.
const NOT: Combine = |into, _| bits::not(into);

fn bitop(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let combine = operation(&cx.args[1]).ok_or(Error::SYNTAX)?;
    let sources = 1..cx.view.key_count();
    let is_not = cx.args[1].eq_ignore_ascii_case(b"not");
    if is_not && sources.len() != 1 {
        return Err(Error::fixed("ERR BITOP NOT must be called with a single source key."));
    }
    let mut result: Vec<u8> = Vec::new();
    for key in sources {
        let bytes = cx.view.text(key)?.map(Text::bytes).unwrap_or_default();
        if key == 1 {
            result.extend_from_slice(&bytes);
        }
        if key > 1 || is_not {
            combine(&mut result, &bytes);
        }
    }
    cx.reply.integer(result.len() as i64);
    if result.is_empty() {
        return Ok(Effect::given_if(cx.view.delete_for_nothing(0)));
    }
    text_value::put(&mut cx.view, 0, result);
    cx.view.changed(0, Class::STRING, "set");
    Ok(Effect::AsGiven)
}

fn operation(word: &[u8]) -> Option<Combine> {
    let operations: [(&[u8], Combine); 4] =
        [(b"and", bits::and), (b"or", bits::or), (b"xor", bits::xor), (b"not", NOT)];
    operations.iter().find(|(name, _)| word.eq_ignore_ascii_case(name)).map(|(_, run)| *run)
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::Effect;
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, split};

    #[test]
    fn bitop() {
        check(
            "MSET a abc b AB; BITOP AND d a b; GET d; BITOP or d a b; GET d; BITOP xor d a b; \
             GET d; BITOP NOT d a; GET d",
            "+OK; :3; $AB\\x00; :3; $abc; :3; $  c; :3; $\\x9e\\x9d\\x9c",
        );
        check(
            "MSET a abc b ab c a; BITOP and d a b c no; GET d; BITOP or d no a; GET d; \
             BITOP xor d a; GET d; BITOP xor d a b c; GET d; BITOP and d c a; GET d",
            "+OK; :3; $\\x00\\x00\\x00; :3; $abc; :3; $abc; :3; $a\\x00c; :3; $a\\x00\\x00",
        );
        check("SET a 12; BITOP and a a a; OBJECT ENCODING a; GET a", "+OK; :2; $raw; $12");
        let long = "U".repeat(20_000);
        check(
            &format!("SET a {long}; BITOP not d a; BITOP xor e a d; BITCOUNT e; GETRANGE d 0 1"),
            "+OK; :20000; :20000; :160000; $\\xaa\\xaa",
        );
    }

    #[test]
    fn what_stood_at_the_destination_goes() {
        check(
            "HSET d f v; SET a x; BITOP or d a; GET d; EXPIRE d 100; BITOP or d a; TTL d",
            ":1; +OK; :1; $x; :1; :1; :-1",
        );
        check(
            "SET d x; BITOP and d no none; EXISTS d; BITOP not d no; EXISTS d",
            "+OK; :0; :0; :0; :0",
        );
        check("SET e ''; SET d x; BITOP not d e; EXISTS d", "+OK; +OK; :0; :0");
    }

    #[test]
    fn bitop_refuses() {
        check(
            "SET a x; BITOP NOT d a a; BITOP foo d a; BITOP and d; EXISTS d",
            "+OK; -ERR BITOP NOT must be called with a single source key.; -ERR syntax error; \
             -ERR wrong number of arguments for 'bitop' command; :0",
        );
        check(
            "SET a x; SET d y; HSET h f v; BITOP or d a h; GET d",
            "+OK; +OK; :1; -WRONGTYPE Operation against a key holding the wrong kind of value; $y",
        );
    }

    #[test]
    fn the_log_gets_what_changed() {
        let mut bench = Bench::new(Protocol::Resp2);
        let steps = [
            ("BITOP or d no", Effect::None),
            ("SET a x", Effect::AsGiven),
            ("BITOP or d a", Effect::AsGiven),
            ("BITOP or d no", Effect::AsGiven),
        ];
        for (call, effect) in steps {
            assert_eq!(bench.call(split(call)[0].as_args()).1, effect, "{call}");
        }
    }

    #[test]
    fn events_of_combining() {
        check_events(
            "SET a x; SET b y; BITOP AND d a b; BITOP AND d a b; BITOP AND d none nope; BITOP OR \
             d none; BITOP NOT d a; BITOP OR c a none",
            "new a, set a; new b, set b; new d, set d; set d; keymiss none, keymiss nope, del d; \
             keymiss none; new d, set d; keymiss none, new c, set c",
        );
    }
}
