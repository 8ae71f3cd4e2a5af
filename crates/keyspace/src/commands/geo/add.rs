//! Adding positions: GEOADD.

use kvasir_resp::args::Args;

use super::number::{LATITUDE, LONGITUDE, position};
use crate::command::{Command, Cx, Run};
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::sorted_set_value::{self, Expected};
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&GEOADD];

static GEOADD: Command = Command {
    spec: Spec {
        name: "geoadd",
        summary: "Adds members with their positions to a sorted set, or moves those that it has.",
        since: "3.2.0",
        group: Group::Geo,
        complexity: "O(log(N)) for each member given, where N is the size of the sorted set.",
        arity: -5,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::UPDATE))],
        history: &[("6.2.0", "New options `CH`, `NX` and `XX`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::one_of(
                "condition",
                &[Argument::word("nx", "NX"), Argument::word("xx", "XX")],
            )
            .since("6.2.0")
            .optional(),
            Argument::word("change", "CH").since("6.2.0").optional(),
            Argument::block(
                "longitude_latitude_member",
                &[LONGITUDE, LATITUDE, Argument::string("member")],
            )
            .multiple(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(geoadd),
};

/// GEOADD's options.
#[derive(Clone, Copy, Default)]
struct Options {
    only_new: bool,
    only_old: bool,
    counts_changes: bool,
}

impl Options {
    /// The options, and what stands behind them.
    fn parse(args: Args<'_>) -> (Options, Args<'_>) {
        let mut options = Options::default();
        for (at, word) in args.iter().enumerate() {
            match &word.to_ascii_lowercase()[..] {
                b"nx" => options.only_new = true,
                b"xx" => options.only_old = true,
                b"ch" => options.counts_changes = true,
                _ => return (options, args.from(at)),
            }
        }
        (options, args.from(args.len()))
    }
}

fn geoadd(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let (options, triples) = Options::parse(cx.args.from(2));
    let is_contradictory = options.only_new && options.only_old;
    if triples.is_empty() || triples.len() % 3 != 0 || is_contradictory {
        return Err(Error::SYNTAX);
    }
    let triples = (0..triples.len()).step_by(3).map(|at| triples.from(at));
    let scores: Vec<f64> = triples
        .clone()
        .map(|triple| Ok(position(triple)?.encode() as f64))
        .collect::<Result<_, Error>>()?;
    let members = triples.map(|triple| triple.get(2).unwrap_or_default());
    let expected = Expected {
        entries: scores.len(),
        member_len_max: members.clone().map(<[u8]>::len).max().unwrap_or(0),
    };
    let (mut added, mut updated) = (0, 0);
    sorted_set_value::edit(&mut cx.view, 0, expected, |set| {
        for (member, score) in members.zip(scores) {
            set.update(member, |old| match old {
                None if options.only_old => None,
                Some(old) if options.only_new || old == score => None,
                None => {
                    added += 1;
                    Some(score)
                }
                Some(_) => {
                    updated += 1;
                    Some(score)
                }
            });
        }
    })?;
    if added + updated > 0 {
        cx.view.changed(0, Class::SORTED_SET, "zadd");
    }
    cx.reply.integer(added + if options.counts_changes { updated } else { 0 });
    Ok(Effect::given_if(added + updated > 0))
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::Effect;
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, split};

    #[test]
    fn geoadd() {
        check(
            "GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania; TYPE g; \
             ZRANGE g 0 -1 WITHSCORES; GEOADD g 13.361389 38.115556 Palermo 1 2 x; \
             OBJECT ENCODING g",
            ":2; +zset; [$Palermo $3479099956230698 $Catania $3479447370796909]; :1; $listpack",
        );
        check(
            "GEOADD g -180 -85.05112878 s 180 85.05112878 n 0 0 o; ZRANGE g 0 -1 WITHSCORES",
            ":3; [$s $0 $o $3377699720527872 $n $13510798882111488]",
        );
        let long = "x".repeat(65);
        check(&format!("GEOADD g 1 1 {long}; OBJECT ENCODING g"), ":1; $skiplist");
    }

    #[test]
    fn geoadd_under_conditions() {
        check(
            "GEOADD g XX 1 2 a; EXISTS g; GEOADD g NX 1 2 a; GEOADD g nx ch 3 3 a; \
             GEOADD g CH 1 2.1 a; \
             GEOADD g ch 1 2.1 a; GEOADD g xx ch 1 3 a 1 2 b; ZCARD g; GEOADD g NX NX CH 1 1 b",
            ":0; :0; :1; :0; :1; :0; :1; :1; :1",
        );
    }

    #[test]
    fn geoadd_refuses() {
        let (syntax, not_float) = ("-ERR syntax error", "-ERR value is not a valid float");
        check(
            "GEOADD g NX XX 1 2 a; GEOADD g 1 2 a 3; GEOADD g nx 1 2; GEOADD g ch ch ch; \
             GEOADD g foo 1 2 a; GEOADD g gt 1 2 a; GEOADD g 1 2",
            &format!(
                "{syntax}; {syntax}; {syntax}; {syntax}; {syntax}; {syntax}; \
                 -ERR wrong number of arguments for 'geoadd' command"
            ),
        );
        check(
            "GEOADD g x 2 a; GEOADD g 1 y a; GEOADD g nan 1 a; GEOADD g 1e400 1 a; \
             GEOADD g ' 1' 1 a; \
             GEOADD g 1 1 a 1 x b; EXISTS g",
            &format!(
                "{not_float}; {not_float}; {not_float}; {not_float}; {not_float}; {not_float}; :0"
            ),
        );
        let pair = "-ERR invalid longitude,latitude pair";
        check(
            "GEOADD g 181 2 a; GEOADD g -1 86.5 a; GEOADD g inf 1 a; GEOADD g 1 -inf a; \
             GEOADD g 1e20 0 a",
            &format!(
                "{pair} 181.000000,2.000000; {pair} -1.000000,86.500000; {pair} inf,1.000000; \
                 {pair} 1.000000,-inf; {pair} 100000000000000000000.000000,0.000000"
            ),
        );
        check(
            "SET s v; GEOADD s 1 1 a; GEOADD s 1 100 a",
            &format!(
                "+OK; -WRONGTYPE Operation against a key holding the wrong kind of value; \
                 {pair} 1.000000,100.000000"
            ),
        );
    }

    #[test]
    fn the_log_gets_what_changed() {
        let mut bench = Bench::new(Protocol::Resp2);
        let steps = [
            ("GEOADD g XX 1 1 a", Effect::None),
            ("GEOADD g 1 1 a", Effect::AsGiven),
            ("GEOADD g 1 1 a", Effect::None),
            ("GEOADD g 2 1 a", Effect::AsGiven),
            ("GEOADD g NX 1 1 a", Effect::None),
        ];
        for (call, effect) in steps {
            assert_eq!(bench.call(split(call)[0].as_args()).1, effect, "{call}");
        }
    }

    #[test]
    fn events_of_adding() {
        check_events(
            "GEOADD g 1 1 a 2 2 b; GEOADD g 1 1 a; GEOADD g XX 3 3 a; GEOADD g NX 3 3 a; GEOADD \
             none XX 1 1 a; GEOADD g CH 3 3 a 4 4 c",
            "new g, zadd g; ; zadd g; ; ; zadd g",
        );
    }
}
