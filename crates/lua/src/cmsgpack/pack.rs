//! Lua values as MessagePack: the shortest form of each.

use mlua::{Table, Value};

use crate::arguments::as_double;
use crate::function::Raise;
use crate::work::Work;

/// Tables nested deeper than this are packed as nil.
const DEPTH_MAX: u32 = 16;

const NIL: u8 = 0xC0;
const FALSE: u8 = 0xC2;
const TRUE: u8 = 0xC3;

pub fn pack<'a>(work: Work<'_>, values: impl Iterator<Item = &'a Value>) -> Result<Vec<u8>, Raise> {
    let mut packer = Packer { work, out: Vec::new() };
    for value in values {
        packer.value(value, 0)?;
    }
    Ok(packer.out)
}

struct Packer<'a> {
    work: Work<'a>,
    out: Vec<u8>,
}

impl Packer<'_> {
    fn value(&mut self, value: &Value, depth: u32) -> Result<(), Raise> {
        self.work.step(self.out.capacity())?;
        match value {
            Value::String(text) => self.text(&text.as_bytes()),
            Value::Boolean(truth) => self.out.push(if *truth { TRUE } else { FALSE }),
            Value::Table(_) if depth == DEPTH_MAX => self.out.push(NIL),
            Value::Table(table) => return self.table(table, depth + 1),
            value => match as_double(value) {
                Some(number) => self.number(number),
                None => self.out.push(NIL),
            },
        }
        Ok(())
    }

    fn number(&mut self, number: f64) {
        let integer = number as i64;
        // The second comparison keeps 2^63 out, which saturates.
        if integer as f64 == number && integer != i64::MAX {
            self.integer(integer);
        } else if f64::from(number as f32) == number {
            self.with_tag(0xCA, &(number as f32).to_be_bytes());
        } else {
            self.with_tag(0xCB, &number.to_be_bytes());
        }
    }

    fn integer(&mut self, integer: i64) {
        let bytes = integer.to_be_bytes();
        match integer {
            -32..=127 => self.out.push(integer as u8),
            0x80..=0xFF => self.with_tag(0xCC, &bytes[7..]),
            0x100..=0xFFFF => self.with_tag(0xCD, &bytes[6..]),
            0x1_0000..=0xFFFF_FFFF => self.with_tag(0xCE, &bytes[4..]),
            0x1_0000_0000.. => self.with_tag(0xCF, &bytes),
            -0x80..=-33 => self.with_tag(0xD0, &bytes[7..]),
            -0x8000..=-0x81 => self.with_tag(0xD1, &bytes[6..]),
            -0x8000_0000..=-0x8001 => self.with_tag(0xD2, &bytes[4..]),
            _ => self.with_tag(0xD3, &bytes),
        }
    }

    fn with_tag(&mut self, tag: u8, bytes: &[u8]) {
        self.out.push(tag);
        self.out.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &[u8]) {
        let len = (text.len() as u32).to_be_bytes();
        match text.len() {
            0..=31 => self.out.push(0xA0 | len[3]),
            32..=0xFF => self.with_tag(0xD9, &len[3..]),
            0x100..=0xFFFF => self.with_tag(0xDA, &len[2..]),
            _ => self.with_tag(0xDB, &len),
        }
        self.out.extend_from_slice(text);
    }

    fn table(&mut self, table: &Table, depth: u32) -> Result<(), Raise> {
        let (count, is_array) = count(table)?;
        if is_array {
            self.header(count, 0x90, 0xDC);
            for index in 1..=count {
                let value: Value = table.raw_get(index)?;
                self.value(&value, depth)?;
            }
            return Ok(());
        }
        self.header(count, 0x80, 0xDE);
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            self.value(&key, depth)?;
            self.value(&value, depth)?;
        }
        Ok(())
    }

    fn header(&mut self, count: usize, short: u8, long: u8) {
        let len = (count as u32).to_be_bytes();
        match count {
            0..=15 => self.out.push(short | len[3]),
            16..=0xFFFF => self.with_tag(long, &len[2..]),
            _ => self.with_tag(long + 1, &len),
        }
    }
}

/// The entries of a table, and whether their keys are the numbers from 1 to that.
fn count(table: &Table) -> Result<(usize, bool), Raise> {
    let (mut count, mut max, mut is_array) = (0usize, 0f64, true);
    for pair in table.pairs::<Value, Value>() {
        count += 1;
        match as_double(&pair?.0) {
            Some(number) if number >= 1.0 && number.trunc() == number => max = max.max(number),
            _ => is_array = false,
        }
    }
    Ok((count, is_array && max == count as f64))
}
