//! From registers to a number: Otmar Ertl, "New cardinality estimation algorithms for HyperLogLog
//! sketches" (2017), algorithm 6, which needs no table of corrections.

use super::{RANK_BITS, REGISTERS};

/// How many registers hold each rank.
pub type Histogram = [u32; 64];

/// 1 / (2 ln 2).
const ALPHA: f64 = 0.721_347_520_444_481_7;

pub fn estimate(histogram: &Histogram) -> u64 {
    let m = REGISTERS as f64;
    let highest = RANK_BITS as usize + 1;
    let mut z = m * tau((m - f64::from(histogram[highest])) / m);
    for rank in (1..highest).rev() {
        z = (z + f64::from(histogram[rank])) * 0.5;
    }
    z += m * sigma(f64::from(histogram[0]) / m);
    (ALPHA * m * m / z).round() as u64
}

/// x + x^2 + 2 x^4 + 4 x^8 ...: what registers that are still 0 add. Ends when a term is lost to
/// rounding, which happens soon as x < 1 is squared each time.
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut sum, mut factor) = (x, 1.0);
    loop {
        x *= x;
        let before = sum;
        sum += x * factor;
        factor += factor;
        if sum == before {
            return sum;
        }
    }
}

/// (1 - x - (1 - x^(1/2))^2 / 2 - (1 - x^(1/4))^2 / 4 ...) / 3: what registers that are full add.
/// Ends as `sigma` does.
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut sum, mut factor) = (1.0 - x, 1.0);
    loop {
        x = x.sqrt();
        let before = sum;
        factor *= 0.5;
        sum -= (1.0 - x) * (1.0 - x) * factor;
        if sum == before {
            return sum / 3.0;
        }
    }
}
