//! The words of a user's rules: what may be wrong with one, and how words make up rules.

use std::fmt;

/// Why a rule is refused; displayed, it is Redis's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleError {
    UnknownCommand,
    Syntax,
    AfterAllKeys,
    AfterAllChannels,
    BadHash,
    NoSuchPassword,
    FirstArgOfSubcommand,
    DatabaseOutOfRange,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RuleError::UnknownCommand => "Unknown command or category name in ACL",
            RuleError::Syntax => "Syntax error",
            RuleError::AfterAllKeys => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and \
                 does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            RuleError::AfterAllChannels => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and \
                 does not have any effect. Try 'resetchannels' to start with an empty list of \
                 channels"
            }
            RuleError::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase \
                 hexadecimal characters"
            }
            RuleError::NoSuchPassword => {
                "The password you are trying to remove from the user does not exist"
            }
            RuleError::FirstArgOfSubcommand => {
                "Allowing first-arg of a subcommand is not supported"
            }
            RuleError::DatabaseOutOfRange => "The provided database ID is out of range",
        })
    }
}

/// White space or a zero byte: what would not come back as one word when it is written to a file.
pub fn has_spaces(word: &[u8]) -> bool {
    // The vertical tab is white space for C, not for Rust.
    word.iter().any(|byte| byte.is_ascii_whitespace() || matches!(byte, 0 | 0x0b))
}

/// A parenthesis that nothing closes: the word that has it.
#[derive(PartialEq, Eq, Debug)]
pub struct Unmatched(pub Vec<u8>);

/// Puts selectors that came in several words together: `(+get`, `~x)` is one rule.
pub fn join_selectors<'a>(
    words: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<Vec<u8>>, Unmatched> {
    let mut rules = Vec::new();
    let mut open: Option<(Vec<u8>, &[u8])> = None;
    for word in words {
        let closes = word.ends_with(b")");
        match &mut open {
            None if word.starts_with(b"(") && !closes => open = Some((word.to_vec(), word)),
            None => rules.push(word.to_vec()),
            Some((rule, _)) => {
                rule.push(b' ');
                rule.extend_from_slice(word);
                if closes {
                    rules.extend(open.take().map(|(rule, _)| rule));
                }
            }
        }
    }
    match open {
        Some((_, first)) => Err(Unmatched(first.to_vec())),
        None => Ok(rules),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &str, expect: Result<&[&str], &str>) {
        let joined = join_selectors(words.split(' ').map(str::as_bytes));
        let expect = match expect {
            Ok(rules) => Ok(rules.iter().map(|rule| rule.as_bytes().to_vec()).collect()),
            Err(word) => Err(Unmatched(word.as_bytes().to_vec())),
        };
        assert_eq!(joined, expect, "{words}");
    }

    #[test]
    fn selectors_are_joined() {
        check("on (+get ~x) +set", Ok(&["on", "(+get ~x)", "+set"]));
        check("( +get ) ()", Ok(&["( +get )", "()"]));
        check("(a) b)", Ok(&["(a)", "b)"]));
        check("on (+get (x", Err("(+get"));
        check("(", Err("("));
    }
}
