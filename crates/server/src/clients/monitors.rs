//! MONITOR: every call that any client makes, told to those who watch the server.
//!
//! A line is made once and posted to the workers that have monitors; they give it to their
//! connections at the end of the turn, as messages. Without monitors a call pays one load.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::spec::Flags;
use kvasir_pubsub::post::Post;
use kvasir_reactor::clock;
use kvasir_resp::args::Args;
use kvasir_resp::inline::quoted;
use kvasir_table::Entry;

use crate::clients::Client;
use crate::clients::command_log::{REDACTED, is_secret};

/// What all workers share of it.
pub struct Monitors {
    count: AtomicUsize,
    /// By worker.
    counts: Box<[AtomicUsize]>,
    pub post: Post<Arc<Vec<u8>>>,
}

/// Who makes a call.
#[derive(Clone, Copy)]
pub enum By<'a> {
    Client(&'a Client),
    Script,
}

impl Monitors {
    pub fn new(workers: usize) -> Monitors {
        Monitors {
            count: AtomicUsize::new(0),
            counts: (0..workers).map(|_| AtomicUsize::new(0)).collect(),
            post: Post::new(workers),
        }
    }

    /// Whether somebody monitors.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    /// One more connection of this worker monitors, or one less.
    pub fn count(&self, worker: usize, monitors: bool) {
        let change = if monitors { 1 } else { usize::MAX };
        self.counts[worker].fetch_add(change, Relaxed);
        self.count.fetch_add(change, Relaxed);
    }

    /// Tells of a call, unless it is one that nobody may see.
    #[cold]
    pub fn feed(&self, from: usize, by: By<'_>, db: DbIndex, entry: &Entry, args: Args<'_>) {
        if entry.spec.flags.intersects(Flags::ADMIN) {
            return;
        }
        let line = Arc::new(line(clock::now_unix_us(), by, db, entry, args));
        for (worker, count) in self.counts.iter().enumerate() {
            if count.load(Relaxed) > 0 {
                self.post.send(from, worker, Arc::clone(&line));
            }
        }
    }
}

/// What a line begins with: when, in which database, who.
pub fn head(now_us: u64, by: By<'_>, db: DbIndex) -> String {
    let (seconds, micros) = (now_us / 1_000_000, now_us % 1_000_000);
    let mut head = format!("+{seconds}.{micros:06} [{} ", db.0);
    let _ = match by {
        By::Script => write!(head, "lua]"),
        By::Client(client) if client.is_unix => {
            let path = &client.local_address;
            let path = path.strip_suffix(":0").unwrap_or(path);
            write!(head, "unix:{path}]")
        }
        By::Client(client) => write!(head, "{}]", client.address),
    };
    head
}

/// The line of a call: its head, and its words in quotes.
fn line(now_us: u64, by: By<'_>, db: DbIndex, entry: &Entry, args: Args<'_>) -> Vec<u8> {
    let mut line = head(now_us, by, db).into_bytes();
    for (index, arg) in args.iter().enumerate() {
        line.push(b' ');
        let is_hidden = is_secret(&entry.full_name, args, index);
        line.extend(quoted(if is_hidden { REDACTED } else { arg }));
    }
    line.extend_from_slice(b"\r\n");
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvasir_resp::args::ArgsBuf;

    fn check(call: &str, expect: &str) {
        let args: ArgsBuf = call.split(' ').collect();
        let table = crate::commands::table();
        let entry = table.resolve(args.as_args()).unwrap();
        let line = line(1_700_000_000_000_042, By::Script, DbIndex(3), entry, args.as_args());
        let line = String::from_utf8(line).unwrap();
        assert_eq!(line, format!("+1700000000.000042 [3 lua] {expect}\r\n"));
    }

    #[test]
    fn words_are_quoted_and_secrets_hidden() {
        check("set k a\"\\\n\x07é", r#""set" "k" "a\"\\\n\a\xc3\xa9""#);
        check("AUTH u p", r#""AUTH" "(redacted)" "(redacted)""#);
        check("HELLO 3 AUTH u p", r#""HELLO" "3" "AUTH" "(redacted)" "(redacted)""#);
    }
}
