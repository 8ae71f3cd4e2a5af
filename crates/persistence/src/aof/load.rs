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
//!
//! No more of a log is in memory than the record at hand: what is behind a fault, or zeros, may be
//! many times what a machine has.

use std::fmt;
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kvasir_resp::args::{Args, ArgsBuf};

use super::proof::Proof;
use super::record::{Group, NO_RECORD, NoRecord, Record, parse};
use crate::disk::read_more;

/// How much is read at once.
const READ_SIZE: usize = 1 << 20;

/// A longer call is not counted among those that are dropped.
const COUNTED_MAX: usize = 64 << 20;

/// What a place is that was on disk.
const LOST: &str = "something is broken that was on disk";
const NO_GROUP: &str = "a group of calls that is not as it was written";

static ZEROS: [u8; 4096] = [0; 4096];

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
        let good_to = transaction.as_ref().map_or(start, |open| open.start);
        if let Some(room) = log.end(good_to)? {
            return match transaction {
                Some(Transaction { start, .. }) => Err(AofError::Torn { offset: start }),
                None => Ok(End { offset: start, room }),
            };
        }
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

/// What is not loaded, for people, who wonder what they lose.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    pub bytes: u64,
    /// How many calls stand in it whole, without those of more than 64 MiB.
    pub calls: u64,
}

/// Counts what is left of a log.
pub fn count_calls(mut input: impl Read) -> io::Result<Dropped> {
    let (mut dropped, mut bytes, mut has_ended) = (Dropped::default(), Vec::new(), false);
    while !has_ended {
        let before = bytes.len();
        has_ended = read_more(&mut input, &mut bytes, READ_SIZE.max(before))?;
        dropped.bytes += (bytes.len() - before) as u64;
        let mut used = 0;
        while used < bytes.len() {
            let rest = &bytes[used..];
            match parse(rest) {
                Ok(record) => {
                    dropped.calls += u64::from(matches!(record, Record::Call { .. }));
                    used += record.size();
                }
                Err(NoRecord::Incomplete) if !has_ended && rest.len() < COUNTED_MAX => break,
                // The next one begins a line.
                Err(_) => used += memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1),
            }
        }
        bytes.drain(..used);
    }
    Ok(dropped)
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

    /// If nothing but zeros is left: how many. There is no record that begins with one.
    fn end(&mut self, good_to: u64) -> Result<Option<u64>, AofError> {
        if self.bytes.len() == self.used && !self.read()? {
            return Ok(Some(0));
        }
        if self.bytes[self.used] != 0 {
            return Ok(None);
        }
        let start = self.place();
        loop {
            let rest = &self.bytes[self.used..];
            let whole = rest.chunks(ZEROS.len()).take_while(|part| **part == ZEROS[..part.len()]);
            let zeros: usize = whole.map(<[u8]>::len).sum();
            self.used += zeros;
            if self.used < self.bytes.len() {
                return Err(self.wrong(start, 0, NO_RECORD, good_to)?);
            }
            if !self.read()? {
                return Ok(Some(self.place() - start));
            }
        }
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
                Err(NoRecord::Incomplete) => {
                    return Err(self.torn(self.place(), LOST, good_to)?);
                }
                Err(NoRecord::Wrong { at, what }) => {
                    return Err(self.wrong(self.place(), at, what, good_to)?);
                }
            }
        }
    }

    /// Why there is no record at a place: at so many bytes behind it stands what can't be there.
    fn wrong(&mut self, place: u64, at: usize, what: &str, good_to: u64) -> io::Result<AofError> {
        if self.follows_group && place >= self.group_end {
            return self.torn(place, LOST, good_to);
        }
        let (offset, what) = (place + at as u64, what.to_owned());
        Ok(AofError::Broken { offset, good_to, what })
    }

    /// Whether what is left is the torn end of the log. Reads it to its end.
    fn torn(&mut self, place: u64, what: &str, good_to: u64) -> io::Result<AofError> {
        let mut proof = Proof::of(place);
        loop {
            let (rest, offset, is_last) = (&self.bytes[self.used..], self.place(), self.has_ended);
            self.used += proof.look(rest, offset, is_last);
            if proof.is_found() {
                return Ok(AofError::Broken { offset: place, good_to, what: what.to_owned() });
            }
            if is_last {
                return Ok(AofError::Torn { offset: good_to });
            }
            self.read()?;
        }
    }

    /// Checks the group behind its head.
    fn check_group(&mut self, group: &Group, good_to: u64) -> Result<(), AofError> {
        let len = usize::try_from(group.len).unwrap_or(usize::MAX).saturating_add(group.size);
        while self.bytes.len() - self.used < len && self.read()? {}
        let body = self.bytes.get(self.used + group.size..self.used.saturating_add(len));
        if body.is_some_and(|body| group.is_sound(body)) {
            return Ok(());
        }
        Err(self.torn(self.place(), NO_GROUP, good_to)?)
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
        let count_calls = |bytes: &[u8]| {
            let dropped = count_calls(bytes).unwrap();
            assert_eq!(dropped.bytes, bytes.len() as u64);
            dropped.calls
        };
        assert_eq!(count_calls(text.as_bytes()), 2);
        let (text, starts) = groups(true);
        assert_eq!(count_calls(&text.as_bytes()[starts[1] + 9..text.len() - 1]), 1);
        assert_eq!(count_calls(&[0; 9]), 0);
        let apart =
            [call("PING").as_bytes(), &[0; 3 << 20], b"\n", call("PING").as_bytes()].concat();
        assert_eq!(count_calls(&apart), 2);
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
