//! Edges as they are gathered: pairs of numbers, in pieces, so that nothing is copied as they grow.

/// Edges of one piece: 2 MiB, or 6 with weights.
const PIECE: usize = 1 << 18;

/// Edges, each from a node to a node.
pub struct Edges {
    pieces: Vec<Piece>,
    is_weighted: bool,
    len: usize,
}

/// Some of them.
pub struct Piece {
    pub ends: Vec<(u32, u32)>,
    /// One for each, or none at all.
    pub weights: Vec<f64>,
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
        self.pieces.len() * PIECE * if self.is_weighted { 16 } else { 8 }
    }

    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Calls `f` with every edge.
    pub fn for_each(&self, mut f: impl FnMut(u32, u32)) {
        for piece in &self.pieces {
            piece.ends.iter().for_each(|(from, to)| f(*from, *to));
        }
    }

    /// With every edge and its weight, which is 1 without weights.
    pub fn for_each_weighted(&self, mut f: impl FnMut(u32, u32, f64)) {
        for piece in &self.pieces {
            for (index, (from, to)) in piece.ends.iter().enumerate() {
                f(*from, *to, piece.weights.get(index).copied().unwrap_or(1.0));
            }
        }
    }
}
