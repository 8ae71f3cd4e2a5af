//! A Rust file as the house rules see it: code apart from comments and strings.
//!
//! A small lexer, not a parser: it knows comments, strings and characters, and finds functions
//! and test modules by matching braces. Code and comments keep their places, so that a line and a
//! column of one are a line and a column of the file.

use std::ops::Range;

/// One file, cut in three layers of the same shape.
pub struct Source {
    /// The file as it is.
    pub lines: Vec<String>,
    /// The same lines, with comments and the insides of strings blanked.
    pub code: Vec<String>,
    /// The same lines, with everything but comments blanked.
    pub comments: Vec<String>,
    /// Lines of items that exist only for tests.
    tests: Vec<Range<usize>>,
}

/// A function and the lines it takes, from `fn` to its closing brace.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    pub lines: Range<usize>,
}

impl Source {
    pub fn parse(text: &str) -> Self {
        let (code, comments) = Lexer::split(text);
        let lines = |text: &str| text.lines().map(str::to_string).collect::<Vec<_>>();
        let tests = test_items(&code);
        Self { lines: lines(text), code: lines(&code), comments: lines(&comments), tests }
    }

    /// Whether the line (from 0) belongs to an item under `#[cfg(test)]`.
    pub fn is_test(&self, line: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&line))
    }

    /// Every function with a body.
    pub fn functions(&self) -> Vec<Function> {
        let code = self.code.join("\n");
        let mut found = Vec::new();
        for at in words(&code, "fn") {
            let name: String =
                code[at + 2..].trim_start().chars().take_while(|c| is_word(*c)).collect();
            if let (false, Some(body)) = (name.is_empty(), body(&code, at)) {
                found.push(Function { name, lines: line_of(&code, at)..line_of(&code, body.end) });
            }
        }
        found
    }
}

/// Where a word stands in a text, not as a part of a longer one.
pub fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = text[..*at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count()
}

fn test_items(code: &str) -> Vec<Range<usize>> {
    let starts = ["#[cfg(test)]", "#[cfg(all(test,"].map(|start| code.match_indices(start));
    let item = |at: usize| {
        let from = at + code[at..].find(']')?;
        let body = body(code, from + 1)?;
        Some(line_of(code, at)..line_of(code, body.end) + 1)
    };
    starts.into_iter().flatten().filter_map(|(at, _)| item(at)).collect()
}

/// The bytes from the first brace outside of parentheses to its partner; none if the item ends
/// with a semicolon first.
fn body(code: &str, from: usize) -> Option<Range<usize>> {
    let mut brackets = 0_i32;
    let mut braces = 0_i32;
    let mut start = None;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => brackets += 1,
            b')' | b']' => brackets -= 1,
            b';' if brackets == 0 && start.is_none() => return None,
            b'{' if brackets == 0 || start.is_some() => {
                braces += 1;
                start = start.or(Some(at));
            }
            b'}' if start.is_some() => {
                braces -= 1;
                if braces == 0 {
                    return start.map(|start| start..at);
                }
            }
            _ => {}
        }
    }
    None
}

/// What the lexer is inside of.
enum Inside {
    Code,
    LineComment,
    BlockComment {
        depth: u32,
    },
    /// `hashes` is `None` in a string with escapes.
    Text {
        hashes: Option<usize>,
    },
}

struct Lexer {
    rest: Vec<char>,
    at: usize,
    code: String,
    comments: String,
}

impl Lexer {
    fn split(text: &str) -> (String, String) {
        let mut lexer = Self {
            rest: text.chars().collect(),
            at: 0,
            code: String::new(),
            comments: String::new(),
        };
        let mut inside = Inside::Code;
        while lexer.at < lexer.rest.len() {
            inside = match inside {
                Inside::Code => lexer.code(),
                Inside::LineComment => lexer.line_comment(),
                Inside::BlockComment { depth } => lexer.block_comment(depth),
                Inside::Text { hashes } => lexer.text(hashes),
            };
        }
        (lexer.code, lexer.comments)
    }

    fn code(&mut self) -> Inside {
        if self.starts_with("//") {
            return Inside::LineComment;
        }
        if self.starts_with("/*") {
            self.comment(2);
            return Inside::BlockComment { depth: 1 };
        }
        if let Some((prefix, hashes)) = self.raw_string() {
            self.keep(prefix);
            return Inside::Text { hashes: Some(hashes) };
        }
        if self.starts_with("\"") {
            self.keep(1);
            return Inside::Text { hashes: None };
        }
        if let Some(length) = self.character() {
            self.keep(1);
            self.blank(length - 2);
        }
        self.keep(1);
        Inside::Code
    }

    fn line_comment(&mut self) -> Inside {
        if self.starts_with("\n") {
            self.keep(1);
            return Inside::Code;
        }
        self.comment(1);
        Inside::LineComment
    }

    fn block_comment(&mut self, depth: u32) -> Inside {
        if self.starts_with("/*") {
            self.comment(2);
            return Inside::BlockComment { depth: depth + 1 };
        }
        if !self.starts_with("*/") {
            self.comment(1);
            return Inside::BlockComment { depth };
        }
        self.comment(2);
        if depth == 1 { Inside::Code } else { Inside::BlockComment { depth: depth - 1 } }
    }

    fn text(&mut self, hashes: Option<usize>) -> Inside {
        let end = format!("\"{}", "#".repeat(hashes.unwrap_or(0)));
        if self.starts_with(&end) {
            self.keep(end.len());
            return Inside::Code;
        }
        let escaped = hashes.is_none() && self.starts_with("\\");
        self.blank(if escaped { 2 } else { 1 });
        Inside::Text { hashes }
    }

    /// The length of `r#"`, `br"` and the like that start here, and their number of hashes.
    fn raw_string(&self) -> Option<(usize, usize)> {
        if self.at > 0 && is_word(self.rest[self.at - 1]) {
            return None;
        }
        let start = ["r", "br", "cr"].into_iter().find(|start| {
            self.starts_with(&format!("{start}\"")) || self.starts_with(&format!("{start}#"))
        })?;
        let after = &self.rest[self.at + start.len()..];
        let hashes = after.iter().take_while(|c| **c == '#').count();
        (after.get(hashes) == Some(&'"')).then_some((start.len() + hashes + 1, hashes))
    }

    /// The length of a character literal that starts here; a lifetime is none.
    fn character(&self) -> Option<usize> {
        let literal = &self.rest[self.at..];
        if literal.first() != Some(&'\'') {
            return None;
        }
        match literal.get(1)? {
            '\\' => literal.iter().skip(3).position(|c| *c == '\'').map(|end| end + 4),
            _ => (literal.get(2) == Some(&'\'')).then_some(3),
        }
    }

    fn starts_with(&self, text: &str) -> bool {
        let mut rest = self.rest[self.at..].iter();
        text.chars().all(|c| rest.next() == Some(&c))
    }

    fn keep(&mut self, count: usize) {
        self.advance(count, |c| (c, ' '));
    }

    fn comment(&mut self, count: usize) {
        self.advance(count, |c| (' ', c));
    }

    fn blank(&mut self, count: usize) {
        self.advance(count, |_| (' ', ' '));
    }

    fn advance(&mut self, count: usize, layers: impl Fn(char) -> (char, char)) {
        let end = (self.at + count).min(self.rest.len());
        for c in &self.rest[self.at..end] {
            let (code, comment) = if *c == '\n' { ('\n', '\n') } else { layers(*c) };
            self.code.push(code);
            self.comments.push(comment);
        }
        self.at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_leave_the_code() {
        let source =
            Source::parse("let a = \"un\\\"safe\"; // todo\nlet b = r#\"x\"y\"#; /* é */ c");
        assert_eq!(source.code[0], "let a = \"        \";        ");
        assert_eq!(source.comments[0].trim(), "// todo");
        assert_eq!(source.code[1], "let b = r#\"   \"#;         c");
    }

    #[test]
    fn characters_are_not_lifetimes() {
        let source = Source::parse("fn f<'a>(x: &'a str) { '\"'; '\\''; '\\u{7f}'; b'{' }");
        assert_eq!(source.functions()[0].lines, 0..0);
        assert!(source.code[0].ends_with("b' ' }"), "{}", source.code[0]);
    }

    #[test]
    fn functions_end_at_their_brace() {
        let source = Source::parse("trait T { fn a(x: [u8; 2]); }\nfn b() {\n if x {\n }\n}\n");
        assert_eq!(source.functions(), [Function { name: "b".to_string(), lines: 1..4 }]);
    }

    #[test]
    fn test_modules_are_known() {
        let source =
            Source::parse("fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() {}\n}\nfn c() {}");
        let tests: Vec<bool> = (0..6).map(|line| source.is_test(line)).collect();
        assert_eq!(tests, [false, true, true, true, true, false]);
    }
}
