//! `cargo xtask missing`: commands that the peers have and Kvasir lacks.
//!
//! All of Redis 7.0's COMMAND LIST has to be there, subcommands included; what came later stands
//! in `NEWER`, and Valkey 9.1 says that it is real. What is left out on purpose stands in
//! `EXCEPTIONS`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use kvasir_harness::kvasir;
use kvasir_harness::link::Link;
use kvasir_harness::oracle::Oracle;
use kvasir_harness::raw::Raw;
use kvasir_harness::server::{Launch, Server};

/// Commands that Valkey 9.1 has and Redis 7.0 has not.
const NEWER: [&str; 21] = [
    "client|capa",
    "commandlog",
    "commandlog|get",
    "commandlog|help",
    "commandlog|len",
    "commandlog|reset",
    "delifeq",
    "hexpire",
    "hexpireat",
    "hexpiretime",
    "hgetdel",
    "hgetex",
    "hpersist",
    "hpexpire",
    "hpexpireat",
    "hpexpiretime",
    "hpttl",
    "hsetex",
    "httl",
    "msetex",
    "waitaof",
];

/// What may lack, and why.
const EXCEPTIONS: &[(&str, &str)] = &[];

pub fn main() -> Result<()> {
    let redis = commands_of(&Oracle::redis()?.program)?;
    let valkey = commands_of(&Oracle::valkey()?.program)?;
    let ours = commands_of(&kvasir::program()?)?;
    let wanted = wanted(&redis, &valkey)?;
    let missing = missing(&wanted, &ours);
    for (group, names) in &missing {
        println!("{group:<12} {}", names.join(" "));
    }
    for (name, reason) in EXCEPTIONS {
        match ours.contains_key(*name) {
            true => bail!("{name} is there: it is no exception any more"),
            false => println!("{:<12} {name}: {reason}", "left out"),
        }
    }
    let count: usize = missing.values().map(Vec::len).sum();
    println!("missing: {count} of {} commands", wanted.len());
    ensure!(count == 0, "{count} commands are missing");
    Ok(())
}

/// Every command and subcommand of a server, with its group.
type Commands = BTreeMap<String, String>;

/// What has to be there.
fn wanted(redis: &Commands, valkey: &Commands) -> Result<Commands> {
    let mut wanted = redis.clone();
    for name in NEWER {
        let group = valkey.get(name).with_context(|| format!("Valkey has no {name}"))?;
        wanted.insert(name.to_string(), group.clone());
    }
    Ok(wanted)
}

/// By group, the names that are wanted, not there, and no exception.
fn missing<'a>(wanted: &'a Commands, ours: &Commands) -> BTreeMap<&'a str, Vec<&'a str>> {
    let exceptions: BTreeSet<&str> = EXCEPTIONS.iter().map(|(name, _)| *name).collect();
    let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, group) in wanted {
        if !ours.contains_key(name) && !exceptions.contains(name.as_str()) {
            missing.entry(group).or_default().push(name);
        }
    }
    missing
}

fn commands_of(program: &std::path::Path) -> Result<Commands> {
    let args = ["--unixsocket", "socket", "--save", ""].map(str::to_string).to_vec();
    let server = Server::start(&Launch { program: program.to_path_buf(), args, cores: None })?;
    let mut link = Link::connect(&server.dir().join("socket"))?;
    let list = link.ask(&["COMMAND", "LIST"])?;
    let docs = link.ask(&["COMMAND", "DOCS"])?;
    let groups: BTreeMap<&[u8], String> = docs
        .items()
        .chunks_exact(2)
        .filter_map(|pair| Some((pair[0].text()?, text_of(&pair[1], "group")?)))
        .collect();
    let mut commands = Commands::new();
    for name in list.items().iter().filter_map(Raw::text) {
        let family = name.split(|byte| *byte == b'|').next().unwrap_or(name);
        let group = groups.get(family).cloned().unwrap_or_default();
        commands.insert(String::from_utf8_lossy(name).into_owned(), group);
    }
    ensure!(!commands.is_empty(), "{} lists no command", program.display());
    Ok(commands)
}

/// A text in a map that RESP2 flattened.
fn text_of(map: &Raw, field: &str) -> Option<String> {
    let value = map.field(field)?.text()?;
    Some(String::from_utf8_lossy(value).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lacks_is_named_by_group() {
        let commands = |pairs: &[(&str, &str)]| -> Commands {
            pairs.iter().map(|(name, group)| (name.to_string(), group.to_string())).collect()
        };
        let wanted = commands(&[("get", "string"), ("set", "string")]);
        let lacks = missing(&wanted, &commands(&[("set", "string")]));
        assert_eq!(lacks.into_iter().collect::<Vec<_>>(), [("string", vec!["get"])]);
    }

    #[test]
    fn what_is_newer_must_be_real() {
        assert!(wanted(&Commands::new(), &Commands::new()).is_err());
    }
}
