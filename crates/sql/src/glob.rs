//! Redis's glob patterns, as the server reads a table's LOCATION: which keys are of it.
//!
//! A program of its own, this shares no code with the server; `writing.rs` asks both of the same
//! patterns. What odd ones mean is by Redis's `stringmatchlen`: a set that is not closed ends with
//! the pattern, and the empty text is matched by the empty pattern alone.

/// Whether the whole of a text matches.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    if text.is_empty() {
        return pattern.is_empty();
    }
    let (mut tokens, mut rest) = (pattern, text);
    // What followed the last star, and the text that it has not taken.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', after @ ..] = tokens {
            tokens = after;
            star = Some((after, rest));
            continue;
        }
        match (rest.split_first(), tokens.is_empty()) {
            (None, is_at_end) => return is_at_end,
            (Some((&byte, text_after)), _) => {
                if let Some(after) = match_one(tokens, byte) {
                    (tokens, rest) = (after, text_after);
                    continue;
                }
            }
        }
        // The star takes a byte more.
        let Some((after_star, [_, untaken @ ..])) = star else { return false };
        (tokens, rest) = (after_star, untaken);
        star = Some((after_star, untaken));
    }
}

/// The pattern behind its first token, if that is this byte; no star, which takes many.
fn match_one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [] => None,
        [b'?', after @ ..] => Some(after),
        [b'[', after @ ..] => match_set(after, byte),
        [b'\\', escaped, after @ ..] => (*escaped == byte).then_some(after),
        [token, after @ ..] => (*token == byte).then_some(after),
    }
}

/// The pattern behind the set whose bracket has been read, if this byte is in it.
fn match_set(pattern: &[u8], byte: u8) -> Option<&[u8]> {
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
            [one, b'-', other, after @ ..] => {
                // As signed numbers, and in any order.
                let (one, other) = (*one as i8, *other as i8);
                is_member |= (one.min(other)..=one.max(other)).contains(&(byte as i8));
                after
            }
            [member, after @ ..] => {
                is_member |= *member == byte;
                after
            }
        };
    };
    (is_member != is_negated).then_some(after)
}
