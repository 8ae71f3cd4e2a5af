//! What a search looks for, and where.

use core::ops::Range;

use super::{
    Bounds, Cell, EARTH_RADIUS_M, LATITUDE_MAX, LONGITUDE_MAX, Position, RADIANS, STEPS_MAX,
    latitude_distance_m,
};

/// Half of the map's width.
const MERCATOR_MAX_M: f64 = 20_037_726.37;

/// The centre and its neighbours, east and north, in the order in which Redis searches them.
const NEIGHBOURS: [(i32, i32); 9] =
    [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];

/// A part of the earth to be searched.
#[derive(Clone, PartialEq, Debug)]
pub enum Shape {
    Circle {
        center: Position,
        radius_m: f64,
    },
    /// Up to half of the width to the east and west, and half of the height to the north and south,
    /// both in units of `unit_m` metres.
    Box {
        center: Position,
        width: f64,
        height: f64,
        unit_m: f64,
    },
    /// Straight on the map; never across the date line.
    Polygon {
        center: Position,
        vertices: Vec<Position>,
    },
}

impl Shape {
    /// A polygon of at least three vertices; its centre is the mean of them in space.
    pub fn polygon(vertices: Vec<Position>) -> Shape {
        // Their sum has the direction of their mean; to divide it would round once more.
        let (mut x, mut y, mut z) = (0.0, 0.0, 0.0);
        for vertex in &vertices {
            let (longitude, latitude) = (vertex.longitude * RADIANS, vertex.latitude * RADIANS);
            x += latitude.cos() * longitude.cos();
            y += latitude.cos() * longitude.sin();
            z += latitude.sin();
        }
        let center = Position {
            longitude: y.atan2(x) / RADIANS,
            latitude: z.atan2((x * x + y * y).sqrt()) / RADIANS,
        };
        Shape::Polygon { center, vertices }
    }

    pub fn center(&self) -> Position {
        match self {
            Shape::Circle { center, .. }
            | Shape::Box { center, .. }
            | Shape::Polygon { center, .. } => *center,
        }
    }

    /// The distance of a position from the centre in metres, if the shape contains it.
    pub fn distance_m(&self, position: Position) -> Option<f64> {
        let center = self.center();
        let distance_m = || center.distance_m(position);
        match self {
            Shape::Circle { radius_m, .. } => {
                let distance_m = distance_m();
                // Not the same as `<=` where the distance is no number.
                let is_outside = distance_m > *radius_m;
                (!is_outside).then_some(distance_m)
            }
            Shape::Box { width, height, unit_m, .. } => {
                let height_m = latitude_distance_m(position.latitude, center.latitude);
                if height_m > height * unit_m / 2.0 {
                    return None;
                }
                let beside = Position { latitude: position.latitude, ..center };
                let is_outside = position.distance_m(beside) > width * unit_m / 2.0;
                (!is_outside).then(distance_m)
            }
            Shape::Polygon { vertices, .. } => is_within(vertices, position).then(distance_m),
        }
    }

    /// Ranges of numbers that together have all positions of the shape, and others, in the order in
    /// which Redis searches them. A huge shape may have a range twice.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        let (center, bounds) = (self.center(), self.bounds());
        let mut cell = Cell::at(center, steps(self.radius_m(&bounds), center.latitude));
        if cell.steps > 1 && !reaches(cell, &bounds) {
            cell = Cell::at(center, cell.steps - 1);
        }
        let area = cell.bounds();
        let is_needed = move |&(east, north): &(i32, i32)| {
            cell.steps < 2
                || !(north < 0 && area.min.latitude < bounds.min.latitude
                    || north > 0 && area.max.latitude > bounds.max.latitude
                    || east < 0 && area.min.longitude < bounds.min.longitude
                    || east > 0 && area.max.longitude > bounds.max.longitude)
        };
        // On a coarse map neighbours on both sides are the same cell.
        let mut last = None;
        let is_new = move |neighbour: &Cell| {
            let is_new = last != Some(*neighbour);
            last = (*neighbour != cell).then_some(*neighbour);
            is_new
        };
        NEIGHBOURS
            .into_iter()
            .filter(is_needed)
            .map(move |(east, north)| cell.moved(east, north))
            .filter(is_new)
            .map(Cell::hashes)
    }

    /// How far a position of it can be from the centre.
    fn radius_m(&self, bounds: &Bounds) -> f64 {
        match self {
            Shape::Circle { radius_m, .. } => *radius_m,
            Shape::Box { width, height, unit_m, .. } => {
                (width / 2.0 * (width / 2.0) + height / 2.0 * (height / 2.0)).sqrt() * unit_m
            }
            Shape::Polygon { center, .. } => {
                let corners = [bounds.min, bounds.max].map(|one| {
                    [bounds.min, bounds.max].map(|other| {
                        let latitude = other.latitude;
                        center.distance_m(Position { longitude: one.longitude, latitude })
                    })
                });
                corners.as_flattened().iter().copied().fold(0.0, f64::max)
            }
        }
    }

    pub(super) fn bounds(&self) -> Bounds {
        match self {
            Shape::Circle { center, radius_m } => bounds_around(*center, *radius_m, *radius_m),
            Shape::Box { center, width, height, unit_m } => {
                bounds_around(*center, unit_m * width / 2.0, unit_m * height / 2.0)
            }
            Shape::Polygon { vertices, .. } => bounds_of(vertices),
        }
    }
}

/// What is within `width_m` to the east and west and `height_m` to the north and south. A degree of
/// longitude is shortest at the side nearer to a pole, so that side decides how many it takes.
fn bounds_around(center: Position, width_m: f64, height_m: f64) -> Bounds {
    let Position { longitude, latitude } = center;
    let latitude_delta = height_m / EARTH_RADIUS_M / RADIANS;
    let longitude_delta =
        |latitude: f64| width_m / EARTH_RADIUS_M / (latitude * RADIANS).cos() / RADIANS;
    let longitude_delta = if latitude < 0.0 {
        longitude_delta(latitude - latitude_delta)
    } else {
        longitude_delta(latitude + latitude_delta)
    };
    Bounds {
        min: Position {
            longitude: longitude - longitude_delta,
            latitude: latitude - latitude_delta,
        },
        max: Position {
            longitude: longitude + longitude_delta,
            latitude: latitude + latitude_delta,
        },
    }
}

fn bounds_of(vertices: &[Position]) -> Bounds {
    let edge = Position { longitude: LONGITUDE_MAX, latitude: LATITUDE_MAX };
    let opposite = Position { longitude: -LONGITUDE_MAX, latitude: -LATITUDE_MAX };
    vertices.iter().fold(Bounds { min: edge, max: opposite }, |Bounds { min, max }, vertex| {
        Bounds {
            min: Position {
                longitude: min.longitude.min(vertex.longitude),
                latitude: min.latitude.min(vertex.latitude),
            },
            max: Position {
                longitude: max.longitude.max(vertex.longitude),
                latitude: max.latitude.max(vertex.latitude),
            },
        }
    })
}

/// How fine a map to search: its cells are at least as large as the radius, nearly everywhere.
fn steps(mut radius_m: f64, latitude: f64) -> u32 {
    if radius_m == 0.0 {
        return STEPS_MAX;
    }
    let mut steps = -1;
    while radius_m < MERCATOR_MAX_M {
        radius_m *= 2.0;
        steps += 1;
    }
    // Cells get narrow towards the poles.
    steps -= i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    steps.clamp(1, STEPS_MAX as i32) as u32
}

/// Whether a cell and its neighbours cover all of the bounds.
fn reaches(cell: Cell, bounds: &Bounds) -> bool {
    let north = cell.moved(0, 1).bounds().max.latitude;
    let south = cell.moved(0, -1).bounds().min.latitude;
    let east = cell.moved(1, 0).bounds().max.longitude;
    let west = cell.moved(-1, 0).bounds().min.longitude;
    !(north < bounds.max.latitude
        || south > bounds.min.latitude
        || east < bounds.max.longitude
        || west > bounds.min.longitude)
}

/// Whether a ray from the position to the east crosses the polygon's sides an odd number of times:
/// W. R. Franklin, "PNPOLY".
fn is_within(vertices: &[Position], position: Position) -> bool {
    let before = vertices.iter().cycle().skip(vertices.len() - 1);
    let crossings = vertices.iter().zip(before).filter(|(a, b)| {
        let spans = (a.latitude > position.latitude) != (b.latitude > position.latitude);
        let height = position.latitude - a.latitude;
        let side = (b.longitude - a.longitude) * height / (b.latitude - a.latitude) + a.longitude;
        spans && position.longitude < side
    });
    crossings.count() % 2 == 1
}
