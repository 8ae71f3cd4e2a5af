//! Keyspace notifications: what happens to keys, published to two channels per event.
//!
//! `notify-keyspace-events` says which classes of events, and to which of the two.

use kvasir_keyspace::event::Class;
use kvasir_pubsub::Kind;
use kvasir_pubsub::post::Origin;

use crate::calls::fence;
use crate::clients::tracker::EVICTION;
use crate::state::core::Core;
use crate::state::shared::Shared;

/// A list that held more at once gives the memory back.
const EVENTS_KEPT_MAX: usize = 1024;

/// Publishes what the last call of a client, or the last deleting of expired keys by nobody, has
/// noted, in order; and tells those who have the keys in their caches.
#[inline]
pub fn tell(shared: &Shared, worker: usize, core: &mut Core, by: u64) {
    if !core.tally.events.is_empty() {
        tell_noted(shared, worker, core, by);
    }
}

#[cold]
fn tell_noted(shared: &Shared, worker: usize, core: &mut Core, by: u64) {
    let origin = Origin { worker, fence: fence::of_news(core) };
    let Core { env, tally, tracking, evicting, .. } = core;
    let publish = |channel: &[u8], message: &[u8]| {
        shared.pubsub.publish(origin, Kind::Channel, channel, message);
    };
    let wanted = env.events;
    for event in tally.events.drain(..) {
        let by = if event.class == Class::EVICTED { EVICTION } else { by };
        if event.is_change && env.tracks {
            shared.tracking.invalidate(&shared.clients, origin, tracking, &event.key, by);
        }
        if !wanted.intersects(event.class) {
            continue;
        }
        let name = event.name.as_bytes();
        if wanted.contains(Class::KEYSPACE) {
            let channel = [format!("__keyspace@{}__:", event.db.0).as_bytes(), &event.key].concat();
            publish(&channel, name);
        }
        if wanted.contains(Class::KEYEVENT) {
            let channel = format!("__keyevent@{}__:{}", event.db.0, event.name);
            publish(channel.as_bytes(), &event.key);
        }
    }
    evicting.noted.set(0);
    if tally.events.capacity() > EVENTS_KEPT_MAX {
        tally.events = Vec::new();
    }
}
