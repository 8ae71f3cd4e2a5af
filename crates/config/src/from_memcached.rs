//! The command line of memcached, for who brings one along: `kvasir-server memcached -m 64 -l ...`.
//!
//! Each of its options becomes directives, or is named in the log as one without effect, or stops
//! the start where somebody relies on it. What stands behind `--` are options of Kvasir's own, and
//! win. Texts about wrong values are memcached's.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use kvasir_resp::inline;

use crate::load::Ignored;

mod extended;
mod options;

use options::{Known, Meaning, find_long, find_short};

/// What memcached is without an option.
const PORT: u16 = 11211;
const MEGABYTES: u64 = 64;
const CONNECTIONS: u32 = 1024;
const BACKLOG: u32 = 1024;
const SOCKET_MODE: &str = "700";
const ITEM_SIZE: u64 = 1 << 20;
const ITEM_SIZES: std::ops::RangeInclusive<u64> = 1024..=1 << 30;

/// A command line, understood.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Translated {
    /// Directives, one a line.
    pub lines: Vec<u8>,
    pub ignored: Vec<Ignored>,
    /// The words behind `--`.
    pub rest: Vec<OsString>,
}

/// What the options say.
#[derive(Default)]
struct Wish {
    port: Option<u16>,
    socket: Option<OsString>,
    socket_mode: Option<String>,
    addresses: Vec<String>,
    megabytes: Option<u64>,
    keeps_all: bool,
    item_size: Option<u64>,
    users: Option<String>,
    /// Directives that stand for themselves.
    lines: Vec<u8>,
    ignored: Vec<Ignored>,
}

/// Reads the words behind `memcached`.
pub fn translate(words: &[OsString]) -> Result<Translated, String> {
    let (mut wish, mut rest) = (Wish::default(), words);
    while let Some((word, after)) = rest.split_first() {
        rest = after;
        let text = word.as_bytes();
        if text == b"--" {
            break;
        } else if let Some(name) = text.strip_prefix(b"--") {
            rest = wish.long(name, rest)?;
        } else if let Some(letters) = text.strip_prefix(b"-").filter(|letters| !letters.is_empty())
        {
            rest = wish.letters(letters, rest)?;
        }
        // memcached passes over words that belong to no option.
    }
    let Wish { ref mut ignored, .. } = wish;
    let ignored = std::mem::take(ignored);
    Ok(Translated { lines: wish.lines()?, ignored, rest: rest.to_vec() })
}

impl Wish {
    /// `--name`, `--name=value`, `--name value`; what is left behind it.
    fn long<'w>(&mut self, word: &[u8], rest: &'w [OsString]) -> Result<&'w [OsString], String> {
        let (name, own) = match word.iter().position(|byte| *byte == b'=') {
            Some(at) => (&word[..at], Some(&word[at + 1..])),
            None => (word, None),
        };
        let name = String::from_utf8_lossy(name);
        let option = find_long(&name).ok_or_else(|| format!("unrecognized option '--{name}'"))?;
        self.take(option, own, rest)
    }

    /// Letters of one word, the last of which may have a value right behind it.
    fn letters<'w>(
        &mut self,
        letters: &[u8],
        rest: &'w [OsString],
    ) -> Result<&'w [OsString], String> {
        for (at, letter) in letters.iter().enumerate() {
            let wrong = || format!("invalid option -- '{}'", letter.escape_ascii());
            let option = find_short(*letter).ok_or_else(wrong)?;
            if option.has_value() {
                let own = Some(&letters[at + 1..]).filter(|own| !own.is_empty());
                return self.take(option, own, rest);
            }
            self.take(option, None, rest)?;
        }
        Ok(rest)
    }

    fn take<'w>(
        &mut self,
        option: &'static Known,
        own: Option<&[u8]>,
        rest: &'w [OsString],
    ) -> Result<&'w [OsString], String> {
        if !option.has_value() {
            self.obey(option, b"")?;
            return Ok(rest);
        }
        if let Some(value) = own {
            self.obey(option, value)?;
            return Ok(rest);
        }
        let (value, rest) = rest
            .split_first()
            .ok_or_else(|| format!("option requires an argument -- '{}'", option.letter))?;
        self.obey(option, value.as_bytes())?;
        Ok(rest)
    }

    fn obey(&mut self, option: &'static Known, value: &[u8]) -> Result<(), String> {
        let text = String::from_utf8_lossy(value).into_owned();
        match option.meaning {
            Meaning::Port => self.port = Some(port(&text, "Invalid port number")?),
            Meaning::Socket => self.socket = Some(OsStr::from_bytes(value).to_owned()),
            Meaning::SocketMode => self.socket_mode = Some(text),
            Meaning::Addresses => self.addresses(&text)?,
            Meaning::Megabytes => {
                let megabytes = text.parse().ok().filter(|megabytes| *megabytes > 0);
                self.megabytes = Some(megabytes.ok_or("Invalid memory limit")?);
            }
            Meaning::KeepsAll => self.keeps_all = true,
            Meaning::Connections => {
                let wrong = "Maximum connections must be greater than 0";
                self.put("maxclients", &positive(&text, wrong)?.to_string());
            }
            Meaning::Threads => {
                let wrong = "Number of threads must be greater than 0";
                self.put("io-threads", &positive(&text, wrong)?.to_string());
            }
            Meaning::Backlog => {
                let wrong = "Listen backlog must be greater than 0";
                self.put("tcp-backlog", &positive(&text, wrong)?.to_string());
            }
            Meaning::ItemSize => self.item_size = Some(item_size(&text)?),
            Meaning::Users => self.users = Some(read_users(&text)?),
            Meaning::Line(name, value) => self.put(name, value),
            Meaning::Value(name) => self.put_bytes(name, value),
            Meaning::Protocol => match &text[..] {
                "ascii" | "auto" => {}
                "binary" => return Err("The binary protocol is not spoken: -B ascii".into()),
                _ => {
                    let known = "options are `auto', `ascii', and `binary'";
                    return Err(format!("Invalid value for binding protocol: {text} -- {known}"));
                }
            },
            Meaning::Datagrams if text == "0" => {}
            Meaning::Datagrams => self.ignore(option, "there is no UDP"),
            Meaning::Ignored(why) => self.ignore(option, why),
            Meaning::Refused(why) => return Err(format!("-{}: {why}", option.letter)),
            Meaning::Extended => extended::obey(self, &text)?,
        }
        Ok(())
    }

    fn ignore(&mut self, option: &'static Known, why: &'static str) {
        self.ignored.push(Ignored { name: option.shown, why });
    }

    fn put(&mut self, name: &str, value: &str) {
        self.put_bytes(name, value.as_bytes());
    }

    fn put_bytes(&mut self, name: &str, value: &[u8]) {
        self.lines.extend_from_slice(name.as_bytes());
        self.lines.push(b' ');
        self.lines.extend(inline::quoted(value));
        self.lines.push(b'\n');
    }

    /// Addresses, with commas between them, each perhaps with a port: of these there is one.
    fn addresses(&mut self, text: &str) -> Result<(), String> {
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (host, own_port) = split_port(part)?;
            if let Some(own) = own_port {
                if self.port.is_some_and(|port| port != own) {
                    return Err(format!("-l {part}: all addresses have the same port"));
                }
                self.port = Some(own);
            }
            self.addresses.push(host.to_owned());
        }
        Ok(())
    }

    /// All of it as directives. What an option says twice, its last says.
    fn lines(mut self) -> Result<Vec<u8>, String> {
        let own = std::mem::take(&mut self.lines);
        let megabytes = self.megabytes.unwrap_or(MEGABYTES);
        let item_size = self.item_size.unwrap_or(ITEM_SIZE);
        if item_size > (megabytes << 20) / 2 {
            return Err("Cannot set item size limit higher than 1/2 of memory max.".into());
        }
        for (name, value) in [
            ("port", "0".into()),
            ("save", String::new()),
            // What lies about is another server's.
            ("dbfilename", "memcached.rdb".into()),
            ("maxclients", CONNECTIONS.to_string()),
            ("tcp-backlog", BACKLOG.to_string()),
            ("tls-auth-clients", "no".into()),
            ("maxmemory", (megabytes << 20).to_string()),
            ("memcached-item-size-max", item_size.to_string()),
        ] {
            self.put(name, &value);
        }
        let policy = if self.keeps_all { "noeviction" } else { "allkeys-lru" };
        self.put("maxmemory-policy", policy);
        match self.socket.take() {
            Some(path) => {
                self.put_bytes("memcached-unixsocket", path.as_bytes());
                let mode = self.socket_mode.take().unwrap_or_else(|| SOCKET_MODE.into());
                self.put("memcached-unixsocketperm", &mode);
            }
            None => self.put("memcached-port", &self.port.unwrap_or(PORT).to_string()),
        }
        if !self.addresses.is_empty() {
            self.lines.extend_from_slice(b"bind");
            for address in std::mem::take(&mut self.addresses) {
                self.lines.push(b' ');
                self.lines.extend(inline::quoted(address.as_bytes()));
            }
            self.lines.push(b'\n');
        }
        if let Some(users) = self.users.take() {
            self.lines.extend_from_slice(users.as_bytes());
        }
        self.lines.extend(own);
        Ok(self.lines)
    }
}

fn port(text: &str, wrong: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("{wrong}: {text}"))
}

fn positive(text: &str, wrong: &str) -> Result<u32, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| wrong.into())
}

/// A number of bytes, perhaps with `k` or `m` behind it.
fn item_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let size = digits.parse().ok().and_then(|size: u64| size.checked_mul(unit));
    match size {
        Some(size) if ITEM_SIZES.contains(&size) => Ok(size),
        Some(size) if size < *ITEM_SIZES.start() => {
            Err("Item max size cannot be less than 1024 bytes.".into())
        }
        _ => Err("Cannot set item size limit higher than a gigabyte.".into()),
    }
}

/// `host`, `host:port`, `[v6]:port`, or an address of IPv6 alone.
fn split_port(text: &str) -> Result<(&str, Option<u16>), String> {
    let wrong = "Invalid port number";
    if let Some((host, behind)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        let port = behind.strip_prefix(':').map(|digits| port(digits, wrong)).transpose()?;
        return Ok((host, port));
    }
    match text.split_once(':') {
        Some((host, digits)) if !digits.contains(':') => Ok((host, Some(port(digits, wrong)?))),
        _ => Ok((text, None)),
    }
}

/// The lines `name:password` of a file, as users who may do all that memcached's clients can.
fn read_users(path: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(Path::new(path))
        .map_err(|error| format!("Failed to open auth file {path}: {error}"))?;
    users(&text).ok_or_else(|| format!("auth file {path}: a line is name:password"))
}

/// `None`: a line is none. Who has no line has no way in.
fn users(text: &str) -> Option<String> {
    let mut lines = String::from("user default off\n");
    for line in text.lines().filter(|line| !line.is_empty()) {
        let (name, password) = line.split_once(':')?;
        if name.is_empty() || line.contains(' ') {
            return None;
        }
        lines += &format!("user {name} on >{password} ~* &* +@all\n");
    }
    Some(lines)
}

#[cfg(test)]
#[path = "from_memcached_tests.rs"]
mod tests;
