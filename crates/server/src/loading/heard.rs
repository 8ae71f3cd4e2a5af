//! What a call of a primary's stream counts for, and what others are to hear of it: as of a call of
//! a client.

use kvasir_keyspace::error::Error;
use kvasir_keyspace::view::Tally;
use kvasir_pubsub::Kind;
use kvasir_reactor::clock;
use kvasir_resp::args::Args;
use kvasir_table::Entry;

use crate::calls::command_log::{Limits, note_slow_at};
use crate::clients::command_log::Noted;
use crate::state::shared::Shared;
use crate::stats::errors::Author;
use crate::stats::timing::{Streak, Thresholds};
use crate::workers::Message;
use crate::workers::news::{Item, News};

/// More are not kept before they are told.
const ITEMS_MAX: usize = 64;
/// Who tells others.
const TELLER: usize = 0;

/// What is not told yet, and what counts as slow.
#[derive(Default)]
pub struct Heard {
    news: News,
    thresholds: Thresholds,
}

impl Heard {
    pub fn configure(&mut self, shared: &Shared) {
        self.thresholds = Thresholds::of(&shared.config());
    }

    pub fn thresholds(&self) -> &Thresholds {
        &self.thresholds
    }

    /// Counts a call that has just ended, and its time.
    pub fn count(
        &self,
        shared: &Shared,
        call: &Noted<'_>,
        since: clock::Ticks,
        result: &Result<(), Error>,
    ) {
        self.note(shared, call.entry, result);
        let ticks = clock::ticks().since(since);
        let streak = Streak { command: call.entry.index, calls: 1, ticks };
        self.count_streak(shared, call, &streak, &mut 0);
    }

    /// Counts a call if it has failed.
    pub fn note(&self, shared: &Shared, entry: &Entry, result: &Result<(), Error>) {
        let all = &shared.workers.follower;
        if let Err(error) = result {
            all.by_command[entry.index].failed.add(1);
            shared.error_codes.count(&all.errors, error.text(), Author::Server);
        }
    }

    /// Counts calls of one command in a row, and their time; the last of them is given.
    pub fn count_streak(&self, shared: &Shared, call: &Noted<'_>, streak: &Streak, wary: &mut u32) {
        let stats = &shared.workers.follower.by_command[call.entry.index];
        let Some(us) = streak.count(stats, &self.thresholds, wary) else { return };
        let limits = Limits { thresholds: &self.thresholds, config: &shared.config() };
        note_slow_at(shared, limits, call, us, clock::now_unix_ms());
    }

    /// Takes what a call has noted for others.
    pub fn take(&mut self, tally: &mut Tally, has_flushed: bool) {
        self.news.items.extend(tally.events.drain(..).map(Item::Event));
        self.news.ready.append(&mut tally.ready);
        if has_flushed {
            self.news.items.push(Item::Flushed);
        }
    }

    /// A message for this server's subscribers.
    pub fn publish(&mut self, kind: Kind, args: Args<'_>) {
        self.news.items.push(Item::Message(kind, args[1].to_vec(), args[2].to_vec()));
    }

    /// Whether somebody may wait for it.
    pub fn is_pressing(&self) -> bool {
        !self.news.ready.is_empty() || self.news.items.len() >= ITEMS_MAX
    }

    /// Has all of it told.
    pub fn tell(&mut self, shared: &Shared) {
        if !self.news.is_empty() {
            shared.send(TELLER, Message::News(Box::new(std::mem::take(&mut self.news))));
        }
    }
}

/// Moves what calls have counted to where INFO finds it.
pub fn publish_tally(shared: &Shared, tally: &mut Tally) {
    let stats = &shared.workers.follower;
    stats.hits.add(std::mem::take(&mut tally.hits));
    stats.misses.add(std::mem::take(&mut tally.misses));
    stats.changes.add(std::mem::take(&mut tally.changes));
}
