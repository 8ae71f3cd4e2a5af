//! A parser of Lua 5.1 that keeps of each expression only its [`Kind`].
//!
//! Whoever drops an expression's kind passes it to `Parser::plain` or binds it to a name: so what
//! must not be used as a value is seen wherever it is.

mod library;
mod statements;

use super::calls::{Facts, Kind};
use super::lexer::{Lexer, Malformed, Token};
use library::Caller;

/// Statements and expressions inside each other, as far as Lua's own parser goes.
const DEPTH_MAX: u32 = 200;

/// The operators that bind tighter than others, with what they bind on the left and on the right.
const BINARY: [(&str, u32, u32); 15] = [
    ("or", 1, 1),
    ("and", 2, 2),
    ("<", 3, 3),
    (">", 3, 3),
    ("<=", 3, 3),
    (">=", 3, 3),
    ("~=", 3, 3),
    ("==", 3, 3),
    ("..", 5, 4),
    ("+", 6, 6),
    ("-", 6, 6),
    ("*", 7, 7),
    ("/", 7, 7),
    ("%", 7, 7),
    ("^", 10, 9),
];
const UNARY_PRIORITY: u32 = 8;

/// What of `redis` does not call commands.
const HARMLESS_FIELDS: [&[u8]; 24] = [
    b"LOG_DEBUG",
    b"LOG_NOTICE",
    b"LOG_VERBOSE",
    b"LOG_WARNING",
    b"REDIS_VERSION",
    b"REDIS_VERSION_NUM",
    b"REPL_ALL",
    b"REPL_AOF",
    b"REPL_NONE",
    b"REPL_REPLICA",
    b"REPL_SLAVE",
    b"SERVER_NAME",
    b"VALKEY_VERSION",
    b"VALKEY_VERSION_NUM",
    b"acl_check_cmd",
    b"breakpoint",
    b"debug",
    b"error_reply",
    b"log",
    b"replicate_commands",
    b"set_repl",
    b"setresp",
    b"sha1hex",
    b"status_reply",
];

/// Names by which code could be reached that the source does not show.
const FORBIDDEN: [&[u8]; 5] = [b"_G", b"load", b"loadstring", b"getfenv", b"setfenv"];

/// Why there are no facts: it is no Lua, or it does what is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotUnderstood;

impl From<Malformed> for NotUnderstood {
    fn from(_: Malformed) -> NotUnderstood {
        NotUnderstood
    }
}

type Result<T> = std::result::Result<T, NotUnderstood>;

pub fn parse(source: &[u8]) -> Result<Facts> {
    parse_as(source, b"KEYS", false)
}

/// A library whose functions call their first parameter `keys`.
pub fn parse_library(source: &[u8], keys: &'static [u8]) -> Result<Facts> {
    parse_as(source, keys, true)
}

fn parse_as(source: &[u8], keys: &'static [u8], is_library: bool) -> Result<Facts> {
    let mut lexer = Lexer::new(source);
    let token = lexer.next()?;
    let facts = Facts::default();
    let mut parser = Parser { lexer, token, facts, depth: 0, functions: 0, keys, is_library };
    parser.block()?;
    if parser.token != Token::End {
        return Err(NotUnderstood);
    }
    // In a function with `...`, a variable of this name is there by itself.
    if let Some(kinds) = parser.facts.bindings.get_mut(&b"arg"[..]) {
        kinds.push(Kind::Other);
    }
    Ok(parser.facts)
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The token that comes next.
    token: Token,
    facts: Facts,
    depth: u32,
    /// Functions inside each other.
    functions: u32,
    /// The name of the table of keys.
    keys: &'static [u8],
    is_library: bool,
}

/// An expression that is more than its kind while it is being parsed.
enum Prefix {
    Kind(Kind),
    /// The table `KEYS` itself, whatever it is called.
    KeysTable,
    /// `ipairs(KEYS)`.
    KeysIterator,
    /// `redis` or `server`.
    Redis,
    /// `redis.register_function`.
    Register,
}

/// Tokens.
impl Parser<'_> {
    fn advance(&mut self) -> Result<Token> {
        let next = self.lexer.next()?;
        Ok(std::mem::replace(&mut self.token, next))
    }

    /// The token behind the next one.
    fn token_after(&self) -> Result<Token> {
        let mut lexer = self.lexer;
        Ok(lexer.next()?)
    }

    fn is_name(&self, name: &[u8]) -> bool {
        matches!(&self.token, Token::Name(token) if token == name)
    }

    fn is(&self, text: &str) -> bool {
        matches!(&self.token, Token::Word(token) | Token::Sign(token) if *token == text)
    }

    fn accept(&mut self, text: &str) -> Result<bool> {
        if !self.is(text) {
            return Ok(false);
        }
        self.advance()?;
        Ok(true)
    }

    fn expect(&mut self, text: &str) -> Result<()> {
        if self.accept(text)? { Ok(()) } else { Err(NotUnderstood) }
    }

    fn name(&mut self) -> Result<Vec<u8>> {
        match self.advance()? {
            Token::Name(name) => Ok(name),
            _ => Err(NotUnderstood),
        }
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(NotUnderstood);
        }
        let result = parse(self)?;
        self.depth -= 1;
        Ok(result)
    }
}

/// What happens to values.
impl Parser<'_> {
    /// A value that goes where nothing is known of it.
    fn plain(&mut self, kind: Kind) -> Result<()> {
        match kind {
            Kind::CallFunction => Err(NotUnderstood),
            Kind::Name(name) => {
                self.facts.used.push(name);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn plain_all(&mut self, kinds: Vec<Kind>) -> Result<()> {
        kinds.into_iter().try_for_each(|kind| self.plain(kind))
    }

    /// Whether a name means what it means, so that nothing may be assigned to it.
    fn is_fixed(&self, name: &[u8]) -> bool {
        matches!(name, b"redis" | b"server") || name == self.keys
    }

    /// A value that is assigned to a name.
    fn bind(&mut self, name: Vec<u8>, kind: Kind) -> Result<()> {
        if self.is_fixed(&name) {
            return Err(NotUnderstood);
        }
        if let Kind::Name(other) = &kind {
            self.facts.used.push(other.clone());
        }
        // What is there from call to call is no key, whatever else it is given.
        let stays = self.is_library && self.functions == 0;
        let kind = if stays && kind != Kind::CallFunction { Kind::Other } else { kind };
        self.facts.bindings.entry(name).or_default().push(kind);
        Ok(())
    }

    /// Values for names, as many as there are of either.
    fn bind_all(&mut self, names: Vec<Vec<u8>>, mut kinds: Vec<Kind>) -> Result<()> {
        let rest = match kinds.last() {
            Some(Kind::Keys) => {
                kinds.pop();
                Kind::Key
            }
            Some(Kind::Many) => {
                kinds.pop();
                Kind::Other
            }
            _ => Kind::Nil,
        };
        let mut kinds = kinds.into_iter();
        for name in names {
            self.bind(name, kinds.next().unwrap_or(rest.clone()))?;
        }
        kinds.try_for_each(|kind| self.plain(kind))
    }
}

/// Expressions.
impl Parser<'_> {
    fn expressions(&mut self) -> Result<Vec<Kind>> {
        let mut kinds = vec![self.expression()?];
        while self.accept(",")? {
            // Only the last one gives more than one value.
            if let Some(kind @ (Kind::Many | Kind::Keys)) = kinds.last_mut() {
                *kind = if *kind == Kind::Keys { Kind::Key } else { Kind::Other };
            }
            kinds.push(self.expression()?);
        }
        Ok(kinds)
    }

    fn plain_expression(&mut self) -> Result<()> {
        let kind = self.expression()?;
        self.plain(kind)
    }

    fn expression(&mut self) -> Result<Kind> {
        self.nested(|parser| parser.operation(0))
    }

    /// Operators that bind tighter than `limit`, with their operands.
    fn operation(&mut self, limit: u32) -> Result<Kind> {
        let kind = if self.is("#") {
            self.advance()?;
            self.length()?
        } else if self.is("not") || self.is("-") {
            self.advance()?;
            let kind = self.nested(|parser| parser.operation(UNARY_PRIORITY))?;
            self.plain(kind)?;
            Kind::Other
        } else {
            self.simple()?
        };
        self.operators(kind, limit)
    }

    /// The operators behind a first operand.
    fn operators(&mut self, mut kind: Kind, limit: u32) -> Result<Kind> {
        while let Some((_, _, right)) =
            BINARY.iter().find(|(sign, left, _)| *left > limit && self.is(sign))
        {
            self.advance()?;
            self.plain(kind)?;
            let operand = self.nested(|parser| parser.operation(*right))?;
            self.plain(operand)?;
            kind = Kind::Other;
        }
        Ok(kind)
    }

    /// The operand of `#`, which may be `KEYS`.
    fn length(&mut self) -> Result<Kind> {
        if self.is_name(self.keys) && self.token_after()? != Token::Sign("[") {
            self.advance()?;
            return Ok(Kind::Other);
        }
        let kind = self.nested(|parser| parser.operation(UNARY_PRIORITY))?;
        self.plain(kind)?;
        Ok(Kind::Other)
    }

    fn simple(&mut self) -> Result<Kind> {
        match &self.token {
            Token::Text(_) | Token::Number(_) => self.literal(),
            Token::Word("nil") => self.advance().map(|_| Kind::Nil),
            Token::Word("true" | "false") => self.advance().map(|_| Kind::Other),
            Token::Word("function") => {
                self.advance()?;
                self.function_body(false, Caller::Any)?;
                Ok(Kind::Other)
            }
            Token::Sign("...") => self.advance().map(|_| Kind::Many),
            Token::Sign("{") => self.table().map(|()| Kind::Other),
            _ => {
                let prefix = self.primary()?;
                self.value(prefix)
            }
        }
    }

    fn literal(&mut self) -> Result<Kind> {
        Ok(match self.advance()? {
            Token::Text(text) => Kind::Literal(text),
            Token::Number(number) if number.trunc() == number && number.abs() < 1e15 => {
                Kind::Literal((number as i64).to_string().into_bytes())
            }
            _ => Kind::Other,
        })
    }

    /// What a complete expression is; the tables that must stay where they are, are no values.
    fn value(&mut self, prefix: Prefix) -> Result<Kind> {
        match prefix {
            Prefix::Kind(kind) => Ok(kind),
            _ => Err(NotUnderstood),
        }
    }

    fn table(&mut self) -> Result<()> {
        self.expect("{")?;
        while !self.is("}") {
            if self.accept("[")? {
                self.plain_expression()?;
                self.expect("]")?;
                self.expect("=")?;
                self.plain_expression()?;
            } else {
                self.table_item()?;
            }
            if !self.accept(",")? && !self.accept(";")? {
                break;
            }
        }
        self.expect("}")
    }

    /// `name = value`, or a value alone.
    fn table_item(&mut self) -> Result<()> {
        if matches!(self.token, Token::Name(_)) && self.token_after()? == Token::Sign("=") {
            self.advance()?;
            self.advance()?;
        }
        self.plain_expression()
    }

    /// Says whether the function gets the table of keys.
    fn function_body(&mut self, is_method: bool, caller: Caller) -> Result<bool> {
        if self.is_library && self.functions > 0 {
            return Err(NotUnderstood);
        }
        self.functions += 1;
        if is_method {
            self.bind(b"self".to_vec(), Kind::Other)?;
        }
        self.expect("(")?;
        let gets_keys = self.keys_parameter(caller)?;
        if gets_keys && !self.is(")") {
            self.expect(",")?;
        }
        while !self.is(")") {
            if !self.accept("...")? {
                let name = self.name()?;
                self.bind(name, Kind::Other)?;
            }
            if !self.accept(",")? {
                break;
            }
        }
        self.expect(")")?;
        self.block_to("end")?;
        self.functions -= 1;
        Ok(gets_keys)
    }
}

/// Names, fields and calls.
impl Parser<'_> {
    /// A name or a parenthesis with what stands behind it.
    fn primary(&mut self) -> Result<Prefix> {
        let mut prefix = self.first()?;
        loop {
            prefix = match &self.token {
                Token::Sign(".") => self.field(prefix)?,
                Token::Sign("[") => self.index(prefix)?,
                Token::Sign(":") => self.method(prefix)?,
                Token::Sign("(" | "{") | Token::Text(_) => self.call(prefix)?,
                _ => return Ok(prefix),
            };
        }
    }

    fn first(&mut self) -> Result<Prefix> {
        if self.accept("(")? {
            let kind = self.expression()?;
            self.expect(")")?;
            // One value only.
            return Ok(Prefix::Kind(match kind {
                Kind::Many => Kind::Other,
                Kind::Keys => Kind::Key,
                kind => kind,
            }));
        }
        let name = self.name()?;
        self.check_name(&name)?;
        Ok(match &name[..] {
            b"redis" | b"server" => Prefix::Redis,
            name if name == self.keys => Prefix::KeysTable,
            _ => Prefix::Kind(Kind::Name(name)),
        })
    }

    fn check_name(&self, name: &[u8]) -> Result<()> {
        if FORBIDDEN.contains(&name) { Err(NotUnderstood) } else { Ok(()) }
    }

    fn field(&mut self, prefix: Prefix) -> Result<Prefix> {
        self.expect(".")?;
        let field = self.name()?;
        if let Prefix::Redis = prefix {
            return match &field[..] {
                b"call" | b"pcall" => Ok(Prefix::Kind(Kind::CallFunction)),
                b"register_function" if self.is_library => Ok(Prefix::Register),
                field if HARMLESS_FIELDS.contains(&field) => Ok(Prefix::Kind(Kind::Field)),
                _ => Err(NotUnderstood),
            };
        }
        let kind = self.value(prefix)?;
        self.plain(kind)?;
        Ok(Prefix::Kind(Kind::Other))
    }

    fn index(&mut self, prefix: Prefix) -> Result<Prefix> {
        self.expect("[")?;
        self.plain_expression()?;
        self.expect("]")?;
        if let Prefix::KeysTable = prefix {
            return Ok(Prefix::Kind(Kind::Key));
        }
        let kind = self.value(prefix)?;
        self.plain(kind)?;
        Ok(Prefix::Kind(Kind::Other))
    }

    fn method(&mut self, prefix: Prefix) -> Result<Prefix> {
        self.expect(":")?;
        self.name()?;
        let kind = self.value(prefix)?;
        self.plain(kind)?;
        let args = self.arguments()?;
        self.plain_all(args)?;
        Ok(Prefix::Kind(Kind::Many))
    }

    fn call(&mut self, prefix: Prefix) -> Result<Prefix> {
        if let Prefix::Register = prefix {
            return self.registration();
        }
        let kind = self.value(prefix)?;
        if let Kind::Name(name) = &kind
            && self.gets_keys_table()?
        {
            return self.call_with_keys_table(name);
        }
        let mut args = self.arguments()?;
        match kind {
            Kind::CallFunction => self.command(args)?,
            Kind::Name(name) if name == b"pcall" && args.first() == Some(&Kind::CallFunction) => {
                self.facts.relied_on.push("pcall");
                args.remove(0);
                self.command(args)?;
            }
            Kind::Name(name) => {
                // Until all names are known, these may be the arguments of a command.
                self.plain_all(args.clone())?;
                self.facts.calls_by_name.push((name, args));
            }
            kind => {
                self.plain(kind)?;
                self.plain_all(args)?;
            }
        }
        Ok(Prefix::Kind(Kind::Many))
    }

    /// Whether the first argument of the call that begins here is the table `KEYS` itself.
    fn gets_keys_table(&self) -> Result<bool> {
        let mut lexer = self.lexer;
        let is_keys = lexer.next()? == Token::Name(self.keys.to_vec());
        Ok(self.is("(") && is_keys && matches!(lexer.next()?, Token::Sign("," | ")")))
    }

    /// `unpack(KEYS)` and its like: the functions that may be given the table.
    fn call_with_keys_table(&mut self, name: &[u8]) -> Result<Prefix> {
        let (name, prefix) = match name {
            b"unpack" => ("unpack", Prefix::Kind(Kind::Keys)),
            b"ipairs" => ("ipairs", Prefix::KeysIterator),
            b"pairs" => ("pairs", Prefix::KeysIterator),
            _ => return Err(NotUnderstood),
        };
        self.facts.relied_on.push(name);
        self.expect("(")?;
        self.advance()?;
        while self.accept(",")? {
            self.plain_expression()?;
        }
        self.expect(")")?;
        Ok(prefix)
    }

    /// A call of a command.
    fn command(&mut self, args: Vec<Kind>) -> Result<()> {
        self.plain_all(args.clone())?;
        self.facts.calls.push(args);
        Ok(())
    }

    fn arguments(&mut self) -> Result<Vec<Kind>> {
        match &self.token {
            Token::Text(_) => Ok(vec![self.literal()?]),
            Token::Sign("{") => {
                self.table()?;
                Ok(vec![Kind::Other])
            }
            _ => {
                self.expect("(")?;
                let args = if self.is(")") { Vec::new() } else { self.expressions()? };
                self.expect(")")?;
                Ok(args)
            }
        }
    }
}

fn is_iterator(name: &[u8]) -> bool {
    matches!(name, b"ipairs" | b"pairs")
}
