//! The first line of a script or a library: `#!lua name=mylib flags=no-writes,allow-stale`.
//!
//! The line stays in the source as an empty one, so that line numbers are those of the text that
//! the client sent.

use kvasir_resp::args::Args;
use kvasir_resp::inline::split_words;

use crate::failure::Failure;

/// How a script or a function may be run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Given by a shebang line, even if it names no flag. Scripts without one may do more.
    pub given: bool,
    pub no_writes: bool,
    pub allow_oom: bool,
    pub allow_stale: bool,
    pub no_cluster: bool,
    pub allow_cross_slot_keys: bool,
}

impl Flags {
    /// By their names in Redis, in the order in which FUNCTION LIST has them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let flags = [
            (self.no_writes, "no-writes"),
            (self.allow_oom, "allow-oom"),
            (self.allow_stale, "allow-stale"),
            (self.no_cluster, "no-cluster"),
            (self.allow_cross_slot_keys, "allow-cross-slot-keys"),
        ];
        flags.into_iter().filter_map(|(is_set, name)| is_set.then_some(name))
    }

    /// Sets a flag by its name; false if there is none of that name.
    pub(crate) fn set(&mut self, name: &[u8]) -> bool {
        let flag = match name {
            b"no-writes" => &mut self.no_writes,
            b"allow-oom" => &mut self.allow_oom,
            b"allow-stale" => &mut self.allow_stale,
            b"no-cluster" => &mut self.no_cluster,
            b"allow-cross-slot-keys" => &mut self.allow_cross_slot_keys,
            _ => return false,
        };
        *flag = true;
        true
    }
}

/// What a library's first line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryMetadata {
    /// The engine's name as it was written; `lua` in any case.
    pub engine: Vec<u8>,
    pub name: Vec<u8>,
}

/// The flags of a script. A script without a shebang line has none.
pub fn parse_script(body: &[u8]) -> Result<Flags, Failure> {
    if !body.starts_with(b"#!") {
        return Ok(Flags::default());
    }
    let line = first_line(body).ok_or_else(|| Failure::new("ERR Invalid script shebang"))?;
    let mut flags = Flags { given: true, ..Flags::default() };
    with_words(line, |words| {
        let words = words.filter(|words| !words.is_empty());
        let words = words.ok_or_else(|| Failure::new("ERR Invalid engine in script shebang"))?;
        if &words[0] != b"#!lua" {
            return Err(quoting("ERR Unexpected engine in script shebang: ", &words[0], ""));
        }
        for word in words.from(1) {
            let Some(names) = word.strip_prefix(b"flags=") else {
                return Err(quoting("ERR Unknown lua shebang option: ", word, ""));
            };
            let names =
                if names.is_empty() { None } else { Some(names.split(|byte| *byte == b',')) };
            for name in names.into_iter().flatten() {
                if !flags.set(name) {
                    return Err(quoting("ERR Unexpected flag in script shebang: ", name, ""));
                }
            }
        }
        Ok(())
    })?;
    Ok(flags)
}

/// The name of a library. Its first line must be a shebang line.
pub fn parse_library(code: &[u8]) -> Result<LibraryMetadata, Failure> {
    if !code.starts_with(b"#!") {
        return Err(Failure::new("ERR Missing library metadata"));
    }
    let invalid = || Failure::new("ERR Invalid library metadata");
    let line = first_line(code).ok_or_else(invalid)?;
    let mut name: Option<Vec<u8>> = None;
    let engine = with_words(line, |words| {
        let words = words.filter(|words| !words.is_empty()).ok_or_else(invalid)?;
        for word in words.from(1) {
            match word.split_at_checked(b"name=".len()) {
                Some((key, _)) if key.eq_ignore_ascii_case(b"name=") && name.is_some() => {
                    return Err(Failure::new(
                        "ERR Invalid metadata value, name argument was given multiple times",
                    ));
                }
                Some((key, value)) if key.eq_ignore_ascii_case(b"name=") => {
                    name = Some(value.to_vec());
                }
                _ => return Err(quoting("ERR Invalid metadata value given: ", word, "")),
            }
        }
        Ok(words[0][2..].to_vec())
    })?;
    let name = name.ok_or_else(|| Failure::new("ERR Library name was not given"))?;
    if !is_name(&name) {
        return Err(Failure::new(concat!(
            "ERR Library names can only contain letters, numbers, or underscores(_)",
            " and must be at least one character long"
        )));
    }
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(quoting("ERR Engine '", &engine, "' not found"));
    }
    Ok(LibraryMetadata { engine, name })
}

/// The text without its shebang line, whose end remains.
pub(crate) fn without(text: &[u8]) -> &[u8] {
    if !text.starts_with(b"#!") {
        return text;
    }
    first_line(text).map_or(b"", |line| &text[line.len()..])
}

/// Whether libraries and functions may be called so.
pub(crate) fn is_name(name: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    !name.is_empty() && name.iter().all(is_part)
}

fn first_line(text: &[u8]) -> Option<&[u8]> {
    memchr::memchr(b'\n', text).map(|end| &text[..end])
}

/// Calls `read` with the words of a line; `None` if they are not quoted well.
fn with_words<T>(
    line: &[u8],
    read: impl FnOnce(Option<Args<'_>>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (mut spans, mut words) = (Vec::new(), Vec::new());
    let split = split_words(line, &mut spans, &mut words);
    read(split.ok().map(|()| Args::new(&words, &spans)))
}

fn quoting(before: &str, what: &[u8], after: &str) -> Failure {
    Failure::new([before.as_bytes(), what, after.as_bytes()].concat())
}
