//! The ACL file: a user a line, as ACL LIST shows it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::rule::{RuleError, join_selectors};
use crate::user::{Grammar, User};

/// What became of a file: its users, or every line that is wrong.
pub type Parsed = Result<Vec<User>, Vec<String>>;

/// The users of a file's text. `path` is for the errors, which are Redis's.
pub fn parse(
    text: &[u8],
    path: &Path,
    grammar: Grammar<'_>,
    mut next_id: impl FnMut() -> u64,
) -> Parsed {
    let mut users: Vec<User> = Vec::new();
    let mut errors = Vec::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let (line, at) = (line.trim_ascii(), format!("{}:{}", path.display(), index + 1));
        // Only spaces separate: what else is white is trimmed, and nothing is quoted.
        let mut words = line.split(|byte| *byte == b' ').map(<[u8]>::trim_ascii);
        let name = match (words.next(), words.next()) {
            (Some(b""), None) => continue,
            (Some(b"user"), Some(name)) => name,
            _ => {
                errors.push(format!(
                    "{at} should start with user keyword followed by the username. "
                ));
                continue;
            }
        };
        if users.iter().any(|user| *user.name == *name) {
            let name = String::from_utf8_lossy(name);
            errors.push(format!("WARNING: Duplicate user '{name}' found on line {}. ", index + 1));
            continue;
        }
        let mut user = User::new(name, next_id(), grammar);
        errors.extend(apply(&mut user, words, &at, grammar));
        users.push(user);
    }
    if errors.is_empty() { Ok(users) } else { Err(errors) }
}

/// What is wrong with the rules of a line. Unknown commands are all named, of the other mistakes
/// the first.
fn apply<'a>(
    user: &mut User,
    words: impl Iterator<Item = &'a [u8]>,
    at: &str,
    grammar: Grammar<'_>,
) -> Vec<String> {
    let Ok(rules) = join_selectors(words) else {
        return vec![format!("{at}: Unmatched parenthesis in selector definition. ")];
    };
    let mut errors = Vec::new();
    let mut has_mistake = false;
    for rule in rules {
        match user.apply(&rule, grammar) {
            Ok(()) => {}
            Err(error @ RuleError::UnknownCommand) => {
                let rule = String::from_utf8_lossy(&rule);
                errors.push(format!("{at}: Error in applying operation '{rule}': {error}. "));
            }
            Err(_) if has_mistake => {}
            Err(error) => {
                has_mistake = true;
                errors.push(format!("{at}: {error}. "));
            }
        }
    }
    errors
}

/// Replaces the file: whoever reads it, also after a crash, finds the old users or the new ones.
pub fn save(path: &Path, text: &[u8]) -> io::Result<()> {
    let temporary = temporary_path(path);
    let written = write(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // It may not even have come to be.
        let _ = fs::remove_file(&temporary);
    }
    written?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text)?;
    file.sync_all()
}

fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".tmp-{}", std::process::id()));
    name.into()
}
