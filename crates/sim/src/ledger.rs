//! What one connection has written, and what others may find of it.
//!
//! Each write is numbered, and its number is the value it writes. The calls of a connection are
//! executed in their order, so what is found of all its keys together must be what stood there
//! behind some write: not before the last one that anybody knows of, nor behind the last that was
//! sent.

use kvasir_keyspace::rng::Rng;
use kvasir_resp::encode::encode_request;
use kvasir_resp::value::Value;

/// Keys that each connection writes.
pub const KEYS: usize = 3;

/// The calls of one connection that write.
#[derive(Default)]
pub struct Ledger {
    /// The first has number 1.
    writes: Vec<Write>,
}

struct Write {
    keys: Vec<usize>,
    /// When somebody was first told of it.
    known_ns: Option<u64>,
    /// Nobody has heard whether it was refused, and it may have been, though later ones were not.
    may_lack: bool,
}

/// How a write is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    OneKey,
    Transaction,
    Script,
}

impl Way {
    /// Of the eight cases that clients draw, five are writes.
    fn of_case(case: usize) -> Option<Way> {
        match case {
            0..3 => Some(Way::OneKey),
            3 => Some(Way::Transaction),
            4 => Some(Way::Script),
            _ => None,
        }
    }
}

/// Of all clients; each connection of a client has its own.
pub type Ledgers = Vec<Vec<Ledger>>;

/// Draws whether a client's next call is a write, and adds it if so: its number, and how many
/// answers come before that which tells of it.
pub fn draw_write(
    ledgers: &mut Ledgers,
    client: usize,
    rng: &mut Rng,
    bytes: &mut Vec<u8>,
) -> Option<(usize, usize)> {
    let generation = ledgers[client].len() - 1;
    let keys = [rng.below(KEYS), rng.below(KEYS)];
    let way = Way::of_case(rng.below(8))?;
    let name = |key| key_name(client, generation, key);
    Some(ledgers[client][generation].write(way, keys, name, bytes))
}

impl Ledger {
    /// Adds the calls of a write of one key or of both; returns its number, and how many answers
    /// come before that which tells of it.
    fn write(
        &mut self,
        way: Way,
        keys: [usize; 2],
        name: impl Fn(usize) -> String,
        bytes: &mut Vec<u8>,
    ) -> (usize, usize) {
        let mut add = |words: &[&str]| bytes.extend(encode_request(words));
        let [one, other] = keys.map(name);
        let number = self.begin(if way == Way::OneKey { &keys[..1] } else { &keys });
        let value = number.to_string();
        match way {
            Way::OneKey => add(&["SET", &one, &value]),
            Way::Transaction => {
                add(&["MULTI"]);
                add(&["SET", &one, &value]);
                add(&["SET", &other, &value]);
                add(&["EXEC"]);
            }
            Way::Script => {
                let script = "redis.call('SET', KEYS[1], ARGV[1]) \
                              return redis.call('SET', KEYS[2], ARGV[1])";
                add(&["EVAL", script, "2", &one, &other, &value]);
            }
        }
        (number, if way == Way::Transaction { 3 } else { 0 })
    }

    /// Notes a write that is about to be sent, and returns its number.
    pub fn begin(&mut self, keys: &[usize]) -> usize {
        self.writes.push(Write { keys: keys.to_vec(), known_ns: None, may_lack: false });
        self.writes.len()
    }

    /// Somebody is told of it, and thereby of all before it.
    pub fn know(&mut self, number: usize, now_ns: u64) {
        if let Some(write) = number.checked_sub(1).and_then(|index| self.writes.get_mut(index)) {
            write.known_ns.get_or_insert(now_ns);
        }
    }

    /// The server gets another part meanwhile, and these calls are not answered: some of them may
    /// be refused, and others behind them not.
    pub fn doubt(&mut self, unanswered: impl Iterator<Item = usize>) {
        for number in unanswered {
            self.writes[number - 1].may_lack = true;
        }
    }

    /// It is not executed.
    pub fn refuse(&mut self, number: usize) {
        if let Some(write) = number.checked_sub(1).and_then(|index| self.writes.get_mut(index)) {
            write.keys.clear();
        }
    }

    /// The last that somebody knew of by then.
    pub fn known(&self, by_ns: u64) -> usize {
        let is_known = |write: &Write| write.known_ns.is_some_and(|ns| ns <= by_ns);
        self.writes.iter().rposition(is_known).map_or(0, |index| index + 1)
    }

    /// The number of the last write that these values of all keys show, if they stood there
    /// behind a write that is none before `least`.
    pub fn judge(&self, values: &[usize], least: usize) -> Result<usize, String> {
        let last = values.iter().copied().max().unwrap_or(0);
        if last > self.writes.len() {
            return Err(format!("write {last} is there, which was never sent"));
        }
        for (key, value) in values.iter().enumerate() {
            let expect = self.last_of(key, last);
            if !self.may_show(key, last, *value) {
                return Err(format!(
                    "write {last} is there, and key {key} has {value} in place of {expect}"
                ));
            }
        }
        let known = (0..KEYS).map(|key| self.last_of(key, least)).max().unwrap_or(0);
        if last < known {
            return Err(format!("write {known} was answered, and only {last} is there"));
        }
        Ok(last)
    }

    /// Whether a key may have a value behind the write `last`.
    fn may_show(&self, key: usize, last: usize, value: usize) -> bool {
        let mut found = last;
        loop {
            found = self.last_of(key, found);
            let may_lack = found > 0 && found < last && self.writes[found - 1].may_lack;
            if found == value || !may_lack {
                return found == value;
            }
            found -= 1;
        }
    }

    /// Which of the writes up to `last` stands in a key.
    fn last_of(&self, key: usize, last: usize) -> usize {
        let has_key = |write: &Write| write.keys.contains(&key);
        self.writes[..last].iter().rposition(has_key).map_or(0, |index| index + 1)
    }

    /// A crash has taken what comes behind `last`, and nothing is written any more.
    pub fn end_at(&mut self, last: usize, now_ns: u64) {
        self.writes.truncate(last);
        self.know(last, now_ns);
    }
}

pub fn key_name(client: usize, generation: usize, key: usize) -> String {
    format!("client{client}:{generation}:key{key}")
}

/// The call that reads all keys of a ledger.
pub fn mget(client: usize, generation: usize) -> [String; KEYS + 1] {
    std::array::from_fn(|index| match index.checked_sub(1) {
        None => "MGET".to_owned(),
        Some(key) => key_name(client, generation, key),
    })
}

/// The values of a ledger's keys; 0 where nothing is.
pub fn numbers(value: &Value) -> Result<Vec<usize>, String> {
    let number = |value: &Value| match value {
        Value::Null => Ok(0),
        Value::Bulk(text) => std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| format!("a value that nobody wrote: {value:?}")),
        _ => Err(format!("no value: {value:?}")),
    };
    let items = value.as_array().ok_or_else(|| format!("no array: {value:?}"))?;
    items.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stood_there_together_is_told_from_what_did_not() {
        let mut ledger = Ledger::default();
        assert_eq!((ledger.begin(&[0, 1]), ledger.begin(&[2]), ledger.begin(&[0])), (1, 2, 3));
        ledger.know(2, 50);
        assert_eq!((ledger.known(49), ledger.known(50)), (0, 2));
        assert_eq!(ledger.judge(&[0, 0, 0], 0), Ok(0));
        assert_eq!(ledger.judge(&[1, 1, 0], 0), Ok(1));
        assert_eq!(ledger.judge(&[3, 1, 2], 2), Ok(3));
        ledger.doubt([2].into_iter());
        assert_eq!(ledger.judge(&[3, 1, 0], 0), Ok(3));
        ledger.writes[1].may_lack = false;
        for (wrong, least) in
            [([1, 1, 0], 2), ([1, 0, 0], 0), ([3, 1, 0], 0), ([0, 0, 2], 0), ([4, 1, 2], 0)]
        {
            assert!(ledger.judge(&wrong, least).is_err(), "{wrong:?}");
        }
    }
}
