//! The option table as text: the sample file, docs/config.md, a configuration in redis.conf
//! syntax.
//!
//! /kvasir.conf and docs/config.md are committed, as is what `packaging` prints; a test says when
//! they are no longer what is printed here.

use kvasir_resp::inline;

use crate::kind::Kind;
use crate::reasons::why;
use crate::row::{Change, Group, Otherwise, Place, Row};
use crate::unsupported::UNSUPPORTED;
use crate::{Config, table};

/// A configuration file with every option at its default, explained.
pub fn sample_file() -> String {
    let mut out = String::from(
        "# Configuration of Kvasir, in the syntax of redis.conf. Every option stands here with its\n\
         # default; printed by `kvasir-server --print-config`.\n\
         #\n\
         # Units of memory: 1k is 1000 bytes, 1kb is 1024; likewise m, mb, g, gb.\n",
    );
    for &group in Group::ALL {
        let title = group.title();
        out += &format!("\n{:#<80}\n# {title}\n{:#<80}\n", "", "");
        for row in rows(group).filter(|row| !row.is_hidden) {
            out += "\n";
            for line in row.doc.lines().chain(notes(row).iter().map(String::as_str)) {
                out += &format!("# {line}\n");
            }
            out += &format!("{} {}\n", row.name, default_directive(row));
        }
    }
    out
}

/// docs/config.md.
pub fn reference() -> String {
    let mut out = String::from(
        "# Options\n\n\
         Printed from the option table in `crates/config/src/table.rs`.\n\n\
         An option is set in a configuration file (`name value`), on the command line\n\
         (`--name value`) and, where the page says so, by `CONFIG SET name value`. What\n\
         other servers know beyond that stands at the end.\n\n",
    );
    out += &contents();
    for &group in Group::ALL {
        out += &format!("\n## {}\n", group.title());
        for row in rows(group) {
            out += &format!("\n### {}\n\n{}\n\n", row.name, row.doc);
            out += &format!("- Values: {}\n", values(row.kind));
            out += &format!("- Default: `{}`\n", default_directive(row));
            out += match row.change {
                Change::AtRunTime => "- May be changed by CONFIG SET\n",
                Change::Protected => {
                    "- May be changed by CONFIG SET, where `enable-protected-configs` allows it\n"
                }
                Change::AtStart => "- Set at start only\n",
            };
            if !row.aliases.is_empty() {
                out += &format!("- Also known as: `{}`\n", row.aliases.join("`, `"));
            }
            if matches!(row.place, Place::Kept { .. }) {
                out += "- Without effect\n";
            }
            if row.is_hidden {
                out += "- CONFIG GET shows it by its exact name only\n";
            }
        }
    }
    out + &unsupported_section()
}

/// Every chapter with its options, each a link to where it is explained.
fn contents() -> String {
    let chapter = |&group: &Group| {
        let options: Vec<String> =
            rows(group).map(|row| format!("[{name}](#{name})", name = row.name)).collect();
        format!("- **{}**: {}\n", group.title(), options.join(", "))
    };
    Group::ALL.iter().map(chapter).collect()
}

fn unsupported_section() -> String {
    let mut out = String::from(
        "\n## Known, and without effect\n\n\
         Options of redis.conf 7.0 and valkey.conf 9.1 that Kvasir does not obey. A file that\n\
         has them is accepted, and the log names each with its reason. Those marked `refused`\n\
         stop the start if they ask for something, since somebody relies on it. CONFIG GET\n\
         shows none of them, and CONFIG SET refuses them.\n\n\
         | Option | Why |\n|---|---|\n",
    );
    for entry in UNSUPPORTED {
        let refused = if entry.otherwise == Otherwise::Refused { "; `refused`" } else { "" };
        out += &format!("| `{}` | {}{refused} |\n", entry.name, why(entry.name));
    }
    out
}

/// Every option of `config` that has a value of its own, one directive a line; reading it gives
/// `config`.
pub fn directives(config: &Config) -> Vec<u8> {
    let mut out = Vec::new();
    for row in table::all() {
        out.extend(row.name.as_bytes());
        for word in row.value(config).to_directive() {
            out.push(b' ');
            out.extend(inline::quote(&word));
        }
        out.push(b'\n');
    }
    out
}

fn rows(group: Group) -> impl Iterator<Item = &'static Row> {
    table::all().filter(move |row| row.group == group)
}

fn default_directive(row: &Row) -> &'static str {
    if row.default.is_empty() { r#""""# } else { row.default }
}

/// What the sample file adds to an option's sentences.
fn notes(row: &Row) -> Vec<String> {
    let mut notes = Vec::new();
    if !matches!(
        row.kind,
        Kind::Bool | Kind::Text | Kind::Secret | Kind::Words | Kind::Master | Kind::SavePoints
    ) {
        notes.push(format!("Values: {}.", values(row.kind).replace('`', "")));
    }
    match row.change {
        Change::AtRunTime => notes.push("May be changed by CONFIG SET.".into()),
        Change::Protected => notes
            .push("May be changed by CONFIG SET, where enable-protected-configs allows it.".into()),
        Change::AtStart => {}
    }
    notes
}

fn values(kind: Kind) -> String {
    match kind {
        Kind::Bool => "`yes`, `no`".into(),
        Kind::Integer { min, max } | Kind::Clamped { min, max } => integers(min, max),
        Kind::IntegerOrAuto { min, max } => format!("`auto`, {}", integers(min, max)),
        Kind::Memory { min, max: i64::MAX } => format!("bytes, at least {min}"),
        Kind::Memory { min, max } => format!("bytes, {min} to {max}"),
        Kind::Octal { max } => format!("octal, 0 to {max:o}"),
        Kind::Text | Kind::Secret => "text".into(),
        Kind::Address => "an IP address, or nothing".into(),
        Kind::Choice(words) => format!("`{}`", words.join("`, `")),
        Kind::Words => "words".into(),
        Kind::Master => "host and port, or `no one`".into(),
        Kind::SavePoints => "pairs of seconds and changes".into(),
        Kind::Events => "letters of `Ag$lshzxeKEtmdn`".into(),
        Kind::MemoryOrPercent => "bytes, or a percentage".into(),
        Kind::MemoryOrAuto => "`auto`, or bytes".into(),
        Kind::OutputLimits => "classes with three numbers each".into(),
        Kind::Percentiles => "numbers from 0 to 100".into(),
    }
}

fn integers(min: i64, max: i64) -> String {
    match max {
        i64::MAX => format!("an integer, at least {min}"),
        max => format!("{min} to {max}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Sources;
    use crate::load::load;
    use crate::packaging;
    use std::path::Path;

    /// Run with KVASIR_UPDATE=1 in the environment, writes the files instead.
    #[test]
    fn committed_files_are_what_is_printed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let ours = [("kvasir.conf", sample_file()), ("docs/config.md", reference())];
        for (name, printed) in ours.into_iter().chain(packaging::files()) {
            let path = root.join(name);
            if std::env::var_os("KVASIR_UPDATE").is_some() {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, &printed).unwrap();
            }
            let committed = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(
                committed == printed,
                "{name} differs from the option table; run cargo xtask printed"
            );
        }
    }

    #[test]
    fn sample_file_is_the_default_configuration() {
        let sources = Sources { options: sample_file().into_bytes(), ..Sources::default() };
        let loaded = load(&sources).unwrap();
        assert_eq!(loaded.config, Config::of_table());
        assert_eq!(loaded.ignored, []);
    }
}
