//! Server CPU per operation of many commands, at pipeline 16 and with one worker.
//!
//! Each case finds the data it needs, loaded anew.

use anyhow::Result;
use kvasir_harness::server::Server;

use super::memory::knows;
use super::report::Measurement;
use super::shapes::{self, Request, Shape};
use super::{Lab, Target, kv};

const PIPELINE: u32 = 16;
/// Few, since some of these calls return hundreds of elements.
const CALIBRATION: u64 = 1000;
/// Keys that random numbers are drawn from, before scaling.
const KEYS: f64 = 1_000_000.0;

/// A command, and what has to be there.
struct Case {
    name: &'static str,
    /// `R` is a random number, `K` the key of the data.
    call: &'static str,
    data: Option<Data>,
    /// Takes elements away: no more requests than there are.
    consumes: bool,
}

/// One collection: the command that fills it, elements, how many.
struct Data(&'static str, fn(u64, &mut Request), u64);

const R: &str = "__rand_int__";
const K: &str = "key:000000000000";
const MILLION: u64 = 1_000_000;

const fn case(name: &'static str, call: &'static str) -> Case {
    Case { name, call, data: None, consumes: false }
}

const fn on(name: &'static str, call: &'static str, data: Data) -> Case {
    Case { name, call, data: Some(data), consumes: false }
}

const fn taking(name: &'static str, call: &'static str, data: Data) -> Case {
    Case { name, call, data: Some(data), consumes: true }
}

static CASES: [Case; 31] = [
    case("PING", "PING"),
    case("SET", "SET key:R xxx"),
    case("GET", "GET key:R"),
    case("INCR", "INCR counter:R"),
    case("LPUSH", "LPUSH list xxx"),
    case("RPUSH", "RPUSH list xxx"),
    taking("LPOP", "LPOP K", Data("rpush", shapes::member, 3 * MILLION)),
    taking("RPOP", "RPOP K", Data("rpush", shapes::member, 3 * MILLION)),
    case("SADD", "SADD set element:R"),
    case("HSET", "HSET hash element:R xxx"),
    taking("SPOP", "SPOP K", Data("sadd", shapes::member, 3 * MILLION)),
    case("ZADD", "ZADD zset R element:R"),
    taking("ZPOPMIN", "ZPOPMIN K", Data("zadd", shapes::scored_member, 3 * MILLION)),
    on("LRANGE of 100", "LRANGE K 0 99", Data("rpush", shapes::member, 1000)),
    on("LRANGE of 300", "LRANGE K 0 299", Data("rpush", shapes::member, 1000)),
    case("MSET of 10", "MSET k:R x k:R x k:R x k:R x k:R x k:R x k:R x k:R x k:R x k:R x"),
    on("HGETALL of 20 fields", "HGETALL K", Data("hset", shapes::hash_field, 20)),
    on("HSET, 1 million", "HSET K field:R value", Data("hset", shapes::hash_field, MILLION)),
    on("HGET, 1 million", "HGET K field:R", Data("hset", shapes::hash_field, MILLION)),
    on("ZADD, 1 million", "ZADD K R member:R", Data("zadd", shapes::scored_member, MILLION)),
    on("ZRANGE of 10, 1 million", "ZRANGE K 500 509", Data("zadd", shapes::scored_member, MILLION)),
    on("ZRANK, 1 million", "ZRANK K member:R", Data("zadd", shapes::scored_member, MILLION)),
    on("ZINCRBY, 1 million", "ZINCRBY K 1 member:R", Data("zadd", shapes::scored_member, MILLION)),
    on("SADD, 1 million", "SADD K member:R", Data("sadd", shapes::member, MILLION)),
    on("SISMEMBER, 1 million", "SISMEMBER K member:R", Data("sadd", shapes::member, MILLION)),
    on("SINTER of 100", "SINTER K K", Data("sadd", shapes::member, 100)),
    case("XADD", "XADD stream * field value"),
    taking(
        "XREADGROUP",
        "XREADGROUP GROUP g c COUNT 1 STREAMS K >",
        Data("xadd", shapes::entry, MILLION),
    ),
    on(
        "LRANGE of 100, 1 million",
        "LRANGE K 500000 500099",
        Data("rpush", shapes::member, MILLION),
    ),
    case("PFADD", "PFADD hll element:R"),
    on(
        "GEOSEARCH, 100,000",
        "GEOSEARCH K FROMLONLAT 20 40 BYRADIUS 50 km ASC COUNT 10",
        Data("geoadd", shapes::place, 100_000),
    ),
];

pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let server = lab.start(target, 1, &lab.server_core())?;
    let mut measurements = Vec::new();
    for case in CASES.iter().filter(|case| lab.wants(case.name)) {
        let command = case.call.split(' ').next().unwrap_or(case.call);
        if !knows(&mut server.client()?, command)? {
            lab.note(&format!("{} does not know {command}", target.label));
            continue;
        }
        lab.say(&format!("{}: {}", target.label, case.name));
        let count_max = prepare(lab, &server, case)?;
        let keys = (KEYS * lab.scale()).max(1.0) as u64;
        let word = |word: &str| if word == "K" { K.to_string() } else { word.replace('R', R) };
        let call = case.call.split(' ').enumerate().map(|(at, text)| match at {
            0 => text.to_string(),
            _ if text.chars().all(char::is_uppercase) && text.len() > 1 => text.to_string(),
            _ => word(text),
        });
        let load = kv::Load {
            call: call.collect(),
            connections: kv::CONNECTIONS,
            pipeline: PIPELINE,
            keys,
            count_max,
            calibration: CALIBRATION,
            tls_port: None,
        };
        let metrics = kv::measure(lab, &server, &load, &lab.load_core())?;
        measurements.push(Measurement::new("commands", case.name.to_string(), metrics));
    }
    Ok(measurements)
}

/// Empties the server and loads the case's data; returns the most requests that it stands.
fn prepare(lab: &Lab, server: &Server, case: &Case) -> Result<Option<u64>> {
    let mut client = server.client()?;
    client.call(&[b"FLUSHALL"])?;
    let Some(Data(command, element, count)) = &case.data else { return Ok(None) };
    let shape = Shape::one(case.name, *count, command, *element).scaled_if_large(lab.scale());
    shape.load(server.client()?)?;
    if case.call.starts_with("XREADGROUP") {
        client.call(&[b"XGROUP", b"CREATE", K.as_bytes(), b"g", b"0"])?;
    }
    Ok(case.consumes.then_some(shape.elements))
}
