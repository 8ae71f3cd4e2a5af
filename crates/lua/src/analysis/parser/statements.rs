//! Statements.

use super::library::Caller;
use super::{NotUnderstood, Parser, Prefix, Result, is_iterator};
use crate::analysis::calls::Kind;
use crate::analysis::lexer::Token;

impl Parser<'_> {
    pub(super) fn block(&mut self) -> Result<()> {
        self.nested(|parser| {
            loop {
                if parser.is_end_of_block() {
                    return Ok(());
                }
                if parser.accept("return")? {
                    return parser.return_values();
                }
                parser.statement()?;
                parser.accept(";")?;
            }
        })
    }

    pub(super) fn is_end_of_block(&self) -> bool {
        self.token == Token::End
            || ["end", "else", "elseif", "until"].iter().any(|word| self.is(word))
    }

    pub(super) fn return_values(&mut self) -> Result<()> {
        if !self.is_end_of_block() && !self.is(";") {
            let kinds = self.expressions()?;
            self.plain_all(kinds)?;
        }
        self.accept(";")?;
        if self.is_end_of_block() { Ok(()) } else { Err(NotUnderstood) }
    }

    pub(super) fn statement(&mut self) -> Result<()> {
        let Token::Word(word) = self.token else { return self.expression_statement() };
        match word {
            "if" => self.if_statement(),
            "while" => {
                self.advance()?;
                self.plain_expression()?;
                self.expect("do")?;
                self.block_to("end")
            }
            "do" => {
                self.advance()?;
                self.block_to("end")
            }
            "for" => self.for_statement(),
            "repeat" => {
                self.advance()?;
                self.block_to("until")?;
                self.plain_expression()
            }
            "function" => self.function_statement(),
            "local" => self.local_statement(),
            "break" => self.advance().map(|_| ()),
            _ => self.expression_statement(),
        }
    }

    pub(super) fn block_to(&mut self, end: &str) -> Result<()> {
        self.block()?;
        self.expect(end)
    }

    pub(super) fn if_statement(&mut self) -> Result<()> {
        loop {
            self.advance()?;
            self.plain_expression()?;
            self.expect("then")?;
            self.block()?;
            if !self.is("elseif") {
                break;
            }
        }
        if self.accept("else")? {
            self.block()?;
        }
        self.expect("end")
    }

    pub(super) fn for_statement(&mut self) -> Result<()> {
        self.advance()?;
        let mut names = vec![self.name()?];
        if self.accept("=")? {
            let bounds = self.expressions()?;
            self.plain_all(bounds)?;
        } else {
            while self.accept(",")? {
                names.push(self.name()?);
            }
            self.expect("in")?;
            if self.keys_iterator()? && names.len() > 1 {
                self.bind(names.remove(1), Kind::Key)?;
            }
        }
        for name in names {
            self.bind(name, Kind::Other)?;
        }
        self.expect("do")?;
        self.block_to("end")
    }

    /// What a `for` goes through; whether that is `ipairs(KEYS)`.
    pub(super) fn keys_iterator(&mut self) -> Result<bool> {
        if matches!(&self.token, Token::Name(name) if is_iterator(name)) {
            let prefix = self.primary()?;
            if let Prefix::KeysIterator = prefix {
                // Anything else behind it is more than a name for each key.
                return if self.is("do") { Ok(true) } else { Err(NotUnderstood) };
            }
            let kind = self.value(prefix)?;
            let kind = self.operators(kind, 0)?;
            self.plain(kind)?;
        } else {
            self.plain_expression()?;
        }
        while self.accept(",")? {
            self.plain_expression()?;
        }
        Ok(false)
    }

    pub(super) fn function_statement(&mut self) -> Result<()> {
        self.advance()?;
        let name = self.name()?;
        self.check_name(&name)?;
        let (mut is_field, mut is_method) = (false, false);
        while !is_method && (self.is(".") || self.is(":")) {
            is_method = self.is(":");
            is_field = true;
            self.advance()?;
            self.name()?;
        }
        if !is_field {
            return self.named_function(name);
        }
        if self.is_fixed(&name) {
            return Err(NotUnderstood);
        }
        self.facts.used.push(name);
        self.function_body(is_method, Caller::Any).map(drop)
    }

    fn named_function(&mut self, name: Vec<u8>) -> Result<()> {
        self.bind(name.clone(), Kind::Other)?;
        if self.function_body(false, Caller::Server)? {
            self.facts.callbacks.push(name);
        }
        Ok(())
    }

    pub(super) fn local_statement(&mut self) -> Result<()> {
        self.advance()?;
        if self.accept("function")? {
            let name = self.name()?;
            return self.named_function(name);
        }
        let mut names = vec![self.name()?];
        while self.accept(",")? {
            names.push(self.name()?);
        }
        let kinds = if self.accept("=")? { self.expressions()? } else { Vec::new() };
        self.bind_all(names, kinds)
    }

    /// A call, or an assignment.
    pub(super) fn expression_statement(&mut self) -> Result<()> {
        let prefix = self.primary()?;
        if !self.is("=") && !self.is(",") {
            let kind = self.value(prefix)?;
            // Only a call is a statement; `unpack(KEYS)` is one as well.
            return match kind {
                Kind::Many | Kind::Keys => Ok(()),
                _ => Err(NotUnderstood),
            };
        }
        let mut targets = vec![self.target(prefix)?];
        while self.accept(",")? {
            let prefix = self.primary()?;
            targets.push(self.target(prefix)?);
        }
        self.expect("=")?;
        let kinds = self.expressions()?;
        self.assign(targets, kinds)
    }

    /// What is assigned to: a name, or `None` for a field of something.
    pub(super) fn target(&mut self, prefix: Prefix) -> Result<Option<Vec<u8>>> {
        match prefix {
            Prefix::Kind(Kind::Name(name)) => Ok(Some(name)),
            Prefix::Kind(Kind::Other) => Ok(None),
            // An element of KEYS among them.
            _ => Err(NotUnderstood),
        }
    }

    pub(super) fn assign(&mut self, targets: Vec<Option<Vec<u8>>>, kinds: Vec<Kind>) -> Result<()> {
        if targets.iter().all(Option::is_some) {
            return self.bind_all(targets.into_iter().flatten().collect(), kinds);
        }
        // Fields and names mixed: nothing is known of what the names get.
        for name in targets.into_iter().flatten() {
            self.bind(name, Kind::Other)?;
        }
        self.plain_all(kinds)
    }
}
