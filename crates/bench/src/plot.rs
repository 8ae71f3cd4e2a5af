//! A bar chart as SVG: one group per case, one horizontal bar per server, each with its number.

use std::fmt::{Display, Write as _};

/// A server's name and value, or nothing where it was not measured. A server has the same place,
/// and so the same colour, in every group.
pub type Bar = Option<(String, f64)>;

/// What to draw.
pub struct Chart {
    pub title: String,
    pub decimals: usize,
    pub groups: Vec<(String, Vec<Bar>)>,
}

const WIDTH: f64 = 900.0;
const MARGIN: f64 = 20.0;
const BAR_LEFT: f64 = 170.0;
const BAR_WIDTH_MAX: f64 = 600.0;
const BAR_HEIGHT: f64 = 18.0;
const LINE: f64 = 22.0;
const HEAD: f64 = 50.0;

/// Redis, Valkey, Kvasir, Kvasir with epoll: apart also for eyes that see few colours.
const COLORS: [&str; 4] = ["#b0b0b0", "#6f7f95", "#d55e00", "#e9a35c"];

/// Adds up the chart's marks from the top to the bottom.
pub fn svg(chart: &Chart) -> String {
    let values = || chart.groups.iter().flat_map(|(_, bars)| bars.iter().flatten());
    let largest = values().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    let mut marks = text(MARGIN, 28.0, 15, "start", &chart.title);
    let mut y = HEAD;
    for (case, bars) in &chart.groups {
        marks += &text(MARGIN, y + 14.0, 13, "start", case);
        y += LINE;
        for (bar, color) in bars.iter().zip(COLORS.iter().cycle()) {
            let Some((server, value)) = bar else { continue };
            let width = value.max(0.0) / largest * BAR_WIDTH_MAX;
            let number = format!("{value:.*}", chart.decimals);
            marks += &text(BAR_LEFT - 8.0, y + 13.0, 12, "end", server);
            let _ = writeln!(
                marks,
                r#"<rect x="{BAR_LEFT}" y="{y}" width="{width:.1}" height="{BAR_HEIGHT}" fill="{color}"/>"#
            );
            marks += &text(BAR_LEFT + width + 6.0, y + 13.0, 12, "start", number);
            y += LINE;
        }
        y += LINE;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" \
         width=\"{WIDTH}\" height=\"{y}\" font-family=\"DejaVu Sans, sans-serif\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{marks}</svg>\n"
    )
}

/// `y` is the base line; the anchor is the end of the text that lies at `x`.
fn text(x: f64, y: f64, size: u32, anchor: &str, text: impl Display) -> String {
    let text = text.to_string().replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<text x=\"{x:.1}\" y=\"{y}\" font-size=\"{size}\" text-anchor=\"{anchor}\" \
         fill=\"#222222\">{text}</text>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values() {
        let bars = vec![Some(("a".to_string(), 2.0)), None, Some(("b".to_string(), 1.0))];
        let groups = vec![("x < y & z".to_string(), bars)];
        let drawn = svg(&Chart { title: "Title".to_string(), decimals: 1, groups });
        assert!(drawn.contains(">x &lt; y &amp; z</text>"), "{drawn}");
        assert!(drawn.contains("width=\"600.0\" height=\"18\" fill=\"#b0b0b0\""), "{drawn}");
        assert!(drawn.contains("width=\"300.0\" height=\"18\" fill=\"#d55e00\""), "{drawn}");
        assert!(drawn.contains(">2.0</text>"), "{drawn}");
    }
}
