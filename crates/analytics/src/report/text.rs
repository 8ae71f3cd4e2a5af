//! A report for programs: JSON, and CSV of its rows.

use std::fmt::Write;

use crate::report::answer::{Large, Report, Sums};

/// A name as text: as it is if it is UTF-8, otherwise with what is no ASCII as `\xff`.
pub fn name_text(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) => text.to_owned(),
        Err(_) => name.escape_ascii().to_string(),
    }
}

impl Report {
    pub fn to_json(&self) -> String {
        let mut out = String::from("{");
        field(&mut out, "by", &quoted(self.by.name()));
        if let Some((separator, depth)) = self.separator() {
            field(&mut out, "separator", &quoted(&name_text(separator)));
            field(&mut out, "depth", &depth.to_string());
        }
        field(&mut out, "cut_unix_ms", &self.cut_ms.to_string());
        numbers(&mut out, &self.total);
        let rows = self.rows.iter().map(|(name, sums)| row(name, sums));
        field(&mut out, "rows", &list(rows));
        let mut others = String::from("{");
        field(&mut others, "rows", &self.others.0.to_string());
        numbers(&mut others, &self.others.1);
        field(&mut out, "others", &(others + "}"));
        let mut rest = String::from("{");
        numbers(&mut rest, &self.rest);
        field(&mut out, "rest", &(rest + "}"));
        field(&mut out, "largest", &list(self.largest.iter().map(large)));
        field(&mut out, "seconds", &format!("{:.3}", self.seconds));
        out + "}\n"
    }

    /// A line for each row, with what there is beside the rows in the last ones.
    pub fn to_csv(&self) -> String {
        let mut out = String::from(
            "name,keys,bytes,keys_without_ttl,bytes_without_ttl,compression_saves,largest_key,\
             largest_key_bytes\n",
        );
        let others = format!("({} other rows)", self.others.0);
        let beside = [(others.as_str(), &self.others.1), ("(no room for a row)", &self.rest)];
        let beside = beside.into_iter().filter(|(_, sums)| sums.keys > 0);
        let rows = self.rows.iter().map(|(name, sums)| (name_text(name), sums));
        for (name, sums) in rows.chain(beside.map(|(name, sums)| (name.to_owned(), sums))) {
            let (key, bytes) = match sums.largest.first() {
                Some(large) => (name_text(&large.name), large.bytes.to_string()),
                None => Default::default(),
            };
            let Sums { keys, bytes: sum, keys_without_ttl, bytes_without_ttl, saves, .. } = sums;
            let _ = writeln!(
                out,
                "{},{keys},{sum},{keys_without_ttl},{bytes_without_ttl},{saves},{},{bytes}",
                cell(&name),
                cell(&key)
            );
        }
        out
    }
}

fn field(out: &mut String, name: &str, value: &str) {
    if !out.ends_with('{') {
        out.push(',');
    }
    let _ = write!(out, "\"{name}\":{value}");
}

fn numbers(out: &mut String, sums: &Sums) {
    for (name, value) in [
        ("keys", sums.keys),
        ("bytes", sums.bytes),
        ("keys_without_ttl", sums.keys_without_ttl),
        ("bytes_without_ttl", sums.bytes_without_ttl),
        ("compression_saves", sums.saves),
    ] {
        field(out, name, &value.to_string());
    }
}

fn list(all: impl Iterator<Item = String>) -> String {
    format!("[{}]", all.collect::<Vec<_>>().join(","))
}

fn row(name: &[u8], sums: &Sums) -> String {
    let mut out = String::from("{");
    field(&mut out, "name", &quoted(&name_text(name)));
    numbers(&mut out, sums);
    field(&mut out, "largest", &list(sums.largest.iter().map(large)));
    out + "}"
}

fn large(large: &Large) -> String {
    let mut out = String::from("{");
    field(&mut out, "db", &large.db.0.to_string());
    field(&mut out, "key", &quoted(&name_text(&large.name)));
    field(&mut out, "type", &quoted(large.kind));
    field(&mut out, "encoding", &quoted(large.encoding));
    field(&mut out, "bytes", &large.bytes.to_string());
    field(&mut out, "length", &large.length.to_string());
    let ttl = large.ttl_ms.map_or("null".into(), |ms| ms.to_string());
    field(&mut out, "ttl_ms", &ttl);
    out + "}"
}

/// A text in JSON. What would end a script or a comment where the JSON stands in a page is escaped
/// as well.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            '\u{0}'..='\u{1f}' | '<' | '>' | '\u{7f}' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(char));
            }
            char => out.push(char),
        }
    }
    out.push('"');
    out
}

/// A cell of CSV (RFC 4180). What a spreadsheet would take for a formula gets an apostrophe.
fn cell(text: &str) -> String {
    let guard = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
    if guard.is_empty() && !text.contains(['"', ',', '\n', '\r']) {
        return text.to_owned();
    }
    format!("\"{guard}{}\"", text.replace('"', "\"\""))
}
