//! Letting entries go at the beginning of a stream: XTRIM, and the options that XADD shares.

use kvasir_resp::args::Args;
use kvasir_structures::stream::{Trim, TrimTo};

use crate::command::{Command, Cx, Run};
use crate::commands::options::integer;
use crate::commands::stream::id;
use crate::commands::stream::references::{REFERENCES, References, trim};
use crate::effect::{Effect, call};
use crate::error::Error;
use crate::event::Class;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::stream_value;
use crate::view::Env;

pub static COMMANDS: &[&Command] = &[&XTRIM];

const STRATEGY: Argument = Argument::one_of(
    "strategy",
    &[Argument::word("maxlen", "MAXLEN"), Argument::word("minid", "MINID").since("6.2.0")],
);
const OPERATOR: Argument = Argument::one_of(
    "operator",
    &[Argument::word("equal", "="), Argument::word("approximately", "~")],
)
.optional();
const THRESHOLD: Argument = Argument::string("threshold");
const LIMIT: Argument = Argument::integer("count").token("LIMIT").since("6.2.0").optional();

/// How COMMAND DOCS describes the trimming that XADD does.
pub const TRIM: Argument =
    Argument::block("trim", &[STRATEGY, OPERATOR, THRESHOLD, LIMIT]).optional();

static XTRIM: Command = Command {
    spec: Spec {
        name: "xtrim",
        summary: "Lets entries go at the beginning of a stream.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(N) where N is the number of entries that go; with `~` whole nodes of many \
                     entries go at once.",
        arity: -4,
        flags: Flags::WRITE,
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::DELETE))],
        tips: &["nondeterministic_output"],
        history: &[
            ("6.2.0", "Knows `MINID` and `LIMIT`."),
            ("8.2.0", "Knows `KEEPREF`, `DELREF` and `ACKED`."),
        ],
        arguments: &[
            Argument::key("key", 0),
            Argument::block("trim", &[STRATEGY, OPERATOR, THRESHOLD, LIMIT, REFERENCES]),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(xtrim),
};

fn xtrim(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let options = TrimOptions::parse(cx.args, false)?;
    let how = options
        .trim(cx.view.env)?
        .ok_or(Error::fixed("ERR syntax error, XTRIM must be called with a trimming strategy"))?;
    let references = options.references.unwrap_or(References::Keep);
    let trimmed = stream_value::change(&mut cx.view, 0, |stream| trim(stream, how, references))?;
    let trimmed = trimmed.filter(|trimmed| trimmed.count > 0);
    cx.reply.integer(trimmed.as_ref().map_or(0, |trimmed| trimmed.count as i64));
    let Some(trimmed) = trimmed else { return Ok(Effect::None) };
    cx.view.changed(0, Class::STREAM, "xtrim");
    // How many go with `~` depends on how entries lie in nodes.
    if !how.is_approximate && options.references.is_none() {
        return Ok(Effect::AsGiven);
    }
    let mut calls = Vec::new();
    if cx.view.env.logs {
        calls.push([call(&[b"XTRIM", cx.view.key(0)]), trimmed.words()].concat());
        calls.extend(trimmed.acknowledgements(cx.view.key(0)));
    }
    Ok(Effect::Rewritten(calls))
}

/// The options before XADD's id, or all of XTRIM's.
#[derive(Default)]
pub struct TrimOptions {
    to: Option<TrimTo>,
    is_approximate: bool,
    limit: Option<u64>,
    pub references: Option<References>,
    pub no_mkstream: bool,
    /// The first argument that is none of them.
    pub end: usize,
}

impl TrimOptions {
    /// Reads the options; before XADD's id, any other word ends them.
    pub fn parse(args: Args<'_>, is_xadd: bool) -> Result<TrimOptions, Error> {
        let mut options = TrimOptions { end: 2, ..TrimOptions::default() };
        while let Some(word) = args.get(options.end) {
            let next = args.get(options.end + 1);
            match (word.to_ascii_lowercase().as_slice(), next) {
                (b"*", _) if is_xadd => break,
                (b"maxlen", Some(_)) => options.strategy(args, |text| {
                    let len = u64::try_from(integer(text)?);
                    let negative = Error::fixed("ERR The MAXLEN argument must be >= 0.");
                    Ok(TrimTo::Len(len.map_err(|_| negative)?))
                })?,
                (b"minid", Some(_)) => {
                    options.strategy(args, |text| Ok(TrimTo::Id(id::id(text, 0)?)))?;
                }
                (b"limit", Some(limit)) => {
                    let negative = Error::fixed("ERR The LIMIT argument must be >= 0.");
                    options.limit = Some(u64::try_from(integer(limit)?).map_err(|_| negative)?);
                    options.end += 2;
                }
                (b"nomkstream", _) if is_xadd => {
                    options.no_mkstream = true;
                    options.end += 1;
                }
                (word, _) => match References::from_word(word) {
                    given @ Some(_) if options.references.is_none() => {
                        options.references = given;
                        options.end += 1;
                    }
                    _ if is_xadd => break,
                    _ => return Err(Error::SYNTAX),
                },
            }
        }
        Ok(options)
    }

    fn strategy(
        &mut self,
        args: Args<'_>,
        to: impl Fn(&[u8]) -> Result<TrimTo, Error>,
    ) -> Result<(), Error> {
        if self.to.is_some() {
            return Err(Error::fixed(
                "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
            ));
        }
        let operator = args.get(self.end + 1).unwrap_or_default();
        let has_operator = matches!(operator, b"~" | b"=") && args.len() > self.end + 2;
        self.is_approximate = has_operator && operator == b"~";
        let threshold = self.end + 1 + usize::from(has_operator);
        self.to = Some(to(&args[threshold])?);
        self.end = threshold + 1;
        Ok(())
    }

    /// How to trim, if at all.
    pub fn trim(&self, env: &Env) -> Result<Option<Trim>, Error> {
        let Some(to) = self.to else {
            return match self.limit {
                Some(1..) => Err(Error::fixed(
                    "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
                )),
                _ => Ok(None),
            };
        };
        let limit = match self.limit {
            Some(_) if !self.is_approximate => {
                return Err(Error::fixed(
                    "ERR syntax error, LIMIT cannot be used without the special ~ option",
                ));
            }
            Some(limit) => Some(limit).filter(|limit| *limit > 0),
            None => self.is_approximate.then(|| default_limit(env)),
        };
        Ok(Some(Trim { to, is_approximate: self.is_approximate, limit }))
    }
}

/// What `~` lets go at once where no LIMIT is given: a hundred full nodes.
fn default_limit(env: &Env) -> u64 {
    match 100u64.saturating_mul(env.stream_node_entries_max as u64) {
        0 => 10_000,
        limit => limit.min(1_000_000),
    }
}

pub fn decimal(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use crate::effect::{Effect, call};
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, split};
    use kvasir_resp::reply::Protocol;

    const FIVE: &str = "XADD s 1-1 a 1; XADD s 2-1 a 2; XADD s 3-1 a 3; XADD s 4-1 a 4; \
                        XADD s 5-1 a 5";
    const ADDED: &str = "$1-1; $2-1; $3-1; $4-1; $5-1";

    #[test]
    fn to_a_length() {
        check(
            &format!("{FIVE}; XTRIM s MAXLEN 3; XRANGE s - + COUNT 1; XTRIM s MAXLEN 3; XLEN s"),
            &format!("{ADDED}; :2; [[$3-1 [$a $3]]]; :0; :3"),
        );
        check(
            &format!("{FIVE}; XTRIM s MAXLEN = 0; XLEN s; EXISTS s; XADD s 5-1 a 1; XADD s 6 a 1"),
            &format!(
                "{ADDED}; :5; :0; :1; -ERR The ID specified in XADD is equal or smaller than the \
                 target stream top item; $6-0"
            ),
        );
        check("XTRIM s MAXLEN 3; EXISTS s", ":0; :0");
    }

    #[test]
    fn to_an_id() {
        check(
            &format!("{FIVE}; XTRIM s MINID 3; XTRIM s MINID = 4-2; XRANGE s - +; XLEN s"),
            &format!("{ADDED}; :2; :2; [[$5-1 [$a $5]]]; :1"),
        );
        check(
            &format!("{FIVE}; XDEL s 2-1 5-1; XTRIM s MINID 4-1; XTRIM s MINID 9; XLEN s"),
            &format!("{ADDED}; :2; :2; :1; :0"),
        );
    }

    /// 250 entries are three nodes of 100, 100 and 50.
    #[test]
    fn whole_nodes() {
        let many: Vec<String> = (1..=250).map(|id| format!("XADD s {id}-0 a b")).collect();
        let added: Vec<String> = (1..=250).map(|id| format!("${id}-0")).collect();
        let (many, added) = (many.join("; "), added.join("; "));
        check(
            &format!(
                "{many}; XTRIM s MAXLEN ~ 100; XTRIM s MAXLEN ~ 150; XLEN s; XTRIM s MAXLEN 120"
            ),
            &format!("{added}; :100; :0; :150; :30"),
        );
        check(
            &format!("{many}; XTRIM s MAXLEN ~ 0 LIMIT 100; XTRIM s MAXLEN ~ 0 LIMIT 99; XLEN s"),
            &format!("{added}; :100; :0; :150"),
        );
        check(
            &format!(
                "{many}; XTRIM s MINID ~ 150; XTRIM s MINID ~ 202 LIMIT 0; XTRIM s MINID ~ 300"
            ),
            &format!("{added}; :100; :100; :50"),
        );
        check(
            &format!(
                "{many}; XTRIM s MAXLEN 99; XTRIM s MINID ~ 202; XDEL s 203-0; XTRIM s MAXLEN 1"
            ),
            &format!("{added}; :151; :49; :1; :48"),
        );
    }

    #[test]
    fn what_is_wrong() {
        check(
            "XTRIM s MAXLEN; XTRIM s x 1; XTRIM s MAXLEN x; XTRIM s MAXLEN -1; XTRIM s MINID x; \
             XTRIM s MAXLEN 1 2; XTRIM s MAXLEN 1 MINID 1; XTRIM s LIMIT 1; XTRIM s LIMIT 0; \
             XTRIM s MAXLEN = 1 LIMIT 1; XTRIM s MAXLEN ~ 1 LIMIT -1; XTRIM s MAXLEN ~; \
             XTRIM s MINID -; XTRIM s MAXLEN 1 LIMIT",
            "-ERR wrong number of arguments for 'xtrim' command; -ERR syntax error; \
             -ERR value is not an integer or out of range; \
             -ERR The MAXLEN argument must be >= 0.; \
             -ERR Invalid stream ID specified as stream command argument; -ERR syntax error; \
             -ERR syntax error, MAXLEN and MINID options at the same time are not compatible; \
             -ERR syntax error, LIMIT cannot be used without specifying a trimming strategy; \
             -ERR syntax error, XTRIM must be called with a trimming strategy; \
             -ERR syntax error, LIMIT cannot be used without the special ~ option; \
             -ERR The LIMIT argument must be >= 0.; \
             -ERR value is not an integer or out of range; \
             -ERR Invalid stream ID specified as stream command argument; -ERR syntax error",
        );
        check(
            "SET s v; XTRIM s MAXLEN 1",
            "+OK; -WRONGTYPE Operation against a key holding the wrong kind of value",
        );
    }

    #[test]
    fn the_log_says_how_many_stay() {
        let mut bench = Bench::new(Protocol::Resp2);
        bench.env.stream_node_entries_max = 2;
        for step in split(FIVE) {
            bench.call(step.as_args());
        }
        let mut effect = |call: &str| bench.call(split(call)[0].as_args()).1;
        assert_eq!(effect("XTRIM s MAXLEN ~ 4"), Effect::None);
        let rewritten = call(&[b"XTRIM", b"s", b"MAXLEN", b"=", b"3"]);
        assert_eq!(effect("XTRIM s MAXLEN ~ 2"), Effect::Rewritten(vec![rewritten]));
        assert_eq!(effect("XTRIM s MAXLEN 2"), Effect::AsGiven);
    }

    #[test]
    fn events_of_trimming() {
        check_events(
            "XADD s 1-1 f v; XADD s 2-1 f v; XADD s 3-1 f v; XTRIM s MAXLEN 9; XTRIM s MAXLEN 2; \
             XTRIM none MAXLEN 2; XTRIM s MINID 9; XTRIM s MAXLEN ~ 0",
            "new s, xadd s; xadd s; xadd s; ; xtrim s; ; xtrim s; ",
        );
    }
}
