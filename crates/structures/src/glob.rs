//! Redis's glob patterns, as KEYS, SCAN MATCH, PSUBSCRIBE, CONFIG GET and ACL rules use them.
//!
//! | Pattern | Matches |
//! |---|---|
//! | `?` | any one byte |
//! | `*` | any bytes, also none |
//! | `[abc]`, `[a-z]`, `[^a]` | one byte of the set, of the range, not of the set |
//! | `\x` | the byte `x` itself |
//!
//! Every token but `*` takes exactly one byte, so when a token fails, only the last `*` seen has
//! to take one byte more; what an earlier one took is never worth another try. The time is at most
//! pattern size times text size, for `a*a*a*a*b` too (CVE-2022-36021).
//!
//! Odd patterns mean what they mean in Redis, by its `stringmatchlen`:
//! - a set that is not closed ends with the pattern; `[` alone matches nothing, `[^` any byte;
//! - `[]` is the empty set, `[^]` any byte; `]` cannot be a member, except after `\` or in a range;
//! - a range may be written backwards; it compares bytes as signed numbers; its end may be `]` or
//!   `\`, so `[a-]` is not closed;
//! - `\` at the end of the pattern is a backslash;
//! - without case, a range's ends are lowered after they were put in order, and a member after `\`
//!   still is compared with case;
//! - the empty text is matched by the empty pattern alone, not by `*`: KEYS and SCAN know `*` as
//!   "all" before they come here.

/// Whether letters of the two cases are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    Sensitive,
    /// ASCII letters only.
    Ignored,
}

/// Whether the whole of `text` matches `pattern`.
pub fn matches(pattern: &[u8], text: &[u8], case: Case) -> bool {
    if text.is_empty() {
        return pattern.is_empty();
    }
    let (mut tokens, mut rest) = (pattern, text);
    // What followed the last `*`, and the text that it has not taken.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', after @ ..] = tokens {
            if after.is_empty() {
                return true;
            }
            tokens = after;
            star = Some((tokens, rest));
            continue;
        }
        let Some((&byte, text_after)) = rest.split_first() else {
            // A token is left that wants a byte, or none is.
            return tokens.is_empty();
        };
        if let Some(after) = match_one(tokens, byte, case) {
            (tokens, rest) = (after, text_after);
            continue;
        }
        let Some((after_star, [_, untaken @ ..])) = star else {
            return false;
        };
        (tokens, rest) = (after_star, untaken);
        star = Some((tokens, rest));
    }
}

/// The pattern after its first token, if that is not `*` and matches `byte`.
fn match_one(pattern: &[u8], byte: u8, case: Case) -> Option<&[u8]> {
    let (&token, after) = pattern.split_first()?;
    match token {
        b'?' => Some(after),
        b'[' => match_set(after, byte, case),
        b'\\' => match after.split_first() {
            Some((&escaped, after)) => are_same(escaped, byte, case).then_some(after),
            None => (byte == b'\\').then_some(after),
        },
        _ => are_same(token, byte, case).then_some(after),
    }
}

/// The pattern after the set whose `[` has been read, if `byte` is in the set.
fn match_set(pattern: &[u8], byte: u8, case: Case) -> Option<&[u8]> {
    let (is_negated, mut members) = match pattern {
        [b'^', members @ ..] => (true, members),
        members => (false, members),
    };
    let mut is_member = false;
    let after = loop {
        members = match members {
            [] => break members,
            [b']', after @ ..] => break after,
            [b'\\', escaped, after @ ..] => {
                is_member |= *escaped == byte;
                after
            }
            [low, b'-', high, after @ ..] => {
                is_member |= is_in_range(*low, *high, byte, case);
                after
            }
            [member, after @ ..] => {
                is_member |= are_same(*member, byte, case);
                after
            }
        };
    };
    (is_member != is_negated).then_some(after)
}

fn is_in_range(low: u8, high: u8, byte: u8, case: Case) -> bool {
    let (low, high) = if (low as i8) <= (high as i8) { (low, high) } else { (high, low) };
    let folded = |byte| fold(byte, case) as i8;
    (folded(low)..=folded(high)).contains(&folded(byte))
}

#[inline]
fn are_same(one: u8, other: u8, case: Case) -> bool {
    fold(one, case) == fold(other, case)
}

#[inline]
fn fold(byte: u8, case: Case) -> u8 {
    match case {
        Case::Sensitive => byte,
        Case::Ignored => byte.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(cases: &[(&[u8], &[u8], bool)], case: Case) {
        for &(pattern, text, expected) in cases {
            assert_eq!(
                matches(pattern, text, case),
                expected,
                "\"{}\" on \"{}\"",
                pattern.escape_ascii(),
                text.escape_ascii()
            );
        }
    }

    /// From SSCAN MATCH of Redis 7.0.15.
    #[test]
    fn as_redis_with_case() {
        check(WITH_CASE, Case::Sensitive);
    }

    /// From COMMAND LIST FILTERBY PATTERN of Redis 7.0.15.
    #[test]
    fn as_redis_without_case() {
        #[rustfmt::skip]
        let cases: &[(&[u8], &[u8], bool)] = &[
            (b"GET", b"get", true),
            (b"G[A-F]T", b"get", true),
            (b"g[Z-a]t", b"get", false),
            (b"g[\\E]t", b"get", false),
            (b"g[\\e]t", b"get", true),
            (b"g[E]t", b"get", true),
            (b"g[^E]t", b"get", false),
            (b"\\G\\E\\T", b"get", true),
            (b"g[A-z]t", b"get", true),
            (b"G*", b"get", true),
            (b"g[d-F]t", b"get", false),
            (b"g[F-d]t", b"get", false),
        ];
        check(cases, Case::Ignored);
    }

    /// CVE-2022-36021: exponential where every star is tried again.
    #[test]
    fn many_stars_take_pattern_times_text() {
        let text = b"a".repeat(20_000);
        assert!(!matches(&[b"a*".repeat(100), b"b".to_vec()].concat(), &text, Case::Sensitive));
    }

    /// The definition: a star tries every length.
    fn model(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', rest @ ..] => (0..=text.len()).any(|taken| model(rest, &text[taken..])),
            _ => text.split_first().is_some_and(|(&byte, text)| {
                match_one(pattern, byte, Case::Sensitive).is_some_and(|rest| model(rest, text))
            }),
        }
    }

    proptest! {
        #[test]
        fn only_the_last_star_matters(pattern in r"[ab*?\[\]^-]{0,10}", text in "[ab]{1,10}") {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matches(pattern, text, Case::Sensitive), model(pattern, text));
        }
    }

    #[rustfmt::skip]
    const WITH_CASE: &[(&[u8], &[u8], bool)] = &[
        (b"*", b"ab", true),
        (b"", b"", true),
        (b"**", b"", false),
        (b"?", b"", false),
        (b"", b"a", false),
        (b"a**", b"a", true),
        (b"a*?", b"a", false),
        (b"a*b*c", b"axxbxxc", true),
        (b"a*b*c", b"axxbxx", false),
        (b"*ab", b"aab", true),
        (b"*a?b*", b"xaaab", true),
        (b"h?llo", b"hello", true),
        (b"h?llo", b"hllo", false),
        (b"h*llo", b"heeeello", true),
        (b"h[ae]llo", b"hallo", true),
        (b"h[ae]llo", b"hillo", false),
        (b"h[^e]llo", b"hallo", true),
        (b"h[^e]llo", b"hello", false),
        (b"h[a-b]llo", b"hbllo", true),
        (b"h[b-a]llo", b"hallo", true),
        (b"h[a-b]llo", b"hcllo", false),
        (b"\\*", b"*", true),
        (b"\\*", b"a", false),
        (b"a\\", b"a\\", true),
        (b"a\\", b"a", false),
        (b"\\", b"\\", true),
        (b"\\\\", b"\\", true),
        (b"[", b"[", false),
        (b"[", b"a", false),
        (b"[^", b"a", true),
        (b"[^", b"^", true),
        (b"[]", b"]", false),
        (b"[]", b"a", false),
        (b"[^]", b"a", true),
        (b"[^]", b"]", true),
        (b"[]a]", b"a", false),
        (b"[]a]", b"]", false),
        (b"[abc", b"b", true),
        (b"[abc", b"d", false),
        (b"[^abc", b"d", true),
        (b"[a-", b"-", true),
        (b"[a-", b"a", true),
        (b"[a-", b"b", false),
        (b"[a-]", b"]", true),
        (b"[a-]", b"_", true),
        (b"[a-]b", b"b", true),
        (b"[a-c", b"b", true),
        (b"[-a]", b"-", true),
        (b"[\\]]", b"]", true),
        (b"[\\a-c]", b"b", false),
        (b"[\\a-c]", b"-", true),
        (b"[a-\\]]", b"_]", true),
        (b"[a-\\]]", b"b]", false),
        (b"[a\\", b"\\", true),
        (b"[\\", b"\\", true),
        (b"[a^]", b"^", true),
        (b"[^^]", b"^", false),
        (b"[*]", b"*", true),
        (b"[*]", b"a", false),
        (b"[?]", b"?", true),
        (b"*[", b"a", false),
        (b"*[^", b"ab", true),
        (b"[a-\xff]", b"b", false),
        (b"[a-\xff]", b"A", true),
        (b"[a-\xff]", b"\xff", true),
        (b"[\x80-\x90]", b"\x85", true),
        (b"\x00*", b"\x00a", true),
        (b"a\x00b", b"a\x00b", true),
        (b"A", b"a", false),
    ];
}
