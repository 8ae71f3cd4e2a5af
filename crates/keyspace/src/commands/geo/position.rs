//! Asking for positions: GEOPOS, GEOHASH, GEODIST.

use kvasir_structures::geohash::Position;

use super::number::{UNITS, hash_of, unit_m, write_distance, write_position};
use crate::command::{Command, Cx, Run};
use crate::effect::Effect;
use crate::error::Error;
use crate::sorted_set_value::{self, SortedSet};
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&GEOPOS, &GEOHASH, &GEODIST];

const READS: &[KeySpec] = &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))];

static GEOPOS: Command = Command {
    spec: Spec {
        name: "geopos",
        summary: "Returns longitude and latitude of members.",
        since: "3.2.0",
        group: Group::Geo,
        complexity: "O(1) for each member given.",
        arity: -2,
        flags: Flags::READONLY,
        keys: READS,
        arguments: &[Argument::key("key", 0), Argument::string("member").multiple()],
        ..Spec::BLANK
    },
    run: Run::Keys(geopos),
};

fn geopos(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let set = sorted_set_value::read(&mut cx.view, 0)?;
    let members = cx.args.from(2);
    cx.reply.array(members.len());
    for member in members.iter() {
        match position_of(set, member) {
            Some(position) => write_position(position, cx.reply),
            None => cx.reply.null_array(),
        }
        if cx.reply.is_cut() {
            break;
        }
    }
    Ok(Effect::None)
}

static GEOHASH: Command = Command {
    spec: Spec {
        name: "geohash",
        summary: "Returns the positions of members as geohash texts.",
        since: "3.2.0",
        group: Group::Geo,
        complexity: "O(1) for each member given.",
        arity: -2,
        flags: Flags::READONLY,
        keys: READS,
        arguments: &[Argument::key("key", 0), Argument::string("member").multiple()],
        ..Spec::BLANK
    },
    run: Run::Keys(geohash),
};

fn geohash(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let set = sorted_set_value::read(&mut cx.view, 0)?;
    let members = cx.args.from(2);
    cx.reply.array(members.len());
    for member in members.iter() {
        match position_of(set, member) {
            Some(position) => cx.reply.bulk(&position.to_text()),
            None => cx.reply.null(),
        }
        if cx.reply.is_cut() {
            break;
        }
    }
    Ok(Effect::None)
}

static GEODIST: Command = Command {
    spec: Spec {
        name: "geodist",
        summary: "Returns the distance between two members.",
        since: "3.2.0",
        group: Group::Geo,
        complexity: "O(1)",
        arity: -4,
        flags: Flags::READONLY,
        keys: READS,
        arguments: &[
            Argument::key("key", 0),
            Argument::string("member1"),
            Argument::string("member2"),
            Argument::one_of("unit", UNITS).optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(geodist),
};

fn geodist(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let unit_m = match cx.args.get(4) {
        _ if cx.args.len() > 5 => return Err(Error::SYNTAX),
        Some(unit) => unit_m(unit)?,
        None => 1.0,
    };
    let set = sorted_set_value::read(&mut cx.view, 0)?;
    let ends = [2, 3].map(|member| position_of(set, &cx.args[member]));
    match ends {
        [Some(one), Some(other)] => write_distance(one.distance_m(other) / unit_m, cx.reply),
        _ => cx.reply.null(),
    }
    Ok(Effect::None)
}

/// Where a member is, if it is there.
pub fn position_of(set: Option<SortedSet<'_>>, member: &[u8]) -> Option<Position> {
    set?.score(member).map(|score| Position::decode(hash_of(score)))
}

#[cfg(test)]
mod tests {
    use crate::testing::events::check_events;
    use crate::testing::{check, check3};

    const SICILY: &str = "GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania";
    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn geopos() {
        let palermo = "13.36138933897018433 $38.11555639549629859";
        check(
            &format!("{SICILY}; GEOPOS g Palermo no Catania; GEOPOS g; GEOPOS no a b; GEOPOS no"),
            &format!(
                ":2; [[${palermo}] _ [$15.08726745843887329 $37.50266842333162032]]; []; [_ _]; []"
            ),
        );
        check3(
            &format!("{SICILY}; GEOPOS g Palermo no; GEOADD g 180 -85 z 0 0 o; GEOPOS g z o"),
            ":2; [[,13.361389338970184 ,38.1155563954963] _]; :2; \
             [[,180 ,-85.00000218685555] [,0.00000268220901489 ,0.00000126736058093]]",
        );
        check(
            "SET s v; GEOPOS s a; GEOPOS",
            &format!("+OK; {WRONG_TYPE}; -ERR wrong number of arguments for 'geopos' command"),
        );
    }

    #[test]
    fn scores_that_are_no_positions() {
        check(
            "ZADD g -5 neg 1.5 frac 1e300 big inf inf -inf minf 9007199254740993 x; \
             GEOPOS g neg frac big inf minf x; GEOHASH g neg frac big inf minf x; \
             GEODIST g neg big",
            ":6; [[$180 $85.0511287799999991] [$-179.99999731779098511 $-85.05112497791824921] \
             [$-179.99999731779098511 $-85.05112751263942528] \
             [$-179.99999731779098511 $-85.05112751263942528] [$180 $-85.05112751263942528] \
             [$180 $-85.05112751263942528]]; \
             [$bp05b5048p0 $00bh0hbj210 $00bh0hbj200 $00bh0hbj200 $00bh0hbj200 $00bh0hbj200]; \
             $18919844.5891",
        );
    }

    #[test]
    fn geohash() {
        let script = format!("{SICILY}; GEOHASH g Palermo no Catania; GEOHASH g; GEOHASH no a");
        check(&script, ":2; [$sqc8b49rny0 _ $sqdtr74hyu0]; []; [_]");
        check3(&script, ":2; [$sqc8b49rny0 _ $sqdtr74hyu0]; []; [_]");
        check("SET s v; GEOHASH s a", &format!("+OK; {WRONG_TYPE}"));
    }

    #[test]
    fn geodist() {
        check(
            &format!(
                "{SICILY}; GEODIST g Palermo Catania; GEODIST g Palermo Catania km; \
                 GEODIST g Catania Palermo MI; GEODIST g Palermo Catania ft; \
                 GEODIST g Palermo Palermo"
            ),
            ":2; $166274.1516; $166.2742; $103.3182; $545518.8700; $0.0000",
        );
        check3(
            &format!("{SICILY}; GEODIST g Palermo Catania; GEODIST g no Catania"),
            ":2; $166274.1516; _",
        );
        let unit = "-ERR unsupported unit provided. please use M, KM, FT, MI";
        check(
            "GEODIST no a b; GEODIST no a b foo; GEODIST no a b m x; GEODIST no a; SET s v; \
             GEODIST s a b; GEODIST s a b foo",
            &format!(
                "_; {unit}; -ERR syntax error; \
                 -ERR wrong number of arguments for 'geodist' command; \
                 +OK; {WRONG_TYPE}; {unit}"
            ),
        );
    }

    #[test]
    fn misses_are_events() {
        check_events("GEODIST k a b; GEOHASH k a; GEOPOS k a", "keymiss k; keymiss k; keymiss k");
    }
}
