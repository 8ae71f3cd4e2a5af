//! The manifest of a snapshot in several files: text, one fact a line.
//!
//! ```text
//! KVASIR-SNAPSHOT 1
//! # One snapshot in 2 files beside this one: only together are they the data.
//! id 5f0e3c1d2b4a6978
//! offset 0
//! rdb-version 11
//! keys 3
//! file 0-8191 keys 1 bytes 150 crc64 92ab… dump.rdb.5f0e3c1d2b4a6978.0
//! file 8192-16383 keys 2 bytes 171 crc64 7d10… dump.rdb.5f0e3c1d2b4a6978.1
//! crc64 0f3b…
//! ```
//!
//! The numbers of a file are its slots, its keys, its size, and the CRC64 of all but its last 8
//! bytes, which are that checksum in the file itself; the last line has the CRC64 of all lines
//! before it. `offset` is where the snapshot stands in the log, 0 as long as there is none. Lines
//! that begin with `#` mean nothing.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use kvasir_keyspace::serial::Version;
use kvasir_structures::crc64;
use kvasir_structures::slot::SLOTS;

use crate::set::{FILES_MAX, SnapshotId, checked_name, parse_hex, show_slots};

/// How a manifest begins, so that it is told from an RDB file.
pub const MAGIC: &[u8] = b"KVASIR-SNAPSHOT ";
/// The format; another one is refused.
const FORMAT: &[u8] = b"1";
/// 64 lines of the longest names and numbers are half of it.
pub const SIZE_MAX: usize = 64 << 10;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    pub id: SnapshotId,
    pub offset: u64,
    pub version: Version,
    /// In the order of their slots, which are all there are.
    pub files: Vec<FileFacts>,
}

/// What a manifest says of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileFacts {
    /// Of a file beside the manifest.
    pub name: PathBuf,
    pub slots: Range<u16>,
    pub keys: u64,
    pub bytes: u64,
    pub checksum: u64,
}

/// Where a manifest is not what it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManifestError {
    pub offset: usize,
    pub what: String,
}

impl Manifest {
    pub fn keys(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.keys))
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text = MAGIC.to_vec();
        text.extend(FORMAT);
        let line = format!(
            "\n# One snapshot in {} files beside this one: only together are they the data.\n\
             id {}\noffset {}\nrdb-version {}\nkeys {}\n",
            self.files.len(),
            self.id,
            self.offset,
            self.version.0,
            self.keys()
        );
        text.extend(line.as_bytes());
        for FileFacts { name, slots, keys, bytes, checksum } in &self.files {
            let slots = show_slots(slots);
            let line = format!("file {slots} keys {keys} bytes {bytes} crc64 {checksum:016x} ");
            text.extend(line.as_bytes());
            text.extend(name.as_os_str().as_bytes());
            text.push(b'\n');
        }
        let checksum = crc64::update(0, &text);
        text.extend(format!("crc64 {checksum:016x}\n").as_bytes());
        text
    }

    pub fn parse(text: &[u8]) -> Result<Manifest, ManifestError> {
        let mut lines = Lines::of(text)?;
        let id = lines.field("id", SnapshotId::parse, "16 digits")?;
        let offset = lines.field("offset", parse_number, "a number")?;
        let version = lines.field("rdb-version", parse_version, "a known version")?;
        let keys = lines.field("keys", parse_number, "a number")?;
        let mut files = Vec::new();
        let mut next_slot = 0;
        while usize::from(next_slot) < SLOTS {
            let file = lines.file(id, files.len(), next_slot)?;
            next_slot = file.slots.end;
            files.push(file);
        }
        lines.expect_end()?;
        let manifest = Manifest { id, offset, version, files };
        match manifest.keys() {
            sum if sum == keys => Ok(manifest),
            sum => Err(lines.error(format!("{sum} keys in all files, where {keys} were told"))),
        }
    }

    /// The path of one of the files.
    pub fn path_of(&self, file: usize, manifest: &Path) -> PathBuf {
        manifest.with_file_name(&self.files[file].name)
    }
}

/// What is left of a manifest.
struct Lines<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Lines<'a> {
    /// The lines behind the first one and before the last, whose checksum is right.
    fn of(text: &'a [u8]) -> Result<Lines<'a>, ManifestError> {
        let wrong = |offset, what: &str| ManifestError { offset, what: what.to_owned() };
        let rest = text.strip_prefix(MAGIC).ok_or(wrong(0, "no manifest of a snapshot"))?;
        let rest = rest.strip_prefix(FORMAT).and_then(|rest| rest.strip_prefix(b"\n"));
        let rest = rest.ok_or(wrong(MAGIC.len(), "a manifest of another format than 1"))?;
        let whole = text.strip_suffix(b"\n").ok_or(wrong(text.len(), "the end is missing"))?;
        let end = whole.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
        let stored = whole[end..].strip_prefix(b"crc64 ").and_then(parse_hex);
        let stored = stored.ok_or(wrong(end, "no line with a CRC64 at the end"))?;
        let computed = crc64::update(0, &text[..end]);
        if stored != computed {
            let what = format!("CRC64 {stored:016x}, where the lines have {computed:016x},");
            return Err(ManifestError { offset: end, what });
        }
        let start = text.len() - rest.len();
        Ok(Lines { rest: text.get(start..end).unwrap_or_default(), offset: start })
    }

    fn error(&self, what: impl Into<String>) -> ManifestError {
        ManifestError { offset: self.offset, what: what.into() }
    }

    fn skip_comments(&mut self) {
        while self.rest.starts_with(b"#") {
            let len = self.line().len() + 1;
            self.pass(len);
        }
    }

    /// The line that comes next, without its end.
    fn line(&self) -> &'a [u8] {
        self.rest.split(|byte| *byte == b'\n').next().unwrap_or_default()
    }

    fn pass(&mut self, len: usize) {
        self.rest = self.rest.get(len..).unwrap_or_default();
        self.offset += len;
    }

    /// Takes a line of a name and a value.
    fn field<T>(
        &mut self,
        name: &str,
        parse: impl Fn(&[u8]) -> Option<T>,
        what: &str,
    ) -> Result<T, ManifestError> {
        self.skip_comments();
        let line = self.line();
        let value = line.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b" "));
        let value = value.and_then(parse);
        let value = value.ok_or_else(|| self.error(format!("no line with {name} and {what}")))?;
        self.pass(line.len() + 1);
        Ok(value)
    }

    /// Takes a line of a file whose slots begin here.
    fn file(
        &mut self,
        id: SnapshotId,
        number: usize,
        first_slot: u16,
    ) -> Result<FileFacts, ManifestError> {
        if number == FILES_MAX {
            return Err(self.error(format!("more than {FILES_MAX} files")));
        }
        self.skip_comments();
        let line = self.line();
        let file = parse_file(line, id, number);
        let file = file.ok_or_else(|| {
            self.error(format!("no line of file {number}, whose slots begin at {first_slot}"))
        })?;
        if file.slots.start != first_slot {
            let start = file.slots.start;
            return Err(self.error(format!("slots from {start}, where {first_slot} comes next")));
        }
        self.pass(line.len() + 1);
        Ok(file)
    }

    fn expect_end(&mut self) -> Result<(), ManifestError> {
        self.skip_comments();
        match self.rest {
            [] => Ok(()),
            _ => Err(self.error("a line behind those of all slots")),
        }
    }
}

fn parse_file(line: &[u8], id: SnapshotId, number: usize) -> Option<FileFacts> {
    let mut words = line.splitn(9, |byte| *byte == b' ');
    let mut named = |name: &str| (words.next()? == name.as_bytes()).then(|| words.next())?;
    let slots = parse_slots(named("file")?)?;
    let keys = parse_number(named("keys")?)?;
    let bytes = parse_number(named("bytes")?)?;
    let checksum = parse_hex(named("crc64")?)?;
    let name = checked_name(words.next()?, id, number)?;
    Some(FileFacts { name, slots, keys, bytes, checksum })
}

fn parse_slots(text: &[u8]) -> Option<Range<u16>> {
    let dash = text.iter().position(|byte| *byte == b'-')?;
    let slot = |text| u16::try_from(parse_number(text)?).ok();
    let (first, last) = (slot(&text[..dash])?, slot(&text[dash + 1..])?);
    (first <= last && usize::from(last) < SLOTS).then(|| first..last + 1)
}

fn parse_version(text: &[u8]) -> Option<Version> {
    let version = Version(parse_number(text)?.try_into().ok()?);
    version.is_known().then_some(version)
}

/// A number in the only way in which it is written: digits, no zero before others.
fn parse_number(text: &[u8]) -> Option<u64> {
    let is_digits =
        text.iter().all(u8::is_ascii_digit) && (text == b"0" || text[..].first() != Some(&b'0'));
    is_digits.then(|| std::str::from_utf8(text).ok()?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::{file_name, slots_of};

    fn manifest(files: usize) -> Manifest {
        let id = SnapshotId(0x5f0e_3c1d_2b4a_6978);
        let file = |number| FileFacts {
            name: file_name(Path::new("my dump.rdb"), id, number),
            slots: slots_of(number, files),
            keys: number as u64,
            bytes: 100,
            checksum: u64::MAX - number as u64,
        };
        let files = (0..files).map(file).collect();
        Manifest { id, offset: 7, version: Version(11), files }
    }

    /// The lines with one thing replaced by another, and the checksum that they have then.
    fn changed(from: &str, to: &str) -> Vec<u8> {
        let text = String::from_utf8(manifest(2).to_bytes()).unwrap();
        let (lines, _) = text.split_at(text.rfind("crc64").unwrap());
        let lines = lines.replacen(from, to, 1);
        assert!(!text.starts_with(&lines), "{from} is not there");
        format!("{lines}crc64 {:016x}\n", crc64::update(0, lines.as_bytes())).into_bytes()
    }

    #[test]
    fn what_is_written_is_read() {
        for files in [1, 2, 3, FILES_MAX] {
            let manifest = manifest(files);
            let text = manifest.to_bytes();
            assert!(text.len() < SIZE_MAX / 2, "{}", text.len());
            assert_eq!(Manifest::parse(&text), Ok(manifest));
        }
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_seen() {
        let text = manifest(3).to_bytes();
        for len in 0..text.len() {
            assert!(Manifest::parse(&text[..len]).is_err(), "{len} bytes");
        }
        for bit in 0..text.len() * 8 {
            let mut text = text.clone();
            text[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::parse(&text).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (from, to, what) in [
            ("SNAPSHOT 1", "SNAPSHOT 2", "a manifest of another format than 1"),
            ("id 5f", "id 5F", "no line with id and 16 digits"),
            ("offset 7", "offset 07", "no line with offset and a number"),
            ("offset 7", "offset -7", "no line with offset and a number"),
            ("offset 7\n", "", "no line with offset and a number"),
            ("rdb-version 11", "rdb-version 13", "no line with rdb-version and a known version"),
            ("keys 1\n", "keys 2\n", "1 keys in all files, where 2 were told"),
            ("0-8191", "0-8190", "slots from 8192, where 8191 comes next"),
            ("8192-", "8191-", "slots from 8191, where 8192 comes next"),
            ("16383", "16384", "no line of file 1, whose slots begin at 8192"),
            ("16383", "16382", "no line of file 2, whose slots begin at 16383"),
            ("my dump", "../dump", "no line of file 0, whose slots begin at 0"),
            (".1\n", ".0\n", "no line of file 1, whose slots begin at 8192"),
            (".1\n", ".1\nmore\n", "a line behind those of all slots"),
        ] {
            let error = Manifest::parse(&changed(from, to)).expect_err(to);
            assert_eq!(error.what, what, "{from} -> {to}");
        }
        assert!(Manifest::parse(&changed("offset", "# more\noffset")).is_ok());
    }
}
