//! A bar chart: one group per case, one horizontal bar per server, each with its number.

use std::path::Path;

use anyhow::Result;

use super::canvas::{Anchor, Canvas, Color};

/// A server's name and value, or nothing where it was not measured. A server has the same place,
/// and so the same colour, in every group.
pub type Bar = Option<(String, f64)>;

/// What to draw.
pub struct Chart {
    pub title: String,
    pub decimals: usize,
    pub groups: Vec<(String, Vec<Bar>)>,
}

const WIDTH: u32 = 900;
const MARGIN: f32 = 20.0;
const BAR_LEFT: f32 = 170.0;
const BAR_WIDTH_MAX: f32 = 600.0;
const BAR_HEIGHT: f32 = 18.0;
const LINE: f32 = 22.0;
const HEAD: f32 = 50.0;

const DARK: Color = [0x22, 0x22, 0x22];

/// Redis, Valkey, Kvasir, Kvasir with epoll: apart also for eyes that see few colours.
const COLORS: [Color; 4] =
    [[0xb0, 0xb0, 0xb0], [0x6f, 0x7f, 0x95], [0xd5, 0x5e, 0x00], [0xe9, 0xa3, 0x5c]];

/// Writes the chart as SVG and as PNG; the ending is added to the path.
pub fn save(chart: &Chart, path: &Path) -> Result<()> {
    let bars = chart.groups.iter().map(|(_, bars)| bars.iter().flatten().count());
    let lines: usize = bars.map(|count| count + 2).sum();
    let mut canvas = Canvas::new(WIDTH, (HEAD + LINE * lines as f32) as u32);
    canvas.text(MARGIN, 28.0, 15.0, Anchor::Start, DARK, &chart.title);
    let values = chart.groups.iter().flat_map(|(_, bars)| bars.iter().flatten());
    let largest = values.map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    let mut y = HEAD;
    for (case, bars) in &chart.groups {
        canvas.text(MARGIN, y + 14.0, 13.0, Anchor::Start, DARK, case);
        y += LINE;
        for (place, bar) in bars.iter().enumerate() {
            let Some((server, value)) = bar else { continue };
            let width = (value.max(0.0) / largest) as f32 * BAR_WIDTH_MAX;
            let number = format!("{value:.*}", chart.decimals);
            canvas.text(BAR_LEFT - 8.0, y + 13.0, 12.0, Anchor::End, DARK, server);
            canvas.rectangle(BAR_LEFT, y, width, BAR_HEIGHT, COLORS[place % COLORS.len()]);
            canvas.text(BAR_LEFT + width + 6.0, y + 13.0, 12.0, Anchor::Start, DARK, &number);
            y += LINE;
        }
        y += LINE;
    }
    canvas.save(path)
}
