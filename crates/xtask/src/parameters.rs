//! Parameters that are tuples, for `tidy`: what belongs together is a struct, with a name for each
//! part, and what does not is a parameter of its own.
//!
//! It looks at code as `Source` has it, so comments and strings do not mislead it. Closures may
//! take pairs apart, as iterators hand them on, and so may tests.

use crate::source::words;

/// The parameters as they are written, each with its line from 0.
pub fn tuples(code: &[String]) -> Vec<(usize, String)> {
    let opens_tests = |pair: &[String]| {
        pair[0].trim() == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    };
    let end = code.windows(2).position(opens_tests).unwrap_or(code.len());
    let text = code[..end].join("\n");
    let mut found = Vec::new();
    for at in words(&text, "fn") {
        let Some((start, list)) = list_behind(&text, at + "fn".len()) else { continue };
        for (offset, parameter) in split(list, ',') {
            if is_tuple(parameter) {
                let blank = parameter.len() - parameter.trim_start().len();
                let line = text[..start + offset + blank].matches('\n').count();
                let words: Vec<&str> = parameter.split_whitespace().collect();
                found.push((line, words.join(" ")));
            }
        }
    }
    found
}

/// The parameters of the function whose name begins here, and where they begin; `None` of a type
/// such as `fn(u8)`.
fn list_behind(text: &str, at: usize) -> Option<(usize, &str)> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let name = text[at..].trim_start();
    let rest = name.trim_start_matches(is_name);
    let generics = if rest.starts_with('<') { group_len(rest) } else { 0 };
    let list = &rest[generics..];
    if rest.len() == name.len() || !list.starts_with('(') {
        return None;
    }
    let inside = &list[1..group_len(list) - 1];
    Some((text.len() - list.len() + 1, inside))
}

/// The length of the group in brackets that begins here, with them.
fn group_len(text: &str) -> usize {
    let mut depth = 0;
    for (at, change) in depths(text) {
        depth += change;
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

/// Where brackets are, and whether they open or close.
fn depths(text: &str) -> impl Iterator<Item = (usize, i32)> + '_ {
    text.bytes().enumerate().filter_map(|(at, byte)| match byte {
        b'(' | b'[' | b'{' | b'<' => Some((at, 1)),
        // An arrow closes nothing.
        b'>' if at > 0 && matches!(text.as_bytes()[at - 1], b'-' | b'=') => None,
        b')' | b']' | b'}' | b'>' => Some((at, -1)),
        _ => None,
    })
}

/// The parts between separators that stand in no brackets, each with its offset.
fn split(text: &str, separator: char) -> Vec<(usize, &str)> {
    let (mut parts, mut start, mut at) = (Vec::new(), 0, 0);
    while let Some(c) = text[at..].chars().next() {
        let is_bracket = matches!(c, '(' | '[' | '{' | '<');
        if c == separator {
            parts.push((start, &text[start..at]));
            start = at + 1;
        }
        at += if is_bracket { group_len(&text[at..]) } else { c.len_utf8() };
    }
    parts.push((start, &text[start..]));
    parts.retain(|(_, part)| !part.trim().is_empty());
    parts
}

/// Whether the pattern of a parameter is a tuple, or its type, be it borrowed or optional.
fn is_tuple(parameter: &str) -> bool {
    // Of a path only the first part is looked at, which is enough.
    split(parameter, ':').iter().take(2).any(|(_, side)| {
        let mut side = side.trim();
        while let Some(rest) = without_prefix(side) {
            side = rest.trim_start();
        }
        side.starts_with('(') && split(&side[1..group_len(side) - 1], ',').len() > 1
    })
}

fn without_prefix(text: &str) -> Option<&str> {
    let lifetime = |text| Some(text).filter(|text: &&str| text.starts_with('\''));
    let word =
        ["&", "mut ", "ref ", "Option<"].into_iter().find_map(|word| text.strip_prefix(word));
    word.or_else(|| lifetime(text).and_then(|text| text.split_once(' ')).map(|(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    fn check(text: &str, wanted: &[(usize, &str)]) {
        let found = tuples(&Source::parse(text).code);
        let found: Vec<_> = found.iter().map(|(line, what)| (*line, what.as_str())).collect();
        assert_eq!(found, wanted, "{text}");
    }

    #[test]
    fn tuples_are_found() {
        check("fn f((a, b): (u8, u8)) {}", &[(0, "(a, b): (u8, u8)")]);
        check("pub fn f<T: Into<u8>>(\n    a: u8,\n    b: (T, u8),\n) {}", &[(2, "b: (T, u8)")]);
        check("fn f(a: &'a mut (u8, u8)) {}", &[(0, "a: &'a mut (u8, u8)")]);
        check("fn f(&self, a: Option<(u8, u8)>) {}", &[(0, "a: Option<(u8, u8)>")]);
        check("fn f((a, b): &Pair, mut c: u8) {}", &[(0, "(a, b): &Pair")]);
        let two = "fn f(a: (u8, u8)) -> u8 { 1 }\nfn g(_: (u8, u8)) {}";
        check(two, &[(0, "a: (u8, u8)"), (1, "_: (u8, u8)")]);
    }

    #[test]
    fn others_are_none() {
        check("fn f(a: &[(u8, u8)], b: Vec<(u8, u8)>, c: &(impl Run + ?Sized)) {}", &[]);
        check("fn f(a: impl Fn((u8, u8)) -> u8, b: fn(u8, (u8, u8)), c: ()) {}", &[]);
        check("fn f(a: u8) -> (u8, u8) { all.map(|(a, b): (u8, u8)| a) }", &[]);
        check("fn f(Index(a): Index, b: kvasir::Pair) {} // fn g(a: (u8, u8))", &[]);
        check("#[cfg(test)]\nmod tests {\n    fn f(a: (u8, u8)) {}\n}", &[]);
        check("#[cfg(test)]\nmod tests;\nfn f(a: (u8, u8)) {}", &[(2, "a: (u8, u8)")]);
    }
}
