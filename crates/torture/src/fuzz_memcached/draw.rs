//! Calls as a client of memcached makes them, and as it should not.

use kvasir_harness::random::Random;

/// A call; where it names an id, that of each server's own is put in.
pub struct Drawn {
    pub keys: Vec<Vec<u8>>,
    parts: Vec<Part>,
}

enum Part {
    Bytes(Vec<u8>),
    /// What the server has last told of the first key.
    Id,
}

/// For who has told none: older than any.
const NO_ID: u64 = 1;

impl Drawn {
    /// As bytes for a server that has told these ids.
    pub fn request(&self, id_of: impl Fn(&[u8]) -> Option<u64>) -> Vec<u8> {
        let id = || self.keys.first().and_then(|key| id_of(key)).unwrap_or(NO_ID).to_string();
        let bytes = self.parts.iter().map(|part| match part {
            Part::Bytes(bytes) => bytes.clone(),
            Part::Id => id().into_bytes(),
        });
        bytes.collect::<Vec<_>>().concat()
    }

    /// A call that deletes the first key.
    pub fn delete(&self) -> Drawn {
        self.of_first_key(b"delete ")
    }

    pub fn get(&self) -> Drawn {
        self.of_first_key(b"get ")
    }

    fn of_first_key(&self, name: &[u8]) -> Drawn {
        let key = self.keys.first().cloned().unwrap_or_default();
        let request = [name, &key[..], b"\r\n"].concat();
        Drawn { keys: vec![key], parts: vec![Part::Bytes(request)] }
    }

    pub fn show(&self) -> String {
        const SHOWN_MAX: usize = 400;
        let request = self.request(|_| None);
        request[..request.len().min(SHOWN_MAX)].escape_ascii().to_string()
    }

    /// Changes what is of every key.
    pub fn is_about_all(&self) -> bool {
        self.keys.is_empty()
    }
}

/// A call that is being written.
struct Writer<'a> {
    random: &'a mut Random,
    epoch: u64,
    drawn: Drawn,
}

/// The next call. Keys are of the epoch.
pub fn draw(random: &mut Random, epoch: u64) -> Drawn {
    let drawn = Drawn { keys: Vec::new(), parts: Vec::new() };
    let mut writer = Writer { random, epoch, drawn };
    writer.call();
    writer.drawn
}

const NUMBERS: [&str; 12] = [
    "0",
    "1",
    "5",
    "10",
    "99",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "-1",
    "x",
    "",
    "18446744073709551616",
];
const EXPTIMES: [&str; 8] = ["0", "0", "0", "0", "1000", "-1", "2592000", "x"];
const VALUES: [&str; 8] = ["", "0", "5", "10", "99", "18446744073709551614", "abc", "-1"];
const UNKNOWN: [&str; 10] =
    ["gest a", "GET a", "get", "set a", "mg", "mx a", "incr a", "touch a", "verbosity", "ms a"];

impl Writer<'_> {
    fn put(&mut self, text: &str) {
        self.put_bytes(text.as_bytes());
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.drawn.parts.push(Part::Bytes(bytes.to_vec()));
    }

    fn pick(&mut self, texts: &[&'static str]) -> &'static str {
        self.random.pick::<&'static str>(texts)
    }

    /// Writes a key; now and then one that is none.
    fn key(&mut self) {
        let key = match self.random.below(60) {
            0 => format!("{:k>250}", self.epoch),
            1 => "k".repeat(251),
            2 => format!("\u{1}ctrl{}", self.epoch),
            other => format!("k{}:{}", self.epoch, other % 6),
        };
        self.put_key(key);
    }

    fn put_key(&mut self, key: String) {
        self.put(" ");
        self.put(&key);
        self.drawn.keys.push(key.into_bytes());
    }

    fn word(&mut self, words: &[&'static str]) {
        let word = self.pick(words);
        self.put(" ");
        self.put(word);
    }

    fn noreply(&mut self) {
        if self.random.once_in(6) {
            self.put(" noreply");
        }
    }

    fn value(&mut self) -> Vec<u8> {
        match self.random.below(6) {
            // What is taken for a line may not begin as the binary protocol does.
            0 => self.random.bytes(20).into_iter().map(|byte| byte & 0x7f).collect(),
            1 => vec![b'v'; self.random.below(3000)],
            _ => self.pick(&VALUES).as_bytes().to_vec(),
        }
    }

    /// Ends the line, which names a block's length, and writes the block.
    fn block(&mut self, between: impl FnOnce(&mut Self)) {
        let value = self.value();
        // A length that lies, by less than makes a server wait for more.
        let len = match self.random.below(40) {
            0 => value.len().saturating_sub(2),
            _ => value.len(),
        };
        self.put(&format!(" {len}"));
        between(self);
        self.put("\r\n");
        self.put_bytes(&value);
        self.put("\r\n");
    }

    fn call(&mut self) {
        match self.random.below(100) {
            0..10 => self.get(),
            10..14 => {
                let name = self.pick(&["gat", "gats"]);
                self.put(name);
                self.word(&EXPTIMES);
                self.key();
                self.put("\r\n");
            }
            14..32 => self.store(),
            32..37 => self.compare(),
            37..45 => {
                let name = self.pick(&["incr", "decr"]);
                self.put(name);
                self.key();
                self.word(&NUMBERS);
                // Without a reply nobody would see what memcached takes for no number.
                self.put("\r\n");
            }
            45..48 => {
                self.put("touch");
                self.key();
                self.word(&EXPTIMES);
                self.noreply();
                self.put("\r\n");
            }
            48..52 => {
                self.put("delete");
                self.key();
                if self.random.once_in(8) {
                    self.word(&["0", "1", "x", "0 noreply"]);
                }
                self.noreply();
                self.put("\r\n");
            }
            52..54 => {
                let call = self.pick(&UNKNOWN);
                self.put(call);
                self.put("\r\n");
            }
            54 => self.put("verbosity 0\r\n"),
            55 => self.put("version of\r\n"),
            56..72 => self.meta_get(),
            72..86 => self.meta_set(),
            86..92 => self.meta("md", "qkIxOT"),
            _ => self.meta("ma", "qktcvNJDMO"),
        }
    }

    fn get(&mut self) {
        let name = self.pick(&["get", "gets", "gets"]);
        self.put(name);
        match self.random.below(3) {
            // Of several all are keys: memcached has looked up those before one that is none.
            0 => (0..3).for_each(|_| {
                let key = format!("k{}:{}", self.epoch, self.random.below(6));
                self.put_key(key);
            }),
            _ => self.key(),
        }
        self.put("\r\n");
    }

    fn store(&mut self) {
        let name = self.pick(&["set", "set", "set", "add", "replace", "append", "prepend"]);
        self.put(name);
        self.key();
        self.word(&["0", "0", "0", "5", "4294967295", "4294967296", "-1", "x"]);
        self.word(&EXPTIMES);
        self.block(Self::noreply);
    }

    fn compare(&mut self) {
        self.put("cas");
        self.key();
        self.word(&["0", "7"]);
        self.word(&EXPTIMES);
        self.block(|writer| {
            writer.put(" ");
            writer.id();
            writer.noreply();
        });
    }

    fn id(&mut self) {
        match self.random.below(10) {
            0 => self.put("17999999999999999999"),
            1 => self.put("1"),
            _ => self.drawn.parts.push(Part::Id),
        }
    }

    fn meta_get(&mut self) {
        self.meta("mg", "cfkqstvONTRk");
    }

    fn meta_set(&mut self) {
        self.put("ms");
        self.key();
        self.block(|writer| writer.flags("ckqFITMOC"));
    }

    fn meta(&mut self, name: &str, flags: &str) {
        self.put(name);
        self.key();
        self.flags(flags);
        self.put("\r\n");
    }

    /// Some of these flags, each with what it takes; now and then one that is unknown or comes
    /// twice.
    fn flags(&mut self, known: &str) {
        let known: Vec<char> = known.chars().collect();
        let mut used = Vec::new();
        for _ in 0..self.random.below(5) {
            let flag = match self.random.below(80) {
                0 => 'z',
                _ => *self.random.pick(&known),
            };
            if used.contains(&flag) && !self.random.once_in(20) {
                continue;
            }
            used.push(flag);
            self.put(&format!(" {flag}"));
            match flag {
                'O' => self.put("opaque"),
                'F' => self.number(&["0", "5", "4294967295", "x", ""]),
                'T' | 'N' => self.number(&["0", "1000", "30", "x", ""]),
                // Not what a time may be that was just set: memcached's clock moves once a second.
                'R' => self.number(&["0", "20", "500", "2000", "x", ""]),
                'J' | 'D' => self.number(&NUMBERS),
                'M' => self.number(&["S", "A", "I", "D", "E", "R", "P", "+", "-", "x", ""]),
                'C' => self.id(),
                _ => {}
            }
        }
    }

    fn number(&mut self, words: &[&'static str]) {
        let word = self.pick(words);
        self.put(word);
    }
}
