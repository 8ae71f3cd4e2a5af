//! Reading a log: call after call, up to its end, or up to where its end was torn off.
//!
//! A call counts when it is whole, one between MULTI and EXEC when the EXEC is there, one of a
//! group when the whole group is there and has its checksum.
//!
//! A power cut may leave anything of what was not on disk yet: a part, zeros, later bytes without
//! earlier ones. That is the torn end, and may be cut off. A group says how much of the file was on
//! disk when it was written; if a sound one says so of a byte that is broken, the file was damaged,
//! and is refused. So is what is broken among calls without groups. Zeros behind the last record
//! are room for more, and no fault.

use std::fmt;
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kvasir_resp::args::{Args, ArgsBuf};

use super::record::{Group, NoRecord, Record, has_proof, parse};
use crate::disk::read_more;

/// How much is read at once.
const READ_SIZE: usize = 1 << 20;

/// Takes the calls of a log.
pub trait Replay {
    /// An error, said for people, ends the loading.
    fn call(&mut self, args: Args<'_>) -> Result<(), String>;

    /// Sees the bytes of calls that count by now, as they stand in the log.
    fn counted(&mut self, _bytes: &[u8]) {}

    /// Sees a line that is passed over; everything before `good_to` is whole.
    fn line(&mut self, _good_to: u64, _text: &[u8]) {}
}

/// Why a log was not read.
#[derive(Debug)]
pub enum AofError {
    Io(io::Error),
    /// It ends in the middle of something; up to `offset` it is good.
    Torn {
        offset: u64,
    },
    /// Up to `good_to` it is good all the same.
    Broken {
        offset: u64,
        good_to: u64,
        what: String,
    },
}

impl fmt::Display for AofError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AofError::Io(error) => error.fmt(f),
            AofError::Torn { offset } => write!(
                f,
                "Unexpected end of file reading the append only file, behind byte {offset}"
            ),
            AofError::Broken { offset, what, .. } => write!(f, "{what} at byte {offset}"),
        }
    }
}

impl std::error::Error for AofError {}

impl From<io::Error> for AofError {
    fn from(error: io::Error) -> AofError {
        AofError::Io(error)
    }
}

/// Where a log ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    pub offset: u64,
    /// Zeros behind it: room that was made for more.
    pub room: u64,
}

/// Reads a log that begins at byte `offset` of its file.
pub fn load(
    input: impl Read,
    offset: u64,
    progress: &AtomicU64,
    replay: &mut impl Replay,
) -> Result<End, AofError> {
    let mut log = Log::new(input, offset);
    let mut transaction: Option<Transaction> = None;
    loop {
        let start = log.place();
        if let Some(room) = log.end()? {
            return match transaction {
                Some(Transaction { start, .. }) => Err(AofError::Torn { offset: start }),
                None => Ok(End { offset: start, room }),
            };
        }
        let good_to = transaction.as_ref().map_or(start, |open| open.start);
        let record = log.next(good_to)?;
        match record {
            Record::Line { size } => replay.line(good_to, &log.bytes[log.used..log.used + size]),
            Record::Group(group) => log.check_group(&group, good_to)?,
            Record::Call { ref words, .. } => {
                let args = Args::new(&log.bytes[log.used..], words);
                let failed = |what| AofError::Broken { offset: start, good_to, what };
                let is = |name: &[u8]| args.name().eq_ignore_ascii_case(name);
                let raw = &log.bytes[log.used..log.used + record.size()];
                if let Some(open) = &mut transaction {
                    open.bytes.extend_from_slice(raw);
                }
                match &mut transaction {
                    None if is(b"multi") => {
                        let (calls, bytes) = (Vec::new(), raw.to_vec());
                        transaction = Some(Transaction { start, calls, bytes });
                    }
                    None => {
                        replay.call(args).map_err(failed)?;
                        replay.counted(raw);
                    }
                    // Redis executes it, refuses it, and goes on.
                    Some(_) if is(b"multi") => {}
                    Some(open) if is(b"exec") => {
                        for call in std::mem::take(&mut open.calls) {
                            replay.call(call.as_args()).map_err(failed)?;
                        }
                        replay.counted(&open.bytes);
                        transaction = None;
                    }
                    Some(open) => open.calls.push(args.into()),
                }
            }
        }
        log.pass(&record);
        progress.fetch_add(record.size() as u64, Relaxed);
    }
}

/// One whose EXEC has not come yet.
struct Transaction {
    /// Where its MULTI is.
    start: u64,
    calls: Vec<ArgsBuf>,
    /// As it stands in the log.
    bytes: Vec<u8>,
}

/// How many whole calls stand in what is not loaded: for people, who wonder what they lose.
pub fn count_calls(mut bytes: &[u8]) -> u64 {
    let mut count = 0;
    while !bytes.is_empty() {
        let size = match parse(bytes) {
            Ok(record) => {
                count += u64::from(matches!(record, Record::Call { .. }));
                record.size()
            }
            // The next one begins a line.
            Err(_) => bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1),
        };
        bytes = &bytes[size..];
    }
    count
}

struct Log<R> {
    input: R,
    bytes: Vec<u8>,
    /// Of `bytes`, done with.
    used: usize,
    /// Where `bytes` begins in the file.
    offset: u64,
    has_ended: bool,
    /// Where the last group ends.
    group_end: u64,
    /// Nothing but groups and comments comes behind it so far.
    follows_group: bool,
}

impl<R: Read> Log<R> {
    fn new(input: R, offset: u64) -> Log<R> {
        Log {
            input,
            bytes: Vec::new(),
            used: 0,
            offset,
            has_ended: false,
            group_end: 0,
            follows_group: false,
        }
    }

    fn place(&self) -> u64 {
        self.offset + self.used as u64
    }

    /// Reads on; false if there is nothing more.
    fn read(&mut self) -> io::Result<bool> {
        self.bytes.drain(..self.used);
        self.offset += std::mem::take(&mut self.used) as u64;
        let before = self.bytes.len();
        if !self.has_ended {
            self.has_ended = read_more(&mut self.input, &mut self.bytes, READ_SIZE.max(before))?;
        }
        Ok(self.bytes.len() > before)
    }

    /// If nothing but zeros is left: how many.
    fn end(&mut self) -> io::Result<Option<u64>> {
        if self.bytes.len() == self.used && !self.read()? {
            return Ok(Some(0));
        }
        if self.bytes[self.used] != 0 {
            return Ok(None);
        }
        while self.read()? {}
        let rest = &self.bytes[self.used..];
        Ok(rest.iter().all(|byte| *byte == 0).then_some(rest.len() as u64))
    }

    /// Is done with a record.
    fn pass(&mut self, record: &Record) {
        let place = self.place();
        self.used += record.size();
        match record {
            Record::Group(group) => {
                self.group_end = self.place() + group.len;
                self.follows_group = true;
            }
            Record::Call { .. } => self.follows_group = place < self.group_end,
            Record::Line { .. } => {}
        }
    }

    fn next(&mut self, good_to: u64) -> Result<Record, AofError> {
        loop {
            match parse(&self.bytes[self.used..]) {
                Ok(record) => return Ok(record),
                Err(NoRecord::Incomplete) if self.read()? => {}
                Err(NoRecord::Incomplete) => return Err(self.torn(good_to)),
                Err(NoRecord::Wrong { at, what }) => {
                    while self.read()? {}
                    if self.follows_group && self.place() >= self.group_end {
                        return Err(self.torn(good_to));
                    }
                    let offset = self.place() + at as u64;
                    return Err(AofError::Broken { offset, good_to, what: what.into() });
                }
            }
        }
    }

    /// Whether what is left, which is all read, is the torn end of the log.
    fn torn(&self, good_to: u64) -> AofError {
        let (rest, place) = (&self.bytes[self.used..], self.place());
        if has_proof(rest, place, place) {
            let what = "something is broken that was on disk".to_owned();
            return AofError::Broken { offset: place, good_to, what };
        }
        AofError::Torn { offset: good_to }
    }

    /// Checks the group behind its head.
    fn check_group(&mut self, group: &Group, good_to: u64) -> Result<(), AofError> {
        let len = usize::try_from(group.len).unwrap_or(usize::MAX).saturating_add(group.size);
        while self.bytes.len() - self.used < len && self.read()? {}
        let body = self.bytes.get(self.used + group.size..self.used.saturating_add(len));
        if body.is_some_and(|body| group.is_sound(body)) {
            return Ok(());
        }
        while self.read()? {}
        Err(self.torn_group(good_to))
    }

    fn torn_group(&self, good_to: u64) -> AofError {
        let (rest, place) = (&self.bytes[self.used..], self.place());
        if has_proof(rest, place, place) {
            let what = "a group of calls that is not as it was written".to_owned();
            return AofError::Broken { offset: place, good_to, what };
        }
        AofError::Torn { offset: good_to }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aof::record::group_head;

    #[derive(Default)]
    struct Calls(Vec<String>);

    impl Replay for Calls {
        fn call(&mut self, args: Args<'_>) -> Result<(), String> {
            let words: Vec<_> = args.iter().map(String::from_utf8_lossy).collect();
            self.0.push(words.join(" "));
            if words[0] == "BAD" { Err("BAD fails".into()) } else { Ok(()) }
        }
    }

    fn call(text: &str) -> String {
        let words: Vec<_> = text.split(' ').collect();
        let words_text: String =
            words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        format!("*{}\r\n{words_text}", words.len())
    }

    fn group(synced: usize, text: &str) -> String {
        String::from_utf8(group_head(synced as u64, &[text.as_bytes()])).unwrap() + text
    }

    /// Three of them, and where they begin; each is synced before the next, or none is.
    fn groups(are_synced: bool) -> (String, [usize; 4]) {
        let (mut text, mut starts) = (String::new(), [0; 4]);
        for (index, line) in ["SET a 1", "SET b 2", "SET c 3"].into_iter().enumerate() {
            text += &group(if are_synced { text.len() } else { 0 }, &call(line));
            starts[index + 1] = text.len();
        }
        (text, starts)
    }

    /// The calls, and the end or the error.
    fn read(bytes: &[u8]) -> (Vec<String>, Result<u64, String>) {
        let (calls, end) = read_to_end(bytes);
        (calls, end.map(|end| end.offset))
    }

    fn read_to_end(bytes: &[u8]) -> (Vec<String>, Result<End, String>) {
        let mut calls = Calls::default();
        let end = load(bytes, 0, &AtomicU64::new(0), &mut calls);
        (calls.0, end.map_err(|error| error.to_string()))
    }

    #[test]
    fn calls_are_read() {
        let text = call("SELECT 1")
            + "#TS:17\r\n"
            + &call("SET k v")
            + &group(0, &call("MULTI"))
            + &call("DEL k")
            + &call("EXEC");
        assert_eq!(
            read(text.as_bytes()),
            (["SELECT 1", "SET k v", "DEL k"].map(String::from).to_vec(), Ok(text.len() as u64))
        );
        assert_eq!(read(b""), (vec![], Ok(0)));
    }

    #[test]
    fn a_torn_end_is_cut_behind_the_last_whole_entry() {
        let first = call("SET a 1");
        for last in [
            call("SET b 2"),
            call("MULTI") + &call("SET b 2") + &call("EXEC"),
            group(0, &(call("SET b 2") + &call("SET c 3"))),
        ] {
            let text = first.clone() + &last;
            for end in first.len() + 1..text.len() {
                let (calls, error) = read(&text.as_bytes()[..end]);
                assert_eq!(calls, ["SET a 1"], "{end}");
                assert_eq!(
                    error,
                    Err(format!(
                        "Unexpected end of file reading the append only file, behind byte {}",
                        first.len()
                    ))
                );
            }
        }
    }

    #[test]
    fn whole_calls_are_counted_among_rubbish() {
        let text = "x\r\n".to_owned() + &call("SET a 1") + "*2\r\n$3\r\nGETx\r\n" + &call("PING");
        assert_eq!(count_calls(text.as_bytes()), 2);
        let (text, starts) = groups(true);
        assert_eq!(count_calls(&text.as_bytes()[starts[1] + 9..text.len() - 1]), 1);
        assert_eq!(count_calls(&[0; 9]), 0);
    }

    /// An empty group behind the last one, which says that it is on disk.
    #[test]
    fn what_a_mark_speaks_of_is_no_torn_end() {
        let (text, starts) = groups(true);
        let marked = text.clone() + &group(text.len(), "");
        assert_eq!(read(marked.as_bytes()).1, Ok(marked.len() as u64));
        for at in starts[2] + 5..text.len() {
            let mut bytes = marked.clone().into_bytes();
            bytes[at] ^= 4;
            let (calls, error) = read(&bytes);
            assert_eq!(calls, ["SET a 1", "SET b 2"], "{at}");
            let error = error.expect_err("it is damaged");
            assert!(!error.contains("the end is missing"), "{at}: {error}");
        }
        // Of the mark itself nothing is missed.
        for end in text.len() + 1..marked.len() {
            let error = format!(
                "Unexpected end of file reading the append only file, behind byte {}",
                text.len()
            );
            assert_eq!(read(&marked.as_bytes()[..end]), (read(text.as_bytes()).0, Err(error)));
        }
    }

    #[test]
    fn zeros_behind_the_end_are_room() {
        let whole = call("SET a 1");
        for tail in ["\0", "\0\0\0\0"] {
            let (calls, end) = read_to_end((whole.clone() + tail).as_bytes());
            assert_eq!(calls, ["SET a 1"]);
            let (offset, room) = (whole.len() as u64, tail.len() as u64);
            assert_eq!(end, Ok(End { offset, room }));
        }
        let nested = call("MULTI") + &call("A") + &call("MULTI") + &call("B") + &call("EXEC");
        assert_eq!(
            read(nested.as_bytes()),
            (vec!["A".into(), "B".into()], Ok(nested.len() as u64))
        );
        let more_behind = read((whole.clone() + "\0\0" + &whole).as_bytes());
        assert!(more_behind.1.is_err_and(|error| error.starts_with("neither a call")));
        let (_, half) = read((whole.clone() + &call("MULTI") + &call("SET b 2") + "\0").as_bytes());
        assert_eq!(
            half,
            Err(format!(
                "Unexpected end of file reading the append only file, behind byte {}",
                whole.len()
            ))
        );
    }

    /// Whatever is left of what was not on disk.
    #[test]
    fn an_end_that_was_never_synced_is_torn_anywhere() {
        let (text, starts) = groups(false);
        for at in starts[1]..starts[2] {
            if (1..5).contains(&(at - starts[1])) {
                continue;
            }
            let mut flipped = text.clone().into_bytes();
            flipped[at] ^= 4;
            let mut holed = text.clone().into_bytes();
            holed[starts[1]..=at].fill(0);
            for bytes in [flipped, holed] {
                let (calls, error) = read(&bytes);
                assert_eq!(calls, ["SET a 1"], "{at}");
                let end = starts[1];
                assert_eq!(
                    error,
                    Err(format!(
                        "Unexpected end of file reading the append only file, behind byte {end}"
                    )),
                    "{at}"
                );
            }
        }
    }

    #[test]
    fn damage_in_the_middle_is_refused() {
        let (text, starts) = groups(true);
        for at in starts[1]..starts[2] {
            // Another comment, behind which all is as it was.
            if (1..5).contains(&(at - starts[1])) {
                continue;
            }
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 4;
            let (calls, error) = read(&bytes);
            assert_eq!(calls, ["SET a 1"], "{at}");
            let error = error.expect_err("it is damaged");
            assert!(!error.contains("the end is missing"), "{at}: {error}");
        }
        let (_, error) = read((call("A") + "x" + &call("B")).as_bytes());
        assert_eq!(error, Err("neither a call nor a comment at byte 11".into()));
        let (_, error) = read((call("A") + &call("BAD")).as_bytes());
        assert_eq!(error, Err("BAD fails at byte 11".into()));
    }
}
