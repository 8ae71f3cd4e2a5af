//! What calls of a command look like, taken from the command table.
//!
//! A row that does not describe its arguments yet borrows the description that the oracle's
//! COMMAND DOCS gives, so that no command is left out.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use kvasir_harness::link::Link;
use kvasir_harness::raw::Raw;
use kvasir_keyspace::command::{Command, Run};
use kvasir_keyspace::commands;
use kvasir_keyspace::spec::{Argument, ArgumentKind, Spec};

/// Server commands that change what data commands do, or are answered like them.
const SERVER_COMMANDS: [&str; 3] = ["select", "ping", "echo"];

/// A command to draw calls of.
pub struct Syntax {
    /// One word, or two for a subcommand.
    pub words: Vec<String>,
    pub group: String,
    pub params: Vec<Param>,
}

/// One argument, as in COMMAND DOCS.
#[derive(Debug, PartialEq)]
pub struct Param {
    pub name: String,
    pub kind: ArgumentKind,
    pub token: Option<String>,
    pub optional: bool,
    pub multiple: bool,
    pub multiple_token: bool,
    pub parts: Vec<Param>,
}

/// Commands that are not called: they wait for other servers, or only test the server itself.
const LEFT_OUT: [&str; 5] = ["migrate", "pfdebug", "pfselftest", "wait", "waitaof"];

/// Every command of the table that the oracle knows too, and the names of the others. Options that
/// are newer than its version are left out.
pub fn all(oracle: &mut Link, version: &str) -> Result<(Vec<Syntax>, Vec<String>)> {
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    let mut add = |words: Vec<&str>, spec: Option<&Spec>| -> Result<()> {
        match Syntax::new(&words, spec, oracle, version)? {
            Some(syntax) => known.push(syntax),
            None => unknown.push(words.join("|")),
        }
        Ok(())
    };
    for Command { spec, run } in commands::all() {
        if LEFT_OUT.contains(&spec.name) {
            continue;
        }
        match run {
            Run::Container(list) => {
                for sub in *list {
                    add(vec![spec.name, sub.spec.name], Some(&sub.spec))?;
                }
            }
            _ => add(vec![spec.name], Some(spec))?,
        }
    }
    for name in SERVER_COMMANDS {
        add(vec![name], None)?;
    }
    Ok((known, unknown))
}

impl Syntax {
    fn new(
        words: &[&str],
        spec: Option<&Spec>,
        oracle: &mut Link,
        version: &str,
    ) -> Result<Option<Syntax>> {
        let docs = oracle.ask(&["COMMAND", "DOCS", words[0]])?;
        let Some(mut docs) = docs.items().get(1) else { return Ok(None) };
        if let [container, word] = words {
            let name = format!("{container}|{word}");
            let subcommands = docs.field("subcommands").context("a container without words")?;
            let Some(found) = subcommands.field(&name) else { return Ok(None) };
            docs = found;
        }
        let documented = docs.field("arguments").map_or(Ok(Vec::new()), params_of_docs)?;
        let params = match spec.map_or(&[][..], |spec| spec.arguments) {
            [] => documented,
            arguments => {
                let mut params = Param::from_rows(arguments, version);
                // Not every row says since when there is an argument, and the peers' numbers of
                // versions are not one another's.
                params.retain(|param| param.is_among(&documented));
                let tokens = tokens(&documented);
                params.iter_mut().for_each(|param| param.keep_known_parts(&tokens));
                params.retain(|param| !param.is_hollow());
                params
            }
        };
        let words = words.iter().map(ToString::to_string).collect();
        let group = text_field(docs, "group").unwrap_or_default();
        Ok(Some(Syntax { words, group, params }))
    }
}

impl Param {
    /// The arguments that a server of this version knows.
    fn from_rows(rows: &[Argument], version: &str) -> Vec<Param> {
        let is_known = |row: &&Argument| row.since.is_none_or(|since| !is_newer(since, version));
        rows.iter().filter(is_known).map(|row| Param::from_row(row, version)).collect()
    }

    fn from_row(row: &Argument, version: &str) -> Param {
        Param {
            name: row.name.to_string(),
            kind: row.kind,
            token: row.token.map(str::to_string),
            optional: row.optional,
            multiple: row.multiple,
            multiple_token: row.multiple_token,
            parts: Param::from_rows(row.parts, version),
        }
    }

    /// Whether one of these has the same token; those without one have to be in place.
    fn is_among(&self, params: &[Param]) -> bool {
        self.token.is_none() || params.iter().any(|param| param.token == self.token)
    }

    /// Leaves out the parts with a token that is none of these.
    fn keep_known_parts(&mut self, tokens: &BTreeSet<String>) {
        let is_known =
            |param: &Param| param.token.as_ref().is_none_or(|token| tokens.contains(token));
        self.parts.retain(is_known);
        self.parts.iter_mut().for_each(|part| part.keep_known_parts(tokens));
        self.parts.retain(|part| !part.is_hollow());
    }

    /// Whether it was made of others, which are left out.
    fn is_hollow(&self) -> bool {
        matches!(self.kind, ArgumentKind::OneOf | ArgumentKind::Block) && self.parts.is_empty()
    }

    fn from_docs(docs: &Raw) -> Result<Param> {
        let flags = docs.field("flags").map_or(&[][..], Raw::items);
        let has_flag = |flag: &str| flags.iter().any(|item| item.text() == Some(flag.as_bytes()));
        Ok(Param {
            name: text_field(docs, "name").context("an argument without a name")?,
            kind: kind_of(&text_field(docs, "type").unwrap_or_default()),
            token: text_field(docs, "token"),
            optional: has_flag("optional"),
            multiple: has_flag("multiple"),
            multiple_token: has_flag("multiple_token"),
            parts: docs.field("arguments").map_or(Ok(Vec::new()), params_of_docs)?,
        })
    }
}

/// All tokens that stand in these arguments, at any depth.
fn tokens(params: &[Param]) -> BTreeSet<String> {
    let own = params.iter().filter_map(|param| param.token.clone());
    own.chain(params.iter().flat_map(|param| tokens(&param.parts))).collect()
}

fn is_newer(since: &str, version: &str) -> bool {
    let numbers = |text: &str| -> Vec<u32> {
        text.split('.').map(|number| number.parse().unwrap_or(0)).collect()
    };
    numbers(since) > numbers(version)
}

fn params_of_docs(list: &Raw) -> Result<Vec<Param>> {
    list.items().iter().map(Param::from_docs).collect()
}

fn kind_of(name: &str) -> ArgumentKind {
    use ArgumentKind::*;
    let kinds = [Integer, Double, Key, Pattern, UnixTime, PureToken, OneOf, Block];
    kinds.into_iter().find(|kind| kind.name() == name).unwrap_or(String)
}

fn text_field(map: &Raw, name: &str) -> Option<String> {
    map.field(name)?.text().map(|text| String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(is_newer("7.2.0", "7.0.15") && is_newer("10.0.0", "9.1.2"));
        assert!(!is_newer("7.0.0", "7.0.15") && !is_newer("7.0.15", "7.0.15"));
    }

    /// KEEPREF came with Redis 8.2, and Valkey 9.1 has none.
    #[test]
    fn words_that_the_oracle_does_not_document_are_left_out() {
        const CONDITION: Argument =
            Argument::one_of("c", &[Argument::word("x", "KEEPREF"), Argument::word("y", "ACKED")]);
        const STRATEGY: Argument = Argument::one_of(
            "s",
            &[Argument::word("maxlen", "MAXLEN"), Argument::word("minid", "MINID")],
        );
        const THRESHOLD: Argument = Argument::string("threshold");
        const OURS: Argument = Argument::block("trim", &[STRATEGY, THRESHOLD, CONDITION]);
        const THEIRS: Argument = Argument::block("trim", &[STRATEGY, THRESHOLD]);
        let documented = Param::from_rows(&[THEIRS], "9.1.2");
        let mut params = Param::from_rows(&[CONDITION, OURS], "9.1.2");
        params.iter_mut().for_each(|param| param.keep_known_parts(&tokens(&documented)));
        assert!(params[0].is_hollow() && !params[1].is_hollow());
        assert_eq!(params[1].parts, documented[0].parts);
    }
}
