//! Adding elements: PFADD.

use kvasir_resp::args::Args;
use kvasir_structures::hyperloglog::{self, Encoding, Mark};

use super::stored;
use crate::command::{Command, Cx, Run};
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::text_value;

pub static COMMANDS: &[&Command] = &[&PFADD];

static PFADD: Command = Command {
    spec: Spec {
        name: "pfadd",
        summary: "Adds elements to a HyperLogLog, which is created if the key is free.",
        since: "2.8.9",
        group: Group::Hyperloglog,
        complexity: "O(1) for each element.",
        arity: -2,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::INSERT))],
        arguments: &[Argument::key("key", 0), Argument::string("element").optional().multiple()],
        ..Spec::BLANK
    },
    run: Run::Keys(pfadd),
};

fn pfadd(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let elements = cx.args.from(2);
    let sparse_bytes_max = cx.view.env.hll_sparse_bytes_max;
    let changed = match stored::peek(&mut cx.view, 0)? {
        None => {
            let bytes = with_elements(hyperloglog::empty(), elements, sparse_bytes_max)?;
            text_value::put(&mut cx.view, 0, bytes);
            true
        }
        Some(stored) => {
            // Most elements change nothing, and then nothing is copied.
            let (bytes, encoding) = (stored.bytes, stored.encoding);
            let fresh = first_fresh(&bytes, elements)?;
            if let Some(fresh) = fresh {
                let len = bytes.len();
                let sparse = (encoding == Encoding::Sparse).then(|| bytes.into_owned());
                add(cx, elements.from(fresh), sparse, len)?;
            }
            fresh.is_some()
        }
    };
    if changed {
        cx.view.changed(0, Class::STRING, "pfadd");
    }
    cx.reply.integer(i64::from(changed));
    Ok(Effect::given_if(changed))
}

/// The index of the first element that changes something.
fn first_fresh(bytes: &[u8], elements: Args<'_>) -> Result<Option<usize>, Error> {
    for (index, element) in elements.iter().enumerate() {
        if !hyperloglog::has(bytes, Mark::of(element))? {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

/// Adds to a sparse HyperLogLog of these bytes, or to a dense one of this length where it stands.
fn add(
    cx: &mut Cx<'_, '_>,
    elements: Args<'_>,
    sparse: Option<Vec<u8>>,
    len: usize,
) -> Result<(), Error> {
    let sparse_bytes_max = cx.view.env.hll_sparse_bytes_max;
    let sparse =
        sparse.map(|bytes| with_elements(bytes, elements, sparse_bytes_max)).transpose()?;
    let mut found = cx.view.find(0).expect("it was just read");
    match sparse {
        Some(bytes) => text_value::replace(&mut found, bytes),
        None => text_value::edit(&mut found, len, |bytes| {
            elements.iter().for_each(|element| hyperloglog::raise_dense(bytes, Mark::of(element)));
            hyperloglog::forget_estimate(bytes);
        }),
    }
    Ok(())
}

fn with_elements(
    mut bytes: Vec<u8>,
    elements: Args<'_>,
    sparse_bytes_max: usize,
) -> Result<Vec<u8>, Error> {
    for element in elements.iter() {
        hyperloglog::raise(&mut bytes, Mark::of(element), sparse_bytes_max)?;
    }
    hyperloglog::forget_estimate(&mut bytes);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::Effect;
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check3, compare, split};

    #[test]
    fn pfadd() {
        check(
            "PFADD h; PFADD h; GET h; PFADD h a; PFADD h a; PFADD h a b c; OBJECT ENCODING h; \
             GET h",
            ":1; :0; $HYLL\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80\\x7f\\xff; \
             :1; :0; :1; $raw; \
             $HYLL\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80\
             `\\xf3\\x80P\\xb1\\x84K\\xfb\\x80BZ",
        );
        check3("PFADD h x ''; PFADD h ''; EXPIRE h 100; PFADD h y; TTL h", ":1; :0; :1; :1; :100");
    }

    #[test]
    fn a_string_that_was_copied_goes_on() {
        check(
            "SET h \"HYLL\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80\\x7f\\xff\"; \
             PFADD h a; PFDEBUG DECODE h; PFCOUNT h; OBJECT ENCODING h",
            "+OK; :1; $Z:12711 v:2,1 Z:3672; :1; $raw",
        );
    }

    /// The stored bytes are compared at many sizes, through the growth of runs and the change to
    /// dense, with those of the oracle.
    #[test]
    fn the_bytes_are_those_of_redis() {
        for (first, count, step) in [(0, 2_500, 250), (10_000, 400, 8)] {
            let calls = (0..count).step_by(step).map(|from| {
                let elements: Vec<_> =
                    (first + from..first + from + step).map(|n| n.to_string()).collect();
                format!("PFADD h {}; GETRANGE h 0 12303", elements.join(" "))
            });
            let script = calls.collect::<Vec<_>>().join("; ");
            let replies = compare(&format!("{script}; PFDEBUG ENCODING h"));
            assert_eq!(replies.last().unwrap(), if count > 1_000 { "+dense" } else { "+sparse" });
        }
    }

    #[test]
    fn pfadd_refuses() {
        let invalid = "-WRONGTYPE Key is not a valid HyperLogLog string value.";
        let corrupted = "-INVALIDOBJ Corrupted HLL object detected";
        for text in ["foo", "HYLL", "''", "HYLL\\x01", "HYLLxxxxxxxxxxxxxxxxxxxxx"] {
            check(&format!("SET h \"{text}\"; PFADD h a"), &format!("+OK; {invalid}"));
        }
        let header = "HYLL\\x01\\x00\\x00\\x00\\x05\\x00\\x00\\x00\\x00\\x00\\x00\\x00";
        check(
            &format!(
                "SET h \"{header}\"; PFADD h; PFADD h a; SET h \"{header}\\x00\"; PFADD h a; GET h"
            ),
            &format!("+OK; :0; {corrupted}; +OK; {corrupted}; ${header}\\x00"),
        );
        check(
            "HSET h f v; PFADD h a; PFADD",
            ":1; -WRONGTYPE Operation against a key holding the wrong kind of value; \
             -ERR wrong number of arguments for 'pfadd' command",
        );
    }

    #[test]
    fn the_log_gets_what_changed() {
        let mut bench = Bench::new(Protocol::Resp2);
        let steps = [
            ("PFADD h", Effect::AsGiven),
            ("PFADD h", Effect::None),
            ("PFADD h a", Effect::AsGiven),
            ("PFADD h a", Effect::None),
            ("PFCOUNT h", Effect::AsGiven),
            ("PFCOUNT h", Effect::None),
            ("PFADD h a", Effect::None),
            ("PFDEBUG TODENSE h", Effect::AsGiven),
            ("PFDEBUG TODENSE h", Effect::None),
        ];
        for (call, effect) in steps {
            assert_eq!(bench.call(split(call)[0].as_args()).1, effect, "{call}");
        }
    }

    #[test]
    fn events_of_adding() {
        check_events(
            "PFADD k a; PFADD k a; PFADD k b; PFADD n; PFADD n; SET k v; PFADD k a",
            "new k, pfadd k; ; pfadd k; new n, pfadd n; ; set k; ",
        );
    }
}
