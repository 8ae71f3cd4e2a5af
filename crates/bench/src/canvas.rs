//! Rectangles and text, as SVG and as PNG.
//!
//! The font is part of the program, so that a PNG needs nothing of the system.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;

use ab_glyph::{Font, FontRef, PxScale, ScaleFont, point};
use anyhow::Result;

pub type Color = [u8; 3];

/// Where a text's position lies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    Start,
    End,
}

/// A drawing in pixels, origin at the top left.
pub struct Canvas {
    width: u32,
    height: u32,
    marks: Vec<Mark>,
}

enum Mark {
    Rectangle {
        x: f32,
        y: f32,
        width: f32,
        height: f32,
        color: Color,
    },
    /// `y` is the base line.
    Text {
        x: f32,
        y: f32,
        size: f32,
        anchor: Anchor,
        color: Color,
        text: String,
    },
}

/// A PNG has this many pixels per unit, so that it is sharp on dense screens.
const SCALE: f32 = 2.0;

impl Canvas {
    pub fn new(width: u32, height: u32) -> Self {
        Self { width, height, marks: Vec::new() }
    }

    pub fn rectangle(&mut self, x: f32, y: f32, width: f32, height: f32, color: Color) {
        self.marks.push(Mark::Rectangle { x, y, width, height, color });
    }

    pub fn text(&mut self, x: f32, y: f32, size: f32, anchor: Anchor, color: Color, text: &str) {
        self.marks.push(Mark::Text { x, y, size, anchor, color, text: text.to_string() });
    }

    /// Writes `path.svg` and `path.png`.
    pub fn save(&self, path: &Path) -> Result<()> {
        fs::write(path.with_extension("svg"), self.svg())?;
        let mut raster = Raster::new(self.width, self.height)?;
        self.marks.iter().for_each(|mark| raster.draw(mark));
        raster.write(&path.with_extension("png"))
    }

    fn svg(&self) -> String {
        let Self { width, height, marks } = self;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" font-family=\"DejaVu Sans, sans-serif\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        );
        for mark in marks {
            let _ = match mark {
                Mark::Rectangle { x, y, width, height, color } => writeln!(
                    svg,
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{width:.1}\" height=\"{height}\" \
                     fill=\"{}\"/>",
                    hex(*color)
                ),
                Mark::Text { x, y, size, anchor, color, text } => writeln!(
                    svg,
                    "<text x=\"{x:.1}\" y=\"{y}\" font-size=\"{size}\" text-anchor=\"{}\" \
                     fill=\"{}\">{}</text>",
                    if *anchor == Anchor::Start { "start" } else { "end" },
                    hex(*color),
                    text.replace('&', "&amp;").replace('<', "&lt;")
                ),
            };
        }
        svg + "</svg>\n"
    }
}

fn hex([red, green, blue]: Color) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

struct Raster {
    width: usize,
    height: usize,
    pixels: Vec<Color>,
    font: FontRef<'static>,
}

impl Raster {
    fn new(width: u32, height: u32) -> Result<Self> {
        let scale = |length: u32| (length as f32 * SCALE) as usize;
        let (width, height) = (scale(width), scale(height));
        let font = FontRef::try_from_slice(dejavu::sans::regular())?;
        Ok(Self { width, height, pixels: vec![[255; 3]; width * height], font })
    }

    fn draw(&mut self, mark: &Mark) {
        match mark {
            Mark::Rectangle { x, y, width, height, color } => {
                let range = |from: f32, length: f32| {
                    (from * SCALE).round() as usize..((from + length) * SCALE).round() as usize
                };
                for row in range(*y, *height) {
                    range(*x, *width).for_each(|column| self.blend(column, row, 1.0, *color));
                }
            }
            Mark::Text { x, y, size, anchor, color, text } => {
                let scale = self.pixel_scale(*size * SCALE);
                let back = if *anchor == Anchor::End { self.text_width(text, scale) } else { 0.0 };
                self.write_text(x * SCALE - back, y * SCALE, scale, *color, text);
            }
        }
    }

    /// A font size counts the em square; the library's scale counts from ascent to descent.
    fn pixel_scale(&self, size: f32) -> PxScale {
        let em = self.font.units_per_em().unwrap_or(1000.0);
        PxScale::from(size * self.font.height_unscaled() / em)
    }

    fn text_width(&self, text: &str, scale: PxScale) -> f32 {
        let font = self.font.as_scaled(scale);
        text.chars().map(|c| font.h_advance(font.glyph_id(c))).sum()
    }

    fn write_text(&mut self, x: f32, y: f32, scale: PxScale, color: Color, text: &str) {
        let mut at = x;
        for c in text.chars() {
            let id = self.font.glyph_id(c);
            let glyph = id.with_scale_and_position(scale, point(at, y));
            at += self.font.as_scaled(scale).h_advance(id);
            let Some(outline) = self.font.outline_glyph(glyph) else { continue };
            let corner = outline.px_bounds().min;
            let (left, top) = (corner.x.max(0.0) as usize, corner.y.max(0.0) as usize);
            outline.draw(|dx, dy, cover| {
                self.blend(left + dx as usize, top + dy as usize, cover, color);
            });
        }
    }

    /// Paints a pixel to the given share; what lies outside is left out.
    fn blend(&mut self, x: usize, y: usize, share: f32, color: Color) {
        if x >= self.width || y >= self.height {
            return;
        }
        let pixel = &mut self.pixels[y * self.width + x];
        for (old, new) in pixel.iter_mut().zip(color) {
            *old = (f32::from(*old) + (f32::from(new) - f32::from(*old)) * share).round() as u8;
        }
    }

    fn write(&self, path: &Path) -> Result<()> {
        let size = |length: usize| u32::try_from(length);
        let mut encoder =
            png::Encoder::new(File::create(path)?, size(self.width)?, size(self.height)?);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_compression(png::Compression::High);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(self.pixels.as_flattened())?;
        Ok(writer.finish()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_leaves_marks_left_of_its_end() {
        let mut raster = Raster::new(100, 20).expect("the font is sound");
        let text = "12 ms".to_string();
        let anchor = Anchor::End;
        raster.draw(&Mark::Text { x: 90.0, y: 15.0, size: 12.0, anchor, color: [0; 3], text });
        let dark = |column: &usize| (0..40).any(|row| raster.pixels[row * 200 + column][0] < 100);
        let columns: Vec<usize> = (0..200).filter(dark).collect();
        assert!(columns.first() > Some(&80) && columns.last() < Some(&181), "{columns:?}");
    }

    #[test]
    fn svg_text_is_escaped() {
        let mut canvas = Canvas::new(10, 10);
        canvas.text(0.0, 0.0, 8.0, Anchor::Start, [0; 3], "a < b & c");
        assert!(canvas.svg().contains(">a &lt; b &amp; c</text>"));
    }
}
