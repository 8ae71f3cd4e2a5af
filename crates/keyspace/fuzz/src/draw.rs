//! Calls out of bytes: commands of the table with words for their arguments.

use kvasir_keyspace::command::{Command, Run};
use kvasir_keyspace::commands;
use kvasir_keyspace::spec::{Argument, ArgumentKind};

const KEYS: &[&str] = &[
    "list", "ints", "set", "zset", "hash", "stream", "text", "number", "hll", "geo", "bits", "old",
    "none",
];
/// No great negative ones: as a count they ask for as many elements, each drawn from all, and a
/// reply of gigabytes is what Redis would send, too.
const INTEGERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "-1",
    "-2",
    "-3",
    "10",
    "100",
    "-100",
    "65536",
    "2147483648",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "x",
    "",
    "01",
    "1.5",
];
const DOUBLES: &[&str] = &[
    "0", "1", "-1.5", "1e300", "-1e300", "inf", "-inf", "nan", "1e-320", "x", "", "180", "-85.06",
];
const TEXTS: &[&str] = &[
    "a", "b", "f", "g", "12", "", "group", "me", "1-1", "0", "$", ">", "-", "+", "(1", "[a", "*",
    "LEFT", "MIN", "u8", "i64", "#1", "m", "km", "AND", "NOT", "NX", "GT", "hello",
];
const PATTERNS: &[&str] = &["*", "a*", "?", "[a-z]*", "\\", "*a*a*a*b", "["];
const TIMES: &[&str] = &["0", "1", "1700000000", "1800000000000", "-1", "9223372036854775807", "x"];

/// Takes choices off the front of the input.
pub struct Draw<'a> {
    input: &'a [u8],
}

impl<'a> Draw<'a> {
    pub fn new(input: &'a [u8]) -> Draw<'a> {
        Draw { input }
    }

    pub fn is_over(&self) -> bool {
        self.input.is_empty()
    }

    pub fn wait_ms(&mut self) -> u64 {
        u64::from(self.byte())
    }

    /// A command with arguments.
    pub fn call(&mut self) -> Vec<Vec<u8>> {
        let commands: Vec<&Command> = commands::all().collect();
        let mut command = *self.one_of(&commands);
        let mut words = vec![command.spec.name.as_bytes().to_vec()];
        if let Run::Container(list) = command.run {
            command = *self.one_of(list);
            words.push(command.spec.name.as_bytes().to_vec());
        }
        self.arguments(command.spec.arguments, &mut words);
        self.spoil(&mut words);
        words
    }

    fn arguments(&mut self, arguments: &[Argument], words: &mut Vec<Vec<u8>>) {
        for argument in arguments {
            if argument.optional && self.byte() & 1 == 0 {
                continue;
            }
            let times = if argument.multiple { 1 + self.byte() % 3 } else { 1 };
            for time in 0..times {
                if (time == 0 || argument.multiple_token)
                    && let Some(token) = argument.token
                {
                    words.push(token.as_bytes().to_vec());
                }
                self.argument(argument, words);
            }
        }
    }

    fn argument(&mut self, argument: &Argument, words: &mut Vec<Vec<u8>>) {
        let pool = match argument.kind {
            ArgumentKind::PureToken => return,
            ArgumentKind::Block => return self.arguments(argument.parts, words),
            ArgumentKind::OneOf => {
                let choice = self.below(argument.parts.len());
                return self.arguments(&argument.parts[choice..=choice], words);
            }
            ArgumentKind::Key => KEYS,
            ArgumentKind::Integer => INTEGERS,
            ArgumentKind::Double => DOUBLES,
            ArgumentKind::UnixTime => TIMES,
            ArgumentKind::Pattern => PATTERNS,
            ArgumentKind::String => TEXTS,
        };
        let word = match self.byte() {
            // Bytes as they come.
            255 => self.bytes(),
            choice => pool[usize::from(choice) % pool.len()].as_bytes().to_vec(),
        };
        words.push(word);
    }

    /// Now and then makes a call that is not as the tree says.
    fn spoil(&mut self, words: &mut Vec<Vec<u8>>) {
        let choice = self.byte();
        let at = self.below(words.len());
        match choice {
            0..200 => {}
            200..215 => drop(words.remove(at)),
            215..230 => words.insert(at, words[at].clone()),
            230..245 => words[at] = self.one_of(TEXTS).as_bytes().to_vec(),
            _ => words[at] = self.bytes(),
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let size = usize::from(self.byte()).min(self.input.len());
        let (bytes, rest) = self.input.split_at(size);
        self.input = rest;
        bytes.to_vec()
    }

    fn one_of<'c, T>(&mut self, choices: &'c [T]) -> &'c T {
        &choices[self.below(choices.len())]
    }

    fn below(&mut self, bound: usize) -> usize {
        let choice = usize::from(self.byte());
        let choice = if bound > 256 { choice << 8 | usize::from(self.byte()) } else { choice };
        choice % bound.max(1)
    }

    /// 0 at the end of the input.
    fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.input.split_first() else { return 0 };
        self.input = rest;
        *byte
    }
}
