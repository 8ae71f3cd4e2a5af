//! Edges as they are gathered: pairs of numbers, in pieces, so that nothing is copied as they grow.

/// Edges of one piece: 2 MiB, or 6 with weights.
const PIECE: usize = 1 << 18;
/// Edges that are gone through at once: some tenths of a millisecond.
const PART: usize = 1 << 16;

/// Edges, each from a node to a node.
pub struct Edges {
    pieces: Vec<Piece>,
    is_weighted: bool,
    len: usize,
}

/// Some of them.
struct Piece {
    ends: Vec<(u32, u32)>,
    /// One for each, or none at all.
    weights: Vec<f64>,
}

/// Some edges of a piece.
pub struct Part<'a> {
    ends: &'a [(u32, u32)],
    weights: &'a [f64],
}

impl Edges {
    pub fn new(is_weighted: bool) -> Edges {
        Edges { pieces: Vec::new(), is_weighted, len: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn is_weighted(&self) -> bool {
        self.is_weighted
    }

    pub fn push(&mut self, from: u32, to: u32, weight: f64) {
        if self.len.is_multiple_of(PIECE) {
            let weights = if self.is_weighted { Vec::with_capacity(PIECE) } else { Vec::new() };
            self.pieces.push(Piece { ends: Vec::with_capacity(PIECE), weights });
        }
        let piece = self.pieces.last_mut().expect("one was just made");
        piece.ends.push((from, to));
        if self.is_weighted {
            piece.weights.push(weight);
        }
        self.len += 1;
    }

    pub fn allocated_bytes(&self) -> usize {
        Edges::bytes(self.len, self.is_weighted)
    }

    /// What so many take.
    pub fn bytes(edges: usize, are_weighted: bool) -> usize {
        edges.next_multiple_of(PIECE) * if are_weighted { 16 } else { 8 }
    }

    /// All edges, some at a time.
    pub fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        self.pieces.iter().flat_map(|piece| {
            let parts = piece.ends.chunks(PART).enumerate();
            parts.map(|(index, ends)| {
                let weights = piece.weights.chunks(PART).nth(index).unwrap_or_default();
                Part { ends, weights }
            })
        })
    }

    /// How many parts there are.
    pub fn part_count(&self) -> usize {
        self.len.div_ceil(PART)
    }
}

impl Part<'_> {
    /// Calls `f` with every edge and its weight, which is 1 without weights.
    pub fn for_each(&self, mut f: impl FnMut(u32, u32, f64)) {
        for (index, (from, to)) in self.ends.iter().enumerate() {
            f(*from, *to, self.weights.get(index).copied().unwrap_or(1.0));
        }
    }
}
