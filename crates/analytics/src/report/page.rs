//! A report for people: one page with a map of rectangles, the rows and the largest keys.
//!
//! The page loads nothing and runs nothing, which it says itself; names of keys are text in it.

use std::fmt::Write;

use crate::report::answer::{Large, Report, Sums, percent};
use crate::report::by::{By, prefix};
use crate::report::text::name_text;
use crate::report::treemap::{Rect, lay};

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 640.0;
/// What a letter of a label takes, about.
const LETTER: f64 = 7.0;
const LABEL_HEIGHT: f64 = 16.0;
/// A rectangle smaller than this can't be seen.
const AREA_MIN: f64 = 4.0;
/// Longer names are cut in the tables.
const NAME_MAX: usize = 120;

const HEAD: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\">
<meta http-equiv=\"Content-Security-Policy\"
 content=\"default-src 'none'; style-src 'unsafe-inline'\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<title>What fills the memory</title>
<style>
:root { color-scheme: light dark; --line: #8886; --soft: #8882; }
body { font: 14px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.2em; margin-top: 2em; }
svg { width: 100%; height: auto; display: block; border: 1px solid var(--line); }
svg text { font: 12px system-ui, sans-serif; fill: #111; pointer-events: none; }
svg rect { stroke: #fff; stroke-width: 1; } svg g.group > rect { fill: #bbb; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: right; padding: .25em .6em; border-bottom: 1px solid var(--soft); }
th, td { white-space: nowrap; }
th:first-child, td:first-child, td.text, th.text { text-align: left; }
td:first-child, td.text { font-family: ui-monospace, monospace; white-space: pre-wrap; }
td:first-child, td.text { overflow-wrap: anywhere; }
.facts { display: flex; flex-wrap: wrap; gap: .5em 2em; padding: 0; list-style: none; }
.facts b { display: block; font-size: 1.3em; }
.key span { display: inline-block; width: 1em; height: 1em; vertical-align: middle; }
</style></head><body>
";

/// A rectangle of the map before it is laid.
struct Part<'r> {
    name: String,
    sums: &'r Sums,
}

impl Report {
    pub fn to_html(&self, source: &str) -> String {
        let mut out = String::from(HEAD);
        let _ = writeln!(out, "<h1>What fills the memory: {}</h1>", escaped(source));
        self.write_facts(&mut out);
        self.write_map(&mut out);
        self.write_rows(&mut out);
        self.write_largest(&mut out);
        out + "</body></html>\n"
    }

    fn write_facts(&self, out: &mut String) {
        let total = &self.total;
        let facts = [
            (grouped(total.keys), "keys"),
            (size(total.bytes), "keys and values take"),
            (format!("{} %", total.percent_without_ttl()), "of it never expires"),
            (size(total.saves), "compression would save, about"),
        ];
        out.push_str("<ul class=\"facts\">");
        for (value, what) in facts {
            let _ = write!(out, "<li><b>{value}</b> {what}</li>");
        }
        out.push_str("</ul>\n");
    }

    /// What is drawn: the rows, and what there is beside them.
    fn parts(&self) -> Vec<Part<'_>> {
        let shown = |name: &[u8]| match (&self.by, name) {
            (By::Prefix { .. }, []) => "(no prefix)".to_owned(),
            _ => name_text(name),
        };
        let mut parts: Vec<Part<'_>> =
            self.rows.iter().map(|(name, sums)| Part { name: shown(name), sums }).collect();
        let others = format!("({} other rows)", self.others.0);
        parts.push(Part { name: others, sums: &self.others.1 });
        parts.push(Part { name: "(no room for a row)".into(), sums: &self.rest });
        parts.retain(|part| part.sums.bytes > 0);
        parts.sort_by_key(|part| std::cmp::Reverse(part.sums.bytes));
        parts
    }

    fn write_map(&self, out: &mut String) {
        let _ = writeln!(
            out,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Map of the memory\">"
        );
        let whole = Rect { x: 0.0, y: 0.0, width: WIDTH, height: HEIGHT };
        let parts = self.parts();
        let groups = self.groups(&parts);
        let sizes: Vec<f64> = groups.iter().map(|(_, inner)| bytes_of(inner) as f64).collect();
        for ((name, inner), rect) in groups.iter().zip(lay(&sizes, whole)) {
            match &inner[..] {
                [part] => write_rect(out, part, &part.name, rect),
                inner => write_group(out, name, inner, rect),
            }
        }
        out.push_str(
            "</svg>\n<p class=\"key\">Each rectangle is as large as its share of the bytes. ",
        );
        for (percent, what) in [(0, "all of it expires"), (50, "half"), (100, "nothing expires")] {
            let colour = colour(f64::from(percent));
            let _ = write!(out, "<span style=\"background:{colour}\"></span> {what} ");
        }
        out.push_str("</p>\n");
    }

    /// Prefixes of several parts are drawn within what they begin with; the largest group first.
    fn groups<'p>(&self, parts: &'p [Part<'p>]) -> Vec<(String, Vec<&'p Part<'p>>)> {
        let mut groups: Vec<(String, Vec<&Part<'_>>)> = Vec::new();
        for part in parts {
            let first = match self.separator() {
                Some((separator, 2..)) => prefix(part.name.as_bytes(), separator, 1),
                _ => &[],
            };
            // What begins with nothing is a group of its own.
            let name = if first.is_empty() { part.name.clone() } else { name_text(first) };
            match groups.iter_mut().find(|(group, _)| *group == name) {
                Some((_, inner)) => inner.push(part),
                None => groups.push((name, vec![part])),
            }
        }
        groups.sort_by_key(|(_, inner)| std::cmp::Reverse(bytes_of(inner)));
        groups
    }

    fn write_rows(&self, out: &mut String) {
        let _ = writeln!(
            out,
            "<h2>By {}</h2><div class=\"scroll\"><table><tr><th>{0}</th><th>keys</th><th>bytes</th>\
             <th>share</th><th>a key</th><th>never expires</th><th>compression saves</th>\
             <th class=\"text\">largest key</th></tr>",
            self.by.name()
        );
        for Part { name, sums } in self.parts() {
            let largest = sums.largest.first().map_or(String::new(), |large| {
                format!("{} ({})", shortened(&name_text(&large.name)), size(large.bytes))
            });
            let _ = writeln!(
                out,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{} %</td><td>{}</td><td>{} %</td>\
                 <td>{}</td><td class=\"text\">{}</td></tr>",
                escaped(&shortened(&name)),
                grouped(sums.keys),
                grouped(sums.bytes),
                percent(sums.bytes, self.total.bytes),
                size(sums.bytes / sums.keys.max(1)),
                sums.percent_without_ttl(),
                size(sums.saves),
                escaped(&largest)
            );
        }
        out.push_str("</table></div>\n");
    }

    fn write_largest(&self, out: &mut String) {
        out.push_str(
            "<h2>The largest keys</h2><div class=\"scroll\"><table><tr><th>key</th><th>db</th>\
             <th>type</th><th>encoding</th><th>bytes</th><th>elements or bytes</th>\
             <th>expires in</th></tr>\n",
        );
        for Large { db, name, kind, encoding, bytes, length, ttl_ms } in &self.largest {
            let ttl = ttl_ms.map_or("never".into(), |ms| format!("{} s", ms / 1000));
            let _ = writeln!(
                out,
                "<tr><td>{}</td><td>{}</td><td>{kind}</td><td>{encoding}</td><td>{}</td>\
                 <td>{}</td><td>{ttl}</td></tr>",
                escaped(&shortened(&name_text(name))),
                db.0,
                grouped(*bytes),
                grouped(*length)
            );
        }
        out.push_str("</table></div>\n");
    }
}

fn bytes_of(parts: &[&Part<'_>]) -> u64 {
    parts.iter().map(|part| part.sums.bytes).sum()
}

fn write_group(out: &mut String, name: &str, inner: &[&Part<'_>], rect: Rect) {
    let Rect { x, y, width, height } = rect;
    let _ = write!(
        out,
        "<g class=\"group\"><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
         height=\"{height:.1}\"><title>{}</title></rect>",
        escaped(name)
    );
    write_label(out, name, rect);
    let has_label = height > 2.0 * LABEL_HEIGHT;
    let inside = rect.within(1.0, if has_label { LABEL_HEIGHT } else { 1.0 });
    let sizes: Vec<f64> = inner.iter().map(|part| part.sums.bytes as f64).collect();
    for (part, rect) in inner.iter().zip(lay(&sizes, inside)) {
        // Its group says what it begins with.
        let label = part.name.strip_prefix(name).filter(|rest| !rest.is_empty());
        write_rect(out, part, label.unwrap_or(&part.name), rect);
    }
    out.push_str("</g>\n");
}

fn write_rect(out: &mut String, Part { name, sums }: &Part<'_>, label: &str, rect: Rect) {
    if rect.area() < AREA_MIN {
        return;
    }
    let Rect { x, y, width, height } = rect;
    let never = sums.percent_without_ttl();
    let _ = writeln!(
        out,
        "<g><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         fill=\"{}\"><title>{}: {}, {} keys, {never} % never expires</title></rect>",
        colour(never),
        escaped(&shortened(name)),
        size(sums.bytes),
        grouped(sums.keys)
    );
    write_label(out, label, rect);
    out.push_str("</g>\n");
}

/// As much of a name as there is room for.
fn write_label(out: &mut String, name: &str, rect: Rect) {
    let letters = ((rect.width - 8.0) / LETTER).max(0.0) as usize;
    if rect.height < LABEL_HEIGHT || letters < 3 {
        return;
    }
    let label: String = name.chars().take(letters).collect();
    let (x, y) = (rect.x + 4.0, rect.y + 12.5);
    let _ = write!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(&label));
}

/// From blue, all of which expires, to orange, nothing of which does.
fn colour(percent: f64) -> String {
    let part = (percent / 100.0).clamp(0.0, 1.0);
    let [red, green, blue] = [(126.0, 245.0), (182.0, 166.0), (224.0, 91.0)]
        .map(|(from, to): (f64, f64)| (from + (to - from) * part) as u8);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(NAME_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Text as it may stand in a page, within elements and within quotes. What can't be seen, or turns
/// the direction of what follows, is shown by its number.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            char if is_unseen(char) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(char));
            }
            char => out.push(char),
        }
    }
    out
}

fn is_unseen(char: char) -> bool {
    let number = u32::from(char);
    let is_mark = matches!(number, 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x2069 | 0xfeff);
    char.is_control() || is_mark
}

/// With a thin space between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

fn size(bytes: u64) -> String {
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} B"),
    }
}
