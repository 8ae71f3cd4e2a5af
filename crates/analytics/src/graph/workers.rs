//! Several threads for one computation: pieces of work that any of them takes.

use std::ops::Range;
use std::sync::Mutex;
use std::thread;

use kvasir_structures::locks::lock;

use crate::graph::csr::Csr;
use crate::job::Job;
use crate::turns::{Shift, Turns};

/// Edges of a piece: some tenths of a millisecond.
const PIECE_EDGES: usize = 1 << 16;

/// Who computes: for whom, and with how many threads at most.
#[derive(Clone, Copy)]
pub struct Workers<'a> {
    pub job: &'a Job,
    pub turns: &'a Turns,
    pub threads: usize,
}

impl Workers<'_> {
    /// Has every piece worked at, unless the job is cancelled meanwhile.
    pub fn run<T: Send>(
        self,
        pieces: impl Iterator<Item = T> + Send,
        work: impl Fn(T) + Sync,
    ) -> Result<(), String> {
        let pieces = Mutex::new(pieces);
        let run = || {
            let mut shift = Shift::new(self.turns);
            while self.job.check().is_ok() {
                let Some(piece) = lock(&pieces).next() else { return };
                shift.next_piece();
                work(piece);
                shift.rest();
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.threads {
                if thread::Builder::new().name("graph".into()).spawn_scoped(scope, run).is_err() {
                    break;
                }
            }
            run();
        });
        self.job.check()
    }

    /// As [`Workers::run`], by this thread alone, one piece behind the other.
    pub fn each<T>(
        self,
        pieces: impl IntoIterator<Item = T>,
        mut work: impl FnMut(T),
    ) -> Result<(), String> {
        let mut shift = Shift::new(self.turns);
        for piece in pieces {
            self.job.check()?;
            shift.next_piece();
            work(piece);
        }
        Ok(())
    }
}

/// All numbers below `count`, some at a time.
pub fn ranges(count: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count).step_by(size).map(move |first| first..(first + size).min(count))
}

/// How many nodes each piece has, so that all have about as many edges.
pub fn pieces(rows: &Csr) -> Vec<usize> {
    let (mut lengths, mut first) = (Vec::new(), 0);
    while first < rows.nodes() {
        let limit = rows.starts[first] as usize + PIECE_EDGES;
        let fits = |start: &u32| (*start as usize) <= limit;
        let end = rows.starts.partition_point(fits).saturating_sub(1);
        // What has many nodes without edges is work as well.
        let end = end.clamp(first + 1, (first + PIECE_EDGES).min(rows.nodes()));
        lengths.push(end - first);
        first = end;
    }
    lengths
}
