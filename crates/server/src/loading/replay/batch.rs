//! Calls of a primary's stream, many in one turn, as a worker runs those of its clients: what later
//! ones will touch is on its way meanwhile, within one pass, and the log gets them as they came.
//!
//! A batch ends before all that is more than a call about keys it names: transactions, what needs
//! the world to stand still, functions, messages, what wants an answer.

use kvasir_keyspace::command::{Command, Run};
use kvasir_keyspace::commands::options::db_index;
use kvasir_keyspace::plan::{self, KeyAt};
use kvasir_keyspace::spec::Traits;
use kvasir_persistence::aof::record::parse_words;
use kvasir_resp::args::Args;
use kvasir_resp::request::Span;
use kvasir_table::{Entry, Handler};

use crate::clients::command_log::Noted;
use crate::loading::replay::{ANOTHER, Replayer};
use crate::run::batch::Lookahead;
use crate::stats::timing::Timing;

/// Calls of a batch: behind it the clock is read, and who waits for the gate gets in.
const CALLS_MAX: usize = 128;
/// A batch has no calls behind so many bytes.
const BYTES_MAX: usize = 256 << 10;
/// More words and keys have no place in memory between batches.
const KEPT_MAX: usize = 64 << 10;

/// Scratch memory of batches.
#[derive(Default)]
pub(super) struct Batch {
    /// Of all calls, each from its own beginning on.
    words: Vec<Span>,
    keys: Vec<KeyAt>,
    calls: Vec<Planned>,
    /// The name of the last call, which the next often has too.
    last_name: Vec<u8>,
    last: Option<(&'static Entry, What)>,
}

#[derive(Clone, Copy)]
enum What {
    Data(&'static Command),
    Select,
}

struct Planned {
    entry: &'static Entry,
    what: What,
    start: usize,
    end: usize,
    words: (usize, usize),
    keys: (usize, usize),
}

impl Batch {
    fn clear(&mut self) {
        self.words.clear();
        self.keys.clear();
        self.calls.clear();
        self.words.shrink_to(KEPT_MAX);
        self.keys.shrink_to(KEPT_MAX);
    }

    fn args<'a>(&'a self, call: &Planned, bytes: &'a [u8]) -> Args<'a> {
        Args::new(&bytes[call.start..], &self.words[call.words.0..call.words.1])
    }
}

impl Replayer {
    /// Executes the calls that stand at the beginning of a primary's stream, and appends them to
    /// the log as they came. Returns how many bytes they take; 0: what comes is something else, or
    /// not whole.
    pub fn follow_batch(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let mut batch = std::mem::take(&mut self.batch);
        self.plan(bytes, &mut batch);
        let done = match batch.calls.last() {
            None => Ok(0),
            Some(last) => self.run_batch(&bytes[..last.end], &batch),
        };
        batch.clear();
        self.batch = batch;
        done
    }

    fn plan(&self, bytes: &[u8], batch: &mut Batch) {
        let (keyspace, mut db, mut start) = (&self.shared.keyspace, self.db, 0);
        while batch.calls.len() < CALLS_MAX && start < BYTES_MAX {
            let (first_word, first_key) = (batch.words.len(), batch.keys.len());
            let call = &bytes[start..];
            let Ok(size) = parse_words(call, &mut batch.words) else { return };
            let args = Args::new(call, &batch.words[first_word..]);
            let is_as_before = args.name() == batch.last_name;
            if !is_as_before {
                batch.last = self.resolve(args);
                batch.last_name.clear();
                batch.last_name.extend_from_slice(args.name());
            }
            let Some((entry, what)) = batch.last else { return };
            if !entry.spec.accepts_count(args.len()) {
                return;
            }
            let planned = match what {
                What::Data(command) => plan::keys(keyspace, command, args, db, &mut batch.keys),
                What::Select => db_index(keyspace, &args[1]).map(|selected| db = selected),
            };
            if planned.is_err() {
                return;
            }
            let end = start + size;
            let words = (first_word, batch.words.len());
            let keys = (first_key, batch.keys.len());
            batch.calls.push(Planned { entry, what, start, end, words, keys });
            start = end;
        }
    }

    /// What a call is, if it may be in a batch, whatever its arguments are.
    fn resolve(&self, args: Args<'_>) -> Option<(&'static Entry, What)> {
        let entry = self.find(args).ok()?;
        if entry.full_name.len() != entry.spec.name.len() {
            // Of a subcommand the name alone does not tell which.
            return None;
        }
        match entry.handler {
            Handler::Data(command) if !matches!(command.run, Run::World(_)) => {
                Some((entry, What::Data(command)))
            }
            _ if entry.spec.traits.contains(Traits::SELECTS) => Some((entry, What::Select)),
            _ => None,
        }
    }

    fn run_batch(&mut self, bytes: &[u8], batch: &Batch) -> Result<usize, String> {
        let shared = self.shared;
        let loading = &shared.saving.loading;
        loading.key_delay.wait(batch.calls.len() as u64, || loading.is_wanted());
        let pass = shared.gate.enter_extra();
        self.see_listeners();
        self.check_wanted().map_err(|_| ANOTHER)?;
        let mut ahead = Lookahead::default();
        let mut timing = Timing::start(batch.calls.len(), self.heard.thresholds());
        let mut calls = batch.calls.iter().peekable();
        while let Some(call) = calls.next() {
            ahead.fetch(&batch.keys, call.keys.0, &shared.keyspace, &pass);
            let (entry, args) = (call.entry, batch.args(call, bytes));
            timing.begin(entry.index);
            let result = match call.what {
                What::Select => self.select(&args[1]),
                What::Data(command) => {
                    let keys = &batch.keys[call.keys.0..call.keys.1];
                    self.run_with_keys(command, args, keys, &pass)
                }
            };
            self.calls += 1;
            let wary = &mut self.wary;
            let mut streak = timing.finish(entry.is_small, args.len(), wary);
            if calls.peek().is_none_or(|next| timing.begins_another(next.entry.index)) {
                streak = streak.or_else(|| timing.end());
            }
            if let Some(of) = &self.following {
                self.heard.note(shared, entry, &result);
                if let Some(streak) = streak {
                    let call = Noted { entry, args, client: &of.client };
                    self.heard.count_streak(shared, &call, &streak, &mut self.wary);
                }
            }
            self.settle(entry, args, result);
        }
        shared.keyspace.log_db.stand_in(self.db.0);
        if shared.keyspace.log.is_open() {
            shared.keyspace.log.append(&pass, bytes);
        }
        drop(pass);
        self.end_relay()?;
        Ok(bytes.len())
    }
}
