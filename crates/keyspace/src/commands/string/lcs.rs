//! What two strings have in common: LCS.

use kvasir_resp::reply::Reply;

use crate::command::{Command, Cx, Run};
use crate::commands::options::integer;
use crate::effect::Effect;
use crate::error::Error;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::value::Text;

pub static COMMANDS: &[&Command] = &[&LCS];

static LCS: Command = Command {
    spec: Spec {
        name: "lcs",
        summary: "Finds the longest text whose bytes stand in both strings in this order.",
        since: "7.0.0",
        group: Group::String,
        complexity: "O(N*M) where N and M are the lengths of the strings.",
        arity: -3,
        flags: Flags::READONLY,
        keys: &[KeySpec::range(KeyFlags::RO.union(KeyFlags::ACCESS), 1, 1, 1)],
        arguments: &[
            Argument::key("key1", 0),
            Argument::key("key2", 0),
            Argument::word("len", "LEN").optional(),
            Argument::word("idx", "IDX").optional(),
            Argument::integer("len").token("MINMATCHLEN").optional(),
            Argument::word("withmatchlen", "WITHMATCHLEN").optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(lcs),
};

fn lcs(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let lens = [text_len(cx, 0)?, text_len(cx, 1)?];
    let [Some(a_len), Some(b_len)] = lens else {
        return Err(Error::fixed("ERR The specified keys must contain string values"));
    };
    let options = Options::parse(cx)?;
    check_room(a_len, b_len, cx.view.env.text_len_max)?;
    let [a, b] = [0, 1].map(|key| copy(cx, key));
    let table = Lengths::new(&a, &b);
    if options.ranges {
        write_ranges(cx.reply, &table, &options);
    } else if options.len {
        cx.reply.integer(i64::from(table.at(a_len, b_len)));
    } else {
        cx.reply.bulk(&table.common_text());
    }
    Ok(Effect::None)
}

/// The length of a string, 0 if there is none; none if the value is not a string.
fn text_len(cx: &mut Cx<'_, '_>, key: usize) -> Result<Option<usize>, Error> {
    match cx.view.text(key) {
        Ok(text) => Ok(Some(text.map_or(0, Text::len))),
        Err(error) if error == Error::WRONG_TYPE => Ok(None),
        Err(error) => Err(error),
    }
}
fn copy(cx: &mut Cx<'_, '_>, key: usize) -> Vec<u8> {
    let text = cx.view.peek(key).map(Text::of);
    text.and_then(Result::ok).map(|text| text.bytes().into_owned()).unwrap_or_default()
}

/// Refuses strings whose table of lengths would be larger than a string may be.
fn check_room(a_len: usize, b_len: usize, bytes_max: usize) -> Result<(), Error> {
    if a_len.max(b_len) >= u32::MAX as usize - 1 {
        return Err(Error::fixed("ERR String too long for LCS"));
    }
    let bytes = (a_len as u128 + 1) * (b_len as u128 + 1) * size_of::<u32>() as u128;
    if bytes > bytes_max as u128 {
        return Err(Error::fixed(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ));
    }
    Ok(())
}

/// LCS's options.
#[derive(Default)]
struct Options {
    len: bool,
    ranges: bool,
    range_len_min: i64,
    with_range_len: bool,
}

impl Options {
    fn parse(cx: &Cx<'_, '_>) -> Result<Options, Error> {
        let mut options = Options::default();
        let mut words = cx.args.from(3).iter();
        while let Some(word) = words.next() {
            if word.eq_ignore_ascii_case(b"len") {
                options.len = true;
            } else if word.eq_ignore_ascii_case(b"idx") {
                options.ranges = true;
            } else if word.eq_ignore_ascii_case(b"withmatchlen") {
                options.with_range_len = true;
            } else if word.eq_ignore_ascii_case(b"minmatchlen") {
                options.range_len_min = integer(words.next().ok_or(Error::SYNTAX)?)?;
            } else {
                return Err(Error::SYNTAX);
            }
        }
        if options.len && options.ranges {
            return Err(Error::fixed(
                "ERR If you want both the length and indexes, please just use IDX.",
            ));
        }
        Ok(options)
    }
}

/// For every two prefixes the length of what they have in common, by dynamic programming.
struct Lengths<'t> {
    a: &'t [u8],
    b: &'t [u8],
    cells: Vec<u32>,
}

/// A run of bytes that both strings have: where it starts in each, and how long it is.
#[derive(Clone, Copy)]
struct Common {
    a: usize,
    b: usize,
    len: usize,
}

impl<'t> Lengths<'t> {
    fn new(a: &'t [u8], b: &'t [u8]) -> Lengths<'t> {
        let width = b.len() + 1;
        let mut cells = vec![0; (a.len() + 1) * width];
        for (row, a_byte) in a.iter().enumerate() {
            let (above, below) = cells[row * width..(row + 2) * width].split_at_mut(width);
            for (column, b_byte) in b.iter().enumerate() {
                below[column + 1] = if a_byte == b_byte {
                    above[column] + 1
                } else {
                    above[column + 1].max(below[column])
                };
            }
        }
        Lengths { a, b, cells }
    }

    /// For the first `a_len` and the first `b_len` bytes.
    fn at(&self, a_len: usize, b_len: usize) -> u32 {
        self.cells[a_len * (self.b.len() + 1) + b_len]
    }

    /// Calls `f` with the longest runs that make up one common text, from the last to the first.
    /// Where several texts are as long, it is the one that Redis finds.
    fn for_each_run(&self, mut f: impl FnMut(Common)) {
        let (mut a, mut b) = (self.a.len(), self.b.len());
        while a > 0 && b > 0 {
            let len = self.a[..a].iter().rev().zip(self.b[..b].iter().rev());
            let len = len.take_while(|(one, other)| one == other).count();
            (a, b) = (a - len, b - len);
            if len > 0 {
                f(Common { a, b, len });
            } else if self.at(a - 1, b) > self.at(a, b - 1) {
                a -= 1;
            } else {
                b -= 1;
            }
        }
    }

    fn common_text(&self) -> Vec<u8> {
        let mut reversed = Vec::new();
        self.for_each_run(|run| reversed.extend(self.a[run.a..run.a + run.len].iter().rev()));
        reversed.reverse();
        reversed
    }
}

fn write_ranges(reply: &mut Reply, table: &Lengths<'_>, options: &Options) {
    reply.map(2);
    reply.bulk(b"matches");
    let deferred = reply.deferred_array();
    let mut runs = 0;
    table.for_each_run(|run| {
        if (run.len as i64) < options.range_len_min {
            return;
        }
        runs += 1;
        reply.array(2 + usize::from(options.with_range_len));
        for start in [run.a, run.b] {
            reply.array(2);
            reply.integer(start as i64);
            reply.integer((start + run.len - 1) as i64);
        }
        if options.with_range_len {
            reply.integer(run.len as i64);
        }
    });
    reply.set_count(deferred, runs);
    reply.bulk(b"len");
    reply.integer(i64::from(table.at(table.a.len(), table.b.len())));
}

#[cfg(test)]
mod tests {
    use crate::testing::events::check_events;
    use crate::testing::{check, check3};

    #[test]
    fn common_text() {
        check(
            "MSET a ohmytext b mynewtext; LCS a b; LCS a b LEN; LCS b a",
            "+OK; $mytext; :6; $mytext",
        );
        check("LCS a b; LCS a b LEN; LCS a b IDX", "$; :0; [$matches [] $len :0]");
        check3("LCS a b; LCS a b LEN; LCS a b IDX", "$; :0; {$matches [] $len :0}");
        check(
            "SET a abc; LCS a none; LCS a a; LCS a none IDX",
            "+OK; $; $abc; [$matches [] $len :0]",
        );
        check(
            "MSET a 12345 b 1x3x5; LCS a b; LCS a b MINMATCHLEN 2 WITHMATCHLEN",
            "+OK; $135; $135",
        );
    }

    #[test]
    fn ranges() {
        check(
            "MSET a ohmytext b mynewtext; LCS a b IDX; LCS a b IDX MINMATCHLEN 4; \
             LCS a b IDX WITHMATCHLEN; LCS a b idx minmatchlen -4 withmatchlen",
            "+OK; [$matches [[[:4 :7] [:5 :8]] [[:2 :3] [:0 :1]]] $len :6]; \
             [$matches [[[:4 :7] [:5 :8]]] $len :6]; \
             [$matches [[[:4 :7] [:5 :8] :4] [[:2 :3] [:0 :1] :2]] $len :6]; \
             [$matches [[[:4 :7] [:5 :8] :4] [[:2 :3] [:0 :1] :2]] $len :6]",
        );
        check3(
            "MSET a ohmytext b mynewtext; LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN; LCS a a IDX",
            "+OK; {$matches [[[:4 :7] [:5 :8] :4]] $len :6}; {$matches [[[:0 :7] [:0 :7]]] $len :8}",
        );
        check(
            "MSET a abcbdab b bdcaba; LCS a b IDX; LCS b a IDX; LCS a b; LCS b a",
            "+OK; [$matches [[[:5 :6] [:3 :4]] [[:3 :4] [:0 :1]]] $len :4]; \
             [$matches [[[:5 :5] [:5 :5]] [[:4 :4] [:3 :3]] [[:2 :2] [:2 :2]] [[:0 :0] [:1 :1]]] \
             $len :4]; \
             $bdab; $bcba",
        );
    }

    #[test]
    fn refuses() {
        let not_text = "-ERR The specified keys must contain string values";
        check(
            "HSET h f v; SET s v; LCS h s; LCS s h FOO; LCS h h MINMATCHLEN x",
            &format!(":1; +OK; {not_text}; {not_text}; {not_text}"),
        );
        check(
            "LCS a; LCS a b FOO; LCS a b MINMATCHLEN; LCS a b MINMATCHLEN x; LCS a b LEN IDX",
            "-ERR wrong number of arguments for 'lcs' command; -ERR syntax error; -ERR syntax error; \
             -ERR value is not an integer or out of range; \
             -ERR If you want both the length and indexes, please just use IDX.",
        );
    }

    #[test]
    fn memory_has_a_limit() {
        check(
            "SETRANGE a 11600 x; SETRANGE b 11600 x; LCS a b LEN",
            ":11601; :11601; -ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        );
    }

    #[test]
    fn events_of_comparing() {
        check_events("LCS a b; SET a x; LCS a b", "keymiss a, keymiss b; new a, set a; keymiss b");
    }
}
