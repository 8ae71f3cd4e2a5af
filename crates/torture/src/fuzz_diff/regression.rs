//! Sequences that once showed a difference: written as files, and run before anything is drawn.
//!
//! A seed means something else as soon as the command table grows, a sequence does not. One step
//! a line: its connection, and the words with what is not plain escaped.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use kvasir_harness::link::Call;
use kvasir_harness::workspace::{root, target_dir};

use super::pair::{LINKS, Launches, Pair, Step};
use super::print;

/// Where sequences are kept, below the root: those of both peers.
const KEPT: &str = "crates/torture/regressions";

/// Writes a sequence below target; a person moves it to those that are kept.
pub fn store(name: &str, steps: &[Step]) -> Result<String> {
    let dir = target_dir().join("fuzz-diff");
    fs::create_dir_all(&dir)?;
    let file = dir.join(format!("{name}.txt"));
    fs::write(&file, write(steps))?;
    Ok(file.display().to_string())
}

/// Runs every sequence that is kept.
pub fn replay_all(launches: &Launches) -> Result<()> {
    let Ok(dir) = fs::read_dir(root().join(KEPT)) else { return Ok(()) };
    let mut files: Vec<_> = dir.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    files.iter().try_for_each(|file| replay(file, launches))?;
    println!("{} kept sequences show no difference", files.len());
    Ok(())
}

pub fn replay(file: &Path, launches: &Launches) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let steps = parse(&text).with_context(|| file.display().to_string())?;
    let mut pair = Pair::start(launches)?;
    let found = match pair.run(&steps)? {
        None => pair.compare_contents(steps.len())?,
        found => found,
    };
    let Some(difference) = found else { return Ok(()) };
    print(&difference);
    bail!("{} shows a difference again", file.display())
}

fn write(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        let words = step.call.iter().map(|word| match word.is_empty() {
            true => "\\e".to_string(),
            false => word.escape_ascii().to_string().replace(' ', "\\x20"),
        });
        let words: Vec<String> = words.collect();
        let _ = writeln!(text, "{} {}", step.connection, words.join(" "));
    }
    text
}

/// Each step is a batch of its own: what differs does so without a pipeline, or is not kept.
fn parse(text: &str) -> Result<Vec<Step>> {
    let step = |(batch, line): (usize, &str)| {
        let mut words = line.split(' ');
        let connection = words.next().unwrap_or_default().parse()?;
        let call = words.map(unescape).collect::<Result<Call>>()?;
        if connection >= LINKS || call.is_empty() {
            bail!("line {}: no step", batch + 1);
        }
        Ok(Step { connection, batch, call })
    };
    text.lines().enumerate().map(step).collect()
}

/// The reverse of `escape_ascii`, and `\e` for nothing.
fn unescape(word: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = word.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next().context("an escape without an end")? {
            b'e' => {}
            b'n' => bytes.push(b'\n'),
            b'r' => bytes.push(b'\r'),
            b't' => bytes.push(b'\t'),
            b'x' => {
                let digits = [rest.next(), rest.next()].map(Option::unwrap_or_default);
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits)?, 16)?);
            }
            other => bytes.push(other),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back() {
        let call: Call = vec![b"SET".to_vec(), Vec::new(), (0..=255).collect()];
        let steps = [Step { connection: 1, batch: 0, call }];
        let read = parse(&write(&steps)).expect("what was written");
        assert_eq!((read.len(), &read[0].call), (1, &steps[0].call));
        assert!(parse("9 GET k").is_err() && parse("0 \\x4").is_err());
    }
}
