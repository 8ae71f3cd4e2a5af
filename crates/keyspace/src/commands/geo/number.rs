//! Coordinates, units and distances, as they are read and written.

use kvasir_resp::args::Args;
use kvasir_resp::number::parse_double;
use kvasir_resp::reply::{Protocol, Reply};
use kvasir_structures::geohash::Position;

use crate::error::Error;
use crate::spec::{Argument, ArgumentKind};

/// The arguments that name a unit.
pub const UNITS: &[Argument] = &[
    Argument::word("m", "M"),
    Argument::word("km", "KM"),
    Argument::word("ft", "FT"),
    Argument::word("mi", "MI"),
];

/// The arguments that name a place.
pub const LONGITUDE: Argument = Argument::new("longitude", ArgumentKind::Double);
pub const LATITUDE: Argument = Argument::new("latitude", ArgumentKind::Double);

/// Reads a longitude and a latitude.
pub fn position(words: Args<'_>) -> Result<Position, Error> {
    let coordinate = |word: usize| parse_double(&words[word]).ok_or(Error::NOT_FLOAT);
    let position = Position { longitude: coordinate(0)?, latitude: coordinate(1)? };
    if !position.is_valid() {
        let Position { longitude, latitude } = position;
        return Err(Error::new(format!(
            "ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}"
        )));
    }
    Ok(position)
}

/// The length of a unit in metres.
pub fn unit_m(word: &[u8]) -> Result<f64, Error> {
    let units: [(&[u8], f64); 4] =
        [(b"m", 1.0), (b"km", 1000.0), (b"ft", 0.3048), (b"mi", 1609.34)];
    let unit = units.iter().find(|(name, _)| word.eq_ignore_ascii_case(name));
    let unknown = Error::fixed("ERR unsupported unit provided. please use M, KM, FT, MI");
    unit.map(|(_, metres)| *metres).ok_or(unknown)
}

/// The number that a score stands for. Scores that ZADD set are cut off to 64 bits as a C cast does
/// it on x86, which is what Redis shows.
pub fn hash_of(score: f64) -> u64 {
    const HALF: f64 = (1u64 << 63) as f64;
    if score < HALF {
        score as i64 as u64
    } else if score < 2.0 * HALF {
        score as u64
    } else {
        0
    }
}

/// A distance in any unit, with four digits behind the point.
pub fn write_distance(distance: f64, reply: &mut Reply) {
    reply.bulk(format!("{distance:.4}").as_bytes());
}

/// Longitude and latitude.
pub fn write_position(position: Position, reply: &mut Reply) {
    reply.array(2);
    for coordinate in [position.longitude, position.latitude] {
        let text = coordinate_text(coordinate);
        match reply.protocol() {
            Protocol::Resp2 => reply.bulk(text.as_bytes()),
            Protocol::Resp3 => reply.raw(format!(",{text}\r\n").as_bytes()),
        }
    }
}

/// Up to 17 digits behind the point, without zeros at the end.
fn coordinate_text(coordinate: f64) -> String {
    let text = format!("{coordinate:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}
