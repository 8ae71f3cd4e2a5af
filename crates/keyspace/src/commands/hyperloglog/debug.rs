//! Looking inside: PFDEBUG, PFSELFTEST.

use std::io::Write;

use kvasir_structures::hyperloglog::{self, Encoding, Mark, Registers};

use super::stored::{self, Stored};
use crate::command::{Command, Cx, Run};
use crate::effect::Effect;
use crate::error::Error;
use crate::rng::Rng;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::text_value;

pub static COMMANDS: &[&Command] = &[&PFDEBUG, &PFSELFTEST];

static PFDEBUG: Command = Command {
    spec: Spec {
        name: "pfdebug",
        is_for_system: true,
        summary: "Shows the registers of a HyperLogLog, or changes how they are kept.",
        since: "2.8.9",
        group: Group::Hyperloglog,
        complexity: "O(1), as the number of registers is fixed.",
        arity: 3,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::ADMIN),
        keys: &[KeySpec::range(KeyFlags::RW.union(KeyFlags::ACCESS), 2, 0, 1)],
        arguments: &[Argument::string("subcommand"), Argument::key("key", 0)],
        ..Spec::BLANK
    },
    run: Run::Keys(pfdebug),
};

fn pfdebug(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let missing = Error::fixed("ERR The specified key does not exist");
    let stored = stored::peek(&mut cx.view, 0)?.ok_or(missing)?;
    let is_sparse = stored.encoding == Encoding::Sparse;
    match &cx.args[1].to_ascii_lowercase()[..] {
        b"getreg" => {
            let mut registers = Registers::new();
            registers.merge(&stored.bytes)?;
            // Redis makes it dense to look at it.
            make_dense(cx)?;
            cx.reply.array(registers.ranks().len());
            registers.ranks().iter().for_each(|rank| cx.reply.integer(i64::from(*rank)));
            Ok(Effect::given_if(is_sparse))
        }
        b"decode" if !is_sparse => Err(Error::fixed("ERR HLL encoding is not sparse")),
        b"decode" => {
            let text = decode(&stored);
            cx.reply.bulk(&text);
            Ok(Effect::None)
        }
        b"encoding" => {
            cx.reply.simple(if is_sparse { "sparse" } else { "dense" });
            Ok(Effect::None)
        }
        b"todense" => {
            make_dense(cx)?;
            cx.reply.integer(i64::from(is_sparse));
            Ok(Effect::given_if(is_sparse))
        }
        _ => Err(Error::quoting("ERR Unknown PFDEBUG subcommand '", &cx.args[1], "'")),
    }
}

fn make_dense(cx: &mut Cx<'_, '_>) -> Result<(), Error> {
    let Some(Stored { bytes, encoding: Encoding::Sparse }) = stored::peek(&mut cx.view, 0)? else {
        return Ok(());
    };
    let mut bytes = bytes.into_owned();
    hyperloglog::make_dense(&mut bytes)?;
    text_value::replace(&mut cx.view.find(0).expect("it was just read"), bytes);
    Ok(())
}

/// The runs as text: `z:LENGTH` and, in two bytes, `Z:LENGTH` of zeros, `v:RANK,LENGTH` of others.
fn decode(stored: &Stored<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    for run in hyperloglog::runs(&stored.bytes) {
        let separator = if text.is_empty() { "" } else { " " };
        let written = match run.rank {
            0 if run.is_long => write!(text, "{separator}Z:{}", run.len),
            0 => write!(text, "{separator}z:{}", run.len),
            rank => write!(text, "{separator}v:{rank},{}", run.len),
        };
        written.expect("a vector takes everything");
    }
    text
}

static PFSELFTEST: Command = Command {
    spec: Spec {
        name: "pfselftest",
        is_for_system: true,
        summary: "Checks that both encodings of HyperLogLogs agree and that estimates are close.",
        since: "2.8.9",
        group: Group::Hyperloglog,
        complexity: "O(1), some milliseconds.",
        arity: 1,
        flags: Flags::ADMIN,
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| {
        self_test(cx.rng)?;
        cx.reply.ok();
        Ok(Effect::None)
    }),
};

/// How many elements the self-test adds, the last of them far past the change to dense.
const SELF_TEST_ELEMENTS: u32 = 100_000;
/// The largest error that it takes for chance, in standard errors of 1.04 / sqrt(16384).
const SELF_TEST_ERRORS_MAX: f64 = 5.0;

fn self_test(rng: &mut Rng) -> Result<(), Error> {
    let failed = |what: String| Error::new(format!("TESTFAILED {what}"));
    let (seed, standard_error) = (rng.draw(), 1.04 / 128.0);
    let (mut sparse, mut dense) = (hyperloglog::empty(), hyperloglog::empty());
    hyperloglog::make_dense(&mut dense)?;
    for count in 1..=SELF_TEST_ELEMENTS {
        let mark = Mark::of(&(seed ^ u64::from(count)).to_le_bytes());
        hyperloglog::raise(&mut sparse, mark, 3000)?;
        hyperloglog::raise_dense(&mut dense, mark);
        if !count.is_power_of_two() && count != SELF_TEST_ELEMENTS {
            continue;
        }
        let (one, other) = (hyperloglog::count(&sparse)?, hyperloglog::count(&dense)?);
        if one != other {
            return Err(failed(format!("sparse counts {one}, dense {other} of {count} elements")));
        }
        let allowed = SELF_TEST_ERRORS_MAX * standard_error * f64::from(count) + 1.0;
        if (one as f64 - f64::from(count)).abs() > allowed {
            return Err(failed(format!("counts {one} of {count} elements")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::events::check_events;
    use crate::testing::{check, compare};

    #[test]
    fn pfdebug() {
        check(
            "PFADD h a; PFDEBUG ENCODING h; PFDEBUG decode h; PFDEBUG TODENSE h; \
             PFDEBUG todense h; \
             PFDEBUG encoding h; PFDEBUG DECODE h; PFCOUNT h; PFADD h a b",
            ":1; +sparse; $Z:12711 v:2,1 Z:3672; :1; :0; +dense; \
             -ERR HLL encoding is not sparse; :1; :1",
        );
        check(
            "PFADD h a; PFCOUNT h; PFDEBUG TODENSE h; GETRANGE h 0 15",
            ":1; :1; :1; $HYLL\\x00\\x00\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00",
        );
    }

    #[test]
    fn getreg_shows_all_registers() {
        let replies = compare(
            "PFADD h a b c d e f g; PFDEBUG GETREG h; PFDEBUG ENCODING h; PFDEBUG GETREG h",
        );
        assert_eq!(replies[1].split(' ').count(), 16_384);
        assert_eq!(replies[2], "+dense");
        assert_eq!(replies[1], replies[3]);
    }

    #[test]
    fn pfdebug_refuses() {
        check(
            "PFDEBUG encoding no; PFDEBUG foo no; PFADD h a; PFDEBUG foo h; PFDEBUG getreg",
            "-ERR The specified key does not exist; -ERR The specified key does not exist; :1; \
             -ERR Unknown PFDEBUG subcommand 'foo'; \
             -ERR wrong number of arguments for 'pfdebug' command",
        );
        check(
            "SET s foo; HSET h f v; PFDEBUG encoding s; PFDEBUG encoding h",
            "+OK; :1; -WRONGTYPE Key is not a valid HyperLogLog string value.; \
             -WRONGTYPE Operation against a key holding the wrong kind of value",
        );
        let corrupted = "-INVALIDOBJ Corrupted HLL object detected";
        let bad = "HYLL\\x01\\x00\\x00\\x00\\x05\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x84";
        check(
            &format!("SET b \"{bad}\"; PFDEBUG decode b; PFDEBUG getreg b; PFDEBUG todense b"),
            &format!("+OK; $z:2 v:2,1; {corrupted}; {corrupted}"),
        );
    }

    #[test]
    fn pfselftest() {
        check(
            "PFSELFTEST; PFSELFTEST x",
            "+OK; -ERR wrong number of arguments for 'pfselftest' command",
        );
    }

    #[test]
    fn looking_inside_is_no_event() {
        check_events(
            "PFADD k a; PFDEBUG ENCODING k; PFDEBUG TODENSE k; PFDEBUG TODENSE k; PFADD d a; \
             PFDEBUG DECODE d; PFDEBUG GETREG d; PFDEBUG GETREG none",
            "new k, pfadd k; ; ; ; new d, pfadd d; ; ; ",
        );
    }
}
