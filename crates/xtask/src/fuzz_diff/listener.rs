//! Connections that are told things: of messages, and of what happens to keys.
//!
//! After each batch a PING is sent behind what was published. Whatever comes before its answer was
//! pushed by then, on both sides.

use anyhow::{Context, Result};

use super::pair::Twins;
use crate::link::{Call, Link};
use crate::raw::Raw;

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

    pub fn is_of_events(&self) -> bool {
        self.is_ordered
    }

    /// Calls, whose answers are looked at by `differ`.
    pub fn say(&mut self, calls: &[&Call]) -> Result<()> {
        self.twins.ours.send(calls)?;
        self.twins.theirs.send(calls)
    }

    /// Everything that was pushed since, if it is not the same.
    pub fn differ(&mut self) -> Result<Option<Pushed>> {
        let ping: Call = vec![b"PING".to_vec(), FENCE.to_vec()];
        self.say(&[&ping])?;
        let theirs = until_fence(&mut self.twins.theirs).context("the peer")?;
        let ours = until_fence(&mut self.twins.ours)?;
        let (ours, theirs) = (self.normal(ours), self.normal(theirs));
        Ok((ours != theirs).then_some((ours, theirs)))
    }

    fn normal(&self, pushed: Vec<Raw>) -> Vec<Raw> {
        if self.is_ordered {
            return pushed.into_iter().filter(|event| !is_death(event)).collect();
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

/// Whether a key or a field died of age: each server comes to it when it does.
fn is_death(event: &Raw) -> bool {
    let texts: Vec<_> = event.items().iter().filter_map(Raw::text).collect();
    let [.., channel, message] = texts[..] else { return false };
    let is_death = |text: &[u8]| text.ends_with(b"expired");
    is_death(channel) || (channel.starts_with(b"__keyspace") && is_death(message))
}

/// UNSUBSCRIBE leaves channels in any order, and counts down: names and counts apart.
fn without_order(raw: Raw) -> Vec<Raw> {
    match &raw {
        Raw::Node(header, items) if items.len() == 3 => {
            let [kind, name, count] = [0, 1, 2].map(|at| items[at].clone());
            if !kind.text().is_some_and(|kind| kind.ends_with(b"unsubscribe")) {
                return vec![raw];
            }
            let half = |item| Raw::Node(header.clone(), vec![kind.clone(), item]);
            vec![half(name), half(count)]
        }
        _ => vec![raw],
    }
}
