//! Connections that are told things: of messages, and of what happens to keys.
//!
//! After each batch a PING is sent behind what was published, and behind a DISCARD. Whatever comes
//! before its answer was pushed by then, on both sides.

use anyhow::{Context, Result};
use kvasir_harness::link::{Call, Link};
use kvasir_harness::raw::Raw;

use super::pair::Twins;

/// What both sides have pushed, where it is not the same.
pub type Pushed = (Vec<Raw>, Vec<Raw>);

pub struct Listener {
    twins: Twins,
    /// Messages of one publisher to one channel have an order; those to channel and pattern, and
    /// the answers to UNSUBSCRIBE, are the same in any.
    is_ordered: bool,
}

impl Listener {
    pub fn new(twins: Twins) -> Listener {
        Listener { twins, is_ordered: false }
    }

    /// One that is told what happens to keys.
    pub fn of_events(mut twins: Twins) -> Result<Listener> {
        twins.ours.ask(&["PSUBSCRIBE", "__key*"])?;
        twins.theirs.ask(&["PSUBSCRIBE", "__key*"])?;
        Ok(Listener { twins, is_ordered: true })
    }

    /// Calls, whose answers are looked at by `differ`.
    pub fn say(&mut self, calls: &[&Call]) -> Result<()> {
        self.twins.ours.send(calls)?;
        self.twins.theirs.send(calls)
    }

    /// Everything that was pushed since, if it is not the same; of what happened to keys only what
    /// `is_told`.
    pub fn differ(&mut self, is_told: impl Fn(&Event<'_>) -> bool) -> Result<Option<Pushed>> {
        // One that has begun a transaction, as it may in RESP3, would put the PING off.
        let discard: Call = vec![b"DISCARD".to_vec()];
        let ping: Call = vec![b"PING".to_vec(), FENCE.to_vec()];
        self.say(&[&discard, &ping])?;
        let theirs = until_fence(&mut self.twins.theirs).context("the peer")?;
        let ours = until_fence(&mut self.twins.ours)?;
        let theirs = with_deaths_of(&ours, theirs);
        let normal = |pushed: Vec<Raw>| {
            let is_told =
                |raw: &Raw| Event::of(raw).is_none_or(|event| !event.is_death() && is_told(&event));
            self.in_order(pushed.into_iter().filter(is_told).collect())
        };
        let (ours, theirs) = (normal(ours), normal(theirs));
        Ok((ours != theirs).then_some((ours, theirs)))
    }

    fn in_order(&self, pushed: Vec<Raw>) -> Vec<Raw> {
        if self.is_ordered {
            return pushed;
        }
        let mut pushed: Vec<Raw> = pushed.into_iter().flat_map(without_order).collect();
        pushed.sort();
        pushed
    }
}

const FENCE: &[u8] = b"~fence";

fn until_fence(link: &mut Link) -> Result<Vec<Raw>> {
    let mut pushed = Vec::new();
    loop {
        let reply = link.reply()?;
        let is_fence = |raw: &Raw| raw.text() == Some(FENCE);
        if is_fence(&reply) || reply.items().get(1).is_some_and(is_fence) {
            return Ok(pushed);
        }
        pushed.push(reply);
    }
}

/// What is told of a key, on either of its channels.
pub struct Event<'a> {
    pub name: &'a [u8],
    pub key: &'a [u8],
    is_on_keys_channel: bool,
}

impl Event<'_> {
    fn of(raw: &Raw) -> Option<Event<'_>> {
        let [.., channel, message] = raw.items() else { return None };
        let (channel, message) = (channel.text()?, message.text()?);
        let colon = channel.iter().position(|byte| *byte == b':')?;
        let (kind, topic) = (&channel[..colon], &channel[colon + 1..]);
        if kind.starts_with(b"__keyspace@") {
            return Some(Event { name: message, key: topic, is_on_keys_channel: true });
        }
        let is_event = kind.starts_with(b"__keyevent@");
        is_event.then_some(Event { name: topic, key: message, is_on_keys_channel: false })
    }

    /// Whether a key or a field died of age: each server comes to it when it does.
    fn is_death(&self) -> bool {
        self.name.ends_with(b"expired")
    }
}

fn is_death(raw: &Raw) -> bool {
    Event::of(raw).is_some_and(|event| event.is_death())
}

/// Theirs, where a deletion of a key that is a death here is one: Redis 7.0 says `del` where a key
/// is told to have died already. The ends of a key come in one order on both sides; from the last
/// to the first, since one side may have told of a death before.
fn with_deaths_of(ours: &[Raw], mut theirs: Vec<Raw>) -> Vec<Raw> {
    let mut ends: Vec<(Raw, &Raw)> =
        ours.iter().filter_map(|event| Some((as_death(event)?, event))).collect();
    for event in theirs.iter_mut().rev() {
        let Some(death) = as_death(event) else { continue };
        let at = ends.iter().rposition(|(end, _)| *end == death);
        if at.is_some_and(|at| is_death(ends.remove(at).1)) {
            *event = death;
        }
    }
    theirs
}

/// A key's end, told as its death.
fn as_death(raw: &Raw) -> Option<Raw> {
    if is_death(raw) {
        return Some(raw.clone());
    }
    let event = Event::of(raw).filter(|event| event.name == b"del")?;
    let Raw::Node(header, items) = raw else { return None };
    let mut items = items.clone();
    let [.., channel, message] = &mut items[..] else { return None };
    if event.is_on_keys_channel {
        *message = bulk(b"expired");
    } else {
        let before = channel.text()?.strip_suffix(b"del")?.to_vec();
        *channel = bulk(&[&before[..], b"expired"].concat());
    }
    Some(Raw::Node(header.clone(), items))
}

fn bulk(text: &[u8]) -> Raw {
    Raw::Leaf([format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat())
}

/// UNSUBSCRIBE leaves channels in any order, and counts down: names and counts apart.
fn without_order(raw: Raw) -> Vec<Raw> {
    let Raw::Node(header, items) = &raw else { return vec![raw] };
    // EXEC's reply holds the first answer, the others follow it.
    if items.iter().any(is_unsubscription) {
        let begin = Raw::Node(header.clone(), Vec::new());
        return std::iter::once(begin)
            .chain(items.iter().cloned().flat_map(without_order))
            .collect();
    }
    if !is_unsubscription(&raw) {
        return vec![raw];
    }
    let half = |item: &Raw| Raw::Node(header.clone(), vec![items[0].clone(), item.clone()]);
    vec![half(&items[1]), half(&items[2])]
}

fn is_unsubscription(raw: &Raw) -> bool {
    let items = raw.items();
    let kind = items.first().and_then(Raw::text);
    items.len() == 3 && kind.is_some_and(|kind| kind.ends_with(b"unsubscribe"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(channel: &str, message: &str) -> Raw {
        let items = ["pmessage", "__key*", channel, message].map(|text| bulk(text.as_bytes()));
        Raw::Node(b"*4\r\n".to_vec(), items.to_vec())
    }

    #[test]
    fn channels_are_left_in_any_order() {
        let left = |name: &str, count: u8| {
            format!(">3\r\n$11\r\nunsubscribe\r\n$1\r\n{name}\r\n:{count}\r\n")
        };
        let sorted = |text: &str| {
            let mut rest = text.as_bytes();
            let mut parts = Vec::new();
            while !rest.is_empty() {
                let (raw, len) = Raw::parse(rest).expect("complete");
                parts.extend(without_order(raw));
                rest = &rest[len..];
            }
            parts.sort();
            parts
        };
        let one = format!("*1\r\n{}{}", left("a", 1), left("b", 0));
        let other = format!("*1\r\n{}{}", left("b", 1), left("a", 0));
        assert_eq!(sorted(&one), sorted(&other));
        assert_ne!(sorted(&one), sorted(&left("a", 1)));
        assert_eq!(without_order(event("c", "x")), [event("c", "x")]);
    }

    #[test]
    fn deaths_are_told_apart() {
        let died = [event("__keyspace@0__:k", "expired"), event("__keyevent@0__:expired", "k")];
        let deleted = [event("__keyspace@0__:k", "del"), event("__keyevent@0__:del", "k")];
        assert!(died.iter().all(is_death) && !deleted.iter().any(is_death));
        assert_eq!(deleted.iter().map(as_death).collect::<Vec<_>>(), died.clone().map(Some));
        assert_eq!(died.iter().map(as_death).collect::<Vec<_>>(), died.clone().map(Some));
        assert!(
            Event::of(&event("c1", "expired")).is_none() && !is_death(&event("c:1", "expired"))
        );
    }

    #[test]
    fn a_deletion_is_a_death_only_where_it_is_one_here() {
        let on_key = |name: &str| event("__keyspace@0__:k", name);
        let told = |names: &[&str]| names.iter().map(|name| on_key(name)).collect::<Vec<_>>();
        let ours = told(&["expired", "zadd", "del"]);
        assert_eq!(with_deaths_of(&ours, told(&["del", "zadd", "del"])), ours);
        assert_eq!(with_deaths_of(&ours, ours.clone()), ours);
        let other = vec![event("__keyspace@1__:k", "del")];
        assert_eq!(with_deaths_of(&ours, other.clone()), other);
        assert_eq!(with_deaths_of(&ours, told(&["zadd", "del"])), told(&["zadd", "del"]));
        assert_eq!(with_deaths_of(&told(&["del"]), told(&["del", "del"])), told(&["del", "del"]));
    }
}
