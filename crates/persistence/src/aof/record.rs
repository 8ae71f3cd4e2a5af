//! What stands at one place of a log: a call, a line that is passed over, the head of a group.

use kvasir_resp::args::Span;
use kvasir_structures::crc64;

/// The longest line that is passed over, its end included, as in Redis.
const LINE_MAX: usize = 1024;
/// No head of a group is longer.
pub const HEAD_MAX: usize = LINE_MAX;
/// The most words of a call, and bytes of one.
const COUNT_MAX: usize = i32::MAX as usize;

/// How the head of a group begins.
pub const GROUP: &[u8] = b"#KVG:";
const PLACE: &[u8] = b"#KVP:";
/// No history is longer: whoever says so lies.
pub const OFFSET_MAX: u64 = 1 << 62;

/// What begins where one looked, and how many bytes it takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    Call { words: Vec<Span>, size: usize },
    Line { size: usize },
    Group(Group),
}

/// The head of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// Bytes of the head, and of the group behind it.
    pub size: usize,
    pub len: u64,
    /// The file was on disk up to this byte when the group was written.
    pub synced: u64,
    checksum: u64,
    /// Of the head, up to where the checksum stands.
    of_head: u64,
}

impl Record {
    /// The bytes it takes; of a group, those of its head.
    pub fn size(&self) -> usize {
        match self {
            Record::Call { size, .. } | Record::Line { size } => *size,
            Record::Group(group) => group.size,
        }
    }
}

impl Group {
    /// Whether this is what was written.
    pub fn is_sound(&self, body: &[u8]) -> bool {
        body.len() as u64 == self.len && crc64::update(self.of_head, body) == self.checksum
    }

    /// What comes behind the head, for who sees it piece by piece.
    pub fn body(&self) -> Body {
        Body { left: self.len, checksum: self.of_head, is_to_be: self.checksum }
    }
}

/// The body of a group, as far as it was seen.
pub struct Body {
    left: u64,
    checksum: u64,
    is_to_be: u64,
}

impl Body {
    /// Sees what comes next; what is behind the body is passed over.
    pub fn take(&mut self, bytes: &[u8]) {
        let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        self.checksum = crc64::update(self.checksum, &bytes[..len]);
        self.left -= len as u64;
    }

    pub fn is_whole(&self) -> bool {
        self.left == 0
    }

    /// Whether it is whole, and what was written.
    pub fn is_sound(&self) -> bool {
        self.is_whole() && self.checksum == self.is_to_be
    }
}

/// What begins like no record.
pub const NO_RECORD: &str = "neither a call nor a comment";

/// Why there is no record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoRecord {
    /// The bytes end before it does.
    Incomplete,
    /// So many bytes further on stands what cannot be there.
    Wrong { at: usize, what: &'static str },
}

/// The line before a group that is written to a file of which so much is on disk.
pub fn group_head(synced: u64, body: &[&[u8]]) -> Vec<u8> {
    let len: usize = body.iter().map(|bytes| bytes.len()).sum();
    let head = format!("#KVG:{len}:{synced}:");
    let of_head = crc64::update(0, head.as_bytes());
    let checksum = body.iter().fold(of_head, |crc, bytes| crc64::update(crc, bytes));
    format!("{head}{checksum:016x}\r\n").into_bytes()
}

/// The line that says when what follows it was written.
pub fn time_line(unix_s: u64) -> Vec<u8> {
    format!("#TS:{unix_s}\r\n").into_bytes()
}

/// Whether this is the name of a history: 40 hexadecimal digits.
pub fn is_history(name: &str) -> bool {
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The line that says where the calls behind it stand in a history of data: its name and the
/// offset. The calls count from there on, and nothing else does. Of what `place_of` would not take
/// nothing is written: a log without the line can be read, and one with it perhaps not.
pub fn place_line(history: &str, offset: u64) -> Vec<u8> {
    if !is_history(history) || offset > OFFSET_MAX {
        return Vec::new();
    }
    format!("{}{history}:{offset}\r\n", str::from_utf8(PLACE).expect("text")).into_bytes()
}

/// What such a line says.
pub fn place_of(line: &[u8]) -> Option<(&str, u64)> {
    let line = line.strip_prefix(PLACE)?.strip_suffix(b"\r\n")?;
    let (history, offset) = str::from_utf8(line).ok()?.split_once(':')?;
    let offset = offset.parse().ok().filter(|offset| *offset <= OFFSET_MAX)?;
    is_history(history).then_some((history, offset))
}

/// The record at the beginning of `bytes`, which are not empty. Places in it count from there.
pub fn parse(bytes: &[u8]) -> Result<Record, NoRecord> {
    match bytes.first() {
        Some(b'*') => parse_call(bytes),
        Some(b'#') => parse_line(bytes),
        Some(_) => Err(NoRecord::Wrong { at: 0, what: NO_RECORD }),
        None => Err(NoRecord::Incomplete),
    }
}

fn parse_call(bytes: &[u8]) -> Result<Record, NoRecord> {
    let mut words = Vec::new();
    let size = parse_words(bytes, &mut words)?;
    Ok(Record::Call { words, size })
}

/// As `parse`, of a call only, whose words are added to others. Returns its size; words of one that
/// is none, or not whole, are to be taken off again.
pub fn parse_words(bytes: &[u8], words: &mut Vec<Span>) -> Result<usize, NoRecord> {
    let (count, mut at) = number(bytes, 0, b'*')?;
    if count == 0 {
        return Err(NoRecord::Wrong { at: 1, what: "a call without words" });
    }
    for _ in 0..count {
        let (len, start) = number(bytes, at, b'$')?;
        let end = start + len;
        match bytes.get(end..end + 2) {
            None => return Err(NoRecord::Incomplete),
            Some(b"\r\n") => {}
            Some(_) => return Err(NoRecord::Wrong { at: end, what: "a word has no end" }),
        }
        let long = NoRecord::Wrong { at, what: "a call of more than 4 GiB" };
        let narrow = |place: usize| u32::try_from(place).map_err(|_| long);
        words.push(Span { start: narrow(start)?, len: narrow(end)? - narrow(start)? });
        at = end + 2;
    }
    Ok(at)
}

/// The number behind `kind` at `at`, and where its line ends.
fn number(bytes: &[u8], at: usize, kind: u8) -> Result<(usize, usize), NoRecord> {
    let wrong = |what| NoRecord::Wrong { at, what };
    let Some((first, rest)) = bytes.get(at..).and_then(<[u8]>::split_first) else {
        return Err(NoRecord::Incomplete);
    };
    if *first != kind {
        return Err(wrong("a word or a number is missing"));
    }
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let text = std::str::from_utf8(&rest[..digits]).unwrap_or_default();
    match rest.get(digits..digits + 2) {
        _ if digits > 10 => Err(wrong("a number that is too large")),
        Some(b"\r\n") => {
            let number = text.parse().ok().filter(|number| *number <= COUNT_MAX);
            Ok((number.ok_or(wrong("no number, or one that is too large"))?, at + digits + 3))
        }
        None if rest.get(digits).is_none_or(|byte| *byte == b'\r') => Err(NoRecord::Incomplete),
        _ => Err(wrong("a number is not followed by the end of its line")),
    }
}

fn parse_line(bytes: &[u8]) -> Result<Record, NoRecord> {
    let end = bytes.iter().take(LINE_MAX).position(|byte| *byte == b'\n');
    let Some(end) = end else {
        let is_long = bytes.len() >= LINE_MAX;
        let what = "a comment that does not end";
        return Err(if is_long { NoRecord::Wrong { at: 0, what } } else { NoRecord::Incomplete });
    };
    let size = end + 1;
    if !bytes.starts_with(GROUP) {
        return Ok(Record::Line { size });
    }
    parse_group(&bytes[..size]).ok_or(NoRecord::Wrong { at: 0, what: "no head of a group" })
}

fn parse_group(line: &[u8]) -> Option<Record> {
    let text = std::str::from_utf8(line).ok()?.strip_suffix("\r\n")?;
    let (head, checksum) = text.rsplit_once(':')?;
    let (len, synced) = head.get(GROUP.len()..)?.split_once(':')?;
    let checksum = u64::from_str_radix(checksum, 16).ok().filter(|_| checksum.len() == 16)?;
    let of_head = crc64::update(0, &line[..=head.len()]);
    let (len, synced) = (len.parse().ok()?, synced.parse().ok()?);
    Some(Record::Group(Group { size: line.len(), len, synced, checksum, of_head }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_say_what_was_said_and_nothing_else_is_one() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        let line = place_line(id, 42);
        assert_eq!(parse(&line), Ok(Record::Line { size: line.len() }));
        assert_eq!(place_of(&line), Some((id, 42)));
        let text = String::from_utf8(line).unwrap();
        for wrong in [
            text.replace("KVP", "KVG"),
            text.replace("\r\n", "\n"),
            text.replace("f0", "g0"),
            text.replace("0123", "012"),
            text.replace(":42", ":-1"),
            text.replace(":42", &format!(":{}", OFFSET_MAX + 1)),
            text.replace(":42", ""),
        ] {
            assert_eq!(place_of(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn a_place_that_nobody_would_read_is_not_written() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        for (history, offset) in
            [(&*"a".repeat(1100), 1), (&id[1..], 1), ("", 1), (id, OFFSET_MAX + 1)]
        {
            assert_eq!(place_line(history, offset), b"", "{history} {offset}");
        }
        assert_eq!(place_of(&place_line(id, OFFSET_MAX)), Some((id, OFFSET_MAX)));
    }

    #[test]
    fn every_beginning_of_a_record_is_incomplete() {
        for text in [
            "*2\r\n$3\r\nGET\r\n$12\r\nkey\r\nwith..x\r\n",
            "# a line\n",
            "#KVG:3:17:00000000000000ab\r\n",
        ] {
            for end in 1..text.len() {
                assert_eq!(
                    parse(&text.as_bytes()[..end]),
                    Err(NoRecord::Incomplete),
                    "{text} {end}"
                );
            }
            let record = parse(format!("{text}*1").as_bytes()).expect(text);
            assert_eq!(record.size(), text.len());
        }
    }

    #[test]
    fn what_cannot_be_there_is_wrong() {
        for text in [
            "SET k v\r\n",
            "*0\r\n",
            "*x\r\n",
            "*1\n$",
            "*1\r\n+3\r\n",
            "*1\r\n$3\r\nGETxx",
            "*99999999999\r\n",
            "*1\r\n$9999999999\r\n",
            "\0",
            "#KVG:1:2:3\n",
            "#KVG:1:00000000000000ab\r\n",
            "#KVG:1:2:00000000000000ab\n",
            "#KVG:x:2:00000000000000ab\r\n",
            "*-1\r\n",
        ] {
            let found = parse(text.as_bytes());
            assert!(matches!(found, Err(NoRecord::Wrong { .. })), "{text:?}: {found:?}");
        }
        assert!(matches!(parse(&[b'#'; LINE_MAX]), Err(NoRecord::Wrong { .. })));
    }
}
