//! Who was the primary, and who may be the next.
//!
//! A reign is a history of the data, from an offset on behind another one. Of the servers that are
//! asked, the one with the latest data takes over: that of the latest reign, and of these the
//! furthest. What was promised is on N disks; if all but N - 1 servers are asked, one of them has
//! it, and so has the one whose data is later. (Raft elects by the same rule.)

use kvasir_server::store::replication::History;

/// Nobody knows where the data is from.
const UNKNOWN: isize = -1;

#[derive(Default)]
pub struct Reigns(Vec<Reign>);

struct Reign {
    /// What the history is called.
    id: String,
    start: u64,
    /// The reign that it goes on from.
    before: isize,
}

impl Reigns {
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// One begins, with the data that another had at `start`, as `rank` names them.
    pub fn begin(&mut self, id: String, before: isize, start: u64) {
        self.0.push(Reign { id, start, before });
    }

    /// How late data is that is of an offset of a history.
    pub fn rank(&self, history: &History, offset: u64) -> (isize, u64) {
        let of = |id: &str| self.0.iter().position(|reign| reign.id == id);
        let mut reign = of(&history.id).map_or(UNKNOWN, |reign| reign as isize);
        // What it has is all of an earlier one.
        while let Some(Reign { start, before, .. }) = self.0.get(reign as usize)
            && offset <= *start
            && *before >= 0
        {
            reign = *before;
        }
        (reign, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reign_has_not_added_to_is_of_the_one_before() {
        let history = |id: &str| History { id: id.into(), former: None };
        let mut reigns = Reigns::default();
        reigns.begin("a".into(), UNKNOWN, 0);
        reigns.begin("b".into(), 0, 10);
        assert_eq!(reigns.rank(&history("a"), 15), (0, 15));
        assert_eq!(reigns.rank(&history("b"), 10), (0, 10));
        assert_eq!(reigns.rank(&history("b"), 11), (1, 11));
        assert_eq!(reigns.rank(&history("c"), 99), (UNKNOWN, 99));
    }
}
