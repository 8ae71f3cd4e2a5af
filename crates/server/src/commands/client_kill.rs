//! CLIENT KILL: closing connections by address, or by filters that must all apply.

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Group, Spec};
use kvasir_resp::args::Args;
use kvasir_resp::number::parse_integer;

use super::client::{ClientType, parse_type};
use super::{ANY_TIME_ADMIN, ServerCommand, ServerCx, ServerRun, parse_switch};
use crate::clients::Client;
use crate::shared::Message;

pub static CLIENT_KILL: ServerCommand = ServerCommand {
    spec: Spec {
        name: "kill",
        summary: "Closes connections.",
        since: "2.4.0",
        group: Group::Connection,
        complexity: "O(N) in the number of connections",
        arity: -3,
        flags: ANY_TIME_ADMIN,
        history: &[
            ("2.8.12", "Takes filters instead of an address."),
            ("2.8.12", "Has the filter `ID`."),
            ("3.2.0", "`TYPE` can be `master`."),
            ("5.0.0", "`TYPE` can be `replica`, of which `slave` is the older name."),
            ("6.2.0", "Has the filter `LADDR`."),
        ],
        arguments: &[Argument::one_of(
            "filter",
            &[Argument::string("ip:port"), Argument::one_of("new-format", FILTERS).multiple()],
        )],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(kill),
};

static FILTERS: &[Argument] = &[
    Argument::integer("client-id").token("ID").since("2.8.12").optional(),
    Argument::one_of(
        "normal_master_slave_pubsub",
        &[
            Argument::word("normal", "NORMAL"),
            Argument::word("master", "MASTER").since("3.2.0"),
            Argument::word("slave", "SLAVE"),
            Argument::word("replica", "REPLICA").since("5.0.0"),
            Argument::word("pubsub", "PUBSUB"),
        ],
    )
    .token("TYPE")
    .since("2.8.12")
    .optional(),
    Argument::string("username").token("USER").optional(),
    Argument::string("ip:port").token("ADDR").optional(),
    Argument::string("ip:port").token("LADDR").since("6.2.0").optional(),
    Argument::string("yes/no").token("SKIPME").optional(),
    Argument::integer("maxage").token("MAXAGE").since("7.4.0").optional(),
];

/// Which clients to close; all that is given must apply.
#[derive(Debug, PartialEq, Eq)]
struct Filter<'a> {
    id: Option<u64>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    kind: Option<ClientType>,
    age_s_min: u64,
    spares_caller: bool,
}

fn kill(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let args = cx.args;
    let is_old_form = args.len() == 3;
    let is_user = |name: &[u8]| cx.shared.acl.find(name).is_some();
    let filter = if is_old_form { Filter::of(&args[2]) } else { Filter::parse(args, is_user)? };
    let (caller, now_ms) = (cx.connection.client.id, cx.core.env.now_ms);
    let all = cx.shared.clients.all();
    let matching = all.iter().filter(|client| filter.applies(client, caller, now_ms));
    let killed = matching.map(|client| close(cx, client)).count();
    match (is_old_form, killed) {
        (true, 0) => return Err(Error::fixed("ERR No such client")),
        (true, _) => cx.reply().ok(),
        (false, _) => cx.reply().integer(killed as i64),
    }
    Ok(())
}

/// The caller gets its reply first; others are closed by the workers that own them. They are gone
/// from the list at once, so that nobody is counted twice.
pub fn close(cx: &mut ServerCx<'_>, client: &Client) {
    if client.id == cx.connection.client.id {
        cx.connection.is_closing = true;
        return;
    }
    cx.shared.clients.remove(client.id);
    cx.shared.send(client.worker, Message::Kill(client.id));
}

impl<'a> Filter<'a> {
    const NONE: Filter<'static> = Filter {
        id: None,
        address: None,
        local_address: None,
        user: None,
        kind: None,
        age_s_min: 0,
        spares_caller: true,
    };

    /// Of the old form, which takes an address only and spares nobody.
    fn of(address: &'a [u8]) -> Filter<'a> {
        Filter { address: Some(address), spares_caller: false, ..Filter::NONE }
    }

    fn parse(args: Args<'a>, is_user: impl Fn(&[u8]) -> bool) -> Result<Filter<'a>, Error> {
        let mut filter: Filter<'a> = Filter::NONE;
        let mut words = args.from(2).iter();
        while let Some(word) = words.next() {
            let value = words.next().ok_or(Error::SYNTAX)?;
            filter.add(word, value)?;
            if filter.user.is_some_and(|user| !is_user(user)) {
                return Err(Error::quoting("ERR No such user '", value, "'"));
            }
        }
        Ok(filter)
    }

    fn add(&mut self, word: &[u8], value: &'a [u8]) -> Result<(), Error> {
        match word.to_ascii_lowercase().as_slice() {
            b"id" => self.id = Some(positive(value, "client-id should be greater than 0")?),
            b"type" => self.kind = Some(parse_type(value)?),
            b"addr" => self.address = Some(value),
            b"laddr" => self.local_address = Some(value),
            b"user" => self.user = Some(value),
            b"skipme" => self.spares_caller = parse_switch(value, "yes", "no")?,
            b"maxage" => {
                if parse_integer(value).is_none() {
                    return Err(Error::fixed("ERR maxage is not an integer or out of range"));
                }
                self.age_s_min = positive(value, "maxage should be greater than 0")?;
            }
            _ => return Err(Error::SYNTAX),
        }
        Ok(())
    }

    fn applies(&self, client: &Client, caller: u64, now_ms: u64) -> bool {
        let is = |wanted: Option<&[u8]>, text: &str| {
            wanted.is_none_or(|wanted| wanted == text.as_bytes())
        };
        self.id.is_none_or(|id| id == client.id)
            && is(self.address, &client.address)
            && is(self.local_address, &client.local_address)
            && self.user.is_none_or(|user| user == client.names().user)
            && self.kind.is_none_or(|kind| kind == ClientType::of(client))
            && now_ms.saturating_sub(client.created_ms) / 1000 >= self.age_s_min
            && !(self.spares_caller && client.id == caller)
    }
}

fn positive(value: &[u8], text: &str) -> Result<u64, Error> {
    let number = parse_integer(value).filter(|number| *number > 0);
    number.map(|number| number as u64).ok_or_else(|| Error::new(format!("ERR {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvasir_resp::args::ArgsBuf;

    #[test]
    fn filters_are_parsed_in_any_case() {
        let args: ArgsBuf =
            "CLIENT KILL id 5 Type normal SKIPME no maxage 3 user default".split(' ').collect();
        let filter = Filter::parse(args.as_args(), |name| name == b"default").unwrap();
        let expected = Filter {
            id: Some(5),
            kind: Some(ClientType::Normal),
            user: Some(b"default"),
            age_s_min: 3,
            spares_caller: false,
            ..Filter::NONE
        };
        assert_eq!(filter, expected);
    }
}
