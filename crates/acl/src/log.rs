//! ACL LOG: what was denied lately, the newest first.
//!
//! Denials that are alike and follow each other within a minute are one entry with a count.

use std::collections::VecDeque;

use kvasir_resp::reply::Reply;

/// How long an entry takes in what is like it.
const GROUPING_MS: u64 = 60_000;
/// So many of the newest entries are looked through for one that is alike.
const GROUPING_LOOKS: usize = 10;

/// Where a call comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    TopLevel,
    Multi,
    Script,
}

impl Context {
    fn name(self) -> &'static str {
        match self {
            Context::TopLevel => "toplevel",
            Context::Multi => "multi",
            Context::Script => "lua",
        }
    }
}

/// One denial.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denial {
    /// `auth`, or what of the call was denied.
    pub reason: &'static str,
    pub context: Context,
    /// The command, key, channel or database.
    pub object: Vec<u8>,
    pub user: Vec<u8>,
}

#[derive(Default)]
pub struct Log {
    entries: VecDeque<Entry>,
    next_id: u64,
}

struct Entry {
    id: u64,
    count: u64,
    denial: Denial,
    /// The line of CLIENT LIST of who was denied last.
    client: String,
    created_ms: u64,
    updated_ms: u64,
}

impl Log {
    pub fn add(&mut self, denial: Denial, client: String, now_ms: u64, len_max: usize) {
        let is_alike = |entry: &Entry| {
            entry.denial == denial && now_ms.saturating_sub(entry.updated_ms) <= GROUPING_MS
        };
        let alike = self.entries.iter().take(GROUPING_LOOKS).position(is_alike);
        match alike.and_then(|place| self.entries.remove(place)) {
            Some(entry) => self.entries.push_front(Entry {
                count: entry.count + 1,
                client,
                updated_ms: now_ms,
                ..entry
            }),
            None => {
                let (created_ms, updated_ms) = (now_ms, now_ms);
                let id = self.next_id;
                self.next_id += 1;
                let entry = Entry { id, count: 1, denial, client, created_ms, updated_ms };
                self.entries.push_front(entry);
            }
        }
        self.entries.truncate(len_max);
    }

    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Writes the `count` newest entries.
    pub fn write(&self, reply: &mut Reply, count: usize, now_ms: u64) {
        let count = count.min(self.entries.len());
        reply.array(count);
        self.entries.iter().take(count).for_each(|entry| entry.write(reply, now_ms));
    }
}

impl Entry {
    fn write(&self, reply: &mut Reply, now_ms: u64) {
        let Denial { reason, context, object, user } = &self.denial;
        reply.map(10);
        reply.bulk(b"count");
        reply.integer(self.count as i64);
        let texts: [(&str, &[u8]); 4] = [
            ("reason", reason.as_bytes()),
            ("context", context.name().as_bytes()),
            ("object", object),
            ("username", user),
        ];
        for (field, text) in texts {
            reply.bulk(field.as_bytes());
            reply.bulk(text);
        }
        reply.bulk(b"age-seconds");
        reply.double_shortest(now_ms.saturating_sub(self.updated_ms) as f64 / 1000.0);
        reply.bulk(b"client-info");
        reply.bulk(self.client.as_bytes());
        let numbers = [
            ("entry-id", self.id),
            ("timestamp-created", self.created_ms),
            ("timestamp-last-updated", self.updated_ms),
        ];
        for (field, number) in numbers {
            reply.bulk(field.as_bytes());
            reply.integer(number as i64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial(object: &str) -> Denial {
        let (object, user) = (object.into(), b"u".to_vec());
        Denial { reason: "key", context: Context::TopLevel, object, user }
    }

    /// Adds denials of these objects at these times; `expect` is objects and counts.
    fn check(denials: &[(&str, u64)], len_max: usize, expect: &[(&str, u64)]) {
        let mut log = Log::default();
        for (object, at_ms) in denials {
            log.add(denial(object), String::new(), *at_ms, len_max);
        }
        let shown: Vec<_> = log
            .entries
            .iter()
            .map(|entry| (String::from_utf8(entry.denial.object.clone()).unwrap(), entry.count))
            .collect();
        let expect: Vec<_> = expect.iter().map(|(o, count)| (o.to_string(), *count)).collect();
        assert_eq!(shown, expect, "{denials:?}");
    }

    #[test]
    fn denials_that_are_alike_are_one_entry() {
        check(&[("a", 0), ("b", 1), ("a", 2)], 9, &[("a", 2), ("b", 1)]);
        check(&[("a", 0), ("a", 60_000), ("a", 120_000)], 9, &[("a", 3)]);
        check(&[("a", 0), ("a", 60_001)], 9, &[("a", 1), ("a", 1)]);
        check(&[("a", 0), ("b", 0), ("c", 0)], 2, &[("c", 1), ("b", 1)]);
        check(&[("a", 0)], 0, &[]);
        let names = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
        let mut many: Vec<_> = std::iter::once("a").chain(names).map(|name| (name, 0)).collect();
        many.push(("a", 0));
        let mut log = Log::default();
        many.iter().for_each(|(name, at_ms)| log.add(denial(name), String::new(), *at_ms, 99));
        assert_eq!(log.entries.len(), 12, "eleven back is not looked at");
        assert_eq!(log.next_id, 12);
    }
}
