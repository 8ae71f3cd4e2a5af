//! Positions against Redis's numbers, and searches against looking at everything.

use proptest::prelude::*;

use super::*;

const PALERMO: Position = Position { longitude: 13.361389, latitude: 38.115556 };
const CATANIA: Position = Position { longitude: 15.087269, latitude: 37.502669 };

#[test]
fn numbers_texts_and_distances_are_those_of_redis() {
    assert_eq!(PALERMO.encode(), 3_479_099_956_230_698);
    assert_eq!(CATANIA.encode(), 3_479_447_370_796_909);
    let palermo = Position::decode(PALERMO.encode());
    assert_eq!((palermo.longitude, palermo.latitude), (13.361389338970184, 38.1155563954963));
    assert_eq!(&palermo.to_text(), b"sqc8b49rny0");
    let catania = Position::decode(CATANIA.encode());
    assert_eq!(&catania.to_text(), b"sqdtr74hyu0");
    assert_eq!(format!("{:.4}", palermo.distance_m(catania)), "166274.1516");
    let north = Position { latitude: 39.0, ..palermo };
    assert_eq!(format!("{:.1}", palermo.distance_m(north)), "98373.4");
}

#[test]
fn the_edges_of_the_map() {
    let corner = Position { longitude: LONGITUDE_MAX, latitude: LATITUDE_MAX };
    assert_eq!(Position::decode(corner.encode()), corner);
    assert!(corner.is_valid());
    assert!(!Position { longitude: 180.1, ..corner }.is_valid());
    assert!(!Position { latitude: -86.0, ..corner }.is_valid());
    assert!(!Position { latitude: f64::NAN, ..corner }.is_valid());
}

#[test]
fn a_polygon_has_what_is_inside() {
    let at = |longitude, latitude| Position { longitude, latitude };
    // An L.
    let vertices =
        vec![at(0.0, 0.0), at(4.0, 0.0), at(4.0, 2.0), at(2.0, 2.0), at(2.0, 4.0), at(0.0, 4.0)];
    let shape = Shape::polygon(vertices);
    for inside in [at(1.0, 1.0), at(3.0, 1.0), at(1.0, 3.0)] {
        assert!(shape.distance_m(inside).is_some(), "{inside:?}");
    }
    for outside in [at(3.0, 3.0), at(-1.0, 1.0), at(5.0, 1.0), at(1.0, 5.0)] {
        assert_eq!(shape.distance_m(outside), None);
    }
}

/// To the last digit, which GEOSEARCHSTORE with STOREDIST stores; the figures are Valkey's.
#[test]
fn the_centre_of_a_polygon_is_that_of_valkey() {
    let at = |&(longitude, latitude): &(f64, f64)| Position { longitude, latitude };
    let vertices = [
        (-153.719502, 23.556179),
        (-3.944426, 61.891489),
        (-9.641335, -45.88667),
        (47.676461, -37.144884),
        (47.427714, -83.186147),
        (-57.180383, 29.454019),
        (-30.464423, -83.662506),
        (174.219483, -55.64415),
    ];
    let shape = Shape::polygon(vertices.iter().map(at).collect());
    let distance_m = |place| shape.distance_m(Position::decode(at(&place).encode()));
    assert_eq!(distance_m((-17.096386, -39.651555)), Some(2922410.4328170065));
    assert_eq!(distance_m((12.068625, -37.813829)), Some(4138203.5488795773));
}

fn position(longitude_max: f64, latitude_max: f64) -> impl Strategy<Value = Position> {
    (-longitude_max..=longitude_max, -latitude_max..=latitude_max)
        .prop_map(|(longitude, latitude)| Position { longitude, latitude })
}

/// A circle or a box of so many metres, away from the poles and the date line, where Redis's search
/// misses some.
fn shape() -> impl Strategy<Value = Shape> {
    let size = || (1.0..6.0f64).prop_map(|exponent| 10f64.powf(exponent));
    prop_oneof![
        (position(150.0, 60.0), size())
            .prop_map(|(center, radius_m)| Shape::Circle { center, radius_m }),
        (position(150.0, 60.0), size(), size()).prop_map(|(center, width, height)| Shape::Box {
            center,
            width,
            height,
            unit_m: 1.0
        }),
        prop::collection::vec(position(5.0, 5.0), 3..8).prop_map(Shape::polygon),
    ]
}

proptest! {
    #[test]
    fn decoding_finds_the_place_again(position in position(LONGITUDE_MAX, LATITUDE_MAX)) {
        let decoded = Position::decode(position.encode());
        prop_assert!(position.distance_m(decoded) < 1.0);
        prop_assert_eq!(Position::decode(decoded.encode()), decoded);
    }

    #[test]
    fn spreading_and_squeezing(bits: u32, other: u32) {
        prop_assert_eq!(squeeze(interleave(bits, other)), bits);
        prop_assert_eq!(squeeze(interleave(bits, other) >> 1), other);
        let spread_out = (0..32).fold(0, |sum, bit| sum | u64::from(bits >> bit & 1) << (2 * bit));
        prop_assert_eq!(spread(bits), spread_out);
    }

    #[test]
    fn steps_there_and_back(position in position(179.0, 85.0), steps in 2..=26u32) {
        let cell = Cell::at(position, steps);
        for (east, north) in [(1, 0), (-1, 0), (0, 1), (0, -1), (1, -1)] {
            prop_assert_eq!(cell.moved(east, north).moved(-east, -north), cell);
        }
        prop_assert!(cell.hashes().contains(&position.encode()));
    }

    #[test]
    fn the_ranges_have_every_position_of_a_shape(
        shape in shape(),
        offsets in prop::collection::vec((-1.0..1.0f64, -1.0..1.0f64), 50),
    ) {
        let (center, Bounds { min, max }) = (shape.center(), shape.bounds());
        let ranges: Vec<_> = shape.ranges().collect();
        prop_assert!(ranges.len() <= NEIGHBOURS_MAX);
        let reach = |middle: f64, min: f64, max: f64, part: f64| {
            if part < 0.0 { middle + part * (middle - min) } else { middle + part * (max - middle) }
        };
        for (east, north) in offsets {
            let position = Position {
                longitude: reach(center.longitude, min.longitude, max.longitude, east),
                latitude: reach(center.latitude, min.latitude, max.latitude, north),
            };
            let hash = position.encode();
            if shape.distance_m(Position::decode(hash)).is_some() {
                prop_assert!(ranges.iter().any(|range| range.contains(&hash)), "{position:?}");
            }
        }
    }
}

const NEIGHBOURS_MAX: usize = 9;
