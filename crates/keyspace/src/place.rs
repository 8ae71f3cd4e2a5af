//! Where something is in the keyspace, as a number; small enough for everybody to know.

/// Which database, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct DbIndex(pub u16);

/// Which slot of which database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub db: DbIndex,
    pub slot: u16,
}
