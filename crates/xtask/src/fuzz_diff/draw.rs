//! Drawing random calls from the syntax of their commands.
//!
//! Most calls are well formed, so that they reach data; some are then damaged. Keys and fields
//! come from small sets, so that calls meet.

use kvasir_keyspace::spec::ArgumentKind;

use super::syntax::{Param, Syntax};
use super::values::Values;
use crate::link::Call;
use crate::random::Random;

/// Of a hundred calls, so many are damaged after they were drawn.
const DAMAGED_PERCENT: u64 = 6;
/// One call in so many names no command at all.
const UNKNOWN_ONCE_IN: u64 = 1000;
/// Commands that empty a database, else little would grow, and HELP come once in so many of their
/// turns.
const RARE_ONCE_IN: u64 = 100;

/// Draws calls.
pub struct Drawer<'a> {
    syntaxes: &'a [Syntax],
    pub values: Values,
}

impl<'a> Drawer<'a> {
    pub fn new(syntaxes: &'a [Syntax], random: &mut Random) -> Drawer<'a> {
        Drawer { syntaxes, values: Values::new(random) }
    }

    pub fn call(&self, random: &mut Random) -> Call {
        let syntax = self.syntax(random);
        let mut call: Call = syntax.words.iter().map(|word| word.as_bytes().to_vec()).collect();
        for word in &mut call {
            change_case(word, random);
        }
        for param in &syntax.params {
            self.param(param, syntax, random, &mut call);
        }
        if random.percent(DAMAGED_PERCENT) {
            self.damage(&mut call, random);
        }
        if random.once_in(UNKNOWN_ONCE_IN) {
            call[0].push(b'x');
        }
        tame(&mut call);
        call
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
    fn param(&self, param: &Param, syntax: &Syntax, random: &mut Random, call: &mut Call) {
        if param.optional && random.percent(65) {
            return;
        }
        let mut count = 1;
        while param.multiple && count < 40 && random.percent(60) {
            count += 1;
        }
        for index in 0..count {
            if let Some(token) = &param.token
                && (index == 0 || param.multiple_token || param.kind == ArgumentKind::PureToken)
            {
                let mut word = token.clone().into_bytes();
                change_case(&mut word, random);
                call.push(word);
            }
            match param.kind {
                ArgumentKind::PureToken => {}
                ArgumentKind::OneOf => {
                    self.param(random.pick(&param.parts), syntax, random, call);
                }
                ArgumentKind::Block => {
                    param.parts.iter().for_each(|part| self.param(part, syntax, random, call));
                }
                kind => call.push(self.values.draw(kind, &param.name, &syntax.group, random)),
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
        const TOKENS: [&str; 16] = [
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

/// Takes out what no two servers could answer alike, or none in this life: times that come while
/// we look, and counts of random elements to draw in their billions.
fn tame(call: &mut Call) {
    const DAY_MS: i128 = 86_400_000;
    let name = call[0].to_ascii_lowercase();
    let is_too_soon = |value: &[u8], unit_ms: i128| {
        let Some(value) = parse(value) else { return false };
        (1..DAY_MS).contains(&(i128::from(value) * unit_ms))
    };
    let times: Vec<(usize, i128)> = match &name[..] {
        b"expire" | b"setex" => vec![(2, 1000)],
        b"pexpire" | b"psetex" => vec![(2, 1)],
        b"set" | b"getex" => (2..call.len())
            .filter_map(|at| match call[at - 1].to_ascii_lowercase().as_slice() {
                b"ex" => Some((at, 1000)),
                b"px" => Some((at, 1)),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    };
    for (at, unit_ms) in times {
        if call.get(at).is_some_and(|value| is_too_soon(value, unit_ms)) {
            call[at] = b"1000000000".to_vec();
        }
    }
    if name == b"hrandfield" && call.len() > 2 && parse(&call[2]).is_some_and(|count| count < -200)
    {
        call[2] = b"-50".to_vec();
    }
}

fn parse(bytes: &[u8]) -> Option<i64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_comes_while_we_look() {
        let tamed = |line: &str| {
            let mut call: Call = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            tame(&mut call);
            call.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(tamed("EXPIRE k 5"), "EXPIRE k 1000000000");
        assert_eq!(tamed("EXPIRE k -5"), "EXPIRE k -5");
        assert_eq!(tamed("Set k v Px 9 GET"), "Set k v Px 1000000000 GET");
        assert_eq!(tamed("SET k v"), "SET k v");
        assert_eq!(tamed("HRANDFIELD h -9000000000"), "HRANDFIELD h -50");
    }
}
