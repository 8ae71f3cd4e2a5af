//! Which clients CLIENT LIST shows and CLIENT KILL closes: filters that must all apply.
//!
//! As in Valkey: of a filter that is given twice the last one counts, but for ids, which add up.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::Argument;
use kvasir_resp::args::Args;
use kvasir_resp::number::parse_integer;

use crate::clients::Client;
use crate::clients::line::{FLAGS, flags};
use crate::commands::{is_word, parse_switch};
use crate::state::shared::Shared;

/// The types of clients that filters name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientType {
    Normal,
    Replica,
    PubSub,
    Master,
}

impl ClientType {
    fn of(client: &Client) -> ClientType {
        match (client.is_replica.load(Relaxed), client.is_subscriber()) {
            _ if client.is_primary.load(Relaxed) => ClientType::Master,
            (true, _) => ClientType::Replica,
            (_, true) => ClientType::PubSub,
            _ => ClientType::Normal,
        }
    }

    fn parse(word: &[u8]) -> Result<ClientType, Error> {
        let types = [
            ("normal", ClientType::Normal),
            ("slave", ClientType::Replica),
            ("replica", ClientType::Replica),
            ("pubsub", ClientType::PubSub),
            ("master", ClientType::Master),
            ("primary", ClientType::Master),
        ];
        let found = types.into_iter().find(|(name, _)| is_word(word, name));
        let unknown = || Error::quoting("ERR Unknown client type '", word, "'");
        found.map(|(_, kind)| kind).ok_or_else(unknown)
    }
}

/// What a filter looks at.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Test<'a> {
    Ids(Vec<u64>),
    Type(ClientType),
    User(&'a [u8]),
    Address(&'a [u8]),
    LocalAddress(&'a [u8]),
    Ip(&'a [u8]),
    Name(&'a [u8]),
    LibraryName(&'a [u8]),
    LibraryVersion(&'a [u8]),
    /// All of them.
    Flags(&'a [u8]),
    Capabilities(&'a [u8]),
    Database(u16),
    AgeMin(u64),
    IdleMin(u64),
}

/// All tests that a client has to pass, or, where it says so, to fail.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Filter<'a> {
    tests: Vec<(bool, Test<'a>)>,
    spares_caller: bool,
}

impl<'a> Filter<'a> {
    /// Of CLIENT KILL's old form, which takes an address only and spares nobody.
    pub fn of_address(address: &'a [u8]) -> Filter<'a> {
        Filter { tests: vec![(false, Test::Address(address))], spares_caller: false }
    }

    /// The filters of a call.
    pub fn parse(
        args: Args<'a>,
        spares_caller: bool,
        shared: &Shared,
        databases: u16,
    ) -> Result<Filter<'a>, Error> {
        let is_user = |name: &[u8]| shared.acl.find(name).is_some();
        Filter::parse_words(args.from(2), spares_caller, is_user, databases)
    }

    fn parse_words(
        words: Args<'a>,
        spares_caller: bool,
        is_user: impl Fn(&[u8]) -> bool,
        databases: u16,
    ) -> Result<Filter<'a>, Error> {
        let mut filter = Filter { tests: Vec::new(), spares_caller };
        let mut at = 0;
        while let Some(word) = words.get(at) {
            let value = words.get(at + 1).ok_or(Error::SYNTAX)?;
            at += 2;
            let name = word.to_ascii_lowercase();
            let (is_not, name) = match name.strip_prefix(b"not-") {
                Some(name) => (true, name),
                None => (false, &name[..]),
            };
            let test = match name {
                b"skipme" if !is_not => {
                    filter.spares_caller = parse_switch(value, "yes", "no")?;
                    continue;
                }
                b"id" => {
                    let ids = parse_ids(words.from(at - 1))?;
                    at += ids.len() - 1;
                    Test::Ids(ids)
                }
                b"user" if !is_user(value) => {
                    return Err(Error::quoting("ERR No such user '", value, "'"));
                }
                name => Test::parse(name, value, is_not, databases)?,
            };
            filter.add(is_not, test);
        }
        Ok(filter)
    }

    fn add(&mut self, is_not: bool, test: Test<'a>) {
        let is_same = |(other_not, other): &&mut (bool, Test<'a>)| {
            *other_not == is_not && std::mem::discriminant(other) == std::mem::discriminant(&test)
        };
        match (self.tests.iter_mut().find(is_same), test) {
            (Some((_, Test::Ids(ids))), Test::Ids(more)) => ids.extend(more),
            (Some((_, other)), test) => *other = test,
            (None, test) => self.tests.push((is_not, test)),
        }
    }

    pub fn applies(&self, client: &Client, caller: u64, now_ms: u64) -> bool {
        let passes = |(is_not, test): &(bool, Test<'_>)| test.passes(client, now_ms) != *is_not;
        !(self.spares_caller && client.id == caller) && self.tests.iter().all(passes)
    }
}

/// Numbers up to the first word that is none; at least one.
fn parse_ids(words: Args<'_>) -> Result<Vec<u64>, Error> {
    let numbers = words.iter().map_while(parse_integer);
    let positive = |number: i64| match number {
        1.. => Ok(number as u64),
        _ => Err(Error::fixed("ERR client-id should be greater than 0")),
    };
    let ids = numbers.map(positive).collect::<Result<Vec<u64>, Error>>()?;
    if ids.is_empty() { Err(Error::SYNTAX) } else { Ok(ids) }
}

impl<'a> Test<'a> {
    fn parse(
        name: &[u8],
        value: &'a [u8],
        is_not: bool,
        databases: u16,
    ) -> Result<Test<'a>, Error> {
        let known = |letters: &[u8], what: &str, name: &str| {
            let filter = if is_not { format!("NOT-{name}") } else { "provided".into() };
            let before = format!("ERR Unknown {what} found in the {filter} filter: ");
            match value.iter().all(|letter| letters.contains(letter)) {
                true => Ok(value),
                false => Err(Error::from_bytes([before.as_bytes(), value].concat())),
            }
        };
        Ok(match name {
            b"type" => Test::Type(ClientType::parse(value)?),
            b"user" => Test::User(value),
            b"addr" => Test::Address(value),
            b"laddr" => Test::LocalAddress(value),
            b"ip" => Test::Ip(value),
            b"name" => Test::Name(value),
            b"lib-name" => Test::LibraryName(value),
            b"lib-ver" => Test::LibraryVersion(value),
            b"flags" => Test::Flags(known(FLAGS.as_bytes(), "flags", "FLAGS")?),
            b"capa" => Test::Capabilities(known(b"r", "capa", "CAPA")?),
            b"db" => Test::Database(parse_database(value, is_not, databases)?),
            b"maxage" if !is_not => Test::AgeMin(parse_seconds(value, "maxage")?),
            b"idle" if !is_not => Test::IdleMin(parse_seconds(value, "idle")?),
            _ => return Err(Error::SYNTAX),
        })
    }

    fn passes(&self, client: &Client, now_ms: u64) -> bool {
        let seconds_since = |ms: u64| now_ms.saturating_sub(ms) / 1000;
        match self {
            Test::Ids(ids) => ids.contains(&client.id),
            Test::Type(kind) => *kind == ClientType::of(client),
            Test::User(user) => client.names().user == *user,
            Test::Address(address) => client.address.as_bytes() == *address,
            Test::LocalAddress(address) => client.local_address.as_bytes() == *address,
            Test::Ip(ip) => ip_of(&client.address).as_bytes() == *ip,
            Test::Name(name) => client.names().name.as_bytes() == *name,
            Test::LibraryName(name) => client.names().library.as_bytes() == *name,
            Test::LibraryVersion(version) => client.names().library_version.as_bytes() == *version,
            Test::Flags(wanted) => {
                let flags = flags(client);
                wanted.iter().all(|flag| flags.as_bytes().contains(flag))
            }
            Test::Capabilities(wanted) => wanted.is_empty() || client.can_redirect.load(Relaxed),
            Test::Database(db) => client.db.load(Relaxed) == *db,
            Test::AgeMin(seconds) => seconds_since(client.created_ms) >= *seconds,
            Test::IdleMin(seconds) => seconds_since(client.last_ms.load(Relaxed)) >= *seconds,
        }
    }
}

/// Without the port, and without the brackets of IPv6.
fn ip_of(address: &str) -> &str {
    let ip = address.rsplit_once(':').map_or(address, |(ip, _)| ip);
    ip.strip_prefix('[').and_then(|ip| ip.strip_suffix(']')).unwrap_or(ip)
}

fn parse_seconds(value: &[u8], name: &str) -> Result<u64, Error> {
    match parse_integer(value) {
        None => Err(Error::new(format!("ERR {name} is not an integer or out of range"))),
        Some(seconds @ 1..) => Ok(seconds as u64),
        Some(_) => Err(Error::new(format!("ERR {name} should be greater than 0"))),
    }
}

fn parse_database(value: &[u8], is_not: bool, databases: u16) -> Result<u16, Error> {
    let name = if is_not { "NOT-DB" } else { "DB" };
    let number = parse_integer(value)
        .ok_or_else(|| Error::new(format!("ERR {name} is not an integer or out of range")))?;
    let last = databases - 1;
    let db = u16::try_from(number).ok().filter(|db| *db <= last);
    db.ok_or_else(|| Error::new(format!("ERR {name} number should be between 0 and {last}")))
}

/// The types as an argument of CLIENT KILL has them.
pub static TYPES: &[Argument] = &[
    Argument::word("normal", "NORMAL"),
    Argument::word("master", "MASTER").since("3.2.0"),
    Argument::word("primary", "PRIMARY").since("8.0.0"),
    Argument::word("slave", "SLAVE"),
    Argument::word("replica", "REPLICA").since("5.0.0"),
    Argument::word("pubsub", "PUBSUB"),
];

pub static NOT_TYPES: &[Argument] = &[
    Argument::word("normal", "NORMAL"),
    Argument::word("master", "MASTER"),
    Argument::word("primary", "PRIMARY"),
    Argument::word("slave", "SLAVE"),
    Argument::word("replica", "REPLICA"),
    Argument::word("pubsub", "PUBSUB"),
];

/// And as one of CLIENT LIST.
pub static LIST_TYPES: &[Argument] = &[
    Argument::word("normal", "NORMAL"),
    Argument::word("master", "MASTER"),
    Argument::word("replica", "REPLICA"),
    Argument::word("pubsub", "PUBSUB"),
];

pub const YES_NO: &[Argument] = &[Argument::word("yes", "YES"), Argument::word("no", "NO")];

#[cfg(test)]
mod tests {
    use super::*;
    use kvasir_resp::args::ArgsBuf;

    fn check(words: &str, expect: Result<Vec<(bool, Test<'_>)>, &str>) {
        let args: ArgsBuf = words.split(' ').collect();
        let filter = Filter::parse_words(args.as_args(), true, |name| name == b"default", 16);
        match (filter, expect) {
            (Ok(filter), Ok(tests)) => assert_eq!(filter.tests, tests, "{words}"),
            (Err(error), Err(text)) => assert_eq!(error.text(), text.as_bytes(), "{words}"),
            (found, expected) => panic!("{words}: {found:?}, not {expected:?}"),
        }
    }

    #[test]
    fn filters_are_parsed_in_any_case() {
        check(
            "id 5 6 Type normal",
            Ok(vec![(false, Test::Ids(vec![5, 6])), (false, Test::Type(ClientType::Normal))]),
        );
        check(
            "ID 5 NAME a ID 7 Name b",
            Ok(vec![(false, Test::Ids(vec![5, 7])), (false, Test::Name(b"b"))]),
        );
        check(
            "NOT-USER default maxage 3",
            Ok(vec![(true, Test::User(b"default")), (false, Test::AgeMin(3))]),
        );
        check("id x", Err("ERR syntax error"));
        check("not-idle 1", Err("ERR syntax error"));
        check("user nosuch", Err("ERR No such user 'nosuch'"));
        check("not-flags PZ", Err("ERR Unknown flags found in the NOT-FLAGS filter: PZ"));
        check("db 16", Err("ERR DB number should be between 0 and 15"));
    }

    #[test]
    fn an_ip_has_no_port() {
        for (address, ip) in [("127.0.0.1:5", "127.0.0.1"), ("[::1]:5", "::1"), ("/s:0", "/s")] {
            assert_eq!(ip_of(address), ip);
        }
    }
}
