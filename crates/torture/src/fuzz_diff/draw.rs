//! Drawing random calls from the syntax of their commands.
//!
//! Most calls are well formed, so that they reach data; some are then damaged. Keys and fields
//! come from small sets, so that calls meet.

use kvasir_harness::link::Call;
use kvasir_harness::random::Random;
use kvasir_keyspace::spec::ArgumentKind;

use super::intended::Peer;
use super::special;
use super::syntax::{Param, Syntax};
use super::tame::tame;
use super::values::Values;

/// Of a hundred calls, so many are damaged after they were drawn.
const DAMAGED_PERCENT: u64 = 6;
/// One call in so many names no command at all.
const UNKNOWN_ONCE_IN: u64 = 1000;
/// Commands that empty a database, else little would grow, and HELP come once in so many of their
/// turns.
const RARE_ONCE_IN: u64 = 100;

/// Keys that expire a moment later come once in so many calls, since that moment is waited for.
const EXPIRE_ONCE_IN: u64 = 2000;
const RESTORE_ONCE_IN: u64 = 300;

/// Draws calls.
pub struct Drawer<'a> {
    syntaxes: &'a [Syntax],
    pub values: Values,
    /// Whether there is something to take values out and to put them back with.
    has_dump: bool,
    peer: Peer,
}

/// A call that is being drawn.
#[derive(Default)]
struct Draft {
    call: Call,
    /// Where the number of those that follow stands, until they are there.
    count_at: Option<usize>,
    /// How many keys were drawn last: as many weights, or ids, go with them.
    keys: usize,
}

impl<'a> Drawer<'a> {
    pub fn new(syntaxes: &'a [Syntax], peer: Peer, random: &mut Random) -> Drawer<'a> {
        let has_dump = syntaxes.iter().any(|syntax| syntax.words[0] == "restore");
        Drawer { syntaxes, values: Values::new(peer, random), has_dump, peer }
    }

    pub fn call(&self, random: &mut Random) -> Call {
        if random.once_in(EXPIRE_ONCE_IN) {
            return vec![special::EXPIRE_SOME.to_vec()];
        }
        if self.has_dump && random.once_in(RESTORE_ONCE_IN) {
            let keys = [(); 2].map(|()| self.values.key("generic", random));
            return [&[special::RESTORE_COPY.to_vec()], &keys[..]].concat();
        }
        let syntax = self.syntax(random);
        let mut call: Call = syntax.words.iter().map(|word| word.as_bytes().to_vec()).collect();
        for word in &mut call {
            change_case(word, random);
        }
        let mut draft = Draft { call, ..Draft::default() };
        for param in &syntax.params {
            self.param(param, syntax, random, &mut draft);
        }
        let mut call = draft.call;
        self.fit_bounds(&mut call, random);
        if random.percent(DAMAGED_PERCENT) {
            self.damage(&mut call, random);
        }
        if random.once_in(UNKNOWN_ONCE_IN) {
            call[0].push(b'x');
        }
        tame(&mut call, self.peer);
        call
    }

    /// Whether Redis 7.0 refuses what newer ones do: where that ends a transaction, or changes
    /// data only here, all that follows would differ.
    pub fn is_refused_by_peer_alone(&self, call: &Call) -> bool {
        let name = call[0].to_ascii_lowercase();
        let is_newer = match &name[..] {
            b"zrank" | b"zrevrank" => call.len() == 4,
            // Nor do they wait in a script.
            b"xread" | b"xreadgroup" => call.iter().any(|arg| arg.eq_ignore_ascii_case(b"block")),
            b"blpop" | b"brpop" | b"brpoplpush" | b"blmove" | b"bzpopmin" | b"bzpopmax" => true,
            _ => false,
        };
        self.peer == Peer::Redis && is_newer
    }

    fn syntax(&self, random: &mut Random) -> &'a Syntax {
        loop {
            let syntax = random.pick(self.syntaxes);
            let is_rare = ["flushall", "flushdb", "swapdb"].contains(&&syntax.words[0][..])
                || syntax.words.get(1).is_some_and(|word| word == "help");
            if !is_rare || random.once_in(RARE_ONCE_IN) {
                return syntax;
            }
        }
    }

    /// An argument: perhaps not at all, perhaps several times.
    fn param(&self, param: &Param, syntax: &Syntax, random: &mut Random, draft: &mut Draft) {
        if param.optional && random.percent(65) {
            return;
        }
        let count = self.count(param, syntax, random, draft);
        for index in 0..count {
            if let Some(token) = &param.token
                && (index == 0 || param.multiple_token || param.kind == ArgumentKind::PureToken)
            {
                let mut word = token.clone().into_bytes();
                change_case(&mut word, random);
                draft.call.push(word);
            }
            match param.kind {
                ArgumentKind::PureToken => {}
                ArgumentKind::OneOf => {
                    self.param(random.pick(&param.parts), syntax, random, draft);
                }
                ArgumentKind::Block => {
                    param.parts.iter().for_each(|part| self.param(part, syntax, random, draft));
                }
                kind => {
                    if matches!(&param.name[..], "numkeys" | "numfields" | "num-vertices") {
                        draft.count_at = Some(draft.call.len());
                    }
                    let value = self.values.draw(kind, &param.name, &syntax.group, random);
                    draft.call.push(value);
                }
            }
        }
        if param.kind == ArgumentKind::Key {
            draft.keys = count;
        }
        if param.multiple
            && let Some(at) = draft.count_at.take()
            && random.percent(95)
        {
            draft.call[at] = count.to_string().into_bytes();
        }
    }

    /// How often an argument comes.
    fn count(&self, param: &Param, syntax: &Syntax, random: &mut Random, draft: &Draft) -> usize {
        let goes_with_keys =
            param.name == "weight" || (param.name == "id" && syntax.words[0].starts_with("xread"));
        if param.multiple && goes_with_keys && random.percent(95) {
            return draft.keys;
        }
        let mut count = 1;
        while param.multiple && count < 40 && random.percent(60) {
            count += 1;
        }
        count
    }

    /// The bounds of ZRANGE are of three kinds, and only an option behind them says of which.
    fn fit_bounds(&self, call: &mut Call, random: &mut Random) {
        let first = match call[0].to_ascii_lowercase().as_slice() {
            b"zrange" => 2,
            b"zrangestore" => 3,
            _ => return,
        };
        let has = |word: &[u8]| call.iter().any(|arg| arg.eq_ignore_ascii_case(word));
        let (by_score, by_lex) = (has(b"byscore"), has(b"bylex"));
        for at in [first, first + 1] {
            if at < call.len() && random.percent(90) {
                call[at] = match (by_score, by_lex) {
                    (true, _) => self.values.score_bound(random),
                    (_, true) => self.values.lex_bound(random),
                    _ => random.range(-12, 40).to_string().into_bytes(),
                };
            }
        }
    }

    /// What a confused client would send.
    fn damage(&self, call: &mut Call, random: &mut Random) {
        let at = 1 + random.below(call.len());
        match random.below(7) {
            0 if at < call.len() => drop(call.remove(at)),
            1 if at < call.len() => call.insert(at, call[at].clone()),
            2 if at + 1 < call.len() => call.swap(at, at + 1),
            3 if at < call.len() => call[at] = self.values.integer(random),
            4 if at < call.len() => call[at] = self.values.value(random),
            5 => call.insert(at, self.token(random)),
            _ => call.push(self.values.value(random)),
        }
    }

    /// Some command's option.
    fn token(&self, random: &mut Random) -> Vec<u8> {
        const TOKENS: [&str; 30] = [
            "NX",
            "XX",
            "GT",
            "LT",
            "EX",
            "PX",
            "GET",
            "KEEPTTL",
            "PERSIST",
            "REPLACE",
            "DB",
            "COUNT",
            "MATCH",
            "WITHVALUES",
            "ASYNC",
            "IDX",
            "LIMIT",
            "BYSCORE",
            "REV",
            "WITHSCORES",
            "STORE",
            "LEFT",
            "MAXLEN",
            "~",
            "STREAMS",
            "FIELDS",
            "CH",
            "INCR",
            "BY",
            "WEIGHTS",
        ];
        random.pick(&TOKENS).as_bytes().to_vec()
    }
}

fn change_case(word: &mut [u8], random: &mut Random) {
    match random.below(8) {
        0 => word.make_ascii_lowercase(),
        1 => word.iter_mut().for_each(|byte| {
            if random.percent(50) {
                byte.make_ascii_uppercase();
            }
        }),
        _ => word.make_ascii_uppercase(),
    }
}
