//! A Rust file as the house rules see it: code apart from comments and strings.
//!
//! A small lexer, not a parser: it knows comments, strings and characters. Code and comments keep
//! their places, so that a line and a column of one are a line and a column of the file.

/// One file, cut in three layers of the same shape.
pub struct Source {
    /// The file as it is.
    pub lines: Vec<String>,
    /// The same lines, with comments and the insides of strings blanked.
    pub code: Vec<String>,
    /// The same lines, with everything but comments blanked.
    pub comments: Vec<String>,
}

impl Source {
    pub fn parse(text: &str) -> Self {
        let (code, comments) = Lexer::split(text);
        let lines = |text: &str| text.lines().map(str::to_string).collect::<Vec<_>>();
        Self { lines: lines(text), code: lines(&code), comments: lines(&comments) }
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
        assert!(source.code[0].ends_with("b' ' }"), "{}", source.code[0]);
    }
}
