//! Searching a circle, as before 6.2: GEORADIUS, GEORADIUSBYMEMBER, and what of them only reads.

use kvasir_resp::args::Args;

use super::number::{LATITUDE, LONGITUDE, UNITS};
use super::query::{Form, Parser};
use super::run::run;
use crate::command::{Command, Cx, Run};
use crate::effect::Effect;
use crate::error::Error;
use crate::place::DbIndex;
use crate::plan::KeyAt;
use crate::sorted_set_value;
use crate::spec::{Argument, ArgumentKind, Begin, Find, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] =
    &[&GEORADIUS, &GEORADIUS_RO, &GEORADIUSBYMEMBER, &GEORADIUSBYMEMBER_RO];

const RADIUS: Argument = Argument::new("radius", ArgumentKind::Double);
const UNIT: Argument = Argument::one_of("unit", UNITS);
const WITH_POSITION: Argument = Argument::word("withcoord", "WITHCOORD").optional();
const WITH_DISTANCE: Argument = Argument::word("withdist", "WITHDIST").optional();
const WITH_HASH: Argument = Argument::word("withhash", "WITHHASH").optional();
const COUNT_WORD: Argument = Argument::integer("count").token("COUNT");
const ANY: Argument = Argument::word("any", "ANY").optional();
const COUNT: Argument = Argument::block("count", &[COUNT_WORD, ANY.since("6.2.0")]).optional();
const COUNT_BY_MEMBER: Argument = Argument::block("count", &[COUNT_WORD, ANY]).optional();
const ORDER: Argument =
    Argument::one_of("order", &[Argument::word("asc", "ASC"), Argument::word("desc", "DESC")])
        .optional();
const STORE: Argument = Argument::key("key", 1).token("STORE").optional();
const STORE_DISTANCES: Argument = Argument::key("key", 2).token("STOREDIST").optional();

const COMPLEXITY: &str = "O(N + log(M)) where N is the number of members near the circle and M the \
                          number of members of the sorted set.";
const ANY_CAME: (&str, &str) = ("6.2.0", "New option `ANY` of `COUNT`.");
const UPPER_CASE_CAME: (&str, &str) = ("7.0.0", "Units may be in upper case.");

const READS: KeySpec = KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS));

/// The key behind a word, which stands at argument `from` or later.
const fn stores_behind(word: &'static str, from: i32) -> KeySpec {
    KeySpec {
        flags: KeyFlags::OW.union(KeyFlags::UPDATE),
        notes: None,
        begin: Begin::Keyword { word, from },
        find: Find::Range { last: 0, step: 1, limit: 0 },
    }
}

static GEORADIUS: Command = Command {
    spec: Spec {
        name: "georadius",
        summary: "Returns the members around a place, or stores them as another sorted set.",
        since: "3.2.0",
        group: Group::Geo,
        complexity: COMPLEXITY,
        arity: -6,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::MOVABLEKEYS),
        keys: &[READS, stores_behind("STORE", 6), stores_behind("STOREDIST", 6)],
        history: &[ANY_CAME, UPPER_CASE_CAME],
        deprecated: Some((
            "6.2.0",
            "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument",
        )),
        arguments: &[
            Argument::key("key", 0),
            LONGITUDE,
            LATITUDE,
            RADIUS,
            UNIT,
            WITH_POSITION,
            WITH_DISTANCE,
            WITH_HASH,
            COUNT,
            ORDER,
            STORE,
            STORE_DISTANCES,
        ],
        ..Spec::BLANK
    },
    run: Run::Planned(
        |cx| by_position(cx, Form::Radius),
        |_, args, db, keys| plan(args, db, BY_POSITION_OPTIONS, keys),
    ),
};

static GEORADIUS_RO: Command = Command {
    spec: Spec {
        name: "georadius_ro",
        summary: "Returns the members around a place.",
        since: "3.2.10",
        group: Group::Geo,
        complexity: COMPLEXITY,
        arity: -6,
        flags: Flags::READONLY,
        keys: &[READS],
        history: &[ANY_CAME],
        deprecated: Some(("6.2.0", "`GEOSEARCH` with the `BYRADIUS` argument")),
        arguments: &[
            Argument::key("key", 0),
            LONGITUDE,
            LATITUDE,
            RADIUS,
            UNIT,
            WITH_POSITION,
            WITH_DISTANCE,
            WITH_HASH,
            COUNT,
            ORDER,
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| by_position(cx, Form::RadiusReadOnly)),
};

static GEORADIUSBYMEMBER: Command = Command {
    spec: Spec {
        name: "georadiusbymember",
        summary: "Returns the members around one of them, or stores them as another sorted set.",
        since: "3.2.0",
        group: Group::Geo,
        complexity: COMPLEXITY,
        arity: -5,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::MOVABLEKEYS),
        keys: &[READS, stores_behind("STORE", 5), stores_behind("STOREDIST", 5)],
        history: &[UPPER_CASE_CAME],
        deprecated: Some((
            "6.2.0",
            "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments",
        )),
        arguments: &[
            Argument::key("key", 0),
            Argument::string("member"),
            RADIUS,
            UNIT,
            WITH_POSITION,
            WITH_DISTANCE,
            WITH_HASH,
            COUNT_BY_MEMBER,
            ORDER,
            STORE,
            STORE_DISTANCES,
        ],
        ..Spec::BLANK
    },
    run: Run::Planned(
        |cx| by_member(cx, Form::Radius),
        |_, args, db, keys| plan(args, db, BY_MEMBER_OPTIONS, keys),
    ),
};

static GEORADIUSBYMEMBER_RO: Command = Command {
    spec: Spec {
        name: "georadiusbymember_ro",
        summary: "Returns the members around one of them.",
        since: "3.2.10",
        group: Group::Geo,
        complexity: COMPLEXITY,
        arity: -5,
        flags: Flags::READONLY,
        keys: &[READS],
        deprecated: Some(("6.2.0", "`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments")),
        arguments: &[
            Argument::key("key", 0),
            Argument::string("member"),
            RADIUS,
            UNIT,
            WITH_POSITION,
            WITH_DISTANCE,
            WITH_HASH,
            COUNT_BY_MEMBER,
            ORDER,
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| by_member(cx, Form::RadiusReadOnly)),
};

/// The argument from which on options stand.
const BY_POSITION_OPTIONS: usize = 6;
const BY_MEMBER_OPTIONS: usize = 5;

/// The sorted set, and the key behind the last STORE or STOREDIST: of several that one counts.
fn plan(args: Args<'_>, db: DbIndex, options: usize, keys: &mut Vec<KeyAt>) -> Result<(), Error> {
    keys.push(KeyAt::new(args, 1, db));
    let (mut at, mut destination) = (options, None);
    while at + 1 < args.len() {
        let stores =
            [&b"store"[..], b"storedist"].iter().any(|word| args[at].eq_ignore_ascii_case(word));
        if stores {
            destination = Some(at + 1);
        }
        let takes_word = stores || args[at].eq_ignore_ascii_case(b"count");
        at += if takes_word { 2 } else { 1 };
    }
    keys.extend(destination.map(|at| KeyAt::new(args, at, db)));
    Ok(())
}

fn by_position(cx: &mut Cx<'_, '_>, form: Form) -> Result<Effect, Error> {
    let set = sorted_set_value::read(&mut cx.view, 0)?;
    let mut parser = Parser::new(set, form);
    parser.read_circle(cx.args.from(2))?;
    let finished = parser.finish(cx.args.from(BY_POSITION_OPTIONS), cx.args.name())?;
    run(cx, finished, 0, 1, "georadiusstore")
}

fn by_member(cx: &mut Cx<'_, '_>, form: Form) -> Result<Effect, Error> {
    let set = sorted_set_value::read(&mut cx.view, 0)?;
    let mut parser = Parser::new(set, form);
    parser.read_circle_by_member(cx.args.from(2))?;
    let finished = parser.finish(cx.args.from(BY_MEMBER_OPTIONS), cx.args.name())?;
    run(cx, finished, 0, 1, "georadiusstore")
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::Effect;
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check_valkey, check3, split};

    const GRID: &str = "GEOADD g 1 1 a 1.001 1.001 b 2 2 c";
    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn georadius() {
        for name in ["GEORADIUS", "georadius_ro"] {
            let script = format!(
                "{GRID}; {name} g 1 1 500 km; {name} g 1 1 1 km WITHDIST DESC; \
                 {name} g 1 1 500 km COUNT 1 DESC WITHHASH; {name} g 1 1 500 km COUNT 2 ANY; \
                 {name} no 1 1 1 km; {name} g 1 1 1 m WITHCOORD WITHDIST WITHHASH"
            );
            let start = ":3; [$a $b $c]; [[$b $0.1572] [$a $0.0001]]; [[$c :3378191666521995]]; \
                         [$a $b]; []; [[$a $0.0605 :3377822707026402";
            check(&script, &format!("{start} [$0.99999994039535522 $0.99999945914297683]]]"));
            check3(&script, &format!("{start} [,0.9999999403953552 ,0.9999994591429768]]]"));
        }
    }

    #[test]
    fn georadiusbymember() {
        for name in ["GEORADIUSBYMEMBER", "georadiusbymember_ro"] {
            check(
                &format!(
                    "{GRID}; {name} g a 500 km; {name} g a 100 km COUNT 2 DESC WITHDIST; \
                     {name} no a 1 m; {name} no x y z; {name} no x y z foo; {name} no x y z ASC"
                ),
                ":3; [$a $b $c]; [[$b $0.1572] [$a $0.0000]]; []; []; -ERR syntax error; []",
            );
        }
    }

    #[test]
    fn storing() {
        check(
            &format!(
                "{GRID}; GEORADIUS g 1 1 500 km STORE d; ZRANGE d 0 -1; \
                 GEORADIUS g 1 1 500 km STOREDIST d \
                 ASC COUNT 2; ZRANGE d 0 -1; GEORADIUSBYMEMBER g c 1 km STORE d; ZRANGE d 0 -1; \
                 GEORADIUS no 1 1 1 km STORE d; EXISTS d; GEORADIUS g 1 1 1 km STORE g; ZCARD g"
            ),
            ":3; :3; [$a $b $c]; :2; [$a $b]; :1; [$c]; :0; :0; :2; :2",
        );
        check(
            &format!(
                "{GRID}; GEORADIUS g 1 1 500 km STORE d STORE e; EXISTS d e; TYPE e; \
                 GEORADIUS g 1 1 500 km STOREDIST f STORE h; EXISTS f h; \
                 GEORADIUS g 1 1 500 km COUNT 1 STORE store; ZCARD store; \
                 GEORADIUSBYMEMBER g a 1 m STOREDIST storedist; ZSCORE storedist a"
            ),
            ":3; :3; :1; +zset; :3; :1; :1; :1; :1; $0",
        );
    }

    #[test]
    fn refuses() {
        let (syntax, options) = (
            "-ERR syntax error",
            "-ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and \
             WITHCOORD options",
        );
        check(
            &format!(
                "{GRID}; GEORADIUS g 1 1 500 km STORE d WITHDIST; \
                 GEORADIUSBYMEMBER g a 5 km WITHHASH STOREDIST d; \
                 GEORADIUS_RO g 1 1 1 km STORE d; GEORADIUSBYMEMBER_RO g a 1 km STOREDIST d; \
                 GEORADIUS g 1 1 500 km STORE d COUNT store; GEORADIUS g 1 1 500 km STORE; \
                 GEORADIUS g 1 1 5 km ANY; GEORADIUS g 1 1 5 km FROMMEMBER a; \
                 GEORADIUS g 1 1 5 km foo; EXISTS d"
            ),
            &format!(
                ":3; {options}; {options}; {syntax}; {syntax}; \
                 -ERR value is not an integer or out of range; {syntax}; \
                 -ERR the ANY argument requires COUNT argument; {syntax}; {syntax}; :0"
            ),
        );
        check(
            "GEORADIUS n x 1 1 m; GEORADIUS n 1 1 x m; GEORADIUS n 1 1 -1 m; \
             GEORADIUS n 1 1 1 foo; \
             GEORADIUS n 200 1 1 m; GEORADIUS n 1 1 1; GEORADIUSBYMEMBER n 1 1",
            "-ERR value is not a valid float; -ERR need numeric radius; \
             -ERR radius cannot be negative; \
             -ERR unsupported unit provided. please use M, KM, FT, MI; \
             -ERR invalid longitude,latitude pair 200.000000,1.000000; \
             -ERR wrong number of arguments for 'georadius' command; \
             -ERR wrong number of arguments for 'georadiusbymember' command",
        );
        check(
            &format!(
                "SET s v; GEORADIUS s x y z m; GEORADIUSBYMEMBER s a b c; {GRID}; \
                 GEORADIUSBYMEMBER g a x m; GEORADIUSBYMEMBER g a 1 x"
            ),
            &format!(
                "+OK; {WRONG_TYPE}; {WRONG_TYPE}; :3; -ERR need numeric radius; \
                 -ERR unsupported unit provided. please use M, KM, FT, MI"
            ),
        );
        check_valkey(
            &format!("{GRID}; GEORADIUSBYMEMBER g zz x m"),
            ":3; -ERR member zz does not exist",
        );
    }

    #[test]
    fn the_log_gets_what_changed() {
        let mut bench = Bench::new(Protocol::Resp2);
        let steps = [
            (GRID, Effect::AsGiven),
            ("GEORADIUS g 1 1 5 km", Effect::None),
            ("GEORADIUS g 1 1 5 km STORE d", Effect::AsGiven),
            ("GEORADIUS g 9 9 5 km STORE d", Effect::AsGiven),
            ("GEORADIUS g 9 9 5 km STORE d", Effect::None),
            ("GEOSEARCHSTORE d g FROMMEMBER a BYRADIUS 1 m", Effect::AsGiven),
            ("GEOSEARCHSTORE d no FROMMEMBER a BYRADIUS 1 m", Effect::AsGiven),
            ("GEOSEARCHSTORE d no FROMMEMBER a BYRADIUS 1 m", Effect::None),
        ];
        for (call, effect) in steps {
            assert_eq!(bench.call(split(call)[0].as_args()).1, effect, "{call}");
        }
    }

    #[test]
    fn events_of_storing() {
        check_events(
            "GEOADD g 1 1 a 2 2 b; GEORADIUS g 0 0 900 km STORE d; GEORADIUS g 0 0 1 m STORE d; \
             GEORADIUSBYMEMBER g a 900 km STOREDIST d; GEORADIUS none 0 0 1 m STORE d; GEORADIUS \
             none 0 0 1 m STORE d; GEORADIUS_RO none 0 0 1 m; GEORADIUS none 0 0 1 km; \
             GEORADIUSBYMEMBER none a 1 km; GEORADIUSBYMEMBER_RO none a 1 km",
            "new g, zadd g; new d, georadiusstore d; del d; new d, georadiusstore d; keymiss \
             none, del d; keymiss none; keymiss none; keymiss none; keymiss none; keymiss none",
        );
    }
}
