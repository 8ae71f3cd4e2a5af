//! RESTORE: makes a key of what DUMP returned.

use kvasir_resp::args::Args;

use crate::command::{Command, Cx, Run};
use crate::commands::options::integer;
use crate::effect::{Effect, call};
use crate::error::Error;
use crate::event::Class;
use crate::serial::{self, DumpError};
use crate::spec::{Argument, Categories, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::view::Env;

pub static COMMANDS: &[&Command] = &[&RESTORE, &RESTORE_ASKING];

/// What both names have in common.
const OF_RESTORE: Spec = Spec {
    summary: "Makes a key of a value that DUMP returned.",
    since: "2.6.0",
    complexity: "O(N) where N is the size of the value; O(N*log(N)) for a sorted set.",
    arity: -4,
    flags: Flags::WRITE.union(Flags::DENYOOM),
    categories: Categories::KEYSPACE.union(Categories::DANGEROUS),
    keys: &[KeySpec::first(KeyFlags::OW.union(KeyFlags::UPDATE))],
    history: &[
        ("3.0.0", "The word `REPLACE`."),
        ("5.0.0", "The word `ABSTTL`."),
        ("5.0.0", "The words `IDLETIME` and `FREQ`."),
    ],
    arguments: &[
        Argument::key("key", 0),
        Argument::integer("ttl"),
        Argument::string("serialized-value"),
        Argument::word("replace", "REPLACE").since("3.0.0").optional(),
        Argument::word("absttl", "ABSTTL").since("5.0.0").optional(),
        Argument::integer("seconds").token("IDLETIME").since("5.0.0").optional(),
        Argument::integer("frequency").token("FREQ").since("5.0.0").optional(),
    ],
    ..Spec::BLANK
};

static RESTORE: Command =
    Command { spec: Spec { name: "restore", ..OF_RESTORE }, run: Run::Keys(restore) };

/// RESTORE, to a node of a cluster that takes a slot over.
static RESTORE_ASKING: Command = Command {
    spec: Spec {
        name: "restore-asking",
        since: "3.0.0",
        group: Group::Server,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::ASKING),
        is_for_system: true,
        ..OF_RESTORE
    },
    run: Run::Keys(restore),
};

#[derive(Default)]
struct Options {
    replaces: bool,
    is_absolute: bool,
    idle_s: Option<u64>,
    frequency: Option<u8>,
}

impl Options {
    fn parse(args: Args<'_>) -> Result<Options, Error> {
        let mut options = Options::default();
        let mut words = args.from(4).iter();
        while let Some(word) = words.next() {
            let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
            if is(b"replace") {
                options.replaces = true;
            } else if is(b"absttl") {
                options.is_absolute = true;
            } else if is(b"idletime") && options.frequency.is_none() {
                let invalid = Error::fixed("ERR Invalid IDLETIME value, must be >= 0");
                let idle_s = integer(words.next().ok_or(Error::SYNTAX)?)?;
                options.idle_s = Some(u64::try_from(idle_s).map_err(|_| invalid)?);
            } else if is(b"freq") && options.idle_s.is_none() {
                let invalid = Error::fixed("ERR Invalid FREQ value, must be >= 0 and <= 255");
                let frequency = integer(words.next().ok_or(Error::SYNTAX)?)?;
                options.frequency = Some(u8::try_from(frequency).map_err(|_| invalid)?);
            } else {
                return Err(Error::SYNTAX);
            }
        }
        Ok(options)
    }
}

fn restore(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let options = Options::parse(cx.args)?;
    if !options.replaces && cx.view.exists(0) {
        return Err(Error::fixed("BUSYKEY Target key name already exists."));
    }
    let expiry_ms = expiry_ms(&cx.args[2], options.is_absolute, cx.view.env)?;
    let value = serial::undump(&cx.args[3], cx.view.env).map_err(|error| match error {
        DumpError::Footer => Error::fixed("ERR DUMP payload version or checksum are wrong"),
        DumpError::Value(_) => Error::fixed("ERR Bad data format"),
    })?;
    let was_there = cx.view.delete(0);
    cx.reply.ok();
    if expiry_ms.is_some_and(|expiry_ms| cx.view.env.has_passed(expiry_ms)) {
        if was_there {
            cx.view.changed(0, Class::GENERIC, "del");
        }
        return Ok(gone(cx, was_there));
    }
    let mut record = value.into_record(cx.view.key(0), expiry_ms);
    record.borrow_mut().set_clock(clock(cx.view.env, &options));
    cx.view.insert(0, record);
    cx.view.changed(0, Class::GENERIC, "restore");
    Ok(effect(cx, &options, expiry_ms))
}

/// When the key dies; 0 means never. A time past all that can be told has passed, as in Redis.
fn expiry_ms(text: &[u8], is_absolute: bool, env: &Env) -> Result<Option<u64>, Error> {
    let invalid = Error::fixed("ERR Invalid TTL value, must be >= 0");
    let ttl_ms = u64::try_from(integer(text)?).map_err(|_| invalid)?;
    let start_ms = if is_absolute { 0 } else { env.now_ms };
    let expiry_ms = i64::try_from(start_ms + ttl_ms).unwrap_or(0) as u64;
    Ok((ttl_ms > 0).then_some(expiry_ms))
}

/// The access clock as the options have it; one that the policy does not keep is dropped.
fn clock(env: &Env, options: &Options) -> u32 {
    match (env.policy.is_lfu(), options.frequency, options.idle_s) {
        (true, Some(frequency), _) => env.clock_of_frequency(frequency),
        (false, _, Some(idle_s)) => env.clock_of_idle(idle_s),
        _ => env.clock_of_new(),
    }
}

/// The effect where the time of what was restored is over already.
fn gone(cx: &Cx<'_, '_>, was_there: bool) -> Effect {
    match was_there {
        true if cx.view.env.logs => Effect::Rewritten(vec![call(&[b"DEL", cx.view.key(0)])]),
        true => Effect::Rewritten(Vec::new()),
        false => Effect::None,
    }
}

/// The same with a time that is absolute.
fn effect(cx: &Cx<'_, '_>, options: &Options, expiry_ms: Option<u64>) -> Effect {
    let Some(expiry_ms) = expiry_ms.filter(|_| !options.is_absolute) else {
        return Effect::AsGiven;
    };
    if !cx.view.env.logs {
        return Effect::Rewritten(Vec::new());
    }
    let expiry_ms = expiry_ms.to_string();
    let mut parts: Vec<&[u8]> = cx.args.iter().collect();
    parts[2] = expiry_ms.as_bytes();
    parts.push(b"ABSTTL");
    Effect::Rewritten(vec![call(&parts)])
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::Effect;
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check_valkey, check3, split};

    /// redis-server 7.0's DUMP of the string "hello".
    const HELLO: &str = r#""\x00\x05hello\n\x00cr\xdfve4 \n""#;

    /// The scripts have H for that payload.
    fn with_hello(script: &str) -> String {
        script.replace(" H", &format!(" {HELLO}"))
    }

    #[test]
    fn restores() {
        check(&with_hello("RESTORE k 0 H; GET k; TTL k; TYPE k"), "+OK; $hello; :-1; +string");
        check3(&with_hello("RESTORE k 0 H; GET k"), "+OK; $hello");
        check(&with_hello("RESTORE k 100000 H; TTL k"), "+OK; :100");
        check(&with_hello("RESTORE k 0 H ABSTTL; TTL k"), "+OK; :-1");
        check(
            &with_hello("RESTORE k 9999999999999 H absttl; PEXPIRETIME k"),
            "+OK; :9999999999999",
        );
        check(&with_hello("SET k v; RESTORE k 0 H REPLACE; GET k"), "+OK; +OK; $hello");
        check(&with_hello("RESTORE k 0 H FREQ 255 FREQ 0; GET k"), "+OK; $hello");
        check(&with_hello("RESTORE k 0 H IDLETIME 500; OBJECT IDLETIME k"), "+OK; :500");
        check("DUMP none", "_");
        check3("DUMP none", "_");
    }

    #[test]
    fn restores_what_has_expired() {
        check(&with_hello("RESTORE k 1 H ABSTTL; EXISTS k"), "+OK; :0");
        check(&with_hello("SET k v; RESTORE k 1 H ABSTTL REPLACE; EXISTS k"), "+OK; +OK; :0");
        check(&with_hello("RESTORE k 9223372036854775807 H; EXISTS k"), "+OK; :0");
    }

    #[test]
    fn refuses() {
        let busy = "-BUSYKEY Target key name already exists.";
        let footer = "-ERR DUMP payload version or checksum are wrong";
        let (ttl, number) = (
            "-ERR Invalid TTL value, must be >= 0",
            "-ERR value is not an integer or out of range",
        );
        check(
            &with_hello("SET k v; RESTORE k x x; RESTORE k -1 x REPLACE; RESTORE k x x REPLACE"),
            &format!("+OK; {busy}; {ttl}; {number}"),
        );
        check(
            "RESTORE k 0 x; RESTORE k 0 ''; RESTORE k 0 123456789; RESTORE k 0 1234567890; \
             SET k v; RESTORE k 0 x REPLACE; GET k",
            &format!("{footer}; {footer}; {footer}; {footer}; +OK; {footer}; $v"),
        );
        // Redis 7.0 takes the version 0, and what stands in the footer for the value.
        check_valkey(r#"RESTORE k 0 "\0\0\0\0\0\0\0\0\0\0""#, footer);
        let unknown_type = r#"RESTORE k 0 "\x1e\x00\n\x00\xe2\xdf\xcc\x5a\xbf\x83\x6e\x6f""#;
        check(unknown_type, footer);
    }

    #[test]
    fn refuses_options() {
        let syntax = "-ERR syntax error";
        check(
            &with_hello(
                "RESTORE k 0 H FOO; RESTORE k 0 H IDLETIME; RESTORE k 0 H FREQ; \
                 RESTORE k 0 H FREQ 1 IDLETIME 1; RESTORE k 0 H IDLETIME 1 FREQ 1",
            ),
            &[syntax; 5].join("; "),
        );
        let idle = "-ERR Invalid IDLETIME value, must be >= 0";
        let freq = "-ERR Invalid FREQ value, must be >= 0 and <= 255";
        let number = "-ERR value is not an integer or out of range";
        check(
            &with_hello(
                "RESTORE k 0 H IDLETIME -1; RESTORE k 0 H IDLETIME x; RESTORE k 0 H FREQ -1; \
                 RESTORE k 0 H FREQ 256; RESTORE k 0 H FREQ x; EXISTS k",
            ),
            &format!("{idle}; {number}; {freq}; {freq}; {number}; :0"),
        );
        let arity = "-ERR wrong number of arguments for";
        check("RESTORE k 0", &format!("{arity} 'restore' command"));
        check("DUMP; DUMP k k", &format!("{arity} 'dump' command; {arity} 'dump' command"));
    }

    fn effect(script: &str) -> Effect {
        let mut bench = Bench::new(Protocol::Resp2);
        bench.env.now_ms = 1_000_000;
        let calls = split(&with_hello(script));
        calls.iter().map(|call| bench.call(call.as_args()).1).last().unwrap()
    }

    #[test]
    fn effects_hold_at_any_time() {
        assert_eq!(effect("RESTORE k 0 H"), Effect::AsGiven);
        assert_eq!(effect("RESTORE k 2000000 H ABSTTL"), Effect::AsGiven);
        let call = split(&with_hello("RESTORE k 1000500 H REPLACE ABSTTL"));
        let call = call[0].as_args().iter().map(<[u8]>::to_vec).collect();
        assert_eq!(effect("RESTORE k 500 H REPLACE"), Effect::Rewritten(vec![call]));
        assert_eq!(effect("RESTORE k 1 H ABSTTL"), Effect::None);
        let del = vec![b"DEL".to_vec(), b"k".to_vec()];
        let replaced = effect("SET k v; RESTORE k 1 H ABSTTL REPLACE");
        assert_eq!(replaced, Effect::Rewritten(vec![del]));
    }

    #[test]
    fn events_of_restoring() {
        check_events(
            &with_hello(
                "RESTORE a 0 H; RESTORE a 0 H; RESTORE a 0 H REPLACE; RESTORE a 9000 H REPLACE; \
                 RESTORE a 1 H REPLACE ABSTTL; RESTORE a 1 H REPLACE ABSTTL; RESTORE a 0 x REPLACE",
            ),
            "new a, restore a; ; new a, restore a; new a, restore a; del a; ; ",
        );
    }
}
