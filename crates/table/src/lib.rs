//! From a name to a command: the one table of data commands and server commands.
#![forbid(unsafe_code)]

pub mod categories;
pub mod keys;

use std::collections::BTreeMap;

use kvasir_keyspace::command::{Command, Run};
use kvasir_keyspace::commands;
use kvasir_keyspace::error::{Error, quoted};
use kvasir_keyspace::spec::{Flags, Spec};
use kvasir_resp::args::Args;

/// A command or subcommand that clients can call.
#[derive(Clone)]
pub struct Entry {
    /// Place in the table, and in the workers' statistics.
    pub index: usize,
    /// As statistics and errors name it: `get`, `client|list`.
    pub full_name: String,
    pub spec: &'static Spec,
    pub handler: Handler,
    /// Indexes of the subcommands; not empty exactly for a container.
    pub subcommands: Vec<usize>,
    /// Taken away by `rename-command`: no client can call it, but ACL rules may name it.
    pub is_removed: bool,
    /// Its calls do little, whatever their key holds: see `timing`.
    pub is_small: bool,
}

/// Who runs a command.
#[derive(Clone, Copy)]
pub enum Handler {
    Data(&'static Command),
    Server(ServerHandler),
}

/// A command about the server: by this number those know its function who may run it.
#[derive(Clone, Copy)]
pub struct ServerHandler {
    pub index: u16,
    pub way: Way,
}

/// How a command about the server is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Plain,
    /// With the gate closed.
    World,
    /// With the worker whole, since it runs other calls.
    Session,
    /// As a session or with the gate closed, as its arguments have it.
    SessionOrWorld,
    /// By its first argument one of its subcommands.
    Container,
    /// As a container, but without any argument a command itself.
    Family,
}

/// A command about the server as the table is told of it, with its subcommands.
pub struct ServerRow {
    pub spec: &'static Spec,
    pub way: Way,
    pub subcommands: Vec<ServerRow>,
}

/// All commands by name.
pub struct Table {
    entries: Vec<Entry>,
    /// Open addressing over indexes of entries that are no subcommands; at most half full.
    buckets: Box<[u16]>,
    /// What `rename-command` calls entries instead of their own names.
    new_names: BTreeMap<u16, Box<[u8]>>,
    /// No command's name is longer.
    name_len_max: usize,
}

/// Why `rename-command` changes nothing, in Redis's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameError {
    NoSuchCommand,
    NameTaken,
}

impl RenameError {
    pub fn text(self) -> &'static str {
        match self {
            RenameError::NoSuchCommand => "No such command in rename-command",
            RenameError::NameTaken => "Target command name already exists",
        }
    }
}

/// Why a call has no command.
#[derive(Debug, PartialEq, Eq)]
pub enum NotFound {
    Command,
    Subcommand,
}

const EMPTY: u16 = u16::MAX;

impl Table {
    /// The data commands and those about the server, which are numbered in this order, each before
    /// its subcommands.
    pub fn new(server: &[ServerRow]) -> Table {
        let mut entries = Vec::new();
        for command in commands::all() {
            add_data(&mut entries, command, "");
        }
        let mut next = 0;
        for row in server {
            add_server(&mut entries, row, "", &mut next);
        }
        Table::of(entries)
    }

    /// The same commands under their own names.
    pub fn without_renames(&self) -> Table {
        let own = self.entries.iter().cloned().map(|entry| Entry { is_removed: false, ..entry });
        Table::of(own.collect())
    }

    fn of(entries: Vec<Entry>) -> Table {
        let mut table = Table {
            buckets: vec![EMPTY; (entries.len() * 2).next_power_of_two()].into(),
            entries,
            new_names: BTreeMap::new(),
            name_len_max: 0,
        };
        table.fill();
        table
    }

    /// Makes every entry that can be called found by its name.
    fn fill(&mut self) {
        self.buckets.fill(EMPTY);
        for index in 0..self.entries.len() {
            let entry = &self.entries[index];
            if entry.is_removed || entry.full_name.contains('|') {
                continue;
            }
            let name = self.name_of(index as u16);
            let (bucket, len) = (self.bucket_of(name), name.len());
            assert_eq!(self.buckets[bucket], EMPTY, "{} twice", entry.full_name);
            self.buckets[bucket] = index as u16;
            self.name_len_max = self.name_len_max.max(len);
        }
    }

    /// Has a command called by another name, or, where that is empty, not at all.
    pub fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), RenameError> {
        let index = self.find(from).ok_or(RenameError::NoSuchCommand)?.index;
        match self.find(to) {
            // Another case of its own name.
            Some(taken) if taken.index == index => return Ok(()),
            Some(_) => return Err(RenameError::NameTaken),
            None => {}
        }
        if to.is_empty() {
            self.entries[index].is_removed = true;
            let subs = self.entries[index].subcommands.clone();
            subs.into_iter().for_each(|sub| self.entries[sub].is_removed = true);
        } else {
            self.new_names.insert(index as u16, to.into());
        }
        self.fill();
        Ok(())
    }

    /// By what name clients call an entry.
    #[inline]
    fn name_of(&self, index: u16) -> &[u8] {
        if !self.new_names.is_empty()
            && let Some(name) = self.new_names.get(&index)
        {
            return name;
        }
        self.entries[index as usize].spec.name.as_bytes()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry of `name` or `container|name`, whatever clients call it.
    pub fn find_original(&self, full_name: &[u8]) -> Option<&Entry> {
        let is_it = |entry: &&Entry| entry.full_name.as_bytes().eq_ignore_ascii_case(full_name);
        self.entries.iter().find(is_it)
    }

    /// All commands, each followed by its subcommands.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The command that a call names, in any case; of a container the subcommand.
    #[inline]
    pub fn resolve(&self, args: Args<'_>) -> Result<&Entry, NotFound> {
        let entry = self.find(&args[0]).ok_or(NotFound::Command)?;
        match args.get(1) {
            Some(word) if !entry.subcommands.is_empty() => {
                self.subcommand(entry, word).ok_or(NotFound::Subcommand)
            }
            _ => Ok(entry),
        }
    }

    /// The top-level command of this name.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<&Entry> {
        if name.len() > self.name_len_max {
            return None;
        }
        let index = self.buckets[self.bucket_of(name)];
        (index != EMPTY).then(|| &self.entries[index as usize])
    }

    /// The entry of `name` or `container|name`, as COMMAND INFO takes them.
    pub fn find_full(&self, name: &[u8]) -> Option<&Entry> {
        let mut words = name.splitn(2, |byte| *byte == b'|');
        let entry = self.find(words.next()?)?;
        match words.next() {
            None => Some(entry),
            Some(word) => self.subcommand(entry, word),
        }
    }

    fn subcommand(&self, entry: &Entry, word: &[u8]) -> Option<&Entry> {
        let mut all = entry.subcommands.iter().map(|index| &self.entries[*index]);
        all.find(|sub| sub.spec.name.as_bytes().eq_ignore_ascii_case(word))
    }

    /// The bucket of a name, or the empty one where it would be.
    #[inline]
    fn bucket_of(&self, name: &[u8]) -> usize {
        let mask = self.buckets.len() - 1;
        let mut bucket = hash(name) as usize & mask;
        loop {
            let index = self.buckets[bucket];
            if index == EMPTY || self.name_of(index).eq_ignore_ascii_case(name) {
                return bucket;
            }
            bucket = (bucket + 1) & mask;
        }
    }
}

fn add_data(entries: &mut Vec<Entry>, command: &'static Command, prefix: &str) -> usize {
    let index = push(entries, &command.spec, Handler::Data(command), prefix);
    if let Run::Container(list) = command.run {
        let prefix = format!("{}|", command.spec.name);
        let subcommands = list.iter().map(|sub| add_data(entries, sub, &prefix)).collect();
        entries[index].subcommands = subcommands;
    }
    index
}

fn add_server(entries: &mut Vec<Entry>, row: &ServerRow, prefix: &str, next: &mut u16) -> usize {
    let handler = ServerHandler { index: *next, way: row.way };
    *next += 1;
    let index = push(entries, row.spec, Handler::Server(handler), prefix);
    let prefix = format!("{}|", row.spec.name);
    let subcommands = row.subcommands.iter().map(|sub| add_server(entries, sub, &prefix, next));
    let subcommands = subcommands.collect();
    entries[index].subcommands = subcommands;
    index
}

/// Adds a command without its subcommands.
fn push(entries: &mut Vec<Entry>, spec: &'static Spec, handler: Handler, prefix: &str) -> usize {
    let (index, full_name) = (entries.len(), format!("{prefix}{}", spec.name));
    let (is_small, subcommands, is_removed) = (is_small(spec), Vec::new(), false);
    entries.push(Entry { index, full_name, spec, handler, subcommands, is_removed, is_small });
    index
}

/// Whether a command's calls do little, whatever their key holds.
fn is_small(spec: &Spec) -> bool {
    spec.flags.contains(Flags::FAST) || spec.complexity == "O(1)"
}

/// FNV-1a over the name in lower case: names are short and few.
#[inline]
fn hash(name: &[u8]) -> u32 {
    name.iter().fold(0x811c_9dc5, |hash: u32, byte| {
        (hash ^ (byte | 0x20) as u32).wrapping_mul(0x0100_0193)
    })
}

/// Whether a call that names no command is a line of an HTTP request. A web page can make a browser
/// send one to us, with commands in its body: such a client is sent away, as Redis does.
pub fn is_http(args: Args<'_>) -> bool {
    [&b"post"[..], b"host:"].iter().any(|word| args[0].eq_ignore_ascii_case(word))
}

/// What is quoted of each word, and of all the words, of a call that names no command.
const SHOWN_MAX: usize = 128;

/// Redis's reply to a name that is no command's.
pub fn unknown_command(args: Args<'_>) -> Error {
    let mut shown = Vec::new();
    for arg in args.from(1).iter() {
        let Some(left) = SHOWN_MAX.checked_sub(shown.len()).filter(|left| *left > 0) else { break };
        shown.extend_from_slice(&[b"'", shown_of(arg, left), b"' "].concat());
    }
    let (before, name) = (b"ERR unknown command '", shown_of(&args[0], SHOWN_MAX));
    Error::from_bytes([before, name, b"', with args beginning with: ", &shown].concat())
}

/// Redis's reply to a word that is no subcommand's.
pub fn unknown_subcommand(args: Args<'_>) -> Error {
    let name = String::from_utf8_lossy(&args[0]).to_uppercase();
    let word = shown_of(&args[1], SHOWN_MAX);
    Error::quoting("ERR unknown subcommand '", word, &format!("'. Try {name} HELP."))
}

fn shown_of(word: &[u8], max: usize) -> &[u8] {
    quoted(&word[..word.len().min(max)])
}
