//! Positions on the earth as 52-bit integers, so that near ones have near numbers.
//!
//! Longitude and latitude are each cut into 2^26 steps; the number holds the bits of both in turns,
//! the highest of the longitude first. A prefix of it is a [`Cell`], whose members are one range of
//! numbers: a search in a sorted set looks at the ranges of a few cells ([`Shape::ranges`]).
//!
//! Ranges, constants and the order of computations are Redis's, since scores and printed digits
//! depend on them.

mod shape;

use core::f64::consts::PI;
use core::ops::Range;

pub use shape::Shape;

pub const LONGITUDE_MAX: f64 = 180.0;
/// Where the Mercator projection is a square.
pub const LATITUDE_MAX: f64 = 85.051_128_78;

const STEPS_MAX: u32 = 26;
const HASH_BITS: u32 = 2 * STEPS_MAX;
const EARTH_RADIUS_M: f64 = 6_372_797.560_856;
const RADIANS: f64 = PI / 180.0;

/// Every fifth bit string its digit: all but a, i, l and o.
const DIGITS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
const DIGIT_BITS: u32 = 5;
const TEXT_LEN: usize = 11;

/// A place, in degrees.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Position {
    pub longitude: f64,
    pub latitude: f64,
}

impl Position {
    /// Whether it has a number.
    pub fn is_valid(self) -> bool {
        (-LONGITUDE_MAX..=LONGITUDE_MAX).contains(&self.longitude)
            && (-LATITUDE_MAX..=LATITUDE_MAX).contains(&self.latitude)
    }

    /// The number of a valid position: 52 bits, or at the very edge a 53rd.
    pub fn encode(self) -> u64 {
        Cell::at(self, STEPS_MAX).bits
    }

    /// The middle of the cell that has this number.
    pub fn decode(hash: u64) -> Position {
        let Bounds { min, max } = Cell { bits: hash, steps: STEPS_MAX }.bounds();
        let middle = |min: f64, max: f64, limit: f64| ((min + max) / 2.0).clamp(-limit, limit);
        Position {
            longitude: middle(min.longitude, max.longitude, LONGITUDE_MAX),
            latitude: middle(min.latitude, max.latitude, LATITUDE_MAX),
        }
    }

    /// The text that other programs know as a geohash, for which latitudes go up to the poles. The
    /// last digit would need more bits than there are, and is 0.
    pub fn to_text(self) -> [u8; TEXT_LEN] {
        let hash = interleave(
            step_of(self.latitude, 90.0, STEPS_MAX),
            step_of(self.longitude, LONGITUDE_MAX, STEPS_MAX),
        );
        core::array::from_fn(|digit| {
            let shift = HASH_BITS.checked_sub((digit as u32 + 1) * DIGIT_BITS);
            DIGITS[shift.map_or(0, |shift| hash >> shift & 0x1f) as usize]
        })
    }

    /// The great-circle distance by the haversine formula.
    pub fn distance_m(self, other: Position) -> f64 {
        let v = ((other.longitude * RADIANS - self.longitude * RADIANS) / 2.0).sin();
        if v == 0.0 {
            return latitude_distance_m(self.latitude, other.latitude);
        }
        let (latitude, other_latitude) = (self.latitude * RADIANS, other.latitude * RADIANS);
        let u = ((other_latitude - latitude) / 2.0).sin();
        let a = u * u + latitude.cos() * other_latitude.cos() * v * v;
        2.0 * EARTH_RADIUS_M * a.sqrt().asin()
    }
}

/// The distance along a meridian.
fn latitude_distance_m(one: f64, other: f64) -> f64 {
    EARTH_RADIUS_M * (other * RADIANS - one * RADIANS).abs()
}

/// A part of the earth: what is between two latitudes and two longitudes.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    min: Position,
    max: Position,
}

/// One of the 4^steps equal parts of the earth's map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cell {
    bits: u64,
    steps: u32,
}

impl Cell {
    fn at(position: Position, steps: u32) -> Cell {
        let latitude = step_of(position.latitude, LATITUDE_MAX, steps);
        let longitude = step_of(position.longitude, LONGITUDE_MAX, steps);
        Cell { bits: interleave(latitude, longitude), steps }
    }

    fn bounds(self) -> Bounds {
        let count = (1u64 << self.steps) as f64;
        let start = |step: f64, limit: f64| -limit + step / count * (limit - -limit);
        let (latitude, longitude) = (squeeze(self.bits), squeeze(self.bits >> 1));
        let corner = |beyond: f64| Position {
            longitude: start(f64::from(longitude) + beyond, LONGITUDE_MAX),
            latitude: start(f64::from(latitude) + beyond, LATITUDE_MAX),
        };
        Bounds { min: corner(0.0), max: corner(1.0) }
    }

    /// The cell so many to the east and to the north; beyond an edge the map begins again.
    fn moved(self, east: i32, north: i32) -> Cell {
        let mask = (1u32 << self.steps) - 1;
        let step = |at: u32, by: i32| match by {
            0 => at,
            by => at.wrapping_add_signed(by) & mask,
        };
        let latitude = step(squeeze(self.bits), north);
        let longitude = step(squeeze(self.bits >> 1), east);
        Cell { bits: interleave(latitude, longitude), ..self }
    }

    /// The numbers of the positions in it.
    fn hashes(self) -> Range<u64> {
        let shift = HASH_BITS - 2 * self.steps;
        self.bits << shift..(self.bits + 1) << shift
    }
}

/// Which of 2^steps equal parts of -limit to limit a coordinate is in.
fn step_of(coordinate: f64, limit: f64, steps: u32) -> u32 {
    let offset = (coordinate - -limit) / (limit - -limit);
    (offset * (1u64 << steps) as f64) as u32
}

/// The bits of both in turns; `low` has the lowest one.
fn interleave(low: u32, high: u32) -> u64 {
    spread(low) | spread(high) << 1
}

/// Which bits stay when groups of bits are moved apart, 16 at a time, 8, 4, 2, 1.
const GROUPS: [(u32, u64); 5] = [
    (16, 0x0000_ffff_0000_ffff),
    (8, 0x00ff_00ff_00ff_00ff),
    (4, 0x0f0f_0f0f_0f0f_0f0f),
    (2, 0x3333_3333_3333_3333),
    (1, 0x5555_5555_5555_5555),
];

/// Puts a zero before every bit.
fn spread(bits: u32) -> u64 {
    GROUPS.iter().fold(u64::from(bits), |bits, (by, mask)| (bits | bits << by) & mask)
}

/// Keeps every second bit, from the lowest on.
fn squeeze(bits: u64) -> u32 {
    let groups = GROUPS.iter().rev().zip([0, 1, 2, 4, 8]);
    let bits = groups.fold(bits, |bits, ((_, mask), by)| (bits | bits >> by) & mask);
    (bits | bits >> 16) as u32
}

#[cfg(test)]
mod tests;
