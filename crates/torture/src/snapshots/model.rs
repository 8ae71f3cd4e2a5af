//! Accounts of every type, what transfers do to them, and what they hold after so many.
//!
//! A balance is the sum of an account's parts. Of strings, hashes and sorted sets all movers change
//! the same parts, by what is added; of the others each mover has a part of its own and replaces
//! it. So the parts depend on how many transfers each mover has made, and on nothing else.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kvasir_harness::link::{Call, Link};
use kvasir_harness::random::Random;
use kvasir_harness::raw::Raw;

use super::sound;

pub const MOVERS: usize = 4;
const KINDS: [Kind; 6] =
    [Kind::String, Kind::Hash, Kind::SortedSet, Kind::List, Kind::Set, Kind::Stream];
const DATABASES: usize = 3;
const ACCOUNTS: usize = KINDS.len() * DATABASES * 4;
/// Parts of a hash or a sorted set: more than fit into a listpack.
const PARTS: usize = 300;
/// Elements of a list or a set beside its parts.
const FILLERS: usize = 300;
const OPENING: i64 = 100;
const AMOUNT_MAX: i64 = 50;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    String,
    Hash,
    SortedSet,
    List,
    Set,
    Stream,
}

#[derive(Clone, Copy)]
struct Account(usize);

impl Account {
    fn all() -> impl Iterator<Item = Account> {
        (0..ACCOUNTS).map(Account)
    }

    fn kind(self) -> Kind {
        KINDS[self.0 % KINDS.len()]
    }

    fn db(self) -> String {
        (self.0 / KINDS.len() % DATABASES).to_string()
    }

    fn name(self) -> String {
        format!("account:{}", self.0)
    }

    fn parts(self) -> usize {
        match self.kind() {
            Kind::String => 1,
            Kind::Hash | Kind::SortedSet => PARTS,
            Kind::List | Kind::Set | Kind::Stream => MOVERS,
        }
    }

    /// Of each part before the first transfer; a stream begins without any.
    fn opening(self) -> i64 {
        if self.kind() == Kind::Stream { 0 } else { OPENING }
    }

    /// What a client reads, in order.
    fn lines(self, parts: &[i64]) -> Vec<String> {
        let fillers = || (0..FILLERS).map(filler);
        let parts = || parts.iter().enumerate();
        let mut lines: Vec<String> = match self.kind() {
            Kind::String => parts().map(|(_, part)| part.to_string()).collect(),
            Kind::Hash | Kind::SortedSet | Kind::Set => {
                parts().map(|(index, part)| format!("{index}={part}")).collect()
            }
            Kind::List => parts().map(|(_, part)| part.to_string()).chain(fillers()).collect(),
            Kind::Stream => {
                let written = parts().filter(|(_, part)| **part != 0);
                written.map(|(index, part)| format!("{index}={part}")).collect()
            }
        };
        if self.kind() == Kind::Set {
            lines.extend(fillers());
        }
        if self.kind() != Kind::List {
            lines.sort();
        }
        lines
    }

    /// Reads the same from a server.
    fn read(self, link: &mut Link) -> Result<Vec<String>> {
        let name = self.name();
        sound(link.ask(&["SELECT", &self.db()])?)?;
        let call: &[&str] = match self.kind() {
            Kind::String => &["GET", &name],
            Kind::Hash => &["HGETALL", &name],
            Kind::SortedSet => &["ZRANGE", &name, "0", "-1", "WITHSCORES"],
            Kind::List => &["LRANGE", &name, "0", "-1"],
            Kind::Set => &["SMEMBERS", &name],
            Kind::Stream => &["XRANGE", &name, "-", "+"],
        };
        let reply = sound(link.ask(call)?)?;
        let text = |raw: &Raw| String::from_utf8_lossy(raw.text().unwrap_or_default()).into_owned();
        let pair = |pair: &[Raw]| format!("{}={}", text(&pair[0]), text(&pair[1]));
        let mut lines: Vec<String> = match self.kind() {
            Kind::String => reply.text().iter().map(|_| text(&reply)).collect(),
            Kind::Hash | Kind::SortedSet => reply.items().chunks(2).map(pair).collect(),
            Kind::List | Kind::Set => reply.items().iter().map(text).collect(),
            Kind::Stream => {
                let fields = reply.items().iter().filter_map(|entry| entry.items().get(1));
                fields.map(|fields| pair(fields.items())).collect()
            }
        };
        if self.kind() != Kind::List {
            lines.sort();
        }
        Ok(lines)
    }
}

fn filler(index: usize) -> String {
    format!("filler {index} {}", "x".repeat(40))
}

/// Makes the accounts.
pub fn open(link: &mut Link) -> Result<()> {
    for account in Account::all() {
        sound(link.ask(&["SELECT", &account.db()])?)?;
        let lines = account.lines(&vec![account.opening(); account.parts()]);
        let pair = |line: &String| {
            let (name, part) = line.split_once('=').unwrap_or_default();
            [name.to_string(), part.to_string()]
        };
        let (command, words): (&str, Vec<String>) = match account.kind() {
            Kind::String => ("SET", lines),
            Kind::Hash => ("HSET", lines.iter().flat_map(pair).collect()),
            Kind::SortedSet => {
                let reversed = |line| {
                    let [name, part] = pair(line);
                    [part, name]
                };
                ("ZADD", lines.iter().flat_map(reversed).collect())
            }
            Kind::List => ("RPUSH", lines),
            Kind::Set => ("SADD", lines),
            Kind::Stream => continue,
        };
        let mut call = vec![command.to_string(), account.name()];
        call.extend(words);
        sound(link.call(&call.into_iter().map(String::into_bytes).collect())?)?;
    }
    Ok(())
}

/// One change of one part.
#[derive(Clone, Copy)]
struct Change {
    account: Account,
    part: usize,
    amount: i64,
}

/// The transfers of one mover, one after the other.
struct Transfers {
    number: usize,
    random: Random,
}

impl Transfers {
    fn of(number: usize) -> Transfers {
        Transfers { number, random: Random::new(number as u64 + 1) }
    }

    /// Of two different accounts.
    fn next(&mut self) -> [Change; 2] {
        let amount = self.random.range(1, AMOUNT_MAX);
        let from = self.random.below(ACCOUNTS);
        let to = (from + 1 + self.random.below(ACCOUNTS - 1)) % ACCOUNTS;
        [(from, -amount), (to, amount)].map(|(account, amount)| {
            let account = Account(account);
            let part = match account.kind() {
                Kind::List | Kind::Set | Kind::Stream => self.number,
                Kind::String | Kind::Hash | Kind::SortedSet => self.random.below(account.parts()),
            };
            Change { account, part, amount }
        })
    }
}

/// Who makes transfers.
pub struct Mover {
    transfers: Transfers,
    /// This mover's own parts.
    parts: [i64; ACCOUNTS],
    /// Its entry of each stream.
    entries: BTreeMap<usize, Vec<u8>>,
}

impl Mover {
    pub fn new(number: usize) -> Mover {
        let parts = std::array::from_fn(|account| Account(account).opening());
        Mover { transfers: Transfers::of(number), parts, entries: BTreeMap::new() }
    }

    /// Makes one transfer, in one transaction or, which is wrong, in two.
    pub fn transfer(&mut self, link: &mut Link, splits: bool) -> Result<()> {
        let mut calls = vec![words(&["MULTI"])];
        for (index, change) in self.transfers.next().into_iter().enumerate() {
            if splits && index == 1 {
                calls.push(words(&["EXEC"]));
                self.run(link, &std::mem::take(&mut calls))?;
                thread::sleep(Duration::from_millis(5));
                calls.push(words(&["MULTI"]));
            }
            calls.push(words(&["SELECT", &change.account.db()]));
            self.change(change, &mut calls);
        }
        calls.push(words(&["SELECT", "0"]));
        calls.push(words(&["INCR", &format!("steps:{}", self.transfers.number)]));
        calls.push(words(&["EXEC"]));
        self.run(link, &calls)
    }

    /// Appends the calls that make a change.
    fn change(&mut self, change: Change, calls: &mut Vec<Call>) {
        let Change { account, part, amount } = change;
        let (name, by) = (account.name(), amount.to_string());
        let before = self.parts[account.0];
        self.parts[account.0] += amount;
        let own = |part: i64| format!("{}={part}", self.transfers.number);
        let (field, now) = (part.to_string(), self.parts[account.0].to_string());
        match account.kind() {
            Kind::String => calls.push(words(&["INCRBY", &name, &by])),
            Kind::Hash => calls.push(words(&["HINCRBY", &name, &field, &by])),
            Kind::SortedSet => calls.push(words(&["ZINCRBY", &name, &by, &field])),
            Kind::List => calls.push(words(&["LSET", &name, &field, &now])),
            Kind::Set => {
                calls.push(words(&["SREM", &name, &own(before)]));
                calls.push(words(&["SADD", &name, &own(self.parts[account.0])]));
            }
            Kind::Stream => {
                if let Some(entry) = self.entries.remove(&account.0) {
                    calls.push(vec![b"XDEL".to_vec(), name.clone().into_bytes(), entry]);
                }
                if now != "0" {
                    calls.push(words(&["XADD", &name, "*", &field, &now]));
                }
            }
        }
    }

    /// Sends a transaction and keeps the ids of entries that it has made.
    fn run(&mut self, link: &mut Link, calls: &[Call]) -> Result<()> {
        link.send(&calls.iter().collect::<Vec<_>>())?;
        let replies = link.replies(calls.len())?;
        let done = sound(replies.last().context("EXEC is called")?.clone())?;
        let made = calls.iter().skip(1).zip(done.items());
        for (call, reply) in made {
            ensure!(!reply.is_error(), "{reply:?}");
            if call[0] == b"XADD" {
                let account = Account::all().find(|account| account.name().as_bytes() == call[1]);
                let id = reply.text().context("XADD replies an id")?.to_vec();
                self.entries.insert(account.context("an account")?.0, id);
            }
        }
        Ok(())
    }
}

fn words(words: &[&str]) -> Call {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// What accounts hold once each mover has made so many transfers.
pub struct Model {
    movers: Vec<(Transfers, u64)>,
    parts: Vec<Vec<i64>>,
}

impl Model {
    pub fn new() -> Model {
        let parts = |account: Account| vec![account.opening(); account.parts()];
        Model {
            movers: (0..MOVERS).map(|number| (Transfers::of(number), 0)).collect(),
            parts: Account::all().map(parts).collect(),
        }
    }

    /// Makes a mover's transfers up to this one.
    pub fn advance(&mut self, mover: usize, step: u64) {
        let (transfers, made) = &mut self.movers[mover];
        while *made < step {
            for Change { account, part, amount } in transfers.next() {
                self.parts[account.0][part] += amount;
            }
            *made += 1;
        }
    }

    pub fn compare(&self, found: &Found) -> Result<()> {
        for (mover, (_, made)) in self.movers.iter().enumerate() {
            ensure!(found.steps(mover) == *made, "another step of {mover} than {made}");
        }
        for account in Account::all() {
            let wanted = account.lines(&self.parts[account.0]);
            let found = found.accounts.get(&account.0).map_or(&[][..], Vec::as_slice);
            let is_other = |(one, other): &(&String, &String)| one != other;
            let first = wanted.iter().zip(found).find(is_other);
            ensure!(
                wanted == found,
                "{}, a {:?}, was not so at the cut: {} lines, not {}, the first other one {first:?}",
                account.name(),
                account.kind(),
                found.len(),
                wanted.len(),
            );
        }
        Ok(())
    }
}

/// What a server, or several with a part each, have loaded.
#[derive(Default)]
pub struct Found {
    steps: BTreeMap<usize, u64>,
    accounts: BTreeMap<usize, Vec<String>>,
}

impl Found {
    /// How many transfers of a mover there are.
    pub fn steps(&self, mover: usize) -> u64 {
        self.steps.get(&mover).copied().unwrap_or(0)
    }

    /// Adds what a server holds; nothing may be there twice.
    pub fn read(&mut self, link: &mut Link) -> Result<()> {
        sound(link.ask(&["SELECT", "0"])?)?;
        for mover in 0..MOVERS {
            let reply = sound(link.ask(&["GET", &format!("steps:{mover}")])?)?;
            if let Some(text) = reply.text() {
                let step = std::str::from_utf8(text)?.parse()?;
                ensure!(self.steps.insert(mover, step).is_none(), "steps of {mover} twice");
            }
        }
        for account in Account::all() {
            let lines = account.read(link)?;
            if !lines.is_empty() {
                let before = self.accounts.insert(account.0, lines);
                ensure!(before.is_none(), "{} is in two files", account.name());
            }
        }
        Ok(())
    }
}
