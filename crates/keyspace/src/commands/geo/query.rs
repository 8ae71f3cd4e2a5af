//! What a search looks for: the arguments of GEOSEARCH, GEOSEARCHSTORE and the GEORADIUS family.
//!
//! A member in the arguments is looked up when its turn comes, so that of several errors the reply
//! is Redis's.

use kvasir_resp::args::Args;
use kvasir_resp::number::{parse_double, parse_integer};
use kvasir_structures::geohash::{Position, Shape};

use super::number::{position, unit_m};
use super::position::position_of;
use crate::commands::options::integer;
use crate::error::Error;
use crate::sorted_set_value::{Direction, SortedSet};

/// Which arguments there can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// GEORADIUS, GEORADIUSBYMEMBER: may store.
    Radius,
    /// GEORADIUS_RO, GEORADIUSBYMEMBER_RO.
    RadiusReadOnly,
    Search,
    SearchStore,
}

impl Form {
    fn is_search(self) -> bool {
        matches!(self, Form::Search | Form::SearchStore)
    }
}

/// What becomes of the members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    Reply,
    /// A sorted set of the same scores.
    Store,
    /// A sorted set whose scores are distances.
    StoreDistances,
}

/// What is replied beside a member.
#[derive(Clone, Copy, Default, Debug)]
pub struct With {
    pub distance: bool,
    pub hash: bool,
    pub position: bool,
}

/// A search, ready to be run.
#[derive(Debug)]
pub struct Query {
    pub shape: Shape,
    /// The length of the unit of distances.
    pub unit_m: f64,
    /// By distance; `None`: as they are found.
    pub order: Option<Direction>,
    pub count: Option<usize>,
    /// Whether any `count` members will do, not only the nearest.
    pub takes_any: bool,
    pub with: With,
    pub output: Output,
}

/// The shape of a search, whose centre is given apart from it.
enum Area {
    Circle { radius: f64, unit_m: f64 },
    Box { width: f64, height: f64, unit_m: f64 },
    Polygon(Vec<Position>),
}

/// How the centre was given.
#[derive(Clone, Copy)]
enum From {
    Member(Position),
    Position(Position),
}

/// The arguments as far as they were read.
pub struct Parser<'a> {
    set: Option<SortedSet<'a>>,
    form: Form,
    from: Option<From>,
    area: Option<Area>,
    order: Option<Direction>,
    count: Option<usize>,
    takes_any: bool,
    with: With,
    output: Output,
}

impl<'a> Parser<'a> {
    /// `set` is where members are looked up.
    pub fn new(set: Option<SortedSet<'a>>, form: Form) -> Parser<'a> {
        let output = if form == Form::SearchStore { Output::Store } else { Output::Reply };
        Parser {
            set,
            form,
            from: None,
            area: None,
            order: None,
            count: None,
            takes_any: false,
            with: With::default(),
            output,
        }
    }

    /// Reads GEORADIUS's `longitude latitude radius unit`.
    pub fn read_circle(&mut self, words: Args<'_>) -> Result<(), Error> {
        self.from = Some(From::Position(position(words)?));
        self.area = Some(circle(words.from(2))?);
        Ok(())
    }

    /// Reads GEORADIUSBYMEMBER's `member radius unit`; all of it goes unread without a key.
    pub fn read_circle_by_member(&mut self, words: Args<'_>) -> Result<(), Error> {
        if self.set.is_some() {
            self.from = Some(self.member(&words[0])?);
            self.area = Some(circle(words.from(1))?);
        }
        Ok(())
    }

    /// Reads everything that stands behind a keyword; returns nothing if there is no key to search.
    pub fn finish(mut self, mut words: Args<'_>, name: &[u8]) -> Result<Finished, Error> {
        while !words.is_empty() {
            let taken = match self.read_option(words)? {
                Some(taken) => taken,
                None if self.form.is_search() => self.read_shape(words)?.ok_or(Error::SYNTAX)?,
                None => return Err(Error::SYNTAX),
            };
            words = words.from(taken);
        }
        self.check(name)?;
        let output = self.output;
        let query = self.set.is_some().then(|| self.query());
        Ok(Finished { output, query })
    }

    /// Reads an option that every form has, or that stores; says how many words it took.
    fn read_option(&mut self, words: Args<'_>) -> Result<Option<usize>, Error> {
        let operands = words.len() - 1;
        let may_store = self.form == Form::Radius && operands >= 1;
        match &words[0].to_ascii_lowercase()[..] {
            b"withdist" => self.with.distance = true,
            b"withhash" => self.with.hash = true,
            b"withcoord" => self.with.position = true,
            b"any" => self.takes_any = true,
            b"asc" => self.order = Some(Direction::Ascending),
            b"desc" => self.order = Some(Direction::Descending),
            b"count" if operands >= 1 => {
                let count = integer(&words[1])?;
                let count = usize::try_from(count).ok().filter(|count| *count > 0);
                self.count = Some(count.ok_or(Error::fixed("ERR COUNT must be > 0"))?);
                return Ok(Some(2));
            }
            b"store" if may_store => {
                self.output = Output::Store;
                return Ok(Some(2));
            }
            b"storedist" if may_store => {
                self.output = Output::StoreDistances;
                return Ok(Some(2));
            }
            b"storedist" if self.form == Form::SearchStore => self.output = Output::StoreDistances,
            _ => return Ok(None),
        }
        Ok(Some(1))
    }

    /// Reads FROM... or BY...; says how many words it took.
    fn read_shape(&mut self, words: Args<'_>) -> Result<Option<usize>, Error> {
        let (operands, behind) = (words.len() - 1, words.from(1));
        let is_polygon = matches!(self.area, Some(Area::Polygon(_)));
        let is_box = matches!(self.area, Some(Area::Box { .. }));
        let is_circle = matches!(self.area, Some(Area::Circle { .. }));
        let is_by_member = matches!(self.from, Some(From::Member(_)));
        let is_by_position = matches!(self.from, Some(From::Position(_)));
        Ok(match &words[0].to_ascii_lowercase()[..] {
            b"frommember" if operands >= 1 && !is_by_position && !is_polygon => {
                self.from = Some(self.member(&behind[0])?);
                Some(2)
            }
            b"fromlonlat" if operands >= 2 && !is_by_member && !is_polygon => {
                self.from = Some(From::Position(position(behind)?));
                Some(3)
            }
            b"byradius" if operands >= 2 && !is_box && !is_polygon => {
                self.area = Some(circle(behind)?);
                Some(3)
            }
            b"bybox" if operands >= 3 && !is_circle && !is_polygon => {
                self.area = Some(rectangle(behind)?);
                Some(4)
            }
            b"bypolygon" if operands >= 2 && !is_box && !is_circle && self.from.is_none() => {
                let vertices = polygon(behind)?;
                let taken = 2 + 2 * vertices.len();
                self.area = Some(Area::Polygon(vertices));
                Some(taken)
            }
            _ => None,
        })
    }

    /// Where a member is. Without a key there is nothing to search, and any place will do.
    fn member(&self, member: &[u8]) -> Result<From, Error> {
        let nowhere = Position { longitude: 0.0, latitude: 0.0 };
        match position_of(self.set, member) {
            Some(position) => Ok(From::Member(position)),
            None if self.set.is_none() => Ok(From::Member(nowhere)),
            None => Err(Error::quoting("ERR member ", member, " does not exist")),
        }
    }

    fn check(&self, name: &[u8]) -> Result<(), Error> {
        let With { distance, hash, position } = self.with;
        if self.output != Output::Reply && (distance || hash || position) {
            let who = match self.form {
                Form::SearchStore => "GEOSEARCHSTORE",
                _ => "STORE option in GEORADIUS",
            };
            let rest = "is not compatible with WITHDIST, WITHHASH and WITHCOORD options";
            return Err(Error::new(format!("ERR {who} {rest}")));
        }
        let is_polygon = matches!(self.area, Some(Area::Polygon(_)));
        if self.form.is_search() && self.from.is_none() && !is_polygon {
            let text = "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for ";
            return Err(Error::quoting(text, name, ""));
        }
        if self.form.is_search() && self.area.is_none() {
            let text = "ERR exactly one of BYRADIUS, BYBOX and BYPOLYGON can be specified for ";
            return Err(Error::quoting(text, name, ""));
        }
        if self.takes_any && self.count.is_none() {
            return Err(Error::fixed("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }

    fn query(self) -> Query {
        let (shape, unit_m) = match (self.area, self.from) {
            (Some(Area::Polygon(vertices)), _) => (Shape::polygon(vertices), 1.0),
            (Some(Area::Circle { radius, unit_m }), Some(from)) => {
                (Shape::Circle { center: from.center(), radius_m: radius * unit_m }, unit_m)
            }
            (Some(Area::Box { width, height, unit_m }), Some(from)) => {
                (Shape::Box { center: from.center(), width, height, unit_m }, unit_m)
            }
            _ => unreachable!("a search that was checked has a centre and an area"),
        };
        // The nearest are meant unless any will do.
        let needs_order = self.count.is_some() && !self.takes_any;
        Query {
            shape,
            unit_m,
            order: self.order.or(needs_order.then_some(Direction::Ascending)),
            count: self.count,
            takes_any: self.takes_any,
            with: self.with,
            output: self.output,
        }
    }
}

/// A search, if there is a key to search, and where its result goes.
pub struct Finished {
    pub output: Output,
    pub query: Option<Query>,
}

impl From {
    fn center(self) -> Position {
        let (From::Member(position) | From::Position(position)) = self;
        position
    }
}

/// `radius unit`.
fn circle(words: Args<'_>) -> Result<Area, Error> {
    let radius = number(&words[0], "ERR need numeric radius")?;
    if radius < 0.0 {
        return Err(Error::fixed("ERR radius cannot be negative"));
    }
    Ok(Area::Circle { radius, unit_m: unit_m(&words[1])? })
}

/// `width height unit`.
fn rectangle(words: Args<'_>) -> Result<Area, Error> {
    let width = number(&words[0], "ERR need numeric width")?;
    let height = number(&words[1], "ERR need numeric height")?;
    if width < 0.0 || height < 0.0 {
        return Err(Error::fixed("ERR height or width cannot be negative"));
    }
    Ok(Area::Box { width, height, unit_m: unit_m(&words[2])? })
}

/// `count longitude latitude ...`.
fn polygon(words: Args<'_>) -> Result<Vec<Position>, Error> {
    let invalid = Error::fixed("ERR invalid number of vertices");
    let count = parse_integer(&words[0]).and_then(|count| i32::try_from(count).ok());
    let count = usize::try_from(count.ok_or(invalid)?).unwrap_or(0);
    if count < 3 || count > (words.len() - 1) / 2 {
        return Err(Error::fixed("ERR GEOSEARCH BYPOLYGON must have at least 3 vertices"));
    }
    (0..count).map(|vertex| position(words.from(1 + 2 * vertex))).collect()
}

fn number(text: &[u8], error: &'static str) -> Result<f64, Error> {
    parse_double(text).ok_or(Error::fixed(error))
}
