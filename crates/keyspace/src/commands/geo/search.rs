//! Searching a circle, a box or a polygon: GEOSEARCH, GEOSEARCHSTORE.

use super::number::{LATITUDE, LONGITUDE, UNITS};
use super::query::{Form, Parser};
use super::run::run;
use crate::command::{Command, Cx, Run};
use crate::effect::Effect;
use crate::error::Error;
use crate::sorted_set_value;
use crate::spec::{Argument, ArgumentKind, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&GEOSEARCH, &GEOSEARCHSTORE];

const FROM: Argument = Argument::one_of(
    "from",
    &[
        Argument::string("member").token("FROMMEMBER"),
        Argument::block("fromlonlat", &[LONGITUDE, LATITUDE]).token("FROMLONLAT"),
    ],
)
.optional();

const BY: Argument = Argument::one_of(
    "by",
    &[
        Argument::block(
            "circle",
            &[
                Argument::new("radius", ArgumentKind::Double).token("BYRADIUS"),
                Argument::one_of("unit", UNITS),
            ],
        ),
        Argument::block(
            "box",
            &[
                Argument::new("width", ArgumentKind::Double).token("BYBOX"),
                Argument::new("height", ArgumentKind::Double),
                Argument::one_of("unit", UNITS),
            ],
        ),
        Argument::block(
            "polygon",
            &[
                Argument::integer("num-vertices").token("BYPOLYGON"),
                Argument::block("vertices", &[LONGITUDE, LATITUDE]).multiple(),
            ],
        )
        .since("9.0.0"),
    ],
);

const ORDER: Argument =
    Argument::one_of("order", &[Argument::word("asc", "ASC"), Argument::word("desc", "DESC")])
        .optional();

const COUNT: Argument = Argument::block(
    "count-block",
    &[Argument::integer("count").token("COUNT"), Argument::word("any", "ANY").optional()],
)
.optional();

const COMPLEXITY: &str = "O(N + log(M)) where N is the number of members near the shape and M the \
                          number of those in it.";
const HISTORY: &[(&str, &str)] =
    &[("7.0.0", "Units may be in upper case."), ("9.0.0", "New option `BYPOLYGON`.")];

static GEOSEARCH: Command = Command {
    spec: Spec {
        name: "geosearch",
        summary: "Returns the members in a circle, a box or a polygon.",
        since: "6.2.0",
        group: Group::Geo,
        complexity: COMPLEXITY,
        arity: -7,
        flags: Flags::READONLY,
        keys: &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))],
        history: HISTORY,
        arguments: &[
            Argument::key("key", 0),
            FROM,
            BY,
            ORDER,
            COUNT,
            Argument::word("withcoord", "WITHCOORD").optional(),
            Argument::word("withdist", "WITHDIST").optional(),
            Argument::word("withhash", "WITHHASH").optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(geosearch),
};

fn geosearch(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let set = sorted_set_value::read(&mut cx.view, 0)?;
    let finished = Parser::new(set, Form::Search).finish(cx.args.from(2), cx.args.name())?;
    run(cx, finished, 0, 0, "geosearchstore")
}

static GEOSEARCHSTORE: Command = Command {
    spec: Spec {
        name: "geosearchstore",
        summary: "Stores the members in a circle, a box or a polygon as another sorted set.",
        since: "6.2.0",
        group: Group::Geo,
        complexity: COMPLEXITY,
        arity: -8,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[
            KeySpec::range(KeyFlags::OW.union(KeyFlags::UPDATE), 1, 0, 1),
            KeySpec::range(KeyFlags::RO.union(KeyFlags::ACCESS), 2, 0, 1),
        ],
        history: HISTORY,
        arguments: &[
            Argument::key("destination", 0),
            Argument::key("source", 1),
            FROM,
            BY,
            ORDER,
            COUNT,
            Argument::word("storedist", "STOREDIST").optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(geosearchstore),
};

fn geosearchstore(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let set = sorted_set_value::read(&mut cx.view, 1)?;
    let finished = Parser::new(set, Form::SearchStore).finish(cx.args.from(3), cx.args.name())?;
    run(cx, finished, 1, 0, "geosearchstore")
}

#[cfg(test)]
mod tests {
    use crate::testing::events::check_events;
    use crate::testing::{check, check_valkey, check3, compare};

    const SICILY: &str = "GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania";
    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn circles_and_boxes() {
        check(
            &format!(
                "{SICILY}; GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km ASC; \
                 GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km DESC; \
                 GEOSEARCH g FROMMEMBER Palermo BYBOX 400 400 km desc; \
                 GEOSEARCH g frommember Palermo bybox 300 400 km; \
                 GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 100000 FT; \
                 GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km COUNT 1; \
                 GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km COUNT 1 ANY; \
                 GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km any count 1 DESC; \
                 GEOSEARCH no FROMLONLAT 15 37 BYRADIUS 200 km; \
                 GEOSEARCH no FROMMEMBER a BYBOX 1 1 m"
            ),
            ":2; [$Catania $Palermo]; [$Palermo $Catania]; [$Catania $Palermo]; [$Palermo]; []; \
             [$Catania]; [$Palermo]; [$Palermo]; []; []",
        );
        check(
            "GEOADD g 1 1 a 2 2 b; GEOSEARCH g FROMLONLAT 1 1 BYRADIUS inf km; \
             GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 0 km; GEOSEARCH g FROMMEMBER a BYRADIUS 0 m; \
             GEOSEARCH g FROMMEMBER a FROMMEMBER b BYRADIUS 1 m; \
             GEOSEARCH g FROMMEMBER a BYRADIUS 1 m BYRADIUS 500 km; \
             GEOSEARCH g FROMLONLAT 9 9 FROMLONLAT 1 1 BYBOX 1 1 m BYBOX 100000 100000 ft",
            ":2; [$a $b]; []; [$a]; [$b]; [$a $b]; [$a]",
        );
    }

    #[test]
    fn what_is_replied_beside_members() {
        let script = format!(
            "{SICILY}; \
             GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km ASC WITHCOORD WITHDIST WITHHASH; \
             GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km ASC WITHDIST COUNT 1; \
             GEOSEARCH g FROMMEMBER Palermo BYRADIUS 1 mi WITHHASH"
        );
        check(
            &script,
            ":2; [[$Catania $56.4413 :3479447370796909 \
             [$15.08726745843887329 $37.50266842333162032]] \
             [$Palermo $190.4424 :3479099956230698 \
             [$13.36138933897018433 $38.11555639549629859]]]; \
             [[$Catania $56.4413]]; [[$Palermo :3479099956230698]]",
        );
        check3(
            &script,
            ":2; [[$Catania $56.4413 :3479447370796909 [,15.087267458438873 ,37.50266842333162]] \
             [$Palermo $190.4424 :3479099956230698 [,13.361389338970184 ,38.1155563954963]]]; \
             [[$Catania $56.4413]]; [[$Palermo :3479099956230698]]",
        );
    }

    /// A grid over the whole earth, searched from many places, poles and date line included.
    #[test]
    fn everywhere_on_earth() {
        let mut members = Vec::new();
        for longitude in (-180..=180).step_by(15) {
            for latitude in (-85..=85).step_by(10) {
                members.push(format!("{longitude} {latitude} m{longitude}:{latitude}"));
            }
        }
        let mut script = format!("GEOADD g {}", members.join(" "));
        for (longitude, latitude) in
            [(0.0, 0.0), (-179.9, 12.5), (180.0, -85.0), (33.3, 81.0), (-70.0, -67.0), (7.5, 45.0)]
        {
            for size in [1, 500, 1_500, 5_000, 12_000, 25_000] {
                let from = format!("GEOSEARCH g FROMLONLAT {longitude} {latitude}");
                script += &format!("; {from} BYRADIUS {size} km WITHDIST");
                script += &format!("; {from} BYBOX {size} {} km", size / 2);
                script += &format!("; {from} BYBOX {size} {size} mi DESC COUNT 9");
            }
        }
        let replies = compare(&script);
        assert!(replies.iter().any(|reply| reply.len() > 5_000));
    }

    /// Whose turn it is among members at the same distance.
    #[test]
    fn ties() {
        let members: Vec<_> = (0..120).map(|n| format!("{} 1 m{n}", n * 7 % 5)).collect();
        let mut script = format!("GEOADD g {}", members.join(" "));
        for count in [1, 2, 5, 6, 7, 8, 23, 24, 25, 40, 41, 80, 119, 120, 121] {
            for order in ["ASC", "DESC", "ANY", "ANY DESC"] {
                script +=
                    &format!("; GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 500 km COUNT {count} {order}");
            }
        }
        compare(&script);
        let few: Vec<_> = (0..40).map(|n| format!("{} 1 m{n}", n % 3)).collect();
        let few = few.join(" ");
        compare(&format!("GEOADD g {few}; GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 500 km COUNT 20"));
    }

    #[test]
    fn polygons() {
        let square = "BYPOLYGON 4 0 0 4 0 4 4 0 4";
        check_valkey(
            &format!(
                "GEOADD g 1 1 a 3 3 b 5 5 c; GEOSEARCH g {square}; \
                 GEOSEARCH g {square} DESC WITHDIST; \
                 GEOSEARCH g {square} WITHDIST WITHCOORD COUNT 1; GEOSEARCH no {square}; \
                 GEOSEARCH g BYPOLYGON 3 4 4 6 4 5 6.5 WITHDIST; \
                 GEOSEARCHSTORE d g {square} STOREDIST; ZRANGE d 0 -1; \
                 GEOSEARCH g BYPOLYGON 3 0 0 1 0 0 1 {square}"
            ),
            ":3; [$a $b]; [[$a $157365.6639] [$b $157126.1036]]; \
             [[$b $157126.1036 [$2.99999982118606567 $3.00000091215010656]]]; []; \
             [[$c $18489.8304]]; :2; [$b $a]; [$a $b]",
        );
        let few = "-ERR GEOSEARCH BYPOLYGON must have at least 3 vertices";
        let syntax = "-ERR syntax error";
        check_valkey(
            "GEOADD g 1 1 a; GEOSEARCH g BYPOLYGON 2 0 0 5 0; GEOSEARCH g BYPOLYGON 4 0 0 5 0 5 5; \
             GEOSEARCH g BYPOLYGON -1 0 0 5 0 5 5; GEOSEARCH g BYPOLYGON x 0 0 5 0 5 5; \
             GEOSEARCH g BYPOLYGON 3 0 0 5 0 5 95; \
             GEOSEARCH g BYPOLYGON 3 0 0 5 0 5 5 BYRADIUS 1 m; \
             GEOSEARCH g FROMMEMBER a BYPOLYGON 3 0 0 5 0 5 5; \
             GEOSEARCH g FROMLONLAT 1 1 BYPOLYGON 3 0 0 5 0 5 5; \
             GEOSEARCH g BYPOLYGON 3 0 0 5 0 5 5 FROMLONLAT 1 1; \
             GEOSEARCH g BYPOLYGON 3 0 0 5 0 5 5 9 9; \
             GEOSEARCH g BYBOX 1 1 m BYPOLYGON 3 0 0 5 0 5 5",
            &format!(
                ":1; {few}; {few}; {few}; -ERR invalid number of vertices; \
                 -ERR invalid longitude,latitude pair 5.000000,95.000000; {syntax}; {syntax}; \
                 {syntax}; \
                 {syntax}; {syntax}; {syntax}"
            ),
        );
    }

    #[test]
    fn geosearchstore() {
        check(
            &format!(
                "{SICILY}; GEOSEARCHSTORE d g FROMLONLAT 15 37 BYRADIUS 200 km; \
                 ZRANGE d 0 -1 WITHSCORES; \
                 GEOSEARCHSTORE d g FROMLONLAT 15 37 BYRADIUS 200 km COUNT 1 STOREDIST; ZCARD d; \
                 OBJECT ENCODING d; EXPIRE d 100; \
                 GEOSEARCHSTORE d g FROMLONLAT 15 37 BYRADIUS 200 km; \
                 TTL d; GEOSEARCHSTORE d g FROMLONLAT 0 0 BYRADIUS 1 m; EXISTS d"
            ),
            ":2; :2; [$Palermo $3479099956230698 $Catania $3479447370796909]; :1; :1; $listpack; \
             :1; :2; \
             :-1; :0; :0",
        );
        check_valkey(
            &format!(
                "{SICILY}; GEOSEARCHSTORE d g FROMLONLAT 15 37 BYRADIUS 200 km STOREDIST; \
                 ZRANGE d 0 -1 WITHSCORES"
            ),
            ":2; :2; [$Catania $56.4412578701582 $Palermo $190.44242984775784]",
        );
        check(
            "GEOADD g 1 1 a 2 2 b; GEOSEARCHSTORE g g FROMMEMBER a BYRADIUS 1 m; ZRANGE g 0 -1; \
             SET s v; GEOSEARCHSTORE s g FROMMEMBER a BYRADIUS 1 m; TYPE s; SET s v; \
             GEOSEARCHSTORE s no FROMMEMBER a BYRADIUS 1 m; EXISTS s",
            ":2; :1; [$a]; +OK; :1; +zset; +OK; :0; :0",
        );
    }

    #[test]
    fn refuses_shapes() {
        let unit = "-ERR unsupported unit provided. please use M, KM, FT, MI";
        check(
            "GEOSEARCH n FROMLONLAT 1 2 BYRADIUS 1 foo; GEOSEARCH n FROMLONLAT 1 2 BYRADIUS -1 m; \
             GEOSEARCH n FROMLONLAT 1 2 BYRADIUS x m; GEOSEARCH n FROMLONLAT 1 2 BYBOX -1 1 m; \
             GEOSEARCH n FROMLONLAT 1 2 BYBOX 1 -1 m; GEOSEARCH n FROMLONLAT 1 2 BYBOX 1 x m; \
             GEOSEARCH n FROMLONLAT 1 2 BYBOX x 1 m; GEOSEARCH n FROMLONLAT 1 2 BYBOX 1 1 x; \
             GEOSEARCH n FROMLONLAT 181 2 BYRADIUS 1 m; GEOSEARCH n FROMLONLAT 1 x BYRADIUS 1 m",
            &format!(
                "{unit}; -ERR radius cannot be negative; -ERR need numeric radius; \
                 -ERR height or width cannot be negative; -ERR height or width cannot be negative; \
                 -ERR need numeric height; -ERR need numeric width; {unit}; \
                 -ERR invalid longitude,latitude pair 181.000000,2.000000; \
                 -ERR value is not a valid float"
            ),
        );
        let syntax = "-ERR syntax error";
        check(
            "GEOSEARCH n FROMLONLAT 1 2 FROMMEMBER x BYRADIUS 1 m; \
             GEOSEARCH n FROMMEMBER x FROMLONLAT 1 2 BYRADIUS 1 m; \
             GEOSEARCH n FROMLONLAT 1 2 BYRADIUS 1 m BYBOX 1 1 m; \
             GEOSEARCH n FROMLONLAT 1 2 BYBOX 1 1 m BYRADIUS 1 m; \
             GEOSEARCH n FROMLONLAT 1 2 BYRADIUS 1; GEOSEARCH n BYRADIUS 1 m FROMLONLAT 1; \
             GEOSEARCH n FROMLONLAT 1 2 BYBOX 1 1; \
             GEOSEARCH n ASC BYRADIUS 1 m FROMMEMBER; GEOSEARCH n FROMLONLAT 1 2",
            &format!(
                "{syntax}; {syntax}; {syntax}; {syntax}; {syntax}; \
                 {syntax}; {syntax}; {syntax}; \
                 -ERR wrong number of arguments for 'geosearch' command"
            ),
        );
    }

    #[test]
    fn refuses_options() {
        let syntax = "-ERR syntax error";
        check(
            "GEOSEARCH n FROMLONLAT 1 2 BYRADIUS 1 m COUNT 0; \
             GEOSEARCH n FROMLONLAT 1 2 BYRADIUS 1 m COUNT x; \
             GEOSEARCH n FROMLONLAT 1 2 BYRADIUS 1 m COUNT; \
             GEOSEARCH n FROMLONLAT 1 2 BYRADIUS 1 m ANY; \
             GEOSEARCH n FROMLONLAT 1 2 BYRADIUS 1 m STORE x; \
             GEOSEARCH n FROMLONLAT 1 2 BYRADIUS 1 m STOREDIST; \
             GEOSEARCHSTORE d n FROMLONLAT 1 2 BYRADIUS 1 m STORE x; \
             GeoSearch n BYRADIUS 1 m ASC DESC; \
             GEOSEARCHSTORE d g FROMLONLAT 1 1 BYRADIUS 5 km WITHDIST; \
             GEOSEARCH n FROMLONLAT 1 2 BYRADIUS 1 m foo",
            &format!(
                "-ERR COUNT must be > 0; -ERR value is not an integer or out of range; {syntax}; \
                 -ERR the ANY argument requires COUNT argument; {syntax}; {syntax}; {syntax}; \
                 -ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for GeoSearch; \
                 -ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and \
                 WITHCOORD options; \
                 {syntax}"
            ),
        );
        check(
            "SET s v; GEOSEARCH s foo bar baz qux quux; \
             GEOSEARCHSTORE d s FROMLONLAT 1 1 BYRADIUS 5 km",
            &format!("+OK; {WRONG_TYPE}; {WRONG_TYPE}"),
        );
        // Redis 7.0 has other words for both.
        check_valkey(
            "GEOADD g 1 1 a; GEOSEARCH g FROMMEMBER zz BYRADIUS 1 foo; \
             GEOSEARCH n FROMLONLAT 1 1 COUNT 1 ANY",
            ":1; -ERR member zz does not exist; \
             -ERR exactly one of BYRADIUS, BYBOX and BYPOLYGON can be specified for GEOSEARCH",
        );
    }

    #[test]
    fn events_of_storing() {
        check_events(
            "GEOADD g 1 1 a 2 2 b; GEOSEARCHSTORE d g FROMLONLAT 0 0 BYRADIUS 900 km; \
             GEOSEARCHSTORE d g FROMLONLAT 0 0 BYRADIUS 900 km STOREDIST; GEOSEARCHSTORE d g \
             FROMLONLAT 0 0 BYRADIUS 1 m; GEOSEARCHSTORE d g FROMLONLAT 0 0 BYRADIUS 1 m; \
             GEOSEARCHSTORE d none FROMLONLAT 0 0 BYRADIUS 1 m; GEOSEARCH none FROMLONLAT 0 0 \
             BYRADIUS 1 m",
            "new g, zadd g; new d, geosearchstore d; geosearchstore d; del d; ; keymiss none; \
             keymiss none",
        );
        // The key comes before the words that are wrong.
        check_events(
            "GEOSEARCH none FROMLONLAT 0 0 BYRADIUS 1; GEORADIUS none 0 x 1 m",
            "keymiss none; keymiss none",
        );
    }
}
