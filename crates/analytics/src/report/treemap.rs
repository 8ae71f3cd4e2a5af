//! Rectangles that fill a rectangle, each as large as its part, and nearly square: the algorithm of
//! Bruls, Huizing and van Wijk (Squarified Treemaps, 2000).
//!
//! Parts come in order, the largest first. Along the shorter side of what is left a strip is filled
//! with parts as long as that makes the worst of their rectangles more square; then the next strip
//! is begun in what is left. So each part is laid once, and it ends.

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rect {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

impl Rect {
    pub fn area(self) -> f64 {
        self.width * self.height
    }

    /// What is left inside of a frame.
    pub fn within(self, side: f64, top: f64) -> Rect {
        Rect {
            x: self.x + side,
            y: self.y + top,
            width: (self.width - 2.0 * side).max(0.0),
            height: (self.height - top - side).max(0.0),
        }
    }
}

/// A rectangle for each part; parts are positive and in order.
pub fn lay(parts: &[f64], whole: Rect) -> Vec<Rect> {
    let sum: f64 = parts.iter().sum();
    let scale = if sum > 0.0 { whole.area() / sum } else { 0.0 };
    let (mut left, mut laid, mut at) = (whole, Vec::new(), 0);
    while at < parts.len() {
        let side = left.width.min(left.height);
        let mut count = 1;
        let (mut strip, mut worst) = (parts[at] * scale, f64::INFINITY);
        while let Some(next) = parts.get(at + count) {
            worst = worst.min(worst_ratio(&parts[at..at + count], scale, side));
            let wider = &parts[at..at + count + 1];
            if worst_ratio(wider, scale, side) > worst {
                break;
            }
            strip += next * scale;
            count += 1;
        }
        left = lay_strip(&parts[at..at + count], scale, strip, left, &mut laid);
        at += count;
    }
    laid
}

/// How far the least square of some parts is from a square, in a strip along this side.
fn worst_ratio(parts: &[f64], scale: f64, side: f64) -> f64 {
    let strip: f64 = parts.iter().sum::<f64>() * scale;
    let (first, last) = (parts[0] * scale, parts[parts.len() - 1] * scale);
    let ratio = |area: f64| {
        let ratio = side * side * area / (strip * strip);
        ratio.max(1.0 / ratio)
    };
    ratio(first).max(ratio(last))
}

/// Lays parts along the shorter side and returns what is left.
fn lay_strip(parts: &[f64], scale: f64, strip: f64, left: Rect, laid: &mut Vec<Rect>) -> Rect {
    let is_upright = left.width >= left.height;
    let side = if is_upright { left.height } else { left.width };
    let depth = if side > 0.0 { strip / side } else { 0.0 };
    let mut at = 0.0;
    for part in parts {
        let length = if depth > 0.0 { part * scale / depth } else { 0.0 };
        laid.push(match is_upright {
            true => Rect { x: left.x, y: left.y + at, width: depth, height: length },
            false => Rect { x: left.x + at, y: left.y, width: length, height: depth },
        });
        at += length;
    }
    match is_upright {
        true => Rect { x: left.x + depth, width: (left.width - depth).max(0.0), ..left },
        false => Rect { y: left.y + depth, height: (left.height - depth).max(0.0), ..left },
    }
}
